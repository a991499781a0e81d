/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Search in an index with codes: rows are ranked by their codes, the best are scored. */
#ifndef DCI_INDEX_CODES_SEARCH_H
#define DCI_INDEX_CODES_SEARCH_H

#include "index/candidates.h"

/* How many rows are scored per query out of n; false: all, and codes are of no use. */
bool dci_sketched_wanted(const dci_index *index, const dci_search_params *params, size_t n, size_t k, size_t *out_keep);
/* The k best of those `keep` rows of each query that rank first by their codes: of the rows that `candidates` selects, or, if it is NULL, of
 * the selection. */
dci_status dci_sketched_search(const dci_flat *flat, dci_candidates *candidates, const dci_search_params *params,
                               size_t keep, size_t k, int64_t *out_ids, float *out_scores, dci_search_stats *stats);

#endif
