/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: what must not change a bit of plans and outputs: batches, threads, chunks of prompts, where work is done, steps taken
 * back. */
#include "tests/common.h"

#include <string.h>

#include "kv/chunk.h"
#include "kv/lookup.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"

/* In short runs, whose sanitizers look for races, every third preset will do where only numbers are compared. */
static bool left_out(int i)
{
        return test_short() && i % 3 != 0;
}

/* The prompt ends in the same step for all turns, which are whole prompts. */
static void prefill_together(dci_kv *kv, size_t n_turns, const kv_turn *turns)
{
        kv_reserve(kv, n_turns, turns);
        for (size_t layer = 0; layer < turns[0].data->n_layers; layer++) {
                kv_append(kv, layer, n_turns, turns);
                for (size_t i = 0; i < n_turns; i++)
                        kv_prompt(kv, layer, turns[i].sequence, turns[i].data, turns[i].n);
        }
        kv_step_end(kv, n_turns, turns);
        ck_ok(dci_kv_wait(kv, -1));
}

/* Loops over presets. Steps of one to three tokens. */
START_TEST(a_ragged_batch_equals_one_sequence_at_a_time)
{
        if (left_out(_i))
                return;
        static const size_t prompts[] = {0, 3, 50, 130, 301};
        enum { N = COUNT(prompts) };
        dci_kv_config config = kv_small(kv_presets[_i]);
        dci_kv *batched = kv_create(context, &config), *alone = kv_create(context, &config);
        kv_data data[N];
        kv_turn turns[N], own[N];
        for (size_t i = 0; i < N; i++) {
                data[i] = kv_random(&config, prompts[i] + 60, 20 + i);
                turns[i] = (kv_turn){kv_open(batched), &data[i], 0, prompts[i]};
                own[i] = turns[i];
                own[i].sequence = kv_begin(alone, &data[i], prompts[i]);
        }
        prefill_together(batched, N, turns);
        for (size_t step = 0; step < 20; step++) {
                for (size_t i = 0; i < N; i++) {
                        turns[i].from = own[i].from = turns[i].from + turns[i].n;
                        turns[i].n = own[i].n = 1 + (i + step) % 3;
                }
                kv_seen all = kv_decode(batched, N, turns);
                for (size_t i = 0; i < N; i++) {
                        kv_seen one = kv_decode(alone, 1, &own[i]);
                        kv_same(&all, i, &one, 0, dci_kv_preset_name(kv_presets[_i]));
                        kv_seen_free(&one);
                }
                kv_seen_free(&all);
        }
        for (size_t i = 0; i < N; i++)
                kv_data_free(&data[i]);
        dci_kv_destroy(batched);
        dci_kv_destroy(alone);
}
END_TEST

/* Where and by how many the work is done. */
static kv_seen by_threads(int32_t n_threads, const dci_kv_config *config, const kv_data *data, dci_kv **out_kv)
{
        dci_context *own = test_context(n_threads);
        *out_kv = kv_create(own, config);
        dci_context_destroy(own);
        const int64_t one = kv_begin(*out_kv, data, 3990), other = kv_begin(*out_kv, data, 2500);
        kv_decode_all(*out_kv, one, data, 3990, 3);
        const kv_turn turns[] = {{one, data, 3993, 7}, {other, data, 2500, 100}};
        return kv_decode(*out_kv, 2, turns);
}

/* Loops over presets. Long enough that threads share the work. */
START_TEST(the_number_of_threads_changes_nothing)
{
        dci_kv_config config = kv_config(kv_presets[_i], 1, 2, 3, TRACE_DIM);
        kv_data data = kv_trace(&config, 4000);
        dci_kv *kv, *other;
        kv_seen wanted = by_threads(1, &config, &data, &kv);
        kv_lawful(&wanted, &config, 0, dci_kv_preset_name(kv_presets[_i]));
        for (int32_t n = 2; n <= (test_short() ? 2 : 3); n++) {
                kv_seen seen = by_threads(n, &config, &data, &other);
                for (size_t i = 0; i < 2; i++)
                        kv_same(&wanted, i, &seen, i, dci_kv_preset_name(kv_presets[_i]));
                kv_seen_free(&seen);
                dci_kv_destroy(other);
        }
        kv_seen_free(&wanted);
        kv_end(kv, &data);
}
END_TEST

