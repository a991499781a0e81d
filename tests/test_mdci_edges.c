/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind MDCI at its edges: few rows, equal rows, all or none promoted, smallest and largest shapes; and what it
 * refuses. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/mdci_fixture.h"

enum { DIM = 12, FEW = 300, ASKED = 8, K = 6 };

static dci_context *context;
static float *rows, *queries;

static void setup(void)
{
        context = test_context(1);
        rows = test_normal(FEW, DIM, 1);
        queries = test_normal(ASKED, DIM, 2);
}

static void teardown(void)
{
        dci_context_destroy(context);
        test_free(rows, queries);
}

/* The tree is whole and exact at full effort. */
static void check_exact(const dci_index *index, size_t n_queries, const float *asked, size_t k)
{
        dci_index *flat = mdci_flat_of(index);
        tree_check(index);
        mdci_same_at(flat, index, n_queries, asked, k, 1.0, "full effort");
        dci_index_destroy(flat);
}

/* --- few rows ------------------------------------------------------------------------------------------------------------------ */

static void check_padding(const int64_t *ids, const float *scores, size_t n)
{
        for (size_t i = 0; i < n; i++)
                ck_assert_msg(ids[i] == -1 && isnan(scores[i]), "result %zu is not padding", i);
}

/* Loops over metrics. */
START_TEST(an_empty_index_answers_everything)
{
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F32);
        dci_index *index = pdci_index(context, &config, 0, NULL, NULL);
        int64_t ids[ASKED * K];
        float scores[ASKED * K];
        size_t n = 77;
        uint64_t version = 77;
        const dci_search_params less = mdci_effort(0.1);
        const int64_t unknown = 3;
        for (int again = 0; again < 2; again++) { /* new, and emptied */
                ck_ok(dci_index_search(index, ASKED, queries, DIM, K, &less, ids, scores));
                check_padding(ids, scores, COUNT(ids));
                ck_ok(dci_index_search_group(index, 2, 4, queries, DIM, K, DCI_GROUP_EACH, NULL, ids, scores));
                check_padding(ids, scores, COUNT(ids));
                ck_ok(dci_index_search_group(index, 2, 4, queries, DIM, K, DCI_GROUP_UNION, &less, ids, scores));
                check_padding(ids, scores, 2 * K);
                ck_assert_uint_eq(pdci_candidates(index, queries, &less, 0, ids), 0);
                ck_ok(dci_index_ids(index, 0, NULL, &n));
                ck_assert_uint_eq(n, 0);
                ck_ok(dci_index_pages(index, 0, NULL, &n));
                ck_assert_uint_eq(n, 0);
                const dci_tree_stats stats = mdci_stats(index);
                ck_assert(stats.n_rows == 0 && stats.n_levels == 0 && stats.n_pages == 0 && stats.page_fill == 0);
                ck_ok(dci_index_changes(index, 0, 0, NULL, &n, &version));
                ck_assert(again == 1 ? version > 0 && n > 0 : version == 0 && n == 0);
                ck_refused(dci_index_remove(index, 1, &unknown), DCI_ERR_NOT_FOUND, "id 3 (number 0)");
                if (again == 0) {
                        const int64_t first[] = {0, 1};
                        ck_ok(dci_index_add(index, 2, rows, DIM, NULL, NULL));
                        ck_ok(dci_index_remove(index, 2, first));
                }
        }
        dci_index_destroy(index);
}
END_TEST

/* Loops over metrics. */
START_TEST(few_rows_are_all_found_at_any_effort_and_the_rest_is_padded)
{
        enum { MOST = 9 };
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F32);
        static const double shares[] = {1e-9, 0.3, 1.0};
        for (size_t n = 1; n <= MOST; n++) {
                dci_index *index = pdci_index(context, &config, n, rows, NULL);
                tree_check(index);
                for (size_t s = 0; s < COUNT(shares); s++) {
                        const dci_search_params params = mdci_effort(shares[s]);
                        pdci_found found = pdci_search(index, 1, queries, MOST + 2, &params);
                        uint64_t seen = 0;
                        for (size_t i = 0; i < n; i++)
                                seen |= found.ids[i] < 0 ? 0 : UINT64_C(1) << found.ids[i];
                        ck_assert_uint_eq(seen, (UINT64_C(1) << n) - 1);
                        check_padding(found.ids + n, found.scores + n, MOST + 2 - n);
                        pdci_found_free(&found);
                }
                check_exact(index, ASKED, queries, n + 1);
                dci_index_destroy(index);
        }
}
END_TEST

