/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Blocks of rows. The library's own memory comes in pieces of a power of two of blocks, each with all layers:
 *
 *      piece: [layer][block][head][K: slot][dim_k], [V: slot][dim_v]
 *
 * so that a page is contiguous and a piece, which begins and ends with a memory page, can be pinned at once. A piece
 * that dci_kv_pool_trim has freed leaves a gap among the numbers of blocks, which the next piece closes.
 *
 * The pool of contiguous copies (contiguous.h) has the layers that have copies, and after its rows the candidates that
 * these are of: [layer][block][head][slot].
 */
#include "core/internal.h"

#include <string.h>

#include "kv/memory.h"
#include "kv/pool.h"

enum { ORDERED = 32 }; /* blocks at a time, from which on it matters that they are neighbours */

/* Sizes of blocks with so many layers, and bytes after the rows of each; pieces are the smaller the fewer layers.
 * Limits of the config keep these products small. */
static void measure(const dci_kv *kv, dci_kv_pool *pool, size_t n_layers, size_t id_bytes)
{
        const dci_kv_config *config = &kv->config;
        const size_t rows = config->page_tokens * config->n_kv_heads * (kv->dim_k + kv->dim_v) * kv->es;
        pool->n_layers = n_layers;
        pool->id_bytes = id_bytes;
        pool->block_bytes = dci_lines(rows);
        const size_t wanted =
                             config->piece_bytes / config->n_layers * n_layers + config->piece_bytes % config->n_layers,
                     all_layers = (pool->block_bytes + id_bytes) * n_layers;
        while (((size_t)1 << pool->piece_shift) * pool->block_bytes * n_layers < wanted)
                pool->piece_shift++;
        pool->piece_blocks = (size_t)1 << pool->piece_shift;
        pool->piece_bytes = (pool->piece_blocks * all_layers + DCI_MEMORY_PAGE - 1) / DCI_MEMORY_PAGE * DCI_MEMORY_PAGE;
}

dci_status dci_kv_pool_init(dci_kv *kv)
{
        const dci_kv_config *config = &kv->config;
        dci_kv_pool *pool = &kv->pool;
        const size_t slots_of_block = config->page_tokens * config->n_kv_heads;
        pool->max_blocks = INT32_MAX / slots_of_block;
        if (config->layout != NULL) {
                if (kv->layout.n_blocks > pool->max_blocks)
                        return dci_fail(DCI_ERR_LIMIT, "the layout has %zu blocks of %zu slots, but there can be %zu",
                                        kv->layout.n_blocks, slots_of_block, pool->max_blocks);
                pool->max_blocks = kv->layout.n_blocks;
                DCI_TRY(dci_kv_grow(kv, (void **)&pool->refs, &pool->block_capacity, pool->max_blocks,
                                    sizeof *pool->refs));
                if (kv->layout.blocks_by == DCI_KV_BLOCKS_BY_LIBRARY)
                        DCI_TRY(dci_kv_grow(kv, (void **)&pool->free_list, &pool->free_capacity, pool->max_blocks,
                                            sizeof *pool->free_list));
                if (kv->layout.blocks_by == DCI_KV_BLOCKS_BY_CALLER)
                        DCI_TRY(dci_kv_grow(kv, (void **)&pool->seen, &pool->seen_capacity, pool->max_blocks,
                                            sizeof *pool->seen));
                if (pool->seen != NULL)
                        memset(pool->seen, 0, pool->max_blocks * sizeof *pool->seen);
                memset(pool->refs, 0, pool->max_blocks * sizeof *pool->refs);
                pool->n_blocks = pool->max_blocks;
                pool->caller_blocks = kv->layout.blocks_by == DCI_KV_BLOCKS_BY_CALLER;
                if (kv->layout.blocks_by == DCI_KV_BLOCKS_BY_LIBRARY)
                        for (pool->n_free = 0; pool->n_free < pool->n_blocks; pool->n_free++)
                                pool->free_list[pool->n_free] = (int32_t)(pool->n_blocks - 1 - pool->n_free);
                return DCI_OK;
        }
        measure(kv, pool, config->n_layers, 0);
        return DCI_OK;
}

void dci_kv_pool_init_copies(dci_kv *kv, size_t n_layers)
{
        const size_t slots_of_block = kv->config.page_tokens * kv->config.n_kv_heads;
        kv->copies.max_blocks = INT32_MAX / slots_of_block;
        measure(kv, &kv->copies, n_layers, slots_of_block * sizeof(int32_t));
}

