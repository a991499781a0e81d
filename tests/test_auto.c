/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of kind AUTO: whatever it changes to, it holds and finds what FLAT does; a change is whole, once, and the same everywhere. */
#include "tests/context_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/check.h"
#include "dci/file.h"
#include "dci/sketch.h"
#include "tests/mdci_fixture.h"
#include "tests/persist_fixture.h"

/* By the rule, its numbers divided by DIVISOR: FLAT below FEW rows of DIM floats, MDCI from MANY rows on. */
enum {
        DIM = 64,
        DIVISOR = 300,
        FEW = (1 << 20) / (DIM * 4) / DIVISOR,
        MANY = 8000000 / (DIM + 64) / DIVISOR,
        MOST = 4 * MANY,
        K = 7
};

static dci_index_config auto_config(dci_metric metric, dci_dtype dtype)
{
        dci_index_config config = pdci_config(DIM, metric, dtype);
        config.kind = DCI_KIND_AUTO;
        config.promotion_prob = 0.1;
        config.seed = 5;
        return config;
}

static dci_index *auto_index(dci_context *with, const dci_index_config *config)
{
        dci_index *index = NULL;
        ck_ok(dci_index_create(with, config, &index));
        ck_assert_int_eq(dci_index_is_auto(index), 1);
        index->automatic.divisor = DIVISOR;
        return index;
}

static dci_index_config in_use(const dci_index *index)
{
        dci_index_config config;
        ck_ok(dci_index_config_init(&config, sizeof config));
        ck_ok(dci_index_get_config(index, &config));
        return config;
}

static void hold_use(const dci_index *index, dci_index_kind kind, int32_t bits)
{
        const dci_index_config config = in_use(index);
        ck_assert_msg(config.kind == kind && config.sketch_bits == bits,
                      "%zu rows: kind %d with %d bits, expected %d with %d", dci_index_count(index), (int)config.kind,
                      (int)config.sketch_bits, (int)kind, (int)bits);
}

static void check_use(const dci_index *index, dci_index_kind kind, int32_t bits)
{
        hold_use(index, kind, bits);
        ck_ok(dci_index_check(index, DCI_CHECK_FULL, NULL));
}

