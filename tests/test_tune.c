/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Tuning: the cheapest effort that reaches a recall on sample queries becomes the default. */
#include "tests/trace_fixture.h"

#include <math.h>

enum { N = 3000, DIM = 64, Q = 60, K = 10 };

static void setup(void)
{
        trace_open(2, N, Q);
}

static dci_index *make(dci_index_kind kind, dci_metric metric, size_t cell_simple)
{
        dci_index_config config = index_config(DIM, metric, DCI_F32);
        dci_index *index = NULL;
        config.kind = kind;
        config.cell_simp_indices = cell_simple;
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, N, keys, DIM, NULL, NULL));
        return index;
}

static dci_tune_result tune(dci_index *index, double target)
{
        dci_tune_result result;
        ck_ok(dci_tune_result_init(&result, sizeof result));
        ck_ok(dci_index_tune(index, Q, queries, DIM, K, target, &result));
        return result;
}

/* Loops over metrics, for both kinds that have an effort, with and without simple indices of cells. */
START_TEST(the_target_is_reached_with_fewer_distances_and_becomes_the_default)
{
        static const struct {
                dci_index_kind kind;
                size_t cell_simple;
        } kinds[] = {{DCI_KIND_PDCI, 0}, {DCI_KIND_MDCI, 0}, {DCI_KIND_MDCI, 2}};
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
                dci_index *index = make(kinds[i].kind, DCI_METRIC_L2 + _i, kinds[i].cell_simple);
                double before = 0.0;
                for (int t = 0; t < 4; t++) {
                        const double target = 0.5 + 0.15 * t;
                        dci_search_params defaults;
                        const dci_tune_result r = tune(index, target);
                        ck_ok(dci_search_params_init(&defaults, sizeof defaults));
                        ck_ok(dci_index_get_defaults(index, &defaults));
                        ck_assert_double_ge(r.recall, target);
                        ck_assert(r.recall_held_out >= target - 0.15 && r.recall_held_out <= 1.0);
                        ck_assert_double_le(r.distances, r.exact_distances);
                        ck_assert_double_ge(r.distances, 0.9 * before); /* more recall is not cheaper, but for luck */
                        ck_assert(defaults.prop_to_visit == r.prop_to_visit);
                        ck_assert(defaults.prop_to_retrieve == r.prop_to_retrieve);
                        ck_assert_uint_ge(r.n_efforts, 1);
                        ck_assert_uint_eq(r.n_queries, Q);
                        before = r.distances;
                }
                if (kinds[i].kind == DCI_KIND_MDCI) /* half of the best needs no more than half of the rows */
                        ck_assert_double_le(tune(index, 0.5).distances, N / 2);
                dci_index_destroy(index);
        }
}
END_TEST

START_TEST(everything_asks_for_full_effort_and_flat_has_no_other)
{
        dci_index *tree = make(DCI_KIND_MDCI, DCI_METRIC_IP, 0), *flat = make(DCI_KIND_FLAT, DCI_METRIC_IP, 0);
        tune(tree, 0.7);
        const dci_tune_result all = tune(tree, 1.0), exact = tune(flat, 0.5);
        ck_assert(all.prop_to_visit == 1.0 && all.recall == 1.0 && all.distances == N);
        ck_assert(exact.prop_to_visit == 1.0 && exact.recall == 1.0 && exact.n_efforts == 0);
        dci_index_destroy(tree);
        dci_index_destroy(flat);
}
END_TEST

START_TEST(a_lone_query_checks_nothing_and_an_empty_index_has_nothing_to_find)
{
        dci_index *tree = make(DCI_KIND_MDCI, DCI_METRIC_IP, 0), *empty = NULL;
        dci_tune_result result;
        ck_ok(dci_tune_result_init(&result, sizeof result));
        ck_ok(dci_index_tune(tree, 1, queries, DIM, K, 0.9, &result));
        ck_assert(isnan(result.recall_held_out));
        dci_index_config config = index_config(DIM, DCI_METRIC_IP, DCI_F32);
        config.kind = DCI_KIND_MDCI;
        ck_ok(dci_index_create(context, &config, &empty));
        ck_ok(dci_index_tune(empty, Q, queries, DIM, K, 0.9, &result));
        ck_ok(dci_index_tune(empty, Q, queries, DIM, K, 0.9, NULL));
        dci_index_destroy(empty);
        dci_index_destroy(tree);
}
END_TEST

START_TEST(what_cannot_be_is_refused_and_the_defaults_stay)
{
        dci_index *tree = make(DCI_KIND_MDCI, DCI_METRIC_IP, 0);
        dci_search_params before, after;
        ck_ok(dci_search_params_init(&before, sizeof before));
        ck_ok(dci_search_params_init(&after, sizeof after));
        before.prop_to_visit = 0.25;
        ck_ok(dci_index_set_defaults(tree, &before));
        ck_refused(dci_index_tune(tree, 0, queries, DIM, K, 0.9, NULL), DCI_ERR_INVALID, "n_queries is 0");
        ck_refused(dci_index_tune(tree, Q, queries, DIM, 0, 0.9, NULL), DCI_ERR_INVALID, "k is 0");
        ck_refused(dci_index_tune(tree, Q, queries, DIM, K, 0.0, NULL), DCI_ERR_INVALID, "target_recall is 0");
        ck_refused(dci_index_tune(tree, Q, queries, DIM, K, 1.5, NULL), DCI_ERR_INVALID, "target_recall is 1.5");
        ck_refused(dci_index_tune(tree, Q, queries, DIM, K, (double)NAN, NULL), DCI_ERR_INVALID, "target_recall is");
        ck_refused(dci_index_tune(tree, Q, queries, DIM - 1, K, 0.9, NULL), DCI_ERR_INVALID, "ld is 63");
        ck_refused(dci_index_tune(tree, Q, NULL, DIM, K, 0.9, NULL), DCI_ERR_INVALID, "queries is NULL");
        ck_refused(dci_index_tune(NULL, Q, queries, DIM, K, 0.9, NULL), DCI_ERR_INVALID, "index is NULL");
        dci_tune_result result = {.struct_size = 3};
        ck_refused(dci_index_tune(tree, Q, queries, DIM, K, 0.9, &result), DCI_ERR_INVALID, "dci_tune_result");
        ck_ok(dci_index_get_defaults(tree, &after));
        ck_assert(after.prop_to_visit == 0.25);
        dci_index_destroy(tree);
}
END_TEST

