/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Building a tree from rows, and growing it by a level. */
#ifndef DCI_INDEX_TREE_BUILD_H
#define DCI_INDEX_TREE_BUILD_H

#include "index/tree/tree.h"

/* Builds into an empty tree, whose c_squared is set. out_slots[i]: where row i goes; nothing is copied. */
dci_status dci_tree_build(dci_tree *tree, const dci_tree_source *source, const dci_progress *progress,
                          const void *object, int32_t *out_slots);

/* Another level above the top, when that has grown to more than twice top_nodes: prepared aside, its parents for the nodes
 * below too; entered without readers. *out_parents NULL: none is wanted. */
dci_status dci_tree_plan_level(dci_tree *tree, int32_t **out_parents);
void dci_tree_enter_level(dci_tree *tree, int32_t *parents);

#endif
