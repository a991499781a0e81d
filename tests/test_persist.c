/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Saved indexes: what is loaded or mapped is what was saved, bit by bit, and goes on as it would have. */
#include "tests/context_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "tests/persist_fixture.h"
#include "tests/scratch.h"

static const char *name_of(int number, int life)
{
        static char text[100];
        const persist_case c = persist_case_of(number);
        snprintf(text, sizeof text, "kind %d metric %d dtype %d storage %d life %d", c.kind, c.metric, c.dtype,
                 c.storage, life);
        return text;
}

/* --- streams that give and take in odd pieces ---------------------------------------------------------------------------- */

typedef struct tape {
        persist_bytes bytes;
        size_t at, calls;
} tape;

static int32_t take(void *ctx, const void *data, size_t n_bytes)
{
        tape *t = ctx;
        ck_assert(n_bytes > 0);
        t->bytes.data = realloc(t->bytes.data, t->bytes.n + n_bytes);
        ck_assert_ptr_nonnull(t->bytes.data);
        memcpy(t->bytes.data + t->bytes.n, data, n_bytes);
        t->bytes.n += n_bytes;
        t->calls++;
        return 0;
}

static int32_t give(void *ctx, void *out, size_t n_bytes)
{
        tape *t = ctx;
        ck_assert(n_bytes > 0);
        if (n_bytes > t->bytes.n - t->at)
                return 1;
        memcpy(out, t->bytes.data + t->at, n_bytes);
        t->at += n_bytes;
        return 0;
}

static persist_bytes save_stream(const dci_index *index, size_t *out_calls)
{
        tape t = {.at = 0};
        dci_writer writer;
        ck_ok(dci_writer_init(&writer, sizeof writer));
        writer.write = take;
        writer.ctx = &t;
        ck_ok(dci_index_save_stream(index, &writer));
        *out_calls = t.calls;
        return t.bytes;
}

static dci_index *load_stream(const persist_bytes *bytes, bool known, size_t *out_read)
{
        tape t = {.bytes = *bytes};
        dci_reader reader;
        dci_index *index = NULL;
        ck_ok(dci_reader_init(&reader, sizeof reader));
        reader.read = give;
        reader.ctx = &t;
        reader.n_bytes = known ? bytes->n : 0;
        ck_ok(dci_index_load_stream(context, &reader, &index));
        *out_read = t.at;
        return index;
}

/* --- laws ------------------------------------------------------------------------------------------------------------------ */

/* Loops over kinds, metrics, dtypes and storages, two lives of each. */
START_TEST(what_is_loaded_answers_as_what_was_saved)
{
        for (int life = (_i + _i / 3) % 3; life < LIVES; life += 3) {
                persist_world w = persist_make(context, persist_case_of(_i), life);
                persist_bytes bytes = persist_save(w.index);
                dci_index *loaded = persist_load(context, &bytes);
                persist_agree(w.index, loaded, name_of(_i, life));
                persist_bytes again = persist_save(loaded);
                ck_assert_msg(persist_equal(&bytes, &again), "saved again: %s", name_of(_i, life));
                ck_assert_int_eq(loaded->config.storage, DCI_ROWS_OWNED);
                dci_index_destroy(loaded);
                persist_destroy(&w);
                persist_free(&bytes);
                persist_free(&again);
        }
}
END_TEST

/* Loops over kinds, metrics, dtypes and storages, a life of each. */
START_TEST(what_is_mapped_answers_as_what_was_saved)
{
        const int life = (_i + _i / LIVES) % LIVES;
        persist_world w = persist_make(context, persist_case_of(_i), life);
        dci_index *mapped = NULL;
        ck_ok(dci_index_save(w.index, scratch_path("index")));
        ck_ok(dci_index_map(context, scratch_path("index"), &mapped));
        unlink(scratch_path("index"));
        persist_agree(w.index, mapped, name_of(_i, life));
        persist_bytes bytes = persist_save(w.index), again = persist_save(mapped);
        ck_assert_msg(persist_equal(&bytes, &again), "saved again: %s", name_of(_i, life));
        dci_index_destroy(mapped);
        persist_destroy(&w);
        persist_free(&bytes);
        persist_free(&again);
}
END_TEST

