/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: an allocation that fails is reported, no byte stays behind, every sequence is as it was, and the call made again gives
 * what it would have given. */
#include "tests/common.h"

#include <string.h>

#include "dci/check.h"
#include "kv/transform.h"
#include "tests/kv_fixture.h"
#include "tests/scratch.h"

enum { PROMPT = 140, STEPS = 12, N = PROMPT + 40, LOOKS = 40, MOST = 8 };

/* What loops go over. */
static const struct {
        int32_t preset, summary, n_threads, schedule, query_head_lists;
} kinds[] = {{DCI_KV_SKETCH_LOWBIT, 0, 1, 0, 0},
             {DCI_KV_SKETCH_SUMS, DCI_KV_SUMMARY_LEARNED, 1, 0, 0},
             {DCI_KV_SNAPKV, 0, 1, 0, 0},
             {DCI_KV_ARKVALE, 0, 1, 0, 0},
             {DCI_KV_TOPK, 0, 1, 0, 0},
             {DCI_KV_SKETCH_LOWBIT, 0, 2, 0, 0},
             {DCI_KV_ICECACHE, 0, 1, 0, 0},
             {DCI_KV_SKETCH_GROUPS, 0, 1, 0, 0},
             {DCI_KV_SKETCH_LOWBIT, 0, 1, DCI_KV_BOUNDARY, 0},
             {DCI_KV_FREEKV, 0, 1, 0, 0},
             {DCI_KV_QUEST, 0, 2, DCI_KV_ANCHOR, 0},
             {DCI_KV_ICECACHE, 0, 1, DCI_KV_ANCHOR, 0},
             {DCI_KV_CLUSTERKV, 0, 1, 0, 0},
             {DCI_KV_RETROINFER, 0, 2, 0, 0},
             {DCI_KV_LOUISKV, 0, 2, 0, 0},
             {DCI_KV_PRKV, 0, 2, 0, 0},
             {DCI_KV_CLUSTERKV, 0, 1, DCI_KV_AHEAD, 1},
             {DCI_KV_SKETCH_LOWBIT, 0, 2, 0, 1},
             {DCI_KV_PARISKV, 0, 1, 0, 0},
             {DCI_KV_ICECACHE, 0, 2, 0, 0}};

/* A life, and what outputs were where memory does not end. */
typedef struct life {
        dci_context *context;
        const dci_kv_config *config;
        const kv_data *data;
        dci_kv *kv;
        int64_t sequences[MOST]; /* that are open */
        size_t n_sequences;
        size_t tokens[MOST];
        dci_kv_plan plan;
        float *outs; /* [look][...] */
        const float *wanted;
        size_t n_looks, failures;
} life;

static void *born(dci_context *context, const void *arg)
{
        life *l = test_copy(arg, sizeof *l);
        l->context = context;
        return l;
}

static bool failed(life *l, dci_status status, const char *call)
{
        return test_failed_once(status, DCI_ERR_MEMORY, &l->failures, call);
}

/* What there is to know of all sequences, without allocating. */
typedef struct figures {
        dci_kv_sequence_info of[MOST];
        size_t n_sequences, in_use, summary_bytes;
} figures;

static figures figures_of(const life *l)
{
        figures f;
        memset(&f, 0, sizeof f);
        if (l->kv == NULL)
                return f;
        const dci_kv_info info = kv_info(l->kv);
        f.n_sequences = info.n_sequences;
        f.in_use = info.n_blocks - info.n_free_blocks;
        for (size_t i = 0; i < l->n_sequences; i++)
                f.of[i] = kv_sequence_info(l->kv, l->sequences[i]);
        return f;
}

