/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What scores are made from, at a prompt's end and unit by unit in a decode: every byte of the chunks against what the CPU's own coder
 * and page functions make of the same rows all at once.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kv/stages/rank.h"
#include "kv/stages/stages.h"
#include "simd/codes/transpose.h"
#include "simd/convert.h"
#include "sketch/coder.h"
#include "sketch/frames.h"
#include "tests/gpu_fixture.h"

#define ROOM ((size_t)48 << 20)
#define ROWS 3
#define LAYERS 2
#define SINK 5
#define MOST 1200   /* candidates of a sequence */
#define CHUNKS 3    /* of a row */
#define SLACK 128   /* bytes of a head's part that nobody may write */
#define CODE_SEED 7 /* keys' frames; values have the complement, as in src/kv/summaries.c */
GPU_SUITE(ROOM)

typedef struct shape {
        const char *name;
        int32_t dim, dtype, kind, bits, value_bits, group_shift, n_heads, mean_shift;
} shape;

static const shape shapes[] = {
        {"codes of 4 bits", 128, DCI_BF16, DCI_GPU_CODES, 4, 0, 0, 2, 0},
        {"codes of 4 bits, values of 4", 128, DCI_F16, DCI_GPU_CODES, 4, 4, 0, 2, 0},
        {"codes of 2 bits, values of 1", 128, DCI_BF16, DCI_GPU_CODES, 2, 1, 0, 1, 0},
        {"codes of 1 bit, values of 2", 128, DCI_F16, DCI_GPU_CODES, 1, 2, 0, 2, 0},
        {"dim 64, 4 bits, values of 2", 64, DCI_BF16, DCI_GPU_CODES, 4, 2, 0, 3, 0},
        {"dim 64, 2 bits, values of 4", 64, DCI_F16, DCI_GPU_CODES, 2, 4, 0, 1, 0},
        {"dim 64, 1 bit, values of 1", 64, DCI_BF16, DCI_GPU_CODES, 1, 1, 0, 2, 0},
        {"dim 96, 4 bits, values of 1", 96, DCI_F16, DCI_GPU_CODES, 4, 1, 0, 1, 0},
        {"dim 96, 2 bits, values of 2", 96, DCI_BF16, DCI_GPU_CODES, 2, 2, 0, 2, 0},
        {"dim 96, 1 bit, values of 4", 96, DCI_F16, DCI_GPU_CODES, 1, 4, 0, 1, 0},
        {"dim 256, 4 bits, values of 4", 256, DCI_BF16, DCI_GPU_CODES, 4, 4, 0, 1, 0},
        {"dim 256, 2 bits, values of 2", 256, DCI_F16, DCI_GPU_CODES, 2, 2, 0, 1, 0},
        {"dim 256, 1 bit, values of 1", 256, DCI_BF16, DCI_GPU_CODES, 1, 1, 0, 1, 0},
        {"codes of 4 bits, and of means of 8", 128, DCI_BF16, DCI_GPU_CODES, 4, 0, 0, 2, 3},
        {"codes of 2 bits, and of means of 4", 128, DCI_F16, DCI_GPU_CODES, 2, 0, 0, 1, 2},
        {"dim 64, 4 bits, and of means of 16", 64, DCI_F16, DCI_GPU_CODES, 4, 0, 0, 3, 4},
        {"dim 96, 4 bits, of means of 8, values of 2", 96, DCI_BF16, DCI_GPU_CODES, 4, 2, 0, 1, 3},
        {"dim 256, 1 bit, and of means of 4", 256, DCI_BF16, DCI_GPU_CODES, 1, 0, 0, 2, 2},
        {"means of 16", 128, DCI_BF16, DCI_GPU_MEANS, 0, 0, 4, 2, 0},
        {"means of 8", 64, DCI_F16, DCI_GPU_MEANS, 0, 0, 3, 1, 0},
        {"extremes of 16", 128, DCI_F16, DCI_GPU_MINMAX, 0, 0, 4, 2, 0},
        {"extremes of 64", 96, DCI_BF16, DCI_GPU_MINMAX, 0, 0, 6, 1, 0},
        {"cuboids of 32", 128, DCI_BF16, DCI_GPU_CUBOIDS, 0, 0, 5, 2, 0},
        {"deviations of 16", 128, DCI_BF16, DCI_GPU_DEVIATIONS, 0, 0, 4, 2, 0},
        {"deviations of 8, values of 2", 64, DCI_F16, DCI_GPU_DEVIATIONS, 0, 2, 3, 1, 0},
        {"cuboids of 8, values of 4", 256, DCI_F16, DCI_GPU_CUBOIDS, 0, 4, 3, 1, 0},
        {"votes", 128, DCI_BF16, DCI_GPU_VOTES, 0, 0, 0, 2, 0},
        {"votes, dim 64", 64, DCI_F16, DCI_GPU_VOTES, 0, 0, 0, 3, 0},
        {"votes, dim 96, values of 4", 96, DCI_BF16, DCI_GPU_VOTES, 0, 4, 0, 1, 0},
        {"votes, dim 256", 256, DCI_F16, DCI_GPU_VOTES, 0, 0, 0, 1, 0},
};

