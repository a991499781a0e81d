/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: forks are copies, and what is cut leaves no trace. */
#include "tests/common.h"

#include <string.h>

#include "tests/context_fixture.h"
#include "tests/kv_model.h"

enum { N = 420, PROMPT = 300 };

static dci_kv_config config;
static kv_data data, others;
static dci_kv *kv, *control;
static const char *name;

/* Loops over presets begin with this: two caches of one preset, and tokens of two kinds. */
static void begin_as(int32_t preset, int32_t schedule)
{
        config = kv_small(preset);
        config.schedule = schedule;
        config.period = DCI_KV_MAX_TOKENS; /* orders know queries of tokens that were cut: test_kv_static.c */
        name = dci_kv_preset_name(preset);
        data = kv_random(&config, N, 50);
        others = kv_random(&config, N, 51);
        kv = kv_create(context, &config);
        control = kv_create(context, &config);
}

static void begin(int32_t preset)
{
        begin_as(preset, 0);
}

static void end(void)
{
        dci_kv_destroy(kv);
        kv_end(control, &data);
        kv_data_free(&others);
}

static size_t blocks_in_use(dci_kv *of)
{
        const dci_kv_info info = kv_info(of);
        return info.n_blocks - info.n_free_blocks;
}

/* --- forks -------------------------------------------------------------------------------------------------------------- */

/* Loops over presets. In one batch with its source, and both as one that was never forked. */
START_TEST(a_fork_goes_on_as_its_source)
{
        begin(kv_presets[_i]);
        const int64_t source = kv_begin(kv, &data, PROMPT), plain = kv_begin(control, &data, PROMPT);
        kv_decode_all(kv, source, &data, PROMPT, 13);
        kv_decode_all(control, plain, &data, PROMPT, 13);
        const int64_t fork = kv_fork_at(kv, source, PROMPT + 13);
        for (size_t t = PROMPT + 13; t < PROMPT + 50; t++) {
                const kv_turn turns[] = {{source, &data, t, 1}, {fork, &data, t, 1}};
                kv_seen both = kv_decode(kv, 2, turns), wanted = kv_decode(control, 1, &(kv_turn){plain, &data, t, 1});
                kv_lawful(&both, &config, 0, name);
                kv_same(&both, 0, &wanted, 0, name);
                kv_same(&both, 1, &wanted, 0, name);
                kv_seen_free(&both);
                kv_seen_free(&wanted);
        }
        end();
}
END_TEST

/* Loops over presets. Forks at every kind of place are copies that were cut there; what comes then is their own. */
START_TEST(a_fork_is_a_copy_that_is_cut)
{
        static const size_t places[] = {0, 5, 16, 17, 100, 120, 280, 287, 299, 300, 312, 313};
        begin(kv_presets[_i]);
        const int64_t source = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, source, &data, PROMPT, 13);
        for (size_t p = 0; p < COUNT(places); p++) {
                const int64_t copy = kv_begin(control, &data, PROMPT), fork = kv_fork_at(kv, source, places[p]);
                kv_decode_all(control, copy, &data, PROMPT, 13);
                ck_ok(dci_kv_truncate(control, copy, places[p]));
                kv_alike(kv, fork, control, copy, &others, places[p], 12, name);
                ck_ok(dci_kv_close(kv, fork));
                ck_ok(dci_kv_close(control, copy));
        }
        const int64_t plain = kv_begin(control, &data, PROMPT);
        kv_decode_all(control, plain, &data, PROMPT, 13);
        kv_alike(kv, source, control, plain, &data, PROMPT + 13, 20, name);
        end();
}
END_TEST

/* Loops over presets. Each forks the one before, shorter; all go on by turns, and end in any order. */
START_TEST(forks_of_forks_are_their_own)
{
        enum { FORKS = 6 };
        begin(kv_presets[_i]);
        int64_t forks[FORKS], copies[FORKS];
        size_t at[FORKS];
        forks[0] = kv_begin(kv, &data, PROMPT);
        at[0] = PROMPT;
        for (size_t f = 0; f < FORKS; f++) {
                if (f > 0) {
                        at[f] = at[f - 1] - 37;
                        forks[f] = kv_fork_at(kv, forks[f - 1], at[f]);
                }
                copies[f] = kv_begin(control, &data, PROMPT);
                for (size_t g = 1; g <= f; g++) /* cut as often: trees depend on it */
                        ck_ok(dci_kv_truncate(control, copies[f], at[g]));
        }
        for (size_t step = 0; step < 24; step++)
                for (size_t f = 0; f < FORKS; f++) {
                        if (step > 3 * f + 3)
                                continue;
                        const kv_data *own = f % 2 == 0 ? &others : &data;
                        kv_alike(kv, forks[f], control, copies[f], own, at[f]++, 1, name);
                        if (step == 3 * f + 3) {
                                ck_ok(dci_kv_close(kv, forks[f]));
                                ck_ok(dci_kv_close(control, copies[f]));
                        }
                }
        ck_assert_uint_eq(blocks_in_use(kv), 0);
        ck_assert_uint_eq(kv_info(kv).summary_bytes, 0);
        ck_assert_uint_eq(kv_info(kv).n_sequences, 0);
        end();
}
END_TEST

