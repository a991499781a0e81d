/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of the exact index: what it answers, and how adds and removes change it. */
#include "tests/context_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/npy.h"
#include "tests/index_fixture.h"
#include "tests/naive.h"

static const dci_metric metrics[] = {DCI_METRIC_L2, DCI_METRIC_IP, DCI_METRIC_COSINE};
static const dci_dtype dtypes[] = {DCI_F32, DCI_F16, DCI_BF16};

/* One shape: every query of one, few and many per call against the model, and all three against each other. */
static void check_shape(dci_context *of, dci_metric metric, dci_dtype dtype, size_t n, size_t dim, size_t n_queries,
                        size_t k)
{
        char what[128];
        snprintf(what, sizeof what, "isa %s metric %d %s n %zu dim %zu k %zu", dci_isa_name(dci_context_isa(of)),
                 metric, dci_dtype_name(dtype), n, dim, k);
        dci_index_config config = index_config(dim, metric, dtype);
        config.add_dtype = config.query_dtype = DCI_F32;
        dci_index *index = NULL;
        ck_ok(dci_index_create(of, &config, &index));
        float *rows = test_normal(n, dim, n * 31 + dim), *queries = test_normal(n_queries, dim, n + dim * 7);
        ck_ok(dci_index_add(index, n, rows, dim, NULL, NULL));
        naive model;
        naive_init(&model, dim, metric);
        naive_fill(&model, config.dtype, n, rows, NULL);

        int64_t *ids = malloc(2 * n_queries * k * sizeof *ids);
        float *scores = malloc(2 * n_queries * k * sizeof *scores);
        int64_t *ids_one = ids + n_queries * k;
        float *scores_one = scores + n_queries * k;
        ck_ok(dci_index_search(index, n_queries, queries, dim, k, NULL, ids, scores));
        for (size_t q = 0; q < n_queries; q++) {
                ck_ok(dci_index_search(index, 1, queries + q * dim, dim, k, NULL, ids_one + q * k, scores_one + q * k));
                naive_check(&model, queries + q * dim, k, NULL, ids_one + q * k, scores_one + q * k, what);
        }
        ck_assert_msg(memcmp(ids, ids_one, n_queries * k * sizeof *ids) == 0, "%s: batch and single ids differ", what);
        for (size_t i = 0; i < n_queries * k; i++)
                ck_assert_msg(scores[i] == scores_one[i] || (isnan(scores[i]) && isnan(scores_one[i])),
                              "%s: batch and single scores differ", what);
        for (size_t q = 0; q < n_queries; q += 7) { /* and in groups of up to 7 */
                size_t m = n_queries - q < 7 ? n_queries - q : 7;
                ck_ok(dci_index_search(index, m, queries + q * dim, dim, k, NULL, ids_one, scores_one));
                ck_assert_msg(memcmp(ids + q * k, ids_one, m * k * sizeof *ids) == 0, "%s: groups differ", what);
        }
        test_free(ids, scores, rows, queries);
        naive_free(&model);
        dci_index_destroy(index);
}

START_TEST(exact_against_double_precision_on_every_isa)
{
        static const struct {
                size_t n, dim, n_queries, k;
        } shapes[] = {
                {1, 1, 1, 1},       {1, 64, 3, 5},      {2, 3, 17, 2},      {15, 16, 16, 4},
                {17, 17, 5, 17},    {255, 33, 33, 7},   {300, 64, 40, 10},  {513, 80, 65, 100},
                {1000, 5, 20, 250}, {2100, 128, 18, 1}, {700, 784, 17, 10}, {400, 1, 50, 3},
        };
        size_t n_isas = test_n_isas();
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *own = test_context_of_level((int)i);
                for (size_t m = 0; m < 3; m++)
                        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                                check_shape(own, metrics[m], dtypes[(s + m + i) % 3], shapes[s].n, shapes[s].dim,
                                            shapes[s].n_queries, shapes[s].k);
                dci_context_destroy(own);
        }
}
END_TEST

