/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench kv: a trace played as a decode, preset by preset, and judged by exact attention. */
#include "tests/bench_attention.h"

#define KV(...) BENCH("kv", __VA_ARGS__, "--json", scratch_path("r.json"))
#define TRACE(...) KV("--trace", test_trace_dir(), __VA_ARGS__)

/* A trace of the suite's own. */
enum { TOKENS = 600, PROMPT = 560, FIRST_QUERY = 552, DIM_K = 24, DIM_V = 12 };

/* The row of a preset at a budget, the first one of several. */
static size_t find_row(const json_t *report, const char *preset, double budget)
{
        for (size_t i = 0; i < bench_rows(report); i++)
                if (strcmp(bench_text(report, i, "preset"), preset) == 0 && bench_number(report, i, "budget") == budget)
                        return i;
        ck_abort_msg("there is no row of %s with %g", preset, budget);
        return 0;
}

/* --- a trace of the suite's own ------------------------------------------------------------------------------------------------- */

/* One head, or two; the keys about a mean of their own. */
static void write_trace(size_t group, size_t first_query)
{
        char text[160], shape[48];
        const size_t m = TOKENS - first_query;
        float *keys = test_normal(TOKENS, DIM_K, 3), *values = test_normal(TOKENS, DIM_V, 4);
        float *heads = test_normal(group * m, DIM_K, 5);
        for (size_t i = 0; i < (size_t)TOKENS * DIM_K; i++)
                keys[i] += (float)(i % DIM_K % 3);
        for (size_t i = 0; i < group * m * DIM_K; i++)
                heads[i] *= 2;
        snprintf(text, sizeof text,
                 "{\"tokens\": %d, \"prompt\": %d, \"first_query\": %zu, \"group\": %zu, \"scale\": 0.25}", TOKENS,
                 PROMPT, first_query, group);
        scratch_put("meta.json", text, strlen(text));
        bench_write_f32("keys.npy", keys, TOKENS, DIM_K);
        bench_write_f32("values.npy", values, TOKENS, DIM_V);
        snprintf(shape, sizeof shape, "%zu, %zu, %d", group, m, DIM_K);
        bench_write_npy("queries.npy", "<f4", shape, heads, group * m * DIM_K * sizeof *heads);
        test_free(keys, values, heads);
}

#define OWN(...) KV("--trace", scratch_path(""), __VA_ARGS__)

static trace open_own(size_t group)
{
        return open_trace(scratch_path(""), TOKENS, PROMPT, FIRST_QUERY, group, DIM_K, 0.25);
}

/* --- the report ------------------------------------------------------------------------------------------------------------------ */

static const char *const presets[] = {"full",          "topk",     "streaming",     "snapkv",        "pagemean",
                                      "quest",         "arkvale",  "lowbit",        "sketch",        "sketch+sums",
                                      "sketch+lowbit", "icecache", "clusterkv",     "prkv",          "louiskv",
                                      "retroinfer",    "freekv",   "sketch+groups", "sketch+verify", "pariskv"};
enum { N_PRESETS = sizeof presets / sizeof *presets };

