/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* K-means: what is refused and in which words, rows that tempt a loop to go on for ever, progress, damaged results. */
#include "tests/common.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/kmeans_fixture.h"

enum { N = 12, DIM = 4, K = 3, P = 2 };

/* --- refusals ------------------------------------------------------------------------------------------------------------------ */

/* A small call that succeeds as it is. */
typedef struct request {
        dci_kmeans_config config;
        dci_kmeans_input input;
        dci_kmeans_result result;
        float rows[P * N * DIM], centroids[P * K * DIM], means[P * DIM], sums[P * K * DIM];
        int32_t labels[P * N];
        dci_kmeans_report reports[P];
} request;

static void request_init(request *r)
{
        float *numbers = test_normal(P * (N + K + 1), DIM, 1);
        memcpy(r->rows, numbers, sizeof r->rows);
        memcpy(r->centroids, numbers + P * N * DIM, sizeof r->centroids);
        memcpy(r->means, numbers + P * (N + K) * DIM, sizeof r->means);
        free(numbers);
        r->config = kmeans_config(0, DCI_F32, DIM, K);
        r->input = kmeans_input(N, r->rows);
        r->input.n_problems = P;
        ck_ok(dci_kmeans_result_init(&r->result, sizeof r->result));
        r->result.labels = r->labels;
        r->result.reports = r->reports;
        for (size_t p = 0; p < P; p++)
                ck_ok(dci_kmeans_report_init(&r->reports[p], sizeof *r->reports));
        memset(r->labels, 0xA5, sizeof r->labels);
}

static bool untouched(const request *r)
{
        for (size_t i = 0; i < P * N; i++)
                if (r->labels[i] != (int32_t)0xA5A5A5A5)
                        return false;
        return true;
}

static dci_status ask(const request *r)
{
        return dci_kmeans(context, &r->config, &r->input, NULL, &r->result);
}

