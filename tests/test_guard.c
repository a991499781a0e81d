/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arrays of exactly the size that the headers of an index ask for, against inaccessible pages, at every instruction set. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dci/file.h"
#include "simd/kernels.h"
#include "tests/guard.h"
#include "tests/pdci_fixture.h"

enum { ROWS = 70, MORE = 9, QUERIES = 20, K = 6, PAGE_ROWS = 16 };

static const size_t dims[] = {1, 7, 16, 33, 65};

typedef struct shape {
        dci_index_config config;
        size_t gap; /* elements between rows */
        float *rows, *queries;
        char what[120];
} shape;

/* n rows as the index wants them. */
static const void *rows_of(const shape *s, dci_dtype dtype, size_t first, size_t n, size_t gap)
{
        const size_t dim = s->config.dim;
        static unsigned char narrow[(ROWS + MORE) * 65 * sizeof(float)];
        dci_kernels_scalar.narrow[dtype - 1](s->rows + first * dim, n * dim, narrow);
        return guard_rows(narrow, n, dim, dim + gap, dci_dtype_size(dtype));
}

static const void *queries_of(const shape *s, size_t n)
{
        static unsigned char narrow[QUERIES * 65 * sizeof(float)];
        dci_kernels_scalar.narrow[s->config.query_dtype - 1](s->queries, n * s->config.dim, narrow);
        return guard_rows(narrow, n, s->config.dim, s->config.dim + s->gap, dci_dtype_size(s->config.query_dtype));
}

static void check_lists(const shape *s, const int64_t *ids, const float *scores, size_t n)
{
        for (size_t i = 0; i < n; i++)
                ck_assert_msg(ids[i] >= 0 && ids[i] < 3 * (ROWS + MORE) && scores[i] == scores[i], "%s: result %zu",
                              s->what, i);
}

static void search(const shape *s, const dci_index *index, const dci_search_params *params)
{
        static const size_t counts[] = {1, 3, QUERIES};
        const size_t ld = s->config.dim + s->gap;
        for (size_t i = 0; i < COUNT(counts); i++) {
                const size_t n = counts[i];
                int64_t *ids = guard_out(n * K * sizeof *ids);
                float *scores = guard_out(n * K * sizeof *scores);
                ck_ok(dci_index_search(index, n, queries_of(s, n), ld, K, params, ids, scores));
                check_lists(s, ids, scores, n * K);
        }
        int64_t *ids = guard_out(2 * 3 * K * sizeof *ids);
        float *scores = guard_out(2 * 3 * K * sizeof *scores);
        ck_ok(dci_index_search_group(index, 2, 3, queries_of(s, 6), ld, K, DCI_GROUP_EACH, params, ids, scores));
        check_lists(s, ids, scores, 2 * 3 * K);
        ids = guard_out(2 * K * sizeof *ids);
        scores = guard_out(2 * K * sizeof *scores);
        ck_ok(dci_index_search_group(index, 2, 3, queries_of(s, 6), ld, K, DCI_GROUP_UNION, params, ids, scores));
        check_lists(s, ids, scores, 2 * K);
        dci_range_result range;
        ck_ok(dci_range_result_init(&range, sizeof range));
        ck_ok(dci_index_range_search(index, 3, queries_of(s, 3), ld, pdci_any_radius(s->config.metric), params,
                                     &range));
        dci_range_result_free(&range);
}

/* Bits and ids of a filter, as many as it says. */
static void search_filtered(const shape *s, const dci_index *index)
{
        int64_t admitted[ROWS];
        uint64_t bits[(3 * ROWS + 63) / 64];
        dci_filter filter;
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        ck_ok(dci_filter_init(&filter, sizeof filter));
        params.filter = &filter;
        for (int64_t i = 0; i < ROWS; i++)
                admitted[i] = 3 * i;
        filter.kind = DCI_FILTER_IDS;
        filter.n = ROWS / 2;
        filter.ids = guard_in(admitted, filter.n * sizeof *admitted);
        search(s, index, &params);
        memset(bits, 0xFF, sizeof bits);
        filter.kind = DCI_FILTER_BITMAP;
        filter.n = 3 * ROWS;
        filter.bits = guard_in(bits, sizeof bits);
        search(s, index, &params);
}

