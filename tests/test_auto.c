/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of kind AUTO: whatever it changes to, it holds and finds what FLAT does; a change is whole, once, and the same everywhere. */
#include "tests/context_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/file.h"
#include "dci/sketch.h"
#include "tests/auto_fixture.h"
#include "tests/persist_fixture.h"

/* --- what is used, and what it finds ------------------------------------------------------------------------------------------- */

/* Grows by small and by large batches beyond both numbers of rows, shrinks, grows again; the other index is FLAT. */
static void grow_and_shrink(dci_metric metric, dci_dtype dtype, int32_t storage, const float *rows,
                            const float *queries)
{
        static const struct {
                int n; /* added, or removed */
                dci_index_kind kind;
                bool codes;
        } steps[] = {{1, DCI_KIND_FLAT, false},
                     {FEW - 2, DCI_KIND_FLAT, false},
                     {1, DCI_KIND_FLAT, true}, /* one row too many */
                     {100, DCI_KIND_FLAT, true},
                     {-90, DCI_KIND_FLAT, true},
                     {-(FEW + 10 - FEW / 4 + 1), DCI_KIND_FLAT, false}, /* less than a quarter */
                     {MANY, DCI_KIND_MDCI, true},
                     {40, DCI_KIND_MDCI, true},
                     {-130, DCI_KIND_MDCI, true},
                     {-75, DCI_KIND_FLAT, true},
                     {300, DCI_KIND_MDCI, true}};
        dci_index_config config = auto_config(metric, dtype);
        config.storage = storage;
        dci_index *index = auto_index(context, &config), *flat = NULL;
        config.kind = DCI_KIND_FLAT;
        ck_ok(dci_index_create(context, &config, &flat));
        int64_t *ids = pdci_shuffled(MOST, 3);
        size_t first = 0, end = 0; /* ids[first .. end) are there, under the rows of these places */
        for (size_t s = 0; s < COUNT(steps); s++) {
                char what[64];
                snprintf(what, sizeof what, "metric %d dtype %d storage %d step %zu", metric, dtype, storage, s);
                const size_t n = (size_t)abs(steps[s].n);
                ck_assert_uint_le(end + (steps[s].n > 0 ? n : 0), MOST);
                dci_index *const both[] = {index, flat};
                for (size_t i = 0; i < 2; i++) {
                        if (steps[s].n > 0)
                                ck_ok(dci_index_add(both[i], n, rows + end * DIM, DIM, ids + end, NULL));
                        else
                                ck_ok(dci_index_remove(both[i], n, ids + first));
                }
                *(steps[s].n > 0 ? &end : &first) += n;
                auto_check(index, steps[s].kind, steps[s].codes ? 4 : 0);
                auto_same(index, flat, queries, what);
        }
        free(ids);
        dci_index_destroy(index);
        dci_index_destroy(flat);
}

START_TEST(holds_and_finds_what_flat_does_at_each_size)
{
        float *rows = test_normal(MOST, DIM, 1), *queries = test_normal(16, DIM, 2);
        for (size_t m = 0; m < 3; m++) {
                grow_and_shrink(all_metrics[m], DCI_F32, DCI_ROWS_OWNED, rows, queries);
                grow_and_shrink(all_metrics[m], DCI_F32, DCI_ROWS_BORROWED, rows, queries);
        }
        test_free(rows, queries);
}
END_TEST

/* The rule counts bytes, so rows of half the bytes stay FLAT for twice the number. */
START_TEST(short_formats_stay_exact_for_longer)
{
        float *rows = test_normal(MOST, DIM, 1);
        for (size_t m = 0; m < 3; m++) {
                const dci_index_config config = auto_config(all_metrics[m], DCI_BF16);
                dci_index *index = auto_index(context, &config);
                ck_ok(dci_index_add(index, 2 * FEW - 1, rows, DIM, NULL, NULL));
                auto_check(index, DCI_KIND_FLAT, 0);
                ck_ok(dci_index_add(index, 2, rows, DIM, NULL, NULL));
                auto_check(index, DCI_KIND_FLAT, 4);
                dci_index_destroy(index);
        }
        free(rows);
}
END_TEST

