/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Unit rows. The lift has test_mips.c. */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/common.h"
#include "tests/matrix.h"

static const dci_dtype dtypes[] = {DCI_F32, DCI_F16, DCI_BF16};
static const size_t dims[] = {1, 3, 15, 16, 17, 64, 80, 128, 784};
static const size_t gaps[] = {0, 1, 5};

static dci_status cosine(dci_context *context, const matrix *in, int32_t zero_rows, const matrix *out)
{
        return dci_cosine_transform(context, in->n, in->dim, in->dtype, in->data, in->ld, zero_rows, out->data,
                                    out->ld);
}

/* --- the numbers that come out ------------------------------------------------------------------------------------ */

/* Each element is x / |x| rounded once, give or take a thousandth of a rounding for the arithmetic before it. */
static void check_units(const matrix *in, const matrix *out)
{
        static const long double rounding[] = {0, 0x1p-24L, 0x1p-11L, 0x1p-8L};
        static const long double smallest[] = {0, 0x1p-149L, 0x1p-24L, 0x1p-133L};
        for (size_t i = 0; i < in->n; i++) {
                long double length = sqrtl(matrix_norm2(in, i));
                for (size_t p = 0; p < in->dim; p++) {
                        long double wanted = (long double)matrix_get(in, i, p) / length;
                        long double got = (long double)matrix_get(out, i, p);
                        long double bound = fmaxl(fabsl(wanted) * rounding[in->dtype], smallest[in->dtype] / 2);
                        if (fabsl(got - wanted) > 1.001L * bound) /* an assertion for each element would take seconds */
                                ck_abort_msg("%s dim %zu row %zu column %zu: %Lg, not %Lg", dci_dtype_name(in->dtype),
                                             in->dim, i, p, got, wanted);
                }
                long double excess = sqrtl(matrix_norm2(out, i)) - 1;
                ck_assert_msg(in->dtype != DCI_F32 || fabsl(excess) <= 4 * 0x1p-23L,
                              "dim %zu row %zu: length off by %Lg", in->dim, i, excess);
        }
}

