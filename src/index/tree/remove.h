/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows that go. */
#ifndef DCI_INDEX_TREE_REMOVE_H
#define DCI_INDEX_TREE_REMOVE_H

#include "index/tree/plan.h"

/* leaving: a set of the ids. *out_alone: no node would be left for the rows that stay; the tree must be rebuilt. */
dci_status dci_tree_plan_remove(dci_tree *tree, dci_rows *rows, const dci_idmap *leaving, size_t n, const int64_t *ids,
                                dci_tree_plan *out, bool *out_alone);
void dci_tree_remove(dci_tree_plan *plan, const dci_tree_store *store);

#endif
