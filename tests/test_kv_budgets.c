/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What a budget counts, budgets that are a share of the tokens, the least ones, and published sizes. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kv/budget.h"
#include "kv/kv_internal.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"
#include "tests/kv_tree_check.h"
#include "tests/scratch.h"

enum { PROMPT = 220, N = 300 };

static bool ranks(const dci_kv_info *info)
{
        return info->select == DCI_KV_SELECT_SCAN || info->select == DCI_KV_SELECT_STATIC ||
               info->select == DCI_KV_SELECT_RECENT || info->select == DCI_KV_SELECT_OBSERVED;
}

/* Lists fill the room that the header's words leave, or hold all candidates. */
static void check_rooms(const kv_seen *seen, const char *what)
{
        const dci_kv_info info = kv_info(seen->kv);
        const dci_kv_plan *plan = &seen->plans[0];
        const size_t n = (size_t)plan->n_tokens[0], recent = (size_t)plan->recent_begin[0];
        if (recent == 0 || info.select == DCI_KV_SELECT_ALL)
                return;
        const size_t room = kv_room_of(seen->kv, n, n - recent), candidates = recent - info.sink;
        ck_assert_msg(candidates > room, "%s: %zu candidates, room for %zu, but tokens are left out", what, candidates,
                      room);
        for (size_t h = 0; h < seen->n_kv_heads && info.schedule <= DCI_KV_ONCE; h++) {
                size_t n_list;
                (void)kv_list(seen, 0, 0, h, &n_list);
                if (ranks(&info) ? n_list != room : n_list > room)
                        ck_abort_msg("%s: list of %zu, room for %zu", what, n_list, room);
        }
}

/* --- what counts ---------------------------------------------------------------------------------------------------------- */

/* Loops over presets and accounting: rooms are those of the header's words, what is in no group is attended to, and nothing is grouped
 * early for want of room that it does not take. */
START_TEST(rooms_are_what_counts_leaves)
{
        const int32_t counts = 1 + _i % DCI_KV_COUNTS;
        dci_kv_config config = kv_small(kv_presets[_i / DCI_KV_COUNTS]);
        config.budget_counts = counts;
        config.cluster_tokens = 4;
        config.cluster_every = 20;
        config.cluster_segment = 64;
        config.segment_buffer = 60;
        config.budget = 64;
        kv_data data = kv_random(&config, N, 1);
        dci_kv *kv = kv_create(context, &config);
        ck_assert_int_eq(kv_info(kv).budget_counts, counts);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_lawful(&seen, &config, 0, "counts");
                check_rooms(&seen, dci_kv_preset_name(config.preset));
                kv_seen_free(&seen);
        }
        if (counts != DCI_KV_COUNT_ALL)
                ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_early, 0);
        else if (config.preset == DCI_KV_LOUISKV)
                ck_assert_uint_gt(kv_sequence_info(kv, sequence).n_early, 0);
        kv_end(kv, &data);
}
END_TEST

/* Decodes the same tokens in both, which see the same. */
static void check_equal(const dci_kv_config *a, const dci_kv_config *b, const char *what)
{
        kv_data data = kv_random(a, N, 2);
        dci_kv *first = kv_create(context, a), *second = kv_create(context, b);
        const int64_t of_first = kv_begin(first, &data, PROMPT), of_second = kv_begin(second, &data, PROMPT);
        kv_alike(first, of_first, second, of_second, &data, PROMPT, N - PROMPT, what);
        dci_kv_destroy(second);
        kv_end(first, &data);
}

/* Loops over presets: without a sink and a window the last three are the same; and with both, SINK_AND_WINDOW is SELECTED with so much less,
 * and SINK with the window less. */
START_TEST(accounting_is_a_difference_of_budgets)
{
        dci_kv_config a = kv_small(kv_presets[_i]), b;
        a.budget_counts = DCI_KV_COUNT_SELECTED;
        b = a;
        a.sink = a.window = b.sink = b.window = 0;
        for (b.budget_counts = DCI_KV_COUNT_SINK_AND_WINDOW; b.budget_counts < DCI_KV_COUNT_SELECTED; b.budget_counts++)
                check_equal(&a, &b, "without a sink and a window");
        a.sink = b.sink = 8;
        a.window = b.window = 12;
        b.budget_counts = DCI_KV_COUNT_SINK_AND_WINDOW;
        b.budget = a.budget + 20;
        a.segment_buffer = b.segment_buffer = 40;
        check_equal(&a, &b, "sink and window");
        b.budget_counts = DCI_KV_COUNT_SINK;
        b.budget = a.budget + 8;
        check_equal(&a, &b, "sink");
}
END_TEST

