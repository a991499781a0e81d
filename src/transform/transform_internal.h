/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the transforms share: checks, squared norms, scaling, one parallel region.
 *
 * Squared norms that decide or are written are sums in double. Squares of f32 are exact there and neither overflow nor
 * underflow, so the sum is 0 exactly for a zero row and not finite exactly for NaN or infinity. The order is fixed, so
 * the sum is the same on every instruction set. */
#ifndef DCI_TRANSFORM_INTERNAL_H
#define DCI_TRANSFORM_INTERNAL_H

#include "core/internal.h"

#include <float.h>
#include <math.h>

#include "simd/kernels.h"

#define TRANSFORM_MAX_NORM2 ((double)FLT_MAX / 8)

/* Elements widened at a time, and partial sums of a norm, which divide it. */
#define TRANSFORM_BLOCK 256
#define TRANSFORM_SUMS 8

/* Elements of one task of the parallel region, or so: large enough that the cost of taking a task does not matter. */
#define TRANSFORM_TASK ((size_t)1 << 15)

/* Rows as the caller passed them, and what messages call them. */
typedef struct transform_rows {
        const dci_kernels *kernels;
        const char *array, *item; /* such as "keys" and "key" */
        const void *data;
        size_t n, dim, ld;
        dci_dtype dtype;
} transform_rows;

/* A call that writes one output row, of the same dtype, for each input row. */
typedef struct transform_job {
        transform_rows in;
        const char *out_name;
        void *out;
        size_t ld_out, columns_out;
        void (*write)(const struct transform_job *job, size_t row);
        const void *arg; /* for write */
} transform_job;

static inline const void *transform_row(const transform_rows *rows, size_t row)
{
        return (const unsigned char *)rows->data + row * rows->ld * dci_dtype_size(rows->dtype);
}

static inline void *transform_out(const transform_job *job, size_t row)
{
        return (unsigned char *)job->out + row * job->ld_out * dci_dtype_size(job->in.dtype);
}

/* Bytes from the first to the last element of n rows. */
dci_status dci_transform_check_span(const char *name, const void *data, size_t n, size_t columns, size_t ld,
                                    size_t element_size, size_t *out_bytes);
dci_status dci_transform_check_input(const transform_rows *rows, size_t *out_bytes);
/* Everything but the numbers. Output over input is fine row on row only; the gaps between rows count as the array's. */
dci_status dci_transform_check_job(const transform_job *job);

/* Squared norm of a row: a double sum in a fixed order, the same at every level. */
double dci_transform_norm2(const transform_rows *rows, size_t row);
/* Whether the float kernel, several times faster, already proves that the row is finite, not zero, and its squared norm
 * at most `limit` and the library's own. False means that dci_transform_norm2 must decide. */
bool dci_transform_surely_within(const transform_rows *rows, size_t row, double limit);
/* The squared norm of a row, or a refusal that names it. */
dci_status dci_transform_check_row(const transform_rows *rows, size_t row, double *out_norm2);

/* out = factor * row; out may be the row itself. */
void dci_transform_scale(const transform_rows *rows, size_t row, double factor, void *out);

/* Writes all rows, which must be checked: the check is a pass of its own, so that a refusal leaves the output alone. It
 * runs on the calling thread, as the float kernel takes a fraction of the writes' time, and a call opens one region at
 * most. */
dci_status dci_transform_write(dci_context *context, transform_job *job);

#endif
