/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * At the corners of what a config allows, a device has kernels for what a step asks of it, or the KV cache is refused before there is one. Devices with
 * little shared memory are emulated ones (emulated/device.h).
 */
#include "tests/gpu_kv_fixture.h"

#include <stdlib.h>
#include <string.h>

#ifdef DCI_WITH_EMULATED
#include "tests/emulated/device.h"
#endif

enum { TOKENS = 20 };

static dci_gpu *host_device(dci_context *context)
{
        dci_gpu_config config;
        dci_gpu *gpu = NULL;
        ck_ok(dci_gpu_config_init(&config, sizeof config));
        config.device = DCI_GPU_HOST;
        ck_ok(dci_gpu_create(context, &config, &gpu));
        return gpu;
}

/* The first step of all sequences there may be, with plans and attention. */
static void first_step(dci_gpu *gpu, dci_gpu_kv *kv, const dci_kv_config *config, size_t n)
{
        const size_t dim = config->dim_k, all = n * TOKENS, row = config->n_kv_heads * dim,
                     queries = n * config->n_query_heads * dim;
        int64_t *ids = calloc(n, sizeof *ids);
        size_t *n_tokens = calloc(n, sizeof *n_tokens);
        void *keys = NULL, *asked = NULL, *out = NULL, *stream = NULL;
        ck_assert(ids != NULL && n_tokens != NULL);
        ck_ok(gpu->ops->stream_create(gpu, &stream));
        ck_ok(gpu->ops->alloc(gpu, all * row * 2, &keys));
        ck_ok(gpu->ops->alloc(gpu, queries * sizeof(float), &asked));
        ck_ok(gpu->ops->alloc(gpu, queries * sizeof(float), &out));
        ck_ok(gpu->ops->fill(gpu, stream, keys, 0x3d, all * row * 2));
        ck_ok(gpu->ops->fill(gpu, stream, asked, 0x3d, queries * sizeof(float)));
        for (size_t i = 0; i < n; i++) {
                ck_ok(dci_gpu_kv_open(kv, &ids[i]));
                n_tokens[i] = TOKENS;
        }
        ck_ok(dci_gpu_kv_reserve(kv, stream, n, ids, n_tokens));
        for (size_t l = 0; l < config->n_layers; l++) {
                const dci_kv_rows rows = {.struct_size = sizeof rows, .keys = keys, .values = keys};
                ck_ok(dci_gpu_kv_append(kv, stream, l, &rows));
                for (size_t i = 0; i < n; i++)
                        ck_ok(dci_gpu_kv_end_prompt(kv, stream, l, ids[i], 1, asked, dim));
                ck_ok(dci_gpu_kv_plan(kv, stream, l, asked, dim));
                ck_ok(dci_gpu_kv_attend(kv, stream, l, asked, dim, out, dim, NULL));
        }
        ck_ok(dci_gpu_kv_step_end(kv, stream));
        ck_ok(dci_gpu_kv_sync(kv));
        gpu->ops->free(gpu, keys, all * row * 2);
        gpu->ops->free(gpu, asked, queries * sizeof(float));
        gpu->ops->free(gpu, out, queries * sizeof(float));
        gpu->ops->stream_destroy(gpu, stream);
        test_free(ids, n_tokens);
}

/* --- parts of a tail --------------------------------------------------------------------------------------------------------- */

static size_t n_tails;

static dci_status looked_at(dci_gpu *gpu, void *stream, const dci_gpu_tail_sums_args *args)
{
        n_tails++;
        ck_assert_int_ge(args->n_parts, 1);
        ck_assert_int_le(args->n_parts, DCI_GPU_MAX_PARTS);
        ck_assert_int_lt(args->max_pages / args->n_parts, DCI_GPU_MAX_PART_PAGES);
        return dci_gpu_ops_host.tail_sums(gpu, stream, args);
}

