/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* One KV cache used by several threads, with prompts' work concurrent with it. Run under tsan, too. */
#include "tests/common.h"

#include <pthread.h>
#include <string.h>

#include "tests/kv_fixture.h"

enum { THREADS = 4, ROUNDS = 3, PROMPT = 150, STEPS = 24, N = PROMPT + 2 * STEPS };

/* What one thread saw: outputs of all its steps, for itself and for its fork. */
typedef struct part {
        dci_kv *kv;
        const kv_data *data;
        float *outs; /* [round][step][2] */
        size_t floats;
        const char *complaint;
        pthread_t thread;
} part;

static dci_status append(dci_kv *kv, size_t layer, const kv_turn *turn)
{
        const kv_data *d = turn->data;
        const size_t first = (layer * d->n + turn->from) * d->n_kv_heads, es = dci_dtype_size(d->dtype);
        dci_kv_rows rows;
        dci_kv_rows_init(&rows, sizeof rows);
        rows.keys = (const char *)d->stored_keys + first * d->dim_k * es;
        rows.values = (const char *)d->stored_values + first * d->dim_v * es;
        return dci_kv_append(kv, layer, 1, &turn->sequence, &turn->n, &rows);
}

#define OR_COMPLAIN(call)                                                                                              \
        do {                                                                                                           \
                if ((call) != DCI_OK) {                                                                                \
                        p->complaint = #call;                                                                          \
                        return;                                                                                        \
                }                                                                                                      \
        } while (0)

/* The prompt; its work goes on while other layers and threads do theirs. */
static void prefill(part *p, int64_t sequence)
{
        const kv_turn turn = {sequence, p->data, 0, PROMPT};
        const size_t n = PROMPT;
        OR_COMPLAIN(dci_kv_reserve(p->kv, 1, &sequence, &n));
        for (size_t layer = 0; layer < p->data->n_layers; layer++) {
                OR_COMPLAIN(append(p->kv, layer, &turn));
                OR_COMPLAIN(dci_kv_end_prompt(p->kv, layer, sequence, 40, kv_query(p->data, layer, PROMPT - 40, 0),
                                              p->data->dim_k));
        }
        OR_COMPLAIN(dci_kv_step_end(p->kv, 1, &sequence));
}

/* One token; outputs of all layers. */
static void decode(part *p, dci_kv_plan *plan, int64_t sequence, size_t token, float *out)
{
        const kv_data *d = p->data;
        const kv_turn turn = {sequence, d, token, 1};
        OR_COMPLAIN(dci_kv_reserve(p->kv, 1, &sequence, NULL));
        for (size_t layer = 0; layer < d->n_layers; layer++) {
                const float *queries = kv_query(d, layer, token, 0);
                OR_COMPLAIN(append(p->kv, layer, &turn));
                OR_COMPLAIN(dci_kv_plan_make(p->kv, layer, 1, &sequence, queries, d->dim_k, plan));
                OR_COMPLAIN(dci_kv_attend(p->kv, layer, 1, &sequence, queries, d->dim_k, plan,
                                          out + layer * d->n_kv_heads * d->group * d->dim_v, d->dim_v, NULL));
        }
        OR_COMPLAIN(dci_kv_step_end(p->kv, 1, &sequence));
        OR_COMPLAIN(dci_kv_maintain(p->kv, 1, &sequence));
}

/* Opens, reads a prompt, decodes; forks, decodes with both; truncates; closes. */
static void live(part *p, dci_kv_plan *plan, float *outs)
{
        int64_t sequence, fork;
        OR_COMPLAIN(dci_kv_open(p->kv, &sequence));
        prefill(p, sequence);
        for (size_t s = 0; s < STEPS && p->complaint == NULL; s++) {
                if (s == STEPS / 2)
                        OR_COMPLAIN(dci_kv_truncate(p->kv, sequence, PROMPT + s - 3));
                for (size_t back = s == STEPS / 2 ? 3 : 0; back > 0; back--)
                        decode(p, plan, sequence, PROMPT + s - back, outs + s * p->floats);
                decode(p, plan, sequence, PROMPT + s, outs + s * p->floats);
        }
        if (p->complaint != NULL)
                return;
        OR_COMPLAIN(dci_kv_fork(p->kv, sequence, PROMPT - 10, &fork));
        for (size_t s = STEPS; s < 2 * STEPS && p->complaint == NULL; s++) {
                decode(p, plan, sequence, PROMPT + s, outs + s * p->floats);
                decode(p, plan, fork, PROMPT - 10 + s, outs + (STEPS + s) * p->floats);
                dci_kv_info info;
                dci_kv_info_init(&info, sizeof info);
                OR_COMPLAIN(dci_kv_get_info(p->kv, &info));
                if (s % 8 == 0) /* others are in the middle of steps and prompts */
                        OR_COMPLAIN(dci_kv_check(p->kv, DCI_CHECK_FULL, NULL));
        }
        OR_COMPLAIN(dci_kv_close(p->kv, sequence));
        OR_COMPLAIN(dci_kv_close(p->kv, fork));
}

