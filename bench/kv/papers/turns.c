/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * LouisKV's premise and its gate. A step is a boundary when the mean over the heads of cos(q_t, q_t-1) is below tau; the first step
 * always retrieves. A one-head trace uses the heads of its group.
 */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t steps_of(const papers_run *run)
{
        return run->trace->tokens - run->trace->prompt;
}

/* A first step without a query before it begins a segment like any other first step. */
static bool is_boundary(const double *turns, size_t step, double tau)
{
        return step == 0 || turns[step] < tau;
}

/* --- jaccard: what adjacent steps share ------------------------------------------------------------------------------------- */

/* One budget; sets of all tokens, and of those behind the sink and before the window. */
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
                const size_t within = is_boundary(w->turns, step, taus->values[i]) ? 0 : 1;
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

static dci_status jaccard_budget(papers_run *run, const double *turns, size_t budget)
{
        const size_t n = RANGES * run->trace->group;
        jaccard_walk w = {.run = run, .budget = budget, .turns = turns};
        bool enough = true;
        for (size_t i = 0; i < 2; i++) {
                w.sets[i] = dci_alloc(run->helper, n, budget * sizeof *w.sets[i]);
                w.counts[i] = dci_calloc(run->helper, n, sizeof *w.counts[i]);
                enough = enough && w.sets[i] != NULL && w.counts[i] != NULL;
        }
        w.scratch = dci_alloc(run->helper, run->trace->tokens, sizeof *w.scratch);
        dci_status status = DCI_ERR_MEMORY;
        if (enough && w.scratch != NULL)
                status = papers_walk(run, "jaccard", run->trace->prompt, 1, jaccard_step, &w);
        if (status == DCI_OK)
                status = jaccard_rows(&w);
        for (size_t i = 0; i < 2; i++) {
                dci_free(run->helper, w.sets[i], n, budget * sizeof *w.sets[i]);
                dci_free(run->helper, w.counts[i], n, sizeof *w.counts[i]);
        }
        dci_free(run->helper, w.scratch, run->trace->tokens, sizeof *w.scratch);
        return status;
}

static dci_status run_jaccard(papers_run *run)
{
        static const bench_sizes own = {2, {256, 1024}};
        const bench_sizes budgets = papers_budgets(run, &own);
        double *turns = NULL;
        dci_status status = papers_turns(run, &turns);
        for (size_t i = 0; status == DCI_OK && i < budgets.n; i++)
                status = jaccard_budget(run, turns, budgets.values[i]);
        dci_free(run->helper, turns, steps_of(run), sizeof *turns);
        return status;
}

static const papers_column jaccard_columns[] = {
        {"tau", "%.3f"},          {"budget", "%.0f"},           {"within", "%.3f"},
        {"across", "%.3f"},       {"within_contested", "%.3f"}, {"across_contested", "%.3f"},
        {"pairs_within", "%.0f"}, {"pairs_across", "%.0f"}};
static const char jaccard_help[] =
        "|I_t n I_t+1| / |I_t u I_t+1| of the sets of a head's B best tokens by q . k at adjacent steps, the\n"
        "  mean over the heads and over pairs within a segment and across a boundary, segments by the gate at\n"
        "  tau. The paper: above 0.8 within. contested: of the best among tokens behind the first 16 and before\n"
        "  the last 64, which every system keeps";
const papers_figure papers_jaccard = {"jaccard",
                                      "LouisKV, section 3.2, observation 1",
                                      jaccard_help,
                                      jaccard_columns,
                                      sizeof jaccard_columns / sizeof *jaccard_columns,
                                      run_jaccard};

/* --- frequency: how often the gate opens ---------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* The folder above the trace's: what traces of one model and text share. */
static bool same_folder(const char *a, const char *b)
{
        const char *end = strrchr(a, '/');
        const size_t n = end != NULL ? (size_t)(end - a) + 1 : 0;
        return n > 0 && strncmp(a, b, n) == 0 && strchr(b + n, '/') == NULL;
}

/* Of the steps at which one of two layers retrieves, those at which both do; without the first step, at which all do. */
static double agreement(const double *a, const double *b, size_t n, double tau)
{
        size_t both = 0, either = 0;
        for (size_t i = 1; i < n; i++) {
                const bool in_a = is_boundary(a, i, tau), in_b = is_boundary(b, i, tau);
                both += in_a && in_b;
                either += in_a || in_b;
        }
        return either > 0 ? (double)both / (double)either : (double)NAN;
}

