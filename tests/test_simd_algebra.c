/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The kernels of fits and of pages, at every level of this machine: products of a matrix with itself, double precision, extremes. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "simd/cpu.h"
#include "simd/kernels.h"

enum { MAX_N = 256 };
static const size_t dims[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 64, 80, 96, 127, 128, 129};
static const size_t counts[] = {1, 2, 7, 64, 255, 256};
enum { N_DIMS = sizeof dims / sizeof dims[0], N_COUNTS = sizeof counts / sizeof counts[0] };

/* The tables of this machine, scalar first. */
static size_t all_kernels(const dci_kernels *out[6])
{
        const size_t n = test_n_isas();
        for (size_t i = 0; i < n; i++)
                out[i] = test_kernels_of_level((int)i);
        return n;
}

static float product_of(const float *x, size_t ld, size_t n, size_t i, size_t j, bool fused)
{
        float sum = 0.0f;
        for (size_t p = 0; p < n; p++) {
                const float a = x[p * ld + j], b = x[p * ld + i];
                sum = fused ? fmaf(a, b, sum) : sum + a * b;
        }
        return sum;
}

/* Loops over dimensions. */
START_TEST(squares_are_sums_in_ascending_order)
{
        const size_t dim = dims[_i], ld = (dim + DCI_PRODUCT_COLUMNS - 1) / DCI_PRODUCT_COLUMNS * DCI_PRODUCT_COLUMNS;
        float *x = test_normal(MAX_N, ld, (uint64_t)_i), *out = malloc(ld * ld * sizeof *out);
        const dci_kernels *all[6];
        const size_t n_kernels = all_kernels(all);
        for (size_t k = 0; k < n_kernels; k++)
                for (size_t c = 0; c < N_COUNTS; c++) {
                        memset(out, 0xff, ld * ld * sizeof *out);
                        all[k]->squares(x, ld, counts[c], dim, out);
                        for (size_t i = 0; i < dim; i++)
                                for (size_t j = 0; j <= i; j++)
                                        test_hold(out[i * ld + j] ==
                                                  product_of(x, ld, counts[c], i, j, all[k]->isa != DCI_ISA_SCALAR));
                }
        test_free(x, out);
}
END_TEST

/* Loops over dimensions. Extremes are exact, distances are added row by row; nothing after is touched, with no rows nothing at all. */
START_TEST(pages_are_their_extremes_and_distances)
{
        static const size_t pages[] = {0, 1, 2, 31, 64};
        const size_t dim = dims[_i];
        const dci_kernels *all[6];
        const size_t n_kernels = all_kernels(all);
        for (size_t c = 0; c < sizeof pages / sizeof pages[0]; c++) {
                const size_t n = pages[c];
                float *rows = test_normal(n + 1, dim, (uint64_t)_i); /* the last one: what there is before */
                const float *before = rows + n * dim;
                for (size_t k = 0; k < n_kernels; k++) {
                        float most[130], least[130], sums[130];
                        for (size_t j = 0; j <= dim; j++)
                                most[j] = least[j] = sums[j] = j < dim ? before[j] : 77.0f;
                        all[k]->extend(rows, n, dim, most, least);
                        all[k]->add_distances(rows, n, dim, before, sums);
                        for (size_t j = 0; j < dim; j++) {
                                float high = before[j], low = before[j], sum = before[j];
                                for (size_t i = 0; i < n; i++) {
                                        high = fmaxf(high, rows[i * dim + j]);
                                        low = fminf(low, rows[i * dim + j]);
                                        sum += fabsf(rows[i * dim + j] - before[j]);
                                }
                                test_hold(most[j] == high && least[j] == low && sums[j] == sum);
                        }
                        test_hold(most[dim] == 77.0f && least[dim] == 77.0f && sums[dim] == 77.0f);
                }
                free(rows);
        }
}
END_TEST

static double *numbers(size_t n, dci_rng *rng)
{
        double *out = malloc((n + 1) * sizeof *out);
        for (size_t i = 0; i < n; i++)
                out[i] = ldexp((double)dci_rng_normal(rng) + 0x1p-40 * (double)dci_rng_normal(rng),
                               (int)dci_rng_below(rng, 40) - 20);
        out[n] = 77.0; /* which nothing may touch */
        return out;
}

static double naive_dot(const double *a, const double *b, size_t n)
{
        double s[8] = {0.0}, rest = 0.0;
        for (size_t i = 0; i < n; i++) {
                if (i < n / 8 * 8)
                        s[i % 8] += a[i] * b[i];
                else
                        rest += a[i] * b[i];
        }
        return (((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))) + rest;
}

/* Loops over lengths, from none on. */
START_TEST(doubles_are_the_same_bits_everywhere)
{
        const size_t n = (size_t)_i;
        dci_rng rng;
        dci_rng_seed(&rng, (uint64_t)_i);
        double *a = numbers(n, &rng), *b = numbers(n, &rng), *c = numbers(n, &rng);
        double *x = malloc((n + 1) * sizeof *x), *y = malloc((n + 1) * sizeof *y);
        const dci_kernels *all[6];
        const size_t n_kernels = all_kernels(all), n_bytes = (n + 1) * sizeof *a;
        for (size_t k = 0; k < n_kernels; k++) {
                test_hold(all[k]->dot_doubles(a, b, n) == naive_dot(a, b, n));
                memcpy(x, a, n_bytes);
                all[k]->add_doubles(x, b, 0.3, n);
                for (size_t i = 0; i < n; i++)
                        test_hold(x[i] == a[i] + 0.3 * b[i]);
                test_hold(x[n] == 77.0);
                memcpy(x, a, n_bytes);
                all[k]->add_two_doubles(x, b, -0.7, c, 1.1, n);
                for (size_t i = 0; i < n; i++)
                        test_hold(x[i] == (a[i] + -0.7 * b[i]) + 1.1 * c[i]);
                test_hold(x[n] == 77.0);
                memcpy(x, a, n_bytes);
                memcpy(y, b, n_bytes);
                all[k]->turn_doubles(x, y, 0.8, 0.6, n);
                for (size_t i = 0; i < n; i++) {
                        test_hold(y[i] == 0.6 * a[i] + 0.8 * b[i]);
                        test_hold(x[i] == 0.8 * a[i] - 0.6 * b[i]);
                }
                test_hold(x[n] == 77.0 && y[n] == 77.0);
        }
        test_free(a, b, c, x, y);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("simd_algebra");
        TCase *tcase = test_case(suite, "laws", 60);
        tcase_add_loop_test(tcase, squares_are_sums_in_ascending_order, 0, N_DIMS);
        tcase_add_loop_test(tcase, pages_are_their_extremes_and_distances, 0, N_DIMS);
        tcase_add_loop_test(tcase, doubles_are_the_same_bits_everywhere, 0, 140);
        return test_main(suite);
}
