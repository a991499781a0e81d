/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Row kernels for AVX-512 F, BW, DQ, VL: Intel from Skylake-SP, AMD from Zen 4. */
#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"
#include "simd/kernels_levels.h"

typedef __m512 V;

#define GROUP 16
#define GROUP_Q 4
#define GROUP_R 4
#define PRODUCT_ROWS 12
#define PRODUCT_VECTORS 2
#define BLEND_SUMS 24
#define TABLE dci_kernels_avx512
#define ISA DCI_ISA_AVX512
#define OWN_KEEP_BETWEEN
#define OWN_ADD_LOOKED_UP

#define v_zero() _mm512_setzero_ps()
#define v_all(x) _mm512_set1_ps(x)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_sub(a, b) _mm512_sub_ps(a, b)
#define v_max(a, b) _mm512_max_ps(a, b)
#define v_sqrt(a) _mm512_sqrt_ps(a)
#define v_power(t) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t), 23))
#define v_store(p, a) _mm512_storeu_ps(p, a)
#define v_load_f32(p) _mm512_loadu_ps(p)
#define v_load_f16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define v_load_bf16(p) widen_bf16_lanes(_mm256_loadu_si256((const __m256i *)(p)))
#define v_load_i8(p) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p))))
#define v_load_u8(p) _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p))))

DCI_INLINE __m512 widen_bf16_lanes(__m256i halves)
{
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

DCI_INLINE __mmask16 first(size_t n)
{
        return (__mmask16)((1u << n) - 1);
}

#define v_tail_f32(p, n) _mm512_maskz_loadu_ps(first(n), p)
#define v_tail_f16(p, n) _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p))
#define v_tail_bf16(p, n) widen_bf16_lanes(_mm256_maskz_loadu_epi16(first(n), p))
#define v_tail_i8(p, n) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(n), p)))
#define v_tail_u8(p, n) _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(n), p)))

/* Adds the 8 upper lanes of a and of b to their 8 lower ones; a's sums end in the lower half. */
DCI_INLINE __m512 fold8(__m512 a, __m512 b)
{
        return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* Folds 8 to 4 lanes for two results of fold8: four sums, one in each quarter. */
DCI_INLINE __m512 fold4(__m512 ab, __m512 cd)
{
        return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

DCI_INLINE __m512 fold2(__m512 a, __m512 b)
{
        __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
        return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

/* 16 sums by 15 additions and 30 shuffles: transposing while adding. Quarter i of four[g] holds acc[4 i + g], so the
 * last two folds, which stay within quarters, leave acc[4 i .. 4 i + 3] in quarter i. */
DCI_INLINE void v_reduce(const __m512 *acc, float *out)
{
        __m512 four[4];
        UNROLL for (int g = 0; g < 4; g++) four[g] = fold4(fold8(acc[g], acc[4 + g]), fold8(acc[8 + g], acc[12 + g]));
        __m512 a = fold2(four[0], four[1]), b = fold2(four[2], four[3]);
        _mm512_storeu_ps(out, _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd)));
}

DCI_INLINE uint16_t v_hits(__m512 products, float offset, __m512 thresholds)
{
        return (uint16_t)_mm512_cmp_ps_mask(_mm512_sub_ps(products, _mm512_set1_ps(offset)), thresholds, _CMP_NLT_UQ);
}

/* Most often four vectors hold nothing that counts, which one test of their masks says; else each is compressed without
 * asking, since a branch that is taken now and then costs more. Compressed registers are stored whole: a masked
 * compressing store is slow on some CPUs, and the outputs have room. */
#define DEFINE_KEEP(name, comparison)                                                                                  \
        static size_t name(const float *values, size_t n, float threshold, float *out_values, int32_t *out_index)      \
        {                                                                                                              \
                const __m512 limit = _mm512_set1_ps(threshold);                                                        \
                const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);         \
                size_t kept = 0, i = 0;                                                                                \
                for (; i + 64 <= n; i += 64) {                                                                         \
                        __mmask16 hit[4];                                                                              \
                        UNROLL for (size_t v = 0; v < 4; v++) hit[v] =                                                 \
                                _mm512_cmp_ps_mask(_mm512_loadu_ps(values + i + 16 * v), limit, comparison);           \
                        if ((hit[0] | hit[1] | hit[2] | hit[3]) == 0)                                                  \
                                continue;                                                                              \
                        UNROLL for (size_t v = 0; v < 4; v++)                                                          \
                        {                                                                                              \
                                const __m512 x = _mm512_loadu_ps(values + i + 16 * v);                                 \
                                const __m512i at = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)(i + 16 * v)));      \
                                _mm512_storeu_ps(out_values + kept, _mm512_maskz_compress_ps(hit[v], x));              \
                                _mm512_storeu_si512(out_index + kept, _mm512_maskz_compress_epi32(hit[v], at));        \
                                kept += (size_t)_mm_popcnt_u32(hit[v]);                                                \
                        }                                                                                              \
                }                                                                                                      \
                for (; i < n; i += 16) {                                                                               \
                        const __mmask16 valid = n - i < 16 ? first(n - i) : (__mmask16)0xffff;                         \
                        const __m512 x = _mm512_maskz_loadu_ps(valid, values + i);                                     \
                        const __mmask16 hit = _mm512_mask_cmp_ps_mask(valid, x, limit, comparison);                    \
                        const __m512i at = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)i));                         \
                        _mm512_storeu_ps(out_values + kept, _mm512_maskz_compress_ps(hit, x));                         \
                        _mm512_storeu_si512(out_index + kept, _mm512_maskz_compress_epi32(hit, at));                   \
                        kept += (size_t)_mm_popcnt_u32(hit);                                                           \
                }                                                                                                      \
                return kept;                                                                                           \
        }

