/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Exact search over a view: every selected row is scored with the canonical kernel. Other kinds score their candidates by it. */
#ifndef DCI_INDEX_FLAT_FLAT_H
#define DCI_INDEX_FLAT_FLAT_H

#include "index/filter.h"
#include "index/queries.h"
#include "simd/topk.h"

typedef struct dci_flat {
        dci_context *context;
        const dci_kernels *kernels;
        dci_metric metric;
        dci_view view;
        dci_slot_ids ids;
        const dci_selection *selection;
        size_t n; /* rows to score */
        const dci_queries *queries;
        const void *object; /* for callbacks */
        const dci_progress *progress;
} dci_flat;

/* Canonical scores of `count` <= DCI_TOPK_BLOCK rows (positions first .. in the selection, or `slots`) for n_queries <= 8
 * queries from `query` on: out[q * DCI_TOPK_BLOCK + i]. */
void dci_flat_score(const dci_flat *flat, size_t query, size_t n_queries, size_t first, const int32_t *slots,
                    size_t count, float *out);

/* Offers rows [begin, end) of the selection to the selections of n_queries <= 8 queries. */
void dci_flat_scan(const dci_flat *flat, size_t query, size_t n_queries, size_t begin, size_t end, dci_topk *topk);

/* Writes the results of one query to its place in the lists, k of them, from sorted keys, padded. out_scores may be NULL. */
void dci_flat_emit(const dci_flat *flat, size_t query, const uint64_t *keys, size_t n, size_t k, int64_t *out_ids,
                   float *out_scores);
/* Fills the rest of a list of k that has n results. */
void dci_flat_pad(size_t n, size_t k, int64_t *out_ids, float *out_scores);

dci_status dci_flat_search(const dci_flat *flat, size_t k, int64_t *out_ids, float *out_scores,
                           dci_search_stats *stats);

/* The same for large batches: products in tiles rule out most rows, the canonical kernel scores the rest. */
bool dci_flat_batch_suits(const dci_flat *flat, size_t k);
dci_status dci_flat_batch_search(const dci_flat *flat, size_t k, int64_t *out_ids, float *out_scores,
                                 dci_search_stats *stats);

/* Runs the tasks of a search, whose progress counts rows times queries. */
dci_status dci_flat_run(const dci_flat *flat, size_t n_tasks, size_t n_workers, dci_task_fn fn, void *arg);

DCI_INLINE bool dci_metric_descending(dci_metric metric)
{
        return metric != DCI_METRIC_L2;
}

/* Rows scored by one task when fewer queries than threads share the rows out. */
#define DCI_SEGMENT_ROWS ((size_t)2048)

#endif
