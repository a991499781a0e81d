/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench verify: what is whole passes with the recall it has, what is damaged fails and says how. */
#include "tests/bench_files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/file.h"
#include "index/codes/rows.h"
#include "index/index_internal.h"

enum { N = 600, DIM = 16, REMOVED = 50 };

#define JSON "--json", scratch_path("r.json")
#define VERIFY(...) BENCH("verify", scratch_path("index.dci"), __VA_ARGS__)

static dci_index *make(dci_context *context, dci_index_kind kind, dci_metric metric, dci_dtype dtype, int32_t bits)
{
        dci_index_config config;
        dci_search_params effort;
        dci_index *index = NULL;
        float *rows = test_normal(N, DIM, 1);
        int64_t ids[N];
        ck_ok(dci_index_config_init(&config, sizeof config));
        config.dim = DIM;
        config.kind = kind;
        config.metric = metric;
        config.dtype = dtype;
        config.add_dtype = DCI_F32;
        config.sketch_bits = bits;
        config.page_rows = 16;
        config.promotion_prob = 0.1;
        for (int64_t i = 0; i < N; i++)
                ids[i] = 11 * (N - i);
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_search_params_init(&effort, sizeof effort));
        effort.prop_to_visit = 1.0; /* codes rank, and as many are scored as usual */
        ck_ok(dci_index_set_defaults(index, &effort));
        ck_ok(dci_index_add(index, N, rows, DIM, ids, NULL));
        ck_ok(dci_index_remove(index, REMOVED, ids));
        free(rows);
        return index;
}

static void save(dci_index_kind kind, dci_metric metric, dci_dtype dtype, int32_t bits)
{
        dci_context *context = test_context(1);
        dci_index *index = make(context, kind, metric, dtype, bits);
        ck_ok(dci_index_save(index, scratch_path("index.dci")));
        dci_index_destroy(index);
        dci_context_destroy(context);
}

static const char *text_of(const json_t *report, const char *part, const char *name)
{
        return json_string_value(json_object_get(json_object_get(report, part), name));
}

/* Rows of the table: default and full, and two shares between where there are efforts. */
START_TEST(every_kind_and_metric_passes_and_finds_all_at_full_effort)
{
        const dci_index_kind kind = 1 + (dci_index_kind)(_i % 3);
        const dci_metric metric = 1 + (dci_metric)(_i / 3 % 3);
        save(kind, metric, 1 + (dci_dtype)(_i % 3), _i % 2 == 0 ? 0 : 4);
        json_t *report = bench_good(VERIFY("--sample", "40", "--k", "5", JSON));
        const size_t n = kind == DCI_KIND_FLAT ? 2 : 4;
        ck_assert(json_is_true(json_object_get(json_object_get(report, "check"), "passed")));
        ck_assert_str_eq(text_of(report, "check", "sentence"), "");
        ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(report, "index"), "n")), N - REMOVED);
        ck_assert_uint_eq(bench_rows(report), n);
        ck_assert_str_eq(bench_text(report, 0, "effort"), "default");
        ck_assert_str_eq(bench_text(report, n - 1, "effort"), "full");
        ck_assert_double_eq(bench_number(report, n - 1, "recall"), 1);
        if (metric != DCI_METRIC_IP)
                ck_assert_double_eq(bench_number(report, n - 1, "self"), 1);
        if (n > 2) {
                ck_assert_str_eq(bench_text(report, 1, "effort"), "0.01");
                ck_assert_double_lt(bench_number(report, 1, "dist_comps"), bench_number(report, 2, "dist_comps"));
        }
}
END_TEST

START_TEST(given_queries_and_moved_rows_are_measured_too)
{
        float *queries = test_normal(7, DIM, 2);
        save(DCI_KIND_MDCI, DCI_METRIC_L2, DCI_F16, 0);
        bench_write_f32("query.npy", queries, 7, DIM);
        bench_result result = VERIFY("--sample", "30", "--perturb", "0.2", "--queries", scratch_path("query.npy"),
                                     "--limit-queries", "6", "--shares", "0.5", "--map", "--k", "3", JSON);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 6);
        ck_assert_str_eq(bench_text(report, 0, "queries"), "own");
        ck_assert_str_eq(bench_text(report, 3, "queries"), "given");
        ck_assert_str_eq(bench_text(report, 4, "effort"), "0.5");
        ck_assert(bench_is_null(report, 3, "self"));
        ck_assert_double_eq(bench_number(report, 2, "recall"), 1);
        ck_assert_double_eq(bench_number(report, 5, "recall"), 1);
        ck_assert_ptr_nonnull(strstr(result.out, "check: passed"));
        free(queries);
}
END_TEST

