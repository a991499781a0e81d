/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Config, input and result structs: defaults and checks. */
#include "core/internal.h"

#include "cluster/kmeans_internal.h"
#include "core/fields.h"

#define MAX_ROWS (((size_t)1 << 31) - 64)

static const char *const inits[] = {"RANDOM", "PLUSPLUS", "EVEN", "GIVEN"},
                         *const centroids[] = {"DCI_CENTROID_UNIT", "DCI_CENTROID_MEAN"},
                         *const zero_rows[] = {"DCI_ZERO_REFUSE", "DCI_ZERO_KEEP"},
                         *const means[] = {"DCI_MEAN_NONE", "DCI_MEAN_OWN", "DCI_MEAN_GIVEN"};

#define FIELD(field, ...) DCI_FIELD(dci_kmeans_config, field, __VA_ARGS__)
static const dci_field fields[] = {
        FIELD(dim, 0, 1, DCI_MAX_DIM),
        FIELD(n_clusters, 0, 1, INFINITY),
        FIELD(metric, DCI_METRIC_COSINE, DCI_METRIC_L2, DCI_METRIC_COSINE, .names = dci_metric_names),
        FIELD(dtype, DCI_F32, DCI_F32, DCI_U8, .names = dci_dtype_names),
        FIELD(init, DCI_KMEANS_INIT_RANDOM, DCI_KMEANS_INIT_RANDOM, DCI_KMEANS_INIT_GIVEN, .names = inits),
        FIELD(centroid, DCI_CENTROID_UNIT, DCI_CENTROID_UNIT, DCI_CENTROID_MEAN, .names = centroids),
        FIELD(zero_rows, DCI_ZERO_REFUSE, DCI_ZERO_REFUSE, DCI_ZERO_KEEP, .names = zero_rows),
        FIELD(subtract_mean, DCI_MEAN_NONE, DCI_MEAN_NONE, DCI_MEAN_GIVEN, .names = means),
        FIELD(tolerance, 0, 0, 1),
        FIELD(n_iter, 20, 0, INFINITY),
        FIELD(n_redo, 1, 1, INT32_MAX),
};
static const dci_field value_fields[] = {
        DCI_FIELD(dci_kmeans_input, value_dim, 0, 1, DCI_MAX_DIM),
        DCI_FIELD(dci_kmeans_input, value_dtype, DCI_F32, DCI_F32, DCI_U8, .names = dci_dtype_names),
};

dci_status dci_kmeans_config_init(dci_kmeans_config *config, size_t struct_size)
{
        DCI_TRY(dci_struct_init("dci_kmeans_config", config, struct_size, sizeof *config));
        dci_fields_init(DCI_FIELDS(fields), config);
        return DCI_OK;
}

dci_status dci_kmeans_input_init(dci_kmeans_input *input, size_t struct_size)
{
        DCI_TRY(dci_struct_init("dci_kmeans_input", input, struct_size, sizeof *input));
        input->n_problems = 1;
        dci_fields_init(DCI_FIELDS(value_fields), input);
        return DCI_OK;
}

dci_status dci_kmeans_report_init(dci_kmeans_report *report, size_t struct_size)
{
        return dci_struct_init("dci_kmeans_report", report, struct_size, sizeof *report);
}

dci_status dci_kmeans_result_init(dci_kmeans_result *result, size_t struct_size)
{
        return dci_struct_init("dci_kmeans_result", result, struct_size, sizeof *result);
}

static dci_status check_config(const dci_kmeans_config *c)
{
        DCI_TRY(dci_fields_check(DCI_FIELDS(fields), c));
        if (c->metric != DCI_METRIC_COSINE && (c->centroid != DCI_CENTROID_UNIT || c->zero_rows != DCI_ZERO_REFUSE))
                return dci_fail(DCI_ERR_INVALID, "%s is a choice for the cosine metric",
                                c->centroid != DCI_CENTROID_UNIT ? "DCI_CENTROID_MEAN" : "DCI_ZERO_KEEP");
        if (c->n_redo > 1 && (c->init == DCI_KMEANS_INIT_EVEN || c->init == DCI_KMEANS_INIT_GIVEN))
                return dci_fail(DCI_ERR_INVALID, "n_redo is %zu, but an init without draws gives the same every time",
                                c->n_redo);
        if (c->segment_rows > 0 && c->init == DCI_KMEANS_INIT_GIVEN)
                return dci_fail(DCI_ERR_INVALID, "segment_rows is %zu, but given centroids belong to no segment",
                                c->segment_rows);
        if (c->segment_rows == 0 && c->n_iter_global > 0)
                return dci_fail(DCI_ERR_INVALID, "n_iter_global is %zu without segments: n_iter is meant",
                                c->n_iter_global);
        return DCI_OK;
}