/* Loops over metrics. They come in a batch, in pages, and one by one; their nodes lie in one place. */
START_TEST(equal_rows_are_found_in_id_order_at_any_effort)
{
        enum { N = 260 };
        dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F16);
        float *same = malloc(N * DIM * sizeof *same);
        config.promotion_prob = 0.2;
        config.top_nodes = 8;
        for (size_t i = 0; i < N; i++)
                memcpy(same + i * DIM, rows, DIM * sizeof *same);
        dci_index *index = pdci_index(context, &config, N / 2, same, NULL);
        for (size_t done = N / 2, n = 16; done < N; done += n, n = done < 200 && done + 16 <= N ? 16 : 1)
                ck_ok(dci_index_add(index, n, same, DIM, NULL, NULL));
        ck_assert_uint_eq(dci_index_count(index), N);
        check_exact(index, ASKED, queries, 40);
        const dci_search_params params = mdci_effort(0.1);
        pdci_found found = pdci_search(index, ASKED, queries, 40, &params);
        for (size_t i = 0; i < ASKED * 40; i++) {
                ck_assert(found.ids[i] >= 0 && found.scores[i] == found.scores[i / 40 * 40]);
                ck_assert(i % 40 == 0 || found.ids[i - 1] < found.ids[i]);
        }
        pdci_found_free(&found);
        for (int64_t id = 0; id < N; id++)
                ck_ok(dci_index_remove(index, 1, &id));
        ck_assert_uint_eq(dci_index_count(index), 0);
        dci_index_destroy(index);
        free(same);
}
END_TEST

/* --- promotions ---------------------------------------------------------------------------------------------------------------- */

START_TEST(half_of_the_rows_may_be_promoted)
{
        dci_index_config config = mdci_config(DIM, DCI_METRIC_COSINE, DCI_BF16);
        config.promotion_prob = config.promotion_prob_subseq = 0.5;
        config.top_nodes = 1;
        dci_index *index = pdci_index(context, &config, FEW, rows, NULL);
        const dci_tree_stats stats = mdci_stats(index);
        ck_assert(stats.n_nodes[0] > FEW * 4 / 10 && stats.n_nodes[0] < FEW * 6 / 10);
        ck_assert_uint_ge(stats.n_levels, 5);
        for (size_t l = 1; l < stats.n_levels; l++)
                ck_assert_uint_le(stats.n_nodes[l], stats.n_nodes[l - 1]);
        check_exact(index, ASKED, queries, K);
        dci_index_destroy(index);
}
END_TEST

/* An index of these rows, none of which is promoted. */
static dci_index *unpromoted(size_t n, int64_t first_id)
{
        dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        int64_t ids[FEW];
        config.promotion_prob = 0.001;
        dci_index *index = pdci_index(context, &config, 0, NULL, NULL);
        for (size_t i = 0; i < n; i++)
                ids[i] = first_id = mdci_id_of(index, 0, first_id + 1);
        ck_ok(dci_index_add(index, n, rows, DIM, ids, NULL));
        return index;
}

START_TEST(without_a_promoted_row_the_one_of_lowest_id_is_the_node)
{
        dci_index *index = unpromoted(20, 50);
        int64_t ids[20];
        size_t n;
        ck_ok(dci_index_ids(index, 20, ids, &n));
        for (size_t left = 20; left > 1; left--) { /* it goes, and another takes its place */
                ck_assert_uint_eq(mdci_stats(index).n_nodes[0], 1);
                ck_assert_int_eq(index->tree->levels[0].ids[0], ids[20 - left]);
                check_exact(index, 1, queries, K);
                ck_ok(dci_index_remove(index, 1, &ids[20 - left]));
        }
        dci_index_destroy(index);
}
END_TEST

