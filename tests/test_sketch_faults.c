/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sketches: an allocation that fails is reported, no byte stays behind, what was there says the same as before, and the next
 * call works as if nothing had been. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "sketch/sketch_internal.h"
#include "tests/sketch_fixture.h"

enum { DIM = 20, N = 400, QUERIES = 9, K = 12 };

/* What is done to a sketch, one after the other. */
enum { APPEND, FIT, TRUNCATE, RESERVE };
static const struct {
        int what;
        size_t first, n;
} steps[] = {{APPEND, 0, 10},    {APPEND, 10, 90}, {FIT, 0, 200},     {APPEND, 100, 60}, {APPEND, 200, 200},
             {TRUNCATE, 0, 170}, {FIT, 100, 300},  {RESERVE, 0, 900}, {APPEND, 200, 150}};

/* What loops go over. */
static const struct {
        size_t transform;
        int32_t centre, bits;
        dci_dtype dtype;
} kinds[] = {{RANDOM, DCI_CENTRE_RUNNING, 4, DCI_F32},
             {PLAIN, DCI_CENTRE_GIVEN, 1, DCI_F16},
             {RANDOM, DCI_CENTRE_NONE, 3, DCI_BF16}};

/* A life, and what a sketch says after each step where memory does not end. */
typedef struct life {
        dci_context *context;
        dci_sketch *sketch;
        dci_sketch_config config;
        const char *rows;
        const void *queries;
        sketch_seen wanted[COUNT(steps) + 1];
        dci_sketch_info info[COUNT(steps) + 1];
        size_t failures;
} life;

static void *born(dci_context *context, const void *arg)
{
        life *l = test_copy(arg, sizeof *l);
        l->context = context;
        return l;
}

static bool failed(life *l, dci_status status)
{
        return test_failed_once(status, DCI_ERR_MEMORY, &l->failures, "a call");
}

static dci_status take_step(const life *l, size_t step)
{
        const size_t n = steps[step].n;
        const void *rows = l->rows + steps[step].first * DIM * dci_dtype_size(l->config.dtype);
        switch (steps[step].what) {
        case APPEND:
                return dci_sketch_append(l->sketch, n, rows, DIM);
        case FIT:
                return dci_sketch_fit(l->sketch, n, rows, DIM, QUERIES, l->queries, DIM);
        case TRUNCATE:
                return dci_sketch_truncate(l->sketch, n);
        default:
                return dci_sketch_reserve(l->sketch, n);
        }
}

/* Fails unless the sketch says what it said after so many steps; each way of asking may be what finds no memory. */
static void says_the_same(life *l, size_t n_steps)
{
        const sketch_seen *wanted = &l->wanted[n_steps];
        const dci_sketch_info now = sketch_info(l->sketch), *info = &l->info[n_steps];
        float *out = malloc((wanted->n + 1) * QUERIES * DIM * sizeof *out);
        int64_t best[QUERIES * K];
        float best_scores[QUERIES * K];
        ck_assert_uint_eq(now.n_rows, wanted->n);
        ck_assert(now.centres == info->centres && now.transforms == info->transforms);
        ck_assert(now.drift == info->drift || (isnan(now.drift) && isnan(info->drift)));
        while (failed(l, dci_sketch_score(l->sketch, QUERIES, l->queries, DIM, 0, wanted->n, out, wanted->n))) {
        }
        ck_assert_mem_eq(out, wanted->scores, QUERIES * wanted->n * sizeof *out);
        while (failed(l, dci_sketch_bound(l->sketch, QUERIES, l->queries, DIM, 0, wanted->n, 1.0, out, wanted->n))) {
        }
        ck_assert_mem_eq(out, wanted->bounds, QUERIES * wanted->n * sizeof *out);
        while (failed(l, dci_sketch_search(l->sketch, QUERIES, l->queries, DIM, K, best, best_scores))) {
        }
        ck_assert_mem_eq(best, wanted->best, sizeof best);
        for (int64_t i = 0; i < (int64_t)wanted->n; i += 50) {
                while (failed(l, dci_sketch_decode(l->sketch, 1, &i, out, DIM))) {
                }
                ck_assert_mem_eq(out, wanted->decoded + i * DIM, DIM * sizeof *out);
        }
        free(out);
}

static size_t live(void *prepared)
{
        life *l = prepared;
        while (failed(l, dci_sketch_create(l->context, &l->config, &l->sketch)))
                ck_assert_ptr_null(l->sketch);
        for (size_t s = 0; s < COUNT(steps); s++) {
                while (failed(l, take_step(l, s)))
                        says_the_same(l, s);
                says_the_same(l, s + 1);
        }
        const size_t failures = l->failures;
        dci_sketch_destroy(l->sketch);
        free(l);
        return failures;
}