/* What every row of a preset that was played has. */
static void expect_row(const json_t *report, size_t i)
{
        static const char *const numbers[] = {"share",      "recall",
                                              "err",        "token_recall",
                                              "attended",   "err_first",
                                              "bytes_step", "bytes_step_cached",
                                              "err_last",   "resident_bytes_token",
                                              "build_ms",   "group",
                                              "steps"};
        static const char *const times[] = {"append_us", "plan_us", "attend_us", "maintain_us", "step_us"};
        const char *preset = bench_text(report, i, "preset");
        const bool codes = strstr(preset, "sketch") != NULL || strcmp(preset, "lowbit") == 0;
        const bool tail = (strchr(preset, '+') != NULL && strcmp(preset, "sketch+groups") != 0) ||
                          strcmp(preset, "lowbit") == 0 || strcmp(preset, "retroinfer") == 0;
        char p99[32];
        for (size_t j = 0; j < sizeof numbers / sizeof *numbers; j++)
                ck_assert_msg(bench_number(report, i, numbers[j]) >= 0, "row %zu: %s", i, numbers[j]);
        for (size_t j = 0; j < sizeof times / sizeof *times; j++) {
                snprintf(p99, sizeof p99, "%s_p99", times[j]);
                ck_assert_double_ge(bench_number(report, i, p99), bench_number(report, i, times[j]));
        }
        ck_assert_double_le(bench_number(report, i, "share"), 1 + 1e-9);
        ck_assert_double_le(bench_number(report, i, "recall"), 1 + 1e-9);
        ck_assert_double_le(bench_number(report, i, "token_recall"), 1);
        ck_assert_double_le(bench_number(report, i, "bytes_step_cached"), bench_number(report, i, "bytes_step"));
        ck_assert_double_eq(bench_number(report, i, "steps"), BRIEF_STEPS);
        ck_assert_double_eq(bench_number(report, i, "judged"), 3);
        ck_assert_double_eq(bench_number(report, i, "every"), BRIEF_EVERY);
        ck_assert(bench_is_null(report, i, "err_tail") == !tail);
        ck_assert(bench_is_null(report, i, "key_bits") == !codes);
        ck_assert(bench_is_null(report, i, "learned") == !codes);
        ck_assert(bench_is_null(report, i, "value_bits") ==
                  (strstr(preset, "lowbit") == NULL && strcmp(preset, "sketch+verify") != 0));
        ck_assert(bench_is_null(report, i, "reason"));
}

START_TEST(each_preset_at_each_budget_is_a_row_with_its_fields)
{
        static const double budgets[] = {128, 300};
        bench_result result = TRACE(BRIEF, "--budget", "128,300");
        json_t *report = bench_good(result);
        ck_assert(json_is_object(json_object_get(report, "machine")));
        ck_assert(json_is_array(json_object_get(report, "command")));
        ck_assert_uint_eq(bench_rows(report), 2 * N_PRESETS);
        for (size_t i = 0; i < 2 * N_PRESETS; i++) {
                const double budget = bench_number(report, i, "budget"), attended = bench_number(report, i, "attended");
                ck_assert_str_eq(bench_text(report, i, "preset"), presets[i / 2]);
                ck_assert_double_eq(budget, budgets[i % 2]);
                ck_assert_str_eq(bench_text(report, i, "kept"), "common");
                ck_assert(json_is_false(bench_value(report, i, "frozen_prompt")));
                expect_row(report, i);
                ck_assert_ptr_nonnull(strstr(result.out, presets[i / 2]));
                if (i >= 2)
                        ck_assert_double_le(attended, budget);
        }
        /* Nobody chooses better, a larger budget holds more, and what is kept alone is seen. */
        for (size_t i = 2; i < 2 * N_PRESETS; i++)
                ck_assert_double_le(bench_number(report, i, "share"), bench_number(report, 2 + i % 2, "share") + 0.02);
        for (size_t i = 2; i < 2 * N_PRESETS; i += 2)
                ck_assert_double_ge(bench_number(report, i + 1, "share"), bench_number(report, i, "share") - 1e-9);
        ck_assert_double_lt(bench_number(report, find_row(report, "sketch", 300), "err"),
                            bench_number(report, find_row(report, "streaming", 300), "err"));
}
END_TEST

