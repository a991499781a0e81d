/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Trees over a head's candidates: every one in one page, the nearest node's; searched in full, the best pages; changed, in few pages. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/kv_tree_check.h"
#include "tests/scratch.h"

enum { PROMPT = 600, N = 1000 };

static dci_context *context;
static dci_kv_config config;
static kv_data data;
static dci_kv *kv;

static void begin(void)
{
        context = test_context(2);
        config = kv_small(DCI_KV_ICECACHE);
        config.sink = 32;
        config.tree_promotion = 0.05;
        data = kv_random(&config, N, 11);
        kv = kv_create(context, &config);
}

static void end(void)
{
        dci_kv_destroy(kv);
        kv_data_free(&data);
        dci_context_destroy(context);
}

static const dci_kv_layer *layer_of(int64_t sequence, size_t layer)
{
        return kv_layer_of(kv, sequence, layer);
}

static dci_kv_tree *tree_of(int64_t sequence, size_t layer, size_t head)
{
        return kv_tree_of(kv, sequence, layer, head);
}

/* The key of a candidate. */
static const float *key_of(const kv_data *of, size_t layer, size_t candidate, size_t head)
{
        return kv_key(of, layer, config.sink + candidate, head);
}

static double lift(const dci_kv_tree *tree, const float *key)
{
        return sqrt(fmax(0.0, (double)tree->c_squared - test_dot(key, key, config.dim_k)));
}

/* Rows whose node is not the nearest, of all. */
static double strays(const dci_kv_tree *tree, const kv_data *of, size_t layer, size_t head)
{
        size_t n = 0;
        for (size_t p = 0; p < tree->n_pages; p++)
                for (size_t i = 0; i < dci_kv_tree_page_fill(kv, tree, p); i++) {
                        const float *x = key_of(of, layer, (size_t)tree->members[p * config.page_tokens + i], head);
                        double own = 0.0, best = -(double)INFINITY;
                        for (size_t c = 0; c < tree->n_nodes; c++) {
                                const float *node = key_of(of, layer, (size_t)tree->node_tokens[c], head);
                                const double score = test_dot(x, node, config.dim_k) + lift(tree, x) * lift(tree, node);
                                best = fmax(best, score);
                                own = (int32_t)c == tree->page_node[p] ? score : own;
                        }
                        n += own < best - 1e-4 * (double)tree->c_squared;
                }
        return (double)n / (double)tree->n;
}

static void check_all(int64_t sequence, const kv_data *of, double max_strays)
{
        kv_tree_check(kv, sequence, "trees");
        for (size_t l = 0; l < config.n_layers; l++)
                for (size_t h = 0; h < config.n_kv_heads; h++) {
                        const double share = strays(tree_of(sequence, l, h), of, l, h);
                        ck_assert_msg(share <= max_strays, "layer %zu, head %zu: %.4f of the rows lie elsewhere", l, h,
                                      share);
                }
}

START_TEST(every_candidate_lies_in_one_page_of_the_nearest_node)
{
        begin();
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        check_all(sequence, &data, 0.0);
        const kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT, 0});
        kv_lawful(&seen, &config, 0, "prompt");
        kv_seen_free((kv_seen *)(uintptr_t)&seen);
        end();
}
END_TEST

/* A new node draws rows from cells around it alone: few are left behind. */
START_TEST(inserted_rows_lie_where_building_would_have_them)
{
        begin();
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, N - PROMPT);
        ck_assert_uint_gt(tree_of(sequence, 1, 1)->n, PROMPT);
        check_all(sequence, &data, 0.02);
        end();
}
END_TEST

/* A query's score of a page: its best token. */
static double page_score(const dci_kv_tree *tree, size_t page, const float *query, size_t layer, size_t head)
{
        double best = -(double)INFINITY;
        for (size_t i = 0; i < dci_kv_tree_page_fill(kv, tree, page); i++)
                best = fmax(best,
                            test_dot(query,
                                     key_of(&data, layer, (size_t)tree->members[page * config.page_tokens + i], head),
                                     config.dim_k));
        return best;
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
                const double score = page_score(tree, p, query, layer, head);
                if (chosen[tree->members[p * config.page_tokens]] != 0)
                        least = fmin(least, score);
                else
                        best_left = fmax(best_left, score);
        }
        ck_assert_msg(best_left <= least + 1e-4 * (1.0 + fabs(least)), "left out: %.6f, taken: %.6f", best_left, least);
}

