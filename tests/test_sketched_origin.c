/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Codes do not depend on where the origin is: what a search finds at the default settings stays when rows and queries move together,
 * when they share a direction, when a column is much larger than the others, and whatever the order in which rows came.
 */
#include "tests/mdci_fixture.h"
#include "tests/scratch.h"

#include <math.h>
#include <string.h>

#include "dci/check.h"
#include "dci/file.h"

enum { DIM = TRACE_DIM, N = 1600, Q = 64, K = 10 };

static const dci_index_kind kinds[] = {DCI_KIND_FLAT, DCI_KIND_PDCI, DCI_KIND_MDCI};
static const int32_t widths[] = {1, 2, 3, 4, 8};
static dci_context *context;
static float *rows, *asked, *place; /* N and Q normal rows, and a few others */

static void setup(void)
{
        context = test_context(2);
        rows = test_normal(N, DIM, 11);
        asked = test_normal(Q, DIM, 12);
        place = test_normal(32, DIM, 13);
        scratch_open();
}

static void teardown(void)
{
        scratch_close();
        free(rows);
        test_free(asked, place);
        dci_context_destroy(context);
}

/* n rows of `from`, each moved by `far` times a place of its own. */
static float *moved(const float *from, size_t n, float far, const uint8_t *places)
{
        float *to = malloc(n * DIM * sizeof *to);
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < DIM; j++)
                        to[i * DIM + j] = from[i * DIM + j] + far * place[(places == NULL ? 0 : places[i] * DIM) + j];
        return to;
}

/* The share of the true neighbours that a default search of everything finds, and that a guarantee of 1 finds them all. */
static double share_found(const dci_index *index, const float *queries, uint64_t *out_scored)
{
        dci_search_params all = pdci_verifying(INFINITY, 0.0), sure = pdci_verifying(0.0, 1.0),
                          usual = pdci_verifying(0.0, 0.0);
        dci_search_stats stats;
        all.prop_to_visit = sure.prop_to_visit = usual.prop_to_visit = 1.0;
        all.prop_to_retrieve = sure.prop_to_retrieve = usual.prop_to_retrieve = 1.0;
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        pdci_found want = pdci_search(index, Q, queries, K, &all), got = pdci_search(index, Q, queries, K, &usual);
        const double share = mdci_share_found(&want, &got);
        pdci_found_free(&got);
        got = pdci_search(index, Q, queries, K, &sure);
        ck_assert(pdci_same(&want, &got));
        sure.stats = &stats;
        pdci_found_free(&got);
        got = pdci_search(index, Q, queries, K, &sure);
        if (out_scored != NULL)
                *out_scored = stats.distances / Q;
        pdci_found_free(&got);
        pdci_found_free(&want);
        ck_ok(dci_index_check(index, DCI_CHECK_FULL, NULL));
        return share;
}

static double share_of(const dci_index_config *config, size_t n, const float *all, const float *queries,
                       uint64_t *out_scored)
{
        dci_index *index = pdci_index(context, config, n, all, NULL);
        const double share = share_found(index, queries, out_scored);
        dci_index_destroy(index);
        return share;
}

/* Loops over kinds, widths and two metrics. */
START_TEST(moving_rows_moves_no_recall)
{
        static const float far[] = {1.0f, 30.0f, 1000.0f};
        const int32_t bits = widths[_i / 3 % 5];
        const bool l2 = _i / 15 == 0;
        const dci_index_config config = pdci_sketched(kinds[_i % 3], l2 ? DCI_METRIC_L2 : DCI_METRIC_IP, DCI_F32, bits);
        const double before = share_of(&config, N, rows, asked, NULL);
        for (size_t f = 0; f < COUNT(far); f++) {
                uint64_t scored;
                float *there = moved(rows, N, far[f], NULL), *queries = moved(asked, Q, l2 ? far[f] : 0.0f, NULL);
                ck_assert_double_ge(share_of(&config, N, there, queries, &scored), before - 0.02);
                if (bits >= 4)
                        ck_assert_uint_lt(scored, N / 4);
                test_free(there, queries);
        }
}
END_TEST

