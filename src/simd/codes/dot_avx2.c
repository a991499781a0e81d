/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Low-bit codes with AVX2: Intel from Haswell, AMD from Zen. */
#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"

#define READER dci_code_reader_avx2
#define NAME "avx2"

typedef __m256i V, W;

#define v_load(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define v_mask(byte) _mm256_set1_epi8((char)(byte))
#define v_levels(table) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(table)))
#define v_and(a, b) _mm256_and_si256(a, b)
#define v_or(a, b) _mm256_or_si256(a, b)
#define v_right(a, bits) _mm256_srl_epi16(a, _mm_cvtsi32_si128(bits))
#define v_left(a, bits) _mm256_sll_epi16(a, _mm_cvtsi32_si128(bits))
#define v_lookup(levels, a) _mm256_shuffle_epi8(levels, a)
#define w_zero() _mm256_setzero_si256()
#define w_add(a, b) _mm256_add_epi32(a, b)
#define w_load(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define w_store(p, a) _mm256_storeu_si256((__m256i *)(void *)(p), a)
#define w_dot(acc, a, q) _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, q), _mm256_set1_epi16(1)))

DCI_INLINE __m256i v_four(const int8_t *p)
{
        int32_t four;
        memcpy(&four, p, sizeof four);
        return _mm256_set1_epi32(four);
}

/* Pairs of products of 255 with 127 would not fit in 16 bits: even and odd bytes apart; every row keeps its four. */
DCI_INLINE __m256i w_dot_wide(__m256i acc, __m256i a, __m256i q)
{
        const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)),
                                               _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8));
        const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(q, 8));
        return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}

/* Sums of 16 bits: a code of b bits takes (2^b - 1) * 127 * 2 at most from each pair of bytes. */
#define E_ROOM(bits) ((size_t)(32767 / (((1 << (bits)) - 1) * 254) / (8 / (bits))))
typedef __m256i E;
#define e_zero() _mm256_setzero_si256()
#define e_dot(acc, a, q) _mm256_add_epi16(acc, _mm256_maddubs_epi16(a, q))
#define e_flush(sum, acc) _mm256_add_epi32(sum, _mm256_madd_epi16(acc, _mm256_set1_epi16(1)))

#include "simd/codes/dot_template.h"