START_TEST(the_first_promoted_row_replaces_the_node_that_chance_did_not_draw)
{
        dci_index *index = unpromoted(40, 50);
        const int64_t promoted = mdci_id_of(index, 1, 5000);
        int64_t ids[41];
        size_t n;
        ck_ok(dci_index_add(index, 1, rows + 40 * DIM, DIM, &promoted, NULL));
        check_exact(index, ASKED, queries, K);
        ck_ok(dci_index_ids(index, 41, ids, &n));
        dci_index *whole = pdci_index(context, &index->config, 41, rows, ids);
        mdci_same_nodes(whole, index, "a promoted row");
        ck_assert_int_eq(index->tree->lone_id, -1);
        ck_ok(dci_index_remove(index, 1, &promoted)); /* and back */
        ck_assert_int_eq(index->tree->lone_id, ids[0]);
        check_exact(index, ASKED, queries, K);
        dci_index_destroy(index);
        dci_index_destroy(whole);
}
END_TEST

/* Loops over metrics: all at once, from both ends, the promoted ones first. */
START_TEST(an_index_emptied_in_any_way_can_be_filled_again)
{
        dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F32);
        config.top_nodes = 4;
        config.promotion_prob = 0.1;
        dci_index *index = pdci_index(context, &config, 0, NULL, NULL);
        for (int way = 0; way < 4; way++) {
                int64_t ids[FEW];
                size_t n, at = 0;
                ck_ok(dci_index_add(index, FEW, rows, DIM, NULL, NULL));
                ck_ok(dci_index_ids(index, FEW, ids, &n));
                ck_assert_int_eq(ids[0], FEW * way); /* an id is never used again by itself */
                check_exact(index, ASKED, queries, K);
                if (way == 3) {
                        for (size_t i = 0; i < FEW; i++) {
                                if (dci_tree_promotions(index->tree, ids[i]) == 0)
                                        continue;
                                const int64_t moved = ids[i];
                                ids[i] = ids[at];
                                ids[at++] = moved;
                        }
                        ck_assert_uint_gt(at, 10);
                }
                for (size_t i = 0; i < FEW; i += way == 0 ? FEW : 3)
                        ck_ok(dci_index_remove(index, way == 0 ? FEW : 3, way == 2 ? ids + FEW - 3 - i : ids + i));
                ck_assert_uint_eq(dci_index_count(index), 0);
                tree_check(index);
        }
        dci_index_destroy(index);
}
END_TEST

/* --- shapes -------------------------------------------------------------------------------------------------------------------- */

/* Loops over metrics. */
START_TEST(smallest_and_largest_shapes_are_exact)
{
        static const struct {
                size_t dim, page_rows, top_nodes, simple;
                double promotion_prob;
        } shapes[] = {{1, 16, 4096, 0, 0.04},  {1, 4, 1, 1, 0.5},        {7, 4, 4096, 0, 0.04},
                      {7, 256, 4096, 0, 0.04}, {7, 256, 2, 0, 0.3},      {DIM, 4, SIZE_MAX, 0, 0.5},
                      {257, 8, 4, 0, 0.1},     {DIM, 16, 4096, 40, 0.04}};
        for (size_t s = 0; s < COUNT(shapes); s++) {
                dci_index_config config = mdci_config(shapes[s].dim, all_metrics[_i], DCI_F32);
                config.page_rows = shapes[s].page_rows;
                config.top_nodes = shapes[s].top_nodes;
                config.promotion_prob = shapes[s].promotion_prob;
                config.cell_simp_indices = shapes[s].simple;
                float *wide = test_normal(FEW, config.dim, 3), *asked = test_normal(ASKED, config.dim, 4);
                dci_index *index = pdci_index(context, &config, FEW - 40, wide, NULL);
                for (size_t i = FEW - 40; i < FEW; i += 10)
                        ck_ok(dci_index_add(index, 10, wide + i * config.dim, config.dim, NULL, NULL));
                const dci_tree_stats stats = mdci_stats(index);
                ck_assert(stats.page_rows == shapes[s].page_rows && stats.n_rows == FEW);
                check_exact(index, ASKED, asked, K);
                const double recall = mdci_recall(index, ASKED, asked, K, 0.5);
                ck_assert_double_gt(recall, 0.4);
                dci_index_destroy(index);
                test_free(wide, asked);
        }
}
END_TEST

