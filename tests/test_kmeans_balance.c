/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* K-means with a capacity: no cluster beyond it, whatever the rows; what it costs is reported. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/kmeans_fixture.h"

enum { DIM = TRACE_DIM };

/* Runs, and reads it: the laws see to sizes, sums and the objective; the library's check to the capacity once more. */
static kmeans_out balanced(const dci_kmeans_config *config, const dci_kmeans_input *input, const char *what)
{
        kmeans_out out = kmeans_lawful(context, config, input, what);
        for (size_t p = 0; p < out.n_problems; p++) {
                const dci_kmeans_report *r = &out.result.reports[p];
                ck_assert_msg(!kmeans_worse(config->metric, r->objective_free, r->objective,
                                            1e-6 * kmeans_scale(config, input, &out, p)),
                              "%s: free %.12g, balanced %.12g", what, r->objective_free, r->objective);
                ck_assert_uint_le(r->largest, config->capacity);
        }
        return out;
}

static const struct {
        size_t n, k, capacity;
} shapes[] = {{1, 1, 1},     {12, 3, 4},     {64, 64, 1},    {100, 7, 15},   {256, 8, 32},  {257, 9, 29},
              {300, 10, 31}, {1000, 4, 250}, {1000, 63, 16}, {777, 50, 400}, {960, 30, 32}, {960, 33, 30}};

/* Loops over shapes and forms. Some of them leave no place free. */
START_TEST(no_cluster_has_more_rows_than_its_capacity)
{
        const size_t form = (size_t)_i % KMEANS_FORMS, n = shapes[_i / KMEANS_FORMS].n;
        float *keys = pdci_trace("keys", n);
        for (size_t d = 0; d < COUNT(all_dtypes); d++) {
                void *rows = kmeans_narrow(all_dtypes[d], n * DIM, keys);
                for (size_t init = 0; init < COUNT(kmeans_inits); init++)
                        for (int32_t mean = DCI_MEAN_NONE; mean <= (n > 1 ? DCI_MEAN_OWN : DCI_MEAN_NONE); mean++) {
                                dci_kmeans_config config =
                                        kmeans_config(form, all_dtypes[d], DIM, shapes[_i / KMEANS_FORMS].k);
                                dci_kmeans_input input = kmeans_input(n, rows);
                                config.capacity = shapes[_i / KMEANS_FORMS].capacity;
                                config.init = kmeans_inits[init];
                                config.subtract_mean = mean;
                                config.n_iter = 6;
                                input.values = rows;
                                input.value_dim = DIM;
                                input.value_dtype = all_dtypes[d];
                                kmeans_out out = balanced(&config, &input, kmeans_forms[form].name);
                                kmeans_out_free(&out);
                        }
                free(rows);
        }
        free(keys);
}
END_TEST

/* Loops over forms. A blob that half of the rows belong to is larger than any cluster may be. */
START_TEST(lopsided_rows_fit_too)
{
        enum { N = 1000, K = 20, LONG = 16 };
        float *rows = kmeans_blobs(N, LONG, 25, 8.0f, 3);
        for (size_t i = 0; i < N * LONG; i++) /* every other row next to the first */
                if (i / LONG % 2 == 0)
                        rows[i] = rows[i % LONG] + 0.01f * rows[i];
        for (size_t capacity = N / K; capacity <= 2 * N / K; capacity += N / K) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, LONG, K);
                dci_kmeans_input input = kmeans_input(N, rows);
                config.capacity = capacity;
                config.init =
                        DCI_KMEANS_INIT_EVEN; /* on odd rows, so that those alike are not divided from the start */
                kmeans_out out = balanced(&config, &input, "lopsided");
                ck_assert_uint_eq(out.result.reports->largest, capacity);
                if (capacity == N / K)
                        ck_assert_uint_eq(out.result.reports->n_empty, 0);
                kmeans_out_free(&out);
        }
        free(rows);
}
END_TEST

