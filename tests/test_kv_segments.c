/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Segments: where they end, when they leave the buffer, and what cuts, forks and files make of them. */
#include "tests/common.h"

#include <string.h>

#include "core/file.h"
#include "kv/clusters.h"
#include "kv/lookup.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"
#include "tests/kv_schedule.h"
#include "tests/persist_fixture.h"
#include "tests/persist_seal.h"
#include "tests/scratch.h"

enum { PROMPT = 200, N = 520, BUFFER = 40, ROLLBACK = 16 };

/* A gate that about a quarter of steps pass, so that segments have many lengths. */
static dci_kv_config small(void)
{
        dci_kv_config config = kv_small(DCI_KV_LOUISKV);
        config.cluster_tokens = 8;
        config.budget = 128;
        config.segment_buffer = BUFFER;
        config.rollback = ROLLBACK;
        config.tau = -0.15;
        return config;
}

/* --- the naive rule -------------------------------------------------------------------------------------------------------- */

static bool turns_at(const dci_kv_layer *layer, size_t token)
{
        for (size_t i = 0; i < layer->n_boundaries; i++)
                if ((size_t)layer->boundaries[i] == token)
                        return true;
        return false;
}

/* The first token after a segment that begins at this one, token by token. */
static size_t naive_end(const dci_kv_layer *layer, size_t token, const dci_kv_config *config)
{
        size_t end = token + 1;
        while (end - token < config->segment_buffer / 2 && end != layer->n_prompt &&
               (!turns_at(layer, end) || end - token < config->segment_least))
                end++;
        return end;
}

/* Fails unless the groups after the prompt's clusters are the naive segments, in batches of the naive lengths, in all heads the same; fills
 * in how many segments there are and the tokens of the longest. */
static void check_segments(dci_kv *kv, int64_t sequence, size_t layer, size_t *out_n, size_t *out_longest)
{
        const dci_kv_layer *l = kv_layer_of(kv, sequence, layer);
        const size_t sink = kv->config.sink, buffer = kv->config.segment_buffer;
        size_t at = sink + l->batches[0]->n, n = 0, longest = 0;
        for (size_t b = 1; b < l->n_batches; b++) {
                const dci_kv_clusters *batch = l->batches[b];
                const size_t begin = at;
                ck_assert_uint_eq(sink + batch->first, at);
                for (size_t g = 0; g < batch->heads[0].n_groups; g++) {
                        const size_t end = naive_end(l, at, &kv->config);
                        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                                const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, h);
                                ck_assert_uint_eq(batch->heads[h].n_groups, batch->heads[0].n_groups);
                                ck_assert_int_eq(offsets[g + 1] - offsets[g], (int32_t)(end - at));
                                ck_assert_int_eq(dci_kv_cluster_ids(kv, batch, h)[offsets[g]], (int32_t)(at - sink));
                        }
                        longest = end - at > longest ? end - at : longest;
                        /* Another one only within the eighth, and all of those. */
                        test_hold(g == 0 || end - begin <= buffer / 8);
                        at = end;
                        n++;
                }
                ck_assert_uint_eq(at - begin, batch->n);
                test_hold(naive_end(l, at, &kv->config) - begin > buffer / 8);
        }
        /* What is left is what the buffer holds, or the segment that overflows it is not older than the rollback. */
        const size_t next = naive_end(l, at, &kv->config);
        test_hold(l->n - at <= buffer || next + kv->config.rollback > l->n);
        *out_n = n;
        *out_longest = longest;
}

/* Loops over layers. */
START_TEST(segments_end_where_queries_turn)
{
        const dci_kv_config config = small();
        kv_data data = kv_random(&config, N, 1);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        size_t n = 0, longest = 0;
        for (size_t t = PROMPT; t < N; t++) {
                kv_decode_all(kv, sequence, &data, t, 1);
                check_segments(kv, sequence, (size_t)_i, &n, &longest);
        }
        const dci_kv_layer *layer = kv_layer_of(kv, sequence, (size_t)_i);
        ck_assert_uint_eq(layer->batches[0]->n, PROMPT - ROLLBACK - kv_info(kv).sink);
        ck_assert_uint_gt(layer->n_boundaries, 20);
        test_hold(n > 30 && longest > 8 && longest <= BUFFER / 2 && layer->n_batches - 1 < n);
        ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_early, 0);
        kv_end(kv, &data);
}
END_TEST

