/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Levels of trees, and P-DCI within nodes: levels are what comparing with all gives, whatever came and went; with all effort a
 * search is exact; what P-DCI leaves out is what its projections say.
 */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "index/pdci/directions.h"
#include "simd/nearest.h"
#include "tests/kv_tree_check.h"
#include "tests/scratch.h"

enum { PROMPT = 900, N = 1300 };

/* What loops go over. */
static const struct {
        double promotion, subseq;
        size_t simple_indices;
        double retrieve;
        int32_t tokens;
} ways[] = {{0.25, 0.5, 0, 0, 0},   {0.25, 0.2, 0, 0, 0}, {0.25, 0.5, 1, 0, 0},
            {0.25, 0.5, 3, 0.3, 0}, {0.1, -1, 2, 0, 0},   {0.25, 0.5, 1, 0, 1}};

static dci_context *context;
static dci_kv_config config;
static kv_data data;
static dci_kv *kv;

static void set_way(int way)
{
        config = kv_small(DCI_KV_ICECACHE);
        config.sink = 32;
        config.tree_promotion = ways[way].promotion;
        config.tree_promotion_subseq = ways[way].subseq;
        config.tree_simple_indices = ways[way].simple_indices;
        config.tree_retrieve = ways[way].retrieve;
        config.tree_tokens = ways[way].tokens;
}

static void begin(int way)
{
        context = test_context(2);
        set_way(way);
        data = kv_random(&config, N, 21);
        kv = kv_create(context, &config);
}

static void end(void)
{
        kv_end(kv, &data);
        dci_context_destroy(context);
}

static const float *key_of(const kv_data *of, size_t layer, size_t head, size_t candidate)
{
        return kv_tree_key(kv, of, layer, head, candidate);
}

/* Fails unless nodes of each level are those of the level below that were promoted once more, and parents the nearest. */
static void check_levels(const dci_kv_tree *tree, const kv_data *of, size_t layer, size_t head)
{
        for (size_t l = 0; l + 1 < tree->n_levels; l++) {
                const dci_kv_tree_level *level = &tree->levels[l], *above = &tree->levels[l + 1];
                const size_t n = dci_kv_tree_level_size(tree, l);
                size_t drawn = 0;
                ck_assert_uint_gt(n, 32);
                for (size_t i = 0; i < n; i++) {
                        const size_t node = dci_kv_tree_node_at(tree, l, i);
                        const float *key = key_of(of, layer, head, (size_t)tree->node_tokens[node]);
                        double own = 0.0, best = -(double)INFINITY;
                        if (dci_kv_tree_promotions(kv, (size_t)tree->node_tokens[node]) > l + 1)
                                ck_assert_int_eq(above->nodes[drawn++], (int32_t)node);
                        for (size_t p = 0; p < above->n; p++) {
                                const size_t parent = (size_t)above->nodes[p];
                                const double score = kv_tree_nearness(
                                        tree, key, key_of(of, layer, head, (size_t)tree->node_tokens[parent]),
                                        config.dim_k);
                                best = fmax(best, score);
                                own = (int32_t)p == level->parents[i] ? score : own;
                        }
                        ck_assert_double_ge(own, best - 1e-5 * (double)tree->c_squared);
                }
                ck_assert_uint_eq(drawn, above->n);
        }
}

static void check_all(int64_t sequence, const kv_data *of, double max_strays)
{
        kv_tree_check(kv, sequence, "levels");
        for (size_t l = 0; l < config.n_layers; l++)
                for (size_t h = 0; h < config.n_kv_heads; h++) {
                        const dci_kv_tree *tree = kv_tree_of(kv, sequence, l, h);
                        check_levels(tree, of, l, h);
                        const double share = kv_tree_strays(kv, tree, of, l, h);
                        ck_assert_msg(share <= max_strays, "layer %zu, head %zu: %.4f of the rows lie elsewhere", l, h,
                                      share);
                }
}

