/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/tree_check.h"

#include <math.h>
#include <string.h>

static void point_of(const dci_index *index, int32_t slot, float *out)
{
        const dci_view view = dci_rows_view(&index->rows);
        const void *row;
        float norm = 0.0f;
        dci_view_pointers(&view, 0, &slot, 1, &row);
        if (index->rows.with_norms)
                dci_view_norms(&view, 0, &slot, 1, &norm);
        dci_tree_point(index->tree, index->config.dtype, row, norm, out);
}

/* Pages: used ones belong to a cell that lists them, free ones to the list of the free. */
static void check_pages(const dci_tree *tree)
{
        uint8_t *seen = calloc(tree->n_pages + 1, 1);
        size_t n = 0;
        for (size_t i = 0; i < tree->levels[0].n; i++) {
                const dci_cell *cell = &tree->levels[0].cells[i];
                test_hold(cell->n == (cell->n_rows + tree->page_rows - 1) / tree->page_rows);
                for (uint32_t p = 0; p < cell->n; p++, n++) {
                        test_hold(cell->items[p] >= 0);
                        test_hold((size_t)cell->items[p] < tree->n_pages);
                        test_hold(tree->page_node[cell->items[p]] == (int)i);
                        test_hold(seen[cell->items[p]]++ == 0);
                }
        }
        for (size_t i = 0; i < tree->n_free; i++, n++) {
                test_hold(tree->page_node[tree->free_pages[i]] == -1);
                test_hold(seen[tree->free_pages[i]]++ == 0);
        }
        test_hold(n == tree->n_pages);
        test_hold(tree->n_pages <= tree->n_pages_ever);
        free(seen);
}

/* Slots: the first rows of each page are there and the map finds them, the others are empty. */
static void check_slots(const dci_index *index)
{
        const dci_tree *tree = index->tree;
        const dci_view view = dci_rows_view(&index->rows);
        const dci_idmap *map = atomic_load(&index->map);
        size_t n = 0;
        test_hold(view.n == tree->n_pages * tree->page_rows);
        for (size_t slot = 0; slot < view.n; slot++) {
                const int64_t id = dci_view_id(&view, (int32_t)slot);
                if (id < 0)
                        continue;
                n++;
                test_hold(dci_idmap_find(map, id) == (int)slot);
                const int32_t node = tree->page_node[slot / tree->page_rows];
                test_hold(node >= 0);
                const dci_cell *cell = &tree->levels[0].cells[node];
                const bool last = cell->items[cell->n - 1] == (int32_t)(slot / tree->page_rows);
                const size_t fill = last ? cell->n_rows - (cell->n - 1) * tree->page_rows : tree->page_rows;
                test_hold(slot % tree->page_rows < fill);
        }
        test_hold(n == tree->n_rows);
        test_hold(n == dci_index_count(index));
        test_hold(n == map->n);
}

/* Nodes: promoted rows, where their rows are; every promoted row is one. */
static void check_nodes(const dci_index *index)
{
        const dci_tree *tree = index->tree;
        const dci_view view = dci_rows_view(&index->rows);
        const size_t wide = tree->dim + 1;
        size_t n_promoted[DCI_MAX_LEVELS] = {0};
        float *point = malloc(wide * sizeof *point);
        for (size_t slot = 0; slot < view.n; slot++) {
                const int64_t id = dci_view_id(&view, (int32_t)slot);
                if (id < 0)
                        continue;
                const size_t promotions = dci_tree_promotions(tree, id);
                for (size_t l = 0; l < tree->n_levels && (l < promotions || (l == 0 && id == tree->lone_id)); l++)
                        n_promoted[l]++;
        }
        test_hold(tree->n_rows == 0 || tree->n_levels > 0);
        test_hold(tree->lone_id < 0 || tree->levels[0].n == 1);
        for (size_t l = 0; l < tree->n_levels; l++) {
                const dci_level *level = &tree->levels[l];
                test_hold(level->n == n_promoted[l]);
                test_hold(tree->n_rows == 0 || level->n > 0);
                for (size_t i = 0; i < level->n; i++) {
                        const int32_t slot = dci_idmap_find(atomic_load(&index->map), level->ids[i]);
                        ck_assert_msg(slot >= 0, "node %zu of level %zu stands for row %lld, which is gone", i, l,
                                      (long long)level->ids[i]);
                        point_of(index, slot, point);
                        test_hold(memcmp(point, level->points + i * wide, wide * sizeof *point) == 0);
                        if (l + 1 == tree->n_levels)
                                test_hold(level->parents[i] == -1);
                }
        }
        free(point);
}

