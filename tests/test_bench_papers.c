/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench papers: figures of made-up traces whose answers are known, and of the repository's against those of dci-bench kv. */
#include <math.h>
#include <string.h>

#include "tests/papers_trace.h"

#define PAPERS(...) BENCH("papers", "--trace", scratch_path(""), __VA_ARGS__, "--json", scratch_path("r.json"))
#define REAL(...) BENCH("papers", "--trace", test_trace_dir(), __VA_ARGS__, "--json", scratch_path("r.json"))

/* --- reading reports -------------------------------------------------------------------------------------------------------------- */

static bool says(const json_t *report, size_t i, const char *name, const char *word)
{
        const char *text = json_string_value(json_object_get(bench_row(report, i), name));
        ck_assert_msg(text != NULL, "row %zu: '%s' is no text", i, name);
        return strcmp(text, word) == 0;
}

/* The row that says `word` under `name`, and whose number `field` is that one. */
static size_t find_row(const json_t *report, const char *name, const char *word, const char *field, double value)
{
        for (size_t i = 0; i < bench_rows(report); i++)
                if (says(report, i, name, word) && bench_number(report, i, field) == value)
                        return i;
        ck_abort_msg("no row with %s = %s and %s = %g", name, word, field, value);
        return 0;
}

/* Weight of token i at position t for a query that reads coordinate 0. */
static double weight_of(size_t t, size_t i)
{
        double sum = 0;
        for (size_t j = 0; j <= t; j++)
                sum += exp(scores[0][j]);
        return exp(scores[0][i]) / sum;
}

/* --- a trace that stands still ----------------------------------------------------------------------------------------------------- */

START_TEST(sets_that_never_change_have_jaccard_1)
{
        write_trace(false, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "jaccard", "--budget", "64,128", "--tau", "0.5,1"));
        ck_assert_uint_eq(bench_rows(report), 4);
        for (size_t i = 0; i < 4; i++) {
                ck_assert_double_eq(bench_number(report, i, "within"), 1);
                ck_assert_double_eq(bench_number(report, i, "within_contested"), 1);
                ck_assert_double_eq(bench_number(report, i, "pairs_within"), STEPS - 1);
                ck_assert(bench_is_null(report, i, "across"));
        }
}
END_TEST

START_TEST(what_stays_important_does_not_decay)
{
        write_trace(false, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "reuse-decay", "--budget", "64"));
        double steps = 0;
        for (size_t i = 0; i < bench_rows(report); i++) {
                const double top = bench_number(report, i, "top"), local = bench_number(report, i, "local");
                ck_assert_double_eq(bench_number(report, i, "reused"), top);
                bench_near(bench_number(report, i, "with_local"), top + local, 1e-8, "with the last ones");
                steps += bench_number(report, i, "steps");
        }
        double sum = 0, last = 0;
        for (size_t i = 0; i < N_IMPORTANT; i++)
                sum += weight_of(PROMPT, important(i));
        for (size_t i = PROMPT - WINDOW + 1; i <= PROMPT; i++)
                last += weight_of(PROMPT, i);
        bench_near(bench_number(report, 0, "top"), sum, 1e-6, "weight of the important ones");
        bench_near(bench_number(report, 0, "local"), last, 1e-9, "weight of the last ones");
        ck_assert_double_eq(steps, STEPS);
}
END_TEST

START_TEST(queries_that_do_not_turn_retrieve_once)
{
        write_trace(false, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "frequency", "--tau", "-0.5,0.9,1"));
        for (size_t i = 0; i < bench_rows(report); i++) {
                ck_assert_double_eq(bench_number(report, i, "retrievals"), 1);
                ck_assert_double_eq(bench_number(report, i, "segment"), STEPS);
                ck_assert_double_eq(bench_number(report, i, "longest"), STEPS);
        }
        report = bench_good(PAPERS("--figure", "boundary", "--budget", "128", "--stride", "1,8"));
        for (size_t i = 0; i < 2; i++) {
                ck_assert_double_eq(bench_number(report, i, "retrievals"), i == 0 ? STEPS : STEPS / 8);
                bench_near(bench_number(report, i, "recall_boundary"), bench_number(report, i, "recall_stride"), 1e-9,
                           "recall");
        }
}
END_TEST

