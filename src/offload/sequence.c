/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Opening, forking, truncating, closing, saving, loading and swapping sequences. */
#include "core/internal.h"

#include <string.h>

#include "offload/boundaries.h"
#include "offload/copies.h"
#include "offload/pool.h"
#include "offload/prompt_kmeans.h"
#include "offload/resident.h"
#include "offload/schedule.h"
#include "offload/sequence.h"
#include "offload/summaries.h"
#include "offload/swap.h"
#include "offload/tree.h"

static dci_gpu_kv_row *free_row(dci_gpu_kv *kv)
{
        for (size_t r = 0; r < kv->config.max_sequences; r++)
                if (kv->rows[r].id < 0)
                        return &kv->rows[r];
        dci_fail(DCI_ERR_FULL, "there are %zu sequences already, max_sequences", kv->config.max_sequences);
        return NULL;
}

/* --- the device's part -------------------------------------------------------------------------------------------- */

/* Copies the sink and positions [first, end) of the ring from host memory, in all sparse layers. */
static dci_status refill(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t sink_end, size_t first, size_t end)
{
        dci_gpu_item *items = (dci_gpu_item *)(void *)(kv->refill + 2);
        const size_t ring = kv->config.ring_tokens;
        int32_t n = 0;
        for (size_t p = 0; p < sink_end; p++)
                items[n++] = (dci_gpu_item){(int32_t)p, (int32_t)p};
        for (size_t p = first; p < end; p++)
                items[n++] = (dci_gpu_item){(int32_t)p, (int32_t)(kv->shape.sink + (p & (ring - 1)))};
        kv->refill[0] = (int32_t)dci_gpu_kv_row_number(kv, row);
        kv->refill[1] = n;
        for (size_t l = 0; l < kv->shape.n_layers && n > 0; l++) {
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
                DCI_TRY(kv->ops->gather(kv->gpu, kv->side, &args));
                kv->bytes_refilled += (uint64_t)n * kv->shape.n_kv_heads * 2 * kv->row_bytes;
        }
        return DCI_OK;
}

/* Tokens that are gone have overwritten older ones in the ring, which come back from host memory. */
dci_status dci_gpu_kv_truncate_row(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n, size_t left)
{
        const size_t ring = kv->config.ring_tokens, sink = kv->shape.sink;
        size_t first = left > ring ? left - ring : 0, end = n > ring ? n - ring : 0;
        first = first > sink ? first : sink;
        end = end < left ? end : left;
        if (kv->n_sparse > 0 && end > first)
                DCI_GPU_KV_TRY(kv, refill(kv, row, 0, first, end));
        if (left < row->hot_end)
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_clear_hot(kv, row));
        return dci_gpu_kv_check_device(kv, kv->ops->stream_wait(kv->gpu, kv->side));
}

/* Copies a sequence of n tokens from the host: tables, dense layers, sink and ring. */
static dci_status fill_row(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n, size_t dense_first)
{
        const size_t ring = kv->config.ring_tokens, sink = kv->shape.sink, n_blocks = dci_gpu_kv_blocks(kv, n);
        int32_t *table = kv->pool->tables + dci_gpu_kv_row_number(kv, row) * kv->max_blocks;
        size_t first = n > ring ? n - ring : 0;
        first = first > sink ? first : sink;
        DCI_TRY(dci_gpu_kv_dense_ready(kv, row, dense_first));
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_upload_pieces(kv, kv->side));
        DCI_GPU_KV_TRY(kv, dci_kv_table(kv->host, row->id, 0, n_blocks, table));
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_upload_table(kv, kv->side, row, 0, n_blocks));
        if (dense_first < n_blocks)
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_dense_fill(kv, kv->side, row, dense_first, n_blocks - dense_first));
        if (kv->n_sparse > 0)
                DCI_GPU_KV_TRY(kv, refill(kv, row, n < sink ? n : sink, first, n > first ? n : first));
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_clear_hot(kv, row));
        return dci_gpu_kv_check_device(kv, kv->ops->stream_wait(kv->gpu, kv->side));
}

/* --- public ------------------------------------------------------------------------------------------------------- */