/* A boundary too close to the segment's begin ends nothing. Loops over lengths. */
START_TEST(segments_have_a_least_length)
{
        static const size_t least[] = {1, 2, 5, BUFFER / 2};
        dci_kv_config config = small();
        config.segment_least = least[_i];
        kv_data data = kv_random(&config, N, 1);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        size_t n = 0, longest = 0, shorter = 0;
        for (size_t t = PROMPT; t < N; t++) {
                kv_decode_all(kv, sequence, &data, t, 1);
                check_segments(kv, sequence, 0, &n, &longest);
        }
        const dci_kv_layer *layer = kv_layer_of(kv, sequence, 0);
        for (size_t b = 1; b < layer->n_batches; b++)
                for (size_t g = 0; g < layer->batches[b]->heads[0].n_groups; g++) {
                        const int32_t *offsets = dci_kv_cluster_offsets(kv, layer->batches[b], 0);
                        shorter += (size_t)(offsets[g + 1] - offsets[g]) < least[_i];
                }
        /* The one that the prompt ends may be. */
        ck_assert_uint_le(shorter, 1);
        test_hold(n > 10 && longest <= BUFFER / 2 && layer->n_boundaries > 20);
        kv_end(kv, &data);
}
END_TEST

/* Layers gate for themselves. */
START_TEST(layers_have_segments_of_their_own)
{
        const dci_kv_config config = small();
        kv_data data = kv_random(&config, N, 2);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, N - PROMPT);
        const dci_kv_layer *a = kv_layer_of(kv, sequence, 0), *b = kv_layer_of(kv, sequence, 1);
        test_hold(a->n_boundaries != b->n_boundaries ||
                  memcmp(a->boundaries, b->boundaries, a->n_boundaries * sizeof *a->boundaries) != 0);
        kv_end(kv, &data);
}
END_TEST

/* Queries that never turn, and schedules that do not look, give segments of half of the buffer. */
START_TEST(segments_that_never_close_are_half_of_the_buffer)
{
        dci_kv_config config = small();
        config.tau = -0.999;
        config.schedule = _i == 0 ? DCI_KV_BOUNDARY : DCI_KV_EVERY_STEP;
        kv_data data = kv_random(&config, N, 3);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, N - PROMPT);
        const dci_kv_layer *layer = kv_layer_of(kv, sequence, 0);
        ck_assert_uint_eq(layer->n_boundaries, 0);
        ck_assert_uint_gt(layer->n_batches, 10);
        for (size_t b = 1; b < layer->n_batches; b++) {
                /* The prompt's last tokens, which its clusters must not have, are a segment. */
                ck_assert_uint_eq(layer->batches[b]->n, b == 1 ? ROLLBACK : BUFFER / 2);
                ck_assert_uint_eq(layer->batches[b]->heads[1].n_groups, 1);
        }
        kv_end(kv, &data);
}
END_TEST

/* --- when they leave --------------------------------------------------------------------------------------------------------- */

static void check_same_batches(dci_kv *one, int64_t a, dci_kv *other, int64_t b)
{
        for (size_t layer = 0; layer < 2; layer++) {
                const dci_kv_layer *x = kv_layer_of(one, a, layer), *y = kv_layer_of(other, b, layer);
                ck_assert_uint_eq(x->n_batches, y->n_batches);
                for (size_t i = 0; i < x->n_batches; i++)
                        for (size_t h = 0; h < 2; h++) {
                                const size_t n = x->batches[i]->heads[h].n_groups;
                                ck_assert_uint_eq(x->batches[i]->n, y->batches[i]->n);
                                ck_assert_uint_eq(n, y->batches[i]->heads[h].n_groups);
                                ck_assert_mem_eq(dci_kv_cluster_offsets(one, x->batches[i], h),
                                                 dci_kv_cluster_offsets(other, y->batches[i], h),
                                                 (n + 1) * sizeof(int32_t));
                                ck_assert_mem_eq(dci_kv_cluster_ids(one, x->batches[i], h),
                                                 dci_kv_cluster_ids(other, y->batches[i], h),
                                                 x->batches[i]->n * sizeof(int32_t));
                        }
        }
}

