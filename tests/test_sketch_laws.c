/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sketches: what estimates, bounds, searches and centres promise, by products in double precision. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sketch/sketch_internal.h"
#include "tests/context_fixture.h"
#include "tests/sketch_fixture.h"

static const size_t dims[] = {1, 3, 64, 80, 96, 128, 256, 784};
static const size_t counts[] = {0, 1, 31, 33, 1000};
enum { N_DIMS = COUNT(dims), N_WIDTHS = COUNT(sketch_widths), MOST = 1000, QUERIES = 5 };

/* --- bounds -------------------------------------------------------------------------------------------------------------------- */

/* One sketch of n rows of a format. */
static void check_bounds(size_t dim, int32_t bits, size_t transform, int32_t centre, dci_dtype dtype, size_t kind,
                         size_t n)
{
        char what[120];
        float *rows = sketch_rows(kind, n, dim, 1), *queries = sketch_rows((kind + 1) % N_KINDS, QUERIES, dim, 2);
        void *narrow = sketch_narrow(dtype, n * dim, rows), *asked = sketch_narrow(dtype, QUERIES * dim, queries);
        float *mean = sketch_mean(n, rows, dim);
        dci_sketch_config config = sketch_config(dim, bits, transform, centre, mean);
        config.dtype = dtype;
        dci_sketch *sketch = sketch_create(context, &config);
        if (transform == LEARNED && n > 0)
                sketch_fit(sketch, n, narrow, dim, QUERIES, asked);
        ck_ok(dci_sketch_append(sketch, n, narrow, dim));
        sketch_seen seen = sketch_look(sketch, dim, QUERIES, asked, 3);
        snprintf(what, sizeof what, "dim %zu, %d bits, transform %zu, centre %d, %s, rows of kind %zu", dim, (int)bits,
                 transform, (int)centre, dci_dtype_name(dtype), kind);
        sketch_obey(&seen, rows, queries, what);
        sketch_seen_free(&seen);
        dci_sketch_destroy(sketch);
        test_free(mean, rows, queries, narrow, asked);
}

/* Loops over dimensions and widths. Formats and kinds of rows take turns. */
START_TEST(estimates_lie_within_the_certain_bound)
{
        const size_t dim = dims[_i % N_DIMS];
        const int32_t bits = sketch_widths[_i / N_DIMS];
        size_t turn = (size_t)_i;
        for (size_t transform = 0; transform < N_TRANSFORMS; transform++)
                for (size_t centre = 0; centre < COUNT(sketch_centres); centre++)
                        for (size_t c = 0; c < COUNT(counts); c++, turn++) {
                                if (transform == LEARNED && dim > 128 &&
                                    (c != 3 || centre > 0 || (dim > 256 && bits > 1)))
                                        continue; /* fits of long rows take long */
                                const size_t n = counts[c] < 100 || dim <= 64 ? counts[c] : dim > 128 ? 120 : 300;
                                check_bounds(dim, bits, transform, sketch_centres[centre], all_dtypes[turn % 3],
                                             turn / 3 % N_KINDS, n);
                        }
}
END_TEST

/* Loops over transforms and widths. */
START_TEST(estimates_of_real_keys_lie_within_the_certain_bound)
{
        enum { N = 1500 };
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", QUERIES);
        for (size_t centre = 0; centre < COUNT(sketch_centres); centre++) {
                dci_sketch *sketch = sketch_of(context, TRACE_DIM, sketch_widths[_i % N_WIDTHS], (size_t)_i / N_WIDTHS,
                                               sketch_centres[centre], N, keys);
                sketch_seen seen = sketch_look(sketch, TRACE_DIM, QUERIES, queries, 1);
                sketch_obey(&seen, keys, queries, "trace");
                sketch_seen_free(&seen);
                dci_sketch_destroy(sketch);
        }
        test_free(keys, queries);
}
END_TEST