static dci_status open_row(dci_gpu_kv *kv, int64_t *out_sequence)
{
        dci_gpu_kv_row *row = free_row(kv);
        if (row == NULL)
                return DCI_ERR_FULL;
        int64_t id;
        DCI_TRY(dci_kv_open(kv->host, &id));
        /* The previous sequence of the row was closed with the device idle; the next step is ordered after this. */
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_clear_hot(kv, row));
        *row = (dci_gpu_kv_row){.id = id};
        *out_sequence = id;
        dci_gpu_kv_set_bad(kv, row, 0);
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_planner_open(kv, row));
}

dci_status dci_gpu_kv_open(dci_gpu_kv *kv, int64_t *out_sequence)
{
        if (out_sequence == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_sequence is NULL");
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, open_row(kv, out_sequence));
}

/* Finds a sequence outside of the open step, and waits until the device is idle. out_swapped NULL: it must have a row;
 * else either is found. */
static dci_status find_idle(dci_gpu_kv *kv, int64_t sequence, dci_gpu_kv_row **out, dci_gpu_kv_swapped **out_swapped)
{
        *out = dci_gpu_kv_find(kv, sequence);
        if (out_swapped != NULL)
                *out_swapped = dci_gpu_kv_find_swapped(kv, sequence);
        if (*out == NULL && (out_swapped == NULL || *out_swapped == NULL))
                return dci_gpu_kv_no_row(kv, sequence);
        if (*out != NULL && (*out)->stepping)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld is in the middle of a step: end it, or take it back",
                                (long long)sequence);
        return dci_gpu_kv_drain(kv);
}

/* Locks the object; unlocks it again on failure. */
static dci_status begin(dci_gpu_kv *kv, int64_t sequence, dci_gpu_kv_row **out, dci_gpu_kv_swapped **out_swapped)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        const dci_status status = find_idle(kv, sequence, out, out_swapped);
        return status == DCI_OK ? DCI_OK : dci_gpu_kv_unlock(kv, status);
}

/* Closes a new sequence that could not be filled. */
static dci_status check_filled(dci_gpu_kv *kv, dci_gpu_kv_row *row, dci_status status)
{
        const int64_t id = row->id;
        if (status == DCI_OK || kv->broken)
                return status;
        dci_gpu_kv_planner_close(kv, row);
        row->id = -1;
        dci_kv_close(kv->host, id);
        return status;
}

/* Whole blocks are shared; the partial one is a copy. */
static dci_status fill_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        DCI_TRY(dci_gpu_kv_planner_fork(kv, from, to));
        dci_gpu_kv_copies_fork(kv, from, to);
        DCI_TRY(fill_row(kv, to, to->n, to->n >> kv->page_shift));
        return dci_gpu_kv_resident_upload(kv, to);
}

/* Fills the new row of a sequence that is swapped out, or of its fork: what of its n tokens' summaries is beyond the
 * fork's goes again. */
static dci_status fill_swapped(dci_gpu_kv *kv, const dci_gpu_kv_swapped *from, dci_gpu_kv_row *to)
{
        DCI_TRY(dci_gpu_kv_dense_ready(kv, to, 0));
        DCI_TRY(dci_gpu_kv_swap_restore(kv, from, to));
        if (to->n < from->row.n) {
                DCI_TRY(dci_gpu_kv_planner_truncate(kv, to, to->n));
                DCI_TRY(dci_gpu_kv_schedule_truncate(kv, to, to->n));
        }
        DCI_TRY(fill_row(kv, to, to->n, 0));
        return dci_gpu_kv_resident_upload(kv, to);
}

static dci_status fork_swapped(dci_gpu_kv *kv, dci_gpu_kv_swapped *from, size_t n_tokens, int64_t *out_sequence)
{
        dci_gpu_kv_row *to = free_row(kv);
        if (to == NULL)
                return DCI_ERR_FULL;
        int64_t id;
        DCI_TRY(dci_gpu_kv_swap_settle(kv, from, false));
        DCI_TRY(dci_gpu_kv_check_host(kv, dci_kv_fork(kv->host, from->row.id, n_tokens, &id)));
        *to = (dci_gpu_kv_row){.id = id, .n = n_tokens};
        dci_gpu_kv_set_bad(kv, to, from->bad);
        DCI_TRY(check_filled(kv, to, fill_swapped(kv, from, to)));
        *out_sequence = id;
        return DCI_OK;
}

