/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the index refuses, in which words, and that a refusal or a failed allocation leaves it as it was. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/index_fixture.h"

enum { DIM = 4 };

static dci_context *context;
static dci_index *index_of_three;
static const float three[3 * DIM] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static void setup(void)
{
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        context = test_context(1);
        ck_ok(dci_index_create(context, &config, &index_of_three));
        ck_ok(dci_index_add(index_of_three, 3, three, DIM, NULL, NULL));
}

static void teardown(void)
{
        dci_index_destroy(index_of_three);
        dci_context_destroy(context);
}

/* The index answers as it did after setup. */
static void check_unchanged(void)
{
        int64_t ids[3], listed[3];
        float scores[3], rows[3 * DIM];
        size_t count;
        ck_assert_uint_eq(dci_index_count(index_of_three), 3);
        ck_ok(dci_index_search(index_of_three, 1, three + DIM, DIM, 3, NULL, ids, scores));
        ck_assert(ids[0] == 1 && ids[1] == 0 && ids[2] == 2 && scores[0] == 0.0f && scores[1] == 64.0f);
        ck_ok(dci_index_ids(index_of_three, 3, listed, &count));
        ck_assert(count == 3 && listed[0] == 0 && listed[1] == 1 && listed[2] == 2);
        ck_ok(dci_index_reconstruct(index_of_three, 3, listed, rows, DIM));
        ck_assert_int_eq(memcmp(rows, three, sizeof rows), 0);
}

START_TEST(bad_configs_are_refused)
{
        dci_index *out = NULL;
        dci_index_config good = index_config(DIM, DCI_METRIC_L2, DCI_F32), config;
        ck_refused(dci_index_config_init(NULL, sizeof config), DCI_ERR_INVALID, "NULL");
        ck_refused(dci_index_config_init(&config, 8), DCI_ERR_INVALID, "size 8");
        ck_refused(dci_index_create(NULL, &good, &out), DCI_ERR_INVALID, "context is NULL");
        ck_refused(dci_index_create(context, NULL, &out), DCI_ERR_INVALID, "config is NULL");
        ck_refused(dci_index_create(context, &good, NULL), DCI_ERR_INVALID, "out_index is NULL");
#define REFUSE(field, value, status, part)                                                                             \
        do {                                                                                                           \
                config = good;                                                                                         \
                config.field = (value);                                                                                \
                ck_refused(dci_index_create(context, &config, &out), (status), (part));                                \
                ck_assert_ptr_null(out);                                                                               \
        } while (0)
        REFUSE(struct_size, 12, DCI_ERR_INVALID, "struct_size 12");
        REFUSE(dim, 0, DCI_ERR_INVALID, "dim is 0");
        REFUSE(dim, DCI_MAX_DIM + 1, DCI_ERR_LIMIT, "1048577");
        REFUSE(dim, SIZE_MAX, DCI_ERR_LIMIT, "dim");
        REFUSE(kind, 0, DCI_ERR_INVALID, "kind is 0, expected ");
        REFUSE(kind, 99, DCI_ERR_INVALID, "kind is 99, expected FLAT, PDCI, MDCI or AUTO");
        REFUSE(metric, 0, DCI_ERR_INVALID, "metric is 0, expected ");
        REFUSE(metric, 4, DCI_ERR_INVALID, "metric is 4, expected L2, IP or COSINE");
        REFUSE(metric, -1, DCI_ERR_INVALID, "metric is -1, expected ");
        REFUSE(dtype, 0, DCI_ERR_INVALID, "dtype is 0, expected ");
        REFUSE(dtype, 6, DCI_ERR_INVALID, "dtype is 6, expected ");
        REFUSE(add_dtype, 7, DCI_ERR_INVALID, "add_dtype is 7, expected ");
        REFUSE(query_dtype, -7, DCI_ERR_INVALID, "query_dtype is -7, expected ");
        REFUSE(storage, 2, DCI_ERR_INVALID, "storage is 2, expected DCI_ROWS_OWNED or DCI_ROWS_BORROWED");
        REFUSE(zero_rows, 2, DCI_ERR_INVALID, "zero_rows is 2, expected ");
        REFUSE(reserved, 1, DCI_ERR_INVALID, "reserved");
        config = good;
        config.storage = DCI_ROWS_BORROWED;
        config.add_dtype = DCI_F16;
        ck_refused(dci_index_create(context, &config, &out), DCI_ERR_INVALID, "f16");
        struct {
                dci_index_config config;
                unsigned char newer[16];
        } longer = {.config = good};
        longer.config.struct_size = sizeof longer;
        ck_ok(dci_index_create(context, &longer.config, &out));
        dci_index_destroy(out);
        longer.newer[5] = 1;
        ck_refused(dci_index_create(context, &longer.config, &out), DCI_ERR_UNSUPPORTED, "field at byte");
        dci_index_destroy(NULL);
}
END_TEST

