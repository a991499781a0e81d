/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench runbook: what a runbook says is done, and one that means nothing is refused before anything is done. */
#include "tests/bench_floats.h"

#include <stdio.h>
#include <string.h>

#define PLAY(...)                                                                                                      \
        BENCH("runbook", "--base", scratch_path("base.npy"), "--query", scratch_path("query.npy"), "--metric", "l2",   \
              "--runbook", scratch_path("book.yaml"), __VA_ARGS__)
#define WRITTEN "--json", scratch_path("r.json")

static void put_book(const char *text)
{
        scratch_put("book.yaml", text, strlen(text));
}

static const char sliding[] = "rows:\n"
                              "  max_pts: 300\n"
                              "  gt_url: nowhere\n"
                              "  1: {operation: insert, start: 0, end: 200}\n"
                              "  2: {operation: search}\n"
                              "  3: {operation: delete, start: 0, end: 150}\n"
                              "  4:\n"
                              "    operation: \"insert\"\n"
                              "    start: 200\n"
                              "    end: 300\n"
                              "  5: {operation: search}\n"
                              "  6: {operation: replace, tags_start: 150, tags_end: 160, ids_start: 0, ids_end: 10}\n"
                              "  7: {operation: search}\n"
                              "  8: {operation: delete, start: 150, end: 300}\n"
                              "  9: {operation: search}\n";

static const char *const kinds[] = {"flat", "pdci", "mdci"};

START_TEST(every_kind_at_full_effort_finds_all_that_is_there)
{
        static const double live[] = {200, 200, 50, 150, 150, 150, 150, 0, 0};
        static const double calls[] = {29, N_QUERIES, 22, 15, N_QUERIES, 2, N_QUERIES, 22, N_QUERIES};
        bench_result result;
        put_book(sliding);
        if (_i == 0)
                result = PLAY("--kind", "flat", "--batch", "7", WRITTEN);
        else if (_i == 1)
                result = PLAY("--kind", "pdci", "--prop-to-retrieve", "1", "--batch", "7", WRITTEN);
        else
                result = PLAY("--prop-to-visit", "1", "--batch", "7", WRITTEN);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 9);
        ck_assert_str_eq(json_string_value(json_object_get(json_object_get(report, "params"), "kind")), kinds[_i]);
        ck_assert_str_eq(json_string_value(json_object_get(report, "runbook")), "rows");
        for (size_t i = 0; i < 9; i++) {
                bool search = strcmp(bench_text(report, i, "operation"), "search") == 0;
                ck_assert_double_eq(bench_number(report, i, "step"), (double)(i + 1));
                ck_assert_double_eq(bench_number(report, i, "live"), live[i]);
                ck_assert_double_eq(bench_number(report, i, "calls"), calls[i]);
                ck_assert_double_gt(bench_number(report, i, "bytes"), live[i] * DIM * 4);
                ck_assert(bench_is_null(report, i, "median_us") == search);
                ck_assert(bench_is_null(report, i, "qps") != search);
                ck_assert(bench_is_null(report, i, "recall") == (!search || live[i] == 0));
                if (search && live[i] > 0)
                        ck_assert_double_eq(bench_number(report, i, "recall"), 1);
                if (!search) {
                        ck_assert_double_le(bench_number(report, i, "median_us"), bench_number(report, i, "p99_us"));
                        ck_assert_double_le(bench_number(report, i, "p99_us"), bench_number(report, i, "max_us"));
                }
        }
        ck_assert(json_is_null(json_object_get(report, "bytes_per_row")));
        ck_assert_ptr_nonnull(strstr(result.out, "bytes/row"));
}
END_TEST

/* Rows that were removed must not be found: with one true neighbour at distance 0 that goes, recall against the rest stays 1,
 * and rows that a search at little effort misses cost recall. */
START_TEST(recall_is_that_of_the_effort)
{
        put_book("rows: {max_pts: 300, 1: {operation: insert, start: 0, end: 300}, 2: {operation: search}}");
        json_t *report = bench_good(PLAY("--field-of-view", "1", "--promotion-prob", "0.1", "--batch", "300", WRITTEN));
        ck_assert_double_lt(bench_number(report, 1, "recall"), 1);
        ck_assert_double_gt(bench_number(report, 1, "recall"), 0);
        ck_assert_double_eq(bench_number(report, 0, "calls"), 1);
        ck_assert_double_gt(json_number_value(json_object_get(report, "bytes_per_row")), DIM * 4);
        ck_assert_double_gt(json_number_value(json_object_get(json_object_get(report, "tree"), "levels")), 0);
        report = bench_good(PLAY("--rows", "bf16", "--kind", "flat", "--mode", "batch", "--k", "100", WRITTEN));
        ck_assert_double_lt(bench_number(report, 1, "recall"), 1);
        ck_assert_double_eq(bench_number(report, 1, "calls"), 1);
}
END_TEST

