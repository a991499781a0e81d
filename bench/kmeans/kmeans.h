/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand kmeans: clusters of the rows of a file, timed, or pages of the keys of a trace, judged by the attention that
 * they catch. */
#ifndef DCI_BENCH_KMEANS_KMEANS_H
#define DCI_BENCH_KMEANS_KMEANS_H

#include "bench/common/report.h"

/* --- bench/kmeans/options.c -------------------------------------------------------------------------------------------------- */

typedef struct kmeans_options {
        const char *base, *trace; /* one of them */
        const char *init_file, *out_centroids, *json;
        dci_metric metric;
        dci_dtype rows; /* 0: as the base file holds them */
        int32_t init, centroid;
        bool subtract_mean;
        bench_sizes clusters, threads;
        size_t limit, iter, iter_global, seed, redo, capacity, segment_rows;
        size_t rounds; /* how often each arm is timed */
        double tolerance;
        size_t page;  /* rows of a page */
        size_t seeds; /* --trace: how many draws shares are averaged over */
        double slack;
        dci_isa isa;
} kmeans_options;

dci_status kmeans_options_parse(int argc, char **argv, kmeans_options *out, bool *out_help);
void kmeans_print_help(void);
const char *kmeans_init_name(int32_t init);
const char *kmeans_centroid_name(int32_t centroid);
const char *kmeans_stop_name(int32_t stop);

/* --- bench/kmeans/kmeans.c ---------------------------------------------------------------------------------------------------------- */

/* A context with the options' instruction set; n_threads 0: all CPUs. */
dci_status kmeans_context(const kmeans_options *o, size_t n_threads, dci_context **out);

/* One call of dci_kmeans with what it writes. */
typedef struct kmeans_call {
        dci_context *helper; /* whose memory the arrays are */
        const bench_rows *rows;
        dci_kmeans_config config;
        const float *start; /* INIT_GIVEN: the centroids */
        bool lists;         /* the rows of each cluster are wanted, too */
        int32_t *labels, *offsets, *ids;
        float *centroids;
        dci_kmeans_report report;
        size_t rounds_room;
        double seconds; /* of the call */
} kmeans_call;

/* Fills the config from the options, and makes room for what is written. Close it also after a failure. */
dci_status kmeans_call_open(dci_context *helper, const kmeans_options *o, const bench_rows *rows, size_t n_clusters,
                            size_t capacity, bool lists, kmeans_call *out);
/* Runs and times it, and checks what it wrote; the capacity is left to kmeans_check_capacity. */
dci_status kmeans_call_run(kmeans_call *call, dci_context *context);
void kmeans_call_close(kmeans_call *call);

/* What the rows of all reports of this subcommand have; NULL when memory runs out. */
json_t *kmeans_call_json(const kmeans_call *call, const dci_context *context);

/* That no cluster is larger than allowed; 0 allows any. */
dci_status kmeans_check_capacity(size_t largest, size_t capacity);

/* --- bench/kmeans/trace.c ---------------------------------------------------------------------------------------------------- */

dci_status kmeans_trace(const kmeans_options *o, int argc, char **argv);

#endif