START_TEST(bad_adds_are_refused)
{
        const float nan_row[2 * DIM] = {1, 1, 1, 1, 1, NAN, 1, 1}, inf_row[DIM] = {1, 1, INFINITY, 1};
        const float huge_row[DIM] = {1e19f, 1, 1, 1};
        const int64_t taken[2] = {7, 1}, twice[2] = {7, 7}, negative[2] = {7, -1}, last[2] = {7, INT64_MAX};
        dci_index *i = index_of_three;
        ck_refused(dci_index_add(NULL, 1, three, DIM, NULL, NULL), DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_add(i, 1, NULL, DIM, NULL, NULL), DCI_ERR_INVALID, "rows is NULL");
        ck_refused(dci_index_add(i, 1, three, DIM - 1, NULL, NULL), DCI_ERR_INVALID,
                   "ld is 3, expected at least the dimension 4");
        ck_refused(dci_index_add(i, SIZE_MAX / 4, three, DIM, NULL, NULL), DCI_ERR_LIMIT, "address space");
        ck_refused(dci_index_add(i, 2, three, SIZE_MAX / 4, NULL, NULL), DCI_ERR_LIMIT, "address space");
        ck_refused(dci_index_add(i, DCI_MAX_ROWS - 1, three, DIM, NULL, NULL), DCI_ERR_LIMIT, "exceed");
        ck_refused(dci_index_add(i, 1, (const char *)three + 1, DIM, NULL, NULL), DCI_ERR_INVALID, "aligned");
        ck_refused(dci_index_add(i, 2, nan_row, DIM, NULL, NULL), DCI_ERR_NUMBER, "row 1 holds NaN");
        ck_refused(dci_index_add(i, 1, inf_row, DIM, NULL, NULL), DCI_ERR_NUMBER, "row 0 holds NaN or infinity");
        ck_refused(dci_index_add(i, 1, huge_row, DIM, NULL, NULL), DCI_ERR_NUMBER, "row 0 is too large");
        ck_refused(dci_index_add(i, 2, three, DIM, taken, NULL), DCI_ERR_EXISTS, "id 1 of row 1 is in the index");
        ck_refused(dci_index_add(i, 2, three, DIM, twice, NULL), DCI_ERR_EXISTS, "id 7 of row 1 comes twice");
        ck_refused(dci_index_add(i, 2, three, DIM, negative, NULL), DCI_ERR_INVALID, "id -1 of row 1 is negative");
        ck_refused(dci_index_add(i, 2, three, DIM, last, NULL), DCI_ERR_LIMIT, "row 1");
        ck_refused(dci_index_reserve(i, DCI_MAX_ROWS + 1), DCI_ERR_LIMIT, "at most");
        ck_refused(dci_index_reserve(NULL, 1), DCI_ERR_INVALID, "NULL");
        ck_ok(dci_index_add(i, 0, NULL, 0, NULL, NULL));
        check_unchanged();
        /* The same with a live map of ids, whose entries must be taken back. */
        const int64_t far = 1000000;
        ck_ok(dci_index_add(i, 1, three, DIM, &far, NULL));
        ck_refused(dci_index_add(i, 2, three, DIM, taken, NULL), DCI_ERR_EXISTS, "id 1 of row 1 is in the index");
        ck_refused(dci_index_add(i, 2, three, DIM, twice, NULL), DCI_ERR_EXISTS, "comes twice");
        ck_ok(dci_index_remove(i, 1, &far));
        const int64_t seven = 7;
        ck_refused(dci_index_remove(i, 1, &seven), DCI_ERR_NOT_FOUND, "id 7");
        check_unchanged();
}
END_TEST

