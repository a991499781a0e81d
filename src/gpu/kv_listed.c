/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Listed groups (clusters, segments) that a device chooses by. The host forms them, in batches (kv/batch.c), before the step that finds them
 * due: once in many tokens; or it takes over a prompt's from the device (kv_clusters.c). Here is the device's copy, in two tables of chunks for each row:
 *
 *      summaries   of groups: rows, then where the members of each begin and how many there are
 *      ids         members, batch behind batch
 *
 * and how many groups each head has. Heads and layers have different numbers of groups; a row has as many chunks as the most of them need. A
 * batch that is early gives way to a later one, so from the first that changed on all is made anew, in whole chunks. Forks share chunks, partial
 * ones too: who adds to one has a copy of the host's.
 */
#include "gpu/gpu_internal.h"

#include <string.h>

#include "gpu/kv_device.h"

typedef struct span {
        int32_t first, n;
} span;

bool dci_gpu_kv_lists(const dci_kv_config *shape)
{
        return shape->group == DCI_KV_GROUP_CLUSTER || shape->group == DCI_KV_GROUP_SEGMENT;
}

/* --- sizes -------------------------------------------------------------------------------------------------------------------- */

/* Most groups of n candidates: of the prompt, of batches behind it and of clusters that are cut; early batches may be of a token each, until
 * they are as many as a whole one. */
static size_t most_listed(const dci_gpu_kv *kv, size_t n)
{
        const dci_kv_config *c = &kv->shape;
        if (c->group != DCI_KV_GROUP_CLUSTER)
                return n;
        const size_t cut = c->cluster_most > 0 ? n / c->cluster_most : 0,
                     most = n / c->cluster_tokens + n / c->cluster_every + cut + c->cluster_every + 2;
        return most < n ? most : n;
}

static size_t width_bytes(const dci_gpu_kv *kv)
{
        return (kv->planner.kind == DCI_GPU_MEANS ? 1 : 2) * kv->row_bytes;
}

size_t dci_gpu_kv_listed_init(dci_gpu_kv *kv)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t most = most_listed(kv, kv->config.max_tokens);
        p->spans_at = DCI_GPU_CHUNK * width_bytes(kv);
        dci_gpu_kv_store_init(kv, &p->summaries, p->spans_at + DCI_GPU_CHUNK * sizeof(span), most);
        dci_gpu_kv_store_init(kv, &p->ids, DCI_GPU_CHUNK * sizeof(int32_t), kv->config.max_tokens);
        return most;
}

/* --- what the host has ---------------------------------------------------------------------------------------------------------- */

/* Candidates of the batches that lie within the first n. */
static size_t end_within(const dci_kv_layer *layer, size_t n)
{
        const size_t b = dci_kv_batches_within(layer, n);
        return b == 0 ? 0 : layer->batches[b - 1]->first + layer->batches[b - 1]->n;
}

static size_t groups_within(const dci_kv_layer *layer, size_t head, size_t n)
{
        const size_t b = dci_kv_batches_within(layer, n);
        return b == 0 ? 0 : layer->batches[b - 1]->heads[head].before + layer->batches[b - 1]->heads[head].n_groups;
}

/* The most candidates up to n at which a batch ends in every layer. */
static size_t common_end(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, size_t n)
{
        for (size_t before = n + 1; before != n;) {
                before = n;
                for (size_t l = 0; l < kv->shape.n_layers; l++) {
                        const size_t end = kv->layers[l].dense ? n : end_within(&sequence->layers[l], n);
                        n = end < n ? end : n;
                }
        }
        return n;
}

typedef struct range {
        size_t least, most;
} range;

/* Groups that heads of all layers have within n candidates. */
static range groups_of(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, size_t n)
{
        range r = {SIZE_MAX, 0};
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                for (size_t h = 0; h < kv->shape.n_kv_heads && !kv->layers[l].dense; h++) {
                        const size_t groups = groups_within(&sequence->layers[l], h, n);
                        r.least = groups < r.least ? groups : r.least;
                        r.most = groups > r.most ? groups : r.most;
                }
        return r;
}

/* --- by way of the locked buffer -------------------------------------------------------------------------------------------------- */

typedef struct sending {
        dci_gpu_kv *kv;
        size_t used;
} sending;

