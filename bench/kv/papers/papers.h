/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand papers: figures of papers on retrieval for attention, computed on traces by the papers' definitions. */
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

/* A block of a figure's memory, in a list with the last one first. */
typedef struct papers_block {
        struct papers_block *before;
        size_t n_bytes;
} papers_block;

/* A figure on a trace, one after the other. */
struct papers_run {
        const papers_options *options;
        dci_context *helper, *measured;
        const kvbench_trace *trace;
        const papers_figure *figure;
        papers_row *rows;
        size_t n_rows, room;
        papers_block *blocks;
        bool no_memory;
        /* The trace before this one, for what two layers share: cosines of queries at each step of the decode. */
        char before[256];
        double *before_turns;
        size_t n_before;
};

/* Adds a row to the current figure; n_columns cells. */
dci_status papers_add(papers_run *run, const papers_cell *cells);
papers_cell papers_word(const char *text);
papers_cell papers_number(double value);
papers_cell papers_size(size_t value);

/* Allocates zeroed memory until the figure, or its budget, ends. After a NULL papers_memory fails. */
void *papers_alloc(papers_run *run, size_t n, size_t size);
dci_status papers_memory(const papers_run *run);
/* Frees what was allocated after `mark`, which is run->blocks before. */
void papers_release(papers_run *run, papers_block *mark);

/* Returns the budgets of the options, or those of the paper, without those that hold the whole prompt. */
bench_sizes papers_budgets(const papers_run *run, const bench_sizes *own);
/* Calls fn for each budget, and releases its memory. */
typedef dci_status (*papers_budget)(papers_run *run, size_t budget, void *arg);
dci_status papers_each_budget(papers_run *run, const bench_sizes *own, papers_budget fn, void *arg);
/* Returns the distance of the positions that a figure samples if it does not need all. */
size_t papers_every(const papers_run *run);

/* --- bench/kv/papers/attention.c: true attention, position by position ---------------------------------------------------------------------- */

/* weights: group x trace->tokens; the softmax of each head over tokens 0 to t. */
typedef dci_status (*papers_step)(void *arg, size_t t, const double *weights);

/* Calls step for positions first, first + every, .. of the decode, in order. */
dci_status papers_walk(papers_run *run, const char *label, size_t first, size_t every, papers_step step, void *arg);

/* Returns the first position that has queries. */
size_t papers_first_query(const kvbench_trace *trace);
/* Copies a query of keys.dim numbers; t may be before the decode. */
void papers_query(const kvbench_trace *trace, size_t t, size_t head, double *out);
/* Computes the softmax of a head over the first n <= t + 1 tokens. query: room for keys.dim. */
void papers_weights(const kvbench_trace *trace, size_t t, size_t head, size_t n, double *query, double *out);

/* Finds the best `budget` tokens of [first, end) by their weights, equal ones by lower number, in ascending order; returns their number.
 * scratch: room for end - first. */
size_t papers_top(const double *weights, size_t first, size_t end, size_t budget, double *scratch, int32_t *out);
/* Counts the tokens in both of two ascending lists. */
size_t papers_in_both(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b);
double papers_sum(const double *weights, const int32_t *tokens, size_t n);
/* Sums the weights of tokens [first, end); 0 where end <= first. */
double papers_sum_range(const double *weights, size_t first, size_t end);
/* Sums the first n weights over the heads. */
void papers_group(const kvbench_trace *trace, const double *weights, size_t n, double *out);
/* Returns where the window of position t begins, at the sink's end or after it. */
size_t papers_window_begin(size_t t, size_t sink, size_t window);

/* --- bench/kv/papers/groups.c: pages and clusters ------------------------------------------------------------------------------------- */

enum { PAPERS_MEAN = 1, PAPERS_MINMAX = 2, PAPERS_CUBOID = 3 };
/* Keys per cluster in ClusterKV. */
enum { PAPERS_CLUSTER_ROWS = 80 };

/* Groups of tokens with all of their summaries. */
typedef struct papers_groups {
        size_t dim, n_groups, max_groups;
        int32_t *offsets, *tokens;          /* tokens of group g: from offsets[g] to offsets[g + 1] */
        double *low, *high, *mean, *radius; /* max_groups x dim; radius: mean of |k - (low + high) / 2| */
        double *scores;
        size_t *order; /* of the last papers_groups_rank: groups, best first */
} papers_groups;

