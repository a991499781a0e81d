/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sketches: what appending, truncating, centres that follow and fits do to codes. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "sketch/sketch_internal.h"
#include "tests/context_fixture.h"
#include "tests/sketch_fixture.h"

enum { N_WIDTHS = COUNT(sketch_widths), QUERIES = 5 };

/* --- growth -------------------------------------------------------------------------------------------------------------------- */

static const size_t batches[] = {1, 7, 31, 32, 33, 500};

/* Loops over transforms and centres. Under RUNNING, batches decide where centres lie: bounds hold all the same. */
START_TEST(any_batches_give_the_same_codes)
{
        enum { N = 700, DIM = 40 };
        const size_t transform = (size_t)_i % N_TRANSFORMS;
        const int32_t centre = sketch_centres[_i / N_TRANSFORMS];
        float *rows = sketch_rows(CLUSTERS, N, DIM, 12), *queries = sketch_rows(TAILS, QUERIES, DIM, 13);
        float *mean = sketch_mean(N, rows, DIM);
        dci_sketch *whole = sketch_of(context, DIM, 3, transform, centre, N, rows);
        sketch_seen wanted = sketch_look(whole, DIM, QUERIES, queries, 10);
        for (size_t b = 0; b < COUNT(batches); b++) {
                dci_sketch_config config = sketch_config(DIM, 3, transform, centre, mean);
                float *fitting = sketch_rows(FADING, SKETCH_FIT_QUERIES, DIM, SKETCH_FIT_SEED);
                dci_sketch *sketch = sketch_create(context, &config);
                if (transform == LEARNED)
                        sketch_fit(sketch, N, rows, DIM, SKETCH_FIT_QUERIES, fitting);
                for (size_t at = 0; at < N; at += batches[b])
                        ck_ok(dci_sketch_append(sketch, N - at < batches[b] ? N - at : batches[b], rows + at * DIM,
                                                DIM));
                sketch_seen seen = sketch_look(sketch, DIM, QUERIES, queries, 10);
                sketch_obey(&seen, rows, queries, "batches");
                if (centre != DCI_CENTRE_RUNNING)
                        sketch_same(&wanted, &seen, "batches");
                sketch_seen_free(&seen);
                dci_sketch_destroy(sketch);
                free(fitting);
        }
        sketch_seen_free(&wanted);
        dci_sketch_destroy(whole);
        test_free(rows, queries, mean);
}
END_TEST

/* Loops over transforms and centres. Bounds of the last block may stay wider, never smaller. */
START_TEST(truncated_rows_were_never_there)
{
        enum { N = 300, DIM = 40 };
        static const size_t lefts[] = {0, 1, 31, 32, 33, 150, 299, 300};
        const size_t transform = (size_t)_i % N_TRANSFORMS;
        const int32_t centre = sketch_centres[_i / N_TRANSFORMS];
        float *rows = sketch_rows(CLUSTERS, N, DIM, 14), *queries = sketch_rows(TAILS, QUERIES, DIM, 15);
        dci_sketch *plain = sketch_of(context, DIM, 2, transform, centre, N, rows);
        sketch_seen wanted = sketch_look(plain, DIM, QUERIES, queries, 10);
        for (size_t l = 0; l < COUNT(lefts); l++) {
                const size_t left = lefts[l];
                dci_sketch *sketch = sketch_of(context, DIM, 2, transform, centre, N, rows);
                float *others = sketch_rows(TAILS, N, DIM, 16);
                ck_ok(dci_sketch_truncate(sketch, left));
                ck_ok(dci_sketch_append(sketch, N - 100, others, DIM));
                ck_ok(dci_sketch_truncate(sketch, left));
                sketch_seen seen = sketch_look(sketch, DIM, QUERIES, queries, 10);
                ck_assert_uint_eq(seen.n, left);
                sketch_same_rows(&wanted, &seen, left, false, "left");
                sketch_seen_free(&seen);
                ck_ok(dci_sketch_append(sketch, N - left, rows + left * DIM, DIM));
                seen = sketch_look(sketch, DIM, QUERIES, queries, 10);
                sketch_obey(&seen, rows, queries, "truncated");
                if (centre != DCI_CENTRE_RUNNING) {
                        sketch_same_rows(&wanted, &seen, N, false, "appended again");
                        ck_assert_mem_eq(wanted.best, seen.best, QUERIES * 10 * sizeof *seen.best);
                        for (size_t i = 0; i < N * QUERIES; i++)
                                test_hold(seen.bounds[i] >= wanted.bounds[i]);
                }
                sketch_seen_free(&seen);
                dci_sketch_destroy(sketch);
                free(others);
        }
        sketch_seen_free(&wanted);
        dci_sketch_destroy(plain);
        test_free(rows, queries);
}
END_TEST

