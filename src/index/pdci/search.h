/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind PDCI as a chooser of rows: the cell as a view shows it. */
#ifndef DCI_INDEX_PDCI_SEARCH_H
#define DCI_INDEX_PDCI_SEARCH_H

#include "index/index_internal.h"

#include "index/candidates.h"
#include "index/pdci/pdci.h"

typedef struct dci_pdci_search {
        dci_candidates candidates;
        const dci_index *index;
        dci_pdci_cell cell;
        dci_pdci_effort effort;
        float c_squared;
        dci_pdci_run *runs;
        uint64_t *admitted;
        float *lifts;
} dci_pdci_search;

/* The budgets of a search among n admitted rows. False, writing nothing, when every row would become a candidate, and for
 * other kinds: then the flat core answers. */
bool dci_pdci_budget(const dci_index *index, const dci_search_params *params, size_t n, size_t k, dci_pdci_effort *out);

/* Readies a chooser for the queries of `flat`. On failure nothing is held. */
dci_status dci_pdci_begin(dci_pdci_search *s, const dci_index *index, const dci_flat *flat,
                          const dci_pdci_effort *effort);
void dci_pdci_end(dci_pdci_search *s);

#endif
