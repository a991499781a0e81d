/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench kmeans: clusters of rows, and pages of a trace. */
#include "tests/bench_floats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/npy.h"

#define KMEANS(...) BENCH("kmeans", "--base", scratch_path("base.npy"), __VA_ARGS__)
#define KMEANS_JSON "--json", scratch_path("r.json"), "--rounds", "2"
#define TRACE(folder, ...) BENCH("kmeans", "--trace", folder, "--json", scratch_path("r.json"), __VA_ARGS__)

static double number_in(const json_t *object, const char *name)
{
        ck_assert(json_is_number(json_object_get(object, name)));
        return json_number_value(json_object_get(object, name));
}

/* --- clusters ------------------------------------------------------------------------------------------------------------- */

START_TEST(each_arm_is_a_row_with_its_keys)
{
        static const double clusters[] = {5, 5, 9, 9}, threads[] = {1, 2, 1, 2};
        bench_result result =
                KMEANS("--clusters", "5,9", "--threads", "1,2", "--iter", "4", "--seed", "3", KMEANS_JSON);
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 4);
        ck_assert_str_eq(json_string_value(json_object_get(report, "dataset")), "base.npy");
        for (size_t i = 0; i < 4; i++) {
                const double rounds = bench_number(report, i, "rounds");
                const json_t *history = bench_value(report, i, "history");
                ck_assert_double_eq(bench_number(report, i, "n"), N);
                ck_assert_double_eq(bench_number(report, i, "dim"), DIM);
                ck_assert_double_eq(bench_number(report, i, "clusters"), clusters[i]);
                ck_assert_double_eq(bench_number(report, i, "threads"), threads[i]);
                ck_assert_double_eq(bench_number(report, i, "iter"), 4);
                ck_assert_double_eq(bench_number(report, i, "seed"), 3);
                ck_assert_double_le(rounds, 4);
                ck_assert_double_gt(bench_number(report, i, "seconds"), 0);
                ck_assert_uint_eq(json_array_size(bench_value(report, i, "all_seconds")), 2);
                ck_assert_double_ge(bench_number(report, i, "largest"), ceil(N / clusters[i]));
                ck_assert_double_eq(bench_number(report, i, "empty"), 0);
                ck_assert_str_eq(bench_text(report, i, "metric"), "cosine");
                ck_assert_str_eq(bench_text(report, i, "init"), "random");
                ck_assert_str_eq(bench_text(report, i, "stop"), rounds < 4 ? "stable" : "rounds");
                ck_assert_ptr_nonnull(strstr(result.out, bench_text(report, i, "isa")));
                ck_assert(json_is_number(bench_value(report, i, "objective_free")));
                ck_assert_uint_eq(json_array_size(history), (size_t)rounds);
                ck_assert_double_eq(number_in(json_array_get(history, 0), "moved"), N);
                for (size_t r = 1; r < json_array_size(history); r++) {
                        const json_t *before = json_array_get(history, r - 1), *now = json_array_get(history, r);
                        ck_assert_double_ge(number_in(now, "objective"), number_in(before, "objective") - 1e-6);
                        ck_assert_double_ge(number_in(now, "seconds"), number_in(before, "seconds"));
                }
                ck_assert_double_eq(bench_number(report, i, "objective"), bench_number(report, i - i % 2, "objective"));
        }
        ck_assert_double_gt(bench_number(report, 2, "objective"), bench_number(report, 0, "objective"));
}
END_TEST

static double score(int metric, const float *a, const float *b)
{
        double aa = 0, bb = 0, ab = 0;
        for (size_t j = 0; j < DIM; j++) {
                aa += (double)a[j] * a[j];
                bb += (double)b[j] * b[j];
                ab += (double)a[j] * b[j];
        }
        return metric == 0 ? ab / sqrt(aa * bb) : metric == 1 ? -(aa - 2 * ab + bb) : ab;
}

