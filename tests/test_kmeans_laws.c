/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* K-means: what any result must be, by naive loops in double, and what the choices of a call mean. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/kmeans_fixture.h"

enum { DIM = TRACE_DIM };

static void check_laws(const dci_kmeans_config *config, const dci_kmeans_input *input, const char *what)
{
        kmeans_out out = kmeans_lawful(context, config, input, what);
        kmeans_out_free(&out);
}

/* --- any result ---------------------------------------------------------------------------------------------------------------- */

static const struct {
        size_t n, k, dim;
} shapes[] = {{1, 1, 1},     {2, 1, 3},    {2, 2, 1},      {31, 5, 3},     {32, 32, 31},
              {33, 7, 64},   {64, 1, 65},  {65, 64, 1},    {100, 10, 31},  {255, 17, 65},
              {256, 16, 64}, {257, 33, 3}, {300, 40, 200}, {513, 130, 31}, {1000, 3, 65}};

/* Loops over shapes and forms. */
START_TEST(every_shape_format_and_start_obeys_the_laws)
{
        const size_t form = (size_t)_i % KMEANS_FORMS, n = shapes[_i / KMEANS_FORMS].n, k = shapes[_i / KMEANS_FORMS].k,
                     dim = shapes[_i / KMEANS_FORMS].dim;
        float *numbers = test_normal(n, dim, (uint64_t)_i), *values = test_normal(n, 5, 99);
        for (size_t d = 0; d < COUNT(all_dtypes); d++) {
                void *rows = kmeans_narrow(all_dtypes[d], n * dim, numbers);
                void *narrow_values = kmeans_narrow(all_dtypes[d], n * 5, values);
                for (size_t init = 0; init < COUNT(kmeans_inits); init++) {
                        dci_kmeans_config config = kmeans_config(form, all_dtypes[d], dim, k);
                        dci_kmeans_input input = kmeans_input(n, rows);
                        char what[100];
                        config.init = kmeans_inits[init];
                        config.seed = (uint64_t)_i;
                        config.n_iter = 2 + 40 * (init % 2);
                        input.values = narrow_values;
                        input.value_dim = 5;
                        input.value_dtype = all_dtypes[d];
                        snprintf(what, sizeof what, "%s, %s, init %d, %zu rows of %zu, %zu clusters",
                                 kmeans_forms[form].name, dci_dtype_name(all_dtypes[d]), (int)config.init, n, dim, k);
                        check_laws(&config, &input, what);
                        if (n == 1)
                                continue; /* minus its own mean, nothing is left */
                        config.subtract_mean = DCI_MEAN_OWN;
                        check_laws(&config, &input, what);
                }
                test_free(rows, narrow_values);
        }
        test_free(numbers, values);
}
END_TEST

/* Loops over forms and formats. */
START_TEST(real_keys_obey_the_laws)
{
        enum { N = 2001, K = 63 };
        const size_t form = (size_t)_i % KMEANS_FORMS;
        const dci_dtype dtype = row_dtypes[_i / KMEANS_FORMS];
        float *keys = pdci_trace("keys", N), *values = pdci_trace("values", N);
        void *rows = kmeans_narrow(dtype, N * DIM, keys), *narrow_values = kmeans_narrow(dtype, N * DIM, values);
        for (size_t init = 0; init < COUNT(kmeans_inits); init++)
                for (int32_t mean = DCI_MEAN_NONE; mean <= DCI_MEAN_OWN; mean++) {
                        dci_kmeans_config config = kmeans_config(form, dtype, DIM, K);
                        dci_kmeans_input input = kmeans_input(N, rows);
                        config.init = kmeans_inits[init];
                        config.n_iter = init == 0 ? 100 : 5; /* the first until it is stable */
                        config.subtract_mean = mean;
                        input.values = narrow_values;
                        input.value_dim = DIM;
                        input.value_dtype = dtype;
                        check_laws(&config, &input, kmeans_forms[form].name);
                }
        test_free(keys, values, rows, narrow_values);
}
END_TEST

/* Loops over forms. */
START_TEST(without_capacity_the_free_objective_is_the_objective)
{
        enum { N = 300, K = 7 };
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        float *keys = pdci_trace("keys", N);
        dci_kmeans_input input = kmeans_input(N, keys);
        kmeans_out out = kmeans_run(context, &config, &input);
        ck_assert_double_eq(out.result.reports->objective_free, out.result.reports->objective);
        kmeans_out_free(&out);
        free(keys);
}
END_TEST

