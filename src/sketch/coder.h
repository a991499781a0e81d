/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows as low-bit codes, and what codes say of inner products.
 *
 * A row x is moved by a centre mu and transformed, and every coordinate is rounded to one of 2^bits levels (Lloyd-Max
 * levels of the normal distribution, or even steps). Three transforms:
 *
 *  - plain and rotated: y = R (x - mu), R one, or a random rotation. The unit of the levels is the root mean square of
 *    y, and a factor a = |y|^2 / (y . z) is kept with the levels z, so that for a random rotation E[a z . R q] = q . (x
 *    - mu) (RaBitQ; Gao and Long 2024, extended to more bits). At 1, 2 and 4 bits levels are even steps, which scans
 *    read without a table, and of a few step sizes each row takes the one with the least error: as good as the best
 *    levels for the normal distribution, within 3 % of the error.
 *  - learned (transform coding weighted by queries): with L L^T the second moment of queries and U the eigenvectors of
 *    the covariance of L^T (x - mu), y = U^T L^T (x - mu), coordinate by coordinate with its own standard deviation and
 *    its own bits; q . (x - mu) = (U^T L^-1 q) . y. This makes the error of q . x small, not that of x. The factor is
 *    that which brings z nearest to y; `alone`, see below, it is 1, or more for a row whose coordinates are larger than
 *    usual.
 *
 * A query is transformed and rounded to bytes. Then
 *
 *      q . x  is estimated by  scale(row) * half_step(query) * (2 sum - twice_bias(query)) + fixed(query)
 *
 * with the exact integer sum of codes/codes.h, and |estimate - q . x| <= length(query) residual(row) + rounding(query)
 * reach(row) + slack(query): residual is |y - a z|, and the others are what rounding the query, and binary32, cost.
 * Under a random rotation the first is typically a share 1 / sqrt(dim) of that. */
#ifndef DCI_SKETCH_CODER_H
#define DCI_SKETCH_CODER_H

#include "core/internal.h"

#include "simd/codes/codes.h"
#include "simd/codes/encode.h"
#include "simd/kernels.h"
#include "sketch/rotate.h"

enum { DCI_CODER_PLAIN = 1, DCI_CODER_ROTATED = 2, DCI_CODER_LEARNED = 3 };

/* Learned transforms: beyond this, fitting one takes seconds. */
#define DCI_LEARNED_DIM ((size_t)1024)

typedef struct dci_coder {
        const dci_kernels *kernels;
        const dci_code_reader *reader;
        const dci_code_writer *writer, *narrow, *single; /* for many rows, for few and for one */
        size_t dim;
        bool alone;         /* learned: nothing but codes is read, no row itself (dci_coder_init_learned) */
        int32_t kind, bits; /* bits: 1, 2, 3, 4 or 8 for each coordinate, on average if learned */
        size_t n_coords;    /* of y: dim, or if learned the next multiple of DCI_CODE_GROUP */
        size_t n_coded;     /* that have codes, the first ones; beyond them the layout has padding */
        float *centre;      /* dim */
        dci_rotation rotation;
        /* Learned: n_coords x dim, coded coordinates first. `to` takes a row to coordinates in units of their
         * deviations, `from` a query to what a unit of a level is worth; `worth`: a unit of a level in y (coordinates
         * without a code: 1, and plain y in both; those beyond dim: zeros in all three). */
        float *to, *from, *worth;
        dci_code_layout layout;
        dci_code_transpose_block turn;
        dci_code_even even;     /* not learned, 4, 2 or 1 bits */
        dci_code_levels levels; /* else */
} dci_coder;

/* What is stored of a row in addition to its code. */
typedef struct dci_coded_row {
        float scale, residual, reach;
} dci_coded_row;

