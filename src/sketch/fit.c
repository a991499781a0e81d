/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "sketch/fit.h"

/* Added to the second moment of queries, as a share of its mean on the diagonal: unseen directions still count a
 * little. */
#define FLOOR 1e-2
/* Of the largest variance of a coordinate, and of the rows' mean square: the least variance. */
#define SMALLEST 1e-12
/* The rows' deviation, or how far their mean is from the origin: with what lies between these, no row and no query that
 * is taken overflows binary32 in units of the smallest deviation, or of the largest. */
#define MIN_SPREAD 0x1p-36
#define MAX_SPREAD 0x1p50

/* --- moments ------------------------------------------------------------------------------------------------------ */

static size_t square_of(size_t dim)
{
        return dci_lines(dim * dim * sizeof(double));
}

size_t dci_moments_kept_bytes(size_t dim)
{
        return dci_lines(dim * sizeof(double)) + square_of(dim) + dci_lines(dim * sizeof(float));
}

static size_t padded(size_t dim)
{
        return (dim + DCI_PRODUCT_COLUMNS - 1) / DCI_PRODUCT_COLUMNS * DCI_PRODUCT_COLUMNS;
}

size_t dci_moments_bytes(size_t dim)
{
        return dci_moments_kept_bytes(dim) + (DCI_MOMENT_ROWS + padded(dim)) * padded(dim) * sizeof(float);
}

void dci_moments_init(const dci_kernels *kernels, size_t dim, void *memory, dci_moments *out)
{
        unsigned char *at = memory;
        *out = (dci_moments){.kernels = kernels, .dim = dim, .sum = memory};
        at += dci_lines(dim * sizeof(double));
        out->products = (double *)(void *)at;
        at += square_of(dim);
        out->shift = (float *)(void *)at;
        at += dci_lines(dim * sizeof(float));
        out->tile = (float *)(void *)at;
        out->part = out->tile + DCI_MOMENT_ROWS * padded(dim);
        /* The padding between the parts, too: the kept bytes go to files. */
        memset(memory, 0, dci_moments_kept_bytes(dim));
}

void dci_moments_add(dci_moments *moments, const float *rows, size_t ld, size_t n)
{
        const size_t dim = moments->dim, wide = padded(dim);
        float *sum = moments->part;
        if (n == 0)
                return;
        if (moments->n == 0)
                memcpy(moments->shift, rows, dim * sizeof *rows);
        memset(sum, 0, dim * sizeof *sum);
        for (size_t i = 0; i < n; i++) {
                float *to = moments->tile + i * wide;
                for (size_t j = 0; j < dim; j++) {
                        to[j] = rows[i * ld + j] - moments->shift[j];
                        sum[j] += to[j];
                }
                memset(to + dim, 0, (wide - dim) * sizeof *to);
        }
        for (size_t j = 0; j < dim; j++)
                moments->sum[j] += (double)sum[j];
        moments->kernels->squares(moments->tile, wide, n, dim, moments->part);
        for (size_t i = 0; i < dim; i++)
                for (size_t j = 0; j <= i; j++)
                        moments->products[i * dim + j] += (double)moments->part[i * wide + j];
        moments->n += n;
}

void dci_moments_finish(dci_moments *moments)
{
        const size_t dim = moments->dim;
        for (size_t i = 0; i < dim; i++)
                for (size_t j = 0; j < i; j++)
                        moments->products[j * dim + i] = moments->products[i * dim + j];
}

/* The mean, and the second moment about it or about the origin. */
static void settle(const dci_moments *moments, bool about_mean, double *mean, double *out)
{
        const size_t dim = moments->dim;
        const double share = 1.0 / (double)moments->n;
        for (size_t j = 0; j < dim; j++)
                mean[j] = moments->sum[j] * share;
        for (size_t i = 0; i < dim; i++)
                for (size_t j = 0; j <= i; j++) {
                        const double a = mean[i], b = mean[j];
                        double product = moments->products[i * dim + j] * share - a * b;
                        if (!about_mean)
                                product += (a + (double)moments->shift[i]) * (b + (double)moments->shift[j]);
                        out[i * dim + j] = out[j * dim + i] = product;
                }
        for (size_t j = 0; j < dim; j++)
                mean[j] += (double)moments->shift[j];
}

