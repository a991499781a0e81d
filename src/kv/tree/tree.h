/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The tree over one head's candidates (IceCache 2026, algorithms 2 to 4), by the rules of the index's tree
 * (src/index/tree): a candidate is promoted by a hash of the seed and its number; each promoted one is a node, and
 * every candidate is in the cell of the node nearest to it under the MIPS lift [k, sqrt(c^2 - |k|^2)], where |node| is
 * c for all, so that nearest is the greatest product. A cell is cut into pages of page_tokens, filled from the front; a
 * page is a list of candidates, whose rows stay where they are in the pool.
 *
 * It differs from the index's in its memory: one block with a counted reference, laid out by capacities, that forks
 * share and copy before they write; it borrows rows by the candidates' numbers and keeps no copy of a key. All memory
 * comes before the work, which cannot fail. The first candidate is a node of every level.
 *
 * Nodes that are promoted again, by the same hash, form level 1, and so on, while a level has more nodes than are
 * compared one by one (dci_kv_tree_count_levels). The parent of a node is the node of the level above that is nearest
 * to it, compared with all of them: levels follow from the nodes and their keys alone, whatever came and went, and no
 * file has them. What is approximate is the way down through them: to the cell of a candidate (place.c), to the cells
 * that a query opens (descend.c).
 */
#ifndef DCI_KV_TREE_TREE_H
#define DCI_KV_TREE_TREE_H

#include "kv/stages/stages.h"
#include "sketch/frames.h"

/* One level of nodes. Level 0 has all of them, so its numbers are those of the nodes. */
typedef struct dci_kv_tree_level {
        size_t n, capacity;         /* of levels above 0 */
        size_t n_placed, n_parents; /* the first nodes, whose parents are the nearest of the first of the level above */
        int32_t *parents;           /* by number, at the level above */
        float *parent_scores;
        /* Levels above 0: */
        int32_t *nodes;                  /* by number: the node, ascending */
        int32_t *child_first, *children; /* n + 1; numbers at the level below, ascending */
        int32_t *visits;                 /* n: scratch of building */
        uint32_t *rows;                  /* below it */
        uint8_t *dirty;
        unsigned char *means; /* of the rows below; NULL: searches compare with all nodes of level 0 */
} dci_kv_tree_level;

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
        int32_t *members;     /* page x page_tokens; all pages of a cell but the last are full */
        unsigned char *means; /* n x dim_k in the keys' format: of nodes (SUMMARY_TREE) or of pages (SUMMARY_MEAN) */
        unsigned char *page_means; /* tree_keys MEANS: n_pages x dim_k */
        /* tree_keys CODES (codes.c), in blocks of DCI_CODE_ROWS rows, scales as bf16: of member i of page p as row
         * p * page_tokens + i; of the means of nodes. */
        unsigned char *codes, *node_codes;
        uint16_t *code_scales, *node_scales;
        uint32_t *node_versions; /* when the mean changed last */
        unsigned char *scratch;  /* for encoding rows one by one */
        /* tree_simple_indices: projections of the nodes' keys, side by side; of the members of each page, by simple
         * index and place. */
        float *node_projections, *member_projections;
        int32_t *placed;   /* with room for levels: scratch of building, token_capacity */
        size_t n_levels;   /* 1 or more */
        size_t n_levelled; /* nodes that the levels above 0 were drawn from */
        dci_kv_tree_level levels[DCI_KV_TREE_LEVELS];
};

DCI_INLINE size_t dci_kv_tree_level_size(const dci_kv_tree *tree, size_t l)
{
        return l == 0 ? tree->n_nodes : tree->levels[l].n;
}

/* The node that has number i at level l. */
DCI_INLINE size_t dci_kv_tree_node_at(const dci_kv_tree *tree, size_t l, size_t i)
{
        return l == 0 ? i : (size_t)tree->levels[l].nodes[i];
}

/* Whether searches go down through levels, or take part of a node's children by P-DCI. Else they compare with all
 * nodes and with all rows of the cells that they open, whatever levels there are for forming. */
DCI_INLINE bool dci_kv_tree_descends(const dci_kv *kv)
{
        return kv->config.tree_promotion_subseq > 0.0 || kv->config.tree_simple_indices > 0;
}

/* What rows are encoded with: room for n_rows rows as floats, and dci_kv_tree_encode_bytes. */
typedef struct dci_kv_tree_encoder {
        float *rows;
        size_t n_rows;
        void *scratch;
} dci_kv_tree_encoder;

