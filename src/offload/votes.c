/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Votes on the device. */
#include "core/internal.h"

#include "kv/stages/summary_votes.h"
#include "offload/votes.h"

_Static_assert(DCI_GPU_VOTE_BINS > DCI_VOTE_TIERS * DCI_GPU_MAX_DIM / DCI_VOTE_BLOCK + 1,
               "votes have a bin each, and one is more");

/* Shares fall as sequences grow: there they are wanted most. */
static size_t most_scores(const dci_kv_config *c, size_t most)
{
        const size_t ends[] = {4999, 9999, 29999, most};
        size_t n = 0;
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
                const size_t here = dci_kv_voted(c, ends[i] < most ? ends[i] : most);
                n = here > n ? here : n;
        }
        return n;
}

size_t dci_gpu_kv_votes_init(dci_gpu_kv *kv, size_t most)
{
        dci_gpu_kv_votes *v = &kv->planner.votes;
        if (kv->planner.kind != DCI_GPU_VOTES)
                return most;
        v->on = true;
        v->n_blocks = kv->dim / DCI_VOTE_BLOCK;
        v->max_ranges = (most + DCI_GPU_VOTE_RANGE - 1) / DCI_GPU_VOTE_RANGE;
        v->stride = most_scores(&kv->shape, most);
        return v->stride;
}

size_t dci_gpu_kv_votes_bytes(const dci_gpu_kv *kv)
{
        const dci_gpu_kv_votes *v = &kv->planner.votes;
        return kv->shape.n_kv_heads * (v->max_ranges * (DCI_GPU_VOTE_RANGE + DCI_GPU_VOTE_BINS * sizeof *v->at_least) +
                                       v->stride * sizeof *v->lists);
}

dci_status dci_gpu_kv_votes_begin(dci_gpu_kv *kv)
{
        const dci_gpu_kv_votes *v = &kv->planner.votes;
        return v->on ? kv->ops->fill(kv->gpu, kv->side, v->counted, 0,
                                     kv->n_sparse * kv->n_lanes * v->n_blocks * sizeof *v->counted)
                     : DCI_OK;
}

/* Numbers of a row in all layers. */
static size_t row_counted(const dci_gpu_kv *kv)
{
        return kv->n_sparse * kv->shape.n_kv_heads * kv->planner.votes.n_blocks;
}

dci_status dci_gpu_kv_votes_forget(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_gpu_kv_votes *v = &kv->planner.votes;
        const size_t n = row_counted(kv);
        return v->on ? kv->ops->fill(kv->gpu, kv->side, v->counted + dci_gpu_kv_row_number(kv, row) * n, 0,
                                     n * sizeof *v->counted)
                     : DCI_OK;
}

dci_gpu_units dci_gpu_kv_votes_units(const dci_gpu_kv *kv)
{
        const dci_gpu_kv_votes *v = &kv->planner.votes;
        return (dci_gpu_units){.lists = v->lists, .n_scored = v->n_scored, .stride = (int32_t)v->stride, .singles = 1};
}

/* One for each range, as long as there may be so many. */
int32_t dci_gpu_kv_votes_parts(const dci_gpu_kv *kv)
{
        const size_t n = kv->planner.votes.max_ranges;
        return (int32_t)(n < DCI_GPU_MAX_PARTS ? n : DCI_GPU_MAX_PARTS);
}

/* Ranges of the step's longest list, or of the longest of a graph. */
static size_t count_ranges(const dci_gpu_kv *kv)
{
        return (dci_gpu_kv_longest(kv, 0, kv->step.n) + DCI_GPU_VOTE_RANGE - 1) / DCI_GPU_VOTE_RANGE;
}

dci_status dci_gpu_kv_vote(dci_gpu_kv *kv, void *stream, const dci_gpu_score_args *score)
{
        const dci_gpu_kv_votes *v = &kv->planner.votes;
        const size_t in_layer = kv->layers[kv->planner.planned_layer].index * kv->shape.n_kv_heads * v->n_blocks;
        const dci_gpu_vote_args args = {.score = *score,
                                        .vote_share = kv->shape.vote_share,
                                        .candidate_share = kv->shape.candidate_share,
                                        .least = (int32_t)dci_kv_max_room(kv->host),
                                        .max_ranges = (int32_t)v->max_ranges,
                                        .n_ranges = (int32_t)count_ranges(kv),
                                        .counts = v->counts + in_layer * DCI_VOTE_CODES,
                                        .counted = v->counted + in_layer,
                                        .row_counts = row_counted(kv) * DCI_VOTE_CODES,
                                        .row_counted = row_counted(kv),
                                        .queries = v->queries,
                                        .tables = v->tables,
                                        .votes = v->votes,
                                        .at_least = v->at_least,
                                        .having = v->having};
        return kv->ops->vote(kv->gpu, stream, &args);
}
