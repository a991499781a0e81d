/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the readers of low-bit codes with AVX-512 share: all but the products. */
#ifndef DCI_SIMD_CODES_DOT_AVX512_H
#define DCI_SIMD_CODES_DOT_AVX512_H

#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"

typedef __m512i V, W;

#define v_load(p) _mm512_loadu_si512(p)
#define v_mask(byte) _mm512_set1_epi8((char)(byte))
#define v_levels(table) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(table)))
#define v_and(a, b) _mm512_and_si512(a, b)
#define v_or(a, b) _mm512_or_si512(a, b)
#define v_right(a, bits) _mm512_srl_epi16(a, _mm_cvtsi32_si128(bits))
#define v_left(a, bits) _mm512_sll_epi16(a, _mm_cvtsi32_si128(bits))
#define v_lookup(levels, a) _mm512_shuffle_epi8(levels, a)
#define w_zero() _mm512_setzero_si512()
#define w_add(a, b) _mm512_add_epi32(a, b)
#define w_load(p) _mm512_loadu_si512(p)
#define w_store(p, a) _mm512_storeu_si512(p, a)

DCI_INLINE __m512i v_four(const int8_t *p)
{
        int32_t four;
        memcpy(&four, p, sizeof four);
        return _mm512_set1_epi32(four);
}

#endif
