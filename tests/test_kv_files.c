/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: sequences in files; what is loaded is what was saved. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "core/file.h"
#include "tests/context_fixture.h"
#include "tests/kv_fixture.h"
#include "tests/persist_fixture.h"
#include "tests/scratch.h"

enum { N = 420, PROMPT = 300 };

static dci_kv_config config;
static kv_data data, others;
static dci_kv *kv, *control;
static const char *name;

/* Loops over presets begin with this: two caches of one preset, and tokens of two kinds. */
static void begin(int32_t preset)
{
        config = kv_small(preset);
        name = dci_kv_preset_name(preset);
        data = kv_random(&config, N, 50);
        others = kv_random(&config, N, 51);
        kv = kv_create(context, &config);
        control = kv_create(context, &config);
}

static void end(void)
{
        dci_kv_destroy(kv);
        kv_end(control, &data);
        kv_data_free(&others);
}

/* Loops over presets. Into another cache, and into its own. */
START_TEST(what_is_loaded_goes_on_as_what_was_saved)
{
        begin(kv_presets[_i]);
        int64_t loaded = -1, reloaded = -1;
        const int64_t saved = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, saved, &data, PROMPT, 13);
        ck_ok(dci_kv_save(kv, saved, PROMPT + 13, scratch_path("sequence")));
        ck_ok(dci_kv_load(control, scratch_path("sequence"), &loaded));
        ck_ok(dci_kv_load(kv, scratch_path("sequence"), &reloaded));
        ck_assert_uint_eq(kv_sequence_info(control, loaded).n_tokens, PROMPT + 13);
        ck_assert_uint_eq(kv_sequence_info(control, loaded).n_grouped, kv_sequence_info(kv, saved).n_grouped);
        for (size_t t = PROMPT + 13; t < PROMPT + 60; t++) {
                const kv_turn turns[] = {{saved, &data, t, 1}, {reloaded, &data, t, 1}};
                kv_seen a = kv_decode(kv, 2, turns), b = kv_decode(control, 1, &(kv_turn){loaded, &data, t, 1});
                kv_same(&a, 0, &b, 0, name);
                kv_same(&a, 1, &b, 0, name);
                kv_seen_free(&a);
                kv_seen_free(&b);
        }
        end();
}
END_TEST

/* Loops over presets. The first tokens of a sequence: what a fork of them would be. */
START_TEST(saving_the_beginning_is_forking_there)
{
        static const size_t places[] = {0, 7, 100, 290, 313};
        begin(kv_presets[_i]);
        const int64_t saved = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, saved, &data, PROMPT, 13);
        for (size_t p = 0; p < COUNT(places); p++) {
                int64_t loaded = -1;
                ck_ok(dci_kv_save(kv, saved, places[p], scratch_path("sequence")));
                ck_ok(dci_kv_load(control, scratch_path("sequence"), &loaded));
                kv_alike(kv, kv_fork_at(kv, saved, places[p]), control, loaded, &others, places[p], 20, name);
        }
        end();
}
END_TEST

/* Loops over presets. */
START_TEST(the_same_sequence_gives_the_same_bytes)
{
        begin(kv_presets[_i]);
        int64_t loaded = -1;
        const int64_t saved = kv_begin(kv, &data, PROMPT);
        kv_decode_all(kv, saved, &data, PROMPT, 13);
        ck_ok(dci_kv_save(kv, saved, PROMPT + 13, scratch_path("one")));
        kv_begin(control, &others, 77); /* blocks and numbers are others then */
        ck_ok(dci_kv_load(control, scratch_path("one"), &loaded));
        ck_ok(dci_kv_save(control, loaded, PROMPT + 13, scratch_path("two")));
        size_t n;
        unsigned char *bytes = scratch_get("one", &n);
        scratch_expect("two", bytes, n);
        free(bytes);
        end();
}
END_TEST

