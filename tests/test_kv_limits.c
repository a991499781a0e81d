/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: plans that do not fit, sequences that end, memory that is limited. */
#include "tests/common.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kv/kv_internal.h"
#include "simd/kernels.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"

enum { PROMPT = 150, N = 260 };

static void says(const char *part)
{
        ck_assert_msg(strstr(dci_last_error(), part) != NULL, "'%s' does not say '%s'", dci_last_error(), part);
}
/* --- plans ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(plans_without_room_are_refused)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        kv_data data = kv_random(&config, N, 94);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequences[] = {kv_begin(kv, &data, PROMPT), kv_begin(kv, &data, 170)};
        const kv_turn turns[] = {{sequences[0], &data, PROMPT, 0}, {sequences[1], &data, 170, 0}};
        float *queries = kv_queries(0, 2, turns), *out = malloc(2 * 4 * 16 * sizeof *out);
        dci_kv_plan good, p;
        good = kv_plan(kv, 2);
#define BAD_PLAN(change, part, other)                                                                                  \
        do {                                                                                                           \
                p = good;                                                                                              \
                change;                                                                                                \
                ck_refused(dci_kv_plan_make(kv, 0, 2, sequences, queries, 16, &p), DCI_ERR_INVALID, part);             \
                says(other);                                                                                           \
        } while (0)
        BAD_PLAN(p.struct_size = 8, "dci_kv_plan", "struct_size 8");
        BAD_PLAN(p.max_sequences = 1, "1", "2");
        BAD_PLAN(p.n_lists = 1, "1", "2");
        BAD_PLAN(p.stride = kv_info(kv).stride - 1, "lists hold 95 slots", "96");
        BAD_PLAN(p.slots = NULL, "slots", "NULL");
        BAD_PLAN(p.counts = NULL, "counts", "NULL");
        BAD_PLAN(p.sink_end = NULL, "sink_end", "NULL");
        BAD_PLAN(p.recent_begin = NULL, "recent_begin", "NULL");
        BAD_PLAN(p.n_tokens = NULL, "n_tokens", "NULL");
        BAD_PLAN(p.tail_out = NULL, "tail_out", "NULL");
        BAD_PLAN(p.tail_lse = NULL, "tail_lse", "NULL");
#undef BAD_PLAN
        p = good;
        p.positions = NULL;
        ck_ok(dci_kv_plan_make(kv, 0, 2, sequences, queries, 16, &p));
        ck_ok(dci_kv_attend(kv, 0, 2, sequences, queries, 16, &p, out, 16, NULL));
        dci_kv_plan_destroy(kv, &good);
        test_free(queries, out);
        kv_end(kv, &data);
}
END_TEST

/* What attention reads of a plan is checked before it is followed. */
START_TEST(plans_that_lie_are_refused)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH);
        kv_data data = kv_random(&config, N, 95);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        const kv_turn turn = {sequence, &data, PROMPT, 0};
        kv_seen seen = kv_look(kv, 1, &turn);
        dci_kv_plan *plan = &seen.plans[0];
        float *queries = kv_queries(0, 1, &turn), *out = malloc(4 * 16 * sizeof *out);
        int32_t *const fields[] = {plan->counts,
                                   plan->counts + 1,
                                   plan->sink_end,
                                   plan->recent_begin,
                                   plan->n_tokens,
                                   plan->slots,
                                   plan->slots + plan->stride + 2};
        static const int32_t lies[] = {-1, INT32_MIN, INT32_MAX, 1 << 20};
        for (size_t f = 0; f < COUNT(fields); f++)
                for (size_t l = 0; l < COUNT(lies); l++) {
                        const int32_t truth = *fields[f];
                        *fields[f] = lies[l];
                        const dci_status status = dci_kv_attend(kv, 0, 1, &sequence, queries, 16, plan, out, 16, NULL);
                        ck_assert_msg(status == DCI_ERR_INVALID, "field %zu is %d: %s", f, lies[l],
                                      dci_status_name(status));
                        *fields[f] = truth;
                }
        ck_ok(dci_kv_attend(kv, 0, 1, &sequence, queries, 16, plan, out, 16, NULL));
        ck_assert_mem_eq(out, kv_out(&seen, 0, 0, 0), 4 * 16 * sizeof *out);
        /* Where everything is attended to, there is no sink. */
        plan->recent_begin[0] = 0;
        for (size_t l = 0; l < COUNT(lies); l++) {
                const int32_t truth = plan->sink_end[0];
                plan->sink_end[0] = lies[l];
                ck_refused(dci_kv_attend(kv, 0, 1, &sequence, queries, 16, plan, out, 16, NULL), DCI_ERR_INVALID,
                           "plan");
                plan->sink_end[0] = truth;
        }
        /* The plan was for more tokens than are left. */
        ck_ok(dci_kv_truncate(kv, sequence, 20));
        ck_refused(dci_kv_attend(kv, 0, 1, &sequence, queries, 16, plan, out, 16, NULL), DCI_ERR_INVALID, "150");
        kv_seen_free(&seen);
        test_free(queries, out);
        kv_end(kv, &data);
}
END_TEST