static int32_t tell(dci_kv *kv, const dci_kv_pool *pool, bool taken, void *memory)
{
        const dci_kv_hook *hook = &kv->config.hook;
        int32_t refused = 0;
        dci_busy_mark mark;
        dci_busy_enter(&mark, kv);
        kv->asking = pool;
        if (taken && hook->taken != NULL)
                refused = hook->taken(hook->ctx, memory, pool->piece_bytes);
        if (!taken && hook->given_back != NULL)
                hook->given_back(hook->ctx, memory, pool->piece_bytes);
        dci_busy_leave(&mark);
        return refused;
}

void dci_kv_pool_destroy(dci_kv *kv, dci_kv_pool *pool)
{
        for (size_t p = 0; p < pool->n_pieces; p++) {
                if (pool->pieces[p] == NULL)
                        continue;
                tell(kv, pool, false, pool->pieces[p]);
                dci_kv_free(kv, pool->pieces[p], pool->piece_bytes);
        }
        dci_kv_free(kv, pool->pieces, pool->piece_capacity * sizeof(unsigned char *));
        dci_kv_free(kv, pool->seen, pool->seen_capacity * sizeof *pool->seen);
        dci_kv_free(kv, pool->refs, pool->block_capacity * sizeof *pool->refs);
        dci_kv_free(kv, pool->free_list, pool->free_capacity * sizeof *pool->free_list);
}

size_t dci_kv_pool_blocks(const dci_kv_pool *pool, size_t n_pieces)
{
        const size_t n = n_pieces << pool->piece_shift;
        return n < pool->max_blocks ? n : pool->max_blocks;
}

/* The end of the pieces when n_pieces more are there, of which the first close gaps. */
static size_t pieces_after(const dci_kv_pool *pool, size_t n_pieces)
{
        return pool->n_pieces + (n_pieces > pool->n_gaps ? n_pieces - pool->n_gaps : 0);
}

size_t dci_kv_pool_next_piece(const dci_kv_pool *pool)
{
        size_t p = pool->n_gaps > 0 ? 0 : pool->n_pieces;
        while (p < pool->n_pieces && pool->pieces[p] != NULL)
                p++;
        return p;
}

size_t dci_kv_pool_there(const dci_kv_pool *pool)
{
        size_t n = pool->n_blocks;
        for (size_t p = 0; p < pool->n_pieces && pool->n_gaps > 0; p++)
                if (pool->pieces[p] == NULL)
                        n -= dci_kv_pool_blocks(pool, p + 1) - dci_kv_pool_blocks(pool, p);
        return n;
}

static dci_status grow_lists(dci_kv *kv, dci_kv_pool *pool, size_t n_pieces)
{
        const size_t after = pieces_after(pool, n_pieces), n = dci_kv_pool_blocks(pool, after);
        void *pieces;
        dci_status status =
                dci_kv_grow_shared(kv, pool->pieces, &pool->piece_capacity, after, sizeof(unsigned char *), &pieces);
        if (status == DCI_OK) {
                pool->pieces = pieces;
                status = dci_kv_grow(kv, (void **)&pool->refs, &pool->block_capacity, n, sizeof *pool->refs);
        }
        if (status == DCI_OK)
                status = dci_kv_grow(kv, (void **)&pool->free_list, &pool->free_capacity, n, sizeof *pool->free_list);
        return status;
}

/* Bytes of the pool's pieces, as dci_kv_info counts them. */
static size_t *bytes_of(dci_kv *kv, const dci_kv_pool *pool)
{
        return pool == &kv->pool ? &kv->row_bytes : &kv->copy_bytes;
}

