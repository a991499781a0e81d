/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: when lists are decided again. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kv/lookup.h"
#include "tests/context_fixture.h"
#include "tests/kv_schedule.h"
#include "tests/scratch.h"

enum { PROMPT = 200, N = 330 };

/* What goes with every schedule. */
static const struct {
        int32_t preset, tail, combine;
} kinds[] = {{DCI_KV_SKETCH, 0, 0},        {DCI_KV_SKETCH_LOWBIT, 0, 0},
             {DCI_KV_SKETCH_SUMS, 0, 0},   {DCI_KV_QUEST, 0, 0},
             {DCI_KV_TOPK, 0, 0},          {DCI_KV_ARKVALE, DCI_KV_TAIL_SUMS, DCI_KV_COMBINE_SOFTMAX},
             {DCI_KV_FREEKV, 0, 0},        {DCI_KV_SKETCH_LOWBIT, 0, DCI_KV_COMBINE_MEAN},
             {KV_LEARNED, 0, 0},           {DCI_KV_ICECACHE, 0, 0},
             {DCI_KV_SKETCH_GROUPS, 0, 0}, {DCI_KV_SKETCH_VERIFY, DCI_KV_TAIL_DROP, 0},
             {DCI_KV_SKETCH_VERIFY, 0, 0}};

static dci_kv_config config_of(size_t kind, int32_t schedule)
{
        dci_kv_config config = kv_small(kinds[kind].preset);
        config.n_layers = 3;
        config.schedule = schedule;
        config.combine = kinds[kind].combine;
        if (kinds[kind].tail != 0)
                config.tail = kinds[kind].tail;
        config.verify = kinds[kind].preset == DCI_KV_SKETCH_VERIFY ? 1.5 : 0.0;
        return config;
}

/* Scores that know nothing but candidates; a search ranks for each query head anyway. */
static int32_t plain_combine(size_t kind)
{
        return kinds[kind].preset == DCI_KV_ICECACHE ? DCI_KV_COMBINE_EACH : DCI_KV_COMBINE_MEAN;
}

/* Two caches that decode the same from a prompt of the same. */
typedef struct pair {
        dci_kv *one, *other;
        int64_t a, b;
        kv_data data;
} pair;

static pair begin(const dci_kv_config *one, const dci_kv_config *other, uint64_t seed)
{
        pair p = {.one = kv_create(context, one), .other = kv_create(context, other), .data = kv_random(one, N, seed)};
        p.a = kv_begin(p.one, &p.data, PROMPT);
        p.b = kv_begin(p.other, &p.data, PROMPT);
        return p;
}

static void end(pair *p)
{
        dci_kv_destroy(p->one);
        kv_end(p->other, &p->data);
}

/* Queries of all tokens from `first` on become those of token `first`. */
static void hold_queries(kv_data *d, size_t first)
{
        const size_t row = d->n_kv_heads * d->group * d->dim_k, es = dci_dtype_size(d->query_dtype);
        for (size_t layer = 0; layer < d->n_layers; layer++)
                for (size_t t = first + 1; t < d->n; t++) {
                        memcpy(d->queries + (layer * d->n + t) * row, d->queries + (layer * d->n + first) * row,
                               row * sizeof(float));
                        memcpy((char *)d->stored_queries + (layer * d->n + t) * row * es,
                               (char *)d->stored_queries + (layer * d->n + first) * row * es, row * es);
                }
}

/* --- the same as deciding every step ---------------------------------------------------------------------------------- */

/* Loops over kinds. */
START_TEST(a_schedule_that_always_decides_is_every_step)
{
        static const struct {
                const char *what;
                int32_t schedule;
        } always[] = {{"period 1", DCI_KV_PERIODIC},
                      {"boundary, tau 1", DCI_KV_BOUNDARY},
                      {"ahead, tau 1", DCI_KV_AHEAD},
                      {"anchor period 1", DCI_KV_ANCHOR}};
        for (size_t i = 0; i < COUNT(always); i++) {
                dci_kv_config config = config_of((size_t)_i, always[i].schedule),
                              every = config_of((size_t)_i, DCI_KV_EVERY_STEP);
                config.period = config.anchor_period = 1;
                config.anchor_first = 0;
                config.tau = 1.0;
                pair p = begin(&config, &every, 300 + i);
                kv_alike(p.one, p.a, p.other, p.b, &p.data, PROMPT, N - PROMPT, always[i].what);
                const dci_kv_sequence_info info = kv_sequence_info(p.one, p.a);
                ck_assert_uint_eq(info.n_plans, (N - PROMPT) * 3 * 2);
                ck_assert_uint_eq(info.n_decisions, info.n_plans);
                ck_assert_uint_eq(info.n_corrections, always[i].schedule == DCI_KV_AHEAD ? info.n_plans - 3 * 2 : 0);
                end(&p);
        }
}
END_TEST

