/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Saving and loading when the caller errs, callbacks fail or call back, memory is short or the disk is full. */
#include "tests/common.h"

#include <stdio.h>
#include <string.h>

#include "tests/persist_fixture.h"
#include "tests/scratch.h"

static dci_context *context;
static persist_world world;
static persist_bytes saved;

static void setup(void)
{
        scratch_open();
        context = test_context(1);
        world = persist_make(context, persist_case_of(3), LIFE_REMOVED);
        saved = persist_save(world.index);
}

static void teardown(void)
{
        persist_free(&saved);
        persist_destroy(&world);
        dci_context_destroy(context);
        scratch_close();
}

/* --- arguments ------------------------------------------------------------------------------------------------------------------ */

static int32_t refuse_write(void *ctx, const void *data, size_t n_bytes)
{
        (void)ctx, (void)data, (void)n_bytes;
        return -5;
}

static int32_t refuse_read(void *ctx, void *out, size_t n_bytes)
{
        (void)ctx, (void)out, (void)n_bytes;
        return -5;
}

START_TEST(bad_arguments_of_saves_are_refused)
{
        size_t n_bytes = 0;
        unsigned char byte = 77;
        dci_writer writer;
        dci_index *i = world.index;
        ck_refused(dci_index_save(NULL, scratch_path("x")), DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_save(i, NULL), DCI_ERR_INVALID, "path is NULL");
        ck_refused(dci_index_save_memory(NULL, 0, NULL, &n_bytes), DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_save_memory(i, 1, NULL, &n_bytes), DCI_ERR_INVALID, "out is NULL");
        ck_refused(dci_index_save_memory(i, 1, &byte, NULL), DCI_ERR_INVALID, "out_bytes is NULL");
        for (size_t capacity = 0; capacity < 2; capacity++) {
                n_bytes = 0;
                ck_refused(dci_index_save_memory(i, capacity, &byte, &n_bytes), DCI_ERR_LIMIT, "there is room for");
                ck_assert_uint_eq(n_bytes, saved.n);
                ck_assert_uint_eq(byte, 77);
        }
        persist_bytes room = persist_copy(&saved, saved.n);
        ck_refused(dci_index_save_memory(i, saved.n - 1, room.data, &n_bytes), DCI_ERR_LIMIT, "there is room for");
        persist_free(&room);
        ck_refused(dci_writer_init(NULL, sizeof writer), DCI_ERR_INVALID, "NULL");
        ck_refused(dci_writer_init(&writer, 3), DCI_ERR_INVALID, "size 3");
        ck_ok(dci_writer_init(&writer, sizeof writer));
        ck_refused(dci_index_save_stream(i, NULL), DCI_ERR_INVALID, "writer is NULL");
        ck_refused(dci_index_save_stream(i, &writer), DCI_ERR_INVALID, "writer.write is NULL");
        ck_refused(dci_index_save_stream(NULL, &writer), DCI_ERR_INVALID, "index is NULL");
        writer.write = refuse_write;
        writer.struct_size = 4;
        ck_refused(dci_index_save_stream(i, &writer), DCI_ERR_INVALID, "struct_size 4");
        ck_assert_uint_eq(scratch_count(), 0);
}
END_TEST

