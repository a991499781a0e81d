/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows that come. */
#ifndef DCI_INDEX_TREE_INSERT_H
#define DCI_INDEX_TREE_INSERT_H

#include "index/tree/plan.h"

/* Both fail without having changed anything; then reserve, adopt (without readers), and carry out: nothing fails then.
 * out_slots[i]: where the caller copies new row i to; it enters the ids into the map. */
dci_status dci_tree_plan_insert(dci_tree *tree, dci_rows *rows, const dci_tree_source *source, dci_tree_plan *out);
void dci_tree_insert(dci_tree_plan *plan, const dci_tree_store *store, int32_t *out_slots);

#endif