/* Random ids of [0, MOST) that are there, or are not; returns how many. */
static size_t draw_ids(dci_rng *rng, const bool *there, bool wanted, size_t most, int64_t *out)
{
        size_t n = 0;
        const size_t first = (size_t)dci_rng_below(rng, MOST);
        for (size_t i = 0; i < MOST && n < most; i++) {
                const size_t id = (first + 7 * i) % MOST; /* 7 and MOST have no common divisor */
                if (there[id] == wanted)
                        out[n++] = (int64_t)id;
        }
        return n;
}

/* One change of both indexes: rows come, are replaced, go, or all go. */
static void change(dci_rng *rng, dci_index *const both[2], const float *rows, bool *there)
{
        static const size_t sizes[] = {1, 3, 20, 60, MANY / 2, MANY, 2 * MANY};
        const size_t most = sizes[dci_rng_below(rng, COUNT(sizes))], what = (size_t)dci_rng_below(rng, 20);
        const float *from = rows + dci_rng_below(rng, 50) * DIM;
        int64_t ids[2 * MOST];
        size_t n = draw_ids(rng, there, what < 12, most, ids);
        for (size_t i = 0; i < 2; i++) {
                if (what == 0)
                        ck_ok(dci_index_clear(both[i]));
                else if (what < 9)
                        ck_ok(dci_index_remove(both[i], n, ids));
                else if (what < 12)
                        ck_ok(dci_index_upsert(both[i], n, from, DIM, ids, NULL));
                else
                        ck_ok(dci_index_add(both[i], n, from, DIM, ids, NULL));
        }
        if (what == 0)
                memset(there, 0, MOST * sizeof *there);
        for (size_t i = 0; i < n && what > 0 && (what < 9 || what >= 12); i++)
                there[ids[i]] = what >= 12;
}

START_TEST(holds_and_finds_what_flat_does_after_any_changes)
{
        float *rows = test_normal(MOST + 50, DIM, 1), *queries = test_normal(16, DIM, 2);
        const int steps = test_short() ? 40 : 150;
        size_t seen[3] = {0}; /* FLAT, with codes, MDCI */
        for (size_t m = 0; m < 3; m++) {
                dci_index_config config = auto_config(all_metrics[m], m == 1 ? DCI_BF16 : DCI_F32);
                dci_index *both[2] = {auto_index(context, &config), NULL};
                bool there[MOST] = {false};
                dci_rng rng;
                dci_rng_seed(&rng, 11 + m);
                config.kind = DCI_KIND_FLAT;
                ck_ok(dci_index_create(context, &config, &both[1]));
                for (int s = 0; s < steps; s++) {
                        char what[64];
                        snprintf(what, sizeof what, "metric %d step %d", all_metrics[m], s);
                        change(&rng, both, rows, there);
                        auto_same(both[0], both[1], queries, what);
                        const dci_index_config now = auto_in_use(both[0]);
                        seen[now.kind == DCI_KIND_MDCI ? 2 : now.sketch_bits != 0]++;
                }
                auto_check(both[0], auto_in_use(both[0]).kind, auto_in_use(both[0]).sketch_bits);
                dci_index_destroy(both[0]);
                dci_index_destroy(both[1]);
        }
        ck_assert_msg(seen[0] > 5 && seen[1] > 5 && seen[2] > 5, "%zu, %zu and %zu times", seen[0], seen[1], seen[2]);
        test_free(rows, queries);
}
END_TEST

