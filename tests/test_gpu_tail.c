/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention to what was not chosen, by low-bit values: against a softmax in binary64 over rows that the coder decoded one by one. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_tail_fixture.h"

#include "simd/codes/transpose.h"
#include "simd/convert.h"
#include "sketch/coder.h"

GPU_SUITE(TAIL_ROOM)

#define BLOCK 128
#define KEPT                                                                                                           \
        16 /* sink and window, and the budget: nothing is left for a list, so that one candidate makes a sequence sparse */
#define TAIL_AT 384

enum { CLUSTERS, EQUAL, SHARP, ZEROS, LARGE, SMALL, ALL_CHOSEN, ONE_LEFT };

typedef struct shape {
        const char *name;
        int32_t n_heads, group, dim, bits, n_parts, data;
        int32_t candidates[TAIL_SEQUENCES]; /* 0: the sequence is not sparse */
} shape;

static const shape shapes[] = {
        {"a model's shape, 2 bits", 2, 4, 128, 2, 5, CLUSTERS, {1500, 0, 700}},
        {"4 bits", 2, 4, 128, 4, 3, CLUSTERS, {1024, 1, 129}},
        {"1 bit", 2, 4, 128, 1, 2, CLUSTERS, {640, 513, 127}},
        {"dim 64", 3, 3, 64, 2, 4, CLUSTERS, {1025, 512, 300}},
        {"dim 64, 4 bits", 1, 1, 64, 4, 1, CLUSTERS, {900, 128, 0}},
        {"dim 64, 1 bit, groups of 2", 2, 2, 64, 1, 6, CLUSTERS, {900, 2, 1500}},
        {"dim 96", 2, 4, 96, 2, 4, CLUSTERS, {777, 640, 31}},
        {"dim 96, 4 bits, groups of 5", 2, 5, 96, 4, 3, CLUSTERS, {300, 1100, 5}},
        {"dim 96, 1 bit, groups of 8", 1, 8, 96, 1, 3, CLUSTERS, {300, 1100, 5}},
        {"dim 256", 1, 4, 256, 2, 4, CLUSTERS, {1200, 513, 0}},
        {"dim 256, 4 bits, groups of 16", 1, 16, 256, 4, 3, CLUSTERS, {900, 40, 257}},
        {"dim 256, 1 bit, groups of 8", 1, 8, 256, 1, 2, CLUSTERS, {900, 40, 257}},
        {"groups of 16", 2, 16, 128, 2, 7, CLUSTERS, {1500, 0, 700}},
        {"groups of 8", 2, 8, 128, 4, 2, CLUSTERS, {640, 0, 700}},
        {"groups of 1", 2, 1, 128, 2, 2, CLUSTERS, {640, 1, 700}},
        {"more parts than blocks", 2, 4, 128, 2, DCI_GPU_MAX_PARTS, CLUSTERS, {1500, 129, 3}},
        {"one part", 1, 4, 128, 2, 1, CLUSTERS, {2900, 0, 1400}},
        {"equal scores", 2, 4, 128, 2, 4, EQUAL, {1500, 130, 12}},
        {"one token counts", 2, 4, 128, 2, 4, SHARP, {1500, 130, 12}},
        {"values that are the centre", 2, 4, 128, 2, 4, ZEROS, {600, 130, 12}},
        {"large", 2, 4, 128, 4, 3, LARGE, {600, 130, 12}},
        {"small", 2, 4, 128, 1, 3, SMALL, {600, 130, 12}},
        {"all were chosen", 2, 4, 128, 2, 3, ALL_CHOSEN, {600, 130, 1}},
        {"one is left", 2, 4, 128, 2, 3, ONE_LEFT, {600, 130, 1}},
};

typedef struct world {
        gpu_test *t;
        const shape *s;
        dci_rng rng;
        dci_coder coder;
        void *coder_memory, *scratch;
        size_t most, n_lists, cell; /* cell: 32 coordinates of BLOCK tokens */
        float *decoded;             /* [row][head][most][dim] */
        tail_chunks chunks;
        gpu_buffer *rows, *n_tokens, *n_grouped, *scores, *signs, *centres;
        gpu_buffer *partial, *arrived, *out, *lse;
        float *wanted, *wanted_lse;
} world;

static float *decoded_row(const world *w, size_t row, size_t head, size_t token)
{
        return w->decoded + ((row * (size_t)w->s->n_heads + head) * w->most + token) * (size_t)w->s->dim;
}

