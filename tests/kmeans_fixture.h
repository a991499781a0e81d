/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the suites of k-means share: calls with every output, and the laws of the public header as naive loops in
 * double. */
#ifndef DCI_TESTS_KMEANS_FIXTURE_H
#define DCI_TESTS_KMEANS_FIXTURE_H

#include "dci/kmeans.h"
#include "tests/pdci_fixture.h"

/* The metrics; COSINE with both forms of centroids. */
enum { KMEANS_FORMS = 4 };
static const struct {
        dci_metric metric;
        int32_t centroid;
        const char *name;
} kmeans_forms[KMEANS_FORMS] = {{DCI_METRIC_COSINE, DCI_CENTROID_UNIT, "cosine, unit"},
                                {DCI_METRIC_COSINE, DCI_CENTROID_MEAN, "cosine, mean"},
                                {DCI_METRIC_L2, DCI_CENTROID_UNIT, "l2"},
                                {DCI_METRIC_IP, DCI_CENTROID_UNIT, "ip"}};

static const int32_t kmeans_inits[] = {DCI_KMEANS_INIT_RANDOM, DCI_KMEANS_INIT_PLUSPLUS, DCI_KMEANS_INIT_EVEN};

/* A configuration with defaults except for these; form is an index into kmeans_forms. */
dci_kmeans_config kmeans_config(size_t form, dci_dtype dtype, size_t dim, size_t k);
dci_kmeans_input kmeans_input(size_t n, const void *rows);

/* Converts n numbers to a format. Free with free(). */
void *kmeans_narrow(dci_dtype dtype, size_t n, const float *numbers);

/* n rows around `n_centres` centres: normal numbers, `apart` times as far apart as wide. Row i belongs to i % n_centres. */
float *kmeans_blobs(size_t n, size_t dim, size_t n_centres, float apart, uint64_t seed);

/* Every output of a call, with room for each round. */
typedef struct kmeans_out {
        size_t n_problems, n, k, dim, value_dim;
        dci_kmeans_result result;
        dci_kmeans_round *rounds;
        size_t rounds_room; /* of a problem */
} kmeans_out;
kmeans_out kmeans_room(const dci_kmeans_config *config, const dci_kmeans_input *input);
void kmeans_out_free(kmeans_out *out);

/* Clusters the rows; fails unless the result passes dci_kmeans_check. */
kmeans_out kmeans_run(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input);

/* Fails unless n problems of both, starting with these, agree bit by bit in every output except the seconds. */
void kmeans_same(const kmeans_out *a, size_t first_a, const kmeans_out *b, size_t first_b, size_t n, const char *what);

/* Fails unless the result obeys the header. */
void kmeans_obey(const dci_kmeans_config *config, const dci_kmeans_input *input, const kmeans_out *out,
                 const char *what);

/* kmeans_run and kmeans_obey. */
kmeans_out kmeans_lawful(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                         const char *what);

/* What the objective of a problem may differ by from a naive sum, as a share of this: n, or the sum of squared lengths, or
 * of products of lengths. */
double kmeans_scale(const dci_kmeans_config *config, const dci_kmeans_input *input, const kmeans_out *out,
                    size_t problem);

/* True if objective a is worse than b by more than `slack`. */
bool kmeans_worse(dci_metric metric, double a, double b, double slack);

#endif
