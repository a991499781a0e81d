/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What a device can plan. */
#include "core/internal.h"

#include "kv/stages/stages.h"
#include "offload/clusters.h"
#include "offload/learned_codes.h"
#include "offload/offload_internal.h"
#include "offload/orders.h"
#include "offload/planner.h"
#include "offload/preselect.h"
#include "offload/prompt_kmeans.h"
#include "offload/schedule.h"
#include "offload/tail.h"
#include "offload/tree.h"
#include "offload/votes.h"

#define UPLOAD_BYTES ((size_t)4 << 20)
#define SCORE_BYTES ((size_t)256 << 20) /* of a batch of sequences; at least one */

/* --- what is supported -------------------------------------------------------------------------------------------- */

static dci_status unsupported(const char *what)
{
        return dci_fail(DCI_ERR_UNSUPPORTED, "the device cannot plan with %s", what);
}

static int32_t summary_kind(const dci_kv_config *c)
{
        if (c->group == DCI_KV_GROUP_TOKEN && c->summary == DCI_KV_SUMMARY_CODES)
                return DCI_GPU_CODES;
        if (c->group == DCI_KV_GROUP_TOKEN && c->summary == DCI_KV_SUMMARY_LEARNED)
                return DCI_GPU_LEARNED;
        if (c->group == DCI_KV_GROUP_TOKEN && c->summary == DCI_KV_SUMMARY_VOTES)
                return DCI_GPU_VOTES;
        if (c->group == DCI_KV_GROUP_TREE) /* of its keys and means */
                return DCI_GPU_CODES;
        if (c->group != DCI_KV_GROUP_PAGE && !dci_gpu_kv_has_clusters(c) && !dci_gpu_kv_has_orders(c))
                return 0;
        return c->summary == DCI_KV_SUMMARY_MEAN       ? DCI_GPU_MEANS
               : c->summary == DCI_KV_SUMMARY_MINMAX   ? DCI_GPU_MINMAX
               : c->summary == DCI_KV_SUMMARY_CUBOID   ? DCI_GPU_CUBOIDS
               : c->summary == DCI_KV_SUMMARY_MEAN_STD ? DCI_GPU_DEVIATIONS
                                                       : 0;
}

dci_status dci_gpu_kv_can_plan(const dci_kv_config *shape, const dci_gpu_kv_config *config)
{
        if (shape->select == DCI_KV_SELECT_ALL)
                return DCI_OK;
        if (config->gather != DCI_GPU_GATHER_MAPPED && config->gather != DCI_GPU_GATHER_DIRECT)
                return unsupported("this gather, which the host does");
        if (dci_gpu_kv_has_trees(shape))
                DCI_TRY(dci_gpu_kv_can_search(shape));
        else if (shape->select != DCI_KV_SELECT_SCAN && !dci_gpu_kv_has_orders(shape) &&
                 (shape->select != DCI_KV_SELECT_NONE || shape->tail != DCI_KV_TAIL_LOWBIT))
                return unsupported("this choice: it is not by scores of all groups");
        if (summary_kind(shape) == 0)
                return unsupported("this summary: it is not codes or votes of tokens, or rows of pages or clusters");
        if (summary_kind(shape) == DCI_GPU_LEARNED &&
            4 * shape->dim_k * (size_t)shape->key_bits > DCI_GPU_LEARNED_BLOCK)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the device cannot plan with learned codes of %d bits and %zu elements",
                                (int)shape->key_bits, shape->dim_k);
        if (summary_kind(shape) == DCI_GPU_CODES && shape->key_bits != 4 && shape->key_bits != 2 &&
            shape->key_bits != 1)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the device cannot plan with codes of %d bits, but of 4, 2 and 1",
                                (int)shape->key_bits);
        if (shape->query_head_lists != 0 && dci_gpu_kv_has_trees(shape))
                return unsupported("query_head_lists and trees: their lists are by kv head");
        if (shape->query_head_lists != 0 && shape->summary == DCI_KV_SUMMARY_VOTES)
                return unsupported("query_head_lists and votes: the mean query of a group votes");
        if (shape->combine == DCI_KV_COMBINE_EACH && shape->query_head_lists == 0 && !dci_gpu_kv_has_trees(shape))
                return unsupported("lists that heads fill in turns");
        if (shape->verify > 1.0)
                return unsupported("verification by keys");
        DCI_TRY(dci_gpu_kv_can_preselect(shape));
        if (shape->frozen_prompt != 0 || shape->resident_bytes > 0)
                return unsupported(shape->frozen_prompt != 0 ? "a frozen prompt" : "sequences that are kept in full");
        DCI_TRY(dci_gpu_kv_can_schedule(shape));
        return dci_gpu_kv_can_tail(shape, config->max_tokens);
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

