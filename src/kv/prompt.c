/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The end of a prompt: workers build its groups while the caller goes on. All memory is allocated by the call, so the
 * work itself cannot fail. */
#include "core/internal.h"

#include <string.h>

#include "kv/chunk.h"
#include "kv/clustering.h"
#include "kv/contiguous.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/memory.h"
#include "kv/prompt.h"
#include "kv/queries.h"
#include "kv/stages/reorder.h"
#include "kv/stages/select.h"
#include "kv/stages/summary_votes.h"
#include "kv/summaries.h"
#include "kv/tree/tree.h"

/* --- the work ----------------------------------------------------------------------------------------------------- */

static void build(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t area)
{
        if (!kv->clustered)
                dci_kv_rebuild(kv, layer, head, 0, dci_kv_prompt_candidates(kv, layer->n_prompt),
                               dci_kv_build_area(kv, area));
        else if (layer->n_batches > 0)
                dci_kv_clusters_build(kv, layer, layer->batches[0], head, area);
        dci_kv_copy_head(kv, layer, head);
}

/* Under jobs_lock. */
static void built(const dci_kv *kv, dci_kv_layer *layer)
{
        layer->n_grouped = dci_kv_groups(kv, layer->number) ? dci_kv_prompt_candidates(kv, layer->n_prompt) : 0;
}

/* Forgets all of a layer's work: what is half made must not be used, nor what is made be counted twice. */
static void restart(const dci_kv *kv, dci_kv_layer *layer)
{
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                dci_kv_head *head = &layer->heads[h];
                dci_kv_transform_empty(head->keys, kv->dim_k);
                dci_kv_transform_empty(head->values, kv->dim_v);
                if (head->tree != NULL)
                        dci_kv_tree_clear(head->tree);
                head->n_fixed = 0;
        }
}

static size_t n_formed(const dci_kv *kv, const dci_kv_layer *layer)
{
        (void)kv;
        return layer->n_grouped;
}

const dci_kv_former dci_kv_host_former = {
        .host_plans = true, .build = build, .built = built, .restart = restart, .n_formed = n_formed};

/* --- dci_kv_end_prompt -------------------------------------------------------------------------------------------- */

static dci_status check_prompt(const dci_kv *kv, size_t layer, const dci_kv_sequence *sequence, size_t n_positions,
                               const void *queries, size_t ld)
{
        if (layer >= kv->config.n_layers)
                return dci_fail(DCI_ERR_INVALID, "layer is %zu, expected less than %zu", layer, kv->config.n_layers);
        const dci_kv_layer *at = &sequence->layers[layer];
        if (at->prompt != DCI_KV_PROMPT_OPEN)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld, layer %zu: the prompt has ended already",
                                (long long)sequence->id, layer);
        if (!sequence->open)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld: no step is open, reserve its tokens first",
                                (long long)sequence->id);
        if (at->n != sequence->n + sequence->n_reserved)
                return dci_fail(DCI_ERR_INVALID,
                                "sequence %lld: layer %zu has %zu of the %zu tokens that were reserved",
                                (long long)sequence->id, layer, at->n - sequence->n, sequence->n_reserved);
        if (n_positions > at->n)
                return dci_fail(DCI_ERR_INVALID, "queries of %zu positions, but the prompt has %zu tokens", n_positions,
                                at->n);
        if (n_positions > 0 && queries == NULL)
                return dci_fail(DCI_ERR_INVALID, "queries is NULL");
        if (n_positions > 0 && ld < kv->dim_k)
                return dci_fail(DCI_ERR_INVALID, "the queries' stride is %zu, expected at least %zu", ld, kv->dim_k);
        /* No more positions than there are tokens, so that the product with the heads is small. */
        DCI_TRY(n_positions == 0 ? DCI_OK
                                 : dci_kv_check_span("queries", n_positions * kv->config.n_query_heads, queries, ld,
                                                     dci_dtype_size(kv->config.query_dtype)));
        const bool observes = kv->config.select == DCI_KV_SELECT_OBSERVED ||
                              (dci_kv_reorders(kv) && kv->config.static_share != 0.0 && dci_kv_groups(kv, layer));
        if (observes && n_positions == 0 &&
            dci_kv_prompt_candidates(kv, at->n) > dci_kv_list_room(&kv->config, at->n) &&
            kv->layer_modes[layer] == DCI_KV_LAYER_SPARSE)
                return dci_fail(DCI_ERR_INVALID,
                                "sequence %lld, layer %zu: tokens are chosen by observed queries, but there are none",
                                (long long)sequence->id, layer);
        return DCI_OK;
}

