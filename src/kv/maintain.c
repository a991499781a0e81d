/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Between steps: builds groups of tokens that left the window, and refits transforms where keys have drifted. All
 * memory comes first; then heads are worked on in parallel; then the result is published.
 */
#include "core/internal.h"

#include <string.h>

#include "core/arena.h"
#include "kv/chunk.h"
#include "kv/clustering.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/maintain.h"
#include "kv/memory.h"
#include "kv/stages/reorder.h"
#include "kv/summaries.h"
#include "kv/tree/tree.h"
#include "sketch/fit.h"

typedef struct due {
        dci_kv_layer *layer;
        size_t first;           /* the first candidate of the new group or batch; batches from it on give way */
        size_t n;               /* candidates afterwards */
        dci_kv_clusters *batch; /* listed groups: several may be due in a layer, in order */
        bool reorders;          /* in place of all of the layer's batches */
} due;

typedef struct maintaining {
        dci_kv *kv;
        due *dues;
        size_t n_dues;
} maintaining;

/* Where the next batch of a layer with n_grouped candidates begins: after the others, or where the last early ones
 * begin that have fewer than cluster_every tokens together. The first batch, the prompt's, stays. */
static size_t first_of(const dci_kv *kv, const dci_kv_layer *layer, size_t n_grouped)
{
        size_t b = layer->n_batches;
        if (kv->config.group != DCI_KV_GROUP_CLUSTER || n_grouped != layer->n_grouped)
                return n_grouped;
        while (b > 1 && n_grouped - layer->batches[b - 1]->first < kv->config.cluster_every)
                b--;
        return b < layer->n_batches ? layer->batches[b]->first : n_grouped;
}

/* Whether chunks begin with those of a prompt whose end built nothing. */
static bool prompt_first(const dci_kv *kv, const dci_kv_layer *layer)
{
        return dci_kv_builds_later(kv) && !kv->clustered && layer->n_grouped == 0 &&
               dci_kv_prompt_candidates(kv, layer->n_prompt) > 0;
}

/* Candidates after the next group or batch of a layer that has n_grouped; 0: none is due. A prompt whose groups were
 * not built when it ended comes first and alone, since transforms are fitted to it. Clusters are made of cluster_every
 * tokens at a time, so that they are the same however often this is called; early, of those that there are if recent
 * tokens would take more than half of the budget all the same. Early ones are too few to be good clusters (of one token
 * each, in the end), so they are clustered again together once cluster_every tokens are there. */
static size_t due_of(const dci_kv *kv, const dci_kv_layer *layer, size_t n_grouped, bool early)
{
        if (kv->config.frozen_prompt || !dci_kv_groups(kv, layer->number) || layer->prompt != DCI_KV_PROMPT_DONE)
                return 0;
        if (layer->prompt_due || prompt_first(kv, layer))
                return n_grouped == 0 ? dci_kv_prompt_candidates(kv, layer->n_prompt) : 0;
        if (kv->stages->group.next != NULL)
                return kv->stages->group.next(kv, layer, n_grouped, early);
        const size_t may = dci_kv_may_group(kv, layer->sequence->n), every = kv->config.cluster_every;
        const size_t formed = kv->former.n_formed(kv, layer), n = may > formed ? may : formed;
        if (n <= n_grouped)
                return 0;
        /* Pages after an order are batches of their own, of which a truncation keeps whole ones. */
        if (dci_kv_reorders(kv) && n_grouped > 0)
                return n_grouped + kv->config.page_tokens;
        if (!kv->clustered || dci_kv_reorders(kv))
                return n;
        const size_t first = first_of(kv, layer, n_grouped);
        if (n - first >= every)
                return first + every;
        const size_t now = layer->sequence->n;
        return early && dci_kv_crowded(&kv->config, now, now - kv->config.sink - n_grouped) ? n : 0;
}

/* Candidates of a new order that is made at once. */
static size_t reordered_now(const dci_kv *kv, const dci_kv_layer *layer, bool early)
{
        return early || kv->config.reorder_delay > 0 || !kv->former.host_plans ? 0 : dci_kv_reordered(kv, layer);
}

static size_t count_dues(const dci_kv *kv, const dci_kv_layer *layer, bool early)
{
        size_t n_dues = 0;
        if (reordered_now(kv, layer, early) > 0)
                return 1;
        for (size_t n = due_of(kv, layer, layer->n_grouped, early); n > 0; n = due_of(kv, layer, n, early))
                n_dues++;
        return n_dues;
}

