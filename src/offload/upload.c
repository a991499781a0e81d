/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Uploads of the host's summaries. */
#include "core/internal.h"

#include <string.h>

#include "offload/upload.h"

/* Each batch of chunks that fits the locked buffer is waited for before the buffer is used again. */
dci_status dci_gpu_kv_upload_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from,
                                   size_t first, size_t n)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t at_once = p->upload_bytes / kv->summaries->chunk_bytes;
        const int32_t *numbers = dci_gpu_kv_store_numbers(kv->summaries, dci_gpu_kv_row_number(kv, row));
        for (size_t c = first, here; c < n; c += here) {
                here = n - c < at_once ? n - c : at_once;
                for (size_t i = 0; i < here; i++) {
                        unsigned char *by = p->upload + i * kv->summaries->chunk_bytes;
                        memcpy(by, dci_kv_chunk_head(kv->host, from, c + i, 0), kv->summaries->chunk_bytes);
                        DCI_TRY(dci_gpu_kv_side_copy(
                                kv, dci_gpu_kv_store_at(kv->summaries, kv->layers[layer].index, numbers[c + i]), by,
                                kv->summaries->chunk_bytes));
                }
                DCI_TRY(kv->ops->stream_wait(kv->gpu, kv->side));
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_upload_centres(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t n = kv->shape.n_kv_heads, floats = n * kv->dim,
                     at = dci_gpu_kv_centres_offset(kv, kv->layers[layer].index, dci_gpu_kv_row_number(kv, row));
        float *keys = (float *)(void *)p->upload, *values = keys + floats;
        for (size_t h = 0; h < n; h++) {
                memcpy(keys + h * kv->dim, from->heads[h].keys->coder.centre, kv->dim * sizeof *keys);
                if (p->value_centres != NULL)
                        memcpy(values + h * kv->dim, from->heads[h].values->coder.centre, kv->dim * sizeof *values);
        }
        DCI_TRY(dci_gpu_kv_side_copy(kv, p->centres + at, keys, floats * sizeof *keys));
        if (p->value_centres != NULL)
                DCI_TRY(dci_gpu_kv_side_copy(kv, p->value_centres + at, values, floats * sizeof *values));
        return kv->ops->stream_wait(kv->gpu, kv->side);
}