static void read_centroids(const char *file, size_t k, dci_context *context, dci_npy *npy)
{
        ck_ok(dci_npy_read(context, scratch_path(file), npy));
        ck_assert(npy->type == DCI_NPY_F32 && npy->n_dims == 2 && npy->shape[0] == k && npy->shape[1] == DIM);
}

START_TEST(the_objective_is_that_of_the_centroids_written)
{
        static const char *const metrics[] = {"cosine", "l2", "ip"};
        dci_context *context = test_context(1);
        dci_npy npy = {0};
        double total = 0;
        json_t *report = bench_good(KMEANS("--clusters", "7", "--metric", metrics[_i], "--out-centroids",
                                           scratch_path("c.npy"), KMEANS_JSON));
        read_centroids("c.npy", 7, context, &npy);
        for (size_t i = 0; i < N; i++) {
                double best = -INFINITY;
                for (size_t c = 0; c < 7; c++)
                        best = fmax(best, score(_i, base + i * DIM, (const float *)npy.data + c * DIM));
                total += best;
        }
        total = _i == 1 ? -total : total;
        ck_assert_double_le(fabs(bench_number(report, 0, "objective") / total - 1), 1e-5);
        dci_npy_free(&npy);
        dci_context_destroy(context);
}
END_TEST

START_TEST(a_start_from_stable_centroids_is_stable)
{
        json_t *first = bench_good(KMEANS("--clusters", "7", "--iter", "1000", "--metric", "l2", "--out-centroids",
                                          scratch_path("c.npy"), KMEANS_JSON));
        ck_assert_str_eq(bench_text(first, 0, "stop"), "stable");
        json_t *again = bench_good(KMEANS("--init-file", scratch_path("c.npy"), "--metric", "l2", KMEANS_JSON));
        ck_assert_str_eq(bench_text(again, 0, "init"), "given");
        ck_assert_str_eq(bench_text(again, 0, "stop"), "stable");
        ck_assert_double_eq(bench_number(again, 0, "clusters"), 7);
        ck_assert_double_le(bench_number(again, 0, "rounds"), 2);
        ck_assert_double_le(fabs(bench_number(again, 0, "objective") / bench_number(first, 0, "objective") - 1), 1e-6);
}
END_TEST

START_TEST(options_reach_the_library)
{
        json_t *r = bench_good(KMEANS("--clusters", "8", "--init", "plusplus", "--redo", "3", "--centroid", "mean",
                                      "--subtract-mean", "--tolerance", "0.5", "--rows", "bf16", "--limit", "200",
                                      "--isa", "scalar", KMEANS_JSON));
        ck_assert_double_eq(bench_number(r, 0, "n"), 200);
        ck_assert_double_eq(bench_number(r, 0, "redo"), 3);
        ck_assert_double_eq(bench_number(r, 0, "tolerance"), 0.5);
        ck_assert_str_eq(bench_text(r, 0, "init"), "plusplus");
        ck_assert_str_eq(bench_text(r, 0, "centroid"), "mean");
        ck_assert_str_eq(bench_text(r, 0, "rows"), "bf16");
        ck_assert_str_eq(bench_text(r, 0, "isa"), "scalar");
        ck_assert_str_eq(bench_text(r, 0, "stop"), "tolerance");
        ck_assert(json_is_true(bench_value(r, 0, "subtract_mean")));
        r = bench_good(KMEANS("--clusters", "8", "--init", "even", "--segment-rows", "128", "--iter-global", "2",
                              "--iter", "3", "--metric", "ip", KMEANS_JSON));
        ck_assert_double_eq(bench_number(r, 0, "segment_rows"), 128);
        ck_assert_double_eq(bench_number(r, 0, "iter_global"), 2);
        ck_assert(json_is_null(bench_value(r, 0, "centroid")));
        r = bench_good(KMEANS("--clusters", "8", "--iter", "0", KMEANS_JSON));
        ck_assert_double_eq(bench_number(r, 0, "rounds"), 0);
}
END_TEST

