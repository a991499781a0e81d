/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Trees that the device searches (icecache): its plans are the CPU's to the bit, whatever becomes of a tree. */
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

#include <string.h>

#include "kv/tree/tree.h"
#include "offload/tree.h"

static size_t steps(size_t n)
{
        return test_short() ? (n + 3) / 4 : n;
}

/* Some shapes will do for sanitizers and slow devices. */
static bool left_out(int i)
{
        return test_short() && i % 4 != 1;
}

typedef struct shape {
        size_t dim, n_heads, group, page, budget, view;
        double promotion;
        dci_dtype dtype, query_dtype;
        int32_t bits, schedule;
} shape;

/* Groups of more heads than there is room for pages, pages of every size, few nodes and many, one of which is opened. */
static const shape shapes[] = {
        {64, 2, 2, 8, 96, 0, 0.1, DCI_BF16, DCI_F32, 4, 0},
        {128, 2, 4, 16, 160, 0, 0.05, DCI_BF16, DCI_BF16, 4, 0},
        {128, 1, 8, 16, 96, 4, 0.1, DCI_F16, DCI_F16, 2, 0},
        {96, 2, 3, 32, 192, 3, 0.1, DCI_F16, DCI_F32, 4, 0},
        {256, 1, 16, 64, 320, 2, 0.1, DCI_BF16, DCI_BF16, 1, 0},
        {64, 2, 5, 8, 64, 1, 0.25, DCI_BF16, DCI_F32, 4, 0},
        {64, 2, 1, 16, 256, 1, 0.25, DCI_BF16, DCI_F32, 2, 0},
        {64, 1, 7, 16, 128, 2, 0.03, DCI_BF16, DCI_F32, 4, DCI_KV_AHEAD},
        {64, 2, 2, 8, 96, 0, 0.1, DCI_BF16, DCI_F32, 4, DCI_KV_BOUNDARY},
        {64, 2, 2, 8, 96, 3, 0.2, DCI_BF16, DCI_F32, 4, DCI_KV_PERIODIC},
        {64, 2, 4, 8, 96, 3, 0.2, DCI_BF16, DCI_F32, 4, DCI_KV_ANCHOR},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static dci_kv_config config_of(const shape *s)
{
        dci_kv_config config = kv_config(DCI_KV_ICECACHE, 3, s->n_heads, s->group, s->dim);
        config.dtype = s->dtype;
        config.query_dtype = s->query_dtype;
        config.dense_layers = 1;
        config.page_tokens = s->page;
        config.budget = s->budget;
        config.sink = 16;
        config.rollback = config.window = 16;
        config.key_bits = s->bits;
        config.schedule = s->schedule;
        config.period = 5;
        config.tau = 0.02;
        config.anchor_first = 1;
        config.anchor_period = 3;
        config.tree_promotion = s->promotion;
        config.tree_field_of_view = s->view;
        return config;
}

static void check_planned(const twin *t)
{
        ck_assert(t->kv->planner.on && t->kv->planner.trees);
        ck_assert_int_eq(t->kv->shape.tree_keys, DCI_KV_TREE_CODES);
        ck_assert_uint_gt(t->n_looked, 0);
        ck_assert_uint_eq(t->n_other, 0);
}

/* A prompt, and a decode in which pages are inserted; loops over shapes. */
START_TEST(lists_are_those_of_the_cpu)
{
        const dci_kv_config config = config_of(&shapes[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 900, 40 + (uint64_t)_i);
        const int64_t sequence = twin_prefill(&t, &data, 700, 0);
        twin_decode(&t, sequence, &data, 700, steps(80));
        check_planned(&t);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* From nothing, through trees that are rebuilt and such that grow, next to others; the host inserts when it is asked to, or must. */
START_TEST(trees_grow_together)
{
        if (left_out(_i))
                return;
        const dci_kv_config config = config_of(&shapes[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(3);
        const size_t n = steps(260);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 1000, 70 + (uint64_t)_i);
        kv_turn turns[] = {{twin_prefill(&t, &data, 90, 0), &data, 90, 1},
                           {twin_prefill(&t, &data, 20, 0), &data, 20, 1},
                           {twin_prefill(&t, &data, 600, 50), &data, 600, 1}};
        for (size_t s = 0; s < n; s++) {
                twin_step(&t, 3, turns, NULL, true);
                for (size_t i = 0; i < 3; i++)
                        turns[i].from++;
                if (s % 3 == 0)
                        ck_ok(dci_gpu_kv_maintain(t.kv, 0, NULL));
        }
        check_planned(&t);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Keys of a few values, of which many score alike, and keys that are nothing: ties go by the numbers of pages. */
START_TEST(equal_scores_are_no_matter)
{
        if (left_out(_i))
                return;
        const dci_kv_config config = config_of(&shapes[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 1200, 50 + (uint64_t)_i);
        const size_t n_keys = config.n_kv_heads * config.dim_k;
        for (size_t l = 0; l < config.n_layers; l++)
                for (size_t i = 0; i < data.n; i++) {
                        float *to = data.keys + (l * data.n + i) * n_keys;
                        if (i % 5 == 0)
                                memset(to, 0, n_keys * sizeof *to);
                        else
                                memmove(to, data.keys + (l * data.n + i % (1 + 2 * (size_t)_i)) * n_keys,
                                        n_keys * sizeof *to);
                }
        kv_data_store(&data);
        const int64_t sequence = twin_prefill(&t, &data, 1100, 0);
        twin_decode(&t, sequence, &data, 1100, steps(40));
        check_planned(&t);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* The trace, where a few pages have most of the attention. */
START_TEST(a_trace_is_that_of_the_cpu)
{
        dci_kv_config config = kv_config(DCI_KV_ICECACHE, 2, 2, 2, 64);
        config.dense_layers = 1;
        dci_gpu_kv_config on_device = twin_planned_for(1);
        on_device.max_tokens = KV_TRACE_TOKENS;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_trace(&config, 2200);
        const int64_t sequence = twin_prefill(&t, &data, 2100, 0);
        twin_decode(&t, sequence, &data, 2100, steps(60));
        check_planned(&t);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Forks that go on apart, cuts within the rollback (pages are young again), beyond it and to nothing, files, swaps. */
START_TEST(trees_go_where_sequences_go)
{
        if (left_out(_i))
                return;
        const dci_kv_config config = config_of(&shapes[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(4);
        scratch_open();
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 1000, 90 + (uint64_t)_i), other = kv_random(&config, 1000, 91);
        const int64_t a = twin_prefill(&t, &data, 700, 0);
        const int64_t early = twin_fork(&t, a, 690); /* before its tree was asked for */
        twin_decode(&t, a, &data, 700, 40);
        const int64_t b = twin_fork(&t, a, 735);
        twin_decode(&t, b, &other, 735, steps(60));
        twin_decode(&t, a, &data, 740, steps(60));
        twin_decode(&t, early, &other, 690, 20);
        twin_truncate(&t, a, 740 + steps(60) - 14);
        twin_decode(&t, a, &other, 740 + steps(60) - 14, 5);
        twin_truncate(&t, a, 600);
        twin_decode(&t, a, &other, 600, 30);
        twin_close(&t, early);
        ck_ok(dci_gpu_kv_swap_out(t.kv, b));
        const int64_t c = twin_prefill(&t, &other, 500, 100);
        twin_decode(&t, c, &other, 500, 4);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        twin_truncate(&t, c, 8);
        twin_decode(&t, c, &data, 8, steps(300));
        ck_ok(dci_gpu_kv_swap_in(t.kv, b));
        twin_decode(&t, b, &data, 735 + steps(60), 20);
        check_planned(&t);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
        scratch_close();
}
END_TEST

/* A file of either kind of keys is loaded by both: codes are made from the rows, with the file's centre if it has one. */
START_TEST(files_hold_no_codes)
{
        const dci_kv_config config = config_of(&shapes[0]);
        dci_gpu_kv_config on_device = twin_planned_for(2);
        dci_kv_config exact = config;
        scratch_open();
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 800, 96);
        const int64_t a = twin_prefill(&t, &data, 600, 0);
        twin_decode(&t, a, &data, 600, 20);
        const char *path = scratch_path("coded");
        ck_ok(dci_gpu_kv_save(t.kv, a, 620, path));
        exact.tree_keys = DCI_KV_TREE_EXACT;
        dci_kv *plain = kv_create(t.context, &exact);
        int64_t loaded;
        ck_ok(dci_kv_load(plain, path, &loaded));
        ck_ok(dci_kv_check(plain, DCI_CHECK_FULL, NULL));
        const char *again = scratch_path("exact");
        ck_ok(dci_kv_save(plain, loaded, 620, again));
        int64_t from_coded, from_exact;
        ck_ok(dci_gpu_kv_load(t.kv, path, &from_coded));
        ck_ok(dci_gpu_kv_close(t.kv, from_coded));
        ck_ok(dci_gpu_kv_load(t.kv, again, &from_exact));
        ck_ok(dci_kv_check(dci_gpu_kv_host(t.kv), DCI_CHECK_FULL, NULL));
        dci_kv_destroy(plain);
        kv_data_free(&data);
        twin_end(&t);
        scratch_close();
}
END_TEST

/* What the device has is the host's tree, part by part: only what changed was uploaded. */
START_TEST(the_devices_copy_is_the_hosts)
{
        if (left_out(_i))
                return;
        const dci_kv_config config = config_of(&shapes[_i]);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 900, 140 + (uint64_t)_i);
        const int64_t sequence = twin_prefill(&t, &data, 500, 0);
        twin_decode(&t, sequence, &data, 500, 100);
        ck_ok(dci_gpu_kv_maintain(t.kv, 0, NULL));
        const dci_gpu_kv_store *rows = t.kv->ids, *nodes = t.kv->summaries;
        const size_t block = (size_t)DCI_GPU_TREE_BLOCK_BYTES(config.dim_k, (size_t)config.key_bits),
                     per = config.page_tokens;
        unsigned char *part = malloc(rows->head_bytes + nodes->head_bytes);
        ck_assert_ptr_nonnull(part);
        for (size_t h = 0; h < config.n_kv_heads; h++) {
                const dci_kv_tree *tree = twin_layer_of(t.kv->host, sequence, 1)->heads[h].tree;
                for (size_t p = 0; p < tree->n_pages; p++) {
                        const size_t row = p * per, at = row % DCI_GPU_CHUNK;
                        const int32_t chunk = dci_gpu_kv_store_numbers(rows, 0)[row / DCI_GPU_CHUNK];
                        ck_ok(t.ops->copy(t.gpu, t.stream, part,
                                          dci_gpu_kv_store_at(rows, 0, chunk) + h * rows->head_bytes,
                                          rows->head_bytes));
                        ck_ok(t.ops->stream_wait(t.gpu, t.stream));
                        const int32_t *ids = (const int32_t *)(const void *)part + at,
                                      *owners = (const int32_t *)(const void *)(part + DCI_GPU_TREE_OWNERS(block));
                        ck_assert_int_eq(owners[at / per], tree->page_node[p]);
                        const size_t fill = dci_kv_tree_page_fill(t.kv->host, tree, p);
                        for (size_t i = 0; i < per && tree->page_node[p] >= 0; i++)
                                ck_assert_int_eq(ids[i], i < fill ? tree->members[row + i] : INT32_MAX);
                        const uint16_t *scales =
                                (const uint16_t *)(const void *)(part + DCI_GPU_TREE_SCALES(block)) + at;
                        for (size_t i = 0; i < fill; i++)
                                ck_assert_uint_eq(scales[i], tree->code_scales[row + i]);
                }
                for (size_t n = 0; n < tree->n_nodes; n++) {
                        const int32_t chunk = dci_gpu_kv_store_numbers(nodes, 0)[n / DCI_GPU_CHUNK];
                        ck_ok(t.ops->copy(t.gpu, t.stream, part,
                                          dci_gpu_kv_store_at(nodes, 0, chunk) + h * nodes->head_bytes,
                                          nodes->head_bytes));
                        ck_ok(t.ops->stream_wait(t.gpu, t.stream));
                        const uint16_t *scales =
                                (const uint16_t *)(const void *)(part + DCI_GPU_TREE_NODE_SCALES(block));
                        const int32_t *pages = (const int32_t *)(const void *)(part + DCI_GPU_TREE_NODE_PAGES(block));
                        ck_assert_uint_eq(scales[n % DCI_GPU_CHUNK], tree->node_scales[n]);
                        ck_assert_int_eq(pages[n % DCI_GPU_CHUNK], (int32_t)((tree->node_rows[n] + per - 1) / per));
                }
        }
        free(part);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

START_TEST(what_no_kernel_does_is_the_hosts)
{
        static const struct {
                int32_t keys, tokens, bits;
                double levels;
                const char *why;
        } cases[] = {{DCI_KV_TREE_EXACT, 0, 4, 0.0, "tree_keys EXACT: use CODES"},
                     {DCI_KV_TREE_MEANS, 0, 4, 0.0, "tree_keys MEANS: use CODES"},
                     {DCI_KV_TREE_CODES, 0, 8, 0.0, "codes of 8 bits"},
                     {0, 1, 4, 0.0, "tree_tokens"},
                     {0, 0, 4, 0.2, "levels of a tree"}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                dci_context *context = test_context(1);
                dci_gpu *gpu = twin_gpu(context);
                dci_gpu_kv *kv = NULL;
                dci_kv_config config = config_of(&shapes[0]);
                dci_gpu_kv_config on_device = twin_planned_for(1);
                config.tree_keys = cases[i].keys;
                config.tree_tokens = cases[i].tokens;
                config.key_bits = cases[i].bits;
                config.tree_promotion_subseq = cases[i].levels;
                ck_refused(dci_gpu_kv_create(gpu, &config, &on_device, &kv), DCI_ERR_UNSUPPORTED, cases[i].why);
                on_device.planner = DCI_GPU_PLAN_AUTO;
                ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
                ck_assert(!kv->planner.on);
                ck_assert_int_eq(kv->shape.tree_keys, cases[i].keys != 0 ? cases[i].keys : DCI_KV_TREE_EXACT);
                dci_gpu_kv_destroy(kv);
                on_device.planner = DCI_GPU_PLAN_HOST;
                config = config_of(&shapes[0]);
                ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
                ck_assert_int_eq(kv->shape.tree_keys, DCI_KV_TREE_EXACT);
                dci_gpu_kv_destroy(kv);
                dci_gpu_destroy(gpu);
                dci_context_destroy(context);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv trees");
        TCase *laws = test_case(suite, "laws", 60);
        tcase_add_loop_test(laws, lists_are_those_of_the_cpu, 0, N_SHAPES);
        tcase_add_loop_test(laws, trees_grow_together, 0, N_SHAPES);
        tcase_add_loop_test(laws, equal_scores_are_no_matter, 0, N_SHAPES);
        tcase_add_test(laws, a_trace_is_that_of_the_cpu);
        tcase_add_loop_test(laws, trees_go_where_sequences_go, 0, N_SHAPES);
        tcase_add_test(laws, files_hold_no_codes);
        tcase_add_loop_test(laws, the_devices_copy_is_the_hosts, 0, N_SHAPES);
        tcase_add_test(laws, what_no_kernel_does_is_the_hosts);
        return test_main(suite);
}
