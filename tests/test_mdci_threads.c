/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind MDCI: the same bits at any thread count and batch size; searches, groups, filters, pages and the log of
 * changes concurrent with a writer. Run under tsan, too. */
#include "tests/common.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "tests/mdci_fixture.h"

/* Loops over metrics. Trees are built and rows inserted by all threads, too. */
START_TEST(results_are_the_same_bits_at_any_thread_count_and_batch_size)
{
        enum { N = 5500, LATE = 200, DIM = TRACE_DIM, Q = 32, K = 9 };
        static const int32_t threads[] = {1, 2, 7};
        static const size_t batches[] = {Q, 1, 3, 16};
        static const double shares[] = {0.05, 0.4, 1.0};
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        pdci_found want[COUNT(shares)], got = {Q, K, malloc(Q * K * sizeof(int64_t)), malloc(Q * K * sizeof(float))};
        for (size_t t = 0; t < COUNT(threads); t++) {
                dci_context *context = test_context(threads[t]);
                dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_BF16);
                config.promotion_prob = 0.1;
                config.top_nodes = 64;
                config.cell_simp_indices = _i == 1 ? 4 : 0;
                dci_index *index = pdci_index(context, &config, N - LATE, keys, NULL);
                ck_ok(dci_index_add(index, LATE, keys + (N - LATE) * DIM, DIM, NULL, NULL));
                tree_check(index);
                for (size_t c = 0; c < COUNT(batches) * COUNT(shares); c++) {
                        const size_t s = c % COUNT(shares), batch = batches[c / COUNT(shares)];
                        dci_search_params params = mdci_effort(shares[s]);
                        params.prop_to_retrieve = shares[s] < 1.0 ? 0.5 : 1.0;
                        if (t == 0 && batch == Q) {
                                want[s] = pdci_search(index, Q, queries, K, &params);
                                continue;
                        }
                        for (size_t q = 0; q < Q; q += batch)
                                ck_ok(dci_index_search(index, Q - q < batch ? Q - q : batch, queries + q * DIM, DIM, K,
                                                       &params, got.ids + q * K, got.scores + q * K));
                        ck_assert_msg(pdci_same(&want[s], &got), "%d threads, batches of %zu, %g of the nodes",
                                      threads[t], batch, shares[s]);
                }
                dci_index_destroy(index);
                dci_context_destroy(context);
        }
        for (size_t s = 0; s < COUNT(shares); s++)
                pdci_found_free(&want[s]);
        pdci_found_free(&got);
        test_free(keys, queries);
}
END_TEST

/* Loops over metrics. */
START_TEST(groups_and_ranges_are_the_same_bits_at_any_thread_count)
{
        enum { N = 5500, DIM = TRACE_DIM, Q = 32, K = 20, SIZE = 4 };
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        dci_range_result results[2];
        dci_context *contexts[2] = {test_context(1), test_context(5)};
        dci_index *indices[2];
        int64_t ids[2][Q * K];
        float scores[2][Q * K];
        const dci_search_params params = mdci_effort(0.3);
        for (int i = 0; i < 2; i++) {
                dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F16);
                indices[i] = pdci_index(contexts[i], &config, N, keys, NULL);
                ck_ok(dci_range_result_init(&results[i], sizeof results[i]));
                ck_ok(dci_index_range_search(indices[i], Q, queries, DIM, pdci_any_radius(all_metrics[_i]), &params,
                                             &results[i]));
                ck_ok(dci_index_search_group(indices[i], Q / SIZE, SIZE, queries, DIM, K, DCI_GROUP_EACH, &params,
                                             ids[i], scores[i]));
        }
        const size_t n = results[0].offsets[Q];
        ck_assert_uint_gt(n, 0);
        ck_assert_int_eq(memcmp(results[0].offsets, results[1].offsets, (Q + 1) * sizeof(size_t)), 0);
        ck_assert_int_eq(memcmp(results[0].ids, results[1].ids, n * sizeof(int64_t)), 0);
        ck_assert_int_eq(memcmp(results[0].scores, results[1].scores, n * sizeof(float)), 0);
        ck_assert_int_eq(memcmp(ids[0], ids[1], sizeof ids[0]), 0);
        ck_assert_int_eq(memcmp(scores[0], scores[1], sizeof scores[0]), 0);
        for (int i = 0; i < 2; i++) {
                dci_range_result_free(&results[i]);
                dci_index_destroy(indices[i]);
                dci_context_destroy(contexts[i]);
        }
        test_free(keys, queries);
}
END_TEST

