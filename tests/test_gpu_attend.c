/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The attention kernel against a plain softmax in double over rows that are looked up by addresses computed again. All memory is NaN but
 * for the rows that may be read, so an output is a number only if nothing else was.
 *
 * Tolerances, of an output row's norm: the reference differs from the model by the order of its sums, 1e-6. Kernels sum in float, with
 * queries and weights in two parts of the rows' type (groups to 8): 1e-4. In one part, a query's and a weight's elements are each off by up
 * to 2^-8 (bf16) and 2^-11 (f16), in the mean by 0.4 of that; a score gathers the query's, about as much again in its weight. Both together
 * are 2.3e-3 and 2.9e-4 in the mean of many tokens, more where few tokens have all the weight: 1e-2 and 1.3e-3. Outputs of 16 bits
 * add their own rounding. An lse has the scores' error, without the outputs'.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu_fixture.h"

#define ROOM ((size_t)64 << 20)
#define MAX_BYTES ((size_t)10 << 20) /* of a case's rows in its pool */
#define MAX_ROWS 65
GPU_SUITE(ROOM)

enum { TAIL_NONE, TAIL_EMPTY, TAIL_SOME, TAIL_ALL, TAIL_EQUAL, TAIL_LITTLE, TAILS };

typedef struct attend_case {
        gpu_test *t;
        int32_t dtype, query_dtype, out_dtype, dim, group, n_heads, page_shift, n, n_splits, tail, stride;
        int32_t head_lists; /* of so many of n_heads lists the rows are those of one kv head */
        int32_t sequences[MAX_ROWS];
        bool dense, has_lse, mapped, peaked;
        size_t query_ld, out_ld, n_queries;
        float scale;
        int32_t sink, ring, hot; /* of lanes */
        gpu_buffer *rows, *sink_end, *recent_begin, *n_tokens, *slots, *counts, *lane_keys, *lane_values, *table;
        gpu_buffer *queries, *tail_out, *tail_lse, *out, *lse, *partial, *arrived;
        gpu_blocks blocks;
        double *wanted, *wanted_lse; /* by query */
        dci_rng rng;
        char name[240];
} attend_case;

static const int32_t dims[] = {64, 96, 128, 256}, groups[] = {1, 2, 4, 7, 8, 9, 16}, dtypes[] = {DCI_F16, DCI_BF16};
static const int32_t all_dtypes[] = {DCI_F32, DCI_F16, DCI_BF16}, all_heads[] = {1, 2, 8}, shifts[] = {3, 4, 5, 6};
static const int32_t lengths[] = {0, 1, 15, 16, 17, 176, 255, 256, 1000}, splits[] = {1, 2, 7, 64};

static int32_t draw_tokens(attend_case *c)
{
        const int32_t page = 1 << c->page_shift;
        const int32_t all[] = {0, 1, 15, 16, 17, page - 1, page, page + 1, 3 * page, 1000, 1000, 5000};
        return gpu_pick(&c->rng, all, COUNT(all));
}

static size_t least(size_t a, size_t b)
{
        return a < b ? a : b;
}

/* --- what a case is made of ---------------------------------------------------------------------------------- */

static void take_plan(attend_case *c, const int32_t *tokens)
{
        gpu_test *t = c->t;
        const size_t n = (size_t)c->n, n_lists = n * (size_t)c->n_heads;
        c->rows = gpu_take(t, n * 4, GPU_MAPPED);
        c->sink_end = gpu_take(t, n * 4, GPU_MAPPED);
        c->recent_begin = gpu_take(t, n * 4, GPU_MAPPED);
        c->n_tokens = gpu_take(t, n * 4, GPU_MAPPED);
        memcpy(c->rows->image, c->sequences, n * 4);
        memcpy(c->n_tokens->image, tokens, n * 4);
        for (size_t i = 0; i < n; i++) {
                /* Sinks shorter and longer than the lane's; recent tokens within the ring, beyond it, all, none. */
                const int32_t all = tokens[i], sinks[] = {0, c->sink, c->sink, c->sink + 5};
                const int32_t recents[] = {0, c->ring / 2, c->ring, c->ring + 20, 3};
                int32_t sink = gpu_pick(&c->rng, sinks, COUNT(sinks)),
                        recent = gpu_pick(&c->rng, recents, COUNT(recents));
                sink = sink < all ? sink : all;
                recent = recent < all - sink ? recent : all - sink;
                gpu_ints(c->sink_end)[i] = sink;
                gpu_ints(c->recent_begin)[i] = all - recent;
        }
        if (c->dense)
                return;
        c->slots = gpu_take(t, n_lists * (size_t)c->stride * 4, GPU_DEVICE);
        c->counts = gpu_take(t, n_lists * 4, GPU_DEVICE);
}