/* What is kept of a query in addition to its bytes. */
typedef struct dci_coded_query {
        float half_step, fixed; /* half of what one unit of a byte is worth; query . centre */
        int32_t twice_bias;
        float length, rounding;
        float slack;  /* what binary32 may cost in `fixed` */
        float span;   /* relative frames: |query - centre|, of products |query| */
        float weight; /* relative frames: 0 for a query that counts as zero, else 1 */
} dci_coded_query;

/* What binary32 may cost, as a share of the lengths: in an estimate, by transforms of rows and queries, and in the
 * canonical score that it stands for, which rounds the more the longer rows are (dci/index.h; four times that, as
 * scalar C rounds products, too). */
DCI_INLINE float dci_arithmetic_error(size_t dim)
{
        const float of_sums = ((float)dim / 16.0f + 8.0f) * 0x1p-22f;
        return of_sums > 1e-5f ? of_sums : 1e-5f;
}

/* Bytes of a coder's memory, and of scratch for one row or query. */
size_t dci_coder_bytes(int32_t kind, size_t dim);
size_t dci_coder_scratch_bytes(size_t dim);

/* PLAIN or ROTATED. centre: NULL for the origin. 1 <= dim <= DCI_CODE_COORDS - 32. */
void dci_coder_init(const dci_context *context, int32_t kind, size_t dim, int32_t bits, uint64_t seed,
                    const float *centre, void *memory, dci_coder *out);
/* LEARNED, dim <= DCI_LEARNED_DIM: lays out the memory; fit.c, or a file, fills it and the layout in, and then calls
 * finish. alone: for attention that reads no row itself, and so hangs on what codes say of the few largest products;
 * else, for ranks. What is best for the one is not for the other (docs/sketches.md). */
void dci_coder_init_learned(const dci_context *context, size_t dim, int32_t bits, bool alone, void *memory,
                            dci_coder *out);
void dci_coder_finish_learned(dci_coder *coder);
/* Whether a rotation is the seed's, and a learned transform numbers. memory: dci_coder_bytes of a rotated one. */
bool dci_coder_is_sound(const dci_context *context, const dci_coder *coder, uint64_t seed, void *memory);

/* The width of a coordinate of the layout, and what a unit of a byte of its levels is in deviations. */
int dci_coder_width(const dci_coder *coder, size_t coord);
float dci_coder_unit(int bits);

/* What dci_code_even has on even steps; returns its bits: those that are asked for, or 0 where levels are not even. */
int32_t dci_coder_even_steps(size_t dim, int32_t bits, float *out_spread, uint16_t *out_inverse);

/* Rows to codes in their places of a block; NULL: no row, and that place stays as it is. What a row becomes does not
 * depend on the others. scratch: dci_coder_encode_bytes for one row, or for any. */
size_t dci_coder_encode_bytes(size_t dim, bool one);
void dci_coder_encode(const dci_coder *coder, const float *const rows[DCI_CODE_ROWS], void *scratch,
                      unsigned char *block, dci_coded_row out[DCI_CODE_ROWS]);
/* The same codes, scales and reaches; residuals may be missing (0), which with a learned transform takes less. */
void dci_coder_encode_only(const dci_coder *coder, const float *const rows[DCI_CODE_ROWS], void *scratch,
                           unsigned char *block, dci_coded_row out[DCI_CODE_ROWS]);
/* Back to a row. */
void dci_coder_decode(const dci_coder *coder, const uint8_t *codes, float scale, void *scratch, float *out);

/* One query to bytes, n_all of them; `fixed` and `slack` are left to the caller, and so are the fields of relative frames. */
void dci_coder_query_bytes(const dci_coder *coder, const float *query, void *scratch, int8_t *bytes,
                           dci_coded_query *out);
/* One query to bytes, n_all of them. */
void dci_coder_query(const dci_coder *coder, const float *query, void *scratch, int8_t *bytes, dci_coded_query *out);
/* The same for a coder that differs in its centre only: what changes. */
void dci_coder_query_again(const dci_coder *coder, const float *query, dci_coded_query *out);

#endif
