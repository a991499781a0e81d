/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench ann with kind mdci and with groups; dci-bench growth and latency. */
#include "tests/bench_floats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double param_of(const json_t *report, size_t i, const char *name)
{
        const json_t *value = json_object_get(bench_value(report, i, "params"), name);
        ck_assert_msg(json_is_number(value), "row %zu has no parameter '%s'", i, name);
        return json_number_value(value);
}

/* --- kind mdci ------------------------------------------------------------------------------------------------------------ */

#define MDCI "--metric", "l2", "--k", "7", "--kind", "mdci", "--promotion-prob", "0.2"

START_TEST(each_view_is_a_row_with_its_tree)
{
        bench_result result = RUN(MDCI, "--promotion-prob-subseq", "0.3", "--page-rows", "8", "--top-nodes", "10",
                                  "--seed", "3", "--field-of-view", "1,4,300", "--mode", "one", JSON);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 1 + 3);
        ck_assert(bench_is_null(report, 0, "tree"));
        for (size_t i = 1; i < 4; i++) {
                static const double views[] = {1, 4, 300};
                const json_t *tree = bench_value(report, i, "tree");
                ck_assert_str_eq(bench_text(report, i, "index"), "mdci");
                ck_assert_double_eq(param_of(report, i, "field_of_view"), views[i - 1]);
                ck_assert_double_eq(param_of(report, i, "promotion_prob"), 0.2);
                ck_assert_double_eq(param_of(report, i, "promotion_prob_subseq"), 0.3);
                ck_assert_double_eq(param_of(report, i, "page_rows"), 8);
                ck_assert_double_eq(param_of(report, i, "top_nodes"), 10);
                ck_assert_double_eq(param_of(report, i, "cell_simp_indices"), 0);
                ck_assert_double_eq(param_of(report, i, "seed"), 3);
                ck_assert_uint_ge(json_array_size(json_object_get(tree, "nodes")), 2);
                ck_assert_double_eq(json_number_value(json_object_get(tree, "levels")),
                                    (double)json_array_size(json_object_get(tree, "nodes")));
                double fill = json_number_value(json_object_get(tree, "page_fill"));
                double used = json_number_value(json_object_get(tree, "pages")) -
                              json_number_value(json_object_get(tree, "free_pages"));
                ck_assert_double_le(fabs(fill * used * 8 - N), 0.01);
                if (i > 1)
                        ck_assert_double_ge(bench_number(report, i, "recall"), bench_number(report, i - 1, "recall"));
        }
        ck_assert_double_lt(bench_number(report, 1, "recall"), 1);
        ck_assert_double_lt(bench_number(report, 1, "dist_comps"), N);
        ck_assert_double_eq(bench_number(report, 3, "recall"), 1);
        ck_assert_ptr_nonnull(strstr(result.out, "0.2 view 4"));
}
END_TEST

START_TEST(without_an_effort_the_sweep_ends_with_exact_search)
{
        json_t *report = bench_good(RUN(MDCI, "--mode", "batch", JSON));
        ck_assert_uint_eq(bench_rows(report), 1 + 8);
        for (size_t i = 2; i < 9; i++)
                ck_assert_double_gt(param_of(report, i, "prop_to_visit"), param_of(report, i - 1, "prop_to_visit"));
        ck_assert_double_eq(bench_number(report, 8, "recall"), 1);
}
END_TEST

START_TEST(a_recall_takes_the_place_of_efforts)
{
        bench_refused(RUN(MDCI, "--recall", "0.9", "--field-of-view", "3", JSON), 2, "exclude each other");
        bench_refused(RUN(MDCI, "--recall", "1.5", JSON), 2, "--recall");
        bench_result result =
                RUN(MDCI, "--recall", "0.9", "--sketch-bits", "0,4", "--page-rows", "16", "--mode", "one", JSON);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 1 + 2);
        for (size_t i = 1; i < 3; i++) {
                ck_assert_double_eq(param_of(report, i, "target_recall"), 0.9);
                ck_assert_double_ge(bench_number(report, i, "recall"), 0.85);
        }
        ck_assert_ptr_nonnull(strstr(result.out, "for 0.9 4 bits"));
}
END_TEST

START_TEST(shares_to_retrieve_need_ranked_cells)
{
        bench_refused(RUN(MDCI, "--prop-to-retrieve", "0.5", JSON), 2,
                      "--prop-to-retrieve needs --kind pdci or --cell-simp-indices");
        bench_result result = RUN(MDCI, "--cell-simp-indices", "3", "--prop-to-retrieve", "0.2,1", "--prop-to-visit",
                                  "0.5,1", "--mode", "one", JSON);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 1 + 4);
        ck_assert_double_lt(bench_number(report, 1, "dist_comps"), bench_number(report, 2, "dist_comps"));
        ck_assert_double_eq(bench_number(report, 4, "recall"), 1);
        ck_assert_ptr_nonnull(strstr(result.out, "cell 3 retrieve 0.2"));
}
END_TEST