/* However many sequences share the device's multiprocessors, and however long they may get. */
START_TEST(parts_of_a_tail_have_as_many_pages_as_there_are_bits_for)
{
        static const struct {
                size_t max_tokens;
                bool refused;
        } cases[] = {
                {(size_t)65535 * 8 - 1, false},  {(size_t)65535 * 8, false},          {(size_t)65536 * 8, false},
                {(size_t)65536 * 24 + 1, false}, {(size_t)65536 * 8 * 64 - 9, false}, {(size_t)65536 * 8 * 64, true},
                {DCI_KV_MAX_TOKENS, true}};
        dci_kv_config config = twin_small(DCI_KV_SKETCH_SUMS);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                for (size_t n = 1; n <= 3; n++) {
                        dci_context *context = test_context(1);
                        dci_gpu *gpu = host_device(context);
                        dci_gpu_kv_config on_device = twin_planned_for(n);
                        dci_gpu_ops ops = dci_gpu_ops_host;
                        dci_gpu_kv *kv = NULL;
                        ops.tail_sums = looked_at;
                        gpu->ops = &ops;
                        gpu->info.multiprocessors = 4;
                        on_device.max_tokens = cases[i].max_tokens;
                        if (cases[i].refused) {
                                ck_refused(dci_gpu_kv_create(gpu, &config, &on_device, &kv), DCI_ERR_UNSUPPORTED,
                                           "means of pages of 8");
                        } else {
                                ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
                                n_tails = 0;
                                first_step(gpu, kv, &config, n);
                                ck_assert_uint_gt(n_tails, 0);
                        }
                        dci_gpu_kv_destroy(kv);
                        dci_gpu_destroy(gpu);
                        dci_context_destroy(context);
                }
}
END_TEST

/* --- parts of a list ---------------------------------------------------------------------------------------------------------- */

static size_t n_splits;

static dci_status counted(dci_gpu *gpu, void *stream, const dci_gpu_attend_args *args)
{
        n_splits = (size_t)args->n_splits > n_splits ? (size_t)args->n_splits : n_splits;
        return dci_gpu_ops_host.attend(gpu, stream, args);
}

/* A budget may be larger than any sequence: what a list's parts leave has room for those of sequences. */
START_TEST(lists_are_cut_into_no_more_parts_than_sequences)
{
        dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = twin_planned_for(1);
        dci_context *context = test_context(1);
        dci_gpu *gpu = host_device(context);
        dci_gpu_ops ops = dci_gpu_ops_host;
        dci_gpu_kv *kv = NULL;
        ops.attend = counted;
        gpu->ops = &ops;
        gpu->info.multiprocessors = 132;
        config.budget = 4096;
        on_device.max_tokens = 512;
        ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
        n_splits = 0;
        first_step(gpu, kv, &config, 1);
        ck_assert_uint_gt(n_splits, 1);
        ck_assert_uint_le(n_splits, (size_t)dci_gpu_splits(gpu, 1, config.n_kv_heads, on_device.max_tokens));
        dci_gpu_kv_destroy(kv);
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
}
END_TEST

/* --- shared memory -------------------------------------------------------------------------------------------------------------- */

#ifdef DCI_WITH_EMULATED

#define LITTLE "101376" /* compute capability 8.6, 8.9 and 12.0 */
#define MUCH "232448"   /* 9.0 */
enum { LEARNED = -1 };