/* Loops over transforms and widths. The hardest queries: those along what rounding took away. */
START_TEST(queries_along_the_residual_keep_to_the_certain_bound)
{
        static const size_t some[] = {1, 2, 3, 5, 64, 96};
        enum { N = 64 };
        const size_t transform = (size_t)_i / N_WIDTHS;
        for (size_t d = 0; d < COUNT(some); d++) {
                const size_t dim = some[d];
                float *rows = sketch_rows(CLUSTERS, N, dim, 3), *along = malloc(N * dim * sizeof *along);
                dci_sketch *sketch =
                        sketch_of(context, dim, sketch_widths[_i % N_WIDTHS], transform, DCI_CENTRE_RUNNING, N, rows);
                sketch_seen seen = sketch_look(sketch, dim, 1, rows, 0);
                for (size_t i = 0; i < N * dim; i++)
                        along[i] = rows[i] - seen.decoded[i];
                sketch_seen_free(&seen);
                seen = sketch_look(sketch, dim, N, along, 0);
                sketch_obey(&seen, rows, along, "along the residual");
                sketch_seen_free(&seen);
                dci_sketch_destroy(sketch);
                test_free(rows, along);
        }
}
END_TEST

/* Plain codes of two coordinates, and queries that lose nothing when they are rounded: the bound is nearly reached. */
START_TEST(bounds_hold_where_they_are_nearly_reached)
{
        enum { N = 2000 };
        float *rows = test_normal(N, 2, 9);
        const float queries[] = {1.0f, 1.0f, 1.0f, -1.0f};
        for (size_t i = 0; i < N; i++) { /* near a diagonal, so that what is left is along the other */
                rows[2 * i] = 1.0f + 0.01f * rows[2 * i];
                rows[2 * i + 1] = (i % 2 == 0 ? 1.0f : -1.0f) + 0.01f * rows[2 * i + 1];
        }
        for (size_t w = 0; w < N_WIDTHS; w++) {
                dci_sketch *sketch = sketch_of(context, 2, sketch_widths[w], PLAIN, DCI_CENTRE_NONE, N, rows);
                sketch_seen seen = sketch_look(sketch, 2, 2, queries, 0);
                sketch_obey(&seen, rows, queries, "nearly reached");
                sketch_seen_free(&seen);
                dci_sketch_destroy(sketch);
        }
        free(rows);
}
END_TEST

/* Plain codes of one bit whose rows leave the same over everywhere, and a query along it that loses nothing when it is rounded: the bound
 * is reached but for what sums of so many numbers lose. */
START_TEST(bounds_of_long_rows_hold_where_they_are_reached)
{
        static const size_t some[] = {4096, 16384, DCI_SKETCH_MAX_DIM};
        enum { ROWS = 32 };
        for (size_t d = 0; d < COUNT(some); d++) {
                const size_t dim = some[d];
                float *rows = malloc(ROWS * dim * sizeof *rows), *query = malloc(dim * sizeof *query);
                for (size_t j = 0; j < dim; j++)
                        query[j] = j % 8 < 4 ? 40.0f : -127.0f;
                for (size_t i = 0; i < ROWS; i++)
                        for (size_t j = 0; j < dim; j++)
                                rows[i * dim + j] =
                                        (query[j] > 0.0f ? 127.0f : 40.0f) * (1.0f + (float)i * 0x1.07p-5f) / 127.0f;
                dci_sketch *sketch = sketch_of(context, dim, 1, PLAIN, DCI_CENTRE_NONE, ROWS, rows);
                sketch_seen seen = sketch_look(sketch, dim, 1, query, 0);
                sketch_obey(&seen, rows, query, "long rows");
                sketch_seen_free(&seen);
                dci_sketch_destroy(sketch);
                test_free(rows, query);
        }
}
END_TEST

/* Rows at the given centre: codes say nothing of them, and estimates are sums of binary32 alone. */
START_TEST(bounds_hold_for_long_rows_at_the_centre)
{
        static const size_t some[] = {4096, 16384, DCI_SKETCH_MAX_DIM};
        for (size_t d = 0; d < COUNT(some); d++)
                for (size_t transform = PLAIN; transform <= RANDOM; transform++) {
                        const size_t dim = some[d];
                        float *row = malloc(dim * sizeof *row), *query = malloc(dim * sizeof *query);
                        for (size_t t = 0; t < 20; t++) {
                                for (size_t j = 0; j < dim; j++) {
                                        row[j] = 1.0f + (float)t * 0x1.9a7p-5f;
                                        query[j] = 1.0f;
                                }
                                dci_sketch *sketch = sketch_of(context, dim, 4, transform, DCI_CENTRE_GIVEN, 1, row);
                                sketch_seen seen = sketch_look(sketch, dim, 1, query, 0);
                                sketch_obey(&seen, row, query, "at the centre");
                                sketch_seen_free(&seen);
                                dci_sketch_destroy(sketch);
                        }
                        test_free(row, query);
                }
}
END_TEST

