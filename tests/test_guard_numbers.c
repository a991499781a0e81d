/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The same as test_guard.c for k-means, sketches and transforms. */
#include <math.h>
#include <string.h>

#include "dci/kmeans.h"
#include "dci/sketch.h"
#include "dci/transform.h"
#include "simd/kernels.h"
#include "tests/guard.h"
#include "tests/pdci_fixture.h"

enum { ROWS = 75, MAX_DIM = 97, QUERIES = 11, CLUSTERS = 6, PROBLEMS = 2, K = 5 };

static const size_t dims[] = {1, 5, 16, 33, 64, MAX_DIM};

/* n rows of a format, `gap` elements between them. */
static const void *rows_of(dci_dtype dtype, const float *rows, size_t n, size_t dim, size_t gap)
{
        static unsigned char narrow[ROWS * PROBLEMS * MAX_DIM * sizeof(float)];
        dci_kernels_scalar.narrow[dtype - 1](rows, n * dim, narrow);
        return guard_rows(narrow, n, dim, dim + gap, dci_dtype_size(dtype));
}

/* Calls fn at every level, for every dim and format, with arrays that end or begin at a page that cannot be touched. */
static void everywhere(void (*fn)(dci_context *context, size_t dim, dci_dtype dtype, const float *rows))
{
        const size_t n = test_n_isas();
        for (size_t i = 0; i < n; i++) {
                dci_context *context = test_context_of_level((int)i);
                for (size_t d = 0; d < COUNT(dims); d++) {
                        float *rows = test_normal(ROWS * PROBLEMS, dims[d], 5);
                        for (size_t t = 0; t < COUNT(all_dtypes); t++)
                                for (int begin = 0; begin < 2; begin++) {
                                        guard_at_begin(begin != 0);
                                        fn(context, dims[d], all_dtypes[t], rows);
                                        guard_release();
                                }
                        free(rows);
                }
                dci_context_destroy(context);
        }
}

/* --- k-means ----------------------------------------------------------------------------------------------------------------- */

static void cluster(dci_context *context, dci_kmeans_config *c, size_t gap, const float *rows)
{
        const size_t dim = c->dim, problems = PROBLEMS;
        dci_kmeans_input in;
        dci_kmeans_result out;
        dci_kmeans_report reports[PROBLEMS];
        ck_ok(dci_kmeans_input_init(&in, sizeof in));
        ck_ok(dci_kmeans_result_init(&out, sizeof out));
        in.n = ROWS;
        in.n_problems = problems;
        in.ld = gap > 0 ? dim + gap : 0;
        in.rows = rows_of(c->dtype, rows, ROWS * problems, dim, gap);
        if (c->init == DCI_KMEANS_INIT_GIVEN)
                in.centroids = guard_in(rows, problems * CLUSTERS * dim * sizeof(float));
        if (c->subtract_mean == DCI_MEAN_GIVEN)
                in.means = guard_in(rows, problems * dim * sizeof(float));
        in.value_dim = (dim + 1) / 2;
        in.value_dtype = c->dtype;
        in.values = rows_of(c->dtype, rows, ROWS * problems, in.value_dim, gap);
        in.value_ld = in.value_dim + gap;
        out.labels = guard_out(problems * ROWS * sizeof(int32_t));
        out.ids = guard_out(problems * ROWS * sizeof(int32_t));
        out.sizes = guard_out(problems * CLUSTERS * sizeof(int32_t));
        out.offsets = guard_out(problems * (CLUSTERS + 1) * sizeof(int32_t));
        out.centroids = guard_out(problems * CLUSTERS * dim * sizeof(float));
        out.means = guard_out(problems * CLUSTERS * dim * sizeof(float));
        out.value_sums = guard_out(problems * CLUSTERS * in.value_dim * sizeof(float));
        out.row_means = guard_out(problems * dim * sizeof(float));
        for (size_t i = 0; i < problems; i++) {
                ck_ok(dci_kmeans_report_init(&reports[i], sizeof reports[i]));
                reports[i].rounds = guard_out(3 * sizeof *reports[i].rounds);
                reports[i].rounds_room = 3;
        }
        out.reports = guard_copy(reports, sizeof reports);
        ck_ok(dci_kmeans(context, c, &in, NULL, &out));
        ck_ok(dci_kmeans_check(context, c, &in, &out));
}