START_TEST(the_lowest_bad_row_is_named_at_any_thread_count)
{
        enum { N = 60000, WIDE = 64 };
        float *rows = test_normal(N, WIDE, 1);
        rows[40000 * WIDE] = NAN;
        rows[39999 * WIDE + 63] = INFINITY;
        rows[59999 * WIDE] = NAN;
        for (int32_t threads = 1; threads <= 4; threads += 3) {
                dci_context *c = test_context(threads);
                dci_index_config config = index_config(WIDE, DCI_METRIC_IP, DCI_F16);
                dci_index *index = NULL;
                config.add_dtype = DCI_F32;
                ck_ok(dci_index_create(c, &config, &index));
                ck_refused(dci_index_add(index, N, rows, WIDE, NULL, NULL), DCI_ERR_NUMBER, "row 39999");
                ck_assert_uint_eq(dci_index_count(index), 0);
                dci_index_destroy(index);
                dci_context_destroy(c);
        }
        free(rows);
}
END_TEST

START_TEST(values_that_overflow_the_stored_format_are_refused)
{
        static const struct {
                dci_dtype dtype;
                float fits, overflows;
                const char *sentence;
        } cases[] = {
                {DCI_F16, 65504.0f, 65520.0f,
                 "row 1 holds 65520 at element 2, beyond the range of dtype f16, -65504 to"},
                {DCI_F16, 1, -1e30f, "row 1 holds -1e+30 at element 2, beyond the range of dtype f16"},
                {DCI_BF16, 1e18f, 3.4e38f,
                 "row 1 holds 3.4e+38 at element 2, beyond the range of dtype bf16, -3.3895e+38"},
                {DCI_F16, 1, INFINITY, "row 1 holds NaN or infinity"},
                {DCI_BF16, 1, NAN, "row 1 holds NaN or infinity"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                dci_index_config config = index_config(DIM, DCI_METRIC_L2, cases[i].dtype);
                config.add_dtype = DCI_F32;
                dci_index *index = NULL;
                const float rows[2 * DIM] = {cases[i].fits, 0, 0, 0, 0, 1, cases[i].overflows, 0};
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, 1, rows, DIM, NULL, NULL));
                ck_refused(dci_index_add(index, 2, rows, DIM, NULL, NULL), DCI_ERR_NUMBER, cases[i].sentence);
                ck_assert_uint_eq(dci_index_count(index), 1);
                dci_index_destroy(index);
        }
}
END_TEST

START_TEST(zero_rows_are_refused_under_cosine)
{
        dci_index_config config = index_config(DIM, DCI_METRIC_COSINE, DCI_F32);
        dci_index *index = NULL;
        const float zero[2 * DIM] = {1, 0, 0, 0}, tiny[DIM] = {1e-13f, 0, 0, 0}, small[DIM] = {1e-11f, 0, 0, 0};
        int64_t id;
        ck_ok(dci_index_create(context, &config, &index));
        ck_refused(dci_index_add(index, 2, zero, DIM, NULL, NULL), DCI_ERR_NUMBER, "row 1 is zero");
        ck_refused(dci_index_add(index, 1, tiny, DIM, NULL, NULL), DCI_ERR_NUMBER, "row 0 is zero");
        ck_ok(dci_index_add(index, 1, small, DIM, NULL, NULL));
        ck_refused(dci_index_search(index, 2, zero, DIM, 1, NULL, &id, NULL), DCI_ERR_NUMBER, "query 1 is zero");
        dci_index_destroy(index);
}
END_TEST

