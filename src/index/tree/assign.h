/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The nearest node of each of many points, by tiles of products. */
#ifndef DCI_INDEX_TREE_ASSIGN_H
#define DCI_INDEX_TREE_ASSIGN_H

#include "index/tree/tree.h"

/* Of each row of a source the node of the lowest level; of each node of the level below levels[l], all nodes of which are
 * compared with, one of that. Nobody else may be reading the top level, or levels[l]: nodes of it are closed meanwhile. */
dci_status dci_tree_assign(dci_tree *tree, const dci_tree_source *source, const dci_progress *progress,
                           const void *object, int32_t *out);
dci_status dci_tree_assign_top(dci_tree *tree, size_t l, int32_t *out);

#endif
