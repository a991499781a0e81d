/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/gpu_history_fixture.h"

#include <string.h>

enum { OBSERVED = 32 };

/* Rows that were copied from what a call returned. */
typedef struct history_copy {
        struct history_copy *next;
        size_t at, layer;
        history_tale of;
} history_copy;

history_life history_begin_with(dci_context *context, const dci_kv_config *config, const dci_gpu_kv_config *on_device,
                                kv_data data)
{
        history_life l = {.t = twin_begin_with(context, config, on_device), .data = data};
        const size_t n = config->n_layers * HISTORY_N;
        l.t.own_context = true;
        l.row = config->n_kv_heads * config->dim_k * 2;
        l.query = config->n_query_heads * config->dim_k * sizeof(float);
        l.keys = twin_send(&l.t, l.data.stored_keys, n * l.row);
        l.values = twin_send(&l.t, l.data.stored_values, n * l.row);
        l.queries = twin_send(&l.t, l.data.stored_queries, n * l.query);
        l.kept = twin_send(&l.t, NULL, HISTORY_ROOM);
        return l;
}

history_life history_begin(const dci_kv_config *config, const dci_gpu_kv_config *on_device)
{
        return history_begin_with(test_context(2), config, on_device, kv_random(config, HISTORY_N, 3));
}

/* --- what was copied ---------------------------------------------------------------------------------------------- */

static void compare(const history_life *l, const history_copy *c, const unsigned char *seen)
{
        const size_t heads = l->t.config.n_kv_heads, row = l->row / heads, n = c->of.n;
        for (size_t v = 0; v < 2; v++)
                for (size_t h = 0; h < heads; h++)
                        for (size_t i = 0; i < n; i++) {
                                const void *stored = v == 0 ? l->data.stored_keys : l->data.stored_values;
                                const size_t token = c->layer * HISTORY_N + (size_t)c->of.tokens[i];
                                ck_assert_msg(memcmp(seen + c->at + ((v * heads + h) * n + i) * row,
                                                     (const unsigned char *)stored + token * l->row + h * row,
                                                     row) == 0,
                                              "%s, layer %zu, %s of token %zu of %zu (%zu new), head %zu", l->t.what,
                                              c->layer, v == 0 ? "key" : "value", i, n, c->of.more, h);
                        }
}

void history_check(history_life *l)
{
        unsigned char *seen = malloc(l->n_kept + 1);
        ck_assert_ptr_nonnull(seen);
        if (l->n_kept > 0)
                ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, seen, l->kept, l->n_kept));
        ck_ok(l->t.ops->stream_wait(l->t.gpu, l->t.stream));
        for (history_copy *c = l->copies, *next; c != NULL; c = next) {
                next = c->next;
                compare(l, c, seen);
                free(c);
        }
        l->copies = NULL;
        l->n_kept = 0;
        free(seen);
}

void history_keep(history_life *l)
{
        history_copy *c = malloc(sizeof *c);
        ck_assert_ptr_nonnull(c);
        *c = (history_copy){l->copies, l->n_kept, l->last_layer, *l->last_tale};
        const size_t n_bytes = c->of.n * l->row;
        ck_assert_uint_le(l->n_kept + 2 * n_bytes, HISTORY_ROOM);
        ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, l->kept + c->at, l->last.keys, n_bytes));
        ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, l->kept + c->at + n_bytes, l->last.values, n_bytes));
        l->n_kept += 2 * n_bytes;
        l->copies = c;
}

