/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Preselection by means (sketch+groups), planned by the device: its lists are the CPU's. */
#include "tests/gpu_kv_fixture.h"

#include "kv/stages/summary_codes.h"

static size_t steps(size_t n)
{
        return test_short() ? (n + 3) / 4 : n;
}

typedef struct shape {
        size_t dim, n_heads, group, page, tokens, budget, least;
        double preselect;
        dci_dtype dtype, query_dtype;
        int32_t bits, combine, schedule, tail;
} shape;

static const shape shapes[] = {
        {64, 2, 2, 8, 8, 96, 16, 2.0, DCI_BF16, DCI_F32, 4, 0, 0, 0},
        {128, 2, 4, 16, 8, 128, 16, 3.0, DCI_BF16, DCI_BF16, 4, 0, 0, 0},
        {128, 1, 8, 16, 4, 128, 16, 1.5, DCI_F16, DCI_F16, 2, 0, 0, 0},
        {96, 2, 3, 16, 16, 128, 16, 2.5, DCI_F16, DCI_F32, 4, 0, 0, 0},
        {256, 1, 16, 32, 8, 160, 16, 2.0, DCI_BF16, DCI_BF16, 1, 0, 0, 0},
        {64, 2, 1, 16, 8, 128, 16, 2.0, DCI_BF16, DCI_F32, 4, 0, 0, 0},
        {64, 2, 4, 16, 8, 128, 16, 2.0, DCI_BF16, DCI_F32, 2, DCI_KV_COMBINE_MEAN, 0, 0},
        {64, 2, 2, 16, 4, 128, 16, 2.0, DCI_F16, DCI_F32, 4, 0, 0, DCI_KV_TAIL_SUMS},
        {64, 2, 2, 16, 16, 128, 16, 2.0, DCI_F16, DCI_F32, 4, 0, DCI_KV_AHEAD, 0},
        {64, 2, 2, 16, 8, 128, 16, 2.0, DCI_BF16, DCI_F32, 4, 0, DCI_KV_BOUNDARY, 0},
        {64, 2, 5, 8, 4, 96, 16, 2.0, DCI_BF16, DCI_F32, 4, 0, DCI_KV_PERIODIC, 0},
        {64, 2, 4, 8, 8, 96, 300, 1.5, DCI_BF16, DCI_F32, 4, 0, DCI_KV_ANCHOR, 0},
        /* Lists that are as long as the units at the fewest: a last unit of half the tokens is one more. */
        {64, 3, 2, 8, 8, 93, 1, 1.0 + 0x1p-20, DCI_BF16, DCI_F32, 4, 0, 0, 0},
};

static dci_kv_config config_of(const shape *s)
{
        dci_kv_config config = kv_config(DCI_KV_SKETCH_GROUPS, 3, s->n_heads, s->group, s->dim);
        config.dtype = s->dtype;
        config.query_dtype = s->query_dtype;
        config.dense_layers = 1;
        config.page_tokens = s->page;
        config.budget = s->budget;
        config.sink = 16;
        config.rollback = config.window = s->preselect < 1.1 ? 32 : 16;
        config.key_bits = s->bits;
        config.combine = s->combine;
        config.schedule = s->schedule;
        config.tail = s->tail;
        config.period = 5;
        config.preselect = s->preselect;
        config.preselect_tokens = s->tokens;
        config.preselect_least = s->least;
        return config;
}