/* Fills in a stride that was left to its default, and checks it. */
static dci_status check_strides(const char *name, size_t n, size_t dim, size_t n_problems, size_t size, size_t *ld,
                                size_t *problem_ld)
{
        if (*ld == 0)
                *ld = dim;
        if (*ld < dim)
                return dci_fail(DCI_ERR_INVALID, "%s are %zu elements apart, but one has %zu", name, *ld, dim);
        size_t last = 0, whole = 0;
        if (*problem_ld == 0 && !dci_mul(n, *ld, problem_ld))
                return dci_fail(DCI_ERR_LIMIT, "%zu %s of %zu elements exceed the address space", n, name, *ld);
        /* Of the farthest element: (n_problems - 1) * problem_ld + (n - 1) * ld + dim, in bytes. */
        if (!dci_mul(n_problems - 1, *problem_ld, &last) || !dci_mul(n - 1, *ld, &whole) ||
            !dci_add(last, whole, &last) || !dci_add(last, dim, &last) || !dci_mul(last, size, &whole) ||
            whole > PTRDIFF_MAX)
                return dci_fail(DCI_ERR_LIMIT,
                                "%zu problems of %zu %s, %zu and %zu elements apart, exceed the address space",
                                n_problems, n, name, *problem_ld, *ld);
        return DCI_OK;
}

/* Of all arrays of numbers: NULL is aligned. */
static dci_status check_aligned(const dci_kmeans_config *c, const dci_kmeans_input *in)
{
        DCI_TRY(dci_check_aligned("rows", in->rows, dci_dtype_size(c->dtype)));
        if (in->values != NULL)
                DCI_TRY(dci_check_aligned("values", in->values, dci_dtype_size(in->value_dtype)));
        DCI_TRY(dci_check_aligned("centroids", in->centroids, sizeof(float)));
        return dci_check_aligned("means", in->means, sizeof(float));
}

static dci_status check_values(dci_kmeans_input *in)
{
        if (in->values == NULL)
                return DCI_OK;
        DCI_TRY(dci_fields_check(DCI_FIELDS(value_fields), in));
        return check_strides("values", in->n, in->value_dim, in->n_problems, dci_dtype_size(in->value_dtype),
                             &in->value_ld, &in->value_problem_ld);
}

static dci_status check_sizes(const dci_kmeans_config *c, bool reads, dci_kmeans_input *in)
{
        size_t room;
        if (in->rows == NULL && reads)
                return dci_fail(DCI_ERR_INVALID, "rows is NULL");
        if (in->n == 0 || in->n > MAX_ROWS)
                return dci_fail(in->n == 0 ? DCI_ERR_INVALID : DCI_ERR_LIMIT, "%zu rows, allowed is 1 to %zu", in->n,
                                MAX_ROWS);
        if (in->reserved != 0)
                return dci_fail(DCI_ERR_UNSUPPORTED, "input.reserved is %d, expected 0", (int)in->reserved);
        if (in->n_problems == 0)
                return dci_fail(DCI_ERR_INVALID, "n_problems is 0, expected at least 1");
        if (c->n_clusters > in->n)
                return dci_fail(DCI_ERR_INVALID, "%zu clusters of %zu rows: expected at most as many as rows",
                                c->n_clusters, in->n);
        if (c->capacity > 0 && dci_mul(c->n_clusters, c->capacity, &room) && room < in->n)
                return dci_fail(DCI_ERR_INVALID, "%zu clusters of at most %zu rows do not hold %zu rows", c->n_clusters,
                                c->capacity, in->n);
        if (in->first_row > MAX_ROWS - in->n || in->first_cluster > MAX_ROWS - c->n_clusters)
                return dci_fail(DCI_ERR_LIMIT, "row %zu + %zu or cluster %zu + %zu exceeds %zu", in->first_row, in->n,
                                in->first_cluster, c->n_clusters, MAX_ROWS);
        DCI_TRY(check_strides("rows", in->n, c->dim, in->n_problems, dci_dtype_size(c->dtype), &in->ld,
                              &in->problem_ld));
        DCI_TRY(check_values(in));
        return check_aligned(c, in);
}

/* Sum of squares of a row of floats, in double: what the caller gave may be of any size. */
static double norm2_of(const float *row, size_t dim)
{
        double sum = 0.0;
        for (size_t j = 0; j < dim; j++)
                sum += (double)row[j] * (double)row[j];
        return sum;
}

