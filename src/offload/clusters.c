/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The device's copy of clusters. */
#include "core/internal.h"

#include <string.h>

#include "kv/clusters.h"
#include "offload/boundaries.h"
#include "offload/clusters.h"
#include "offload/prompt_kmeans.h"

typedef struct span {
        int32_t first, n;
} span;

bool dci_gpu_kv_has_clusters(const dci_kv_config *shape)
{
        return shape->group == DCI_KV_GROUP_CLUSTER || shape->group == DCI_KV_GROUP_SEGMENT;
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* The most clusters of n candidates: of the prompt, of later batches and of clusters that are split. Early batches may
 * have one token each, until they are as many as a whole batch. */
static size_t max_clusters(const dci_gpu_kv *kv, size_t n)
{
        const dci_kv_config *c = &kv->shape;
        const size_t split = c->cluster_most > 0 ? n / c->cluster_most : 0,
                     most = n / c->cluster_tokens + n / c->cluster_every + split + c->cluster_every + 2;
        return most < n ? most : n;
}

size_t dci_gpu_kv_clusters_init(dci_gpu_kv *kv, size_t *out_likely)
{
        /* Segments of a token each are possible, but most of a long sequence is its prompt. */
        const size_t n = kv->config.max_tokens,
                     most = kv->shape.group == DCI_KV_GROUP_SEGMENT ? n : max_clusters(kv, n);
        *out_likely = max_clusters(kv, n);
        kv->clusters->spans_offset = DCI_GPU_CHUNK * dci_gpu_kv_group_bytes(kv);
        kv->clusters->values_offset = kv->clusters->spans_offset + DCI_GPU_CHUNK * sizeof(span);
        dci_gpu_kv_store_init(kv, kv->summaries,
                              kv->clusters->values_offset + DCI_GPU_CHUNK * dci_kv_mean_value_bytes(kv->host), most);
        dci_gpu_kv_store_init(kv, kv->ids, DCI_GPU_CHUNK * sizeof(int32_t), kv->config.max_tokens);
        return most;
}

/* --- what the host has -------------------------------------------------------------------------------------------- */

/* The number of candidates in batches that end within the first n. */
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

static void extend(range *r, size_t n)
{
        r->least = n < r->least ? n : r->least;
        r->most = n > r->most ? n : r->most;
}

/* Groups that a layer's heads have within n candidates. */
static range count_groups(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t n)
{
        range r = {SIZE_MAX, 0};
        for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                extend(&r, groups_within(layer, h, n));
        return r;
}

/* The part of a layer that the device has. */
static dci_gpu_kv_cluster_state *layer_state(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        const size_t first = dci_gpu_kv_row_number(kv, row) * kv->n_sparse;
        return &kv->clusters->states[first + kv->layers[layer].index];
}

void dci_gpu_kv_clusters_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const size_t n = kv->n_sparse;
        memset(kv->clusters->states + dci_gpu_kv_row_number(kv, row) * n, 0, n * sizeof *kv->clusters->states);
}

/* A layer without clusters of its own has the candidates that its lists were selected from. */
size_t dci_gpu_kv_clusters_grouped(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        return layer_state(kv, row, dci_kv_groups(kv->host, layer) ? layer : dci_kv_anchor_of(kv->host, layer))
                ->grouped;
}

/* --- through the locked buffer ------------------------------------------------------------------------------------ */

typedef struct sender {
        dci_gpu_kv *kv;
        size_t used;
} sender;

static dci_status sent(sender *s)
{
        s->used = 0;
        return s->kv->ops->stream_wait(s->kv->gpu, s->kv->side);
}

static dci_status room_for(sender *s, size_t n_bytes, unsigned char **out)
{
        DCI_TRY(s->used + n_bytes > s->kv->planner.upload_bytes ? sent(s) : DCI_OK);
        *out = s->kv->planner.upload + s->used;
        s->used += dci_lines(n_bytes);
        return DCI_OK;
}

