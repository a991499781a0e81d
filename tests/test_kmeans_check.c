/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci_kmeans_check: each kind of damage to a result is found, with problem, array, place and both values. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kmeans_fixture.h"

enum { N = 40, DIM = 3, K = 5, P = 2, FIRST_ROW = 100, FIRST_CLUSTER = 50 };

static dci_context *context;
static dci_kmeans_config config;
static dci_kmeans_input input;
static kmeans_out out;
static float *rows;

/* Clusters of 8 rows each: 0, 5, 10 ... ; the damage is done to problem 1. */
static void setup(void)
{
        context = test_context(1);
        rows = kmeans_blobs(P * N, DIM, K, 20.0f, 1);
        for (size_t i = 0; i < P * N * DIM; i++) /* along different axes and signs: far apart by any metric */
                rows[i] = rows[i] * 0.001f + (i % DIM == i / DIM % K % DIM ? (i / DIM % K < 3 ? 10.0f : -10.0f) : 0.0f);
        config = kmeans_config(0, DCI_F32, DIM, K);
        input = kmeans_input(N, rows);
        input.n_problems = P;
        input.first_row = FIRST_ROW;
        input.first_cluster = FIRST_CLUSTER;
        config.init = DCI_KMEANS_INIT_PLUSPLUS;
        out = kmeans_run(context, &config, &input);
        for (size_t c = 0; c < P * K; c++)
                ck_assert_int_eq(out.result.sizes[c], N / K);
}

static void teardown(void)
{
        kmeans_out_free(&out);
        free(rows);
        dci_context_destroy(context);
}

/* Writes a number, wants it found in these words, and puts back what was there. */
static void damaged(int32_t *place, int32_t number, const char *part)
{
        const int32_t kept = *place;
        *place = number;
        ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_FORMAT, part);
        ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_FORMAT, "problem 1");
        *place = kept;
        ck_ok(dci_kmeans_check(context, &config, &input, &out.result));
}

static void damaged_float(float *place, float number, const char *part)
{
        const float kept = *place;
        *place = number;
        ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_FORMAT, part);
        *place = kept;
        ck_ok(dci_kmeans_check(context, &config, &input, &out.result));
}

START_TEST(labels_out_of_range_or_of_another_cluster_are_found)
{
        int32_t *labels = out.result.labels + N;
        damaged(labels + 7, FIRST_CLUSTER - 1, "label of row 7 is 49, expected 50 to 54");
        damaged(labels + 7, FIRST_CLUSTER + K, "label of row 7 is 55, expected 50 to 54");
        damaged(labels, INT32_MIN, "label of row 0");
        damaged(labels + N - 1, INT32_MAX, "label of row 39");
        damaged(labels + 7, labels[8], "cluster");
        /* Two rows that change places keep every size; only ids tell. */
        const int32_t third = labels[3], fourth = labels[4];
        labels[3] = fourth;
        labels[4] = third;
        ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_FORMAT, "its label is");
        labels[3] = third;
        labels[4] = fourth;
        ck_ok(dci_kmeans_check(context, &config, &input, &out.result));
}
END_TEST

START_TEST(ids_that_are_no_permutation_or_in_disorder_are_found)
{
        int32_t *ids = out.result.ids + N;
        damaged(ids + 5, FIRST_ROW - 1, "id 5 is 99, expected 100 to 139");
        damaged(ids + 5, FIRST_ROW + N, "id 5 is 140, expected 100 to 139");
        damaged(ids, INT32_MIN, "id 0");
        damaged(ids + N - 1, INT32_MAX, "id 39");
        damaged(ids + 6, ids[5], "occurs twice");
        for (size_t at = 9; at <= 15; at += 6) { /* within a cluster, and its last two */
                const int32_t kept = ids[at - 1];
                char part[50];
                snprintf(part, sizeof part, "id %d follows %d within cluster", kept, ids[at]);
                ids[at - 1] = ids[at];
                const int32_t after = ids[at];
                ids[at] = kept;
                ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_FORMAT, part);
                ids[at] = after;
                ids[at - 1] = kept;
        }
        /* Between two clusters: by labels, or else by order. */
        const int32_t a = ids[7], b = ids[8];
        ids[7] = b;
        ids[8] = a;
        ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_FORMAT, "id");
        ids[7] = a;
        ids[8] = b;
        ck_ok(dci_kmeans_check(context, &config, &input, &out.result));
}
END_TEST

START_TEST(sizes_and_offsets_that_disagree_are_found)
{
        int32_t *sizes = out.result.sizes + K, *offsets = out.result.offsets + K + 1;
        damaged(sizes + 2, 9, "size of cluster 2 is 9, expected 8");
        damaged(sizes + 2, -8, "size of cluster 2 is -8, expected 8");
        damaged(offsets, FIRST_ROW - 1, "offsets run from 99");
        damaged(offsets + K, FIRST_ROW + N + 1, "to 141");
        damaged(offsets + 2, offsets[2] + 1, "cluster 1 has 8 rows by labels, 9 by offsets");
        damaged(offsets + 2, offsets[1] - 1, "offset 2 is");
        damaged(offsets + 2, INT32_MAX, "offset");
        damaged(offsets + 2, INT32_MIN, "offset");
}
END_TEST

