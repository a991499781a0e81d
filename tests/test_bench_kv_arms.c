/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench kv: systems without their updates, and layers that another one chooses for. */
#include "core/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench_files.h"

#define KV(...) BENCH("kv", __VA_ARGS__, "--json", scratch_path("r.json"))

static const char *preset_of(const json_t *report, size_t i)
{
        return json_string_value(bench_value(report, i, "preset"));
}

/* With the tail, where there is one. */
static double error_of(const json_t *report, size_t i)
{
        return bench_number(report, i, json_is_null(bench_value(report, i, "err_tail")) ? "err" : "err_tail");
}

/* --- updates -------------------------------------------------------------------------------------------------------------------- */

/* Without updates nothing after the prompt is attended to but the window; with prkv it is in pages. What has none is one row. */
START_TEST(updates_can_be_left_out)
{
        json_t *report = bench_good(KV("--trace", test_trace_dir(), "--every", "6", "--updates", "on,off", "--preset",
                                       "streaming,topk,icecache,clusterkv,prkv,retroinfer,sketch", "--budget", "128"));
        ck_assert_uint_eq(bench_rows(report), 13);
        for (size_t i = 0; i < 13; i++) {
                const json_t *sixths = bench_value(report, i, "err_sixths");
                const bool still = json_is_false(bench_value(report, i, "updates"));
                const double all = error_of(report, i);
                double sum = 0; /* of 84 positions judged 14 or so in each */
                ck_assert_uint_eq(json_array_size(sixths), 6);
                for (size_t s = 0; s < 6; s++)
                        sum += json_number_value(json_array_get(sixths, s));
                ck_assert_double_le(fabs(sum / 6 - all), 0.05 * all);
                ck_assert_double_le(bench_number(report, i, "attended"), 128);
                ck_assert(still == (i > 0 && i % 2 == 0));
                if (still)
                        ck_assert_str_eq(preset_of(report, i), preset_of(report, i - 1));
                if (still && strcmp(preset_of(report, i), "prkv") != 0)
                        ck_assert_double_lt(bench_number(report, i, "share"), bench_number(report, i - 1, "share"));
        }
}
END_TEST

/* --- anchors -------------------------------------------------------------------------------------------------------------------- */

#define ARMS                                                                                                           \
        "--steps", "48", "--every", "16", "--budget", "128", "--preset",                                               \
                "topk,quest,icecache,sketch+lowbit,full,retroinfer"

/* A layer that is its own anchor attends to what it would choose itself; what keeps no lists is not played. */
START_TEST(an_anchor_of_the_same_keys_chooses_the_same)
{
        json_t *own = bench_good(KV("--trace", test_trace_dir(), ARMS));
        json_t *taken = bench_good(KV("--trace", test_trace_dir(), "--anchor", test_trace_dir(), ARMS));
        for (size_t i = 0; i < 6; i++) {
                const bool played = json_is_null(bench_value(taken, i, "reason"));
                ck_assert(json_is_null(bench_value(own, i, "anchor")) &&
                          !json_is_null(bench_value(taken, i, "anchor")));
                ck_assert(played == (i < 4));
                if (!played)
                        continue;
                ck_assert_double_eq(bench_number(own, i, "share"), bench_number(taken, i, "share"));
                ck_assert_double_eq(error_of(own, i), error_of(taken, i));
        }
}
END_TEST

static unsigned char *bytes_of(const char *path, size_t *out_n)
{
        FILE *file = fopen(path, "rb");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
        *out_n = (size_t)ftell(file);
        rewind(file);
        unsigned char *bytes = malloc(*out_n);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_uint_eq(fread(bytes, 1, *out_n, file), *out_n);
        fclose(file);
        return bytes;
}

