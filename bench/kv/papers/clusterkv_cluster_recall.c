/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* ClusterKV, figure 11(b): what clusters of the prompt's keys recall, by metric and by their number. */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
        const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
        return (x > y) - (x < y);
}

typedef struct recall_arm {
        const char *name;
        size_t rows;       /* mean, or exact, tokens of a group */
        int32_t how;       /* the ranking: PAPERS_* */
        dci_metric metric; /* 0: pages by position */
        papers_groups groups;
        double found, weight;
} recall_arm;

enum { OTHERS = 5 };

typedef struct recall_walk {
        papers_run *run;
        recall_arm arms[OTHERS + BENCH_MAX_SHARES];
        size_t n_arms;
        size_t budget;
        double *scratch, *query, n, all; /* query: room for it and its magnitudes; all: the prompt's weight */
        int32_t *best, *chosen;
} recall_walk;

static dci_status form_arms(recall_walk *w)
{
        static const recall_arm others[OTHERS] = {
                {.name = "l2", .rows = PAPERS_CLUSTER_ROWS, .how = PAPERS_MEAN, .metric = DCI_METRIC_L2},
                {.name = "ip", .rows = PAPERS_CLUSTER_ROWS, .how = PAPERS_MEAN, .metric = DCI_METRIC_IP},
                {.name = "pages, mean", .rows = 16, .how = PAPERS_MEAN},
                {.name = "pages, quest", .rows = 16, .how = PAPERS_MINMAX},
                {.name = "pages, cuboid", .rows = 32, .how = PAPERS_CUBOID}};
        const bench_sizes *rows = &w->run->options->cluster_rows;
        const size_t first = BENCH_SINK, end = w->run->trace->prompt;
        for (size_t i = 0; i < rows->n; i++)
                w->arms[i] = (recall_arm){
                        .name = "cosine", .rows = rows->values[i], .how = PAPERS_MEAN, .metric = DCI_METRIC_COSINE};
        memcpy(w->arms + rows->n, others, sizeof others);
        w->n_arms = rows->n + OTHERS;
        for (size_t i = 0; i < w->n_arms; i++) {
                recall_arm *arm = &w->arms[i];
                const size_t n = (end - first) / arm->rows;
                if (arm->metric == 0)
                        DCI_TRY(papers_groups_pages(w->run, first, end, arm->rows, &arm->groups));
                else
                        DCI_TRY(papers_groups_clusters(w->run, arm->metric, first, end, n > 0 ? n : 1, &arm->groups));
        }
        return DCI_OK;
}

static dci_status recall_step(void *arg, size_t t, const double *weights)
{
        recall_walk *w = arg;
        const kvbench_trace *trace = w->run->trace;
        const size_t dim = trace->keys.dim;
        for (size_t h = 0; h < trace->group; h++) {
                const double *of_head = weights + h * trace->tokens;
                const size_t n_best = papers_top(of_head, 0, trace->prompt, w->budget, w->scratch, w->best);
                papers_query(trace, t, h, w->query);
                for (size_t j = 0; j < dim; j++)
                        w->query[dim + j] = fabs(w->query[j]);
                for (size_t i = 0; i < w->n_arms; i++) {
                        recall_arm *arm = &w->arms[i];
                        size_t n = BENCH_SINK, n_groups;
                        for (size_t j = 0; j < BENCH_SINK; j++)
                                w->chosen[j] = (int32_t)j;
                        papers_groups_rank(&arm->groups, arm->how, w->query, w->query + dim);
                        n += papers_groups_take(&arm->groups, w->budget - BENCH_SINK, w->chosen + n, &n_groups);
                        qsort(w->chosen, n, sizeof *w->chosen, ascending);
                        arm->found += (double)papers_in_both(w->chosen, n, w->best, n_best) / (double)n_best;
                        arm->weight += papers_sum(of_head, w->chosen, n);
                }
                w->all += papers_sum_range(of_head, 0, trace->prompt);
                w->n++;
        }
        return DCI_OK;
}

static dci_status recall_budget(papers_run *run, size_t budget, void *arg)
{
        recall_walk *w = arg;
        w->budget = budget;
        if (w->budget <= BENCH_SINK)
                return dci_fail(DCI_ERR_INVALID, "--budget %zu: cluster-recall keeps %d tokens and chooses more",
                                w->budget, BENCH_SINK);
        w->n = w->all = 0;
        for (size_t i = 0; i < w->n_arms; i++)
                w->arms[i].found = w->arms[i].weight = 0;
        DCI_TRY(papers_walk(run, "cluster-recall", run->trace->prompt + KVBENCH_FIRST, papers_every(run), recall_step,
                            w));
        for (size_t i = 0; i < w->n_arms; i++) {
                const recall_arm *arm = &w->arms[i];
                const papers_cell cells[] = {
                        papers_word(arm->name), papers_size(arm->rows),           papers_size(arm->groups.n_groups),
                        papers_size(w->budget), papers_number(arm->found / w->n), papers_number(arm->weight / w->all)};
                DCI_TRY(papers_add(run, cells));
        }
        return DCI_OK;
}

static dci_status run_cluster_recall(papers_run *run)
{
        static const bench_sizes own = {4, {256, 512, 1024, 2048}};
        const kvbench_trace *trace = run->trace;
        recall_walk *w = papers_alloc(run, 1, sizeof *w);
        DCI_TRY(papers_memory(run));
        w->run = run;
        w->scratch = papers_alloc(run, trace->tokens, sizeof *w->scratch);
        w->query = papers_alloc(run, 2 * trace->keys.dim, sizeof *w->query);
        w->best = papers_alloc(run, trace->tokens, sizeof *w->best);
        w->chosen = papers_alloc(run, trace->tokens, sizeof *w->chosen);
        DCI_TRY(papers_memory(run));
        DCI_TRY(form_arms(w));
        return papers_each_budget(run, &own, recall_budget, w);
}

static const papers_column cluster_recall_columns[] = {{"groups", NULL},         {"rows", "%.0f"},
                                                       {"n_groups", "%.0f"},     {"budget", "%.0f"},
                                                       {"token_recall", "%.3f"}, {"weight", "%.3f"}};
static const char cluster_recall_help[] =
        "|I n I*| / |I*| of a query head's own choice among the prompt's tokens: I the first 16 and the\n"
        "  groups that stand best, the last one cut at B; I* its B best by q . k. k-means by cosine with\n"
        "  --cluster-rows keys per cluster, by L2 and by inner product with 80, ranked by q . mean; pages by\n"
        "  position, by mean and as Quest and ArkVale rank them. weight: of I, true softmax over that of the\n"
        "  prompt";
const papers_figure papers_cluster_recall = {"cluster-recall",
                                             "ClusterKV, section V-B and figure 11(b)",
                                             cluster_recall_help,
                                             cluster_recall_columns,
                                             sizeof cluster_recall_columns / sizeof *cluster_recall_columns,
                                             run_cluster_recall};
