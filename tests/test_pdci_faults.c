/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What an index of kind PDCI refuses, and that a refusal or a failed allocation leaves it as it was. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/pdci_fixture.h"

enum { DIM = 12, FEW = 300, ASKED = 8 };

static dci_context *context;
static dci_index *index_of_few;
static float *rows, *queries;

static void setup(void)
{
        dci_index_config config = pdci_config(DIM, DCI_METRIC_IP, DCI_F32);
        context = test_context(1);
        rows = test_normal(FEW, DIM, 1);
        queries = test_normal(ASKED, DIM, 2);
        index_of_few = pdci_index(context, &config, FEW, rows, NULL);
}

static void teardown(void)
{
        dci_index_destroy(index_of_few);
        dci_context_destroy(context);
        test_free(rows, queries);
}

/* The index answers as a new one of the same rows. */
static void check_unchanged(void)
{
        dci_index *twin = pdci_index(context, &index_of_few->config, FEW, rows, NULL);
        ck_assert_uint_eq(dci_index_count(index_of_few), FEW);
        pdci_agree(index_of_few, NULL, twin, ASKED, queries, "after a refusal");
        dci_index_destroy(twin);
}

START_TEST(numbers_of_simple_indices_are_checked_before_anything_is_allocated)
{
        static const struct {
                size_t n_comp, n_simp;
                dci_status status;
                const char *part;
        } bad[] = {
                {0, 7, DCI_ERR_INVALID, "num_comp_indices is 0"},
                {2, 0, DCI_ERR_INVALID, "num_simp_indices is 0"},
                {0, 0, DCI_ERR_INVALID, "is 0"},
                {DCI_MAX_SIMPLE_INDICES + 1, 1, DCI_ERR_LIMIT, "4097"},
                {1, DCI_MAX_SIMPLE_INDICES + 1, DCI_ERR_LIMIT, "4097"},
                {64, 65, DCI_ERR_LIMIT, "at most 4096"},
                {SIZE_MAX, 1, DCI_ERR_LIMIT, "at most 4096"},
                {1, SIZE_MAX, DCI_ERR_LIMIT, "at most 4096"},
                {SIZE_MAX / 2 + 1, 2, DCI_ERR_LIMIT, "at most 4096"}, /* the product is 0 */
                {(size_t)1 << 32, (size_t)1 << 32, DCI_ERR_LIMIT, "at most 4096"},
                {SIZE_MAX / 2 + 2, 2, DCI_ERR_LIMIT, "at most 4096"}, /* the product is 2 */
                {SIZE_MAX, SIZE_MAX, DCI_ERR_LIMIT, "at most 4096"},  /* the product is 1 */
        };
        static const size_t good[][2] = {{1, 1}, {DCI_MAX_SIMPLE_INDICES, 1}, {1, DCI_MAX_SIMPLE_INDICES}, {64, 64}};
        test_memory memory;
        dci_context *counting = test_context_with(&memory, 1);
        const size_t calls = atomic_load(&memory.calls), bytes = atomic_load(&memory.live_bytes);
        dci_index_config config = pdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *out = NULL;
        for (size_t i = 0; i < COUNT(bad); i++) {
                config.num_comp_indices = bad[i].n_comp;
                config.num_simp_indices = bad[i].n_simp;
                ck_refused(dci_index_create(counting, &config, &out), bad[i].status, bad[i].part);
                ck_assert_ptr_null(out);
        }
        ck_assert_uint_eq(atomic_load(&memory.calls), calls);
        for (size_t i = 0; i < COUNT(good); i++) {
                config.num_comp_indices = good[i][0];
                config.num_simp_indices = good[i][1];
                dci_index *index = pdci_index(counting, &config, 5, rows, NULL);
                dci_search_params params = pdci_effort(2, 1);
                pdci_found found = pdci_search(index, 1, rows + DIM, 2, &params);
                ck_assert_int_eq(found.ids[0], 1);
                pdci_found_free(&found);
                dci_index_destroy(index);
        }
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), bytes);
        config.kind = DCI_KIND_FLAT; /* which has none */
        config.num_comp_indices = 0;
        config.num_simp_indices = SIZE_MAX;
        ck_ok(dci_index_create(counting, &config, &out));
        dci_index_destroy(out);
        dci_context_destroy(counting);
}
END_TEST

