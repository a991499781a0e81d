/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The runs of a problem: rounds within segments, rounds over all rows, and which run is kept. */
#include "core/internal.h"

#include <string.h>

#include "cluster/kmeans_internal.h"

/* Assignments after a repair that follows the last round. */
#define LAST_TRIES 4

static void record(km_problem *p, size_t round, const km_assigned *assigned)
{
        if (round >= p->rounds_room)
                return;
        p->rounds[round] = (dci_kmeans_round){.objective = assigned->objective,
                                              .seconds = dci_km_seconds() - p->begin,
                                              .n_moved = assigned->n_moved,
                                              .n_empty = assigned->n_empty};
}

static bool changed_little(double now, double before, double tolerance)
{
        return tolerance > 0.0 && fabs(now - before) <= tolerance * fabs(before);
}

/* At most n_iter rounds. *out_settled: the labels are those of the centroids that are left. */
static dci_status run_rounds(km_view *view, size_t n_iter, bool whole, size_t *out_rounds, bool *out_settled)
{
        km_problem *p = view->problem;
        double before = 0.0;
        bool repaired = false;
        *out_settled = false;
        *out_rounds = 0;
        for (size_t i = 0; i < n_iter; i++) {
                km_assigned assigned;
                DCI_TRY(dci_km_assign(view, &assigned));
                const bool stable = i > 0 && assigned.n_moved == 0 && !repaired;
                const size_t n_repaired = assigned.n_empty > 0 && !stable ? dci_km_repair(view) : 0;
                p->report.n_repaired += n_repaired;
                repaired = n_repaired > 0;
                DCI_TRY(dci_km_add_up(view, &assigned.objective));
                if (whole)
                        record(p, i, &assigned);
                ++*out_rounds;
                DCI_TRY(dci_km_report_progress(p, p->rounds_done + 1));
                if (stable ||
                    (i > 0 && !repaired && changed_little(assigned.objective, before, p->config->tolerance))) {
                        p->report.stop = stable ? DCI_KMEANS_STOP_STABLE : DCI_KMEANS_STOP_TOLERANCE;
                        *out_settled = true;
                        return DCI_OK;
                }
                before = assigned.objective;
                dci_km_move(view);
        }
        p->report.stop = DCI_KMEANS_STOP_ROUNDS;
        return DCI_OK;
}

/* The segments' rounds; then all rows and all clusters are one view. */
static dci_status run_segments(km_problem *p, size_t redo, size_t *out_rounds)
{
        /* Blocks of packed points are multiplied whole. */
        const size_t asked = p->config->segment_rows < p->n ? p->config->segment_rows : p->n;
        const size_t size = (asked + DCI_NEAREST_BLOCK - 1) / DCI_NEAREST_BLOCK * DCI_NEAREST_BLOCK;
        size_t segment = 0;
        *out_rounds = 0;
        for (size_t first = 0; first < p->n; first += size) {
                const size_t n = p->n - first < size ? p->n - first : size;
                const size_t c = dci_km_share(p->k_first, first, p->n), end = dci_km_share(p->k_first, first + n, p->n);
                km_view view = {.problem = p, .first_row = first, .n = n, .first_cluster = c, .k = end - c};
                size_t n_rounds = 0;
                bool settled;
                if (view.k == 0) /* its rows are for the clusters of others */
                        continue;
                DCI_TRY(dci_km_start(&view, redo, segment++));
                DCI_TRY(run_rounds(&view, p->config->n_iter, false, &n_rounds, &settled));
                *out_rounds = n_rounds > *out_rounds ? n_rounds : *out_rounds;
        }
        return DCI_OK;
}

/* Labels of the centroids as they are; clusters left empty get another chance. */
static dci_status assign_last(km_view *view)
{
        km_problem *p = view->problem;
        for (int i = 0;; i++) {
                km_assigned assigned;
                dci_status status = dci_km_assign(view, &assigned);
                if (status != DCI_OK || assigned.n_empty == 0 || i == LAST_TRIES || p->config->n_iter == 0)
                        return status;
                /* The labels of a repair are not what is returned: every row goes to its nearest centroid. */
                const size_t n_repaired = dci_km_repair(view);
                if (n_repaired == 0)
                        return DCI_OK;
                p->report.n_repaired += n_repaired;
        }
}

