/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sketches: the same bits at any thread count and batch of queries, and at every instruction set but scalar, which rounds products
 * and so may choose another level now and then; calls side by side. Run under tsan, too. */
#include "tests/common.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "tests/sketch_fixture.h"

enum { N_WIDTHS = COUNT(sketch_widths), DIM = TRACE_DIM };

/* A sketch of two appends, with a fit between them if it learns. */
static dci_sketch *grown(dci_context *context, size_t dim, int32_t bits, size_t transform, int32_t centre,
                         dci_dtype dtype, size_t n, const void *rows, size_t n_queries, const void *queries)
{
        float given[DIM] = {0.25f, -0.5f};
        const size_t half = n / 2;
        dci_sketch_config config = sketch_config(dim, bits, transform, centre, given);
        config.dtype = dtype;
        dci_sketch *sketch = sketch_create(context, &config);
        ck_ok(dci_sketch_append(sketch, half, rows, dim));
        if (transform == LEARNED)
                sketch_fit(sketch, n, rows, dim, n_queries, queries);
        ck_ok(dci_sketch_append(sketch, n - half, (const char *)rows + half * dim * dci_dtype_size(dtype), dim));
        return sketch;
}

/* Loops over transforms and centres. Rows so many that threads share appends, scans and the merging of best rows. */
START_TEST(any_number_of_threads_gives_the_same_bits)
{
        enum { N = 36000, QUERIES = 6 };
        static const int32_t threads[] = {1, 2, 7};
        const size_t transform = (size_t)_i % N_TRANSFORMS;
        const int32_t centre = sketch_centres[_i / N_TRANSFORMS], bits = sketch_widths[(size_t)_i % N_WIDTHS];
        const dci_dtype dtype = all_dtypes[(size_t)_i / 2 % 3];
        float *numbers = kmeans_blobs(N, DIM, 9, 2.0f, 31), *asked = test_normal(QUERIES, DIM, 32);
        void *rows = sketch_narrow(dtype, (size_t)N * DIM, numbers),
             *queries = sketch_narrow(dtype, QUERIES * DIM, asked);
        sketch_seen first = {0};
        for (size_t t = 0; t < COUNT(threads); t++) {
                dci_context *context = test_context(threads[t]);
                dci_sketch *sketch = grown(context, DIM, bits, transform, centre, dtype, N, rows, QUERIES, queries);
                sketch_seen seen = sketch_look(sketch, DIM, QUERIES, queries, 1000);
                if (t > 0) {
                        sketch_same(&first, &seen, "threads");
                        sketch_seen_free(&seen);
                } else {
                        first = seen;
                }
                dci_sketch_destroy(sketch);
                dci_context_destroy(context);
        }
        sketch_seen_free(&first);
        test_free(numbers, asked, rows, queries);
}
END_TEST

/* Loops over widths. Queries alone, and up to two groups and one more; rows from any place on. */
START_TEST(any_batch_of_queries_and_range_of_rows_gives_the_same_bits)
{
        enum { N = 1111, QUERIES = 17, K = 40 };
        static const size_t firsts[] = {0, 1, 15, 16, 33, 255, 256, 1000, 1111};
        dci_context *context = test_context(2);
        float *rows = pdci_trace("keys", N), *queries = pdci_trace("queries", QUERIES);
        for (size_t transform = 0; transform < N_TRANSFORMS; transform++) {
                dci_sketch *sketch = grown(context, DIM, sketch_widths[_i], transform, DCI_CENTRE_RUNNING, DCI_F32, N,
                                           rows, QUERIES, queries);
                sketch_seen all = sketch_look(sketch, DIM, QUERIES, queries, K);
                float *part = malloc(N * sizeof *part);
                for (size_t batch = 1; batch < QUERIES; batch++)
                        for (size_t at = 0; at < QUERIES; at += batch) {
                                const size_t m = QUERIES - at < batch ? QUERIES - at : batch;
                                sketch_seen some = sketch_look(sketch, DIM, m, queries + at * DIM, K);
                                const float *scores = all.scores + at * N, *bounds = all.bounds + at * N;
                                ck_assert_mem_eq(some.scores, scores, m * N * sizeof *scores);
                                ck_assert_mem_eq(some.bounds, bounds, m * N * sizeof *bounds);
                                ck_assert_mem_eq(some.best, all.best + at * K, m * K * sizeof *all.best);
                                ck_assert_mem_eq(some.best_scores, all.best_scores + at * K, m * K * sizeof *scores);
                                sketch_seen_free(&some);
                        }
                for (size_t f = 0; f < COUNT(firsts); f++) {
                        const size_t left = N - firsts[f], n = f % 2 == 0 ? left : left / 3;
                        ck_ok(dci_sketch_score(sketch, 1, queries, DIM, firsts[f], n, part, n));
                        ck_assert_mem_eq(part, all.scores + firsts[f], n * sizeof *part);
                        ck_ok(dci_sketch_bound(sketch, 1, queries, DIM, firsts[f], n, 1.0, part, n));
                        ck_assert_mem_eq(part, all.bounds + firsts[f], n * sizeof *part);
                }
                free(part);
                sketch_seen_free(&all);
                dci_sketch_destroy(sketch);
        }
        test_free(rows, queries);
        dci_context_destroy(context);
}
END_TEST

