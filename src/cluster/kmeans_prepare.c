/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From rows to points: checked, their mean taken away on demand, scaled to unit length (COSINE), moved near the
 * origin. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/kmeans_internal.h"

/* Rows that the middle of the points is guessed from. Any will do; one near the mean keeps rounding errors small. */
#define MIDDLE_ROWS ((size_t)1024) /* or a quarter of the rows */

/* But one that is 2^b times as long as a row takes b of the row's bits, and with them the differences of such rows. It
 * may be FAR times as long as all but one row in FEW, and VERY_FAR times as long as those. */
#define FAR 16.0f
#define VERY_FAR 256.0f
#define FEW ((size_t)64)

/* The value of a row holds NaN or infinity, or is too long for sums of it. */
static bool is_bad_value(const km_problem *p, size_t i)
{
        const dci_kmeans_input *in = p->input;
        if (in->values == NULL)
                return false;
        const size_t at = (p->number * in->value_problem_ld + i * in->value_ld) * dci_dtype_size(in->value_dtype);
        const unsigned char *value = (const unsigned char *)in->values + at;
        return !isfinite(p->kernels->norm2[in->value_dtype - 1](value, in->value_dim));
}

/* A row minus the mean, of unit length under COSINE. Returns why it cannot be used; *out_zero: it has no direction. */
static int take_row(const km_problem *p, size_t i, float *out, bool *out_zero)
{
        const void *row = dci_km_row(p, i);
        *out_zero = false;
        float norm2 = p->kernels->norm2[p->config->dtype - 1](row, p->dim);
        if (!(norm2 <= KM_MAX_NORM2))
                return KM_BAD_NUMBER;
        if (is_bad_value(p, i))
                return KM_BAD_VALUE;
        p->kernels->to_f32[p->config->dtype - 1](row, p->dim, out);
        if (p->config->subtract_mean != DCI_MEAN_NONE) {
                for (size_t j = 0; j < p->dim; j++)
                        out[j] -= p->mean[j];
                norm2 = p->kernels->norm2[DCI_F32 - 1](out, p->dim);
        }
        if (!dci_km_cosine(p))
                return KM_BAD_NONE;
        if (norm2 < KM_MIN_NORM2) {
                memset(out, 0, p->dim * sizeof *out);
                *out_zero = true;
                return p->config->zero_rows == DCI_ZERO_KEEP ? KM_BAD_NONE : KM_BAD_DIRECTION;
        }
        const float scale = 1.0f / sqrtf(norm2);
        for (size_t j = 0; j < p->dim; j++)
                out[j] *= scale;
        return KM_BAD_NONE;
}

/* What `own` of point i is; under L2 its squared length goes to those of its block. */
static float own_of(const km_problem *p, size_t i, const float *point, bool zero)
{
        float product;
        if (p->config->metric == DCI_METRIC_L2) {
                double *sum = &p->block_norm2[i / DCI_NEAREST_BLOCK];
                *sum = (i % DCI_NEAREST_BLOCK == 0 ? 0.0 : *sum) +
                       (double)p->kernels->norm2[DCI_F32 - 1](point, p->dim);
        }
        if (p->config->metric != DCI_METRIC_IP)
                return zero ? KM_NO_DIRECTION : 0.0f;
        p->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](point, p->middle, 0, 1, p->dim, &product);
        return product + p->middle_norm2;
}

static void prepare_task(void *arg, size_t task, size_t worker)
{
        km_problem *p = arg;
        const size_t first = task * KM_TASK_ROWS, n = dci_km_rows_of_task(p->n, task);
        (void)worker;
        p->task_bad[task] = SIZE_MAX;
        for (size_t i = first; i < first + n; i++) {
                float *point = p->points + i * p->dim;
                bool zero;
                if (take_row(p, i, point, &zero) != KM_BAD_NONE) {
                        p->task_bad[task] = i;
                        return;
                }
                for (size_t j = 0; j < p->dim; j++)
                        point[j] -= p->middle[j];
                p->own[i] = own_of(p, i, point, zero);
        }
        dci_nearest_points_pack(&p->packed, first, n);
}

static void sum_task(void *arg, size_t task, size_t worker)
{
        km_problem *p = arg;
        const size_t first = task * KM_TASK_ROWS, n = dci_km_rows_of_task(p->n, task);
        float *sum = p->task_sums + task * p->dim;
        p->task_bad[task] = SIZE_MAX;
        for (size_t i = 0; i < n; i++) {
                const void *row = dci_km_row(p, first + i);
                p->workers[worker].pointers[i] = row;
                if (!(p->kernels->norm2[p->config->dtype - 1](row, p->dim) <= KM_MAX_NORM2)) {
                        p->task_bad[task] = first + i;
                        return;
                }
        }
        memset(sum, 0, p->dim * sizeof *sum);
        p->kernels->add_rows[p->config->dtype - 1](p->workers[worker].pointers, NULL, n, p->dim, sum);
}