/* A byte that is wrong anywhere, or a missing end, and nothing is loaded. */
START_TEST(damaged_files_are_refused)
{
        begin(DCI_KV_SKETCH_LOWBIT);
        const int64_t saved = kv_begin(kv, &data, 150);
        ck_ok(dci_kv_save(kv, saved, 150, scratch_path("whole")));
        size_t n;
        unsigned char *bytes = scratch_get("whole", &n);
        const dci_kv_info before = kv_info(control);
        for (size_t at = 0; at < n; at += at < 512 ? 1 : 97) {
                int64_t loaded = -1;
                for (size_t cut = 0; cut < 2; cut++) {
                        bytes[at] ^= 0x10;
                        scratch_put("damaged", bytes, cut == 1 ? at : n);
                        bytes[at] ^= 0x10;
                        const dci_status status = dci_kv_load(control, scratch_path("damaged"), &loaded);
                        if (status != DCI_ERR_FORMAT && status != DCI_ERR_UNSUPPORTED && status != DCI_ERR_INVALID)
                                ck_abort_msg("byte %zu: %s", at, status == DCI_OK ? "loaded" : dci_last_error());
                }
        }
        const dci_kv_info after = kv_info(control);
        ck_assert_uint_eq(after.n_sequences, 0);
        ck_assert_uint_eq(after.n_blocks - after.n_free_blocks, before.n_blocks - before.n_free_blocks);
        ck_assert_uint_eq(after.summary_bytes, before.summary_bytes);
        free(bytes);
        end();
}
END_TEST

/* A centre is subtracted from rows: one that is longer than any row makes infinities of them. */
START_TEST(centres_that_no_rows_can_have_are_refused)
{
        static const struct {
                bool last; /* of the section: a centre of values */
                const char *part;
        } cases[] = {{false, "a transform of the file"}, {true, "a centre of the file's values"}};
        begin(DCI_KV_SKETCH_LOWBIT);
        const int64_t saved = kv_begin(kv, &data, 150);
        ck_ok(dci_kv_save(kv, saved, 150, scratch_path("whole")));
        for (size_t i = 0; i < COUNT(cases); i++) {
                int64_t loaded = -1;
                size_t n_bytes;
                persist_bytes file;
                file.data = scratch_get("whole", &file.n);
                unsigned char *frames = persist_section(&file, "frames", &n_bytes);
                const float huge = -1e30f;
                memcpy(cases[i].last ? frames + n_bytes - sizeof huge : frames, &huge, sizeof huge);
                persist_reseal(&file);
                scratch_put("damaged", file.data, file.n);
                ck_refused(dci_kv_load(control, scratch_path("damaged"), &loaded), DCI_ERR_FORMAT, cases[i].part);
                ck_assert_msg(strstr(dci_last_error(), "too long") != NULL, "'%s'", dci_last_error());
                free(file.data);
        }
        ck_assert_uint_eq(kv_info(control).n_sequences, 0);
        end();
}
END_TEST

/* What observed queries chose: tokens that there are, each once. */
START_TEST(choices_that_cannot_be_are_refused)
{
        begin(DCI_KV_SNAPKV);
        const int64_t saved = kv_begin(kv, &data, 150);
        ck_ok(dci_kv_save(kv, saved, 150, scratch_path("whole")));
        for (size_t i = 0; i < 4; i++) {
                int64_t loaded = -1;
                size_t n_bytes;
                persist_bytes file;
                file.data = scratch_get("whole", &file.n);
                unsigned char *fixed = persist_section(&file, "fixed", &n_bytes);
                ck_assert_uint_ge(n_bytes, 8);
                const uint32_t wrong[] = {dci_load_le32(fixed + 4), (uint32_t)(150 - config.sink), INT32_MAX,
                                          UINT32_MAX};
                dci_store_le32(fixed, wrong[i]);
                persist_reseal(&file);
                scratch_put("damaged", file.data, file.n);
                ck_refused(dci_kv_load(control, scratch_path("damaged"), &loaded), DCI_ERR_FORMAT,
                           "which is not, or twice");
                free(file.data);
        }
        ck_assert_uint_eq(kv_info(control).n_sequences, 0);
        end();
}
END_TEST

