/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of kind PDCI: what more effort buys, what budgets mean and cost, range search, stats, progress, memory. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/trace_fixture.h"

enum { N = 4000, Q = 24, DIM = TRACE_DIM };

static void setup(void)
{
        trace_open(1, N, Q);
}

static dci_index *new_index(dci_metric metric, dci_index_kind kind)
{
        dci_index_config config = pdci_config(DIM, metric, DCI_F16);
        config.kind = kind;
        return pdci_index(context, &config, N, keys, NULL);
}

/* How many of the k exact results of query q were found. */
static size_t hits(const pdci_found *want, const pdci_found *got, size_t q)
{
        const size_t k = want->k;
        size_t n = 0;
        for (size_t i = 0; i < k; i++)
                for (size_t j = 0; j < k; j++)
                        n += got->ids[q * k + i] == want->ids[q * k + j];
        return n;
}

/* --- more effort -------------------------------------------------------------------------------------------------------------- */

/* Loops over metrics. More budget only adds candidates, so no query loses; on average they win at each step. */
START_TEST(recall_grows_with_effort)
{
        enum { K = 10 };
        static const size_t steps[][6] = {{1, 600, 1200, 2000, 3000, N}, {1, 40, 160, 700, 2000, N}};
        dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F16);
        config.num_simp_indices = 3;
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        pdci_found want = pdci_search(index, Q, queries, K, NULL);
        for (size_t by = 0; by < 2; by++) { /* visits, then candidates */
                size_t last[Q] = {0}, last_sum = 0, grown = 0;
                for (size_t s = 0; s < COUNT(steps[0]); s++) {
                        dci_search_params params = by == 0 ? pdci_effort(steps[0][s], 0) : pdci_effort(0, steps[1][s]);
                        pdci_found got = pdci_search(index, Q, queries, K, &params);
                        size_t sum = 0;
                        for (size_t q = 0; q < Q; q++) {
                                size_t n = hits(&want, &got, q);
                                ck_assert_msg(n >= last[q], "step %zu: query %zu found %zu, before %zu", s, q, n,
                                              last[q]);
                                last[q] = n;
                                sum += n;
                        }
                        grown += sum > last_sum;
                        last_sum = sum;
                        pdci_found_free(&got);
                        ck_assert_msg(s > 0 || sum < Q * K * 9 / 10, "the least budget is exact: nothing can grow");
                }
                ck_assert_uint_eq(last_sum, Q * K);
                ck_assert_uint_ge(grown, 4);
        }
        pdci_found_free(&want);
        dci_index_destroy(index);
}
END_TEST

/* Loops over metrics. */
START_TEST(candidates_of_less_effort_are_candidates_of_more)
{
        static const size_t chains[][5][2] = {{{0, 1}, {0, 5}, {0, 80}, {0, 700}, {0, 0}},
                                              {{900, 5}, {2000, 5}, {2000, 80}, {3000, 200}, {3500, 0}}};
        dci_index *index = new_index(all_metrics[_i], DCI_KIND_PDCI);
        for (size_t c = 0; c < 2 * Q; c++) {
                const float *query = queries + c / 2 * DIM;
                bool *had = calloc(N, sizeof *had), *has = calloc(N, sizeof *has);
                int64_t *ids = malloc(N * sizeof *ids);
                for (size_t e = 0; e < COUNT(chains[0]); e++) {
                        dci_search_params params = pdci_effort(chains[c % 2][e][0], chains[c % 2][e][1]);
                        size_t n = pdci_candidates(index, query, &params, N, ids);
                        memset(has, 0, N * sizeof *has);
                        for (size_t i = 0; i < n; i++)
                                has[ids[i]] = true;
                        for (size_t i = 0; i < N; i++)
                                if (had[i] && !has[i])
                                        ck_abort_msg("effort %zu lost id %zu", e, i);
                        memcpy(had, has, N * sizeof *had);
                }
                test_free(had, has, ids);
        }
        dci_index_destroy(index);
}
END_TEST

/* --- what budgets mean ---------------------------------------------------------------------------------------------------------- */

