/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The MIPS lift. Unit rows have test_transform.c. */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/npy.h"
#include "tests/common.h"
#include "tests/matrix.h"

static const dci_dtype dtypes[] = {DCI_F32, DCI_F16, DCI_BF16};
static const size_t dims[] = {1, 3, 15, 16, 17, 64, 80, 128, 784};
static const int32_t forms[] = {DCI_MIPS_SCALED, DCI_MIPS_UNSCALED};

static dci_mips new_mips(void)
{
        dci_mips mips;
        ck_ok(dci_mips_init(&mips, sizeof mips));
        return mips;
}

static dci_status fit(dci_context *context, dci_mips *mips, const matrix *keys, int32_t *out_grew)
{
        return dci_mips_fit(context, mips, keys->n, keys->dim, keys->dtype, keys->data, keys->ld, out_grew);
}

static dci_mips fitted(dci_context *context, const matrix *keys)
{
        dci_mips mips = new_mips();
        ck_ok(fit(context, &mips, keys, NULL));
        return mips;
}

static dci_status lift_keys(dci_context *context, const dci_mips *mips, int32_t form, const matrix *in,
                            const matrix *out)
{
        return dci_mips_keys(context, mips, form, in->n, in->dim, in->data, in->ld, out->data, out->ld);
}

static dci_status lift_queries(dci_context *context, const dci_mips *mips, int32_t form, const matrix *in,
                               const matrix *out)
{
        return dci_mips_queries(context, mips, form, in->n, in->dim, in->data, in->ld, out->data, out->ld);
}

static dci_status relift(dci_context *context, const dci_mips *mips, const matrix *lifted)
{
        return dci_mips_relift(context, mips, lifted->n, lifted->dim - 1, lifted->data, lifted->ld);
}

/* --- fitting c ---------------------------------------------------------------------------------------------------- */

START_TEST(the_first_fit_takes_the_largest_squared_norm)
{
        dci_context *context = test_context_of_level(_i), *scalar = test_context_isa(DCI_ISA_SCALAR);
        for (size_t t = 0; t < COUNT(dtypes); t++)
                for (size_t d = 0; d < COUNT(dims); d++) {
                        matrix keys = matrix_random(dtypes[t], 200, dims[d], dims[d] + 2, 11);
                        dci_mips mips = new_mips();
                        int32_t grew = -1;
                        ck_ok(fit(context, &mips, &keys, &grew));
                        ck_assert_int_eq(grew, 0);
                        long double longest = 0;
                        double wanted = 0;
                        for (size_t i = 0; i < keys.n; i++) {
                                matrix one = matrix_view(&keys, i, 1);
                                longest = fmaxl(longest, matrix_norm2(&keys, i));
                                wanted = fmax(wanted, fitted(scalar, &one).c_squared);
                        }
                        ck_assert_ldouble_eq_tol((long double)mips.c_squared, longest, 1e-14L * longest);
                        /* To the bit, because c decides which keys fit, whatever the level and the keys next to it. */
                        ck_assert(mips.c_squared == wanted);
                        matrix_free(&keys);
                }
        dci_context_destroy(context);
        dci_context_destroy(scalar);
}
END_TEST

START_TEST(c_squared_doubles_and_growths_are_few)
{
        dci_context *context = test_context(1);
        dci_mips mips = new_mips();
        int n_grew = 0;
        double first = 0, length = 1;
        for (int i = 0; i < 2000; i++, length *= 1.01) {
                float key[3] = {(float)length, 0, 0};
                double norm2 = (double)key[0] * (double)key[0], before = mips.c_squared;
                int32_t grew = -1;
                ck_ok(dci_mips_fit(context, &mips, 1, 3, DCI_F32, key, 3, &grew));
                if (i == 0)
                        first = mips.c_squared;
                ck_assert_int_eq(grew, i > 0 && mips.c_squared != before);
                n_grew += grew;
                ck_assert(mips.c_squared == ldexp(first, n_grew));
                ck_assert(mips.c_squared >= norm2 && mips.c_squared < 2 * norm2);
        }
        ck_assert_int_eq(n_grew, (int)ceil(2 * 1999 * log2(1.01)));
        dci_context_destroy(context);
}
END_TEST