static dci_status add_piece(dci_kv *kv, dci_kv_pool *pool)
{
        const size_t p = dci_kv_pool_next_piece(pool), first = dci_kv_pool_blocks(pool, p),
                     end = dci_kv_pool_blocks(pool, p + 1), more = end - first;
        void *memory;
        DCI_TRY(dci_kv_alloc_pages(kv, pool->piece_bytes, &memory));
        const int32_t refused = tell(kv, pool, true, memory);
        if (refused != 0) {
                dci_kv_free(kv, memory, pool->piece_bytes);
                return dci_fail(DCI_ERR_FULL, "the hook refused %zu bytes of keys and values with %d",
                                pool->piece_bytes, (int)refused);
        }
        pool->pieces[p] = memory;
        *bytes_of(kv, pool) += pool->piece_bytes;
        /* Low numbers are taken first. */
        pool->ordered = pool->ordered && (p == pool->n_pieces || pool->n_free == 0);
        memmove(pool->free_list + more, pool->free_list, pool->n_free * sizeof *pool->free_list);
        for (size_t i = 0; i < more; i++) {
                pool->refs[first + i] = 0;
                pool->free_list[i] = (int32_t)(end - 1 - i);
        }
        pool->n_free += more;
        if (p < pool->n_pieces) {
                pool->n_gaps--;
        } else {
                pool->n_pieces++;
                pool->n_blocks = end;
        }
        return DCI_OK;
}

size_t dci_kv_pool_bytes(const dci_kv_pool *pool, size_t n)
{
        if (n <= pool->n_free || pool->block_bytes == 0)
                return 0;
        const size_t n_pieces = (n - pool->n_free + pool->piece_blocks - 1) >> pool->piece_shift;
        const size_t after = pieces_after(pool, n_pieces), n_blocks = dci_kv_pool_blocks(pool, after);
        size_t n_bytes;
        if (!dci_mul(n_pieces, pool->piece_bytes, &n_bytes) || n_bytes > SIZE_MAX / 2)
                return SIZE_MAX / 2;
        return n_bytes + dci_kv_grow_bytes(pool->piece_capacity, after, sizeof(unsigned char *)) +
               dci_kv_grow_bytes(pool->block_capacity, n_blocks, sizeof *pool->refs) +
               dci_kv_grow_bytes(pool->free_capacity, n_blocks, sizeof *pool->free_list);
}

/* Sorts the free list, so that a prompt gets neighbouring blocks in whatever order blocks were released: neighbours are
 * copied to or from a device together. */
static void order_free(dci_kv_pool *pool, size_t n)
{
        if (n < ORDERED || pool->ordered || pool->caller_blocks)
                return;
        size_t found = 0;
        for (size_t b = pool->n_blocks; b-- > 0;)
                if (pool->refs[b] == 0 && (pool->n_gaps == 0 || pool->pieces[b >> pool->piece_shift] != NULL))
                        pool->free_list[found++] = (int32_t)b;
        pool->ordered = true;
}

/* If a piece cannot be allocated, those before it stay for the next call. */
static dci_status add_pieces(dci_kv *kv, dci_kv_pool *pool, size_t n)
{
        const size_t missing = n - pool->n_free, there = dci_kv_pool_there(pool);
        if (pool->block_bytes == 0 || missing > pool->max_blocks - there)
                return dci_fail(DCI_ERR_FULL, "%zu blocks are wanted, %zu of %zu are free", n, pool->n_free, there);
        const size_t n_pieces = (missing + pool->piece_blocks - 1) >> pool->piece_shift;
        DCI_TRY(dci_kv_check_room(kv, dci_kv_pool_bytes(pool, n)));
        DCI_TRY(grow_lists(kv, pool, n_pieces));
        for (size_t p = 0; p < n_pieces; p++)
                DCI_TRY(add_piece(kv, pool));
        return DCI_OK;
}

dci_status dci_kv_pool_ready(dci_kv *kv, dci_kv_pool *pool, size_t n)
{
        const dci_status status = n <= pool->n_free ? DCI_OK : add_pieces(kv, pool, n);
        if (status == DCI_OK)
                order_free(pool, n);
        return status;
}

static bool is_unused(const dci_kv_pool *pool, size_t piece)
{
        size_t b = dci_kv_pool_blocks(pool, piece);
        const size_t end = dci_kv_pool_blocks(pool, piece + 1);
        while (b < end && pool->refs[b] == 0)
                b++;
        return pool->pieces[piece] != NULL && b == end;
}

