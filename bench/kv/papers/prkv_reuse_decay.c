/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* PRKV, figure 3(a): how long a head's best tokens of the first step stay the best. */
#include "bench/kv/papers/papers.h"

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

static dci_status decay_budget(papers_run *run, size_t budget, void *arg)
{
        const size_t group = run->trace->group;
        decay_walk w = {.run = run, .budget = budget};
        (void)arg;
        w.scratch = papers_alloc(run, run->trace->tokens, sizeof *w.scratch);
        w.first = papers_alloc(run, group, budget * sizeof *w.first);
        w.now = papers_alloc(run, budget, sizeof *w.now);
        w.n_first = papers_alloc(run, group, sizeof *w.n_first);
        DCI_TRY(papers_memory(run));
        DCI_TRY(papers_walk(run, "reuse-decay", run->trace->prompt, 1, decay_step, &w));
        return decay_rows(&w);
}

static dci_status run_decay(papers_run *run)
{
        static const bench_sizes own = {1, {1024}};
        return papers_each_budget(run, &own, decay_budget, NULL);
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
