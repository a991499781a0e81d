/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The M-DCI tree (IceCache 2026, algorithms 2 to 4): rows in cells, cells under promoted rows.
 *
 * A row is promoted with probability promotion_prob, by a hash of the seed and its id, so that the same rows are promoted
 * whatever the order of adds. Each promoted row is a node of the lowest level, levels[0], and every row is in the cell of the
 * node nearest to it. Nodes are promoted to the next level with promotion_prob_subseq and are in cells there in the same way,
 * while a level has more nodes than a search likes to compare one by one. A search compares all nodes of the top level and goes
 * down from the best ones. Should chance promote no row at all, the one of lowest id is the node until a promoted one comes.
 *
 * Nearest is by squared distance between points: the row (L2), the row at unit length (COSINE), the row with its lift (IP); less
 * the mean of the rows that the tree was built from, which changes no distance but keeps numbers small.
 *
 * Rows are stored in pages of one cell each, filled from the front, and a page keeps its number. Slots are page * page_rows + place.
 * No locks here: the caller keeps readers and writers apart.
 */
#ifndef DCI_INDEX_TREE_TREE_H
#define DCI_INDEX_TREE_TREE_H

#include "index/view.h"
#include "simd/nearest.h"

/* Versions count on with every change. No index gets that far, but a file may say that it has. */
#define DCI_MAX_VERSION ((uint64_t)INT64_MAX)

/* What a node has beneath it: at the lowest level pages, which hold n_rows rows, above nodes of the level below. */
typedef struct dci_cell {
        int32_t *items;
        uint32_t n, capacity, n_rows;
} dci_cell;

/* Nodes of one level, by number. */
typedef struct dci_level {
        size_t n, capacity;
        int64_t *ids;        /* of the promoted rows */
        float *points;       /* n x (dim + 1): the promoted rows as points, the lift last (0 unless IP) */
        dci_nearest nearest; /* the points once more, to be compared with many at a time; its offsets: |point|^2 / 2 */
        void *nearest_memory;
        float *lasts;     /* the last coordinates once more, side by side */
        float *radii2;    /* squared distance from the point to the farthest thing in its cell */
        float *routes;    /* n x dim: mean of the rows beneath, each at unit length under COSINE */
        int32_t *parents; /* node of the level above; -1 at the top */
        dci_cell *cells;
} dci_level;

typedef struct dci_tree {
        dci_context *context;
        dci_metric metric;
        size_t dim, page_rows, top_nodes;
        size_t n_coords; /* of points that may differ from 0: dim + 1 under IP, else dim */
        double promotion_prob, promotion_prob_subseq;
        uint64_t seed;

        float *mean;     /* dim + 1 */
        float c_squared; /* IP */
        int64_t lone_id; /* the node that chance did not draw; -1: there is none */
        size_t n_rows;
        size_t n_levels;
        dci_level levels[DCI_MAX_LEVELS];

        size_t n_pages;      /* ever in use since it was built: slots end at n_pages * page_rows */
        size_t n_pages_ever; /* in trees before this one too */
        int32_t *page_node;  /* by page: the node it belongs to; -1: free */
        uint64_t *page_version;
        int32_t *free_pages;
        size_t n_free, page_capacity;
        uint64_t version, built_version; /* of the last change; when it was built */
        uint64_t n_builds;
} dci_tree;

dci_tree *dci_tree_create(dci_context *context, const dci_index_config *config);
void dci_tree_destroy(dci_tree *tree);
size_t dci_tree_bytes(const dci_tree *tree);

/* A copy of a level with room for n nodes, which shares the cells' items with it: one of the two must then be forgotten with
 * dci_level_forget. False with nothing allocated when memory is short. */
bool dci_level_grow(const dci_tree *tree, const dci_level *level, size_t n, dci_level *out);
void dci_level_forget(const dci_tree *tree, dci_level *level);
/* Frees the items too. */
void dci_level_destroy(const dci_tree *tree, dci_level *level);
/* Room for n nodes, without readers; for n more items of a cell; for n pages more than are in use. False with nothing lost. */
bool dci_level_reserve(const dci_tree *tree, dci_level *level, size_t n);
bool dci_cell_reserve(const dci_tree *tree, dci_cell *cell, size_t n_more);
bool dci_tree_reserve_pages(dci_tree *tree, size_t n);

/* A free page, now the node's; there is one, because it was reserved. */
int32_t dci_tree_take_page(dci_tree *tree, size_t node);
void dci_tree_free_page(dci_tree *tree, int32_t page);

/* How many levels a row is promoted to, were there any number of them. */
size_t dci_tree_promotions(const dci_tree *tree, int64_t id);

/* A stored row as a point; norm is what the index keeps of it: 1 / |row| under COSINE, |row|^2 under IP, else unused. */
void dci_tree_point(const dci_tree *tree, dci_dtype dtype, const void *row, float norm, float *out);
/* The same of the row in a slot. */
void dci_tree_point_of_slot(const dci_tree *tree, const dci_view *view, int32_t slot, float *out);

/* The last coordinate under IP, of a row of this squared norm, before the mean is taken off. */
float dci_tree_lift(const dci_tree *tree, float norm2);

/* Rows anywhere. */
typedef struct dci_tree_source {
        size_t n;
        const void *const *rows;
        const float *norms; /* NULL under L2 */
        const int64_t *ids;
        dci_dtype dtype;
} dci_tree_source;
void dci_tree_source_point(const dci_tree *tree, const dci_tree_source *source, size_t i, float *out);

/* Rows in the i-th page of a cell: all but the last are full. */
DCI_INLINE size_t dci_tree_page_fill(const dci_tree *tree, const dci_cell *cell, uint32_t i)
{
        const size_t left = cell->n_rows - i * tree->page_rows;
        return left < tree->page_rows ? left : tree->page_rows;
}

/* Slots of a cell's rows, in order; returns how many. */
size_t dci_tree_cell_slots(const dci_tree *tree, const dci_cell *cell, int32_t *out);

/* A new node with nothing beneath or above it, in a level that has room. Returns its number. */
size_t dci_level_append(dci_tree *tree, size_t l, int64_t id, const float *point);

#endif