/* Loops over data and the two forms that promise it. The last assignment goes on from the last round. */
START_TEST(no_round_makes_the_objective_worse)
{
        enum { N = 1500, K = 50 };
        const size_t form = _i % 2 == 0 ? 0 : 2;
        float *rows = _i / 2 == 0 ? pdci_trace("keys", N) : test_normal(N, DIM, 3);
        for (size_t init = 0; init < COUNT(kmeans_inits); init++) {
                dci_kmeans_config config = kmeans_config(form, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, rows);
                config.init = kmeans_inits[init];
                config.n_iter = 30;
                kmeans_out out = kmeans_run(context, &config, &input);
                const dci_kmeans_report *report = out.result.reports;
                const double slack = 1e-6 * kmeans_scale(&config, &input, &out, 0);
                ck_assert_uint_ge(report->n_recorded, 3);
                for (size_t i = 1; i < report->n_recorded; i++)
                        ck_assert_msg(!kmeans_worse(config.metric, report->rounds[i].objective,
                                                    report->rounds[i - 1].objective, slack),
                                      "round %zu: %.12g after %.12g", i, report->rounds[i].objective,
                                      report->rounds[i - 1].objective);
                ck_assert(!kmeans_worse(config.metric, report->objective,
                                        report->rounds[report->n_recorded - 1].objective, slack));
                kmeans_out_free(&out);
        }
        free(rows);
}
END_TEST

/* Rows for the law below: real keys, rows far from the origin, and, where that is allowed, some without direction. */
static float *rows_of_kind(size_t kind, size_t n)
{
        float *rows = kind == 0 ? pdci_trace("keys", n) : kmeans_blobs(n, DIM, 7, 0.7f, 21);
        for (size_t i = 0; kind == 1 && i < n * DIM; i++)
                rows[i] += 10.0f;
        for (size_t i = 0; kind == 2 && i < n; i += 9)
                memset(rows + i * DIM, 0, DIM * sizeof *rows);
        return rows;
}

/* Loops over forms and kinds of rows. What a round begins with is what a call of so many rounds returns, whose objective the
 * laws compare with a naive sum. */
START_TEST(rounds_report_the_objective_of_their_assignment)
{
        enum { N = 1300, K = 11, ROUNDS = 5 };
        const size_t form = (size_t)_i % KMEANS_FORMS, kind = (size_t)_i / KMEANS_FORMS;
        if (kind == 2 && kmeans_forms[form].metric != DCI_METRIC_COSINE)
                return;
        float *rows = rows_of_kind(kind, N);
        for (int32_t mean = DCI_MEAN_NONE; mean <= (kind == 2 ? DCI_MEAN_NONE : DCI_MEAN_OWN); mean++) {
                dci_kmeans_config config = kmeans_config(form, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, rows);
                kmeans_out before = {0};
                size_t n_compared = 0;
                config.n_iter = ROUNDS;
                config.subtract_mean = mean;
                config.zero_rows = kind == 2 ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
                config.init = DCI_KMEANS_INIT_PLUSPLUS;
                kmeans_out all = kmeans_lawful(context, &config, &input, "all rounds");
                ck_assert_uint_ge(all.result.reports->n_recorded, 3);
                for (size_t i = 0; i < all.result.reports->n_recorded; i++) {
                        size_t n_moved = 0;
                        config.n_iter = i;
                        kmeans_out out = kmeans_lawful(context, &config, &input, "so many rounds");
                        for (size_t r = 0; r < N; r++)
                                n_moved += i == 0 || out.result.labels[r] != before.result.labels[r];
                        /* A last assignment that leaves clusters empty is repaired: then only the round is reported. */
                        if (all.rounds[i].n_empty == 0)
                                ck_assert_double_le(fabs(all.rounds[i].objective - out.result.reports->objective),
                                                    1e-5 * kmeans_scale(&config, &input, &out, 0));
                        if (all.rounds[i].n_empty == 0 && (i == 0 || all.rounds[i - 1].n_empty == 0))
                                ck_assert_uint_eq(all.rounds[i].n_moved, n_moved);
                        n_compared += all.rounds[i].n_empty == 0;
                        kmeans_out_free(&before);
                        before = out;
                }
                ck_assert(n_compared >= 3 || config.metric == DCI_METRIC_IP);
                kmeans_out_free(&before);
                kmeans_out_free(&all);
        }
        free(rows);
}
END_TEST

