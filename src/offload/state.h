/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What every part of a dci_gpu_kv may ask: its lock, its failures, its rows, the step that is open, and memory that
 * counts as its own.
 *
 * A call locks the object, and refuses one whose device has failed. A call of the device that fails before anything has
 * changed is refused with its sentence. One that fails later goes through dci_gpu_kv_check_device, which marks the
 * object as failed: from then on it can only be destroyed.
 *
 * Work is queued on the stream of the step that is open, on the stream `side`, and on those of the history and of
 * prompts' clusters.
 * dci_gpu_kv_drain waits for all of them, dci_gpu_kv_wait_rows only for the steps that have ended. Neither may wait
 * while the step is captured as a graph.
 */
#ifndef DCI_OFFLOAD_STATE_H
#define DCI_OFFLOAD_STATE_H

#include "offload/offload_internal.h"

/* Locks the object; refuses NULL and an object that has failed. dci_gpu_kv_unlock returns `status`. */
dci_status dci_gpu_kv_lock(dci_gpu_kv *kv);
dci_status dci_gpu_kv_unlock(dci_gpu_kv *kv, dci_status status);

/* Marks the object as failed if a device call failed after the point of no return. */
dci_status dci_gpu_kv_check_device(dci_gpu_kv *kv, dci_status status);
/* DCI_TRY of such a call. */
#define DCI_GPU_KV_TRY(kv, call) DCI_TRY(dci_gpu_kv_check_device(kv, call))
/* Replaces the failure of a host call that may have allocated pieces by what the hook (pool.c) failed with. */
dci_status dci_gpu_kv_check_host(dci_gpu_kv *kv, dci_status status);
/* Copies the last error's sentence, cut to n_bytes. */
void dci_gpu_kv_keep_sentence(char *out, size_t n_bytes);