/* What is watched of codes: sums of squares are no NaN and not negative, and a number has room to grow. */
START_TEST(rounding_that_cannot_be_is_refused)
{
        begin(DCI_KV_SKETCH);
        const int64_t saved = kv_begin(kv, &data, 150);
        ck_ok(dci_kv_save(kv, saved, 150, scratch_path("whole")));
        for (size_t i = 0; i < 6; i++) {
                int64_t loaded = -1;
                size_t n_bytes;
                persist_bytes file;
                file.data = scratch_get("whole", &file.n);
                unsigned char *heads = persist_section(&file, "heads", &n_bytes);
                if (i < 5)
                        dci_store_f64(heads + (const size_t[]){16, 24, 32, 24, 32}[i], i < 3 ? NAN : -1.0);
                else
                        dci_store_le32(heads + 48, INT32_MAX);
                persist_reseal(&file);
                scratch_put("damaged", file.data, file.n);
                ck_refused(dci_kv_load(control, scratch_path("damaged"), &loaded), DCI_ERR_FORMAT,
                           "of its codes' rounding");
                free(file.data);
        }
        ck_assert_uint_eq(kv_info(control).n_sequences, 0);
        end();
}
END_TEST

/* In every head as many as a file may say. */
START_TEST(refits_of_a_file_are_added_up_to_the_most_there_can_be)
{
        begin(DCI_KV_SKETCH);
        const int64_t saved = kv_begin(kv, &data, 150);
        int64_t loaded = -1;
        size_t n_bytes;
        persist_bytes file;
        ck_ok(dci_kv_save(kv, saved, 150, scratch_path("file")));
        file.data = scratch_get("file", &file.n);
        unsigned char *heads = persist_section(&file, "heads", &n_bytes);
        ck_assert_uint_eq(n_bytes, 4 * 56);
        for (size_t i = 0; i < 4; i++)
                dci_store_le32(heads + 56 * i + 48, INT32_MAX / 2);
        persist_reseal(&file);
        scratch_put("file", file.data, file.n);
        ck_ok(dci_kv_load(control, scratch_path("file"), &loaded));
        ck_assert_int_eq(kv_sequence_info(control, loaded).refits, INT32_MAX);
        free(file.data);
        end();
}
END_TEST

