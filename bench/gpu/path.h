/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The KV path of a model's decode: a dci_gpu_kv for a shape, filled quickly, and its steps: as the replay of a graph of all layers where they
 * can be captured, call by call where the host plans. And a tap into the device's operations, which says what each phase of a step takes.
 */
#ifndef DCI_BENCH_GPU_PATH_H
#define DCI_BENCH_GPU_PATH_H

#include "bench/gpu/gpu.h"
#include "bench/gpu/stream.h"

#define GPUBENCH_GROUP 4
#define GPUBENCH_MOST_BATCH 64

/* --- bench/gpu/tap.c ---------------------------------------------------------------------------------------------------------------- */

/* Phases of a step, in the order that a layer has them. */
enum {
        PHASE_APPEND,
        PHASE_FORM,
        PHASE_SCORE,
        PHASE_SELECT,
        PHASE_RESIDENCY,
        PHASE_GATHER,
        PHASE_TAIL,
        PHASE_ATTEND,
        PHASES
};
#define PHASES_ALL ((1U << PHASES) - 1)
extern const char *const gpubench_phase_names[PHASES];

/* Objects that are made on the device between the two go through the tap. One at a time. */
void gpubench_tap_open(gpubench *b);
void gpubench_tap_close(gpubench *b);
/* Kernels of other phases are left out from now on. */
void gpubench_tap_allow(uint32_t phases);
/* How often kernels of a phase were asked for since the last question. */
uint64_t gpubench_tap_calls(int phase);
/* Events around each kernel until gpubench_tap_times, which waits and adds what each phase took on the device, in seconds. */
void gpubench_tap_time(void);
dci_status gpubench_tap_times(gpubench *b, double *seconds);

/* --- bench/gpu/path.c --------------------------------------------------------------------------------------------------------------- */

typedef struct gpubench_path_config {
        kvbench_arm arm;
        size_t layers, heads, batch, max_tokens, max_prompt;
        int32_t planner;
        dci_dtype out_dtype;
} gpubench_path_config;

typedef struct gpubench_path {
        gpubench *b;
        const gpubench_stream *stream;
        gpubench_path_config config;
        dci_gpu_kv *kv;
        int32_t planner; /* of dci_gpu_kv_info; HOST where it does not say */
        int64_t sequences[GPUBENCH_MOST_BATCH];
        size_t n[GPUBENCH_MOST_BATCH]; /* tokens of each */
        size_t step;                   /* of the walk */
        size_t out_bytes;
        gpubench_area rows[2];           /* locked: keys, then values, of some tokens; in turns */
        void *rows_free[2];              /* events */
        gpubench_area prompt;            /* on the device: keys, then values, of a layer's whole prompt */
        size_t free_before;              /* of the device, when all but the cache was there */
        gpubench_area new_rows, queries; /* locked: of the next step, of all sequences, and layers */
        gpubench_area device_new, device_queries, observed, out;
        void *graph;
        size_t graph_tokens;
        bool warm; /* a step has run call by call */
} gpubench_path;

/* Seconds of one step. */
typedef struct gpubench_path_times {
        double device;         /* between events around the graph; 0: call by call */
        double wall;           /* from reserve to the wait behind step_end */
        double plan, maintain; /* of the host, call by call */
} gpubench_path_times;

/* Who would plan: a small cache of the preset is made to see. */
dci_status gpubench_path_planner(gpubench *b, const gpubench_path_config *config, int32_t *out);
/* The dci_kv's config, with so many layers. */
dci_status gpubench_path_kv_config(const gpubench *b, const gpubench_path_config *config, dci_kv_config *out);
/* Close it also after a failure. */
dci_status gpubench_path_open(gpubench *b, const gpubench_stream *stream, const gpubench_path_config *config,
                              gpubench_path *out);
void gpubench_path_close(gpubench_path *path);
/* Sequence i begins with n_tokens. forks: those behind the first share its tokens. */
dci_status gpubench_path_fill_one(gpubench_path *path, size_t i, size_t n_tokens);
dci_status gpubench_path_fill(gpubench_path *path, size_t n_tokens, bool forks);
dci_status gpubench_path_empty(gpubench_path *path);
/* Rows and queries of the next step to where the step finds them, the walk one step on; waits. */
dci_status gpubench_path_bring(gpubench_path *path);
/* A step that is captured, for sequences of up to so many tokens, and launched. DCI_ERR_UNSUPPORTED: it cannot be captured. */
dci_status gpubench_path_capture(gpubench_path *path, size_t max_tokens);
void gpubench_path_forget(gpubench_path *path); /* the graph */
/* A step, by the graph if there is one. It waits. */
dci_status gpubench_path_step(gpubench_path *path, gpubench_path_times *out);
/* That all outputs are numbers. */
dci_status gpubench_path_look(gpubench_path *path);

#endif
