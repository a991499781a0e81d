/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* One layer of a sequence: which candidates there are, that groups have each of them once, and what plans left. */
#include "core/internal.h"

#include <math.h>

#include "kv/check/check.h"
#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/transform.h"

/* "sequence 3, layer 0" before what is wrong. */
#define AT "sequence %lld, layer %zu: "
#define OF(layer) (long long)(layer)->sequence->id, (layer)->number

static dci_status check_counts(const dci_kv *kv, const dci_kv_sequence *sequence, const dci_kv_layer *layer)
{
        const size_t after = sequence->n + sequence->n_reserved, sink = kv->config.sink;
        const int prompt = atomic_load(&((dci_kv_layer *)(uintptr_t)layer)->prompt);
        if (layer->n < sequence->n || layer->n > after)
                return dci_fail(DCI_ERR_FORMAT, AT "%zu tokens, expected %zu to %zu", OF(layer), layer->n, sequence->n,
                                after);
        if (prompt != DCI_KV_PROMPT_OPEN && prompt != DCI_KV_PROMPT_DONE)
                return dci_fail(DCI_ERR_FORMAT, AT "the prompt's work is neither done nor to come (%d)", OF(layer),
                                prompt);
        if (layer->n_grouped > (layer->n > sink ? layer->n - sink : 0) || layer->n_prompt > layer->n ||
            (layer->n_grouped > 0 && (prompt == DCI_KV_PROMPT_OPEN || !dci_kv_groups(kv, layer->number))))
                return dci_fail(DCI_ERR_FORMAT,
                                AT "%zu tokens in groups, of %zu after a sink of %zu and a prompt of %zu", OF(layer),
                                layer->n_grouped, layer->n, sink, layer->n_prompt);
        if (kv->config.frozen_prompt == 0 && layer->n_grouped % dci_kv_unit(kv) != 0)
                return dci_fail(DCI_ERR_FORMAT, AT "%zu tokens in groups of whole %zu", OF(layer), layer->n_grouped,
                                dci_kv_unit(kv));
        if (layer->n_chunks > layer->chunk_capacity || layer->n_batches > layer->batch_capacity ||
            layer->n_boundaries > layer->boundary_capacity)
                return dci_fail(DCI_ERR_FORMAT, AT "%zu chunks, %zu batches and %zu turns, room for %zu, %zu and %zu",
                                OF(layer), layer->n_chunks, layer->n_batches, layer->n_boundaries,
                                layer->chunk_capacity, layer->batch_capacity, layer->boundary_capacity);
        return DCI_OK;
}

/* --- listed groups ------------------------------------------------------------------------------------------------ */

/* A head's groups in a batch: offsets ascend to the end, and every candidate of it is in one, ascending where it is not an order. */
static dci_status check_members(const dci_kv *kv, const dci_kv_layer *layer, const dci_kv_clusters *batch, size_t head,
                                dci_kv_marks *marks)
{
        const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head), *ids = dci_kv_cluster_ids(kv, batch, head);
        const size_t n_groups = batch->heads[head].n_groups, per_page = kv->config.page_tokens;
        if (n_groups == 0 || n_groups > batch->room || offsets[0] != 0 || (size_t)offsets[n_groups] != batch->n)
                return dci_fail(DCI_ERR_FORMAT, AT "kv head %zu: %zu groups end at %d, for %zu tokens and room for %zu",
                                OF(layer), head, n_groups, n_groups > batch->room ? -1 : (int)offsets[n_groups],
                                batch->n, batch->room);
        DCI_TRY(dci_kv_marks_clear(marks, batch->n));
        for (size_t g = 0; g < n_groups; g++) {
                if (offsets[g + 1] <= offsets[g] || (size_t)offsets[g + 1] > batch->n ||
                    (dci_kv_reorders(kv) && (size_t)offsets[g] != g * per_page))
                        return dci_fail(DCI_ERR_FORMAT, AT "kv head %zu: group %zu of %zu is %d to %d", OF(layer), head,
                                        g, n_groups, (int)offsets[g], (int)offsets[g + 1]);
                for (int32_t i = offsets[g]; i < offsets[g + 1]; i++) {
                        const size_t at = (size_t)ids[i] - batch->first;
                        if (ids[i] < 0 || at >= batch->n || !dci_kv_mark(marks, at))
                                return dci_fail(DCI_ERR_FORMAT,
                                                AT "kv head %zu: group %zu has token %d, which is not among %zu from "
                                                   "%zu on, or twice",
                                                OF(layer), head, g, (int)ids[i], batch->n, batch->first);
                        if (i > offsets[g] && ids[i] < ids[i - 1] && !dci_kv_reorders(kv))
                                return dci_fail(DCI_ERR_FORMAT, AT "kv head %zu: group %zu has token %d after token %d",
                                                OF(layer), head, g, (int)ids[i], (int)ids[i - 1]);
                }
        }
        return DCI_OK;
}

