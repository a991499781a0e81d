/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Batches of clusters: memory, the parts of each head, and looking up groups. A batch's memory is allocated whole, with a part for each
 * head, so that heads can be worked on in parallel.
 */
#include "core/internal.h"

#include <string.h>

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/memory.h"

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Mean keys for the tail; those that rank may serve. */
size_t dci_kv_mean_key_bytes(const dci_kv *kv)
{
        return dci_kv_sums_of_lists(kv) && kv->stages->summary.kind != DCI_KV_SUMMARY_MEAN ? kv->dim_k * kv->es : 0;
}

size_t dci_kv_mean_value_bytes(const dci_kv *kv)
{
        return dci_kv_sums_of_lists(kv) ? kv->dim_v * kv->es : 0;
}

size_t dci_kv_cluster_bytes(const dci_kv *kv)
{
        return sizeof(int32_t) + kv->stages->summary.width(kv) * kv->es + dci_kv_mean_key_bytes(kv) +
               dci_kv_mean_value_bytes(kv);
}

static size_t header_bytes(const dci_kv *kv)
{
        return dci_lines(sizeof(dci_kv_clusters) + kv->config.n_kv_heads * sizeof(struct dci_kv_cluster_head));
}

dci_status dci_kv_clusters_alloc(dci_kv *kv, size_t first, size_t n, size_t room, dci_kv_clusters **out)
{
        dci_kv_clusters *batch, like = {.first = first, .n = n, .room = room};
        like.ids_at = dci_lines((room + 1) * sizeof(int32_t));
        like.rows_at = like.ids_at + dci_lines(n * sizeof(int32_t));
        like.mean_keys_at = like.rows_at + dci_lines(room * kv->stages->summary.width(kv) * kv->es);
        like.mean_values_at = like.mean_keys_at + dci_lines(room * dci_kv_mean_key_bytes(kv));
        like.head_bytes = like.mean_values_at + dci_lines(room * dci_kv_mean_value_bytes(kv));
        if (!dci_mul(kv->config.n_kv_heads, like.head_bytes, &like.n_bytes) ||
            !dci_add(like.n_bytes, header_bytes(kv), &like.n_bytes))
                return dci_fail(DCI_ERR_LIMIT, "groups of %zu tokens and %zu heads exceed the address space", n,
                                kv->config.n_kv_heads);
        DCI_TRY(dci_kv_alloc(kv, like.n_bytes, (void **)&batch));
        /* An order is large, and the workers that build it write all of it. */
        memset(batch, 0, dci_kv_reorders(kv) ? header_bytes(kv) : like.n_bytes);
        memcpy(batch, &like, sizeof like);
        atomic_init(&batch->refs, 1);
        atomic_fetch_add(&kv->chunk_total, like.n_bytes);
        *out = batch;
        return DCI_OK;
}

void dci_kv_clusters_release(dci_kv *kv, dci_kv_clusters *batch)
{
        if (batch == NULL || atomic_fetch_sub(&batch->refs, 1) != 1)
                return;
        atomic_fetch_sub(&kv->chunk_total, batch->n_bytes);
        dci_kv_free(kv, batch, batch->n_bytes);
}

void dci_kv_release_clusters(dci_kv *kv, dci_kv_layer *layer, size_t n_left)
{
        layer->copied = layer->copied && layer->n_batches <= n_left;
        while (layer->n_batches > n_left)
                dci_kv_clusters_release(kv, layer->batches[--layer->n_batches]);
}

dci_status dci_kv_clusters_ready(dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        return dci_kv_grow(kv, (void **)&layer->batches, &layer->batch_capacity, n, sizeof(dci_kv_clusters *));
}

void dci_kv_clusters_publish(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch)
{
        const dci_kv_clusters *last = layer->n_batches > 0 ? layer->batches[layer->n_batches - 1] : NULL;
        for (size_t h = 0; h < kv->config.n_kv_heads && last != NULL; h++)
                batch->heads[h].before = last->heads[h].before + last->heads[h].n_groups;
        layer->batches[layer->n_batches++] = batch;
        layer->copied = false;
}

