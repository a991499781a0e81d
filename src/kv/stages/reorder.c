/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * When orders are made again, and how many tokens are static (PRKV). The last queries are kept in a ring: those that
 * were observed at the prompt's end, then those of plans. Each `period` plans dci_kv_maintain makes a new batch of all
 * candidates, which takes the place of the ones before; forks keep those.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/memory.h"
#include "kv/queries.h"
#include "kv/stages/rank.h"
#include "kv/stages/reorder.h"
#include "kv/worker.h"
#include "simd/topk.h"

/* --- the ring ----------------------------------------------------------------------------------------------------- */

/* Positions whose queries count. Those older than the rollback may precede candidates. */
static size_t n_observed(const dci_kv *kv, const dci_kv_layer *layer)
{
        const dci_kv_selection_cache *d = layer->selection;
        const size_t after = kv->config.frozen_prompt ? SIZE_MAX : kv->config.rollback > 0 ? kv->config.rollback : 1;
        size_t n = d == NULL || d->ring == NULL ? 0 : d->n_pushed;
        n = n < kv->config.ring ? n : kv->config.ring;
        return n < after ? n : after;
}

static const float *ring_at(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t number)
{
        const size_t at = head * kv->config.ring + number % kv->config.ring;
        return layer->selection->ring + at * kv->group * kv->dim_k;
}

size_t dci_kv_ring_queries(const dci_kv *kv, const dci_kv_layer *layer, size_t head, float *out)
{
        const size_t n = n_observed(kv, layer), width = kv->group * kv->dim_k;
        const dci_kv_reorder *of = layer->reorder;
        if (of != NULL && of->queries != NULL) {
                const size_t floats = of->n_queries * kv->dim_k;
                memcpy(out, of->queries + head * floats, floats * sizeof *out);
                return of->n_queries;
        }
        for (size_t i = 0; i < n; i++)
                memcpy(out + i * width, ring_at(kv, layer, head, layer->selection->n_pushed - n + i),
                       width * sizeof *out);
        return n * kv->group;
}

void dci_kv_ring_observe(const dci_kv *kv, dci_kv_layer *layer, size_t n_positions, const void *queries, size_t ld)
{
        dci_kv_selection_cache *d = layer->selection;
        if (d == NULL || d->ring == NULL)
                return;
        const size_t n = n_positions < kv->config.ring ? n_positions : kv->config.ring;
        for (size_t i = 0; i < n; i++)
                for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                        dci_kv_queries_to_f32(kv, queries, ld, n_positions - n + i, h * kv->group, kv->group,
                                              d->ring + (h * kv->config.ring + i) * kv->group * kv->dim_k);
        d->n_pushed = d->renewed = n;
        d->early = dci_kv_reorder_early(kv, layer->number);
}

/* --- how many are static ------------------------------------------------------------------------------------------ */

static size_t whole_pages(const dci_kv *kv, double tokens)
{
        return (size_t)(tokens / (double)kv->config.page_tokens) * kv->config.page_tokens;
}

/* The longest list of plans that rank n candidates: the number of tokens follows from that of candidates, so that it is
 * the same whenever an order is made. */
static size_t longest_list(const dci_kv *kv, size_t n)
{
        const dci_kv_config *c = &kv->config;
        return dci_kv_list_room(c, c->sink + n + (c->frozen_prompt != 0 ? 0 : c->rollback));
}

size_t dci_kv_static_of(const dci_kv *kv, const dci_kv_layer *layer, size_t n)
{
        const double room = (double)longest_list(kv, n);
        size_t wanted = layer->n_static;
        if (n_observed(kv, layer) == 0)
                return 0;
        if (kv->config.static_share >= 0.0)
                wanted = whole_pages(kv, kv->config.static_share * room);
        wanted = wanted < whole_pages(kv, room) ? wanted : whole_pages(kv, room);
        return wanted < n ? wanted : n / kv->config.page_tokens * kv->config.page_tokens;
}

typedef struct overlapping {
        dci_kv *kv;
        const dci_kv_layer *layer;
        size_t n, k, area_bytes;
        unsigned char *memory; /* an area for each worker, then a count for each kv head */
        size_t *counts;
} overlapping;

static size_t overlap_bytes(size_t n, size_t k)
{
        return dci_lines(n * sizeof(float)) + dci_lines((n + 63) / 64 * sizeof(uint64_t)) +
               dci_lines(k * sizeof(int32_t)) + dci_topk_bytes(k);
}

