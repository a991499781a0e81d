/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Contiguous copies (kv/contiguous.h) as the device sees them. Plans stay lists of positions. The device has the places
 * of candidates, in chunks like summaries (chunk_store.h): the row of the copy that each candidate is. Resolving finds
 * these rows, the hot buffer has units of them, and gathering reads units in the copy, whose blocks have a table of their
 * own for each row. Candidates without a place, as those of a prompt that ended in the open step, are read where they
 * are by position.
 *
 * Before a step, after the host has built what is due, copies are brought up to date. Then the device gets the chunks of
 * places that have changed, and forgets the units of pages that have. That waits for earlier steps, and happens only
 * where lists have changed. Forks share chunks.
 */
#ifndef DCI_OFFLOAD_COPIES_H
#define DCI_OFFLOAD_COPIES_H

#include "kv/contiguous.h"
#include "offload/chunk_store.h"

#define DCI_GPU_KV_CHANGES ((size_t)4096) /* units that are forgotten in one launch */

typedef struct dci_gpu_kv_copies {
        bool on;
        /* Device addresses of pieces of host->copies, in locked memory; and on the device. */
        unsigned char **pieces, **device_pieces;
        size_t n_pieces, n_uploaded, piece_capacity; /* with gaps, which are NULL */
        size_t n_bytes;                              /* of locked pieces */
        size_t max_blocks;                           /* of a sequence */
        int32_t *tables, *device_tables;             /* [row][max_blocks]; locked, and on the device */
        dci_gpu_kv_store places;
        int32_t *changes;      /* locked: units to forget */
        unsigned char *upload; /* locked */
        size_t upload_bytes;
} dci_gpu_kv_copies;

/* What a unit of fetching is: whole pages, or where groups are clusters a few rows, since these begin anywhere. */
int32_t dci_gpu_kv_copies_unit(const dci_kv_config *shape);
/* Refuses ways of fetching that contiguous copies do not go with. */
dci_status dci_gpu_kv_can_copy(const dci_kv_config *shape, const dci_gpu_kv_config *config);
/* Sizes; the host exists. */
void dci_gpu_kv_copies_init(dci_gpu_kv *kv);
void dci_gpu_kv_copies_destroy(dci_gpu_kv *kv);
void dci_gpu_kv_copies_trim(dci_gpu_kv *kv);

/* Of the hook: a piece of host->copies. */
dci_status dci_gpu_kv_copies_taken(dci_gpu_kv *kv, void *memory, size_t n_bytes);
void dci_gpu_kv_copies_given_back(dci_gpu_kv *kv, void *memory, size_t n_bytes);

/* Before a step: brings the copies of its sequences up to date, or refuses it. */
dci_status dci_gpu_kv_copies_reserve(dci_gpu_kv *kv);
/* The same of what the host's reservation has built early; without memory, rows are read by position in this step. Fails
 * only with the device. */
dci_status dci_gpu_kv_copies_follow(dci_gpu_kv *kv);
/* A fork has the places of the row that it comes from; a row without a sequence has none. */
void dci_gpu_kv_copies_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to);
void dci_gpu_kv_copies_leave(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* Candidates of a row that have places. */
size_t dci_gpu_kv_copies_count(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);

/* Kernel arguments. */
dci_gpu_pool dci_gpu_kv_copy_pool(const dci_gpu_kv *kv, size_t layer);
dci_gpu_tables dci_gpu_kv_copy_tables(const dci_gpu_kv *kv);
dci_gpu_chunks dci_gpu_kv_places(const dci_gpu_kv *kv, size_t layer);

#endif
