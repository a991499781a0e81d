/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Clusters that hold too much are divided by likeness: two means within the cluster, again and again until every part
 * fits. Then there are as many centroids as wanted: the smallest parts lose theirs, or the largest are divided. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/kmeans_internal.h"

#define MAX_DEPTH 8  /* then a part is cut by position: its rows are all but alike */
#define MAX_ROUNDS 5 /* of two means */

/* Parts are contiguous in p->order, rows ascending within each; p->row_scratch marks where they begin. */
static void mark(km_problem *p, size_t at)
{
        p->row_scratch[at] = 1.0f;
}

static void cut_by_position(km_problem *p, size_t begin, size_t end, size_t n_parts)
{
        for (size_t i = 1; i < n_parts; i++)
                mark(p, begin + (end - begin) * i / n_parts);
}

/* The row whose value is the largest; the first of equal ones. */
static size_t largest(const km_problem *p, size_t begin, size_t end)
{
        size_t best = begin;
        for (size_t i = begin + 1; i < end; i++)
                if (p->fits[i].value > p->fits[best].value)
                        best = i;
        return best;
}

/* Rows with a value above `limit` come first; both sides keep their order. Returns where the second begins. */
static size_t partition(km_problem *p, size_t begin, size_t end, float limit)
{
        size_t n_first = 0, n_second = 0;
        for (size_t i = begin; i < end; i++)
                if (p->fits[i].value > limit)
                        p->order[begin + n_first++] = p->order[i];
                else
                        p->fits[begin + n_second++].row = p->order[i];
        for (size_t i = 0; i < n_second; i++)
                p->order[begin + n_first + i] = p->fits[begin + i].row;
        return begin + n_first;
}

static int ascending(const void *a, const void *b)
{
        const int32_t *x = a, *y = b;
        return *x < *y ? -1 : *x > *y;
}

/* Between two places: the direction from b to a, into w->sum, and the value halfway. */
static float halfway(const km_problem *p, km_worker *w, const float *a, const float *b)
{
        double limit = 0.0;
        for (size_t j = 0; j < p->dim; j++) {
                limit += ((double)a[j] - (double)b[j]) * ((double)a[j] + (double)b[j]);
                w->sum[j] = a[j] - b[j];
        }
        return (float)(0.5 * limit);
}

/* Divides a part in two; returns where the second begins, or `begin` if its rows are alike. */
static size_t divide(km_problem *p, km_worker *w, size_t begin, size_t end)
{
        dci_km_sum(p, w, DCI_F32, p->points, p->dim * sizeof *p->points, p->order + begin, end - begin, p->dim,
                   w->total);
        for (size_t j = 0; j < p->dim; j++)
                w->row[j] = (float)(w->total[j] / (double)(end - begin));
        dci_km_score(p, w, DCI_FORM_L2, w->row, begin, end);
        const size_t far = largest(p, begin, end);
        if (!(p->fits[far].value > 0.0f))
                return begin;
        const float *a = p->points + (size_t)p->order[far] * p->dim;
        dci_km_score(p, w, DCI_FORM_L2, a, begin, end);
        const float *b = p->points + (size_t)p->order[largest(p, begin, end)] * p->dim;
        float limit = halfway(p, w, a, b);
        size_t second = begin, before = SIZE_MAX;
        for (int i = 0; i <= MAX_ROUNDS; i++) {
                memcpy(w->row, w->sum, p->dim * sizeof *w->row);
                dci_km_score(p, w, DCI_FORM_DOT, w->row, begin, end);
                second = partition(p, begin, end, limit);
                if (second == begin || second == end || second == before || i == MAX_ROUNDS)
                        break;
                before = second;
                dci_km_sum(p, w, DCI_F32, p->points, p->dim * sizeof *p->points, p->order + begin, second - begin,
                           p->dim, w->total);
                for (size_t j = 0; j < p->dim; j++)
                        w->row[j] = (float)(w->total[j] / (double)(second - begin));
                dci_km_sum(p, w, DCI_F32, p->points, p->dim * sizeof *p->points, p->order + second, end - second,
                           p->dim, w->total);
                for (size_t j = 0; j < p->dim; j++)
                        w->other[j] = (float)(w->total[j] / (double)(end - second));
                limit = halfway(p, w, w->row, w->other);
        }
        if (second == end)
                second = begin;
        qsort(p->order + begin, second - begin, sizeof *p->order, ascending);
        qsort(p->order + second, end - second, sizeof *p->order, ascending);
        return second;
}

