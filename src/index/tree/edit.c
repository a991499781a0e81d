/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows and nodes, in and out. Cells stay filled from the front: a gap is closed by the cell's last row. */
#include "core/internal.h"

#include <string.h>

#include "index/rows.h"
#include "index/tree/edit.h"

int32_t dci_tree_attach(dci_tree *tree, size_t node)
{
        dci_cell *cell = &tree->levels[0].cells[node];
        const uint32_t at = cell->n_rows++ % (uint32_t)tree->page_rows;
        if (at == 0)
                cell->items[cell->n++] = dci_tree_take_page(tree, node);
        const int32_t page = cell->items[cell->n - 1];
        tree->page_version[page] = tree->version;
        return page * (int32_t)tree->page_rows + (int32_t)at;
}

static int64_t *id_at(dci_rows *rows, int32_t slot)
{
        size_t offset;
        const dci_chunk *chunk = dci_rows_chunk(rows, (size_t)slot, &offset);
        return &chunk->ids[offset];
}

void dci_tree_detach(dci_tree *tree, const dci_tree_store *store, int32_t slot)
{
        const size_t page_rows = tree->page_rows;
        const size_t left = (size_t)slot / page_rows;
        dci_cell *cell = &tree->levels[0].cells[tree->page_node[left]];
        const uint32_t last_at = --cell->n_rows % (uint32_t)page_rows;
        const int32_t page = cell->items[cell->n - 1], last = page * (int32_t)page_rows + (int32_t)last_at;
        tree->page_version[left] = tree->page_version[page] = tree->version;
        if (last != slot) {
                dci_rows_copy(store->rows, (size_t)last, store->rows, (size_t)slot);
                dci_idmap_set(store->map, *id_at(store->rows, slot), slot);
        }
        *id_at(store->rows, last) = -1;
        if (last_at == 0) {
                cell->n--;
                dci_tree_free_page(tree, page);
        }
}

size_t dci_tree_rehome(dci_tree *tree, const dci_tree_store *store, int64_t id, size_t node)
{
        const int32_t from = dci_idmap_find(store->map, id), to = dci_tree_attach(tree, node);
        const size_t left = (size_t)tree->page_node[(size_t)from / tree->page_rows];
        dci_rows_copy(store->rows, (size_t)from, store->rows, (size_t)to);
        dci_idmap_set(store->map, id, to);
        dci_tree_detach(tree, store, from);
        return left;
}

/* Where a node is among its parent's items. */
static size_t place_of(const dci_cell *cell, int32_t node)
{
        size_t at = 0;
        while (cell->items[at] != node)
                at++;
        return at;
}

void dci_tree_link(dci_tree *tree, size_t l, size_t node, int32_t parent)
{
        dci_level *level = &tree->levels[l];
        const int32_t old = level->parents[node];
        if (old >= 0) {
                dci_cell *cell = &tree->levels[l + 1].cells[old];
                cell->items[place_of(cell, (int32_t)node)] = cell->items[cell->n - 1];
                cell->n--;
        }
        level->parents[node] = parent;
        if (parent >= 0) {
                dci_cell *cell = &tree->levels[l + 1].cells[parent];
                cell->items[cell->n++] = (int32_t)node;
        }
}

void dci_tree_remove_node(dci_tree *tree, size_t l, size_t node, uint8_t *dirty)
{
        dci_level *level = &tree->levels[l];
        const size_t wide = tree->dim + 1, last = level->n - 1;
        dci_tree_link(tree, l, node, -1);
        dci_free(tree->context, level->cells[node].items, level->cells[node].capacity, sizeof(int32_t));
        if (node != last) {
                const dci_cell *cell = &level->cells[last];
                level->ids[node] = level->ids[last];
                memcpy(level->points + node * wide, level->points + last * wide, wide * sizeof *level->points);
                dci_nearest_put(&level->nearest, node);
                level->lasts[node] = level->lasts[last];
                level->radii2[node] = level->radii2[last];
                memcpy(level->routes + node * tree->dim, level->routes + last * tree->dim,
                       tree->dim * sizeof *level->routes);
                level->parents[node] = level->parents[last];
                level->cells[node] = *cell;
                dirty[node] = dirty[last];
                if (level->parents[node] >= 0) {
                        dci_cell *above = &tree->levels[l + 1].cells[level->parents[node]];
                        above->items[place_of(above, (int32_t)last)] = (int32_t)node;
                }
                int32_t *owner = l == 0 ? tree->page_node : tree->levels[l - 1].parents;
                for (uint32_t i = 0; i < cell->n; i++)
                        owner[cell->items[i]] = (int32_t)node;
        }
        level->cells[last] = (dci_cell){0};
        level->n--;
        dci_nearest_resize(&level->nearest, level->n);
}
