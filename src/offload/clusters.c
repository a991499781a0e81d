/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Listed groups (clusters, segments) that a device chooses by. The host forms them, in batches (kv/clusters.c), before the step that finds them
 * due: once in many tokens; or it takes over a prompt's from the device (prompt_kmeans.c). Here is the device's copy, in two tables of chunks for each row:
 *
 *      summaries   of groups: rows, then where the members of each begin and how many there are
 *      ids         members, batch behind batch
 *
 * and how many groups each head has. Heads and layers have different numbers of groups, and layers whose queries turn at different tokens have
 * groups of different candidates; a row has as many chunks as the most of them need. A batch that is early gives way to a later one, so from the
 * first that changed on all of a layer is made anew, in whole chunks. Forks share chunks, partial ones too: who adds to one has a copy of the
 * host's, in all layers.
 */
#include "core/internal.h"

#include <string.h>

#include "offload/offload_internal.h"

typedef struct span {
        int32_t first, n;
} span;

bool dci_gpu_kv_has_clusters(const dci_kv_config *shape)
{
        return shape->group == DCI_KV_GROUP_CLUSTER || shape->group == DCI_KV_GROUP_SEGMENT;
}

/* --- sizes -------------------------------------------------------------------------------------------------------------------- */

/* Most groups of n candidates: of the prompt, of batches behind it and of clusters that are cut; early batches may be of a token each, until
 * they are as many as a whole one. */
static size_t max_listed(const dci_gpu_kv *kv, size_t n)
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

size_t dci_gpu_kv_clusters_init(dci_gpu_kv *kv)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t most = max_listed(kv, kv->config.max_tokens);
        p->spans_at = DCI_GPU_CHUNK * width_bytes(kv);
        dci_gpu_kv_store_init(kv, &p->summaries, p->spans_at + DCI_GPU_CHUNK * sizeof(span), most);
        dci_gpu_kv_store_init(kv, &p->ids, DCI_GPU_CHUNK * sizeof(int32_t), kv->config.max_tokens);
        return most;
}

/* --- what the host has ---------------------------------------------------------------------------------------------------------- */

/* Candidates of the batches that lie within the first n. */
static size_t end_within(const dci_kv_layer *layer, size_t n)
{
        const size_t b = dci_kv_clusters_within(layer, n);
        return b == 0 ? 0 : layer->batches[b - 1]->first + layer->batches[b - 1]->n;
}

static size_t groups_within(const dci_kv_layer *layer, size_t head, size_t n)
{
        const size_t b = dci_kv_clusters_within(layer, n);
        return b == 0 ? 0 : layer->batches[b - 1]->heads[head].before + layer->batches[b - 1]->heads[head].n_groups;
}

typedef struct range {
        size_t least, most;
} range;

static void to_f32(range *r, size_t n)
{
        r->least = n < r->least ? n : r->least;
        r->most = n > r->most ? n : r->most;
}

/* Groups that a layer's heads have within n candidates. */
static range groups_of(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t n)
{
        range r = {SIZE_MAX, 0};
        for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                to_f32(&r, groups_within(layer, h, n));
        return r;
}

/* What the device has of a layer. */
static dci_gpu_kv_cluster_state *listing_of(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        return &dci_gpu_kv_clusters_of(kv, row)[kv->layers[layer].index];
}

void dci_gpu_kv_clusters_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        for (size_t l = 0; l < kv->n_sparse; l++)
                dci_gpu_kv_clusters_of(kv, row)[l] = (dci_gpu_kv_cluster_state){0, 0};
}

