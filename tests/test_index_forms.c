/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of the exact index: forms of input, filters, range search, stats and defaults. */
#include "tests/context_fixture.h"

#include <math.h>
#include <string.h>

#include "tests/index_fixture.h"
#include "tests/naive.h"

static const dci_metric metrics[] = {DCI_METRIC_L2, DCI_METRIC_IP, DCI_METRIC_COSINE};
static const dci_dtype dtypes[] = {DCI_F32, DCI_F16, DCI_BF16};

START_TEST(borrowed_rows_equal_owned_rows)
{
        enum { N = 1000, DIM = 21, LD = 23, Q = 24, K = 9 };
        for (size_t m = 0; m < 3; m++) {
                for (size_t d = 0; d < 3; d++) {
                        dci_index_config config = index_config(DIM, metrics[m], dtypes[d]);
                        dci_index *owned = NULL, *borrowed = NULL;
                        float *wide = test_normal(N, LD, 8), *queries = test_normal(Q, DIM, 9);
                        unsigned char *rows = malloc(N * LD * 4);
                        naive_narrow(dtypes[d], N * LD, wide, rows);
                        config.query_dtype = DCI_F32;
                        ck_ok(dci_index_create(context, &config, &owned));
                        config.storage = DCI_ROWS_BORROWED;
                        ck_ok(dci_index_create(context, &config, &borrowed));
                        ck_ok(dci_index_add(owned, N, rows, LD, NULL, NULL));
                        ck_ok(dci_index_add(borrowed, N / 2, rows, LD, NULL, NULL));
                        ck_ok(dci_index_add(borrowed, N / 2, rows + N / 2 * LD * dci_dtype_size(dtypes[d]), LD, NULL,
                                            NULL));
                        int64_t gone[3] = {7, 999, 500}, a[Q * K], b[Q * K];
                        float x[Q * K], y[Q * K];
                        ck_ok(dci_index_remove(owned, 3, gone));
                        ck_ok(dci_index_remove(borrowed, 3, gone));
                        for (size_t n = 1; n <= Q; n += Q - 1) {
                                ck_ok(dci_index_search(owned, n, queries, DIM, K, NULL, a, x));
                                ck_ok(dci_index_search(borrowed, n, queries, DIM, K, NULL, b, y));
                                ck_assert_int_eq(memcmp(a, b, n * K * sizeof *a), 0);
                                ck_assert_int_eq(memcmp(x, y, n * K * sizeof *x), 0);
                        }
                        dci_memory_report report;
                        ck_ok(dci_memory_report_init(&report, sizeof report));
                        ck_ok(dci_index_memory(borrowed, &report));
                        ck_assert_uint_le(report.rows, 1024 * sizeof(void *));
                        test_free(rows, wide, queries);
                        dci_index_destroy(owned);
                        dci_index_destroy(borrowed);
                }
        }
}
END_TEST

START_TEST(strides_and_formats_of_input_do_not_matter)
{
        enum { N = 200, DIM = 30, LD = 37, Q = 20, K = 5 };
        float *wide = test_normal(N, LD, 8), *tight = malloc(N * DIM * sizeof *tight);
        uint16_t halves[N * LD];
        naive_round(DCI_F16, N * LD, wide, wide); /* so that both formats hold the same numbers */
        naive_narrow(DCI_F16, N * LD, wide, halves);
        for (size_t i = 0; i < N; i++)
                memcpy(tight + i * DIM, wide + i * LD, DIM * sizeof *tight);
        int64_t want[Q * K] = {0}, got[Q * K] = {0};
        for (int form = 0; form < 3; form++) {
                dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F16);
                config.add_dtype = config.query_dtype = form == 2 ? DCI_F16 : DCI_F32;
                dci_index *index = NULL;
                const void *input = form == 0 ? (const void *)tight : (form == 1 ? (const void *)wide : halves);
                size_t ld = form == 0 ? DIM : LD;
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, N, input, ld, NULL, NULL));
                ck_ok(dci_index_search(index, Q, input, ld, K, NULL, form == 0 ? want : got, NULL));
                if (form > 0)
                        ck_assert_int_eq(memcmp(want, got, sizeof want), 0);
                dci_index_destroy(index);
        }
        test_free(tight, wide);
}
END_TEST

