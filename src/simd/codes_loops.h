/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plain loops, included by each codes_<isa>.c and the portable reader: the compiler makes vectors of them, and sums go to fixed places,
 * so that the bits are the same. No fused multiply-add. */
#include "simd/codes.h"

static void estimate(const int32_t *sums, const float *scales, size_t n, float half_step, int32_t twice_bias,
                     float fixed, float *out)
{
        for (size_t i = 0; i < n; i++)
                out[i] = scales[i] * (half_step * (float)(2 * sums[i] - twice_bias)) + fixed;
}

#define EVEN_LANES 16

/* Up to EVEN_LANES coordinates; zeros beyond. */
DCI_INLINE void even_lanes(const float *x, float inverse, float half, float most, int32_t *codes, float *product,
                           float *square)
{
        for (size_t j = 0; j < EVEN_LANES; j++) {
                float at = x[j] * inverse + half;
                at = at > 0.0f ? at : 0.0f;
                at = at < most ? at : most;
                codes[j] = (int32_t)at;
                const float level = (float)codes[j] - (half - 0.5f);
                product[j] += level * x[j];
                square[j] += level * level;
        }
}

static float even(const float *x, size_t n, int bits, float step, uint8_t *codes)
{
        const float half = 0.5f * (float)(1 << bits), most = (float)((1 << bits) - 1), inverse = 1.0f / step;
        float product[EVEN_LANES] = {0}, square[EVEN_LANES] = {0}, p = 0.0f, s = 0.0f;
        int32_t found[EVEN_LANES];
        size_t i = 0;
        for (; i + EVEN_LANES <= n; i += EVEN_LANES) {
                even_lanes(x + i, inverse, half, most, found, product, square);
                for (size_t j = 0; j < EVEN_LANES; j++)
                        codes[i + j] = (uint8_t)found[j];
        }
        if (i < n) {
                float rest[EVEN_LANES] = {0}, ignored[EVEN_LANES] = {0}, squares[EVEN_LANES] = {0};
                for (size_t j = 0; j < n - i; j++)
                        rest[j] = x[i + j];
                even_lanes(rest, inverse, half, most, found, ignored, squares);
                for (size_t j = 0; j < n - i; j++) {
                        codes[i + j] = (uint8_t)found[j];
                        product[j] += ignored[j];
                        square[j] += squares[j];
                }
        }
        for (size_t j = 0; j < EVEN_LANES; j++) {
                p += product[j];
                s += square[j];
        }
        return s > 0.0f ? p * p / s : 0.0f;
}
