/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Where centroids start: drawn rows, k-means++, evenly spaced rows, or what the caller gave. */
#include "core/internal.h"

#include <string.h>

#include "cluster/kmeans_internal.h"

/* Cluster `c` of the view starts at a row. */
static void start_at(km_view *view, size_t c, size_t row)
{
        km_problem *p = view->problem;
        float *centroid = p->centroids + (view->first_cluster + c) * p->dim;
        memcpy(centroid, p->points + row * p->dim, p->dim * sizeof *centroid);
        if (p->raw == NULL)
                return;
        float *raw = p->raw + (view->first_cluster + c) * p->dim;
        p->kernels->widen[p->config->dtype - 1](dci_km_row(p, row), p->dim, raw);
        for (size_t j = 0; j < p->dim; j++)
                raw[j] -= p->mean[j];
}

/* The view's rows that have a direction, in p->order; all but under COSINE with zero rows kept. */
static size_t rows_to_start_at(km_view *view)
{
        km_problem *p = view->problem;
        size_t n = 0;
        for (size_t i = view->first_row; i < view->first_row + view->n; i++)
                if (p->own[i] != KM_NO_DIRECTION)
                        p->order[n++] = (int32_t)i;
        return n;
}

/* Nothing has a direction: any will do. */
static void start_anywhere(km_view *view)
{
        km_problem *p = view->problem;
        for (size_t c = view->first_cluster; c < view->first_cluster + view->k; c++)
                for (size_t j = 0; j < p->dim; j++) {
                        p->centroids[c * p->dim + j] = (j == 0 ? 1.0f : 0.0f) - p->middle[j];
                        if (p->raw != NULL)
                                p->raw[c * p->dim + j] = j == 0 ? 1.0f : 0.0f;
                }
}

static void start_evenly(km_view *view, size_t n)
{
        for (size_t c = 0; c < view->k; c++) /* (2 c + 1) n / 2 k; sizes are below 2^31 */
                start_at(view, c, (size_t)view->problem->order[(2 * (uint64_t)c + 1) * n / (2 * (uint64_t)view->k)]);
}

/* Selection sampling (Knuth, volume 2, algorithm S): every set of k rows with the same chance, in ascending order. */
static void start_at_random(km_view *view, size_t n, dci_rng *rng)
{
        const km_problem *p = view->problem;
        size_t c = 0;
        for (size_t i = 0; i < n && c < view->k; i++)
                if (dci_rng_below(rng, n - i) < view->k - c)
                        start_at(view, c++, (size_t)p->order[i]);
        for (size_t i = 0; c < view->k; i++) /* fewer rows than clusters have a direction */
                start_at(view, c++, (size_t)p->order[i % n]);
}

/* --- k-means++ -------------------------------------------------------------------------------------------------- */

typedef struct spread {
        km_view *view;
        size_t n;        /* candidates: p->order */
        float *nearest2; /* p->scores: squared distance to the nearest centre so far */
        size_t chosen;   /* the newest centre: a row */
} spread;

static void spread_task(void *arg, size_t task, size_t worker)
{
        const spread *s = arg;
        km_problem *p = s->view->problem;
        const size_t first = task * KM_TASK_ROWS;
        const size_t n = s->n - first < KM_TASK_ROWS ? s->n - first : KM_TASK_ROWS;
        float distances[KM_TASK_ROWS];
        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
                p->workers[worker].pointers[i] = p->points + (size_t)p->order[first + i] * p->dim;
        p->kernels->score_rows[DCI_F32 - 1][DCI_FORM_L2](p->points + s->chosen * p->dim, p->workers[worker].pointers, n,
                                                         p->dim, distances);
        for (size_t i = 0; i < n; i++) {
                float *least = &s->nearest2[first + i];
                *least = distances[i] < *least ? distances[i] : *least;
                sum += (double)*least;
        }
        p->task_value[task] = sum;
}

/* A candidate drawn by its squared distance; by place where all distances are zero. */
static size_t draw(const spread *s, size_t c, dci_rng *rng)
{
        const km_problem *p = s->view->problem;
        const size_t n_tasks = (s->n + KM_TASK_ROWS - 1) / KM_TASK_ROWS;
        double total = 0.0;
        for (size_t task = 0; task < n_tasks; task++)
                total += p->task_value[task];
        double left = dci_rng_uniform(rng) * total;
        if (!(total > 0.0))
                return c % s->n;
        size_t task = 0, last = 0;
        for (; task + 1 < n_tasks && left >= p->task_value[task]; task++)
                left -= p->task_value[task];
        const size_t end = (task + 1) * KM_TASK_ROWS < s->n ? (task + 1) * KM_TASK_ROWS : s->n;
        for (size_t i = task * KM_TASK_ROWS; i < end; i++) {
                if (s->nearest2[i] > 0.0f)
                        last = i;
                if (left < (double)s->nearest2[i])
                        return i;
                left -= (double)s->nearest2[i];
        }
        return last; /* rounding has used up what was left */
}

static dci_status start_spread(km_view *view, size_t n, dci_rng *rng)
{
        km_problem *p = view->problem;
        spread s = {.view = view, .n = n, .nearest2 = p->scores + view->first_row};
        size_t at = (size_t)dci_rng_below(rng, n);
        for (size_t i = 0; i < n; i++)
                s.nearest2[i] = INFINITY;
        for (size_t c = 0; c < view->k; c++) {
                s.chosen = (size_t)p->order[at];
                start_at(view, c, s.chosen);
                if (c + 1 == view->k)
                        break;
                dci_status status = dci_km_for(p, (n + KM_TASK_ROWS - 1) / KM_TASK_ROWS, n * p->dim, spread_task, &s);
                if (status != DCI_OK)
                        return status;
                at = draw(&s, c + 1, rng);
        }
        return DCI_OK;
}

static void start_given(km_view *view)
{
        km_problem *p = view->problem;
        const float *given = p->input->centroids + p->number * p->k * p->dim;
        for (size_t c = 0; c < view->k; c++) {
                dci_km_put_centroid(p, given + c * p->dim, p->centroids + c * p->dim);
                if (p->raw != NULL)
                        memcpy(p->raw + c * p->dim, given + c * p->dim, p->dim * sizeof *given);
        }
}

dci_status dci_km_start(km_view *view, size_t redo, size_t segment)
{
        const km_problem *p = view->problem;
        dci_rng rng;
        dci_rng_seed(&rng, p->config->seed);
        rng = dci_rng_split(&rng, p->input->first_problem + p->number);
        rng = dci_rng_split(&rng, redo);
        rng = dci_rng_split(&rng, segment);
        if (p->config->init == DCI_KMEANS_INIT_GIVEN) {
                start_given(view);
                return DCI_OK;
        }
        const size_t n = rows_to_start_at(view);
        if (n == 0)
                start_anywhere(view);
        else if (p->config->init == DCI_KMEANS_INIT_EVEN)
                start_evenly(view, n);
        else if (p->config->init == DCI_KMEANS_INIT_RANDOM)
                start_at_random(view, n, &rng);
        else
                return start_spread(view, n, &rng);
        return DCI_OK;
}
