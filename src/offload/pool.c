/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The pool of blocks on the device. */
#include "core/internal.h"

#include <string.h>

#include "offload/copies.h"
#include "offload/pool.h"

/* --- the hook ----------------------------------------------------------------------------------------------------- */

static int32_t refuse(dci_gpu_kv *kv, dci_status status)
{
        dci_gpu_kv_keep_sentence(kv->refusal, sizeof kv->refusal);
        kv->refused = status;
        return 1;
}

static dci_status check_room(const dci_gpu_kv *kv, size_t piece)
{
        if (piece == kv->pool->piece_capacity)
                return dci_fail(DCI_ERR_FULL,
                                "there are %zu pieces of memory for keys and values already, the most there can be for "
                                "max_sequences %zu, max_tokens %zu and sequences that are swapped out",
                                kv->pool->piece_capacity, kv->config.max_sequences, kv->config.max_tokens);
        return dci_gpu_kv_check_device_bytes(kv, kv->pool->dense_piece_bytes);
}

/* Allocates the dense layers' part of a piece. */
static dci_status take_dense(dci_gpu_kv *kv, size_t piece)
{
        dci_gpu_kv_pool *pool = kv->pool;
        if (pool->dense_piece_bytes == 0)
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_alloc_device(kv, pool->dense_piece_bytes, &pool->dense_pieces[piece]));
        pool->dense_bytes += pool->dense_piece_bytes;
        pool->n_uploaded = pool->n_uploaded < piece ? pool->n_uploaded : piece;
        return DCI_OK;
}

static void free_dense(dci_gpu_kv *kv, size_t piece)
{
        dci_gpu_kv_pool *pool = kv->pool;
        dci_gpu_kv_free_device(kv, pool->dense_pieces[piece], pool->dense_piece_bytes);
        pool->dense_pieces[piece] = NULL;
        pool->dense_bytes -= pool->dense_piece_bytes;
}

/* The hook is called under the lock of a call that may allocate pieces. */
static int32_t taken(void *ctx, void *memory, size_t n_bytes)
{
        dci_gpu_kv *kv = ctx;
        dci_gpu_kv_pool *pool = kv->pool;
        const size_t piece = dci_kv_pool_next_piece(&kv->host->pool);
        void *address = NULL;
        if (kv->host->asking == &kv->host->copies) {
                const dci_status copies = dci_gpu_kv_copies_taken(kv, memory, n_bytes);
                return copies == DCI_OK ? 0 : refuse(kv, copies);
        }
        dci_status status = check_room(kv, piece);
        if (status == DCI_OK)
                status = kv->ops->pin(kv->gpu, memory, n_bytes, &address);
        if (status != DCI_OK)
                return refuse(kv, status);
        status = take_dense(kv, piece);
        if (status != DCI_OK) {
                kv->ops->unpin(kv->gpu, memory);
                return refuse(kv, status);
        }
        pool->pieces[piece] = address;
        pool->n_pieces = piece < pool->n_pieces ? pool->n_pieces : piece + 1;
        pool->n_uploaded = pool->n_uploaded < piece ? pool->n_uploaded : piece;
        pool->n_bytes += n_bytes;
        return 0;
}

/* Pieces are freed while the device is idle. */
static void given_back(void *ctx, void *memory, size_t n_bytes)
{
        dci_gpu_kv *kv = ctx;
        dci_gpu_kv_pool *pool = kv->pool;
        size_t piece = 0;
        if (kv->host->asking == &kv->host->copies) {
                dci_gpu_kv_copies_given_back(kv, memory, n_bytes);
                return;
        }
        while (kv->host->pool.pieces[piece] != memory)
                piece++;
        kv->ops->unpin(kv->gpu, memory);
        pool->n_bytes -= n_bytes;
        pool->pieces[piece] = NULL;
        if (pool->dense_piece_bytes > 0 && pool->dense_pieces[piece] != NULL)
                free_dense(kv, piece);
        else if (pool->dense_piece_bytes > 0)
                pool->n_dense_gaps--;
        while (pool->n_pieces > 0 && pool->pieces[pool->n_pieces - 1] == NULL)
                pool->n_pieces--;
        pool->n_uploaded = pool->n_uploaded < pool->n_pieces ? pool->n_uploaded : pool->n_pieces;
}

