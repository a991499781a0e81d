/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kernels of integers for AVX-512 F, BW, DQ, VL. */
#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"
#include "simd/integers/sums_x86.h"

typedef __m512i X, A;

#define STEP 32
#define ROWS_TABLE dci_integers_avx512
#define first(n) ((__mmask32)((1u << (n)) - 1))
#define x_query(p) _mm512_loadu_si512(p)
#define x_load_i8(p) _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(p)))
#define x_load_u8(p) _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(p)))
#define x_tail_i8(p, n, after) _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(first(n), p))
#define x_tail_u8(p, n, after) _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(first(n), p))
#define x_sub(a, b) _mm512_sub_epi16(a, b)
#define a_zero() _mm512_setzero_si512()
#define a_madd(acc, a, b) _mm512_add_epi32(acc, _mm512_madd_epi16(a, b))

DCI_INLINE void a_sums(const __m512i *acc, int32_t *out)
{
        __m256i half[8];
        UNROLL for (int i = 0; i < 8; i++) half[i] =
                _mm256_add_epi32(_mm512_castsi512_si256(acc[i]), _mm512_extracti64x4_epi64(acc[i], 1));
        dci_sums_of_eight(half, out);
}

#include "simd/integers/rows_template.h"

typedef __m512i S, B;

#define TILES_TABLE dci_integer_tiles_avx512
#define AT_ONCE_ROWS 8
#define AT_ONCE_GROUPS 2
#define s_zero() _mm512_setzero_si512()
#define s_row(p) _mm512_set1_epi32(pair(p))
#define s_add(sum, row, queries) _mm512_add_epi32(sum, _mm512_madd_epi16(row, _mm512_loadu_si512(queries)))
#define s_store(out, sum) _mm512_storeu_si512(out, sum)

DCI_INLINE int32_t pair(const int16_t *p)
{
        int32_t both;
        memcpy(&both, p, sizeof both);
        return both;
}

#include "simd/integers/tiles_int16.h"
