/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* How long a head's best tokens stay the best, and how they lie in pages. */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <string.h>

/* --- reuse-decay: the best tokens of step 0, kept ------------------------------------------------------------------------- */

/* Rows of steps 0, 1, 2-3, 4-7, .. */
enum { SPANS = 32 };
enum { TOP, REUSED, WITH_LOCAL, ALONE, ARMS };

typedef struct decay_walk {
        papers_run *run;
        size_t budget;
        double *scratch;
        int32_t *first, *now; /* group x budget of step 0; of this step and head */
        size_t *n_first;
        double sums[SPANS][ARMS];
        size_t n_steps[SPANS];
} decay_walk;

static size_t span_of(size_t step)
{
        size_t span = 0;
        for (; step > 0; step /= 2)
                span++;
        return span;
}

static dci_status decay_step(void *arg, size_t t, const double *weights)
{
        decay_walk *w = arg;
        const kvbench_trace *trace = w->run->trace;
        const size_t step = t - trace->prompt, span = span_of(step), begin = papers_window_begin(t, 0, KVBENCH_WINDOW);
        for (size_t h = 0; h < trace->group; h++) {
                const double *of_head = weights + h * trace->tokens;
                int32_t *first = w->first + h * w->budget;
                if (step == 0)
                        w->n_first[h] = papers_top(of_head, 0, t + 1, w->budget, w->scratch, first);
                const size_t n = papers_top(of_head, 0, t + 1, w->budget, w->scratch, w->now);
                size_t before = 0;
                while (before < w->n_first[h] && (size_t)first[before] < begin)
                        before++;
                const double local = papers_sum_range(of_head, begin, t + 1);
                w->sums[span][TOP] += papers_sum(of_head, w->now, n);
                w->sums[span][REUSED] += papers_sum(of_head, first, w->n_first[h]);
                w->sums[span][WITH_LOCAL] += papers_sum(of_head, first, before) + local;
                w->sums[span][ALONE] += local;
        }
        w->n_steps[span]++;
        return DCI_OK;
}

static dci_status decay_rows(const decay_walk *w)
{
        for (size_t span = 0; span < SPANS && w->n_steps[span] > 0; span++) {
                const double n = (double)(w->n_steps[span] * w->run->trace->group);
                const papers_cell cells[] = {papers_size(w->budget),
                                             papers_size(span == 0 ? 0 : (size_t)1 << (span - 1)),
                                             papers_size(w->n_steps[span]),
                                             papers_number(w->sums[span][TOP] / n),
                                             papers_number(w->sums[span][REUSED] / n),
                                             papers_number(w->sums[span][WITH_LOCAL] / n),
                                             papers_number(w->sums[span][ALONE] / n)};
                DCI_TRY(papers_add(w->run, cells));
        }
        return DCI_OK;
}

static dci_status decay_budget(papers_run *run, size_t budget)
{
        const size_t group = run->trace->group;
        decay_walk w = {.run = run, .budget = budget};
        w.scratch = dci_alloc(run->helper, run->trace->tokens, sizeof *w.scratch);
        w.first = dci_alloc(run->helper, group, budget * sizeof *w.first);
        w.now = dci_alloc(run->helper, budget, sizeof *w.now);
        w.n_first = dci_calloc(run->helper, group, sizeof *w.n_first);
        dci_status status = DCI_ERR_MEMORY;
        if (w.scratch != NULL && w.first != NULL && w.now != NULL && w.n_first != NULL)
                status = papers_walk(run, "reuse-decay", run->trace->prompt, 1, decay_step, &w);
        if (status == DCI_OK)
                status = decay_rows(&w);
        dci_free(run->helper, w.scratch, run->trace->tokens, sizeof *w.scratch);
        dci_free(run->helper, w.first, group, budget * sizeof *w.first);
        dci_free(run->helper, w.now, budget, sizeof *w.now);
        dci_free(run->helper, w.n_first, group, sizeof *w.n_first);
        return status;
}

static dci_status run_decay(papers_run *run)
{
        static const bench_sizes own = {1, {1024}};
        const bench_sizes budgets = papers_budgets(run, &own);
        for (size_t i = 0; i < budgets.n; i++)
                DCI_TRY(decay_budget(run, budgets.values[i]));
        return DCI_OK;
}

static const papers_column decay_columns[] = {{"budget", "%.0f"}, {"from_step", "%.0f"}, {"steps", "%.0f"},
                                              {"top", "%.3f"},    {"reused", "%.3f"},    {"with_local", "%.3f"},
                                              {"local", "%.3f"}};
static const char reuse_decay_help[] =
        "attention recall (equation 3: true softmax weight of a set, over the full cache; the mean over\n"
        "  heads) of a head's B best tokens: `top` those of the step itself, `reused` those of step 0,\n"
        "  `with_local` these and the last 64, `local` the last 64 alone. A row is the mean over `steps` steps\n"
        "  from `from_step` on";
const papers_figure papers_reuse_decay = {"reuse-decay", "PRKV, section 3.4 and figure 3(a)",          reuse_decay_help,
                                          decay_columns, sizeof decay_columns / sizeof *decay_columns, run_decay};

