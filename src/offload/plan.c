/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans of a KV cache on a device, which the host makes, and attention over them. */
#include "core/internal.h"

#include "offload/offload_internal.h"

static dci_status check_queries(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld)
{
        const dci_status status = dci_gpu_kv_check_step(kv, stream, layer);
        if (status != DCI_OK)
                return status;
        if (!kv->layers[layer].appended && kv->step.n_tokens > 0)
                return dci_fail(DCI_ERR_INVALID, "layer %zu has not got its rows in this step", layer);
        if (ld < kv->dim)
                return dci_fail(DCI_ERR_INVALID, "the queries' stride is %zu, expected at least %zu", ld, kv->dim);
        if ((uintptr_t)queries % kv->query_es != 0)
                return dci_fail(DCI_ERR_INVALID, "the queries are not aligned to %zu bytes", kv->query_es);
        return kv->ops->pointer_check(kv->gpu, queries, "queries");
}

/* --- plan --------------------------------------------------------------------------------------------------------- */

/* The queries, one behind the other, in host memory; with them, all that was queued before. */
static dci_status fetch_queries(dci_gpu_kv *kv, const void *queries, size_t ld)
{
        const size_t n = kv->step.n * kv->shape.n_query_heads, n_bytes = kv->dim * kv->query_es;
        dci_status status = ld == kv->dim ? kv->ops->copy(kv->gpu, kv->step.stream, kv->queries, queries, n * n_bytes)
                                          : kv->ops->copy_rows(kv->gpu, kv->step.stream, kv->queries, queries,
                                                               ld * kv->query_es, n_bytes, n);
        if (status == DCI_OK)
                status = kv->ops->event_record(kv->gpu, kv->query_event, kv->step.stream);
        if (status == DCI_OK)
                status = kv->ops->event_wait(kv->gpu, kv->query_event);
        /* Whole blocks of a prompt in the same step take another way. */
        if (status == DCI_OK && kv->step.packed)
                status = kv->ops->stream_wait(kv->gpu, kv->side);
        return status;
}

/* Tokens of the longest list, and what may get into hot slots. */
static void note_plan(dci_gpu_kv *kv, dci_gpu_kv_layer *layer)
{
        const dci_kv_plan *plan = &layer->plan;
        const size_t n_heads = plan->n_lists, unit = (size_t)1 << kv->unit_shift;
        layer->n_longest = 0;
        for (size_t i = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                const size_t kept = (size_t)(plan->sink_end[i] + plan->n_tokens[i] - plan->recent_begin[i]);
                for (size_t h = 0; h < n_heads; h++) {
                        const size_t list = i * n_heads + h, n = (size_t)plan->counts[list];
                        const size_t end =
                                n == 0 ? 0 : ((size_t)plan->positions[list * plan->stride + n - 1] | (unit - 1)) + 1;
                        row->listed = end > row->listed ? end : row->listed;
                        layer->n_longest = kept + n > layer->n_longest ? kept + n : layer->n_longest;
                }
        }
}

static dci_status check_ended(const dci_gpu_kv *kv, size_t layer)
{
        for (size_t i = 0; i < kv->step.n; i++) {
                const dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                if (atomic_load(&dci_gpu_kv_host_sequence(kv, row)->layers[layer].prompt) == DCI_KV_PROMPT_OPEN)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld: the prompt has not ended in layer %zu",
                                        (long long)row->id, layer);
        }
        return DCI_OK;
}

/* Whole blocks of a prompt in the same step go to the host on their own way, and what is planned and attended to may be read there. */
static dci_status behind_packed(dci_gpu_kv *kv)
{
        if (!kv->step.packed)
                return DCI_OK;
        const dci_status status = kv->ops->event_record(kv->gpu, kv->side_event, kv->side);
        return status == DCI_OK ? kv->ops->event_order(kv->gpu, kv->step.stream, kv->side_event) : status;
}

