/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The same as test_guard.c for KV caches: the caller's rows, queries, plans, outputs and lists, and a layout in the caller's memory. */
#include <stdio.h>
#include <string.h>

#include "tests/guard.h"
#include "tests/kv_fixture.h"

enum { SEQUENCES = 2, FIRST = 67, PROMPTS = 67 + 83, STEPS = 3, TOKENS = PROMPTS + STEPS * SEQUENCES, BLOCKS = 40 };

typedef struct life {
        dci_kv *kv;
        dci_kv_config config;
        kv_data data;
        size_t gap; /* elements between rows */
        int64_t ids[SEQUENCES];
        char what[100];
} life;

/* Tokens [first, first + n) of a layer: rows of all heads, `gap` elements between them. */
static const void *rows_of(const life *l, const void *stored, dci_dtype dtype, size_t n_heads, size_t dim, size_t layer,
                           size_t first, size_t n)
{
        const size_t es = dci_dtype_size(dtype), at = (layer * l->data.n + first) * n_heads * dim * es;
        return guard_rows((const char *)stored + at, n * n_heads, dim, dim + l->gap, es);
}

static const void *queries_of(const life *l, size_t layer, size_t first, size_t n)
{
        return rows_of(l, l->data.stored_queries, l->config.query_dtype, l->config.n_query_heads, l->config.dim_k,
                       layer, first, n);
}

static void append(const life *l, size_t layer, const size_t *n_tokens, size_t first, size_t n)
{
        const dci_kv_config *c = &l->config;
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = rows_of(l, l->data.stored_keys, c->dtype, c->n_kv_heads, c->dim_k, layer, first, n);
        rows.values = rows_of(l, l->data.stored_values, c->dtype, c->n_kv_heads, c->dim_v, layer, first, n);
        if (l->gap > 0) {
                rows.key_head_stride = c->dim_k + l->gap;
                rows.key_token_stride = c->n_kv_heads * rows.key_head_stride;
                rows.value_head_stride = c->dim_v + l->gap;
                rows.value_token_stride = c->n_kv_heads * rows.value_head_stride;
        }
        ck_ok(dci_kv_append(l->kv, layer, SEQUENCES, guard_in(l->ids, sizeof l->ids),
                            guard_in(n_tokens, SEQUENCES * sizeof *n_tokens), &rows));
}

static void prompts(const life *l)
{
        static const size_t n_tokens[SEQUENCES] = {FIRST, PROMPTS - FIRST};
        const dci_kv_config *c = &l->config;
        ck_ok(dci_kv_reserve(l->kv, SEQUENCES, guard_in(l->ids, sizeof l->ids), guard_in(n_tokens, sizeof n_tokens)));
        for (size_t layer = 0; layer < c->n_layers; layer++) {
                append(l, layer, n_tokens, 0, PROMPTS);
                for (size_t i = 0, end = 0; i < SEQUENCES; i++) {
                        end += n_tokens[i];
                        ck_ok(dci_kv_end_prompt(l->kv, layer, l->ids[i], 5, queries_of(l, layer, end - 5, 5),
                                                c->dim_k + l->gap));
                }
        }
        ck_ok(dci_kv_step_end(l->kv, SEQUENCES, guard_in(l->ids, sizeof l->ids)));
        ck_ok(dci_kv_wait(l->kv, -1));
        guard_release();
}

/* Arrays of the caller, as large as the header says. */
static dci_kv_plan caller_plan(const life *l)
{
        const dci_kv_info info = kv_info(l->kv);
        const size_t lists = l->config.n_kv_heads, heads = SEQUENCES * l->config.n_query_heads;
        dci_kv_plan p;
        ck_ok(dci_kv_plan_init(&p, sizeof p));
        p.max_sequences = SEQUENCES;
        p.n_lists = lists;
        p.stride = info.stride;
        p.slots = guard_out(SEQUENCES * lists * p.stride * sizeof(int32_t));
        p.positions = l->gap == 0 ? NULL : guard_out(SEQUENCES * lists * p.stride * sizeof(int32_t));
        p.counts = guard_out(SEQUENCES * lists * sizeof(int32_t));
        p.sink_end = guard_out(SEQUENCES * sizeof(int32_t));
        p.recent_begin = guard_out(SEQUENCES * sizeof(int32_t));
        p.n_tokens = guard_out(SEQUENCES * sizeof(int32_t));
        if (info.tail != DCI_KV_TAIL_DROP) {
                p.tail_out = guard_out(heads * l->config.dim_v * sizeof(float));
                p.tail_lse = guard_out(heads * sizeof(float));
        }
        return p;
}