/* --- fragmentation: important tokens per page ------------------------------------------------------------------------------ */

/* Pages with 1, 2, 3-4, 5-8 and more important tokens. */
enum { BINS = 5, EVERYWHERE = 0, CONTESTED, RANGES };

typedef struct fragment_walk {
        papers_run *run;
        size_t budget, page;
        double *scratch;
        int32_t *best;
        double pages[RANGES], tokens[RANGES], bins[RANGES][BINS], n;
} fragment_walk;

static void count_pages(fragment_walk *w, size_t range, size_t n)
{
        static const size_t limits[BINS] = {1, 2, 4, 8, SIZE_MAX};
        for (size_t i = 0; i < n;) {
                const size_t page = (size_t)w->best[i] / w->page;
                size_t in_page = 0, bin = 0;
                for (; i < n && (size_t)w->best[i] / w->page == page; i++)
                        in_page++;
                while (in_page > limits[bin])
                        bin++;
                w->bins[range][bin]++;
                w->pages[range]++;
        }
        w->tokens[range] += (double)n;
}

static dci_status fragment_step(void *arg, size_t t, const double *weights)
{
        fragment_walk *w = arg;
        const kvbench_trace *trace = w->run->trace;
        const size_t begin = papers_window_begin(t, BENCH_SINK, KVBENCH_WINDOW);
        for (size_t h = 0; h < trace->group; h++) {
                const double *of_head = weights + h * trace->tokens;
                count_pages(w, EVERYWHERE, papers_top(of_head, 0, t + 1, w->budget, w->scratch, w->best));
                count_pages(w, CONTESTED, papers_top(of_head, BENCH_SINK, begin, w->budget, w->scratch, w->best));
                w->n++;
        }
        return DCI_OK;
}

static dci_status fragment_rows(const fragment_walk *w)
{
        for (size_t range = 0; range < RANGES; range++) {
                const double pages = w->pages[range], *bins = w->bins[range];
                const papers_cell cells[] = {papers_word(range == EVERYWHERE ? "all" : "contested"),
                                             papers_size(w->budget),
                                             papers_size(w->page),
                                             papers_number(w->tokens[range] / pages),
                                             papers_number(pages / w->n),
                                             papers_number(pages * (double)w->page / w->tokens[range]),
                                             papers_number(bins[0] / pages),
                                             papers_number(bins[1] / pages),
                                             papers_number(bins[2] / pages),
                                             papers_number(bins[3] / pages),
                                             papers_number(bins[4] / pages)};
                DCI_TRY(papers_add(w->run, cells));
        }
        return DCI_OK;
}

static dci_status fragment_budget(papers_run *run, size_t budget)
{
        const int32_t page = run->options->kv.page_tokens;
        fragment_walk w = {.run = run, .budget = budget, .page = page > 0 ? (size_t)page : 16};
        w.scratch = dci_alloc(run->helper, run->trace->tokens, sizeof *w.scratch);
        w.best = dci_alloc(run->helper, budget, sizeof *w.best);
        dci_status status = DCI_ERR_MEMORY;
        if (w.scratch != NULL && w.best != NULL)
                status = papers_walk(run, "fragmentation", run->trace->prompt, papers_every(run), fragment_step, &w);
        if (status == DCI_OK)
                status = fragment_rows(&w);
        dci_free(run->helper, w.scratch, run->trace->tokens, sizeof *w.scratch);
        dci_free(run->helper, w.best, budget, sizeof *w.best);
        return status;
}

static dci_status run_fragmentation(papers_run *run)
{
        static const bench_sizes own = {3, {128, 256, 1024}};
        const bench_sizes budgets = papers_budgets(run, &own);
        for (size_t i = 0; i < budgets.n; i++)
                DCI_TRY(fragment_budget(run, budgets.values[i]));
        return DCI_OK;
}

static const papers_column fragment_columns[] = {
        {"tokens", NULL},      {"budget", "%.0f"},      {"page", "%.0f"},      {"important_per_page", "%.2f"},
        {"pages", "%.1f"},     {"read_factor", "%.1f"}, {"pages_1", "%.3f"},   {"pages_2", "%.3f"},
        {"pages_3_4", "%.3f"}, {"pages_5_8", "%.3f"},   {"pages_9_up", "%.3f"}};
static const char fragmentation_help[] =
        "important tokens, a head's B best by q . k, in pages by position (--page-tokens, default 16): their\n"
        "  mean number in the pages that hold any, such pages, tokens in these pages per important one, and\n"
        "  which share of the pages holds 1, 2, 3 to 4, 5 to 8 or more. contested: the best behind the first 16\n"
        "  tokens and before the last 64";
const papers_figure papers_fragmentation = {"fragmentation",
                                            "ClusterKV, section II and figure 3(b)",
                                            fragmentation_help,
                                            fragment_columns,
                                            sizeof fragment_columns / sizeof *fragment_columns,
                                            run_fragmentation};
