/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Queries as the searches want them, float rows that were checked, for 8-bit rows integers too, and the check of a row, which
 * stored rows pass, too. */
#ifndef DCI_INDEX_QUERIES_H
#define DCI_INDEX_QUERIES_H

#include "index/index_internal.h"
#include "simd/integers/integers.h"

/* Largest squared norm of a row or query: beyond it squared distances overflow. */
#define DCI_MAX_NORM2 (0x1.fffffep127f / 8)
/* Under COSINE, a row of smaller squared norm has no direction to speak of and counts as zero: products of two longer rows
 * keep their precision. */
#define DCI_MIN_NORM2 0x1p-80f

/* Checks one stored row or query. DCI_ERR_NUMBER names it: `what` ("row", "query") and `number`. *out_norm, unless NULL: for COSINE 1 / |row|,
 * or 0 for a zero row that may stay; else |row|^2. */
dci_status dci_check_row(const dci_index *index, dci_dtype dtype, const void *row, const char *what, size_t number,
                         float *out_norm);

typedef struct dci_queries {
        size_t n, ld;
        const float *rows;
        float *inverse_norms; /* COSINE: 1 / |query|, 0 for a kept zero query; else NULL */
        /* 8-bit rows: a query that int8 or uint8 can hold is scored as integers, exactly; others as floats. */
        const dci_integer_kernels *integers; /* NULL for other rows, and so are the next two */
        int16_t *whole;                      /* n x ld_whole; of queries that are not integers: unspecified */
        uint8_t *fits;                       /* DCI_I8 or DCI_U8, which hold the query; 0: it is not of integers */
        size_t ld_whole, n_fit;
        void *owned; /* memory of all that was made */
        size_t owned_bytes;
} dci_queries;

dci_status dci_queries_prepare(const dci_index *index, size_t n, const void *queries, size_t ld, dci_queries *out);
void dci_queries_free(const dci_index *index, dci_queries *queries);

#endif
