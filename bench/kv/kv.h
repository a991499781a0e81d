/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand kv: plays traces of attention as decodes through dci_kv, preset by preset, and judges what is attended to. */
#ifndef DCI_BENCH_KV_KV_H
#define DCI_BENCH_KV_KV_H

#include "bench/common/report.h"
#include "dci/kv.h"

/* --- bench/kv/options.c ------------------------------------------------------------------------------------------------------ */

enum { KVBENCH_KEPT_COMMON = 1, KVBENCH_KEPT_PAPER = 2 };
enum { KVBENCH_LISTS_KV = 1, KVBENCH_LISTS_QUERY = 2 };
enum { KVBENCH_RANDOM = 1, KVBENCH_LEARNED = 2 };
enum { KVBENCH_UPDATES_ON = 1, KVBENCH_UPDATES_OFF = 2 };
#define KVBENCH_MAX_TRACES 64
/* Numbers of presets are below it. */

/* Tokens at the end that --kept common has every preset keep; those at the start are BENCH_SINK. */
#define KVBENCH_WINDOW 64

/* The first position that --every judges, after the prompt. */
#define KVBENCH_FIRST 8

/* Steps of LouisKV that retrieve, on inputs that are long: its baseline has a stride of 5 "to closely match the average
 * retrieval frequency" (appendix D.3). */
#define KVBENCH_RATE 0.2

/* What is left of a page counts by. */
enum { KVBENCH_SUMS_REST = 1, KVBENCH_SUMS_WHOLE };

/* Whether presets that select once keep what is generated. */
enum { KVBENCH_KEEP_ALL = 1, KVBENCH_KEEP_WINDOW };

/* What icecache takes of its leaves. */
enum { KVBENCH_LEAVES_SEARCH, KVBENCH_LEAVES_TOKENS, KVBENCH_LEAVES_MEAN, KVBENCH_LEAVES_CODES, KVBENCH_LEAVES_PAGES };

typedef struct kvbench_options {
        const char *traces[KVBENCH_MAX_TRACES]; /* folders */
        size_t n_traces;
        const char *anchor; /* a folder whose layer chooses for those of the traces; NULL: each for itself */
        size_t synthetic;   /* tokens; 0: none */
        size_t extend;      /* tokens that traces are made longer to; 0: none */
        int32_t presets[DCI_KV_PRESETS];
        size_t n_presets;
        bench_sizes budgets;
        int32_t kept;                        /* KVBENCH_KEPT_* */
        int32_t key_bits, value_bits, codes; /* bits 1 << width, and 1 << KVBENCH_RANDOM or _LEARNED; 0: the preset's */
        int32_t updates;                     /* 1 << KVBENCH_UPDATES_ON or _OFF */
        int32_t combine, page_tokens;        /* 0: the preset's */
        int32_t summary;                     /* of presets of pages, clusters or segments; 0: the preset's */
        double deviation_weight;             /* 0: the default */
        size_t cluster_tokens, cluster_most; /* the same, and 0: clusters of any size */
        int32_t cluster_by;                  /* 0: the preset's */
        size_t segment_buffer;               /* 0: the budget's */
        size_t segment_least;                /* 0: 1 */
        size_t sink, window;                 /* BENCH_ALL and 0: those of `kept` */
        int32_t lists;                       /* KVBENCH_LISTS_*, 0: as `kept` has them */
        int32_t budget_counts;               /* 0: those of `kept`, or the preset's */
        double budget_share;                 /* 0: budgets are tokens */
        size_t observed_pool;                /* 0: the preset's */
        int32_t observed_keep;               /* 0: the preset's; KVBENCH_KEEP_* */
        int32_t schedule;                    /* 0: the preset's; of arms that it goes with */
        double tau;                          /* 0: the one of the rate */
        double rate;                         /* of steps that retrieve, which taus are calibrated to; 0: KVBENCH_RATE */
        size_t verify, preselect, preselect_tokens,
                preselect_least; /* 0: the preset's; else of presets that choose by codes */
        int32_t sums;            /* KVBENCH_SUMS_*; 0: the preset's */
        double static_share;     /* NAN: the preset's */
        size_t ring;             /* 0: the preset's */
        size_t period;           /* 0: the default */
        int32_t leaves;          /* KVBENCH_LEAVES_* */
        size_t field_of_view;    /* 0: as the library does, and so */
        double promotion_subseq; /* these: fields of the tree */
        size_t simple_indices;
        double retrieve;
        bool frozen_prompt;
        size_t every; /* 0: every step is judged */
        bool judged_only;
        size_t steps, threads, seed;
        dci_isa isa;
        const char *json;
        char *folders; /* a copy of --trace, cut at its commas; the traces point into it */
} kvbench_options;

