/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Prompts whose clusters the device makes: what the host takes over is what it would have formed, whatever becomes of the sequence; and what the
 * device leaves to the host.
 */
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

#include <string.h>

static dci_gpu_kv_config on_device_for(size_t n)
{
        dci_gpu_kv_config config = twin_on_device();
        config.max_sequences = n;
        config.planner = DCI_GPU_PLAN_DEVICE;
        return config;
}

static dci_kv_config clustered(size_t tokens, dci_dtype dtype)
{
        dci_kv_config config = twin_small(DCI_KV_CLUSTERKV);
        config.cluster_tokens = tokens;
        config.cluster_every = 64;
        config.dtype = dtype;
        return config;
}

/* As louiskv and retroinfer divide a prompt, and in parts. */
enum { VARIANTS = 5 };
static dci_kv_config variant(size_t number)
{
        dci_kv_config config = clustered(6, number % 2 == 0 ? DCI_BF16 : DCI_F16);
        config.cluster_segment = number == 0 || number == 3 ? 128 : number == 2 ? 90 : config.cluster_segment;
        config.cluster_by = number == 1 || number == 2 ? DCI_KV_CLUSTER_CENTRED : DCI_KV_CLUSTER_RAW;
        if (number == 3)
                config.group = DCI_KV_GROUP_SEGMENT;
        if (number == 4) {
                config.cluster_tokens = 1;
                config.cluster_rounds = 1;
        }
        return config;
}

/* The first batch of every layer and head is the CPU's to the bit. */
static void same_groups(twin *t, int64_t sequence)
{
        const dci_kv_sequence *a = dci_kv_find(t->kv->host, sequence), *b = dci_kv_find(t->cpu, sequence);
        for (size_t l = 0; l < t->config.n_layers; l++) {
                ck_assert_uint_eq(a->layers[l].n_batches, b->layers[l].n_batches);
                ck_assert_uint_eq(a->layers[l].n_grouped, b->layers[l].n_grouped);
                for (size_t h = 0; h < t->config.n_kv_heads && b->layers[l].n_batches > 0; h++) {
                        const dci_kv_clusters *x = a->layers[l].batches[0], *y = b->layers[l].batches[0];
                        const size_t n = y->heads[h].n_groups;
                        ck_assert_uint_eq(x->n, y->n);
                        ck_assert_uint_eq(x->heads[h].n_groups, n);
                        ck_assert_mem_eq(dci_kv_cluster_offsets(t->kv->host, x, h),
                                         dci_kv_cluster_offsets(t->cpu, y, h), (n + 1) * sizeof(int32_t));
                        ck_assert_mem_eq(dci_kv_cluster_ids(t->kv->host, x, h), dci_kv_cluster_ids(t->cpu, y, h),
                                         y->n * sizeof(int32_t));
                        ck_assert_mem_eq(dci_kv_cluster_rows(t->kv->host, x, h), dci_kv_cluster_rows(t->cpu, y, h),
                                         n * t->config.dim_k * 2);
                }
        }
}

/* In one step, in several that are named (sequences of an even number) and in several that are not: only the last are the host's. */
START_TEST(what_the_host_takes_over_is_what_it_would_form)
{
        const dci_kv_config config = clustered(7, _i % 2 == 0 ? DCI_BF16 : DCI_F16);
        const dci_gpu_kv_config on_device = on_device_for(3);
        twin t = twin_begin(&config, &on_device);
        const size_t sparse = t.kv->n_sparse;
        kv_data data = kv_random(&config, 900, 40), other = kv_random(&config, 900, 41);
        const int64_t a = twin_prefill(&t, &data, 500, 200), b = twin_prefill(&t, &other, 333, 100),
                      c = twin_prefill(&t, &other, 700, 0);
        ck_assert_uint_eq(twin_info(&t).n_clustered, 0);
        twin_decode(&t, a, &data, 500, 1);
        ck_assert_uint_eq(twin_info(&t).n_clustered, sparse);
        same_groups(&t, a);
        twin_decode(&t, b, &other, 333, 1);
        ck_assert_uint_eq(twin_info(&t).n_clustered, sparse);
        same_groups(&t, b);
        twin_decode(&t, c, &other, 700, 80);
        ck_assert_uint_eq(twin_info(&t).n_clustered, 2 * sparse);
        same_groups(&t, c);
        ck_assert_uint_gt(t.n_looked, 0);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* No cluster has members of two parts. */
static void in_parts(const dci_kv *kv, const dci_kv_clusters *batch)
{
        const size_t n_parts = dci_kv_cluster_parts(kv, batch->n);
        ck_assert_uint_eq(n_parts, 2);
        const int32_t middle = (int32_t)dci_kv_cluster_part(batch->n, n_parts, 1);
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, h), *ids = dci_kv_cluster_ids(kv, batch, h);
                for (size_t g = 0; g < batch->heads[h].n_groups; g++)
                        for (int32_t i = offsets[g]; i < offsets[g + 1]; i++)
                                ck_assert((ids[i] < middle) == (ids[offsets[g]] < middle));
        }
}