/* Lists: slots of hot in any order, each once, and here and there a token that stayed. */
static void fill_lists(attend_case *c)
{
        for (size_t l = 0; !c->dense && l < (size_t)(c->n * c->n_heads); l++) {
                const int32_t tokens = gpu_ints(c->n_tokens)[l / (size_t)c->n_heads],
                              wished = gpu_pick(&c->rng, lengths, COUNT(lengths));
                const int32_t n = (int32_t)least((size_t)wished, (size_t)c->stride);
                int32_t *slots = gpu_ints(c->slots) + l * (size_t)c->stride;
                gpu_ints(c->counts)[l] = n;
                const int32_t turn = (int32_t)dci_rng_below(&c->rng, (uint64_t)c->hot);
                for (int32_t s = 0; s < n; s++) {
                        slots[s] = c->sink + c->ring + (s + turn) % c->hot;
                        if (tokens > 0 && dci_rng_below(&c->rng, 5) == 0)
                                slots[s] = -1 - (int32_t)dci_rng_below(&c->rng, (uint64_t)tokens);
                }
        }
}

static void take_rows(attend_case *c, int32_t n_rows, int32_t max_tokens)
{
        const size_t row_bytes = (size_t)c->dim * 2;
        gpu_blocks_make(c->t, &c->blocks, c->mapped ? GPU_MAPPED : GPU_DEVICE, n_rows, c->n_heads / c->head_lists,
                        c->page_shift, max_tokens, (uint32_t)row_bytes);
        c->table = gpu_blocks_table(c->t, &c->blocks, dci_rng_next(&c->rng));
        if (c->dense)
                return;
        const size_t n_slots = (size_t)(n_rows * (c->n_heads / c->head_lists) * (c->sink + c->ring + c->hot));
        c->lane_keys = gpu_take(c->t, n_slots * row_bytes, GPU_DEVICE);
        c->lane_values = gpu_take(c->t, n_slots * row_bytes, GPU_DEVICE);
}

static void take_calls(attend_case *c)
{
        gpu_test *t = c->t;
        const size_t dim = (size_t)c->dim, n_lists = (size_t)(c->n * c->n_heads);
        c->n_queries = n_lists * (size_t)c->group;
        c->query_ld = dim + (dci_rng_below(&c->rng, 2) == 0 ? 0 : 32);
        c->out_ld = dim + (dci_rng_below(&c->rng, 2) == 0 ? 0 : 16);
        c->queries = gpu_take(t, c->n_queries * c->query_ld * dci_dtype_size(c->query_dtype), GPU_DEVICE);
        for (size_t q = 0; q < c->n_queries; q++)
                gpu_numbers(&c->rng, c->queries->image + q * c->query_ld * dci_dtype_size(c->query_dtype), dim,
                            c->query_dtype, c->peaked ? 8.0f : 1.0f);
        c->out = gpu_take(t, c->n_queries * c->out_ld * dci_dtype_size(c->out_dtype), GPU_DEVICE);
        c->lse = c->has_lse ? gpu_take(t, c->n_queries * sizeof(float), GPU_DEVICE) : NULL;
        if (c->tail != TAIL_NONE) {
                c->tail_out = gpu_take(t, c->n_queries * dim * sizeof(float), GPU_MAPPED);
                c->tail_lse = gpu_take(t, c->n_queries * sizeof(float), GPU_MAPPED);
        }
        if (c->n_splits > 1) {
                c->partial = gpu_take(t, n_lists * (size_t)c->n_splits * DCI_GPU_MAX_GROUP * (dim + 2) * sizeof(float),
                                      GPU_DEVICE);
                c->arrived = gpu_take(t, n_lists * sizeof(int32_t), GPU_DEVICE);
                memset(c->arrived->image, 0, c->arrived->n_bytes);
        }
        c->wanted = calloc(c->n_queries * dim + 1, sizeof *c->wanted);
        c->wanted_lse = calloc(c->n_queries + 1, sizeof *c->wanted_lse);
        ck_assert(c->wanted != NULL && c->wanted_lse != NULL);
}

