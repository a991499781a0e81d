/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* LouisKV, sections 4.1 and 5.4: how often the gate opens, and how far adjacent layers agree. */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* Compares the parent folders, which traces of one model and text share. */
static bool same_folder(const char *a, const char *b)
{
        const char *end = strrchr(a, '/');
        const size_t n = end != NULL ? (size_t)(end - a) + 1 : 0;
        return n > 0 && strncmp(a, b, n) == 0 && strchr(b + n, '/') == NULL;
}

/* Returns the share of the steps at which either layer retrieves at which both do; without the first step, at which all do. */
static double agreement(const double *a, const double *b, size_t n, double tau)
{
        size_t both = 0, either = 0;
        for (size_t i = 1; i < n; i++) {
                const bool in_a = papers_is_boundary(a, i, tau), in_b = papers_is_boundary(b, i, tau);
                both += in_a && in_b;
                either += in_a || in_b;
        }
        return either > 0 ? (double)both / (double)either : (double)NAN;
}

/* Returns the same of two independent layers that retrieve as often. */
static double chance(const double *a, const double *b, size_t n, double tau)
{
        double in_a = 0, in_b = 0;
        for (size_t i = 1; i < n; i++) {
                in_a += papers_is_boundary(a, i, tau);
                in_b += papers_is_boundary(b, i, tau);
        }
        const double both = in_a * in_b / (double)(n - 1);
        return in_a + in_b > 0 ? both / (in_a + in_b - both) : (double)NAN;
}

static dci_status frequency_row(papers_run *run, const double *turns, double tau)
{
        const size_t n = papers_steps(run);
        const bool layers =
                run->before_turns != NULL && run->n_before == n && same_folder(run->before, run->trace->name);
        size_t retrievals = 0, longest = 0, begin = 0;
        for (size_t i = 0; i < n; i++)
                if (papers_is_boundary(turns, i, tau)) {
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

/* Adds the rows of the quantiles of the cosines, by which tau is calibrated. */
static dci_status quantile_rows(papers_run *run, const double *turns)
{
        static const double levels[] = {0, 0.05, 0.25, 0.5, 0.75, 0.95, 1};
        const size_t n = papers_steps(run), first = isnan(turns[0]) ? 1 : 0;
        double *sorted = papers_alloc(run, n, sizeof *sorted);
        DCI_TRY(papers_memory(run));
        memcpy(sorted, turns, n * sizeof *sorted);
        qsort(sorted + first, n - first, sizeof *sorted, ascending);
        for (size_t i = 0; n > first && i < sizeof levels / sizeof *levels; i++)
                DCI_TRY(frequency_row(run, turns, sorted[first + (size_t)(levels[i] * (double)(n - first - 1))]));
        return DCI_OK;
}

static dci_status run_frequency(papers_run *run)
{
        const size_t n = papers_steps(run);
        double *turns = NULL;
        DCI_TRY(papers_turns(run, &turns));
        for (size_t i = 0; i < run->options->taus.n; i++)
                DCI_TRY(frequency_row(run, turns, run->options->taus.values[i]));
        DCI_TRY(quantile_rows(run, turns));
        /* The next trace is compared with this one. */
        dci_free(run->helper, run->before_turns, run->n_before, sizeof *run->before_turns);
        run->n_before = 0;
        run->before_turns = dci_alloc(run->helper, n, sizeof *run->before_turns);
        if (run->before_turns == NULL)
                return DCI_ERR_MEMORY;
        memcpy(run->before_turns, turns, n * sizeof *turns);
        run->n_before = n;
        snprintf(run->before, sizeof run->before, "%s", run->trace->name);
        return DCI_OK;
}

static const papers_column frequency_columns[] = {{"tau", "%.4f"},       {"retrievals", "%.0f"}, {"frequency", "%.3f"},
                                                  {"segment", "%.1f"},   {"longest", "%.0f"},    {"previous", NULL},
                                                  {"agreement", "%.3f"}, {"chance", "%.3f"}};
static const char frequency_help[] =
        "steps that retrieve at tau, the first one always; their share of all, and the mean and greatest\n"
        "  length of a segment. After the taus asked for, those at 0, 5, 25, 50, 75, 95 and 100 %\n"
        "  of the trace's cosines. agreement: of the steps at which this trace or the one before it retrieves,\n"
        "  those at which both do; for traces of one folder, such as adjacent layers, named one after the other";
const papers_figure papers_frequency = {
        "frequency",       "LouisKV, sections 4.1 and 5.4, figures 14 and 16",   frequency_help,
        frequency_columns, sizeof frequency_columns / sizeof *frequency_columns, run_frequency};
