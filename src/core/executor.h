/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the context needs of the executors. */
#ifndef DCI_CORE_EXECUTOR_H
#define DCI_CORE_EXECUTOR_H

#include "core/internal.h"

bool dci_openmp_built(void);

/* Threads to use when the caller names none: OpenMP's own choice, or the CPUs this process may run on. */
int32_t dci_default_threads(int32_t executor_kind);

/* n_threads includes the calling thread: n_threads - 1 are started. On failure those already started are joined. */
dci_status dci_pool_create(dci_context *context, size_t n_threads, struct dci_pool **out_pool);
void dci_pool_destroy(dci_context *context, struct dci_pool *pool);

/* fn(arg, i) for each i in [0, n). Returns false, having run nothing, when another call has the pool: the caller then
 * runs alone, so that nested and simultaneous calls neither wait nor deadlock. */
bool dci_pool_run(struct dci_pool *pool, size_t n, void (*fn)(void *arg, size_t i), void *arg);

#endif