typedef struct world {
        gpu_test *t;
        const shape *s;
        dci_rng rng;
        size_t lists, row_bytes, summary_bytes, tail_at, head_bytes, chunk_bytes, piece_bytes;
        uint16_t *keys, *values; /* [layer][row][head][MOST][dim] */
        dci_coder key_coder, value_coder;
        void *key_memory, *value_memory;
        gpu_buffer *pieces[8], *list, *numbers, *signs, *value_signs, *centres, *value_centres;
        gpu_buffer *rows, *from, *to, *lane_keys, *lane_values, *prompt_keys, *prompt_values, *sums;
        dci_gpu_lanes lanes;
} world;

static size_t list_of(const world *w, size_t layer, size_t row, size_t head)
{
        return (layer * ROWS + row) * (size_t)w->s->n_heads + head;
}

static uint16_t *row_of(const world *w, bool value, size_t list, size_t candidate)
{
        return (value ? w->values : w->keys) + (list * MOST + candidate) * (size_t)w->s->dim;
}

static float *centre_of(const world *w, bool value, size_t list)
{
        return (float *)(void *)(value ? w->value_centres : w->centres)->image + list * (size_t)w->s->dim;
}

/* --- data ------------------------------------------------------------------------------------------------------------- */

/* Rows about a mean with a few large coordinates, as keys have them; and one in eleven that is out of the ordinary. */
static void fill_row(world *w, const float *mean, size_t number, uint16_t *out)
{
        const size_t dim = (size_t)w->s->dim;
        float x[DCI_GPU_MAX_DIM];
        for (size_t j = 0; j < dim; j++)
                x[j] = mean[j] + (float)test_quick_normal(&w->rng);
        gpu_put_row(&w->rng, w->s->dtype, mean, dim, number, 0.0f, x, out);
}

static uint16_t *make_rows(world *w)
{
        const size_t dim = (size_t)w->s->dim;
        uint16_t *rows = malloc(w->lists * MOST * dim * sizeof *rows);
        ck_assert_ptr_nonnull(rows);
        for (size_t l = 0; l < w->lists; l++) {
                float mean[DCI_GPU_MAX_DIM] = {0.0f};
                for (size_t j = 0; j < dim; j++)
                        mean[j] = l % 3 == 2 ? 0.0f : (j % 29 == 3 ? 12.0f : 1.0f) * (float)test_quick_normal(&w->rng);
                for (size_t i = 0; i < MOST; i++)
                        fill_row(w, mean, i, rows + (l * MOST + i) * dim);
        }
        return rows;
}

/* Codes of so many rows, with their scales. */
static size_t rows_bytes(const world *w, int32_t bits, size_t n_rows)
{
        return n_rows / 32 * dci_frames_block_bytes((size_t)w->s->dim, bits) + n_rows * sizeof(uint16_t);
}

static size_t table_bytes(const world *w, int32_t bits)
{
        return rows_bytes(w, bits, DCI_GPU_CHUNK);
}

