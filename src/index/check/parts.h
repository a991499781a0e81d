/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What must hold of an index. dci_index_check asks all of it; loading asks the part that a file can have wrong, by the same functions.
 *
 * Nothing here trusts a number before it was checked: counts come first, then lists by them, then what lists point to.
 */
#ifndef DCI_INDEX_CHECK_PARTS_H
#define DCI_INDEX_CHECK_PARTS_H

#include "index/index_internal.h"

/* What a full check compares rows with. */
typedef struct dci_row_check {
        const dci_index *index;
        dci_view view;
        bool exact;             /* numbers were made by this machine's kernels: to the bit */
        size_t scratch_bytes;   /* of a worker */
        unsigned char *scratch; /* by worker */
} dci_row_check;

/* --- rows (check/rows.c) --- */

/* How far two machines' squared norms may be apart, and half of how far projections of rows as long as `size` may. */
double dci_norm_slack(size_t dim, double size);

/* A row is one that dci_index_add takes, and its norm (NULL: none is kept) belongs to it up to rounding. in: "file" or "index". */
dci_status dci_check_norm(const dci_index *index, size_t slot, const void *row, const float *norm, const char *in);
/* c^2 is one that rows as long as these can have. */
dci_status dci_check_c_squared(const dci_index *index, const dci_view *view, float c_squared, const char *in);
/* All projections are finite and no longer than a row can be. empty_too: those of empty slots, too. */
dci_status dci_check_projections(const dci_view *view, bool empty_too, const char *in);

/* Chunks hold the rows there are. */
dci_status dci_check_chunks(const dci_index *index, const dci_view *view);
/* Every id is one that can be, and the map has these and no others, each with its slot. Returns how many rows there are. */
dci_status dci_check_ids(const dci_index *index, const dci_view *view, size_t *out_n);

/* Rows of slots [first, end): norms, projections and codes again. */
dci_status dci_check_rows(const dci_row_check *check, size_t first, size_t end, void *scratch);
/* Directions are those of the seed. */
dci_status dci_check_directions(const dci_index *index);

/* --- codes, and the frames that they were encoded with (check/codes.c) --- */

/* Every block that holds a row has a frame, and no block one that there is not: rows may come to it. Numbers of rows are numbers. */
dci_status dci_check_codes(const dci_index *index, const dci_view *view);
/* Rotations are those of the seed, and what was learned is finite. */
dci_status dci_check_frames(const dci_index *index);
size_t dci_check_codes_bytes(const dci_index *index);
/* Codes of n rows from `slot` on, all of one block. */
dci_status dci_check_block(const dci_row_check *check, size_t slot, size_t n, void *scratch);

/* --- the tree of kind MDCI (check/tree.c) --- */

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
