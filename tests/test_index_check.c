/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * dci_index_check: indexes of every kind, metric and format pass whatever happened to them, here and where they were loaded; what files
 * and borrowers do to rows is found. tests/test_index_damage.c has damage of every sort.
 */
#include <math.h>
#include <string.h>

#include "dci/file.h"
#include "tests/check_fixture.h"

enum { DIM = CHECK_DIM };

/* --- what is whole passes --------------------------------------------------------------------------------------------------------- */

START_TEST(every_kind_metric_format_and_width_passes)
{
        static const int32_t bits[] = {0, 1, 2, 3, 4, 8};
        dci_context *context = test_context(2);
        const dci_metric metric = 1 + (dci_metric)(_i % 3);
        const dci_dtype dtype = 1 + (dci_dtype)(_i / 3 % 3);
        const dci_index_kind kind = 1 + (dci_index_kind)(_i / 9);
        for (size_t b = 0; b < COUNT(bits); b++) {
                const dci_index_config config = check_config(kind, metric, dtype, bits[b]);
                dci_index *index = check_make(context, &config);
                check_passes(index);
                float *queries = test_normal(5, DIM, 9);
                if (bits[b] != 0)
                        ck_ok(dci_index_fit(index, 5, queries, DIM));
                free(queries);
                check_passes(index);
                dci_index_destroy(index);
        }
        dci_context_destroy(context);
}
END_TEST

