/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Indices with sketch_bits: settings that are none, what reports say of codes, and every allocation failing in turn. */
#include "tests/mdci_fixture.h"
#include "tests/scratch.h"
#include "tests/trace_fixture.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "dci/file.h"

enum { N = 2000, Q = 16, K = 10 };

static const dci_index_kind kinds[] = {DCI_KIND_FLAT, DCI_KIND_PDCI, DCI_KIND_MDCI};

static void setup(void)
{
        trace_open(2, N, Q);
}

START_TEST(memory_and_config_tell_of_codes)
{
        dci_index_config config = pdci_sketched(DCI_KIND_FLAT, DCI_METRIC_IP, DCI_F16, 4), got;
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        const dci_memory_report report = mdci_memory(index);
        ck_assert_uint_ge(report.codes, N * (TRACE_DIM / 2 + 8));
        ck_assert_uint_le(report.codes, 2 * N * (TRACE_DIM / 2 + 8));
        ck_ok(dci_index_config_init(&got, sizeof got));
        ck_ok(dci_index_get_config(index, &got));
        ck_assert_int_eq(got.sketch_bits, 4);
        dci_index_destroy(index);
}
END_TEST

/* Progress that stops the call at its report number `stop_at`, and tries to use the index meanwhile. */
typedef struct fitting {
        dci_index *index;
        size_t n_reports, stop_at, last, total;
} fitting;

static int32_t watch_fit(void *ctx, size_t done, size_t total)
{
        fitting *f = ctx;
        ck_assert_uint_ge(done, f->last);
        ck_assert_uint_le(done, total);
        int64_t id;
        ck_refused(dci_index_search(f->index, 1, queries, TRACE_DIM, 1, NULL, &id, NULL), DCI_ERR_BUSY, "callback");
        f->last = done;
        f->total = total;
        return f->n_reports++ == f->stop_at;
}

START_TEST(a_fit_that_is_cancelled_changes_nothing)
{
        enum { BYTES = 1 << 20 };
        unsigned char *before = malloc(BYTES), *after = malloc(BYTES);
        for (size_t kind = 0; kind < 3; kind++) {
                dci_index_config config = pdci_sketched(kinds[kind], DCI_METRIC_IP, DCI_F16, 4);
                dci_index *index = pdci_index(context, &config, N, keys, NULL);
                size_t n_before, n_after;
                ck_ok(dci_index_save_memory(index, BYTES, before, &n_before));
                for (size_t stop_at = 0; stop_at < 2; stop_at++) {
                        fitting f = {index, 0, stop_at, 0, 0};
                        const dci_progress progress = {&f, watch_fit};
                        ck_refused(dci_index_fit_with(index, Q, queries, TRACE_DIM, &progress), DCI_ERR_CANCELLED,
                                   "stopped the call after");
                        ck_assert_uint_eq(f.n_reports, stop_at + 1);
                        ck_ok(dci_index_save_memory(index, BYTES, after, &n_after));
                        ck_assert_uint_eq(n_before, n_after);
                        ck_assert_mem_eq(before, after, n_before);
                }
                fitting f = {index, 0, SIZE_MAX, 0, 0};
                const dci_progress progress = {&f, watch_fit}, none = {NULL, NULL};
                ck_ok(dci_index_fit_with(index, Q, queries, TRACE_DIM, &progress));
                ck_assert_uint_eq(f.n_reports, 2);
                ck_assert_uint_eq(f.last, f.total);
                ck_ok(dci_index_save_memory(index, BYTES, before, &n_before));
                ck_ok(dci_index_fit_with(index, Q, queries, TRACE_DIM, &none));
                ck_ok(dci_index_save_memory(index, BYTES, after, &n_after));
                ck_assert_mem_eq(before, after, n_before);
                dci_index_destroy(index);
        }
        free(before);
        free(after);
}
END_TEST

