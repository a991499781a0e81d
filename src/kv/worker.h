/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Locks and threads of a dci_kv: the lock of a call, its parallel regions, and the worker that does what a prompt
 * leaves to do.
 *
 * A layer whose prompt ended is a job; each head of it is a unit of work. The worker takes units in the background, and
 * a thread that waits for a sequence takes units, too. What a unit does is given at init. The worker is started by the
 * first job, and a child of fork, which has none, does the work when it waits. dci_kv_jobs_stop ends the worker; then
 * sequences may be freed, then dci_kv_jobs_destroy.
 */
#ifndef DCI_KV_WORKER_H
#define DCI_KV_WORKER_H

#include "kv/state.h"

dci_status dci_kv_lock(dci_kv *kv);
void dci_kv_unlock(dci_kv *kv);

/* A parallel region of a call. max_workers: areas of scratch. `work` in multiply-adds or so. */
dci_status dci_kv_spread(dci_kv *kv, size_t max_workers, size_t n_tasks, size_t work, dci_task_fn fn, void *arg);

typedef struct dci_kv_prompt_work {
        /* One head, in an area of scratch by number: 0 is the worker's. Cannot fail. */
        void (*run)(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t area);
        /* After all heads, under jobs_lock. */
        void (*end)(const dci_kv *kv, dci_kv_layer *layer);
        /* In a child of fork: forgets what was begun. */
        void (*restart)(const dci_kv *kv, dci_kv_layer *layer);
} dci_kv_prompt_work;

void dci_kv_jobs_init(dci_kv *kv, const dci_kv_prompt_work *prompt_work);
/* In a child of fork, which has neither the worker nor the threads that may have held its locks: makes new locks, and
 * restarts jobs that were not done. Under lock, or where no other thread is. */
void dci_kv_jobs_inherit(dci_kv *kv);
/* Ends the worker, whatever is left to do. */
void dci_kv_jobs_stop(dci_kv *kv);
void dci_kv_jobs_destroy(dci_kv *kv);

/* Has the layer's heads worked on by the worker, or at once where there is none. */
void dci_kv_jobs_add(dci_kv *kv, dci_kv_layer *layer);
/* Waits until the work of this sequence (NULL: of all) is done, and helps. */
void dci_kv_jobs_wait(dci_kv *kv, const dci_kv_sequence *sequence);
/* Takes back what has not begun, and waits for the rest, whose result is dropped: of all prompts of the sequence, or of
 * those that ended in the open step. */
void dci_kv_jobs_cancel(dci_kv *kv, const dci_kv_sequence *sequence, bool now_only);

#endif
