/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Learned codes that the device chooses by. The host fits frames, since a fit is a matter of eigenvectors; the device makes a prompt's codes in
 * them, from the rows that the host has by then, and tells the host of what rounding took away (gpu/args/learned.h). Codes of the last chunk, of later
 * tokens, and all of them where there is a tail, are formed by the host, and the device has a copy; what else the host is asked for it forms
 * then (kv/elsewhere.c). A prompt's queries come to the host as for plans that the host makes.
 *
 * A sequence's codes come to the device where the next step is reserved; or, of a prompt that ends in a step which plans, where it plans.
 */
#include "core/internal.h"

#include "gpu/args/frames_fill.h"
#include "kv/stages/stages.h"
#include "offload/offload_internal.h"

static unsigned char *frames_at(const dci_gpu_kv *kv, size_t sparse, const dci_gpu_kv_row *row)
{
        const size_t list = (sparse * kv->config.max_sequences + dci_gpu_kv_row_at(kv, row)) * kv->shape.n_kv_heads;
        return kv->planner.frames + list * DCI_GPU_TRANSFORM_BYTES(kv->dim);
}

dci_status dci_gpu_kv_upload_transforms(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer,
                                        const dci_kv_layer *from)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t n_bytes = DCI_GPU_TRANSFORM_BYTES(kv->dim), at_once = p->upload_bytes / n_bytes;
        unsigned char *to = frames_at(kv, kv->layers[layer].index, row);
        dci_status status = DCI_OK;
        if (p->kind != DCI_GPU_LEARNED)
                return DCI_OK;
        for (size_t h = 0, here; h < kv->shape.n_kv_heads && status == DCI_OK; h += here) {
                const size_t left = kv->shape.n_kv_heads - h;
                here = left < at_once ? left : at_once;
                for (size_t i = 0; i < here; i++)
                        dci_gpu_transform_fill(&from->heads[h + i].keys->coder, p->upload + i * n_bytes);
                status = kv->ops->copy(kv->gpu, kv->side, to + h * n_bytes, p->upload, here * n_bytes);
                if (status == DCI_OK)
                        status = kv->ops->stream_wait(kv->gpu, kv->side);
        }
        return status;
}

dci_status dci_gpu_kv_fork_transforms(dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to)
{
        const size_t n_bytes = kv->shape.n_kv_heads * DCI_GPU_TRANSFORM_BYTES(kv->dim);
        dci_status status = DCI_OK;
        for (size_t l = 0; l < kv->n_sparse && status == DCI_OK && kv->planner.kind == DCI_GPU_LEARNED; l++)
                status = kv->ops->copy(kv->gpu, kv->side, frames_at(kv, l, to), frames_at(kv, l, from), n_bytes);
        return status;
}

/* Layers whose prompt ended in an earlier step have fewer candidates than those in which it ends now: there is no number for all, and plans attend to
 * everything until all have ended. */
static bool some_ended(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        bool some = false;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                some = some ||
                       (dci_kv_groups(kv->host, l) && atomic_load(&sequence->layers[l].prompt) != DCI_KV_PROMPT_OPEN);
        return some;
}

dci_status dci_gpu_kv_learned_reserve(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t due, size_t after)
{
        if (row->prompting) {
                row->forming = some_ended(kv, row) ? 0 : dci_kv_prompt_candidates(kv->host, after);
                return DCI_OK;
        }
        dci_status status = dci_kv_wait(kv->host, row->id);
        if (status != DCI_OK)
                return status;
        if (due > row->grouped || dci_gpu_kv_host_grouped(kv, dci_gpu_kv_host_sequence(kv, row)) > row->grouped)
                status = dci_gpu_kv_upload(kv, row);
        row->from = row->forming = row->grouped;
        return status;
}

/* --- a prompt's codes -------------------------------------------------------------------------------------------------------- */

_Static_assert(DCI_GPU_WATCHED_FIRST == DCI_KV_WATCHED_SPAN / DCI_CODE_ROWS &&
                       DCI_GPU_WATCHED_EVERY == DCI_KV_WATCHED && DCI_GPU_CHUNK == DCI_KV_CHUNK,
               "who makes codes knows which residuals are wanted");