/* Just longer than the budget, with recent tokens that wait for their group, a sequence has fewer candidates than a list may get: all of
 * them are ranked, static ones before. Loops over combine. */
START_TEST(few_candidates_are_ranked_as_at_every_step)
{
        for (int32_t schedule = DCI_KV_PERIODIC; schedule <= DCI_KV_AHEAD; schedule++) {
                dci_kv_config config = kv_small(DCI_KV_PRKV), every;
                config.combine = _i;
                config.rollback = 30;
                config.static_share = 0.5;
                config.period = config.anchor_period = 1;
                config.anchor_first = 0;
                config.tau = 1.0;
                every = config;
                config.schedule = schedule;
                pair p = {.one = kv_create(context, &config),
                          .other = kv_create(context, &every),
                          .data = kv_random(&config, N, 305)};
                for (size_t n = config.budget; n < config.budget + 20; n += 5) {
                        const int64_t a = kv_begin(p.one, &p.data, n), b = kv_begin(p.other, &p.data, n);
                        kv_alike(p.one, a, p.other, b, &p.data, n, 12, "few");
                        ck_ok(dci_kv_close(p.one, a));
                        ck_ok(dci_kv_close(p.other, b));
                }
                end(&p);
        }
}
END_TEST

/* --- lists that are kept ---------------------------------------------------------------------------------------------- */

/* Loops over kinds. Sketches, too: a list that is kept names what it named before, but for what no longer has room. */
START_TEST(lists_that_are_kept_do_not_change)
{
        dci_kv_config config = config_of((size_t)_i, DCI_KV_PERIODIC);
        config.period = 1000;
        config.frozen_prompt = 1; /* room stays the same */
        dci_kv *kv = kv_create(context, &config);
        kv_data data = kv_random(&config, N, 310);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_seen first = kv_decode(kv, 1, &(kv_turn){sequence, &data, PROMPT, 1});
        for (size_t t = PROMPT + 1; t < N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                for (size_t layer = 0; layer < 3; layer++)
                        for (size_t h = 0; h < 2; h++) {
                                size_t n, m;
                                const int32_t *was = kv_list(&first, layer, 0, h, &n),
                                              *is = kv_list(&seen, layer, 0, h, &m);
                                ck_assert_uint_eq(n, m);
                                ck_assert_mem_eq(was, is, n * sizeof *is);
                        }
                kv_seen_free(&seen);
        }
        ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_decisions, 3 * 2);
        kv_seen_free(&first);
        kv_end(kv, &data);
}
END_TEST

/* Loops over schedules. Every plan against the model, with and without maintenance, and counts. */
START_TEST(plans_are_those_of_the_model)
{
        static const int32_t presets[] = {DCI_KV_TOPK, DCI_KV_QUEST, DCI_KV_ARKVALE, DCI_KV_PAGEMEAN, DCI_KV_SKETCH};
        static const double taus[] = {-0.2, 0.02, 0.2};
        for (size_t way = 0; way < COUNT(presets) * COUNT(taus); way++) {
                dci_kv_config config = kv_small(presets[way % COUNT(presets)]);
                config.n_layers = 4;
                config.schedule = (int32_t)_i;
                config.tau = taus[way / COUNT(presets)];
                config.period = 3 + way;
                config.anchor_first = 0;
                dci_kv *kv = kv_create(context, &config);
                kv_data data = kv_random(&config, N, 320 + way);
                kv_model model = kv_model_of(&config, &data, PROMPT);
                kv_schedule schedule = kv_schedule_new(&config);
                const int64_t sequence = kv_begin(kv, &data, PROMPT);
                for (size_t t = PROMPT; t < N; t++) {
                        const kv_turn turn = {sequence, &data, t, 1};
                        kv_model_append(&model, &data, t, 1);
                        if (way % 2 == 0)
                                kv_feed(kv, 1, &turn);
                        kv_seen seen = way % 2 == 0 ? kv_look(kv, 1, &turn) : kv_decode(kv, 1, &turn);
                        kv_lawful(&seen, &config, 0, "scheduled");
                        for (size_t layer = 0; layer < 4; layer++) {
                                kv_schedule_plan(&schedule, &model, &seen, 0, layer, kv_query(&data, layer, t, 0),
                                                 "scheduled");
                                kv_model_check_out(&model, &seen, 0, layer, kv_query(&data, layer, t, 0), "scheduled");
                        }
                        kv_seen_free(&seen);
                }
                const dci_kv_sequence_info info = kv_sequence_info(kv, sequence);
                kv_schedule_check_counts(&schedule, &info, "scheduled");
                test_hold(!schedule.lost && info.n_plans == (N - PROMPT) * 4 * 2);
                test_hold(info.n_decisions > 0 && info.n_decisions < info.n_plans);
                kv_schedule_free(&schedule);
                kv_model_free(&model);
                kv_end(kv, &data);
        }
}
END_TEST

