/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A KV cache on a device refuses what it cannot do, with a sentence, and goes on; bad numbers are reported; figures are what was taken. */
#include "tests/gpu_kv_fixture.h"

#include <string.h>

enum { PROMPT = 200, N = 400 };

static dci_gpu_kv_config for_some(size_t n)
{
        dci_gpu_kv_config config = twin_on_device();
        config.max_sequences = n;
        return config;
}

/* --- configs ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(defaults_are_those_of_the_header)
{
        dci_gpu_kv_config c;
        ck_ok(dci_gpu_kv_config_init(&c, sizeof c));
        ck_assert(c.max_sequences == 1 && c.max_tokens == 131072 && c.ring_tokens == 0 &&
                  c.hot_tokens == DCI_KV_PRESET);
        ck_assert(c.gather == DCI_GPU_GATHER_MAPPED && c.out_dtype == DCI_F32 && c.piece_bytes == 0);
        ck_assert_uint_eq(c.max_device_bytes, 0);
        ck_refused(dci_gpu_kv_config_init(&c, 3), DCI_ERR_INVALID, "dci_gpu_kv_config");
        dci_gpu_kv_info info;
        ck_refused(dci_gpu_kv_info_init(&info, 3), DCI_ERR_INVALID, "dci_gpu_kv_info");
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        twin t = twin_begin(&config, NULL);
        ck_assert_uint_eq(twin_info(&t).ring, 128);
        ck_assert_uint_eq(twin_info(&t).hot, 2 * 96);
        ck_assert_uint_eq(twin_info(&t).sink, 16);
        twin_end(&t);
}
END_TEST

/* A piece has 8 MiB for each layer, or what all sequences may need, or a quarter of what there may be: the least of them. */
START_TEST(pieces_are_as_large_as_they_may_be)
{
        static const struct {
                size_t max_sequences, max_tokens, max_bytes, expected;
        } cases[] = {{1, 1 << 20, 0, (size_t)64 << 20},
                     {1, 1024, 0, 0},
                     {3, 1000, 0, 0},
                     {1, 1 << 20, 1 << 24, (1 << 22) + 1}};
        dci_context *host = test_context(1);
        dci_gpu *device = twin_gpu(host);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                dci_kv_config c = twin_small(DCI_KV_SKETCH);
                dci_gpu_kv_config d = for_some(cases[i].max_sequences);
                dci_gpu_kv *kv = NULL;
                c.max_bytes = cases[i].max_bytes;
                d.max_tokens = cases[i].max_tokens;
                d.piece_bytes = 0;
                ck_ok(dci_gpu_kv_create(device, &c, &d, &kv));
                const size_t page = kv->shape.page_tokens, tokens = (d.max_tokens + page - 1) / page * page;
                const size_t all = cases[i].max_sequences * tokens * c.n_layers * c.n_kv_heads * 2 * c.dim_k * 2;
                ck_assert_uint_eq(kv->config.piece_bytes, cases[i].expected > 0 ? cases[i].expected : all);
                dci_gpu_kv_destroy(kv);
        }
        dci_gpu_destroy(device);
        dci_context_destroy(host);
}
END_TEST

static dci_gpu *gpu;
static dci_context *context;

static void refused(const dci_kv_config *config, const dci_gpu_kv_config *on_device, dci_status status,
                    const char *part)
{
        dci_gpu_kv *kv = NULL;
        ck_refused(dci_gpu_kv_create(gpu, config, on_device, &kv), status, part);
        ck_assert_ptr_null(kv);
}

static int32_t taken(void *ctx, void *memory, size_t n_bytes)
{
        (void)ctx;
        (void)memory;
        (void)n_bytes;
        return 0;
}

