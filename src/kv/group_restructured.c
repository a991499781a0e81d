/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * First stage: pages of a stored order that is not that of positions (PRKV, algorithm 1). The tokens that the last queries look at most
 * come first, best first, and are static; the others follow in the order they had; pages are cut from that order. Tokens that come
 * later form pages in their own order behind, until the next order takes them in (restructure.c). Rows stay where they are: an order
 * is a list of candidates.
 */
#include "core/internal.h"

#include <string.h>

#include "kv/stages.h"

#define QUERIES ((size_t)16) /* whose scores are kept at a time, for one pass over the keys */

static size_t most(const dci_kv *kv, size_t n)
{
        return (n + kv->config.page_tokens - 1) / kv->config.page_tokens;
}

/* Those that a sequence cut within its rollback still has. */
static const int32_t *members(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group, size_t n,
                              int32_t *room, size_t *out_n)
{
        size_t here, left = 0;
        const int32_t *ids = dci_kv_members_listed(kv, layer, head, group, SIZE_MAX, room, &here);
        if (n >= layer->n_grouped) {
                *out_n = here;
                return ids;
        }
        for (size_t i = 0; i < here; i++) {
                if ((size_t)ids[i] >= n)
                        continue;
                if (room != NULL)
                        room[left] = ids[i];
                left++;
        }
        *out_n = left;
        return room;
}

/* --- importance ------------------------------------------------------------------------------------------------------------ */

typedef struct weighing {
        float *queries, *scores, *importance;
        uint64_t *is_static;
        unsigned char *topk;
} weighing;

static size_t lay_out(const dci_kv *kv, size_t n, unsigned char *at, weighing *out)
{
        const size_t room = dci_kv_most_room(kv), total = kv->config.ring * kv->group;
        const size_t sizes[] = {total * kv->dim_k * sizeof(float),
                                (total < QUERIES ? total : QUERIES) * n * sizeof(float), n * sizeof(float),
                                (n + 63) / 64 * sizeof(uint64_t), dci_topk_bytes(room < n ? room : n)};
        void *parts[5];
        size_t n_bytes = 0;
        for (size_t i = 0; i < 5; i++) {
                parts[i] = at != NULL ? at + n_bytes : NULL;
                n_bytes += dci_lines(sizes[i]);
        }
        *out = (weighing){parts[0], parts[1], parts[2], parts[3], parts[4]};
        return n_bytes;
}

static size_t work_bytes(const dci_kv *kv, size_t n)
{
        weighing parts;
        return kv->config.static_share == 0.0 ? 0 : lay_out(kv, n, NULL, &parts);
}

/* The scores of some queries over all n keys; a tile of keys serves all of them while it is near. */
static void score(const dci_kv *kv, const float *queries, size_t n_queries, const unsigned char *keys, size_t n,
                  float *out)
{
        const size_t dim = kv->dim_k;
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0; i < n; i += DCI_KV_TILE) {
                const size_t here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t r = 0; r < here; r++)
                        rows[r] = keys + (i + r) * dim * kv->es;
                for (size_t q = 0; q < n_queries; q += DCI_MANY_QUERIES) {
                        const size_t left = n_queries - q;
                        kv->context->kernels->score_many[kv->config.dtype - 1][DCI_FORM_DOT](
                                queries + q * dim, dim, left < DCI_MANY_QUERIES ? left : DCI_MANY_QUERIES, rows, here,
                                dim, out + q * n + i, n);
                }
        }
}

/* The sum over the observed queries of each head of the softmax over the candidates: the mean but for a factor (lines 7 and 8). */
static void weigh(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const unsigned char *keys, size_t n,
                  const weighing *w)
{
        const dci_kernels *kernels = kv->context->kernels;
        const size_t n_queries = dci_kv_ring_queries(kv, layer, head, w->queries);
        memset(w->importance, 0, n * sizeof *w->importance);
        for (size_t q = 0, here; q < n_queries; q += here) {
                const void *rows[QUERIES];
                float shares[QUERIES];
                here = n_queries - q < QUERIES ? n_queries - q : QUERIES;
                score(kv, w->queries + q * kv->dim_k, here, keys, n, w->scores);
                for (size_t i = 0; i < here; i++) {
                        float *scores = w->scores + i * n;
                        rows[i] = scores;
                        shares[i] = 1.0f / kernels->exp_all(scores, n, kernels->greatest(scores, n));
                }
                kernels->add_rows[DCI_F32 - 1](rows, shares, here, n, w->importance);
        }
}

/* The best of them to the front of `ids`, and marked. */
static void choose_static(const dci_kv *kv, const weighing *w, size_t n, size_t n_static, int32_t *ids)
{
        memset(w->is_static, 0, (n + 63) / 64 * sizeof *w->is_static);
        dci_kv_best(kv, w->importance, n, NULL, n_static, w->topk, ids);
        for (size_t i = 0; i < n_static; i++)
                w->is_static[ids[i] / 64] |= UINT64_C(1) << (ids[i] % 64);
}

/* --- an order ------------------------------------------------------------------------------------------------------------------ */

/* The others in the order they are stored in: that of the layer's batches, and of those that no batch has by position. */
static void append_rest(const dci_kv *kv, const dci_kv_layer *layer, const dci_kv_batch *batch, size_t head,
                        const weighing *w, int32_t *ids)
{
        const bool some = batch->n_static > 0;
        size_t n = batch->n_static, seen = batch->first;
        for (size_t b = 0; b < layer->n_batches && batch->first == 0 && layer->batches[b] != batch; b++) {
                const dci_kv_batch *old = layer->batches[b];
                const int32_t *from = dci_kv_batch_ids(kv, old, head);
                for (size_t i = 0; i < old->n; i++)
                        if (!some || (w->is_static[from[i] / 64] >> (from[i] % 64) & 1) == 0)
                                ids[n++] = from[i];
                seen += old->n;
        }
        for (size_t i = seen; i < batch->first + batch->n; i++)
                if (!some || (w->is_static[i / 64] >> (i % 64) & 1) == 0)
                        ids[n++] = (int32_t)i;
}

static void divide(dci_kv *kv, const dci_kv_layer *layer, dci_kv_batch *batch, size_t head, const void *keys,
                   void *work)
{
        const size_t per_page = kv->config.page_tokens, n_groups = most(kv, batch->n);
        int32_t *offsets = dci_kv_batch_offsets(kv, batch, head), *ids = dci_kv_batch_ids(kv, batch, head);
        weighing w = {0};
        if (batch->n_static > 0) {
                lay_out(kv, batch->n, work, &w);
                weigh(kv, layer, head, keys, batch->n, &w);
                choose_static(kv, &w, batch->n, batch->n_static, ids);
        }
        append_rest(kv, layer, batch, head, &w, ids);
        for (size_t g = 0; g <= n_groups; g++)
                offsets[g] = (int32_t)(g < n_groups ? g * per_page : batch->n);
        batch->heads[head].n_groups = n_groups;
}

const dci_kv_grouping dci_kv_group_restructured = {.kind = DCI_KV_GROUP_RESTRUCTURED,
                                                   .listed = true,
                                                   .count = dci_kv_count_listed,
                                                   .members = members,
                                                   .most = most,
                                                   .work_bytes = work_bytes,
                                                   .divide = divide};