/* Loops over forms but IP, where the nearest of a row need not be itself. */
START_TEST(as_many_clusters_as_rows_fit_perfectly)
{
        enum { N = 130 };
        float *keys = pdci_trace("keys", N);
        for (size_t init = 0; init < COUNT(kmeans_inits); init++) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, N);
                dci_kmeans_input input = kmeans_input(N, keys);
                config.init = kmeans_inits[init];
                kmeans_out out = kmeans_lawful(context, &config, &input, "k = n");
                const double wanted = config.metric == DCI_METRIC_L2 ? 0.0 : N;
                ck_assert_double_le(fabs(out.result.reports->objective - wanted),
                                    1e-6 * kmeans_scale(&config, &input, &out, 0));
                ck_assert_uint_eq(out.result.reports->n_empty, 0);
                kmeans_out_free(&out);
        }
        free(keys);
}
END_TEST

/* --- starts -------------------------------------------------------------------------------------------------------------------- */

/* Loops over forms. */
START_TEST(a_warm_start_without_rounds_gives_the_labels_again)
{
        enum { N = 700, K = 20 };
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F16, DIM, K);
        float *keys = pdci_trace("keys", N);
        void *rows = kmeans_narrow(DCI_F16, N * DIM, keys);
        for (int32_t mean = DCI_MEAN_NONE; mean <= DCI_MEAN_OWN; mean++) {
                dci_kmeans_input input = kmeans_input(N, rows);
                config.init = DCI_KMEANS_INIT_RANDOM;
                config.n_iter = 6;
                config.subtract_mean = mean;
                kmeans_out cold = kmeans_lawful(context, &config, &input, "cold");
                config.init = DCI_KMEANS_INIT_GIVEN;
                config.n_iter = 0;
                input.centroids = cold.result.centroids;
                kmeans_out warm = kmeans_lawful(context, &config, &input, "warm");
                ck_assert(memcmp(cold.result.labels, warm.result.labels, N * sizeof(int32_t)) == 0);
                ck_assert_uint_eq(warm.result.reports->n_rounds, 0);
                ck_assert_int_eq(warm.result.reports->stop, DCI_KMEANS_STOP_ROUNDS);
                for (size_t i = 0; i < K * DIM; i++)
                        test_hold(fabs((double)warm.result.centroids[i] - (double)cold.result.centroids[i]) <= 1e-4);
                kmeans_out_free(&cold);
                kmeans_out_free(&warm);
        }
        test_free(keys, rows);
}
END_TEST

/* Centroids of any length but zero: under COSINE only directions count, and equal ones go to the lower number. */
START_TEST(given_centroids_are_compared_by_direction_and_ties_go_to_the_lower_number)
{
        enum { N = 200, K = 12 };
        static const float lengths[] = {1e-9f, 1e-3f, 1.0f, 1e3f, 1e9f};
        float *rows = test_normal(N, DIM, 1), *given = test_normal(K, DIM, 2);
        memcpy(given + 7 * DIM, given + 2 * DIM, DIM * sizeof *given);
        memcpy(given + 11 * DIM, given + 2 * DIM, DIM * sizeof *given);
        for (size_t form = 0; form < KMEANS_FORMS; form++) {
                dci_kmeans_config config = kmeans_config(form, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, rows);
                float scaled[K * DIM];
                config.init = DCI_KMEANS_INIT_GIVEN;
                config.n_iter = 0;
                input.centroids = given;
                kmeans_out first = kmeans_lawful(context, &config, &input, "given");
                ck_assert(first.result.sizes[2] > 0 && first.result.sizes[7] == 0 && first.result.sizes[11] == 0);
                input.centroids = scaled;
                for (size_t i = 0; config.metric == DCI_METRIC_COSINE && i < COUNT(lengths); i++) {
                        for (size_t j = 0; j < K * DIM; j++)
                                scaled[j] = given[j] * lengths[i];
                        kmeans_out out = kmeans_lawful(context, &config, &input, "scaled");
                        ck_assert(memcmp(out.result.labels, first.result.labels, N * sizeof(int32_t)) == 0);
                        kmeans_out_free(&out);
                }
                kmeans_out_free(&first);
        }
        test_free(rows, given);
}
END_TEST