START_TEST(a_number_and_the_share_it_is_are_the_same_budget)
{
        static const struct {
                double visit, retrieve;
        } shares[] = {{0.25, 1}, {0.5, 0.125}, {1, 0.03125}, {0.75, 0.5}};
        dci_index *index = new_index(DCI_METRIC_L2, DCI_KIND_PDCI);
        for (size_t s = 0; s < COUNT(shares); s++) {
                dci_search_params by_share = pdci_effort(0, 0), by_number;
                by_share.prop_to_visit = shares[s].visit;
                by_share.prop_to_retrieve = shares[s].retrieve;
                by_number = pdci_effort((size_t)(shares[s].visit * N), (size_t)(shares[s].retrieve * N));
                by_number.prop_to_visit = by_number.prop_to_retrieve = 1e-9; /* a number is in place of the share */
                pdci_found a = pdci_search(index, Q, queries, 7, &by_share);
                pdci_found b = pdci_search(index, Q, queries, 7, &by_number);
                size_t sum = 0;
                ck_assert_msg(pdci_same(&a, &b), "share %zu", s);
                for (size_t q = 0; q < Q; q++) {
                        int64_t x[N], y[N];
                        size_t n = pdci_candidates(index, queries + q * DIM, &by_share, N, x);
                        ck_assert_uint_eq(pdci_candidates(index, queries + q * DIM, &by_number, N, y), n);
                        ck_assert_int_eq(memcmp(x, y, n * sizeof *x), 0);
                        sum += n;
                }
                ck_assert_uint_gt(sum, 0);
                pdci_found_free(&a);
                pdci_found_free(&b);
        }
        dci_index_destroy(index);
}
END_TEST

START_TEST(budgets_beyond_the_rows_are_full_effort)
{
        static const size_t beyond[][2] = {
                {N, N}, {N + 1, N + 1}, {SIZE_MAX, SIZE_MAX}, {SIZE_MAX / 7, 0}, {0, SIZE_MAX}};
        dci_index *index = new_index(DCI_METRIC_IP, DCI_KIND_PDCI);
        pdci_found want = pdci_search(index, Q, queries, 7, NULL);
        for (size_t b = 0; b < COUNT(beyond); b++) {
                dci_search_params params = pdci_effort(beyond[b][0], beyond[b][1]);
                pdci_found got = pdci_search(index, Q, queries, 7, &params);
                ck_assert_msg(pdci_same(&want, &got), "budget %zu", b);
                pdci_found_free(&got);
        }
        pdci_found_free(&want);
        dci_index_destroy(index);
}
END_TEST

START_TEST(defaults_hold_for_searches_without_params)
{
        dci_index *index = new_index(DCI_METRIC_COSINE, DCI_KIND_PDCI);
        dci_search_params params = pdci_effort(700, 33), kept = pdci_effort(0, 0);
        params.prop_to_visit = 0.5;
        params.prop_to_retrieve = 0.75;
        pdci_found exact = pdci_search(index, Q, queries, 5, NULL), want = pdci_search(index, Q, queries, 5, &params);
        ck_ok(dci_index_set_defaults(index, &params));
        ck_ok(dci_index_get_defaults(index, &kept));
        ck_assert(kept.num_to_visit == 700 && kept.num_to_retrieve == 33);
        ck_assert(kept.prop_to_visit == 0.5 && kept.prop_to_retrieve == 0.75);
        pdci_found got = pdci_search(index, Q, queries, 5, NULL);
        ck_assert(pdci_same(&want, &got) && !pdci_same(&exact, &got));
        pdci_found_free(&got);
        pdci_found_free(&want);
        pdci_found_free(&exact);
        dci_index_destroy(index);
}
END_TEST

/* --- range search ------------------------------------------------------------------------------------------------------------------ */

static size_t in_range(const dci_range_result *result, size_t q)
{
        return result->offsets[q + 1] - result->offsets[q];
}

/* Loops over metrics. With a budget, range search returns the candidates within the radius, as FLAT scores and orders them. */
START_TEST(range_search_returns_the_candidates_within)
{
        dci_index *index = new_index(all_metrics[_i], DCI_KIND_PDCI), *flat = new_index(all_metrics[_i], DCI_KIND_FLAT);
        pdci_found best = pdci_search(flat, Q, queries, 400, NULL);
        const float radius = best.scores[399]; /* some queries have few matches, one has 400 */
        dci_range_result exact, got;
        ck_ok(dci_range_result_init(&exact, sizeof exact));
        ck_ok(dci_range_result_init(&got, sizeof got));
        ck_ok(dci_index_range_search(flat, Q, queries, DIM, radius, NULL, &exact));
        static const size_t efforts[][2] = {{0, 0}, {0, 100}, {2500, 0}, {1, 1}};
        size_t matches = 0, left_out = 0;
        for (size_t e = 0; e < COUNT(efforts); e++) {
                dci_search_params params = pdci_effort(efforts[e][0], efforts[e][1]);
                ck_ok(dci_index_range_search(index, Q, queries, DIM, radius, &params, &got));
                ck_assert(got.n_queries == Q && got.offsets[0] == 0);
                for (size_t q = 0; q < Q; q++) {
                        int64_t candidates[N];
                        bool is_candidate[N] = {false};
                        size_t n = pdci_candidates(index, queries + q * DIM, &params, N, candidates);
                        size_t at = got.offsets[q];
                        for (size_t i = 0; i < n; i++)
                                is_candidate[candidates[i]] = true;
                        for (size_t i = exact.offsets[q]; i < exact.offsets[q + 1]; i++) {
                                if (!is_candidate[exact.ids[i]])
                                        continue;
                                ck_assert_msg(at < got.offsets[q + 1] && got.ids[at] == exact.ids[i] &&
                                                      got.scores[at] == exact.scores[i],
                                              "effort %zu, query %zu, result %zu", e, q, at - got.offsets[q]);
                                at++;
                        }
                        ck_assert_uint_eq(at, got.offsets[q + 1]);
                        ck_assert(e > 0 || in_range(&got, q) == in_range(&exact, q));
                        matches += e == 1 ? in_range(&got, q) : 0;
                        left_out += e == 1 ? in_range(&exact, q) - in_range(&got, q) : 0;
                }
                dci_range_result_free(&got);
        }
        ck_assert(matches > 0 && left_out > 0);
        dci_range_result_free(&exact);
        pdci_found_free(&best);
        dci_index_destroy(index);
        dci_index_destroy(flat);
}
END_TEST

