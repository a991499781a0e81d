/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench: what it prints and writes is true, and a command line that means nothing is one sentence and code 2. */
#include "tests/bench_floats.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "simd/convert.h"

/* --- the command line -------------------------------------------------------------------------------------------------- */

START_TEST(version_is_the_librarys)
{
        char wanted[64];
        snprintf(wanted, sizeof wanted, "dci-bench %s\n", dci_version());
        bench_result result = BENCH("--version");
        ck_assert_int_eq(result.code, 0);
        ck_assert_str_eq(result.out, wanted);
}
END_TEST

START_TEST(a_level_this_machine_lacks_is_refused)
{
        static const char *const names[] = {"scalar", "avx2", "avx512", "amx", "neon"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                dci_isa isa = DCI_ISA_SCALAR + (dci_isa)i;
                if (!dci_isa_available(isa)) {
                        bench_refused(RUN("--metric", "ip", "--isa", names[i], JSON), 2, names[i]);
                        continue;
                }
                json_t *report = bench_good(RUN("--metric", "ip", "--isa", names[i], JSON));
                const json_t *row = bench_row(report, 0);
                ck_assert_str_eq(json_string_value(json_object_get(row, "isa")), names[i]);
        }
}
END_TEST

/* --- the report -------------------------------------------------------------------------------------------------------- */

static void expect_strings(const json_t *object, const char *const *names, size_t n)
{
        for (size_t i = 0; i < n; i++)
                ck_assert_msg(json_string_length(json_object_get(object, names[i])) > 0, "'%s' is no text", names[i]);
}

static void expect_row(const json_t *report, size_t i, const char *mode)
{
        static const char *const texts[] = {"index", "mode", "isa", "metric", "rows", "dataset"};
        static const char *const numbers[] = {"build_s",    "qps",        "qps_min", "qps_max",        "recall",
                                              "dist_comps", "candidates", "bytes",   "read_floor_qps", "total1k"};
        const json_t *row = bench_row(report, i);
        expect_strings(row, texts, sizeof texts / sizeof *texts);
        for (size_t j = 0; j < sizeof numbers / sizeof *numbers; j++)
                ck_assert_msg(bench_number(report, i, numbers[j]) > 0, "%s is not positive", numbers[j]);
        ck_assert_str_eq(json_string_value(json_object_get(row, "index")), "flat");
        ck_assert_str_eq(json_string_value(json_object_get(row, "mode")), mode);
        ck_assert_str_eq(json_string_value(json_object_get(json_object_get(row, "params"), "kind")), "flat");
        ck_assert(json_is_null(json_object_get(row, "share")));
        ck_assert_double_eq(bench_number(report, i, "recall"), 1);
        ck_assert_double_eq(bench_number(report, i, "dist_comps"), N);
        ck_assert_double_eq(bench_number(report, i, "candidates"), N);
        ck_assert_double_ge(bench_number(report, i, "bytes"), N * DIM * 4);
        ck_assert_double_eq(bench_number(report, i, "threads"), 2);
        ck_assert_double_eq(bench_number(report, i, "n"), N);
        ck_assert_double_eq(bench_number(report, i, "dim"), DIM);
        ck_assert_double_eq(bench_number(report, i, "k"), 7);
        ck_assert_double_eq(bench_number(report, i, "n_queries"), N_QUERIES);
        ck_assert_double_le(bench_number(report, i, "qps_min"), bench_number(report, i, "qps"));
        ck_assert_double_le(bench_number(report, i, "qps"), bench_number(report, i, "qps_max"));
        double total = bench_number(report, i, "build_s") + 1000 / bench_number(report, i, "qps");
        ck_assert_double_le(fabs(bench_number(report, i, "total1k") - total), 1e-6 * total);
}

