/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The one parallel region that a public call may open, on whichever executor the context has. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "core/internal.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#ifdef DCI_HAVE_OPENMP
#include <omp.h>
#endif

#include "core/executor.h"

bool dci_openmp_built(void)
{
#ifdef DCI_HAVE_OPENMP
        return true;
#else
        return false;
#endif
}

static int32_t cpu_count(void)
{
#ifdef __linux__
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) == 0)
                return (int32_t)CPU_COUNT(&set);
#endif
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        return n < 1 ? 1 : (int32_t)n;
}

int32_t dci_default_threads(int32_t executor_kind)
{
#ifdef DCI_HAVE_OPENMP
        if (executor_kind == DCI_EXECUTOR_OPENMP)
                return omp_get_max_threads();
#endif
        (void)executor_kind;
        return cpu_count();
}

/* The innermost callback that runs on this thread; what a callback calls on its object is refused. */
static _Thread_local const dci_busy_mark *busy;

void dci_busy_enter(dci_busy_mark *mark, const void *object)
{
        mark->object = object;
        mark->outer = busy;
        busy = mark;
}

void dci_busy_leave(const dci_busy_mark *mark)
{
        busy = mark->outer;
}

bool dci_is_busy(const void *object)
{
        for (const dci_busy_mark *mark = busy; mark != NULL; mark = mark->outer)
                if (mark->object == object)
                        return true;
        return false;
}

typedef struct region_state {
        const dci_region *region;
        atomic_size_t next, done;
        atomic_bool cancelled;
        pthread_t caller;
} region_state;

static void report(region_state *state)
{
        const dci_region *region = state->region;
        if (region->progress == NULL || region->progress->fn == NULL || !pthread_equal(pthread_self(), state->caller))
                return;
        /* Scaled in double, which cannot overflow; the last report says all of the total, which double may not hold. */
        size_t n_done = atomic_load(&state->done), done = region->progress_total;
        if (n_done < region->n_tasks)
                done = (size_t)((double)n_done / (double)region->n_tasks * (double)region->progress_total);
        dci_busy_mark mark;
        dci_busy_enter(&mark, region->object);
        int32_t stop = region->progress->fn(region->progress->ctx, done, region->progress_total);
        dci_busy_leave(&mark);
        if (stop != 0)
                atomic_store(&state->cancelled, true);
}

dci_status dci_progress_tell(const dci_progress *progress, size_t done, size_t total, const void *object)
{
        if (progress == NULL || progress->fn == NULL)
                return DCI_OK;
        dci_busy_mark mark;
        dci_busy_enter(&mark, object);
        const int32_t stop = progress->fn(progress->ctx, done, total);
        dci_busy_leave(&mark);
        if (stop != 0)
                return dci_fail(DCI_ERR_CANCELLED, "the progress callback stopped the call after %zu of %zu", done,
                                total);
        return DCI_OK;
}

static void run_worker(void *arg, size_t worker)
{
        region_state *state = arg;
        const dci_region *region = state->region;
        for (;;) {
                if (atomic_load_explicit(&state->cancelled, memory_order_relaxed))
                        return;
                size_t task = atomic_fetch_add(&state->next, 1);
                if (task >= region->n_tasks)
                        return;
                region->fn(region->arg, task, worker);
                atomic_fetch_add(&state->done, 1);
                report(state);
        }
}

static void run_openmp(region_state *state, size_t n_workers)
{
#ifdef DCI_HAVE_OPENMP
#pragma omp parallel for schedule(static, 1) num_threads((int)n_workers)
        for (size_t worker = 0; worker < n_workers; worker++)
                run_worker(state, worker);
#else
        (void)n_workers;
        run_worker(state, 0);
#endif
}

size_t dci_workers_for(const dci_context *context, size_t n_tasks, size_t work)
{
        size_t n = (size_t)atomic_load(&context->n_threads);
        if (n > n_tasks)
                n = n_tasks;
        if (n > work / DCI_WORK_PER_WORKER)
                n = work / DCI_WORK_PER_WORKER;
        /* Neither runtime survives a fork with its threads, so a child works alone. */
        if (n > 1 && context->executor_kind != DCI_EXECUTOR_CALLER && context->owner_pid != (int64_t)getpid())
                n = 1;
        return n < 1 ? 1 : n;
}

dci_status dci_parallel(const dci_region *region)
{
        dci_context *context = region->context;
        region_state state = {.region = region, .caller = pthread_self()};
        atomic_init(&state.next, 0);
        atomic_init(&state.done, 0);
        atomic_init(&state.cancelled, false);

        /* One worker never enters a runtime: no team is created and nothing is woken. */
        if (region->n_workers <= 1)
                run_worker(&state, 0);
        else if (context->executor_kind == DCI_EXECUTOR_CALLER)
                context->executor.parallel_for(context->executor.ctx, region->n_workers, run_worker, &state);
        else if (context->executor_kind == DCI_EXECUTOR_OPENMP)
                run_openmp(&state, region->n_workers);
        else if (!dci_pool_run(context->pool, region->n_workers, run_worker, &state))
                run_worker(&state, 0);

        /* On the caller's threads the last report may have come too early; the whole is reported again here. */
        if (!atomic_load(&state.cancelled) && region->n_workers > 1)
                report(&state);
        if (atomic_load(&state.cancelled))
                return dci_fail(DCI_ERR_CANCELLED, "the progress callback stopped the call after %zu of %zu pieces",
                                atomic_load(&state.done), region->n_tasks);
        return DCI_OK;
}