START_TEST(cosine_keeps_zero_rows_when_asked)
{
        dci_index_config config = index_config(3, DCI_METRIC_COSINE, DCI_F32);
        config.zero_rows = DCI_ZERO_KEEP;
        dci_index *index = NULL;
        const float rows[9] = {0, 0, 0, 0, 2, 0, 0, -1, 0}, zero[3] = {0, 0, 0}, query[3] = {0, 5, 0};
        int64_t ids[3];
        float scores[3];
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, 3, rows, 3, NULL, NULL));
        ck_ok(dci_index_search(index, 1, query, 3, 3, NULL, ids, scores));
        ck_assert(ids[0] == 1 && ids[1] == 0 && ids[2] == 2);
        ck_assert(scores[0] == 1.0f && scores[1] == 0.0f && scores[2] == -1.0f);
        ck_ok(dci_index_search(index, 1, zero, 3, 3, NULL, ids, scores));
        ck_assert(ids[0] == 0 && ids[1] == 1 && ids[2] == 2 && scores[2] == 0.0f);
        dci_index_destroy(index);
}
END_TEST

/* --- filters, range, stats, defaults ------------------------------------------------------------------------------------ */

static bool admits_none(int64_t id)
{
        (void)id;
        return false;
}
static bool admits_third(int64_t id)
{
        return id % 3 == 1;
}
static bool admits_all(int64_t id)
{
        return id >= 0;
}
static int32_t ask(void *ctx, int64_t id)
{
        bool (*admits)(int64_t) = *(bool (**)(int64_t))ctx;
        return admits(id);
}

START_TEST(every_form_of_filter_admits_the_same_rows)
{
        enum { N = 900, DIM = 10, Q = 17, K = 11, FIRST = 100, IDS = FIRST + 2 * N + 1 };
        static bool (*const rules[])(int64_t) = {admits_none, admits_third, admits_all};
        for (int scattered = 0; scattered < 2; scattered++) {
                dci_index_config config = index_config(DIM, DCI_METRIC_IP, DCI_F32);
                dci_index *index = NULL;
                naive model;
                naive_init(&model, DIM, DCI_METRIC_IP);
                float *rows = test_normal(N, DIM, 1), *queries = test_normal(Q, DIM, 2);
                int64_t ids[N], listed[IDS + 8], got[Q * K];
                float scores[Q * K];
                uint64_t bits[IDS / 64 + 1] = {0};
                for (size_t i = 0; i < N; i++)
                        ids[i] = scattered ? (int64_t)(FIRST + 2 * (N - i)) : (int64_t)i;
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, N, rows, DIM, scattered ? ids : NULL, NULL));
                naive_fill(&model, config.dtype, N, rows, ids);
                for (size_t rule = 0; rule < 3; rule++) {
                        bool (*admits)(int64_t) = rules[rule];
                        for (int kind = DCI_FILTER_IDS; kind <= DCI_FILTER_CALLBACK; kind++) {
                                dci_filter filter;
                                dci_search_params params;
                                dci_search_stats stats;
                                ck_ok(dci_filter_init(&filter, sizeof filter));
                                ck_ok(dci_search_params_init(&params, sizeof params));
                                ck_ok(dci_search_stats_init(&stats, sizeof stats));
                                filter.kind = kind;
                                memset(bits, 0, sizeof bits);
                                size_t n = 0;
                                for (int64_t id = 1; id < IDS; id++) { /* names ids that do not exist, too */
                                        if (!admits(id))
                                                continue;
                                        listed[n++] = id;
                                        bits[(id - 1) / 64] |= UINT64_C(1) << ((id - 1) % 64);
                                }
                                filter.ids = listed;
                                filter.bits = bits;
                                filter.first_id = 1;
                                filter.n = kind == DCI_FILTER_IDS ? n : (kind == DCI_FILTER_BITMAP ? IDS - 1 : 0);
                                filter.fn = ask;
                                filter.ctx = &admits;
                                params.filter = &filter;
                                params.stats = &stats;
                                size_t admitted = 0;
                                for (size_t i = 0; i < N; i++)
                                        admitted += admits(ids[i]) && (kind == DCI_FILTER_CALLBACK || ids[i] >= 1);
                                for (size_t m = 1; m <= Q; m += Q - 1) {
                                        ck_ok(dci_index_search(index, m, queries, DIM, K, &params, got, scores));
                                        ck_assert_uint_eq(stats.visited, admitted * m);
                                        if (!scattered && rule == 2 && kind != DCI_FILTER_CALLBACK)
                                                continue; /* id 0 is left out by the list, not by the rule */
                                        for (size_t q = 0; q < m; q++)
                                                naive_check(&model, queries + q * DIM, K, admits, got + q * K,
                                                            scores + q * K, "filter");
                                }
                        }
                }
                test_free(rows, queries);
                naive_free(&model);
                dci_index_destroy(index);
        }
}
END_TEST