START_TEST(exact_for_every_metric_and_format)
{
        for (size_t m = 0; m < 3; m++)
                for (size_t d = 0; d < 3; d++)
                        check_shape(context, metrics[m], dtypes[d], 1500, 64, 48, 20);
}
END_TEST

/* Rows on a coarse grid: nearly every score is shared by many rows, so every cut falls inside a tie. */
START_TEST(ties_go_to_the_lower_id)
{
        enum { N = 3000, DIM = 4, K = 50, Q = 40 };
        size_t n_isas = test_n_isas();
        dci_rng rng;
        dci_rng_seed(&rng, 5);
        float rows[N * DIM], queries[Q * DIM];
        int64_t ids[N], got[Q * K];
        float scores[Q * K];
        for (size_t i = 0; i < N * DIM; i++)
                rows[i] = (float)dci_rng_below(&rng, 3) - 1.0f;
        for (size_t i = 0; i < Q * DIM; i++)
                queries[i] = (float)dci_rng_below(&rng, 3);
        for (size_t i = 0; i < N; i++)
                ids[i] = (int64_t)(N - i) * 3; /* descending: the order of slots is the wrong one */
        for (size_t i = 0; i < n_isas; i++) {
                for (int with_ids = 0; with_ids < 2; with_ids++) {
                        dci_context *own = test_context_of_level((int)i);
                        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
                        dci_index *index = NULL;
                        naive model;
                        naive_init(&model, DIM, DCI_METRIC_L2);
                        ck_ok(dci_index_create(own, &config, &index));
                        ck_ok(dci_index_add(index, N, rows, DIM, with_ids ? ids : NULL, NULL));
                        naive_fill(&model, config.dtype, N, rows, with_ids ? ids : NULL);
                        ck_ok(dci_index_search(index, Q, queries, DIM, K, NULL, got, scores));
                        for (size_t q = 0; q < Q; q++) {
                                naive_check(&model, queries + q * DIM, K, NULL, got + q * K, scores + q * K, "ties");
                                /* Integers are exact: nobody left out may tie with the last and have a lower id. */
                                for (size_t r = 0; r < N; r++) {
                                        double bound, exact = naive_score(&model, queries + q * DIM, r, &bound);
                                        int64_t last = got[q * K + K - 1];
                                        bool better = exact < scores[q * K + K - 1] ||
                                                      (exact == scores[q * K + K - 1] && model.ids[r] < last);
                                        bool found = false;
                                        for (size_t j = 0; j < K; j++)
                                                found = found || got[q * K + j] == model.ids[r];
                                        ck_assert_msg(!better || found, "id %lld should be there",
                                                      (long long)model.ids[r]);
                                }
                                int64_t one[K];
                                ck_ok(dci_index_search(index, 1, queries + q * DIM, DIM, K, NULL, one, NULL));
                                ck_assert_int_eq(memcmp(one, got + q * K, sizeof one), 0);
                        }
                        naive_free(&model);
                        dci_index_destroy(index);
                        dci_context_destroy(own);
                }
        }
}
END_TEST

START_TEST(equal_rows_are_all_found_in_id_order)
{
        enum { N = 5000, DIM = 64, K = 900, Q = 20 };
        dci_index_config config = index_config(DIM, DCI_METRIC_IP, DCI_F32);
        dci_index *index = NULL;
        ck_ok(dci_index_create(context, &config, &index));
        float *row = test_normal(1, DIM, 3), *queries = test_normal(Q, DIM, 4);
        for (size_t i = 0; i < N; i++)
                ck_ok(dci_index_add(index, 1, row, DIM, NULL, NULL));
        int64_t *ids = malloc(Q * K * sizeof *ids);
        ck_ok(dci_index_search(index, Q, queries, DIM, K, NULL, ids, NULL));
        for (size_t i = 0; i < Q * K; i++)
                ck_assert_int_eq(ids[i], (int64_t)(i % K));
        test_free(ids, row, queries);
        dci_index_destroy(index);
}
END_TEST

