/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* One problem of k-means while it is worked on, and the steps of a round.
 *
 * The space of the steps: rows become points p = x - m, x the row (minus its problem's mean if that is wanted; of unit
 * length under COSINE) and m nearly the mean of the x. Nearest by any metric is then the highest p . c - offset(c) for
 * centroids c = C - m:
 *   L2, COSINE   offset |c|^2 / 2: the nearest point, which on the unit sphere is that of the highest cosine
 *   IP           offset -m . c: x . C = p . c + m . c + what does not depend on C
 * Small numbers make the error bounds of products small, so that few labels need the canonical kernel. Under L2 rows
 * may still be far from the origin in proportion to their distances: there |p - c|^2 decides, and m is 0 if it is far
 * from the rows. */
#ifndef DCI_CLUSTER_KMEANS_INTERNAL_H
#define DCI_CLUSTER_KMEANS_INTERNAL_H

#include "core/internal.h"

#include <float.h>
#include <math.h>

#include "dci/kmeans.h"
#include "simd/nearest.h"

#define KM_TASK_ROWS ((size_t)256) /* a multiple of DCI_NEAREST_BLOCK; also the rows that are summed in binary32 */

/* Squared lengths of rows: after up to two means have been taken away they still stay below FLT_MAX / 8. */
#define KM_MAX_NORM2 (FLT_MAX / 256.0f)
#define KM_MIN_NORM2 0x1p-80f    /* under COSINE: shorter rows have no direction */
#define KM_NO_DIRECTION INFINITY /* `own` of such a row */

/* Why a row was refused. */
enum { KM_BAD_NONE = 0, KM_BAD_NUMBER = 1, KM_BAD_DIRECTION = 2, KM_BAD_VALUE = 3 };

/* Scratch of one worker. */
typedef struct km_worker {
        void *nearest;
        const void **pointers;   /* KM_TASK_ROWS */
        float *sum, *row;        /* one row of the widest kind each */
        float *other, *gathered; /* with a capacity: one row; KM_TASK_ROWS points */
        double *total;
} km_worker;

/* A row, and what it scored: mostly how badly it fits its cluster. */
typedef struct km_fit {
        float value;
        int32_t row;
} km_fit;

/* A row, how badly it fits the cluster that it would go to, and that cluster. */
typedef struct km_wish {
        float value;
        int32_t row, cluster;
} km_wish;

typedef struct km_problem {
        dci_context *context;
        const dci_kmeans_config *config;
        const dci_kmeans_input *input;
        const dci_kernels *kernels;
        size_t n, dim, k, n_tasks; /* tasks: of KM_TASK_ROWS rows */
        size_t number;             /* of the problem in the call */
        bool alone;                /* works on one thread, as a task of a region over problems */
        size_t n_workers;
        km_worker *workers;

        /* Prepared once. */
        const unsigned char *rows; /* of the caller */
        float *points;             /* n x dim */
        float *own;                /* n: IP: p . m + m . m; COSINE: KM_NO_DIRECTION, or 0 */
        float *mean, *middle;      /* dim: what is subtracted on demand, and m */
        float middle_norm2;        /* m . m */
        float *task_sums;          /* n_tasks x dim: of the rows of a task */
        double *task_value;        /* n_tasks */
        double *block_norm2;       /* L2: of each DCI_NEAREST_BLOCK rows, their squared lengths added up */
        size_t *task_count, *task_bad;
        dci_nearest_points packed;
        size_t bad_row;
        int bad_kind;

        /* Changing from round to round. */
        float *centroids; /* k x dim, in the space of points */
        float *raw;       /* DCI_CENTROID_MEAN: k x dim, the means that centroids are the directions of; else NULL */
        size_t limit, k_first; /* capacity, 0 where it binds nothing; clusters of the rounds before they are divided */
        km_wish *wishes;       /* limit: n */
        int32_t *sizes;        /* limit: k */
        void *nearest_memory;
        int32_t *labels;         /* n */
        float *row_scratch;      /* n: k-means++: squared distances of rows; division: 1 where a part begins, else 0 */
        float *next, *next_raw;  /* where centroids go; as raw */
        double *cluster_value;   /* k */
        int32_t *order, *starts; /* n and k + 1: rows by label, ascending within one */
        km_fit *fits;            /* n: scratch of what ranks and divides rows */

        /* The best run so far, if there are several. */
        float *best_centroids, *best_raw;
        int32_t *best_labels;
        dci_kmeans_report report;
        dci_kmeans_report *report_out;          /* the caller's, or NULL */
        dci_kmeans_round *rounds, *best_rounds; /* rounds_room each */
        size_t rounds_room;

        double begin;                 /* seconds of the monotonic clock */
        const dci_progress *progress; /* NULL if alone or not asked for */
        size_t rounds_done, rounds_total;
} km_problem;