static void make_chunks(world *w)
{
        const shape *s = w->s;
        const size_t width = (size_t)(s->kind == DCI_GPU_MEANS ? s->dim : 2 * s->dim);
        w->summary_bytes = s->kind == DCI_GPU_CODES   ? table_bytes(w, s->bits)
                           : s->kind == DCI_GPU_VOTES ? DCI_GPU_CHUNK * (size_t)s->dim / 8 * 7
                                                      : (size_t)(DCI_GPU_CHUNK >> s->group_shift) * width * 2;
        if (s->mean_shift > 0)
                w->summary_bytes += rows_bytes(w, s->bits, (size_t)DCI_GPU_CHUNK >> s->mean_shift);
        w->tail_at = dci_lines(w->summary_bytes);
        w->head_bytes =
                (w->tail_at + (s->value_bits != 0 ? table_bytes(w, s->value_bits) : 0) + SLACK + 127) / 128 * 128;
        w->chunk_bytes = w->head_bytes * (size_t)s->n_heads + 128;
        w->piece_bytes = 256 + 2 * LAYERS * w->chunk_bytes;
        const size_t n_pieces = (ROWS * CHUNKS + 1) / 2;
        w->list = gpu_take(w->t, COUNT(w->pieces) * sizeof(void *), GPU_DEVICE);
        for (size_t p = 0; p < n_pieces; p++) {
                w->pieces[p] = gpu_take(w->t, w->piece_bytes, GPU_DEVICE);
                ((unsigned char **)(void *)w->list->image)[p] = w->pieces[p]->device;
        }
        w->numbers = gpu_take(w->t, ROWS * CHUNKS * sizeof(int32_t), GPU_DEVICE);
        for (size_t i = 0; i < ROWS * CHUNKS; i++) {
                const size_t j = (size_t)dci_rng_below(&w->rng, i + 1);
                gpu_ints(w->numbers)[i] = gpu_ints(w->numbers)[j];
                gpu_ints(w->numbers)[j] = (int32_t)i;
        }
}

static dci_gpu_chunks chunks_of(const world *w, size_t layer)
{
        return (dci_gpu_chunks){.pieces = gpu_at(w->list, false),
                                .numbers = gpu_at(w->numbers, false),
                                .stride = CHUNKS,
                                .layer_at = 256 + layer * 2 * w->chunk_bytes,
                                .chunk_bytes = w->chunk_bytes,
                                .head_bytes = (uint32_t)w->head_bytes,
                                .piece_shift = 1};
}

/* A head's part in the image, computed again. */
static unsigned char *part_of(const world *w, size_t layer, size_t row, size_t chunk, size_t head)
{
        const size_t number = (size_t)gpu_ints(w->numbers)[row * CHUNKS + chunk];
        return w->pieces[number / 2]->image + 256 + (layer * 2 + number % 2) * w->chunk_bytes + head * w->head_bytes;
}

static gpu_buffer *make_frame(world *w, int32_t bits, uint64_t seed, void **out_memory, dci_coder *out)
{
        const size_t dim = (size_t)w->s->dim, part = dim == 96 ? 64 : dim;
        *out_memory = aligned_alloc(64, (dci_coder_bytes(DCI_CODER_ROTATED, dim) + 63) / 64 * 64);
        ck_assert_ptr_nonnull(*out_memory);
        dci_coder_init(w->t->context, DCI_CODER_ROTATED, dim, bits, seed, NULL, *out_memory, out);
        gpu_buffer *signs = gpu_take(w->t, 6 * part * sizeof(float), GPU_DEVICE);
        ck_assert_uint_eq(dci_rotation_bytes(dim), signs->n_bytes);
        memcpy(signs->image, out->rotation.signs, signs->n_bytes);
        return signs;
}

static void make_world(world *w, gpu_test *t, const shape *s, uint64_t seed)
{
        *w = (world){.t = t, .s = s, .lists = (size_t)(LAYERS * ROWS * s->n_heads), .row_bytes = (size_t)s->dim * 2};
        gpu_reset(t);
        dci_rng_seed(&w->rng, seed);
        w->keys = make_rows(w);
        w->values = make_rows(w);
        make_chunks(w);
        w->signs = make_frame(w, s->bits == 0 ? 4 : s->bits, CODE_SEED, &w->key_memory, &w->key_coder);
        w->value_signs = make_frame(w, s->value_bits == 0 ? 4 : s->value_bits, ~(uint64_t)CODE_SEED, &w->value_memory,
                                    &w->value_coder);
        w->centres = gpu_take(t, w->lists * (size_t)s->dim * sizeof(float), GPU_DEVICE);
        w->value_centres = gpu_take(t, w->lists * (size_t)s->dim * sizeof(float), GPU_DEVICE);
}

static void end_world(world *w)
{
        test_free(w->keys, w->values, w->key_memory, w->value_memory);
}

/* --- what the CPU makes of them ---------------------------------------------------------------------------------------- */

static void to_f32(const world *w, const uint16_t *row, float *out)
{
        for (int32_t j = 0; j < w->s->dim; j++)
                out[j] = gpu_number(row, (size_t)j, w->s->dtype);
}