/* Loops over ways. Prompts, inserts, forks and truncations, down to one level and up again. */
START_TEST(levels_are_what_comparing_with_all_gives)
{
        static const size_t places[] = {1000, 880, 700, 300, 60};
        begin(_i);
        kv_data other = kv_random(&config, N, 22);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        ck_assert((kv_tree_of(kv, sequence, 0, 0)->n_levels > 1) == (config.tree_promotion_subseq > 0.0));
        check_all(sequence, &data, 0.05);
        kv_decode_all(kv, sequence, &data, PROMPT, 150);
        check_all(sequence, &data, 0.15);
        for (size_t i = 0; i < COUNT(places); i++) {
                int64_t fork;
                ck_ok(dci_kv_fork(kv, sequence, places[i], &fork));
                kv_tree_check(kv, fork, "a fork");
                ck_ok(dci_kv_truncate(kv, fork, places[i] - 40));
                if (kv_layer_of(kv, fork, 0)->n_grouped > 0)
                        check_all(fork, &data, 0.15);
                const kv_turn turn = {fork, &other, places[i] - 40, 1};
                kv_decode_all(kv, fork, &other, places[i] - 40, 60);
                kv_tree_check(kv, fork, "a fork that went on");
                kv_seen seen = kv_look(kv, 1, &turn);
                kv_lawful(&seen, &config, 0, "a fork");
                kv_seen_free(&seen);
                ck_ok(dci_kv_close(kv, fork));
        }
        check_all(sequence, &data, 0.15);
        kv_data_free(&other);
        end();
}
END_TEST

/* A prompt that is formed from the top level down, through nodes that are not all compared with. */
START_TEST(most_rows_of_a_long_prompt_are_with_the_nearest_node)
{
        enum { LONG = 6000 };
        begin(0);
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_layers = 1;
        data = kv_random(&config, LONG, 23);
        kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, LONG - 50);
        ck_assert_uint_ge(kv_tree_of(kv, sequence, 0, 0)->n_levels, 4);
        kv_tree_check(kv, sequence, "a long prompt");
        for (size_t h = 0; h < config.n_kv_heads; h++) {
                const dci_kv_tree *tree = kv_tree_of(kv, sequence, 0, h);
                ck_assert_double_le(kv_tree_strays(kv, tree, &data, 0, h), 0.2);
                for (size_t p = 0; p < tree->n_pages; p++) /* and nodes in their own cells */
                        for (size_t i = 0; i < dci_kv_tree_page_fill(kv, tree, p); i++) {
                                const int32_t member = tree->members[p * config.page_tokens + i];
                                if (dci_kv_tree_promoted(kv, (size_t)member))
                                        ck_assert_int_eq(tree->node_tokens[tree->page_node[p]], member);
                        }
        }
        end();
}
END_TEST

/* What dci_kv_tree_place needs, each in memory of its own. */
typedef struct tiles {
        dci_kv_tree_tiles tiles;
        void *scratch;
} tiles;

static tiles tiles_of(size_t dim)
{
        const size_t wide = dim + 1;
        const tiles t = {{calloc(wide, sizeof(float)), calloc(DCI_KV_TREE_BLOCK * wide, sizeof(float)),
                          calloc(DCI_KV_TREE_TASK * wide, sizeof(float)), calloc(DCI_KV_TREE_TASK, sizeof(int32_t)),
                          aligned_alloc(64, dci_nearest_bytes(context, DCI_KV_TREE_BLOCK, wide)),
                          aligned_alloc(64, dci_lines(dci_nearest_scratch_bytes(context, wide)))},
                         aligned_alloc(64, dci_lines(dci_kv_tree_place_bytes(kv)))};
        ck_assert(t.tiles.mean != NULL && t.tiles.centres != NULL && t.tiles.points != NULL && t.tiles.found != NULL);
        ck_assert(t.tiles.nearest != NULL && t.tiles.find != NULL && t.scratch != NULL);
        return t;
}

static void tiles_free(tiles *t)
{
        free(t->tiles.mean);
        free(t->tiles.centres);
        free(t->tiles.points);
        free(t->tiles.found);
        free(t->tiles.nearest);
        free(t->tiles.find);
        free(t->scratch);
}

