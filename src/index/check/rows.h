/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What must hold of an index. dci_index_check asks all of it; loading asks the part that a file can have wrong, by the same functions.
 *
 * Nothing here trusts a number before it was checked: counts come first, then lists by them, then what lists point to.
 */
#ifndef DCI_INDEX_CHECK_ROWS_H
#define DCI_INDEX_CHECK_ROWS_H

#include "index/check/codes.h"

/* How far two machines' squared norms may be apart, and half of how far projections of rows as long as `size` may. */
double dci_norm_slack(size_t dim, double size);

/* A row is one that dci_index_add takes, and its norm (NULL: none is kept) belongs to it up to rounding. in: "file" or "index". */
dci_status dci_check_norm(const dci_index *index, size_t slot, const void *row, const float *norm, const char *in);
/* c^2 is one that rows as long as these can have. */
dci_status dci_check_c_squared(const dci_index *index, const dci_view *view, float c_squared, const char *in);
/* All projections are finite and no longer than a row can be. empty_too: those of empty slots, too. */
dci_status dci_check_projections(const dci_view *view, bool empty_too, const char *in);

/* Chunks hold the rows there are. */
dci_status dci_check_chunks(const dci_index *index, const dci_view *view);
/* Every id is one that can be, and the map has these and no others, each with its slot. Returns how many rows there are. */
dci_status dci_check_ids(const dci_index *index, const dci_view *view, size_t *out_n);

/* Rows of slots [first, end): norms, projections and codes again. */
dci_status dci_check_rows(const dci_row_check *check, size_t first, size_t end, void *scratch);
/* Directions are those of the seed. */
dci_status dci_check_directions(const dci_index *index);

#endif