START_TEST(centroids_and_means_that_are_no_numbers_or_zero_are_found)
{
        float *centroid = out.result.centroids + (K + 3) * DIM, *mean = out.result.means + (K + 3) * DIM;
        damaged_float(centroid + 1, NAN, "problem 1: centroid 3");
        damaged_float(centroid + 1, -INFINITY, "problem 1: centroid 3");
        damaged_float(mean + DIM - 1, NAN, "problem 1: mean 3");
        damaged_float(mean, INFINITY, "problem 1: mean 3");
        float kept[DIM];
        memcpy(kept, mean, sizeof kept);
        memset(mean, 0, sizeof kept); /* a mean may be zero */
        ck_ok(dci_kmeans_check(context, &config, &input, &out.result));
        memcpy(mean, kept, sizeof kept);
        memcpy(kept, centroid, sizeof kept);
        memset(centroid, 0, sizeof kept);
        ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_FORMAT, "centroid 3 is zero");
        config.metric = DCI_METRIC_L2;
        ck_ok(dci_kmeans_check(context, &config, &input, &out.result));
        config.metric = DCI_METRIC_COSINE;
        memcpy(centroid, kept, sizeof kept);
}
END_TEST

START_TEST(clusters_beyond_the_capacity_are_found)
{
        config.capacity = N / K;
        ck_ok(dci_kmeans_check(context, &config, &input, &out.result));
        /* The first row of problem 1's first cluster goes to the second. */
        const int32_t row = out.result.ids[N] - FIRST_ROW;
        dci_kmeans_result labels;
        ck_ok(dci_kmeans_result_init(&labels, sizeof labels));
        labels.labels = out.result.labels;
        const int32_t kept = labels.labels[N + row];
        labels.labels[N + row] = FIRST_CLUSTER + 1;
        ck_refused(dci_kmeans_check(context, &config, &input, &labels), DCI_ERR_FORMAT,
                   "problem 1: cluster 1 has 9 rows, its capacity is 8");
        config.capacity = N / K + 1;
        ck_ok(dci_kmeans_check(context, &config, &input, &labels));
        config.capacity = 0;
        ck_ok(dci_kmeans_check(context, &config, &input, &labels));
        labels.labels[N + row] = kept;
}
END_TEST

/* Each integer array alone says enough to be refused. */
START_TEST(arrays_alone_are_checked_too)
{
        dci_kmeans_result one;
        int32_t *sizes = out.result.sizes + K;
        ck_ok(dci_kmeans_result_init(&one, sizeof one));
        one.ids = out.result.ids;
        one.ids[N + 1] = one.ids[N + 9];
        ck_refused(dci_kmeans_check(context, &config, &input, &one), DCI_ERR_FORMAT, "occurs twice");
        one.ids = NULL;
        one.offsets = out.result.offsets;
        one.offsets[K + 1 + 2] = one.offsets[K + 1 + 3] + 1;
        ck_refused(dci_kmeans_check(context, &config, &input, &one), DCI_ERR_FORMAT, "problem 1: offset 3");
        one.offsets = NULL;
        one.sizes = out.result.sizes;
        sizes[1]++;
        ck_refused(dci_kmeans_check(context, &config, &input, &one), DCI_ERR_FORMAT, "problem 1: sizes add up to 41");
}
END_TEST

/* No cluster has fewer than no rows, even if the sum is right. */
START_TEST(negative_sizes_are_found_when_sizes_stand_alone)
{
        dci_kmeans_result one;
        int32_t *sizes = out.result.sizes + K;
        ck_ok(dci_kmeans_result_init(&one, sizeof one));
        one.sizes = out.result.sizes;
        sizes[1] -= 9;
        sizes[2] += 9;
        ck_refused(dci_kmeans_check(context, &config, &input, &one), DCI_ERR_FORMAT, "problem 1");
}
END_TEST

START_TEST(bad_requests_are_refused_by_the_check_too)
{
        dci_kmeans_result none;
        ck_ok(dci_kmeans_result_init(&none, sizeof none));
        ck_refused(dci_kmeans_check(context, &config, &input, &none), DCI_ERR_INVALID, "every array");
        config.n_clusters = N + 1;
        ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_INVALID, "41 clusters of 40 rows");
        config.n_clusters = K;
        config.metric = 17;
        ck_refused(dci_kmeans_check(context, &config, &input, &out.result), DCI_ERR_INVALID,
                   "metric is 17, expected L2, IP or COSINE");
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans check");
        TCase *check = test_case_with(suite, "check", 60, setup, teardown);
        tcase_add_test(check, labels_out_of_range_or_of_another_cluster_are_found);
        tcase_add_test(check, ids_that_are_no_permutation_or_in_disorder_are_found);
        tcase_add_test(check, sizes_and_offsets_that_disagree_are_found);
        tcase_add_test(check, centroids_and_means_that_are_no_numbers_or_zero_are_found);
        tcase_add_test(check, clusters_beyond_the_capacity_are_found);
        tcase_add_test(check, arrays_alone_are_checked_too);
        tcase_add_test(check, negative_sizes_are_found_when_sizes_stand_alone);
        tcase_add_test(check, bad_requests_are_refused_by_the_check_too);
        return test_main(suite);
}
