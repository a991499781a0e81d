/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Bulk build, level by level: draw the promotions, find the nearest node of each row (and of each node, one level up) by tiles
 * of products, lay the cells out in pages. The result obeys the same laws as adding the rows one by one.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/tree/near.h"
#include "index/tree/plan.h"
#include "index/tree/route.h"

/* The mean of the points, or of some of them, evenly spread: it need only be near the middle. */
#define CENTRE_ROWS ((size_t)4096)
static void centre(dci_tree *tree, const dci_tree_source *source, float *point, double *sums)
{
        const size_t wide = tree->dim + 1, step = (source->n + CENTRE_ROWS - 1) / CENTRE_ROWS;
        size_t n = 0;
        memset(tree->mean, 0, wide * sizeof *tree->mean);
        memset(sums, 0, wide * sizeof *sums);
        for (size_t i = 0; i < source->n; i += step, n++) {
                dci_tree_source_point(tree, source, i, point);
                for (size_t p = 0; p < wide; p++)
                        sums[p] += point[p];
        }
        for (size_t p = 0; p < wide; p++)
                tree->mean[p] = (float)(sums[p] / (double)n);
}

/* The lowest level: the promoted rows; if chance promoted none, the one of lowest id. */
static dci_status first_level(dci_tree *tree, const dci_tree_source *source, float *point)
{
        dci_level *level = &tree->levels[0];
        size_t lowest = 0, n = 0;
        for (size_t i = 0; i < source->n; i++) {
                lowest = source->ids[i] < source->ids[lowest] ? i : lowest;
                n += dci_tree_promotions(tree, source->ids[i]) > 0;
        }
        tree->lone_id = n > 0 ? -1 : source->ids[lowest];
        if (!dci_level_reserve(tree, level, n > 0 ? n : 1))
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < source->n; i++) {
                if (n > 0 ? dci_tree_promotions(tree, source->ids[i]) == 0 : i != lowest)
                        continue;
                dci_tree_source_point(tree, source, i, point);
                dci_level_append(tree, 0, source->ids[i], point);
        }
        tree->n_levels = 1;
        return DCI_OK;
}

/* Lists of the nodes of `below` beneath each node, whose parents are these. */
static dci_status fill_cells(const dci_tree *tree, dci_level *level, const dci_level *below, const int32_t *parents)
{
        for (size_t i = 0; i < below->n; i++)
                level->cells[parents[i]].n_rows++; /* counts first */
        for (size_t i = 0; i < level->n; i++) {
                const size_t n = level->cells[i].n_rows;
                level->cells[i].n_rows = 0;
                if (!dci_cell_reserve(tree, &level->cells[i], n))
                        return DCI_ERR_MEMORY;
        }
        for (size_t i = 0; i < below->n; i++) {
                dci_cell *cell = &level->cells[parents[i]];
                cell->items[cell->n++] = (int32_t)i;
        }
        return DCI_OK;
}

/* The nodes of the level above the top; *out_parents: for those of the top. None: *out_parents stays NULL. */
static dci_status make_level(dci_tree *tree, int32_t **out_parents)
{
        const size_t l = tree->n_levels;
        const dci_level *below = &tree->levels[l - 1];
        dci_level *level = &tree->levels[l];
        size_t n = 0;
        for (size_t i = 0; i < below->n; i++)
                n += dci_tree_promotions(tree, below->ids[i]) > l;
        if (n == 0)
                return DCI_OK;
        int32_t *parents = dci_alloc(tree->context, below->capacity, sizeof *parents);
        if (parents == NULL || !dci_level_reserve(tree, level, n)) {
                dci_free(tree->context, parents, below->capacity, sizeof *parents);
                return DCI_ERR_MEMORY;
        }
        for (size_t i = 0; i < below->n; i++)
                if (dci_tree_promotions(tree, below->ids[i]) > l)
                        dci_level_append(tree, l, below->ids[i], below->points + i * (tree->dim + 1));
        dci_status status = dci_tree_assign_top(tree, l, parents);
        if (status == DCI_OK)
                status = fill_cells(tree, level, below, parents);
        if (status == DCI_OK) {
                *out_parents = parents;
                return DCI_OK;
        }
        dci_free(tree->context, parents, below->capacity, sizeof *parents);
        dci_level_destroy(tree, level);
        return status;
}

