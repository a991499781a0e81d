/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Prompts' ends. The host forms groups of rows that must have arrived, so an end is written down, with an event of the layer, and told to
 * the host by a later call of the step: as soon as it can be, at the latest by the layer's plan or the step's end.
 */
#include "core/internal.h"

#include <string.h>

#include "offload/offload_internal.h"

/* --- locked memory for queries ----------------------------------------------------------------------------------------------------- */

/* Room for this layer's queries; if there is none, for as many in each layer that is to come. */
static dci_status queries_room(dci_gpu_kv *kv, size_t layer, size_t n_bytes, unsigned char **out)
{
        size_t wanted;
        n_bytes = dci_lines(n_bytes);
        for (dci_gpu_kv_chunk *c = kv->chunks; c != NULL; c = c->next)
                if (c->n_bytes - c->used >= n_bytes) {
                        *out = c->memory + c->used;
                        c->used += n_bytes;
                        return DCI_OK;
                }
        if (!dci_mul(n_bytes, kv->shape.n_layers - layer, &wanted))
                return dci_fail(DCI_ERR_LIMIT, "queries of %zu bytes in each layer are too many", n_bytes);
        dci_gpu_kv_chunk *c = dci_alloc(kv->gpu->context, 1, sizeof *c);
        if (c == NULL)
                return DCI_ERR_MEMORY;
        *c = (dci_gpu_kv_chunk){.next = kv->chunks, .n_bytes = wanted, .used = n_bytes};
        const dci_status status = dci_gpu_kv_pin(kv, wanted, &c->memory, NULL);
        if (status != DCI_OK) {
                dci_free(kv->gpu->context, c, 1, sizeof *c);
                return status;
        }
        kv->chunks = c;
        *out = c->memory;
        return DCI_OK;
}

void dci_gpu_kv_free_chunks(dci_gpu_kv *kv)
{
        for (dci_gpu_kv_chunk *c = kv->chunks, *next; c != NULL; c = next) {
                next = c->next;
                dci_gpu_kv_unpin(kv, c->memory, c->n_bytes);
                dci_free(kv->gpu->context, c, 1, sizeof *c);
        }
        kv->chunks = NULL;
        dci_free(kv->gpu->context, kv->ends, kv->end_capacity, sizeof *kv->ends);
        kv->ends = NULL;
}

static dci_status ends_room(dci_gpu_kv *kv)
{
        if (kv->n_ends < kv->end_capacity)
                return DCI_OK;
        const size_t n = kv->end_capacity == 0 ? kv->shape.n_layers : 2 * kv->end_capacity;
        dci_gpu_kv_prompt_end *larger = dci_alloc(kv->gpu->context, n, sizeof *larger);
        if (larger == NULL)
                return DCI_ERR_MEMORY;
        if (kv->n_ends > 0)
                memcpy(larger, kv->ends, kv->n_ends * sizeof *larger);
        dci_free(kv->gpu->context, kv->ends, kv->end_capacity, sizeof *kv->ends);
        kv->ends = larger;
        kv->end_capacity = n;
        return DCI_OK;
}

/* --- telling the host ---------------------------------------------------------------------------------------------------------------- */

static dci_status hand_over_one(dci_gpu_kv *kv)
{
        const dci_gpu_kv_prompt_end *end = &kv->ends[kv->n_handed];
        const dci_gpu_kv_row *row = &kv->rows[end->row];
        dci_status status = dci_gpu_kv_check_good(kv, row);
        if (status == DCI_OK)
                status = dci_kv_end_prompt(kv->host, end->layer, row->id, end->n_positions, end->queries, end->ld);
        kv->n_handed += status == DCI_OK;
        return status;
}

void dci_gpu_kv_hand_over_ready(dci_gpu_kv *kv)
{
        bool ready = true;
        if (kv->n_handed == kv->n_ends)
                return;
        dci_may_fail(true);
        while (kv->n_handed < kv->n_ends && ready) {
                void *event = kv->layers[kv->ends[kv->n_handed].layer].arrived;
                ready = kv->ops->event_done(kv->gpu, event, &ready) == DCI_OK && ready && hand_over_one(kv) == DCI_OK;
        }
        dci_may_fail(false);
}

dci_status dci_gpu_kv_hand_over(dci_gpu_kv *kv, size_t n)
{
        dci_status status = DCI_OK;
        while (kv->n_handed < n && status == DCI_OK) {
                void *event = kv->layers[kv->ends[kv->n_handed].layer].arrived;
                status = dci_gpu_kv_check_device(kv, kv->ops->event_wait(kv->gpu, event));
                if (status == DCI_OK)
                        status = hand_over_one(kv);
        }
        return status;
}

dci_status dci_gpu_kv_hand_over_layer(dci_gpu_kv *kv, size_t layer)
{
        size_t n = kv->n_ends;
        while (n > kv->n_handed && kv->ends[n - 1].layer != layer)
                n--;
        return dci_gpu_kv_hand_over(kv, n);
}