/* Loops over schedules. Kept lists of groups that are not by position, which may be other groups by now, against the model. */
START_TEST(kept_lists_are_those_of_the_groups_there_were)
{
        static const int32_t presets[] = {DCI_KV_PRKV, DCI_KV_CLUSTERKV, DCI_KV_LOUISKV};
        static const size_t prompts[] = {70, 100, 200}; /* the budget is 96 */
        for (size_t way = 0; way < COUNT(presets) * COUNT(prompts); way++)
                for (int32_t combine = 1; combine <= DCI_KV_COMBINES; combine++) {
                        const size_t prompt = prompts[way / COUNT(presets)];
                        dci_kv_config config = kv_small(presets[way % COUNT(presets)]);
                        config.schedule = (int32_t)_i;
                        config.combine = combine;
                        config.rollback = 30;
                        config.tau = 0.05;
                        config.period = 5;
                        config.anchor_first = 0;
                        config.cluster_tokens = 5;
                        config.cluster_every = 20;
                        config.static_share = 0.4;
                        dci_kv *kv = kv_create(context, &config);
                        kv_data data = kv_random(&config, N, 325 + way);
                        kv_model model = kv_model_of(&config, &data, prompt);
                        kv_schedule schedule = kv_schedule_new(&config);
                        const int64_t sequence = kv_begin(kv, &data, prompt);
                        for (size_t t = prompt; t < prompt + 60; t++) {
                                const kv_turn turn = {sequence, &data, t, 1};
                                kv_model_append(&model, &data, t, 1);
                                kv_feed(kv, 1, &turn);
                                kv_seen seen = kv_look(kv, 1, &turn);
                                kv_lawful(&seen, &config, 0, "kept");
                                for (size_t layer = 0; layer < 2; layer++)
                                        kv_schedule_plan(&schedule, &model, &seen, 0, layer,
                                                         kv_query(&data, layer, t, 0), "kept");
                                kv_seen_free(&seen);
                        }
                        const dci_kv_sequence_info info = kv_sequence_info(kv, sequence);
                        kv_schedule_check_counts(&schedule, &info, "kept");
                        test_hold(!schedule.lost && info.n_decisions > 0 && info.n_decisions < info.n_plans);
                        kv_schedule_free(&schedule);
                        kv_model_free(&model);
                        kv_end(kv, &data);
                }
}
END_TEST

/* Loops over kinds. Queries that stay where they are keep the list of the first, and tails go on with the queries of now. */
START_TEST(queries_that_stay_decide_once)
{
        dci_kv_config config = config_of((size_t)_i, DCI_KV_BOUNDARY), every = config_of((size_t)_i, DCI_KV_EVERY_STEP);
        config.frozen_prompt = every.frozen_prompt = 1;
        /* The softmax over a sequence's tokens knows recent keys, too. */
        config.combine = every.combine = plain_combine((size_t)_i);
        config.tau = 1.0;
        pair p = begin(&config, &every, 330);
        hold_queries(&p.data, PROMPT + 20);
        kv_alike(p.one, p.a, p.other, p.b, &p.data, PROMPT, N - PROMPT, "queries that stay");
        const dci_kv_sequence_info info = kv_sequence_info(p.one, p.a);
        ck_assert_uint_eq(info.n_decisions, 21 * 3 * 2);
        end(&p);
}
END_TEST