/* The k best candidates of one query; there are more than k. */
static void best_of(const overlapping *o, size_t head, const float *query, float *scores, unsigned char *scratch,
                    int32_t *out)
{
        const dci_kv *kv = o->kv;
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0; i < o->n; i += DCI_KV_TILE) {
                const size_t here = o->n - i < DCI_KV_TILE ? o->n - i : DCI_KV_TILE;
                dci_kv_rows_of(kv, o->layer, head, kv->config.sink + i, here, rows, NULL);
                kv->context->kernels->score_rows[kv->config.dtype - 1][DCI_FORM_DOT](query, rows, here, kv->dim_k,
                                                                                     scores + i);
        }
        dci_kv_best(kv, scores, o->n, NULL, o->k, scratch, out);
}

static void overlap_task(void *arg, size_t head, size_t worker)
{
        const overlapping *o = arg;
        const dci_kv *kv = o->kv;
        const size_t n_seen = n_observed(kv, o->layer), last = o->layer->selection->n_pushed - 1;
        unsigned char *at = o->memory + worker * o->area_bytes;
        float *scores = (float *)(void *)at;
        uint64_t *bits = (uint64_t *)(void *)(at + dci_lines(o->n * sizeof *scores));
        int32_t *best = (int32_t *)(void *)((unsigned char *)bits + dci_lines((o->n + 63) / 64 * sizeof *bits));
        unsigned char *scratch = (unsigned char *)best + dci_lines(o->k * sizeof *best);
        o->counts[head] = 0;
        for (size_t q = 0; q < kv->group; q++) {
                memset(bits, 0, (o->n + 63) / 64 * sizeof *bits);
                best_of(o, head, ring_at(kv, o->layer, head, last + 1 - n_seen) + q * kv->dim_k, scores, scratch, best);
                for (size_t i = 0; i < o->k; i++)
                        bits[best[i] / 64] |= UINT64_C(1) << (best[i] % 64);
                best_of(o, head, ring_at(kv, o->layer, head, last) + q * kv->dim_k, scores, scratch, best);
                for (size_t i = 0; i < o->k; i++)
                        o->counts[head] += bits[best[i] / 64] >> (best[i] % 64) & 1;
        }
}

dci_status dci_kv_static_online(dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        overlapping o = {.kv = kv, .layer = layer, .n = n, .k = longest_list(kv, n)};
        size_t sum = 0;
        layer->n_static = whole_pages(kv, DCI_KV_STATIC_SHARE * (double)o.k);
        if (kv->config.static_share >= 0.0 || n <= o.k || n_observed(kv, layer) == 0)
                return DCI_OK;
        const size_t n_workers = (size_t)atomic_load(&kv->context->n_threads), n_heads = kv->config.n_kv_heads;
        o.area_bytes = overlap_bytes(n, o.k);
        const size_t n_bytes = n_workers * o.area_bytes + n_heads * sizeof *o.counts;
        DCI_TRY(dci_kv_alloc(kv, n_bytes, (void **)&o.memory));
        o.counts = (size_t *)(void *)(o.memory + n_workers * o.area_bytes);
        dci_status status =
                dci_kv_spread(kv, n_workers, n_heads, 2 * n * kv->config.n_query_heads * kv->dim_k, overlap_task, &o);
        for (size_t h = 0; h < n_heads && status == DCI_OK; h++)
                sum += o.counts[h];
        if (status == DCI_OK)
                layer->n_static = whole_pages(kv, (double)sum / (double)kv->config.n_query_heads);
        dci_kv_free(kv, o.memory, n_bytes);
        return status;
}

/* --- a new order -------------------------------------------------------------------------------------------------- */

size_t dci_kv_reorder_early(const dci_kv *kv, size_t layer)
{
        return kv->config.reorder_delay > 0 ? layer * kv->config.period / kv->config.n_layers : 0;
}

size_t dci_kv_reordered_at(const dci_kv *kv, const dci_kv_layer *layer, size_t n_pushed)
{
        const dci_kv_selection_cache *d = layer->selection;
        if (!dci_kv_reorders(kv) || !dci_kv_groups(kv, layer->number) || layer->prompt != DCI_KV_PROMPT_DONE ||
            layer->reorder != NULL || d == NULL || d->ring == NULL ||
            n_pushed - d->renewed < kv->config.period - d->early)
                return 0;
        const size_t may = kv->config.frozen_prompt ? 0 : dci_kv_may_group(kv, layer->sequence->n);
        return may > layer->n_grouped ? may : layer->n_grouped;
}

size_t dci_kv_reordered(const dci_kv *kv, const dci_kv_layer *layer)
{
        return layer->selection != NULL ? dci_kv_reordered_at(kv, layer, layer->selection->n_pushed) : 0;
}

