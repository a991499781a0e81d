/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The tree over one head's candidates (IceCache 2026, algorithms 2 to 4), by the rules of the index's tree
 * (src/index/tree): a candidate is promoted by a hash of the seed and its number; each promoted one is a node, and
 * every candidate is in the cell of the node nearest to it under the MIPS lift [k, sqrt(c^2 - |k|^2)], where |node| is c for
 * all, so that nearest is the greatest product. A cell is cut into pages of page_tokens, filled from the front; a page
 * is a list of candidates, whose rows stay where they are in the pool.
 *
 * It differs from the index's in its memory: one block with a counted reference, laid out by capacities, that forks
 * share and copy before they write; it borrows rows by the candidates' numbers and keeps no copy of a key. All memory
 * comes before the work, which cannot fail. Like the index's up to 4,096 nodes it has one level, whose nodes are
 * compared with one by one. The first candidate is always a node.
 */
#ifndef DCI_KV_TREE_TREE_H
#define DCI_KV_TREE_TREE_H

#include "kv/state.h"

struct dci_kv_tree {
        atomic_size_t refs;
        size_t n_bytes; /* in all */
        size_t n;       /* candidates in it: 0 to n - 1 */
        size_t n_nodes; /* by ascending candidate */
        size_t n_pages; /* numbers in use or free again */
        size_t n_free;
        size_t token_capacity, node_capacity, page_capacity;
        float c_squared; /* a power of two; infinite: keys are too long to be compared, and cells are by position */
        uint32_t version, built_version; /* of the last change; of the last building */
        int32_t *node_tokens;
        int32_t *node_first, *node_last; /* of the cell's list of pages; -1: it is empty */
        uint32_t *node_rows;
        float *node_lifts;
        float *node_radii2; /* squared distance to the farthest row of the cell */
        uint8_t *node_dirty;
        int32_t *page_next, *page_node; /* -1: the cell's last; free */
        uint32_t *page_versions;
        int32_t *members; /* page x page_tokens; all pages of a cell but the last are full */
        unsigned char
                *means; /* n_means x dim_k in the keys' format: of nodes (SUMMARY_TREE) or of pages (SUMMARY_MEAN) */
};

/* --- tree/tree.c: memory, pages ----------------------------------------------------------------------------------- */

/* Makes a head's tree exclusive, with room for n candidates: allocated, grown or copied. */
dci_status dci_kv_tree_own(dci_kv *kv, dci_kv_head *head, size_t n);
void dci_kv_tree_retain(dci_kv_tree *tree);
/* A head's tree of the first n candidates for another owner: the same one or, if that has more, a truncated copy; NULL
 * where there is none. */
dci_status dci_kv_tree_share(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, dci_kv_tree **out);
void dci_kv_tree_release(dci_kv *kv, dci_kv_tree *tree);
/* Removes candidates from n on from an exclusive tree. Rows of the others are in place. */
void dci_kv_tree_truncate(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, size_t n);
/* Bytes of a tree of n candidates, as they are expected, without room for more. */
size_t dci_kv_tree_bytes(const dci_kv *kv, size_t n);
/* An empty tree with room for that many, and no more than the capacities; for a file. */
dci_status dci_kv_tree_alloc(dci_kv *kv, size_t n, dci_kv_tree **out);

/* A copy in n_bytes of the caller's memory. */
dci_kv_tree *dci_kv_tree_mirror(const dci_kv *kv, const dci_kv_tree *tree, void *memory);

/* Whether a candidate is a node. */
bool dci_kv_tree_promoted(const dci_kv *kv, size_t candidate);
void dci_kv_tree_add_node(dci_kv_tree *tree, size_t candidate, float lift);
/* Pages beyond what full cells need, while rows are drawn from one. */
#define DCI_KV_TREE_SPARE 2
/* What is in a tree, to one of no smaller capacities. */
void dci_kv_tree_copy(const dci_kv *kv, const dci_kv_tree *from, dci_kv_tree *to);
/* Frees a page; the page that follows one in its cell. */
void dci_kv_tree_free_page(dci_kv_tree *tree, size_t page);
void dci_kv_tree_release_next(dci_kv_tree *tree, size_t page);
/* Adds a candidate to a cell. There is room for a partial page of every node. */
void dci_kv_tree_attach(const dci_kv *kv, dci_kv_tree *tree, size_t node, int32_t candidate);
/* Members of a page. */
size_t dci_kv_tree_page_fill(const dci_kv *kv, const dci_kv_tree *tree, size_t page);
void dci_kv_tree_clear(dci_kv_tree *tree);
/* A free page: the lowest. */
int32_t dci_kv_tree_alloc_page(dci_kv_tree *tree, size_t node);
/* The cell holds `n` of its members now, which were written to its pages in order; pages after them are free. */
void dci_kv_tree_shorten(const dci_kv *kv, dci_kv_tree *tree, size_t node, size_t n);

/* Pointers to rows of candidates. */
void dci_kv_tree_rows(dci_kv *kv, const dci_kv_layer *layer, size_t head, const int32_t *candidates, size_t n,
                      const void **out);

/* --- tree/build.c: building and inserting ------------------------------------------------------------------------- */

/* Scratch of a thread; 0 unless groups are trees. */
size_t dci_kv_tree_scratch_bytes(const dci_kv *kv);
/* Adds candidates [first, end) to a head's exclusive tree; a tree that has them already (from a file) gets its means.
 * */
void dci_kv_tree_build(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch);
/* Computes means and radii of the cells that are dirty. scratch: 2 dim_k floats. */
void dci_kv_tree_refresh(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, float *scratch);
/* The lift of a row of this squared norm. */
float dci_kv_tree_lift(const dci_kv_tree *tree, float norm2);

/* --- tree/search.c ------------------------------------------------------------------------------------------------ */

/* Bytes of a search's scratch, with room for ld scores; 0 unless a tree is searched. */
size_t dci_kv_tree_search_bytes(const dci_kv *kv, size_t ld);

/* --- tree/file.c -------------------------------------------------------------------------------------------------- */

/* A tree as a list of whole numbers, for a file: how many, and the list. */
size_t dci_kv_tree_numbers(const dci_kv *kv, const dci_kv_tree *tree);
int32_t dci_kv_tree_number(const dci_kv *kv, const dci_kv_tree *tree, size_t i);
/* Fills an empty tree in from such a list of n numbers; it must hold candidates 0 to n_candidates - 1. */
dci_status dci_kv_tree_read(dci_kv *kv, const dci_kv_layer *layer, size_t head, const int32_t *numbers, size_t n,
                            size_t n_candidates, dci_kv_tree *tree);

#endif