/* The same keys in an order of their own: what is best there is not best here, and the list is not that of the layer's own queries. */
START_TEST(an_anchor_of_other_keys_chooses_worse)
{
        static const char *const names[] = {"keys.npy", "values.npy", "queries.npy", "meta.json"};
        char from[4096];
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                size_t n;
                snprintf(from, sizeof from, "%s/%s", test_trace_dir(), names[i]);
                unsigned char *bytes = bytes_of(from, &n);
                if (i ==
                    0) /* rows of 64 halves, of a file whose head is 128 bytes: the later half of the tokens first */
                        for (size_t half = (n - 128) / 256 * 128, b = 0; b < half; b++) {
                                const unsigned char other = bytes[128 + b];
                                bytes[128 + b] = bytes[128 + half + b];
                                bytes[128 + half + b] = other;
                        }
                scratch_put(names[i], bytes, n);
                free(bytes);
        }
        json_t *own = bench_good(KV("--trace", test_trace_dir(), ARMS));
        json_t *taken = bench_good(KV("--trace", test_trace_dir(), "--anchor", scratch_path(""), ARMS));
        for (size_t i = 0; i < 4; i++)
                ck_assert_double_lt(bench_number(taken, i, "share"), bench_number(own, i, "share"));
}
END_TEST

/* --- lists of query heads ----------------------------------------------------------------------------------------------------------- */

#define ONE "--steps", "48", "--every", "16", "--budget", "128", "--preset"

/* Each query head has the whole budget then, and together they have more. */
START_TEST(query_heads_may_have_lists_of_their_own)
{
        const char *const presets = "topk,quest,icecache,clusterkv";
        json_t *shared = bench_good(KV("--trace", test_trace_dir(), ONE, presets, "--lists", "kv"));
        json_t *own = bench_good(KV("--trace", test_trace_dir(), ONE, presets, "--lists", "query"));
        for (size_t i = 0; i < 4; i++) {
                const double tokens = bench_number(own, i, "attended_query_head");
                ck_assert_str_eq(bench_text(shared, i, "lists"), "kv");
                ck_assert_str_eq(bench_text(own, i, "lists"), "query");
                bench_near(bench_number(shared, i, "attended_query_head"), bench_number(shared, i, "attended"), 1e-9,
                           "attended by one");
                ck_assert_double_gt(bench_number(own, i, "attended"), tokens);
                ck_assert_double_le(tokens, 128);
                ck_assert_double_gt(bench_number(own, i, "bytes_step"), bench_number(shared, i, "bytes_step"));
        }
        ck_assert_double_gt(bench_number(own, 0, "share"), bench_number(shared, 0, "share"));
        /* Of what selects by no query there is one list, and of clusterkv as published there are some. */
        json_t *streaming = bench_good(KV("--trace", test_trace_dir(), ONE, "streaming", "--lists", "query"));
        ck_assert_str_eq(bench_text(streaming, 0, "lists"), "kv");
        json_t *paper = bench_good(KV("--trace", test_trace_dir(), ONE, "clusterkv", "--kept", "paper"));
        ck_assert_str_eq(bench_text(paper, 0, "lists"), "query");
}
END_TEST

START_TEST(an_anchor_of_another_shape_is_refused)
{
        float *rows = test_normal(600, 24, 3);
        static const char text[] =
                "{\"tokens\": 600, \"prompt\": 560, \"first_query\": 552, \"group\": 1, \"scale\": 0.25}";
        scratch_put("meta.json", text, strlen(text));
        bench_write_f32("keys.npy", rows, 600, 24);
        bench_write_f32("values.npy", rows, 600, 24);
        bench_write_npy("queries.npy", "<f4", "1, 48, 24", rows, (size_t)48 * 24 * sizeof *rows);
        free(rows);
        bench_refused(BENCH("kv", "--trace", test_trace_dir(), "--anchor", scratch_path("")), 2,
                      "is of 600 tokens, 560 of");
        bench_refused(BENCH("kv", "--trace", test_trace_dir(), "--anchor", "absent"), 2, "absent");
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{updates_can_be_left_out, 0},
                                    {an_anchor_of_the_same_keys_chooses_the_same, 0},
                                    {an_anchor_of_other_keys_chooses_worse, 0},
                                    {an_anchor_of_another_shape_is_refused, 0},
                                    {query_heads_may_have_lists_of_their_own, 0}};
        return bench_main("bench kv arms", scratch_open, scratch_close, tests, sizeof tests / sizeof *tests);
}