/* Nothing is known of the lists here: any token may be in a hot slot, and none is longer than the budget, but for sequences without
 * summaries, whose attention is slow anyway. */
static dci_status plan_on_device(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld)
{
        dci_gpu_kv_layer *at = &kv->layers[layer];
        dci_status status = dci_gpu_kv_check_anchor(kv, layer);
        if (status == DCI_OK)
                status = dci_gpu_kv_hand_over_layer(kv, layer);
        if (status == DCI_OK)
                status = check_ended(kv, layer);
        if (status == DCI_OK)
                status = dci_gpu_kv_learned_plan(kv, layer);
        if (status != DCI_OK)
                return status;
        for (size_t i = 0; i < kv->step.n; i++)
                kv->rows[kv->step.at[i]].listed = kv->rows[kv->step.at[i]].n + kv->step.wanted[i];
        /* What is left of parts has room for sequences of max_tokens. */
        at->n_longest = kv->shape.budget < kv->config.max_tokens ? kv->shape.budget : kv->config.max_tokens;
        kv->planner.at_hand = layer;
        status = dci_gpu_kv_check_device(kv, behind_packed(kv));
        if (status == DCI_OK)
                status = dci_gpu_kv_check_device(kv, dci_gpu_kv_select(kv, layer, queries, ld));
        at->planned = status == DCI_OK;
        return status;
}

static dci_status make_plan(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld)
{
        dci_gpu_kv_layer *at;
        dci_status status = check_queries(kv, stream, layer, queries, ld);
        if (status != DCI_OK)
                return status;
        at = &kv->layers[layer];
        if (!at->dense && kv->planner.on)
                return plan_on_device(kv, layer, queries, ld);
        if (!at->dense)
                status = dci_gpu_kv_check_device(kv, fetch_queries(kv, queries, ld));
        if (status == DCI_OK)
                status = dci_gpu_kv_hand_over_layer(kv, layer);
        for (size_t i = 0; i < kv->step.n && status == DCI_OK && !at->dense; i++)
                status = dci_gpu_kv_check_good(kv, &kv->rows[kv->step.at[i]]);
        if (status == DCI_OK && !at->dense) {
                at->planned = false;
                status = dci_kv_plan_make(kv->host, layer, kv->step.n, kv->step.ids, kv->queries, kv->dim, &at->plan);
                if (status == DCI_OK)
                        note_plan(kv, at);
        }
        at->planned = status == DCI_OK;
        return status;
}

dci_status dci_gpu_kv_plan(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld)
{
        const dci_status status = dci_gpu_kv_lock(kv);
        return status != DCI_OK ? status : dci_gpu_kv_unlock(kv, make_plan(kv, stream, layer, queries, ld));
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static dci_status check_attend(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld,
                               const void *out, size_t out_ld, const float *out_lse)
{
        const size_t out_es = dci_dtype_size((dci_dtype)kv->config.out_dtype);
        dci_status status = check_queries(kv, stream, layer, queries, ld);
        if (status == DCI_OK && !kv->layers[layer].planned)
                status = dci_fail(DCI_ERR_INVALID, "layer %zu has no plan in this step, call dci_gpu_kv_plan first",
                                  layer);
        if (status == DCI_OK && kv->planner.on && !kv->layers[layer].dense && kv->planner.at_hand != layer)
                status = dci_fail(DCI_ERR_INVALID, "layer %zu was planned, but layer %zu since, in place of its lists",
                                  layer, kv->planner.at_hand);
        if (status == DCI_OK && out_ld < kv->dim)
                status =
                        dci_fail(DCI_ERR_INVALID, "the outputs' stride is %zu, expected at least %zu", out_ld, kv->dim);
        if (status == DCI_OK && (uintptr_t)out % out_es != 0)
                status = dci_fail(DCI_ERR_INVALID, "the outputs are not aligned to %zu bytes", out_es);
        if (status == DCI_OK)
                status = kv->ops->pointer_check(kv->gpu, out, "out");
        return status == DCI_OK && out_lse != NULL ? kv->ops->pointer_check(kv->gpu, out_lse, "out_lse") : status;
}

static dci_gpu_attend_args args_of(const dci_gpu_kv *kv, const dci_gpu_kv_layer *at)
{
        return (dci_gpu_attend_args){.n_sequences = (int32_t)kv->step.n,
                                     .n_heads = (int32_t)kv->shape.n_kv_heads,
                                     .group = (int32_t)kv->group,
                                     .dim = (int32_t)kv->dim,
                                     .dtype = (int32_t)kv->shape.dtype,
                                     .query_dtype = (int32_t)kv->shape.query_dtype,
                                     .out_dtype = kv->config.out_dtype,
                                     .n_splits =
                                             dci_gpu_splits(kv->gpu, kv->step.n, kv->shape.n_kv_heads, at->n_longest),
                                     .scale = (float)kv->shape.scale,
                                     .stride = (int32_t)kv->stride,
                                     .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS),
                                     .n_tokens = dci_gpu_kv_record(kv, DCI_GPU_KV_AFTER),
                                     .tables = dci_gpu_kv_tables(kv),
                                     .partial = kv->partial,
                                     .arrived = kv->arrived};
}

