/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Row kernels for AVX2, FMA and F16C: Intel from Haswell, AMD from Zen. */
#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"
#include "simd/kernels_levels.h"

/* Lanes 0 to 7 and 8 to 15. */
typedef struct V {
        __m256 a, b;
} V;

#define GROUP 4
#define GROUP_Q 2
#define GROUP_R 2
#define PRODUCT_ROWS 6
#define PRODUCT_VECTORS 1
#define BLEND_SUMS 6
#define TABLE dci_kernels_avx2
#define ISA DCI_ISA_AVX2

DCI_INLINE V v_zero(void)
{
        return (V){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

DCI_INLINE V v_all(float x)
{
        return (V){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

DCI_INLINE V v_fma(V x, V y, V z)
{
        return (V){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

DCI_INLINE V v_sub(V x, V y)
{
        return (V){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}

DCI_INLINE V v_max(V x, V y)
{
        return (V){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}

DCI_INLINE V v_sqrt(V x)
{
        return (V){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
}

DCI_INLINE V v_power(V t)
{
        return (V){_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t.a), 23)),
                   _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t.b), 23))};
}

DCI_INLINE void v_store(float *p, V x)
{
        _mm256_storeu_ps(p, x.a);
        _mm256_storeu_ps(p + 8, x.b);
}

DCI_INLINE V v_load_f32(const float *p)
{
        return (V){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

DCI_INLINE V v_load_f16(const uint16_t *p)
{
        return (V){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}

DCI_INLINE __m256 widen_bf16_lanes(const uint16_t *p)
{
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

DCI_INLINE V v_load_bf16(const uint16_t *p)
{
        return (V){widen_bf16_lanes(p), widen_bf16_lanes(p + 8)};
}

DCI_INLINE V v_load_i8(const int8_t *p)
{
        return (V){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))),
                   _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8))))};
}

DCI_INLINE V v_load_u8(const uint8_t *p)
{
        return (V){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p))),
                   _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8))))};
}

/* A copy that is padded with zeros: masked loads of 16-bit lanes do not exist here. */
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

/* Lanes l and l + 8, then l and l + 4. */
DCI_INLINE __m128 fold(V x)
{
        __m256 eight = _mm256_add_ps(x.a, x.b);
        return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}

DCI_INLINE void v_reduce(const V *acc, float *out)
{
        __m128 a = fold(acc[0]), b = fold(acc[1]), c = fold(acc[2]), d = fold(acc[3]);
        __m128 ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
        __m128 cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
        _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd)));
}

DCI_INLINE uint16_t v_hits(V products, float offset, V thresholds)
{
        __m256 o = _mm256_set1_ps(offset);
        int a = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_sub_ps(products.a, o), thresholds.a, _CMP_NLT_UQ));
        int b = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_sub_ps(products.b, o), thresholds.b, _CMP_NLT_UQ));
        return (uint16_t)(a | b << 8);
}

#define DEFINE_KEEP(name, comparison, operator)                                                                        \
        static size_t name(const float *values, size_t n, float threshold, float *out_values, int32_t *out_index)      \
        {                                                                                                              \
                __m256 limit = _mm256_set1_ps(threshold);                                                              \
                size_t kept = 0, i = 0;                                                                                \
                for (; i + 16 <= n; i += 16) {                                                                         \
                        const __m256 low = _mm256_cmp_ps(_mm256_loadu_ps(values + i), limit, comparison);              \
                        const __m256 high = _mm256_cmp_ps(_mm256_loadu_ps(values + i + 8), limit, comparison);         \
                        unsigned hit = (unsigned)_mm256_movemask_ps(low) | (unsigned)_mm256_movemask_ps(high) << 8;    \
                        for (; hit != 0; hit &= hit - 1) {                                                             \
                                size_t at = i + (size_t)__builtin_ctz(hit);                                            \
                                out_values[kept] = values[at];                                                         \
                                out_index[kept++] = (int32_t)at;                                                       \
                        }                                                                                              \
                }                                                                                                      \
                for (; i < n; i++) {                                                                                   \
                        out_values[kept] = values[i];                                                                  \
                        out_index[kept] = (int32_t)i;                                                                  \
                        kept += values[i] operator threshold;                                                          \
                }                                                                                                      \
                return kept;                                                                                           \
        }

DEFINE_KEEP(keep_at_least, _CMP_GE_OQ, >=)
DEFINE_KEEP(keep_at_most, _CMP_LE_OQ, <=)

static void narrow_f16(const float *in, size_t n, void *out)
{
        uint16_t *halves = out;
        size_t p = 0;
        for (; p + 8 <= n; p += 8)
                _mm_storeu_si128((__m128i *)(halves + p),
                                 _mm256_cvtps_ph(_mm256_loadu_ps(in + p), _MM_FROUND_TO_NEAREST_INT));
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
