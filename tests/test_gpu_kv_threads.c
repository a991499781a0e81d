/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A KV cache on a device from several threads: calls are served one after another; caches on one device work side by side. */
#include "tests/gpu_kv_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "tests/gpu_late.h"

enum { PROMPT = 200, STEPS = 30, THREADS = 3 };

/* Polls, asks, opens, forks and closes sequences of its own while another thread steps. */
typedef struct visitor {
        dci_gpu_kv *kv;
        int64_t known;
        size_t rounds;
        atomic_bool *over;
} visitor;

static void *visit(void *arg)
{
        visitor *v = arg;
        while (!atomic_load(v->over)) {
                int64_t own = -1;
                int32_t bad = 1;
                dci_gpu_kv_info info = {.struct_size = sizeof info};
                ck_ok(dci_gpu_kv_open(v->kv, &own));
                ck_ok(dci_gpu_poll(v->kv, 1, &v->known, &bad));
                ck_assert_int_eq(bad, 0);
                ck_ok(dci_gpu_kv_get_info(v->kv, &info));
                ck_ok(dci_gpu_kv_truncate(v->kv, own, 0));
                ck_ok(dci_gpu_kv_maintain(v->kv, 1, &own));
                ck_ok(dci_gpu_kv_sync(v->kv));
                ck_ok(dci_gpu_kv_close(v->kv, own));
                v->rounds++;
        }
        return NULL;
}

/* Loops over presets; the later ones have some pages on the device, so that others leave, the last ones contiguous copies. */
static const int32_t presets[] = {DCI_KV_SKETCH_LOWBIT, DCI_KV_ICECACHE, DCI_KV_QUEST,
                                  DCI_KV_LOUISKV,       DCI_KV_ICECACHE, DCI_KV_CLUSTERKV};
enum { RESIDENT_FROM = 2, CONTIGUOUS_FROM = 4 };

START_TEST(others_may_call_while_one_steps)
{
        dci_kv_config config = twin_small(presets[_i]);
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.max_sequences = 1 + THREADS;
        config.contiguous = _i >= CONTIGUOUS_FROM;
        if (_i >= RESIDENT_FROM && _i < CONTIGUOUS_FROM)
                on_device.device_resident_bytes = (size_t)8 * config.page_tokens * config.n_kv_heads * config.dim_k * 8;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, PROMPT + STEPS, 81);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 64);
        atomic_bool over;
        atomic_init(&over, false);
        pthread_t threads[THREADS];
        visitor visitors[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
                visitors[i] = (visitor){t.kv, sequence, 0, &over};
                ck_assert_int_eq(pthread_create(&threads[i], NULL, visit, &visitors[i]), 0);
        }
        for (size_t s = 0; s < STEPS; s++)
                twin_step(&t, 1, &(kv_turn){sequence, &data, PROMPT + s, 1}, NULL, true);
        atomic_store(&over, true);
        for (size_t i = 0; i < THREADS; i++)
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* One life on a device that others use, too. */
typedef struct neighbour {
        dci_context *context;
        int32_t preset;
} neighbour;

static void *live(void *arg)
{
        const neighbour *n = arg;
        const dci_kv_config config = twin_small(n->preset);
        const dci_gpu_kv_config on_device = twin_on_device();
        twin t = twin_begin_with(n->context, &config, &on_device);
        kv_data data = kv_random(&config, PROMPT + STEPS, 82);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        twin_decode(&t, sequence, &data, PROMPT, STEPS);
        kv_data_free(&data);
        twin_end(&t);
        return NULL;
}

START_TEST(caches_of_one_context_work_side_by_side)
{
        static const int32_t neighbourly[THREADS] = {DCI_KV_SKETCH, DCI_KV_QUEST, DCI_KV_FULL};
        dci_context *context = test_context(2);
        pthread_t threads[THREADS];
        neighbour neighbours[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
                neighbours[i] = (neighbour){context, neighbourly[i]};
                ck_assert_int_eq(pthread_create(&threads[i], NULL, live, &neighbours[i]), 0);
        }
        for (size_t i = 0; i < THREADS; i++)
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        dci_context_destroy(context);
}
END_TEST

/* --- rows that arrive ---------------------------------------------------------------------------------------------- */