/* Loops over kinds and metrics. */
START_TEST(files_memory_and_streams_hold_the_same_bytes)
{
        const persist_case c = persist_case_of(3 * _i);
        for (int life = (_i + _i / 3) % 3; life < LIVES; life += 3) {
                persist_world w = persist_make(context, c, life);
                persist_bytes bytes = persist_save(w.index);
                dci_index *loaded = NULL;
                size_t calls, n_read;
                ck_ok(dci_index_save(w.index, scratch_path("index")));
                scratch_expect("index", bytes.data, bytes.n);
                ck_assert_uint_eq(scratch_count(), 1);
                persist_bytes streamed = save_stream(w.index, &calls);
                ck_assert(persist_equal(&bytes, &streamed));
                ck_assert_uint_le(calls, 2 * bytes.n / 65536 + 2);
                ck_ok(dci_index_load(context, scratch_path("index"), &loaded));
                persist_agree(w.index, loaded, "from a path");
                dci_index_destroy(loaded);
                for (int known = 0; known < 2; known++) {
                        loaded = load_stream(&bytes, known == 1, &n_read);
                        ck_assert_uint_eq(n_read, bytes.n);
                        persist_agree(w.index, loaded, "from a stream");
                        dci_index_destroy(loaded);
                }
                persist_free(&streamed);
                persist_free(&bytes);
                persist_destroy(&w);
        }
}
END_TEST

START_TEST(a_stream_stands_behind_the_index_afterwards)
{
        persist_world w = persist_make(context, persist_case_of(1), LIFE_REMOVED);
        persist_bytes bytes = persist_save(w.index), twice = persist_copy(&bytes, 2 * bytes.n);
        memcpy(twice.data + bytes.n, bytes.data, bytes.n);
        tape t = {.bytes = twice};
        dci_reader reader;
        ck_ok(dci_reader_init(&reader, sizeof reader));
        reader.read = give;
        reader.ctx = &t;
        for (size_t i = 1; i <= 2; i++) {
                dci_index *loaded = NULL;
                ck_ok(dci_index_load_stream(context, &reader, &loaded));
                ck_assert_uint_eq(t.at, i * bytes.n);
                persist_agree(w.index, loaded, "one of two in a stream");
                dci_index_destroy(loaded);
        }
        persist_free(&twice);
        persist_free(&bytes);
        persist_destroy(&w);
}
END_TEST

/* Loops over kinds, metrics, dtypes and storages, a life of each. */
START_TEST(adds_and_removes_after_a_load_do_what_they_would_have_done)
{
        const int life = (_i + _i / LIVES) % LIVES;
        persist_world w = persist_make(context, persist_case_of(_i), life);
        persist_bytes bytes = persist_save(w.index);
        dci_index *pair[2] = {w.index, persist_load(context, &bytes)};
        int64_t ids[2 * PERSIST_ROWS];
        size_t n;
        for (int side = 0; side < 2; side++) {
                ck_ok(dci_index_add(pair[side], PERSIST_ROWS, w.rows + PERSIST_ROWS * w.row_bytes, PERSIST_DIM, NULL,
                                    NULL));
                ck_ok(dci_index_ids(pair[side], 2 * PERSIST_ROWS, ids, &n));
                for (size_t i = 0; i < n; i += 5)
                        ids[i / 5] = ids[i];
                ck_ok(dci_index_remove(pair[side], (n + 4) / 5, ids));
        }
        persist_agree(pair[0], pair[1], name_of(_i, life));
        persist_bytes first = persist_save(pair[0]), second = persist_save(pair[1]);
        ck_assert_msg(persist_equal(&first, &second), "%s", name_of(_i, life));
        dci_index_destroy(pair[1]);
        persist_destroy(&w);
        persist_free(&bytes);
        persist_free(&first);
        persist_free(&second);
}
END_TEST

/* Loops over kinds, metrics and dtypes. */
START_TEST(borrowed_rows_are_saved_as_the_owned_ones_would_be)
{
        persist_bytes bytes[2];
        for (int borrowed = 0; borrowed < 2; borrowed++) {
                persist_world w = persist_make(
                        context,
                        persist_case_of(_i < 18 ? _i + 18 * borrowed : PERSIST_FLAT_CASES + _i - 18 + 9 * borrowed),
                        LIFE_REMOVED);
                bytes[borrowed] = persist_save(w.index);
                persist_destroy(&w);
        }
        ck_assert(persist_equal(&bytes[0], &bytes[1]));
        persist_free(&bytes[0]);
        persist_free(&bytes[1]);
}
END_TEST