/* --- rows that are gone, and rows that came before ------------------------------------------------------------------------------ */

/* Rows about a place of their own, far off in units of their spread. */
static float *rows_about(size_t n, size_t dim, float far, uint64_t seed)
{
        float *rows = test_normal(n, dim, seed), *place = test_normal(1, dim, seed + 1);
        for (size_t i = 0; i < n * dim; i++)
                rows[i] += far * place[i % dim];
        free(place);
        return rows;
}

/* Fails unless two sketches say the same and have as much to say it with. */
static void same_sketches(const dci_sketch *a, const dci_sketch *b, size_t dim, const float *queries, const char *what)
{
        sketch_seen x = sketch_look(a, dim, QUERIES, queries, 10), y = sketch_look(b, dim, QUERIES, queries, 10);
        sketch_same(&x, &y, what);
        const dci_sketch_info of_a = sketch_info(a), of_b = sketch_info(b);
        ck_assert_msg(of_a.centres == of_b.centres && of_a.transforms == of_b.transforms, "%s: %zu centres and %zu",
                      what, of_a.centres, of_b.centres);
        sketch_seen_free(&x);
        sketch_seen_free(&y);
}

static double mean_distortion(const dci_sketch *sketch, size_t first, size_t end)
{
        double sum = 0.0;
        for (size_t i = first; i < end; i++)
                sum += (double)sketch->area.residuals[i] * (double)sketch->area.residuals[i];
        return sum / (double)(end - first);
}

/* Loops over transforms, under RUNNING: whatever rows were there before, few or many, one by one or together. */
START_TEST(a_batch_after_all_rows_were_cut_is_coded_as_in_a_new_sketch)
{
        enum { N = 1100, DIM = 24 };
        static const size_t befores[] = {1, 5, 31, 32, 33, 300}, news[] = {32, 33, 500, N};
        float *old = rows_about(300, DIM, 1000.0f, 31), *rows = sketch_rows(CLUSTERS, N, DIM, 32);
        float *queries = sketch_rows(TAILS, QUERIES, DIM, 33);
        for (size_t b = 0; b < COUNT(befores); b++)
                for (size_t c = 0; c < COUNT(news); c++) {
                        dci_sketch *again = sketch_of(context, DIM, 2, (size_t)_i, DCI_CENTRE_RUNNING, 0, NULL);
                        dci_sketch *fresh = sketch_of(context, DIM, 2, (size_t)_i, DCI_CENTRE_RUNNING, 0, NULL);
                        const size_t step = c % 2 == 0 ? 1 : befores[b];
                        for (size_t at = 0; at < befores[b]; at += step)
                                ck_ok(dci_sketch_append(again, step, old + at * DIM, DIM));
                        if (_i == LEARNED) {
                                sketch_fit(again, N, rows, DIM, QUERIES, queries);
                                sketch_fit(fresh, N, rows, DIM, QUERIES, queries);
                        }
                        ck_ok(dci_sketch_truncate(again, 0));
                        ck_ok(dci_sketch_append(again, news[c], rows, DIM));
                        ck_ok(dci_sketch_append(fresh, news[c], rows, DIM));
                        same_sketches(again, fresh, DIM, queries, "after a cut to nothing");
                        dci_sketch_destroy(again);
                        dci_sketch_destroy(fresh);
                }
        test_free(old, rows, queries);
}
END_TEST

/* Nothing is cut: a batch is looked at as a whole, and what waited for a decision before it is not. */
START_TEST(few_rows_do_not_move_the_centre_of_a_batch_behind_them)
{
        enum { N = 1000, DIM = 64, FEW = 31 };
        float *old = rows_about(FEW, DIM, 1000.0f, 34), *rows = test_normal(N, DIM, 35);
        dci_sketch *joined = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, 0, NULL);
        dci_sketch *alone = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, N, rows);
        for (size_t i = 0; i < FEW; i++)
                ck_ok(dci_sketch_append(joined, 1, old + i * DIM, DIM));
        ck_ok(dci_sketch_append(joined, N, rows, DIM));
        const double here = mean_distortion(joined, 2 * DCI_CODE_ROWS, FEW + N), wanted = mean_distortion(alone, 0, N);
        ck_assert_msg(here < 1.1 * wanted, "%g, alone %g", here, wanted);
        dci_sketch_destroy(joined);
        dci_sketch_destroy(alone);
        test_free(old, rows);
}
END_TEST

