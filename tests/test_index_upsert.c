/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Upsert: rows that are there and others in one publication, all or none. */
#include "tests/common.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/forms_fixture.h"

enum { Q = 30, K = 10 };

/* --- upsert: the rows that there are ---------------------------------------------------------------------------------- */

/* Loops over forms and metrics. Row i of the second half of the trace replaces row i of the first half, batch by batch. */
START_TEST(replaced_rows_are_found_as_if_they_had_been_added)
{
        const dci_metric metric = all_metrics[_i % 3];
        const dci_index_config config = config_of((size_t)_i / 3, metric);
        float *keys = pdci_trace("keys", 2 * N), *queries = pdci_trace("queries", Q);
        float *batch = malloc(N * DIM * sizeof *batch), *rows = malloc(2 * N * DIM * sizeof *rows);
        int64_t *order = pdci_shuffled(N, 5), *ids = malloc(N * sizeof *ids);
        memcpy(rows, keys, N * DIM * sizeof *rows);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        size_t n_rows = N, done = 0;
        for (size_t n = 1; done + n <= N; done += n, n = 6 * n + 1) { /* few, many, half of all */
                float *at = batch + done * DIM;                       /* borrowed rows stay */
                for (size_t i = 0; i < n; i++) {
                        ids[i] = i % 4 == 3 ? (int64_t)n_rows++ : order[done + i];
                        memcpy(at + i * DIM, keys + (N + done + i) * DIM, DIM * sizeof *at);
                        memcpy(rows + (size_t)ids[i] * DIM, at + i * DIM, DIM * sizeof *at);
                }
                ck_ok(dci_index_upsert(index, n, at, DIM, ids, NULL));
                ck_assert_uint_eq(dci_index_count(index), n_rows);
                ck_assert_int_eq(dci_index_next_id(index), (int64_t)n_rows);
                check_index(index);
                dci_index *fresh = pdci_index(context, &config, n_rows, rows, NULL);
                dci_search_params all = mdci_effort(1.0);
                all.rerank = INFINITY;
                pdci_found got = pdci_search(index, Q, queries, K, &all);
                pdci_found want = pdci_search(fresh, Q, queries, K, &all);
                ck_assert_msg(pdci_same(&want, &got), "form %d, %zu rows at once", _i / 3, n);
                pdci_found_free(&got);
                pdci_found_free(&want);
                if (config.kind == DCI_KIND_MDCI)
                        mdci_same_nodes(fresh, index, "replaced");
                if (config.kind == DCI_KIND_PDCI) { /* projections and c are those of the new rows */
                        const dci_search_params few = pdci_effort(200, 30);
                        got = pdci_search(index, Q, queries, K, &few);
                        want = pdci_search(fresh, Q, queries, K, &few);
                        ck_assert_msg(metric == DCI_METRIC_IP || config.sketch_bits != 0 || pdci_same(&want, &got),
                                      "other candidates after %zu rows at once", n);
                        pdci_found_free(&got);
                        pdci_found_free(&want);
                }
                dci_index_destroy(fresh);
        }
        test_hold(done > 200 && n_rows > N + 50);
        dci_index_destroy(index);
        test_free(keys, queries, batch, rows, order, ids);
}
END_TEST

/* Loops over forms and metrics: codes and trees rank as well as after a build. */
START_TEST(recall_after_upserts_is_that_of_a_new_index)
{
        const dci_metric metric = all_metrics[_i % 3];
        const dci_index_config config = config_of((size_t)_i / 3, metric);
        float *keys = pdci_trace("keys", 2 * N), *queries = pdci_trace("queries", Q);
        int64_t ids[20];
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        for (size_t done = 0; done < N; done += COUNT(ids)) {
                for (size_t i = 0; i < COUNT(ids); i++)
                        ids[i] = (int64_t)(done + i);
                ck_ok(dci_index_upsert(index, COUNT(ids), keys + (N + done) * DIM, DIM, ids, NULL));
        }
        check_index(index);
        dci_index *fresh = pdci_index(context, &config, N, keys + N * DIM, NULL);
        if (config.kind == DCI_KIND_MDCI)
                ck_assert_double_ge(tree_share_at_nearest(index), 0.9);
        const dci_search_params some = mdci_effort(0.2), all = mdci_effort(1.0);
        pdci_found exact = pdci_search(fresh, Q, queries, K, &all);
        for (int i = 0; i < 2; i++) {
                pdci_found got = pdci_search(index, Q, queries, K, i == 0 ? &some : NULL);
                pdci_found want = pdci_search(fresh, Q, queries, K, i == 0 ? &some : NULL);
                const double recall = mdci_share_found(&exact, &got), of_fresh = mdci_share_found(&exact, &want);
                ck_assert_msg(recall >= of_fresh - 0.05, "form %d: %g found, %g in a new index", _i / 3, recall,
                              of_fresh);
                pdci_found_free(&got);
                pdci_found_free(&want);
        }
        pdci_found_free(&exact);
        dci_index_destroy(fresh);
        dci_index_destroy(index);
        test_free(keys, queries);
}
END_TEST

