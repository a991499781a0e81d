/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plain loops, included by each codes_<isa>.c and the portable reader: the compiler makes vectors of them, and sums go
 * to fixed places, so that the bits are the same. No fused multiply-add. */
#include "simd/codes/codes.h"

static void estimate(const int32_t *sums, const float *scales, size_t n, float half_step, int32_t twice_bias,
                     float fixed, float *out)
{
        for (size_t i = 0; i < n; i++)
                out[i] = scales[i] * (half_step * (float)(2 * sums[i] - twice_bias)) + fixed;
}

static void twice_less(const float *squares, size_t n, float *estimates)
{
        for (size_t i = 0; i < n; i++)
                estimates[i] = 2.0f * estimates[i] - squares[i];
}
