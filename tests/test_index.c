/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of the exact index: what it answers. Refusals and faults are in test_index_faults.c, threads in test_index_threads.c. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/npy.h"
#include "tests/index_fixture.h"
#include "tests/naive.h"

static const dci_metric metrics[] = {DCI_METRIC_L2, DCI_METRIC_IP, DCI_METRIC_COSINE};
static const dci_dtype dtypes[] = {DCI_F32, DCI_F16, DCI_BF16};

static void fill_model(naive *model, const dci_index_config *config, size_t n, const float *rows, const int64_t *ids)
{
        float *stored = malloc(n * config->dim * sizeof *stored + 1);
        naive_round(config->dtype, n * config->dim, rows, stored);
        for (size_t i = 0; i < n; i++)
                naive_add(model, stored + i * config->dim, ids != NULL ? ids[i] : (int64_t)i);
        free(stored);
}

/* One shape: every query of one, few and many per call against the model, and all three against each other. */
static void check_shape(dci_context *context, dci_metric metric, dci_dtype dtype, size_t n, size_t dim,
                        size_t n_queries, size_t k)
{
        char what[128];
        snprintf(what, sizeof what, "isa %s metric %d %s n %zu dim %zu k %zu", dci_isa_name(dci_context_isa(context)),
                 metric, dci_dtype_name(dtype), n, dim, k);
        dci_index_config config = index_config(dim, metric, dtype);
        config.add_dtype = config.query_dtype = DCI_F32;
        dci_index *index = NULL;
        ck_ok(dci_index_create(context, &config, &index));
        float *rows = test_normal(n, dim, n * 31 + dim), *queries = test_normal(n_queries, dim, n + dim * 7);
        ck_ok(dci_index_add(index, n, rows, dim, NULL, NULL));
        naive model;
        naive_init(&model, dim, metric);
        fill_model(&model, &config, n, rows, NULL);

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
        free(ids);
        free(scores);
        free(rows);
        free(queries);
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
        dci_isa isas[6];
        size_t n_isas = test_isas(isas);
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_isa(isas[i]);
                for (size_t m = 0; m < 3; m++)
                        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                                check_shape(context, metrics[m], dtypes[(s + m + i) % 3], shapes[s].n, shapes[s].dim,
                                            shapes[s].n_queries, shapes[s].k);
                dci_context_destroy(context);
        }
}
END_TEST

START_TEST(exact_for_every_metric_and_format)
{
        dci_context *context = test_context(1);
        for (size_t m = 0; m < 3; m++)
                for (size_t d = 0; d < 3; d++)
                        check_shape(context, metrics[m], dtypes[d], 1500, 64, 48, 20);
        dci_context_destroy(context);
}
END_TEST

/* Rows on a coarse grid: nearly every score is shared by many rows, so every cut falls inside a tie. */
START_TEST(ties_go_to_the_lower_id)
{
        enum { N = 3000, DIM = 4, K = 50, Q = 40 };
        dci_isa isas[6];
        size_t n_isas = test_isas(isas);
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
                        dci_context *context = test_context_isa(isas[i]);
                        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
                        dci_index *index = NULL;
                        naive model;
                        naive_init(&model, DIM, DCI_METRIC_L2);
                        ck_ok(dci_index_create(context, &config, &index));
                        ck_ok(dci_index_add(index, N, rows, DIM, with_ids ? ids : NULL, NULL));
                        fill_model(&model, &config, N, rows, with_ids ? ids : NULL);
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
                        dci_context_destroy(context);
                }
        }
}
END_TEST

