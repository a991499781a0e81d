/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The life of an index of each kind, with codes and without, from create to destroy by way of files, tune and fit, while memory fails: after a
 * call that failed the index is, to the byte of what it would save, what it was, and the call succeeds when it is made again.
 */
#include "tests/pdci_fixture.h"

#include <string.h>

#include "tests/scratch.h"

enum { N = 190, FIRST = 120, QUERIES = 8, K = 5 };

static const struct {
        dci_index_kind kind;
        dci_metric metric;
        int32_t sketch_bits, n_threads;
} kinds[] = {{DCI_KIND_FLAT, DCI_METRIC_IP, 0, 1}, {DCI_KIND_PDCI, DCI_METRIC_L2, 0, 1},
             {DCI_KIND_MDCI, DCI_METRIC_IP, 0, 1}, {DCI_KIND_FLAT, DCI_METRIC_COSINE, 4, 1},
             {DCI_KIND_PDCI, DCI_METRIC_IP, 2, 2}, {DCI_KIND_MDCI, DCI_METRIC_L2, 4, 2}};

typedef struct bytes {
        unsigned char *data;
        size_t n;
} bytes;

typedef struct life {
        dci_context *context;
        size_t which;
        const float *rows, *queries;
        dci_index *index;
        bytes before;
        size_t failures;
} life;

static void *born(dci_context *context, const void *arg)
{
        life *l = test_copy(arg, sizeof *l);
        l->context = context;
        return l;
}

static bool failed(life *l, dci_status status, const char *call)
{
        return test_failed_once(status, DCI_ERR_MEMORY, &l->failures, call);
}

/* All that there is of an index: config, defaults, rows, ids, codes, the shape of a tree. */
static bytes bytes_of(life *l, const dci_index *index)
{
        bytes b = {NULL, 0};
        while (failed(l, dci_index_save_memory(index, 0, NULL, &b.n), "measuring"))
                continue;
        b.data = malloc(b.n);
        ck_assert_ptr_nonnull(b.data);
        while (failed(l, dci_index_save_memory(index, b.n, b.data, &b.n), "saving to memory"))
                continue;
        return b;
}

static void must_equal(const bytes *a, const bytes *b, const char *what)
{
        size_t at = 0;
        while (at < a->n && at < b->n && a->data[at] == b->data[at])
                at++;
        ck_assert_msg(a->n == b->n && at == a->n, "%s has left a trace at byte %zu of %zu, %zu", what, at, a->n, b->n);
}

static void check_unchanged(life *l, const char *what)
{
        bytes now = bytes_of(l, l->index);
        must_equal(&l->before, &now, what);
        free(now.data);
}

/* What a call that succeeded has made of it. */
static void remember(life *l)
{
        free(l->before.data);
        l->before = bytes_of(l, l->index);
}