dci_status dci_tree_plan_level(dci_tree *tree, int32_t **out_parents)
{
        *out_parents = NULL;
        if (tree->n_levels == 0 || tree->n_levels == DCI_MAX_LEVELS ||
            tree->levels[tree->n_levels - 1].n / 2 <= tree->top_nodes)
                return DCI_OK;
        return make_level(tree, out_parents);
}

/* The level that was made becomes the top. */
static void raise_top(dci_tree *tree, int32_t *parents)
{
        dci_level *below = &tree->levels[tree->n_levels - 1];
        dci_free(tree->context, below->parents, below->capacity, sizeof *below->parents);
        below->parents = parents;
        tree->n_levels++;
}

void dci_tree_enter_level(dci_tree *tree, int32_t *parents)
{
        raise_top(tree, parents);
        for (size_t i = 0; i < tree->levels[tree->n_levels - 1].n; i++)
                dci_tree_route_node(tree, tree->n_levels - 1, i);
}

static dci_status next_levels(dci_tree *tree)
{
        while (tree->levels[tree->n_levels - 1].n > tree->top_nodes && tree->n_levels < DCI_MAX_LEVELS) {
                int32_t *parents = NULL;
                dci_status status = make_level(tree, &parents);
                if (status != DCI_OK || parents == NULL)
                        return status;
                raise_top(tree, parents);
        }
        return DCI_OK;
}

/* Consecutive pages, node by node; rows keep their order within a cell. */
static dci_status lay_out(dci_tree *tree, size_t n, const int32_t *labels, int32_t *out_slots)
{
        dci_level *level = &tree->levels[0];
        const size_t page_rows = tree->page_rows;
        size_t n_pages = 0;
        for (size_t i = 0; i < n; i++)
                level->cells[labels[i]].n_rows++;
        for (size_t i = 0; i < level->n; i++)
                n_pages += (level->cells[i].n_rows + page_rows - 1) / page_rows;
        if (n_pages > DCI_MAX_ROWS / page_rows)
                return dci_fail(DCI_ERR_LIMIT, "%zu rows in %zu pages of %zu exceed the %zu slots of one index", n,
                                n_pages, page_rows, DCI_MAX_ROWS);
        if (!dci_tree_reserve_pages(tree, n_pages))
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < level->n; i++) {
                dci_cell *cell = &level->cells[i];
                const size_t pages = (cell->n_rows + page_rows - 1) / page_rows;
                if (!dci_cell_reserve(tree, cell, pages))
                        return DCI_ERR_MEMORY;
                while (cell->n < pages)
                        cell->items[cell->n++] = dci_tree_take_page(tree, i);
                cell->n_rows = 0;
        }
        for (size_t i = 0; i < n; i++) {
                dci_cell *cell = &level->cells[labels[i]];
                out_slots[i] = cell->items[cell->n_rows / page_rows] * (int32_t)page_rows +
                               (int32_t)(cell->n_rows % page_rows);
                cell->n_rows++;
        }
        tree->n_rows = n;
        return DCI_OK;
}

dci_status dci_tree_build(dci_tree *tree, const dci_tree_source *source, const dci_progress *progress,
                          const void *object, int32_t *out_slots)
{
        dci_context *context = tree->context;
        const size_t wide = tree->dim + 1;
        float *point = dci_alloc(context, wide, sizeof *point);
        double *sums = dci_alloc(context, wide, sizeof *sums);
        dci_status status = point == NULL || sums == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK) {
                centre(tree, source, point, sums);
                status = first_level(tree, source, point);
        }
        dci_free(context, point, wide, sizeof *point);
        dci_free(context, sums, wide, sizeof *sums);
        if (status == DCI_OK)
                status = next_levels(tree);
        if (status == DCI_OK) /* the slots' array holds the labels first */
                status = dci_tree_assign(tree, source, progress, object, out_slots);
        return status == DCI_OK ? lay_out(tree, source->n, out_slots, out_slots) : status;
}