/* The level that a prompt's way down begins at may have more nodes than are made ready at a time: all of them count. */
START_TEST(a_top_level_may_have_any_number_of_nodes)
{
        enum { LONG = 10500 };
        begin(0);
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_layers = config.n_kv_heads = config.n_query_heads = 1;
        data = kv_random(&config, LONG, 29);
        kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, LONG);
        dci_kv_tree *tree = kv_tree_of(kv, sequence, 0, 0);
        const size_t n = tree->n;
        tiles t = tiles_of(config.dim_k);
        ck_assert_uint_gt(tree->n_nodes, DCI_KV_TREE_BLOCK);
        tree->n_levels = 1; /* its nodes are the top level */
        dci_kv_tree_place(kv, kv_layer_of(kv, sequence, 0), 0, tree, n, &t.tiles, t.scratch);
        for (size_t i = 0; i < n; i += 5) {
                const float *x = key_of(&data, 0, 0, i);
                double best = -(double)INFINITY;
                for (size_t c = 0; c < tree->n_nodes; c++)
                        best = fmax(best, kv_tree_nearness(tree, x, key_of(&data, 0, 0, (size_t)tree->node_tokens[c]),
                                                           config.dim_k));
                const size_t token = (size_t)tree->node_tokens[tree->placed[i]];
                ck_assert_double_ge(kv_tree_nearness(tree, x, key_of(&data, 0, 0, token), config.dim_k),
                                    best - 1e-4 * (double)tree->c_squared);
        }
        tiles_free(&t);
        end();
}
END_TEST

/* Without the field, levels begin where they pay, and searches know nothing of them: as with one level, but for strays. */
START_TEST(levels_that_were_not_asked_for_are_for_forming_alone)
{
        enum { LONG = 15000 };
        begin(0);
        dci_kv_destroy(kv);
        kv_data_free(&data);
        config.n_layers = 1;
        config.tree_promotion_subseq = 0.0;
        config.tree_field_of_view = LONG;
        data = kv_random(&config, LONG, 24);
        kv = kv_create(context, &config);
        config.tree_promotion_subseq = -1.0;
        dci_kv *flat = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, LONG - 50), other = kv_begin(flat, &data, LONG - 50);
        const dci_kv_tree *tree = kv_tree_of(kv, sequence, 0, 0);
        ck_assert(tree->n_levels > 1 && tree->levels[1].means == NULL);
        ck_assert_uint_eq(kv_tree_of(flat, other, 0, 0)->n_levels, 1);
        ck_assert_uint_lt(kv_info(kv).summary_bytes, kv_info(flat).summary_bytes * 3 / 2);
        ck_assert_double_le(kv_tree_strays(kv, tree, &data, 0, 0), 0.25);
        ck_ok(dci_kv_truncate(kv, sequence, 11000)); /* some 2,750 nodes */
        ck_assert_uint_eq(kv_tree_of(kv, sequence, 0, 0)->n_levels, 1);
        kv_tree_check(kv, sequence, "one level again");
        dci_kv_destroy(flat);
        end();
}
END_TEST

/* Marks of the candidates on a list. */
static uint8_t *marks_of(const kv_seen *seen, size_t layer, size_t head)
{
        size_t n;
        const int32_t *list = kv_list(seen, layer, 0, head, &n);
        uint8_t *marks = calloc(N, 1);
        ck_assert_ptr_nonnull(marks);
        for (size_t i = 0; i < n; i++)
                marks[(size_t)list[i] - config.sink] = 1;
        return marks;
}