/* Lengths over twelve decades: the bounds of the batch proposals must hold at every scale. */
START_TEST(scales_do_not_lose_rows)
{
        enum { N = 600, DIM = 48, Q = 32, K = 12 };
        static const float scales[] = {1e-30f, 1e-18f, 1e-6f, 1.0f, 1e6f, 1e16f};
        for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
                for (size_t m = 0; m < 2; m++) {
                        dci_index_config config = index_config(DIM, metrics[m], DCI_F32);
                        dci_index *index = NULL;
                        int64_t ids[Q * K], one[K];
                        float *rows = test_normal(N, DIM, s), *queries = test_normal(Q, DIM, s + 9);
                        for (size_t i = 0; i < N * DIM; i++)
                                rows[i] *= scales[s] * (i / DIM % 5 == 0 ? 8.0f : 1.0f);
                        for (size_t i = 0; i < Q * DIM; i++)
                                queries[i] *= scales[s];
                        ck_ok(dci_index_create(context, &config, &index));
                        ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
                        ck_ok(dci_index_search(index, Q, queries, DIM, K, NULL, ids, NULL));
                        for (size_t q = 0; q < Q; q++) {
                                ck_ok(dci_index_search(index, 1, queries + q * DIM, DIM, K, NULL, one, NULL));
                                ck_assert_msg(memcmp(one, ids + q * K, sizeof one) == 0, "scale %g metric %d",
                                              (double)scales[s], metrics[m]);
                        }
                        test_free(rows, queries);
                        dci_index_destroy(index);
                }
        }
}
END_TEST

START_TEST(real_trace_is_answered_exactly)
{
        char path[512];
        dci_npy keys = {0}, queries = {0};
        snprintf(path, sizeof path, "%s/keys.npy", test_trace_dir());
        ck_ok(dci_npy_read(context, path, &keys));
        snprintf(path, sizeof path, "%s/queries.npy", test_trace_dir());
        ck_ok(dci_npy_read(context, path, &queries));
        const size_t n = 7168, dim = keys.shape[1], n_queries = 96, k = 100;
        const size_t stride = queries.shape[1] * queries.shape[0] / n_queries * dim;
        for (size_t m = 0; m < 3; m++) {
                dci_index_config config = index_config(dim, metrics[m], DCI_F16);
                dci_index *index = NULL;
                naive model;
                naive_init(&model, dim, metrics[m]);
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, n, keys.data, dim, NULL, NULL));
                float *wide = malloc(n * dim * sizeof *wide), query[256];
                dci_kernels_scalar.to_f32[DCI_F16 - 1](keys.data, n * dim, wide);
                naive_fill(&model, config.dtype, n, wide, NULL);
                int64_t *ids = malloc(n_queries * k * sizeof *ids);
                float *scores = malloc(n_queries * k * sizeof *scores);
                ck_ok(dci_index_search(index, n_queries, queries.data, stride, k, NULL, ids, scores));
                for (size_t q = 0; q < n_queries; q++) {
                        dci_kernels_scalar.to_f32[DCI_F16 - 1]((const uint16_t *)queries.data + q * stride, dim, query);
                        naive_check(&model, query, k, NULL, ids + q * k, scores + q * k, "trace");
                }
                test_free(ids, scores, wide);
                naive_free(&model);
                dci_index_destroy(index);
        }
        dci_npy_free(&keys);
        dci_npy_free(&queries);
}
END_TEST

/* --- ids, add, remove ------------------------------------------------------------------------------------------------ */

START_TEST(adding_in_any_pieces_equals_adding_at_once)
{
        enum { N = 3000, DIM = 24, Q = 20, K = 15 };
        static const size_t pieces[] = {1, 3, 16, 250, 1000};
        float *rows = test_normal(N, DIM, 1), *queries = test_normal(Q, DIM, 2);
        int64_t want[Q * K], got[Q * K];
        dci_index_config config = index_config(DIM, DCI_METRIC_COSINE, DCI_F16);
        config.add_dtype = config.query_dtype = DCI_F32;
        dci_index *whole = NULL;
        ck_ok(dci_index_create(context, &config, &whole));
        ck_ok(dci_index_add(whole, N, rows, DIM, NULL, NULL));
        ck_ok(dci_index_search(whole, Q, queries, DIM, K, NULL, want, NULL));
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
                dci_index *index = NULL;
                ck_ok(dci_index_create(context, &config, &index));
                if (p == 2)
                        ck_ok(dci_index_reserve(index, N));
                for (size_t i = 0; i < N; i += pieces[p]) {
                        size_t n = N - i < pieces[p] ? N - i : pieces[p];
                        ck_ok(dci_index_add(index, n, rows + i * DIM, DIM, NULL, NULL));
                }
                ck_ok(dci_index_search(index, Q, queries, DIM, K, NULL, got, NULL));
                ck_assert_int_eq(memcmp(want, got, sizeof want), 0);
                dci_index_destroy(index);
        }
        dci_index_destroy(whole);
        test_free(rows, queries);
}
END_TEST

