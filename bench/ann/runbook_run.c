/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include <string.h>

#include "bench/ann/runbook.h"
#include "bench/common/report.h"

typedef struct play {
        const runbook_job *job;
        dci_index *index; /* measured */
        dci_index *exact; /* FLAT, of the same rows as the base holds them */
        size_t live;
        int64_t *row_of;        /* max_pts: the base's row of each id, -1: not there */
        int64_t *ids;           /* max_pts: 0, 1, .. */
        double *seconds;        /* of the calls of one step; max_pts at most */
        int64_t *found, *truth; /* n_queries x k */
        bench_progress progress;
} play;

static const void *rows_at(const play *p, size_t row)
{
        const bench_rows *base = &p->job->dataset->base;
        return (const char *)base->data + row * base->dim * dci_dtype_size(base->dtype);
}

/* --- changes -------------------------------------------------------------------------------------------------------------- */

/* The calls that n ids of a step need; a replacement is a removal and an insertion. */
static dci_status change(const play *p, dci_index *index, const runbook_step *step, size_t first, size_t n)
{
        if (step->operation != RUNBOOK_INSERT)
                DCI_TRY(dci_index_remove(index, n, p->ids + first));
        if (step->operation != RUNBOOK_DELETE)
                DCI_TRY(dci_index_add(index, n, rows_at(p, step->first_row + (first - step->start)),
                                      p->job->dataset->base.dim, p->ids + first, NULL));
        return DCI_OK;
}

static dci_status play_change(play *p, const runbook_step *step, runbook_result *result)
{
        const size_t batch = p->job->options->batch;
        for (size_t first = step->start; first < step->end; first += batch) {
                const size_t n = step->end - first < batch ? step->end - first : batch;
                const double start = bench_seconds();
                dci_status status = change(p, p->index, step, first, n);
                p->seconds[result->calls] = bench_seconds() - start;
                result->seconds += p->seconds[result->calls++];
                if (status == DCI_OK)
                        status = change(p, p->exact, step, first, n);
                if (status != DCI_OK)
                        return bench_fail_about("base", status);
                for (size_t id = first; id < first + n; id++)
                        p->row_of[id] = step->operation == RUNBOOK_DELETE
                                                ? -1
                                                : (int64_t)(step->first_row + (id - step->start));
                bench_progress_step(&p->progress, first + n - step->start, step->end - step->start);
        }
        const size_t n = step->end - step->start;
        p->live += step->operation == RUNBOOK_INSERT ? n : 0;
        p->live -= step->operation == RUNBOOK_DELETE ? n : 0;
        result->latency = bench_latency_of(p->seconds, result->calls);
        return DCI_OK;
}

/* --- searches ------------------------------------------------------------------------------------------------------------- */

static dci_status judge(play *p, runbook_result *result)
{
        const runbook_job *job = p->job;
        const bench_rows *queries = &job->dataset->queries;
        const bench_found within = {&job->dataset->base, p->row_of, job->book->max_pts, job->metric, 0};
        result->recall = -1;
        if (p->live == 0)
                return DCI_OK;
        DCI_TRY(dci_index_search(p->exact, queries->n, queries->data, queries->dim, job->k, NULL, p->truth, NULL));
        return bench_recall(job->helper, &within, queries, job->k, job->k < p->live ? job->k : p->live, p->truth,
                            p->found, &result->recall);
}

static dci_status play_search(play *p, runbook_result *result)
{
        const runbook_job *job = p->job;
        const bench_rows *queries = &job->dataset->queries;
        const size_t per_call = job->options->mode == BENCH_MODE_ONE ? 1 : queries->n;
        const bench_effort effort = bench_effort_at(&job->options->index, job->kind, 0);
        dci_search_params params;
        bench_effort_params(&effort, &params);
        const double start = bench_seconds();
        for (size_t i = 0; i < queries->n; i += per_call) {
                const void *query = (const char *)queries->data + i * queries->dim * dci_dtype_size(queries->dtype);
                dci_status status = dci_index_search(p->index, per_call, query, queries->dim, job->k, &params,
                                                     p->found + i * job->k, NULL);
                if (status != DCI_OK)
                        return bench_fail_about("queries", status);
                result->calls++;
        }
        result->seconds = bench_seconds() - start;
        return judge(p, result);
}