/* Loops over kinds. Rows wander, so that there are several centres. */
static void climb(int which, test_ladder ladder)
{
        float *numbers = test_normal(N, DIM, 1), *asked = test_normal(QUERIES, DIM, 2), given[DIM] = {1.0f};
        for (size_t i = 0; i < N * DIM; i++)
                numbers[i] += (float)(i / DIM / 100 * 3);
        const dci_dtype dtype = kinds[which].dtype;
        void *rows = kmeans_narrow(dtype, N * DIM, numbers), *queries = kmeans_narrow(dtype, QUERIES * DIM, asked);
        dci_context *context = test_context(1);
        life l = {.config = sketch_config(DIM, kinds[which].bits, kinds[which].transform, kinds[which].centre, given),
                  .rows = rows,
                  .queries = queries};
        l.config.dtype = dtype;
        l.sketch = sketch_create(context, &l.config);
        for (size_t s = 0; s <= COUNT(steps); s++) {
                l.wanted[s] = sketch_look(l.sketch, DIM, QUERIES, queries, K);
                l.info[s] = sketch_info(l.sketch);
                if (s < COUNT(steps))
                        ck_ok(take_step(&l, s));
        }
        ck_assert(kinds[which].centre != DCI_CENTRE_RUNNING || l.info[COUNT(steps)].centres > 2);
        dci_sketch_destroy(l.sketch);
        l.sketch = NULL;
        const size_t rungs = ladder(1, born, live, &l);
        ck_assert_msg(rungs >= 20, "%zu rungs", rungs);
        for (size_t s = 0; s <= COUNT(steps); s++)
                sketch_seen_free(&l.wanted[s]);
        dci_context_destroy(context);
        test_free(numbers, asked, rows, queries);
}

TEST_LADDERS(climb)

/* --- scans that threads share -------------------------------------------------------------------------------------------------- */

enum { MANY = 40000, WIDE = 64, GROUP = 8 };

typedef struct scan {
        dci_sketch *sketch;
        const float *rows, *queries, *scores;
        const int64_t *best;
} scan;

static void *born_with_rows(dci_context *context, const void *arg)
{
        scan *s = test_copy(arg, sizeof *s);
        dci_sketch_config config = sketch_config(WIDE, 1, PLAIN, DCI_CENTRE_NONE, NULL);
        s->sketch = sketch_create(context, &config);
        ck_ok(dci_sketch_append(s->sketch, MANY, s->rows, WIDE));
        return s;
}

static size_t scan_all(void *prepared)
{
        scan *s = prepared;
        life none = {0};
        float *scores = malloc((size_t)GROUP * MANY * sizeof *scores);
        int64_t best[GROUP * K];
        while (failed(&none, dci_sketch_search(s->sketch, GROUP, s->queries, WIDE, K, best, NULL))) {
        }
        ck_assert_mem_eq(best, s->best, sizeof best);
        while (failed(&none, dci_sketch_score(s->sketch, GROUP, s->queries, WIDE, 0, MANY, scores, MANY))) {
        }
        ck_assert_mem_eq(scores, s->scores, (size_t)GROUP * MANY * sizeof *scores);
        dci_sketch_destroy(s->sketch);
        test_free(scores, s);
        return none.failures;
}

START_TEST(scans_that_threads_share_may_find_no_memory)
{
        float *rows = test_normal(MANY, WIDE, 3), *queries = test_normal(GROUP, WIDE, 4);
        dci_context *context = test_context(1);
        scan s = {.rows = rows, .queries = queries};
        scan *plain = born_with_rows(context, &s);
        sketch_seen wanted = sketch_look(plain->sketch, WIDE, GROUP, queries, K);
        s.scores = wanted.scores;
        s.best = wanted.best;
        const size_t rungs = test_each_allocation_failing(3, born_with_rows, scan_all, &s);
        ck_assert_msg(rungs >= 4, "%zu rungs", rungs); /* scratch, parts and their counts, and scratch again */
        sketch_seen_free(&wanted);
        dci_sketch_destroy(plain->sketch);
        free(plain);
        dci_context_destroy(context);
        test_free(rows, queries);
}
END_TEST

