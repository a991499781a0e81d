/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Search: check, prepare the queries, take a view, run the core. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/access.h"
#include "index/candidates.h"
#include "index/config.h"
#include "index/search.h"

#define MAX_K ((size_t)1 << 24)
#define MAX_RESULTS ((size_t)1 << 40)

static int64_t id_of(const void *ctx, int32_t slot)
{
        return dci_view_id(ctx, slot);
}

dci_status dci_reading_open(const dci_index *index, dci_reading *out)
{
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
        const dci_status status =
                dci_filter_select(index, &flat->view, out->params.filter, &out->admitted, &out->selection);
        flat->n = out->selection.n;
        if (status != DCI_OK)
                dci_index_read_end(index);
        return status;
}

/* What the search may spend: as given, or as its recall takes. */
static void choose_effort(const dci_index *index, size_t k, dci_reading *r)
{
        dci_search_params *params = &r->params;
        pthread_mutex_t *lock = &((dci_index *)(uintptr_t)index)->defaults_lock;
        pthread_mutex_lock(lock);
        const bool holds = dci_calibration_holds(&index->calibration, &index->config);
        r->stats.calibrated_on = holds ? index->calibration.on : DCI_CALIBRATED_NONE;
        if (!dci_params_give_effort(params)) {
                const dci_effort effort =
                        holds ? dci_effort_of(&index->calibration, params->target_recall, k, r->flat.n)
                              : (dci_effort){1.0, INFINITY};
                r->stats.target_recall = params->target_recall;
                *(index->config.kind == DCI_KIND_MDCI ? &params->prop_to_visit : &params->prop_to_retrieve) =
                        effort.share;
                params->rerank = index->config.sketch_bits == 0 ? 0.0 : effort.rerank;
        }
        pthread_mutex_unlock(lock);
        dci_params_complete(params);
        params->rerank = params->rerank == 0.0 ? dci_sketched_rerank(index) : params->rerank;
        r->stats.prop_to_visit = params->prop_to_visit;
        r->stats.prop_to_retrieve = params->prop_to_retrieve;
        r->stats.rerank = index->config.sketch_bits == 0 ? 0.0 : params->rerank;
        r->stats.field_of_view = params->field_of_view;
}

dci_status dci_reading_begin(const dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                             const dci_search_params *params, dci_reading *out)
{
        memset(out, 0, sizeof *out);
        DCI_TRY(dci_params_take(index, params, &out->params));
        DCI_TRY(dci_queries_prepare(index, n_queries, queries, ld, &out->queries));
        dci_status status = dci_filter_test(index, out->params.filter, &out->admitted);
        if (status == DCI_OK)
                status = dci_reading_open(index, out);
        if (status != DCI_OK) {
                dci_filter_free(index, &out->admitted, &out->selection);
                dci_queries_free(index, &out->queries);
                return status;
        }
        choose_effort(index, k, out);
        return DCI_OK;
}

dci_status dci_reading_end(const dci_index *index, dci_reading *reading, dci_status status)
{
        dci_index_read_end(index);
        dci_filter_free(index, &reading->admitted, &reading->selection);
        dci_queries_free(index, &reading->queries);
        if (status == DCI_OK && reading->params.stats != NULL)
                dci_struct_give(reading->params.stats, &reading->stats, sizeof reading->stats);
        return status;
}

dci_status dci_reading_name_all(const dci_index *index, dci_reading *reading)
{
        if (!reading->flat.view.rows->gaps || !reading->selection.all)
                return DCI_OK;
        return dci_filter_occupied(index, &reading->flat.view, &reading->selection);
}

bool dci_search_selects(const dci_index *index, const dci_reading *reading, size_t k, dci_kind_search *out)
{
        return index->kind->effort != NULL && index->kind->effort(index, &reading->params, &reading->flat, k, out);
}

dci_status dci_search_kind(const dci_index *index, dci_reading *reading, size_t group, size_t k, int64_t *out_ids,
                           float *out_scores)
{
        const dci_flat *flat = &reading->flat;
        dci_search_stats *stats = &reading->stats;
        size_t keep = 0;
        const bool sketched = dci_sketched_wanted(index, &reading->params, flat->n, k, &keep);
        dci_kind_search search;
        if (dci_search_selects(index, reading, k, &search)) {
                DCI_TRY(index->kind->begin(&search, index, flat, group));
                const dci_status status =
                        sketched ? dci_sketched_search(flat, &search.candidates, &reading->params, keep, k, out_ids,
                                                       out_scores, stats)
                                 : dci_candidates_search(&search.candidates, k, out_ids, out_scores, stats);
                index->kind->end(&search);
                return status;
        }
        DCI_TRY(dci_reading_name_all(index, reading));
        if (sketched)
                return dci_sketched_search(flat, NULL, &reading->params, keep, k, out_ids, out_scores, stats);
        if (dci_flat_batch_suits(flat, k))
                return dci_flat_batch_search(flat, k, out_ids, out_scores, stats);
        return dci_flat_search(flat, k, out_ids, out_scores, stats);
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
        DCI_TRY(dci_index_check_call(index));
        DCI_TRY(dci_search_check(n_queries, k, out_ids));
        if (n_queries == 0)
                return DCI_OK;
        dci_reading reading;
        DCI_TRY(dci_reading_begin(index, n_queries, queries, ld, k, params, &reading));
        return dci_reading_end(index, &reading, dci_search_kind(index, &reading, 1, k, out_ids, out_scores));
}