START_TEST(what_attends_to_everything_does_not_err)
{
        json_t *report = bench_good(TRACE(BRIEF, "--preset", "full", "--budget", "128"));
        bench_near(bench_number(report, 0, "attended"), 7168 + 0.5 * (1 + BRIEF_STEPS), 1e-6, "attended");
        for (size_t i = 0; i < 2; i++) {
                static const char *const whole[] = {"share", "recall", "token_recall"};
                for (size_t j = 0; j < 3; j++)
                        bench_near(bench_number(report, 0, whole[j]), 1, 1e-9, whole[j]);
                ck_assert_double_le(bench_number(report, 0, "err"), 1e-4);
                ck_assert(bench_is_null(report, 0, "overlap"));
                ck_assert_double_eq(bench_number(report, 0, "bytes_step"), 0);
                /* So does every preset within its budget. */
                if (i == 0)
                        report = bench_good(TRACE(BRIEF, "--preset", "sketch", "--budget", "8192"));
        }
}
END_TEST

/* --- shares ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(topk_of_one_head_is_the_exact_optimum)
{
        const bool frozen = _i == 1;
        write_trace(1, FIRST_QUERY);
        trace t = open_own(1);
        json_t *report = frozen ? bench_good(OWN(BRIEF, "--preset", "topk", "--budget", "128,200", "--frozen-prompt"))
                                : bench_good(OWN(BRIEF, "--preset", "topk", "--budget", "128,200"));
        for (size_t i = 0; i < 2; i++) {
                const shares s = find_shares(&t, (i == 0 ? 128 : 200) - SINK - WINDOW, frozen ? PROMPT : 0);
                bench_near(bench_number(report, i, "share"), s.best, 1e-5, "share");
        }
        close_trace(&t);
}
END_TEST

START_TEST(topk_is_the_optimum_of_several_heads_too_and_streaming_takes_the_latest)
{
        const bool frozen = _i == 1;
        trace t = open_trace(test_trace_dir(), 7680, 7168, 7104, 3, 64, 0.125);
        json_t *report =
                frozen ? bench_good(TRACE(BRIEF, "--preset", "topk,streaming", "--budget", "128", "--frozen-prompt"))
                       : bench_good(TRACE(BRIEF, "--preset", "topk,streaming", "--budget", "128"));
        const shares s = find_shares(&t, 128 - SINK - WINDOW, frozen ? t.prompt : 0);
        bench_near(bench_number(report, 0, "share"), s.best, 1e-5, "share of the best");
        bench_near(bench_number(report, 1, "share"), s.latest, 1e-5, "share of the latest");
        close_trace(&t);
}
END_TEST

START_TEST(a_frozen_prompt_leaves_decoded_tokens_uncounted)
{
        json_t *report = bench_good(
                TRACE(BRIEF, "--preset", "topk,streaming,quest,sketch", "--budget", "128", "--frozen-prompt"));
        for (size_t i = 0; i < 4; i++) {
                /* The window counts, although it is among what is chosen from. */
                bench_near(bench_number(report, i, "attended"), 128 - WINDOW + 0.5 * (1 + BRIEF_STEPS), 1e-6,
                           bench_text(report, i, "preset"));
                ck_assert(json_is_true(bench_value(report, i, "frozen_prompt")));
                ck_assert_str_eq(bench_text(report, i, "combine"), "softmax");
                bench_near(bench_number(report, i, "bytes_step"), (128 - WINDOW - SINK) * 256.0, 1e-6, "bytes");
        }
}
END_TEST

/* Streaming's list moves by a token each step. */
START_TEST(what_was_there_a_step_before_does_not_move)
{
        json_t *report = bench_good(TRACE(BRIEF, "--preset", "streaming", "--budget", "128"));
        const double n = 128 - SINK - WINDOW, row = 256;
        bench_near(bench_number(report, 0, "bytes_step"), n * row, 1e-6, "bytes");
        bench_near(bench_number(report, 0, "bytes_step_cached"), (n + BRIEF_STEPS - 1) * row / BRIEF_STEPS, 1e-6,
                   "moved");
        bench_near(bench_number(report, 0, "overlap"), (n - 1) / (n + 1), 1e-6, "overlap");
}
END_TEST

/* --- options ----------------------------------------------------------------------------------------------------------------------- */

