/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Segments that end where queries turn, where the device decides that and the host forms them: the host learns of the turns that the CPU's own
 * plans find, of all of them and of no others, whatever becomes of steps and sequences.
 */
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

#include <string.h>

enum { N = 1500, PROMPT = 300 };

/* Buffers and rollbacks with which segments are final at once, or wait for their end, or only the budget makes them groups. */
static const struct {
        size_t buffer, rollback;
} kinds[] = {{0, 16}, {0, 46}, {200, 16}, {8, 30}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Queries are drawn again in each step: about half of the tokens turn, in each layer others. */
static dci_kv_config louis(int kind)
{
        dci_kv_config config = twin_small(DCI_KV_LOUISKV);
        config.tau = 0.02;
        config.segment_buffer = kinds[kind].buffer;
        config.rollback = kinds[kind].rollback;
        return config;
}

/* Turns and groups of all layers, once the host has been asked; returns the turns that the layers have in all. */
static size_t same_turns(twin *t, int64_t sequence)
{
        size_t n = 0;
        ck_ok(dci_gpu_kv_maintain(t->kv, 1, &sequence));
        ck_ok(dci_kv_maintain(t->cpu, 1, &sequence));
        for (size_t l = 0; l < t->config.n_layers; l++) {
                const dci_kv_layer *a = twin_layer_of(t->kv->host, sequence, l),
                                   *b = twin_layer_of(t->cpu, sequence, l);
                ck_assert_msg(a->n_boundaries == b->n_boundaries, "layer %zu: %zu turns, %zu on the CPU", l,
                              a->n_boundaries, b->n_boundaries);
                if (a->n_boundaries > 0)
                        ck_assert_mem_eq(a->boundaries, b->boundaries, a->n_boundaries * sizeof *a->boundaries);
                ck_assert_uint_eq(a->n_grouped, b->n_grouped);
                ck_assert_uint_eq(a->n_batches, b->n_batches);
                for (size_t g = 0; g < a->n_batches; g++)
                        ck_assert_uint_eq(a->batches[g]->heads[0].n_groups, b->batches[g]->heads[0].n_groups);
                n += a->n_boundaries;
        }
        return n;
}

/* A step of so many tokens, with plans; taken back, or not. */
static void step(twin *t, int64_t sequence, const kv_data *data, size_t from, size_t n, bool aborts)
{
        const kv_turn turn = {sequence, data, from, n};
        twin_reserve(t, 1, &turn);
        for (size_t l = 0; l < t->config.n_layers; l++) {
                twin_append(t, l, 1, &turn);
                twin_look(t, l, 1, &turn);
        }
        if (aborts)
                twin_abort(t, 1, &turn);
        else
                twin_step_end(t, 1, &turn);
}

/* Loops over kinds. */
START_TEST(turns_are_those_of_the_cpu)
{
        const dci_kv_config config = louis(_i);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 90);
        const int64_t a = twin_prefill(&t, &data, PROMPT, 0);
        size_t n_differ = 0;
        for (size_t i = 0; i < 200; i++) {
                twin_decode(&t, a, &data, PROMPT + i, 1);
                n_differ += twin_layer_of(t.cpu, a, 1)->n_grouped != twin_layer_of(t.cpu, a, 2)->n_grouped;
        }
        ck_assert_uint_gt(same_turns(&t, a), 100);
        /* Layers whose queries turn at different tokens have groups of different ones. */
        ck_assert_uint_gt(n_differ, 10);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Rows and queries of a step, which are there before it is queued. */
typedef struct waiting {
        twin_rows rows[3];
        void *host[3], *queries[3];
} waiting;

static size_t query_bytes(const twin *t)
{
        return t->config.n_query_heads * t->config.dim_k * sizeof(float);
}

static waiting wait_for(twin *t, const kv_turn *turn)
{
        waiting w;
        for (size_t l = 0; l < 3; l++) {
                w.rows[l] = twin_rows_of(t, l, 1, turn);
                w.host[l] = kv_queries(l, 1, turn);
                w.queries[l] = twin_send(t, w.host[l], query_bytes(t));
        }
        return w;
}

static void queue_step(twin *t, const kv_turn *turn, const waiting *w)
{
        kv_seen seen = kv_seen_room(t->cpu, 1, turn);
        twin_reserve(t, 1, turn);
        for (size_t l = 0; l < 3; l++) {
                ck_ok(dci_gpu_kv_append(t->kv, t->stream, l, &w->rows[l].rows));
                kv_append(t->cpu, l, 1, turn);
                ck_ok(dci_gpu_kv_plan(t->kv, t->stream, l, w->queries[l], t->config.dim_k));
                kv_look_at(&seen, l, 1, turn);
        }
        ck_ok(dci_gpu_kv_step_end(t->kv, t->stream));
        kv_step_end(t->cpu, 1, turn);
        kv_seen_free(&seen);
}

/* Several steps are queued before anybody waits for one. */
START_TEST(turns_of_steps_under_way_are_waited_for)
{
        enum { AT_ONCE = 6 };
        const dci_kv_config config = louis(_i);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 96);
        const int64_t a = twin_prefill(&t, &data, PROMPT, 0);
        for (size_t i = 0; i < 90; i += AT_ONCE) {
                kv_turn turns[AT_ONCE];
                waiting w[AT_ONCE];
                for (size_t s = 0; s < AT_ONCE; s++) {
                        turns[s] = (kv_turn){a, &data, PROMPT + i + s, 1};
                        w[s] = wait_for(&t, &turns[s]);
                }
                for (size_t s = 0; s < AT_ONCE; s++)
                        queue_step(&t, &turns[s], &w[s]);
                for (size_t s = 0; s < AT_ONCE; s++)
                        for (size_t l = 0; l < 3; l++) {
                                twin_rows_free(&t, &w[s].rows[l]);
                                twin_give(&t, w[s].queries[l], query_bytes(&t));
                                free(w[s].host[l]);
                        }
        }
        ck_assert_uint_gt(same_turns(&t, a), 40);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Rows of the device are used again. */
START_TEST(turns_of_a_sequence_that_is_gone_are_gone)
{
        const dci_kv_config config = louis(0);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        for (size_t i = 0; i < 5; i++) {
                kv_data data = kv_random(&config, N, 97 + i);
                const int64_t a = twin_prefill(&t, &data, PROMPT, 0);
                twin_decode(&t, a, &data, PROMPT, 25 + 10 * i);
                ck_assert_uint_gt(same_turns(&t, a), 10);
                twin_decode(&t, a, &data, PROMPT + 25 + 10 * i, 6);
                twin_close(&t, a);
                kv_data_free(&data);
        }
        twin_end(&t);
}
END_TEST

/* Of steps that are taken back nothing is left but what they say of tokens that stay; a step of no tokens plans for the last one again. */
START_TEST(turns_of_steps_that_are_taken_back_never_were)
{
        const dci_kv_config config = louis(_i);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 91), other = kv_random(&config, N, 92);
        const int64_t a = twin_prefill(&t, &data, PROMPT, 0);
        for (size_t n = PROMPT; n < PROMPT + 60; n++) {
                step(&t, a, &other, n, n % 5, true);
                step(&t, a, n % 3 == 0 ? &other : &data, n, 1, false);
                if (n % 3 == 1)
                        same_turns(&t, a);
                if (n % 3 != 0)
                        step(&t, a, &other, n + 1, 0, n % 2 == 0);
        }
        ck_assert_uint_gt(same_turns(&t, a), 40);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* Where a sequence is cut, forked or saved, marks that the host has not asked for yet are part of it. */
START_TEST(turns_go_where_sequences_go)
{
        const dci_kv_config config = louis(_i);
        const dci_gpu_kv_config on_device = twin_planned_for(3);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 93), other = kv_random(&config, N, 94);
        const int64_t a = twin_prefill(&t, &data, PROMPT, 0);
        size_t n = PROMPT;
        for (size_t round = 0; round < 6; round++) {
                twin_decode(&t, a, &data, n, 9 + round);
                n += 9 + round;
                const int64_t b = twin_fork(&t, a, n - 2 * round);
                int64_t c = -1, d = -1;
                ck_ok(dci_gpu_kv_save(t.kv, a, n - round, scratch_path("sequence")));
                ck_ok(dci_gpu_kv_load(t.kv, scratch_path("sequence"), &c));
                ck_ok(dci_kv_save(t.cpu, a, n - round, scratch_path("other")));
                ck_ok(dci_kv_load(t.cpu, scratch_path("other"), &d));
                ck_assert_int_eq(c, d);
                twin_truncate(&t, a, n - 3);
                n -= 3;
                twin_decode(&t, a, &other, n, 4);
                n += 4;
                twin_decode(&t, b, &other, n - 1 - 2 * round, 12);
                twin_decode(&t, c, &other, n - 1 - round, 12);
                ck_assert_uint_gt(same_turns(&t, a) + same_turns(&t, b) + same_turns(&t, c), 0);
                twin_close(&t, b);
                twin_close(&t, c);
        }
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* Tokens enough for all marks' places come before the host forms anything; a step of more tokens than there are places, taken back or not. */
START_TEST(no_mark_is_lost_however_late_the_host_asks)
{
        enum { LONG = 1340, DECODED = DCI_GPU_KV_BOUNDARIES + 40, PIECE = DCI_GPU_KV_BOUNDARIES + 1 };
        dci_kv_config config = kv_config(DCI_KV_LOUISKV, 2, 1, 1, 64);
        config.dtype = DCI_BF16;
        config.dense_layers = 0;
        config.page_tokens = 8;
        config.rollback = config.window = 16;
        config.budget = 1300;
        config.segment_buffer = 1300;
        config.tau = 0.02;
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, LONG + DECODED + 2 * PIECE + 40, 95);
        const int64_t a = twin_prefill(&t, &data, LONG, 0);
        twin_decode(&t, a, &data, LONG, DECODED);
        const dci_kv_layer *host = twin_layer_of(t.kv->host, a, 0), *cpu = twin_layer_of(t.cpu, a, 0);
        ck_assert_uint_eq(cpu->n_batches, 1);
        ck_assert_uint_gt(host->n_boundaries, DCI_GPU_KV_BOUNDARIES / 4);
        ck_assert_uint_lt(host->n_boundaries, cpu->n_boundaries);
        step(&t, a, &data, LONG + DECODED, 0, false);
        step(&t, a, &data, LONG + DECODED, PIECE, true);
        step(&t, a, &data, LONG + DECODED, PIECE - 1, true);
        step(&t, a, &data, LONG + DECODED, PIECE, false);
        twin_decode(&t, a, &data, LONG + DECODED + PIECE, 20);
        ck_assert_uint_gt(same_turns(&t, a), DECODED / 2);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv turns");
        TCase *laws = test_case_with(suite, "laws", 60, scratch_open, scratch_close);
        tcase_add_loop_test(laws, turns_are_those_of_the_cpu, 0, N_KINDS);
        tcase_add_loop_test(laws, turns_of_steps_under_way_are_waited_for, 0, N_KINDS);
        tcase_add_test(laws, turns_of_a_sequence_that_is_gone_are_gone);
        tcase_add_loop_test(laws, turns_of_steps_that_are_taken_back_never_were, 0, N_KINDS);
        tcase_add_loop_test(laws, turns_go_where_sequences_go, 0, N_KINDS);
        tcase_add_test(laws, no_mark_is_lost_however_late_the_host_asks);
        return test_main(suite);
}