/* Loops over kinds. Never corrected: the list is that of the queries before, which a cache that decides every step is asked with. */
START_TEST(a_plan_ahead_is_that_of_the_queries_before)
{
        dci_kv_config config = config_of((size_t)_i, DCI_KV_AHEAD), every = config_of((size_t)_i, DCI_KV_EVERY_STEP);
        config.frozen_prompt = every.frozen_prompt = 1; /* candidates stay the same */
        config.combine = every.combine = plain_combine((size_t)_i);
        config.tau = nextafter(-1.0, 0.0);
        pair p = begin(&config, &every, 340);
        for (size_t t = PROMPT; t < N; t++) {
                const kv_turn now = {p.a, &p.data, t, 1}, same = {p.b, &p.data, t, 1},
                              before = {p.b, &p.data, t == PROMPT ? t : t - 1, 0};
                kv_seen ahead = kv_decode(p.one, 1, &now);
                kv_feed(p.other, 1, &same);
                kv_seen wanted = kv_look(p.other, 1, &before);
                for (size_t layer = 0; layer < 3; layer++)
                        for (size_t h = 0; h < 2; h++) {
                                size_t n, m;
                                const int32_t *is = kv_list(&ahead, layer, 0, h, &n),
                                              *list = kv_list(&wanted, layer, 0, h, &m);
                                ck_assert_uint_eq(n, m);
                                ck_assert_mem_eq(is, list, n * sizeof *is);
                        }
                kv_seen_free(&ahead);
                kv_seen_free(&wanted);
        }
        ck_assert_uint_eq(kv_sequence_info(p.one, p.a).n_corrections, 0);
        end(&p);
}
END_TEST

/* --- boundaries and rings, which groups are formed by ------------------------------------------------------------------- */

START_TEST(boundaries_are_the_tokens_whose_queries_turn)
{
        dci_kv_config config = config_of(0, DCI_KV_BOUNDARY);
        config.tau = 0.1;
        dci_kv *kv = kv_create(context, &config);
        kv_data data = kv_random(&config, N, 350);
        int64_t sequence = kv_begin(kv, &data, PROMPT), fork;
        size_t wanted[N], n = 0;
        uint64_t before = 0;
        for (size_t t = PROMPT; t < N; t++) {
                kv_decode_all(kv, sequence, &data, t, 1);
                /* Layer by layer they turn at other tokens: the count of all tells about layers 0 to 2 together. */
                const uint64_t now = kv_sequence_info(kv, sequence).n_decisions;
                n += (size_t)(now - before) / 2 - (t == PROMPT ? 3 : 0);
                wanted[t] = n;
                before = now;
        }
        dci_kv_sequence *found = dci_kv_find(kv, sequence);
        size_t at_layer[3] = {0};
        for (size_t t = PROMPT; t < N; t++) {
                size_t so_far = 0;
                for (size_t layer = 0; layer < 3; layer++) {
                        const dci_kv_layer *l = &found->layers[layer];
                        while (at_layer[layer] < l->n_boundaries && (size_t)l->boundaries[at_layer[layer]] <= t)
                                at_layer[layer]++;
                        so_far += at_layer[layer];
                }
                ck_assert_uint_eq(so_far, wanted[t]);
        }
        ck_assert_uint_gt(n, 20);
        ck_ok(dci_kv_fork(kv, sequence, N - 30, &fork));
        for (size_t layer = 0; layer < 3; layer++) {
                const dci_kv_layer *cut = &dci_kv_find(kv, fork)->layers[layer], *whole = &found->layers[layer];
                size_t left = 0;
                while (left < whole->n_boundaries && whole->boundaries[left] < N - 30)
                        left++;
                ck_assert_uint_eq(cut->n_boundaries, left);
                ck_assert_mem_eq(cut->boundaries, whole->boundaries, left * sizeof *cut->boundaries);
        }
        kv_end(kv, &data);
}
END_TEST

