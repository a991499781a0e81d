/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kmeans_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

dci_kmeans_config kmeans_config(size_t form, dci_dtype dtype, size_t dim, size_t k)
{
        dci_kmeans_config config;
        ck_ok(dci_kmeans_config_init(&config, sizeof config));
        config.metric = kmeans_forms[form].metric;
        config.centroid = kmeans_forms[form].centroid;
        config.dtype = dtype;
        config.dim = dim;
        config.n_clusters = k;
        return config;
}

dci_kmeans_input kmeans_input(size_t n, const void *rows)
{
        dci_kmeans_input input;
        ck_ok(dci_kmeans_input_init(&input, sizeof input));
        input.n = n;
        input.rows = rows;
        return input;
}

void *kmeans_narrow(dci_dtype dtype, size_t n, const float *numbers)
{
        void *out = malloc(n * dci_dtype_size(dtype) + 1);
        ck_assert_ptr_nonnull(out);
        dci_kernels_scalar.narrow[dtype - 1](numbers, n, out);
        return out;
}

float *kmeans_blobs(size_t n, size_t dim, size_t n_centres, float apart, uint64_t seed)
{
        float *rows = test_normal(n, dim, seed), *centres = test_normal(n_centres, dim, seed + 1000);
        for (size_t i = 0; i < n * dim; i++)
                rows[i] += apart * centres[i / dim % n_centres * dim + i % dim];
        free(centres);
        return rows;
}

kmeans_out kmeans_room(const dci_kmeans_config *config, const dci_kmeans_input *input)
{
        const size_t p = input->n_problems, n = input->n, k = config->n_clusters, dim = config->dim;
        kmeans_out out = {.n_problems = p, .n = n, .k = k, .dim = dim};
        out.rounds_room = config->segment_rows > 0 ? config->n_iter_global : config->n_iter;
        ck_ok(dci_kmeans_result_init(&out.result, sizeof out.result));
        out.result.labels = test_room(p * n, sizeof(int32_t));
        out.result.ids = test_room(p * n, sizeof(int32_t));
        out.result.sizes = test_room(p * k, sizeof(int32_t));
        out.result.offsets = test_room(p * (k + 1), sizeof(int32_t));
        out.result.centroids = test_room(p * k * dim, sizeof(float));
        out.result.means = test_room(p * k * dim, sizeof(float));
        out.result.row_means = test_room(p * dim, sizeof(float));
        if (input->values != NULL) {
                out.value_dim = input->value_dim;
                out.result.value_sums = test_room(p * k * input->value_dim, sizeof(float));
        }
        out.rounds = test_room(p * out.rounds_room, sizeof *out.rounds);
        out.result.reports = test_room(p, sizeof *out.result.reports);
        for (size_t i = 0; i < p; i++) {
                ck_ok(dci_kmeans_report_init(&out.result.reports[i], sizeof *out.result.reports));
                out.result.reports[i].rounds = out.rounds + i * out.rounds_room;
                out.result.reports[i].rounds_room = out.rounds_room;
        }
        return out;
}

void kmeans_out_free(kmeans_out *out)
{
        void *arrays[] = {out->result.labels,     out->result.ids,
                          out->result.sizes,      out->result.offsets,
                          out->result.means,      out->result.centroids,
                          out->result.row_means,  out->result.reports,
                          out->result.value_sums, out->rounds};
        for (size_t i = 0; i < COUNT(arrays); i++)
                free(arrays[i]);
        memset(out, 0, sizeof *out);
}

kmeans_out kmeans_run(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input)
{
        kmeans_out out = kmeans_room(config, input);
        ck_ok(dci_kmeans(context, config, input, NULL, &out.result));
        ck_ok(dci_kmeans_check(context, config, input, &out.result));
        return out;
}

