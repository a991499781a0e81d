/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The tree of an index: that it holds every row once and every promoted row as a node, and that what it keeps of both is theirs. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/check/parts.h"
#include "index/tree/route.h"

/* Points of a level that are checked to be with the nearest node. */
#define LOOKED_AT ((size_t)1024)

static size_t words_of(size_t n)
{
        return n / 64 + 1;
}

/* Sets a bit; false if it was set already. */
static bool mark(uint64_t *bits, size_t i)
{
        const uint64_t bit = UINT64_C(1) << (i % 64);
        const bool fresh = (bits[i / 64] & bit) == 0;
        bits[i / 64] |= bit;
        return fresh;
}

/* --- counts and lists --------------------------------------------------------------------------------------------------------------- */

static dci_status check_counts(const dci_index *index, const dci_view *view)
{
        const dci_tree *tree = index->tree;
        const size_t n_live = atomic_load(&((dci_index *)(uintptr_t)index)->n_live);
        if (tree->n_rows != n_live || tree->n_pages * tree->page_rows != view->n || tree->n_levels > DCI_MAX_LEVELS ||
            (tree->n_levels == 0) != (tree->n_rows == 0))
                return dci_fail(DCI_ERR_FORMAT,
                                "the tree has %zu rows in %zu pages of %zu and %zu levels, the index %zu rows in %zu "
                                "slots",
                                tree->n_rows, tree->n_pages, tree->page_rows, tree->n_levels, n_live, view->n);
        if (tree->c_squared != atomic_load(&((dci_index *)(uintptr_t)index)->c_squared))
                return dci_fail(DCI_ERR_FORMAT, "c^2 is %g in the tree, %g in the index", (double)tree->c_squared,
                                (double)atomic_load(&((dci_index *)(uintptr_t)index)->c_squared));
        if (tree->n_pages > tree->page_capacity || tree->n_pages > tree->n_pages_ever || tree->n_free > tree->n_pages)
                return dci_fail(DCI_ERR_FORMAT, "%zu pages, %zu of them free, of %zu ever, with room for %zu",
                                tree->n_pages, tree->n_free, tree->n_pages_ever, tree->page_capacity);
        for (size_t l = 0; l < DCI_MAX_LEVELS; l++) {
                const dci_level *level = &tree->levels[l];
                if (level->n > level->capacity || (l < tree->n_levels) != (level->n > 0) ||
                    level->nearest.n != level->n)
                        return dci_fail(DCI_ERR_FORMAT,
                                        "level %zu of %zu has %zu nodes with room for %zu, %zu of them made ready", l,
                                        tree->n_levels, level->n, level->capacity, level->nearest.n);
                for (size_t i = 0; i < level->n; i++) {
                        const dci_cell *cell = &level->cells[i];
                        if (cell->n > cell->capacity || (cell->n > 0 && cell->items == NULL))
                                return dci_fail(DCI_ERR_FORMAT, "cell %zu of level %zu has %u items, room for %u", i, l,
                                                (unsigned)cell->n, (unsigned)cell->capacity);
                }
        }
        if (tree->built_version > tree->version)
                return dci_fail(DCI_ERR_FORMAT, "the tree was built in version %llu, but is of version %llu",
                                (unsigned long long)tree->built_version, (unsigned long long)tree->version);
        return DCI_OK;
}