/* Plans at each step, maintenance now and then. */
START_TEST(late_maintenance_gives_the_same_segments)
{
        const dci_kv_config config = small();
        kv_data data = kv_random(&config, N, 4);
        dci_kv *often = kv_create(context, &config), *seldom = kv_create(context, &config);
        const int64_t a = kv_begin(often, &data, PROMPT), b = kv_begin(seldom, &data, PROMPT);
        for (size_t t = PROMPT; t < N; t++) {
                const kv_turn turn = {b, &data, t, 1};
                kv_decode_all(often, a, &data, t, 1);
                kv_feed(seldom, 1, &turn);
                kv_seen seen = kv_look(seldom, 1, &turn);
                kv_lawful(&seen, &config, 0, "late");
                kv_seen_free(&seen);
                if (t % 9 == 0 || t + 1 == N)
                        ck_ok(dci_kv_maintain(seldom, 1, &b));
        }
        check_same_batches(often, a, seldom, b);
        kv_alike(often, a, seldom, b, &data, N - 1, 1, "late");
        dci_kv_destroy(often);
        kv_end(seldom, &data);
}
END_TEST

/* A buffer that the budget does not hold: half of it is recent, and what left early is counted. */
START_TEST(a_small_budget_lets_segments_leave_early)
{
        dci_kv_config config = small();
        config.budget = 80;
        config.segment_buffer = 200;
        kv_data data = kv_random(&config, N, 5);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_lawful(&seen, &config, 0, "early");
                kv_seen_free(&seen);
                const dci_kv_layer *layer = kv_layer_of(kv, sequence, 0);
                ck_assert_uint_le(layer->n - kv_info(kv).sink - layer->n_grouped, config.budget / 2 + 1);
        }
        const dci_kv_sequence_info info = kv_sequence_info(kv, sequence);
        ck_assert_uint_gt(info.n_batches, 10);
        ck_assert_uint_eq(info.n_early, info.n_batches - 1);
        kv_end(kv, &data);
}
END_TEST

/* The rollback may take what half of the budget should not: groups then come a few tokens at a time, never one. */
START_TEST(a_long_rollback_does_not_make_groups_of_one)
{
        dci_kv_config config = small();
        config.rollback = 64;
        config.segment_buffer = 0;
        config.budget = 16 + 64 + 8 + 4;
        kv_data data = kv_random(&config, N, 6);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        config.tau = 0.0;
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_lawful(&seen, &config, 0, "rollback");
                ck_assert_int_le(seen.plans[0].n_tokens[0] - seen.plans[0].recent_begin[0], 64 + 4 + 1);
                kv_seen_free(&seen);
        }
        kv_end(kv, &data);
}
END_TEST

/* --- shared and cut ----------------------------------------------------------------------------------------------------------- */

START_TEST(forks_go_on_with_their_turns)
{
        const dci_kv_config config = small();
        kv_data data = kv_random(&config, N, 7);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, 150);
        int64_t fork;
        ck_ok(dci_kv_fork(kv, sequence, PROMPT + 150, &fork));
        ck_assert_ptr_eq(kv_layer_of(kv, fork, 0)->batches[1], kv_layer_of(kv, sequence, 0)->batches[1]);
        kv_decode_all(kv, sequence, &data, PROMPT + 150, 150);
        kv_decode_all(kv, fork, &data, PROMPT + 150, 150);
        check_same_batches(kv, sequence, kv, fork);
        kv_end(kv, &data);
}
END_TEST

/* Queries of tokens from `first` on turn around. */
static void turn_queries(kv_data *data, size_t first)
{
        const size_t row = data->n_kv_heads * data->group * data->dim_k;
        for (size_t layer = 0; layer < data->n_layers; layer++)
                for (size_t i = (layer * data->n + first) * row; i < (layer + 1) * data->n * row; i++)
                        data->queries[i] = -data->queries[i];
        kv_data_store(data);
}

