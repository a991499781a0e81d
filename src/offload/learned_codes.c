/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Learned codes of prompts. */
#include "core/internal.h"

#include <string.h>

#include "gpu/args/transforms_fill.h"
#include "kv/stages/stages.h"
#include "kv/stages/summary_codes.h"
#include "kv/worker.h"
#include "offload/learned_codes.h"
#include "offload/offload_internal.h"
#include "offload/pool.h"

static unsigned char *row_transforms(const dci_gpu_kv *kv, size_t sparse, const dci_gpu_kv_row *row)
{
        const size_t list = (sparse * kv->config.max_sequences + dci_gpu_kv_row_number(kv, row)) * kv->shape.n_kv_heads;
        return kv->learned->transforms + list * DCI_GPU_TRANSFORM_BYTES(kv->dim);
}

dci_status dci_gpu_kv_upload_transforms(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer,
                                        const dci_kv_layer *from)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t n_bytes = DCI_GPU_TRANSFORM_BYTES(kv->dim), at_once = p->upload_bytes / n_bytes;
        unsigned char *to = row_transforms(kv, kv->layers[layer].index, row);
        if (p->kind != DCI_GPU_LEARNED)
                return DCI_OK;
        for (size_t h = 0, here; h < kv->shape.n_kv_heads; h += here) {
                const size_t left = kv->shape.n_kv_heads - h;
                here = left < at_once ? left : at_once;
                for (size_t i = 0; i < here; i++)
                        dci_gpu_transform_fill(&from->heads[h + i].keys->coder, p->upload + i * n_bytes);
                DCI_TRY(kv->ops->copy(kv->gpu, kv->side, to + h * n_bytes, p->upload, here * n_bytes));
                DCI_TRY(kv->ops->stream_wait(kv->gpu, kv->side));
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_fork_transforms(dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to)
{
        const size_t n_bytes = kv->shape.n_kv_heads * DCI_GPU_TRANSFORM_BYTES(kv->dim);
        for (size_t l = 0; l < kv->n_sparse && kv->planner.kind == DCI_GPU_LEARNED; l++)
                DCI_TRY(kv->ops->copy(kv->gpu, kv->side, row_transforms(kv, l, to), row_transforms(kv, l, from),
                                      n_bytes));
        return DCI_OK;
}

/* --- a prompt's codes --------------------------------------------------------------------------------------------- */

_Static_assert(DCI_GPU_WATCHED_FIRST == DCI_KV_WATCHED_SPAN / DCI_CODE_ROWS &&
                       DCI_GPU_WATCHED_EVERY == DCI_KV_WATCHED && DCI_GPU_CHUNK == DCI_KV_CHUNK,
               "who makes codes knows which residuals are wanted");

static void fit(dci_kv *host, dci_kv_layer *layer, size_t head, size_t area)
{
        dci_kv_build_fit(host, layer, head, dci_kv_prompt_candidates(host, layer->n_prompt),
                         dci_kv_build_area(host, area));
}

/* Whole chunks of heads that were fitted are to be encoded. */
static void fitted(const dci_kv *host, dci_kv_layer *layer)
{
        bool some = false;
        dci_kv_host_former.built(host, layer);
        for (size_t h = 0; h < host->config.n_kv_heads && layer->n_grouped >= DCI_KV_CHUNK; h++)
                some = some || layer->heads[h].keys->coder.kind == DCI_CODER_LEARNED;
        layer->prompt_due = some;
        layer->n_missing = some ? layer->n_grouped / DCI_KV_CHUNK * DCI_KV_CHUNK : 0;
}

void dci_gpu_kv_learned_former(dci_kv_former *former)
{
        former->build = fit;
        former->built = fitted;
}

/* --- the host's part ---------------------------------------------------------------------------------------------- */

typedef struct coding {
        dci_kv *kv;
        dci_kv_layer *layer;
        size_t first;
        const float *residuals;
        size_t ld;
} coding;

static void rest_task(void *arg, size_t task, size_t area)
{
        const coding *c = arg;
        if (c->layer->heads[task].keys->coder.kind == DCI_CODER_LEARNED) /* others are formed */
                dci_kv_build_rest(c->kv, c->layer, task, c->first, c->layer->n_grouped,
                                  c->residuals == NULL ? NULL : c->residuals + task * c->ld,
                                  dci_kv_build_area(c->kv, area));
}

/* The device has codes of the first n_missing candidates of a layer whose prompt is due; residuals, ld apart by head,
 * are those that dci_kv_watch_codes takes. Builds the rest here; all of it if residuals is NULL. */
static dci_status set_codes(dci_kv *kv, dci_kv_layer *layer, const float *residuals, size_t ld)
{
        coding c = {kv, layer, residuals == NULL ? 0 : layer->n_missing, residuals, ld};
        DCI_TRY(dci_kv_lock(kv));
        const size_t n_heads = kv->config.n_kv_heads, tokens = layer->n_grouped - c.first;
        dci_status status =
                dci_kv_spread_build(kv, n_heads, tokens * n_heads * 16 * (kv->dim_k + kv->dim_v), rest_task, &c);
        if (status == DCI_OK) {
                layer->prompt_due = false;
                layer->n_missing = c.first;
        }
        dci_kv_unlock(kv);
        return status;
}

static void missing_task(void *arg, size_t task, size_t area)
{
        const coding *c = arg;
        dci_kv *kv = c->kv;
        const size_t head = task % kv->config.n_kv_heads,
                     chunk = c->first / DCI_KV_CHUNK + task / kv->config.n_kv_heads;
        unsigned char *memory = dci_kv_chunk_head(kv, c->layer, chunk, head);
        dci_kv_head copy = c->layer->heads[head];
        memset(memory, 0, kv->summary_bytes);
        dci_kv_rebuild_chunk(kv, c->layer, head, &copy, chunk, c->layer->n_missing, memory,
                             dci_kv_build_area(kv, area));
}

dci_status dci_gpu_kv_build_missing(dci_kv *kv, dci_kv_layer *layer, size_t first)
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
                status = dci_kv_spread_build(kv, n_chunks * n_heads, n * n_heads * 16 * (kv->dim_k + kv->dim_v),
                                             missing_task, &c);
        if (status == DCI_OK)
                layer->n_missing = first;
        dci_kv_unlock(kv);
        return status;
}