/* Fewer groups find less, their means take bytes, and sums of whole pages are other sums. */
START_TEST(stages_of_codes_are_options)
{
        write_trace(2, FIRST_QUERY);
        json_t *all = bench_good(OWN(BRIEF, "--preset", "sketch,sketch+sums", "--budget", "128"));
        json_t *few = bench_good(OWN(BRIEF, "--preset", "sketch,sketch+groups,sketch+sums", "--preselect", "2",
                                     "--preselect-least", "16", "--budget", "128", "--sums", "whole"));
        ck_assert_double_eq(bench_number(few, 0, "err"), bench_number(few, 1, "err"));
        ck_assert(bench_is_null(few, 0, "err_tail") && !bench_is_null(few, 1, "err_tail"));
        ck_assert_double_ne(bench_number(all, 1, "err_tail"), bench_number(few, 2, "err_tail"));
        ck_assert_double_lt(bench_number(few, 0, "share"), bench_number(all, 0, "share"));
        ck_assert_double_gt(bench_number(few, 0, "resident_bytes_token"), bench_number(all, 0, "resident_bytes_token"));
}
END_TEST

START_TEST(each_width_and_sort_of_codes_is_a_row)
{
        static const double keys[] = {2, 2, 2, 2, 8, 8, 8, 8}, values[] = {1, 1, 4, 4, 1, 1, 4, 4};
        write_trace(2, FIRST_QUERY);
        json_t *report = bench_good(OWN(BRIEF, "--preset", "pagemean,lowbit,sketch,sketch+verify", "--key-bits", "2,8",
                                        "--value-bits", "1,4", "--learned", "random,learned", "--budget", "128"));
        ck_assert_uint_eq(bench_rows(report), 1 + 8 + 4 + 8);
        for (size_t i = 0; i < 8; i++) {
                ck_assert_str_eq(bench_text(report, 1 + i, "preset"), "lowbit");
                ck_assert_double_eq(bench_number(report, 1 + i, "key_bits"), keys[i]);
                ck_assert_double_eq(bench_number(report, 1 + i, "value_bits"), values[i]);
                ck_assert(json_is_true(bench_value(report, 1 + i, "learned")) == (i % 2 == 1));
        }
        for (size_t i = 0; i < 4; i++)
                ck_assert(strcmp(bench_text(report, 9 + i, "preset"), "sketch") == 0 &&
                          bench_number(report, 9 + i, "key_bits") == (i < 2 ? 2 : 8));
        /* Random codes are other codes, of a preset whose own are learned, too. More bits, fewer errors. */
        ck_assert_double_ne(bench_number(report, 13, "err_tail"), bench_number(report, 14, "err_tail"));
        ck_assert_double_lt(bench_number(report, 7, "err_tail"), bench_number(report, 1, "err_tail"));
        ck_assert_double_gt(bench_number(report, 7, "resident_bytes_token"),
                            bench_number(report, 1, "resident_bytes_token"));
}
END_TEST

START_TEST(options_reach_the_library)
{
        write_trace(2, FIRST_QUERY);
        json_t *report = bench_good(OWN(BRIEF, "--preset", "quest", "--page-tokens", "32", "--combine", "softmax",
                                        "--budget", "160", "--seed", "7", "--isa", "scalar", "--threads", "2"));
        ck_assert_double_eq(bench_number(report, 0, "page_tokens"), 32);
        ck_assert_double_eq(bench_number(report, 0, "seed"), 7);
        ck_assert_double_eq(bench_number(report, 0, "threads"), 2);
        ck_assert_double_eq(bench_number(report, 0, "sink"), SINK);
        ck_assert_double_eq(bench_number(report, 0, "window"), WINDOW);
        ck_assert_double_eq(bench_number(report, 0, "dim_k"), DIM_K);
        ck_assert_double_eq(bench_number(report, 0, "dim_v"), DIM_V);
        ck_assert_double_eq(bench_number(report, 0, "steps"), TOKENS - PROMPT);
        ck_assert_str_eq(bench_text(report, 0, "combine"), "softmax");
        ck_assert_str_eq(bench_text(report, 0, "isa"), "scalar");
}
END_TEST

