/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Queries and plans that a call passes: checked, and converted. */
#ifndef DCI_KV_QUERIES_H
#define DCI_KV_QUERIES_H

#include "kv/state.h"

/* Refuses rows that do not fit in the address space or are not aligned to their elements. */
dci_status dci_kv_check_span(const char *what, size_t n_rows, const void *rows, size_t ld, size_t element_bytes);
/* The first of n queries that is not finite, or too large to score; n: there is none. */
size_t dci_kv_bad_query(const dci_kv *kv, size_t n, const void *queries, size_t ld);
dci_status dci_kv_check_queries(const dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found,
                                const void *queries, size_t ld);
dci_status dci_kv_check_plan(const dci_kv *kv, size_t n_sequences, const dci_kv_plan *plan);
/* The queries of n query heads from `first` on as floats, times the scale. */
void dci_kv_queries_to_f32(const dci_kv *kv, const void *queries, size_t ld, size_t sequence, size_t first, size_t n,
                           float *out);

#endif