/* The same of two layers that retrieve as often and have nothing to do with each other. */
static double chance(const double *a, const double *b, size_t n, double tau)
{
        double in_a = 0, in_b = 0;
        for (size_t i = 1; i < n; i++) {
                in_a += is_boundary(a, i, tau);
                in_b += is_boundary(b, i, tau);
        }
        const double both = in_a * in_b / (double)(n - 1);
        return in_a + in_b > 0 ? both / (in_a + in_b - both) : (double)NAN;
}

static dci_status frequency_row(papers_run *run, const double *turns, double tau)
{
        const size_t n = steps_of(run);
        const bool layers =
                run->before_turns != NULL && run->n_before == n && same_folder(run->before, run->trace->name);
        size_t retrievals = 0, longest = 0, begin = 0;
        for (size_t i = 0; i < n; i++)
                if (is_boundary(turns, i, tau)) {
                        longest = i - begin > longest ? i - begin : longest;
                        begin = i;
                        retrievals++;
                }
        longest = n - begin > longest ? n - begin : longest;
        const papers_cell cells[] = {papers_number(tau),
                                     papers_size(retrievals),
                                     papers_number((double)retrievals / (double)n),
                                     papers_number((double)n / (double)retrievals),
                                     papers_size(longest),
                                     papers_word(layers ? bench_base_name(run->before) : "-"),
                                     papers_number(layers ? agreement(turns, run->before_turns, n, tau) : (double)NAN),
                                     papers_number(layers ? chance(turns, run->before_turns, n, tau) : (double)NAN)};
        return papers_add(run, cells);
}

/* Words for where the cosines lie: tau is calibrated by it. */
static dci_status quantile_rows(papers_run *run, const double *turns)
{
        static const double levels[] = {0, 0.05, 0.25, 0.5, 0.75, 0.95, 1};
        const size_t n = steps_of(run), first = isnan(turns[0]) ? 1 : 0;
        double *sorted = dci_alloc(run->helper, n, sizeof *sorted);
        dci_status status = sorted != NULL ? DCI_OK : DCI_ERR_MEMORY;
        if (status == DCI_OK) {
                memcpy(sorted, turns, n * sizeof *sorted);
                qsort(sorted + first, n - first, sizeof *sorted, ascending);
        }
        for (size_t i = 0; status == DCI_OK && n > first && i < sizeof levels / sizeof *levels; i++) {
                const double tau = sorted[first + (size_t)(levels[i] * (double)(n - first - 1))];
                status = frequency_row(run, turns, tau);
        }
        dci_free(run->helper, sorted, n, sizeof *sorted);
        return status;
}

static dci_status run_frequency(papers_run *run)
{
        double *turns = NULL;
        dci_status status = papers_turns(run, &turns);
        for (size_t i = 0; status == DCI_OK && i < run->options->taus.n; i++)
                status = frequency_row(run, turns, run->options->taus.values[i]);
        if (status == DCI_OK)
                status = quantile_rows(run, turns);
        dci_free(run->helper, run->before_turns, run->n_before, sizeof *run->before_turns);
        run->before_turns = turns;
        run->n_before = turns != NULL ? steps_of(run) : 0;
        snprintf(run->before, sizeof run->before, "%s", run->trace->name);
        return status;
}

static const papers_column frequency_columns[] = {{"tau", "%.4f"},       {"retrievals", "%.0f"}, {"frequency", "%.3f"},
                                                  {"segment", "%.1f"},   {"longest", "%.0f"},    {"beside", NULL},
                                                  {"agreement", "%.3f"}, {"chance", "%.3f"}};
static const char frequency_help[] =
        "steps that retrieve at tau, the first one always; their share of all, and the mean and greatest\n"
        "  length of a segment. Behind the taus asked for, those that stand at 0, 5, 25, 50, 75, 95 and 100 %\n"
        "  of the trace's cosines. agreement: of the steps at which this trace or the one before it retrieves,\n"
        "  those at which both do; for traces of one folder, such as adjacent layers, named one after the other";
const papers_figure papers_frequency = {
        "frequency",       "LouisKV, sections 4.1 and 5.4, figures 14 and 16",   frequency_help,
        frequency_columns, sizeof frequency_columns / sizeof *frequency_columns, run_frequency};

/* --- boundary: retrieval at boundaries against a fixed stride --------------------------------------------------------------------- */

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

