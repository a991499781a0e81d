/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * PRKV by plain means: static tokens from the observation window, the rest in pages that are rebuilt every `period` steps.
 *
 * Stored tokens are those that left the window. At steps 0, T, 2T, .. the last `window` queries' softmax over the stored tokens,
 * averaged over window and group, names the static ones, whole pages of them, and the stored order becomes [static, remaining],
 * the remaining in the order they had; pages are cut from it and summarised by cuboids. Tokens that leave the window join the end;
 * those that do not fill a page yet are attended to. All count in the budget, which is spent to the last token: the best pages by
 * cuboid fill what static and open tokens leave of it, the last one cut; where open ones need room, the worst static ones give way.
 */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <string.h>

/* --- what the observation window attends to ------------------------------------------------------------------------------------ */

/* Computes the mean over group and queries [t - window, t) of the softmax over tokens [first, end). */
static dci_status observe(papers_run *run, size_t t, size_t first, size_t end, double *out)
{
        const kvbench_trace *trace = run->trace;
        const size_t window = run->options->window;
        papers_block *mark = run->blocks;
        double *query = papers_alloc(run, trace->keys.dim, sizeof *query);
        double *weights = papers_alloc(run, end, sizeof *weights);
        DCI_TRY(papers_memory(run));
        memset(out, 0, end * sizeof *out);
        for (size_t i = 0; i < window * trace->group; i++) {
                papers_weights(trace, t - window + i / trace->group, i % trace->group, end, query, weights);
                const double all = papers_sum_range(weights, first, end);
                for (size_t j = first; j < end && all > 0; j++)
                        out[j] += weights[j] / all / (double)(window * trace->group);
        }
        papers_release(run, mark);
        return DCI_OK;
}

/* --- an arm: a ratio at a budget ---------------------------------------------------------------------------------------------- */

typedef struct static_arm {
        double ratio;
        size_t budget, room, n_static; /* room: tokens of the budget without sink and window; how many are static */
        int32_t *order;                /* stored tokens after the sink in their order; the static ones best first */
        size_t n_stored;
        papers_groups pages; /* of those after the static ones */
        size_t n_paged;      /* stored tokens that are static or in a page */
        double recall, share, attended, overlap, n_updates;
} static_arm;

typedef struct static_walk {
        papers_run *run;
        static_arm *arms;
        size_t n_arms;
        double *observed, *scratch, *group,
                *query; /* query: its mean over the group and that of its magnitudes; room for one */
        int32_t *best, *chosen;
        uint8_t *is_static;
        double contested, all;
        size_t n_steps;
} static_walk;

/* Sorts the best first (Shell sort). */
static void sort_by(const double *weights, int32_t *tokens, size_t n)
{
        for (size_t gap = n / 2; gap > 0; gap /= 2)
                for (size_t i = gap; i < n; i++) {
                        const int32_t token = tokens[i];
                        size_t j = i;
                        for (; j >= gap && (weights[tokens[j - gap]] < weights[token] ||
                                            (weights[tokens[j - gap]] == weights[token] && tokens[j - gap] > token));
                             j -= gap)
                                tokens[j] = tokens[j - gap];
                        tokens[j] = token;
                }
}

/* Adds full pages of stored tokens that are in none yet. */
static void page_up(const static_walk *w, static_arm *arm)
{
        const size_t page = w->run->options->page;
        for (; arm->n_stored - arm->n_paged >= page; arm->n_paged += page)
                papers_groups_add(&arm->pages, w->run->trace, arm->order + arm->n_paged, page);
}

/* Moves static tokens to the front and keeps the order of the others; w->observed is of this step. */
static void restructure(static_walk *w, static_arm *arm)
{
        const size_t page = w->run->options->page, sink = w->run->options->sink, end = sink + arm->n_stored;
        const size_t wanted = page * (size_t)floor(arm->ratio * (double)(arm->room / page));
        const size_t before = arm->n_static;
        size_t same = 0, n = 0;
        memset(w->is_static, 0, end);
        for (size_t i = 0; i < before; i++)
                w->is_static[arm->order[i]] = 1;
        const size_t whole = arm->n_stored / page * page;
        arm->n_static = papers_top(w->observed, sink, end, wanted < whole ? wanted : whole, w->scratch, w->best);
        for (size_t i = 0; i < arm->n_static; i++)
                same += w->is_static[w->best[i]];
        memset(w->is_static, 0, end);
        for (size_t i = 0; i < arm->n_static; i++)
                w->is_static[w->best[i]] = 1;
        for (size_t i = 0; i < arm->n_stored; i++)
                if (!w->is_static[arm->order[i]])
                        w->chosen[n++] = arm->order[i];
        sort_by(w->observed, w->best, arm->n_static);
        memcpy(arm->order, w->best, arm->n_static * sizeof *arm->order);
        memcpy(arm->order + arm->n_static, w->chosen, n * sizeof *arm->order);
        if (before > 0 && arm->n_static > 0) {
                arm->overlap += (double)same / (double)arm->n_static;
                arm->n_updates++;
        }
        arm->pages.n_groups = 0;
        arm->n_paged = arm->n_static;
        page_up(w, arm);
}