/* Strides of rows, queries and outputs do not matter, nor do formats that hold the same numbers; nothing is written between rows. */
START_TEST(strides_and_formats_of_equal_numbers_give_the_same_bits)
{
        enum { N = 100, QUERIES = 3, WIDE = DIM + 5, FAR = N + 7 };
        dci_context *context = test_context(1);
        float *rows = pdci_trace("keys", N), *queries = pdci_trace("queries", QUERIES); /* exact as f16 */
        void *narrow = kmeans_narrow(DCI_F16, N * DIM, rows), *asked = kmeans_narrow(DCI_F16, QUERIES * DIM, queries);
        float *apart = malloc(N * WIDE * sizeof *apart), *asked_apart = malloc(QUERIES * WIDE * sizeof *apart);
        float scores[QUERIES * FAR], decoded[N * WIDE];
        for (size_t i = 0; i < N * WIDE; i++)
                apart[i] = decoded[i] = NAN;
        for (size_t i = 0; i < QUERIES * WIDE; i++)
                asked_apart[i] = NAN;
        for (size_t i = 0; i < N; i++)
                memcpy(apart + i * WIDE, rows + i * DIM, DIM * sizeof *rows);
        for (size_t i = 0; i < QUERIES; i++)
                memcpy(asked_apart + i * WIDE, queries + i * DIM, DIM * sizeof *queries);
        for (size_t i = 0; i < QUERIES * FAR; i++)
                scores[i] = NAN;
        dci_sketch *plain = grown(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, DCI_F32, N, rows, QUERIES, queries);
        dci_sketch *halves = grown(context, DIM, 4, RANDOM, DCI_CENTRE_RUNNING, DCI_F16, N, narrow, QUERIES, asked);
        sketch_seen wanted = sketch_look(plain, DIM, QUERIES, queries, 9);
        sketch_seen seen = sketch_look(halves, DIM, QUERIES, asked, 9);
        sketch_same(&wanted, &seen, "f16");
        sketch_seen_free(&seen);
        dci_sketch_config config = sketch_config(DIM, 4, RANDOM, DCI_CENTRE_RUNNING, NULL);
        config.query_dtype = DCI_F16;
        dci_sketch *mixed = sketch_create(context, &config);
        ck_ok(dci_sketch_append(mixed, N / 2, apart, WIDE));
        ck_ok(dci_sketch_append(mixed, N - N / 2, apart + N / 2 * WIDE, WIDE));
        seen = sketch_look(mixed, DIM, QUERIES, asked, 9);
        sketch_same(&wanted, &seen, "strides of rows, queries as f16");
        ck_ok(dci_sketch_score(plain, QUERIES, asked_apart, WIDE, 0, N, scores, FAR));
        for (size_t i = 0; i < QUERIES * FAR; i++)
                test_hold(i % FAR < N ? scores[i] == wanted.scores[i / FAR * N + i % FAR] : isnan(scores[i]));
        for (int64_t i = N - 1; i >= 0; i--)
                ck_ok(dci_sketch_decode(plain, 1, &i, decoded + i * WIDE, WIDE));
        for (size_t i = 0; i < N * WIDE; i++)
                test_hold(i % WIDE < DIM ? decoded[i] == wanted.decoded[i / WIDE * DIM + i % WIDE] : isnan(decoded[i]));
        sketch_seen_free(&seen);
        sketch_seen_free(&wanted);
        dci_sketch_destroy(plain);
        dci_sketch_destroy(halves);
        dci_sketch_destroy(mixed);
        test_free(rows, queries, narrow, asked, apart, asked_apart);
        dci_context_destroy(context);
}
END_TEST

/* Scalar: no estimate is farther off than the bounds of both allow, and few rows got another level anywhere. */
static void nearly_the_same(const sketch_seen *wanted, const sketch_seen *scalar, const float *queries)
{
        size_t n_other = 0;
        for (size_t i = 0; i < wanted->n * wanted->n_queries; i++) {
                const float *query = queries + i / wanted->n * wanted->dim;
                const float *row = wanted->decoded + i % wanted->n * wanted->dim;
                const double apart = fabs((double)wanted->scores[i] - (double)scalar->scores[i]);
                const double length = sqrt(sketch_dot(query, query, wanted->dim) * sketch_dot(row, row, wanted->dim));
                test_hold(apart <= (double)wanted->bounds[i] + (double)scalar->bounds[i]);
                n_other += apart > 1e-5 * length + 1e-6;
        }
        ck_assert_msg(n_other <= wanted->n * wanted->n_queries / 50, "%zu of %zu scores differ", n_other,
                      wanted->n * wanted->n_queries);
}