START_TEST(shorter_formats_change_the_objective_little)
{
        static const char *const rows[] = {"f32", "f16", "bf16"};
        double objective[3];
        for (size_t i = 0; i < 3; i++) {
                json_t *r = bench_good(KMEANS("--clusters", "8", "--iter", "0", "--rows", rows[i], KMEANS_JSON));
                ck_assert_str_eq(bench_text(r, 0, "rows"), rows[i]);
                objective[i] = bench_number(r, 0, "objective");
        }
        ck_assert_double_le(fabs(objective[1] / objective[0] - 1), 1e-3);
        ck_assert_double_le(fabs(objective[2] / objective[0] - 1), 1e-2);
        ck_assert(objective[1] != objective[0] && objective[2] != objective[0]);
}
END_TEST

START_TEST(clusters_are_within_the_capacity)
{
        bench_result result = KMEANS("--clusters", "10", "--capacity", "32", KMEANS_JSON);
        json_t *report = bench_good(result);
        ck_assert_double_le(bench_number(report, 0, "largest"), 32);
        ck_assert_double_eq(bench_number(report, 0, "capacity"), 32);
        ck_assert_ptr_nonnull(strstr(result.out, " free "));
}
END_TEST

START_TEST(bad_rows_and_centroids_are_named)
{
        bench_refused(KMEANS("--clusters", "301"), 2, "--clusters 301: there are only 300 rows");
        bench_refused(KMEANS("--clusters", "5", "--init-file", scratch_path("query.npy")), 2,
                      "12 centroids, but --clusters says 5");
        bench_refused(KMEANS("--init-file", scratch_path("none.npy")), 2, "none.npy");
        bench_write_f32("short.npy", queries, 6, DIM / 2);
        bench_refused(KMEANS("--init-file", scratch_path("short.npy")), 2, "centroids of 10 elements in f32");
        bench_refused(KMEANS("--clusters", "5", "--json", scratch_path("none/r.json")), 2, "cannot be written");
        bench_refused(KMEANS("--clusters", "5", "--out-centroids", scratch_path("none/c.npy"), "--rounds", "1"), 2,
                      "none/c.npy");
        bench_refused(KMEANS("--clusters", "5", "--capacity", "3"), 2, "do not hold 300 rows");
        base[7] = NAN;
        bench_write_f32("base.npy", base, N, DIM);
        bench_refused(KMEANS("--clusters", "5"), 2, "row 0");
}
END_TEST

/* --- pages ---------------------------------------------------------------------------------------------------------------- */

static double share_of(const json_t *report, size_t arm, size_t budget)
{
        return json_number_value(json_array_get(bench_value(report, arm, "share"), budget));
}

/* As reference.py of the traces finds them for this one; k-means up to the draw. */
START_TEST(pages_of_the_trace_keep_what_the_reference_keeps)
{
        static const double position[] = {0.111, 0.234, 0.355}, cut[] = {0.895, 0.952, 0.971};
        static const char *const arms[] = {"balanced", "k-means, cut", "position"};
        bench_result result = TRACE(test_trace_dir(), "--threads", "2");
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 3);
        ck_assert_double_eq(number_in(report, "positions"), 21);
        for (size_t a = 0; a < 3; a++) {
                ck_assert_str_eq(bench_text(report, a, "arm"), arms[a]);
                ck_assert_ptr_nonnull(strstr(result.out, arms[a]));
                ck_assert_double_eq(bench_number(report, a, "n"), 7152);
                const double slots = bench_number(report, a, "pages") * bench_number(report, a, "page");
                ck_assert_double_le(fabs(bench_number(report, a, "fill") * slots - 7152), 1e-3);
        }
        for (size_t b = 0; b < 3; b++) {
                ck_assert_double_le(fabs(share_of(report, 2, b) - position[b]), 0.0005 + 1e-9);
                ck_assert_double_le(fabs(share_of(report, 1, b) - cut[b]), 0.03);
                ck_assert_double_ge(share_of(report, 0, b), cut[b] - 0.001);
        }
        for (size_t a = 0; a < 2; a++) {
                ck_assert_double_eq(bench_number(report, a, "clusters"), a == 0 ? 1341 : 447); /* 3 x 447, and 447 */
                ck_assert_double_eq(bench_number(report, a, "iter"), 10);
                ck_assert_double_eq(bench_number(report, a, "threads"), 2);
                ck_assert_double_gt(bench_number(report, a, "objective"), 0);
        }
        ck_assert_double_eq(bench_number(report, 2, "pages"), 447);
        ck_assert_double_le(bench_number(report, 0, "largest"), 16);
}
END_TEST