static dci_status check_batches(const dci_kv *kv, const dci_kv_layer *layer, dci_kv_marks *marks)
{
        size_t at = 0;
        for (size_t b = 0; b < layer->n_batches; b++) {
                const dci_kv_clusters *batch = layer->batches[b], *last = b > 0 ? layer->batches[b - 1] : NULL;
                if (batch->first != at || batch->n == 0 || batch->n_static > batch->n ||
                    batch->n_static % kv->config.page_tokens != 0)
                        return dci_fail(DCI_ERR_FORMAT,
                                        AT "batch %zu has %zu tokens from %zu on, %zu of them static, expected %zu",
                                        OF(layer), b, batch->n, batch->first, batch->n_static, at);
                for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                        const size_t before = last == NULL ? 0 : last->heads[h].before + last->heads[h].n_groups;
                        if (batch->heads[h].before != before)
                                return dci_fail(DCI_ERR_FORMAT,
                                                AT "kv head %zu: %zu groups come before batch %zu, but it says %zu",
                                                OF(layer), h, before, b, batch->heads[h].before);
                        DCI_TRY(check_members(kv, layer, batch, h, marks));
                }
                at += batch->n;
        }
        if (at != layer->n_grouped)
                return dci_fail(DCI_ERR_FORMAT, AT "batches have %zu tokens, groups %zu", OF(layer), at,
                                layer->n_grouped);
        return DCI_OK;
}

/* --- heads -------------------------------------------------------------------------------------------------------- */

static bool is_frame(const dci_kv_transform *frame, size_t dim)
{
        return frame != NULL && frame->coder.dim == dim && !isnan(frame->distortion);
}

/* What was chosen once: different candidates. */
static dci_status check_fixed(const dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_marks *marks)
{
        const dci_kv_head *h = &layer->heads[head];
        if (h->n_fixed > h->fixed_capacity)
                return dci_fail(DCI_ERR_FORMAT, AT "kv head %zu: %zu tokens are chosen once, room for %zu", OF(layer),
                                head, h->n_fixed, h->fixed_capacity);
        DCI_TRY(h->n_fixed > 0 ? dci_kv_marks_clear(marks, layer->n) : DCI_OK);
        for (size_t i = 0; i < h->n_fixed; i++) {
                const size_t at = kv->config.sink + (size_t)h->fixed[i];
                if (h->fixed[i] < 0 || at >= layer->n || !dci_kv_mark(marks, at))
                        return dci_fail(DCI_ERR_FORMAT,
                                        AT "kv head %zu: candidate %d was chosen once, which is not, or twice",
                                        OF(layer), head, (int)h->fixed[i]);
        }
        return DCI_OK;
}

static dci_status check_head(const dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_marks *marks)
{
        const dci_kv_head *h = &layer->heads[head];
        const bool grouped = layer->n_grouped > 0;
        if (grouped && ((kv->stages->summary.frame != 0 && !is_frame(h->keys, kv->dim_k)) ||
                        (kv->stages->tail.values && !is_frame(h->values, kv->dim_v))))
                return dci_fail(DCI_ERR_FORMAT, AT "kv head %zu has %zu tokens in groups, but no transform for them",
                                OF(layer), head, layer->n_grouped);
        DCI_TRY(check_fixed(kv, layer, head, marks));
        const size_t n_tree = h->tree == NULL ? 0 : h->tree->n;
        if (dci_kv_has_trees(kv) && n_tree != layer->n_grouped)
                return dci_fail(DCI_ERR_FORMAT, AT "kv head %zu: %zu tokens in groups, %zu in the tree", OF(layer),
                                head, layer->n_grouped, n_tree);
        return n_tree > 0 ? dci_kv_check_tree(kv, layer, head, marks) : DCI_OK;
}

