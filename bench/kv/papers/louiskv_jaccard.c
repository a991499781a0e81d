/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* LouisKV, section 3.2: what the sets of a head's best tokens share at adjacent steps. */
#include "bench/kv/papers/papers.h"

/* One budget; sets of all tokens, and of those after the sink and before the window. */
enum { EVERYWHERE, CONTESTED, RANGES };

typedef struct jaccard_walk {
        papers_run *run;
        size_t budget;
        const double *turns;
        double *scratch;
        int32_t *sets[2]; /* of this step and the one before: RANGES x group x budget */
        size_t *counts[2];
        size_t now;
        double sums[RANGES][2][BENCH_MAX_SHARES], n[2][BENCH_MAX_SHARES]; /* across a boundary or within, of each tau */
} jaccard_walk;

static double jaccard_of(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
        const size_t both = papers_in_both(a, n_a, b, n_b), either = n_a + n_b - both;
        return either > 0 ? (double)both / (double)either : 1;
}

static dci_status jaccard_step(void *arg, size_t t, const double *weights)
{
        jaccard_walk *w = arg;
        const kvbench_trace *trace = w->run->trace;
        const bench_shares *taus = &w->run->options->taus;
        const size_t step = t - trace->prompt, now = w->now, before = 1 - now, group = trace->group;
        double mean[RANGES] = {0};
        for (size_t i = 0; i < RANGES * group; i++) {
                const size_t range = i / group, window = papers_window_begin(t, BENCH_SINK, KVBENCH_WINDOW);
                int32_t *set = w->sets[now] + i * w->budget;
                w->counts[now][i] = papers_top(weights + i % group * trace->tokens, range == CONTESTED ? BENCH_SINK : 0,
                                               range == CONTESTED ? window : t + 1, w->budget, w->scratch, set);
                if (step > 0)
                        mean[range] += jaccard_of(w->sets[before] + i * w->budget, w->counts[before][i], set,
                                                  w->counts[now][i]) /
                                       (double)group;
        }
        for (size_t i = 0; step > 0 && i < taus->n; i++) {
                const size_t within = papers_is_boundary(w->turns, step, taus->values[i]) ? 0 : 1;
                for (size_t range = 0; range < RANGES; range++)
                        w->sums[range][within][i] += mean[range];
                w->n[within][i]++;
        }
        w->now = before;
        return DCI_OK;
}

static dci_status jaccard_rows(const jaccard_walk *w)
{
        const bench_shares *taus = &w->run->options->taus;
        for (size_t i = 0; i < taus->n; i++) {
                const double in = w->n[1][i], across = w->n[0][i];
                const papers_cell cells[] = {papers_number(taus->values[i]),
                                             papers_size(w->budget),
                                             papers_number(w->sums[EVERYWHERE][1][i] / in),
                                             papers_number(w->sums[EVERYWHERE][0][i] / across),
                                             papers_number(w->sums[CONTESTED][1][i] / in),
                                             papers_number(w->sums[CONTESTED][0][i] / across),
                                             papers_number(in),
                                             papers_number(across)};
                DCI_TRY(papers_add(w->run, cells));
        }
        return DCI_OK;
}

static dci_status jaccard_budget(papers_run *run, size_t budget, void *arg)
{
        const size_t n = RANGES * run->trace->group;
        jaccard_walk w = {.run = run, .budget = budget, .turns = arg};
        for (size_t i = 0; i < 2; i++) {
                w.sets[i] = papers_alloc(run, n, budget * sizeof *w.sets[i]);
                w.counts[i] = papers_alloc(run, n, sizeof *w.counts[i]);
        }
        w.scratch = papers_alloc(run, run->trace->tokens, sizeof *w.scratch);
        DCI_TRY(papers_memory(run));
        DCI_TRY(papers_walk(run, "jaccard", run->trace->prompt, 1, jaccard_step, &w));
        return jaccard_rows(&w);
}

static dci_status run_jaccard(papers_run *run)
{
        static const bench_sizes own = {2, {256, 1024}};
        double *turns = NULL;
        DCI_TRY(papers_turns(run, &turns));
        return papers_each_budget(run, &own, jaccard_budget, turns);
}

static const papers_column jaccard_columns[] = {
        {"tau", "%.3f"},          {"budget", "%.0f"},           {"within", "%.3f"},
        {"across", "%.3f"},       {"within_contested", "%.3f"}, {"across_contested", "%.3f"},
        {"pairs_within", "%.0f"}, {"pairs_across", "%.0f"}};
static const char jaccard_help[] =
        "|I_t n I_t+1| / |I_t u I_t+1| of the sets of a head's B best tokens by q . k at adjacent steps, the\n"
        "  mean over the heads and over pairs within a segment and across a boundary, segments by the gate at\n"
        "  tau. The paper: above 0.8 within. contested: of the best among tokens after the first 16 and before\n"
        "  the last 64, which every system keeps";
const papers_figure papers_jaccard = {"jaccard",
                                      "LouisKV, section 3.2, observation 1",
                                      jaccard_help,
                                      jaccard_columns,
                                      sizeof jaccard_columns / sizeof *jaccard_columns,
                                      run_jaccard};
