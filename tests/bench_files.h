/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the suites of dci-bench share: running it, and writing the same small rows in every format it reads. */
#ifndef DCI_TESTS_BENCH_FILES_H
#define DCI_TESTS_BENCH_FILES_H

#include <jansson.h>

#include "tests/common.h"
#include "tests/scratch.h"

/* Sanitizers need address space beyond any limit, and print more than one line. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BENCH_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BENCH_SANITIZED 1
#endif
#endif
#ifndef BENCH_SANITIZED
#define BENCH_SANITIZED 0
#endif

/* --- running ------------------------------------------------------------------------------------------------------ */

typedef struct bench_result {
        int code; /* exit code, or -1 when a signal ended it */
        char out[16384], err[4096];
} bench_result;

/* Runs dci-bench with these arguments, NULL last. HOME and XDG_CACHE_HOME point into the scratch folder. */
bench_result bench_run(const char *const *arguments);
#define BENCH(...) bench_run((const char *const[]){__VA_ARGS__, NULL})

/* Wants success and silence on stderr; returns r.json, which the run must have written with --json. It is released with the test. */
json_t *bench_good(bench_result result);
json_t *bench_report(void); /* r.json alone */

/* Wants this exit code, and one line on stderr that contains `part`. */
void bench_refused(bench_result result, int code, const char *part);

/* Whatever a file has become: success and silence, or a failure in one line. Neither a crash nor a stack of messages. */
void bench_composed(bench_result result);

/* Rows of the report, and what row `i` has under `name`: it must be there. */
size_t bench_rows(const json_t *report);
const json_t *bench_row(const json_t *report, size_t i);
const json_t *bench_value(const json_t *report, size_t i, const char *name);
double bench_number(const json_t *report, size_t i, const char *name);
const char *bench_text(const json_t *report, size_t i, const char *name);
bool bench_is_null(const json_t *report, size_t i, const char *name);
void bench_near(double got, double wanted, double tolerance, const char *what);

/* --- suites -------------------------------------------------------------------------------------------------------- */

typedef struct bench_test {
        const TTest *test;
        int n_loops; /* 0: it is no loop */
} bench_test;

/* A suite's main: each test between setup and teardown. */
int bench_main(const char *name, void (*setup)(void), void (*teardown)(void), const bench_test *tests, size_t n);

/* A trace of one kv head: queries of `group` heads from position first_query on, standard normal by the seed 9. */
void bench_write_trace(const float *keys, size_t dim, size_t tokens, size_t prompt, size_t first_query, size_t group);

/* --- rows of small integers, which every format holds exactly -------------------------------------------------------- */

/* n x dim integers of 0 to 127, distinct rows with probability all but 1. Free with free(). */
unsigned char *bench_values(size_t n, size_t dim, uint64_t seed);

/* The true neighbours under L2, ties by lower id, in integers; n_queries x k. Free with free(). */
int32_t *bench_neighbours(const unsigned char *base, size_t n, const unsigned char *queries, size_t n_queries,
                          size_t dim, size_t k);

/* A row by its score; for qsort, the largest first. */
typedef struct bench_scored {
        double score;
        size_t id;
} bench_scored;
int bench_better(const void *a, const void *b);

typedef struct bench_format {
        const char *name;
        /* Writes `file` in the scratch folder. */
        void (*write)(const char *file, const unsigned char *values, size_t n, size_t dim);
        const char *suffix; /* of the file's name */
        size_t row_bytes_each,
                row_bytes; /* a file cut after a whole row, of row_bytes + dim * row_bytes_each, is valid */
} bench_format;

extern const bench_format bench_formats[];
extern const size_t bench_n_formats;

/* A .npy file of any shape. type: "<f4" and so on. */
void bench_write_npy(const char *file, const char *type, const char *shape, const void *data, size_t n_bytes);
/* n x dim small integers as a .npy of that type. */
void bench_write_numbers(const char *file, const char *type, const unsigned char *values, size_t n, size_t dim);
/* n x dim numbers as a .npy of float32. */
void bench_write_f32(const char *file, const float *rows, size_t n, size_t dim);
/* rows x width int32 with the 8 bytes of a big-ann header; and with the 4 bytes of TEXMEX before each row. */
void bench_write_ibin(const char *file, const int32_t *ids, size_t n, size_t width, bool distances);
void bench_write_ivecs(const char *file, const int32_t *ids, size_t n, size_t width);

#endif
