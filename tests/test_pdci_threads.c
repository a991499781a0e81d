/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind PDCI: the same bits at any thread count and batch size; searches concurrent with a writer. Run under tsan, too. */
#include "tests/common.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "tests/pdci_fixture.h"

/* One index, asked for all queries in batches of `batch`. */
static void ask_in_batches(const dci_index *index, size_t n_queries, const float *queries, size_t batch,
                           const dci_search_params *params, pdci_found *out)
{
        const size_t dim = index->config.dim;
        for (size_t q = 0; q < n_queries; q += batch) {
                size_t n = n_queries - q < batch ? n_queries - q : batch;
                ck_ok(dci_index_search(index, n, queries + q * dim, dim, out->k, params, out->ids + q * out->k,
                                       out->scores + q * out->k));
        }
}

/* Loops over metrics. Adds are projected by all threads, too. */
START_TEST(results_are_the_same_bits_at_any_thread_count_and_batch_size)
{
        enum { N = 5500, DIM = TRACE_DIM, Q = 32, K = 9 };
        static const int32_t threads[] = {1, 2, 7};
        static const size_t batches[] = {Q, 1, 3, 16};
        static const size_t budgets[][2] = {{2000, 0}, {0, 30}, {2500, 200}};
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        pdci_found want[COUNT(budgets)];
        for (size_t t = 0; t < COUNT(threads); t++) {
                dci_context *context = test_context(threads[t]);
                dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_BF16);
                dci_index *index = pdci_index(context, &config, N, keys, NULL);
                for (size_t c = 0; c < COUNT(batches) * COUNT(budgets); c++) {
                        const size_t b = c % COUNT(budgets), batch = batches[c / COUNT(budgets)];
                        dci_search_params params = pdci_effort(budgets[b][0], budgets[b][1]);
                        const size_t n = batch == Q ? Q : 10; /* few are enough to tell */
                        if (t == 0 && batch == Q) {
                                want[b] = pdci_search(index, Q, queries, K, &params);
                                continue;
                        }
                        pdci_found got = {n, K, malloc(n * K * sizeof(int64_t)), malloc(n * K * sizeof(float))};
                        ask_in_batches(index, n, queries, batch, &params, &got);
                        want[b].n_queries = n;
                        ck_assert_msg(pdci_same(&want[b], &got), "%d threads, batches of %zu, budget %zu", threads[t],
                                      batch, b);
                        pdci_found_free(&got);
                }
                dci_index_destroy(index);
                dci_context_destroy(context);
        }
        for (size_t b = 0; b < COUNT(budgets); b++)
                pdci_found_free(&want[b]);
        test_free(keys, queries);
}
END_TEST

/* Loops over metrics. */
START_TEST(range_results_are_the_same_bits_at_any_thread_count)
{
        enum { N = 5500, DIM = TRACE_DIM, Q = 30 };
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        dci_range_result results[2];
        dci_context *contexts[2] = {test_context(1), test_context(5)};
        dci_index *indices[2];
        const dci_search_params params = pdci_effort(3000, 400);
        for (int i = 0; i < 2; i++) {
                dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F16);
                indices[i] = pdci_index(contexts[i], &config, N, keys, NULL);
                ck_ok(dci_range_result_init(&results[i], sizeof results[i]));
                ck_ok(dci_index_range_search(indices[i], Q, queries, DIM, pdci_any_radius(all_metrics[_i]), &params,
                                             &results[i]));
        }
        const size_t n = results[0].offsets[Q];
        ck_assert_uint_gt(n, 0);
        ck_assert_int_eq(memcmp(results[0].offsets, results[1].offsets, (Q + 1) * sizeof(size_t)), 0);
        ck_assert_int_eq(memcmp(results[0].ids, results[1].ids, n * sizeof(int64_t)), 0);
        ck_assert_int_eq(memcmp(results[0].scores, results[1].scores, n * sizeof(float)), 0);
        for (int i = 0; i < 2; i++) {
                dci_range_result_free(&results[i]);
                dci_index_destroy(indices[i]);
                dci_context_destroy(contexts[i]);
        }
        test_free(keys, queries);
}
END_TEST

/* --- searches concurrent with one writer ----------------------------------------------------------------------------------------------- */

enum { BATCH = 20, ROUNDS = 150, SIDE = 16, READERS = 3 };

typedef struct shared {
        dci_index *index;
        const float *directions; /* one for each batch */
        atomic_bool done;
        atomic_size_t searches;
        atomic_llong added, removed; /* batches whose add has returned, and whose removal had begun */
} shared;

/* A batch is BATCH rows in one direction, under IP longer with every round so that c grows; ids are b * BATCH + j. */
static void fill_batch(const shared *s, long long b, float *rows, int64_t *ids)
{
        const float length = s->index->config.metric == DCI_METRIC_IP ? (float)(1 + b) : 1.0f;
        for (size_t j = 0; j < BATCH; j++) {
                ids[j] = b * BATCH + (long long)j;
                for (size_t p = 0; p < SIDE; p++)
                        rows[j * SIDE + p] = s->directions[(size_t)b * SIDE + p] * length;
        }
}

/* Under L2 and COSINE a query along a batch has no difference to its rows, so that even the least budget finds the batch: all
 * of it or nothing, and all of it once its add has returned. Under IP results are as far sane. */
