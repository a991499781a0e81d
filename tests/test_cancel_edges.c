/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Calls that report progress, stopped at every report in turn: DCI_ERR_CANCELLED, nothing changed, and the call made again gives what it
 * would have given. */
#include "tests/kmeans_fixture.h"
#include "tests/pdci_fixture.h"

#include <string.h>

enum { N = 5000, FIRST = 3000, QUERIES = 48, K = 4 };

static const struct {
        dci_index_kind kind;
        int32_t sketch_bits, n_threads;
} kinds[] = {{DCI_KIND_FLAT, 0, 1}, {DCI_KIND_PDCI, 0, 1}, {DCI_KIND_MDCI, 0, 1},
             {DCI_KIND_FLAT, 4, 3}, {DCI_KIND_PDCI, 4, 3}, {DCI_KIND_MDCI, 4, 3}};

typedef struct stopper {
        size_t calls, stop_at; /* 0: never */
} stopper;

static int32_t stop(void *ctx, size_t done, size_t total)
{
        stopper *s = ctx;
        ck_assert_uint_le(done, total);
        return ++s->calls == s->stop_at;
}

static dci_context *context;
static float *rows, *queries;

static void setup(void)
{
        rows = pdci_trace("keys", N);
        queries = pdci_trace("queries", QUERIES);
        context = test_context(3);
}

static void teardown(void)
{
        test_free(rows, queries);
        dci_context_destroy(context);
}

typedef struct bytes {
        unsigned char *data;
        size_t n;
} bytes;

static bytes bytes_of(const dci_index *index)
{
        bytes b = {NULL, 0};
        ck_ok(dci_index_save_memory(index, 0, NULL, &b.n));
        b.data = malloc(b.n);
        ck_assert_ptr_nonnull(b.data);
        ck_ok(dci_index_save_memory(index, b.n, b.data, &b.n));
        return b;
}

static void must_equal(const bytes *a, bytes b, const char *what, size_t at)
{
        ck_assert_msg(a->n == b.n && memcmp(a->data, b.data, b.n) == 0, "%s, report %zu", what, at);
        free(b.data);
}

static dci_index *index_of(int which, size_t n)
{
        dci_index_config config = pdci_config(TRACE_DIM, DCI_METRIC_IP, DCI_F32);
        config.kind = kinds[which].kind;
        config.sketch_bits = kinds[which].sketch_bits;
        ck_ok(dci_context_set_threads(context, kinds[which].n_threads));
        return pdci_index(context, &config, n, rows, NULL);
}

/* Loops over kinds and shares: a tenth, and more than there is, from which a tree is built again. */
START_TEST(an_add_stopped_at_any_report_has_not_been)
{
        const int which = _i / 2;
        const size_t first = _i % 2 == 0 ? FIRST : 20, n = _i % 2 == 0 ? FIRST / 10 : N - 20;
        dci_index *index = index_of(which, first), *other = index_of(which, first);
        ck_ok(dci_index_add(other, n, rows + first * TRACE_DIM, TRACE_DIM, NULL, NULL));
        const bytes before = bytes_of(index), wanted = bytes_of(other);
        dci_status status = DCI_ERR_CANCELLED;
        for (size_t at = 1; status != DCI_OK; at += at < 12 ? 1 : at / 4) {
                stopper s = {.stop_at = at};
                const dci_progress progress = {&s, stop};
                status = dci_index_add(index, n, rows + first * TRACE_DIM, TRACE_DIM, NULL, &progress);
                if (status != DCI_OK) {
                        ck_refused(status, DCI_ERR_CANCELLED, "stopped the call");
                        must_equal(&before, bytes_of(index), "an add that was stopped", at);
                } else {
                        ck_assert_uint_gt(at, 1);
                }
        }
        must_equal(&wanted, bytes_of(index), "an add after those that were stopped", 0);
        test_free(before.data, wanted.data);
        dci_index_destroy(index);
        dci_index_destroy(other);
}
END_TEST

/* Loops over kinds. */
START_TEST(a_search_stopped_at_any_report_leaves_the_next_one_right)
{
        dci_index *index = index_of(_i, N);
        const bytes before = bytes_of(index);
        for (size_t n_queries = 1; n_queries <= QUERIES; n_queries += QUERIES - 1) {
                pdci_found plain = pdci_search(index, n_queries, queries, K, NULL), found;
                dci_status status = DCI_ERR_CANCELLED;
                size_t at = 1;
                for (; status != DCI_OK; at++) {
                        stopper s = {.stop_at = at};
                        int64_t ids[QUERIES * K];
                        dci_search_params params = pdci_effort(0, 0);
                        params.progress = (dci_progress){&s, stop};
                        status = dci_index_search(index, n_queries, queries, TRACE_DIM, K, &params, ids, NULL);
                        if (status != DCI_OK)
                                ck_refused(status, DCI_ERR_CANCELLED, "stopped the call");
                        else
                                ck_assert_mem_eq(ids, plain.ids, n_queries * K * sizeof ids[0]);
                        found = pdci_search(index, n_queries, queries, K, NULL);
                        ck_assert(pdci_same(&plain, &found));
                        pdci_found_free(&found);
                }
                ck_assert_uint_ge(at, 3); /* one report at least */
                pdci_found_free(&plain);
        }
        must_equal(&before, bytes_of(index), "searches", 0);
        free(before.data);
        dci_index_destroy(index);
}
END_TEST

/* Loops over thread counts and numbers of problems. */
START_TEST(a_k_means_stopped_at_any_report_leaves_the_next_one_right)
{
        test_memory memory;
        dci_context *counted = test_context_with(&memory, _i % 2 == 0 ? 1 : 3);
        dci_kmeans_config config = kmeans_config(0, DCI_F32, TRACE_DIM, 20);
        dci_kmeans_input input = kmeans_input(600, rows);
        config.n_iter = 4;
        input.n_problems = _i / 2 == 0 ? 1 : 3;
        kmeans_out wanted = kmeans_room(&config, &input);
        ck_ok(dci_kmeans(counted, &config, &input, NULL, &wanted.result));
        const size_t before = atomic_load(&memory.live_bytes);
        dci_status status = DCI_ERR_CANCELLED;
        size_t at = 1;
        for (; status != DCI_OK; at++) {
                stopper s = {.stop_at = at};
                const dci_progress progress = {&s, stop};
                kmeans_out out = kmeans_room(&config, &input);
                status = dci_kmeans(counted, &config, &input, &progress, &out.result);
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), before);
                if (status != DCI_OK)
                        ck_assert_int_eq(status, DCI_ERR_CANCELLED);
                else
                        kmeans_same(&wanted, 0, &out, 0, input.n_problems, "after those that were stopped");
                kmeans_out_free(&out);
        }
        ck_assert_uint_ge(at, 3);
        kmeans_out_free(&wanted);
        dci_context_destroy(counted);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("cancel edges");
        TCase *tcase = test_case_with(suite, "cancel", 60, setup, teardown);
        tcase_add_loop_test(tcase, an_add_stopped_at_any_report_has_not_been, 0, 2 * COUNT(kinds));
        tcase_add_loop_test(tcase, a_search_stopped_at_any_report_leaves_the_next_one_right, 0, COUNT(kinds));
        tcase_add_loop_test(tcase, a_k_means_stopped_at_any_report_leaves_the_next_one_right, 0, 4);
        return test_main(suite);
}