/* A turn that a plan finds before the next reservation is one, of a fork and of what was loaded, too. Loops over both. */
START_TEST(turns_before_a_reservation_are_kept)
{
        enum { LAST = PROMPT + 60 };
        dci_kv_config config = small();
        config.tau = -0.9;
        kv_data data = kv_random(&config, N, 14), turned = kv_random(&config, N, 14);
        turn_queries(&turned, 0);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, LAST - PROMPT);
        int64_t other;
        if (_i == 0) {
                ck_ok(dci_kv_fork(kv, sequence, LAST, &other));
        } else {
                ck_ok(dci_kv_save(kv, sequence, LAST, scratch_path("before")));
                ck_ok(dci_kv_load(kv, scratch_path("before"), &other));
        }
        const int64_t both[] = {sequence, other};
        for (size_t i = 0; i < 2; i++)
                for (size_t way = 0; way < 2; way++) { /* what was loaded decides first */
                        kv_seen seen = kv_look(kv, 1, &(kv_turn){both[i], way == 0 ? &data : &turned, LAST - 1, 0});
                        kv_seen_free(&seen);
                }
        for (size_t layer = 0; layer < 2; layer++) {
                const dci_kv_layer *l = kv_layer_of(kv, sequence, layer);
                ck_assert_int_eq(l->boundaries[l->n_boundaries - 1], LAST - 1);
        }
        kv_decode_all(kv, sequence, &turned, LAST, 150);
        kv_decode_all(kv, other, &turned, LAST, 150);
        check_same_batches(kv, sequence, kv, other);
        kv_end(kv, &data);
        kv_data_free(&turned);
}
END_TEST

/* A cut through segments drops their batch; one through the prompt's clusters makes it a shorter prompt. */
START_TEST(cuts_drop_batches_and_a_cut_prompt_is_clustered_anew)
{
        const dci_kv_config config = small();
        kv_data data = kv_random(&config, N, 8);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT), shorter = kv_begin(kv, &data, 150);
        const size_t sink = kv_info(kv).sink;
        kv_decode_all(kv, sequence, &data, PROMPT, 200);
        const dci_kv_layer *layer = kv_layer_of(kv, sequence, 0);
        size_t cut = 3;
        while (layer->batches[cut]->n < 2)
                ck_assert_uint_lt(++cut, layer->n_batches);
        const size_t third = layer->batches[cut]->first;
        ck_ok(dci_kv_truncate(kv, sequence, sink + third + 1));
        ck_assert_uint_eq(layer->n_batches, cut);
        ck_assert_uint_eq(layer->n_grouped, third);
        for (size_t i = 0; i < layer->n_boundaries; i++)
                ck_assert_int_le(layer->boundaries[i], (int32_t)(sink + third));
        ck_ok(dci_kv_truncate(kv, sequence, 150));
        ck_assert_uint_eq(layer->n_batches, 0);
        ck_assert_uint_eq(layer->n_boundaries, 0);
        ck_ok(dci_kv_maintain(kv, 1, &sequence));
        ck_assert_uint_eq(layer->n_grouped, 150 - ROLLBACK - sink);
        check_same_batches(kv, sequence, kv, shorter);
        kv_decode_all(kv, sequence, &data, 150, 100);
        kv_decode_all(kv, shorter, &data, 150, 100);
        check_same_batches(kv, sequence, kv, shorter);
        kv_end(kv, &data);
}
END_TEST

/* --- plans ------------------------------------------------------------------------------------------------------------------------ */

/* Loops over ways to combine, and tails. Between turns a list is what it was; at turns, or with a tail at each step, it is the naive choice
 * over clusters and segments. */