/* --- the model ------------------------------------------------------------------------------------------------ */

typedef struct found_rows {
        const unsigned char *keys[16000], *values[16000];
        size_t n;
} found_rows;

/* A row that may be read gets its numbers when it is first looked up. */
static const unsigned char *legal(attend_case *c, unsigned char *row)
{
        if (row[0] == 0xff && row[1] == 0xff)
                gpu_numbers(&c->rng, row, (size_t)c->dim, c->dtype, 1.0f);
        return row;
}

static void look_up_lane(attend_case *c, found_rows *f, int32_t i, int32_t h, int32_t slot)
{
        const size_t lane = (size_t)((c->sequences[i] * c->n_heads + h) / c->head_lists),
                     n_slots = (size_t)(c->sink + c->ring + c->hot);
        const size_t at = (lane * n_slots + (size_t)slot) * (size_t)c->dim * 2;
        f->keys[f->n] = legal(c, c->lane_keys->image + at);
        f->values[f->n++] = legal(c, c->lane_values->image + at);
}

static void look_up_pool(attend_case *c, found_rows *f, int32_t i, int32_t list, int32_t position)
{
        const int32_t h = list / c->head_lists;
        f->keys[f->n] = legal(c, gpu_blocks_row(&c->blocks, c->table, c->sequences[i], h, position, false));
        f->values[f->n++] = legal(c, gpu_blocks_row(&c->blocks, c->table, c->sequences[i], h, position, true));
}

static void look_up(attend_case *c, found_rows *f, int32_t i, int32_t h)
{
        const int32_t n = gpu_ints(c->n_tokens)[i];
        f->n = 0;
        for (int32_t p = 0; p < n; p++) {
                if (c->dense)
                        look_up_pool(c, f, i, h, p);
                else if (p >= gpu_ints(c->sink_end)[i] && p < gpu_ints(c->recent_begin)[i])
                        continue;
                else if (p < c->sink)
                        look_up_lane(c, f, i, h, p);
                else if (n - p <= c->ring)
                        look_up_lane(c, f, i, h, c->sink + p % c->ring);
                else
                        look_up_pool(c, f, i, h, p);
        }
        const size_t l = (size_t)(i * c->n_heads + h);
        for (int32_t s = 0; !c->dense && s < gpu_ints(c->counts)[l]; s++) {
                const int32_t slot = gpu_ints(c->slots)[l * (size_t)c->stride + (size_t)s];
                if (slot < 0)
                        look_up_pool(c, f, i, h, -1 - slot);
                else
                        look_up_lane(c, f, i, h, slot);
        }
}

/* What the tail says of a query, once the exact part is known. */
static void set_tail(attend_case *c, size_t q, double exact)
{
        const double about = isfinite(exact) ? exact : 1.0, far[TAILS] = {0, 0, -1.0, 90.0, 0.0, -300.0};
        if (c->tail == TAIL_NONE)
                return;
        gpu_floats(c->tail_lse)[q] = c->tail == TAIL_EMPTY || (c->tail == TAIL_SOME && q % 5 == 4)
                                             ? -INFINITY
                                             : (float)(about + far[c->tail]);
        if (gpu_floats(c->tail_lse)[q] != -INFINITY) /* else its row is never read, and stays NaN */
                gpu_numbers(&c->rng, gpu_floats(c->tail_out) + q * (size_t)c->dim, (size_t)c->dim, DCI_F32, 1.0f);
}