/* A layer without groups of its own has the candidates that the lists it uses were chosen from. */
size_t dci_gpu_kv_clusters_grouped(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        return listing_of(kv, row, dci_kv_groups(kv->host, layer) ? layer : dci_kv_anchor_of(kv->host, layer))->grouped;
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
                const dci_kv_clusters *batch = layer->batches[b];
                const size_t before = batch->heads[head].before, end = before + batch->heads[head].n_groups;
                const size_t from = before > first ? before : first,
                             to = end < first + DCI_GPU_CHUNK ? end : first + DCI_GPU_CHUNK;
                if (from >= to)
                        continue;
                const int32_t *offsets = dci_kv_cluster_offsets(kv->host, batch, head);
                memcpy(out + (from - first) * row_bytes,
                       dci_kv_cluster_rows(kv->host, batch, head) + (from - before) * row_bytes,
                       (to - from) * row_bytes);
                for (size_t g = from; g < to; g++)
                        spans[g - first] = (span){(int32_t)batch->first + offsets[g - before],
                                                  offsets[g - before + 1] - offsets[g - before]};
        }
}

static void put_ids(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, unsigned char *out)
{
        memset(out, 0, kv->planner.ids.head_bytes);
        for (size_t b = 0; b < layer->n_batches; b++) {
                const dci_kv_clusters *batch = layer->batches[b];
                const size_t end = batch->first + batch->n, from = batch->first > first ? batch->first : first,
                             to = end < first + DCI_GPU_CHUNK ? end : first + DCI_GPU_CHUNK;
                if (from < to)
                        memcpy(out + (from - first) * sizeof(int32_t),
                               dci_kv_cluster_ids(kv->host, batch, head) + (from - batch->first),
                               (to - from) * sizeof(int32_t));
        }
}

typedef void (*putting)(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, unsigned char *out);