START_TEST(default_ids_are_never_reused)
{
        dci_index_config config = index_config(2, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        const float rows[8] = {0, 0, 1, 0, 2, 0, 3, 0};
        int64_t ids[8], five = 5, gone[2] = {1, 2};
        size_t count;
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, 3, rows, 2, NULL, NULL)); /* 0 1 2 */
        ck_ok(dci_index_remove(index, 2, gone));
        ck_ok(dci_index_add(index, 1, rows, 2, NULL, NULL));  /* 3 */
        ck_ok(dci_index_add(index, 1, rows, 2, &five, NULL)); /* 5 */
        ck_ok(dci_index_add(index, 2, rows, 2, NULL, NULL));  /* 6 7 */
        ck_ok(dci_index_ids(index, 8, ids, &count));
        const int64_t want[] = {0, 3, 5, 6, 7};
        ck_assert_uint_eq(count, 5);
        ck_assert_int_eq(memcmp(ids, want, sizeof want), 0);
        ck_ok(dci_index_ids(index, 2, ids, &count)); /* the smallest two */
        ck_assert_uint_eq(count, 5);
        ck_assert_int_eq(memcmp(ids, want, 2 * sizeof *ids), 0);
        dci_index_destroy(index);
}
END_TEST

/* The model plays the same operations; answers, ids and stored rows must agree after each. */
START_TEST(any_sequence_of_adds_and_removes_equals_the_model)
{
        const size_t rounds = getenv("DCI_TEST_LONG") != NULL ? 3000 : 150;
        enum { DIM = 9, K = 6 };
        for (uint64_t seed = 0; seed < 4; seed++) {
                dci_rng rng;
                dci_rng_seed(&rng, seed);
                dci_index_config config = index_config(DIM, metrics[seed % 3], seed % 2 ? DCI_BF16 : DCI_F32);
                config.add_dtype = config.query_dtype = DCI_F32;
                dci_index *index = NULL;
                naive model;
                naive_init(&model, DIM, config.metric);
                ck_ok(dci_index_create(context, &config, &index));
                int64_t next = 0;
                for (size_t round = 0; round < rounds; round++) {
                        if (dci_rng_below(&rng, 3) > 0 || model.n == 0) {
                                size_t n = 1 + (size_t)dci_rng_below(&rng, round % 10 == 0 ? 400 : 12);
                                float *rows = test_normal(n, DIM, seed * 1000 + round);
                                int64_t *ids = malloc(n * sizeof *ids);
                                bool given = dci_rng_below(&rng, 2) == 0;
                                for (size_t i = 0; i < n; i++)
                                        ids[i] = next + (given ? (int64_t)((n - i) * 7) : (int64_t)i);
                                ck_ok(dci_index_add(index, n, rows, DIM, given ? ids : NULL, NULL));
                                naive_fill(&model, config.dtype, n, rows, ids);
                                next += given ? (int64_t)n * 7 + 1 : (int64_t)n;
                                test_free(rows, ids);
                        } else {
                                size_t n = 1 + (size_t)dci_rng_below(
                                                       &rng, round % 9 == 0 ? model.n : (model.n < 9 ? model.n : 9));
                                int64_t *ids = malloc(n * sizeof *ids);
                                for (size_t i = 0; i < n; i++) {
                                        size_t at = (size_t)dci_rng_below(&rng, model.n);
                                        ids[i] = model.ids[at];
                                        naive_remove(&model, ids[i]);
                                }
                                ck_ok(dci_index_remove(index, n, ids));
                                free(ids);
                        }
                        float *query = test_normal(20, DIM, seed + round);
                        int64_t ids[20 * K];
                        float scores[20 * K];
                        ck_assert_uint_eq(dci_index_count(index), model.n);
                        size_t m = round % 3 == 0 ? 20 : 1;
                        ck_ok(dci_index_search(index, m, query, DIM, K, NULL, ids, scores));
                        for (size_t q = 0; q < m; q++)
                                naive_check(&model, query + q * DIM, K, NULL, ids + q * K, scores + q * K, "sequence");
                        if (model.n > 0) {
                                size_t at = (size_t)dci_rng_below(&rng, model.n);
                                unsigned char stored[DIM * 4];
                                float wide[DIM];
                                ck_ok(dci_index_reconstruct(index, 1, &model.ids[at], stored, DIM));
                                dci_kernels_scalar.to_f32[config.dtype - 1](stored, DIM, wide);
                                for (size_t p = 0; p < DIM; p++)
                                        ck_assert(wide[p] == (float)model.rows[at * DIM + p]);
                        }
                        free(query);
                }
                naive_free(&model);
                dci_index_destroy(index);
        }
}
END_TEST