/* Refuses to go on while the open step is captured, before anything that waits. Nothing has changed then. */
dci_status dci_gpu_kv_check_runs(dci_gpu_kv *kv);
/* Waits until all queued work is done. */
dci_status dci_gpu_kv_drain(dci_gpu_kv *kv);
/* Waits until the rows of ended steps are in host memory. */
dci_status dci_gpu_kv_wait_rows(dci_gpu_kv *kv);
/* Marks all hot slots of the row as empty. */
dci_status dci_gpu_kv_clear_hot(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* Makes the step's stream wait for lists that are selected ahead (schedule.c). */
dci_status dci_gpu_kv_join_ahead(dci_gpu_kv *kv);

/* A sequence's row; a sequence that has none. NULL: there is no such sequence. */
dci_gpu_kv_row *dci_gpu_kv_find(dci_gpu_kv *kv, int64_t sequence);
dci_gpu_kv_swapped *dci_gpu_kv_find_swapped(const dci_gpu_kv *kv, int64_t sequence);
/* Fails, and says why there is no row. */
dci_status dci_gpu_kv_no_row(const dci_gpu_kv *kv, int64_t sequence);
/* 0, or 1 + the first layer in which a row has got NaN or infinity, as far as the device's work is done. */
int32_t dci_gpu_kv_bad(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);
void dci_gpu_kv_set_bad(dci_gpu_kv *kv, const dci_gpu_kv_row *row, int32_t bad);
/* Refuses a row that has got NaN or infinity, as far as the device's work is done. */
dci_status dci_gpu_kv_check_good(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* The same, once the rows that the host builds from have arrived. */
dci_status dci_gpu_kv_wait_good(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
dci_status dci_gpu_kv_bad_rows(const dci_gpu_kv_row *row);
/* Checks that a step is open on this stream, and that there is such a layer. */
dci_status dci_gpu_kv_check_step(dci_gpu_kv *kv, void *stream, size_t layer);
/* The same, and finds a sequence of that step; its number among those of the step. */
dci_status dci_gpu_kv_find_stepping(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, dci_gpu_kv_row **out);
size_t dci_gpu_kv_step_number(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Checks rows of n_tokens tokens on the device; `out` gets all strides, in elements, and no keys if there are none. */
dci_status dci_gpu_kv_check_rows(dci_gpu_kv *kv, size_t n_tokens, const dci_kv_rows *rows, dci_kv_rows *out);

/* Candidates that the host has summaries of in all layers that form any: a prompt may end in one of them later than in
 * another. */
size_t dci_gpu_kv_host_grouped(const dci_gpu_kv *kv, const dci_kv_sequence *sequence);

/* Refuses more device memory than max_device_bytes allows. */
dci_status dci_gpu_kv_check_device_bytes(const dci_gpu_kv *kv, size_t more);
/* Device memory within that limit, counted in device_bytes; no bytes are no allocation. Freeing NULL does nothing. */
dci_status dci_gpu_kv_alloc_device(dci_gpu_kv *kv, size_t n_bytes, unsigned char **out);
void dci_gpu_kv_free_device(dci_gpu_kv *kv, unsigned char *memory, size_t n_bytes);
/* Locked host memory, aligned to pages, counted in pinned_bytes. */
dci_status dci_gpu_kv_pin(dci_gpu_kv *kv, size_t n_bytes, unsigned char **out, unsigned char **out_device);
void dci_gpu_kv_unpin(dci_gpu_kv *kv, unsigned char *memory, size_t n_bytes);

DCI_INLINE size_t dci_gpu_kv_row_number(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return (size_t)(row - kv->rows);
}

/* The host's part of a row. */
DCI_INLINE dci_kv_sequence *dci_gpu_kv_host_sequence(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return dci_kv_find(kv->host, row->id);
}

/* The device's address of a pointer into `pinned`. */
DCI_INLINE void *dci_gpu_kv_mapped(const dci_gpu_kv *kv, const void *pointer)
{
        return pointer == NULL ? NULL : kv->pinned_device + ((const unsigned char *)pointer - kv->pinned);
}

/* Groups that the host builds, and the device gets a copy of. */
DCI_INLINE bool dci_gpu_kv_of_host(const dci_gpu_kv_planner *p)
{
        return p->clustered || p->trees;
}

DCI_INLINE size_t dci_gpu_kv_record_ints(const dci_gpu_kv *kv, size_t n)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t each = dci_gpu_kv_of_host(p) ? 1 : p->ordered ? DCI_GPU_KV_ORDER_NUMBERS : 0;
        return 1 + (DCI_GPU_KV_NUMBERS + each * kv->n_sparse) * n;
}

/* An array of the step's record, on the device. */
DCI_INLINE const int32_t *dci_gpu_kv_record(const dci_gpu_kv *kv, size_t which)
{
        return kv->device_record + 1 + which * kv->step.n;
}

DCI_INLINE size_t dci_gpu_kv_blocks(const dci_gpu_kv *kv, size_t n_tokens)
{
        return (n_tokens + kv->shape.page_tokens - 1) >> kv->page_shift;
}

/* Tokens that the longest of sequences [first, first + n) of the step will have; while a graph is captured, what it is
 * sized for. */
DCI_INLINE size_t dci_gpu_kv_longest(const dci_gpu_kv *kv, size_t first, size_t n)
{
        size_t longest = kv->step.bound;
        for (size_t i = first; i < first + n && kv->step.bound == 0; i++) {
                const size_t after = kv->rows[kv->step.rows[i]].n + kv->step.wanted[i];
                longest = after > longest ? after : longest;
        }
        return longest;
}

/* The end of a run of blocks or chunks that follow each other in one piece: from entry `first` of a table of their
 * numbers on, before `end`. */
DCI_INLINE size_t dci_gpu_kv_run_end(const int32_t *numbers, size_t piece_shift, size_t first, size_t end)
{
        size_t i = first + 1;
        while (i < end && numbers[i] == numbers[i - 1] + 1 &&
               numbers[i] >> piece_shift == numbers[first] >> piece_shift)
                i++;
        return i;
}

/* Codes whose coders are the row's own. */
DCI_INLINE bool dci_gpu_kv_coded(const dci_gpu_kv_planner *p)
{
        return p->kind == DCI_GPU_CODES || p->kind == DCI_GPU_LEARNED;
}

/* Bytes of a group that the device reads for its score; not for votes. */
DCI_INLINE size_t dci_gpu_kv_group_bytes(const dci_gpu_kv *kv)
{
        if (dci_gpu_kv_coded(&kv->planner))
                return kv->dim * (size_t)kv->shape.key_bits / 8 + sizeof(uint16_t);
        return (kv->planner.kind == DCI_GPU_MEANS ? 1 : 2) * kv->row_bytes;
}

#endif