static const struct {
        const char *shared, *major;
        int32_t preset, planner;
        size_t budget, hot, dim, group, n_heads, n_sequences;
        const char *why; /* NULL: all goes through */
        int32_t found;   /* who plans */
} corners[] = {
        {LITTLE, "8", DCI_KV_SKETCH, DCI_GPU_PLAN_DEVICE, 4096, 4096, 64, 1, 1, 1, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "8", DCI_KV_SKETCH, DCI_GPU_PLAN_DEVICE, 4097, 4096, 64, 1, 1, 1, "with a budget of 4097", 0},
        {LITTLE, "8", DCI_KV_SKETCH, DCI_GPU_PLAN_AUTO, 4097, 4096, 64, 1, 1, 1, NULL, DCI_GPU_PLAN_HOST},
        {LITTLE, "8", DCI_KV_SKETCH, DCI_GPU_PLAN_AUTO, 8192, DCI_KV_PRESET, 64, 1, 1, 1, "8192 hot units", 0},
        {LITTLE, "8", DCI_KV_SKETCH, DCI_GPU_PLAN_HOST, 8192, 0, 64, 1, 1, 1, NULL, DCI_GPU_PLAN_HOST},
        {MUCH, "9", DCI_KV_SKETCH, DCI_GPU_PLAN_DEVICE, 8192, DCI_KV_PRESET, 64, 1, 1, 1, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "8", DCI_KV_SKETCH, DCI_GPU_PLAN_DEVICE, 96, 96, 256, 8, 1, 1, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "8", DCI_KV_SKETCH, DCI_GPU_PLAN_AUTO, 96, 96, 256, 9, 1, 1, "attention of 9 query heads", 0},
        {LITTLE, "12", DCI_KV_FULL, DCI_GPU_PLAN_AUTO, 96, 96, 256, 16, 1, 1, "attention of 16 query heads", 0},
        {LITTLE, "12", DCI_KV_FULL, DCI_GPU_PLAN_AUTO, 96, 96, 256, 8, 1, 2, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "12", DCI_KV_FULL, DCI_GPU_PLAN_AUTO, 96, 96, 128, 16, 1, 2, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "12", DCI_KV_FULL, DCI_GPU_PLAN_AUTO, 96, 96, 96, 2, 2, 2, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "12", DCI_KV_QUEST, DCI_GPU_PLAN_DEVICE, 96, 96, 64, 2, 2, 2, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "12", DCI_KV_SKETCH_LOWBIT, DCI_GPU_PLAN_DEVICE, 96, 96, 256, 4, 1, 2, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "12", DCI_KV_SKETCH_SUMS, DCI_GPU_PLAN_DEVICE, 96, 96, 256, 4, 1, 2, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "12", DCI_KV_RETROINFER, DCI_GPU_PLAN_DEVICE, 96, 96, 256, 4, 1, 2, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "12", DCI_KV_FREEKV, DCI_GPU_PLAN_DEVICE, 96, 96, 128, 2, 2, 2, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "8", LEARNED, DCI_GPU_PLAN_DEVICE, 96, 96, 128, 1, 1, 1, NULL, DCI_GPU_PLAN_DEVICE},
        {LITTLE, "8", LEARNED, DCI_GPU_PLAN_DEVICE, 96, 96, 256, 1, 1, 1, "learned codes of 256 elements", 0},
        {LITTLE, "8", LEARNED, DCI_GPU_PLAN_AUTO, 96, 96, 256, 1, 1, 1, NULL, DCI_GPU_PLAN_HOST},
        {MUCH, "9", DCI_KV_SKETCH, DCI_GPU_PLAN_AUTO, 96, 96, 64, 1, 16, 4096, "65536 lists", 0},
};
enum { N_CORNERS = sizeof corners / sizeof *corners };

/* Loops over corners. */
START_TEST(corners_go_through_or_are_refused_at_once)
{
        dci_kv_config config = twin_small(corners[_i].preset == LEARNED ? DCI_KV_SKETCH : corners[_i].preset);
        dci_gpu_kv_config on_device = twin_planned_for(corners[_i].n_sequences);
        dci_gpu_kv *kv = NULL;
        dci_gpu_kv_info info;
        ck_assert_int_eq(setenv("DCI_EMULATED_SHARED", corners[_i].shared, 1), 0);
        ck_assert_int_eq(setenv("DCI_EMULATED_MAJOR", corners[_i].major, 1), 0);
        if (corners[_i].preset == LEARNED)
                config.summary = DCI_KV_SUMMARY_LEARNED;
        config.budget = corners[_i].budget;
        config.dim_k = config.dim_v = corners[_i].dim;
        config.n_kv_heads = corners[_i].n_heads;
        config.n_query_heads = corners[_i].n_heads * corners[_i].group;
        on_device.planner = corners[_i].planner;
        on_device.hot_tokens = corners[_i].hot;
        on_device.max_tokens = 64;
        dci_context *context = test_context(1);
        dci_gpu *gpu = host_device(context);
        emulated_become(gpu);
        gpu->info.multiprocessors = 132;
        if (corners[_i].why != NULL) {
                ck_refused(dci_gpu_kv_create(gpu, &config, &on_device, &kv), DCI_ERR_UNSUPPORTED, corners[_i].why);
        } else {
                ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
                first_step(gpu, kv, &config, corners[_i].n_sequences);
                ck_ok(dci_gpu_kv_info_init(&info, sizeof info));
                ck_ok(dci_gpu_kv_get_info(kv, &info));
                ck_assert_int_eq(info.planner, corners[_i].found);
        }
        dci_gpu_kv_destroy(kv);
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
}
END_TEST

#endif

int main(void)
{
        Suite *suite = suite_create("gpu kv limits");
        TCase *limits = test_case(suite, "limits", 60);
        tcase_add_test(limits, parts_of_a_tail_have_as_many_pages_as_there_are_bits_for);
        tcase_add_test(limits, lists_are_cut_into_no_more_parts_than_sequences);
#ifdef DCI_WITH_EMULATED
        tcase_add_loop_test(limits, corners_go_through_or_are_refused_at_once, 0, N_CORNERS);
#endif
        return test_main(suite);
}
