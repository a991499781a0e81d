/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Fifth stage: what is not chosen is estimated from the mean key and value of its page, less the tokens that were chosen (the estimation
 * zone of RetroInfer, over pages). Of a head in a chunk, in the format of the keys:
 *
 *      mean keys of its pages, then mean values
 *
 * With s tokens in a page, r of them chosen, the others' mean score is (s q.mean - sum of chosen q.k) / (s - r), and their values add up
 * to s mean - sum of chosen values: products alone, no mean is computed again.
 *
 * With sums_whole the mean key and value of the whole page stand for the s - r others. The mean of exponentials is more than the
 * exponential of a mean, and what was chosen lies above it: leaving it in makes up for some of that, and no row is read.
 */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kv/chunk.h"
#include "kv/lookup.h"
#include "kv/stages/rank.h"

static size_t key_bytes(const dci_kv *kv)
{
        return dci_lines(DCI_KV_CHUNK / kv->config.page_tokens * kv->dim_k * kv->es);
}

static size_t bytes(const dci_kv *kv)
{
        return key_bytes(kv) + dci_lines(DCI_KV_CHUNK / kv->config.page_tokens * kv->dim_v * kv->es);
}

/* Scores of the chosen tokens, and then weights. */
static size_t work_bytes(const dci_kv *kv)
{
        return dci_lines(kv->group * DCI_KV_TILE * sizeof(float));
}

static size_t put_bytes(const dci_kv *kv)
{
        return (kv->dim_k + kv->dim_v) * sizeof(float);
}

static void put_mean(const dci_kv *kv, const float *rows, size_t n, size_t dim, float *mean, unsigned char *out)
{
        dci_kv_mean_row(rows, n, dim, mean);
        kv->context->kernels->narrow[kv->config.dtype - 1](mean, dim, out);
}

static void put(const dci_kv *kv, dci_kv_head *head, unsigned char *chunk, size_t first, size_t n, const float *keys,
                const float *values, void *scratch)
{
        const size_t per_page = kv->config.page_tokens;
        (void)head;
        for (size_t i = 0; i < n; i += per_page) {
                const size_t here = n - i < per_page ? n - i : per_page, page = (first + i) / per_page;
                put_mean(kv, keys + i * kv->dim_k, here, kv->dim_k, scratch, chunk + page * kv->dim_k * kv->es);
                put_mean(kv, values + i * kv->dim_v, here, kv->dim_v, scratch,
                         chunk + key_bytes(kv) + page * kv->dim_v * kv->es);
        }
}

/* Sums of a page's scores are counted in these, which rounds nothing: of the largest scores there may be the sums overflow. */
#define PART 0.015625f /* 1 / 64, the most tokens of a page */

typedef struct adding {
        dci_kv_query *ask;
        size_t n_pages;
        uint8_t *taken; /* chosen tokens, by page */
        float *chosen;  /* group x DCI_KV_TILE */
        float *out;
} adding;

static size_t size_of_page(const adding *a, size_t page)
{
        const size_t per_page = a->ask->kv->config.page_tokens, left = a->ask->n_candidates - page * per_page;
        return left < per_page ? left : per_page;
}

/* Rows of means of `n` pages from number `page` on, all in one chunk; returns how many there are. */
static size_t rows_of_pages(const adding *a, size_t page, bool of_keys, const void **rows)
{
        const dci_kv *kv = a->ask->kv;
        const size_t per_chunk = DCI_KV_CHUNK / kv->config.page_tokens, at = page % per_chunk;
        const size_t row = (of_keys ? kv->dim_k : kv->dim_v) * kv->es, left = a->n_pages - page;
        const unsigned char *memory = dci_kv_chunk_head(kv, a->ask->layer, page / per_chunk, a->ask->head) +
                                      kv->summary_bytes + (of_keys ? 0 : key_bytes(kv));
        size_t n = per_chunk - at < left ? per_chunk - at : left;
        n = n < DCI_KV_TILE ? n : DCI_KV_TILE;
        for (size_t i = 0; i < n; i++)
                rows[i] = memory + (at + i) * row;
        return n;
}

/* A tile of chosen tokens' rows. */
static size_t rows_of_chosen(const adding *a, size_t first, const void **keys, const void **values)
{
        const dci_kv_query *ask = a->ask;
        const size_t left = ask->n_chosen - first, n = left < DCI_KV_TILE ? left : DCI_KV_TILE;
        for (size_t i = 0; i < n; i++)
                dci_kv_rows_of(ask->kv, ask->layer, ask->head, ask->kv->config.sink + (size_t)ask->chosen[first + i], 1,
                               keys != NULL ? keys + i : NULL, values != NULL ? values + i : NULL);
        return n;
}

