/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/score/score_learned.cuh: scores of learned codes code by code. */
#include "gpu/gpu_internal.h"

#include <math.h>
#include <string.h>

#include "gpu/host/learned.h"
#include "simd/codes/codes.h"
#include "simd/convert.h"
#include "simd/cpu.h"
#include "simd/kernels.h"
#include "sketch/rotate.h"

#define NOTHING 0x1p-110f /* as sketch/coder.c: shorter queries count as zero */

static const float *centre_of(const dci_gpu_transform *transform)
{
        return (const float *)(const void *)(transform + 1);
}

#define TOGETHER ((size_t)32) /* coordinates */

/* Uses the CPU's own kernels, so that the host device plans as the CPU does: another order of sums could change a byte
 * by one. */
static void apply_matrix(const float *matrix, size_t dim, size_t n, const float *query, float *out)
{
        dci_isa isa = DCI_ISA_SCALAR;
        float rows[TOGETHER * DCI_GPU_MAX_DIM];
        dci_isa_select(DCI_ISA_AUTO, &isa);
        const dci_kernels *kernels = dci_kernels_for(isa);
        for (size_t first = 0; first < n; first += TOGETHER) {
                const size_t here = n - first < TOGETHER ? n - first : TOGETHER;
                for (size_t i = 0; i < dim; i++)
                        for (size_t j = 0; j < here; j++)
                                rows[j * dim + i] = matrix[i * dim + first + j];
                kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](query, rows, dim * sizeof *rows, here, dim,
                                                                  out + first);
        }
}

void dci_gpu_ref_rotate(size_t dim, const float *signs, const float *query, float *y)
{
        float copy[2 * DCI_ROTATE_ROUNDS * DCI_GPU_MAX_DIM], spare[DCI_GPU_MAX_DIM];
        dci_rotation rotation = {.dim = dim, .part = 1, .signs = copy};
        while (rotation.part <= rotation.dim / 2)
                rotation.part *= 2;
        memcpy(copy, signs, 2 * DCI_ROTATE_ROUNDS * rotation.part * sizeof *copy);
        memcpy(y, query, rotation.dim * sizeof *y);
        dci_rotate(&rotation, y, spare);
}

void dci_gpu_ref_coded(const float *query, const float *centre, size_t dim, const float *y, size_t n,
                       dci_gpu_coded_query *out)
{
        float most = 0.0f;
        double fixed = 0.0;
        for (size_t i = 0; i < dim; i++)
                fixed += (double)query[i] * (double)centre[i];
        for (size_t j = 0; j < n; j++)
                most = fmaxf(most, fabsf(y[j]));
        const bool some = most > NOTHING;
        const float step = some ? most / 127.0f : 0.0f, inverse = some ? 127.0f / most : 0.0f;
        out->half_step = 0.5f * step;
        out->fixed = (float)fixed;
        for (size_t j = 0; j < n; j++) {
                const float whole = y[j] * inverse;
                out->bytes[j] = (int8_t)(isnan(whole) ? 0 : lrintf(whole));
        }
}

void dci_gpu_ref_code_query(const float *query, const float *centre, size_t dim, int32_t bits, const float *signs,
                            dci_gpu_coded_query *out)
{
        float y[DCI_GPU_MAX_DIM];
        dci_gpu_ref_rotate(dim, signs, query, y);
        dci_gpu_ref_coded(query, centre, dim, y, dim, out);
        out->twice_bias = 0;
        for (size_t j = 0; j < dim; j++)
                out->twice_bias += ((1 << bits) - 1) * out->bytes[j];
}

void dci_gpu_ref_code_scores(const unsigned char *codes, float scale, size_t dim, int32_t bits, int32_t at,
                             const dci_gpu_coded_query *queries, int32_t n, float *out)
{
        const size_t step = 32 / (size_t)bits, pair = 2 * DCI_CODE_LINE;
        const unsigned char *block = codes + (size_t)(at / (int32_t)DCI_CODE_ROWS) * (dim / step * pair);
        int32_t sums[DCI_GPU_MAX_GROUP] = {0};
        for (size_t j = 0; j < dim; j++) {
                /* Byte i of a line's word holds coordinates i, 4 + i, 8 + i, .. of the line. */
                const unsigned char *word =
                        block + dci_code_word((size_t)(at % (int32_t)DCI_CODE_ROWS)) + j / step * pair;
                const int32_t code = word[j % 4] >> (j % step / 4 * (size_t)bits) & ((1 << bits) - 1);
                for (int32_t q = 0; q < n; q++)
                        sums[q] += code * queries[q].bytes[j];
        }
        for (int32_t q = 0; q < n; q++) {
                const dci_gpu_coded_query *query = &queries[q];
                const float product = query->half_step * (float)(2 * sums[q] - query->twice_bias),
                            scaled = scale * product;
                out[q] = scaled + query->fixed;
        }
}

void dci_gpu_learned_query(const dci_gpu_score_args *args, const dci_gpu_transform *transform, const float *query,
                           dci_gpu_coded_query *out)
{
        const size_t dim = (size_t)args->dim, n = 4 * (size_t)transform->n_groups;
        const float *centre = centre_of(transform);
        float y[DCI_GPU_MAX_DIM];
        if (transform->by_matrix != 0)
                apply_matrix(centre + dim, dim, n, query, y);
        else
                dci_gpu_ref_rotate((size_t)args->dim, args->signs, query, y);
        dci_gpu_ref_coded(query, centre, dim, y, n, out);
        out->twice_bias = 0;
        for (size_t j = 0; j < n; j++)
                out->twice_bias += transform->groups[j / 4].twice_zero * out->bytes[j];
}

/* The level of coordinate i of a group, from a row's words, which are 128 bytes apart. */
static int32_t level_of(const dci_gpu_transform *transform, const dci_gpu_transform_group *g,
                        const unsigned char *words, size_t i)
{
        const size_t low_bits = g->split ? 2 : g->bits;
        uint32_t code = (uint32_t)words[g->line * 2 * DCI_CODE_LINE + i] >> g->shift & ((1u << low_bits) - 1);
        if (g->split)
                code |= ((uint32_t)words[g->high_line * 2 * DCI_CODE_LINE + i] >> g->high_shift & 1u) << 2;
        if (g->by_table)
                return transform->levels[g->bits - 1][code];
        return (int32_t)(code << dci_code_rise(g->bits));
}

float dci_gpu_learned_score(const dci_gpu_score_args *args, const dci_gpu_transform *transform,
                            const unsigned char *chunk, int32_t at, const dci_gpu_coded_query *query)
{
        const int32_t rows = DCI_CODE_ROWS, block_bytes = 4 * args->dim * args->bits;
        const unsigned char *words = chunk + at / rows * block_bytes + dci_code_word((size_t)(at % rows));
        const uint16_t *scales = (const uint16_t *)(const void *)(chunk + DCI_GPU_CHUNK / rows * block_bytes);
        int32_t sum = 0;
        for (int32_t g = 0; g < transform->n_groups; g++)
                for (size_t i = 0; i < 4; i++)
                        sum += level_of(transform, &transform->groups[g], words, i) * query->bytes[4 * g + (int32_t)i];
        const float product = query->half_step * (float)(2 * sum - query->twice_bias),
                    scaled = dci_bf16_to_float(scales[at]) * product;
        return scaled + query->fixed;
}
