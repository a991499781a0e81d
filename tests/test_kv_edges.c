/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: what calls refuse and in which words, and that a refused call changes nothing. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kv_fixture.h"
#include "tests/scratch.h"

enum { FIRST = 150, SECOND = 200, N = 260, ABSENT = 4321 };

/* A cache with two sequences, what it says of them, and one in which nothing is ever refused. */
static dci_context *context;
static dci_kv_config config;
static dci_kv *kv, *control;
static kv_data data;
static int64_t a, b, plain;
static kv_turn both[2];
static kv_seen before;
static dci_kv_info info;
static dci_kv_sequence_info info_a;

static void begin(int32_t preset)
{
        config = kv_small(preset);
        data = kv_random(&config, N, 80);
        kv = kv_create(context, &config);
        control = kv_create(context, &config);
        a = kv_begin(kv, &data, FIRST);
        b = kv_begin(kv, &data, SECOND);
        plain = kv_begin(control, &data, SECOND);
        both[0] = (kv_turn){a, &data, FIRST, 0};
        both[1] = (kv_turn){b, &data, SECOND, 0};
        before = kv_look(kv, 2, both);
        info = kv_info(kv);
        info_a = kv_sequence_info(kv, a);
}

static void setup(void)
{
        scratch_open();
        context = test_context(2);
        begin(DCI_KV_SKETCH_LOWBIT);
}

/* Whatever was refused: the second sequence goes on as one that saw none of it. */
static void teardown(void)
{
        kv_alike(kv, b, control, plain, &data, SECOND, 20, "after what was refused");
        kv_seen_free(&before);
        dci_kv_destroy(kv);
        kv_end(control, &data);
        dci_context_destroy(context);
        scratch_close();
}

static void unchanged(const char *call)
{
        const dci_kv_info now = kv_info(kv);
        const dci_kv_sequence_info now_a = kv_sequence_info(kv, a);
        ck_assert_msg(memcmp(&now, &info, sizeof now) == 0, "%s: the cache's figures have changed: %zu bytes, were %zu",
                      call, now.bytes, info.bytes);
        ck_assert_msg(memcmp(&now_a, &info_a, sizeof now_a) == 0, "%s: the sequence's figures have changed", call);
        kv_seen seen = kv_look(kv, 2, both);
        kv_same(&before, 0, &seen, 0, call);
        kv_same(&before, 1, &seen, 1, call);
        kv_seen_free(&seen);
        info_a = kv_sequence_info(kv, a); /* which counts plans */
}

static void says(const char *part, const char *call)
{
        ck_assert_msg(strstr(dci_last_error(), part) != NULL, "%s: '%s' does not say '%s'", call, dci_last_error(),
                      part);
}

