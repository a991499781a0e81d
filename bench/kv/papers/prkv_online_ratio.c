/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* PRKV, appendix G: the static ratio that the observation window suggests. */
#include "bench/kv/papers/papers.h"

#include <math.h>

/* Places in the sequence at which it is computed, evenly spaced from the prompt's end. */
enum { PLACES = 4 };

/* Computes the mean over the heads of the overlap of the B best tokens before the window of queries n - window and n - 1. */
static dci_status overlap_at(papers_run *run, size_t n, size_t budget, double *out)
{
        const kvbench_trace *trace = run->trace;
        const size_t window = run->options->window, end = n - window;
        papers_block *mark = run->blocks;
        double *weights = papers_alloc(run, end, sizeof *weights), *scratch = papers_alloc(run, end, sizeof *scratch);
        double *query = papers_alloc(run, trace->keys.dim, sizeof *query), sum = 0;
        int32_t *best = papers_alloc(run, budget, 2 * sizeof *best);
        DCI_TRY(papers_memory(run));
        for (size_t h = 0; h < trace->group; h++) {
                size_t counts[2];
                for (size_t i = 0; i < 2; i++) {
                        papers_weights(trace, i == 0 ? n - window : n - 1, h, end, query, weights);
                        counts[i] = papers_top(weights, 0, end, budget, scratch, best + i * budget);
                }
                sum += (double)papers_in_both(best, counts[0], best + budget, counts[1]);
        }
        *out = sum / (double)trace->group;
        papers_release(run, mark);
        return DCI_OK;
}

static dci_status run_online(papers_run *run)
{
        static const bench_sizes own = {3, {512, 1024, 2048}};
        const bench_sizes budgets = papers_budgets(run, &own);
        const kvbench_trace *trace = run->trace;
        const size_t window = run->options->window, page = run->options->page;
        if (window > trace->observed.n / trace->group)
                return dci_fail(DCI_ERR_INVALID, "--window %zu: %s holds %zu queries before the decode", window,
                                trace->name, trace->observed.n / trace->group);
        for (size_t i = 0; i < budgets.n * (PLACES + 1); i++) {
                const size_t budget = budgets.values[i / (PLACES + 1)];
                const size_t n = trace->prompt + (trace->tokens - trace->prompt) * (i % (PLACES + 1)) / PLACES;
                double overlap;
                if (budget >= n - window)
                        continue;
                DCI_TRY(overlap_at(run, n, budget, &overlap));
                const papers_cell cells[] = {
                        papers_size(n), papers_size(budget), papers_number(overlap / (double)budget),
                        papers_number((double)page * floor(overlap / (double)page) / (double)budget)};
                DCI_TRY(papers_add(run, cells));
        }
        return DCI_OK;
}

static const papers_column online_columns[] = {{"n", "%.0f"}, {"budget", "%.0f"}, {"overlap", "%.3f"}, {"S", "%.4f"}};
static const char online_ratio_help[] =
        "S = P floor(mean_h C_h / P) / B, C_h the overlap of the B best tokens before the window of the first\n"
        "  and of the last of --window queries of head h, P = --page; at the prompt's end and at four later\n"
        "  places: n tokens. overlap: before it is rounded down, over B";
const papers_figure papers_online_ratio = {
        "online-s",     "PRKV, appendix G, equations 4 and 5",          online_ratio_help,
        online_columns, sizeof online_columns / sizeof *online_columns, run_online};