START_TEST(bad_searches_are_refused)
{
        const float bad[2 * DIM] = {1, 1, 1, 1, 1, NAN, 1, 1};
        int64_t ids[8];
        dci_index *i = index_of_three;
        ck_refused(dci_index_search(NULL, 1, three, DIM, 1, NULL, ids, NULL), DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_search(i, 1, NULL, DIM, 1, NULL, ids, NULL), DCI_ERR_INVALID, "queries is NULL");
        ck_refused(dci_index_search(i, 1, three, 2, 1, NULL, ids, NULL), DCI_ERR_INVALID, "ld is 2");
        ck_refused(dci_index_search(i, 1, three, DIM, 0, NULL, ids, NULL), DCI_ERR_INVALID, "k is 0");
        ck_refused(dci_index_search(i, 1, three, DIM, SIZE_MAX, NULL, ids, NULL), DCI_ERR_LIMIT, "k");
        ck_refused(dci_index_search(i, (size_t)1 << 40, three, DIM, 2, NULL, ids, NULL), DCI_ERR_LIMIT, "product");
        ck_refused(dci_index_search(i, (size_t)1 << 40, three, SIZE_MAX / 8, 1, NULL, ids, NULL), DCI_ERR_LIMIT,
                   "address space");
        ck_refused(dci_index_search(i, 1, three, DIM, 1, NULL, NULL, NULL), DCI_ERR_INVALID, "out_ids is NULL");
        ck_refused(dci_index_search(i, 2, bad, DIM, 1, NULL, ids, NULL), DCI_ERR_NUMBER, "query 1 holds NaN");
        ck_ok(dci_index_search(i, 0, NULL, 0, 1, NULL, NULL, NULL));
        dci_range_result result;
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_refused(dci_index_range_search(i, 1, three, DIM, NAN, NULL, &result), DCI_ERR_INVALID, "NaN");
        ck_refused(dci_index_range_search(i, 1, three, DIM, 1, NULL, NULL), DCI_ERR_INVALID, "out_result");
        ck_ok(dci_index_range_search(i, 1, three, DIM, 1e9f, NULL, &result));
        ck_refused(dci_index_range_search(i, 1, three, DIM, 1, NULL, &result), DCI_ERR_INVALID, "free it first");
        dci_range_result_free(&result);
        dci_range_result_free(NULL);
        check_unchanged();
}
END_TEST

START_TEST(bad_params_are_refused)
{
        const double bad_shares[] = {-0.5, 1.0001, NAN, INFINITY};
        const int64_t unsorted[2] = {2, 1}, doubled[2] = {1, 1};
        dci_search_params params;
        dci_filter filter;
        int64_t ids[3];
        dci_index *i = index_of_three;
        for (size_t s = 0; s < sizeof bad_shares / sizeof bad_shares[0]; s++) {
                ck_ok(dci_search_params_init(&params, sizeof params));
                params.prop_to_visit = bad_shares[s];
                ck_refused(dci_index_search(i, 1, three, DIM, 1, &params, ids, NULL), DCI_ERR_INVALID, "prop_to_visit");
                ck_refused(dci_index_set_defaults(i, &params), DCI_ERR_INVALID, "prop_to_visit");
                params.prop_to_visit = 1;
                params.prop_to_retrieve = bad_shares[s];
                ck_refused(dci_index_search(i, 1, three, DIM, 1, &params, ids, NULL), DCI_ERR_INVALID,
                           "prop_to_retrieve");
        }
        ck_ok(dci_search_params_init(&params, sizeof params));
        ck_ok(dci_filter_init(&filter, sizeof filter));
        params.filter = &filter;
#define REFUSE_FILTER(part)                                                                                            \
        ck_refused(dci_index_search(i, 1, three, DIM, 1, &params, ids, NULL), DCI_ERR_INVALID, (part))
        filter.kind = 9;
        REFUSE_FILTER("filter kind 9");
        filter.kind = DCI_FILTER_IDS;
        filter.n = 2;
        REFUSE_FILTER("filter.ids is NULL");
        filter.ids = unsorted;
        REFUSE_FILTER("ascend");
        filter.ids = doubled;
        REFUSE_FILTER("ascend");
        filter.kind = DCI_FILTER_BITMAP;
        REFUSE_FILTER("filter.bits is NULL");
        filter.kind = DCI_FILTER_CALLBACK;
        REFUSE_FILTER("filter.fn is NULL");
        filter.kind = DCI_FILTER_NONE;
        ck_ok(dci_index_search(i, 1, three, DIM, 1, &params, ids, NULL));
        ck_refused(dci_index_set_defaults(i, &params), DCI_ERR_INVALID, "effort only");
        filter.struct_size = 3;
        REFUSE_FILTER("struct_size 3");
        params.filter = NULL;
        params.struct_size = 1;
        REFUSE_FILTER("struct_size 1");
        ck_refused(dci_index_set_defaults(i, NULL), DCI_ERR_INVALID, "params is NULL");
        ck_refused(dci_index_get_defaults(i, NULL), DCI_ERR_INVALID, "out_params is NULL");
        ck_refused(dci_index_get_defaults(i, &params), DCI_ERR_INVALID, "struct_size 1");
        check_unchanged();
}
END_TEST

