/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Removal: the rows leave their cells. A promoted row takes its node with it; what lay beneath that goes to the nearest of the
 * nodes that stay.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/tree/near.h"
#include "index/tree/plan.h"

#define AT_ONCE 32

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

/* Things on their way to the nearest of the nodes that stay. */
typedef struct homeless {
        dci_tree_plan *plan;
        size_t l, n;
        float *points; /* AT_ONCE x (dim + 1) */
        int64_t ids[AT_ONCE];
        void *scratch;
} homeless;

/* Offsets of nodes that go are infinite meanwhile, so tiles of products pass them by. Only writers read these. */
static bool find_by_tiles(const homeless *h)
{
        const dci_tree *tree = h->plan->tree;
        return h->l == 0 && tree->n_levels == 1;
}

/* Nodes that come take the place of those found where they are nearer. */
static void try_new(const homeless *h, float *scores, int32_t *nodes)
{
        const dci_tree_plan *plan = h->plan;
        const size_t wide = plan->tree->dim + 1;
        if (h->l > 0) {
                for (size_t i = 0; i < h->n; i++)
                        dci_tree_plan_near_new(plan, h->l, h->points + i * wide, &scores[i], &nodes[i]);
        } else if (plan->new_memory != NULL && h->n > 0) {
                int32_t found[AT_ONCE];
                float others[AT_ONCE];
                dci_nearest_find(&plan->new_nearest, h->points, wide, h->n, h->scratch, found, others);
                for (size_t i = 0; i < h->n; i++)
                        if (others[i] > scores[i])
                                nodes[i] = (int32_t)plan->tree->levels[0].n + found[i];
        }
}

/* False if memory is short. */
static bool settle(homeless *h)
{
        const dci_tree *tree = h->plan->tree;
        const size_t wide = tree->dim + 1;
        int32_t nodes[AT_ONCE] = {0};
        float scores[AT_ONCE];
        bool whole = true;
        if (find_by_tiles(h))
                dci_nearest_find(&tree->levels[0].nearest, h->points, wide, h->n, h->scratch, nodes, scores);
        for (size_t i = 0; !find_by_tiles(h) && i < h->n; i += DCI_MANY_QUERIES) {
                dci_near near[DCI_MANY_QUERIES];
                size_t n_near[DCI_MANY_QUERIES];
                const size_t here = h->n - i < DCI_MANY_QUERIES ? h->n - i : DCI_MANY_QUERIES;
                dci_tree_near(tree, h->l, h->points + i * wide, here, 1, h->plan->gone[h->l], h->scratch, near, n_near);
                for (size_t j = 0; j < here; j++) {
                        nodes[i + j] = near[j].node;
                        scores[i + j] = near[j].score;
                }
        }
        if (h->plan->source != NULL)
                try_new(h, scores, nodes);
        for (size_t i = 0; i < h->n && whole; i++)
                whole = dci_tree_plan_move(h->plan, (dci_tree_move){h->ids[i], 0.0f, nodes[i], (uint32_t)h->l});
        h->n = 0;
        return whole;
}

static bool dissolve_cell(homeless *h, size_t node)
{
        const dci_tree *tree = h->plan->tree;
        const dci_cell *cell = &tree->levels[0].cells[node];
        const dci_view view = dci_rows_view(h->plan->rows);
        for (size_t i = 0; i < cell->n_rows; i++) {
                const int32_t slot =
                        cell->items[i / tree->page_rows] * (int32_t)tree->page_rows + (int32_t)(i % tree->page_rows);
                const int64_t id = dci_view_id(&view, slot);
                if (dci_idmap_find(h->plan->leaving_set, id) >= 0)
                        continue;
                dci_tree_point_of_slot(tree, &view, slot, h->points + h->n * (tree->dim + 1));
                h->ids[h->n++] = id;
                if (h->n == AT_ONCE && !settle(h))
                        return false;
        }
        return true;
}

static bool dissolve_node(homeless *h, size_t node)
{
        const dci_tree *tree = h->plan->tree;
        const size_t wide = tree->dim + 1;
        const dci_cell *cell = &tree->levels[h->l].cells[node];
        for (uint32_t i = 0; i < cell->n; i++) {
                const int32_t child = cell->items[i];
                if (h->plan->gone[h->l - 1][child] != 0)
                        continue;
                memcpy(h->points + h->n * wide, tree->levels[h->l - 1].points + (size_t)child * wide,
                       wide * sizeof *h->points);
                h->ids[h->n++] = child;
                if (h->n == AT_ONCE && !settle(h))
                        return false;
        }
        return true;
}