/* Up to 32 rows of a block; returns what goes with them. */
static void encode(const world *w, dci_coder *coder, bool value, size_t list, size_t first, size_t n,
                   unsigned char *block, dci_coded_row *out)
{
        static float wide[DCI_CODE_ROWS * DCI_GPU_MAX_DIM];
        const size_t dim = (size_t)w->s->dim;
        const float *rows[DCI_CODE_ROWS] = {NULL};
        void *scratch = aligned_alloc(64, (dci_coder_encode_bytes(dim, false) + 63) / 64 * 64);
        ck_assert_ptr_nonnull(scratch);
        memcpy(coder->centre, centre_of(w, value, list), dim * sizeof(float));
        for (size_t i = 0; i < n; i++) {
                to_f32(w, row_of(w, value, list, first + i), wide + i * dim);
                rows[i] = wide + i * dim;
        }
        dci_coder_encode(coder, rows, scratch, block, out);
        free(scratch);
}

/* As put_means of src/kv/stages/summary_codes.c: the mean of n candidates, which begins with the first. */
static void model_mean(world *w, size_t list, size_t first, size_t n, unsigned char *table)
{
        static float wide[16 * DCI_GPU_MAX_DIM], mean[DCI_GPU_MAX_DIM];
        const size_t dim = (size_t)w->s->dim, n_rows = (size_t)DCI_GPU_CHUNK >> w->s->mean_shift,
                     at = first % DCI_GPU_CHUNK >> w->s->mean_shift,
                     block_bytes = dci_frames_block_bytes(dim, w->s->bits);
        uint16_t *scales = (uint16_t *)(void *)(table + n_rows / 32 * block_bytes);
        const float *rows[DCI_CODE_ROWS] = {NULL};
        dci_coded_row coded[DCI_CODE_ROWS];
        void *scratch = aligned_alloc(64, (dci_coder_encode_bytes(dim, false) + 63) / 64 * 64);
        ck_assert_ptr_nonnull(scratch);
        for (size_t i = 0; i < n; i++)
                to_f32(w, row_of(w, false, list, first + i), wide + i * dim);
        dci_kv_mean_row(wide, n, dim, mean);
        rows[at % 32] = mean;
        memcpy(w->key_coder.centre, centre_of(w, false, list), dim * sizeof(float));
        dci_coder_encode(&w->key_coder, rows, scratch, table + at / 32 * block_bytes, coded);
        scales[at] = dci_float_to_bf16(coded[at % 32].scale);
        free(scratch);
}

static void model_codes(world *w, size_t list, size_t first, size_t n, unsigned char *part)
{
        const size_t block_bytes = dci_frames_block_bytes((size_t)w->s->dim, w->s->bits), at = first % DCI_GPU_CHUNK;
        uint16_t *scales = (uint16_t *)(void *)(part + 16 * block_bytes);
        dci_coded_row coded[DCI_CODE_ROWS];
        encode(w, &w->key_coder, false, list, first, n, part + at / 32 * block_bytes, coded);
        for (size_t i = 0; i < n; i++)
                scales[at + i] = dci_float_to_bf16(coded[i].scale);
}

/* As put_rows of src/kv/stages/tail_lowbit.c. */
static void model_values(world *w, size_t list, size_t first, size_t n, unsigned char *tail)
{
        static unsigned char block[DCI_CODE_ROWS * DCI_GPU_MAX_DIM];
        const size_t bits = (size_t)w->s->value_bits, n_blocks = (size_t)w->s->dim / 32, apart = 32 * 128 * bits / 8;
        const size_t at = first % DCI_GPU_CHUNK, n_bytes = w->value_coder.layout.n_bytes;
        uint16_t *scales = (uint16_t *)(void *)(tail + 4 * n_blocks * apart);
        dci_coded_row coded[DCI_CODE_ROWS];
        memset(block, 0, sizeof block);
        encode(w, &w->value_coder, true, list, first, n, block, coded);
        for (size_t i = 0; i < n; i++) {
                const float reach2 = coded[i].reach * coded[i].reach;
                const float square = reach2 - coded[i].residual * coded[i].residual;
                const float nearest = reach2 > 0.0f && square > 0.0f ? coded[i].scale * (square / reach2) : 0.0f;
                scales[at + i] = dci_float_to_bf16(nearest);
        }
        dci_code_transpose((int)bits, block, n_bytes / 128, 0, n,
                           tail + at / 128 * n_blocks * apart + at % 128 * bits / 32 * 128, n_blocks, apart);
}

