/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Same bits at any thread count; searches concurrent with adds and removes see whole batches. Run under tsan, too. */
#include "tests/common.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "tests/index_fixture.h"

START_TEST(results_are_the_same_bits_at_any_thread_count_and_batch_size)
{
        enum { DIM = 48, Q = 300, K = 37 };
        const size_t n_rows = test_short() ? 8000 : 30000;
        static const int32_t threads[] = {1, 2, 7};
        static const size_t batches[] = {1, 2, 9, 15, 16, 64, 300};
        float *rows = test_normal(n_rows, DIM, 1), *queries = test_normal(Q, DIM, 2);
        int64_t *want = malloc(Q * K * sizeof *want), *got = malloc(Q * K * sizeof *got);
        float *want_scores = malloc(Q * K * sizeof *want_scores), *scores = malloc(Q * K * sizeof *scores);
        for (dci_metric metric = DCI_METRIC_L2; metric <= DCI_METRIC_COSINE; metric++) {
                if (test_short() && metric != DCI_METRIC_COSINE)
                        continue;
                for (size_t t = 0; t < 3; t++) {
                        dci_context *context = test_context(threads[t]);
                        dci_index_config config = index_config(DIM, metric, DCI_F16);
                        dci_index *index = NULL;
                        config.add_dtype = config.query_dtype = DCI_F32;
                        ck_ok(dci_index_create(context, &config, &index));
                        ck_ok(dci_index_add(index, n_rows, rows, DIM, NULL, NULL));
                        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
                                size_t limit = batches[b] < 15 ? 30 : Q; /* few are enough where each costs a scan */
                                for (size_t q = 0; q < limit; q += batches[b]) {
                                        size_t n = limit - q < batches[b] ? limit - q : batches[b];
                                        ck_ok(dci_index_search(index, n, queries + q * DIM, DIM, K, NULL, got + q * K,
                                                               scores + q * K));
                                }
                                if (t == 0 && b == 0) { /* the rest of the reference, one query per call */
                                        for (size_t q = limit; q < Q; q++)
                                                ck_ok(dci_index_search(index, 1, queries + q * DIM, DIM, K, NULL,
                                                                       got + q * K, scores + q * K));
                                        memcpy(want, got, Q * K * sizeof *want);
                                        memcpy(want_scores, scores, Q * K * sizeof *want_scores);
                                }
                                ck_assert_msg(memcmp(want, got, limit * K * sizeof *want) == 0,
                                              "metric %d threads %d batch %zu", metric, threads[t], batches[b]);
                                ck_assert_int_eq(memcmp(want_scores, scores, limit * K * sizeof *scores), 0);
                        }
                        dci_index_destroy(index);
                        dci_context_destroy(context);
                }
        }
        test_free(rows, queries, want, got, want_scores, scores);
}
END_TEST

START_TEST(one_query_over_many_rows_uses_all_threads_and_gives_the_same)
{
        enum { N = 70000, DIM = 64, K = 1000 };
        dci_context *one = test_context(1), *four = test_context(4);
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        float *rows = test_normal(N, DIM, 1);
        int64_t a[K] = {0}, b[K] = {0};
        for (size_t i = 0; i < N * DIM; i++)
                rows[i] = (float)(int)(rows[i] * 1.5f); /* integers: many ties across the segments */
        for (int t = 0; t < 2; t++) {
                dci_index *index = NULL;
                ck_ok(dci_index_create(t == 0 ? one : four, &config, &index));
                ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
                ck_ok(dci_index_search(index, 1, rows, DIM, K, NULL, t == 0 ? a : b, NULL));
                dci_index_destroy(index);
        }
        ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
        free(rows);
        dci_context_destroy(one);
        dci_context_destroy(four);
}
END_TEST

/* --- searches concurrent with one writer --------------------------------------------------------------------------------------- */

enum { BATCH = 50, ROUNDS = 120, SIDE = 8, READERS = 3 };

typedef struct shared {
        dci_index *index;
        atomic_bool done;
        atomic_size_t searches;
        atomic_llong added, removed; /* batches whose add has returned, and whose removal had begun */
        const float *rows;
} shared;

/* Row j of batch b is at distance j^2 from the query, in its own direction; ids are b * BATCH + j. So a search that sees a
 * batch must see all of it. */