void dci_gpu_kv_forget_ends(dci_gpu_kv *kv)
{
        kv->n_ends = kv->n_handed = 0;
        for (dci_gpu_kv_chunk *c = kv->chunks; c != NULL; c = c->next)
                c->used = 0;
}

/* --- dci_gpu_kv_end_prompt -------------------------------------------------------------------------------------------- */

/* A sequence of the step that is open. */
static dci_status find_stepping(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, dci_gpu_kv_row **out)
{
        const dci_status status = dci_gpu_kv_check_step(kv, stream, layer);
        if (status != DCI_OK)
                return status;
        *out = dci_gpu_kv_find(kv, sequence);
        if (*out == NULL)
                return DCI_ERR_NOT_FOUND;
        if (!(*out)->stepping)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld is not in the step that is open", (long long)sequence);
        return DCI_OK;
}

static dci_status check(dci_gpu_kv *kv, size_t layer, const dci_gpu_kv_row *row, size_t n_positions,
                        const void *queries, size_t ld, bool *out_looks)
{
        for (size_t i = kv->n_handed; i < kv->n_ends; i++)
                if (kv->ends[i].layer == layer && &kv->rows[kv->ends[i].row] == row)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld, layer %zu: the prompt has ended already",
                                        (long long)row->id, layer);
        const dci_status status =
                dci_kv_check_end_prompt(kv->host, layer, row->id, n_positions, queries, ld, out_looks);
        return status == DCI_OK && n_positions > 0 ? kv->ops->pointer_check(kv->gpu, queries, "queries") : status;
}

/* All before it on the stream, and what is still copied beside it. */
static dci_status mark_arrival(dci_gpu_kv *kv, void *stream, size_t layer)
{
        dci_status status = kv->ops->event_record(kv->gpu, kv->main_event, stream);
        if (status == DCI_OK)
                status = kv->ops->event_order(kv->gpu, kv->side, kv->main_event);
        return status == DCI_OK ? kv->ops->event_record(kv->gpu, kv->layers[layer].arrived, kv->side) : status;
}

static dci_status prompt(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, size_t n_positions,
                         const void *queries, size_t ld)
{
        bool looks = false;
        size_t rows, n_bytes = 0;
        unsigned char *copy = NULL;
        dci_gpu_kv_row *row = NULL;
        dci_status status = find_stepping(kv, stream, layer, sequence, &row);
        if (status == DCI_OK)
                status = check(kv, layer, row, n_positions, queries, ld, &looks);
        if (status != DCI_OK)
                return status;
        /* What lies between the rows comes along. */
        if (looks && (!dci_mul(n_positions, kv->shape.n_query_heads, &rows) || !dci_mul(rows - 1, ld, &n_bytes) ||
                      !dci_mul(n_bytes + kv->dim, kv->query_es, &n_bytes)))
                return dci_fail(DCI_ERR_LIMIT, "queries of %zu positions, %zu elements apart, are too many",
                                n_positions, ld);
        if (kv->planner.on && kv->planner.kind != DCI_GPU_LEARNED) {
                status = dci_kv_end_prompt(kv->host, layer, sequence, n_positions, queries, ld);
                return status == DCI_OK && !kv->layers[layer].dense ? dci_gpu_kv_build_prompt(kv, layer, row) : status;
        }
        status = ends_room(kv);
        if (status == DCI_OK && looks)
                status = queries_room(kv, layer, n_bytes, &copy);
        if (status != DCI_OK)
                return status;
        if (looks)
                status = kv->ops->copy(kv->gpu, stream, copy, queries, n_bytes);
        if (status == DCI_OK)
                status = mark_arrival(kv, stream, layer);
        if (status != DCI_OK)
                return dci_gpu_kv_check_device(kv, status);
        kv->ends[kv->n_ends++] = (dci_gpu_kv_prompt_end){.layer = layer,
                                                         .row = dci_gpu_kv_row_at(kv, row),
                                                         .n_positions = looks ? n_positions : 0,
                                                         .ld = ld,
                                                         .queries = copy};
        dci_gpu_kv_hand_over_ready(kv);
        return DCI_OK;
}

static dci_status name_rows(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, const dci_kv_rows *rows)
{
        dci_gpu_kv_row *row = NULL;
        dci_status status = find_stepping(kv, stream, layer, sequence, &row);
        if (status == DCI_OK)
                status = dci_gpu_kv_check_rows(kv, rows, &kv->layers[layer].prompt_rows);
        if (status == DCI_OK)
                kv->layers[layer].prompt_sequence = sequence;
        return status;
}

dci_status dci_gpu_kv_prompt_rows(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, const dci_kv_rows *rows)
{
        const dci_status status = dci_gpu_kv_lock(kv);
        return status != DCI_OK ? status : dci_gpu_kv_unlock(kv, name_rows(kv, stream, layer, sequence, rows));
}

dci_status dci_gpu_kv_end_prompt(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, size_t n_positions,
                                 const void *queries, size_t ld)
{
        const dci_status status = dci_gpu_kv_lock(kv);
        return status != DCI_OK ? status
                                : dci_gpu_kv_unlock(kv, prompt(kv, stream, layer, sequence, n_positions, queries, ld));
}
