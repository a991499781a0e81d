/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From rows to scores, from scores to the best, and from those to an ascending list: what the stages share. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/stages/rank.h"
#include "simd/topk.h"

void dci_kv_score_rows(const dci_kv_query *ask, const float *queries, size_t dim, dci_dtype dtype,
                       const void *const *rows, size_t n, size_t first)
{
        const dci_kernels *kernels = ask->kv->context->kernels;
        for (size_t q = 0; q < ask->kv->group; q += DCI_MANY_QUERIES) {
                const size_t left = ask->kv->group - q, here = left < DCI_MANY_QUERIES ? left : DCI_MANY_QUERIES;
                kernels->score_many[dtype - 1][DCI_FORM_DOT](queries + q * dim, dim, here, rows, n, dim,
                                                             ask->scores + q * ask->ld + first, ask->ld);
        }
}

void dci_kv_score_clusters(const dci_kv_query *ask, const dci_kv_clusters *batch, const float *queries, size_t width,
                           const unsigned char *rows)
{
        const dci_kv *kv = ask->kv;
        const struct dci_kv_cluster_head *head = &batch->heads[ask->head];
        const void *tile[DCI_KV_TILE];
        for (size_t g = 0; g < head->n_groups; g += DCI_KV_TILE) {
                const size_t left = head->n_groups - g, n = left < DCI_KV_TILE ? left : DCI_KV_TILE;
                for (size_t r = 0; r < n; r++)
                        tile[r] = rows + (g + r) * width * kv->es;
                dci_kv_score_rows(ask, queries, width, kv->config.dtype, tile, n, head->before + g);
        }
}

/* exp(score - most) in place; the softmax of all groups is its share of the sum. */
float dci_kv_soften(dci_kv_query *ask, size_t query, size_t n)
{
        const dci_kernels *kernels = ask->kv->context->kernels;
        float *scores = ask->scores + query * ask->ld;
        ask->most[query] = n > 0 ? kernels->greatest(scores, n) : 0.0f;
        return kernels->exp_all(scores, n, ask->most[query]);
}

void dci_kv_store_terms(dci_kv_query *ask, size_t n)
{
        for (size_t q = 0; q < ask->kv->group && dci_kv_needs_terms(ask->kv); q++)
                dci_kv_soften(ask, q, n);
}

size_t dci_kv_best(const dci_kv *kv, const float *scores, size_t n, const int32_t *slots, size_t n_best, void *scratch,
                   int32_t *out)
{
        dci_topk topk;
        dci_topk_init(&topk, kv->context->kernels, (dci_slot_ids){NULL, NULL}, n_best < n ? n_best : n, true, scratch);
        dci_topk_add_all(&topk, scores, n, slots);
        const size_t n_found = dci_topk_finish(&topk);
        for (size_t i = 0; i < n_found; i++)
                out[i] = dci_topk_slot(topk.keys[i]);
        return n_found;
}

static int by_number(const void *a, const void *b)
{
        const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
        return (x > y) - (x < y);
}

/* Marks in the relevances' memory, which have done their duty, and reads them back in order. */
void dci_kv_put_in_order(dci_kv_query *ask)
{
        size_t n = 0;
        if (ask->ranked != NULL) {
                memcpy(ask->ranked, ask->chosen, ask->n_chosen * sizeof *ask->chosen);
                ask->n_ranked = ask->n_chosen;
        }
        if (ask->n_chosen < 64) {
                qsort(ask->chosen, ask->n_chosen, sizeof *ask->chosen, by_number);
                for (size_t i = 0; i < ask->n_chosen; i++) /* a damaged file may name a token twice */
                        if (n == 0 || ask->chosen[i] != ask->chosen[n - 1])
                                ask->chosen[n++] = ask->chosen[i];
                ask->n_chosen = n;
                return;
        }
        uint64_t *bits = (uint64_t *)(void *)ask->relevance;
        const size_t n_words = (ask->n_candidates + 63) / 64;
        memset(bits, 0, n_words * sizeof *bits);
        for (size_t i = 0; i < ask->n_chosen; i++)
                bits[ask->chosen[i] / 64] |= UINT64_C(1) << (ask->chosen[i] % 64);
        for (size_t w = 0; w < n_words; w++)
                for (uint64_t left = bits[w]; left != 0; left &= left - 1)
                        ask->chosen[n++] = (int32_t)(64 * w + (size_t)dci_lowest_bit(left));
        ask->n_chosen = n;
}

void dci_kv_mean_row(const float *rows, size_t n, size_t dim, float *out)
{
        memcpy(out, rows, dim * sizeof *out);
        for (size_t i = 1; i < n; i++)
                for (size_t j = 0; j < dim; j++)
                        out[j] += rows[i * dim + j];
        for (size_t j = 0; j < dim; j++)
                out[j] /= (float)n;
}