/* Loops over presets. A fork takes at most one block and summaries of a few tokens, as long as it only reads. */
START_TEST(forks_share_blocks_and_summaries)
{
        begin(kv_presets[_i]);
        const int64_t source = kv_begin(kv, &data, PROMPT);
        const size_t blocks = blocks_in_use(kv), summaries = kv_info(kv).summary_bytes;
        const int64_t fork = kv_fork_at(kv, source, PROMPT);
        const dci_kv_sequence_info info = kv_sequence_info(kv, fork);
        ck_assert_uint_le(blocks_in_use(kv), blocks + 1);
        ck_assert_uint_eq(kv_info(kv).summary_bytes, summaries);
        ck_assert_uint_eq(info.n_blocks, (PROMPT + 7) / 8);
        ck_assert_uint_eq(info.n_shared_blocks, PROMPT / 8);
        ck_assert_uint_eq(kv_sequence_info(kv, source).n_shared_blocks, PROMPT / 8);
        ck_ok(dci_kv_close(kv, source));
        ck_assert_uint_eq(kv_sequence_info(kv, fork).n_shared_blocks, 0);
        const int64_t plain = kv_begin(control, &data, PROMPT);
        kv_alike(kv, fork, control, plain, &others, PROMPT, 40, name);
        ck_ok(dci_kv_close(kv, fork));
        ck_assert_uint_eq(blocks_in_use(kv), 0);
        end();
}
END_TEST

/* Loops over presets. Summaries come in pieces of 512 tokens, which forks share until they write. */
START_TEST(long_forks_write_pieces_of_their_own)
{
        static const size_t places[] = {1100, 1056, 1040, 1030, 544, 528, 520, 40};
        config = kv_small(kv_presets[_i]);
        kv_data own = kv_random(&config, 1200, 53), other = kv_random(&config, 1200, 54);
        dci_kv *one = kv_create(context, &config), *two = kv_create(context, &config);
        const int64_t source = kv_begin(one, &own, 1100), plain = kv_begin(two, &own, 1100);
        for (size_t p = 0; p < COUNT(places); p++) {
                const int64_t copy = kv_begin(two, &own, 1100), fork = kv_fork_at(one, source, places[p]);
                ck_ok(dci_kv_truncate(two, copy, places[p]));
                kv_alike(one, fork, two, copy, &other, places[p], 30, dci_kv_preset_name(kv_presets[_i]));
                ck_ok(dci_kv_close(two, copy));
                if (p % 2 == 0)
                        ck_ok(dci_kv_close(one, fork));
        }
        kv_alike(one, source, two, plain, &own, 1100, 30, dci_kv_preset_name(kv_presets[_i]));
        dci_kv_destroy(one);
        kv_end(two, &own);
        kv_data_free(&other);
}
END_TEST

/* --- truncation --------------------------------------------------------------------------------------------------------- */

/* Loops over presets. Up to the rollback, what is cut and comes again is as if it had stayed. (Segments end where plans find that queries
 * turn, and here tokens come again without plans.) */
START_TEST(truncation_within_the_rollback_leaves_no_trace)
{
        begin_as(kv_presets[_i], kv_presets[_i] == DCI_KV_LOUISKV ? DCI_KV_EVERY_STEP : 0);
        const int64_t cut = kv_begin(kv, &data, PROMPT), plain = kv_begin(control, &data, PROMPT);
        size_t at = PROMPT;
        for (size_t n = 1; n <= config.rollback; n++) {
                kv_decode_all(kv, cut, &data, at, 4);
                kv_decode_all(control, plain, &data, at, 4);
                at += 4;
                const size_t grouped = kv_sequence_info(kv, cut).n_grouped;
                ck_ok(dci_kv_truncate(kv, cut, at - n));
                ck_assert_uint_eq(kv_sequence_info(kv, cut).n_grouped, grouped);
                kv_feed(kv, 1, &(kv_turn){cut, &data, at - n, n});
                kv_seen a = kv_look(kv, 1, &(kv_turn){cut, &data, at, 0}),
                        b = kv_look(control, 1, &(kv_turn){plain, &data, at, 0});
                kv_same_and_free(&a, &b, name);
        }
        end();
}
END_TEST

