/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench layers: a model's shape, decoded layer by layer. */
#include <string.h>

#include "tests/bench_files.h"

#define LAYERS(...)                                                                                                    \
        BENCH("layers", "--layers", "2", "--heads", "2", "--tokens", "2100", __VA_ARGS__, "--json",                    \
              scratch_path("r.json"))

START_TEST(each_arm_is_a_row_with_its_times)
{
        static const char *const presets[] = {"full", "quest", "sketch", "sketch", "sketch+lowbit", "sketch+lowbit"};
        json_t *report = bench_good(
                LAYERS("--steps", "20", "--preset", "full,quest,sketch,sketch+lowbit", "--learned", "random,learned"));
        const json_t *rows = json_object_get(report, "rows");
        ck_assert_uint_eq(json_array_size(rows), sizeof presets / sizeof *presets);
        ck_assert_ptr_nonnull(json_object_get(report, "machine"));
        ck_assert_ptr_nonnull(json_object_get(report, "command"));
        for (size_t i = 0; i < json_array_size(rows); i++) {
                const json_t *preset = json_object_get(json_array_get(rows, i), "preset");
                ck_assert_str_eq(json_string_value(preset), presets[i]);
                ck_assert(bench_number(report, i, "plan_us") > 0);
                ck_assert(bench_number(report, i, "plan_us_p99") >= bench_number(report, i, "plan_us"));
                ck_assert(bench_number(report, i, "attend_us") > 0);
                ck_assert(bench_number(report, i, "full_us") > 0);
                ck_assert(bench_number(report, i, "fill_ms") > 0);
                ck_assert(bench_number(report, i, "tokens_per_s") > 0);
                ck_assert(bench_number(report, i, "tokens_per_s_full") > 0);
                /* A page of 16 leaves the window within 20 steps, where there are groups. */
                ck_assert((json_object_get(json_array_get(rows, i), "maintain_us") != NULL) == (i > 0));
                const json_t *bytes = json_object_get(json_array_get(rows, i), "bytes_token_tenths");
                ck_assert_uint_eq(json_array_size(bytes), 10);
                for (size_t t = 0; t < 10; t++) /* keys and values of two layers and heads at least */
                        ck_assert(json_number_value(json_array_get(bytes, t)) >= 2 * 2 * 512);
        }
        ck_assert(bench_number(report, 0, "resident_token_bytes") == 0);
        ck_assert(bench_number(report, 2, "resident_token_bytes") == 66); /* 128 codes of four bits, and a scale */
}
END_TEST

START_TEST(a_mistake_on_the_command_line_is_named)
{
        bench_refused(BENCH("layers", "--layers", "0"), 2, "--layers");
        bench_refused(BENCH("layers", "--tokens", "100"), 2, "--tokens");
        bench_refused(BENCH("layers", "--preset", "nothing"), 2, "nothing");
        bench_refused(LAYERS("--budget", "64"), 2, "budget is 64");
        bench_refused(BENCH("layers", "--json", "/nowhere/r.json"), 2, "/nowhere/r.json");
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{each_arm_is_a_row_with_its_times, 0}, {a_mistake_on_the_command_line_is_named, 0}};
        return bench_main("bench_layers", scratch_open, scratch_close, tests, sizeof tests / sizeof *tests);
}
