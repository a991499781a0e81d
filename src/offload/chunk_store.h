/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Chunks of DCI_KV_CHUNK summaries on the device, of which rows are made. They are in pieces of
 *
 *      [sparse layer][chunk]
 *
 * so that a chunk has one number in all layers, and a row one table of numbers. Forks share chunks by counted
 * references; a chunk that is written to belongs to one row.
 *
 * Sizes are set by dci_gpu_kv_store_init, tables are placed by layout.c, pieces are allocated as they are needed and
 * stay until dci_gpu_kv_store_trim, which leaves gaps among the numbers of chunks. dci_gpu_kv_store_ready allocates what
 * the following calls take, so that these cannot fail.
 */
#ifndef DCI_OFFLOAD_CHUNK_STORE_H
#define DCI_OFFLOAD_CHUNK_STORE_H

#include "offload/state.h"

typedef struct dci_gpu_kv_store {
        size_t head_bytes, chunk_bytes;                                        /* of a head's part; of a chunk */
        size_t max_chunks;                                                     /* of a row */
        size_t piece_shift, piece_bytes, piece_capacity, n_pieces, n_uploaded; /* n_pieces: with gaps */
        unsigned char **pieces, **device_pieces;                               /* NULL: a gap */
        int32_t *numbers, *device_numbers; /* [row][max_chunks]; the host's copy is locked */
        size_t *n_chunks;                  /* of each row */
        uint32_t *refs;                    /* by chunk */
        int32_t *free_list;
        size_t n_free;
} dci_gpu_kv_store;

/* Sizes, for rows of at most max_rows summaries. */
void dci_gpu_kv_store_init(dci_gpu_kv *kv, dci_gpu_kv_store *s, size_t head_bytes, size_t max_rows);
void dci_gpu_kv_store_destroy(dci_gpu_kv *kv, dci_gpu_kv_store *s);
/* Frees pieces of which no chunk is in use. The device is idle. */
void dci_gpu_kv_store_trim(dci_gpu_kv *kv, dci_gpu_kv_store *s);
/* Makes sure that n more chunks are free. */
dci_status dci_gpu_kv_store_ready(dci_gpu_kv *kv, dci_gpu_kv_store *s, size_t n);
/* Takes a free chunk for its first owner; takes away one owner. */
int32_t dci_gpu_kv_store_alloc(dci_gpu_kv_store *s);
void dci_gpu_kv_store_free(dci_gpu_kv_store *s, int32_t chunk);
/* Keeps a row's first `left` chunks; shares another row's first n with a row that has none. */
void dci_gpu_kv_store_truncate(dci_gpu_kv_store *s, size_t row, size_t left);
void dci_gpu_kv_store_share(dci_gpu_kv_store *s, size_t from, size_t to, size_t n);
/* Chunks that a row lacks to have n of which those from number `first` on are its own; and getting them. Their contents
 * may be lost. */
size_t dci_gpu_kv_store_missing(const dci_gpu_kv_store *s, size_t row, size_t first, size_t n);
dci_status dci_gpu_kv_store_make_exclusive(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t first,
                                           size_t n);
/* Makes chunk number c of a row its own copy of `from`; one is free. The numbers are not uploaded. */
dci_status dci_gpu_kv_store_copy(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t c, int32_t from);
/* Makes the row's chunks from [0, n) its own, with their contents. Nothing that reads the old numbers is queued. */
dci_status dci_gpu_kv_store_unshare(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t n);
/* Uploads the pointers of new pieces, and a row's numbers from `first` on. */
dci_status dci_gpu_kv_store_upload(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t first);
unsigned char *dci_gpu_kv_store_at(const dci_gpu_kv_store *s, size_t sparse, int32_t chunk);
dci_gpu_chunks dci_gpu_kv_store_chunks(const dci_gpu_kv *kv, const dci_gpu_kv_store *s, size_t layer);

DCI_INLINE int32_t *dci_gpu_kv_store_numbers(const dci_gpu_kv_store *s, size_t row)
{
        return s->numbers + row * s->max_chunks;
}

DCI_INLINE size_t dci_gpu_kv_count_chunks(size_t n)
{
        return (n + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK;
}

#endif