static void step(const life *l, size_t number)
{
        static const size_t n_tokens[SEQUENCES] = {1, 1};
        const dci_kv_config *c = &l->config;
        const size_t first = PROMPTS + number * SEQUENCES, out_ld = c->dim_v + l->gap,
                     n_rows = SEQUENCES * c->n_query_heads;
        const int64_t *ids = guard_in(l->ids, sizeof l->ids);
        ck_ok(dci_kv_reserve(l->kv, SEQUENCES, ids, number == 0 ? NULL : guard_in(n_tokens, sizeof n_tokens)));
        for (size_t layer = 0; layer < c->n_layers; layer++) {
                append(l, layer, n_tokens, first, SEQUENCES);
                const void *queries = queries_of(l, layer, first, SEQUENCES);
                dci_kv_plan plan = caller_plan(l);
                ck_ok(dci_kv_plan_make(l->kv, layer, SEQUENCES, ids, queries, c->dim_k + l->gap, &plan));
                float *out = guard_out(guard_bytes(n_rows, c->dim_v, out_ld, sizeof *out));
                float *lse = number == 1 ? NULL : guard_out(n_rows * sizeof *lse);
                ck_ok(dci_kv_attend(l->kv, layer, SEQUENCES, ids, queries, c->dim_k + l->gap, &plan, out, out_ld, lse));
                guard_gaps(out, n_rows, c->dim_v, out_ld, sizeof *out, l->what);
                for (size_t i = 0; i < n_rows; i++)
                        for (size_t j = 0; j < c->dim_v; j++)
                                if (!(out[i * out_ld + j] == out[i * out_ld + j]))
                                        ck_abort_msg("%s: output %zu of row %zu was not written", l->what, j, i);
                ck_ok(dci_kv_attend(l->kv, layer, SEQUENCES, ids, queries, c->dim_k + l->gap, NULL, out, out_ld, lse));
                guard_gaps(out, n_rows, c->dim_v, out_ld, sizeof *out, l->what);
        }
        ck_ok(dci_kv_step_end(l->kv, SEQUENCES, ids));
        ck_ok(dci_kv_maintain(l->kv, SEQUENCES, ids));
        guard_release();
}

static void read_back(const life *l)
{
        const dci_kv_config *c = &l->config;
        const dci_kv_sequence_info info = kv_sequence_info(l->kv, l->ids[0]);
        const size_t n = info.n_tokens, es = dci_dtype_size(c->dtype);
        ck_ok(dci_kv_table(l->kv, l->ids[0], 0, info.n_blocks, guard_out(info.n_blocks * sizeof(int32_t))));
        ck_ok(dci_kv_table(l->kv, l->ids[0], 2, 3, guard_out(3 * sizeof(int32_t))));
        ck_ok(dci_kv_read(l->kv, 0, l->ids[0], 1, 0, n, guard_out(n * c->dim_k * es), guard_out(n * c->dim_v * es)));
        ck_ok(dci_kv_read(l->kv, 1, l->ids[0], 0, n - 1, 1, guard_out(c->dim_k * es), NULL));
        if (kv_info(l->kv).group == DCI_KV_GROUP_REORDERED) {
                size_t count, of_static;
                ck_ok(dci_kv_order(l->kv, 0, l->ids[0], 1, 0, NULL, &count, &of_static));
                ck_ok(dci_kv_order(l->kv, 0, l->ids[0], 1, count, guard_out(count * sizeof(int32_t)), &count, NULL));
        }
        guard_release();
}

static void begin(life *l, dci_context *context, int32_t kind, size_t number)
{
        static const size_t dims[] = {13, 16, 24};
        l->config = kv_config(kind, 2, 2, 2, dims[number % 3]);
        l->config.dim_v = dims[(number + 1) % 3];
        l->config.dtype = all_dtypes[number % 3];
        l->config.query_dtype = all_dtypes[number / 2 % 3];
        l->config.page_tokens = 8;
        l->config.sink = 5;
        l->config.window = l->config.rollback = 9;
        l->config.budget = 48;
        l->config.cluster_tokens = 6;
        l->config.cluster_every = 12;
        l->config.segment_buffer = 16;
        l->config.foreground = 1;
        l->gap = number % 2 * 3;
        snprintf(l->what, sizeof l->what, "kind %d, isa %s", (int)kind, dci_isa_name(dci_context_isa(context)));
        l->data = kv_random(&l->config, TOKENS, 3);
        guard_at_begin(number / 2 % 2 == 0);
}

static void live(life *l)
{
        for (size_t i = 0; i < SEQUENCES; i++)
                l->ids[i] = kv_open(l->kv);
        prompts(l);
        for (size_t i = 0; i < STEPS; i++)
                step(l, i);
        read_back(l);
}