START_TEST(what_is_chosen_again_is_always_there)
{
        write_trace(false, OBSERVED);
        json_t *report = bench_good(
                PAPERS("--figure", "cache-hits", "--budget", "128", "--reach", "1,3", "--preset", "topk,full"));
        ck_assert_uint_eq(bench_rows(report), 2 * 5);
        for (size_t i = 0; i < bench_rows(report); i++)
                if (says(report, i, "choice", "full"))
                        ck_assert(bench_is_null(report, i, "hit_rate"));
                else
                        ck_assert_double_eq(bench_number(report, i, "hit_rate"), 1);
}
END_TEST

/* Counted once more, page by page. */
START_TEST(important_tokens_are_counted_in_their_pages)
{
        double pages = 0, ones = 0, twos = 0;
        write_trace(false, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "fragmentation", "--budget", "64", "--page-tokens", "8"));
        for (size_t page = 0; page < TOKENS / 8; page++) {
                size_t n = 0;
                for (size_t i = 0; i < N_IMPORTANT; i++)
                        n += important(i) / 8 == page;
                pages += n > 0;
                ones += n == 1;
                twos += n == 2;
        }
        ck_assert_uint_eq(bench_rows(report), 2);
        for (size_t i = 0; i < 2; i++) {
                /* All of them lie after the sink; the last ones are never in the window's 64. */
                bench_near(bench_number(report, i, "important_per_page"), N_IMPORTANT / pages, 1e-8, "per page");
                bench_near(bench_number(report, i, "pages"), pages, 1e-8, "pages");
                bench_near(bench_number(report, i, "read_factor"), pages * 8 / N_IMPORTANT, 1e-8, "read");
                bench_near(bench_number(report, i, "pages_1"), ones / pages, 1e-8, "with one");
                bench_near(bench_number(report, i, "pages_2"), twos / pages, 1e-8, "with two");
        }
}
END_TEST

START_TEST(the_online_ratio_of_equal_queries_is_all_whole_pages)
{
        write_trace(false, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "online-s", "--budget", "96,100,1000"));
        /* Five places each; the last budget holds the prompt. */
        ck_assert_uint_eq(bench_rows(report), 10);
        for (size_t i = 0; i < 10; i++) {
                ck_assert_double_eq(bench_number(report, i, "overlap"), 1);
                bench_near(bench_number(report, i, "S"), i < 5 ? 1 : 0.96, 1e-12, "S");
        }
        ck_assert_double_eq(bench_number(report, 0, "n"), PROMPT);
        ck_assert_double_eq(bench_number(report, 4, "n"), TOKENS);
}
END_TEST

/* Token numbers by weight, best first: those that are stored stand in this order at each position. */
static size_t best_stored(size_t n_stored, size_t n, size_t *out)
{
        bool taken[TOKENS] = {false};
        for (size_t k = 0; k < n; k++) {
                size_t best = 0;
                while (taken[best])
                        best++;
                for (size_t i = best + 1; i < n_stored; i++)
                        if (!taken[i] && scores[0][i] > scores[0][best])
                                best = i;
                taken[best] = true;
                out[k] = best;
        }
        return n;
}

/* All static, refreshed at each step: what fills no page yet, and next to it the best of what left the window. */
static double recall_all_static(size_t budget)
{
        enum { PAGE = 32 };
        double sum = 0;
        for (size_t t = PROMPT; t < TOKENS; t++) {
                const size_t stored = t + 1 - WINDOW, open = stored % PAGE;
                const size_t n = budget - WINDOW - open;
                size_t best[TOKENS];
                best_stored(stored, n, best);
                for (size_t i = 0; i < n; i++)
                        sum += weight_of(t, best[i]) / STEPS;
                for (size_t i = stored - open; i <= t; i++)
                        sum += weight_of(t, i) / STEPS;
        }
        return sum;
}