/* Rows one by one, all of them cut before a decision: those that come then, near the centre there is, need no other. */
START_TEST(rows_that_were_cut_begin_no_centre)
{
        enum { N = 64, DIM = 24 };
        float *rows = test_normal(2 * N, DIM, 36), *far = rows_about(31, DIM, 1000.0f, 37);
        dci_sketch *sketch = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, N, rows);
        for (size_t i = 0; i < 31; i++)
                ck_ok(dci_sketch_append(sketch, 1, far + i * DIM, DIM));
        ck_ok(dci_sketch_truncate(sketch, N));
        for (size_t i = N; i < 2 * N; i++)
                ck_ok(dci_sketch_append(sketch, 1, rows + i * DIM, DIM));
        const double here = mean_distortion(sketch, N, 2 * N), before = mean_distortion(sketch, 0, N);
        ck_assert_msg(here < 1.5 * before, "%g after %g", here, before);
        ck_assert_uint_eq(sketch_info(sketch).centres, 1);
        dci_sketch_destroy(sketch);
        test_free(rows, far);
}
END_TEST

/* As tokens do that are proposed and taken back: of each four that come two go again. */
START_TEST(centres_follow_rows_of_which_some_are_cut_each_time)
{
        enum { N = 64, DIM = 24, STEPS = 100 };
        float *rows = test_normal(N, DIM, 38), *far = rows_about(2 * STEPS + 2, DIM, 50.0f, 39);
        dci_sketch *own = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, 2 * STEPS, far);
        for (size_t phase = 0; phase < DCI_CODE_ROWS; phase += 5) {
                dci_sketch *sketch = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, N - phase, rows);
                for (size_t i = 0; i < STEPS; i++) {
                        ck_ok(dci_sketch_append(sketch, 4, far + 2 * i * DIM, DIM));
                        ck_ok(dci_sketch_truncate(sketch, N - phase + 2 * (i + 1)));
                }
                const size_t n = dci_sketch_count(sketch);
                const double here = mean_distortion(sketch, n - STEPS, n), wanted = mean_distortion(own, 0, 2 * STEPS);
                ck_assert_msg(here < 2.0 * wanted, "%g, alone %g", here, wanted);
                dci_sketch_destroy(sketch);
        }
        dci_sketch_destroy(own);
        test_free(rows, far);
}
END_TEST

/* One sketch for one sequence after another. Loops over fitting every fifth time, or never. */
START_TEST(a_sketch_that_is_used_again_is_as_good_as_a_new_one)
{
        enum { ROUNDS = 300, N = 96, DIM = 16 };
        float *queries = sketch_rows(TAILS, QUERIES, DIM, 40), *fitted = NULL;
        const dci_sketch_config config = sketch_config(DIM, 4, RANDOM, DCI_CENTRE_RUNNING, NULL);
        dci_sketch *sketch = sketch_create(context, &config);
        for (size_t round = 0; round < ROUNDS; round++) {
                float *rows = rows_about(N, DIM, 10.0f, 50 + 2 * round);
                dci_sketch *fresh = sketch_create(context, &config);
                ck_ok(dci_sketch_truncate(sketch, 0));
                if (_i == 1 && round % 5 == 0) {
                        sketch_fit(sketch, N, rows, DIM, QUERIES, queries);
                        ck_ok(dci_sketch_truncate(sketch, 0)); /* what the last sequence had */
                        free(fitted);
                        fitted = test_copy(rows, N * DIM * sizeof *rows);
                }
                if (fitted != NULL)
                        sketch_fit(fresh, N, fitted, DIM, QUERIES, queries);
                ck_ok(dci_sketch_append(sketch, N, rows, DIM));
                ck_ok(dci_sketch_append(fresh, N, rows, DIM));
                same_sketches(sketch, fresh, DIM, queries, "used again");
                ck_assert_uint_eq(sketch_info(sketch).bytes, sketch_info(fresh).bytes);
                dci_sketch_destroy(fresh);
                free(rows);
        }
        dci_sketch_destroy(sketch);
        test_free(queries, fitted);
}
END_TEST

