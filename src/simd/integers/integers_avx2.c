/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kernels of integers for AVX2. */
#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"
#include "simd/integers/sums_x86.h"

typedef __m256i X, A;

#define STEP 16
#define ROWS_TABLE dci_integers_avx2
#define x_query(p) _mm256_loadu_si256((const __m256i *)(p))
#define x_load_i8(p) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p)))
#define x_load_u8(p) _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p)))
#define x_tail_i8(p, n, after) _mm256_cvtepi8_epi16(load_tail(p, n, after))
#define x_tail_u8(p, n, after) _mm256_cvtepu8_epi16(load_tail(p, n, after))
#define x_sub(a, b) _mm256_sub_epi16(a, b)
#define a_zero() _mm256_setzero_si256()
#define a_madd(acc, a, b) _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))
#define a_sums(acc, out) dci_sums_of_eight(acc, out)

/* The last n of 16 bytes come first, zeros follow: a shuffle that begins 16 - n entries in. */
DCI_INLINE __m128i load_tail(const unsigned char *p, size_t n, bool after)
{
        static const int8_t shuffle[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                           -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
        if (after) {
                const __m128i order = _mm_loadu_si128((const __m128i *)(shuffle + 16 - n));
                return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + n - 16)), order);
        }
        unsigned char copy[16] = {0};
        memcpy(copy, p, n);
        return _mm_loadu_si128((const __m128i *)copy);
}

#include "simd/integers/rows_template.h"

typedef struct S {
        __m256i a, b;
} S;
typedef __m256i B;

#define TILES_TABLE dci_integer_tiles_avx2
#define AT_ONCE_ROWS 4
#define AT_ONCE_GROUPS 1
#define s_row(p) _mm256_set1_epi32(pair(p))

DCI_INLINE int32_t pair(const int16_t *p)
{
        int32_t both;
        memcpy(&both, p, sizeof both);
        return both;
}

DCI_INLINE S s_zero(void)
{
        return (S){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

DCI_INLINE S s_add(S sum, B row, const int16_t *queries)
{
        const __m256i *q = (const __m256i *)queries;
        sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(row, _mm256_loadu_si256(q)));
        sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(row, _mm256_loadu_si256(q + 1)));
        return sum;
}

DCI_INLINE void s_store(int32_t *out, S sum)
{
        _mm256_storeu_si256((__m256i *)out, sum.a);
        _mm256_storeu_si256((__m256i *)(out + 8), sum.b);
}

#include "simd/integers/tiles_int16.h"
