/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The lock of a dci_kv, the threads of a call, and the workers that do what a prompt leaves to do. */
#include "core/internal.h"

#include <unistd.h>

#include "kv/memory.h"
#include "kv/worker.h"

/* Whose jobs: the order of a layer, the prompts of a sequence, or with neither all. */
typedef struct jobs_of {
        const dci_kv_sequence *sequence;
        const dci_kv_layer *layer;
} jobs_of;

/* A job is an order where the layer's prompt is done. */
static bool is_one(const dci_kv_layer *job, const jobs_of *of)
{
        if (of->layer != NULL)
                return job == of->layer;
        return of->sequence == NULL || (job->sequence == of->sequence && job->prompt != DCI_KV_PROMPT_DONE);
}

/* One of their units, or NULL. Under jobs_lock. */
static dci_kv_layer *take_unit(dci_kv *kv, const jobs_of *of, size_t *out_head)
{
        for (dci_kv_layer *layer = kv->jobs; layer != NULL; layer = layer->next_job)
                if (layer->next_head < kv->config.n_kv_heads && is_one(layer, of)) {
                        *out_head = layer->next_head++;
                        layer->n_running++;
                        return layer;
                }
        return NULL;
}

static void unlink_job(dci_kv *kv, dci_kv_layer *layer)
{
        dci_kv_layer **at = &kv->jobs;
        kv->last_job = NULL;
        while (*at != NULL) {
                if (*at == layer)
                        *at = layer->next_job;
                if (*at != NULL) {
                        kv->last_job = *at;
                        at = &(*at)->next_job;
                }
        }
        layer->next_job = NULL;
}

static void drop_observed(dci_kv *kv, dci_kv_layer *layer)
{
        float *observed = layer->observed;
        layer->observed = NULL; /* first: a child of fork must not free what its parent's worker was about to free */
        dci_kv_free(kv, observed, layer->observed_bytes);
        layer->n_observed = layer->observed_bytes = 0;
}

static void do_unit(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t area)
{
        if (layer->prompt == DCI_KV_PROMPT_DONE)
                layer->reorder->build(kv, layer, head, area);
        else
                kv->former.build(kv, layer, head, area);
}

/* Under jobs_lock. */
static void finish_unit(dci_kv *kv, dci_kv_layer *layer)
{
        if (--layer->n_running > 0 || layer->next_head < kv->config.n_kv_heads)
                return;
        if (layer->prompt == DCI_KV_PROMPT_DONE) {
                layer->reorder->done = true;
        } else {
                kv->former.built(kv, layer);
                /* From here on a child of fork goes on with this layer; up to here it begins again, and needs the
                 * queries. */
                layer->prompt = DCI_KV_PROMPT_DONE;
                drop_observed(kv, layer);
        }
        unlink_job(kv, layer);
        pthread_cond_broadcast(&kv->done);
}

/* --- areas of scratch --------------------------------------------------------------------------------------------- */

dci_status dci_kv_areas_init(dci_kv *kv, size_t n)
{
        DCI_TRY(dci_kv_alloc(kv, 2 * n * sizeof *kv->free_areas, (void **)&kv->free_areas));
        kv->held_areas = kv->free_areas + n;
        dci_kv_areas_limit(kv, n);
        return DCI_OK;
}

static void free_all_areas(dci_kv *kv)
{
        for (size_t i = 0; i < kv->n_areas; i++)
                kv->free_areas[i] = kv->n_areas - 1 - i;
        kv->n_free_areas = kv->n_areas;
}

void dci_kv_areas_limit(dci_kv *kv, size_t n)
{
        pthread_mutex_lock(&kv->jobs_lock);
        kv->n_areas = n;
        free_all_areas(kv);
        pthread_mutex_unlock(&kv->jobs_lock);
}

/* Under jobs_lock. */
static void release_area(dci_kv *kv, size_t area)
{
        kv->free_areas[kv->n_free_areas++] = area;
        if (kv->n_free_areas == 1)
                pthread_cond_broadcast(&kv->done);
}

/* Areas of the current call: at most n of those that are free. Under jobs_lock. */
static size_t hold_areas(dci_kv *kv, size_t n)
{
        size_t held = 0;
        while (held < n && kv->n_free_areas > 0)
                kv->held_areas[held++] = kv->free_areas[--kv->n_free_areas];
        return held;
}