START_TEST(several_traces_are_played_one_after_the_other)
{
        char both[4096];
        write_trace(2, FIRST_QUERY);
        snprintf(both, sizeof both, "%s,%s", test_trace_dir(), scratch_path(""));
        bench_result result = KV("--trace", both, "--steps", "20", "--preset", "streaming,topk", "--budget", "128");
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 4);
        for (size_t i = 0; i < 4; i++) {
                ck_assert_double_eq(bench_number(report, i, "group"), i < 2 ? 3 : 2);
                ck_assert_double_eq(bench_number(report, i, "judged"), 20);
                ck_assert_ptr_nonnull(strstr(result.out, bench_text(report, i, "trace")));
        }
        ck_assert_ptr_nonnull(strstr(bench_text(report, 0, "trace"), "smollm2-debref-layer06_head0"));
        ck_assert_str_ne(bench_text(report, 0, "trace"), bench_text(report, 2, "trace"));
}
END_TEST

START_TEST(results_do_not_depend_on_threads)
{
        static const char *const names[] = {"share", "recall", "err", "bytes_step_cached"};
        write_trace(2, FIRST_QUERY);
        json_t *one = bench_good(OWN(BRIEF, "--preset", "quest,sketch+lowbit", "--budget", "128", "--threads", "1"));
        json_t *three = bench_good(OWN(BRIEF, "--preset", "quest,sketch+lowbit", "--budget", "128", "--threads", "3"));
        for (size_t i = 0; i < 2; i++)
                for (size_t j = 0; j < 4; j++)
                        ck_assert_double_eq(bench_number(one, i, names[j]), bench_number(three, i, names[j]));
}
END_TEST

START_TEST(steps_that_are_not_judged_can_be_left_out)
{
        static const char *const names[] = {"share", "recall", "err", "token_recall", "err_tail"};
        json_t *all = bench_good(TRACE(BRIEF, "--preset", "sketch+lowbit", "--budget", "128", "--frozen-prompt"));
        json_t *few = bench_good(
                TRACE(BRIEF, "--preset", "sketch+lowbit", "--budget", "128", "--frozen-prompt", "--judged-only"));
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                ck_assert_double_eq(bench_number(few, 0, names[i]), bench_number(all, 0, names[i]));
        ck_assert(bench_is_null(few, 0, "overlap") && bench_is_null(few, 0, "bytes_step_cached"));
}
END_TEST

START_TEST(a_made_up_run_follows_from_its_seed)
{
        json_t *runs[3];
        static const char *const seeds[] = {"1", "1", "2"};
        for (size_t i = 0; i < 3; i++) {
                runs[i] = bench_good(KV("--synthetic", "4096", "--steps", "48", "--preset", "full,topk,streaming",
                                        "--budget", "256", "--seed", seeds[i]));
                ck_assert_str_eq(bench_text(runs[i], 0, "trace"), "synthetic/4096");
                ck_assert_double_eq(bench_number(runs[i], 0, "prompt"), 4096 - 256);
                ck_assert_double_eq(bench_number(runs[i], 0, "judged"), 48);
                ck_assert_double_le(bench_number(runs[i], 0, "err"), 1e-4);
                /* It is worth choosing: the latest tokens are not all that is looked for. */
                ck_assert_double_gt(bench_number(runs[i], 1, "share"), bench_number(runs[i], 2, "share") + 0.1);
        }
        ck_assert_double_eq(bench_number(runs[0], 1, "share"), bench_number(runs[1], 1, "share"));
        ck_assert_double_ne(bench_number(runs[0], 1, "share"), bench_number(runs[2], 1, "share"));
}
END_TEST

