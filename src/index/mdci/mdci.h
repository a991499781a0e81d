/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind MDCI: the tree as part of an index. */
#ifndef DCI_INDEX_MDCI_MDCI_H
#define DCI_INDEX_MDCI_MDCI_H

#include "index/candidates.h"
#include "index/insert.h"
#include "index/tree/tree.h"

/* An empty tree, and the map that this kind always has. */
dci_status dci_mdci_create(dci_index *index);
void dci_mdci_destroy(dci_index *index);

/* Called with `writers` held. */
dci_status dci_mdci_add(dci_batch *b, const dci_progress *progress);
dci_status dci_mdci_remove(dci_index *index, size_t n, const int64_t *ids);

/* mdci/build.c: builds anew from the rows there are, less `leaving`, and those of `staged` (either may be NULL), aside, and swaps
 * it in. With `staged` there is room for as many rows as before, in case it was reserved. end: one more than the largest id ever
 * used. */
dci_status dci_mdci_rebuild(dci_index *index, dci_rows *staged, const dci_idmap *leaving, float c_squared, int64_t end,
                            const dci_progress *progress);

/* mdci/search.c: one call's search through the tree. */
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
