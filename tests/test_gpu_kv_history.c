/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* All rows of a sequence on the device: for any steps, in any order of calls, and what comes over the bus for them. */
#include "tests/gpu_history_fixture.h"

#include <stdlib.h>
#include <string.h>

/* --- any history_life ----------------------------------------------------------------------------------------------------- */

static size_t pick(dci_rng *rng, size_t n)
{
        return (size_t)dci_rng_below(rng, (uint32_t)n);
}

/* Asks as models do; for sequences of several tokens only; or in any order, more than once, or not at all. */
static void ask_some(history_life *l, size_t layer, size_t n_turns, history_tale *const *turns, size_t manner,
                     dci_rng *rng)
{
        for (size_t i = 0; i < n_turns; i++) {
                if (manner == 0 || (manner == 1 && turns[i]->more > 1))
                        history_ask(l, layer, turns[i]);
                if (manner == 2 && pick(rng, 3) > 0)
                        history_ask(l, pick(rng, layer + 1), turns[pick(rng, n_turns)]);
        }
}

static void any_step(history_life *l, dci_rng *rng)
{
        static const size_t lengths[] = {1, 1, 1, 2, 5, 8, 31, 64, 100, 0};
        history_tale *turns[HISTORY_MOST] = {0};
        size_t n_tokens[HISTORY_MOST] = {0}, n_turns = 0, all = 0, first = pick(rng, l->n_tales);
        bool prompts[HISTORY_MOST] = {0};
        for (size_t i = 0; i < l->n_tales; i++) {
                history_tale *s = &l->tales[(first + i) % l->n_tales];
                const size_t n = lengths[pick(rng, 10)];
                if (s->n + n > HISTORY_MAX_TOKENS || (n_turns > 0 && pick(rng, 3) == 0))
                        continue;
                prompts[n_turns] = !s->ended && n > 0 && pick(rng, 2) == 0;
                turns[n_turns] = s;
                n_tokens[n_turns++] = n;
                all += n;
        }
        if (n_turns == 0 || all == 0)
                return;
        l->early = pick(rng, 2) == 0;
        const size_t manner = pick(rng, 4), stop = pick(rng, 8) == 0 ? pick(rng, 3) : l->t.config.n_layers;
        history_reserve(l, n_turns, turns, n_tokens, pick(rng, HISTORY_N - all + 1));
        for (size_t layer = 0; layer < l->t.config.n_layers && layer < stop; layer++) {
                history_append(l, layer);
                ask_some(l, layer, n_turns, turns, manner, rng);
                for (size_t i = 0; i < n_turns; i++)
                        if (prompts[i])
                                history_end_prompt(l, layer, turns[i]);
        }
        if (stop >= l->t.config.n_layers) {
                history_step_end(l);
                for (size_t i = 0; i < n_turns; i++)
                        turns[i]->ended = turns[i]->ended || prompts[i];
                return;
        }
        /* What the last call returned is read for the last time before the step is taken back. */
        if (l->last.keys != NULL)
                history_keep(l);
        ck_ok(dci_gpu_kv_step_abort(l->t.kv));
        for (size_t i = 0; i < n_turns; i++)
                turns[i]->n -= turns[i]->more;
}

/* Forks, cuts, and sequences that come and go; what is free is overwritten now and then. */
static void between(history_life *l, dci_rng *rng)
{
        history_tale *s = &l->tales[pick(rng, l->n_tales)], *more = &l->tales[l->n_tales];
        const size_t what = pick(rng, 8), left = pick(rng, s->n + 1);
        if (what == 0 && l->n_tales < HISTORY_MOST) {
                history_open(l);
        } else if (what == 1 && l->n_tales < HISTORY_MOST && s->ended) {
                *more = *s;
                more->n = left;
                ck_ok(dci_gpu_kv_fork(l->t.kv, s->id, left, &more->id));
                l->n_tales++;
        } else if (what == 2) {
                ck_ok(dci_gpu_kv_truncate(l->t.kv, s->id, left));
                s->n = left;
        } else if (what == 3 && l->n_tales > 2) {
                ck_ok(dci_gpu_kv_close(l->t.kv, s->id));
                *s = l->tales[--l->n_tales];
        } else if (what == 4) {
                twin_poison(&l->t);
        }
}

