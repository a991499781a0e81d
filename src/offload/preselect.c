/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Preselection on the device. */
#include "core/internal.h"

#include "kv/geometry.h"
#include "kv/stages/summary_codes.h"
#include "offload/preselect.h"
#include "offload/state.h"
#include "offload/votes.h"

_Static_assert(DCI_GPU_UNIT == DCI_CODE_UNIT, "units of the device are those of the codes");

dci_status dci_gpu_kv_can_preselect(const dci_kv_config *shape)
{
        const size_t most = DCI_GPU_FOUND - 1, n = dci_kv_preselected(shape);
        if (shape->preselect <= 1.0)
                return DCI_OK;
        if (shape->summary != DCI_KV_SUMMARY_CODES)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the device cannot plan with preselect and learned codes");
        if (n > most)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the device cannot plan with preselect of %zu tokens, but of up to %zu",
                                n * DCI_GPU_UNIT, most * DCI_GPU_UNIT);
        return DCI_OK;
}

size_t dci_gpu_kv_preselect_init(dci_gpu_kv *kv, size_t most)
{
        dci_gpu_kv_preselect *s = &kv->planner.preselect;
        const size_t per = kv->shape.preselect_tokens;
        s->wanted = dci_kv_preselected(&kv->shape);
        if (s->wanted == 0)
                return most;
        while ((size_t)1 << s->mean_shift < per)
                s->mean_shift++;
        s->max_means = (most / per + 64) / 32 * 32;
        s->stride = s->wanted + 1;
        return s->stride * DCI_GPU_UNIT < most ? s->stride * DCI_GPU_UNIT : most;
}

dci_gpu_units dci_gpu_kv_units(const dci_gpu_kv *kv, size_t first, size_t n)
{
        const dci_gpu_kv_preselect *s = &kv->planner.preselect;
        if (kv->planner.votes.on)
                return dci_gpu_kv_votes_units(kv);
        const size_t longest = dci_gpu_kv_longest(kv, first, n);
        /* What is in sink and window is no candidate. */
        if (s->wanted == 0 || longest <= kv->shape.sink + kv->shape.window + s->wanted * DCI_GPU_UNIT)
                return (dci_gpu_units){.lists = NULL};
        return (dci_gpu_units){.lists = s->units,
                               .n_scored = s->n_scored,
                               .stride = (int32_t)s->stride,
                               .wanted = (int32_t)s->wanted,
                               .room = (int32_t)dci_kv_max_room(kv->host)};
}

dci_status dci_gpu_kv_score(dci_gpu_kv *kv, void *stream, const dci_gpu_score_args *score)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const dci_gpu_kv_preselect *s = &p->preselect;
        dci_gpu_score_args means = *score, tokens = *score;
        if (score->units.lists == NULL)
                return kv->ops->score(kv->gpu, stream, score);
        const size_t n_lists = (size_t)score->n_sequences * kv->row_lists;
        means.units.of_means = 1;
        means.summaries.layer_at += DCI_GPU_CHUNK * dci_gpu_kv_group_bytes(kv);
        means.group_shift = s->mean_shift;
        means.n_parts = dci_gpu_score_parts(kv->gpu, n_lists, s->max_means, dci_gpu_kv_group_bytes(kv));
        means.max_groups = (int32_t)s->max_means;
        means.lanes.keys = NULL; /* kept tokens do not compete */
        means.scores = s->scores;
        means.parts = s->parts;
        DCI_TRY(kv->ops->score(kv->gpu, stream, &means));
        const dci_gpu_select_args units = {.n_sequences = score->n_sequences,
                                           .n_heads = score->n_heads,
                                           .group = score->group,
                                           .group_shift = means.group_shift,
                                           .weigh = DCI_GPU_WEIGH_GROUPS,
                                           .n_parts = means.n_parts,
                                           .max_groups = means.max_groups,
                                           .stride = means.units.stride,
                                           .due_is = score->due_is,
                                           .sizes = score->sizes,
                                           .rows = score->rows,
                                           .n_tokens = score->n_tokens,
                                           .n_grouped = score->n_grouped,
                                           .due = score->due,
                                           .scores = means.scores,
                                           .parts = means.parts,
                                           .found = p->found,
                                           .n_found = p->n_found,
                                           .units = means.units,
                                           .head_lists = score->head_lists};
        DCI_TRY(kv->ops->select(kv->gpu, stream, &units));
        tokens.fresh = 0;
        return kv->ops->score(kv->gpu, stream, &tokens);
}

/* Members of pages are where a cluster's would be. */
static dci_status search(dci_gpu_kv *kv, void *stream, const dci_gpu_score_args *score,
                         const dci_gpu_select_args *select)
{
        const dci_gpu_kv_tree_plan *t = &kv->planner.tree;
        const size_t most = INT32_MAX / 2, view = kv->shape.tree_field_of_view,
                     n_lists = (size_t)score->n_sequences * kv->shape.n_kv_heads;
        /* One less: the nodes of a list have a multiprocessor for themselves when the blocks of its pages begin. */
        const int32_t parts = dci_gpu_score_parts(kv->gpu, n_lists, t->page_rows, dci_gpu_kv_group_bytes(kv));
        const dci_gpu_tree_args args = {.score = *score,
                                        .select = *select,
                                        .pages = select->ids,
                                        .in_tree = score->n_clusters,
                                        .page_shift = kv->page_shift,
                                        .field_of_view = (int32_t)(view < most ? view : most),
                                        .page_parts = parts > 2 ? parts - 1 : parts,
                                        .max_pages = (int32_t)t->max_pages,
                                        .opened = t->opened,
                                        .page_scores = t->page_scores,
                                        .page_numbers = t->page_numbers,
                                        .arrived = t->arrived};
        return kv->ops->tree(kv->gpu, stream, &args);
}

dci_status dci_gpu_kv_choose(dci_gpu_kv *kv, void *stream, const dci_gpu_score_args *score,
                             const dci_gpu_select_args *select)
{
        if (kv->planner.trees)
                return search(kv, stream, score, select);
        DCI_TRY(kv->planner.votes.on ? dci_gpu_kv_vote(kv, stream, score) : dci_gpu_kv_score(kv, stream, score));
        return kv->ops->select(kv->gpu, stream, select);
}
