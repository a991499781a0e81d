/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Steps that are captured once and launched again, for other sequences, while these and the pool grow: outputs are those of the CPU. And what
 * the device plans is what the host plans.
 */
#include "tests/gpu_kv_fixture.h"

#include <math.h>

static size_t steps(size_t n)
{
        return test_short() ? (n + 3) / 4 : n;
}

/* Places of a captured step: rows and queries of n sequences, and outputs, by layer. */
typedef struct places {
        size_t n, row_bytes, query_bytes, out_bytes; /* of all sequences, in one layer */
        unsigned char *keys, *values, *queries;
        float *out;
} places;

static places places_of(twin *t, size_t n)
{
        const dci_kv_config *c = &t->config;
        places p = {.n = n};
        p.row_bytes = n * c->n_kv_heads * c->dim_k * dci_dtype_size(c->dtype);
        p.query_bytes = n * c->n_query_heads * c->dim_k * dci_dtype_size(c->query_dtype);
        p.out_bytes = n * c->n_query_heads * (c->dim_k + 1) * sizeof(float);
        p.keys = twin_send(t, NULL, c->n_layers * p.row_bytes);
        p.values = twin_send(t, NULL, c->n_layers * p.row_bytes);
        p.queries = twin_send(t, NULL, c->n_layers * p.query_bytes);
        p.out = twin_send(t, NULL, c->n_layers * p.out_bytes);
        return p;
}

static void places_free(twin *t, places *p)
{
        const size_t n = t->config.n_layers;
        twin_give(t, p->keys, n * p->row_bytes);
        twin_give(t, p->values, n * p->row_bytes);
        twin_give(t, p->queries, n * p->query_bytes);
        twin_give(t, p->out, n * p->out_bytes);
}

static float *out_of(const places *p, size_t layer)
{
        return p->out + layer * p->out_bytes / sizeof(float);
}

/* The layers' calls, on a stream that may capture. */
static void queue_layers(twin *t, const places *p)
{
        const dci_kv_config *c = &t->config;
        for (size_t l = 0; l < c->n_layers; l++) {
                dci_kv_rows rows;
                ck_ok(dci_kv_rows_init(&rows, sizeof rows));
                rows.keys = p->keys + l * p->row_bytes;
                rows.values = p->values + l * p->row_bytes;
                const unsigned char *queries = p->queries + l * p->query_bytes;
                float *out = out_of(p, l);
                ck_ok(dci_gpu_kv_append(t->kv, t->stream, l, &rows));
                ck_ok(dci_gpu_kv_plan(t->kv, t->stream, l, queries, c->dim_k));
                ck_ok(dci_gpu_kv_attend(t->kv, t->stream, l, queries, c->dim_k, out, c->dim_k,
                                        out + p->n * c->n_query_heads * c->dim_k));
        }
}

/* What a model would have written there. */
static void fill_places(twin *t, const places *p, const kv_turn *turns)
{
        for (size_t l = 0; l < t->config.n_layers; l++) {
                twin_rows rows = twin_rows_of(t, l, p->n, turns);
                void *queries = kv_queries(l, p->n, turns), *there = twin_send(t, queries, p->query_bytes);
                ck_ok(t->ops->copy(t->gpu, t->stream, p->keys + l * p->row_bytes, rows.keys, p->row_bytes));
                ck_ok(t->ops->copy(t->gpu, t->stream, p->values + l * p->row_bytes, rows.values, p->row_bytes));
                ck_ok(t->ops->copy(t->gpu, t->stream, p->queries + l * p->query_bytes, there, p->query_bytes));
                ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                twin_rows_free(t, &rows);
                twin_give(t, there, p->query_bytes);
                free(queries);
        }
        ck_ok(t->ops->fill(t->gpu, t->stream, p->out, 0xff, t->config.n_layers * p->out_bytes));
}

/* A layer of a graph whose outputs are not the CPU's: it must have chosen other groups that count the same. Its lists are gone, but the step is
 * still open: planned again, call by call, it chooses the same, which is what it attended to. Schedules would decide twice. */
