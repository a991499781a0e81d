/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Projections of rows and queries on the directions of an index. */
#ifndef DCI_INDEX_PDCI_PROJECT_H
#define DCI_INDEX_PDCI_PROJECT_H

#include "index/index_internal.h"
#include "index/queries.h"

/* Fills the projections of rows in unpublished slots [first, first + count). */
void dci_project_rows(const dci_index *index, dci_rows *rows, size_t first, size_t count);
/* Projections of one query, as P-DCI compares it: unit length under COSINE, length c under IP. */
void dci_project_query(const dci_index *index, const dci_queries *queries, size_t query, float c_squared, float *out);

#endif