DEFINE_KEEP(keep_at_least, _CMP_GE_OQ)
DEFINE_KEEP(keep_at_most, _CMP_LE_OQ)

static size_t keep_between(const float *values, size_t n, float low, float high, float *out, size_t *n_below)
{
        __m512 lowest = _mm512_set1_ps(low), highest = _mm512_set1_ps(high);
        size_t kept = 0, below = 0;
        for (size_t i = 0; i < n; i += 16) {
                __mmask16 valid = n - i < 16 ? first(n - i) : (__mmask16)0xffff;
                __m512 x = _mm512_maskz_loadu_ps(valid, values + i);
                __mmask16 reached = _mm512_mask_cmp_ps_mask(valid, x, lowest, _CMP_GE_OQ);
                __mmask16 hit = _mm512_mask_cmp_ps_mask(reached, x, highest, _CMP_LE_OQ);
                below += (size_t)_mm_popcnt_u32(_mm512_mask_cmp_ps_mask(valid, x, lowest, _CMP_LT_OQ));
                if (hit == 0)
                        continue;
                _mm512_storeu_ps(out + kept, _mm512_maskz_compress_ps(hit, x));
                kept += (size_t)_mm_popcnt_u32(hit);
        }
        *n_below += below;
        return kept;
}

/* The 256 bytes of a table as 128 words in four registers: a code's upper seven bits choose the word, its lowest the
 * byte. */
DCI_INLINE __m512i look_up(__m512i codes, const __m512i *table)
{
        const __m512i words = _mm512_srli_epi16(codes, 1), seventh = _mm512_set1_epi16(64);
        const __m512i low = _mm512_permutex2var_epi16(table[0], words, table[1]),
                      high = _mm512_permutex2var_epi16(table[2], words, table[3]);
        const __m512i both = _mm512_mask_mov_epi16(low, _mm512_test_epi16_mask(words, seventh), high);
        const __m512i shifts = _mm512_slli_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(1)), 3);
        return _mm512_and_si512(_mm512_srlv_epi16(both, shifts), _mm512_set1_epi16(255));
}

static void add_looked_up(const uint8_t *codes, size_t ld, size_t n_blocks, const uint8_t *tables, size_t n,
                          uint16_t *out)
{
        memset(out, 0, n * sizeof *out);
        for (size_t b = 0; b < n_blocks; b++, codes += ld, tables += 256) {
                __m512i table[4];
                size_t i = 0;
                UNROLL for (size_t v = 0; v < 4; v++) table[v] = _mm512_loadu_si512(tables + 64 * v);
                for (; i + 32 <= n; i += 32) {
                        const __m512i here = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(codes + i)));
                        const __m512i sums = _mm512_loadu_si512(out + i);
                        _mm512_storeu_si512(out + i, _mm512_add_epi16(sums, look_up(here, table)));
                }
                for (; i < n; i++)
                        out[i] = (uint16_t)(out[i] + tables[codes[i]]);
        }
}

static void narrow_f16(const float *in, size_t n, void *out)
{
        uint16_t *halves = out;
        for (size_t p = 0; p < n; p += 16) {
                __mmask16 valid = n - p < 16 ? first(n - p) : (__mmask16)0xffff;
                __m256i x = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(valid, in + p), _MM_FROUND_TO_NEAREST_INT);
                _mm256_mask_storeu_epi16(halves + p, valid, x);
        }
}

static void narrow_bf16(const float *in, size_t n, void *out)
{
        uint16_t *halves = out;
        for (size_t p = 0; p < n; p++)
                halves[p] = dci_float_to_bf16(in[p]);
}

#include "simd/kernels_template.h"