static void model_query(attend_case *c, const found_rows *f, size_t q)
{
        static double scores[16000];
        const size_t dim = (size_t)c->dim;
        double most = -INFINITY, sum = 0.0, *out = c->wanted + q * dim;
        for (size_t r = 0; r < f->n; r++) {
                scores[r] = 0.0;
                for (size_t j = 0; j < dim; j++)
                        scores[r] += (double)gpu_number(c->queries->image, q * c->query_ld + j, c->query_dtype) *
                                     (double)gpu_number(f->keys[r], j, c->dtype);
                scores[r] *= (double)c->scale;
                most = fmax(most, scores[r]);
        }
        for (size_t r = 0; r < f->n; r++)
                sum += exp(scores[r] - most);
        const double exact = f->n == 0 ? -INFINITY : most + log(sum);
        set_tail(c, q, exact);
        const double rest = c->tail == TAIL_NONE ? -INFINITY : (double)gpu_floats(c->tail_lse)[q];
        const double top = fmax(exact, rest);
        c->wanted_lse[q] = isfinite(top) ? top + log(exp(exact - top) + exp(rest - top)) : -INFINITY;
        for (size_t r = 0; r < f->n; r++) {
                const double weight = exp(scores[r] - c->wanted_lse[q]);
                for (size_t j = 0; j < dim; j++)
                        out[j] += weight * (double)gpu_number(f->values[r], j, c->dtype);
        }
        for (size_t j = 0; isfinite(rest) && j < dim; j++)
                out[j] += exp(rest - c->wanted_lse[q]) * (double)gpu_floats(c->tail_out)[q * dim + j];
}

static void model(attend_case *c)
{
        static found_rows f;
        for (int32_t i = 0; i < c->n; i++)
                for (int32_t h = 0; h < c->n_heads; h++) {
                        look_up(c, &f, i, h);
                        for (int32_t g = 0; g < c->group; g++)
                                model_query(c, &f, (size_t)((i * c->n_heads + h) * c->group + g));
                }
}

/* --- comparing ------------------------------------------------------------------------------------------------ */

static double tolerance(const attend_case *c)
{
        const double part = gpu_is_host(c->t) ? 1e-6 : c->group <= 8 ? 1e-4 : c->dtype == DCI_F16 ? 1.3e-3 : 1e-2;
        return c->peaked ? 8.0 * part : part; /* errors of scores grow with the queries */
}

static double rounding(int32_t dtype)
{
        return dtype == DCI_BF16 ? 0x1p-8 : dtype == DCI_F16 ? 0x1p-11 : 0.0;
}

static void check_outputs(attend_case *c)
{
        const size_t dim = (size_t)c->dim, es = dci_dtype_size(c->out_dtype);
        const double lse_allowed = tolerance(c), allowed = lse_allowed + rounding(c->out_dtype);
        gpu_fetch(c->t, c->out);
        gpu_guarded(c->out, c->name);
        if (c->has_lse) {
                gpu_fetch(c->t, c->lse);
                gpu_guarded(c->lse, c->name);
        }
        for (size_t q = 0; q < c->n_queries; q++) {
                const double *wanted = c->wanted + q * dim;
                double error = 0.0, norm = 0.0;
                for (size_t j = 0; j < dim; j++) {
                        const double got = (double)gpu_number(c->out->back, q * c->out_ld + j, c->out_dtype);
                        error += (got - wanted[j]) * (got - wanted[j]);
                        norm += wanted[j] * wanted[j];
                }
                /* NaN fails this, too. */
                ck_assert_msg(sqrt(error) <= allowed * sqrt(norm),
                              "%s: query %zu is off by %.3g of its norm %.3g, allowed %.3g", c->name, q,
                              sqrt(error / norm), sqrt(norm), allowed);
                for (size_t b = (q * c->out_ld + dim) * es; b < (q + 1) * c->out_ld * es; b++)
                        ck_assert_msg(c->out->back[b] == 0xff, "%s: written past the row of query %zu", c->name, q);
                if (!c->has_lse)
                        continue;
                const double lse = (double)gpu_number(c->lse->back, q, DCI_F32), wished = c->wanted_lse[q];
                ck_assert_msg(lse == wished || fabs(lse - wished) <= lse_allowed * fmax(1.0, fabs(wished)),
                              "%s: lse of query %zu is %.9g, expected %.9g", c->name, q, lse, wished);
        }
}

