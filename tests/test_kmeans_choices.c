/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* K-means: means that are subtracted, results that are appended, segments, repairs, rows without direction. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/kmeans_fixture.h"

enum { DIM = TRACE_DIM };

/* Share of the rows that have the same label in both. */
static double share_alike(const kmeans_out *a, const kmeans_out *b)
{
        size_t alike = 0;
        for (size_t i = 0; i < a->n; i++)
                alike += a->result.labels[i] == b->result.labels[i];
        return (double)alike / (double)a->n;
}

/* --- means that are subtracted ------------------------------------------------------------------------------------------------- */

/* Loops over forms. By hand the mean is rounded and taken away in the same way, so that only the sums' order differs. */
START_TEST(subtracting_the_own_mean_is_clustering_what_is_left_by_hand)
{
        enum { N = 900, K = 15 };
        float *keys = pdci_trace("keys", N), *left = malloc(N * DIM * sizeof *left);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        config.init = DCI_KMEANS_INIT_EVEN;
        config.n_iter = 3;
        config.subtract_mean = DCI_MEAN_OWN;
        kmeans_out own = kmeans_lawful(context, &config, &input, "own mean");
        for (size_t j = 0; j < DIM; j++) {
                double mean = 0.0;
                for (size_t i = 0; i < N; i++)
                        mean += (double)keys[i * DIM + j] / N;
                for (size_t i = 0; i < N; i++)
                        left[i * DIM + j] = keys[i * DIM + j] - (float)mean;
        }
        config.subtract_mean = DCI_MEAN_NONE;
        input.rows = left;
        kmeans_out by_hand = kmeans_lawful(context, &config, &input, "by hand");
        ck_assert_double_ge(share_alike(&own, &by_hand), 0.99);
        ck_assert_double_le(fabs(own.result.reports->objective - by_hand.result.reports->objective),
                            1e-4 * kmeans_scale(&config, &input, &by_hand, 0));
        for (size_t j = 0; j < DIM; j++)
                test_hold(by_hand.result.row_means[j] == 0.0f);
        kmeans_out_free(&own);
        kmeans_out_free(&by_hand);
        test_free(keys, left);
}
END_TEST

/* Loops over forms. */
START_TEST(a_mean_given_back_gives_the_same_bits)
{
        enum { N = 600, K = 11, P = 2 };
        float *keys = pdci_trace("keys", P * N);
        void *rows = kmeans_narrow(DCI_BF16, P * N * DIM, keys);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_BF16, DIM, K);
        dci_kmeans_input input = kmeans_input(N, rows);
        input.n_problems = P;
        config.subtract_mean = DCI_MEAN_OWN;
        kmeans_out own = kmeans_lawful(context, &config, &input, "own mean");
        ck_assert(memcmp(own.result.row_means, own.result.row_means + DIM, DIM * sizeof(float)) != 0);
        config.subtract_mean = DCI_MEAN_GIVEN;
        input.means = own.result.row_means;
        kmeans_out given = kmeans_lawful(context, &config, &input, "mean given");
        kmeans_same(&own, 0, &given, 0, P, "mean given");
        kmeans_out_free(&own);
        kmeans_out_free(&given);
        test_free(keys, rows);
}
END_TEST

/* --- new results after old ones ----------------------------------------------------------------------------------------------- */

