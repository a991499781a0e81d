/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Tails of plans on the device. */
#include "core/internal.h"

#include "offload/chunk_store.h"
#include "offload/clusters.h"
#include "offload/pool.h"
#include "offload/tail.h"

/* The most pages of a list; and the parts that these must be split into. */
static size_t max_pages(size_t max_tokens, size_t page_tokens)
{
        return max_tokens / page_tokens + 1;
}

static size_t min_parts(size_t n_pages)
{
        return n_pages / DCI_GPU_MAX_PART_PAGES + 1;
}

static dci_status can_tail_clusters(const dci_kv_config *shape)
{
        if (shape->tail != DCI_KV_TAIL_SUMS || shape->summary != DCI_KV_SUMMARY_MEAN)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the device cannot plan with a tail over clusters but by their means");
        return DCI_OK;
}

dci_status dci_gpu_kv_can_tail(const dci_kv_config *shape, size_t max_tokens)
{
        if (shape->tail == DCI_KV_TAIL_DROP)
                return DCI_OK;
        if (dci_gpu_kv_has_clusters(shape))
                return can_tail_clusters(shape);
        if (shape->group != DCI_KV_GROUP_TOKEN ||
            (shape->summary != DCI_KV_SUMMARY_CODES && shape->summary != DCI_KV_SUMMARY_LEARNED))
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the device cannot plan with a tail but by codes of tokens or over clusters");
        if (shape->tail == DCI_KV_TAIL_LOWBIT && shape->value_bits == 8)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the device cannot plan with values of 8 bits, but of 4, 2 and 1");
        if (shape->tail == DCI_KV_TAIL_SUMS && min_parts(max_pages(max_tokens, shape->page_tokens)) > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the device cannot plan with a tail by means of pages of %zu for max_tokens of %zu",
                                shape->page_tokens, max_tokens);
        return DCI_OK;
}

/* The distance of mean values from mean keys (kv/stages/tail_sums.c). */
static size_t means_bytes(const dci_gpu_kv *kv)
{
        return dci_lines(DCI_GPU_CHUNK / kv->shape.page_tokens * kv->row_bytes);
}

/* --- building ----------------------------------------------------------------------------------------------------- */

void dci_gpu_kv_encode_values(const dci_gpu_kv *kv, dci_gpu_encode_args *args)
{
        if (kv->shape.tail != DCI_KV_TAIL_LOWBIT)
                return;
        args->value_bits = kv->shape.value_bits;
        args->tail_at = (int32_t)kv->host->summary_bytes;
        args->value_step = args->lane_step;
        args->value_signs = kv->planner.value_signs;
        args->value_centres = kv->planner.value_centres;
}

dci_status dci_gpu_kv_build_means(dci_gpu_kv *kv, const dci_gpu_encode_args *codes)
{
        dci_gpu_encode_args args = *codes;
        if (kv->shape.tail != DCI_KV_TAIL_SUMS)
                return DCI_OK;
        args.kind = DCI_GPU_MEANS;
        args.group_shift = kv->page_shift;
        args.chunks.layer_at += kv->host->summary_bytes;
        DCI_TRY(kv->ops->encode(kv->gpu, kv->step.stream, &args));
        args.chunks.layer_at += means_bytes(kv);
        args.lanes.keys = args.lanes.values;
        return kv->ops->encode(kv->gpu, kv->step.stream, &args);
}

void dci_gpu_kv_encode_prompt_values(const dci_gpu_kv *kv, size_t layer, const dci_kv_rows *rows,
                                     dci_gpu_encode_prompt_args *args)
{
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        const size_t token = (size_t)(args->keys - (const unsigned char *)rows->keys) / args->key_token;
        args->value_token = rows->value_token_stride * kv->es;
        args->value_head = rows->value_head_stride * kv->es;
        args->values = (const unsigned char *)rows->values + token * args->value_token;
        if (kv->shape.tail != DCI_KV_TAIL_LOWBIT)
                return;
        args->value_bits = kv->shape.value_bits;
        args->tail_at = (int32_t)kv->host->summary_bytes;
        args->value_signs = kv->planner.value_signs;
        args->value_centres = kv->planner.value_centres + at->index * kv->n_lanes * kv->dim;
}

