/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The pool of blocks on the device. */
#include "core/internal.h"

#include "offload/pool.h"

/* --- the hook ----------------------------------------------------------------------------------------------------- */

static int32_t refuse(dci_gpu_kv *kv, dci_status status)
{
        dci_gpu_kv_keep_sentence(kv->refusal, sizeof kv->refusal);
        kv->refused = status;
        return 1;
}

static dci_status check_room(const dci_gpu_kv *kv)
{
        if (kv->pool->n_pieces == kv->pool->piece_capacity)
                return dci_fail(DCI_ERR_FULL,
                                "%zu sequences of %zu tokens need %zu pieces of memory at most, which are there",
                                kv->config.max_sequences, kv->config.max_tokens, kv->pool->piece_capacity);
        return dci_gpu_kv_check_device_bytes(kv, kv->pool->dense_piece_bytes);
}

/* The hook is called under the lock of a call that may allocate pieces. */
static int32_t taken(void *ctx, void *memory, size_t n_bytes)
{
        dci_gpu_kv *kv = ctx;
        void *address = NULL;
        unsigned char *dense = NULL;
        dci_status status = check_room(kv);
        if (status == DCI_OK)
                status = kv->ops->pin(kv->gpu, memory, n_bytes, &address);
        if (status != DCI_OK)
                return refuse(kv, status);
        status = dci_gpu_kv_alloc_device(kv, kv->pool->dense_piece_bytes, &dense);
        if (status != DCI_OK) {
                kv->ops->unpin(kv->gpu, memory);
                return refuse(kv, status);
        }
        kv->pool->pieces[kv->pool->n_pieces] = address;
        if (kv->pool->dense_piece_bytes > 0)
                kv->pool->dense_pieces[kv->pool->n_pieces] = dense;
        kv->pool->n_pieces++;
        kv->pool->n_bytes += n_bytes;
        kv->pool->dense_bytes += kv->pool->dense_piece_bytes;
        return 0;
}

/* Pieces are freed only when the object ends, in the order in which they were allocated. */
static void given_back(void *ctx, void *memory, size_t n_bytes)
{
        dci_gpu_kv *kv = ctx;
        kv->ops->unpin(kv->gpu, memory);
        kv->pool->n_bytes -= n_bytes;
        kv->pool->n_pieces--;
        if (kv->pool->dense_piece_bytes > 0) {
                dci_gpu_kv_free_device(kv, kv->pool->dense_pieces[kv->pool->n_pieces], kv->pool->dense_piece_bytes);
                kv->pool->dense_bytes -= kv->pool->dense_piece_bytes;
        }
}

dci_kv_hook dci_gpu_kv_hook(dci_gpu_kv *kv)
{
        return (dci_kv_hook){kv, taken, given_back};
}

/* --- kernel arguments --------------------------------------------------------------------------------------------- */

unsigned char *dci_gpu_kv_host_block(const dci_gpu_kv *kv, size_t layer, int32_t block)
{
        return dci_kv_page_at(kv->host, layer, block, 0).keys;
}

unsigned char *dci_gpu_kv_dense_block(const dci_gpu_kv *kv, size_t layer, int32_t block)
{
        const dci_kv_pool *pool = &kv->host->pool;
        const size_t number = (size_t)block, in_piece = number & (pool->piece_blocks - 1);
        return kv->pool->dense_pieces[number >> pool->piece_shift] +
               (kv->layers[layer].index * pool->piece_blocks + in_piece) * pool->block_bytes;
}

static dci_gpu_pool make_pool(const dci_gpu_kv *kv, unsigned char **pieces, size_t layer)
{
        const dci_kv_pool *pool = &kv->host->pool;
        const size_t page = kv->shape.page_tokens;
        return (dci_gpu_pool){.pieces = pieces,
                              .layer_at = (uint64_t)layer * pool->piece_blocks * pool->block_bytes,
                              .block_bytes = pool->block_bytes,
                              .head_bytes = (uint32_t)(2 * page * kv->row_bytes),
                              .value_at = (uint32_t)(page * kv->row_bytes),
                              .key_bytes = (uint32_t)kv->row_bytes,
                              .value_bytes = (uint32_t)kv->row_bytes,
                              .block_shift = (int32_t)pool->piece_shift,
                              .page_shift = kv->page_shift};
}