/* The thread limit of a context may change under a cache. */
START_TEST(the_thread_limit_may_change)
{
        dci_kv_config config = kv_config(DCI_KV_SKETCH_LOWBIT, 1, 2, 3, TRACE_DIM);
        kv_data data = kv_trace(&config, 4000);
        dci_context *own = test_context(3);
        dci_kv *kv, *other = kv_create(own, &config);
        kv_seen wanted = by_threads(1, &config, &data, &kv);
        ck_ok(dci_context_set_threads(own, 1));
        const int64_t one = kv_begin(other, &data, 3990);
        ck_ok(dci_context_set_threads(own, 3));
        const int64_t two = kv_begin(other, &data, 2500);
        kv_decode_all(other, one, &data, 3990, 2);
        ck_ok(dci_context_set_threads(own, 2));
        kv_decode_all(other, one, &data, 3992, 1);
        const kv_turn turns[] = {{one, &data, 3993, 7}, {two, &data, 2500, 100}};
        ck_ok(dci_context_set_threads(own, 3));
        kv_seen seen = kv_decode(other, 2, turns);
        kv_same_and_free(&wanted, &seen, "after other limits");
        dci_kv_destroy(kv);
        dci_kv_destroy(other);
        dci_context_destroy(own);
        kv_data_free(&data);
}
END_TEST

/* A batch of as many sequences as fit one call here, on several threads. */
START_TEST(a_large_batch_equals_one_sequence_at_a_time)
{
        const dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        kv_data data = kv_random(&config, 400, 41);
        dci_kv *batched = kv_create(context, &config), *alone = kv_create(context, &config);
        kv_turn turns[KV_MOST_TURNS], own[KV_MOST_TURNS];
        for (size_t i = 0; i < KV_MOST_TURNS; i++) {
                own[i] = (kv_turn){kv_begin(alone, &data, 120 + 4 * i), &data, 120 + 4 * i, 1};
                turns[i] = (kv_turn){kv_open(batched), &data, 0, 120 + 4 * i};
        }
        prefill_together(batched, KV_MOST_TURNS, turns);
        for (size_t i = 0; i < KV_MOST_TURNS; i++)
                turns[i] = (kv_turn){turns[i].sequence, &data, 120 + 4 * i, 1};
        kv_seen all = kv_decode(batched, KV_MOST_TURNS, turns);
        for (size_t i = 0; i < KV_MOST_TURNS; i++) {
                kv_seen one = kv_decode(alone, 1, &own[i]);
                kv_same(&all, i, &one, 0, "a large batch");
                kv_seen_free(&one);
        }
        kv_seen_free(&all);
        dci_kv_destroy(batched);
        kv_end(alone, &data);
}
END_TEST

/* Loops over presets. */
START_TEST(work_in_the_foreground_is_that_of_the_worker)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, 320, 30);
        dci_kv *worker = kv_create(context, &config);
        config.foreground = 1;
        dci_kv *own = kv_create(context, &config);
        kv_alike(worker, kv_begin(worker, &data, 300), own, kv_begin(own, &data, 300), &data, 300, 20,
                 dci_kv_preset_name(kv_presets[_i]));
        dci_kv_destroy(worker);
        kv_end(own, &data);
}
END_TEST

/* Loops over presets. */
START_TEST(a_prompt_in_chunks_is_one_prompt)
{
        if (left_out(_i))
                return;
        static const size_t chunks[] = {1, 7, 64, 100, 299};
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, 320, 31);
        for (size_t c = 0; c < COUNT(chunks); c++) {
                dci_kv *whole = kv_create(context, &config), *parts = kv_create(context, &config);
                const int64_t sequence = kv_open(parts);
                kv_prefill(parts, sequence, &data, 300, chunks[c]);
                kv_alike(whole, kv_begin(whole, &data, 300), parts, sequence, &data, 300, 20,
                         dci_kv_preset_name(kv_presets[_i]));
                dci_kv_destroy(whole);
                dci_kv_destroy(parts);
        }
        kv_data_free(&data);
}
END_TEST