/* Loops over kinds and 16-bit formats, as far as these resolve the rows. */
START_TEST(moving_short_rows_moves_no_recall)
{
        static const float far[2][2] = {{4.0f, 30.0f}, {2.0f, 8.0f}};
        for (size_t f = 0; f < 2; f++)
                for (size_t b = 0; b < COUNT(widths); b++) {
                        const dci_index_config config =
                                pdci_sketched(kinds[_i % 3], DCI_METRIC_L2, all_dtypes[1 + _i / 3], widths[b]);
                        float *there = moved(rows, N, far[_i / 3][f], NULL),
                              *queries = moved(asked, Q, far[_i / 3][f], NULL);
                        ck_assert_double_ge(share_of(&config, N, there, queries, NULL),
                                            share_of(&config, N, rows, asked, NULL) - 0.02);
                        test_free(there, queries);
                }
}
END_TEST

/* Rows and queries of length 1 with a common direction; then, if `centred` is not NULL, those less the mean of the rows. */
static void make_common(float share, float *out, float *out_asked, float *centred, float *centred_asked)
{
        float mean[DIM] = {0};
        for (size_t i = 0; i < N + Q; i++) {
                const float *from = i < N ? rows + i * DIM : asked + (i - N) * DIM;
                float *to = i < N ? out + i * DIM : out_asked + (i - N) * DIM, length = 0.0f;
                for (size_t j = 0; j < DIM; j++) {
                        to[j] = sqrtf(share) * (place[j] > 0.0f ? 1.0f : -1.0f) + sqrtf(1.0f - share) * from[j];
                        length += to[j] * to[j];
                }
                for (size_t j = 0; j < DIM; j++) {
                        to[j] /= sqrtf(length);
                        mean[j] += i < N ? to[j] / N : 0.0f;
                }
        }
        for (size_t i = 0; i < (N + Q) * DIM; i++) {
                const float *from = i < N * DIM ? out + i : out_asked + (i - N * DIM);
                *(i < N * DIM ? centred + i : centred_asked + (i - N * DIM)) = *from - mean[i % DIM];
        }
}

/* Loops over kinds and widths: as good as the same rows less their mean. */
START_TEST(a_common_direction_costs_no_recall)
{
        static const float shares[] = {0.5f, 0.9f, 0.99f};
        dci_index_config config = pdci_sketched(kinds[_i % 3], DCI_METRIC_COSINE, DCI_F32, widths[_i / 3]), l2 = config;
        float *all = malloc(2 * (N + Q) * DIM * sizeof *all), *queries = all + N * DIM;
        float *centred = queries + Q * DIM, *centred_asked = centred + N * DIM;
        l2.metric = DCI_METRIC_L2;
        for (size_t s = 0; s < COUNT(shares); s++) {
                make_common(shares[s], all, queries, centred, centred_asked);
                ck_assert_double_ge(share_of(&config, N, all, queries, NULL),
                                    share_of(&l2, N, centred, centred_asked, NULL) - 0.02);
        }
        free(all);
}
END_TEST

/* Loops over kinds and metrics: tiny and huge. */
START_TEST(units_do_not_matter)
{
        static const float units[] = {1e-11f, 1e-6f, 1e6f, 1e15f};
        const dci_index_config config = pdci_sketched(kinds[_i % 3], all_metrics[_i / 3], DCI_F32, 2);
        const double before = share_of(&config, N, rows, asked, NULL);
        for (size_t u = 0; u < COUNT(units); u++) {
                float *all = malloc(N * DIM * sizeof *all), *queries = malloc(Q * DIM * sizeof *queries);
                for (size_t i = 0; i < N * DIM; i++)
                        all[i] = units[u] * rows[i];
                for (size_t i = 0; i < Q * DIM; i++)
                        queries[i] = units[u] * asked[i];
                ck_assert_double_ge(share_of(&config, N, all, queries, NULL), before - 0.02);
                test_free(all, queries);
        }
}
END_TEST

