/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * dci_kv_check: caches of every preset pass whatever happened to them; tests/fuzz_kv.c asks after each of its operations, and
 * tests/test_kv_damage.c has damage of every sort.
 */
#include "kv/kv_internal.h"
#include "tests/kv_check_fixture.h"

/* --- what is whole passes --------------------------------------------------------------------------------------------------------- */

/* In the middle of a step, after it was taken back, after a cut, when memory is used up, and when nothing is left. */
START_TEST(every_preset_and_format_passes_at_every_turn)
{
        dci_context *context = test_context(2);
        kv_data data;
        int64_t sequence, other;
        const char *what = dci_kv_preset_name(kv_presets[_i % KV_N_KINDS]);
        dci_kv_config config = kv_check_config(kv_presets[_i % KV_N_KINDS]);
        config.dtype = 1 + (dci_dtype)(_i / KV_N_KINDS);
        dci_kv *kv = kv_check_make(context, &config, &data, &sequence);
        kv_check_passes(kv, what);
        ck_ok(dci_kv_reserve(kv, 1, &sequence, NULL));
        kv_check_passes(kv, what);
        ck_ok(dci_kv_step_abort(kv, 1, &sequence));
        kv_check_passes(kv, what);
        ck_ok(dci_kv_open(kv, &other));
        kv_check_passes(kv, what);
        ck_ok(dci_kv_truncate(kv, sequence, 250));
        kv_check_passes(kv, what);
        ck_ok(dci_kv_maintain(kv, 0, NULL));
        kv_check_passes(kv, what);
        ck_ok(dci_kv_truncate(kv, sequence, 0));
        kv_check_passes(kv, what);
        ck_ok(dci_kv_close(kv, sequence));
        kv_check_passes(kv, what);
        kv_end(kv, &data);
        dci_context_destroy(context);
}
END_TEST

/* A frozen prompt has a partial page, and a full cache is checked with memory of the context's. */
START_TEST(a_frozen_prompt_and_a_full_cache_pass)
{
        dci_context *context = test_context(1);
        kv_data data;
        int64_t sequence;
        dci_kv_config config = kv_check_config(kv_presets[_i]);
        config.frozen_prompt = 1;
        dci_kv *kv = kv_check_make(context, &config, &data, &sequence);
        kv_check_passes(kv, "frozen");
        kv->config.max_bytes = atomic_load(&kv->bytes);
        kv_check_passes(kv, "full");
        kv_end(kv, &data);
        dci_context_destroy(context);
}
END_TEST

/* --- the call ------------------------------------------------------------------------------------------------------------------------ */

static int32_t ask_from_inside(void *ctx, size_t done, size_t total)
{
        (void)done;
        (void)total;
        ck_refused(dci_kv_check(ctx, DCI_CHECK_FULL, NULL), DCI_ERR_BUSY, "callback");
        return 0;
}

START_TEST(bad_arguments_are_refused_and_progress_can_stop_it)
{
        dci_context *context = test_context(1);
        kv_data data;
        int64_t sequence;
        const dci_kv_config config = kv_check_config(DCI_KV_RETROINFER);
        dci_kv *kv = kv_check_make(context, &config, &data, &sequence);
        size_t calls = 0;
        const dci_progress stops = {&calls, test_stop_at_once}, asks = {kv, ask_from_inside};
        ck_refused(dci_kv_check(NULL, DCI_CHECK_FULL, NULL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_kv_check(kv, 0, NULL), DCI_ERR_INVALID, "level is 0");
        ck_refused(dci_kv_check(kv, DCI_CHECK_FULL, &stops), DCI_ERR_CANCELLED, "stopped");
        ck_assert_uint_eq(calls, 1);
        ck_ok(dci_kv_check(kv, DCI_CHECK_FULL, &asks));
        kv_check_passes(kv, "after");
        kv_end(kv, &data);
        dci_context_destroy(context);
}
END_TEST

static void *prepare(dci_context *context, const void *arg)
{
        kv_data data;
        int64_t sequence;
        dci_kv *kv = kv_check_make(context, arg, &data, &sequence);
        kv_data_free(&data);
        return kv;
}
static size_t check_once(void *prepared)
{
        const dci_status status = dci_kv_check(prepared, DCI_CHECK_FULL, NULL);
        ck_assert(status == DCI_OK || status == DCI_ERR_MEMORY);
        if (status != DCI_OK) /* and nothing has changed */
                kv_check_passes(prepared, "once more");
        dci_kv_destroy(prepared);
        return status != DCI_OK;
}

START_TEST(any_allocation_may_fail)
{
        const dci_kv_config config = kv_check_config(_i == 0 ? DCI_KV_RETROINFER : DCI_KV_ICECACHE);
        ck_assert_uint_ge(test_each_allocation_failing(1, prepare, check_once, &config), 4);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv check");
        TCase *whole = test_case(suite, "whole", 120);
        tcase_add_loop_test(whole, every_preset_and_format_passes_at_every_turn, 0, KV_N_KINDS * 3);
        tcase_add_loop_test(whole, a_frozen_prompt_and_a_full_cache_pass, 0, KV_N_KINDS);
        TCase *call = test_case(suite, "call", 120);
        tcase_add_test(call, bad_arguments_are_refused_and_progress_can_stop_it);
        tcase_add_loop_test(call, any_allocation_may_fail, 0, 2);
        return test_main(suite);
}