/* Loops over widths. For each row and query by itself, over rotations; among them rows and queries along an axis. */
START_TEST(bounds_hold_with_their_probability)
{
        static const size_t some[] = {3, 64, 80, 200};
        static const double probabilities[] = {0.9, 0.99};
        enum { N = 12, SEEDS = 300 };
        for (size_t d = 0; d < COUNT(some); d++) {
                const size_t dim = some[d];
                float *rows = sketch_rows(TAILS, N, dim, 4), *queries = sketch_rows(FADING, QUERIES, dim, 5);
                float scores[N * QUERIES], bounds[N * QUERIES];
                int within[2][N * QUERIES] = {{0}};
                memset(rows, 0, dim * sizeof *rows);
                memset(queries, 0, dim * sizeof *queries);
                rows[dim / 2] = queries[dim / 2] = 1.0f;
                memcpy(queries + dim, rows + dim, dim * sizeof *rows);
                for (uint64_t seed = 0; seed < SEEDS; seed++) {
                        dci_sketch_config config = sketch_config(dim, sketch_widths[_i], RANDOM, DCI_CENTRE_NONE, NULL);
                        config.seed = seed;
                        dci_sketch *sketch = sketch_create(context, &config);
                        ck_ok(dci_sketch_append(sketch, N, rows, dim));
                        ck_ok(dci_sketch_score(sketch, QUERIES, queries, dim, 0, N, scores, N));
                        for (size_t p = 0; p < 2; p++) {
                                ck_ok(dci_sketch_bound(sketch, QUERIES, queries, dim, 0, N, probabilities[p], bounds,
                                                       N));
                                for (size_t i = 0; i < N * QUERIES; i++)
                                        within[p][i] += fabs((double)scores[i] - sketch_dot(rows + i % N * dim,
                                                                                            queries + i / N * dim,
                                                                                            dim)) <= (double)bounds[i];
                        }
                        dci_sketch_destroy(sketch);
                }
                for (size_t p = 0; p < 2; p++)
                        for (size_t i = 0; i < N * QUERIES; i++)
                                ck_assert_msg(within[p][i] >= probabilities[p] * SEEDS,
                                              "dim %zu, row %zu, query %zu: %d of %d within the bound of %g", dim,
                                              i % N, i / N, within[p][i], SEEDS, probabilities[p]);
                test_free(rows, queries);
        }
}
END_TEST

/* A lower probability asks for less; a code that no random rotation made has the certain bound only. */
START_TEST(only_random_rotations_have_bounds_of_a_probability)
{
        enum { N = 70, DIM = 64 };
        float *rows = sketch_rows(CLUSTERS, N, DIM, 6), *query = sketch_rows(TAILS, 1, DIM, 7);
        for (size_t transform = 0; transform < N_TRANSFORMS; transform++) {
                dci_sketch *sketch = sketch_of(context, DIM, 2, transform, DCI_CENTRE_RUNNING, N, rows);
                float certain[N], likely[N], half[N];
                ck_ok(dci_sketch_bound(sketch, 1, query, DIM, 0, N, 1.0, certain, N));
                ck_ok(dci_sketch_bound(sketch, 1, query, DIM, 0, N, 0.99, likely, N));
                ck_ok(dci_sketch_bound(sketch, 1, query, DIM, 0, N, 0.5, half, N));
                for (size_t i = 0; i < N; i++)
                        ck_assert(transform == RANDOM ? half[i] < likely[i] && likely[i] < certain[i]
                                                      : half[i] == certain[i] && likely[i] == certain[i]);
                dci_sketch_destroy(sketch);
        }
        test_free(rows, query);
}
END_TEST

