/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The nodes nearest to a point, found from the top level down. */
#ifndef DCI_INDEX_TREE_NEAR_H
#define DCI_INDEX_TREE_NEAR_H

#include "index/tree/tree.h"

typedef struct dci_near {
        float score; /* point . node - |node|^2 / 2: the larger, the nearer */
        int32_t node;
} dci_near;

/* Enters one node into a list of n, at most `most`: best first, equal ones by lower number. Returns how many there are then. */
size_t dci_near_enter(dci_near *best, size_t n, size_t most, float score, int32_t node);
/* The nodes of one list, then those of another that are not in it; returns how many. */
size_t dci_near_join(const dci_near *some, size_t n_some, const dci_near *others, size_t n_others, int32_t *out);

size_t dci_tree_near_bytes(void);

/* The `most` nodes of levels[l] nearest to each of n_points <= DCI_MANY_QUERIES points, best first: those of point i from
 * out[i * most] on, out_n[i] of them. Exact at the top level, else among the children of the nearest nodes above. `gone`, unless
 * NULL: by node of levels[l], those that do not count. */
void dci_tree_near(const dci_tree *tree, size_t l, const float *points, size_t n_points, size_t most,
                   const uint8_t *gone, void *scratch, dci_near *out, size_t *out_n);

/* Nodes of levels[l] whose cells may hold things that are nearer to a new node at `point`: the nearest ones, and those whose
 * cells reach farthest in proportion to how far away they are, up to DCI_TREE_AROUND in all. Returns how many. */
#define DCI_TREE_AROUND 32
size_t dci_tree_around(const dci_tree *tree, size_t l, const float *point, void *scratch, int32_t *out);

/* The nearest node of each of many points, by tiles of products: of each row of a source the node of the lowest level; of each node
 * of the level below levels[l], all nodes of which are compared with, one of that. Nobody else may be reading the top level, or
 * levels[l]: nodes of it are closed meanwhile. */
dci_status dci_tree_assign(dci_tree *tree, const dci_tree_source *source, const dci_progress *progress,
                           const void *object, int32_t *out);
dci_status dci_tree_assign_top(dci_tree *tree, size_t l, int32_t *out);

#endif
