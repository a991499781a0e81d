/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind MDCI: what efforts, groups, filters and ranges mean; what a search reports. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/mdci_fixture.h"
#include "tests/trace_fixture.h"

enum { N = 3000, Q = 24, DIM = TRACE_DIM, K = 10 };

static void setup(void)
{
        trace_open(1, N, Q);
}

static dci_index *new_index(dci_metric metric, size_t top_nodes, size_t simple)
{
        dci_index_config config = mdci_config(DIM, metric, DCI_F16);
        config.top_nodes = top_nodes;
        config.cell_simp_indices = simple;
        return pdci_index(context, &config, N, keys, NULL);
}

static void check_same(const pdci_found *a, const pdci_found *b, const char *what, size_t number)
{
        ck_assert_msg(pdci_same(a, b), "%s %zu: other results", what, number);
}

/* --- effort -------------------------------------------------------------------------------------------------------------------- */

/* Loops over metrics. */
START_TEST(a_number_of_nodes_or_rows_and_the_share_that_it_is_are_the_same_effort)
{
        dci_index *index = new_index(all_metrics[_i], 4096, 0);
        const size_t n_nodes = mdci_stats(index).n_nodes[0];
        for (size_t nodes = 1; nodes < n_nodes; nodes = nodes * 3 + 1) {
                dci_search_params by_share = mdci_effort(((double)nodes - 0.5) / (double)n_nodes), by_nodes, by_rows;
                by_nodes = by_rows = mdci_effort(1e-9); /* a number is in place of the share */
                by_nodes.field_of_view = nodes;
                by_rows.num_to_visit = (size_t)(((double)nodes - 0.5) / (double)n_nodes * N);
                pdci_found a = pdci_search(index, Q, queries, K, &by_share);
                pdci_found b = pdci_search(index, Q, queries, K, &by_nodes);
                pdci_found c = pdci_search(index, Q, queries, K, &by_rows);
                check_same(&a, &b, "nodes", nodes);
                check_same(&a, &c, "rows of nodes", nodes);
                pdci_found_free(&a);
                pdci_found_free(&b);
                pdci_found_free(&c);
        }
        dci_index_destroy(index);
}
END_TEST

/* Rows are still chosen among by simple indices. */
START_TEST(numbers_beyond_all_rows_and_nodes_are_all_of_them)
{
        static const size_t numbers[] = {N, N + 1, SIZE_MAX / 2, SIZE_MAX};
        dci_index *index = new_index(DCI_METRIC_L2, 4096, 3);
        for (size_t i = 1; i < COUNT(numbers); i++)
                for (int nodes = 0; nodes < 2; nodes++) {
                        dci_search_params all = mdci_effort(1e-9), more;
                        all.num_to_retrieve = 40;
                        more = all;
                        *(nodes ? &all.field_of_view : &all.num_to_visit) = numbers[0];
                        *(nodes ? &more.field_of_view : &more.num_to_visit) = numbers[i];
                        pdci_found a = pdci_search(index, Q, queries, K, &all),
                                   b = pdci_search(index, Q, queries, K, &more);
                        check_same(&a, &b, "number", i);
                        pdci_found_free(&a);
                        pdci_found_free(&b);
                }
        dci_index_destroy(index);
}
END_TEST

/* Loops over metrics. With several levels more nodes may crowd out others below; with one they cannot. */
START_TEST(more_nodes_only_add_candidates_and_all_nodes_add_all)
{
        dci_index *index = new_index(all_metrics[_i], 4096, 0);
        int64_t *ids = malloc(N * sizeof *ids);
        for (size_t q = 0; q < Q; q += 4) {
                uint8_t had[N] = {0}, has[N];
                size_t grown = 0, last = 0;
                for (size_t nodes = 1; nodes < 400; nodes *= 3) {
                        dci_search_params params = mdci_effort(1e-9);
                        params.field_of_view = nodes;
                        const size_t n = pdci_candidates(index, queries + q * DIM, &params, N, ids);
                        memset(has, 0, sizeof has);
                        for (size_t i = 0; i < n; i++)
                                has[ids[i]] = 1;
                        for (size_t i = 0; i < N; i++)
                                ck_assert_msg(has[i] >= had[i], "query %zu, %zu nodes: id %zu is lost", q, nodes, i);
                        memcpy(had, has, sizeof had);
                        grown += n > last;
                        last = n;
                }
                ck_assert_uint_eq(last, N);
                ck_assert_uint_ge(grown, 3);
        }
        free(ids);
        dci_index_destroy(index);
}
END_TEST

