/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Clusters of a batch: found, and summarised, head by head. */
#include "core/internal.h"

#include <string.h>

#include "core/arena.h"
#include "kv/clustering.h"
#include "kv/lookup.h"
#include "kv/memory.h"
#include "kv/summaries.h"
#include "kv/worker.h"

/* Of an area: rows of a head, as they are stored; a tile of floats; what rows of summaries are made with; what dividing takes. */
typedef struct clustering {
        unsigned char *rows, *stage, *work;
        float *wide;
} clustering;

static size_t widest(const dci_kv *kv)
{
        return kv->dim_k > kv->dim_v ? kv->dim_k : kv->dim_v;
}

static size_t lay_out(const dci_kv *kv, size_t n, clustering *l, void *memory)
{
        const size_t mean = widest(kv) * (sizeof(double) + sizeof(float)), row = kv->stages->summary.put_bytes(kv);
        const dci_arena_part parts[] = {{n * widest(kv) * kv->es, &l->rows},
                                        {DCI_KV_TILE * widest(kv) * sizeof(float), &l->wide},
                                        {row > mean ? row : mean, &l->stage},
                                        {kv->stages->group.work_bytes(kv, n), &l->work}};
        return DCI_ARENA(parts, memory);
}

static clustering parts_of(const dci_kv *kv, size_t area)
{
        clustering l;
        lay_out(kv, kv->clustering_tokens, &l, kv->clustering.memory + area * kv->clustering.area_bytes);
        return l;
}

size_t dci_kv_clustering_bytes(const dci_kv *kv, size_t n)
{
        clustering l;
        return lay_out(kv, n, &l, NULL);
}

/* Areas for batches of n candidates: as many as there are for building, unless they exceed a quarter of the rows of so
 * many tokens in all layers, and DCI_KV_SCRATCH. */
static size_t areas_for(const dci_kv *kv, size_t n, size_t area_bytes)
{
        const double row = (double)(kv->dim_k + kv->dim_v) * (double)kv->es,
                     rows = (double)n * (double)kv->config.n_layers * (double)kv->config.n_kv_heads * row,
                     share = rows / 4.0 > (double)DCI_KV_SCRATCH ? rows / 4.0 : (double)DCI_KV_SCRATCH,
                     wanted = share / (double)area_bytes;
        const size_t there = kv->building.n_areas;
        return wanted < 1.0 ? 1 : wanted < (double)there ? (size_t)wanted : there;
}

dci_status dci_kv_clustering_ready(dci_kv *kv, size_t n)
{
        dci_kv_scratch scratch;
        DCI_TRY(dci_kv_build_ready(kv));
        if (kv->clustering.memory != NULL && n <= kv->clustering_tokens)
                return DCI_OK;
        const size_t n_bytes = dci_kv_clustering_bytes(kv, n);
        DCI_TRY(dci_kv_alloc_areas(kv, areas_for(kv, n, n_bytes), n_bytes, &scratch));
        dci_kv_jobs_wait(kv, NULL);
        dci_kv_free(kv, kv->clustering.memory, kv->clustering.n_areas * kv->clustering.area_bytes);
        kv->clustering = scratch;
        kv->clustering_tokens = n;
        dci_kv_areas_limit(kv, scratch.n_areas);
        return DCI_OK;
}

void dci_kv_clustering_shrink(dci_kv *kv)
{
        if (kv->clustering.memory == NULL || kv->clustering_tokens <= kv->config.cluster_every)
                return;
        pthread_mutex_lock(&kv->jobs_lock);
        const bool idle = kv->jobs == NULL;
        pthread_mutex_unlock(&kv->jobs_lock);
        if (!idle)
                return;
        dci_kv_free(kv, kv->clustering.memory, kv->clustering.n_areas * kv->clustering.area_bytes);
        kv->clustering = (dci_kv_scratch){NULL, 0, 0};
        kv->clustering_tokens = 0;
}

dci_status dci_kv_clusters_prepare(dci_kv *kv, dci_kv_layer *layer, size_t first, size_t n, size_t n_more,
                                   dci_kv_clusters **out)
{
        const dci_kv_grouping *group = &kv->stages->group;
        const size_t room = group->room != NULL ? group->room(kv, layer, first, n) : group->most(kv, n);
        DCI_TRY(dci_kv_clustering_ready(kv, n));
        DCI_TRY(dci_kv_clusters_ready(kv, layer, layer->n_batches + n_more));
        return dci_kv_clusters_alloc(kv, first, n, room, out);
}

/* Copies a batch's keys or values to contiguous memory. Tables of blocks may grow meanwhile, hence the lock. */
static void gather(dci_kv *kv, const dci_kv_layer *layer, const dci_kv_clusters *batch, size_t head, bool of_values,
                   unsigned char *out)
{
        const size_t n_bytes = (of_values ? kv->dim_v : kv->dim_k) * kv->es;
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0; i < batch->n; i += DCI_KV_TILE) {
                const size_t here = batch->n - i < DCI_KV_TILE ? batch->n - i : DCI_KV_TILE;
                dci_kv_rows_of(kv, layer, head, kv->config.sink + batch->first + i, here, of_values ? NULL : rows,
                               of_values ? rows : NULL);
                for (size_t r = 0; r < here; r++)
                        memcpy(out + (i + r) * n_bytes, rows[r], n_bytes);
        }
}

/* Writes one row per cluster: its summary, or the mean of its keys or values. */
static void put_rows(const dci_kv *kv, const dci_kv_clusters *batch, size_t head, const clustering *l, size_t dim,
                     bool of_summary, unsigned char *out, size_t row_bytes)
{
        const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head), *ids = dci_kv_cluster_ids(kv, batch, head);
        for (size_t g = 0; g < batch->heads[head].n_groups; g++) {
                const dci_kv_members members = {.rows = l->rows,
                                                .first = batch->first,
                                                .n = (size_t)(offsets[g + 1] - offsets[g]),
                                                .ids = ids + offsets[g],
                                                .wide = l->wide};
                if (of_summary)
                        kv->stages->summary.row(kv, &members, l->stage, out + g * row_bytes);
                else
                        dci_kv_mean_of_members(kv, &members, dim, l->stage, out + g * row_bytes);
        }
}

/* Expects the keys in the scratch. */
static void summarise(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, const clustering *l)
{
        put_rows(kv, batch, head, l, kv->dim_k, true, dci_kv_cluster_rows(kv, batch, head),
                 kv->stages->summary.width(kv) * kv->es);
        if (dci_kv_mean_key_bytes(kv) > 0)
                put_rows(kv, batch, head, l, kv->dim_k, false, dci_kv_cluster_means(kv, batch, head, false),
                         kv->dim_k * kv->es);
        if (dci_kv_mean_value_bytes(kv) == 0)
                return;
        gather(kv, layer, batch, head, true, l->rows);
        put_rows(kv, batch, head, l, kv->dim_v, false, dci_kv_cluster_means(kv, batch, head, true), kv->dim_v * kv->es);
}

void dci_kv_clusters_build(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, size_t area)
{
        const clustering l = parts_of(kv, area);
        gather(kv, layer, batch, head, false, l.rows);
        kv->stages->group.divide(kv, layer, batch, head, l.rows, l.work);
        summarise(kv, layer, batch, head, &l);
}

void dci_kv_clusters_summarise(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, size_t area)
{
        const clustering l = parts_of(kv, area);
        gather(kv, layer, batch, head, false, l.rows);
        summarise(kv, layer, batch, head, &l);
}
