/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Exact attention on a trace, once more and by plain means: what dci-bench kv is held against. */
#ifndef DCI_TESTS_BENCH_ATTENTION_H
#define DCI_TESTS_BENCH_ATTENTION_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/npy.h"
#include "simd/convert.h"
#include "tests/bench_files.h"

/* Few steps; positions prompt + 8, + 24 and + 40 are judged. */
#define BRIEF "--steps", "48", "--every", "16"
enum { BRIEF_STEPS = 48, BRIEF_EVERY = 16, FIRST = 8, SINK = 16, WINDOW = 64 };

typedef struct trace {
        size_t tokens, prompt, first_query, group, dim;
        double scale;
        float *keys, *queries; /* group x m x dim */
} trace;

static float *floats_of(const char *folder, const char *name)
{
        char path[4096];
        dci_context *context = test_context(1);
        dci_npy npy;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        ck_ok(dci_npy_read(context, path, &npy));
        const size_t n = npy.n_bytes / dci_npy_type_size(npy.type);
        float *out = calloc(n, sizeof *out);
        ck_assert_ptr_nonnull(out);
        for (size_t i = 0; i < n; i++)
                out[i] = npy.type == DCI_NPY_F32 ? ((const float *)npy.data)[i]
                                                 : dci_f16_to_float(((const uint16_t *)npy.data)[i]);
        dci_npy_free(&npy);
        dci_context_destroy(context);
        return out;
}

static trace open_trace(const char *folder, size_t tokens, size_t prompt, size_t first_query, size_t group, size_t dim,
                        double scale)
{
        trace t = {tokens, prompt, first_query, group, dim, scale, NULL, NULL};
        t.keys = floats_of(folder, "keys.npy");
        t.queries = floats_of(folder, "queries.npy");
        return t;
}

static void close_trace(trace *t)
{
        free(t->keys);
        free(t->queries);
}

/* weights[i]: of token i at position `at`, summed over the heads. */
static void find_weights(const trace *t, size_t at, double *weights)
{
        const size_t m = t->tokens - t->first_query;
        double *scores = malloc(t->tokens * sizeof *scores);
        ck_assert_ptr_nonnull(scores);
        memset(weights, 0, t->tokens * sizeof *weights);
        for (size_t h = 0; h < t->group; h++) {
                const float *query = t->queries + (h * m + at - t->first_query) * t->dim;
                double sum = 0;
                for (size_t i = 0; i <= at; i++) {
                        double score = 0;
                        for (size_t j = 0; j < t->dim; j++)
                                score += (double)query[j] * (double)t->keys[i * t->dim + j];
                        scores[i] = exp(score * t->scale);
                        sum += scores[i];
                }
                for (size_t i = 0; i <= at; i++)
                        weights[i] += scores[i] / sum;
        }
        free(scores);
}

static int descending(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x < y) - (x > y);
}

typedef struct shares {
        double best, latest;
} shares;

/* What the n best and the n latest of tokens [SINK, end) hold of the weight of all, over the positions that BRIEF judges; end 0:
 * up to the window. */
static shares find_shares(const trace *t, size_t n, size_t end)
{
        double *weights = malloc(t->tokens * sizeof *weights), best = 0, latest = 0, all = 0;
        ck_assert_ptr_nonnull(weights);
        for (size_t at = t->prompt + FIRST; at < t->prompt + BRIEF_STEPS && at < t->tokens; at += BRIEF_EVERY) {
                const size_t last = end > 0 ? end : at + 1 - WINDOW;
                find_weights(t, at, weights);
                for (size_t i = SINK; i < last; i++) {
                        all += weights[i];
                        latest += i + n >= last ? weights[i] : 0;
                }
                qsort(weights + SINK, last - SINK, sizeof *weights, descending);
                for (size_t i = SINK; i < SINK + n && i < last; i++)
                        best += weights[i];
        }
        free(weights);
        const shares s = {best / all, latest / all};
        return s;
}

#endif
