/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Sequences of a KV cache on a device. What the host does to one is done with the device idle; then the device's part is made to fit: its
 * table, its dense layers' blocks, resident pages, sink and ring, and a hot buffer that holds nothing wrong.
 */
#include "core/internal.h"

#include <string.h>

#include "offload/offload_internal.h"

static dci_gpu_kv_row *free_row(dci_gpu_kv *kv)
{
        for (size_t r = 0; r < kv->config.max_sequences; r++)
                if (kv->rows[r].id < 0)
                        return &kv->rows[r];
        dci_fail(DCI_ERR_FULL, "there are %zu sequences already, max_sequences", kv->config.max_sequences);
        return NULL;
}

/* --- what lies on the device -------------------------------------------------------------------------------------------------- */

/* Nothing is fetched any more. */
static dci_status empty_hot(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const size_t per_row = kv->shape.n_kv_heads * kv->n_frames;
        dci_status status = DCI_OK;
        row->listed = 0;
        for (size_t l = 0; l < kv->n_sparse && status == DCI_OK && per_row > 0; l++) {
                int32_t *tags = kv->tags + (l * kv->config.max_sequences + dci_gpu_kv_row_at(kv, row)) * per_row;
                if (kv->resolves_on_host)
                        memset(tags, 0xff, per_row * sizeof *tags);
                else
                        status = kv->ops->fill(kv->gpu, kv->side, tags, 0xff, per_row * sizeof *tags);
        }
        return status;
}

/* Sink and ring positions [first, end) from host memory, in all sparse layers. */
static dci_status refill(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t sink_end, size_t first, size_t end)
{
        dci_gpu_item *items = (dci_gpu_item *)(void *)(kv->refill + 2);
        const size_t ring = kv->config.ring_tokens;
        int32_t n = 0;
        for (size_t p = 0; p < sink_end; p++)
                items[n++] = (dci_gpu_item){(int32_t)p, (int32_t)p};
        for (size_t p = first; p < end; p++)
                items[n++] = (dci_gpu_item){(int32_t)p, (int32_t)(kv->shape.sink + (p & (ring - 1)))};
        kv->refill[0] = (int32_t)dci_gpu_kv_row_at(kv, row);
        kv->refill[1] = n;
        dci_status status = DCI_OK;
        for (size_t l = 0; l < kv->shape.n_layers && n > 0 && status == DCI_OK; l++) {
                if (kv->layers[l].dense)
                        continue;
                const dci_gpu_gather_args args = {.n_sequences = 1,
                                                  .n_heads = (int32_t)kv->shape.n_kv_heads,
                                                  .max_items = n,
                                                  .rows = dci_gpu_kv_mapped(kv, kv->refill),
                                                  .items = dci_gpu_kv_mapped(kv, items),
                                                  .n_items = dci_gpu_kv_mapped(kv, kv->refill + 1),
                                                  .pool = dci_gpu_kv_host_pool(kv, l),
                                                  .tables = dci_gpu_kv_tables(kv),
                                                  .lanes = dci_gpu_kv_lanes(kv, l)};
                status = kv->ops->gather(kv->gpu, kv->side, &args);
                kv->bytes_refilled += (uint64_t)n * kv->shape.n_kv_heads * 2 * kv->row_bytes;
        }
        return status;
}

/* Of the ring, what tokens beyond n - ring have taken the place of. */
dci_status dci_gpu_kv_truncate_row(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n, size_t left)
{
        const size_t ring = kv->config.ring_tokens, sink = kv->shape.sink;
        size_t first = left > ring ? left - ring : 0, end = n > ring ? n - ring : 0;
        first = first > sink ? first : sink;
        end = end < left ? end : left;
        dci_status status = DCI_OK;
        if (kv->n_sparse > 0 && end > first)
                status = refill(kv, row, 0, first, end);
        if (status == DCI_OK && left < row->listed)
                status = empty_hot(kv, row);
        if (status == DCI_OK)
                status = kv->ops->stream_wait(kv->gpu, kv->side);
        return dci_gpu_kv_check_device(kv, status);
}

