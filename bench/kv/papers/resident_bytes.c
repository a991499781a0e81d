/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Bytes of summaries, codes and tails per token. */
#include "bench/kv/papers/papers.h"

#include <math.h>

static dci_status resident_row(void *arg, const kvbench_row *row)
{
        papers_run *run = arg;
        const bool played = *row->reason == '\0';
        const double bytes =
                (double)((run->trace->keys.dim + run->trace->values.dim) * dci_dtype_size(run->trace->keys.dtype));
        const double resident = played ? row->resident : (double)NAN;
        papers_cell cells[6];
        papers_name_arm(&row->arm, cells);
        cells[2] = papers_size(row->options->budgets.values[row->arm.budget]);
        cells[3] = papers_number(resident);
        cells[4] = papers_number(bytes);
        cells[5] = papers_number(resident / bytes);
        return papers_add(run, cells);
}

static dci_status resident_budget(papers_run *run, size_t budget, void *arg)
{
        kvbench_options options = papers_options_at(run, budget);
        (void)arg;
        /* One plan is enough: what counts is there after the last step. */
        options.every = run->trace->tokens;
        options.judged_only = true;
        return papers_play(run, &options, NULL, resident_row, run);
}

static dci_status run_resident(papers_run *run)
{
        static const bench_sizes own = {1, {512}};
        return papers_each_budget(run, &own, resident_budget, NULL);
}

static const papers_column resident_columns[] = {{"preset", NULL},      {"codes", NULL},
                                                 {"budget", "%.0f"},    {"index_bytes", "%.1f"},
                                                 {"row_bytes", "%.0f"}, {"index_over_row", "%.3f"}};
static const char resident_help[] =
        "bytes that summaries, codes and tails keep per token and kv head after the last step, and those\n"
        "  of its key and value. full, topk and snapkv need keys, too, which are not counted";
const papers_figure papers_resident = {"resident",
                                       "all of them; IceCache and PRKV give it for pages, ClusterKV for centroids",
                                       resident_help,
                                       resident_columns,
                                       sizeof resident_columns / sizeof *resident_columns,
                                       run_resident};