static void read_back(const shape *s, const dci_index *index, size_t n)
{
        const size_t dim = s->config.dim, ld = dim + s->gap, es = dci_dtype_size(s->config.dtype);
        size_t count;
        int64_t *ids = guard_out(n * sizeof *ids);
        ck_ok(dci_index_ids(index, n, ids, &count));
        ck_assert_uint_eq(count, n);
        void *out = guard_out(guard_bytes(n, dim, ld, es));
        ck_ok(dci_index_reconstruct(index, n, guard_in(ids, n * sizeof *ids), out, ld));
        guard_gaps(out, n, dim, ld, es, s->what);
        if (s->config.kind != DCI_KIND_MDCI)
                return;
        uint64_t version;
        ck_ok(dci_index_pages(index, 0, NULL, &count));
        dci_page *pages = guard_out(count * sizeof *pages);
        ck_ok(dci_index_pages(index, count, pages, &count));
        ck_ok(dci_index_page_ids(index, pages[count - 1].page, guard_out(PAGE_ROWS * sizeof(int64_t)), &n));
        ck_ok(dci_index_changes(index, 0, 0, NULL, &count, &version));
        ck_ok(dci_index_changes(index, 0, count, guard_out(count * sizeof(int32_t)), &count, &version));
}

static void save_and_load(const shape *s, dci_context *context, const dci_index *index)
{
        size_t n_bytes;
        dci_index *loaded = NULL;
        ck_ok(dci_index_save_memory(index, 0, NULL, &n_bytes));
        void *bytes = guard_out(n_bytes);
        ck_ok(dci_index_save_memory(index, n_bytes, bytes, &n_bytes));
        ck_ok(dci_index_load_memory(context, guard_in(bytes, n_bytes), n_bytes, &loaded));
        search(s, loaded, NULL);
        dci_index_destroy(loaded);
}

/* Ids are 3 i, so that they have a map; some searches propose by codes, some by tiles, some by rank. */
static void live(const shape *s, dci_context *context)
{
        const size_t ld = s->config.dim + s->gap;
        const dci_dtype added = s->config.add_dtype;
        int64_t ids[ROWS + MORE];
        dci_index *index = NULL;
        dci_search_params params;
        for (size_t i = 0; i < ROWS + MORE; i++)
                ids[i] = 3 * (int64_t)i;
        ck_ok(dci_index_create(context, &s->config, &index));
        ck_ok(dci_index_add(index, ROWS, rows_of(s, added, 0, ROWS, s->gap), ld, guard_in(ids, ROWS * sizeof *ids),
                            NULL));
        ck_ok(dci_index_add(index, MORE, rows_of(s, added, ROWS, MORE, 0), s->config.dim,
                            guard_in(ids + ROWS, MORE * sizeof *ids), NULL));
        search(s, index, NULL);
        ck_ok(dci_search_params_init(&params, sizeof params));
        params.prop_to_visit = params.prop_to_retrieve = 0.4;
        search(s, index, &params);
        search_filtered(s, index);
        read_back(s, index, ROWS + MORE);
        ck_ok(dci_index_tune(index, QUERIES, queries_of(s, QUERIES), ld, K, 0.9, NULL));
        if (s->config.sketch_bits > 0)
                ck_ok(dci_index_fit(index, QUERIES, queries_of(s, QUERIES), ld));
        save_and_load(s, context, index);
        ck_ok(dci_index_remove(index, 20, guard_in(ids + 11, 20 * sizeof *ids)));
        search(s, index, NULL);
        dci_index_destroy(index);
        guard_release();
}

