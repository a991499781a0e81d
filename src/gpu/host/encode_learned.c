/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/encode/encode_learned.cu: learned codes row by row, in the order of simd/codes/encode_levels.h. */
#include "gpu/gpu_internal.h"

#include <math.h>
#include <string.h>

#include "gpu/host/reference.h"
#include "simd/codes/codes.h"
#include "simd/convert.h"

/* As simd/codes/encode_levels.h, and the squares that are exact enough in binary32 as simd/codes/encode_template.h. */
#define FAR_OFF 0x1p60f
#define MIN_SQUARE 0x1p-80f
#define MAX_SQUARE 0x1p100f

/* A row's codes, levels and coordinates. */
typedef struct written {
        uint32_t codes[DCI_GPU_MAX_DIM];
        float y[DCI_GPU_MAX_DIM], moved[DCI_GPU_MAX_DIM], point[DCI_GPU_MAX_DIM];
        float scale;
} written;

static const float *centre_of(const dci_gpu_writer *w)
{
        return (const float *)(const void *)(w + 1);
}

/* A row in the transform's coordinates. */
static void transform_row(const dci_gpu_encode_learned_args *args, const dci_gpu_writer *w, const unsigned char *row,
                          float *y)
{
        const size_t dim = (size_t)args->dim;
        const float *centre = centre_of(w), *to = centre + 2 * dim;
        for (size_t j = 0; j < dim; j++)
                y[j] = 0.0f;
        for (size_t i = 0; i < dim; i++) {
                uint16_t half;
                memcpy(&half, row + 2 * i, sizeof half);
                const float x = (args->dtype == DCI_F16 ? dci_f16_to_float(half) : dci_bf16_to_float(half)) - centre[i];
                for (size_t j = 0; j < dim; j++)
                        y[j] = args->fused != 0 ? fmaf(x, to[i * dim + j], y[j]) : x * to[i * dim + j] + y[j];
        }
}

static float greater(float a, float b)
{
        return a > b ? a : b;
}

static float unit_of(const dci_gpu_writer *w, const float *y)
{
        float sum[2] = {0.0f, 0.0f};
        for (int32_t c = 0; c < w->n_coded; c++) {
                const float size = greater(0.0f - greater(y[c], 0.0f - y[c]), -FAR_OFF);
                sum[c % 2] += size * size;
        }
        return greater(sqrtf((sum[0] + sum[1]) * w->share), 1.0f);
}

/* Codes of x and their levels around zero, of many bits, and of so few that levels are in a table. */
static float wide_level_of(float to_codes, int32_t bits, float x, uint32_t *out_code)
{
        const float rise = bits == 8 ? 1.0f : (float)(1 << (7 - bits)), most = (float)((1 << bits) - 1);
        float at = greater(x * to_codes + 0.5f * most, 0.0f);
        at = at > most ? most : at;
        const float code = rintf(at);
        *out_code = (uint32_t)code;
        return (code - 0.5f * most) * rise;
}

static float level_of(const dci_gpu_writer *w, int32_t bits, float x, uint32_t *out_code)
{
        const uint32_t half = 1u << bits >> 1;
        const float magnitude = greater(x, 0.0f - x);
        float level = w->least[bits];
        uint32_t m = 0;
        for (uint32_t i = 1; i < half; i++)
                if (magnitude > w->limits[bits][i]) {
                        level += w->more[bits][i];
                        m++;
                }
        *out_code = 0.0f > x ? half - 1 - m : half + m;
        return 0.0f > x ? 0.0f - level : level;
}