static void live(const history_kind *k, uint64_t seed, size_t n_steps)
{
        const dci_kv_config config = history_config(k);
        const dci_gpu_kv_config on_device = history_device(k);
        history_life l = history_begin(&config, &on_device);
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        history_open(&l);
        for (size_t step = 0; step < n_steps; step++) {
                any_step(&l, &rng);
                if (step % 2 == 1)
                        between(&l, &rng);
                if (step % 3 == 2 || l.n_kept > HISTORY_ROOM / 2)
                        history_check(&l);
        }
        history_end(&l);
}

START_TEST(rows_are_those_that_were_appended)
{
        const uint64_t n_seeds = test_short() ? 1 : 3;
        for (uint64_t seed = 0; seed < n_seeds; seed++)
                live(&history_kinds[_i], 100 * (uint64_t)_i + seed, test_short() ? 25 : 60);
}
END_TEST

/* Blocks that are packed go to the host on another stream than those that are not. */
START_TEST(packed_blocks_have_arrived)
{
        const history_kind k = history_kinds[_i];
        const dci_kv_config config = history_config(&k);
        const dci_gpu_kv_config on_device = history_device(&k);
        history_life l = history_begin(&config, &on_device);
        history_tale *s = history_open(&l);
        l.early = true;
        for (size_t i = 0; i < 8; i++)
                history_step(&l, s, i % 3 == 2 ? 3 : 60, 64 * i);
        history_end(&l);
}
END_TEST

/* The block of a fork, which a cut sequence gets a copy of when it goes on, also on the device. */
START_TEST(a_block_that_was_shared_has_arrived)
{
        const history_kind k = history_kinds[2];
        const dci_kv_config config = history_config(&k);
        const dci_gpu_kv_config on_device = history_device(&k);
        history_life l = history_begin(&config, &on_device);
        history_tale *s = history_open(&l), *more = &l.tales[l.n_tales++];
        for (size_t i = 0; i < 3; i++) {
                history_reserve(&l, 1, &s, &(size_t){20}, 30 * i);
                for (size_t layer = 0; layer < config.n_layers; layer++) {
                        history_append(&l, layer);
                        if (i == 0)
                                history_end_prompt(&l, layer, s);
                        history_ask(&l, layer, s);
                }
                history_step_end(&l);
        }
        *more = *s;
        more->n = 56;
        ck_ok(dci_gpu_kv_fork(l.t.kv, s->id, 56, &more->id));
        ck_ok(dci_gpu_kv_truncate(l.t.kv, s->id, 45));
        s->n = 45;
        history_step(&l, s, 9, 300);
        history_step(&l, more, 9, 400);
        history_step(&l, s, 9, 500);
        history_end(&l);
}
END_TEST

/* NaN, infinity and negative zero are bits as all others. */
START_TEST(bad_rows_are_copied_as_they_are)
{
        const history_kind k = history_kinds[0];
        const dci_kv_config config = history_config(&k);
        const dci_gpu_kv_config on_device = history_device(&k);
        kv_data data = kv_random(&config, HISTORY_N, 9);
        uint16_t *keys = data.stored_keys, *values = data.stored_values;
        for (size_t i = 0; i < config.n_layers * HISTORY_N * config.n_kv_heads * config.dim_k; i += 37) {
                keys[i] = 0x7fc1;
                values[i] = i % 2 == 0 ? 0xff80 : 0x8000;
        }
        history_life l = history_begin_with(test_context(1), &config, &on_device, data);
        history_tale *s = history_open(&l);
        history_step(&l, s, 77, 0);
        history_step(&l, s, 30, 100);
        history_step(&l, s, 1, 200);
        history_end(&l);
}
END_TEST

/* --- what comes over the bus -------------------------------------------------------------------------------------- */

static uint64_t fetched(history_life *l)
{
        return twin_info(&l->t).bytes_fetched;
}

