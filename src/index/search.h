/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What the searches share. A reading is one call that reads the index: its effort, its queries, the rows that its filter admits, and a view
 * of the rows, with the read lock held.
 */
#ifndef DCI_INDEX_SEARCH_H
#define DCI_INDEX_SEARCH_H

#include "index/candidates.h"

/* A call that reads the index: view, filter and queries ready, the read lock held. begin fails whole; end after success. */
typedef struct dci_reading {
        dci_search_params params;
        dci_queries queries;
        dci_admitted admitted;
        dci_selection selection;
        dci_flat flat;
        dci_search_stats stats;
} dci_reading;
/* k: of the search, 0 for a range. */
dci_status dci_reading_begin(const dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                             const dci_search_params *params, dci_reading *out);
/* The same for queries and params that are in place, of all rows. */
dci_status dci_reading_open(const dci_index *index, dci_reading *out);
/* Reports stats to the caller who asked for them, unless the search failed. Returns `status`, that of the search. */
dci_status dci_reading_end(const dci_index *index, dci_reading *reading, dci_status status);
/* Lists the rows of an index with gaps, which has no other way to say "all". */
dci_status dci_reading_name_all(const dci_index *index, dci_reading *reading);
/* False: every row that is admitted is scored. Else begin and end of dci_kind may follow. */
bool dci_search_selects(const dci_index *index, const dci_reading *reading, size_t k, dci_kind_search *out);
/* The k best of each query, however the kind finds them; groups of `group` queries share their candidates. */
dci_status dci_search_kind(const dci_index *index, dci_reading *reading, size_t group, size_t k, int64_t *out_ids,
                           float *out_scores);
/* Refuses what cannot be: k 0, too large, too many results; out_ids NULL. */
dci_status dci_search_check(size_t n_queries, size_t k, const int64_t *out_ids);

#endif
