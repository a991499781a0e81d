/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A KV cache on a device from several threads: calls are served one after another; caches on one device work side by side. */
#include "tests/gpu_kv_fixture.h"

#include <pthread.h>

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

/* Loops over presets; the later ones have some pages on the device, so that others leave. */
static const int32_t presets[] = {DCI_KV_SKETCH_LOWBIT, DCI_KV_ICECACHE, DCI_KV_QUEST, DCI_KV_LOUISKV};
enum { RESIDENT_FROM = 2 };

START_TEST(others_may_call_while_one_steps)
{
        const dci_kv_config config = twin_small(presets[_i]);
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.max_sequences = 1 + THREADS;
        if (_i >= RESIDENT_FROM)
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

int main(void)
{
        Suite *suite = suite_create("gpu kv threads");
        TCase *threads = test_case(suite, "threads", 120);
        tcase_add_loop_test(threads, others_may_call_while_one_steps, 0, (int)(sizeof presets / sizeof *presets));
        tcase_add_test(threads, caches_of_one_context_work_side_by_side);
        return test_main(suite);
}
