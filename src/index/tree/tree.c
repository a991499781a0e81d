/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The tree's memory: levels, cells, pages; and what a row is to it: a point, and so many promotions. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/tree/tree.h"

dci_tree *dci_tree_create(dci_context *context, const dci_index_config *config)
{
        dci_tree *tree = dci_calloc(context, 1, sizeof *tree);
        if (tree == NULL)
                return NULL;
        tree->context = context;
        tree->metric = config->metric;
        tree->dim = config->dim;
        tree->n_coords = config->dim + (config->metric == DCI_METRIC_IP ? 1 : 0);
        tree->page_rows = config->page_rows;
        tree->promotion_prob = config->promotion_prob;
        tree->promotion_prob_subseq = config->promotion_prob_subseq;
        tree->top_nodes = config->top_nodes;
        tree->seed = config->seed;
        tree->lone_id = -1;
        tree->mean = dci_calloc(context, tree->dim + 1, sizeof *tree->mean);
        if (tree->mean == NULL) {
                dci_tree_destroy(tree);
                return NULL;
        }
        return tree;
}

void dci_tree_destroy(dci_tree *tree)
{
        if (tree == NULL)
                return;
        dci_context *context = tree->context;
        for (size_t l = 0; l < DCI_MAX_LEVELS; l++)
                dci_level_destroy(tree, &tree->levels[l]);
        dci_free(context, tree->page_node, tree->page_capacity, sizeof *tree->page_node);
        dci_free(context, tree->page_version, tree->page_capacity, sizeof *tree->page_version);
        dci_free(context, tree->free_pages, tree->page_capacity, sizeof *tree->free_pages);
        dci_free(context, tree->mean, tree->dim + 1, sizeof *tree->mean);
        dci_free(context, tree, 1, sizeof *tree);
}

size_t dci_tree_bytes(const dci_tree *tree)
{
        size_t n = sizeof *tree + (tree->dim + 1) * sizeof(float) + tree->page_capacity * 16;
        for (size_t l = 0; l < DCI_MAX_LEVELS; l++) {
                const dci_level *level = &tree->levels[l];
                n += level->capacity * (sizeof *level->ids + (2 * tree->dim + 3) * sizeof(float) +
                                        sizeof *level->parents + sizeof *level->cells);
                n += dci_nearest_bytes(tree->context, level->capacity, tree->n_coords);
                for (size_t i = 0; i < level->n; i++)
                        n += level->cells[i].capacity * sizeof *level->cells[i].items;
        }
        return n;
}

void dci_level_forget(const dci_tree *tree, dci_level *level)
{
        dci_context *context = tree->context;
        dci_free(context, level->ids, level->capacity, sizeof *level->ids);
        dci_free(context, level->points, level->capacity * (tree->dim + 1), sizeof *level->points);
        dci_free(context, level->nearest_memory, dci_nearest_bytes(context, level->capacity, tree->n_coords), 1);
        dci_free(context, level->radii2, level->capacity, sizeof *level->radii2);
        dci_free(context, level->lasts, level->capacity, sizeof *level->lasts);
        dci_free(context, level->routes, level->capacity * tree->dim, sizeof *level->routes);
        dci_free(context, level->parents, level->capacity, sizeof *level->parents);
        dci_free(context, level->cells, level->capacity, sizeof *level->cells);
        *level = (dci_level){0};
}

void dci_level_destroy(const dci_tree *tree, dci_level *level)
{
        for (size_t i = 0; i < level->n; i++)
                dci_free(tree->context, level->cells[i].items, level->cells[i].capacity, sizeof(int32_t));
        dci_level_forget(tree, level);
}