#define TRY(call)                                                                                                      \
        do {                                                                                                           \
                while (failed(l, call, #call))                                                                         \
                        check_unchanged(l, #call);                                                                     \
                remember(l);                                                                                           \
        } while (0)
/* The same of calls that change nothing. */
#define ASK(call)                                                                                                      \
        while (failed(l, call, #call))                                                                                 \
        check_unchanged(l, #call)

static void grow(life *l)
{
        int64_t ids[N - FIRST], gone[25];
        for (size_t i = 0; i < COUNT(ids); i++)
                ids[i] = (int64_t)(1000 + i * 7);
        for (size_t i = 0; i < COUNT(gone); i++)
                gone[i] = (int64_t)(i * 4);
        TRY(dci_index_add(l->index, FIRST, l->rows, TRACE_DIM, NULL, NULL));
        TRY(dci_index_reserve(l->index, N));
        TRY(dci_index_add(l->index, 3, l->rows + (size_t)FIRST * TRACE_DIM, TRACE_DIM, ids, NULL));
        TRY(dci_index_add(l->index, COUNT(ids) - 3, l->rows + (size_t)(FIRST + 3) * TRACE_DIM, TRACE_DIM, ids + 3,
                          NULL));
        TRY(dci_index_remove(l->index, COUNT(gone), gone));
}

static void ask(life *l)
{
        int64_t ids[2][QUERIES * K];
        float scores[QUERIES * K], row[TRACE_DIM];
        dci_range_result result;
        dci_search_params params = pdci_effort(60, 30);
        dci_filter filter;
        const int64_t wanted[] = {1, 2, 3, 1000};
        dci_memory_report report;
        size_t n;
        ck_ok(dci_memory_report_init(&report, sizeof report));
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_ok(dci_filter_init(&filter, sizeof filter));
        ASK(dci_index_search(l->index, QUERIES, l->queries, TRACE_DIM, K, NULL, ids[0], scores));
        ASK(dci_index_search(l->index, 1, l->queries, TRACE_DIM, K, NULL, ids[1], scores));
        ck_assert_mem_eq(ids[0], ids[1], K * sizeof ids[0][0]);
        ASK(dci_index_search(l->index, QUERIES, l->queries, TRACE_DIM, K, &params, ids[1], scores));
        params.guarantee = kinds[l->which].sketch_bits > 0 ? 0.9 : 0.0;
        filter.kind = DCI_FILTER_IDS;
        filter.n = COUNT(wanted);
        filter.ids = wanted;
        params.filter = &filter;
        ASK(dci_index_search(l->index, QUERIES, l->queries, TRACE_DIM, K, &params, ids[1], scores));
        ASK(dci_index_search_group(l->index, QUERIES / 4, 4, l->queries, TRACE_DIM, K, DCI_GROUP_UNION, NULL, ids[1],
                                   scores));
        ASK(dci_index_range_search(l->index, 3, l->queries, TRACE_DIM, pdci_any_radius(kinds[l->which].metric), NULL,
                                   &result));
        dci_range_result_free(&result);
        ASK(dci_index_reconstruct(l->index, 1, wanted, row, TRACE_DIM));
        ASK(dci_index_ids(l->index, K, ids[1], &n));
        ASK(dci_index_memory(l->index, &report));
}

/* What was loaded or mapped has the same bytes. */
static void look_at(life *l, dci_index *loaded, const char *what)
{
        bytes now = bytes_of(l, loaded);
        must_equal(&l->before, &now, what);
        free(now.data);
        dci_index_destroy(loaded);
}

static void save_and_load(life *l)
{
        const char *path = scratch_path("index");
        dci_index *loaded = NULL;
        ASK(dci_index_save(l->index, path));
        scratch_expect("index", l->before.data, l->before.n);
        ASK(dci_index_load(l->context, path, &loaded));
        look_at(l, loaded, "loading");
        ASK(dci_index_map(l->context, path, &loaded));
        look_at(l, loaded, "mapping");
        ASK(dci_index_load_memory(l->context, l->before.data, l->before.n, &loaded));
        /* Life goes on with what was loaded. */
        dci_index_destroy(l->index);
        l->index = loaded;
        check_unchanged(l, "loading from memory");
        ck_assert_uint_eq(scratch_count(), 1);
}

static dci_index_config config_of(size_t which)
{
        dci_index_config config = index_config(TRACE_DIM, kinds[which].metric, DCI_F16);
        config.kind = kinds[which].kind;
        config.add_dtype = config.query_dtype = DCI_F32;
        config.sketch_bits = kinds[which].sketch_bits;
        config.promotion_prob = 0.1;
        return config;
}

static size_t buried(life *l)
{
        const size_t failures = l->failures;
        dci_index_destroy(l->index);
        test_free(l->before.data, l);
        return failures;
}

/* From nothing to an index that was asked everything. */
static size_t youth(void *prepared)
{
        life *l = prepared;
        const dci_index_config config = config_of(l->which);
        while (failed(l, dci_index_create(l->context, &config, &l->index), "create"))
                ck_assert_ptr_null(l->index);
        remember(l);
        grow(l);
        ask(l);
        return buried(l);
}

/* From an index that is there to its next life in another process. */
static void *born_grown(dci_context *context, const void *arg)
{
        life *l = born(context, arg);
        const dci_index_config config = config_of(l->which);
        l->index = pdci_index(context, &config, N, l->rows, NULL);
        remember(l);
        return l;
}

static size_t age(void *prepared)
{
        life *l = prepared;
        const int64_t last = 7;
        if (kinds[l->which].sketch_bits > 0)
                TRY(dci_index_fit(l->index, QUERIES, l->queries, TRACE_DIM));
        TRY(dci_index_tune(l->index, QUERIES, l->queries, TRACE_DIM, K, 0.9, NULL));
        save_and_load(l);
        TRY(dci_index_add(l->index, 5, l->rows, TRACE_DIM, NULL, NULL));
        TRY(dci_index_remove(l->index, 1, &last));
        return buried(l);
}

static void climb(int which, test_ladder ladder)
{
        float *rows = pdci_trace("keys", N), *queries = pdci_trace("queries", QUERIES);
        const life l = {.which = (size_t)which, .rows = rows, .queries = queries};
        const size_t rungs = ladder(kinds[which].n_threads, born, youth, &l),
                     more = ladder(kinds[which].n_threads, born_grown, age, &l);
        ck_assert_msg(rungs >= 30 && more >= 20, "%zu and %zu rungs", rungs, more);
        test_free(rows, queries);
}

/* Loops over kinds. */
START_TEST(every_allocation_may_fail_once)
{
        if (test_short() && _i < 4) /* those of several threads will do for sanitizers */
                return;
        climb(_i, test_each_allocation_failing);
}
END_TEST

/* The same. Ways back that would need memory themselves fail here. */
START_TEST(memory_may_be_short_from_any_allocation_on)
{
        if (test_short() && _i != 3)
                return;
        climb(_i, test_each_shortage);
}
END_TEST

/* Loops over kinds. A new centre for far rows, and the count of those that ask for one, go with the batch. */
START_TEST(an_add_refused_for_its_last_id_leaves_nothing)
{
        dci_context *context = test_context(1);
        dci_index_config config = index_config(TRACE_DIM, DCI_METRIC_L2, DCI_F32);
        float *rows = pdci_trace("keys", N);
        int64_t ids[N - FIRST];
        config.kind = kinds[_i].kind;
        config.sketch_bits = 4;
        life l = {.context = context, .index = pdci_index(context, &config, FIRST, rows, NULL)};
        remember(&l);
        for (size_t i = 0; i < COUNT(ids); i++)
                ids[i] = (int64_t)(FIRST + i);
        ids[COUNT(ids) - 1] = 3;
        for (size_t i = (size_t)FIRST * TRACE_DIM; i < (size_t)N * TRACE_DIM; i++)
                rows[i] += 40.0f;
        for (size_t n = 1; n <= COUNT(ids); n += COUNT(ids) / 3) {
                ck_refused(dci_index_add(l.index, n, rows + (size_t)FIRST * TRACE_DIM, TRACE_DIM, ids + COUNT(ids) - n,
                                         NULL),
                           DCI_ERR_EXISTS, "id 3 of row");
                check_unchanged(&l, "add");
        }
        dci_index_destroy(l.index);
        test_free(l.before.data, rows);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("life faults");
        TCase *memory = test_case_with(suite, "memory", 120, scratch_open, scratch_close);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 0, COUNT(kinds));
        tcase_add_loop_test(memory, memory_may_be_short_from_any_allocation_on, 0, COUNT(kinds));
        tcase_add_loop_test(memory, an_add_refused_for_its_last_id_leaves_nothing, 0, 3);
        return test_main(suite);
}