START_TEST(full_effort_finds_the_best_pages)
{
        begin();
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_query_heads = config.n_kv_heads;
        config.tree_field_of_view = N;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 12);
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
        begin();
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_query_heads = config.n_kv_heads;
        config.tree_field_of_view = N;
        config.tree_tokens = 1;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 13);
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
        begin();
        dci_kv_destroy(kv);
        config.tree_tokens = 1;
        config.tree_promotion = promotions[_i];
        config.budget = 256;
        config.n_query_heads = config.n_kv_heads;
        kv_data_free(&data);
        data = kv_random(&config, 2 * N, 17);
        for (size_t row = 0; row < data.n * config.n_layers * config.n_kv_heads; row++) /* of many lengths */
                for (size_t j = 0; j < config.dim_k; j++)
                        data.keys[row * config.dim_k + j] *= 0.25f + (float)(row * 37 % 64) / 16.0f;
        kv_data_store(&data);
        kv = kv_create(context, &config);
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
        begin();
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.window = config.rollback = LATE;
        config.budget = config.sink + LATE + 3 * config.page_tokens;
        config.tree_field_of_view = 1;
        config.tree_promotion = 0.25;
        data = kv_random(&config, N, 18);
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
        kv = kv_create(context, &config);
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
                sum += test_dot(query, key_of(&data, 0, (size_t)tree->members[page * config.page_tokens + i], head),
                                config.dim_k);
        return sum / (double)n;
}