/* --- stats, progress, memory ------------------------------------------------------------------------------------------------------- */

/* Loops over metrics. */
START_TEST(stats_count_what_was_retrieved_and_scored)
{
        enum { K = 12 };
        static const size_t efforts[][2] = {{0, 50}, {2000, 0}, {1, 1}, {0, K}, {3500, 300}};
        dci_index *index = new_index(all_metrics[_i], DCI_KIND_PDCI);
        const size_t n_comp = index->config.num_comp_indices;
        dci_search_stats stats;
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        stats.visited = stats.distances = stats.candidates = stats.queries = 77; /* set, not added to */
        for (size_t e = 0; e < COUNT(efforts); e++) {
                dci_search_params params = pdci_effort(efforts[e][0], efforts[e][1]);
                params.stats = &stats;
                pdci_found found = pdci_search(index, Q, queries, K, &params);
                pdci_found_free(&found);
                const dci_search_stats searched = stats;
                ck_assert_uint_eq(stats.struct_size, sizeof stats);
                ck_assert_uint_eq(stats.queries, Q);
                ck_assert_uint_eq(stats.visited, Q * N);
                ck_assert_uint_eq(stats.distances, stats.candidates);
                ck_assert_uint_ge(stats.candidates, Q * K);
                size_t budget = efforts[e][1] == 0 ? N : efforts[e][1];
                budget = efforts[e][0] == 1 ? 1 : budget;
                ck_assert_uint_le(stats.candidates, Q * n_comp * (budget > K ? budget : K));
                /* A range search needs no k: its candidates are those of the budget alone. */
                size_t sum = 0;
                for (size_t q = 0; q < Q; q++) {
                        int64_t ids[N];
                        size_t n = pdci_candidates(index, queries + q * DIM, &params, N, ids);
                        ck_assert_uint_eq(stats.candidates, n);
                        ck_assert_uint_eq(stats.distances, n);
                        ck_assert_uint_eq(stats.visited, N);
                        ck_assert_uint_eq(stats.queries, 1);
                        sum += n;
                }
                ck_assert_uint_le(sum, searched.candidates);
                ck_assert(efforts[e][0] != 0 || sum == searched.candidates || efforts[e][1] < K);
        }
        dci_search_params params = pdci_effort(0, 0);
        params.stats = &stats;
        for (size_t n = 1; n <= Q; n += Q - 1) { /* at full effort every row is a candidate */
                pdci_found found = pdci_search(index, n, queries, K, &params);
                pdci_found_free(&found);
                ck_assert_uint_eq(stats.candidates, n * N);
                ck_assert_uint_eq(stats.visited, n * N);
                ck_assert_uint_ge(stats.distances, n * K);
        }
        dci_index_destroy(index);
}
END_TEST

START_TEST(stats_of_a_filtered_search_count_the_admitted_rows)
{
        static const int64_t admitted[] = {3, 50, 51, 52, 53, 54, 55, 999, 1000, 2500, 3999};
        dci_index *index = new_index(DCI_METRIC_L2, DCI_KIND_PDCI);
        dci_search_params params = pdci_effort(0, 4);
        dci_search_stats stats;
        dci_filter filter;
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        ck_ok(dci_filter_init(&filter, sizeof filter));
        filter.kind = DCI_FILTER_IDS;
        filter.ids = admitted;
        filter.n = COUNT(admitted);
        params.filter = &filter;
        params.stats = &stats;
        pdci_found found = pdci_search(index, Q, queries, 2, &params);
        ck_assert_uint_eq(stats.visited, Q * COUNT(admitted));
        ck_assert(stats.candidates >= Q * 4 && stats.candidates <= Q * 4 * index->config.num_comp_indices);
        pdci_found_free(&found);
        dci_index_destroy(index);
}
END_TEST