START_TEST(configs_that_a_device_has_not_are_refused)
{
        context = test_context(1);
        gpu = twin_gpu(context);
        dci_kv_config c;
        dci_gpu_kv_config d;
        dci_kv_layout layout;
        dci_gpu_kv *kv = NULL;
#define REFUSED(change, status, part)                                                                                  \
        do {                                                                                                           \
                c = twin_small(DCI_KV_SKETCH);                                                                         \
                d = twin_on_device();                                                                                  \
                (void)(change);                                                                                        \
                refused(&c, &d, status, part);                                                                         \
        } while (0)
        ck_ok(dci_kv_layout_init(&layout, sizeof layout));
        REFUSED((c.hook.taken = taken, 0), DCI_ERR_UNSUPPORTED, "hook");
        REFUSED(c.dtype = DCI_F32, DCI_ERR_UNSUPPORTED, "dtype is 1");
        REFUSED(c.dim_k = 80, DCI_ERR_UNSUPPORTED, "dim_k is 80");
        REFUSED(c.dim_v = 128, DCI_ERR_UNSUPPORTED, "dim_v 128");
        REFUSED((c.query_head_lists = 1, c.preset = DCI_KV_ICECACHE, d.planner = DCI_GPU_PLAN_DEVICE),
                DCI_ERR_UNSUPPORTED, "query_head_lists and trees");
        REFUSED((c.n_query_heads = 34), DCI_ERR_UNSUPPORTED, "17 query heads");
        REFUSED(c.budget = 8193, DCI_ERR_UNSUPPORTED, "budget is 8193");
        REFUSED(c.page_tokens = 9, DCI_ERR_INVALID, "page_tokens is 9");
        REFUSED(c.struct_size = 5, DCI_ERR_INVALID, "dci_kv_config");
        REFUSED(d.struct_size = 5, DCI_ERR_INVALID, "dci_gpu_kv_config");
        REFUSED(d.max_sequences = 0, DCI_ERR_INVALID, "max_sequences is 0");
        REFUSED(d.max_sequences = 4097, DCI_ERR_INVALID, "max_sequences is 4097");
        REFUSED(d.max_tokens = 0, DCI_ERR_INVALID, "max_tokens is 0");
        REFUSED(d.max_tokens = DCI_KV_MAX_TOKENS + 1, DCI_ERR_INVALID, "max_tokens");
        REFUSED(d.ring_tokens = 95, DCI_ERR_INVALID, "ring_tokens is 95, expected 96");
        REFUSED(d.hot_tokens = 8193, DCI_ERR_INVALID, "hot_tokens is 8193");
        REFUSED(d.gather = 0, DCI_ERR_INVALID, "gather is 0");
        REFUSED(d.gather = 6, DCI_ERR_INVALID, "gather is 6, expected MAPPED, STAGED, BATCHED, COPIES or DIRECT");
        REFUSED(d.out_dtype = 9, DCI_ERR_INVALID, "out_dtype is 9");
        REFUSED(d.reserved = 7, DCI_ERR_INVALID, "reserved is 7, expected 0");
        REFUSED(d.piece_bytes = SIZE_MAX, DCI_ERR_INVALID, "piece_bytes is");
        REFUSED(d.max_device_bytes = 1000, DCI_ERR_FULL, "max_device_bytes 1000");
        REFUSED((c.n_layers = 1024, c.n_kv_heads = 15, c.n_query_heads = 15, d.max_sequences = 4096,
                 d.ring_tokens = (size_t)1 << 24),
                DCI_ERR_LIMIT, "too many");
        ck_refused(dci_gpu_kv_create(NULL, &c, &d, &kv), DCI_ERR_INVALID, "gpu is NULL");
        ck_refused(dci_gpu_kv_create(gpu, NULL, &d, &kv), DCI_ERR_INVALID, "config is NULL");
        ck_refused(dci_gpu_kv_create(gpu, &c, &d, NULL), DCI_ERR_INVALID, "out_kv is NULL");
        dci_gpu_kv_destroy(NULL);
        ck_assert_ptr_null(dci_gpu_kv_host(NULL));
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
}
END_TEST

/* --- calls ---------------------------------------------------------------------------------------------------------------------------- */