/* Rows of 2-byte elements, every one at another odd multiple of 2. */
START_TEST(borrowed_rows_need_only_the_alignment_of_their_elements)
{
        dci_index_config config = mdci_config(DIM, DCI_METRIC_COSINE, DCI_F16);
        config.storage = DCI_ROWS_BORROWED;
        config.add_dtype = DCI_F16;
        config.top_nodes = 8;
        config.promotion_prob = 0.1;
        uint16_t *held = malloc(((DIM + 1) * FEW + 1) * sizeof *held);
        for (size_t i = 0; i < FEW; i++)
                dci_kernels_scalar.narrow[DCI_F16 - 1](rows + i * DIM, DIM, held + 1 + i * (DIM + 1));
        dci_index *index = NULL;
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, FEW / 2, held + 1, DIM + 1, NULL, NULL));
        for (size_t i = FEW / 2; i < FEW; i += 5)
                ck_ok(dci_index_add(index, 5, held + 1 + i * (DIM + 1), DIM + 1, NULL, NULL));
        check_exact(index, ASKED, queries, K);
        for (int64_t id = 0; id < FEW; id += 3)
                ck_ok(dci_index_remove(index, 1, &id));
        check_exact(index, ASKED, queries, K);
        ck_refused(dci_index_add(index, 1, (const char *)held + 1, DIM, NULL, NULL), DCI_ERR_INVALID, "aligned");
        dci_index_destroy(index);
        free(held);
}
END_TEST

/* --- refusals ------------------------------------------------------------------------------------------------------------------ */

START_TEST(bad_configs_are_refused_with_their_values)
{
        static const struct {
                double value;
                const char *part;
        } shares[] = {{0, " is 0, expected 0.001 to 0.5"},
                      {0.0009, " is 0.0009, expected 0.001 to 0.5"},
                      {0.5001, " is 0.5001, expected 0.001 to 0.5"},
                      {1, " is 1, expected"},
                      {-0.1, " is -0.1, expected"},
                      {NAN, "expected 0.001 to 0.5"},
                      {INFINITY, " is inf, expected"}};
        static const struct {
                size_t value;
                const char *part;
        } pages[] = {{0, "page_rows is 0, expected 4, 8, 16, 32, 64, 128 or 256"},
                     {1, "page_rows is 1,"},
                     {2, "page_rows is 2,"},
                     {5, "page_rows is 5,"},
                     {24, "page_rows is 24,"},
                     {512, "page_rows is 512,"},
                     {SIZE_MAX, "page_rows is 18446744073709551615,"}};
        const dci_index_config good = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index_config config;
        dci_index *out = NULL;
        for (size_t i = 0; i < COUNT(shares); i++) {
                config = good;
                config.promotion_prob = shares[i].value;
                ck_refused(dci_index_create(context, &config, &out), DCI_ERR_INVALID, shares[i].part);
                ck_assert_ptr_nonnull(strstr(dci_last_error(), "promotion_prob "));
                config = good;
                config.promotion_prob_subseq = shares[i].value;
                ck_refused(dci_index_create(context, &config, &out), DCI_ERR_INVALID, shares[i].part);
                ck_assert_ptr_nonnull(strstr(dci_last_error(), "promotion_prob_subseq "));
        }
        for (size_t i = 0; i < COUNT(pages); i++) {
                config = good;
                config.page_rows = pages[i].value;
                ck_refused(dci_index_create(context, &config, &out), DCI_ERR_INVALID, pages[i].part);
        }
        config = good;
        config.top_nodes = 0;
        ck_refused(dci_index_create(context, &config, &out), DCI_ERR_INVALID, "top_nodes is 0, expected at least 1");
        config = good;
        config.cell_simp_indices = DCI_MAX_SIMPLE_INDICES + 1;
        ck_refused(dci_index_create(context, &config, &out), DCI_ERR_LIMIT,
                   "cell_simp_indices is 4097, expected 0 to 4096");
        ck_assert_ptr_null(out);
        config.kind = DCI_KIND_FLAT; /* which has none of it */
        config.page_rows = 3;
        config.promotion_prob = 7;
        ck_ok(dci_index_create(context, &config, &out));
        dci_index_destroy(out);
}
END_TEST