START_TEST(a_tree_has_one_version_more_after_an_upsert_and_the_log_tells_all_pages)
{
        static const size_t sizes[] = {1, 3, 40, 700};
        const dci_index_config config = config_of(5, DCI_METRIC_IP);
        float *keys = pdci_trace("keys", 2 * N);
        int64_t *order = pdci_shuffled(N, 6);
        mdci_copy copy = {0};
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        mdci_copy_follow(&copy, index);
        for (size_t i = 0; i < COUNT(sizes); i++) {
                const uint64_t before = mdci_stats(index).version;
                ck_ok(dci_index_upsert(index, sizes[i], keys + N * DIM, DIM, order, NULL));
                ck_assert_uint_eq(mdci_stats(index).version, before + 1);
                const size_t n_read = mdci_copy_follow(&copy, index);
                ck_assert(sizes[i] > 1 || n_read <= 40);
                mdci_copy_check(&copy, index);
        }
        mdci_copy_free(&copy);
        dci_index_destroy(index);
        test_free(keys, order);
}
END_TEST

/* Of every promoted row, alone and all together. */
START_TEST(nodes_go_and_come_where_their_rows_are)
{
        for (size_t form = 5; form < COUNT(forms); form++) {
                const dci_index_config config = config_of(form, DCI_METRIC_L2);
                float *keys = pdci_trace("keys", 2 * N);
                dci_index *index = pdci_index(context, &config, N, keys, NULL);
                int64_t *nodes = malloc(N * sizeof *nodes);
                size_t n = 0;
                for (int64_t id = 0; id < N; id++)
                        if (dci_tree_promotions(index->tree, id) > 0)
                                nodes[n++] = id;
                test_hold(n > 20 && n < N / 4 && n <= index->tree->levels[0].n);
                for (size_t i = 0; i < n; i += 3) {
                        ck_ok(dci_index_replace(index, 1, keys + (N + i) * DIM, DIM, &nodes[i], NULL));
                        check_index(index);
                }
                const uint64_t builds = mdci_stats(index).rebuilds;
                ck_ok(dci_index_upsert(index, n, keys + N * DIM, DIM, nodes, NULL)); /* none would be left meanwhile */
                ck_assert_uint_eq(mdci_stats(index).rebuilds, builds + 1);
                check_index(index);
                ck_assert_double_ge(tree_share_at_nearest(index), 0.9);
                dci_index_destroy(index);
                test_free(keys, nodes);
        }
}
END_TEST

START_TEST(what_was_reserved_stays_after_an_upsert)
{
        for (size_t form = 0; form < COUNT(forms); form++) {
                const dci_index_config config = config_of(form, DCI_METRIC_L2);
                float *keys = pdci_trace("keys", 200);
                int64_t ids[100];
                dci_index *index = pdci_index(context, &config, 200, keys, NULL);
                for (size_t i = 0; i < 100; i++)
                        ids[i] = (int64_t)(2 * i);
                ck_ok(dci_index_reserve(index, 20000));
                const dci_memory_report before = mdci_memory(index);
                for (int i = 0; i < 2; i++)
                        ck_ok(dci_index_upsert(index, i == 0 ? 100 : 7, keys, DIM, ids, NULL));
                ck_assert_uint_eq(mdci_memory(index).rows, before.rows);
                ck_assert_uint_eq(mdci_memory(index).codes, before.codes);
                dci_index_destroy(index);
                free(keys);
        }
}
END_TEST

/* --- refused, cancelled, short of memory: nothing changes ------------------------------------------------------------- */

static int32_t stop(void *ctx, size_t done, size_t total)
{
        (void)total;
        size_t *limit = ctx;
        return done >= *limit;
}