START_TEST(scattered_tokens_that_persist_are_held_by_static_pages_alone)
{
        write_trace(false, OBSERVED);
        json_t *report = bench_good(
                PAPERS("--figure", "static-ratio", "--budget", "256", "--static-ratio", "0,0.5,1", "--period", "1"));
        ck_assert_uint_eq(bench_rows(report), 3);
        bench_near(bench_number(report, 2, "recall"), recall_all_static(256), 1e-6, "recall of all static");
        ck_assert_double_eq(bench_number(report, 0, "static"), 0);
        ck_assert_double_eq(bench_number(report, 1, "static"), 96);
        ck_assert_double_eq(bench_number(report, 2, "static"), 192);
        /* 64 tokens over 12 pages of 32, of which six can be had. */
        ck_assert_double_lt(bench_number(report, 0, "recall"), 0.6);
        ck_assert_double_gt(bench_number(report, 1, "recall"), 0.95);
        ck_assert_double_eq(bench_number(report, 2, "kept_static"), 1);
        for (size_t i = 0; i < 3; i++)
                ck_assert_double_eq(bench_number(report, i, "attended"), 256);
}
END_TEST

/* A cluster of one key is that key. */
START_TEST(clusters_of_one_key_choose_the_best_tokens)
{
        write_trace(false, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "cluster-recall", "--budget", "128", "--cluster-rows", "1,100"));
        ck_assert_uint_eq(bench_rows(report), 7);
        ck_assert_double_eq(bench_number(report, 0, "token_recall"), 1);
        ck_assert_double_eq(bench_number(report, 0, "n_groups"), PROMPT - SINK);
        ck_assert_double_le(bench_number(report, 1, "n_groups"), (PROMPT - SINK) / 100);
        ck_assert_double_lt(bench_number(report, 1, "token_recall"), 1);
}
END_TEST

/* --- a trace that turns at each step --------------------------------------------------------------------------------------------------- */

START_TEST(sets_that_change_at_each_step_share_nothing)
{
        write_trace(true, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "jaccard", "--budget", "32", "--tau", "0.5"));
        ck_assert_uint_eq(bench_rows(report), 1);
        ck_assert_double_eq(bench_number(report, 0, "across"), 0);
        ck_assert_double_eq(bench_number(report, 0, "across_contested"), 0);
        ck_assert_double_eq(bench_number(report, 0, "pairs_across"), STEPS - 1);
        ck_assert(bench_is_null(report, 0, "within"));
        report = bench_good(PAPERS("--figure", "frequency", "--tau", "0.5,-0.5"));
        ck_assert_double_eq(bench_number(report, 0, "frequency"), 1);
        ck_assert_double_eq(bench_number(report, 0, "segment"), 1);
        ck_assert_double_eq(bench_number(report, 1, "retrievals"), 1);
}
END_TEST

START_TEST(what_was_chosen_two_steps_ago_is_there_with_a_reach_of_two)
{
        write_trace(true, OBSERVED);
        json_t *report =
                bench_good(PAPERS("--figure", "cache-hits", "--budget", "112", "--reach", "1,2,4", "--preset", "topk"));
        static const char *const choices[] = {"exact, of tokens", "topk"};
        for (size_t i = 0; i < 2; i++) {
                ck_assert_double_eq(bench_number(report, find_row(report, "choice", choices[i], "R", 1), "hit_rate"),
                                    0);
                ck_assert_double_eq(bench_number(report, find_row(report, "choice", choices[i], "R", 2), "hit_rate"),
                                    1);
                ck_assert_double_eq(bench_number(report, find_row(report, "choice", choices[i], "R", 4), "hit_rate"),
                                    1);
        }
}
END_TEST

