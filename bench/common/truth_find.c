/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The true neighbours. Reading every pair in double precision would take minutes, so the library's exact search proposes
 * some more than k rows per query, these are scored in double precision, and the k best are taken. That is proven right for a
 * query when even the worst proposed row, moved by the library's stated rounding error, stays below the k-th; other queries
 * (many near-equal scores) get the full loop. Because the proof trusts the search that is being measured, some queries are
 * verified by the full loop in any case.
 */
#include "bench/common/exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Queries per search call: enough for the library's batch path, and progress keeps moving; fewer when k is large. */
#define CHUNK 512
#define CHUNK_HITS ((size_t)1 << 22)
/* Rows proposed beyond k. */
#define EXTRA(k) (32 + (k) / 4)
/* The library's limit. */
#define MAX_PROPOSED ((size_t)1 << 24)

/* What finding the truth needs besides the truth. */
typedef struct finder {
        dci_context *context;
        const bench_dataset *dataset;
        dci_metric metric;
        dci_index *index; /* borrows the base */
        size_t want;      /* rows proposed per query */
        size_t chunk;     /* queries per search call */
        double longest;   /* IP: length of the longest row */
        double *query, *row;
        bench_hit *hits; /* one per base row: the full loop may need them all */
        int64_t *ids;    /* chunk x want */
        float *scores;
} finder;

static void finder_close(finder *f)
{
        size_t dim = f->dataset->base.dim, n = f->dataset->base.n;
        dci_index_destroy(f->index);
        dci_free(f->context, f->query, dim, sizeof *f->query);
        dci_free(f->context, f->row, dim, sizeof *f->row);
        dci_free(f->context, f->hits, n, sizeof *f->hits);
        dci_free(f->context, f->ids, f->want, f->chunk * sizeof *f->ids);
        dci_free(f->context, f->scores, f->want, f->chunk * sizeof *f->scores);
}

static dci_status finder_index(finder *f)
{
        const bench_rows *base = &f->dataset->base;
        dci_index_config config;
        dci_status status = dci_index_config_init(&config, sizeof config);
        if (status != DCI_OK)
                return status;
        config.dim = base->dim;
        config.metric = f->metric;
        config.dtype = base->dtype;
        config.query_dtype = f->dataset->queries.dtype;
        config.storage = DCI_ROWS_BORROWED;
        config.zero_rows = DCI_ZERO_KEEP;
        status = dci_index_create(f->context, &config, &f->index);
        if (status == DCI_OK)
                status = dci_index_add(f->index, base->n, base->data, base->dim, NULL, NULL);
        return status == DCI_OK ? status : bench_fail_about("base", status);
}

static dci_status finder_open(dci_context *context, const bench_dataset *dataset, dci_metric metric, size_t k,
                              finder *f)
{
        size_t n = dataset->base.n, dim = dataset->base.dim;
        memset(f, 0, sizeof *f);
        f->context = context;
        f->dataset = dataset;
        f->metric = metric;
        f->want = n - k > EXTRA(k) ? k + EXTRA(k) : n;
        f->want = f->want < MAX_PROPOSED ? f->want : MAX_PROPOSED;
        f->chunk = CHUNK_HITS / f->want < 1 ? 1 : CHUNK_HITS / f->want > CHUNK ? CHUNK : CHUNK_HITS / f->want;
        dci_status status = finder_index(f);
        if (status != DCI_OK)
                return status;
        f->query = dci_alloc(context, dim, sizeof *f->query);
        f->row = dci_alloc(context, dim, sizeof *f->row);
        f->hits = dci_alloc(context, n, sizeof *f->hits);
        f->ids = dci_alloc(context, f->want, f->chunk * sizeof *f->ids);
        f->scores = dci_alloc(context, f->want, f->chunk * sizeof *f->scores);
        if (f->query == NULL || f->row == NULL || f->hits == NULL || f->ids == NULL || f->scores == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; metric == DCI_METRIC_IP && i < n; i++) {
                bench_row_to_double(&dataset->base, i, f->row);
                f->longest = fmax(f->longest, sqrt(bench_dot(f->row, f->row, dim)));
        }
        return DCI_OK;
}

static bench_hit hit_of(const finder *f, int64_t id)
{
        bench_row_to_double(&f->dataset->base, (size_t)id, f->row);
        bench_hit hit = {bench_score(f->metric, f->query, f->row, f->dataset->base.dim), 0, id};
        hit.key = bench_key(f->metric, hit.score);
        return hit;
}