static void same_reports(const dci_kmeans_report *a, const dci_kmeans_report *b, const char *what)
{
        ck_assert_msg(a->objective == b->objective && a->objective_free == b->objective_free,
                      "%s: objective %.17g, %.17g", what, a->objective, b->objective);
        ck_assert_msg(a->n_rounds == b->n_rounds && a->n_empty == b->n_empty && a->n_repaired == b->n_repaired &&
                              a->largest == b->largest && a->stop == b->stop && a->best_redo == b->best_redo &&
                              a->n_recorded == b->n_recorded,
                      "%s: reports differ", what);
        for (size_t i = 0; i < a->n_recorded; i++)
                if (a->rounds[i].objective != b->rounds[i].objective || a->rounds[i].n_moved != b->rounds[i].n_moved ||
                    a->rounds[i].n_empty != b->rounds[i].n_empty)
                        ck_abort_msg("%s: round %zu differs", what, i);
}

void kmeans_same(const kmeans_out *a, size_t first_a, const kmeans_out *b, size_t first_b, size_t n, const char *what)
{
        const dci_kmeans_result *x = &a->result, *y = &b->result;
        const struct {
                const char *name;
                const void *a, *b;
                size_t bytes; /* of a problem */
        } arrays[] = {{"labels", x->labels, y->labels, a->n * sizeof(int32_t)},
                      {"ids", x->ids, y->ids, a->n * sizeof(int32_t)},
                      {"sizes", x->sizes, y->sizes, a->k * sizeof(int32_t)},
                      {"offsets", x->offsets, y->offsets, (a->k + 1) * sizeof(int32_t)},
                      {"centroids", x->centroids, y->centroids, a->k * a->dim * sizeof(float)},
                      {"means", x->means, y->means, a->k * a->dim * sizeof(float)},
                      {"value_sums", x->value_sums, y->value_sums, a->k * a->value_dim * sizeof(float)},
                      {"row_means", x->row_means, y->row_means, a->dim * sizeof(float)}};
        for (size_t i = 0; i < COUNT(arrays); i++) {
                const size_t bytes = arrays[i].bytes;
                if (arrays[i].a == NULL || arrays[i].b == NULL)
                        continue;
                ck_assert_msg(memcmp((const char *)arrays[i].a + first_a * bytes,
                                     (const char *)arrays[i].b + first_b * bytes, n * bytes) == 0,
                              "%s: %s differ", what, arrays[i].name);
        }
        for (size_t p = 0; p < n; p++)
                same_reports(&x->reports[first_a + p], &y->reports[first_b + p], what);
}

bool kmeans_worse(dci_metric metric, double a, double b, double slack)
{
        return metric == DCI_METRIC_L2 ? a > b + slack : a < b - slack;
}

/* --- the model: one problem in double --------------------------------------------------------------------------- */

typedef struct model {
        const dci_kmeans_config *config;
        const dci_kmeans_input *input;
        const kmeans_out *out;
        const char *what;
        size_t problem;
        double *rows, *points; /* as given; minus the mean, of unit length under COSINE */
        double *lengths;       /* of rows minus the mean; 0: no direction */
        double *centroids, *centroid_lengths;
        int32_t *labels, *sizes; /* labels from 0; sizes counted from them */
        double longest, longest_centroid;
} model;

#define MODEL_FAIL(m, ...)                                                                                             \
        do {                                                                                                           \
                char model_says[200];                                                                                  \
                snprintf(model_says, sizeof model_says, __VA_ARGS__);                                                  \
                ck_abort_msg("%s, problem %zu: %s", (m)->what, (m)->problem, model_says);                              \
        } while (0)

static double dot(const double *a, const double *b, size_t n)
{
        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
                sum += a[i] * b[i];
        return sum;
}

/* One row of an array of any format, from this element on. */
static void read_row(dci_dtype dtype, const void *base, size_t at, size_t n, double *out)
{
        float *wide = malloc(n * sizeof *wide);
        ck_assert_ptr_nonnull(wide);
        dci_kernels_scalar.to_f32[dtype - 1]((const char *)base + at * dci_dtype_size(dtype), n, wide);
        for (size_t j = 0; j < n; j++)
                out[j] = (double)wide[j];
        free(wide);
}