static const char *look(shared *s, int64_t *ids, size_t *seen)
{
        const float query[SIDE] = {0};
        const size_t k = (size_t)BATCH * ROUNDS;
        long long added = atomic_load(&s->added);
        dci_status status = dci_index_search(s->index, 1, query, SIDE, k, NULL, ids, NULL);
        long long removed = atomic_load(&s->removed);
        if (status != DCI_OK)
                return "a search failed";
        memset(seen, 0, ROUNDS * sizeof *seen);
        for (size_t i = 0; i < k && ids[i] >= 0; i++)
                seen[ids[i] / BATCH]++;
        for (long long b = 0; b < ROUNDS; b++) {
                if (seen[b] != 0 && seen[b] != BATCH)
                        return "a search saw a part of a batch";
                if (b < added && b >= removed && seen[b] == 0)
                        return "a search missed a batch whose add had returned";
        }
        atomic_fetch_add(&s->searches, 1);
        return NULL;
}

static void *reader(void *arg)
{
        shared *s = arg;
        const char *complaint = NULL;
        int64_t *ids = malloc((size_t)BATCH * ROUNDS * sizeof *ids);
        size_t *seen = malloc(ROUNDS * sizeof *seen);
        while (complaint == NULL && !atomic_load(&s->done))
                complaint = ids == NULL || seen == NULL ? "no memory" : look(s, ids, seen);
        if (complaint != NULL) /* the test waits for searches that will not come */
                atomic_fetch_add(&s->searches, READERS);
        test_free(ids, seen);
        return (void *)(uintptr_t)complaint;
}

START_TEST(searches_beside_a_writer_see_whole_batches)
{
        const long long rounds = test_short() ? ROUNDS / 4 : ROUNDS;
        for (int explicit_ids = 0; explicit_ids < 2; explicit_ids++) {
                dci_context *context = test_context(1);
                dci_index_config config = index_config(SIDE, DCI_METRIC_L2, DCI_F32);
                shared s = {0};
                pthread_t threads[READERS];
                int64_t ids[BATCH];
                float rows[BATCH * SIDE];
                ck_ok(dci_index_create(context, &config, &s.index));
                for (size_t i = 0; i < READERS; i++)
                        ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, &s), 0);
                for (long long b = 0; b < rounds; b++) {
                        for (size_t j = 0; j < BATCH; j++) {
                                ids[j] = b * BATCH + (long long)j;
                                for (size_t p = 0; p < SIDE; p++)
                                        rows[j * SIDE + p] = p == (size_t)b % SIDE ? (float)j : 0.0f;
                        }
                        ck_ok(dci_index_add(s.index, BATCH, rows, SIDE, explicit_ids ? ids : NULL, NULL));
                        atomic_store(&s.added, b + 1);
                        if (b % 3 == 2) {
                                long long oldest = b / 3; /* a batch at a time, from the oldest */
                                for (size_t j = 0; j < BATCH; j++)
                                        ids[j] = oldest * BATCH + (long long)j;
                                atomic_store(&s.removed, oldest + 1);
                                ck_ok(dci_index_remove(s.index, BATCH, ids));
                        }
                }
                while (atomic_load(&s.searches) < READERS) /* each has a last look at the final state */
                        sched_yield();
                atomic_store(&s.done, true);
                for (size_t i = 0; i < READERS; i++)
                        test_join(threads[i]);
                ck_assert_uint_eq(dci_index_count(s.index), BATCH * (size_t)(rounds - rounds / 3));
                dci_index_destroy(s.index);
                dci_context_destroy(context);
        }
}
END_TEST

/* --- searches while chunk after chunk comes ---------------------------------------------------------------------------- */

enum { LONG = 2048, FULL = 32, CHUNKS = 40 };

/* All rows are equal, so the first ids are found; as many whole batches as had been added before, at least. */
static const char *look_at_chunks(shared *s, int64_t *ids)
{
        static const float query[LONG] = {0};
        const long long added = atomic_load(&s->added);
        size_t n = 0;
        if (dci_index_search(s->index, 1, query, LONG, FULL * CHUNKS, NULL, ids, NULL) != DCI_OK)
                return "a search failed";
        for (; n < FULL * CHUNKS && ids[n] >= 0; n++)
                if (ids[n] != (int64_t)n)
                        return "a search lost a row";
        if (n % FULL != 0 || (long long)n < added * FULL)
                return "a search saw a part of what had been added";
        return NULL;
}

