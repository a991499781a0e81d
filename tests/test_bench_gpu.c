/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench gpu on the host device: each part runs, checks what it measures, and says so in its report. */
#include <string.h>

#include "dci/kv.h"
#include "tests/bench_files.h"

#define GPU(...) BENCH("gpu", "--device", "host", "--threads", "1", __VA_ARGS__, "--json", scratch_path("r.json"))

/* How many rows are of this part; each has times in order. */
static size_t count_part(const json_t *report, const char *part)
{
        size_t n = 0;
        for (size_t i = 0; i < bench_rows(report); i++) {
                ck_assert(bench_number(report, i, "us") > 0);
                ck_assert(bench_number(report, i, "us_p10") <= bench_number(report, i, "us"));
                ck_assert(bench_number(report, i, "us") <= bench_number(report, i, "us_p90"));
                n += strcmp(bench_text(report, i, "part"), part) == 0;
        }
        return n;
}

START_TEST(kernels_are_measured_beside_limits)
{
        json_t *report = bench_good(GPU("--part", "gather,dense,sparse,append,tail"));
        static const char *const limits[] = {"memory_copy_gb_s", "bulk_to_device_gb_s", "bulk_to_host_gb_s"};
        for (size_t i = 0; i < 3; i++)
                ck_assert(json_number_value(json_object_get(json_object_get(report, "limits"), limits[i])) > 0);
        ck_assert_ptr_nonnull(json_object_get(report, "machine"));
        ck_assert_ptr_nonnull(json_object_get(report, "command"));
        ck_assert_str_eq(json_string_value(json_object_get(json_object_get(report, "device"), "runs_on")), "host");
        ck_assert(json_is_true(json_object_get(json_object_get(report, "device"), "tiny")));
        ck_assert_uint_eq(count_part(report, "limits"), 3);
        ck_assert_uint_eq(count_part(report, "gather"),
                          22); /* rows of two lengths and pages in six ways; scattered, two in two */
        ck_assert_uint_eq(count_part(report, "dense"), 2);
        ck_assert_uint_eq(count_part(report, "sparse"), 1);
        ck_assert_uint_eq(count_part(report, "append"), 5);
        ck_assert_uint_eq(count_part(report, "tail"), 2);
        ck_assert_uint_eq(bench_rows(report), 35);
}
END_TEST

START_TEST(summaries_are_formed)
{
        json_t *report = bench_good(GPU("--part", "encode"));
        ck_assert_uint_eq(count_part(report, "encode"),
                          6); /* four of a prompt, a step with nothing due and one with a unit */
}
END_TEST

START_TEST(clusters_are_made)
{
        json_t *report = bench_good(GPU("--part", "kmeans"));
        ck_assert_uint_eq(count_part(report, "kmeans"), 3);
        for (size_t i = 0; i < bench_rows(report); i++)
                if (strcmp(bench_text(report, i, "part"), "kmeans") == 0) {
                        ck_assert(bench_number(report, i, "rounds") == 3);
                        ck_assert(bench_number(report, i, "operations") > 0);
                }
}
END_TEST

START_TEST(choices_are_measured_and_held_against_the_reference)
{
        json_t *report = bench_good(GPU("--part", "select"));
        ck_assert_uint_eq(count_part(report, "select"), 20); /* tokens, pages, listed groups and units */
}
END_TEST

/* Keeping more cannot make hits fewer than the last step's, and nothing beats who knows the future. */
START_TEST(residency_lies_between_the_last_step_and_the_future)
{
        json_t *report = bench_good(GPU("--part", "residency", "--preset", "quest,sketch,full", "--budget", "256"));
        ck_assert_uint_eq(count_part(report, "residency"), 6); /* full has no lists */
        for (size_t i = 0; i < bench_rows(report); i++) {
                if (strcmp(bench_text(report, i, "part"), "residency") != 0)
                        continue;
                const double hits = bench_number(report, i, "hit_rate");
                const double offline = bench_number(report, i, "hit_rate_offline");
                const double all = bench_number(report, i, "bytes_step_all");
                ck_assert(hits <= offline && offline < 1);
                ck_assert(bench_number(report, i, "hit_rate_last") <= hits);
                ck_assert_double_eq_tol(bench_number(report, i, "bytes_step_saved"), all * hits, 1e-6 * all);
                /* Quest's pages of 16 are fetched whole. */
                ck_assert(bench_number(report, i, "unit_tokens") == (*bench_text(report, i, "arm") == 'q' ? 16 : 1));
                /* Four times the budget is more than sixteen steps' lists change. */
                if (bench_number(report, i, "times_budget") == 4)
                        ck_assert(hits == offline);
        }
}
END_TEST

