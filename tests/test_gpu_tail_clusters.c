/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention to what was not chosen, by means of clusters: against a softmax in binary64 over what is left of each cluster. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_tail_fixture.h"

#include "simd/kernels.h"

GPU_SUITE(TAIL_ROOM)

#define KEPT 16 /* sink and window, and the budget: what lists hold is not asked here */
#define SINK 4
#define RING 64
#define VALUES_AT 512

enum { SOME, FEW_LEFT, ALL_ESTIMATED, NOTHING_ESTIMATED };

typedef struct shape {
        const char *name;
        int32_t n_heads, group, dim, n_parts, dtype, query_dtype, kind, per_cluster;
        int32_t candidates[TAIL_SEQUENCES]; /* 0: the sequence is not sparse */
} shape;

static const shape shapes[] = {
        {"a model's shape", 2, 4, 128, 5, DCI_BF16, DCI_BF16, SOME, 16, {1500, 0, 700}},
        {"more clusters than a block takes at a time", 1, 4, 64, 1, DCI_BF16, DCI_F32, SOME, 2, {1500, 40, 700}},
        {"large clusters, f16", 2, 8, 128, 3, DCI_F16, DCI_F16, FEW_LEFT, 90, {1000, 1, 129}},
        {"more rows than are read at a time", 1, 4, 128, 1, DCI_BF16, DCI_F32, FEW_LEFT, 800, {2400, 70, 1700}},
        {"dim 96, groups of 5", 2, 5, 96, 3, DCI_BF16, DCI_F32, SOME, 7, {300, 1100, 5}},
        {"dim 256, groups of 16", 1, 16, 256, 3, DCI_F16, DCI_F32, FEW_LEFT, 11, {900, 40, 257}},
        {"groups of 1", 3, 1, 128, 2, DCI_BF16, DCI_BF16, SOME, 16, {640, 1, 700}},
        {"more parts than clusters", 1, 2, 64, DCI_GPU_MAX_PARTS, DCI_F16, DCI_F32, SOME, 30, {600, 33, 3}},
        {"all are estimated", 2, 4, 128, 3, DCI_BF16, DCI_F32, ALL_ESTIMATED, 16, {600, 130, 1}},
        {"nothing is estimated", 2, 4, 128, 3, DCI_BF16, DCI_F32, NOTHING_ESTIMATED, 16, {600, 130, 1}},
};

typedef struct world {
        gpu_test *t;
        const shape *s;
        dci_rng rng;
        size_t most, n_lists, spans_at, query_ld, max_groups;
        gpu_blocks blocks;
        gpu_buffer *pool_table, *lane_keys, *lane_values;
        tail_chunks clusters, ids;
        gpu_buffer *rows, *n_tokens, *n_grouped, *n_clusters, *queries, *scores, *members;
        gpu_buffer *partial, *arrived, *out, *lse;
        double *wanted, *wanted_lse;
        int32_t *order; /* of candidates */
} world;

/* --- what the device holds ---------------------------------------------------------------------------------------- */

static unsigned char *mean_at(const world *w, size_t row, size_t head, size_t cluster)
{
        return tail_chunks_at(&w->clusters, row, head, cluster / DCI_GPU_CHUNK) + VALUES_AT +
               cluster % DCI_GPU_CHUNK * (size_t)w->s->dim * 2;
}

static int32_t *span_at(const world *w, size_t row, size_t head, size_t cluster)
{
        return (int32_t *)(void *)(tail_chunks_at(&w->clusters, row, head, cluster / DCI_GPU_CHUNK) + w->spans_at) +
               2 * (cluster % DCI_GPU_CHUNK);
}

static int32_t *id_at(const world *w, size_t row, size_t head, size_t at)
{
        return (int32_t *)(void *)tail_chunks_at(&w->ids, row, head, at / DCI_GPU_CHUNK) + at % DCI_GPU_CHUNK;
}