/* Where a batch begins that ends with candidate n: a whole one takes the place of early ones. */
static size_t begin_of(const dci_kv *kv, const dci_kv_layer *layer, size_t n_grouped, size_t n)
{
        const size_t first = first_of(kv, layer, n_grouped);
        return n - first >= kv->config.cluster_every ? first : n_grouped;
}

static void form_task(void *arg, size_t task, size_t area)
{
        const maintaining *m = arg;
        dci_kv *kv = m->kv;
        const due *d = &m->dues[task / kv->config.n_kv_heads];
        const size_t head = task % kv->config.n_kv_heads;
        void *scratch = dci_kv_build_area(kv, area);
        dci_kv_head *h = &d->layer->heads[head];
        if (kv->clustered) {
                dci_kv_clusters_build(kv, d->layer, d->batch, head, area);
                return;
        }
        const bool begins = (dci_kv_builds_later(kv) && d->layer->n_grouped == 0) ||
                            (h->keys != NULL && h->keys->coder.dim == 0) ||
                            (h->values != NULL && h->values->coder.dim == 0);
        if (begins)
                dci_kv_rebuild(kv, d->layer, head, d->layer->n_grouped, d->n, scratch);
        else
                dci_kv_build(kv, d->layer, head, d->layer->n_grouped, d->n, scratch);
}

static dci_status take_batches(dci_kv *kv, const maintaining *m)
{
        for (size_t i = 0, more = 0; i < m->n_dues; i++) {
                due *d = &m->dues[i];
                const size_t first = d->first, n = d->n - first;
                more = i > 0 && d[-1].layer == d->layer ? more + 1 : 1;
                DCI_TRY(dci_kv_clusters_prepare(kv, d->layer, first, n, more, &d->batch));
                if (d->reorders)
                        d->batch->n_static = dci_kv_static_of(kv, d->layer, n);
                if (!d->reorders)
                        d->batch->early = due_of(kv, d->layer, first, false) == 0;
        }
        return DCI_OK;
}

static dci_status take_all(dci_kv *kv, const maintaining *m)
{
        DCI_TRY(dci_kv_build_ready(kv));
        if (kv->clustered)
                return take_batches(kv, m);
        for (size_t i = 0; i < m->n_dues; i++) {
                dci_kv_layer *layer = m->dues[i].layer;
                DCI_TRY(dci_kv_make_chunks_exclusive(kv, layer, layer->n_grouped, m->dues[i].n));
                for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                        DCI_TRY(dci_kv_alloc_transforms(kv, layer, h, false));
                for (size_t h = 0; h < kv->config.n_kv_heads && dci_kv_has_trees(kv); h++)
                        DCI_TRY(dci_kv_tree_own(kv, &layer->heads[h], m->dues[i].n));
        }
        return DCI_OK;
}

/* Makes what was built visible. */
static void publish(dci_kv *kv, const maintaining *m)
{
        for (size_t i = 0; i < m->n_dues; i++) {
                due *d = &m->dues[i];
                if (d->reorders)
                        d->layer->selection->renewed = d->layer->selection->n_pushed;
                if (d->batch != NULL) {
                        dci_kv_release_clusters(kv, d->layer, dci_kv_clusters_within(d->layer, d->first));
                        dci_kv_clusters_publish(kv, d->layer, d->batch);
                }
                d->batch = NULL;
                d->layer->n_grouped = d->n;
                d->layer->copied = false;
                d->layer->prompt_due = false;
        }
}

dci_status dci_kv_build_pending(dci_kv *kv, size_t n_sequences, dci_kv_sequence *const *sequences, bool early)
{
        maintaining m = {.kv = kv};
        size_t tokens = 0, most = 0, n_bytes;
        for (size_t i = 0; i < n_sequences; i++) {
                dci_kv_jobs_wait(kv, sequences[i]);
                for (size_t l = 0; l < kv->config.n_layers; l++)
                        most += count_dues(kv, &sequences[i]->layers[l], early);
        }
        if (most == 0)
                return DCI_OK;
        n_bytes = most * sizeof *m.dues;
        DCI_TRY(dci_kv_alloc(kv, n_bytes, (void **)&m.dues));
        for (size_t i = 0; i < n_sequences; i++)
                for (size_t l = 0; l < kv->config.n_layers; l++) {
                        dci_kv_layer *layer = &sequences[i]->layers[l];
                        size_t at = layer->n_grouped;
                        const size_t reordered = reordered_now(kv, layer, early);
                        if (reordered > 0) {
                                m.dues[m.n_dues++] = (due){layer, 0, reordered, NULL, true};
                                tokens += reordered * (1 + kv->config.ring * kv->group);
                                continue;
                        }
                        for (size_t n; (n = due_of(kv, layer, at, early)) > 0; at = n) {
                                m.dues[m.n_dues++] = (due){layer, begin_of(kv, layer, at, n), n, NULL, false};
                                tokens += n - m.dues[m.n_dues - 1].first;
                        }
                }
        dci_status status = take_all(kv, &m);
        if (status == DCI_OK)
                status = dci_kv_spread_build(kv, m.n_dues * kv->config.n_kv_heads,
                                             tokens * kv->config.n_kv_heads * 16 * (kv->dim_k + kv->dim_v), form_task,
                                             &m);
        if (status == DCI_OK)
                publish(kv, &m);
        for (size_t i = 0; i < m.n_dues; i++)
                dci_kv_clusters_release(kv, m.dues[i].batch);
        dci_kv_free(kv, m.dues, n_bytes);
        return status;
}

