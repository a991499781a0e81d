/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The naive model of an index: arrays, double precision, a full sort. */
#ifndef DCI_TESTS_NAIVE_H
#define DCI_TESTS_NAIVE_H

#include "tests/common.h"

typedef struct naive {
        size_t dim, n, capacity;
        dci_metric metric;
        double *rows; /* as the index stores them, widened */
        int64_t *ids;
} naive;

void naive_init(naive *model, size_t dim, dci_metric metric);
void naive_free(naive *model);
void naive_add(naive *model, const float *row, int64_t id);
void naive_remove(naive *model, int64_t id);
bool naive_has(const naive *model, int64_t id);

/* Exact score of a stored row, and the stated bound on what rounding may make of it. */
double naive_score(const naive *model, const float *query, size_t row, double *out_bound);

/* Checks one query's results: right length, every score within its bound, ids present and distinct, order right, and no row
 * left out that is better than the last by more than the bounds. admits NULL: all rows. */
void naive_check(const naive *model, const float *query, size_t k, bool (*admits)(int64_t id), const int64_t *ids,
                 const float *scores, const char *what);

/* Adds n rows as an index of this format stores them; ids NULL: 0 to n - 1. */
void naive_fill(naive *model, dci_dtype dtype, size_t n, const float *rows, const int64_t *ids);

/* Rounds n floats through a format, as storing does. */
void naive_round(dci_dtype dtype, size_t n, const float *in, float *out);
/* Converts n floats to a format. */
void naive_narrow(dci_dtype dtype, size_t n, const float *in, void *out);

#endif
