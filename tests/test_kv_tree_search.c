/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Search of trees: in full, the best pages or tokens, by whatever they are ranked by; lists of several heads, and the room. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/kv_tree_check.h"

enum { PROMPT = 600, N = 1000 };

static dci_context *context;
static dci_kv_config config;
static kv_data data;
static dci_kv *kv;

static void prepare(void)
{
        context = test_context(2);
        config = kv_small(DCI_KV_ICECACHE);
        config.sink = 32;
        config.tree_promotion = 0.05;
}

/* With what became of the config. */
static void begin(size_t n, uint64_t seed)
{
        data = kv_random(&config, n, seed);
        kv = kv_create(context, &config);
}

static void end(void)
{
        kv_end(kv, &data);
        dci_context_destroy(context);
}

static dci_kv_tree *tree_of(int64_t sequence, size_t layer, size_t head)
{
        return kv_tree_of(kv, sequence, layer, head);
}

/* Fails unless a lone query head's list has as many pages as there is room for, than which no other is better. */
static void check_best_pages(const kv_seen *seen, int64_t sequence, size_t token, size_t layer, size_t head)
{
        const dci_kv_tree *tree = tree_of(sequence, layer, head);
        const float *query = kv_query(&data, layer, token, head);
        const dci_kv_plan *plan = &seen->plans[layer];
        size_t n_list;
        double least = (double)INFINITY, best_left = -(double)INFINITY;
        uint8_t chosen[N] = {0};
        const int32_t *list = kv_list(seen, layer, 0, head, &n_list);
        const size_t room =
                config.budget - (size_t)plan->sink_end[0] - (size_t)(plan->n_tokens[0] - plan->recent_begin[0]);
        ck_assert_uint_eq(kv_tree_check_list(seen, 0, layer, head, "full effort"), room / config.page_tokens);
        for (size_t i = 0; i < n_list; i++)
                chosen[(size_t)list[i] - config.sink] = 1;
        for (size_t p = 0; p < tree->n_pages; p++) {
                if (tree->page_node[p] < 0)
                        continue;
                const double score = kv_tree_page_score(kv, tree, p, &data, query, layer, head);
                if (chosen[tree->members[p * config.page_tokens]] != 0)
                        least = fmin(least, score);
                else
                        best_left = fmax(best_left, score);
        }
        ck_assert_msg(best_left <= least + 1e-4 * (1.0 + fabs(least)), "left out: %.6f, taken: %.6f", best_left, least);
}

START_TEST(full_effort_finds_the_best_pages)
{
        prepare();
        config.n_query_heads = config.n_kv_heads;
        config.tree_field_of_view = N;
        begin(N, 12);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        for (size_t t = PROMPT; t < PROMPT + 100; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_seen_free(&seen);
                seen = kv_look(kv, 1, &(kv_turn){sequence, &data, t, 0});
                for (size_t l = 0; l < config.n_layers; l++)
                        for (size_t h = 0; h < config.n_kv_heads; h++)
                                check_best_pages(&seen, sequence, t, l, h);
                kv_seen_free(&seen);
        }
        end();
}
END_TEST

/* With tree_tokens, the same search ends in the best tokens, as many as there is room for. */
START_TEST(a_search_may_end_in_tokens)
{
        prepare();
        config.n_query_heads = config.n_kv_heads;
        config.tree_field_of_view = N;
        config.tree_tokens = 1;
        begin(N, 13);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT, 0});
        for (size_t h = 0; h < config.n_kv_heads; h++) {
                size_t n_list;
                const int32_t *list = kv_list(&seen, 0, 0, h, &n_list);
                const float *query = kv_query(&data, 0, PROMPT, h);
                const dci_kv_plan *plan = &seen.plans[0];
                uint8_t chosen[N] = {0};
                double least = (double)INFINITY;
                ck_assert_uint_eq(n_list, config.budget - (size_t)plan->sink_end[0] -
                                                  (size_t)(plan->n_tokens[0] - plan->recent_begin[0]));
                for (size_t i = 0; i < n_list; i++) {
                        chosen[list[i]] = 1;
                        least = fmin(least, test_dot(query, kv_key(&data, 0, (size_t)list[i], h), config.dim_k));
                }
                for (int32_t t = plan->sink_end[0]; t < plan->recent_begin[0]; t++)
                        ck_assert(chosen[t] == 1 || test_dot(query, kv_key(&data, 0, (size_t)t, h), config.dim_k) <=
                                                            least + 1e-4 * (1.0 + fabs(least)));
        }
        kv_seen_free(&seen);
        end();
}
END_TEST