START_TEST(bad_arguments_of_loads_are_refused)
{
        dci_reader reader;
        dci_index *out = world.index;
        ck_refused(dci_index_load(NULL, "x", &out), DCI_ERR_INVALID, "context is NULL");
        ck_assert_ptr_null(out);
        ck_refused(dci_index_load(context, NULL, &out), DCI_ERR_INVALID, "path is NULL");
        ck_refused(dci_index_load(context, "x", NULL), DCI_ERR_INVALID, "out_index is NULL");
        ck_refused(dci_index_load(context, scratch_path("absent"), &out), DCI_ERR_IO, "No such file");
        ck_refused(dci_index_map(NULL, "x", &out), DCI_ERR_INVALID, "context is NULL");
        ck_refused(dci_index_map(context, NULL, &out), DCI_ERR_INVALID, "path is NULL");
        ck_refused(dci_index_map(context, scratch_path("absent"), &out), DCI_ERR_IO, "No such file");
        ck_refused(dci_index_load_memory(context, NULL, 5, &out), DCI_ERR_INVALID, "data is NULL");
        ck_refused(dci_index_load_memory(context, "x", 0, &out), DCI_ERR_FORMAT, "0 bytes");
        ck_refused(dci_reader_init(NULL, sizeof reader), DCI_ERR_INVALID, "NULL");
        ck_ok(dci_reader_init(&reader, sizeof reader));
        ck_refused(dci_index_load_stream(context, NULL, &out), DCI_ERR_INVALID, "reader is NULL");
        ck_refused(dci_index_load_stream(context, &reader, &out), DCI_ERR_INVALID, "reader.read is NULL");
        reader.read = refuse_read;
        ck_refused(dci_index_load_stream(context, &reader, &out), DCI_ERR_IO,
                   "the reader returned -5 for 48 bytes after 0");
        reader.n_bytes = 47;
        ck_refused(dci_index_load_stream(context, &reader, &out), DCI_ERR_FORMAT, "the stream has 47 bytes");
        reader.struct_size = 4;
        ck_refused(dci_index_load_stream(context, &reader, &out), DCI_ERR_INVALID, "struct_size 4");
        ck_assert_ptr_null(out);
}
END_TEST

static void refuse_odd_file(const char *path, const char *wanted)
{
        dci_index *out = NULL;
        dci_status status = dci_index_save(world.index, path);
        ck_assert_msg((status == DCI_ERR_INVALID || status == DCI_ERR_IO) && strstr(dci_last_error(), wanted) != NULL,
                      "save: %s, wanted '%s'", dci_last_error(), wanted);
        status = dci_index_map(context, path, &out);
        ck_assert_msg((status == DCI_ERR_INVALID || status == DCI_ERR_IO) && strstr(dci_last_error(), wanted) != NULL,
                      "map: %s, wanted '%s'", dci_last_error(), wanted);
}

START_TEST(odd_files_are_neither_written_nor_read)
{
        scratch_each_odd_file(refuse_odd_file);
}
END_TEST

/* --- callbacks ------------------------------------------------------------------------------------------------------------------- */

/* A stream whose n-th call fails; it also tries the index from inside. */
typedef struct strict {
        size_t calls, fail_at, at;
        dci_index *index;
} strict;

static void try_everything(dci_index *index)
{
        int64_t ids[1] = {0};
        float row[PERSIST_DIM] = {0};
        size_t n;
        dci_index_config config;
        ck_ok(dci_index_config_init(&config, sizeof config));
        ck_refused(dci_index_search(index, 1, row, PERSIST_DIM, 1, NULL, ids, NULL), DCI_ERR_BUSY, "from inside");
        ck_refused(dci_index_add(index, 1, row, PERSIST_DIM, NULL, NULL), DCI_ERR_BUSY, "from inside");
        ck_refused(dci_index_remove(index, 1, ids), DCI_ERR_BUSY, "from inside");
        ck_refused(dci_index_reserve(index, 9), DCI_ERR_BUSY, "from inside");
        ck_refused(dci_index_ids(index, 0, NULL, &n), DCI_ERR_BUSY, "from inside");
        ck_refused(dci_index_get_config(index, &config), DCI_ERR_BUSY, "from inside");
        ck_refused(dci_index_save(index, scratch_path("x")), DCI_ERR_BUSY, "from inside");
        ck_refused(dci_index_save_memory(index, 0, NULL, &n), DCI_ERR_BUSY, "from inside");
}

static int32_t strict_write(void *ctx, const void *data, size_t n_bytes)
{
        strict *s = ctx;
        (void)data;
        if (s->index != NULL)
                try_everything(s->index);
        s->at += n_bytes;
        return ++s->calls == s->fail_at ? 1000 + (int32_t)s->calls : 0;
}