/* A candidate's key or value in the lane's ring, if it is that young, else in the pool. */
static unsigned char *row_at(const world *w, size_t sequence, size_t head, size_t candidate, bool value)
{
        const size_t row = tail_row(sequence), position = SINK + candidate, n = (size_t)gpu_ints(w->n_tokens)[sequence];
        if (position + RING < n)
                return gpu_blocks_row(&w->blocks, w->pool_table, (int32_t)row, (int32_t)head, (int32_t)position, value);
        const size_t slot = (row * (size_t)w->s->n_heads + head) * (SINK + RING) + SINK + position % RING;
        return (value ? w->lane_values : w->lane_keys)->image + slot * (size_t)w->s->dim * 2;
}

static void put_rows(world *w, size_t sequence, size_t head, size_t n)
{
        for (size_t i = 0; i < n; i++)
                for (int value = 0; value < 2; value++)
                        gpu_numbers(&w->rng, row_at(w, sequence, head, i, value != 0), (size_t)w->s->dim, w->s->dtype,
                                    0.8f);
}

static size_t size_of(world *w, size_t left)
{
        const size_t size = 1 + (size_t)dci_rng_below(&w->rng, 2 * (uint64_t)w->s->per_cluster - 1);
        return size < left ? size : left;
}

/* Candidates go to clusters at random. */
static void put_clusters(world *w, size_t sequence, size_t head, size_t n)
{
        const size_t row = tail_row(sequence), dim = (size_t)w->s->dim;
        float mean[DCI_GPU_MAX_DIM];
        size_t g = 0;
        for (size_t i = 0; i < n; i++) {
                const size_t j = (size_t)dci_rng_below(&w->rng, i + 1);
                w->order[i] = w->order[j];
                w->order[j] = (int32_t)i;
        }
        for (size_t first = 0, size; first < n; first += size, g++) {
                size = size_of(w, n - first);
                qsort(w->order + first, size, sizeof *w->order, test_int32s_ascend);
                span_at(w, row, head, g)[0] = (int32_t)first;
                span_at(w, row, head, g)[1] = (int32_t)size;
                memset(mean, 0, sizeof mean);
                for (size_t i = first; i < first + size; i++) {
                        *id_at(w, row, head, i) = w->order[i];
                        for (size_t j = 0; j < dim; j++)
                                mean[j] += gpu_number(row_at(w, sequence, head, (size_t)w->order[i], true), j,
                                                      w->s->dtype) /
                                           (float)size;
                }
                w->t->context->kernels->narrow[w->s->dtype - 1](mean, dim, mean_at(w, row, head, g));
        }
        gpu_ints(w->n_clusters)[row * (size_t)w->s->n_heads + head] = (int32_t)g;
}

static void make(world *w, gpu_test *t, const shape *s, uint64_t seed)
{
        const size_t dim = (size_t)s->dim, group = (size_t)s->group, i = sizeof(int32_t);
        *w = (world){.t = t, .s = s, .most = 1, .n_lists = TAIL_SEQUENCES * (size_t)s->n_heads, .query_ld = dim + 3};
        gpu_reset(t);
        dci_rng_seed(&w->rng, seed);
        for (size_t q = 0; q < TAIL_SEQUENCES; q++)
                w->most = (size_t)s->candidates[q] > w->most ? (size_t)s->candidates[q] : w->most;
        const size_t n_queries = w->n_lists * group, lane = w->n_lists * (SINK + RING) * dim * 2;
        w->max_groups = w->most + 7;
        w->spans_at = VALUES_AT + DCI_GPU_CHUNK * dim * 2;
        tail_chunks_take(&w->clusters, t, &w->rng, w->most, (size_t)s->n_heads, w->spans_at + DCI_GPU_CHUNK * 8);
        tail_chunks_take(&w->ids, t, &w->rng, w->most, (size_t)s->n_heads, DCI_GPU_CHUNK * i);
        w->lane_keys = gpu_take(t, lane, GPU_DEVICE);
        w->lane_values = gpu_take(t, lane, GPU_DEVICE);
        w->rows = gpu_take(t, TAIL_SEQUENCES * i, GPU_DEVICE);
        w->n_tokens = gpu_take(t, TAIL_SEQUENCES * i, GPU_DEVICE);
        w->n_grouped = gpu_take(t, TAIL_SEQUENCES * i, GPU_DEVICE);
        w->n_clusters = gpu_take(t, w->n_lists * i, GPU_DEVICE);
        w->queries = gpu_take(t, n_queries * w->query_ld * 4, GPU_DEVICE);
        w->scores = gpu_take(t, w->n_lists * w->max_groups * group * sizeof(float), GPU_DEVICE);
        w->members = gpu_take(t, w->n_lists * w->max_groups * i, GPU_DEVICE);
        w->partial = gpu_take(t, w->n_lists * (size_t)s->n_parts * group * (dim + 2) * sizeof(float), GPU_DEVICE);
        w->arrived = gpu_take(t, w->n_lists * i, GPU_DEVICE);
        memset(w->arrived->image, 0, w->arrived->n_bytes);
        w->out = gpu_take(t, n_queries * dim * sizeof(float), GPU_DEVICE);
        w->lse = gpu_take(t, n_queries * sizeof(float), GPU_DEVICE);
        w->wanted = calloc(n_queries * dim, sizeof(double));
        w->wanted_lse = calloc(n_queries, sizeof(double));
        w->order = malloc(w->most * sizeof *w->order);
        ck_assert(w->wanted != NULL && w->wanted_lse != NULL && w->order != NULL);
        gpu_blocks_make(t, &w->blocks, GPU_MAPPED, TAIL_SEQUENCES, s->n_heads, 4, (int32_t)w->most + 2 * KEPT,
                        (uint32_t)dim * 2);
        w->pool_table = gpu_blocks_table(t, &w->blocks, seed + 1);
}