/* Right checksums over wrong codes: only rows and recall tell. */
START_TEST(codes_of_other_rows_fail_with_exit_code_1_and_low_recall)
{
        dci_context *context = test_context(1);
        dci_index *index = make(context, DCI_KIND_FLAT, DCI_METRIC_L2, DCI_F32, 4);
        const dci_view view = dci_rows_view(&index->rows);
        const size_t block_bytes = index->rows.codes->frames.block_bytes;
        for (size_t unit = 0; unit < (N - REMOVED) / DCI_CODE_UNIT; unit += 2) {
                const dci_unit at = dci_view_unit(&view, unit);
                for (size_t i = 0; i < block_bytes; i++)
                        at.area->blocks[at.unit / 2 * block_bytes + i] ^= 0xff;
        }
        ck_ok(dci_index_save(index, scratch_path("index.dci")));
        dci_index_destroy(index);
        dci_context_destroy(context);
        bench_result result = VERIFY("--sample", "40", "--k", "5", JSON);
        ck_assert_ptr_nonnull(strstr(result.out, "check: FAILED"));
        json_t *report = bench_report();
        ck_assert(json_is_false(json_object_get(json_object_get(report, "check"), "passed")));
        ck_assert(json_is_true(json_object_get(json_object_get(report, "check"), "structure")));
        ck_assert_ptr_nonnull(strstr(text_of(report, "check", "sentence"), "the code of the row in slot 0"));
        ck_assert_double_lt(bench_number(report, 0, "recall"), 0.9);
        ck_assert_double_eq(bench_number(report, 1, "recall"), 1);
        bench_refused(result, 1, "the code of the row in slot 0");
}
END_TEST

START_TEST(empty_indexes_and_no_sample_leave_no_table)
{
        dci_context *context = test_context(1);
        dci_index_config config;
        dci_index *index = NULL;
        ck_ok(dci_index_config_init(&config, sizeof config));
        config.dim = DIM;
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_save(index, scratch_path("index.dci")));
        dci_index_destroy(index);
        dci_context_destroy(context);
        json_t *report = bench_good(VERIFY(JSON));
        ck_assert_uint_eq(bench_rows(report), 0);
        save(DCI_KIND_PDCI, DCI_METRIC_COSINE, DCI_F32, 0);
        report = bench_good(VERIFY("--sample", "0", JSON));
        ck_assert_uint_eq(bench_rows(report), 0);
}
END_TEST

START_TEST(bad_input_is_exit_code_2)
{
        float *queries = test_normal(2, DIM + 1, 2);
        save(DCI_KIND_FLAT, DCI_METRIC_L2, DCI_F32, 0);
        bench_write_f32("query.npy", queries, 2, DIM + 1);
        scratch_put("no-index", "nothing", 7);
        bench_refused(BENCH("verify"), 2, "a file is missing");
        bench_refused(BENCH("verify", "--k", "3"), 2, "a file is missing");
        bench_refused(BENCH("verify", scratch_path("absent")), 2, "absent");
        bench_refused(BENCH("verify", scratch_path("no-index")), 2, "no-index");
        bench_refused(VERIFY("--k", "0"), 2, "--k");
        bench_refused(VERIFY("--queries", scratch_path("query.npy")), 2, "rows of 17 elements");
        bench_refused(VERIFY("--json", "/proc/none/r.json"), 2, "--json");
        ck_assert_int_eq(BENCH("verify", "--help").code, 0);
        free(queries);
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{every_kind_and_metric_passes_and_finds_all_at_full_effort, 9},
                                    {given_queries_and_moved_rows_are_measured_too, 0},
                                    {codes_of_other_rows_fail_with_exit_code_1_and_low_recall, 0},
                                    {empty_indexes_and_no_sample_leave_no_table, 0},
                                    {bad_input_is_exit_code_2, 0}};
        return bench_main("dci-bench verify", scratch_open, scratch_close, tests, sizeof tests / sizeof *tests);
}