START_TEST(a_filter_of_few_ids_takes_a_bit_per_row)
{
        enum { N = 40000, DIM = 8, K = 4 };
        test_memory memory;
        dci_context *own = test_context_with(&memory, 1);
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        float *rows = test_normal(N, DIM, 1);
        const int64_t few[] = {1, 5, 9, 1000, 2000, 3000, 30000, N - 1};
        dci_filter filter;
        dci_selection selection;
        dci_admitted admitted;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        filter.kind = DCI_FILTER_IDS;
        filter.n = sizeof few / sizeof few[0];
        filter.ids = few;
        ck_ok(dci_index_create(own, &config, &index));
        ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
        const size_t before = atomic_load(&memory.live_bytes);
        const dci_view view = dci_rows_view(&index->rows);
        atomic_store(&memory.most, 0);
        ck_ok(dci_filter_test(index, &filter, &admitted));
        ck_ok(dci_filter_select(index, &view, &filter, &admitted, &selection));
        ck_assert_uint_le(atomic_load(&memory.most) - before, N / 8 + 1024);
        ck_assert_uint_eq(selection.n, filter.n);
        for (size_t i = 0; i < selection.n; i++)
                ck_assert_int_eq(selection.slots[i], few[i]);
        dci_filter_free(index, &admitted, &selection);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), before);
        free(rows);
        dci_index_destroy(index);
        dci_context_destroy(own);
}
END_TEST

START_TEST(range_search_returns_exactly_the_rows_within)
{
        enum { N = 1200, DIM = 12, Q = 21 };
        for (size_t m = 0; m < 3; m++) {
                dci_index_config config = index_config(DIM, metrics[m], DCI_F32);
                dci_index *index = NULL;
                float *rows = test_normal(N, DIM, 1), *queries = test_normal(Q, DIM, 2);
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
                int64_t *ids = malloc(Q * N * sizeof *ids);
                float *scores = malloc(Q * N * sizeof *scores);
                ck_ok(dci_index_search(index, Q, queries, DIM, N, NULL, ids, scores)); /* everything, in order */
                const float radii[] = {scores[0], scores[N / 3], scores[N - 1], m == 0 ? -1.0f : 1e9f};
                for (size_t r = 0; r < 4; r++) {
                        dci_range_result result;
                        ck_ok(dci_range_result_init(&result, sizeof result));
                        ck_ok(dci_index_range_search(index, Q, queries, DIM, radii[r], NULL, &result));
                        ck_assert_uint_eq(result.n_queries, Q);
                        for (size_t q = 0; q < Q; q++) {
                                size_t n = 0;
                                while (n < N &&
                                       (m == 0 ? scores[q * N + n] <= radii[r] : scores[q * N + n] >= radii[r]))
                                        n++;
                                size_t at = result.offsets[q];
                                ck_assert_uint_eq(result.offsets[q + 1] - at, n);
                                ck_assert_int_eq(memcmp(result.ids + at, ids + q * N, n * sizeof *ids), 0);
                                ck_assert_int_eq(memcmp(result.scores + at, scores + q * N, n * sizeof *scores), 0);
                        }
                        dci_range_result_free(&result);
                        ck_assert_ptr_null(result.ids);
                        dci_range_result_free(&result);
                }
                test_free(ids, scores, rows, queries);
                dci_index_destroy(index);
        }
}
END_TEST