static dci_status sent(sending *s)
{
        s->used = 0;
        return s->kv->ops->stream_wait(s->kv->gpu, s->kv->side);
}

static dci_status room_for(sending *s, size_t n_bytes, unsigned char **out)
{
        const dci_status status = s->used + n_bytes > s->kv->planner.upload_bytes ? sent(s) : DCI_OK;
        *out = s->kv->planner.upload + s->used;
        s->used += dci_lines(n_bytes);
        return status;
}

/* Groups [first, first + DCI_GPU_CHUNK) of one head. */
static void put_groups(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, unsigned char *out)
{
        const size_t row_bytes = width_bytes(kv);
        span *spans = (span *)(void *)(out + kv->planner.spans_at);
        memset(out, 0, kv->planner.summaries.head_bytes);
        for (size_t b = 0; b < layer->n_batches; b++) {
                const dci_kv_batch *batch = layer->batches[b];
                const size_t before = batch->heads[head].before, end = before + batch->heads[head].n_groups;
                const size_t from = before > first ? before : first,
                             to = end < first + DCI_GPU_CHUNK ? end : first + DCI_GPU_CHUNK;
                if (from >= to)
                        continue;
                const int32_t *offsets = dci_kv_batch_offsets(kv->host, batch, head);
                memcpy(out + (from - first) * row_bytes,
                       dci_kv_batch_rows(kv->host, batch, head) + (from - before) * row_bytes, (to - from) * row_bytes);
                for (size_t g = from; g < to; g++)
                        spans[g - first] = (span){(int32_t)batch->first + offsets[g - before],
                                                  offsets[g - before + 1] - offsets[g - before]};
        }
}

static void put_ids(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, unsigned char *out)
{
        memset(out, 0, kv->planner.ids.head_bytes);
        for (size_t b = 0; b < layer->n_batches; b++) {
                const dci_kv_batch *batch = layer->batches[b];
                const size_t end = batch->first + batch->n, from = batch->first > first ? batch->first : first,
                             to = end < first + DCI_GPU_CHUNK ? end : first + DCI_GPU_CHUNK;
                if (from < to)
                        memcpy(out + (from - first) * sizeof(int32_t),
                               dci_kv_batch_ids(kv->host, batch, head) + (from - batch->first),
                               (to - from) * sizeof(int32_t));
        }
}

typedef void (*putting)(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, unsigned char *out);

/* The row's chunks from number `first` on, of one layer. */
static dci_status send_chunks(sending *s, const dci_gpu_kv_store *store, size_t row, const dci_kv_layer *layer,
                              size_t first, putting put)
{
        dci_gpu_kv *kv = s->kv;
        dci_status status = DCI_OK;
        for (size_t c = first; c < store->n_chunks[row] && status == DCI_OK; c++) {
                unsigned char *by;
                status = room_for(s, store->chunk_bytes, &by);
                if (status != DCI_OK)
                        break;
                for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                        put(kv, layer, h, c * DCI_GPU_CHUNK, by + h * store->head_bytes);
                unsigned char *to = dci_gpu_kv_store_at(store, kv->layers[layer->number].index,
                                                        dci_gpu_kv_store_numbers(store, row)[c]);
                status = kv->ops->copy(kv->gpu, kv->side, to, by, store->chunk_bytes);
        }
        return status;
}

/* Groups of batches that plans of `tokens` tokens rank: what begins behind the candidates is not among them (kv/summary_pages.c). */
static size_t ranked_end(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, size_t grouped, size_t tokens)
{
        const dci_kv_layer *layer = &sequence->layers[kv->planner.first_layer];
        const size_t kept = kv->shape.sink + kv->shape.window, n = tokens > kept ? tokens - kept : 0;
        size_t end = 0;
        for (size_t b = 0; b < layer->n_batches; b++) {
                const dci_kv_batch *batch = layer->batches[b];
                if (batch->first < n && batch->first + batch->n <= grouped)
                        end = batch->first + batch->n;
        }
        return end;
}

