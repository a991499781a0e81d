/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Selections that are kept between plans. */
#include "core/internal.h"

#include "kv/stages/stages.h"
#include "offload/boundaries.h"
#include "offload/offload_internal.h"
#include "offload/preselect.h"
#include "offload/schedule.h"

_Static_assert(DCI_GPU_MAX_HEADS == DCI_KV_MAX_HEADS, "the gate has room for the heads of every layer");

#define STATE_BYTES (DCI_GPU_SELECTION_INTS * sizeof(int32_t))

/* --- sizes -------------------------------------------------------------------------------------------------------- */

static size_t counts_bytes(const dci_gpu_kv *kv)
{
        return dci_lines(kv->row_lists * sizeof(int32_t));
}

static size_t lists_bytes(const dci_gpu_kv *kv)
{
        return dci_lines(kv->row_lists * dci_kv_max_room(kv->host) * sizeof(int32_t));
}

static size_t queries_bytes(const dci_gpu_kv *kv)
{
        const bool keeps = kv->host->stages->schedule.queries;
        return keeps ? dci_lines(kv->shape.n_query_heads * kv->dim * sizeof(float)) : 0;
}

dci_status dci_gpu_kv_can_schedule(const dci_kv_config *shape)
{
        switch (shape->schedule) {
        case DCI_KV_EVERY_STEP:
        case DCI_KV_PERIODIC:
        case DCI_KV_BOUNDARY:
        case DCI_KV_ANCHOR:
        case DCI_KV_AHEAD:
                return DCI_OK;
        default:
                return dci_fail(DCI_ERR_UNSUPPORTED, "the device cannot plan with schedule %d", (int)shape->schedule);
        }
}

void dci_gpu_kv_schedule_init(dci_gpu_kv *kv)
{
        dci_gpu_kv_schedule *s = kv->schedule;
        s->on = kv->host->stages->schedule.lists;
        s->states_bytes = dci_lines(kv->n_sparse * STATE_BYTES);
        s->layer_bytes = counts_bytes(kv) + lists_bytes(kv) + queries_bytes(kv);
        s->row_bytes = s->on ? s->states_bytes + kv->n_sparse * s->layer_bytes : 0;
}

dci_status dci_gpu_kv_schedule_begin(dci_gpu_kv *kv)
{
        dci_gpu_kv_schedule *s = kv->schedule;
        if (!s->on)
                return DCI_OK;
        DCI_TRY(kv->ops->fill(kv->gpu, kv->side, s->memory, 0, kv->config.max_sequences * s->row_bytes));
        if (kv->shape.schedule != DCI_KV_AHEAD)
                return DCI_OK;
        DCI_TRY(kv->ops->event_create(kv->gpu, false, &s->taken));
        DCI_TRY(kv->ops->event_create(kv->gpu, false, &kv->ahead_event));
        DCI_TRY(kv->ops->stream_create(kv->gpu, &s->stream));
        s->has_stream = true;
        return DCI_OK;
}

void dci_gpu_kv_schedule_destroy(dci_gpu_kv *kv)
{
        dci_gpu_kv_schedule *s = kv->schedule;
        if (s->has_stream)
                kv->ops->stream_destroy(kv->gpu, s->stream);
        if (s->taken != NULL)
                kv->ops->event_destroy(kv->gpu, s->taken);
        if (kv->ahead_event != NULL)
                kv->ops->event_destroy(kv->gpu, kv->ahead_event);
        kv->ahead = false;
        kv->ahead_event = NULL;
        *s = (dci_gpu_kv_schedule){.on = false};
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

unsigned char *dci_gpu_kv_schedule_row(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return kv->schedule->memory + dci_gpu_kv_row_number(kv, row) * kv->schedule->row_bytes;
}

dci_status dci_gpu_kv_schedule_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_gpu_kv_schedule *s = kv->schedule;
        return s->on ? kv->ops->fill(kv->gpu, kv->side, dci_gpu_kv_schedule_row(kv, row), 0, s->states_bytes) : DCI_OK;
}