dci_gpu_pool dci_gpu_kv_host_pool(const dci_gpu_kv *kv, size_t layer)
{
        return make_pool(kv, kv->pool->device_pieces, layer);
}

dci_gpu_pool dci_gpu_kv_dense_pool(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        return at->dense ? make_pool(kv, kv->pool->device_dense, at->index) : (dci_gpu_pool){.pieces = NULL};
}

dci_gpu_lanes dci_gpu_kv_lanes(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        const size_t n_bytes = kv->n_lists * kv->n_slots * kv->row_bytes;
        if (at->dense)
                return (dci_gpu_lanes){.keys = NULL};
        return (dci_gpu_lanes){.keys = kv->lanes + 2 * at->index * n_bytes,
                               .values = kv->lanes + (2 * at->index + 1) * n_bytes,
                               .key_bytes = (uint32_t)kv->row_bytes,
                               .value_bytes = (uint32_t)kv->row_bytes,
                               .sink = (int32_t)kv->shape.sink,
                               .ring = (int32_t)kv->config.ring_tokens,
                               .hot = (int32_t)kv->config.hot_tokens,
                               .n_slots = (int32_t)kv->n_slots};
}

dci_gpu_tables dci_gpu_kv_tables(const dci_gpu_kv *kv)
{
        return (dci_gpu_tables){kv->pool->device_tables, kv->max_blocks};
}

dci_gpu_sizes dci_gpu_kv_sizes(const dci_gpu_kv *kv)
{
        return (dci_gpu_sizes){.sink = (int32_t)kv->shape.sink,
                               .window = (int32_t)kv->shape.window,
                               .budget = (int32_t)kv->shape.budget,
                               .unit = (int32_t)dci_kv_unit(kv->host)};
}

/* --- uploads ------------------------------------------------------------------------------------------------------ */

dci_status dci_gpu_kv_upload_pieces(dci_gpu_kv *kv, void *stream)
{
        const size_t first = kv->pool->n_uploaded, n = kv->pool->n_pieces - first;
        if (n == 0)
                return DCI_OK;
        DCI_TRY(kv->ops->copy(kv->gpu, stream, kv->pool->device_pieces + first, kv->pool->pieces + first,
                              n * sizeof(void *)));
        if (kv->n_dense > 0)
                DCI_TRY(kv->ops->copy(kv->gpu, stream, kv->pool->device_dense + first, kv->pool->dense_pieces + first,
                                      n * sizeof(void *)));
        kv->pool->n_uploaded = kv->pool->n_pieces;
        return DCI_OK;
}

dci_status dci_gpu_kv_upload_table(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n)
{
        const size_t at = dci_gpu_kv_row_number(kv, row) * kv->max_blocks + first;
        return n == 0 ? DCI_OK
                      : kv->ops->copy(kv->gpu, stream, kv->pool->device_tables + at, kv->pool->tables + at,
                                      n * sizeof *kv->pool->tables);
}

size_t dci_gpu_kv_run_end(const dci_gpu_kv *kv, const int32_t *table, size_t first, size_t end)
{
        const size_t shift = kv->host->pool.piece_shift;
        size_t b = first + 1;
        while (b < end && table[b] == table[b - 1] + 1 && (size_t)table[b] >> shift == (size_t)table[first] >> shift)
                b++;
        return b;
}

dci_status dci_gpu_kv_dense_fill(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n)
{
        const dci_kv_pool *pool = &kv->host->pool;
        const int32_t *table = kv->pool->tables + dci_gpu_kv_row_number(kv, row) * kv->max_blocks;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!kv->layers[l].dense)
                        continue;
                for (size_t b = first, end; b < first + n; b = end) {
                        end = dci_gpu_kv_run_end(kv, table, b, first + n);
                        const size_t n_bytes = (end - b) * pool->block_bytes;
                        DCI_TRY(kv->ops->copy(kv->gpu, stream, dci_gpu_kv_dense_block(kv, l, table[b]),
                                              dci_gpu_kv_host_block(kv, l, table[b]), n_bytes));
                        kv->bytes_refilled += n_bytes;
                }
        }
        return DCI_OK;
}