/* Calls until it succeeds; after a failure everything is as before. */
#define TRY(call)                                                                                                      \
        do {                                                                                                           \
                const figures before = figures_of(l);                                                                  \
                while (failed(l, call, #call)) {                                                                       \
                        const figures after = figures_of(l);                                                           \
                        ck_assert_msg(memcmp(&before, &after, sizeof after) == 0, "%s has left a trace", #call);       \
                }                                                                                                      \
        } while (0)

static void add_sequence(life *l, int64_t sequence, size_t tokens)
{
        ck_assert_uint_lt(l->n_sequences, MOST);
        l->tokens[l->n_sequences] = tokens;
        l->sequences[l->n_sequences++] = sequence;
}

static dci_status append(life *l, size_t layer, size_t from, size_t n)
{
        const kv_data *d = l->data;
        const size_t first = (layer * d->n + from) * d->n_kv_heads, es = dci_dtype_size(d->dtype);
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = (const char *)d->stored_keys + first * d->dim_k * es;
        rows.values = (const char *)d->stored_values + first * d->dim_v * es;
        return dci_kv_append(l->kv, layer, 1, &l->sequences[0], &n, &rows);
}

static void prefill(life *l)
{
        const size_t n = PROMPT;
        TRY(dci_kv_reserve(l->kv, 1, &l->sequences[0], &n));
        for (size_t layer = 0; layer < l->config->n_layers; layer++) {
                TRY(append(l, layer, 0, n));
                TRY(dci_kv_end_prompt(l->kv, layer, l->sequences[0], 20, kv_query(l->data, layer, n - 20, 0),
                                      l->data->dim_k));
        }
        TRY(dci_kv_step_end(l->kv, 1, &l->sequences[0]));
        TRY(dci_kv_wait(l->kv, -1));
        l->tokens[0] = n;
}

/* One token for all sequences; then groups are formed. */
static void step(life *l)
{
        kv_turn turns[MOST];
        const size_t floats = l->n_sequences * l->config->n_query_heads * l->data->dim_v;
        for (size_t i = 0; i < l->n_sequences; i++)
                turns[i] = (kv_turn){l->sequences[i], l->data, l->tokens[i]++, 1};
        TRY(dci_kv_reserve(l->kv, l->n_sequences, l->sequences, NULL));
        for (size_t layer = 0; layer < l->config->n_layers; layer++) {
                float *out = l->outs + l->n_looks * MOST * floats / l->n_sequences;
                void *queries = kv_queries(layer, l->n_sequences, turns);
                kv_append(l->kv, layer, l->n_sequences, turns);
                TRY(dci_kv_plan_make(l->kv, layer, l->n_sequences, l->sequences, queries, l->data->dim_k, &l->plan));
                TRY(dci_kv_attend(l->kv, layer, l->n_sequences, l->sequences, queries, l->data->dim_k, &l->plan, out,
                                  l->data->dim_v, NULL));
                if (l->wanted != NULL)
                        ck_assert_mem_eq(out, l->wanted + (out - l->outs), floats * sizeof *out);
                free(queries);
                test_hold(l->n_looks++ < LOOKS);
        }
        TRY(dci_kv_step_end(l->kv, l->n_sequences, l->sequences));
        TRY(dci_kv_maintain(l->kv, l->n_sequences, l->sequences));
}

/* A life from its beginning to its end. */
static size_t live(void *prepared)
{
        life *l = prepared;
        int64_t sequence;
        dci_kv *kv = NULL;
        const char *path = scratch_path("sequence");
        while (failed(l, dci_kv_create(l->context, l->config, &kv), "create"))
                ck_assert_ptr_null(kv);
        l->kv = kv;
        ck_ok(dci_kv_plan_init(&l->plan, sizeof l->plan));
        TRY(dci_kv_plan_create(l->kv, 3, &l->plan));
        TRY(dci_kv_open(l->kv, &sequence));
        add_sequence(l, sequence, 0);
        prefill(l);
        for (size_t s = 0; s < STEPS; s++)
                step(l);
        TRY(dci_kv_fork(l->kv, l->sequences[0], PROMPT - 13, &sequence));
        add_sequence(l, sequence, PROMPT - 13);
        step(l);
        TRY(dci_kv_truncate(l->kv, l->sequences[0], PROMPT + 3));
        l->tokens[0] = PROMPT + 3;
        TRY(dci_kv_save(l->kv, l->sequences[0], PROMPT, path));
        TRY(dci_kv_load(l->kv, path, &sequence));
        add_sequence(l, sequence, PROMPT);
        for (size_t s = 0; s < 5; s++)
                step(l);
        TRY(dci_kv_close(l->kv, l->sequences[0]));
        l->sequences[0] = l->sequences[--l->n_sequences];
        l->tokens[0] = l->tokens[l->n_sequences];
        step(l);
        dci_kv_plan_destroy(l->kv, &l->plan);
        dci_kv_destroy(l->kv);
        const size_t failures = l->failures;
        free(l);
        return failures;
}

/* Loops over kinds. */
static void climb(int which, test_ladder ladder)
{
        dci_kv_config config = kv_small(kinds[which].preset);
        config.summary = kinds[which].summary;
        config.schedule = kinds[which].schedule;
        config.query_head_lists = kinds[which].query_head_lists;
        if (config.preset == DCI_KV_ICECACHE && config.schedule == DCI_KV_ANCHOR) { /* a tree with levels */
                config.tree_promotion = 0.25;
                config.tree_promotion_subseq = 0.5;
                config.tree_simple_indices = 2;
        }
        if (config.preset == DCI_KV_ICECACHE && kinds[which].n_threads == 2)
                config.tree_keys = DCI_KV_TREE_CODES;
        config.anchor_first = 0;
        config.tau = 0.1;
        config.foreground = 1;
        config.period = 5;
        if (config.preset == DCI_KV_CLUSTERKV || config.preset == DCI_KV_RETROINFER) {
                /* Clusters are made early of 5 tokens, and again as soon as there are 8. */
                config.budget = 40;
                config.cluster_tokens = 2;
                config.cluster_every = 8;
        }
        kv_data data = kv_random(&config, N, 100);
        dci_context *context = test_context(1);
        const size_t floats = (size_t)LOOKS * MOST * config.n_query_heads * config.dim_k;
        life first = {.config = &config, .data = &data, .outs = calloc(floats, sizeof(float))};
        ck_assert_uint_eq(live(born(context, &first)), 0);
        life l = {.config = &config, .data = &data, .outs = calloc(floats, sizeof(float)), .wanted = first.outs};
        const size_t rungs = ladder(kinds[which].n_threads, born, live, &l);
        ck_assert_msg(rungs >= 20, "%zu rungs", rungs);
        test_free(first.outs, l.outs);
        dci_context_destroy(context);
        kv_data_free(&data);
}

TEST_LADDERS(climb)

/* Loops over presets. Everything a step needs was taken by its reservation. */
START_TEST(steps_allocate_nothing_after_their_reservation)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        dci_kv_config config = kv_config(kv_presets[_i], 1, 2, 3, TRACE_DIM);
        if (kv_presets[_i] == DCI_KV_SKETCH)
                config.schedule = DCI_KV_BOUNDARY;
        kv_data data = kv_trace(&config, 2100);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequences[] = {kv_begin(kv, &data, 2000), kv_begin(kv, &data, 1500)};
        dci_kv_plan plan;
        float *out = malloc(2 * 6 * TRACE_DIM * sizeof *out);
        plan = kv_plan(kv, 2);
        for (size_t t = 0; t < 90; t++) {
                const kv_turn turns[] = {{sequences[0], &data, 2000 + t, 1}, {sequences[1], &data, 1500 + t, 1}};
                kv_reserve(kv, 2, turns);
                const size_t calls = atomic_load(&memory.calls);
                float *queries = kv_queries(0, 2, turns);
                kv_append(kv, 0, 2, turns);
                ck_ok(dci_kv_plan_make(kv, 0, 2, sequences, queries, TRACE_DIM, &plan));
                ck_ok(dci_kv_attend(kv, 0, 2, sequences, queries, TRACE_DIM, &plan, out, TRACE_DIM, NULL));
                ck_ok(dci_kv_attend(kv, 0, 2, sequences, queries, TRACE_DIM, NULL, out, TRACE_DIM, NULL));
                kv_step_end(kv, 2, turns);
                ck_assert_uint_eq(atomic_load(&memory.calls), calls);
                ck_ok(dci_kv_maintain(kv, 2, sequences));
                free(queries);
        }
        free(out);
        dci_kv_plan_destroy(kv, &plan);
        kv_end(kv, &data);
        dci_context_destroy(context);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
}
END_TEST

/* Loops over presets. info.bytes is what the allocator gave, but for what the context itself takes. */
START_TEST(the_bytes_of_a_cache_are_those_of_its_memory)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, 420, 101);
        const size_t none = atomic_load(&memory.live_bytes);
        dci_kv *kv = kv_create(context, &config);