/* The header takes any finite length. */
START_TEST(given_centroids_may_be_shorter_or_longer_than_any_row)
{
        dci_kmeans_config config = kmeans_config(0, DCI_F32, 4, 2);
        const float rows[] = {1, 0, 0, 0, 0, 1, 0, 0, 1, 0.1f, 0, 0};
        float given[8] = {1e-15f, 0, 0, 0, 0, 1e-15f, 0, 0};
        dci_kmeans_input input = kmeans_input(3, rows);
        config.init = DCI_KMEANS_INIT_GIVEN;
        input.centroids = given;
        check_laws(&config, &input, "short");
        given[0] = given[5] = 1e25f;
        check_laws(&config, &input, "long");
}
END_TEST

START_TEST(even_starts_are_the_middle_rows)
{
        static const size_t cases[][2] = {{1, 1}, {10, 3}, {100, 7}, {257, 256}, {300, 13}};
        for (size_t i = 0; i < COUNT(cases); i++) {
                const size_t n = cases[i][0], k = cases[i][1];
                float *rows = test_normal(n, DIM, i);
                dci_kmeans_config config = kmeans_config(2, DCI_F32, DIM, k);
                dci_kmeans_input input = kmeans_input(n, rows);
                config.init = DCI_KMEANS_INIT_EVEN;
                config.n_iter = 0;
                kmeans_out out = kmeans_lawful(context, &config, &input, "even");
                for (size_t c = 0; c < k; c++) {
                        const size_t row = (2 * c + 1) * n / (2 * k);
                        test_hold(out.result.labels[row] == (int32_t)c);
                        for (size_t j = 0; j < DIM; j++)
                                test_hold(fabsf(out.result.centroids[c * DIM + j] - rows[row * DIM + j]) < 1e-5f);
                }
                kmeans_out_free(&out);
                free(rows);
        }
}
END_TEST

/* Drawn rows lie on centroids; RANDOM takes each row at most once, in ascending order; another seed draws others. */
START_TEST(drawn_starts_are_rows)
{
        enum { N = 200, K = 30 };
        float *rows = test_normal(N, DIM, 5);
        for (size_t init = 0; init < 2; init++) {
                dci_kmeans_config config = kmeans_config(2, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(N, rows);
                int32_t drawn[3][K];
                config.init = kmeans_inits[init];
                config.n_iter = 0;
                for (size_t s = 0; s < 3; s++) {
                        config.seed = s / 2;
                        kmeans_out out = kmeans_lawful(context, &config, &input, "drawn");
                        for (size_t c = 0; c < K; c++) {
                                drawn[s][c] = -1;
                                for (int32_t i = 0; i < N; i++)
                                        if (fabsf(out.result.centroids[c * DIM] - rows[(size_t)i * DIM]) < 1e-6f &&
                                            fabsf(out.result.centroids[c * DIM + 1] - rows[(size_t)i * DIM + 1]) <
                                                    1e-6f)
                                                drawn[s][c] = i;
                                test_hold(drawn[s][c] >= 0);
                                if (c > 0 && init == 0)
                                        test_hold(drawn[s][c] > drawn[s][c - 1]);
                        }
                        kmeans_out_free(&out);
                }
                ck_assert(memcmp(drawn[0], drawn[1], sizeof drawn[0]) == 0);
                ck_assert(memcmp(drawn[0], drawn[2], sizeof drawn[0]) != 0);
        }
        free(rows);
}
END_TEST

/* --- ends ---------------------------------------------------------------------------------------------------------------------- */

/* Loops over forms. */
START_TEST(a_tolerance_stops_at_the_first_round_that_changes_little)
{
        enum { N = 1500, K = 40 };
        float *keys = pdci_trace("keys", N);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, keys);
        config.n_iter = 100;
        for (int whole = 0; whole < 2; whole++) {
                const double tolerance = whole ? 1.0 : 1e-3;
                config.tolerance = tolerance;
                kmeans_out out = kmeans_lawful(context, &config, &input, "tolerance");
                const dci_kmeans_report *r = out.result.reports;
                ck_assert_int_eq(r->stop, DCI_KMEANS_STOP_TOLERANCE);
                ck_assert(r->n_recorded >= 2 && r->n_rounds < 100);
                for (size_t i = 1; i < r->n_recorded; i++) {
                        const double before = r->rounds[i - 1].objective,
                                     change = fabs(r->rounds[i].objective - before);
                        ck_assert((change <= tolerance * fabs(before)) == (i + 1 == r->n_recorded));
                }
                if (whole)
                        ck_assert_uint_eq(r->n_rounds, 2);
                kmeans_out_free(&out);
        }
        free(keys);
}
END_TEST

