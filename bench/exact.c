/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/exact.h"

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