/* The same rows and ids, but other chunks and another map of ids. */
START_TEST(the_bytes_do_not_depend_on_how_the_index_came_about)
{
        persist_world w = persist_make(context, persist_case_of(3), LIFE_EMPTY);
        dci_index *other = NULL;
        const int64_t last = 2 * PERSIST_ROWS - 1;
        ck_ok(dci_index_create(context, &w.config, &other));
        dci_search_params defaults;
        ck_ok(dci_search_params_init(&defaults, sizeof defaults));
        ck_ok(dci_index_get_defaults(w.index, &defaults));
        ck_ok(dci_index_set_defaults(other, &defaults));
        ck_ok(dci_index_reserve(other, 100000));
        for (size_t i = 0; i < 2 * PERSIST_ROWS; i++)
                ck_ok(dci_index_add(other, 1, w.rows + i * w.row_bytes, PERSIST_DIM, NULL, NULL));
        ck_ok(dci_index_add(w.index, 2 * PERSIST_ROWS, w.rows, PERSIST_DIM, NULL, NULL));
        ck_ok(dci_index_remove(other, 1, &last));
        ck_ok(dci_index_add(other, 1, w.rows + last * (int64_t)w.row_bytes, PERSIST_DIM, &last, NULL));
        persist_bytes a = persist_save(w.index), b = persist_save(other);
        ck_assert_ptr_null(persist_section(&b, "ids", NULL));
        ck_assert(persist_equal(&a, &b));
        persist_free(&a);
        persist_free(&b);
        dci_index_destroy(other);
        persist_destroy(&w);
}
END_TEST

START_TEST(ids_are_not_reused_after_a_load)
{
        persist_world w = persist_make(context, persist_case_of(0), LIFE_EMPTIED);
        persist_bytes bytes = persist_save(w.index);
        dci_index *loaded = persist_load(context, &bytes);
        int64_t id;
        size_t n;
        ck_ok(dci_index_add(loaded, 1, w.rows, PERSIST_DIM, NULL, NULL));
        ck_ok(dci_index_ids(loaded, 1, &id, &n));
        ck_assert_int_eq(id, PERSIST_ROWS);
        dci_index_destroy(loaded);
        persist_destroy(&w);
        persist_free(&bytes);
}
END_TEST

/* Rows of squared norms at the limits, where one level keeps what another refuses, and some elsewhere. */
static void add_extremes(dci_index *index, size_t dim)
{
        static const double norms2[] = {DCI_MAX_NORM2, DCI_MIN_NORM2, 1.0, 0x1p-140, 1e30};
        size_t n_kept = 0;
        for (size_t s = 0; s < 40 * COUNT(norms2); s++) {
                float *row = test_normal(1, dim, s + 7);
                double norm2 = 0.0;
                for (size_t p = 0; p < dim; p++)
                        norm2 += (double)row[p] * (double)row[p];
                for (size_t p = 0; p < dim; p++)
                        row[p] = (float)(row[p] * sqrt(norms2[s % COUNT(norms2)] / norm2));
                dci_status status = dci_index_add(index, 1, row, dim, NULL, NULL);
                ck_assert(status == DCI_OK || (status == DCI_ERR_NUMBER && s % COUNT(norms2) != 2));
                n_kept += status == DCI_OK;
                free(row);
        }
        ck_assert_uint_ge(n_kept, 80);
}

/* Loops over kinds and metrics; every pair of instruction sets. */
START_TEST(files_travel_between_instruction_sets)
{
        const size_t n = test_n_isas();
        for (size_t f = 0; f < 2 * n; f++) {
                const size_t from = f / 2, keep = f % 2;
                dci_context *writes = test_context_of_level((int)from);
                dci_index_config config = index_config(1000, DCI_METRIC_L2 + _i / 3, DCI_F32);
                dci_index *index = NULL;
                config.kind = DCI_KIND_FLAT + _i % 3;
                config.zero_rows = config.metric == DCI_METRIC_COSINE && keep == 1 ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
                ck_ok(dci_index_create(writes, &config, &index));
                add_extremes(index, config.dim);
                persist_bytes bytes = persist_save(index);
                for (size_t to = 0; to < n; to++) {
                        dci_context *reads = test_context_of_level((int)to);
                        dci_index *loaded = persist_load(reads, &bytes);
                        persist_bytes again = persist_save(loaded);
                        ck_assert(persist_equal(&bytes, &again));
                        persist_free(&again);
                        dci_index_destroy(loaded);
                        dci_context_destroy(reads);
                }
                persist_free(&bytes);
                dci_index_destroy(index);
                dci_context_destroy(writes);
        }
}
END_TEST