/* Loops over forms. */
START_TEST(without_tolerance_rounds_go_on_until_no_label_changes)
{
        enum { N = 600, K = 9 };
        float *rows = kmeans_blobs(N, DIM, K, 1.0f, 4);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, rows);
        config.n_iter = 500;
        kmeans_out out = kmeans_lawful(context, &config, &input, "stable");
        const dci_kmeans_report *r = out.result.reports;
        if (config.metric != DCI_METRIC_IP) /* whose rounds may go in circles */
                ck_assert_int_eq(r->stop, DCI_KMEANS_STOP_STABLE);
        for (size_t i = 0; i + 1 < r->n_recorded; i++)
                test_hold(r->rounds[i].n_moved > 0 || r->rounds[i].n_empty > 0);
        kmeans_out_free(&out);
        free(rows);
}
END_TEST

/* Loops over forms. */
START_TEST(of_several_runs_the_best_is_kept)
{
        enum { N = 900, K = 25 };
        float *keys = pdci_trace("keys", N);
        bool other = false;
        for (uint64_t seed = 0; seed < 5; seed++)
                for (size_t init = 0; init < 2; init++) {
                        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, DIM, K);
                        dci_kmeans_input input = kmeans_input(N, keys);
                        config.init = kmeans_inits[init];
                        config.seed = seed;
                        config.n_iter = 8;
                        kmeans_out one = kmeans_lawful(context, &config, &input, "one run");
                        config.n_redo = 5;
                        kmeans_out five = kmeans_lawful(context, &config, &input, "five runs");
                        const dci_kmeans_report *a = one.result.reports, *b = five.result.reports;
                        ck_assert_int_eq(a->best_redo, 0);
                        ck_assert(!kmeans_worse(config.metric, b->objective, a->objective, 0.0));
                        /* The first run is the same one. */
                        ck_assert_int_eq(b->best_redo == 0, b->objective == a->objective);
                        if (b->best_redo == 0)
                                kmeans_same(&one, 0, &five, 0, 1, "the first of five");
                        other = other || b->best_redo != 0;
                        kmeans_out_free(&one);
                        kmeans_out_free(&five);
                }
        ck_assert(other);
        free(keys);
}
END_TEST

/* --- a model of Lloyd ---------------------------------------------------------------------------------------------------------- */

/* Rounds in double from these rows on. under_cosine: of unit rows, means scaled to unit length. */
static void lloyd(size_t n, size_t k, const float *rows, const size_t *starts, bool under_cosine, size_t n_iter,
                  int32_t *out_labels)
{
        double *points = malloc(n * DIM * sizeof *points), *centroids = malloc(k * DIM * sizeof *centroids);
        for (size_t i = 0; i < n; i++) {
                double norm2 = 0.0;
                for (size_t j = 0; j < DIM; j++)
                        norm2 += pow(rows[i * DIM + j], 2);
                for (size_t j = 0; j < DIM; j++)
                        points[i * DIM + j] = rows[i * DIM + j] / (under_cosine ? sqrt(norm2) : 1.0);
        }
        for (size_t c = 0; c < k; c++)
                memcpy(centroids + c * DIM, points + starts[c] * DIM, DIM * sizeof *centroids);
        for (size_t round = 0; round <= n_iter; round++) {
                for (size_t i = 0; i < n; i++) {
                        double least = INFINITY;
                        for (size_t c = 0; c < k; c++) {
                                double sum = 0.0;
                                for (size_t j = 0; j < DIM; j++)
                                        sum += (points[i * DIM + j] - centroids[c * DIM + j]) *
                                               (points[i * DIM + j] - centroids[c * DIM + j]);
                                if (sum < least) {
                                        least = sum;
                                        out_labels[i] = (int32_t)c;
                                }
                        }
                }
                memset(centroids, 0, k * DIM * sizeof *centroids);
                for (size_t c = 0; c < k; c++) {
                        double norm2 = 0.0;
                        size_t size = 0;
                        for (size_t i = 0; i < n; i++) {
                                size += out_labels[i] == (int32_t)c;
                                for (size_t j = 0; out_labels[i] == (int32_t)c && j < DIM; j++)
                                        centroids[c * DIM + j] += points[i * DIM + j];
                        }
                        ck_assert_uint_gt(size, 0);
                        for (size_t j = 0; j < DIM; j++)
                                norm2 += centroids[c * DIM + j] * centroids[c * DIM + j];
                        for (size_t j = 0; j < DIM; j++)
                                centroids[c * DIM + j] /= under_cosine ? sqrt(norm2) : (double)size;
                }
        }
        test_free(points, centroids);
}

