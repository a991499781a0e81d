/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Second stage: one row per page, in the format of the keys. Each kind is a product of a row and a query made for it:
 *
 *      mean    row = mean                       query = q
 *      minmax  row = [greatest, least]          query = [max(q, 0), min(q, 0)]       (Quest)
 *      cuboid  row = [centre, mean deviation]   query = [q, |q|]                     (ArkVale; centre = (greatest + least) / 2)
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/chunk.h"
#include "kv/clusters.h"
#include "kv/stages/rank.h"

static size_t width_of(const dci_kv *kv)
{
        return kv->stages->summary.kind == DCI_KV_SUMMARY_MEAN ? kv->dim_k : 2 * kv->dim_k;
}

/* Means of a tree's pages are stored in the tree. */
static size_t bytes(const dci_kv *kv)
{
        if (kv->config.group == DCI_KV_GROUP_TREE)
                return 0;
        return dci_lines(DCI_KV_CHUNK / kv->config.page_tokens * width_of(kv) * kv->es);
}

static size_t work_bytes(const dci_kv *kv)
{
        return dci_lines(kv->group * width_of(kv) * sizeof(float));
}

static size_t put_bytes(const dci_kv *kv)
{
        return width_of(kv) * sizeof(float);
}

/* out: the greatest, then the least. */
static void extremes(const dci_kernels *kernels, const float *keys, size_t n, size_t dim, float *out)
{
        memcpy(out, keys, dim * sizeof *out);
        memcpy(out + dim, keys, dim * sizeof *out);
        kernels->extend(keys + dim, n - 1, dim, out, out + dim);
}

/* From extremes to a centre, and deviations from it that are still to be added up. */
static void centre(size_t dim, float *out)
{
        for (size_t j = 0; j < dim; j++) {
                out[j] = 0.5f * (out[j] + out[dim + j]);
                out[dim + j] = 0.0f;
        }
}

static void cuboid(const dci_kernels *kernels, const float *keys, size_t n, size_t dim, float *out)
{
        extremes(kernels, keys, n, dim, out);
        centre(dim, out);
        kernels->add_distances(keys, n, dim, out, out + dim);
        for (size_t j = 0; j < dim; j++)
                out[dim + j] /= (float)n;
}

static void put(const dci_kv *kv, dci_kv_head *head, unsigned char *chunk, size_t first, size_t n, const float *keys,
                void *scratch)
{
        const size_t per_page = kv->config.page_tokens, dim = kv->dim_k, width = width_of(kv);
        const dci_kernels *kernels = kv->context->kernels;
        float *row = scratch;
        (void)head;
        for (size_t i = 0; i < n; i += per_page) {
                const size_t here = n - i < per_page ? n - i : per_page;
                if (kv->stages->summary.kind == DCI_KV_SUMMARY_MEAN)
                        dci_kv_mean_row(keys + i * dim, here, dim, row);
                else if (kv->stages->summary.kind == DCI_KV_SUMMARY_MINMAX)
                        extremes(kernels, keys + i * dim, here, dim, row);
                else
                        cuboid(kernels, keys + i * dim, here, dim, row);
                kernels->narrow[kv->config.dtype - 1](row, width, chunk + (first + i) / per_page * width * kv->es);
        }
}