static int32_t strict_read(void *ctx, void *out, size_t n_bytes)
{
        strict *s = ctx;
        if (++s->calls == s->fail_at)
                return 1000 + (int32_t)s->calls;
        ck_assert(n_bytes <= saved.n - s->at);
        memcpy(out, saved.data + s->at, n_bytes);
        s->at += n_bytes;
        return 0;
}

START_TEST(calls_from_inside_a_writer_are_refused)
{
        strict s = {.index = world.index};
        dci_writer writer;
        ck_ok(dci_writer_init(&writer, sizeof writer));
        writer.write = strict_write;
        writer.ctx = &s;
        ck_ok(dci_index_save_stream(world.index, &writer));
        ck_assert(s.calls >= 2 && s.at == saved.n);
        persist_bytes again = persist_save(world.index);
        ck_assert(persist_equal(&saved, &again));
        persist_free(&again);
}
END_TEST

START_TEST(a_callback_that_fails_ends_the_call)
{
        dci_writer writer;
        dci_reader reader;
        ck_ok(dci_writer_init(&writer, sizeof writer));
        ck_ok(dci_reader_init(&reader, sizeof reader));
        writer.write = strict_write;
        reader.read = strict_read;
        for (int loads = 0; loads < 2; loads++) {
                size_t fail_at = 1;
                for (;; fail_at++) {
                        strict s = {.fail_at = fail_at};
                        dci_index *loaded = NULL;
                        writer.ctx = reader.ctx = &s;
                        dci_status status = loads == 1 ? dci_index_load_stream(context, &reader, &loaded)
                                                       : dci_index_save_stream(world.index, &writer);
                        ck_assert_uint_le(s.calls, fail_at);
                        dci_index_destroy(loaded);
                        if (s.calls < fail_at) {
                                ck_ok(status);
                                break;
                        }
                        char wanted[64];
                        snprintf(wanted, sizeof wanted, "the %s returned %zu for ", loads == 1 ? "reader" : "writer",
                                 1000 + fail_at);
                        ck_refused(status, DCI_ERR_IO, wanted);
                        ck_assert_ptr_null(loaded);
                }
                ck_assert_uint_ge(fail_at, 4); /* more than one call each, or it tests little */
        }
}
END_TEST

/* --- resources ------------------------------------------------------------------------------------------------------------------- */

enum { SAVE_PATH, SAVE_MEMORY, SAVE_STREAM, LOAD_PATH, LOAD_MEMORY, LOAD_STREAM, MAP, VERBS };

static dci_status run_verb(int verb, dci_context *where, const dci_index *index, unsigned char *room, dci_index **out)
{
        strict s = {.calls = 0};
        size_t n_bytes;
        dci_writer writer;
        dci_reader reader;
        ck_ok(dci_writer_init(&writer, sizeof writer));
        ck_ok(dci_reader_init(&reader, sizeof reader));
        writer.write = strict_write;
        reader.read = strict_read;
        writer.ctx = reader.ctx = &s;
        switch (verb) {
        case SAVE_PATH:
                return dci_index_save(index, scratch_path("file"));
        case SAVE_MEMORY:
                return dci_index_save_memory(index, saved.n, room, &n_bytes);
        case SAVE_STREAM:
                return dci_index_save_stream(index, &writer);
        case LOAD_PATH:
                return dci_index_load(where, scratch_path("index"), out);
        case LOAD_MEMORY:
                return dci_index_load_memory(where, saved.data, saved.n, out);
        case LOAD_STREAM:
                return dci_index_load_stream(where, &reader, out);
        default:
                return dci_index_map(where, scratch_path("index"), out);
        }
}

