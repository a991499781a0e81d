/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The steps of a round: rows to centroids, empty clusters repaired, centroids to the means of their rows. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/kmeans_internal.h"

/* --- assignment ------------------------------------------------------------------------------------------------- */

/* -m . c: what the products of points leave out of the inner products of rows. */
static float ip_offset(const km_problem *p, const float *centroid)
{
        float product;
        p->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](p->middle, centroid, 0, 1, p->dim, &product);
        return -product;
}

void dci_km_ready(km_view *view)
{
        km_problem *p = view->problem;
        const float *centroids = p->centroids + view->first_cluster * p->dim;
        dci_nearest_init(p->context, centroids, p->dim, view->k, p->dim, p->nearest_memory, &view->nearest);
        dci_nearest_resize(&view->nearest, view->k);
        view->nearest.by_distance = p->config->metric == DCI_METRIC_L2;
        for (size_t c = 0; c < view->k; c++)
                if (p->config->metric == DCI_METRIC_IP)
                        dci_nearest_put_offset(&view->nearest, c, ip_offset(p, centroids + c * p->dim));
                else
                        dci_nearest_put(&view->nearest, c);
}

static void assign_task(void *arg, size_t task, size_t worker)
{
        km_view *view = arg;
        km_problem *p = view->problem;
        size_t moved = 0;
        const size_t first = view->first_row + task * KM_TASK_ROWS, n = dci_km_rows_of_task(view->n, task);
        int32_t found[KM_TASK_ROWS];
        dci_nearest_find_packed(&view->nearest, &p->packed, first, n, p->workers[worker].nearest, found, NULL);
        for (size_t i = 0; i < n; i++) {
                const int32_t label = p->own[first + i] == KM_NO_DIRECTION ? 0 : found[i];
                moved += (size_t)(p->labels[first + i] != (int32_t)view->first_cluster + label);
                p->labels[first + i] = (int32_t)view->first_cluster + label;
        }
        p->task_count[task] = moved;
}

dci_status dci_km_assign(km_view *view, km_assigned *out)
{
        km_problem *p = view->problem;
        const size_t n_tasks = dci_km_tasks(view->n);
        dci_km_ready(view);
        *out = (km_assigned){0};
        DCI_TRY(dci_km_for(p, n_tasks, view->n * (p->dim + 32) * (view->k / 8 + 1), assign_task, view));
        for (size_t task = 0; task < n_tasks; task++)
                out->n_moved += p->task_count[task];
        dci_km_sort(view);
        for (size_t c = view->first_cluster; c < view->first_cluster + view->k; c++)
                out->n_empty += dci_km_size(p, c) == 0;
        return DCI_OK;
}

/* A counting sort. starts counts rows of the problem: those of the view begin at its first row. */
void dci_km_sort(km_view *view)
{
        km_problem *p = view->problem;
        int32_t *starts = p->starts + view->first_cluster;
        memset(starts, 0, (view->k + 1) * sizeof *starts);
        for (size_t i = view->first_row; i < view->first_row + view->n; i++)
                p->starts[p->labels[i] + 1]++;
        starts[0] = (int32_t)view->first_row;
        for (size_t c = 0; c < view->k; c++)
                starts[c + 1] += starts[c];
        for (size_t i = view->first_row; i < view->first_row + view->n; i++)
                p->order[p->starts[p->labels[i]]++] = (int32_t)i;
        for (size_t c = view->k; c > 0; c--)
                starts[c] = starts[c - 1];
        starts[0] = (int32_t)view->first_row;
}

void dci_km_score(const km_problem *p, km_worker *worker, int form, const float *query, size_t begin, size_t end)
{
        float scores[KM_TASK_ROWS];
        for (size_t first = begin; first < end; first += KM_TASK_ROWS) {
                const size_t n = end - first < KM_TASK_ROWS ? end - first : KM_TASK_ROWS;
                for (size_t i = 0; i < n; i++)
                        worker->pointers[i] = p->points + (size_t)p->order[first + i] * p->dim;
                p->kernels->score_rows[DCI_F32 - 1][form](query, worker->pointers, n, p->dim, scores);
                for (size_t i = 0; i < n; i++)
                        p->fits[first + i] = (km_fit){scores[i], p->order[first + i]};
        }
}

/* --- empty clusters --------------------------------------------------------------------------------------------- */

static int worst_first(const void *a, const void *b)
{
        const km_fit *x = a, *y = b;
        if (x->value != y->value)
                return x->value > y->value ? -1 : 1;
        return x->row < y->row ? -1 : x->row > y->row;
}

/* Nothing is gained by a row that is its centroid, but for rounding. */
static bool lies_apart(const km_problem *p, const km_fit *fit)
{
        const float *point = p->points + (size_t)fit->row * p->dim;
        const float norm2 = dci_km_cosine(p) ? 1.0f : p->kernels->norm2[DCI_F32 - 1](point, p->dim);
        return fit->value > 0x1p-36f * norm2;
}

