/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand runbook: an index whose rows come and go, as a runbook of the streaming track of big-ann-benchmarks says. */
#ifndef DCI_BENCH_ANN_RUNBOOK_H
#define DCI_BENCH_ANN_RUNBOOK_H

#include "bench/common/common_options.h"
#include "bench/common/exact.h"

/* --- bench/ann/runbook_parse.c ---------------------------------------------------------------------------------------------------- */

enum { RUNBOOK_INSERT = 1, RUNBOOK_DELETE = 2, RUNBOOK_REPLACE = 3, RUNBOOK_SEARCH = 4 };

/* Ids [start, end) come, go, or get other rows; id start gets row first_row of the base, and so on. */
typedef struct runbook_step {
        int32_t operation; /* RUNBOOK_* */
        size_t start, end, first_row;
} runbook_step;

typedef struct runbook {
        dci_context *context;
        char dataset[256];
        size_t max_pts; /* ids and rows are below it */
        size_t n_steps;
        runbook_step *steps;
} runbook;

const char *runbook_operation_name(int32_t operation);

/* Reads the steps for `dataset` (NULL: the only one in the file) and plays them through without an index: whatever a step
 * cannot do, such as removing what is not there, is refused. n_rows: rows of the base. */
dci_status runbook_read(dci_context *context, const char *path, const char *dataset, size_t n_rows, runbook *out);
void runbook_free(runbook *book);

/* --- bench/ann/runbook_run.c ------------------------------------------------------------------------------------------------------ */

typedef struct runbook_options {
        bench_source source;
        bench_index_options index;
        dci_index_kind kind; /* the only one of them */
        dci_metric metric;   /* 0: what the data says */
        size_t k;            /* 0: 100 on traces, else 10 */
        const char *path, *dataset;
        size_t batch; /* rows per call */
        int32_t mode; /* BENCH_MODE_ONE or BENCH_MODE_BATCH */
        const char *json;
} runbook_options;

typedef struct runbook_result {
        runbook_step step;
        size_t live;  /* rows in the index after it */
        size_t calls; /* of the library */
        double seconds;
        bench_latency latency; /* of the calls that change rows */
        double recall;         /* of a search; negative: there was nothing to find */
        size_t bytes;          /* of the index after it */
} runbook_result;

typedef struct runbook_job {
        dci_context *helper;   /* all CPUs: the truth is not measured */
        dci_context *measured; /* --threads */
        const runbook_options *options;
        const bench_dataset *dataset;
        const runbook *book;
        dci_index_kind kind;
        dci_metric metric;
        size_t k;
} runbook_job;

/* Plays the book; results: room for its steps. *out_tree: the tree at the end. */
dci_status runbook_play(const runbook_job *job, runbook_result *results, dci_tree_stats *out_tree);

#endif