/* Loops over forms. */
START_TEST(rows_that_are_all_alike_are_spread_over_clusters)
{
        enum { N = 96, LONG = 5 };
        float rows[N * LONG];
        for (size_t i = 0; i < N * LONG; i++)
                rows[i] = 1.0f + (float)(i % LONG);
        for (size_t k = 1; k <= N; k *= k < 6 ? 6 : 4)
                for (size_t init = 0; init < COUNT(kmeans_inits); init++) {
                        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, LONG, k);
                        dci_kmeans_input input = kmeans_input(N, rows);
                        config.capacity = (N + k - 1) / k;
                        config.init = kmeans_inits[init];
                        kmeans_out out = balanced(&config, &input, "all alike");
                        if (N % k == 0)
                                for (size_t c = 0; c < k; c++)
                                        test_hold((size_t)out.result.sizes[c] == N / k);
                        kmeans_out_free(&out);
                }
}
END_TEST

/* Loops over forms. Also where the capacity is not reached. */
START_TEST(a_capacity_that_holds_all_rows_changes_nothing)
{
        enum { N = 900, K = 20 };
        float *keys = pdci_trace("keys", N);
        for (size_t init = 0; init < COUNT(kmeans_inits); init++) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, keys);
                config.init = kmeans_inits[init];
                config.n_iter = 10;
                kmeans_out plain = kmeans_run(context, &config, &input);
                for (size_t capacity = N; capacity < 3 * N; capacity += N + 5) {
                        config.capacity = capacity;
                        kmeans_out out = balanced(&config, &input, "room for all");
                        /* A report without capacity need not fill in what is the same. */
                        out.result.reports->objective_free = plain.result.reports->objective_free;
                        kmeans_same(&plain, 0, &out, 0, 1, "room for all");
                        kmeans_out_free(&out);
                }
                kmeans_out_free(&plain);
        }
        free(keys);
}
END_TEST

/* Loops over forms but IP. Each row has a cluster of its own, and starts there. */
START_TEST(capacity_1_with_as_many_clusters_as_rows_fits_perfectly)
{
        enum { N = 130 };
        float *keys = pdci_trace("keys", N);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, N);
        dci_kmeans_input input = kmeans_input(N, keys);
        config.capacity = 1;
        kmeans_out out = balanced(&config, &input, "capacity 1");
        const double wanted = config.metric == DCI_METRIC_L2 ? 0.0 : N;
        ck_assert_double_le(fabs(out.result.reports->objective - wanted),
                            1e-6 * kmeans_scale(&config, &input, &out, 0));
        for (size_t c = 0; c < N; c++)
                test_hold(out.result.sizes[c] == 1);
        kmeans_out_free(&out);
        free(keys);
}
END_TEST

/* Loops over forms but IP: a quarter of room to spare costs little on real keys, and an assignment that moved rows about at
 * random would lose most of what clusters gain. */
START_TEST(room_to_spare_costs_little)
{
        enum { N = 2000, K = 50 };
        float *keys = pdci_trace("keys", N);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        config.subtract_mean = DCI_MEAN_OWN;
        kmeans_out free_one = kmeans_run(context, &config, &input);
        config.n_clusters = 1;
        kmeans_out single = kmeans_run(context, &config, &input);
        config.n_clusters = K;
        config.capacity = N / K * 5 / 4;
        kmeans_out out = balanced(&config, &input, "a quarter to spare");
        const double none = single.result.reports->objective, gain = free_one.result.reports->objective - none,
                     kept = out.result.reports->objective - none;
        ck_assert_msg(kept / gain >= 0.7, "%g of %g", kept, gain);
        ck_assert(kmeans_worse(config.metric, out.result.reports->objective, out.result.reports->objective_free, 0.0));
        kmeans_out_free(&free_one);
        kmeans_out_free(&single);
        kmeans_out_free(&out);
        free(keys);
}
END_TEST