static dci_status fork_row(dci_gpu_kv *kv, dci_gpu_kv_row *from, size_t n_tokens, int64_t *out_sequence)
{
        dci_gpu_kv_row *to = free_row(kv);
        if (to == NULL)
                return DCI_ERR_FULL;
        int64_t id;
        DCI_TRY(dci_gpu_kv_planner_drain(kv, from));
        DCI_TRY(dci_gpu_kv_check_host(kv, dci_kv_fork(kv->host, from->id, n_tokens, &id)));
        *to = (dci_gpu_kv_row){.id = id, .n = n_tokens};
        dci_gpu_kv_set_bad(kv, to, dci_gpu_kv_bad(kv, from));
        DCI_TRY(check_filled(kv, to, fill_fork(kv, from, to)));
        *out_sequence = id;
        return DCI_OK;
}

dci_status dci_gpu_kv_fork(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens, int64_t *out_sequence)
{
        dci_gpu_kv_row *from;
        dci_gpu_kv_swapped *swapped;
        if (out_sequence == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_sequence is NULL");
        DCI_TRY(begin(kv, sequence, &from, &swapped));
        return dci_gpu_kv_unlock(kv, from != NULL ? fork_row(kv, from, n_tokens, out_sequence)
                                                  : fork_swapped(kv, swapped, n_tokens, out_sequence));
}

static dci_status truncate_sequence(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n_tokens)
{
        const size_t n = row->n;
        DCI_TRY(dci_gpu_kv_planner_drain(kv, row));
        DCI_TRY(dci_gpu_kv_check_host(kv, dci_kv_truncate(kv->host, row->id, n_tokens)));
        row->n = n_tokens;
        dci_gpu_kv_boundaries_truncate(row);
        DCI_TRY(dci_gpu_kv_resident_sweep(kv));
        dci_gpu_kv_resident_recount(kv, row);
        DCI_TRY(dci_gpu_kv_planner_truncate(kv, row, n_tokens));
        DCI_TRY(dci_gpu_kv_schedule_truncate(kv, row, n_tokens));
        return dci_gpu_kv_truncate_row(kv, row, n, n_tokens);
}

dci_status dci_gpu_kv_truncate(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens)
{
        dci_gpu_kv_row *row;
        DCI_TRY(begin(kv, sequence, &row, NULL));
        return dci_gpu_kv_unlock(kv, truncate_sequence(kv, row, n_tokens));
}

static dci_status close_row(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        DCI_TRY(dci_kv_close(kv->host, row->id));
        dci_gpu_kv_planner_close(kv, row);
        row->id = -1;
        return dci_gpu_kv_resident_sweep(kv);
}

static dci_status close_swapped(dci_gpu_kv *kv, dci_gpu_kv_swapped *s)
{
        DCI_TRY(dci_kv_close(kv->host, s->row.id));
        dci_gpu_kv_prompt_kmeans_close(kv, &s->row);
        dci_gpu_kv_swap_free(kv, s);
        return dci_gpu_kv_resident_sweep(kv);
}

dci_status dci_gpu_kv_close(dci_gpu_kv *kv, int64_t sequence)
{
        dci_gpu_kv_row *row;
        dci_gpu_kv_swapped *swapped;
        DCI_TRY(begin(kv, sequence, &row, &swapped));
        return dci_gpu_kv_unlock(kv, row != NULL ? close_row(kv, row) : close_swapped(kv, swapped));
}

/* Host and device have all that is due of the row. */
static dci_status complete(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        if (!kv->planner.on)
                return DCI_OK;
        if (kv->planner.trees)
                return dci_gpu_kv_trees_restore(kv, row);
        return kv->planner.clustered ? dci_gpu_kv_planner_drain(kv, row) : dci_gpu_kv_upload(kv, row);
}

dci_status dci_gpu_kv_save(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens, const char *path)
{
        dci_gpu_kv_row *row;
        dci_gpu_kv_swapped *swapped;
        DCI_TRY(begin(kv, sequence, &row, &swapped));
        const dci_status status = row != NULL ? complete(kv, row) : dci_gpu_kv_swap_settle(kv, swapped, true);
        return dci_gpu_kv_unlock(kv, status == DCI_OK ? dci_kv_save(kv->host, sequence, n_tokens, path) : status);
}

static dci_status check_tokens(dci_gpu_kv *kv, size_t n)
{
        return n <= kv->config.max_tokens ? DCI_OK
                                          : dci_fail(DCI_ERR_LIMIT, "the file has %zu tokens, but max_tokens is %zu", n,
                                                     kv->config.max_tokens);
}

static dci_status fill_loaded(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_planner_open(kv, row));
        DCI_TRY(fill_row(kv, row, row->n, 0));
        if (kv->planner.on)
                row->where = DCI_GPU_KV_ON_HOST;
        DCI_TRY(complete(kv, row));
        return dci_gpu_kv_resident_upload(kv, row);
}

