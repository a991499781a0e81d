/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The cell of a candidate, found from the top level down (IceCache 2026, algorithm 4 with a target level). A prompt's
 * candidates go down together: all that are nearest to the same node are compared, by tiles of products, with the
 * children of the BUILD_VIEW nodes nearest to that node. An insert goes down alone: at each level it keeps the
 * INSERT_VIEW nearest nodes and is compared with their children, or with the share of them that P-DCI retrieves.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "index/tree/near.h"
#include "kv/tree/tree.h"
#include "simd/nearest.h"

#define BUILD_VIEW ((size_t)32)
#define INSERT_VIEW ((size_t)20)   /* published */
#define START_NODES ((size_t)128)  /* the way down begins at a level of so many at most, or at the top */
#define BLOCK_NODES ((size_t)4096) /* children that are compared with */

typedef struct placing {
        dci_kv *kv;
        const dci_kv_layer *layer;
        size_t head;
        dci_kv_tree *tree;
        const dci_kv_tree_tiles *tiles;
        int32_t *block;             /* children of the nodes that are kept */
        float *projections;         /* of one key */
        dci_kv_tree_pdci retrieval; /* among a block */
} placing;

static size_t lay_out(const dci_kv *kv, void *memory, placing *out)
{
        const dci_arena_part parts[] = {{BLOCK_NODES * sizeof(int32_t), &out->block},
                                        {kv->config.tree_simple_indices * sizeof(float), &out->projections}};
        const size_t n_bytes = DCI_ARENA(parts, memory);
        return n_bytes + dci_kv_tree_pdci_lay_out(kv, BLOCK_NODES,
                                                  memory == NULL ? NULL : (unsigned char *)memory + n_bytes,
                                                  &out->retrieval);
}

size_t dci_kv_tree_place_bytes(const dci_kv *kv)
{
        placing measured;
        return lay_out(kv, NULL, &measured);
}

/* Enters a node into a list of the nearest, of which there are n. */
DCI_INLINE size_t enter(dci_near *best, size_t n, size_t most, float score, int32_t node)
{
        return n == most && score < best[n - 1].score ? n : dci_near_enter(best, n, most, score, node);
}

/* --- a prompt ----------------------------------------------------------------------------------------------------- */

/* Keys of n candidates as points: lifted, less the mean. */
static void take_points(const placing *s, const int32_t *candidates, size_t n, float *out)
{
        const dci_kernels *kernels = s->kv->context->kernels;
        const size_t dim = s->kv->dim_k, wide = dim + 1;
        const int dtype = s->kv->config.dtype - 1;
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                dci_kv_tree_rows(s->kv, s->layer, s->head, candidates + i, here, rows);
                for (size_t t = 0; t < here; t++) {
                        float *point = out + (i + t) * wide;
                        kernels->to_f32[dtype](rows[t], dim, point);
                        point[dim] = dci_kv_tree_lift(s->tree, kernels->norm2[dtype](rows[t], dim));
                        for (size_t j = 0; j < wide; j++)
                                point[j] -= s->tiles->mean[j];
                }
        }
}

/* Makes n nodes of level l ready: list[first + i], or numbers from `first` on. */
static void prepare(const placing *s, size_t l, const int32_t *list, size_t first, size_t n, dci_nearest *out)
{
        const size_t wide = s->kv->dim_k + 1;
        int32_t keys[DCI_KV_TILE];
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t t = 0; t < here; t++) {
                        const size_t at = first + i + t, node = list != NULL ? (size_t)list[at] : at;
                        keys[t] = s->tree->node_tokens[dci_kv_tree_node_at(s->tree, l, node)];
                }
                take_points(s, keys, here, s->tiles->centres + i * wide);
        }
        dci_nearest_prepare(s->kv->context, s->tiles->centres, wide, n, wide, s->tiles->nearest, out);
}

/* Compares n <= DCI_KV_TREE_TASK points with nodes that are ready, those from number `first` of the list on; all: there
 * are no others, so that nearest ones need no score. */