/* Continuations of one prefix, each about a place of its own. Loops over fitting every fifth time, or never. */
START_TEST(continuations_that_were_cut_leave_no_centre_behind)
{
        enum { ROUNDS = 300, PREFIX = 80, N = 100, DIM = 16 };
        float *prefix = test_normal(PREFIX, DIM, 41), *queries = sketch_rows(TAILS, QUERIES, DIM, 42);
        dci_sketch *sketch = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, PREFIX, prefix);
        sketch_seen before = sketch_look(sketch, DIM, QUERIES, queries, 0);
        for (size_t round = 0; round < ROUNDS; round++) {
                float *rows = rows_about(N, DIM, 10.0f, 60 + 2 * round);
                if (_i == 1 && round % 5 == 4)
                        sketch_fit(sketch, N, rows, DIM, QUERIES, queries);
                ck_ok(dci_sketch_append(sketch, N, rows, DIM));
                ck_assert_uint_le(sketch_info(sketch).centres, 4);
                if (_i == 0) {
                        dci_sketch *own = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, N, rows);
                        const double here = mean_distortion(sketch, 96, PREFIX + N), there = mean_distortion(own, 0, N);
                        ck_assert_msg(here < 1.5 * there, "%zu: %g, alone %g", round, here, there);
                        dci_sketch_destroy(own);
                }
                ck_ok(dci_sketch_truncate(sketch, PREFIX));
                sketch_seen seen = sketch_look(sketch, DIM, QUERIES, queries, 0);
                sketch_same_rows(&before, &seen, PREFIX, false, "prefix");
                sketch_seen_free(&seen);
                free(rows);
        }
        sketch_seen_free(&before);
        dci_sketch_destroy(sketch);
        test_free(prefix, queries);
}
END_TEST

/* As the header states it: bits by coordinate, rounded up, and two floats. */
START_TEST(rows_take_the_bytes_that_the_header_states)
{
        static const size_t dims[] = {1, 3, 5, 8, 16, 31, 64, 80, 96, 100, 784};
        for (size_t w = 0; w < N_WIDTHS; w++)
                for (size_t d = 0; d < COUNT(dims); d++) {

                        static const size_t steps[] = {32, 16, 32, 8, 4};
                        const size_t coords = (dims[d] + steps[w] - 1) / steps[w] * steps[w];
                        dci_sketch *sketch =
                                sketch_of(context, dims[d], sketch_widths[w], RANDOM, DCI_CENTRE_NONE, 0, NULL);
                        ck_assert_uint_eq(sketch_info(sketch).row_bytes, coords * (size_t)sketch_widths[w] / 8 + 8);
                        dci_sketch_destroy(sketch);
                }
}
END_TEST

static double squared_residual(const float *rows, const float *decoded, size_t n)
{
        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
                sum += ((double)rows[i] - (double)decoded[i]) * ((double)rows[i] - (double)decoded[i]);
        return sum;
}

/* Loops over widths. The mean of the rows wanders far beyond their spread. */
START_TEST(centres_follow_a_stream)
{
        enum { PARTS = 6, PART = 1024, DIM = 64, BATCH = 128 };
        float *rows = test_normal(PARTS * PART, DIM, 17), *ways = test_normal(PARTS, DIM, 18);
        float *queries = test_normal(QUERIES, DIM, 19);
        double local = 0.0;
        for (size_t i = 0; i < PARTS * PART * DIM; i++)
                rows[i] += 10.0f * ways[i / DIM / PART * DIM + i % DIM];
        dci_sketch_config config = sketch_config(DIM, sketch_widths[_i], RANDOM, DCI_CENTRE_RUNNING, NULL);
        dci_sketch *stream = sketch_create(context, &config);
        for (size_t at = 0; at < PARTS * PART; at += BATCH)
                ck_ok(dci_sketch_append(stream, BATCH, rows + at * DIM, DIM));
        for (size_t p = 0; p < PARTS; p++) {
                const float *part = rows + p * PART * DIM;
                dci_sketch *own = sketch_of(context, DIM, sketch_widths[_i], RANDOM, DCI_CENTRE_GIVEN, PART, part);
                sketch_seen seen = sketch_look(own, DIM, 1, queries, 0);
                local += squared_residual(part, seen.decoded, PART * DIM);
                ck_assert_uint_eq(sketch_info(own).centres, 1);
                sketch_seen_free(&seen);
                dci_sketch_destroy(own);
        }
        sketch_seen seen = sketch_look(stream, DIM, QUERIES, queries, 0);
        sketch_obey(&seen, rows, queries, "stream");
        const double here = squared_residual(rows, seen.decoded, PARTS * PART * DIM);
        ck_assert_msg(here < 2.0 * local, "%g, with each part's mean %g", here, local);
        ck_assert_uint_ge(sketch_info(stream).centres, PARTS);
        ck_assert_uint_eq(sketch_info(stream).transforms, 1);
        sketch_seen_free(&seen);
        dci_sketch_destroy(stream);
        test_free(rows, ways, queries);
}
END_TEST