static void read_points(model *m)
{
        const dci_kmeans_input *input = m->input;
        const size_t dim = m->out->dim, ld = input->ld > 0 ? input->ld : dim;
        const size_t problem_ld = input->problem_ld > 0 ? input->problem_ld : input->n * ld;
        const float *mean = m->out->result.row_means + m->problem * dim;
        for (size_t i = 0; i < m->out->n; i++) {
                double *row = m->rows + i * dim, *point = m->points + i * dim;
                read_row(m->config->dtype, input->rows, m->problem * problem_ld + i * ld, dim, row);
                for (size_t j = 0; j < dim; j++)
                        point[j] = row[j] - (double)mean[j];
                m->lengths[i] = sqrt(dot(point, point, dim));
                if (m->config->metric == DCI_METRIC_COSINE) {
                        m->lengths[i] = m->lengths[i] < 0x1p-40 ? 0.0 : m->lengths[i];
                        for (size_t j = 0; j < dim; j++)
                                point[j] = m->lengths[i] > 0.0 ? point[j] / m->lengths[i] : 0.0;
                }
                m->longest = fmax(m->longest, m->lengths[i]);
        }
}

static model model_of(const dci_kmeans_config *config, const dci_kmeans_input *input, const kmeans_out *out,
                      size_t problem, const char *what)
{
        const size_t n = out->n, k = out->k, dim = out->dim;
        model m = {.config = config, .input = input, .out = out, .problem = problem, .what = what};
        m.rows = test_room(n * dim, sizeof(double));
        m.points = test_room(n * dim, sizeof(double));
        m.lengths = test_room(n, sizeof(double));
        m.centroids = test_room(k * dim, sizeof(double));
        m.centroid_lengths = test_room(k, sizeof(double));
        m.labels = test_room(n, sizeof(int32_t));
        m.sizes = calloc(k, sizeof(int32_t));
        read_points(&m);
        for (size_t c = 0; c < k; c++) {
                for (size_t j = 0; j < dim; j++)
                        m.centroids[c * dim + j] = (double)out->result.centroids[(problem * k + c) * dim + j];
                m.centroid_lengths[c] = sqrt(dot(m.centroids + c * dim, m.centroids + c * dim, dim));
                m.longest_centroid = fmax(m.longest_centroid, m.centroid_lengths[c]);
        }
        for (size_t i = 0; i < n; i++) {
                m.labels[i] = out->result.labels[problem * n + i] - (int32_t)input->first_cluster;
                if (m.labels[i] < 0 || m.labels[i] >= (int32_t)k)
                        MODEL_FAIL(&m, "label %zu is %d", i, m.labels[i]);
                m.sizes[m.labels[i]]++;
        }
        return m;
}

static void model_free(model *m)
{
        void *arrays[] = {m->rows, m->points, m->lengths, m->centroids, m->centroid_lengths, m->labels, m->sizes};
        for (size_t i = 0; i < COUNT(arrays); i++)
                free(arrays[i]);
}

/* More is nearer: cosine, inner product, or the squared distance with its sign turned. */
static double score(const model *m, size_t i, size_t c)
{
        const size_t dim = m->out->dim;
        const double *point = m->points + i * dim, *centroid = m->centroids + c * dim;
        if (m->config->metric != DCI_METRIC_L2) {
                const double product = dot(point, centroid, dim);
                return m->config->metric == DCI_METRIC_IP ? product : product / m->centroid_lengths[c];
        }
        double sum = 0.0;
        for (size_t j = 0; j < dim; j++)
                sum += (point[j] - centroid[j]) * (point[j] - centroid[j]);
        return -sum;
}

static double scale_of(const model *m)
{
        double sum = 0.0;
        for (size_t i = 0; i < m->out->n; i++)
                if (m->config->metric == DCI_METRIC_COSINE)
                        sum += 1.0;
                else if (m->config->metric == DCI_METRIC_L2)
                        sum += m->lengths[i] * m->lengths[i];
                else
                        sum += m->lengths[i] * m->longest_centroid;
        return sum;
}

double kmeans_scale(const dci_kmeans_config *config, const dci_kmeans_input *input, const kmeans_out *out,
                    size_t problem)
{
        model m = model_of(config, input, out, problem, "scale");
        const double scale = scale_of(&m);
        model_free(&m);
        return scale;
}

