/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/matrix.h"

#include <math.h>
#include <string.h>

#include "simd/kernels.h"

matrix matrix_empty(dci_dtype dtype, size_t n, size_t dim, size_t ld)
{
        matrix m = {dtype, n, dim, ld, ((n - 1) * ld + dim) * dci_dtype_size(dtype), NULL};
        m.data = malloc(m.n_bytes);
        ck_assert_ptr_nonnull(m.data);
        memset(m.data, 0xff, m.n_bytes);
        return m;
}

matrix matrix_random(dci_dtype dtype, size_t n, size_t dim, size_t ld, uint64_t seed)
{
        matrix m = matrix_empty(dtype, n, dim, ld);
        float *values = test_normal(n, dim, seed);
        for (size_t i = 0; i < n; i++)
                dci_kernels_scalar.narrow[dtype - 1](values + i * dim, dim, matrix_at(&m, i, 0));
        free(values);
        return m;
}

matrix matrix_copy(const matrix *from)
{
        matrix m = matrix_empty(from->dtype, from->n, from->dim, from->ld);
        memcpy(m.data, from->data, m.n_bytes);
        return m;
}

matrix matrix_widened(const matrix *from, size_t n_columns, size_t ld)
{
        matrix m = matrix_empty(from->dtype, from->n, n_columns, ld);
        for (size_t i = 0; i < m.n; i++)
                memcpy(matrix_at(&m, i, 0), matrix_at(from, i, 0), from->dim * dci_dtype_size(m.dtype));
        return m;
}

matrix matrix_view(const matrix *from, size_t first, size_t n)
{
        return (matrix){from->dtype, n, from->dim, from->ld, 0, matrix_at(from, first, 0)};
}

void matrix_free_each(size_t n, matrix *const *list)
{
        for (size_t i = 0; i < n; i++) {
                free(list[i]->data);
                list[i]->data = NULL;
        }
}

void *matrix_at(const matrix *m, size_t row, size_t column)
{
        return (unsigned char *)m->data + (row * m->ld + column) * dci_dtype_size(m->dtype);
}

double matrix_get(const matrix *m, size_t row, size_t column)
{
        float value;
        dci_kernels_scalar.to_f32[m->dtype - 1](matrix_at(m, row, column), 1, &value);
        return (double)value;
}

void matrix_set(const matrix *m, size_t row, size_t column, float value)
{
        dci_kernels_scalar.narrow[m->dtype - 1](&value, 1, matrix_at(m, row, column));
}

void matrix_multiply(const matrix *m, float factor)
{
        for (size_t i = 0; i < m->n; i++)
                for (size_t p = 0; p < m->dim; p++)
                        matrix_set(m, i, p, factor * (float)matrix_get(m, i, p));
}

long double matrix_dot(const matrix *a, size_t i, const matrix *b, size_t j, size_t dim)
{
        long double sum = 0;
        for (size_t p = 0; p < dim; p++)
                sum += (long double)matrix_get(a, i, p) * (long double)matrix_get(b, j, p);
        return sum;
}

long double matrix_norm2(const matrix *m, size_t row)
{
        return matrix_dot(m, row, m, row, m->dim);
}

void matrix_same(const matrix *a, const matrix *b)
{
        ck_assert_uint_eq(a->n_bytes, b->n_bytes);
        ck_assert_int_eq(memcmp(a->data, b->data, a->n_bytes), 0);
}

void matrix_gaps_are_empty(const matrix *m)
{
        for (size_t i = 0; i + 1 < m->n; i++)
                for (size_t p = m->dim; p < m->ld; p++)
                        if (!isnan(matrix_get(m, i, p)))
                                ck_abort_msg("row %zu has %g in column %zu of its gap", i, matrix_get(m, i, p), p);
}