START_TEST(a_search_reports_what_it_looked_at)
{
        dci_index *index = new_index(DCI_METRIC_IP, 4096, 0);
        const size_t n_nodes = mdci_stats(index).n_nodes[0];
        dci_search_stats stats;
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        for (size_t nodes = 20; nodes <= n_nodes; nodes += 30) {
                dci_search_params params = mdci_effort(1.0);
                int64_t ids[N];
                size_t candidates = 0;
                params.field_of_view = nodes;
                for (size_t q = 0; q < Q; q++)
                        candidates += pdci_candidates(index, queries + q * DIM, &params, N, ids);
                params.stats = &stats;
                pdci_found found = pdci_search(index, Q, queries, 1, &params);
                ck_assert(stats.queries == Q && stats.candidates == candidates && stats.distances == candidates);
                ck_assert_uint_eq(stats.visited, Q * n_nodes + candidates);
                ck_assert_uint_eq(stats.proposed, stats.visited);
                pdci_found_free(&found);
        }
        dci_search_params full = mdci_effort(1.0);
        full.stats = &stats;
        pdci_found found = pdci_search(index, 2, queries, 1, &full);
        ck_assert(stats.queries == 2 && stats.candidates == 2 * N && stats.visited == 2 * N);
        pdci_found_free(&found);
        dci_index_destroy(index);
}
END_TEST

START_TEST(a_search_that_finds_too_few_opens_more_nodes)
{
        dci_index *index = new_index(DCI_METRIC_COSINE, 16, 0);
        dci_search_params least = mdci_effort(1e-9);
        for (size_t k = 1; k <= N + 1; k = k * 5 + 1) {
                pdci_found found = pdci_search(index, Q, queries, k, &least);
                for (size_t i = 0; i < Q * k; i++)
                        ck_assert((found.ids[i] >= 0) == (i % k < N));
                pdci_found_free(&found);
        }
        dci_index_destroy(index);
}
END_TEST

START_TEST(searches_without_params_take_the_defaults_of_the_index)
{
        dci_index *index = new_index(DCI_METRIC_L2, 4096, 0);
        dci_search_params some = mdci_effort(0.5), got;
        some.field_of_view = 3;
        ck_ok(dci_index_set_defaults(index, &some));
        ck_ok(dci_search_params_init(&got, sizeof got));
        ck_ok(dci_index_get_defaults(index, &got));
        ck_assert(got.field_of_view == 3 && got.prop_to_visit == 0.5 && got.num_to_visit == 0);
        pdci_found a = pdci_search(index, Q, queries, 200, NULL), b = pdci_search(index, Q, queries, 200, &some);
        const dci_search_params full = mdci_effort(1.0);
        pdci_found c = pdci_search(index, Q, queries, 200, &full);
        check_same(&a, &b, "defaults", 0);
        ck_assert(!pdci_same(&a, &c));
        pdci_found_free(&a);
        pdci_found_free(&b);
        pdci_found_free(&c);
        dci_index_destroy(index);
}
END_TEST

static int32_t stop(void *ctx, size_t done, size_t total)
{
        (void)ctx;
        ck_assert_uint_le(done, total);
        return 1;
}