START_TEST(json_and_table_hold_what_they_promise)
{
        static const char *const metrics[] = {"l2", "ip", "cosine"};
        static const char *const machine[] = {"cpu", "isa", "compiler", "library", "date"};
        static const char *const titles[] = {"index", "build s",    "queries/s", "read floor/s", "of floor", "recall",
                                             "share", "dist/query", "memory",    "params",       "of n",     "1k s"};
        for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++) {
                bench_result result = RUN("--metric", metrics[m], "--k", "7", "--threads", "2", "--repeat", "2",
                                          "--cache", "none", "--json", scratch_path("r.json"));
                json_t *report = bench_good(result);
                expect_strings(json_object_get(report, "machine"), machine, sizeof machine / sizeof *machine);
                ck_assert(json_is_integer(json_object_get(json_object_get(report, "machine"), "cores")));
                ck_assert_uint_eq(bench_rows(report), 2);
                expect_row(report, 0, "one");
                expect_row(report, 1, "batch");
                for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
                        ck_assert_ptr_nonnull(strstr(result.out, titles[i]));
        }
}
END_TEST

START_TEST(mode_and_limits_are_obeyed)
{
        json_t *report =
                bench_good(RUN("--metric", "l2", "--mode", "one", "--limit-base", "50", "--limit-queries", "3", JSON));
        ck_assert_uint_eq(bench_rows(report), 1);
        ck_assert_double_eq(bench_number(report, 0, "n"), 50);
        ck_assert_double_eq(bench_number(report, 0, "n_queries"), 3);
        ck_assert_double_eq(bench_number(report, 0, "k"), 10);
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
}
END_TEST

START_TEST(neighbours_of_its_own_fit_any_number_of_rows)
{
        json_t *report = bench_good(RUN("--metric", "l2", "--truth", "own", "--limit-base", "50", JSON));
        ck_assert_double_eq(bench_number(report, 0, "n"), 50);
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
}
END_TEST

/* The same name in Latin-1 and in UTF-8. */
START_TEST(names_that_are_no_text_are_reported_in_ascii)
{
        static const char *const names[][2] = {{"tr\344ce.npy", "tr?ce.npy"}, {"tr\303\244ce.npy", "tr\303\244ce.npy"}};
        for (size_t i = 0; i < 2; i++) {
                char path[512];
                bench_write_f32(names[i][0], base, N, DIM);
                snprintf(path, sizeof path, "%s", scratch_path(names[i][0]));
                json_t *report = bench_good(
                        BENCH("ann", "--base", path, "--query", scratch_path("query.npy"), "--metric", "l2", JSON));
                const json_t *row = bench_row(report, 0);
                ck_assert_str_eq(json_string_value(json_object_get(row, "dataset")), names[i][1]);
        }
}
END_TEST

START_TEST(more_neighbours_than_rows_are_all_rows)
{
        json_t *report = bench_good(RUN("--metric", "ip", "--k", "1000", JSON));
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
        ck_assert_double_eq(bench_number(report, 0, "k"), 1000);
}
END_TEST

START_TEST(equal_rows_do_not_cost_recall)
{
        for (size_t i = DIM; i < N * DIM; i++)
                base[i] = base[i % (2 * DIM)];
        bench_write_f32("base.npy", base, N, DIM);
        json_t *report = bench_good(RUN("--metric", "l2", "--truth-check", "99", JSON));
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
        ck_assert_double_eq(json_number_value(json_object_get(json_object_get(report, "truth"), "checked")), N_QUERIES);
}
END_TEST

/* All scores are 1 in binary32; in double precision the last rows are the best. The check of the truth would notice. */
START_TEST(scores_too_close_for_float_are_told_apart)
{
        memset(base, 0, N * DIM * sizeof *base);
        memset(queries, 0, N_QUERIES * DIM * sizeof *queries);
        for (size_t i = 0; i < N; i++) {
                base[i * DIM] = 1;
                base[i * DIM + 1] = (float)i * 1e-10f;
        }
        for (size_t i = 0; i < N_QUERIES; i++)
                queries[i * DIM] = queries[i * DIM + 1] = 1;
        bench_write_f32("base.npy", base, N, DIM);
        bench_write_f32("query.npy", queries, N_QUERIES, DIM);
        json_t *report = bench_good(RUN("--metric", "ip", "--truth-check", "12", JSON));
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
}
END_TEST