/* One number of a section that contradicts the others, under checksums that hold. */
static const struct lie {
        int32_t preset;
        const char *section; /* NULL: the file's header */
        size_t at, bytes;    /* where, and of how many bytes it is */
        uint64_t value;
        dci_status status;
        const char *part;
} lies[] = {
        {DCI_KV_SKETCH, NULL, 20, 4, 2, DCI_ERR_UNSUPPORTED, "version is 2, this library reads 1"},
        {DCI_KV_SKETCH, "config", 152, 8, DCI_KV_MAX_TOKENS + 1, DCI_ERR_FORMAT, "the most are"},
        {DCI_KV_SKETCH, "config", 152, 8, 100, DCI_ERR_FORMAT, "section 'keys'"},
        {DCI_KV_SKETCH, "layers", 0, 8, UINT64_C(1) << 40, DCI_ERR_FORMAT,
         "layer 0: the file has groups of 1099511627776"},
        {DCI_KV_SKETCH, "layers", 0, 8, 3, DCI_ERR_FORMAT, "layer 0: the file has groups of 3"},
        {DCI_KV_SKETCH, "layers", 24, 8, 421, DCI_ERR_FORMAT, "layer 1: the file has groups"},
        {DCI_KV_SKETCH, "heads", 0, 4, 0, DCI_ERR_FORMAT, "kv head 0: the file's transforms do not go"},
        {DCI_KV_SKETCH, "heads", 0, 4, 7, DCI_ERR_FORMAT, "do not go"},
        {DCI_KV_SKETCH, "heads", 0, 4, 3, DCI_ERR_FORMAT, "do not go"},  /* learned from nothing */
        {DCI_KV_SKETCH, "heads", 4, 4, 1, DCI_ERR_FORMAT, "do not go"},  /* of values that have no tail */
        {DCI_KV_SKETCH, "heads", 60, 4, 2, DCI_ERR_FORMAT, "kv head 1"}, /* both kinds of */
        {DCI_KV_SKETCH, "heads", 8, 8, 5, DCI_ERR_FORMAT, "do not go"},  /* queries of a rotation */
        {DCI_KV_SKETCH_LOWBIT, "heads", 4, 4, 0, DCI_ERR_FORMAT, "do not go"},
        {DCI_KV_TOPK, "heads", 0, 4, 2, DCI_ERR_FORMAT, "do not go"},
        {DCI_KV_TOPK, "heads", 8, 8, UINT64_MAX, DCI_ERR_FORMAT, "do not go"},
        {DCI_KV_SNAPKV, "heads", 52, 4, 100000, DCI_ERR_FORMAT, "'fixed' is too short"},
        {DCI_KV_SNAPKV, "heads", 52, 4, 0, DCI_ERR_FORMAT, "are too long"},
        {DCI_KV_SNAPKV, "fixed", 0, 4, UINT32_MAX, DCI_ERR_FORMAT, "'fixed' names token -1 after the sink"},
        {DCI_KV_ICECACHE, "heads", 52, 4, 0, DCI_ERR_FORMAT, "a tree of 0 numbers"},
        {DCI_KV_ICECACHE, "heads", 52, 4, 100000, DCI_ERR_FORMAT, "'fixed' is too short"},
        {DCI_KV_ICECACHE, "fixed", 0, 4, 0x40400000, DCI_ERR_FORMAT, "tree"}, /* c^2 is 3 */
        {DCI_KV_ICECACHE, "fixed", 8, 4, UINT32_MAX, DCI_ERR_FORMAT, "tree"}, /* pages */
        {DCI_KV_ICECACHE, "fixed", 12, 4, 1 << 20, DCI_ERR_FORMAT, "tree"},   /* the node of a page */
        {DCI_KV_ICECACHE, "fixed", 16, 4, 1 << 20, DCI_ERR_FORMAT, "tree"},   /* the page after it */
        {DCI_KV_ICECACHE, "fixed", 20, 4, 1 << 20, DCI_ERR_FORMAT, "tree"},   /* a candidate */
        {DCI_KV_CLUSTERKV, "groups", 0, 4, 0, DCI_ERR_FORMAT, "groups of 0 tokens, expected"},
        {DCI_KV_CLUSTERKV, "groups", 4, 4, 0, DCI_ERR_FORMAT, "groups of 0 more tokens"},
        {DCI_KV_CLUSTERKV, "groups", 4, 4, 100000, DCI_ERR_FORMAT, "groups of 100000 more tokens"},
        {DCI_KV_CLUSTERKV, "groups", 8, 4, 0, DCI_ERR_FORMAT, "0 groups of"},
        {DCI_KV_CLUSTERKV, "groups", 8, 4, 100000, DCI_ERR_FORMAT, "100000 groups of"},
        {DCI_KV_CLUSTERKV, "groups", 12, 4, 0, DCI_ERR_FORMAT, "group 0 of the file has 0"},
        {DCI_KV_CLUSTERKV, "groups", 12, 4, 100000, DCI_ERR_FORMAT, "group 0 of the file has 100000"},
        {DCI_KV_PRKV, "groups", 4, 4, 3, DCI_ERR_FORMAT, "3 static tokens"},
        {DCI_KV_PRKV, "groups", 12, 4, 1 << 20, DCI_ERR_FORMAT, "1048576 static tokens"},
};

START_TEST(numbers_that_contradict_each_other_are_refused)
{
        const struct lie *lie = &lies[_i];
        begin(lie->preset);
        const int64_t saved = kv_begin(kv, &data, PROMPT);
        int64_t loaded = -7;
        persist_bytes file;
        ck_ok(dci_kv_save(kv, saved, PROMPT, scratch_path("file")));
        file.data = scratch_get("file", &file.n);
        unsigned char *at = lie->section == NULL ? file.data : persist_section(&file, lie->section, NULL);
        memcpy(at + lie->at, &lie->value, lie->bytes); /* little endian, as the file is */
        persist_reseal(&file);
        scratch_put("file", file.data, file.n);
        ck_refused(dci_kv_load(control, scratch_path("file"), &loaded), lie->status, lie->part);
        const dci_kv_info info = kv_info(control);
        ck_assert(loaded == -7 && info.n_sequences == 0 && info.n_blocks == info.n_free_blocks &&
                  info.summary_bytes == 0);
        free(file.data);
        end();
}
END_TEST

