/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * K-means of few rows of any numbers, finite or not, in arrays of their exact size between inaccessible pages. Bad numbers are refused, a result
 * is what any result must be, and labels of ordinary rows name a nearest centroid.
 */
#include <math.h>
#include <string.h>

#include "dci/kmeans.h"
#include "simd/kernels.h"
#include "tests/fuzz/fuzz.h"
#include "tests/guard.h"

enum { MAX_ROWS = 70, MAX_DIM = 40, MAX_PROBLEMS = 3 };

typedef struct problem {
        fuzz_bytes *from;
        dci_kmeans_config config;
        dci_kmeans_input input;
        dci_kmeans_result result;
        bool odd;    /* a field of the config or input */
        bool finite; /* all numbers */
        bool plain;  /* no number was odd */
} problem;

static void draw_config(problem *p, size_t n)
{
        fuzz_bytes *from = p->from;
        dci_kmeans_config *c = &p->config;
        ck_ok(dci_kmeans_config_init(c, sizeof *c));
        c->dim = 1 + fuzz_below(from, MAX_DIM);
        c->n_clusters = 1 + fuzz_below(from, n);
        c->metric = 1 + (int32_t)fuzz_below(from, 3);
        c->dtype = 1 + (int32_t)fuzz_below(from, 3);
        c->init = 1 + (int32_t)fuzz_below(from, 4);
        c->centroid = (int32_t)fuzz_below(from, 2);
        c->zero_rows = (int32_t)fuzz_below(from, 2);
        if (c->metric != DCI_METRIC_COSINE)
                c->centroid = c->zero_rows = 0;
        c->subtract_mean = (int32_t)fuzz_below(from, 3);
        c->n_iter = fuzz_below(from, 6);
        c->tolerance = fuzz_one_in(from, 3) ? 0.01 : 0.0;
        c->n_redo = c->init <= DCI_KMEANS_INIT_PLUSPLUS ? 1 + fuzz_below(from, 3) : 1;
        c->seed = fuzz_next(from);
        if (fuzz_one_in(from, 3))
                c->capacity = (n + c->n_clusters - 1) / c->n_clusters + fuzz_below(from, 4);
        else if (c->init != DCI_KMEANS_INIT_GIVEN && fuzz_one_in(from, 3)) {
                c->segment_rows = 1 + fuzz_below(from, n);
                c->n_iter_global = fuzz_below(from, 3);
        }
}

/* One field that is not of the sizes of arrays. */
static void draw_odd(problem *p)
{
        fuzz_bytes *from = p->from;
        dci_kmeans_config *c = &p->config;
        dci_kmeans_input *in = &p->input;
        p->odd = true;
        int32_t *const ints[] = {&c->metric, &c->init, &c->centroid, &c->zero_rows, &c->subtract_mean, &in->reserved};
        size_t *const sizes[] = {&c->capacity,       &c->segment_rows,   &c->n_iter_global, &in->first_row,
                                 &in->first_cluster, &in->first_problem, &c->struct_size,   &in->struct_size};
        const size_t which = fuzz_below(from, 16);
        if (which < 6)
                *ints[which] = fuzz_odd_int(from);
        else if (which < 14)
                *sizes[which - 6] = fuzz_odd_size(from);
        else if (which == 14)
                c->tolerance = fuzz_odd_double(from);
        else
                in->rows = NULL;
        c->struct_size = fuzz_struct_size(c->struct_size, sizeof *c);
        in->struct_size = fuzz_struct_size(in->struct_size, sizeof *in);
        if (c->n_iter_global > 20)
                c->n_iter_global = 20;
}

/* n x dim numbers of a format, in guarded memory. */
static const void *draw_rows(problem *p, dci_dtype dtype, size_t n_rows, size_t dim, size_t ld)
{
        const size_t es = dci_dtype_size(dtype), n = n_rows * dim;
        float *wide = malloc(n * sizeof *wide + 1);
        unsigned char *narrow = malloc(n * es + 1);
        ck_assert(wide != NULL && narrow != NULL);
        const bool odd = fuzz_one_in(p->from, 2), repeats = fuzz_one_in(p->from, 4);
        const float scale = fuzz_one_in(p->from, 4) ? fuzz_odd_float(p->from) : 1.0f;
        fuzz_stir(p->from);
        for (size_t i = 0; i < n; i++)
                wide[i] = (float)fuzz_normal(p->from) * scale;
        for (size_t i = 2 * dim; repeats && i < n; i++)
                wide[i] = wide[i - 2 * dim];
        for (size_t i = fuzz_below(p->from, 20); odd && i > 0; i--)
                fuzz_put_odd(p->from, n, wide);
        dci_kernels_scalar.narrow[dtype - 1](wide, n, narrow);
        dci_kernels_scalar.to_f32[dtype - 1](narrow, n, wide);
        for (size_t i = 0; i < n; i++)
                p->finite = p->finite && isfinite(wide[i]);
        p->plain = p->plain && !odd && scale == 1.0f;
        const void *out = guard_rows(narrow, n_rows, dim, ld, es);
        test_free(wide, narrow);
        return out;
}

