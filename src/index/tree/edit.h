/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows and nodes, in and out of cells. */
#ifndef DCI_INDEX_TREE_EDIT_H
#define DCI_INDEX_TREE_EDIT_H

#include "index/idmap.h"
#include "index/tree/tree.h"

/* What holds the rows: their storage, and where each id is. */
typedef struct dci_tree_store {
        dci_rows *rows;
        dci_idmap *map;
} dci_tree_store;

/* The next free slot of a node's cell. Pages and items were reserved. */
int32_t dci_tree_attach(dci_tree *tree, size_t node);
/* Takes the row at a slot out of its cell: the cell's last row moves into the gap, an empty page is freed. The map follows the
 * row that moved, not of the one that left. */
void dci_tree_detach(dci_tree *tree, const dci_tree_store *store, int32_t slot);
/* Moves a row to another cell. Returns the node it left. */
size_t dci_tree_rehome(dci_tree *tree, const dci_tree_store *store, int64_t id, size_t node);
/* Hangs a node under another parent, or under none (-1). Items were reserved. */
void dci_tree_link(dci_tree *tree, size_t l, size_t node, int32_t parent);
/* Takes a node without anything beneath it out of its level; the level's last node takes its number. */
void dci_tree_remove_node(dci_tree *tree, size_t l, size_t node, uint8_t *dirty);

#endif