/* What the file was written with, against another config: what differs is named. */
START_TEST(files_of_another_config_are_refused)
{
        begin(DCI_KV_SKETCH_LOWBIT);
        const int64_t saved = kv_begin(kv, &data, 150);
        ck_ok(dci_kv_save(kv, saved, 150, scratch_path("sequence")));
        static const char *const names[] = {"n_layers", "n_query_heads", "n_kv_heads", "dim_k",     "dim_v",
                                            "dtype",    "page_tokens",   "key_bits",   "value_bits"};
        for (size_t i = 0; i < COUNT(names); i++) {
                dci_kv_config c = config;
                int64_t loaded = -1;
                c.n_layers += i == 0;
                c.n_query_heads += i == 1 ? 2 : 0;
                c.n_kv_heads += i == 2 ? 2 : 0;
                c.dim_k += i == 3 ? 16 : 0;
                c.dim_v = i == 4 ? 24 : i == 3 ? 16 : 0;
                c.dtype = i == 5 ? DCI_BF16 : c.dtype;
                c.page_tokens = i == 6 ? 16 : c.page_tokens;
                c.key_bits = i == 7 ? 2 : c.key_bits;
                c.value_bits = i == 8 ? 8 : c.value_bits;
                dci_kv *other = kv_create(context, &c);
                const dci_status status = dci_kv_load(other, scratch_path("sequence"), &loaded);
                ck_assert_msg(status == DCI_ERR_INVALID || status == DCI_ERR_FORMAT || status == DCI_ERR_UNSUPPORTED,
                              "%s: %s", names[i], dci_status_name(status));
                ck_assert_msg(strstr(dci_last_error(), names[i]) != NULL, "'%s' does not name %s", dci_last_error(),
                              names[i]);
                ck_assert_uint_eq(kv_info(other).n_sequences, 0);
                dci_kv_destroy(other);
        }
        end();
}
END_TEST

static void refuses(const char *path, const char *wanted)
{
        int64_t loaded = -1;
        const int64_t some = kv_begin(kv, &data, 0);
        ck_assert_int_ne(dci_kv_load(kv, path, &loaded), DCI_OK);
        ck_assert_msg(strstr(dci_last_error(), wanted) != NULL, "'%s', wanted '%s'", dci_last_error(), wanted);
        ck_assert_int_ne(dci_kv_save(kv, some, 0, path), DCI_OK);
        ck_assert_msg(strstr(dci_last_error(), wanted) != NULL || path != NULL, "'%s', wanted '%s'", dci_last_error(),
                      wanted);
        ck_ok(dci_kv_close(kv, some));
}

START_TEST(paths_that_are_no_files_are_refused)
{
        begin(DCI_KV_SKETCH);
        scratch_each_odd_file(refuses);
        end();
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv files");
        TCase *files = test_case_with(suite, "files", 60, context_open_2, context_close);
        tcase_add_checked_fixture(files, scratch_open, scratch_close);
        tcase_add_loop_test(files, what_is_loaded_goes_on_as_what_was_saved, 0, KV_N_KINDS);
        tcase_add_loop_test(files, saving_the_beginning_is_forking_there, 0, KV_N_KINDS);
        tcase_add_loop_test(files, the_same_sequence_gives_the_same_bytes, 0, KV_N_KINDS);
        tcase_add_test(files, damaged_files_are_refused);
        tcase_add_test(files, centres_that_no_rows_can_have_are_refused);
        tcase_add_test(files, choices_that_cannot_be_are_refused);
        tcase_add_test(files, rounding_that_cannot_be_is_refused);
        tcase_add_test(files, refits_of_a_file_are_added_up_to_the_most_there_can_be);
        tcase_add_loop_test(files, numbers_that_contradict_each_other_are_refused, 0, (int)COUNT(lies));
        tcase_add_test(files, files_of_another_config_are_refused);
        tcase_add_test(files, paths_that_are_no_files_are_refused);
        return test_main(suite);
}