/* Whether a task met a row that cannot be used: the first of all is reported. */
static bool met_bad_row(km_problem *p)
{
        for (size_t task = 0; task < p->n_tasks; task++) {
                if (p->task_bad[task] == SIZE_MAX)
                        continue;
                bool zero;
                p->bad_row = p->task_bad[task];
                p->bad_kind = take_row(p, p->bad_row, p->workers[0].row, &zero);
                return true;
        }
        return false;
}

/* The row that ends the sums may not be the first bad one: an earlier row's value may be bad, which sums miss. */
static void look_for_bad_value(km_problem *p)
{
        for (size_t i = 0; i < p->bad_row; i++)
                if (is_bad_value(p, i)) {
                        p->bad_row = i;
                        p->bad_kind = KM_BAD_VALUE;
                }
}

/* The mean of all rows, exact to binary32: tasks are added in their order. */
static dci_status find_mean(km_problem *p)
{
        double *total = p->workers[0].total;
        if (p->config->subtract_mean == DCI_MEAN_GIVEN)
                memcpy(p->mean, p->input->means + p->number * p->dim, p->dim * sizeof *p->mean);
        if (p->config->subtract_mean != DCI_MEAN_OWN)
                return DCI_OK;
        DCI_TRY(dci_km_for(p, p->n_tasks, p->n * p->dim, sum_task, p));
        if (met_bad_row(p)) {
                look_for_bad_value(p);
                return DCI_OK;
        }
        memset(total, 0, p->dim * sizeof *total);
        for (size_t task = 0; task < p->n_tasks; task++)
                for (size_t j = 0; j < p->dim; j++)
                        total[j] += (double)p->task_sums[task * p->dim + j];
        for (size_t j = 0; j < p->dim; j++)
                p->mean[j] = (float)(total[j] / (double)p->n);
        return DCI_OK;
}

static int ascending(const void *a, const void *b)
{
        const float *x = a, *y = b;
        return *x < *y ? -1 : *x > *y;
}

/* Whether the middle is too far from rows with these squared lengths. Rows of unit length never have one that far. */
static bool is_far(const km_problem *p, float *norms2, size_t n)
{
        if (dci_km_cosine(p) || n == 0)
                return false;
        qsort(norms2, n, sizeof *norms2, ascending);
        return p->middle_norm2 > FAR * FAR * norms2[n / FEW] || p->middle_norm2 > VERY_FAR * VERY_FAR * norms2[0];
}

/* Bad rows are left out here, and found when their turn comes. */
static void guess_middle(km_problem *p)
{
        const size_t step = p->n / MIDDLE_ROWS + 4;
        float *sum = p->middle, *row = p->workers[0].row, *norms2 = p->row_scratch;
        size_t n_long = 0; /* but for zeros, which lose nothing */
        size_t n_used = 0;
        memset(sum, 0, p->dim * sizeof *sum);
        for (size_t i = 0; i < p->n; i += step) {
                bool zero;
                if (take_row(p, i, row, &zero) != KM_BAD_NONE)
                        continue;
                n_used++;
                norms2[n_long] = p->kernels->norm2[DCI_F32 - 1](row, p->dim);
                n_long += norms2[n_long] > 0.0f;
                for (size_t j = 0; j < p->dim; j++)
                        sum[j] += row[j]; /* KM_MAX_NORM2 is small enough for the sum */
        }
        const float scale = 1.0f / (float)(n_used > 0 ? n_used : 1);
        for (size_t j = 0; j < p->dim; j++)
                sum[j] *= scale;
        p->middle_norm2 = p->kernels->norm2[DCI_F32 - 1](p->middle, p->dim);
        if (is_far(p, norms2, n_long)) {
                memset(p->middle, 0, p->dim * sizeof *p->middle);
                p->middle_norm2 = 0.0f;
        }
}

dci_status dci_km_prepare(km_problem *p)
{
        p->bad_row = SIZE_MAX;
        p->bad_kind = KM_BAD_NONE;
        memset(p->mean, 0, p->dim * sizeof *p->mean);
        DCI_TRY(find_mean(p));
        if (p->bad_row != SIZE_MAX)
                return DCI_OK;
        guess_middle(p);
        DCI_TRY(dci_km_for(p, p->n_tasks, 4 * p->n * p->dim, prepare_task, p));
        met_bad_row(p);
        return DCI_OK;
}

bool dci_km_put_centroid(const km_problem *p, const float *in_rows, float *out_in_points)
{
        float scale = 1.0f;
        if (dci_km_cosine(p)) {
                const float norm2 = p->kernels->norm2[DCI_F32 - 1](in_rows, p->dim);
                if (!(norm2 >= KM_MIN_NORM2))
                        return false;
                scale = 1.0f / sqrtf(norm2);
        }
        for (size_t j = 0; j < p->dim; j++)
                out_in_points[j] = in_rows[j] * scale - p->middle[j];
        return true;
}