/* Loops over presets. Plans wait for the worker by themselves. */
START_TEST(waiting_for_prompts_changes_nothing)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, 320, 32);
        dci_kv *patient = kv_create(context, &config), *hasty = kv_create(context, &config);
        const int64_t sequence = kv_begin(patient, &data, 300), other = kv_open(hasty);
        const kv_turn prompt = {other, &data, 0, 300};
        kv_reserve(hasty, 1, &prompt);
        for (size_t layer = 0; layer < config.n_layers; layer++) {
                kv_append(hasty, layer, 1, &prompt);
                kv_prompt(hasty, layer, other, &data, 300);
        }
        kv_step_end(hasty, 1, &prompt);
        kv_alike(patient, sequence, hasty, other, &data, 300, 3, dci_kv_preset_name(kv_presets[_i]));
        dci_kv_destroy(patient);
        kv_end(hasty, &data);
}
END_TEST

/* Loops over presets and formats. Queries in a short format are those queries. */
START_TEST(the_format_of_queries_changes_nothing_but_their_rounding)
{
        if (left_out(_i))
                return;
        dci_kv_config config = kv_small(kv_presets[_i / 2]);
        config.query_dtype = all_dtypes[1 + _i % 2];
        kv_data data = kv_random(&config, 210, 33);
        dci_kv *narrow = kv_create(context, &config);
        const int64_t sequence = kv_begin(narrow, &data, 200);
        config.query_dtype = DCI_F32;
        dci_kv *wide = kv_create(context, &config);
        kv_data same = data;
        same.query_dtype = DCI_F32;
        same.stored_queries = data.queries;
        const int64_t other = kv_begin(wide, &same, 200);
        for (size_t t = 200; t < 210; t++) {
                kv_seen a = kv_decode(narrow, 1, &(kv_turn){sequence, &data, t, 1}),
                        b = kv_decode(wide, 1, &(kv_turn){other, &same, t, 1});
                kv_same_and_free(&a, &b, dci_kv_preset_name(config.preset));
        }
        dci_kv_destroy(narrow);
        kv_end(wide, &data);
}
END_TEST

/* --- steps that are taken back ---------------------------------------------------------------------------------------------- */

/* Begins a step of 5 tokens, goes on until a point, and takes it back. */
static void abort_at(dci_kv *kv, const kv_turn *turn, size_t point)
{
        kv_turn five = *turn;
        five.n = 5;
        kv_reserve(kv, 1, &five);
        for (size_t layer = 0; layer < turn->data->n_layers && layer < point; layer++) {
                dci_kv_plan plan;
                void *queries = kv_queries(layer, 1, &five);
                kv_append(kv, layer, 1, &five);
                plan = kv_plan(kv, 1);
                ck_ok(dci_kv_plan_make(kv, layer, 1, &turn->sequence, queries, turn->data->dim_k, &plan));
                dci_kv_plan_destroy(kv, &plan);
                free(queries);
        }
        ck_ok(dci_kv_step_abort(kv, 1, &turn->sequence));
}

/* Loops over presets. Tokens of the step are others than those that come then. */
START_TEST(an_aborted_step_was_never_begun)
{
        if (left_out(_i))
                return;
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, 340, 34), others = kv_random(&config, 340, 35);
        dci_kv *plain = kv_create(context, &config), *aborting = kv_create(context, &config);
        const int64_t sequence = kv_begin(plain, &data, 301), other = kv_begin(aborting, &data, 301);
        for (size_t t = 301; t < 340; t += 3) {
                const dci_kv_info info = kv_info(aborting);
                const dci_kv_sequence_info before = kv_sequence_info(aborting, other);
                abort_at(aborting, &(kv_turn){other, &others, t < 330 ? t : 330, 0}, t % 4);
                const dci_kv_sequence_info after = kv_sequence_info(aborting, other);
                const size_t taken = kv_info(aborting).n_blocks - kv_info(aborting).n_free_blocks;
                ck_assert_uint_eq(taken, info.n_blocks - info.n_free_blocks);
                ck_assert(after.n_tokens == before.n_tokens && after.n_reserved == 0 &&
                          after.n_blocks == before.n_blocks);
                kv_alike(plain, sequence, aborting, other, &data, t, t + 3 < 340 ? 3 : 340 - t,
                         dci_kv_preset_name(kv_presets[_i]));
        }
        dci_kv_destroy(plain);
        kv_end(aborting, &data);
        kv_data_free(&others);
}
END_TEST

