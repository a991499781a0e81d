/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sums of the lanes of eight vectors. */
#ifndef DCI_SIMD_INTEGERS_SUMS_X86_H
#define DCI_SIMD_INTEGERS_SUMS_X86_H

#include <immintrin.h>
#include <stdint.h>

static inline void dci_sums_of_eight(const __m256i *acc, int32_t *out)
{
        const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(acc[0], acc[1]), _mm256_hadd_epi32(acc[2], acc[3]));
        const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(acc[4], acc[5]), _mm256_hadd_epi32(acc[6], acc[7]));
        _mm256_storeu_si256((__m256i *)out, _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                                             _mm256_permute2x128_si256(a, b, 0x31)));
}

#endif