/* Where only the window is recent, all of it counts or none. */
START_TEST(without_groups_all_is_sink_and_window)
{
        static const int32_t presets[] = {DCI_KV_TOPK, DCI_KV_STREAMING, DCI_KV_SNAPKV};
        for (size_t i = 0; i < COUNT(presets); i++) {
                dci_kv_config a = kv_small(presets[i]), b;
                a.observed_keep = 0;
                a.budget_counts = DCI_KV_COUNT_ALL;
                b = a;
                b.budget_counts = DCI_KV_COUNT_SINK_AND_WINDOW;
                check_equal(&a, &b, dci_kv_preset_name(presets[i]));
        }
}
END_TEST

/* Generated tokens do not press: clusters are of cluster_every, however small the budget is, with and without maintenance. Loops over
 * both. */
START_TEST(uncounted_tokens_are_grouped_when_they_are_due)
{
        dci_kv_config config = kv_small(DCI_KV_CLUSTERKV);
        config.budget = 32;
        config.budget_counts = DCI_KV_COUNT_SINK;
        config.window = config.rollback = 0;
        config.cluster_tokens = 4;
        config.cluster_every = 30;
        kv_data data = kv_random(&config, N, 3);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_grouped, PROMPT - 16);
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen seen = kv_seen_room(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_reserve(kv, 1, &(kv_turn){sequence, &data, t, 1});
                for (size_t layer = 0; layer < 2; layer++) {
                        kv_append(kv, layer, 1, &(kv_turn){sequence, &data, t, 1});
                        kv_look_at(&seen, layer, 1, &(kv_turn){sequence, &data, t, 1});
                }
                kv_step_end(kv, 1, &(kv_turn){sequence, &data, t, 1});
                if (_i == 0)
                        ck_ok(dci_kv_maintain(kv, 1, &sequence));
                const size_t waiting = t + 1 - 16 - kv_sequence_info(kv, sequence).n_grouped;
                ck_assert_uint_eq(waiting, _i == 0 ? (t + 1 - PROMPT) % 30 : (t - PROMPT) % 30 + 1);
                kv_seen_free(&seen);
        }
        ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_early, 0);
        kv_end(kv, &data);
}
END_TEST

/* A frozen prompt's window counts where windows count, decoded tokens never. */
START_TEST(a_frozen_prompt_counts_the_same)
{
        for (int32_t counts = 1; counts <= DCI_KV_COUNTS; counts++) {
                dci_kv_config config = kv_small(DCI_KV_TOPK);
                config.budget_counts = counts;
                config.frozen_prompt = 1;
                kv_data data = kv_random(&config, N, 4);
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, PROMPT);
                kv_decode_all(kv, sequence, &data, PROMPT, 20);
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, PROMPT + 20, 1});
                size_t n;
                (void)kv_list(&seen, 1, 0, 1, &n);
                ck_assert_uint_eq(n, 96 - (counts <= 3 ? 16 : 0) - (counts <= 2 ? 16 : 0));
                kv_seen_free(&seen);
                kv_end(kv, &data);
        }
}
END_TEST

/* --- a share of the tokens ------------------------------------------------------------------------------------------------ */

/* Loops over presets: the budget grows with the sequence, in whole pages, between the least one and `budget`; up to the least one everything
 * is attended to. */