static void *reader_of_chunks(void *arg)
{
        shared *s = arg;
        const char *complaint = NULL;
        int64_t ids[FULL * CHUNKS];
        while (complaint == NULL && !atomic_load(&s->done))
                complaint = look_at_chunks(s, ids);
        return (void *)(uintptr_t)complaint;
}

START_TEST(searches_beside_a_writer_see_each_chunk_that_comes)
{
        dci_context *context = test_context(1);
        const dci_index_config config = index_config(LONG, DCI_METRIC_L2, DCI_F32);
        shared s = {0};
        pthread_t threads[READERS];
        float *rows = calloc((size_t)FULL * LONG, sizeof *rows);
        ck_ok(dci_index_create(context, &config, &s.index));
        for (size_t i = 0; i < READERS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, reader_of_chunks, &s), 0);
        for (long long b = 0; b < CHUNKS; b++) {
                ck_ok(dci_index_add(s.index, FULL, rows, LONG, NULL, NULL));
                atomic_store(&s.added, b + 1);
        }
        ck_assert_uint_eq(s.index->rows.n_chunks, CHUNKS);
        atomic_store(&s.done, true);
        for (size_t i = 0; i < READERS; i++)
                test_join(threads[i]);
        free(rows);
        dci_index_destroy(s.index);
        dci_context_destroy(context);
}
END_TEST

static void *adder(void *arg)
{
        shared *s = arg;
        for (int i = 0; i < 200; i++)
                if (dci_index_add(s->index, 3, s->rows, SIDE, NULL, NULL) != DCI_OK)
                        return (void *)(uintptr_t) "an add failed";
        return NULL;
}

START_TEST(adds_from_many_threads_queue_up)
{
        dci_context *context = test_context(2);
        dci_index_config config = index_config(SIDE, DCI_METRIC_IP, DCI_F32);
        shared s = {0};
        pthread_t threads[READERS];
        float *rows = test_normal(3, SIDE, 1);
        s.rows = rows;
        ck_ok(dci_index_create(context, &config, &s.index));
        for (size_t i = 0; i < READERS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, adder, &s), 0);
        for (size_t i = 0; i < READERS; i++)
                test_join(threads[i]);
        int64_t *ids = malloc(READERS * 600 * sizeof *ids);
        size_t count;
        ck_ok(dci_index_ids(s.index, READERS * 600, ids, &count));
        ck_assert_uint_eq(count, READERS * 600);
        for (size_t i = 0; i < count; i++)
                ck_assert_int_eq(ids[i], (int64_t)i);
        test_free(ids, rows);
        dci_index_destroy(s.index);
        dci_context_destroy(context);
}
END_TEST

START_TEST(an_index_outlives_the_callers_hold_on_its_context)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        dci_index_config config = index_config(SIDE, DCI_METRIC_IP, DCI_F32);
        dci_index *index = NULL;
        dci_range_result result;
        const float row[SIDE] = {1};
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_ok(dci_index_create(context, &config, &index));
        dci_context_destroy(context);
        ck_ok(dci_index_add(index, 1, row, SIDE, NULL, NULL));
        ck_ok(dci_index_range_search(index, 1, row, SIDE, 0.5f, NULL, &result));
        dci_index_destroy(index);
        ck_assert_int_eq(result.ids[0], 0); /* and a result outlives both */
        dci_range_result_free(&result);
        ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index threads");
        TCase *threads = test_case(suite, "threads", 600);
        tcase_add_test(threads, results_are_the_same_bits_at_any_thread_count_and_batch_size);
        tcase_add_test(threads, one_query_over_many_rows_uses_all_threads_and_gives_the_same);
        tcase_add_test(threads, searches_beside_a_writer_see_whole_batches);
        tcase_add_test(threads, searches_beside_a_writer_see_each_chunk_that_comes);
        tcase_add_test(threads, adds_from_many_threads_queue_up);
        tcase_add_test(threads, an_index_outlives_the_callers_hold_on_its_context);
        return test_main(suite);
}