/* Each schedule decides as often as it says, also where few positions are judged; tau goes with the arms that it can go with. */
START_TEST(schedules_decide_as_often_as_they_say)
{
        static const struct {
                const char *schedule, *option, *value;
                double decided, corrected;
        } rows[] = {{"every", "--tau", "0.5", 1.0, 0.0},
                    {"periodic", "--period", "4", 0.25, 0.0},
                    {"boundary", "--tau", "1", 1.0, 0.0},
                    {"boundary", "--tau", "-0.999", 1.0 / BRIEF_STEPS, 0.0},
                    {"ahead", "--tau", "1", 1.0, 1.0 - 1.0 / BRIEF_STEPS},
                    {"ahead", "--tau", "-0.999", 1.0 / BRIEF_STEPS, 0.0}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                bench_result result =
                        TRACE(BRIEF, "--budget", "128", "--preset", "full,sketch,sketch+lowbit,quest", "--judged-only",
                              "--frozen-prompt", "--schedule", rows[i].schedule, rows[i].option, rows[i].value);
                json_t *report = bench_good(result);
                ck_assert(bench_is_null(report, 0, "decided"));
                for (size_t r = 1; r < 4; r++) {
                        ck_assert_str_eq(bench_text(report, r, "schedule"), rows[i].schedule);
                        ck_assert_double_eq_tol(bench_number(report, r, "decided"), rows[i].decided, 1e-6);
                        ck_assert_double_eq_tol(bench_number(report, r, "corrected"), rows[i].corrected, 1e-6);
                }
        }
}
END_TEST

/* What LouisKV's gate is calibrated to comes out, 0.2 unless another rate or tau is given; FreeKV's only where a rate is. */
START_TEST(taus_are_calibrated_to_a_retrieval_rate)
{
        static const struct {
                const char *option, *value;
                double rate;
        } rows[] = {{"--seed", "0", 0.2}, {"--retrieval-rate", "0.5", 0.5}, {"--tau", "0.9", 0.0}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                bench_result result = TRACE(BRIEF, "--budget", "128", "--preset", "louiskv,freekv,quest",
                                            "--judged-only", rows[i].option, rows[i].value);
                json_t *report = bench_good(result);
                ck_assert(bench_is_null(report, 2, "tau") && bench_is_null(report, 2, "retrieval_rate"));
                if (rows[i].rate == 0.0) {
                        ck_assert_double_eq(bench_number(report, 0, "tau"), 0.9);
                        ck_assert(bench_is_null(report, 0, "retrieval_rate"));
                        continue;
                }
                /* The first step always selects, and is not counted in the rate. */
                const double decided = (1 + rows[i].rate * (BRIEF_STEPS - 1)) / BRIEF_STEPS;
                ck_assert_double_eq(bench_number(report, 0, "retrieval_rate"), rows[i].rate);
                ck_assert_double_eq_tol(bench_number(report, 0, "decided"), decided, 1.0 / BRIEF_STEPS);
                if (rows[i].rate == 0.2) {
                        ck_assert_double_eq(bench_number(report, 1, "tau"), 0.8);
                        ck_assert(bench_is_null(report, 1, "retrieval_rate"));
                } else {
                        ck_assert_double_eq(bench_number(report, 1, "retrieval_rate"), rows[i].rate);
                        ck_assert_double_eq_tol(bench_number(report, 1, "decided"), decided, 1.0 / BRIEF_STEPS);
                }
        }
}
END_TEST

/* Another sink and window go in place of those of --kept. */
START_TEST(a_sink_and_a_window_are_options)
{
        json_t *report = bench_good(TRACE(BRIEF, "--budget", "128", "--preset", "quest,streaming", "--judged-only",
                                          "--sink", "32", "--window", "256", "--budget-counts", "selected"));
        for (size_t i = 0; i < 2; i++) {
                ck_assert_double_eq(bench_number(report, i, "sink"), 32);
                ck_assert_double_eq(bench_number(report, i, "window"), 256);
        }
        ck_assert_double_gt(bench_number(report, 0, "attended"), 32 + 256 + 96);
}
END_TEST