DCI_INLINE bool dci_kv_tree_coded(const dci_kv *kv)
{
        return kv->config.tree_keys == DCI_KV_TREE_CODES;
}

/* Bytes of a block of codes. */
DCI_INLINE size_t dci_kv_tree_block_bytes(const dci_kv *kv)
{
        return dci_frames_block_bytes(kv->dim_k, kv->config.key_bits);
}

/* Scratch for encoding one row at a time, or any number; 0 without codes. */
DCI_INLINE size_t dci_kv_tree_encode_bytes(const dci_kv *kv, bool one)
{
        return dci_kv_tree_coded(kv) ? dci_lines(dci_coder_encode_bytes(kv->dim_k, one)) : 0;
}

/* --- tree/codes.c ------------------------------------------------------------------------------------------------- */

/* The head's transform; NULL: there is none yet. */
const dci_coder *dci_kv_tree_coder(const dci_kv_layer *layer, size_t head);
/* Encodes the n members of a page; the mean of a cell. */
void dci_kv_tree_encode_page(const dci_kv *kv, const dci_coder *coder, dci_kv_tree *tree, size_t page,
                             const void *const *rows, size_t n, const dci_kv_tree_encoder *by);
void dci_kv_tree_encode_node(const dci_kv *kv, const dci_coder *coder, dci_kv_tree *tree, size_t node,
                             const float *mean, const dci_kv_tree_encoder *by);

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

/* Levels that a candidate is a node of. */
size_t dci_kv_tree_promotions(const dci_kv *kv, size_t candidate);
/* Levels of a tree of so many nodes by level, of which there are DCI_KV_TREE_LEVELS. */
size_t dci_kv_tree_count_levels(const dci_kv *kv, const size_t *counts);
/* Whether a candidate is a node. */
DCI_INLINE bool dci_kv_tree_promoted(const dci_kv *kv, size_t candidate)
{
        return dci_kv_tree_promotions(kv, candidate) > 0;
}
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
/* Forgets levels above the nodes, until dci_kv_tree_relate. */
void dci_kv_tree_clear_levels(dci_kv_tree *tree);
/* A free page: the lowest. */
int32_t dci_kv_tree_alloc_page(dci_kv_tree *tree, size_t node);
/* The cell holds `n` of its members now, which were written to its pages in order; pages after them are free. */
void dci_kv_tree_shorten(const dci_kv *kv, dci_kv_tree *tree, size_t node, size_t n);

/* Pointers to rows of candidates. */
void dci_kv_tree_rows(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const int32_t *candidates, size_t n,
                      const void **out);

/* The lift of a row of this squared norm. */
float dci_kv_tree_lift(const dci_kv_tree *tree, float norm2);

/* --- tree/levels.c: levels above the nodes ------------------------------------------------------------------------ */

/* Brings the levels in line with the nodes, whether some came or went. wide: n_wide <= DCI_MANY_QUERIES keys as
 * floats. */
void dci_kv_tree_relate(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, float *wide,
                        size_t n_wide);

/* --- tree/pdci.c: P-DCI among the children of nodes --------------------------------------------------------------- */

/* Draws the directions of a config's simple indices, which have the lift as their last coordinate. */
dci_status dci_kv_tree_draw_directions(dci_kv *kv);
size_t dci_kv_tree_directions_bytes(const dci_kv *kv);
/* Projections of n <= DCI_KV_TILE rows and their lifts: row i's on simple index j to out[j * step_j + i * step_i]. */
void dci_kv_tree_project(const dci_kv *kv, const void *const *rows, dci_dtype dtype, const float *lifts, size_t n,
                         float *out, size_t step_i, size_t step_j);
/* Projections of a query as the lift has it: [c q / |q|, 0]. */
void dci_kv_tree_project_query(const dci_kv *kv, const dci_kv_tree *tree, const float *query, float *out);

/* Scratch for retrieving among n points. */
typedef struct dci_kv_tree_pdci {
        float *projections; /* by simple index, n apart */
        uint64_t *bits;     /* of those that were retrieved; cleared by the caller */
        void *rest;
} dci_kv_tree_pdci;
size_t dci_kv_tree_pdci_lay_out(const dci_kv *kv, size_t n, void *memory, dci_kv_tree_pdci *out);
/* Sets the bits of the points, a share of n and at_least so many, whose projections are nearest to the query's. */
void dci_kv_tree_retrieve(const dci_kv *kv, const dci_kv_tree_pdci *p, size_t n, const float *query, double share,
                          size_t at_least);
