/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The query of Prioritized DCI as Li and Malik published it (2017), step by step: the measure of src/index/pdci/pdci.c.
 *
 * A simple index is an array of rows sorted by projection. Two cursors per simple index go outward from the query; a composite
 * index always visits next the (row, simple index) pair of the smallest projected difference (ties: lower id, then lower
 * simple index), and counts for each row how often it was visited. A row visited in all simple indices is a candidate.
 */
#ifndef DCI_TESTS_PDCI_WALK_H
#define DCI_TESTS_PDCI_WALK_H

#include "index/pdci/pdci.h"
#include "tests/common.h"

typedef struct pdci_walk pdci_walk;

/* projections: n_comp * n_simp arrays of n, one per simple index, lifts included. ids: distinct. admitted: the rows that are
 * indexed at all; NULL: all. */
pdci_walk *pdci_walk_create(size_t n_comp, size_t n_simp, size_t n, const float *projections, const int64_t *ids,
                            const bool *admitted);
void pdci_walk_destroy(pdci_walk *walk);

/* Puts the cursors around the query; projections: n_comp * n_simp of it. */
void pdci_walk_ask(pdci_walk *walk, const float *projections);

/* Walks until a composite index has made `visit` visits or has `retrieve` candidates, and on until it has `at_least`.
 * candidates[row]: whether any composite index retrieved it. */
void pdci_walk_candidates(const pdci_walk *walk, const dci_pdci_effort *effort, bool *candidates);

#endif