/* Loops over presets. The prompt's end is taken back with its step, in the layers where it had ended. */
START_TEST(an_aborted_prompt_has_not_ended)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, 310, 36), others = kv_random(&config, 310, 37);
        dci_kv *plain = kv_create(context, &config), *aborting = kv_create(context, &config);
        const int64_t other = kv_open(aborting);
        for (size_t layers = 0; layers <= config.n_layers; layers++)
                for (size_t fed = 0; fed < 2; fed++) {
                        const kv_turn turn = {other, &others, 0, 200 + fed};
                        kv_reserve(aborting, 1, &turn);
                        for (size_t layer = 0; layer < layers; layer++) {
                                kv_append(aborting, layer, 1, &turn);
                                kv_prompt(aborting, layer, other, &others, turn.n);
                        }
                        ck_ok(dci_kv_step_abort(aborting, 1, &other));
                        ck_assert_uint_eq(kv_sequence_info(aborting, other).n_tokens, 0);
                        ck_assert_uint_eq(kv_info(aborting).n_free_blocks, kv_info(aborting).n_blocks);
                        ck_assert_uint_eq(kv_info(aborting).summary_bytes, 0);
                }
        kv_prefill(aborting, other, &data, 300, 0);
        kv_alike(plain, kv_begin(plain, &data, 300), aborting, other, &data, 300, 10,
                 dci_kv_preset_name(kv_presets[_i]));
        dci_kv_destroy(plain);
        kv_end(aborting, &data);
        kv_data_free(&others);
}
END_TEST

/* One sequence of a step may be taken back, and the others end it. */
START_TEST(the_rest_of_a_step_goes_on)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        kv_data data = kv_random(&config, 310, 38);
        dci_kv *plain = kv_create(context, &config), *kv = kv_create(context, &config);
        const int64_t alone = kv_begin(plain, &data, 300), lost = kv_begin(kv, &data, 200),
                      goes_on = kv_begin(kv, &data, 300);
        const kv_turn both[] = {{lost, &data, 200, 4}, {goes_on, &data, 300, 1}};
        kv_reserve(kv, 2, both);
        for (size_t layer = 0; layer < config.n_layers; layer++)
                kv_append(kv, layer, 2, both);
        ck_ok(dci_kv_step_abort(kv, 1, &lost));
        kv_step_end(kv, 1, both + 1);
        ck_ok(dci_kv_maintain(kv, 0, NULL));
        kv_decode_all(plain, alone, &data, 300, 1);
        kv_alike(plain, alone, kv, goes_on, &data, 301, 5, "after the others were taken back");
        ck_assert_uint_eq(kv_sequence_info(kv, lost).n_tokens, 200);
        dci_kv_destroy(plain);
        kv_end(kv, &data);
}
END_TEST

/* Loops over presets. Groups that maintenance was not called for are formed by dci_kv_reserve, or later by maintenance. Segments end where
 * plans find that queries turn: both have plans, or none counts. */
START_TEST(late_maintenance_catches_up)
{
        if (left_out(_i))
                return;
        dci_kv_config config = kv_small(kv_presets[_i]);
        if (config.preset == DCI_KV_LOUISKV)
                config.schedule = DCI_KV_EVERY_STEP;
        config.period = DCI_KV_MAX_TOKENS; /* orders are made again when there is maintenance */
        kv_data data = kv_random(&config, 420, 39);
        dci_kv *kept = kv_create(context, &config), *lazy = kv_create(context, &config);
        const int64_t sequence = kv_begin(kept, &data, 200), other = kv_begin(lazy, &data, 200);
        kv_decode_all(kept, sequence, &data, 200, 200);
        for (size_t t = 200; t < 400; t++)
                kv_feed(lazy, 1, &(kv_turn){other, &data, t, 1});
        ck_ok(dci_kv_maintain(lazy, 1, &other));
        kv_alike(kept, sequence, lazy, other, &data, 400, 20, dci_kv_preset_name(kv_presets[_i]));
        dci_kv_destroy(kept);
        kv_end(lazy, &data);
}
END_TEST