static const char *look(shared *s, long long b)
{
        const dci_metric metric = s->index->config.metric;
        const float *query = s->directions + (size_t)b * SIDE;
        const dci_search_params params = pdci_effort(1, 1);
        int64_t ids[BATCH];
        float scores[BATCH], best = 0;
        size_t seen = 0;
        long long added = atomic_load(&s->added);
        dci_status status = dci_index_search(s->index, 1, query, SIDE, BATCH, &params, ids, scores);
        long long removed = atomic_load(&s->removed);
        if (status != DCI_OK)
                return "a search failed";
        atomic_fetch_add(&s->searches, 1);
        for (size_t i = 0; i < BATCH; i++) {
                seen += ids[i] >= 0 && ids[i] / BATCH == b;
                if (ids[i] >= 0 && ids[i] / BATCH == b && i < seen - 1)
                        return "a row of the batch is not among the first";
                if (i > 0 && isnan(scores[i - 1]) && !isnan(scores[i]))
                        return "padding comes before results";
                if (i > 0 && metric == DCI_METRIC_IP && scores[i] > scores[i - 1])
                        return "results are out of order";
                best = i == 0 ? scores[0] : best;
        }
        if (metric == DCI_METRIC_IP)
                return NULL;
        if (seen != 0 && seen != BATCH)
                return "a search saw a part of a batch";
        if (seen == 0 && b < added && b >= removed)
                return "a search missed a batch whose add had returned";
        if (seen > 0 && (metric == DCI_METRIC_L2 ? best != 0 : fabsf(best - 1) > 1e-5f))
                return "a row of the batch has another score";
        return NULL;
}

static void *reader(void *arg)
{
        shared *s = arg;
        const char *complaint = NULL;
        for (long long turn = 0; complaint == NULL && !atomic_load(&s->done); turn++) {
                /* A batch that is there, one that just comes or has just come, one far from both. */
                long long added = atomic_load(&s->added), b = turn % 3 == 0 ? added : added - 1 - turn % 40;
                complaint = look(s, b < 0 || b >= ROUNDS ? turn % ROUNDS : b);
        }
        if (complaint != NULL) /* the test waits for searches that will not come */
                atomic_fetch_add(&s->searches, 1000);
        return (void *)(uintptr_t)complaint;
}

/* Loops over metrics, with default ids and with given ones. */
START_TEST(searches_beside_a_writer_see_whole_batches)
{
        const long long rounds = test_short() ? ROUNDS / 4 : ROUNDS;
        dci_context *context = test_context(1);
        dci_index_config config = pdci_config(SIDE, all_metrics[_i / 2], DCI_F32);
        float *directions = test_normal(ROUNDS, SIDE, 4);
        shared s = {.directions = directions};
        pthread_t threads[READERS];
        int64_t ids[BATCH];
        float rows[BATCH * SIDE];
        config.num_simp_indices = 4;
        ck_ok(dci_index_create(context, &config, &s.index));
        for (size_t i = 0; i < READERS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, &s), 0);
        for (long long b = 0; b < rounds; b++) {
                fill_batch(&s, b, rows, ids);
                ck_ok(dci_index_add(s.index, BATCH, rows, SIDE, _i % 2 == 1 ? ids : NULL, NULL));
                atomic_store(&s.added, b + 1);
                if (b % 3 == 2) { /* a batch at a time, from the oldest */
                        for (size_t j = 0; j < BATCH; j++)
                                ids[j] = b / 3 * BATCH + (long long)j;
                        atomic_store(&s.removed, b / 3 + 1);
                        ck_ok(dci_index_remove(s.index, BATCH, ids));
                }
        }
        const size_t enough = atomic_load(&s.searches) + 30;
        while (atomic_load(&s.searches) < enough) /* some more searches of the final state */
                sched_yield();
        atomic_store(&s.done, true);
        for (size_t i = 0; i < READERS; i++)
                test_join(threads[i]);
        ck_assert_uint_eq(dci_index_count(s.index), BATCH * (size_t)(rounds - rounds / 3));
        dci_index *alone = pdci_index(context, &config, 0, NULL, NULL); /* what the same adds and removes leave */
        for (long long b = 0; b < rounds; b++) {
                fill_batch(&s, b, rows, ids);
                ck_ok(dci_index_add(alone, BATCH, rows, SIDE, ids, NULL));
        }
        for (long long b = 0; b < rounds / 3; b++) {
                fill_batch(&s, b, rows, ids);
                ck_ok(dci_index_remove(alone, BATCH, ids));
        }
        pdci_agree(s.index, NULL, alone, (size_t)rounds, directions, "what the writer left");
        dci_index_destroy(alone);
        dci_index_destroy(s.index);
        dci_context_destroy(context);
        free(directions);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("pdci threads");
        const int n_metrics = test_short() ? 1 : 3;
        TCase *threads = test_case(suite, "threads", 600);
        tcase_add_loop_test(threads, results_are_the_same_bits_at_any_thread_count_and_batch_size, 0, n_metrics);
        tcase_add_loop_test(threads, range_results_are_the_same_bits_at_any_thread_count, 0, n_metrics);
        tcase_add_loop_test(threads, searches_beside_a_writer_see_whole_batches, 0, 6);
        return test_main(suite);
}