bool dci_level_grow(const dci_tree *tree, const dci_level *level, size_t n, dci_level *out)
{
        dci_context *context = tree->context;
        const size_t wide = tree->dim + 1;
        const size_t capacity = level->capacity + level->capacity / 2 > n ? level->capacity + level->capacity / 2 : n;
        dci_level grown = {.n = level->n, .capacity = capacity};
        grown.ids = dci_alloc(context, capacity, sizeof *grown.ids);
        grown.points = dci_alloc(context, capacity * wide, sizeof *grown.points);
        grown.nearest_memory = dci_alloc(context, dci_nearest_bytes(context, capacity, tree->n_coords), 1);
        grown.lasts = dci_alloc(context, capacity, sizeof *grown.lasts);
        grown.radii2 = dci_alloc(context, capacity, sizeof *grown.radii2);
        grown.routes = dci_alloc(context, capacity * tree->dim, sizeof *grown.routes);
        grown.parents = dci_alloc(context, capacity, sizeof *grown.parents);
        grown.cells = dci_calloc(context, capacity, sizeof *grown.cells);
        if (grown.ids == NULL || grown.points == NULL || grown.nearest_memory == NULL || grown.lasts == NULL ||
            grown.radii2 == NULL || grown.routes == NULL || grown.parents == NULL || grown.cells == NULL) {
                dci_level_forget(tree, &grown);
                return false;
        }
        if (level->n > 0) {
                memcpy(grown.ids, level->ids, level->n * sizeof *grown.ids);
                memcpy(grown.points, level->points, level->n * wide * sizeof *grown.points);
                dci_nearest_move(context, &level->nearest, grown.points, capacity, grown.nearest_memory,
                                 &grown.nearest);
                memcpy(grown.lasts, level->lasts, level->n * sizeof *grown.lasts);
                memcpy(grown.radii2, level->radii2, level->n * sizeof *grown.radii2);
                memcpy(grown.routes, level->routes, level->n * tree->dim * sizeof *grown.routes);
                memcpy(grown.parents, level->parents, level->n * sizeof *grown.parents);
                memcpy(grown.cells, level->cells, level->n * sizeof *grown.cells);
        } else {
                dci_nearest_init(context, grown.points, wide, capacity, tree->n_coords, grown.nearest_memory,
                                 &grown.nearest);
        }
        *out = grown;
        return true;
}

bool dci_level_reserve(const dci_tree *tree, dci_level *level, size_t n)
{
        dci_level grown;
        if (n <= level->capacity)
                return true;
        if (!dci_level_grow(tree, level, n, &grown))
                return false;
        dci_level_forget(tree, level);
        *level = grown;
        return true;
}

size_t dci_level_append(dci_tree *tree, size_t l, int64_t id, const float *point)
{
        dci_level *level = &tree->levels[l];
        const size_t wide = tree->dim + 1, at = level->n++;
        level->ids[at] = id;
        memcpy(level->points + at * wide, point, wide * sizeof *point);
        dci_nearest_resize(&level->nearest, level->n);
        dci_nearest_put(&level->nearest, at);
        level->lasts[at] = point[tree->dim];
        level->radii2[at] = 0.0f;
        memset(level->routes + at * tree->dim, 0, tree->dim * sizeof *level->routes);
        level->parents[at] = -1;
        level->cells[at].n = level->cells[at].n_rows = 0; /* room for what comes may be there already */
        return at;
}

bool dci_cell_reserve(const dci_tree *tree, dci_cell *cell, size_t n_more)
{
        if (cell->n + n_more <= cell->capacity)
                return true;
        size_t capacity = cell->n + n_more;
        capacity = capacity < 2 * (size_t)cell->capacity ? 2 * (size_t)cell->capacity : capacity;
        int32_t *items = dci_alloc(tree->context, capacity, sizeof *items);
        if (items == NULL)
                return false;
        if (cell->n > 0)
                memcpy(items, cell->items, cell->n * sizeof *items);
        dci_free(tree->context, cell->items, cell->capacity, sizeof *items);
        cell->items = items;
        cell->capacity = (uint32_t)capacity;
        return true;
}

