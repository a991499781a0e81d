/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of kind PDCI at the edges: few rows, equal rows, zero rows, extreme lengths; and where the directions come from. */
#include "tests/common.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/pdci_fixture.h"

static const size_t budgets[][2] = {{1, 1}, {1, 0}, {0, 1}, {3, 2}, {50, 0}, {0, 50}, {0, 0}};

static void check_padding(const pdci_found *found, size_t from)
{
        for (size_t i = from; i < found->k; i++)
                ck_assert_msg(found->ids[i] == -1 && isnan(found->scores[i]), "result %zu is not padding", i);
}

/* Loops over metrics: none, one and a few rows, at every budget. */
START_TEST(few_rows_are_all_found_and_the_rest_is_padded)
{
        enum { DIM = 5, MOST = 4, K = 6 };
        const dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F32);
        float *rows = test_normal(MOST, DIM, 1), *query = test_normal(1, DIM, 2);
        for (size_t n = 0; n <= MOST; n++) {
                dci_index *index = pdci_index(context, &config, n, rows, NULL);
                for (size_t b = 0; b < COUNT(budgets); b++) {
                        dci_search_params params = pdci_effort(budgets[b][0], budgets[b][1]);
                        pdci_found found = pdci_search(index, 1, query, K, &params);
                        int64_t ids[MOST], seen = 0;
                        for (size_t i = 0; i < n; i++) {
                                ck_assert(found.ids[i] >= 0 && found.ids[i] < (int64_t)n && isfinite(found.scores[i]));
                                seen |= INT64_C(1) << found.ids[i];
                        }
                        ck_assert_int_eq(seen, (INT64_C(1) << n) - 1);
                        check_padding(&found, n);
                        pdci_found_free(&found);
                        size_t in_range = pdci_candidates(index, query, &params, MOST, ids);
                        ck_assert(in_range <= n && (in_range == n || budgets[b][0] + budgets[b][1] > 0));
                }
                dci_index_destroy(index);
        }
        test_free(rows, query);
}
END_TEST

/* In one dimension a projection is the row, so the walk visits by distance: every budget is exact. Whole numbers, so that no
 * rounding of squares makes ties. */
START_TEST(in_one_dimension_every_budget_is_exact)
{
        enum { N = 700, Q = 9, K = 5 };
        dci_index_config config = pdci_config(1, DCI_METRIC_L2, DCI_F32);
        float rows[N], queries[Q];
        int64_t *ids = pdci_shuffled(N, 1);
        dci_rng rng;
        dci_rng_seed(&rng, 2);
        for (size_t i = 0; i < N; i++)
                rows[i] = (float)dci_rng_below(&rng, 1000) - 500;
        for (size_t i = 0; i < Q; i++)
                queries[i] = (float)dci_rng_below(&rng, 1400) - 700;
        dci_index *index = pdci_index(context, &config, N, rows, ids);
        config.kind = DCI_KIND_FLAT;
        dci_index *flat = pdci_index(context, &config, N, rows, ids);
        pdci_found want = pdci_search(flat, Q, queries, K, NULL);
        for (size_t b = 0; b < COUNT(budgets); b++) {
                dci_search_params params = pdci_effort(budgets[b][0], budgets[b][1]);
                pdci_found got = pdci_search(index, Q, queries, K, &params);
                ck_assert_msg(pdci_same(&want, &got), "budget %zu", b);
                pdci_found_free(&got);
        }
        pdci_found_free(&want);
        free(ids);
        dci_index_destroy(index);
        dci_index_destroy(flat);
}
END_TEST