/* Chunks [first, end) of the row, of one layer. */
static dci_status send_chunks(sending *s, const dci_gpu_kv_store *store, size_t row, const dci_kv_layer *layer,
                              size_t first, size_t end, putting put)
{
        dci_gpu_kv *kv = s->kv;
        dci_status status = DCI_OK;
        for (size_t c = first; c < end && status == DCI_OK; c++) {
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
static size_t ranked_end(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t grouped, size_t tokens)
{
        const size_t kept = kv->shape.sink + kv->shape.window, n = tokens > kept ? tokens - kept : 0;
        size_t end = 0;
        for (size_t b = 0; b < layer->n_batches; b++) {
                const dci_kv_clusters *batch = layer->batches[b];
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
static dci_status send_all_counts(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t tokens)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        sending s = {kv, 0};
        dci_status status = DCI_OK;
        bool some = false;
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                dci_gpu_kv_cluster_state *there = listing_of(kv, row, l);
                const size_t end = ranked_end(kv, &sequence->layers[l], there->grouped, tokens);
                if (end == there->ranked)
                        continue;
                /* Steps before may still read what is there. */
                status = some ? DCI_OK : dci_gpu_kv_wait_rows(kv);
                if (status == DCI_OK)
                        status = send_counts(&s, dci_gpu_kv_row_at(kv, row), &sequence->layers[l], end);
                there->ranked = status == DCI_OK ? end : SIZE_MAX;
                some = true;
        }
        return status == DCI_OK && some ? sent(&s) : status;
}

/* --- the device's copy -------------------------------------------------------------------------------------------------------------- */

/* From candidate `first` on all is sent, which other rows may have been sharing. Of both tables or of none. */
static dci_status own_from(dci_gpu_kv *kv, size_t row, size_t first_group, size_t n_groups, size_t first, size_t n)
{
        dci_gpu_kv_store *groups = &kv->planner.summaries, *ids = &kv->planner.ids;
        const size_t g = first_group / DCI_GPU_CHUNK, i = first / DCI_GPU_CHUNK, n_g = dci_gpu_kv_chunks_of(n_groups),
                     n_i = dci_gpu_kv_chunks_of(n);
        dci_status status = dci_gpu_kv_store_ready(kv, groups, dci_gpu_kv_store_missing(groups, row, g, n_g));
        if (status == DCI_OK)
                status = dci_gpu_kv_store_ready(kv, ids, dci_gpu_kv_store_missing(ids, row, i, n_i));
        if (status == DCI_OK)
                status = dci_gpu_kv_store_make_exclusive(kv, groups, kv->side, row, g, n_g);
        if (status == DCI_OK)
                status = dci_gpu_kv_store_make_exclusive(kv, ids, kv->side, row, i, n_i);
        if (status == DCI_OK) {
                dci_gpu_kv_store_truncate(groups, row, n_g);
                dci_gpu_kv_store_truncate(ids, row, n_i);
        }
        return status;
}

/* Of a layer: candidates whose batches are there still, and those of all that there are. */
typedef struct change {
        size_t there, now;
} change;

static change change_of(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row, size_t layer)
{
        const dci_kv_layer *of = &sequence->layers[layer];
        return (change){end_within(of, listing_of(kv, row, layer)->grouped), end_within(of, DCI_KV_MAX_TOKENS)};
}

static bool changed(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const change *c)
{
        return c->there != listing_of(kv, row, layer)->grouped || c->now != c->there;
}

/* Asked for each row of every step: nearly always nothing has. */
static bool some_changed(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row)
{
        bool some = false;
        for (size_t l = 0; l < kv->shape.n_layers && !some; l++)
                if (dci_kv_groups(kv->host, l)) {
                        const change c = change_of(kv, sequence, row, l);
                        some = changed(kv, row, l, &c);
                }
        return some;
}

/* Groups and candidates of layers that changed from where on, and how many all have then. */
typedef struct changes {
        range groups, ids;
} changes;

static changes changes_of(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row)
{
        changes all = {{SIZE_MAX, 0}, {SIZE_MAX, 0}};
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                const change c = change_of(kv, sequence, row, l);
                const range now = groups_of(kv, &sequence->layers[l], c.now);
                all.groups.most = now.most > all.groups.most ? now.most : all.groups.most;
                all.ids.most = c.now > all.ids.most ? c.now : all.ids.most;
                if (!changed(kv, row, l, &c))
                        continue;
                const range before = groups_of(kv, &sequence->layers[l], c.there);
                all.groups.least = before.least < all.groups.least ? before.least : all.groups.least;
                all.ids.least = c.there < all.ids.least ? c.there : all.ids.least;
        }
        return all;
}

/* Whether some of the row's chunks from number `first` on are others', too: all layers lose what is in those. */
static bool shared(const dci_gpu_kv_store *s, size_t row, size_t first)
{
        return dci_gpu_kv_store_missing(s, row, first, s->n_chunks[row]) > 0;
}

/* From which chunks on all layers are sent; SIZE_MAX: only what changed. */
typedef struct lost {
        size_t groups, ids;
} lost;

static dci_status send_layer(sending *s, const dci_gpu_kv_row *row, const dci_kv_sequence *sequence, size_t layer,
                             const lost *all)
{
        const dci_gpu_kv *kv = s->kv;
        const dci_kv_layer *of = &sequence->layers[layer];
        const change c = change_of(kv, sequence, row, layer);
        const bool new = changed(kv, row, layer, &c);
        const size_t at = dci_gpu_kv_row_at(kv, row), groups = groups_of(kv, of, c.there).least / DCI_GPU_CHUNK,
                     ids = c.there / DCI_GPU_CHUNK;
        const size_t from_groups = new &&groups < all->groups ? groups : all->groups,
                     from_ids = new &&ids < all->ids ? ids : all->ids;
        dci_status status = send_chunks(s, &kv->planner.summaries, at, of, from_groups,
                                        dci_gpu_kv_chunks_of(groups_of(kv, of, c.now).most), put_groups);
        if (status == DCI_OK)
                status = send_chunks(s, &kv->planner.ids, at, of, from_ids, dci_gpu_kv_chunks_of(c.now), put_ids);
        return status;
}

static void note_sent(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row, size_t layer)
{
        const change c = change_of(kv, sequence, row, layer);
        if (changed(kv, row, layer, &c)) /* the next step says how many of them */
                *listing_of(kv, row, layer) = (dci_gpu_kv_cluster_state){c.now, SIZE_MAX};
}

/* What the host has formed since. */
static dci_status bring(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_at(kv, row);
        if (!some_changed(kv, sequence, row))
                return DCI_OK;
        const changes all = changes_of(kv, sequence, row);
        if (all.groups.most > p->max_groups)
                return dci_fail(DCI_ERR_LIMIT, "sequence %lld has %zu groups of a head, but there is room for %zu",
                                (long long)row->id, all.groups.most, p->max_groups);
        const size_t first_group = all.groups.least / DCI_GPU_CHUNK, first_id = all.ids.least / DCI_GPU_CHUNK;
        const lost gone = {shared(&p->summaries, at, first_group) ? first_group : SIZE_MAX,
                           shared(&p->ids, at, first_id) ? first_id : SIZE_MAX};
        dci_status status = dci_gpu_kv_wait_rows(kv);
        if (status == DCI_OK)
                status = own_from(kv, at, all.groups.least, all.groups.most, all.ids.least, all.ids.most);
        if (status != DCI_OK)
                return status;
        sending s = {kv, 0};
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++)
                if (dci_kv_groups(kv->host, l))
                        status = send_layer(&s, row, sequence, l, &gone);
        if (status == DCI_OK)
                status = sent(&s);
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++)
                if (dci_kv_groups(kv->host, l))
                        note_sent(kv, sequence, row, l);
        return dci_gpu_kv_check_device(kv, status);
}

