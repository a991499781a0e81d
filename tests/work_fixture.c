/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/work_fixture.h"

#include <string.h>

work_data work_prepare(int32_t preset)
{
        work_data w = {.rows = pdci_trace("keys", WORK_ROWS), .queries = pdci_trace("queries", WORK_QUERIES)};
        w.config = kv_small(preset);
        if (w.config.preset == DCI_KV_CLUSTERKV || w.config.preset == DCI_KV_RETROINFER) {
                w.config.cluster_tokens = 4;
                w.config.cluster_every = 16;
        }
        w.data = kv_random(&w.config, WORK_TOKENS, 77);
        return w;
}

void work_free(work_data *work)
{
        test_free(work->rows, work->queries);
        kv_data_free(&work->data);
}

static void mix(uint64_t *hash, const void *data, size_t n_bytes)
{
        const unsigned char *bytes = data;
        for (size_t i = 0; i < n_bytes; i++)
                *hash = (*hash ^ bytes[i]) * UINT64_C(0x100000001b3);
}

/* --- indexes ---------------------------------------------------------------------------------------------------------------------------- */

dci_status work_search(const dci_index *index, const work_data *work, uint64_t *hash)
{
        int64_t ids[WORK_QUERIES * WORK_K];
        float scores[WORK_QUERIES * WORK_K];
        dci_status status = dci_index_search(index, WORK_QUERIES, work->queries, TRACE_DIM, WORK_K, NULL, ids, scores);
        if (status == DCI_OK) {
                mix(hash, ids, sizeof ids);
                mix(hash, scores, sizeof scores);
        }
        return status;
}

static dci_status live(dci_context *context, const work_data *work, dci_index *index, const char *path, uint64_t *hash)
{
        int64_t gone[100];
        dci_index *loaded = NULL;
        dci_status status = dci_index_add(index, WORK_ROWS, work->rows, TRACE_DIM, NULL, NULL);
        for (size_t i = 0; i < COUNT(gone); i++)
                gone[i] = (int64_t)(3 * i);
        if (status == DCI_OK)
                status = work_search(index, work, hash);
        if (status == DCI_OK)
                status = dci_index_remove(index, COUNT(gone), gone);
        if (status == DCI_OK)
                status = dci_index_save(index, path);
        if (status == DCI_OK)
                status = dci_index_load(context, path, &loaded);
        if (status == DCI_OK)
                status = work_search(loaded, work, hash);
        dci_index_destroy(loaded);
        loaded = NULL;
        if (status == DCI_OK)
                status = dci_index_map(context, path, &loaded);
        if (status == DCI_OK)
                status = work_search(loaded, work, hash);
        dci_index_destroy(loaded);
        return status;
}

dci_status work_index(dci_context *context, const work_data *work, dci_index_kind kind, const char *path,
                      uint64_t *hash)
{
        dci_index_config config;
        dci_index *index = NULL;
        dci_status status = dci_index_config_init(&config, sizeof config);
        config.dim = TRACE_DIM;
        config.target_recall = 1.0;
        config.kind = kind;
        config.metric = DCI_METRIC_IP;
        config.sketch_bits = kind == DCI_KIND_MDCI ? 4 : 0;
        if (status == DCI_OK)
                status = dci_index_create(context, &config, &index);
        if (status == DCI_OK)
                status = live(context, work, index, path, hash);
        dci_index_destroy(index);
        return status;
}

/* --- caches ----------------------------------------------------------------------------------------------------------------------------- */

static dci_status append(dci_kv *kv, const work_data *work, int64_t sequence, size_t layer, size_t from, size_t n)
{
        const kv_data *d = &work->data;
        const size_t first = (layer * d->n + from) * d->n_kv_heads, es = dci_dtype_size(d->dtype);
        dci_kv_rows rows;
        dci_status status = dci_kv_rows_init(&rows, sizeof rows);
        rows.keys = (const char *)d->stored_keys + first * d->dim_k * es;
        rows.values = (const char *)d->stored_values + first * d->dim_v * es;
        return status == DCI_OK ? dci_kv_append(kv, layer, 1, &sequence, &n, &rows) : status;
}