/* The call with this change is refused in these words, and nothing is written. */
#define REFUSED(change, status, part)                                                                                  \
        do {                                                                                                           \
                request r;                                                                                             \
                request_init(&r);                                                                                      \
                change;                                                                                                \
                ck_refused(ask(&r), status, part);                                                                     \
                ck_assert_msg(untouched(&r), "written: %s", #change);                                                  \
        } while (0)
#define INVALID(change, part) REFUSED(change, DCI_ERR_INVALID, part)

START_TEST(what_is_missing_is_named)
{
        request plain;
        request_init(&plain);
        ck_ok(ask(&plain));
        ck_refused(dci_kmeans(NULL, &plain.config, &plain.input, NULL, &plain.result), DCI_ERR_INVALID,
                   "context is NULL");
        ck_refused(dci_kmeans(context, NULL, &plain.input, NULL, &plain.result), DCI_ERR_INVALID, "config is NULL");
        ck_refused(dci_kmeans(context, &plain.config, NULL, NULL, &plain.result), DCI_ERR_INVALID, "input is NULL");
        ck_refused(dci_kmeans(context, &plain.config, &plain.input, NULL, NULL), DCI_ERR_INVALID, "result is NULL");
        ck_refused(dci_kmeans_check(NULL, &plain.config, &plain.input, &plain.result), DCI_ERR_INVALID,
                   "context is NULL");
        ck_refused(dci_kmeans_check(context, NULL, &plain.input, &plain.result), DCI_ERR_INVALID, "config is NULL");
        ck_refused(dci_kmeans_check(context, &plain.config, NULL, &plain.result), DCI_ERR_INVALID, "input is NULL");
        ck_refused(dci_kmeans_check(context, &plain.config, &plain.input, NULL), DCI_ERR_INVALID, "result is NULL");
        INVALID(r.input.rows = NULL, "rows is NULL");
        INVALID(r.config.init = DCI_KMEANS_INIT_GIVEN, "centroids is NULL");
        INVALID(r.input.centroids = r.centroids, "centroids is given");
        INVALID(r.config.subtract_mean = DCI_MEAN_GIVEN, "means is NULL");
        INVALID(r.input.means = r.means, "means is given");
        INVALID(r.result.value_sums = r.sums, "values is NULL");
        INVALID((r.result.labels = NULL, r.result.reports = NULL), "every array of the result is NULL");
}
END_TEST

START_TEST(structs_that_were_not_prepared_are_refused)
{
        request plain;
        ck_refused(dci_kmeans_config_init(NULL, sizeof plain.config), DCI_ERR_INVALID, "dci_kmeans_config");
        ck_refused(dci_kmeans_input_init(NULL, sizeof plain.input), DCI_ERR_INVALID, "dci_kmeans_input");
        ck_refused(dci_kmeans_result_init(NULL, sizeof plain.result), DCI_ERR_INVALID, "dci_kmeans_result");
        ck_refused(dci_kmeans_report_init(NULL, sizeof plain.reports[0]), DCI_ERR_INVALID, "dci_kmeans_report");
        ck_refused(dci_kmeans_config_init(&plain.config, sizeof plain.config - 1), DCI_ERR_INVALID, "size");
        ck_refused(dci_kmeans_input_init(&plain.input, 0), DCI_ERR_INVALID, "size");
        ck_refused(dci_kmeans_result_init(&plain.result, 8), DCI_ERR_INVALID, "size");
        ck_refused(dci_kmeans_report_init(&plain.reports[0], 8), DCI_ERR_INVALID, "size");
        INVALID(r.config.struct_size = 0, "dci_kmeans_config has struct_size 0");
        INVALID(r.input.struct_size--, "dci_kmeans_input has struct_size");
        INVALID(r.result.struct_size = 1, "dci_kmeans_result has struct_size 1");
        INVALID(r.reports[0].struct_size = 3, "dci_kmeans_report has struct_size 3");
        INVALID(r.reports[1].struct_size = 0, "struct_size 0");
        struct {
                dci_kmeans_report report;
                unsigned char newer[8]; /* what a library of later might know */
        } longer[P + 1] = {0};
        longer[0].report.struct_size = longer[1].report.struct_size = sizeof *longer;
        REFUSED((r.result.reports = &longer[0].report, longer[1].newer[3] = 1), DCI_ERR_UNSUPPORTED, "field at byte");
        longer[1].newer[3] = 0;
        INVALID((r.result.reports = &longer[0].report, longer[1].report.struct_size = sizeof longer[1] + 8),
                "the first has");
}
END_TEST

START_TEST(defaults_are_those_of_the_header)
{
        request r;
        memset(&r, 0xFF, sizeof r);
        request_init(&r);
        ck_ok(dci_kmeans_config_init(&r.config, sizeof r.config));
        const dci_kmeans_config *c = &r.config;
        ck_assert(c->metric == DCI_METRIC_COSINE && c->dtype == DCI_F32 && c->init == DCI_KMEANS_INIT_RANDOM &&
                  c->centroid == DCI_CENTROID_UNIT && c->zero_rows == DCI_ZERO_REFUSE &&
                  c->subtract_mean == DCI_MEAN_NONE && c->n_iter == 20 && c->tolerance == 0.0 && c->n_redo == 1 &&
                  c->seed == 0 && c->capacity == 0 && c->segment_rows == 0 && c->n_iter_global == 0 && c->dim == 0);
        ck_ok(dci_kmeans_input_init(&r.input, sizeof r.input));
        ck_assert(r.input.n_problems == 1 && r.input.value_dtype == DCI_F32 && r.input.rows == NULL);
}
END_TEST

START_TEST(sizes_out_of_range_are_refused)
{
        INVALID(r.config.dim = 0, "dim is 0");
        INVALID(r.config.dim = DCI_MAX_DIM + 1, "dim is 1048577");
        INVALID(r.config.n_clusters = 0, "n_clusters is 0");
        INVALID(r.config.n_clusters = N + 1, "13 clusters of 12 rows");
        INVALID(r.input.n = 0, "0 rows");
        INVALID(r.input.n_problems = 0, "n_problems is 0");
        INVALID(r.input.ld = DIM - 1, "3 elements apart");
        INVALID(r.config.capacity = N / K - 1, "do not hold");
        INVALID(r.config.n_redo = 0, "n_redo is 0");
        INVALID(r.config.n_redo = (size_t)INT32_MAX + 1, "n_redo is 2147483648");
        REFUSED((r.result.reports = NULL, r.config.dim = r.input.ld = DCI_MAX_DIM, r.input.problem_ld = 1,
                 r.input.n_problems = SIZE_MAX / 16 / DCI_MAX_DIM),
                DCI_ERR_LIMIT, "clusters of 1048576 elements exceed the address space");
        REFUSED(r.input.n = ((size_t)1 << 31) - 63, DCI_ERR_LIMIT, "rows");
        REFUSED(r.input.n = SIZE_MAX, DCI_ERR_LIMIT, "rows");
        REFUSED(r.input.ld = SIZE_MAX / 4, DCI_ERR_LIMIT, "exceed");
        REFUSED((r.input.ld = SIZE_MAX / 8, r.input.problem_ld = DIM), DCI_ERR_LIMIT, "exceed");
        REFUSED(r.input.problem_ld = SIZE_MAX, DCI_ERR_LIMIT, "exceed");
        REFUSED(r.input.n_problems = SIZE_MAX, DCI_ERR_LIMIT, "exceed");
        REFUSED(r.input.first_row = ((size_t)1 << 31) - N, DCI_ERR_LIMIT, "row 2147483636 + 12");
        REFUSED(r.input.first_row = SIZE_MAX, DCI_ERR_LIMIT, "row");
        REFUSED(r.input.first_cluster = ((size_t)1 << 31) - K, DCI_ERR_LIMIT, "cluster 2147483645 + 3");
        REFUSED(r.input.first_cluster = SIZE_MAX - 1, DCI_ERR_LIMIT, "cluster");
        INVALID((r.input.values = r.rows, r.result.value_sums = r.sums), "value_dim is 0");
        INVALID((r.input.values = r.rows, r.input.value_dim = DCI_MAX_DIM + 1), "value_dim is 1048577");
        INVALID((r.input.values = r.rows, r.input.value_dim = 2, r.input.value_ld = 1), "1 elements apart");
        REFUSED((r.input.values = r.rows, r.input.value_dim = 2, r.input.value_ld = SIZE_MAX / 4), DCI_ERR_LIMIT,
                "exceed");
        REFUSED((r.input.values = r.rows, r.input.value_dim = 2, r.input.value_problem_ld = SIZE_MAX), DCI_ERR_LIMIT,
                "exceed");
}
END_TEST

/* As the header states them: first_row + n and first_cluster + n_clusters are at most 2^31 - 64. */
START_TEST(the_largest_numbers_of_rows_and_clusters_are_taken)
{
        request r;
        request_init(&r);
        r.input.first_row = ((size_t)1 << 31) - 64 - N;
        r.input.first_cluster = ((size_t)1 << 31) - 64 - K;
        ck_ok(ask(&r));
        ck_ok(dci_kmeans_check(context, &r.config, &r.input, &r.result));
}
END_TEST

START_TEST(choices_that_are_unknown_or_contradict_each_other_are_refused)
{
        INVALID(r.config.metric = 0, "metric is 0, expected L2, IP or COSINE");
        INVALID(r.config.metric = 4, "metric is 4, expected ");
        INVALID(r.config.dtype = 0, "dtype is 0, expected ");
        INVALID(r.config.dtype = 6, "dtype is 6, expected ");
        INVALID(r.config.init = 0, "init is 0, expected RANDOM, PLUSPLUS, EVEN or GIVEN");
        INVALID(r.config.init = 5, "init is 5, expected ");
        INVALID(r.config.centroid = 2, "centroid is 2, expected ");
        INVALID(r.config.centroid = -1, "centroid is -1, expected ");
        INVALID(r.config.zero_rows = 2, "zero_rows is 2, expected ");
        INVALID(r.config.subtract_mean = 3, "subtract_mean is 3, expected ");
        INVALID((r.input.values = r.rows, r.input.value_dim = 2, r.input.value_dtype = 9),
                "value_dtype is 9, expected ");
        INVALID((r.config.metric = DCI_METRIC_L2, r.config.centroid = DCI_CENTROID_MEAN), "cosine");
        INVALID((r.config.metric = DCI_METRIC_IP, r.config.zero_rows = DCI_ZERO_KEEP), "cosine");
        INVALID(r.config.tolerance = -0.1, "tolerance is -0.1");
        INVALID(r.config.tolerance = 1.5, "tolerance is 1.5");
        INVALID(r.config.tolerance = (double)NAN, "tolerance is");
        INVALID((r.config.n_redo = 2, r.config.init = DCI_KMEANS_INIT_EVEN), "n_redo is 2");
        INVALID((r.config.n_redo = 2, r.config.init = DCI_KMEANS_INIT_GIVEN, r.input.centroids = r.centroids),
                "n_redo is 2");
        INVALID((r.config.segment_rows = 32, r.config.init = DCI_KMEANS_INIT_GIVEN, r.input.centroids = r.centroids),
                "segment_rows is 32");
        INVALID(r.config.n_iter_global = 4, "n_iter_global is 4");
}
END_TEST

#define NUMBER(change, part) REFUSED(change, DCI_ERR_NUMBER, part)
#define GIVEN (r.config.init = DCI_KMEANS_INIT_GIVEN, r.input.centroids = r.centroids)
#define MEANS (r.config.subtract_mean = DCI_MEAN_GIVEN, r.input.means = r.means)

START_TEST(bad_numbers_are_named)
{
        NUMBER(r.rows[5 * DIM + 1] = NAN, "row 5 of problem 0");
        NUMBER(r.rows[5 * DIM + 1] = INFINITY, "row 5 of problem 0");
        NUMBER((r.rows[9 * DIM] = -INFINITY, r.rows[7 * DIM] = NAN), "row 7 of problem 0");
        NUMBER(r.rows[0] = 1e19f, "row 0 of problem 0");
        NUMBER((r.config.metric = DCI_METRIC_L2, r.rows[11 * DIM] = 2e19f), "row 11 of problem 0");
        NUMBER((r.config.subtract_mean = DCI_MEAN_OWN, r.rows[3 * DIM] = NAN), "row 3 of problem 0");
        NUMBER(memset(r.rows + 4 * DIM, 0, DIM * sizeof(float)), "row 4 of problem 0 has length 0");
        NUMBER((memset(r.rows + 4 * DIM, 0, DIM * sizeof(float)), r.rows[4 * DIM] = 0x1p-41f), "row 4 of problem 0");
        NUMBER((MEANS, memcpy(r.rows + 6 * DIM, r.means, DIM * sizeof(float))), "row 6 of problem 0 has length 0");
        NUMBER((GIVEN, r.centroids[DIM] = NAN), "centroid 1 of problem 0");
        NUMBER((GIVEN, r.centroids[(K + 2) * DIM] = INFINITY), "centroid 2 of problem 1");
        NUMBER((GIVEN, memset(r.centroids + DIM, 0, DIM * sizeof(float))), "centroid 1 of problem 0 has length 0");
        NUMBER((MEANS, r.means[DIM + 1] = NAN), "mean of problem 1");
        NUMBER((MEANS, r.means[0] = -INFINITY), "mean of problem 0");
        for (size_t form = 2; form < KMEANS_FORMS; form++) { /* a zero centroid is one but under COSINE */
                request r;
                request_init(&r);
                r.config.metric = kmeans_forms[form].metric;
                memset(r.rows, 0, DIM * sizeof(float));
                (void)GIVEN;
                memset(r.centroids + DIM, 0, DIM * sizeof(float));
                ck_ok(ask(&r));
        }
}
END_TEST

/* Many problems, a thread each; of several bad rows the first is named. */
START_TEST(the_first_bad_row_is_named_at_any_thread_count)
{
        enum { MANY = 8, ROWS = 2000, LONG = 16 };
        float *rows = test_normal(MANY * ROWS, LONG, 1);
        int32_t *labels = malloc(MANY * ROWS * sizeof *labels);
        dci_kmeans_config config = kmeans_config(0, DCI_F32, LONG, 40);
        dci_kmeans_input input = kmeans_input(ROWS, rows);
        dci_kmeans_result result;
        ck_ok(dci_kmeans_result_init(&result, sizeof result));
        result.labels = labels;
        rows[(7 * ROWS + 3) * LONG] = rows[(5 * ROWS + 1999) * LONG + 15] = rows[(5 * ROWS + 1700) * LONG] = NAN;
        memset(rows + (6 * ROWS + 1) * LONG, 0, LONG * sizeof *rows);
        for (int32_t threads = 1; threads <= 3; threads++) {
                dci_context *own = test_context(threads);
                input.n_problems = MANY;
                input.rows = rows;
                ck_refused(dci_kmeans(own, &config, &input, NULL, &result), DCI_ERR_NUMBER, "row 1700 of problem 5");
                input.n_problems = 1;
                input.rows = rows + 5 * ROWS * LONG;
                ck_refused(dci_kmeans(own, &config, &input, NULL, &result), DCI_ERR_NUMBER, "row 1700 of problem 0");
                input.n_problems = 5;
                input.rows = rows;
                ck_ok(dci_kmeans(own, &config, &input, NULL, &result));
                dci_context_destroy(own);
        }
        test_free(rows, labels);
}
END_TEST

/* Bad rows, bad values and rows without direction, before and after each other. Rows come in pairs whose sum is zero, so that all
 * three means are. */
START_TEST(the_first_bad_row_is_named_whatever_mean_is_subtracted)
{
        enum { ROWS = 600, NONE = ROWS };
        static const struct {
                size_t row, value, zero;
                const char *part;
        } cases[] = {{500, 5, NONE, "value 5 of problem 0"},   {5, 500, NONE, "row 5 of problem 0 holds"},
                     {300, 300, NONE, "row 300 of problem 0"}, {NONE, 599, NONE, "value 599 of problem 0"},
                     {NONE, 400, 8, "row 8 of problem 0 has"}, {NONE, 8, 400, "value 8 of problem 0"}};
        const float zeros[DIM] = {0};
        float *normal = test_normal(ROWS, DIM, 7), rows[ROWS * DIM], values[ROWS * DIM];
        int32_t labels[ROWS];
        dci_kmeans_result result;
        ck_ok(dci_kmeans_result_init(&result, sizeof result));
        result.labels = labels;
        for (size_t i = 0; i < 3 * COUNT(cases); i++) {
                const size_t row = cases[i / 3].row, value = cases[i / 3].value, zero = cases[i / 3].zero;
                dci_kmeans_config config = kmeans_config(0, DCI_F32, DIM, K);
                dci_kmeans_input input = kmeans_input(ROWS, rows);
                config.subtract_mean = (int32_t)i % 3;
                input.means = config.subtract_mean == DCI_MEAN_GIVEN ? zeros : NULL;
                input.values = values;
                input.value_dim = DIM;
                for (size_t j = 0; j < ROWS * DIM; j++) {
                        const size_t r = j / DIM;
                        rows[j] =
                                r / 2 == zero / 2 ? 0.0f : (r % 2 == 0 ? 1.0f : -1.0f) * normal[j % DIM + r / 2 * DIM];
                        values[j] = r == value ? NAN : 1.0f;
                        if (r == row)
                                rows[j] = INFINITY;
                }
                ck_refused(dci_kmeans(context, &config, &input, NULL, &result), DCI_ERR_NUMBER, cases[i / 3].part);
        }
        free(normal);
}
END_TEST

/* --- rows that tempt ------------------------------------------------------------------------------------------------------------ */

/* Loops over forms. */
START_TEST(rows_that_are_all_alike_leave_clusters_empty)
{
        enum { ROWS = 70, MANY = 9, LONG = 33 };
        float *rows = test_normal(ROWS, LONG, 1);
        for (size_t i = LONG; i < ROWS * LONG; i++)
                rows[i] = rows[i - LONG];
        for (size_t init = 0; init < COUNT(kmeans_inits); init++)
                for (size_t segments = 0; segments <= 32; segments += 32) {
                        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, LONG, MANY);
                        dci_kmeans_input input = kmeans_input(ROWS, rows);
                        config.init = kmeans_inits[init];
                        config.segment_rows = segments;
                        kmeans_out out = kmeans_lawful(context, &config, &input, "all alike");
                        ck_assert_uint_eq(out.result.reports->n_empty, MANY - 1);
                        kmeans_out_free(&out);
                        config.subtract_mean = DCI_MEAN_OWN; /* what rounding leaves of rows may have a direction */
                        out = kmeans_room(&config, &input);
                        const dci_status status = dci_kmeans(context, &config, &input, NULL, &out.result);
                        ck_assert(status == DCI_OK || status == DCI_ERR_NUMBER);
                        kmeans_out_free(&out);
                }
        free(rows);
}
END_TEST

