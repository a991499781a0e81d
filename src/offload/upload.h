/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The host's summaries on their way to the device: chunks of a layer, and the centres of its codes. They are in
 * ordinary memory, so they are copied through the planner's locked buffer, and the host waits. Whoever calls has made
 * the row's chunks exclusive (chunk_store.h) and marks the object as failed if a copy fails.
 */
#ifndef DCI_OFFLOAD_UPLOAD_H
#define DCI_OFFLOAD_UPLOAD_H

#include "offload/chunk_store.h"

/* Uploads the host's chunks [first, n) of a layer. */
dci_status dci_gpu_kv_upload_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from,
                                   size_t first, size_t n);
dci_status dci_gpu_kv_upload_centres(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from);

DCI_INLINE dci_status dci_gpu_kv_side_copy(dci_gpu_kv *kv, void *to, const void *from, size_t n_bytes)
{
        return kv->ops->copy(kv->gpu, kv->side, to, from, n_bytes);
}

/* Where a row's part of a layer's centres begins, in floats. */
DCI_INLINE size_t dci_gpu_kv_centres_offset(const dci_gpu_kv *kv, size_t sparse, size_t row)
{
        return (sparse * kv->config.max_sequences + row) * kv->shape.n_kv_heads * kv->dim;
}

#endif