START_TEST(null_is_refused)
{
        int64_t id = 0;
        int32_t bad;
        dci_gpu_kv_info info;
        ck_ok(dci_gpu_kv_info_init(&info, sizeof info));
        ck_refused(dci_gpu_kv_open(NULL, &id), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_close(NULL, 0), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_fork(NULL, 0, 0, &id), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_truncate(NULL, 0, 0), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_save(NULL, 0, 0, "x"), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_load(NULL, "x", &id), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_reserve(NULL, NULL, 1, &id, NULL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_append(NULL, NULL, 0, NULL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_end_prompt(NULL, NULL, 0, 0, 0, NULL, 0), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_plan(NULL, NULL, 0, NULL, 0), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_attend(NULL, NULL, 0, NULL, 0, NULL, 0, NULL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_step_end(NULL, NULL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_step_abort(NULL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_maintain(NULL, 0, NULL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_sync(NULL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_poll(NULL, 1, &id, &bad), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_get_info(NULL, &info), DCI_ERR_INVALID, "kv is NULL");
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = for_some(1);
        twin t = twin_begin(&config, &on_device);
        ck_refused(dci_gpu_kv_open(t.kv, NULL), DCI_ERR_INVALID, "out_sequence");
        ck_refused(dci_gpu_kv_fork(t.kv, 0, 0, NULL), DCI_ERR_INVALID, "out_sequence");
        ck_refused(dci_gpu_kv_load(t.kv, "x", NULL), DCI_ERR_INVALID, "out_sequence");
        ck_refused(dci_gpu_kv_get_info(t.kv, NULL), DCI_ERR_INVALID, "out_info");
        info.struct_size = 3;
        ck_refused(dci_gpu_kv_get_info(t.kv, &info), DCI_ERR_INVALID, "dci_gpu_kv_info");
        ck_refused(dci_gpu_poll(t.kv, 1, NULL, &bad), DCI_ERR_INVALID, "sequences is NULL");
        ck_refused(dci_gpu_poll(t.kv, 1, &id, NULL), DCI_ERR_INVALID, "out_bad is NULL");
        ck_refused(dci_gpu_poll(t.kv, 1, &id, &bad), DCI_ERR_NOT_FOUND, "no sequence 0");
        twin_end(&t);
}
END_TEST

static void without_a_step(twin *t, int64_t sequence, int64_t other, const dci_kv_rows *rows, float *queries,
                           float *out)
{
        const size_t dim = t->config.dim_k;
        const int64_t twice[] = {sequence, sequence}, unknown = 99;
        const size_t many = 5000;
        ck_refused(dci_gpu_kv_append(t->kv, t->stream, 0, rows), DCI_ERR_INVALID, "no step is open");
        ck_refused(dci_gpu_kv_plan(t->kv, t->stream, 0, queries, dim), DCI_ERR_INVALID, "no step is open");
        ck_refused(dci_gpu_kv_attend(t->kv, t->stream, 0, queries, dim, out, dim, NULL), DCI_ERR_INVALID, "no step");
        ck_refused(dci_gpu_kv_end_prompt(t->kv, t->stream, 0, other, 0, NULL, dim), DCI_ERR_INVALID, "no step is open");
        ck_refused(dci_gpu_kv_step_end(t->kv, t->stream), DCI_ERR_INVALID, "no step is open");
        ck_refused(dci_gpu_kv_step_abort(t->kv), DCI_ERR_INVALID, "no step is open");
        ck_refused(dci_gpu_kv_reserve(t->kv, t->stream, 0, &sequence, NULL), DCI_ERR_INVALID, "n_sequences is 0");
        ck_refused(dci_gpu_kv_reserve(t->kv, t->stream, 3, twice, NULL), DCI_ERR_INVALID, "n_sequences is 3");
        ck_refused(dci_gpu_kv_reserve(t->kv, t->stream, 1, NULL, NULL), DCI_ERR_INVALID, "sequences is NULL");
        ck_refused(dci_gpu_kv_reserve(t->kv, t->stream, 1, &unknown, NULL), DCI_ERR_NOT_FOUND, "no sequence 99");
        ck_refused(dci_gpu_kv_reserve(t->kv, t->stream, 2, twice, NULL), DCI_ERR_INVALID, "twice");
        ck_refused(dci_gpu_kv_reserve(t->kv, t->stream, 1, &sequence, &many), DCI_ERR_LIMIT, "max_tokens is 4096");
}

/* Each refused call is followed by what it should have been; in the end everything is as on the CPU. */
START_TEST(calls_out_of_order_are_refused_and_change_nothing)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 61);
        const size_t dim = config.dim_k;
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0), other = twin_open(&t), unknown = 99;
        const kv_turn turn = {sequence, &data, PROMPT, 1};
        twin_rows rows = twin_rows_of(&t, 0, 1, &turn);
        float *queries = twin_send(&t, NULL, config.n_query_heads * dim * 4 + 64), *out = twin_send(&t, NULL, 8192);
        without_a_step(&t, sequence, other, &rows.rows, queries, out);
        twin_reserve(&t, 1, &turn);
        ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &other, NULL), DCI_ERR_INVALID, "a step is open already");
        /* The step's own sequence waits; others do not. */
        int64_t id;
        ck_refused(dci_gpu_kv_close(t.kv, sequence), DCI_ERR_INVALID, "middle of a step");
        ck_refused(dci_gpu_kv_truncate(t.kv, sequence, 3), DCI_ERR_INVALID, "middle of a step");
        ck_refused(dci_gpu_kv_fork(t.kv, sequence, 3, &id), DCI_ERR_INVALID, "middle of a step");
        ck_refused(dci_gpu_kv_save(t.kv, sequence, 3, "x"), DCI_ERR_INVALID, "middle of a step");
        ck_refused(dci_gpu_kv_maintain(t.kv, 1, &sequence), DCI_ERR_INVALID, "middle of a step");
        ck_refused(dci_gpu_kv_close(t.kv, unknown), DCI_ERR_NOT_FOUND, "no sequence 99");
        twin_truncate(&t, other, 0);
        /* Rows. */
        if (twin_device() == DCI_GPU_HOST)
                ck_refused(dci_gpu_kv_append(t.kv, NULL, 0, &rows.rows), DCI_ERR_INVALID, "the step began on");
        ck_refused(dci_gpu_kv_append(t.kv, t.stream, 3, &rows.rows), DCI_ERR_INVALID, "layer is 3");
        ck_refused(dci_gpu_kv_append(t.kv, t.stream, 0, NULL), DCI_ERR_INVALID, "rows is NULL");
        dci_kv_rows wrong = rows.rows;
        wrong.keys = NULL;
        ck_refused(dci_gpu_kv_append(t.kv, t.stream, 0, &wrong), DCI_ERR_INVALID, "keys is NULL");
        wrong = rows.rows;
        wrong.values = (const char *)rows.values + 2;
        ck_refused(dci_gpu_kv_append(t.kv, t.stream, 0, &wrong), DCI_ERR_INVALID,
                   "values is not aligned: 2 bytes past a multiple of 16");
        wrong = rows.rows;
        wrong.value_head_stride = dim + 1;
        ck_refused(dci_gpu_kv_append(t.kv, t.stream, 0, &wrong), DCI_ERR_INVALID, "value_head_stride is 130 bytes");
        wrong.value_head_stride = dim - 8;
        ck_refused(dci_gpu_kv_append(t.kv, t.stream, 0, &wrong), DCI_ERR_INVALID, "value_head_stride is 56");
        wrong.struct_size = 1;
        ck_refused(dci_gpu_kv_append(t.kv, t.stream, 0, &wrong), DCI_ERR_INVALID, "dci_kv_rows");
        ck_refused(dci_gpu_kv_plan(t.kv, t.stream, 0, queries, dim), DCI_ERR_INVALID, "not got its rows");
        ck_refused(dci_gpu_kv_step_end(t.kv, t.stream), DCI_ERR_INVALID, "layer 0 has 0 of the 1");
        for (size_t l = 0; l < config.n_layers; l++) {
                twin_append(&t, l, 1, &turn);
                ck_refused(dci_gpu_kv_append(t.kv, t.stream, l, &rows.rows), DCI_ERR_INVALID, "already");
                ck_refused(dci_gpu_kv_attend(t.kv, t.stream, l, queries, dim, out, dim, NULL), DCI_ERR_INVALID,
                           "has no plan");
                ck_refused(dci_gpu_kv_plan(t.kv, t.stream, l, NULL, dim), DCI_ERR_INVALID, "queries is NULL");
                ck_refused(dci_gpu_kv_plan(t.kv, t.stream, l, queries, dim - 1), DCI_ERR_INVALID, "stride is 63");
                ck_refused(dci_gpu_kv_plan(t.kv, t.stream, l, (char *)queries + 2, dim), DCI_ERR_INVALID, "aligned");
                twin_look(&t, l, 1, &turn);
                ck_refused(dci_gpu_kv_attend(t.kv, t.stream, l, queries, dim, NULL, dim, NULL), DCI_ERR_INVALID,
                           "out is NULL");
                ck_refused(dci_gpu_kv_attend(t.kv, t.stream, l, queries, dim, out, dim - 1, NULL), DCI_ERR_INVALID,
                           "outputs' stride is 63");
                ck_refused(dci_gpu_kv_attend(t.kv, t.stream, l, queries, dim, (char *)out + 1, dim, NULL),
                           DCI_ERR_INVALID, "outputs are not aligned");
                ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, l, sequence, 0, NULL, dim), DCI_ERR_INVALID,
                           "has ended");
                ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, l, other, 0, NULL, dim), DCI_ERR_INVALID,
                           "not in the step");
                ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, l, unknown, 0, NULL, dim), DCI_ERR_NOT_FOUND, "99");
        }
        twin_step_end(&t, 1, &turn);
        twin_decode(&t, sequence, &data, PROMPT + 1, 4);
        ck_refused(dci_gpu_kv_truncate(t.kv, sequence, N), DCI_ERR_INVALID, "tokens, not");
        ck_refused(dci_gpu_kv_load(t.kv, "/nowhere/at/all", &id), DCI_ERR_FULL, "max_sequences");
        ck_refused(dci_gpu_kv_maintain(t.kv, 1, &unknown), DCI_ERR_NOT_FOUND, "99");
        twin_rows_free(&t, &rows);
        twin_give(&t, queries, config.n_query_heads * dim * 4 + 64);
        twin_give(&t, out, 8192);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Prompts: twice before the host knew, queries that are none, too many positions. */
