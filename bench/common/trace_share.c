/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Attention share, as in the traces' reference figures: a query at position t weighs keys 0 to t by
 * softmax(scale * q.k); the share is the weight of the returned tokens of the prompt after the sink, over the weight of all
 * tokens of the prompt after the sink. Both sums run over all queries before the division.
 */
#include "bench/common/dataset.h"
#include "bench/common/exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keys converted at a time: they stay in the first cache while all queries pass by. */
#define BLOCK 32

/* The running softmax of one query: the greatest exponent so far, and sums relative to it. */
typedef struct running {
        double max, sum, prompt;
} running;

typedef struct pass {
        const bench_dataset *dataset;
        double *queries; /* n_queries x dim */
        double *keys;    /* BLOCK x dim */
        running *state;  /* n_queries */
} pass;

static size_t position_of(const bench_trace *trace, size_t query)
{
        return trace->prompt + query / trace->group;
}

/* Adds keys first to first + n - 1 to one query's sums. */
static void add_block(const pass *p, size_t query, size_t first, size_t n)
{
        const bench_trace *trace = &p->dataset->trace;
        size_t dim = trace->keys.dim;
        double exponents[BLOCK], max = p->state[query].max;
        running *state = &p->state[query];
        for (size_t j = 0; j < n; j++) {
                exponents[j] = trace->scale * bench_dot(p->queries + query * dim, p->keys + j * dim, dim);
                max = fmax(max, exponents[j]);
        }
        double shrink = exp(state->max - max);
        state->max = max;
        state->sum *= shrink;
        state->prompt *= shrink;
        for (size_t j = 0; j < n; j++) {
                double weight = exp(exponents[j] - max);
                state->sum += weight;
                if (first + j >= BENCH_SINK && first + j < trace->prompt)
                        state->prompt += weight;
        }
}

static void run_pass(const pass *p)
{
        const bench_trace *trace = &p->dataset->trace;
        size_t dim = trace->keys.dim, n_queries = p->dataset->queries.n;
        bench_progress progress;
        for (size_t i = 0; i < n_queries; i++) {
                running empty = {-INFINITY, 0, 0};
                p->state[i] = empty;
                bench_row_to_double(&p->dataset->queries, i, p->queries + i * dim);
        }
        bench_progress_begin(&progress, "weighing all tokens");
        for (size_t first = 0; first < trace->tokens; first += BLOCK) {
                size_t last = trace->tokens - first < BLOCK ? trace->tokens : first + BLOCK;
                for (size_t j = first; j < last; j++)
                        bench_row_to_double(&trace->keys, j, p->keys + (j - first) * dim);
                for (size_t i = 0; i < n_queries; i++) {
                        size_t end = position_of(trace, i) + 1 < last ? position_of(trace, i) + 1 : last;
                        if (end > first)
                                add_block(p, i, first, end - first);
                }
                bench_progress_step(&progress, first, trace->tokens);
        }
        bench_progress_end(&progress);
}

dci_status bench_share_prepare(dci_context *context, const bench_dataset *dataset, bench_share *out)
{
        size_t n = dataset->queries.n, dim = dataset->base.dim;
        pass p = {dataset, dci_alloc(context, n, dim * sizeof(double)), dci_alloc(context, BLOCK, dim * sizeof(double)),
                  dci_alloc(context, n, sizeof(running))};
        memset(out, 0, sizeof *out);
        out->context = context;
        out->n_queries = n;
        out->log_sums = dci_alloc(context, n, sizeof *out->log_sums);
        bool enough = p.queries != NULL && p.keys != NULL && p.state != NULL && out->log_sums != NULL;
        if (enough) {
                run_pass(&p);
                for (size_t i = 0; i < n; i++) {
                        out->log_sums[i] = p.state[i].max + log(p.state[i].sum);
                        out->weight += p.state[i].prompt / p.state[i].sum;
                }
        }
        dci_free(context, p.queries, n, dim * sizeof(double));
        dci_free(context, p.keys, BLOCK, dim * sizeof(double));
        dci_free(context, p.state, n, sizeof(running));
        dci_status status = enough ? DCI_OK : DCI_ERR_MEMORY;
        /* The index has seen the prompt's keys and refused bad ones; nobody has looked at the later ones yet. */
        if (enough && !isfinite(out->weight))
                status = dci_fail(DCI_ERR_NUMBER, "%s: keys.npy holds NaN or infinity, or values too large to weigh",
                                  dataset->name);
        if (status != DCI_OK)
                bench_share_free(out);
        return status;
}

void bench_share_free(bench_share *share)
{
        dci_free(share->context, share->log_sums, share->n_queries, sizeof *share->log_sums);
        memset(share, 0, sizeof *share);
}

static double weight_of_ids(const bench_share *share, const bench_dataset *dataset, size_t query, const int64_t *ids,
                            size_t n_ids, double *rows)
{
        const bench_trace *trace = &dataset->trace;
        size_t dim = trace->keys.dim;
        double weight = 0;
        bench_row_to_double(&dataset->queries, query, rows);
        for (size_t j = 0; j < n_ids; j++) {
                if (ids[j] < BENCH_SINK || (uint64_t)ids[j] >= trace->prompt)
                        continue;
                bench_row_to_double(&trace->keys, (size_t)ids[j], rows + dim);
                weight += exp(trace->scale * bench_dot(rows, rows + dim, dim) - share->log_sums[query]);
        }
        return weight;
}

dci_status bench_share_of(const bench_share *share, const bench_dataset *dataset, const int64_t *ids, size_t k,
                          size_t per_list, double *out_share)
{
        size_t dim = dataset->base.dim;
        int64_t *distinct = dci_alloc(share->context, k, sizeof *distinct);
        double *rows = dci_alloc(share->context, 2, dim * sizeof *rows), kept = 0;
        bool enough = distinct != NULL && rows != NULL;
        for (size_t i = 0; enough && i < share->n_queries; i++) {
                size_t n = bench_distinct(ids + i / per_list * k, k, distinct);
                kept += weight_of_ids(share, dataset, i, distinct, n, rows);
        }
        dci_free(share->context, distinct, k, sizeof *distinct);
        dci_free(share->context, rows, 2, dim * sizeof *rows);
        *out_share = share->weight > 0 ? kept / share->weight : 0;
        return enough ? DCI_OK : DCI_ERR_MEMORY;
}