START_TEST(a_search_can_be_cancelled)
{
        dci_index *index = new_index(DCI_METRIC_L2, 4096, 0);
        static const double shares[] = {0.1, 1.0};
        int64_t ids[Q * K];
        for (size_t s = 0; s < COUNT(shares); s++) {
                dci_search_params params = mdci_effort(shares[s]);
                params.progress.fn = stop;
                ck_refused(dci_index_search(index, Q, queries, DIM, K, &params, ids, NULL), DCI_ERR_CANCELLED,
                           "stopped");
                ck_refused(
                        dci_index_search_group(index, Q / 4, 4, queries, DIM, K, DCI_GROUP_UNION, &params, ids, NULL),
                        DCI_ERR_CANCELLED, "stopped");
        }
        dci_index_destroy(index);
}
END_TEST

/* --- P-DCI within the cells ---------------------------------------------------------------------------------------------------- */

/* Loops over metrics: to retrieve all is to scan the cells; to retrieve fewer finds more of that than chance would. */
START_TEST(simple_indices_choose_among_the_rows_of_the_opened_cells)
{
        static const double retrieves[] = {0.05, 0.2, 0.5};
        dci_index *scanning = new_index(all_metrics[_i], 4096, 0), *ranking = new_index(all_metrics[_i], 4096, 12);
        dci_search_params params = mdci_effort(0.3);
        mdci_same_at(scanning, ranking, Q, queries, K, 0.3, "all retrieved");
        pdci_found want = pdci_search(scanning, Q, queries, K, &params);
        int64_t some[N], all[N];
        double last = 0;
        for (size_t r = 0; r < COUNT(retrieves); r++) {
                params.prop_to_retrieve = retrieves[r];
                pdci_found got = pdci_search(ranking, Q, queries, K, &params);
                const double found = mdci_share_found(&want, &got);
                ck_assert_msg(found > last && found > 1.2 * retrieves[r], "%g retrieved: %g found, %g before",
                              retrieves[r], found, last);
                last = found;
                for (size_t q = 0; q < Q; q += 6) {
                        const size_t n = pdci_candidates(ranking, queries + q * DIM, &params, N, some);
                        const size_t n_all = pdci_candidates(scanning, queries + q * DIM, &params, N, all);
                        ck_assert(n >= 1 && n <= (size_t)ceil(retrieves[r] * (double)n_all));
                        for (size_t i = 0, at = 0; i < n; i++) { /* both ascend */
                                while (at < n_all && all[at] < some[i])
                                        at++;
                                ck_assert_msg(at < n_all && all[at] == some[i], "id %lld lies in no opened cell",
                                              (long long)some[i]);
                        }
                }
                pdci_found_free(&got);
        }
        params.num_to_retrieve = 7; /* in place of the share; fewer than k are never kept */
        ck_assert_uint_eq(pdci_candidates(ranking, queries, &params, N, some), 7);
        pdci_found got = pdci_search(ranking, Q, queries, 2 * K, &params);
        for (size_t i = 0; i < Q * 2 * K; i++)
                ck_assert_int_ge(got.ids[i], 0);
        pdci_found_free(&got);
        pdci_found_free(&want);
        dci_index_destroy(scanning);
        dci_index_destroy(ranking);
}
END_TEST

/* --- groups -------------------------------------------------------------------------------------------------------------------- */

typedef struct id_list {
        size_t n;
        int64_t ids[N];
} id_list;

/* Ids that any of the queries has among its candidates, ascending. */
static void candidates_of_any(const dci_index *index, size_t n_queries, const float *asked,
                              const dci_search_params *params, id_list *out)
{
        uint8_t in[N] = {0};
        int64_t ids[N];
        for (size_t q = 0; q < n_queries; q++)
                for (size_t n = pdci_candidates(index, asked + q * DIM, params, N, ids), i = 0; i < n; i++)
                        in[ids[i]] = 1;
        out->n = 0;
        for (size_t i = 0; i < N; i++)
                if (in[i] != 0)
                        out->ids[out->n++] = (int64_t)i;
}