START_TEST(shorter_keys_change_nothing)
{
        dci_context *context = test_context_of_level(_i);
        matrix keys = matrix_random(DCI_F32, 100, 64, 64, 12);
        dci_mips mips = fitted(context, &keys);
        const dci_mips before = mips;
        int32_t grew = -1;
        ck_ok(fit(context, &mips, &keys, &grew));
        ck_assert(mips.c_squared == before.c_squared && grew == 0);
        ck_ok(dci_mips_fit(context, &mips, 0, 64, DCI_BF16, NULL, 64, &grew));
        ck_assert(mips.c_squared == before.c_squared && grew == 0);
        matrix_free(&keys);
        dci_context_destroy(context);
}
END_TEST

START_TEST(zero_keys_fit_the_smallest_normal_f32)
{
        dci_context *context = test_context(1);
        dci_mips mips = new_mips();
        const float zeros[] = {0, 0, -0.0f, 0}, key[] = {3, 4};
        float lifted[6], query[3];
        int32_t grew = -1;
        ck_ok(dci_mips_fit(context, &mips, 0, 2, DCI_F32, NULL, 2, &grew));
        ck_assert(mips.c_squared == 0 && grew == 0);
        ck_ok(dci_mips_fit(context, &mips, 2, 2, DCI_F32, zeros, 2, &grew));
        ck_assert(mips.c_squared == (double)FLT_MIN && grew == 0);
        ck_ok(dci_mips_keys(context, &mips, DCI_MIPS_UNSCALED, 2, 2, zeros, 2, lifted, 3));
        ck_assert(lifted[2] == 0x1p-63f && lifted[5] == 0x1p-63f);
        ck_ok(dci_mips_queries(context, &mips, DCI_MIPS_UNSCALED, 1, 2, key, 2, query, 3));
        ck_assert(query[0] == 0.6f * 0x1p-63f && query[1] == 0.8f * 0x1p-63f && query[2] == 0);
        ck_ok(dci_mips_fit(context, &mips, 1, 2, DCI_F32, key, 2, &grew));
        ck_assert(mips.c_squared == 32 && grew == 1);
        dci_context_destroy(context);
}
END_TEST

/* --- lifting ------------------------------------------------------------------------------------------------------ */

/* |T_K(k) - T_Q(q)|^2 = 2 - 2 q.k / (c |q|) for every query and key; the unscaled form c^2 times that. */
static void check_identity(const dci_mips *mips, int32_t form, const matrix *keys, const matrix *queries,
                           const matrix *lifted_keys, const matrix *lifted_queries)
{
        long double c_squared = (long double)mips->c_squared;
        long double unit = form == DCI_MIPS_SCALED ? 1 : c_squared;
        for (size_t q = 0; q < queries->n; q++)
                for (size_t k = 0; k < keys->n; k++) {
                        long double distance = 0;
                        for (size_t p = 0; p <= keys->dim; p++) {
                                long double x = (long double)matrix_get(lifted_keys, k, p);
                                x -= (long double)matrix_get(lifted_queries, q, p);
                                distance += x * x / unit;
                        }
                        long double cosine = matrix_dot(queries, q, keys, k, keys->dim);
                        cosine /= sqrtl(c_squared * matrix_norm2(queries, q));
                        ck_assert_msg(fabsl(distance - (2 - 2 * cosine)) <= 1e-6L,
                                      "dim %zu query %zu key %zu: %Lg, not %Lg", keys->dim, q, k, distance,
                                      2 - 2 * cosine);
                }
}

START_TEST(lifted_distances_are_inner_products)
{
        /* Ordinary rows, the longest allowed, and short ones whose squares vanish in f32; c exact and with headroom. */
        static const float lengths[] = {1, 1e17f, 1e-25f};
        dci_context *context = test_context_of_level(_i);
        for (size_t d = 0; d < COUNT(dims); d++)
                for (size_t l = 0; l < COUNT(lengths); l++) {
                        matrix keys = matrix_random(DCI_F32, 12, dims[d], dims[d] + 2, 21);
                        matrix queries = matrix_random(DCI_F32, 4, dims[d], dims[d], 22);
                        matrix lifted_keys = matrix_empty(DCI_F32, 12, dims[d] + 1, dims[d] + 1);
                        matrix lifted_queries = matrix_empty(DCI_F32, 4, dims[d] + 1, dims[d] + 4);
                        matrix_multiply(&keys, lengths[l]);
                        matrix_multiply(&queries, lengths[l]);
                        dci_mips mips = fitted(context, &keys);
                        for (size_t twice = 0; twice < 2; twice++, mips.c_squared *= 2)
                                for (size_t f = 0; f < COUNT(forms); f++) {
                                        ck_ok(lift_keys(context, &mips, forms[f], &keys, &lifted_keys));
                                        ck_ok(lift_queries(context, &mips, forms[f], &queries, &lifted_queries));
                                        check_identity(&mips, forms[f], &keys, &queries, &lifted_keys, &lifted_queries);
                                }
                        matrix_free(&keys, &queries, &lifted_keys, &lifted_queries);
                }
        dci_context_destroy(context);
}
END_TEST