/* s q.mean - sum of chosen q.k, divided later. */
static void score_pages(const adding *a)
{
        dci_kv_query *ask = a->ask;
        const dci_kv *kv = ask->kv;
        const size_t per_page = kv->config.page_tokens;
        const void *rows[DCI_KV_TILE];
        for (size_t p = 0, n; p < a->n_pages; p += n) {
                n = rows_of_pages(a, p, true, rows);
                dci_kv_score_rows(ask, ask->queries, kv->dim_k, kv->config.dtype, rows, n, p);
        }
        if (kv->config.sums_whole != 0) {
                for (size_t p = 0; p < a->n_pages; p++)
                        for (size_t q = 0; q < kv->group && a->taken[p] == size_of_page(a, p); q++)
                                ask->scores[q * ask->ld + p] = -FLT_MAX;
                return;
        }
        for (size_t p = 0; p < a->n_pages; p++)
                for (size_t q = 0; q < kv->group && a->taken[p] > 0; q++)
                        ask->scores[q * ask->ld + p] *= PART * (float)size_of_page(a, p);
        const dci_kv_query part = {.kv = kv, .scores = a->chosen, .ld = DCI_KV_TILE};
        for (size_t i = 0, n; i < ask->n_chosen; i += n) {
                n = rows_of_chosen(a, i, rows, NULL);
                dci_kv_score_rows(&part, ask->queries, kv->dim_k, kv->config.dtype, rows, n, 0);
                for (size_t q = 0; q < kv->group; q++)
                        for (size_t t = 0; t < n; t++)
                                ask->scores[q * ask->ld + (size_t)ask->chosen[i + t] / per_page] -=
                                        PART * a->chosen[q * DCI_KV_TILE + t];
        }
        for (size_t p = 0; p < a->n_pages; p++) {
                const size_t rest = size_of_page(a, p) - a->taken[p];
                for (size_t q = 0; q < kv->group && a->taken[p] > 0; q++) {
                        float *score = &ask->scores[q * ask->ld + p];
                        *score = rest > 0 ? *score / (PART * (float)rest) : -FLT_MAX;
                }
        }
}

/* out += exp(score) (s mean value - sum of chosen values), or (s - r) mean value; scores holds the terms exp(score). */
static void add_values(const adding *a, size_t q, size_t n_queries)
{
        const dci_kv_query *ask = a->ask;
        const dci_kv *kv = ask->kv;
        const size_t per_page = kv->config.page_tokens;
        const bool whole = kv->config.sums_whole != 0;
        const void *rows[DCI_KV_TILE];
        for (size_t p = 0, n; p < a->n_pages; p += n) {
                n = rows_of_pages(a, p, false, rows);
                for (size_t i = 0; i < n_queries; i++)
                        for (size_t t = 0; t < n; t++)
                                a->chosen[i * DCI_KV_TILE + t] =
                                        ask->scores[(q + i) * ask->ld + p + t] *
                                        (float)(size_of_page(a, p + t) - (whole ? a->taken[p + t] : 0));
                kv->context->kernels->blend_many[kv->config.dtype - 1](rows, a->chosen, DCI_KV_TILE, n_queries, n,
                                                                       kv->dim_v, a->out + q * kv->dim_v, kv->dim_v);
        }
        for (size_t c = 0, n; c < ask->n_chosen && !whole; c += n) {
                n = rows_of_chosen(a, c, NULL, rows);
                for (size_t i = 0; i < n_queries; i++)
                        for (size_t t = 0; t < n; t++)
                                a->chosen[i * DCI_KV_TILE + t] =
                                        -ask->scores[(q + i) * ask->ld + (size_t)ask->chosen[c + t] / per_page];
                kv->context->kernels->blend_many[kv->config.dtype - 1](rows, a->chosen, DCI_KV_TILE, n_queries, n,
                                                                       kv->dim_v, a->out + q * kv->dim_v, kv->dim_v);
        }
}

static void add(dci_kv_query *ask, float *out, float *lse)
{
        const dci_kv *kv = ask->kv;
        const size_t per_page = kv->config.page_tokens;
        if (kv->clustered) {
                dci_kv_add_clustered(ask, out, lse);
                return;
        }
        adding a = {.ask = ask,
                    .n_pages = (ask->n_candidates + per_page - 1) / per_page,
                    .taken = (uint8_t *)ask->relevance,
                    .chosen = (float *)(void *)ask->work,
                    .out = out};
        memset(a.taken, 0, a.n_pages);
        for (size_t i = 0; i < ask->n_chosen; i++)
                a.taken[(size_t)ask->chosen[i] / per_page]++;
        memset(out, 0, kv->group * kv->dim_v * sizeof *out);
        score_pages(&a);
        for (size_t q = 0; q < kv->group; q++) {
                float *terms = ask->scores + q * ask->ld, sum = 0.0f;
                dci_kv_soften(ask, q, a.n_pages);
                for (size_t p = 0; p < a.n_pages; p++)
                        sum += terms[p] * (float)(size_of_page(&a, p) - a.taken[p]);
                lse[q] = sum > 0.0f ? ask->most[q] + logf(sum) : -INFINITY;
                for (size_t p = 0; p < a.n_pages; p++)
                        terms[p] = sum > 0.0f ? terms[p] / sum : 0.0f;
        }
        for (size_t q = 0; q < kv->group; q += DCI_MANY_QUERIES)
                add_values(&a, q, kv->group - q < DCI_MANY_QUERIES ? kv->group - q : DCI_MANY_QUERIES);
}

const dci_kv_tail dci_kv_tail_sums = {.kind = DCI_KV_TAIL_SUMS,
                                      .bytes = bytes,
                                      .work_bytes = work_bytes,
                                      .put_bytes = put_bytes,
                                      .put = put,
                                      .add = add};