/* --- orders that workers make ------------------------------------------------------------------------------------- */

static void build_order(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t area)
{
        dci_kv_clusters_build(kv, layer, layer->reorder->batch, head, area);
}

/* The batches whose order is kept, and the queries, after the struct. */
static dci_status alloc_reorder(dci_kv *kv, size_t n_from, dci_kv_reorder **out)
{
        dci_kv_reorder made = {.build = build_order}, *of;
        const dci_arena_part parts[] = {
                {n_from * sizeof *made.from, &made.from},
                {kv->config.n_query_heads * kv->config.ring * kv->dim_k * sizeof(float), &made.queries}};
        const size_t head = dci_lines(sizeof *of);
        made.n_bytes = head + DCI_ARENA(parts, NULL);
        DCI_TRY(dci_kv_alloc(kv, made.n_bytes, (void **)&of));
        DCI_ARENA(parts, (unsigned char *)of + head);
        *of = made;
        *out = of;
        return DCI_OK;
}

/* Allocates an order of the first n candidates. Scratch has some room, since it is only replaced when no unit is in
 * progress, and orders grow; so has the list of old arrays, which grows while there is one. */
static dci_status prepare_order(dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        dci_kv_clusters *batch;
        dci_kv_reorder *of = NULL;
        const size_t pages = n > layer->n_grouped ? (n - layer->n_grouped) / kv->config.page_tokens : 0;
        DCI_TRY(dci_kv_grow(kv, (void **)&kv->retired, &kv->retired_capacity, kv->n_retired + 4, sizeof *kv->retired));
        DCI_TRY(dci_kv_build_ready(kv));
        if (kv->clustering.memory == NULL || kv->clustering_tokens < n)
                DCI_TRY(dci_kv_clustering_ready(kv, n + n / 8));
        DCI_TRY(dci_kv_clusters_prepare(kv, layer, 0, n, 1, &batch));
        const dci_status status = alloc_reorder(kv, layer->n_batches + pages + 1, &of);
        if (status != DCI_OK || of == NULL) {
                dci_kv_clusters_release(kv, batch);
                return status;
        }
        of->batch = batch;
        batch->n_static = dci_kv_static_of(kv, layer, n);
        layer->reorder = of;
        return DCI_OK;
}

/* Gives it what it is made from, and to the workers. Cannot fail. */
static void queue_order(dci_kv *kv, dci_kv_layer *layer)
{
        dci_kv_reorder *of = layer->reorder;
        layer->reorder = NULL; /* the queries are those of the ring */
        of->started = layer->selection->n_pushed;
        for (size_t b = 0; b < layer->n_batches && layer->batches[b]->first < of->batch->n; b++) {
                atomic_fetch_add(&layer->batches[b]->refs, 1);
                of->from[of->n_from++] = layer->batches[b];
        }
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                float *to = of->queries + h * of->n_queries * kv->dim_k;
                of->n_queries = dci_kv_ring_queries(kv, layer, h, to);
        }
        of->queued = true;
        layer->reorder = of;
        dci_kv_jobs_add_order(kv, layer);
}

dci_status dci_kv_start_order(dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        DCI_TRY(dci_kv_lock(kv));
        const dci_status status = prepare_order(kv, layer, n);
        if (status == DCI_OK)
                queue_order(kv, layer);
        dci_kv_unlock(kv);
        return status;
}

dci_status dci_kv_take_order(dci_kv *kv, dci_kv_layer *layer)
{
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_reorder_publish(kv, layer);
        dci_kv_unlock(kv);
        return DCI_OK;
}