/* Rounding of the lift may swap keys whose products differ by 1e-6 of c |q|, no others. */
static void check_nearest(const dci_mips *mips, const matrix *keys, const matrix *queries, const matrix *lifted_keys,
                          const matrix *lifted_queries)
{
        for (size_t q = 0; q < queries->n; q++) {
                const float *query = matrix_at(queries, q, 0), *to = matrix_at(lifted_queries, q, 0);
                double largest = -INFINITY, nearest = INFINITY, of_nearest = 0;
                for (size_t k = 0; k < keys->n; k++) {
                        const float *key = matrix_at(keys, k, 0), *from = matrix_at(lifted_keys, k, 0);
                        double product = 0, distance = 0;
                        for (size_t p = 0; p < keys->dim; p++)
                                product += (double)query[p] * (double)key[p];
                        for (size_t p = 0; p <= keys->dim; p++)
                                distance += ((double)from[p] - (double)to[p]) * ((double)from[p] - (double)to[p]);
                        largest = fmax(largest, product);
                        if (distance < nearest) {
                                nearest = distance;
                                of_nearest = product;
                        }
                }
                ck_assert_double_ge(of_nearest,
                                    largest - 1e-6 * sqrt(mips->c_squared * (double)matrix_norm2(queries, q)));
        }
}

/* Every step-th row of a trace file as f32. */
static matrix trace_rows(dci_context *context, const char *name, size_t step)
{
        char path[4096];
        dci_npy npy;
        snprintf(path, sizeof path, "%s/%s", test_trace_dir(), name);
        ck_ok(dci_npy_read(context, path, &npy));
        ck_assert_int_eq(npy.type, DCI_NPY_F16);
        size_t dim = npy.shape[npy.n_dims - 1], n = 1;
        for (size_t i = 0; i + 1 < npy.n_dims; i++)
                n *= npy.shape[i];
        matrix from = {DCI_F16, n, dim, dim, 0, npy.data};
        matrix m = matrix_empty(DCI_F32, (n + step - 1) / step, dim, dim);
        for (size_t i = 0; i < m.n; i++)
                for (size_t p = 0; p < dim; p++)
                        matrix_set(&m, i, p, (float)matrix_get(&from, i * step, p));
        dci_npy_free(&npy);
        return m;
}

START_TEST(the_nearest_is_the_largest_inner_product)
{
        dci_context *context = test_context_of_level(_i / 2);
        bool trace = _i % 2 == 0;
        matrix keys = trace ? trace_rows(context, "keys.npy", 1) : matrix_random(DCI_F32, 3000, 17, 17, 23);
        matrix queries = trace ? trace_rows(context, "queries.npy", 61) : matrix_random(DCI_F32, 50, 17, 17, 24);
        matrix few = matrix_view(&keys, 0, 100);
        matrix lifted_keys = matrix_empty(DCI_F32, keys.n, keys.dim + 1, keys.dim + 1);
        matrix lifted_queries = matrix_empty(DCI_F32, queries.n, keys.dim + 1, keys.dim + 1);
        dci_mips mips = fitted(context, &keys);
        for (size_t f = 0; f < COUNT(forms); f++) {
                ck_ok(lift_keys(context, &mips, forms[f], &keys, &lifted_keys));
                ck_ok(lift_queries(context, &mips, forms[f], &queries, &lifted_queries));
                check_identity(&mips, forms[f], &few, &queries, &lifted_keys, &lifted_queries);
                check_nearest(&mips, &keys, &queries, &lifted_keys, &lifted_queries);
        }
        matrix_free(&keys, &queries, &lifted_keys, &lifted_queries);
        dci_context_destroy(context);
}
END_TEST