/* The BEST best of `rows` under IP, by plain double precision. */
#define BEST 100
static void find_best(const float *rows, const float *query, size_t best[BEST])
{
        bench_scored all[N];
        for (size_t i = 0; i < N; i++) {
                all[i] = (bench_scored){0, i};
                for (size_t j = 0; j < DIM; j++)
                        all[i].score += (double)query[j] * rows[i * DIM + j];
        }
        qsort(all, N, sizeof *all, bench_better);
        for (size_t i = 0; i < BEST; i++)
                best[i] = all[i].id;
}

/* Rows rounded to bfloat16 rank differently; what the recall must be is counted here. */
START_TEST(recall_counts_what_rounded_rows_miss)
{
        float *rounded = test_normal(N, DIM, 1);
        size_t kept = 0;
        for (size_t i = 0; i < N * DIM; i++)
                rounded[i] = dci_bf16_to_float(dci_float_to_bf16(rounded[i]));
        for (size_t q = 0; q < N_QUERIES; q++) {
                size_t truth[BEST], found[BEST];
                find_best(base, queries + q * DIM, truth);
                find_best(rounded, queries + q * DIM, found);
                for (size_t i = 0; i < BEST * BEST; i++)
                        kept += truth[i / BEST] == found[i % BEST];
        }
        free(rounded);
        ck_assert_uint_lt(kept, BEST * N_QUERIES);
        json_t *report = bench_good(RUN("--metric", "ip", "--rows", "bf16", "--k", "100", JSON));
        for (size_t i = 0; i < 2; i++)
                ck_assert_double_le(fabs(bench_number(report, i, "recall") - (double)kept / (BEST * N_QUERIES)), 1e-8);
}
END_TEST

START_TEST(numbers_that_are_none_are_refused_by_name)
{
        base[17 * DIM + 3] = NAN;
        bench_write_f32("base.npy", base, N, DIM);
        bench_refused(RUN("--metric", "l2", JSON), 2, "17");
        base[17 * DIM + 3] = 0;
        bench_write_f32("base.npy", base, N, DIM);
        queries[5 * DIM] = INFINITY;
        bench_write_f32("query.npy", queries, N_QUERIES, DIM);
        bench_refused(RUN("--metric", "l2", JSON), 2, "5");
}
END_TEST

START_TEST(a_report_that_cannot_be_written_is_said_before_and_after)
{
        bench_refused(RUN("--metric", "l2", "--json", scratch_path("absent/r.json")), 2, "--json");
        bench_refused(RUN("--metric", "l2", "--json", scratch_path("")), 2, "--json");
        if (access("/dev/full", W_OK) == 0)
                bench_refused(RUN("--metric", "l2", "--cache", "none", "--repeat", "1", "--json", "/dev/full"), 1,
                              "could not be written");
}
END_TEST

/* --- Prioritized DCI ------------------------------------------------------------------------------------------------------- */

/* Ends where the seed is wanted. */
#define PDCI                                                                                                           \
        "--metric", "l2", "--k", "7", "--kind", "pdci", "--num-comp-indices", "3", "--num-simp-indices", "4", "--seed"