START_TEST(a_share_grows_with_the_sequence)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        config.budget = 128;
        config.budget_share = 0.25;
        config.observed_keep = 0;
        config.cluster_tokens = 4;
        config.cluster_every = 20;
        config.segment_buffer = 40;
        if (_i % 2 == 1)
                config.budget_counts = DCI_KV_COUNT_SINK_AND_WINDOW;
        kv_data data = kv_random(&config, 700, 5);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 30);
        const size_t least = kv_budget_of(kv, 1);
        size_t rooms = 0, before = 0;
        for (size_t t = 30; t < data.n; t++) {
                const kv_turn turn = {sequence, &data, t, 1};
                const size_t budget = kv_budget_of(kv, t + 1);
                kv_seen seen = kv_decode(kv, 1, &turn);
                kv_lawful(&seen, &config, 0, "share");
                check_rooms(&seen, dci_kv_preset_name(config.preset));
                rooms += budget != before && seen.plans[0].recent_begin[0] > 0;
                ck_assert(budget >= before && budget >= least && budget <= 128);
                if (budget > least && budget < 128)
                        ck_assert_uint_eq(budget, (t + 1) / 4 / 8 * 8);
                if (t + 1 <= least)
                        ck_assert_int_eq(seen.plans[1].recent_begin[0], 0);
                before = budget;
                kv_seen_free(&seen);
        }
        ck_assert_uint_eq(before, 128);
        ck_assert((rooms > 8) == (config.preset != DCI_KV_FULL));
        kv_end(kv, &data);
}
END_TEST

/* Tenths of round numbers of tokens are what people expect, whatever binary makes of 0.1. */
START_TEST(shares_are_what_they_say)
{
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        config.sink = config.window = config.rollback = 0;
        config.budget = 4096;
        for (size_t tenths = 1; tenths <= 10; tenths++) {
                config.budget_share = (double)tenths / 10.0;
                dci_kv *kv = kv_create(context, &config);
                for (size_t n = 80; n <= 4000; n += 80) {
                        const size_t wanted = n / 80 * tenths * 8;
                        ck_assert_uint_eq(dci_kv_budget_at(&kv->config, n), wanted);
                        ck_assert_uint_eq(dci_kv_budget_at(&kv->config, n - 1), wanted > 8 ? (wanted - 1) / 8 * 8 : 8);
                }
                dci_kv_destroy(kv);
        }
}
END_TEST

/* A share of all tokens is full attention while `budget` holds them. */
START_TEST(all_tokens_are_full_attention)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH), full = kv_small(DCI_KV_FULL);
        config.budget = 512;
        config.budget_share = 1.0;
        kv_data data = kv_random(&config, N, 6);
        dci_kv *a = kv_create(context, &config), *b = kv_create(context, &full);
        const int64_t first = kv_begin(a, &data, PROMPT), second = kv_begin(b, &data, PROMPT);
        size_t sparse = 0;
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen one = kv_decode(a, 1, &(kv_turn){first, &data, t, 1}),
                        other = kv_decode(b, 1, &(kv_turn){second, &data, t, 1});
                sparse += one.plans[0].recent_begin[0] > 0; /* the rest of a page is left out */
                if ((t + 1) % 8 == 0)
                        kv_same_out(&one, 0, &other, 0, "whole");
                kv_seen_free(&one);
                kv_seen_free(&other);
        }
        ck_assert_uint_gt(sparse, 0);
        dci_kv_destroy(b);
        kv_end(a, &data);
}
END_TEST

/* --- the least ------------------------------------------------------------------------------------------------------------ */

/* Loops over presets and accounting: the least budget that a refusal names is taken, and lists get a page. */
START_TEST(the_least_budget_is_named_and_taken)
{
        dci_kv_config config = kv_small(kv_presets[_i / DCI_KV_COUNTS]);
        config.budget_counts = 1 + _i % DCI_KV_COUNTS;
        config.budget = 1;
        dci_kv *kv;
        static const char before[] = "budget is 1, expected ";
        ck_assert_int_eq(dci_kv_create(context, &config, &kv), DCI_ERR_INVALID);
        ck_assert_msg(strncmp(dci_last_error(), before, strlen(before)) == 0, "%s", dci_last_error());
        const size_t least = (size_t)strtoul(dci_last_error() + strlen(before), NULL, 10);
        ck_assert_ptr_nonnull(strstr(dci_last_error(), config.budget_counts == DCI_KV_COUNT_SELECTED
                                                               ? ": lower page_tokens"
                                                               : ", or change budget_counts"));
        config.budget = least - 1;
        ck_refused(dci_kv_create(context, &config, &kv), DCI_ERR_INVALID, "budget is");
        config.budget = least;
        kv_data data = kv_random(&config, N, 7);
        kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        size_t most = 0;
        for (size_t t = PROMPT; t < PROMPT + 24; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                size_t n;
                (void)kv_list(&seen, 0, 0, 0, &n);
                kv_lawful(&seen, &config, 0, "least");
                check_rooms(&seen, dci_kv_preset_name(config.preset));
                most = n > most ? n : most;
                kv_seen_free(&seen);
        }
        /* Where recent tokens count, the open page takes what a page of a tree would need whole. */
        const bool tree = config.preset == DCI_KV_ICECACHE && config.budget_counts == DCI_KV_COUNT_ALL;
        if (config.preset != DCI_KV_FULL && config.preset != DCI_KV_LOWBIT && !tree)
                ck_assert_uint_gt(most, 0);
        kv_end(kv, &data);
}
END_TEST

