/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Pages of sparse layers that stay on the device as long as there is room. All of it is allocated when the object is
 * created, and cut into slots of one block in every sparse layer: [sparse layer][slot]. A table by block says which
 * slot a block has, or none. Forks share a page's slot as they share its block; append and gather find it by one more
 * read, which overlaps that of the piece.
 *
 * A page that has a slot has all its rows there: a block gets one when a step takes the block, before its first row is
 * stored, or by a copy from host memory. Eviction copies nothing, since host memory has every row: the slot is given to
 * another block. The table changes in stream order, after the gathers of earlier steps, by a kernel that reads the
 * changes in locked memory from the step's ring of records; or while the device is idle. A freed block loses its slot
 * before it can be taken again: by then the device is idle.
 *
 * Pages of sequences outside of the step are evicted first, of the sequence that was stepped least recently, its oldest
 * first; then the oldest of the step's sequence that has the most, since each of them fetches as much whatever its
 * length. A page that several sequences have counts for the one that was stepped last. Old pages go before new ones, as
 * attention is mostly to recent tokens, and no list of reads is needed, which only the device would know.
 */
#ifndef DCI_OFFLOAD_RESIDENT_H
#define DCI_OFFLOAD_RESIDENT_H

#include "offload/pool.h"

typedef struct dci_gpu_kv_resident {
        size_t n_slots, n_free, n_bytes;      /* n_slots 0: there are none, and all calls do nothing */
        unsigned char *memory;                /* on the device: [sparse layer][slot][block] */
        int32_t *slots, *device_slots;        /* by block: its slot, or -1 */
        int32_t *blocks, *free_list;          /* by slot: its block, or -1 */
        int32_t *changes[DCI_GPU_KV_RECORDS]; /* locked, of a step: blocks and their slots */
        size_t n_changes;
        uint64_t *taken; /* on the device: [sparse layer][row][head], units that gathers found there */
} dci_gpu_kv_resident;

dci_gpu_resident dci_gpu_kv_resident_pages(const dci_gpu_kv *kv, size_t layer);
/* When a step begins, on its stream, after the tables are written: its new pages get slots, for which others may be
 * evicted. */
dci_status dci_gpu_kv_resident_step(dci_gpu_kv *kv);
/* The row is about to get its own copy of this block in its table. */
void dci_gpu_kv_resident_copied(dci_gpu_kv *kv, dci_gpu_kv_row *row, int32_t block);
/* While the device is idle: after blocks were freed; after a row was truncated; after its sequence, which keeps its
 * blocks, has lost it; copying a row's pages as far as slots are free. */
dci_status dci_gpu_kv_resident_sweep(dci_gpu_kv *kv);
void dci_gpu_kv_resident_recount(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_resident_leave(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_resident_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);

#endif