START_TEST(removing_gives_memory_back)
{
        enum { N = 20000, DIM = 64 };
        test_memory memory;
        dci_context *own = test_context_with(&memory, 1);
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        dci_memory_report report;
        ck_ok(dci_memory_report_init(&report, sizeof report));
        ck_ok(dci_index_create(own, &config, &index));
        size_t empty = atomic_load(&memory.live_bytes);
        float *rows = test_normal(N, DIM, 1);
        ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
        ck_ok(dci_index_memory(index, &report));
        ck_assert_uint_ge(report.rows, (size_t)N * DIM * 4);
        ck_assert_uint_le(report.rows, (size_t)N * DIM * 4 + (256u << 10));
        ck_assert_uint_eq(report.total, report.rows + report.ids + report.norms + report.other);
        /* Everything that the allocator gave since, and the object itself, is in the report. */
        ck_assert_uint_eq(report.total, atomic_load(&memory.live_bytes) - empty + sizeof *index);
        int64_t *ids = malloc(N * sizeof *ids);
        for (size_t i = 0; i < N; i++)
                ids[i] = (int64_t)i;
        ck_ok(dci_index_remove(index, N - 10, ids));
        ck_assert_uint_le(atomic_load(&memory.live_bytes), empty + (size_t)(256u << 10) * 2);
        ck_ok(dci_index_remove(index, 10, ids + N - 10));
        ck_assert_uint_eq(dci_index_count(index), 0);
        ck_assert_uint_le(atomic_load(&memory.live_bytes), empty + 4096);
        test_free(ids, rows);
        dci_index_destroy(index);
        dci_context_destroy(own);
        ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
}
END_TEST

START_TEST(a_small_index_is_small)
{
        test_memory memory;
        dci_context *own = test_context_with(&memory, 1);
        dci_index_config config = index_config(64, DCI_METRIC_IP, DCI_F16);
        dci_index *index = NULL;
        float *rows = test_normal(20, 64, 1);
        config.add_dtype = DCI_F32;
        size_t before = atomic_load(&memory.live_bytes);
        ck_ok(dci_index_create(own, &config, &index));
        ck_ok(dci_index_add(index, 10, rows, 64, NULL, NULL));
        ck_ok(dci_index_add(index, 10, rows, 64, NULL, NULL)); /* the first chunk grows and its old copy is freed */
        ck_assert_uint_le(atomic_load(&memory.live_bytes) - before, 32 * (64 * 2 + 8) + 2048);
        free(rows);
        dci_index_destroy(index);
        dci_context_destroy(own);
}
END_TEST