START_TEST(bad_removes_and_reads_are_refused)
{
        const int64_t unknown[2] = {1, 42}, twice[3] = {2, 1, 2}, negative = -5;
        float rows[3 * DIM];
        size_t count;
        dci_memory_report report = {0};
        dci_index *i = index_of_three;
        ck_refused(dci_index_remove(NULL, 1, unknown), DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_remove(i, 1, NULL), DCI_ERR_INVALID, "ids is NULL");
        ck_refused(dci_index_remove(i, 2, unknown), DCI_ERR_NOT_FOUND, "id 42 (number 1)");
        ck_refused(dci_index_remove(i, 3, twice), DCI_ERR_EXISTS, "id 2 is named twice");
        ck_refused(dci_index_remove(i, 1, &negative), DCI_ERR_NOT_FOUND, "id -5");
        ck_refused(dci_index_remove(i, SIZE_MAX, unknown), DCI_ERR_NOT_FOUND, "at most");
        ck_refused(dci_index_reconstruct(i, 2, unknown, rows, DIM), DCI_ERR_NOT_FOUND, "id 42");
        ck_refused(dci_index_reconstruct(i, 1, unknown, rows, 1), DCI_ERR_INVALID, "ld is 1");
        ck_refused(dci_index_reconstruct(i, 2, unknown, rows, SIZE_MAX / 4), DCI_ERR_LIMIT, "address space");
        ck_refused(dci_index_reconstruct(i, 8, unknown, rows, SIZE_MAX / 16), DCI_ERR_LIMIT, "address space");
        ck_refused(dci_index_reconstruct(i, 1, unknown, NULL, DIM), DCI_ERR_INVALID, "out_rows is NULL");
        ck_refused(dci_index_reconstruct(i, 1, NULL, rows, DIM), DCI_ERR_INVALID, "ids is NULL");
        ck_refused(dci_index_ids(i, 1, NULL, &count), DCI_ERR_INVALID, "out_ids is NULL");
        ck_refused(dci_index_ids(i, 0, NULL, NULL), DCI_ERR_INVALID, "out_count is NULL");
        ck_refused(dci_index_memory(i, NULL), DCI_ERR_INVALID, "out_report is NULL");
        ck_refused(dci_index_memory(i, &report), DCI_ERR_INVALID, "struct_size 0");
        ck_assert_uint_eq(dci_index_count(NULL), 0);
        check_unchanged();
}
END_TEST

/* --- callbacks --------------------------------------------------------------------------------------------------------- */

typedef struct intruder {
        dci_index *index;
        size_t calls, stop_at;
        dci_status search, add;
} intruder;

