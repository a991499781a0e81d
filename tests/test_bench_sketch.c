/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench ann with codes: an index for each width, fitted or not, and a row for each share of rows that is scored. */
#include "tests/bench_floats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "simd/convert.h"

/* Of the trace in the repository; 64 positions of its decode, three heads each. */
#define TRACE(...) BENCH("ann", "--trace", test_trace_dir(), "--limit-queries", "192", __VA_ARGS__, JSON)
#define TRACE_N 7168

/* rerank and guarantee: 0 for null, which stands for all and for none. */
static void expect_codes(const json_t *report, size_t i, int bits, bool fitted, double rerank, double guarantee)
{
        const json_t *row = bench_row(report, i);
        const char *const names[] = {"rerank", "guarantee"};
        const double wanted[] = {rerank, guarantee};
        ck_assert_double_eq(bench_number(report, i, "sketch_bits"), bits);
        ck_assert(json_is_boolean(json_object_get(row, "fitted")));
        ck_assert(json_is_true(json_object_get(row, "fitted")) == fitted);
        for (size_t j = 0; j < 2; j++) {
                const json_t *value = json_object_get(row, names[j]);
                ck_assert_msg(wanted[j] > 0 ? json_is_real(value) && json_real_value(value) == wanted[j]
                                            : json_is_null(value),
                              "row %zu: %s is not %g", i, names[j], wanted[j]);
        }
}

/* --- the rows of the report ------------------------------------------------------------------------------------------------- */

START_TEST(each_rerank_of_each_width_is_a_row_per_mode)
{
        bench_result result = TRACE("--sketch-bits", "0,4", "--rerank", "1,2,all");
        json_t *report = bench_good(result);
        static const double reranks[] = {1, 2, 0};
        ck_assert_uint_eq(bench_rows(report), 2 + 2 * 3);
        for (size_t i = 0; i < 2; i++) {
                expect_codes(report, i, 0, false, 0, 0);
                ck_assert_double_eq(bench_number(report, i, "dist_comps"), TRACE_N);
                ck_assert_double_eq(bench_number(report, i, "recall"), 1);
        }
        for (size_t i = 2; i < 8; i++) {
                const double rerank = reranks[(i - 2) % 3];
                expect_codes(report, i, 4, false, rerank, 0);
                ck_assert_str_eq(bench_text(report, i, "index"), "flat");
                ck_assert_str_eq(bench_text(report, i, "mode"), i < 5 ? "one" : "batch");
                ck_assert_double_gt(bench_number(report, i, "bytes"), bench_number(report, 0, "bytes"));
                /* How many are kept beyond those asked for is the selection's business. */
                const double distances = bench_number(report, i, "dist_comps");
                ck_assert(rerank > 0 ? distances >= 100 * rerank && distances < 200 * rerank : distances == TRACE_N);
                if (rerank > 0)
                        ck_assert_double_ge(bench_number(report, i, "proposed"), TRACE_N);
        }
        for (size_t i = 2; i < 5; i++)
                ck_assert_double_eq(bench_number(report, i, "recall"), bench_number(report, i + 3, "recall"));
        ck_assert_double_lt(bench_number(report, 2, "recall"), 1);
        ck_assert_double_ge(bench_number(report, 3, "recall"), 0.9);
        ck_assert_double_eq(bench_number(report, 4, "recall"), 1);
        ck_assert_ptr_nonnull(strstr(result.out, " 4 bits x1 "));
        ck_assert_ptr_nonnull(strstr(result.out, " 4 bits all "));
}
END_TEST

START_TEST(codes_that_are_fitted_rank_better)
{
        bench_result result =
                TRACE("--sketch-bits", "1", "--rerank", "1", "--fit", "both:observation", "--mode", "one");
        json_t *both = bench_good(result);
        ck_assert_uint_eq(bench_rows(both), 3);
        expect_codes(both, 0, 0, false, 0, 0);
        expect_codes(both, 1, 1, false, 1, 0);
        expect_codes(both, 2, 1, true, 1, 0);
        ck_assert_double_gt(bench_number(both, 2, "recall"), bench_number(both, 1, "recall"));
        ck_assert_ptr_nonnull(strstr(result.out, " 1 bit x1 "));
        ck_assert_ptr_nonnull(strstr(result.out, " 1 bit fitted x1 "));
        /* Alone they are what they are side by side. */
        static const char *const fits[] = {"none", "observation"};
        for (size_t i = 0; i < 2; i++) {
                json_t *one =
                        bench_good(TRACE("--sketch-bits", "1", "--rerank", "1", "--fit", fits[i], "--mode", "one"));
                ck_assert_uint_eq(bench_rows(one), 2);
                expect_codes(one, 1, 1, i == 1, 1, 0);
                ck_assert_double_eq(bench_number(one, 1, "recall"), bench_number(both, 1 + i, "recall"));
        }
}
END_TEST