/* Segments, centred keys, the clusters that segments follow, and parts of a prompt that has too many. */
START_TEST(other_divisions_too)
{
        const dci_kv_config config = variant((size_t)_i);
        dci_gpu_kv_config on_device = on_device_for(1);
        const size_t n = _i == 4 ? DCI_KV_CLUSTERS_TOGETHER + 250 : 500;
        on_device.max_tokens = n + 64;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, n + 32, 52);
        const int64_t a = twin_prefill(&t, &data, n, 0);
        ck_assert_ptr_nonnull(t.kv->prompt_kmeans->work);
        twin_decode(&t, a, &data, n, 3);
        ck_assert_uint_eq(twin_info(&t).n_clustered, t.kv->n_sparse);
        same_groups(&t, a);
        if (_i == 4)
                in_parts(t.cpu, dci_kv_find(t.cpu, a)->layers[1].batches[0]);
        /* Nothing is left on the device. */
        ck_assert_ptr_null(t.kv->prompt_kmeans->work);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Prompts of different lengths that end in one step share what they are made with. */
START_TEST(several_prompts_end_together)
{
        const dci_kv_config config = clustered(5, DCI_BF16);
        const dci_gpu_kv_config on_device = on_device_for(3);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 900, 42), other = kv_random(&config, 900, 43);
        kv_turn turns[] = {
                {twin_open(&t), &data, 0, 150}, {twin_open(&t), &other, 0, 610}, {twin_open(&t), &data, 0, 20}};
        const bool ends[] = {true, true, true};
        twin_step(&t, 3, turns, ends, false);
        for (size_t i = 0; i < 3; i++) {
                turns[i].from = turns[i].n;
                turns[i].n = 1;
        }
        for (size_t s = 0; s < 5; s++) {
                twin_step(&t, 3, turns, NULL, true);
                for (size_t i = 0; i < 3; i++)
                        turns[i].from++;
        }
        for (size_t i = 0; i < 3; i++)
                same_groups(&t, turns[i].sequence);
        /* The third was too short to have any. */
        ck_assert_uint_eq(twin_info(&t).n_clustered, 2 * t.kv->n_sparse);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* A step that is taken back, a sequence that is closed, a fork, a cut and a file before anybody has asked for the clusters. */
START_TEST(a_sequence_may_end_otherwise)
{
        const dci_kv_config config = variant((size_t)_i);
        const dci_gpu_kv_config on_device = on_device_for(4);
        scratch_open();
        twin t = twin_begin(&config, &on_device);
        const size_t sparse = t.kv->n_sparse;
        kv_data data = kv_random(&config, 900, 44), other = kv_random(&config, 900, 45);
        /* Taken back, and begun again with other rows. */
        const int64_t a = twin_open(&t);
        const kv_turn first = {a, &data, 0, 400}, second = {a, &other, 0, 380};
        const bool end = true;
        twin_reserve(&t, 1, &first);
        for (size_t l = 0; l < config.n_layers; l++) {
                twin_append(&t, l, 1, &first);
                twin_prompt(&t, l, &first);
        }
        twin_abort(&t, 1, &first);
        twin_step(&t, 1, &second, &end, false);
        const int64_t b = twin_fork(&t, a, 371);
        ck_assert_uint_eq(twin_info(&t).n_clustered, sparse);
        twin_decode(&t, a, &data, 380, 3);
        twin_decode(&t, b, &data, 371, 3);
        same_groups(&t, a);
        same_groups(&t, b);
        twin_close(&t, b);
        twin_close(&t, twin_prefill(&t, &data, 300, 0)); /* and nobody wanted its clusters */
        const int64_t c = twin_prefill(&t, &data, 420, 0);
        twin_truncate(&t, c, 415);
        twin_decode(&t, c, &other, 415, 3);
        same_groups(&t, c);
        const int64_t d = twin_prefill(&t, &other, 444, 0);
        int64_t loaded = -1, there = -1;
        ck_ok(dci_gpu_kv_save(t.kv, d, 440, scratch_path("clusters")));
        ck_ok(dci_gpu_kv_load(t.kv, scratch_path("clusters"), &loaded));
        ck_ok(dci_kv_fork(t.cpu, d, 440, &there));
        ck_assert_int_eq(loaded, there);
        twin_decode(&t, loaded, &data, 440, 3);
        same_groups(&t, loaded);
        ck_assert_uint_eq(twin_info(&t).n_clustered, 3 * sparse);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
        scratch_close();
}
END_TEST