/* All of a sequence that the host has got: n tokens in as many blocks as they need. */
static dci_status fill_row(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n, size_t dense_first)
{
        const size_t ring = kv->config.ring_tokens, sink = kv->shape.sink, n_blocks = dci_gpu_kv_blocks(kv, n);
        int32_t *table = kv->tables + dci_gpu_kv_row_at(kv, row) * kv->max_blocks;
        size_t first = n > ring ? n - ring : 0;
        first = first > sink ? first : sink;
        dci_status status = dci_gpu_kv_upload_pieces(kv, kv->side);
        if (status == DCI_OK)
                status = dci_kv_table(kv->host, row->id, 0, n_blocks, table);
        if (status == DCI_OK)
                status = dci_gpu_kv_upload_table(kv, kv->side, row, 0, n_blocks);
        if (status == DCI_OK && dense_first < n_blocks)
                status = dci_gpu_kv_dense_fill(kv, kv->side, row, dense_first, n_blocks - dense_first);
        if (status == DCI_OK && kv->n_sparse > 0)
                status = refill(kv, row, n < sink ? n : sink, first, n > first ? n : first);
        if (status == DCI_OK)
                status = empty_hot(kv, row);
        if (status == DCI_OK)
                status = kv->ops->stream_wait(kv->gpu, kv->side);
        return dci_gpu_kv_check_device(kv, status);
}

/* --- public ----------------------------------------------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_open(dci_gpu_kv *kv, int64_t *out_sequence)
{
        if (out_sequence == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_sequence is NULL");
        dci_status status = dci_gpu_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        dci_gpu_kv_row *row = free_row(kv);
        int64_t id = -1;
        status = row == NULL ? DCI_ERR_FULL : dci_kv_open(kv->host, &id);
        /* Who had the row before was closed with the device idle; the next step begins behind this. */
        if (status == DCI_OK)
                status = dci_gpu_kv_check_device(kv, empty_hot(kv, row));
        if (status == DCI_OK) {
                *row = (dci_gpu_kv_row){.id = id};
                kv->bad[dci_gpu_kv_row_at(kv, row)] = 0;
                status = dci_gpu_kv_check_device(kv, dci_gpu_kv_planner_open(kv, row));
                *out_sequence = id;
        }
        return dci_gpu_kv_unlock(kv, status);
}

/* A sequence that no step is at, with the device idle. */
static dci_status begin(dci_gpu_kv *kv, int64_t sequence, dci_gpu_kv_row **out)
{
        dci_status status = dci_gpu_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequence);
        status = row == NULL ? DCI_ERR_NOT_FOUND : DCI_OK;
        if (status == DCI_OK && row->stepping)
                status = dci_fail(DCI_ERR_INVALID, "sequence %lld is in the middle of a step: end it, or take it back",
                                  (long long)sequence);
        if (status == DCI_OK)
                status = dci_gpu_kv_drain(kv);
        if (status != DCI_OK)
                dci_gpu_kv_unlock(kv, status);
        *out = row;
        return status;
}