START_TEST(prompts_that_cannot_be_are_refused)
{
        const dci_kv_config config = twin_small(DCI_KV_SNAPKV);
        const dci_gpu_kv_config on_device = for_some(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 62);
        const size_t dim = config.dim_k, row = config.n_query_heads * dim * sizeof(float);
        const kv_turn turn = {twin_open(&t), &data, 0, PROMPT};
        float *host = malloc(20 * row);
        ck_assert_ptr_nonnull(host);
        memset(host, 0xff, 20 * row);
        void *bad = twin_send(&t, host, 20 * row);
        twin_reserve(&t, 1, &turn);
        ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, 1, turn.sequence, 20, bad, dim), DCI_ERR_INVALID,
                   "has 0 of the 200");
        for (size_t l = 0; l < config.n_layers; l++)
                twin_append(&t, l, 1, &turn);
        ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, 1, turn.sequence, 201, bad, dim), DCI_ERR_INVALID,
                   "201 positions");
        ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, 1, turn.sequence, 20, NULL, dim), DCI_ERR_INVALID,
                   "queries is NULL");
        ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, 1, turn.sequence, 20, bad, 5), DCI_ERR_INVALID, "stride is 5");
        ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, 1, turn.sequence, 0, NULL, dim), DCI_ERR_INVALID,
                   "observed queries");
        /* What the queries are shows when they have come. */
        ck_ok(dci_gpu_kv_end_prompt(t.kv, t.stream, 1, turn.sequence, 20, bad, dim));
        ck_refused(dci_gpu_kv_end_prompt(t.kv, t.stream, 1, turn.sequence, 20, bad, dim), DCI_ERR_INVALID,
                   "ended already");
        ck_refused(dci_gpu_kv_step_end(t.kv, t.stream), DCI_ERR_NUMBER, "position 0 and head 0");
        ck_refused(dci_gpu_kv_plan(t.kv, t.stream, 1, bad, dim), DCI_ERR_NUMBER, "position 0 and head 0");
        twin_abort(&t, 1, &turn);
        const bool end = true;
        twin_step(&t, 1, &turn, &end, true);
        twin_decode(&t, turn.sequence, &data, PROMPT, 3);
        twin_give(&t, bad, 20 * row);
        free(host);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Queries of a step. */