static int32_t intrude(void *ctx, size_t done, size_t total)
{
        intruder *self = ctx;
        int64_t id;
        ck_assert_uint_le(done, total);
        self->search = dci_index_search(self->index, 1, three, DIM, 1, NULL, &id, NULL);
        self->add = dci_index_add(self->index, 1, three, DIM, NULL, NULL);
        return ++self->calls == self->stop_at;
}

static int32_t intrude_filter(void *ctx, int64_t id)
{
        (void)id;
        return intrude(ctx, 0, 1) == 0;
}

START_TEST(callbacks_cannot_use_the_object_and_can_cancel)
{
        intruder self = {.index = index_of_three, .stop_at = 1};
        dci_progress progress = {&self, intrude};
        dci_search_params params;
        dci_filter filter;
        int64_t ids[64];
        const float queries[64 * DIM] = {0};
        ck_refused(dci_index_add(index_of_three, 3, three, DIM, NULL, &progress), DCI_ERR_CANCELLED, "stopped");
        ck_assert_int_eq(self.search, DCI_ERR_BUSY);
        ck_assert_int_eq(self.add, DCI_ERR_BUSY);
        check_unchanged();
        ck_ok(dci_search_params_init(&params, sizeof params));
        params.progress = progress;
        self.calls = 0;
        ck_refused(dci_index_search(index_of_three, 64, queries, DIM, 1, &params, ids, NULL), DCI_ERR_CANCELLED,
                   "after 1 of 8");
        self.stop_at = 0;
        self.calls = 0;
        ck_ok(dci_index_search(index_of_three, 64, queries, DIM, 1, &params, ids, NULL));
        ck_assert_uint_eq(self.calls, 8);
        ck_ok(dci_filter_init(&filter, sizeof filter));
        params.progress.fn = NULL;
        params.filter = &filter;
        filter.kind = DCI_FILTER_CALLBACK;
        filter.fn = intrude_filter;
        filter.ctx = &self;
        self.search = DCI_OK;
        ck_ok(dci_index_search(index_of_three, 1, three, DIM, 1, &params, ids, NULL));
        ck_assert_int_eq(self.search, DCI_ERR_BUSY);
        check_unchanged();
}
END_TEST

/* --- allocations ---------------------------------------------------------------------------------------------------------- */

enum { FEW = 40, MANY = 3000, WIDTH = 24, QUERIES = 40 };

/* A life of an index. Each step that fails for memory is tried again until it works, and must have changed nothing. */
typedef struct life {
        dci_context *context;
        dci_index *index;
        const float *rows;
        size_t refused;
} life;

static bool again(life *l, dci_status status)
{
        ck_assert_msg(status == DCI_OK || status == DCI_ERR_MEMORY, "%s: %s", dci_status_name(status),
                      dci_last_error());
        l->refused += status != DCI_OK;
        return status != DCI_OK;
}