dci_status kvbench_options_parse(int argc, char **argv, kvbench_options *out, bool *out_help);
/* What kv and layers share: presets, widths, codes, threads, isa, seed, json; and the options of `more`. One budget. */
dci_status kvbench_arms_parse(int argc, char **argv, const char *presets, const bench_option *more, size_t n_more,
                              kvbench_options *out, bool *out_help);
/* Folders with commas between them; NULL: none. Free with kvbench_options_free, also after a failure. */
dci_status kvbench_traces_parse(const char *text, kvbench_options *o);
void kvbench_options_free(kvbench_options *o);
void kvbench_print_help(void);
const char *kvbench_kept_name(int32_t kept);
const char *kvbench_counts_name(int32_t of);
const char *kvbench_lists_name(int32_t of);
/* Whether a preset, at these heads, can have a list for each query head. */
bool kvbench_lists_query_heads(const dci_kv_config *c);
const char *kvbench_combine_name(int32_t combine);
const char *kvbench_summary_name(int32_t summary);
const char *kvbench_schedule_name(int32_t schedule);
const char *kvbench_leaves_name(int32_t of);

/* --- bench/kv/data.c, bench/kv/synthetic.c ------------------------------------------------------------------------------------------ */

/* A sequence of one kv head: keys and values of `tokens`, of which `prompt` are the prompt; queries position by position, the
 * heads of a position next to each other, those of the decode and those before it. */
typedef struct kvbench_trace {
        char name[256];
        dci_context *helper;
        size_t tokens, prompt, group;
        double scale;
        bench_rows keys, values, queries;
        bench_rows observed;          /* n 0: none */
        float *key_rows, *value_rows; /* the same in float, for the judge */
} kvbench_trace;

/* Reads a folder, or makes the synthetic run when it is NULL; at most options->steps positions are decoded. */
dci_status kvbench_trace_open(dci_context *helper, const kvbench_options *o, const char *folder, kvbench_trace *out);
void kvbench_trace_close(kvbench_trace *trace);

/* Fills everything but helper and the rows in float. */
dci_status kvbench_synthetic(dci_context *helper, size_t n_tokens, uint64_t seed, kvbench_trace *out);

/* --- bench/kv/truth.c: exact attention at the positions that are judged -------------------------------------------------------- */

/* Where the share is contested at position t: tokens from BENCH_SINK to *out_end. */
size_t kvbench_contested_end(const kvbench_options *o, const kvbench_trace *trace, size_t t);

/* Scores are scale q . k in double precision; sums run over keys 0 to t. */
typedef struct kvbench_truth {
        dci_context *context;
        size_t n_judged, first, every; /* positions first, first + every, ... */
        size_t group, dim, n_budgets;
        double *log_sums; /* n_judged x group: logarithm of the softmax's denominator */
        double *limits; /* n_judged x group x n_budgets: the score of the budget's last token; -infinity: all belong to it */
        double *out;       /* n_judged x group x dim: the output */
        double *contested; /* n_judged: weight of the contested tokens, summed over the heads */
} kvbench_truth;

dci_status kvbench_truth_find(const kvbench_options *o, const kvbench_trace *trace, kvbench_truth *out);
void kvbench_truth_free(kvbench_truth *truth);
double kvbench_dot(const double *a, const float *b, size_t dim);
/* Refuses NaN and infinity in keys and queries. */
dci_status kvbench_check_finite(const kvbench_trace *trace);
/* The k-th greatest of n > k >= 1 numbers, none of them NaN, which it reorders. */
double kvbench_kth_greatest(double *x, size_t n, size_t k);

/* --- bench/kv/judge.c ----------------------------------------------------------------------------------------------------------- */

enum { KVBENCH_HITS = 3, KVBENCH_SIXTHS = 6 };

/* What is judged of one arm; NAN: there is nothing to judge. */
typedef struct kvbench_marks {
        double share, recall, token_recall;
        double err[3], err_tail[3];    /* all positions, the first quarter of the decode, the last one */
        double sixths[KVBENCH_SIXTHS]; /* error with the tail, if there is one, by sixths of the decode */
        double overlap, attended, attended_query_head; /* tokens of any query head; of one */
        double bytes_step, bytes_step_cached;
        double hits[KVBENCH_HITS]; /* of the chosen, those that were chosen in one of the last 1, 2 and 4 steps */
        size_t n_judged;
} kvbench_marks;