bool dci_tree_reserve_pages(dci_tree *tree, size_t n)
{
        dci_context *context = tree->context;
        const size_t wanted = n > tree->n_free ? tree->n_pages + n - tree->n_free : 0;
        if (wanted <= tree->page_capacity)
                return true;
        const size_t generous = tree->page_capacity + tree->page_capacity / 2;
        const size_t capacity = wanted > generous ? wanted : generous;
        int32_t *nodes = dci_alloc(context, capacity, sizeof *nodes);
        uint64_t *versions = dci_alloc(context, capacity, sizeof *versions);
        int32_t *free_pages = dci_alloc(context, capacity, sizeof *free_pages);
        const bool whole = nodes != NULL && versions != NULL && free_pages != NULL;
        if (whole && tree->n_pages > 0) {
                memcpy(nodes, tree->page_node, tree->n_pages * sizeof *nodes);
                memcpy(versions, tree->page_version, tree->n_pages * sizeof *versions);
                memcpy(free_pages, tree->free_pages, tree->n_free * sizeof *free_pages);
        }
        /* Frees what lost: the old ones, or what there is of the new. */
        const size_t lost = whole ? tree->page_capacity : capacity;
        dci_free(context, whole ? tree->page_node : nodes, lost, sizeof *nodes);
        dci_free(context, whole ? tree->page_version : versions, lost, sizeof *versions);
        dci_free(context, whole ? tree->free_pages : free_pages, lost, sizeof *free_pages);
        if (whole) {
                tree->page_node = nodes;
                tree->page_version = versions;
                tree->free_pages = free_pages;
                tree->page_capacity = capacity;
        }
        return whole;
}

int32_t dci_tree_take_page(dci_tree *tree, size_t node)
{
        int32_t page = tree->n_free > 0 ? tree->free_pages[--tree->n_free] : (int32_t)tree->n_pages++;
        tree->n_pages_ever = tree->n_pages > tree->n_pages_ever ? tree->n_pages : tree->n_pages_ever;
        tree->page_node[page] = (int32_t)node;
        tree->page_version[page] = tree->version;
        return page;
}

void dci_tree_free_page(dci_tree *tree, int32_t page)
{
        tree->page_node[page] = -1;
        tree->page_version[page] = tree->version;
        tree->free_pages[tree->n_free++] = page;
}

size_t dci_tree_promotions(const dci_tree *tree, int64_t id)
{
        dci_rng seeded, rng;
        dci_rng_seed(&seeded, tree->seed);
        rng = dci_rng_split(&seeded, (uint64_t)id);
        size_t n = 0;
        while (n < DCI_MAX_LEVELS &&
               dci_rng_uniform(&rng) < (n == 0 ? tree->promotion_prob : tree->promotion_prob_subseq))
                n++;
        return n;
}

float dci_tree_lift(const dci_tree *tree, float norm2)
{
        return tree->c_squared > norm2 ? sqrtf(tree->c_squared - norm2) : 0.0f;
}

void dci_tree_point(const dci_tree *tree, dci_dtype dtype, const void *row, float norm, float *out)
{
        const size_t dim = tree->dim;
        tree->context->kernels->to_f32[dtype - 1](row, dim, out);
        for (size_t p = 0; tree->metric == DCI_METRIC_COSINE && p < dim; p++)
                out[p] *= norm;
        out[dim] = tree->metric == DCI_METRIC_IP ? dci_tree_lift(tree, norm) : 0.0f;
        for (size_t p = 0; p <= dim; p++)
                out[p] -= tree->mean[p];
}

void dci_tree_point_of_slot(const dci_tree *tree, const dci_view *view, int32_t slot, float *out)
{
        const void *row;
        float norm = 0.0f;
        dci_view_pointers(view, 0, &slot, 1, &row);
        if (view->rows->with_norms)
                dci_view_norms(view, 0, &slot, 1, &norm);
        dci_tree_point(tree, view->rows->dtype, row, norm, out);
}

void dci_tree_source_point(const dci_tree *tree, const dci_tree_source *source, size_t i, float *out)
{
        dci_tree_point(tree, source->dtype, source->rows[i], source->norms == NULL ? 0.0f : source->norms[i], out);
}

size_t dci_tree_cell_slots(const dci_tree *tree, const dci_cell *cell, int32_t *out)
{
        size_t n = 0;
        for (uint32_t i = 0; i < cell->n; i++) {
                const size_t here = dci_tree_page_fill(tree, cell, i);
                const int32_t first = cell->items[i] * (int32_t)tree->page_rows;
                for (size_t r = 0; r < here; r++)
                        out[n + r] = first + (int32_t)r;
                n += here;
        }
        return n;
}
