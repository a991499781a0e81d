/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Approximate softmax with AVX-512 that has no products of bytes (Intel before Cascade Lake): by products of 16 bits,
 * as many multiply-adds as of floats. The bits are those of softmax/softmax_vnni.c: one answer per level. */
#include "core/internal.h"

#include <immintrin.h>

#define SOFTMAX_TABLE dci_softmax_kernels_avx512

typedef struct softmax_bytes {
        __m512i even, odd; /* bytes 0 and 2 of each four, and 1 and 3, as numbers of 16 bits */
} softmax_bytes;

DCI_INLINE softmax_bytes of_keys(__m512i fours)
{
        return (softmax_bytes){_mm512_and_si512(fours, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(fours, 8)};
}

DCI_INLINE softmax_bytes of_query(__m512i fours)
{
        return (softmax_bytes){_mm512_srai_epi16(_mm512_slli_epi16(fours, 8), 8), _mm512_srai_epi16(fours, 8)};
}

DCI_INLINE __m512i added(__m512i sum, softmax_bytes keys, softmax_bytes query)
{
        return _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_madd_epi16(keys.even, query.even),
                                                      _mm512_madd_epi16(keys.odd, query.odd)));
}

#include "simd/softmax/softmax_template.h"
