/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* ClusterKV's clusters by plain means: k-means over the prompt's keys behind the first 16, chosen by each query head for itself. */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keys per cluster in the paper. */
enum { ROWS = 80 };

static int ascending(const void *a, const void *b)
{
        const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
        return (x > y) - (x < y);
}

/* --- cluster-recall: the metric, and how many ------------------------------------------------------------------------------- */

typedef struct recall_arm {
        const char *name;
        size_t rows;       /* mean, or exact, tokens of a group */
        int32_t how;       /* it is ranked */
        dci_metric metric; /* 0: pages by position */
        papers_groups groups;
        double found, weight;
} recall_arm;

enum { OTHERS = 5 };

typedef struct recall_walk {
        papers_run *run;
        recall_arm arms[OTHERS + BENCH_MAX_SHARES];
        size_t n_arms;
        bench_sizes budgets;
        size_t budget;
        double *scratch, *query, n, all; /* query: room for it and its magnitudes; all: the prompt's weight */
        int32_t *best, *chosen;
} recall_walk;

static dci_status form_arms(recall_walk *w)
{
        static const recall_arm others[OTHERS] = {
                {.name = "l2", .rows = ROWS, .how = PAPERS_MEAN, .metric = DCI_METRIC_L2},
                {.name = "ip", .rows = ROWS, .how = PAPERS_MEAN, .metric = DCI_METRIC_IP},
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
                        DCI_TRY(papers_groups_pages(w->run->trace, first, end, arm->rows, &arm->groups));
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

static dci_status recall_budget(recall_walk *w)
{
        papers_run *run = w->run;
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
        recall_walk *w = dci_calloc(run->helper, 1, sizeof *w);
        if (w == NULL)
                return DCI_ERR_MEMORY;
        w->run = run;
        w->budgets = papers_budgets(run, &own);
        w->scratch = dci_alloc(run->helper, trace->tokens, sizeof *w->scratch);
        w->query = dci_alloc(run->helper, 2 * trace->keys.dim, sizeof *w->query);
        w->best = dci_alloc(run->helper, trace->tokens, sizeof *w->best);
        w->chosen = dci_alloc(run->helper, trace->tokens, sizeof *w->chosen);
        dci_status status = DCI_ERR_MEMORY;
        if (w->scratch != NULL && w->query != NULL && w->best != NULL && w->chosen != NULL)
                status = form_arms(w);
        for (size_t i = 0; status == DCI_OK && i < w->budgets.n; i++) {
                w->budget = w->budgets.values[i];
                status = recall_budget(w);
        }
        for (size_t i = 0; i < w->n_arms; i++)
                papers_groups_close(&w->arms[i].groups);
        dci_free(run->helper, w->scratch, trace->tokens, sizeof *w->scratch);
        dci_free(run->helper, w->query, 2 * trace->keys.dim, sizeof *w->query);
        dci_free(run->helper, w->best, trace->tokens, sizeof *w->best);
        dci_free(run->helper, w->chosen, trace->tokens, sizeof *w->chosen);
        dci_free(run->helper, w, 1, sizeof *w);
        return status;
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

/* --- cache-hits: what was chosen in one of the last R steps -------------------------------------------------------------------- */

/* When a thing was chosen last, counted from 1; 0: never. */
typedef struct cache {
        dci_context *context;
        size_t n, *last;
        double hits[BENCH_MAX_SHARES], all[BENCH_MAX_SHARES]; /* of each R */
} cache;

static bool cache_open(cache *c, dci_context *context, size_t n)
{
        c->context = context;
        c->n = n;
        c->last = dci_calloc(context, n, sizeof *c->last);
        return c->last != NULL;
}

static void cache_close(cache *c)
{
        if (c->context != NULL)
                dci_free(c->context, c->last, c->n, sizeof *c->last);
}

/* Steps count from 1. A cache that is not R steps old yet is not judged. */
static void cache_use(cache *c, const bench_sizes *reach, size_t step, size_t thing)
{
        for (size_t i = 0; i < reach->n; i++)
                if (step > reach->values[i]) {
                        c->hits[i] += c->last[thing] > 0 && step - c->last[thing] <= reach->values[i];
                        c->all[i]++;
                }
        c->last[thing] = step;
}

typedef struct hits_walk {
        papers_run *run;
        size_t budget, step;
        papers_groups groups;
        cache exact, tokens, clusters, plan; /* tokens and clusters: of each head */
        double *scratch, *group, *query;
        int32_t *chosen;
} hits_walk;

static dci_status hits_step(void *arg, size_t t, const double *weights)
{
        hits_walk *w = arg;
        const kvbench_trace *trace = w->run->trace;
        const bench_sizes *reach = &w->run->options->reach;
        const size_t step = t - trace->prompt + 1, begin = papers_window_begin(t, BENCH_SINK, KVBENCH_WINDOW);
        papers_group(trace, weights, t + 1, w->group);
        size_t n =
                papers_top(w->group, BENCH_SINK, begin, w->budget - BENCH_SINK - KVBENCH_WINDOW, w->scratch, w->chosen);
        for (size_t i = 0; i < n; i++)
                cache_use(&w->exact, reach, step, (size_t)w->chosen[i]);
        for (size_t h = 0; h < trace->group; h++) {
                size_t n_groups;
                papers_query(trace, t, h, w->query);
                papers_groups_rank(&w->groups, PAPERS_MEAN, w->query, w->query);
                n = papers_groups_take(&w->groups, w->budget - BENCH_SINK, w->chosen, &n_groups);
                for (size_t i = 0; i < n; i++)
                        cache_use(&w->tokens, reach, step, h * trace->tokens + (size_t)w->chosen[i]);
                for (size_t i = 0; i < n_groups; i++)
                        cache_use(&w->clusters, reach, step, h * w->groups.max_groups + w->groups.order[i]);
        }
        return DCI_OK;
}

static dci_status hits_rows(const hits_walk *w, const char *name, const char *codes, const cache *c)
{
        const bench_sizes *reach = &w->run->options->reach;
        for (size_t i = 0; i < reach->n; i++) {
                const papers_cell cells[] = {papers_word(name), papers_word(codes), papers_size(w->budget),
                                             papers_size(reach->values[i]),
                                             papers_number(c->all[i] > 0 ? c->hits[i] / c->all[i] : (double)NAN)};
                DCI_TRY(papers_add(w->run, cells));
        }
        return DCI_OK;
}

static dci_status watch_hits(void *arg, size_t t, const dci_kv_plan *plan)
{
        hits_walk *w = arg;
        const size_t step = t - w->run->trace->prompt + 1;
        for (int32_t i = 0; plan->recent_begin[0] > 0 && i < plan->counts[0]; i++)
                cache_use(&w->plan, &w->run->options->reach, step, (size_t)plan->positions[i]);
        return DCI_OK;
}

static dci_status played_hits(void *arg, const kvbench_row *row)
{
        hits_walk *w = arg;
        cache *c = &w->plan;
        char codes[PAPERS_TEXT];
        kvbench_codes_name(&row->arm, codes, sizeof codes);
        const dci_status status = hits_rows(w, dci_kv_preset_name(row->arm.preset), codes, c);
        memset(c->last, 0, c->n * sizeof *c->last);
        memset(c->hits, 0, sizeof c->hits);
        memset(c->all, 0, sizeof c->all);
        return status;
}

static dci_status hits_presets(hits_walk *w)
{
        kvbench_options options = w->run->options->kv;
        options.budgets.n = 1;
        options.budgets.values[0] = w->budget;
        /* All steps are planned, and one is judged. */
        options.every = w->run->trace->tokens;
        return papers_play(w->run, &options, watch_hits, played_hits, w);
}

static dci_status hits_budget(hits_walk *w)
{
        papers_run *run = w->run;
        const kvbench_trace *trace = run->trace;
        const size_t tokens = trace->tokens;
        if (w->budget <= BENCH_SINK + KVBENCH_WINDOW)
                return dci_fail(DCI_ERR_INVALID, "--budget %zu: cache-hits keeps %d tokens and chooses more", w->budget,
                                BENCH_SINK + KVBENCH_WINDOW);
        dci_status status = DCI_ERR_MEMORY;
        if (cache_open(&w->exact, run->helper, tokens) && cache_open(&w->plan, run->helper, tokens) &&
            cache_open(&w->tokens, run->helper, trace->group * tokens) &&
            cache_open(&w->clusters, run->helper, trace->group * w->groups.max_groups))
                status = papers_walk(run, "cache-hits", trace->prompt, 1, hits_step, w);
        if (status == DCI_OK)
                status = hits_rows(w, "exact, of tokens", "-", &w->exact);
        if (status == DCI_OK)
                status = hits_rows(w, "clusters, of tokens", "-", &w->tokens);
        if (status == DCI_OK)
                status = hits_rows(w, "clusters, of clusters", "-", &w->clusters);
        if (status == DCI_OK)
                status = hits_presets(w);
        cache_close(&w->exact);
        cache_close(&w->plan);
        cache_close(&w->tokens);
        cache_close(&w->clusters);
        return status;
}

static dci_status run_cache_hits(papers_run *run)
{
        static const bench_sizes own = {1, {1024}};
        const bench_sizes budgets = papers_budgets(run, &own);
        const kvbench_trace *trace = run->trace;
        const size_t n_clusters = (trace->prompt - BENCH_SINK) / ROWS;
        hits_walk w = {.run = run};
        w.scratch = dci_alloc(run->helper, trace->tokens, sizeof *w.scratch);
        w.group = dci_alloc(run->helper, trace->tokens, sizeof *w.group);
        w.query = dci_alloc(run->helper, trace->keys.dim, sizeof *w.query);
        w.chosen = dci_alloc(run->helper, trace->tokens, sizeof *w.chosen);
        dci_status status = DCI_ERR_MEMORY;
        if (w.scratch != NULL && w.group != NULL && w.query != NULL && w.chosen != NULL)
                status = papers_groups_clusters(run, DCI_METRIC_COSINE, BENCH_SINK, trace->prompt,
                                                n_clusters > 0 ? n_clusters : 1, &w.groups);
        for (size_t i = 0; status == DCI_OK && i < budgets.n; i++) {
                hits_walk of_budget = w;
                of_budget.budget = budgets.values[i];
                status = hits_budget(&of_budget);
        }
        papers_groups_close(&w.groups);
        dci_free(run->helper, w.scratch, trace->tokens, sizeof *w.scratch);
        dci_free(run->helper, w.group, trace->tokens, sizeof *w.group);
        dci_free(run->helper, w.query, trace->keys.dim, sizeof *w.query);
        dci_free(run->helper, w.chosen, trace->tokens, sizeof *w.chosen);
        return status;
}

static const papers_column cache_hits_columns[] = {
        {"choice", NULL}, {"codes", NULL}, {"budget", "%.0f"}, {"R", "%.0f"}, {"hit_rate", "%.3f"}};
static const char cache_hits_help[] =
        "of what a step chooses, what one of the --reach R steps before it chose: of the group's B - 80 best\n"
        "  tokens by exact attention; of clusters of the prompt (k-means by cosine, 80 keys each, a query head\n"
        "  for itself) tokens and clusters; of the tokens that a preset chooses. The paper: 63 % for R = 1 and\n"
        "  74 % for R = 2";
const papers_figure papers_cache_hits = {"cache-hits",
                                         "ClusterKV, section V-C",
                                         cache_hits_help,
                                         cache_hits_columns,
                                         sizeof cache_hits_columns / sizeof *cache_hits_columns,
                                         run_cache_hits};