START_TEST(each_earlier_token_comes_once)
{
        const dci_kv_config config = history_usual();
        const dci_gpu_kv_config on_device = history_usual_device();
        history_life l = history_begin(&config, &on_device);
        history_tale *turns[] = {history_open(&l), history_open(&l), history_open(&l)};
        const size_t sparse = config.n_layers - config.dense_layers, first[] = {50, 93, 16}, then[] = {20, 1, 7};
        history_reserve(&l, 3, turns, first, 0);
        for (size_t layer = 0; layer < config.n_layers; layer++) {
                history_append(&l, layer);
                for (size_t i = 0; i < 3; i++)
                        history_ask(&l, layer, turns[i]);
        }
        history_step_end(&l);
        ck_assert_uint_eq(fetched(&l), 0);
        /* Sequences of one token are not asked for, and not copied. */
        history_reserve(&l, 3, turns, then, 200);
        for (size_t layer = 0; layer < config.n_layers; layer++) {
                history_append(&l, layer);
                history_ask(&l, layer, turns[0]);
                history_ask(&l, layer, turns[2]);
                history_ask(&l, layer, turns[2]);
        }
        history_step_end(&l);
        uint64_t wanted = sparse * (50 + 16) * history_token_bytes(&l);
        ck_assert_uint_eq(fetched(&l), wanted);
        /* Unless they are asked for in the first layer. */
        history_reserve(&l, 3, turns, then, 300);
        for (size_t layer = 0; layer < config.n_layers; layer++) {
                history_append(&l, layer);
                history_ask(&l, layer, turns[1]);
        }
        history_step_end(&l);
        /* The third sequence might have been asked for next, and in the first layer, which is dense, costs no bus. */
        wanted += sparse * 94 * history_token_bytes(&l);
        ck_assert_uint_eq(fetched(&l), wanted);
        history_end(&l);
}
END_TEST

START_TEST(a_repeated_call_queues_nothing)
{
        const dci_kv_config config = history_usual();
        const dci_gpu_kv_config on_device = history_usual_device();
        history_life l = history_begin(&config, &on_device);
        history_tale *s = history_open(&l);
        history_step(&l, s, 120, 0);
        history_reserve(&l, 1, &s, &(size_t){13}, 300);
        history_append(&l, 0);
        history_append(&l, 1);
        history_ask(&l, 1, s);
        const uint64_t before = fetched(&l);
        const void *keys = l.last.keys;
        history_ask(&l, 1, s);
        ck_assert_ptr_eq(l.last.keys, keys);
        ck_assert_uint_eq(fetched(&l), before);
        history_append(&l, 2);
        history_ask(&l, 2, s);
        ck_assert_ptr_ne(l.last.keys, keys);
        history_step_end(&l);
        history_end(&l);
}
END_TEST

/* Between blocks that are equally far apart, as steps of several sequences leave them, there is one copy for each head's keys, and values. */
static size_t n_row_copies;
static const dci_gpu_ops *counted_ops;

static dci_status counted_rows(dci_gpu *gpu, void *stream, void *to, const void *from, size_t from_step, size_t n_bytes,
                               size_t n)
{
        n_row_copies++;
        return counted_ops->copy_rows(gpu, stream, to, from, from_step, n_bytes, n);
}

START_TEST(few_copies_take_many_blocks)
{
        dci_kv_config config = history_usual();
        dci_gpu_kv_config on_device = history_usual_device();
        config.dense_layers = 0;
        on_device.piece_bytes = 0;
        history_life l = history_begin(&config, &on_device);
        history_tale *turns[] = {history_open(&l), history_open(&l)};
        /* Whole blocks of the two in turn. */
        for (size_t i = 0; i < 12; i++) {
                history_reserve(&l, 2, turns, (size_t[]){8, 8}, 16 * i);
                for (size_t layer = 0; layer < config.n_layers; layer++)
                        history_append(&l, layer);
                history_step_end(&l);
        }
        dci_gpu_ops ops = *l.t.gpu->ops;
        counted_ops = l.t.gpu->ops;
        ops.copy_rows = counted_rows;
        l.t.kv->ops = &ops;
        for (size_t i = 0; i < 2; i++) {
                n_row_copies = 0;
                history_reserve(&l, 1, &turns[i], &(size_t){2}, 500);
                for (size_t layer = 0; layer < config.n_layers; layer++) {
                        history_append(&l, layer);
                        history_ask(&l, layer, turns[i]);
                }
                history_step_end(&l);
                ck_assert_uint_eq(n_row_copies, config.n_layers * 2 * config.n_kv_heads);
        }
        l.t.kv->ops = counted_ops;
        history_end(&l);
}
END_TEST

