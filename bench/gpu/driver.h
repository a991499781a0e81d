/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Drives a dci_gpu_kv through a model's decode, for the parts that measure whole steps: a cache of a shape, filled quickly, and its steps, as
 * the replay of a graph of all layers where they can be captured, call by call where the host plans.
 *
 *      gpubench_driver_open        the cache and all areas; close it also after a failure
 *      gpubench_driver_fill        sequences with a prompt, from a feed of rows and queries
 *      gpubench_driver_upload      rows and queries of the next step, outside the clock
 *      gpubench_driver_capture     records a step; until then steps run call by call
 *      gpubench_driver_step        one step, timed
 *
 * A tap into the device's operations measures each phase of a step.
 */
#ifndef DCI_BENCH_GPU_DRIVER_H
#define DCI_BENCH_GPU_DRIVER_H

#include "bench/gpu/gpu.h"
#include "bench/gpu/stream.h"

#define GPUBENCH_GROUP 4
#define GPUBENCH_MOST_BATCH 64

/* --- bench/gpu/tap.c ---------------------------------------------------------------------------------------------------------------- */

/* Phases of a step, in the order that a layer has them. */
enum {
        PHASE_APPEND,
        PHASE_ENCODE,
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

/* Routes the calls of objects that are created on the device between open and close through the tap. Only one tap may be open. */
void gpubench_tap_open(gpubench *b);
void gpubench_tap_close(gpubench *b);
/* Skips the kernels of other phases from now on. */
void gpubench_tap_allow(uint32_t phases);
/* Returns how often kernels of a phase were launched or skipped since the last call. */
uint64_t gpubench_tap_calls(int phase);
/* Records events around each kernel until gpubench_tap_times, which waits and adds the seconds of each phase on the device. */
void gpubench_tap_time(void);
dci_status gpubench_tap_times(gpubench *b, double *seconds);

/* --- bench/gpu/driver.c ------------------------------------------------------------------------------------------------------------- */

/* Rows and queries of a decode. Rows are [token][head][dim], queries [head][group][dim], of 2 bytes an element. */
typedef struct gpubench_feed {
        size_t group, dim;
        dci_dtype dtype;
        double scale;      /* 0: the cache's own */
        size_t n_observed; /* queries before the decode, for the end of a prompt */
        const void *arg;
        dci_status (*rows)(const void *arg, size_t first, size_t n, uint16_t *keys, uint16_t *values);
        /* Queries of n_observed positions; and those at a step of the decode, by the number of the sequence among those of all layers. */
        void (*observed)(const void *arg, uint16_t *out);
        void (*queries)(const void *arg, size_t step, size_t number, uint16_t *out);
} gpubench_feed;

typedef struct gpubench_driver_config {
        kvbench_arm arm;
        size_t layers, heads, batch, max_tokens, max_prompt;
        size_t prompt_step; /* tokens of a prompt in one step; 0: all */
        size_t resident_bytes;
        int32_t planner, contiguous;
        dci_dtype out_dtype;
        bool maintain;    /* dci_gpu_kv_maintain after each step, also where the device plans */
        bool time_layers; /* events around the attention of each layer, call by call */
} gpubench_driver_config;

typedef struct gpubench_driver {
        gpubench *b;
        const gpubench_feed *feed;
        gpubench_driver_config config;
        dci_gpu_kv *kv;
        int32_t planner; /* of dci_gpu_kv_info; HOST where it does not say */
        int64_t sequences[GPUBENCH_MOST_BATCH];
        size_t n[GPUBENCH_MOST_BATCH]; /* tokens of each */
        size_t step;                   /* of the feed's queries */
        size_t out_bytes;
        gpubench_area rows[2];           /* locked: keys, then values, of some tokens; in turns */
        void *rows_free[2];              /* events */
        gpubench_area prompt;            /* on the device: keys, then values, of a layer's prompt in one step */
        size_t free_before;              /* of the device, when all but the cache was there */
        gpubench_area new_rows, queries; /* locked: of the next step, of all sequences, and layers */
        gpubench_area device_new, device_queries, observed, out;
        void **events; /* time_layers: two of each layer */
        void *graph;
        size_t graph_tokens;
        bool warm; /* a step has run call by call */
} gpubench_driver;

/* Seconds of one step. */
typedef struct gpubench_driver_times {
        double device; /* between events around the graph, or (time_layers) around each layer's attention */
        double wall;   /* from reserve to the wait after step_end */
        double plan, attend, maintain; /* of the host, call by call */
} gpubench_driver_times;

/* Finds out who would plan, by creating a small cache of the preset. */
dci_status gpubench_driver_planner(gpubench *b, const gpubench_feed *feed, const gpubench_driver_config *config,
                                   int32_t *out);
/* Fills the dci_kv's config. */
dci_status gpubench_driver_kv_config(const gpubench *b, const gpubench_feed *feed, const gpubench_driver_config *config,
                                     dci_kv_config *out);
/* Creates the cache and its areas. Close it also after a failure. */
dci_status gpubench_driver_open(gpubench *b, const gpubench_feed *feed, const gpubench_driver_config *config,
                                gpubench_driver *out);
void gpubench_driver_close(gpubench_driver *driver);
/* Starts sequence i, or all, with n_tokens. forks: all but the first share its tokens. */
dci_status gpubench_driver_fill_one(gpubench_driver *driver, size_t i, size_t n_tokens);
dci_status gpubench_driver_fill(gpubench_driver *driver, size_t n_tokens, bool forks);
dci_status gpubench_driver_empty(gpubench_driver *driver);
/* Uploads rows and queries of the next step, and waits. */
dci_status gpubench_driver_upload(gpubench_driver *driver);
/* Captures a step for sequences of up to max_tokens, and launches it. DCI_ERR_UNSUPPORTED: it cannot be captured. */
dci_status gpubench_driver_capture(gpubench_driver *driver, size_t max_tokens);
void gpubench_driver_drop_graph(gpubench_driver *driver);
/* Runs a step, by the graph if there is one, and waits. */
dci_status gpubench_driver_step(gpubench_driver *driver, gpubench_driver_times *out);
/* Fails if an output is no number. */
dci_status gpubench_driver_check(gpubench_driver *driver);

/* Wraps a stream, which must outlive the feed. */
gpubench_feed gpubench_stream_feed(const gpubench_stream *stream);

/* Returns the hit rate between two infos. Tokens that stay in host memory are requested and not fetched, and no hits. */
double gpubench_hit_rate(const dci_gpu_kv_info *before, const dci_gpu_kv_info *after);

/* Runs n variants of each arm; is_usual: those that run unless presets were named (NULL: all). One that fails is reported, and does not keep the
 * others from running; the first failure is returned at the end. */
typedef dci_status (*gpubench_arm_run)(void *arg, const kvbench_arm *arm, size_t variant);
dci_status gpubench_each_arm(gpubench *b, bool (*is_usual)(int32_t preset), size_t n, gpubench_arm_run run, void *arg);
/* |a - b| / |b| */
double gpubench_distance(const float *a, const float *b, size_t n);

#endif