static bool dissolve_level(homeless *h)
{
        dci_level *level = &h->plan->tree->levels[h->l];
        const uint8_t *gone = h->plan->gone[h->l];
        bool whole = true;
        for (size_t node = 0; node < level->n; node++)
                if (gone[node] != 0)
                        level->nearest.offsets[node] = INFINITY;
        for (size_t node = 0; node < level->n && whole; node++)
                if (gone[node] != 0)
                        whole = h->l == 0 ? dissolve_cell(h, node) : dissolve_node(h, node);
        whole = whole && settle(h);
        for (size_t node = 0; node < level->n; node++)
                if (gone[node] != 0)
                        dci_nearest_put(&level->nearest, node);
        return whole;
}

/* True too if nothing is left to go to: at the top, the level will vanish; below it, *out_alone. */
static bool dissolve_all(homeless *h, bool *out_alone)
{
        const dci_tree_plan *plan = h->plan;
        const dci_tree *tree = plan->tree;
        for (h->l = 0; h->l < tree->n_levels; h->l++) {
                const size_t n = tree->levels[h->l].n;
                size_t n_gone = 0;
                for (size_t i = 0; i < n; i++)
                        n_gone += plan->gone[h->l][i];
                if (n_gone == n)
                        *out_alone = *out_alone || h->l == 0 || h->l + 1 < tree->n_levels;
                else if (n_gone > 0 && !dissolve_level(h))
                        return false;
        }
        return true;
}

bool dci_tree_plan_begin_remove(dci_tree_plan *plan, const dci_idmap *leaving, size_t n, const int64_t *ids)
{
        plan->n_leaving = n;
        plan->leaving = ids;
        plan->leaving_set = leaving;
        for (size_t l = 0; l < plan->tree->n_levels; l++) {
                plan->gone[l] = dci_calloc(plan->tree->context, plan->n_nodes[l], sizeof *plan->gone[l]);
                if (plan->gone[l] == NULL)
                        return false;
        }
        mark_gone(plan);
        return true;
}

bool dci_tree_plan_dissolve(dci_tree_plan *plan, bool *out_alone)
{
        const dci_tree *tree = plan->tree;
        dci_context *context = tree->context;
        const size_t near_bytes = dci_tree_near_bytes(),
                     nearest_bytes = dci_lines(dci_nearest_scratch_bytes(tree->context, tree->n_coords)),
                     n_bytes = near_bytes > nearest_bytes ? near_bytes : nearest_bytes;
        homeless h = {.plan = plan, .scratch = dci_alloc(context, n_bytes, 1)};
        h.points = dci_alloc(context, AT_ONCE * (tree->dim + 1), sizeof *h.points);
        const bool whole = h.scratch != NULL && h.points != NULL && dissolve_all(&h, out_alone);
        dci_free(context, h.points, AT_ONCE * (tree->dim + 1), sizeof *h.points);
        dci_free(context, h.scratch, n_bytes, 1);
        return whole;
}

dci_status dci_tree_plan_remove(dci_tree *tree, dci_rows *rows, const dci_idmap *leaving, size_t n, const int64_t *ids,
                                dci_tree_plan *out, bool *out_alone)
{
        *out_alone = false;
        dci_tree_plan_init(out, tree, rows);
        out->scratch = dci_alloc(tree->context, tree->dim + 1, sizeof *out->scratch);
        const bool whole = out->scratch != NULL && dci_tree_plan_begin_remove(out, leaving, n, ids) &&
                           dci_tree_plan_dissolve(out, out_alone);
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

void dci_tree_plan_detach(dci_tree_plan *plan, const dci_tree_store *store)
{
        dci_tree *tree = plan->tree;
        for (size_t i = 0; i < plan->n_leaving; i++) {
                const int32_t slot = dci_idmap_find(store->map, plan->leaving[i]);
                plan->dirty[0][tree->page_node[(size_t)slot / tree->page_rows]] = 1;
                dci_tree_detach(tree, store, slot);
                dci_idmap_remove(store->map, plan->leaving[i]);
        }
        tree->n_rows -= plan->n_leaving;
}

void dci_tree_plan_remove_nodes(dci_tree_plan *plan)
{
        dci_tree *tree = plan->tree;
        for (size_t i = 0; i < plan->n_leaving; i++)
                if (plan->leaving[i] == tree->lone_id)
                        tree->lone_id = -1;
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

void dci_tree_remove(dci_tree_plan *plan, const dci_tree_store *store)
{
        plan->tree->version++;
        dci_tree_plan_carry_out(plan, store);
        dci_tree_plan_detach(plan, store);
        dci_tree_plan_remove_nodes(plan);
}