/* Writes clusters [first, first + DCI_GPU_CHUNK) of one head. */
static void put_groups(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, unsigned char *out)
{
        const size_t row_bytes = dci_gpu_kv_group_bytes(kv), mean_bytes = dci_kv_mean_value_bytes(kv->host);
        span *spans = (span *)(void *)(out + kv->clusters->spans_offset);
        memset(out, 0, kv->summaries->head_bytes);
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
                if (mean_bytes > 0)
                        memcpy(out + kv->clusters->values_offset + (from - first) * mean_bytes,
                               dci_kv_cluster_means(kv->host, batch, head, true) + (from - before) * mean_bytes,
                               (to - from) * mean_bytes);
                for (size_t g = from; g < to; g++)
                        spans[g - first] = (span){(int32_t)batch->first + offsets[g - before],
                                                  offsets[g - before + 1] - offsets[g - before]};
        }
}

static void put_ids(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, unsigned char *out)
{
        memset(out, 0, kv->ids->head_bytes);
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

typedef void (*put_fn)(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, unsigned char *out);

/* Queues the copies of a layer's chunks [first, end). */
static dci_status send_chunks(sender *s, const dci_gpu_kv_store *store, size_t row, const dci_kv_layer *layer,
                              size_t first, size_t end, put_fn put)
{
        dci_gpu_kv *kv = s->kv;
        for (size_t c = first; c < end; c++) {
                unsigned char *by;
                DCI_TRY(room_for(s, store->chunk_bytes, &by));
                for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                        put(kv, layer, h, c * DCI_GPU_CHUNK, by + h * store->head_bytes);
                unsigned char *to = dci_gpu_kv_store_at(store, kv->layers[layer->number].index,
                                                        dci_gpu_kv_store_numbers(store, row)[c]);
                DCI_TRY(kv->ops->copy(kv->gpu, kv->side, to, by, store->chunk_bytes));
        }
        return DCI_OK;
}

/* The end of the batches that plans of `tokens` tokens rank: a batch that begins after the candidates is not one of
 * them (kv/stages/summary_pages.c). */
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

/* Queues the number of clusters that each head of a layer has within n candidates. */
static dci_status send_counts(sender *s, size_t row, const dci_kv_layer *layer, size_t n)
{
        dci_gpu_kv *kv = s->kv;
        const size_t n_heads = kv->shape.n_kv_heads;
        unsigned char *by;
        DCI_TRY(room_for(s, n_heads * sizeof(int32_t), &by));
        for (size_t h = 0; h < n_heads; h++)
                ((int32_t *)(void *)by)[h] = (int32_t)groups_within(layer, h, n);
        return kv->ops->copy(kv->gpu, kv->side,
                             kv->clusters->n_clusters + kv->layers[layer->number].index * kv->n_lanes + row * n_heads,
                             by, n_heads * sizeof(int32_t));
}

/* Uploads the numbers of clusters for plans of `tokens` tokens. */
static dci_status send_all_counts(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t tokens)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        sender s = {kv, 0};
        bool some = false;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                dci_gpu_kv_cluster_state *there = layer_state(kv, row, l);
                const size_t end = ranked_end(kv, &sequence->layers[l], there->grouped, tokens);
                if (end == there->ranked)
                        continue;
                /* Earlier steps may still read the old numbers. */
                if (!some)
                        DCI_TRY(dci_gpu_kv_wait_rows(kv));
                some = true;
                DCI_TRY(send_counts(&s, dci_gpu_kv_row_number(kv, row), &sequence->layers[l], end));
                there->ranked = end;
        }
        return some ? sent(&s) : DCI_OK;
}

/* --- the device's copy -------------------------------------------------------------------------------------------- */