static void drop(world *w)
{
        test_free(w->wanted, w->wanted_lse, w->order);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* Members of a cluster that are among the first n candidates. */
static int32_t members_of(const world *w, size_t row, size_t head, size_t g, size_t n)
{
        const int32_t *span = span_at(w, row, head, g);
        int32_t size = span[1];
        while (size > 0 && (size_t)*id_at(w, row, head, (size_t)(span[0] + size) - 1) >= n)
                size--;
        return size;
}

/* What a selection would have left: clusters selected whole and in part, estimated and dropped. */
static int32_t selected_of(world *w, int32_t size)
{
        const uint64_t draw = dci_rng_below(&w->rng, 10);
        switch (w->s->kind) {
        case SOME:
                return draw < 2    ? size
                       : draw == 2 ? (int32_t)dci_rng_below(&w->rng, (uint64_t)size + 1)
                       : draw < 6  ? 0
                                   : -1;
        case FEW_LEFT:
                return draw < 8 ? (int32_t)dci_rng_below(&w->rng, (uint64_t)size + 1) : 0;
        case ALL_ESTIMATED:
                return 0;
        default:
                return draw < 5 ? size : -1;
        }
}

static void select(world *w, size_t sequence, size_t head, size_t n)
{
        const size_t row = tail_row(sequence), list = sequence * (size_t)w->s->n_heads + head;
        const int32_t n_clusters = gpu_ints(w->n_clusters)[row * (size_t)w->s->n_heads + head];
        for (size_t g = 0; g < (size_t)n_clusters; g++)
                gpu_ints(w->members)[list * w->max_groups + g] = selected_of(w, members_of(w, row, head, g, n));
}

/* late: candidates of the last clusters that are in the window again. */
static void next_step(world *w, size_t share, size_t late)
{
        gpu_numbers(&w->rng, w->queries->image, w->queries->n_bytes / (w->s->query_dtype == DCI_F32 ? 4 : 2),
                    w->s->query_dtype, 0.7f);
        gpu_numbers(&w->rng, w->scores->image, w->scores->n_bytes / sizeof(float), DCI_F32, 2.0f);
        memset(w->members->image, 0x7f, w->members->n_bytes);
        for (size_t i = 0; i < TAIL_SEQUENCES; i++) {
                const size_t n = ((size_t)w->s->candidates[i] * share + 3) / 4, back = late < n ? late : 0;
                gpu_ints(w->rows)[i] = (int32_t)tail_row(i);
                gpu_ints(w->n_tokens)[i] = (int32_t)(n - back) + KEPT;
                gpu_ints(w->n_grouped)[i] = (int32_t)n;
                for (size_t h = 0; h < (size_t)w->s->n_heads; h++) {
                        put_rows(w, i, h, n);
                        put_clusters(w, i, h, n);
                        select(w, i, h, n - back);
                }
        }
}

static double product(const world *w, size_t query, const unsigned char *key)
{
        double sum = 0;
        for (size_t j = 0; j < (size_t)w->s->dim; j++)
                sum += (double)gpu_number(w->queries->image, query * w->query_ld + j, w->s->query_dtype) *
                       (double)gpu_number(key, j, w->s->dtype);
        return sum / sqrt((double)w->s->dim);
}

/* One cluster, by a list of its members: those that are left, or the others to be taken out. */
static double add_cluster(world *w, size_t sequence, size_t head, size_t g, size_t n, size_t query, double *values)
{
        const size_t row = tail_row(sequence), list = sequence * (size_t)w->s->n_heads + head, dim = (size_t)w->s->dim;
        const int32_t *span = span_at(w, row, head, g), selected = gpu_ints(w->members)[list * w->max_groups + g];
        const int32_t rest = members_of(w, row, head, g, n) - selected, others = span[1] - rest;
        if (selected < 0 || rest == 0)
                return 0;
        const bool direct = rest <= others;
        const float *scores = (const float *)(const void *)w->scores->image;
        double score = direct ? 0
                              : (double)span[1] * (double)scores[(list * w->max_groups + g) * (size_t)w->s->group +
                                                                 query % (size_t)w->s->group],
               sums[DCI_GPU_MAX_DIM];
        for (size_t j = 0; j < dim; j++)
                sums[j] = direct ? 0 : (double)span[1] * (double)gpu_number(mean_at(w, row, head, g), j, w->s->dtype);
        for (int32_t m = 0; m < span[1]; m++) {
                const bool left = m >= selected && m < selected + rest;
                const size_t candidate = (size_t)*id_at(w, row, head, (size_t)(span[0] + m));
                if (left != direct)
                        continue;
                score += (direct ? 1 : -1) * product(w, query, row_at(w, sequence, head, candidate, false));
                for (size_t j = 0; j < dim; j++)
                        sums[j] += (direct ? 1 : -1) *
                                   (double)gpu_number(row_at(w, sequence, head, candidate, true), j, w->s->dtype);
        }
        const double weight = exp(score / (double)rest);
        for (size_t j = 0; j < dim; j++)
                values[j] += weight * sums[j];
        return weight * (double)rest;
}

static void model_list(world *w, size_t sequence, size_t head, size_t n)
{
        const size_t dim = (size_t)w->s->dim, list = sequence * (size_t)w->s->n_heads + head;
        const size_t n_clusters = (size_t)gpu_ints(w->n_clusters)[tail_row(sequence) * (size_t)w->s->n_heads + head];
        for (size_t query = list * (size_t)w->s->group; query < (list + 1) * (size_t)w->s->group; query++) {
                double sum = 0, *values = w->wanted + query * dim;
                memset(values, 0, dim * sizeof *values);
                for (size_t g = 0; g < n_clusters && n > 0; g++)
                        sum += add_cluster(w, sequence, head, g, n, query, values);
                w->wanted_lse[query] = sum > 0 ? log(sum) : -INFINITY;
                for (size_t j = 0; j < dim && sum > 0; j++)
                        values[j] /= sum;
        }
}

static dci_gpu_tail_clusters_args arguments(const world *w)
{
        const uint32_t row_bytes = (uint32_t)w->s->dim * 2;
        return (dci_gpu_tail_clusters_args){.n_sequences = TAIL_SEQUENCES,
                                            .n_heads = w->s->n_heads,
                                            .group = w->s->group,
                                            .dim = w->s->dim,
                                            .dtype = w->s->dtype,
                                            .query_dtype = w->s->query_dtype,
                                            .n_parts = w->s->n_parts,
                                            .max_groups = (int32_t)w->max_groups,
                                            .scale = (float)(1 / sqrt((double)w->s->dim)),
                                            .values_at = VALUES_AT,
                                            .spans_at = (uint32_t)w->spans_at,
                                            .sizes = {.sink = SINK, .window = KEPT - SINK, .budget = KEPT, .unit = 1},
                                            .queries = gpu_at(w->queries, false),
                                            .query_ld = w->query_ld,
                                            .rows = gpu_at(w->rows, false),
                                            .n_tokens = gpu_at(w->n_tokens, false),
                                            .n_grouped = gpu_at(w->n_grouped, false),
                                            .n_clusters = gpu_at(w->n_clusters, false),
                                            .scores = gpu_at(w->scores, false),
                                            .members = gpu_at(w->members, false),
                                            .clusters = tail_chunks_of(&w->clusters),
                                            .ids = tail_chunks_of(&w->ids),
                                            .lanes = {.keys = gpu_at(w->lane_keys, false),
                                                      .values = gpu_at(w->lane_values, false),
                                                      .key_bytes = row_bytes,
                                                      .value_bytes = row_bytes,
                                                      .sink = SINK,
                                                      .ring = RING,
                                                      .n_slots = SINK + RING},
                                            .pool = gpu_blocks_pool(&w->blocks, false),
                                            .tables = {gpu_at(w->pool_table, false), (uint64_t)w->blocks.blocks_of_row},
                                            .partial = gpu_at(w->partial, false),
                                            .arrived = gpu_at(w->arrived, false),
                                            .out = gpu_at(w->out, false),
                                            .lse = gpu_at(w->lse, false)};
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
                           gpu_is_host(w->t) ? 1e-6 : 2e-5);
}