enum { TOKENS = 600, LATER = 6 };

/* Appends tokens [from, from + n) of all layers, and ends the prompt, or plans and attends. */
static void take_step(dci_gpu_kv *kv, const kv_data *d, int64_t id, size_t from, size_t n, float *out)
{
        const size_t row = d->n_kv_heads * d->dim_k * dci_dtype_size(d->dtype), heads = d->n_kv_heads * d->group;
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        ck_ok(dci_gpu_kv_reserve(kv, NULL, 1, &id, &n));
        for (size_t layer = 0; layer < d->n_layers; layer++) {
                rows.keys = (const char *)d->stored_keys + (layer * d->n + from) * row;
                rows.values = (const char *)d->stored_values + (layer * d->n + from) * row;
                ck_ok(dci_gpu_kv_append(kv, NULL, layer, &rows));
                const void *queries = kv_query(d, layer, from + n - (out == NULL ? KV_OBSERVED : 1), 0);
                if (out == NULL) {
                        ck_ok(dci_gpu_kv_end_prompt(kv, NULL, layer, id, KV_OBSERVED, queries, d->dim_k));
                        continue;
                }
                ck_ok(dci_gpu_kv_plan(kv, NULL, layer, queries, d->dim_k));
                ck_ok(dci_gpu_kv_attend(kv, NULL, layer, queries, d->dim_k, out + layer * heads * d->dim_k, d->dim_k,
                                        NULL));
        }
}

static size_t count_open(dci_gpu_kv *kv, int64_t id)
{
        size_t n = 0;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                n += atomic_load(&twin_layer_of(kv->host, id, l)->prompt) == DCI_KV_PROMPT_OPEN;
        return n;
}

/* A prompt and some tokens. late: the device does nothing before it is waited for, and then only on its own stream, not in a call. */
static float *live_on(const dci_kv_config *config, const kv_data *data, bool late, size_t *out_n)
{
        dci_gpu_config host;
        dci_gpu *gpu = NULL;
        dci_gpu_kv *kv = NULL;
        int64_t id = -1;
        dci_context *context = test_context(4);
        ck_ok(dci_gpu_config_init(&host, sizeof host));
        host.device = DCI_GPU_HOST;
        ck_ok(dci_gpu_create(context, &host, &gpu));
        if (late)
                late_become(gpu);
        ck_ok(dci_gpu_kv_create(gpu, config, NULL, &kv));
        ck_ok(dci_gpu_kv_open(kv, &id));
        const size_t floats = config->n_layers * config->n_query_heads * config->dim_k;
        float *out = calloc(LATER * floats, sizeof *out);
        take_step(kv, data, id, 0, TOKENS, NULL);
        if (late) {
                ck_assert_uint_eq(count_open(kv, id), config->n_layers);
                ck_ok(gpu->ops->stream_wait(gpu, kv->side));
                while (!config->foreground && count_open(kv, id) > 0)
                        sched_yield();
                ck_assert_uint_eq(count_open(kv, id), config->foreground ? config->n_layers : 0);
        }
        ck_ok(dci_gpu_kv_step_end(kv, NULL));
        ck_assert_uint_eq(count_open(kv, id), 0);
        for (size_t i = 0; i < LATER; i++) {
                take_step(kv, data, id, TOKENS + i, 1, out + i * floats);
                ck_ok(dci_gpu_kv_step_end(kv, NULL));
        }
        ck_ok(dci_gpu_kv_sync(kv));
        dci_gpu_kv_destroy(kv);
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
        *out_n = LATER * floats;
        return out;
}

static const int32_t arriving[] = {DCI_KV_ICECACHE, KV_LEARNED, DCI_KV_SNAPKV, DCI_KV_PRKV};

/* Loops over what the host builds, and whether calls do it. */
START_TEST(a_prompt_is_handed_over_as_its_rows_arrive)
{
        const int32_t kind = arriving[_i / 2];
        dci_kv_config config = twin_small(kind == KV_LEARNED ? DCI_KV_SKETCH : kind);
        if (kind == KV_LEARNED)
                config.summary = DCI_KV_SUMMARY_LEARNED;
        config.foreground = _i % 2;
        kv_data data = kv_random(&config, TOKENS + LATER, 83);
        size_t n = 0, n_late = 0;
        float *at_once = live_on(&config, &data, false, &n), *late = live_on(&config, &data, true, &n_late);
        ck_assert_uint_eq(n, n_late);
        ck_assert_mem_eq(at_once, late, n * sizeof *late);
        test_free(at_once, late);
        kv_data_free(&data);
}
END_TEST