/* Some rows of a problem and the clusters that they may belong to: all, or a segment and its share. Labels count from
 * the problem's first cluster. */
typedef struct km_view {
        km_problem *problem;
        size_t first_row, n, first_cluster, k;
        dci_nearest nearest;
} km_view;

/* Tasks that n rows are - of a problem, a view or a list -, and the rows of one: the last may have fewer. */
DCI_INLINE size_t dci_km_tasks(size_t n)
{
        return (n + KM_TASK_ROWS - 1) / KM_TASK_ROWS;
}

DCI_INLINE size_t dci_km_rows_of_task(size_t n, size_t task)
{
        const size_t left = n - task * KM_TASK_ROWS;
        return left < KM_TASK_ROWS ? left : KM_TASK_ROWS;
}

/* Report of a problem; the caller's structs may be longer than ours. */
DCI_INLINE dci_kmeans_report *dci_km_report(const dci_kmeans_result *result, size_t report_bytes, size_t problem)
{
        return result->reports == NULL
                       ? NULL
                       : (dci_kmeans_report *)(void *)((unsigned char *)result->reports + problem * report_bytes);
}

/* --- kmeans_config.c ------------------------------------------------------------------------------------------- */

/* Copies of what the caller gave, defaults filled in, everything but the rows checked; those and what else is read may
 * be missing unless `reads`. */
dci_status dci_km_resolve(const dci_kmeans_config *config, const dci_kmeans_input *input,
                          const dci_kmeans_result *result, bool reads, dci_kmeans_config *out_config,
                          dci_kmeans_input *out_input);

/* --- kmeans_problem.c: memory, threads, clock ------------------------------------------------------------------- */

/* Bytes of a problem at work; false on overflow. */
bool dci_km_bytes(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                  size_t n_workers, size_t rounds_room, size_t *out_bytes);
void dci_km_lay_out(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                    size_t n_workers, size_t rounds_room, void *memory, km_problem *out);

/* fn(arg, task, worker) for all tasks: on the problem's one thread, or in a region. */
dci_status dci_km_for(km_problem *problem, size_t n_tasks, size_t work, dci_task_fn fn, void *arg);
double dci_km_seconds(void);
/* So many rounds of the call are done; DCI_ERR_CANCELLED if the caller has enough. */
dci_status dci_km_report_progress(km_problem *problem, size_t rounds_done);

/* Where row i of the caller's begins. */
DCI_INLINE const void *dci_km_row(const km_problem *problem, size_t i)
{
        return problem->rows + i * problem->input->ld * dci_dtype_size(problem->config->dtype);
}

/* Rows of a sorted cluster. */
DCI_INLINE size_t dci_km_size(const km_problem *problem, size_t c)
{
        return (size_t)(problem->starts[c + 1] - problem->starts[c]);
}

/* Of k clusters, those that the first `rows` of n rows have: a segment's are those between two such numbers. */
DCI_INLINE size_t dci_km_share(size_t k, size_t rows, size_t n)
{
        return (size_t)((uint64_t)k * rows / n);
}

