/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Levels above a tree's nodes (IceCache 2026, algorithm 2). They are exact: a node's parent is the nearest node of the
 * level above, the lower one of equals, so that a node that comes or goes changes no more than a comparison with all
 * would.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/tree/tree.h"

typedef struct relating {
        dci_kv *kv;
        const dci_kv_layer *layer;
        size_t head;
        dci_kv_tree *tree;
        float *wide; /* n_wide keys */
        size_t n_wide;
} relating;

/* --- parents ------------------------------------------------------------------------------------------------------ */

/* Nodes [first, end) of level l against n <= n_wide nodes of the level above, from number `from` on, whose keys are
 * wide. */
static void compare(const relating *r, size_t l, size_t first, size_t end, size_t from, size_t n)
{
        dci_kv *kv = r->kv;
        dci_kv_tree *tree = r->tree;
        dci_kv_tree_level *level = &tree->levels[l], *above = &tree->levels[l + 1];
        const void *rows[DCI_KV_TILE];
        int32_t candidates[DCI_KV_TILE];
        float scores[DCI_MANY_QUERIES * DCI_KV_TILE];
        for (size_t i = first, here; i < end; i += here) {
                here = end - i < DCI_KV_TILE ? end - i : DCI_KV_TILE;
                for (size_t t = 0; t < here; t++)
                        candidates[t] = tree->node_tokens[dci_kv_tree_node_at(tree, l, i + t)];
                dci_kv_tree_rows(kv, r->layer, r->head, candidates, here, rows);
                kv->context->kernels->score_many[kv->config.dtype - 1][DCI_FORM_DOT](r->wide, kv->dim_k, n, rows, here,
                                                                                     kv->dim_k, scores, DCI_KV_TILE);
                for (size_t p = 0; p < n; p++) {
                        const float lift = tree->node_lifts[above->nodes[from + p]];
                        for (size_t t = 0; t < here; t++) {
                                const float own = tree->node_lifts[dci_kv_tree_node_at(tree, l, i + t)];
                                const float score = scores[p * DCI_KV_TILE + t] + own * lift;
                                if (!(score > level->parent_scores[i + t]))
                                        continue;
                                if (level->parent_scores[i + t] > -INFINITY)
                                        above->dirty[level->parents[i + t]] = 1;
                                level->parent_scores[i + t] = score;
                                level->parents[i + t] = (int32_t)(from + p);
                                above->dirty[from + p] = 1;
                        }
                }
        }
}

/* Nodes [first, end) of level l against nodes [from, to) of the level above. */
static void compare_all(const relating *r, size_t l, size_t first, size_t end, size_t from, size_t to)
{
        dci_kv *kv = r->kv;
        const dci_kv_tree *tree = r->tree;
        for (size_t p = from, n; p < to && first < end; p += n) {
                n = to - p < r->n_wide ? to - p : r->n_wide;
                for (size_t i = 0; i < n; i++) {
                        const void *row;
                        dci_kv_tree_rows(kv, r->layer, r->head,
                                         &tree->node_tokens[dci_kv_tree_node_at(tree, l + 1, p + i)], 1, &row);
                        kv->context->kernels->to_f32[kv->config.dtype - 1](row, kv->dim_k, r->wide + i * kv->dim_k);
                }
                compare(r, l, first, end, p, n);
        }
}

static void orphan(dci_kv_tree_level *level, size_t i)
{
        level->parents[i] = 0;
        level->parent_scores[i] = -INFINITY;
}

/* Parents of level l: of those that had one where it left, of new ones, and of all by new nodes of the level above. */
static void place_level(const relating *r, size_t l)
{
        dci_kv_tree_level *level = &r->tree->levels[l], *above = &r->tree->levels[l + 1];
        const size_t n = dci_kv_tree_level_size(r->tree, l), n_parents = above->n;
        for (size_t i = n; i < level->n_placed; i++) /* they left */
                if ((size_t)level->parents[i] < n_parents)
                        above->dirty[level->parents[i]] = 1;
        level->n_placed = level->n_placed < n ? level->n_placed : n;
        if (level->n_placed == 0) {
                level->n_parents = 0;
                memset(above->dirty, 1, n_parents);
        }
        if (level->n_parents > n_parents) {
                for (size_t i = 0; i < level->n_placed; i++)
                        if ((size_t)level->parents[i] >= n_parents) {
                                orphan(level, i);
                                compare_all(r, l, i, i + 1, 0, n_parents);
                        }
                level->n_parents = n_parents;
        }
        compare_all(r, l, 0, level->n_placed, level->n_parents, n_parents);
        for (size_t i = level->n_placed; i < n; i++)
                orphan(level, i);
        compare_all(r, l, level->n_placed, n, 0, n_parents);
        level->n_placed = n;
        level->n_parents = n_parents;
}

/* Children of each node of level l + 1, ascending. */
static void list_children(dci_kv_tree *tree, size_t l)
{
        const dci_kv_tree_level *below = &tree->levels[l];
        dci_kv_tree_level *level = &tree->levels[l + 1];
        const size_t n = dci_kv_tree_level_size(tree, l);
        memset(level->child_first, 0, (level->n + 1) * sizeof *level->child_first);
        for (size_t i = 0; i < n; i++)
                level->child_first[below->parents[i] + 1]++;
        for (size_t p = 0; p < level->n; p++)
                level->child_first[p + 1] += level->child_first[p];
        for (size_t i = 0; i < n; i++)
                level->children[level->child_first[below->parents[i]]++] = (int32_t)i;
        for (size_t p = level->n; p > 0; p--)
                level->child_first[p] = level->child_first[p - 1];
        level->child_first[0] = 0;
}

/* Nodes of the levels above 0, as far as there is room for levels; returns whether any came or went. */
static bool draw_levels(const dci_kv *kv, dci_kv_tree *tree)
{
        const bool changed = tree->n_levelled != tree->n_nodes;
        for (size_t l = 1; l < DCI_KV_TREE_LEVELS; l++) {
                dci_kv_tree_level *level = &tree->levels[l];
                while (level->n > 0 && (size_t)level->nodes[level->n - 1] >= tree->n_nodes)
                        level->n--;
        }
        for (size_t i = tree->n_levelled; i < tree->n_nodes && tree->levels[1].capacity > 0; i++) {
                const size_t n = dci_kv_tree_promotions(kv, (size_t)tree->node_tokens[i]);
                for (size_t l = 1; l < n && tree->levels[l].capacity > 0; l++) {
                        dci_kv_tree_level *level = &tree->levels[l];
                        level->dirty[level->n] = 1;
                        level->nodes[level->n++] = (int32_t)i;
                }
        }
        tree->n_levelled = tree->n_nodes;
        return changed;
}

void dci_kv_tree_relate(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, float *wide,
                        size_t n_wide)
{
        const relating r = {kv, layer, head, tree, wide, n_wide};
        size_t counts[DCI_KV_TREE_LEVELS];
        if (!draw_levels(kv, tree))
                return;
        for (size_t l = 0; l < DCI_KV_TREE_LEVELS; l++)
                counts[l] = dci_kv_tree_level_size(tree, l);
        tree->n_levels = isinf(tree->c_squared) ? 1 : dci_kv_tree_count_levels(kv, counts);
        for (size_t l = 0; l < DCI_KV_TREE_LEVELS; l++) {
                if (l + 1 >= tree->n_levels) {
                        tree->levels[l].n_placed = tree->levels[l].n_parents = 0;
                        continue;
                }
                place_level(&r, l);
                list_children(tree, l);
        }
}