dci_status dci_gpu_kv_fork(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens, int64_t *out_sequence)
{
        dci_gpu_kv_row *from, *to;
        int64_t id = -1;
        if (out_sequence == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_sequence is NULL");
        dci_status status = begin(kv, sequence, &from);
        if (status != DCI_OK)
                return status;
        to = free_row(kv);
        status = to == NULL ? DCI_ERR_FULL : dci_gpu_kv_planner_drain(kv, from);
        if (status == DCI_OK)
                status = dci_gpu_kv_check_host(kv, dci_kv_fork(kv->host, sequence, n_tokens, &id));
        if (status == DCI_OK) {
                *to = (dci_gpu_kv_row){.id = id, .n = n_tokens};
                kv->bad[dci_gpu_kv_row_at(kv, to)] = kv->bad[dci_gpu_kv_row_at(kv, from)];
                /* Whole blocks are shared; the one that is cut has a copy. */
                status = dci_gpu_kv_planner_fork(kv, from, to);
                if (status == DCI_OK)
                        status = fill_row(kv, to, n_tokens, n_tokens >> kv->page_shift);
                if (status == DCI_OK)
                        status = dci_gpu_kv_resident_upload(kv, to);
                if (status != DCI_OK && !kv->broken) {
                        dci_gpu_kv_planner_close(kv, to);
                        to->id = -1;
                        dci_kv_close(kv->host, id);
                }
        }
        if (status == DCI_OK)
                *out_sequence = id;
        return dci_gpu_kv_unlock(kv, status);
}

dci_status dci_gpu_kv_truncate(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens)
{
        dci_gpu_kv_row *row;
        dci_status status = begin(kv, sequence, &row);
        if (status != DCI_OK)
                return status;
        status = dci_gpu_kv_planner_drain(kv, row);
        if (status == DCI_OK)
                status = dci_gpu_kv_check_host(kv, dci_kv_truncate(kv->host, sequence, n_tokens));
        if (status == DCI_OK) {
                const size_t n = row->n;
                row->n = n_tokens;
                status = dci_gpu_kv_resident_sweep(kv);
                dci_gpu_kv_resident_recount(kv, row);
                if (status == DCI_OK)
                        status = dci_gpu_kv_planner_truncate(kv, row, n_tokens);
                if (status == DCI_OK)
                        status = dci_gpu_kv_schedule_truncate(kv, row, n_tokens);
                dci_gpu_kv_boundaries_truncate(row);
                if (status == DCI_OK)
                        status = dci_gpu_kv_truncate_row(kv, row, n, n_tokens);
        }
        return dci_gpu_kv_unlock(kv, status);
}

dci_status dci_gpu_kv_close(dci_gpu_kv *kv, int64_t sequence)
{
        dci_gpu_kv_row *row;
        dci_status status = begin(kv, sequence, &row);
        if (status != DCI_OK)
                return status;
        status = dci_kv_close(kv->host, sequence);
        if (status == DCI_OK) {
                dci_gpu_kv_planner_close(kv, row);
                row->id = -1;
                status = dci_gpu_kv_resident_sweep(kv);
        }
        return dci_gpu_kv_unlock(kv, status);
}

dci_status dci_gpu_kv_save(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens, const char *path)
{
        dci_gpu_kv_row *row;
        dci_status status = begin(kv, sequence, &row);
        if (status != DCI_OK)
                return status;
        if (kv->planner.on)
                status = kv->planner.listed ? dci_gpu_kv_planner_drain(kv, row) : dci_gpu_kv_upload(kv, row);
        return dci_gpu_kv_unlock(kv, status == DCI_OK ? dci_kv_save(kv->host, sequence, n_tokens, path) : status);
}

static dci_status tokens_of(dci_gpu_kv *kv, int64_t sequence, size_t *out)
{
        dci_kv_sequence_info info = {.struct_size = sizeof info};
        const dci_status status = dci_kv_get_sequence(kv->host, sequence, &info);
        *out = info.n_tokens;
        return status;
}

dci_status dci_gpu_kv_load(dci_gpu_kv *kv, const char *path, int64_t *out_sequence)
{
        int64_t id = -1;
        size_t n = 0;
        if (out_sequence == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_sequence is NULL");
        dci_status status = dci_gpu_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        dci_gpu_kv_row *row = free_row(kv);
        status = row == NULL ? DCI_ERR_FULL : dci_gpu_kv_drain(kv);
        if (status == DCI_OK)
                status = dci_gpu_kv_check_host(kv, dci_kv_load(kv->host, path, &id));
        if (status == DCI_OK)
                status = tokens_of(kv, id, &n);
        if (status == DCI_OK && n > kv->config.max_tokens) {
                status = dci_fail(DCI_ERR_LIMIT, "the file has %zu tokens, but max_tokens is %zu", n,
                                  kv->config.max_tokens);
                dci_kv_close(kv->host, id);
        }
        if (status == DCI_OK) {
                *row = (dci_gpu_kv_row){.id = id, .n = n};
                kv->bad[dci_gpu_kv_row_at(kv, row)] = 0;
                status = dci_gpu_kv_check_device(kv, dci_gpu_kv_planner_open(kv, row));
                if (status == DCI_OK)
                        status = fill_row(kv, row, n, 0);
                if (status == DCI_OK && kv->planner.on) {
                        row->behind = true;
                        status = kv->planner.listed ? dci_gpu_kv_planner_drain(kv, row) : dci_gpu_kv_upload(kv, row);
                }
                if (status == DCI_OK)
                        status = dci_gpu_kv_resident_upload(kv, row);
                if (status != DCI_OK && !kv->broken) {
                        dci_gpu_kv_planner_close(kv, row);
                        row->id = -1;
                        dci_kv_close(kv->host, id);
                }
        }
        if (status == DCI_OK)
                *out_sequence = id;
        return dci_gpu_kv_unlock(kv, status);
}