/* How many presets there are; each is a row, whatever it fetches. */
START_TEST(every_preset_decodes)
{
        json_t *report = bench_good(GPU("--part", "step", "--steps", "2"));
        ck_assert_uint_eq(count_part(report, "step"), DCI_KV_PRESETS);
        for (size_t i = 0; i < bench_rows(report); i++) {
                if (strcmp(bench_text(report, i, "part"), "step") != 0)
                        continue;
                const bool is_full = strcmp(bench_text(report, i, "arm"), "full") == 0;
                const double hit_rate = bench_number(report, i, "hit_rate");
                ck_assert(hit_rate >= 0 && hit_rate <= 1);
                ck_assert(bench_number(report, i, "device_us") > 0);
                ck_assert(!is_full || bench_number(report, i, "bytes_fetched_step") == 0);
                ck_assert(bench_number(report, i, "pinned_bytes") >= 3 * 2 * 1024 * 512);
        }
}
END_TEST

START_TEST(every_way_of_fetching_decodes_a_batch)
{
        static const char *const ways[] = {"mapped", "staged", "batched", "copies", "direct"};
        double fetched = 0;
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
                json_t *report =
                        bench_good(GPU("--part", "step", "--preset", "sketch", "--batch", "3", "--gather", ways[i]));
                const size_t last = bench_rows(report) - 1;
                ck_assert_str_eq(bench_text(report, last, "gather"), ways[i]);
                ck_assert(bench_number(report, last, "batch") == 3);
                /* The same rows, but for a cache that keeps none. */
                const double bytes = bench_number(report, last, "bytes_fetched_step");
                ck_assert(bytes > 0);
                if (i == 0)
                        fetched = bytes;
                ck_assert((bench_number(report, last, "hit_rate") > 0) == (i < 4));
                ck_assert(i == 4 ? bytes > fetched : bytes == fetched);
        }
}
END_TEST

/* The same plans and rows: only sums differ. What is left out costs something, everything nothing. */
START_TEST(errors_are_those_of_the_cpu)
{
        json_t *report = bench_good(GPU("--part", "error", "--preset", "full,quest,sketch+lowbit", "--walk-steps", "8",
                                        "--trace", test_trace_dir()));
        ck_assert_uint_eq(count_part(report, "error"), 3);
        for (size_t i = 0; i < bench_rows(report); i++) {
                if (strcmp(bench_text(report, i, "part"), "error") != 0)
                        continue;
                const double cpu = bench_number(report, i, "err_cpu"), device = bench_number(report, i, "err_device");
                const bool is_full = strcmp(bench_text(report, i, "arm"), "full") == 0;
                ck_assert(is_full ? cpu < 1e-5 : cpu > 1e-4);
                ck_assert_double_eq_tol(cpu, device, 1e-5);
                ck_assert(bench_number(report, i, "furthest") < 1e-5);
                ck_assert(bench_number(report, i, "steps") == 8);
        }
}
END_TEST

static double number_or_zero(const json_t *report, size_t i, const char *name)
{
        const json_t *rows = json_object_get(report, "rows");
        return json_number_value(json_object_get(json_array_get(rows, i), name));
}

/* What the device plans, and full attention, runs as a graph; what the host plans call by call, and says so. */
START_TEST(a_decode_is_measured_as_a_whole_and_by_phases)
{
        json_t *report =
                bench_good(GPU("--part", "decode", "--preset", "full,sketch,quest,icecache", "--batches", "1,2"));
        ck_assert_uint_eq(count_part(report, "decode"), 4 * 2 * 2);
        for (size_t i = 0; i < bench_rows(report); i++) {
                if (strcmp(bench_text(report, i, "part"), "decode") != 0)
                        continue;
                const char kind = *bench_text(report, i, "arm"); /* f, s, q, c */
                const double tokens = bench_number(report, i, "tokens"), batch = bench_number(report, i, "batch");
                ck_assert_str_eq(bench_text(report, i, "planner"), kind == 'f' ? "none" : "device");
                ck_assert_str_eq(bench_text(report, i, "runs_as"), "graph");
                ck_assert(tokens == 600 || tokens == 1024);
                ck_assert(bench_number(report, i, "full_bytes") == 3 * 2 * 512 * batch * tokens);
                ck_assert_double_eq_tol(bench_number(report, i, "us_model"), bench_number(report, i, "us") * 32 / 3,
                                        1e-6 * bench_number(report, i, "us_model"));
                ck_assert(bench_number(report, i, "step_us") >= bench_number(report, i, "us"));
                ck_assert(bench_number(report, i, "bytes_written_step") == 3 * 2 * 512 * batch);
                ck_assert(kind == 'f' ? bench_number(report, i, "ratio_full") == 1
                                      : bench_number(report, i, "ratio_full") > 0);
                /* A difference of two medians, which other work may turn round: that there is one. bench_number looks. */
                (void)bench_number(report, i, "attend_us");
                ck_assert(bench_number(report, i, "us_mean") > 0);
                /* Full attention neither chooses nor fetches. */
                ck_assert((number_or_zero(report, i, "hit_rate") > 0) == (kind != 'f'));
                ck_assert((number_or_zero(report, i, "summary_bytes") > 0) == (kind != 'f'));
                ck_assert(bench_number(report, i, "walk_overlap") > 0.3 && bench_number(report, i, "walk_kept") <= 1);
        }
}
END_TEST