/* Loops over forms but IP. */
START_TEST(fewer_different_rows_than_clusters_get_a_cluster_each)
{
        enum { ROWS = 120, DIFFERENT = 5, MANY = 20, LONG = 17 };
        float *rows = test_normal(ROWS, LONG, 2);
        for (size_t i = DIFFERENT * LONG; i < ROWS * LONG; i++)
                rows[i] = rows[i - DIFFERENT * LONG];
        for (size_t init = 0; init < COUNT(kmeans_inits); init++) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, LONG, MANY);
                dci_kmeans_input input = kmeans_input(ROWS, rows);
                config.init = kmeans_inits[init];
                kmeans_out out = kmeans_run(context, &config, &input);
                const double wanted = config.metric == DCI_METRIC_L2 ? 0.0 : ROWS;
                kmeans_obey(&config, &input, &out, "few different");
                ck_assert_double_le(fabs(out.result.reports->objective - wanted),
                                    1e-6 * kmeans_scale(&config, &input, &out, 0));
                ck_assert_uint_eq(out.result.reports->n_empty, MANY - DIFFERENT);
                kmeans_out_free(&out);
        }
        free(rows);
}
END_TEST

/* Loops over forms. The mean of each cluster is exactly zero: under COSINE it has no direction, and the centroid stays. */
START_TEST(rows_that_cancel_out_leave_centroids_where_they_were)
{
        enum { ROWS = 64, LONG = 8 };
        float *rows = test_normal(ROWS, LONG, 3);
        for (size_t i = LONG; i < ROWS * LONG; i++)
                rows[i] = -rows[i - LONG];
        for (size_t k = 1; k <= 3; k++) {
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, LONG, k);
                dci_kmeans_input input = kmeans_input(ROWS, rows);
                kmeans_out out = kmeans_lawful(context, &config, &input, "antipodes");
                if (config.metric == DCI_METRIC_COSINE && k == 1)
                        ck_assert_double_le(fabs(out.result.reports->objective), 1e-5 * ROWS);
                kmeans_out_free(&out);
        }
        free(rows);
}
END_TEST