static void free_reorder(dci_kv *kv, dci_kv_layer *layer)
{
        dci_kv_reorder *of = layer->reorder;
        layer->reorder = NULL;
        dci_kv_clusters_release(kv, of->batch);
        for (size_t b = 0; b < of->n_from; b++)
                dci_kv_clusters_release(kv, of->from[b]);
        dci_kv_free(kv, of, of->n_bytes);
}

void dci_kv_reorder_drop(dci_kv *kv, dci_kv_layer *layer)
{
        if (layer->reorder == NULL)
                return;
        dci_kv_jobs_cancel_layer(kv, layer);
        free_reorder(kv, layer);
}

void dci_kv_reorder_truncate(dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        if (layer->reorder != NULL && kv->config.sink + layer->reorder->batch->n > n)
                dci_kv_reorder_drop(kv, layer);
}

/* Batches of later pages stay if the first of them begins where the order ends: the pages before it are as many as they
 * were. Where a device plans, one may straddle that end; then they are built again when they are asked for. */
void dci_kv_reorder_publish(dci_kv *kv, dci_kv_layer *layer)
{
        dci_kv_reorder *of = layer->reorder;
        dci_kv_clusters *batch = of->batch;
        size_t n = 1;
        dci_kv_jobs_wait_layer(kv, layer);
        of->batch = NULL;
        for (size_t b = 0; b < layer->n_batches; b++) {
                dci_kv_clusters *old = layer->batches[b];
                const dci_kv_clusters *before = n > 1 ? layer->batches[n - 1] : batch;
                if (old->first == before->first + before->n)
                        layer->batches[n++] = old;
                else
                        dci_kv_clusters_release(kv, old);
        }
        layer->batches[0] = batch;
        layer->n_batches = n;
        layer->n_grouped = layer->batches[n - 1]->first + layer->batches[n - 1]->n;
        layer->copied = false;
        layer->selection->renewed = of->started;
        layer->selection->early = 0;
        free_reorder(kv, layer);
}

/* --- what there is ------------------------------------------------------------------------------------------------ */

static dci_status check_order(const dci_kv *kv, size_t layer, size_t kv_head, const size_t *out_n)
{
        if (out_n == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_n is NULL");
        if (!dci_kv_reorders(kv))
                return dci_fail(DCI_ERR_INVALID, "group is %d: only group %d has an order of its own",
                                (int)kv->config.group, (int)DCI_KV_GROUP_REORDERED);
        if (layer >= kv->config.n_layers)
                return dci_fail(DCI_ERR_INVALID, "layer is %zu, expected less than %zu", layer, kv->config.n_layers);
        if (kv_head >= kv->config.n_kv_heads)
                return dci_fail(DCI_ERR_INVALID, "kv_head is %zu, expected less than %zu", kv_head,
                                kv->config.n_kv_heads);
        return DCI_OK;
}

static dci_status order_of(const dci_kv *kv, const dci_kv_layer *layer, size_t kv_head, size_t room,
                           int32_t *out_positions, size_t *out_n, size_t *out_static)
{
        if (out_positions != NULL && room < layer->n_grouped)
                return dci_fail(DCI_ERR_INVALID, "there is room for %zu positions, but the order has %zu", room,
                                layer->n_grouped);
        size_t n = 0;
        for (size_t b = 0; b < layer->n_batches && out_positions != NULL; b++) {
                const int32_t *ids = dci_kv_cluster_ids(kv, layer->batches[b], kv_head);
                for (size_t i = 0; i < layer->batches[b]->n; i++)
                        out_positions[n++] = (int32_t)kv->config.sink + ids[i];
        }
        *out_n = layer->n_grouped;
        if (out_static != NULL)
                *out_static = layer->n_batches > 0 ? layer->batches[0]->n_static : 0;
        return DCI_OK;
}

dci_status dci_kv_order(dci_kv *kv, size_t layer, int64_t sequence, size_t kv_head, size_t room, int32_t *out_positions,
                        size_t *out_n, size_t *out_static)
{
        DCI_TRY(dci_kv_lock(kv));
        const dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status = found == NULL ? DCI_ERR_NOT_FOUND : check_order(kv, layer, kv_head, out_n);
        if (status == DCI_OK) {
                dci_kv_jobs_wait(kv, found);
                status = order_of(kv, &found->layers[layer], kv_head, room, out_positions, out_n, out_static);
        }
        dci_kv_unlock(kv);
        return status;
}