/* Loops over schedules. */
START_TEST(rings_hold_the_queries_of_the_last_plans)
{
        dci_kv_config config = config_of(0, (int32_t)_i);
        config.ring = 7;
        dci_kv *kv = kv_create(context, &config);
        kv_data data = kv_random(&config, N, 360);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, 30);
        const size_t row = 2 * config.dim_k;
        for (size_t layer = 0; layer < 3; layer++) {
                const dci_kv_selection_cache *d = dci_kv_find(kv, sequence)->layers[layer].selection;
                ck_assert_uint_eq(d->n_pushed, 30);
                for (size_t back = 1; back <= 7; back++)
                        for (size_t h = 0; h < 2; h++)
                                for (size_t j = 0; j < row; j++) {
                                        const float is = d->ring[(h * 7 + (30 - back) % 7) * row + j],
                                                    was = kv_query(&data, layer, PROMPT + 30 - back, h * 2)[j];
                                        ck_assert_msg(fabsf(is - was * 0.25f) <= 1e-6f, "%g, wanted %g", (double)is,
                                                      (double)was * 0.25);
                                }
        }
        kv_end(kv, &data);
}
END_TEST

/* --- anchors ------------------------------------------------------------------------------------------------------------ */

/* Loops over kinds. */
START_TEST(layers_between_anchors_use_their_lists)
{
        dci_kv_config config = config_of((size_t)_i, DCI_KV_ANCHOR), every = config_of((size_t)_i, DCI_KV_EVERY_STEP);
        config.n_layers = every.n_layers = 6;
        config.anchor_first = 1;
        config.anchor_period = 3;
        pair p = begin(&config, &every, 370);
        static const size_t anchors[] = {0, 1, 1, 1, 4, 4};
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen seen = kv_decode(p.one, 1, &(kv_turn){p.a, &p.data, t, 1});
                kv_seen wanted = kv_decode(p.other, 1, &(kv_turn){p.b, &p.data, t, 1});
                for (size_t layer = 0; layer < 6; layer++)
                        for (size_t h = 0; h < 2; h++) {
                                size_t n, m;
                                const int32_t *is = kv_list(&seen, layer, 0, h, &n),
                                              *list = kv_list(&wanted, anchors[layer], 0, h, &m);
                                ck_assert_uint_eq(n, m);
                                ck_assert_mem_eq(is, list, n * sizeof *is);
                        }
                kv_seen_free(&seen);
                kv_seen_free(&wanted);
        }
        const dci_kv_sequence_info info = kv_sequence_info(p.one, p.a);
        ck_assert_uint_eq(info.n_plans, (N - PROMPT) * 6 * 2);
        ck_assert_uint_eq(info.n_decisions, (N - PROMPT) * 3 * 2);
        const size_t with = kv_info(p.other).summary_bytes, without = kv_info(p.one).summary_bytes;
        const dci_kv_info of = kv_info(p.one);
        ck_assert_uint_eq(without, of.tail == DCI_KV_TAIL_DROP ? with / 2 : with);
        end(&p);
}
END_TEST

START_TEST(a_layer_between_is_planned_after_its_anchor)
{
        dci_kv_config config = config_of(0, DCI_KV_ANCHOR);
        config.anchor_first = 0;
        dci_kv *kv = kv_create(context, &config);
        kv_data data = kv_random(&config, N, 380);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        dci_kv_plan plan = kv_plan(kv, 1);
        const float *queries = kv_query(&data, 1, PROMPT, 0);
        ck_refused(dci_kv_plan_make(kv, 1, 1, &sequence, queries, 16, &plan), DCI_ERR_INVALID, "layer 0");
        ck_ok(dci_kv_plan_make(kv, 0, 1, &sequence, queries, 16, &plan));
        ck_ok(dci_kv_plan_make(kv, 1, 1, &sequence, queries, 16, &plan));
        const kv_turn turn = {sequence, &data, PROMPT, 1};
        kv_reserve(kv, 1, &turn);
        kv_append(kv, 1, 1, &turn);
        ck_refused(dci_kv_plan_make(kv, 1, 1, &sequence, queries, 16, &plan), DCI_ERR_INVALID, "201 tokens");
        kv_append(kv, 0, 1, &turn);
        ck_ok(dci_kv_plan_make(kv, 0, 1, &sequence, queries, 16, &plan));
        ck_ok(dci_kv_plan_make(kv, 1, 1, &sequence, queries, 16, &plan));
        /* What the aborted step's plan found at 201 tokens is none of the next step's. */
        ck_ok(dci_kv_step_abort(kv, 1, &sequence));
        kv_reserve(kv, 1, &turn);
        kv_append(kv, 1, 1, &turn);
        ck_refused(dci_kv_plan_make(kv, 1, 1, &sequence, queries, 16, &plan), DCI_ERR_INVALID, "201 tokens");
        dci_kv_plan_destroy(kv, &plan);
        kv_end(kv, &data);
}
END_TEST

