/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Descent: the rows of the cells that queries open. */
#ifndef DCI_INDEX_TREE_SEARCH_H
#define DCI_INDEX_TREE_SEARCH_H

#include "index/tree/tree.h"

typedef struct dci_descent {
        double share; /* of the nodes of each level that are opened, if field_of_view is 0 */
        size_t field_of_view;
        size_t at_least;          /* rows that are found whatever the effort */
        const uint64_t *admitted; /* bits by slot of the rows that count; NULL: all */
        size_t n_admitted;
} dci_descent;

size_t dci_tree_descend_bytes(const dci_tree *tree);

/* Slots of the rows that n_queries <= DCI_MANY_QUERIES queries, ld apart, should be compared with: those of the nodes that any
 * of them opens. Room for n_admitted slots. *visited grows by the nodes and rows that were visited. The tree holds at least
 * one row. */
size_t dci_tree_descend(const dci_tree *tree, const float *queries, size_t ld, size_t n_queries,
                        const dci_descent *effort, void *scratch, int32_t *out_slots, uint64_t *visited);

/* The shares of nodes that have to be opened for each of m rows, by slot. scratch: dci_tree_descend_bytes. `self`: the slot of the row
 * that is the query, or -1: means are taken without it, as another query would find them. */
void dci_tree_shares(const dci_tree *tree, const float *query, const int32_t *slots, size_t m, int32_t self,
                     void *scratch, float *out);

#endif
