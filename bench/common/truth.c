/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The true neighbours: from a file, from the cache or found; always verified. */
#include "bench/common/exact.h"

#include <string.h>

/* Queries verified in one pass over the base. */
#define CHECK_CHUNK 8

dci_status bench_truth_alloc(dci_context *context, size_t n_queries, size_t k, bench_truth *out)
{
        size_t count;
        memset(out, 0, sizeof *out);
        if (!dci_mul(n_queries, k, &count))
                return dci_fail(DCI_ERR_LIMIT, "%zu queries with %zu neighbours are more than memory can address",
                                n_queries, k);
        out->context = context;
        out->n_queries = n_queries;
        out->k = k;
        out->ids = dci_alloc(context, count, sizeof *out->ids);
        out->scores = dci_alloc(context, count, sizeof *out->scores);
        if (out->ids != NULL && out->scores != NULL)
                return DCI_OK;
        bench_truth_free(out);
        return DCI_ERR_MEMORY;
}

void bench_truth_free(bench_truth *truth)
{
        size_t count = truth->n_queries * truth->k;
        dci_free(truth->context, truth->ids, count, sizeof *truth->ids);
        dci_free(truth->context, truth->scores, count, sizeof *truth->scores);
        memset(truth, 0, sizeof *truth);
}

/* One pass over the base for up to CHECK_CHUNK queries: counts[i] becomes the number of rows that are the k-th neighbour or
 * come before it. With `tolerance`, only rows that are better by more than that count: it forgives a file's rounding. */
static dci_status count_up_to_kth(dci_context *context, const bench_dataset *dataset, dci_metric metric,
                                  double tolerance, const bench_truth *truth, const size_t *queries, size_t n_queries,
                                  size_t *counts)
{
        size_t dim = dataset->base.dim, k = truth->k;
        double *rows = dci_alloc(context, CHECK_CHUNK + 1, dim * sizeof *rows);
        if (rows == NULL)
                return DCI_ERR_MEMORY;
        double *row = rows + CHECK_CHUNK * dim;
        for (size_t q = 0; q < n_queries; q++) {
                bench_row_to_double(&dataset->queries, queries[q], rows + q * dim);
                counts[q] = 0;
        }
        for (size_t i = 0; i < dataset->base.n; i++) {
                bench_row_to_double(&dataset->base, i, row);
                for (size_t q = 0; q < n_queries; q++) {
                        size_t kth = queries[q] * k + k - 1;
                        double key = bench_key(metric, bench_score(metric, rows + q * dim, row, dim));
                        double limit = bench_key_limit(metric, truth->scores[kth], -tolerance);
                        bool tie = tolerance <= 0 && key <= limit && (int64_t)i <= truth->ids[kth];
                        counts[q] += key < limit || tie;
                }
        }
        dci_free(context, rows, CHECK_CHUNK + 1, dim * sizeof *rows);
        return DCI_OK;
}

/* The listed rows are k distinct ones up to the k-th, so they are the true ones exactly if the base has no further row there.
 * A file's order within its rounding is its own: fewer than k rows may be clearly better than its k-th. */
static dci_status judge(const bench_dataset *dataset, const bench_truth *truth, bool from_file, size_t query,
                        size_t count)
{
        if (from_file && count >= truth->k)
                return dci_fail(BENCH_ERR_RUN,
                                "%s: query %zu has %zu rows better than neighbour number %zu; '--truth own' "
                                "computes the neighbours",
                                dataset->truth_file, query, count, truth->k);
        if (!from_file && count != truth->k)
                return dci_fail(BENCH_ERR_RUN,
                                "truth check failed: up to neighbour number %zu of query %zu, a full loop in "
                                "double precision finds %zu rows",
                                truth->k, query, count);
        return DCI_OK;
}

/* Verifies `wanted` queries, spread evenly. */
static dci_status check(dci_context *context, const bench_dataset *dataset, dci_metric metric, size_t wanted,
                        bench_truth *truth)
{
        size_t total = wanted < truth->n_queries ? wanted : truth->n_queries;
        bool from_file = strcmp(truth->origin, "file") == 0;
        double tolerance = from_file ? BENCH_FILE_TOLERANCE : 0;
        bench_progress progress;
        dci_status status = DCI_OK;
        bench_progress_begin(&progress, "verifying the true neighbours");
        for (size_t done = 0; status == DCI_OK && done < total; done += CHECK_CHUNK) {
                size_t queries[CHECK_CHUNK], counts[CHECK_CHUNK];
                size_t n = total - done < CHECK_CHUNK ? total - done : CHECK_CHUNK;
                /* In double: exact enough to spread them, and no product overflows. */
                for (size_t i = 0; i < n; i++)
                        queries[i] = (size_t)((double)(done + i) * (double)truth->n_queries / (double)total);
                status = count_up_to_kth(context, dataset, metric, tolerance, truth, queries, n, counts);
                for (size_t i = 0; status == DCI_OK && i < n; i++)
                        status = judge(dataset, truth, from_file, queries[i], counts[i]);
                bench_progress_step(&progress, done, total);
        }
        bench_progress_end(&progress);
        truth->checked = total;
        return status;
}

static dci_status get_cached(dci_context *context, const bench_dataset *dataset, const bench_truth_options *options,
                             bench_truth *truth)
{
        char path[4096];
        bool hit = false;
        dci_status status = DCI_OK;
        if (options->cache != NULL) {
                status = bench_truth_cache_path(dataset, options->metric, truth->k, options->cache, path, sizeof path);
                if (status == DCI_OK)
                        status = bench_truth_cache_load(path, dataset, options->metric, truth, &hit);
        }
        /* A cached file that fails the check is only a damaged cache: fall through and compute. */
        if (status == DCI_OK && hit) {
                status = check(context, dataset, options->metric, options->check, truth);
                if (status != BENCH_ERR_RUN)
                        return status;
                fprintf(stderr, "dci-bench: note: %s is wrong and will be replaced (%s)\n", path, dci_last_error());
                status = DCI_OK;
        }
        if (status == DCI_OK)
                status = bench_truth_find(context, dataset, options->metric, truth);
        if (status == DCI_OK)
                status = check(context, dataset, options->metric, options->check, truth);
        if (status == DCI_OK && options->cache != NULL)
                bench_truth_cache_save(path, truth);
        return status;
}

dci_status bench_truth_get(dci_context *context, const bench_dataset *dataset, const bench_truth_options *options,
                           bench_truth *out)
{
        size_t k = options->k < dataset->base.n ? options->k : dataset->base.n;
        dci_status status = bench_truth_alloc(context, dataset->queries.n, k, out);
        if (status != DCI_OK)
                return status;
        if (options->use_file) {
                status = bench_truth_from_file(dataset, options->metric, out);
                if (status == DCI_OK)
                        status = check(context, dataset, options->metric, options->check, out);
        } else {
                status = get_cached(context, dataset, options, out);
        }
        if (status != DCI_OK)
                bench_truth_free(out);
        return status;
}