START_TEST(plans_are_the_naive_choice)
{
        dci_kv_config config = small();
        config.dtype = DCI_F32;
        config.combine = 1 + (int32_t)_i % DCI_KV_COMBINES;
        const bool tail = _i >= DCI_KV_COMBINES;
        config.tail = tail ? DCI_KV_TAIL_SUMS : DCI_KV_TAIL_DROP;
        config.schedule = tail ? DCI_KV_EVERY_STEP : DCI_KV_BOUNDARY;
        kv_data data = kv_random(&config, N, 9);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_model model = kv_model_of(&config, &data, PROMPT);
        kv_schedule schedule = kv_schedule_new(&config);
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_model_append(&model, &data, t, 1);
                kv_lawful(&seen, &config, 0, "segments");
                for (size_t layer = 0; layer < config.n_layers; layer++) {
                        const float *queries = kv_query(&data, layer, t, 0);
                        if (tail)
                                kv_model_check_groups(&model, &seen, 0, layer, queries, "segments");
                        else
                                kv_schedule_plan(&schedule, &model, &seen, 0, layer, queries, "segments");
                        kv_model_check_out(&model, &seen, 0, layer, queries, "segments");
                }
                kv_seen_free(&seen);
        }
        const dci_kv_sequence_info info = kv_sequence_info(kv, sequence);
        if (tail) {
                ck_assert_uint_eq(info.n_decisions, info.n_plans);
        } else {
                kv_schedule_check_counts(&schedule, &info, "segments");
                test_hold(!schedule.lost && info.n_decisions > info.n_plans / 20 &&
                          info.n_decisions < info.n_plans / 2);
        }
        kv_schedule_free(&schedule);
        kv_model_free(&model);
        kv_end(kv, &data);
}
END_TEST

/* Loops over rates: the tau that samples ask for decides as often as they say, of tokens that are no samples. */
START_TEST(a_calibrated_tau_decides_as_often)
{
        static const double rates[] = {0.1, 0.3, 0.7};
        dci_kv_config config = small();
        config.n_layers = 1;
        kv_data samples = kv_random(&config, 2000, 12), data = kv_random(&config, 1200, 13);
        ck_ok(dci_kv_calibrate(context, &config, 1, samples.n, samples.queries, config.dim_k, rates[_i], &config.tau));
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, sequence, &data, PROMPT, data.n - PROMPT);
        const dci_kv_sequence_info info = kv_sequence_info(kv, sequence);
        const double rate = (double)info.n_decisions / (double)info.n_plans;
        ck_assert_msg(rate > rates[_i] - 0.05 && rate < rates[_i] + 0.05, "tau %g: rate %g, wanted %g", config.tau,
                      rate, rates[_i]);
        ck_assert_uint_eq(kv_layer_of(kv, sequence, 0)->n_boundaries, info.n_decisions / 2 - 1);
        kv_end(kv, &samples);
        kv_data_free(&data);
}
END_TEST

/* --- files ------------------------------------------------------------------------------------------------------------------------- */

START_TEST(files_keep_the_turns)
{
        const dci_kv_config config = small();
        kv_data data = kv_random(&config, N, 10);
        dci_kv *kv = kv_create(context, &config);
        const int64_t saved = kv_begin(kv, &data, PROMPT);
        int64_t loaded;
        kv_decode_all(kv, saved, &data, PROMPT, 150);
        ck_ok(dci_kv_save(kv, saved, PROMPT + 140, scratch_path("turns")));
        ck_ok(dci_kv_load(kv, scratch_path("turns"), &loaded));
        ck_ok(dci_kv_truncate(kv, saved, PROMPT + 140));
        check_same_batches(kv, saved, kv, loaded);
        for (size_t layer = 0; layer < 2; layer++) {
                const dci_kv_layer *a = kv_layer_of(kv, saved, layer), *b = kv_layer_of(kv, loaded, layer);
                ck_assert_uint_gt(a->n_boundaries, 10);
                ck_assert_uint_eq(a->n_boundaries, b->n_boundaries);
                ck_assert_mem_eq(a->boundaries, b->boundaries, a->n_boundaries * sizeof *a->boundaries);
        }
        kv_end(kv, &data);
}
END_TEST

/* The first plan decides, the second one turns. */
START_TEST(what_is_loaded_turns_before_its_first_step)
{
        dci_kv_config config = small();
        config.tau = 1.0;
        kv_data data = kv_random(&config, N, 11);
        dci_kv *kv = kv_create(context, &config);
        const int64_t saved = kv_begin(kv, &data, PROMPT);
        int64_t loaded;
        ck_ok(dci_kv_save(kv, saved, PROMPT, scratch_path("file")));
        ck_ok(dci_kv_load(kv, scratch_path("file"), &loaded));
        for (size_t t = PROMPT; t < PROMPT + 2; t++) {
                kv_seen seen = kv_look(kv, 2, (kv_turn[]){{saved, &data, t, 0}, {loaded, &data, t, 0}});
                kv_seen_free(&seen);
        }
        for (size_t layer = 0; layer < 2; layer++)
                for (size_t i = 0; i < 2; i++) {
                        const dci_kv_layer *of = kv_layer_of(kv, i == 0 ? saved : loaded, layer);
                        ck_assert_uint_eq(of->n_boundaries, 1);
                        ck_assert_int_eq(of->boundaries[0], PROMPT - 1);
                }
        kv_end(kv, &data);
}
END_TEST