static dci_status load_row(dci_gpu_kv *kv, const char *path, int64_t *out_sequence)
{
        dci_gpu_kv_row *row = free_row(kv);
        dci_kv_sequence_info info = {.struct_size = sizeof info};
        if (row == NULL)
                return DCI_ERR_FULL;
        int64_t id;
        DCI_TRY(dci_gpu_kv_drain(kv));
        DCI_TRY(dci_gpu_kv_check_host(kv, dci_kv_load(kv->host, path, &id)));
        DCI_TRY(dci_kv_get_sequence(kv->host, id, &info));
        const dci_status fits = check_tokens(kv, info.n_tokens);
        if (fits != DCI_OK) {
                dci_kv_close(kv->host, id);
                return fits;
        }
        *row = (dci_gpu_kv_row){.id = id, .n = info.n_tokens};
        dci_gpu_kv_set_bad(kv, row, 0);
        DCI_TRY(check_filled(kv, row, fill_loaded(kv, row)));
        *out_sequence = id;
        return DCI_OK;
}

dci_status dci_gpu_kv_load(dci_gpu_kv *kv, const char *path, int64_t *out_sequence)
{
        if (out_sequence == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_sequence is NULL");
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, load_row(kv, path, out_sequence));
}

/* --- swapping ----------------------------------------------------------------------------------------------------- */

static dci_status swap_out(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_gpu_kv_swapped *s;
        DCI_TRY(dci_gpu_kv_swap_save(kv, row, &s));
        return dci_gpu_kv_swap_leave(kv, row, s);
}

dci_status dci_gpu_kv_swap_out(dci_gpu_kv *kv, int64_t sequence)
{
        dci_gpu_kv_row *row;
        dci_gpu_kv_swapped *swapped;
        DCI_TRY(begin(kv, sequence, &row, &swapped));
        return dci_gpu_kv_unlock(kv, row != NULL ? swap_out(kv, row)
                                                 : dci_fail(DCI_ERR_INVALID, "sequence %lld is swapped out already",
                                                            (long long)sequence));
}

static dci_status swap_in(dci_gpu_kv *kv, dci_gpu_kv_swapped *s)
{
        dci_gpu_kv_row *row = free_row(kv);
        if (row == NULL)
                return DCI_ERR_FULL;
        *row = (dci_gpu_kv_row){.id = s->row.id, .n = s->row.n, .stepped = s->row.stepped};
        dci_gpu_kv_set_bad(kv, row, s->bad);
        const dci_status status = fill_swapped(kv, s, row);
        if (status == DCI_OK) {
                dci_gpu_kv_swap_free(kv, s);
        } else if (!kv->broken) {
                dci_gpu_kv_planner_leave(kv, row);
                row->id = -1;
        }
        return status;
}

dci_status dci_gpu_kv_swap_in(dci_gpu_kv *kv, int64_t sequence)
{
        dci_gpu_kv_row *row;
        dci_gpu_kv_swapped *swapped;
        DCI_TRY(begin(kv, sequence, &row, &swapped));
        return dci_gpu_kv_unlock(
                kv, row == NULL ? swap_in(kv, swapped)
                                : dci_fail(DCI_ERR_INVALID, "sequence %lld is not swapped out", (long long)sequence));
}