/* Both hold the same rows under the same ids and find the same, to the bit, where all rows are scored. */
static void check_same(const dci_index *index, const dci_index *flat, const float *queries, const char *what)
{
        const size_t n = dci_index_count(flat);
        const dci_search_params all = pdci_verifying((double)INFINITY, 0.0);
        int64_t ids[MOST], others[MOST];
        size_t count, other_count;
        ck_assert_uint_eq(dci_index_count(index), n);
        ck_ok(dci_index_ids(index, MOST, ids, &count));
        ck_ok(dci_index_ids(flat, MOST, others, &other_count));
        ck_assert_msg(count == n && other_count == n && memcmp(ids, others, n * sizeof *ids) == 0, "%s: other ids",
                      what);
        const size_t row_bytes = DIM * dci_dtype_size(flat->config.dtype);
        unsigned char *rows = test_room(n + 1, row_bytes), *other_rows = test_room(n + 1, row_bytes);
        ck_ok(dci_index_reconstruct(index, n, ids, rows, DIM));
        ck_ok(dci_index_reconstruct(flat, n, ids, other_rows, DIM));
        ck_assert_msg(memcmp(rows, other_rows, n * row_bytes) == 0, "%s: other rows", what);
        for (size_t n_queries = 1; n_queries <= 16; n_queries += 15) {
                pdci_found got = pdci_search(index, n_queries, queries, K, &all);
                pdci_found want = pdci_search(flat, n_queries, queries, K, NULL);
                ck_assert_msg(pdci_same(&got, &want), "%s: other answers to %zu queries", what, n_queries);
                pdci_found_free(&got);
                pdci_found_free(&want);
        }
        test_free(rows, other_rows);
}

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
                check_use(index, steps[s].kind, steps[s].codes ? 4 : 0);
                check_same(index, flat, queries, what);
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
                check_use(index, DCI_KIND_FLAT, 0);
                ck_ok(dci_index_add(index, 2, rows, DIM, NULL, NULL));
                check_use(index, DCI_KIND_FLAT, 4);
                dci_index_destroy(index);
        }
        free(rows);
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
                        check_use(index, steps[s].kind, steps[s].codes ? 4 : 0);
                        check_same(index, flat, queries, "after an upsert");
                }
                ck_refused(dci_index_replace(index, 5, rows, DIM, (int64_t[]){1, 2, 3, 4, MOST}, NULL),
                           DCI_ERR_NOT_FOUND, "is not in the index");
                ck_ok(dci_index_clear(index));
                check_use(index, DCI_KIND_FLAT, 0);
                ck_assert_uint_eq(dci_index_count(index), 0);
                ck_ok(dci_index_add(index, MANY, rows, DIM, NULL, NULL));
                check_use(index, DCI_KIND_MDCI, 4);
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
                check_use(index, DCI_KIND_MDCI, 4);
                persist_bytes a = persist_save(index), b = persist_save(tree);
                for (size_t i = 0; i < COUNT(tree_sections); i++) {
                        size_t n = 0, other_n = 0;
                        const unsigned char *x = persist_section(&a, tree_sections[i], &n);
                        const unsigned char *y = persist_section(&b, tree_sections[i], &other_n);
                        ck_assert_msg((x == NULL) == (y == NULL) && n == other_n && (n == 0 || memcmp(x, y, n) == 0),
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
                check_use(index, DCI_KIND_MDCI, 4);
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
        check_use(index, DCI_KIND_FLAT, 0);
        ck_refused(dci_index_fit(index, 20, queries, DIM), DCI_ERR_UNSUPPORTED, "no codes yet");
        ck_ok(dci_index_add(index, FEW, rows, DIM, NULL, NULL));
        check_use(index, DCI_KIND_FLAT, 2);
        ck_ok(dci_index_fit(index, 20, queries, DIM));
        ck_ok(dci_index_reserve(index, 2 * MOST));
        ck_ok(dci_index_add(index, MOST - FEW, rows + (size_t)FEW * DIM, DIM, NULL, NULL));
        check_use(index, DCI_KIND_MDCI, 2);
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
        check_use(index, DCI_KIND_FLAT, 0);
        ck_ok(dci_index_add(index, N - 10, rows + 10 * LONG, LONG, NULL, NULL));
        check_use(index, DCI_KIND_MDCI, 0);
        dci_index_destroy(index);
        free(rows);
}
END_TEST

/* --- failures ------------------------------------------------------------------------------------------------------------------- */

typedef struct reports {
        size_t n, stop_at, last, total; /* stop_at: which call says stop; 0: none */
} reports;

static int32_t report(void *ctx, size_t done, size_t total)
{
        reports *r = ctx;
        ck_assert(done <= total && (r->n == 0 || total != r->total || done >= r->last));
        r->last = done;
        r->total = total;
        return ++r->n == r->stop_at;
}

START_TEST(a_cancelled_change_changes_nothing)
{
        static const size_t begin[] = {0, FEW - 5, MANY - 9}, n_more[] = {FEW, 30, MANY};
        float *rows = test_normal(MOST, DIM, 1);
        for (size_t c = 0; c < COUNT(begin); c++) {
                const dci_index_config config = auto_config(DCI_METRIC_L2, DCI_F32);
                dci_index *index = auto_index(context, &config);
                ck_ok(dci_index_add(index, begin[c], rows, DIM, NULL, NULL));
                const dci_index_config before = in_use(index);
                persist_bytes bytes = persist_save(index);
                reports r = {.stop_at = 1};
                const dci_progress progress = {.fn = report, .ctx = &r};
                ck_refused(dci_index_add(index, n_more[c], rows + begin[c] * DIM, DIM, NULL, &progress),
                           DCI_ERR_CANCELLED, "stopped");
                persist_bytes after = persist_save(index);
                ck_assert(persist_equal(&bytes, &after));
                r = (reports){0};
                ck_ok(dci_index_add(index, n_more[c], rows + begin[c] * DIM, DIM, NULL, &progress));
                ck_assert(r.n > 0 && r.last == r.total);
                ck_assert(in_use(index).kind != before.kind || in_use(index).sketch_bits != before.sketch_bits);
                persist_free(&bytes);
                persist_free(&after);
                dci_index_destroy(index);
        }
        free(rows);
}
END_TEST

START_TEST(bad_rows_and_ids_are_refused_in_a_change_as_well)
{
        float *rows = test_normal(MOST, DIM, 1);
        const dci_index_config config = auto_config(DCI_METRIC_L2, DCI_F32);
        dci_index *index = auto_index(context, &config);
        int64_t ids[FEW];
        for (int64_t i = 0; i < FEW; i++)
                ids[i] = 100 + i;
        ck_ok(dci_index_add(index, 10, rows, DIM, NULL, NULL));
        persist_bytes bytes = persist_save(index);
        ids[7] = 3;
        ck_refused(dci_index_add(index, FEW, rows, DIM, ids, NULL), DCI_ERR_EXISTS,
                   "id 3 of row 7 is in the index already");
        ids[7] = 101;
        ck_refused(dci_index_add(index, FEW, rows, DIM, ids, NULL), DCI_ERR_EXISTS, "id 101 of row 7 comes twice");
        ids[7] = 107;
        rows[5 * DIM + 3] = (float)NAN;
        ck_refused(dci_index_add(index, FEW, rows, DIM, ids, NULL), DCI_ERR_NUMBER, "row 5");
        persist_bytes after = persist_save(index);
        ck_assert(persist_equal(&bytes, &after));
        persist_free(&bytes);
        persist_free(&after);
        dci_index_destroy(index);
        free(rows);
}
END_TEST

/* Grows and shrinks by batches. A call that fails for memory has changed nothing; one that succeeds holds all, as what it should be or as
 * what it was, and then the next one changes it. */
typedef struct growing {
        dci_index *index;
        const float *rows;
        size_t failures;
} growing;

static void *grown(dci_context *with, const void *arg)
{
        growing *g = calloc(1, sizeof *g);
        const dci_index_config config = auto_config(DCI_METRIC_IP, DCI_BF16);
        g->rows = arg;
        g->index = auto_index(with, &config);
        return g;
}

/* True if the call failed for memory. */
static bool again(growing *g, dci_status status, size_t count)
{
        ck_assert_msg(status == DCI_OK || status == DCI_ERR_MEMORY, "%s", dci_last_error());
        test_memory_recovers();
        g->failures += status != DCI_OK;
        ck_assert(status == DCI_OK || dci_index_count(g->index) == count);
        return status != DCI_OK;
}

static void check_growing(growing *g)
{
        while (again(g, dci_index_check(g->index, DCI_CHECK_FULL, NULL), dci_index_count(g->index)))
                continue;
}

static void grow(growing *g, size_t first, size_t n)
{
        while (again(g, dci_index_add(g->index, n, g->rows + first * DIM, DIM, NULL, NULL), first))
                continue;
        check_growing(g);
}

static size_t grow_through_all(void *prepared)
{
        growing *g = prepared;
        grow(g, 0, 2 * FEW - 1);
        grow(g, 2 * FEW - 1, 2);
        grow(g, 2 * FEW + 1, 1);
        hold_use(g->index, DCI_KIND_FLAT, 4); /* at the latest with the next batch */
        grow(g, 2 * FEW + 2, MANY);
        grow(g, 2 * FEW + 2 + MANY, 1);
        hold_use(g->index, DCI_KIND_MDCI, 4);
        const size_t n = dci_index_count(g->index);
        int64_t ids[MOST];
        for (int64_t i = 0; i < MOST; i++)
                ids[i] = i;
        while (again(g, dci_index_remove(g->index, n - 2, ids), n))
                continue;
        check_growing(g);
        while (again(g, dci_index_remove(g->index, 1, ids + n - 2), 2))
                continue;
        hold_use(g->index, DCI_KIND_FLAT, 0);
        check_growing(g);
        const size_t failures = g->failures;
        dci_index_destroy(g->index);
        free(g);
        return failures;
}

static void climb(int which, test_ladder ladder)
{
        float *rows = test_normal(MOST, DIM, 1);
        ladder(which + 1, grown, grow_through_all, rows);
        free(rows);
}
TEST_LADDERS(climb)

START_TEST(a_change_without_memory_leaves_what_there_was_and_is_made_up_for)
{
        test_memory memory = {0};
        dci_context *own = test_context_with(&memory, 1);
        const dci_index_config config = auto_config(DCI_METRIC_L2, DCI_F32);
        float *rows = test_normal(MOST, DIM, 1);
        size_t n_kept = 0;
        for (size_t at = 1;; at++) {
                dci_index *index = auto_index(own, &config);
                ck_ok(dci_index_add(index, FEW - 1, rows, DIM, NULL, NULL));
                ck_refused(dci_index_remove(index, 1, (int64_t[]){999}), DCI_ERR_NOT_FOUND, "id 999");
                atomic_store(&memory.calls, 0);
                atomic_store(&memory.fail_at, at);
                const dci_status status = dci_index_add(index, 2, rows, DIM, NULL, NULL);
                const bool failed = atomic_load(&memory.calls) >= at;
                atomic_store(&memory.fail_at, 0);
                ck_assert_int_eq(status, DCI_OK); /* there is room for the rows as they are */
                ck_assert_msg(strstr(dci_last_error(), "id 999") != NULL, "a call that succeeded left: %s",
                              dci_last_error());
                n_kept += in_use(index).sketch_bits == 0;
                ck_ok(dci_index_add(index, 1, rows, DIM, NULL, NULL));
                check_use(index, DCI_KIND_FLAT, 4);
                dci_index_destroy(index);
                if (!failed)
                        break;
        }
        ck_assert_uint_gt(n_kept, 5);
        dci_context_destroy(own);
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
                check_use(loaded, in_use(index).kind, in_use(index).sketch_bits);
                loaded->automatic.divisor = DIVISOR;
                ck_ok(dci_index_add(index, MOST - sizes[s], rows + sizes[s] * DIM, DIM, NULL, NULL));
                ck_ok(dci_index_add(loaded, MOST - sizes[s], rows + sizes[s] * DIM, DIM, NULL, NULL));
                check_use(loaded, DCI_KIND_MDCI, s % 2 == 0 ? 8 : 4);
                ck_assert_uint_eq(mdci_stats(loaded).page_rows, 64);
                persist_bytes a = persist_save(index), b = persist_save(loaded);
                ck_assert_msg(persist_equal(&a, &b), "%zu rows when saved", sizes[s]);
                check_same(loaded, index, queries, "loaded");
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
        tcase_add_test(laws, replacing_and_clearing_change_the_kind_as_well);
        tcase_add_test(laws, a_batch_that_fails_while_it_replaces_changes_nothing);
        tcase_add_test(laws, a_large_batch_is_built_as_what_it_needs);
        tcase_add_test(laws, threads_do_not_change_a_byte_and_seeds_do);
        tcase_add_test(laws, options_are_those_of_what_is_used);
        tcase_add_test(laws, what_cannot_be_is_refused);
        tcase_add_test(laws, rows_too_long_for_codes_have_none);
        TCase *failures = test_case_with(suite, "failures", 120, context_open_2, context_close);
        tcase_add_test(failures, a_cancelled_change_changes_nothing);
        tcase_add_test(failures, bad_rows_and_ids_are_refused_in_a_change_as_well);
        tcase_add_loop_test(failures, every_allocation_may_fail_once, 0, 2);
        tcase_add_loop_test(failures, memory_may_be_short_from_any_allocation_on, 0, 1);
        tcase_add_test(failures, a_change_without_memory_leaves_what_there_was_and_is_made_up_for);
        TCase *files = test_case_with(suite, "files", 60, context_open_2, context_close);
        tcase_add_test(files, a_loaded_index_goes_on_changing);
        tcase_add_test(files, a_damaged_section_is_refused);
        return test_main(suite);
}