static dci_status check_given(const dci_kmeans_config *c, const dci_kmeans_input *in)
{
        size_t n_given = 0, n_floats = 0;
        if (!dci_mul(in->n_problems, c->n_clusters, &n_given) || !dci_mul(n_given, c->dim, &n_floats) ||
            n_floats > PTRDIFF_MAX / sizeof(float))
                return dci_fail(DCI_ERR_LIMIT, "%zu problems of %zu clusters of %zu elements exceed the address space",
                                in->n_problems, c->n_clusters, c->dim);
        if ((c->init == DCI_KMEANS_INIT_GIVEN) != (in->centroids != NULL))
                return dci_fail(DCI_ERR_INVALID, "input.centroids is %s, but init is %sDCI_KMEANS_INIT_GIVEN",
                                in->centroids == NULL ? "NULL" : "given", in->centroids == NULL ? "" : "not ");
        if ((c->subtract_mean == DCI_MEAN_GIVEN) != (in->means != NULL))
                return dci_fail(DCI_ERR_INVALID, "input.means is %s, but subtract_mean is %sDCI_MEAN_GIVEN",
                                in->means == NULL ? "NULL" : "given", in->means == NULL ? "" : "not ");
        for (size_t p = 0; in->means != NULL && p < in->n_problems; p++)
                if (!(norm2_of(in->means + p * c->dim, c->dim) <= (double)KM_MAX_NORM2))
                        return dci_fail(DCI_ERR_NUMBER,
                                        "the mean of problem %zu holds NaN or infinity, or its squared norm exceeds %g",
                                        p, (double)KM_MAX_NORM2);
        for (size_t i = 0; in->centroids != NULL && i < n_given; i++) {
                const bool cosine = c->metric == DCI_METRIC_COSINE;
                const double norm2 = norm2_of(in->centroids + i * c->dim, c->dim);
                if (!(norm2 <= (cosine ? DBL_MAX : (double)KM_MAX_NORM2)))
                        return dci_fail(DCI_ERR_NUMBER, "centroid %zu of problem %zu holds NaN or infinity%s",
                                        i % c->n_clusters, i / c->n_clusters, cosine ? "" : ", or is too long");
                if (cosine && norm2 == 0.0)
                        return dci_fail(DCI_ERR_NUMBER, "centroid %zu of problem %zu has length 0, which has no cosine",
                                        i % c->n_clusters, i / c->n_clusters);
        }
        return DCI_OK;
}

static dci_status check_result(const dci_kmeans_input *in, bool reads, const dci_kmeans_result *r)
{
        DCI_TRY(dci_check_struct_size("dci_kmeans_result", r, r->struct_size, sizeof *r));
        if (r->labels == NULL && r->centroids == NULL && r->means == NULL && r->sizes == NULL && r->offsets == NULL &&
            r->ids == NULL && r->value_sums == NULL && r->row_means == NULL && r->reports == NULL)
                return dci_fail(DCI_ERR_INVALID, "every array of the result is NULL: nothing is wanted");
        if (r->value_sums != NULL && in->values == NULL && reads)
                return dci_fail(DCI_ERR_INVALID, "value_sums is wanted, but input.values is NULL");
        for (size_t p = 0; r->reports != NULL && p < in->n_problems; p++) {
                const dci_kmeans_report *report = dci_km_report(r, r->reports->struct_size, p);
                DCI_TRY(dci_check_struct_size("dci_kmeans_report", report, report->struct_size, sizeof *report));
                if (report->struct_size != r->reports->struct_size)
                        return dci_fail(DCI_ERR_INVALID, "report %zu has struct_size %zu, the first has %zu", p,
                                        report->struct_size, r->reports->struct_size);
        }
        return DCI_OK;
}

dci_status dci_km_resolve(const dci_kmeans_config *config, const dci_kmeans_input *input,
                          const dci_kmeans_result *result, bool reads, dci_kmeans_config *out_config,
                          dci_kmeans_input *out_input)
{
        if (config == NULL || input == NULL || result == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL",
                                config == NULL ? "config" : (input == NULL ? "input" : "result"));
        DCI_TRY(dci_check_struct_size("dci_kmeans_config", config, config->struct_size, sizeof *config));
        DCI_TRY(dci_check_struct_size("dci_kmeans_input", input, input->struct_size, sizeof *input));
        DCI_TRY(check_config(config));
        *out_config = *config;
        *out_input = *input;
        DCI_TRY(check_sizes(out_config, reads, out_input));
        if (reads)
                DCI_TRY(check_given(out_config, out_input));
        return check_result(out_input, reads, result);
}