static void compare_some(const placing *s, const dci_nearest *nearest, const int32_t *list, size_t first, bool all,
                         const int32_t *candidates, size_t n, float *best, int32_t *assigned)
{
        const dci_kv_tree_tiles *t = s->tiles;
        float scores[DCI_KV_TREE_TASK];
        dci_nearest_find(nearest, t->points, s->kv->dim_k + 1, n, t->find, t->found, all ? NULL : scores);
        for (size_t r = 0; r < n; r++) {
                const size_t at = first + (size_t)t->found[r];
                if (!all && !(scores[r] > best[r]))
                        continue;
                if (!all)
                        best[r] = scores[r];
                assigned[candidates[r]] = list != NULL ? list[at] : (int32_t)at;
        }
}

/* The nearest of some nodes of level l to each of the candidates: to assigned[candidate]. */
static void compare_all(const placing *s, size_t l, const int32_t *list, size_t n_nodes, const int32_t *candidates,
                        size_t n, int32_t *assigned)
{
        const bool all = n_nodes <= DCI_KV_TREE_BLOCK;
        dci_nearest nearest;
        float best[DCI_KV_TREE_TASK];
        if (all)
                prepare(s, l, list, 0, n_nodes, &nearest);
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TREE_TASK ? n - i : DCI_KV_TREE_TASK;
                take_points(s, candidates + i, here, s->tiles->points);
                for (size_t r = 0; r < here; r++)
                        best[r] = -INFINITY;
                for (size_t b = 0, more; b < n_nodes; b += more) {
                        more = n_nodes - b < DCI_KV_TREE_BLOCK ? n_nodes - b : DCI_KV_TREE_BLOCK;
                        if (!all)
                                prepare(s, l, list, b, more, &nearest);
                        compare_some(s, &nearest, list, b, all, candidates + i, here, best, assigned);
                }
        }
}

/* Children of the nodes of level l that are nearest to node p, into the block, the nearest one's first. */
static size_t children_around(const placing *s, size_t l, size_t p)
{
        const dci_kv_tree *tree = s->tree;
        const dci_kv_tree_level *level = &tree->levels[l];
        const dci_kernels *kernels = s->kv->context->kernels;
        const size_t dim = s->kv->dim_k, n = level->n;
        const int dtype = s->kv->config.dtype - 1;
        const float lift = tree->node_lifts[level->nodes[p]];
        float *key = s->tiles->points, scores[DCI_KV_TILE];
        const void *rows[DCI_KV_TILE];
        int32_t keys[DCI_KV_TILE];
        dci_near best[BUILD_VIEW];
        size_t n_best = 0, found = 0;
        dci_kv_tree_rows(s->kv, s->layer, s->head, &tree->node_tokens[level->nodes[p]], 1, rows);
        kernels->to_f32[dtype](rows[0], dim, key);
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t t = 0; t < here; t++)
                        keys[t] = tree->node_tokens[level->nodes[i + t]];
                dci_kv_tree_rows(s->kv, s->layer, s->head, keys, here, rows);
                kernels->score_rows[dtype][DCI_FORM_DOT](key, rows, here, dim, scores);
                for (size_t t = 0; t < here; t++)
                        n_best = enter(best, n_best, BUILD_VIEW,
                                       scores[t] + lift * tree->node_lifts[level->nodes[i + t]], (int32_t)(i + t));
        }
        for (size_t b = 0; b < n_best; b++)
                for (int32_t c = level->child_first[best[b].node]; c < level->child_first[best[b].node + 1]; c++)
                        if (found < DCI_KV_TREE_BLOCK)
                                s->block[found++] = level->children[c];
        return found;
}

/* Candidates by the node of level l that they are assigned to; those of node p end at visits[p]. */
static void sort_candidates(dci_kv_tree_level *level, const int32_t *assigned, size_t n, int32_t *out)
{
        int32_t before = 0;
        memset(level->visits, 0, level->n * sizeof *level->visits);
        for (size_t i = 0; i < n; i++)
                level->visits[assigned[i]]++;
        for (size_t p = 0; p < level->n; p++) {
                const int32_t here = level->visits[p];
                level->visits[p] = before;
                before += here;
        }
        for (size_t i = 0; i < n; i++)
                out[level->visits[assigned[i]]++] = (int32_t)i;
}