/* --- readers concurrent with one writer ------------------------------------------------------------------------------------------------- */

/* Batch b is BATCH rows with the ids b * BATCH + j; batches come one after another and go, oldest first. */
enum { BATCH = 16, ROUNDS = 120, SIDE = 8, MOST = BATCH * ROUNDS };

typedef struct shared {
        dci_index *index;
        const float *rows, *queries;
        atomic_bool done;
        atomic_size_t reads;
        /* Batches whose add has begun, has returned; whose removal has begun, has returned. */
        atomic_llong coming, added, leaving, removed;
} shared;

/* What had happened before a look, and what had begun before its end. */
typedef struct span {
        long long added, removed, coming, leaving;
} span;

static span before(shared *s)
{
        return (span){.added = atomic_load(&s->added), .removed = atomic_load(&s->removed)};
}

static void after(shared *s, span *t)
{
        t->leaving = atomic_load(&s->leaving);
        t->coming = atomic_load(&s->coming);
        atomic_fetch_add(&s->reads, 1);
}

/* Rows of each batch among n ids; whole: all that are there must have been found. NULL, or what is wrong. */
static const char *check_batches(const span *t, const int64_t *ids, size_t n, bool whole)
{
        size_t seen[ROUNDS] = {0};
        for (size_t i = 0; i < n; i++) {
                if (ids[i] < 0)
                        continue;
                if (ids[i] / BATCH < t->removed)
                        return "a row whose removal had returned was found";
                if (ids[i] / BATCH >= t->coming)
                        return "a row was found that nobody had added yet";
                seen[ids[i] / BATCH]++;
        }
        for (long long b = 0; whole && b < ROUNDS; b++) {
                if (seen[b] != 0 && seen[b] != BATCH)
                        return "a part of a batch was seen";
                if (b < t->added && b >= t->leaving && seen[b] == 0)
                        return "a batch whose add had returned was missed";
        }
        return NULL;
}

static int32_t even(void *ctx, int64_t id)
{
        (void)ctx;
        return id / BATCH % 2 == 0;
}

/* Everything at full effort, or a few at little. */
static const char *look_by_search(shared *s, size_t turn, int64_t *ids)
{
        const bool whole = turn % 2 == 0;
        const size_t k = whole ? MOST : 1 + turn % 40;
        const dci_search_params params = mdci_effort(whole ? 1.0 : 0.1);
        span t = before(s);
        dci_status status = dci_index_search(s->index, 1, s->queries + turn % 50 * SIDE, SIDE, k, &params, ids, NULL);
        after(s, &t);
        return status != DCI_OK ? "a search failed" : check_batches(&t, ids, k, whole);
}

static const char *look_by_group(shared *s, size_t turn, int64_t *ids)
{
        const bool whole = turn % 2 == 0;
        const size_t k = whole ? MOST : 30;
        const dci_search_params params = mdci_effort(whole ? 1.0 : 0.2);
        span t = before(s);
        dci_status status = dci_index_search_group(s->index, 1, 4, s->queries + turn % 50 * SIDE, SIDE, k,
                                                   DCI_GROUP_UNION, &params, ids, NULL);
        after(s, &t);
        return status != DCI_OK ? "a group search failed" : check_batches(&t, ids, k, whole);
}

static const char *look_by_filter(shared *s, size_t turn, int64_t *ids)
{
        dci_search_params params = mdci_effort(turn % 2 == 0 ? 1.0 : 0.3);
        dci_filter filter;
        if (dci_filter_init(&filter, sizeof filter) != DCI_OK)
                return "a filter failed";
        filter.kind = DCI_FILTER_CALLBACK;
        filter.fn = even;
        params.filter = &filter;
        span t = before(s);
        dci_status status =
                dci_index_search(s->index, 1, s->queries + turn % 50 * SIDE, SIDE, MOST, &params, ids, NULL);
        after(s, &t);
        for (size_t i = 0; status == DCI_OK && i < MOST; i++)
                if (ids[i] >= 0 && even(NULL, ids[i]) == 0)
                        return "a row was found that the filter does not admit";
        return status != DCI_OK ? "a filtered search failed" : check_batches(&t, ids, MOST, false);
}