dci_status dci_gpu_kv_schedule_truncate(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t n)
{
        const dci_gpu_kv_schedule *s = kv->schedule;
        if (!s->on)
                return DCI_OK;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        DCI_GPU_KV_TRY(kv,
                       kv->ops->copy(kv->gpu, kv->side, s->states, dci_gpu_kv_schedule_row(kv, row), s->states_bytes));
        DCI_GPU_KV_TRY(kv, kv->ops->stream_wait(kv->gpu, kv->side));
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                int32_t *state = s->states + kv->layers[l].index * DCI_GPU_SELECTION_INTS;
                if (kv->layers[l].dense)
                        continue;
                /* As in dci_kv_truncate_selection_cache; lists of a prompt's end are dropped with it. */
                if (kv->shape.sink + (size_t)state[DCI_GPU_SELECTION_END] > n ||
                    atomic_load(&sequence->layers[l].prompt) == DCI_KV_PROMPT_OPEN)
                        state[DCI_GPU_SELECTION_LISTED] = 0;
        }
        DCI_GPU_KV_TRY(kv,
                       kv->ops->copy(kv->gpu, kv->side, dci_gpu_kv_schedule_row(kv, row), s->states, s->states_bytes));
        return dci_gpu_kv_check_device(kv, kv->ops->stream_wait(kv->gpu, kv->side));
}

dci_status dci_gpu_kv_schedule_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to)
{
        const dci_gpu_kv_schedule *s = kv->schedule;
        if (!s->on)
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_check_device(kv, kv->ops->copy(kv->gpu, kv->side, dci_gpu_kv_schedule_row(kv, to),
                                                          dci_gpu_kv_schedule_row(kv, from), s->row_bytes)));
        return dci_gpu_kv_schedule_truncate(kv, to, to->n);
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_check_anchor(const dci_gpu_kv *kv, size_t layer)
{
        const size_t anchor = dci_kv_anchor_of(kv->host, layer);
        return anchor == layer || kv->layers[anchor].planned
                       ? DCI_OK
                       : dci_fail(DCI_ERR_INVALID,
                                  "layer %zu uses the lists of layer %zu, which has no plan in this step", layer,
                                  anchor);
}

static dci_gpu_selection_cache selection_cache(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_schedule *s = kv->schedule;
        const size_t index = kv->layers[layer].index;
        unsigned char *at = s->memory + s->states_bytes + index * s->layer_bytes;
        return (dci_gpu_selection_cache){
                .state = (int32_t *)(void *)s->memory + index * DCI_GPU_SELECTION_INTS,
                .counts = (int32_t *)(void *)at,
                .lists = (int32_t *)(void *)(at + counts_bytes(kv)),
                .queries = queries_bytes(kv) > 0 ? (float *)(void *)(at + counts_bytes(kv) + lists_bytes(kv)) : NULL,
                .row_bytes = s->row_bytes,
                .room = (int32_t)dci_kv_max_room(kv->host)};
}

static dci_status gate(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score,
                       const dci_gpu_selection_cache *cache, int32_t *due)
{
        const int32_t how = kv->shape.schedule == DCI_KV_PERIODIC   ? DCI_GPU_GATE_PERIOD
                            : kv->shape.schedule == DCI_KV_BOUNDARY ? DCI_GPU_GATE_BOUNDARY
                                                                    : DCI_GPU_GATE_HEAD;
        dci_gpu_gate_args args = {.n_sequences = score->n_sequences,
                                  .n_heads = (int32_t)kv->row_lists,
                                  .group = score->group,
                                  .dim = score->dim,
                                  .how = how,
                                  .period = (int32_t)kv->shape.period,
                                  .query_dtype = score->query_dtype,
                                  .scale = score->scale,
                                  .tau = kv->shape.tau,
                                  .sizes = score->sizes,
                                  .queries = score->queries,
                                  .query_ld = score->query_ld,
                                  .rows = score->rows,
                                  .n_tokens = score->n_tokens,
                                  .n_grouped = score->n_grouped,
                                  .selection = *cache,
                                  .due = due};
        dci_gpu_kv_boundaries_gate(kv, layer, &args);
        return kv->ops->gate(kv->gpu, kv->step.stream, &args);
}

