/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Trees that a device searches (gpu/args/tree.h). The host builds them, as its own plans would have them, and inserts
 * what leaves the window. Here is the device's copy, in two tables of chunks for each row:
 *
 *      summaries   of nodes: codes of their means, and how many pages their cells have
 *      ids         of rows, page by page: candidates, codes, and the pages' nodes
 *
 * A change of a tree marks pages and nodes with its version; what is newer than the device's copy is uploaded, by one
 * kernel that reads it in locked memory. Forks share chunks; a row that changes one copies it on the device first.
 */
#ifndef DCI_OFFLOAD_TREE_H
#define DCI_OFFLOAD_TREE_H

#include "offload/chunk_store.h"

#define DCI_GPU_KV_PATCHES ((size_t)8192) /* of one launch */

typedef struct dci_gpu_kv_trees {
        size_t *grouped;        /* [row][sparse layer]: candidates in the device's trees */
        uint32_t *versions;     /* [row][sparse layer][head]: of the device's trees; 0: there is none */
        bool *stale;            /* by row: trees have changed, whatever the numbers of candidates say */
        dci_gpu_patch *patches; /* locked: of an upload; what they copy is in planner.upload */
        int32_t *in_tree;       /* on the device, as the next ones */
} dci_gpu_kv_trees;

bool dci_gpu_kv_has_trees(const dci_kv_config *shape);
/* Whether the device can search trees of this kind. */
dci_status dci_gpu_kv_can_search(const dci_kv_config *shape);
/* Sizes; returns the most nodes of a head. */
size_t dci_gpu_kv_trees_init(dci_gpu_kv *kv);
void dci_gpu_kv_trees_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Candidates in trees that plans of a sparse layer search. */
size_t dci_gpu_kv_trees_grouped(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer);
/* Before a step: the host builds what its own plans would have built by now, and the device gets a copy. */
dci_status dci_gpu_kv_trees_reserve(dci_gpu_kv *kv);
/* The host builds all that is due, and the device gets a copy. */
dci_status dci_gpu_kv_trees_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* The device gets a copy of all that the host has built. */
dci_status dci_gpu_kv_trees_restore(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
dci_status dci_gpu_kv_trees_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to);
/* After the host's sequence was truncated. */
void dci_gpu_kv_trees_truncate(dci_gpu_kv *kv, const dci_gpu_kv_row *row);

#endif