/* --- fits ---------------------------------------------------------------------------------------------------------------------- */

/* The trace as it is in the repository: the last queries of the prompt, and those of the decode after them. */
enum { KEYS = 7680, PROMPT = 7168, HEADS = 3, PER_HEAD = 576, OBSERVED = 64, TOP = 100 };

/* How many of the true 100 best keys are among the 100 best estimates, on average over queries of the decode. */
static double recall(int32_t bits, bool learned)
{
        float *keys = pdci_trace("keys", KEYS), *queries = pdci_trace("queries", HEADS * PER_HEAD);
        float observed[HEADS * OBSERVED * TRACE_DIM], scores[PROMPT];
        size_t hits = 0, n_queries = 0;
        for (size_t h = 0; h < HEADS; h++)
                memcpy(observed + h * OBSERVED * TRACE_DIM, queries + h * PER_HEAD * TRACE_DIM,
                       OBSERVED * TRACE_DIM * sizeof *observed);
        dci_sketch_config config = sketch_config(TRACE_DIM, bits, RANDOM, DCI_CENTRE_RUNNING, NULL);
        dci_sketch *sketch = sketch_create(context, &config);
        if (learned)
                sketch_fit(sketch, PROMPT, keys, TRACE_DIM, HEADS * OBSERVED, observed);
        ck_ok(dci_sketch_append(sketch, PROMPT, keys, TRACE_DIM));
        for (size_t h = 0; h < HEADS; h++)
                for (size_t i = OBSERVED; i < PER_HEAD; i += 16, n_queries++) {
                        const float *query = queries + (h * PER_HEAD + i) * TRACE_DIM;
                        int64_t best[TOP];
                        ck_ok(dci_sketch_search(sketch, 1, query, TRACE_DIM, TOP, best, NULL));
                        for (size_t r = 0; r < PROMPT; r++)
                                scores[r] = (float)sketch_dot(keys + r * TRACE_DIM, query, TRACE_DIM);
                        for (size_t b = 0; b < TOP; b++) {
                                size_t better = 0;
                                for (size_t r = 0; r < PROMPT; r++)
                                        better += scores[r] > scores[best[b]];
                                hits += better < TOP;
                        }
                }
        dci_sketch_destroy(sketch);
        test_free(keys, queries);
        return (double)hits / (double)(n_queries * TOP);
}

/* Loops over one bit and two. */
START_TEST(learned_codes_recall_more_of_real_keys)
{
        const double random = recall(_i + 1, false), learned = recall(_i + 1, true);
        ck_assert_msg(learned > random + (_i == 0 ? 0.05 : 0.0), "%d bits: learned %.3f, random %.3f", _i + 1, learned,
                      random);
}
END_TEST

/* Loops over transforms before the fit and widths. */
START_TEST(codes_before_a_fit_stay_as_they_are)
{
        enum { N = 333, DIM = 64 };
        float *rows = sketch_rows(FADING, 2 * N, DIM, 20), *queries = sketch_rows(FADING, QUERIES, DIM, 21);
        dci_sketch *sketch = sketch_of(context, DIM, sketch_widths[_i % N_WIDTHS], (size_t)_i / N_WIDTHS,
                                       DCI_CENTRE_RUNNING, N, rows);
        sketch_seen before = sketch_look(sketch, DIM, QUERIES, queries, 5);
        const size_t transforms = sketch_info(sketch).transforms;
        sketch_fit(sketch, 2 * N, rows, DIM, QUERIES, queries);
        ck_assert_uint_eq(sketch_info(sketch).transforms, transforms + 1);
        sketch_seen after = sketch_look(sketch, DIM, QUERIES, queries, 5);
        sketch_same(&before, &after, "after a fit");
        sketch_seen_free(&after);
        ck_ok(dci_sketch_append(sketch, N, rows + N * DIM, DIM));
        after = sketch_look(sketch, DIM, QUERIES, queries, 5);
        sketch_same_rows(&before, &after, N / DCI_CODE_ROWS * DCI_CODE_ROWS, true, "with more rows");
        sketch_same_rows(&before, &after, N, false, "with more rows");
        sketch_obey(&after, rows, queries, "after a fit");
        sketch_seen_free(&before);
        sketch_seen_free(&after);
        dci_sketch_destroy(sketch);
        test_free(rows, queries);
}
END_TEST

