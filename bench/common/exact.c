/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/exact.h"

#include <math.h>
#include <stdlib.h>

/* Independent sums hide the latency of an addition; their order is fixed, so a score is the same bits wherever it is needed. */
#define LANES 8

static double add_lanes(const double *sums)
{
        return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

double bench_dot(const double *a, const double *b, size_t dim)
{
        double sums[LANES] = {0};
        size_t i = 0;
        for (; i + LANES <= dim; i += LANES)
                for (size_t j = 0; j < LANES; j++)
                        sums[j] += a[i + j] * b[i + j];
        for (size_t j = 0; i + j < dim; j++)
                sums[j] += a[i + j] * b[i + j];
        return add_lanes(sums);
}

static double squared_distance(const double *a, const double *b, size_t dim)
{
        double sums[LANES] = {0};
        size_t i = 0;
        for (; i + LANES <= dim; i += LANES) {
                for (size_t j = 0; j < LANES; j++) {
                        double difference = a[i + j] - b[i + j];
                        sums[j] += difference * difference;
                }
        }
        for (size_t j = 0; i + j < dim; j++) {
                double difference = a[i + j] - b[i + j];
                sums[j] += difference * difference;
        }
        return add_lanes(sums);
}

double bench_score(dci_metric metric, const double *query, const double *row, size_t dim)
{
        if (metric == DCI_METRIC_L2)
                return squared_distance(query, row, dim);
        double product = bench_dot(query, row, dim);
        if (metric == DCI_METRIC_IP)
                return product;
        double lengths = sqrt(bench_dot(query, query, dim)) * sqrt(bench_dot(row, row, dim));
        return lengths > 0 ? product / lengths : 0;
}

double bench_key(dci_metric metric, double score)
{
        return metric == DCI_METRIC_L2 ? score : -score;
}

int bench_order(const void *a, const void *b)
{
        const bench_hit *x = a, *y = b;
        if (x->key != y->key)
                return x->key < y->key ? -1 : 1;
        return (x->id > y->id) - (x->id < y->id);
}

double bench_key_limit(dci_metric metric, double kth_score, double tolerance)
{
        return bench_key(metric, kth_score) + tolerance * fabs(kth_score);
}

static int compare_ids(const void *a, const void *b)
{
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
        return (x > y) - (x < y);
}

size_t bench_distinct(const int64_t *ids, size_t n, int64_t *out)
{
        size_t count = 0, kept = 0;
        for (size_t i = 0; i < n; i++)
                if (ids[i] >= 0)
                        out[count++] = ids[i];
        qsort(out, count, sizeof *out, compare_ids);
        for (size_t i = 0; i < count; i++)
                if (i == 0 || out[i] != out[i - 1])
                        out[kept++] = out[i];
        return kept;
}

size_t bench_count_found(const bench_found *within, const double *query, const int64_t *ids, size_t n, double *scratch)
{
        size_t found = 0;
        for (size_t j = 0; j < n && (uint64_t)ids[j] < within->n_ids; j++) {
                int64_t row = within->row_of != NULL ? within->row_of[ids[j]] : ids[j];
                if (row < 0)
                        continue;
                bench_row_to_double(within->base, (size_t)row, scratch);
                double score = bench_score(within->metric, query, scratch, within->base->dim);
                found += bench_key(within->metric, score) <= within->limit;
        }
        return found;
}

/* The greatest key that counts, given n true neighbours. */
static double limit_of(const bench_found *within, const double *query, const int64_t *truth, size_t n, double *scratch)
{
        double limit = 0;
        for (size_t j = 0; j < n; j++) {
                int64_t row = within->row_of != NULL ? within->row_of[truth[j]] : truth[j];
                bench_row_to_double(within->base, (size_t)row, scratch);
                double score = bench_score(within->metric, query, scratch, within->base->dim);
                double key = bench_key_limit(within->metric, score, BENCH_RECALL_TOLERANCE);
                limit = j == 0 || key > limit ? key : limit;
        }
        return limit;
}

dci_status bench_recall(dci_context *context, const bench_found *within, const bench_rows *queries, size_t k,
                        size_t true_k, const int64_t *truth, const int64_t *found, double *out_recall)
{
        const size_t dim = queries->dim;
        double *rows = dci_alloc(context, 2, dim * sizeof *rows);
        int64_t *distinct = dci_alloc(context, k, sizeof *distinct);
        bool enough = rows != NULL && distinct != NULL;
        bench_found here = *within;
        size_t total = 0;
        for (size_t i = 0; enough && i < queries->n; i++) {
                bench_row_to_double(queries, i, rows);
                here.limit = limit_of(within, rows, truth + i * k, true_k, rows + dim);
                size_t n = bench_distinct(found + i * k, k, distinct);
                size_t good = bench_count_found(&here, rows, distinct, n, rows + dim);
                total += good < true_k ? good : true_k;
        }
        dci_free(context, rows, 2, dim * sizeof *rows);
        dci_free(context, distinct, k, sizeof *distinct);
        *out_recall = (double)total / ((double)queries->n * (double)true_k);
        return enough ? DCI_OK : DCI_ERR_MEMORY;
}
