/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Changes of the tree. One is planned while searches go on, memory is reserved, and then it is carried out with the index held
 * exclusively, when nothing can fail any more.
 */
#ifndef DCI_INDEX_TREE_PLAN_H
#define DCI_INDEX_TREE_PLAN_H

#include "index/rows.h"
#include "index/tree/edit.h"

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
        float *new_points; /* of the nodes that come to the lowest level: dim + 1 */
        void *new_memory;
        dci_nearest new_nearest;

        /* A removal */
        size_t n_leaving;
        const int64_t *leaving; /* ids */
        const dci_idmap *leaving_set;
} dci_tree_plan;

/* An empty plan for the tree as it is. */
void dci_tree_plan_init(dci_tree_plan *plan, dci_tree *tree, dci_rows *rows);
bool dci_tree_plan_move(dci_tree_plan *plan, dci_tree_move move);
/* The nearest of the new nodes of a level above the lowest replaces *node, whose score for the point is *score, if nearer. */
void dci_tree_plan_near_new(const dci_tree_plan *plan, size_t l, const float *point, float *score, int32_t *node);
/* What goes to several places goes where it gains most. */
void dci_tree_plan_settle(dci_tree_plan *plan);
/* Room for all that comes. Beside readers: arrays of nodes, rows. Then without: lists of pages and nodes. Nothing is lost if
 * memory is short. */
dci_status dci_tree_plan_reserve(dci_tree_plan *plan, dci_retired **retired);
dci_status dci_tree_plan_adopt(dci_tree_plan *plan);
void dci_tree_plan_carry_out(dci_tree_plan *plan, const dci_tree_store *store);
void dci_tree_plan_free(dci_tree_plan *plan);

/* Insertion. Planning fails without having changed anything; then reserve, adopt (without readers), and carry out: nothing fails then.
 * out_slots[i]: where the caller copies new row i to; it enters the ids into the map. */
dci_status dci_tree_plan_insert(dci_tree *tree, dci_rows *rows, const dci_tree_source *source, dci_tree_plan *out);
void dci_tree_insert(dci_tree_plan *plan, const dci_tree_store *store, int32_t *out_slots);

/* Removal. leaving: a set of the ids. *out_alone: no node would be left for the rows that stay; the tree must be rebuilt. */
dci_status dci_tree_plan_remove(dci_tree *tree, dci_rows *rows, const dci_idmap *leaving, size_t n, const int64_t *ids,
                                dci_tree_plan *out, bool *out_alone);
void dci_tree_remove(dci_tree_plan *plan, const dci_tree_store *store);

/* Both at once, with rows of the same ids or others: one version, and what moves is compared with the nodes that there will be.
 * *out_alone: a level would keep no node; the tree must be rebuilt. */
dci_status dci_tree_plan_replace(dci_tree *tree, dci_rows *rows, const dci_tree_source *source,
                                 const dci_idmap *leaving, size_t n, const int64_t *ids, dci_tree_plan *out,
                                 bool *out_alone);
void dci_tree_replace(dci_tree_plan *plan, const dci_tree_store *store, int32_t *out_slots);

/* The steps of these. Those that plan return false if memory is short. */
bool dci_tree_plan_begin_insert(dci_tree_plan *plan, const dci_tree_source *source);
bool dci_tree_plan_place(dci_tree_plan *plan);
bool dci_tree_plan_begin_remove(dci_tree_plan *plan, const dci_idmap *leaving, size_t n, const int64_t *ids);
bool dci_tree_plan_dissolve(dci_tree_plan *plan, bool *out_alone);
void dci_tree_plan_append_nodes(dci_tree_plan *plan);
void dci_tree_plan_attach(dci_tree_plan *plan, int32_t *out_slots);
void dci_tree_plan_detach(dci_tree_plan *plan, const dci_tree_store *store);
void dci_tree_plan_remove_nodes(dci_tree_plan *plan);

/* Builds into an empty tree, whose c_squared is set. out_slots[i]: where row i goes; nothing is copied. */
dci_status dci_tree_build(dci_tree *tree, const dci_tree_source *source, const dci_progress *progress,
                          const void *object, int32_t *out_slots);

/* Another level above the top, when that has grown to more than twice top_nodes: prepared aside, its parents for the nodes
 * below too; entered without readers. *out_parents NULL: none is wanted. */
dci_status dci_tree_plan_level(dci_tree *tree, int32_t **out_parents);
void dci_tree_enter_level(dci_tree *tree, int32_t *parents);

#endif