static void check_side(attend_case *c)
{
        if (c->n_splits == 1)
                return;
        gpu_same(c->t, c->arrived, c->name);
        gpu_fetch(c->t, c->partial);
        gpu_guarded(c->partial, c->name);
}

static dci_gpu_attend_args arguments(const attend_case *c)
{
        dci_gpu_attend_args args = {.n_sequences = c->n,
                                    .n_heads = c->n_heads / c->head_lists,
                                    .head_lists = c->head_lists,
                                    .group = c->group,
                                    .dim = c->dim,
                                    .dtype = c->dtype,
                                    .query_dtype = c->query_dtype,
                                    .out_dtype = c->out_dtype,
                                    .n_splits = c->n_splits,
                                    .scale = c->scale,
                                    .stride = c->stride,
                                    .queries = gpu_at(c->queries, false),
                                    .query_ld = c->query_ld,
                                    .rows = gpu_at(c->rows, false),
                                    .sink_end = gpu_at(c->sink_end, false),
                                    .recent_begin = gpu_at(c->recent_begin, false),
                                    .n_tokens = gpu_at(c->n_tokens, false),
                                    .slots = gpu_at(c->slots, false),
                                    .counts = gpu_at(c->counts, false),
                                    .pool = gpu_blocks_pool(&c->blocks, false),
                                    .tables = {gpu_at(c->table, false), (uint64_t)c->blocks.blocks_of_row},
                                    .tail_out = gpu_at(c->tail_out, false),
                                    .tail_lse = gpu_at(c->tail_lse, false),
                                    .out = gpu_at(c->out, false),
                                    .out_ld = c->out_ld,
                                    .lse = gpu_at(c->lse, false),
                                    .partial = gpu_at(c->partial, false),
                                    .arrived = gpu_at(c->arrived, false)};
        if (!c->dense)
                args.lanes = (dci_gpu_lanes){gpu_at(c->lane_keys, false),
                                             gpu_at(c->lane_values, false),
                                             (uint32_t)c->dim * 2,
                                             (uint32_t)c->dim * 2,
                                             c->sink,
                                             c->ring,
                                             c->hot,
                                             c->sink + c->ring + c->hot};
        return args;
}

/* Once more, into poison again: the same bits. */
static void check_again(attend_case *c, void *graph, unsigned char *first, const dci_gpu_attend_args *args)
{
        gpu_test *t = c->t;
        memset(c->out->image, 0xff, c->out->n_bytes);
        gpu_send(t, c->out);
        if (graph != NULL)
                ck_ok(t->ops->graph_launch(t->gpu, graph, t->stream));
        else
                ck_ok(t->ops->attend(t->gpu, t->stream, args));
        gpu_fetch(t, c->out);
        ck_assert_msg(memcmp(first, c->out->back, c->out->n_bytes) == 0, "%s: other bits the second time", c->name);
        check_side(c);
}