START_TEST(a_mapped_index_takes_settings_but_no_rows)
{
        persist_world w = persist_make(context, persist_case_of(3), LIFE_SLOTS);
        dci_index *mapped = NULL;
        dci_search_params defaults;
        const int64_t id = 0;
        ck_ok(dci_index_save(w.index, scratch_path("index")));
        ck_ok(dci_index_map(context, scratch_path("index"), &mapped));
        ck_refused(dci_index_add(mapped, 1, w.rows, PERSIST_DIM, NULL, NULL), DCI_ERR_UNSUPPORTED, "mapped file");
        ck_refused(dci_index_remove(mapped, 1, &id), DCI_ERR_UNSUPPORTED, "mapped file");
        ck_refused(dci_index_reserve(mapped, 1), DCI_ERR_UNSUPPORTED, "mapped file");
        persist_agree(w.index, mapped, "after refusals");
        ck_ok(dci_search_params_init(&defaults, sizeof defaults));
        defaults.num_to_retrieve = 1;
        ck_ok(dci_index_set_defaults(mapped, &defaults));
        ck_ok(dci_index_set_defaults(w.index, &defaults));
        persist_agree(w.index, mapped, "with new defaults");
        dci_memory_report report;
        ck_ok(dci_memory_report_init(&report, sizeof report));
        ck_ok(dci_index_memory(mapped, &report));
        ck_assert(report.rows == 0 && report.ids == 0 && report.norms == 0 && report.projections == 0);
        /* Over the file that it has mapped: it goes on reading the old one. */
        ck_ok(dci_index_save(mapped, scratch_path("index")));
        persist_agree(w.index, mapped, "saved over its own file");
        dci_index_destroy(mapped);
        persist_destroy(&w);
}
END_TEST

START_TEST(the_config_can_be_asked_for)
{
        persist_world w = persist_make(context, persist_case_of(19), LIFE_EMPTY);
        dci_index_config config;
        ck_ok(dci_index_config_init(&config, sizeof config));
        ck_ok(dci_index_get_config(w.index, &config));
        ck_assert(config.dim == PERSIST_DIM && config.kind == DCI_KIND_PDCI && config.storage == DCI_ROWS_BORROWED);
        ck_assert(config.add_dtype == DCI_F32 && config.query_dtype == DCI_F32 && config.seed == w.config.seed);
        ck_refused(dci_index_get_config(NULL, &config), DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_get_config(w.index, NULL), DCI_ERR_INVALID, "out_config is NULL");
        config.struct_size = 8;
        ck_refused(dci_index_get_config(w.index, &config), DCI_ERR_INVALID, "struct_size 8");
        persist_destroy(&w);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("persist");
        TCase *laws = test_case_with(suite, "laws", 60, context_open_1, context_close);
        tcase_add_checked_fixture(laws, scratch_open, scratch_close);
        tcase_add_loop_test(laws, what_is_loaded_answers_as_what_was_saved, 0, PERSIST_CASES);
        tcase_add_loop_test(laws, what_is_mapped_answers_as_what_was_saved, 0, PERSIST_CASES);
        tcase_add_loop_test(laws, files_memory_and_streams_hold_the_same_bytes, 0, PERSIST_CASES / 3);
        tcase_add_test(laws, a_stream_stands_behind_the_index_afterwards);
        tcase_add_loop_test(laws, adds_and_removes_after_a_load_do_what_they_would_have_done, 0, PERSIST_CASES);
        tcase_add_loop_test(laws, borrowed_rows_are_saved_as_the_owned_ones_would_be, 0, PERSIST_CASES / 2);
        tcase_add_test(laws, the_bytes_do_not_depend_on_how_the_index_came_about);
        tcase_add_test(laws, ids_are_not_reused_after_a_load);
        tcase_add_loop_test(laws, files_travel_between_instruction_sets, 0, 9);
        tcase_add_test(laws, a_mapped_index_takes_settings_but_no_rows);
        tcase_add_test(laws, the_config_can_be_asked_for);
        return test_main(suite);
}