/* Loops over transforms and widths. The highest level is compared with each of the others. */
START_TEST(every_instruction_set_gives_the_same_bits_but_scalar)
{
        enum { N = 500, QUERIES = 9 };
        static const size_t dims[] = {1, 3, 64, 80, 100};
        const size_t transform = (size_t)_i / N_WIDTHS;
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        for (size_t d = 0; d < COUNT(dims); d++) {
                const size_t dim = dims[d];
                float *rows = sketch_rows(CLUSTERS, N, dim, 41), *queries = sketch_rows(FADING, QUERIES, dim, 42);
                sketch_seen highest = {0};
                for (size_t i = n_isas; i-- > 0;) {
                        dci_context *context = test_context_isa(isas[i]);
                        dci_sketch *sketch = grown(context, dim, sketch_widths[_i % N_WIDTHS], transform,
                                                   DCI_CENTRE_RUNNING, DCI_F32, N, rows, QUERIES, queries);
                        sketch_seen seen = sketch_look(sketch, dim, QUERIES, queries, 50);
                        sketch_obey(&seen, rows, queries, dci_isa_name(isas[i]));
                        if (highest.scores == NULL) {
                                highest = seen;
                        } else {
                                if (isas[i] == DCI_ISA_SCALAR)
                                        nearly_the_same(&highest, &seen, queries);
                                else
                                        sketch_same(&highest, &seen, dci_isa_name(isas[i]));
                                sketch_seen_free(&seen);
                        }
                        dci_sketch_destroy(sketch);
                        dci_context_destroy(context);
                }
                sketch_seen_free(&highest);
                test_free(rows, queries);
        }
}
END_TEST

typedef struct reader {
        const dci_sketch *sketch;
        const sketch_seen *wanted;
        const float *queries;
        pthread_t thread;
        bool same;
} reader;

/* No assertion of Check's on other threads: what differs is reported at the end. */
static void *read_on(void *arg)
{
        reader *r = arg;
        const size_t n = r->wanted->n, m = r->wanted->n_queries, k = r->wanted->k;
        float *scores = malloc(n * m * sizeof *scores), *decoded = malloc(DIM * sizeof *decoded);
        int64_t *best = malloc(m * k * sizeof *best);
        dci_sketch_info info;
        r->same = dci_sketch_info_init(&info, sizeof info) == DCI_OK;
        for (int64_t round = 0; round < 4; round++) {
                r->same = r->same && dci_sketch_score(r->sketch, m, r->queries, DIM, 0, n, scores, n) == DCI_OK &&
                          memcmp(scores, r->wanted->scores, n * m * sizeof *scores) == 0;
                r->same = r->same && dci_sketch_bound(r->sketch, m, r->queries, DIM, 0, n, 1.0, scores, n) == DCI_OK &&
                          memcmp(scores, r->wanted->bounds, n * m * sizeof *scores) == 0;
                r->same = r->same && dci_sketch_search(r->sketch, m, r->queries, DIM, k, best, NULL) == DCI_OK &&
                          memcmp(best, r->wanted->best, m * k * sizeof *best) == 0;
                r->same = r->same && dci_sketch_decode(r->sketch, 1, &round, decoded, DIM) == DCI_OK &&
                          memcmp(decoded, r->wanted->decoded + round * DIM, DIM * sizeof *decoded) == 0;
                r->same = r->same && dci_sketch_get_info(r->sketch, &info) == DCI_OK && info.n_rows == n;
        }
        test_free(scores, decoded, best);
        return NULL;
}

/* Loops over transforms. */
START_TEST(readers_side_by_side_see_the_same_bits)
{
        enum { N = 20000, QUERIES = 9, READERS = 3 };
        dci_context *context = test_context(3);
        float *rows = test_normal(N, DIM, 51), *queries = test_normal(QUERIES, DIM, 52);
        dci_sketch *sketch = grown(context, DIM, 2, (size_t)_i, DCI_CENTRE_RUNNING, DCI_F32, N, rows, QUERIES, queries);
        sketch_seen wanted = sketch_look(sketch, DIM, QUERIES, queries, 100);
        reader readers[READERS];
        for (size_t i = 0; i < READERS; i++) {
                readers[i] = (reader){.sketch = sketch, .wanted = &wanted, .queries = queries};
                ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
        }
        for (size_t i = 0; i < READERS; i++) {
                ck_assert_int_eq(pthread_join(readers[i].thread, NULL), 0);
                ck_assert(readers[i].same);
        }
        sketch_seen_free(&wanted);
        dci_sketch_destroy(sketch);
        dci_context_destroy(context);
        test_free(rows, queries);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketch same");
        TCase *same = test_case(suite, "same", 120);
        tcase_add_loop_test(same, any_number_of_threads_gives_the_same_bits, 0, N_TRANSFORMS * COUNT(sketch_centres));
        tcase_add_loop_test(same, any_batch_of_queries_and_range_of_rows_gives_the_same_bits, 0, N_WIDTHS);
        tcase_add_test(same, strides_and_formats_of_equal_numbers_give_the_same_bits);
        tcase_add_loop_test(same, every_instruction_set_gives_the_same_bits_but_scalar, 0, N_TRANSFORMS * N_WIDTHS);
        tcase_add_loop_test(same, readers_side_by_side_see_the_same_bits, 0, N_TRANSFORMS);
        return test_main(suite);
}