/* A call is refused in words that hold both parts; and, where no step is open, nothing is as it was not before. */
#define REFUSED(call, status, part, other)                                                                             \
        do {                                                                                                           \
                ck_refused(call, status, part);                                                                        \
                says(other, #call);                                                                                    \
        } while (0)
#define UNCHANGED(call, status, part, other)                                                                           \
        do {                                                                                                           \
                REFUSED(call, status, part, other);                                                                    \
                unchanged(#call);                                                                                      \
        } while (0)

/* --- arguments ------------------------------------------------------------------------------------------------------------ */

START_TEST(unknown_sequences_are_named)
{
        const int64_t absent = ABSENT, pair[] = {a, ABSENT};
        const size_t two[] = {1, 1};
        int64_t out = -5;
        int32_t block;
        float row[4 * 16] = {0}, outs[4 * 16];
        dci_kv_plan plan;
        dci_kv_rows rows;
        dci_kv_sequence_info of;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        ck_ok(dci_kv_sequence_info_init(&of, sizeof of));
        plan = kv_plan(kv, 2);
        info = kv_info(kv);
        UNCHANGED(dci_kv_fork(kv, absent, 0, &out), DCI_ERR_NOT_FOUND, "sequence", "4321");
        ck_assert_int_eq(out, -5);
        UNCHANGED(dci_kv_truncate(kv, absent, 0), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_close(kv, absent), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_close(kv, -1), DCI_ERR_NOT_FOUND, "sequence", "-1");
        UNCHANGED(dci_kv_reserve(kv, 2, pair, two), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_append(kv, 0, 2, pair, two, &rows), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_end_prompt(kv, 0, absent, 0, NULL, 0), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_wait(kv, absent), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_step_end(kv, 2, pair), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_step_abort(kv, 2, pair), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_maintain(kv, 2, pair), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_plan_make(kv, 0, 1, &absent, row, 16, &plan), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_attend(kv, 0, 1, &absent, row, 16, NULL, outs, 16, NULL), DCI_ERR_NOT_FOUND, "sequence",
                  "4321");
        UNCHANGED(dci_kv_table(kv, absent, 0, 1, &block), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_read(kv, 0, absent, 0, 0, 0, NULL, NULL), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_get_sequence(kv, absent, &of), DCI_ERR_NOT_FOUND, "sequence", "4321");
        UNCHANGED(dci_kv_save(kv, absent, 0, scratch_path("x")), DCI_ERR_NOT_FOUND, "sequence", "4321");
        ck_assert_uint_eq(scratch_count(), 0);
        dci_kv_plan_destroy(kv, &plan);
}
END_TEST

/* A number is never used again. */
START_TEST(closed_sequences_are_unknown)
{
        const int64_t fresh = kv_open(kv);
        ck_ok(dci_kv_close(kv, fresh));
        REFUSED(dci_kv_close(kv, fresh), DCI_ERR_NOT_FOUND, "sequence", "");
        REFUSED(dci_kv_truncate(kv, fresh, 0), DCI_ERR_NOT_FOUND, "sequence", "");
        for (int i = 0; i < 20; i++) {
                const int64_t next = kv_open(kv);
                ck_assert_int_ne(next, fresh);
                ck_ok(dci_kv_close(kv, next));
        }
        ck_assert_uint_eq(kv_info(kv).n_sequences, 2);
}
END_TEST

START_TEST(caches_that_are_missing_are_named)
{
        int64_t out;
        float row[4 * 16] = {0};
        dci_kv_plan plan;
        dci_kv_info of;
        dci_kv_sequence_info of_sequence;
        ck_ok(dci_kv_info_init(&of, sizeof of));
        ck_ok(dci_kv_sequence_info_init(&of_sequence, sizeof of_sequence));
        plan = kv_plan(kv, 2);
        info = kv_info(kv);
        dci_kv *none = NULL;
        REFUSED(dci_kv_create(NULL, &config, &none), DCI_ERR_INVALID, "context", "NULL");
        REFUSED(dci_kv_create(context, NULL, &none), DCI_ERR_INVALID, "config", "NULL");
        REFUSED(dci_kv_create(context, &config, NULL), DCI_ERR_INVALID, "out_kv", "NULL");
        REFUSED(dci_kv_open(NULL, &out), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_fork(NULL, a, 0, &out), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_truncate(NULL, a, 0), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_close(NULL, a), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_reserve(NULL, 1, &a, NULL), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_assign_blocks(NULL, a, 0, NULL), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_append(NULL, 0, 1, &a, NULL, NULL), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_end_prompt(NULL, 0, a, 0, NULL, 0), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_wait(NULL, a), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_step_end(NULL, 1, &a), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_step_abort(NULL, 1, &a), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_maintain(NULL, 1, &a), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_plan_create(NULL, 1, &plan), DCI_ERR_INVALID, "kv", "NULL");
        REFUSED(dci_kv_plan_make(NULL, 0, 1, &a, row, 16, &plan), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_attend(NULL, 0, 1, &a, row, 16, NULL, row, 16, NULL), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_table(NULL, a, 0, 0, NULL), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_read(NULL, 0, a, 0, 0, 0, NULL, NULL), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_get_sequence(NULL, a, &of_sequence), DCI_ERR_INVALID, "NULL", "");
        REFUSED(dci_kv_get_info(NULL, &of), DCI_ERR_INVALID, "NULL", "");
        REFUSED(dci_kv_save(NULL, a, 0, scratch_path("x")), DCI_ERR_INVALID, "kv is NULL", "");
        REFUSED(dci_kv_load(NULL, scratch_path("x"), &out), DCI_ERR_INVALID, "kv is NULL", "");
        dci_kv_plan_destroy(kv, &plan);
        dci_kv_plan_destroy(kv, NULL);
        dci_kv_plan_destroy(NULL, NULL);
        dci_kv_destroy(NULL);
}
END_TEST

START_TEST(arguments_that_are_missing_are_named)
{
        int64_t out;
        float row[4 * 16] = {0};
        dci_kv_info of;
        dci_kv_sequence_info of_sequence;
        ck_ok(dci_kv_info_init(&of, sizeof of));
        ck_ok(dci_kv_sequence_info_init(&of_sequence, sizeof of_sequence));
        dci_kv_plan plan = kv_plan(kv, 2);
        info = kv_info(kv);
        UNCHANGED(dci_kv_open(kv, NULL), DCI_ERR_INVALID, "out_sequence", "NULL");
        UNCHANGED(dci_kv_fork(kv, a, 0, NULL), DCI_ERR_INVALID, "out_sequence", "NULL");
        UNCHANGED(dci_kv_load(kv, scratch_path("x"), NULL), DCI_ERR_INVALID, "out_sequence", "NULL");
        UNCHANGED(dci_kv_save(kv, a, 0, NULL), DCI_ERR_INVALID, "path", "NULL");
        UNCHANGED(dci_kv_load(kv, NULL, &out), DCI_ERR_INVALID, "path", "NULL");
        UNCHANGED(dci_kv_reserve(kv, 1, NULL, NULL), DCI_ERR_INVALID, "sequences", "NULL");
        UNCHANGED(dci_kv_step_end(kv, 1, NULL), DCI_ERR_INVALID, "sequences", "NULL");
        UNCHANGED(dci_kv_step_abort(kv, 1, NULL), DCI_ERR_INVALID, "sequences", "NULL");
        UNCHANGED(dci_kv_table(kv, a, 0, 1, NULL), DCI_ERR_INVALID, "out_blocks", "NULL");
        UNCHANGED(dci_kv_plan_create(kv, 1, NULL), DCI_ERR_INVALID, "out_plan", "NULL");
        dci_kv_plan fresh;
        memset(&fresh, 0, sizeof fresh);
        UNCHANGED(dci_kv_plan_create(kv, 1, &fresh), DCI_ERR_INVALID, "dci_kv_plan", "struct_size 0");
        ck_ok(dci_kv_plan_init(&fresh, sizeof fresh));
        UNCHANGED(dci_kv_plan_create(kv, 0, &fresh), DCI_ERR_INVALID, "max_sequences is 0", "65536");
        UNCHANGED(dci_kv_plan_create(kv, 65537, &fresh), DCI_ERR_INVALID, "max_sequences is 65537", "65536");
        UNCHANGED(dci_kv_plan_make(kv, 0, 1, NULL, row, 16, &plan), DCI_ERR_INVALID, "sequences", "NULL");
        UNCHANGED(dci_kv_plan_make(kv, 0, 1, &a, NULL, 16, &plan), DCI_ERR_INVALID, "queries", "NULL");
        UNCHANGED(dci_kv_plan_make(kv, 0, 1, &a, row, 16, NULL), DCI_ERR_INVALID, "plan", "NULL");
        UNCHANGED(dci_kv_attend(kv, 0, 1, &a, NULL, 16, NULL, row, 16, NULL), DCI_ERR_INVALID, "queries", "NULL");
        UNCHANGED(dci_kv_attend(kv, 0, 1, &a, row, 16, NULL, NULL, 16, NULL), DCI_ERR_INVALID, "out", "NULL");
        UNCHANGED(dci_kv_get_info(kv, NULL), DCI_ERR_INVALID, "info", "NULL");
        UNCHANGED(dci_kv_get_sequence(kv, a, NULL), DCI_ERR_INVALID, "info", "NULL");
        of.struct_size = 24;
        UNCHANGED(dci_kv_get_info(kv, &of), DCI_ERR_INVALID, "dci_kv_info", "struct_size 24");
        of_sequence.struct_size = 24;
        UNCHANGED(dci_kv_get_sequence(kv, a, &of_sequence), DCI_ERR_INVALID, "dci_kv_sequence_info", "struct_size 24");
        dci_kv_plan_destroy(kv, &plan);
}
END_TEST

START_TEST(unknown_layers_heads_and_tokens_are_named)
{
        float row[4 * 16] = {0};
        int32_t blocks[64];
        int64_t out = -5;
        dci_kv_plan plan;
        plan = kv_plan(kv, 2);
        info = kv_info(kv);
        UNCHANGED(dci_kv_plan_make(kv, 2, 1, &a, row, 16, &plan), DCI_ERR_INVALID, "layer is 2", "2");
        UNCHANGED(dci_kv_attend(kv, 99, 1, &a, row, 16, NULL, row, 16, NULL), DCI_ERR_INVALID, "layer is 99", "2");
        UNCHANGED(dci_kv_end_prompt(kv, 7, a, 0, NULL, 0), DCI_ERR_INVALID, "layer is 7", "2");
        UNCHANGED(dci_kv_read(kv, 2, a, 0, 0, 1, row, NULL), DCI_ERR_INVALID, "layer is 2", "2");
        UNCHANGED(dci_kv_read(kv, 0, a, 2, 0, 1, row, NULL), DCI_ERR_INVALID, "kv_head is 2", "2");
        UNCHANGED(dci_kv_read(kv, 0, a, 0, FIRST, 1, row, NULL), DCI_ERR_INVALID, "150", "151");
        UNCHANGED(dci_kv_read(kv, 0, a, 0, FIRST + 1, 0, row, NULL), DCI_ERR_INVALID, "150", "151");
        UNCHANGED(dci_kv_read(kv, 0, a, 0, 1, SIZE_MAX, row, NULL), DCI_ERR_INVALID, "150", "");
        UNCHANGED(dci_kv_table(kv, a, 0, 20, blocks), DCI_ERR_INVALID, "19", "20");
        UNCHANGED(dci_kv_table(kv, a, 20, 0, blocks), DCI_ERR_INVALID, "19", "20");
        UNCHANGED(dci_kv_table(kv, a, 2, SIZE_MAX, blocks), DCI_ERR_INVALID, "19", "");
        UNCHANGED(dci_kv_fork(kv, a, FIRST + 1, &out), DCI_ERR_INVALID, "150", "151");
        ck_assert_int_eq(out, -5);
        UNCHANGED(dci_kv_truncate(kv, a, FIRST + 1), DCI_ERR_INVALID, "150", "151");
        UNCHANGED(dci_kv_save(kv, a, FIRST + 1, scratch_path("x")), DCI_ERR_INVALID, "150", "151");
        UNCHANGED(dci_kv_load(kv, scratch_path("absent"), &out), DCI_ERR_IO, "absent", "No such file");
        UNCHANGED(dci_kv_plan_make(kv, 0, 1, &a, row, 15, &plan), DCI_ERR_INVALID, "15", "16");
        UNCHANGED(dci_kv_attend(kv, 0, 1, &a, row, 15, NULL, row, 16, NULL), DCI_ERR_INVALID, "15", "16");
        UNCHANGED(dci_kv_attend(kv, 0, 1, &a, row, 16, NULL, row, 14, NULL), DCI_ERR_INVALID, "14", "16");
        dci_kv_plan_destroy(kv, &plan);
        ck_assert_uint_eq(scratch_count(), 0);
}
END_TEST

START_TEST(the_same_sequence_twice_in_a_call_is_refused)
{
        const int64_t twice[] = {b, a, b}, third = kv_open(kv);
        float rows[3 * 4 * 16] = {0}, out[3 * 4 * 16];
        char name[32];
        dci_kv_plan plan;
        snprintf(name, sizeof name, "sequence %lld", (long long)b);
        plan = kv_plan(kv, 3);
        info = kv_info(kv);
        UNCHANGED(dci_kv_reserve(kv, 3, twice, NULL), DCI_ERR_INVALID, name, "twice");
        UNCHANGED(dci_kv_step_end(kv, 3, twice), DCI_ERR_INVALID, name, "twice");
        UNCHANGED(dci_kv_step_abort(kv, 3, twice), DCI_ERR_INVALID, name, "twice");
        UNCHANGED(dci_kv_maintain(kv, 3, twice), DCI_ERR_INVALID, name, "twice");
        UNCHANGED(dci_kv_plan_make(kv, 0, 3, twice, rows, 16, &plan), DCI_ERR_INVALID, name, "twice");
        UNCHANGED(dci_kv_attend(kv, 0, 3, twice, rows, 16, NULL, out, 16, NULL), DCI_ERR_INVALID, name, "twice");
        ck_ok(dci_kv_close(kv, third));
        REFUSED(dci_kv_reserve(kv, 3, twice, NULL), DCI_ERR_INVALID, "3 sequences", "there are 2");
        dci_kv_plan_destroy(kv, &plan);
}
END_TEST

START_TEST(calls_for_no_sequence_do_nothing)
{
        dci_kv_rows rows;
        dci_kv_plan plan;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        ck_ok(dci_kv_reserve(kv, 0, NULL, NULL));
        ck_ok(dci_kv_append(kv, 0, 0, NULL, NULL, &rows));
        ck_ok(dci_kv_step_end(kv, 0, NULL));
        ck_ok(dci_kv_step_abort(kv, 0, NULL));
        ck_ok(dci_kv_maintain(kv, 0, NULL));
        ck_ok(dci_kv_maintain(kv, 0, &a));
        ck_ok(dci_kv_wait(kv, -1));
        plan = kv_plan(kv, 1);
        ck_ok(dci_kv_plan_make(kv, 0, 0, NULL, NULL, 16, &plan));
        ck_ok(dci_kv_attend(kv, 0, 0, NULL, NULL, 16, NULL, NULL, 16, NULL));
        ck_ok(dci_kv_table(kv, a, 0, 0, NULL));
        ck_ok(dci_kv_read(kv, 0, a, 0, FIRST, 0, NULL, NULL));
        dci_kv_plan_destroy(kv, &plan);
        unchanged("calls for nothing");
}
END_TEST

/* --- the order of a step ---------------------------------------------------------------------------------------------------- */

START_TEST(steps_go_in_order)
{
        const kv_turn turn = {a, &data, FIRST, 3};
        const size_t three = 3, four = 4, one = 1, many = DCI_KV_MAX_TOKENS;
        int64_t out;
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = data.stored_keys;
        rows.values = data.stored_values;
        UNCHANGED(dci_kv_append(kv, 0, 1, &a, &one, &rows), DCI_ERR_INVALID, "no step is open", "sequence");
        UNCHANGED(dci_kv_step_end(kv, 1, &a), DCI_ERR_INVALID, "no step is open", "sequence");
        UNCHANGED(dci_kv_step_abort(kv, 1, &a), DCI_ERR_INVALID, "no step is open", "sequence");
        UNCHANGED(dci_kv_end_prompt(kv, 0, a, 0, NULL, 0), DCI_ERR_INVALID, "ended already", "layer 0");
        UNCHANGED(dci_kv_reserve(kv, 1, &a, &many), DCI_ERR_LIMIT, "150", "134217728");
        kv_reserve(kv, 1, &turn);
        REFUSED(dci_kv_reserve(kv, 1, &a, &three), DCI_ERR_INVALID, "middle of a step", "sequence");
        REFUSED(dci_kv_fork(kv, a, 3, &out), DCI_ERR_INVALID, "middle of a step", "sequence");
        REFUSED(dci_kv_truncate(kv, a, 3), DCI_ERR_INVALID, "middle of a step", "sequence");
        REFUSED(dci_kv_save(kv, a, 3, scratch_path("x")), DCI_ERR_INVALID, "middle of a step", "sequence");
        REFUSED(dci_kv_maintain(kv, 1, &a), DCI_ERR_INVALID, "middle of a step", "sequence");
        REFUSED(dci_kv_append(kv, 2, 1, &a, &three, &rows), DCI_ERR_INVALID, "layer is 2", "2");
        REFUSED(dci_kv_append(kv, 0, 1, &a, &four, &rows), DCI_ERR_INVALID, "4 tokens", "3");
        REFUSED(dci_kv_append(kv, 0, 1, &a, &three, NULL), DCI_ERR_INVALID, "rows", "NULL");
        rows.struct_size = 8;
        REFUSED(dci_kv_append(kv, 0, 1, &a, &three, &rows), DCI_ERR_INVALID, "dci_kv_rows", "struct_size 8");
        rows.struct_size = sizeof rows;
        rows.keys = NULL;
        REFUSED(dci_kv_append(kv, 0, 1, &a, &three, &rows), DCI_ERR_INVALID, "keys", "NULL");
        rows.values = NULL;
        REFUSED(dci_kv_append(kv, 0, 1, &a, &three, &rows), DCI_ERR_INVALID, "layout", "NULL");
        rows.keys = data.stored_keys;
        rows.values = data.stored_values;
        rows.key_token_stride = 15;
        REFUSED(dci_kv_append(kv, 0, 1, &a, &three, &rows), DCI_ERR_INVALID, "key_token_stride is 15", "16");
        rows.key_token_stride = 0;
        rows.value_head_stride = 3;
        REFUSED(dci_kv_append(kv, 0, 1, &a, &three, &rows), DCI_ERR_INVALID, "value_head_stride is 3", "16");
        rows.value_head_stride = 0;
        REFUSED(dci_kv_step_end(kv, 1, &a), DCI_ERR_INVALID, "layer 0", "3 tokens");
        kv_append(kv, 0, 1, &turn);
        REFUSED(dci_kv_append(kv, 0, 1, &a, &one, &rows), DCI_ERR_INVALID, "1 tokens", "0 are left");
        REFUSED(dci_kv_step_end(kv, 1, &a), DCI_ERR_INVALID, "layer 1", "0 of the 3");
        const int64_t pair[] = {b, a};
        REFUSED(dci_kv_reserve(kv, 2, pair, NULL), DCI_ERR_INVALID, "middle of a step", "sequence");
        ck_assert_uint_eq(kv_sequence_info(kv, b).n_reserved, 0);
        ck_ok(dci_kv_step_abort(kv, 1, &a));
        info.bytes = kv_info(kv).bytes; /* scratch stays */
        unchanged("a step that was taken back");
        ck_assert_uint_eq(scratch_count(), 0);
}
END_TEST

/* Tokens may come in parts, layer by layer, and a plan sees those that are there. */
START_TEST(a_step_may_come_in_parts)
{
        const kv_turn whole = {a, &data, FIRST, 10}, parts[] = {{a, &data, FIRST, 3}, {a, &data, FIRST + 3, 7}};
        const int64_t other = kv_begin(control, &data, FIRST);
        kv_feed(control, 1, &(kv_turn){other, &data, FIRST, 10});
        kv_reserve(kv, 1, &whole);
        kv_append(kv, 0, 1, parts);
        kv_append(kv, 1, 1, parts);
        kv_append(kv, 1, 1, parts + 1);
        kv_append(kv, 0, 1, parts + 1);
        kv_step_end(kv, 1, &whole);
        kv_alike(kv, a, control, other, &data, FIRST + 10, 10, "parts");
}
END_TEST

/* Where its end is known only when the first token after it comes, the prompt ends in a step of no tokens. */
START_TEST(a_prompt_may_end_in_a_step_of_its_own)
{
        const kv_turn prompt = {kv_open(kv), &data, 0, FIRST}, nothing = {prompt.sequence, &data, FIRST, 0};
        const int64_t other = kv_begin(control, &data, FIRST);
        kv_feed(kv, 1, &prompt);
        kv_reserve(kv, 1, &nothing);
        kv_prompt(kv, 0, prompt.sequence, &data, FIRST);
        kv_prompt(kv, 1, prompt.sequence, &data, FIRST);
        kv_step_end(kv, 1, &nothing);
        kv_alike(kv, prompt.sequence, control, other, &data, FIRST, 10, "a step of its own");
}
END_TEST

START_TEST(plans_need_the_prompts_end)
{
        const int64_t fresh = kv_open(kv);
        const kv_turn turn = {fresh, &data, 0, 30};
        float row[4 * 16] = {0}, out[4 * 16];
        int64_t fork;
        dci_kv_plan plan;
        plan = kv_plan(kv, 1);
        REFUSED(dci_kv_plan_make(kv, 0, 1, &fresh, row, 16, &plan), DCI_ERR_INVALID, "prompt", "sequence");
        REFUSED(dci_kv_fork(kv, fresh, 0, &fork), DCI_ERR_INVALID, "prompt", "sequence");
        REFUSED(dci_kv_save(kv, fresh, 0, scratch_path("x")), DCI_ERR_INVALID, "prompt", "sequence");
        REFUSED(dci_kv_end_prompt(kv, 0, fresh, 0, NULL, 0), DCI_ERR_INVALID, "no step is open", "sequence");
        kv_reserve(kv, 1, &turn);
        REFUSED(dci_kv_end_prompt(kv, 0, fresh, 0, NULL, 0), DCI_ERR_INVALID, "layer 0", "30");
        kv_append(kv, 0, 1, &turn);
        REFUSED(dci_kv_plan_make(kv, 0, 1, &fresh, row, 16, &plan), DCI_ERR_INVALID, "prompt", "sequence");
        ck_ok(dci_kv_attend(kv, 0, 1, &fresh, row, 16, NULL, out, 16, NULL)); /* over everything: no plan is needed */
        REFUSED(dci_kv_end_prompt(kv, 0, fresh, 31, row, 16), DCI_ERR_INVALID, "31", "30");
        REFUSED(dci_kv_end_prompt(kv, 0, fresh, 1, NULL, 16), DCI_ERR_INVALID, "queries", "NULL");
        REFUSED(dci_kv_end_prompt(kv, 0, fresh, 1, row, 15), DCI_ERR_INVALID, "15", "16");
        kv_prompt(kv, 0, fresh, &data, 30);
        REFUSED(dci_kv_end_prompt(kv, 0, fresh, 0, NULL, 0), DCI_ERR_INVALID, "ended already", "layer 0");
        ck_ok(dci_kv_plan_make(kv, 0, 1, &fresh, row, 16, &plan));
        REFUSED(dci_kv_plan_make(kv, 1, 1, &fresh, row, 16, &plan), DCI_ERR_INVALID, "prompt", "sequence");
        const size_t none = 0;
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        REFUSED(dci_kv_append(kv, 0, 1, &fresh, &none, &rows), DCI_ERR_INVALID, "the prompt ended in this step",
                "layer 0");
        dci_kv_plan no_tail = plan;
        no_tail.tail_out = no_tail.tail_lse = NULL;
        REFUSED(dci_kv_plan_make(kv, 0, 1, &fresh, row, 16, &no_tail), DCI_ERR_INVALID, "tail_out is NULL", "tail is");
        ck_ok(dci_kv_close(kv, fresh));
        dci_kv_plan_destroy(kv, &plan);
        ck_assert_uint_eq(scratch_count(), 0);
}
END_TEST

/* Open steps and prompts under way are given up. */
START_TEST(sequences_may_be_closed_in_the_middle_of_a_step)
{
        for (size_t point = 0; point < 6; point++) {
                const int64_t fresh = kv_open(kv);
                const kv_turn turn = {fresh, &data, 0, N};
                if (point > 0)
                        kv_reserve(kv, 1, &turn);
                for (size_t layer = 0; layer < 2 && layer + 1 < point; layer++) {
                        kv_append(kv, layer, 1, &turn);
                        if (point > 3 || layer == 0)
                                kv_prompt(kv, layer, fresh, &data, N);
                }
                if (point == 5)
                        kv_step_end(kv, 1, &turn);
                ck_ok(dci_kv_close(kv, fresh));
                const dci_kv_info now = kv_info(kv);
                ck_assert_uint_eq(now.n_sequences, 2);
                ck_assert_uint_eq(now.n_blocks - now.n_free_blocks, info.n_blocks - info.n_free_blocks);
                ck_assert_uint_eq(now.summary_bytes, info.summary_bytes);
        }
}
END_TEST

START_TEST(caches_may_be_destroyed_in_the_middle_of_a_step)
{
        for (size_t point = 0; point < 4; point++) {
                dci_kv *other = kv_create(context, &config);
                const int64_t fresh = kv_open(other);
                const kv_turn turn = {fresh, &data, 0, N};
                kv_reserve(other, 1, &turn);
                for (size_t layer = 0; layer < 2 && layer < point; layer++) {
                        kv_append(other, layer, 1, &turn);
                        kv_prompt(other, layer, fresh, &data, N);
                }
                if (point == 3)
                        kv_step_end(other, 1, &turn);
                dci_kv_destroy(other);
        }
}
END_TEST

/* Blocks that came back in no order: those of a long prompt are neighbours again. What is shared stays where it is. */
/* The best keys of the last query, of which most lie after the first ones. */
START_TEST(without_a_window_the_last_position_chooses)
{
        enum { PROMPT = 200 };
        dci_kv_config own = kv_config(DCI_KV_SNAPKV, 1, 1, 1, 16);
        own.sink = own.window = own.rollback = 0;
        own.page_tokens = 8;
        own.budget = 24;
        own.observed_pool = 1;
        kv_data rows = kv_random(&own, PROMPT, 81);
        dci_kv *of = kv_create(context, &own);
        const int64_t sequence = kv_begin(of, &rows, PROMPT);
        kv_seen seen = kv_look(of, 1, &(kv_turn){sequence, &rows, PROMPT - 1, 0});
        const float *query = kv_query(&rows, 0, PROMPT - 1, 0);
        double scores[PROMPT], least = (double)INFINITY;
        bool taken[PROMPT] = {false};
        size_t n;
        const int32_t *list = kv_list(&seen, 0, 0, 0, &n);
        for (size_t t = 0; t < PROMPT; t++) {
                scores[t] = 0.0;
                for (size_t j = 0; j < 16; j++)
                        scores[t] += (double)query[j] * (double)kv_key(&rows, 0, t, 0)[j];
        }
        ck_assert_uint_eq(n, own.budget);
        for (size_t i = 0; i < n; i++) {
                taken[list[i]] = true;
                least = fmin(least, scores[list[i]]);
        }
        for (size_t t = 0; t < PROMPT; t++)
                ck_assert(taken[t] || scores[t] <= least + 1e-4);
        kv_seen_free(&seen);
        kv_end(of, &rows);
}
END_TEST

START_TEST(prompts_get_neighbouring_blocks)
{
        enum { MANY = 40, EACH = 8 };
        int64_t taken[EACH], kept;
        int32_t table[MANY];
        const size_t page = kv_info(kv).page_tokens, before_it = kv_info(kv).n_blocks - kv_info(kv).n_free_blocks;
        for (size_t i = 0; i < EACH; i++)
                taken[i] = kv_begin(kv, &data, MANY / EACH * page);
        for (size_t i = 0; i < EACH; i++)
                ck_ok(dci_kv_close(kv, taken[i * 3 % EACH]));
        const size_t wanted = MANY * page, little = 3 * page;
        for (size_t time = 0; time < 2; time++) {
                kept = kv_open(kv);
                ck_ok(dci_kv_reserve(kv, 1, &kept, time == 0 ? &wanted : &little));
                ck_ok(dci_kv_table(kv, kept, 0, time == 0 ? MANY : 3, table));
                for (size_t block = 1; block < (time == 0 ? MANY : 3); block++)
                        ck_assert_int_eq(table[block], table[0] + (int32_t)block);
                ck_ok(dci_kv_close(kv, kept));
        }
        ck_assert_uint_eq(kv_info(kv).n_blocks - kv_info(kv).n_free_blocks, before_it);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv edges");
        TCase *edges = test_case_with(suite, "edges", 60, setup, teardown);
        tcase_add_test(edges, unknown_sequences_are_named);
        tcase_add_test(edges, closed_sequences_are_unknown);
        tcase_add_test(edges, caches_that_are_missing_are_named);
        tcase_add_test(edges, arguments_that_are_missing_are_named);
        tcase_add_test(edges, unknown_layers_heads_and_tokens_are_named);
        tcase_add_test(edges, the_same_sequence_twice_in_a_call_is_refused);
        tcase_add_test(edges, calls_for_no_sequence_do_nothing);
        tcase_add_test(edges, steps_go_in_order);
        tcase_add_test(edges, a_step_may_come_in_parts);
        tcase_add_test(edges, a_prompt_may_end_in_a_step_of_its_own);
        tcase_add_test(edges, plans_need_the_prompts_end);
        tcase_add_test(edges, sequences_may_be_closed_in_the_middle_of_a_step);
        tcase_add_test(edges, caches_may_be_destroyed_in_the_middle_of_a_step);
        tcase_add_test(edges, prompts_get_neighbouring_blocks);
        tcase_add_test(edges, without_a_window_the_last_position_chooses);
        return test_main(suite);
}