START_TEST(a_guarantee_is_a_row_beside_the_reranks)
{
        bench_result result = RUN("--metric", "l2", "--sketch-bits", "2", "--rerank", "1", "--guarantee", "0.9,1",
                                  "--mode", "one", JSON);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 1 + 3);
        expect_codes(report, 1, 2, false, 1, 0);
        for (size_t i = 2; i < 4; i++) {
                /* 0: as the library does. */
                ck_assert_double_eq(bench_number(report, i, "rerank"), 0);
                ck_assert_double_eq(bench_number(report, i, "guarantee"), i == 2 ? 0.9 : 1);
        }
        ck_assert_double_lt(bench_number(report, 1, "recall"), 1);
        ck_assert_double_eq(bench_number(report, 3, "recall"), 1);
        ck_assert_ptr_nonnull(strstr(result.out, " 2 bits guarantee 0.9 "));
}
END_TEST

START_TEST(without_a_list_few_bits_are_measured_with_more_rows)
{
        json_t *report = bench_good(RUN("--metric", "ip", "--k", "3", "--sketch-bits", "2,3", "--mode", "one", JSON));
        static const double reranks[] = {1, 2, 3, 4, 6, 8, 12, 16, 1, 1.5, 2, 3, 4};
        ck_assert_uint_eq(bench_rows(report), 1 + 13);
        for (size_t i = 0; i < 13; i++)
                expect_codes(report, 1 + i, i < 8 ? 2 : 3, false, reranks[i], 0);
}
END_TEST

START_TEST(each_kind_has_its_efforts_with_each_rerank)
{
        bench_result result = RUN("--metric", "l2", "--k", "7", "--kind", "mdci,pdci", "--promotion-prob", "0.2",
                                  "--field-of-view", "4,300", "--prop-to-retrieve", "0.5", "--sketch-bits", "0,8",
                                  "--rerank", "1,3", "--mode", "one", JSON);
        json_t *report = bench_good(result);
        static const char *const kinds[] = {"flat", "pdci", "pdci", "pdci", "mdci",
                                            "mdci", "mdci", "mdci", "mdci", "mdci"};
        static const double reranks[] = {0, 0, 1, 3, 0, 0, 1, 3, 1, 3};
        static const double views[] = {0, 0, 0, 0, 4, 300, 4, 4, 300, 300};
        ck_assert_uint_eq(bench_rows(report), 10);
        for (size_t i = 0; i < 10; i++) {
                const json_t *params = bench_value(report, i, "params");
                ck_assert_str_eq(bench_text(report, i, "index"), kinds[i]);
                expect_codes(report, i, reranks[i] > 0 ? 8 : 0, false, reranks[i], 0);
                if (i >= 1)
                        ck_assert_double_eq(json_number_value(json_object_get(params, "field_of_view")), views[i]);
        }
        ck_assert_double_eq(bench_number(report, 9, "recall"), 1);
        ck_assert_ptr_nonnull(strstr(result.out, " 0.2 view 4 8 bits x3 "));
        ck_assert_ptr_nonnull(strstr(result.out, " 2x7 visit 1 retrieve 0.5 8 bits x1 "));
}
END_TEST

static bool beaten(const json_t *report, size_t i)
{
        const char *mode = bench_text(report, i, "mode");
        const double recall = bench_number(report, i, "recall"), qps = bench_number(report, i, "qps");
        for (size_t j = 0; j < bench_rows(report); j++) {
                const double r = bench_number(report, j, "recall"), q = bench_number(report, j, "qps");
                if (strcmp(bench_text(report, j, "mode"), mode) == 0 && r >= recall && q >= qps &&
                    (r > recall || q > qps))
                        return true;
        }
        return false;
}

START_TEST(pareto_keeps_what_no_other_row_beats)
{
        bench_result result = TRACE("--sketch-bits", "0,1,4", "--kind", "flat,mdci", "--field-of-view", "16", "--fit",
                                    "both:observation", "--pareto");
        json_t *report = bench_good(result);
        size_t n_exact = 0, n_lines = 0;
        for (size_t i = 0; i < bench_rows(report); i++) {
                const bool exact = strcmp(bench_text(report, i, "index"), "flat") == 0 &&
                                   bench_number(report, i, "sketch_bits") == 0;
                n_exact += exact;
                ck_assert_msg(exact || !beaten(report, i), "row %zu is beaten", i);
        }
        ck_assert_uint_eq(n_exact, 2);
        ck_assert_uint_gt(bench_rows(report), 2);
        /* Two modes, two kinds: one row without codes, 8 and 5 with codes of both sorts. */
        ck_assert_uint_lt(bench_rows(report), 2 * 2 * (1 + 2 * (8 + 5)));
        /* The table has the same rows. */
        for (const char *at = result.out; (at = strstr(at, "   f16  ")) != NULL; at++)
                n_lines++;
        ck_assert_uint_eq(n_lines, bench_rows(report));
}
END_TEST

