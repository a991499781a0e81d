/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand ann: options, measurement, report. */
#ifndef DCI_BENCH_ANN_ANN_H
#define DCI_BENCH_ANN_ANN_H

#include "bench/common/common_options.h"
#include "bench/common/exact.h"

/* --- bench/ann/options.c ------------------------------------------------------------------------------------------------------ */

/* What is built: an index of a kind, without codes or with codes of some width, learned or not. */
typedef struct ann_arm {
        dci_index_kind kind;
        int32_t sketch_bits; /* 0: no codes; auto: as the library says */
        bool fitted;
} ann_arm;
#define ANN_MAX_ARMS 44 /* four kinds, each without codes and with five widths of both sorts */

/* The codes that rank rows. */
typedef struct ann_codes {
        int32_t widths; /* bits 1 << sketch_bits */
        bench_shares rerank, guarantee;
        const char *fit;       /* as given, or NULL */
        const char *fit_to;    /* NULL: nothing; a file, or "observation" */
        bool observation;      /* fit_to is the trace's own queries before the decode */
        bool unfitted, fitted; /* which sorts are built */
} ann_codes;

typedef struct ann_options {
        bench_source source;
        bool own_truth;    /* --truth own */
        dci_metric metric; /* 0: what the data says */
        size_t k;          /* 0: 100 on traces, else 10 */
        bench_index_options index;
        ann_codes codes;
        ann_arm arms[ANN_MAX_ARMS]; /* in the order of the report; the first is exact search */
        size_t n_arms;
        bool pareto;      /* only the rows that no other beats */
        size_t group;     /* queries taken together, 0: each by itself */
        bool group_union; /* k rows for a group, instead of k for each of its queries */
        size_t repeat, truth_check;
        const char *cache; /* folder, or NULL */
        char default_cache[4096];
        int32_t mode;     /* BENCH_MODE_* */
        const char *json; /* NULL or where to write */
} ann_options;

/* Parses and checks that the options go together. *out_help: print the help instead. */
dci_status ann_options_parse(int argc, char **argv, ann_options *out, bool *out_help);
void ann_print_help(void);

/* --- bench/ann/arms.c ---------------------------------------------------------------------------------------------------------- */

/* Fills the arms from what else the options say. */
void ann_list_arms(ann_options *options);

/* How many efforts an arm is measured with, and each of them. */
size_t ann_effort_count(const ann_options *options, const ann_arm *arm);
bench_effort ann_effort_at(const ann_options *options, const ann_arm *arm, size_t i);

/* --- bench/ann/measure.c ------------------------------------------------------------------------------------------------------ */

/* One line of the report. */
typedef struct ann_row {
        const ann_arm *arm; /* among those of the options */
        dci_dtype rows;
        int32_t mode; /* BENCH_MODE_ONE or BENCH_MODE_BATCH: of queries, or of groups */
        const ann_options *options;
        bench_effort effort;
        int32_t threads;
        size_t n, dim, k, n_queries;
        dci_metric metric;
        bench_spread build_s; /* seconds */
        bench_spread qps;     /* queries per second */
        double read_floor_qps;
        double recall;
        double share;                  /* negative: no trace */
        double dist_comps, candidates; /* per query */
        double proposed;               /* the same: ranked by codes or other cheap arithmetic first */
        size_t bytes;
        dci_tree_stats tree; /* n_levels 0: no tree */
        dci_index_kind used; /* what auto came to, with so many bits; else what the arm says */
        int32_t used_bits;
} ann_row;

typedef struct ann_job {
        dci_context *context; /* with the thread limit to measure */
        const ann_options *options;
        const bench_dataset *dataset;
        const bench_truth *truth;
        const bench_share *share; /* NULL without a trace */
        const bench_rows *fit;    /* queries that codes are fitted to, of the format of the others; NULL: none */
        dci_metric metric;
        size_t k;
} ann_job;

/* Builds, warms up and measures all arms; one row per arm, mode and effort. The caller frees *out_rows, *out_n_rows rows of
 * job->context's memory. */
dci_status ann_measure(const ann_job *job, ann_row **out_rows, size_t *out_n_rows);

/* bench/ann/arms.c: moves the rows that no other of the same mode beats in recall and queries per second to the front, and exact
 * search, in their order; returns how many. */
size_t ann_keep_best(ann_row *rows, size_t n);

/* --- bench/ann/judge.c -------------------------------------------------------------------------------------------------------- */

/* Recall and kept share of what a search returned: k ids per query, or per group for a union. */
dci_status ann_judge(const ann_job *job, const int64_t *ids, ann_row *row);

/* --- bench/ann/report.c ------------------------------------------------------------------------------------------------------- */

typedef struct ann_report {
        const ann_job *job;
        bench_machine machine;
        const ann_row *rows;
        size_t n_rows;
        int argc; /* the command that reproduces it */
        char **argv;
} ann_report;

void ann_print_table(const ann_report *report);
dci_status ann_write_json(const ann_report *report, const char *path);

#endif
