/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Chunks: summaries and tails of DCI_KV_CHUNK candidates of a layer, shared by forks until one of them writes. */
#include "core/internal.h"

#include <string.h>

#include "kv/chunk.h"
#include "kv/memory.h"

static dci_status take_chunk(dci_kv *kv, const dci_kv_chunk *like, dci_kv_chunk **out)
{
        dci_kv_chunk *chunk;
        DCI_TRY(dci_kv_alloc(kv, kv->chunk_bytes, (void **)&chunk));
        const size_t head = dci_lines(sizeof *chunk);
        /* A new one is cleared by those who form its beginning, head by head: fresh memory costs as much as codes. */
        if (like != NULL)
                memcpy((unsigned char *)chunk + head, (const unsigned char *)like + head, kv->chunk_bytes - head);
        atomic_init(&chunk->refs, 1);
        atomic_fetch_add(&kv->chunk_total, kv->chunk_bytes);
        *out = chunk;
        return DCI_OK;
}

static void drop_chunk(dci_kv *kv, dci_kv_chunk *chunk)
{
        if (atomic_fetch_sub(&chunk->refs, 1) != 1)
                return;
        atomic_fetch_sub(&kv->chunk_total, kv->chunk_bytes);
        dci_kv_free(kv, chunk, kv->chunk_bytes);
}

void dci_kv_release_chunks(dci_kv *kv, dci_kv_layer *layer, size_t n_left)
{
        while (layer->n_chunks > n_left)
                drop_chunk(kv, layer->chunks[--layer->n_chunks]);
}

dci_status dci_kv_make_chunks_exclusive(dci_kv *kv, dci_kv_layer *layer, size_t first, size_t n)
{
        const size_t n_chunks = (n + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK, before = layer->n_chunks;
        dci_status status =
                dci_kv_grow(kv, (void **)&layer->chunks, &layer->chunk_capacity, n_chunks, sizeof(dci_kv_chunk *));
        for (size_t c = first / DCI_KV_CHUNK; c < n_chunks && status == DCI_OK; c++) {
                dci_kv_chunk *own;
                if (c < before && atomic_load(&layer->chunks[c]->refs) == 1)
                        continue;
                status = take_chunk(kv, c < before ? layer->chunks[c] : NULL, &own);
                if (status != DCI_OK)
                        break;
                if (c < before)
                        drop_chunk(kv, layer->chunks[c]);
                else
                        layer->n_chunks = c + 1;
                layer->chunks[c] = own;
        }
        if (status != DCI_OK)
                dci_kv_release_chunks(kv, layer, before);
        return status;
}

unsigned char *dci_kv_chunk_head(const dci_kv *kv, const dci_kv_layer *layer, size_t chunk, size_t head)
{
        return (unsigned char *)layer->chunks[chunk] + dci_lines(sizeof(dci_kv_chunk)) +
               head * (kv->summary_bytes + kv->tail_bytes);
}
