/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand latency: one writer and several readers on one index. */
#ifndef DCI_BENCH_ANN_LATENCY_H
#define DCI_BENCH_ANN_LATENCY_H

#include "bench/common/common_options.h"

#define LATENCY_MAX_READERS 64

typedef struct latency_options {
        bench_source source;
        bool synthetic; /* no source: random rows */
        bench_synthetic rows;
        bench_index_options index;
        dci_index_kind kind; /* the only one of them */
        dci_metric metric;   /* 0: what the data says */
        size_t n;            /* rows in the index */
        size_t page;         /* rows per call */
        size_t calls, k, pause_us;
        bench_sizes readers;
        const char *json;
} latency_options;

dci_status latency_options_parse(int argc, char **argv, latency_options *out, bool *out_help);
void latency_print_help(void);

#endif