/* Many queries at once begin at a guess from every eighth row. Where those rows are the best and few, fewer than k rows reach it. */
START_TEST(a_guess_that_is_too_high_costs_time_alone)
{
        enum { N = 8192, SAMPLED = 8, DIM = 8, Q = 33, K = 64 };
        float *rows = test_normal(N, DIM, 1), *queries = test_normal(Q, DIM, 2);
        for (size_t i = 0; i < N; i++)
                rows[i * DIM] += i % SAMPLED == 0 ? 60.0f : 0.0f;
        for (size_t q = 0; q < Q; q++)
                queries[q * DIM] += 60.0f;
        for (size_t m = 0; m < 3; m++) {
                dci_index_config config = index_config(DIM, metrics[m], DCI_F32);
                dci_index *index = NULL;
                dci_search_params params;
                dci_search_stats stats;
                ck_ok(dci_search_params_init(&params, sizeof params));
                ck_ok(dci_search_stats_init(&stats, sizeof stats));
                params.stats = &stats;
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
                int64_t ids[Q * K], one[K];
                float scores[Q * K], one_score[K];
                ck_ok(dci_index_search(index, Q, queries, DIM, K, &params, ids, scores));
                ck_assert_uint_ge(stats.distances, (uint64_t)N * Q); /* every query was done again */
                for (size_t q = 0; q < Q; q++) {
                        ck_ok(dci_index_search(index, 1, queries + q * DIM, DIM, K, NULL, one, one_score));
                        ck_assert(memcmp(ids + q * K, one, sizeof one) == 0);
                        ck_assert(memcmp(scores + q * K, one_score, sizeof one_score) == 0);
                }
                dci_index_destroy(index);
        }
        test_free(rows, queries);
}
END_TEST

START_TEST(an_empty_index_answers_with_padding)
{
        dci_index_config config = index_config(3, DCI_METRIC_IP, DCI_F32);
        dci_index *index = NULL;
        float queries[40 * 3] = {1, 2, 3}, scores[40 * 2];
        int64_t ids[40 * 2];
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_search(index, 40, queries, 3, 2, NULL, ids, scores));
        for (size_t i = 0; i < 80; i++)
                ck_assert(ids[i] == -1 && isnan(scores[i]));
        dci_range_result result;
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_ok(dci_index_range_search(index, 2, queries, 3, 0.0f, NULL, &result));
        ck_assert_uint_eq(result.offsets[2], 0);
        dci_range_result_free(&result);
        ck_ok(dci_index_range_search(index, 0, NULL, 3, 0.0f, NULL, &result)); /* nor does it need queries */
        ck_assert(result.n_queries == 0 && result.offsets[0] == 0);
        dci_range_result_free(&result);
        dci_index_destroy(index);
}
END_TEST

START_TEST(stats_and_defaults_are_kept)
{
        enum { N = 500, DIM = 16, Q = 32 };
        dci_index_config config = index_config(DIM, DCI_METRIC_IP, DCI_F32);
        dci_index *index = NULL;
        dci_search_params params;
        dci_search_stats stats;
        int64_t ids[Q * 3];
        float *rows = test_normal(N, DIM, 1);
        ck_ok(dci_search_params_init(&params, sizeof params));
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        ck_ok(dci_index_create(context, &config, &index));
        params.prop_to_visit = 0.25;
        ck_ok(dci_index_set_defaults(index, &params));
        params.prop_to_visit = 1.0;
        ck_ok(dci_index_get_defaults(index, &params));
        ck_assert(params.prop_to_visit == 0.25 && params.prop_to_retrieve == 1.0);
        ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
        params.stats = &stats;
        ck_ok(dci_index_search(index, 1, rows, DIM, 3, &params, ids, NULL));
        ck_assert_uint_eq(stats.visited, N);
        ck_assert_uint_eq(stats.distances, N);
        ck_assert_uint_eq(stats.proposed, 0);
        ck_ok(dci_index_search(index, Q, rows, DIM, 3, &params, ids, NULL));
        ck_assert_uint_eq(stats.queries, Q);
        ck_assert_uint_eq(stats.visited, N * Q);
        ck_assert_uint_eq(stats.proposed, N * Q);
        ck_assert_uint_ge(stats.distances, 3 * Q);
        ck_assert_uint_lt(stats.distances, N * Q / 2);
        free(rows);
        dci_index_destroy(index);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index forms");
        TCase *forms = test_case_with(suite, "forms", 120, context_open_1, context_close);
        tcase_add_test(forms, borrowed_rows_equal_owned_rows);
        tcase_add_test(forms, strides_and_formats_of_input_do_not_matter);
        tcase_add_test(forms, cosine_keeps_zero_rows_when_asked);
        tcase_add_test(forms, every_form_of_filter_admits_the_same_rows);
        tcase_add_test(forms, a_filter_of_few_ids_takes_a_bit_per_row);
        tcase_add_test(forms, range_search_returns_exactly_the_rows_within);
        tcase_add_test(forms, a_guess_that_is_too_high_costs_time_alone);
        tcase_add_test(forms, an_empty_index_answers_with_padding);
        tcase_add_test(forms, stats_and_defaults_are_kept);
        return test_main(suite);
}