static void check_case(attend_case *c, bool captured)
{
        gpu_test *t = c->t;
        void *graph = NULL;
        fill_lists(c);
        model(c);
        gpu_send_all(t);
        const dci_gpu_attend_args args = arguments(c);
        ck_ok(t->ops->attend(t->gpu, t->stream, &args));
        check_outputs(c);
        check_side(c);
        unsigned char *first = malloc(c->out->n_bytes);
        ck_assert_ptr_nonnull(first);
        memcpy(first, c->out->back, c->out->n_bytes);
        check_again(c, NULL, first, &args);
        if (captured) {
                ck_ok(t->ops->capture_begin(t->gpu, t->stream));
                ck_ok(t->ops->attend(t->gpu, t->stream, &args));
                ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
                check_again(c, graph, first, &args);
                check_again(c, graph, first, &args);
                t->ops->graph_destroy(t->gpu, graph);
        }
        test_free(first, c->wanted, c->wanted_lse);
}

/* --- cases ---------------------------------------------------------------------------------------------------- */

/* The rest of a case whose shape is given, from its tokens. */
static void make_case(attend_case *c, const int32_t *tokens)
{
        int32_t most = 1;
        for (int32_t i = 0; i < c->n; i++)
                most = tokens[i] > most ? tokens[i] : most;
        const int32_t n_rows = c->n + 1, turn = (int32_t)dci_rng_below(&c->rng, (uint64_t)n_rows);
        for (int32_t i = 0; i < c->n; i++)
                c->sequences[i] = (i + turn) % n_rows;
        c->scale = 1.0f / sqrtf((float)c->dim);
        snprintf(c->name, sizeof c->name,
                 "%s %s dim %d, group %d, %d lists, %d of a head, %d sequences of up to %d, pages of %d, lists of up "
                 "to %d, %d "
                 "splits, queries %s, out "
                 "%s, tail %d",
                 c->dense ? "dense" : "sparse", dci_dtype_name(c->dtype), (int)c->dim, (int)c->group, (int)c->n_heads,
                 (int)c->head_lists, (int)c->n, (int)most, 1 << c->page_shift, (int)c->stride, (int)c->n_splits,
                 dci_dtype_name(c->query_dtype), dci_dtype_name(c->out_dtype), (int)c->tail);
        take_plan(c, tokens);
        take_rows(c, n_rows, most);
        take_calls(c);
}

static void drawn_case(gpu_test *t, uint64_t seed, int32_t dim, int32_t group, int32_t dtype)
{
        static const int32_t sinks[] = {0, 4, 16};
        int32_t tokens[5], most = 1;
        attend_case c = {.t = t, .dim = dim, .group = group, .dtype = dtype};
        gpu_reset(t);
        dci_rng_seed(&c.rng, seed);
        c.page_shift = gpu_pick(&c.rng, shifts, COUNT(shifts));
        c.n_heads = gpu_pick(&c.rng, all_heads, COUNT(all_heads));
        c.n = 1 + (int32_t)dci_rng_below(&c.rng, 5);
        for (int32_t i = 0; i < c.n; i++) {
                tokens[i] = draw_tokens(&c);
                most = tokens[i] > most ? tokens[i] : most;
        }
        /* Long sequences have few companions. */
        while ((size_t)(c.n + 1) * (size_t)(c.n_heads * most * dim) * 8 > MAX_BYTES && (c.n > 1 || c.n_heads > 1)) {
                if (c.n > 1) {
                        most = tokens[0] > most ? tokens[0] : most;
                        tokens[0] = most;
                        c.n--;
                } else {
                        c.n_heads = c.n_heads == 8 ? 2 : 1;
                }
        }
        c.head_lists = seed % 3 == 0 ? c.n_heads : seed % 3 == 1 && c.n_heads == 8 ? 2 : 1;
        c.dense = dci_rng_below(&c.rng, 3) == 0;
        c.query_dtype = gpu_pick(&c.rng, all_dtypes, COUNT(all_dtypes));
        c.out_dtype = dci_rng_below(&c.rng, 2) == 0 ? DCI_F32 : gpu_pick(&c.rng, all_dtypes, COUNT(all_dtypes));
        c.n_splits = gpu_pick(&c.rng, splits, COUNT(splits));
        c.tail = (int32_t)dci_rng_below(&c.rng, TAILS);
        c.has_lse = dci_rng_below(&c.rng, 4) != 0;
        c.mapped = dci_rng_below(&c.rng, 2) == 0;
        c.peaked = group <= 8 && dci_rng_below(&c.rng, 8) == 0;
        c.sink = gpu_pick(&c.rng, sinks, COUNT(sinks));
        c.ring = 16 << (2 * dci_rng_below(&c.rng, 3));
        c.stride = (int32_t)least((size_t)gpu_pick(&c.rng, lengths, COUNT(lengths)) + 1, dim == 256 ? 300 : 1001);
        c.hot = c.stride;
        if (c.n * c.n_heads > 10)
                c.stride = c.hot = (int32_t)least((size_t)c.stride, 180);
        make_case(&c, tokens);
        check_case(&c, seed % 4 == 0);
}