/* Writes what the arm attends to without sink and window into w->chosen: tokens in no page yet, static ones as far as there is room, and
 * for the rest the best pages, the last one cut. */
static size_t select(static_walk *w, static_arm *arm)
{
        const size_t dim = w->run->trace->keys.dim, open = arm->n_stored - arm->n_paged;
        const size_t left = arm->room > open ? arm->room - open : 0;
        const size_t n_static = arm->n_static < left ? arm->n_static : left;
        size_t n = n_static, n_groups;
        memcpy(w->chosen, arm->order, n_static * sizeof *w->chosen);
        papers_groups_rank(&arm->pages, PAPERS_CUBOID, w->query, w->query + dim);
        n += papers_groups_take(&arm->pages, left - n_static, w->chosen + n, &n_groups);
        memcpy(w->chosen + n, arm->order + arm->n_paged, open * sizeof *w->chosen);
        return n + open;
}

static void mean_query(const static_walk *w, size_t t)
{
        const kvbench_trace *trace = w->run->trace;
        const size_t dim = trace->keys.dim;
        double *one = w->query + 2 * dim;
        memset(w->query, 0, 2 * dim * sizeof *w->query);
        for (size_t h = 0; h < trace->group; h++) {
                papers_query(trace, t, h, one);
                for (size_t j = 0; j < dim; j++) {
                        w->query[j] += one[j] / (double)trace->group;
                        w->query[dim + j] += fabs(one[j]) / (double)trace->group;
                }
        }
}

static dci_status static_step(void *arg, size_t t, const double *weights)
{
        static_walk *w = arg;
        const papers_options *o = w->run->options;
        const kvbench_trace *trace = w->run->trace;
        const size_t step = t - trace->prompt, begin = papers_window_begin(t, o->sink, o->window);
        /* What share judges: the same tokens whatever is kept. */
        const size_t from = BENCH_SINK, to = papers_window_begin(t, BENCH_SINK, KVBENCH_WINDOW);
        if (step % o->period == 0)
                DCI_TRY(observe(w->run, t, o->sink, begin, w->observed));
        papers_group(trace, weights, t + 1, w->group);
        mean_query(w, t);
        const double kept = papers_sum_range(w->group, 0, o->sink) + papers_sum_range(w->group, begin, t + 1);
        const double kept_contested = papers_sum_range(w->group, from, o->sink < to ? o->sink : to) +
                                      papers_sum_range(w->group, begin > from ? begin : from, to);
        w->contested += papers_sum_range(w->group, from, to);
        for (size_t i = 0; i < w->n_arms; i++) {
                static_arm *arm = &w->arms[i];
                while (arm->n_stored < begin - o->sink) {
                        arm->order[arm->n_stored] = (int32_t)(o->sink + arm->n_stored);
                        arm->n_stored++;
                }
                if (step % o->period == 0)
                        restructure(w, arm);
                else
                        page_up(w, arm);
                const size_t n = select(w, arm);
                arm->recall += kept + papers_sum(w->group, w->chosen, n);
                arm->share += kept_contested;
                for (size_t j = 0; j < n; j++)
                        arm->share +=
                                (size_t)w->chosen[j] >= from && (size_t)w->chosen[j] < to ? w->group[w->chosen[j]] : 0;
                arm->attended += (double)(o->sink + n + t + 1 - begin);
        }
        w->all += (double)trace->group;
        w->n_steps++;
        return DCI_OK;
}

/* --- the figure ----------------------------------------------------------------------------------------------------------------- */

