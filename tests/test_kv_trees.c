/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Trees over a head's candidates: every one in one page, the nearest node's; a change changes few pages. */
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

static void check_all(int64_t sequence, const kv_data *of, double max_strays)
{
        kv_tree_check(kv, sequence, "trees");
        for (size_t l = 0; l < config.n_layers; l++)
                for (size_t h = 0; h < config.n_kv_heads; h++) {
                        const double share = kv_tree_strays(kv, tree_of(sequence, l, h), of, l, h);
                        ck_assert_msg(share <= max_strays, "layer %zu, head %zu: %.4f of the rows lie elsewhere", l, h,
                                      share);
                }
}

START_TEST(every_candidate_lies_in_one_page_of_the_nearest_node)
{
        begin();
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        check_all(sequence, &data, 0.0);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT, 0});
        kv_lawful(&seen, &config, 0, "prompt");
        kv_seen_free(&seen);
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
        ck_assert(kv_tree_strays(kv, tree, &data, 0, 0) <= 0.02);
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
        tcase_add_loop_test(trees, every_kind_of_keys_follows_its_tree, 0, 6);
        tcase_add_test(trees, unchanged_pages_keep_what_they_hold);
        tcase_add_test(trees, a_fork_shares_the_tree_until_it_grows);
        tcase_add_test(trees, a_tree_may_be_cut_anywhere);
        tcase_add_test(trees, layers_between_anchors_keep_no_tree);
        tcase_add_test(trees, a_longer_key_raises_the_tree);
        tcase_add_test(trees, a_damaged_tree_is_refused);
        return test_main(suite);
}