/* Residuals of all heads of a layer with n candidates. They lie before the heads' records, in `upload` and in `coding` alike. */
static size_t residual_bytes(const dci_gpu_kv *kv, size_t n)
{
        return dci_lines(kv->shape.n_kv_heads * (size_t)DCI_GPU_N_WATCHED((int32_t)n) * sizeof(float));
}

size_t dci_gpu_kv_coding_bytes(const dci_gpu_kv *kv)
{
        return kv->host->fits_only ? residual_bytes(kv, kv->config.max_tokens) + DCI_GPU_WRITER_BYTES(kv->dim) : 0;
}

/* Queues some heads of a layer. */
static dci_status code_heads(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from,
                             size_t first, size_t n)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t at = residual_bytes(kv, from->n_missing), each = DCI_GPU_WRITER_BYTES(kv->dim);
        dci_gpu_encode_learned_args args = {.n_heads = (int32_t)n,
                                            .dim = (int32_t)kv->dim,
                                            .bits = kv->shape.key_bits,
                                            .dtype = (int32_t)kv->shape.dtype,
                                            .n_candidates = (int32_t)from->n_missing,
                                            .row = (int32_t)dci_gpu_kv_row_at(kv, row),
                                            .sink = (int32_t)kv->shape.sink,
                                            .fused = kv->gpu->context->isa != DCI_ISA_SCALAR,
                                            .pool = dci_gpu_kv_host_pool(kv, layer),
                                            .tables = dci_gpu_kv_tables(kv),
                                            .chunks = dci_gpu_kv_chunks(kv, layer),
                                            .writers = p->coding + at,
                                            .residuals = (float *)(void *)p->coding +
                                                         first * (size_t)DCI_GPU_N_WATCHED((int32_t)from->n_missing)};
        args.pool.layer_at += first * args.pool.head_bytes;
        args.chunks.layer_at += first * args.chunks.head_bytes;
        for (size_t i = 0; i < n; i++)
                dci_gpu_writer_fill(&from->heads[first + i].keys->coder, p->upload + at + i * each);
        const dci_status status = kv->ops->copy(kv->gpu, kv->side, p->coding + at, p->upload + at, n * each);
        return status == DCI_OK ? kv->ops->encode_learned(kv->gpu, kv->side, &args) : status;
}

/* Codes of whole chunks of a layer, from the host's rows, and residuals in `upload`. */
static dci_status code_chunks(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t n_bytes = residual_bytes(kv, from->n_missing),
                     at_once = (p->upload_bytes - n_bytes) / DCI_GPU_WRITER_BYTES(kv->dim);
        dci_status status = DCI_OK;
        for (size_t h = 0, here; h < kv->shape.n_kv_heads && status == DCI_OK; h += here) {
                const size_t left = kv->shape.n_kv_heads - h;
                here = left < at_once ? left : at_once;
                status = code_heads(kv, row, layer, from, h, here);
                if (status == DCI_OK && left > here) /* records have left their place */
                        status = kv->ops->stream_wait(kv->gpu, kv->side);
        }
        if (status == DCI_OK)
                status = kv->ops->copy(kv->gpu, kv->side, p->upload, p->coding, n_bytes);
        return status == DCI_OK ? kv->ops->stream_wait(kv->gpu, kv->side) : status;
}

/* The host forms all of a layer in which some head's keys were not fit for a fit. */
static dci_status code_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, dci_kv_layer *from)
{
        bool fitted = true;
        for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                fitted = fitted && from->heads[h].keys->coder.kind == DCI_CODER_LEARNED;
        if (!fitted)
                return dci_kv_set_codes(kv->host, from, NULL, 0);
        const dci_status status = dci_gpu_kv_check_device(kv, code_chunks(kv, row, layer, from));
        return status == DCI_OK ? dci_kv_set_codes(kv->host, from, (const float *)(const void *)kv->planner.upload,
                                                   (size_t)DCI_GPU_N_WATCHED((int32_t)from->n_missing))
                                : status;
}