size_t dci_kv_clusters_within(const dci_kv_layer *layer, size_t n)
{
        size_t i = layer->n_batches;
        while (i > 0 && layer->batches[i - 1]->first + layer->batches[i - 1]->n > n)
                i--;
        return i;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

static unsigned char *part_of(const dci_kv *kv, const dci_kv_clusters *batch, size_t head)
{
        return (unsigned char *)(uintptr_t)batch + header_bytes(kv) + head * batch->head_bytes;
}

int32_t *dci_kv_cluster_offsets(const dci_kv *kv, const dci_kv_clusters *batch, size_t head)
{
        return (int32_t *)(void *)part_of(kv, batch, head);
}

int32_t *dci_kv_cluster_ids(const dci_kv *kv, const dci_kv_clusters *batch, size_t head)
{
        return (int32_t *)(void *)(part_of(kv, batch, head) + batch->ids_at);
}

unsigned char *dci_kv_cluster_rows(const dci_kv *kv, const dci_kv_clusters *batch, size_t head)
{
        return part_of(kv, batch, head) + batch->rows_at;
}

unsigned char *dci_kv_cluster_means(const dci_kv *kv, const dci_kv_clusters *batch, size_t head, bool of_values)
{
        const bool apart = of_values || kv->stages->summary.kind != DCI_KV_SUMMARY_MEAN;
        return part_of(kv, batch, head) + (!apart      ? batch->rows_at
                                           : of_values ? batch->mean_values_at
                                                       : batch->mean_keys_at);
}

/* --- looking up --------------------------------------------------------------------------------------------------- */

/* The batch that has a group of this head. */
static const dci_kv_clusters *batch_of(const dci_kv_layer *layer, size_t head, size_t group)
{
        size_t low = 0, high = layer->n_batches;
        while (high - low > 1) {
                const size_t middle = low + (high - low) / 2;
                if (layer->batches[middle]->heads[head].before <= group)
                        low = middle;
                else
                        high = middle;
        }
        return layer->batches[low];
}

size_t dci_kv_count_clustered(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n)
{
        size_t groups = 0;
        (void)kv;
        for (size_t b = layer->n_batches; b > 0 && groups == 0; b--)
                if (layer->batches[b - 1]->first < n)
                        groups =
                                layer->batches[b - 1]->heads[head].before + layer->batches[b - 1]->heads[head].n_groups;
        return groups;
}

const int32_t *dci_kv_members_clustered(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group,
                                        size_t n, int32_t *room, size_t *out_n)
{
        const dci_kv_clusters *batch = batch_of(layer, head, group);
        const size_t g = group - batch->heads[head].before;
        const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head);
        const int32_t *ids = dci_kv_cluster_ids(kv, batch, head) + offsets[g];
        size_t here = (size_t)(offsets[g + 1] - offsets[g]);
        (void)room;
        while (here > 0 && (size_t)ids[here - 1] >= n)
                here--;
        *out_n = here;
        return ids;
}

/* --- members ------------------------------------------------------------------------------------------------------ */

size_t dci_kv_members_to_f32(const dci_kv *kv, const dci_kv_members *members, size_t at, size_t dim)
{
        const size_t left = members->n - at, n = left < DCI_KV_TILE ? left : DCI_KV_TILE;
        for (size_t i = 0; i < n; i++)
                kv->context->kernels->to_f32[kv->config.dtype - 1](
                        members->rows + ((size_t)members->ids[at + i] - members->first) * dim * kv->es, dim,
                        members->wide + i * dim);
        return n;
}

/* Tiles in binary32, their sums in binary64: a cluster may be a large part of a prompt. */
void dci_kv_mean_of_members(const dci_kv *kv, const dci_kv_members *members, size_t dim, void *scratch, void *out)
{
        double *sum = scratch;
        float *part = (float *)(void *)(sum + dim);
        memset(sum, 0, dim * sizeof *sum);
        for (size_t at = 0, n; at < members->n; at += n) {
                n = dci_kv_members_to_f32(kv, members, at, dim);
                memcpy(part, members->wide, dim * sizeof *part);
                for (size_t i = 1; i < n; i++)
                        for (size_t j = 0; j < dim; j++)
                                part[j] += members->wide[i * dim + j];
                for (size_t j = 0; j < dim; j++)
                        sum[j] += (double)part[j];
        }
        for (size_t j = 0; j < dim; j++)
                part[j] = (float)(sum[j] / (double)members->n);
        kv->context->kernels->narrow[kv->config.dtype - 1](part, dim, out);
}
