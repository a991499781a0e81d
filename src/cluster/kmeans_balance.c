/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Assignment with a capacity: every row to its nearest cluster, of which those that are too full keep the rows that fit
 * best; the others go, in turns, to the nearest cluster with room, which admits those that fit best. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/kmeans_internal.h"

/* Turns; then what is left fills what is free, in order. Rows that are all alike would take one turn per cluster. */
#define MAX_TURNS 8

/* By cluster, then by fit, then by row. */
static int best_first(const void *a, const void *b)
{
        const km_wish *x = a, *y = b;
        if (x->cluster != y->cluster)
                return x->cluster < y->cluster ? -1 : 1;
        if (x->value != y->value)
                return x->value < y->value ? -1 : 1;
        return dci_km_by_row(a, b);
}

/* How badly a row fits a cluster, compared with other rows: by distance, under IP by the inner product. */
static float misfit(const km_problem *p, size_t row, size_t c)
{
        const bool ip = p->config->metric == DCI_METRIC_IP;
        float value;
        p->kernels->score_strided[DCI_F32 - 1][ip ? DCI_FORM_DOT : DCI_FORM_L2](
                p->points + row * p->dim, p->centroids + c * p->dim, 0, 1, p->dim, &value);
        return ip ? -(value + p->own[row]) : value;
}

/* A cluster that is too full lets go of the rows that fit worst: their label becomes -1. */
static void release_task(void *arg, size_t c, size_t worker)
{
        km_problem *p = arg;
        const size_t begin = (size_t)p->starts[c], end = (size_t)p->starts[c + 1];
        (void)worker;
        if (end - begin <= p->limit)
                return;
        for (size_t i = begin; i < end; i++)
                p->wishes[i] = (km_wish){misfit(p, (size_t)p->order[i], c), p->order[i], (int32_t)c};
        qsort(p->wishes + begin, end - begin, sizeof *p->wishes, best_first);
        for (size_t i = begin + p->limit; i < end; i++)
                p->labels[p->wishes[i].row] = -1;
}

/* --- rows without a cluster ------------------------------------------------------------------------------------- */

typedef struct placing {
        km_view *view;
        size_t n_rows; /* in p->wishes */
} placing;

static void wish_task(void *arg, size_t task, size_t worker)
{
        const placing *s = arg;
        km_problem *p = s->view->problem;
        const km_worker *w = &p->workers[worker];
        const size_t first = task * KM_TASK_ROWS;
        const size_t n = dci_km_rows_of_task(s->n_rows, task);
        int32_t found[KM_TASK_ROWS];
        for (size_t i = 0; i < n; i++)
                memcpy(w->gathered + i * p->dim, p->points + (size_t)p->wishes[first + i].row * p->dim,
                       p->dim * sizeof *w->gathered);
        dci_nearest_find(&s->view->nearest, w->gathered, p->dim, n, w->nearest, found, NULL);
        for (size_t i = 0; i < n; i++) {
                km_wish *wish = &p->wishes[first + i];
                wish->cluster = found[i];
                wish->value = misfit(p, (size_t)wish->row, (size_t)found[i]);
        }
}

/* Every row wishes for the nearest cluster with room, and is admitted if those that fit better leave room. */
static dci_status take_turn(placing *s)
{
        km_problem *p = s->view->problem;
        for (size_t c = 0; c < p->k; c++)
                if ((size_t)p->sizes[c] >= p->limit)
                        dci_nearest_close(&s->view->nearest, c);
        DCI_TRY(dci_km_for(p, dci_km_tasks(s->n_rows), s->n_rows * p->dim * (p->k / 8 + 1), wish_task, s));
        qsort(p->wishes, s->n_rows, sizeof *p->wishes, best_first);
        size_t n_left = 0;
        for (size_t i = 0; i < s->n_rows; i++) {
                const km_wish wish = p->wishes[i];
                if ((size_t)p->sizes[wish.cluster] < p->limit) {
                        p->labels[wish.row] = wish.cluster;
                        p->sizes[wish.cluster]++;
                } else {
                        p->wishes[n_left++] = wish;
                }
        }
        s->n_rows = n_left;
        return DCI_OK;
}

static void fill_up(placing *s)
{
        km_problem *p = s->view->problem;
        size_t c = 0;
        qsort(p->wishes, s->n_rows, sizeof *p->wishes, dci_km_by_row);
        for (size_t i = 0; i < s->n_rows; i++) {
                while ((size_t)p->sizes[c] >= p->limit)
                        c++;
                p->labels[p->wishes[i].row] = (int32_t)c;
                p->sizes[c]++;
        }
}

dci_status dci_km_assign_balanced(km_view *view, double *out_free)
{
        km_problem *p = view->problem;
        km_assigned assigned;
        DCI_TRY(dci_km_assign(view, &assigned));
        if (out_free != NULL)
                DCI_TRY(dci_km_measure(view, out_free));
        DCI_TRY(dci_km_for(p, p->k, 8 * p->n * p->dim, release_task, p));
        placing s = {.view = view};
        for (size_t c = 0; c < p->k; c++) {
                const size_t size = dci_km_size(p, c);
                p->sizes[c] = (int32_t)(size < p->limit ? size : p->limit);
        }
        for (size_t i = 0; i < p->n; i++)
                if (p->labels[i] < 0)
                        p->wishes[s.n_rows++] = (km_wish){.row = (int32_t)i};
        if (s.n_rows == 0)
                return DCI_OK;
        for (int turn = 0; turn < MAX_TURNS && s.n_rows > 0; turn++)
                DCI_TRY(take_turn(&s));
        fill_up(&s);
        dci_km_sort(view);
        return DCI_OK;
}