/* --- small dense algebra, double precision, a fixed order --------------------------------------------------------- */

/* In place: the lower triangle becomes L with L L^T the matrix. False unless it is positive definite. */
static bool cholesky(const dci_kernels *kernels, size_t n, double *a)
{
        for (size_t i = 0; i < n; i++) {
                for (size_t j = 0; j <= i; j++) {
                        const double rest = a[i * n + j] - kernels->dot_doubles(a + i * n, a + j * n, j);
                        if (j < i)
                                a[i * n + j] = rest / a[j * n + j];
                        else if (!(rest > 0.0) || !isfinite(rest))
                                return false;
                        else
                                a[i * n + i] = sqrt(rest);
                }
                memset(a + i * n + i + 1, 0, (n - i - 1) * sizeof *a);
        }
        return true;
}

/* out = L^T C L, for symmetric C. spare: n x n. */
static void between(const dci_kernels *kernels, size_t n, const double *l, const double *c, double *spare, double *out)
{
        memset(spare, 0, n * n * sizeof *spare);
        memset(out, 0, n * n * sizeof *out);
        for (size_t i = 0; i < n; i++) /* C L */
                for (size_t k = 0; k < n; k++)
                        kernels->add_doubles(spare + i * n, l + k * n, c[i * n + k], k + 1);
        for (size_t k = 0; k < n; k++) /* L^T (C L) */
                for (size_t i = 0; i <= k; i++)
                        kernels->add_doubles(out + i * n, spare + k * n, l[k * n + i], n);
}

/* x with L^T x = u, in place. */
static void solve_transposed(const dci_kernels *kernels, size_t n, const double *l, double *x)
{
        for (size_t i = n; i-- > 0;) {
                x[i] /= l[i * n + i];
                kernels->add_doubles(x, l + i * n, -x[i], i);
        }
}

/* --- the fit ------------------------------------------------------------------------------------------------------ */

/* A row of each matrix from an eigenvector and the deviation of its coordinate. */
static void fill_coordinate(dci_coder *coder, size_t at, const double *l, const double *vector, double spread,
                            double *spare)
{
        const dci_kernels *kernels = coder->kernels;
        const size_t n = coder->dim;
        const bool coded = at < coder->n_coded;
        const double unit = coded ? spread * (double)dci_coder_unit(dci_coder_width(coder, at)) : 1.0;
        const double inverse = coded ? 1.0 / spread : 1.0;
        for (size_t k = 0; k < n; k++) /* L u */
                coder->to[at * n + k] = (float)(inverse * kernels->dot_doubles(l + k * n, vector, k + 1));
        memcpy(spare, vector, n * sizeof *spare);
        solve_transposed(kernels, n, l, spare);
        for (size_t j = 0; j < n; j++)
                coder->from[at * n + j] = (float)(spare[j] * unit);
        coder->worth[at] = (float)unit;
}

static void fill_padding(dci_coder *coder, size_t at)
{
        memset(coder->to + at * coder->dim, 0, coder->dim * sizeof *coder->to);
        memset(coder->from + at * coder->dim, 0, coder->dim * sizeof *coder->from);
        coder->worth[at] = 0.0f;
}

size_t dci_fit_scratch_bytes(size_t dim)
{
        return 4 * square_of(dim) + 4 * dci_lines(dim * sizeof(double)) +
               2 * dci_lines((dim / DCI_CODE_GROUP + 1) * sizeof(double));
}

