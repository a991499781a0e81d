/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows to low-bit codes with AVX-512 BW: Intel from Skylake-SP, AMD from Zen 4. */
#include "core/internal.h"

#include <immintrin.h>

#include "simd/convert.h"

#define WRITER dci_code_writer_avx512
#define LANES ((size_t)16)
#define RADIX 4

typedef __m512 F;
typedef __m512i I;
typedef __mmask16 M;

#define f_load(p) _mm512_loadu_ps(p)
#define f_store(p, a) _mm512_storeu_ps(p, a)
#define f_all(x) _mm512_set1_ps(x)
#define f_add(a, b) _mm512_add_ps(a, b)
#define f_sub(a, b) _mm512_sub_ps(a, b)
#define f_mul(a, b) _mm512_mul_ps(a, b)
#define f_div(a, b) _mm512_div_ps(a, b)
#define f_sqrt(a) _mm512_sqrt_ps(a)
#define f_max(a, b) _mm512_max_ps(a, b)
#define f_more(a, b) _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)
#define f_pick(m, a, b) _mm512_mask_blend_ps(m, b, a)
#define f_if(m, a) _mm512_maskz_mov_ps(m, a)
#define f_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define f_from(a) _mm512_cvtepi32_ps(a)
#define i_pick(m, a, b) _mm512_mask_blend_epi32(m, b, a)
#define i_if(m, a) _mm512_maskz_mov_epi32(m, a)
#define i_zero() _mm512_setzero_si512()
#define i_load(p) _mm512_loadu_si512(p)
#define i_store(p, a) _mm512_storeu_si512(p, a)
#define i_all(x) _mm512_set1_epi32(x)
#define i_and(a, b) _mm512_and_si512(a, b)
#define i_or(a, b) _mm512_or_si512(a, b)
#define i_xor(a, b) _mm512_xor_si512(a, b)
#define i_left(a, bits) _mm512_slli_epi32(a, (unsigned)(bits))
#define i_round(a) _mm512_cvtps_epi32(a)
#define i_pair(a, b) _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16))
#define i_low(a) _mm512_and_si512(a, _mm512_set1_epi32(0xffff))
#define i_high(a) _mm512_srli_epi32(a, 16)
#define i_all16(x) _mm512_set1_epi16((short)(x))
#define i_add16(a, b) _mm512_add_epi16(a, b)
#define i_abs16(a) _mm512_abs_epi16(a)
#define i_min16(a, b) _mm512_min_epi16(a, b)
#define i_sign16(a) _mm512_srai_epi16(a, 15)
#define i_times16(a, b) _mm512_mulhi_epi16(a, b)
#define i_dot(acc, a, b) _mm512_add_epi32(acc, _mm512_madd_epi16(a, b))

DCI_INLINE void f_transpose(F row[LANES])
{
        F four[LANES]; /* [4 i + k]: coordinates 4 l + k of rows 4 i to 4 i + 3, in the l-th quarter */
        UNROLL for (size_t i = 0; i < LANES; i += 4)
        {
                const F a = _mm512_unpacklo_ps(row[i], row[i + 1]), b = _mm512_unpackhi_ps(row[i], row[i + 1]);
                const F c = _mm512_unpacklo_ps(row[i + 2], row[i + 3]), d = _mm512_unpackhi_ps(row[i + 2], row[i + 3]);
                four[i] = _mm512_shuffle_ps(a, c, 0x44);
                four[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
                four[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
                four[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
        }
        UNROLL for (size_t k = 0; k < 4; k++)
        {
                const F a = _mm512_shuffle_f32x4(four[k], four[4 + k], 0x44);
                const F b = _mm512_shuffle_f32x4(four[k], four[4 + k], 0xee);
                const F c = _mm512_shuffle_f32x4(four[8 + k], four[12 + k], 0x44);
                const F d = _mm512_shuffle_f32x4(four[8 + k], four[12 + k], 0xee);
                row[k] = _mm512_shuffle_f32x4(a, c, 0x88);
                row[4 + k] = _mm512_shuffle_f32x4(a, c, 0xdd);
                row[8 + k] = _mm512_shuffle_f32x4(b, d, 0x88);
                row[12 + k] = _mm512_shuffle_f32x4(b, d, 0xdd);
        }
}

#include "simd/codes/encode_template.h"