/* Loops over kinds and metrics: a column that runs far from the others, or much wider. */
START_TEST(one_huge_column_costs_no_recall)
{
        static const struct {
                float from, spread;
        } columns[] = {{1700.0f, 10.0f}, {0.0f, 20.0f}, {0.0f, 1000.0f}, {-5e4f, 1e4f}};
        for (size_t b = 0; b < COUNT(widths); b++) {
                const dci_index_config config = pdci_sketched(kinds[_i % 3], all_metrics[_i / 3], DCI_F32, widths[b]);
                const double before = share_of(&config, N, rows, asked, NULL);
                for (size_t c = 0; c < COUNT(columns); c++) {
                        float *all = moved(rows, N, 0.0f, NULL), *queries = moved(asked, Q, 0.0f, NULL);
                        for (size_t i = 0; i < N + Q; i++) {
                                float *at = (i < N ? all + i * DIM : queries + (i - N) * DIM) + 5;
                                *at = columns[c].from + columns[c].spread * *at;
                        }
                        ck_assert_double_ge(share_of(&config, N, all, queries, NULL), before - 0.02);
                        test_free(all, queries);
                }
        }
}
END_TEST

/* Batches of so many rows, in turn from two places or first the one and then the other. */
static dci_index *in_batches(const dci_index_config *config, const float *all, size_t size)
{
        dci_index *index = pdci_index(context, config, 0, all, NULL);
        for (size_t first = 0; first < N; first += size)
                ck_ok(dci_index_add(index, size < N - first ? size : N - first, all + first * DIM, DIM, NULL, NULL));
        return index;
}

/* Loops over kinds and metrics: halves in two places, or rows from them in turn, far apart and not so far. */
START_TEST(the_order_of_batches_costs_no_recall)
{
        static const size_t sizes[] = {N, N / 2, 100, 33, 7, 1};
        static const float far[] = {4.0f, 1000.0f};
        const bool l2 = _i / 3 == 0;
        const dci_index_config config = pdci_sketched(kinds[_i % 3], l2 ? DCI_METRIC_L2 : DCI_METRIC_IP, DCI_F32, 2);
        const double before = share_of(&config, N, rows, asked, NULL);
        uint8_t places[N], of_queries[Q];
        for (size_t in_turn = 0; in_turn < 2; in_turn++)
                for (size_t f = 0; f < COUNT(far); f++)
                        for (size_t s = 0; s < COUNT(sizes); s++) {
                                for (size_t i = 0; i < N; i++)
                                        places[i] = (uint8_t)(in_turn ? i % 2 : i / (N / 2));
                                for (size_t i = 0; i < Q; i++)
                                        of_queries[i] = (uint8_t)(i % 2);
                                float *all = moved(rows, N, far[f], places),
                                      *queries = moved(asked, Q, l2 ? far[f] : 0.0f, of_queries);
                                dci_index *index = in_batches(&config, all, sizes[s]);
                                const double found = share_found(index, queries, NULL);
                                ck_assert_msg(found >= before - 0.02, "%s, %g far, batches of %zu: %g, before %g",
                                              in_turn ? "in turn" : "halves", (double)far[f], sizes[s], found, before);
                                dci_index_destroy(index);
                                test_free(all, queries);
                        }
}
END_TEST

/* Loops over kinds and widths: a few rows come one by one, far from many; those who look for them find them. */
START_TEST(few_rows_far_from_many_are_found)
{
        static const size_t few[] = {5, 20, 40, 200};
        const dci_index_config config = pdci_sketched(kinds[_i % 3], DCI_METRIC_L2, DCI_F32, widths[_i / 3]);
        for (size_t f = 0; f < COUNT(few); f++) {
                uint8_t places[N], of_queries[Q];
                for (size_t i = 0; i < N; i++)
                        places[i] = i >= N - few[f];
                memset(of_queries, 1, sizeof of_queries);
                float *all = moved(rows, N, 100.0f, places), *queries = moved(asked, Q, 100.0f, of_queries);
                dci_index *index = pdci_index(context, &config, N - few[f], all, NULL);
                for (size_t i = N - few[f]; i < N; i++)
                        ck_ok(dci_index_add(index, 1, all + i * DIM, DIM, NULL, NULL));
                ck_assert_double_ge(share_found(index, queries, NULL), 0.97);
                dci_index_destroy(index);
                test_free(all, queries);
        }
}
END_TEST