/* How many groups each head of a layer has within n candidates. */
static dci_status send_counts(sending *s, size_t row, const dci_kv_layer *layer, size_t n)
{
        dci_gpu_kv *kv = s->kv;
        const size_t n_heads = kv->shape.n_kv_heads;
        unsigned char *by;
        const dci_status status = room_for(s, n_heads * sizeof(int32_t), &by);
        if (status != DCI_OK)
                return status;
        for (size_t h = 0; h < n_heads; h++)
                ((int32_t *)(void *)by)[h] = (int32_t)groups_within(layer, h, n);
        return kv->ops->copy(kv->gpu, kv->side,
                             kv->planner.n_listed + kv->layers[layer->number].index * kv->n_lists + row * n_heads, by,
                             n_heads * sizeof(int32_t));
}

/* For plans of `tokens` tokens. */
static dci_status send_all_counts(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t tokens)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t end = ranked_end(kv, sequence, row->grouped, tokens);
        sending s = {kv, 0};
        dci_status status = DCI_OK;
        if (end == row->ranked)
                return DCI_OK;
        /* Steps before may still read what is there. */
        status = dci_gpu_kv_rows_wait(kv);
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++)
                if (!kv->layers[l].dense)
                        status = send_counts(&s, dci_gpu_kv_row_at(kv, row), &sequence->layers[l], end);
        if (status == DCI_OK)
                status = sent(&s);
        if (status == DCI_OK)
                row->ranked = end;
        return status;
}

/* --- the device's copy -------------------------------------------------------------------------------------------------------------- */

/* From candidate `first` on all is sent, which other rows may have been sharing. Of both tables or of none. */
static dci_status own_from(dci_gpu_kv *kv, size_t row, size_t first_group, size_t n_groups, size_t first, size_t n)
{
        dci_gpu_kv_store *groups = &kv->planner.summaries, *ids = &kv->planner.ids;
        const size_t g = first_group / DCI_GPU_CHUNK, i = first / DCI_GPU_CHUNK, n_g = dci_gpu_kv_chunks_of(n_groups),
                     n_i = dci_gpu_kv_chunks_of(n);
        dci_status status = dci_gpu_kv_store_ready(kv, groups, dci_gpu_kv_store_lacks(groups, row, g, n_g));
        if (status == DCI_OK)
                status = dci_gpu_kv_store_ready(kv, ids, dci_gpu_kv_store_lacks(ids, row, i, n_i));
        if (status == DCI_OK)
                status = dci_gpu_kv_store_own(kv, groups, kv->side, row, g, n_g);
        if (status == DCI_OK)
                status = dci_gpu_kv_store_own(kv, ids, kv->side, row, i, n_i);
        if (status == DCI_OK) {
                dci_gpu_kv_store_cut(groups, row, n_g);
                dci_gpu_kv_store_cut(ids, row, n_i);
        }
        return status;
}

/* What the host has formed since. */
static dci_status bring(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_at(kv, row), there = common_end(kv, sequence, row->grouped),
                     n = common_end(kv, sequence, DCI_KV_MAX_TOKENS);
        if (there == row->grouped && n == there)
                return DCI_OK;
        const range before = groups_of(kv, sequence, there), after = groups_of(kv, sequence, n);
        if (after.most > kv->planner.most_groups)
                return dci_fail(DCI_ERR_LIMIT, "sequence %lld has %zu groups of a head, but there is room for %zu",
                                (long long)row->id, after.most, kv->planner.most_groups);
        dci_status status = dci_gpu_kv_rows_wait(kv);
        if (status == DCI_OK)
                status = own_from(kv, at, before.least, after.most, there, n);
        if (status != DCI_OK)
                return status;
        sending s = {kv, 0};
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++) {
                const dci_kv_layer *layer = &sequence->layers[l];
                if (kv->layers[l].dense)
                        continue;
                status = send_chunks(&s, &kv->planner.summaries, at, layer, before.least / DCI_GPU_CHUNK, put_groups);
                if (status == DCI_OK)
                        status = send_chunks(&s, &kv->planner.ids, at, layer, there / DCI_GPU_CHUNK, put_ids);
        }
        if (status == DCI_OK)
                status = sent(&s);
        if (status == DCI_OK)
                row->grouped = row->forming = row->from = n;
        row->ranked = SIZE_MAX; /* the next step says how many of them */
        return dci_gpu_kv_did(kv, status);
}

/* The host forms what it may of rows that are there. */
static dci_status may_form(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_status status = dci_gpu_kv_rows_wait(kv);
        return status == DCI_OK ? dci_gpu_kv_check_good(kv, row) : status;
}