static dci_status attend(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld, void *out,
                         size_t out_ld, float *out_lse)
{
        dci_status status = check_attend(kv, stream, layer, queries, ld, out, out_ld, out_lse);
        if (status != DCI_OK)
                return status;
        dci_gpu_kv_layer *at = &kv->layers[layer];
        const size_t n = kv->step.n;
        if (at->dense) {
                at->n_longest = 0;
                for (size_t i = 0; i < n; i++) {
                        const size_t after = kv->rows[kv->step.at[i]].n + kv->step.wanted[i];
                        at->n_longest = after > at->n_longest ? after : at->n_longest;
                }
                if (kv->step.bound > 0)
                        at->n_longest = kv->step.bound;
        }
        dci_gpu_attend_args args = args_of(kv, at);
        args.queries = queries;
        args.query_ld = ld;
        args.out = out;
        args.out_ld = out_ld;
        args.lse = out_lse;
        if (at->dense) {
                args.pool = dci_gpu_kv_dense_pool(kv, layer);
        } else {
                status = dci_gpu_kv_fetch(kv, stream, layer);
                args.early =
                        kv->n_frames > 0 && kv->config.gather == DCI_GPU_GATHER_MAPPED; /* the gather stands between */
                args.sink_end = kv->answer;
                args.recent_begin = kv->answer + n;
                args.n_tokens = kv->answer + 2 * n;
                args.counts = kv->answer + 3 * kv->config.max_sequences;
                args.slots = args.counts + kv->n_lists;
                args.lanes = dci_gpu_kv_lanes(kv, layer);
                args.pool = dci_gpu_kv_host_pool(kv, layer);
                args.tail_out = kv->planner.on ? kv->planner.tail_out : dci_gpu_kv_mapped(kv, at->plan.tail_out);
                args.tail_lse = kv->planner.on ? kv->planner.tail_lse : dci_gpu_kv_mapped(kv, at->plan.tail_lse);
                if (status == DCI_OK && kv->planner.on)
                        status = dci_gpu_kv_tail_of_means(kv, layer, queries, ld);
        }
        if (status == DCI_OK)
                status = kv->ops->attend(kv->gpu, stream, &args);
        if (status == DCI_OK)
                status = dci_gpu_kv_schedule_join(kv);
        return dci_gpu_kv_check_device(kv, status);
}

dci_status dci_gpu_kv_attend(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld, void *out,
                             size_t out_ld, float *out_lse)
{
        const dci_status status = dci_gpu_kv_lock(kv);
        return status != DCI_OK ? status
                                : dci_gpu_kv_unlock(kv, attend(kv, stream, layer, queries, ld, out, out_ld, out_lse));
}
