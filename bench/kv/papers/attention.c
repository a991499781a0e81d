/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <string.h>

/* Positions whose weights are computed in parallel before the first of them is used. */
enum { BLOCK = 16 };

/* --- one head at one position ------------------------------------------------------------------------------------------ */

size_t papers_first_query(const kvbench_trace *trace)
{
        /* The reader of traces refuses those without heads. */
        return trace->group > 0 ? trace->prompt - trace->observed.n / trace->group : trace->prompt;
}

void papers_query(const kvbench_trace *trace, size_t t, size_t head, double *out)
{
        if (t >= trace->prompt)
                bench_row_to_double(&trace->queries, (t - trace->prompt) * trace->group + head, out);
        else
                bench_row_to_double(&trace->observed, (t - papers_first_query(trace)) * trace->group + head, out);
}

void papers_weights(const kvbench_trace *trace, size_t t, size_t head, size_t n, double *query, double *out)
{
        const size_t dim = trace->keys.dim;
        double most = -(double)INFINITY, sum = 0;
        papers_query(trace, t, head, query);
        for (size_t i = 0; i < n; i++) {
                out[i] = trace->scale * kvbench_dot(query, trace->key_rows + i * dim, dim);
                most = fmax(most, out[i]);
        }
        for (size_t i = 0; i < n; i++) {
                out[i] = exp(out[i] - most);
                sum += out[i];
        }
        for (size_t i = 0; i < n; i++)
                out[i] /= sum;
}

/* --- all positions ---------------------------------------------------------------------------------------------------------- */

typedef struct block {
        const kvbench_trace *trace;
        size_t first, every;
        double *weights; /* BLOCK x group x tokens */
        double *queries; /* BLOCK x dim */
} block;

static void fill_position(void *arg, size_t task, size_t worker)
{
        const block *b = arg;
        const kvbench_trace *trace = b->trace;
        const size_t t = b->first + task * b->every;
        (void)worker;
        for (size_t h = 0; h < trace->group; h++)
                papers_weights(trace, t, h, t + 1, b->queries + task * trace->keys.dim,
                               b->weights + (task * trace->group + h) * trace->tokens);
}

static dci_status walk_block(block *b, size_t n, papers_step step, void *arg)
{
        const kvbench_trace *trace = b->trace;
        const size_t work = n * trace->group * trace->tokens * trace->keys.dim;
        const dci_region region = {.context = trace->helper,
                                   .n_tasks = n,
                                   .n_workers = dci_workers_for(trace->helper, n, work),
                                   .fn = fill_position,
                                   .arg = b,
                                   .object = b};
        DCI_TRY(dci_parallel(&region));
        for (size_t i = 0; i < n; i++) {
                const size_t t = b->first + i * b->every;
                const double *weights = b->weights + i * trace->group * trace->tokens;
                DCI_TRY(step(arg, t, weights));
        }
        return DCI_OK;
}

dci_status papers_walk(papers_run *run, const char *label, size_t first, size_t every, papers_step step, void *arg)
{
        const kvbench_trace *trace = run->trace;
        block b = {.trace = trace, .first = first, .every = every};
        dci_status status = DCI_OK;
        bench_progress progress;
        if (first >= trace->tokens)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: %zu decoded tokens are too few; the first that is looked at is prompt + %zu",
                                trace->name, trace->tokens - trace->prompt, first - trace->prompt);
        b.weights = papers_alloc(run, BLOCK * trace->group * trace->tokens, sizeof *b.weights);
        b.queries = papers_alloc(run, BLOCK * trace->keys.dim, sizeof *b.queries);
        DCI_TRY(papers_memory(run));
        bench_progress_begin(&progress, label);
        while (status == DCI_OK && b.first < trace->tokens) {
                const size_t left = (trace->tokens - b.first + every - 1) / every, n = left < BLOCK ? left : BLOCK;
                bench_progress_step(&progress, b.first - first, trace->tokens - first);
                status = walk_block(&b, n, step, arg);
                b.first += n * every;
        }
        bench_progress_end(&progress);
        return status;
}

/* --- sets of tokens --------------------------------------------------------------------------------------------------------- */

size_t papers_top(const double *weights, size_t first, size_t end, size_t budget, double *scratch, int32_t *out)
{
        const size_t n = end > first ? end - first : 0;
        size_t n_out = 0, equal = 0;
        if (n <= budget) {
                for (size_t i = 0; i < n; i++)
                        out[i] = (int32_t)(first + i);
                return n;
        }
        if (budget == 0)
                return 0;
        memcpy(scratch, weights + first, n * sizeof *scratch);
        const double limit = kvbench_kth_greatest(scratch, n, budget);
        /* How many of those at the limit are among the best. */
        for (size_t i = first; i < end; i++)
                equal += weights[i] > limit;
        equal = budget - equal;
        for (size_t i = first; i < end; i++)
                if (weights[i] > limit || (weights[i] == limit && equal > 0)) {
                        equal -= weights[i] == limit;
                        out[n_out++] = (int32_t)i;
                }
        return n_out;
}

size_t papers_in_both(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
        size_t i = 0, j = 0, n = 0;
        while (i < n_a && j < n_b) {
                const int32_t x = a[i], y = b[j];
                n += x == y;
                i += x <= y;
                j += y <= x;
        }
        return n;
}

double papers_sum(const double *weights, const int32_t *tokens, size_t n)
{
        double sum = 0;
        for (size_t i = 0; i < n; i++)
                sum += weights[tokens[i]];
        return sum;
}

double papers_sum_range(const double *weights, size_t first, size_t end)
{
        double sum = 0;
        for (size_t i = first; i < end; i++)
                sum += weights[i];
        return sum;
}

void papers_group(const kvbench_trace *trace, const double *weights, size_t n, double *out)
{
        memcpy(out, weights, n * sizeof *out);
        for (size_t h = 1; h < trace->group; h++)
                for (size_t i = 0; i < n; i++)
                        out[i] += weights[h * trace->tokens + i];
}

size_t papers_window_begin(size_t t, size_t sink, size_t window)
{
        const size_t begin = t + 1 > window ? t + 1 - window : 0;
        return begin > sink ? begin : sink;
}