/* Chunks for all that may be formed now, early batches that are made anew among them: what cannot be had is refused before the host forms. */
static dci_status chunks_ready(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_at(kv, row), every = kv->shape.cluster_every, n = row->n;
        const size_t first = common_end(kv, sequence, row->grouped > every ? row->grouped - every : 0);
        const range before = groups_of(kv, sequence, first);
        size_t most = before.most + most_listed(kv, n - first);
        most = most < p->most_groups ? most : p->most_groups;
        dci_status status = dci_gpu_kv_store_ready(
                kv, &p->summaries,
                dci_gpu_kv_store_lacks(&p->summaries, at, before.least / DCI_GPU_CHUNK, dci_gpu_kv_chunks_of(most)));
        if (status == DCI_OK)
                status = dci_gpu_kv_store_ready(
                        kv, &p->ids,
                        dci_gpu_kv_store_lacks(&p->ids, at, first / DCI_GPU_CHUNK,
                                               dci_gpu_kv_chunks_of(dci_kv_may_group(kv->host, n))));
        return status;
}

static dci_status form_next(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_status status = DCI_OK;
        if (dci_kv_forms_next(kv->host, dci_gpu_kv_host_sequence(kv, row))) {
                status = may_form(kv, row);
                if (status == DCI_OK)
                        status = chunks_ready(kv, row);
                if (status == DCI_OK)
                        status = dci_gpu_kv_clusters_bring(kv, row);
                if (status == DCI_OK)
                        status = dci_kv_form_next(kv->host, row->id);
        }
        if (status == DCI_OK)
                status = bring(kv, row);
        row->from = row->forming = row->grouped;
        return status;
}

dci_status dci_gpu_kv_listed_reserve(dci_gpu_kv *kv)
{
        dci_status status = DCI_OK;
        for (size_t i = 0; i < kv->step.n && status == DCI_OK; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                status = form_next(kv, row);
                if (status == DCI_OK)
                        status = dci_gpu_kv_did(kv, send_all_counts(kv, row, row->n + kv->step.wanted[i]));
        }
        return status;
}

dci_status dci_gpu_kv_listed_settle(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_status status = DCI_OK;
        if (kv->bad[dci_gpu_kv_row_at(kv, row)] != 0)
                return DCI_OK;
        status = dci_gpu_kv_clusters_bring(kv, row);
        if (status == DCI_OK)
                status = dci_kv_form_prompt(kv->host, row->id);
        return status == DCI_OK ? bring(kv, row) : status;
}

dci_status dci_gpu_kv_listed_bring_up(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_status status = may_form(kv, row);
        if (status == DCI_OK)
                status = dci_gpu_kv_clusters_bring(kv, row);
        if (status == DCI_OK)
                status = dci_kv_maintain(kv->host, 1, &row->id);
        return status == DCI_OK ? bring(kv, row) : status;
}

dci_status dci_gpu_kv_listed_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, to);
        const size_t here = dci_gpu_kv_row_at(kv, from), there = dci_gpu_kv_row_at(kv, to);
        to->grouped = to->forming = common_end(kv, sequence, from->grouped);
        dci_gpu_kv_store_share(&p->summaries, here, there,
                               dci_gpu_kv_chunks_of(groups_of(kv, sequence, to->grouped).most));
        dci_gpu_kv_store_share(&p->ids, here, there, dci_gpu_kv_chunks_of(to->grouped));
        dci_status status = dci_gpu_kv_store_tell(kv, &p->summaries, kv->side, there, 0);
        if (status == DCI_OK)
                status = dci_gpu_kv_store_tell(kv, &p->ids, kv->side, there, 0);
        to->ranked = SIZE_MAX;
        return dci_gpu_kv_did(kv, status);
}

dci_status dci_gpu_kv_listed_cut(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_at(kv, row), left = common_end(kv, sequence, row->grouped);
        if (left == row->grouped)
                return DCI_OK;
        row->grouped = row->forming = left;
        dci_gpu_kv_store_cut(&p->summaries, at, dci_gpu_kv_chunks_of(groups_of(kv, sequence, left).most));
        dci_gpu_kv_store_cut(&p->ids, at, dci_gpu_kv_chunks_of(left));
        row->ranked = SIZE_MAX;
        return DCI_OK;
}
