/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Rows as searches read them. A row is addressed by its slot; slots are in chunks that never move once they are published, so that
 * searches read while an add appends. A view is what one call sees of the rows: a batch that is published meanwhile is not in it.
 * rows.h has what writers do.
 */
#ifndef DCI_INDEX_VIEW_H
#define DCI_INDEX_VIEW_H

#include "core/internal.h"

#include "dci/index.h"
#include "sketch/frames.h"

/* Most rows of a page (MDCI). */
#define DCI_MAX_PAGE_ROWS ((size_t)256)

/* One allocation: rows (or pointers to borrowed rows), ids, norms and projections. */
typedef struct dci_chunk {
        void *rows;
        int64_t *ids;        /* NULL in a mapped file whose ids are the slots */
        float *norms;        /* COSINE: 1 / |row|; IP of kinds PDCI and MDCI: |row|^2; else NULL */
        float *projections;  /* PDCI, MDCI: [simple index][row]; else NULL */
        size_t capacity;     /* rows, a multiple of 16; all chunks but a lone first one have rows_per_chunk */
        size_t stride;       /* from one simple index to the next: the capacity, or the rows of a mapped file */
        void *codes;         /* memory of `area`; NULL without sketches, and in a mapped file */
        dci_code_block area; /* codes of the rows, slot by slot */
} dci_chunk;

/* Places after the chunks of published rows are filled in place; a full table is replaced by one of twice the capacity, so
 * that a reader that holds the old one can finish with it. */
typedef struct dci_chunk_table {
        size_t capacity;
        dci_chunk chunk[];
} dci_chunk_table;

typedef struct dci_rows {
        dci_context *context;
        size_t dim;
        dci_dtype dtype;
        dci_metric metric;
        bool borrowed, with_norms;
        bool gaps;       /* slots may be empty: their id is -1 */
        bool mapped;     /* chunks are in a mapped file and are not freed; nothing is added or removed */
        size_t n_simple; /* projections of each row */
        size_t row_bytes;
        unsigned chunk_shift;         /* rows_per_chunk = 1 << chunk_shift */
        size_t n_chunks;              /* writers only */
        struct dci_rows_codes *codes; /* NULL: rows have none */
        _Atomic(dci_chunk_table *) table;
        atomic_size_t n; /* published rows: what is below is complete and visible */
} dci_rows;

typedef struct dci_view {
        const dci_rows *rows;
        const dci_chunk_table *table;
        size_t n;
} dci_view;

dci_view dci_rows_view(const dci_rows *rows);

/* Pointers to `count` rows: slots[i], or first + i when slots is NULL. */
void dci_view_pointers(const dci_view *view, size_t first, const int32_t *slots, size_t count, const void **out);
/* Owned rows that are contiguous from `first` on: at most `count`, in *out_run. */
const void *dci_view_run(const dci_view *view, size_t first, size_t count, size_t *out_run);
int64_t dci_view_id(const dci_view *view, int32_t slot);
/* The ids of rows that go by their position in a list of slots: a dci_slot_ids whose ctx is a dci_positions. */
typedef struct dci_positions {
        const dci_view *view;
        const int32_t *slots;
} dci_positions;
int64_t dci_position_id(const void *positions, int32_t position);
void dci_view_norms(const dci_view *view, size_t first, const int32_t *slots, size_t count, float *out);

/* The chunk of a slot and the place in it, for writers that fill unpublished slots or move rows without readers. */
dci_chunk *dci_rows_chunk(dci_rows *rows, size_t slot, size_t *out_offset);

#endif
