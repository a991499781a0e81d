/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A part of kernels_template.h: products of a matrix with itself, and the small algebra of fits in double precision.
 * Defined before: as there. Plain loops over doubles, from which the compiler makes vectors: each element has its own
 * sums, so that the bits are the same. */
#include "simd/kernels.h"

/* Of rows r to r + n_rows - 1 of the square, PRODUCT_VECTORS vectors from column c on. */
DCI_INLINE void square_block(const float *x, size_t ld, size_t n, size_t r, size_t n_rows, size_t c, float *out)
{
        V sum[PRODUCT_ROWS][PRODUCT_VECTORS];
        UNROLL for (size_t i = 0; i < n_rows; i++)
        {
                UNROLL for (size_t v = 0; v < PRODUCT_VECTORS; v++) sum[i][v] = v_zero();
        }
        for (size_t p = 0; p < n; p++) {
                const float *row = x + p * ld;
                V y[PRODUCT_VECTORS];
                UNROLL for (size_t v = 0; v < PRODUCT_VECTORS; v++) y[v] = v_load_f32(row + c + v * DCI_LANES);
                UNROLL for (size_t i = 0; i < n_rows; i++)
                {
                        const V here = v_all(row[r + i]);
                        UNROLL for (size_t v = 0; v < PRODUCT_VECTORS; v++) sum[i][v] = v_fma(y[v], here, sum[i][v]);
                }
        }
        UNROLL for (size_t i = 0; i < n_rows; i++)
        {
                UNROLL for (size_t v = 0; v < PRODUCT_VECTORS; v++)
                        v_store(out + (r + i) * ld + c + v * DCI_LANES, sum[i][v]);
        }
}

static void squares(const float *x, size_t ld, size_t n, size_t dim, float *out)
{
        for (size_t c = 0; c < dim; c += PRODUCT_VECTORS * DCI_LANES) {
                size_t r = c;
                for (; r + PRODUCT_ROWS <= dim; r += PRODUCT_ROWS)
                        square_block(x, ld, n, r, PRODUCT_ROWS, c, out);
                for (; r + PRODUCT_ROWS / 3 <= dim; r += PRODUCT_ROWS / 3)
                        square_block(x, ld, n, r, PRODUCT_ROWS / 3, c, out);
                for (; r < dim; r++)
                        square_block(x, ld, n, r, 1, c, out);
        }
}

#define DOT_SUMS ((size_t)8)

static double dot_doubles(const double *a, const double *b, size_t n)
{
        double sum[DOT_SUMS] = {0.0}, rest = 0.0;
        size_t i = 0;
        for (; i + DOT_SUMS <= n; i += DOT_SUMS)
                for (size_t j = 0; j < DOT_SUMS; j++)
                        sum[j] += a[i + j] * b[i + j];
        for (; i < n; i++)
                rest += a[i] * b[i];
        for (size_t j = 0; j < 4; j++)
                sum[j] += sum[j + 4];
        return ((sum[0] + sum[2]) + (sum[1] + sum[3])) + rest;
}

static void add_doubles(double *restrict to, const double *restrict from, double factor, size_t n)
{
        for (size_t i = 0; i < n; i++)
                to[i] += factor * from[i];
}

static void add_two_doubles(double *restrict to, const double *restrict a, double by_a, const double *restrict b,
                            double by_b, size_t n)
{
        for (size_t i = 0; i < n; i++)
                to[i] = (to[i] + by_a * a[i]) + by_b * b[i];
}

static void turn_doubles(double *restrict upper, double *restrict lower, double c, double s, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const double f = lower[i], g = upper[i];
                lower[i] = s * g + c * f;
                upper[i] = c * g - s * f;
        }
}
