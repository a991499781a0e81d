/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Where centroids start: drawn rows, k-means++, evenly spaced rows, or what the caller gave. */
#include "core/internal.h"

#include <string.h>

#include "cluster/kmeans_internal.h"

void dci_km_put_raw(km_problem *p, size_t c, size_t row)
{
        if (p->raw == NULL)
                return;
        float *raw = p->raw + c * p->dim;
        p->kernels->to_f32[p->config->dtype - 1](dci_km_row(p, row), p->dim, raw);
        for (size_t j = 0; j < p->dim; j++)
                raw[j] -= p->mean[j];
}

/* Cluster `c` of the view starts at a row. */
static void start_at(km_view *view, size_t c, size_t row)
{
        km_problem *p = view->problem;
        float *centroid = p->centroids + (view->first_cluster + c) * p->dim;
        memcpy(centroid, p->points + row * p->dim, p->dim * sizeof *centroid);
        dci_km_put_raw(p, view->first_cluster + c, row);
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

/* A row drawn by its squared distance to the centres is one drawn by that to some of the centres, if it is then kept
 * with the chance that the ratio of the two is (rejection sampling; Cohen-Addad et al. 2020). So a batch of centres is
 * drawn from the distances to those before the batch, and one pass over the rows updates distances for all. */
#define SPREAD_BATCH ((size_t)32)
#define SPREAD_DRAWS (4 * SPREAD_BATCH)

typedef struct spread {
        km_view *view;
        float *nearest2;       /* by row of the view: squared distance to the nearest centre but those of the batch */
        size_t first, n_batch; /* the batch: these clusters of the view */
        dci_nearest batch;
} spread;

static void spread_task(void *arg, size_t task, size_t worker)
{
        const spread *s = arg;
        const km_view *view = s->view;
        km_problem *p = view->problem;
        const size_t first = view->first_row + task * KM_TASK_ROWS, n = dci_km_rows_of_task(view->n, task);
        int32_t found[KM_TASK_ROWS];
        double sum = 0.0;
        dci_nearest_find_packed(&s->batch, &p->packed, first, n, p->workers[worker].nearest, found, NULL);
        for (size_t i = 0; i < n; i++) {
                float *least = &s->nearest2[first - view->first_row + i], distance2;
                p->kernels->score_strided[DCI_F32 - 1][DCI_FORM_L2](p->points + (first + i) * p->dim,
                                                                    s->batch.centres + (size_t)found[i] * p->dim, 0, 1,
                                                                    p->dim, &distance2);
                if (p->own[first + i] == KM_NO_DIRECTION)
                        distance2 = 0.0f;
                *least = distance2 < *least ? distance2 : *least;
                sum += (double)*least;
        }
        p->task_value[task] = sum;
}

static dci_status bring_up_to_date(spread *s)
{
        km_problem *p = s->view->problem;
        const float *centres = p->centroids + (s->view->first_cluster + s->first) * p->dim;
        dci_nearest_prepare(p->context, centres, p->dim, s->n_batch, p->dim, p->nearest_memory, &s->batch);
        s->batch.by_distance = !dci_km_cosine(p); /* unit rows are never far apart for their lengths */
        return dci_km_for(p, dci_km_tasks(s->view->n), 8 * s->view->n * p->dim, spread_task, s);
}

/* A row of the view, drawn by its distance; total > 0. */
static size_t draw(const spread *s, double total, dci_rng *rng)
{
        const km_problem *p = s->view->problem;
        const size_t n_tasks = dci_km_tasks(s->view->n);
        double left = dci_rng_uniform(rng) * total;
        size_t task = 0, last = 0;
        for (; task + 1 < n_tasks && left >= p->task_value[task]; task++)
                left -= p->task_value[task];
        const size_t first = task * KM_TASK_ROWS, end = first + dci_km_rows_of_task(s->view->n, task);
        for (size_t i = first; i < end; i++) {
                if (s->nearest2[i] > 0.0f)
                        last = i;
                if (left < (double)s->nearest2[i])
                        return i;
                left -= (double)s->nearest2[i];
        }
        return last; /* rounding has used up what was left */
}

/* Whether a row that was drawn is kept, given those that the batch has already. */
static bool keeps(const spread *s, size_t row, dci_rng *rng)
{
        const km_problem *p = s->view->problem;
        const float *centres = p->centroids + (s->view->first_cluster + s->first) * p->dim;
        float least = s->nearest2[row];
        for (size_t c = 0; c < s->n_batch; c++) {
                float distance2;
                p->kernels->score_strided[DCI_F32 - 1][DCI_FORM_L2](p->points + (s->view->first_row + row) * p->dim,
                                                                    centres + c * p->dim, 0, 1, p->dim, &distance2);
                least = distance2 < least ? distance2 : least;
        }
        return dci_rng_uniform(rng) * (double)s->nearest2[row] < (double)least;
}

static dci_status start_spread(km_view *view, size_t n, dci_rng *rng)
{
        km_problem *p = view->problem;
        spread s = {.view = view, .nearest2 = p->row_scratch + view->first_row, .n_batch = 1};
        for (size_t i = 0; i < view->n; i++)
                s.nearest2[i] = INFINITY;
        start_at(view, 0, (size_t)p->order[dci_rng_below(rng, n)]);
        while (s.first + s.n_batch < view->k) {
                DCI_TRY(bring_up_to_date(&s));
                double total = 0.0;
                for (size_t task = 0; task < dci_km_tasks(view->n); task++)
                        total += p->task_value[task];
                s.first += s.n_batch;
                s.n_batch = 0;
                for (size_t i = 0; i < SPREAD_DRAWS && s.n_batch < SPREAD_BATCH && s.first + s.n_batch < view->k; i++) {
                        const size_t c = s.first + s.n_batch;
                        if (!(total > 0.0)) { /* every row is a centre */
                                start_at(view, c, (size_t)p->order[c % n]);
                                s.n_batch++;
                                continue;
                        }
                        const size_t row = draw(&s, total, rng);
                        if (!keeps(&s, row, rng))
                                continue;
                        start_at(view, c, view->first_row + row);
                        s.n_batch++;
                }
        }
        return DCI_OK;
}

static void start_given(km_view *view)
{
        km_problem *p = view->problem;
        const float *given = p->input->centroids + p->number * p->k * p->dim;
        for (size_t c = 0; c < view->k; c++) {
                double scale = 1.0;
                if (dci_km_cosine(p)) { /* of any length: its square may not be a float */
                        double norm2 = 0.0;
                        for (size_t j = 0; j < p->dim; j++)
                                norm2 += (double)given[c * p->dim + j] * (double)given[c * p->dim + j];
                        scale = 1.0 / sqrt(norm2);
                }
                for (size_t j = 0; j < p->dim; j++)
                        p->centroids[c * p->dim + j] =
                                (float)((double)given[c * p->dim + j] * scale - (double)p->middle[j]);
                if (p->raw != NULL)
                        memcpy(p->raw + c * p->dim, given + c * p->dim, p->dim * sizeof *given);
        }
}

static dci_rng draws_of(uint64_t seed, size_t problem, size_t redo, size_t segment)
{
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        rng = dci_rng_split(&rng, problem);
        rng = dci_rng_split(&rng, redo);
        return dci_rng_split(&rng, segment);
}

void dci_km_draw(uint64_t seed, size_t problem, size_t n, size_t k, size_t segment_rows, int32_t *out)
{
        const size_t size = segment_rows > 0 && segment_rows < n ? segment_rows : n;
        size_t c = 0, segment = 0;
        for (size_t first = 0; first < n; first += size) {
                const size_t here = n - first < size ? n - first : size, end = dci_km_share(k, first + here, n);
                if (end == c) /* its rows are for the clusters of others */
                        continue;
                dci_rng rng = draws_of(seed, problem, 0, segment++);
                for (size_t i = 0; i < here && c < end; i++)
                        if (dci_rng_below(&rng, here - i) < end - c)
                                out[c++] = (int32_t)(first + i);
        }
}

dci_status dci_km_start(km_view *view, size_t redo, size_t segment)
{
        const km_problem *p = view->problem;
        dci_rng rng = draws_of(p->config->seed, p->input->first_problem + p->number, redo, segment);
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