dci_status dci_gpu_kv_build_prompt_means(dci_gpu_kv *kv, const dci_gpu_encode_prompt_args *codes)
{
        dci_gpu_encode_prompt_args args = *codes;
        if (kv->shape.tail != DCI_KV_TAIL_SUMS)
                return DCI_OK;
        args.kind = DCI_GPU_MEANS;
        args.group_shift = kv->page_shift;
        args.chunks.layer_at += kv->host->summary_bytes;
        DCI_TRY(kv->ops->encode_prompt(kv->gpu, kv->step.stream, &args));
        args.chunks.layer_at += means_bytes(kv);
        args.keys = args.values;
        args.key_token = args.value_token;
        args.key_head = args.value_head;
        return kv->ops->encode_prompt(kv->gpu, kv->step.stream, &args);
}

/* --- attending ---------------------------------------------------------------------------------------------------- */

/* The fewest parts, such that no part has more pages than the kernel has bits for. */
static size_t min_list_parts(const dci_gpu_kv *kv)
{
        return kv->shape.tail == DCI_KV_TAIL_SUMS && !kv->planner.clustered
                       ? min_parts(max_pages(kv->config.max_tokens, kv->shape.page_tokens))
                       : 1;
}

/* The parts of a list: about two in all for each multiprocessor. */
static int32_t count_parts(const dci_gpu_kv *kv, size_t n_sequences)
{
        const size_t n = 2 * (size_t)kv->gpu->info.multiprocessors / (n_sequences * kv->row_lists),
                     fewest = min_list_parts(kv);
        return (int32_t)(n < fewest ? fewest : n > DCI_GPU_MAX_PARTS ? DCI_GPU_MAX_PARTS : n);
}

/* Of clusters: each part has at least as many as a block reads at a time, and there are no more parts than one round
 * merges, unless each would have very many. */
static int32_t count_cluster_parts(const dci_gpu_kv *kv, size_t n_sequences)
{
        const size_t most = (size_t)count_parts(kv, n_sequences), n_clusters = kv->planner.likely_groups;
        const size_t few = n_clusters / 256 + 1, n = few < 16 ? few : 16, enough = n_clusters / 1024 + 1;
        return (int32_t)(most < n ? most : enough < n ? n : most < enough ? most : enough);
}

bool dci_gpu_kv_tails_clusters(const dci_gpu_kv *kv)
{
        return kv->planner.clustered && kv->shape.tail == DCI_KV_TAIL_SUMS;
}

size_t dci_gpu_kv_tail_floats(const dci_gpu_kv *kv)
{
        const size_t parts = 2 * (size_t)kv->gpu->info.multiprocessors + kv->n_lists * min_list_parts(kv);
        return kv->shape.tail == DCI_KV_TAIL_DROP ? 0 : parts * kv->group * (kv->dim + 2);
}

dci_status dci_gpu_kv_tail_lowbit(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score, size_t first)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t of_queries = first * kv->shape.n_query_heads;
        if (kv->shape.tail != DCI_KV_TAIL_LOWBIT)
                return DCI_OK;
        const dci_gpu_tail_args args = {.n_sequences = score->n_sequences,
                                        .n_heads = score->n_heads,
                                        .group = score->group,
                                        .dim = score->dim,
                                        .bits = kv->shape.value_bits,
                                        .n_parts = count_parts(kv, (size_t)score->n_sequences),
                                        .max_groups = score->max_groups,
                                        .head_lists = score->head_lists,
                                        .tail_at = (int32_t)kv->host->summary_bytes,
                                        .sizes = score->sizes,
                                        .rows = score->rows,
                                        .n_tokens = score->n_tokens,
                                        .n_grouped = score->n_grouped,
                                        .scores = score->scores,
                                        .chunks = score->summaries,
                                        .signs = p->value_signs,
                                        .centres = p->value_centres + kv->layers[layer].index * kv->n_lanes * kv->dim,
                                        .partial = kv->tail->partial,
                                        .arrived = kv->tail->arrived,
                                        .out = kv->tail->out + of_queries * kv->dim,
                                        .lse = kv->tail->lse + of_queries};
        return kv->ops->tail(kv->gpu, kv->step.stream, &args);
}