/* Loops over kinds and metrics: what is learned is learned about the centre. */
START_TEST(a_fit_does_not_depend_on_the_origin)
{
        const dci_metric metric = all_metrics[_i / 3];
        const dci_index_config config = pdci_sketched(kinds[_i % 3], metric, DCI_F32, 2);
        double found[2];
        for (int far = 0; far < 2; far++) {
                const float by = far ? (metric == DCI_METRIC_COSINE ? 8.0f : 1000.0f) : 0.0f;
                float *all = moved(rows, N, by, NULL),
                      *queries = moved(asked, Q, metric == DCI_METRIC_IP ? 0.0f : by, NULL);
                dci_index *index = pdci_index(context, &config, N, all, NULL);
                ck_ok(dci_index_fit(index, Q, queries, DIM));
                found[far] = share_found(index, queries, NULL);
                dci_index_destroy(index);
                test_free(all, queries);
        }
        ck_assert_double_ge(found[1], found[0] - 0.02);
}
END_TEST

/* Loops over kinds and metrics: codes with kept directions in files, and in the report of memory. */
START_TEST(files_hold_kept_directions)
{
        const dci_index_config config = pdci_sketched(kinds[_i % 3], all_metrics[_i / 3], DCI_F32, 4);
        float *all = moved(rows, N, 0.0f, NULL);
        dci_memory_report before, after;
        ck_ok(dci_memory_report_init(&before, sizeof before));
        ck_ok(dci_memory_report_init(&after, sizeof after));
        dci_index *index = pdci_index(context, &config, N, all, NULL), *again = NULL;
        ck_ok(dci_index_memory(index, &before));
        dci_index_destroy(index);
        for (size_t i = 0; i < N; i++)
                all[i * DIM + 3] *= 300.0f;
        index = pdci_index(context, &config, N, all, NULL);
        ck_ok(dci_index_memory(index, &after));
        if (config.kind != DCI_KIND_MDCI) /* whose pages differ with the rows */
                ck_assert_uint_ge(after.codes, before.codes + N * sizeof(float));
        const double found = share_found(index, asked, NULL);
        ck_ok(dci_index_save(index, scratch_path("kept")));
        for (int mapped = 0; mapped < 2; mapped++) {
                ck_ok(mapped ? dci_index_map(context, scratch_path("kept"), &again)
                             : dci_index_load(context, scratch_path("kept"), &again));
                ck_assert_double_eq(share_found(again, asked, NULL), found);
                dci_index_destroy(again);
        }
        dci_index_destroy(index);
        free(all);
}
END_TEST

/* Loops over kinds: zero rows stay at cosine 0, and to a zero query all rows are alike. */
START_TEST(zero_rows_have_no_direction)
{
        dci_index_config config = pdci_sketched(kinds[_i], DCI_METRIC_COSINE, DCI_F32, 2);
        float *all = moved(rows, N, 1.0f, NULL), *queries = moved(asked, Q, -1.0f, NULL);
        config.zero_rows = DCI_ZERO_KEEP;
        for (size_t i = 0; i < N; i += 9)
                memset(all + i * DIM, 0, DIM * sizeof *all);
        memset(queries + 3 * DIM, 0, DIM * sizeof *queries);
        ck_assert_double_ge(share_of(&config, N, all, queries, NULL), 0.95);
        test_free(all, queries);
}
END_TEST

/* An index whose rows differ in one column, and what comes to it: rows elsewhere, one by one and many. */
static void *prepare_faults(dci_context *where, const void *arg)
{
        dci_index *index = NULL;
        ck_ok(dci_index_create(where, arg, &index));
        return index;
}