/* Each label names the nearest centroid, but for a capacity; the objectives are the sums. */
static void obey_labels(const model *m)
{
        const dci_kmeans_report *report = &m->out->result.reports[m->problem];
        const double sign = m->config->metric == DCI_METRIC_L2 ? -1.0 : 1.0;
        const double slack = m->config->metric == DCI_METRIC_COSINE ? 1e-5
                             : m->config->metric == DCI_METRIC_IP
                                     ? 1e-5 * m->longest * m->longest_centroid
                                     : 1e-5 * (m->longest * m->longest + m->longest_centroid * m->longest_centroid);
        double objective = 0.0, at_best = 0.0;
        for (size_t i = 0; i < m->out->n; i++) {
                if (m->config->metric == DCI_METRIC_COSINE && m->lengths[i] == 0.0) {
                        if (m->labels[i] != 0 && m->config->capacity == 0)
                                MODEL_FAIL(m, "row %zu has no direction, its label is %d", i, m->labels[i]);
                        continue;
                }
                const double own = score(m, i, (size_t)m->labels[i]);
                double best = -INFINITY;
                for (size_t c = 0; c < m->out->k; c++)
                        best = fmax(best, score(m, i, c));
                if (m->config->capacity == 0 && !(own >= best - slack))
                        MODEL_FAIL(m, "row %zu: score %.9g in cluster %d, another has %.9g", i, own, m->labels[i],
                                   best);
                objective += sign * own;
                at_best += sign * best;
        }
        if (!(fabs(report->objective - objective) <= 1e-5 * scale_of(m)))
                MODEL_FAIL(m, "objective %.12g, a naive sum gives %.12g", report->objective, objective);
        if (m->config->capacity > 0 && !(fabs(report->objective_free - at_best) <= 1e-5 * scale_of(m)))
                MODEL_FAIL(m, "objective_free %.12g, a naive sum gives %.12g", report->objective_free, at_best);
}

static void obey_csr(const model *m)
{
        const size_t n = m->out->n, k = m->out->k;
        const dci_kmeans_result *r = &m->out->result;
        const int32_t *ids = r->ids + m->problem * n, *offsets = r->offsets + m->problem * (k + 1),
                      *sizes = r->sizes + m->problem * k, row = (int32_t)m->input->first_row;
        size_t n_empty = 0, largest = 0;
        if (offsets[0] != row || offsets[k] != row + (int32_t)n)
                MODEL_FAIL(m, "offsets run from %d to %d", offsets[0], offsets[k]);
        for (size_t c = 0; c < k; c++) {
                if (sizes[c] != m->sizes[c] || offsets[c + 1] - offsets[c] != sizes[c])
                        MODEL_FAIL(m, "cluster %zu: size %d, %d by labels", c, sizes[c], m->sizes[c]);
                /* Ascending, and all of this label: with sizes right, a permutation. */
                for (int32_t i = offsets[c] - row; i < offsets[c + 1] - row; i++)
                        if (ids[i] < row || ids[i] >= row + (int32_t)n || m->labels[ids[i] - row] != (int32_t)c ||
                            (i > offsets[c] - row && ids[i] <= ids[i - 1]))
                                MODEL_FAIL(m, "id %d is %d in cluster %zu", i, ids[i], c);
                n_empty += sizes[c] == 0;
                largest = (size_t)sizes[c] > largest ? (size_t)sizes[c] : largest;
                if (m->config->capacity > 0 && (size_t)sizes[c] > m->config->capacity)
                        MODEL_FAIL(m, "cluster %zu has %d rows", c, sizes[c]);
        }
        if (r->reports[m->problem].n_empty != n_empty || r->reports[m->problem].largest != largest)
                MODEL_FAIL(m, "%zu empty, largest %zu reported; %zu and %zu counted", r->reports[m->problem].n_empty,
                           r->reports[m->problem].largest, n_empty, largest);
}

