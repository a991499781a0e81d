/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind AUTO: a change of the kind that is cancelled, refused or without memory leaves the index whole, and is made up for. */
#include "tests/context_fixture.h"

#include <math.h>
#include <string.h>

#include "dci/check.h"
#include "tests/auto_fixture.h"
#include "tests/persist_fixture.h"

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
                const dci_index_config before = auto_in_use(index);
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
                ck_assert(auto_in_use(index).kind != before.kind ||
                          auto_in_use(index).sketch_bits != before.sketch_bits);
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
        auto_hold(g->index, DCI_KIND_FLAT, 4); /* at the latest with the next batch */
        grow(g, 2 * FEW + 2, MANY);
        grow(g, 2 * FEW + 2 + MANY, 1);
        auto_hold(g->index, DCI_KIND_MDCI, 4);
        const size_t n = dci_index_count(g->index);
        int64_t ids[MOST];
        for (int64_t i = 0; i < MOST; i++)
                ids[i] = i;
        while (again(g, dci_index_remove(g->index, n - 2, ids), n))
                continue;
        check_growing(g);
        while (again(g, dci_index_remove(g->index, 1, ids + n - 2), 2))
                continue;
        auto_hold(g->index, DCI_KIND_FLAT, 0);
        check_growing(g);
        const size_t failures = g->failures;
        dci_index_destroy(g->index);
        free(g);
        return failures;
}

static void climb(int which, test_ladder ladder)
{
        float *rows = test_normal(MOST, DIM, 1);
        const size_t rungs = ladder(which + 1, grown, grow_through_all, rows);
        ck_assert_msg(rungs >= (test_short() ? 30U : 70U), "%zu rungs", rungs);
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
                n_kept += auto_in_use(index).sketch_bits == 0;
                ck_ok(dci_index_add(index, 1, rows, DIM, NULL, NULL));
                auto_check(index, DCI_KIND_FLAT, 4);
                dci_index_destroy(index);
                if (!failed)
                        break;
        }
        ck_assert_uint_gt(n_kept, 5);
        dci_context_destroy(own);
        free(rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("auto faults");
        TCase *calls = test_case_with(suite, "calls", 60, context_open_2, context_close);
        tcase_add_test(calls, a_cancelled_change_changes_nothing);
        tcase_add_test(calls, bad_rows_and_ids_are_refused_in_a_change_as_well);
        TCase *memory = test_case(suite, "memory", 120);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 0, 2);
        tcase_add_loop_test(memory, memory_may_be_short_from_any_allocation_on, 0, 1);
        tcase_add_test(memory, a_change_without_memory_leaves_what_there_was_and_is_made_up_for);
        return test_main(suite);
}