void dci_kv_tree_place(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, size_t n,
                       const dci_kv_tree_tiles *tiles, void *scratch)
{
        placing s = {.kv = kv, .layer = layer, .head = head, .tree = tree, .tiles = tiles};
        int32_t *assigned = tree->members, *order = tree->placed; /* pages are made of it afterwards */
        size_t l = tree->n_levels - 1;
        lay_out(kv, scratch, &s);
        while (l > 0 && dci_kv_tree_level_size(tree, l - 1) <= START_NODES)
                l--;
        for (size_t i = 0; i < n; i++)
                order[i] = (int32_t)i;
        compare_all(&s, l, NULL, dci_kv_tree_level_size(tree, l), order, n, assigned);
        for (; l > 0; l--) {
                dci_kv_tree_level *level = &tree->levels[l];
                sort_candidates(level, assigned, n, order);
                for (size_t p = 0, first = 0, end; p < level->n; p++, first = end) {
                        end = (size_t)level->visits[p];
                        if (first < end)
                                compare_all(&s, l - 1, s.block, children_around(&s, l, p), order + first, end - first,
                                            assigned);
                }
        }
        for (size_t i = 0; i < tree->n_nodes; i++) /* nodes are in their own cells, as levels are exact */
                assigned[tree->node_tokens[i]] = (int32_t)i;
        memcpy(order, assigned, n * sizeof *order);
}

/* --- one candidate ------------------------------------------------------------------------------------------------ */

/* Compares a key with the n nodes of level l in the block; returns how many are kept. */
static size_t compare(const placing *s, size_t l, size_t n, const float *key, float lift, size_t view, dci_near *best,
                      size_t n_best)
{
        dci_kv *kv = s->kv;
        const dci_kv_tree *tree = s->tree;
        const void *rows[DCI_KV_TILE];
        int32_t keys[DCI_KV_TILE];
        float scores[DCI_KV_TILE];
        n = dci_kv_tree_retrieve_nodes(kv, tree, &s->retrieval, l, s->block, n, s->projections, 1,
                                       dci_kv_tree_retrieved(kv, DCI_KV_TREE_RETRIEVE_INSERT), 1);
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t t = 0; t < here; t++)
                        keys[t] = tree->node_tokens[dci_kv_tree_node_at(tree, l, (size_t)s->block[i + t])];
                dci_kv_tree_rows(kv, s->layer, s->head, keys, here, rows);
                kv->context->kernels->score_rows[kv->config.dtype - 1][DCI_FORM_DOT](key, rows, here, kv->dim_k,
                                                                                     scores);
                for (size_t t = 0; t < here; t++) {
                        const int32_t node = s->block[i + t];
                        const float own = tree->node_lifts[dci_kv_tree_node_at(tree, l, (size_t)node)];
                        n_best = enter(best, n_best, view, scores[t] + lift * own, node);
                }
        }
        return n_best;
}

int32_t dci_kv_tree_place_one(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, const float *key,
                              float lift, void *scratch, float *out_score)
{
        placing s = {.kv = kv, .layer = layer, .head = head, .tree = tree};
        dci_near best[2][INSERT_VIEW];
        const void *row = key;
        size_t n_best = 0, to = 0;
        lay_out(kv, scratch, &s);
        if (kv->config.tree_simple_indices > 0)
                dci_kv_tree_project(kv, &row, DCI_F32, &lift, 1, s.projections, 1, 1);
        for (size_t l = tree->n_levels; l-- > 0; to ^= 1) {
                const dci_kv_tree_level *above = &tree->levels[l + 1];
                const bool top = l + 1 == tree->n_levels;
                const size_t view = l == 0 ? 1 : INSERT_VIEW, n_above = top ? 1 : n_best;
                size_t n = 0;
                n_best = 0;
                for (size_t b = 0; b < n_above; b++) {
                        const size_t p = top ? 0 : (size_t)best[to ^ 1][b].node;
                        const size_t first = top ? 0 : (size_t)above->child_first[p],
                                     end = top ? dci_kv_tree_level_size(tree, l) : (size_t)above->child_first[p + 1];
                        for (size_t c = first; c < end; c++) {
                                s.block[n++] = top ? (int32_t)c : above->children[c];
                                if (n < BLOCK_NODES)
                                        continue;
                                n_best = compare(&s, l, n, key, lift, view, best[to], n_best);
                                n = 0;
                        }
                }
                n_best = compare(&s, l, n, key, lift, view, best[to], n_best);
        }
        *out_score = best[to ^ 1][0].score;
        return best[to ^ 1][0].node;
}