START_TEST(bad_settings_are_refused)
{
        dci_index_config config = pdci_sketched(DCI_KIND_MDCI, DCI_METRIC_IP, DCI_F16, 5);
        dci_index *index = NULL;
        ck_refused(dci_index_create(context, &config, &index), DCI_ERR_INVALID, "sketch_bits is 5");
        config.sketch_bits = 4;
        config.page_rows = 8;
        ck_refused(dci_index_create(context, &config, &index), DCI_ERR_INVALID, "page_rows is 8");
        config.page_rows = 16;
        config.dim = DCI_SKETCH_MAX_DIM + 1;
        ck_refused(dci_index_create(context, &config, &index), DCI_ERR_LIMIT, "32737");
        config.dim = TRACE_DIM;
        index = pdci_index(context, &config, 0, keys, NULL);
        ck_refused(dci_index_fit(index, Q, queries, TRACE_DIM), DCI_ERR_NUMBER, "empty");
        ck_ok(dci_index_add(index, 100, keys, TRACE_DIM, NULL, NULL));
        dci_search_params params = pdci_verifying(0.5, 0.0);
        int64_t ids[K];
        ck_refused(dci_index_search(index, 1, queries, TRACE_DIM, K, &params, ids, NULL), DCI_ERR_INVALID,
                   "rerank is 0.5");
        params = pdci_verifying(0.0, 1.5);
        ck_refused(dci_index_search(index, 1, queries, TRACE_DIM, K, &params, ids, NULL), DCI_ERR_INVALID,
                   "guarantee is 1.5");
        params = pdci_verifying((double)NAN, 0.0);
        ck_refused(dci_index_search(index, 1, queries, TRACE_DIM, K, &params, ids, NULL), DCI_ERR_INVALID, "rerank is");
        float zero[TRACE_DIM] = {0};
        ck_refused(dci_index_fit(index, 1, zero, TRACE_DIM), DCI_ERR_NUMBER, "mean square is 0");
        ck_refused(dci_index_fit(index, 0, zero, TRACE_DIM), DCI_ERR_INVALID, "n_queries is 0");
        dci_index_destroy(index);
        config.sketch_bits = 0;
        index = pdci_index(context, &config, 100, keys, NULL);
        ck_refused(dci_index_fit(index, Q, queries, TRACE_DIM), DCI_ERR_UNSUPPORTED, "sketch_bits is 0");
        dci_index_destroy(index);
        enum { WIDE = DCI_SKETCH_MAX_FIT_DIM + 1 };
        float *wide = test_normal(20, WIDE, 1);
        config = pdci_sketched(DCI_KIND_FLAT, DCI_METRIC_IP, DCI_F32, 4);
        config.dim = WIDE;
        index = pdci_index(context, &config, 20, wide, NULL);
        ck_refused(dci_index_fit(index, 20, wide, WIDE), DCI_ERR_LIMIT, "dimension 1025 is more than");
        dci_index_destroy(index);
        free(wide);
}
END_TEST

/* --- every allocation failing in turn ---------------------------------------------------------------------------------- */

static void *prepare(dci_context *own, const void *arg)
{
        const dci_index_config config = pdci_sketched(*(const dci_index_kind *)arg, DCI_METRIC_IP, DCI_F16, 2);
        return pdci_index(own, &config, 200, keys, NULL);
}

static size_t life(void *prepared)
{
        dci_index *index = prepared;
        const dci_search_params sure = pdci_verifying(0.0, 1.0), all = pdci_verifying(INFINITY, 0.0);
        int64_t ids[K], want[K];
        float scores[K];
        size_t failures = 0;
        failures += dci_index_add(index, 40, keys + 200 * TRACE_DIM, TRACE_DIM, NULL, NULL) != DCI_OK;
        failures += dci_index_fit(index, Q, queries, TRACE_DIM) != DCI_OK;
        failures += dci_index_add(index, 90, keys + 240 * TRACE_DIM, TRACE_DIM, NULL, NULL) != DCI_OK;
        failures += dci_index_remove(index, 1, (const int64_t[]){17}) != DCI_OK;
        const bool exact = dci_index_search(index, 1, queries, TRACE_DIM, K, &all, want, scores) == DCI_OK;
        const bool sketched_too = dci_index_search(index, 1, queries, TRACE_DIM, K, &sure, ids, scores) == DCI_OK;
        if (exact && sketched_too)
                ck_assert_mem_eq(ids, want, sizeof ids);
        failures += !exact + !sketched_too;
        dci_index_destroy(index);
        return failures;
}

/* Loops over kinds. */
START_TEST(an_allocation_that_fails_leaves_codes_in_step)
{
        ck_assert_uint_gt(test_each_allocation_failing(1, prepare, life, &kinds[_i]), 20);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketched edges");
        TCase *tcase = test_case_with(suite, "edges", 60, setup, trace_close);
        tcase_add_test(tcase, memory_and_config_tell_of_codes);
        tcase_add_test(tcase, a_fit_that_is_cancelled_changes_nothing);
        tcase_add_test(tcase, bad_settings_are_refused);
        tcase_add_loop_test(tcase, an_allocation_that_fails_leaves_codes_in_step, 0, 3);
        return test_main(suite);
}
