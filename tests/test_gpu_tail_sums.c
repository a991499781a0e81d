/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention to what was not chosen, by means of pages: against a softmax in binary64 over what is left of each page, key and value. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_tail_fixture.h"

#include "simd/kernels.h"

GPU_SUITE(TAIL_ROOM)

#define KEPT 16 /* sink and window, and the budget: what lists hold is not asked here */
#define SINK 4
#define KEYS_AT 384
#define RING 16
#define STRIDE 300

enum { SPREAD, RUNS, NOTHING_CHOSEN, ALL_CHOSEN };

typedef struct shape {
        const char *name;
        int32_t n_heads, group, dim, page_shift, n_parts, dtype, query_dtype, whole, chosen;
        int32_t candidates[TAIL_SEQUENCES]; /* 0: the sequence is not sparse */
} shape;

static const shape shapes[] = {
        {"a model's shape", 2, 4, 128, 4, 5, DCI_BF16, DCI_BF16, 0, SPREAD, {1536, 0, 704}},
        {"pages of 8, f16", 2, 4, 128, 3, 3, DCI_F16, DCI_F16, 0, RUNS, {1000, 1, 129}},
        {"pages of 32, f32 queries", 1, 4, 128, 5, 2, DCI_BF16, DCI_F32, 0, RUNS, {640, 513, 31}},
        {"whole", 2, 4, 128, 4, 4, DCI_BF16, DCI_BF16, 1, RUNS, {1500, 5, 129}},
        {"whole, f16, one part", 1, 2, 64, 4, 1, DCI_F16, DCI_F32, 1, SPREAD, {1500, 5, 129}},
        {"dim 64", 3, 3, 64, 4, 4, DCI_F16, DCI_F32, 0, RUNS, {1025, 512, 300}},
        {"dim 96, groups of 5", 2, 5, 96, 4, 3, DCI_BF16, DCI_F32, 0, RUNS, {300, 1100, 5}},
        {"dim 256, groups of 16", 1, 16, 256, 4, 3, DCI_BF16, DCI_BF16, 0, SPREAD, {900, 40, 257}},
        {"groups of 1", 2, 1, 128, 4, 2, DCI_F16, DCI_F16, 0, SPREAD, {640, 1, 700}},
        {"groups of 8, more parts than pages",
         1,
         8,
         128,
         4,
         DCI_GPU_MAX_PARTS,
         DCI_BF16,
         DCI_F32,
         0,
         RUNS,
         {600, 33, 3}},
        {"nothing was chosen", 2, 4, 128, 4, 3, DCI_BF16, DCI_F32, 0, NOTHING_CHOSEN, {600, 130, 1}},
        {"all were chosen", 2, 4, 128, 4, 3, DCI_BF16, DCI_F32, 0, ALL_CHOSEN, {256, 130, 1}},
        {"all were chosen, whole", 2, 4, 96, 4, 3, DCI_F16, DCI_F32, 1, ALL_CHOSEN, {256, 130, 1}},
};

typedef struct world {
        gpu_test *t;
        const shape *s;
        dci_rng rng;
        size_t most, n_lists, values_at, query_ld;
        int32_t hot;
        gpu_blocks blocks;
        gpu_buffer *pool_table, *lane_keys, *lane_values;
        tail_chunks chunks;
        gpu_buffer *rows, *n_tokens, *n_grouped, *queries, *positions, *counts, *slots;
        gpu_buffer *partial, *arrived, *out, *lse;
        double *wanted, *wanted_lse;
} world;

/* --- what the device holds ---------------------------------------------------------------------------------------- */

static unsigned char *mean_at(const world *w, size_t row, size_t head, size_t page, bool value)
{
        const size_t per_chunk = (size_t)DCI_GPU_CHUNK >> w->s->page_shift;
        return tail_chunks_at(&w->chunks, row, head, page / per_chunk) + (value ? w->values_at : KEYS_AT) +
               page % per_chunk * (size_t)w->s->dim * 2;
}