static dci_status check_observed(const dci_kv *kv, size_t n_positions, const void *queries, size_t ld)
{
        const size_t n_heads = kv->config.n_query_heads, n = n_positions * n_heads;
        const size_t bad = dci_kv_bad_query(kv, n, queries, ld);
        if (bad < n)
                return dci_fail(DCI_ERR_NUMBER,
                                "the query of position %zu and head %zu has NaN, infinity, or is too large",
                                bad / n_heads, bad % n_heads);
        return DCI_OK;
}

/* Queries as floats times the scale, by kv head. */
static dci_status copy_observed(dci_kv *kv, dci_kv_layer *layer, size_t n_positions, const void *queries, size_t ld)
{
        const size_t dim = kv->dim_k, n_heads = kv->config.n_query_heads, per = n_positions * kv->share;
        const size_t es = dci_dtype_size(kv->config.query_dtype);
        size_t n_bytes;
        if (!dci_mul(n_positions * n_heads, dim * sizeof(float), &n_bytes))
                return dci_fail(DCI_ERR_LIMIT, "queries of %zu positions are too many", n_positions);
        /* After the queries: scratch for choosing by them, for each head. */
        n_bytes = dci_lines(n_bytes) +
                  kv->config.n_kv_heads * dci_kv_observed_bytes(kv, dci_kv_prompt_candidates(kv, layer->n_prompt));
        DCI_TRY(dci_kv_alloc(kv, n_bytes, (void **)&layer->observed));
        layer->observed_bytes = n_bytes;
        layer->n_observed = per;
        for (size_t i = 0; i < n_positions * n_heads; i++) {
                const size_t position = i / n_heads, head = i % n_heads;
                const unsigned char *row = (const unsigned char *)queries + i * ld * es;
                float *to =
                        layer->observed + ((head / kv->share) * per + position * kv->share + head % kv->share) * dim;
                kv->context->kernels->to_f32[kv->config.query_dtype - 1](row, dim, to);
                for (size_t j = 0; j < dim; j++)
                        to[j] *= kv->scale;
        }
        return DCI_OK;
}

void dci_kv_cancel_prompt(dci_kv *kv, dci_kv_layer *layer)
{
        dci_kv_vote_truncate(kv, layer, 0);
        dci_kv_release_chunks(kv, layer, 0);
        dci_kv_release_clusters(kv, layer, 0);
        dci_kv_free(kv, layer->observed, layer->observed_bytes);
        layer->observed = NULL;
        layer->n_observed = layer->observed_bytes = layer->n_grouped = layer->n_prompt = 0;
        layer->prompt = DCI_KV_PROMPT_OPEN;
        layer->prompt_now = layer->prompt_due = layer->copied = false;
        layer->n_missing = 0;
        layer->n_static = 0;
        if (layer->selection != NULL) {
                layer->selection->listed = false;
                layer->selection->n_pushed = layer->selection->renewed = 0;
                layer->selection->early = dci_kv_reorder_early(kv, layer->number);
        }
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                dci_kv_head *head = &layer->heads[h];
                dci_kv_transform_release(kv, head->keys);
                dci_kv_transform_release(kv, head->values);
                dci_kv_free(kv, head->fixed, head->fixed_capacity * sizeof *head->fixed);
                dci_kv_tree_release(kv, head->tree);
                *head = (dci_kv_head){.n_plans = head->n_plans,
                                      .n_decisions = head->n_decisions,
                                      .n_corrections = head->n_corrections,
                                      .vote_counts = head->vote_counts};
        }
}

/* The prompt's batch, still without groups. */
static dci_status take_batch(dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        dci_kv_clusters *batch;
        if (n == 0)
                return DCI_OK;
        DCI_TRY(dci_kv_clusters_prepare(kv, layer, 0, n, 1, &batch));
        if (dci_kv_reorders(kv))
                batch->n_static = dci_kv_static_of(kv, layer, n);
        dci_kv_clusters_publish(kv, layer, batch);
        return DCI_OK;
}

