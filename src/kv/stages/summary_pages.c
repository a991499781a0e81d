/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Second stage: one row per page, in the format of the keys. Each kind is a product of a row and a query made for it:
 *
 *      mean    row = mean                       query = q
 *      minmax  row = [greatest, least]          query = [max(q, 0), min(q, 0)]       (Quest)
 *      cuboid  row = [centre, mean deviation]   query = [q, |q|]                     (ArkVale; centre = (greatest + least) / 2)
 *
 * and of mean_std the row is [mean, variance], whose halves have products of their own:
 * q . mean + c sqrt(q^2 . variance).
 */
#include "core/internal.h"

#include <float.h>
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

static bool deviates(const dci_kv *kv)
{
        return kv->stages->summary.kind == DCI_KV_SUMMARY_MEAN_STD;
}

/* Queries; of mean_std the squares' products with a tile as well. */
static size_t work_bytes(const dci_kv *kv)
{
        const size_t queries = dci_lines(kv->group * width_of(kv) * sizeof(float));
        return queries + (deviates(kv) ? dci_lines(kv->group * DCI_KV_TILE * sizeof(float)) : 0);
}

/* A row; of mean_std sums of any number of members, too. */
static size_t put_bytes(const dci_kv *kv)
{
        return width_of(kv) * sizeof(float) + (deviates(kv) ? kv->dim_k * sizeof(double) : 0);
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

/* The greatest variance that rows hold: that of keys which they hold may be beyond. */
static float max_variance(const dci_kv *kv)
{
        return kv->config.dtype == DCI_F16 ? 65504.0f : kv->config.dtype == DCI_BF16 ? 0x1.fep127f : FLT_MAX;
}

/* Adds the squares of n keys' distances from a mean. */
static void add_squares(const float *keys, size_t n, size_t dim, const float *mean, float *out)
{
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < dim; j++) {
                        const float distance = keys[i * dim + j] - mean[j];
                        out[j] += distance * distance;
                }
}

/* out: the mean, then the variance. */
static void mean_std(const dci_kv *kv, const float *keys, size_t n, float *out)
{
        const size_t dim = kv->dim_k;
        const float most = max_variance(kv);
        dci_kv_mean_row(keys, n, dim, out);
        memset(out + dim, 0, dim * sizeof *out);
        add_squares(keys, n, dim, out, out + dim);
        for (size_t j = dim; j < 2 * dim; j++) {
                out[j] /= (float)n;
                out[j] = out[j] < most ? out[j] : most;
        }
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
                else if (deviates(kv))
                        mean_std(kv, keys + i * dim, here, row);
                else
                        cuboid(kernels, keys + i * dim, here, dim, row);
                kernels->narrow[kv->config.dtype - 1](row, width, chunk + (first + i) / per_page * width * kv->es);
        }
}