/* Distances per query, asked of the library itself. */
static double distances_of(uint64_t seed, double visit, double retrieve)
{
        dci_context *context;
        dci_index *index;
        dci_index_config config;
        dci_search_params params;
        dci_search_stats stats;
        int64_t ids[N_QUERIES * 7];
        ck_assert_int_eq(dci_context_create(NULL, &context), DCI_OK);
        ck_assert_int_eq(dci_index_config_init(&config, sizeof config), DCI_OK);
        ck_assert_int_eq(dci_search_params_init(&params, sizeof params), DCI_OK);
        ck_assert_int_eq(dci_search_stats_init(&stats, sizeof stats), DCI_OK);
        config.dim = DIM;
        config.kind = DCI_KIND_PDCI;
        config.metric = DCI_METRIC_L2;
        config.num_comp_indices = 3;
        config.num_simp_indices = 4;
        config.seed = seed;
        params.prop_to_visit = visit;
        params.prop_to_retrieve = retrieve;
        params.stats = &stats;
        ck_assert_int_eq(dci_index_create(context, &config, &index), DCI_OK);
        ck_assert_int_eq(dci_index_add(index, N, base, DIM, NULL, NULL), DCI_OK);
        ck_assert_int_eq(dci_index_search(index, N_QUERIES, queries, DIM, 7, &params, ids, NULL), DCI_OK);
        dci_index_destroy(index);
        dci_context_destroy(context);
        return (double)stats.distances / N_QUERIES;
}

static double param_of(const json_t *report, size_t i, const char *name)
{
        const json_t *row = bench_row(report, i);
        const json_t *value = json_object_get(json_object_get(row, "params"), name);
        ck_assert_msg(json_is_number(value), "row %zu has no parameter '%s'", i, name);
        return json_number_value(value);
}

static void expect_name(const json_t *report, size_t i, const char *name, const char *wanted)
{
        const json_t *row = bench_row(report, i);
        ck_assert_str_eq(json_string_value(json_object_get(row, name)), wanted);
}

START_TEST(each_effort_is_a_row_per_mode_beside_flat)
{
        static const double visits[] = {0.3, 1}, retrieves[] = {0.05, 0.2, 1};
        bench_result result = RUN(PDCI, "5", "--prop-to-visit", "0.3,1", "--prop-to-retrieve", "0.05,0.2,1.0", JSON);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 2 + 2 * 2 * 3);
        expect_name(report, 0, "index", "flat");
        expect_name(report, 1, "index", "flat");
        for (size_t i = 2; i < 14; i++) {
                double visit = visits[(i - 2) / 3 % 2], retrieve = retrieves[(i - 2) % 3];
                bool full = visit == 1 && retrieve == 1;
                expect_name(report, i, "index", "pdci");
                expect_name(report, i, "mode", i < 8 ? "one" : "batch");
                ck_assert_double_eq(param_of(report, i, "prop_to_visit"), visit);
                ck_assert_double_eq(param_of(report, i, "prop_to_retrieve"), retrieve);
                ck_assert_double_eq(param_of(report, i, "num_comp_indices"), 3);
                ck_assert_double_eq(param_of(report, i, "num_simp_indices"), 4);
                ck_assert_double_eq(param_of(report, i, "seed"), 5);
                /* At full effort a batch is ranked by cheaper arithmetic first; all rows are looked at all the same. */
                double wanted = full ? N : distances_of(5, visit, retrieve);
                ck_assert_double_le(fabs(bench_number(report, i, "dist_comps") - wanted), 1e-6);
                ck_assert_double_eq(bench_number(report, i, "candidates"), bench_number(report, i, "dist_comps"));
                ck_assert_double_ge(bench_number(report, i, "dist_comps"), 7);
                ck_assert(full ? bench_number(report, i, "recall") == 1 : bench_number(report, i, "recall") > 0);
                ck_assert_double_eq(bench_number(report, i, "read_floor_qps"),
                                    bench_number(report, 0, "read_floor_qps"));
                ck_assert_double_ge(bench_number(report, i, "bytes"), bench_number(report, 0, "bytes") + 3 * 4 * 4 * N);
                double total = bench_number(report, i, "build_s") + 1000 / bench_number(report, i, "qps");
                ck_assert_double_le(fabs(bench_number(report, i, "total1k") - total), 1e-6 * total);
        }
        ck_assert_double_lt(bench_number(report, 2, "recall"), 1);
        ck_assert_ptr_nonnull(strstr(result.out, "3x4 visit 0.3 retrieve 0.05"));
}
END_TEST