static void model_page(const world *w, size_t list, size_t first, size_t n, unsigned char *to)
{
        static float wide[64 * DCI_GPU_MAX_DIM], row[2 * DCI_GPU_MAX_DIM];
        const dci_kernels *kernels = w->t->context->kernels;
        const size_t dim = (size_t)w->s->dim;
        for (size_t i = 0; i < n; i++)
                to_f32(w, row_of(w, false, list, first + i), wide + i * dim);
        if (w->s->kind == DCI_GPU_MEANS || w->s->kind == DCI_GPU_DEVIATIONS) {
                dci_kv_mean_row(wide, n, dim, row);
                memset(row + dim, 0, dim * sizeof *row);
                for (size_t i = 0; i < n * dim; i++)
                        row[dim + i % dim] += (wide[i] - row[i % dim]) * (wide[i] - row[i % dim]);
                const float most = w->s->dtype == DCI_F16 ? 65504.0f : 0x1.fep127f; /* of the type */
                for (size_t j = 0; j < dim; j++) {
                        row[dim + j] /= (float)n;
                        row[dim + j] = row[dim + j] < most ? row[dim + j] : most;
                }
        } else {
                memcpy(row, wide, dim * sizeof *row);
                memcpy(row + dim, wide, dim * sizeof *row);
                kernels->extend(wide + dim, n - 1, dim, row, row + dim);
        }
        if (w->s->kind == DCI_GPU_CUBOIDS) {
                for (size_t j = 0; j < dim; j++) {
                        row[j] = 0.5f * (row[j] + row[dim + j]);
                        row[dim + j] = 0.0f;
                }
                kernels->add_distances(wide, n, dim, row, row + dim);
                for (size_t j = 0; j < dim; j++)
                        row[dim + j] /= (float)n;
        }
        kernels->narrow[w->s->dtype - 1](row, w->s->kind == DCI_GPU_MEANS ? dim : 2 * dim, to);
}

/* By the host's stage. */
static void model_votes(const world *w, size_t list, size_t candidate, unsigned char *part)
{
        static float wide[DCI_GPU_MAX_DIM], scratch[3 * DCI_GPU_MAX_DIM];
        dci_kv kv;
        memset(&kv, 0, sizeof kv);
        kv.dim_k = (size_t)w->s->dim;
        kv.vote_rotation = w->key_coder.rotation;
        to_f32(w, row_of(w, false, list, candidate), wide);
        dci_kv_summary_votes.put(&kv, NULL, part, candidate % DCI_GPU_CHUNK, 1, wide, scratch);
}

/* All candidates of a list at once. */
static void model(world *w, size_t layer, size_t row, size_t head, size_t n)
{
        const shape *s = w->s;
        const size_t list = list_of(w, layer, row, head), per = (size_t)1 << s->group_shift;
        const size_t width = (size_t)(s->kind == DCI_GPU_MEANS ? s->dim : 2 * s->dim) * 2;
        for (size_t c = 0; c < n; c++) {
                unsigned char *part = part_of(w, layer, row, c / DCI_GPU_CHUNK, head);
                const size_t left = n - c, rows = left < 32 ? left : 32;
                if (c % DCI_GPU_CHUNK == 0) {
                        memset(part, 0, w->summary_bytes);
                        if (s->value_bits != 0)
                                memset(part + w->tail_at, 0, table_bytes(w, s->value_bits));
                }
                if (s->kind == DCI_GPU_CODES && c % 32 == 0)
                        model_codes(w, list, c, rows, part);
                const size_t mean = s->mean_shift > 0 ? (size_t)1 << s->mean_shift : n;
                if (s->mean_shift > 0 && c % mean == 0)
                        model_mean(w, list, c, left < mean ? left : mean, part + table_bytes(w, s->bits));
                if (s->kind == DCI_GPU_VOTES)
                        model_votes(w, list, c, part);
                else if (s->kind != DCI_GPU_CODES && c % per == 0)
                        model_page(w, list, c, left < per ? left : per, part + c % DCI_GPU_CHUNK / per * width);
                if (s->value_bits != 0 && c % 32 == 0)
                        model_values(w, list, c, rows, part + w->tail_at);
        }
}