static unsigned char *row_at(const world *w, size_t row, size_t head, size_t candidate, bool value)
{
        return gpu_blocks_row(&w->blocks, w->pool_table, (int32_t)row, (int32_t)head, SINK + (int32_t)candidate, value);
}

/* Rows of n candidates: neighbours are alike. */
static void put_rows(world *w, size_t row, size_t head, size_t n)
{
        const size_t dim = (size_t)w->s->dim;
        float centre[2 * DCI_GPU_MAX_DIM], x[DCI_GPU_MAX_DIM];
        for (size_t i = 0; i < n; i++)
                for (int value = 0; value < 2; value++) {
                        for (size_t j = 0; j < dim; j++) {
                                if (i % 40 == 0)
                                        centre[(size_t)value * dim + j] = (float)test_quick_normal(&w->rng);
                                x[j] = centre[(size_t)value * dim + j] + 0.4f * (float)test_quick_normal(&w->rng);
                        }
                        w->t->context->kernels->narrow[w->s->dtype - 1](x, dim, row_at(w, row, head, i, value != 0));
                }
}

/* The means of the first n candidates' pages, as they are formed: the last page's of those that it has. */
static void put_means(world *w, size_t row, size_t head, size_t n)
{
        const size_t dim = (size_t)w->s->dim, per_page = (size_t)1 << w->s->page_shift;
        float mean[DCI_GPU_MAX_DIM];
        for (size_t first = 0; first < n; first += per_page)
                for (int value = 0; value < 2; value++) {
                        const size_t here = n - first < per_page ? n - first : per_page;
                        memset(mean, 0, sizeof mean);
                        for (size_t i = 0; i < here; i++)
                                for (size_t j = 0; j < dim; j++)
                                        mean[j] += gpu_number(row_at(w, row, head, first + i, value != 0), j,
                                                              w->s->dtype) /
                                                   (float)here;
                        w->t->context->kernels->narrow[w->s->dtype - 1](
                                mean, dim, mean_at(w, row, head, first / per_page, value != 0));
                }
}