/* Loops over metrics and group sizes 1 to 8. */
START_TEST(each_query_of_a_group_gets_the_best_of_what_the_group_opens)
{
        const size_t size = 1 + (size_t)_i / 3, n_groups = Q / size;
        dci_index *index = new_index(all_metrics[_i % 3], 4096, 0), *flat = mdci_flat_of(index);
        dci_search_params params = mdci_effort(0.06), exact = mdci_effort(1.0);
        id_list *opened = calloc(1, sizeof *opened);
        int64_t ids[Q * K];
        float scores[Q * K];
        dci_filter filter;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        filter.kind = DCI_FILTER_IDS;
        filter.ids = opened->ids;
        exact.filter = &filter;
        ck_ok(dci_index_search_group(index, n_groups, size, queries, DIM, K, DCI_GROUP_EACH, &params, ids, scores));
        for (size_t g = 0; g < n_groups; g++) {
                const float *asked = queries + g * size * DIM;
                candidates_of_any(index, size, asked, &params, opened);
                filter.n = opened->n;
                pdci_found want = pdci_search(flat, size, asked, K, &exact);
                ck_assert(memcmp(ids + g * size * K, want.ids, size * K * sizeof *ids) == 0);
                ck_assert(memcmp(scores + g * size * K, want.scores, size * K * sizeof *scores) == 0);
                pdci_found_free(&want);
        }
        free(opened);
        dci_index_destroy(index);
        dci_index_destroy(flat);
}
END_TEST

/* Loops over group sizes; kinds FLAT and MDCI, k up to more than there are rows. */
START_TEST(the_union_of_a_group_is_its_lists_interleaved)
{
        enum { FEW = 90 };
        static const size_t ks[] = {1, 2, 7, 40, FEW, FEW + 5};
        const size_t size = 1 + (size_t)_i, n_groups = Q / size;
        for (int kind = 0; kind < 2; kind++) {
                dci_index_config config = mdci_config(DIM, DCI_METRIC_IP, DCI_F32);
                config.kind = kind == 0 ? DCI_KIND_FLAT : DCI_KIND_MDCI;
                dci_index *index = pdci_index(context, &config, FEW, keys, NULL);
                pdci_found lists = pdci_search(index, Q, queries, FEW, NULL);
                for (size_t c = 0; c < COUNT(ks); c++) {
                        int64_t ids[Q * (FEW + 5)], want[FEW + 5];
                        float scores[Q * (FEW + 5)], want_scores[FEW + 5];
                        const size_t k = ks[c];
                        ck_ok(dci_index_search_group(index, n_groups, size, queries, DIM, k, DCI_GROUP_UNION, NULL, ids,
                                                     scores));
                        for (size_t g = 0; g < n_groups; g++) {
                                pdci_interleave(&lists, g * size, size, k, want, want_scores);
                                ck_assert_msg(memcmp(ids + g * k, want, k * sizeof *ids) == 0, "k %zu, group %zu", k,
                                              g);
                                for (size_t i = 0; i < k; i++)
                                        ck_assert(scores[g * k + i] == want_scores[i] ||
                                                  (isnan(scores[g * k + i]) && isnan(want_scores[i])));
                        }
                        ck_ok(dci_index_search_group(index, n_groups, size, queries, DIM, k, DCI_GROUP_UNION, NULL, ids,
                                                     NULL)); /* scores are not asked for */
                }
                pdci_found_free(&lists);
                dci_index_destroy(index);
        }
}
END_TEST

/* Below full effort, too, when no list is too short for what the group opens. */
START_TEST(a_union_below_full_effort_is_interleaved_from_the_groups_own_lists)
{
        enum { SIZE = 4 };
        dci_index *index = new_index(DCI_METRIC_IP, 4096, 0);
        const dci_search_params params = mdci_effort(0.2);
        pdci_found lists = {Q, 2 * K, malloc(Q * 2 * K * sizeof(int64_t)), malloc(Q * 2 * K * sizeof(float))};
        ck_ok(dci_index_search_group(index, Q / SIZE, SIZE, queries, DIM, 2 * K, DCI_GROUP_EACH, &params, lists.ids,
                                     lists.scores));
        int64_t ids[Q / SIZE * 2 * K], want[2 * K];
        float scores[2 * K];
        ck_ok(dci_index_search_group(index, Q / SIZE, SIZE, queries, DIM, 2 * K, DCI_GROUP_UNION, &params, ids, NULL));
        for (size_t g = 0; g < Q / SIZE; g++) {
                pdci_interleave(&lists, g * SIZE, SIZE, 2 * K, want, scores);
                ck_assert(memcmp(ids + g * 2 * K, want, sizeof want) == 0);
        }
        pdci_found_free(&lists);
        dci_index_destroy(index);
}
END_TEST