/* --- the whole ------------------------------------------------------------------------------------------------------------- */

static dci_status play_step(play *p, size_t number, runbook_result *result)
{
        const runbook_step *step = &p->job->book->steps[number];
        dci_memory_report memory;
        char label[64];
        memset(result, 0, sizeof *result);
        result->step = *step;
        snprintf(label, sizeof label, "step %zu of %zu, %s,", number + 1, p->job->book->n_steps,
                 runbook_operation_name(step->operation));
        bench_progress_begin(&p->progress, label);
        dci_status status = step->operation == RUNBOOK_SEARCH ? play_search(p, result) : play_change(p, step, result);
        bench_progress_end(&p->progress);
        dci_memory_report_init(&memory, sizeof memory);
        if (status == DCI_OK)
                status = dci_index_memory(p->index, &memory);
        result->bytes = memory.total;
        result->live = p->live;
        if (status == DCI_OK && dci_index_count(p->index) != p->live)
                status = dci_fail(BENCH_ERR_RUN, "step %zu: the index holds %zu rows, the runbook says %zu", number + 1,
                                  dci_index_count(p->index), p->live);
        return status;
}

static dci_status open_play(const runbook_job *job, play *p)
{
        const bench_dataset *data = job->dataset;
        const size_t max_pts = job->book->max_pts, n_queries = data->queries.n;
        bench_index_options exact = job->options->index;
        memset(p, 0, sizeof *p);
        p->job = job;
        exact.rows = 0;
        p->row_of = dci_alloc(job->helper, max_pts, sizeof *p->row_of);
        p->ids = dci_alloc(job->helper, max_pts, sizeof *p->ids);
        p->seconds = dci_alloc(job->helper, max_pts, sizeof *p->seconds);
        p->found = dci_alloc(job->helper, n_queries, job->k * sizeof *p->found);
        p->truth = dci_alloc(job->helper, n_queries, job->k * sizeof *p->truth);
        if (p->row_of == NULL || p->ids == NULL || p->seconds == NULL || p->found == NULL || p->truth == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < max_pts; i++) {
                p->row_of[i] = -1;
                p->ids[i] = (int64_t)i;
        }
        DCI_TRY(bench_index_create(job->measured, &job->options->index, job->kind, job->metric, data->base.dim,
                                   data->base.dtype, data->queries.dtype, &p->index));
        return bench_index_create(job->helper, &exact, DCI_KIND_FLAT, job->metric, data->base.dim, data->base.dtype,
                                  data->queries.dtype, &p->exact);
}

static void close_play(play *p)
{
        const runbook_job *job = p->job;
        const size_t max_pts = job->book->max_pts, n_queries = job->dataset->queries.n;
        dci_index_destroy(p->index);
        dci_index_destroy(p->exact);
        dci_free(job->helper, p->row_of, max_pts, sizeof *p->row_of);
        dci_free(job->helper, p->ids, max_pts, sizeof *p->ids);
        dci_free(job->helper, p->seconds, max_pts, sizeof *p->seconds);
        dci_free(job->helper, p->found, n_queries, job->k * sizeof *p->found);
        dci_free(job->helper, p->truth, n_queries, job->k * sizeof *p->truth);
}

dci_status runbook_play(const runbook_job *job, runbook_result *results, dci_tree_stats *out_tree)
{
        play p;
        dci_status status = open_play(job, &p);
        for (size_t i = 0; status == DCI_OK && i < job->book->n_steps; i++)
                status = play_step(&p, i, &results[i]);
        *out_tree = bench_tree_of(p.index);
        close_play(&p);
        return status;
}
