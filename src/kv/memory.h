/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Memory of a dci_kv, counted against max_bytes. Any thread. */
#ifndef DCI_KV_MEMORY_H
#define DCI_KV_MEMORY_H

#include "kv/kv_internal.h"

/* DCI_ERR_FULL beyond max_bytes, DCI_ERR_MEMORY; *out is untouched then. n_bytes 0 gives one byte. */
dci_status dci_kv_alloc(dci_kv *kv, size_t n_bytes, void **out);
/* The same, aligned to whole memory pages. */
dci_status dci_kv_alloc_pages(dci_kv *kv, size_t n_bytes, void **out);
void dci_kv_free(dci_kv *kv, void *memory, size_t n_bytes);

/* Grows an array to at least `wanted` elements of `size` bytes, at least doubling it. */
dci_status dci_kv_grow(dci_kv *kv, void **array, size_t *capacity, size_t wanted, size_t size);
/* The same for an array that units in progress may read (worker.h): the larger one is returned, and the old one stays
 * until no unit is in progress. Under lock. */
dci_status dci_kv_grow_shared(dci_kv *kv, void *array, size_t *capacity, size_t wanted, size_t size, void **out);
/* Allocates n areas of so many bytes or, where memory is short, fewer, but one at least: several take no more than a
 * quarter of what is left of max_bytes. */
dci_status dci_kv_alloc_areas(dci_kv *kv, size_t n, size_t area_bytes, dci_kv_scratch *out);
/* Frees such old arrays if no unit is in progress. Under lock. */
void dci_kv_free_retired(dci_kv *kv);
/* The bytes that this would allocate. */
size_t dci_kv_grow_bytes(size_t capacity, size_t wanted, size_t size);
/* Whether n_bytes more are within max_bytes. */
dci_status dci_kv_check_room(const dci_kv *kv, size_t n_bytes);

#endif
