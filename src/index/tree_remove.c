/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Removal: the rows leave their cells. A promoted row takes its node with it; what lay beneath that goes to the nearest of the
 * nodes that stay, one of those around it.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/tree.h"

/* Nodes that the rows of a vanishing cell are compared with. */
#define NODES_AROUND 32

/* Which nodes go, level by level: those of the rows that leave. */
static void mark_gone(dci_tree_plan *plan)
{
        const dci_tree *tree = plan->tree;
        for (size_t i = 0; i < plan->n_leaving; i++) {
                for (size_t l = 0; l < tree->n_levels; l++) {
                        const dci_level *level = &tree->levels[l];
                        const bool lone = l == 0 && plan->leaving[i] == tree->lone_id;
                        if (!lone && dci_tree_promotions(tree, plan->leaving[i]) <= l)
                                break;
                        size_t at = 0;
                        while (at < level->n && level->ids[at] != plan->leaving[i])
                                at++;
                        if (at < level->n)
                                plan->gone[l][at] = 1;
                }
        }
}

/* Nodes that are near to one that goes. */
typedef struct around {
        size_t n;
        dci_near nodes[NODES_AROUND];
        const void *points[NODES_AROUND];
} around;

/* A row, or a node, goes to the nearest of those around. */
static bool send(dci_tree_plan *plan, size_t l, int64_t id, const float *point, const around *near)
{
        const dci_tree *tree = plan->tree;
        const dci_level *level = &tree->levels[l];
        float products[NODES_AROUND] = {0};
        dci_near best = {-INFINITY, near->nodes[0].node};
        tree->context->kernels->score_rows[DCI_F32 - 1][DCI_FORM_DOT](point, near->points, near->n, tree->n_coords,
                                                                      products);
        for (size_t i = 0; i < near->n; i++) {
                const int32_t node = near->nodes[i].node;
                const float score = products[i] - level->nearest.offsets[node];
                if (score > best.score || (score == best.score && node < best.node))
                        best = (dci_near){score, node};
        }
        return dci_tree_plan_move(plan, (dci_tree_move){id, 0.0f, best.node, (uint32_t)l});
}

static bool dissolve_cell(dci_tree_plan *plan, const dci_idmap *leaving, size_t node, const around *near)
{
        const dci_tree *tree = plan->tree;
        const dci_cell *cell = &tree->levels[0].cells[node];
        const dci_view view = dci_rows_view(plan->rows);
        for (size_t i = 0; i < cell->n_rows; i++) {
                const int32_t slot =
                        cell->items[i / tree->page_rows] * (int32_t)tree->page_rows + (int32_t)(i % tree->page_rows);
                const int64_t id = dci_view_id(&view, slot);
                const void *row;
                float norm = 0.0f;
                if (dci_idmap_find(leaving, id) >= 0)
                        continue;
                dci_view_pointers(&view, (size_t)slot, NULL, 1, &row);
                if (plan->rows->with_norms)
                        dci_view_norms(&view, (size_t)slot, NULL, 1, &norm);
                dci_tree_point(tree, plan->rows->dtype, row, norm, plan->scratch);
                if (!send(plan, 0, id, plan->scratch, near))
                        return false;
        }
        return true;
}

static bool dissolve_node(dci_tree_plan *plan, size_t l, size_t node, const around *near)
{
        const dci_tree *tree = plan->tree;
        const dci_cell *cell = &tree->levels[l].cells[node];
        for (uint32_t i = 0; i < cell->n; i++) {
                const int32_t child = cell->items[i];
                if (plan->gone[l - 1][child] == 0 &&
                    !send(plan, l, child, tree->levels[l - 1].points + (size_t)child * (tree->dim + 1), near))
                        return false;
        }
        return true;
}