/* Rows without a direction are for the host, which keeps them in some cluster. */
START_TEST(rows_without_direction_are_left_to_the_host)
{
        const dci_kv_config config = clustered(6, DCI_BF16);
        const dci_gpu_kv_config on_device = on_device_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 500, 46);
        const size_t row = config.n_kv_heads * config.dim_k;
        /* Of the last layer's second head. */
        memset((uint16_t *)data.stored_keys + ((config.n_layers - 1) * data.n + 100) * row + config.dim_k, 0,
               config.dim_k * 2);
        const int64_t a = twin_prefill(&t, &data, 400, 0);
        twin_decode(&t, a, &data, 400, 3);
        same_groups(&t, a);
        ck_assert_uint_eq(twin_info(&t).n_clustered, t.kv->n_sparse - 1);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* What the header says that the host forms. Loops over it. */
START_TEST(other_clusters_are_the_hosts)
{
        dci_kv_config config = clustered(6, DCI_BF16);
        const dci_gpu_kv_config on_device = on_device_for(1);
        config.summary = _i == 0 ? DCI_KV_SUMMARY_MINMAX : config.summary;
        config.cluster_most = _i == 1 ? 9 : 0;
        config.cluster_rounds = _i == 2 ? 65 : config.cluster_rounds;
        /* All 368 candidates once it is rounded up. */
        config.cluster_segment = _i == 3 ? 360 : config.cluster_segment;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 500, 47);
        const int64_t a = twin_prefill(&t, &data, 400, 0);
        twin_decode(&t, a, &data, 400, 3);
        ck_assert_uint_eq(twin_info(&t).n_clustered, 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A prompt's step; returns what it has taken on the device besides room for clusters. */
static size_t prompt_only(twin *t, const kv_data *data)
{
        const kv_turn turn = {twin_open(t), data, 0, 400};
        const bool end = true;
        twin_step(t, 1, &turn, &end, false);
        return twin_info(t).device_bytes - t->kv->prompt_kmeans->work_bytes;
}

/* Memory of the device that the limit does not leave is no failure: the host forms the clusters. */
START_TEST(without_memory_the_host_forms_them)
{
        const dci_kv_config config = clustered(6, DCI_BF16);
        dci_gpu_kv_config on_device = on_device_for(1);
        kv_data data = kv_random(&config, 500, 48);
        twin t = twin_begin(&config, &on_device);
        on_device.max_device_bytes = prompt_only(&t, &data);
        ck_assert_ptr_nonnull(t.kv->prompt_kmeans->work);
        twin_end(&t);
        t = twin_begin(&config, &on_device);
        ck_assert_uint_eq(prompt_only(&t, &data), on_device.max_device_bytes);
        ck_assert_ptr_null(t.kv->prompt_kmeans->work);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv clusters");
        TCase *laws = test_case(suite, "laws", 60);
        tcase_add_loop_test(laws, what_the_host_takes_over_is_what_it_would_form, 0, 2);
        tcase_add_loop_test(laws, other_divisions_too, 0, VARIANTS);
        tcase_add_test(laws, several_prompts_end_together);
        tcase_add_loop_test(laws, a_sequence_may_end_otherwise, 0, 4);
        tcase_add_test(laws, rows_without_direction_are_left_to_the_host);
        tcase_add_loop_test(laws, other_clusters_are_the_hosts, 0, 4);
        tcase_add_test(laws, without_memory_the_host_forms_them);
        return test_main(suite);
}
