/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Blocks of rows, with counted references: forks share blocks and copy one before they write to it. Pieces of several
 * blocks are allocated together and stay until dci_kv_pool_trim; released blocks return to a free list. With a
 * layout, rows are in the caller's arrays, and with DCI_KV_BLOCKS_BY_CALLER the caller also says which sequence has
 * which block.
 */
#ifndef DCI_KV_POOL_H
#define DCI_KV_POOL_H

#include "kv/kv_internal.h"

dci_status dci_kv_pool_init(dci_kv *kv);
/* kv->copies, of so many layers. */
void dci_kv_pool_init_copies(dci_kv *kv, size_t n_layers);
void dci_kv_pool_destroy(dci_kv *kv, dci_kv_pool *pool);

/* Numbers of blocks in n_pieces pieces. The last piece may have memory for more than max_blocks, which has no
 * numbers. */
size_t dci_kv_pool_blocks(const dci_kv_pool *pool, size_t n_pieces);
/* Of these, blocks that have memory; and the number of the piece that is allocated next. */
size_t dci_kv_pool_there(const dci_kv_pool *pool);
size_t dci_kv_pool_next_piece(const dci_kv_pool *pool);
/* Frees pieces of which no block is in use. */
void dci_kv_pool_trim(dci_kv *kv, dci_kv_pool *pool);
/* Makes n blocks free. For many, the lowest numbers come first, so that neighbours are taken where there are some. */
dci_status dci_kv_pool_ready(dci_kv *kv, dci_kv_pool *pool, size_t n);
/* The bytes that this would allocate. */
size_t dci_kv_pool_bytes(const dci_kv_pool *pool, size_t n);
/* Takes a free block; dci_kv_pool_ready has made one. */
int32_t dci_kv_pool_alloc(dci_kv_pool *pool);
void dci_kv_pool_retain(dci_kv_pool *pool, int32_t block);
void dci_kv_pool_release(dci_kv_pool *pool, int32_t block);

/* Rows of one block and head: slot s is at keys + s * key_step, in bytes. */
typedef struct dci_kv_page {
        unsigned char *keys, *values;
        size_t key_step, value_step;
} dci_kv_page;
dci_kv_page dci_kv_page_at(const dci_kv *kv, size_t layer, int32_t block, size_t head);
/* The same of a contiguous copy, whose layers have numbers of their own; and the candidates of its slots, -1: none. */
dci_kv_page dci_kv_copy_at(const dci_kv *kv, size_t copied, int32_t block, size_t head);
int32_t *dci_kv_copy_ids(const dci_kv *kv, size_t copied, int32_t block, size_t head);
/* Copies the first slots of a block to another, in all layers. */
void dci_kv_copy_rows(const dci_kv *kv, int32_t from, int32_t to, size_t n_slots);

#endif
