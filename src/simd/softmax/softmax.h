/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Approximate softmax of many keys under some queries, by products of bytes, for ranking only. A softmax over keys does
 * not change when one row is taken from all of them, nor a product when its coordinates are scaled in the keys and back
 * in the queries, so both are free to make bytes say more.
 *
 * Keys are stored in tiles of DCI_SOFTMAX_ROWS, four coordinates of all rows at a time: [units][DCI_SOFTMAX_ROWS][4].
 * Byte b of row i means (b - 128) * scales[i]. Queries are rows of units * 4 bytes, signed, padded with zeros. */
#ifndef DCI_SIMD_SOFTMAX_SOFTMAX_H
#define DCI_SIMD_SOFTMAX_SOFTMAX_H

#include "core/internal.h"

#define DCI_SOFTMAX_ROWS ((size_t)64)
#define DCI_SOFTMAX_QUERIES ((size_t)4) /* that share what is loaded of a tile: queries come in multiples of it */
#define DCI_SOFTMAX_LANES ((size_t)16)
#define DCI_SOFTMAX_RANGE 64.0f /* in powers of two: what most may be away from 0 */

/* Queries, by number. A query has a sum and a greatest score for each lane. */
typedef struct dci_softmax {
        const int8_t *bytes;  /* [query][units * 4] */
        const int32_t *start; /* -128 times the sum of a query's bytes */
        const float *scale;   /* of its products, in powers of two */
        const float *shift;   /* what is taken from its scores */
        float *sum, *most;    /* [query][DCI_SOFTMAX_LANES] */
        size_t n_queries, units;
} dci_softmax;

DCI_INLINE size_t dci_softmax_units(size_t dim)
{
        return (dim + 3) / 4;
}

typedef struct dci_softmax_kernels {
        /* n <= DCI_SOFTMAX_ROWS rows, dim apart, to a tile: (rows[i][j] - centre[j]) * inverse[j] in steps of
         * scales[i], which is the greatest of the row's over 127, rounded. Rows that are not there are 128s, their
         * scales 0. What is rounded overwrites the rows. No NaN. */
        void (*pack)(float *rows, size_t n, size_t dim, const float *centre, const float *inverse, uint8_t *tile,
                     float *scales);

        /* For n <= DCI_SOFTMAX_ROWS rows of a tile and each query the score x = (product of bytes) * scales[i] * scale
         * - shift, in powers of two, and 2^x, right to 2e-4 from -126 on and less than 2^-126 below. Lane i mod 16 of a
         * query's sum grows by it, that of its most becomes at least x, and it is stored as bf16 (0 for rows that are
         * not there), rounded: terms[(q / 2 * DCI_SOFTMAX_ROWS + i) * 2 + q mod 2]. If 2^x is infinite, terms are
         * useless. */
        void (*terms)(const dci_softmax *softmax, const uint8_t *tile, const float *scales, size_t n, uint16_t *terms);

        /* out[i] += sum over queries of weights[q] * terms of row i, for all rows of a tile; in order, by fused
         * multiply-add. */
        void (*add)(const uint16_t *terms, const float *weights, size_t n_queries, float *out);
} dci_softmax_kernels;

#if defined(__x86_64__)
extern const dci_softmax_kernels dci_softmax_kernels_avx512, dci_softmax_kernels_vnni; /* the same bits */
#endif

/* NULL at levels that have none: a level has one answer, whatever its processors can multiply. */
const dci_softmax_kernels *dci_softmax_kernels_for(const dci_context *context);

#endif
