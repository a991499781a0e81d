/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand gpu: the time of each kernel on a device, and the limits of the bus and of the memory in the same run. */
#ifndef DCI_BENCH_GPU_GPU_H
#define DCI_BENCH_GPU_GPU_H

#include "bench/kv/kv.h"
#include "gpu/gpu_internal.h"

enum {
        GPUBENCH_GATHER = 1,
        GPUBENCH_DENSE,
        GPUBENCH_SPARSE,
        GPUBENCH_APPEND,
        GPUBENCH_RESIDENCY,
        GPUBENCH_STEP,
        GPUBENCH_ERROR,
        GPUBENCH_SCORE,
        GPUBENCH_SELECT,
        GPUBENCH_ENCODE,
        GPUBENCH_TAIL,
        GPUBENCH_KMEANS,
        GPUBENCH_USUAL = GPUBENCH_KMEANS, /* the parts after it run only when they are named */
        GPUBENCH_DECODE,
        GPUBENCH_SOAK,
        GPUBENCH_PARTS = GPUBENCH_SOAK
};

typedef struct gpubench_options {
        kvbench_options arms; /* presets, codes, threads, isa, seed, json */
        int32_t device;       /* a number, or DCI_GPU_HOST */
        int32_t parts;        /* bits 1 << GPUBENCH_* */
        bool tiny;            /* sizes for a test, or for a sanitizer */
        bool presets_given;
        const char *trace; /* of the residency; NULL: a made-up run */
        bench_sizes budgets;
        size_t reps, device_gib, pool_gib, piece_mib;
        size_t tokens, layers, heads, batch, steps, hot; /* of the part step */
        size_t walk_steps;                               /* of the residency, at most */
        int32_t gather;                                  /* DCI_GPU_GATHER_*, of the part step */
        /* Of the parts decode and soak. */
        bench_sizes lengths, batches;
        size_t decode_layers, host_layers, host_tokens, host_gib, soak_steps, soak_tokens;
        int32_t planner; /* DCI_GPU_PLAN_* */
        bool forks;
        size_t resident_mib;    /* device memory for resident pages */
        int32_t lists;          /* KVBENCH_LISTS_* of the parts decode and soak */
        bench_sizes contiguous; /* `contiguous` of dci_kv_config, of the part decode: 0, 1, or both in turn */
} gpubench_options;

/* What the bus and the memory can do, in bytes per second; 0: not known. */
typedef struct gpubench_limits {
        double specified; /* of device memory, by clock and width */
        double memory;    /* of device memory: a copy, bytes read and written */
        double to_device, to_host;
} gpubench_limits;

/* Memory of the device (host is NULL), of the host (device is NULL), or locked host memory that the device can use at `device`. */
typedef struct gpubench_area {
        unsigned char *host, *device;
        size_t n_bytes;
} gpubench_area;
#define GPUBENCH_AREAS 1100

typedef struct gpubench {
        const gpubench_options *options;
        dci_context *context;
        dci_gpu *gpu;
        const dci_gpu_ops *ops;
        void *stream, *begin, *end; /* events with times */
        gpubench_limits limits;
        gpubench_area areas[GPUBENCH_AREAS];
        size_t n_areas;
        gpubench_area stage,
                bounce;         /* locked: for copies of other memory; and random, what device memory is filled from */
        dci_dtype bounce_dtype; /* 0: not yet written */
        uint64_t l2_bytes;
        json_t *rows;
} gpubench;

/* --- bench/gpu/common.c: memory ------------------------------------------------------------------------------------------------- */

/* Creates the stream, events and the bounce area; the end frees everything, also after a failure. */
dci_status gpubench_begin(gpubench *b);
void gpubench_end(gpubench *b);

enum { GPUBENCH_ON_DEVICE, GPUBENCH_PINNED };
/* Allocates memory until gpubench_release(b, mark), mark being b->n_areas before. */
dci_status gpubench_take(gpubench *b, size_t n_bytes, int kind, gpubench_area *out);
void gpubench_release(gpubench *b, size_t mark);
/* Allocates zeroed memory of the host in the same way; NULL after a failure. A part that fails leaves its areas to gpu.c. */
void *gpubench_host(gpubench *b, size_t n_bytes);
/* Allocates memory of the device with a copy of `data`: for tables and arguments. */
dci_status gpubench_put(gpubench *b, const void *data, size_t n_bytes, void **out);
/* Copy between any host memory and the device's, and wait. */
dci_status gpubench_upload(gpubench *b, void *to, const void *from, size_t n_bytes);
dci_status gpubench_download(gpubench *b, void *to, const void *from, size_t n_bytes);
/* Fills memory with bf16 or f16 numbers of magnitude 1: zeros would be faster than real rows. */
dci_status gpubench_fill(gpubench *b, unsigned char *device, size_t n_bytes, dci_dtype dtype);
/* Returns 0 to n - 1 in a random order, in memory of the host; NULL after a failure. */
int32_t *gpubench_order(gpubench *b, size_t n, uint64_t seed);
size_t gpubench_free_bytes(gpubench *b);
/* Returns the number of rotating sets that together exceed the L2 four times, at least `least`. */
size_t gpubench_sets(const gpubench *b, size_t bytes_touched, size_t least);

/* --- bench/gpu/common.c: time ------------------------------------------------------------------------------------------------------ */

/* One call of what is measured, on input set `set`. */
typedef dci_status (*gpubench_call)(void *arg, size_t set);

/* Microseconds of one call. */
typedef struct gpubench_time {
        double median, p10, p90;
} gpubench_time;