/* Loops over ways. */
START_TEST(full_effort_finds_the_best_pages_through_levels)
{
        begin(_i);
        kv_end(kv, &data);
        config.n_query_heads = config.n_kv_heads;
        config.tree_field_of_view = N;
        config.tree_retrieve = 1.0;
        config.tree_tokens = 0;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 25);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, 60);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT + 60, 0});
        for (size_t h = 0; h < config.n_kv_heads; h++) {
                const dci_kv_tree *tree = kv_tree_of(kv, sequence, 0, h);
                const float *query = kv_query(&data, 0, PROMPT + 60, h);
                double least = (double)INFINITY, best_left = -(double)INFINITY;
                uint8_t *chosen = marks_of(&seen, 0, h);
                ck_assert_uint_gt(kv_tree_check_list(&seen, 0, 0, h, "full effort"), 0);
                for (size_t p = 0; p < tree->n_pages; p++) {
                        if (tree->page_node[p] < 0)
                                continue;
                        const double score = kv_tree_page_score(kv, tree, p, &data, query, 0, h);
                        if (chosen[tree->members[p * config.page_tokens]] != 0)
                                least = fmin(least, score);
                        else
                                best_left = fmax(best_left, score);
                }
                ck_assert_msg(best_left <= least + 1e-4 * (1.0 + fabs(least)), "%.6f, %.6f", best_left, least);
                free(chosen);
        }
        kv_seen_free(&seen);
        end();
}
END_TEST

/* Loops over ways. P-DCI that retrieves all is as if it were not there. */
START_TEST(retrieving_all_is_comparing_with_all)
{
        begin(_i);
        kv_end(kv, &data);
        config.tree_simple_indices = 0;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 26);
        config.tree_simple_indices = 2;
        config.tree_retrieve = 1.0;
        dci_kv *all = kv_create(context, &config);
        kv_alike(kv, kv_begin(kv, &data, PROMPT), all, kv_begin(all, &data, PROMPT), &data, PROMPT, 60, "all");
        dci_kv_destroy(all);
        end();
}
END_TEST

/* One query's projected difference to a candidate, the largest of all simple indices. */
static double difference(const dci_kv_tree *tree, const float *query, const float *key)
{
        const dci_index_config index = {.dim = config.dim_k, .seed = config.seed};
        const double scale = sqrt((double)tree->c_squared / test_dot(query, query, config.dim_k));
        double most = 0.0;
        for (size_t j = 0; j < config.tree_simple_indices; j++) {
                float direction[DCI_KV_MAX_DIM], weight;
                dci_direction_draw(&index, j, direction, &weight);
                const double of_query = scale * test_dot(query, direction, config.dim_k);
                const double of_key =
                        test_dot(key, direction, config.dim_k) + kv_tree_lift(tree, key, config.dim_k) * (double)weight;
                most = fmax(most, fabs(of_query - of_key));
        }
        return most;
}

static int ascending(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* Of the rows of all cells, the share that is nearest in projection alone can bring a page on the list. */
START_TEST(lists_hold_what_the_projections_retrieve)
{
        begin(4);
        kv_end(kv, &data);
        config.n_query_heads = config.n_kv_heads;
        config.tree_field_of_view = N;
        config.tree_retrieve = 0.1;
        kv = kv_create(context, &config);
        data = kv_random(&config, N, 27);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT, 0});
        for (size_t h = 0; h < config.n_kv_heads; h++) {
                const dci_kv_tree *tree = kv_tree_of(kv, sequence, 0, h);
                const float *query = kv_query(&data, 0, PROMPT, h);
                uint8_t *chosen = marks_of(&seen, 0, h);
                double differences[N], sorted[N];
                size_t n_left_out = 0;
                for (size_t i = 0; i < tree->n; i++)
                        sorted[i] = differences[i] = difference(tree, query, key_of(&data, 0, h, i));
                qsort(sorted, tree->n, sizeof *sorted, ascending);
                const double limit = sorted[(size_t)ceil(0.1 * (double)tree->n) - 1] * (1.0 + 1e-5);
                for (size_t p = 0; p < tree->n_pages; p++) {
                        bool near = false;
                        for (size_t i = 0; i < dci_kv_tree_page_fill(kv, tree, p); i++)
                                near = near || differences[tree->members[p * config.page_tokens + i]] <= limit;
                        ck_assert(near || chosen[tree->members[p * config.page_tokens]] == 0);
                        n_left_out += !near;
                }
                ck_assert_uint_gt(n_left_out, 0);
                free(chosen);
        }
        kv_seen_free(&seen);
        end();
}
END_TEST

