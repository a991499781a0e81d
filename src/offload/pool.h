/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The host's pool of blocks as the device sees it. The host's hook locks and maps each piece that the pool allocates,
 * and unlocks it when the pool frees it. Where layers attend to everything, the device gets a piece with the same blocks:
 *
 *      host piece:   [layer][block]          device piece: [dense layer][block]
 *
 * dci_gpu_kv_dense_trim frees device pieces while the device is idle, if no row has a block in them: what is left of
 * them are the host's copies, from which a row gets its blocks back.
 *
 * Each row has a table of its blocks, in locked memory and on the device. Pieces and tables only grow where queued work
 * may read them: their new part is uploaded on the stream of the step that uses it. A gap that is closed is uploaded
 * with all that follows it, which is written again as it is.
 */
#ifndef DCI_OFFLOAD_POOL_H
#define DCI_OFFLOAD_POOL_H

#include "offload/state.h"

typedef struct dci_gpu_kv_pool {
        /* Device addresses, in locked memory; the copies of these tables on the device. */
        unsigned char **pieces, **dense_pieces, **device_pieces, **device_dense;
        size_t n_pieces, n_uploaded, piece_capacity; /* with gaps, which are NULL */
        size_t n_bytes;                              /* of locked pieces */
        size_t dense_bytes, dense_piece_bytes;       /* of all device pieces; of one */
        size_t n_dense_gaps;                         /* pieces without a device piece */
        bool *used;                                  /* by piece: of a trim */
        int32_t *tables, *device_tables;             /* [row][max_blocks] */
} dci_gpu_kv_pool;

/* The hook of the host's cache. */
dci_kv_hook dci_gpu_kv_hook(dci_gpu_kv *kv);
/* Uploads the pointers of new pieces. */
dci_status dci_gpu_kv_upload_pieces(dci_gpu_kv *kv, void *stream);
/* Frees device pieces that no row has a block in; allocates those of a row's blocks from number `first` on. */
void dci_gpu_kv_dense_trim(dci_gpu_kv *kv);
dci_status dci_gpu_kv_dense_ready(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t first);
/* Copies n blocks of the row's table, from number `first` on, from host memory to the dense layers' pieces. */
dci_status dci_gpu_kv_dense_fill(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n);
/* Uploads n entries of the row's table, from number `first` on. */
dci_status dci_gpu_kv_upload_table(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n);
unsigned char *dci_gpu_kv_host_block(const dci_gpu_kv *kv, size_t layer, int32_t block);
/* Of a layer that attends to everything: the block on the device. */
unsigned char *dci_gpu_kv_dense_block(const dci_gpu_kv *kv, size_t layer, int32_t block);

/* Kernel arguments: memory of a layer, tables of all rows, sizes of lists. pieces and keys are NULL where a layer has
 * none. */
dci_gpu_pool dci_gpu_kv_host_pool(const dci_gpu_kv *kv, size_t layer);
dci_gpu_pool dci_gpu_kv_dense_pool(const dci_gpu_kv *kv, size_t layer);
dci_gpu_lanes dci_gpu_kv_lanes(const dci_gpu_kv *kv, size_t layer);
/* Packing of `rows`, whose strides are given: what does not depend on where they go. */
dci_gpu_pack_args dci_gpu_kv_pack_args(const dci_gpu_kv *kv, const dci_kv_rows *rows);
dci_gpu_tables dci_gpu_kv_tables(const dci_gpu_kv *kv);
dci_gpu_sizes dci_gpu_kv_sizes(const dci_gpu_kv *kv);

#endif