static void each_form(dci_isa isa, size_t dim, size_t turn)
{
        static const int32_t widths[] = {0, 4, 1, 8, 2};
        size_t number = 0;
        shape s = {.rows = test_normal(ROWS + MORE, dim, 7), .queries = test_normal(QUERIES, dim, 8)};
        dci_context *context = test_context_isa(isa);
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI; kind++)
                for (size_t m = 0; m < COUNT(all_metrics); m++)
                        for (size_t d = 0; d < 3; d++, number++) {
                                const dci_dtype dtype = row_dtypes[number % COUNT(row_dtypes)];
                                s.config = index_config(dim, all_metrics[m], dtype);
                                s.config.kind = kind;
                                s.config.storage = number % 2 == 0 ? DCI_ROWS_OWNED : DCI_ROWS_BORROWED;
                                s.config.add_dtype = number % 4 == 0 && dtype <= DCI_BF16 ? DCI_F32 : dtype;
                                s.config.query_dtype = row_dtypes[number % 7 % COUNT(row_dtypes)];
                                s.config.zero_rows = DCI_ZERO_KEEP; /* of integers there are some */
                                s.config.sketch_bits = widths[number % COUNT(widths)];
                                s.config.promotion_prob = 0.1;
                                s.config.top_nodes = 5;
                                s.config.page_rows = PAGE_ROWS;
                                s.gap = number % 3;
                                snprintf(s.what, sizeof s.what, "isa %s, dim %zu, kind %d, metric %d, %s",
                                         dci_isa_name(isa), dim, kind, all_metrics[m], dci_dtype_name(dtype));
                                guard_at_begin((number + turn) % 2 == 0);
                                live(&s, context);
                        }
        dci_context_destroy(context);
        test_free(s.rows, s.queries);
}

START_TEST(an_index_touches_nothing_but_the_arrays_of_its_caller)
{
        dci_isa isas[6];
        const size_t n = test_isas(isas);
        for (size_t i = 0; i < n; i++)
                for (size_t d = 0; d < COUNT(dims); d += test_short() ? 2 : 1)
                        each_form(isas[i], dims[d], i + d + (size_t)_i);
}
END_TEST

/* A process of its own touches one byte; false if it ended well. */
static bool ends_by(const unsigned char *read, unsigned char *written)
{
        int code;
        const pid_t child = fork();
        ck_assert(child >= 0);
        if (child == 0) {
                volatile unsigned char taken = 0;
                fclose(stderr); /* where sanitizers would say what is meant to happen */
                close(STDERR_FILENO);
                if (read != NULL)
                        taken = *(const volatile unsigned char *)read;
                if (written != NULL)
                        *(volatile unsigned char *)written = taken;
                _exit(0);
        }
        ck_assert_int_eq(waitpid(child, &code, 0), child);
        return !WIFEXITED(code) || WEXITSTATUS(code) != 0;
}

START_TEST(a_touch_beside_an_array_is_a_signal)
{
        static const unsigned char bytes[100] = {1, 2, 3};
        for (int begin = 0; begin < 2; begin++) {
                guard_at_begin(begin != 0);
                const unsigned char *in = guard_in(bytes, sizeof bytes);
                unsigned char *out = guard_out(sizeof bytes);
                const unsigned char *outside = begin ? in - 1 : in + sizeof bytes;
                ck_assert(memcmp(in, bytes, sizeof bytes) == 0);
                ck_assert(ends_by(outside, NULL));
                ck_assert(ends_by(NULL, begin ? out - 1 : out + sizeof bytes));
                ck_assert(ends_by(NULL, (unsigned char *)(uintptr_t)in)); /* inputs are only read */
                ck_assert(!ends_by(in, out));
                ck_assert(!ends_by(in + sizeof bytes - 1, out + sizeof bytes - 1));
                guard_release();
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("test_guard");
        TCase *tcase = test_case(suite, "index", 120);
        tcase_add_test(tcase, a_touch_beside_an_array_is_a_signal);
        tcase_add_loop_test(tcase, an_index_touches_nothing_but_the_arrays_of_its_caller, 0,
                            getenv("DCI_TEST_LONG") != NULL ? 2 : 1);
        return test_main(suite);
}