START_TEST(shares_outside_their_range_are_refused)
{
        const double bad[] = {-1e-9, 1.0000001, 2.0, NAN, INFINITY, -INFINITY};
        dci_range_result result;
        int64_t id;
        ck_ok(dci_range_result_init(&result, sizeof result));
        for (size_t i = 0; i < 2 * COUNT(bad); i++) {
                const char *part = i % 2 == 0 ? "prop_to_visit" : "prop_to_retrieve";
                dci_search_params params = pdci_effort(5, 5); /* a number does not excuse a bad share */
                *(i % 2 == 0 ? &params.prop_to_visit : &params.prop_to_retrieve) = bad[i / 2];
                ck_refused(dci_index_search(index_of_few, 1, queries, DIM, 1, &params, &id, NULL), DCI_ERR_INVALID,
                           part);
                ck_refused(dci_index_range_search(index_of_few, 1, queries, DIM, 0, &params, &result), DCI_ERR_INVALID,
                           part);
                ck_refused(dci_index_set_defaults(index_of_few, &params), DCI_ERR_INVALID, part);
        }
        dci_search_params least = pdci_effort(0, 0);
        least.prop_to_visit = least.prop_to_retrieve = 4.9e-324;
        ck_ok(dci_index_search(index_of_few, 1, queries, DIM, 1, &least, &id, NULL));
        check_unchanged();
}
END_TEST

static int32_t nobody(void *ctx, int64_t id)
{
        (void)ctx;
        return id < 0;
}

START_TEST(a_filter_that_admits_nobody_gives_padding)
{
        static const size_t budgets[][2] = {{1, 1}, {20, 0}, {0, 5}, {0, 0}};
        static const int64_t unknown[] = {FEW, FEW + 5};
        static const uint64_t no_bits[] = {0, 0};
        for (int kind = DCI_FILTER_IDS; kind <= DCI_FILTER_CALLBACK; kind++) {
                for (size_t b = 0; b < COUNT(budgets); b++) {
                        dci_search_params params = pdci_effort(budgets[b][0], budgets[b][1]);
                        dci_search_stats stats;
                        dci_filter filter;
                        int64_t ids[1];
                        ck_ok(dci_search_stats_init(&stats, sizeof stats));
                        ck_ok(dci_filter_init(&filter, sizeof filter));
                        filter.kind = kind;
                        filter.ids = unknown;
                        filter.bits = no_bits;
                        filter.n = kind == DCI_FILTER_IDS ? 2 : 100;
                        filter.fn = nobody;
                        params.filter = &filter;
                        params.stats = &stats;
                        pdci_found found = pdci_search(index_of_few, ASKED, queries, 3, &params);
                        for (size_t i = 0; i < ASKED * 3; i++)
                                ck_assert(found.ids[i] == -1 && isnan(found.scores[i]));
                        ck_assert(stats.queries == ASKED && stats.candidates == 0 && stats.distances == 0);
                        ck_assert_uint_eq(pdci_candidates(index_of_few, queries, &params, 1, ids), 0);
                        pdci_found_free(&found);
                }
        }
}
END_TEST

static int32_t stop(void *ctx, size_t done, size_t total)
{
        (void)ctx;
        (void)done;
        (void)total;
        return 1;
}