/* Every step is as much of a boundary as any other, and the earlier ones come first: all of the first half are retrieved at, then half
 * of the steps find what they look for. Each second step finds one of the two sets. */
START_TEST(a_fixed_stride_can_miss_what_boundaries_see)
{
        write_trace(true, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "boundary", "--budget", "112", "--stride", "1,2"));
        bench_near(bench_number(report, 0, "share_boundary"), bench_number(report, 0, "share_stride"), 1e-12,
                   "each step");
        bench_near(bench_number(report, 1, "share_boundary"), 0.75 * bench_number(report, 0, "share_stride"), 0.01,
                   "boundaries");
        bench_near(bench_number(report, 1, "share_stride"), 0.5 * bench_number(report, 0, "share_stride"), 0.01,
                   "stride");
}
END_TEST

START_TEST(what_turns_is_not_worth_a_static_page)
{
        write_trace(true, OBSERVED);
        json_t *report = bench_good(PAPERS("--figure", "online-s", "--budget", "32"));
        for (size_t i = 0; i < bench_rows(report); i++)
                ck_assert_double_eq(bench_number(report, i, "S"), 0);
}
END_TEST

/* --- presets ------------------------------------------------------------------------------------------------------------------------------ */

#define BRIEF "--steps", "48", "--every", "16"

START_TEST(recall_of_presets_is_that_of_the_subcommand_kv)
{
        json_t *papers =
                bench_good(REAL(BRIEF, "--figure", "token-recall", "--budget", "128", "--preset", "full,topk,quest"));
        json_t *kv = bench_good(BENCH("kv", "--trace", test_trace_dir(), BRIEF, "--budget", "128", "--preset",
                                      "full,topk,quest", "--json", scratch_path("r.json")));
        ck_assert_uint_eq(bench_rows(papers), 6);
        for (size_t i = 0; i < 6; i++) {
                ck_assert(says(papers, i, "best_of", i < 3 ? "all" : "prompt"));
                if (i < 3) {
                        bench_near(bench_number(papers, i, "token_recall"), bench_number(kv, i, "token_recall"), 1e-9,
                                   "token recall");
                        bench_near(bench_number(papers, i, "recall"), bench_number(kv, i, "recall"), 1e-9, "recall");
                } else if (i > 3) {
                        ck_assert_double_eq(bench_number(papers, i, "attended"), 128);
                }
        }
        ck_assert_double_eq(bench_number(papers, 3, "token_recall"), 1);
        /* Without a window to keep, the best of three heads. */
        ck_assert_double_gt(bench_number(papers, 4, "token_recall"), bench_number(papers, 1, "token_recall"));
}
END_TEST

/* Without static pages the simulation is ArkVale, but for the rounding of its scores. */
START_TEST(no_static_page_is_what_the_preset_arkvale_chooses)
{
        json_t *papers = bench_good(REAL("--steps", "48", "--figure", "static-ratio", "--budget", "512",
                                         "--static-ratio", "0", "--sink", "16"));
        json_t *kv = bench_good(BENCH("kv", "--trace", test_trace_dir(), "--steps", "48", "--budget", "512", "--preset",
                                      "arkvale", "--json", scratch_path("r.json")));
        bench_near(bench_number(papers, 0, "share"), bench_number(kv, 0, "share"), 0.005, "share");
        bench_near(bench_number(papers, 0, "recall"), bench_number(kv, 0, "recall"), 0.005, "recall");
        ck_assert_double_eq(bench_number(papers, 0, "attended"), bench_number(kv, 0, "attended"));
}
END_TEST