dci_status dci_gpu_kv_tail_clusters(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score,
                                    const dci_gpu_select_args *select, size_t first)
{
        const size_t of_queries = first * kv->shape.n_query_heads, n = (size_t)score->n_sequences;
        if (!dci_gpu_kv_tails_clusters(kv))
                return DCI_OK;
        const dci_gpu_tail_clusters_args args = {.n_sequences = score->n_sequences,
                                                 .n_heads = score->n_heads,
                                                 .group = score->group,
                                                 .dim = score->dim,
                                                 .dtype = score->dtype,
                                                 .query_dtype = score->query_dtype,
                                                 .n_parts = count_cluster_parts(kv, n),
                                                 .max_groups = score->max_groups,
                                                 .scale = score->scale,
                                                 .early = n == kv->step.n,
                                                 .values_at = (uint32_t)kv->clusters->values_offset,
                                                 .spans_at = (uint32_t)kv->clusters->spans_offset,
                                                 .head_lists = score->head_lists,
                                                 .sizes = score->sizes,
                                                 .queries = score->queries,
                                                 .query_ld = score->query_ld,
                                                 .rows = score->rows,
                                                 .n_tokens = score->n_tokens,
                                                 .n_grouped = score->n_grouped,
                                                 .n_clusters = score->n_clusters,
                                                 .scores = score->scores,
                                                 .members = select->members,
                                                 .clusters = score->summaries,
                                                 .ids = select->ids,
                                                 .lanes = dci_gpu_kv_lanes(kv, layer),
                                                 .pool = dci_gpu_kv_host_pool(kv, layer),
                                                 .tables = dci_gpu_kv_tables(kv),
                                                 .partial = kv->tail->partial,
                                                 .arrived = kv->tail->arrived,
                                                 .out = kv->tail->out + of_queries * kv->dim,
                                                 .lse = kv->tail->lse + of_queries};
        kv->tail->of_plan = args;
        kv->tail->waits = args.early != 0;
        return kv->tail->waits ? DCI_OK : kv->ops->tail_clusters(kv->gpu, kv->step.stream, &args);
}

dci_status dci_gpu_kv_tail_planned(dci_gpu_kv *kv, const void *queries, size_t ld)
{
        if (!kv->tail->waits)
                return DCI_OK;
        kv->tail->of_plan.queries = queries;
        kv->tail->of_plan.query_ld = ld;
        return kv->ops->tail_clusters(kv->gpu, kv->step.stream, &kv->tail->of_plan);
}

dci_status dci_gpu_kv_tail_sums(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        if (kv->shape.tail != DCI_KV_TAIL_SUMS || kv->planner.clustered)
                return DCI_OK;
        const bool whole = kv->shape.sums_whole != 0;
        const int32_t *slots = kv->answer + 3 * kv->config.max_sequences + kv->n_lists;
        const dci_gpu_tail_sums_args args = {.n_sequences = (int32_t)kv->step.n,
                                             .n_heads = (int32_t)kv->shape.n_kv_heads,
                                             .group = (int32_t)kv->group,
                                             .dim = (int32_t)kv->dim,
                                             .dtype = (int32_t)kv->shape.dtype,
                                             .query_dtype = (int32_t)kv->shape.query_dtype,
                                             .page_shift = kv->page_shift,
                                             .whole = whole,
                                             .n_parts = count_parts(kv, kv->step.n),
                                             .max_pages =
                                                     (int32_t)max_pages(kv->config.max_tokens, kv->shape.page_tokens),
                                             .stride = (int32_t)kv->stride,
                                             .scale = (float)kv->shape.scale,
                                             .keys_at = (uint32_t)kv->host->summary_bytes,
                                             .values_at = (uint32_t)(kv->host->summary_bytes + means_bytes(kv)),
                                             .head_lists = (int32_t)kv->head_lists,
                                             .sizes = dci_gpu_kv_sizes(kv),
                                             .queries = queries,
                                             .query_ld = ld,
                                             .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS),
                                             .n_tokens = dci_gpu_kv_record(kv, DCI_GPU_KV_AFTER),
                                             .n_grouped = dci_gpu_kv_record(kv, DCI_GPU_KV_TO),
                                             .chunks = dci_gpu_kv_store_chunks(kv, kv->summaries, layer),
                                             .positions = p->positions,
                                             .counts = p->counts,
                                             .slots = whole ? NULL : slots,
                                             .lanes = dci_gpu_kv_lanes(kv, layer),
                                             .pool = dci_gpu_kv_host_pool(kv, layer),
                                             .tables = dci_gpu_kv_tables(kv),
                                             .partial = kv->tail->partial,
                                             .arrived = kv->tail->arrived,
                                             .out = kv->tail->out,
                                             .lse = kv->tail->lse};
        return kv->ops->tail_sums(kv->gpu, kv->step.stream, &args);
}
