/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the stages share: scores of rows, their softmax, the best of them, and means. */
#ifndef DCI_KV_STAGES_RANK_H
#define DCI_KV_STAGES_RANK_H

#include "kv/stages/stages.h"

/* Scores of n rows of `dim` elements for the group's queries, to numbers from `first` on. */
void dci_kv_score_rows(const dci_kv_query *ask, const float *queries, size_t dim, dci_dtype dtype,
                       const void *const *rows, size_t n, size_t first);
/* Scores of a batch's clusters by rows of `width` elements, one per cluster. */
void dci_kv_score_clusters(const dci_kv_query *ask, const dci_kv_clusters *batch, const float *queries, size_t width,
                           const unsigned char *rows);
/* exp(score - most) in place for one query's first n scores, with `most` filled in; returns their sum. */
float dci_kv_soften(dci_kv_query *ask, size_t query, size_t n);
/* That for all queries, if a tail takes terms. */
void dci_kv_store_terms(dci_kv_query *ask, size_t n);

/* The n_best greatest of n scores, best first, equal ones by number; returns how many there are. Their numbers are
 * slots[i], ascending, or i. scratch: dci_topk_bytes(n_best). */
size_t dci_kv_best(const dci_kv *kv, const float *scores, size_t n, const int32_t *slots, size_t n_best, void *scratch,
                   int32_t *out);
/* Puts `chosen` in ascending order, and keeps the ranking in `ranked` where that is asked for. */
void dci_kv_put_in_order(dci_kv_query *ask);

/* The mean of n >= 1 rows, dim apart. */
void dci_kv_mean_row(const float *rows, size_t n, size_t dim, float *out);

#endif