/* --- what the device holds ---------------------------------------------------------------------------------------- */

static void make_value(world *w, const float *centre, size_t token, float *out)
{
        const float size = w->s->data == LARGE ? 1e15f : w->s->data == SMALL ? 1e-12f : 1.0f;
        for (int32_t j = 0; j < w->s->dim; j++) {
                const float bend = sinf((float)(token / 50 % 7) * 1.7f + (float)j * 0.9f); /* neighbours are alike */
                const float noise = (float)test_quick_normal(&w->rng);
                out[j] = centre[j] + (w->s->data == ZEROS ? 0.0f : size * (bend + 0.5f * noise));
        }
}

/* 32 tokens of a head as the offloading backend lays them out, and what they decode to. */
static void put_tokens(world *w, size_t row, size_t head, size_t first, size_t n)
{
        const size_t dim = (size_t)w->s->dim, bits = (size_t)w->s->bits, in_chunk = first % DCI_GPU_CHUNK;
        unsigned char *at = tail_chunks_at(&w->chunks, row, head, first / DCI_GPU_CHUNK) + TAIL_AT, *block = w->scratch;
        unsigned char *scratch = block + dci_lines(w->coder.layout.n_bytes);
        float values[DCI_CODE_ROWS * DCI_GPU_MAX_DIM];
        const float *rows[DCI_CODE_ROWS] = {NULL};
        dci_coded_row coded[DCI_CODE_ROWS];
        uint8_t codes[DCI_GPU_MAX_DIM];
        memcpy(w->coder.centre, gpu_floats(w->centres) + (row * (size_t)w->s->n_heads + head) * dim,
               dim * sizeof(float));
        memset(block, 0, w->coder.layout.n_bytes);
        for (size_t i = 0; i < n; i++) {
                make_value(w, w->coder.centre, first + i, values + i * dim);
                rows[i] = values + i * dim;
        }
        dci_coder_encode(&w->coder, rows, scratch, block, coded);
        for (size_t i = 0; i < n; i++) {
                const float reach2 = coded[i].reach * coded[i].reach;
                const float square = reach2 - coded[i].residual * coded[i].residual;
                const uint16_t scale = dci_float_to_bf16(reach2 > 0.0f ? coded[i].scale * (square / reach2) : 0.0f);
                memcpy(at + DCI_GPU_CHUNK / BLOCK * dim / 32 * w->cell + (in_chunk + i) * 2, &scale, 2);
                dci_code_get(&w->coder.layout, block, i, codes);
                dci_coder_decode(&w->coder, codes, dci_bf16_to_float(scale), scratch,
                                 decoded_row(w, row, head, first + i));
        }
        dci_code_transpose((int)bits, block, w->coder.layout.n_bytes / (2 * DCI_CODE_LINE), 0, n,
                           at + in_chunk / BLOCK * dim / 32 * w->cell +
                                   in_chunk % BLOCK * bits / 32 * 2 * DCI_CODE_LINE,
                           dim / 32, w->cell);
}

static void put_values(world *w)
{
        for (size_t sequence = 0; sequence < TAIL_SEQUENCES; sequence++)
                for (int32_t h = 0; h < w->s->n_heads; h++) {
                        const size_t n = (size_t)w->s->candidates[sequence];
                        for (size_t first = 0; first < n; first += DCI_CODE_ROWS)
                                put_tokens(w, tail_row(sequence), (size_t)h, first,
                                           n - first < DCI_CODE_ROWS ? n - first : DCI_CODE_ROWS);
                }
}

static void make_coder(world *w)
{
        const size_t dim = (size_t)w->s->dim;
        w->coder_memory = aligned_alloc(64, dci_lines(dci_coder_bytes(DCI_CODER_ROTATED, dim)));
        ck_assert_ptr_nonnull(w->coder_memory);
        dci_coder_init(w->t->context, DCI_CODER_ROTATED, dim, w->s->bits, 99, NULL, w->coder_memory, &w->coder);
        w->scratch =
                aligned_alloc(64, dci_lines(w->coder.layout.n_bytes) + dci_lines(dci_coder_encode_bytes(dim, false)) +
                                          dci_lines(dci_coder_scratch_bytes(dim)));
        ck_assert_ptr_nonnull(w->scratch);
        w->signs = gpu_take(w->t, 6 * w->coder.rotation.part * sizeof(float), GPU_DEVICE);
        memcpy(w->signs->image, w->coder.rotation.signs, w->signs->n_bytes);
        w->centres = gpu_take(w->t, TAIL_SEQUENCES * (size_t)w->s->n_heads * dim * sizeof(float), GPU_DEVICE);
        gpu_numbers(&w->rng, w->centres->image, w->centres->n_bytes / 4, DCI_F32, w->s->data == SMALL ? 1e-12f : 2.0f);
}