static void compare_again(twin *t, const places *p, size_t layer, const kv_turn *turns, const dci_kv_plan *wanted,
                          const float *first)
{
        const dci_kv_config *c = &t->config;
        const size_t n = p->n * c->n_query_heads, before = t->n_other;
        const unsigned char *queries = p->queries + layer * p->query_bytes;
        float *out = out_of(p, layer), *got = malloc(p->out_bytes);
        ck_assert_ptr_nonnull(got);
        ck_ok(dci_gpu_kv_plan(t->kv, t->stream, layer, queries, c->dim_k));
        ck_ok(dci_gpu_kv_attend(t->kv, t->stream, layer, queries, c->dim_k, out, c->dim_k, out + n * c->dim_k));
        ck_ok(t->ops->copy(t->gpu, t->stream, got, out, p->out_bytes));
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        twin_plans_alike(t, layer, p->n, turns, wanted);
        ck_assert_msg(t->n_other > before, "%s, layer %zu: another output with the same lists", t->what, layer);
        for (size_t i = 0; i < n; i++)
                twin_same_row(t, layer, i, first + i * c->dim_k, got + i * c->dim_k, first[n * c->dim_k + i],
                              got[n * c->dim_k + i]);
        free(got);
}

/* Outputs against those of the CPU, whose step is open. */
static void compare(twin *t, const places *p, const kv_turn *turns)
{
        const dci_kv_config *c = &t->config;
        const size_t n = p->n * c->n_query_heads;
        float *got = malloc(p->out_bytes);
        ck_assert_ptr_nonnull(got);
        kv_seen seen = kv_seen_room(t->cpu, p->n, turns);
        for (size_t l = 0; l < c->n_layers; l++) {
                kv_append(t->cpu, l, p->n, turns);
                kv_look_at(&seen, l, p->n, turns);
                ck_ok(t->ops->copy(t->gpu, t->stream, got, out_of(p, l), p->out_bytes));
                ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                const float *wanted = kv_out(&seen, l, 0, 0);
                bool alike = true;
                for (size_t i = 0; i < n; i++)
                        alike = alike && twin_row_alike(t, got + i * c->dim_k, wanted + i * c->dim_k);
                if (!alike && !t->kv->layers[l].dense && !t->kv->schedule->on) {
                        compare_again(t, p, l, turns, &seen.plans[l], got);
                        continue;
                }
                t->n_lists += p->n * t->kv->row_lists;
                for (size_t i = 0; i < n; i++)
                        twin_same_row(t, l, i, got + i * c->dim_k, wanted + i * c->dim_k, got[n * c->dim_k + i],
                                      kv_lse(&seen, l, 0, 0)[i]);
        }
        kv_seen_free(&seen);
        free(got);
}

static void end_step(twin *t, const kv_turn *turns, size_t n)
{
        ck_ok(dci_gpu_kv_step_end(t->kv, t->stream));
        kv_step_end(t->cpu, n, turns);
}

/* A step whose layers are captured, and launched. */
static void *capture_step(twin *t, const places *p, const kv_turn *turns, size_t max_tokens)
{
        void *graph = NULL;
        twin_reserve(t, p->n, turns);
        ck_ok(dci_gpu_kv_capture(t->kv, t->stream, max_tokens));
        fill_places(t, p, turns);
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        ck_ok(t->ops->capture_begin(t->gpu, t->stream));
        queue_layers(t, p);
        ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
        ck_ok(t->ops->graph_launch(t->gpu, graph, t->stream));
        compare(t, p, turns);
        end_step(t, turns, p->n);
        return graph;
}

static void replay_step(twin *t, const places *p, const kv_turn *turns, void *graph, size_t max_tokens)
{
        twin_reserve(t, p->n, turns);
        fill_places(t, p, turns);
        ck_ok(dci_gpu_kv_replay(t->kv, t->stream, max_tokens));
        ck_ok(t->ops->graph_launch(t->gpu, graph, t->stream));
        compare(t, p, turns);
        end_step(t, turns, p->n);
}

/* Presets, and sketch by learned codes of so many bits. */
#define LEARNED_OF(bits) (200 + (bits))
/* Of these, with a list for each query head. */
#define LISTS_OF(kind) (400 + (kind))
/* Pages by mean and deviation. */
#define DEVIATIONS (-1)
/* Votes for few candidates, whose heads are combined by the softmax. */
#define FEW_VOTED (-2)