/* What is replaced does not count twice, and comes with the rest in the publication that changes the kind. */
START_TEST(replacing_and_clearing_change_the_kind_as_well)
{
        static const struct {
                size_t first, n; /* ids; those below the former end replace */
                dci_index_kind kind;
                bool codes;
        } steps[] = {{0, FEW - 1, DCI_KIND_FLAT, false},  {0, FEW - 1, DCI_KIND_FLAT, false}, /* all are replaced */
                     {3, FEW + 1, DCI_KIND_FLAT, true},   {10, MANY - 20, DCI_KIND_FLAT, true},
                     {5, MANY + 30, DCI_KIND_MDCI, true}, {20, 100, DCI_KIND_MDCI, true}};
        float *rows = test_normal(MOST + 100, DIM, 1), *queries = test_normal(16, DIM, 2);
        int64_t ids[MOST];
        for (int64_t i = 0; i < MOST; i++)
                ids[i] = i;
        for (size_t m = 0; m < 3; m++) {
                dci_index_config config = auto_config(all_metrics[m], DCI_F32);
                dci_index *index = auto_index(context, &config), *flat = NULL;
                config.kind = DCI_KIND_FLAT;
                ck_ok(dci_index_create(context, &config, &flat));
                for (size_t s = 0; s < COUNT(steps); s++) {
                        const float *from = rows + (steps[s].first + s * 7) * DIM; /* others than before */
                        const int64_t *to = ids + steps[s].first;
                        ck_ok(dci_index_upsert(index, steps[s].n, from, DIM, to, NULL));
                        ck_ok(dci_index_upsert(flat, steps[s].n, from, DIM, to, NULL));
                        auto_check(index, steps[s].kind, steps[s].codes ? 4 : 0);
                        auto_same(index, flat, queries, "after an upsert");
                }
                ck_refused(dci_index_replace(index, 5, rows, DIM, (int64_t[]){1, 2, 3, 4, MOST}, NULL),
                           DCI_ERR_NOT_FOUND, "is not in the index");
                ck_ok(dci_index_clear(index));
                auto_check(index, DCI_KIND_FLAT, 0);
                ck_assert_uint_eq(dci_index_count(index), 0);
                ck_ok(dci_index_add(index, MANY, rows, DIM, NULL, NULL));
                auto_check(index, DCI_KIND_MDCI, 4);
                dci_index_destroy(index);
                dci_index_destroy(flat);
        }
        test_free(rows, queries);
}
END_TEST

START_TEST(a_batch_that_fails_while_it_replaces_changes_nothing)
{
        float *rows = test_normal(MOST, DIM, 1);
        const dci_index_config config = auto_config(DCI_METRIC_L2, DCI_F32);
        dci_index *index = auto_index(context, &config);
        int64_t ids[2 * FEW];
        for (int64_t i = 0; i < 2 * FEW; i++)
                ids[i] = i;
        ck_ok(dci_index_add(index, FEW - 1, rows, DIM, NULL, NULL));
        persist_bytes bytes = persist_save(index);
        ids[7] = 3;
        ck_refused(dci_index_upsert(index, 2 * FEW, rows, DIM, ids, NULL), DCI_ERR_EXISTS, "comes twice");
        ids[7] = 7;
        rows[5 * DIM] = (float)NAN;
        ck_refused(dci_index_upsert(index, 2 * FEW, rows, DIM, ids, NULL), DCI_ERR_NUMBER, "row 5");
        persist_bytes after = persist_save(index);
        ck_assert(persist_equal(&bytes, &after));
        persist_free(&bytes);
        persist_free(&after);
        dci_index_destroy(index);
        free(rows);
}
END_TEST

/* Sections of a file but for the first 128 bytes of the config, which count what had been done before. */
static const char *const tree_sections[] = {"rows",   "ids",   "norms",  "mean",    "free",  "levels", "nodes",
                                            "counts", "items", "frames", "centres", "codes", "scales", "blocks"};