/* Loops over both promising forms and numbers of rounds: rows lie well apart, so no rounding decides. */
START_TEST(labels_are_those_of_a_naive_lloyd)
{
        enum { N = 405, K = 10 };
        const bool under_cosine = _i % 2 == 0;
        const size_t n_iter = (size_t)_i / 2;
        float *rows = kmeans_blobs(N, DIM, K, 2.0f, 7);
        dci_kmeans_config config = kmeans_config(under_cosine ? 0 : 2, DCI_F32, DIM, K);
        dci_kmeans_input input = kmeans_input(N, rows);
        size_t starts[K];
        int32_t labels[N] = {0};
        /* Two of these starts lie in each of the first five blobs: the rounds have something to do. */
        for (size_t c = 0; c < K; c++)
                starts[c] = (2 * c + 1) * N / (2 * K);
        config.init = DCI_KMEANS_INIT_EVEN;
        config.n_iter = n_iter;
        kmeans_out out = kmeans_lawful(context, &config, &input, "lloyd");
        lloyd(N, K, rows, starts, under_cosine, n_iter, labels);
        ck_assert_uint_eq(out.result.reports->n_repaired, 0);
        if (out.result.reports->n_recorded > 1)
                ck_assert_uint_gt(out.rounds[1].n_moved, N / 20);
        for (size_t i = 0; i < N; i++)
                test_hold(labels[i] == out.result.labels[i]);
        kmeans_out_free(&out);
        free(rows);
}
END_TEST

/* Loops over forms: rows of the same blob end in one cluster, those of another in another. */
START_TEST(blobs_far_apart_are_the_clusters)
{
        enum { N = 700, K = 12 };
        float *rows = kmeans_blobs(N, DIM, K, 12.0f, 8);
        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_BF16, DIM, K);
        void *narrow = kmeans_narrow(DCI_BF16, N * DIM, rows);
        dci_kmeans_input input = kmeans_input(N, narrow);
        config.init = DCI_KMEANS_INIT_PLUSPLUS;
        config.n_redo = 4;
        kmeans_out out = kmeans_lawful(context, &config, &input, "blobs");
        for (size_t i = 0; i < N; i++)
                for (size_t j = 0; j < K; j++)
                        test_hold((out.result.labels[i] == out.result.labels[j]) == (i % K == j));
        ck_assert_int_eq(out.result.reports->stop, DCI_KMEANS_STOP_STABLE);
        kmeans_out_free(&out);
        test_free(narrow, rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans laws");
        TCase *laws = test_case_with(suite, "laws", 120, context_open_2, context_close);
        tcase_add_loop_test(laws, every_shape_format_and_start_obeys_the_laws, 0, KMEANS_FORMS * COUNT(shapes));
        tcase_add_loop_test(laws, real_keys_obey_the_laws, 0, KMEANS_FORMS * COUNT(row_dtypes));
        tcase_add_loop_test(laws, without_capacity_the_free_objective_is_the_objective, 0, KMEANS_FORMS);
        tcase_add_loop_test(laws, no_round_makes_the_objective_worse, 0, 4);
        tcase_add_loop_test(laws, rounds_report_the_objective_of_their_assignment, 0, 3 * KMEANS_FORMS);
        tcase_add_loop_test(laws, as_many_clusters_as_rows_fit_perfectly, 0, 3);
        tcase_add_loop_test(laws, a_warm_start_without_rounds_gives_the_labels_again, 0, KMEANS_FORMS);
        tcase_add_test(laws, given_centroids_are_compared_by_direction_and_ties_go_to_the_lower_number);
        tcase_add_test(laws, given_centroids_may_be_shorter_or_longer_than_any_row);
        tcase_add_test(laws, even_starts_are_the_middle_rows);
        tcase_add_test(laws, drawn_starts_are_rows);
        tcase_add_loop_test(laws, a_tolerance_stops_at_the_first_round_that_changes_little, 0, KMEANS_FORMS);
        tcase_add_loop_test(laws, without_tolerance_rounds_go_on_until_no_label_changes, 0, KMEANS_FORMS);
        tcase_add_loop_test(laws, of_several_runs_the_best_is_kept, 0, KMEANS_FORMS);
        tcase_add_loop_test(laws, labels_are_those_of_a_naive_lloyd, 0, 2 * 6);
        tcase_add_loop_test(laws, blobs_far_apart_are_the_clusters, 0, KMEANS_FORMS);
        return test_main(suite);
}