/* --- what is left out, and what is refused ------------------------------------------------------------------------------------------ */

static void expect_reason(const json_t *report, size_t i, const char *part)
{
        static const char *const names[] = {"share",       "err",      "plan_us",
                                            "plan_us_p99", "build_ms", "resident_bytes_token"};
        ck_assert_msg(strstr(bench_text(report, i, "reason"), part) != NULL, "row %zu: '%s' does not say '%s'", i,
                      bench_text(report, i, "reason"), part);
        for (size_t j = 0; j < sizeof names / sizeof *names; j++)
                ck_assert(bench_is_null(report, i, names[j]));
}

START_TEST(what_cannot_be_played_says_why)
{
        /* A paper's own sizes beyond the budget. */
        write_trace(2, FIRST_QUERY);
        bench_result result = OWN(BRIEF, "--preset", "full,sketch", "--budget", "64,128", "--kept", "paper");
        json_t *report = bench_good(result);
        ck_assert_uint_eq(bench_rows(report), 4);
        expect_reason(report, find_row(report, "sketch", 64), "64");
        ck_assert(bench_is_null(report, find_row(report, "sketch", 128), "reason"));
        ck_assert_ptr_nonnull(strstr(result.out, "n/a: "));
        /* Without queries before the decode nothing can be learned or observed; all others do without. */
        write_trace(2, PROMPT);
        report = bench_good(
                OWN(BRIEF, "--preset", "snapkv,quest,sketch", "--budget", "128", "--learned", "random,learned"));
        ck_assert_uint_eq(bench_rows(report), 4);
        expect_reason(report, 0, "no queries before the decode");
        ck_assert(bench_is_null(report, 1, "reason") && bench_is_null(report, 2, "reason"));
        expect_reason(report, 3, "no queries before the decode");
}
END_TEST

START_TEST(bad_traces_are_named)
{
        static const size_t rows = TOKENS;
        float *values = test_normal(rows, DIM_V, 4), *keys = test_normal(rows, DIM_K, 3);
        uint16_t *halves = calloc(rows * DIM_V, sizeof *halves);
        ck_assert_ptr_nonnull(halves);
        bench_refused(OWN(BRIEF), 2, "meta.json");
        write_trace(1, FIRST_QUERY);
        remove(scratch_path("values.npy"));
        bench_refused(OWN(BRIEF), 2, "values.npy");
        bench_write_f32("values.npy", values, rows - 1, DIM_V);
        bench_refused(OWN(BRIEF), 2, "599 values, but meta.json says 600 tokens");
        bench_write_npy("values.npy", "<f2", "600, 12", halves, rows * DIM_V * sizeof *halves);
        bench_refused(OWN(BRIEF), 2, "values in f16, but the keys are in f32");
        values[7 * DIM_V] = NAN;
        bench_write_f32("values.npy", values, rows, DIM_V);
        bench_refused(OWN(BRIEF, "--preset", "full"), 2, "NaN or infinity");
        write_trace(1, FIRST_QUERY);
        keys[580 * DIM_K] = INFINITY;
        bench_write_f32("keys.npy", keys, rows, DIM_K);
        bench_refused(OWN(BRIEF, "--preset", "full"), 2, "NaN or infinity");
        test_free(values, keys, halves);
}
END_TEST

#define HERE "kv", "--trace", test_trace_dir()
START_TEST(what_does_not_fit_is_refused)
{
        bench_refused(BENCH(HERE, "--steps", "20", "--budget", "64"), 2, "--budget 64: ");
        bench_refused(BENCH(HERE, "--steps", "8", "--every", "4"), 2, "8 decoded tokens are too few");
        bench_refused(BENCH(HERE, "--steps", "8", "--json", scratch_path("absent/r.json")), 2, "cannot be written");
}
END_TEST