/* A prompt in one step, which the device encodes, and a decode, in which it encodes pages; loops over shapes. */
START_TEST(lists_are_those_of_the_cpu)
{
        const dci_kv_config config = config_of(&shapes[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 900, 40 + (uint64_t)_i);
        const int64_t sequence = twin_prefill(&t, &data, 700, 0);
        twin_decode(&t, sequence, &data, 700, steps(60));
        ck_assert(t.plans && t.n_looked > 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* From nothing through the length from which on tokens are left unscored, next to sequences that are beyond it. */
START_TEST(sequences_grow_into_preselection)
{
        const dci_kv_config config = config_of(&shapes[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(3);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 800, 70 + (uint64_t)_i);
        const size_t reach = dci_kv_preselected(&t.kv->shape) * DCI_GPU_UNIT + config.sink + config.window;
        kv_turn turns[] = {{twin_prefill(&t, &data, reach - 9, 0), &data, reach - 9, 1},
                           {twin_prefill(&t, &data, 20, 0), &data, 20, 1},
                           {twin_prefill(&t, &data, 600, 50), &data, 600, 1}};
        for (size_t s = 0; s < 40; s++) {
                /* Alone, before any token is left out, and together. */
                twin_step(&t, s < 4 ? 2 : 3, turns, NULL, true);
                for (size_t i = 0; i < (s < 4 ? 2 : 3); i++)
                        turns[i].from++;
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* The trace, where a few groups have most of the attention. */
START_TEST(a_trace_is_that_of_the_cpu)
{
        dci_kv_config config = kv_config(DCI_KV_SKETCH_GROUPS, 2, 2, 2, 64);
        config.dense_layers = 1;
        config.preselect = 6.0;
        config.preselect_tokens = 8;
        dci_gpu_kv_config on_device = twin_planned_for(1);
        on_device.max_tokens = KV_TRACE_TOKENS;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_trace(&config, 2200);
        const int64_t sequence = twin_prefill(&t, &data, 2100, 0);
        twin_decode(&t, sequence, &data, 2100, steps(60));
        ck_assert(t.n_looked > 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Forks and truncations within and beyond the rollback, codes of means on either side of the cut; a saved sequence. */
START_TEST(cuts_and_copies_are_those_of_the_cpu)
{
        const dci_kv_config config = config_of(&shapes[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(3);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 1000, 90 + (uint64_t)_i);
        const int64_t a = twin_prefill(&t, &data, 700, 0);
        twin_decode(&t, a, &data, 700, 40);
        const int64_t b = twin_fork(&t, a, 640);
        twin_decode(&t, b, &data, 640, 30);
        twin_truncate(&t, a, 735);
        twin_decode(&t, a, &data, 735, 30);
        twin_truncate(&t, a, 600);
        twin_decode(&t, a, &data, 600, 30);
        twin_close(&t, b);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

START_TEST(what_no_kernel_does_is_the_hosts)
{
        static const struct {
                double preselect;
                size_t least;
                int32_t summary;
                const char *why;
        } cases[] = {{2.0, 16, DCI_KV_SUMMARY_LEARNED, "preselect and learned codes"},
                     {2.0, 65536, 0, "65536 tokens, but of up to 65520"}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                dci_context *context = test_context(1);
                dci_gpu *gpu = twin_gpu(context);
                dci_gpu_kv *kv = NULL;
                dci_kv_config config = config_of(&shapes[0]);
                dci_gpu_kv_config on_device = twin_planned_for(1);
                config.preselect = cases[i].preselect;
                config.preselect_least = cases[i].least;
                config.summary = cases[i].summary;
                ck_refused(dci_gpu_kv_create(gpu, &config, &on_device, &kv), DCI_ERR_UNSUPPORTED, cases[i].why);
                on_device.planner = DCI_GPU_PLAN_AUTO;
                ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
                ck_assert(!kv->planner.on);
                dci_gpu_kv_destroy(kv);
                config.preselect_least = 65520;
                config.summary = 0;
                on_device.planner = DCI_GPU_PLAN_DEVICE;
                ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
                dci_gpu_kv_destroy(kv);
                dci_gpu_destroy(gpu);
                dci_context_destroy(context);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv preselect");
        TCase *laws = test_case(suite, "laws", 60);
        const int n = (int)(sizeof shapes / sizeof *shapes);
        tcase_add_loop_test(laws, lists_are_those_of_the_cpu, 0, n);
        tcase_add_loop_test(laws, sequences_grow_into_preselection, 0, n);
        tcase_add_test(laws, a_trace_is_that_of_the_cpu);
        tcase_add_loop_test(laws, cuts_and_copies_are_those_of_the_cpu, 0, n);
        tcase_add_test(laws, what_no_kernel_does_is_the_hosts);
        return test_main(suite);
}
