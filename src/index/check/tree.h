/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Checks of the tree of kind MDCI. */
#ifndef DCI_INDEX_CHECK_TREE_H
#define DCI_INDEX_CHECK_TREE_H

#include "index/index_internal.h"

/* Counts, lists, pages, slots and nodes: every row is in one cell, every promoted row is a node, every list ends where it should. What
 * nodes are is not compared with rows. Takes memory for a bit per page and node. */
dci_status dci_check_tree(const dci_index *index, const dci_view *view);
/* Nodes [first, end) of the lowest level: points, reach and means, made again from the rows. scratch: dci_check_nodes_bytes. */
size_t dci_check_nodes_bytes(const dci_index *index);
dci_status dci_check_nodes(const dci_index *index, size_t first, size_t end, void *scratch);
/* The same above the lowest level; the nodes as products with many points want them; and whether things are near: of those
 * checked (1,024 a level, evenly spread) less than half with another node than the nearest. */
dci_status dci_check_levels(const dci_index *index, const dci_view *view);

#endif
