/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand papers: what the papers on retrieval for attention report and traces can show, by the papers' definitions. */
#ifndef DCI_BENCH_KV_PAPERS_PAPERS_H
#define DCI_BENCH_KV_PAPERS_PAPERS_H

#include "bench/kv/kv.h"

/* --- bench/kv/papers/options.c -------------------------------------------------------------------------------------------------- */

typedef struct papers_options {
        kvbench_options kv;  /* traces, presets, codes, steps, every, threads, seed */
        uint32_t figures;    /* bits 1 << number in papers_figures */
        bench_sizes budgets; /* n 0: each figure's own */
        bench_shares taus, ratios;
        bench_sizes strides, reach, cluster_rows;
        size_t period, window, page, sink; /* of the figure static-ratio */
} papers_options;

dci_status papers_options_parse(int argc, char **argv, papers_options *out, bool *out_help);
void papers_options_free(papers_options *o);
void papers_print_help(void);

/* --- bench/kv/papers/papers.c: figures and their rows ------------------------------------------------------------------------------------- */

enum { PAPERS_CELLS = 14, PAPERS_TEXT = 32 };

/* A word, or a number where the word is empty; NAN: there is none. */
typedef struct papers_cell {
        char text[PAPERS_TEXT];
        double value;
} papers_cell;

/* The name is the column's head and the field's name in JSON; format NULL: words. */
typedef struct papers_column {
        const char *name, *format;
} papers_column;

typedef struct papers_run papers_run;
typedef struct papers_figure {
        const char *name, *source; /* where the paper has it */
        const char *help;          /* what it is, and what the columns mean */
        const papers_column *columns;
        size_t n_columns;
        dci_status (*run)(papers_run *run);
} papers_figure;

#define PAPERS_FIGURES 12
extern const papers_figure *const papers_figures[PAPERS_FIGURES];

typedef struct papers_row {
        const papers_figure *figure;
        char trace[256];
        papers_cell cells[PAPERS_CELLS];
} papers_row;

/* A figure on a trace, one after the other. */
struct papers_run {
        const papers_options *options;
        dci_context *helper, *measured;
        const kvbench_trace *trace;
        const papers_figure *figure;
        papers_row *rows;
        size_t n_rows, room;
        /* The trace before this one, for what two layers share: cosines of queries at each step of the decode. */
        char before[256];
        double *before_turns;
        size_t n_before;
};

/* A row of the figure that runs; n_columns cells. */
dci_status papers_add(papers_run *run, const papers_cell *cells);
papers_cell papers_word(const char *text);
papers_cell papers_number(double value);
papers_cell papers_size(size_t value);

/* The budgets asked for, or those of the paper, without those that hold the whole prompt. */
bench_sizes papers_budgets(const papers_run *run, const bench_sizes *own);
/* Every so many positions one is looked at, where a figure needs not all of them. */
size_t papers_every(const papers_run *run);

/* --- bench/kv/papers/walk.c: true attention, position by position ---------------------------------------------------------------------- */

/* weights: group x trace->tokens; the softmax of each head over tokens 0 to t. */
typedef dci_status (*papers_step)(void *arg, size_t t, const double *weights);

/* Positions first, first + every, .. of the decode, in their order. */
dci_status papers_walk(papers_run *run, const char *label, size_t first, size_t every, papers_step step, void *arg);

/* The first position that has queries. */
size_t papers_first_query(const kvbench_trace *trace);
/* keys.dim numbers; t may lie before the decode. */
void papers_query(const kvbench_trace *trace, size_t t, size_t head, double *out);
/* The softmax of a head over the first n <= t + 1 tokens. query: room for keys.dim. */
void papers_weights(const kvbench_trace *trace, size_t t, size_t head, size_t n, double *query, double *out);

/* The best `budget` tokens of [first, end) by their weights, equal ones by lower number, in ascending order; returns how many.
 * scratch: room for end - first. */
