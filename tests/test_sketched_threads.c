/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Indices with codes: searches concurrent with a writer that adds, removes and fits; sketches by several threads. Run under tsan, too. */
#include "tests/pdci_fixture.h"

#include <math.h>
#include <pthread.h>

enum { N = 1200, Q = 6, K = 5, READERS = 2 };

static const dci_index_kind kinds[] = {DCI_KIND_FLAT, DCI_KIND_PDCI, DCI_KIND_MDCI};

typedef struct scene {
        dci_index *index;
        const float *queries;
        atomic_bool over;
        atomic_size_t searches;
} scene;

/* Rows come and go meanwhile, so all that can be said is what holds for any of them: best first, k of them, no row twice. */
static void *read_on(void *arg)
{
        scene *s = arg;
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        while (!atomic_load(&s->over)) {
                int64_t ids[Q * K];
                float scores[Q * K];
                params.guarantee = atomic_fetch_add(&s->searches, 1) % 2 == 0 ? 0.0 : 0.9;
                ck_ok(dci_index_search(s->index, Q, s->queries, TRACE_DIM, K, &params, ids, scores));
                for (size_t i = 0; i < Q * K; i++) {
                        test_hold(ids[i] >= 0 && (i % K == 0 || scores[i] <= scores[i - 1]));
                        for (size_t j = i / K * K; j < i; j++)
                                test_hold(ids[j] != ids[i]);
                }
        }
        return NULL;
}

static void write_on(scene *s, const float *keys)
{
        for (size_t at = 100, n; at < N; at += n) {
                n = 1 + at % 60 < N - at ? 1 + at % 60 : N - at;
                ck_ok(dci_index_add(s->index, n, keys + at * TRACE_DIM, TRACE_DIM, NULL, NULL));
                const int64_t id = (int64_t)(at / 2);
                ck_ok(dci_index_remove(s->index, 1, &id));
                if (at % 7 == 0)
                        ck_ok(dci_index_fit(s->index, Q, s->queries, TRACE_DIM));
        }
}

/* Loops over kinds. At the end, what is certain is exact. */
START_TEST(searches_run_beside_a_writer)
{
        dci_context *context = test_context(2);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        dci_index_config config = index_config(TRACE_DIM, DCI_METRIC_IP, DCI_F16);
        config.kind = kinds[_i];
        config.sketch_bits = 2;
        config.add_dtype = config.query_dtype = DCI_F32;
        scene s = {.index = pdci_index(context, &config, 100, keys, NULL), .queries = queries};
        pthread_t readers[READERS];
        for (size_t r = 0; r < READERS; r++)
                ck_assert_int_eq(pthread_create(&readers[r], NULL, read_on, &s), 0);
        write_on(&s, keys);
        while (atomic_load(&s.searches) < 4) /* one core may not have let them begin */
                continue;
        atomic_store(&s.over, true);
        for (size_t r = 0; r < READERS; r++)
                pthread_join(readers[r], NULL);
        dci_search_params all, sure;
        ck_ok(dci_search_params_init(&all, sizeof all));
        sure = all;
        all.rerank = (double)INFINITY;
        sure.guarantee = 1.0;
        pdci_found want = pdci_search(s.index, Q, queries, K, &all), got = pdci_search(s.index, Q, queries, K, &sure);
        ck_assert(pdci_same(&want, &got));
        pdci_found_free(&want);
        pdci_found_free(&got);
        dci_index_destroy(s.index);
        test_free(keys, queries);
        dci_context_destroy(context);
}
END_TEST

/* A sketch by itself: rows encoded and queries answered by several threads as by one. */
START_TEST(sketches_are_the_same_at_any_thread_count)
{
        enum { ROWS = 5000, ASKED = 40 };
        float *keys = pdci_trace("keys", ROWS), *queries = pdci_trace("queries", ASKED);
        static int64_t rows[2][ASKED * K];
        static float scores[2][ASKED * K];
        for (int i = 0; i < 2; i++) {
                dci_context *context = test_context(i == 0 ? 1 : 3);
                dci_sketch_config config;
                dci_sketch *sketch = NULL;
                ck_ok(dci_sketch_config_init(&config, sizeof config));
                config.dim = TRACE_DIM;
                ck_ok(dci_sketch_create(context, &config, &sketch));
                ck_ok(dci_sketch_append(sketch, ROWS, keys, TRACE_DIM));
                ck_ok(dci_sketch_search(sketch, ASKED, queries, TRACE_DIM, K, rows[i], scores[i]));
                dci_sketch_destroy(sketch);
                dci_context_destroy(context);
        }
        ck_assert_mem_eq(rows[0], rows[1], sizeof rows[0]);
        ck_assert_mem_eq(scores[0], scores[1], sizeof scores[0]);
        test_free(keys, queries);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketched threads");
        TCase *tcase = test_case(suite, "threads", 60);
        tcase_add_loop_test(tcase, searches_run_beside_a_writer, 0, 3);
        tcase_add_test(tcase, sketches_are_the_same_at_any_thread_count);
        return test_main(suite);
}