static void *run(void *arg)
{
        part *p = arg;
        dci_kv_plan plan;
        dci_kv_plan_init(&plan, sizeof plan);
        if (dci_kv_plan_create(p->kv, 1, &plan) != DCI_OK)
                p->complaint = "plan_create";
        for (size_t round = 0; round < ROUNDS && p->complaint == NULL; round++)
                live(p, &plan, p->outs + round * 3 * STEPS * p->floats);
        dci_kv_plan_destroy(p->kv, &plan);
        return NULL;
}

static const int32_t presets[] = {DCI_KV_SKETCH_LOWBIT, DCI_KV_QUEST,    DCI_KV_SNAPKV,
                                  DCI_KV_SKETCH_SUMS,   DCI_KV_ICECACHE, DCI_KV_RETROINFER,
                                  DCI_KV_CLUSTERKV,     DCI_KV_LOUISKV,  DCI_KV_PRKV};

/* Loops over presets. */
START_TEST(threads_with_sequences_of_their_own_see_what_one_would)
{
        dci_context *context = test_context(3);
        const dci_kv_config config = kv_small(presets[_i]);
        kv_data data[THREADS];
        part parts[2][THREADS];
        memset(parts, 0, sizeof parts);
        for (size_t way = 0; way < 2; way++) {
                dci_kv *kv = kv_create(context, &config);
                for (size_t t = 0; t < THREADS; t++) {
                        part *p = &parts[way][t];
                        if (way == 0)
                                data[t] = kv_random(&config, N, 120 + t);
                        p->kv = kv;
                        p->data = &data[t];
                        p->floats = config.n_layers * config.n_query_heads * config.dim_k;
                        p->outs = calloc((size_t)ROUNDS * 3 * STEPS * p->floats, sizeof *p->outs);
                        if (way == 0)
                                run(p);
                        else
                                ck_assert_int_eq(pthread_create(&p->thread, NULL, run, p), 0);
                }
                for (size_t t = 0; t < THREADS && way == 1; t++)
                        pthread_join(parts[1][t].thread, NULL);
                const dci_kv_info info = kv_info(kv);
                ck_assert_uint_eq(info.n_free_blocks, info.n_blocks);
                ck_assert_uint_eq(info.n_sequences, 0);
                dci_kv_destroy(kv);
        }
        for (size_t t = 0; t < THREADS; t++) {
                const part *alone = &parts[0][t], *shared = &parts[1][t];
                ck_assert_msg(alone->complaint == NULL, "%s", alone->complaint);
                ck_assert_msg(shared->complaint == NULL, "%s", shared->complaint);
                ck_assert_mem_eq(alone->outs, shared->outs, (size_t)ROUNDS * 3 * STEPS * alone->floats * sizeof(float));
                test_free(alone->outs, shared->outs);
                kv_data_free(&data[t]);
        }
        dci_context_destroy(context);
}
END_TEST

/* Prompts of many sequences are worked on while others are closed, aborted and destroyed under them. */
START_TEST(prompts_under_way_may_be_given_up)
{
        dci_context *context = test_context(2);
        const dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        kv_data data = kv_random(&config, 1200, 130);
        for (size_t round = 0; round < 6; round++) {
                dci_kv *kv = kv_create(context, &config);
                for (size_t s = 0; s < 5; s++) {
                        const kv_turn turn = {kv_open(kv), &data, 0, 1000 + s};
                        kv_reserve(kv, 1, &turn);
                        for (size_t layer = 0; layer < 2; layer++) {
                                kv_append(kv, layer, 1, &turn);
                                kv_prompt(kv, layer, turn.sequence, &data, turn.n);
                        }
                        if (s % 3 == 0)
                                ck_ok(dci_kv_step_abort(kv, 1, &turn.sequence));
                        else
                                kv_step_end(kv, 1, &turn);
                        if (s % 3 == 1)
                                ck_ok(dci_kv_close(kv, turn.sequence));
                }
                if (round % 2 == 0)
                        ck_ok(dci_kv_wait(kv, -1));
                dci_kv_destroy(kv);
        }
        kv_data_free(&data);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv threads");
        TCase *tcase = test_case(suite, "threads", 60);
        tcase_add_loop_test(tcase, threads_with_sequences_of_their_own_see_what_one_would, 0, COUNT(presets));
        tcase_add_test(tcase, prompts_under_way_may_be_given_up);
        return test_main(suite);
}