/* Also at the other instruction sets of this machine, whose norms, projections and codes round otherwise. */
START_TEST(what_was_saved_passes_at_every_instruction_set)
{
        const size_t n = test_n_isas();
        dci_context *context = test_context_of_level((int)(_i % 2 == 0 ? 0 : n - 1));
        const dci_index_kind kind = 1 + (dci_index_kind)(_i / 2 % 3);
        const dci_metric metric = 1 + (dci_metric)(_i / 6);
        const dci_index_config config = check_config(kind, metric, DCI_F32, 4);
        dci_index *index = check_make(context, &config);
        size_t n_bytes;
        if (_i % 4 >= 2) {
                float *queries = test_normal(5, DIM, 9);
                ck_ok(dci_index_fit(index, 5, queries, DIM));
                free(queries);
        }
        ck_ok(dci_index_save_memory(index, 0, NULL, &n_bytes));
        unsigned char *bytes = malloc(n_bytes);
        ck_ok(dci_index_save_memory(index, n_bytes, bytes, &n_bytes));
        for (size_t i = 0; i < n; i++) {
                dci_context *other = test_context_of_level((int)i);
                dci_index *loaded = NULL;
                ck_ok(dci_index_load_memory(other, bytes, n_bytes, &loaded));
                check_passes(loaded);
                dci_index_destroy(loaded);
                dci_context_destroy(other);
        }
        free(bytes);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

START_TEST(empty_and_emptied_indexes_pass)
{
        dci_context *context = test_context(1);
        const dci_index_config config = check_config(1 + (dci_index_kind)_i, DCI_METRIC_IP, DCI_F16, 2);
        dci_index *index = NULL;
        float *rows = test_normal(40, DIM, 1);
        int64_t ids[40];
        ck_ok(dci_index_create(context, &config, &index));
        check_passes(index);
        ck_ok(dci_index_reserve(index, 1000));
        check_passes(index);
        ck_ok(dci_index_add(index, 40, rows, DIM, NULL, NULL));
        for (int64_t i = 0; i < 40; i++)
                ids[i] = i;
        ck_ok(dci_index_remove(index, 40, ids));
        check_passes(index);
        free(rows);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

/* A file of another index's codes under right checksums: nothing says so but the rows. */
START_TEST(foreign_projections_and_codes_of_a_file_are_found)
{
        dci_context *context = test_context(1);
        dci_index_config config = check_config(DCI_KIND_PDCI, DCI_METRIC_L2, DCI_F32, 4);
        dci_index *index = check_make(context, &config), *loaded = NULL;
        size_t n_bytes, at;
        const dci_view view = dci_rows_view(&index->rows);
        const dci_unit unit = dci_view_unit(&view, 2);
        if (_i == 0)
                dci_rows_chunk(&index->rows, 37, &at)->projections[37] += 1e-3f;
        else
                unit.area->blocks[unit.unit / 2 * index->rows.codes->frames.block_bytes + dci_code_word(5)] ^= 0xff;
        ck_ok(dci_index_save_memory(index, 0, NULL, &n_bytes));
        void *bytes = malloc(n_bytes);
        ck_ok(dci_index_save_memory(index, n_bytes, bytes, &n_bytes));
        ck_ok(dci_index_load_memory(context, bytes, n_bytes, &loaded));
        ck_ok(dci_index_check(loaded, DCI_CHECK_STRUCTURE, NULL));
        ck_refused(dci_index_check(loaded, DCI_CHECK_FULL, NULL), DCI_ERR_FORMAT,
                   _i == 0 ? "projection 0" : "the code");
        free(bytes);
        dci_index_destroy(loaded);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

START_TEST(what_a_borrower_changed_is_found)
{
        dci_context *context = test_context(1);
        dci_index_config config = check_config(DCI_KIND_PDCI, DCI_METRIC_L2, DCI_F32, 0);
        dci_index *index = NULL;
        float *rows = test_normal(50, DIM, 4);
        config.storage = DCI_ROWS_BORROWED;
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, 50, rows, DIM, NULL, NULL));
        check_passes(index);
        rows[20 * DIM + 1] += 1.0f;
        ck_refused(dci_index_check(index, DCI_CHECK_FULL, NULL), DCI_ERR_FORMAT, "the row in slot 20");
        dci_index_destroy(index);
        dci_context_destroy(context);
        free(rows);
}
END_TEST

/* --- the call ------------------------------------------------------------------------------------------------------------------------ */

static int32_t ask_from_inside(void *ctx, size_t done, size_t total)
{
        (void)done;
        (void)total;
        ck_refused(dci_index_check(ctx, DCI_CHECK_FULL, NULL), DCI_ERR_BUSY, "callback");
        return 0;
}

START_TEST(bad_arguments_are_refused_and_progress_can_stop_it)
{
        dci_context *context = test_context(1);
        const dci_index_config config = check_config(DCI_KIND_MDCI, DCI_METRIC_L2, DCI_F32, 4);
        dci_index *index = check_make(context, &config);
        size_t calls = 0;
        const dci_progress stops = {&calls, test_stop_at_once}, asks = {index, ask_from_inside};
        ck_refused(dci_index_check(NULL, DCI_CHECK_FULL, NULL), DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_check(index, 0, NULL), DCI_ERR_INVALID, "level is 0");
        ck_refused(dci_index_check(index, 3, NULL), DCI_ERR_INVALID, "level is 3");
        ck_refused(dci_index_check(index, DCI_CHECK_FULL, &stops), DCI_ERR_CANCELLED, "stopped");
        ck_assert_uint_eq(calls, 1);
        ck_ok(dci_index_check(index, DCI_CHECK_STRUCTURE, &stops));
        ck_assert_uint_eq(calls, 1);
        ck_ok(dci_index_check(index, DCI_CHECK_FULL, &asks));
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

static void *prepare(dci_context *context, const void *arg)
{
        dci_index *index = check_make(context, arg);
        return index;
}
static size_t check_once(void *prepared)
{
        const dci_status status = dci_index_check(prepared, DCI_CHECK_FULL, NULL);
        ck_assert(status == DCI_OK || status == DCI_ERR_MEMORY);
        dci_index_destroy(prepared);
        return status != DCI_OK;
}

START_TEST(any_allocation_may_fail)
{
        const dci_index_config config = check_config(DCI_KIND_MDCI, DCI_METRIC_IP, DCI_F32, 4);
        ck_assert_uint_ge(test_each_allocation_failing(1, prepare, check_once, &config), 5);
}
END_TEST

/* Directions of long rows are most of a small index, and were once drawn all at a time: a limited process then could not check what
 * it had loaded. */
START_TEST(directions_are_checked_one_at_a_time)
{
        enum { LONG = 1 << 16 };
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        dci_index_config config = check_config(DCI_KIND_PDCI, _i == 0 ? DCI_METRIC_L2 : DCI_METRIC_IP, DCI_F32, 0);
        dci_index *index = NULL;
        float *row = test_normal(1, LONG, 1);
        config.dim = LONG;
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, 1, row, LONG, NULL, NULL));
        ck_assert_uint_ge(index->directions.n, 4);
        atomic_store(&memory.largest, 0);
        ck_ok(dci_index_check(index, DCI_CHECK_FULL, NULL));
        ck_assert_uint_ge(atomic_load(&memory.largest), LONG * sizeof(float));
        ck_assert_uint_lt(atomic_load(&memory.largest), 2 * LONG * sizeof(float));
        index->directions.vectors[3 * LONG - 1] *= 1.5f;
        ck_refused(dci_index_check(index, DCI_CHECK_FULL, NULL), DCI_ERR_FORMAT, "direction 2 is not the one");
        dci_index_destroy(index);
        free(row);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index check");
        TCase *whole = test_case(suite, "whole", 120);
        tcase_add_loop_test(whole, every_kind_metric_format_and_width_passes, 0, 27);
        tcase_add_loop_test(whole, what_was_saved_passes_at_every_instruction_set, 0, 18);
        tcase_add_loop_test(whole, empty_and_emptied_indexes_pass, 0, 3);
        TCase *damaged = test_case(suite, "damaged", 60);
        tcase_add_loop_test(damaged, foreign_projections_and_codes_of_a_file_are_found, 0, 2);
        tcase_add_test(damaged, what_a_borrower_changed_is_found);
        TCase *call = test_case(suite, "call", 120);
        tcase_add_test(call, bad_arguments_are_refused_and_progress_can_stop_it);
        tcase_add_test(call, any_allocation_may_fail);
        tcase_add_loop_test(call, directions_are_checked_one_at_a_time, 0, 2);
        return test_main(suite);
}