dci_status papers_groups_open(papers_run *run, size_t dim, size_t max_groups, size_t max_tokens, papers_groups *out);
/* Adds a group of tokens that are in no other. */
void papers_groups_add(papers_groups *groups, const kvbench_trace *trace, const int32_t *tokens, size_t n);
/* Group tokens [first, end) into pages by position, or into clusters by k-means. */
dci_status papers_groups_pages(papers_run *run, size_t first, size_t end, size_t page, papers_groups *out);
dci_status papers_groups_clusters(papers_run *run, dci_metric metric, size_t first, size_t end, size_t n_clusters,
                                  papers_groups *out);
/* Ranks by q . summary; magnitudes: |q_j|, or means of them over heads. */
void papers_groups_rank(papers_groups *groups, int32_t how, const double *query, const double *magnitudes);
/* Lists the tokens of the best groups, in the order of groups; the last group is cut at the budget. */
size_t papers_groups_take(const papers_groups *groups, size_t budget, int32_t *out, size_t *out_n_groups);

/* --- bench/kv/papers/louiskv_gate.c --------------------------------------------------------------------------------------------- */

/* Returns the number of steps of the decode. */
size_t papers_steps(const papers_run *run);
/* Computes for each step the mean over the heads of cos(q_t, q_t-1); NAN where there is no query before. */
dci_status papers_turns(papers_run *run, double **out);
bool papers_is_boundary(const double *turns, size_t step, double tau);

/* --- bench/kv/papers/presets.c: plans of presets against the best tokens of each head --------------------------------------------- */

/* The best tokens of each head at the positions that a kvbench_truth with the same every judges. */
typedef struct papers_tops {
        size_t first, every, n_positions, group, budget;
        int32_t *tokens; /* n_positions x group x budget, ascending */
        int32_t *counts;
} papers_tops;

enum { WHOLE, FIRST_QUARTER, LAST_QUARTER, OF_PROMPT, DECODED, PAPERS_PARTS };

typedef struct papers_preset_walk {
        papers_run *run;
        papers_tops tops;
        int32_t *attended;
        size_t budget;
        bool prompt; /* the best of the prompt alone */
        double found[PAPERS_PARTS],
                all[PAPERS_PARTS]; /* tokens among the best that can be chosen: those attended to, and all */
        double found_any, all_any,
                chosen; /* kept ones too; tokens of the prompt or, otherwise, all that are attended to */
        double n;
} papers_preset_walk;

/* Plays each arm of the options with these budgets on the trace, and passes its plans to `watch`. Rows that were not played have a reason. */
typedef dci_status (*papers_played)(void *arg, const kvbench_row *row);
dci_status papers_play(papers_run *run, const kvbench_options *options, kvbench_watch watch, papers_played played,
                       void *arg);
/* Plays one budget and counts the best tokens: `arg` is a papers_preset_walk. `more`: tokens that the budget counts and the set
 * that is judged does not have. prompt: the best of the prompt alone, which is then frozen. */
dci_status papers_play_budget(papers_run *run, size_t budget, size_t more, bool prompt, papers_played played);
/* Clears the counts for the next arm. */
void papers_forget(papers_preset_walk *w);
kvbench_options papers_options_at(const papers_run *run, size_t budget);
/* Fills the first two cells of a row of a preset. */
void papers_name_arm(const kvbench_arm *arm, papers_cell *out);
/* Returns a / b; NAN where b is 0. */
double papers_ratio(double a, double b);

/* --- the figures, a file each ----------------------------------------------------------------------------------------------------- */

extern const papers_figure papers_token_recall, papers_cluster_recall, papers_cache_hits,
        papers_fragmentation;                                                            /* clusterkv_*.c */
extern const papers_figure papers_static_ratio, papers_online_ratio, papers_reuse_decay; /* prkv_*.c */
extern const papers_figure papers_jaccard, papers_frequency, papers_boundary;            /* louiskv_*.c */
extern const papers_figure papers_page_hits;                                             /* icecache_page_hits.c */
extern const papers_figure papers_resident;                                              /* resident_bytes.c */

#endif