DCI_INLINE bool dci_km_cosine(const km_problem *problem)
{
        return problem->config->metric == DCI_METRIC_COSINE;
}

/* --- kmeans_prepare.c ------------------------------------------------------------------------------------------- */

/* Points of the problem's rows. A bad row is reported in bad_row and bad_kind. */
dci_status dci_km_prepare(km_problem *problem);
/* One centroid from the space of rows into that of points: under COSINE its direction. false: none, nothing is
 * written. */
bool dci_km_put_centroid(const km_problem *problem, const float *in_rows, float *out_in_points);

/* --- kmeans_init.c ---------------------------------------------------------------------------------------------- */

/* The rows, ascending, that the k <= n clusters of a problem begin at by INIT_RANDOM, in its first run, if all n rows
 * have a direction: for callers that cluster on a device (src/offload). segment_rows: 0, or a multiple of
 * DCI_NEAREST_BLOCK. */
void dci_km_draw(uint64_t seed, size_t problem, size_t n, size_t k, size_t segment_rows, int32_t *out);
/* The raw mean of the problem's cluster c, if there are such, is this row, minus the problem's mean. */
void dci_km_put_raw(km_problem *problem, size_t c, size_t row);
/* The first centroids of run `redo`. */
dci_status dci_km_start(km_view *view, size_t redo, size_t segment);

/* --- kmeans_step.c ---------------------------------------------------------------------------------------------- */

typedef struct km_assigned {
        double objective;
        size_t n_moved, n_empty;
} km_assigned;

/* The view's centroids made ready to be compared with. */
void dci_km_ready(km_view *view);
/* Every row to the nearest centroid; sorted. The objective is not known yet. */
dci_status dci_km_assign(km_view *view, km_assigned *out);
/* order and starts from labels. */
void dci_km_sort(km_view *view);
/* fits[i] for places i of order: the row there, and form(query, its point). */
void dci_km_score(const km_problem *problem, km_worker *worker, int form, const float *query, size_t begin, size_t end);
/* Gives empty clusters a row each, and sorts; returns how many it could. Sorted before. */
size_t dci_km_repair(km_view *view);
/* Adds up the rows of every cluster: the objective of the present centroids (or NULL), and the next ones. */
dci_status dci_km_add_up(km_view *view, double *out_objective);
/* There they go. */
void dci_km_move(km_view *view);
/* The objective, row by row: more exact than from sums of rows. Sorted before. */
dci_status dci_km_measure(km_view *view, double *out_objective);
/* Sum of rows in ascending order of place: binary32 within KM_TASK_ROWS, binary64 beyond. rows(i) are base + order[i] *
 * stride. */
void dci_km_sum(const km_problem *problem, km_worker *worker, dci_dtype dtype, const void *base, size_t stride,
                const int32_t *order, size_t n, size_t dim, double *out);

/* --- kmeans_divide.c -------------------------------------------------------------------------------------------- */

/* From k_first sorted clusters to k, none of which has more rows than the limit; in order and starts, where the rows of
 * parts that are left over are missing. Labels are no longer those of the order. */
dci_status dci_km_divide(km_problem *problem);
/* For qsort: wishes by row; parts, whose row is their first place, by place. */
int dci_km_by_row(const void *a, const void *b);

/* --- kmeans_balance.c ------------------------------------------------------------------------------------------- */

/* Every row to a cluster with room; sorted. *out_free, unless NULL: the objective with nearest centroids. */
dci_status dci_km_assign_balanced(km_view *view, double *out_free);

/* --- kmeans_run.c ----------------------------------------------------------------------------------------------- */

/* All runs of a problem; the best one's labels and centroids stay, sorted, and its report. */
dci_status dci_km_solve(km_problem *problem);

/* --- kmeans_output.c -------------------------------------------------------------------------------------------- */

dci_status dci_km_write(km_problem *problem, const dci_kmeans_result *result);

#endif