static void draw_input(problem *p, size_t n)
{
        fuzz_bytes *from = p->from;
        dci_kmeans_input *in = &p->input;
        const dci_kmeans_config *c = &p->config;
        ck_ok(dci_kmeans_input_init(in, sizeof *in));
        in->n = n;
        in->n_problems = 1 + fuzz_below(from, MAX_PROBLEMS);
        const size_t gap = fuzz_below(from, 3);
        in->ld = gap == 0 ? 0 : c->dim + gap;
        in->rows = draw_rows(p, c->dtype, n * in->n_problems, c->dim, c->dim + gap);
        if (c->init == DCI_KMEANS_INIT_GIVEN)
                in->centroids = draw_rows(p, DCI_F32, in->n_problems * c->n_clusters, c->dim, c->dim);
        if (c->subtract_mean == DCI_MEAN_GIVEN)
                in->means = draw_rows(p, DCI_F32, in->n_problems, c->dim, c->dim);
        if (fuzz_one_in(from, 2)) {
                in->value_dim = 1 + fuzz_below(from, MAX_DIM);
                in->value_dtype = 1 + (int32_t)fuzz_below(from, 3);
                const bool finite = p->finite; /* of values only sums are made: their numbers are not looked at */
                in->values = draw_rows(p, in->value_dtype, n * in->n_problems, in->value_dim, in->value_dim);
                p->finite = finite;
        }
        in->first_row = fuzz_below(from, 2) * 1000;
        in->first_cluster = fuzz_below(from, 2) * 500;
}

/* Any outputs, one of them at least. */
static void draw_result(problem *p)
{
        const size_t n = p->input.n, k = p->config.n_clusters, dim = p->config.dim, problems = p->input.n_problems;
        size_t wanted = fuzz_below(p->from, 256);
        wanted = wanted == 0 ? 255 : wanted;
        ck_ok(dci_kmeans_result_init(&p->result, sizeof p->result));
        dci_kmeans_result *r = &p->result;
        r->labels = wanted & 1 ? guard_out(problems * n * sizeof(int32_t)) : NULL;
        r->centroids = wanted & 2 ? guard_out(problems * k * dim * sizeof(float)) : NULL;
        r->means = wanted & 4 ? guard_out(problems * k * dim * sizeof(float)) : NULL;
        r->sizes = wanted & 8 ? guard_out(problems * k * sizeof(int32_t)) : NULL;
        r->offsets = wanted & 16 ? guard_out(problems * (k + 1) * sizeof(int32_t)) : NULL;
        r->ids = wanted & 32 ? guard_out(problems * n * sizeof(int32_t)) : NULL;
        r->row_means = wanted & 64 ? guard_out(problems * dim * sizeof(float)) : NULL;
        if (wanted & 128 && p->input.values != NULL)
                r->value_sums = guard_out(problems * k * p->input.value_dim * sizeof(float));
        if (wanted == 128 && p->input.values == NULL)
                r->labels = guard_out(problems * n * sizeof(int32_t));
}

static double score(const problem *p, const float *row, const float *centroid, double *out_scale)
{
        double dot = 0.0, rows = 0.0, centroids = 0.0, l2 = 0.0;
        for (size_t j = 0; j < p->config.dim; j++) {
                const double x = (double)row[j], c = (double)centroid[j];
                dot += x * c;
                rows += x * x;
                centroids += c * c;
                l2 += (x - c) * (x - c);
        }
        *out_scale = p->config.metric == DCI_METRIC_COSINE ? sqrt(rows) : rows + centroids;
        if (p->config.metric == DCI_METRIC_L2)
                return -l2;
        return p->config.metric == DCI_METRIC_IP ? dot : dot / sqrt(centroids);
}

/* Each label names a nearest centroid of the first problem, within rounding. */
static void check_labels(const problem *p)
{
        const size_t dim = p->config.dim, ld = p->input.ld > 0 ? p->input.ld : dim;
        float row[MAX_DIM];
        for (size_t i = 0; i < p->input.n; i++) {
                double best = -INFINITY, scale = 0.0, most = 0.0;
                dci_kernels_scalar.to_f32[p->config.dtype - 1](
                        (const char *)p->input.rows + i * ld * dci_dtype_size(p->config.dtype), dim, row);
                for (size_t j = 0; j < dim; j++)
                        row[j] -= p->result.row_means[j];
                for (size_t c = 0; c < p->config.n_clusters; c++) {
                        best = fmax(best, score(p, row, p->result.centroids + c * dim, &scale));
                        most = fmax(most, scale);
                }
                const size_t label = (size_t)p->result.labels[i] - p->input.first_cluster;
                const double own = score(p, row, p->result.centroids + label * dim, &scale);
                if (!(own >= best - 1e-4 * most))
                        ck_abort_msg("row %zu: cluster %zu scores %.9g, another %.9g", i, label, own, best);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        fuzz_bytes from;
        fuzz_from_bytes(&from, data, size);
        problem p = {.from = &from, .finite = true, .plain = true};
        dci_context *context = fuzz_limited_context();
        guard_at_begin(fuzz_one_in(&from, 2));
        const size_t n = 1 + fuzz_below(&from, MAX_ROWS);
        draw_config(&p, n);
        draw_input(&p, n);
        draw_result(&p);
        if (fuzz_one_in(&from, 8))
                draw_odd(&p);
        const dci_status status = dci_kmeans(context, &p.config, &p.input, NULL, &p.result);
        if (fuzz_worked(status)) {
                ck_assert_msg(p.finite, "numbers that are not finite were taken");
                ck_ok(dci_kmeans_check(context, &p.config, &p.input, &p.result));
                if (p.plain && !p.odd && p.config.capacity == 0 && p.result.labels != NULL &&
                    p.result.centroids != NULL && p.result.row_means != NULL)
                        check_labels(&p);
        } else if (!p.odd && p.plain && status != DCI_ERR_NUMBER) { /* rows may lie on their mean */
                ck_abort_msg("refused: %s", dci_last_error());
        }
        guard_release();
        fuzz_limited_end(context);
        return 0;
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        fuzz_random_seeds(put, 100, 100);
}