/* Pages in use belong to the cell that lists them, the others to the list of the free. */
static dci_status check_pages(const dci_tree *tree, uint64_t *seen)
{
        const dci_level *level = &tree->levels[0];
        size_t n = 0, rows = 0;
        for (size_t i = 0; i < level->n; i++) {
                const dci_cell *cell = &level->cells[i];
                if (cell->n != (cell->n_rows + tree->page_rows - 1) / tree->page_rows)
                        return dci_fail(DCI_ERR_FORMAT, "cell %zu has %u rows in %u pages of %zu", i,
                                        (unsigned)cell->n_rows, (unsigned)cell->n, tree->page_rows);
                rows += cell->n_rows;
                for (uint32_t p = 0; p < cell->n; p++, n++) {
                        const int32_t page = cell->items[p];
                        if (page < 0 || (size_t)page >= tree->n_pages || !mark(seen, (size_t)page))
                                return dci_fail(DCI_ERR_FORMAT, "cell %zu lists page %d of %zu, which is not, or twice",
                                                i, (int)page, tree->n_pages);
                        if (tree->page_node[page] != (int32_t)i)
                                return dci_fail(DCI_ERR_FORMAT, "cell %zu lists page %d, which belongs to node %d", i,
                                                (int)page, (int)tree->page_node[page]);
                }
        }
        for (size_t i = 0; i < tree->n_free; i++, n++) {
                const int32_t page = tree->free_pages[i];
                if (page < 0 || (size_t)page >= tree->n_pages || !mark(seen, (size_t)page) ||
                    tree->page_node[page] != -1)
                        return dci_fail(DCI_ERR_FORMAT, "page %d is listed as free, and is in use, or twice",
                                        (int)page);
        }
        if (n != tree->n_pages || rows != tree->n_rows)
                return dci_fail(DCI_ERR_FORMAT,
                                "cells and the list of the free have %zu pages and %zu rows, not %zu and %zu", n, rows,
                                tree->n_pages, tree->n_rows);
        for (size_t i = 0; i < tree->n_pages; i++)
                if (tree->page_version[i] > tree->version)
                        return dci_fail(DCI_ERR_FORMAT, "page %zu changed in version %llu, but the tree is of %llu", i,
                                        (unsigned long long)tree->page_version[i], (unsigned long long)tree->version);
        return DCI_OK;
}

/* The first slots of a cell's pages hold its rows, and no others anywhere. */
static dci_status check_slots(const dci_tree *tree, const dci_view *view)
{
        const dci_level *level = &tree->levels[0];
        size_t n = 0;
        for (size_t i = 0; i < level->n; i++) {
                const dci_cell *cell = &level->cells[i];
                for (size_t r = 0; r < cell->n * tree->page_rows; r++) {
                        const int32_t slot = cell->items[r / tree->page_rows] * (int32_t)tree->page_rows +
                                             (int32_t)(r % tree->page_rows);
                        const bool full = dci_view_id(view, slot) >= 0;
                        if (full != (r < cell->n_rows))
                                return dci_fail(DCI_ERR_FORMAT, "slot %d is %s, which its cell of %u rows contradicts",
                                                (int)slot, full ? "full" : "empty", (unsigned)cell->n_rows);
                        n += full;
                }
        }
        for (size_t i = 0; i < tree->n_free; i++)
                for (size_t r = 0; r < tree->page_rows; r++) {
                        const int32_t slot = tree->free_pages[i] * (int32_t)tree->page_rows + (int32_t)r;
                        if (dci_view_id(view, slot) >= 0)
                                return dci_fail(DCI_ERR_FORMAT, "slot %d of a free page holds row %lld", (int)slot,
                                                (long long)dci_view_id(view, slot));
                }
        return n == tree->n_rows ? DCI_OK
                                 : dci_fail(DCI_ERR_FORMAT, "cells have %zu rows, the tree %zu", n, tree->n_rows);
}

/* --- nodes -------------------------------------------------------------------------------------------------------------------------- */

/* Every promoted row is a node, and nothing else is. */
static dci_status check_promoted(const dci_index *index, const dci_view *view)
{
        const dci_tree *tree = index->tree;
        size_t n_promoted[DCI_MAX_LEVELS] = {0};
        for (size_t slot = 0; slot < view->n; slot++) {
                const int64_t id = dci_view_id(view, (int32_t)slot);
                if (id < 0)
                        continue;
                const size_t promotions = dci_tree_promotions(tree, id);
                for (size_t l = 0; l < tree->n_levels && (l < promotions || (l == 0 && id == tree->lone_id)); l++)
                        n_promoted[l]++;
        }
        if (tree->lone_id >= 0 && tree->levels[0].n != 1)
                return dci_fail(DCI_ERR_FORMAT, "row %lld is the only node for want of another, but there are %zu",
                                (long long)tree->lone_id, tree->levels[0].n);
        if (tree->lone_id < -1 || (tree->lone_id >= 0 && (tree->levels[0].ids[0] != tree->lone_id ||
                                                          dci_tree_promotions(tree, tree->lone_id) > 0)))
                return dci_fail(DCI_ERR_FORMAT,
                                "row %lld is said to be the only node for want of another, which it is not",
                                (long long)tree->lone_id);
        for (size_t l = 0; l < tree->n_levels; l++)
                if (tree->levels[l].n != n_promoted[l])
                        return dci_fail(DCI_ERR_FORMAT, "level %zu has %zu nodes, but %zu rows are promoted to it", l,
                                        tree->levels[l].n, n_promoted[l]);
        return DCI_OK;
}

