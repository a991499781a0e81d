/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the suites of sketches share: made rows, sketches of them, and all that a sketch says as one piece. */
#ifndef DCI_TESTS_SKETCH_FIXTURE_H
#define DCI_TESTS_SKETCH_FIXTURE_H

#include "dci/sketch.h"
#include "tests/kmeans_fixture.h"

static const int32_t sketch_widths[] = {1, 2, 3, 4, 8};

/* Transforms; a learned one is a random one until it is fitted. */
enum { PLAIN, RANDOM, LEARNED, N_TRANSFORMS };
static const int32_t sketch_centres[] = {DCI_CENTRE_NONE, DCI_CENTRE_RUNNING, DCI_CENTRE_GIVEN};

/* Defaults but for these. given: for DCI_CENTRE_GIVEN, else ignored. */
dci_sketch_config sketch_config(size_t dim, int32_t bits, size_t transform, int32_t centre, const float *given);
dci_sketch *sketch_create(dci_context *context, const dci_sketch_config *config);

void sketch_fit(dci_sketch *sketch, size_t n, const void *rows, size_t dim, size_t n_queries, const void *queries);
/* A sketch of rows as floats, fitted to them if its transform is to be learned; GIVEN: their mean. */
dci_sketch *sketch_of(dci_context *context, size_t dim, int32_t bits, size_t transform, int32_t centre, size_t n,
                      const float *rows);
/* What it is fitted with. */
enum { SKETCH_FIT_QUERIES = 60, SKETCH_FIT_SEED = 900 };

/* Heavy tails, clusters far from the origin, or rows that fade from coordinate to coordinate; free with free(). */
enum { TAILS, CLUSTERS, FADING, N_KINDS };
float *sketch_rows(size_t kind, size_t n, size_t dim, uint64_t seed);

/* The mean of rows. */
float *sketch_mean(size_t n, const float *rows, size_t dim);

/* Numbers as a format holds them, and the same as floats again. */
void *sketch_narrow(dci_dtype dtype, size_t n, float *numbers);

double sketch_dot(const float *a, const float *b, size_t dim);

/* Scores, bounds and decoded rows of all rows, and the k best. */
typedef struct sketch_seen {
        size_t n, n_queries, dim, k;
        float *scores, *bounds, *decoded, *best_scores;
        int64_t *best;
} sketch_seen;
sketch_seen sketch_look(const dci_sketch *sketch, size_t dim, size_t n_queries, const void *queries, size_t k);
void sketch_seen_free(sketch_seen *seen);
/* Fails unless the first n rows of both say the same in every bit; bounds only where they are asked for. */
void sketch_same_rows(const sketch_seen *a, const sketch_seen *b, size_t n, bool bounds, const char *what);
/* The same, all of it, with the best rows. */
void sketch_same(const sketch_seen *a, const sketch_seen *b, const char *what);

/* Fails unless every estimate is within its bound. */
void sketch_obey(const sketch_seen *seen, const float *rows, const float *queries, const char *what);

dci_sketch_info sketch_info(const dci_sketch *sketch);

#endif