START_TEST(equal_rows_are_all_found_in_id_order)
{
        enum { N = 5000, DIM = 64, K = 900, Q = 20 };
        dci_context *context = test_context(1);
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
        free(ids);
        free(row);
        free(queries);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

/* Lengths over twelve decades: the bounds of the batch proposals must hold at every scale. */
START_TEST(scales_do_not_lose_rows)
{
        enum { N = 600, DIM = 48, Q = 32, K = 12 };
        static const float scales[] = {1e-30f, 1e-18f, 1e-6f, 1.0f, 1e6f, 1e16f};
        dci_context *context = test_context(1);
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
                        free(rows);
                        free(queries);
                        dci_index_destroy(index);
                }
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(real_trace_is_answered_exactly)
{
        dci_context *context = test_context(1);
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
                dci_kernels_scalar.widen[DCI_F16 - 1](keys.data, n * dim, wide);
                fill_model(&model, &config, n, wide, NULL);
                int64_t *ids = malloc(n_queries * k * sizeof *ids);
                float *scores = malloc(n_queries * k * sizeof *scores);
                ck_ok(dci_index_search(index, n_queries, queries.data, stride, k, NULL, ids, scores));
                for (size_t q = 0; q < n_queries; q++) {
                        dci_kernels_scalar.widen[DCI_F16 - 1]((const uint16_t *)queries.data + q * stride, dim, query);
                        naive_check(&model, query, k, NULL, ids + q * k, scores + q * k, "trace");
                }
                free(ids);
                free(scores);
                free(wide);
                naive_free(&model);
                dci_index_destroy(index);
        }
        dci_npy_free(&keys);
        dci_npy_free(&queries);
        dci_context_destroy(context);
}
END_TEST

/* --- ids, add, remove ------------------------------------------------------------------------------------------------ */

START_TEST(adding_in_any_pieces_equals_adding_at_once)
{
        enum { N = 3000, DIM = 24, Q = 20, K = 15 };
        static const size_t pieces[] = {1, 3, 16, 250, 1000};
        dci_context *context = test_context(1);
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
        free(rows);
        free(queries);
        dci_context_destroy(context);
}
END_TEST

START_TEST(default_ids_are_never_reused)
{
        dci_context *context = test_context(1);
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
        dci_context_destroy(context);
}
END_TEST

/* The model plays the same operations; answers, ids and stored rows must agree after each. */
START_TEST(any_sequence_of_adds_and_removes_equals_the_model)
{
        const size_t rounds = getenv("DCI_TEST_LONG") != NULL ? 3000 : 150;
        enum { DIM = 9, K = 6 };
        dci_context *context = test_context(1);
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
                                fill_model(&model, &config, n, rows, ids);
                                next += given ? (int64_t)n * 7 + 1 : (int64_t)n;
                                free(rows);
                                free(ids);
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
                                dci_kernels_scalar.widen[config.dtype - 1](stored, DIM, wide);
                                for (size_t p = 0; p < DIM; p++)
                                        ck_assert(wide[p] == (float)model.rows[at * DIM + p]);
                        }
                        free(query);
                }
                naive_free(&model);
                dci_index_destroy(index);
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(removing_gives_memory_back)
{
        enum { N = 20000, DIM = 64 };
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        dci_memory_report report;
        ck_ok(dci_memory_report_init(&report, sizeof report));
        ck_ok(dci_index_create(context, &config, &index));
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
        free(ids);
        free(rows);
        dci_index_destroy(index);
        dci_context_destroy(context);
        ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
}
END_TEST

START_TEST(a_small_index_is_small)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        dci_index_config config = index_config(64, DCI_METRIC_IP, DCI_F16);
        dci_index *index = NULL;
        float *rows = test_normal(20, 64, 1);
        config.add_dtype = DCI_F32;
        size_t before = atomic_load(&memory.live_bytes);
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, 10, rows, 64, NULL, NULL));
        ck_ok(dci_index_add(index, 10, rows, 64, NULL, NULL)); /* the first chunk grows and its old copy is freed */
        ck_assert_uint_le(atomic_load(&memory.live_bytes) - before, 32 * (64 * 2 + 8) + 2048);
        free(rows);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

/* --- forms of input --------------------------------------------------------------------------------------------------- */

