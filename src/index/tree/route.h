/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The mean of the rows beneath every node, and how far its cell reaches. */
#ifndef DCI_INDEX_TREE_ROUTE_H
#define DCI_INDEX_TREE_ROUTE_H

#include "index/tree/tree.h"

dci_status dci_tree_route_all(dci_tree *tree, const dci_rows *rows);
/* Of one node of the lowest level, whose rows are counted (scratch: dim floats), and above it from its children's. */
void dci_tree_route_of_cell(const dci_tree *tree, const dci_rows *rows, size_t node, float *scratch, float *route,
                            float *out_radius2);
void dci_tree_route_of_node(const dci_tree *tree, size_t l, size_t node, float *route, float *out_radius2);
/* The same for one node above the lowest level, from its children, where it belongs. */
void dci_tree_route_node(dci_tree *tree, size_t l, size_t node);
/* The same after a change: beneath the nodes that are marked, and above them. dirty: by level and node; scratch: dim floats. */
void dci_tree_route_dirty(dci_tree *tree, const dci_rows *rows, uint8_t *const *dirty, float *scratch);

#endif