/* The mean and variance of members: tiles in binary32, their sums in binary64. scratch: dim doubles, then the row. */
static void mean_std_of_members(const dci_kv *kv, const dci_kv_members *members, void *scratch, void *out)
{
        const size_t dim = kv->dim_k;
        double *sum = scratch;
        float *mean = (float *)(void *)(sum + dim), *part = mean + dim;
        for (int squares = 0; squares < 2; squares++) {
                memset(sum, 0, dim * sizeof *sum);
                for (size_t at = 0, n; at < members->n; at += n) {
                        n = dci_kv_members_to_f32(kv, members, at, dim);
                        memset(part, 0, dim * sizeof *part);
                        if (squares)
                                add_squares(members->wide, n, dim, mean, part);
                        for (size_t i = 0; i < n && !squares; i++)
                                for (size_t j = 0; j < dim; j++)
                                        part[j] += members->wide[i * dim + j];
                        for (size_t j = 0; j < dim; j++)
                                sum[j] += (double)part[j];
                }
                for (size_t j = 0; j < dim; j++) {
                        const double each = sum[j] / (double)members->n, most = (double)max_variance(kv);
                        (squares ? part : mean)[j] = (float)(squares && !(each < most) ? most : each);
                }
        }
        kv->context->kernels->narrow[kv->config.dtype - 1](mean, 2 * dim, out);
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
        if (deviates(kv)) {
                mean_std_of_members(kv, members, scratch, out);
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

/* Squares of queries relative to the greatest coordinate, which keeps them within binary32; out_weight: by query, what
 * a root of their product with variances counts. */
static void make_squares(const dci_kv *kv, const float *queries, float *out, float *out_weight)
{
        const size_t dim = kv->dim_k;
        for (size_t q = 0; q < kv->group; q++) {
                float most = 0.0f;
                for (size_t j = 0; j < dim; j++)
                        most = fmaxf(most, fabsf(queries[q * dim + j]));
                for (size_t j = 0; j < dim; j++) {
                        const float x = most > 0.0f ? queries[q * dim + j] / most : 0.0f;
                        out[q * dim + j] = x * x;
                }
                out_weight[q] = (float)kv->config.deviation_weight * most;
        }
}

/* Scores of a tile by means and variances. squares: as made, with room for products after them. */
static void score_deviations(dci_kv_query *ask, float *squares, const float *weights, const void **rows, size_t n,
                             size_t first)
{
        const dci_kv *kv = ask->kv;
        const size_t dim = kv->dim_k;
        float *products = squares + dci_lines(kv->group * width_of(kv) * sizeof(float)) / sizeof(float);
        const dci_kv_query part = {.kv = kv, .scores = products, .ld = DCI_KV_TILE};
        dci_kv_score_rows(ask, ask->queries, dim, kv->config.dtype, rows, n, first);
        for (size_t i = 0; i < n; i++)
                rows[i] = (const unsigned char *)rows[i] + dim * kv->es;
        dci_kv_score_rows(&part, squares, dim, kv->config.dtype, rows, n, 0);
        for (size_t q = 0; q < kv->group; q++)
                for (size_t i = 0; i < n; i++) {
                        float *score = &ask->scores[q * ask->ld + first + i];
                        *score = fminf(*score + weights[q] * sqrtf(products[q * DCI_KV_TILE + i]), FLT_MAX);
                }
}

/* Rows [from, from + n), contiguous, of groups from number `first` on. */
static void rank_deviations(dci_kv_query *ask, float *squares, const float *weights, const unsigned char *from,
                            size_t n_rows, size_t first)
{
        const size_t row = width_of(ask->kv) * ask->kv->es;
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0, n; i < n_rows; i += n) {
                n = n_rows - i < DCI_KV_TILE ? n_rows - i : DCI_KV_TILE;
                for (size_t r = 0; r < n; r++)
                        rows[r] = from + (i + r) * row;
                score_deviations(ask, squares, weights, rows, n, first + i);
        }
}

static void rank_mean_std(dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        const dci_kv_layer *layer = ask->layer;
        const size_t per_page = kv->config.page_tokens, per_chunk = DCI_KV_CHUNK / per_page,
                     n_pages = (ask->n_candidates + per_page - 1) / per_page;
        float *squares = (float *)(void *)ask->work, weights[DCI_KV_MAX_GROUP];
        make_squares(kv, ask->queries, squares, weights);
        for (size_t b = 0; kv->clustered && b < layer->n_batches && layer->batches[b]->first < ask->n_candidates; b++)
                rank_deviations(ask, squares, weights, dci_kv_cluster_rows(kv, layer->batches[b], ask->head),
                                layer->batches[b]->heads[ask->head].n_groups,
                                layer->batches[b]->heads[ask->head].before);
        for (size_t i = 0; !kv->clustered && i < n_pages; i += per_chunk)
                rank_deviations(ask, squares, weights, dci_kv_chunk_head(kv, layer, i / per_chunk, ask->head),
                                n_pages - i < per_chunk ? n_pages - i : per_chunk, i);
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

#define PAGES(name, of, how)                                                                                           \
        const dci_kv_summary name = {.kind = (of),                                                                     \
                                     .bytes = bytes,                                                                   \
                                     .work_bytes = work_bytes,                                                         \
                                     .put_bytes = put_bytes,                                                           \
                                     .put = put,                                                                       \
                                     .rank = how,                                                                      \
                                     .width = width_of,                                                                \
                                     .row = row}

PAGES(dci_kv_summary_mean, DCI_KV_SUMMARY_MEAN, rank);
PAGES(dci_kv_summary_minmax, DCI_KV_SUMMARY_MINMAX, rank);
PAGES(dci_kv_summary_cuboid, DCI_KV_SUMMARY_CUBOID, rank);
PAGES(dci_kv_summary_mean_std, DCI_KV_SUMMARY_MEAN_STD, rank_mean_std);