/* A node stands for a row that is there and was drawn; no two stand for the same. seen: by slot. */
static dci_status check_node(const dci_index *index, size_t l, size_t i, uint64_t *seen)
{
        const dci_tree *tree = index->tree;
        const int64_t id = tree->levels[l].ids[i];
        const int32_t slot = dci_idmap_find(atomic_load(&((dci_index *)(uintptr_t)index)->map), id);
        if (slot < 0)
                return dci_fail(DCI_ERR_FORMAT, "node %zu of level %zu stands for row %lld, which is gone", i, l,
                                (long long)id);
        if (!(dci_tree_promotions(tree, id) > l || (l == 0 && id == tree->lone_id)) || !mark(seen, (size_t)slot))
                return dci_fail(DCI_ERR_FORMAT,
                                "node %zu of level %zu stands for row %lld, which is no node there, or twice", i, l,
                                (long long)id);
        return DCI_OK;
}

/* Parents list their children, all of them, and know how many rows are beneath. */
static dci_status check_links(const dci_tree *tree, size_t l, uint64_t *seen)
{
        const dci_level *level = &tree->levels[l], *below = level - 1;
        size_t n = 0;
        for (size_t i = 0; i < level->n; i++) {
                const dci_cell *cell = &level->cells[i];
                size_t rows = 0;
                for (uint32_t c = 0; c < cell->n; c++, n++) {
                        const int32_t child = cell->items[c];
                        if (child < 0 || (size_t)child >= below->n || !mark(seen, (size_t)child) ||
                            below->parents[child] != (int32_t)i)
                                return dci_fail(
                                        DCI_ERR_FORMAT,
                                        "node %zu of level %zu lists node %d beneath it, which is not, or twice", i, l,
                                        (int)child);
                        rows += below->cells[child].n_rows;
                }
                if (rows != cell->n_rows)
                        return dci_fail(DCI_ERR_FORMAT, "node %zu of level %zu has %zu rows beneath it, but says %u", i,
                                        l, rows, (unsigned)cell->n_rows);
        }
        return n == below->n ? DCI_OK
                             : dci_fail(DCI_ERR_FORMAT, "level %zu lists %zu nodes beneath it, there are %zu", l, n,
                                        below->n);
}

static dci_status check_level(const dci_index *index, size_t l, uint64_t *seen, size_t n_words)
{
        const dci_tree *tree = index->tree;
        const dci_level *level = &tree->levels[l];
        memset(seen, 0, n_words * sizeof *seen);
        for (size_t i = 0; i < level->n; i++) {
                DCI_TRY(check_node(index, l, i, seen));
                const int32_t parent = level->parents[i];
                const bool top = l + 1 == tree->n_levels;
                if (top ? parent != -1 : parent < 0 || (size_t)parent >= tree->levels[l + 1].n)
                        return dci_fail(DCI_ERR_FORMAT, "node %zu of level %zu of %zu has parent %d", i, l,
                                        tree->n_levels, (int)parent);
        }
        memset(seen, 0, n_words * sizeof *seen);
        return l > 0 ? check_links(tree, l, seen) : DCI_OK;
}