/* What the prompt gave in this layer: n candidates. */
static dci_status bring_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, dci_kv_layer *from, size_t n)
{
        dci_status status = from->uncoded ? code_layer(kv, row, layer, from) : dci_kv_build_missing(kv->host, from, 0);
        if (status != DCI_OK)
                return status;
        status = dci_gpu_kv_upload_layer(kv, row, layer, from, from->n_missing / DCI_KV_CHUNK, dci_gpu_kv_chunks_of(n));
        if (status == DCI_OK)
                status = dci_gpu_kv_upload_centres(kv, row, layer, from);
        if (status == DCI_OK)
                status = dci_gpu_kv_upload_transforms(kv, row, layer, from);
        return dci_gpu_kv_check_device(kv, status);
}

static bool uncoded(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        bool some = false;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                some = some || sequence->layers[l].uncoded;
        return some;
}

/* Candidates that codes are made of in some layer: all chunks of them are there then, though other layers may have fewer. */
static size_t max_uncoded(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        size_t most = 0;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                const dci_kv_layer *layer = &sequence->layers[l];
                most = layer->uncoded && layer->n_missing > most ? layer->n_missing : most;
        }
        return most;
}

/* Where some layer has nothing to be chosen by yet, the device has no use for what others have. */
static dci_status code_on_host(dci_gpu_kv *kv, dci_kv_sequence *sequence)
{
        dci_status status = DCI_OK;
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++)
                if (sequence->layers[l].uncoded)
                        status = dci_kv_set_codes(kv->host, &sequence->layers[l], NULL, 0);
        return status;
}

dci_status dci_gpu_kv_learned_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t n = dci_gpu_kv_host_grouped(kv, sequence), coded = max_uncoded(kv, sequence);
        dci_status status = DCI_OK;
        if (!kv->host->fits_only)
                return DCI_OK;
        const bool brings = n > 0 && uncoded(kv, sequence);
        if (n == 0)
                status = code_on_host(kv, sequence);
        if (brings)
                status = dci_gpu_kv_store_make_exclusive(kv, &kv->planner.summaries, kv->side,
                                                         dci_gpu_kv_row_at(kv, row), 0,
                                                         dci_gpu_kv_chunks_of(n > coded ? n : coded));
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK && brings; l++)
                if (dci_kv_groups(kv->host, l))
                        status = bring_layer(kv, row, l, &sequence->layers[l], n);
        if (brings && status == DCI_OK) {
                row->grouped = row->forming = n;
                row->framed = true;
                row->behind = false;
        }
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++)
                if (dci_kv_groups(kv->host, l))
                        status = dci_kv_build_missing(kv->host, &sequence->layers[l], n / DCI_KV_CHUNK * DCI_KV_CHUNK);
        return status;
}

dci_status dci_gpu_kv_learned_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        if (!kv->host->fits_only || row->framed)
                return DCI_OK;
        dci_status status = dci_gpu_kv_wait_rows(kv);
        if (status == DCI_OK)
                status = dci_kv_wait(kv->host, row->id);
        return status == DCI_OK && uncoded(kv, dci_gpu_kv_host_sequence(kv, row)) ? dci_gpu_kv_learned_upload(kv, row)
                                                                                  : status;
}

/* --- a prompt that ends in a step which plans ---------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_learned_plan(dci_gpu_kv *kv, size_t layer)
{
        dci_status status = DCI_OK;
        if (kv->planner.kind != DCI_GPU_LEARNED || kv->layers[layer].formed)
                return DCI_OK;
        for (size_t i = 0; i < kv->step.n && status == DCI_OK; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                if (!row->prompting || row->forming == 0)
                        continue;
                status = dci_kv_wait(kv->host, row->id);
                if (status == DCI_OK && dci_kv_groups(kv->host, layer)) /* others use another layer's lists */
                        status = bring_layer(kv, row, layer, &dci_gpu_kv_host_sequence(kv, row)->layers[layer],
                                             row->forming);
        }
        /* Without memory for one row the plan is asked for again: so they are counted together. */
        for (size_t i = 0; i < kv->step.n && status == DCI_OK; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                row->n_formed += row->prompting && row->forming > 0;
        }
        kv->layers[layer].formed = status == DCI_OK;
        return status;
}
