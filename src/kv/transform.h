/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Transforms of a head's keys or values, which its codes are made with. Allocated empty when a prompt ends, filled in
 * from its rows (summaries.h), shared by forks, and replaced by a new one when keys drift (maintain.h).
 */
#ifndef DCI_KV_TRANSFORM_H
#define DCI_KV_TRANSFORM_H

#include "kv/state.h"
#include "sketch/coder.h"

struct dci_kv_transform {
        atomic_size_t refs;
        size_t n_bytes;    /* in all */
        double distortion; /* mean squared rounding error of the prompt's codes; negative: not known yet */
        dci_coder coder;   /* dim 0: empty */
        size_t n_queries;  /* learned: queries in the moments that a refit begins with; 0: none yet */
};

dci_status dci_kv_transform_alloc(dci_kv *kv, int32_t kind, size_t dim, dci_kv_transform **out);
void dci_kv_transform_release(dci_kv *kv, dci_kv_transform *transform);
/* Allocates the transforms that a head's codes need, where it has none. */
dci_status dci_kv_alloc_transforms(dci_kv *kv, dci_kv_layer *layer, size_t head, bool learned);
/* Makes a transform empty again, of the kind that was asked for; NULL is allowed. */
void dci_kv_transform_empty(dci_kv_transform *transform, size_t dim);
/* The coder's memory; after it, if learned, moments of queries. */
void *dci_kv_transform_memory(dci_kv_transform *transform);
void *dci_kv_transform_moments(dci_kv_transform *transform, size_t dim);

#endif