/* Loops over metrics: all differences are equal, so the lowest ids are retrieved. */
START_TEST(equal_rows_are_found_in_id_order)
{
        enum { N = 5000, DIM = 12, Q = 3, K = 40 };
        const dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F32);
        float *row = test_normal(1, DIM, 1), *rows = malloc(N * DIM * sizeof *rows), *queries = test_normal(Q, DIM, 2);
        int64_t *ids = pdci_shuffled(N, 3);
        for (size_t i = 0; i < N; i++)
                memcpy(rows + i * DIM, row, DIM * sizeof *row);
        for (int shuffled = 0; shuffled < 2; shuffled++) {
                dci_index *index = pdci_index(context, &config, N, rows, shuffled ? ids : NULL);
                for (size_t b = 0; b < COUNT(budgets); b++) {
                        dci_search_params params = pdci_effort(budgets[b][0], budgets[b][1]);
                        pdci_found found = pdci_search(index, Q, queries, K, &params);
                        for (size_t i = 0; i < Q * K; i++)
                                ck_assert_int_eq(found.ids[i], (int64_t)(i % K));
                        pdci_found_free(&found);
                }
                dci_index_destroy(index);
        }
        test_free(row, rows, queries, ids);
}
END_TEST

/* A copy of the query has no difference in any simple index, so it is visited first. */
START_TEST(copies_of_the_query_are_found_at_the_least_budget)
{
        enum { N = 3000, DIM = 20, COPIES = 6 };
        static const dci_metric metrics[] = {DCI_METRIC_L2, DCI_METRIC_COSINE};
        float *rows = test_normal(N, DIM, 1);
        int64_t *ids = pdci_shuffled(N, 9), of_copy[N / COPIES][COPIES];
        size_t known[N / COPIES] = {0};
        dci_search_params params = pdci_effort(1, 1);
        for (size_t i = N / COPIES; i < N; i++)
                memcpy(rows + i * DIM, rows + i % (N / COPIES) * DIM, DIM * sizeof *rows);
        for (size_t id = 0; id < N; id++) { /* ascending */
                size_t row = 0;
                while (ids[row] != (int64_t)id)
                        row++;
                of_copy[row % (N / COPIES)][known[row % (N / COPIES)]++] = (int64_t)id;
        }
        for (size_t m = 0; m < COUNT(metrics); m++) {
                const dci_index_config config = pdci_config(DIM, metrics[m], DCI_F32);
                dci_index *index = pdci_index(context, &config, N, rows, ids);
                for (size_t i = 0; i < N / COPIES; i += 25) {
                        pdci_found found = pdci_search(index, 1, rows + i * DIM, COPIES, &params);
                        ck_assert_int_eq(memcmp(found.ids, of_copy[i], sizeof of_copy[i]), 0);
                        pdci_found_free(&found);
                }
                dci_index_destroy(index);
        }
        test_free(rows, ids);
}
END_TEST

/* --- zero and extreme lengths ----------------------------------------------------------------------------------------------- */

/* Results of a search that retrieves only some: distinct ids of the index, best first. */
static void check_sane(const pdci_found *found, size_t n, bool descending)
{
        for (size_t i = 0; i < found->n_queries * found->k; i++) {
                ck_assert(found->ids[i] >= 0 && found->ids[i] < (int64_t)n && isfinite(found->scores[i]));
                if (i % found->k == 0)
                        continue;
                const float a = found->scores[i - 1], b = found->scores[i];
                ck_assert((descending ? a > b : a < b) || (a == b && found->ids[i - 1] < found->ids[i]));
        }
}