START_TEST(borrowed_rows_equal_owned_rows)
{
        enum { N = 1000, DIM = 21, LD = 23, Q = 24, K = 9 };
        dci_context *context = test_context(1);
        for (size_t m = 0; m < 3; m++) {
                for (size_t d = 0; d < 3; d++) {
                        dci_index_config config = index_config(DIM, metrics[m], dtypes[d]);
                        dci_index *owned = NULL, *borrowed = NULL;
                        float *wide = test_normal(N, LD, 8), *queries = test_normal(Q, DIM, 9);
                        unsigned char *rows = malloc(N * LD * 4);
                        naive_narrow(dtypes[d], N * LD, wide, rows);
                        config.query_dtype = DCI_F32;
                        ck_ok(dci_index_create(context, &config, &owned));
                        config.storage = DCI_ROWS_BORROWED;
                        ck_ok(dci_index_create(context, &config, &borrowed));
                        ck_ok(dci_index_add(owned, N, rows, LD, NULL, NULL));
                        ck_ok(dci_index_add(borrowed, N / 2, rows, LD, NULL, NULL));
                        ck_ok(dci_index_add(borrowed, N / 2, rows + N / 2 * LD * dci_dtype_size(dtypes[d]), LD, NULL,
                                            NULL));
                        int64_t gone[3] = {7, 999, 500}, a[Q * K], b[Q * K];
                        float x[Q * K], y[Q * K];
                        ck_ok(dci_index_remove(owned, 3, gone));
                        ck_ok(dci_index_remove(borrowed, 3, gone));
                        for (size_t n = 1; n <= Q; n += Q - 1) {
                                ck_ok(dci_index_search(owned, n, queries, DIM, K, NULL, a, x));
                                ck_ok(dci_index_search(borrowed, n, queries, DIM, K, NULL, b, y));
                                ck_assert_int_eq(memcmp(a, b, n * K * sizeof *a), 0);
                                ck_assert_int_eq(memcmp(x, y, n * K * sizeof *x), 0);
                        }
                        dci_memory_report report;
                        ck_ok(dci_memory_report_init(&report, sizeof report));
                        ck_ok(dci_index_memory(borrowed, &report));
                        ck_assert_uint_le(report.rows, 1024 * sizeof(void *));
                        free(rows);
                        free(wide);
                        free(queries);
                        dci_index_destroy(owned);
                        dci_index_destroy(borrowed);
                }
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(strides_and_formats_of_input_do_not_matter)
{
        enum { N = 200, DIM = 30, LD = 37, Q = 20, K = 5 };
        dci_context *context = test_context(1);
        float *wide = test_normal(N, LD, 8), *tight = malloc(N * DIM * sizeof *tight);
        uint16_t halves[N * LD];
        naive_round(DCI_F16, N * LD, wide, wide); /* so that both formats hold the same numbers */
        naive_narrow(DCI_F16, N * LD, wide, halves);
        for (size_t i = 0; i < N; i++)
                memcpy(tight + i * DIM, wide + i * LD, DIM * sizeof *tight);
        int64_t want[Q * K], got[Q * K];
        for (int form = 0; form < 3; form++) {
                dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F16);
                config.add_dtype = config.query_dtype = form == 2 ? DCI_F16 : DCI_F32;
                dci_index *index = NULL;
                const void *input = form == 0 ? (const void *)tight : (form == 1 ? (const void *)wide : halves);
                size_t ld = form == 0 ? DIM : LD;
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, N, input, ld, NULL, NULL));
                ck_ok(dci_index_search(index, Q, input, ld, K, NULL, form == 0 ? want : got, NULL));
                if (form > 0)
                        ck_assert_int_eq(memcmp(want, got, sizeof want), 0);
                dci_index_destroy(index);
        }
        free(tight);
        free(wide);
        dci_context_destroy(context);
}
END_TEST

START_TEST(cosine_keeps_zero_rows_when_asked)
{
        dci_context *context = test_context(1);
        dci_index_config config = index_config(3, DCI_METRIC_COSINE, DCI_F32);
        config.zero_rows = DCI_ZERO_KEEP;
        dci_index *index = NULL;
        const float rows[9] = {0, 0, 0, 0, 2, 0, 0, -1, 0}, zero[3] = {0, 0, 0}, query[3] = {0, 5, 0};
        int64_t ids[3];
        float scores[3];
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, 3, rows, 3, NULL, NULL));
        ck_ok(dci_index_search(index, 1, query, 3, 3, NULL, ids, scores));
        ck_assert(ids[0] == 1 && ids[1] == 0 && ids[2] == 2);
        ck_assert(scores[0] == 1.0f && scores[1] == 0.0f && scores[2] == -1.0f);
        ck_ok(dci_index_search(index, 1, zero, 3, 3, NULL, ids, scores));
        ck_assert(ids[0] == 0 && ids[1] == 1 && ids[2] == 2 && scores[2] == 0.0f);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

/* --- filters, range, stats, defaults ------------------------------------------------------------------------------------ */

static bool admits_none(int64_t id)
{
        (void)id;
        return false;
}
static bool admits_third(int64_t id)
{
        return id % 3 == 1;
}
static bool admits_all(int64_t id)
{
        return id >= 0;
}
static int32_t ask(void *ctx, int64_t id)
{
        bool (*admits)(int64_t) = *(bool (**)(int64_t))ctx;
        return admits(id);
}