/* New ones come last: rows are drawn by the number here, and some numbers were chosen. */
static const struct {
        int32_t preset, schedule; /* 0: the preset's */
        int32_t contiguous;
} planned[] = {{DCI_KV_SKETCH, 0, 0},
               {DCI_KV_QUEST, 0, 0},
               {DCI_KV_PAGEMEAN, 0, 0},
               {DCI_KV_ARKVALE, 0, 0},
               {DCI_KV_CLUSTERKV, 0, 0},
               {DCI_KV_SKETCH_LOWBIT, 0, 0},
               {DCI_KV_SKETCH_SUMS, 0, 0},
               {DCI_KV_LOWBIT, 0, 0},
               {DCI_KV_FULL, 0, 0},
               {LEARNED_OF(1), 0, 0},
               {LEARNED_OF(2), 0, 0},
               {LEARNED_OF(3), 0, 0},
               {LEARNED_OF(4), 0, 0},
               {KV_LEARNED, 0, 0},
               {LEARNED_OF(2), DCI_KV_BOUNDARY, 0},
               {DCI_KV_FREEKV, 0, 0},
               {DCI_KV_SKETCH, DCI_KV_PERIODIC, 0},
               {DCI_KV_SKETCH, DCI_KV_BOUNDARY, 0},
               {DCI_KV_SKETCH, DCI_KV_ANCHOR, 0},
               {DCI_KV_SKETCH, DCI_KV_AHEAD, 0},
               {DCI_KV_QUEST, DCI_KV_BOUNDARY, 0},
               {DCI_KV_SKETCH_LOWBIT, DCI_KV_AHEAD, 0},
               {DCI_KV_SKETCH_LOWBIT, DCI_KV_BOUNDARY, 0},
               {DCI_KV_SKETCH_LOWBIT, DCI_KV_ANCHOR, 0},
               {DCI_KV_SKETCH_SUMS, DCI_KV_AHEAD, 0},
               {DCI_KV_SKETCH_SUMS, DCI_KV_PERIODIC, 0},
               {DCI_KV_LOUISKV, 0, 0},
               {DCI_KV_LOUISKV, DCI_KV_PERIODIC, 0},
               {DCI_KV_CLUSTERKV, DCI_KV_BOUNDARY, 0},
               {DCI_KV_CLUSTERKV, DCI_KV_ANCHOR, 0},
               {DCI_KV_CLUSTERKV, DCI_KV_AHEAD, 0},
               {DCI_KV_SKETCH_GROUPS, 0, 0},
               {DCI_KV_SKETCH_GROUPS, DCI_KV_AHEAD, 0},
               {DCI_KV_CLUSTERKV, 0, 1},
               {DCI_KV_LOUISKV, 0, 1},
               {DCI_KV_ICECACHE, 0, 0},
               {DCI_KV_ICECACHE, DCI_KV_PERIODIC, 0},
               {DCI_KV_ICECACHE, DCI_KV_ANCHOR, 0},
               {DCI_KV_ICECACHE, DCI_KV_AHEAD, 0},
               {DCI_KV_ICECACHE, 0, 1},
               {DEVIATIONS, 0, 0},
               {DCI_KV_RETROINFER, 0, 0},
               {DCI_KV_PRKV, 0, 0},
               {DCI_KV_PRKV, 0, 1},
               {DCI_KV_PARISKV, 0, 0},
               {DCI_KV_PARISKV, DCI_KV_AHEAD, 0},
               {DCI_KV_PARISKV, DCI_KV_ANCHOR, 0},
               {FEW_VOTED, 0, 0},
               {LISTS_OF(DCI_KV_CLUSTERKV), 0, 0},
               {LISTS_OF(DCI_KV_CLUSTERKV), 0, 1},
               {LISTS_OF(DCI_KV_CLUSTERKV), DCI_KV_AHEAD, 0},
               {LISTS_OF(DCI_KV_LOUISKV), 0, 0},
               {LISTS_OF(DCI_KV_RETROINFER), 0, 0},
               {LISTS_OF(DCI_KV_SKETCH_LOWBIT), 0, 0},
               {LISTS_OF(DCI_KV_SKETCH_SUMS), 0, 0},
               {LISTS_OF(LEARNED_OF(2)), 0, 0}};
enum { N_PLANNED = sizeof planned / sizeof *planned };

static dci_kv_config config_of(int32_t kind)
{
        const bool each = kind >= LISTS_OF(0);
        kind -= each ? LISTS_OF(0) : 0;
        dci_kv_config config = twin_small(kind == DEVIATIONS     ? DCI_KV_PAGEMEAN
                                          : kind == FEW_VOTED    ? DCI_KV_PARISKV
                                          : kind < LEARNED_OF(0) ? kind
                                                                 : DCI_KV_SKETCH);
        config.query_head_lists = each;
        if (kind == DEVIATIONS)
                config.summary = DCI_KV_SUMMARY_MEAN_STD;
        if (kind == FEW_VOTED) {
                config.combine = DCI_KV_COMBINE_SOFTMAX;
                config.vote_share = 0.3;
                config.candidate_share = 0.15;
        }
        if (kind < LEARNED_OF(0))
                return config;
        config.summary = DCI_KV_SUMMARY_LEARNED;
        config.key_bits = kind - LEARNED_OF(0);
        return config;
}