/* Loops over forms. */
START_TEST(long_and_short_rows_obey_the_laws)
{
        enum { ROWS = 150, MANY = 10, LONG = 20 };
        static const float factors[] = {1e17f, 1e10f, 1e-5f, 1e-11f};
        float *rows = test_normal(ROWS, LONG, 4);
        for (size_t f = 0; f < COUNT(factors); f++)
                for (int32_t mean = DCI_MEAN_NONE; mean <= DCI_MEAN_OWN; mean++) {
                        dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, LONG, MANY);
                        float scaled[ROWS * LONG];
                        dci_kmeans_input input = kmeans_input(ROWS, scaled);
                        for (size_t i = 0; i < ROWS * LONG; i++)
                                scaled[i] = rows[i] * factors[f];
                        config.subtract_mean = mean;
                        kmeans_out out = kmeans_lawful(context, &config, &input, "long and short");
                        kmeans_out_free(&out);
                }
        static const float tiny[] = {1e-15f, 1e-20f, 1e-25f, 1e-30f, 1e-38f, 1e-40f, 1e-44f};
        for (size_t f = 0; f < COUNT(tiny); f++) { /* products vanish: any end will do */
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, LONG, MANY);
                float scaled[ROWS * LONG];
                dci_kmeans_input input = kmeans_input(ROWS, scaled);
                for (size_t i = 0; i < ROWS * LONG; i++)
                        scaled[i] = rows[i] * tiny[f];
                config.zero_rows = config.metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
                config.init = kmeans_inits[(size_t)_i % COUNT(kmeans_inits)];
                kmeans_out out = kmeans_run(context, &config, &input);
                ck_assert(isfinite(out.result.reports->objective));
                kmeans_out_free(&out);
        }
        free(rows);
}
END_TEST

