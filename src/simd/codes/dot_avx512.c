/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Low-bit codes with AVX-512 BW alone: Intel Skylake-SP. */
#include "core/internal.h"

#include "simd/codes/dot_avx512.h"

#define READER dci_code_reader_avx512
#define NAME "avx512"

#define w_dot(acc, a, q) _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(a, q), _mm512_set1_epi16(1)))

/* Pairs of products of 255 with 127 would not fit in 16 bits: even and odd bytes apart; every row keeps its four. */
DCI_INLINE __m512i w_dot_wide(__m512i acc, __m512i a, __m512i q)
{
        const __m512i even = _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(255)),
                                               _mm512_srai_epi16(_mm512_slli_epi16(q, 8), 8));
        const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(q, 8));
        return _mm512_add_epi32(acc, _mm512_add_epi32(even, odd));
}

/* Sums of 16 bits: a code of b bits takes (2^b - 1) * 127 * 2 at most from each pair of bytes. */
#define E_ROOM(bits) ((size_t)(32767 / (((1 << (bits)) - 1) * 254) / (8 / (bits))))
typedef __m512i E;
#define e_zero() _mm512_setzero_si512()
#define e_dot(acc, a, q) _mm512_add_epi16(acc, _mm512_maddubs_epi16(a, q))
#define e_flush(sum, acc) _mm512_add_epi32(sum, _mm512_madd_epi16(acc, _mm512_set1_epi16(1)))

#include "simd/codes/dot_template.h"