/* Cells of any size fill the room, if only with what is left: lists end where the budget or the candidates do. Loops over chances of
 * promotion. */
START_TEST(searches_that_end_in_tokens_fill_the_room)
{
        static const double promotions[] = {0.03, 0.1, 0.25};
        prepare();
        config.tree_tokens = 1;
        config.tree_promotion = promotions[_i];
        config.budget = 256;
        config.n_query_heads = config.n_kv_heads;
        begin(2 * N, 17);
        for (size_t row = 0; row < data.n * config.n_layers * config.n_kv_heads; row++) /* of many lengths */
                for (size_t j = 0; j < config.dim_k; j++)
                        data.keys[row * config.dim_k + j] *= 0.25f + (float)(row * 37 % 64) / 16.0f;
        kv_data_store(&data);
        const int64_t sequence = kv_begin(kv, &data, 2 * N - 100);
        for (size_t t = 2 * N - 100; t < 2 * N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                for (size_t layer = 0; layer < config.n_layers; layer++)
                        for (size_t h = 0; h < config.n_kv_heads; h++) {
                                const dci_kv_plan *plan = &seen.plans[layer];
                                const size_t recent = (size_t)(plan->n_tokens[0] - plan->recent_begin[0]);
                                size_t n_list;
                                kv_list(&seen, layer, 0, h, &n_list);
                                ck_assert_uint_eq(n_list, config.budget - (size_t)plan->sink_end[0] - recent);
                        }
                kv_seen_free(&seen);
        }
        end();
}
END_TEST

/* The latest candidates, which a query looks for, lie in cells of their own; after a truncation within the rollback they are in the window
 * again, and those cells take no place of others. */
START_TEST(cells_in_the_window_take_no_place)
{
        enum { LATE = 64 };
        prepare();
        config.window = config.rollback = LATE;
        config.budget = config.sink + LATE + 3 * config.page_tokens;
        config.tree_field_of_view = 1;
        config.tree_promotion = 0.25;
        begin(N, 18);
        const size_t n_keys = config.n_kv_heads * config.dim_k, n_queries = config.n_query_heads * config.dim_k;
        for (size_t layer = 0; layer < config.n_layers; layer++)
                for (size_t t = PROMPT - 2 * LATE; t < PROMPT; t++) {
                        float *keys = data.keys + (layer * N + t) * n_keys,
                              *queries = data.queries + (layer * N + t) * n_queries;
                        for (size_t j = 0; j < n_keys; j++)
                                keys[j] = j % config.dim_k == 0 ? 40.0f : 0.01f * keys[j];
                        for (size_t j = 0; j < n_queries; j++)
                                queries[j] = j % config.dim_k == 0 ? 1.0f : 0.0f;
                }
        kv_data_store(&data);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        ck_ok(dci_kv_truncate(kv, sequence, PROMPT - LATE));
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT - LATE, 0});
        ck_assert_uint_gt(tree_of(sequence, 0, 0)->n,
                          (size_t)(seen.plans[0].recent_begin[0] - seen.plans[0].sink_end[0]));
        for (size_t layer = 0; layer < config.n_layers; layer++)
                for (size_t h = 0; h < config.n_kv_heads; h++)
                        ck_assert_uint_eq(kv_tree_check_list(&seen, 0, layer, h, "window"), 3);
        kv_seen_free(&seen);
        end();
}
END_TEST

/* A query's score of a page's mean key. */
static double mean_score(const dci_kv_tree *tree, size_t page, const float *query, size_t head)
{
        const size_t n = dci_kv_tree_page_fill(kv, tree, page);
        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
                sum += test_dot(query,
                                kv_tree_key(kv, &data, 0, head, (size_t)tree->members[page * config.page_tokens + i]),
                                config.dim_k);
        return sum / (double)n;
}