static void code(const dci_gpu_encode_learned_args *args, const dci_gpu_writer *w, written *out)
{
        const float *worth = centre_of(w) + args->dim, unit = unit_of(w, out->y), inverse = 1.0f / unit;
        float product[2] = {0.0f, 0.0f}, square[2] = {0.0f, 0.0f};
        for (int32_t c = 0; c < w->n_coded; c++) {
                const int32_t bits = w->groups[c / 4].bits;
                const float x = out->y[c] * inverse;
                const float level = bits > DCI_GPU_TRANSFORM_TABLE
                                            ? wide_level_of(w->to_codes[bits], bits, x, &out->codes[c])
                                            : level_of(w, bits, x, &out->codes[c]);
                out->point[c] = level * worth[c];
                out->moved[c] = out->y[c] * (worth[c] * w->to_levels[bits]);
                product[c % 2] += out->point[c] * out->moved[c];
                square[c % 2] += out->point[c] * out->point[c];
        }
        const float products = product[0] + product[1], squares = square[0] + square[1];
        out->scale = w->nearest == 0 ? unit : squares > 0.0f ? products / squares : 0.0f;
}

static float left_at(const dci_gpu_writer *w, const written *row, int32_t c)
{
        return c < w->n_coded ? row->moved[c] - row->scale * row->point[c] : row->y[c];
}

static float residual_of(const dci_gpu_writer *w, const written *row, int32_t dim)
{
        float sum[2] = {0.0f, 0.0f};
        double exact = 0.0;
        for (int32_t c = 0; c < dim; c++) {
                const float left = left_at(w, row, c);
                sum[c % 2] += left * left;
        }
        const float square = sum[0] + sum[1];
        if (square >= MIN_SQUARE && square <= MAX_SQUARE)
                return sqrtf(square);
        for (int32_t c = 0; c < dim; c++)
                exact += (double)left_at(w, row, c) * (double)left_at(w, row, c);
        return (float)sqrt(exact);
}

static void put(const dci_gpu_encode_learned_args *args, const dci_gpu_writer *w, const written *row, int32_t candidate,
                unsigned char *part)
{
        const size_t block_bytes = 4 * (size_t)args->dim * (size_t)args->bits, at = (size_t)candidate % DCI_GPU_CHUNK,
                     rows = DCI_CODE_ROWS;
        unsigned char *words = part + at / rows * block_bytes + dci_code_word(at % rows);
        const uint16_t scale = dci_float_to_bf16(row->scale);
        for (int32_t c = 0; c < w->n_coded; c++) {
                const dci_gpu_transform_group *g = &w->groups[c / 4];
                words[g->line * 2 * DCI_CODE_LINE + (size_t)c % 4] |= (unsigned char)(row->codes[c] << g->shift);
        }
        memcpy(part + DCI_GPU_CHUNK / rows * block_bytes + 2 * at, &scale, sizeof scale);
}

static void encode_head(const dci_gpu_encode_learned_args *args, const dci_gpu_writer *w, int32_t head)
{
        const size_t n_bytes = (size_t)DCI_GPU_CHUNK * ((size_t)args->dim * (size_t)args->bits / 8 + sizeof(uint16_t));
        const int32_t n = args->n_candidates;
        written row = {.scale = 0.0f};
        for (int32_t i = 0; i < n; i++) {
                unsigned char *part = dci_gpu_chunk_of(&args->chunks, (uint64_t)args->row, (uint64_t)head,
                                                       (uint64_t)(i / DCI_GPU_CHUNK));
                const int32_t block = i / (int32_t)DCI_CODE_ROWS;
                if (i % DCI_GPU_CHUNK == 0)
                        memset(part, 0, n_bytes);
                transform_row(args, w,
                              dci_gpu_pool_place(&args->pool, &args->tables, args->row, args->sink + i, head).key,
                              row.y);
                code(args, w, &row);
                put(args, w, &row, i, part);
                if (args->residuals != NULL && DCI_GPU_IS_WATCHED(block))
                        args->residuals[head * DCI_GPU_N_WATCHED(n) + 32 * DCI_GPU_WATCHED(block) + i % 32] =
                                residual_of(w, &row, args->dim);
        }
}

void dci_gpu_ref_encode_learned(const dci_gpu_encode_learned_args *args)
{
        for (int32_t head = 0; head < args->n_heads; head++) {
                const void *record = args->writers + (size_t)head * DCI_GPU_WRITER_BYTES(args->dim);
                const dci_gpu_writer *w = record;
                if (w->learned != 0)
                        encode_head(args, w, head);
        }
}