START_TEST(a_batch_that_is_refused_or_cancelled_changes_nothing)
{
        for (size_t form = 0; form < COUNT(forms); form++) {
                const dci_index_config config = config_of(form, all_metrics[form % 3]);
                float *keys = pdci_trace("keys", 800);
                int64_t ids[300];
                for (size_t i = 0; i < COUNT(ids); i++)
                        ids[i] = (int64_t)(i * 3 / 2);
                dci_index *index = pdci_index(context, &config, 300, keys, NULL);
                const float *rows = keys + 300 * DIM;
                float *bad = malloc(300 * DIM * sizeof *bad);
                memcpy(bad, rows, 300 * DIM * sizeof *bad);
                state before = state_of(index);
                bad[17 * DIM + 5] = NAN;
                ck_refused(dci_index_upsert(index, 300, bad, DIM, ids, NULL), DCI_ERR_NUMBER, "row 17");
                ck_refused(dci_index_upsert(index, 20, bad, DIM, ids, NULL), DCI_ERR_NUMBER, "row 17");
                ids[40] = ids[3];
                ck_refused(dci_index_upsert(index, 300, rows, DIM, ids, NULL), DCI_ERR_EXISTS, "id 4 of row 40 comes");
                ids[40] = -7;
                ck_refused(dci_index_upsert(index, 300, rows, DIM, ids, NULL), DCI_ERR_INVALID, "id -7 of row 40");
                ids[40] = INT64_MAX;
                ck_refused(dci_index_upsert(index, 300, rows, DIM, ids, NULL), DCI_ERR_LIMIT, "of row 40");
                ids[40] = 60;
                ck_refused(dci_index_upsert(index, 300, rows, DIM, NULL, NULL), DCI_ERR_INVALID, "ids is NULL");
                ck_refused(dci_index_upsert(index, 300, NULL, DIM, ids, NULL), DCI_ERR_INVALID, "rows is NULL");
                ck_refused(dci_index_upsert(index, 300, rows, DIM - 1, ids, NULL), DCI_ERR_INVALID, "ld is");
                ck_refused(dci_index_upsert(NULL, 300, rows, DIM, ids, NULL), DCI_ERR_INVALID, "index is NULL");
                for (size_t limit = 0; limit <= 300; limit += 150) {
                        const dci_progress progress = {&limit, stop};
                        ck_refused(dci_index_upsert(index, 300, rows, DIM, ids, &progress), DCI_ERR_CANCELLED, "");
                }
                ids[41] = 5000;
                ck_refused(dci_index_replace(index, 300, rows, DIM, ids, NULL), DCI_ERR_NOT_FOUND, "id 5000 of row 41");
                ids[41] = 61;
                state_check(&before, index, "refused");
                ck_ok(dci_index_upsert(index, 0, NULL, 0, NULL, NULL));
                state_check(&before, index, "no rows");
                free(before.bytes);
                dci_index_destroy(index);
                test_free(keys, bad);
        }
}
END_TEST

typedef struct life {
        dci_index *index;
        float *rows;
        size_t failures;
} life;

static void *born(dci_context *of, const void *arg)
{
        const size_t *which = arg;
        const dci_index_config config = config_of(*which, DCI_METRIC_IP);
        life *l = calloc(1, sizeof *l);
        l->rows = test_normal(700, DIM, 3);
        l->index = pdci_index(of, &config, 200, l->rows, NULL);
        return l;
}

/* One call that may fail for memory, after which all is as before. */
static bool again(life *l, dci_status status, state *before)
{
        if (!test_failed_once(status, DCI_ERR_MEMORY, &l->failures, "a change"))
                return false;
        state_check(before, l->index, "short of memory");
        return true;
}

static size_t change(void *prepared)
{
        static const size_t sizes[] = {2, 30, 150};
        life *l = prepared;
        int64_t ids[150];
        size_t removed;
        for (size_t s = 0; s < COUNT(sizes); s++) {
                state before = state_of(l->index);
                for (size_t i = 0; i < sizes[s]; i++)
                        ids[i] = (int64_t)(i % 5 == 4 ? 1000 * (s + 1) + i : 3 * i + s);
                while (again(l, dci_index_upsert(l->index, sizes[s], l->rows + (200 + 100 * s) * DIM, DIM, ids, NULL),
                             &before))
                        continue;
                free(before.bytes);
        }
        state before = state_of(l->index);
        for (size_t i = 0; i < 20; i++)
                ids[i] = (int64_t)(9 * i);
        while (again(l, dci_index_remove_present(l->index, 20, ids, &removed), &before))
                continue;
        free(before.bytes);
        before = state_of(l->index);
        while (again(l, dci_index_set_metadata(l->index, "what it is", 10), &before))
                continue;
        free(before.bytes);
        before = state_of(l->index);
        while (again(l, dci_index_clear(l->index), &before))
                continue;
        free(before.bytes);
        check_index(l->index);
        const size_t failures = l->failures;
        dci_index_destroy(l->index);
        free(l->rows);
        free(l);
        return failures;
}

/* Loops over forms. */
static void climb(int which, test_ladder ladder)
{
        const size_t form = (size_t)which;
        const size_t rungs = ladder(1, born, change, &form);
        ck_assert_msg(rungs >= 8, "%zu rungs", rungs);
}

TEST_LADDERS(climb)

/* --- searches meanwhile ----------------------------------------------------------------------------------------------- */

enum { SIDE = 8, BATCH = 40, FAR = 600, ROUNDS = 60, READERS = 3 };

typedef struct shared {
        dci_index *index;
        atomic_bool done;
        atomic_size_t searches;
} shared;