/* Leaves ranked by their means fill the room; the last page is cut. */
START_TEST(pages_of_leaves_may_be_ranked_by_their_means)
{
        begin();
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_query_heads = config.n_kv_heads;
        config.summary = DCI_KV_SUMMARY_MEAN;
        config.select = DCI_KV_SELECT_SCAN;
        config.combine = DCI_KV_COMBINE_MEAN;
        config.dtype = DCI_F32;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 16);
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
        begin();
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT, 0});
        for (size_t q = 0; q < config.n_query_heads; q++) {
                const size_t head = q / (config.n_query_heads / config.n_kv_heads);
                const dci_kv_tree *tree = tree_of(sequence, 0, head);
                const float *query = kv_query(&data, 0, PROMPT, q);
                size_t n_list, best = 0;
                const int32_t *list = kv_list(&seen, 0, 0, head, &n_list);
                for (size_t p = 1; p < tree->n_pages; p++)
                        if (page_score(tree, p, query, 0, head) > page_score(tree, best, query, 0, head))
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
        begin();
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_query_heads = 5 * config.n_kv_heads;
        config.tree_field_of_view = N;
        config.budget = config.sink + (config.rollback > config.window ? config.rollback : config.window) +
                        3 * config.page_tokens - 1; /* room for two pages, or three */
        data = kv_random(&config, N, 19);
        kv = kv_create(context, &config);
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
                                if (page_score(tree, p, query, 0, h) > page_score(tree, of[q], query, 0, h))
                                        of[q] = p;
                        best[q] = page_score(tree, of[q], query, 0, h);
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

/* Keys, codes of every width and means: through inserts, cuts, forks and files a tree has what its rows give, and lists are whole pages. */
START_TEST(every_kind_of_keys_follows_its_tree)
{
        static const struct {
                int32_t keys, bits, tokens;
        } kinds[] = {{DCI_KV_TREE_CODES, 4, 0}, {DCI_KV_TREE_CODES, 1, 0}, {DCI_KV_TREE_CODES, 2, 1},
                     {DCI_KV_TREE_CODES, 3, 0}, {DCI_KV_TREE_CODES, 8, 0}, {DCI_KV_TREE_MEANS, 4, 0}};
        begin();
        scratch_open();
        dci_kv_destroy(kv);
        config.tree_keys = kinds[_i].keys;
        config.key_bits = kinds[_i].bits;
        config.tree_tokens = kinds[_i].tokens;
        kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_tree_check(kv, sequence, "prompt");
        kv_decode_all(kv, sequence, &data, PROMPT, 200);
        kv_tree_check(kv, sequence, "inserts");
        int64_t fork, loaded;
        ck_ok(dci_kv_fork(kv, sequence, PROMPT + 50, &fork));
        kv_tree_check(kv, fork, "fork");
        ck_ok(dci_kv_truncate(kv, sequence, PROMPT + 150));
        kv_decode_all(kv, sequence, &data, PROMPT + 150, 60);
        kv_decode_all(kv, fork, &data, PROMPT + 50, 60);
        kv_tree_check(kv, fork, "both");
        ck_ok(dci_kv_truncate(kv, sequence, 100));
        kv_decode_all(kv, sequence, &data, 100, 100);
        kv_tree_check(kv, sequence, "cut");
        ck_ok(dci_kv_save(kv, fork, PROMPT + 110, scratch_path("tree")));
        ck_ok(dci_kv_load(kv, scratch_path("tree"), &loaded));
        kv_tree_check(kv, loaded, "file");
        const kv_turn turns[] = {{fork, &data, PROMPT + 110, 0}, {loaded, &data, PROMPT + 110, 0}};
        kv_seen seen = kv_look(kv, 2, turns);
        for (size_t l = 0; l < config.n_layers; l++)
                for (size_t h = 0; h < config.n_kv_heads; h++) {
                        size_t n[2];
                        const int32_t *a = kv_list(&seen, l, 0, h, &n[0]), *b = kv_list(&seen, l, 1, h, &n[1]);
                        ck_assert_uint_gt(n[0], 0);
                        ck_assert_uint_eq(n[0], n[1]);
                        ck_assert_mem_eq(a, b, n[0] * sizeof *a);
                        if (kinds[_i].tokens == 0)
                                ck_assert_uint_gt(kv_tree_check_list(&seen, 0, l, h, "list"), 0);
                }
        kv_seen_free(&seen);
        scratch_close();
        end();
}
END_TEST

/* By their means, as the reference says; codes of eight bits find what keys find, nearly always. */
START_TEST(full_effort_by_means_and_by_codes)
{
        begin();
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_query_heads = config.n_kv_heads;
        config.tree_field_of_view = N;
        config.tree_keys = _i == 0 ? DCI_KV_TREE_MEANS : DCI_KV_TREE_CODES;
        config.key_bits = 8;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 12);
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
                        const double score = _i == 0 ? mean_score(tree, p, query, h) : page_score(tree, p, query, 0, h);
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
        begin();
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

/* A page that leaves the window changes few pages; the others keep their number and what they hold. */
START_TEST(unchanged_pages_keep_what_they_hold)
{
        begin();
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        ck_assert_uint_eq(kv_sequence_info(kv, sequence).tree_stale_pages, 0);
        size_t stale = 0, pages = 0;
        for (size_t t = PROMPT, inserts = 0; inserts < 20; t++) {
                const dci_kv_tree *tree = tree_of(sequence, 0, 0);
                const size_t n = tree->n, n_pages = tree->n_pages, per_page = config.page_tokens;
                int32_t *members = malloc(n_pages * per_page * sizeof *members);
                size_t *fills = malloc(n_pages * sizeof *fills);
                ck_assert(members != NULL && fills != NULL);
                memcpy(members, tree->members, n_pages * per_page * sizeof *members);
                for (size_t p = 0; p < n_pages; p++)
                        fills[p] = dci_kv_tree_page_fill(kv, tree, p);
                kv_decode_all(kv, sequence, &data, t, 1);
                tree = tree_of(sequence, 0, 0);
                if (tree->n > n) {
                        const dci_kv_sequence_info info = kv_sequence_info(kv, sequence);
                        ck_assert_uint_ge(info.tree_stale_pages, config.n_layers * config.n_kv_heads);
                        stale += info.tree_stale_pages;
                        pages += info.tree_pages;
                        inserts++;
                }
                for (size_t p = 0; p < n_pages; p++) {
                        if (tree->n > n && tree->page_versions[p] == tree->version)
                                continue;
                        ck_assert_uint_eq(dci_kv_tree_page_fill(kv, tree, p), fills[p]);
                        ck_assert(memcmp(members + p * per_page, tree->members + p * per_page,
                                         fills[p] * sizeof *members) == 0);
                }
                test_free(fills, members);
        }
        ck_assert_uint_lt(3 * stale, pages); /* a new node draws rows from many cells, where there are few */
        end();
}
END_TEST

START_TEST(a_fork_shares_the_tree_until_it_grows)
{
        begin();
        kv_data other = kv_random(&config, N, 14);
        int64_t fork;
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        dci_kv_tree *tree = tree_of(sequence, 0, 1);
        const uint32_t version = tree->version;
        const size_t bytes = kv_info(kv).summary_bytes;
        ck_ok(dci_kv_fork(kv, sequence, PROMPT, &fork));
        ck_assert_ptr_eq(tree_of(fork, 0, 1), tree);
        ck_assert_uint_eq(kv_info(kv).summary_bytes, bytes);
        kv_decode_all(kv, fork, &other, PROMPT, 60);
        ck_assert_ptr_ne(tree_of(fork, 0, 1), tree);
        ck_assert(tree_of(sequence, 0, 1) == tree && tree->version == version);
        kv_tree_check(kv, sequence, "trees");
        kv_tree_check(kv, fork, "trees");
        ck_ok(dci_kv_close(kv, sequence));
        kv_tree_check(kv, fork, "trees");
        kv_data_free(&other);
        end();
}
END_TEST

START_TEST(a_tree_may_be_cut_anywhere)
{
        static const size_t places[] = {580, 500, 333, 120, 60, 41, 40, 33, 0};
        begin();
        for (size_t i = 0; i < COUNT(places); i++) {
                const int64_t sequence = kv_begin(kv, &data, PROMPT);
                ck_ok(dci_kv_truncate(kv, sequence, places[i]));
                if (layer_of(sequence, 0)->n_grouped > 0)
                        check_all(sequence, &data, 0.0);
                kv_decode_all(kv, sequence, &data, places[i], 100);
                if (layer_of(sequence, 0)->n_grouped > 0)
                        check_all(sequence, &data, 0.03);
                ck_ok(dci_kv_close(kv, sequence));
        }
        end();
}
END_TEST

/* With the schedule of anchor layers, layers between have the anchor's pages of positions and no tree, whatever becomes of a sequence. */
START_TEST(layers_between_anchors_keep_no_tree)
{
        begin();
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_layers = 3;
        config.schedule = DCI_KV_ANCHOR;
        config.anchor_first = 0;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 17);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        int64_t fork;
        kv_decode_all(kv, sequence, &data, PROMPT, 90);
        ck_ok(dci_kv_fork(kv, sequence, 500, &fork));
        kv_decode_all(kv, fork, &data, 500, 60);
        ck_ok(dci_kv_truncate(kv, fork, 420));
        const kv_turn turns[] = {{sequence, &data, PROMPT + 90, 0}, {fork, &data, 420, 0}};
        for (size_t i = 0; i < COUNT(turns); i++) {
                kv_seen seen = kv_look(kv, 1, &turns[i]);
                kv_tree_check(kv, turns[i].sequence, "anchors");
                for (size_t h = 0; h < config.n_kv_heads; h++) {
                        size_t n, m;
                        const int32_t *own = kv_list(&seen, 0, 0, h, &n);
                        ck_assert_uint_gt(kv_tree_check_list(&seen, 0, 0, h, "anchors"), 0);
                        for (size_t l = 1; l < 3; l++) {
                                const int32_t *taken = kv_list(&seen, l, 0, h, &m);
                                ck_assert_uint_eq(n, m);
                                ck_assert_mem_eq(own, taken, n * sizeof *own);
                                ck_assert(tree_of(turns[i].sequence, l, h) == NULL);
                        }
                }
                kv_seen_free(&seen);
        }
        end();
}
END_TEST

