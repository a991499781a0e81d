/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* K-means of rows that are far from each other compared with the distances of some: lengths must not take the digits that decide. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/kmeans_fixture.h"

enum { N = 1500, DIM = 8, K = 40 };

static const float fars[] = {10.0f, 100.0f, 1000.0f, 3000.0f, 1e4f, 1e5f};

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

/* Each row with the nearest of these centroids. */
static double best_objective(const float *rows, const float *centroids)
{
        double sum = 0.0;
        for (size_t i = 0; i < N; i++) {
                double least = INFINITY;
                for (size_t c = 0; c < K; c++)
                        least = fmin(least, distance2(rows + i * DIM, centroids + c * DIM, DIM));
                sum += least;
        }
        return sum;
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

/* Loops over how far. What a round begins with is what a call of so many rounds returns. */
START_TEST(rounds_over_groups_far_apart_report_the_objective_of_their_assignment)
{
        enum { ROUNDS = 5 };
        float *rows = two_groups(N, fars[_i], 2);
        kmeans_out all = cluster(rows, ROUNDS, 0.0);
        ck_assert_uint_eq(all.result.reports->n_recorded, ROUNDS);
        for (size_t i = 0; i < ROUNDS; i++) {
                kmeans_out out = cluster(rows, i, 0.0);
                const double wanted = best_objective(rows, out.result.centroids);
                ck_assert_uint_eq(all.rounds[i].n_empty, 0);
                ck_assert_double_le(fabs(out.result.reports->objective - wanted), 1e-5 * wanted);
                ck_assert_msg(fabs(all.rounds[i].objective - wanted) <= 1e-3 * wanted, "round %zu: %.9g, not %.9g", i,
                              all.rounds[i].objective, wanted);
                kmeans_out_free(&out);
        }
        kmeans_out_free(&all);
        free(rows);
}
END_TEST

/* Loops over how far. */
START_TEST(a_tolerance_ends_no_run_that_still_gains)
{
        for (uint64_t seed = 0; seed < 10; seed++) {
                float *rows = two_groups(N, fars[_i], 10 + seed);
                kmeans_out whole = cluster(rows, 200, 0.0), soon = cluster(rows, 200, 1e-3);
                ck_assert_int_eq(soon.result.reports->stop, DCI_KMEANS_STOP_TOLERANCE);
                ck_assert_double_le(soon.result.reports->objective, 1.02 * whole.result.reports->objective);
                kmeans_out_free(&whole);
                kmeans_out_free(&soon);
                free(rows);
        }
}
END_TEST

/* Loops over how far, by distance and by inner product: a row that is on a centre is not drawn again while others lie on none. */
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

/* Loops over metrics. Row 0 has a centroid of its own; the others lie about three of the axes, and go with those. */
START_TEST(one_row_far_from_all_changes_no_other_label)
{
        static const float lengths[] = {1e4f, 1e6f, 1e8f, 1e9f, 1e12f, 1e15f};
        enum { AXES = 4 };
        float *rows = test_normal(N, AXES, 4), given[AXES * AXES] = {0};
        dci_kmeans_config config = kmeans_config(2 + (size_t)_i, DCI_F32, AXES, AXES);
        dci_kmeans_input input = kmeans_input(N, rows);
        for (size_t i = 0; i < N; i++)
                for (size_t j = 0; j < AXES; j++)
                        rows[i * AXES + j] = 0.03f * rows[i * AXES + j] + (j == i % 3 ? 1.0f : 0.0f);
        for (size_t i = 0; i < N; i++)
                rows[i * AXES + 3] = -1.0f; /* under IP, too, none goes with row 0 */
        for (size_t c = 0; c < 3; c++)
                given[c * AXES + c] = 1.0f;
        memset(rows, 0, AXES * sizeof *rows);
        config.init = DCI_KMEANS_INIT_GIVEN;
        input.centroids = given;
        for (size_t l = 0; l < COUNT(lengths); l++) {
                rows[3] = given[3 * AXES + 3] = lengths[l];
                kmeans_out out = kmeans_run(context, &config, &input);
                ck_assert_int_eq(out.result.labels[0], 3);
                for (size_t i = 1; i < N; i++)
                        ck_assert_msg(out.result.labels[i] == (int32_t)(i % 3), "length %g: label %zu is %d",
                                      (double)lengths[l], i, out.result.labels[i]);
                kmeans_out_free(&out);
        }
        free(rows);
}
END_TEST

/* Loops over how many. A few rows are far shorter than the others, which have a large mean; what is between the short ones decides
 * their labels. */
START_TEST(a_mean_far_from_a_few_rows_leaves_them_their_labels)
{
        enum { PLACES = 2 };
        const size_t step = _i == 0 ? N / 40 : N / 4;
        float *rows = test_normal(N, PLACES, 5), given[3 * PLACES] = {1, 0, -1, 0, 1e8f, 1e8f};
        dci_kmeans_config config = kmeans_config(2, DCI_F32, PLACES, 3);
        dci_kmeans_input input = kmeans_input(N, rows);
        for (size_t i = 0; i < N; i++)
                for (size_t j = 0; j < PLACES; j++)
                        if (i % step != 0)
                                rows[i * PLACES + j] = 1e8f + 1e3f * rows[i * PLACES + j];
                        else
                                rows[i * PLACES + j] = 0.1f * rows[i * PLACES + j] + (j > 0        ? 0.0f
                                                                                      : i % 2 == 0 ? 1.0f
                                                                                                   : -1.0f);
        config.init = DCI_KMEANS_INIT_GIVEN;
        config.n_iter = 3;
        input.centroids = given;
        kmeans_out out = kmeans_run(context, &config, &input);
        for (size_t i = 0; i < N; i++)
                test_hold(out.result.labels[i] == (i % step != 0 ? 2 : (int32_t)(i % 2)));
        kmeans_out_free(&out);
        free(rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans far laws");
        TCase *laws = test_case_with(suite, "laws", 120, context_open_2, context_close);
        const int n_fars = (int)COUNT(fars);
        tcase_add_loop_test(laws, labels_of_groups_far_apart_name_the_nearest_centroid_and_become_stable, 0, n_fars);
        tcase_add_loop_test(laws, rounds_over_groups_far_apart_report_the_objective_of_their_assignment, 0, n_fars);
        tcase_add_loop_test(laws, a_tolerance_ends_no_run_that_still_gains, 0, n_fars);
        tcase_add_loop_test(laws, drawn_starts_in_groups_far_apart_are_all_the_different_rows, 0, 2 * n_fars);
        tcase_add_loop_test(laws, one_row_far_from_all_changes_no_other_label, 0, 2);
        tcase_add_loop_test(laws, a_mean_far_from_a_few_rows_leaves_them_their_labels, 0, 2);
        return test_main(suite);
}