static bool makes_orders(const dci_kv *kv)
{
        return kv->config.reorder_delay > 0 && kv->former.host_plans;
}

static dci_status prepare_orders(dci_kv *kv, size_t n_sequences, dci_kv_sequence *const *sequences)
{
        for (size_t i = 0; i < n_sequences && makes_orders(kv); i++) {
                dci_kv_jobs_wait(kv, sequences[i]);
                for (size_t l = 0; l < kv->config.n_layers; l++) {
                        const size_t n = dci_kv_reordered(kv, &sequences[i]->layers[l]);
                        if (n > 0)
                                DCI_TRY(prepare_order(kv, &sequences[i]->layers[l], n));
                }
        }
        return DCI_OK;
}

/* After the pages that are due have been built: takes orders into use that were begun so many plans ago, and has those
 * begun that were prepared. If something has failed, forgets these. */
static void go_on_with_orders(dci_kv *kv, dci_kv_sequence *sequence, bool failed)
{
        for (size_t l = 0; l < kv->config.n_layers && makes_orders(kv); l++) {
                dci_kv_layer *layer = &sequence->layers[l];
                if (layer->reorder == NULL)
                        continue;
                if (!layer->reorder->queued && failed)
                        dci_kv_reorder_drop(kv, layer);
                else if (!layer->reorder->queued)
                        queue_order(kv, layer);
                else if (!failed && layer->selection->n_pushed - layer->reorder->started >= kv->config.reorder_delay)
                        dci_kv_reorder_publish(kv, layer);
        }
}

/* --- refitted codes ----------------------------------------------------------------------------------------------- */

double dci_kv_drift(const dci_kv_head *head)
{
        if (head->keys == NULL || head->n_latest == 0 || !(head->keys->distortion > 0.0))
                return -1.0;
        return head->sum_latest / (double)head->n_latest / head->keys->distortion;
}

typedef struct refitting {
        dci_kv *kv;
        dci_kv_layer *layer;
        size_t n_heads;
        uint16_t heads[DCI_KV_MAX_HEADS];
} refitting;

static void refit_task(void *arg, size_t task, size_t area)
{
        const refitting *r = arg;
        dci_kv *kv = r->kv;
        const size_t head = r->heads[task];
        void *scratch = dci_kv_build_area(kv, area);
        dci_kv_reencode(kv, r->layer, head, r->layer->n_grouped, scratch);
        r->layer->heads[head].refits++;
}

/* Gives the head an empty transform of the same kind, with the old one's moments of queries. */
static dci_status renew_transform(dci_kv *kv, dci_kv_head *head)
{
        dci_kv_transform *transform, *old = head->keys;
        const bool learned = old->n_queries > 0;
        DCI_TRY(dci_kv_transform_alloc(kv, learned ? DCI_CODER_LEARNED : DCI_CODER_ROTATED, kv->dim_k, &transform));
        if (learned)
                memcpy(dci_kv_transform_moments(transform, kv->dim_k), dci_kv_transform_moments(old, kv->dim_k),
                       dci_moments_kept_bytes(kv->dim_k));
        transform->n_queries = old->n_queries;
        head->keys = transform;
        dci_kv_transform_release(kv, old);
        return DCI_OK;
}

/* Heads change transforms only once all memory is there: until then their codes are those of the old one. */
static dci_status refit_layer(dci_kv *kv, dci_kv_layer *layer)
{
        refitting r = {.kv = kv, .layer = layer};
        for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                if (dci_kv_drift(&layer->heads[h]) > kv->config.refit)
                        r.heads[r.n_heads++] = (uint16_t)h;
        if (r.n_heads == 0 || layer->n_grouped == 0)
                return DCI_OK;
        dci_kv_transform **spare = dci_alloc(kv->context, r.n_heads, sizeof(dci_kv_transform *));
        dci_status status =
                spare == NULL ? DCI_ERR_MEMORY : dci_kv_make_chunks_exclusive(kv, layer, 0, layer->n_grouped);
        size_t n = 0;
        for (; n < r.n_heads && status == DCI_OK; n++) {
                spare[n] = layer->heads[r.heads[n]].keys;
                atomic_fetch_add(&spare[n]->refs, 1);
                status = renew_transform(kv, &layer->heads[r.heads[n]]);
                if (status != DCI_OK) {
                        dci_kv_transform_release(kv, spare[n]);
                        break;
                }
        }
        for (size_t i = 0; i < n; i++) {
                dci_kv_head *head = &layer->heads[r.heads[i]];
                if (status == DCI_OK) {
                        dci_kv_transform_release(kv, spare[i]);
                } else {
                        dci_kv_transform_release(kv, head->keys);
                        head->keys = spare[i];
                }
        }
        dci_free(kv->context, spare, r.n_heads, sizeof(dci_kv_transform *));
        if (status != DCI_OK)
                return status;
        return dci_kv_spread_build(kv, r.n_heads, SIZE_MAX, refit_task, &r);
}

