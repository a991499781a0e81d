/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows of any dtype and stride. Gaps between rows hold NaN and memory ends with the last element, so that what reads or
 * writes beyond a row is found out, by NaN checks or by a sanitizer. */
#ifndef DCI_TESTS_MATRIX_H
#define DCI_TESTS_MATRIX_H

#include "tests/common.h"

typedef struct matrix {
        dci_dtype dtype;
        size_t n, dim, ld;
        size_t n_bytes; /* 0 in a view */
        void *data;
} matrix;

/* All elements NaN. */
matrix matrix_empty(dci_dtype dtype, size_t n, size_t dim, size_t ld);
/* Normal numbers, rounded to the dtype. */
matrix matrix_random(dci_dtype dtype, size_t n, size_t dim, size_t ld, uint64_t seed);
matrix matrix_copy(const matrix *from);
/* The first dim columns of `from` in rows of n_columns, ld apart. */
matrix matrix_widened(const matrix *from, size_t n_columns, size_t ld);
/* Rows [first, first + n) of `from`, in place. */
matrix matrix_view(const matrix *from, size_t first, size_t n);
/* Frees each of its arguments, which are pointers to matrices. */
#define matrix_free(...)                                                                                               \
        do {                                                                                                           \
                matrix *const matrix_list[] = {__VA_ARGS__};                                                           \
                matrix_free_each(COUNT(matrix_list), matrix_list);                                                     \
        } while (0)
void matrix_free_each(size_t n, matrix *const *list);

void *matrix_at(const matrix *m, size_t row, size_t column);
double matrix_get(const matrix *m, size_t row, size_t column);
void matrix_set(const matrix *m, size_t row, size_t column, float value);
void matrix_multiply(const matrix *m, float factor);

/* Inner product of the first dim elements. */
long double matrix_dot(const matrix *a, size_t i, const matrix *b, size_t j, size_t dim);
long double matrix_norm2(const matrix *m, size_t row);

/* Every bit of both, gaps included; both of one shape. */
void matrix_same(const matrix *a, const matrix *b);
/* Nothing was written between the rows. */
void matrix_gaps_are_empty(const matrix *m);

#endif