static dci_index *with_codes(dci_index_kind kind, int32_t bits)
{
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        config.kind = kind;
        config.sketch_bits = bits;
        return pdci_index(context, &config, N, keys, NULL);
}

static dci_search_stats stats_of(const dci_index *index, dci_search_params params)
{
        dci_search_stats stats;
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        params.stats = &stats;
        pdci_found found = pdci_search(index, Q, queries, K, &params);
        pdci_found_free(&found);
        return stats;
}

/* Loops over kinds that choose rows. What codes rank is what was chosen, which was looked at already. */
START_TEST(codes_look_at_no_more_rows_than_the_kind_does)
{
        dci_index *index = with_codes(DCI_KIND_PDCI + _i, 4);
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        params.prop_to_visit = params.prop_to_retrieve = 0.1;
        params.rerank = INFINITY;
        const dci_search_stats without = stats_of(index, params);
        params.rerank = 2.0;
        const dci_search_stats with = stats_of(index, params);
        ck_assert_uint_eq(with.visited, without.visited);
        ck_assert_uint_eq(with.proposed, without.candidates); /* those whose codes were read */
        ck_assert_uint_le(with.distances, 2 * Q * K);
        dci_index_destroy(index);
}
END_TEST

/* Bytes of rows and codes that a query reads on average. */
static double bytes_read(const dci_index *index, dci_search_params params)
{
        const double row = DIM * sizeof(float), code = DIM * (double)index->config.sketch_bits / 8.0;
        const double scored = (double)stats_of(index, params).distances / Q;
        if (isinf(params.rerank))
                return scored * row;
        params.rerank = INFINITY;
        return scored * row + (double)stats_of(index, params).candidates / Q * code;
}

/* The same share of true results, of the queries that choose, as dci_index_tune counts it. */
static double recall_of(const dci_index *index, const pdci_found *exact, const dci_search_params *params)
{
        pdci_found got = pdci_search(index, Q, queries, K, params);
        size_t hits = 0;
        for (size_t q = 0; q < Q; q += 2)
                for (size_t i = 0; i < K; i++)
                        hits += got.scores[q * K + i] <= exact->scores[q * K + K - 1];
        pdci_found_free(&got);
        return (double)hits / (Q / 2 * K);
}

/* Loops over kinds that choose rows and widths. */
START_TEST(what_is_set_with_codes_reads_hardly_more_than_the_least_on_a_grid)
{
        const double target = 0.9;
        dci_index *index = with_codes(DCI_KIND_PDCI + _i % 2, _i < 2 ? 4 : 8);
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        params.rerank = INFINITY;
        pdci_found exact = pdci_search(index, Q, queries, K, &params);
        const dci_tune_result r = tune(index, target);
        params.prop_to_visit = r.prop_to_visit;
        params.prop_to_retrieve = r.prop_to_retrieve;
        params.rerank = r.rerank;
        ck_assert_double_ge(recall_of(index, &exact, &params), target);
        const double set = bytes_read(index, params);
        double least = INFINITY;
        for (double share = 0.002; share < 1.0; share *= 1.25) {
                for (double rerank = 1.0; rerank <= 4.0; rerank *= 1.2) {
                        params.prop_to_visit = index->config.kind == DCI_KIND_MDCI ? share : 1.0;
                        params.prop_to_retrieve = index->config.kind == DCI_KIND_PDCI ? share : 1.0;
                        params.rerank = rerank;
                        if (recall_of(index, &exact, &params) >= target)
                                least = fmin(least, bytes_read(index, params));
                }
        }
        ck_assert_msg(set <= 1.1 * least, "%g bytes with visit %g, retrieve %g, rerank %g; %g are enough", set,
                      r.prop_to_visit, r.prop_to_retrieve, r.rerank, least);
        pdci_found_free(&exact);
        dci_index_destroy(index);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("tune");
        TCase *tcase = test_case_with(suite, "laws", 60, setup, trace_close);
        tcase_add_loop_test(tcase, the_target_is_reached_with_fewer_distances_and_becomes_the_default, 0, 3);
        tcase_add_test(tcase, everything_asks_for_full_effort_and_flat_has_no_other);
        tcase_add_test(tcase, a_lone_query_checks_nothing_and_an_empty_index_has_nothing_to_find);
        tcase_add_test(tcase, what_cannot_be_is_refused_and_the_defaults_stay);
        tcase_add_loop_test(tcase, codes_look_at_no_more_rows_than_the_kind_does, 0, 2);
        tcase_add_loop_test(tcase, what_is_set_with_codes_reads_hardly_more_than_the_least_on_a_grid, 0, 4);
        return test_main(suite);
}
