/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows to low-bit codes with AVX2: Intel from Haswell, AMD from Zen. */
#include "core/internal.h"

#include <immintrin.h>

#include "simd/convert.h"

#define WRITER dci_code_writer_avx2
#define LANES ((size_t)8)
#define RADIX 4

typedef __m256 F, M;
typedef __m256i I;

#define f_load(p) _mm256_loadu_ps(p)
#define f_store(p, a) _mm256_storeu_ps(p, a)
#define f_all(x) _mm256_set1_ps(x)
#define f_add(a, b) _mm256_add_ps(a, b)
#define f_sub(a, b) _mm256_sub_ps(a, b)
#define f_mul(a, b) _mm256_mul_ps(a, b)
#define f_div(a, b) _mm256_div_ps(a, b)
#define f_sqrt(a) _mm256_sqrt_ps(a)
#define f_max(a, b) _mm256_max_ps(a, b)
#define f_more(a, b) _mm256_cmp_ps(a, b, _CMP_GT_OQ)
#define f_pick(m, a, b) _mm256_blendv_ps(b, a, m)
#define f_if(m, a) _mm256_and_ps(m, a)
#define f_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define f_from(a) _mm256_cvtepi32_ps(a)
#define i_pick(m, a, b) _mm256_blendv_epi8(b, a, _mm256_castps_si256(m))
#define i_if(m, a) _mm256_and_si256(_mm256_castps_si256(m), a)
#define i_zero() _mm256_setzero_si256()
#define i_load(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define i_store(p, a) _mm256_storeu_si256((__m256i *)(void *)(p), a)
#define i_all(x) _mm256_set1_epi32(x)
#define i_and(a, b) _mm256_and_si256(a, b)
#define i_or(a, b) _mm256_or_si256(a, b)
#define i_xor(a, b) _mm256_xor_si256(a, b)
#define i_left(a, bits) _mm256_slli_epi32(a, bits)
#define i_round(a) _mm256_cvtps_epi32(a)
#define i_pair(a, b) _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa)
#define i_low(a) _mm256_and_si256(a, _mm256_set1_epi32(0xffff))
#define i_high(a) _mm256_srli_epi32(a, 16)
#define i_all16(x) _mm256_set1_epi16((short)(x))
#define i_add16(a, b) _mm256_add_epi16(a, b)
#define i_abs16(a) _mm256_abs_epi16(a)
#define i_min16(a, b) _mm256_min_epi16(a, b)
#define i_sign16(a) _mm256_srai_epi16(a, 15)
#define i_times16(a, b) _mm256_mulhi_epi16(a, b)
#define i_dot(acc, a, b) _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))

DCI_INLINE void f_transpose(F row[LANES])
{
        F half[LANES];
        UNROLL for (size_t i = 0; i < LANES; i += 4)
        {
                const F a = _mm256_unpacklo_ps(row[i], row[i + 1]), b = _mm256_unpackhi_ps(row[i], row[i + 1]);
                const F c = _mm256_unpacklo_ps(row[i + 2], row[i + 3]), d = _mm256_unpackhi_ps(row[i + 2], row[i + 3]);
                half[i] = _mm256_shuffle_ps(a, c, 0x44);
                half[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
                half[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
                half[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
        }
        UNROLL for (size_t i = 0; i < 4; i++)
        {
                row[i] = _mm256_permute2f128_ps(half[i], half[i + 4], 0x20);
                row[i + 4] = _mm256_permute2f128_ps(half[i], half[i + 4], 0x31);
        }
}

#include "simd/codes/encode_template.h"