START_TEST(refusals_say_what_to_lower)
{
        static const struct {
                int32_t preset, counts;
                size_t rollback;
                const char *sentence;
        } cases[] = {
                {DCI_KV_ICECACHE, 0, 64,
                 "budget is 64, expected 112 (sink 32, rollback 64 and a page of 16) to 134217728: lower sink, "
                 "rollback, "
                 "window or page_tokens, or change budget_counts"},
                {DCI_KV_ICECACHE, 0, 0,
                 "budget is 64, expected 80 (sink 32, window 32 and a page of 16) to 134217728: lower sink, window or "
                 "page_tokens, or change budget_counts"},
                {DCI_KV_TOPK, 0, 64,
                 "budget is 64, expected 96 (sink 16, window 64 and a page of 16) to 134217728: lower sink, window or "
                 "page_tokens, or change budget_counts"},
                {DCI_KV_PRKV, DCI_KV_COUNT_SINK_AND_WINDOW, 200,
                 "budget is 64, expected 112 (sink 16, window 64 and a page of 32) to 134217728: lower sink, window or "
                 "page_tokens, or change budget_counts"},
        };
        dci_kv *kv;
        for (size_t i = 0; i < COUNT(cases); i++) {
                dci_kv_config config = kv_config(cases[i].preset, 1, 1, 1, 16);
                config.budget = 64;
                config.budget_counts = cases[i].counts;
                config.rollback = cases[i].rollback;
                ck_assert_int_eq(dci_kv_create(context, &config, &kv), DCI_ERR_INVALID);
                ck_assert_str_eq(dci_last_error(), cases[i].sentence);
        }
        dci_kv_config config = kv_config(DCI_KV_CLUSTERKV, 1, 1, 1, 16);
        config.budget = 31;
        config.budget_counts = DCI_KV_COUNT_SINK;
        ck_refused(dci_kv_create(context, &config, &kv), DCI_ERR_INVALID,
                   "expected 32 (sink 16 and a page of 16) to 134217728: lower sink or page_tokens, or change "
                   "budget_counts");
        config.budget_counts = DCI_KV_COUNT_SELECTED;
        config.budget = 15;
        ck_refused(dci_kv_create(context, &config, &kv), DCI_ERR_INVALID,
                   "expected 16 (a page of 16) to 134217728: lower page_tokens");
}
END_TEST

/* IceCache's headline budget, in small pages. */
START_TEST(icecache_takes_64_tokens)
{
        dci_kv_config config = kv_config(DCI_KV_ICECACHE, 1, 2, 2, 16);
        config.page_tokens = 8;
        config.sink = config.window = config.rollback = 16;
        config.budget = 64;
        kv_data data = kv_random(&config, N, 8);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        for (size_t t = PROMPT; t < N; t++) {
                kv_decode_all(kv, sequence, &data, t, 1);
                kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, t, 0});
                kv_lawful(&seen, &config, 0, "64 tokens");
                ck_assert_uint_ge(kv_tree_check_list(&seen, 0, 0, 0, "64 tokens"), 3);
                kv_seen_free(&seen);
        }
        kv_end(kv, &data);
}
END_TEST

/* --- SnapKV ---------------------------------------------------------------------------------------------------------------- */

/* The preset keeps what is generated, next to lists that stay as they are; the other way generated tokens leave with the window, and
 * where they count they displace the worst. Loops over the three. */
