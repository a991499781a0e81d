/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file transform.h
 * Row transforms that reduce one search problem to another: unit rows (cosine) and the MIPS lift (inner product to L2).
 */
#ifndef DCI_TRANSFORM_H
#define DCI_TRANSFORM_H

#include "dci/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What to do with a row of all zeros, which has no direction. */
enum {
        /** DCI_ERR_NUMBER, naming the row */
        DCI_ZERO_REFUSE = 0,
        /** it stays zero: its cosine with anything is 0 */
        DCI_ZERO_KEEP = 1
};

/**
 * Scales rows to unit length: out_i = row_i / |row_i|.
 *
 * n          rows; 0 does nothing.
 * dim        elements per row, 1 to 2^20.
 * dtype      of rows and out_rows.
 * rows       n x dim, ld apart. Refused: NaN, infinity, squared norms beyond FLT_MAX / 8 (the message names the row).
 * zero_rows  DCI_ZERO_REFUSE or DCI_ZERO_KEEP.
 * out_rows   n x dim, ld_out apart; may be `rows` itself with ld_out = ld, else must not overlap it, gaps between rows
 *            included. Row by row: f32 norms come out within 4 ulp of 1, f16 and bf16 within their rounding per
 *            element.
 *
 * All rows are checked before the first is written. Cost: O(n dim). Thread rule: any number of calls side by side.
 */
DCI_API dci_status dci_cosine_transform(dci_context *context, size_t n, size_t dim, dci_dtype dtype, const void *rows,
                                        size_t ld, int32_t zero_rows, void *out_rows, size_t ld_out);

/**
 * The MIPS lift: maps keys and queries to points whose L2 order is the inner-product order.
 *
 * With c >= max |k|:  T_K(k) = [k / c, sqrt(1 - |k|^2 / c^2)],  T_Q(q) = [q / |q|, 0], so that
 * |T_K(k) - T_Q(q)|^2 = 2 - 2 q.k / (c |q|): the nearest point is the largest inner product.
 * The unscaled lift multiplies both by c: [k, sqrt(c^2 - |k|^2)] and [c q / |q|, 0]. It is what to store: when a longer
 * key arrives and c grows, only the last coordinate of each stored row changes (dci_mips_relift).
 *
 * Source: Bachrach et al. 2014 (the Xbox transform); IceCache (2026), section 3, T_K and T_Q.
 */
typedef struct dci_mips {
        size_t struct_size;
        double c_squared; /**< c^2; 0: nothing fitted yet. Only dci_mips_fit changes it. */
} dci_mips;

/** Prepares an unfitted lift. struct_size: sizeof(dci_mips). */
DCI_API dci_status dci_mips_init(dci_mips *mips, size_t struct_size);

/**
 * Makes c large enough for more keys. An unfitted lift takes the largest squared norm as c^2; later, if a key is
 * longer, c^2 doubles until it fits, to FLT_MAX / 8 at most (headroom: a growth costs one relift of what is stored, and
 * n keys cause at most log2(max / first) of them). All keys zero: c^2 becomes FLT_MIN.
 * Refused: an unusable number as above (DCI_ERR_NUMBER, the row named).
 *
 * out_grew   1 if c^2 changed and stored lifts need dci_mips_relift, else 0 (also for the first fit: nothing is stored
 *            yet); may be NULL. On error nothing changes.
 */
DCI_API dci_status dci_mips_fit(dci_context *context, dci_mips *mips, size_t n, size_t dim, dci_dtype dtype,
                                const void *keys, size_t ld, int32_t *out_grew);

/** Which form of the lift to write. */
enum {
        /** T_K, T_Q as in the paper: points on the unit sphere */
        DCI_MIPS_SCALED = 0,
        /** both times c: the form to store */
        DCI_MIPS_UNSCALED = 1
};

/**
 * T_K: lifts keys. out has dim + 1 columns. A key longer than c is DCI_ERR_NUMBER naming the row (fit first); a lift
 * that was never fitted is DCI_ERR_INVALID.
 * In place: out = keys with ld_out = ld >= dim + 1; with DCI_MIPS_UNSCALED only column dim is written.
 */
DCI_API dci_status dci_mips_keys(dci_context *context, const dci_mips *mips, int32_t form, size_t n, size_t dim,
                                 const float *keys, size_t ld, float *out, size_t ld_out);

/**
 * T_Q: lifts queries; columns and in-place rule as dci_mips_keys. A zero query stays zero (every key is equally far up
 * to its lift: the caller answers it by id).
 */
DCI_API dci_status dci_mips_queries(dci_context *context, const dci_mips *mips, int32_t form, size_t n, size_t dim,
                                    const float *queries, size_t ld, float *out, size_t ld_out);

/**
 * Brings stored unscaled lifts from an older c to the present one: column dim of every row becomes
 * sqrt(c^2 - |k|^2), |k| taken from the row itself, so that the result equals a fresh lift bit for bit.
 * Cost: O(n dim) reads, n writes.
 */
DCI_API dci_status dci_mips_relift(dci_context *context, const dci_mips *mips, size_t n, size_t dim, float *lifted,
                                   size_t ld);

#ifdef __cplusplus
}
#endif
#endif