void dci_kv_pool_trim(dci_kv *kv, dci_kv_pool *pool)
{
        size_t n = 0;
        if (pool->block_bytes == 0)
                return;
        for (size_t p = pool->n_pieces; p-- > 0;) {
                if (!is_unused(pool, p))
                        continue;
                tell(kv, pool, false, pool->pieces[p]);
                dci_kv_free(kv, pool->pieces[p], pool->piece_bytes);
                *bytes_of(kv, pool) -= pool->piece_bytes;
                pool->pieces[p] = NULL; /* no worker reads blocks of it */
                pool->n_gaps++;
        }
        for (size_t i = 0; i < pool->n_free; i++)
                if (pool->pieces[(size_t)pool->free_list[i] >> pool->piece_shift] != NULL)
                        pool->free_list[n++] = pool->free_list[i];
        pool->n_free = n;
        while (pool->n_pieces > 0 && pool->pieces[pool->n_pieces - 1] == NULL) {
                pool->n_pieces--;
                pool->n_gaps--;
                pool->n_blocks = dci_kv_pool_blocks(pool, pool->n_pieces);
        }
}

int32_t dci_kv_pool_alloc(dci_kv_pool *pool)
{
        const int32_t block = pool->free_list[--pool->n_free];
        pool->refs[block] = 1;
        return block;
}

void dci_kv_pool_retain(dci_kv_pool *pool, int32_t block)
{
        pool->refs[block]++;
}

void dci_kv_pool_release(dci_kv_pool *pool, int32_t block)
{
        if (--pool->refs[block] > 0 || pool->caller_blocks)
                return;
        pool->ordered = pool->ordered && (pool->n_free == 0 || block < pool->free_list[pool->n_free - 1]);
        pool->free_list[pool->n_free++] = block;
}

static dci_kv_page page_in(const dci_kv *kv, const dci_kv_pool *pool, size_t layer, size_t b, size_t head)
{
        const size_t page_bytes = kv->config.page_tokens * (kv->dim_k + kv->dim_v) * kv->es;
        /* By name, since GCC 12 reads an atomic pointer that is indexed as another. */
        unsigned char *const *pieces = atomic_load_explicit(&pool->pieces, memory_order_acquire);
        unsigned char *page = pieces[b >> pool->piece_shift] +
                              (layer * pool->piece_blocks + (b & (pool->piece_blocks - 1))) * pool->block_bytes +
                              head * page_bytes;
        return (dci_kv_page){.keys = page,
                             .values = page + kv->config.page_tokens * kv->dim_k * kv->es,
                             .key_step = kv->dim_k * kv->es,
                             .value_step = kv->dim_v * kv->es};
}

dci_kv_page dci_kv_copy_at(const dci_kv *kv, size_t copied, int32_t block, size_t head)
{
        return page_in(kv, &kv->copies, copied, (size_t)block, head);
}

int32_t *dci_kv_copy_ids(const dci_kv *kv, size_t copied, int32_t block, size_t head)
{
        const dci_kv_pool *pool = &kv->copies;
        const size_t b = (size_t)block, in_piece = b & (pool->piece_blocks - 1);
        unsigned char *const *pieces = atomic_load_explicit(&pool->pieces, memory_order_acquire);
        unsigned char *ids = pieces[b >> pool->piece_shift] + pool->n_layers * pool->piece_blocks * pool->block_bytes +
                             (copied * pool->piece_blocks + in_piece) * pool->id_bytes;
        return (int32_t *)(void *)ids + head * kv->config.page_tokens;
}

dci_kv_page dci_kv_page_at(const dci_kv *kv, size_t layer, int32_t block, size_t head)
{
        const size_t b = (size_t)block, es = kv->es;
        if (kv->config.layout != NULL) {
                const dci_kv_layout *l = &kv->layout;
                return (dci_kv_page){.keys = (unsigned char *)l->keys[layer] +
                                             (b * l->key_page_stride + head * l->key_head_stride) * es,
                                     .values = (unsigned char *)l->values[layer] +
                                               (b * l->value_page_stride + head * l->value_head_stride) * es,
                                     .key_step = l->key_slot_stride * es,
                                     .value_step = l->value_slot_stride * es};
        }
        return page_in(kv, &kv->pool, layer, b, head);
}

void dci_kv_copy_rows(const dci_kv *kv, int32_t from, int32_t to, size_t n_slots)
{
        for (size_t l = 0; l < kv->config.n_layers; l++)
                for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                        const dci_kv_page source = dci_kv_page_at(kv, l, from, h),
                                          target = dci_kv_page_at(kv, l, to, h);
                        for (size_t s = 0; s < n_slots; s++) {
                                memcpy(target.keys + s * target.key_step, source.keys + s * source.key_step,
                                       kv->dim_k * kv->es);
                                memcpy(target.values + s * target.value_step, source.values + s * source.value_step,
                                       kv->dim_v * kv->es);
                        }
                }
}