START_TEST(cosine_keeps_zero_rows_and_zero_queries_when_asked)
{
        enum { N = 900, DIM = 16, Q = 4, K = 20 };
        dci_index_config config = pdci_config(DIM, DCI_METRIC_COSINE, DCI_F16);
        float *rows = test_normal(N, DIM, 1), *queries = test_normal(Q, DIM, 2);
        for (size_t i = 0; i < N; i += 3)
                memset(rows + i * DIM, 0, DIM * sizeof *rows);
        memset(queries + DIM, 0, DIM * sizeof *queries);
        dci_index *refusing = NULL;
        ck_ok(dci_index_create(context, &config, &refusing));
        ck_refused(dci_index_add(refusing, N, rows, DIM, NULL, NULL), DCI_ERR_NUMBER, "row 0 is zero");
        dci_index_destroy(refusing);
        config.zero_rows = DCI_ZERO_KEEP;
        dci_index *index = pdci_index(context, &config, N, rows, NULL);
        config.kind = DCI_KIND_FLAT;
        dci_index *flat = pdci_index(context, &config, N, rows, NULL);
        for (size_t b = 0; b < COUNT(budgets); b++) {
                dci_search_params params = pdci_effort(budgets[b][0], budgets[b][1]);
                pdci_found found = pdci_search(index, Q, queries, K, &params);
                check_sane(&found, N, true);
                for (size_t i = K; i < 2 * K;
                     i++) { /* a zero query: its differences to zero rows are zero, and all scores */
                        ck_assert(found.scores[i] == 0.0f);
                        ck_assert(budgets[b][0] != 1 || found.ids[i] == (int64_t)(3 * (i - K)));
                }
                if (b == COUNT(budgets) - 1) {
                        pdci_found want = pdci_search(flat, Q, queries, K, NULL);
                        ck_assert(pdci_same(&want, &found));
                        pdci_found_free(&want);
                }
                pdci_found_free(&found);
        }
        test_free(rows, queries);
        dci_index_destroy(index);
        dci_index_destroy(flat);
}
END_TEST

START_TEST(zero_and_tiny_queries_are_answered_under_ip)
{
        enum { N = 2000, DIM = 8, K = 5 };
        static const float lengths[] = {0.0f, FLT_TRUE_MIN, 1e-38f, 3e-23f, 1e-22f, 1e-19f, 1.0f, 1e18f};
        static const float row_scales[] = {1e-20f, 1.0f, 3e17f};
        const dci_index_config config = pdci_config(DIM, DCI_METRIC_IP, DCI_F32);
        for (size_t c = 0; c < COUNT(lengths) * COUNT(row_scales); c++) {
                float *rows = test_normal(N, DIM, 1), query[DIM] = {lengths[c / COUNT(row_scales)]};
                query[DIM - 1] = -query[0];
                for (size_t i = 0; i < N * DIM; i++)
                        rows[i] *= row_scales[c % COUNT(row_scales)];
                dci_index *index = pdci_index(context, &config, N, rows, NULL);
                for (size_t b = 0; b < COUNT(budgets); b++) {
                        dci_search_params params = pdci_effort(budgets[b][0], budgets[b][1]);
                        pdci_found found = pdci_search(index, 1, query, K, &params);
                        check_sane(&found, N, true);
                        pdci_found_free(&found);
                }
                free(rows);
                dci_index_destroy(index);
        }
}
END_TEST

START_TEST(zero_rows_are_found_under_ip_and_l2)
{
        enum { N = 400, DIM = 8, K = 30 };
        static const float zeros[N * DIM] = {0};
        float *query = test_normal(1, DIM, 1);
        for (size_t m = 0; m < 2; m++) { /* c is 0, too */
                const dci_index_config config = pdci_config(DIM, all_metrics[m], DCI_BF16);
                dci_index *index = pdci_index(context, &config, N, zeros, NULL);
                for (size_t b = 0; b < COUNT(budgets); b++) {
                        dci_search_params params = pdci_effort(budgets[b][0], budgets[b][1]);
                        pdci_found found = pdci_search(index, 1, query, K, &params);
                        for (size_t i = 0; i < K; i++)
                                ck_assert_int_eq(found.ids[i], (int64_t)i);
                        pdci_found_free(&found);
                }
                dci_index_destroy(index);
        }
        free(query);
}
END_TEST

