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

/* False: every row that counts is to be looked at. */
bool dci_mdci_effort(const dci_index *index, const dci_search_params *params, const dci_flat *flat, size_t k,
                     dci_mdci_search *out);
/* Groups of `group` queries. After success, end. */
dci_status dci_mdci_begin(dci_mdci_search *s, const dci_index *index, const dci_flat *flat, size_t group);
void dci_mdci_end(dci_mdci_search *s);

#endif