/* Leaves ranked by their means fill the room; the last page is cut. */
START_TEST(pages_of_leaves_may_be_ranked_by_their_means)
{
        prepare();
        config.n_query_heads = config.n_kv_heads;
        config.summary = DCI_KV_SUMMARY_MEAN;
        config.select = DCI_KV_SELECT_SCAN;
        config.combine = DCI_KV_COMBINE_MEAN;
        config.dtype = DCI_F32;
        begin(N, 16);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, 90);
        kv_tree_check(kv, sequence, "means");
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT + 90, 0});
        for (size_t h = 0; h < config.n_kv_heads; h++) {
                const dci_kv_tree *tree = tree_of(sequence, 0, h);
                const dci_kv_plan *plan = &seen.plans[0];
                const float *query = kv_query(&data, 0, PROMPT + 90, h);
                double least = (double)INFINITY, best_left = -(double)INFINITY;
                uint8_t chosen[N] = {0};
                size_t n_list, n_cut = 0;
                const int32_t *list = kv_list(&seen, 0, 0, h, &n_list);
                ck_assert_uint_eq(n_list, config.budget - (size_t)plan->sink_end[0] -
                                                  (size_t)(plan->n_tokens[0] - plan->recent_begin[0]));
                for (size_t i = 0; i < n_list; i++)
                        chosen[(size_t)list[i] - config.sink] = 1;
                for (size_t p = 0; p < tree->n_pages; p++) {
                        const size_t fill = dci_kv_tree_page_fill(kv, tree, p);
                        size_t n = 0;
                        for (size_t i = 0; i < fill; i++)
                                n += chosen[tree->members[p * config.page_tokens + i]];
                        if (fill == 0)
                                continue;
                        const double score = mean_score(tree, p, query, h);
                        n_cut += n > 0 && n < fill;
                        least = n > 0 ? fmin(least, score) : least;
                        best_left = n < fill ? fmax(best_left, score) : best_left;
                }
                ck_assert_uint_le(n_cut, 1);
                ck_assert_msg(best_left <= least + 1e-4 * (1.0 + fabs(least)), "%.6f, %.6f", best_left, least);
        }
        kv_seen_free(&seen);
        end();
}
END_TEST

/* Lists of several query heads: rank by rank, so that none is left with less than its share. */
START_TEST(each_query_head_gets_its_best_page)
{
        prepare();
        begin(N, 11);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT, 0});
        for (size_t q = 0; q < config.n_query_heads; q++) {
                const size_t head = q / (config.n_query_heads / config.n_kv_heads);
                const dci_kv_tree *tree = tree_of(sequence, 0, head);
                const float *query = kv_query(&data, 0, PROMPT, q);
                size_t n_list, best = 0;
                const int32_t *list = kv_list(&seen, 0, 0, head, &n_list);
                for (size_t p = 1; p < tree->n_pages; p++)
                        if (kv_tree_page_score(kv, tree, p, &data, query, 0, head) >
                            kv_tree_page_score(kv, tree, best, &data, query, 0, head))
                                best = p;
                const int32_t member = tree->members[best * config.page_tokens] + (int32_t)config.sink;
                bool there = false;
                for (size_t i = 0; i < n_list; i++)
                        there = there || list[i] == member;
                ck_assert_msg(there, "query head %zu: page %zu is its best, and not in the list", q, best);
        }
        kv_seen_free(&seen);
        end();
}
END_TEST

/* With more heads than pages the best pages of the heads that score most are taken, whichever heads they are. */
START_TEST(a_cut_round_goes_by_scores)
{
        prepare();
        config.n_query_heads = 5 * config.n_kv_heads;
        config.tree_field_of_view = N;
        config.budget = config.sink + (config.rollback > config.window ? config.rollback : config.window) +
                        3 * config.page_tokens - 1; /* room for two pages, or three */
        begin(N, 19);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT, 0});
        for (size_t h = 0; h < config.n_kv_heads; h++) {
                const dci_kv_tree *tree = tree_of(sequence, 0, h);
                const size_t n_pages = kv_tree_check_list(&seen, 0, 0, h, "cut"), group = 5;
                double best[5];
                size_t of[5], n_list, n = 0;
                const int32_t *list = kv_list(&seen, 0, 0, h, &n_list);
                bool taken[5] = {false};
                for (size_t q = 0; q < group; q++) {
                        const float *query = kv_query(&data, 0, PROMPT, h * group + q);
                        of[q] = 0;
                        for (size_t p = 1; p < tree->n_pages; p++)
                                if (kv_tree_page_score(kv, tree, p, &data, query, 0, h) >
                                    kv_tree_page_score(kv, tree, of[q], &data, query, 0, h))
                                        of[q] = p;
                        best[q] = kv_tree_page_score(kv, tree, of[q], &data, query, 0, h);
                }
                ck_assert_uint_lt(n_pages, group);
                for (size_t round = 0; round < group && n < n_pages; round++) {
                        size_t first = SIZE_MAX;
                        bool there = false;
                        for (size_t q = 0; q < group; q++)
                                if (!taken[q] && (first == SIZE_MAX || best[q] > best[first]))
                                        first = q;
                        taken[first] = true;
                        for (size_t q = 0; q < group; q++) /* another head's, too */
                                there = there || (q != first && taken[q] && of[q] == of[first]);
                        n += !there;
                        const int32_t member = tree->members[of[first] * config.page_tokens] + (int32_t)config.sink;
                        bool listed = false;
                        for (size_t i = 0; i < n_list; i++)
                                listed = listed || list[i] == member;
                        ck_assert_msg(listed, "kv head %zu: the page of head %zu, round %zu", h, first, round);
                }
        }
        kv_seen_free(&seen);
        end();
}
END_TEST