START_TEST(growing_in_batches_and_relifting_equals_one_fresh_lift)
{
        dci_context *context = test_context_of_level(_i);
        for (size_t d = 0; d < COUNT(dims); d++) {
                size_t dim = dims[d], n_batch = 20;
                matrix keys = matrix_random(DCI_F32, 100, dim, dim + 1, 31);
                for (size_t first = 0; first < keys.n; first += n_batch) { /* each is longer than the one before */
                        matrix batch = matrix_view(&keys, first, n_batch);
                        matrix_multiply(&batch, powf(1.7f, (float)(first / n_batch)));
                }
                matrix stored = matrix_empty(DCI_F32, keys.n, dim + 1, dim + 3), fresh = matrix_copy(&stored);
                dci_mips mips = new_mips();
                int n_grew = 0;
                for (size_t first = 0; first < keys.n; first += n_batch) {
                        matrix batch = matrix_view(&keys, first, n_batch), place = matrix_view(&stored, first, n_batch);
                        matrix older = matrix_view(&stored, 0, first);
                        int32_t grew = -1;
                        ck_ok(fit(context, &mips, &batch, &grew));
                        if (grew)
                                ck_ok(relift(context, &mips, &older));
                        ck_ok(lift_keys(context, &mips, DCI_MIPS_UNSCALED, &batch, &place));
                        n_grew += grew;
                }
                ck_assert_int_ge(n_grew, 2);
                ck_ok(lift_keys(context, &mips, DCI_MIPS_UNSCALED, &keys, &fresh));
                matrix_same(&stored, &fresh);
                for (size_t i = 0; i < keys.n; i++)
                        ck_assert_mem_eq(matrix_at(&stored, i, 0), matrix_at(&keys, i, 0), dim * sizeof(float));
                matrix_free(&keys, &stored, &fresh);
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(in_place_equals_out_of_place_at_every_level)
{
        dci_context *context = test_context_of_level(_i), *scalar = test_context_isa(DCI_ISA_SCALAR);
        for (size_t d = 0; d < COUNT(dims); d++)
                for (size_t f = 0; f < COUNT(forms); f++) {
                        matrix rows = matrix_random(DCI_F32, 9, dims[d], dims[d], 41);
                        matrix keys = matrix_widened(&rows, dims[d] + 1, dims[d] + 4), queries = matrix_copy(&keys);
                        matrix out = matrix_empty(DCI_F32, 9, dims[d] + 1, dims[d] + 4);
                        dci_mips mips = fitted(context, &rows);
                        keys.dim = queries.dim = dims[d];
                        ck_ok(lift_keys(context, &mips, forms[f], &rows, &out));
                        ck_ok(lift_keys(scalar, &mips, forms[f], &keys, &keys));
                        matrix_same(&keys, &out);
                        ck_ok(lift_queries(context, &mips, forms[f], &rows, &out));
                        ck_ok(lift_queries(scalar, &mips, forms[f], &queries, &queries));
                        matrix_same(&queries, &out);
                        matrix_gaps_are_empty(&out);
                        matrix_free(&rows, &keys, &queries, &out);
                }
        dci_context_destroy(context);
        dci_context_destroy(scalar);
}
END_TEST

START_TEST(zero_keys_go_to_the_pole_and_zero_queries_stay_zero)
{
        dci_context *context = test_context(1);
        dci_mips mips = new_mips();
        mips.c_squared = 9;
        const float zeros[2] = {0, 0};
        for (size_t f = 0; f < COUNT(forms); f++) {
                float key[3] = {NAN, NAN, NAN}, query[3] = {NAN, NAN, NAN};
                ck_ok(dci_mips_keys(context, &mips, forms[f], 1, 2, zeros, 2, key, 3));
                ck_ok(dci_mips_queries(context, &mips, forms[f], 1, 2, zeros, 2, query, 3));
                ck_assert(key[0] == 0 && key[1] == 0 && key[2] == (forms[f] == DCI_MIPS_SCALED ? 1 : 3));
                ck_assert(query[0] == 0 && query[1] == 0 && query[2] == 0);
        }
        dci_context_destroy(context);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

START_TEST(bad_numbers_are_named_and_nothing_changes)
{
        static const struct {
                float value;
                const char *part;
        } cases[] = {
                {NAN, "5 holds NaN or infinity"},
                {INFINITY, "5 holds NaN or infinity"},
                {-3e38f, "5 has squared norm 9.0"},
                {7e18f, "5 has squared norm 4.9"},
        };
        dci_context *context = test_context_of_level(_i);
        for (size_t c = 0; c < COUNT(cases); c++)
                for (size_t d = 0; d < COUNT(dims); d++) {
                        matrix rows = matrix_random(DCI_F32, 6, dims[d], dims[d], 51);
                        matrix_set(&rows, 5, dims[d] - 1, cases[c].value);
                        matrix out = matrix_widened(&rows, dims[d] + 1, dims[d] + 1), before = matrix_copy(&out);
                        dci_mips mips = new_mips();
                        int32_t grew = 7;
                        ck_refused(fit(context, &mips, &rows, &grew), DCI_ERR_NUMBER, cases[c].part);
                        ck_assert(mips.c_squared == 0 && grew == 7);
                        mips.c_squared = (double)FLT_MAX / 8;
                        for (size_t f = 0; f < COUNT(forms); f++) {
                                ck_refused(lift_keys(context, &mips, forms[f], &rows, &out), DCI_ERR_NUMBER,
                                           cases[c].part);
                                ck_refused(lift_queries(context, &mips, forms[f], &rows, &out), DCI_ERR_NUMBER,
                                           cases[c].part);
                        }
                        ck_refused(relift(context, &mips, &out), DCI_ERR_NUMBER, cases[c].part);
                        matrix_same(&out, &before);
                        matrix_free(&rows, &out, &before);
                }
        dci_context_destroy(context);
}
END_TEST

START_TEST(a_key_longer_than_c_is_named_and_nothing_is_written)
{
        dci_context *context = test_context_of_level(_i);
        matrix keys = matrix_random(DCI_F32, 50, 64, 64, 52);
        matrix lifted = matrix_widened(&keys, 65, 65), before = matrix_copy(&lifted);
        dci_mips mips = fitted(context, &keys);
        char part[64];
        size_t longest = 0;
        for (size_t i = 1; i < keys.n; i++)
                if (matrix_norm2(&keys, i) > matrix_norm2(&keys, longest))
                        longest = i;
        mips.c_squared = nextafter(mips.c_squared, 0);
        snprintf(part, sizeof part, "key %zu has squared norm", longest);
        for (size_t f = 0; f < COUNT(forms); f++)
                ck_refused(lift_keys(context, &mips, forms[f], &keys, &lifted), DCI_ERR_NUMBER, part);
        snprintf(part, sizeof part, "row %zu has squared norm", longest);
        ck_refused(relift(context, &mips, &lifted), DCI_ERR_NUMBER, part);
        matrix_same(&lifted, &before);
        matrix_free(&keys, &lifted, &before);
        dci_context_destroy(context);
}
END_TEST

START_TEST(bad_arguments_are_refused_with_their_values)
{
        float rows[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, out[12] = {0};
        const struct {
                int32_t form;
                size_t n, dim;
                const float *rows;
                size_t ld;
                float *out;
                size_t ld_out;
                dci_status status;
                const char *part;
        } cases[] = {
                {2, 2, 3, rows, 4, out, 4, DCI_ERR_INVALID, "unknown form 2"},
                {-1, 2, 3, rows, 4, out, 4, DCI_ERR_INVALID, "unknown form -1"},
                {0, 2, 0, rows, 4, out, 4, DCI_ERR_INVALID, "dim is 0"},
                {0, 2, ((size_t)1 << 20) + 1, rows, SIZE_MAX, out, SIZE_MAX, DCI_ERR_LIMIT, "dim is 1048577"},
                {0, 2, SIZE_MAX, rows, SIZE_MAX, out, SIZE_MAX, DCI_ERR_LIMIT, "dim is"},
                {0, 2, 3, NULL, 4, out, 4, DCI_ERR_INVALID, "is NULL and n is 2"},
                {0, 2, 3, rows, 4, NULL, 4, DCI_ERR_INVALID, "out is NULL and n is 2"},
                {0, 2, 3, rows, 2, out, 4, DCI_ERR_INVALID, "is 2, a row has 3 columns"},
                {0, 2, 3, rows, 4, out, 3, DCI_ERR_INVALID, "ld of out is 3, a row has 4 columns"},
                {0, 3, 3, rows, SIZE_MAX / 8, out, 4, DCI_ERR_LIMIT, "exceed the address space"},
                {0, 2, 3, rows, 4, out, SIZE_MAX, DCI_ERR_LIMIT, "out: 2 rows"},
                {0, 2, 3, rows, 3, rows, 4, DCI_ERR_INVALID, "(0 bytes apart, ld 4 and 3)"},
                {1, 2, 3, rows, 4, rows + 1, 4, DCI_ERR_INVALID, "(4 bytes apart, ld 4 and 4)"},
                {1, 1, 3, rows + 3, 4, rows, 4, DCI_ERR_INVALID, "(-12 bytes apart"},
        };
        dci_context *context = test_context(1);
        dci_mips mips = new_mips();
        mips.c_squared = 1000;
        for (size_t c = 0; c < COUNT(cases); c++) {
                ck_refused(dci_mips_keys(context, &mips, cases[c].form, cases[c].n, cases[c].dim, cases[c].rows,
                                         cases[c].ld, cases[c].out, cases[c].ld_out),
                           cases[c].status, cases[c].part);
                ck_refused(dci_mips_queries(context, &mips, cases[c].form, cases[c].n, cases[c].dim, cases[c].rows,
                                            cases[c].ld, cases[c].out, cases[c].ld_out),
                           cases[c].status, cases[c].part);
        }
        ck_refused(dci_mips_relift(context, &mips, 2, 3, rows, 3), DCI_ERR_INVALID, "ld of lifted is 3, a row has 4");
        ck_refused(dci_mips_relift(context, &mips, 2, 3, NULL, 4), DCI_ERR_INVALID, "lifted is NULL and n is 2");
        ck_refused(dci_mips_relift(context, &mips, 2, 0, rows, 4), DCI_ERR_INVALID, "dim is 0");
        ck_refused(dci_mips_fit(context, &mips, 2, 0, DCI_F32, rows, 4, NULL), DCI_ERR_INVALID, "dim is 0");
        ck_refused(dci_mips_fit(context, &mips, 2, 4, 9, rows, 4, NULL), DCI_ERR_INVALID, "unknown dtype 9");
        ck_refused(dci_mips_fit(context, &mips, 2, 4, DCI_F32, NULL, 4, NULL), DCI_ERR_INVALID,
                   "keys is NULL and n is 2");
        ck_refused(dci_mips_fit(context, &mips, SIZE_MAX, 4, DCI_F32, rows, 4, NULL), DCI_ERR_LIMIT, "exceed");
        for (size_t i = 0; i < 12; i++)
                ck_assert(rows[i] == (float)(i + 1) && out[i] == 0);
        ck_assert(mips.c_squared == 1000);
        dci_context_destroy(context);
}
END_TEST

START_TEST(a_lift_that_no_fit_made_is_refused)
{
        float key[3] = {1, 2, NAN};
        dci_context *context = test_context(1);
        dci_mips mips = new_mips();
        ck_refused(dci_mips_init(NULL, sizeof mips), DCI_ERR_INVALID, "dci_mips is NULL");
        ck_refused(dci_mips_init(&mips, sizeof mips - 1), DCI_ERR_INVALID, "dci_mips has size 15");
        ck_refused(dci_mips_keys(NULL, &mips, 0, 1, 2, key, 3, key, 3), DCI_ERR_INVALID, "context is NULL");
        ck_refused(dci_mips_keys(context, NULL, 0, 1, 2, key, 3, key, 3), DCI_ERR_INVALID, "mips is NULL");
        ck_refused(dci_mips_keys(context, &mips, 0, 1, 2, key, 3, key, 3), DCI_ERR_INVALID, "1 keys to lift: call");
        ck_refused(dci_mips_queries(context, &mips, 0, 1, 2, key, 3, key, 3), DCI_ERR_INVALID,
                   "1 queries to lift: call");
        ck_refused(dci_mips_relift(context, &mips, 1, 2, key, 3), DCI_ERR_INVALID, "c^2 is 0");
        /* But nothing lifts to nothing. */
        ck_ok(dci_mips_keys(context, &mips, 0, 0, 2, NULL, 2, NULL, 3));
        ck_ok(dci_mips_queries(context, &mips, 1, 0, 2, NULL, 2, NULL, 3));
        ck_ok(dci_mips_relift(context, &mips, 0, 2, NULL, 3));

        const double bad[] = {NAN, -1, INFINITY, (double)FLT_MAX};
        for (size_t b = 0; b < COUNT(bad); b++) {
                mips.c_squared = bad[b];
                ck_refused(dci_mips_fit(context, &mips, 1, 2, DCI_F32, key, 3, NULL), DCI_ERR_INVALID, "c_squared is");
                ck_refused(dci_mips_keys(context, &mips, 0, 1, 2, key, 3, key, 3), DCI_ERR_INVALID, "c_squared is");
        }
        mips.c_squared = 9;
        mips.struct_size = 0;
        ck_refused(dci_mips_fit(context, &mips, 1, 2, DCI_F32, key, 3, NULL), DCI_ERR_INVALID, "struct_size 0");
        ck_refused(dci_mips_queries(context, &mips, 0, 1, 2, key, 3, key, 3), DCI_ERR_INVALID, "struct_size 0");
        ck_assert(key[0] == 1 && key[1] == 2 && isnan(key[2]));
        dci_context_destroy(context);
}
END_TEST

START_TEST(results_are_the_same_at_any_thread_count)
{
        /* Seven workers' worth: see DCI_WORK_PER_WORKER. */
        static const int32_t n_threads[] = {1, 2, 7};
        matrix rows = matrix_random(DCI_F32, 7 * DCI_WORK_PER_WORKER / 80 + 1, 80, 80, 61);
        matrix wanted[3], out[3];
        for (size_t i = 0; i < 3; i++) {
                wanted[i] = matrix_widened(&rows, 81, 81);
                out[i] = matrix_copy(&wanted[i]);
        }
        for (size_t t = 0; t < COUNT(n_threads); t++) {
                dci_context *context = test_context(n_threads[t]);
                matrix *to = t == 0 ? wanted : out;
                dci_mips mips = fitted(context, &rows);
                ck_ok(lift_keys(context, &mips, DCI_MIPS_SCALED, &rows, &to[0]));
                ck_ok(lift_queries(context, &mips, DCI_MIPS_UNSCALED, &rows, &to[1]));
                ck_ok(relift(context, &mips, &to[2]));
                for (size_t i = 0; i < 3; i++)
                        matrix_same(&to[i], &wanted[i]);
                dci_context_destroy(context);
        }
        matrix_free(&rows);
        for (size_t i = 0; i < 3; i++) {
                matrix_free(&wanted[i]);
                matrix_free(&out[i]);
        }
}
END_TEST

int main(void)
{
        int n_isas = (int)test_n_isas();
        Suite *suite = suite_create("mips");
        TCase *lift = test_case(suite, "lift", 60);
        tcase_add_loop_test(lift, the_first_fit_takes_the_largest_squared_norm, 0, n_isas);
        tcase_add_test(lift, c_squared_doubles_and_growths_are_few);
        tcase_add_loop_test(lift, shorter_keys_change_nothing, 0, n_isas);
        tcase_add_test(lift, zero_keys_fit_the_smallest_normal_f32);
        tcase_add_loop_test(lift, lifted_distances_are_inner_products, 0, n_isas);
        tcase_add_loop_test(lift, the_nearest_is_the_largest_inner_product, 0, 2 * n_isas);
        tcase_add_loop_test(lift, growing_in_batches_and_relifting_equals_one_fresh_lift, 0, n_isas);
        tcase_add_loop_test(lift, in_place_equals_out_of_place_at_every_level, 0, n_isas);
        tcase_add_test(lift, zero_keys_go_to_the_pole_and_zero_queries_stay_zero);
        tcase_add_test(lift, results_are_the_same_at_any_thread_count);

        TCase *refusals = test_case(suite, "refusals", 60);
        tcase_add_loop_test(refusals, bad_numbers_are_named_and_nothing_changes, 0, n_isas);
        tcase_add_loop_test(refusals, a_key_longer_than_c_is_named_and_nothing_is_written, 0, n_isas);
        tcase_add_test(refusals, bad_arguments_are_refused_with_their_values);
        tcase_add_test(refusals, a_lift_that_no_fit_made_is_refused);
        return test_main(suite);
}
