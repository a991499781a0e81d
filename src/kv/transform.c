/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Transforms of a head's keys and values: their memory, which forks share. */
#include "core/internal.h"

#include <string.h>

#include "kv/memory.h"
#include "kv/stages/stages.h"
#include "kv/transform.h"
#include "sketch/fit.h"

static size_t transform_bytes(int32_t kind, size_t dim)
{
        size_t n_bytes = dci_lines(sizeof(dci_kv_transform)) + dci_coder_bytes(kind, dim);
        if (kind == DCI_CODER_LEARNED)
                n_bytes += dci_moments_kept_bytes(dim);
        return n_bytes;
}

dci_status dci_kv_transform_alloc(dci_kv *kv, int32_t kind, size_t dim, dci_kv_transform **out)
{
        dci_kv_transform *transform;
        DCI_TRY(dci_kv_alloc(kv, transform_bytes(kind, dim), (void **)&transform));
        memset(transform, 0, sizeof *transform);
        atomic_init(&transform->refs, 1);
        transform->n_bytes = transform_bytes(kind, dim);
        transform->coder.kind = kind;
        transform->distortion = -1.0;
        *out = transform;
        return DCI_OK;
}

void dci_kv_transform_empty(dci_kv_transform *transform, size_t dim)
{
        if (transform == NULL)
                return;
        /* The kind that was asked for, since a transform that cannot be learned is made a random one in the same memory. */
        const bool learned = transform->n_bytes == transform_bytes(DCI_CODER_LEARNED, dim);
        transform->coder.kind = learned ? DCI_CODER_LEARNED : DCI_CODER_ROTATED;
        transform->coder.dim = 0;
        transform->distortion = -1.0;
        transform->n_queries = 0;
}

void *dci_kv_transform_memory(dci_kv_transform *transform)
{
        return (unsigned char *)transform + dci_lines(sizeof *transform);
}

void *dci_kv_transform_moments(dci_kv_transform *transform, size_t dim)
{
        return (unsigned char *)dci_kv_transform_memory(transform) + dci_coder_bytes(DCI_CODER_LEARNED, dim);
}

void dci_kv_transform_release(dci_kv *kv, dci_kv_transform *transform)
{
        if (transform != NULL && atomic_fetch_sub(&transform->refs, 1) == 1)
                dci_kv_free(kv, transform, transform->n_bytes);
}

dci_status dci_kv_alloc_transforms(dci_kv *kv, dci_kv_layer *layer, size_t head, bool learned)
{
        dci_kv_head *h = &layer->heads[head];
        const int32_t kind = kv->stages->summary.frame;
        if (kind != 0 && h->keys == NULL)
                DCI_TRY(dci_kv_transform_alloc(kv, learned ? kind : DCI_CODER_ROTATED, kv->dim_k, &h->keys));
        if (kv->stages->tail.values && h->values == NULL)
                DCI_TRY(dci_kv_transform_alloc(kv, DCI_CODER_ROTATED, kv->dim_v, &h->values));
        return DCI_OK;
}