/* Under IP a longer row raises c, which every later search would show. */
START_TEST(a_refused_add_leaves_nothing_behind)
{
        enum { MORE = 40 };
        float more[MORE * DIM];
        int64_t ids[MORE];
        dci_progress progress = {NULL, stop};
        for (size_t i = 0; i < MORE * DIM; i++)
                more[i] = rows[i] * 1000;
        for (size_t i = 0; i < MORE; i++)
                ids[i] = (int64_t)(5 * FEW + 3 * i);
        ck_refused(dci_index_add(index_of_few, MORE, more, DIM, NULL, &progress), DCI_ERR_CANCELLED, "stopped");
        check_unchanged();
        more[(MORE - 1) * DIM] = NAN;
        ck_refused(dci_index_add(index_of_few, MORE, more, DIM, NULL, NULL), DCI_ERR_NUMBER, "row 39");
        check_unchanged();
        more[(MORE - 1) * DIM] = 1e19f;
        ck_refused(dci_index_add(index_of_few, MORE, more, DIM, ids, NULL), DCI_ERR_NUMBER, "row 39 is too large");
        check_unchanged();
        more[(MORE - 1) * DIM] = 1;
        ids[MORE - 1] = 7;
        ck_refused(dci_index_add(index_of_few, MORE, more, DIM, ids, NULL), DCI_ERR_EXISTS, "id 7");
        check_unchanged();
        const int64_t gone[] = {1, 2, 5 * FEW};
        ck_refused(dci_index_remove(index_of_few, 3, gone), DCI_ERR_NOT_FOUND, "id 1500");
        check_unchanged();
}
END_TEST

START_TEST(bad_queries_are_refused_at_any_budget)
{
        float bad[2 * DIM];
        int64_t ids[2];
        const dci_search_params params = pdci_effort(5, 5);
        memcpy(bad, queries, sizeof bad);
        bad[DIM + 3] = NAN;
        ck_refused(dci_index_search(index_of_few, 2, bad, DIM, 1, &params, ids, NULL), DCI_ERR_NUMBER,
                   "query 1 holds NaN");
        bad[DIM + 3] = 1e19f;
        ck_refused(dci_index_search(index_of_few, 2, bad, DIM, 1, &params, ids, NULL), DCI_ERR_NUMBER,
                   "query 1 is too large");
        ck_refused(dci_index_search(index_of_few, 2, queries, DIM, 0, &params, ids, NULL), DCI_ERR_INVALID, "k is 0");
        ck_refused(dci_index_search(index_of_few, 2, queries, DIM - 1, 1, &params, ids, NULL), DCI_ERR_INVALID, "ld");
}
END_TEST

/* --- allocations -------------------------------------------------------------------------------------------------------------- */

enum { MANY = 1200, WIDTH = 16, QUERIES = 20, K = 5 };

/* A life of an index. Each step that fails for memory is tried again until it works, and must have changed nothing. */
typedef struct life {
        dci_context *context;
        dci_index *index;
        const float *rows, *queries;
        pdci_found before; /* what the index answered before the step */
        size_t refused;
} life;

static pdci_found answers(const life *l)
{
        const dci_search_params params = pdci_effort(0, 30);
        return pdci_search(l->index, QUERIES, l->queries, K, &params);
}

/* There is one failure only, so what follows it can compare. */
static bool again(life *l, dci_status status)
{
        ck_assert_msg(status == DCI_OK || status == DCI_ERR_MEMORY, "%s: %s", dci_status_name(status),
                      dci_last_error());
        if (status == DCI_OK)
                return false;
        l->refused++;
        if (l->before.ids != NULL) {
                pdci_found now = answers(l);
                ck_assert_msg(pdci_same(&l->before, &now), "a call that failed changed the index");
                pdci_found_free(&now);
        }
        return true;
}