static void take_lists(world *w)
{
        const size_t dim = (size_t)w->s->dim, group = (size_t)w->s->group, n_queries = w->n_lists * group;
        const size_t lane = w->n_lists * (size_t)(SINK + RING + w->hot) * dim * 2;
        gpu_test *t = w->t;
        w->lane_keys = gpu_take(t, lane, GPU_DEVICE);
        w->lane_values = gpu_take(t, lane, GPU_DEVICE);
        w->rows = gpu_take(t, TAIL_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        w->n_tokens = gpu_take(t, TAIL_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        w->n_grouped = gpu_take(t, TAIL_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        w->query_ld = dim + 3;
        w->queries = gpu_take(t, n_queries * w->query_ld * 4, GPU_DEVICE);
        w->positions = gpu_take(t, w->n_lists * STRIDE * sizeof(int32_t), GPU_DEVICE);
        w->slots = gpu_take(t, w->n_lists * STRIDE * sizeof(int32_t), GPU_DEVICE);
        w->counts = gpu_take(t, w->n_lists * sizeof(int32_t), GPU_DEVICE);
        w->partial = gpu_take(t, w->n_lists * (size_t)w->s->n_parts * group * (dim + 2) * sizeof(float), GPU_DEVICE);
        w->arrived = gpu_take(t, w->n_lists * sizeof(int32_t), GPU_DEVICE);
        memset(w->arrived->image, 0, w->arrived->n_bytes);
        w->out = gpu_take(t, n_queries * dim * sizeof(float), GPU_DEVICE);
        w->lse = gpu_take(t, n_queries * sizeof(float), GPU_DEVICE);
        w->wanted = calloc(n_queries * dim, sizeof(double));
        w->wanted_lse = calloc(n_queries, sizeof(double));
        ck_assert(w->wanted != NULL && w->wanted_lse != NULL);
}

static void make(world *w, gpu_test *t, const shape *s, uint64_t seed)
{
        const size_t dim = (size_t)s->dim, means = ((size_t)DCI_GPU_CHUNK >> s->page_shift) * dim * 2;
        *w = (world){.t = t, .s = s, .most = 1, .hot = STRIDE, .n_lists = TAIL_SEQUENCES * (size_t)s->n_heads};
        gpu_reset(t);
        dci_rng_seed(&w->rng, seed);
        for (size_t i = 0; i < TAIL_SEQUENCES; i++)
                w->most = (size_t)s->candidates[i] > w->most ? (size_t)s->candidates[i] : w->most;
        w->values_at = KEYS_AT + means + 64;
        tail_chunks_take(&w->chunks, t, &w->rng, w->most, (size_t)s->n_heads, (w->values_at + means + 255) / 128 * 128);
        take_lists(w);
        gpu_blocks_make(t, &w->blocks, GPU_MAPPED, TAIL_SEQUENCES, s->n_heads, 4, (int32_t)w->most + KEPT,
                        (uint32_t)dim * 2);
        w->pool_table = gpu_blocks_table(t, &w->blocks, seed + 1);
        for (size_t i = 0; i < TAIL_SEQUENCES; i++)
                for (size_t h = 0; h < (size_t)s->n_heads; h++)
                        put_rows(w, tail_row(i), h, (size_t)s->candidates[i]);
}

static void drop(world *w)
{
        test_free(w->wanted, w->wanted_lse);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static bool is_chosen(world *w, size_t candidate, bool before)
{
        switch (w->s->chosen) {
        case SPREAD:
                return dci_rng_below(&w->rng, 9) == 0;
        case RUNS: /* pages as a whole, too */
                return dci_rng_below(&w->rng, 40) < (before ? 37 : 1);
        case NOTHING_CHOSEN:
                return false;
        default:
                return candidate < (size_t)STRIDE;
        }
}

/* What is chosen of n candidates; each second one is in a hot slot, some of which are used twice by other lists only. */
static void select(world *w, size_t sequence, size_t head, size_t n)
{
        const size_t list = sequence * (size_t)w->s->n_heads + head,
                     lane = tail_row(sequence) * (size_t)w->s->n_heads + head;
        const size_t bytes = (size_t)w->s->dim * 2, n_slots = (size_t)(SINK + RING + w->hot);
        int32_t *positions = gpu_ints(w->positions) + list * STRIDE, *slots = gpu_ints(w->slots) + list * STRIDE,
                count = 0;
        bool before = false;
        for (size_t i = 0; i < n && count < STRIDE; i++) {
                before = is_chosen(w, i, before);
                if (!before)
                        continue;
                positions[count] = SINK + (int32_t)i;
                slots[count] = ~positions[count];
                if (i % 2 == 0) {
                        slots[count] = SINK + RING + (w->hot - 1 - count);
                        const size_t at = (lane * n_slots + (size_t)slots[count]) * bytes;
                        memcpy(w->lane_keys->image + at, row_at(w, tail_row(sequence), head, i, false), bytes);
                        memcpy(w->lane_values->image + at, row_at(w, tail_row(sequence), head, i, true), bytes);
                }
                count++;
        }
        gpu_ints(w->counts)[list] = count;
}

static void next_step(world *w, size_t share)
{
        const int32_t grain = 1 << w->s->page_shift;
        gpu_numbers(&w->rng, w->queries->image, w->queries->n_bytes / (w->s->query_dtype == DCI_F32 ? 4 : 2),
                    w->s->query_dtype, 0.7f);
        memset(w->positions->image, 0xff, w->positions->n_bytes);
        memset(w->slots->image, 0xff, w->slots->n_bytes);
        for (size_t i = 0; i < TAIL_SEQUENCES; i++) {
                const size_t n = ((size_t)w->s->candidates[i] * share + 3) / 4;
                gpu_ints(w->rows)[i] = (int32_t)tail_row(i);
                gpu_ints(w->n_tokens)[i] = (int32_t)n + KEPT + (i == 2 && n > 0 ? grain : 0);
                gpu_ints(w->n_grouped)[i] = (int32_t)n + (i == 0 ? grain : 0);
                for (size_t h = 0; h < (size_t)w->s->n_heads; h++) {
                        put_means(w, tail_row(i), h, n);
                        select(w, i, h, n);
                }
        }
}

/* What is left of a page, in binary64: mean key and value of the others; returns how many they are. */
static size_t rest_of(const world *w, size_t sequence, size_t head, size_t page, size_t n, double *key, double *value)
{
        const size_t dim = (size_t)w->s->dim, per_page = (size_t)1 << w->s->page_shift, first = page * per_page;
        const size_t size = n - first < per_page ? n - first : per_page, list = sequence * (size_t)w->s->n_heads + head;
        const int32_t *positions = gpu_ints(w->positions) + list * STRIDE;
        size_t rest = size;
        for (size_t j = 0; j < dim; j++) {
                key[j] = (double)gpu_number(mean_at(w, tail_row(sequence), head, page, false), j, w->s->dtype);
                value[j] = (double)gpu_number(mean_at(w, tail_row(sequence), head, page, true), j, w->s->dtype);
                key[j] *= w->s->whole != 0 ? 1.0 : (double)size;
                value[j] *= w->s->whole != 0 ? 1.0 : (double)size;
        }
        for (int32_t e = 0; e < gpu_ints(w->counts)[list]; e++) {
                const size_t candidate = (size_t)positions[e] - SINK;
                if (candidate / per_page != page)
                        continue;
                rest--;
                for (size_t j = 0; j < dim && w->s->whole == 0; j++) {
                        key[j] -= (double)gpu_number(row_at(w, tail_row(sequence), head, candidate, false), j,
                                                     w->s->dtype);
                        value[j] -= (double)gpu_number(row_at(w, tail_row(sequence), head, candidate, true), j,
                                                       w->s->dtype);
                }
        }
        for (size_t j = 0; j < dim && rest > 0 && w->s->whole == 0; j++) {
                key[j] /= (double)rest;
                value[j] /= (double)rest;
        }
        return rest;
}

static void model_list(world *w, size_t sequence, size_t head, size_t n)
{
        const size_t dim = (size_t)w->s->dim, group = (size_t)w->s->group, per_page = (size_t)1 << w->s->page_shift;
        const size_t first = (sequence * (size_t)w->s->n_heads + head) * group;
        double key[DCI_GPU_MAX_DIM], value[DCI_GPU_MAX_DIM], sums[DCI_GPU_MAX_GROUP] = {0};
        memset(w->wanted + first * dim, 0, group * dim * sizeof(double));
        for (size_t page = 0; page * per_page < n; page++) {
                const size_t rest = rest_of(w, sequence, head, page, n, key, value);
                for (size_t q = 0; q < group && rest > 0; q++) {
                        double score = 0;
                        for (size_t j = 0; j < dim; j++)
                                score += key[j] * (double)gpu_number(w->queries->image, (first + q) * w->query_ld + j,
                                                                     w->s->query_dtype);
                        const double weight =
                                (double)rest * exp(score / sqrt((double)dim)); /* small enough as they are */
                        sums[q] += weight;
                        for (size_t j = 0; j < dim; j++)
                                w->wanted[(first + q) * dim + j] += weight * value[j];
                }
        }
        for (size_t q = 0; q < group; q++) {
                w->wanted_lse[first + q] = sums[q] > 0 ? log(sums[q]) : -INFINITY;
                for (size_t j = 0; j < dim && sums[q] > 0; j++)
                        w->wanted[(first + q) * dim + j] /= sums[q];
        }
}

static dci_gpu_tail_sums_args arguments(const world *w)
{
        const bool whole = w->s->whole != 0;
        dci_gpu_tail_sums_args args = {.n_sequences = TAIL_SEQUENCES,
                                       .n_heads = w->s->n_heads,
                                       .group = w->s->group,
                                       .dim = w->s->dim,
                                       .dtype = w->s->dtype,
                                       .query_dtype = w->s->query_dtype,
                                       .page_shift = w->s->page_shift,
                                       .whole = w->s->whole,
                                       .n_parts = w->s->n_parts,
                                       .max_pages = (int32_t)w->most,
                                       .stride = STRIDE,
                                       .scale = (float)(1 / sqrt((double)w->s->dim)),
                                       .keys_at = KEYS_AT,
                                       .values_at = (uint32_t)w->values_at,
                                       .sizes = {.sink = SINK, .window = KEPT - SINK, .budget = KEPT, .unit = 1},
                                       .query_ld = w->query_ld};
        args.queries = gpu_at(w->queries, false);
        args.rows = gpu_at(w->rows, false);
        args.n_tokens = gpu_at(w->n_tokens, false);
        args.n_grouped = gpu_at(w->n_grouped, false);
        args.chunks = tail_chunks_of(&w->chunks);
        args.positions = gpu_at(w->positions, false);
        args.counts = gpu_at(w->counts, false);
        args.slots = whole ? NULL : gpu_at(w->slots, false);
        args.lanes = (dci_gpu_lanes){.keys = gpu_at(w->lane_keys, false),
                                     .values = gpu_at(w->lane_values, false),
                                     .key_bytes = (uint32_t)w->s->dim * 2,
                                     .value_bytes = (uint32_t)w->s->dim * 2,
                                     .sink = SINK,
                                     .ring = RING,
                                     .hot = w->hot,
                                     .n_slots = SINK + RING + w->hot};
        args.pool = gpu_blocks_pool(&w->blocks, false);
        args.tables = (dci_gpu_tables){gpu_at(w->pool_table, false), (uint64_t)w->blocks.blocks_of_row};
        args.partial = gpu_at(w->partial, false);
        args.arrived = gpu_at(w->arrived, false);
        args.out = gpu_at(w->out, false);
        args.lse = gpu_at(w->lse, false);
        return args;
}

static void compare(world *w)
{
        const gpu_buffer *const outputs[] = {w->out, w->lse, w->partial};
        for (size_t i = 0; i < COUNT(outputs); i++) {
                gpu_fetch(w->t, outputs[i]);
                gpu_guarded(outputs[i], w->s->name);
        }
        gpu_same(w->t, w->arrived, w->s->name);
        for (size_t query = 0; query < w->n_lists * (size_t)w->s->group; query++)
                tail_close(w->s->name, query, (size_t)w->s->dim, w->out, w->lse, w->wanted, w->wanted_lse,
                           gpu_is_host(w->t) ? 1e-6 : 1e-5);
}

/* One capture, replayed as sequences grow; each time twice, with the same bits. */
static void go(gpu_test *t, const shape *s, uint64_t seed)
{
        world w;
        void *graph;
        make(&w, t, s, seed);
        const dci_gpu_tail_sums_args args = arguments(&w);
        float *first = malloc(w.out->n_bytes);
        ck_assert_ptr_nonnull(first);
        ck_ok(t->ops->capture_begin(t->gpu, t->stream));
        ck_ok(t->ops->tail_sums(t->gpu, t->stream, &args));
        ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
        for (size_t share = 0; share <= 4; share += 2) {
                next_step(&w, share);
                for (size_t i = 0; i < TAIL_SEQUENCES; i++)
                        for (size_t h = 0; h < (size_t)s->n_heads; h++)
                                model_list(&w, i, h, ((size_t)s->candidates[i] * share + 3) / 4);
                for (int time = 0; time < 2; time++) {
                        gpu_send_all(t);
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

START_TEST(outputs_are_those_of_what_is_left_of_pages)
{
        for (size_t i = 0; i < COUNT(shapes); i++)
                go(&gpu, &shapes[i], 5 + i);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_tail_sums");
        TCase *tcase = test_case_with(suite, "gpu_tail_sums", 120, setup, teardown);
        tcase_add_test(tcase, outputs_are_those_of_what_is_left_of_pages);
        return test_main(suite);
}