START_TEST(unit_rows_are_the_exact_quotients_rounded)
{
        dci_context *context = test_context_of_level(_i);
        for (size_t t = 0; t < COUNT(dtypes); t++)
                for (size_t d = 0; d < COUNT(dims); d++)
                        for (size_t g = 0; g < COUNT(gaps); g++) {
                                matrix in = matrix_random(dtypes[t], 19, dims[d], dims[d] + gaps[g], 1 + d);
                                matrix out = matrix_empty(dtypes[t], 19, dims[d], dims[d] + gaps[COUNT(gaps) - 1 - g]);
                                ck_ok(cosine(context, &in, DCI_ZERO_REFUSE, &out));
                                check_units(&in, &out);
                                matrix_gaps_are_empty(&out);
                                matrix_free(&in, &out);
                        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(tiny_and_huge_rows_become_units_too)
{
        /* Magnitudes whose squares overflow or underflow in f32, alone and next to each other. */
        static const struct {
                dci_dtype dtype;
                float even, odd;
        } cases[] = {
                {DCI_F32, 0x1p-149f, 0x1p-149f}, {DCI_F32, 1e-40f, 3e-42f}, {DCI_F32, 1e-30f, -1e-30f},
                {DCI_F32, 1e-22f, 1e-23f},       {DCI_F32, 1e-19f, 0},      {DCI_F32, 2e17f, -2e17f},
                {DCI_F32, 2e17f, 1e-45f},        {DCI_F16, 0x1p-24f, 0},    {DCI_F16, 65504, -65504},
                {DCI_F16, 65504, 0x1p-24f},      {DCI_BF16, 0x1p-133f, 0},  {DCI_BF16, 0x1p-70f, 0x1p-64f},
                {DCI_BF16, 0x1p57f, -0x1p-57f},
        };
        dci_context *context = test_context_of_level(_i);
        for (size_t c = 0; c < COUNT(cases); c++)
                for (size_t d = 0; d < COUNT(dims); d++) {
                        matrix in = matrix_empty(cases[c].dtype, 1, dims[d], dims[d]), out = matrix_copy(&in);
                        for (size_t p = 0; p < dims[d]; p++)
                                matrix_set(&in, 0, p, p % 2 == 0 ? cases[c].even : cases[c].odd);
                        ck_ok(cosine(context, &in, DCI_ZERO_REFUSE, &out));
                        check_units(&in, &out);
                        matrix_free(&in, &out);
                }
        dci_context_destroy(context);
}
END_TEST

START_TEST(rows_of_the_largest_dim_become_units)
{
        size_t dim = (size_t)1 << 20;
        dci_context *context = test_context_of_level(_i);
        matrix in = matrix_random(DCI_F32, 2, dim, dim, 5), out = matrix_copy(&in);
        for (size_t p = 0; p < dim; p++) /* roundings of one sign: a sum in f32 would be off by far more than 4 ulp */
                matrix_set(&in, 1, p, 0.1f);
        ck_ok(cosine(context, &in, DCI_ZERO_REFUSE, &out));
        check_units(&in, &out);
        matrix_free(&in, &out);
        dci_context_destroy(context);
}
END_TEST

START_TEST(in_place_equals_out_of_place)
{
        dci_context *context = test_context_of_level(_i);
        for (size_t t = 0; t < COUNT(dtypes); t++)
                for (size_t d = 0; d < COUNT(dims); d++)
                        for (size_t g = 0; g < COUNT(gaps); g++) {
                                matrix rows = matrix_random(dtypes[t], 7, dims[d], dims[d] + gaps[g], 3);
                                matrix out = matrix_empty(dtypes[t], 7, dims[d], dims[d] + gaps[g]);
                                ck_ok(cosine(context, &rows, DCI_ZERO_REFUSE, &out));
                                ck_ok(cosine(context, &rows, DCI_ZERO_REFUSE, &rows));
                                matrix_same(&rows, &out);
                                matrix_free(&rows, &out);
                        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(every_level_gives_the_same_bits)
{
        dci_context *context = test_context_of_level(_i), *scalar = test_context_isa(DCI_ISA_SCALAR);
        for (size_t t = 0; t < COUNT(dtypes); t++)
                for (size_t d = 0; d < COUNT(dims); d++) {
                        matrix rows = matrix_random(dtypes[t], 50, dims[d], dims[d], 6);
                        matrix out = matrix_copy(&rows), wanted = matrix_copy(&rows);
                        ck_ok(cosine(context, &rows, DCI_ZERO_REFUSE, &out));
                        ck_ok(cosine(scalar, &rows, DCI_ZERO_REFUSE, &wanted));
                        matrix_same(&out, &wanted);
                        matrix_free(&rows, &out, &wanted);
                }
        dci_context_destroy(context);
        dci_context_destroy(scalar);
}
END_TEST

/* --- the numbers that go in --------------------------------------------------------------------------------------- */

START_TEST(zero_rows_are_refused_or_kept_as_asked)
{
        dci_context *context = test_context_of_level(_i);
        for (size_t t = 0; t < COUNT(dtypes); t++) {
                matrix rows = matrix_random(dtypes[t], 5, 17, 17, 4), out = matrix_copy(&rows),
                       before = matrix_copy(&rows);
                for (size_t p = 0; p < 17; p++)
                        matrix_set(&rows, 3, p, p == 1 ? -0.0f : 0);
                ck_refused(cosine(context, &rows, DCI_ZERO_REFUSE, &out), DCI_ERR_NUMBER, "row 3 is zero");
                matrix_same(&out, &before);
                ck_ok(cosine(context, &rows, DCI_ZERO_KEEP, &out));
                ck_assert_mem_eq(matrix_at(&out, 3, 0), matrix_at(&rows, 3, 0), 17 * dci_dtype_size(dtypes[t]));
                matrix head = matrix_view(&rows, 0, 3), head_out = matrix_view(&out, 0, 3);
                check_units(&head, &head_out);
                matrix tail = matrix_view(&rows, 4, 1), tail_out = matrix_view(&out, 4, 1);
                check_units(&tail, &tail_out);
                matrix_free(&rows, &out, &before);
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(bad_numbers_are_named_and_nothing_is_written)
{
        static const struct {
                dci_dtype dtype;
                float value;
                const char *part;
        } cases[] = {
                {DCI_F32, NAN, "row 5 holds NaN or infinity"},
                {DCI_F32, -INFINITY, "row 5 holds NaN or infinity"},
                {DCI_F32, 3e38f, "row 5 has squared norm 9.0"},
                {DCI_F32, 7e18f, "row 5 has squared norm 4.9"},
                {DCI_F16, NAN, "row 5 holds NaN or infinity"},
                {DCI_F16, INFINITY, "row 5 holds NaN or infinity"},
                {DCI_BF16, NAN, "row 5 holds NaN or infinity"},
                {DCI_BF16, INFINITY, "row 5 holds NaN or infinity"},
                {DCI_BF16, 0x1p127f, "row 5 has squared norm 2.89"},
        };
        dci_context *context = test_context_of_level(_i);
        for (size_t c = 0; c < COUNT(cases); c++)
                for (size_t d = 0; d < COUNT(dims); d++) {
                        matrix rows = matrix_random(cases[c].dtype, 6, dims[d], dims[d], 5);
                        matrix_set(&rows, 5, dims[d] - 1, cases[c].value);
                        matrix out = matrix_copy(&rows), before = matrix_copy(&rows);
                        ck_refused(cosine(context, &rows, DCI_ZERO_KEEP, &out), DCI_ERR_NUMBER, cases[c].part);
                        matrix_same(&out, &before);
                        matrix_free(&rows, &out, &before);
                }
        dci_context_destroy(context);
}
END_TEST

START_TEST(the_longest_allowed_row_is_the_same_on_every_level)
{
        /* The largest float whose square is at most FLT_MAX / 8, and the next one. */
        float longest = nextafterf(nextafterf(sqrtf(FLT_MAX / 8), INFINITY), INFINITY), too_long = 0, out;
        while ((double)longest * (double)longest > (double)FLT_MAX / 8) {
                too_long = longest;
                longest = nextafterf(longest, 0);
        }
        dci_context *context = test_context_of_level(_i);
        ck_ok(dci_cosine_transform(context, 1, 1, DCI_F32, &longest, 1, DCI_ZERO_REFUSE, &out, 1));
        ck_assert(out == 1);
        ck_refused(dci_cosine_transform(context, 1, 1, DCI_F32, &too_long, 1, DCI_ZERO_REFUSE, &out, 1), DCI_ERR_NUMBER,
                   "row 0 has squared norm");
        dci_context_destroy(context);
}
END_TEST

/* --- arguments ---------------------------------------------------------------------------------------------------- */

START_TEST(bad_arguments_are_refused_with_their_values)
{
        float rows[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, out[12] = {0};
        const size_t huge = SIZE_MAX / 2;
        const struct {
                size_t n, dim;
                dci_dtype dtype;
                const float *rows;
                size_t ld;
                int32_t zero_rows;
                float *out;
                size_t ld_out;
                dci_status status;
                const char *part;
        } cases[] = {
                {2, 0, DCI_F32, rows, 4, 0, out, 4, DCI_ERR_INVALID, "dim is 0"},
                {2, ((size_t)1 << 20) + 1, DCI_F32, rows, huge, 0, out, huge, DCI_ERR_LIMIT, "dim is 1048577"},
                {2, SIZE_MAX, DCI_F32, rows, SIZE_MAX, 0, out, SIZE_MAX, DCI_ERR_LIMIT, "dim is"},
                {2, 4, 0, rows, 4, 0, out, 4, DCI_ERR_INVALID, "unknown dtype 0"},
                {2, 4, 6, rows, 4, 0, out, 4, DCI_ERR_INVALID, "unknown dtype 6"},
                {2, 4, DCI_U8, rows, 4, 0, out, 4, DCI_ERR_UNSUPPORTED,
                 "dtype is u8, transformed rows are f32, f16 or bf16"},
                {2, 4, -1, rows, 4, 0, out, 4, DCI_ERR_INVALID, "unknown dtype -1"},
                {2, 4, DCI_F32, rows, 4, 2, out, 4, DCI_ERR_INVALID, "unknown zero_rows 2"},
                {2, 4, DCI_F32, rows, 4, -1, out, 4, DCI_ERR_INVALID, "unknown zero_rows -1"},
                {2, 4, DCI_F32, NULL, 4, 0, out, 4, DCI_ERR_INVALID, "rows is NULL and n is 2"},
                {2, 4, DCI_F32, rows, 4, 0, NULL, 4, DCI_ERR_INVALID, "out_rows is NULL and n is 2"},
                {2, 4, DCI_F32, rows, 3, 0, out, 4, DCI_ERR_INVALID, "ld of rows is 3, a row has 4 columns"},
                {2, 4, DCI_F32, rows, 4, 0, out, 3, DCI_ERR_INVALID, "ld of out_rows is 3, a row has 4 columns"},
                {3, 4, DCI_F32, rows, huge, 0, out, 4, DCI_ERR_LIMIT, "rows: 3 rows"},
                {3, 4, DCI_F32, rows, huge / 4, 0, out, 4, DCI_ERR_LIMIT, "rows: 3 rows"},
                {2, 4, DCI_F32, rows, SIZE_MAX / 8 + 1, 0, out, 4, DCI_ERR_LIMIT, "rows: 2 rows"},
                {SIZE_MAX, 4, DCI_F32, rows, 4, 0, out, 4, DCI_ERR_LIMIT, "exceed the address space"},
                {2, 4, DCI_F32, rows, 4, 0, out, SIZE_MAX, DCI_ERR_LIMIT, "out_rows: 2 rows"},
                {2, 4, DCI_F32, rows, 4, 0, rows, 5, DCI_ERR_INVALID,
                 "overlaps rows at another address or ld (0 bytes"},
                {2, 4, DCI_F32, rows, 4, 0, rows + 1, 4, DCI_ERR_INVALID, "(4 bytes apart, ld 4 and 4)"},
                {2, 4, DCI_F32, rows + 4, 4, 0, rows, 4, DCI_ERR_INVALID, "(-16 bytes apart"},
                {1, 4, DCI_F32, rows, 4, 0, rows + 3, 4, DCI_ERR_INVALID, "(12 bytes apart"},
        };
        dci_context *context = test_context(1);
        for (size_t c = 0; c < COUNT(cases); c++)
                ck_refused(dci_cosine_transform(context, cases[c].n, cases[c].dim, cases[c].dtype, cases[c].rows,
                                                cases[c].ld, cases[c].zero_rows, cases[c].out, cases[c].ld_out),
                           cases[c].status, cases[c].part);
        ck_refused(dci_cosine_transform(NULL, 2, 4, DCI_F32, rows, 4, 0, out, 4), DCI_ERR_INVALID, "context is NULL");
        for (size_t i = 0; i < 12; i++)
                ck_assert(rows[i] == (float)(i + 1) && out[i] == 0);
        dci_context_destroy(context);
}
END_TEST

START_TEST(no_rows_need_no_memory_and_neighbours_may_touch)
{
        dci_context *context = test_context(1);
        ck_ok(dci_cosine_transform(context, 0, 4, DCI_F32, NULL, 4, DCI_ZERO_REFUSE, NULL, 4));
        float rows[8] = {3, 4, 0, 0};
        ck_ok(dci_cosine_transform(context, 1, 4, DCI_F32, rows, 4, DCI_ZERO_REFUSE, rows + 4, 4));
        ck_assert(rows[4] == 0.6f && rows[5] == 0.8f && rows[6] == 0 && rows[7] == 0);
        dci_context_destroy(context);
}
END_TEST

/* --- work and threads --------------------------------------------------------------------------------------------- */

/* Seven workers' worth: see DCI_WORK_PER_WORKER. */
static matrix large(dci_dtype dtype)
{
        return matrix_random(dtype, 7 * DCI_WORK_PER_WORKER / 80 + 1, 80, 80, 7);
}

START_TEST(results_are_the_same_at_any_thread_count)
{
        static const int32_t n_threads[] = {2, 7};
        matrix rows = large(dtypes[_i]), wanted = matrix_copy(&rows), out = matrix_copy(&rows);
        dci_context *context = test_context(1);
        ck_ok(cosine(context, &rows, DCI_ZERO_REFUSE, &wanted));
        dci_context_destroy(context);
        for (size_t t = 0; t < COUNT(n_threads); t++) {
                memset(out.data, 0xff, out.n_bytes);
                context = test_context(n_threads[t]);
                ck_ok(cosine(context, &rows, DCI_ZERO_REFUSE, &out));
                matrix_same(&out, &wanted);
                dci_context_destroy(context);
        }
        matrix_free(&rows, &out, &wanted);
}
END_TEST

static void count_region(void *ctx, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
        *(size_t *)ctx += 1;
        for (size_t i = 0; i < n; i++)
                fn(arg, i);
}

START_TEST(large_calls_open_one_region_and_small_calls_none)
{
        size_t n_regions = 0;
        test_memory memory;
        dci_context_config config;
        dci_context *context = NULL;
        ck_ok(dci_context_config_init(&config, sizeof config));
        config.executor_kind = DCI_EXECUTOR_CALLER;
        config.executor = (dci_executor){&n_regions, count_region};
        config.n_threads = 4;
        config.allocator = test_allocator(&memory);
        ck_ok(dci_context_create(&config, &context));
        size_t allocations = atomic_load(&memory.calls);
        matrix rows = large(DCI_F32);
        matrix few = matrix_view(&rows, 0, 100);
        ck_ok(cosine(context, &few, DCI_ZERO_REFUSE, &few));
        ck_assert_uint_eq(n_regions, 0);
        ck_ok(cosine(context, &rows, DCI_ZERO_REFUSE, &rows));
        ck_assert_uint_eq(n_regions, 1);
        /* And no memory: what cannot run out needs no error path. */
        ck_assert_uint_eq(atomic_load(&memory.calls), allocations);
        matrix_free(&rows);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        int n_isas = (int)test_n_isas();
        Suite *suite = suite_create("transform");
        TCase *units = test_case(suite, "units", 60);
        tcase_add_loop_test(units, unit_rows_are_the_exact_quotients_rounded, 0, n_isas);
        tcase_add_loop_test(units, tiny_and_huge_rows_become_units_too, 0, n_isas);
        tcase_add_loop_test(units, rows_of_the_largest_dim_become_units, 0, n_isas);
        tcase_add_loop_test(units, in_place_equals_out_of_place, 0, n_isas);
        tcase_add_loop_test(units, every_level_gives_the_same_bits, 0, n_isas);
        tcase_add_loop_test(units, zero_rows_are_refused_or_kept_as_asked, 0, n_isas);
        tcase_add_loop_test(units, bad_numbers_are_named_and_nothing_is_written, 0, n_isas);
        tcase_add_loop_test(units, the_longest_allowed_row_is_the_same_on_every_level, 0, n_isas);

        TCase *calls = test_case(suite, "calls", 60);
        tcase_add_test(calls, bad_arguments_are_refused_with_their_values);
        tcase_add_test(calls, no_rows_need_no_memory_and_neighbours_may_touch);
        tcase_add_loop_test(calls, results_are_the_same_at_any_thread_count, 0, (int)COUNT(dtypes));
        tcase_add_test(calls, large_calls_open_one_region_and_small_calls_none);
        return test_main(suite);
}