/* Rounds after division, in which no cluster has more rows than the capacity; more of them change little. */
#define BALANCED_ROUNDS 3

static dci_status balance(km_view *view)
{
        km_problem *p = view->problem;
        km_assigned assigned;
        if (p->config->n_iter + p->config->n_iter_global > 0) {
                DCI_TRY(dci_km_assign(view, &assigned));
                DCI_TRY(dci_km_divide(p));
                view->k = p->k;
                DCI_TRY(dci_km_add_up(view, NULL));
                dci_km_move(view);
                for (int i = 0; i < BALANCED_ROUNDS; i++) {
                        DCI_TRY(dci_km_assign_balanced(view, NULL));
                        DCI_TRY(dci_km_add_up(view, NULL));
                        dci_km_move(view);
                }
        }
        DCI_TRY(dci_km_assign_balanced(view, &p->report.objective_free));
        return dci_km_measure(view, &p->report.objective);
}

static dci_status run_once(km_problem *p, size_t redo)
{
        const bool segments = p->config->segment_rows > 0;
        km_view all = {.problem = p, .n = p->n, .k = p->k_first};
        size_t local_rounds = 0, n_rounds = 0;
        bool settled = false;
        p->report = (dci_kmeans_report){.stop = DCI_KMEANS_STOP_ROUNDS, .best_redo = (int32_t)redo};
        for (size_t i = 0; i < p->n; i++)
                p->labels[i] = -1;
        dci_status status = segments ? run_segments(p, redo, &local_rounds) : dci_km_start(&all, redo, 0);
        if (status == DCI_OK)
                status = run_rounds(&all, segments ? p->config->n_iter_global : p->config->n_iter, true, &n_rounds,
                                    &settled);
        if (status == DCI_OK && p->limit > 0)
                status = balance(&all);
        else if (status == DCI_OK && !settled)
                status = assign_last(&all);
        if (status == DCI_OK && p->limit == 0) {
                status = dci_km_measure(&all, &p->report.objective);
                p->report.objective_free = p->report.objective;
        }
        p->report.n_rounds = local_rounds + n_rounds;
        p->report.n_recorded = n_rounds < p->rounds_room ? n_rounds : p->rounds_room;
        return status;
}

static bool better(const km_problem *p, double a, double b)
{
        return p->config->metric == DCI_METRIC_L2 ? a < b : a > b;
}

static void copy_state(km_problem *p, bool keep)
{
        const size_t floats = p->k * p->dim;
        const struct {
                void *present, *best;
                size_t bytes;
        } parts[] = {{p->centroids, p->best_centroids, floats * sizeof(float)},
                     {p->raw, p->best_raw, p->raw == NULL ? 0 : floats * sizeof(float)},
                     {p->labels, p->best_labels, p->n * sizeof(int32_t)},
                     {p->rounds, p->best_rounds, p->rounds_room * sizeof(dci_kmeans_round)}};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                if (parts[i].bytes > 0)
                        memcpy(keep ? parts[i].best : parts[i].present, keep ? parts[i].present : parts[i].best,
                               parts[i].bytes);
}

dci_status dci_km_solve(km_problem *p)
{
        dci_kmeans_report best = p->report;
        km_view all = {.problem = p, .n = p->n, .k = p->k};
        for (size_t redo = 0; redo < p->config->n_redo; redo++) {
                DCI_TRY(run_once(p, redo));
                if (redo > 0 && !better(p, p->report.objective, best.objective))
                        continue;
                best = p->report;
                if (p->config->n_redo > 1)
                        copy_state(p, true);
        }
        p->report = best;
        if (p->config->n_redo > 1) {
                copy_state(p, false);
                dci_km_sort(&all);
        }
        for (size_t c = 0; c < p->k; c++) {
                const size_t size = dci_km_size(p, c);
                p->report.largest = size > p->report.largest ? size : p->report.largest;
                p->report.n_empty += size == 0;
        }
        p->report.seconds = dci_km_seconds() - p->begin;
        return DCI_OK;
}