#define BYTES_AGREE() ck_assert_uint_eq(kv_info(kv).bytes, atomic_load(&memory.live_bytes) - none)
        BYTES_AGREE();
        const int64_t sequence = kv_begin(kv, &data, 300);
        BYTES_AGREE();
        kv_decode_all(kv, sequence, &data, 300, 60);
        BYTES_AGREE();
        int64_t fork;
        ck_ok(dci_kv_fork(kv, sequence, 290, &fork));
        kv_decode_all(kv, fork, &data, 290, 60);
        BYTES_AGREE();
        ck_ok(dci_kv_truncate(kv, sequence, 100));
        BYTES_AGREE();
        ck_ok(dci_kv_close(kv, sequence));
        ck_ok(dci_kv_close(kv, fork));
        BYTES_AGREE();
        const dci_kv_info info = kv_info(kv);
        ck_assert_uint_eq(info.summary_bytes, 0);
        ck_assert_uint_eq(info.n_free_blocks, info.n_blocks);
        /* Another life like that takes no more: nothing stays behind but what is used again. */
        for (size_t round = 0; round < 3; round++) {
                const int64_t again = kv_begin(kv, &data, 300);
                kv_decode_all(kv, again, &data, 300, 60);
                ck_ok(dci_kv_fork(kv, again, 290, &fork));
                kv_decode_all(kv, fork, &data, 290, 60);
                ck_ok(dci_kv_close(kv, again));
                ck_ok(dci_kv_close(kv, fork));
                ck_assert_uint_eq(kv_info(kv).bytes, info.bytes);
        }
        kv_end(kv, &data);
        dci_context_destroy(context);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
}
END_TEST