/* Rows like those of the fit leave it near 1, rows that are not do not; a new fit brings it back. */
START_TEST(drift_tells_rows_that_have_changed)
{
        enum { N = 3000, DIM = 64 };
        float *rows = sketch_rows(FADING, 2 * N, DIM, 22), *queries = sketch_rows(FADING, 100, DIM, 23);
        float *changed = malloc(N * DIM * sizeof *changed);
        for (size_t i = 0; i < N * DIM; i++) /* other channels are strong */
                changed[i] = 2.0f * rows[i / DIM * DIM + DIM - 1 - i % DIM];
        dci_sketch *sketch = sketch_of(context, DIM, 2, LEARNED, DCI_CENTRE_RUNNING, 0, rows);
        ck_assert(isnan(sketch_info(sketch).drift));
        sketch_fit(sketch, N, rows, DIM, 100, queries);
        ck_ok(dci_sketch_append(sketch, N, rows, DIM));
        ck_assert_double_eq_tol(sketch_info(sketch).drift, 1.0, 0.25);
        ck_ok(dci_sketch_append(sketch, N, rows + N * DIM, DIM));
        ck_assert_double_eq_tol(sketch_info(sketch).drift, 1.0, 0.25);
        ck_ok(dci_sketch_append(sketch, N, changed, DIM));
        ck_assert_double_gt(sketch_info(sketch).drift, 1.5);
        sketch_fit(sketch, N, changed, DIM, 100, queries);
        ck_ok(dci_sketch_append(sketch, N, changed, DIM));
        ck_assert_double_eq_tol(sketch_info(sketch).drift, 1.0, 0.25);
        dci_sketch_destroy(sketch);
        test_free(rows, queries, changed);
}
END_TEST

/* Zero rows are known exactly. */
START_TEST(drift_tells_distortion_where_there_was_none)
{
        enum { N = 1024, DIM = 32 };
        float *rows = test_normal(N, DIM, 43), *zero = calloc(N * DIM, sizeof *zero);
        dci_sketch *sketch = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, N, zero);
        ck_assert_double_eq(sketch_info(sketch).drift, 1.0);
        ck_ok(dci_sketch_append(sketch, N, rows, DIM));
        ck_assert_double_gt(sketch_info(sketch).drift, 1.5);
        dci_sketch_destroy(sketch);
        test_free(rows, zero);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketch growth");
        TCase *growth = test_case_with(suite, "growth", 60, context_open_2, context_close);
        tcase_add_loop_test(growth, any_batches_give_the_same_codes, 0, N_TRANSFORMS * COUNT(sketch_centres));
        tcase_add_loop_test(growth, truncated_rows_were_never_there, 0, N_TRANSFORMS * COUNT(sketch_centres));
        tcase_add_test(growth, rows_take_the_bytes_that_the_header_states);
        tcase_add_loop_test(growth, centres_follow_a_stream, 0, N_WIDTHS);
        tcase_add_loop_test(growth, learned_codes_recall_more_of_real_keys, 0, 2);
        tcase_add_loop_test(growth, codes_before_a_fit_stay_as_they_are, 0, N_TRANSFORMS * N_WIDTHS);
        tcase_add_test(growth, drift_tells_rows_that_have_changed);
        tcase_add_test(growth, drift_tells_distortion_where_there_was_none);
        tcase_add_loop_test(growth, a_batch_after_all_rows_were_cut_is_coded_as_in_a_new_sketch, 0, N_TRANSFORMS);
        tcase_add_test(growth, few_rows_do_not_move_the_centre_of_a_batch_behind_them);
        tcase_add_test(growth, rows_that_were_cut_begin_no_centre);
        tcase_add_test(growth, centres_follow_rows_of_which_some_are_cut_each_time);
        tcase_add_loop_test(growth, a_sketch_that_is_used_again_is_as_good_as_a_new_one, 0, 2);
        tcase_add_loop_test(growth, continuations_that_were_cut_leave_no_centre_behind, 0, 2);
        return test_main(suite);
}
