/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* LouisKV, figure 12(a): retrieval at segment boundaries against a fixed stride. */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <stdlib.h>

/* Two schedules of as many retrievals for each stride, and one that retrieves at each step. */
enum { AT_BOUNDARIES, AT_STRIDE, SCHEDULES };

typedef struct schedule {
        bool *retrieves; /* of each step */
        int32_t *list;   /* the tokens frozen */
        size_t n_list;
        double recall, share;
} schedule;

typedef struct boundary_walk {
        papers_run *run;
        size_t budget, n_schedules;
        schedule *schedules; /* SCHEDULES for each stride */
        double *scratch, *group;
        double contested; /* weight of what is chosen from */
} boundary_walk;

typedef struct turn {
        double cosine;
        size_t step;
} turn;

static int lowest_first(const void *a, const void *b)
{
        const turn *x = a, *y = b;
        if (x->cosine != y->cosine)
                return x->cosine < y->cosine ? -1 : 1;
        return (x->step > y->step) - (x->step < y->step);
}

/* Marks the first step and the n - 1 others with the lowest cosines, as a tau calibrated on the trace itself would. */
static dci_status mark_boundaries(papers_run *run, const double *turns, size_t n, bool *out, double *out_tau)
{
        const size_t n_steps = papers_steps(run);
        turn *sorted = papers_alloc(run, n_steps, sizeof *sorted);
        DCI_TRY(papers_memory(run));
        for (size_t i = 1; i < n_steps; i++)
                sorted[i] = (turn){turns[i], i};
        qsort(sorted + 1, n_steps - 1, sizeof *sorted, lowest_first);
        out[0] = true;
        for (size_t i = 1; i < n; i++)
                out[sorted[i].step] = true;
        *out_tau = n < n_steps ? sorted[n].cosine : (double)NAN;
        return DCI_OK;
}

static dci_status boundary_step(void *arg, size_t t, const double *weights)
{
        boundary_walk *w = arg;
        const kvbench_trace *trace = w->run->trace;
        const size_t step = t - trace->prompt, window = w->run->options->window;
        const size_t begin = papers_window_begin(t, BENCH_SINK, window);
        papers_group(trace, weights, t + 1, w->group);
        const double kept = papers_sum_range(w->group, 0, BENCH_SINK) + papers_sum_range(w->group, begin, t + 1);
        w->contested += papers_sum_range(w->group, BENCH_SINK, begin);
        for (size_t i = 0; i < w->n_schedules; i++) {
                schedule *s = &w->schedules[i];
                if (s->retrieves[step])
                        s->n_list = papers_top(w->group, BENCH_SINK, begin, w->budget - BENCH_SINK - window, w->scratch,
                                               s->list);
                const double chosen = papers_sum(w->group, s->list, s->n_list);
                s->share += chosen;
                s->recall += kept + chosen;
        }
        return DCI_OK;
}

static dci_status boundary_rows(const boundary_walk *w, const double *taus)
{
        const papers_run *run = w->run;
        const size_t n = papers_steps(run);
        const double all = (double)(n * run->trace->group);
        for (size_t i = 0; i < w->n_schedules; i += SCHEDULES) {
                const schedule *at = &w->schedules[i + AT_BOUNDARIES], *stride = &w->schedules[i + AT_STRIDE];
                size_t retrievals = 0;
                for (size_t j = 0; j < n; j++)
                        retrievals += stride->retrieves[j];
                const papers_cell cells[] = {papers_size(run->options->strides.values[i / SCHEDULES]),
                                             papers_size(w->budget),
                                             papers_size(retrievals),
                                             papers_number(taus[i / SCHEDULES]),
                                             papers_number(at->recall / all),
                                             papers_number(stride->recall / all),
                                             papers_number(at->share / w->contested),
                                             papers_number(stride->share / w->contested)};
                DCI_TRY(papers_add(w->run, cells));
        }
        return DCI_OK;
}

static dci_status open_schedules(boundary_walk *w, const double *turns, double *out_taus)
{
        papers_run *run = w->run;
        const size_t n = papers_steps(run);
        for (size_t i = 0; i < w->n_schedules; i++) {
                schedule *s = &w->schedules[i];
                const size_t stride = run->options->strides.values[i / SCHEDULES];
                const size_t retrievals = (n + stride - 1) / stride;
                s->retrieves = papers_alloc(run, n, sizeof *s->retrieves);
                s->list = papers_alloc(run, w->budget, sizeof *s->list);
                DCI_TRY(papers_memory(run));
                if (i % SCHEDULES == AT_BOUNDARIES)
                        DCI_TRY(mark_boundaries(run, turns, retrievals, s->retrieves, &out_taus[i / SCHEDULES]));
                for (size_t j = 0; i % SCHEDULES == AT_STRIDE && j < n; j += stride)
                        s->retrieves[j] = true;
        }
        return DCI_OK;
}

static dci_status boundary_budget(papers_run *run, size_t budget, void *arg)
{
        double taus[BENCH_MAX_SHARES] = {0};
        boundary_walk w = {.run = run, .budget = budget, .n_schedules = SCHEDULES * run->options->strides.n};
        if (budget <= BENCH_SINK + run->options->window)
                return dci_fail(DCI_ERR_INVALID, "--budget %zu: boundary keeps %zu tokens and chooses more", budget,
                                BENCH_SINK + run->options->window);
        w.schedules = papers_alloc(run, w.n_schedules, sizeof *w.schedules);
        w.scratch = papers_alloc(run, run->trace->tokens, sizeof *w.scratch);
        w.group = papers_alloc(run, run->trace->tokens, sizeof *w.group);
        DCI_TRY(papers_memory(run));
        DCI_TRY(open_schedules(&w, arg, taus));
        DCI_TRY(papers_walk(run, "boundary", run->trace->prompt, 1, boundary_step, &w));
        return boundary_rows(&w, taus);
}

static dci_status run_boundary(papers_run *run)
{
        static const bench_sizes own = {2, {256, 512}};
        double *turns = NULL;
        DCI_TRY(papers_turns(run, &turns));
        return papers_each_budget(run, &own, boundary_budget, turns);
}

static const papers_column boundary_columns[] = {
        {"stride", "%.0f"},          {"budget", "%.0f"},        {"retrievals", "%.0f"},     {"tau", "%.4f"},
        {"recall_boundary", "%.3f"}, {"recall_stride", "%.3f"}, {"share_boundary", "%.3f"}, {"share_stride", "%.3f"}};
static const char boundary_help[] =
        "the group's B - 80 best tokens by exact attention, frozen between retrievals, with the first 16\n"
        "  and the last 64: retrieved at boundaries, and each `stride` steps, equally often (tau is the one\n"
        "  that does so on this trace). recall: true softmax weight attended to, over the full cache; share:\n"
        "  the part of it that is chosen from";
const papers_figure papers_boundary = {"boundary",
                                       "LouisKV, section 5.4 and figure 12(a)",
                                       boundary_help,
                                       boundary_columns,
                                       sizeof boundary_columns / sizeof *boundary_columns,
                                       run_boundary};