static size_t n_formed(const dci_kv *host, const dci_kv_layer *layer)
{
        dci_gpu_kv *kv = host->former.owner;
        const dci_gpu_kv_row *row = dci_gpu_kv_find(kv, layer->sequence->id);
        const dci_gpu_kv_swapped *swapped = dci_gpu_kv_find_swapped(kv, layer->sequence->id);
        /* neither: the caller opened it on the host, past this library */
        return row != NULL ? row->n_formed : swapped != NULL ? swapped->row.n_formed : 0;
}

/* The end of a prompt still fits learned transforms on the host, and encodes there what the device does not. */
static void init_former(dci_gpu_kv *kv)
{
        dci_kv_former *former = &kv->host->former;
        former->host_plans = false;
        if (kv->planner.trees) /* workers build them, and the host has all of them */
                return;
        former->n_formed = n_formed;
        former->owner = kv;
        if (kv->planner.kind != DCI_GPU_LEARNED && !kv->planner.ordered)
                former->build = NULL;
        if (dci_gpu_kv_encodes(kv))
                dci_gpu_kv_learned_former(former);
}

void dci_gpu_kv_planner_init(dci_gpu_kv *kv)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const dci_kv_config *c = &kv->shape;
        if (kv->n_sparse == 0 || kv->config.planner == DCI_GPU_PLAN_HOST)
                return;
        p->on = true;
        p->ordered = dci_gpu_kv_has_orders(c);
        p->kind = summary_kind(c);
        p->group_shift = c->group == DCI_KV_GROUP_PAGE || p->ordered ? kv->page_shift : 0;
        p->weigh = !dci_kv_combines_by_softmax(kv->host) ? DCI_GPU_WEIGH_EVEN
                   : c->group == DCI_KV_GROUP_TOKEN      ? DCI_GPU_WEIGH_KEPT
                                                         : DCI_GPU_WEIGH_GROUPS;
        p->trees = dci_gpu_kv_has_trees(c);
        init_former(kv);
        while (kv->layers[p->first_layer].dense)
                p->first_layer++;
        p->clustered = dci_gpu_kv_has_clusters(c);
        size_t most = kv->config.max_tokens >> p->group_shift;
        if (p->clustered)
                most = dci_gpu_kv_clusters_init(kv, &p->likely_groups);
        else if (p->ordered)
                most = dci_gpu_kv_orders_init(kv);
        else if (p->trees)
                most = dci_gpu_kv_trees_init(kv);
        else
                dci_gpu_kv_store_init(kv, kv->summaries, kv->host->summary_bytes + kv->host->tail_bytes,
                                      kv->config.max_tokens);
        const size_t coding = dci_gpu_kv_coding_bytes(kv);
        p->upload_bytes = kv->summaries->chunk_bytes > UPLOAD_BYTES
                                  ? kv->summaries->chunk_bytes
                                  : UPLOAD_BYTES; /* which also fits two centres of all heads */
        p->upload_bytes = coding > p->upload_bytes ? coding : p->upload_bytes;
        most = dci_gpu_kv_votes_init(kv, most);
        p->max_groups = (dci_gpu_kv_preselect_init(kv, most) + 64) / 32 * 32;
        p->likely_groups = p->clustered ? (p->likely_groups + 64) / 32 * 32 : p->max_groups;
        const size_t each = c->n_query_heads * (p->max_groups + p->preselect.max_means + p->tree.max_pages) *
                                    sizeof(float) +
                            dci_gpu_kv_votes_bytes(kv),
                     some = SCORE_BYTES / each;
        p->batch = some == 0 ? 1 : some < kv->config.max_sequences ? some : kv->config.max_sequences;
        if (p->batch > DCI_GPU_MAX_LISTS / kv->row_lists)
                p->batch = DCI_GPU_MAX_LISTS / kv->row_lists;
        dci_gpu_kv_schedule_init(kv);
}