dci_status work_prompt(dci_kv *kv, const work_data *work, int64_t *out_sequence)
{
        enum { OBSERVED = 20 };
        const size_t n = WORK_PROMPT;
        dci_status status = dci_kv_open(kv, out_sequence);
        if (status == DCI_OK)
                status = dci_kv_reserve(kv, 1, out_sequence, &n);
        for (size_t layer = 0; layer < work->data.n_layers && status == DCI_OK; layer++) {
                status = append(kv, work, *out_sequence, layer, 0, n);
                if (status == DCI_OK)
                        status = dci_kv_end_prompt(kv, layer, *out_sequence, OBSERVED,
                                                   kv_query(&work->data, layer, n - OBSERVED, 0), work->data.dim_k);
        }
        return status == DCI_OK ? dci_kv_step_end(kv, 1, out_sequence) : status;
}

dci_status work_decode(dci_kv *kv, const work_data *work, int64_t sequence, size_t token, uint64_t *hash)
{
        const kv_data *d = &work->data;
        float out[64 * 16];
        const size_t floats = d->n_kv_heads * d->group * d->dim_v;
        dci_kv_plan plan;
        dci_status status = dci_kv_plan_init(&plan, sizeof plan);
        if (status == DCI_OK)
                status = dci_kv_plan_create(kv, 1, &plan);
        if (status == DCI_OK)
                status = dci_kv_reserve(kv, 1, &sequence, NULL);
        for (size_t layer = 0; layer < d->n_layers && status == DCI_OK; layer++) {
                const float *queries = kv_query(d, layer, token, 0);
                status = append(kv, work, sequence, layer, token, 1);
                if (status == DCI_OK)
                        status = dci_kv_plan_make(kv, layer, 1, &sequence, queries, d->dim_k, &plan);
                if (status == DCI_OK)
                        status = dci_kv_attend(kv, layer, 1, &sequence, queries, d->dim_k, &plan, out, d->dim_v, NULL);
                if (status == DCI_OK)
                        mix(hash, out, floats * sizeof *out);
        }
        if (status == DCI_OK)
                status = dci_kv_step_end(kv, 1, &sequence);
        if (status == DCI_OK)
                status = dci_kv_maintain(kv, 1, &sequence);
        dci_kv_plan_destroy(kv, &plan);
        return status;
}

static dci_status decode_all(dci_kv *kv, const work_data *work, int64_t sequence, size_t from, size_t n, uint64_t *hash)
{
        dci_status status = DCI_OK;
        for (size_t t = from; t < from + n && status == DCI_OK; t++)
                status = work_decode(kv, work, sequence, t, hash);
        return status;
}

dci_status work_kv(dci_context *context, const work_data *work, size_t max_bytes, const char *path, uint64_t *hash)
{
        dci_kv_config config = work->config;
        dci_kv *kv = NULL;
        int64_t sequence = -1, fork = -1, loaded = -1;
        config.max_bytes = max_bytes;
        dci_status status = dci_kv_create(context, &config, &kv);
        if (status == DCI_OK)
                status = work_prompt(kv, work, &sequence);
        if (status == DCI_OK)
                status = decode_all(kv, work, sequence, WORK_PROMPT, 30, hash);
        if (status == DCI_OK)
                status = dci_kv_fork(kv, sequence, WORK_PROMPT + 5, &fork);
        if (status == DCI_OK)
                status = decode_all(kv, work, fork, WORK_PROMPT + 5, 10, hash);
        if (status == DCI_OK)
                status = dci_kv_save(kv, sequence, WORK_PROMPT + 20, path);
        if (status == DCI_OK)
                status = dci_kv_load(kv, path, &loaded);
        if (status == DCI_OK)
                status = decode_all(kv, work, loaded, WORK_PROMPT + 20, 10, hash);
        if (status == DCI_OK)
                status = dci_kv_truncate(kv, sequence, WORK_PROMPT - 20);
        if (status == DCI_OK)
                status = dci_kv_close(kv, fork);
        dci_kv_destroy(kv);
        return status;
}

dci_status work_all(dci_context *context, const work_data *work, const char *path, uint64_t *hash)
{
        dci_status status = DCI_OK;
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI && status == DCI_OK; kind++)
                status = work_index(context, work, kind, path, hash);
        return status == DCI_OK ? work_kv(context, work, 0, path, hash) : status;
}