START_TEST(a_cache_touches_nothing_but_the_arrays_of_its_caller)
{
        const size_t n = test_n_isas();
        for (size_t i = 0; i < n; i++) {
                dci_context *context = test_context_of_level((int)i);
                for (size_t k = 0; k < KV_N_KINDS; k++) {
                        life l = {0};
                        begin(&l, context, kv_presets[k], k + i);
                        l.kv = kv_create(context, &l.config);
                        live(&l);
                        kv_end(l.kv, &l.data);
                }
                dci_context_destroy(context);
        }
}
END_TEST

/* Keys and values of each layer end, or begin, where memory does; the other arrays come and go meanwhile. */
static void live_in_layout(dci_context *context, int32_t kind, size_t number)
{
        life l = {0};
        dci_kv_layout layout;
        begin(&l, context, kind, number);
        const size_t heads = l.config.n_kv_heads, page = l.config.page_tokens,
                     rows = heads * page * BLOCKS * dci_dtype_size(l.config.dtype);
        void *keys[2], *values[2];
        ck_ok(dci_kv_layout_init(&layout, sizeof layout));
        for (size_t i = 0; i < 2; i++) {
                keys[i] = guard_out(rows * l.config.dim_k);
                values[i] = guard_out(rows * l.config.dim_v);
        }
        guard_keep();
        layout.keys = keys;
        layout.values = values;
        layout.n_blocks = BLOCKS;
        layout.key_slot_stride = l.config.dim_k;
        layout.key_head_stride = page * layout.key_slot_stride;
        layout.key_page_stride = heads * layout.key_head_stride;
        layout.value_slot_stride = l.config.dim_v;
        layout.value_head_stride = page * layout.value_slot_stride;
        layout.value_page_stride = heads * layout.value_head_stride;
        layout.blocks_by = number % 2 == 0 ? DCI_KV_BLOCKS_BY_LIBRARY : DCI_KV_BLOCKS_BY_CALLER;
        l.config.layout = &layout;
        l.kv = kv_create(context, &l.config);
        for (size_t i = 0; i < SEQUENCES; i++)
                l.ids[i] = kv_open(l.kv);
        if (layout.blocks_by == DCI_KV_BLOCKS_BY_CALLER)
                for (size_t i = 0; i < SEQUENCES; i++) {
                        int32_t blocks[BLOCKS / 2];
                        for (size_t b = 0; b < BLOCKS / 2; b++) /* the last one of all first */
                                blocks[b] = (int32_t)(BLOCKS - 1 - i - 2 * b);
                        ck_ok(dci_kv_assign_blocks(l.kv, l.ids[i], BLOCKS / 2, guard_in(blocks, sizeof blocks)));
                }
        prompts(&l);
        for (size_t i = 0; i < STEPS; i++)
                step(&l, i);
        dci_kv_destroy(l.kv);
        guard_release_all();
        kv_data_free(&l.data);
}

START_TEST(a_cache_touches_nothing_beside_the_memory_of_its_caller)
{
        const size_t n = test_n_isas();
        for (size_t i = 0; i < n; i++) {
                dci_context *context = test_context_of_level((int)i);
                for (size_t k = 0; k < KV_N_KINDS; k++)
                        live_in_layout(context, kv_presets[k], k + i);
                dci_context_destroy(context);
        }
}
END_TEST

START_TEST(a_calibration_reads_nothing_but_its_queries)
{
        enum { LAYERS = 2, POSITIONS = 9 };
        const size_t n = test_n_isas();
        for (size_t i = 0; i < n; i++)
                for (size_t dim = 7; dim <= 33; dim += 13) {
                        dci_context *context = test_context_of_level((int)i);
                        dci_kv_config config = kv_config(DCI_KV_LOUISKV, LAYERS, 2, 2, dim);
                        double tau;
                        float *queries = test_normal(LAYERS * POSITIONS * 4, dim, 3);
                        guard_at_begin(dim % 2 == 0);
                        ck_ok(dci_kv_calibrate(context, &config, LAYERS, POSITIONS,
                                               guard_rows(queries, LAYERS * POSITIONS * 4, dim, dim + 2, sizeof(float)),
                                               dim + 2, 0.3, &tau));
                        free(queries);
                        guard_release();
                        dci_context_destroy(context);
                }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("test_guard_kv");
        TCase *tcase = test_case(suite, "arrays", 120);
        tcase_add_test(tcase, a_cache_touches_nothing_but_the_arrays_of_its_caller);
        tcase_add_test(tcase, a_cache_touches_nothing_beside_the_memory_of_its_caller);
        tcase_add_test(tcase, a_calibration_reads_nothing_but_its_queries);
        return test_main(suite);
}