START_TEST(all_kinds_stand_in_one_table_with_their_totals)
{
        json_t *report = bench_good(RUN("--metric", "ip", "--kind", "mdci,pdci,flat", "--field-of-view", "2",
                                        "--prop-to-retrieve", "0.2", JSON));
        static const char *const names[] = {"flat", "flat", "pdci", "pdci", "mdci", "mdci"};
        ck_assert_uint_eq(bench_rows(report), 6);
        for (size_t i = 0; i < 6; i++) {
                double total = bench_number(report, i, "build_s") + N_QUERIES / bench_number(report, i, "qps");
                ck_assert_str_eq(bench_text(report, i, "index"), names[i]);
                ck_assert_double_le(fabs(bench_number(report, i, "total") - total), 1e-6 * total);
                ck_assert(bench_is_null(report, i, "group"));
        }
}
END_TEST

/* --- groups ----------------------------------------------------------------------------------------------------------------- */

START_TEST(groups_of_each_are_judged_query_by_query)
{
        bench_result result = RUN(MDCI, "--group", "3", "--field-of-view", "1,300", JSON);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 2 * 3);
        for (size_t i = 0; i < 6; i++) {
                ck_assert_double_eq(bench_number(report, i, "group"), 3);
                ck_assert_str_eq(bench_text(report, i, "group_result"), "each");
                ck_assert_double_le(
                        fabs(bench_number(report, i, "groups_per_s") * 3 / bench_number(report, i, "qps") - 1), 1e-6);
        }
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
        ck_assert_double_lt(bench_number(report, 2, "recall"), 1);
        ck_assert_double_eq(bench_number(report, 2, "recall"), bench_number(report, 4, "recall"));
        ck_assert_double_eq(bench_number(report, 3, "recall"), 1);
        ck_assert_ptr_nonnull(strstr(result.out, "groups/s"));
}
END_TEST

START_TEST(a_union_is_judged_as_a_whole)
{
        json_t *report = bench_good(RUN(MDCI, "--group", "4", "--group-union", "--field-of-view", "1,300", JSON));
        ck_assert_str_eq(bench_text(report, 0, "group_result"), "union");
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
        ck_assert_double_lt(bench_number(report, 2, "recall"), 1);
        ck_assert_double_gt(bench_number(report, 2, "recall"), 0);
        ck_assert_double_eq(bench_number(report, 5, "recall"), 1);
        /* More than there are: the union is everything. */
        report = bench_good(RUN("--metric", "l2", "--group", "4", "--group-union", "--k", "1000", JSON));
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
}
END_TEST

START_TEST(a_union_of_all_tokens_keeps_all_attention)
{
        bench_write_trace(base, DIM, 46, 40, 38, 2);
        json_t *report = bench_good(BENCH("ann", "--trace", scratch_path(""), "--group", "2", "--group-union", "--k",
                                          "40", "--kind", "mdci", "--field-of-view", "40", JSON));
        for (size_t i = 0; i < 4; i++) {
                ck_assert_double_le(fabs(bench_number(report, i, "share") - 1), 1e-6);
                ck_assert_double_eq(bench_number(report, i, "n_queries"), 12);
        }
        /* 8 tokens for the heads of a group together keep less than 8 for each, and more than 4 for each. */
        double share[3];
        static const char *const k[] = {"4", "8", "8"};
        for (size_t i = 0; i < 3; i++) {
                report =
                        i < 2 ? bench_good(BENCH("ann", "--trace", scratch_path(""), "--group", "2", "--k", k[i], JSON))
                              : bench_good(BENCH("ann", "--trace", scratch_path(""), "--group", "2", "--group-union",
                                                 "--k", k[i], JSON));
                share[i] = bench_number(report, 0, "share");
        }
        ck_assert_double_gt(share[2], share[0]);
        ck_assert_double_lt(share[2], share[1]);
}
END_TEST

/* --- growth and latency --------------------------------------------------------------------------------------------------- */

START_TEST(growth_reports_sizes_and_exponents)
{
        bench_result result = BENCH("growth", "--sizes", "500,2000", "--dim", "24", "--latent", "4", "--queries", "20",
                                    "--repeat", "1", "--json", scratch_path("r.json"));
        json_t *report = bench_good(result);
        const json_t *exponents = json_object_get(report, "exponents");
        double n[2] = {500, 2000};
        ck_assert_uint_eq(bench_rows(report), 2);
        for (size_t i = 0; i < 2; i++) {
                ck_assert_double_eq(bench_number(report, i, "n"), n[i]);
                ck_assert_double_ge(bench_number(report, i, "recall"), 0.95);
                ck_assert_double_ge(bench_number(report, i, "bytes_per_row"), 24 * 4);
                ck_assert_double_gt(bench_number(report, i, "query_us"), 0);
        }
        double build = log(bench_number(report, 1, "build_s") / bench_number(report, 0, "build_s")) / log(4);
        ck_assert_double_le(fabs(json_number_value(json_object_get(exponents, "build")) - build), 1e-4);
        double distances = log(bench_number(report, 1, "dist_comps") / bench_number(report, 0, "dist_comps")) / log(4);
        ck_assert_double_le(fabs(json_number_value(json_object_get(exponents, "distances")) - distances), 1e-4);
        ck_assert_ptr_nonnull(strstr(result.out, "exponents in the number of rows"));
}
END_TEST