/* Prompt 40, a group of 2 heads. */
static void write_trace(size_t tokens)
{
        bench_write_trace(base, DIM, tokens, 40, 38, 2);
}

START_TEST(a_budget_for_all_tokens_keeps_all_attention)
{
        write_trace(50);
        json_t *report = bench_good(TRACE(scratch_path(""), "--page", "4", "--slack", "1.5"));
        ck_assert_double_eq(bench_number(report, 0, "clusters"), 9);
        ck_assert_double_eq(bench_number(report, 1, "clusters"), 6);
        ck_assert_double_eq(bench_number(report, 2, "pages"), 6);
        ck_assert_double_eq(number_in(report, "positions"), 1);
        for (size_t a = 0; a < 3; a++)
                for (size_t b = 0; b < 3; b++)
                        ck_assert_double_le(fabs(share_of(report, a, b) - 1), 1e-9);
        /* One page holds them all. */
        report = bench_good(TRACE(scratch_path(""), "--page", "100", "--metric", "l2"));
        for (size_t a = 0; a < 3; a++)
                ck_assert_double_eq(bench_number(report, a, "pages"), 1);
        write_trace(48);
        bench_refused(TRACE(scratch_path(""), "--page", "100"), 2, "8 decoded tokens are too few");
}
END_TEST

START_TEST(shares_of_several_seeds_are_averaged)
{
        static const char *const seeds[] = {"7", "8"};
        double sum[2] = {0}, least[2] = {1, 1}, most[2] = {0};
        for (size_t i = 0; i < 2; i++) {
                json_t *one = bench_good(TRACE(test_trace_dir(), "--seed", seeds[i], "--iter", "2"));
                for (size_t a = 0; a < 2; a++) {
                        sum[a] += share_of(one, a, 0);
                        least[a] = fmin(least[a], share_of(one, a, 0));
                        most[a] = fmax(most[a], share_of(one, a, 0));
                }
        }
        json_t *both = bench_good(TRACE(test_trace_dir(), "--seed", "7", "--seeds", "2", "--iter", "2"));
        ck_assert_double_eq(number_in(both, "seeds"), 2);
        for (size_t a = 0; a < 2; a++) {
                ck_assert_double_le(fabs(share_of(both, a, 0) - sum[a] / 2), 1e-8);
                ck_assert_double_le(
                        fabs(json_number_value(json_array_get(bench_value(both, a, "share_least"), 0)) - least[a]),
                        1e-8);
                ck_assert_double_le(
                        fabs(json_number_value(json_array_get(bench_value(both, a, "share_most"), 0)) - most[a]), 1e-8);
                ck_assert_double_eq(bench_number(both, a, "seed"), 8);
        }
        ck_assert_double_le(fabs(share_of(both, 2, 0) - 0.111), 0.0005);
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{each_arm_is_a_row_with_its_keys, 0},
                                    {the_objective_is_that_of_the_centroids_written, 3},
                                    {a_start_from_stable_centroids_is_stable, 0},
                                    {options_reach_the_library, 0},
                                    {shorter_formats_change_the_objective_little, 0},
                                    {clusters_are_within_the_capacity, 0},
                                    {bad_rows_and_centroids_are_named, 0},
                                    {pages_of_the_trace_keep_what_the_reference_keeps, 0},
                                    {a_budget_for_all_tokens_keeps_all_attention, 0},
                                    {shares_of_several_seeds_are_averaged, 0}};
        return bench_main("bench_kmeans", setup, teardown, tests, sizeof tests / sizeof *tests);
}
