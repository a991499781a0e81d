/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Third stage in two: codes rank all candidates, and of those that would come next some more are looked at; their keys, which are read
 * for it, decide. What a head's terms count is left to the codes, which see all candidates. A tail that takes terms of candidates gets
 * those of the keys: else what codes made too much of, and keys did not choose, would all be left to the tail.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/stages/rank.h"
#include "kv/stages/summary_codes.h"
#include "simd/topk.h"

size_t dci_kv_verified(const dci_kv *kv, size_t room)
{
        return kv->config.verify > 1.0 ? (size_t)ceil(kv->config.verify * (double)room) : room;
}

#define FAR 60.0f /* what codes say is the most is exceeded by no more: the exponential has to be finite */

/* What a tile of candidates counts by their keys. */
static void weigh_tile(const dci_kv_query *ask, const int32_t *candidates, size_t n, float *out)
{
        const dci_kv *kv = ask->kv;
        const dci_kernels *kernels = kv->context->kernels;
        const bool softmax = dci_kv_combines_by_softmax(kv), terms = kv->stages->tail.scored;
        const void *rows[DCI_KV_TILE];
        float scores[DCI_MANY_QUERIES * DCI_KV_TILE];
        for (size_t i = 0; i < n; i++) {
                dci_kv_rows_of(kv, ask->layer, ask->head, kv->config.sink + (size_t)candidates[i], 1, &rows[i], NULL);
                out[i] = 0.0f;
        }
        for (size_t q = 0; q < kv->group; q += DCI_MANY_QUERIES) {
                const size_t left = kv->group - q, here = left < DCI_MANY_QUERIES ? left : DCI_MANY_QUERIES;
                kernels->score_many[kv->config.dtype - 1][DCI_FORM_DOT](ask->queries + q * kv->dim_k, kv->dim_k, here,
                                                                        rows, n, kv->dim_k, scores, DCI_KV_TILE);
                for (size_t i = 0; i < here; i++) {
                        float *of_query = scores + i * DCI_KV_TILE;
                        const float most = ask->most[q + i];
                        for (size_t t = 0; t < n && !softmax; t++)
                                out[t] += ask->weights[q + i] * of_query[t];
                        if (!softmax && !terms)
                                continue;
                        for (size_t t = 0; t < n; t++)
                                of_query[t] = of_query[t] < most + FAR ? of_query[t] : most + FAR;
                        (void)kernels->exp_all(of_query, n, most);
                        for (size_t t = 0; t < n && softmax; t++)
                                out[t] += ask->weights[q + i] * of_query[t];
                        for (size_t t = 0; t < n && terms; t++)
                                ask->scores[(q + i) * ask->ld + (size_t)candidates[t]] = of_query[t];
                }
        }
}

void dci_kv_select_verified(dci_kv_query *ask, size_t n)
{
        /* As many as the plan's room asks for, also where a schedule asks for a longer list: that begins as the plan's own would. */
        const size_t most = dci_kv_max_room(ask->kv), some = dci_kv_verified(ask->kv, ask->plan_room);
        const size_t wanted = some > most ? some : most;
        int32_t *candidates = ask->lists;
        dci_topk topk;
        dci_topk_init(&topk, ask->kv->context->kernels, (dci_slot_ids){NULL, NULL}, wanted < n ? wanted : n, true,
                      ask->work);
        dci_topk_add_all(&topk, ask->relevance, n, NULL);
        const size_t m = dci_topk_gather(&topk); /* ascending */
        memcpy(candidates, topk.slots, m * sizeof *candidates);
        float *relevance = (float *)(void *)(candidates + m);
        for (size_t i = 0; i < m; i++)
                candidates[i] = dci_kv_scored(ask, (size_t)candidates[i]);
        for (size_t i = 0; i < m; i += DCI_KV_TILE)
                weigh_tile(ask, candidates + i, m - i < DCI_KV_TILE ? m - i : DCI_KV_TILE, relevance + i);
        ask->n_chosen = dci_kv_best(ask->kv, relevance, m, candidates, ask->room, ask->work, ask->chosen);
}