static int32_t stop_at(void *ctx, size_t done, size_t total)
{
        size_t *left = ctx;
        ck_assert_uint_le(done, total);
        return (*left)-- == 1;
}

/* What was there is there as it was: rows, pages, version. */
static void check_untouched(const dci_index *index, const mdci_copy *before, const pdci_found *answers)
{
        mdci_copy copy = {0};
        pdci_found now = pdci_search(index, ASKED, queries, K, NULL);
        tree_check(index);
        mdci_copy_follow(&copy, index);
        mdci_copy_check(before, index);
        ck_assert_uint_eq(copy.version, before->version);
        ck_assert(pdci_same(answers, &now));
        mdci_copy_free(&copy);
        pdci_found_free(&now);
}

/* Loops over metrics: what comes is longer, few, or many. */
START_TEST(refused_and_cancelled_changes_leave_everything_as_it_was)
{
        enum { MORE = 200 };
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F32);
        dci_index *index = pdci_index(context, &config, FEW, rows, NULL);
        float *more = test_normal(MORE, DIM, 9);
        int64_t ids[MORE];
        mdci_copy before = {0};
        mdci_copy_follow(&before, index);
        pdci_found answers = pdci_search(index, ASKED, queries, K, NULL);
        for (size_t i = 0; i < MORE; i++) {
                more[i * DIM] *= 100;
                ids[i] = (int64_t)(1000 + i);
        }
        for (size_t n = 16; n <= MORE; n += MORE - 16) {
                for (size_t call = 1; call <= (n == MORE ? 2 : 1); call++) { /* a page is one piece of work */
                        size_t left = call;
                        const dci_progress progress = {&left, stop_at};
                        ck_refused(dci_index_add(index, n, more, DIM, NULL, &progress), DCI_ERR_CANCELLED, "stopped");
                        check_untouched(index, &before, &answers);
                }
                ids[n - 1] = 7;
                ck_refused(dci_index_add(index, n, more, DIM, ids, NULL), DCI_ERR_EXISTS, "id 7 of row");
                check_untouched(index, &before, &answers);
                ids[n - 1] = 1000;
                ck_refused(dci_index_add(index, n, more, DIM, ids, NULL), DCI_ERR_EXISTS, "id 1000 of row");
                check_untouched(index, &before, &answers);
                ids[n - 1] = (int64_t)(1000 + n - 1);
                more[(n - 1) * DIM] = NAN;
                ck_refused(dci_index_add(index, n, more, DIM, ids, NULL), DCI_ERR_NUMBER, "holds NaN");
                more[(n - 1) * DIM] = 1;
                check_untouched(index, &before, &answers);
                for (size_t i = 0; i < n; i++)
                        ids[i] = (int64_t)i;
                ids[n - 1] = 3;
                ck_refused(dci_index_remove(index, n, ids), DCI_ERR_EXISTS, "id 3 is named twice");
                ids[n - 1] = FEW;
                ck_refused(dci_index_remove(index, n, ids), DCI_ERR_NOT_FOUND, "id 300 (number");
                check_untouched(index, &before, &answers);
                for (size_t i = 0; i < n; i++)
                        ids[i] = (int64_t)(1000 + i);
        }
        pdci_found_free(&answers);
        mdci_copy_free(&before);
        dci_index_destroy(index);
        free(more);
}
END_TEST

START_TEST(ids_given_by_the_index_count_on_from_the_largest_ever_used)
{
        const dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = pdci_index(context, &config, 10, rows, NULL);
        const int64_t given = 5000, last = INT64_MAX - 1;
        int64_t ids[40];
        size_t n;
        ck_ok(dci_index_add(index, 10, rows + 10 * DIM, DIM, NULL, NULL));
        ck_ok(dci_index_add(index, 1, rows + 20 * DIM, DIM, &given, NULL));
        ck_ok(dci_index_remove(index, 1, &given));
        for (size_t i = 21; i < 24; i++)
                ck_ok(dci_index_add(index, 1, rows + i * DIM, DIM, NULL, NULL));
        ck_ok(dci_index_ids(index, 40, ids, &n));
        ck_assert_uint_eq(n, 23);
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(ids[i], i < 20 ? (int64_t)i : given + 1 + (int64_t)i - 20);
        check_exact(index, ASKED, queries, K);
        ck_ok(dci_index_add(index, 1, rows + 24 * DIM, DIM, &last, NULL));
        ck_refused(dci_index_add(index, 1, rows, DIM, NULL, NULL), DCI_ERR_LIMIT, "9223372036854775807");
        check_exact(index, ASKED, queries, K);
        dci_index_destroy(index);
}
END_TEST

