/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/tree_check.h"

#include <math.h>
#include <string.h>

void tree_check(const dci_index *index)
{
        dci_status status = dci_index_check(index, DCI_CHECK_FULL, NULL);
        if (status == DCI_ERR_MEMORY) { /* where allocations fail, one was the check's */
                test_memory_recovers();
                status = dci_index_check(index, DCI_CHECK_FULL, NULL);
        }
        ck_assert_msg(status == DCI_OK, "%s", dci_last_error());
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
                dci_tree_point_of_slot(tree, &view, (int32_t)slot, point);
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