size_t dci_km_repair(km_view *view)
{
        km_problem *p = view->problem;
        km_fit *fits = p->fits + view->first_row;
        size_t next = 0, n_repaired = 0;
        /* Squared distances to the own centroids, by the kernel that is exact for a row on its centroid. */
        for (size_t c = view->first_cluster; c < view->first_cluster + view->k; c++)
                dci_km_score(p, &p->workers[0], DCI_FORM_L2, p->centroids + c * p->dim, (size_t)p->starts[c],
                             (size_t)p->starts[c + 1]);
        qsort(fits, view->n, sizeof *fits, worst_first);
        int32_t *sizes = p->starts; /* while rows move; sorted again below */
        for (size_t c = view->first_cluster; c < view->first_cluster + view->k; c++)
                sizes[c] = sizes[c + 1] - sizes[c];
        for (size_t c = view->first_cluster; c < view->first_cluster + view->k; c++) {
                if (sizes[c] != 0)
                        continue;
                while (next < view->n &&
                       (sizes[p->labels[fits[next].row]] < 2 || p->own[fits[next].row] == KM_NO_DIRECTION))
                        next++;
                if (next == view->n || !lies_apart(p, &fits[next]))
                        break;
                const int32_t row = fits[next++].row;
                sizes[p->labels[row]]--;
                sizes[c]++;
                p->labels[row] = (int32_t)c;
                memcpy(p->centroids + c * p->dim, p->points + (size_t)row * p->dim, p->dim * sizeof *p->centroids);
                dci_km_put_raw(p, c, (size_t)row);
                n_repaired++;
        }
        dci_km_sort(view);
        return n_repaired;
}

/* --- means ------------------------------------------------------------------------------------------------------ */

void dci_km_sum(const km_problem *p, km_worker *worker, dci_dtype dtype, const void *base, size_t stride,
                const int32_t *order, size_t n, size_t dim, double *out)
{
        memset(out, 0, dim * sizeof *out);
        for (size_t first = 0; first < n; first += KM_TASK_ROWS) {
                const size_t here = n - first < KM_TASK_ROWS ? n - first : KM_TASK_ROWS;
                for (size_t i = 0; i < here; i++)
                        worker->pointers[i] = (const unsigned char *)base + (size_t)order[first + i] * stride;
                memset(worker->sum, 0, dim * sizeof *worker->sum);
                p->kernels->add_rows[dtype - 1](worker->pointers, NULL, here, dim, worker->sum);
                for (size_t j = 0; j < dim; j++)
                        out[j] += (double)worker->sum[j];
        }
}

/* What a cluster's rows, whose points add up to `sum`, contribute to the objective with the present centroid; under L2
 * but for the squared lengths of the points. */
static double value_of(const km_problem *p, size_t c, size_t n, const double *sum)
{
        const float *centroid = p->centroids + c * p->dim;
        double value = 0.0;
        if (p->config->metric == DCI_METRIC_L2) {
                for (size_t j = 0; j < p->dim; j++)
                        value += (double)centroid[j] * ((double)n * (double)centroid[j] - 2.0 * sum[j]);
                return value;
        }
        for (size_t j = 0; j < p->dim; j++)
                value += ((double)centroid[j] + (double)p->middle[j]) * (sum[j] + (double)n * (double)p->middle[j]);
        return value;
}

/* The next centroid: the mean of the rows, under COSINE its direction. */
static void next_centroid(km_problem *p, km_worker *worker, size_t c, const int32_t *rows, size_t n)
{
        float *next = p->next + c * p->dim, *mean = worker->row;
        double *sum = worker->total;
        if (p->raw != NULL) {
                dci_km_sum(p, worker, p->config->dtype, p->rows, p->input->ld * dci_dtype_size(p->config->dtype), rows,
                           n, p->dim, sum);
                for (size_t j = 0; j < p->dim; j++)
                        mean[j] = (float)(sum[j] / (double)n - (double)p->mean[j]);
                if (dci_km_put_centroid(p, mean, next))
                        memcpy(p->next_raw + c * p->dim, mean, p->dim * sizeof *mean);
                return;
        }
        const bool cosine = dci_km_cosine(p);
        for (size_t j = 0; j < p->dim; j++)
                mean[j] = (float)(sum[j] / (double)n + (cosine ? (double)p->middle[j] : 0.0));
        if (cosine)
                dci_km_put_centroid(p, mean, next); /* rows that cancel out leave it where it was */
        else
                memcpy(next, mean, p->dim * sizeof *next);
}