/* The replaced ids hold copies of the first query, so they are its neighbours, and nobody else's rows are. */
START_TEST(a_replacement_gives_ids_other_rows)
{
        for (size_t i = 290; i < N; i++)
                memcpy(base + i * DIM, queries, DIM * sizeof *base);
        bench_write_f32("base.npy", base, N, DIM);
        bench_write_f32("query.npy", queries, 1, DIM);
        put_book("rows: {max_pts: 300, 1: {operation: insert, start: 0, end: 100}, 2: {operation: replace, tags_start: "
                 "20,"
                 " tags_end: 30, ids_start: 290, ids_end: 300}, 3: {operation: search}}");
        json_t *report = bench_good(PLAY("--prop-to-visit", "1", WRITTEN));
        ck_assert_double_eq(bench_number(report, 2, "recall"), 1);
        ck_assert_double_eq(bench_number(report, 2, "live"), 100);
}
END_TEST

START_TEST(one_of_several_data_sets_is_named)
{
        put_book(
                "a: {max_pts: 5, 1: {operation: search}}\nb: {max_pts: 6, 1: {operation: insert, start: 0, end: 6}}\n");
        bench_refused(PLAY(WRITTEN), 2, "holds 2 data sets; --dataset names one");
        bench_refused(PLAY("--dataset", "c", WRITTEN), 2, "holds no steps for a data set 'c'");
        json_t *report = bench_good(PLAY("--dataset", "b", WRITTEN));
        ck_assert_double_eq(bench_number(report, 0, "live"), 6);
}
END_TEST

#define STEP(text) "rows: {max_pts: 300, 1: {operation: insert, start: 0, end: 9}, 2: " text "}"

static const struct {
        const char *book, *part;
} bad_books[] = {
        {"", "a runbook is a mapping"},
        {"- 1\n- 2\n", "a runbook is a mapping"},
        {"rows: [1, 2", "not YAML (line"},
        {"rows: \"\\xff", "not YAML"},
        {"\xff\xfe\x01", "not YAML"},
        {"{}", "holds 0 data sets"},
        {"rows: 5", "holds no steps for a data set 'rows'"},
        {"? [a]\n: 5", "--dataset names one"},
        {"rows: {1: {operation: search}}", "has no max_pts"},
        {"rows: {max_pts: 5, max_pts: 6, 1: {operation: search}}", "more than one max_pts"},
        {"rows: {max_pts: 301, 1: {operation: search}}", "max_pts must be an integer of 1 to the number of rows, 300"},
        {"rows: {max_pts: 0, 1: {operation: search}}", "max_pts must be"},
        {"rows: {max_pts: -1, 1: {operation: search}}", "max_pts must be"},
        {"rows: {max_pts: [1], 1: {operation: search}}", "max_pts must be"},
        {"rows: {max_pts: 99999999999999999999999, 1: {operation: search}}", "max_pts must be"},
        {"rows: {max_pts: 300}", "'rows' has no steps"},
        {"rows: {max_pts: 300, 1: {operation: search}, 3: {operation: search}}", "numbered from 1 without gaps"},
        {"rows: {max_pts: 300, 0: {operation: search}}", "step 0: the 1 steps must be numbered"},
        {"rows: {max_pts: 300, 1: {operation: search}, 1: {operation: search}}", "step 1 is there twice"},
        {"rows: {max_pts: 300, 1: {operation: search}, extra: 5}", "'extra' is neither a step's number"},
        {"rows: {max_pts: 300, 1: {operation: search}, \"a\\nb\": 5}", "'(no text)' is neither"},
        {"rows: {max_pts: 300, 1: 5}", "step 1 is no mapping"},
        {"rows: {max_pts: 300, 1: {start: 5}}", "step 1 has no 'operation'"},
        {STEP("{operation: upsert, start: 9, end: 10}"), "operation 'upsert' is none of insert, delete"},
        {STEP("{operation: [insert], start: 9, end: 10}"), "step 2 has no 'operation'"},
        {STEP("{operation: insert, end: 10}"), "step 2 has no 'start'"},
        {STEP("{operation: insert, start: 10}"), "step 2 has no 'end'"},
        {STEP("{operation: insert, start: x, end: 10}"), "'start' is no integer"},
        {STEP("{operation: insert, start: 1.5, end: 10}"), "'start' is no integer"},
        {STEP("{operation: insert, start: 9, end: 9}"), "no range within 0 to max_pts, 300"},
        {STEP("{operation: insert, start: 10, end: 9}"), "no range"},
        {STEP("{operation: insert, start: 9, end: 301}"), "no range"},
        {STEP("{operation: insert, start: 8, end: 10}"), "step 2 wants to insert id 8, which is already there"},
        {STEP("{operation: delete, start: 8, end: 10}"), "step 2 wants to delete id 9, which is not there"},
        {STEP("{operation: replace, tags_start: 8, tags_end: 10, ids_start: 0, ids_end: 2}"),
         "step 2 wants to replace id 9, which is not there"},
        {STEP("{operation: replace, tags_start: 1, tags_end: 3, ids_start: 0, ids_end: 1}"),
         "step 2 replaces 2 tags by 1 ids"},
        {STEP("{operation: replace, tags_start: 1, tags_end: 3, ids_start: 0}"), "step 2 has no 'ids_end'"},
        {STEP("{operation: search, start: 1}"), "step 2 has 2 keys, 'search' takes 1"},
        {STEP("{operation: insert, start: 9, end: 10, start: 11}"), "step 2 has 4 keys, 'insert' takes 3"},
        {"a: &x {max_pts: 300, 1: *x}", ""},
};

