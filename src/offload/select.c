/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Selection on the device. */
#include "core/internal.h"

#include "gpu/args/transforms.h"
#include "offload/clusters.h"
#include "offload/learned_codes.h"
#include "offload/orders.h"
#include "offload/pool.h"
#include "offload/preselect.h"
#include "offload/schedule.h"
#include "offload/select.h"
#include "offload/tail.h"
#include "offload/tree.h"
#include "offload/votes.h"

int32_t dci_gpu_kv_score_parts(const dci_gpu_kv *kv, size_t n_sequences)
{
        if (kv->planner.votes.on)
                return dci_gpu_kv_votes_parts(kv);
        return dci_gpu_score_parts(kv->gpu, n_sequences * kv->row_lists, kv->planner.likely_groups,
                                   dci_gpu_kv_group_bytes(kv));
}

/* Whether the last queued kernel may have built summaries of these rows: at the end of a prompt, which a plan may
 * follow immediately, or in a step without an append. */
static bool fresh(const dci_gpu_kv *kv, size_t first, size_t n)
{
        bool some = kv->step.n_tokens == 0;
        for (size_t i = first; i < first + n; i++)
                some = some || kv->rows[kv->step.rows[i]].step.prompting;
        return some;
}

/* For sequences [first, first + n) of the step. */
static dci_gpu_score_args score_args(const dci_gpu_kv *kv, size_t layer, const unsigned char *queries, size_t ld,
                                     size_t first, size_t n)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t index = kv->layers[layer].index;
        dci_gpu_score_args args = {.n_sequences = (int32_t)n,
                                   .n_heads = (int32_t)kv->shape.n_kv_heads,
                                   .group = (int32_t)kv->group,
                                   .dim = (int32_t)kv->dim,
                                   .kind = p->kind,
                                   .bits = kv->shape.key_bits,
                                   .dtype = (int32_t)kv->shape.dtype,
                                   .query_dtype = (int32_t)kv->shape.query_dtype,
                                   .group_shift = p->group_shift,
                                   .n_parts = dci_gpu_kv_score_parts(kv, n),
                                   .max_groups = (int32_t)p->max_groups,
                                   .scale = (float)kv->shape.scale,
                                   .sizes = dci_gpu_kv_sizes(kv),
                                   .queries = queries + first * kv->shape.n_query_heads * ld * kv->query_es,
                                   .query_ld = ld,
                                   .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS) + first,
                                   .n_tokens = dci_gpu_kv_record(kv, DCI_GPU_KV_AFTER) + first,
                                   .n_grouped = dci_gpu_kv_record(kv, DCI_GPU_KV_TO) + first,
                                   .summaries = dci_gpu_kv_store_chunks(kv, kv->summaries, layer),
                                   .signs = p->signs,
                                   .scores = p->scores,
                                   .parts = p->parts,
                                   .fresh = fresh(kv, first, n),
                                   .units = dci_gpu_kv_units(kv, first, n),
                                   .deviation_weight = (float)kv->shape.deviation_weight,
                                   .head_lists = (int32_t)kv->head_lists};
        if (p->kind == DCI_GPU_CODES)
                args.centres = p->centres + index * kv->n_lanes * kv->dim;
        if (dci_gpu_kv_of_host(p) || p->ordered)
                args.n_grouped = dci_gpu_kv_record(kv, DCI_GPU_KV_NUMBERS + index) + first;
        if (p->clustered)
                args.n_clusters = kv->clusters->n_clusters + index * kv->n_lanes;
        if (p->ordered) {
                args.order = dci_gpu_kv_orders_of(kv, layer, first);
                args.ring = dci_gpu_kv_orders_ring(kv, layer, first);
        }
        if (p->trees)
                args.n_clusters = kv->trees->in_tree + 2 * index * kv->n_lanes;
        if (p->kind == DCI_GPU_LEARNED)
                args.transforms = kv->learned->transforms + index * kv->n_lanes * DCI_GPU_TRANSFORM_BYTES(kv->dim);
        if (p->weigh == DCI_GPU_WEIGH_KEPT) {
                args.lanes = dci_gpu_kv_lanes(kv, layer);
                args.pool = dci_gpu_kv_host_pool(kv, layer);
                args.tables = dci_gpu_kv_tables(kv);
        }
        return args;
}

static dci_gpu_select_args select_args(const dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score,
                                       size_t first)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        return (dci_gpu_select_args){.n_sequences = score->n_sequences,
                                     .n_heads = score->n_heads,
                                     .group = score->group,
                                     .group_shift = score->group_shift,
                                     .weigh = p->weigh,
                                     .n_parts = score->n_parts,
                                     .max_groups = score->max_groups,
                                     .stride = (int32_t)kv->stride,
                                     .drop = kv->shape.tail == DCI_KV_TAIL_LOWBIT,
                                     .none = kv->shape.select == DCI_KV_SELECT_NONE,
                                     .sizes = score->sizes,
                                     .rows = score->rows,
                                     .n_tokens = score->n_tokens,
                                     .n_grouped = score->n_grouped,
                                     .scores = p->scores,
                                     .parts = p->parts,
                                     .lasts = p->lasts + kv->layers[layer].index * kv->n_lists,
                                     .found = p->found,
                                     .n_found = p->n_found,
                                     .positions = p->positions + first * kv->row_lists * kv->stride,
                                     .counts = p->counts + first * kv->row_lists,
                                     .sink_end = p->header + first,
                                     .recent_begin = p->header + kv->step.n + first,
                                     .after = p->header + 2 * kv->step.n + first,
                                     .units = score->units,
                                     .order = score->order,
                                     .ids = dci_gpu_kv_store_chunks(kv, kv->ids, layer),
                                     .likely_groups = (int32_t)p->likely_groups,
                                     .head_lists = score->head_lists};
}

static void add_lists(const dci_gpu_kv *kv, const dci_gpu_score_args *score, dci_gpu_select_args *out)
{
        out->n_clusters = score->n_clusters;
        out->spans = score->summaries;
        out->spans.layer_at += kv->clusters->spans_offset;
        out->members = kv->tail->members;
        out->estimate_share = kv->shape.estimate_share;
}

dci_status dci_gpu_kv_select(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld)
{
        const size_t at_once = kv->planner.batch;
        for (size_t first = 0; first < kv->step.n; first += at_once) {
                const size_t left = kv->step.n - first, n = left < at_once ? left : at_once;
                const dci_gpu_score_args score = score_args(kv, layer, queries, ld, first, n);
                dci_gpu_select_args select = select_args(kv, layer, &score, first);
                if (kv->planner.clustered)
                        add_lists(kv, &score, &select);
                if (kv->schedule->on)
                        DCI_TRY(dci_gpu_kv_schedule_plan(kv, layer, &score, &select));
                else
                        DCI_TRY(dci_gpu_kv_choose(kv, kv->step.stream, &score, &select));
                DCI_TRY(dci_gpu_kv_tail_lowbit(kv, layer, &score, first));
                DCI_TRY(dci_gpu_kv_tail_clusters(kv, layer, &score, &select, first));
        }
        return DCI_OK;
}