START_TEST(attention_is_softmax_over_the_rows_of_a_plan)
{
        const uint64_t rounds = test_short() ? 1 : 5;
        for (size_t d = 0; d < COUNT(dims); d++)
                for (size_t g = 0; g < COUNT(groups); g++)
                        for (size_t y = 0; y < COUNT(dtypes); y++)
                                for (uint64_t r = 0; r < rounds; r++)
                                        drawn_case(&gpu, r * 1000 + d * 100 + g * 10 + y, dims[d], groups[g],
                                                   dtypes[y]);
}
END_TEST

/* 64 sequences of 0 to 189 tokens at once; the number of splits that the device's size asks for. */
START_TEST(many_ragged_sequences_at_once)
{
        for (int32_t dense = 0; dense < 2; dense++) {
                int32_t tokens[64];
                attend_case c = {.t = &gpu,
                                 .dim = 64,
                                 .group = 4,
                                 .dtype = DCI_BF16,
                                 .n_heads = 2,
                                 .head_lists = 1,
                                 .n = 64,
                                 .page_shift = 4};
                gpu_reset(&gpu);
                dci_rng_seed(&c.rng, 5);
                for (int32_t i = 0; i < 64; i++)
                        tokens[i] = 3 * i;
                c.dense = dense != 0;
                c.query_dtype = DCI_BF16;
                c.out_dtype = DCI_F32;
                c.has_lse = true;
                c.sink = 4;
                c.ring = 32;
                c.stride = c.hot = 40;
                c.n_splits = dci_gpu_splits(gpu.gpu, 64, 2, 189);
                make_case(&c, tokens);
                check_case(&c, true);
        }
}
END_TEST

/* Lists of every length about the sizes of a kernel's tiles, alone: no range next to them. */
START_TEST(lists_of_every_length)
{
        const int32_t most = test_short() ? 40 : 140;
        for (int32_t n = 0; n <= most; n++) {
                const int32_t tokens = 50;
                attend_case c = {.t = &gpu,
                                 .dim = 128,
                                 .group = n % 2 == 0 ? 4 : 16,
                                 .dtype = DCI_F16,
                                 .n_heads = 1,
                                 .head_lists = 1,
                                 .n = 1};
                gpu_reset(&gpu);
                dci_rng_seed(&c.rng, (uint64_t)n);
                c.page_shift = 5;
                c.query_dtype = c.out_dtype = DCI_F32;
                c.has_lse = true;
                c.ring = 16;
                c.stride = n + 1;
                c.hot = n + 1;
                c.n_splits = 1 + n % 3;
                make_case(&c, &tokens);
                gpu_ints(c.sink_end)[0] = 0;
                gpu_ints(c.recent_begin)[0] = tokens;
                check_case(&c, false);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_attend");
        TCase *tcase = test_case_with(suite, "gpu_attend", 300, setup, teardown);
        tcase_add_test(tcase, attention_is_softmax_over_the_rows_of_a_plan);
        tcase_add_test(tcase, many_ragged_sequences_at_once);
        tcase_add_test(tcase, lists_of_every_length);
        return test_main(suite);
}
