/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* ClusterKV, figure 11(a): how many of a head's best tokens presets attend to. */
#include "bench/kv/papers/papers.h"

#include <math.h>

static dci_status token_recall_row(void *arg, const kvbench_row *row)
{
        papers_preset_walk *w = arg;
        const bool played = *row->reason == '\0';
        papers_cell cells[8];
        papers_name_arm(&row->arm, cells);
        cells[2] = papers_word(w->prompt ? "prompt" : "all");
        cells[3] = papers_size(w->budget);
        cells[4] = papers_number(papers_ratio(w->chosen, w->n));
        cells[5] = papers_number(papers_ratio(w->found_any, w->all_any));
        cells[6] = papers_number(played ? row->marks.recall : (double)NAN);
        cells[7] = papers_number(played ? row->marks.share : (double)NAN);
        papers_forget(w);
        return papers_add(w->run, cells);
}

static dci_status token_recall_budget(papers_run *run, size_t budget, void *arg)
{
        (void)arg;
        DCI_TRY(papers_play_budget(run, budget, 0, false, token_recall_row));
        /* Frozen, a budget counts a window that the prompt's tokens do not have. */
        return papers_play_budget(run, budget, KVBENCH_WINDOW, true, token_recall_row);
}

static dci_status run_token_recall(papers_run *run)
{
        static const bench_sizes own = {4, {256, 512, 1024, 2048}};
        return papers_each_budget(run, &own, token_recall_budget, NULL);
}

static const papers_column token_recall_columns[] = {{"preset", NULL},   {"codes", NULL},      {"best_of", NULL},
                                                     {"budget", "%.0f"}, {"attended", "%.0f"}, {"token_recall", "%.3f"},
                                                     {"recall", "%.3f"}, {"share", "%.3f"}};
static const char token_recall_help[] =
        "|I n I*| / |I*| of presets: I what is attended to, I* a query head's B best tokens by q . k; the\n"
        "  mean over heads and positions. all: I* of all tokens, I counts the first 16 and the last 64, decoded\n"
        "  ones too. prompt, as in their code: I* and I of the prompt alone, which is grouped whole and once; I\n"
        "  has B tokens, the first 16 among them. recall and share: as in dci-bench kv";
const papers_figure papers_token_recall = {"token-recall",
                                           "ClusterKV, section V-B and figure 11(a)",
                                           token_recall_help,
                                           token_recall_columns,
                                           sizeof token_recall_columns / sizeof *token_recall_columns,
                                           run_token_recall};
