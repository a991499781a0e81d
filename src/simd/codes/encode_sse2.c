/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows to low-bit codes with what every x86-64 has: the level of portable C there. */
#include "core/internal.h"

#include <emmintrin.h>

#include "simd/convert.h"

#define WRITER dci_code_writer_sse2
#define LANES ((size_t)4)
#define ONE
#define RADIX 3

typedef __m128 F, M;
typedef __m128i I;

#define f_load(p) _mm_loadu_ps(p)
#define f_store(p, a) _mm_storeu_ps(p, a)
#define f_all(x) _mm_set1_ps(x)
#define f_add(a, b) _mm_add_ps(a, b)
#define f_sub(a, b) _mm_sub_ps(a, b)
#define f_mul(a, b) _mm_mul_ps(a, b)
#define f_div(a, b) _mm_div_ps(a, b)
#define f_sqrt(a) _mm_sqrt_ps(a)
#define f_max(a, b) _mm_max_ps(a, b)
#define f_more(a, b) _mm_cmpgt_ps(a, b)
#define f_pick(m, a, b) _mm_or_ps(_mm_and_ps(m, a), _mm_andnot_ps(m, b))
#define f_if(m, a) _mm_and_ps(m, a)
#define f_fma(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define f_from(a) _mm_cvtepi32_ps(a)
#define i_pick(m, a, b) _mm_castps_si128(f_pick(m, _mm_castsi128_ps(a), _mm_castsi128_ps(b)))
#define i_if(m, a) _mm_and_si128(_mm_castps_si128(m), a)
#define i_zero() _mm_setzero_si128()
#define i_load(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define i_store(p, a) _mm_storeu_si128((__m128i *)(void *)(p), a)
#define i_all(x) _mm_set1_epi32(x)
#define i_and(a, b) _mm_and_si128(a, b)
#define i_or(a, b) _mm_or_si128(a, b)
#define i_xor(a, b) _mm_xor_si128(a, b)
#define i_left(a, bits) _mm_slli_epi32(a, bits)
#define i_round(a) _mm_cvtps_epi32(a)
#define i_pair(a, b) _mm_or_si128(i_low(a), _mm_slli_epi32(b, 16))
#define i_low(a) _mm_and_si128(a, _mm_set1_epi32(0xffff))
#define i_high(a) _mm_srli_epi32(a, 16)
#define i_all16(x) _mm_set1_epi16((short)(x))
#define i_add16(a, b) _mm_add_epi16(a, b)
#define i_abs16(a) _mm_max_epi16(a, _mm_sub_epi16(_mm_setzero_si128(), a))
#define i_min16(a, b) _mm_min_epi16(a, b)
#define i_sign16(a) _mm_srai_epi16(a, 15)
#define i_times16(a, b) _mm_mulhi_epi16(a, b)
#define i_dot(acc, a, b) _mm_add_epi32(acc, _mm_madd_epi16(a, b))
#define f_transpose(row) _MM_TRANSPOSE4_PS((row)[0], (row)[1], (row)[2], (row)[3])

#include "simd/codes/encode_template.h"
