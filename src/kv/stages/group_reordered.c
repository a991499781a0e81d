/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * First stage: pages of a stored order that is not that of positions (PRKV, algorithm 1). The tokens that the last
 * queries look at most come first, best first, and are static; the others follow in the order they had; pages are cut
 * from that order. Tokens that come later form pages after them, in their own order, until the next order takes them in
 * (stages/reorder.c). Rows stay where they are: an order is a list of candidates.
 */
#include "core/internal.h"

#include <string.h>

#include "core/arena.h"
#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/stages/importance.h"
#include "kv/stages/rank.h"
#include "kv/stages/reorder.h"
#include "simd/topk.h"

static size_t most(const dci_kv *kv, size_t n)
{
        return (n + kv->config.page_tokens - 1) / kv->config.page_tokens;
}

/* Those that a sequence cut within its rollback still has. */
static const int32_t *members(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group, size_t n,
                              int32_t *room, size_t *out_n)
{
        size_t here, left = 0;
        const int32_t *ids = dci_kv_members_clustered(kv, layer, head, group, SIZE_MAX, room, &here);
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

typedef struct weighing {
        void *work;        /* stages/importance.c's */
        float *importance; /* dci_kv_importance_room */
        uint64_t *is_static;
        unsigned char *topk;
} weighing;

static size_t lay_out(const dci_kv *kv, size_t n, void *memory, weighing *out)
{
        const size_t room = dci_kv_max_room(kv);
        const dci_arena_part parts[] = {{dci_kv_importance_bytes(kv, n), &out->work},
                                        {dci_kv_importance_room(n) * sizeof(float), &out->importance},
                                        {(n + 63) / 64 * sizeof(uint64_t), &out->is_static},
                                        {dci_topk_bytes(room < n ? room : n), &out->topk}};
        return DCI_ARENA(parts, memory);
}

static size_t work_bytes(const dci_kv *kv, size_t n)
{
        weighing parts;
        return kv->config.static_share == 0.0 ? 0 : lay_out(kv, n, NULL, &parts);
}

/* The best of them to the front of `ids`, and marked. */
static void select_static(const dci_kv *kv, const weighing *w, size_t n, size_t n_static, int32_t *ids)
{
        memset(w->is_static, 0, (n + 63) / 64 * sizeof *w->is_static);
        dci_kv_best(kv, w->importance, n, NULL, n_static, w->topk, ids);
        for (size_t i = 0; i < n_static; i++)
                w->is_static[ids[i] / 64] |= UINT64_C(1) << (ids[i] % 64);
}

/* The others in the order they are stored in: that of the layer's batches, and of those that no batch has by
 * position. */
static void append_rest(const dci_kv *kv, const dci_kv_layer *layer, const dci_kv_clusters *batch, size_t head,
                        const weighing *w, int32_t *ids)
{
        const bool some = batch->n_static > 0;
        const dci_kv_reorder *of = layer->reorder;
        const bool apart = of != NULL && of->batch == batch;
        dci_kv_clusters *const *batches = apart ? of->from : layer->batches;
        const size_t n_batches = apart ? of->n_from : layer->n_batches;
        size_t n = batch->n_static, seen = batch->first;
        for (size_t b = 0; b < n_batches && batch->first == 0 && batches[b] != batch; b++) {
                const dci_kv_clusters *old = batches[b];
                const int32_t *from = dci_kv_cluster_ids(kv, old, head);
                for (size_t i = 0; i < old->n; i++)
                        if ((size_t)from[i] < batch->n &&
                            (!some || (w->is_static[from[i] / 64] >> (from[i] % 64) & 1) == 0))
                                ids[n++] = from[i];
                seen += old->n;
        }
        for (size_t i = seen; i < batch->first + batch->n; i++)
                if (!some || (w->is_static[i / 64] >> (i % 64) & 1) == 0)
                        ids[n++] = (int32_t)i;
}

static void divide(dci_kv *kv, const dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, const void *keys,
                   void *work)
{
        const size_t per_page = kv->config.page_tokens, n_groups = most(kv, batch->n);
        int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head), *ids = dci_kv_cluster_ids(kv, batch, head);
        weighing w = {0};
        if (batch->n_static > 0) {
                lay_out(kv, batch->n, work, &w);
                dci_kv_importance(kv, layer, head, keys, batch->n, w.work, w.importance);
                select_static(kv, &w, batch->n, batch->n_static, ids);
        }
        append_rest(kv, layer, batch, head, &w, ids);
        for (size_t g = 0; g <= n_groups; g++)
                offsets[g] = (int32_t)(g < n_groups ? g * per_page : batch->n);
        batch->heads[head].n_groups = n_groups;
}

const dci_kv_grouping dci_kv_group_reordered = {.kind = DCI_KV_GROUP_REORDERED,
                                                .listed = true,
                                                .count = dci_kv_count_clustered,
                                                .members = members,
                                                .most = most,
                                                .work_bytes = work_bytes,
                                                .divide = divide};
