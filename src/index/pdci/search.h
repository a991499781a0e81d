/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind PDCI selects candidates: the cell as a view shows it. */
#ifndef DCI_INDEX_PDCI_SEARCH_H
#define DCI_INDEX_PDCI_SEARCH_H

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

/* Hooks of dci_kind; `search` is a dci_pdci_search. Queries do not share candidates, whatever the group. */
bool dci_pdci_budget(const dci_index *index, const dci_search_params *params, const dci_flat *flat, size_t k,
                     void *search);
dci_status dci_pdci_begin(void *search, const dci_index *index, const dci_flat *flat, size_t group);
void dci_pdci_end(void *search);

#endif