/* Remembers what the index answers after a step; this search may be the one that fails, too. */
static void remember(life *l)
{
        const dci_search_params params = pdci_effort(0, 30);
        pdci_found found = {QUERIES, K, malloc(QUERIES * K * sizeof(int64_t)), malloc(QUERIES * K * sizeof(float))};
        pdci_found_free(&l->before);
        while (again(l, dci_index_search(l->index, QUERIES, l->queries, WIDTH, K, &params, found.ids, found.scores)))
                continue;
        l->before = found;
}

static void live(life *l, dci_metric metric, int32_t storage)
{
        dci_index_config config = pdci_config(WIDTH, metric, storage == DCI_ROWS_BORROWED ? DCI_F32 : DCI_BF16);
        dci_range_result result;
        dci_search_params params = pdci_effort(600, 50);
        dci_filter filter;
        int64_t ids[60], gone[3] = {2, 5003, 17}, got[K];
        config.storage = storage;
        for (size_t i = 0; i < COUNT(ids); i++)
                ids[i] = (int64_t)(5000 + i);
        while (again(l, dci_index_create(l->context, &config, &l->index)))
                continue;
        remember(l);
        while (again(l, dci_index_add(l->index, 60, l->rows, WIDTH, NULL, NULL)))
                continue;
        remember(l);
        while (again(l, dci_index_add(l->index, COUNT(ids), l->rows + 60 * WIDTH, WIDTH, ids, NULL)))
                continue;
        remember(l);
        while (again(l, dci_index_remove(l->index, 3, gone)))
                continue;
        remember(l);
        while (again(l, dci_index_add(l->index, MANY, l->rows, WIDTH, NULL, NULL))) /* the longest are among them */
                ck_assert_uint_eq(dci_index_count(l->index), 117);
        remember(l);
        while (again(l, dci_index_reserve(l->index, 2 * MANY)))
                continue;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        filter.kind = DCI_FILTER_IDS;
        filter.ids = ids;
        filter.n = COUNT(ids);
        params.filter = &filter;
        params.num_to_visit = 30;
        while (again(l, dci_index_search(l->index, 1, l->queries, WIDTH, K, &params, got, NULL)))
                continue;
        ck_assert_int_ge(got[0], 5000);
        params.filter = NULL;
        ck_ok(dci_range_result_init(&result, sizeof result));
        while (again(l,
                     dci_index_range_search(l->index, 9, l->queries, WIDTH, pdci_any_radius(metric), &params, &result)))
                ck_assert_ptr_null(result.memory);
        dci_range_result_free(&result);
        dci_index_destroy(l->index);
        l->index = NULL;
        pdci_found_free(&l->before);
}

/* Loops over metrics. */
START_TEST(every_allocation_may_fail_once)
{
        const dci_metric metric = all_metrics[_i];
        float *many = test_normal(MANY, WIDTH, 1), *asked = test_normal(QUERIES, WIDTH, 2);
        for (size_t i = 0; i < MANY * WIDTH; i++)
                many[i] *= (float)(1 + i / WIDTH / 100);
        for (int32_t threads = test_short() ? 3 : 1; threads <= 3; threads += 2) {
                size_t failures = 0;
                for (size_t nth = 1;; nth++) {
                        test_memory memory;
                        life l = {.context = test_context_with(&memory, threads), .rows = many, .queries = asked};
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
                ck_assert_uint_ge(failures, 40); /* the ladder has that many rungs, or it tests nothing */
        }
        test_free(many, asked);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("pdci faults");
        TCase *refusals = test_case_with(suite, "refusals", 60, setup, teardown),
              *memory = test_case(suite, "memory", 300);
        tcase_add_test(refusals, numbers_of_simple_indices_are_checked_before_anything_is_allocated);
        tcase_add_test(refusals, shares_outside_their_range_are_refused);
        tcase_add_test(refusals, a_filter_that_admits_nobody_gives_padding);
        tcase_add_test(refusals, a_refused_add_leaves_nothing_behind);
        tcase_add_test(refusals, bad_queries_are_refused_at_any_budget);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 0, 3);
        return test_main(suite);
}