START_TEST(what_is_loaded_whole_has_every_hit)
{
        write_trace(false, OBSERVED);
        json_t *report = bench_good(
                PAPERS("--figure", "page-hits", "--every", "4", "--budget", "144", "--preset", "full,topk,streaming"));
        ck_assert_uint_eq(bench_rows(report), 3);
        ck_assert_double_eq(bench_number(report, 0, "hit_rate"), 1);
        ck_assert_double_eq(bench_number(report, 0, "first_quarter"), 1);
        /* The best 144 of a head are 64 important ones and the first of the prompt: 64 of the 128 that are no sink are chosen. */
        bench_near(bench_number(report, 1, "hit_rate"), 64 / 128.0, 1e-9, "topk");
        bench_near(bench_number(report, 1, "of_prompt"), 64 / 128.0, 1e-9, "topk, of the prompt");
        ck_assert(bench_is_null(report, 1, "of_decoded"));
        ck_assert_double_lt(bench_number(report, 2, "hit_rate"), 0.2);
}
END_TEST

START_TEST(resident_bytes_are_those_of_the_library)
{
        json_t *papers = bench_good(REAL(BRIEF, "--figure", "resident", "--budget", "128", "--preset",
                                         "pagemean,sketch", "--key-bits", "2,4"));
        json_t *kv = bench_good(BENCH("kv", "--trace", test_trace_dir(), BRIEF, "--budget", "128", "--preset",
                                      "pagemean,sketch", "--key-bits", "2,4", "--json", scratch_path("r.json")));
        ck_assert_uint_eq(bench_rows(papers), 3);
        for (size_t i = 0; i < 3; i++) {
                ck_assert_double_eq(bench_number(papers, i, "index_bytes"),
                                    bench_number(kv, i, "resident_bytes_token"));
                ck_assert_double_eq(bench_number(papers, i, "row_bytes"), 256);
        }
}
END_TEST

/* --- runs ------------------------------------------------------------------------------------------------------------------------------------ */

START_TEST(a_layer_agrees_with_itself)
{
        char twice[4096];
        snprintf(twice, sizeof twice, "%s,%s", test_trace_dir(), test_trace_dir());
        json_t *report = bench_good(BENCH("papers", "--trace", twice, "--figure", "frequency", "--tau", "0.9",
                                          "--steps", "64", "--json", scratch_path("r.json")));
        const size_t n = bench_rows(report) / 2;
        for (size_t i = 0; i < n; i++) {
                ck_assert(bench_is_null(report, i, "agreement"));
                if (bench_number(report, n + i, "retrievals") > 1)
                        ck_assert_double_eq(bench_number(report, n + i, "agreement"), 1);
        }
        ck_assert_double_lt(bench_number(report, n + 4, "chance"), 0.9);
}
END_TEST

START_TEST(without_a_choice_every_figure_is_there)
{
        static const char *const names[] = {"token-recall", "cluster-recall", "static-ratio", "reuse-decay",
                                            "online-s",     "jaccard",        "frequency",    "boundary",
                                            "cache-hits",   "fragmentation",  "page-hits",    "resident"};
        write_trace(true, OBSERVED);
        bench_result result = PAPERS("--budget", "256", "--preset", "quest", "--cluster-rows", "40");
        json_t *report = bench_good(result);
        size_t next = 0;
        for (size_t i = 0; i < bench_rows(report); i++) {
                while (next < 12 && says(report, i, "figure", names[next]) == false)
                        next++;
                ck_assert_msg(next < 12, "row %zu is out of order", i);
        }
        for (size_t i = 0; i < 12; i++)
                ck_assert_msg(strstr(result.out, names[i]) != NULL, "there is no '%s'", names[i]);
        ck_assert(json_is_object(json_object_get(report, "machine")));
        ck_assert(json_is_array(json_object_get(report, "command")));
}
END_TEST

START_TEST(results_do_not_depend_on_threads)
{
        json_t *one = bench_good(REAL(BRIEF, "--figure", "jaccard,static-ratio", "--budget", "256", "--threads", "1"));
        json_t *two = bench_good(REAL(BRIEF, "--figure", "jaccard,static-ratio", "--budget", "256", "--threads", "2"));
        ck_assert(json_equal(json_object_get(one, "rows"), json_object_get(two, "rows")));
}
END_TEST

/* --- what is refused ----------------------------------------------------------------------------------------------------------------------------- */

