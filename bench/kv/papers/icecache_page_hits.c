/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* IceCache, section 2: how many of a head's best tokens were loaded, before and after tokens were inserted. */
#include "bench/kv/papers/papers.h"

#include <math.h>

static dci_status page_hits_row(void *arg, const kvbench_row *row)
{
        papers_preset_walk *w = arg;
        papers_cell cells[4 + PAPERS_PARTS];
        papers_name_arm(&row->arm, cells);
        cells[2] = papers_size(w->budget);
        cells[3] = papers_number(papers_ratio(w->chosen, w->n));
        for (size_t part = 0; part < PAPERS_PARTS; part++)
                cells[4 + part] = papers_number(w->n > 0 ? papers_ratio(w->found[part], w->all[part]) : (double)NAN);
        papers_forget(w);
        return papers_add(w->run, cells);
}

static dci_status page_hits_budget(papers_run *run, size_t budget, void *arg)
{
        (void)arg;
        return papers_play_budget(run, budget, 0, false, page_hits_row);
}

static dci_status run_page_hits(papers_run *run)
{
        static const bench_sizes own = {2, {256, 1024}};
        return papers_each_budget(run, &own, page_hits_budget, NULL);
}

static const papers_column page_hits_columns[] = {
        {"preset", NULL},         {"codes", NULL},       {"budget", "%.0f"},
        {"attended", "%.0f"},     {"hit_rate", "%.3f"},  {"first_quarter", "%.3f"},
        {"last_quarter", "%.3f"}, {"of_prompt", "%.3f"}, {"of_decoded", "%.3f"}};
static const char page_hits_help[] =
        "of a query head's B best tokens by q . k after the first 16 and before the last 64, those\n"
        "  in what was loaded: in all, in the first and in the last quarter of the decode, and of tokens of the\n"
        "  prompt and of decoded ones, which were inserted after it";
const papers_figure papers_page_hits = {
        "page-hits",       "IceCache, section 2 and the discussion of its hit rate", page_hits_help,
        page_hits_columns, sizeof page_hits_columns / sizeof *page_hits_columns,     run_page_hits};