static void make(world *w, gpu_test *t, const shape *s, uint64_t seed)
{
        const size_t dim = (size_t)s->dim, group = (size_t)s->group;
        *w = (world){.t = t, .s = s, .most = 1};
        gpu_reset(t);
        dci_rng_seed(&w->rng, seed);
        for (size_t i = 0; i < TAIL_SEQUENCES; i++)
                w->most = (size_t)s->candidates[i] > w->most ? (size_t)s->candidates[i] : w->most;
        w->most += 3; /* no round number */
        w->n_lists = TAIL_SEQUENCES * (size_t)s->n_heads;
        w->cell = 32 * BLOCK * (size_t)s->bits / 8;
        const size_t head_bytes =
                TAIL_AT + dci_lines(DCI_GPU_CHUNK / BLOCK * dim / 32 * w->cell + DCI_GPU_CHUNK * 2) + 128;
        tail_chunks_take(&w->chunks, t, &w->rng, w->most, (size_t)s->n_heads, (head_bytes + 127) / 128 * 128);
        make_coder(w);
        w->rows = gpu_take(t, TAIL_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        w->n_tokens = gpu_take(t, TAIL_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        w->n_grouped = gpu_take(t, TAIL_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        w->scores = gpu_take(t, w->n_lists * w->most * group * sizeof(float), GPU_DEVICE);
        w->partial = gpu_take(t, w->n_lists * (size_t)s->n_parts * group * (dim + 2) * sizeof(float), GPU_DEVICE);
        w->arrived = gpu_take(t, w->n_lists * sizeof(int32_t), GPU_DEVICE);
        memset(w->arrived->image, 0, w->arrived->n_bytes);
        w->out = gpu_take(t, w->n_lists * group * dim * sizeof(float), GPU_DEVICE);
        w->lse = gpu_take(t, w->n_lists * group * sizeof(float), GPU_DEVICE);
        w->decoded = calloc(w->n_lists * w->most * dim, sizeof(float));
        w->wanted = calloc(w->n_lists * group * dim, sizeof(float));
        w->wanted_lse = calloc(w->n_lists * group, sizeof(float));
        ck_assert(w->decoded != NULL && w->wanted != NULL && w->wanted_lse != NULL);
        put_values(w);
        gpu_send_all(t);
}

static void drop(world *w)
{
        test_free(w->decoded, w->wanted, w->wanted_lse, w->scratch, w->coder_memory);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static float make_score(world *w, size_t token, size_t n)
{
        const int32_t data = w->s->data;
        const float walk = 3.0f * (float)test_quick_normal(&w->rng);
        if (data == ALL_CHOSEN || (data == ONE_LEFT && token != n / 2))
                return -FLT_MAX;
        if (data != ONE_LEFT && token % 11 == 3) /* chosen */
                return -FLT_MAX;
        if (data == EQUAL)
                return 0.25f;
        return data == SHARP ? walk + (token == n / 2 ? 90.0f : 0.0f) : data == LARGE ? 40.0f * walk : walk;
}

/* The first `share` of 4 quarters of every sequence's candidates; after them there is nothing yet. */
static void next_step(world *w, size_t share)
{
        const size_t group = (size_t)w->s->group, n_heads = (size_t)w->s->n_heads;
        memset(w->scores->image, 0xff, w->scores->n_bytes);
        for (size_t i = 0; i < TAIL_SEQUENCES; i++) {
                const size_t n = ((size_t)w->s->candidates[i] * share + 3) / 4;
                gpu_ints(w->rows)[i] = (int32_t)tail_row(i);
                /* What has no summaries yet is no candidate, however long the sequence is. */
                gpu_ints(w->n_tokens)[i] = (int32_t)(n + KEPT) + (i == 2 && n > 0 ? 40 : 0);
                gpu_ints(w->n_grouped)[i] = (int32_t)n + (i == 0 ? 5 : 0);
                for (size_t h = 0; h < n_heads; h++)
                        for (size_t k = 0; k < n; k++)
                                for (size_t q = 0; q < group; q++) {
                                        const float score = make_score(w, k, n);
                                        float *at = gpu_floats(w->scores) + ((i * n_heads + h) * w->most + k) * group;
                                        at[q] = q == 0 || (at[0] != -FLT_MAX && score != -FLT_MAX) ? score : at[0];
                                }
        }
}

static void model_query(world *w, size_t i, size_t h, size_t q, size_t n)
{
        const size_t dim = (size_t)w->s->dim, group = (size_t)w->s->group;
        const size_t list = i * (size_t)w->s->n_heads + h, query = list * group + q;
        double most = -INFINITY, sum = 0, all[DCI_GPU_MAX_DIM] = {0};
        for (size_t k = 0; k < n; k++) {
                const float score = gpu_floats(w->scores)[(list * w->most + k) * group + q];
                most = score != -FLT_MAX && (double)score > most ? (double)score : most;
        }
        for (size_t k = 0; k < n; k++) {
                const float score = gpu_floats(w->scores)[(list * w->most + k) * group + q];
                const double weight = score != -FLT_MAX ? exp((double)score - most) : 0;
                const float *row = decoded_row(w, tail_row(i), h, k);
                sum += weight;
                for (size_t j = 0; j < dim; j++)
                        all[j] += weight * (double)row[j];
        }
        for (size_t j = 0; j < dim; j++)
                w->wanted[query * dim + j] = sum > 0 ? (float)(all[j] / sum) : 0.0f;
        w->wanted_lse[query] = sum > 0 ? (float)(most + log(sum)) : -INFINITY;
}

static void model(world *w, size_t share)
{
        for (size_t i = 0; i < TAIL_SEQUENCES; i++)
                for (size_t h = 0; h < (size_t)w->s->n_heads; h++)
                        for (size_t q = 0; q < (size_t)w->s->group; q++)
                                model_query(w, i, h, q, ((size_t)w->s->candidates[i] * share + 3) / 4);
}

static dci_gpu_tail_args arguments(const world *w)
{
        return (dci_gpu_tail_args){.n_sequences = TAIL_SEQUENCES,
                                   .n_heads = w->s->n_heads,
                                   .group = w->s->group,
                                   .dim = w->s->dim,
                                   .bits = w->s->bits,
                                   .n_parts = w->s->n_parts,
                                   .max_groups = (int32_t)w->most,
                                   .tail_at = TAIL_AT,
                                   .sizes = {.sink = 4, .window = KEPT - 4, .budget = KEPT, .unit = 1},
                                   .rows = gpu_at(w->rows, false),
                                   .n_tokens = gpu_at(w->n_tokens, false),
                                   .n_grouped = gpu_at(w->n_grouped, false),
                                   .scores = gpu_at(w->scores, false),
                                   .chunks = tail_chunks_of(&w->chunks),
                                   .signs = gpu_at(w->signs, false),
                                   .centres = gpu_at(w->centres, false),
                                   .partial = gpu_at(w->partial, false),
                                   .arrived = gpu_at(w->arrived, false),
                                   .out = gpu_at(w->out, false),
                                   .lse = gpu_at(w->lse, false)};
}

static void send_step(world *w)
{
        const gpu_buffer *const inputs[] = {w->rows, w->n_tokens, w->n_grouped, w->scores, w->partial, w->out, w->lse};
        for (size_t i = 0; i < COUNT(inputs); i++)
                gpu_send(w->t, inputs[i]);
}

/* How far one query's output may be off: a share of its way from the centre, and what binary32 takes from the sum of both. */
static void compare_query(world *w, size_t query)
{
        const size_t dim = (size_t)w->s->dim, group = (size_t)w->s->group, n_heads = (size_t)w->s->n_heads;
        const size_t list = query / group, row = tail_row(list / n_heads);
        const float *out = (const float *)(const void *)w->out->back + query * dim, *wanted = w->wanted + query * dim;
        const float *centre = gpu_floats(w->centres) + (row * n_heads + list % n_heads) * dim;
        const float lse = ((const float *)(const void *)w->lse->back)[query], wanted_lse = w->wanted_lse[query];
        double off = 0, way = 0, size = 0;
        if (wanted_lse == -INFINITY) {
                ck_assert_msg(lse == -INFINITY, "%s, query %zu: lse %g of nothing", w->s->name, query, (double)lse);
                for (size_t j = 0; j < dim; j++)
                        ck_assert_msg(out[j] == 0.0f, "%s, query %zu: %g of nothing", w->s->name, query,
                                      (double)out[j]);
                return;
        }
        for (size_t j = 0; j < dim; j++) {
                off += ((double)out[j] - (double)wanted[j]) * ((double)out[j] - (double)wanted[j]);
                way += ((double)wanted[j] - (double)centre[j]) * ((double)wanted[j] - (double)centre[j]);
                size += (double)wanted[j] * (double)wanted[j] + (double)centre[j] * (double)centre[j];
        }
        const double share = gpu_is_host(w->t) ? 2e-6 : 2e-4;
        ck_assert_msg(sqrt(off) <= share * sqrt(way) + 1e-6 * sqrt(size), "%s, query %zu: off by %g of %g", w->s->name,
                      query, sqrt(off), sqrt(way));
        ck_assert_msg(fabs((double)lse - (double)wanted_lse) <= 2e-5 + 1e-6 * fabs((double)wanted_lse),
                      "%s, query %zu: lse %.9g, expected %.9g", w->s->name, query, (double)lse, (double)wanted_lse);
}

static void compare(world *w)
{
        gpu_fetch(w->t, w->out);
        gpu_fetch(w->t, w->lse);
        gpu_fetch(w->t, w->partial);
        gpu_guarded(w->out, w->s->name);
        gpu_guarded(w->lse, w->s->name);
        gpu_guarded(w->partial, w->s->name);
        gpu_same(w->t, w->arrived, w->s->name);
        gpu_same(w->t, w->scores, w->s->name);
        for (size_t query = 0; query < w->n_lists * (size_t)w->s->group; query++)
                compare_query(w, query);
}

static void go(gpu_test *t, const shape *s, uint64_t seed)
{
        world w;
        make(&w, t, s, seed);
        next_step(&w, 4);
        send_step(&w);
        model(&w, 4);
        const dci_gpu_tail_args args = arguments(&w);
        ck_ok(t->ops->tail(t->gpu, t->stream, &args));
        compare(&w);
        drop(&w);
}

START_TEST(outputs_are_those_of_decoded_rows)
{
        for (size_t i = 0; i < COUNT(shapes); i++)
                go(&gpu, &shapes[i], 5 + i);
}
END_TEST

/* One capture, replayed as sequences grow; and twice with the same bits. */
static void replay(gpu_test *t, const shape *s, uint64_t seed)
{
        world w;
        void *graph;
        make(&w, t, s, seed);
        const dci_gpu_tail_args args = arguments(&w);
        float *first = malloc(w.out->n_bytes);
        ck_assert_ptr_nonnull(first);
        ck_ok(t->ops->capture_begin(t->gpu, t->stream));
        ck_ok(t->ops->tail(t->gpu, t->stream, &args));
        ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
        for (size_t share = 0; share <= 4; share++) {
                next_step(&w, share);
                model(&w, share);
                for (int time = 0; time < 2; time++) {
                        send_step(&w);
                        ck_ok(t->ops->graph_launch(t->gpu, graph, t->stream));
                        compare(&w);
                        if (time == 0)
                                memcpy(first, w.out->back, w.out->n_bytes);
                        ck_assert_msg(memcmp(first, w.out->back, w.out->n_bytes) == 0, "%s: other bits", s->name);
                }
        }
        t->ops->graph_destroy(t->gpu, graph);
        free(first);
        drop(&w);
}

START_TEST(a_graph_follows_sequences_that_grow)
{
        for (size_t i = 0; i < COUNT(shapes); i += 4)
                replay(&gpu, &shapes[i], 71 + i);
}
END_TEST

START_TEST(other_widths_are_refused)
{
        const int32_t bits[] = {3, 8, 0};
        for (size_t i = 0; i < COUNT(bits); i++) {
                const dci_gpu_tail_args args = {
                        .n_sequences = 1, .n_heads = 1, .group = 4, .dim = 128, .bits = bits[i], .n_parts = 1};
                ck_assert_int_eq(gpu.ops->tail(gpu.gpu, gpu.stream, &args), DCI_ERR_UNSUPPORTED);
                ck_assert_ptr_nonnull(strstr(dci_last_error(), "4, 2 or 1"));
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_tail");
        TCase *tcase = test_case_with(suite, "gpu_tail", 120, setup, teardown);
        tcase_add_test(tcase, outputs_are_those_of_decoded_rows);
        tcase_add_test(tcase, a_graph_follows_sequences_that_grow);
        tcase_add_test(tcase, other_widths_are_refused);
        return test_main(suite);
}