/* The host forms what it may of rows that are there. */
static dci_status may_form(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_status status = dci_gpu_kv_wait_rows(kv);
        return status == DCI_OK ? dci_gpu_kv_check_good(kv, row) : status;
}

/* Chunks for all that may be formed now, early batches that are made anew among them: what cannot be had is refused before the host forms. */
static dci_status chunks_ready(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_at(kv, row), every = kv->shape.cluster_every, n = row->n;
        range groups = {SIZE_MAX, 0}, ids = {SIZE_MAX, 0};
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                const dci_kv_layer *layer = &sequence->layers[l];
                const size_t grouped = listing_of(kv, row, l)->grouped,
                             first = end_within(layer, grouped > every ? grouped - every : 0);
                const range before = groups_of(kv, layer, first);
                to_f32(&ids, first);
                to_f32(&groups, before.least);
                to_f32(&groups, before.most + max_listed(kv, n - first));
        }
        groups.most = groups.most < p->max_groups ? groups.most : p->max_groups;
        dci_status status =
                dci_gpu_kv_store_ready(kv, &p->summaries,
                                       dci_gpu_kv_store_missing(&p->summaries, at, groups.least / DCI_GPU_CHUNK,
                                                                dci_gpu_kv_chunks_of(groups.most)));
        if (status == DCI_OK)
                status = dci_gpu_kv_store_ready(
                        kv, &p->ids,
                        dci_gpu_kv_store_missing(&p->ids, at, ids.least / DCI_GPU_CHUNK,
                                                 dci_gpu_kv_chunks_of(dci_kv_may_group(kv->host, n))));
        return status;
}

/* Segments end where queries turned in steps that may still be under way. */
static dci_status know_turns(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t wanted)
{
        if (!dci_gpu_kv_reports_boundaries(kv) || (!dci_gpu_kv_boundaries_full(kv, row, wanted) &&
                                                   !dci_kv_may_build_next(kv->host, dci_gpu_kv_host_sequence(kv, row))))
                return DCI_OK;
        const dci_status status = dci_gpu_kv_wait_rows(kv);
        return status == DCI_OK ? dci_gpu_kv_boundaries_report(kv, row) : status;
}

