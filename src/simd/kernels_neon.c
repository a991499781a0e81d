/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Row kernels for AArch64 Advanced SIMD, present on every 64-bit Arm CPU. */
#include "core/internal.h"

#include <arm_neon.h>
#include <string.h>

#include "simd/convert.h"

/* Lanes 0 to 3, 4 to 7, 8 to 11, 12 to 15. */
typedef struct V {
        float32x4_t q[4];
} V;

#define GROUP 4
#define GROUP_Q 2
#define GROUP_R 2
#define PRODUCT_ROWS 6
#define PRODUCT_VECTORS 1
#define BLEND_SUMS 6
#define TABLE dci_kernels_neon
#define ISA DCI_ISA_NEON

DCI_INLINE V v_zero(void)
{
        float32x4_t zero = vdupq_n_f32(0.0f);
        return (V){{zero, zero, zero, zero}};
}

DCI_INLINE V v_all(float x)
{
        float32x4_t q = vdupq_n_f32(x);
        return (V){{q, q, q, q}};
}

DCI_INLINE V v_fma(V x, V y, V z)
{
        UNROLL for (int i = 0; i < 4; i++) z.q[i] = vfmaq_f32(z.q[i], x.q[i], y.q[i]);
        return z;
}

DCI_INLINE V v_sub(V x, V y)
{
        UNROLL for (int i = 0; i < 4; i++) x.q[i] = vsubq_f32(x.q[i], y.q[i]);
        return x;
}

DCI_INLINE V v_max(V x, V y)
{
        UNROLL for (int i = 0; i < 4; i++) x.q[i] = vmaxq_f32(x.q[i], y.q[i]);
        return x;
}

DCI_INLINE V v_sqrt(V x)
{
        UNROLL for (int i = 0; i < 4; i++) x.q[i] = vsqrtq_f32(x.q[i]);
        return x;
}

DCI_INLINE V v_power(V t)
{
        UNROLL for (int i = 0; i < 4; i++) t.q[i] =
                vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(t.q[i]), 23));
        return t;
}

DCI_INLINE void v_store(float *p, V x)
{
        UNROLL for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.q[i]);
}

DCI_INLINE V v_load_f32(const float *p)
{
        return (V){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}

DCI_INLINE V v_load_f16(const uint16_t *p)
{
        uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
        float16x8_t a = vreinterpretq_f16_u16(low), b = vreinterpretq_f16_u16(high);
        return (V){{vcvt_f32_f16(vget_low_f16(a)), vcvt_high_f32_f16(a), vcvt_f32_f16(vget_low_f16(b)),
                    vcvt_high_f32_f16(b)}};
}

DCI_INLINE V v_load_bf16(const uint16_t *p)
{
        uint16x8_t a = vld1q_u16(p), b = vld1q_u16(p + 8);
        return (V){{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(a), 16)),
                    vreinterpretq_f32_u32(vshll_high_n_u16(a, 16)),
                    vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(b), 16)),
                    vreinterpretq_f32_u32(vshll_high_n_u16(b, 16))}};
}

DCI_INLINE V widen_whole(int16x8_t low, int16x8_t high)
{
        return (V){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                    vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
}

DCI_INLINE V v_load_i8(const int8_t *p)
{
        int8x16_t x = vld1q_s8(p);
        return widen_whole(vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x));
}

DCI_INLINE V v_load_u8(const uint8_t *p)
{
        uint8x16_t x = vld1q_u8(p);
        return widen_whole(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(x))), vreinterpretq_s16_u16(vmovl_high_u8(x)));
}

#define DEFINE_TAIL(dtype, T)                                                                                          \
        DCI_INLINE V v_tail_##dtype(const T *p, size_t n)                                                              \
        {                                                                                                              \
                T copy[16] = {0};                                                                                      \
                memcpy(copy, p, n * sizeof *p);                                                                        \
                return v_load_##dtype(copy);                                                                           \
        }

DEFINE_TAIL(f32, float)
DEFINE_TAIL(f16, uint16_t)
DEFINE_TAIL(bf16, uint16_t)
DEFINE_TAIL(i8, int8_t)
DEFINE_TAIL(u8, uint8_t)

DCI_INLINE void v_reduce(const V *acc, float *out)
{
        UNROLL for (int i = 0; i < GROUP; i++)
        {
                const float32x4_t *q = acc[i].q;
                float32x4_t four = vaddq_f32(vaddq_f32(q[0], q[2]), vaddq_f32(q[1], q[3]));
                float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
                out[i] = vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
        }
}

DCI_INLINE uint16_t v_hits(V products, float offset, V thresholds)
{
        static const uint32_t bit[4] = {1, 2, 4, 8};
        float32x4_t o = vdupq_n_f32(offset);
        uint32x4_t bits = vld1q_u32(bit);
        unsigned hits = 0;
        UNROLL for (int i = 0; i < 4; i++)
        {
                uint32x4_t less = vcltq_f32(vsubq_f32(products.q[i], o), thresholds.q[i]);
                hits |= vaddvq_u32(vbicq_u32(bits, less)) << (4 * i);
        }
        return (uint16_t)hits;
}

#define DEFINE_KEEP(name, compare, operator)                                                                           \
        static size_t name(const float *values, size_t n, float threshold, float *out_values, int32_t *out_index)      \
        {                                                                                                              \
                float32x4_t limit = vdupq_n_f32(threshold);                                                            \
                size_t kept = 0;                                                                                       \
                for (size_t i = 0; i < n;) {                                                                           \
                        /* Eight values at a time are passed over when none counts, which is most of the time. */      \
                        if (i + 8 <= n) {                                                                              \
                                uint32x4_t a = compare(vld1q_f32(values + i), limit);                                  \
                                uint32x4_t b = compare(vld1q_f32(values + i + 4), limit);                              \
                                if (vmaxvq_u32(vorrq_u32(a, b)) == 0) {                                                \
                                        i += 8;                                                                        \
                                        continue;                                                                      \
                                }                                                                                      \
                        }                                                                                              \
                        for (size_t end = i + 8 <= n ? i + 8 : n; i < end; i++) {                                      \
                                out_values[kept] = values[i];                                                          \
                                out_index[kept] = (int32_t)i;                                                          \
                                kept += values[i] operator threshold;                                                  \
                        }                                                                                              \
                }                                                                                                      \
                return kept;                                                                                           \
        }

DEFINE_KEEP(keep_at_least, vcgeq_f32, >=)
DEFINE_KEEP(keep_at_most, vcleq_f32, <=)

static void narrow_f16(const float *in, size_t n, void *out)
{
        uint16_t *halves = out;
        size_t p = 0;
        for (; p + 4 <= n; p += 4)
                vst1_u16(halves + p, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in + p))));
        for (; p < n; p++)
                halves[p] = dci_float_to_f16(in[p]);
}

static void narrow_bf16(const float *in, size_t n, void *out)
{
        uint16_t *halves = out;
        for (size_t p = 0; p < n; p++)
                halves[p] = dci_float_to_bf16(in[p]);
}

#include "simd/kernels_template.h"