/* Loops over presets. Tokens that were tried and given up, at most the rollback of them, leave no trace in those that came in
 * their place, from the step on at which as many are there. */
START_TEST(other_tokens_take_the_place_of_those_that_are_cut)
{
        begin(kv_presets[_i]);
        const int64_t cut = kv_begin(kv, &data, PROMPT), plain = kv_begin(control, &data, PROMPT);
        for (size_t at = PROMPT; at + 2 * config.rollback <= N; at += config.rollback) {
                const size_t n = config.rollback;
                kv_decode_all(kv, cut, &others, at, n);
                ck_ok(dci_kv_truncate(kv, cut, at));
                kv_decode_all(kv, cut, &data, at, n);
                kv_decode_all(control, plain, &data, at, n);
                kv_seen a = kv_look(kv, 1, &(kv_turn){cut, &data, at, 0}),
                        b = kv_look(control, 1, &(kv_turn){plain, &data, at, 0});
                kv_same_and_free(&a, &b, name);
        }
        end();
}
END_TEST

/* The list that snapkv chose once names no token that came later, after a cut or in a fork: what room that leaves is the latest's. */
START_TEST(what_was_chosen_once_is_forgotten_with_its_tokens)
{
        begin(DCI_KV_SNAPKV);
        const int64_t first = kv_begin(kv, &data, PROMPT), fork = kv_fork_at(kv, first, 120);
        ck_ok(dci_kv_truncate(kv, first, 120));
        for (size_t t = 120; t < PROMPT + 50; t += 10) {
                const kv_turn turns[] = {{first, &others, t, 10}, {fork, &others, t, 10}};
                kv_seen seen = kv_decode(kv, 2, turns);
                kv_lawful(&seen, &config, 0, name);
                for (size_t i = 0; i < 4; i++) {
                        size_t n;
                        const int32_t *list = kv_list(&seen, i / 2, i % 2, 1, &n);
                        for (size_t j = 0; j < n; j++)
                                ck_assert_msg(list[j] < 120 || list[j] + (int32_t)(n - j) ==
                                                                       seen.plans[i / 2].recent_begin[i % 2],
                                              "token %d was chosen before it came", list[j]);
                }
                kv_seen_free(&seen);
        }
        end();
}
END_TEST

/* Other sequences see nothing of it. */
START_TEST(truncation_is_of_one_sequence)
{
        begin(DCI_KV_SKETCH);
        const int64_t stays = kv_begin(kv, &data, PROMPT), cut = kv_begin(kv, &others, PROMPT),
                      fork = kv_fork_at(kv, stays, PROMPT), plain = kv_begin(control, &data, PROMPT);
        ck_ok(dci_kv_truncate(kv, cut, 100));
        ck_ok(dci_kv_truncate(kv, fork, 0));
        kv_feed(kv, 1, &(kv_turn){fork, &others, 0, 200});
        kv_alike(kv, stays, control, plain, &data, PROMPT, 30, name);
        end();
}
END_TEST

/* Loops over presets. Cut deep, and more than once, plans stay lawful and outputs are those of the tokens that are there. */
START_TEST(sequences_may_be_cut_anywhere)
{
        static const size_t places[] = {250, 200, 117, 120, 64, 16, 3, 0};
        begin(kv_presets[_i]);
        const int64_t cut = kv_begin(kv, &data, PROMPT);
        kv_model model = kv_model_of(&config, &data, PROMPT);
        for (size_t p = 0; p < COUNT(places); p++) {
                ck_ok(dci_kv_truncate(kv, cut, places[p]));
                kv_model_truncate(&model, places[p]);
                ck_assert_uint_eq(kv_sequence_info(kv, cut).n_tokens, places[p]);
                for (size_t step = 0; step < 70; step++) {
                        const kv_turn turn = {cut, p % 2 == 0 ? &others : &data, places[p] + 2 * step, 2};
                        kv_seen seen = kv_decode(kv, 1, &turn);
                        kv_model_append(&model, turn.data, turn.from, 2);
                        kv_lawful(&seen, &config, 0, name);
                        for (size_t layer = 0; layer < 2 && step % 7 == 0; layer++)
                                kv_model_check_out(&model, &seen, 0, layer,
                                                   kv_query(turn.data, layer, turn.from + 1, 0), name);
                        kv_seen_free(&seen);
                }
        }
        kv_model_free(&model);
        end();
}
END_TEST