static dci_status form_next(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t wanted)
{
        dci_status status = know_turns(kv, row, wanted);
        if (status == DCI_OK && dci_kv_builds_next(kv->host, dci_gpu_kv_host_sequence(kv, row))) {
                status = may_form(kv, row);
                if (status == DCI_OK)
                        status = chunks_ready(kv, row);
                if (status == DCI_OK)
                        status = dci_gpu_kv_prompt_kmeans_collect(kv, row);
                if (status == DCI_OK)
                        status = dci_kv_build_next(kv->host, row->id);
        }
        return status == DCI_OK ? bring(kv, row) : status;
}

dci_status dci_gpu_kv_clusters_reserve(dci_gpu_kv *kv)
{
        dci_status status = DCI_OK;
        for (size_t i = 0; i < kv->step.n && status == DCI_OK; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                status = form_next(kv, row, kv->step.wanted[i]);
                if (status == DCI_OK)
                        status = dci_gpu_kv_check_device(kv, send_all_counts(kv, row, row->n + kv->step.wanted[i]));
        }
        return status;
}

dci_status dci_gpu_kv_clusters_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_status status = dci_gpu_kv_boundaries_report(kv, row);
        if (status != DCI_OK || kv->bad[dci_gpu_kv_row_at(kv, row)] != 0)
                return status;
        status = dci_gpu_kv_prompt_kmeans_collect(kv, row);
        if (status == DCI_OK)
                status = dci_kv_build_prompt(kv->host, row->id);
        return status == DCI_OK ? bring(kv, row) : status;
}

dci_status dci_gpu_kv_clusters_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_status status = may_form(kv, row);
        if (status == DCI_OK && !row->stepping) /* else it is refused below */
                status = dci_gpu_kv_boundaries_report(kv, row);
        if (status == DCI_OK)
                status = dci_gpu_kv_prompt_kmeans_collect(kv, row);
        if (status == DCI_OK)
                status = dci_kv_maintain(kv->host, 1, &row->id);
        return status == DCI_OK ? bring(kv, row) : status;
}

/* What is left of a row's groups when its host's were cut; and the most chunks that a layer needs for that. */
static bool cut_groups(const dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to, size_t *out_groups,
                       size_t *out_ids)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, to);
        bool less = false;
        *out_groups = *out_ids = 0;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                const size_t there = listing_of(kv, from, l)->grouped, left = end_within(&sequence->layers[l], there),
                             groups = dci_gpu_kv_chunks_of(groups_of(kv, &sequence->layers[l], left).most),
                             ids = dci_gpu_kv_chunks_of(left);
                *out_groups = groups > *out_groups ? groups : *out_groups;
                *out_ids = ids > *out_ids ? ids : *out_ids;
                if (left < there || from != to)
                        *listing_of(kv, to, l) = (dci_gpu_kv_cluster_state){left, SIZE_MAX};
                less = less || left < there;
        }
        return less;
}

dci_status dci_gpu_kv_clusters_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t here = dci_gpu_kv_row_at(kv, from), there = dci_gpu_kv_row_at(kv, to);
        size_t groups, ids;
        cut_groups(kv, from, to, &groups, &ids);
        dci_gpu_kv_store_share(&p->summaries, here, there, groups);
        dci_gpu_kv_store_share(&p->ids, here, there, ids);
        dci_status status = dci_gpu_kv_store_upload(kv, &p->summaries, kv->side, there, 0);
        if (status == DCI_OK)
                status = dci_gpu_kv_store_upload(kv, &p->ids, kv->side, there, 0);
        return dci_gpu_kv_check_device(kv, status);
}

dci_status dci_gpu_kv_clusters_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t at = dci_gpu_kv_row_at(kv, row);
        size_t groups, ids;
        if (!cut_groups(kv, row, row, &groups, &ids))
                return DCI_OK;
        dci_gpu_kv_store_truncate(&p->summaries, at, groups);
        dci_gpu_kv_store_truncate(&p->ids, at, ids);
        return DCI_OK;
}
