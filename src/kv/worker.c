/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The lock of a dci_kv, the threads of a call, and the worker that does what a prompt leaves to do. A unit of that work is one head of a
 * layer; the worker takes units, and a thread that waits takes some, too. The former does a unit (former.h).
 */
#include "core/internal.h"

#include <unistd.h>

#include "kv/memory.h"
#include "kv/worker.h"

/* A unit of this sequence (NULL: any), or NULL. Under jobs_lock. */
static dci_kv_layer *take_unit(dci_kv *kv, const dci_kv_sequence *sequence, size_t *out_head)
{
        for (dci_kv_layer *layer = kv->jobs; layer != NULL; layer = layer->next_job)
                if (layer->next_head < kv->config.n_kv_heads && (sequence == NULL || layer->sequence == sequence)) {
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

/* Under jobs_lock. */
static void finish_unit(dci_kv *kv, dci_kv_layer *layer)
{
        if (--layer->n_running > 0 || layer->next_head < kv->config.n_kv_heads)
                return;
        kv->former.built(kv, layer);
        /* From here on a child of fork goes on with this layer; up to here it begins again, and needs the queries. */
        layer->prompt = DCI_KV_PROMPT_DONE;
        drop_observed(kv, layer);
        unlink_job(kv, layer);
        pthread_cond_broadcast(&kv->done);
}

static void *work(void *arg)
{
        dci_kv *kv = arg;
        size_t head;
        pthread_mutex_lock(&kv->jobs_lock);
        while (!kv->stop) {
                dci_kv_layer *layer = take_unit(kv, NULL, &head);
                if (layer == NULL) {
                        pthread_cond_wait(&kv->work, &kv->jobs_lock);
                        continue;
                }
                pthread_mutex_unlock(&kv->jobs_lock);
                kv->former.build(kv, layer, head, 0);
                pthread_mutex_lock(&kv->jobs_lock);
                finish_unit(kv, layer);
        }
        pthread_mutex_unlock(&kv->jobs_lock);
        return NULL;
}

typedef struct helping {
        dci_kv *kv;
        const dci_kv_sequence *sequence;
} helping;

static void help(void *arg, size_t task, size_t worker)
{
        const helping *h = arg;
        dci_kv *kv = h->kv;
        size_t head;
        (void)task;
        pthread_mutex_lock(&kv->jobs_lock);
        for (dci_kv_layer *layer; (layer = take_unit(kv, h->sequence, &head)) != NULL;) {
                pthread_mutex_unlock(&kv->jobs_lock);
                kv->former.build(kv, layer, head, worker + 1);
                pthread_mutex_lock(&kv->jobs_lock);
                finish_unit(kv, layer);
        }
        pthread_mutex_unlock(&kv->jobs_lock);
}

/* Units left, and whether any are under way. Under jobs_lock. */
static bool pending(const dci_kv *kv, const dci_kv_sequence *sequence, size_t *out_left)
{
        bool some = false;
        *out_left = 0;
        for (const dci_kv_layer *layer = kv->jobs; layer != NULL; layer = layer->next_job)
                if (sequence == NULL || layer->sequence == sequence) {
                        some = true;
                        *out_left += kv->config.n_kv_heads - layer->next_head;
                }
        return some;
}

void dci_kv_jobs_wait(dci_kv *kv, const dci_kv_sequence *sequence)
{
        size_t left;
        pthread_mutex_lock(&kv->jobs_lock);
        const bool some = pending(kv, sequence, &left);
        pthread_mutex_unlock(&kv->jobs_lock);
        if (!some)
                return;
        helping h = {kv, sequence};
        size_t n_workers = dci_workers_for(kv->context, left, SIZE_MAX);
        n_workers = n_workers < kv->building.n_areas ? n_workers : kv->building.n_areas - 1;
        if (left > 0)
                dci_parallel(&(dci_region){
                        .context = kv->context, .n_tasks = n_workers, .n_workers = n_workers, .fn = help, .arg = &h});
        pthread_mutex_lock(&kv->jobs_lock);
        while (pending(kv, sequence, &left))
                pthread_cond_wait(&kv->done, &kv->jobs_lock);
        pthread_mutex_unlock(&kv->jobs_lock);
}

void dci_kv_jobs_cancel(dci_kv *kv, const dci_kv_sequence *sequence, bool now_only)
{
        bool running = true;
        pthread_mutex_lock(&kv->jobs_lock);
        while (running) {
                running = false;
                for (dci_kv_layer *layer = kv->jobs, *next; layer != NULL; layer = next) {
                        next = layer->next_job;
                        if (layer->sequence != sequence || (now_only && !layer->prompt_now))
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

void dci_kv_jobs_init(dci_kv *kv)
{
        pthread_mutex_init(&kv->jobs_lock, NULL);
        pthread_mutex_init(&kv->map_lock, NULL);
        pthread_cond_init(&kv->work, NULL);
        pthread_cond_init(&kv->done, NULL);
}

void dci_kv_jobs_inherit(dci_kv *kv)
{
        if (!kv->has_worker || kv->worker_pid == (int64_t)getpid())
                return;
        dci_kv_jobs_init(kv);
        kv->last_job = NULL; /* the worker may have been unlinking a layer */
        for (dci_kv_layer *layer = kv->jobs, *next; layer != NULL; layer = next) {
                next = layer->next_job;
                kv->last_job = layer;
                if (layer->prompt != DCI_KV_PROMPT_DONE) {
                        layer->next_head = layer->n_running = 0;
                        kv->former.restart(kv, layer);
                        continue;
                }
                drop_observed(kv, layer);
                unlink_job(kv, layer);
        }
        kv->has_worker = false;
}

void dci_kv_jobs_stop(dci_kv *kv)
{
        dci_kv_jobs_inherit(kv);
        if (!kv->has_worker)
                return;
        pthread_mutex_lock(&kv->jobs_lock);
        kv->stop = true;
        pthread_cond_signal(&kv->work);
        pthread_mutex_unlock(&kv->jobs_lock);
        pthread_join(kv->worker, NULL);
}

void dci_kv_jobs_destroy(dci_kv *kv)
{
        pthread_cond_destroy(&kv->done);
        pthread_cond_destroy(&kv->work);
        pthread_mutex_destroy(&kv->map_lock);
        pthread_mutex_destroy(&kv->jobs_lock);
}

/* A host that cannot start another thread, and a child of fork, wait instead. */
static bool have_worker(dci_kv *kv)
{
        kv->worker_pid = (int64_t)getpid();
        if (!kv->has_worker && !kv->config.foreground && kv->worker_pid == kv->context->owner_pid)
                kv->has_worker = pthread_create(&kv->worker, NULL, work, kv) == 0;
        return kv->has_worker;
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
        return DCI_OK;
}

void dci_kv_unlock(dci_kv *kv)
{
        pthread_mutex_unlock(&kv->lock);
}

void dci_kv_jobs_add(dci_kv *kv, dci_kv_layer *layer)
{
        const bool background = have_worker(kv);
        pthread_mutex_lock(&kv->jobs_lock);
        layer->prompt = DCI_KV_PROMPT_WAITING;
        layer->prompt_now = true;
        layer->next_head = layer->n_running = 0;
        layer->next_job = NULL;
        if (kv->jobs == NULL)
                kv->jobs = layer;
        else
                kv->last_job->next_job = layer;
        kv->last_job = layer;
        pthread_cond_signal(&kv->work);
        pthread_mutex_unlock(&kv->jobs_lock);
        if (!background)
                dci_kv_jobs_wait(kv, layer->sequence);
}
