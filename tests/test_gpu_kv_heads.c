/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Lists of query heads on a device: each kernel that reads what the kv head of a list has, in short lives; and what query heads share is fetched
 * once. */
#include "tests/gpu_kv_fixture.h"

#include <string.h>

enum { PROMPT = 260, GROUP = 3 };

static dci_kv_config config_of(int32_t preset)
{
        dci_kv_config config = twin_small(preset);
        config.n_query_heads = GROUP * config.n_kv_heads;
        config.query_head_lists = 1;
        config.n_layers = 2;
        config.budget = 64;
        config.cluster_tokens = 4;
        config.cluster_every = 24;
        return config;
}

/* Loops over presets: tokens by codes, with tails of either kind; pages; clusters, with a tail. */
START_TEST(lists_of_every_kernel_are_those_of_the_cpu)
{
        static const int32_t presets[] = {DCI_KV_SKETCH_LOWBIT, DCI_KV_SKETCH_SUMS, DCI_KV_QUEST, DCI_KV_CLUSTERKV,
                                          DCI_KV_RETROINFER};
        const dci_kv_config config = config_of(presets[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 2 * PROMPT, 40 + (uint64_t)_i);
        ck_assert_uint_eq(t.kv->row_lists, config.n_query_heads);
        kv_turn turns[] = {{twin_prefill(&t, &data, PROMPT, 0), &data, PROMPT, 1}, {0, &data, PROMPT - 70, 1}};
        turns[1].sequence = twin_fork(&t, turns[0].sequence, PROMPT - 70);
        for (size_t s = 0; s < (test_short() ? 3 : 30); s++) {
                twin_step(&t, 2, turns, NULL, true);
                turns[0].from++;
                turns[1].from++;
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Query heads that ask the same. */
static kv_data alike(const dci_kv_config *config)
{
        kv_data data = kv_random(config, 2 * PROMPT, 50);
        const size_t dim = config->dim_k, n = data.n * data.n_layers * config->n_kv_heads;
        for (size_t i = 0; i < n; i++)
                for (size_t q = 1; q < GROUP; q++)
                        memcpy(data.queries + (i * GROUP + q) * dim, data.queries + i * GROUP * dim,
                               dim * sizeof *data.queries);
        kv_data_store(&data);
        return data;
}

static dci_gpu_kv_info life(const dci_kv_config *config, int32_t planner)
{
        dci_gpu_kv_config on_device = twin_planned_for(1);
        on_device.planner = planner;
        on_device.hot_tokens = 80;
        twin t = twin_begin(config, &on_device);
        kv_data data = alike(config);
        twin_decode(&t, twin_prefill(&t, &data, PROMPT, 0), &data, PROMPT, test_short() ? 3 : 20);
        const dci_gpu_kv_info info = twin_info(&t);
        kv_data_free(&data);
        twin_end(&t);
        return info;
}

/* Loops over planners. */
START_TEST(what_query_heads_share_is_fetched_once)
{
        dci_kv_config config = config_of(DCI_KV_QUEST);
        const dci_gpu_kv_info each = life(&config, _i);
        config.query_head_lists = 0;
        config.combine = DCI_KV_COMBINE_MEAN;
        const dci_gpu_kv_info one = life(&config, _i);
        ck_assert_uint_gt(one.n_missed, 0);
        ck_assert_uint_eq(each.n_asked, GROUP * one.n_asked);
        ck_assert_uint_eq(each.n_missed, one.n_missed);
        ck_assert_uint_eq(each.bytes_fetched, one.bytes_fetched);
        ck_assert_uint_eq(each.lane_bytes, one.lane_bytes);
}
END_TEST

/* By default the hot buffer has room for the lists of all query heads. */
START_TEST(hot_buffers_are_for_all_lists_of_a_kv_head)
{
        dci_kv_config config = config_of(DCI_KV_CLUSTERKV);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        ck_assert_uint_eq(twin_info(&t).hot, 2 * GROUP * config.budget);
        twin_end(&t);
        config.budget = 2048;
        t = twin_begin(&config, &on_device);
        ck_assert_uint_eq(twin_info(&t).hot, DCI_GPU_MAX_FRAMES);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv heads");
        TCase *laws = test_case(suite, "laws", 60);
        tcase_add_loop_test(laws, lists_of_every_kernel_are_those_of_the_cpu, 0, 5);
        tcase_add_loop_test(laws, what_query_heads_share_is_fetched_once, DCI_GPU_PLAN_HOST, DCI_GPU_PLAN_DEVICE + 1);
        tcase_add_test(laws, hot_buffers_are_for_all_lists_of_a_kv_head);
        return test_main(suite);
}
