/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The M-DCI tree (IceCache 2026, algorithms 2 to 4): rows in cells, cells under promoted rows.
 *
 * A row is promoted with probability promotion_prob, by a hash of the seed and its id, so that the same rows are promoted
 * whatever the order of adds. Each promoted row is a node of the lowest level, levels[0], and every row lies in the cell of the
 * node nearest to it. Nodes are promoted to the next level with promotion_prob_subseq and lie in cells there in the same way,
 * while a level has more nodes than a search likes to look at one by one. A search looks at all nodes of the top level and goes
 * down from the best ones. Should chance promote no row at all, the one of lowest id is the node until a promoted one comes.
 *
 * Nearest is by squared distance between points: the row (L2), the row at unit length (COSINE), the row with its lift (IP); less
 * the mean of the rows that the tree was built from, which changes no distance but keeps numbers small.
 *
 * Rows lie in pages of one cell each, filled from the front, and a page keeps its number. Slots are page * page_rows + place.
 * No locks here: the caller keeps readers and writers apart.
 */
#ifndef DCI_INDEX_TREE_TREE_H
#define DCI_INDEX_TREE_TREE_H

#include "index/index_internal.h"
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

/* --- tree/tree.c: memory, pages, points ------------------------------------------------------------------------------------- */

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

/* --- tree/near.c: the nodes nearest to a point ----------------------------------------------------------------------------- */

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

/* --- tree/assign.c: the nearest node of each of many points, by tiles of products ---------------------------------------------- */

/* Of each row of a source the node of the lowest level; of each node of the level below levels[l], all nodes of which are
 * compared with, one of that. Nobody else may be reading the top level, or levels[l]: nodes of it are closed meanwhile. */
dci_status dci_tree_assign(dci_tree *tree, const dci_tree_source *source, const dci_progress *progress,
                           const void *object, int32_t *out);
dci_status dci_tree_assign_top(dci_tree *tree, size_t l, int32_t *out);

/* --- tree/build.c ---------------------------------------------------------------------------------------------------- */

/* Builds into an empty tree, whose c_squared is set. out_slots[i]: where row i goes; nothing is copied. */
dci_status dci_tree_build(dci_tree *tree, const dci_tree_source *source, const dci_progress *progress,
                          const void *object, int32_t *out_slots);

/* Another level above the top, when that has grown to more than twice top_nodes: prepared aside, its parents for the nodes
 * below too; entered without readers. *out_parents NULL: none is wanted. */
dci_status dci_tree_plan_level(dci_tree *tree, int32_t **out_parents);
void dci_tree_enter_level(dci_tree *tree, int32_t *parents);

/* --- tree/route.c ---------------------------------------------------------------------------------------------------- */

/* The mean of the rows beneath every node, and how far its cell reaches. */
dci_status dci_tree_route_all(dci_tree *tree, const dci_rows *rows);
/* Of one node of the lowest level, whose rows are counted (scratch: dim floats), and above it from its children's. */
void dci_tree_route_of_cell(const dci_tree *tree, const dci_rows *rows, size_t node, float *scratch, float *route,
                            float *out_radius2);
void dci_tree_route_of_node(const dci_tree *tree, size_t l, size_t node, float *route, float *out_radius2);
/* The same for one node above the lowest level, from its children, where it belongs. */
void dci_tree_route_node(dci_tree *tree, size_t l, size_t node);
/* The same after a change: beneath the nodes that are marked, and above them. dirty: by level and node; scratch: dim floats. */
void dci_tree_route_dirty(dci_tree *tree, const dci_rows *rows, uint8_t *const *dirty, float *scratch);

/* --- tree/search.c --------------------------------------------------------------------------------------------------- */

typedef struct dci_descent {
        double share; /* of the nodes of each level that are opened, if field_of_view is 0 */
        size_t field_of_view;
        size_t at_least;          /* rows that are found whatever the effort */
        const uint64_t *admitted; /* bits by slot of the rows that count; NULL: all */
        size_t n_admitted;
} dci_descent;

size_t dci_tree_descend_bytes(const dci_tree *tree);

/* Slots of the rows that n_queries <= DCI_MANY_QUERIES queries, ld apart, should be compared with: those of the nodes that any
 * of them opens. Room for n_admitted slots. *visited grows by the nodes and rows that were looked at. The tree holds at least
 * one row. */