START_TEST(generated_tokens_are_kept_or_leave)
{
        dci_kv_config config = kv_small(DCI_KV_SNAPKV);
        if (_i == 1)
                config.observed_keep = 0;
        if (_i == 2)
                config.budget_counts = DCI_KV_COUNT_ALL;
        kv_data data = kv_random(&config, N, 9);
        dci_kv *kv = kv_create(context, &config);
        ck_assert_int_eq(kv_info(kv).observed_keep, _i != 1);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        int32_t first[96];
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                size_t n;
                const int32_t *list = kv_list(&seen, 0, 0, 0, &n);
                const size_t recent = (size_t)seen.plans[0].recent_begin[0], late = t + 1 - PROMPT;
                ck_assert_uint_eq(recent, _i == 1 ? t + 1 - 16 : PROMPT - 16);
                ck_assert_uint_eq(n, _i < 2 ? 64 : late < 64 ? 64 - late : 0);
                if (t == PROMPT)
                        memcpy(first, list, n * sizeof *list);
                for (size_t i = 0; i < n && _i == 0; i++)
                        test_hold(list[i] == first[i]);
                kv_seen_free(&seen);
        }
        kv_end(kv, &data);
}
END_TEST

/* --- files ---------------------------------------------------------------------------------------------------------------- */

/* Accounting is the dci_kv's, not the file's: a sequence that is loaded goes on as one of that dci_kv, but for what was selected for good
 * when it was saved. Loops over presets. */
START_TEST(files_go_with_any_accounting)
{
        dci_kv_config config = kv_small(kv_presets[_i]), other;
        config.cluster_tokens = 8;
        config.budget_counts = DCI_KV_COUNT_ALL;
        other = config;
        other.budget_counts = DCI_KV_COUNT_SELECTED;
        kv_data data = kv_random(&config, N, 10);
        dci_kv *a = kv_create(context, &config), *b = kv_create(context, &other);
        const int64_t first = kv_begin(a, &data, PROMPT), second = kv_begin(b, &data, PROMPT);
        int64_t loaded;
        ck_ok(dci_kv_save(a, first, PROMPT, scratch_path("sequence")));
        ck_ok(dci_kv_load(b, scratch_path("sequence"), &loaded));
        for (size_t t = PROMPT; t < PROMPT + 10; t++) {
                const kv_turn turns[] = {{second, &data, t, 1}, {loaded, &data, t, 1}};
                kv_seen seen = kv_decode(b, 2, turns);
                kv_lawful(&seen, &other, 0, "loaded");
                if (config.preset != DCI_KV_SNAPKV && config.preset != DCI_KV_PRKV)
                        kv_same(&seen, 0, &seen, 1, dci_kv_preset_name(config.preset));
                kv_seen_free(&seen);
        }
        dci_kv_destroy(b);
        kv_end(a, &data);
}
END_TEST

/* --- published sizes ------------------------------------------------------------------------------------------------------ */