/* --- the life of sequences ---------------------------------------------------------------------------------------------- */

static void draw_schedule(dci_kv_config *config, int32_t schedule)
{
        config->schedule = schedule;
        config->period = 7;
        config->tau = 0.05;
        config->anchor_first = 0;
}

/* Loops over kinds. */
START_TEST(forks_go_on_with_what_was_decided)
{
        for (int32_t schedule = DCI_KV_PERIODIC; schedule <= DCI_KV_AHEAD; schedule++) {
                dci_kv_config config = config_of((size_t)_i, 0);
                draw_schedule(&config, schedule);
                pair p = begin(&config, &config, 390);
                kv_decode_all(p.one, p.a, &p.data, PROMPT, 45);
                kv_decode_all(p.other, p.b, &p.data, PROMPT, 45);
                int64_t fork;
                ck_ok(dci_kv_fork(p.one, p.a, PROMPT + 45, &fork));
                kv_alike(p.one, fork, p.other, p.b, &p.data, PROMPT + 45, 40, "fork");
                ck_assert_uint_eq(kv_sequence_info(p.one, fork).n_plans, 40 * 3 * 2);
                end(&p);
        }
}
END_TEST

/* Within the rollback truncation leaves the lists, deeper it forgets them: what follows is decided by the next plan. */
START_TEST(cutting_into_candidates_forgets_lists)
{
        for (int32_t schedule = DCI_KV_PERIODIC; schedule <= DCI_KV_AHEAD; schedule++)
                for (size_t way = 0; way < 2; way++) {
                        dci_kv_config config = config_of(0, schedule);
                        config.period = 1000;
                        config.tau = nextafter(-1.0, 0.0);
                        config.anchor_first = 0;
                        dci_kv *kv = kv_create(context, &config);
                        kv_data data = kv_random(&config, N, 400);
                        const int64_t sequence = kv_begin(kv, &data, PROMPT);
                        kv_decode_all(kv, sequence, &data, PROMPT, 60);
                        const uint64_t before = kv_sequence_info(kv, sequence).n_decisions;
                        const size_t left = PROMPT + 60 - (way == 0 ? 10 : 90);
                        ck_ok(dci_kv_truncate(kv, sequence, left));
                        kv_decode_all(kv, sequence, &data, left, 3);
                        const uint64_t more = kv_sequence_info(kv, sequence).n_decisions - before;
                        ck_assert_uint_eq(more, schedule == DCI_KV_ANCHOR ? 3 * 2 : way == 0 ? 0 : 3 * 2);
                        kv_end(kv, &data);
                }
}
END_TEST

/* Loops over kinds. The first plan after a file decides, whatever was decided before. */
START_TEST(what_is_loaded_decides_first)
{
        for (int32_t schedule = DCI_KV_PERIODIC; schedule <= DCI_KV_AHEAD; schedule++) {
                dci_kv_config config = config_of((size_t)_i, 0), every = config_of((size_t)_i, DCI_KV_EVERY_STEP);
                draw_schedule(&config, schedule);
                pair p = begin(&config, &every, 410);
                int64_t loaded;
                kv_decode_all(p.one, p.a, &p.data, PROMPT, 20);
                kv_decode_all(p.other, p.b, &p.data, PROMPT, 20);
                ck_ok(dci_kv_save(p.one, p.a, PROMPT + 20, scratch_path("scheduled")));
                ck_ok(dci_kv_load(p.one, scratch_path("scheduled"), &loaded));
                kv_seen seen = kv_look(p.one, 1, &(kv_turn){loaded, &p.data, PROMPT + 20, 0}),
                        wanted = kv_look(p.other, 1, &(kv_turn){p.b, &p.data, PROMPT + 20, 0});
                if (schedule != DCI_KV_ANCHOR)
                        kv_same(&seen, 0, &wanted, 0, "loaded");
                const dci_kv_sequence_info info = kv_sequence_info(p.one, loaded);
                ck_assert_uint_eq(info.n_plans, 3 * 2);
                ck_assert_uint_eq(info.n_decisions, schedule == DCI_KV_ANCHOR ? 2 : 3 * 2);
                kv_seen_free(&seen);
                kv_seen_free(&wanted);
                end(&p);
        }
}
END_TEST

