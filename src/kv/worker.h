/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Locks and threads of a dci_kv: the lock of a call, its parallel regions, and the workers that do what a prompt leaves
 * to do, and make new orders.
 *
 * A layer whose prompt ended is a job; each head of it is a unit of work, which the former does (former.h). So is a
 * layer that gets a new order (state.h). Workers take units in the background, in the order of the jobs, and a thread
 * that waits for a sequence takes units, too. They are started as jobs come: one less than the context has threads, at
 * least one; one where the threads of a call are the caller's own. A child of fork has none, and does the work when it
 * waits. dci_kv_jobs_stop ends them; then
 * sequences may be freed, then dci_kv_jobs_destroy.
 *
 * A unit takes an area of scratch, and so does each thread of a region that builds, so that no more threads work than
 * there are areas: as many as the context has threads, and two at least. The last one is never a worker's unless it is
 * the only one. A unit is one thread's: it opens no region, and no OpenBLAS.
 */
#ifndef DCI_KV_WORKER_H
#define DCI_KV_WORKER_H

#include "kv/state.h"

dci_status dci_kv_lock(dci_kv *kv);
void dci_kv_unlock(dci_kv *kv);

/* A parallel region of a call. max_workers: areas of scratch. `work` in multiply-adds or so. */
dci_status dci_kv_spread(dci_kv *kv, size_t max_workers, size_t n_tasks, size_t work, dci_task_fn fn, void *arg);
/* One that builds: fn(arg, task, area). Waits for an area of a worker's if there is no other. */
dci_status dci_kv_spread_build(dci_kv *kv, size_t n_tasks, size_t work, dci_task_fn fn, void *arg);

/* There are n areas now. */
dci_status dci_kv_areas_init(dci_kv *kv, size_t n);
/* From now on n of them are used. No work is in progress. */
void dci_kv_areas_limit(dci_kv *kv, size_t n);

void dci_kv_jobs_init(dci_kv *kv);
/* In a child of fork, which has neither the workers nor the threads that may have held its locks: makes new locks, and
 * restarts jobs that were not done. Under lock, or where no other thread is. */
void dci_kv_jobs_inherit(dci_kv *kv);
/* Ends the workers, whatever is left to do. */
void dci_kv_jobs_stop(dci_kv *kv);
void dci_kv_jobs_destroy(dci_kv *kv);

/* Has the heads of a layer whose prompt ended worked on by the workers, or at once where there is none. */
void dci_kv_jobs_add(dci_kv *kv, dci_kv_layer *layer);
/* The same for the layer's new order. */
void dci_kv_jobs_add_order(dci_kv *kv, dci_kv_layer *layer);
/* Waits until the prompts of this sequence are done (NULL: all prompts and orders), or the order of this layer, and
 * helps. */
void dci_kv_jobs_wait(dci_kv *kv, const dci_kv_sequence *sequence);
void dci_kv_jobs_wait_layer(dci_kv *kv, const dci_kv_layer *layer);
/* Takes back what has not begun, and waits for the rest, whose result is dropped: of all prompts and orders of the
 * sequence, or of the prompts that ended in the open step; of a layer's order. */
void dci_kv_jobs_cancel(dci_kv *kv, const dci_kv_sequence *sequence, bool now_only);
void dci_kv_jobs_cancel_layer(dci_kv *kv, const dci_kv_layer *layer);

#endif