START_TEST(a_large_batch_is_built_as_what_it_needs)
{
        float *rows = test_normal(MOST, DIM, 1);
        for (size_t m = 0; m < 3; m++) {
                dci_index_config config = auto_config(all_metrics[m], DCI_F16);
                dci_index *index = auto_index(context, &config);
                ck_ok(dci_index_add(index, MOST, rows, DIM, NULL, NULL));
                config.kind = DCI_KIND_MDCI;
                config.sketch_bits = 4;
                dci_index *tree = pdci_index(context, &config, MOST, rows, NULL);
                auto_check(index, DCI_KIND_MDCI, 4);
                persist_bytes a = persist_save(index), b = persist_save(tree);
                for (size_t i = 0; i < COUNT(tree_sections); i++) {
                        size_t n = 0, other_n = 0;
                        const unsigned char *x = persist_section(&a, tree_sections[i], &n);
                        const unsigned char *y = persist_section(&b, tree_sections[i], &other_n);
                        ck_assert_msg((x == NULL) == (y == NULL) && n == other_n &&
                                              (n == 0 || (x != NULL && y != NULL && memcmp(x, y, n) == 0)),
                                      "metric %d: section %s differs", all_metrics[m], tree_sections[i]);
                }
                ck_assert(persist_section(&a, "auto", NULL) != NULL && persist_section(&b, "auto", NULL) == NULL);
                ck_assert_int_eq(dci_index_is_auto(tree), 0);
                persist_free(&a);
                persist_free(&b);
                dci_index_destroy(index);
                dci_index_destroy(tree);
        }
        free(rows);
}
END_TEST

START_TEST(threads_do_not_change_a_byte_and_seeds_do)
{
        float *rows = test_normal(MOST, DIM, 1);
        persist_bytes first = {NULL, 0};
        for (int i = 0; i < 4; i++) { /* 1, 2 and 5 threads; another seed */
                static const int32_t threads[] = {1, 2, 5, 1};
                dci_context *own = test_context(threads[i]);
                dci_index_config config = auto_config(DCI_METRIC_COSINE, DCI_F16);
                config.seed += i == 3;
                dci_index *index = auto_index(own, &config);
                for (size_t at = 0; at + MOST / 10 <= MOST; at += MOST / 10)
                        ck_ok(dci_index_add(index, MOST / 10, rows + at * DIM, DIM, NULL, NULL));
                auto_check(index, DCI_KIND_MDCI, 4);
                persist_bytes bytes = persist_save(index);
                if (i == 0)
                        first = bytes;
                else
                        ck_assert_msg(persist_equal(&first, &bytes) == (i < 3), "run %d", i);
                if (i != 0)
                        persist_free(&bytes);
                dci_index_destroy(index);
                dci_context_destroy(own);
        }
        persist_free(&first);
        free(rows);
}
END_TEST

