/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows as searches read them. */
#include "core/internal.h"

#include <string.h>

#include "index/view.h"

dci_view dci_rows_view(const dci_rows *rows)
{
        /* n before the table: a table is published before the rows it makes room for. */
        dci_view view = {.rows = rows};
        view.n = atomic_load_explicit(&rows->n, memory_order_acquire);
        view.table = atomic_load_explicit(&rows->table, memory_order_acquire);
        return view;
}

DCI_INLINE const void *row_pointer(const dci_view *view, size_t slot)
{
        const dci_rows *rows = view->rows;
        const dci_chunk *chunk = &view->table->chunk[slot >> rows->chunk_shift];
        size_t offset = slot & (((size_t)1 << rows->chunk_shift) - 1);
        if (rows->borrowed)
                return ((const void *const *)chunk->rows)[offset];
        return (const unsigned char *)chunk->rows + offset * rows->row_bytes;
}

void dci_view_pointers(const dci_view *view, size_t first, const int32_t *slots, size_t count, const void **out)
{
        const dci_rows *rows = view->rows;
        if (slots != NULL) {
                for (size_t i = 0; i < count; i++)
                        out[i] = row_pointer(view, (size_t)slots[i]);
                return;
        }
        const size_t full = (size_t)1 << rows->chunk_shift;
        for (size_t i = 0; i < count;) {
                size_t slot = first + i, offset = slot & (full - 1);
                size_t here = full - offset < count - i ? full - offset : count - i;
                const dci_chunk *chunk = &view->table->chunk[slot >> rows->chunk_shift];
                if (rows->borrowed) {
                        memcpy(out + i, (const void *const *)chunk->rows + offset, here * sizeof *out);
                } else {
                        const unsigned char *row = (const unsigned char *)chunk->rows + offset * rows->row_bytes;
                        for (size_t j = 0; j < here; j++)
                                out[i + j] = row + j * rows->row_bytes;
                }
                i += here;
        }
}

const void *dci_view_run(const dci_view *view, size_t first, size_t count, size_t *out_run)
{
        size_t full = (size_t)1 << view->rows->chunk_shift, left = full - (first & (full - 1));
        *out_run = left < count ? left : count;
        return row_pointer(view, first);
}

int64_t dci_view_id(const dci_view *view, int32_t slot)
{
        size_t at = (size_t)slot;
        const dci_chunk *chunk = &view->table->chunk[at >> view->rows->chunk_shift];
        return chunk->ids == NULL ? slot : chunk->ids[at & (((size_t)1 << view->rows->chunk_shift) - 1)];
}

int64_t dci_position_id(const void *positions, int32_t position)
{
        const dci_positions *p = positions;
        return dci_view_id(p->view, p->slots[position]);
}

void dci_view_norms(const dci_view *view, size_t first, const int32_t *slots, size_t count, float *out)
{
        const size_t full = (size_t)1 << view->rows->chunk_shift;
        for (size_t i = 0; i < count;) {
                size_t slot = slots != NULL ? (size_t)slots[i] : first + i, offset = slot & (full - 1);
                size_t here = slots != NULL ? 1 : (full - offset < count - i ? full - offset : count - i);
                memcpy(out + i, view->table->chunk[slot >> view->rows->chunk_shift].norms + offset, here * sizeof *out);
                i += here;
        }
}

dci_chunk *dci_rows_chunk(dci_rows *rows, size_t slot, size_t *out_offset)
{
        *out_offset = slot & (((size_t)1 << rows->chunk_shift) - 1);
        return &atomic_load_explicit(&rows->table, memory_order_relaxed)->chunk[slot >> rows->chunk_shift];
}
