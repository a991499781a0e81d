/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Products of rows and queries in tiles, with bounds of their rounding. */
#ifndef DCI_INDEX_FLAT_BATCH_ROWS_H
#define DCI_INDEX_FLAT_BATCH_ROWS_H

#include "index/flat/batch_state.h"

/* A bound from above on a length, given its square as the kernels compute it: their rounding, and squares that vanished. */
float dci_batch_length(float squared, size_t dim);

/* Packs a block of queries and empties their lists. */
void dci_batch_load_queries(const batch *b, batch_worker *w, size_t block, size_t n_queries);

/* Prepares n_rows rows, at positions first, first + step, .. of the selection; then multiplies them with
 * the block's queries [first, first + DCI_BATCH_COLUMNS): products[row * DCI_BATCH_COLUMNS + column]. */
void dci_batch_load_rows(const batch *b, batch_worker *w, size_t first, size_t step, size_t n_rows, batch_rows *rows);
void dci_batch_multiply(const batch *b, batch_worker *w, const batch_rows *rows, size_t block, size_t first,
                        size_t n_queries, float *products);

#endif