typedef struct kvbench_judge {
        const kvbench_options *options;
        const kvbench_trace *trace;
        const kvbench_truth *truth;
        size_t budget;                       /* its number among options->budgets */
        size_t room;                         /* of the lists */
        int32_t *attended, *chosen, *before; /* chosen: what is on any list of the plan */
        size_t n_chosen, n_before, n_steps;
        double *query;
        double kept, contested, recall, found, heads;
        double err[2][3], n_err[3], sixths[KVBENCH_SIXTHS], n_sixths[KVBENCH_SIXTHS];
        double overlap, n_overlap, n_attended, n_attended_query_head, n_all_chosen, n_moved;
        double n_hits[KVBENCH_HITS], n_looked; /* n_looked: chosen after the first step */
        uint32_t *last;                        /* by token: the number of the step that chose it last, from 1 */
        bool has_tail, all;                    /* all: it attends to everything, whatever the budget */
        bool selected_only;                    /* the budget bounds the list alone */
} kvbench_judge;

/* `room`: most tokens of a list. Close it also after a failure. */
dci_status kvbench_judge_open(const kvbench_options *o, const kvbench_trace *trace, const kvbench_truth *truth,
                              size_t budget, size_t room, bool has_tail, kvbench_judge *out);
void kvbench_judge_close(kvbench_judge *judge);

/* Counts what the plan of position t chose, and fails when the plan is none: lists in order, between sink and recent, within the
 * budget. */
dci_status kvbench_judge_plan(kvbench_judge *judge, size_t t, const dci_kv_plan *plan);
bool kvbench_is_judged(const kvbench_judge *judge, size_t t);
/* Judges position t by its plan and outputs, group x dim_v; tail: with the tail, NULL without one. */
void kvbench_judge_step(kvbench_judge *judge, size_t t, const dci_kv_plan *plan, const float *out, const float *tail);
kvbench_marks kvbench_judge_marks(const kvbench_judge *judge);

/* --- bench/kv/play.c ------------------------------------------------------------------------------------------------------------ */

/* A preset at a budget. key_bits 0: it has no codes; value_bits 0: it has no low-bit tail. */
typedef struct kvbench_arm {
        int32_t preset, key_bits, value_bits;
        bool learned;
        bool still; /* no updates: what is decoded is in the window, and then nowhere; prkv: pages by position, no new order */
        size_t budget; /* its number among options->budgets */
} kvbench_arm;

enum { KVBENCH_APPEND, KVBENCH_PLAN, KVBENCH_ATTEND, KVBENCH_MAINTAIN, KVBENCH_STEP, KVBENCH_TIMES };

/* Called with the plan of position t, outside of the clock. */
typedef dci_status (*kvbench_watch)(void *arg, size_t t, const dci_kv_plan *plan);

typedef struct kvbench_row {
        const kvbench_options *options;
        kvbench_watch watch; /* NULL: nobody */
        void *watcher;
        const kvbench_trace *anchor; /* NULL: none */
        kvbench_arm arm;
        char trace[256];
        size_t tokens, prompt, group, dim_k, dim_v;
        char reason[256]; /* why it was not played; empty: it was */
        dci_kv_info info; /* after the last step */
        double resident;  /* bytes per token that the arm keeps for choosing */
        kvbench_marks marks;
        size_t n_steps, n_planned;
        double tau, rate; /* of the schedule, and the rate that it is calibrated to; NAN: it has none, is not */
        double decided, corrected; /* of all lists, those that their own queries chose; those that were corrected */
        double build_ms;
        bench_latency times[KVBENCH_TIMES];
        int32_t refits;
        double drift;
} kvbench_row;

/* bench/kv/kv.c: a preset, width of keys and of values, sort of codes and budget after the other; returns how many. arms NULL: only counts. */
size_t kvbench_arms(const kvbench_options *o, kvbench_arm *arms);

/* Preset, codes, seed and stages of an arm; no layer is dense. */
void kvbench_set_arm(const kvbench_options *o, const kvbench_arm *arm, dci_kv_config *c);
/* Checks that the arm can be created, or writes into row->reason why it is not played. */
dci_status kvbench_arm_check(dci_context *context, const kvbench_trace *trace, kvbench_row *row);
dci_status kvbench_play(dci_context *context, const kvbench_trace *trace, const kvbench_truth *truth, kvbench_row *row);

/* "sketch" and "K4 V2 learned" */
void kvbench_codes_name(const kvbench_arm *arm, char *out, size_t size);

/* --- bench/kv/report.c ---------------------------------------------------------------------------------------------------------- */

void kvbench_print_table(const kvbench_trace *trace, const dci_context *context, const kvbench_row *rows,
                         size_t n_rows);
dci_status kvbench_write_json(const kvbench_options *o, const dci_context *context, int argc, char **argv,
                              const kvbench_row *rows, size_t n_rows);

#endif