/* Makes the chunks from candidate `first` on exclusive, since they are uploaded again: of both tables or of none. */
static dci_status make_exclusive(dci_gpu_kv *kv, size_t row, size_t first_group, size_t n_groups, size_t first,
                                 size_t n)
{
        dci_gpu_kv_store *groups = kv->summaries, *ids = kv->ids;
        const size_t g = first_group / DCI_GPU_CHUNK, i = first / DCI_GPU_CHUNK,
                     n_g = dci_gpu_kv_count_chunks(n_groups), n_i = dci_gpu_kv_count_chunks(n);
        DCI_TRY(dci_gpu_kv_store_ready(kv, groups, dci_gpu_kv_store_missing(groups, row, g, n_g)));
        DCI_TRY(dci_gpu_kv_store_ready(kv, ids, dci_gpu_kv_store_missing(ids, row, i, n_i)));
        DCI_TRY(dci_gpu_kv_store_make_exclusive(kv, groups, kv->side, row, g, n_g));
        DCI_TRY(dci_gpu_kv_store_make_exclusive(kv, ids, kv->side, row, i, n_i));
        dci_gpu_kv_store_truncate(groups, row, n_g);
        dci_gpu_kv_store_truncate(ids, row, n_i);
        return DCI_OK;
}

/* Of a layer: candidates whose batches still exist, and candidates of all batches. */
typedef struct change {
        size_t there, now;
} change;

static change layer_change(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row,
                           size_t layer)
{
        const dci_kv_layer *of = &sequence->layers[layer];
        return (change){end_within(of, layer_state(kv, row, layer)->grouped), end_within(of, DCI_KV_MAX_TOKENS)};
}

static bool changed(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const change *c)
{
        return c->there != layer_state(kv, row, layer)->grouped || c->now != c->there;
}

/* This is asked for each row of every step; nearly always nothing has changed. */
static bool some_changed(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row)
{
        bool some = false;
        for (size_t l = 0; l < kv->shape.n_layers && !some; l++)
                if (dci_kv_groups(kv->host, l)) {
                        const change c = layer_change(kv, sequence, row, l);
                        some = changed(kv, row, l, &c);
                }
        return some;
}

/* The first cluster and candidate that changed in some layer, and the most that any layer has now. */
typedef struct changes {
        range groups, ids;
} changes;

static changes all_changes(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row)
{
        changes all = {{SIZE_MAX, 0}, {SIZE_MAX, 0}};
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                const change c = layer_change(kv, sequence, row, l);
                const range now = count_groups(kv, &sequence->layers[l], c.now);
                all.groups.most = now.most > all.groups.most ? now.most : all.groups.most;
                all.ids.most = c.now > all.ids.most ? c.now : all.ids.most;
                if (!changed(kv, row, l, &c))
                        continue;
                const range before = count_groups(kv, &sequence->layers[l], c.there);
                all.groups.least = before.least < all.groups.least ? before.least : all.groups.least;
                all.ids.least = c.there < all.ids.least ? c.there : all.ids.least;
        }
        return all;
}

/* Whether other rows share some of the chunks from number `first` on: making them exclusive loses the contents of all
 * layers. */
static bool shared(const dci_gpu_kv_store *s, size_t row, size_t first)
{
        return dci_gpu_kv_store_missing(s, row, first, s->n_chunks[row]) > 0;
}

/* The first chunks that all layers upload again; SIZE_MAX: layers upload what changed. */
typedef struct lost {
        size_t groups, ids;
} lost;

static dci_status send_layer(sender *s, const dci_gpu_kv_row *row, const dci_kv_sequence *sequence, size_t layer,
                             const lost *all)
{
        const dci_gpu_kv *kv = s->kv;
        const dci_kv_layer *of = &sequence->layers[layer];
        const change c = layer_change(kv, sequence, row, layer);
        const bool new = changed(kv, row, layer, &c);
        const size_t at = dci_gpu_kv_row_number(kv, row), groups = count_groups(kv, of, c.there).least / DCI_GPU_CHUNK,
                     ids = c.there / DCI_GPU_CHUNK;
        const size_t from_groups = new &&groups < all->groups ? groups : all->groups,
                     from_ids = new &&ids < all->ids ? ids : all->ids;
        DCI_TRY(send_chunks(s, kv->summaries, at, of, from_groups,
                            dci_gpu_kv_count_chunks(count_groups(kv, of, c.now).most), put_groups));
        return send_chunks(s, kv->ids, at, of, from_ids, dci_gpu_kv_count_chunks(c.now), put_ids);
}