dci_status dci_check_tree(const dci_index *index, const dci_view *view)
{
        const dci_tree *tree = index->tree;
        DCI_TRY(check_counts(index, view));
        size_t n = view->n; /* of pages, slots or nodes; a level that contradicts the rest may have more */
        for (size_t l = 0; l < tree->n_levels; l++)
                n = tree->levels[l].n > n ? tree->levels[l].n : n;
        uint64_t *seen = dci_calloc(index->context, words_of(n), sizeof *seen);
        if (seen == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = check_pages(tree, seen);
        if (status == DCI_OK)
                status = check_slots(tree, view);
        if (status == DCI_OK)
                status = check_promoted(index, view);
        for (size_t l = 0; l < tree->n_levels && status == DCI_OK; l++)
                status = check_level(index, l, seen, words_of(n));
        dci_free(index->context, seen, words_of(n), sizeof *seen);
        return status;
}

/* --- points, reach and means, made again --------------------------------------------------------------------------------------------- */

size_t dci_check_nodes_bytes(const dci_index *index)
{
        return index->tree == NULL ? 0 : 3 * (index->tree->dim + 1) * sizeof(float);
}

static dci_status check_made(const dci_index *index, size_t l, size_t i, float *scratch)
{
        const dci_tree *tree = index->tree;
        const dci_level *level = &tree->levels[l];
        const size_t dim = tree->dim, wide = dim + 1;
        const dci_view view = dci_rows_view(&index->rows);
        const int32_t slot = dci_idmap_find(atomic_load(&((dci_index *)(uintptr_t)index)->map), level->ids[i]);
        float *point = scratch, *route = scratch + wide, *spare = scratch + 2 * wide, radius2;
        dci_tree_point_of_slot(tree, &view, slot, point);
        if (memcmp(point, level->points + i * wide, wide * sizeof *point) != 0 || level->lasts[i] != point[dim])
                return dci_fail(DCI_ERR_FORMAT, "node %zu of level %zu does not lie where its row %lld does", i, l,
                                (long long)level->ids[i]);
        if (l == 0)
                dci_tree_route_of_cell(tree, &index->rows, i, spare, route, &radius2);
        else
                dci_tree_route_of_node(tree, l, i, route, &radius2);
        if (radius2 != level->radii2[i])
                return dci_fail(DCI_ERR_FORMAT, "the cell of node %zu of level %zu reaches %.9g, but says %.9g", i, l,
                                (double)radius2, (double)level->radii2[i]);
        if (memcmp(route, level->routes + i * dim, dim * sizeof *route) != 0)
                return dci_fail(DCI_ERR_FORMAT, "the mean beneath node %zu of level %zu is not that of its rows", i, l);
        return DCI_OK;
}

dci_status dci_check_nodes(const dci_index *index, size_t first, size_t end, void *scratch)
{
        for (size_t i = first; i < end; i++)
                DCI_TRY(check_made(index, 0, i, scratch));
        return DCI_OK;
}

/* What many points are compared with: put again where it is, nothing changes. */
static dci_status check_ready(const dci_tree *tree, size_t l)
{
        const dci_level *level = &tree->levels[l];
        const size_t n_bytes = dci_nearest_bytes(tree->context, level->capacity, tree->n_coords);
        unsigned char *memory = dci_alloc(tree->context, n_bytes, 1);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        dci_nearest again;
        dci_nearest_init(tree->context, level->points, tree->dim + 1, level->capacity, tree->n_coords, memory, &again);
        again.n = level->n;
        const size_t packed = again.packed == NULL ? 0 : again.capacity * again.dim_padded * sizeof *again.packed;
        if (packed > 0)
                memcpy(again.packed, level->nearest.packed, packed);
        for (size_t i = 0; i < level->n; i++)
                dci_nearest_put(&again, i);
        const bool same = memcmp(again.offsets, level->nearest.offsets, again.capacity * sizeof *again.offsets) == 0 &&
                          (packed == 0 || memcmp(again.packed, level->nearest.packed, packed) == 0) &&
                          level->nearest.longest >= again.longest && level->nearest.lost >= again.lost &&
                          level->nearest.highest >= again.highest && level->nearest.centres == level->points;
        dci_free(tree->context, memory, n_bytes, 1);
        return same ? DCI_OK
                    : dci_fail(DCI_ERR_FORMAT, "what points are compared with on level %zu are not its nodes", l);
}

/* --- what is near -------------------------------------------------------------------------------------------------------------------- */

typedef struct nearness {
        const dci_index *index;
        size_t l;
        float *points;
        int32_t *owners, *found;
        size_t n;
} nearness;

/* At most LOOKED_AT of the rows (l 0), or of the nodes of the level below, evenly spread. */
static void take_points(nearness *s, const dci_view *view)
{
        const dci_tree *tree = s->index->tree;
        const size_t wide = tree->dim + 1, all = s->l == 0 ? view->n : tree->levels[s->l - 1].n;
        const size_t step = (all + LOOKED_AT - 1) / LOOKED_AT;
        for (size_t i = 0; i < all; i += step) {
                float *point = s->points + s->n * wide;
                if (s->l == 0 && dci_view_id(view, (int32_t)i) < 0)
                        continue;
                if (s->l == 0)
                        dci_tree_point_of_slot(tree, view, (int32_t)i, point);
                else
                        memcpy(point, tree->levels[s->l - 1].points + i * wide, wide * sizeof *point);
                s->owners[s->n++] =
                        s->l == 0 ? tree->page_node[i / tree->page_rows] : tree->levels[s->l - 1].parents[i];
        }
}

static double distance2(const float *a, const float *b, size_t n)
{
        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
                sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        return sum;
}

static double norm2(const float *a, size_t n)
{
        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
                sum += (double)a[i] * (double)a[i];
        return sum;
}

/* Inserting compares with the cells around only, so a few things may be with another node; where half of them are, the tree is no use. */
static dci_status judge(const nearness *s)
{
        const dci_tree *tree = s->index->tree;
        const size_t wide = tree->dim + 1;
        size_t away = 0;
        for (size_t i = 0; i < s->n; i++) {
                const float *point = s->points + i * wide, *nodes = tree->levels[s->l].points;
                const float *own = nodes + (size_t)s->owners[i] * wide, *nearest = nodes + (size_t)s->found[i] * wide;
                /* Scores round in proportion to lengths: what is about as near counts. */
                const double slack = dci_norm_slack(wide, norm2(point, wide) + norm2(own, wide));
                away += distance2(point, own, wide) > distance2(point, nearest, wide) + 4.0 * slack;
        }
        return 2 * away <= s->n || s->n < 16
                       ? DCI_OK
                       : dci_fail(DCI_ERR_FORMAT,
                                  "of %zu things beneath level %zu, %zu lie with another node than the nearest", s->n,
                                  s->l, away);
}

static dci_status check_nearness(const dci_index *index, const dci_view *view, size_t l)
{
        const dci_tree *tree = index->tree;
        dci_context *context = index->context;
        const size_t wide = tree->dim + 1, n_scratch = dci_nearest_scratch_bytes(context, tree->n_coords);
        nearness s = {.index = index, .l = l};
        s.points = dci_alloc(context, LOOKED_AT * wide, sizeof *s.points);
        s.owners = dci_alloc(context, 2 * LOOKED_AT, sizeof *s.owners);
        void *scratch = dci_alloc(context, n_scratch, 1);
        dci_status status = s.points == NULL || s.owners == NULL || scratch == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK) {
                s.found = s.owners + LOOKED_AT;
                take_points(&s, view);
                if (s.n > 0)
                        dci_nearest_find(&tree->levels[l].nearest, s.points, wide, s.n, scratch, s.found, NULL);
                status = judge(&s);
        }
        dci_free(context, scratch, n_scratch, 1);
        dci_free(context, s.owners, 2 * LOOKED_AT, sizeof *s.owners);
        dci_free(context, s.points, LOOKED_AT * wide, sizeof *s.points);
        return status;
}

dci_status dci_check_levels(const dci_index *index, const dci_view *view)
{
        const dci_tree *tree = index->tree;
        const size_t n_bytes = dci_check_nodes_bytes(index);
        float *scratch = dci_alloc(index->context, n_bytes, 1);
        dci_status status = scratch == NULL ? DCI_ERR_MEMORY : DCI_OK;
        for (size_t p = 0; p <= tree->dim && status == DCI_OK; p++)
                if (!isfinite(tree->mean[p]))
                        status = dci_fail(DCI_ERR_FORMAT, "element %zu of the tree's mean is %g", p,
                                          (double)tree->mean[p]);
        for (size_t l = 1; l < tree->n_levels && status == DCI_OK; l++)
                for (size_t i = 0; i < tree->levels[l].n && status == DCI_OK; i++)
                        status = check_made(index, l, i, scratch);
        for (size_t l = 0; l < tree->n_levels && status == DCI_OK; l++) {
                status = check_ready(tree, l);
                if (status == DCI_OK)
                        status = check_nearness(index, view, l);
        }
        dci_free(index->context, scratch, n_bytes, 1);
        return status;
}