/* Sums by cluster and what each element's sum of sizes is: binary32 sums of at most 256 rows bound the error. */
static void sums_by_label(const model *m, const double *rows, size_t dim, double **out_sums, double **out_bounds)
{
        double *sums = calloc(m->out->k * dim, sizeof *sums), *bounds = calloc(m->out->k * dim, sizeof *bounds);
        ck_assert(sums != NULL && bounds != NULL);
        for (size_t i = 0; i < m->out->n; i++)
                for (size_t j = 0; j < dim; j++) {
                        sums[(size_t)m->labels[i] * dim + j] += rows[i * dim + j];
                        bounds[(size_t)m->labels[i] * dim + j] += 2e-5 * fabs(rows[i * dim + j]);
                }
        *out_sums = sums;
        *out_bounds = bounds;
}

static void obey_means(const model *m)
{
        const size_t dim = m->out->dim, k = m->out->k;
        const float *means = m->out->result.means + m->problem * k * dim,
                    *row_means = m->out->result.row_means + m->problem * dim;
        double *sums, *bounds;
        sums_by_label(m, m->rows, dim, &sums, &bounds);
        for (size_t i = 0; i < k * dim; i++) {
                const int32_t size = m->sizes[i / dim];
                const double wanted = size > 0 ? sums[i] / size : m->centroids[i] + (double)row_means[i % dim];
                const double bound = size > 0 ? bounds[i] / size : 1e-5 * (fabs(wanted) + m->longest_centroid);
                if (!(fabs((double)means[i] - wanted) <= bound + 1e-30))
                        MODEL_FAIL(m, "mean of cluster %zu, %zu: %.9g, expected %.9g", i / dim, i % dim,
                                   (double)means[i], wanted);
        }
        for (size_t j = 0; j < dim; j++) { /* of all rows */
                double sum = 0.0, bound = 0.0;
                for (size_t c = 0; c < k; c++) {
                        sum += sums[c * dim + j] / (double)m->out->n;
                        bound += bounds[c * dim + j] / (double)m->out->n;
                }
                const double wanted = m->config->subtract_mean == DCI_MEAN_OWN     ? sum
                                      : m->config->subtract_mean == DCI_MEAN_GIVEN ? (double)row_means[j]
                                                                                   : 0.0;
                if (!(fabs((double)row_means[j] - wanted) <= bound))
                        MODEL_FAIL(m, "row mean %zu: %.9g, expected %.9g", j, (double)row_means[j], wanted);
        }
        test_free(sums, bounds);
}

static void obey_value_sums(const model *m)
{
        const dci_kmeans_input *input = m->input;
        const size_t dim = input->value_dim, ld = input->value_ld > 0 ? input->value_ld : dim;
        const size_t problem_ld = input->value_problem_ld > 0 ? input->value_problem_ld : input->n * ld;
        const float *got = m->out->result.value_sums + m->problem * m->out->k * dim;
        double *values = test_room(m->out->n * dim, sizeof *values), *sums, *bounds;
        for (size_t i = 0; i < m->out->n; i++)
                read_row(input->value_dtype, input->values, m->problem * problem_ld + i * ld, dim, values + i * dim);
        sums_by_label(m, values, dim, &sums, &bounds);
        for (size_t i = 0; i < m->out->k * dim; i++)
                if (!(fabs((double)got[i] - sums[i]) <= bounds[i]))
                        MODEL_FAIL(m, "value sum of cluster %zu, %zu: %.9g, expected %.9g", i / dim, i % dim,
                                   (double)got[i], sums[i]);
        test_free(values, sums, bounds);
}