START_TEST(bad_groups_are_refused)
{
        dci_index *index = new_index(DCI_METRIC_L2, 4096, 0);
        int64_t ids[9];
        static const struct {
                size_t n_groups, size, k;
                int32_t result;
                dci_status status;
                const char *part;
        } bad[] = {{1, 0, 1, DCI_GROUP_EACH, DCI_ERR_INVALID, "group_size is 0, allowed are 1 to 8"},
                   {1, 9, 1, DCI_GROUP_EACH, DCI_ERR_INVALID, "group_size is 9, allowed are 1 to 8"},
                   {0, SIZE_MAX, 1, DCI_GROUP_UNION, DCI_ERR_INVALID, "group_size is 18446744073709551615"},
                   {1, 2, 1, 2, DCI_ERR_INVALID, "unknown group result 2"},
                   {1, 2, 1, -1, DCI_ERR_INVALID, "unknown group result -1"},
                   {1, 2, 0, DCI_GROUP_UNION, DCI_ERR_INVALID, "k is 0"},
                   {SIZE_MAX / 2 + 1, 2, 1, DCI_GROUP_EACH, DCI_ERR_LIMIT, "9223372036854775808 groups of 2"},
                   {SIZE_MAX / 8, 8, 1, DCI_GROUP_EACH, DCI_ERR_LIMIT, "k is at most"}};
        for (size_t i = 0; i < COUNT(bad); i++)
                ck_refused(dci_index_search_group(index, bad[i].n_groups, bad[i].size, queries, DIM, bad[i].k,
                                                  bad[i].result, NULL, ids, NULL),
                           bad[i].status, bad[i].part);
        ck_refused(dci_index_search_group(NULL, 1, 1, queries, DIM, 1, DCI_GROUP_EACH, NULL, ids, NULL),
                   DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_search_group(index, 1, 1, queries, DIM, 1, DCI_GROUP_EACH, NULL, NULL, NULL),
                   DCI_ERR_INVALID, "out_ids is NULL");
        ck_refused(dci_index_search_group(index, 1, 1, queries, DIM - 1, 1, DCI_GROUP_EACH, NULL, ids, NULL),
                   DCI_ERR_INVALID, "ld is 63");
        ck_ok(dci_index_search_group(index, 0, 3, NULL, 0, 1, DCI_GROUP_EACH, NULL, NULL, NULL));
        dci_index_destroy(index);
}
END_TEST

/* --- filters ------------------------------------------------------------------------------------------------------------------- */

/* Admits one id of `share`. */
static int32_t admits(void *ctx, int64_t id)
{
        return id % *(const int64_t *)ctx == 1;
}

typedef struct filters {
        int64_t share, ids[N];
        uint64_t bits[N / 64 + 1];
        size_t n;
        dci_filter of_kind[3]; /* IDS, BITMAP, CALLBACK */
} filters;

static void filters_fill(filters *f, int64_t share)
{
        memset(f, 0, sizeof *f);
        f->share = share;
        for (int64_t id = 0; id < N; id++) {
                if (!admits(&f->share, id))
                        continue;
                f->ids[f->n++] = id;
                f->bits[id / 64] |= UINT64_C(1) << (id % 64);
        }
        for (int i = 0; i < 3; i++) {
                dci_filter *filter = &f->of_kind[i];
                ck_ok(dci_filter_init(filter, sizeof *filter));
                filter->kind = DCI_FILTER_IDS + i;
                filter->n = i == 0 ? f->n : N;
                filter->ids = f->ids;
                filter->bits = f->bits;
                filter->fn = admits;
                filter->ctx = &f->share;
        }
}