/* --- what a copy waits for ---------------------------------------------------------------------------------------- */

/* Work of the caller's, which says when it is done. */
static void mark(history_life *l, int32_t *done)
{
        static const int32_t one = 1;
        *done = 0;
        ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, done, &one, sizeof one));
}

/* On a late device, where they are done as early as they may be: the next layer's copy, and that of a step's first layer, are done before what the caller computes with the
 * layer before. */
START_TEST(copies_do_not_wait_for_the_computation_before)
{
        dci_kv_config config = history_usual();
        dci_gpu_kv_config on_device = history_usual_device();
        const char *late = getenv("DCI_LATE");
        int32_t done[3]; /* written until the life ends */
        config.dense_layers = 0;
        on_device.planner = DCI_GPU_PLAN_DEVICE;
        history_life l = history_begin(&config, &on_device);
        if (strcmp(l.t.ops->name, "late") == 0 && late != NULL && strcmp(late, "all") == 0) {
                history_tale *s = history_open(&l);
                /* Growing buffers would wait for everything. */
                history_step(&l, s, 200, 0);
                ck_ok(dci_gpu_kv_truncate(l.t.kv, s->id, 40));
                s->n = 40;
                for (size_t step = 0; step < 4; step++) {
                        history_reserve(&l, 1, &s, &(size_t){40}, 50 * step);
                        for (size_t layer = 0; layer < config.n_layers; layer++) {
                                history_append(&l, layer);
                                history_ask(&l, layer, s);
                                if (step > 0 && layer == 0) {
                                        const dci_gpu_kv_history_buffers *h = l.t.kv->history;
                                        ck_ok(l.t.ops->event_wait(l.t.gpu, h->buffers[h->last].copied));
                                        ck_assert_int_eq(done[config.n_layers - 1], 0);
                                }
                                mark(&l, &done[layer]);
                                ck_ok(l.t.ops->stream_wait(l.t.gpu, l.t.kv->history_stream));
                                ck_assert_int_eq(done[layer], 0);
                        }
                        history_step_end(&l);
                }
        }
        history_end(&l);
}
END_TEST

/* --- prompts in chunks -------------------------------------------------------------------------------------------- */

static const int32_t planned[] = {DCI_KV_SKETCH,    DCI_KV_SKETCH_LOWBIT, DCI_KV_QUEST,
                                  DCI_KV_CLUSTERKV, DCI_KV_FREEKV,        DCI_KV_SKETCH_SUMS};
enum { N_PLANNED = sizeof planned / sizeof *planned, PROMPT = 360, DECODED = 30 };

