/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Search: check, prepare the queries, take a view, run the core. */
#include "index/index_internal.h"

#include <math.h>
#include <string.h>

#include "index/mdci/mdci.h"
#include "index/pdci/search.h"

#define MAX_K ((size_t)1 << 24)
#define MAX_RESULTS ((size_t)1 << 40)

static dci_status check_queries(const dci_index *index, size_t n, const void *queries, size_t ld)
{
        const size_t element = dci_dtype_size(index->config.query_dtype);
        size_t row_bytes, total;
        if (queries == NULL)
                return dci_fail(DCI_ERR_INVALID, "queries is NULL");
        if (ld < index->config.dim)
                return dci_fail(DCI_ERR_INVALID, "ld is %zu, expected at least the dimension %zu", ld,
                                index->config.dim);
        if (!dci_mul(ld, element, &row_bytes) || !dci_mul(row_bytes, n, &total))
                return dci_fail(DCI_ERR_LIMIT, "%zu queries of %zu elements exceed the address space", n, ld);
        return dci_check_aligned("queries", queries, element);
}

dci_status dci_queries_prepare(const dci_index *index, size_t n, const void *queries, size_t ld, dci_queries *out)
{
        const size_t dim = index->config.dim;
        const dci_dtype dtype = index->config.query_dtype;
        const dci_kernels *kernels = index->context->kernels;
        const bool cosine = index->config.metric == DCI_METRIC_COSINE, convert = dtype != DCI_F32;
        const size_t row_bytes = ld * dci_dtype_size(dtype);
        memset(out, 0, sizeof *out);
        dci_status status = check_queries(index, n, queries, ld);
        if (status != DCI_OK)
                return status;

        size_t per_query = (convert ? dim : 0) + (cosine ? 1 : 0), n_floats = 0;
        if (!dci_mul(n, per_query, &n_floats))
                return dci_fail(DCI_ERR_LIMIT, "%zu queries of %zu elements exceed the address space", n, dim);
        float *scratch = NULL;
        if (n_floats > 0) {
                scratch = dci_alloc(index->context, n_floats, sizeof *scratch);
                if (scratch == NULL)
                        return DCI_ERR_MEMORY;
        }
        out->n = n;
        out->owned = scratch;
        out->owned_bytes = n_floats * sizeof *scratch;
        out->rows = convert ? scratch : queries;
        out->ld = convert ? dim : ld;
        out->inverse_norms = cosine ? scratch + (convert ? n * dim : 0) : NULL;
        for (size_t i = 0; i < n; i++) {
                const unsigned char *row = (const unsigned char *)queries + i * row_bytes;
                status = dci_check_row(index, dtype, row, "query", i, cosine ? &out->inverse_norms[i] : NULL);
                if (status != DCI_OK) {
                        dci_queries_free(index, out);
                        return status;
                }
                if (convert)
                        kernels->to_f32[dtype - 1](row, dim, scratch + i * dim);
        }
        return DCI_OK;
}

void dci_queries_free(const dci_index *index, dci_queries *queries)
{
        dci_free(index->context, queries->owned, queries->owned_bytes, 1);
        queries->owned = NULL;
}

static int64_t id_of(const void *ctx, int32_t slot)
{
        return dci_view_id(ctx, slot);
}

dci_status dci_reading_begin(const dci_index *index, size_t n_queries, const void *queries, size_t ld,
                             const dci_search_params *params, dci_reading *out)
{
        memset(out, 0, sizeof *out);
        dci_status status = dci_params_resolve(index, params, &out->params);
        if (status != DCI_OK)
                return status;
        status = dci_queries_prepare(index, n_queries, queries, ld, &out->queries);
        if (status != DCI_OK)
                return status;
        status = dci_filter_test(index, out->params.filter, &out->admitted);
        if (status == DCI_OK) {
                dci_index_read_begin(index);
                dci_flat *flat = &out->flat;
                flat->context = index->context;
                flat->kernels = index->context->kernels;
                flat->metric = index->config.metric;
                flat->view = dci_rows_view(&index->rows);
                flat->queries = &out->queries;
                flat->selection = &out->selection;
                flat->object = index;
                flat->progress = &out->params.progress;
                /* The map is read after the view: one that appeared since covers at least its rows, with the same ids. */
                if (atomic_load_explicit(&index->map, memory_order_acquire) != NULL)
                        flat->ids = (dci_slot_ids){id_of, &flat->view};
                status = dci_filter_select(index, &flat->view, out->params.filter, &out->admitted, &out->selection);
                flat->n = out->selection.n;
                if (status != DCI_OK)
                        dci_index_read_end(index);
        }
        if (status != DCI_OK) {
                dci_filter_free(index, &out->admitted, &out->selection);
                dci_queries_free(index, &out->queries);
        }
        return status;
}