static dci_status static_rows(const static_walk *w)
{
        for (size_t i = 0; i < w->n_arms; i++) {
                const static_arm *arm = &w->arms[i];
                const papers_cell cells[] = {
                        papers_size(arm->budget),
                        papers_number(arm->ratio),
                        papers_size(w->run->options->period),
                        papers_size(w->run->options->sink),
                        papers_size(arm->n_static),
                        papers_number(arm->attended / (double)w->n_steps),
                        papers_number(arm->recall / w->all),
                        papers_number(arm->share / w->contested),
                        papers_number(arm->n_updates > 0 ? arm->overlap / arm->n_updates : (double)NAN)};
                DCI_TRY(papers_add(w->run, cells));
        }
        return DCI_OK;
}

static dci_status open_arms(static_walk *w, const bench_sizes *budgets)
{
        const papers_options *o = w->run->options;
        const kvbench_trace *trace = w->run->trace;
        for (size_t i = 0; i < w->n_arms; i++) {
                static_arm *arm = &w->arms[i];
                arm->budget = budgets->values[i / o->ratios.n];
                arm->ratio = o->ratios.values[i % o->ratios.n];
                if (arm->budget < o->sink + o->window + 2 * o->page)
                        return dci_fail(DCI_ERR_INVALID,
                                        "--budget %zu: static-ratio keeps %zu tokens and needs two pages", arm->budget,
                                        o->sink + o->window);
                arm->room = arm->budget - o->sink - o->window;
                arm->order = papers_alloc(w->run, trace->tokens, sizeof *arm->order);
                DCI_TRY(papers_groups_open(w->run, trace->keys.dim, trace->tokens / o->page + 1, trace->tokens,
                                           &arm->pages));
        }
        return DCI_OK;
}

static dci_status run_static(papers_run *run)
{
        static const bench_sizes own = {3, {256, 512, 1024}};
        const bench_sizes budgets = papers_budgets(run, &own);
        const papers_options *o = run->options;
        const size_t observed = run->trace->observed.n / run->trace->group, n = run->trace->tokens;
        static_walk w = {.run = run, .n_arms = budgets.n * o->ratios.n};
        if (o->window > observed)
                return dci_fail(DCI_ERR_INVALID, "--window %zu: %s holds %zu queries before the decode", o->window,
                                run->trace->name, observed);
        if (o->sink + o->window >= run->trace->prompt)
                return dci_fail(DCI_ERR_INVALID, "--sink %zu and --window %zu: the prompt of %s has %zu tokens",
                                o->sink, o->window, run->trace->name, run->trace->prompt);
        w.arms = papers_alloc(run, w.n_arms, sizeof *w.arms);
        w.observed = papers_alloc(run, n, sizeof *w.observed);
        w.scratch = papers_alloc(run, n, sizeof *w.scratch);
        w.group = papers_alloc(run, n, sizeof *w.group);
        w.query = papers_alloc(run, 3 * run->trace->keys.dim, sizeof *w.query);
        w.best = papers_alloc(run, n, sizeof *w.best);
        w.chosen = papers_alloc(run, n, sizeof *w.chosen);
        w.is_static = papers_alloc(run, n, sizeof *w.is_static);
        DCI_TRY(papers_memory(run));
        DCI_TRY(open_arms(&w, &budgets));
        DCI_TRY(papers_walk(run, "static-ratio", run->trace->prompt, 1, static_step, &w));
        return static_rows(&w);
}

static const papers_column static_columns[] = {{"budget", "%.0f"}, {"S", "%.2f"},      {"period", "%.0f"},
                                               {"sink", "%.0f"},   {"static", "%.0f"}, {"attended", "%.0f"},
                                               {"recall", "%.3f"}, {"share", "%.3f"},  {"kept_static", "%.3f"}};
static const char static_ratio_help[] =
        "attention recall (true softmax weight attended to, over the full cache; the mean over heads and\n"
        "  steps) and share (the part of it after the first 16 tokens and before the last 64) against the\n"
        "  static ratio S: S of the budget's pages hold the observation window's best tokens, refreshed each\n"
        "  --period steps, the rest goes to pages of --page tokens by cuboid, from what is left in its\n"
        "  restructured order. S = 0 is ArkVale, S = 1 a SnapKV that is refreshed. kept_static: static tokens\n"
        "  that a refresh leaves static. Beside them --sink first tokens (default 0, as in the paper) and the\n"
        "  last --window";
const papers_figure papers_static_ratio = {
        "static-ratio", "PRKV, equation 3, figures 3(b) and 8",         static_ratio_help,
        static_columns, sizeof static_columns / sizeof *static_columns, run_static};
