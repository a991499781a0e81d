/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * First stage: clusters, by k-means over the keys of one head (dci/kmeans.h), one thread to a head. By preset as
 * ClusterKV has it (cosine to the mean of raw keys, 20 rounds) or as RetroInfer (cosine of keys less their mean, within
 * segments, 10 rounds).
 */
#include "core/internal.h"

#include <string.h>

#include "cluster/kmeans_internal.h"
#include "kv/clusters.h"

size_t dci_kv_count_clusters(const dci_kv *kv, size_t n)
{
        const size_t k = n / kv->config.cluster_tokens;
        return k > 0 ? k : 1;
}

size_t dci_kv_cluster_parts(const dci_kv *kv, size_t n)
{
        return (dci_kv_count_clusters(kv, n) - 1) / DCI_KV_CLUSTERS_TOGETHER + 1;
}

size_t dci_kv_cluster_problem(const dci_kv *kv, size_t layer, size_t head, size_t part)
{
        return (part * kv->config.n_layers + layer) * kv->config.n_kv_heads + head;
}

/* With their parts, none of them empty. */
static size_t most(const dci_kv *kv, size_t n)
{
        const size_t parts = kv->config.cluster_most > 0 ? n / kv->config.cluster_most : 0,
                     k = dci_kv_count_clusters(kv, n);
        return k + parts < n ? k + parts : n;
}

typedef struct problem {
        dci_kmeans_config config;
        dci_kmeans_input input;
} problem;

static problem problem_of(const dci_kv *kv, size_t n, const void *keys)
{
        const dci_kv_config *c = &kv->config;
        const bool raw = c->cluster_by == DCI_KV_CLUSTER_RAW;
        const size_t segment = c->cluster_segment < n ? c->cluster_segment : 0;
        return (problem){.config = {.struct_size = sizeof(dci_kmeans_config),
                                    .dim = kv->dim_k,
                                    .n_clusters = dci_kv_count_clusters(kv, n),
                                    .metric = DCI_METRIC_COSINE,
                                    .dtype = c->dtype,
                                    .init = DCI_KMEANS_INIT_RANDOM,
                                    .centroid = raw ? DCI_CENTROID_MEAN : DCI_CENTROID_UNIT,
                                    .zero_rows = DCI_ZERO_KEEP,
                                    .subtract_mean = raw ? DCI_MEAN_NONE : DCI_MEAN_OWN,
                                    .n_iter = c->cluster_rounds,
                                    .n_redo = 1,
                                    .seed = c->seed,
                                    .segment_rows = segment},
                         .input = {.struct_size = sizeof(dci_kmeans_input),
                                   .n_problems = 1,
                                   .n = n,
                                   .rows = keys,
                                   .ld = kv->dim_k,
                                   .problem_ld = n * kv->dim_k}};
}

/* On overflow, more than can be allocated. */
static size_t work_bytes(const dci_kv *kv, size_t n)
{
        const size_t n_parts = dci_kv_cluster_parts(kv, n), longest = (n + n_parts - 1) / n_parts;
        const problem p = problem_of(kv, longest > 0 ? longest : 1, NULL);
        size_t n_bytes = SIZE_MAX / 4;
        (void)dci_km_bytes(kv->context, &p.config, &p.input, 1, 0, &n_bytes);
        return n_bytes;
}

/* Where the parts of a cluster of `size` members end, which begins at offsets[0]; returns how many there are. */
static size_t cut(const dci_kv *kv, size_t size, int32_t *offsets)
{
        const size_t limit = kv->config.cluster_most > 0 ? kv->config.cluster_most : size;
        const size_t n = (size + limit - 1) / limit, each = size / n, longer = size % n;
        for (size_t i = 0; i < n; i++)
                offsets[i + 1] = offsets[i] + (int32_t)(each + (i < longer));
        return n;
}

/* Consecutive tokens: keys too long for k-means still get groups. */
static void divide_evenly(dci_kv_clusters *batch, size_t head, int32_t *offsets, int32_t *ids)
{
        for (size_t g = 0; g <= batch->room; g++)
                offsets[g] = (int32_t)((uint64_t)batch->n * g / batch->room);
        for (size_t i = 0; i < batch->n; i++)
                ids[i] = (int32_t)(batch->first + i);
        batch->heads[head].n_groups = batch->room;
}

/* Finds the clusters of a part of a batch, of n candidates from number `first` of the batch on, and appends them.
 * False: keys are bad. */
static bool divide_part(dci_kv *kv, const dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, size_t part,
                        size_t first, size_t n, const void *keys, void *work)
{
        const problem p = problem_of(kv, n, keys);
        int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head) + batch->heads[head].n_groups,
                *ids = dci_kv_cluster_ids(kv, batch, head) + first;
        km_problem solved;
        dci_km_lay_out(kv->context, &p.config, &p.input, 1, 0, work, &solved);
        solved.number = dci_kv_cluster_problem(kv, layer->number, head, part);
        solved.alone = true;
        solved.begin = dci_km_seconds();
        solved.rows = keys;
        /* On one thread and without progress it fails by its rows alone. */
        dci_may_fail(true);
        dci_status status = dci_km_prepare(&solved);
        if (status == DCI_OK && solved.bad_kind == KM_BAD_NONE)
                status = dci_km_solve(&solved);
        dci_may_fail(false);
        if (status != DCI_OK || solved.bad_kind != KM_BAD_NONE)
                return false;
        for (size_t c = 0; c < solved.k; c++) { /* empty ones are left out */
                const size_t groups = dci_km_size(&solved, c) > 0 ? cut(kv, dci_km_size(&solved, c), offsets) : 0;
                offsets += groups;
                batch->heads[head].n_groups += groups;
        }
        for (size_t i = 0; i < n; i++)
                ids[i] = (int32_t)(batch->first + first) + solved.order[i];
        return true;
}

static void divide(dci_kv *kv, const dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, const void *keys,
                   void *work)
{
        const size_t n_parts = dci_kv_cluster_parts(kv, batch->n), row_bytes = kv->dim_k * kv->es;
        int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head), *ids = dci_kv_cluster_ids(kv, batch, head);
        bool good = true;
        offsets[0] = 0;
        batch->heads[head].n_groups = 0;
        for (size_t i = 0; i < n_parts && good; i++) {
                const size_t first = dci_kv_cluster_part(batch->n, n_parts, i),
                             n = dci_kv_cluster_part(batch->n, n_parts, i + 1) - first;
                good = divide_part(kv, layer, batch, head, i, first, n, (const unsigned char *)keys + first * row_bytes,
                                   work);
        }
        if (!good)
                divide_evenly(batch, head, offsets, ids);
}

const dci_kv_grouping dci_kv_group_cluster = {.kind = DCI_KV_GROUP_CLUSTER,
                                              .listed = true,
                                              .count = dci_kv_count_clustered,
                                              .members = dci_kv_members_clustered,
                                              .most = most,
                                              .work_bytes = work_bytes,
                                              .divide = divide};
