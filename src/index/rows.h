/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Memory of rows: chunks are added, retired and freed here. view.h has what readers do. */
#ifndef DCI_INDEX_ROWS_H
#define DCI_INDEX_ROWS_H

#include "index/view.h"

/* An allocation that readers may still use; freed when none can. */
typedef struct dci_retired {
        struct dci_retired *next;
        void *pointer;
        size_t n_bytes;
} dci_retired;

void dci_rows_init(dci_rows *rows, dci_context *context, const dci_index_config *config);
void dci_rows_destroy(dci_rows *rows);

/* Rows that the present chunks hold. */
size_t dci_rows_capacity(const dci_rows *rows);
/* Makes room for n rows in all without publishing any. What it replaces goes to `retired`. On failure nothing changed. */
dci_status dci_rows_reserve(dci_rows *rows, size_t n, dci_retired **retired);

/* Parts of all rows as a file has them, in slot order. ids (int64), norms (float) and projections (float, [simple index][row])
 * may be NULL. */
typedef struct dci_rows_parts {
        const void *rows, *ids, *norms, *projections;
} dci_rows_parts;
/* Lets empty `rows` read n rows in place, aligned, without publishing any. On failure nothing changed. */
dci_status dci_rows_attach(dci_rows *rows, size_t n, const dci_rows_parts *parts);

/* Gives back all chunks beyond those that n rows need. Writers only, no readers. */
void dci_rows_shrink(dci_rows *rows, size_t n);
/* Drops all rows and gives back all chunks and the table. Writers only, no readers. */
void dci_rows_clear(dci_rows *rows);

/* The same from other rows; borrowed ones may become owned, norms that only one of the two has are left. */
void dci_rows_copy(dci_rows *from_rows, size_t from, dci_rows *to_rows, size_t to);
/* What the two hold changes places: rows of the same config, but for kind and codes; neither has projections unless both have. Writers
 * only, no readers. */
void dci_rows_swap(dci_rows *a, dci_rows *b);
size_t dci_rows_bytes(const dci_rows *rows, dci_memory_report *report);

#endif