START_TEST(an_effort_that_never_suffices_has_no_exponent)
{
        json_t *report = bench_good(BENCH("growth", "--sizes", "500,2000", "--recall", "1", "--field-of-view", "1",
                                          "--queries", "20", "--repeat", "1", "--json", scratch_path("r.json")));
        ck_assert(json_is_false(bench_value(report, 0, "reached")));
        ck_assert_double_lt(bench_number(report, 0, "recall"), 1);
        ck_assert(json_is_null(json_object_get(json_object_get(report, "exponents"), "query")));
        ck_assert(json_is_real(json_object_get(json_object_get(report, "exponents"), "build")));
        report = bench_good(BENCH("growth", "--sizes", "300", "--kind", "flat", "--queries", "5", "--repeat", "1",
                                  "--json", scratch_path("r.json")));
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
        ck_assert(json_is_null(json_object_get(json_object_get(report, "exponents"), "build")));
}
END_TEST

static void expect_phase(const json_t *report, size_t i, double readers, bool writer)
{
        static const char *const names[] = {"add", "remove", "search"};
        const bool timed[] = {writer, writer, readers > 0};
        ck_assert_double_eq(bench_number(report, i, "readers"), readers);
        ck_assert(json_is_true(bench_value(report, i, "writer")) == writer);
        for (size_t j = 0; j < 3; j++) {
                const json_t *latency = json_object_get(bench_row(report, i), names[j]);
                ck_assert(json_is_object(latency) == timed[j]);
                if (!timed[j])
                        continue;
                double median = json_number_value(json_object_get(latency, "median_us"));
                double p99 = json_number_value(json_object_get(latency, "p99_us"));
                double max = json_number_value(json_object_get(latency, "max_us"));
                ck_assert(median > 0 && median <= p99 && p99 <= max);
                double calls = json_number_value(json_object_get(latency, "calls"));
                ck_assert(j < 2 ? calls == 40 : calls >= 40 * readers);
        }
}

START_TEST(latency_reports_every_phase_of_every_kind)
{
        static const char *const kinds[] = {"flat", "pdci", "mdci"};
        bench_result result = BENCH("latency", "--kind", kinds[_i], "--n", "1000", "--page", "8", "--calls", "40",
                                    "--readers", "1,3", "--dim", "20", "--json", scratch_path("r.json"));
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 5);
        expect_phase(report, 0, 0, true);
        expect_phase(report, 1, 1, false);
        expect_phase(report, 2, 1, true);
        expect_phase(report, 3, 3, false);
        expect_phase(report, 4, 3, true);
        ck_assert_double_eq(bench_number(report, 1, "searches"), 40);
        ck_assert_double_eq(bench_number(report, 3, "searches"), 120);
        ck_assert_double_eq(json_number_value(json_object_get(report, "n")), 1000);
        ck_assert_ptr_nonnull(strstr(result.out, "searches/s"));
}
END_TEST

START_TEST(latency_takes_rows_from_files)
{
        bench_result result =
                BENCH("latency", "--base", scratch_path("base.npy"), "--query", scratch_path("query.npy"), "--metric",
                      "cosine", "--calls", "40", "--readers", "2", "--json", scratch_path("r.json"));
        json_t *report = bench_good(result);
        ck_assert_double_eq(json_number_value(json_object_get(report, "n")), N - N / 4);
        expect_phase(report, 2, 2, true);
        bench_refused(BENCH("latency", "--base", scratch_path("base.npy"), "--query", scratch_path("query.npy"),
                            "--metric", "l2", "--n", "290"),
                      2, "has 300 rows, --n and --page want 290 and 16 more");
}
END_TEST

/* --- the command line ------------------------------------------------------------------------------------------------------ */

START_TEST(queries_that_fill_no_group_are_refused)
{
        bench_refused(RUN("--metric", "l2", "--group", "5", JSON), 2,
                      "--group 5: the number of queries, 12, is no multiple of it");
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{each_view_is_a_row_with_its_tree, 0},
                                    {without_an_effort_the_sweep_ends_with_exact_search, 0},
                                    {a_recall_takes_the_place_of_efforts, 0},
                                    {shares_to_retrieve_need_ranked_cells, 0},
                                    {all_kinds_stand_in_one_table_with_their_totals, 0},
                                    {groups_of_each_are_judged_query_by_query, 0},
                                    {a_union_is_judged_as_a_whole, 0},
                                    {a_union_of_all_tokens_keeps_all_attention, 0},
                                    {growth_reports_sizes_and_exponents, 0},
                                    {an_effort_that_never_suffices_has_no_exponent, 0},
                                    {latency_reports_every_phase_of_every_kind, 3},
                                    {latency_takes_rows_from_files, 0},
                                    {queries_that_fill_no_group_are_refused, 0}};
        return bench_main("bench_mdci", setup, teardown, tests, sizeof tests / sizeof *tests);
}
