/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores of 8-bit rows for queries of integers: exact sums, rounded to float once, so that every kernel of every level
 * gives the same bits. Queries are int16, each from -128 to 255; rows have any alignment. dim >= 1. */
#ifndef DCI_SIMD_INTEGERS_H
#define DCI_SIMD_INTEGERS_H

#include "simd/kernels.h"

/* A query's elements are followed by zeros up to a multiple of this. */
#define DCI_INTEGER_PADDING ((size_t)32)

DCI_INLINE size_t dci_integer_padded(size_t dim)
{
        return (dim + DCI_INTEGER_PADDING - 1) / DCI_INTEGER_PADDING * DCI_INTEGER_PADDING;
}

typedef void (*dci_integer_rows_fn)(const int16_t *query, const void *const *rows, size_t n_rows, size_t dim,
                                    float *out);
typedef void (*dci_integer_strided_fn)(const int16_t *query, const void *base, size_t stride, size_t n_rows, size_t dim,
                                       float *out);
typedef void (*dci_integer_many_fn)(const int16_t *queries, size_t ld_query, size_t n_queries, const void *const *rows,
                                    size_t n_rows, size_t dim, float *out, size_t ld_out);

/* As those of dci_kernels with the same names; index: dtype - DCI_I8. */
typedef struct dci_integer_kernels {
        dci_integer_rows_fn score_rows[2][DCI_N_FORMS];
        dci_integer_strided_fn score_strided[2][DCI_N_FORMS];
        dci_integer_many_fn score_many[2][DCI_N_FORMS];
} dci_integer_kernels;

/* What turns products of a tile into scores, all integers modulo 2^32:
 *      factor * (product + (row_sums[r] & column_masks[c])) + row_terms[r] + column_terms[c]
 * as float, and with row_scales times row_scales[r] and then column_scales[c]. */
typedef struct dci_integer_terms {
        uint32_t factor;
        const uint32_t *row_sums, *row_terms, *column_masks, *column_terms;
        const float *row_scales, *column_scales; /* NULL, or both */
} dci_integer_terms;

/* Products of tiles: rows times DCI_PRODUCT_COLUMNS queries, dim at most DCI_INTEGER_PART. Rows are packed with row_bias
 * added (by dtype - DCI_I8), queries with query_bias or nothing taken away, so that both fit the instructions; sums are
 * modulo 2^32. Rows are multiplied in whole sets of DCI_INTEGER_ROWS; packed rows beyond the last one hold any numbers. */
#define DCI_INTEGER_ROWS ((size_t)32)
DCI_INLINE size_t dci_integer_rows(size_t n)
{
        return (n + DCI_INTEGER_ROWS - 1) / DCI_INTEGER_ROWS * DCI_INTEGER_ROWS;
}

typedef struct dci_integer_tiles {
        size_t element_bytes; /* of packed rows and queries */
        size_t padding;       /* dim_padded is a multiple of it */
        uint32_t row_bias[2];
        int16_t query_bias; /* of a query that has elements above 127; 0: none needed */
        /* Writes row r of a tile, and the sums of its elements and of their squares. */
        void (*pack_row)(const void *row, dci_dtype dtype, size_t dim, size_t dim_padded, void *rows, size_t r,
                         uint32_t *out_sum, uint32_t *out_norm2);
        /* Writes query - bias as column q of DCI_LANES. Groups of DCI_LANES columns follow one another. */
        void (*place_query)(const int16_t *query, int16_t bias, size_t dim, size_t dim_padded, void *group, size_t q);
        /* Registers of this thread: taken before products, given back after the last. NULL: nothing to do. */
        void (*begin)(void);
        void (*end)(void);
        /* out[row * DCI_PRODUCT_COLUMNS + column] */
        void (*products)(const void *rows, size_t n_rows, size_t dim_padded, const void *queries, int32_t *out);
        /* Scores in place of products: what is read as int32 is written as float. */
        void (*finish)(const dci_integer_terms *terms, size_t n_rows, void *products);
} dci_integer_tiles;

extern const dci_integer_kernels dci_integers_scalar;
extern const dci_integer_tiles dci_integer_tiles_scalar;
#if defined(__x86_64__)
extern const dci_integer_kernels dci_integers_avx2, dci_integers_avx512;
extern const dci_integer_tiles dci_integer_tiles_avx2, dci_integer_tiles_avx512, dci_integer_tiles_vnni,
        dci_integer_tiles_amx;
#elif defined(__aarch64__)
extern const dci_integer_kernels dci_integers_neon;
extern const dci_integer_tiles dci_integer_tiles_neon, dci_integer_tiles_sdot;
#endif

const dci_integer_kernels *dci_integers_for(const dci_context *context);

/* The fastest tiles of the context's level on this CPU; asks the CPU, so not for every query. */
const dci_integer_tiles *dci_integer_tiles_for(const dci_context *context);

#endif
