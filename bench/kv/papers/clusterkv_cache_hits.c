/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* ClusterKV, section V-C: the share of what a step chooses that one of the last R steps chose. */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <string.h>

/* The step at which each item was chosen last, counted from 1; 0: never. */
typedef struct cache {
        size_t n, *last;
        double hits[BENCH_MAX_SHARES], all[BENCH_MAX_SHARES]; /* of each R */
} cache;

static cache cache_of(papers_run *run, size_t n)
{
        const cache c = {.n = n, .last = papers_alloc(run, n, sizeof *c.last)};
        return c;
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

static dci_status hits_budget(papers_run *run, size_t budget, void *arg)
{
        hits_walk w = *(const hits_walk *)arg;
        const kvbench_trace *trace = run->trace;
        w.budget = budget;
        if (budget <= BENCH_SINK + KVBENCH_WINDOW)
                return dci_fail(DCI_ERR_INVALID, "--budget %zu: cache-hits keeps %d tokens and chooses more", budget,
                                BENCH_SINK + KVBENCH_WINDOW);
        w.exact = cache_of(run, trace->tokens);
        w.plan = cache_of(run, trace->tokens);
        w.tokens = cache_of(run, trace->group * trace->tokens);
        w.clusters = cache_of(run, trace->group * w.groups.max_groups);
        DCI_TRY(papers_memory(run));
        DCI_TRY(papers_walk(run, "cache-hits", trace->prompt, 1, hits_step, &w));
        DCI_TRY(hits_rows(&w, "exact, of tokens", "-", &w.exact));
        DCI_TRY(hits_rows(&w, "clusters, of tokens", "-", &w.tokens));
        DCI_TRY(hits_rows(&w, "clusters, of clusters", "-", &w.clusters));
        return hits_presets(&w);
}

static dci_status run_cache_hits(papers_run *run)
{
        static const bench_sizes own = {1, {1024}};
        const kvbench_trace *trace = run->trace;
        const size_t n_clusters = (trace->prompt - BENCH_SINK) / PAPERS_CLUSTER_ROWS;
        hits_walk w = {.run = run};
        w.scratch = papers_alloc(run, trace->tokens, sizeof *w.scratch);
        w.group = papers_alloc(run, trace->tokens, sizeof *w.group);
        w.query = papers_alloc(run, trace->keys.dim, sizeof *w.query);
        w.chosen = papers_alloc(run, trace->tokens, sizeof *w.chosen);
        DCI_TRY(papers_memory(run));
        DCI_TRY(papers_groups_clusters(run, DCI_METRIC_COSINE, BENCH_SINK, trace->prompt,
                                       n_clusters > 0 ? n_clusters : 1, &w.groups));
        return papers_each_budget(run, &own, hits_budget, &w);
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