/* Takes the lists from the cache; cache NULL: only removes their scores, which the tail reads. */
static dci_status take(dci_gpu_kv *kv, const dci_gpu_select_args *select, const dci_gpu_selection_cache *cache,
                       bool drops)
{
        const dci_gpu_reuse_args args = {.n_sequences = select->n_sequences,
                                         .n_heads = (int32_t)kv->row_lists,
                                         .group = select->group,
                                         .stride = select->stride,
                                         .max_groups = select->max_groups,
                                         .sizes = select->sizes,
                                         .rows = select->rows,
                                         .n_tokens = select->n_tokens,
                                         .n_grouped = select->n_grouped,
                                         .selection = cache != NULL ? *cache : (dci_gpu_selection_cache){.lists = NULL},
                                         .scores = drops ? select->scores : NULL,
                                         .positions = select->positions,
                                         .counts = select->counts,
                                         .sink_end = select->sink_end,
                                         .recent_begin = select->recent_begin,
                                         .after = select->after};
        return kv->ops->reuse(kv->gpu, kv->step.stream, &args);
}

/* Selects the lists that are due at that time; for a tail, all scores have been computed before. */
static dci_status select_due(dci_gpu_kv *kv, void *stream, dci_gpu_score_args *score, dci_gpu_select_args *select,
                             int32_t when)
{
        score->due_is = select->due_is = when;
        return kv->shape.tail != DCI_KV_TAIL_LOWBIT ? dci_gpu_kv_choose(kv, stream, score, select)
                                                    : kv->ops->select(kv->gpu, stream, select);
}

/* Selects for the next plan, concurrent with the rest of this layer's work. */
static dci_status select_ahead(dci_gpu_kv *kv, dci_gpu_score_args *score, dci_gpu_select_args *select)
{
        dci_gpu_kv_schedule *s = kv->schedule;
        DCI_TRY(kv->ops->event_record(kv->gpu, s->taken, kv->step.stream));
        DCI_TRY(kv->ops->event_order(kv->gpu, s->stream, s->taken));
        kv->ahead = true;
        DCI_TRY(select_due(kv, s->stream, score, select, DCI_GPU_DUE_LATER));
        return kv->ops->event_record(kv->gpu, kv->ahead_event, s->stream);
}

/* Selects what is due in a layer that has lists of its own; and takes the plan's lists from the cache. */
static dci_status select_now(dci_gpu_kv *kv, size_t layer, dci_gpu_score_args *score, dci_gpu_select_args *select,
                             const dci_gpu_selection_cache *cache, bool takes)
{
        select->selection = *cache;
        select->drop = 0;
        select->takes = takes;
        if (kv->shape.schedule != DCI_KV_ANCHOR) {
                int32_t *due = kv->schedule->due + (select->counts - kv->planner.counts);
                DCI_TRY(gate(kv, layer, score, cache, due));
                score->due = select->due = due;
        }
        DCI_TRY(select_due(kv, kv->step.stream, score, select, DCI_GPU_DUE_NOW));
        select->takes = 0;
        return DCI_OK;
}

dci_status dci_gpu_kv_schedule_plan(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score,
                                    const dci_gpu_select_args *select)
{
        const size_t anchor = dci_kv_anchor_of(kv->host, layer);
        const dci_gpu_selection_cache cache = selection_cache(kv, anchor);
        const bool ahead = kv->shape.schedule == DCI_KV_AHEAD, scored = kv->shape.tail == DCI_KV_TAIL_LOWBIT;
        dci_gpu_score_args scores = *score;
        dci_gpu_select_args lists = *select;
        /* The scores of this plan overwrite those of the one before. */
        DCI_TRY(dci_gpu_kv_join_ahead(kv));
        if (scored)
                DCI_TRY(kv->ops->score(kv->gpu, kv->step.stream, score));
        /* One kernel selects and takes, but for what is a layer's that selects nothing, removes scores, or searches. */
        const bool apart = anchor != layer || scored || kv->planner.trees;
        if (anchor == layer)
                DCI_TRY(select_now(kv, layer, &scores, &lists, &cache, !apart));
        if (apart)
                DCI_TRY(take(kv, select, &cache, scored && !ahead));
        if (!ahead)
                return DCI_OK;
        if (!scored)
                return select_ahead(kv, &scores, &lists);
        /* The lists of the next plan are selected by the scores of all candidates. */
        DCI_TRY(select_due(kv, kv->step.stream, &scores, &lists, DCI_GPU_DUE_LATER));
        return take(kv, select, NULL, true);
}