/* By their means, as the reference says; codes of eight bits find what keys find, nearly always. */
START_TEST(full_effort_by_means_and_by_codes)
{
        prepare();
        config.n_query_heads = config.n_kv_heads;
        config.tree_field_of_view = N;
        config.tree_keys = _i == 0 ? DCI_KV_TREE_MEANS : DCI_KV_TREE_CODES;
        config.key_bits = 8;
        begin(N, 12);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT, 0});
        for (size_t h = 0; h < config.n_kv_heads; h++) {
                const dci_kv_tree *tree = tree_of(sequence, 0, h);
                const float *query = kv_query(&data, 0, PROMPT, h);
                double least = (double)INFINITY, best_left = -(double)INFINITY;
                uint8_t chosen[N] = {0};
                size_t n_list;
                const int32_t *list = kv_list(&seen, 0, 0, h, &n_list);
                for (size_t i = 0; i < n_list; i++)
                        chosen[(size_t)list[i] - config.sink] = 1;
                for (size_t p = 0; p < tree->n_pages; p++) {
                        const double score = _i == 0 ? mean_score(tree, p, query, h)
                                                     : kv_tree_page_score(kv, tree, p, &data, query, 0, h);
                        if (chosen[tree->members[p * config.page_tokens]] != 0)
                                least = fmin(least, score);
                        else
                                best_left = fmax(best_left, score);
                }
                ck_assert_msg(best_left <= least + (_i == 0 ? 1e-3 : 5e-2) * (1.0 + fabs(least)),
                              "left out: %.6f, taken: %.6f", best_left, least);
        }
        kv_seen_free(&seen);
        end();
}
END_TEST

START_TEST(what_a_search_cannot_compare_is_refused)
{
        prepare();
        begin(N, 11);
        dci_kv *other = NULL;
        config.tree_keys = DCI_KV_TREE_KEYS + 1;
        ck_refused(dci_kv_create(context, &config, &other), DCI_ERR_INVALID, "tree_keys is 4");
        config.tree_keys = DCI_KV_TREE_MEANS;
        config.tree_tokens = 1;
        ck_refused(dci_kv_create(context, &config, &other), DCI_ERR_INVALID, "tree_tokens takes single tokens");
        config.tree_tokens = 0;
        config.tree_promotion_subseq = 0.2;
        ck_refused(dci_kv_create(context, &config, &other), DCI_ERR_INVALID, "a search through levels");
        config = kv_small(DCI_KV_SKETCH);
        config.tree_keys = DCI_KV_TREE_CODES;
        ck_refused(dci_kv_create(context, &config, &other), DCI_ERR_INVALID,
                   "tree_keys CODES cannot be combined with select SCAN");
        end();
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv tree search");
        TCase *search = test_case(suite, "search", 60);
        tcase_add_test(search, full_effort_finds_the_best_pages);
        tcase_add_test(search, a_search_may_end_in_tokens);
        tcase_add_loop_test(search, searches_that_end_in_tokens_fill_the_room, 0, 3);
        tcase_add_test(search, cells_in_the_window_take_no_place);
        tcase_add_test(search, pages_of_leaves_may_be_ranked_by_their_means);
        tcase_add_test(search, each_query_head_gets_its_best_page);
        tcase_add_test(search, a_cut_round_goes_by_scores);
        tcase_add_loop_test(search, full_effort_by_means_and_by_codes, 0, 2);
        tcase_add_test(search, what_a_search_cannot_compare_is_refused);
        return test_main(suite);
}