/* The last layer's last turn is last in its section. */
START_TEST(files_with_unsound_turns_are_refused)
{
        const dci_kv_config config = small();
        kv_data data = kv_random(&config, N, 11);
        dci_kv *kv = kv_create(context, &config);
        const int64_t saved = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, saved, &data, PROMPT, 100);
        ck_ok(dci_kv_save(kv, saved, PROMPT + 100, scratch_path("whole")));
        size_t n, n_bytes;
        unsigned char *bytes = scratch_get("whole", &n);
        const persist_bytes file = {bytes, n};
        unsigned char *section = persist_section(&file, "groups", &n_bytes);
        ck_assert_ptr_nonnull(section);
        const dci_kv_layer *last = kv_layer_of(kv, saved, 1);
        ck_assert_uint_gt(last->n_boundaries, 2);
        unsigned char *turn = section + n_bytes - 4, *count = turn - 4 * last->n_boundaries;
        ck_assert_uint_eq(dci_load_le32(turn), (uint32_t)last->boundaries[last->n_boundaries - 1]);
        ck_assert_uint_eq(dci_load_le32(count), last->n_boundaries);
        const struct {
                unsigned char *at;
                uint32_t wrong;
        } cases[] = {{turn, PROMPT + 100},
                     {turn, (uint32_t)last->boundaries[last->n_boundaries - 2]},
                     {turn, UINT32_MAX},
                     {turn, 0},
                     {turn - 4 * (last->n_boundaries - 1), 15}, /* in the sink */
                     {count, UINT32_MAX},
                     {count, (uint32_t)last->n_boundaries + 1},
                     {count, (uint32_t)last->n_boundaries - 1}};
        for (size_t i = 0; i < COUNT(cases); i++) {
                const uint32_t old = dci_load_le32(cases[i].at);
                int64_t loaded = -1;
                dci_store_le32(cases[i].at, cases[i].wrong);
                persist_reseal(&file);
                scratch_put("wrong", bytes, n);
                ck_assert_msg(dci_kv_load(kv, scratch_path("wrong"), &loaded) == DCI_ERR_FORMAT, "case %zu", i);
                dci_store_le32(cases[i].at, old);
        }
        ck_assert_uint_eq(kv_info(kv).n_sequences, 1);
        free(bytes);
        kv_end(kv, &data);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv segments");
        TCase *segments = test_case_with(suite, "segments", 60, context_open_2, context_close);
        tcase_add_checked_fixture(segments, scratch_open, scratch_close);
        tcase_add_loop_test(segments, segments_end_where_queries_turn, 0, 2);
        tcase_add_loop_test(segments, segments_have_a_least_length, 0, 4);
        tcase_add_test(segments, layers_have_segments_of_their_own);
        tcase_add_loop_test(segments, segments_that_never_close_are_half_of_the_buffer, 0, 2);
        tcase_add_test(segments, late_maintenance_gives_the_same_segments);
        tcase_add_test(segments, a_small_budget_lets_segments_leave_early);
        tcase_add_test(segments, a_long_rollback_does_not_make_groups_of_one);
        tcase_add_test(segments, forks_go_on_with_their_turns);
        tcase_add_loop_test(segments, turns_before_a_reservation_are_kept, 0, 2);
        tcase_add_test(segments, cuts_drop_batches_and_a_cut_prompt_is_clustered_anew);
        tcase_add_loop_test(segments, plans_are_the_naive_choice, 0, 2 * DCI_KV_COMBINES);
        tcase_add_loop_test(segments, a_calibrated_tau_decides_as_often, 0, 3);
        tcase_add_test(segments, files_keep_the_turns);
        tcase_add_test(segments, what_is_loaded_turns_before_its_first_step);
        tcase_add_test(segments, files_with_unsound_turns_are_refused);
        return test_main(suite);
}