/* No way out of a call leaves memory behind. */
START_TEST(refused_calls_give_their_memory_back)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        float *rows = test_normal(N, DIM, 5), zero[DIM] = {0}, out;
        const size_t before = atomic_load(&memory.live_bytes);
        dci_sketch_config config = sketch_config(DIM, 2, RANDOM, DCI_CENTRE_RUNNING, NULL);
        dci_sketch *sketch = sketch_create(context, &config);
        ck_ok(dci_sketch_append(sketch, N, rows, DIM));
        const size_t with = atomic_load(&memory.live_bytes);
        const int64_t far = N;
        rows[5] = NAN;
        ck_refused(dci_sketch_append(sketch, N, rows, DIM), DCI_ERR_NUMBER, "row 0");
        ck_refused(dci_sketch_fit(sketch, 1, rows + DIM, DIM, 1, zero, DIM), DCI_ERR_NUMBER, "queries");
        ck_refused(dci_sketch_score(sketch, 1, rows, DIM, 0, 1, &out, 1), DCI_ERR_NUMBER, "query 0");
        ck_refused(dci_sketch_decode(sketch, 1, &far, zero, DIM), DCI_ERR_NOT_FOUND, "row 400");
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), with);
        dci_sketch_destroy(sketch);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), before);
        dci_context_destroy(context);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
        free(rows);
}
END_TEST

/* The sketch keeps its context alive. */
START_TEST(a_sketch_outlives_its_context)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        float *rows = test_normal(N, DIM, 6);
        dci_sketch_config config = sketch_config(DIM, 2, RANDOM, DCI_CENTRE_RUNNING, NULL);
        dci_sketch *sketch = sketch_create(context, &config);
        dci_context_destroy(context);
        ck_ok(dci_sketch_append(sketch, N, rows, DIM));
        ck_assert_uint_gt(atomic_load(&memory.live_bytes), 0);
        dci_sketch_destroy(sketch);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
        free(rows);
}
END_TEST

/* info.bytes is what the allocator gave, but for what the context itself takes. */
START_TEST(the_bytes_of_a_sketch_are_those_of_its_memory)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        float *rows = test_normal(N, DIM, 7);
        const size_t before = atomic_load(&memory.live_bytes);
        dci_sketch_config config = sketch_config(DIM, 2, RANDOM, DCI_CENTRE_RUNNING, NULL);
        dci_sketch *sketch = sketch_create(context, &config);
        for (size_t round = 0; round < 3; round++) {
                ck_ok(dci_sketch_append(sketch, N, rows, DIM));
                sketch_fit(sketch, N, rows, DIM, N, rows);
                ck_assert_uint_eq(sketch_info(sketch).bytes, atomic_load(&memory.live_bytes) - before);
        }
        dci_sketch_destroy(sketch);
        dci_context_destroy(context);
        free(rows);
}
END_TEST

/* Bytes of the largest piece that a search of so many queries takes. */
static size_t search_bytes(const dci_sketch *sketch, test_memory *memory, size_t n_queries, size_t k, const float *rows)
{
        int64_t *best = malloc(n_queries * k * sizeof *best);
        atomic_store(&memory->largest, 0);
        ck_ok(dci_sketch_search(sketch, n_queries, rows, 8, k, best, NULL));
        free(best);
        return atomic_load(&memory->largest);
}

START_TEST(a_query_alone_takes_a_quarter_of_the_memory_of_eight)
{
        enum { MANY_ROWS = 12000 };
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        float *rows = test_normal(MANY_ROWS, 8, 8);
        dci_sketch *sketch = sketch_of(context, 8, 1, RANDOM, DCI_CENTRE_NONE, MANY_ROWS, rows);
        const size_t eight = search_bytes(sketch, &memory, 8, 10000, rows);
        const size_t alone = search_bytes(sketch, &memory, 1, 10000, rows);
        ck_assert_msg(alone <= eight / 4, "%zu bytes, eight take %zu", alone, eight);
        dci_sketch_destroy(sketch);
        dci_context_destroy(context);
        free(rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketch faults");
        TCase *memory = test_case(suite, "memory", 120);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 0, COUNT(kinds));
        tcase_add_loop_test(memory, memory_may_be_short_from_any_allocation_on, 0, COUNT(kinds));
        tcase_add_test(memory, scans_that_threads_share_may_find_no_memory);
        tcase_add_test(memory, refused_calls_give_their_memory_back);
        tcase_add_test(memory, a_sketch_outlives_its_context);
        tcase_add_test(memory, the_bytes_of_a_sketch_are_those_of_its_memory);
        tcase_add_test(memory, a_query_alone_takes_a_quarter_of_the_memory_of_eight);
        return test_main(suite);
}