static void clusters_of(dci_context *context, size_t dim, dci_dtype dtype, const float *rows)
{
        size_t number = 0;
        for (size_t m = 0; m < COUNT(all_metrics); m++)
                for (int32_t init = DCI_KMEANS_INIT_RANDOM; init <= DCI_KMEANS_INIT_GIVEN; init++, number++) {
                        dci_kmeans_config c;
                        ck_ok(dci_kmeans_config_init(&c, sizeof c));
                        c.dim = dim;
                        c.n_clusters = CLUSTERS;
                        c.metric = all_metrics[m];
                        c.dtype = dtype;
                        c.init = init;
                        c.n_iter = 3;
                        c.zero_rows = c.metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : 0;
                        c.subtract_mean = (int32_t)(number % 3);
                        c.capacity = number % 4 == 1 ? ROWS / CLUSTERS + 3 : 0;
                        c.segment_rows = number % 4 == 2 && init != DCI_KMEANS_INIT_GIVEN ? 32 : 0;
                        cluster(context, &c, number % 3, rows);
                        guard_release();
                }
}

START_TEST(kmeans_touches_nothing_but_the_arrays_of_its_caller)
{
        everywhere(clusters_of);
}
END_TEST

/* --- sketches ---------------------------------------------------------------------------------------------------------------- */

static void ask(dci_sketch *sketch, size_t dim, dci_dtype dtype, size_t gap, const float *queries)
{
        static const size_t counts[] = {1, 2, 8, QUERIES};
        const size_t n = dci_sketch_count(sketch);
        for (size_t i = 0; i < COUNT(counts); i++) {
                const size_t n_queries = counts[i], out_ld = n - 3 + gap;
                const void *q = rows_of(dtype, queries, n_queries, dim, gap);
                float *out = guard_out(guard_bytes(n_queries, n - 3, out_ld, sizeof *out));
                ck_ok(dci_sketch_score(sketch, n_queries, q, dim + gap, 3, n - 3, out, out_ld));
                guard_gaps(out, n_queries, n - 3, out_ld, sizeof *out, "scores");
                out = guard_out(guard_bytes(n_queries, n - 3, out_ld, sizeof *out));
                ck_ok(dci_sketch_bound(sketch, n_queries, q, dim + gap, 1, n - 3, 0.9, out, out_ld));
                guard_gaps(out, n_queries, n - 3, out_ld, sizeof *out, "bounds");
                ck_ok(dci_sketch_search(sketch, n_queries, q, dim + gap, K, guard_out(n_queries * K * sizeof(int64_t)),
                                        guard_out(n_queries * K * sizeof(float))));
        }
        const int64_t numbers[] = {0, (int64_t)n - 1, 31, 32};
        float *out = guard_out(guard_bytes(COUNT(numbers), dim, dim + gap, sizeof *out));
        ck_ok(dci_sketch_decode(sketch, COUNT(numbers), guard_in(numbers, sizeof numbers), out, dim + gap));
        guard_gaps(out, COUNT(numbers), dim, dim + gap, sizeof *out, "decoded rows");
}

static void sketches_of(dci_context *context, size_t dim, dci_dtype dtype, const float *rows)
{
        static const int32_t widths[] = {1, 2, 3, 4, 8};
        for (size_t w = 0; w < COUNT(widths); w++) {
                const size_t gap = w % 3;
                dci_sketch_config c;
                dci_sketch *sketch = NULL;
                ck_ok(dci_sketch_config_init(&c, sizeof c));
                c.dim = dim;
                c.dtype = c.query_dtype = dtype;
                c.bits = widths[w];
                c.transform = 1 + (int32_t)(w % 2);
                c.centre = 1 + (int32_t)(w % 3);
                c.given_centre = c.centre == DCI_CENTRE_GIVEN ? guard_in(rows, dim * sizeof *rows) : NULL;
                ck_ok(dci_sketch_create(context, &c, &sketch));
                ck_ok(dci_sketch_append(sketch, 40, rows_of(dtype, rows, 40, dim, gap), dim + gap));
                ask(sketch, dim, dtype, gap, rows);
                guard_release();
                ck_ok(dci_sketch_fit(sketch, 40, rows_of(dtype, rows, 40, dim, gap), dim + gap, QUERIES,
                                     rows_of(dtype, rows + dim, QUERIES, dim, gap), dim + gap));
                ck_ok(dci_sketch_append(sketch, ROWS - 40, rows_of(dtype, rows + 40 * dim, ROWS - 40, dim, gap),
                                        dim + gap));
                ask(sketch, dim, dtype, gap, rows);
                dci_sketch_destroy(sketch);
                guard_release();
        }
}

START_TEST(a_sketch_touches_nothing_but_the_arrays_of_its_caller)
{
        everywhere(sketches_of);
}
END_TEST

