/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A small pool of pthreads: one job at a time, the caller works too. */
#include "core/internal.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "core/executor.h"

struct dci_pool {
        pthread_mutex_t lock;
        pthread_cond_t wake; /* a job is there, or the pool closes */
        pthread_cond_t done; /* the last helper left the job */
        pthread_t *threads;
        size_t n_threads; /* started; the caller is not among them */
        size_t capacity;
        uint64_t job; /* counts jobs, so that a helper takes each once */
        size_t next, n, helpers_in_job;
        void (*fn)(void *arg, size_t i);
        void *arg;
        bool taken, closing;
        int64_t owner_pid;
};

/* Takes items until none is left. Called and left with the lock held. */
static void work(struct dci_pool *pool)
{
        while (pool->next < pool->n) {
                size_t i = pool->next++;
                pthread_mutex_unlock(&pool->lock);
                pool->fn(pool->arg, i);
                pthread_mutex_lock(&pool->lock);
        }
}

static void *helper(void *arg)
{
        struct dci_pool *pool = arg;
        uint64_t seen = 0;
        pthread_mutex_lock(&pool->lock);
        for (;;) {
                while (!pool->closing && (pool->job == seen || pool->next >= pool->n)) {
                        seen = pool->job;
                        pthread_cond_wait(&pool->wake, &pool->lock);
                }
                if (pool->closing)
                        break;
                seen = pool->job;
                pool->helpers_in_job++;
                work(pool);
                if (--pool->helpers_in_job == 0)
                        pthread_cond_signal(&pool->done);
        }
        pthread_mutex_unlock(&pool->lock);
        return NULL;
}

dci_status dci_pool_create(dci_context *context, size_t n_threads, struct dci_pool **out_pool)
{
        struct dci_pool *pool = dci_calloc(context, 1, sizeof *pool);
        if (pool == NULL)
                return DCI_ERR_MEMORY;
        pool->capacity = n_threads - 1;
        pool->owner_pid = (int64_t)getpid();
        pool->threads = dci_calloc(context, pool->capacity, sizeof *pool->threads);
        if (pool->threads == NULL) {
                dci_free(context, pool, 1, sizeof *pool);
                return DCI_ERR_MEMORY;
        }
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->wake, NULL);
        pthread_cond_init(&pool->done, NULL);
        for (size_t i = 0; i < pool->capacity; i++) {
                int error = pthread_create(&pool->threads[i], NULL, helper, pool);
                if (error != 0) {
                        dci_pool_destroy(context, pool);
                        return dci_fail(DCI_ERR_MEMORY, "thread %zu of %zu could not be started: %s", i + 1,
                                        n_threads - 1, strerror(error));
                }
                pool->n_threads++;
        }
        *out_pool = pool;
        return DCI_OK;
}

void dci_pool_destroy(dci_context *context, struct dci_pool *pool)
{
        if (pool == NULL)
                return;
        /* A child of fork has the memory but not the threads, and a lock whose owner may be gone. */
        if (pool->owner_pid == (int64_t)getpid()) {
                pthread_mutex_lock(&pool->lock);
                pool->closing = true;
                pthread_cond_broadcast(&pool->wake);
                pthread_mutex_unlock(&pool->lock);
                for (size_t i = 0; i < pool->n_threads; i++)
                        pthread_join(pool->threads[i], NULL);
                pthread_cond_destroy(&pool->done);
                pthread_cond_destroy(&pool->wake);
                pthread_mutex_destroy(&pool->lock);
        }
        dci_free(context, pool->threads, pool->capacity, sizeof *pool->threads);
        dci_free(context, pool, 1, sizeof *pool);
}

bool dci_pool_run(struct dci_pool *pool, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
        pthread_mutex_lock(&pool->lock);
        if (pool->taken) {
                pthread_mutex_unlock(&pool->lock);
                return false;
        }
        pool->taken = true;
        pool->fn = fn;
        pool->arg = arg;
        pool->n = n;
        pool->next = 0;
        pool->job++;
        /* One item is the caller's. Helpers that are not waiting check the queue before they wait. */
        for (size_t i = 1; i < n && i <= pool->n_threads; i++)
                pthread_cond_signal(&pool->wake);
        work(pool);
        while (pool->helpers_in_job > 0)
                pthread_cond_wait(&pool->done, &pool->lock);
        pool->taken = false;
        pthread_mutex_unlock(&pool->lock);
        return true;
}