START_TEST(every_form_of_filter_admits_the_same_rows)
{
        enum { N = 900, DIM = 10, Q = 17, K = 11, FIRST = 100, IDS = FIRST + 2 * N + 1 };
        static bool (*const rules[])(int64_t) = {admits_none, admits_third, admits_all};
        dci_context *context = test_context(1);
        for (int scattered = 0; scattered < 2; scattered++) {
                dci_index_config config = index_config(DIM, DCI_METRIC_IP, DCI_F32);
                dci_index *index = NULL;
                naive model;
                naive_init(&model, DIM, DCI_METRIC_IP);
                float *rows = test_normal(N, DIM, 1), *queries = test_normal(Q, DIM, 2);
                int64_t ids[N], listed[IDS + 8], got[Q * K];
                float scores[Q * K];
                uint64_t bits[IDS / 64 + 1] = {0};
                for (size_t i = 0; i < N; i++)
                        ids[i] = scattered ? (int64_t)(FIRST + 2 * (N - i)) : (int64_t)i;
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, N, rows, DIM, scattered ? ids : NULL, NULL));
                fill_model(&model, &config, N, rows, ids);
                for (size_t rule = 0; rule < 3; rule++) {
                        bool (*admits)(int64_t) = rules[rule];
                        for (int kind = DCI_FILTER_IDS; kind <= DCI_FILTER_CALLBACK; kind++) {
                                dci_filter filter;
                                dci_search_params params;
                                dci_search_stats stats;
                                ck_ok(dci_filter_init(&filter, sizeof filter));
                                ck_ok(dci_search_params_init(&params, sizeof params));
                                ck_ok(dci_search_stats_init(&stats, sizeof stats));
                                filter.kind = kind;
                                memset(bits, 0, sizeof bits);
                                size_t n = 0;
                                for (int64_t id = 1; id < IDS; id++) { /* names ids that do not exist, too */
                                        if (!admits(id))
                                                continue;
                                        listed[n++] = id;
                                        bits[(id - 1) / 64] |= UINT64_C(1) << ((id - 1) % 64);
                                }
                                filter.ids = listed;
                                filter.bits = bits;
                                filter.first_id = 1;
                                filter.n = kind == DCI_FILTER_IDS ? n : (kind == DCI_FILTER_BITMAP ? IDS - 1 : 0);
                                filter.fn = ask;
                                filter.ctx = &admits;
                                params.filter = &filter;
                                params.stats = &stats;
                                size_t admitted = 0;
                                for (size_t i = 0; i < N; i++)
                                        admitted += admits(ids[i]) && (kind == DCI_FILTER_CALLBACK || ids[i] >= 1);
                                for (size_t m = 1; m <= Q; m += Q - 1) {
                                        ck_ok(dci_index_search(index, m, queries, DIM, K, &params, got, scores));
                                        ck_assert_uint_eq(stats.visited, admitted * m);
                                        if (!scattered && rule == 2 && kind != DCI_FILTER_CALLBACK)
                                                continue; /* id 0 is left out by the list, not by the rule */
                                        for (size_t q = 0; q < m; q++)
                                                naive_check(&model, queries + q * DIM, K, admits, got + q * K,
                                                            scores + q * K, "filter");
                                }
                        }
                }
                free(rows);
                free(queries);
                naive_free(&model);
                dci_index_destroy(index);
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(range_search_returns_exactly_the_rows_within)
{
        enum { N = 1200, DIM = 12, Q = 21 };
        dci_context *context = test_context(1);
        for (size_t m = 0; m < 3; m++) {
                dci_index_config config = index_config(DIM, metrics[m], DCI_F32);
                dci_index *index = NULL;
                float *rows = test_normal(N, DIM, 1), *queries = test_normal(Q, DIM, 2);
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
                int64_t *ids = malloc(Q * N * sizeof *ids);
                float *scores = malloc(Q * N * sizeof *scores);
                ck_ok(dci_index_search(index, Q, queries, DIM, N, NULL, ids, scores)); /* everything, in order */
                const float radii[] = {scores[0], scores[N / 3], scores[N - 1], m == 0 ? -1.0f : 1e9f};
                for (size_t r = 0; r < 4; r++) {
                        dci_range_result result;
                        ck_ok(dci_range_result_init(&result, sizeof result));
                        ck_ok(dci_index_range_search(index, Q, queries, DIM, radii[r], NULL, &result));
                        ck_assert_uint_eq(result.n_queries, Q);
                        for (size_t q = 0; q < Q; q++) {
                                size_t n = 0;
                                while (n < N &&
                                       (m == 0 ? scores[q * N + n] <= radii[r] : scores[q * N + n] >= radii[r]))
                                        n++;
                                size_t at = result.offsets[q];
                                ck_assert_uint_eq(result.offsets[q + 1] - at, n);
                                ck_assert_int_eq(memcmp(result.ids + at, ids + q * N, n * sizeof *ids), 0);
                                ck_assert_int_eq(memcmp(result.scores + at, scores + q * N, n * sizeof *scores), 0);
                        }
                        dci_range_result_free(&result);
                        ck_assert_ptr_null(result.ids);
                        dci_range_result_free(&result);
                }
                free(ids);
                free(scores);
                free(rows);
                free(queries);
                dci_index_destroy(index);
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(an_empty_index_answers_with_padding)
{
        dci_context *context = test_context(1);
        dci_index_config config = index_config(3, DCI_METRIC_IP, DCI_F32);
        dci_index *index = NULL;
        float queries[40 * 3] = {1, 2, 3}, scores[40 * 2];
        int64_t ids[40 * 2];
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_search(index, 40, queries, 3, 2, NULL, ids, scores));
        for (size_t i = 0; i < 80; i++)
                ck_assert(ids[i] == -1 && isnan(scores[i]));
        dci_range_result result;
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_ok(dci_index_range_search(index, 2, queries, 3, 0.0f, NULL, &result));
        ck_assert_uint_eq(result.offsets[2], 0);
        dci_range_result_free(&result);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

START_TEST(stats_and_defaults_are_kept)
{
        enum { N = 500, DIM = 16, Q = 32 };
        dci_context *context = test_context(1);
        dci_index_config config = index_config(DIM, DCI_METRIC_IP, DCI_F32);
        dci_index *index = NULL;
        dci_search_params params;
        dci_search_stats stats;
        int64_t ids[Q * 3];
        float *rows = test_normal(N, DIM, 1);
        ck_ok(dci_search_params_init(&params, sizeof params));
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        ck_ok(dci_index_create(context, &config, &index));
        params.prop_to_visit = 0.25;
        ck_ok(dci_index_set_defaults(index, &params));
        params.prop_to_visit = 1.0;
        ck_ok(dci_index_get_defaults(index, &params));
        ck_assert(params.prop_to_visit == 0.25 && params.prop_to_retrieve == 1.0);
        ck_ok(dci_index_add(index, N, rows, DIM, NULL, NULL));
        params.stats = &stats;
        ck_ok(dci_index_search(index, 1, rows, DIM, 3, &params, ids, NULL));
        ck_assert_uint_eq(stats.visited, N);
        ck_assert_uint_eq(stats.distances, N);
        ck_assert_uint_eq(stats.proposed, 0);
        ck_ok(dci_index_search(index, Q, rows, DIM, 3, &params, ids, NULL));
        ck_assert_uint_eq(stats.queries, Q);
        ck_assert_uint_eq(stats.visited, N * Q);
        ck_assert_uint_eq(stats.proposed, N * Q);
        ck_assert_uint_ge(stats.distances, 3 * Q);
        ck_assert_uint_lt(stats.distances, N * Q / 2);
        free(rows);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index");
        TCase *answers = tcase_create("answers"), *changes = tcase_create("changes"), *forms = tcase_create("forms");
        tcase_set_timeout(answers, 300);
        tcase_set_timeout(changes, 300);
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
        tcase_add_test(forms, borrowed_rows_equal_owned_rows);
        tcase_add_test(forms, strides_and_formats_of_input_do_not_matter);
        tcase_add_test(forms, cosine_keeps_zero_rows_when_asked);
        tcase_add_test(forms, every_form_of_filter_admits_the_same_rows);
        tcase_add_test(forms, range_search_returns_exactly_the_rows_within);
        tcase_add_test(forms, an_empty_index_answers_with_padding);
        tcase_add_test(forms, stats_and_defaults_are_kept);
        suite_add_tcase(suite, answers);
        suite_add_tcase(suite, changes);
        suite_add_tcase(suite, forms);
        return test_main(suite);
}
