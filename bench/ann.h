/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand ann: options, measurement, report. */
#ifndef DCI_BENCH_ANN_H
#define DCI_BENCH_ANN_H

#include "bench/common_options.h"
#include "bench/exact.h"

/* --- ann_options.c ------------------------------------------------------------------------------------------------------ */

typedef struct ann_options {
        bench_source source;
        bool own_truth;            /* --truth own */
        dci_metric metric;         /* 0: what the data says */
        size_t k;                  /* 0: 100 on traces, else 10 */
        bench_index_options index; /* FLAT is always among the kinds */
        size_t group;              /* queries taken together, 0: each by itself */
        bool group_union;          /* k rows for a group, instead of k for each of its queries */
        size_t repeat, truth_check;
        const char *cache; /* folder, or NULL */
        char default_cache[4096];
        int32_t mode;     /* BENCH_MODE_* */
        const char *json; /* NULL or where to write */
} ann_options;

/* Parses and checks that the options go together. *out_help: print the help instead. */
dci_status ann_options_parse(int argc, char **argv, ann_options *out, bool *out_help);
void ann_print_help(void);

/* --- ann_measure.c ------------------------------------------------------------------------------------------------------ */

/* One line of the report. */
typedef struct ann_row {
        dci_index_kind kind;
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
        size_t bytes;
        dci_tree_stats tree; /* n_levels 0: no tree */
} ann_row;

typedef struct ann_job {
        dci_context *context; /* with the thread limit to measure */
        const ann_options *options;
        const bench_dataset *dataset;
        const bench_truth *truth;
        const bench_share *share; /* NULL without a trace */
        dci_metric metric;
        size_t k;
} ann_job;

/* Builds, warms up and measures all kinds; one row per kind, mode and effort. The caller frees *out_rows, *out_n_rows rows of
 * job->context's memory. */
dci_status ann_measure(const ann_job *job, ann_row **out_rows, size_t *out_n_rows);

/* --- ann_judge.c -------------------------------------------------------------------------------------------------------- */

/* Recall and kept share of what a search returned: k ids per query, or per group for a union. */
dci_status ann_judge(const ann_job *job, const int64_t *ids, ann_row *row);

/* --- ann_report.c ------------------------------------------------------------------------------------------------------- */

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
