/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Fifth stage, TAIL_SUMS over listed groups (RetroInfer's estimation zone): of a group of s members, r of them attended to, the others'
 * mean score is (s q.mean - sum of those q.k) / (s - r), and their values add up to s mean - sum of those values. Few groups have
 * both: the one that was cut at the budget, and after a truncation those that reach into the window. Of the others either nothing is
 * estimated or all.
 *
 * The mean's rounding counts s / (s - r) times in that, without bound. So where no more are left than are attended to, those that are left
 * are read in place of the others: their scores and values are had without the means, and the rounding never counts more than twice.
 */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/stages/rank.h"

typedef struct adding {
        dci_kv_query *ask;
        int32_t *rest; /* by group: members that are estimated */
        float *part;   /* group x DCI_KV_TILE: scores, then weights */
        float *out;
} adding;

/* One group: its batch, its number there and among all. */
typedef struct place {
        const dci_kv_clusters *batch;
        size_t g, number, size;
        const int32_t *ids;
} place;

static place place_of(const adding *a, const dci_kv_clusters *batch, size_t g)
{
        const dci_kv_query *ask = a->ask;
        const int32_t *offsets = dci_kv_cluster_offsets(ask->kv, batch, ask->head);
        return (place){batch, g, batch->heads[ask->head].before + g, (size_t)(offsets[g + 1] - offsets[g]),
                       dci_kv_cluster_ids(ask->kv, batch, ask->head) + offsets[g]};
}

static bool is_used(const adding *a, const dci_kv_clusters *batch)
{
        return batch->first < a->ask->n_candidates;
}

/* Members that are recent again. */
static size_t late_of(const adding *a, const place *p)
{
        size_t late = 0;
        if (p->batch->first + p->batch->n > a->ask->n_candidates)
                while (late < p->size && (size_t)p->ids[p->size - 1 - late] >= a->ask->n_candidates)
                        late++;
        return late;
}

/* Members of a group that are read for its term, in tiles: those that are left, or those that are attended to. */
typedef struct reading {
        bool left;
        size_t n;
} reading;

/* A tile of them, from number `at` on: of a group's members the chosen ones come first, the late ones last. */
static size_t rows_of(const adding *a, const place *p, const reading *r, size_t at, const void **keys,
                      const void **values)
{
        const dci_kv_query *ask = a->ask;
        const size_t taken = (size_t)ask->taken[p->number], rest = (size_t)a->rest[p->number], more = r->n - at;
        const size_t n = more < DCI_KV_TILE ? more : DCI_KV_TILE;
        for (size_t i = 0; i < n; i++) {
                const size_t m = at + i + (r->left ? taken : at + i < taken ? 0 : rest);
                dci_kv_rows_of(ask->kv, ask->layer, ask->head, ask->kv->config.sink + (size_t)p->ids[m], 1,
                               keys != NULL ? keys + i : NULL, values != NULL ? values + i : NULL);
        }
        return n;
}

static bool is_partial(const adding *a, const place *p)
{
        return a->rest[p->number] > 0 && (size_t)a->rest[p->number] < p->size;
}

/* The fewer ones of a group whose members are attended to in part. */
static reading fewer_of(const adding *a, const place *p)
{
        const size_t rest = (size_t)a->rest[p->number], attended = p->size - rest;
        return rest <= attended ? (reading){true, rest} : (reading){false, attended};
}

/* By query, the mean score of the members that are left. In binary64: a sum of the largest scores there may be overflows. */
static void score_left(const adding *a, const place *p, double *out)
{
        const dci_kv_query *ask = a->ask;
        const dci_kv *kv = ask->kv;
        const void *rows[DCI_KV_TILE];
        const dci_kv_query part = {.kv = kv, .scores = a->part, .ld = DCI_KV_TILE};
        const reading r = fewer_of(a, p);
        const double sign = r.left ? 1.0 : -1.0;
        memset(out, 0, kv->group * sizeof *out);
        if (!r.left) {
                rows[0] = dci_kv_cluster_means(kv, p->batch, ask->head, false) + p->g * kv->dim_k * kv->es;
                dci_kv_score_rows(&part, ask->queries, kv->dim_k, kv->config.dtype, rows, 1, 0);
                for (size_t q = 0; q < kv->group; q++)
                        out[q] = (double)a->part[q * DCI_KV_TILE] * (double)p->size;
        }
        for (size_t at = 0, n; at < r.n; at += n) {
                n = rows_of(a, p, &r, at, rows, NULL);
                dci_kv_score_rows(&part, ask->queries, kv->dim_k, kv->config.dtype, rows, n, 0);
                for (size_t q = 0; q < kv->group; q++)
                        for (size_t t = 0; t < n; t++)
                                out[q] += sign * (double)a->part[q * DCI_KV_TILE + t];
        }
        for (size_t q = 0; q < kv->group; q++)
                out[q] /= (double)a->rest[p->number];
}

/* The term of a group whose members are attended to in part. Its score may be above all others. */
static void correct(const adding *a, const place *p)
{
        dci_kv_query *ask = a->ask;
        const dci_kv *kv = ask->kv;
        double scores[DCI_KV_MAX_GROUP];
        score_left(a, p, scores);
        const size_t n_groups = kv->stages->group.count(kv, ask->layer, ask->head, ask->n_candidates);
        for (size_t q = 0; q < kv->group; q++) {
                float *terms = ask->scores + q * ask->ld;
                const float score = (float)scores[q], more = score - ask->most[q];
                for (size_t g = 0; g < n_groups && more > 0.0f; g++)
                        terms[g] *= expf(-more);
                ask->most[q] = more > 0.0f ? score : ask->most[q];
                terms[p->number] = more > 0.0f ? 1.0f : expf(more);
        }
}

/* What is left of each group; terms of groups that have parts of both. */
static void find_rest(const adding *a)
{
        const dci_kv_query *ask = a->ask;
        for (size_t b = 0; b < ask->layer->n_batches && is_used(a, ask->layer->batches[b]); b++) {
                const dci_kv_clusters *batch = ask->layer->batches[b];
                for (size_t g = 0; g < batch->heads[ask->head].n_groups; g++) {
                        const place p = place_of(a, batch, g);
                        const int32_t taken = ask->taken[p.number];
                        a->rest[p.number] = taken < 0 ? 0 : (int32_t)(p.size - late_of(a, &p)) - taken;
                        if (is_partial(a, &p))
                                correct(a, &p);
                }
        }
}

/* A tile of rows and their weights, by query. */
typedef struct tile {
        const void *rows[DCI_KV_TILE];
        size_t n;
} tile;

static void flush(const adding *a, tile *t, size_t q, size_t n_queries)
{
        const dci_kv *kv = a->ask->kv;
        if (t->n > 0)
                kv->context->kernels->blend_many[kv->config.dtype - 1](t->rows, a->part, DCI_KV_TILE, n_queries, t->n,
                                                                       kv->dim_v, a->out + q * kv->dim_v, kv->dim_v);
        t->n = 0;
}

/* Row by row, weighed by `times` a group's term. */
static void put(const adding *a, tile *t, size_t q, size_t n_queries, size_t number, float times, const void *row)
{
        const dci_kv_query *ask = a->ask;
        if (t->n == DCI_KV_TILE)
                flush(a, t, q, n_queries);
        for (size_t i = 0; i < n_queries; i++)
                a->part[i * DCI_KV_TILE + t->n] = ask->scores[(q + i) * ask->ld + number] * times;
        t->rows[t->n++] = row;
}

/* Of a group whose members are attended to in part: the values that are left, or less those that are attended to. */
static void put_rows(const adding *a, tile *t, size_t q, size_t n_queries, const place *p, const reading *r)
{
        const void *rows[DCI_KV_TILE];
        for (size_t at = 0, n; at < r->n; at += n) {
                n = rows_of(a, p, r, at, NULL, rows);
                for (size_t i = 0; i < n; i++)
                        put(a, t, q, n_queries, p->number, r->left ? 1.0f : -1.0f, rows[i]);
        }
}

/* out += term (s mean value - sum of the attended values), or the sum of the values that are left. */
static void add_values(const adding *a, size_t q, size_t n_queries)
{
        const dci_kv_query *ask = a->ask;
        const dci_kv *kv = ask->kv;
        tile t = {.n = 0};
        for (size_t b = 0; b < ask->layer->n_batches && is_used(a, ask->layer->batches[b]); b++) {
                const dci_kv_clusters *batch = ask->layer->batches[b];
                const unsigned char *means = dci_kv_cluster_means(kv, batch, ask->head, true);
                for (size_t g = 0; g < batch->heads[ask->head].n_groups; g++) {
                        const size_t number = batch->heads[ask->head].before + g;
                        if (a->rest[number] <= 0)
                                continue;
                        const place p = place_of(a, batch, g);
                        const reading r = is_partial(a, &p) ? fewer_of(a, &p) : (reading){false, 0};
                        if (!r.left)
                                put(a, &t, q, n_queries, number, (float)p.size, means + g * kv->dim_v * kv->es);
                        put_rows(a, &t, q, n_queries, &p, &r);
                }
        }
        flush(a, &t, q, n_queries);
}

/* Terms of all groups; a choice by mean keys has left them. */
static void find_terms(dci_kv_query *ask, size_t n_groups)
{
        const dci_kv *kv = ask->kv;
        const dci_kv_layer *layer = ask->layer;
        if (dci_kv_needs_terms(kv))
                return;
        if (!kv->stages->select.ranks)
                memset(ask->taken, 0, n_groups * sizeof *ask->taken);
        for (size_t b = 0; b < layer->n_batches && layer->batches[b]->first < ask->n_candidates; b++)
                dci_kv_score_clusters(ask, layer->batches[b], ask->queries, kv->dim_k,
                                      dci_kv_cluster_means(kv, layer->batches[b], ask->head, false));
        for (size_t q = 0; q < kv->group; q++)
                dci_kv_soften(ask, q, n_groups);
}

void dci_kv_add_clustered(dci_kv_query *ask, float *out, float *lse)
{
        const dci_kv *kv = ask->kv;
        const size_t n_groups = kv->stages->group.count(kv, ask->layer, ask->head, ask->n_candidates);
        const adding a = {
                .ask = ask, .rest = (int32_t *)(void *)ask->relevance, .part = (float *)(void *)ask->work, .out = out};
        memset(out, 0, kv->group * kv->dim_v * sizeof *out);
        find_terms(ask, n_groups);
        find_rest(&a);
        for (size_t q = 0; q < kv->group; q++) {
                float *terms = ask->scores + q * ask->ld, sum = 0.0f;
                for (size_t g = 0; g < n_groups; g++)
                        sum += terms[g] * (float)a.rest[g];
                lse[q] = sum > 0.0f ? ask->most[q] + logf(sum) : -INFINITY;
                for (size_t g = 0; g < n_groups; g++)
                        terms[g] = sum > 0.0f ? terms[g] / sum : 0.0f;
        }
        for (size_t q = 0; q < kv->group; q += DCI_MANY_QUERIES)
                add_values(&a, q, kv->group - q < DCI_MANY_QUERIES ? kv->group - q : DCI_MANY_QUERIES);
}