size_t dci_tree_descend(const dci_tree *tree, const float *queries, size_t ld, size_t n_queries,
                        const dci_descent *effort, void *scratch, int32_t *out_slots, uint64_t *visited);

/* --- tree/edit.c: rows and nodes, in and out ----------------------------------------------------------------------------- */

/* What holds the rows: their storage, and where each id is. */
typedef struct dci_tree_store {
        dci_rows *rows;
        dci_idmap *map;
} dci_tree_store;

/* The next free slot of a node's cell. Pages and items were reserved. */
int32_t dci_tree_attach(dci_tree *tree, size_t node);
/* Takes the row at a slot out of its cell: the cell's last row moves into the gap, an empty page is freed. The map is told of the
 * row that moved, not of the one that left. */
void dci_tree_detach(dci_tree *tree, const dci_tree_store *store, int32_t slot);
/* Moves a row to another cell. Returns the node it left. */
size_t dci_tree_rehome(dci_tree *tree, const dci_tree_store *store, int64_t id, size_t node);
/* Hangs a node under another parent, or under none (-1). Items were reserved. */
void dci_tree_link(dci_tree *tree, size_t l, size_t node, int32_t parent);
/* Takes a node without anything beneath it out of its level; the level's last node takes its number. */
void dci_tree_remove_node(dci_tree *tree, size_t l, size_t node, uint8_t *dirty);

/* --- tree/plan.c, tree/insert.c, tree/remove.c: changes, made beside readers, carried out without them --------------------- */

typedef struct dci_tree_move {
        int64_t id;   /* of a row; above the lowest level the number of a node of the level below */
        float gain;   /* by how much the new node is nearer */
        int32_t node; /* where it goes */
        uint32_t level;
} dci_tree_move;

typedef struct dci_tree_plan {
        dci_tree *tree;
        dci_rows *rows;
        dci_level grown[DCI_MAX_LEVELS];  /* capacity 0: the level has room */
        size_t n_nodes[DCI_MAX_LEVELS];   /* present and new ones: the length of the three */
        uint32_t *coming[DCI_MAX_LEVELS]; /* by node: rows, or nodes of the level below, that come */
        uint8_t *dirty[DCI_MAX_LEVELS];   /* by node: something came or went */
        uint8_t *gone[DCI_MAX_LEVELS];    /* by node, removal: it goes */
        dci_tree_move *moves;
        size_t n_moves, moves_capacity;
        float *scratch; /* dim + 1 */

        /* An insertion */
        const dci_tree_source *source;
        float *points;     /* by new row: dim + 1 */
        uint8_t *promoted; /* by new row: levels that it becomes a node of */
        int32_t *nodes;    /* by new row: where it goes; new nodes count on, in the order of the rows */
        int32_t *parents;  /* by new row and level: the node above of the node that it becomes */

        /* A removal */
        size_t n_leaving;
        const int64_t *leaving; /* ids */
} dci_tree_plan;

/* tree/plan.c */
bool dci_tree_plan_move(dci_tree_plan *plan, dci_tree_move move);
/* What goes to several places goes where it gains most. */
void dci_tree_plan_settle(dci_tree_plan *plan);
/* Room for all that comes. Beside readers: arrays of nodes, rows. Then without: lists of pages and nodes. Nothing is lost if
 * memory is short. */
dci_status dci_tree_plan_reserve(dci_tree_plan *plan, dci_retired **retired);
dci_status dci_tree_plan_adopt(dci_tree_plan *plan);
void dci_tree_plan_carry_out(dci_tree_plan *plan, const dci_tree_store *store);
void dci_tree_plan_free(dci_tree_plan *plan);

/* Both fail without having changed anything; then reserve, adopt (without readers), and carry out: nothing fails then.
 * out_slots[i]: where the caller copies new row i to; it enters the ids into the map. */
dci_status dci_tree_plan_insert(dci_tree *tree, dci_rows *rows, const dci_tree_source *source, dci_tree_plan *out);
void dci_tree_insert(dci_tree_plan *plan, const dci_tree_store *store, int32_t *out_slots);

/* leaving: a set of the ids. *out_alone: no node would be left for the rows that stay; the tree must be built anew. */
dci_status dci_tree_plan_remove(dci_tree *tree, dci_rows *rows, const dci_idmap *leaving, size_t n, const int64_t *ids,
                                dci_tree_plan *out, bool *out_alone);
void dci_tree_remove(dci_tree_plan *plan, const dci_tree_store *store);

#endif
