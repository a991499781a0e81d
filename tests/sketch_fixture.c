/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/sketch_fixture.h"

#include <float.h>
#include <math.h>
#include <string.h>

dci_sketch_config sketch_config(size_t dim, int32_t bits, size_t transform, int32_t centre, const float *given)
{
        dci_sketch_config config;
        ck_ok(dci_sketch_config_init(&config, sizeof config));
        config.dim = dim;
        config.bits = bits;
        config.transform = transform == PLAIN ? DCI_SKETCH_NONE : DCI_SKETCH_RANDOM;
        config.centre = centre;
        config.given_centre = centre == DCI_CENTRE_GIVEN ? given : NULL;
        config.seed = 5;
        return config;
}

dci_sketch *sketch_create(dci_context *context, const dci_sketch_config *config)
{
        dci_sketch *sketch = NULL;
        ck_ok(dci_sketch_create(context, config, &sketch));
        return sketch;
}

float *sketch_rows(size_t kind, size_t n, size_t dim, uint64_t seed)
{
        if (kind == CLUSTERS)
                return kmeans_blobs(n, dim, 5, 4.0f, seed);
        float *rows = test_normal(n, dim, seed), *other = test_normal(n, dim, seed + 77);
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < dim; j++) {
                        float *x = rows + i * dim + j;
                        if (kind == TAILS)
                                *x /= 0.05f + fabsf(other[i * dim + j]);
                        else
                                *x = 3.0f + *x * 4.0f / (float)(1 + j * 7 % dim);
                }
        free(other);
        return rows;
}

float *sketch_mean(size_t n, const float *rows, size_t dim)
{
        float *mean = calloc(dim, sizeof *mean);
        for (size_t j = 0; j < dim && n > 0; j++) {
                double sum = 0.0;
                for (size_t i = 0; i < n; i++)
                        sum += (double)rows[i * dim + j];
                mean[j] = (float)(sum / (double)n);
        }
        return mean;
}

void sketch_fit(dci_sketch *sketch, size_t n, const void *rows, size_t dim, size_t n_queries, const void *queries)
{
        ck_ok(dci_sketch_fit(sketch, n, rows, dim, n_queries, queries, dim));
}

dci_sketch *sketch_of(dci_context *context, size_t dim, int32_t bits, size_t transform, int32_t centre, size_t n,
                      const float *rows)
{
        float *mean = sketch_mean(n, rows, dim),
              *queries = sketch_rows(FADING, SKETCH_FIT_QUERIES, dim, SKETCH_FIT_SEED);
        dci_sketch_config config = sketch_config(dim, bits, transform, centre, mean);
        dci_sketch *sketch = sketch_create(context, &config);
        if (transform == LEARNED && n > 0)
                sketch_fit(sketch, n, rows, dim, SKETCH_FIT_QUERIES, queries);
        ck_ok(dci_sketch_append(sketch, n, rows, dim));
        test_free(mean, queries);
        return sketch;
}

void *sketch_narrow(dci_dtype dtype, size_t n, float *numbers)
{
        void *out = kmeans_narrow(dtype, n, numbers);
        dci_kernels_scalar.to_f32[dtype - 1](out, n, numbers);
        return out;
}

double sketch_dot(const float *a, const float *b, size_t dim)
{
        double sum = 0.0;
        for (size_t j = 0; j < dim; j++)
                sum += (double)a[j] * (double)b[j];
        return sum;
}

sketch_seen sketch_look(const dci_sketch *sketch, size_t dim, size_t n_queries, const void *queries, size_t k)
{
        const size_t n = dci_sketch_count(sketch);
        sketch_seen seen = {.n = n, .n_queries = n_queries, .dim = dim, .k = k};
        int64_t *all = test_room(n, sizeof *all);
        for (size_t i = 0; i < n; i++)
                all[i] = (int64_t)i;
        seen.scores = test_room(n * n_queries, sizeof(float));
        seen.bounds = test_room(n * n_queries, sizeof(float));
        seen.decoded = test_room(n * dim, sizeof(float));
        seen.best = test_room(n_queries * k, sizeof(int64_t));
        seen.best_scores = test_room(n_queries * k, sizeof(float));
        ck_ok(dci_sketch_score(sketch, n_queries, queries, dim, 0, n, seen.scores, n));
        ck_ok(dci_sketch_bound(sketch, n_queries, queries, dim, 0, n, 1.0, seen.bounds, n));
        ck_ok(dci_sketch_decode(sketch, n, all, seen.decoded, dim));
        if (k > 0)
                ck_ok(dci_sketch_search(sketch, n_queries, queries, dim, k, seen.best, seen.best_scores));
        free(all);
        return seen;
}

void sketch_seen_free(sketch_seen *seen)
{
        test_free(seen->scores, seen->bounds, seen->decoded, seen->best, seen->best_scores);
        memset(seen, 0, sizeof *seen);
}

static void same_bits(const float *a, const float *b, size_t n, const char *part, const char *what)
{
        for (size_t i = 0; i < n; i++)
                if (memcmp(a + i, b + i, sizeof *a) != 0)
                        ck_abort_msg("%s: %s, number %zu: %.9g, %.9g", what, part, i, (double)a[i], (double)b[i]);
}

void sketch_same_rows(const sketch_seen *a, const sketch_seen *b, size_t n, bool bounds, const char *what)
{
        test_hold(n <= a->n && n <= b->n && a->dim == b->dim && a->n_queries == b->n_queries);
        for (size_t q = 0; q < a->n_queries; q++) {
                same_bits(a->scores + q * a->n, b->scores + q * b->n, n, "scores", what);
                if (bounds)
                        same_bits(a->bounds + q * a->n, b->bounds + q * b->n, n, "bounds", what);
        }
        same_bits(a->decoded, b->decoded, n * a->dim, "decoded rows", what);
}

void sketch_same(const sketch_seen *a, const sketch_seen *b, const char *what)
{
        ck_assert_msg(a->n == b->n && a->k == b->k, "%s: %zu rows and %zu", what, a->n, b->n);
        sketch_same_rows(a, b, a->n, true, what);
        same_bits(a->best_scores, b->best_scores, a->n_queries * a->k, "best scores", what);
        ck_assert_msg(memcmp(a->best, b->best, a->n_queries * a->k * sizeof *a->best) == 0, "%s: best rows", what);
}

void sketch_obey(const sketch_seen *seen, const float *rows, const float *queries, const char *what)
{
        for (size_t q = 0; q < seen->n_queries; q++)
                for (size_t i = 0; i < seen->n; i++) {
                        const double truth = sketch_dot(rows + i * seen->dim, queries + q * seen->dim, seen->dim);
                        const double estimate = (double)seen->scores[q * seen->n + i];
                        const double bound = (double)seen->bounds[q * seen->n + i];
                        if (!(fabs(estimate - truth) <= bound + (double)FLT_MIN))
                                ck_abort_msg(
                                        "%s: row %zu, query %zu: estimate %.9g, product %.9g, %.9g apart, bound %.9g",
                                        what, i, q, estimate, truth, fabs(estimate - truth), bound);
                }
}

dci_sketch_info sketch_info(const dci_sketch *sketch)
{
        dci_sketch_info info;
        ck_ok(dci_sketch_info_init(&info, sizeof info));
        ck_ok(dci_sketch_get_info(sketch, &info));
        return info;
}
