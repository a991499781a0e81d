/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The k-th smallest of many values, by one pass over them: a sample gives bounds of it. */
#ifndef DCI_SIMD_SELECT_H
#define DCI_SIMD_SELECT_H

#include "simd/kernels.h"

/* Values that a sample consists of, and up to how many no sample is worth taking. */
#define DCI_SELECT_SAMPLE 1024
#define DCI_SELECT_FEW 4096

/* The rank of a value among the others. */
typedef struct dci_rank {
        float value;
        size_t n_less, n_equal;
} dci_rank;

/* Bounds that nearly always hold the k-th smallest of n values, from a sample of `m` of them. order: scratch for m. */
void dci_select_bounds(const dci_kernels *kernels, const float *sample, size_t m, size_t n, size_t k, int32_t *order,
                       float *out_low, float *out_high);

/* How many of n values are less than x. */
size_t dci_count_less(const dci_kernels *kernels, const float *values, size_t n, float x);

/* How many of n values are at most each of m <= DCI_COUNT_LIMITS limits. The values are lost. kept, order: n + 16. */
#define DCI_COUNT_LIMITS 64
void dci_count_at_most(const dci_kernels *kernels, float *values, size_t n, const float *limits, size_t m, float *kept,
                       int32_t *order, size_t *out);

/* 1 <= k <= n, no NaN. scratch: n + 16 floats; order: n + 1024. */
dci_rank dci_select(const dci_kernels *kernels, const float *values, size_t n, size_t k, float *scratch,
                    int32_t *order);

#endif