/* What icecache takes of its leaves: tokens hold more than their pages; rows say which it was. */
START_TEST(leaves_are_searched_or_ranked_by_their_means)
{
        static const char *const names[] = {"search", "tokens", "mean", "codes", "pages"};
        double kept[5];
        for (size_t i = 0; i < 5; i++) {
                json_t *report = bench_good(TRACE(BRIEF, "--preset", "icecache", "--budget", "300", "--frozen-prompt",
                                                  "--leaves", names[i]));
                ck_assert_str_eq(bench_text(report, 0, "leaves"), names[i]);
                ck_assert_str_eq(bench_text(report, 0, "combine"), i != 2 ? "preset" : "softmax");
                kept[i] = bench_number(report, 0, "share");
        }
        ck_assert_double_gt(kept[1], kept[0]);
        ck_assert_double_gt(kept[2], 0.05);
        ck_assert_double_ge(kept[3], kept[0] - 0.05);
        ck_assert_double_gt(kept[4], 0.05);
        json_t *wide = bench_good(TRACE(BRIEF, "--preset", "icecache", "--budget", "300", "--frozen-prompt",
                                        "--field-of-view", "100000"));
        ck_assert_double_ge(bench_number(wide, 0, "share"), kept[0] - 0.02);
}
END_TEST

/* Levels and P-DCI of the tree, of a trace that is made longer. */
START_TEST(trees_of_longer_traces_have_levels)
{
        json_t *report = bench_good(TRACE(BRIEF, "--preset", "icecache", "--budget", "300", "--extend", "9000",
                                          "--promotion-subseq", "0.5", "--simple-indices", "2", "--retrieve", "0.5"));
        json_t *plain = bench_good(TRACE(BRIEF, "--preset", "icecache", "--budget", "300"));
        ck_assert_double_eq(bench_number(report, 0, "prompt") - bench_number(plain, 0, "prompt"), 9000 - 7680);
        ck_assert_double_eq(bench_number(report, 0, "promotion_subseq"), 0.5);
        ck_assert_double_eq(bench_number(report, 0, "simple_indices"), 2);
        ck_assert_double_eq(bench_number(report, 0, "retrieve"), 0.5);
        ck_assert_double_gt(bench_number(report, 0, "share"), 0.1);
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{trees_of_longer_traces_have_levels, 0},
                                    {each_preset_at_each_budget_is_a_row_with_its_fields, 0},
                                    {what_attends_to_everything_does_not_err, 0},
                                    {topk_of_one_head_is_the_exact_optimum, 2},
                                    {topk_is_the_optimum_of_several_heads_too_and_streaming_takes_the_latest, 2},
                                    {a_frozen_prompt_leaves_decoded_tokens_uncounted, 0},
                                    {what_was_there_a_step_before_does_not_move, 0},
                                    {stages_of_codes_are_options, 0},
                                    {each_width_and_sort_of_codes_is_a_row, 0},
                                    {options_reach_the_library, 0},
                                    {several_traces_are_played_one_after_the_other, 0},
                                    {results_do_not_depend_on_threads, 0},
                                    {steps_that_are_not_judged_can_be_left_out, 0},
                                    {a_made_up_run_follows_from_its_seed, 0},
                                    {schedules_decide_as_often_as_they_say, 0},
                                    {taus_are_calibrated_to_a_retrieval_rate, 0},
                                    {a_sink_and_a_window_are_options, 0},
                                    {what_cannot_be_played_says_why, 0},
                                    {bad_traces_are_named, 0},
                                    {what_does_not_fit_is_refused, 0},
                                    {leaves_are_searched_or_ranked_by_their_means, 0}};
        return bench_main("bench kv", scratch_open, scratch_close, tests, sizeof tests / sizeof *tests);
}