/* The cache keeps its context alive. */
START_TEST(a_cache_outlives_its_context)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        kv_data data = kv_random(&config, 320, 102);
        dci_kv *kv = kv_create(context, &config);
        dci_context_destroy(context);
        kv_decode_all(kv, kv_begin(kv, &data, 300), &data, 300, 20);
        dci_kv_destroy(kv);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
        kv_data_free(&data);
}
END_TEST

/* Owners of transforms that no codes were made with are one each. */
static void empty_frames_are_not_shared(const dci_kv *kv)
{
        for (size_t s = 0; s < kv->n_sequences; s++)
                for (size_t i = 0; i < kv->config.n_layers * kv->config.n_kv_heads; i++) {
                        const dci_kv_head *head =
                                &kv->sequences[s]->layers[0].heads[i]; /* of all layers, side by side */
                        dci_kv_transform *const frames[] = {head->keys, head->values};
                        for (size_t f = 0; f < COUNT(frames); f++)
                                ck_assert(frames[f] == NULL || frames[f]->coder.dim != 0 ||
                                          atomic_load(&frames[f]->refs) == 1);
                }
}

/* Loops over numbers of threads. First groups that dci_kv_maintain forms, of a prompt without any, whose memory ends somewhere. */
START_TEST(a_failed_maintenance_leaves_nothing_that_two_would_fill_in)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, _i);
        dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        config.budget = 1200; /* the reservation forms none */
        kv_data data = kv_random(&config, 560, 103), others = kv_random(&config, 560, 104);
        dci_status status = DCI_ERR_MEMORY;
        for (size_t nth = 1; status != DCI_OK; nth++) {
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, 20);
                int64_t fork = -1;
                kv_feed(kv, 1, &(kv_turn){sequence, &data, 20, 500});
                atomic_store(&memory.fail_at, atomic_load(&memory.calls) + nth);
                status = dci_kv_maintain(kv, 1, &sequence);
                ck_assert(status == DCI_OK || status == DCI_ERR_MEMORY);
                atomic_store(&memory.fail_at, 0);
                ck_ok(dci_kv_fork(kv, sequence, 500, &fork));
                empty_frames_are_not_shared(kv);
                kv_feed(kv, 1, &(kv_turn){fork, &others, 500, 60});
                ck_ok(dci_kv_maintain(kv, 0, NULL));
                ck_ok(dci_kv_check(kv, DCI_CHECK_FULL, NULL));
                dci_kv_destroy(kv);
        }
        dci_context_destroy(context);
        kv_data_free(&data);
        kv_data_free(&others);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv faults");
        TCase *memory = test_case_with(suite, "memory", 120, scratch_open, scratch_close);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 0, COUNT(kinds));
        tcase_add_loop_test(memory, memory_may_be_short_from_any_allocation_on, 0, COUNT(kinds));
        tcase_add_loop_test(memory, steps_allocate_nothing_after_their_reservation, 0, KV_N_KINDS);
        tcase_add_loop_test(memory, the_bytes_of_a_cache_are_those_of_its_memory, 0, KV_N_KINDS);
        tcase_add_test(memory, a_cache_outlives_its_context);
        tcase_add_loop_test(memory, a_failed_maintenance_leaves_nothing_that_two_would_fill_in, 1, 3);
        return test_main(suite);
}