/* The same of members of any number, a tile at a time; those of a single tile are widened once. */
static void row(const dci_kv *kv, const dci_kv_members *members, void *scratch, void *out)
{
        const dci_kernels *kernels = kv->context->kernels;
        const size_t dim = kv->dim_k;
        float *made = scratch;
        if (kv->stages->summary.kind == DCI_KV_SUMMARY_MEAN) {
                dci_kv_mean_of_members(kv, members, dim, scratch, out);
                return;
        }
        for (size_t at = 0, n; at < members->n; at += n) {
                n = dci_kv_members_to_f32(kv, members, at, dim);
                if (at == 0)
                        extremes(kernels, members->wide, n, dim, made);
                else
                        kernels->extend(members->wide, n, dim, made, made + dim);
        }
        if (kv->stages->summary.kind == DCI_KV_SUMMARY_CUBOID) {
                centre(dim, made);
                for (size_t at = 0, n; at < members->n; at += n) {
                        n = members->n <= DCI_KV_TILE ? members->n : dci_kv_members_to_f32(kv, members, at, dim);
                        kernels->add_distances(members->wide, n, dim, made, made + dim);
                }
                for (size_t j = 0; j < dim; j++)
                        made[dim + j] /= (float)members->n;
        }
        kernels->narrow[kv->config.dtype - 1](made, width_of(kv), out);
}

static void make_queries(const dci_kv *kv, const float *queries, float *out)
{
        const size_t dim = kv->dim_k, width = width_of(kv);
        for (size_t q = 0; q < kv->group; q++)
                for (size_t j = 0; j < dim; j++) {
                        const float x = queries[q * dim + j];
                        float *to = out + q * width;
                        switch (kv->stages->summary.kind) {
                        case DCI_KV_SUMMARY_MINMAX:
                                to[j] = x > 0.0f ? x : 0.0f;
                                to[dim + j] = x < 0.0f ? x : 0.0f;
                                break;
                        case DCI_KV_SUMMARY_CUBOID:
                                to[j] = x;
                                to[dim + j] = fabsf(x);
                                break;
                        default:
                                to[j] = x;
                        }
                }
}

static void rank_listed(dci_kv_query *ask, const float *queries)
{
        const dci_kv *kv = ask->kv;
        const dci_kv_layer *layer = ask->layer;
        for (size_t b = 0; b < layer->n_batches && layer->batches[b]->first < ask->n_candidates; b++)
                dci_kv_score_clusters(ask, layer->batches[b], queries, width_of(kv),
                                      dci_kv_cluster_rows(kv, layer->batches[b], ask->head));
}

static void rank(dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        const size_t per_page = kv->config.page_tokens, per_chunk = DCI_KV_CHUNK / per_page, width = width_of(kv);
        const size_t n_pages = (ask->n_candidates + per_page - 1) / per_page;
        const void *rows[DCI_KV_TILE];
        float *queries = (float *)(void *)ask->work;
        if (kv->config.group == DCI_KV_GROUP_TREE) {
                dci_kv_tree_rank_pages(ask);
                return;
        }
        make_queries(kv, ask->queries, queries);
        if (kv->clustered) {
                rank_listed(ask, queries);
                return;
        }
        for (size_t i = 0, n; i < n_pages; i += n) {
                const unsigned char *memory = dci_kv_chunk_head(kv, ask->layer, i / per_chunk, ask->head);
                const size_t at = i % per_chunk, left = n_pages - i;
                n = per_chunk - at < left ? per_chunk - at : left;
                n = n < DCI_KV_TILE ? n : DCI_KV_TILE;
                for (size_t r = 0; r < n; r++)
                        rows[r] = memory + (at + r) * width * kv->es;
                dci_kv_score_rows(ask, queries, width, kv->config.dtype, rows, n, i);
        }
}

#define PAGES(name, of)                                                                                                \
        const dci_kv_summary name = {.kind = (of),                                                                     \
                                     .bytes = bytes,                                                                   \
                                     .work_bytes = work_bytes,                                                         \
                                     .put_bytes = put_bytes,                                                           \
                                     .put = put,                                                                       \
                                     .rank = rank,                                                                     \
                                     .width = width_of,                                                                \
                                     .row = row}

PAGES(dci_kv_summary_mean, DCI_KV_SUMMARY_MEAN);
PAGES(dci_kv_summary_minmax, DCI_KV_SUMMARY_MINMAX);
PAGES(dci_kv_summary_cuboid, DCI_KV_SUMMARY_CUBOID);