START_TEST(published_sizes_are_those_of_the_table)
{
        static const struct {
                int32_t preset;
                size_t budget, page_tokens, sink, window, buffer;
                int32_t counts, combine;
        } rows[] = {
                {DCI_KV_STREAMING, 128, 16, 4, 0, 0, DCI_KV_COUNT_ALL, 0},
                {DCI_KV_SNAPKV, 128, 16, 0, 32, 0, DCI_KV_COUNT_SINK_AND_WINDOW, 0},
                {DCI_KV_QUEST, 128, 16, 0, 0, 0, DCI_KV_COUNT_ALL, 0},
                {DCI_KV_ARKVALE, 256, 32, 64, 33, 0, DCI_KV_COUNT_ALL, 0},
                {DCI_KV_ICECACHE, 256, 16, 32, 17, 0, DCI_KV_COUNT_ALL, 0},
                {DCI_KV_ICECACHE, 80, 16, 32, 17, 0, DCI_KV_COUNT_ALL, 0},
                {DCI_KV_ICECACHE, 64, 8, 16, 9, 0, DCI_KV_COUNT_ALL, 0},
                {DCI_KV_CLUSTERKV, 256, 16, 16, 0, 0, DCI_KV_COUNT_SINK, DCI_KV_COMBINE_EACH},
                {DCI_KV_PRKV, 1024, 32, 0, 64, 0, DCI_KV_COUNT_SELECTED, 0},
                {DCI_KV_LOUISKV, 512, 16, 32, 0, 512, DCI_KV_COUNT_SELECTED, 0},
                {DCI_KV_RETROINFER, 512, 16, 4, 64, 0, DCI_KV_COUNT_SELECTED, 0},
                {DCI_KV_FREEKV, 2048, 32, 512, 512, 0, DCI_KV_COUNT_ALL, 0},
        };
        for (size_t i = 0; i < COUNT(rows); i++) {
                dci_kv_config c = kv_config(DCI_KV_SKETCH, 1, 1, 2, 16);
                c.observed_keep = 0;
                c.segment_least = 7;
                c.budget_share = 0.5;
                ck_ok(dci_kv_config_published(&c, rows[i].preset, rows[i].budget));
                ck_assert(c.preset == rows[i].preset && c.budget == rows[i].budget && c.seed == 7);
                ck_assert(c.page_tokens == rows[i].page_tokens && c.sink == rows[i].sink &&
                          c.window == rows[i].window && c.rollback == rows[i].window &&
                          c.segment_buffer == rows[i].buffer);
                ck_assert(c.budget_counts == rows[i].counts && c.combine == rows[i].combine);
                ck_assert_int_eq(c.query_head_lists, rows[i].preset == DCI_KV_CLUSTERKV);
                ck_assert(c.observed_keep == -1 && c.segment_least == 0 && c.budget_share == 0.0);
                dci_kv_destroy(kv_create(context, &c));
        }
        /* Where each query head has a kv head of its own it has its list anyway; where shapes are not known yet it may not. */
        for (size_t n_heads = 0; n_heads < 3; n_heads += 2) {
                dci_kv_config c;
                ck_ok(dci_kv_config_init(&c, sizeof c));
                c.n_query_heads = c.n_kv_heads = n_heads;
                ck_ok(dci_kv_config_published(&c, DCI_KV_CLUSTERKV, 256));
                ck_assert_int_eq(c.query_head_lists, n_heads == 0);
        }
}
END_TEST

/* Presets that are no system of a paper keep their defaults. */
START_TEST(others_get_their_defaults)
{
        static const int32_t presets[] = {DCI_KV_FULL, DCI_KV_TOPK, DCI_KV_PAGEMEAN, DCI_KV_SKETCH};
        for (size_t i = 0; i < COUNT(presets); i++) {
                dci_kv_config c = kv_small(DCI_KV_LOUISKV), usual;
                ck_ok(dci_kv_config_published(&c, presets[i], 300));
                ck_ok(dci_kv_config_init(&usual, sizeof usual));
                usual.preset = presets[i];
                usual.budget = 300;
                usual.n_layers = c.n_layers;
                usual.n_kv_heads = c.n_kv_heads;
                usual.n_query_heads = c.n_query_heads;
                usual.dim_k = c.dim_k;
                usual.dense_layers = c.dense_layers;
                usual.seed = c.seed;
                test_hold(memcmp(&c, &usual, sizeof c) == 0);
        }
        dci_kv_config c = kv_small(DCI_KV_SKETCH), before = c;
        ck_refused(dci_kv_config_published(&c, 0, 256), DCI_ERR_INVALID, "preset is 0, expected 1 to");
        ck_refused(dci_kv_config_published(&c, DCI_KV_PRESETS + 1, 256), DCI_ERR_INVALID, "preset is");
        ck_refused(dci_kv_config_published(NULL, DCI_KV_FULL, 256), DCI_ERR_INVALID, "config is NULL");
        test_hold(memcmp(&c, &before, sizeof c) == 0);
        c.struct_size = 8;
        ck_refused(dci_kv_config_published(&c, DCI_KV_FULL, 256), DCI_ERR_INVALID, "struct_size 8");
}
END_TEST

/* IceCache's k is B / P - 4 pages at every step, next to two pages each of sink and window at most; at 64 in pages of 8. Loops over
 * budgets. */