/* In round v all rows of the batch are at distance v^2 from the query, and there are BATCH + v of them. */
static const char *look(shared *s)
{
        const float query[SIDE] = {0};
        int64_t ids[BATCH + ROUNDS + 1];
        float scores[BATCH + ROUNDS + 1];
        uint8_t there[BATCH];
        int64_t first[BATCH];
        dci_search_params all = mdci_effort(1.0);
        all.rerank = INFINITY;
        if (dci_index_search(s->index, 1, query, SIDE, COUNT(ids), &all, ids, scores) != DCI_OK)
                return "a search failed";
        const size_t n = BATCH + (size_t)sqrtf(scores[0]);
        for (size_t i = 0; i < n; i++)
                if (ids[i] != (int64_t)i || scores[i] != scores[0])
                        return "a search saw a part of a batch";
        if (ids[n] >= 0 && scores[n] < 1e6f)
                return "a search saw a row that had not come";
        for (size_t i = 0; i < BATCH; i++)
                first[i] = (int64_t)i;
        if (dci_index_contains(s->index, BATCH, first, there) != DCI_OK || memchr(there, 0, BATCH) != NULL)
                return "an id was missing";
        atomic_fetch_add(&s->searches, 1);
        return NULL;
}

static void *reader(void *arg)
{
        shared *s = arg;
        const char *complaint = NULL;
        while (complaint == NULL && !atomic_load(&s->done))
                complaint = look(s);
        if (complaint != NULL)
                atomic_fetch_add(&s->searches, READERS);
        return (void *)(uintptr_t)complaint;
}

/* Loops over forms that own their rows. */
START_TEST(a_search_sees_the_old_rows_or_the_new_ones)
{
        dci_index_config config = config_of((size_t)_i, DCI_METRIC_L2);
        if (config.storage == DCI_ROWS_BORROWED)
                return;
        const size_t rounds = test_short() ? ROUNDS / 3 : ROUNDS;
        config.dim = SIDE;
        dci_context *of = test_context(1);
        shared s = {0};
        pthread_t threads[READERS];
        int64_t ids[BATCH + ROUNDS];
        float rows[(BATCH + ROUNDS) * SIDE] = {0}, *far = test_normal(FAR, SIDE, 9);
        ck_ok(dci_index_create(of, &config, &s.index));
        for (size_t i = 0; i < BATCH + ROUNDS; i++)
                ids[i] = (int64_t)i;
        ck_ok(dci_index_add(s.index, BATCH, rows, SIDE, ids, NULL));
        for (size_t i = 0; i < FAR * SIDE; i++)
                far[i] += i % SIDE == 0 ? 2000.0f : 0.0f;
        int64_t *far_ids = malloc(FAR * sizeof *far_ids);
        for (size_t i = 0; i < FAR; i++)
                far_ids[i] = (int64_t)(10000 + i);
        ck_ok(dci_index_add(s.index, FAR, far, SIDE, far_ids, NULL));
        for (size_t i = 0; i < READERS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, &s), 0);
        for (size_t v = 1; v <= rounds; v++) {
                for (size_t i = 0; i < BATCH + v; i++)
                        for (size_t p = 0; p < SIDE; p++)
                                rows[i * SIDE + p] = p == i % SIDE ? (float)v : 0.0f;
                ck_ok(dci_index_upsert(s.index, BATCH + v, rows, SIDE, ids, NULL));
        }
        while (atomic_load(&s.searches) < READERS)
                sched_yield();
        atomic_store(&s.done, true);
        for (size_t i = 0; i < READERS; i++)
                test_join(threads[i]);
        check_index(s.index);
        dci_index_destroy(s.index);
        dci_context_destroy(of);
        test_free(far, far_ids);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index upsert");
        const int n_forms = (int)COUNT(forms);
        TCase *laws = test_case_with(suite, "laws", 300, context_open_2, context_close);
        tcase_add_loop_test(laws, replaced_rows_are_found_as_if_they_had_been_added, 0, 3 * n_forms);
        tcase_add_loop_test(laws, recall_after_upserts_is_that_of_a_new_index, 0, 3 * n_forms);
        tcase_add_test(laws, a_tree_has_one_version_more_after_an_upsert_and_the_log_tells_all_pages);
        tcase_add_test(laws, nodes_go_and_come_where_their_rows_are);
        tcase_add_test(laws, what_was_reserved_stays_after_an_upsert);
        tcase_add_test(laws, a_batch_that_is_refused_or_cancelled_changes_nothing);
        TCase *memory = test_case(suite, "memory", 300);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 0, n_forms);
        tcase_add_loop_test(memory, memory_may_be_short_from_any_allocation_on, 0, n_forms);
        TCase *threads = test_case(suite, "threads", 300);
        tcase_add_loop_test(threads, a_search_sees_the_old_rows_or_the_new_ones, 0, n_forms);
        return test_main(suite);
}