void history_end(history_life *l)
{
        const size_t n = l->t.config.n_layers * HISTORY_N;
        history_check(l);
        twin_give(&l->t, l->keys, n * l->row);
        twin_give(&l->t, l->values, n * l->row);
        twin_give(&l->t, l->queries, n * l->query);
        twin_give(&l->t, l->kept, HISTORY_ROOM);
        twin_end(&l->t);
        kv_data_free(&l->data);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

history_tale *history_open(history_life *l)
{
        history_tale *s = &l->tales[l->n_tales++];
        *s = (history_tale){.n = 0};
        ck_ok(dci_gpu_kv_open(l->t.kv, &s->id));
        return s;
}

void history_reserve(history_life *l, size_t n_turns, history_tale *const *turns, const size_t *n_tokens, size_t from)
{
        int64_t ids[HISTORY_MOST];
        l->from = from;
        for (size_t i = 0; i < n_turns; i++) {
                ids[i] = turns[i]->id;
                turns[i]->more = n_tokens[i];
                for (size_t j = 0; j < n_tokens[i]; j++)
                        turns[i]->tokens[turns[i]->n++] = (int32_t)from++;
        }
        ck_assert_uint_le(from, HISTORY_N);
        ck_ok(dci_gpu_kv_reserve(l->t.kv, l->t.stream, n_turns, ids, n_tokens));
        l->last.keys = NULL;
}

void history_append(history_life *l, size_t layer)
{
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = l->keys + (layer * HISTORY_N + l->from) * l->row;
        rows.values = l->values + (layer * HISTORY_N + l->from) * l->row;
        ck_ok(dci_gpu_kv_append(l->t.kv, l->t.stream, layer, &rows));
}

void history_end_prompt(history_life *l, size_t layer, const history_tale *s)
{
        const size_t n = s->more < OBSERVED ? s->more : OBSERVED,
                     first = s->more == 0 ? 0 : (size_t)s->tokens[s->n - n];
        ck_ok(dci_gpu_kv_end_prompt(l->t.kv, l->t.stream, layer, s->id, n,
                                    l->queries + (layer * HISTORY_N + first) * l->query, l->t.config.dim_k));
}

dci_status history_try(history_life *l, size_t layer, const history_tale *s)
{
        size_t n = 0;
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        const dci_status status = dci_gpu_kv_history(l->t.kv, l->t.stream, layer, s->id, &rows, &n);
        if (status != DCI_OK)
                return status;
        const size_t dim = l->t.config.dim_k;
        ck_assert_uint_eq(n, s->n);
        ck_assert_uint_eq(rows.struct_size, sizeof rows);
        ck_assert(rows.key_token_stride == dim && rows.value_token_stride == dim);
        ck_assert(rows.key_head_stride == n * dim && rows.value_head_stride == n * dim);
        ck_assert((uintptr_t)rows.keys % 16 == 0 && (uintptr_t)rows.values % 16 == 0);
        ck_assert((rows.keys == NULL) == (n == 0) && (rows.values == NULL) == (n == 0));
        l->last = rows;
        l->last_layer = layer;
        l->last_tale = s;
        return DCI_OK;
}

void history_ask(history_life *l, size_t layer, const history_tale *s)
{
        if (l->last.keys != NULL)
                history_keep(l);
        ck_ok(history_try(l, layer, s));
        if (l->early)
                ck_ok(l->t.ops->stream_wait(l->t.gpu, l->t.kv->history_stream));
        if (s->n > 0)
                history_keep(l);
}

void history_step_end(history_life *l)
{
        if (l->last.keys != NULL)
                history_keep(l);
        ck_ok(dci_gpu_kv_step_end(l->t.kv, l->t.stream));
        l->last.keys = NULL;
}

void history_step(history_life *l, history_tale *s, size_t n, size_t from)
{
        history_reserve(l, 1, &s, &n, from);
        for (size_t layer = 0; layer < l->t.config.n_layers; layer++) {
                history_append(l, layer);
                history_ask(l, layer, s);
        }
        history_step_end(l);
}

#define HOST DCI_GPU_PLAN_HOST
#define AUTO DCI_GPU_PLAN_AUTO
const history_kind history_kinds[HISTORY_KINDS] = {
        {DCI_KV_SKETCH, DCI_GPU_GATHER_MAPPED, AUTO, 8, 64, 2, 1, DCI_BF16, false},
        {DCI_KV_SKETCH_LOWBIT, DCI_GPU_GATHER_MAPPED, AUTO, 16, 128, 2, 0, DCI_F16, true},
        {DCI_KV_FULL, DCI_GPU_GATHER_MAPPED, AUTO, 8, 64, 3, 3, DCI_BF16, false},
        {DCI_KV_QUEST, DCI_GPU_GATHER_DIRECT, AUTO, 8, 64, 1, 2, DCI_F16, false},
        {DCI_KV_CLUSTERKV, DCI_GPU_GATHER_MAPPED, AUTO, 8, 64, 2, 1, DCI_BF16, true},
        {DCI_KV_ICECACHE, DCI_GPU_GATHER_STAGED, HOST, 8, 64, 2, 0, DCI_BF16, false},
        {DCI_KV_STREAMING, DCI_GPU_GATHER_BATCHED, HOST, 64, 96, 2, 1, DCI_F16, false},
        {DCI_KV_SKETCH, DCI_GPU_GATHER_COPIES, HOST, 32, 256, 1, 1, DCI_BF16, true},
        {DCI_KV_LOUISKV, DCI_GPU_GATHER_MAPPED, AUTO, 8, 64, 2, 0, DCI_BF16, false},
        {DCI_KV_FREEKV, DCI_GPU_GATHER_MAPPED, HOST, 8, 64, 2, 1, DCI_F16, false},
};

dci_kv_config history_config(const history_kind *k)
{
        dci_kv_config config = twin_small(k->preset);
        config.page_tokens = k->page;
        config.dim_k = config.dim_v = k->dim;
        config.n_kv_heads = k->heads;
        config.n_query_heads = 2 * k->heads;
        config.dense_layers = k->dense;
        config.dtype = k->dtype;
        return config;
}

dci_gpu_kv_config history_device(const history_kind *k)
{
        dci_gpu_kv_config config = twin_on_device();
        config.max_sequences = HISTORY_MOST;
        config.max_tokens = HISTORY_MAX_TOKENS;
        config.gather = k->gather;
        config.planner = k->planner;
        config.piece_bytes = k->large_pieces ? 0 : 1;
        return config;
}

dci_kv_config history_usual(void)
{
        const history_kind k = history_kinds[0];
        return history_config(&k);
}

dci_gpu_kv_config history_usual_device(void)
{
        const history_kind k = history_kinds[0];
        dci_gpu_kv_config config = history_device(&k);
        config.planner = DCI_GPU_PLAN_HOST;
        return config;
}

size_t history_token_bytes(const history_life *l)
{
        return 2 * l->row;
}