/* Loops over presets that remember nothing of their prompt. */
static const int32_t forgetful[] = {DCI_KV_FULL,     DCI_KV_TOPK,  DCI_KV_STREAMING,
                                    DCI_KV_PAGEMEAN, DCI_KV_QUEST, DCI_KV_ARKVALE};
START_TEST(deep_truncation_is_a_shorter_prompt)
{
        enum { LEFT = 120 };
        begin(forgetful[_i]);
        const int64_t cut = kv_begin(kv, &data, PROMPT), plain = kv_begin(control, &data, LEFT);
        ck_ok(dci_kv_truncate(kv, cut, LEFT));
        kv_decode_all(kv, cut, &others, LEFT, 40);
        kv_decode_all(control, plain, &others, LEFT, 40);
        kv_alike(kv, cut, control, plain, &others, LEFT + 40, 100, name);
        end();
}
END_TEST

/* Loops over presets. What is left of a frozen prompt is what can be chosen from; what comes then is attended to. */
START_TEST(a_frozen_prompt_may_be_cut)
{
        static const size_t places[] = {600, 599, 531, 531, 150, 120, 17, 3};
        config = kv_small(kv_presets[_i]);
        config.frozen_prompt = 1;
        kv_data own = kv_random(&config, 640, 52);
        for (size_t p = 0; p < COUNT(places); p++) {
                dci_kv *one = kv_create(context, &config);
                int64_t cut = kv_begin(one, &own, 600);
                if (p % 2 == 0)
                        cut = kv_fork_at(one, cut, places[p]);
                else
                        ck_ok(dci_kv_truncate(one, cut, places[p]));
                kv_model model = kv_model_of(&config, &own, places[p]);
                for (size_t t = places[p]; t < places[p] + 30; t++) {
                        kv_seen seen = kv_decode(one, 1, &(kv_turn){cut, &own, t, 1});
                        kv_model_append(&model, &own, t, 1);
                        kv_lawful(&seen, &config, places[p], dci_kv_preset_name(kv_presets[_i]));
                        for (size_t layer = 0; layer < 2; layer++)
                                kv_model_check_out(&model, &seen, 0, layer, kv_query(&own, layer, t, 0),
                                                   dci_kv_preset_name(kv_presets[_i]));
                        kv_seen_free(&seen);
                }
                kv_model_free(&model);
                dci_kv_destroy(one);
        }
        kv_data_free(&own);
}
END_TEST

START_TEST(blocks_that_are_cut_go_back)
{
        begin(DCI_KV_TOPK);
        const int64_t cut = kv_begin(kv, &data, PROMPT);
        for (size_t n = PROMPT;; n -= 5) {
                ck_ok(dci_kv_truncate(kv, cut, n));
                ck_assert_uint_eq(blocks_in_use(kv), (n + 7) / 8);
                ck_assert_uint_eq(kv_sequence_info(kv, cut).n_blocks, (n + 7) / 8);
                if (n < 5)
                        break;
        }
        end();
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv forks");
        TCase *forks = test_case_with(suite, "forks", 60, context_open_2, context_close);
        tcase_add_loop_test(forks, a_fork_goes_on_as_its_source, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, a_fork_is_a_copy_that_is_cut, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, forks_of_forks_are_their_own, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, forks_share_blocks_and_summaries, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, long_forks_write_pieces_of_their_own, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, truncation_within_the_rollback_leaves_no_trace, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, other_tokens_take_the_place_of_those_that_are_cut, 0, KV_N_KINDS);
        tcase_add_test(forks, what_was_chosen_once_is_forgotten_with_its_tokens);
        tcase_add_test(forks, truncation_is_of_one_sequence);
        tcase_add_loop_test(forks, sequences_may_be_cut_anywhere, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, deep_truncation_is_a_shorter_prompt, 0, COUNT(forgetful));
        tcase_add_loop_test(forks, a_frozen_prompt_may_be_cut, 0, KV_N_KINDS);
        tcase_add_test(forks, blocks_that_are_cut_go_back);
        return test_main(suite);
}