/* Loops over metrics: powers of two scale every sum exactly. Under IP and COSINE the query's length is its own. */
START_TEST(the_scale_of_the_numbers_does_not_matter)
{
        enum { N = 1500, Q = 12, K = 10 };
        static const int row_scales[] = {0, -30, -5, 9, 40};
        static const int query_scales[] = {0, -28, 7, 33};
        const dci_metric metric = all_metrics[_i];
        const dci_index_config config = pdci_config(TRACE_DIM, metric, DCI_F32);
        dci_search_params params = pdci_effort(600, 60);
        pdci_found want = {0};
        for (size_t r = 0; r < COUNT(row_scales); r++) {
                float *keys = pdci_trace("keys", N);
                for (size_t i = 0; i < N * TRACE_DIM; i++)
                        keys[i] = ldexpf(keys[i], row_scales[r]);
                dci_index *index = pdci_index(context, &config, N, keys, NULL);
                for (size_t q = 0; q < (metric == DCI_METRIC_L2 ? 1 : COUNT(query_scales)); q++) {
                        float *queries = pdci_trace("queries", Q);
                        for (size_t i = 0; i < Q * TRACE_DIM; i++)
                                queries[i] =
                                        ldexpf(queries[i], metric == DCI_METRIC_L2 ? row_scales[r] : query_scales[q]);
                        pdci_found found = pdci_search(index, Q, queries, K, &params);
                        if (want.ids == NULL) {
                                want = found;
                                found.ids = NULL;
                                found.scores = NULL;
                        } else {
                                ck_assert_msg(memcmp(want.ids, found.ids, Q * K * sizeof *found.ids) == 0,
                                              "rows times 2^%d, queries times 2^%d", row_scales[r], query_scales[q]);
                        }
                        pdci_found_free(&found);
                        free(queries);
                }
                free(keys);
                dci_index_destroy(index);
        }
        pdci_found_free(&want);
}
END_TEST

/* --- directions ----------------------------------------------------------------------------------------------------------------- */

/* Loops over metrics. */
START_TEST(directions_follow_the_seed_alone)
{
        enum { N = 1000, Q = 10 };
        dci_index_config config = pdci_config(TRACE_DIM, all_metrics[_i], DCI_F32);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        dci_context *other_context = test_context(3);
        dci_search_params params = pdci_effort(600, 30);
        for (config.seed = 0; config.seed < 3; config.seed++) {
                dci_index *a = pdci_index(context, &config, N, keys, NULL);
                dci_index *b = pdci_index(other_context, &config, N, keys, NULL);
                pdci_agree(a, NULL, b, Q, queries, "same seed");
                config.seed += 1000;
                dci_index *c = pdci_index(context, &config, N, keys, NULL);
                config.seed -= 1000;
                size_t differ = 0;
                for (size_t q = 0; q < Q; q++) {
                        int64_t x[N], y[N];
                        size_t n_x = pdci_candidates(a, queries + q * TRACE_DIM, &params, N, x);
                        size_t n_y = pdci_candidates(c, queries + q * TRACE_DIM, &params, N, y);
                        differ += n_x != n_y || memcmp(x, y, n_x * sizeof *x) != 0;
                }
                ck_assert_uint_gt(differ, Q / 2);
                dci_index_destroy(a);
                dci_index_destroy(b);
                dci_index_destroy(c);
        }
        dci_context_destroy(other_context);
        test_free(keys, queries);
}
END_TEST

/* Loops over metrics: the first composite indices are those of an index that has no more. */
START_TEST(another_composite_index_only_adds_candidates)
{
        enum { N = 1000, Q = 10 };
        dci_index_config config = pdci_config(TRACE_DIM, all_metrics[_i], DCI_F32);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        dci_search_params params = pdci_effort(600, 30);
        size_t added = 0;
        for (config.num_comp_indices = 1; config.num_comp_indices < 4; config.num_comp_indices++) {
                dci_index *fewer = pdci_index(context, &config, N, keys, NULL);
                config.num_comp_indices++;
                dci_index *more = pdci_index(context, &config, N, keys, NULL);
                config.num_comp_indices--;
                for (size_t q = 0; q < Q; q++) {
                        int64_t x[N], y[N];
                        size_t n_x = pdci_candidates(fewer, queries + q * TRACE_DIM, &params, N, x), at = 0;
                        size_t n_y = pdci_candidates(more, queries + q * TRACE_DIM, &params, N, y);
                        for (size_t i = 0; i < n_x; i++) { /* both ascend */
                                while (at < n_y && y[at] < x[i])
                                        at++;
                                ck_assert_msg(at < n_y && y[at] == x[i], "id %lld is no candidate any more",
                                              (long long)x[i]);
                        }
                        added += n_y - n_x;
                }
                dci_index_destroy(fewer);
                dci_index_destroy(more);
        }
        ck_assert_uint_gt(added, 0);
        test_free(keys, queries);
}
END_TEST

