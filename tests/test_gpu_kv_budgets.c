/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What budgets count, and budgets that are a share of the tokens, on a device: plans are the CPU's, whoever makes them. */
#include "kv/budget.h"
#include "tests/gpu_kv_kinds.h"

#include <string.h>

#include "tests/gpu_open.h"

enum { PROMPT = 300 };

static size_t steps(size_t n)
{
        return test_short() ? (n + 3) / 4 : n;
}

/* A prompt, a short sequence that grows into leaving tokens out, and forks, with other accounting. */
static void live(const dci_kv_config *config, const char *what)
{
        const dci_gpu_kv_config on_device = kind_on_device(3, 0);
        twin t = twin_begin(config, &on_device);
        kv_data data = kv_random(config, 800, 50);
        kv_turn turns[] = {{twin_prefill(&t, &data, PROMPT, 0), &data, PROMPT, 1},
                           {twin_prefill(&t, &data, 40, 0), &data, 40, 1},
                           {0, &data, PROMPT - 9, 1}};
        t.what = what;
        turns[2].sequence = twin_fork(&t, turns[0].sequence, PROMPT - 9);
        const size_t n = config->preset == DCI_KV_SNAPKV ? 120 : 44; /* kept tokens outgrow the ring */
        for (size_t s = 0; s < steps(n); s++) {
                twin_step(&t, 3, turns, NULL, true);
                twin_maintain(&t);
                for (size_t i = 0; i < 3; i++)
                        turns[i].from++;
        }
        twin_truncate(&t, turns[0].sequence, turns[0].from - 5);
        twin_decode(&t, turns[0].sequence, &data, turns[0].from - 5, 6);
        ck_assert(t.n_looked > 0 || config->preset == DCI_KV_FULL);
        kv_data_free(&data);
        twin_end(&t);
}

static dci_kv_config config_of(int kind, int32_t counts)
{
        dci_kv_config config = kind_config(kind);
        config.budget_counts = counts;
        config.cluster_tokens = 4;
        config.cluster_every = 24;
        config.cluster_segment = 128;
        config.segment_buffer = 40;
        config.budget = 64;
        return config;
}

/* Loops over kinds. */
START_TEST(plans_are_the_cpus_whatever_counts)
{
        for (int32_t counts = DCI_KV_COUNT_SINK_AND_WINDOW; counts <= DCI_KV_COUNTS && !kind_left_out(_i); counts++) {
                dci_kv_config config = config_of(_i, counts);
                live(&config, dci_kv_preset_name(config.preset));
                config.sink = config.window = config.rollback = 0;
                if (counts == 1 + _i % DCI_KV_COUNTS)
                        live(&config, "without a sink and a window");
        }
}
END_TEST

/* Loops over kinds. */
START_TEST(shares_are_the_cpus)
{
        static const double shares[] = {0.1, 0.3, 0.5};
        dci_kv_config config = config_of(_i, _i % DCI_KV_COUNTS);
        config.budget = 160;
        config.budget_share = shares[_i % 3];
        if (!kind_left_out(_i))
                live(&config, "a share");
}
END_TEST

/* Recent tokens that do not count need a larger ring than the budget's, and that is what the refusal says. */
START_TEST(rings_hold_what_does_not_count)
{
        dci_kv_config config = twin_small(DCI_KV_CLUSTERKV);
        dci_gpu_kv_config on_device = twin_on_device();
        config.budget_counts = DCI_KV_COUNT_SINK;
        config.cluster_every = 320;
        twin t = twin_begin(&config, &on_device);
        ck_assert_uint_eq(t.kv->config.ring_tokens, 512); /* 320 and the rollback */
        ck_assert_uint_eq(dci_kv_max_attended(&t.kv->shape), 96 + 320 + 16);
        on_device.ring_tokens = 335;
        dci_gpu_kv *kv;
        ck_refused(dci_gpu_kv_create(t.gpu, &config, &on_device, &kv), DCI_ERR_INVALID,
                   "ring_tokens is 335, expected 336 (recent tokens, which the budget does not count)");
        config.budget_counts = DCI_KV_COUNT_ALL;
        on_device.ring_tokens = 95;
        ck_refused(dci_gpu_kv_create(t.gpu, &config, &on_device, &kv), DCI_ERR_INVALID, "expected 96 (the budget)");
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv budgets");
        TCase *budgets = test_case(suite, "budgets", 300);
        tcase_add_loop_test(budgets, plans_are_the_cpus_whatever_counts, 0, N_KINDS);
        tcase_add_loop_test(budgets, shares_are_the_cpus, 0, N_KINDS);
        tcase_add_test(budgets, rings_hold_what_does_not_count);
        return test_main(suite);
}
