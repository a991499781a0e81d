/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* K-means of rows that are far from each other beside what lies between some of them: lengths must not take the digits that decide. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/kmeans_fixture.h"

enum { N = 1500, DIM = 8, K = 40 };

static const float fars[] = {10.0f, 100.0f, 1000.0f, 3000.0f, 1e4f, 1e5f};

static dci_context *context;

static void setup(void)
{
        context = test_context(2);
}

static void teardown(void)
{
        dci_context_destroy(context);
}

static double distance2(const float *a, const float *b, size_t dim)
{
        double sum = 0.0;
        for (size_t j = 0; j < dim; j++)
                sum += ((double)a[j] - (double)b[j]) * ((double)a[j] - (double)b[j]);
        return sum;
}

/* Two groups of normal rows, `far` from the origin on both sides of it; in turns. */
static float *two_groups(size_t n, float far, uint64_t seed)
{
        float *rows = test_normal(n, DIM, seed);
        for (size_t i = 0; i < n; i++)
                rows[i * DIM + DIM - 1] += i % 2 == 0 ? far : -far;
        return rows;
}

/* From the first K rows on. */
static kmeans_out cluster(const float *rows, size_t n_iter, double tolerance)
{
        dci_kmeans_config config = kmeans_config(2, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, rows);
        config.init = DCI_KMEANS_INIT_GIVEN;
        config.n_iter = n_iter;
        config.tolerance = tolerance;
        input.centroids = rows;
        return kmeans_run(context, &config, &input);
}

/* Loops over how far. */
START_TEST(labels_of_groups_far_apart_name_the_nearest_centroid_and_become_stable)
{
        float *rows = two_groups(N, fars[_i], 1);
        kmeans_out out = cluster(rows, 200, 0.0);
        const float *centroids = out.result.centroids;
        ck_assert_int_eq(out.result.reports->stop, DCI_KMEANS_STOP_STABLE);
        for (size_t i = 0; i < N; i++) {
                const double own = distance2(rows + i * DIM, centroids + (size_t)out.result.labels[i] * DIM, DIM);
                for (size_t c = 0; c < K; c++)
                        test_hold(own <= distance2(rows + i * DIM, centroids + c * DIM, DIM) * (1.0 + 0x1p-20));
        }
        kmeans_out_free(&out);
        free(rows);
}
END_TEST

/* Loops over how far, by distance and by inner product: a row that lies on a centre is not drawn again while others lie on none. */
START_TEST(drawn_starts_in_groups_far_apart_are_all_the_different_rows)
{
        enum { DIFFERENT = 128 };
        const float far = fars[_i / 2];
        float *rows = two_groups(N, far, 3);
        for (size_t i = DIFFERENT; i < N; i++)
                memcpy(rows + i * DIM, rows + (i - DIFFERENT) * DIM, DIM * sizeof *rows);
        dci_kmeans_config config = kmeans_config(2 + (size_t)_i % 2, DCI_F32, DIM, DIFFERENT);
        dci_kmeans_input input = kmeans_input(N, rows);
        config.init = DCI_KMEANS_INIT_PLUSPLUS;
        config.n_iter = 0;
        kmeans_out out = kmeans_run(context, &config, &input);
        for (size_t i = 0; i < DIFFERENT; i++) {
                double least = INFINITY;
                for (size_t c = 0; c < DIFFERENT; c++)
                        least = fmin(least, distance2(rows + i * DIM, out.result.centroids + c * DIM, DIM));
                ck_assert_msg(least <= pow(1e-6 * (double)far, 2), "row %zu is no centroid", i);
        }
        kmeans_out_free(&out);
        free(rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans far laws");
        TCase *laws = tcase_create("laws");
        const int n_fars = (int)COUNT(fars);
        tcase_set_timeout(laws, 120);
        tcase_add_checked_fixture(laws, setup, teardown);
        tcase_add_loop_test(laws, labels_of_groups_far_apart_name_the_nearest_centroid_and_become_stable, 0, n_fars);
        tcase_add_loop_test(laws, drawn_starts_in_groups_far_apart_are_all_the_different_rows, 0, 2 * n_fars);
        suite_add_tcase(suite, laws);
        return test_main(suite);
}
