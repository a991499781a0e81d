/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* to_levels for AVX2, which AVX-512 has as well. */
#include <immintrin.h>
#include <string.h>

#include "core/internal.h"

#define OWN_TO_LEVELS

/* A block's nibbles are shifted to the lowest bits of eight lanes, and choose among the levels. */
static void to_levels(const unsigned char *codes, size_t n_blocks, const float *levels, float *out)
{
        const __m256 table = _mm256_loadu_ps(levels);
        const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28),
                      sign = _mm256_set1_epi32((int)(1u << 31));
        for (size_t b = 0; b < n_blocks; b++) {
                uint32_t packed;
                uint16_t narrow;
                memcpy(&packed, codes + 4 * b, sizeof packed);
                memcpy(&narrow, codes + 4 * n_blocks + 2 * b, sizeof narrow);
                const __m256i lanes = _mm256_srlv_epi32(_mm256_set1_epi32((int)packed), shifts);
                const __m256 sizes = _mm256_mul_ps(_mm256_permutevar8x32_ps(table, lanes),
                                                   _mm256_set1_ps(dci_bits_float((uint32_t)narrow << 16)));
                const __m256i signs = _mm256_and_si256(_mm256_slli_epi32(lanes, 28), sign);
                _mm256_storeu_ps(out + 8 * b, _mm256_xor_ps(sizes, _mm256_castsi256_ps(signs)));
        }
}
