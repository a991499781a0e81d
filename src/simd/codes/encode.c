/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows to low-bit codes in plain C, and which writer is the fastest. */
#include "core/internal.h"

#include <math.h>

#include "simd/convert.h"

#define WRITER dci_code_writer_portable
#define LANES ((size_t)4)
#define ONE
#define RADIX 2

typedef struct F {
        float lane[4];
} F;

typedef struct I {
        uint32_t lane[4];
} I;

typedef struct M {
        bool lane[4];
} M;

#define EACH_LANE for (size_t l = 0; l < LANES; l++)

DCI_INLINE F f_load(const float *p)
{
        F a;
        EACH_LANE a.lane[l] = p[l];
        return a;
}

DCI_INLINE void f_store(float *p, F a)
{
        EACH_LANE p[l] = a.lane[l];
}

DCI_INLINE F f_all(float x)
{
        return (F){{x, x, x, x}};
}

#define DEFINE_F(name, value)                                                                                          \
        DCI_INLINE F name(F x, F y)                                                                                    \
        {                                                                                                              \
                EACH_LANE                                                                                              \
                {                                                                                                      \
                        const float a = x.lane[l], b = y.lane[l];                                                      \
                        x.lane[l] = (value);                                                                           \
                }                                                                                                      \
                return x;                                                                                              \
        }

DEFINE_F(f_add, a + b)
DEFINE_F(f_sub, a - b)
DEFINE_F(f_mul, a *b)
DEFINE_F(f_div, a / b)
DEFINE_F(f_max, a > b ? a : b)

DCI_INLINE F f_sqrt(F a)
{
        EACH_LANE a.lane[l] = sqrtf(a.lane[l]);
        return a;
}

DCI_INLINE void f_transpose(F row[LANES])
{
        for (size_t i = 0; i < LANES; i++)
                for (size_t j = 0; j < i; j++) {
                        const float a = row[i].lane[j];
                        row[i].lane[j] = row[j].lane[i];
                        row[j].lane[i] = a;
                }
}

DCI_INLINE M f_more(F a, F b)
{
        M m;
        EACH_LANE m.lane[l] = a.lane[l] > b.lane[l];
        return m;
}

DCI_INLINE F f_pick(M m, F a, F b)
{
        EACH_LANE a.lane[l] = m.lane[l] ? a.lane[l] : b.lane[l];
        return a;
}

DCI_INLINE I i_pick(M m, I a, I b)
{
        EACH_LANE a.lane[l] = m.lane[l] ? a.lane[l] : b.lane[l];
        return a;
}

DCI_INLINE F f_fma(F a, F b, F c)
{
        return f_add(f_mul(a, b), c);
}

DCI_INLINE F f_from(I a)
{
        F x;
        EACH_LANE x.lane[l] = (float)(int32_t)a.lane[l];
        return x;
}

/* Below 2^22 in size: adding 1.5 * 2^23 leaves the nearest whole number in the low bits. */
DCI_INLINE I i_round(F a)
{
        I x;
        EACH_LANE x.lane[l] = dci_float_bits(a.lane[l] + 0x1.8p23f) - 0x4b400000u;
        return x;
}

DCI_INLINE I i_all(int32_t x)
{
        const uint32_t a = (uint32_t)x;
        return (I){{a, a, a, a}};
}

DCI_INLINE I i_load(const void *p)
{
        I a;
        memcpy(&a, p, sizeof a);
        return a;
}

DCI_INLINE void i_store(void *p, I a)
{
        memcpy(p, &a, sizeof a);
}

#define DEFINE_I(name, value)                                                                                          \
        DCI_INLINE I name(I x, I y)                                                                                    \
        {                                                                                                              \
                EACH_LANE                                                                                              \
                {                                                                                                      \
                        const uint32_t a = x.lane[l], b = y.lane[l];                                                   \
                        x.lane[l] = (value);                                                                           \
                }                                                                                                      \
                return x;                                                                                              \
        }

/* Halves of a word as numbers with a sign. */
#define LOW(a) ((int32_t)(int16_t)(a))
#define HIGH(a) ((int32_t)(int16_t)((a) >> 16))
#define BOTH(low, high) (((uint32_t)(low)&0xffffu) | (uint32_t)(high) << 16)

DEFINE_I(i_and, a &b)
DEFINE_I(i_or, a | b)
DEFINE_I(i_xor, a ^ b)
DEFINE_I(i_pair, BOTH(a, b))
DEFINE_I(i_add16, BOTH(LOW(a) + LOW(b), HIGH(a) + HIGH(b)))
DEFINE_I(i_min16, BOTH(LOW(a) < LOW(b) ? LOW(a) : LOW(b), HIGH(a) < HIGH(b) ? HIGH(a) : HIGH(b)))
DEFINE_I(i_times16, BOTH(LOW(a) * LOW(b) / 65536, HIGH(a) * HIGH(b) / 65536))
DEFINE_I(dot_pairs, (uint32_t)(LOW(a) * LOW(b) + HIGH(a) * HIGH(b)))
DEFINE_I(add_words, a + b)

#define f_if(m, a) f_pick(m, a, f_all(0.0f))
#define i_if(m, a) i_pick(m, a, i_zero())
#define i_zero() i_all(0)
#define i_all16(x) i_all((int32_t)((uint32_t)(x)*0x10001u))
#define i_dot(acc, a, b) add_words(acc, dot_pairs(a, b))

DCI_INLINE I i_left(I a, int bits)
{
        EACH_LANE a.lane[l] <<= bits;
        return a;
}

DCI_INLINE I i_low(I a)
{
        EACH_LANE a.lane[l] &= 0xffffu;
        return a;
}

DCI_INLINE I i_high(I a)
{
        EACH_LANE a.lane[l] >>= 16;
        return a;
}

DCI_INLINE I i_abs16(I a)
{
        EACH_LANE
        {
                const int32_t low = LOW(a.lane[l]), high = HIGH(a.lane[l]);
                a.lane[l] = BOTH(low < 0 ? -low : low, high < 0 ? -high : high);
        }
        return a;
}

DCI_INLINE I i_sign16(I a)
{
        EACH_LANE a.lane[l] = BOTH(LOW(a.lane[l]) < 0 ? 0xffffu : 0u, HIGH(a.lane[l]) < 0 ? 0xffffu : 0u);
        return a;
}

#include "simd/codes/encode_template.h"

const dci_code_writer *dci_code_writer_one(const dci_context *context)
{
#if defined(__x86_64__)
        (void)context;
        return &dci_code_writer_sse2; /* which the compiler may use in plain C, too */
#elif defined(__aarch64__)
        return context->isa == DCI_ISA_NEON ? &dci_code_writer_neon : &dci_code_writer_portable;
#else
        (void)context;
        return &dci_code_writer_portable;
#endif
}

const dci_code_writer *dci_code_writer_for(const dci_context *context, size_t n_rows)
{
#if defined(__x86_64__)
        if (context->isa >= DCI_ISA_AVX512 && n_rows > dci_code_writer_avx2.lanes)
                return &dci_code_writer_avx512;
        if (context->isa >= DCI_ISA_AVX2)
                return &dci_code_writer_avx2;
#endif
        (void)n_rows;
        return dci_code_writer_one(context);
}