/* Loops over ways. What is loaded goes on as what was saved; levels follow from the nodes, so that other ways load it, too. */
START_TEST(files_have_no_levels_and_none_are_lost)
{
        begin(_i);
        dci_kv *loader = kv_create(context, &config);
        const int64_t saved = kv_begin(kv, &data, PROMPT);
        int64_t loaded;
        kv_decode_all(kv, saved, &data, PROMPT, 40);
        ck_ok(dci_kv_save(kv, saved, PROMPT + 40, scratch_path("levels")));
        ck_ok(dci_kv_load(loader, scratch_path("levels"), &loaded));
        kv_tree_check(loader, loaded, "loaded");
        kv_alike(kv, saved, loader, loaded, &data, PROMPT + 40, 40, "loaded");
        dci_kv_destroy(loader);
        config.tree_promotion_subseq = config.tree_promotion_subseq == 0.5 ? -1.0 : 0.5;
        config.tree_simple_indices = config.tree_simple_indices == 0 ? 4 : 0;
        loader = kv_create(context, &config);
        ck_ok(dci_kv_load(loader, scratch_path("levels"), &loaded));
        kv_tree_check(loader, loaded, "loaded otherwise");
        kv_decode_all(loader, loaded, &data, PROMPT + 40, 40);
        kv_tree_check(loader, loaded, "gone on otherwise");
        dci_kv_destroy(loader);
        end();
}
END_TEST

/* Loops over ways. */
START_TEST(threads_and_batches_change_nothing)
{
        begin(_i);
        dci_context *one = test_context(1), *three = test_context(3);
        dci_kv *alone = kv_create(one, &config), *shared = kv_create(three, &config);
        const int64_t a = kv_begin(alone, &data, PROMPT), b = kv_begin(shared, &data, PROMPT);
        kv_begin(shared, &data, 700);
        kv_alike(alone, a, shared, b, &data, PROMPT, 60, "threads");
        dci_kv_destroy(alone);
        dci_kv_destroy(shared);
        dci_context_destroy(one);
        dci_context_destroy(three);
        end();
}
END_TEST

/* Keys that are all the same, or too long to be compared. */
START_TEST(keys_that_no_level_tells_apart)
{
        static const float lengths[] = {0.0f, 1.0f, 1e18f};
        for (size_t i = 0; i < COUNT(lengths); i++) {
                context = test_context(1);
                set_way(2);
                config.dtype = DCI_F32;
                data = kv_random(&config, N, 28);
                const size_t n = config.n_layers * N * config.n_kv_heads * config.dim_k;
                for (size_t j = 0; j < n; j++)
                        data.keys[j] = lengths[i];
                kv_data_store(&data);
                kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, PROMPT);
                kv_decode_all(kv, sequence, &data, PROMPT, 60);
                kv_tree_check(kv, sequence, "equal keys");
                kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT + 60, 0});
                kv_lawful(&seen, &config, 0, "equal keys");
                kv_seen_free(&seen);
                ck_ok(dci_kv_truncate(kv, sequence, 500));
                kv_tree_check(kv, sequence, "fewer equal keys");
                end();
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv tree levels");
        TCase *levels = test_case(suite, "levels", 60);
        tcase_add_loop_test(levels, levels_are_what_comparing_with_all_gives, 0, COUNT(ways));
        tcase_add_test(levels, most_rows_of_a_long_prompt_are_with_the_nearest_node);
        tcase_add_test(levels, a_top_level_may_have_any_number_of_nodes);
        tcase_add_test(levels, levels_that_were_not_asked_for_are_for_forming_alone);
        tcase_add_loop_test(levels, full_effort_finds_the_best_pages_through_levels, 0, COUNT(ways));
        tcase_add_loop_test(levels, retrieving_all_is_comparing_with_all, 0, COUNT(ways));
        tcase_add_test(levels, lists_hold_what_the_projections_retrieve);
        tcase_add_loop_test(levels, files_have_no_levels_and_none_are_lost, 0, COUNT(ways));
        tcase_add_loop_test(levels, threads_and_batches_change_nothing, 0, COUNT(ways));
        tcase_add_test(levels, keys_that_no_level_tells_apart);
        return test_main(suite);
}