static void live(life *l, dci_metric metric, int32_t storage)
{
        dci_index_config config = index_config(WIDTH, metric, storage == DCI_ROWS_BORROWED ? DCI_F32 : DCI_BF16);
        config.add_dtype = config.query_dtype = DCI_F32;
        config.storage = storage;
        int64_t ids[FEW], gone[3] = {2, 1003, 17}, *got = malloc(QUERIES * 5 * sizeof *got);
        size_t count;
        for (size_t i = 0; i < FEW; i++)
                ids[i] = (int64_t)(1000 + i);
        while (again(l, dci_index_create(l->context, &config, &l->index)))
                continue;
        for (size_t count_before = 0; again(l, dci_index_add(l->index, FEW, l->rows, WIDTH, NULL, NULL));)
                ck_assert_uint_eq(dci_index_count(l->index), count_before);
        while (again(l, dci_index_add(l->index, FEW, l->rows, WIDTH, ids, NULL)))
                ck_assert_uint_eq(dci_index_count(l->index), FEW);
        while (again(l, dci_index_remove(l->index, 3, gone)))
                ck_assert_uint_eq(dci_index_count(l->index), 2 * FEW);
        while (again(l, dci_index_reserve(l->index, MANY)))
                continue;
        while (again(l, dci_index_add(l->index, MANY, l->rows, WIDTH, NULL, NULL)))
                ck_assert_uint_eq(dci_index_count(l->index), 2 * FEW - 3);
        ck_assert_uint_eq(dci_index_count(l->index), 2 * FEW - 3 + MANY);

        dci_filter filter;
        dci_search_params params;
        dci_range_result result;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        ck_ok(dci_search_params_init(&params, sizeof params));
        ck_ok(dci_range_result_init(&result, sizeof result));
        filter.kind = DCI_FILTER_IDS;
        filter.ids = ids;
        filter.n = FEW;
        params.filter = &filter;
        while (again(l, dci_index_search(l->index, 1, l->rows, WIDTH, 5, NULL, got, NULL)))
                continue;
        while (again(l, dci_index_search(l->index, QUERIES, l->rows, WIDTH, 5, NULL, got, NULL)))
                continue;
        while (again(l, dci_index_search(l->index, 2, l->rows, WIDTH, 5, &params, got, NULL)))
                continue;
        ck_assert_int_eq(got[0], 1000);
        while (again(l, dci_index_range_search(l->index, 9, l->rows, WIDTH, metric == DCI_METRIC_L2 ? 30.0f : 0.1f,
                                               NULL, &result)))
                ck_assert_ptr_null(result.memory);
        while (again(l, dci_index_ids(l->index, 4, got, &count)))
                continue;
        dci_range_result_free(&result);
        dci_index_destroy(l->index);
        l->index = NULL;
        free(got);
}

START_TEST(every_allocation_may_fail_once)
{
        float *rows = test_normal(MANY, WIDTH, 1);
        for (size_t threads = 1; threads <= 3; threads += 2) {
                for (dci_metric metric = DCI_METRIC_L2; metric <= DCI_METRIC_COSINE; metric++) {
                        size_t failures = 0;
                        for (size_t nth = 1;; nth++) {
                                test_memory memory;
                                life l = {.context = test_context_with(&memory, (int32_t)threads), .rows = rows};
                                atomic_store(&memory.fail_at, atomic_load(&memory.calls) + nth);
                                live(&l, metric, metric == DCI_METRIC_IP ? DCI_ROWS_BORROWED : DCI_ROWS_OWNED);
                                bool reached = atomic_load(&memory.calls) >= atomic_load(&memory.fail_at);
                                dci_context_destroy(l.context);
                                ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
                                ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
                                failures += l.refused;
                                if (!reached)
                                        break;
                        }
                        ck_assert_uint_ge(failures, 20); /* the ladder has that many rungs, or it tests nothing */
                }
        }
        free(rows);
}
END_TEST