/* True too if nothing is left to go to: at the top, the level will vanish; at the bottom, *out_alone. */
static bool dissolve(dci_tree_plan *plan, const dci_idmap *leaving, void *scratch, bool *out_alone)
{
        const dci_tree *tree = plan->tree;
        around near;
        for (size_t l = 0; l < tree->n_levels; l++) {
                const dci_level *level = &tree->levels[l];
                for (size_t node = 0; node < level->n; node++) {
                        if (plan->gone[l][node] == 0)
                                continue;
                        dci_tree_near(tree, l, level->points + node * (tree->dim + 1), 1, NODES_AROUND, plan->gone[l],
                                      scratch, near.nodes, &near.n);
                        for (size_t i = 0; i < near.n; i++)
                                near.points[i] = level->points + (size_t)near.nodes[i].node * (tree->dim + 1);
                        if (near.n == 0) {
                                *out_alone = *out_alone || l == 0 || l + 1 < tree->n_levels;
                                break;
                        }
                        if (!(l == 0 ? dissolve_cell(plan, leaving, node, &near) : dissolve_node(plan, l, node, &near)))
                                return false;
                }
        }
        return true;
}

dci_status dci_tree_plan_remove(dci_tree *tree, dci_rows *rows, const dci_idmap *leaving, size_t n, const int64_t *ids,
                                dci_tree_plan *out, bool *out_alone)
{
        dci_context *context = tree->context;
        memset(out, 0, sizeof *out);
        *out_alone = false;
        out->tree = tree;
        out->rows = rows;
        out->n_leaving = n;
        out->leaving = ids;
        out->scratch = dci_alloc(context, tree->dim + 1, sizeof *out->scratch);
        bool whole = out->scratch != NULL;
        for (size_t l = 0; l < tree->n_levels; l++) {
                out->n_nodes[l] = tree->levels[l].n;
                out->gone[l] = dci_calloc(context, out->n_nodes[l], sizeof *out->gone[l]);
                whole = whole && out->gone[l] != NULL;
        }
        void *scratch = dci_alloc(context, dci_tree_near_bytes(tree), 1);
        whole = whole && scratch != NULL;
        if (whole) {
                mark_gone(out);
                whole = dissolve(out, leaving, scratch, out_alone);
        }
        dci_free(context, scratch, dci_tree_near_bytes(tree), 1);
        if (!whole)
                dci_tree_plan_free(out);
        return whole ? DCI_OK : DCI_ERR_MEMORY;
}

/* With nobody above them, those below are the top. */
static void drop_top(dci_tree *tree)
{
        dci_level *level = &tree->levels[tree->n_levels - 1];
        dci_level_forget(tree, level);
        tree->n_levels--;
        level--;
        for (size_t i = 0; i < level->n; i++)
                level->parents[i] = -1;
}

void dci_tree_remove(dci_tree_plan *plan, const dci_tree_store *store)
{
        dci_tree *tree = plan->tree;
        tree->version++;
        dci_tree_plan_carry_out(plan, store);
        for (size_t i = 0; i < plan->n_leaving; i++) {
                const int32_t slot = dci_idmap_find(store->map, plan->leaving[i]);
                plan->dirty[0][tree->page_node[(size_t)slot / tree->page_rows]] = 1;
                dci_tree_detach(tree, store, slot);
                dci_idmap_remove(store->map, plan->leaving[i]);
        }
        for (size_t i = 0; i < plan->n_leaving; i++)
                if (plan->leaving[i] == tree->lone_id)
                        tree->lone_id = -1;
        tree->n_rows -= plan->n_leaving;
        for (size_t l = 0; l < tree->n_levels; l++)
                for (size_t node = tree->levels[l].n; node-- > 0;)
                        if (plan->gone[l][node] != 0) { /* from the end: the last one, which takes the number, stays */
                                if (tree->levels[l].parents[node] >= 0)
                                        plan->dirty[l + 1][tree->levels[l].parents[node]] = 1;
                                dci_tree_remove_node(tree, l, node, plan->dirty[l]);
                        }
        while (tree->n_levels > 1 && tree->levels[tree->n_levels - 1].n == 0)
                drop_top(tree);
}
