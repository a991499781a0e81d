/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Lists of query heads: each is that of a cache in which the query head is its kv head's only one, and keeps what such a cache keeps. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/check.h"
#include "kv/kv_internal.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"
#include "tests/scratch.h"

enum { HEADS = 2, GROUP = 3, PROMPT = 240, N = 330, LAYERS = 3 };

/* What loops go over. Codes that are fitted to queries are left out, and so are turns that are of all query heads: both
 * differ where there are fewer. */
static const struct {
        int32_t preset, summary, schedule, combine;
} kinds[] = {{DCI_KV_TOPK, 0, 0, 0},
             {DCI_KV_TOPK, 0, DCI_KV_PERIODIC, DCI_KV_COMBINE_EACH},
             {DCI_KV_PAGEMEAN, 0, DCI_KV_ANCHOR, 0},
             {DCI_KV_QUEST, 0, 0, 0},
             {DCI_KV_ARKVALE, 0, DCI_KV_AHEAD, DCI_KV_COMBINE_EACH},
             {DCI_KV_SKETCH, 0, DCI_KV_ANCHOR, 0},
             {DCI_KV_SKETCH_SUMS, 0, 0, 0},
             {DCI_KV_SKETCH_LOWBIT, 0, DCI_KV_AHEAD, 0},
             {DCI_KV_SKETCH_GROUPS, 0, 0, 0},
             {DCI_KV_SKETCH_VERIFY, DCI_KV_SUMMARY_CODES, 0, 0},
             {DCI_KV_ICECACHE, 0, 0, 0},
             {DCI_KV_ICECACHE, 0, DCI_KV_ANCHOR, 0},
             {DCI_KV_ICECACHE, DCI_KV_SUMMARY_MEAN, 0, 0},
             {DCI_KV_CLUSTERKV, 0, 0, 0},
             {DCI_KV_CLUSTERKV, 0, DCI_KV_PERIODIC, DCI_KV_COMBINE_EACH},
             {DCI_KV_LOUISKV, 0, DCI_KV_EVERY_STEP, 0},
             {DCI_KV_RETROINFER, 0, 0, 0},
             {DCI_KV_FREEKV, 0, 0, 0}};

static dci_kv_config config_of(int i)
{
        dci_kv_config config = kv_config(kinds[i].preset, LAYERS, HEADS, GROUP, 16);
        config.sink = config.page_tokens = 8;
        config.window = config.rollback = 16;
        config.budget = 96;
        config.summary = kinds[i].summary;
        config.schedule = kinds[i].schedule;
        config.combine = kinds[i].combine;
        config.period = 3;
        config.anchor_first = 0;
        config.anchor_period = 2;
        config.tau = 0.05;
        config.cluster_tokens = 5;
        config.cluster_every = 20;
        config.segment_buffer = 30;
        if (config.summary == DCI_KV_SUMMARY_MEAN)
                config.select = DCI_KV_SELECT_SCAN;
        config.query_head_lists = 1;
        return config;
}

/* A cache in which each kv head has one query head, and its data: of each kv head's query head number q. */
static dci_kv_config single(const dci_kv_config *config)
{
        dci_kv_config one = *config;
        one.n_query_heads = one.n_kv_heads;
        one.query_head_lists = 0;
        return one;
}

static kv_data part_of(const dci_kv_config *one, const kv_data *data, size_t q)
{
        kv_data part = kv_random(one, data->n, 1);
        const size_t rows = data->n_layers * data->n * HEADS;
        memcpy(part.keys, data->keys, rows * data->dim_k * sizeof(float));
        memcpy(part.values, data->values, rows * data->dim_v * sizeof(float));
        for (size_t r = 0; r < rows; r++)
                memcpy(part.queries + r * data->dim_k, data->queries + (r * GROUP + q) * data->dim_k,
                       data->dim_k * sizeof(float));
        kv_data_store(&part);
        return part;
}

static void same_floats(const float *a, const float *b, size_t n, const char *part, const char *what)
{
        ck_assert_msg(memcmp(a, b, n * sizeof *a) == 0, "%s: %s differ", what, part);
}