static void compare(world *w, const char *what)
{
        char text[200];
        for (size_t p = 0; p < COUNT(w->pieces) && w->pieces[p] != NULL; p++) {
                snprintf(text, sizeof text, "%s, %s, piece %zu (a head has %zu bytes, %zu for a chunk)", w->s->name,
                         what, p, w->head_bytes, w->chunk_bytes);
                gpu_same(w->t, w->pieces[p], text);
        }
        snprintf(text, sizeof text, "%s, %s, centres", w->s->name, what);
        gpu_same(w->t, w->centres, text);
        gpu_same(w->t, w->value_centres, text);
}

/* --- a prompt's end -------------------------------------------------------------------------------------------------------- */

static void model_centre(const world *w, bool value, size_t list, size_t n)
{
        float *out = centre_of(w, value, list);
        for (int32_t j = 0; j < w->s->dim; j++) {
                double sum = 0.0;
                for (size_t i = 0; i < n;) {
                        float part = 0.0f;
                        do
                                part += gpu_number(row_of(w, value, list, i), (size_t)j, w->s->dtype);
                        while (++i < n && i % 64 != 0);
                        sum += (double)part;
                }
                out[j] = (float)(sum / (double)n);
        }
}

/* The caller's rows: tokens one after the other, each with all heads. */
static void lay_out(const world *w, bool value, size_t layer, size_t row, size_t n, size_t token_bytes, gpu_buffer *to)
{
        for (size_t h = 0; h < (size_t)w->s->n_heads; h++)
                for (size_t i = 0; i < n; i++)
                        memcpy(to->image + i * token_bytes + h * w->row_bytes,
                               row_of(w, value, list_of(w, layer, row, h), i), w->row_bytes);
        gpu_send(w->t, to);
}

static dci_gpu_encode_prompt_args prompt_args(const world *w, size_t layer, size_t row, size_t n, size_t token_bytes)
{
        const shape *s = w->s;
        const uint64_t at = layer * ROWS * (uint64_t)s->n_heads * (uint64_t)s->dim;
        return (dci_gpu_encode_prompt_args){.n_heads = s->n_heads,
                                            .dim = s->dim,
                                            .kind = s->kind,
                                            .bits = s->bits,
                                            .dtype = s->dtype,
                                            .group_shift = s->group_shift,
                                            .n_candidates = (int32_t)n,
                                            .row = (int32_t)row,
                                            .value_bits = s->value_bits,
                                            .tail_at = (int32_t)w->tail_at,
                                            .mean_shift = s->mean_shift,
                                            .keys = gpu_at(w->prompt_keys, false),
                                            .values = gpu_at(w->prompt_values, false),
                                            .key_token = token_bytes,
                                            .key_head = w->row_bytes,
                                            .value_token = token_bytes,
                                            .value_head = w->row_bytes,
                                            .chunks = chunks_of(w, layer),
                                            .signs = gpu_at(w->signs, false),
                                            .value_signs = gpu_at(w->value_signs, false),
                                            .centres = (float *)gpu_at(w->centres, false) + at,
                                            .value_centres = (float *)gpu_at(w->value_centres, false) + at,
                                            .sums = gpu_at(w->sums, false)};
}

static void go_prompt(gpu_test *t, const shape *s, size_t n, uint64_t seed, bool captured)
{
        world w;
        char what[80];
        make_world(&w, t, s, seed);
        const size_t layer = seed % LAYERS, row = seed % ROWS, token_bytes = (size_t)s->n_heads * w.row_bytes + 32;
        w.prompt_keys = gpu_take(t, MOST * token_bytes, GPU_DEVICE);
        w.prompt_values = gpu_take(t, MOST * token_bytes, GPU_DEVICE);
        w.sums = gpu_take(t, 2 * (size_t)s->n_heads * ((n + 63) / 64) * (size_t)s->dim * sizeof(float), GPU_DEVICE);
        gpu_send_all(t);
        lay_out(&w, false, layer, row, n, token_bytes, w.prompt_keys);
        lay_out(&w, true, layer, row, n, token_bytes, w.prompt_values);
        for (size_t h = 0; h < (size_t)s->n_heads; h++) {
                if (s->kind == DCI_GPU_CODES)
                        model_centre(&w, false, list_of(&w, layer, row, h), n);
                if (s->value_bits != 0)
                        model_centre(&w, true, list_of(&w, layer, row, h), n);
                model(&w, layer, row, h, n);
        }
        const dci_gpu_encode_prompt_args args = prompt_args(&w, layer, row, n, token_bytes);
        void *graph = NULL;
        if (captured)
                ck_ok(t->ops->capture_begin(t->gpu, t->stream));
        ck_ok(t->ops->encode_prompt(t->gpu, t->stream, &args));
        if (captured) {
                ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
                for (int i = 0; i < 2; i++) /* the same again */
                        ck_ok(t->ops->graph_launch(t->gpu, graph, t->stream));
        }
        snprintf(what, sizeof what, "a prompt of %zu candidates", n);
        compare(&w, what);
        gpu_fetch(t, w.sums);
        gpu_guarded(w.sums, what);
        if (captured)
                t->ops->graph_destroy(t->gpu, graph);
        end_world(&w);
}