/* Nothing that is retired can be freed while a search is inside; what adds replace does not pile up all the same. */
START_TEST(rows_that_come_beside_a_search_leave_little_behind)
{
        enum { DIM = 64, CHUNKS = 1100 };
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        dci_memory_report report;
        ck_ok(dci_memory_report_init(&report, sizeof report));
        ck_ok(dci_index_create(context, &config, &index));
        const size_t full = (size_t)1 << index->rows.chunk_shift;
        float *rows = calloc(full * DIM, sizeof *rows);
        dci_index_read_begin(index);
        const dci_view empty = dci_rows_view(&index->rows);
        for (size_t i = 0; i < CHUNKS; i++)
                ck_ok(dci_index_add(index, full, rows, DIM, NULL, NULL));
        ck_ok(dci_index_memory(index, &report));
        ck_assert_uint_lt(report.other, 1 << 20);
        ck_assert_uint_eq(empty.n, 0);
        dci_index_read_end(index);
        ck_assert_uint_eq(index->rows.n_chunks, CHUNKS);
        free(rows);
        dci_index_destroy(index);
}
END_TEST

/* Of several chunks that come in one call, each allocation fails once. */
START_TEST(rows_that_find_no_memory_leave_the_chunks_as_they_were)
{
        enum { DIM = 64, BEFORE = 3, AFTER = 8 };
        test_memory memory;
        dci_context *own = test_context_with(&memory, 1);
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        config.sketch_bits = 4; /* then a chunk takes two */
        dci_index *index = NULL;
        ck_ok(dci_index_create(own, &config, &index));
        const size_t full = (size_t)1 << index->rows.chunk_shift;
        ck_ok(dci_index_reserve(index, BEFORE * full));
        const size_t before = atomic_load(&memory.live_bytes);
        size_t n_failed = 0;
        for (;; n_failed++) {
                atomic_store(&memory.fail_at, atomic_load(&memory.calls) + 1 + n_failed);
                if (dci_index_reserve(index, AFTER * full) == DCI_OK)
                        break;
                ck_assert_uint_eq(index->rows.n_chunks, BEFORE);
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), before);
                atomic_store(&memory.fail_at, 0);
                ck_ok(dci_index_reserve(index, (BEFORE + 1) * full)); /* there is room in the table for one more */
                dci_rows_shrink(&index->rows, BEFORE * full);
        }
        atomic_store(&memory.fail_at, 0);
        ck_assert_uint_ge(n_failed, 2 * (AFTER - BEFORE));
        ck_assert_uint_eq(index->rows.n_chunks, AFTER);
        n_failed = 0;
        dci_rows_shrink(&index->rows, BEFORE * full);
        for (;; n_failed++) { /* the same where the table has room for all of them */
                atomic_store(&memory.fail_at, atomic_load(&memory.calls) + 1 + n_failed);
                if (dci_index_reserve(index, AFTER * full) == DCI_OK)
                        break;
                ck_assert_uint_eq(index->rows.n_chunks, BEFORE);
        }
        ck_assert_uint_eq(n_failed, 2 * (AFTER - BEFORE));
        atomic_store(&memory.fail_at, 0);
        dci_index_destroy(index);
        dci_context_destroy(own);
        ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index");
        TCase *answers = test_case_with(suite, "answers", 300, context_open_1, context_close),
              *changes = test_case_with(suite, "changes", 300, context_open_1, context_close);
        tcase_add_test(answers, exact_against_double_precision_on_every_isa);
        tcase_add_test(answers, exact_for_every_metric_and_format);
        tcase_add_test(answers, ties_go_to_the_lower_id);
        tcase_add_test(answers, equal_rows_are_all_found_in_id_order);
        tcase_add_test(answers, scales_do_not_lose_rows);
        tcase_add_test(answers, real_trace_is_answered_exactly);
        tcase_add_test(changes, adding_in_any_pieces_equals_adding_at_once);
        tcase_add_test(changes, default_ids_are_never_reused);
        tcase_add_test(changes, any_sequence_of_adds_and_removes_equals_the_model);
        tcase_add_test(changes, removing_gives_memory_back);
        tcase_add_test(changes, a_small_index_is_small);
        tcase_add_test(changes, rows_that_come_beside_a_search_leave_little_behind);
        tcase_add_test(changes, rows_that_find_no_memory_leave_the_chunks_as_they_were);
        return test_main(suite);
}