START_TEST(directions_are_unit_vectors_in_all_directions)
{
        static const size_t dims[] = {1, 2, 7, 64, 300};
        for (size_t c = 0; c < 2 * COUNT(dims); c++) {
                const size_t dim = dims[c / 2];
                dci_index_config config = pdci_config(dim, c % 2 == 0 ? DCI_METRIC_L2 : DCI_METRIC_IP, DCI_F32);
                dci_directions directions;
                config.num_comp_indices = 30;
                config.num_simp_indices = 20;
                ck_ok(dci_directions_create(context, &config, &directions));
                ck_assert_uint_eq(directions.n, 600);
                ck_assert((directions.weights != NULL) == (c % 2 == 1));
                double *mean = calloc(dim, sizeof *mean);
                for (size_t i = 0; i < directions.n; i++) {
                        double last = directions.weights == NULL ? 0 : directions.weights[i], sum = last * last;
                        for (size_t p = 0; p < dim; p++) {
                                double x = directions.vectors[i * dim + p];
                                sum += x * x;
                                mean[p] += x / (double)directions.n;
                        }
                        ck_assert_double_eq_tol(sum, 1, 1e-6);
                }
                for (size_t p = 0; p < dim; p++) /* five times the spread of a mean of 600 */
                        ck_assert_double_le(fabs(mean[p]), 5 / sqrt((double)directions.n * (double)dim));
                free(mean);
                dci_directions_destroy(context, &directions);
        }
}
END_TEST

START_TEST(c_squared_is_the_least_power_of_two_that_no_norm_exceeds)
{
        static const float norms[] = {FLT_TRUE_MIN, 1e-40f,  FLT_MIN, 1e-9f,   0.3f,  0.5f,       0.75f,
                                      1.0f,         1.5f,    2.0f,    3.0000f, 4.0f,  4.0000005f, 1e20f,
                                      1023.0f,      1024.0f, 1025.0f, 1.7e37f, 4e37f, FLT_MAX / 8};
        ck_assert(dci_lift_c_squared(0.0f) == 0.0f);
        for (size_t i = 0; i < COUNT(norms); i++) {
                int exponent;
                const float c = dci_lift_c_squared(norms[i]);
                ck_assert_msg(frexpf(c, &exponent) == 0.5f && c >= norms[i] && c / 2 < norms[i], "%g: %g",
                              (double)norms[i], (double)c);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("pdci edges");
        TCase *edges = test_case_with(suite, "edges", 60, context_open_1, context_close);
        tcase_add_loop_test(edges, few_rows_are_all_found_and_the_rest_is_padded, 0, 3);
        tcase_add_test(edges, in_one_dimension_every_budget_is_exact);
        tcase_add_loop_test(edges, equal_rows_are_found_in_id_order, 0, 3);
        tcase_add_test(edges, copies_of_the_query_are_found_at_the_least_budget);
        tcase_add_test(edges, cosine_keeps_zero_rows_and_zero_queries_when_asked);
        tcase_add_test(edges, zero_and_tiny_queries_are_answered_under_ip);
        tcase_add_test(edges, zero_rows_are_found_under_ip_and_l2);
        tcase_add_loop_test(edges, the_scale_of_the_numbers_does_not_matter, 0, 3);
        tcase_add_loop_test(edges, directions_follow_the_seed_alone, 0, 3);
        tcase_add_loop_test(edges, another_composite_index_only_adds_candidates, 0, 3);
        tcase_add_test(edges, directions_are_unit_vectors_in_all_directions);
        tcase_add_test(edges, c_squared_is_the_least_power_of_two_that_no_norm_exceeds);
        return test_main(suite);
}
