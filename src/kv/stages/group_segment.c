/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * First stage: LouisKV's decoupled groups (Wu et al. 2025, section 4.2). The prompt lies in clusters; what is decoded
 * lies in segments, which begin where the layer's queries turned and so are the same for all heads. A segment's end is
 * known once the sequence is longer, so groups do not depend on when they are asked for.
 */
#include "core/internal.h"

#include "kv/clusters.h"
#include "kv/geometry.h"

/* Candidates that k-means divides: those of the prompt, also when a cut has taken their clusters away. */
static size_t clustered(const dci_kv *kv, const dci_kv_layer *layer)
{
        return dci_kv_prompt_candidates(kv, layer->n_prompt);
}

/* The first boundary that ends a segment which begins at candidate `begin`, as a candidate; SIZE_MAX: none. */
static size_t next_turn(const dci_kv *kv, const dci_kv_layer *layer, size_t begin)
{
        const size_t first = kv->config.sink + begin + (kv->config.segment_least > 1 ? kv->config.segment_least : 1);
        size_t low = 0, high = layer->n_boundaries;
        while (low < high) {
                const size_t middle = low + (high - low) / 2;
                if ((size_t)layer->boundaries[middle] < first)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low < layer->n_boundaries ? (size_t)layer->boundaries[low] - kv->config.sink : SIZE_MAX;
}

/* Where the segment ends that begins at a candidate: at a turn, with the prompt, or when half of the buffer is its
 * own. */
static size_t end_of_segment(const dci_kv *kv, const dci_kv_layer *layer, size_t begin)
{
        const size_t prompt = layer->n_prompt, half = kv->config.segment_buffer / 2;
        const size_t turn = next_turn(kv, layer, begin);
        size_t end = begin + half;
        if (prompt > kv->config.sink + begin && prompt - kv->config.sink < end)
                end = prompt - kv->config.sink;
        return turn < end ? turn : end;
}

/* Segments leave the buffer together, as many as lie in an eighth of it, but a whole one at least: a batch for each
 * would be mostly head. */
static size_t end_of_batch(const dci_kv *kv, const dci_kv_layer *layer, size_t begin)
{
        const size_t most = begin + kv->config.segment_buffer / 8;
        size_t end = end_of_segment(kv, layer, begin);
        for (size_t next = end_of_segment(kv, layer, end); next <= most; next = end_of_segment(kv, layer, end))
                end = next;
        return end;
}

/* All turns before the rollback are known, so what ends before it is final. */
static size_t next(const dci_kv *kv, const dci_kv_layer *layer, size_t begin, bool early)
{
        const dci_kv_config *c = &kv->config;
        const size_t n = layer->sequence->n, may = dci_kv_may_group(kv, n);
        if (begin >= may)
                return 0;
        if (begin < clustered(kv, layer))
                return clustered(kv, layer);
        const size_t recent = n - c->sink - begin, end = end_of_batch(kv, layer, begin);
        const bool crowded = dci_kv_crowded(c, n, recent);
        if (end <= may && (recent > c->segment_buffer || (early && crowded)))
                return end;
        /* The budget wants an end that has not come: not after every token, yet before there is a page more than the
         * rollback. */
        const size_t part = c->segment_buffer / 8, page = c->page_tokens / 2, least = part < page ? part : page;
        return early && crowded && end > may && may - begin >= least ? may : 0;
}

static size_t most(const dci_kv *kv, size_t n)
{
        return dci_kv_group_cluster.most(kv, n);
}

static size_t room(const dci_kv *kv, const dci_kv_layer *layer, size_t first, size_t n)
{
        if (first < clustered(kv, layer))
                return most(kv, n);
        size_t groups = 0;
        for (size_t at = first; at < first + n; at = end_of_segment(kv, layer, at))
                groups++;
        return groups;
}

static size_t work_bytes(const dci_kv *kv, size_t n)
{
        return dci_kv_group_cluster.work_bytes(kv, n);
}

static void divide(dci_kv *kv, const dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, const void *keys,
                   void *work)
{
        if (batch->first < clustered(kv, layer)) {
                dci_kv_group_cluster.divide(kv, layer, batch, head, keys, work);
                return;
        }
        int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head), *ids = dci_kv_cluster_ids(kv, batch, head);
        const size_t end = batch->first + batch->n;
        size_t n = 0;
        offsets[0] = 0;
        for (size_t at = batch->first, until; at < end; at = until) {
                until = end_of_segment(kv, layer, at);
                until = until < end ? until : end;
                offsets[++n] = (int32_t)(until - batch->first);
        }
        for (size_t i = 0; i < batch->n; i++)
                ids[i] = (int32_t)(batch->first + i);
        batch->heads[head].n_groups = n;
}

const dci_kv_grouping dci_kv_group_segment = {.kind = DCI_KV_GROUP_SEGMENT,
                                              .listed = true,
                                              .count = dci_kv_count_clustered,
                                              .members = dci_kv_members_clustered,
                                              .most = most,
                                              .next = next,
                                              .room = room,
                                              .work_bytes = work_bytes,
                                              .divide = divide};