START_TEST(icecache_selects_as_many_pages_as_published)
{
        static const size_t budgets[] = {64, 128, 256};
        dci_kv_config config = kv_config(DCI_KV_ICECACHE, 1, 1, 2, 16);
        ck_ok(dci_kv_config_published(&config, DCI_KV_ICECACHE, budgets[_i]));
        const size_t page = config.page_tokens, pages = budgets[_i] / page - 4;
        kv_data data = kv_random(&config, 700, 11);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 600);
        size_t most = 0;
        for (size_t t = 600; t < data.n; t++) {
                kv_decode_all(kv, sequence, &data, t, 1);
                kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, t, 0});
                const size_t recent = t + 1 - (size_t)seen.plans[0].recent_begin[0];
                ck_assert_uint_eq(seen.plans[0].sink_end[0], 2 * page);
                ck_assert_uint_eq(kv_tree_check_list(&seen, 0, 0, 0, "published"), pages);
                most = recent > most ? recent : most;
                kv_seen_free(&seen);
        }
        ck_assert_uint_eq(most, 2 * page);
        kv_end(kv, &data);
}
END_TEST

/* --- refusals ------------------------------------------------------------------------------------------------------------- */

#define INVALID(change, first, second)                                                                                 \
        do {                                                                                                           \
                dci_kv_config c = kv_small(DCI_KV_SKETCH);                                                             \
                dci_kv *kv = NULL;                                                                                     \
                change;                                                                                                \
                ck_refused(dci_kv_create(context, &c, &kv), DCI_ERR_INVALID, first);                                   \
                ck_assert_ptr_nonnull(strstr(dci_last_error(), second));                                               \
                ck_assert_ptr_null(kv);                                                                                \
        } while (0)

START_TEST(values_out_of_range_are_refused)
{
        INVALID(c.budget_counts = -1, "budget_counts is -1", "ALL, SINK_AND_WINDOW, SINK or SELECTED");
        INVALID(c.budget_counts = 5, "budget_counts is 5", "or 0 for the preset's");
        INVALID(c.budget_share = -0.1, "budget_share is -0.1", "more than 0 and at most 1, or 0 for a fixed budget");
        INVALID(c.budget_share = 1.0000001, "budget_share is 1", "at most 1");
        INVALID(c.budget_share = (double)NAN, "budget_share is nan", "at most 1");
        INVALID(c.observed_pool = 2, "observed_pool is 2", "odd");
        INVALID(c.observed_pool = 65, "observed_pool is 65", "1 to 63");
        INVALID(c.observed_keep = 2, "observed_keep is 2", "0 or 1, or -1 for the preset's");
        INVALID(c.observed_keep = -2, "observed_keep is -2", "0 or 1");
        INVALID((c.preset = DCI_KV_LOUISKV, c.segment_buffer = 40, c.segment_least = 21), "segment_least is 21",
                "0 to 20 (half of segment_buffer)");
        INVALID(c.segment_least = DCI_KV_MAX_TOKENS + 1, "segment_least is 134217729", "134217728");
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv budgets");
        TCase *budgets = test_case_with(suite, "budgets", 60, context_open_2, context_close);
        tcase_add_checked_fixture(budgets, scratch_open, scratch_close);
        tcase_add_loop_test(budgets, rooms_are_what_counts_leaves, 0, KV_N_PRESETS * DCI_KV_COUNTS);
        tcase_add_loop_test(budgets, accounting_is_a_difference_of_budgets, 0, KV_N_PRESETS);
        tcase_add_test(budgets, without_groups_all_is_sink_and_window);
        tcase_add_loop_test(budgets, uncounted_tokens_are_grouped_when_they_are_due, 0, 2);
        tcase_add_test(budgets, a_frozen_prompt_counts_the_same);
        tcase_add_loop_test(budgets, a_share_grows_with_the_sequence, 0, KV_N_PRESETS);
        tcase_add_test(budgets, shares_are_what_they_say);
        tcase_add_test(budgets, all_tokens_are_full_attention);
        tcase_add_loop_test(budgets, the_least_budget_is_named_and_taken, 0, KV_N_PRESETS * DCI_KV_COUNTS);
        tcase_add_test(budgets, refusals_say_what_to_lower);
        tcase_add_test(budgets, icecache_takes_64_tokens);
        tcase_add_loop_test(budgets, generated_tokens_are_kept_or_leave, 0, 3);
        tcase_add_loop_test(budgets, files_go_with_any_accounting, 0, KV_N_PRESETS);
        tcase_add_test(budgets, published_sizes_are_those_of_the_table);
        tcase_add_test(budgets, others_get_their_defaults);
        tcase_add_loop_test(budgets, icecache_selects_as_many_pages_as_published, 0, 3);
        tcase_add_test(budgets, values_out_of_range_are_refused);
        return test_main(suite);
}