/* A prompt in chunks, whose rows the history names; then a decode, whose outputs are returned. free() */
static float *prompt_in(const dci_kv_config *config, size_t chunk, uint64_t *out_clustered)
{
        const dci_gpu_kv_config on_device = {.struct_size = sizeof on_device,
                                             .max_sequences = 1,
                                             .max_tokens = HISTORY_MAX_TOKENS,
                                             .ring_tokens = 128,
                                             .hot_tokens = 128,
                                             .gather = DCI_GPU_GATHER_MAPPED,
                                             .out_dtype = DCI_F32,
                                             .piece_bytes = 1,
                                             .planner = DCI_GPU_PLAN_DEVICE};
        history_life l = history_begin(config, &on_device);
        history_tale *s = history_open(&l);
        const size_t n_out = config->n_query_heads * config->dim_k, n_all = DECODED * config->n_layers * n_out;
        float *out = twin_send(&l.t, NULL, n_all * sizeof *out), *seen = malloc(n_all * sizeof *seen), *at = out;
        ck_assert_ptr_nonnull(seen);
        for (size_t from = 0; from < PROMPT; from += chunk) {
                const size_t n = PROMPT - from < chunk ? PROMPT - from : chunk;
                history_reserve(&l, 1, &s, &n, from);
                for (size_t layer = 0; layer < config->n_layers; layer++) {
                        history_append(&l, layer);
                        history_ask(&l, layer, s);
                        if (from + n < PROMPT)
                                continue;
                        if (from > 0)
                                ck_ok(dci_gpu_kv_prompt_rows(l.t.kv, l.t.stream, layer, s->id, &l.last));
                        history_end_prompt(&l, layer, s);
                }
                history_step_end(&l);
                ck_assert(l.t.kv->planner.clustered || from + n < PROMPT ||
                          l.t.kv->rows[0].n_formed == dci_kv_prompt_candidates(l.t.kv->host, PROMPT));
        }
        for (size_t i = 0; i < DECODED; i++) {
                history_reserve(&l, 1, &s, &(size_t){1}, PROMPT + i);
                for (size_t layer = 0; layer < config->n_layers; layer++, at += n_out) {
                        const void *queries = l.queries + (layer * HISTORY_N + PROMPT + i) * l.query;
                        history_append(&l, layer);
                        ck_ok(dci_gpu_kv_plan(l.t.kv, l.t.stream, layer, queries, config->dim_k));
                        ck_ok(dci_gpu_kv_attend(l.t.kv, l.t.stream, layer, queries, config->dim_k, at, config->dim_k,
                                                NULL));
                }
                history_step_end(&l);
        }
        ck_ok(l.t.ops->copy(l.t.gpu, l.t.stream, seen, out, n_all * sizeof *seen));
        ck_ok(l.t.ops->stream_wait(l.t.gpu, l.t.stream));
        *out_clustered = twin_info(&l.t).n_clustered;
        twin_give(&l.t, out, n_all * sizeof *out);
        history_end(&l);
        return seen;
}

START_TEST(a_prompt_in_chunks_decodes_as_one_in_a_step)
{
        const dci_kv_config config = twin_small(planned[_i]);
        const size_t n = DECODED * config.n_layers * config.n_query_heads * config.dim_k, chunks[] = {100, 359, 37};
        uint64_t clustered, wanted_clustered;
        float *wanted = prompt_in(&config, PROMPT, &wanted_clustered);
        ck_assert(wanted_clustered == (planned[_i] == DCI_KV_CLUSTERKV ? config.n_layers - config.dense_layers : 0));
        for (size_t c = 0; c < (test_short() ? 1 : 3); c++) {
                float *got = prompt_in(&config, chunks[c], &clustered);
                ck_assert_msg(memcmp(got, wanted, n * sizeof *got) == 0, "%s in chunks of %zu",
                              dci_kv_preset_name(planned[_i]), chunks[c]);
                ck_assert_uint_eq(clustered, wanted_clustered);
                free(got);
        }
        free(wanted);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv history");
        TCase *lives = test_case(suite, "lives", 60), *laws = test_case(suite, "laws", 60);
        tcase_add_loop_test(lives, rows_are_those_that_were_appended, 0, HISTORY_KINDS);
        tcase_add_loop_test(lives, a_prompt_in_chunks_decodes_as_one_in_a_step, 0, N_PLANNED);
        tcase_add_loop_test(lives, packed_blocks_have_arrived, 0, 3);
        tcase_add_test(lives, a_block_that_was_shared_has_arrived);
        tcase_add_test(lives, bad_rows_are_copied_as_they_are);
        tcase_add_test(laws, each_earlier_token_comes_once);
        tcase_add_test(laws, a_repeated_call_queues_nothing);
        tcase_add_test(laws, few_copies_take_many_blocks);
        tcase_add_test(laws, copies_do_not_wait_for_the_computation_before);
        return test_main(suite);
}