START_TEST(options_are_those_of_what_is_used)
{
        float *rows = test_normal(MOST, DIM, 1), *queries = test_normal(20, DIM, 2);
        dci_index_config config = auto_config(DCI_METRIC_IP, DCI_F32);
        config.sketch_bits = 2;
        config.page_rows = 32;
        dci_index *index = auto_index(context, &config);
        auto_check(index, DCI_KIND_FLAT, 0);
        ck_refused(dci_index_fit(index, 20, queries, DIM), DCI_ERR_UNSUPPORTED, "no codes yet");
        ck_ok(dci_index_add(index, FEW, rows, DIM, NULL, NULL));
        auto_check(index, DCI_KIND_FLAT, 2);
        ck_ok(dci_index_fit(index, 20, queries, DIM));
        ck_ok(dci_index_reserve(index, 2 * MOST));
        ck_ok(dci_index_add(index, MOST - FEW, rows + (size_t)FEW * DIM, DIM, NULL, NULL));
        auto_check(index, DCI_KIND_MDCI, 2);
        ck_assert_uint_eq(mdci_stats(index).page_rows, 32);
        ck_assert_uint_ge(dci_rows_capacity(&index->rows), 2 * MOST); /* what was reserved stays */
        const dci_rows_codes *codes = index->rows.codes;              /* what was learned, too */
        ck_assert_int_eq(codes->frames.frame[atomic_load(&codes->frames.n) - 1]->coder.kind, DCI_CODER_LEARNED);
        test_free(rows, queries);
        dci_index_destroy(index);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
        dci_index_config config = auto_config(DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        float *rows = test_normal(MANY, DIM, 1);
        int64_t ids[256];
        uint64_t version;
        size_t count;
        config.page_rows = 8;
        ck_refused(dci_index_create(context, &config, &index), DCI_ERR_INVALID,
                   "page_rows is 8, with kind AUTO at least 16");
        config.page_rows = 16;
        config.cell_simp_indices = 3;
        ck_refused(dci_index_create(context, &config, &index), DCI_ERR_INVALID, "cell_simp_indices is 3");
        config.cell_simp_indices = 0;
        config.promotion_prob = 2;
        ck_refused(dci_index_create(context, &config, &index), DCI_ERR_INVALID, "promotion_prob");
        config.promotion_prob = 0.1;
        config.sketch_bits = 5;
        ck_refused(dci_index_create(context, &config, &index), DCI_ERR_INVALID, "sketch_bits");
        config.sketch_bits = 0;
        ck_assert_int_eq(dci_index_is_auto(NULL), 0);
        index = auto_index(context, &config);
        for (int with_rows = 0; with_rows < 2; with_rows++) { /* pages are refused even where there is a tree */
                ck_refused(dci_index_pages(index, 0, NULL, &count), DCI_ERR_UNSUPPORTED, "MDCI");
                ck_refused(dci_index_page_ids(index, 0, ids, &count), DCI_ERR_UNSUPPORTED, "MDCI");
                ck_refused(dci_index_changes(index, 0, 0, NULL, &count, &version), DCI_ERR_UNSUPPORTED, "MDCI");
                if (!with_rows)
                        ck_ok(dci_index_add(index, MANY, rows, DIM, NULL, NULL));
        }
        dci_index_destroy(index);
        free(rows);
}
END_TEST

START_TEST(rows_too_long_for_codes_have_none)
{
        enum { LONG = DCI_SKETCH_MAX_DIM + 1, N = 50 };
        dci_index_config config = auto_config(DCI_METRIC_L2, DCI_F16);
        config.dim = LONG;
        config.page_rows = 4;
        dci_index *index = NULL;
        float *rows = calloc((size_t)N * LONG, sizeof *rows);
        for (size_t i = 0; i < N; i++)
                rows[i * LONG + i] = 1.0f;
        ck_ok(dci_index_create(context, &config, &index));
        index->automatic.divisor = 1000; /* from 2 rows on with codes; a tree from 20 on */
        ck_ok(dci_index_add(index, 10, rows, LONG, NULL, NULL));
        auto_check(index, DCI_KIND_FLAT, 0);
        ck_ok(dci_index_add(index, N - 10, rows + 10 * LONG, LONG, NULL, NULL));
        auto_check(index, DCI_KIND_MDCI, 0);
        dci_index_destroy(index);
        free(rows);
}
END_TEST

/* --- files ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(a_loaded_index_goes_on_changing)
{
        float *rows = test_normal(MOST, DIM, 1), *queries = test_normal(16, DIM, 2);
        static const size_t sizes[] = {0, 5, FEW + 3, MANY + 5};
        for (size_t s = 0; s < COUNT(sizes); s++) {
                dci_index_config config = auto_config(DCI_METRIC_COSINE, DCI_F32);
                config.sketch_bits = s % 2 == 0 ? 8 : 0;
                config.page_rows = 64;
                dci_index *index = auto_index(context, &config);
                ck_ok(dci_index_add(index, sizes[s], rows, DIM, NULL, NULL));
                persist_bytes bytes = persist_save(index);
                dci_index *loaded = persist_load(context, &bytes);
                ck_assert_int_eq(dci_index_is_auto(loaded), 1);
                auto_check(loaded, auto_in_use(index).kind, auto_in_use(index).sketch_bits);
                loaded->automatic.divisor = DIVISOR;
                ck_ok(dci_index_add(index, MOST - sizes[s], rows + sizes[s] * DIM, DIM, NULL, NULL));
                ck_ok(dci_index_add(loaded, MOST - sizes[s], rows + sizes[s] * DIM, DIM, NULL, NULL));
                auto_check(loaded, DCI_KIND_MDCI, s % 2 == 0 ? 8 : 4);
                ck_assert_uint_eq(mdci_stats(loaded).page_rows, 64);
                persist_bytes a = persist_save(index), b = persist_save(loaded);
                ck_assert_msg(persist_equal(&a, &b), "%zu rows when saved", sizes[s]);
                auto_same(loaded, index, queries, "loaded");
                persist_free(&a);
                persist_free(&b);
                persist_free(&bytes);
                dci_index_destroy(index);
                dci_index_destroy(loaded);
        }
        test_free(rows, queries);
}
END_TEST

START_TEST(a_damaged_section_is_refused)
{
        static const struct {
                size_t at;
                unsigned char value;
                size_t n; /* rows */
                dci_status status;
                const char *part;
        } damages[] = {{0, 9, 5, DCI_ERR_FORMAT, "9 bits"},
                       {0, 5, 5, DCI_ERR_FORMAT, "sketch_bits"},
                       {0, 8, FEW + 3, DCI_ERR_FORMAT, "codes of 4 bits, 8 were asked for"},
                       {4, 1, 5, DCI_ERR_UNSUPPORTED, "bytes 4 to 7"},
                       {15, 0xc0, 5, DCI_ERR_FORMAT, "promotion_prob"},
                       {24, 8, 5, DCI_ERR_FORMAT, "page_rows is 8"},
                       {26, 1, 5, DCI_ERR_FORMAT, "pages of"},
                       {24, 32, MANY + 5, DCI_ERR_FORMAT, "disagree"}};
        float *rows = test_normal(MOST, DIM, 1);
        for (size_t d = 0; d < COUNT(damages); d++) {
                const dci_index_config config = auto_config(DCI_METRIC_L2, DCI_F32);
                dci_index *index = auto_index(context, &config), *loaded = NULL;
                ck_ok(dci_index_add(index, damages[d].n, rows, DIM, NULL, NULL));
                persist_bytes bytes = persist_save(index);
                persist_section(&bytes, "auto", NULL)[damages[d].at] = damages[d].value;
                persist_reseal(&bytes);
                ck_refused(dci_index_load_memory(context, bytes.data, bytes.n, &loaded), damages[d].status,
                           damages[d].part);
                persist_free(&bytes);
                dci_index_destroy(index);
        }
        free(rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("auto");
        TCase *laws = test_case_with(suite, "laws", 60, context_open_2, context_close);
        tcase_add_test(laws, holds_and_finds_what_flat_does_at_each_size);
        tcase_add_test(laws, short_formats_stay_exact_for_longer);
        tcase_add_test(laws, holds_and_finds_what_flat_does_after_any_changes);
        tcase_add_test(laws, replacing_and_clearing_change_the_kind_as_well);
        tcase_add_test(laws, a_batch_that_fails_while_it_replaces_changes_nothing);
        tcase_add_test(laws, a_large_batch_is_built_as_what_it_needs);
        tcase_add_test(laws, threads_do_not_change_a_byte_and_seeds_do);
        tcase_add_test(laws, options_are_those_of_what_is_used);
        tcase_add_test(laws, what_cannot_be_is_refused);
        tcase_add_test(laws, rows_too_long_for_codes_have_none);
        TCase *files = test_case_with(suite, "files", 60, context_open_2, context_close);
        tcase_add_test(files, a_loaded_index_goes_on_changing);
        tcase_add_test(files, a_damaged_section_is_refused);
        return test_main(suite);
}