START_TEST(a_runbook_that_means_nothing_is_refused)
{
        put_book(bad_books[_i].book);
        bench_result result = PLAY(WRITTEN);
        bench_refused(result, 2, bad_books[_i].part);
        ck_assert_str_eq(result.out, "");
}
END_TEST

START_TEST(brackets_without_end_are_refused_at_once)
{
        static char brackets[1 << 20];
        memset(brackets, '[', sizeof brackets);
        scratch_put("book.yaml", brackets, sizeof brackets);
        bench_refused(PLAY(WRITTEN), 2, "nested deeper than a runbook is");
        memset(brackets, '{', sizeof brackets);
        scratch_put("book.yaml", brackets, sizeof brackets);
        bench_refused(PLAY(WRITTEN), 2, "nested deeper than a runbook is");
}
END_TEST

/* Cut anywhere, it is a shorter runbook or none. */
START_TEST(a_damaged_runbook_is_refused_or_played)
{
        for (size_t n = 0; n < sizeof sliding; n += 23) {
                scratch_put("book.yaml", sliding, n);
                bench_composed(PLAY(WRITTEN));
        }
}
END_TEST

static const struct {
        const char *arguments[12];
        const char *part;
} mistakes[] = {
        {{"runbook"}, "data is missing"},
        {{"runbook", "--trace", "x"}, "--runbook is missing"},
        {{"runbook", "--trace", "x", "--runbook", "b", "--kind", "flat,mdci"}, "measures one kind"},
        {{"runbook", "--trace", "x", "--runbook", "b", "--mode", "both"}, "one or batch, not both"},
        {{"runbook", "--trace", "x", "--runbook", "b", "--field-of-view", "1,2"}, "takes one effort, not several"},
        {{"runbook", "--trace", "x", "--runbook", "b", "--num-comp-indices", "2"}, "needs --kind pdci"},
        {{"runbook", "--batch", "0"}, "--batch wants an integer of 1 to 1048576, not '0'"},
};

START_TEST(a_mistake_on_the_command_line_is_named)
{
        bench_result result = bench_run(mistakes[_i].arguments);
        bench_refused(result, 2, mistakes[_i].part);
        ck_assert_ptr_nonnull(strstr(result.err, "dci-bench runbook --help'"));
}
END_TEST

START_TEST(a_runbook_that_is_not_there_is_named)
{
        bench_refused(PLAY(WRITTEN), 2, "book.yaml");
}
END_TEST

START_TEST(help_names_every_option)
{
        static const char *const words[] = {"--runbook", "--dataset", "--batch", "--mode",          "--k ",
                                            "--kind",    "--json",    "--trace", "--field-of-view", "--rows",
                                            "max_pts",   "exit codes"};
        bench_result result = BENCH("runbook", "--help");
        ck_assert_int_eq(result.code, 0);
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
                ck_assert_msg(strstr(result.out, words[i]) != NULL, "the help does not say '%s'", words[i]);
}
END_TEST

int main(void)
{
        const bench_test tests[] = {
                {every_kind_at_full_effort_finds_all_that_is_there, 3},
                {recall_is_that_of_the_effort, 0},
                {a_replacement_gives_ids_other_rows, 0},
                {one_of_several_data_sets_is_named, 0},
                {a_runbook_that_means_nothing_is_refused, (int)(sizeof bad_books / sizeof *bad_books)},
                {brackets_without_end_are_refused_at_once, 0},
                {a_damaged_runbook_is_refused_or_played, 0},
                {a_mistake_on_the_command_line_is_named, (int)(sizeof mistakes / sizeof *mistakes)},
                {a_runbook_that_is_not_there_is_named, 0},
                {help_names_every_option, 0}};
        return bench_main("bench_runbook", setup, teardown, tests, sizeof tests / sizeof *tests);
}