static void add_up_one(km_problem *p, km_worker *worker, size_t c)
{
        const int32_t *rows = p->order + p->starts[c];
        const size_t n = dci_km_size(p, c);
        memcpy(p->next + c * p->dim, p->centroids + c * p->dim, p->dim * sizeof *p->next);
        if (p->raw != NULL)
                memcpy(p->next_raw + c * p->dim, p->raw + c * p->dim, p->dim * sizeof *p->next_raw);
        p->cluster_value[c] = 0.0;
        if (n == 0)
                return;
        dci_km_sum(p, worker, DCI_F32, p->points, p->dim * sizeof *p->points, rows, n, p->dim, worker->total);
        p->cluster_value[c] = value_of(p, c, n, worker->total);
        next_centroid(p, worker, c, rows, n);
}

/* Clusters whose rows begin within a task's share of the rows; the last task takes empty ones after all rows, too. */
static void each_cluster_of(const km_view *view, size_t task, size_t worker,
                            void (*one)(km_problem *p, km_worker *worker, size_t c))
{
        km_problem *p = view->problem;
        const int32_t *starts = p->starts + view->first_cluster;
        const size_t begin = view->first_row + task * KM_TASK_ROWS, end = begin + KM_TASK_ROWS;
        const bool last = end >= view->first_row + view->n;
        size_t low = 0, high = view->k; /* the first cluster that begins at `begin` or later */
        while (low < high) {
                const size_t middle = low + (high - low) / 2;
                if ((size_t)starts[middle] < begin)
                        low = middle + 1;
                else
                        high = middle;
        }
        for (size_t c = low; c < view->k && (last || (size_t)starts[c] < end); c++)
                one(p, &p->workers[worker], view->first_cluster + c);
}

static void add_up_task(void *arg, size_t task, size_t worker)
{
        each_cluster_of(arg, task, worker, add_up_one);
}

/* Of the squared lengths of the points, what is left of them as the objective under L2: less is mostly rounding. */
#define MIN_LEFT 0x1p-8

dci_status dci_km_add_up(km_view *view, double *out_objective)
{
        km_problem *p = view->problem;
        dci_status status = dci_km_for(p, dci_km_tasks(view->n), 8 * view->n * p->dim, add_up_task, view);
        double squares = 0.0, value = 0.0;
        if (status != DCI_OK || out_objective == NULL)
                return status;
        if (p->config->metric == DCI_METRIC_L2)
                for (size_t i = view->first_row; i < view->first_row + view->n; i += DCI_NEAREST_BLOCK)
                        squares += p->block_norm2[i / DCI_NEAREST_BLOCK];
        for (size_t c = view->first_cluster; c < view->first_cluster + view->k; c++)
                value += p->cluster_value[c];
        *out_objective = squares + value;
        if (p->config->metric == DCI_METRIC_L2 && *out_objective < MIN_LEFT * squares)
                return dci_km_measure(view, out_objective);
        return DCI_OK;
}

void dci_km_move(km_view *view)
{
        km_problem *p = view->problem;
        const size_t at = view->first_cluster * p->dim, n_bytes = view->k * p->dim * sizeof *p->next;
        memcpy(p->centroids + at, p->next + at, n_bytes);
        if (p->raw != NULL)
                memcpy(p->raw + at, p->next_raw + at, n_bytes);
}

/* --- the objective, row by row ---------------------------------------------------------------------------------- */

/* Under L2 the distances; else x . C = p . C + m . C. */
static void measure_one(km_problem *p, km_worker *w, size_t c)
{
        const size_t begin = (size_t)p->starts[c], end = (size_t)p->starts[c + 1];
        const bool l2 = p->config->metric == DCI_METRIC_L2;
        const float *query = p->centroids + c * p->dim;
        float fixed = 0.0f;
        double sum = 0.0;
        if (!l2) {
                for (size_t j = 0; j < p->dim; j++)
                        w->row[j] = query[j] + p->middle[j];
                query = w->row;
                p->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](query, p->middle, 0, 1, p->dim, &fixed);
        }
        dci_km_score(p, w, l2 ? DCI_FORM_L2 : DCI_FORM_DOT, query, begin, end);
        for (size_t i = begin; i < end; i++)
                sum += p->own[p->fits[i].row] == KM_NO_DIRECTION ? 0.0 : (double)p->fits[i].value + (double)fixed;
        p->cluster_value[c] = sum;
}

static void measure_task(void *arg, size_t task, size_t worker)
{
        each_cluster_of(arg, task, worker, measure_one);
}

dci_status dci_km_measure(km_view *view, double *out_objective)
{
        km_problem *p = view->problem;
        dci_status status = dci_km_for(p, dci_km_tasks(view->n), 8 * view->n * p->dim, measure_task, view);
        *out_objective = 0.0;
        for (size_t c = view->first_cluster; c < view->first_cluster + view->k; c++)
                *out_objective += p->cluster_value[c];
        return status;
}