START_TEST(queries_that_are_no_numbers_are_refused)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = for_some(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 63);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        const kv_turn turn = {sequence, &data, PROMPT, 1};
        float *host = kv_queries(1, 1, &turn);
        host[config.dim_k + 3] = -1.0f / 0.0f;
        const size_t n_bytes = config.n_query_heads * config.dim_k * sizeof *host;
        void *bad = twin_send(&t, host, n_bytes);
        twin_reserve(&t, 1, &turn);
        for (size_t l = 0; l < config.n_layers; l++) {
                twin_append(&t, l, 1, &turn);
                if (!t.kv->layers[l].dense)
                        ck_refused(dci_gpu_kv_plan(t.kv, t.stream, l, bad, config.dim_k), DCI_ERR_NUMBER, "head 1");
                twin_look(&t, l, 1, &turn);
        }
        twin_step_end(&t, 1, &turn);
        free(host);
        twin_give(&t, bad, n_bytes);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- bad rows -------------------------------------------------------------------------------------------------------------------------- */

static int32_t polled(twin *t, int64_t sequence)
{
        int32_t bad = 7;
        ck_ok(dci_gpu_poll(t->kv, 1, &sequence, &bad));
        return bad;
}

/* One number of one row, key or value, NaN or infinity, in each layer: the sequence is named, and goes no further. */
START_TEST(rows_that_are_no_numbers_are_told)
{
        const dci_kv_config config = twin_small(_i % 2 == 0 ? DCI_KV_SKETCH_LOWBIT : DCI_KV_QUEST);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 64);
        const int64_t good = twin_prefill(&t, &data, PROMPT, 0);
        int64_t bad;
        ck_ok(dci_gpu_kv_open(t.kv, &bad));
        kv_data broken = kv_random(&config, PROMPT, 65);
        const size_t layer = (size_t)_i % config.n_layers;
        float *where = (float *)(_i < 3 ? kv_key(&broken, layer, 77, 1) : kv_value(&broken, layer, 150, 0));
        where[5] = _i < 2 ? 0.0f / 0.0f : 1.0f / 0.0f;
        kv_data_store(&broken);
        const kv_turn turn = {bad, &broken, 0, PROMPT};
        const size_t n = PROMPT;
        ck_ok(dci_gpu_kv_reserve(t.kv, t.stream, 1, &bad, &n));
        for (size_t l = 0; l < config.n_layers; l++) {
                twin_rows rows = twin_rows_of(&t, l, 1, &turn);
                ck_ok(dci_gpu_kv_append(t.kv, t.stream, l, &rows.rows));
                ck_ok(dci_gpu_kv_end_prompt(t.kv, t.stream, l, bad, 0, NULL, config.dim_k));
                twin_rows_free(&t, &rows);
                ck_assert_int_eq(polled(&t, bad), l >= layer ? (int)layer + 1 : 0);
        }
        ck_refused(dci_gpu_kv_step_end(t.kv, t.stream), DCI_ERR_NUMBER, "NaN or infinity");
        ck_ok(dci_gpu_kv_step_abort(t.kv));
        ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &bad, &n), DCI_ERR_NUMBER, "NaN or infinity: close it");
        ck_refused(dci_gpu_kv_maintain(t.kv, 1, &bad), DCI_ERR_NUMBER, "NaN or infinity");
        ck_assert_int_eq(polled(&t, good), 0);
        ck_ok(dci_gpu_kv_maintain(t.kv, 0, NULL));
        twin_decode(&t, good, &data, PROMPT, 3);
        ck_ok(dci_gpu_kv_close(t.kv, bad));
        /* Who gets the place begins again. */
        int64_t next;
        ck_ok(dci_gpu_kv_open(t.kv, &next));
        ck_assert_int_eq(polled(&t, next), 0);
        twin_decode(&t, good, &data, PROMPT + 3, 3);
        kv_data_free(&data);
        kv_data_free(&broken);
        twin_end(&t);
}
END_TEST

