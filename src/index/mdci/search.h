/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Search of kind MDCI: one call's descent through the tree selects the candidates. */
#ifndef DCI_INDEX_MDCI_SEARCH_H
#define DCI_INDEX_MDCI_SEARCH_H

#include "index/candidates.h"
#include "index/tree/search.h"

typedef struct dci_mdci_search {
        dci_candidates candidates;
        const dci_index *index;
        dci_descent descent;
        double retrieve; /* share of the rows found that P-DCI keeps; 1: all */
        size_t num_to_retrieve, k;
        float c_squared;
        uint64_t *admitted;
} dci_mdci_search;

/* Hooks of dci_kind; `search` is a dci_mdci_search. */
bool dci_mdci_effort(const dci_index *index, const dci_search_params *params, const dci_flat *flat, size_t k,
                     void *search);
dci_status dci_mdci_begin(void *search, const dci_index *index, const dci_flat *flat, size_t group);
void dci_mdci_end(void *search);

#endif
