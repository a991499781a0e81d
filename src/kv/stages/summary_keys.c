/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Second stage: nothing at all, or the keys themselves. */
#include "core/internal.h"

#include "kv/stages/stages.h"

static size_t no_bytes(const dci_kv *kv)
{
        (void)kv;
        return 0;
}

void dci_kv_score_rows(const dci_kv_query *ask, const float *queries, size_t dim, dci_dtype dtype,
                       const void *const *rows, size_t n, size_t first)
{
        const dci_kernels *kernels = ask->kv->context->kernels;
        for (size_t q = 0; q < ask->kv->group; q += DCI_MANY_QUERIES) {
                const size_t left = ask->kv->group - q, here = left < DCI_MANY_QUERIES ? left : DCI_MANY_QUERIES;
                kernels->score_many[dtype - 1][DCI_FORM_DOT](queries + q * dim, dim, here, rows, n, dim,
                                                             ask->scores + q * ask->ld + first, ask->ld);
        }
}

static void rank_keys(dci_kv_query *ask)
{
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0; i < ask->n_candidates; i += DCI_KV_TILE) {
                const size_t left = ask->n_candidates - i, n = left < DCI_KV_TILE ? left : DCI_KV_TILE;
                dci_kv_rows_of(ask->kv, ask->layer, ask->head, ask->kv->config.sink + i, n, rows, NULL);
                dci_kv_score_rows(ask, ask->queries, ask->kv->dim_k, ask->kv->config.dtype, rows, n, i);
        }
}

const dci_kv_summary dci_kv_summary_none = {.kind = DCI_KV_SUMMARY_NONE, .bytes = no_bytes, .work_bytes = no_bytes};
const dci_kv_summary dci_kv_summary_keys = {
        .kind = DCI_KV_SUMMARY_KEYS, .bytes = no_bytes, .work_bytes = no_bytes, .rank = rank_keys};