/* Centroids are means of their rows when no label has changed; unit ones have length 1 in any case. */
static void obey_centroids(const model *m)
{
        const size_t dim = m->out->dim;
        const bool unit = m->config->metric == DCI_METRIC_COSINE && m->config->centroid == DCI_CENTROID_UNIT;
        /* With a capacity the last assignment may differ from that of the round before. */
        const bool stable =
                m->out->result.reports[m->problem].stop == DCI_KMEANS_STOP_STABLE && m->config->capacity == 0;
        const float *row_means = m->out->result.row_means + m->problem * dim;
        double *sums, *bounds;
        sums_by_label(m, unit ? m->points : m->rows, dim, &sums, &bounds);
        for (size_t c = 0; c < m->out->k; c++) {
                double *mean = sums + c * dim, error = 0.0;
                if (unit && !(fabs(m->centroid_lengths[c] - 1.0) <= 1e-5))
                        MODEL_FAIL(m, "centroid %zu has length %.9g", c, m->centroid_lengths[c]);
                if (!stable || m->sizes[c] == 0)
                        continue;
                for (size_t j = 0; j < dim; j++)
                        mean[j] = mean[j] / m->sizes[c] - (unit ? 0.0 : (double)row_means[j]);
                const double length = sqrt(dot(mean, mean, dim));
                if (m->config->metric == DCI_METRIC_COSINE && length <= 1e-3 * (unit ? 1.0 : m->longest))
                        continue; /* rows that cancel out give no direction */
                for (size_t j = 0; j < dim; j++)
                        error += pow(mean[j] / (unit ? length : 1.0) - m->centroids[c * dim + j], 2);
                /* Rows as long as the longest, minus their mean, may leave short ones. */
                double row_length = sqrt(dot(m->rows, m->rows, dim)) + m->longest;
                if (!(sqrt(error) <= (unit ? 1e-4 / length : 4e-5 * row_length)))
                        MODEL_FAIL(m, "centroid %zu of %d rows is %g from their mean", c, m->sizes[c], sqrt(error));
        }
        test_free(sums, bounds);
}

static void obey_report(const model *m)
{
        const dci_kmeans_report *r = &m->out->result.reports[m->problem];
        const bool segments = m->config->segment_rows > 0;
        if (r->stop < DCI_KMEANS_STOP_ROUNDS || r->stop > DCI_KMEANS_STOP_TOLERANCE)
                MODEL_FAIL(m, "stop %d", r->stop);
        if (r->best_redo < 0 || (size_t)r->best_redo >= m->config->n_redo)
                MODEL_FAIL(m, "best_redo %d", r->best_redo);
        if (!segments && (r->n_rounds > m->config->n_iter || r->n_recorded != r->n_rounds))
                MODEL_FAIL(m, "%zu rounds, %zu recorded", r->n_rounds, r->n_recorded);
        if (!segments && r->stop == DCI_KMEANS_STOP_ROUNDS && r->n_rounds != m->config->n_iter)
                MODEL_FAIL(m, "stopped after %zu rounds", r->n_rounds);
        for (size_t i = 0; i < r->n_recorded; i++) {
                const dci_kmeans_round *round = &r->rounds[i];
                if (!isfinite(round->objective) || !(round->seconds >= 0.0) || round->n_moved > m->out->n ||
                    round->n_empty >= m->out->k)
                        MODEL_FAIL(m, "round %zu: objective %g, %zu moved, %zu empty", i, round->objective,
                                   round->n_moved, round->n_empty);
                if (i == 0 && !segments && round->n_moved != m->out->n)
                        MODEL_FAIL(m, "%zu of %zu moved in the first round", round->n_moved, m->out->n);
        }
        if (r->stop == DCI_KMEANS_STOP_STABLE && r->n_recorded > 0 && r->rounds[r->n_recorded - 1].n_moved != 0)
                MODEL_FAIL(m, "stable, but %zu moved", r->rounds[r->n_recorded - 1].n_moved);
}

void kmeans_obey(const dci_kmeans_config *config, const dci_kmeans_input *input, const kmeans_out *out,
                 const char *what)
{
        for (size_t problem = 0; problem < out->n_problems; problem++) {
                model m = model_of(config, input, out, problem, what);
                obey_csr(&m);
                obey_labels(&m);
                obey_means(&m);
                obey_centroids(&m);
                obey_report(&m);
                if (out->result.value_sums != NULL)
                        obey_value_sums(&m);
                model_free(&m);
        }
}

kmeans_out kmeans_lawful(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                         const char *what)
{
        kmeans_out out = kmeans_run(context, config, input);
        kmeans_obey(config, input, &out, what);
        return out;
}