/* Queries are drawn again in each step: their cosines are small, and tau between them. */
static dci_kv_config planned_config(size_t i)
{
        dci_kv_config config = config_of(planned[i].preset);
        config.schedule = planned[i].schedule;
        config.contiguous = planned[i].contiguous;
        twin_set_period(&config, 5);
        config.tau = 0.02;
        config.anchor_first = 1; /* the first layer is dense, the last one uses the lists of the second */
        config.anchor_period = 3;
        return config;
}

/* With room for some pages of twin_small, so that they come and leave. */
static dci_gpu_kv_config under_pressure(size_t n, size_t n_pages)
{
        dci_gpu_kv_config config = twin_planned_for(n);
        config.device_resident_bytes = n_pages * 2 * 8 * 2 * 64 * 4;
        return config;
}

/* One sequence from below the budget far beyond it, through chunks' borders, with the pool growing; loops over presets. Thinned, every second
 * one ends before the borders. */
START_TEST(a_graph_goes_on_while_all_grows)
{
        enum { PROMPT = 60 };
        const size_t n = test_thin() && _i % 2 != 0 ? 175 : steps(planned[_i].schedule != 0 ? 300 : 700);
        const dci_kv_config config = planned_config((size_t)_i);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        /* Where a schedule keeps lists, a tie cannot be recognised afterwards: with these rows there is none at any instruction set. */
        kv_data data = kv_random(&config, PROMPT + 1300, (config.preset == DCI_KV_LOUISKV ? 600 : 300) + (uint64_t)_i);
        kv_turn turn = {twin_prefill(&t, &data, PROMPT, 0), &data, PROMPT, 1};
        places p = places_of(&t, 1);
        void *graph = capture_step(&t, &p, &turn, 0);
        for (size_t s = 1; s < n; s++) {
                turn.from = PROMPT + s;
                replay_step(&t, &p, &turn, graph, 0);
        }
        ck_assert_uint_gt(t.kv->pool->n_pieces, 1);
        twin_check_rows(&t, turn.sequence, &data, 0, PROMPT + n);
        t.ops->graph_destroy(t.gpu, graph);
        places_free(&t, &p);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A graph of two sequences serves others, in another order, forks and new ones in rows of old ones among them; between its launches steps go
 * call by call. Every second kind once more, with pages that come and leave under pressure. */
START_TEST(a_graph_serves_other_sequences)
{
        const dci_kv_config config = planned_config((size_t)(_i < N_PLANNED ? _i : 2 * (_i - N_PLANNED)));
        const bool pressed = _i >= N_PLANNED && config.contiguous == 0;
        const dci_gpu_kv_config on_device = pressed ? under_pressure(4, 90) : twin_planned_for(4);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 1500, 400), other = kv_random(&config, 1500, 401);
        kv_turn a = {twin_prefill(&t, &data, 700, 0), &data, 700, 1},
                b = {twin_prefill(&t, &other, 40, 0), &other, 40, 1};
        places p = places_of(&t, 2);
        kv_turn turns[] = {a, b};
        void *graph = capture_step(&t, &p, turns, 2000);
        for (size_t round = 0; round < 6; round++) {
                for (size_t s = 0; s < 9; s++) {
                        turns[0].from++;
                        turns[1].from++;
                        if (s % 4 == 3)
                                twin_step(&t, 2, turns, NULL, true);
                        else
                                replay_step(&t, &p, turns, graph, 2000);
                }
                const kv_turn swap = turns[0];
                turns[0] = turns[1];
                turns[1] = swap;
                if (round % 2 == 0) {
                        twin_close(&t, turns[0].sequence);
                        turns[0] = (kv_turn){twin_prefill(&t, &other, 530 - 60 * round, round * 70), &other,
                                             530 - 60 * round - 1, 1};
                } else {
                        const size_t n = turns[1].from - 3 * round;
                        const int64_t fork = twin_fork(&t, turns[1].sequence, n + 1);
                        twin_close(&t, turns[0].sequence);
                        turns[0] = (kv_turn){fork, turns[1].data, n, 1};
                }
        }
        const dci_gpu_kv_info info = twin_info(&t);
        ck_assert((info.n_resident > 0) == (pressed && info.n_missed > 0));
        ck_assert(info.n_missed == 0 || info.n_resident < info.n_missed);
        t.ops->graph_destroy(t.gpu, graph);
        places_free(&t, &p);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* A graph goes on after one of its sequences was swapped out, memory was given back and taken by others, and the sequence came back to another
 * row; and after a step that was refused for want of memory of the device or the host. */
START_TEST(a_graph_goes_on_after_swaps_and_trims)
{
        const dci_kv_config config = planned_config((size_t)_i);
        const dci_gpu_kv_config on_device =
                _i % 2 == 0 || config.contiguous != 0 ? twin_planned_for(3) : under_pressure(3, 90);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 1100, 420), other = kv_random(&config, 1100, 421);
        kv_turn turns[] = {{twin_prefill(&t, &data, 600, 0), &data, 600, 1},
                           {twin_prefill(&t, &other, 530, 0), &other, 530, 1}};
        places p = places_of(&t, 2);
        void *graph = capture_step(&t, &p, turns, 2000);
        for (size_t round = 0; round < 4; round++) {
                const int64_t swapped = turns[round % 2].sequence;
                for (size_t s = 0; s < 5; s++) {
                        turns[0].from++;
                        turns[1].from++;
                        replay_step(&t, &p, turns, graph, 2000);
                }
                ck_ok(dci_gpu_kv_swap_out(t.kv, swapped));
                ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
                twin_poison(&t);
                const int64_t third = twin_prefill(&t, &data, 90 + 200 * round, 0);
                twin_decode(&t, third, &data, 90 + 200 * round, 2);
                ck_ok(dci_gpu_kv_swap_in(t.kv, swapped));
                /* The third one makes room for the others. */
                const int64_t both[] = {turns[0].sequence, turns[1].sequence};
                if (round % 2 == 0) {
                        t.kv->config.max_device_bytes = t.kv->device_bytes - 1;
                        t.kv->host->config.max_bytes = 1;
                        size_t most[] = {600, 600};
                        ck_assert_int_eq(dci_gpu_kv_reserve(t.kv, t.stream, 2, both, most), DCI_ERR_FULL);
                }
                twin_close(&t, third);
                ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
                t.kv->config.max_device_bytes = t.kv->host->config.max_bytes = 0;
        }
        for (size_t s = 0; s < 5; s++) {
                turns[0].from++;
                turns[1].from++;
                replay_step(&t, &p, turns, graph, 2000);
        }
        t.ops->graph_destroy(t.gpu, graph);
        places_free(&t, &p);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* A layer that uses another one's lists comes after it. */
START_TEST(layers_without_their_anchor_are_refused)
{
        dci_kv_config config = twin_small(DCI_KV_SKETCH);
        config.schedule = DCI_KV_ANCHOR;
        config.anchor_first = 1;
        config.anchor_period = 2;
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 300, 700);
        const kv_turn turn = {twin_prefill(&t, &data, 200, 0), &data, 200, 1};
        void *host = kv_queries(2, 1, &turn),
             *queries = twin_send(&t, host, config.n_query_heads * config.dim_k * sizeof(float));
        twin_reserve(&t, 1, &turn);
        for (size_t l = 0; l < config.n_layers; l++)
                twin_append(&t, l, 1, &turn);
        ck_refused(dci_gpu_kv_plan(t.kv, t.stream, 2, queries, config.dim_k), DCI_ERR_INVALID,
                   "layer 2 uses the lists of layer 1, which has no plan in this step");
        twin_look(&t, 1, 1, &turn);
        twin_look(&t, 2, 1, &turn);
        twin_step_end(&t, 1, &turn);
        twin_give(&t, queries, config.n_query_heads * config.dim_k * sizeof(float));
        free(host);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

START_TEST(what_cannot_be_captured_is_refused)
{
        dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = twin_planned_for(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 300, 500);
        const kv_turn turn = {twin_prefill(&t, &data, 200, 0), &data, 200, 1}, two = {turn.sequence, &data, 200, 2};
        ck_refused(dci_gpu_kv_capture(t.kv, t.stream, 0), DCI_ERR_INVALID, "no step is open");
        ck_refused(dci_gpu_kv_replay(t.kv, t.stream, 0), DCI_ERR_INVALID, "no step is open");
        ck_refused(dci_gpu_kv_capture(NULL, t.stream, 0), DCI_ERR_INVALID, "kv is NULL");
        twin_reserve(&t, 1, &turn);
        ck_refused(dci_gpu_kv_capture(t.kv, t.stream, 200), DCI_ERR_LIMIT, "201 tokens after this step");
        ck_refused(dci_gpu_kv_replay(t.kv, t.stream, 200), DCI_ERR_LIMIT, "max_tokens is 200");
        ck_refused(dci_gpu_kv_capture(t.kv, t.stream, 5000), DCI_ERR_INVALID, "at most the config's 4096");
        twin_append(&t, 0, 1, &turn);
        ck_refused(dci_gpu_kv_capture(t.kv, t.stream, 0), DCI_ERR_INVALID, "layer 0 has got its rows");
        ck_refused(dci_gpu_kv_replay(t.kv, t.stream, 0), DCI_ERR_INVALID, "layer 0 has got its rows");
        twin_abort(&t, 1, &turn);
        twin_reserve(&t, 1, &two);
        ck_refused(dci_gpu_kv_capture(t.kv, t.stream, 0), DCI_ERR_INVALID, "has 2 tokens in this step, expected 1");
        twin_abort(&t, 1, &two);
        const kv_turn first = {twin_open(&t), &data, 0, 1};
        twin_reserve(&t, 1, &first);
        ck_refused(dci_gpu_kv_replay(t.kv, t.stream, 0), DCI_ERR_INVALID, "the prompt has not ended");
        twin_abort(&t, 1, &first);
        twin_end(&t);
        on_device.planner = DCI_GPU_PLAN_HOST;
        t = twin_begin(&config, &on_device);
        const kv_turn host = {twin_prefill(&t, &data, 200, 0), &data, 200, 1};
        twin_reserve(&t, 1, &host);
        ck_refused(dci_gpu_kv_capture(t.kv, t.stream, 0), DCI_ERR_UNSUPPORTED, "the host plans");
        twin_abort(&t, 1, &host);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Presets and configs that the device cannot plan: refused if it must, left to the host otherwise. */
START_TEST(what_cannot_be_planned_is_left_to_the_host)
{
        static const struct {
                int32_t preset, bits;
                const char *why;
        } cases[] = {{DCI_KV_TOPK, 0, "this summary"},
                     {DCI_KV_STREAMING, 0, "this choice"},
                     {DCI_KV_SKETCH, 3, "codes of 3 bits"},
                     {DCI_KV_SKETCH_VERIFY, 0, "verification by keys"},
                     {DCI_KV_ICECACHE, 8, "codes of 8 bits"},
                     {LISTS_OF(DCI_KV_ICECACHE), 0, "query_head_lists and trees"},
                     {LISTS_OF(DCI_KV_PARISKV), 0, "query_head_lists and votes"},
                     {LISTS_OF(DCI_KV_CLUSTERKV), 0, NULL},
                     {LISTS_OF(DCI_KV_QUEST), 0, NULL},
                     {DCI_KV_ICECACHE, 0, NULL},
                     {DCI_KV_PRKV, 0, NULL},
                     {DCI_KV_PARISKV, 0, NULL},
                     {DCI_KV_CLUSTERKV, 0, NULL},
                     {DCI_KV_RETROINFER, 0, NULL},
                     {DCI_KV_LOUISKV, 0, NULL},
                     {DCI_KV_SKETCH, 0, NULL},
                     {DCI_KV_SKETCH_GROUPS, 0, NULL},
                     {DCI_KV_QUEST, 0, NULL},
                     {DCI_KV_FULL, 0, NULL}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                dci_kv_config config = config_of(cases[i].preset);
                if (cases[i].bits > 0)
                        config.key_bits = cases[i].bits;
                dci_gpu_kv_config on_device = twin_planned_for(1);
                dci_context *context = test_context(1);
                dci_gpu *gpu = twin_gpu(context);
                dci_gpu_kv *kv = NULL;
                if (cases[i].why != NULL)
                        ck_refused(dci_gpu_kv_create(gpu, &config, &on_device, &kv), DCI_ERR_UNSUPPORTED, cases[i].why);
                on_device.planner = DCI_GPU_PLAN_AUTO;
                ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
                dci_gpu_kv_info info;
                ck_ok(dci_gpu_kv_info_init(&info, sizeof info));
                ck_ok(dci_gpu_kv_get_info(kv, &info));
                ck_assert_int_eq(info.planner, cases[i].why != NULL ? DCI_GPU_PLAN_HOST : DCI_GPU_PLAN_DEVICE);
                dci_gpu_kv_destroy(kv);
                on_device.planner = 9;
                ck_refused(dci_gpu_kv_create(gpu, &config, &on_device, &kv), DCI_ERR_INVALID, "planner is 9");
                dci_gpu_destroy(gpu);
                dci_context_destroy(context);
        }
}
END_TEST

/* Scores that rank are those that a tail over clusters takes. */
START_TEST(other_tails_over_clusters_are_left_to_the_host)
{
        dci_kv_config config = twin_small(DCI_KV_RETROINFER);
        config.summary = DCI_KV_SUMMARY_MINMAX;
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        dci_context *context = test_context(1);
        dci_gpu *gpu = twin_gpu(context);
        dci_gpu_kv *kv = NULL;
        ck_refused(dci_gpu_kv_create(gpu, &config, &on_device, &kv), DCI_ERR_UNSUPPORTED, "but by their means");
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
}
END_TEST

/* The host's part: what the device formed is what the host makes when it is asked, so that maintenance, files and codes that are made again
 * change no plan but where they should. */
START_TEST(the_host_makes_the_same)
{
        const dci_kv_config config = planned_config((size_t)_i);
        const dci_gpu_kv_config on_device = twin_planned_for(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 900, 600);
        const int64_t sequence = twin_prefill(&t, &data, 600, 0);
        for (size_t i = 0; i < 40; i++) {
                twin_decode(&t, sequence, &data, 600 + i, 1);
                if (i % 7 == 3)
                        ck_ok(dci_gpu_kv_maintain(t.kv, 0, NULL));
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Listed groups of every kind that the device chooses by: clusters with other summaries and other sums of scores, in parts, in small batches,
 * with tails that estimate some or all, for groups of any size; and segments. Forks, cuts and files go through chunks' borders. Loops over kinds. */
START_TEST(listed_groups_are_those_of_the_cpu)
{
        static const struct {
                int32_t preset, summary, combine;
                size_t tokens, every, most;
                double estimated; /* 0: no tail */
                size_t group;
                int32_t lists;
        } kinds[] = {{DCI_KV_CLUSTERKV, DCI_KV_SUMMARY_MINMAX, DCI_KV_COMBINE_MEAN, 4, 64, 0, 0, 2, 0},
                     {DCI_KV_CLUSTERKV, DCI_KV_SUMMARY_CUBOID, DCI_KV_COMBINE_SOFTMAX, 1, 8, 0, 0, 2, 0},
                     {DCI_KV_CLUSTERKV, DCI_KV_SUMMARY_MEAN, DCI_KV_COMBINE_SOFTMAX, 3, 24, 2, 0, 2, 0},
                     {DCI_KV_LOUISKV, DCI_KV_SUMMARY_MEAN, DCI_KV_COMBINE_MEAN, 2, 16, 0, 0, 2, 0},
                     {DCI_KV_RETROINFER, DCI_KV_SUMMARY_MEAN, DCI_KV_COMBINE_SOFTMAX, 2, 700, 0, 0, 2, 0},
                     {DCI_KV_RETROINFER, DCI_KV_SUMMARY_MEAN, DCI_KV_COMBINE_SOFTMAX, 5, 48, 0, 0.232, 4, 0},
                     {DCI_KV_RETROINFER, DCI_KV_SUMMARY_MEAN, DCI_KV_COMBINE_MEAN, 9, 40, 16, 0.01, 1, 0},
                     {DCI_KV_CLUSTERKV, DCI_KV_SUMMARY_MEAN_STD, DCI_KV_COMBINE_SOFTMAX, 4, 48, 0, 0, 3, 0},
                     {DCI_KV_CLUSTERKV, DCI_KV_SUMMARY_MEAN, DCI_KV_COMBINE_SOFTMAX, 30, 60, 0, 1.0, 5, 0},
                     {DCI_KV_LOUISKV, DCI_KV_SUMMARY_MEAN, DCI_KV_COMBINE_SOFTMAX, 4, 32, 0, 0.6, 2, 0},
                     {DCI_KV_CLUSTERKV, DCI_KV_SUMMARY_MINMAX, DCI_KV_COMBINE_EACH, 4, 64, 0, 0, 3, 1},
                     {DCI_KV_RETROINFER, DCI_KV_SUMMARY_MEAN, DCI_KV_COMBINE_EACH, 5, 48, 0, 0.232, 4, 1}};
        dci_kv_config config = twin_small(kinds[_i].preset);
        config.summary = kinds[_i].summary;
        config.combine = kinds[_i].combine;
        config.schedule = DCI_KV_EVERY_STEP;
        config.tail = kinds[_i].estimated > 0 ? DCI_KV_TAIL_SUMS : DCI_KV_TAIL_DROP;
        config.estimate_share = kinds[_i].estimated;
        config.n_query_heads = kinds[_i].group * config.n_kv_heads;
        config.query_head_lists = kinds[_i].lists;
        config.cluster_tokens = kinds[_i].tokens;
        config.cluster_every = kinds[_i].every;
        config.cluster_most = kinds[_i].most;
        const dci_gpu_kv_config on_device = twin_planned_for(3);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 2600, 700 + (uint64_t)_i), other = kv_random(&config, 2600, 800);
        const int64_t a = twin_prefill(&t, &data, 1100, 0);
        /* Before its clusters are asked for the first time. */
        const int64_t b = twin_fork(&t, a, 1090);
        twin_decode(&t, a, &data, 1100, steps(120));
        twin_decode(&t, b, &other, 1090, steps(70));
        twin_truncate(&t, b, 1090 + steps(70) - 21);
        twin_decode(&t, b, &data, 1090 + steps(70) - 21, steps(60));
        const int64_t c = twin_fork(&t, a, 1100 + steps(120) - 9);
        twin_truncate(&t, a, 700); /* the prompt's are gone */
        twin_decode(&t, c, &other, 1100 + steps(120) - 9, steps(50));
        twin_decode(&t, a, &other, 700, steps(160));
        twin_close(&t, c);
        const int64_t d = twin_prefill(&t, &other, 900, 250);
        twin_decode(&t, d, &other, 900, 20);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* Keys of the tokens from `first` on, four times as large: bf16. */
static void larger_keys(const dci_kv_config *config, const kv_data *data, size_t first)
{
        const size_t row = config->n_kv_heads * config->dim_k;
        uint16_t *keys = data->stored_keys;
        for (size_t l = 0; l < config->n_layers; l++)
                for (size_t i = (l * data->n + first) * row; i < (l + 1) * data->n * row; i++)
                        if ((keys[i] & 0x7f80) != 0)
                                keys[i] = (uint16_t)(keys[i] + 0x100);
}

/* Codes that are made again, in other frames: all of them come to the device, and a fork keeps its own. */
START_TEST(codes_that_are_made_anew)
{
        enum { N = 2000 };
        dci_kv_config config = config_of(LEARNED_OF(_i + 2));
        config.refit = 1.05;
        const dci_gpu_kv_config on_device = twin_planned_for(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 700);
        larger_keys(&config, &data, 700);
        const int64_t sequence = twin_prefill(&t, &data, 400, 0);
        kv_turn turn = {sequence, &data, 400, 100};
        for (; turn.from < 1500; turn.from += turn.n)
                twin_step(&t, 1, &turn, NULL, true);
        const int64_t fork = twin_fork(&t, sequence, 1500);
        for (turn.n = 50; turn.from < 1900; turn.from += turn.n)
                twin_step(&t, 1, &turn, NULL, true);
        twin_decode(&t, fork, &data, 1500, 3);
        size_t n_refits = 0;
        for (size_t l = 0; l < config.n_layers; l++)
                for (size_t h = 0; h < config.n_kv_heads; h++)
                        n_refits += (size_t)dci_kv_find(t.kv->host, sequence)->layers[l].heads[h].refits;
        ck_assert_uint_gt(n_refits, 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv graphs");
        TCase *laws = test_case(suite, "laws", 60);
        tcase_add_loop_test(laws, a_graph_goes_on_after_swaps_and_trims, 0, N_PLANNED);
        tcase_add_loop_test(laws, a_graph_goes_on_while_all_grows, 0, N_PLANNED);
        tcase_add_loop_test(laws, a_graph_serves_other_sequences, 0, N_PLANNED + N_PLANNED / 2);
        tcase_add_test(laws, layers_without_their_anchor_are_refused);
        tcase_add_test(laws, what_cannot_be_captured_is_refused);
        tcase_add_test(laws, what_cannot_be_planned_is_left_to_the_host);
        tcase_add_test(laws, other_tails_over_clusters_are_left_to_the_host);
        tcase_add_loop_test(laws, the_host_makes_the_same, 0, N_PLANNED);
        tcase_add_loop_test(laws, listed_groups_are_those_of_the_cpu, 0, 12);
        tcase_add_loop_test(laws, codes_that_are_made_anew, 0, 3);
        return test_main(suite);
}