size_t papers_top(const double *weights, size_t first, size_t end, size_t budget, double *scratch, int32_t *out);
/* Tokens in both of two ascending lists. */
size_t papers_in_both(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b);
double papers_sum(const double *weights, const int32_t *tokens, size_t n);
/* Of tokens [first, end); 0 where end <= first. */
double papers_sum_range(const double *weights, size_t first, size_t end);
/* The sum over the heads of the first n weights. */
void papers_group(const kvbench_trace *trace, const double *weights, size_t n, double *out);
/* Where the window of position t begins, at the sink's end or behind it. */
size_t papers_window_begin(size_t t, size_t sink, size_t window);

/* For each step of the decode the mean over the heads of cos(q_t, q_t-1); NAN where there is no query before. */
dci_status papers_turns(papers_run *run, double **out);

/* The best tokens of each head at the positions that a kvbench_truth with the same every judges. */
typedef struct papers_tops {
        dci_context *context;
        size_t first, every, n_positions, group, budget;
        int32_t *tokens; /* n_positions x group x budget, ascending */
        int32_t *counts;
} papers_tops;
/* Of the whole sequence up to a position, or of the prompt alone. */
dci_status papers_tops_find(papers_run *run, size_t every, size_t budget, bool prompt, papers_tops *out);
void papers_tops_free(papers_tops *tops);

/* --- bench/kv/papers/groups.c: pages and clusters ------------------------------------------------------------------------------------- */

enum { PAPERS_MEAN = 1, PAPERS_MINMAX = 2, PAPERS_CUBOID = 3 };

/* Groups of tokens with all of their summaries. */
typedef struct papers_groups {
        dci_context *context;
        size_t dim, n_groups, max_groups, max_tokens;
        int32_t *offsets, *tokens;          /* tokens of group g: from offsets[g] to offsets[g + 1] */
        double *low, *high, *mean, *radius; /* max_groups x dim; radius: mean of |k - (low + high) / 2| */
        double *scores;
        size_t *order; /* of the last papers_groups_rank: groups, best first */
} papers_groups;

dci_status papers_groups_open(dci_context *context, size_t dim, size_t max_groups, size_t max_tokens,
                              papers_groups *out);
void papers_groups_close(papers_groups *groups);
/* One more group, of tokens that are in no other. */
void papers_groups_add(papers_groups *groups, const kvbench_trace *trace, const int32_t *tokens, size_t n);
/* Pages of tokens [first, end) by position; clusters of them, by k-means. */
dci_status papers_groups_pages(const kvbench_trace *trace, size_t first, size_t end, size_t page, papers_groups *out);
dci_status papers_groups_clusters(const papers_run *run, dci_metric metric, size_t first, size_t end, size_t n_clusters,
                                  papers_groups *out);
/* Ranks by q . summary; magnitudes: |q_j|, or means of them over heads. */
void papers_groups_rank(papers_groups *groups, int32_t how, const double *query, const double *magnitudes);
/* Tokens of the best groups, the last group cut at the budget; in the order of groups. */
size_t papers_groups_take(const papers_groups *groups, size_t budget, int32_t *out, size_t *out_n_groups);

/* --- the figures -------------------------------------------------------------------------------------------------------------- */

extern const papers_figure papers_token_recall, papers_page_hits, papers_resident; /* bench/kv/papers/presets.c */
extern const papers_figure papers_cluster_recall, papers_cache_hits;               /* bench/kv/papers/clusters.c */
extern const papers_figure papers_static_ratio, papers_online_ratio;               /* bench/kv/papers/static.c */
extern const papers_figure papers_reuse_decay, papers_fragmentation;               /* bench/kv/papers/reuse.c */
extern const papers_figure papers_jaccard, papers_frequency, papers_boundary;      /* bench/kv/papers/turns.c */

/* bench/kv/papers/presets.c: plays each arm of the options with these budgets on the trace, and hands over its plans. Rows that were not
 * played have a reason. */
typedef dci_status (*papers_played)(void *arg, const kvbench_row *row);
dci_status papers_play(papers_run *run, const kvbench_options *options, kvbench_watch watch, papers_played played,
                       void *arg);
/* Tokens 0 to t that the plan attends to, ascending; returns how many. */
size_t papers_attended(const dci_kv_plan *plan, int32_t *out);

#endif