/* Times calls on the device: replays a graph of one call for each set; each replay is a sample. */
dci_status gpubench_on_device(gpubench *b, gpubench_call call, void *arg, size_t n_sets, gpubench_time *out);
/* Times calls by the host's clock, with the wait; each call is a sample, of which there are `most` at most. */
dci_status gpubench_on_host(gpubench *b, gpubench_call call, void *arg, size_t n_sets, size_t most, gpubench_time *out);
gpubench_time gpubench_time_of(double *seconds, size_t n);

/* --- bench/gpu/common.c: results --------------------------------------------------------------------------------------------------- */

/* Adds a row to the report. `shape`: an object of what was measured, taken over. bytes: moved by one call; limit: bytes per second of what
 * bounds it, 0 where nothing does. */
dci_status gpubench_row(gpubench *b, const char *part, const char *arm, json_t *shape, const gpubench_time *time,
                        double bytes, double limit);
/* Sets a number in the row that was added last. */
void gpubench_note(gpubench *b, const char *name, double value);

/* --- bench/gpu/attend.c: what calls of attention share --------------------------------------------------------------------------------- */

typedef struct gpubench_heads {
        size_t n_sequences, n_heads, group, dim, n_tokens;
        dci_dtype dtype; /* of rows, queries and outputs, as models have them */
} gpubench_heads;

/* Everything but the place of the rows: queries, outputs (NaN everywhere), room for splits, ranges of a plan that has neither sink nor recent
 * tokens. `listed`: tokens that a head reads. */
dci_status gpubench_attend_args(gpubench *b, const gpubench_heads *heads, size_t listed, dci_gpu_attend_args *out);
/* Fails unless every output was written and is a number. */
dci_status gpubench_attend_finite(gpubench *b, const gpubench_heads *heads, const dci_gpu_attend_args *args);
/* Calls attention once and compares it with the reference. pieces: those of args->pool, n of them with so many bytes, as the device has them. */
dci_status gpubench_attend_check(gpubench *b, const gpubench_heads *heads, const dci_gpu_attend_args *args,
                                 void *const *pieces, size_t n_pieces, size_t piece_bytes);

/* --- parts ------------------------------------------------------------------------------------------------------------------- */

dci_status gpubench_measure_limits(gpubench *b); /* bench/gpu/common.c */
dci_status gpubench_gather(gpubench *b);         /* bench/gpu/gather.c */
dci_status gpubench_dense(gpubench *b);          /* bench/gpu/dense.c */
dci_status gpubench_sparse(gpubench *b);         /* bench/gpu/sparse.c */
dci_status gpubench_append(gpubench *b);         /* bench/gpu/append.c */
dci_status gpubench_residency(gpubench *b);      /* bench/gpu/residency.c */
dci_status gpubench_step(gpubench *b);           /* bench/gpu/step.c */
dci_status gpubench_error(gpubench *b);          /* bench/gpu/error.c */
dci_status gpubench_score(gpubench *b);          /* bench/gpu/score.c */
dci_status gpubench_select(gpubench *b);         /* bench/gpu/select.c */
dci_status gpubench_encode(gpubench *b);         /* bench/gpu/encode.c */
dci_status gpubench_tail(gpubench *b);           /* bench/gpu/tail.c */
dci_status gpubench_kmeans(gpubench *b);         /* bench/gpu/kmeans.c */
dci_status gpubench_decode(gpubench *b);         /* bench/gpu/decode.c */
dci_status gpubench_soak(gpubench *b);           /* bench/gpu/soak.c */

/* bench/gpu/options.c */
dci_status gpubench_options_parse(int argc, char **argv, gpubench_options *out, bool *out_help);
void gpubench_print_help(void);
const char *gpubench_gather_name(int32_t gather);
/* Presets of the part decode unless some are named. */
bool gpubench_is_decoded(int32_t preset);

/* --- bench/gpu/walk.c: what plans of a decode ask for -------------------------------------------------------------------------------- */

/* The lists of one kv head, step by step, as units of 2^unit_shift tokens. */
typedef struct gpubench_walk {
        dci_context *context;
        char name[256];
        size_t n_steps, stride, budget;
        int32_t unit_shift;
        size_t row_bytes; /* key and value of one token */
        size_t n_tokens;
        int32_t *positions; /* n_steps x stride, ascending */
        int32_t *counts;
        int32_t *units; /* the same lists as units, each once: n_steps x stride */
        int32_t *n_units;
        size_t n_asked; /* the sum of n_units */
} gpubench_walk;

/* A cache of one layer and kv head for a trace, with queries in f32. */
dci_status gpubench_kv_config(const kvbench_options *arms, const kvbench_trace *trace, const kvbench_arm *arm,
                              size_t budget, dci_kv_config *out);
/* Plays the decode of a trace through dci_kv. DCI_ERR_UNSUPPORTED, with a sentence: this preset has no lists. */
dci_status gpubench_walk_record(dci_context *context, const kvbench_options *arms, const kvbench_trace *trace,
                                const kvbench_arm *arm, size_t budget, gpubench_walk *out);
void gpubench_walk_free(gpubench_walk *walk);
/* Count the requested units that are resident: with only the last step's units kept; and with n_frames and knowledge of the future
 * (the unit that is needed again latest is evicted: Belady 1966). */
size_t gpubench_walk_hits_last(const gpubench_walk *walk);
dci_status gpubench_walk_hits_offline(const gpubench_walk *walk, size_t n_frames, size_t *out_hits);

#endif
