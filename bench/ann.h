/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand ann: options, measurement, report. */
#ifndef DCI_BENCH_ANN_H
#define DCI_BENCH_ANN_H

#include "bench/dataset.h"
#include "bench/exact.h"
#include "bench/options.h"

enum { ANN_MODE_ONE = 1, ANN_MODE_BATCH = 2, ANN_MODE_BOTH = 3 };

/* --- ann_options.c ------------------------------------------------------------------------------------------------------ */

typedef struct ann_options {
        bench_source source;
        bool own_truth;    /* --truth own */
        dci_metric metric; /* 0: what the data says */
        size_t k;          /* 0: 100 on traces, else 10 */
        int32_t kinds;     /* bits 1 << DCI_KIND_*; FLAT is always among them */
        dci_dtype rows;    /* 0: as the base file holds them */
        size_t num_comp_indices, num_simp_indices, seed;
        bench_shares prop_to_visit, prop_to_retrieve; /* every pair of the two is one effort */
        size_t threads, repeat, truth_check;
        const char *cache; /* folder, or NULL */
        char default_cache[4096];
        dci_isa isa;
        int32_t mode;     /* ANN_MODE_* */
        const char *json; /* NULL or where to write */
} ann_options;

/* Parses and checks that the options go together. *out_help: print the help instead. */
dci_status ann_options_parse(int argc, char **argv, ann_options *out, bool *out_help);
void ann_print_help(void);
/* "l2", "ip", "cosine"; "flat", "pdci" */
const char *ann_metric_name(dci_metric metric);
const char *ann_kind_name(dci_index_kind kind);

/* --- ann_measure.c ------------------------------------------------------------------------------------------------------ */

/* One line of the report. */
typedef struct ann_row {
        dci_index_kind kind;
        dci_dtype rows;
        int32_t mode;                                    /* ANN_MODE_ONE or ANN_MODE_BATCH */
        size_t num_comp_indices, num_simp_indices, seed; /* PDCI */
        double prop_to_visit, prop_to_retrieve;          /* 1 for kinds that always spend everything */
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
/* Checked before hours of work rather than after. */
dci_status ann_check_writable(const char *path);
dci_status ann_write_json(const ann_report *report, const char *path);

#endif