START_TEST(prompts_become_what_the_cpu_makes_of_them)
{
        static const size_t sizes[] = {1, 16, 40, 63, 64, 65, 250, 511, 512, 513, 1024, 1100, 1199};
        for (size_t i = 0; i < COUNT(shapes); i++)
                for (size_t j = test_short() ? i % 4 : i % 2; j < COUNT(sizes); j += test_short() ? 4 : 2)
                        go_prompt(&gpu, &shapes[i], sizes[j], 31 * i + j, (i + j) % 3 == 0);
}
END_TEST

/* --- a decode ----------------------------------------------------------------------------------------------------------------- */

static void make_lanes(world *w, int32_t ring)
{
        const size_t dim = (size_t)w->s->dim;
        w->lanes = (dci_gpu_lanes){.key_bytes = (uint32_t)w->row_bytes,
                                   .value_bytes = (uint32_t)w->row_bytes,
                                   .sink = SINK,
                                   .ring = ring,
                                   .hot = 3,
                                   .n_slots = SINK + ring + 3};
        const size_t bytes = w->lists * (size_t)w->lanes.n_slots * w->row_bytes;
        w->lane_keys = gpu_take(w->t, bytes, GPU_DEVICE);
        w->lane_values = gpu_take(w->t, bytes, GPU_DEVICE);
        w->rows = gpu_take(w->t, ROWS * sizeof(int32_t), GPU_DEVICE);
        w->from = gpu_take(w->t, ROWS * sizeof(int32_t), GPU_DEVICE);
        w->to = gpu_take(w->t, ROWS * sizeof(int32_t), GPU_MAPPED);
        for (size_t l = 0; l < w->lists; l++)
                for (int side = 0; side < 2; side++) {
                        float *centre = centre_of(w, side == 1, l), x[DCI_GPU_MAX_DIM] = {0.0f};
                        to_f32(w, row_of(w, side == 1, l, 12), x);
                        for (size_t j = 0; j < dim; j++)
                                centre[j] = l % 3 == 2 ? 0.0f : 0.9f * x[j];
                }
}

static dci_gpu_encode_args step_args(const world *w)
{
        const shape *s = w->s;
        dci_gpu_encode_args args = {.n_layers = LAYERS,
                                    .n_sequences = ROWS,
                                    .n_heads = s->n_heads,
                                    .dim = s->dim,
                                    .kind = s->kind,
                                    .bits = s->bits,
                                    .dtype = s->dtype,
                                    .group_shift = s->group_shift,
                                    .sink = SINK,
                                    .value_bits = s->value_bits,
                                    .tail_at = (int32_t)w->tail_at,
                                    .mean_shift = s->mean_shift,
                                    .rows = gpu_at(w->rows, false),
                                    .from = gpu_at(w->from, false),
                                    .to = gpu_at(w->to, false),
                                    .lanes = w->lanes,
                                    .chunks = chunks_of(w, 0),
                                    .layer_step = 2 * w->chunk_bytes,
                                    .signs = gpu_at(w->signs, false),
                                    .centres = gpu_at(w->centres, false),
                                    .centres_step = ROWS * (uint64_t)s->n_heads * (uint64_t)s->dim,
                                    .value_signs = gpu_at(w->value_signs, false),
                                    .value_centres = gpu_at(w->value_centres, false)};
        args.lane_step = args.value_step = ROWS * (uint64_t)s->n_heads * (uint64_t)w->lanes.n_slots * w->row_bytes;
        args.lanes.keys = gpu_at(w->lane_keys, false);
        args.lanes.values = gpu_at(w->lane_values, false);
        return args;
}