static size_t life_of_faults(void *prepared)
{
        enum { BATCHES = 5 };
        static const size_t ends[BATCHES + 1] = {0, 20, 120, 121, 122, 300};
        dci_index *index = prepared;
        uint8_t places[N];
        size_t failures = 0;
        for (size_t i = 0; i < N; i++)
                places[i] = i >= ends[2];
        float *all = moved(rows, N, 100.0f, places);
        for (size_t i = 0; i < N; i++)
                all[i * DIM + 3] *= 300.0f;
        for (size_t b = 0; b < BATCHES; b++)
                while (test_failed_once(
                        dci_index_add(index, ends[b + 1] - ends[b], all + ends[b] * DIM, DIM, NULL, NULL),
                        DCI_ERR_MEMORY, &failures, "add"))
                        ck_assert_uint_eq(dci_index_count(index), ends[b]);
        const dci_search_params exact = pdci_verifying(INFINITY, 0.0), sure = pdci_verifying(0.0, 1.0);
        int64_t want[Q * K], got[Q * K];
        while (test_failed_once(dci_index_search(index, Q, asked, DIM, K, &exact, want, NULL), DCI_ERR_MEMORY,
                                &failures, "search"))
                continue;
        while (test_failed_once(dci_index_search(index, Q, asked, DIM, K, &sure, got, NULL), DCI_ERR_MEMORY, &failures,
                                "search"))
                continue;
        ck_assert_mem_eq(want, got, sizeof want);
        while (test_failed_once(dci_index_check(index, DCI_CHECK_FULL, NULL), DCI_ERR_MEMORY, &failures, "check"))
                continue;
        dci_index_destroy(index);
        free(all);
        return failures;
}

/* Loops over kinds and metrics. Encoding again is what an add can do without. */
START_TEST(every_allocation_of_an_add_may_fail)
{
        const dci_index_config config = pdci_sketched(kinds[_i % 3], all_metrics[_i / 3], DCI_F32, 2);
        ck_assert_uint_gt(test_each_allocation_failing(1, prepare_faults, life_of_faults, &config), 10);
}
END_TEST

/* Loops over formats: without codes, a batch rules out as many rows far from the origin, and answers as one query at a time does. */
START_TEST(batches_of_exact_search_rule_out_rows_far_away)
{
        static const float far[] = {1000.0f, 30.0f, 8.0f};
        dci_index_config config = pdci_sketched(DCI_KIND_FLAT, DCI_METRIC_L2, all_dtypes[_i], 0);
        float *all = moved(rows, N, far[_i], NULL), *queries = moved(asked, Q, far[_i], NULL);
        dci_index *index = pdci_index(context, &config, N, all, NULL);
        dci_search_params params = pdci_verifying(0.0, 0.0);
        dci_search_stats stats;
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        params.stats = &stats;
        pdci_found together = pdci_search(index, Q, queries, K, &params);
        ck_assert_uint_lt(stats.distances, (uint64_t)N * Q / 4);
        for (size_t q = 0; q < Q; q++) {
                pdci_found alone = pdci_search(index, 1, queries + q * DIM, K, NULL);
                ck_assert_mem_eq(alone.ids, together.ids + q * K, K * sizeof *alone.ids);
                ck_assert_mem_eq(alone.scores, together.scores + q * K, K * sizeof *alone.scores);
                pdci_found_free(&alone);
        }
        pdci_found_free(&together);
        dci_index_destroy(index);
        test_free(all, queries);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketched_origin");
        TCase *tcase = test_case_with(suite, "laws", 60, setup, teardown);
        tcase_add_loop_test(tcase, moving_rows_moves_no_recall, 0, 30);
        tcase_add_loop_test(tcase, moving_short_rows_moves_no_recall, 0, 6);
        tcase_add_loop_test(tcase, a_common_direction_costs_no_recall, 0, 15);
        tcase_add_loop_test(tcase, units_do_not_matter, 0, 9);
        tcase_add_loop_test(tcase, one_huge_column_costs_no_recall, 0, 6);
        tcase_add_loop_test(tcase, the_order_of_batches_costs_no_recall, 0, 6);
        tcase_add_loop_test(tcase, few_rows_far_from_many_are_found, 0, 15);
        tcase_add_loop_test(tcase, a_fit_does_not_depend_on_the_origin, 0, 9);
        tcase_add_loop_test(tcase, files_hold_kept_directions, 0, 9);
        tcase_add_loop_test(tcase, zero_rows_have_no_direction, 0, 3);
        tcase_add_loop_test(tcase, every_allocation_of_an_add_may_fail, 0, 9);
        tcase_add_loop_test(tcase, batches_of_exact_search_rule_out_rows_far_away, 0, 3);
        return test_main(suite);
}