/* Loops over verbs, then over the same with a tree of two levels. */
START_TEST(every_allocation_may_fail_once)
{
        static const size_t fewest[VERBS] = {1, 0, 1, 6, 5, 6, 4};
        const int verb = _i % VERBS;
        if (_i >= VERBS) {
                persist_free(&saved);
                persist_destroy(&world);
                world = persist_make(context, persist_case_of(PERSIST_FLAT_CASES + 4), LIFE_REMOVED);
                saved = persist_save(world.index);
        }
        persist_bytes room = persist_copy(&saved, saved.n);
        size_t nth = 1;
        ck_ok(dci_index_save(world.index, scratch_path("index")));
        scratch_put("file", "old", 3);
        for (;; nth++) {
                test_memory memory;
                dci_context *counted = test_context_with(&memory, 1);
                dci_index *out = NULL, *source = NULL;
                if (verb <= SAVE_STREAM)
                        ck_ok(dci_index_load_memory(counted, saved.data, saved.n, &source));
                const size_t blocks = atomic_load(&memory.live_blocks);
                atomic_store(&memory.fail_at, atomic_load(&memory.calls) + nth);
                dci_status status = run_verb(verb, counted, source, room.data, &out);
                const bool reached = atomic_load(&memory.calls) >= atomic_load(&memory.fail_at);
                if (reached) {
                        ck_refused(status, DCI_ERR_MEMORY, "no memory");
                        ck_assert_ptr_null(out);
                        ck_assert_uint_eq(atomic_load(&memory.live_blocks), blocks);
                        scratch_expect("file", "old", 3);
                } else {
                        ck_ok(status);
                }
                dci_index_destroy(out);
                dci_index_destroy(source);
                dci_context_destroy(counted);
                ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
                if (!reached)
                        break;
        }
        ck_assert_uint_ge(nth - 1, fewest[verb]);
        ck_assert_uint_eq(scratch_count(), 2);
        persist_free(&room);
}
END_TEST

START_TEST(a_full_disk_leaves_the_old_file)
{
        static const size_t limits[] = {0, 1, 1000, 100000};
        scratch_put("index", "the old one", 11);
        for (size_t i = 0; i < COUNT(limits); i++) {
                scratch_limit_file_size(limits[i]);
                dci_status status = dci_index_save(world.index, scratch_path("index"));
                scratch_lift_file_size();
                ck_refused(status, DCI_ERR_IO, "File too large");
                scratch_expect("index", "the old one", 11);
                ck_assert_uint_eq(scratch_count(), 1);
        }
        ck_ok(dci_index_save(world.index, scratch_path("index")));
        scratch_expect("index", saved.data, saved.n);
}
END_TEST

START_TEST(a_loaded_index_outlives_the_callers_hold_on_its_context)
{
        test_memory memory;
        ck_ok(dci_index_save(world.index, scratch_path("index")));
        for (int mapped = 0; mapped < 2; mapped++) {
                dci_context *counted = test_context_with(&memory, 1);
                dci_index *index = NULL;
                ck_ok((mapped == 1 ? dci_index_map : dci_index_load)(counted, scratch_path("index"), &index));
                dci_context_destroy(counted);
                persist_agree(world.index, index, "without the caller's hold");
                dci_index_destroy(index);
                ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("persist io");
        TCase *refusals = test_case_with(suite, "refusals", 60, setup, teardown);
        TCase *resources = test_case_with(suite, "resources", 60, setup, teardown);
        tcase_add_test(refusals, bad_arguments_of_saves_are_refused);
        tcase_add_test(refusals, bad_arguments_of_loads_are_refused);
        tcase_add_test(refusals, odd_files_are_neither_written_nor_read);
        tcase_add_test(refusals, calls_from_inside_a_writer_are_refused);
        tcase_add_test(refusals, a_callback_that_fails_ends_the_call);
        tcase_add_loop_test(resources, every_allocation_may_fail_once, 0, 2 * VERBS);
        tcase_add_test(resources, a_full_disk_leaves_the_old_file);
        tcase_add_test(resources, a_loaded_index_outlives_the_callers_hold_on_its_context);
        return test_main(suite);
}
