/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Row kernels in portable C, for any CPU. Products are rounded before they are added. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "simd/convert.h"

typedef struct V {
        float lane[16];
} V;

#define GROUP 1
#define GROUP_Q 1
#define GROUP_R 1
#define PRODUCT_ROWS 3
#define PRODUCT_VECTORS 1
#define BLEND_SUMS 8
#define TABLE dci_kernels_scalar
#define ISA DCI_ISA_SCALAR

static inline V v_zero(void)
{
        V a = {{0}};
        return a;
}

static inline V v_all(float x)
{
        V a;
        for (int l = 0; l < 16; l++)
                a.lane[l] = x;
        return a;
}

static inline V v_fma(V a, V b, V c)
{
        for (int l = 0; l < 16; l++)
                c.lane[l] += a.lane[l] * b.lane[l];
        return c;
}

static inline V v_sub(V a, V b)
{
        for (int l = 0; l < 16; l++)
                a.lane[l] -= b.lane[l];
        return a;
}

static inline V v_max(V a, V b)
{
        for (int l = 0; l < 16; l++)
                a.lane[l] = a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l];
        return a;
}

static inline V v_sqrt(V a)
{
        for (int l = 0; l < 16; l++)
                a.lane[l] = sqrtf(a.lane[l]);
        return a;
}

static inline V v_power(V t)
{
        for (int l = 0; l < 16; l++)
                t.lane[l] = dci_bits_float(dci_float_bits(t.lane[l]) << 23);
        return t;
}

static inline void v_store(float *p, V a)
{
        memcpy(p, a.lane, sizeof a.lane);
}

static inline V v_tail_f32(const float *p, size_t n)
{
        V a = v_zero();
        memcpy(a.lane, p, n * sizeof *p);
        return a;
}

static inline V v_load_f32(const float *p)
{
        return v_tail_f32(p, 16);
}

#define DEFINE_LOAD(dtype, T, convert)                                                                                 \
        static inline V v_tail_##dtype(const T *p, size_t n)                                                           \
        {                                                                                                              \
                V a = v_zero();                                                                                        \
                for (size_t l = 0; l < n; l++)                                                                         \
                        a.lane[l] = convert(p[l]);                                                                     \
                return a;                                                                                              \
        }                                                                                                              \
        static inline V v_load_##dtype(const T *p)                                                                     \
        {                                                                                                              \
                return v_tail_##dtype(p, 16);                                                                          \
        }

DEFINE_LOAD(f16, uint16_t, dci_f16_to_float)
DEFINE_LOAD(bf16, uint16_t, dci_bf16_to_float)
DEFINE_LOAD(i8, int8_t, (float))
DEFINE_LOAD(u8, uint8_t, (float))

static inline void v_reduce(const V *acc, float *out)
{
        V a = acc[0];
        for (int half = 8; half > 0; half /= 2)
                for (int l = 0; l < half; l++)
                        a.lane[l] += a.lane[l + half];
        out[0] = a.lane[0];
}

static inline uint16_t v_hits(V products, float offset, V thresholds)
{
        unsigned hits = 0;
        for (unsigned l = 0; l < 16; l++)
                hits |= (unsigned)!(products.lane[l] - offset < thresholds.lane[l]) << l;
        return (uint16_t)hits;
}

static size_t keep_at_least(const float *values, size_t n, float threshold, float *out_values, int32_t *out_index)
{
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
                out_values[kept] = values[i];
                out_index[kept] = (int32_t)i;
                kept += values[i] >= threshold;
        }
        return kept;
}

static size_t keep_at_most(const float *values, size_t n, float threshold, float *out_values, int32_t *out_index)
{
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
                out_values[kept] = values[i];
                out_index[kept] = (int32_t)i;
                kept += values[i] <= threshold;
        }
        return kept;
}

static void narrow_f16(const float *in, size_t n, void *out)
{
        uint16_t *halves = out;
        for (size_t i = 0; i < n; i++)
                halves[i] = dci_float_to_f16(in[i]);
}

static void narrow_bf16(const float *in, size_t n, void *out)
{
        uint16_t *halves = out;
        for (size_t i = 0; i < n; i++)
                halves[i] = dci_float_to_bf16(in[i]);
}

#include "simd/kernels_template.h"