/* All parts of one cluster, each within the limit. */
static void divide_cluster(km_problem *p, km_worker *w, size_t begin, size_t end)
{
        struct {
                size_t begin, end;
                int depth;
        } left[MAX_DEPTH + 2] = {{begin, end, 0}};
        size_t n_left = 1;
        while (n_left > 0) {
                const size_t from = left[n_left - 1].begin, to = left[n_left - 1].end;
                const int depth = left[--n_left].depth;
                if (to - from <= p->limit)
                        continue;
                const size_t second = depth < MAX_DEPTH ? divide(p, w, from, to) : from;
                if (second == from) {
                        cut_by_position(p, from, to, (to - from + p->limit - 1) / p->limit);
                        continue;
                }
                mark(p, second);
                left[n_left].begin = from;
                left[n_left].end = second;
                left[n_left++].depth = depth + 1;
                left[n_left].begin = second;
                left[n_left].end = to;
                left[n_left++].depth = depth + 1;
        }
}

static void divide_task(void *arg, size_t c, size_t worker)
{
        km_problem *p = arg;
        const size_t begin = (size_t)p->starts[c], end = (size_t)p->starts[c + 1];
        if (begin == end)
                return;
        for (size_t i = begin; i < end; i++)
                p->row_scratch[i] = 0.0f;
        mark(p, begin);
        divide_cluster(p, &p->workers[worker], begin, end);
}

/* --- as many parts as there are clusters ------------------------------------------------------------------------ */

/* The parts into p->wishes: where each begins (row), and its size (cluster); returns how many. */
static size_t list_parts(km_problem *p)
{
        size_t n = 0, begin = 0;
        for (size_t i = 1; i <= p->n; i++)
                if (i == p->n || p->row_scratch[i] != 0.0f) {
                        p->wishes[n++] = (km_wish){0.0f, (int32_t)begin, (int32_t)(i - begin)};
                        begin = i;
                }
        return n;
}

int dci_km_by_row(const void *a, const void *b)
{
        const km_wish *x = a, *y = b;
        return x->row < y->row ? -1 : x->row > y->row;
}

static int largest_first(const void *a, const void *b)
{
        const km_wish *x = a, *y = b;
        return x->cluster != y->cluster ? (x->cluster > y->cluster ? -1 : 1) : dci_km_by_row(a, b);
}

/* Divides the largest parts in two until there are k; n >= k, so that there always is one of two rows or more. */
static size_t divide_largest(km_problem *p, size_t n_parts)
{
        while (n_parts < p->k) {
                const size_t n_wanted = p->k - n_parts;
                qsort(p->wishes, n_parts, sizeof *p->wishes, largest_first);
                for (size_t i = 0; i < n_wanted && i < n_parts && p->wishes[i].cluster > 1; i++) {
                        const size_t begin = (size_t)p->wishes[i].row, n = (size_t)p->wishes[i].cluster;
                        const size_t second = divide(p, &p->workers[0], begin, begin + n);
                        mark(p, second == begin ? begin + n / 2 : second);
                }
                n_parts = list_parts(p);
        }
        return n_parts;
}

/* Cluster c is new: until its rows have a mean with a direction, which those without one never have, its centroid is
 * that of the cluster that they come from. */
static void inherit_centroid(km_problem *p, size_t c, size_t from)
{
        memcpy(p->centroids + c * p->dim, p->centroids + from * p->dim, p->dim * sizeof *p->centroids);
        if (p->raw != NULL)
                memcpy(p->raw + c * p->dim, p->raw + from * p->dim, p->dim * sizeof *p->raw);
}

dci_status dci_km_divide(km_problem *p)
{
        DCI_TRY(dci_km_for(p, p->k_first, 64 * p->n * p->dim, divide_task, p));
        const size_t n_parts = divide_largest(p, list_parts(p));
        if (n_parts > p->k) { /* the smallest lose their centroid */
                qsort(p->wishes, n_parts, sizeof *p->wishes, largest_first);
                qsort(p->wishes, p->k, sizeof *p->wishes, dci_km_by_row);
        }
        size_t n_rows = 0;
        for (size_t c = 0; c < p->k; c++) {
                const size_t begin = (size_t)p->wishes[c].row, n = (size_t)p->wishes[c].cluster;
                p->starts[c] = (int32_t)n_rows;
                if (c >= p->k_first) /* labels are still those of the first clusters */
                        inherit_centroid(p, c, (size_t)p->labels[p->order[begin]]);
                memmove(p->order + n_rows, p->order + begin, n * sizeof *p->order);
                n_rows += n;
        }
        p->starts[p->k] = (int32_t)n_rows;
        return DCI_OK;
}