/* Loops over tails. Values that nobody may read any more are overwritten before the keys' codes are made again. */
START_TEST(codes_made_anew_leave_tails_as_they_are)
{
        enum { LENGTH = 2400, OLD = 2 * DCI_KV_CHUNK };
        dci_kv_config config = kv_small(_i == 0 ? DCI_KV_SKETCH_LOWBIT : DCI_KV_SKETCH_SUMS);
        config.budget = LENGTH; /* nothing is formed but by dci_kv_maintain */
        kv_data data = kv_random(&config, LENGTH, 42);
        for (size_t i = 0; i < data.n * data.n_layers * data.n_kv_heads; i++)
                for (size_t j = 0; j < data.dim_k && i / data.n_kv_heads % data.n >= 1200; j++)
                        data.keys[i * data.dim_k + j] = 3.0f * data.keys[i * data.dim_k + j] + 9.0f;
        kv_data_store(&data);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 1200);
        dci_kv_layer *layer = &kv->sequences[0]->layers[1];
        unsigned char *tails[2];
        for (size_t c = 0; c < 2; c++)
                tails[c] = test_copy(dci_kv_chunk_head(kv, layer, c, 1) + kv->summary_bytes, kv->tail_bytes);
        for (size_t t = kv->config.sink; t < kv->config.sink + OLD; t++) {
                const void *value;
                dci_kv_rows_of(kv, layer, 1, t, 1, NULL, &value);
                memset((void *)(uintptr_t)value, 0x5A, data.dim_v * kv->es);
        }
        kv_feed(kv, 1, &(kv_turn){sequence, &data, 1200, LENGTH - 1200});
        ck_ok(dci_kv_maintain(kv, 1, &sequence));
        ck_assert_int_eq(layer->heads[1].refits, 1);
        for (size_t c = 0; c < 2; c++) {
                ck_assert_mem_eq(tails[c], dci_kv_chunk_head(kv, layer, c, 1) + kv->summary_bytes, kv->tail_bytes);
                free(tails[c]);
        }
        kv_end(kv, &data);
}
END_TEST

/* --- resident until pressure -------------------------------------------------------------------------------------------------- */

/* Loops over presets. Two sequences fit, a third does not: the longest one turns sparse, and is what it would have been. */
START_TEST(sequences_are_resident_until_pressure)
{
        if (left_out(_i))
                return;
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, 340, 40);
        dci_kv *sparse = kv_create(context, &config), *full;
        const size_t token_bytes = kv_info(sparse).token_bytes;
        config.resident_bytes = 560 * token_bytes;
        dci_kv *kv = kv_create(context, &config);
        config = kv_small(DCI_KV_FULL);
        full = kv_create(context, &config);
        const int64_t longest = kv_begin(kv, &data, 300), other = kv_begin(kv, &data, 200),
                      dense = kv_begin(full, &data, 300), control = kv_begin(sparse, &data, 300);
        for (size_t t = 300; t < 310; t++) {
                kv_seen resident = kv_decode(kv, 1, &(kv_turn){longest, &data, t, 1}),
                        whole = kv_decode(full, 1, &(kv_turn){dense, &data, t, 1});
                ck_assert_int_eq(resident.plans[0].recent_begin[0], 0);
                kv_same_out(&resident, 0, &whole, 0, "resident");
                kv_seen_free(&resident);
                kv_seen_free(&whole);
        }
        kv_decode_all(sparse, control, &data, 300, 10);
        ck_assert_int_eq(kv_sequence_info(kv, longest).resident, 1);
        ck_assert_uint_eq(kv_info(kv).n_resident, 2);
        const int64_t third = kv_begin(kv, &data, 150);
        ck_assert_int_eq(kv_sequence_info(kv, longest).resident, 0);
        ck_assert_int_eq(kv_sequence_info(kv, other).resident, 1);
        ck_assert_int_eq(kv_sequence_info(kv, third).resident, 1);
        ck_assert_uint_eq(kv_info(kv).n_resident, 2);
        kv_alike(sparse, control, kv, longest, &data, 310, 30, dci_kv_preset_name(kv_presets[_i]));
        dci_kv_destroy(kv);
        dci_kv_destroy(sparse);
        kv_end(full, &data);
}
END_TEST