/* List and outputs of query head q of each kv head. */
static void same_as_single(const kv_seen *all, const kv_seen *one, size_t q, const char *what)
{
        for (size_t layer = 0; layer < LAYERS; layer++) {
                const dci_kv_plan *p = &all->plans[layer], *o = &one->plans[layer];
                ck_assert_uint_eq(p->n_lists, HEADS * GROUP);
                ck_assert_uint_eq(o->n_lists, HEADS);
                test_hold(p->sink_end[0] == o->sink_end[0] && p->recent_begin[0] == o->recent_begin[0]);
                for (size_t h = 0; h < HEADS; h++) {
                        const size_t head = h * GROUP + q;
                        size_t n, m;
                        const int32_t *list = kv_list(all, layer, 0, head, &n), *wanted = kv_list(one, layer, 0, h, &m);
                        if (n != m || memcmp(list, wanted, n * sizeof *list) != 0)
                                ck_abort_msg("%s: layer %zu, query head %zu: %zu tokens, not those of a head of its "
                                             "own, %zu",
                                             what, layer, head, n, m);
                        same_floats(kv_out(all, layer, 0, head), kv_out(one, layer, 0, h), all->dim_v, "outputs", what);
                        same_floats(kv_lse(all, layer, 0, head), kv_lse(one, layer, 0, h), 1, "log sums", what);
                        if (p->tail_lse == NULL)
                                continue;
                        same_floats(p->tail_lse + head, o->tail_lse + h, 1, "log sums of tails", what);
                        same_floats(p->tail_out + head * all->dim_v, o->tail_out + h * all->dim_v, all->dim_v, "tails",
                                    what);
                }
        }
}

/* Tokens [from, from + n) in the cache of all query heads, and in those of single ones. */
static void compare(dci_kv *all, int64_t sequence, const kv_data *data, dci_kv *const *ones, const int64_t *of,
                    const kv_data *parts, size_t from, size_t n, const char *what)
{
        for (size_t t = from; t < from + n; t++) {
                kv_seen seen = kv_decode(all, 1, &(kv_turn){sequence, data, t, 1});
                for (size_t q = 0; q < GROUP; q++) {
                        kv_seen one = kv_decode(ones[q], 1, &(kv_turn){of[q], &parts[q], t, 1});
                        same_as_single(&seen, &one, q, what);
                        kv_seen_free(&one);
                }
                kv_lawful(&seen, &all->config, 0, what);
                kv_seen_free(&seen);
        }
        ck_ok(dci_kv_check(all, DCI_CHECK_FULL, NULL));
}

/* Loops over kinds. Forks and truncations included: within the rollback, and deep. */
START_TEST(a_list_is_that_of_a_head_of_its_own)
{
        const dci_kv_config config = config_of(_i), alone = single(&config);
        const char *what = dci_kv_preset_name(config.preset);
        kv_data data = kv_random(&config, N, 5), parts[GROUP];
        dci_kv *all = kv_create(context, &config), *ones[GROUP];
        int64_t sequence = kv_begin(all, &data, PROMPT), of[GROUP];
        ck_assert_uint_eq(kv_info(all).n_lists, HEADS * GROUP);
        for (size_t q = 0; q < GROUP; q++) {
                parts[q] = part_of(&alone, &data, q);
                ones[q] = kv_create(context, &alone);
                of[q] = kv_begin(ones[q], &parts[q], PROMPT);
                ck_assert_uint_eq(kv_info(ones[q]).n_lists, HEADS);
        }
        compare(all, sequence, &data, ones, of, parts, PROMPT, 40, what);
        uint64_t n_plans = 0, n_decisions = 0, n_corrections = 0;
        for (size_t q = 0; q < GROUP; q++) {
                const dci_kv_sequence_info info = kv_sequence_info(ones[q], of[q]);
                n_plans += info.n_plans;
                n_decisions += info.n_decisions;
                n_corrections += info.n_corrections;
        }
        const dci_kv_sequence_info info = kv_sequence_info(all, sequence);
        test_hold(n_plans > 0 && info.n_plans == n_plans && info.n_decisions == n_decisions &&
                  info.n_corrections == n_corrections);
        test_hold((kinds[_i].schedule != DCI_KV_AHEAD && config.preset != DCI_KV_FREEKV) || n_corrections > 0);
        sequence = kv_fork_at(all, sequence, PROMPT + 30);
        for (size_t q = 0; q < GROUP; q++)
                of[q] = kv_fork_at(ones[q], of[q], PROMPT + 30);
        compare(all, sequence, &data, ones, of, parts, PROMPT + 30, 20, what);
        for (size_t cut = 0; cut < 2; cut++) {
                const size_t to = cut == 0 ? PROMPT + 45 : PROMPT - 60;
                ck_ok(dci_kv_truncate(all, sequence, to));
                for (size_t q = 0; q < GROUP; q++)
                        ck_ok(dci_kv_truncate(ones[q], of[q], to));
                compare(all, sequence, &data, ones, of, parts, to, 20, what);
        }
        for (size_t q = 0; q < GROUP; q++)
                kv_end(ones[q], &parts[q]);
        kv_end(all, &data);
}
END_TEST