START_TEST(an_empty_observation_window_is_refused)
{
        write_trace(false, 0);
        bench_refused(PAPERS("--figure", "static-ratio", "--budget", "256"), 2, "holds 0 queries before the decode");
        bench_refused(PAPERS("--figure", "online-s", "--budget", "96"), 2, "holds 0 queries before the decode");
        /* Others do without: the first step has no query before it and begins a segment all the same. */
        json_t *report = bench_good(PAPERS("--figure", "frequency,jaccard", "--budget", "64", "--tau", "0.5"));
        ck_assert_double_eq(bench_number(report, 1, "retrievals"), 1);
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
        write_trace(false, OBSERVED);
        bench_refused(PAPERS("--figure", "static-ratio", "--budget", "127"), 2, "needs two pages");
        bench_refused(PAPERS("--figure", "static-ratio", "--window", "65"), 2, "holds 64 queries before the decode");
        bench_refused(PAPERS("--figure", "boundary", "--budget", "80"), 2, "boundary keeps 80 tokens");
        bench_refused(PAPERS("--figure", "cache-hits", "--budget", "80"), 2, "cache-hits keeps 80 tokens");
        bench_refused(PAPERS("--figure", "cluster-recall", "--budget", "16"), 2, "cluster-recall keeps 16 tokens");
        bench_refused(PAPERS("--figure", "token-recall", "--budget", "64"), 2, "token-recall: ");
        bench_refused(PAPERS("--figure", "cluster-recall", "--budget", "64", "--steps", "8"), 2,
                      "8 decoded tokens are too few");
        bench_refused(PAPERS("--figure", "cache-hits", "--budget", "128", "--steps", "8"), 2, "too few");
        bench_refused(BENCH("papers", "--trace", scratch_path("absent")), 2, "absent");
        bench_refused(BENCH("papers", "--trace", scratch_path(""), "--json", scratch_path("absent/r.json")), 2,
                      "cannot be written");
}
END_TEST

START_TEST(numbers_that_are_none_are_refused)
{
        write_trace(false, OBSERVED);
        float *keys = test_normal(TOKENS, DIM, 3);
        keys[5 * DIM] = NAN;
        bench_write_f32("keys.npy", keys, TOKENS, DIM);
        bench_refused(PAPERS("--figure", "jaccard", "--budget", "64"), 2, "NaN or infinity");
        free(keys);
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{sets_that_never_change_have_jaccard_1, 0},
                                    {what_stays_important_does_not_decay, 0},
                                    {queries_that_do_not_turn_retrieve_once, 0},
                                    {what_is_chosen_again_is_always_there, 0},
                                    {important_tokens_are_counted_in_their_pages, 0},
                                    {the_online_ratio_of_equal_queries_is_all_whole_pages, 0},
                                    {scattered_tokens_that_persist_are_held_by_static_pages_alone, 0},
                                    {clusters_of_one_key_choose_the_best_tokens, 0},
                                    {sets_that_change_at_each_step_share_nothing, 0},
                                    {what_was_chosen_two_steps_ago_is_there_with_a_reach_of_two, 0},
                                    {a_fixed_stride_can_miss_what_boundaries_see, 0},
                                    {what_turns_is_not_worth_a_static_page, 0},
                                    {recall_of_presets_is_that_of_the_subcommand_kv, 0},
                                    {no_static_page_is_what_the_preset_arkvale_chooses, 0},
                                    {what_is_loaded_whole_has_every_hit, 0},
                                    {resident_bytes_are_those_of_the_library, 0},
                                    {a_layer_agrees_with_itself, 0},
                                    {without_a_choice_every_figure_is_there, 0},
                                    {results_do_not_depend_on_threads, 0},
                                    {an_empty_observation_window_is_refused, 0},
                                    {what_does_not_fit_is_refused, 0},
                                    {numbers_that_are_none_are_refused, 0}};
        return bench_main("bench papers", scratch_open, scratch_close, tests, sizeof tests / sizeof *tests);
}