/* A step of one bad token next to a good one: its plan is refused, and the step taken back leaves the good one as it was. */
START_TEST(a_bad_token_stops_its_step)
{
        const dci_kv_config config = twin_small(DCI_KV_TOPK);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 66), broken = kv_random(&config, 1, 67);
        const int64_t good = twin_prefill(&t, &data, PROMPT, 0), bad = twin_prefill(&t, &data, PROMPT, 0);
        ((float *)kv_key(&broken, 1, 0, 0))[0] = 0.0f / 0.0f;
        kv_data_store(&broken);
        const kv_turn turns[] = {{good, &data, PROMPT, 1}, {bad, &broken, 0, 1}};
        const int64_t names[] = {good, bad};
        ck_ok(dci_gpu_kv_reserve(t.kv, t.stream, 2, names, NULL));
        void *host = kv_queries(1, 2, turns);
        const size_t n_bytes = 2 * config.n_query_heads * config.dim_k * sizeof(float);
        void *queries = twin_send(&t, host, n_bytes);
        for (size_t l = 0; l < 2; l++) {
                twin_rows rows = twin_rows_of(&t, l, 2, turns);
                ck_ok(dci_gpu_kv_append(t.kv, t.stream, l, &rows.rows));
                twin_rows_free(&t, &rows);
        }
        ck_ok(dci_gpu_kv_plan(t.kv, t.stream, 0, queries, config.dim_k)); /* dense: it reads nothing */
        ck_refused(dci_gpu_kv_plan(t.kv, t.stream, 1, queries, config.dim_k), DCI_ERR_NUMBER,
                   "sequence 1 has got rows");
        ck_ok(dci_gpu_kv_step_abort(t.kv));
        twin_decode(&t, good, &data, PROMPT, 3);
        free(host);
        twin_give(&t, queries, n_bytes);
        kv_data_free(&data);
        kv_data_free(&broken);
        twin_end(&t);
}
END_TEST