/* --- what plans leave --------------------------------------------------------------------------------------------- */

static dci_status check_lists(const dci_kv *kv, const dci_kv_layer *layer, dci_kv_marks *marks)
{
        const dci_kv_selection_cache *d = layer->selection;
        const size_t room = dci_kv_max_room(kv);
        if (kv->config.sink + d->end > layer->n || d->n > layer->n)
                return dci_fail(DCI_ERR_FORMAT, AT "lists were chosen from %zu candidates at token %zu of %zu",
                                OF(layer), d->end, d->n, layer->n);
        for (size_t h = 0; h < kv->n_lists; h++) {
                const int32_t n = d->counts[h], *list = d->lists + h * room;
                if (n < 0 || (size_t)n > room)
                        return dci_fail(DCI_ERR_FORMAT, AT "list %zu: %d candidates, room for %zu", OF(layer), h,
                                        (int)n, room);
                DCI_TRY(dci_kv_marks_clear(marks, d->end));
                for (int32_t i = 0; i < n; i++)
                        if (list[i] < 0 || (size_t)list[i] >= d->end || !dci_kv_mark(marks, (size_t)list[i]))
                                return dci_fail(DCI_ERR_FORMAT,
                                                AT "list %zu: candidate %d of %zu is on it, which is not, or twice",
                                                OF(layer), h, (int)list[i], d->end);
        }
        return DCI_OK;
}

static dci_status check_decided(const dci_kv *kv, const dci_kv_layer *layer, dci_kv_marks *marks)
{
        const dci_kv_selection_cache *d = layer->selection;
        for (size_t i = 0; i < layer->n_boundaries; i++)
                if (layer->boundaries[i] < 0 || (size_t)layer->boundaries[i] >= layer->n ||
                    (i > 0 && layer->boundaries[i] <= layer->boundaries[i - 1]))
                        return dci_fail(DCI_ERR_FORMAT, AT "queries turned at token %d of %zu, number %zu of the turns",
                                        OF(layer), (int)layer->boundaries[i], layer->n, i);
        if (d == NULL)
                return DCI_OK;
        if (d->renewed > d->n_pushed)
                return dci_fail(DCI_ERR_FORMAT, AT "an order was made at plan %zu of %zu", OF(layer), d->renewed,
                                d->n_pushed);
        const size_t kept = d->n_pushed < kv->config.ring ? d->n_pushed : kv->config.ring;
        const size_t width = kv->group * kv->dim_k;
        for (size_t h = 0; h < kv->n_lists && d->ring != NULL; h++)
                for (size_t i = 0; i < kept * width; i++)
                        if (!isfinite(d->ring[h * kv->config.ring * width + i]))
                                return dci_fail(DCI_ERR_FORMAT,
                                                AT "list %zu: query %zu that is remembered holds NaN or infinity",
                                                OF(layer), h, i / width);
        return d->lists != NULL && d->listed ? check_lists(kv, layer, marks) : DCI_OK;
}

dci_status dci_kv_check_layer(const dci_kv *kv, const dci_kv_sequence *sequence, const dci_kv_layer *layer,
                              dci_kv_marks *marks)
{
        DCI_TRY(check_counts(kv, sequence, layer));
        if (!kv->former.host_plans) /* else groups are complete */
                return check_decided(kv, layer, marks);
        if (!kv->clustered && layer->n_chunks * DCI_KV_CHUNK < layer->n_grouped)
                return dci_fail(DCI_ERR_FORMAT, AT "%zu chunks of %zu for %zu tokens in groups", OF(layer),
                                layer->n_chunks, DCI_KV_CHUNK, layer->n_grouped);
        if (kv->clustered)
                DCI_TRY(check_batches(kv, layer, marks));
        for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                DCI_TRY(check_head(kv, layer, h, marks));
        return check_decided(kv, layer, marks);
}