/* Loops over forms. The header's limit is FLT_MAX / 256. */
START_TEST(squared_norms_up_to_the_limit_are_taken)
{
        request r;
        request_init(&r);
        const float most = sqrtf(FLT_MAX / 256.0f / DIM) * 0.999f;
        for (size_t i = 0; i < P * N * DIM; i++)
                r.rows[i] = r.rows[i] > 0.0f ? most : -most;
        r.config.metric = kmeans_forms[_i].metric;
        r.config.centroid = kmeans_forms[_i].centroid;
        ck_ok(ask(&r));
        ck_assert(isfinite(r.reports[0].objective) && isfinite(r.reports[1].objective));
}
END_TEST

/* --- progress ------------------------------------------------------------------------------------------------------------------ */

typedef struct watcher {
        size_t calls, stop_at, last, total;
        bool wrong;
} watcher;

static int32_t watch(void *ctx, size_t done, size_t total)
{
        watcher *w = ctx;
        w->wrong = w->wrong || done < w->last || done > total || (w->calls > 0 && total != w->total);
        w->last = done;
        w->total = total;
        return ++w->calls == w->stop_at;
}

/* Loops over calls with one problem, several, and so many that each has a thread. */
START_TEST(progress_is_told_in_rounds_and_may_cancel)
{
        static const size_t problems[] = {1, 2, 9};
        enum { ROWS = 1500, LONG = 32, MANY = 40 };
        float *rows = test_normal(9 * ROWS, LONG, 5);
        dci_kmeans_config config = kmeans_config(0, DCI_F32, LONG, MANY);
        dci_kmeans_input input = kmeans_input(ROWS, rows);
        config.n_iter = 6;
        config.n_redo = 2;
        input.n_problems = problems[_i];
        const dci_progress none = {NULL, NULL};
        kmeans_out plain = kmeans_run(context, &config, &input), out = kmeans_room(&config, &input);
        ck_ok(dci_kmeans(context, &config, &input, &none, &out.result));
        kmeans_same(&plain, 0, &out, 0, problems[_i], "no function");
        watcher all = {0};
        const dci_progress progress = {&all, watch};
        ck_ok(dci_kmeans(context, &config, &input, &progress, &out.result));
        kmeans_same(&plain, 0, &out, 0, problems[_i], "watched");
        ck_assert(!all.wrong && all.calls >= 1 && all.total >= 2 * problems[_i]);
        if (problems[_i] == 1) /* every round of both runs, reported again within them */
                ck_assert(all.calls >= 2 * 2 && all.total >= 2 * 6 && all.last == all.total);
        const size_t calls = all.calls;
        for (size_t stop_at = 1; stop_at <= (problems[_i] < 9 ? calls : 1); stop_at += 1 + calls / 5) {
                watcher some = {.stop_at = stop_at};
                const dci_progress stop = {&some, watch};
                ck_refused(dci_kmeans(context, &config, &input, &stop, &out.result), DCI_ERR_CANCELLED, "after");
                ck_assert_uint_eq(some.calls, stop_at);
        }
        ck_ok(dci_kmeans(context, &config, &input, NULL, &out.result));
        kmeans_same(&plain, 0, &out, 0, problems[_i], "after a cancelled call");
        kmeans_out_free(&plain);
        kmeans_out_free(&out);
        free(rows);
}
END_TEST