/* Whether some head of a kv head attends to what another does not. */
static bool differ(const kv_seen *seen)
{
        for (size_t h = 0; h < HEADS; h++) {
                size_t n, m;
                const int32_t *a = kv_list(seen, 0, 0, h * GROUP, &n), *b = kv_list(seen, 0, 0, h * GROUP + 1, &m);
                if (n != m || memcmp(a, b, n * sizeof *a) != 0)
                        return true;
        }
        return false;
}

/* Loops over presets that rank by keys or rows of them, and over schedules: lists are the naive choice, with the whole room each, and
 * outputs attention over them. */
START_TEST(lists_are_the_naive_choice)
{
        static const int32_t presets[] = {DCI_KV_TOPK, DCI_KV_QUEST, DCI_KV_ARKVALE, DCI_KV_CLUSTERKV,
                                          DCI_KV_RETROINFER};
        dci_kv_config config = config_of(0);
        config.preset = presets[_i];
        config.combine = DCI_KV_COMBINE_EACH;
        config.estimate_share = 1.0;
        kv_data data = kv_random(&config, N, 6);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_model model = kv_model_of(&config, &data, PROMPT);
        bool apart = false;
        for (size_t t = PROMPT; t < PROMPT + 50; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_model_append(&model, &data, t, 1);
                for (size_t layer = 0; layer < LAYERS; layer++) {
                        const float *queries = kv_query(&data, layer, t, 0);
                        kv_model_check_out(&model, &seen, 0, layer, queries, "outputs");
                        kv_model_check_lists(&model, &seen, 0, layer, queries, config.budget, false, "lists");
                }
                apart = apart || differ(&seen);
                kv_seen_free(&seen);
        }
        test_hold(apart);
        kv_model_free(&model);
        kv_end(kv, &data);
}
END_TEST

/* Loops over kinds: any number of threads, and a batch beside one at a time. */
START_TEST(threads_and_batches_change_nothing)
{
        const dci_kv_config config = config_of(_i);
        kv_data data = kv_random(&config, N, 7);
        dci_context *many = test_context(4);
        dci_kv *one = kv_create(context, &config), *other = kv_create(many, &config);
        int64_t first[2], second[2];
        for (size_t i = 0; i < 2; i++) {
                first[i] = kv_begin(one, &data, PROMPT - 20 * i);
                second[i] = kv_begin(other, &data, PROMPT - 20 * i);
        }
        for (size_t t = 0; t < 12; t++) {
                const kv_turn turns[] = {{second[0], &data, PROMPT + t, 1}, {second[1], &data, PROMPT - 20 + t, 1}};
                kv_seen both = kv_decode(other, 2, turns);
                for (size_t i = 0; i < 2; i++) {
                        kv_seen seen = kv_decode(one, 1, &(kv_turn){first[i], &data, turns[i].from, 1});
                        kv_same(&seen, 0, &both, i, dci_kv_preset_name(config.preset));
                        kv_seen_free(&seen);
                }
                kv_seen_free(&both);
        }
        dci_kv_destroy(other);
        dci_context_destroy(many);
        kv_end(one, &data);
}
END_TEST

/* Loops over kinds: files say nothing of lists, so one of shared lists has what a cache with lists of query heads needs. */
START_TEST(files_of_shared_lists_are_read)
{
        const dci_kv_config config = config_of(_i);
        dci_kv_config shared = config;
        shared.query_head_lists = 0;
        kv_data data = kv_random(&config, N, 8);
        dci_kv *kv = kv_create(context, &config), *from = kv_create(context, &shared);
        const int64_t sequence = kv_begin(kv, &data, PROMPT), saved = kv_begin(from, &data, PROMPT);
        ck_ok(dci_kv_save(from, saved, PROMPT, scratch_path("shared")));
        int64_t loaded;
        ck_ok(dci_kv_load(kv, scratch_path("shared"), &loaded));
        kv_alike(kv, sequence, kv, loaded, &data, PROMPT, 20, dci_kv_preset_name(config.preset));
        dci_kv_destroy(from);
        kv_end(kv, &data);
}
END_TEST

