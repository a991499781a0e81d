/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A batch search: what is shared, what each worker holds, and products of rows and queries in tiles. */
#ifndef DCI_INDEX_FLAT_BATCH_STATE_H
#define DCI_INDEX_FLAT_BATCH_STATE_H

#include "index/flat/flat.h"

#define DCI_BATCH_ROWS 128 /* of a tile */
/* Queries multiplied at a time (two masks of 16): their products stay in the first-level cache. */
#define DCI_BATCH_COLUMNS 32

/* Rows that may still be among the k best of one query. */
typedef struct batch_list {
        size_t n;
        float limit; /* the k-th best goodness is at least this */
        float *value, *error;
        int32_t *slot;
} batch_list;

/* Rows in the form that the products need. */
typedef struct batch_rows {
        size_t n;
        uint16_t *bf16; /* AMX: a multiple of 32 rows, zero padded */
        float *f32;     /* without AMX */
        void *packed;   /* integers, see dci_integer_tiles, and a row's terms */
        uint32_t *sums, *terms;
        float *scales;
        float *offset; /* L2: half the squared norm, which a row's products fall short by; else 0 */
        int32_t *slots;
        float longest, lost; /* length of the longest row; largest length that rounding took away */
} batch_rows;

typedef struct batch_worker {
        void *memory;
        size_t n_bytes;
        /* the tile */
        batch_rows tile;
        float *row, *products;
        uint16_t *hits;
        /* the block of queries */
        uint16_t *queries_bf16;
        float *queries_f32; /* without AMX: unit queries of COSINE, or queries less the centre */
        void *queries_packed;
        uint32_t *column_masks, *column_terms; /* of integers */
        float *column_scales;
        float *norm2, *length, *lost, *threshold, *error;
        batch_list *lists;
        /* the sample and its guesses */
        batch_rows sample;
        float *sample_products, *guess;
        /* cutting and settling */
        float *floats, *kept;
        int32_t *order;
        uint64_t *keys;  /* 2 x capacity */
        void *topk;      /* memory for one selection: a query whose guess failed */
        uint64_t scored; /* canonical scores computed */
} batch_worker;

typedef struct batch {
        const dci_flat *flat;
        const dci_integer_tiles *integers; /* not NULL: products are exact scores, or goodness for L2; amx is NULL */
        const dci_amx_kernels *amx;        /* NULL: other kernels multiply */
        size_t k, capacity;                /* capacity of a list */
        size_t block, dim_padded;
        float *centre;                /* L2, rows far from the origin: what rows and queries are less by; else NULL */
        size_t n_sample, sample_rank; /* 0: no guesses */
        size_t n_workers;
        batch_worker *workers;
        int64_t *out_ids;
        float *out_scores;
} batch;

dci_status dci_batch_workers_create(batch *b, size_t n_workers);
void dci_batch_workers_destroy(batch *b);

/* A bound from above on a length, given its square as the kernels compute it: their rounding, and squares that vanished. */
float dci_batch_length(float squared, size_t dim);

/* Packs a block of queries and empties their lists. */
void dci_batch_load_queries(const batch *b, batch_worker *w, size_t block, size_t n_queries);

/* Prepares n_rows rows, at positions first, first + step, .. of the selection; then multiplies them with
 * the block's queries [first, first + DCI_BATCH_COLUMNS): products[row * DCI_BATCH_COLUMNS + column]. */
void dci_batch_load_rows(const batch *b, batch_worker *w, size_t first, size_t step, size_t n_rows, batch_rows *rows);
void dci_batch_multiply(const batch *b, batch_worker *w, const batch_rows *rows, size_t block, size_t first,
                        size_t n_queries, float *products);

/* The same for 8-bit rows and queries of integers: products are goodness, to the bit, but for COSINE. */
void dci_batch_integer_queries(const batch *b, batch_worker *w, size_t block, size_t n_queries);
void dci_batch_integer_rows(const batch *b, batch_worker *w, size_t first, size_t step, size_t n_rows,
                            batch_rows *rows);
void dci_batch_integer_products(const batch *b, batch_worker *w, const batch_rows *rows, size_t first, float *products);

#endif
