/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans, made by the host or on the device, and attention over them. */
#include "core/internal.h"

#include "offload/fetch_baselines.h"
#include "offload/learned_codes.h"
#include "offload/orders.h"
#include "offload/pool.h"
#include "offload/prompt.h"
#include "offload/schedule.h"
#include "offload/select.h"
#include "offload/tail.h"

static dci_status check_queries(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld)
{
        DCI_TRY(dci_gpu_kv_check_step(kv, stream, layer));
        if (!kv->layers[layer].appended && kv->step.n_tokens > 0)
                return dci_fail(DCI_ERR_INVALID, "layer %zu has not got its rows in this step", layer);
        if (ld < kv->dim)
                return dci_fail(DCI_ERR_INVALID, "the queries' stride is %zu, expected at least %zu", ld, kv->dim);
        if ((uintptr_t)queries % kv->query_es != 0)
                return dci_fail(DCI_ERR_INVALID, "the queries are not aligned to %zu bytes", kv->query_es);
        return kv->ops->pointer_check(kv->gpu, queries, "queries");
}

/* --- plan --------------------------------------------------------------------------------------------------------- */

/* Copies the queries to host memory, packed, and waits for them and all that was queued before. */
static dci_status fetch_queries(dci_gpu_kv *kv, const void *queries, size_t ld)
{
        const size_t n = kv->step.n * kv->shape.n_query_heads, n_bytes = kv->dim * kv->query_es;
        DCI_TRY(ld == kv->dim ? kv->ops->copy(kv->gpu, kv->step.stream, kv->queries, queries, n * n_bytes)
                              : kv->ops->copy_rows(kv->gpu, kv->step.stream, kv->queries, queries, ld * kv->query_es,
                                                   n_bytes, n));
        DCI_TRY(kv->ops->event_record(kv->gpu, kv->query_event, kv->step.stream));
        DCI_TRY(kv->ops->event_wait(kv->gpu, kv->query_event));
        /* Whole blocks of a prompt in the same step are copied on the side stream. */
        if (kv->step.packed)
                DCI_TRY(kv->ops->stream_wait(kv->gpu, kv->side));
        return DCI_OK;
}

/* Notes the longest list, and which positions may get into hot slots. */
static void note_plan(dci_gpu_kv *kv, dci_gpu_kv_layer *layer)
{
        const dci_kv_plan *plan = &layer->plan;
        const size_t n_lists = plan->n_lists, unit = (size_t)1 << kv->unit_shift;
        layer->n_longest = 0;
        for (size_t i = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                const size_t kept = (size_t)(plan->sink_end[i] + plan->n_tokens[i] - plan->recent_begin[i]);
                for (size_t l = 0; l < n_lists; l++) {
                        const size_t list = i * n_lists + l, n = (size_t)plan->counts[list];
                        const size_t end =
                                n == 0 ? 0 : ((size_t)plan->positions[list * plan->stride + n - 1] | (unit - 1)) + 1;
                        row->hot_end = end > row->hot_end ? end : row->hot_end;
                        layer->n_longest = kept + n > layer->n_longest ? kept + n : layer->n_longest;
                }
        }
}

static dci_status check_ended(const dci_gpu_kv *kv, size_t layer)
{
        for (size_t i = 0; i < kv->step.n; i++) {
                const dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                if (atomic_load(&dci_gpu_kv_host_sequence(kv, row)->layers[layer].prompt) == DCI_KV_PROMPT_OPEN)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld: the prompt has not ended in layer %zu",
                                        (long long)row->id, layer);
        }
        return DCI_OK;
}

/* Orders the step after the copies of whole blocks of a prompt on the side stream, since plans and attention may read
 * them in host memory. */
static dci_status wait_packed(dci_gpu_kv *kv)
{
        if (!kv->step.packed)
                return DCI_OK;
        DCI_TRY(kv->ops->event_record(kv->gpu, kv->side_event, kv->side));
        return kv->ops->event_order(kv->gpu, kv->step.stream, kv->side_event);
}

/* The host does not know the lists: any token may get into a hot slot, and no plan exceeds max_attended, but for
 * sequences without summaries, whose attention is slow anyway. */
static dci_status plan_on_device(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld)
{
        dci_gpu_kv_layer *at = &kv->layers[layer];
        DCI_TRY(dci_gpu_kv_check_anchor(kv, layer));
        DCI_TRY(dci_gpu_kv_hand_over_layer(kv, layer));
        DCI_TRY(check_ended(kv, layer));
        DCI_TRY(dci_gpu_kv_learned_plan(kv, layer));
        for (size_t i = 0; i < kv->step.n; i++)
                kv->rows[kv->step.rows[i]].hot_end = kv->rows[kv->step.rows[i]].n + kv->step.wanted[i];
        /* The buffer of parts is large enough for sequences of max_tokens. */
        const size_t most = dci_kv_max_attended(&kv->shape);
        at->n_longest = most < kv->config.max_tokens ? most : kv->config.max_tokens;
        kv->planner.planned_layer = layer;
        if (!at->planned)
                dci_gpu_kv_orders_planned(kv, layer);
        at->planned = false;
        DCI_GPU_KV_TRY(kv, wait_packed(kv));
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_select(kv, layer, queries, ld));
        at->planned = true;
        return DCI_OK;
}