/* A key longer than the lift has room for: the tree is as if it had been built with the larger c. */
START_TEST(a_longer_key_raises_the_tree)
{
        begin();
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.dtype = DCI_F32;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 15);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        const float before = tree_of(sequence, 0, 0)->c_squared;
        float *row = (float *)data.stored_keys + PROMPT * config.n_kv_heads * config.dim_k;
        for (size_t j = 0; j < config.dim_k; j++)
                row[j] *= 30.0f;
        memcpy(data.keys, data.stored_keys, config.n_layers * N * config.n_kv_heads * config.dim_k * sizeof *row);
        kv_decode_all(kv, sequence, &data, PROMPT, 60);
        const dci_kv_tree *tree = tree_of(sequence, 0, 0);
        ck_assert(tree->c_squared > 4.0f * before);
        kv_tree_check(kv, sequence, "trees");
        ck_assert(strays(tree, &data, 0, 0) <= 0.02);
        end();
}
END_TEST

/* Numbers of a tree in a file that are wrong: none is believed. */
START_TEST(a_damaged_tree_is_refused)
{
        begin();
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        const dci_kv_layer *layer = layer_of(sequence, 0);
        const dci_kv_tree *tree = tree_of(sequence, 0, 0);
        const size_t n = dci_kv_tree_numbers(kv, tree);
        int32_t *numbers = malloc(n * sizeof *numbers);
        ck_assert(numbers != NULL && n > 0);
        for (size_t i = 0; i < n; i++)
                numbers[i] = dci_kv_tree_number(kv, tree, i);
        static const int32_t wrong[] = {-2, INT32_MAX, INT32_MIN, 0x7fc00000};
        for (size_t i = 0; i < n; i++)
                for (size_t w = 0; w < COUNT(wrong) + 2; w++) {
                        const bool other = i == 1; /* of another tree_promotion */
                        const int32_t kept = numbers[i];
                        dci_kv_tree *read = NULL;
                        numbers[i] = w < COUNT(wrong) ? wrong[w] : w == COUNT(wrong) ? kept + 1 : kept - 1;
                        ck_ok(dci_kv_tree_alloc(kv, tree->n, &read));
                        ck_refused(dci_kv_tree_read(kv, layer, 0, numbers, n, tree->n, read),
                                   other ? DCI_ERR_INVALID : DCI_ERR_FORMAT, "tree");
                        dci_kv_tree_release(kv, read);
                        numbers[i] = kept;
                }
        for (size_t short_by = 1; short_by < 12; short_by++) {
                dci_kv_tree *read = NULL;
                ck_ok(dci_kv_tree_alloc(kv, tree->n, &read));
                ck_refused(dci_kv_tree_read(kv, layer, 0, numbers, n - short_by, tree->n, read), DCI_ERR_FORMAT,
                           "pages");
                dci_kv_tree_release(kv, read);
        }
        free(numbers);
        end();
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv trees");
        TCase *trees = test_case(suite, "trees", 60);
        tcase_add_test(trees, every_candidate_lies_in_one_page_of_the_nearest_node);
        tcase_add_test(trees, inserted_rows_lie_where_building_would_have_them);
        tcase_add_test(trees, full_effort_finds_the_best_pages);
        tcase_add_test(trees, a_search_may_end_in_tokens);
        tcase_add_loop_test(trees, searches_that_end_in_tokens_fill_the_room, 0, 3);
        tcase_add_test(trees, cells_in_the_window_take_no_place);
        tcase_add_test(trees, pages_of_leaves_may_be_ranked_by_their_means);
        tcase_add_test(trees, each_query_head_gets_its_best_page);
        tcase_add_test(trees, a_cut_round_goes_by_scores);
        tcase_add_loop_test(trees, every_kind_of_keys_follows_its_tree, 0, 6);
        tcase_add_loop_test(trees, full_effort_by_means_and_by_codes, 0, 2);
        tcase_add_test(trees, what_a_search_cannot_compare_is_refused);
        tcase_add_test(trees, unchanged_pages_keep_what_they_hold);
        tcase_add_test(trees, a_fork_shares_the_tree_until_it_grows);
        tcase_add_test(trees, a_tree_may_be_cut_anywhere);
        tcase_add_test(trees, layers_between_anchors_keep_no_tree);
        tcase_add_test(trees, a_longer_key_raises_the_tree);
        tcase_add_test(trees, a_damaged_tree_is_refused);
        return test_main(suite);
}
