/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Learned codes of a prompt that another owner makes and keeps, with transforms that were fitted here (kv->fits_only). The rows are here, so
 * codes that are needed all the same, to write to a chunk or to change a transform, are made then: the same bits.
 */
#include "core/internal.h"

#include <string.h>

#include "kv/chunk.h"
#include "kv/external_codes.h"
#include "kv/summaries.h"
#include "kv/worker.h"

typedef struct coding {
        dci_kv *kv;
        dci_kv_layer *layer;
        size_t first;
        const float *residuals;
        size_t ld;
} coding;

static void *scratch_of(const dci_kv *kv, size_t worker)
{
        return kv->forming.memory + (worker + 1) * kv->forming.area_bytes;
}

static void rest_task(void *arg, size_t task, size_t worker)
{
        const coding *c = arg;
        if (c->layer->heads[task].keys->coder.kind == DCI_CODER_LEARNED) /* others are formed */
                dci_kv_build_rest(c->kv, c->layer, task, c->first, c->layer->n_grouped,
                                  c->residuals == NULL ? NULL : c->residuals + task * c->ld, scratch_of(c->kv, worker));
}

dci_status dci_kv_set_codes(dci_kv *kv, dci_kv_layer *layer, const float *residuals, size_t ld)
{
        coding c = {kv, layer, residuals == NULL ? 0 : layer->n_missing, residuals, ld};
        DCI_TRY(dci_kv_lock(kv));
        const size_t n_heads = kv->config.n_kv_heads, tokens = layer->n_grouped - c.first;
        dci_status status = dci_kv_spread(kv, kv->forming.n_areas - 1, n_heads,
                                          tokens * n_heads * 16 * (kv->dim_k + kv->dim_v), rest_task, &c);
        if (status == DCI_OK) {
                layer->uncoded = false;
                layer->n_missing = c.first;
        }
        dci_kv_unlock(kv);
        return status;
}

static void missing_task(void *arg, size_t task, size_t worker)
{
        const coding *c = arg;
        dci_kv *kv = c->kv;
        const size_t head = task % kv->config.n_kv_heads,
                     chunk = c->first / DCI_KV_CHUNK + task / kv->config.n_kv_heads;
        unsigned char *memory = dci_kv_chunk_head(kv, c->layer, chunk, head);
        dci_kv_head copy = c->layer->heads[head];
        memset(memory, 0, kv->summary_bytes);
        dci_kv_rebuild_chunk(kv, c->layer, head, &copy, chunk, c->layer->n_missing, memory, scratch_of(kv, worker));
}

dci_status dci_kv_build_missing(dci_kv *kv, dci_kv_layer *layer, size_t first)
{
        coding c = {.kv = kv, .layer = layer, .first = first};
        if (layer->n_missing <= first)
                return DCI_OK;
        const size_t n = layer->n_missing - first, n_heads = kv->config.n_kv_heads,
                     n_chunks = (n + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK;
        DCI_TRY(dci_kv_lock(kv));
        dci_status status = dci_kv_build_ready(kv);
        if (status == DCI_OK) /* forks may have more in a chunk than this one */
                status = dci_kv_make_chunks_exclusive(kv, layer, first, layer->n_grouped);
        if (status == DCI_OK)
                status = dci_kv_spread(kv, kv->forming.n_areas - 1, n_chunks * n_heads,
                                       n * n_heads * 16 * (kv->dim_k + kv->dim_v), missing_task, &c);
        if (status == DCI_OK)
                layer->n_missing = first;
        dci_kv_unlock(kv);
        return status;
}
