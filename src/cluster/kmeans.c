/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The call: which threads work on which problem, and what went wrong in which. */
#include "core/internal.h"

#include "cluster/kmeans_internal.h"

/* A call on its way. */
typedef struct km_call {
        dci_context *context;
        const dci_kmeans_config *config;
        const dci_kmeans_input *input;
        const dci_kmeans_result *result;
        unsigned char *memory;                   /* n_states x state_bytes */
        size_t n_states, state_bytes, n_workers; /* workers of each state */
        const dci_progress *progress;
        size_t rounds; /* of a problem, at most */
        size_t rounds_room, report_bytes;
        /* what went wrong, by problem */
        struct failure {
                size_t row;
                int kind;
        } * failures;
} km_call;

static size_t saturated(size_t a, size_t b)
{
        size_t product = SIZE_MAX;
        (void)dci_mul(a, b, &product);
        return product;
}

static dci_status run_problem(const km_call *call, size_t number, size_t state, bool alone)
{
        km_problem p;
        dci_km_lay_out(call->context, call->config, call->input, call->n_workers, call->rounds_room,
                       call->memory + state * call->state_bytes, &p);
        p.number = number;
        p.alone = alone;
        p.begin = dci_km_seconds();
        p.report_out = dci_km_report(call->result, call->report_bytes, number);
        p.rows = (const unsigned char *)call->input->rows +
                 number * call->input->problem_ld * dci_dtype_size(call->config->dtype);
        if (!alone) {
                p.progress = call->progress;
                p.rounds_done = number * call->rounds;
                p.rounds_total = call->rounds * call->input->n_problems;
        }
        dci_status status = dci_km_prepare(&p);
        call->failures[number] = (struct failure){p.bad_row, p.bad_kind};
        if (status != DCI_OK || p.bad_kind != KM_BAD_NONE)
                return status;
        DCI_TRY(dci_km_solve(&p));
        DCI_TRY(dci_km_write(&p, call->result));
        return dci_km_report_progress(&p, (number + 1) * call->rounds);
}

static void problem_task(void *arg, size_t number, size_t worker)
{
        const km_call *call = arg;
        run_problem(call, number, worker, true); /* alone, it fails only by its rows */
}

static dci_status refuse_bad_rows(const km_call *call)
{
        for (size_t number = 0; number < call->input->n_problems; number++) {
                const struct failure *bad = &call->failures[number];
                if (bad->kind == KM_BAD_NUMBER)
                        return dci_fail(DCI_ERR_NUMBER,
                                        "row %zu of problem %zu holds NaN or infinity, or its squared norm exceeds %g",
                                        bad->row, number, (double)KM_MAX_NORM2);
                if (bad->kind == KM_BAD_VALUE)
                        return dci_fail(
                                DCI_ERR_NUMBER,
                                "value %zu of problem %zu holds NaN or infinity, or its squared norm exceeds %g",
                                bad->row, number, (double)FLT_MAX);
                if (bad->kind == KM_BAD_DIRECTION)
                        return dci_fail(
                                DCI_ERR_NUMBER,
                                "row %zu of problem %zu has length 0, which has no cosine; zero_rows may keep it",
                                bad->row, number);
        }
        return DCI_OK;
}

static dci_status run_call(km_call *call)
{
        if (call->n_states > 1) {
                const dci_region region = {call->context,
                                           call->input->n_problems,
                                           call->n_states,
                                           problem_task,
                                           call,
                                           call->progress,
                                           call->rounds * call->input->n_problems,
                                           NULL};
                DCI_TRY(dci_parallel(&region));
        }
        for (size_t number = 0; call->n_states == 1 && number < call->input->n_problems; number++) {
                DCI_TRY(run_problem(call, number, 0, false));
                if (call->failures[number].kind != KM_BAD_NONE)
                        return refuse_bad_rows(call);
        }
        return refuse_bad_rows(call);
}

/* Problems side by side, a thread each, if no thread is idle for long; else threads share every problem. */
static void divide(km_call *call)
{
        const dci_kmeans_config *config = call->config;
        const size_t work =
                saturated(saturated(call->input->n, config->dim), saturated(config->n_clusters, call->rounds));
        const size_t n_problems = call->input->n_problems;
        const size_t n_workers = dci_workers_for(call->context, SIZE_MAX, saturated(work / 8, n_problems));
        const bool side_by_side = n_workers > 1 && n_problems >= n_workers &&
                                  (n_problems % n_workers == 0 || n_problems >= 4 * n_workers ||
                                   work / 8 < DCI_WORK_PER_WORKER * n_workers);
        call->n_states = side_by_side ? n_workers : 1;
        call->n_workers = side_by_side ? 1 : n_workers;
}

/* Rounds that a report has room for, and that there may be. */
static size_t rounds_room(const dci_kmeans_config *config, const dci_kmeans_input *input,
                          const dci_kmeans_result *result)
{
        const size_t most = config->segment_rows > 0 ? config->n_iter_global : config->n_iter;
        size_t room = 0;
        for (size_t p = 0; result->reports != NULL && p < input->n_problems; p++) {
                const dci_kmeans_report *report = dci_km_report(result, result->reports->struct_size, p);
                room = report->rounds != NULL && report->rounds_room > room ? report->rounds_room : room;
        }
        return room < most ? room : most;
}

dci_status dci_kmeans(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                      const dci_progress *progress, const dci_kmeans_result *result)
{
        dci_kmeans_config resolved;
        dci_kmeans_input checked;
        if (context == NULL)
                return dci_fail(DCI_ERR_INVALID, "context is NULL");
        DCI_TRY(dci_km_resolve(config, input, result, true, &resolved, &checked));
        km_call call = {
                .context = context, .config = &resolved, .input = &checked, .result = result, .progress = progress};
        const size_t per_run = resolved.segment_rows > 0
                                       ? saturated(resolved.n_iter, checked.n / resolved.segment_rows + 1)
                                       : resolved.n_iter;
        size_t run_rounds = SIZE_MAX;
        if (dci_add(per_run, resolved.n_iter_global, &run_rounds) && dci_add(run_rounds, 1, &run_rounds))
                call.rounds = saturated(resolved.n_redo, run_rounds);
        else
                call.rounds = SIZE_MAX;
        /* What progress counts must not overflow over all problems. */
        if (call.rounds > SIZE_MAX / 2 / checked.n_problems)
                call.rounds = SIZE_MAX / 2 / checked.n_problems;
        call.rounds_room = rounds_room(&resolved, &checked, result);
        call.report_bytes = result->reports == NULL ? 0 : result->reports->struct_size;
        divide(&call);
        if (!dci_km_bytes(context, &resolved, &checked, call.n_workers, call.rounds_room, &call.state_bytes))
                return dci_fail(DCI_ERR_LIMIT, "%zu rows of %zu elements in %zu clusters exceed the address space",
                                checked.n, resolved.dim, resolved.n_clusters);
        call.memory = dci_alloc(context, call.n_states, call.state_bytes);
        call.failures = dci_calloc(context, checked.n_problems, sizeof *call.failures);
        dci_status status = call.memory == NULL || call.failures == NULL ? DCI_ERR_MEMORY : run_call(&call);
        dci_free(context, call.failures, checked.n_problems, sizeof *call.failures);
        dci_free(context, call.memory, call.n_states, call.state_bytes);
        return status;
}