START_TEST(a_decode_says_what_it_leaves_out)
{
        /* One layer of 64 x 2^20 tokens is more than a GiB. */
        json_t *report = bench_good(GPU("--part", "decode", "--preset", "full,topk", "--lengths", "600,1048576",
                                        "--batches", "64", "--host-gib", "1", "--host-tokens", "700"));
        ck_assert_uint_eq(count_part(report, "decode"), 1);
        ck_assert_str_eq(bench_text(report, bench_rows(report) - 1, "arm"), "full");
}
END_TEST

/* A sequence that stays next to others that come and go through memory full of NaN: the CPU's outputs throughout, also where lists and
 * groups come of steps before. */
START_TEST(a_long_run_reads_nothing_stale)
{
        json_t *report =
                bench_good(GPU("--part", "soak", "--preset", "sketch,quest,icecache,freekv,clusterkv,louiskv"));
        ck_assert_uint_eq(count_part(report, "soak"), 6);
        for (size_t i = 0; i < bench_rows(report); i++) {
                if (strcmp(bench_text(report, i, "part"), "soak") != 0)
                        continue;
                ck_assert_str_eq(bench_text(report, i, "planner"), "device");
                ck_assert_str_eq(bench_text(report, i, "runs_as"), "graph");
                ck_assert(bench_number(report, i, "steps") == 48 && bench_number(report, i, "lives") == 47);
                ck_assert(bench_number(report, i, "blocks_poisoned") > 47);
                /* Layers and query heads of every other step. */
                ck_assert(bench_number(report, i, "compared") >= 24 * 3 * 8);
                /* Near ties may fall either way. */
                ck_assert(bench_number(report, i, "furthest") < 0.02);
                ck_assert(bench_number(report, i, "mean_apart") < 1e-3);
                ck_assert(bench_number(report, i, "units_asked") > 0);
        }
}
END_TEST

/* With room for all of a short decode nothing comes over the bus; a long run takes poisoned places again. */
START_TEST(resident_pages_are_counted)
{
        json_t *report =
                bench_good(GPU("--part", "decode", "--preset", "quest", "--lengths", "600", "--resident", "8"));
        const size_t last = bench_rows(report) - 1;
        ck_assert(bench_number(report, last, "resident_mib") == 8);
        ck_assert(bench_number(report, last, "resident_rate") == 1);
        ck_assert(bench_number(report, last, "bytes_fetched_step") == 0);
        ck_assert(bench_number(report, last, "resident_used_bytes") > 0);
        report = bench_good(GPU("--part", "soak", "--preset", "sketch,quest", "--resident", "2"));
        for (size_t i = 0; i < bench_rows(report); i++) {
                if (strcmp(bench_text(report, i, "part"), "soak") != 0)
                        continue;
                ck_assert(bench_number(report, i, "resident_bytes") > (double)(1 << 20));
                ck_assert(bench_number(report, i, "units_resident") > 0);
                ck_assert(bench_number(report, i, "units_resident") < bench_number(report, i, "units_missed"));
                ck_assert(bench_number(report, i, "mean_apart") < 1e-3);
        }
}
END_TEST

START_TEST(a_mistake_on_the_command_line_is_named)
{
        bench_refused(BENCH("gpu", "--device", "cpu"), 2, "--device wants");
        bench_refused(BENCH("gpu", "--device", "host", "--part", "scan"), 2, "--part");
        bench_refused(BENCH("gpu", "--device", "host", "--preset", "nothing"), 2, "nothing");
        bench_refused(BENCH("gpu", "--device", "host", "--reps", "1"), 2, "--reps");
        bench_refused(BENCH("gpu", "--device", "host", "--gather", "fast"), 2, "--gather");
        bench_refused(BENCH("gpu", "--device", "host", "--planner", "both"), 2, "--planner");
        bench_refused(BENCH("gpu", "--device", "host", "--lengths", "100"), 2, "--lengths");
        bench_refused(BENCH("gpu", "--device", "host", "--resident", "many"), 2, "--resident");
        bench_refused(BENCH("gpu", "--device", "host", "--json", "/nowhere/r.json"), 2, "/nowhere/r.json");
        bench_refused(GPU("--part", "residency", "--trace", "/nowhere"), 2, "/nowhere");
        /* A number that no machine has a GPU for, with CUDA or without. */
        bench_refused(BENCH("gpu", "--device", "1023"), 2, "dci-bench gpu: ");
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{kernels_are_measured_beside_limits, 0},
                                    {summaries_are_formed, 0},
                                    {clusters_are_made, 0},
                                    {choices_are_measured_and_held_against_the_reference, 0},
                                    {residency_lies_between_the_last_step_and_the_future, 0},
                                    {every_preset_decodes, 0},
                                    {every_way_of_fetching_decodes_a_batch, 0},
                                    {errors_are_those_of_the_cpu, 0},
                                    {a_decode_is_measured_as_a_whole_and_by_phases, 0},
                                    {a_decode_says_what_it_leaves_out, 0},
                                    {a_long_run_reads_nothing_stale, 0},
                                    {resident_pages_are_counted, 0},
                                    {a_mistake_on_the_command_line_is_named, 0}};
        return bench_main("bench_gpu", scratch_open, scratch_close, tests, sizeof tests / sizeof *tests);
}
