/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The pool as the device has it: pieces as the host takes them, tables of blocks, dense layers' copies. */
#include "core/internal.h"

#include "offload/offload_internal.h"

/* --- the hook ------------------------------------------------------------------------------------------------------------------- */

static int32_t refuse(dci_gpu_kv *kv, dci_status status)
{
        dci_gpu_kv_keep_sentence(kv->refusal, sizeof kv->refusal);
        kv->refused = status;
        return 1;
}

static dci_status check_room(const dci_gpu_kv *kv)
{
        if (kv->n_pieces == kv->piece_capacity)
                return dci_fail(DCI_ERR_FULL,
                                "%zu sequences of %zu tokens need %zu pieces of memory at most, which are there",
                                kv->config.max_sequences, kv->config.max_tokens, kv->piece_capacity);
        return dci_gpu_kv_check_device_bytes(kv, kv->dense_piece_bytes);
}

/* Called under the lock of a call that may take pieces. */
static int32_t taken(void *ctx, void *memory, size_t n_bytes)
{
        dci_gpu_kv *kv = ctx;
        void *address = NULL, *dense = NULL;
        dci_status status = check_room(kv);
        if (status == DCI_OK)
                status = kv->ops->pin(kv->gpu, memory, n_bytes, &address);
        if (status != DCI_OK)
                return refuse(kv, status);
        if (kv->dense_piece_bytes > 0)
                status = kv->ops->alloc(kv->gpu, kv->dense_piece_bytes, &dense);
        if (status != DCI_OK) {
                kv->ops->unpin(kv->gpu, memory);
                return refuse(kv, status);
        }
        kv->pieces[kv->n_pieces] = address;
        if (kv->dense_piece_bytes > 0)
                kv->dense_pieces[kv->n_pieces] = dense;
        kv->n_pieces++;
        kv->pool_bytes += n_bytes;
        kv->dense_bytes += kv->dense_piece_bytes;
        return 0;
}

/* At the end only, in the order they came. */
static void given_back(void *ctx, void *memory, size_t n_bytes)
{
        dci_gpu_kv *kv = ctx;
        kv->ops->unpin(kv->gpu, memory);
        kv->pool_bytes -= n_bytes;
        kv->n_pieces--;
        if (kv->dense_piece_bytes > 0) {
                kv->ops->free(kv->gpu, kv->dense_pieces[kv->n_pieces], kv->dense_piece_bytes);
                kv->dense_bytes -= kv->dense_piece_bytes;
        }
}

dci_kv_hook dci_gpu_kv_hook(dci_gpu_kv *kv)
{
        return (dci_kv_hook){kv, taken, given_back};
}

/* --- where rows lie --------------------------------------------------------------------------------------------------------------- */

unsigned char *dci_gpu_kv_host_block(const dci_gpu_kv *kv, size_t layer, int32_t block)
{
        return dci_kv_page_at(kv->host, layer, block, 0).keys;
}

static dci_gpu_pool pool_of(const dci_gpu_kv *kv, unsigned char **pieces, size_t layer)
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
        return pool_of(kv, kv->device_pieces, layer);
}

dci_gpu_pool dci_gpu_kv_dense_pool(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        return at->dense ? pool_of(kv, kv->device_dense, at->index) : (dci_gpu_pool){.pieces = NULL};
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

dci_gpu_resident dci_gpu_kv_resident_of(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_resident *r = &kv->resident;
        const size_t index = kv->layers[layer].index;
        if (kv->layers[layer].dense || r->n_places == 0)
                return (dci_gpu_resident){.pages = NULL};
        return (dci_gpu_resident){.pages = r->memory + index * r->n_places * kv->host->pool.block_bytes,
                                  .places = r->device_places,
                                  .taken = r->taken + index * kv->n_lists};
}

dci_gpu_tables dci_gpu_kv_tables(const dci_gpu_kv *kv)
{
        return (dci_gpu_tables){kv->device_tables, kv->max_blocks};
}

/* --- what the device is told ------------------------------------------------------------------------------------------------------ */

dci_status dci_gpu_kv_upload_pieces(dci_gpu_kv *kv, void *stream)
{
        const size_t first = kv->n_uploaded, n = kv->n_pieces - first;
        if (n == 0)
                return DCI_OK;
        dci_status status =
                kv->ops->copy(kv->gpu, stream, kv->device_pieces + first, kv->pieces + first, n * sizeof(void *));
        if (status == DCI_OK && kv->n_dense > 0)
                status = kv->ops->copy(kv->gpu, stream, kv->device_dense + first, kv->dense_pieces + first,
                                       n * sizeof(void *));
        if (status == DCI_OK)
                kv->n_uploaded = kv->n_pieces;
        return status;
}

dci_status dci_gpu_kv_upload_table(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n)
{
        const size_t at = dci_gpu_kv_row_at(kv, row) * kv->max_blocks + first;
        return n == 0 ? DCI_OK
                      : kv->ops->copy(kv->gpu, stream, kv->device_tables + at, kv->tables + at, n * sizeof *kv->tables);
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
        const int32_t *table = kv->tables + dci_gpu_kv_row_at(kv, row) * kv->max_blocks;
        dci_status status = DCI_OK;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!kv->layers[l].dense)
                        continue;
                for (size_t b = first, end; b < first + n && status == DCI_OK; b = end) {
                        end = dci_gpu_kv_run_end(kv, table, b, first + n);
                        const size_t block = (size_t)table[b], in_piece = block & (pool->piece_blocks - 1);
                        unsigned char *to = kv->dense_pieces[block >> pool->piece_shift] +
                                            (kv->layers[l].index * pool->piece_blocks + in_piece) * pool->block_bytes;
                        const size_t n_bytes = (end - b) * pool->block_bytes;
                        status = kv->ops->copy(kv->gpu, stream, to, dci_gpu_kv_host_block(kv, l, table[b]), n_bytes);
                        kv->bytes_refilled += n_bytes;
                }
        }
        return status;
}