/* Groups in the order of the layout, then the others. */
static void plan(dci_coder *coder, const double *energy, double *groups, uint32_t *order)
{
        const size_t dim = coder->dim, n_groups = coder->n_coords / DCI_CODE_GROUP;
        bool coded[DCI_CODE_GROUPS] = {false};
        size_t words = ((size_t)coder->bits * dim + 16) / 32;
        memset(groups, 0, n_groups * sizeof *groups);
        for (size_t j = 0; j < dim; j++)
                groups[j / DCI_CODE_GROUP] += energy[j];
        size_t n = dci_plan_layout(n_groups, groups, words == 0 ? 1 : words,
                                   coder->alone ? DCI_CODE_MIXED : DCI_CODE_TABLE, &coder->layout, order);
        for (size_t i = 0; i < n; i++)
                coded[order[i]] = true;
        for (size_t g = 0; g < n_groups; g++)
                if (!coded[g])
                        order[n++] = (uint32_t)g;
}

dci_status dci_fit(const dci_moments *rows, const dci_moments *queries, void *scratch, dci_coder *coder)
{
        const dci_kernels *kernels = coder->kernels;
        const size_t n = coder->dim, line = dci_lines(n * sizeof(double)) / sizeof(double);
        const size_t square = square_of(n) / sizeof(double);
        double *l = scratch, *c = l + square, *m = c + square, *vectors = m + square;
        double *mean = vectors + square, *energy = mean + line, *work = energy + line, *groups = work + 2 * line;
        uint32_t *order = (uint32_t *)(void *)(groups + dci_lines((n / 4 + 1) * sizeof(double)) / sizeof(double));
        settle(queries, false, mean, l);
        double trace = 0.0;
        for (size_t j = 0; j < n; j++)
                trace += l[j * n + j];
        if (!(trace > 0.0) || !isfinite(trace))
                return dci_fail(DCI_ERR_NUMBER, "the queries' mean square is %g, expected more than 0 and finite",
                                trace < 0.0 ? 0.0 : trace); /* what rounding makes of squares that vanish */
        /* How long queries are does not matter, so their mean square coordinate becomes 1. */
        for (size_t i = 0; i < n * n; i++)
                l[i] *= (double)n / trace;
        for (size_t j = 0; j < n; j++)
                l[j * n + j] += FLOOR;
        settle(rows, true, mean, c);
        if (!cholesky(kernels, n, l))
                return dci_fail(
                        DCI_ERR_NUMBER,
                        "the queries' second moment, trace %g, is not finite, or so small that their squares vanish",
                        trace);
        between(kernels, n, l, c, vectors, m);
        if (!dci_eigen(kernels, n, m, energy, vectors, work))
                return dci_fail(DCI_ERR_NUMBER, "the rows' covariance is too large for a fit");
        /* A coordinate in which the sample does not vary still has to hold what other rows have there. */
        const double far = (double)n * kernels->dot_doubles(mean, mean, n); /* |L^T mean|^2 at most */
        const double most = energy[0] > far ? energy[0] : far;
        if (!isfinite(energy[0]) || (most > 0.0 && !(sqrt(most) >= MIN_SPREAD && sqrt(most) <= MAX_SPREAD)))
                return dci_fail(DCI_ERR_NUMBER, "the rows' deviation is %g, expected 0, or %g to %g, for a fit",
                                sqrt(most), MIN_SPREAD, MAX_SPREAD);
        const double least = most > 0.0 ? SMALLEST * most : 1.0;
        for (size_t j = 0; j < n; j++) {
                energy[j] = energy[j] > least ? energy[j] : least;
                coder->centre[j] = (float)mean[j];
        }
        plan(coder, energy, groups, order);
        dci_coder_finish_learned(coder);
        for (size_t at = 0; at < coder->n_coords; at++) {
                const size_t j = order[at / DCI_CODE_GROUP] * DCI_CODE_GROUP + at % DCI_CODE_GROUP;
                if (j < n)
                        fill_coordinate(coder, at, l, vectors + j * n, sqrt(energy[j]), work);
                else
                        fill_padding(coder, at);
        }
        return DCI_OK;
}