typedef struct watcher {
        size_t calls, last, total, stop_at;
        bool fell;
} watcher;

static int32_t watch(void *ctx, size_t done, size_t total)
{
        watcher *w = ctx;
        w->fell = w->fell || done < w->last || done > total;
        w->last = done;
        w->total = total;
        return ++w->calls == w->stop_at;
}

START_TEST(progress_is_told_in_pairs_and_can_cancel)
{
        dci_index *index = new_index(DCI_METRIC_L2, DCI_KIND_PDCI);
        int64_t ids[Q];
        dci_range_result result;
        watcher w = {0};
        dci_search_params params = pdci_effort(1000, 20);
        params.progress = (dci_progress){&w, watch};
        ck_ok(dci_index_search(index, Q, queries, DIM, 1, &params, ids, NULL));
        ck_assert(w.calls > 0 && !w.fell && w.total == (size_t)N * Q && w.last == w.total);
        w = (watcher){.stop_at = 2};
        ck_refused(dci_index_search(index, Q, queries, DIM, 1, &params, ids, NULL), DCI_ERR_CANCELLED, "stopped");
        w = (watcher){.stop_at = 2};
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_refused(dci_index_range_search(index, Q, queries, DIM, 1e9f, &params, &result), DCI_ERR_CANCELLED,
                   "stopped");
        ck_assert_ptr_null(result.memory);
        dci_index_destroy(index);
}
END_TEST

/* Loops over metrics; owned and borrowed. */
START_TEST(the_memory_report_is_what_the_allocator_gave)
{
        for (int borrowed = 0; borrowed < 2; borrowed++) {
                test_memory memory;
                dci_context *counting = test_context_with(&memory, 1);
                dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F32);
                dci_memory_report report;
                config.storage = borrowed ? DCI_ROWS_BORROWED : DCI_ROWS_OWNED;
                ck_ok(dci_memory_report_init(&report, sizeof report));
                const size_t before = atomic_load(&memory.live_bytes), n_simple = 2 * 7;
                dci_index *index = pdci_index(counting, &config, N, keys, NULL);
                const size_t live = atomic_load(&memory.live_bytes) - before;
                ck_ok(dci_index_memory(index, &report));
                ck_assert_uint_eq(report.total,
                                  report.rows + report.ids + report.norms + report.projections + report.other);
                ck_assert_uint_ge(report.projections, N * n_simple * sizeof(float));
                ck_assert_uint_le(report.projections, (N + 4096) * n_simple * sizeof(float));
                if (all_metrics[_i] == DCI_METRIC_L2)
                        ck_assert_uint_eq(report.norms, 0);
                else
                        ck_assert(report.norms >= N * sizeof(float));
                /* Cache lines between the parts of a chunk are the only bytes that it does not name. */
                ck_assert_uint_le(report.total, live);
                ck_assert_uint_ge(report.total + 2 * DCI_CACHE_LINE * (N / 512), live);
                int64_t ids[N];
                for (size_t i = 0; i < N; i++)
                        ids[i] = (int64_t)i;
                ck_ok(dci_index_remove(index, N, ids));
                ck_ok(dci_index_memory(index, &report));
                ck_assert_uint_eq(report.projections + report.rows + report.norms, 0);
                dci_index_destroy(index);
                dci_context_destroy(counting);
                ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("pdci effort");
        TCase *effort = test_case_with(suite, "effort", 300, setup, trace_close);
        tcase_add_loop_test(effort, recall_grows_with_effort, 0, 3);
        tcase_add_loop_test(effort, candidates_of_less_effort_are_candidates_of_more, 0, 3);
        tcase_add_test(effort, a_number_and_the_share_it_is_are_the_same_budget);
        tcase_add_test(effort, budgets_beyond_the_rows_are_full_effort);
        tcase_add_test(effort, defaults_hold_for_searches_without_params);
        tcase_add_loop_test(effort, range_search_returns_the_candidates_within, 0, 3);
        tcase_add_loop_test(effort, stats_count_what_was_retrieved_and_scored, 0, 3);
        tcase_add_test(effort, stats_of_a_filtered_search_count_the_admitted_rows);
        tcase_add_test(effort, progress_is_told_in_pairs_and_can_cancel);
        tcase_add_loop_test(effort, the_memory_report_is_what_the_allocator_gave, 0, 3);
        return test_main(suite);
}