START_TEST(adds_without_ids_agree_with_the_same_ids_given)
{
        const dci_index_config config = mdci_config(DIM, DCI_METRIC_IP, DCI_F32);
        dci_index *given = pdci_index(context, &config, 0, NULL, NULL);
        dci_index *own = pdci_index(context, &config, 0, NULL, NULL);
        int64_t ids[FEW];
        for (size_t i = 0; i < FEW; i++)
                ids[i] = (int64_t)i;
        for (size_t done = 0, n = 1; done < FEW; done += n, n = FEW - done < 7 ? FEW - done : 7) {
                ck_ok(dci_index_add(given, n, rows + done * DIM, DIM, ids + done, NULL));
                ck_ok(dci_index_add(own, n, rows + done * DIM, DIM, NULL, NULL));
        }
        mdci_same_at(given, own, ASKED, queries, K, 0.2, "own ids");
        check_exact(own, ASKED, queries, K);
        dci_index_destroy(given);
        dci_index_destroy(own);
}
END_TEST

/* The ranks that a union takes of each list are guessed for queries that agree in half: it takes all k of lists that agree in all. */
START_TEST(a_union_of_equal_queries_is_the_list_of_one)
{
        enum { SIZE = 8, MANY = 100 };
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F32);
        dci_index *index = pdci_index(context, &config, FEW, rows, NULL);
        const dci_search_params less = mdci_effort(0.5);
        float same[SIZE * DIM];
        for (size_t q = 0; q < SIZE; q++)
                memcpy(same + q * DIM, queries, DIM * sizeof *same);
        int64_t each[SIZE * MANY], ids[MANY];
        float scores[SIZE * MANY], of_union[MANY];
        ck_ok(dci_index_search_group(index, 1, SIZE, same, DIM, MANY, DCI_GROUP_EACH, &less, each, scores));
        ck_ok(dci_index_search_group(index, 1, SIZE, same, DIM, MANY, DCI_GROUP_UNION, &less, ids, of_union));
        ck_assert(memcmp(ids, each, sizeof ids) == 0 && memcmp(of_union, scores, sizeof of_union) == 0);
        dci_index_destroy(index);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("mdci edges");
        TCase *edges = test_case_with(suite, "edges", 60, setup, teardown);
        tcase_add_loop_test(edges, an_empty_index_answers_everything, 0, 3);
        tcase_add_loop_test(edges, few_rows_are_all_found_at_any_effort_and_the_rest_is_padded, 0, 3);
        tcase_add_loop_test(edges, equal_rows_are_found_in_id_order_at_any_effort, 0, 3);
        tcase_add_test(edges, half_of_the_rows_may_be_promoted);
        tcase_add_test(edges, without_a_promoted_row_the_one_of_lowest_id_is_the_node);
        tcase_add_test(edges, the_first_promoted_row_replaces_the_node_that_chance_did_not_draw);
        tcase_add_loop_test(edges, an_index_emptied_in_any_way_can_be_filled_again, 0, 3);
        tcase_add_loop_test(edges, smallest_and_largest_shapes_are_exact, 0, 3);
        tcase_add_test(edges, borrowed_rows_need_only_the_alignment_of_their_elements);
        tcase_add_test(edges, bad_configs_are_refused_with_their_values);
        tcase_add_loop_test(edges, refused_and_cancelled_changes_leave_everything_as_it_was, 0, 3);
        tcase_add_test(edges, ids_given_by_the_index_count_on_from_the_largest_ever_used);
        tcase_add_test(edges, adds_without_ids_agree_with_the_same_ids_given);
        tcase_add_loop_test(edges, a_union_of_equal_queries_is_the_list_of_one, 0, 3);
        return test_main(suite);
}