/* --- strides and formats ---------------------------------------------------------------------------------------------------------------- */

/* Keys and values side by side in one array, as a fused projection leaves them; queries and outputs with gaps. */
START_TEST(strides_are_the_callers)
{
        dci_kv_config config = twin_small(DCI_KV_SKETCH_LOWBIT);
        const dci_gpu_kv_config on_device = for_some(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 68);
        const size_t dim = config.dim_k, n_heads = config.n_kv_heads, es = 2, n_q = config.n_query_heads;
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        for (size_t s = 0; s < 30; s++) {
                const size_t n = s == 0 ? 37 : 1, from = s == 0 ? PROMPT : PROMPT + 36 + s;
                const kv_turn turn = {sequence, &data, from, n};
                twin_reserve(&t, 1, &turn);
                for (size_t l = 0; l < config.n_layers; l++) {
                        const size_t wide = 2 * n_heads * dim * es;
                        char *both = malloc(n * wide);
                        ck_assert_ptr_nonnull(both);
                        for (size_t i = 0; i < n; i++)
                                for (size_t h = 0; h < n_heads; h++) {
                                        const size_t row = ((l * data.n + from + i) * n_heads + h) * dim * es;
                                        memcpy(both + i * wide + 2 * h * dim * es, (char *)data.stored_keys + row,
                                               dim * es);
                                        memcpy(both + i * wide + (2 * h + 1) * dim * es,
                                               (char *)data.stored_values + row, dim * es);
                                }
                        void *there = twin_send(&t, both, n * wide);
                        dci_kv_rows rows = {.struct_size = sizeof rows,
                                            .keys = there,
                                            .values = (char *)there + dim * es,
                                            .key_token_stride = 2 * n_heads * dim,
                                            .key_head_stride = 2 * dim,
                                            .value_token_stride = 2 * n_heads * dim,
                                            .value_head_stride = 2 * dim};
                        ck_ok(dci_gpu_kv_append(t.kv, t.stream, l, &rows));
                        kv_append(t.cpu, l, 1, &turn);
                        twin_look(&t, l, 1, &turn);
                        /* The same again with queries and outputs apart. */
                        float *tight = kv_queries(l, 1, &turn), *loose = calloc(n_q * (dim + 5), sizeof *loose);
                        float *seen = malloc(2 * n_q * (dim + 9) * sizeof *seen);
                        ck_assert(loose != NULL && seen != NULL);
                        for (size_t q = 0; q < n_q; q++)
                                memcpy(loose + q * (dim + 5), tight + q * dim, dim * sizeof *loose);
                        void *a = twin_send(&t, tight, n_q * dim * 4), *b = twin_send(&t, loose, n_q * (dim + 5) * 4);
                        float *out = twin_send(&t, NULL, 2 * n_q * (dim + 9) * 4);
                        ck_ok(dci_gpu_kv_plan(t.kv, t.stream, l, b, dim + 5));
                        ck_ok(dci_gpu_kv_attend(t.kv, t.stream, l, a, dim, out, dim, NULL));
                        ck_ok(dci_gpu_kv_attend(t.kv, t.stream, l, b, dim + 5, out + n_q * (dim + 9), dim + 9, NULL));
                        ck_ok(t.ops->copy(t.gpu, t.stream, seen, out, 2 * n_q * (dim + 9) * 4));
                        ck_ok(t.ops->stream_wait(t.gpu, t.stream));
                        for (size_t q = 0; q < n_q; q++)
                                ck_assert_mem_eq(seen + q * dim, seen + (n_q + q) * (dim + 9), dim * 4);
                        twin_give(&t, out, 2 * n_q * (dim + 9) * 4);
                        twin_give(&t, a, n_q * dim * 4);
                        twin_give(&t, b, n_q * (dim + 5) * 4);
                        twin_give(&t, there, n * wide);
                        test_free(both, tight, loose, seen);
                }
                twin_step_end(&t, 1, &turn);
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- figures ------------------------------------------------------------------------------------------------------------------------------ */

START_TEST(figures_are_what_was_taken)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = for_some(3);
        twin t = twin_begin(&config, &on_device);
        dci_gpu_kv_info info = twin_info(&t);
        const size_t row = config.dim_k * 2, token = 2 * config.n_kv_heads * row;
        ck_assert_uint_eq(info.lane_bytes, 2 * 3 * (16 + 128 + 192) * token);
        ck_assert_uint_eq(info.dense_bytes, 0);
        ck_assert_uint_eq(info.device_bytes, info.lane_bytes + info.table_bytes + info.buffer_bytes);
        const size_t before = info.pinned_bytes, device = info.device_bytes;
        kv_data data = kv_random(&config, N, 69);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        info = twin_info(&t);
        const dci_kv_info host = kv_info(dci_gpu_kv_host(t.kv));
        ck_assert_uint_eq(info.pinned_bytes, before + host.row_bytes);
        ck_assert_uint_eq(info.dense_bytes, host.n_blocks * config.page_tokens * token);
        ck_assert_uint_eq(info.bytes_written, (uint64_t)PROMPT * config.n_layers * token);
        ck_assert_uint_eq(info.n_steps, 1);
        ck_assert(info.n_asked == 0 && info.n_missed == 0 && info.n_stayed == 0 && info.bytes_fetched == 0);
        twin_decode(&t, sequence, &data, PROMPT, 5);
        info = twin_info(&t);
        ck_assert_uint_eq(info.n_steps, 6);
        ck_assert_uint_eq(info.bytes_written, (uint64_t)(PROMPT + 5) * config.n_layers * token);
        twin_end(&t);
        /* The limit: all that is taken at once fits, the first piece of dense layers does not. */
        on_device.max_device_bytes = device;
        t = twin_begin(&config, &on_device);
        const int64_t refused_one = twin_open(&t);
        ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &refused_one, NULL), DCI_ERR_FULL, "max_device_bytes");
        ck_assert_uint_eq(kv_info(dci_gpu_kv_host(t.kv)).n_blocks, 0);
        ck_assert_uint_eq(kv_sequence_info(dci_gpu_kv_host(t.kv), refused_one).n_reserved, 0);
        ck_assert_uint_eq(twin_info(&t).device_bytes, device);
        kv_data_free(&data);
        twin_end(&t);
        gpu = twin_gpu(context = test_context(1));
        on_device.max_device_bytes = device - 1;
        refused(&config, &on_device, DCI_ERR_FULL, "max_device_bytes");
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
}
END_TEST

