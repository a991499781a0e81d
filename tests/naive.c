/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/naive.h"

#include <math.h>
#include <string.h>

#include "simd/kernels.h"

void naive_init(naive *model, size_t dim, dci_metric metric)
{
        memset(model, 0, sizeof *model);
        model->dim = dim;
        model->metric = metric;
}

void naive_free(naive *model)
{
        test_free(model->rows, model->ids);
        memset(model, 0, sizeof *model);
}

void naive_add(naive *model, const float *row, int64_t id)
{
        if (model->n == model->capacity) {
                model->capacity = model->capacity == 0 ? 64 : 2 * model->capacity;
                model->rows = realloc(model->rows, model->capacity * model->dim * sizeof *model->rows);
                model->ids = realloc(model->ids, model->capacity * sizeof *model->ids);
                ck_assert(model->rows != NULL && model->ids != NULL);
        }
        for (size_t p = 0; p < model->dim; p++)
                model->rows[model->n * model->dim + p] = row[p];
        model->ids[model->n++] = id;
}

void naive_remove(naive *model, int64_t id)
{
        size_t i = 0;
        while (model->ids[i] != id)
                i++;
        model->n--;
        memmove(model->ids + i, model->ids + i + 1, (model->n - i) * sizeof *model->ids);
        memmove(model->rows + i * model->dim, model->rows + (i + 1) * model->dim,
                (model->n - i) * model->dim * sizeof *model->rows);
}

bool naive_has(const naive *model, int64_t id)
{
        for (size_t i = 0; i < model->n; i++)
                if (model->ids[i] == id)
                        return true;
        return false;
}

double naive_score(const naive *model, const float *query, size_t row, double *out_bound)
{
        const double *x = model->rows + row * model->dim;
        double dot = 0, sum = 0, l2 = 0, nx = 0, nq = 0;
        for (size_t p = 0; p < model->dim; p++) {
                double difference = query[p] - x[p];
                dot += query[p] * x[p];
                sum += fabs(query[p] * x[p]);
                l2 += difference * difference;
                nx += x[p] * x[p];
                nq += (double)query[p] * query[p];
        }
        const double u = 0x1p-24, dim = (double)model->dim;
        const double chain = 2 * (dim / 16 + 6) * u; /* twice: scalar rounds the products too */
        if (model->metric == DCI_METRIC_IP) {
                *out_bound = chain * sum + 1e-37;
                return dot;
        }
        if (model->metric == DCI_METRIC_L2) {
                /* the difference is rounded before it is squared */
                *out_bound = (chain + 4 * u) * l2 + 1e-37;
                return l2;
        }
        *out_bound = 2 * (dim / 8 + 22) * u;
        double length = sqrt(nx) * sqrt(nq);
        return length > 0 ? dot / length : 0;
}

static size_t position(const naive *model, int64_t id)
{
        for (size_t i = 0; i < model->n; i++)
                if (model->ids[i] == id)
                        return i;
        ck_abort_msg("id %lld is not in the model", (long long)id);
}

void naive_check(const naive *model, const float *query, size_t k, bool (*admits)(int64_t id), const int64_t *ids,
                 const float *scores, const char *what)
{
        size_t admitted = 0;
        for (size_t i = 0; i < model->n; i++)
                admitted += admits == NULL || admits(model->ids[i]);
        size_t n = k < admitted ? k : admitted;
        bool *taken = calloc(model->n + 1, sizeof *taken);
        const double sign = model->metric == DCI_METRIC_L2 ? 1 : -1; /* smaller is better */
        double last = -INFINITY, last_bound = 0;
        for (size_t i = 0; i < k; i++) {
                if (i >= n) {
                        ck_assert_msg(ids[i] == -1 && isnan(scores[i]), "%s: result %zu is not padding", what, i);
                        continue;
                }
                size_t at = position(model, ids[i]);
                double bound, score = naive_score(model, query, at, &bound);
                ck_assert_msg(!taken[at] && (admits == NULL || admits(ids[i])), "%s: id %lld again, or not admitted",
                              what, (long long)ids[i]);
                taken[at] = true;
                ck_assert_msg(fabs(scores[i] - score) <= bound, "%s: score %.9g, exact %.17g, bound %g", what,
                              (double)scores[i], score, bound);
                if (i > 0) {
                        double a = sign * scores[i - 1], b = sign * scores[i];
                        ck_assert_msg(a < b || (a == b && ids[i - 1] < ids[i]),
                                      "%s: results %zu and %zu are out of order", what, i - 1, i);
                }
                last = sign * score;
                last_bound = bound;
        }
        for (size_t i = 0; n == k && i < model->n; i++) {
                double bound, score = naive_score(model, query, i, &bound);
                if (!taken[i] && (admits == NULL || admits(model->ids[i])))
                        ck_assert_msg(sign * score >= last - last_bound - bound, "%s: id %lld is missing", what,
                                      (long long)model->ids[i]);
        }
        free(taken);
}

void naive_narrow(dci_dtype dtype, size_t n, const float *in, void *out)
{
        dci_kernels_scalar.narrow[dtype - 1](in, n, out);
}

void naive_round(dci_dtype dtype, size_t n, const float *in, float *out)
{
        void *narrow = malloc(n * 4 + 1);
        ck_assert_ptr_nonnull(narrow);
        naive_narrow(dtype, n, in, narrow);
        dci_kernels_scalar.to_f32[dtype - 1](narrow, n, out);
        free(narrow);
}

void naive_fill(naive *model, dci_dtype dtype, size_t n, const float *rows, const int64_t *ids)
{
        float *stored = malloc(n * model->dim * sizeof *stored + 1);
        ck_assert_ptr_nonnull(stored);
        naive_round(dtype, n * model->dim, rows, stored);
        for (size_t i = 0; i < n; i++)
                naive_add(model, stored + i * model->dim, ids != NULL ? ids[i] : (int64_t)i);
        free(stored);
}