START_TEST(the_default_sweep_ends_with_exact_search)
{
        json_t *report = bench_good(RUN("--metric", "ip", "--kind", "flat,pdci", "--mode", "batch", JSON));
        ck_assert_uint_eq(bench_rows(report), 1 + 9);
        for (size_t i = 1; i < 10; i++) {
                ck_assert_double_eq(param_of(report, i, "prop_to_visit"), 1);
                ck_assert_double_eq(param_of(report, i, "num_comp_indices"), 2);
                ck_assert_double_eq(param_of(report, i, "num_simp_indices"), 7);
                ck_assert_double_eq(param_of(report, i, "seed"), 0);
                if (i > 1) {
                        ck_assert_double_gt(param_of(report, i, "prop_to_retrieve"),
                                            param_of(report, i - 1, "prop_to_retrieve"));
                        ck_assert_double_ge(bench_number(report, i, "recall"), bench_number(report, i - 1, "recall"));
                }
        }
        ck_assert_double_eq(bench_number(report, 9, "recall"), 1);
        ck_assert_double_eq(bench_number(report, 9, "dist_comps"), N);
}
END_TEST

START_TEST(a_seed_decides_what_is_found)
{
        static const char *const seeds[] = {"0", "0", "9223372036854775807"};
        double recall[3], distances[3];
        for (size_t i = 0; i < 3; i++) {
                json_t *report = bench_good(RUN(PDCI, seeds[i], "--prop-to-retrieve", "0.1", "--mode", "batch", JSON));
                recall[i] = bench_number(report, 1, "recall");
                distances[i] = bench_number(report, 1, "dist_comps");
        }
        ck_assert_double_eq(recall[0], recall[1]);
        ck_assert_double_eq(distances[0], distances[1]);
        ck_assert_double_ne(distances[0], distances[2]);
}
END_TEST

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

#if !BENCH_SANITIZED
/* 8 GiB of rows that exist only as a hole, and an address space that cannot hold them. */
START_TEST(too_little_memory_ends_with_code_1)
{
        unsigned char head[8] = {0, 0, 32, 0, 0, 4, 0, 0}; /* 2^21 rows of 2^10 */
        scratch_put("big.fbin", head, sizeof head);
        ck_assert_int_eq(truncate(scratch_path("big.fbin"), 8 + ((off_t)1 << 33)), 0);
        struct rlimit limit;
        ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
        limit.rlim_cur = (rlim_t)4 << 30;
        ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
        bench_refused(BENCH("ann", "--base", scratch_path("big.fbin"), "--query", scratch_path("query.npy"), "--metric",
                            "l2"),
                      1, "no memory");
}
END_TEST
#endif

int main(void)
{
        const bench_test tests[] = {
                {version_is_the_librarys, 0},
                {a_level_this_machine_lacks_is_refused, 0},
                {json_and_table_hold_what_they_promise, 0},
                {mode_and_limits_are_obeyed, 0},
                {neighbours_of_its_own_fit_any_number_of_rows, 0},
                {names_that_are_no_text_are_reported_in_ascii, 0},
                {more_neighbours_than_rows_are_all_rows, 0},
                {equal_rows_do_not_cost_recall, 0},
                {scores_too_close_for_float_are_told_apart, 0},
                {recall_counts_what_rounded_rows_miss, 0},
                {numbers_that_are_none_are_refused_by_name, 0},
                {a_report_that_cannot_be_written_is_said_before_and_after, 0},
                {each_effort_is_a_row_per_mode_beside_flat, 0},
                {the_default_sweep_ends_with_exact_search, 0},
                {a_seed_decides_what_is_found, 0},
#if !BENCH_SANITIZED
                {too_little_memory_ends_with_code_1, 0},
#endif
        };
        return bench_main("bench", setup, teardown, tests, sizeof tests / sizeof *tests);
}