/* Allocates all that the work needs. */
static dci_status take_all(dci_kv *kv, dci_kv_layer *layer, size_t n_positions, const void *queries, size_t ld)
{
        const size_t n = dci_kv_prompt_candidates(kv, layer->n_prompt);
        const bool once = kv->config.select == DCI_KV_SELECT_OBSERVED, rings = dci_kv_reorders(kv);
        const bool learned = kv->config.summary == DCI_KV_SUMMARY_LEARNED && n_positions > 0;
        DCI_TRY(dci_kv_build_ready(kv));
        if (once || learned || rings)
                DCI_TRY(check_observed(kv, n_positions, queries, ld));
        if (n_positions > 0 && (once || learned))
                DCI_TRY(copy_observed(kv, layer, n_positions, queries, ld));
        if (rings) {
                dci_kv_ring_observe(kv, layer, n_positions, queries, ld);
                DCI_TRY(dci_kv_static_online(kv, layer, n));
        }
        if (dci_kv_groups(kv, layer->number))
                DCI_TRY(kv->clustered ? take_batch(kv, layer, n) : dci_kv_make_chunks_exclusive(kv, layer, 0, n));
        const size_t room = dci_kv_max_room(kv);
        for (size_t h = 0; h < kv->config.n_kv_heads && n > 0; h++) {
                DCI_TRY(dci_kv_alloc_transforms(kv, layer, h, learned));
                if (dci_kv_has_trees(kv))
                        DCI_TRY(dci_kv_tree_own(kv, &layer->heads[h], n));
                if (once)
                        DCI_TRY(dci_kv_grow(kv, (void **)&layer->heads[h].fixed, &layer->heads[h].fixed_capacity,
                                            n < room ? n : room, sizeof(int32_t)));
        }
        return DCI_OK;
}

static dci_status end_prompt(dci_kv *kv, dci_kv_layer *layer, size_t n_positions, const void *queries, size_t ld)
{
        layer->n_prompt = layer->n;
        layer->copied = false;
        const bool borrows = dci_kv_anchor_of(kv, layer->number) != layer->number && !dci_kv_groups(kv, layer->number);
        if (kv->layer_modes[layer->number] != DCI_KV_LAYER_SPARSE || kv->config.select == DCI_KV_SELECT_ALL ||
            borrows || dci_kv_builds_later(kv)) {
                layer->prompt = DCI_KV_PROMPT_DONE;
                layer->prompt_now = true;
                layer->prompt_due = dci_kv_builds_later(kv) && kv->clustered && dci_kv_groups(kv, layer->number) &&
                                    dci_kv_prompt_candidates(kv, layer->n_prompt) > 0;
                return DCI_OK;
        }
        const dci_status status = take_all(kv, layer, n_positions, queries, ld);
        if (status != DCI_OK) {
                dci_kv_cancel_prompt(kv, layer);
                return status;
        }
        dci_kv_begin_copies(kv, layer, dci_kv_prompt_candidates(kv, layer->n_prompt));
        dci_kv_jobs_add(kv, layer);
        return DCI_OK;
}

dci_status dci_kv_check_end_prompt(dci_kv *kv, size_t layer, int64_t sequence, size_t n_positions, const void *queries,
                                   size_t ld, bool *out_looks)
{
        DCI_TRY(dci_kv_lock(kv));
        const dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status =
                found == NULL ? DCI_ERR_NOT_FOUND : check_prompt(kv, layer, found, n_positions, queries, ld);
        if (status == DCI_OK)
                *out_looks = n_positions > 0 && kv->layer_modes[layer] == DCI_KV_LAYER_SPARSE &&
                             (kv->config.select == DCI_KV_SELECT_OBSERVED ||
                              kv->config.summary == DCI_KV_SUMMARY_LEARNED || dci_kv_reorders(kv));
        dci_kv_unlock(kv);
        return status;
}

dci_status dci_kv_end_prompt(dci_kv *kv, size_t layer, int64_t sequence, size_t n_positions, const void *queries,
                             size_t ld)
{
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status =
                found == NULL ? DCI_ERR_NOT_FOUND : check_prompt(kv, layer, found, n_positions, queries, ld);
        if (status == DCI_OK)
                status = end_prompt(kv, &found->layers[layer], n_positions, queries, ld);
        dci_kv_unlock(kv);
        return status;
}

dci_status dci_kv_wait(dci_kv *kv, int64_t sequence)
{
        const dci_kv_sequence *found = NULL;
        dci_status status = dci_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        if (sequence != -1) {
                found = dci_kv_find(kv, sequence);
                status = found == NULL ? DCI_ERR_NOT_FOUND : DCI_OK;
        }
        if (status == DCI_OK)
                dci_kv_jobs_wait(kv, found);
        dci_kv_unlock(kv);
        return status;
}