/* Loops over forms. What the second call writes begins where the first ended; as one it is a result of all rows. */
START_TEST(appended_results_pass_the_check_as_one)
{
        enum { OLD = 500, NEW = 233, N = OLD + NEW, K_OLD = 16, K_NEW = 7, K = K_OLD + K_NEW };
        float *keys = pdci_trace("keys", N);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        kmeans_out whole = kmeans_room(&config, &input);
        for (int part = 0; part < 2; part++) {
                dci_kmeans_config own = config;
                dci_kmeans_input rows = kmeans_input(part == 0 ? OLD : NEW, keys + (part == 0 ? 0 : OLD) * DIM);
                own.n_clusters = part == 0 ? K_OLD : K_NEW;
                own.subtract_mean = part == 0 ? DCI_MEAN_OWN : DCI_MEAN_GIVEN;
                rows.means = part == 0 ? NULL : whole.result.row_means;
                rows.first_row = part == 0 ? 0 : OLD;
                rows.first_cluster = part == 0 ? 0 : K_OLD;
                kmeans_out out = kmeans_lawful(context, &own, &rows, "a part");
                memcpy(whole.result.labels + rows.first_row, out.result.labels, rows.n * sizeof(int32_t));
                memcpy(whole.result.ids + rows.first_row, out.result.ids, rows.n * sizeof(int32_t));
                memcpy(whole.result.sizes + rows.first_cluster, out.result.sizes, own.n_clusters * sizeof(int32_t));
                if (part == 1) /* the old ones never change */
                        ck_assert_int_eq(whole.result.offsets[K_OLD], out.result.offsets[0]);
                memcpy(whole.result.offsets + rows.first_cluster, out.result.offsets,
                       (own.n_clusters + 1) * sizeof(int32_t));
                memcpy(whole.result.centroids + rows.first_cluster * DIM, out.result.centroids,
                       own.n_clusters * DIM * sizeof(float));
                memcpy(whole.result.means + rows.first_cluster * DIM, out.result.means,
                       own.n_clusters * DIM * sizeof(float));
                if (part == 0)
                        memcpy(whole.result.row_means, out.result.row_means, DIM * sizeof(float));
                ck_assert_int_ge(out.result.labels[0], (int32_t)rows.first_cluster);
                kmeans_out_free(&out);
        }
        ck_ok(dci_kmeans_check(context, &config, &input, &whole.result));
        kmeans_out_free(&whole);
        free(keys);
}
END_TEST

