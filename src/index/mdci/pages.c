/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What can be asked of a tree: its pages, which of them changed, its shape. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "index/access.h"
#include "index/tree/tree.h"

/* The read lock is held after success. The tree of kind AUTO has a shape, but no pages that a caller could follow: it may go. */
static dci_status begin(const dci_index *index, bool for_shape)
{
        DCI_TRY(dci_index_check_call(index));
        dci_index_read_begin(index);
        const dci_index_kind kind = index->config.kind;
        if (kind == DCI_KIND_MDCI && (for_shape || !index->automatic.on))
                return DCI_OK;
        dci_index_read_end(index);
        return kind == DCI_KIND_MDCI
                       ? dci_fail(DCI_ERR_UNSUPPORTED,
                                  "the pages of an index of kind AUTO may go at any change: create it of kind MDCI")
                       : dci_fail(DCI_ERR_UNSUPPORTED, "only indexes of kind MDCI have pages, this is of kind %s",
                                  kind == DCI_KIND_FLAT ? "FLAT" : "PDCI");
}

dci_status dci_index_pages(const dci_index *index, size_t capacity, dci_page *out_pages, size_t *out_count)
{
        if (out_count == NULL || (out_pages == NULL && capacity > 0))
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", out_count == NULL ? "out_count" : "out_pages");
        DCI_TRY(begin(index, false));
        const dci_tree *tree = index->tree;
        const dci_level *level = &tree->levels[0];
        size_t n = 0;
        for (size_t i = 0; i < level->n; i++) {
                const dci_cell *cell = &level->cells[i];
                for (uint32_t p = 0; p < cell->n; p++, n++) {
                        const int32_t page = cell->items[p];
                        if (n >= capacity)
                                continue;
                        out_pages[n] = (dci_page){.page = page, .cell = (int32_t)i};
                        out_pages[n].n_rows = (uint32_t)dci_tree_page_fill(tree, cell, p);
                        out_pages[n].version = tree->page_version[page];
                }
        }
        *out_count = n;
        dci_index_read_end(index);
        return DCI_OK;
}

dci_status dci_index_page_ids(const dci_index *index, int32_t page, int64_t *out_ids, size_t *out_count)
{
        if (out_ids == NULL || out_count == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", out_ids == NULL ? "out_ids" : "out_count");
        DCI_TRY(begin(index, false));
        dci_status status = DCI_OK;
        const dci_tree *tree = index->tree;
        if (page < 0 || (size_t)page >= tree->n_pages_ever)
                status = dci_fail(DCI_ERR_NOT_FOUND, "page %d is not among the %zu that there have been", (int)page,
                                  tree->n_pages_ever);
        const dci_view view = dci_rows_view(&index->rows);
        size_t n = 0;
        for (size_t i = 0; status == DCI_OK && (size_t)page < tree->n_pages && i < tree->page_rows; i++) {
                const int64_t id = dci_view_id(&view, page * (int32_t)tree->page_rows + (int32_t)i);
                if (id >= 0) /* rows are at the front */
                        out_ids[n++] = id;
        }
        if (status == DCI_OK)
                *out_count = n;
        dci_index_read_end(index);
        return status;
}

dci_status dci_index_changes(const dci_index *index, uint64_t version, size_t capacity, int32_t *out_pages,
                             size_t *out_count, uint64_t *out_version)
{
        if (out_count == NULL || out_version == NULL || (out_pages == NULL && capacity > 0))
                return dci_fail(DCI_ERR_INVALID, "%s is NULL",
                                out_count == NULL ? "out_count" : (out_version == NULL ? "out_version" : "out_pages"));
        DCI_TRY(begin(index, false));
        const dci_tree *tree = index->tree;
        size_t n = 0;
        for (size_t page = 0; page < tree->n_pages_ever; page++) {
                /* Beyond n_pages: numbers that the last building gave up. */
                const uint64_t changed = page < tree->n_pages ? tree->page_version[page] : tree->built_version;
                if (changed <= version)
                        continue;
                if (n < capacity)
                        out_pages[n] = (int32_t)page;
                n++;
        }
        *out_count = n;
        *out_version = tree->version;
        dci_index_read_end(index);
        return DCI_OK;
}

static int compare_sizes(const void *a, const void *b)
{
        const size_t x = *(const size_t *)a, y = *(const size_t *)b;
        return (x > y) - (x < y);
}

/* Order statistics of the cells' sizes. */
static void measure_cells(const dci_level *level, size_t *sizes, dci_tree_stats *out)
{
        if (level->n == 0)
                return;
        for (size_t i = 0; i < level->n; i++) {
                sizes[i] = level->cells[i].n_rows;
                out->empty_cells += sizes[i] == 0;
        }
        qsort(sizes, level->n, sizeof *sizes, compare_sizes);
        out->median_cell = sizes[level->n / 2];
        out->p99_cell = sizes[(level->n - 1) * 99 / 100];
        out->largest_cell = sizes[level->n - 1];
}

dci_status dci_index_tree_stats(const dci_index *index, dci_tree_stats *out_stats)
{
        if (out_stats == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_stats is NULL");
        const size_t struct_size = out_stats->struct_size;
        DCI_TRY(dci_check_struct_size("dci_tree_stats", out_stats, struct_size, sizeof *out_stats));
        DCI_TRY(begin(index, true));
        const dci_tree *tree = index->tree;
        size_t *sizes = dci_alloc(index->context, tree->levels[0].n, sizeof *sizes);
        if (sizes == NULL) {
                dci_index_read_end(index);
                return DCI_ERR_MEMORY;
        }
        dci_tree_stats_init(out_stats, struct_size);
        out_stats->n_rows = tree->n_rows;
        out_stats->n_levels = tree->n_levels;
        for (size_t l = 0; l < tree->n_levels; l++)
                out_stats->n_nodes[l] = tree->levels[l].n;
        out_stats->page_rows = tree->page_rows;
        out_stats->n_pages = tree->n_pages;
        out_stats->free_pages = tree->n_free;
        const size_t used = tree->n_pages - tree->n_free;
        out_stats->page_fill = used == 0 ? 0.0 : (double)tree->n_rows / ((double)used * (double)tree->page_rows);
        measure_cells(&tree->levels[0], sizes, out_stats);
        out_stats->version = tree->version;
        out_stats->rebuilds = tree->n_builds;
        dci_free(index->context, sizes, tree->levels[0].n, sizeof *sizes);
        dci_index_read_end(index);
        return DCI_OK;
}