/* Loops over how the step ends. The anchor layer left no lists, since everything was attended to, and the one after it needs none. */
START_TEST(what_a_step_attends_to_is_not_changed_by_another_sequence)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH);
        config.schedule = DCI_KV_ANCHOR;
        config.anchor_first = 0;
        config.anchor_period = 2;
        kv_data data = kv_random(&config, 340, 41);
        dci_kv *kv = kv_create(context, &config);
        config.resident_bytes = 400 * kv_info(kv).token_bytes;
        dci_kv_destroy(kv);
        kv = kv_create(context, &config);
        const kv_turn turn = {kv_begin(kv, &data, 300), &data, 300, 1}, other = {kv_open(kv), &data, 0, 250};
        kv_seen seen = kv_seen_room(kv, 1, &turn);
        kv_reserve(kv, 1, &turn);
        for (size_t layer = 0; layer < 2; layer++) {
                kv_append(kv, layer, 1, &turn);
                kv_look_at(&seen, layer, 1, &turn);
                ck_assert_int_eq(seen.plans[layer].recent_begin[0], 0);
                if (layer == 0)
                        kv_reserve(kv, 1, &other);
                ck_assert_int_eq(kv_sequence_info(kv, turn.sequence).resident, 1);
        }
        ck_ok((_i == 0 ? dci_kv_step_end : dci_kv_step_abort)(kv, 1, &turn.sequence));
        ck_assert_int_eq(kv_sequence_info(kv, turn.sequence).resident, 0);
        ck_assert_int_eq(kv_sequence_info(kv, other.sequence).resident, 1);
        kv_seen_free(&seen);
        const size_t next = _i == 0 ? 301 : 300;
        seen = kv_decode(kv, 1, &(kv_turn){turn.sequence, &data, next, 1});
        ck_assert_int_gt(seen.plans[1].recent_begin[0], 0);
        kv_seen_free(&seen);
        kv_end(kv, &data);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv same");
        TCase *same = test_case_with(suite, "same", 60, context_open_2, context_close);
        tcase_add_loop_test(same, a_ragged_batch_equals_one_sequence_at_a_time, 0, KV_N_KINDS);
        tcase_add_loop_test(same, the_number_of_threads_changes_nothing, 0, KV_N_KINDS);
        tcase_add_test(same, the_thread_limit_may_change);
        tcase_add_test(same, a_large_batch_equals_one_sequence_at_a_time);
        tcase_add_loop_test(same, work_in_the_foreground_is_that_of_the_worker, 0, KV_N_KINDS);
        tcase_add_loop_test(same, a_prompt_in_chunks_is_one_prompt, 0, KV_N_KINDS);
        tcase_add_loop_test(same, waiting_for_prompts_changes_nothing, 0, KV_N_KINDS);
        tcase_add_loop_test(same, the_format_of_queries_changes_nothing_but_their_rounding, 0, 2 * KV_N_KINDS);
        tcase_add_loop_test(same, an_aborted_step_was_never_begun, 0, KV_N_KINDS);
        tcase_add_loop_test(same, an_aborted_prompt_has_not_ended, 0, KV_N_KINDS);
        tcase_add_test(same, the_rest_of_a_step_goes_on);
        tcase_add_loop_test(same, late_maintenance_catches_up, 0, KV_N_KINDS);
        tcase_add_loop_test(same, codes_made_anew_leave_tails_as_they_are, 0, 2);
        tcase_add_loop_test(same, sequences_are_resident_until_pressure, 0, KV_N_KINDS);
        tcase_add_loop_test(same, what_a_step_attends_to_is_not_changed_by_another_sequence, 0, 2);
        return test_main(suite);
}