/* Pages are seen in one piece; their ids are asked for later and may have changed. */
static const char *look_at_pages(shared *s, size_t turn, int64_t *ids)
{
        (void)turn;
        dci_page *pages = malloc(MOST * sizeof *pages);
        dci_tree_stats stats;
        size_t n = 0, n_rows = 0, sum = 0;
        const char *complaint = NULL;
        if (pages == NULL || dci_tree_stats_init(&stats, sizeof stats) != DCI_OK)
                complaint = "no memory";
        else if (dci_index_pages(s->index, MOST, pages, &n) != DCI_OK || n > MOST ||
                 dci_index_tree_stats(s->index, &stats) != DCI_OK)
                complaint = "a question failed";
        for (size_t i = 0; complaint == NULL && i < n; i++) {
                sum += pages[i].n_rows;
                if (dci_index_page_ids(s->index, pages[i].page, ids, &n_rows) != DCI_OK || n_rows > BATCH)
                        complaint = "a page's ids failed";
        }
        if (complaint == NULL && (sum % BATCH != 0 || stats.n_rows % BATCH != 0))
                complaint = "the pages hold a part of a batch";
        atomic_fetch_add(&s->reads, 1);
        free(pages);
        return complaint;
}

typedef const char *(*look)(shared *s, size_t turn, int64_t *ids);

typedef struct reader {
        shared *shared;
        look look;
        pthread_t thread;
} reader;

static void *read_on(void *arg)
{
        const reader *r = arg;
        const char *complaint = NULL;
        int64_t *ids = malloc(MOST * sizeof *ids);
        for (size_t turn = 0; complaint == NULL && !atomic_load(&r->shared->done); turn++)
                complaint = ids == NULL ? "no memory" : r->look(r->shared, turn, ids);
        if (complaint != NULL) /* the test waits for reads that will not come */
                atomic_fetch_add(&r->shared->reads, 1000);
        free(ids);
        return (void *)(uintptr_t)complaint;
}

static void fill_batch(const shared *s, long long b, float *rows, int64_t *ids)
{
        /* Under IP a batch now and then has rows longer than all before, which builds the tree again. */
        const float length = s->index->config.metric == DCI_METRIC_IP ? (float)(1 + b / 30) : 1.0f;
        for (size_t j = 0; j < BATCH; j++) {
                ids[j] = b * BATCH + (long long)j;
                for (size_t p = 0; p < SIDE; p++)
                        rows[j * SIDE + p] = s->rows[(size_t)ids[j] * SIDE + p] * length;
        }
}

/* Twenty batches are there before the first goes; at the end all but ten do, so that memory is reclaimed. */
static void come_and_go(shared *s)
{
        float rows[BATCH * SIDE];
        int64_t ids[BATCH];
        for (long long b = 0, oldest = 0; oldest < ROUNDS - 10; b++) {
                if (b < ROUNDS) {
                        fill_batch(s, b, rows, ids);
                        atomic_store(&s->coming, b + 1);
                        ck_ok(dci_index_add(s->index, BATCH, rows, SIDE, b % 2 == 0 ? ids : NULL, NULL));
                        atomic_store(&s->added, b + 1);
                }
                while (atomic_load(&s->reads) < (size_t)b) /* readers keep up with it */
                        sched_yield();
                if (b < 20 || (b < ROUNDS && b % 3 == 1))
                        continue;
                for (size_t j = 0; j < BATCH; j++)
                        ids[j] = oldest * BATCH + (long long)j;
                atomic_store(&s->leaving, oldest + 1);
                ck_ok(dci_index_remove(s->index, BATCH, ids));
                atomic_store(&s->removed, ++oldest);
        }
}

static void *follow_on(void *arg)
{
        shared *s = arg;
        mdci_copy *copy = calloc(1, sizeof *copy);
        while (copy != NULL && !atomic_load(&s->done))
                mdci_copy_follow(copy, s->index);
        return copy;
}

