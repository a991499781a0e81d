/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a search ranks nodes by: the mean of the rows beneath. A cell's is computed anew from its rows whenever they change, so
 * that no rounding piles up.
 */
#include "core/internal.h"

#include <string.h>

#include "index/tree.h"

#define MOST_PAGE_ROWS 256

static void route_cell(dci_tree *tree, const dci_rows *rows, size_t node)
{
        const dci_level *level = &tree->levels[0];
        const dci_cell *cell = &level->cells[node];
        const dci_view view = dci_rows_view(rows);
        const size_t dim = tree->dim;
        float *route = level->routes + node * dim;
        memset(route, 0, dim * sizeof *route);
        size_t done = 0;
        for (uint32_t i = 0; i < cell->n; i++) {
                const size_t left = cell->n_rows - done, here = left < tree->page_rows ? left : tree->page_rows;
                const size_t first = (size_t)cell->items[i] * tree->page_rows;
                const void *pointers[MOST_PAGE_ROWS];
                float norms[MOST_PAGE_ROWS];
                dci_view_pointers(&view, first, NULL, here, pointers);
                if (tree->metric == DCI_METRIC_COSINE)
                        dci_view_norms(&view, first, NULL, here, norms);
                tree->context->kernels->add_rows[rows->dtype - 1](
                        pointers, tree->metric == DCI_METRIC_COSINE ? norms : NULL, here, dim, route);
                done += here;
        }
        if (done == 0) /* an empty cell: where the node itself lies */
                memcpy(route, level->points + node * (dim + 1), dim * sizeof *route);
        const float share = done == 0 ? 1.0f : 1.0f / (float)done;
        for (size_t p = 0; p < dim; p++)
                route[p] = done == 0 ? route[p] + tree->mean[p] : route[p] * share;
}

static size_t rows_beneath(const dci_tree *tree, size_t l, size_t node)
{
        return tree->levels[l].cells[node].n_rows;
}

/* A node above level 1, from its children. */
void dci_tree_route_node(dci_tree *tree, size_t l, size_t node)
{
        const size_t dim = tree->dim;
        dci_level *level = &tree->levels[l];
        const dci_level *below = level - 1;
        dci_cell *cell = &level->cells[node];
        float *route = level->routes + node * dim;
        cell->n_rows = 0;
        for (uint32_t i = 0; i < cell->n; i++)
                cell->n_rows += (uint32_t)rows_beneath(tree, l - 1, (size_t)cell->items[i]);
        if (cell->n_rows == 0)
                return;
        memset(route, 0, dim * sizeof *route);
        for (uint32_t i = 0; i < cell->n; i++) {
                const size_t child = (size_t)cell->items[i];
                const float weight = (float)rows_beneath(tree, l - 1, child) / (float)cell->n_rows;
                for (size_t p = 0; p < dim; p++)
                        route[p] += weight * below->routes[child * dim + p];
        }
}

void dci_tree_route_dirty(dci_tree *tree, const dci_rows *rows, uint8_t *const *dirty)
{
        for (size_t l = 0; l < tree->n_levels; l++) {
                const dci_level *level = &tree->levels[l];
                for (size_t i = 0; i < level->n; i++) {
                        if (dirty[l][i] == 0)
                                continue;
                        if (l == 0)
                                route_cell(tree, rows, i);
                        else
                                dci_tree_route_node(tree, l, i);
                        if (level->parents[i] >= 0)
                                dirty[l + 1][level->parents[i]] = 1;
                }
        }
}

typedef struct routing {
        dci_tree *tree;
        const dci_rows *rows;
} routing;

#define TASK_NODES 64

static void route_task(void *arg, size_t task, size_t worker)
{
        (void)worker;
        const routing *r = arg;
        const size_t n = r->tree->levels[0].n, first = task * TASK_NODES;
        for (size_t i = first; i < n && i < first + TASK_NODES; i++)
                route_cell(r->tree, r->rows, i);
}

dci_status dci_tree_route_all(dci_tree *tree, const dci_rows *rows)
{
        dci_context *context = tree->context;
        const size_t n_tasks = (tree->levels[0].n + TASK_NODES - 1) / TASK_NODES;
        const size_t n_workers = dci_workers_for(context, n_tasks, tree->n_rows * tree->dim);
        routing r = {tree, rows};
        dci_region region = {context, n_tasks, n_workers, route_task, &r, NULL, 0, NULL};
        dci_status status = dci_parallel(&region);
        for (size_t l = 1; l < tree->n_levels; l++)
                for (size_t i = 0; i < tree->levels[l].n; i++)
                        dci_tree_route_node(tree, l, i);
        return status;
}