/* The rows of candidates [from, to) of a sequence to their slots of the ring. */
static void fill_ring(const world *w, size_t row, int32_t from, int32_t to)
{
        const dci_gpu_lanes *lanes = &w->lanes;
        for (size_t l = 0; l < LAYERS; l++)
                for (size_t h = 0; h < (size_t)w->s->n_heads; h++)
                        for (int32_t c = from; c < to; c++) {
                                const size_t list = list_of(w, l, row, h);
                                const size_t slot =
                                        list * (size_t)lanes->n_slots + (size_t)(SINK + (SINK + c) % lanes->ring);
                                memcpy(w->lane_keys->image + slot * w->row_bytes, row_of(w, false, list, (size_t)c),
                                       w->row_bytes);
                                memcpy(w->lane_values->image + slot * w->row_bytes, row_of(w, true, list, (size_t)c),
                                       w->row_bytes);
                        }
}

/* Where a sequence goes on to: usually nowhere, mostly by one unit, seldom by much. */
static int32_t next_of(world *w, int32_t n, int32_t step)
{
        const int32_t unit = w->s->group_shift > 4 ? 1 << w->s->group_shift : 16;
        const uint64_t how = dci_rng_below(&w->rng, 8);
        const int32_t by = step % 4 == 3 ? 0 : how < 3 ? 0 : how < 7 ? unit : 10 * unit;
        return n + by > MOST - MOST % 64 ? n : n + by;
}

static void go_decode(gpu_test *t, const shape *s, uint64_t seed, bool captured)
{
        world w;
        char what[80];
        int32_t n[ROWS] = {0};
        void *graph = NULL;
        make_world(&w, t, s, seed);
        make_lanes(&w, s->group_shift > 4 ? 1024 : 256);
        gpu_send_all(t);
        const int32_t n_steps = test_short() ? 12 : 40;
        const dci_gpu_encode_args args = step_args(&w);
        for (int32_t step = 0; step < n_steps; step++) {
                for (size_t i = 0; i < ROWS; i++) {
                        const size_t row = (i + (size_t)step) % ROWS; /* in another order each time */
                        /* The second sequence begins with many, of which a first step forms two chunks' worth at most. */
                        const int32_t from = row == 1 && step == 0 ? 0 : n[row];
                        const int32_t to =
                                row == 1 && step == 0 ? s->group_shift > 4 ? 448 : 240 : next_of(&w, from, step);
                        gpu_ints(w.rows)[i] = (int32_t)row;
                        gpu_ints(w.from)[i] = from;
                        gpu_ints(w.to)[i] = to;
                        fill_ring(&w, row, from, to);
                        n[row] = to;
                }
                gpu_buffer *const inputs[] = {w.rows, w.from, w.to, w.lane_keys, w.lane_values};
                for (size_t i = 0; i < COUNT(inputs); i++)
                        gpu_send(t, inputs[i]);
                if (captured && graph == NULL) {
                        ck_ok(t->ops->capture_begin(t->gpu, t->stream));
                        ck_ok(t->ops->encode(t->gpu, t->stream, &args));
                        ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
                }
                if (captured)
                        ck_ok(t->ops->graph_launch(t->gpu, graph, t->stream));
                else
                        ck_ok(t->ops->encode(t->gpu, t->stream, &args));
                if (step % 7 != 2 && step != n_steps - 1)
                        continue;
                for (size_t l = 0; l < LAYERS; l++)
                        for (size_t row = 0; row < ROWS; row++)
                                for (size_t h = 0; h < (size_t)s->n_heads; h++)
                                        model(&w, l, row, h, (size_t)n[row]);
                snprintf(what, sizeof what, "after step %d: %d, %d and %d candidates", (int)step, (int)n[0], (int)n[1],
                         (int)n[2]);
                compare(&w, what);
        }
        if (captured)
                t->ops->graph_destroy(t->gpu, graph);
        end_world(&w);
}

START_TEST(unit_by_unit_is_as_all_at_once)
{
        for (size_t i = 0; i < COUNT(shapes); i++)
                go_decode(&gpu, &shapes[i], 500 + i, i % 2 == 1); /* one graph for all steps, or calls */
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_form");
        TCase *tcase = test_case_with(suite, "gpu_form", 120, setup, teardown);
        tcase_add_test(tcase, prompts_become_what_the_cpu_makes_of_them);
        tcase_add_test(tcase, unit_by_unit_is_as_all_at_once);
        return test_main(suite);
}