dci_kv_hook dci_gpu_kv_hook(dci_gpu_kv *kv)
{
        return (dci_kv_hook){kv, taken, given_back};
}

/* --- the dense layers' part --------------------------------------------------------------------------------------- */

void dci_gpu_kv_dense_trim(dci_gpu_kv *kv)
{
        dci_gpu_kv_pool *pool = kv->pool;
        const size_t shift = kv->host->pool.piece_shift;
        if (pool->dense_piece_bytes == 0)
                return;
        memset(pool->used, 0, pool->n_pieces * sizeof *pool->used);
        for (size_t r = 0; r < kv->config.max_sequences; r++) {
                if (kv->rows[r].id < 0)
                        continue;
                const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, &kv->rows[r]);
                for (size_t b = 0; b < sequence->n_table; b++)
                        pool->used[(size_t)sequence->table[b] >> shift] = true;
        }
        for (size_t p = 0; p < pool->n_pieces; p++)
                if (pool->pieces[p] != NULL && pool->dense_pieces[p] != NULL && !pool->used[p]) {
                        free_dense(kv, p);
                        pool->n_dense_gaps++;
                }
}

dci_status dci_gpu_kv_dense_ready(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t first)
{
        dci_gpu_kv_pool *pool = kv->pool;
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        for (size_t b = first; b < sequence->n_table && pool->n_dense_gaps > 0; b++) {
                const size_t piece = (size_t)sequence->table[b] >> kv->host->pool.piece_shift;
                if (pool->dense_pieces[piece] != NULL)
                        continue;
                DCI_TRY(take_dense(kv, piece));
                pool->n_dense_gaps--;
        }
        return DCI_OK;
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

dci_gpu_pack_args dci_gpu_kv_pack_args(const dci_gpu_kv *kv, const dci_kv_rows *rows)
{
        return (dci_gpu_pack_args){.keys = rows->keys,
                                   .values = rows->values,
                                   .key_token = rows->key_token_stride * kv->es,
                                   .key_head = rows->key_head_stride * kv->es,
                                   .value_token = rows->value_token_stride * kv->es,
                                   .value_head = rows->value_head_stride * kv->es,
                                   .n_heads = (int32_t)kv->shape.n_kv_heads,
                                   .key_bytes = (uint32_t)kv->row_bytes,
                                   .value_bytes = (uint32_t)kv->row_bytes};
}

dci_gpu_lanes dci_gpu_kv_lanes(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        const size_t n_bytes = kv->n_lanes * kv->n_slots * kv->row_bytes;
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
        const dci_kv_config *c = &kv->host->config;
        return (dci_gpu_sizes){.sink = (int32_t)c->sink,
                               .window = (int32_t)c->window,
                               .budget = (int32_t)c->budget,
                               .unit = (int32_t)dci_kv_unit(kv->host),
                               .fixed = !dci_kv_counts_recent(c),
                               .counted = (int32_t)dci_kv_counted(c),
                               .share = dci_kv_share_units(c),
                               .page = (int32_t)c->page_tokens,
                               .least = (int32_t)dci_kv_least_budget(c)};
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

dci_status dci_gpu_kv_dense_fill(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n)
{
        const dci_kv_pool *pool = &kv->host->pool;
        const int32_t *table = kv->pool->tables + dci_gpu_kv_row_number(kv, row) * kv->max_blocks;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!kv->layers[l].dense)
                        continue;
                for (size_t b = first, end; b < first + n; b = end) {
                        end = dci_gpu_kv_run_end(table, pool->piece_shift, b, first + n);
                        const size_t n_bytes = (end - b) * pool->block_bytes;
                        DCI_TRY(kv->ops->copy(kv->gpu, stream, dci_gpu_kv_dense_block(kv, l, table[b]),
                                              dci_gpu_kv_host_block(kv, l, table[b]), n_bytes));
                        kv->bytes_refilled += n_bytes;
                }
        }
        return DCI_OK;
}