static void release_held(dci_kv *kv, size_t n)
{
        for (size_t i = 0; i < n; i++)
                release_area(kv, kv->held_areas[i]);
        if (n > 0 && kv->jobs != NULL)
                pthread_cond_broadcast(&kv->work); /* workers may have found none */
}

typedef struct building {
        const size_t *areas; /* by worker of the region */
        dci_task_fn fn;
        void *arg;
} building;

static void build_task(void *arg, size_t task, size_t worker)
{
        const building *b = arg;
        b->fn(b->arg, task, b->areas[worker]);
}

dci_status dci_kv_spread_build(dci_kv *kv, size_t n_tasks, size_t work, dci_task_fn fn, void *arg)
{
        building b = {kv->held_areas, fn, arg};
        pthread_mutex_lock(&kv->jobs_lock);
        while (kv->n_free_areas == 0)
                pthread_cond_wait(&kv->done, &kv->jobs_lock);
        const size_t n = hold_areas(kv, dci_workers_for(kv->context, n_tasks, work));
        pthread_mutex_unlock(&kv->jobs_lock);
        const dci_status status = dci_parallel(
                &(dci_region){.context = kv->context, .n_tasks = n_tasks, .n_workers = n, .fn = build_task, .arg = &b});
        pthread_mutex_lock(&kv->jobs_lock);
        release_held(kv, n);
        pthread_mutex_unlock(&kv->jobs_lock);
        return status;
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

static void *work(void *arg)
{
        dci_kv *kv = arg;
        const jobs_of all = {NULL, NULL};
        size_t head;
        pthread_mutex_lock(&kv->jobs_lock);
        while (!kv->stop) {
                const bool may = kv->n_working < kv->max_working && kv->n_free_areas > 0;
                dci_kv_layer *layer = may ? take_unit(kv, &all, &head) : NULL;
                if (layer == NULL) {
                        pthread_cond_wait(&kv->work, &kv->jobs_lock);
                        continue;
                }
                const size_t area = kv->free_areas[--kv->n_free_areas];
                kv->n_working++;
                pthread_mutex_unlock(&kv->jobs_lock);
                do_unit(kv, layer, head, area);
                pthread_mutex_lock(&kv->jobs_lock);
                kv->n_working--;
                release_area(kv, area);
                finish_unit(kv, layer);
        }
        pthread_mutex_unlock(&kv->jobs_lock);
        return NULL;
}

/* The most workers that may be on units at a time. The threads of a call that are the caller's own are not for the
 * background. */
static size_t max_working(const dci_kv *kv)
{
        const size_t threads = kv->context->executor_kind == DCI_EXECUTOR_CALLER
                                       ? 1
                                       : (size_t)atomic_load(&kv->context->n_threads),
                     most = (threads < kv->n_areas ? threads : kv->n_areas) - 1;
        return most > 0 ? most : 1;
}

/* Starts workers until there are n. A host that cannot start another thread does with those that there are; a child of
 * fork, and a call that is to do its work itself, with none. */
static void start_workers(dci_kv *kv, size_t n)
{
        kv->worker_pid = (int64_t)getpid();
        if (n <= kv->n_workers || kv->config.foreground || kv->worker_pid != kv->context->owner_pid)
                return;
        dci_may_fail(true);
        if (dci_kv_grow(kv, (void **)&kv->workers, &kv->worker_capacity, n, sizeof *kv->workers) == DCI_OK)
                while (kv->n_workers < n && pthread_create(&kv->workers[kv->n_workers], NULL, work, kv) == 0)
                        kv->n_workers++;
        dci_may_fail(false);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

typedef struct helping {
        dci_kv *kv;
        jobs_of of;
} helping;

static void help(void *arg, size_t task, size_t worker)
{
        const helping *h = arg;
        dci_kv *kv = h->kv;
        const size_t area = kv->held_areas[worker];
        size_t head;
        (void)task;
        pthread_mutex_lock(&kv->jobs_lock);
        for (dci_kv_layer *layer; (layer = take_unit(kv, &h->of, &head)) != NULL;) {
                pthread_mutex_unlock(&kv->jobs_lock);
                do_unit(kv, layer, head, area);
                pthread_mutex_lock(&kv->jobs_lock);
                finish_unit(kv, layer);
        }
        pthread_mutex_unlock(&kv->jobs_lock);
}

/* Units left, and whether any are under way. Under jobs_lock. */
static bool pending(const dci_kv *kv, const jobs_of *of, size_t *out_left)
{
        bool some = false;
        *out_left = 0;
        for (const dci_kv_layer *layer = kv->jobs; layer != NULL; layer = layer->next_job)
                if (is_one(layer, of)) {
                        some = true;
                        *out_left += kv->config.n_kv_heads - layer->next_head;
                }
        return some;
}

/* Threads that help: those of the context that are not workers, but the caller at least. */
static size_t count_helpers(const dci_kv *kv, size_t n_units)
{
        const size_t threads = (size_t)atomic_load(&kv->context->n_threads),
                     workers = kv->n_workers < kv->max_working ? kv->n_workers : kv->max_working,
                     wanted = threads > workers ? threads - workers : 1,
                     most = dci_workers_for(kv->context, n_units, SIZE_MAX);
        return wanted < most ? wanted : most;
}

static void wait_for(dci_kv *kv, const jobs_of *of)
{
        helping h = {kv, *of};
        size_t left, n = 0;
        pthread_mutex_lock(&kv->jobs_lock);
        const bool some = pending(kv, of, &left);
        if (left > 0)
                n = hold_areas(kv, count_helpers(kv, left));
        pthread_mutex_unlock(&kv->jobs_lock);
        if (!some)
                return;
        if (n > 0)
                dci_parallel(
                        &(dci_region){.context = kv->context, .n_tasks = n, .n_workers = n, .fn = help, .arg = &h});
        pthread_mutex_lock(&kv->jobs_lock);
        release_held(kv, n);
        while (pending(kv, of, &left))
                pthread_cond_wait(&kv->done, &kv->jobs_lock);
        pthread_mutex_unlock(&kv->jobs_lock);
}

void dci_kv_jobs_wait(dci_kv *kv, const dci_kv_sequence *sequence)
{
        wait_for(kv, &(jobs_of){sequence, NULL});
}

void dci_kv_jobs_wait_layer(dci_kv *kv, const dci_kv_layer *layer)
{
        wait_for(kv, &(jobs_of){NULL, layer});
}

static void cancel(dci_kv *kv, const dci_kv_sequence *sequence, const dci_kv_layer *only, bool now_only)
{
        bool running = true;
        pthread_mutex_lock(&kv->jobs_lock);
        while (running) {
                running = false;
                for (dci_kv_layer *layer = kv->jobs, *next; layer != NULL; layer = next) {
                        next = layer->next_job;
                        if (layer->sequence != sequence || (now_only && !layer->prompt_now) ||
                            (only != NULL && layer != only))
                                continue;
                        layer->next_head = kv->config.n_kv_heads;
                        if (layer->n_running == 0)
                                unlink_job(kv, layer);
                        else
                                running = true;
                }
                if (running)
                        pthread_cond_wait(&kv->done, &kv->jobs_lock);
        }
        pthread_mutex_unlock(&kv->jobs_lock);
}

void dci_kv_jobs_cancel(dci_kv *kv, const dci_kv_sequence *sequence, bool now_only)
{
        cancel(kv, sequence, NULL, now_only);
}

void dci_kv_jobs_cancel_layer(dci_kv *kv, const dci_kv_layer *layer)
{
        cancel(kv, layer->sequence, layer, false);
}

void dci_kv_jobs_init(dci_kv *kv)
{
        pthread_mutex_init(&kv->jobs_lock, NULL);
        pthread_cond_init(&kv->work, NULL);
        pthread_cond_init(&kv->done, NULL);
}

void dci_kv_jobs_inherit(dci_kv *kv)
{
        if (kv->n_workers == 0 || kv->worker_pid == (int64_t)getpid())
                return;
        dci_kv_jobs_init(kv);
        free_all_areas(kv);
        dci_kv_free(kv, kv->workers, kv->worker_capacity * sizeof *kv->workers);
        kv->workers = NULL;
        kv->worker_capacity = kv->n_workers = kv->n_working = 0;
        kv->last_job = NULL; /* a worker may have been unlinking a layer */
        for (dci_kv_layer *layer = kv->jobs, *next; layer != NULL; layer = next) {
                next = layer->next_job;
                kv->last_job = layer;
                if (layer->prompt != DCI_KV_PROMPT_DONE) {
                        layer->next_head = layer->n_running = 0;
                        kv->former.restart(kv, layer);
                        continue;
                }
                if (layer->reorder != NULL && !layer->reorder->done) {
                        layer->next_head = layer->n_running = 0;
                        continue;
                }
                drop_observed(kv, layer);
                unlink_job(kv, layer);
        }
}

void dci_kv_jobs_stop(dci_kv *kv)
{
        dci_kv_jobs_inherit(kv);
        pthread_mutex_lock(&kv->jobs_lock);
        kv->stop = true;
        pthread_cond_broadcast(&kv->work);
        pthread_mutex_unlock(&kv->jobs_lock);
        for (size_t i = 0; i < kv->n_workers; i++)
                pthread_join(kv->workers[i], NULL);
        kv->n_workers = 0;
}

void dci_kv_jobs_destroy(dci_kv *kv)
{
        pthread_cond_destroy(&kv->done);
        pthread_cond_destroy(&kv->work);
        pthread_mutex_destroy(&kv->jobs_lock);
}

dci_status dci_kv_spread(dci_kv *kv, size_t max_workers, size_t n_tasks, size_t work, dci_task_fn fn, void *arg)
{
        const size_t n_workers = dci_workers_for(kv->context, n_tasks, work);
        return dci_parallel(&(dci_region){.context = kv->context,
                                          .n_tasks = n_tasks,
                                          .n_workers = n_workers < max_workers ? n_workers : max_workers,
                                          .fn = fn,
                                          .arg = arg});
}

dci_status dci_kv_lock(dci_kv *kv)
{
        if (kv == NULL)
                return dci_fail(DCI_ERR_INVALID, "kv is NULL");
        if (dci_is_busy(kv))
                return dci_fail(DCI_ERR_BUSY, "called from inside a callback of the same object");
        pthread_mutex_lock(&kv->lock);
        dci_kv_jobs_inherit(kv);
        dci_kv_free_retired(kv);
        return DCI_OK;
}

void dci_kv_unlock(dci_kv *kv)
{
        pthread_mutex_unlock(&kv->lock);
}

/* Under jobs_lock. */
static void append_job(dci_kv *kv, dci_kv_layer *layer)
{
        layer->next_head = layer->n_running = 0;
        layer->next_job = NULL;
        if (kv->jobs == NULL)
                kv->jobs = layer;
        else
                kv->last_job->next_job = layer;
        kv->last_job = layer;
        kv->max_working = max_working(kv);
}

static void wake_workers(dci_kv *kv)
{
        size_t left;
        pthread_mutex_lock(&kv->jobs_lock);
        pending(kv, &(jobs_of){NULL, NULL}, &left);
        left += kv->n_working;
        pthread_mutex_unlock(&kv->jobs_lock);
        start_workers(kv, left < kv->max_working ? left : kv->max_working);
        pthread_mutex_lock(&kv->jobs_lock);
        pthread_cond_broadcast(&kv->work);
        pthread_mutex_unlock(&kv->jobs_lock);
}

void dci_kv_jobs_add(dci_kv *kv, dci_kv_layer *layer)
{
        pthread_mutex_lock(&kv->jobs_lock);
        layer->prompt = DCI_KV_PROMPT_WAITING;
        layer->prompt_now = true;
        append_job(kv, layer);
        pthread_mutex_unlock(&kv->jobs_lock);
        wake_workers(kv);
        if (kv->n_workers == 0)
                dci_kv_jobs_wait(kv, layer->sequence);
}

void dci_kv_jobs_add_order(dci_kv *kv, dci_kv_layer *layer)
{
        pthread_mutex_lock(&kv->jobs_lock);
        append_job(kv, layer);
        pthread_mutex_unlock(&kv->jobs_lock);
        wake_workers(kv);
        if (kv->n_workers == 0)
                dci_kv_jobs_wait_layer(kv, layer);
}