/* Without any token there is nothing to attend to. */
START_TEST(an_empty_sequence_gives_zeros)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, 4, 96);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 0);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, 0, 0});
        for (size_t j = 0; j < 2 * 4 * 16; j++)
                ck_assert_float_eq(seen.out[j], 0.0f);
        for (size_t j = 0; j < 2 * 4; j++)
                ck_assert(seen.lse[j] == -INFINITY);
        kv_seen_free(&seen);
        kv_end(kv, &data);
}
END_TEST

/* --- memory that is limited ------------------------------------------------------------------------------------------------------- */

/* What is beyond the limit is refused before any of it is taken, in words with the numbers; less of it can be had. */
START_TEST(memory_beyond_the_limit_is_not_taken)
{
        dci_kv_config config = kv_config(DCI_KV_SKETCH_LOWBIT, 2, 2, 2, 64);
        test_memory memory;
        dci_context *own = test_context_with(&memory, 1);
        dci_kv *free_one = kv_create(own, &config);
        kv_data data = kv_random(&config, 3000, 97);
        kv_begin(free_one, &data, 2000);
        config.max_bytes = kv_info(free_one).bytes + 65536;
        dci_kv_destroy(free_one);
        dci_kv *kv = kv_create(own, &config);
        const int64_t sequence = kv_open(kv);
        const size_t bytes = kv_info(kv).bytes, live = atomic_load(&memory.live_bytes);
        char most[32];
        snprintf(most, sizeof most, "%zu", config.max_bytes);
        for (size_t n = 40000; n < DCI_KV_MAX_TOKENS; n *= 7) {
                ck_refused(dci_kv_reserve(kv, 1, &sequence, &n), DCI_ERR_FULL, most);
                ck_assert_uint_eq(kv_info(kv).bytes, bytes);
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), live);
                ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_reserved, 0);
        }
        kv_prefill(kv, sequence, &data, 2000, 0);
        ck_assert_uint_le(kv_info(kv).bytes, config.max_bytes);
        kv_end(kv, &data);
        dci_context_destroy(own);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
}
END_TEST

/* Wherever the limit is met, a refused reservation leaves everything as it was. */
START_TEST(refused_reservations_take_nothing)
{
        dci_kv_config config = kv_config(DCI_KV_SKETCH_LOWBIT, 2, 2, 2, 64);
        const size_t n = 6000;
        dci_kv *kv = kv_create(context, &config);
        int64_t sequence = kv_open(kv);
        const size_t least = kv_info(kv).bytes;
        ck_ok(dci_kv_reserve(kv, 1, &sequence, &n));
        const size_t most = kv_info(kv).bytes;
        dci_kv_destroy(kv);
        size_t n_refused = 0;
        for (size_t i = 0; i <= 200; i++) {
                config.max_bytes = least + (most - least) * i / 200 + 64;
                kv = kv_create(context, &config);
                sequence = kv_open(kv);
                const size_t bytes = kv_info(kv).bytes;
                const dci_status status = dci_kv_reserve(kv, 1, &sequence, &n);
                ck_assert(status == DCI_OK || status == DCI_ERR_FULL);
                n_refused += status != DCI_OK;
                if (status != DCI_OK)
                        ck_assert_msg(kv_info(kv).bytes == bytes, "limit %zu: %zu bytes were in use, and now %zu: %s",
                                      config.max_bytes, bytes, kv_info(kv).bytes, dci_last_error());
                ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_reserved, status == DCI_OK ? n : 0);
                dci_kv_destroy(kv);
        }
        ck_assert(n_refused > 150 && n_refused <= 200);
}
END_TEST

START_TEST(sequences_end_at_the_most_there_can_be)
{
        const dci_kv_config config = kv_config(DCI_KV_FULL, 1, 1, 1, 4);
        dci_kv *kv = kv_create(context, &config);
        int64_t last = -1, one;
        for (size_t i = 0; i < DCI_KV_MAX_SEQUENCES; i++) {
                one = last;
                ck_ok(dci_kv_open(kv, &last));
                test_hold(last > one);
        }
        ck_refused(dci_kv_open(kv, &one), DCI_ERR_LIMIT, "65536");
        ck_ok(dci_kv_close(kv, last));
        ck_ok(dci_kv_open(kv, &one));
        ck_assert_uint_eq(kv_info(kv).n_sequences, DCI_KV_MAX_SEQUENCES);
        dci_kv_destroy(kv);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv limits");
        TCase *limits = test_case_with(suite, "limits", 60, context_open_2, context_close);
        tcase_add_test(limits, plans_without_room_are_refused);
        tcase_add_test(limits, plans_that_lie_are_refused);
        tcase_add_loop_test(limits, an_empty_sequence_gives_zeros, 0, KV_N_KINDS);
        tcase_add_test(limits, memory_beyond_the_limit_is_not_taken);
        tcase_add_test(limits, refused_reservations_take_nothing);
        tcase_add_test(limits, sequences_end_at_the_most_there_can_be);
        return test_main(suite);
}
