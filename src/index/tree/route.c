/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a search ranks nodes by: the mean of the rows beneath; and how far a cell reaches, which decides where a new node finds rows.
 * A cell's are computed again from its rows whenever they change, so that no rounding piles up.
 */
#include "core/internal.h"

#include <string.h>

#include "index/tree/route.h"

/* The largest squared distance from a node to some rows, whose products with it (COSINE) or squared distances but for the lift (L2,
 * IP) are known. */
static float reach(const dci_tree *tree, const dci_level *level, size_t node, float node_norm2, const float *values,
                   const float *norms, size_t n)
{
        float most = 0.0f;
        for (size_t i = 0; i < n; i++) {
                float d2 = values[i];
                if (tree->metric == DCI_METRIC_IP) {
                        const float d = dci_tree_lift(tree, norms[i]) - tree->mean[tree->dim] - level->lasts[node];
                        d2 += d * d;
                } else if (tree->metric == DCI_METRIC_COSINE) { /* a row that counts as zero is the origin */
                        d2 = (norms[i] > 0.0f ? 1.0f : 0.0f) + node_norm2 - 2.0f * norms[i] * values[i];
                }
                most = d2 > most ? d2 : most;
        }
        return most;
}

void dci_tree_route_of_cell(const dci_tree *tree, const dci_rows *rows, size_t node, float *scratch, float *route,
                            float *out_radius2)
{
        const dci_level *level = &tree->levels[0];
        const dci_cell *cell = &level->cells[node];
        const dci_view view = dci_rows_view(rows);
        const dci_kernels *kernels = tree->context->kernels;
        const size_t dim = tree->dim;
        const bool cosine = tree->metric == DCI_METRIC_COSINE;
        float most = 0.0f;
        for (size_t p = 0; p < dim; p++) { /* the node as a row */
                scratch[p] = level->points[node * (dim + 1) + p] + tree->mean[p];
                route[p] = 0.0f;
        }
        const float node_norm2 = kernels->norm2[DCI_F32 - 1](scratch, dim);
        for (uint32_t i = 0; i < cell->n; i++) {
                const size_t here = dci_tree_page_fill(tree, cell, i);
                const size_t first = (size_t)cell->items[i] * tree->page_rows;
                const void *pointers[DCI_MAX_PAGE_ROWS];
                float norms[DCI_MAX_PAGE_ROWS] = {0}, values[DCI_MAX_PAGE_ROWS];
                dci_view_pointers(&view, first, NULL, here, pointers);
                if (rows->with_norms)
                        dci_view_norms(&view, first, NULL, here, norms);
                kernels->add_rows[rows->dtype - 1](pointers, cosine ? norms : NULL, here, dim, route);
                kernels->score_rows[rows->dtype - 1][cosine ? DCI_FORM_DOT : DCI_FORM_L2](scratch, pointers, here, dim,
                                                                                          values);
                const float far = reach(tree, level, node, node_norm2, values, norms, here);
                most = far > most ? far : most;
        }
        *out_radius2 = most;
        /* An empty cell: the node's own point. */
        const float share = cell->n_rows == 0 ? 0.0f : 1.0f / (float)cell->n_rows;
        for (size_t p = 0; p < dim; p++)
                route[p] = cell->n_rows == 0 ? scratch[p] : route[p] * share;
}

static void route_cell(dci_tree *tree, const dci_rows *rows, size_t node, float *scratch)
{
        const dci_level *level = &tree->levels[0];
        dci_tree_route_of_cell(tree, rows, node, scratch, level->routes + node * tree->dim, &level->radii2[node]);
}

static size_t rows_beneath(const dci_tree *tree, size_t l, size_t node)
{
        return tree->levels[l].cells[node].n_rows;
}

static float distance2(const dci_tree *tree, const float *a, const float *b)
{
        float d2;
        tree->context->kernels->score_strided[DCI_F32 - 1][DCI_FORM_L2](a, b, tree->n_coords * sizeof *b, 1,
                                                                        tree->n_coords, &d2);
        return d2;
}

void dci_tree_route_of_node(const dci_tree *tree, size_t l, size_t node, float *route, float *out_radius2)
{
        const size_t dim = tree->dim;
        const dci_level *level = &tree->levels[l], *below = level - 1;
        const dci_cell *cell = &level->cells[node];
        *out_radius2 = 0.0f;
        for (size_t p = 0; p < dim; p++) /* with no rows beneath: the node's own point */
                route[p] = cell->n_rows == 0 ? level->points[node * (dim + 1) + p] + tree->mean[p] : 0.0f;
        for (uint32_t i = 0; i < cell->n; i++) {
                const size_t child = (size_t)cell->items[i];
                const float d2 = distance2(tree, level->points + node * (dim + 1), below->points + child * (dim + 1));
                *out_radius2 = d2 > *out_radius2 ? d2 : *out_radius2;
                const float weight = (float)rows_beneath(tree, l - 1, child) / (float)cell->n_rows;
                for (size_t p = 0; cell->n_rows > 0 && p < dim; p++)
                        route[p] += weight * below->routes[child * dim + p];
        }
}

void dci_tree_route_node(dci_tree *tree, size_t l, size_t node)
{
        const dci_level *level = &tree->levels[l];
        dci_cell *cell = &level->cells[node];
        cell->n_rows = 0;
        for (uint32_t i = 0; i < cell->n; i++)
                cell->n_rows += (uint32_t)rows_beneath(tree, l - 1, (size_t)cell->items[i]);
        dci_tree_route_of_node(tree, l, node, level->routes + node * tree->dim, &level->radii2[node]);
}

void dci_tree_route_dirty(dci_tree *tree, const dci_rows *rows, uint8_t *const *dirty, float *scratch)
{
        for (size_t l = 0; l < tree->n_levels; l++) {
                const dci_level *level = &tree->levels[l];
                for (size_t i = 0; i < level->n; i++) {
                        if (dirty[l][i] == 0)
                                continue;
                        if (l == 0)
                                route_cell(tree, rows, i, scratch);
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
        float *scratch; /* by worker: dim */
} routing;

#define TASK_NODES 64

static void route_task(void *arg, size_t task, size_t worker)
{
        const routing *r = arg;
        const size_t n = r->tree->levels[0].n, first = task * TASK_NODES;
        for (size_t i = first; i < n && i < first + TASK_NODES; i++)
                route_cell(r->tree, r->rows, i, r->scratch + worker * r->tree->dim);
}

dci_status dci_tree_route_all(dci_tree *tree, const dci_rows *rows)
{
        dci_context *context = tree->context;
        const size_t n_tasks = (tree->levels[0].n + TASK_NODES - 1) / TASK_NODES;
        const size_t n_workers = dci_workers_for(context, n_tasks, tree->n_rows * tree->dim);
        routing r = {tree, rows, dci_alloc(context, n_workers * tree->dim, sizeof *r.scratch)};
        if (r.scratch == NULL)
                return DCI_ERR_MEMORY;
        dci_region region = {context, n_tasks, n_workers, route_task, &r, NULL, 0, NULL};
        dci_status status = dci_parallel(&region);
        for (size_t l = 1; l < tree->n_levels; l++)
                for (size_t i = 0; i < tree->levels[l].n; i++)
                        dci_tree_route_node(tree, l, i);
        dci_free(context, r.scratch, n_workers * tree->dim, sizeof *r.scratch);
        return status;
}
