/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * LouisKV's gate. A step is a boundary when the mean over the heads of cos(q_t, q_t-1) is below tau; the first step always retrieves. A
 * one-head trace uses the heads of its group.
 */
#include "bench/kv/papers/papers.h"

#include <math.h>

size_t papers_steps(const papers_run *run)
{
        return run->trace->tokens - run->trace->prompt;
}

/* A first step without a query before it begins a segment like any other first step. */
bool papers_is_boundary(const double *turns, size_t step, double tau)
{
        return step == 0 || turns[step] < tau;
}

/* cos(a, b); 0 when one of them has no direction. */
static double cosine_of(const double *a, const double *b, size_t dim)
{
        double product = 0, length_a = 0, length_b = 0;
        for (size_t j = 0; j < dim; j++) {
                product += a[j] * b[j];
                length_a += a[j] * a[j];
                length_b += b[j] * b[j];
        }
        return length_a > 0 && length_b > 0 ? product / (sqrt(length_a) * sqrt(length_b)) : 0;
}

dci_status papers_turns(papers_run *run, double **out)
{
        const kvbench_trace *trace = run->trace;
        const size_t n = trace->tokens - trace->prompt, dim = trace->keys.dim;
        double *rows = papers_alloc(run, 2 * dim, sizeof *rows);
        *out = papers_alloc(run, n, sizeof **out);
        DCI_TRY(papers_memory(run));
        for (size_t i = 0; i < n; i++) {
                const size_t t = trace->prompt + i;
                double sum = 0;
                for (size_t h = 0; h < trace->group && t > papers_first_query(trace); h++) {
                        papers_query(trace, t - 1, h, rows);
                        papers_query(trace, t, h, rows + dim);
                        sum += cosine_of(rows, rows + dim, dim);
                }
                (*out)[i] = t > papers_first_query(trace) ? sum / (double)trace->group : (double)NAN;
        }
        return DCI_OK;
}
