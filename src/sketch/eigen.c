/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Eigenvectors of a symmetric matrix: Householder's reduction to a tridiagonal one, then implicit QL steps with
 * Wilkinson's shift (Golub and Van Loan, Matrix Computations, chapter 8). Our own, because LAPACK would start
 * OpenBLAS's threads, and because a fit has to give the same bits everywhere: kernels of a fixed order. */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "sketch/fit.h"

#define MAX_STEPS 60 /* of one eigenvalue; three are usual */

/* Row k's part beyond the diagonal becomes (alpha, 0, ..): the reflector v of I - beta v v^T is stored there. p: n. */
static double reflect(const dci_kernels *kernels, size_t n, double *a, size_t k, double *p, double *out_beta)
{
        const size_t m = n - k - 1;
        double *v = a + k * n + k + 1;
        const double length = sqrt(kernels->dot_doubles(v, v, m));
        *out_beta = 0.0;
        if (length == 0.0)
                return 0.0;
        const double alpha = v[0] > 0.0 ? -length : length;
        v[0] -= alpha;
        const double beta = *out_beta = 2.0 / kernels->dot_doubles(v, v, m);
        for (size_t i = 0; i < m; i++)
                p[i] = beta * kernels->dot_doubles(a + (k + 1 + i) * n + k + 1, v, m);
        const double half = 0.5 * beta * kernels->dot_doubles(p, v, m);
        kernels->add_doubles(p, v, -half, m);
        for (size_t i = 0; i < m; i++) {
                double *row = a + (k + 1 + i) * n + k + 1;
                kernels->add_two_doubles(row, p, -v[i], v, -p[i], m);
        }
        return alpha;
}

/* The diagonal and the off-diagonal (off[i] is between i and i + 1), and as rows the transformation that led there. */
static void tridiagonal(const dci_kernels *kernels, size_t n, double *a, double *diagonal, double *off, double *rows)
{
        double *p = rows; /* free until the end */
        for (size_t k = 0; k + 2 < n; k++) {
                double beta;
                off[k] = reflect(kernels, n, a, k, p, &beta);
                diagonal[k] = a[k * n + k];
                a[k * n + k] = beta;
        }
        if (n >= 2) {
                off[n - 2] = a[(n - 2) * n + n - 1];
                diagonal[n - 2] = a[(n - 2) * n + n - 2];
        }
        diagonal[n - 1] = a[(n - 1) * n + n - 1];
        off[n - 1] = 0.0;
        /* rows = H_last .. H_1 H_0, built from the right factor on: H_k does not change rows up to k. */
        memset(rows, 0, n * n * sizeof *rows);
        for (size_t i = 0; i < n; i++)
                rows[i * n + i] = 1.0;
        for (size_t k = n < 2 ? 0 : n - 2; k-- > 0;) {
                const size_t m = n - k - 1;
                const double *v = a + k * n + k + 1, beta = a[k * n + k];
                /* (H_last .. H_{k+1}) H_k: every row below k turns */
                for (size_t i = k + 1; i < n; i++) {
                        double *row = rows + i * n + k + 1;
                        kernels->add_doubles(row, v, -beta * kernels->dot_doubles(row, v, m), m);
                }
        }
}

/* Without a library's care for the smallest and the largest numbers: numbers here are near the matrix in size, or 0. */
static double hypotenuse(double a, double b)
{
        return sqrt(a * a + b * b);
}

/* One implicit QL step on [first, last]. */
static void ql_step(const dci_kernels *kernels, size_t n, size_t first, size_t last, double *diagonal, double *off,
                    double *rows)
{
        double g = (diagonal[first + 1] - diagonal[first]) / (2.0 * off[first]), r = hypotenuse(g, 1.0);
        double s = 1.0, c = 1.0, p = 0.0;
        g = diagonal[last] - diagonal[first] + off[first] / (g + copysign(r, g));
        for (size_t i = last; i-- > first;) {
                const double f = s * off[i], b = c * off[i];
                r = hypotenuse(f, g);
                off[i + 1] = r;
                if (r == 0.0) {
                        diagonal[i + 1] -= p;
                        off[last] = 0.0;
                        return;
                }
                s = f / r;
                c = g / r;
                g = diagonal[i + 1] - p;
                r = (diagonal[i] - g) * s + 2.0 * c * b;
                p = s * r;
                diagonal[i + 1] = g + p;
                g = c * r - b;
                kernels->turn_doubles(rows + i * n, rows + (i + 1) * n, c, s, n);
        }
        diagonal[first] -= p;
        off[first] = g;
        off[last] = 0.0;
}

/* Insertion sort by value; rows move with them. */
static void sort_descending(size_t n, double *values, double *rows, double *spare)
{
        for (size_t i = 0; i < n; i++) {
                size_t best = i;
                for (size_t j = i + 1; j < n; j++)
                        if (values[j] > values[best])
                                best = j;
                const double value = values[i];
                values[i] = values[best];
                values[best] = value;
                if (best == i)
                        continue;
                memcpy(spare, rows + i * n, n * sizeof *rows);
                memcpy(rows + i * n, rows + best * n, n * sizeof *rows);
                memcpy(rows + best * n, spare, n * sizeof *rows);
        }
}

bool dci_eigen(const dci_kernels *kernels, size_t n, double *matrix, double *values, double *vectors, double *work)
{
        double *off = work;
        double most = 0.0;
        tridiagonal(kernels, n, matrix, values, off, vectors);
        for (size_t i = 0; i < n; i++)
                most = fmax(most, fabs(values[i]) + fabs(off[i]));
        for (size_t first = 0; first < n; first++) {
                for (int step = 0;; step++) {
                        size_t last = first;
                        for (; last + 1 < n; last++) {
                                if (!(fabs(off[last]) > DBL_EPSILON * most))
                                        break;
                        }
                        if (last == first)
                                break;
                        if (step == MAX_STEPS || !isfinite(off[first]))
                                return false;
                        ql_step(kernels, n, first, last, values, off, vectors);
                }
        }
        sort_descending(n, values, vectors, work + n);
        return true;
}