/* Loops over forms. */
START_TEST(threads_and_other_problems_change_nothing)
{
        enum { P = 6, N = 1000, K = 30 };
        static const int32_t threads[] = {1, 2, 3, 5};
        float *keys = pdci_trace("keys", P * N);
        void *rows = kmeans_narrow(DCI_F16, P * N * DIM, keys);
        for (size_t n_problems = 1; n_problems <= P; n_problems += P - 1) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F16, DIM, n_problems == 1 ? 100 : K);
                dci_kmeans_input input = kmeans_input(P * N / n_problems, rows);
                kmeans_out first = {0};
                config.capacity = (input.n + config.n_clusters - 1) / config.n_clusters + 3;
                config.n_iter = 5;
                config.n_redo = 2;
                input.n_problems = n_problems;
                for (size_t t = 0; t < COUNT(threads); t++) {
                        dci_context *own = test_context(threads[t]);
                        kmeans_out out = kmeans_run(own, &config, &input);
                        dci_context_destroy(own);
                        if (t == 0) {
                                first = out;
                                kmeans_obey(&config, &input, &first, "problems");
                                continue;
                        }
                        kmeans_same(&first, 0, &out, 0, n_problems, "threads");
                        kmeans_out_free(&out);
                }
                for (size_t p = 0; n_problems > 1 && p < P; p++) {
                        dci_kmeans_input one = kmeans_input(N, (const uint16_t *)rows + p * N * DIM);
                        one.first_problem = p;
                        kmeans_out out = kmeans_run(context, &config, &one);
                        kmeans_same(&first, p, &out, 0, 1, "alone");
                        kmeans_out_free(&out);
                }
                kmeans_out_free(&first);
        }
        test_free(keys, rows);
}
END_TEST

/* Loops over forms. With rounds or none: the last assignment is balanced in any case. */
START_TEST(warm_starts_and_segments_keep_to_the_capacity)
{
        enum { N = 640, K = 20 };
        float *keys = pdci_trace("keys", N);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        config.capacity = N / K;
        kmeans_out cold = balanced(&config, &input, "cold");
        config.init = DCI_KMEANS_INIT_GIVEN;
        input.centroids = cold.result.centroids;
        for (config.n_iter = 0; config.n_iter <= 2; config.n_iter++) {
                kmeans_out warm = balanced(&config, &input, "warm");
                kmeans_out_free(&warm);
        }
        input.centroids = NULL;
        config.init = DCI_KMEANS_INIT_RANDOM;
        for (config.segment_rows = 64; config.segment_rows <= N; config.segment_rows += 192)
                for (config.n_iter_global = 0; config.n_iter_global <= 2; config.n_iter_global += 2) {
                        kmeans_out out = balanced(&config, &input, "segments");
                        kmeans_out_free(&out);
                }
        kmeans_out_free(&cold);
        free(keys);
}
END_TEST

/* Loops over forms. All clusters together hold all rows, but the two that a segment of 32 rows gets hold 30; some segments get none. */
START_TEST(segments_may_have_more_rows_than_their_share_holds)
{
        static const size_t cases[][3] = {{100, 7, 15}, {1000, 63, 16}, {500, 3, 167}};
        for (size_t i = 0; i < COUNT(cases); i++) {
                float *keys = pdci_trace("keys", cases[i][0]);
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, cases[i][1]);
                dci_kmeans_input input = kmeans_input(cases[i][0], keys);
                config.capacity = cases[i][2];
                config.segment_rows = 32;
                for (config.n_iter_global = 0; config.n_iter_global <= 2; config.n_iter_global++) {
                        kmeans_out out = balanced(&config, &input, "shares");
                        kmeans_out_free(&out);
                }
                free(keys);
        }
}
END_TEST

/* Loops over both forms of COSINE, all rows at once and in segments: with room to spare, bounded clusters are nearly as good as
 * unbounded ones, and all of them are used. */
START_TEST(a_capacity_with_room_to_spare_costs_little)
{
        enum { N = 4096, K = 410 };
        float *keys = pdci_trace("keys", N);
        for (size_t segments = 0; segments < 2; segments++) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, keys);
                config.segment_rows = segments * 1024;
                kmeans_out plain = kmeans_run(context, &config, &input);
                config.capacity = 16;
                kmeans_out out = balanced(&config, &input, "room to spare");
                ck_assert_uint_eq(out.result.reports->n_empty, 0);
                ck_assert_double_ge(out.result.reports->objective, 0.99 * plain.result.reports->objective);
                ck_assert_double_ge(out.result.reports->objective, 0.999 * out.result.reports->objective_free);
                kmeans_out_free(&out);
                kmeans_out_free(&plain);
        }
        free(keys);
}
END_TEST