/* The first step and the n - 1 others at which queries turn most: what a tau would give that is calibrated on the trace itself. */
static dci_status mark_boundaries(papers_run *run, const double *turns, size_t n, bool *out, double *out_tau)
{
        const size_t n_steps = steps_of(run);
        turn *sorted = dci_alloc(run->helper, n_steps, sizeof *sorted);
        if (sorted == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 1; i < n_steps; i++)
                sorted[i] = (turn){turns[i], i};
        qsort(sorted + 1, n_steps - 1, sizeof *sorted, lowest_first);
        out[0] = true;
        for (size_t i = 1; i < n; i++)
                out[sorted[i].step] = true;
        *out_tau = n < n_steps ? sorted[n].cosine : (double)NAN;
        dci_free(run->helper, sorted, n_steps, sizeof *sorted);
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
        const size_t n = steps_of(run);
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
        const size_t n = steps_of(run);
        for (size_t i = 0; i < w->n_schedules; i++) {
                schedule *s = &w->schedules[i];
                const size_t stride = run->options->strides.values[i / SCHEDULES];
                const size_t retrievals = (n + stride - 1) / stride;
                s->retrieves = dci_calloc(run->helper, n, sizeof *s->retrieves);
                s->list = dci_alloc(run->helper, w->budget, sizeof *s->list);
                if (s->retrieves == NULL || s->list == NULL)
                        return DCI_ERR_MEMORY;
                if (i % SCHEDULES == AT_BOUNDARIES)
                        DCI_TRY(mark_boundaries(run, turns, retrievals, s->retrieves, &out_taus[i / SCHEDULES]));
                for (size_t j = 0; i % SCHEDULES == AT_STRIDE && j < n; j += stride)
                        s->retrieves[j] = true;
        }
        return DCI_OK;
}

static dci_status boundary_budget(papers_run *run, const double *turns, size_t budget)
{
        schedule schedules[SCHEDULES * BENCH_MAX_SHARES] = {{0}};
        double taus[BENCH_MAX_SHARES] = {0};
        boundary_walk w = {.run = run,
                           .budget = budget,
                           .n_schedules = SCHEDULES * run->options->strides.n,
                           .schedules = schedules};
        w.scratch = dci_alloc(run->helper, run->trace->tokens, sizeof *w.scratch);
        w.group = dci_alloc(run->helper, run->trace->tokens, sizeof *w.group);
        dci_status status = w.scratch != NULL && w.group != NULL ? open_schedules(&w, turns, taus) : DCI_ERR_MEMORY;
        if (status == DCI_OK)
                status = papers_walk(run, "boundary", run->trace->prompt, 1, boundary_step, &w);
        if (status == DCI_OK)
                status = boundary_rows(&w, taus);
        for (size_t i = 0; i < w.n_schedules; i++) {
                dci_free(run->helper, schedules[i].retrieves, steps_of(run), sizeof *schedules[i].retrieves);
                dci_free(run->helper, schedules[i].list, budget, sizeof *schedules[i].list);
        }
        dci_free(run->helper, w.scratch, run->trace->tokens, sizeof *w.scratch);
        dci_free(run->helper, w.group, run->trace->tokens, sizeof *w.group);
        return status;
}

static dci_status run_boundary(papers_run *run)
{
        static const bench_sizes own = {2, {256, 512}};
        const bench_sizes budgets = papers_budgets(run, &own);
        double *turns = NULL;
        dci_status status = papers_turns(run, &turns);
        for (size_t i = 0; status == DCI_OK && i < budgets.n; i++) {
                if (budgets.values[i] <= BENCH_SINK + run->options->window)
                        status = dci_fail(DCI_ERR_INVALID, "--budget %zu: boundary keeps %zu tokens and chooses more",
                                          budgets.values[i], BENCH_SINK + run->options->window);
                else
                        status = boundary_budget(run, turns, budgets.values[i]);
        }
        dci_free(run->helper, turns, steps_of(run), sizeof *turns);
        return status;
}

static const papers_column boundary_columns[] = {
        {"stride", "%.0f"},          {"budget", "%.0f"},        {"retrievals", "%.0f"},     {"tau", "%.4f"},
        {"recall_boundary", "%.3f"}, {"recall_stride", "%.3f"}, {"share_boundary", "%.3f"}, {"share_stride", "%.3f"}};
static const char boundary_help[] =
        "the group's B - 80 best tokens by exact attention, frozen between retrievals, beside the first 16\n"
        "  and the last 64: retrieved at boundaries, and each `stride` steps, equally often (tau is the one\n"
        "  that does so on this trace). recall: true softmax weight attended to, over the full cache; share:\n"
        "  the part of it that is chosen from";
const papers_figure papers_boundary = {"boundary",
                                       "LouisKV, section 5.4 and figure 12(a)",
                                       boundary_help,
                                       boundary_columns,
                                       sizeof boundary_columns / sizeof *boundary_columns,
                                       run_boundary};
