/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Second stage: nothing at all, or the keys themselves. */
#include "core/internal.h"

#include "kv/lookup.h"
#include "kv/stages/rank.h"

static size_t no_bytes(const dci_kv *kv)
{
        (void)kv;
        return 0;
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
