/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Rows as low-bit codes, and what codes say of inner products.
 *
 * A row x is moved by a centre mu and rotated, y = R (x - mu); every coordinate is rounded to one of 2^bits levels times the root
 * mean square of y (Lloyd-Max levels of the normal distribution, which rotated coordinates nearly have; at 8 bits even steps), z; and
 * a factor a = |y|^2 / (y . z) is kept, so that for a random rotation E[a z . R q] = q . (x - mu) (RaBitQ; Gao and Long 2024).
 * A query is rotated and rounded to bytes. Then
 *
 *      q . x  is estimated by  scale(row) * half_step(query) * (2 sum - twice_bias(query)) + fixed(query)
 *
 * with the exact integer sum of simd/codes.h. |estimate - q . x| is at most |q| residual(row) + what rounding the query costs,
 * and typically a share 1 / sqrt(dim) of the first.
 */
#ifndef DCI_SKETCH_CODER_H
#define DCI_SKETCH_CODER_H

#include "core/internal.h"

#include "simd/codes.h"
#include "simd/kernels.h"
#include "sketch/rotate.h"

typedef struct dci_coder {
        const dci_kernels *kernels;
        size_t dim;
        int32_t bits; /* 1, 2, 3, 4 or 8 */
        bool rotates;
        dci_rotation rotation;
        float *centre;          /* dim */
        dci_code_layout layout; /* n_all: dim, padded */
        float levels[16],
                limits[16]; /* up to 4 bits: the levels in units of the root mean square, and what lies between them */
        float unit, bias;   /* a level is unit * (byte - bias) */
} dci_coder;

/* What a query becomes beside its bytes. */
typedef struct dci_coded_query {
        float half_step, fixed; /* half of what one unit of a byte is worth */
        int32_t twice_bias;
        float length;   /* |q| */
        float rounding; /* |what rounding took from the rotated query| */
} dci_coded_query;

/* Bytes of a coder's memory, and of scratch for one row or query. */
size_t dci_coder_bytes(size_t dim);
size_t dci_coder_scratch_bytes(size_t dim);

/* centre: NULL for the origin. rotates false: coordinates are coded as they are. 1 <= dim <= DCI_CODE_COORDS - 32. */
void dci_coder_init(const dci_context *context, size_t dim, int32_t bits, bool rotates, uint64_t seed,
                    const float *centre, void *memory, dci_coder *out);

/* One row to codes (n_all bytes), its scale, and |x - what the codes decode to|. */
void dci_coder_encode(const dci_coder *coder, const float *row, void *scratch, uint8_t *codes, float *out_scale,
                      float *out_residual);
/* Back to a row: mu + R^T a z. */
void dci_coder_decode(const dci_coder *coder, const uint8_t *codes, float scale, void *scratch, float *out);

/* One query to bytes (n_all of them). */
void dci_coder_query(const dci_coder *coder, const float *query, void *scratch, int8_t *bytes, dci_coded_query *out);

/* out[i] = the estimate of row i. No fused multiply-add: the same bits at every instruction set. */
void dci_coder_estimate(const dci_coded_query *query, const int32_t *sums, const float *scales, size_t n, float *out);

#endif