/* LouisKV's turns are of all query heads: with lists of kv heads they come at the same steps. */
START_TEST(turns_come_when_they_come_with_shared_lists)
{
        dci_kv_config config = config_of(13);
        config.schedule = DCI_KV_BOUNDARY;
        config.tau = 0.02;
        dci_kv_config shared = config;
        shared.query_head_lists = 0;
        kv_data data = kv_random(&config, N, 9);
        dci_kv *kv = kv_create(context, &config), *other = kv_create(context, &shared);
        const int64_t sequence = kv_begin(kv, &data, PROMPT), of_other = kv_begin(other, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, 60);
        kv_decode_all(other, of_other, &data, PROMPT, 60);
        const dci_kv_sequence_info a = kv_sequence_info(kv, sequence), b = kv_sequence_info(other, of_other);
        test_hold(a.n_plans == GROUP * b.n_plans && a.n_decisions == GROUP * b.n_decisions);
        test_hold(b.n_decisions > HEADS * LAYERS && b.n_decisions < b.n_plans);
        dci_kv_destroy(other);
        kv_end(kv, &data);
}
END_TEST

/* AHEAD: one turn in a hundred is one of a query head's, not of a kv head's. */
START_TEST(tau_is_calibrated_by_query_heads)
{
        dci_kv_config config = config_of(17);
        kv_data data = kv_random(&config, 40, 10);
        double tau, wanted = 0.0;
        const size_t n = data.n, heads = HEADS * GROUP;
        const dci_kv_config alone = single(&config);
        ck_ok(dci_kv_calibrate(context, &config, 1, n, data.queries, data.dim_k, 0.3, &tau));
        /* The same of a cache with as many kv heads as query heads. */
        dci_kv_config wide = alone;
        wide.n_query_heads = wide.n_kv_heads = heads;
        ck_ok(dci_kv_calibrate(context, &wide, 1, n, data.queries, data.dim_k, 0.3, &wanted));
        ck_assert(memcmp(&tau, &wanted, sizeof tau) == 0);
        config.query_head_lists = 0;
        ck_ok(dci_kv_calibrate(context, &config, 1, n, data.queries, data.dim_k, 0.3, &wanted));
        ck_assert(tau < wanted || tau > wanted);
        kv_data_free(&data);
}
END_TEST

/* A plan with lists of kv heads is refused, and slots that no row has. */
START_TEST(plans_of_other_lists_are_refused)
{
        const dci_kv_config config = config_of(0);
        kv_data data = kv_random(&config, N, 11);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, PROMPT - 1, 0});
        dci_kv_plan plan = seen.plans[0];
        plan.n_lists = HEADS;
        const float *query = kv_query(&data, 0, PROMPT - 1, 0);
        ck_refused(dci_kv_plan_make(kv, 0, 1, &sequence, query, data.dim_k, &plan), DCI_ERR_INVALID,
                   "2 lists per sequence, expected 6");
        plan.n_lists = HEADS * GROUP;
        plan.counts[4] = (int32_t)plan.stride + 1;
        ck_refused(dci_kv_attend(kv, 0, 1, &sequence, query, data.dim_k, &plan, seen.out, data.dim_v, NULL),
                   DCI_ERR_INVALID, "list of query head 4");
        kv_seen_free(&seen);
        kv_end(kv, &data);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv heads");
        TCase *tcase = test_case_with(suite, "heads", 60, context_open_2, context_close);
        tcase_add_loop_test(tcase, a_list_is_that_of_a_head_of_its_own, 0, COUNT(kinds));
        tcase_add_loop_test(tcase, lists_are_the_naive_choice, 0, 5);
        tcase_add_loop_test(tcase, threads_and_batches_change_nothing, 0, COUNT(kinds));
        tcase_add_test(tcase, turns_come_when_they_come_with_shared_lists);
        tcase_add_test(tcase, tau_is_calibrated_by_query_heads);
        tcase_add_test(tcase, plans_of_other_lists_are_refused);
        TCase *files = test_case_with(suite, "files", 60, context_open_2, context_close);
        tcase_add_checked_fixture(files, scratch_open, scratch_close);
        tcase_add_loop_test(files, files_of_shared_lists_are_read, 0, COUNT(kinds));
        return test_main(suite);
}
