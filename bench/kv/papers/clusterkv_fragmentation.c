/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* ClusterKV, figure 3(b): how important tokens are spread over pages. */
#include "bench/kv/papers/papers.h"

#include <string.h>

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

static dci_status fragment_budget(papers_run *run, size_t budget, void *arg)
{
        const int32_t page = run->options->kv.page_tokens;
        fragment_walk w = {.run = run, .budget = budget, .page = page > 0 ? (size_t)page : 16};
        (void)arg;
        w.scratch = papers_alloc(run, run->trace->tokens, sizeof *w.scratch);
        w.best = papers_alloc(run, budget, sizeof *w.best);
        DCI_TRY(papers_memory(run));
        DCI_TRY(papers_walk(run, "fragmentation", run->trace->prompt, papers_every(run), fragment_step, &w));
        return fragment_rows(&w);
}

static dci_status run_fragmentation(papers_run *run)
{
        static const bench_sizes own = {3, {128, 256, 1024}};
        return papers_each_budget(run, &own, fragment_budget, NULL);
}

static const papers_column fragment_columns[] = {
        {"tokens", NULL},      {"budget", "%.0f"},      {"page", "%.0f"},      {"important_per_page", "%.2f"},
        {"pages", "%.1f"},     {"read_factor", "%.1f"}, {"pages_1", "%.3f"},   {"pages_2", "%.3f"},
        {"pages_3_4", "%.3f"}, {"pages_5_8", "%.3f"},   {"pages_9_up", "%.3f"}};
static const char fragmentation_help[] =
        "important tokens, a head's B best by q . k, in pages by position (--page-tokens, default 16): their\n"
        "  mean number in the pages that hold any, such pages, tokens in these pages per important one, and\n"
        "  which share of the pages holds 1, 2, 3 to 4, 5 to 8 or more. contested: the best after the first 16\n"
        "  tokens and before the last 64";
const papers_figure papers_fragmentation = {"fragmentation",
                                            "ClusterKV, section II and figure 3(b)",
                                            fragmentation_help,
                                            fragment_columns,
                                            sizeof fragment_columns / sizeof *fragment_columns,
                                            run_fragmentation};