/* As long as max_tokens says, in as many sequences as max_sequences says: the tables suffice; one more is refused. */
START_TEST(sequences_may_be_as_long_as_was_said)
{
        dci_kv_config config = twin_small(_i == 0 ? DCI_KV_FULL : DCI_KV_STREAMING);
        dci_gpu_kv_config on_device = for_some(3);
        on_device.max_tokens = 203;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 70);
        for (size_t i = 0; i < 3; i++) {
                const int64_t sequence = twin_prefill(&t, &data, 200, 0);
                twin_decode(&t, sequence, &data, 200, 3);
                ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &sequence, NULL), DCI_ERR_LIMIT, "has 203 tokens");
        }
        ck_assert_uint_le(t.kv->pool->n_pieces, t.kv->pool->piece_capacity);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv edges");
        TCase *edges = test_case(suite, "edges", 60);
        tcase_add_test(edges, defaults_are_those_of_the_header);
        tcase_add_test(edges, pieces_are_as_large_as_they_may_be);
        tcase_add_test(edges, configs_that_a_device_has_not_are_refused);
        tcase_add_test(edges, null_is_refused);
        tcase_add_test(edges, calls_out_of_order_are_refused_and_change_nothing);
        tcase_add_test(edges, prompts_that_cannot_be_are_refused);
        tcase_add_test(edges, queries_that_are_no_numbers_are_refused);
        tcase_add_loop_test(edges, rows_that_are_no_numbers_are_told, 0, 6);
        tcase_add_test(edges, a_bad_token_stops_its_step);
        tcase_add_test(edges, strides_are_the_callers);
        tcase_add_test(edges, figures_are_what_was_taken);
        tcase_add_loop_test(edges, sequences_may_be_as_long_as_was_said, 0, 2);
        return test_main(suite);
}
