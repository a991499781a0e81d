/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Learned codes that the device chooses by. The host fits frames and forms codes, since a fit is a matter of eigenvectors; the device has
 * copies of both, and makes scores and lists. A prompt's queries come to the host as for plans that the host makes.
 *
 * A sequence's codes come to the device where the next step is reserved; or, of a prompt that ends in a step which plans, where it plans.
 */
#include "gpu/gpu_internal.h"

#include "gpu/frames_fill.h"
#include "gpu/kv_device.h"

static unsigned char *frames_at(const dci_gpu_kv *kv, size_t sparse, const dci_gpu_kv_row *row)
{
        const size_t list = (sparse * kv->config.max_sequences + dci_gpu_kv_row_at(kv, row)) * kv->shape.n_kv_heads;
        return kv->planner.frames + list * DCI_GPU_FRAME_BYTES(kv->dim);
}

dci_status dci_gpu_kv_upload_frames(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t n_bytes = DCI_GPU_FRAME_BYTES(kv->dim), at_once = p->upload_bytes / n_bytes;
        unsigned char *to = frames_at(kv, kv->layers[layer].index, row);
        dci_status status = DCI_OK;
        if (p->kind != DCI_GPU_LEARNED)
                return DCI_OK;
        for (size_t h = 0, here; h < kv->shape.n_kv_heads && status == DCI_OK; h += here) {
                const size_t left = kv->shape.n_kv_heads - h;
                here = left < at_once ? left : at_once;
                for (size_t i = 0; i < here; i++)
                        dci_gpu_frame_fill(&from->heads[h + i].keys->coder, p->upload + i * n_bytes);
                status = kv->ops->copy(kv->gpu, kv->side, to + h * n_bytes, p->upload, here * n_bytes);
                if (status == DCI_OK)
                        status = kv->ops->stream_wait(kv->gpu, kv->side);
        }
        return status;
}

dci_status dci_gpu_kv_fork_frames(dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to)
{
        const size_t n_bytes = kv->shape.n_kv_heads * DCI_GPU_FRAME_BYTES(kv->dim);
        dci_status status = DCI_OK;
        for (size_t l = 0; l < kv->n_sparse && status == DCI_OK && kv->planner.kind == DCI_GPU_LEARNED; l++)
                status = kv->ops->copy(kv->gpu, kv->side, frames_at(kv, l, to), frames_at(kv, l, from), n_bytes);
        return status;
}

dci_status dci_gpu_kv_learned_reserve(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t due, size_t after)
{
        const size_t first = kv->planner.first_layer;
        if (row->prompting) {
                row->forming = dci_kv_prompt_candidates(kv->host, after);
                return DCI_OK;
        }
        dci_status status = dci_kv_wait(kv->host, row->id);
        if (status != DCI_OK)
                return status;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        if (due > row->grouped || sequence->layers[first].n_grouped > row->grouped)
                status = dci_gpu_kv_bring_up(kv, row);
        row->from = row->forming = row->grouped;
        return status;
}

/* What the prompt gave in this layer. */
static dci_status bring_layer(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from)
{
        dci_status status = dci_gpu_kv_upload_layer(kv, row, layer, from, 0, dci_gpu_kv_chunks_of(row->forming));
        if (status == DCI_OK)
                status = dci_gpu_kv_upload_centres(kv, row, layer, from);
        if (status == DCI_OK)
                status = dci_gpu_kv_upload_frames(kv, row, layer, from);
        row->n_formed += status == DCI_OK;
        return dci_gpu_kv_did(kv, status);
}

dci_status dci_gpu_kv_learned_plan(dci_gpu_kv *kv, size_t layer)
{
        dci_status status = DCI_OK;
        if (kv->planner.kind != DCI_GPU_LEARNED || kv->layers[layer].planned)
                return DCI_OK;
        status = dci_gpu_kv_hand_over_layer(kv, layer);
        for (size_t i = 0; i < kv->step.n && status == DCI_OK; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                const dci_kv_layer *from = &dci_gpu_kv_host_sequence(kv, row)->layers[layer];
                if (!row->prompting || row->forming == 0 || atomic_load(&from->prompt) == DCI_KV_PROMPT_OPEN)
                        continue;
                status = dci_kv_wait(kv->host, row->id);
                if (status == DCI_OK)
                        status = bring_layer(kv, row, layer, from);
        }
        return status;
}