/* The host plans. */
static dci_status plan_on_host(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld)
{
        dci_gpu_kv_layer *at = &kv->layers[layer];
        DCI_GPU_KV_TRY(kv, fetch_queries(kv, queries, ld));
        DCI_TRY(dci_gpu_kv_hand_over_layer(kv, layer));
        for (size_t i = 0; i < kv->step.n; i++)
                DCI_TRY(dci_gpu_kv_check_good(kv, &kv->rows[kv->step.rows[i]]));
        DCI_TRY(dci_kv_plan_make(kv->host, layer, kv->step.n, kv->step.ids, kv->queries, kv->dim, &at->plan));
        note_plan(kv, at);
        return DCI_OK;
}

static dci_status make_plan(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld)
{
        DCI_TRY(check_queries(kv, stream, layer, queries, ld));
        dci_gpu_kv_layer *at = &kv->layers[layer];
        if (!at->dense && kv->planner.on)
                return plan_on_device(kv, layer, queries, ld);
        const dci_status status =
                at->dense ? dci_gpu_kv_hand_over_layer(kv, layer) : plan_on_host(kv, layer, queries, ld);
        at->planned = status == DCI_OK;
        return status;
}

dci_status dci_gpu_kv_plan(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, make_plan(kv, stream, layer, queries, ld));
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static dci_status check_attend(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld,
                               const void *out, size_t out_ld, const float *out_lse)
{
        const size_t out_es = dci_dtype_size((dci_dtype)kv->config.out_dtype);
        DCI_TRY(check_queries(kv, stream, layer, queries, ld));
        if (!kv->layers[layer].planned)
                return dci_fail(DCI_ERR_INVALID, "layer %zu has no plan in this step, plan it first", layer);
        if (kv->planner.on && !kv->layers[layer].dense && kv->planner.planned_layer != layer)
                return dci_fail(DCI_ERR_INVALID, "layer %zu was planned, but layer %zu since, in place of its lists",
                                layer, kv->planner.planned_layer);
        if (out_ld < kv->dim)
                return dci_fail(DCI_ERR_INVALID, "the outputs' stride is %zu, expected at least %zu", out_ld, kv->dim);
        if ((uintptr_t)out % out_es != 0)
                return dci_fail(DCI_ERR_INVALID, "the outputs are not aligned to %zu bytes", out_es);
        DCI_TRY(kv->ops->pointer_check(kv->gpu, out, "out"));
        return out_lse != NULL ? kv->ops->pointer_check(kv->gpu, out_lse, "out_lse") : DCI_OK;
}

/* Layers that attend to everything have no lists: one kv head's query heads read its rows together. */
static dci_gpu_attend_args attend_args(const dci_gpu_kv *kv, const dci_gpu_kv_layer *at)
{
        const size_t lists = at->dense ? 1 : kv->head_lists;
        return (dci_gpu_attend_args){
                .n_sequences = (int32_t)kv->step.n,
                .n_heads = (int32_t)kv->shape.n_kv_heads,
                .group = (int32_t)(kv->share / lists),
                .dim = (int32_t)kv->dim,
                .dtype = (int32_t)kv->shape.dtype,
                .query_dtype = (int32_t)kv->shape.query_dtype,
                .out_dtype = kv->config.out_dtype,
                .n_splits = dci_gpu_splits(kv->gpu, kv->step.n, kv->shape.n_kv_heads * lists, at->n_longest),
                .scale = (float)kv->shape.scale,
                .stride = (int32_t)kv->stride,
                .head_lists = (int32_t)lists,
                .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS),
                .n_tokens = dci_gpu_kv_record(kv, DCI_GPU_KV_AFTER),
                .tables = dci_gpu_kv_tables(kv),
                .partial = kv->partial,
                .arrived = kv->arrived};
}

static dci_status attend(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld, void *out,
                         size_t out_ld, float *out_lse)
{
        DCI_TRY(check_attend(kv, stream, layer, queries, ld, out, out_ld, out_lse));
        dci_gpu_kv_layer *at = &kv->layers[layer];
        const size_t n = kv->step.n;
        if (at->dense)
                at->n_longest = dci_gpu_kv_longest(kv, 0, n);
        dci_gpu_attend_args args = attend_args(kv, at);
        args.queries = queries;
        args.query_ld = ld;
        args.out = out;
        args.out_ld = out_ld;
        args.lse = out_lse;
        if (at->dense) {
                args.pool = dci_gpu_kv_dense_pool(kv, layer);
        } else {
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_fetch(kv, stream, layer));
                args.early = kv->n_frames > 0 && kv->config.gather == DCI_GPU_GATHER_MAPPED;
                /* the gather is queued before the attention */
                args.sink_end = kv->answer;
                args.recent_begin = kv->answer + n;
                args.n_tokens = kv->answer + 2 * n;
                args.counts = kv->answer + 3 * kv->config.max_sequences;
                args.slots = args.counts + kv->n_lists;
                args.lanes = dci_gpu_kv_lanes(kv, layer);
                args.pool = dci_gpu_kv_host_pool(kv, layer);
                args.tail_out = kv->planner.on ? kv->tail->out : dci_gpu_kv_mapped(kv, at->plan.tail_out);
                args.tail_lse = kv->planner.on ? kv->tail->lse : dci_gpu_kv_mapped(kv, at->plan.tail_lse);
                if (kv->planner.on) {
                        DCI_GPU_KV_TRY(kv, dci_gpu_kv_tail_sums(kv, layer, queries, ld));
                        DCI_GPU_KV_TRY(kv, dci_gpu_kv_tail_planned(kv, queries, ld));
                }
        }
        DCI_GPU_KV_TRY(kv, kv->ops->attend(kv->gpu, stream, &args));
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_join_ahead(kv));
}

dci_status dci_gpu_kv_attend(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld, void *out,
                             size_t out_ld, float *out_lse)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, attend(kv, stream, layer, queries, ld, out, out_ld, out_lse));
}