/* --- transforms -------------------------------------------------------------------------------------------------------------- */

static void transforms_of(dci_context *context, size_t dim, dci_dtype dtype, const float *rows)
{
        const size_t es = dci_dtype_size(dtype);
        for (size_t gap = 0; gap < 3; gap++) {
                const size_t ld = dim + gap, ld_out = dim + 2 * gap;
                const void *in = rows_of(dtype, rows, ROWS, dim, gap);
                void *out = guard_out(guard_bytes(ROWS, dim, ld_out, es));
                ck_ok(dci_cosine_transform(context, ROWS, dim, dtype, in, ld, DCI_ZERO_KEEP, out, ld_out));
                guard_gaps(out, ROWS, dim, ld_out, es, "unit rows");
                out = guard_copy(in, guard_bytes(ROWS, dim, ld, es));
                ck_ok(dci_cosine_transform(context, ROWS, dim, dtype, out, ld, DCI_ZERO_KEEP, out, ld));
                guard_gaps(out, ROWS, dim, ld, es, "unit rows in place");
                dci_mips mips;
                ck_ok(dci_mips_init(&mips, sizeof mips));
                ck_ok(dci_mips_fit(context, &mips, ROWS, dim, dtype, in, ld, NULL));
                if (dtype != DCI_F32)
                        continue;
                for (int32_t form = DCI_MIPS_SCALED; form <= DCI_MIPS_UNSCALED; form++) {
                        const size_t lifted_ld = dim + 1 + gap, n_bytes = guard_bytes(ROWS, dim + 1, lifted_ld, es);
                        float *lifted = guard_out(n_bytes);
                        ck_ok(dci_mips_queries(context, &mips, form, ROWS, dim, in, ld, lifted, lifted_ld));
                        guard_gaps(lifted, ROWS, dim + 1, lifted_ld, es, "lifted queries");
                        lifted = guard_out(n_bytes);
                        ck_ok(dci_mips_keys(context, &mips, form, ROWS, dim, in, ld, lifted, lifted_ld));
                        guard_gaps(lifted, ROWS, dim + 1, lifted_ld, es, "lifted keys");
                        if (form == DCI_MIPS_UNSCALED)
                                ck_ok(dci_mips_relift(context, &mips, ROWS, dim, lifted, lifted_ld));
                        guard_gaps(lifted, ROWS, dim + 1, lifted_ld, es, "lifted keys again");
                }
                guard_release();
        }
}

START_TEST(a_transform_touches_nothing_but_the_arrays_of_its_caller)
{
        everywhere(transforms_of);
}
END_TEST

/* Arrays of no rows may be anywhere. */
START_TEST(calls_for_no_rows_touch_no_array)
{
        dci_context *context = test_context(1);
        dci_index_config config = index_config(9, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        dci_sketch_config of_sketch;
        dci_sketch *sketch = NULL;
        ck_ok(dci_sketch_config_init(&of_sketch, sizeof of_sketch));
        of_sketch.dim = 9;
        void *nowhere = guard_out(0);
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, 0, nowhere, 9, nowhere, NULL));
        ck_ok(dci_index_search(index, 0, nowhere, 9, 3, NULL, nowhere, nowhere));
        ck_ok(dci_index_remove(index, 0, nowhere));
        ck_ok(dci_index_reconstruct(index, 0, nowhere, nowhere, 9));
        dci_index_destroy(index);
        ck_ok(dci_sketch_create(context, &of_sketch, &sketch));
        ck_ok(dci_sketch_append(sketch, 0, nowhere, 9));
        ck_ok(dci_sketch_score(sketch, 1, guard_in((const float[9]){0}, 9 * sizeof(float)), 9, 0, 0, nowhere, 0));
        ck_ok(dci_sketch_decode(sketch, 0, nowhere, nowhere, 9));
        dci_sketch_destroy(sketch);
        ck_ok(dci_cosine_transform(context, 0, 9, DCI_F16, nowhere, 9, DCI_ZERO_REFUSE, nowhere, 9));
        guard_release();
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("test_guard_numbers");
        TCase *tcase = test_case(suite, "arrays", 120);
        tcase_add_test(tcase, kmeans_touches_nothing_but_the_arrays_of_its_caller);
        tcase_add_test(tcase, a_sketch_touches_nothing_but_the_arrays_of_its_caller);
        tcase_add_test(tcase, a_transform_touches_nothing_but_the_arrays_of_its_caller);
        tcase_add_test(tcase, calls_for_no_rows_touch_no_array);
        return test_main(suite);
}