static double mean_of(const float *numbers, size_t n)
{
        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
                sum += (double)numbers[i];
        return sum / (double)n;
}

/* Loops over transforms. */
START_TEST(more_bits_give_smaller_bounds)
{
        enum { N = 1000 };
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", QUERIES);
        double before = INFINITY;
        for (size_t w = 0; w < N_WIDTHS; w++) {
                dci_sketch *sketch =
                        sketch_of(context, TRACE_DIM, sketch_widths[w], (size_t)_i, DCI_CENTRE_RUNNING, N, keys);
                sketch_seen seen = sketch_look(sketch, TRACE_DIM, QUERIES, queries, 0);
                const double now = mean_of(seen.bounds, seen.n * QUERIES);
                ck_assert_msg(now < 0.9 * before, "%d bits: %g after %g", (int)sketch_widths[w], now, before);
                before = now;
                sketch_seen_free(&seen);
                dci_sketch_destroy(sketch);
        }
        test_free(keys, queries);
}
END_TEST

/* --- estimates ----------------------------------------------------------------------------------------------------------------- */

/* Loops over dimensions and transforms. What rounding the query costs is as the inner parts state it. */
START_TEST(scores_are_products_with_decoded_rows)
{
        const size_t dim = dims[_i % N_DIMS], transform = (size_t)_i / N_DIMS, n = 70;
        if (transform == LEARNED && dim > 256)
                return;
        float *rows = sketch_rows(CLUSTERS, n, dim, 8), *queries = sketch_rows(TAILS, QUERIES, dim, 9);
        void *scratch = malloc(dci_coder_scratch_bytes(dim));
        int8_t *bytes = malloc(2 * dim + 64);
        for (size_t w = 0; w < N_WIDTHS; w++) {
                dci_sketch *sketch = sketch_of(context, dim, sketch_widths[w], transform, DCI_CENTRE_RUNNING, n, rows);
                sketch_seen seen = sketch_look(sketch, dim, QUERIES, queries, 0);
                for (size_t i = 0; i < n * QUERIES; i++) {
                        const float *query = queries + i / n * dim, *decoded = seen.decoded + i % n * dim;
                        const size_t block = i % n / DCI_CODE_ROWS;
                        const dci_coder *coder = &sketch->frames.frame[sketch->area.frames[block]]->coder;
                        const double length =
                                sqrt(sketch_dot(query, query, dim) * (sketch_dot(decoded, decoded, dim) +
                                                                      sketch_dot(coder->centre, coder->centre, dim)));
                        dci_coded_query coded;
                        dci_coder_query(coder, query, scratch, bytes, &coded);
                        const double cost = (double)coded.rounding * (double)sketch->area.reach[block];
                        const double error = fabs((double)seen.scores[i] - sketch_dot(query, decoded, dim));
                        test_hold(error <= cost + 1e-5 * length);
                }
                sketch_seen_free(&seen);
                dci_sketch_destroy(sketch);
        }
        test_free(rows, queries, scratch, bytes);
}
END_TEST

/* Loops over widths. One row with a strong channel and one query, over rotations. */
START_TEST(random_estimates_are_unbiased)
{
        enum { DIM = 48, SEEDS = 10000 };
        float *row = test_normal(1, DIM, 21), *query = test_normal(1, DIM, 22), estimate;
        double sum = 0.0, sum2 = 0.0;
        row[3] += 9.0f;
        const double truth = sketch_dot(row, query, DIM);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
                dci_sketch_config config = sketch_config(DIM, sketch_widths[_i], RANDOM, DCI_CENTRE_NONE, NULL);
                config.seed = seed;
                dci_sketch *sketch = sketch_create(context, &config);
                ck_ok(dci_sketch_append(sketch, 1, row, DIM));
                ck_ok(dci_sketch_score(sketch, 1, query, DIM, 0, 1, &estimate, 1));
                sum += (double)estimate - truth;
                sum2 += ((double)estimate - truth) * ((double)estimate - truth);
                dci_sketch_destroy(sketch);
        }
        ck_assert_double_gt(sum2, 0.0);
        ck_assert_double_le(fabs(sum / SEEDS), 4.0 * sqrt(sum2 / SEEDS / SEEDS));
        test_free(row, query);
}
END_TEST

