/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What all subcommands of dci-bench share: exit codes, errors, the clock, progress, facts about the machine. */
#ifndef DCI_BENCH_COMMON_BENCH_H
#define DCI_BENCH_COMMON_BENCH_H

#include "core/internal.h"
#include "dci/dci.h"

enum {
        BENCH_EXIT_OK = 0,
        BENCH_EXIT_FAILED = 1, /* memory, a failed write, a failed self-check */
        BENCH_EXIT_INPUT = 2   /* a usage error or a bad input file */
};

/* Errors travel as dci_status with dci_fail's sentence. This one, outside the library's range, is for failures that no other
 * input would have avoided: a result that fails its check, a write that the system refuses. */
#define BENCH_ERR_RUN ((dci_status)1000)

/* Prints "dci-bench COMMAND: sentence" to stderr and returns the exit code that belongs to the status. */
int bench_report_error(const char *command, dci_status status);

/* Puts "what: " before the last error's sentence, or `more` after it; returns `status`. */
dci_status bench_fail_about(const char *what, dci_status status);
dci_status bench_fail_more(dci_status status, const char *more);

/* Seconds of a monotonic clock. */
double bench_seconds(void);

/* Median, least and greatest of n values; sorts them. */
typedef struct bench_spread {
        double median, min, max;
} bench_spread;
bench_spread bench_spread_of(double *values, size_t n);

/* Of n >= 1 durations in seconds, which it sorts: median, 99th percentile (nearest rank) and maximum in microseconds. */
typedef struct bench_latency {
        double median, p99, max;
} bench_latency;
bench_latency bench_latency_of(double *seconds, size_t n);

/* The part of a path after its last separator. */
const char *bench_base_name(const char *path);

/* "1,234,567"; "-" for a negative value. */
void bench_format_count(char *out, size_t size, double value);
/* "1.9 MiB" */
void bench_format_bytes(char *out, size_t size, size_t n_bytes);

/* A name that a report can hold: bytes that are no UTF-8 become '?'. */
void bench_name(char *out, size_t size, const char *text);

/* --- main.c's table: one subcommand per file ---------------------------------------------------------------------- */

typedef struct bench_command {
        const char *name;
        const char *summary;
        int (*run)(int argc, char **argv); /* argv[0] is the subcommand; returns the exit code */
} bench_command;

int bench_ann(int argc, char **argv);
int bench_runbook(int argc, char **argv);
int bench_growth(int argc, char **argv);
int bench_latency_command(int argc, char **argv);
int bench_kmeans(int argc, char **argv);
int bench_layers(int argc, char **argv);
int bench_gpu(int argc, char **argv);
int bench_kv(int argc, char **argv);
int bench_papers(int argc, char **argv);
int bench_verify(int argc, char **argv);

/* --- bench/common/progress.c: one line on stderr, only when it is a terminal ---------------------------------------------------- */

typedef struct bench_progress {
        const char *label; /* NULL: nothing is shown */
        double shown_at;
} bench_progress;

void bench_progress_begin(bench_progress *progress, const char *label);
void bench_progress_step(bench_progress *progress, size_t done, size_t total);
/* The same as a library callback. fn is NULL when nothing is shown, so that a run without a terminal pays nothing. */
dci_progress bench_progress_callback(bench_progress *progress);
void bench_progress_end(bench_progress *progress);

/* --- bench/common/machine.c ------------------------------------------------------------------------------------------------------ */

typedef struct bench_machine {
        char cpu[128];
        long cores;      /* online */
        const char *isa; /* of the context that was measured */
        const char *compiler;
        const char *library_version;
        char date[32]; /* ISO 8601, UTC */
} bench_machine;
void bench_machine_describe(const dci_context *context, bench_machine *out_machine);

/* --- bench/common/floor.c -------------------------------------------------------------------------------------------------------- */

/* Seconds that one thread needs to read n_bytes once with the widest loads this CPU has: passes are repeated for at least
 * `seconds` and at least three times, and their mean is returned. */
double bench_read_floor(const void *data, size_t n_bytes, double seconds);

#endif