/* A step that is taken back while its rows arrive; and a cache that is destroyed then. */
START_TEST(a_prompt_may_be_taken_back_while_its_rows_arrive)
{
        const dci_kv_config config = twin_small(DCI_KV_ICECACHE);
        kv_data data = kv_random(&config, TOKENS + LATER, 84);
        dci_context *context = test_context(4);
        for (size_t round = 0; round < 4; round++) {
                dci_gpu_kv *kv = NULL;
                int64_t id = -1;
                dci_gpu_config host;
                dci_gpu *gpu = NULL;
                ck_ok(dci_gpu_config_init(&host, sizeof host));
                host.device = DCI_GPU_HOST;
                ck_ok(dci_gpu_create(context, &host, &gpu));
                late_become(gpu);
                ck_ok(dci_gpu_kv_create(gpu, &config, NULL, &kv));
                ck_ok(dci_gpu_kv_open(kv, &id));
                take_step(kv, &data, id, 0, TOKENS, NULL);
                if (round % 2 == 0)
                        ck_ok(gpu->ops->stream_wait(gpu, kv->side));
                if (round < 2) {
                        ck_ok(dci_gpu_kv_step_abort(kv));
                        ck_assert_uint_eq(count_open(kv, id), config.n_layers);
                        take_step(kv, &data, id, 0, TOKENS, NULL);
                        ck_ok(dci_gpu_kv_step_end(kv, NULL));
                        ck_assert_uint_eq(count_open(kv, id), 0);
                }
                dci_gpu_kv_destroy(kv);
                dci_gpu_destroy(gpu);
        }
        dci_context_destroy(context);
        kv_data_free(&data);
}
END_TEST

/* Each replay would give notice of a prompt that ended once. */
START_TEST(a_captured_prompt_is_refused)
{
        const dci_kv_config config = twin_small(DCI_KV_ICECACHE);
        kv_data data = kv_random(&config, TOKENS, 85);
        const dci_gpu_kv_config on_device = twin_on_device();
        twin t = twin_begin(&config, &on_device);
        const size_t n = TOKENS;
        int64_t id = -1;
        void *graph = NULL;
        ck_ok(dci_gpu_kv_open(t.kv, &id));
        ck_ok(dci_gpu_kv_reserve(t.kv, t.stream, 1, &id, &n));
        const kv_turn turn = {id, &data, 0, n};
        twin_rows rows = twin_rows_of(&t, 0, 1, &turn);
        ck_ok(dci_gpu_kv_append(t.kv, t.stream, 0, &rows.rows));
        ck_ok(t.ops->stream_wait(t.gpu, t.stream));
        ck_ok(t.ops->capture_begin(t.gpu, t.stream));
        ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, 0, id, 0, NULL, 0), DCI_ERR_INVALID, "captured");
        ck_ok(t.ops->capture_end(t.gpu, t.stream, &graph));
        t.ops->graph_destroy(t.gpu, graph);
        ck_ok(dci_gpu_kv_end_prompt(t.kv, t.stream, 0, id, 0, NULL, 0));
        ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, 0, id, 0, NULL, 0), DCI_ERR_INVALID, "ended already");
        ck_ok(dci_gpu_kv_step_abort(t.kv));
        twin_rows_free(&t, &rows);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv threads");
        TCase *threads = test_case(suite, "threads", 120);
        tcase_add_loop_test(threads, others_may_call_while_one_steps, 0, (int)(sizeof presets / sizeof *presets));
        tcase_add_test(threads, caches_of_one_context_work_side_by_side);
        const int n_arriving = (int)(sizeof arriving / sizeof *arriving);
        tcase_add_loop_test(threads, a_prompt_is_handed_over_as_its_rows_arrive, 0, 2 * n_arriving);
        tcase_add_test(threads, a_prompt_may_be_taken_back_while_its_rows_arrive);
        tcase_add_test(threads, a_captured_prompt_is_refused);
        return test_main(suite);
}