void dci_reading_end(const dci_index *index, dci_reading *reading)
{
        dci_index_read_end(index);
        dci_filter_free(index, &reading->admitted, &reading->selection);
        dci_queries_free(index, &reading->queries);
}

/* Every row that counts, named: an index with gaps has no other way to say "all". */
dci_status dci_reading_name_all(const dci_index *index, dci_reading *reading)
{
        if (!reading->flat.view.rows->gaps || !reading->selection.all)
                return DCI_OK;
        return dci_filter_occupied(index, &reading->flat.view, &reading->selection);
}

dci_status dci_search_kind(const dci_index *index, dci_reading *reading, size_t group, size_t k, int64_t *out_ids,
                           float *out_scores, dci_search_stats *stats)
{
        const dci_flat *flat = &reading->flat;
        size_t keep = 0;
        const bool sketched = dci_sketched_wanted(index, &reading->params, flat->n, k, &keep);
        dci_mdci_search mdci;
        if (dci_mdci_effort(index, &reading->params, flat, k, &mdci)) {
                dci_status status = dci_mdci_begin(&mdci, index, flat, group);
                if (status == DCI_OK && sketched)
                        status = dci_sketched_search(flat, &mdci.candidates, &reading->params, keep, k, out_ids,
                                                     out_scores, stats);
                else if (status == DCI_OK)
                        status = dci_candidates_search(&mdci.candidates, k, out_ids, out_scores, stats);
                dci_mdci_end(&mdci);
                return status;
        }
        dci_status named = dci_reading_name_all(index, reading);
        if (named != DCI_OK)
                return named;
        dci_pdci_effort effort;
        if (dci_pdci_budget(index, &reading->params, flat->n, k, &effort)) {
                dci_pdci_search pdci;
                dci_status status = dci_pdci_begin(&pdci, index, flat, &effort);
                if (status != DCI_OK)
                        return status;
                status = sketched ? dci_sketched_search(flat, &pdci.candidates, &reading->params, keep, k, out_ids,
                                                        out_scores, stats)
                                  : dci_candidates_search(&pdci.candidates, k, out_ids, out_scores, stats);
                dci_pdci_end(&pdci);
                return status;
        }
        if (sketched)
                return dci_sketched_search(flat, NULL, &reading->params, keep, k, out_ids, out_scores, stats);
        if (dci_flat_batch_suits(flat, k))
                return dci_flat_batch_search(flat, k, out_ids, out_scores, stats);
        return dci_flat_search(flat, k, out_ids, out_scores, stats);
}

void dci_stats_set(const dci_search_params *params, const dci_search_stats *stats)
{
        if (params->stats == NULL)
                return;
        size_t struct_size = params->stats->struct_size;
        *params->stats = *stats;
        params->stats->struct_size = struct_size;
}

dci_status dci_search_check(size_t n_queries, size_t k, const int64_t *out_ids)
{
        if (k == 0)
                return dci_fail(DCI_ERR_INVALID, "k is 0, expected at least 1");
        if (k > MAX_K || n_queries > MAX_RESULTS / k)
                return dci_fail(DCI_ERR_LIMIT, "%zu queries with k %zu: k is at most %zu, their product %zu", n_queries,
                                k, MAX_K, MAX_RESULTS);
        if (n_queries > 0 && out_ids == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_ids is NULL");
        return DCI_OK;
}

dci_status dci_index_search(const dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                            const dci_search_params *params, int64_t *out_ids, float *out_scores)
{
        dci_status status = dci_index_lock(index);
        if (status != DCI_OK)
                return status;
        status = dci_search_check(n_queries, k, out_ids);
        if (status != DCI_OK || n_queries == 0)
                return status;
        dci_reading reading;
        status = dci_reading_begin(index, n_queries, queries, ld, params, &reading);
        if (status != DCI_OK)
                return status;
        dci_search_stats stats = {0};
        status = dci_search_kind(index, &reading, 1, k, out_ids, out_scores, &stats);
        dci_reading_end(index, &reading);
        if (status == DCI_OK)
                dci_stats_set(&reading.params, &stats);
        return status;
}
