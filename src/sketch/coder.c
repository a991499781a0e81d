/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "sketch/coder.h"

/* The positive Lloyd-Max levels of the standard normal distribution (Max 1960, table I). */
static const float normal_levels[5][8] = {{0},
                                          {0.7979f},
                                          {0.4528f, 1.510f},
                                          {0.2451f, 0.7560f, 1.344f, 2.152f},
                                          {0.1284f, 0.3881f, 0.6568f, 0.9424f, 1.256f, 1.618f, 2.069f, 2.733f}};
#define WIDEST 3.5f /* at 8 bits: levels lie evenly from -WIDEST to WIDEST */

static size_t padded(size_t n, size_t to)
{
        return (n + to - 1) / to * to;
}

static int section_of(int32_t bits)
{
        int w = 0;
        while (dci_code_bits[w] != bits)
                w++;
        return w;
}

size_t dci_coder_bytes(size_t dim)
{
        return dci_lines(dim * sizeof(float)) + dci_lines(dci_rotation_bytes(dim));
}

size_t dci_coder_scratch_bytes(size_t dim)
{
        return 3 * dci_lines(padded(dim, 32) * sizeof(float));
}

/* Levels as the bytes that the sums take: 64 is zero, the largest are 1 and 127. What rounding them does is part of the levels. */
static void make_levels(dci_coder *coder, int w)
{
        const int n = 1 << coder->bits;
        const float *positive = normal_levels[coder->bits], most = positive[n / 2 - 1];
        coder->unit = most / 63.0f;
        coder->bias = 64.0f;
        for (int i = 0; i < n; i++) {
                const float level = i < n / 2 ? -positive[n / 2 - 1 - i] : positive[i - n / 2];
                const int byte = (int)lrintf(level / coder->unit) + 64;
                coder->layout.levels[w][i] = (uint8_t)byte;
                coder->levels[i] = coder->unit * (float)(byte - 64);
        }
        for (int i = 1; i < n; i++)
                coder->limits[i] = 0.5f * (coder->levels[i - 1] + coder->levels[i]);
}

void dci_coder_init(const dci_context *context, size_t dim, int32_t bits, bool rotates, uint64_t seed,
                    const float *centre, void *memory, dci_coder *out)
{
        *out = (dci_coder){.kernels = context->kernels, .dim = dim, .bits = bits, .rotates = rotates, .centre = memory};
        const int w = section_of(bits);
        out->layout.n_coords[w] = padded(dim, dci_code_step[w]);
        dci_code_layout_finish(&out->layout);
        if (centre == NULL)
                memset(out->centre, 0, dim * sizeof *out->centre);
        else
                memcpy(out->centre, centre, dim * sizeof *out->centre);
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        dci_rotation_init(&rng, dim, (unsigned char *)memory + dci_lines(dim * sizeof(float)), &out->rotation);
        if (bits <= 4) {
                make_levels(out, w);
        } else {
                out->unit = 2.0f * WIDEST / 255.0f;
                out->bias = 127.5f;
        }
}

static float level_of(const dci_coder *coder, uint8_t code)
{
        return coder->bits == 8 ? coder->unit * ((float)code - coder->bias) : coder->levels[code];
}

/* Codes of coordinates in units of the root mean square: how many limits lie below. A limit at a time, so that loops are vectors. */
static void find_codes(const dci_coder *coder, const float *x, int32_t *counts, uint8_t *codes)
{
        const size_t dim = coder->dim;
        if (coder->bits == 8) {
                for (size_t j = 0; j < dim; j++) {
                        const float byte = x[j] / coder->unit + coder->bias;
                        codes[j] = (uint8_t)lrintf(fminf(fmaxf(byte, 0.0f), 255.0f));
                }
                return;
        }
        memset(counts, 0, dim * sizeof *counts);
        for (int i = 1; i < 1 << coder->bits; i++) {
                const float limit = coder->limits[i];
                for (size_t j = 0; j < dim; j++)
                        counts[j] += x[j] > limit;
        }
        for (size_t j = 0; j < dim; j++)
                codes[j] = (uint8_t)counts[j];
}

void dci_coder_encode(const dci_coder *coder, const float *row, void *scratch, uint8_t *codes, float *out_scale,
                      float *out_residual)
{
        const size_t dim = coder->dim, wide = padded(dim, 32);
        float *y = scratch, *x = y + wide, product;
        int32_t *counts = (int32_t *)(void *)(x + wide);
        for (size_t j = 0; j < dim; j++)
                y[j] = row[j] - coder->centre[j];
        if (coder->rotates)
                dci_rotate(&coder->rotation, y, x);
        const float norm2 = coder->kernels->norm2[DCI_F32 - 1](y, dim);
        const float inverse = norm2 > 0.0f ? 1.0f / sqrtf(norm2 / (float)dim) : 0.0f;
        for (size_t j = 0; j < dim; j++)
                x[j] = y[j] * inverse;
        find_codes(coder, x, counts, codes);
        memset(codes + dim, 0, coder->layout.n_all - dim);
        for (size_t j = 0; j < dim; j++)
                x[j] = level_of(coder, codes[j]);
        coder->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](x, y, 0, 1, dim, &product);
        const double level2 = (double)coder->kernels->norm2[DCI_F32 - 1](x, dim);
        /* Every level has the sign of its coordinate, so the product is positive unless the row is the centre. */
        const double factor = product > 0.0f ? (double)norm2 / (double)product : 0.0;
        *out_scale = (float)(factor * (double)coder->unit);
        *out_residual = (float)sqrt(fmax(factor * factor * level2 - (double)norm2, 0.0));
}

void dci_coder_decode(const dci_coder *coder, const uint8_t *codes, float scale, void *scratch, float *out)
{
        for (size_t j = 0; j < coder->dim; j++)
                out[j] = scale / coder->unit * level_of(coder, codes[j]);
        if (coder->rotates)
                dci_rotate_back(&coder->rotation, out, scratch);
        for (size_t j = 0; j < coder->dim; j++)
                out[j] += coder->centre[j];
}

void dci_coder_query(const dci_coder *coder, const float *query, void *scratch, int8_t *bytes, dci_coded_query *out)
{
        float *y = scratch, most = 0.0f, lost2 = 0.0f;
        int32_t sum = 0;
        memcpy(y, query, coder->dim * sizeof *y);
        coder->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](query, coder->centre, 0, 1, coder->dim, &out->fixed);
        out->length = sqrtf(coder->kernels->norm2[DCI_F32 - 1](query, coder->dim));
        if (coder->rotates)
                dci_rotate(&coder->rotation, y, y + padded(coder->dim, 32));
        for (size_t j = 0; j < coder->dim; j++)
                most = fmaxf(most, fabsf(y[j]));
        const float step = most / 127.0f;
        const float inverse = most > 0.0f ? 127.0f / most : 0.0f;
        for (size_t j = 0; j < coder->dim; j++) {
                bytes[j] = (int8_t)lrintf(y[j] * inverse);
                const float lost = y[j] - step * (float)bytes[j];
                lost2 += lost * lost;
                sum += bytes[j];
        }
        memset(bytes + coder->dim, 0, coder->layout.n_all - coder->dim);
        out->half_step = 0.5f * step;
        out->twice_bias = (int32_t)(2.0f * coder->bias) * sum;
        out->rounding = sqrtf(lost2);
}

void dci_coder_estimate(const dci_coded_query *query, const int32_t *sums, const float *scales, size_t n, float *out)
{
        for (size_t i = 0; i < n; i++)
                out[i] = scales[i] * (query->half_step * (float)(2 * sums[i] - query->twice_bias)) + query->fixed;
}