static void check_links(const dci_tree *tree)
{
        for (size_t l = 1; l < tree->n_levels; l++) {
                size_t n = 0;
                for (size_t i = 0; i < tree->levels[l].n; i++) {
                        const dci_cell *cell = &tree->levels[l].cells[i];
                        for (uint32_t c = 0; c < cell->n; c++, n++) {
                                test_hold((size_t)cell->items[c] < tree->levels[l - 1].n);
                                test_hold(tree->levels[l - 1].parents[cell->items[c]] == (int)i);
                        }
                }
                test_hold(n == tree->levels[l - 1].n);
        }
}

/* Means, level by level from below: sums of the rows of every node. */
static void check_routes(const dci_index *index)
{
        const dci_tree *tree = index->tree;
        const dci_view view = dci_rows_view(&index->rows);
        const size_t dim = tree->dim;
        float *row = malloc(dim * sizeof *row);
        for (size_t l = 0; l < tree->n_levels; l++) {
                const dci_level *level = &tree->levels[l];
                double *sums = calloc(level->n * dim, sizeof *sums), *sizes = calloc(level->n * dim, sizeof *sizes);
                size_t *n = calloc(level->n, sizeof *n);
                for (size_t slot = 0; slot < view.n; slot++) {
                        const int32_t s = (int32_t)slot;
                        const void *at;
                        float norm = 1.0f;
                        if (dci_view_id(&view, s) < 0)
                                continue;
                        int32_t node = tree->page_node[slot / tree->page_rows];
                        for (size_t up = 0; up < l; up++)
                                node = tree->levels[up].parents[node];
                        dci_view_pointers(&view, 0, &s, 1, &at);
                        if (index->config.metric == DCI_METRIC_COSINE)
                                dci_view_norms(&view, 0, &s, 1, &norm);
                        index->context->kernels->widen[index->config.dtype - 1](at, dim, row);
                        for (size_t p = 0; p < dim; p++) {
                                sums[(size_t)node * dim + p] += (double)norm * (double)row[p];
                                sizes[(size_t)node * dim + p] += fabs((double)norm * (double)row[p]);
                        }
                        n[node]++;
                }
                for (size_t i = 0; i < level->n; i++) {
                        test_hold(level->cells[i].n_rows == n[i]);
                        for (size_t p = 0; n[i] > 0 && p < dim; p++)
                                test_hold(fabs((double)level->routes[i * dim + p] * (double)n[i] - sums[i * dim + p]) <=
                                          1e-4 * sizes[i * dim + p] + 1e-30);
                }
                free(sums);
                free(sizes);
                free(n);
        }
        free(row);
}

void tree_check(const dci_index *index)
{
        check_pages(index->tree);
        check_slots(index);
        check_nodes(index);
        check_links(index->tree);
        check_routes(index);
}

void tree_equal(const dci_index *a, const dci_index *b)
{
        const size_t dim = a->tree->dim;
        ck_assert_uint_eq(a->tree->n_levels, b->tree->n_levels);
        for (size_t l = 0; l < a->tree->n_levels; l++) {
                const dci_level *x = &a->tree->levels[l], *y = &b->tree->levels[l];
                ck_assert_uint_eq(x->n, y->n);
                ck_assert(memcmp(x->points, y->points, x->n * (dim + 1) * sizeof *x->points) == 0);
                ck_assert(memcmp(x->parents, y->parents, x->n * sizeof *x->parents) == 0);
                ck_assert(memcmp(x->routes, y->routes, x->n * dim * sizeof *x->routes) == 0);
                ck_assert(memcmp(x->radii2, y->radii2, x->n * sizeof *x->radii2) == 0);
        }
}

double tree_share_at_nearest(const dci_index *index)
{
        const dci_tree *tree = index->tree;
        const dci_level *level = &tree->levels[0];
        const dci_view view = dci_rows_view(&index->rows);
        const size_t wide = tree->dim + 1;
        float *point = malloc(wide * sizeof *point);
        const size_t step = view.n / 3000 + 1;
        size_t n = 0, looked_at = 0;
        for (size_t slot = 0; slot < view.n; slot += step) {
                if (dci_view_id(&view, (int32_t)slot) < 0)
                        continue;
                looked_at++;
                point_of(index, (int32_t)slot, point);
                double best = INFINITY, own = INFINITY;
                for (size_t i = 0; i < level->n; i++) {
                        double distance = 0.0;
                        for (size_t p = 0; p < wide; p++) {
                                const double d = (double)point[p] - (double)level->points[i * wide + p];
                                distance += d * d;
                        }
                        best = distance < best ? distance : best;
                        if ((int32_t)i == tree->page_node[slot / tree->page_rows])
                                own = distance;
                }
                n += own <= best * (1.0 + 1e-5) + 1e-12;
        }
        free(point);
        return (double)n / (double)looked_at;
}