/* Loops over metrics, with one level and with several: single searches and groups. */
START_TEST(filtered_searches_return_what_is_admitted_and_as_much_as_there_is)
{
        static const int64_t shares[] = {2, 5, 40, 700, 2999};
        static const double efforts[] = {1e-9, 0.1, 0.4, 1.0};
        dci_index *index = new_index(all_metrics[_i % 3], _i < 3 ? 4096 : 16, 0), *flat = mdci_flat_of(index);
        filters *f = malloc(sizeof *f);
        for (size_t c = 0; c < COUNT(shares) * COUNT(efforts); c++) {
                filters_fill(f, shares[c % COUNT(shares)]);
                const double effort = efforts[c / COUNT(shares)];
                dci_search_params params = mdci_effort(effort), exact = mdci_effort(1.0);
                exact.filter = &f->of_kind[0];
                pdci_found first = {0}, want = pdci_search(flat, Q, queries, K, &exact);
                for (int kind = 0; kind < 3; kind++) {
                        params.filter = &f->of_kind[kind];
                        pdci_found found = pdci_search(index, Q, queries, K, &params);
                        for (size_t i = 0; i < Q * K; i++) {
                                ck_assert((found.ids[i] >= 0) == (i % K < f->n));
                                ck_assert(found.ids[i] < 0 || admits(&f->share, found.ids[i]));
                        }
                        if (f->n <= (size_t)(effort * N)) /* fewer than would be looked at: answered exactly */
                                ck_assert(pdci_same(&want, &found));
                        if (kind > 0)
                                check_same(&first, &found, "filter", (size_t)kind);
                        else
                                first = pdci_search(index, Q, queries, K, &params);
                        ck_ok(dci_index_search_group(index, Q / 8, 8, queries, DIM, K, DCI_GROUP_EACH, &params,
                                                     found.ids, found.scores));
                        for (size_t i = 0; i < Q * K; i++) {
                                ck_assert((found.ids[i] >= 0) == (i % K < f->n));
                                ck_assert(found.ids[i] < 0 || admits(&f->share, found.ids[i]));
                        }
                        pdci_found_free(&found);
                }
                pdci_found_free(&first);
                pdci_found_free(&want);
        }
        free(f);
        dci_index_destroy(index);
        dci_index_destroy(flat);
}
END_TEST

/* What it finds of the admitted rows is as good as what a search finds of all. */
START_TEST(a_filter_of_half_of_the_rows_costs_little_recall)
{
        dci_index *index = new_index(DCI_METRIC_COSINE, 4096, 0);
        filters *f = malloc(sizeof *f);
        filters_fill(f, 2);
        dci_search_params some = mdci_effort(0.2), all = mdci_effort(1.0);
        some.filter = all.filter = &f->of_kind[1];
        pdci_found want = pdci_search(index, Q, queries, K, &all), got = pdci_search(index, Q, queries, K, &some);
        ck_assert_double_ge(mdci_share_found(&want, &got), mdci_recall(index, Q, queries, K, 0.2) - 0.02);
        pdci_found_free(&want);
        pdci_found_free(&got);
        free(f);
        dci_index_destroy(index);
}
END_TEST

/* --- ranges -------------------------------------------------------------------------------------------------------------------- */