static void note_sent(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row, size_t layer)
{
        const change c = layer_change(kv, sequence, row, layer);
        if (changed(kv, row, layer, &c)) /* the next step uploads the numbers */
                *layer_state(kv, row, layer) = (dci_gpu_kv_cluster_state){c.now, SIZE_MAX};
}

/* Uploads what the host has built since the last upload. */
static dci_status upload(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_number(kv, row);
        if (!some_changed(kv, sequence, row))
                return DCI_OK;
        const changes all = all_changes(kv, sequence, row);
        if (all.groups.most > p->max_groups)
                return dci_fail(DCI_ERR_LIMIT, "sequence %lld has %zu groups of a head, but there is room for %zu",
                                (long long)row->id, all.groups.most, p->max_groups);
        const size_t first_group = all.groups.least / DCI_GPU_CHUNK, first_id = all.ids.least / DCI_GPU_CHUNK;
        const lost gone = {shared(kv->summaries, at, first_group) ? first_group : SIZE_MAX,
                           shared(kv->ids, at, first_id) ? first_id : SIZE_MAX};
        DCI_TRY(dci_gpu_kv_wait_rows(kv));
        DCI_TRY(make_exclusive(kv, at, all.groups.least, all.groups.most, all.ids.least, all.ids.most));
        sender s = {kv, 0};
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l))
                        DCI_GPU_KV_TRY(kv, send_layer(&s, row, sequence, l, &gone));
        DCI_GPU_KV_TRY(kv, sent(&s));
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l))
                        note_sent(kv, sequence, row, l);
        return DCI_OK;
}

/* Of a layer, what may be built now: the first candidate of that, and clusters before it and with it. Early batches of
 * clusters are built again. Segments are those of the boundaries that were reported. */
static size_t may_build(const dci_gpu_kv *kv, const dci_kv_layer *layer, size_t grouped, size_t n, range *out)
{
        const dci_kv_grouping *group = &kv->host->stages->group;
        const bool segments = kv->shape.group == DCI_KV_GROUP_SEGMENT;
        const size_t every = segments ? 0 : kv->shape.cluster_every,
                     first = end_within(layer, grouped > every ? grouped - every : 0),
                     end = dci_kv_may_group(kv->host, n),
                     n_prompt = dci_kv_prompt_candidates(kv->host, layer->n_prompt),
                     later = first < n_prompt ? n_prompt : first;
        *out = count_groups(kv, layer, first);
        if (!segments)
                out->most += max_clusters(kv, n - first);
        else if (first < n_prompt)
                out->most += group->most(kv->host, n_prompt - first);
        if (segments && later < end)
                out->most += group->room(kv->host, layer, later, end - later);
        return first;
}

/* Allocates chunks for all that may be built now, so that a lack of memory is refused before the host builds. */
static dci_status chunks_ready(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_number(kv, row);
        range groups = {SIZE_MAX, 0}, ids = {SIZE_MAX, 0};
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                range of_layer;
                if (!dci_kv_groups(kv->host, l))
                        continue;
                extend(&ids, may_build(kv, &sequence->layers[l], layer_state(kv, row, l)->grouped, row->n, &of_layer));
                extend(&groups, of_layer.least);
                extend(&groups, of_layer.most);
        }
        groups.most = groups.most < p->max_groups ? groups.most : p->max_groups;
        const size_t first_group = groups.least / DCI_GPU_CHUNK, first_id = ids.least / DCI_GPU_CHUNK,
                     n_groups = dci_gpu_kv_count_chunks(groups.most),
                     n_ids = dci_gpu_kv_count_chunks(dci_kv_may_group(kv->host, row->n));
        DCI_TRY(dci_gpu_kv_store_ready(kv, kv->summaries,
                                       dci_gpu_kv_store_missing(kv->summaries, at, first_group, n_groups)));
        return dci_gpu_kv_store_ready(kv, kv->ids, dci_gpu_kv_store_missing(kv->ids, at, first_id, n_ids));
}