START_TEST(shifted_numbers_change_nothing_else)
{
        enum { N = 300, K = 9 };
        float *keys = pdci_trace("keys", N);
        dci_kmeans_config config = kmeans_config(0, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        kmeans_out plain = kmeans_lawful(context, &config, &input, "plain");
        input.first_row = ((size_t)1 << 31) - 64 - N;
        input.first_cluster = 1000;
        kmeans_out shifted = kmeans_lawful(context, &config, &input, "shifted");
        for (size_t i = 0; i < N; i++) {
                test_hold(shifted.result.labels[i] == plain.result.labels[i] + 1000);
                test_hold((size_t)shifted.result.ids[i] == (size_t)plain.result.ids[i] + input.first_row);
        }
        for (size_t c = 0; c <= K; c++)
                test_hold((size_t)shifted.result.offsets[c] == (size_t)plain.result.offsets[c] + input.first_row);
        ck_assert(memcmp(plain.result.centroids, shifted.result.centroids, K * DIM * sizeof(float)) == 0);
        kmeans_out_free(&plain);
        kmeans_out_free(&shifted);
        free(keys);
}
END_TEST

/* Each array alone is what it is among all. */
START_TEST(every_output_may_be_wanted_alone)
{
        enum { N = 300, K = 9, P = 2 };
        float *keys = pdci_trace("keys", P * N), *values = pdci_trace("values", P * N);
        dci_kmeans_config config = kmeans_config(1, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        input.n_problems = P;
        input.values = values;
        input.value_dim = DIM;
        config.subtract_mean = DCI_MEAN_OWN;
        kmeans_out all = kmeans_lawful(context, &config, &input, "all");
        for (size_t i = 0; i < 9; i++) {
                kmeans_out room = kmeans_room(&config, &input);
                dci_kmeans_result one;
                ck_ok(dci_kmeans_result_init(&one, sizeof one));
                const struct {
                        void **wanted, *array, *among_all;
                        size_t n_bytes;
                } arrays[] = {
                        {(void **)&one.labels, room.result.labels, all.result.labels, P * N * 4},
                        {(void **)&one.ids, room.result.ids, all.result.ids, P * N * 4},
                        {(void **)&one.sizes, room.result.sizes, all.result.sizes, P * K * 4},
                        {(void **)&one.offsets, room.result.offsets, all.result.offsets, P * (K + 1) * 4},
                        {(void **)&one.centroids, room.result.centroids, all.result.centroids, P * K * DIM * 4},
                        {(void **)&one.means, room.result.means, all.result.means, P * K * DIM * 4},
                        {(void **)&one.value_sums, room.result.value_sums, all.result.value_sums, P * K * DIM * 4},
                        {(void **)&one.row_means, room.result.row_means, all.result.row_means, P * DIM * 4},
                        {(void **)&one.reports, room.result.reports, all.result.reports, 0}};
                *arrays[i].wanted = arrays[i].array;
                ck_ok(dci_kmeans(context, &config, &input, NULL, &one));
                ck_assert_msg(memcmp(arrays[i].array, arrays[i].among_all, arrays[i].n_bytes) == 0, "array %zu", i);
                ck_ok(dci_kmeans_check(context, &config, &input, &one));
                kmeans_out_free(&room);
        }
        kmeans_out_free(&all);
        test_free(keys, values);
}
END_TEST

/* A program built against a newer header has longer reports; each problem may have room for some of its rounds, or none. */
START_TEST(reports_may_be_longer_and_hold_fewer_rounds)
{
        enum { N = 400, K = 15, P = 9, ROUNDS = 6 };
        struct {
                dci_kmeans_report report;
                size_t newer[3];
        } reports[P];
        dci_kmeans_round rounds[P][ROUNDS];
        float *keys = pdci_trace("keys", P * N);
        dci_kmeans_config config = kmeans_config(0, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        dci_kmeans_result result;
        input.n_problems = P;
        config.n_iter = ROUNDS;
        kmeans_out all = kmeans_lawful(context, &config, &input, "all");
        memset(rounds, 0xA5, sizeof rounds);
        ck_ok(dci_kmeans_result_init(&result, sizeof result));
        for (size_t p = 0; p < P; p++) {
                ck_ok(dci_kmeans_report_init(&reports[p].report, sizeof reports[p]));
                reports[p].report.rounds = p == 4 ? NULL : rounds[p];
                reports[p].report.rounds_room = p % (ROUNDS + 1);
        }
        result.reports = &reports[0].report;
        ck_ok(dci_kmeans(context, &config, &input, NULL, &result));
        for (size_t p = 0; p < P; p++) {
                const dci_kmeans_report *got = &reports[p].report, *wanted = &all.result.reports[p];
                const size_t room = p == 4 ? 0 : p % (ROUNDS + 1),
                             n = wanted->n_rounds < room ? wanted->n_rounds : room;
                ck_assert_uint_eq(got->struct_size, sizeof reports[p]);
                ck_assert(got->rounds == (p == 4 ? NULL : rounds[p]) && got->rounds_room == p % (ROUNDS + 1));
                ck_assert(got->n_rounds == wanted->n_rounds && got->objective == wanted->objective);
                ck_assert_uint_eq(got->n_recorded, n);
                for (size_t i = 0; i < n; i++)
                        ck_assert(rounds[p][i].objective == wanted->rounds[i].objective);
                if (n < ROUNDS) /* not a byte more */
                        ck_assert_uint_eq(rounds[p][n].n_moved, (size_t)0xA5A5A5A5A5A5A5A5);
                ck_assert(reports[p].newer[0] == 0 && reports[p].newer[2] == 0);
        }
        kmeans_out_free(&all);
        free(keys);
}
END_TEST

/* --- segments ------------------------------------------------------------------------------------------------------------------ */

/* Loops over forms and starts. Without global rounds the last assignment is over all clusters: the laws see to it. */
START_TEST(segments_obey_the_laws)
{
        enum { N = 1100 };
        static const size_t sizes[] = {32, 200, 512, 1099, 5000};
        float *keys = pdci_trace("keys", N);
        const int32_t init = kmeans_inits[_i / KMEANS_FORMS];
        for (size_t s = 0; s < COUNT(sizes); s++)
                for (size_t k = 5; k <= 80; k += 75) /* fewer and more than segments */
                        for (size_t global = 0; global <= 3; global += 3) {
                                dci_kmeans_config config = kmeans_config((size_t)_i % KMEANS_FORMS, DCI_F32, DIM, k);
                                dci_kmeans_input input = kmeans_input(N, keys);
                                config.init = init;
                                config.segment_rows = sizes[s];
                                config.n_iter = 4;
                                config.n_iter_global = global;
                                kmeans_out out = kmeans_lawful(context, &config, &input, "segments");
                                kmeans_out again = kmeans_lawful(context, &config, &input, "segments");
                                kmeans_same(&out, 0, &again, 0, 1, "segments again");
                                ck_assert_uint_le(out.result.reports->n_rounds, 4 + global);
                                ck_assert_uint_le(out.result.reports->n_recorded, global);
                                kmeans_out_free(&again);
                                kmeans_out_free(&out);
                        }
        free(keys);
}
END_TEST

/* Centroids that have not moved yet: those of a segment's share lie on its own rows, the middle ones of each
 * part; 65 is rounded up to 96. */
START_TEST(each_segment_has_its_share_of_the_clusters)
{
        enum { N = 480, K = 20, SIZE = 96, SHARE = 4 };
        float *keys = pdci_trace("keys", N);
        dci_kmeans_config config = kmeans_config(2, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        config.init = DCI_KMEANS_INIT_EVEN;
        config.segment_rows = 65;
        config.n_iter = 0;
        kmeans_out out = kmeans_lawful(context, &config, &input, "shares");
        for (size_t c = 0; c < K; c++) {
                const size_t row = c / SHARE * SIZE + (2 * (c % SHARE) + 1) * SIZE / (2 * SHARE);
                for (size_t j = 0; j < DIM; j++)
                        test_hold(fabsf(out.result.centroids[c * DIM + j] - keys[row * DIM + j]) < 1e-4f);
        }
        kmeans_out_free(&out);
        free(keys);
}
END_TEST

/* 65, 95 and 96 all mean segments of 96 rows; where they are all rows, too. */
START_TEST(sizes_of_segments_are_rounded_up_to_a_multiple_of_32)
{
        for (size_t n = 96; n <= 288; n += 192) {
                float *keys = pdci_trace("keys", n);
                dci_kmeans_config config = kmeans_config(0, DCI_F32, DIM, 9);
                dci_kmeans_input input = kmeans_input(n, keys);
                config.n_iter = 1;
                config.n_iter_global = 2;
                config.segment_rows = 96;
                kmeans_out exact = kmeans_lawful(context, &config, &input, "96");
                for (size_t size = 65; size < 96; size += 30) {
                        config.segment_rows = size;
                        kmeans_out out = kmeans_lawful(context, &config, &input, "rounded up");
                        kmeans_same(&exact, 0, &out, 0, 1, n == 96 ? "one segment" : "several segments");
                        kmeans_out_free(&out);
                }
                kmeans_out_free(&exact);
                free(keys);
        }
}
END_TEST

START_TEST(global_rounds_after_segments_do_not_make_it_worse)
{
        enum { N = 1500, K = 40 };
        float *keys = pdci_trace("keys", N);
        for (size_t form = 0; form < 3; form += 2) {
                dci_kmeans_config config = kmeans_config(form, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, keys);
                config.segment_rows = 256;
                config.n_iter = 10;
                kmeans_out local = kmeans_lawful(context, &config, &input, "local");
                config.n_iter_global = 10;
                kmeans_out global = kmeans_lawful(context, &config, &input, "global");
                const dci_kmeans_report *report = global.result.reports;
                const double slack = 1e-6 * kmeans_scale(&config, &input, &global, 0);
                ck_assert_uint_ge(report->n_recorded, 2);
                ck_assert_uint_lt(report->rounds[0].n_moved, N); /* some stay in the cluster of their segment */
                for (size_t i = 1; i < report->n_recorded; i++)
                        test_hold(!kmeans_worse(config.metric, report->rounds[i].objective,
                                                report->rounds[i - 1].objective, slack));
                ck_assert(!kmeans_worse(config.metric, report->objective, local.result.reports->objective, slack));
                kmeans_out_free(&local);
                kmeans_out_free(&global);
        }
        free(keys);
}
END_TEST

/* --- empty clusters ------------------------------------------------------------------------------------------------------------ */

/* Two centroids that no row is nearest to get the two rows that fit worst, the lower cluster the worst of them. */
START_TEST(an_empty_cluster_gets_the_row_that_fits_worst)
{
        enum { N = 40, K = 4 };
        float rows[N * 2], centroids[K * 2] = {0, 0, 100, 0, 1000, 1000, 1000, -1000};
        for (size_t i = 0; i < N; i++) { /* two lines; rows 7 and 8 stick out */
                rows[2 * i] = i % 2 == 0 ? 0.0f : 100.0f;
                rows[2 * i + 1] = 0.01f * (float)i;
        }
        rows[7 * 2 + 1] = 30.0f;
        rows[8 * 2 + 1] = 20.0f;
        dci_kmeans_config config = kmeans_config(2, DCI_F32, 2, K);
        dci_kmeans_input input = kmeans_input(N, rows);
        config.init = DCI_KMEANS_INIT_GIVEN;
        config.n_iter = 1;
        input.centroids = centroids;
        kmeans_out out = kmeans_lawful(context, &config, &input, "repair");
        ck_assert_uint_eq(out.rounds[0].n_empty, 2);
        ck_assert_uint_eq(out.result.reports->n_repaired, 2);
        ck_assert_uint_eq(out.result.reports->n_empty, 0);
        ck_assert_int_eq(out.result.labels[7], 2);
        ck_assert_int_eq(out.result.labels[8], 3);
        ck_assert(out.result.sizes[2] == 1 && out.result.sizes[3] == 1);
        kmeans_out_free(&out);
}
END_TEST

/* Loops over means: none, and one that is given. One round moves the outer centroids to where both rows of the middle one are nearer to
 * them; the last assignment repairs it with one of those. */
START_TEST(a_raw_centroid_after_the_last_repair_is_a_row_minus_the_mean)
{
        enum { N = 4, K = 3 };
        static const float angles[N] = {27, 30, 50, 53}, starts[K] = {40, 15, 65}, degree = 0.0174532925f;
        float rows[N * 2], given[K * 2], mean[2] = {300.0f, -20.0f};
        for (size_t i = 0; i < N * 2; i++)
                rows[i] = 50.0f * sinf(degree * (i % 2 == 0 ? 90 - angles[i / 2] : angles[i / 2])) +
                          (_i == 0 ? 0.0f : mean[i % 2]);
        for (size_t i = 0; i < K * 2; i++)
                given[i] = sinf(degree * (i % 2 == 0 ? 90 - starts[i / 2] : starts[i / 2]));
        dci_kmeans_config config = kmeans_config(1, DCI_F32, 2, K);
        dci_kmeans_input input = kmeans_input(N, rows);
        config.init = DCI_KMEANS_INIT_GIVEN;
        config.n_iter = 1;
        config.subtract_mean = _i == 0 ? DCI_MEAN_NONE : DCI_MEAN_GIVEN;
        input.centroids = given;
        input.means = _i == 0 ? NULL : mean;
        kmeans_out out = kmeans_lawful(context, &config, &input, "the last repair");
        ck_assert_uint_eq(out.rounds[0].n_empty, 0);
        ck_assert_uint_eq(out.result.reports->n_repaired, 1);
        ck_assert(out.result.sizes[0] == 1 && (out.result.labels[1] == 0 || out.result.labels[2] == 0));
        const float *row = rows + (out.result.labels[1] == 0 ? 2 : 4);
        for (size_t j = 0; j < 2; j++)
                ck_assert(out.result.centroids[j] == row[j] - (_i == 0 ? 0.0f : mean[j]));
        kmeans_out_free(&out);
}
END_TEST

/* Loops over forms but IP, where the nearest of a row need not be itself. Starts that all lie together on one row. */
START_TEST(clusters_without_rows_are_repaired_while_rows_differ)
{
        enum { N = 200, K = 30 };
        float *keys = pdci_trace("keys", N), centroids[K * DIM];
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        for (size_t c = 0; c < K; c++)
                memcpy(centroids + c * DIM, keys, DIM * sizeof *keys);
        config.init = DCI_KMEANS_INIT_GIVEN;
        input.centroids = centroids;
        kmeans_out out = kmeans_lawful(context, &config, &input, "all starts on one row");
        ck_assert_uint_eq(out.rounds[0].n_empty, K - 1);
        ck_assert_uint_ge(out.result.reports->n_repaired, K - 1);
        ck_assert_uint_eq(out.result.reports->n_empty, 0);
        kmeans_out_free(&out);
        free(keys);
}
END_TEST

/* --- rows without direction ---------------------------------------------------------------------------------------------------- */

/* Loops over both forms of COSINE. */
START_TEST(rows_without_direction_get_label_0_and_no_part_in_unit_centroids)
{
        enum { N = 400, K = 12 };
        float *keys = pdci_trace("keys", N), *others = malloc(N * DIM * sizeof *others);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        size_t n = 0;
        for (size_t i = 0; i < N; i++)
                if (i % 5 == 3)
                        memset(keys + i * DIM, 0, DIM * sizeof *keys);
                else
                        memcpy(others + DIM * n++, keys + i * DIM, DIM * sizeof *keys);
        keys[3 * DIM + 1] = 0x1p-41f; /* shorter than 2^-40 */
        config.zero_rows = DCI_ZERO_KEEP;
        for (size_t init = 0; init < COUNT(kmeans_inits); init++) {
                config.init = kmeans_inits[init];
                config.n_iter = 0; /* starts fall on rows with a direction */
                kmeans_out start = kmeans_lawful(context, &config, &input, "start");
                kmeans_out_free(&start);
                config.n_iter = 20;
                kmeans_out out = kmeans_lawful(context, &config, &input, "zero rows");
                for (size_t i = 3; i < N; i += 5)
                        test_hold(out.result.labels[i] == 0);
                if (init == 2 && _i == 0) { /* even starts fall on the same rows as without them */
                        dci_kmeans_input left = kmeans_input(n, others);
                        kmeans_out without = kmeans_lawful(context, &config, &left, "without zero rows");
                        for (size_t i = 0, j = 0; i < N; i++)
                                if (i % 5 != 3)
                                        test_hold(out.result.labels[i] == without.result.labels[j++]);
                        ck_assert_double_le(fabs(out.result.reports->objective - without.result.reports->objective),
                                            1e-5 * N);
                        kmeans_out_free(&without);
                }
                kmeans_out_free(&out);
        }
        test_free(keys, others);
}
END_TEST

/* A row without direction never fits anything; it must not stand in the way of rows that could be moved. */
START_TEST(rows_without_direction_do_not_hinder_repairs)
{
        const float rows[] = {0, 0, 1, 0, 1, 0.1f, 1, 0.2f, 1, 0.3f, 1, 0.4f}, centroids[] = {1, 0, -1, 0};
        dci_kmeans_config config = kmeans_config(0, DCI_F32, 2, 2);
        dci_kmeans_input input = kmeans_input(6, rows);
        config.init = DCI_KMEANS_INIT_GIVEN;
        config.zero_rows = DCI_ZERO_KEEP;
        input.centroids = centroids;
        kmeans_out out = kmeans_lawful(context, &config, &input, "a zero row and an empty cluster");
        ck_assert_uint_eq(out.result.reports->n_empty, 0);
        kmeans_out_free(&out);
}
END_TEST

START_TEST(nothing_but_rows_without_direction_is_clustered_too)
{
        enum { N = 70, K = 5 };
        float rows[N * 3] = {0};
        for (size_t form = 0; form < 2; form++)
                for (size_t init = 0; init < COUNT(kmeans_inits); init++) {
                        dci_kmeans_config config = kmeans_config(form, DCI_F32, 3, K);
                        dci_kmeans_input input = kmeans_input(N, rows);
                        config.zero_rows = DCI_ZERO_KEEP;
                        config.init = kmeans_inits[init];
                        kmeans_out out = kmeans_lawful(context, &config, &input, "all zero");
                        ck_assert_double_eq(out.result.reports->objective, 0.0);
                        ck_assert_uint_eq(out.result.reports->n_empty, K - 1);
                        kmeans_out_free(&out);
                }
}
END_TEST

/* --- anything at all ----------------------------------------------------------------------------------------------------------- */

/* Rows of one of several kinds: normal, in blobs, many alike, on a grid with ties, some without direction. */
static float *rows_at_random(dci_rng *rng, size_t n, size_t dim, bool zeros)
{
        const uint64_t kind = dci_rng_below(rng, 4), seed = dci_rng_below(rng, 1000);
        float *rows = kind == 1 ? kmeans_blobs(n, dim, 1 + n / 20, 3.0f, seed) : test_normal(n, dim, seed);
        for (size_t i = 0; i < n * dim; i++)
                if (kind == 2)
                        rows[i] = rows[i % (dim * (1 + n / 3))];
                else if (kind == 3)
                        rows[i] = 0.5f + rintf(rows[i]);
        for (size_t i = 0; i < n; i++)
                if (zeros && dci_rng_below(rng, 5) == 0)
                        memset(rows + i * dim, 0, dim * sizeof *rows);
        return rows;
}

/* Loops over seeds: small problems of all kinds and choices obey the laws. */
START_TEST(calls_at_random_obey_the_laws)
{
        dci_rng rng;
        dci_rng_seed(&rng, (uint64_t)_i);
        for (size_t call = 0; call < 25; call++) {
                const size_t n = 1 + (size_t)dci_rng_below(&rng, 400), dim = 1 + (size_t)dci_rng_below(&rng, 40),
                             k = 1 + (size_t)dci_rng_below(&rng, dci_rng_below(&rng, 2) ? n : n / 8 + 1),
                             form = (size_t)dci_rng_below(&rng, KMEANS_FORMS);
                const dci_dtype dtype = all_dtypes[dci_rng_below(&rng, 3)];
                dci_kmeans_config config = kmeans_config(form, dtype, dim, k);
                const bool zeros = config.metric == DCI_METRIC_COSINE && dci_rng_below(&rng, 3) == 0;
                float *numbers = rows_at_random(&rng, n, dim, zeros);
                void *rows = kmeans_narrow(dtype, n * dim, numbers);
                dci_kmeans_input input = kmeans_input(n, rows);
                char what[80];
                config.init = kmeans_inits[dci_rng_below(&rng, 3)];
                config.zero_rows = zeros ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
                config.n_iter = (size_t)dci_rng_below(&rng, 30);
                config.n_redo = config.init == DCI_KMEANS_INIT_EVEN ? 1 : 1 + (size_t)dci_rng_below(&rng, 3);
                config.tolerance = dci_rng_below(&rng, 3) == 0 ? 1e-2 : 0.0;
                config.seed = dci_rng_below(&rng, 100);
                if (n > 1 && dci_rng_below(&rng, 3) == 0) { /* one segment of all rows has a test of its own */
                        config.segment_rows = 1 + (size_t)dci_rng_below(&rng, n - 1);
                        config.n_iter_global = (size_t)dci_rng_below(&rng, 4);
                }
                snprintf(what, sizeof what, "seed %d, call %zu", _i, call);
                kmeans_out out = kmeans_lawful(context, &config, &input, what);
                kmeans_out_free(&out);
                test_free(rows, numbers);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans choices");
        TCase *laws = test_case_with(suite, "choices", 120, context_open_2, context_close);
        tcase_add_loop_test(laws, subtracting_the_own_mean_is_clustering_what_is_left_by_hand, 0, KMEANS_FORMS);
        tcase_add_loop_test(laws, a_mean_given_back_gives_the_same_bits, 0, KMEANS_FORMS);
        tcase_add_loop_test(laws, appended_results_pass_the_check_as_one, 0, KMEANS_FORMS);
        tcase_add_test(laws, shifted_numbers_change_nothing_else);
        tcase_add_test(laws, every_output_may_be_wanted_alone);
        tcase_add_test(laws, reports_may_be_longer_and_hold_fewer_rounds);
        tcase_add_loop_test(laws, segments_obey_the_laws, 0, KMEANS_FORMS * COUNT(kmeans_inits));
        tcase_add_test(laws, each_segment_has_its_share_of_the_clusters);
        tcase_add_test(laws, sizes_of_segments_are_rounded_up_to_a_multiple_of_32);
        tcase_add_test(laws, global_rounds_after_segments_do_not_make_it_worse);
        tcase_add_test(laws, an_empty_cluster_gets_the_row_that_fits_worst);
        tcase_add_loop_test(laws, a_raw_centroid_after_the_last_repair_is_a_row_minus_the_mean, 0, 2);
        tcase_add_loop_test(laws, clusters_without_rows_are_repaired_while_rows_differ, 0, 3);
        tcase_add_loop_test(laws, rows_without_direction_get_label_0_and_no_part_in_unit_centroids, 0, 2);
        tcase_add_test(laws, rows_without_direction_do_not_hinder_repairs);
        tcase_add_test(laws, nothing_but_rows_without_direction_is_clustered_too);
        tcase_add_loop_test(laws, calls_at_random_obey_the_laws, 0, getenv("DCI_TEST_LONG") != NULL ? 1000 : 12);
        return test_main(suite);
}