typedef struct ranked {
        float score;
        int64_t row;
} ranked;

static int by_rank(const void *a, const void *b)
{
        const ranked *x = a, *y = b;
        if (x->score != y->score)
                return x->score > y->score ? -1 : 1;
        return x->row < y->row ? -1 : 1;
}

/* Loops over counts. Every row comes four times, so that there are ties. */
START_TEST(search_gives_the_highest_scores_in_order)
{
        enum { DIM = 24 };
        static const size_t ks[] = {1, 5, 32, 100, 1500};
        const size_t n = counts[_i];
        float *rows = sketch_rows(CLUSTERS, n + 4, DIM, 10), *queries = sketch_rows(TAILS, QUERIES, DIM, 11);
        for (size_t i = 0; i < n; i++)
                memcpy(rows + i * DIM, rows + i / 4 * 4 * DIM, DIM * sizeof *rows);
        ranked *order = malloc((n + 1) * sizeof *order);
        for (size_t w = 0; w < N_WIDTHS; w++)
                for (size_t i = 0; i < COUNT(ks); i++) {
                        dci_sketch *sketch =
                                sketch_of(context, DIM, sketch_widths[w], RANDOM, DCI_CENTRE_NONE, n, rows);
                        sketch_seen seen = sketch_look(sketch, DIM, QUERIES, queries, ks[i]);
                        int64_t *alone = malloc(QUERIES * ks[i] * sizeof *alone);
                        ck_ok(dci_sketch_search(sketch, QUERIES, queries, DIM, ks[i], alone, NULL));
                        ck_assert_mem_eq(alone, seen.best, QUERIES * ks[i] * sizeof *alone);
                        for (size_t q = 0; q < QUERIES; q++) {
                                for (size_t r = 0; r < n; r++)
                                        order[r] = (ranked){seen.scores[q * n + r], (int64_t)r};
                                qsort(order, n, sizeof *order, by_rank);
                                for (size_t r = 0; r < ks[i]; r++) {
                                        const float score = seen.best_scores[q * ks[i] + r];
                                        const int64_t row = seen.best[q * ks[i] + r];
                                        if (r < n)
                                                test_hold(row == order[r].row && score == order[r].score);
                                        else
                                                test_hold(row == -1 && isnan(score));
                                }
                        }
                        free(alone);
                        sketch_seen_free(&seen);
                        dci_sketch_destroy(sketch);
                }
        test_free(order, rows, queries);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketch laws");
        TCase *laws = test_case_with(suite, "laws", 60, context_open_2, context_close);
        tcase_add_loop_test(laws, estimates_lie_within_the_certain_bound, 0, N_DIMS * N_WIDTHS);
        tcase_add_loop_test(laws, estimates_of_real_keys_lie_within_the_certain_bound, 0, N_TRANSFORMS * N_WIDTHS);
        tcase_add_loop_test(laws, queries_along_the_residual_keep_to_the_certain_bound, 0, N_TRANSFORMS * N_WIDTHS);
        tcase_add_test(laws, bounds_hold_where_they_are_nearly_reached);
        tcase_add_test(laws, bounds_of_long_rows_hold_where_they_are_reached);
        tcase_add_test(laws, bounds_hold_for_long_rows_at_the_centre);
        tcase_add_loop_test(laws, bounds_hold_with_their_probability, 0, N_WIDTHS);
        tcase_add_test(laws, only_random_rotations_have_bounds_of_a_probability);
        tcase_add_loop_test(laws, more_bits_give_smaller_bounds, 0, N_TRANSFORMS);
        tcase_add_loop_test(laws, scores_are_products_with_decoded_rows, 0, N_TRANSFORMS * N_DIMS);
        tcase_add_loop_test(laws, random_estimates_are_unbiased, 0, N_WIDTHS);
        tcase_add_loop_test(laws, search_gives_the_highest_scores_in_order, 0, COUNT(counts));
        return test_main(suite);
}