/* The least key that a row can truly have when the library scored it no better than `worst` (index.h states the errors;
 * doubled, to be on the safe side). */
static double min_key(const finder *f, float worst)
{
        size_t dim = f->dataset->base.dim;
        double relative = 2 * ((double)dim / 16 + 6) / 16777216.0;
        switch (f->metric) {
        case DCI_METRIC_L2:
                return worst / (1 + relative);
        case DCI_METRIC_IP:
                return -worst - relative * f->longest * sqrt(bench_dot(f->query, f->query, dim));
        default:
                return -worst - 2.0 / 1048576.0;
        }
}

/* All rows at least as good as the k-th hit so far, by the full loop, into hits. Returns how many. */
static size_t full_loop(const finder *f, size_t k)
{
        bench_hit kth = f->hits[k - 1];
        size_t count = 0;
        for (size_t i = 0; i < f->dataset->base.n; i++) {
                bench_hit hit = hit_of(f, (int64_t)i);
                if (bench_order(&hit, &kth) <= 0)
                        f->hits[count++] = hit;
        }
        return count;
}

/* Proposals must be rows of the base: anything else is the library's fault, and no number would mean anything. */
static dci_status check_proposals(const finder *f, size_t query, const int64_t *ids)
{
        for (size_t j = 0; j < f->want; j++)
                if (ids[j] < 0 || (uint64_t)ids[j] >= f->dataset->base.n)
                        return dci_fail(BENCH_ERR_RUN,
                                        "the library's exact search found row %lld for query %zu, but there are "
                                        "%zu rows",
                                        (long long)ids[j], query, f->dataset->base.n);
        return DCI_OK;
}

/* One query: ids and scores are the library's proposals. */
static dci_status settle(const finder *f, size_t query, const int64_t *ids, const float *scores, bench_truth *truth)
{
        size_t k = truth->k;
        dci_status status = check_proposals(f, query, ids);
        if (status != DCI_OK)
                return status;
        bench_row_to_double(&f->dataset->queries, query, f->query);
        for (size_t j = 0; j < f->want; j++)
                f->hits[j] = hit_of(f, ids[j]);
        qsort(f->hits, f->want, sizeof *f->hits, bench_order);
        if (f->want < f->dataset->base.n && !(f->hits[k - 1].key < min_key(f, scores[f->want - 1]))) {
                size_t count = full_loop(f, k);
                qsort(f->hits, count, sizeof *f->hits, bench_order);
        }
        for (size_t j = 0; j < k; j++) {
                if (j > 0 && f->hits[j].id == f->hits[j - 1].id)
                        return dci_fail(BENCH_ERR_RUN, "the library's exact search found row %lld twice for query %zu",
                                        (long long)f->hits[j].id, query);
                truth->ids[query * k + j] = f->hits[j].id;
                truth->scores[query * k + j] = f->hits[j].score;
        }
        return DCI_OK;
}

static dci_status find(finder *f, bench_truth *truth)
{
        const bench_rows *queries = &f->dataset->queries;
        bench_progress progress;
        dci_status status = DCI_OK;
        bench_progress_begin(&progress, "finding the true neighbours");
        for (size_t i = 0; status == DCI_OK && i < queries->n; i += f->chunk) {
                size_t n = queries->n - i < f->chunk ? queries->n - i : f->chunk;
                const char *rows = (const char *)queries->data + i * queries->dim * dci_dtype_size(queries->dtype);
                status = dci_index_search(f->index, n, rows, queries->dim, f->want, NULL, f->ids, f->scores);
                if (status != DCI_OK) {
                        char what[64];
                        snprintf(what, sizeof what, "queries from number %zu on", i);
                        bench_fail_about(what, status);
                }
                for (size_t j = 0; status == DCI_OK && j < n; j++) {
                        status = settle(f, i + j, f->ids + j * f->want, f->scores + j * f->want, truth);
                        bench_progress_step(&progress, i + j, queries->n);
                }
        }
        bench_progress_end(&progress);
        return status;
}

dci_status bench_truth_find(dci_context *context, const bench_dataset *dataset, dci_metric metric, bench_truth *truth)
{
        finder f;
        dci_status status = finder_open(context, dataset, metric, truth->k, &f);
        if (status == DCI_OK)
                status = find(&f, truth);
        finder_close(&f);
        truth->origin = "computed";
        return status;
}