/* --- clusters for a device that plans ----------------------------------------------------------------------------- */

static bool some_due(const dci_kv *kv, const dci_kv_sequence *sequence, bool early)
{
        bool some = false;
        for (size_t l = 0; l < kv->config.n_layers && !some; l++)
                some = due_of(kv, &sequence->layers[l], sequence->layers[l].n_grouped, early) > 0;
        return some;
}

bool dci_kv_builds_next(const dci_kv *kv, const dci_kv_sequence *sequence)
{
        return some_due(kv, sequence, false) || (dci_kv_pending(kv, sequence, 0) && some_due(kv, sequence, true));
}

/* A turn makes a segment end earlier than it would, and none is final before its tokens are older than the rollback. */
bool dci_kv_may_build_next(const dci_kv *kv, const dci_kv_sequence *sequence)
{
        bool some = dci_kv_builds_next(kv, sequence) || dci_kv_pending(kv, sequence, 0);
        for (size_t l = 0; l < kv->config.n_layers && !some; l++) {
                const dci_kv_layer *layer = &sequence->layers[l];
                some = dci_kv_groups(kv, l) && layer->prompt == DCI_KV_PROMPT_DONE &&
                       dci_kv_may_group(kv, sequence->n) > layer->n_grouped &&
                       sequence->n > kv->config.sink + layer->n_grouped + kv->config.segment_buffer;
        }
        return some;
}

dci_status dci_kv_build_next(dci_kv *kv, int64_t sequence, bool prompt_only)
{
        dci_kv_sequence **found;
        dci_status status = DCI_OK;
        DCI_TRY(dci_kv_begin_call(kv, 1, &sequence, &found));
        if (dci_kv_some_prompt_due(kv, found[0]))
                status = dci_kv_build_pending(kv, 1, found, false);
        if (status == DCI_OK && !prompt_only)
                status = dci_kv_build_pending(kv, 1, found, false);
        if (status == DCI_OK && !prompt_only && dci_kv_pending(kv, found[0], 0))
                status = dci_kv_build_pending(kv, 1, found, true);
        dci_kv_clustering_shrink(kv);
        dci_kv_unlock(kv);
        return status;
}

/* --- dci_kv_maintain ---------------------------------------------------------------------------------------------- */

static dci_status maintain(dci_kv *kv, size_t n_sequences, dci_kv_sequence *const *found)
{
        dci_status status = prepare_orders(kv, n_sequences, found);
        if (status == DCI_OK)
                status = dci_kv_build_pending(kv, n_sequences, found, false);
        for (size_t i = 0; i < n_sequences; i++)
                go_on_with_orders(kv, found[i], status != DCI_OK);
        DCI_TRY(status);
        if (dci_kv_builds_later(kv)) /* what follows a prompt that came alone */
                DCI_TRY(dci_kv_build_pending(kv, n_sequences, found, false));
        for (size_t i = 0; i < n_sequences; i++)
                for (size_t l = 0; l < kv->config.n_layers; l++)
                        if (kv->config.refit > 0.0 && dci_kv_groups(kv, l) && !kv->clustered &&
                            !kv->config.frozen_prompt)
                                DCI_TRY(refit_layer(kv, &found[i]->layers[l]));
        return DCI_OK;
}

dci_status dci_kv_maintain(dci_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        dci_kv_sequence **found;
        dci_status status = dci_kv_begin_call(kv, sequences != NULL ? n_sequences : 0, sequences, &found);
        if (status != DCI_OK)
                return status;
        size_t n = 0;
        for (size_t i = 0; sequences == NULL && i < kv->n_sequences; i++)
                if (!kv->sequences[i]->open)
                        found[n++] = kv->sequences[i];
        if (sequences != NULL)
                n = n_sequences;
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                if (found[i]->open)
                        status = dci_fail(DCI_ERR_INVALID, "sequence %lld is in the middle of a step",
                                          (long long)found[i]->id);
        if (status == DCI_OK)
                status = maintain(kv, n, found);
        dci_kv_clustering_shrink(kv);
        dci_kv_unlock(kv);
        return status;
}