/* --- queries to fit to ------------------------------------------------------------------------------------------------------ */

#define FIT(file) RUN("--metric", "ip", "--sketch-bits", "1", "--rerank", "1", "--mode", "one", "--fit", file, JSON)

START_TEST(queries_to_fit_to_come_in_every_format)
{
        /* Small integers: f32, f16 and bf16 hold them exactly. */
        float rows[40 * DIM];
        uint16_t half[40 * DIM], brief[40 * DIM];
        unsigned char *values = bench_values(40, DIM, 5);
        for (size_t i = 0; i < 40 * DIM; i++) {
                rows[i] = (float)values[i] - 64;
                half[i] = dci_float_to_f16(rows[i]);
                brief[i] = dci_float_to_bf16(rows[i]);
        }
        char shape[32];
        snprintf(shape, sizeof shape, "40, %d", DIM);
        bench_write_f32("f32.npy", rows, 40, DIM);
        bench_write_npy("f16.npy", "<f2", shape, half, sizeof half);
        bench_write_npy("b.bf16.npy", "<u2", shape, brief, sizeof brief);
        static const char *const files[] = {"f32.npy", "f16.npy", "b.bf16.npy"};
        double recall[3], plain;
        for (size_t i = 0; i < 3; i++) {
                json_t *report = bench_good(FIT(scratch_path(files[i])));
                expect_codes(report, 1, 1, true, 1, 0);
                recall[i] = bench_number(report, 1, "recall");
        }
        ck_assert_double_eq(recall[1], recall[0]);
        ck_assert_double_eq(recall[2], recall[0]);
        json_t *report = bench_good(FIT("none"));
        expect_codes(report, 1, 1, false, 1, 0);
        plain = bench_number(report, 1, "recall");
        ck_assert_double_gt(plain, 0);
        free(values);
}
END_TEST

#define OBSERVED(...)                                                                                                  \
        BENCH("ann", "--trace", scratch_path(""), "--k", "5", "--mode", "one", "--sketch-bits", "1", "--rerank", "1",  \
              "--fit", __VA_ARGS__, JSON)

/* The observation is what a file of the same queries, position by position, would be. */
START_TEST(observed_queries_are_those_before_the_decode)
{
        bench_write_trace(base, DIM, 46, 40, 37, 2);
        float *heads = test_normal(2 * 9, DIM, 9), rows[6 * DIM];
        for (size_t i = 0; i < 6; i++)
                memcpy(rows + i * DIM, heads + (i % 2 * 9 + i / 2) * DIM, DIM * sizeof *rows);
        free(heads);
        bench_write_f32("observed.npy", rows, 6, DIM);
        json_t *trace = bench_good(OBSERVED("observation")), *file = bench_good(OBSERVED(scratch_path("observed.npy")));
        static const char *const names[] = {"recall", "share", "dist_comps"};
        for (size_t i = 0; i < 3; i++)
                ck_assert_double_eq(bench_number(trace, 1, names[i]), bench_number(file, 1, names[i]));
        ck_assert_double_eq(bench_number(trace, 1, "n_queries"), 12);
}
END_TEST

START_TEST(queries_that_do_not_fit_are_refused)
{
        bench_refused(FIT(scratch_path("absent.npy")), 2, "No such file");
        bench_write_f32("narrow.npy", queries, 4, DIM - 1);
        bench_refused(FIT(scratch_path("narrow.npy")), 2, "rows of 19 elements, but the base has 20");
        memset(queries, 0, N_QUERIES * DIM * sizeof *queries);
        bench_write_f32("zero.npy", queries, N_QUERIES, DIM);
        bench_refused(FIT(scratch_path("zero.npy")), 2, "--fit: ");
        queries[DIM] = NAN;
        bench_write_f32("nan.npy", queries, N_QUERIES, DIM);
        bench_refused(FIT(scratch_path("nan.npy")), 2, "--fit: ");
        bench_write_trace(base, DIM, 46, 40, 40, 2);
        bench_refused(OBSERVED("observation"), 2, "has no queries before the decode");
        (void)bench_good(OBSERVED("none"));
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{each_rerank_of_each_width_is_a_row_per_mode, 0},
                                    {codes_that_are_fitted_rank_better, 0},
                                    {a_guarantee_is_a_row_beside_the_reranks, 0},
                                    {without_a_list_few_bits_are_measured_with_more_rows, 0},
                                    {each_kind_has_its_efforts_with_each_rerank, 0},
                                    {pareto_keeps_what_no_other_row_beats, 0},
                                    {queries_to_fit_to_come_in_every_format, 0},
                                    {observed_queries_are_those_before_the_decode, 0},
                                    {queries_that_do_not_fit_are_refused, 0}};
        return bench_main("bench sketch", setup, teardown, tests, sizeof tests / sizeof *tests);
}