/* As many rounds as it takes; no sum of rounds may overflow. */
START_TEST(any_number_of_rounds_may_be_allowed)
{
        enum { ROWS = 300, LONG = 8, MANY = 7 };
        float *rows = test_normal(ROWS, LONG, 6);
        for (size_t segments = 0; segments <= 64; segments += 64) {
                dci_kmeans_config config = kmeans_config(2, DCI_F32, LONG, MANY);
                dci_kmeans_input input = kmeans_input(ROWS, rows);
                dci_kmeans_result result;
                dci_kmeans_report report;
                watcher all = {0};
                const dci_progress progress = {&all, watch};
                config.n_iter = SIZE_MAX;
                config.segment_rows = segments;
                config.n_iter_global = segments > 0 ? SIZE_MAX : 0;
                ck_ok(dci_kmeans_report_init(&report, sizeof report));
                ck_ok(dci_kmeans_result_init(&result, sizeof result));
                result.reports = &report;
                ck_ok(dci_kmeans(context, &config, &input, &progress, &result));
                ck_assert_int_eq(report.stop, DCI_KMEANS_STOP_STABLE);
                ck_assert(!all.wrong && all.calls >= report.n_rounds);
                ck_assert_msg(all.total >= all.calls, "%zu calls, %zu rounds in all", all.calls, all.total);
        }
        free(rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans edges");
        TCase *edges = test_case_with(suite, "edges", 60, context_open_3, context_close);
        tcase_add_test(edges, what_is_missing_is_named);
        tcase_add_test(edges, structs_that_were_not_prepared_are_refused);
        tcase_add_test(edges, defaults_are_those_of_the_header);
        tcase_add_test(edges, sizes_out_of_range_are_refused);
        tcase_add_test(edges, the_largest_numbers_of_rows_and_clusters_are_taken);
        tcase_add_test(edges, choices_that_are_unknown_or_contradict_each_other_are_refused);
        tcase_add_test(edges, bad_numbers_are_named);
        tcase_add_test(edges, the_first_bad_row_is_named_at_any_thread_count);
        tcase_add_test(edges, the_first_bad_row_is_named_whatever_mean_is_subtracted);
        tcase_add_loop_test(edges, rows_that_are_all_alike_leave_clusters_empty, 0, KMEANS_FORMS);
        tcase_add_loop_test(edges, fewer_different_rows_than_clusters_get_a_cluster_each, 0, 3);
        tcase_add_loop_test(edges, rows_that_cancel_out_leave_centroids_where_they_were, 0, KMEANS_FORMS);
        tcase_add_loop_test(edges, long_and_short_rows_obey_the_laws, 0, KMEANS_FORMS);
        tcase_add_loop_test(edges, squared_norms_up_to_the_limit_are_taken, 0, KMEANS_FORMS);
        tcase_add_loop_test(edges, progress_is_told_in_rounds_and_may_cancel, 0, 3);
        tcase_add_test(edges, any_number_of_rounds_may_be_allowed);
        return test_main(suite);
}