/* --- the device's part -------------------------------------------------------------------------------------------- */

/* Bytes of the residuals of a layer with n candidates. The heads' records follow them, in `upload` as in `work`. */
static size_t residual_bytes(const dci_gpu_kv *kv, size_t n)
{
        return dci_lines(kv->shape.n_kv_heads * (size_t)DCI_GPU_N_WATCHED((int32_t)n) * sizeof(float));
}

size_t dci_gpu_kv_coding_bytes(const dci_gpu_kv *kv)
{
        return dci_gpu_kv_encodes(kv) ? residual_bytes(kv, kv->config.max_tokens) + DCI_GPU_WRITER_BYTES(kv->dim) : 0;
}

/* Queues the encoding of n heads of a layer. */
static dci_status encode_heads(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from,
                               size_t first, size_t n)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t at = residual_bytes(kv, from->n_missing), each = DCI_GPU_WRITER_BYTES(kv->dim);
        dci_gpu_encode_learned_args args = {.n_heads = (int32_t)n,
                                            .dim = (int32_t)kv->dim,
                                            .bits = kv->shape.key_bits,
                                            .dtype = (int32_t)kv->shape.dtype,
                                            .n_candidates = (int32_t)from->n_missing,
                                            .row = (int32_t)dci_gpu_kv_row_number(kv, row),
                                            .sink = (int32_t)kv->shape.sink,
                                            .fused = kv->gpu->context->isa != DCI_ISA_SCALAR,
                                            .pool = dci_gpu_kv_host_pool(kv, layer),
                                            .tables = dci_gpu_kv_tables(kv),
                                            .chunks = dci_gpu_kv_store_chunks(kv, kv->summaries, layer),
                                            .writers = kv->learned->work + at,
                                            .residuals = (float *)(void *)kv->learned->work +
                                                         first * (size_t)DCI_GPU_N_WATCHED((int32_t)from->n_missing)};
        args.pool.layer_at += first * args.pool.head_bytes;
        args.chunks.layer_at += first * args.chunks.head_bytes;
        for (size_t i = 0; i < n; i++)
                dci_gpu_writer_fill(&from->heads[first + i].keys->coder, p->upload + at + i * each);
        DCI_TRY(kv->ops->copy(kv->gpu, kv->side, kv->learned->work + at, p->upload + at, n * each));
        return kv->ops->encode_learned(kv->gpu, kv->side, &args);
}

/* Encodes whole chunks of a layer from the host's rows, and gets the residuals in `upload`. */
static dci_status encode_chunks(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t n_bytes = residual_bytes(kv, from->n_missing),
                     at_once = (p->upload_bytes - n_bytes) / DCI_GPU_WRITER_BYTES(kv->dim);
        for (size_t h = 0, here; h < kv->shape.n_kv_heads; h += here) {
                const size_t left = kv->shape.n_kv_heads - h;
                here = left < at_once ? left : at_once;
                DCI_TRY(encode_heads(kv, row, layer, from, h, here));
                if (left > here) /* before the records in `upload` are overwritten */
                        DCI_TRY(kv->ops->stream_wait(kv->gpu, kv->side));
        }
        DCI_TRY(kv->ops->copy(kv->gpu, kv->side, p->upload, kv->learned->work, n_bytes));
        return kv->ops->stream_wait(kv->gpu, kv->side);
}