/* Reports boundaries of steps that may still be running, since segments end there. */
static dci_status report_boundaries(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t wanted)
{
        if (!dci_gpu_kv_reports_boundaries(kv) || (!dci_gpu_kv_boundaries_full(kv, row, wanted) &&
                                                   !dci_kv_may_build_next(kv->host, dci_gpu_kv_host_sequence(kv, row))))
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_wait_rows(kv));
        return dci_gpu_kv_boundaries_report(kv, row);
}

static dci_status build_next(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t wanted)
{
        DCI_TRY(report_boundaries(kv, row, wanted));
        if (dci_kv_builds_next(kv->host, dci_gpu_kv_host_sequence(kv, row))) {
                DCI_TRY(dci_gpu_kv_wait_good(kv, row));
                DCI_TRY(chunks_ready(kv, row));
                DCI_TRY(dci_gpu_kv_prompt_kmeans_collect(kv, row));
                DCI_TRY(dci_kv_build_next(kv->host, row->id, false));
        }
        return upload(kv, row);
}

dci_status dci_gpu_kv_clusters_reserve(dci_gpu_kv *kv)
{
        for (size_t i = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                DCI_TRY(build_next(kv, row, kv->step.wanted[i]));
                DCI_GPU_KV_TRY(kv, send_all_counts(kv, row, row->n + kv->step.wanted[i]));
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_clusters_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        DCI_TRY(dci_gpu_kv_boundaries_report(kv, row));
        if (dci_gpu_kv_bad(kv, row) != 0)
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_prompt_kmeans_collect(kv, row));
        DCI_TRY(dci_kv_build_next(kv->host, row->id, true));
        return upload(kv, row);
}

dci_status dci_gpu_kv_clusters_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        DCI_TRY(dci_gpu_kv_wait_good(kv, row));
        if (!row->stepping) /* else maintaining it is refused below */
                DCI_TRY(dci_gpu_kv_boundaries_report(kv, row));
        DCI_TRY(dci_gpu_kv_prompt_kmeans_collect(kv, row));
        DCI_TRY(dci_kv_maintain(kv->host, 1, &row->id));
        return upload(kv, row);
}

/* Truncates the state of each layer to what the host kept; returns the most chunks that a layer needs for that. */
static bool truncate_groups(const dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to,
                            size_t *out_groups, size_t *out_ids)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, to);
        bool less = false;
        *out_groups = *out_ids = 0;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                const size_t there = layer_state(kv, from, l)->grouped, left = end_within(&sequence->layers[l], there),
                             groups = dci_gpu_kv_count_chunks(count_groups(kv, &sequence->layers[l], left).most),
                             ids = dci_gpu_kv_count_chunks(left);
                *out_groups = groups > *out_groups ? groups : *out_groups;
                *out_ids = ids > *out_ids ? ids : *out_ids;
                if (left < there || from != to)
                        *layer_state(kv, to, l) = (dci_gpu_kv_cluster_state){left, SIZE_MAX};
                less = less || left < there;
        }
        return less;
}

dci_status dci_gpu_kv_clusters_restore(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return upload(kv, row);
}

dci_status dci_gpu_kv_clusters_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        const size_t here = dci_gpu_kv_row_number(kv, from), there = dci_gpu_kv_row_number(kv, to);
        size_t groups, ids;
        truncate_groups(kv, from, to, &groups, &ids);
        dci_gpu_kv_store_share(kv->summaries, here, there, groups);
        dci_gpu_kv_store_share(kv->ids, here, there, ids);
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_store_upload(kv, kv->summaries, kv->side, there, 0));
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_store_upload(kv, kv->ids, kv->side, there, 0));
}

dci_status dci_gpu_kv_clusters_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const size_t at = dci_gpu_kv_row_number(kv, row);
        size_t groups, ids;
        if (!truncate_groups(kv, row, row, &groups, &ids))
                return DCI_OK;
        dci_gpu_kv_store_truncate(kv->summaries, at, groups);
        dci_gpu_kv_store_truncate(kv->ids, at, ids);
        return DCI_OK;
}