/* Loops over both forms of COSINE. The header gives rows without direction label 0: as many as there is room for. */
START_TEST(rows_without_direction_keep_to_the_capacity)
{
        enum { N = 200, K = 10 };
        float *keys = pdci_trace("keys", N);
        for (size_t n_zero = 10; n_zero <= 20; n_zero += 10) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, keys);
                memset(keys + 20 * DIM, 0, n_zero * DIM * sizeof *keys);
                config.zero_rows = DCI_ZERO_KEEP;
                config.capacity = 25;
                kmeans_out out = balanced(&config, &input, "zero rows");
                kmeans_out_free(&out);
        }
        free(keys);
}
END_TEST

/* Memory that says so where it is read before it is written: NaN. */
static void *filled_alloc(void *ctx, size_t size, size_t alignment)
{
        (void)ctx;
        void *pointer = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        return pointer == NULL ? NULL : memset(pointer, 0xFF, size);
}
static void filled_free(void *ctx, void *pointer, size_t size)
{
        (void)ctx, (void)size;
        free(pointer);
}

/* Loops over both forms of COSINE. A cluster that is divided may have parts of such rows alone, which have no mean to be a centroid. */
START_TEST(parts_of_rows_without_direction_have_centroids_too)
{
        enum { N = 200, K = 10 };
        dci_context_config filled;
        dci_context *other = NULL;
        ck_ok(dci_context_config_init(&filled, sizeof filled));
        filled.allocator = (dci_allocator){NULL, filled_alloc, filled_free};
        filled.executor_kind = DCI_EXECUTOR_PTHREADS;
        ck_ok(dci_context_create(&filled, &other));
        float *keys = pdci_trace("keys", N);
        for (size_t n_zero = 60; n_zero <= 180; n_zero += 40) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, keys);
                memset(keys + 20 * DIM, 0, n_zero * DIM * sizeof *keys);
                config.zero_rows = DCI_ZERO_KEEP;
                config.capacity = 25;
                kmeans_out out = kmeans_run(other, &config, &input);
                kmeans_out_free(&out);
        }
        free(keys);
        dci_context_destroy(other);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans balance");
        TCase *balance = test_case_with(suite, "balance", 120, context_open_2, context_close);
        tcase_add_loop_test(balance, no_cluster_has_more_rows_than_its_capacity, 0, KMEANS_FORMS * COUNT(shapes));
        tcase_add_loop_test(balance, lopsided_rows_fit_too, 0, KMEANS_FORMS);
        tcase_add_loop_test(balance, rows_that_are_all_alike_are_spread_over_clusters, 0, KMEANS_FORMS);
        tcase_add_loop_test(balance, a_capacity_that_holds_all_rows_changes_nothing, 0, KMEANS_FORMS);
        tcase_add_loop_test(balance, capacity_1_with_as_many_clusters_as_rows_fits_perfectly, 0, 3);
        tcase_add_loop_test(balance, room_to_spare_costs_little, 0, 3);
        tcase_add_loop_test(balance, threads_and_other_problems_change_nothing, 0, KMEANS_FORMS);
        tcase_add_loop_test(balance, warm_starts_and_segments_keep_to_the_capacity, 0, KMEANS_FORMS);
        tcase_add_loop_test(balance, segments_may_have_more_rows_than_their_share_holds, 0, KMEANS_FORMS);
        tcase_add_loop_test(balance, a_capacity_with_room_to_spare_costs_little, 0, 2);
        tcase_add_loop_test(balance, rows_without_direction_keep_to_the_capacity, 0, 2);
        tcase_add_loop_test(balance, parts_of_rows_without_direction_have_centroids_too, 0, 2);
        return test_main(suite);
}