/* Encodes a layer; the host does it where some head's keys did not allow a fit. */
static dci_status encode_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, dci_kv_layer *from)
{
        bool fitted = true;
        for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                fitted = fitted && from->heads[h].keys->coder.kind == DCI_CODER_LEARNED;
        if (!fitted)
                return set_codes(kv->host, from, NULL, 0);
        DCI_GPU_KV_TRY(kv, encode_chunks(kv, row, layer, from));
        return set_codes(kv->host, from, (const float *)(const void *)kv->planner.upload,
                         (size_t)DCI_GPU_N_WATCHED((int32_t)from->n_missing));
}

/* Uploads what the prompt gave in this layer: n candidates. */
static dci_status upload_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, dci_kv_layer *from, size_t n)
{
        DCI_TRY(from->prompt_due ? encode_layer(kv, row, layer, from) : dci_gpu_kv_build_missing(kv->host, from, 0));
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_upload_layer(kv, row, layer, from, from->n_missing / DCI_KV_CHUNK,
                                                   dci_gpu_kv_count_chunks(n)));
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_upload_centres(kv, row, layer, from));
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_upload_transforms(kv, row, layer, from));
}

/* The most candidates that a layer encodes: chunks are allocated for these, though other layers may have fewer. */
static size_t max_uncoded(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        size_t most = 0;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (sequence->layers[l].prompt_due && sequence->layers[l].n_missing > most)
                        most = sequence->layers[l].n_missing;
        return most;
}

dci_status dci_gpu_kv_learned_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t n = dci_gpu_kv_host_grouped(kv, sequence), coded = max_uncoded(kv, sequence);
        if (!dci_gpu_kv_encodes(kv))
                return DCI_OK;
        const bool uploads = n > 0 && dci_kv_some_prompt_due(kv->host, sequence);
        if (uploads)
                DCI_TRY(dci_gpu_kv_store_make_exclusive(kv, kv->summaries, kv->side, dci_gpu_kv_row_number(kv, row), 0,
                                                        dci_gpu_kv_count_chunks(n > coded ? n : coded)));
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (uploads && dci_kv_groups(kv->host, l))
                        DCI_TRY(upload_layer(kv, row, l, &sequence->layers[l], n));
                else if (sequence->layers[l].prompt_due) /* some layer has no candidates, so no other is of use there */
                        DCI_TRY(set_codes(kv->host, &sequence->layers[l], NULL, 0));
        if (uploads) {
                row->n_formed = n;
                row->where = DCI_GPU_KV_ON_DEVICE;
        }
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l))
                        DCI_TRY(dci_gpu_kv_build_missing(kv->host, &sequence->layers[l],
                                                         n / DCI_KV_CHUNK * DCI_KV_CHUNK));
        return DCI_OK;
}

dci_status dci_gpu_kv_learned_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        if (!dci_gpu_kv_encodes(kv) || row->where != DCI_GPU_KV_NOWHERE)
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_wait_rows(kv));
        DCI_TRY(dci_kv_wait(kv->host, row->id));
        return dci_kv_some_prompt_due(kv->host, dci_gpu_kv_host_sequence(kv, row)) ? dci_gpu_kv_learned_upload(kv, row)
                                                                                   : DCI_OK;
}

dci_status dci_gpu_kv_learned_settle(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        DCI_TRY(dci_kv_wait(kv->host, row->id));
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (sequence->layers[l].prompt_due)
                        DCI_TRY(set_codes(kv->host, &sequence->layers[l], NULL, 0));
        return DCI_OK;
}

/* --- a prompt that ends in a step which plans --------------------------------------------------------------------- */

dci_status dci_gpu_kv_learned_plan(dci_gpu_kv *kv, size_t layer)
{
        if (kv->planner.kind != DCI_GPU_LEARNED || kv->layers[layer].built)
                return DCI_OK;
        for (size_t i = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                if (!row->step.prompting || row->step.n_formed == 0)
                        continue;
                DCI_TRY(dci_kv_wait(kv->host, row->id));
                if (dci_kv_groups(kv->host, layer)) /* others use the lists of another layer */
                        DCI_TRY(upload_layer(kv, row, layer, &dci_gpu_kv_host_sequence(kv, row)->layers[layer],
                                             row->step.n_formed));
        }
        /* A plan that fails for lack of memory is repeated, so rows are counted only when all succeed. */
        for (size_t i = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                row->step.n_built += row->step.prompting && row->step.n_formed > 0;
        }
        kv->layers[layer].built = true;
        return DCI_OK;
}