/* One capture, replayed as sequences grow, and after truncations; each time twice, with the same bits. */
static void go(gpu_test *t, const shape *s, uint64_t seed)
{
        world w;
        void *graph;
        make(&w, t, s, seed);
        dci_gpu_tail_clusters_args args = arguments(&w);
        args.early = seed % 2 == 0;
        float *first = malloc(w.out->n_bytes);
        ck_assert_ptr_nonnull(first);
        ck_ok(t->ops->capture_begin(t->gpu, t->stream));
        ck_ok(t->ops->tail_clusters(t->gpu, t->stream, &args));
        ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
        for (size_t share = 0; share <= 4; share += 2) {
                const size_t late = share == 2 ? 23 : 0;
                next_step(&w, share, late);
                for (size_t i = 0; i < TAIL_SEQUENCES; i++)
                        for (size_t h = 0; h < (size_t)s->n_heads; h++) {
                                const size_t n = ((size_t)s->candidates[i] * share + 3) / 4;
                                model_list(&w, i, h, n - (late < n ? late : 0));
                        }
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

START_TEST(outputs_are_those_of_what_is_left_of_clusters)
{
        for (size_t i = 0; i < COUNT(shapes); i++)
                go(&gpu, &shapes[i], 5 + i);
}
END_TEST

START_TEST(what_the_kernel_cannot_do_is_said)
{
        world w;
        make(&w, &gpu, &shapes[0], 1);
        dci_gpu_tail_clusters_args args = arguments(&w);
        args.n_sequences = 0;
        ck_ok(gpu.ops->tail_clusters(gpu.gpu, gpu.stream, &args));
        if (!gpu_is_host(&gpu)) {
                args = arguments(&w);
                args.n_parts = DCI_GPU_MAX_PARTS + 1;
                ck_refused(gpu.ops->tail_clusters(gpu.gpu, gpu.stream, &args), DCI_ERR_INVALID, "65 parts");
                args = arguments(&w);
                args.values_at = 8;
                ck_refused(gpu.ops->tail_clusters(gpu.gpu, gpu.stream, &args), DCI_ERR_INVALID, "begin at byte 8");
        }
        drop(&w);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_tail_clusters");
        TCase *tcase = test_case_with(suite, "gpu_tail_clusters", 120, setup, teardown);
        tcase_add_test(tcase, outputs_are_those_of_what_is_left_of_clusters);
        tcase_add_test(tcase, what_the_kernel_cannot_do_is_said);
        return test_main(suite);
}