static void check_what_is_left(const shared *s, mdci_copy *copy)
{
        int64_t ids[10 * BATCH];
        size_t n;
        tree_check(s->index);
        ck_ok(dci_index_ids(s->index, COUNT(ids), ids, &n));
        ck_assert_uint_eq(n, COUNT(ids));
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(ids[i], (int64_t)(MOST - n + i));
        ck_assert_ptr_nonnull(copy);
        mdci_copy_follow(copy, s->index);
        mdci_copy_check(copy, s->index);
        mdci_copy_free(copy);
        free(copy);
}

/* Loops over metrics. */
START_TEST(readers_beside_a_writer_see_whole_batches_and_never_what_has_gone)
{
        static const look reads[] = {look_by_search, look_by_group, look_by_filter, look_at_pages};
        dci_context *context = test_context(1);
        dci_index_config config = mdci_config(SIDE, all_metrics[_i], DCI_F32);
        float *rows = test_normal(MOST, SIDE, 4), *queries = test_normal(54, SIDE, 5);
        shared s = {.rows = rows, .queries = queries};
        reader readers[COUNT(reads)];
        pthread_t follower;
        void *complaint = NULL, *copy = NULL;
        config.promotion_prob = 0.1;
        config.top_nodes = 16;
        ck_ok(dci_index_create(context, &config, &s.index));
        for (size_t i = 0; i < COUNT(reads); i++) {
                readers[i] = (reader){.shared = &s, .look = reads[i]};
                ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
        }
        ck_assert_int_eq(pthread_create(&follower, NULL, follow_on, &s), 0);
        come_and_go(&s);
        const size_t enough = atomic_load(&s.reads) + 30;
        while (atomic_load(&s.reads) < enough) /* some more searches of the final state */
                continue;
        atomic_store(&s.done, true);
        for (size_t i = 0; i < COUNT(reads); i++) {
                pthread_join(readers[i].thread, &complaint);
                ck_assert_msg(complaint == NULL, "reader %zu: %s", i, (const char *)complaint);
        }
        pthread_join(follower, &copy);
        check_what_is_left(&s, copy);
        dci_index_destroy(s.index);
        dci_context_destroy(context);
        test_free(rows, queries);
}
END_TEST

static void *adder(void *arg)
{
        shared *s = arg;
        for (int i = 0; i < 60; i++)
                if (dci_index_add(s->index, 3, s->rows, SIDE, NULL, NULL) != DCI_OK)
                        return (void *)(uintptr_t) "an add failed";
        return NULL;
}

START_TEST(adds_from_many_threads_queue_up)
{
        enum { WRITERS = 3, ALL = WRITERS * 180 };
        dci_context *context = test_context(2);
        const dci_index_config config = mdci_config(SIDE, DCI_METRIC_IP, DCI_F32);
        float *rows = test_normal(3, SIDE, 1);
        shared s = {.index = pdci_index(context, &config, 0, NULL, NULL), .rows = rows};
        pthread_t threads[WRITERS];
        int64_t ids[ALL];
        size_t n;
        for (size_t i = 0; i < WRITERS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, adder, &s), 0);
        for (size_t i = 0; i < WRITERS; i++)
                test_join(threads[i]);
        ck_ok(dci_index_ids(s.index, ALL, ids, &n));
        ck_assert_uint_eq(n, ALL);
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(ids[i], (int64_t)i);
        tree_check(s.index);
        dci_index_destroy(s.index);
        dci_context_destroy(context);
        free(rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("mdci threads");
        const int n_metrics = test_short() ? 1 : 3;
        TCase *threads = test_case(suite, "threads", 600);
        tcase_add_loop_test(threads, results_are_the_same_bits_at_any_thread_count_and_batch_size, 0, n_metrics);
        tcase_add_loop_test(threads, groups_and_ranges_are_the_same_bits_at_any_thread_count, 0, n_metrics);
        tcase_add_loop_test(threads, readers_beside_a_writer_see_whole_batches_and_never_what_has_gone, 0, 3);
        tcase_add_test(threads, adds_from_many_threads_queue_up);
        return test_main(suite);
}