/* Loops over kinds. Sequences of a call decide each for itself, at any number of threads. */
START_TEST(sequences_decide_each_for_itself)
{
        for (int32_t schedule = DCI_KV_PERIODIC; schedule <= DCI_KV_AHEAD; schedule++) {
                dci_kv_config config = config_of((size_t)_i, 0);
                draw_schedule(&config, schedule);
                dci_context *single = test_context(1);
                dci_kv *kv = kv_create(context, &config), *alone = kv_create(single, &config);
                kv_data data = kv_random(&config, N, 420);
                kv_turn turns[3], own[3];
                for (size_t i = 0; i < 3; i++) {
                        turns[i] = (kv_turn){kv_begin(kv, &data, PROMPT - 40 * i), &data, PROMPT - 40 * i, 1};
                        own[i] = turns[i];
                        own[i].sequence = kv_begin(alone, &data, PROMPT - 40 * i);
                        /* Out of step with each other. */
                        kv_decode_all(kv, turns[i].sequence, &data, turns[i].from, i);
                        kv_decode_all(alone, own[i].sequence, &data, own[i].from, i);
                        own[i].from = turns[i].from += i;
                }
                for (size_t t = 0; t < 50; t++) {
                        kv_seen seen = kv_decode(kv, 3, turns);
                        for (size_t i = 0; i < 3; i++) {
                                kv_seen one = kv_decode(alone, 1, &own[i]);
                                kv_same(&seen, i, &one, 0, "batch");
                                kv_seen_free(&one);
                                own[i].from = ++turns[i].from;
                        }
                        kv_seen_free(&seen);
                }
                dci_kv_destroy(kv);
                dci_kv_destroy(alone);
                dci_context_destroy(single);
                kv_data_free(&data);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv schedules");
        TCase *tcase = test_case_with(suite, "schedules", 60, context_open_2, context_close);
        tcase_add_checked_fixture(tcase, scratch_open, scratch_close);
        tcase_add_loop_test(tcase, a_schedule_that_always_decides_is_every_step, 0, COUNT(kinds));
        tcase_add_loop_test(tcase, few_candidates_are_ranked_as_at_every_step, DCI_KV_COMBINE_SOFTMAX,
                            DCI_KV_COMBINES + 1);
        tcase_add_loop_test(tcase, lists_that_are_kept_do_not_change, 0, COUNT(kinds));
        tcase_add_loop_test(tcase, plans_are_those_of_the_model, DCI_KV_PERIODIC, DCI_KV_AHEAD + 1);
        tcase_add_loop_test(tcase, kept_lists_are_those_of_the_groups_there_were, DCI_KV_PERIODIC, DCI_KV_AHEAD + 1);
        /* but for the last kind: a plan that keeps its list reads no keys for what it leaves to the tail */
        tcase_add_loop_test(tcase, queries_that_stay_decide_once, 0, COUNT(kinds) - 1);
        tcase_add_loop_test(tcase, a_plan_ahead_is_that_of_the_queries_before, 0, COUNT(kinds));
        tcase_add_test(tcase, boundaries_are_the_tokens_whose_queries_turn);
        tcase_add_loop_test(tcase, rings_hold_the_queries_of_the_last_plans, DCI_KV_EVERY_STEP, DCI_KV_EVERY_STEP + 1);
        tcase_add_loop_test(tcase, rings_hold_the_queries_of_the_last_plans, DCI_KV_PERIODIC, DCI_KV_AHEAD + 1);
        tcase_add_loop_test(tcase, layers_between_anchors_use_their_lists, 0, COUNT(kinds));
        tcase_add_test(tcase, a_layer_between_is_planned_after_its_anchor);
        tcase_add_loop_test(tcase, forks_go_on_with_what_was_decided, 0, COUNT(kinds));
        tcase_add_test(tcase, cutting_into_candidates_forgets_lists);
        tcase_add_loop_test(tcase, what_is_loaded_decides_first, 0, COUNT(kinds));
        tcase_add_loop_test(tcase, sequences_decide_each_for_itself, 0, COUNT(kinds));
        return test_main(suite);
}
