/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores in double precision, and the true neighbours by them: the ruler that every recall is measured with. */
#ifndef DCI_BENCH_COMMON_EXACT_H
#define DCI_BENCH_COMMON_EXACT_H

#include "bench/common/dataset.h"

/* --- bench/common/exact.c ---------------------------------------------------------------------------------------------------------- */

double bench_dot(const double *a, const double *b, size_t dim);

/* The score of `row` for `query`: squared distance, inner product or cosine (0 when either is zero). */
double bench_score(dci_metric metric, const double *query, const double *row, size_t dim);

/* The score as a number that is smaller for better rows. */
double bench_key(dci_metric metric, double score);

/* A row and its score. Sorted by bench_order: best score first, ties by lower id. */
typedef struct bench_hit {
        double score;
        double key;
        int64_t id;
} bench_hit;
int bench_order(const void *a, const void *b);

/* The ids >= 0 in `ids`, ascending, each once; returns how many. */
size_t bench_distinct(const int64_t *ids, size_t n, int64_t *out);

/* How much worse than the true k-th score, relative to it, a returned id's true score may be and still count. */
#define BENCH_RECALL_TOLERANCE 1e-6
/* The same for neighbours that a file names: their makers worked in binary32. */
#define BENCH_FILE_TOLERANCE 1e-5

/* The greatest key that counts as being among the best k, given the k-th true score. */
double bench_key_limit(dci_metric metric, double kth_score, double tolerance);

/* What counts as found. row_of: the row of each id, negative for an id that is not there; NULL: the id itself. */
typedef struct bench_found {
        const bench_rows *base;
        const int64_t *row_of;
        size_t n_ids; /* ids are below it */
        dci_metric metric;
        double limit; /* of bench_key_limit */
} bench_found;

/* How many of n distinct ids >= 0 have a key up to the limit. scratch: room for a row. */
size_t bench_count_found(const bench_found *within, const double *query, const int64_t *ids, size_t n, double *scratch);

/* Recall of `found` against `truth`, lists of k ids for each query whose first true_k >= 1 are the true neighbours, found in
 * binary32: the limit of each query takes all of them in. within->limit is not looked at. */
dci_status bench_recall(dci_context *context, const bench_found *within, const bench_rows *queries, size_t k,
                        size_t true_k, const int64_t *truth, const int64_t *found, double *out_recall);

/* --- bench/common/truth.c ---------------------------------------------------------------------------------------------------------- */

typedef struct bench_truth {
        dci_context *context;
        size_t n_queries, k; /* k is at most the number of base rows */
        int64_t *ids;        /* n_queries x k, best first, ties by lower id */
        double *scores;
        const char *origin; /* "computed", "cached" or "file" */
        size_t checked;     /* queries verified by a full loop in double precision */
} bench_truth;

typedef struct bench_truth_options {
        dci_metric metric;
        size_t k;
        const char *cache; /* folder, or NULL */
        size_t check;      /* queries to verify */
        bool use_file;     /* take the data set's own neighbours, if it has any */
} bench_truth_options;

/* From the file, the cache or by searching; then verified. BENCH_ERR_RUN when the verification fails. */
dci_status bench_truth_get(dci_context *context, const bench_dataset *dataset, const bench_truth_options *options,
                           bench_truth *out);
void bench_truth_free(bench_truth *truth);

dci_status bench_truth_alloc(dci_context *context, size_t n_queries, size_t k, bench_truth *out);

/* --- bench/common/truth_find.c ------------------------------------------------------------------------------------------------------ */

/* Fills ids, scores and origin by searching. */
dci_status bench_truth_find(dci_context *context, const bench_dataset *dataset, dci_metric metric, bench_truth *truth);

/* --- bench/common/truth_cache.c ----------------------------------------------------------------------------------------------------- */

/* The file's path in `folder`, named after checksums of base, queries, metric and k. */
dci_status bench_truth_cache_path(const bench_dataset *dataset, dci_metric metric, size_t k, const char *folder,
                                  char *out, size_t size);
/* *out_hit is true when the file was there and every id and score in it held; a damaged file is a miss and a note. */
dci_status bench_truth_cache_load(const char *path, const bench_dataset *dataset, dci_metric metric, bench_truth *truth,
                                  bool *out_hit);
/* Failure costs time later, nothing else: it is a note on stderr. */
void bench_truth_cache_save(const char *path, const bench_truth *truth);
/* $XDG_CACHE_HOME/dci, else $HOME/.cache/dci; false when neither is set. */
bool bench_truth_cache_default(char *out, size_t size);

/* --- bench/common/truth_file.c ------------------------------------------------------------------------------------------------------- */

/* The data set's own neighbours, scored in double precision and sorted. Refuses ids outside the base and duplicates. */
dci_status bench_truth_from_file(const bench_dataset *dataset, dci_metric metric, bench_truth *truth);

#endif