/* Loops over metrics: at any effort the candidates within the radius, best first; at full effort those of FLAT. */
START_TEST(range_search_finds_the_candidates_within_the_radius)
{
        static const double efforts[] = {0.05, 0.3, 1.0};
        const dci_metric metric = all_metrics[_i];
        dci_index *index = new_index(metric, 4096, 0), *flat = mdci_flat_of(index);
        pdci_found best = pdci_search(index, Q, queries, 100, NULL);
        size_t found = 0;
        for (size_t c = 0; c < COUNT(efforts) * Q; c++) {
                const size_t q = c % Q;
                const float radius = best.scores[q * 100 + 99];
                const dci_search_params params = mdci_effort(efforts[c / Q]);
                dci_range_result within, all;
                ck_ok(dci_range_result_init(&within, sizeof within));
                ck_ok(dci_range_result_init(&all, sizeof all));
                ck_ok(dci_index_range_search(index, 1, queries + q * DIM, DIM, radius, &params, &within));
                ck_ok(dci_index_range_search(efforts[c / Q] < 1.0 ? index : flat, 1, queries + q * DIM, DIM,
                                             pdci_any_radius(metric), &params, &all));
                size_t n = 0; /* the best of the candidates come first */
                while (n < all.offsets[1] &&
                       (metric == DCI_METRIC_L2 ? all.scores[n] <= radius : all.scores[n] >= radius))
                        n++;
                ck_assert_uint_eq(within.offsets[1], n);
                ck_assert(memcmp(within.ids, all.ids, n * sizeof *all.ids) == 0);
                ck_assert(memcmp(within.scores, all.scores, n * sizeof *all.scores) == 0);
                ck_assert(efforts[c / Q] < 1.0 || n >= 100);
                found += n;
                dci_range_result_free(&within);
                dci_range_result_free(&all);
        }
        ck_assert_uint_gt(found, Q * 150);
        pdci_found_free(&best);
        dci_index_destroy(index);
        dci_index_destroy(flat);
}
END_TEST

START_TEST(a_filtered_range_below_full_effort_holds_admitted_rows_alone)
{
        dci_index *index = new_index(DCI_METRIC_IP, 16, 0);
        filters *f = malloc(sizeof *f);
        filters_fill(f, 3);
        dci_search_params params = mdci_effort(0.2);
        size_t found = 0;
        for (int kind = 0; kind < 3; kind++) {
                dci_range_result result;
                ck_ok(dci_range_result_init(&result, sizeof result));
                params.filter = &f->of_kind[kind];
                ck_ok(dci_index_range_search(index, Q, queries, DIM, -INFINITY, &params, &result));
                for (size_t i = 0; i < result.offsets[Q]; i++)
                        ck_assert(admits(&f->share, result.ids[i]));
                ck_assert(kind == 0 || found == result.offsets[Q]);
                found = result.offsets[Q];
                dci_range_result_free(&result);
        }
        ck_assert(found > Q && found < Q * f->n);
        free(f);
        dci_index_destroy(index);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("mdci search");
        TCase *search = test_case_with(suite, "search", 60, setup, trace_close);
        tcase_add_loop_test(search, a_number_of_nodes_or_rows_and_the_share_that_it_is_are_the_same_effort, 0, 3);
        tcase_add_test(search, numbers_beyond_all_rows_and_nodes_are_all_of_them);
        tcase_add_loop_test(search, more_nodes_only_add_candidates_and_all_nodes_add_all, 0, 3);
        tcase_add_test(search, a_search_reports_what_it_looked_at);
        tcase_add_test(search, a_search_that_finds_too_few_opens_more_nodes);
        tcase_add_test(search, searches_without_params_take_the_defaults_of_the_index);
        tcase_add_test(search, a_search_can_be_cancelled);
        tcase_add_loop_test(search, simple_indices_choose_among_the_rows_of_the_opened_cells, 0, 3);
        tcase_add_loop_test(search, each_query_of_a_group_gets_the_best_of_what_the_group_opens, 0, 3 * 8);
        tcase_add_loop_test(search, the_union_of_a_group_is_its_lists_interleaved, 0, 8);
        tcase_add_test(search, a_union_below_full_effort_is_interleaved_from_the_groups_own_lists);
        tcase_add_test(search, bad_groups_are_refused);
        tcase_add_loop_test(search, filtered_searches_return_what_is_admitted_and_as_much_as_there_is, 0, 6);
        tcase_add_test(search, a_filter_of_half_of_the_rows_costs_little_recall);
        tcase_add_loop_test(search, range_search_finds_the_candidates_within_the_radius, 0, 3);
        tcase_add_test(search, a_filtered_range_below_full_effort_holds_admitted_rows_alone);
        return test_main(suite);
}