/* One query over rows enough to be shared out, of those that a callback admits. */
static void *prepare_large(dci_context *of, const void *arg)
{
        enum { LARGE = 8192, WIDE = 256 };
        dci_index_config config = index_config(WIDE, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        ck_ok(dci_index_create(of, &config, &index));
        ck_ok(dci_index_add(index, LARGE, arg, WIDE, NULL, NULL));
        return index;
}
static int32_t admit_odd(void *ctx, int64_t id)
{
        (void)ctx;
        return id % 2 == 1;
}
static size_t search_large(void *prepared)
{
        static const float query[256] = {1};
        dci_filter filter = {0};
        dci_search_params params;
        int64_t all[9], odd[9];
        ck_ok(dci_filter_init(&filter, sizeof filter));
        ck_ok(dci_search_params_init(&params, sizeof params));
        filter.kind = DCI_FILTER_CALLBACK;
        filter.fn = admit_odd;
        params.filter = &filter;
        size_t failed = 0;
        for (int turn = 0; turn < 2; turn++) { /* an allocation fails once: what failed is asked again */
                const dci_status status = dci_index_search(prepared, 1, query, 256, 9, turn == 0 ? NULL : &params,
                                                           turn == 0 ? all : odd, NULL);
                ck_assert(status == DCI_OK || status == DCI_ERR_MEMORY);
                failed += status != DCI_OK;
                turn -= status != DCI_OK;
        }
        ck_assert_uint_le(failed, 1);
        for (size_t i = 0, j = 0; i < 9; i++)
                if (all[i] % 2 == 1)
                        ck_assert_int_eq(odd[j++], all[i]);
        for (size_t i = 0; i < 9; i++)
                ck_assert_int_eq(odd[i] % 2, 1);
        dci_index_destroy(prepared);
        return failed;
}

START_TEST(a_search_shared_among_threads_may_lack_memory_once)
{
        float *rows = test_normal(8192, 256, 1);
        ck_assert_uint_ge(test_each_allocation_failing(3, prepare_large, search_large, rows), 7);
        free(rows);
}
END_TEST

START_TEST(a_remove_that_cannot_shrink_the_map_succeeds_and_leaves_the_last_error)
{
        enum { LEFT = 5 };
        const size_t failing[] = {0, 2, 3}; /* of a remove's allocations: none; the new map; its entries */
        const int64_t unknown = 42;
        float *rows = test_normal(MANY, DIM, 1);
        int64_t *ids = malloc(MANY * sizeof *ids), found;
        size_t map_bytes[3];
        for (size_t i = 0; i < MANY; i++)
                ids[i] = (int64_t)(1000 + i);
        for (size_t f = 0; f < 3; f++) {
                test_memory memory;
                dci_context *c = test_context_with(&memory, 1);
                dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
                dci_index *index = NULL;
                ck_ok(dci_index_create(c, &config, &index));
                ck_ok(dci_index_add(index, MANY, rows, DIM, ids, NULL));
                ck_refused(dci_index_remove(index, 1, &unknown), DCI_ERR_NOT_FOUND, "id 42");
                const size_t before = atomic_load(&memory.calls);
                atomic_store(&memory.fail_at, failing[f] == 0 ? 0 : before + failing[f]);
                ck_ok(dci_index_remove(index, MANY - LEFT, ids));
                ck_assert_uint_eq(atomic_load(&memory.calls) - before, failing[f] == 0 ? 3 : failing[f]);
                ck_assert_msg(strstr(dci_last_error(), "id 42") != NULL, "the last error is '%s'", dci_last_error());
                ck_assert_uint_eq(dci_index_count(index), LEFT);
                ck_ok(dci_index_search(index, 1, rows + (MANY - 1) * DIM, DIM, 1, NULL, &found, NULL));
                ck_assert_int_eq(found, ids[MANY - 1]);
                map_bytes[f] = dci_idmap_bytes(atomic_load(&index->map));
                ck_ok(dci_index_remove(index, LEFT, ids + MANY - LEFT)); /* the map knows them */
                dci_index_destroy(index);
                dci_context_destroy(c);
        }
        ck_assert_uint_lt(map_bytes[0], map_bytes[1] / 8);
        ck_assert_uint_eq(map_bytes[1], map_bytes[2]);
        test_free(ids, rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index faults");
        TCase *refusals = test_case_with(suite, "refusals", 60, setup, teardown),
              *memory = test_case(suite, "memory", 300);
        tcase_add_test(refusals, bad_configs_are_refused);
        tcase_add_test(refusals, bad_adds_are_refused);
        tcase_add_test(refusals, the_lowest_bad_row_is_named_at_any_thread_count);
        tcase_add_test(refusals, values_that_overflow_the_stored_format_are_refused);
        tcase_add_test(refusals, zero_rows_are_refused_under_cosine);
        tcase_add_test(refusals, bad_searches_are_refused);
        tcase_add_test(refusals, bad_params_are_refused);
        tcase_add_test(refusals, bad_removes_and_reads_are_refused);
        tcase_add_test(refusals, callbacks_cannot_use_the_object_and_can_cancel);
        tcase_add_test(memory, every_allocation_may_fail_once);
        tcase_add_test(memory, a_search_shared_among_threads_may_lack_memory_once);
        tcase_add_test(memory, a_remove_that_cannot_shrink_the_map_succeeds_and_leaves_the_last_error);
        return test_main(suite);
}