static dci_status upload_signs(dci_gpu_kv *kv, uint64_t seed, float *to)
{
        dci_rotation rotation;
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        dci_rotation_init(&rng, kv->dim, kv->planner.upload, &rotation);
        DCI_TRY(kv->ops->copy(kv->gpu, kv->side, to, kv->planner.upload, dci_rotation_bytes(kv->dim)));
        return kv->ops->stream_wait(kv->gpu, kv->side);
}

dci_status dci_gpu_kv_planner_begin(dci_gpu_kv *kv)
{
        dci_gpu_kv_planner *p = &kv->planner;
        if (!p->on)
                return DCI_OK;
        DCI_TRY(kv->ops->fill(kv->gpu, kv->side, p->n_found, 0, 2 * p->batch * kv->row_lists * sizeof *p->n_found));
        if (p->trees)
                DCI_TRY(kv->ops->fill(kv->gpu, kv->side, p->tree.arrived, 0,
                                      p->batch * kv->shape.n_kv_heads * sizeof *p->tree.arrived));
        if (p->trees)
                DCI_TRY(kv->ops->fill(kv->gpu, kv->side, kv->trees->in_tree, 0,
                                      2 * kv->n_sparse * kv->n_lanes * sizeof *kv->trees->in_tree));
        /* One unit more than there may be is read. */
        if (p->preselect.wanted > 0)
                DCI_TRY(kv->ops->fill(kv->gpu, kv->side, p->preselect.units, 0,
                                      p->batch * kv->row_lists * p->preselect.stride * sizeof *p->preselect.units));
        /* Layers that use another one's lists get no centres from the host. */
        if (p->kind == DCI_GPU_CODES)
                DCI_TRY(kv->ops->fill(kv->gpu, kv->side, p->centres, 0,
                                      kv->n_sparse * kv->n_lanes * kv->dim * sizeof *p->centres));
        DCI_TRY(dci_gpu_kv_votes_begin(kv));
        DCI_TRY(dci_gpu_kv_schedule_begin(kv));
        DCI_TRY(dci_gpu_kv_orders_begin(kv));
        if (kv->shape.tail != DCI_KV_TAIL_DROP)
                DCI_TRY(kv->ops->fill(kv->gpu, kv->side, kv->tail->arrived, 0,
                                      kv->n_lists * sizeof *kv->tail->arrived));
        if (dci_gpu_kv_coded(p) || p->votes.on)
                DCI_TRY(upload_signs(kv, kv->shape.seed, p->signs));
        if (kv->shape.tail == DCI_KV_TAIL_LOWBIT)
                DCI_TRY(upload_signs(kv, ~kv->shape.seed, p->value_signs)); /* as dci_kv_begin_values */
        return kv->ops->stream_wait(kv->gpu, kv->side);
}

void dci_gpu_kv_planner_destroy(dci_gpu_kv *kv)
{
        dci_gpu_kv_store_destroy(kv, kv->summaries);
        dci_gpu_kv_store_destroy(kv, kv->ids);
        dci_gpu_kv_orders_destroy(kv);
        dci_gpu_kv_schedule_destroy(kv);
        dci_gpu_kv_prompt_kmeans_destroy(kv);
}