/* Keeps of the n nodes of level l in a list those that are retrieved for any of the queries, whose projections these
 * are; returns how many. All of them without simple indices. */
size_t dci_kv_tree_retrieve_nodes(const dci_kv *kv, const dci_kv_tree *tree, const dci_kv_tree_pdci *p, size_t l,
                                  int32_t *list, size_t n, const float *queries, size_t n_queries, double share,
                                  size_t at_least);
/* The published share of a node's children that inserts and queries retrieve, unless the config says. */
#define DCI_KV_TREE_RETRIEVE_INSERT 0.6
#define DCI_KV_TREE_RETRIEVE 0.8
DCI_INLINE double dci_kv_tree_retrieved(const dci_kv *kv, double published)
{
        return kv->config.tree_retrieve > 0.0 ? kv->config.tree_retrieve : published;
}

/* --- tree/means.c ------------------------------------------------------------------------------------------------- */

/* Computes means, radii, projections and codes of the cells that are dirty, and means above them. scratch: 2 dim_k
 * floats; by: NULL, rows are encoded one by one in the tree's scratch. */
void dci_kv_tree_refresh(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, float *scratch,
                         const dci_kv_tree_encoder *by);

/* --- tree/place.c: the cell of a candidate, found from the top level down ----------------------------------------- */

#define DCI_KV_TREE_TASK ((size_t)256)   /* candidates that are compared with nodes at a time */
#define DCI_KV_TREE_BLOCK ((size_t)2048) /* nodes that are made ready at a time */
/* What tiles of products need. */
typedef struct dci_kv_tree_tiles {
        float *mean;          /* of points: taken from all */
        float *centres;       /* DCI_KV_TREE_BLOCK points */
        float *points;        /* DCI_KV_TREE_TASK */
        int32_t *found;       /* DCI_KV_TREE_TASK */
        void *nearest, *find; /* simd/nearest.h */
} dci_kv_tree_tiles;
size_t dci_kv_tree_place_bytes(const dci_kv *kv);
/* placed[i]: the node of candidate i < n, of a tree with levels and no pages. */
void dci_kv_tree_place(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, size_t n,
                       const dci_kv_tree_tiles *tiles, void *scratch);
/* The node of one key, which is not in the tree, as an insert finds it; its score in comparison. */
int32_t dci_kv_tree_place_one(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, const float *key,
                              float lift, void *scratch, float *out_score);

/* --- tree/descend.c: the cells that queries open ------------------------------------------------------------------ */

/* Scratch of a search that goes down. */
typedef struct dci_kv_tree_descent {
        int32_t *list, *next; /* nodes of a level, by number */
        uint8_t *seen;        /* by node */
        float *projections;   /* of the queries */
        dci_kv_tree_pdci retrieval;
} dci_kv_tree_descent;
size_t dci_kv_tree_descent_lay_out(const dci_kv *kv, size_t ld, void *memory, dci_kv_tree_descent *out);
/* Projects the group's queries. */
void dci_kv_tree_descent_begin(const dci_kv_query *ask, const dci_kv_tree *tree, const dci_kv_tree_descent *d);
/* Negates the first n scores of each query, for dci_select. */
void dci_kv_tree_negate(const dci_kv_query *ask, size_t n);
/* Nodes of level 0 that any query has among its `wanted` best, reached by the same at the levels above; returns how
 * many. kept, order: as dci_select's. out: room for ld. */
size_t dci_kv_tree_descend(dci_kv_query *ask, const dci_kv_tree *tree, dci_kv_tree_descent *d, size_t wanted,
                           float *kept, int32_t *order, int32_t *out);
/* The queue over all levels: pages that hold the keys of nodes that were ranked on the way and not opened, where a key
 * is among the k best of those for a query. Returns how many, at most room. */
size_t dci_kv_tree_met_pages(dci_kv_query *ask, const dci_kv_tree *tree, dci_kv_tree_descent *d, size_t k, float *kept,
                             int32_t *order, int32_t *out, size_t room);

/* --- tree/build.c: building and inserting ------------------------------------------------------------------------- */

/* Scratch of a thread; 0 unless groups are trees. */
size_t dci_kv_tree_scratch_bytes(const dci_kv *kv);
/* Adds candidates [first, end) to a head's exclusive tree; a tree that has them already (from a file) gets its
 * means. */
void dci_kv_tree_build(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch);

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
