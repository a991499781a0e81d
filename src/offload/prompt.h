/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Ends of prompts. The host builds groups from rows that must have arrived, so an end is written down, with an event of
 * the layer, and handed over to the host by a later call of the step: as soon as possible, at the latest by the layer's
 * plan or the end of the step. Queries are copied to locked memory, which is kept for the next step.
 */
#ifndef DCI_OFFLOAD_PROMPT_H
#define DCI_OFFLOAD_PROMPT_H

#include "offload/state.h"

/* An end that the host does not know yet. */
typedef struct dci_gpu_kv_prompt_end {
        size_t layer, row, n_positions, ld;
        const void *queries;
} dci_gpu_kv_prompt_end;

/* Locked memory for queries. */
typedef struct dci_gpu_kv_query_chunk {
        struct dci_gpu_kv_query_chunk *next;
        size_t n_bytes, used;
        unsigned char *memory;
} dci_gpu_kv_query_chunk;

typedef struct dci_gpu_kv_prompts {
        dci_gpu_kv_prompt_end *ends;
        size_t n_ends, n_handed, capacity;
        dci_gpu_kv_query_chunk *chunks;
} dci_gpu_kv_prompts;

/* Hands over, in the order of ends: all whose rows have arrived, ignoring failures; or the first n, waiting for them;
 * or those up to the last one of a layer. */
void dci_gpu_kv_hand_over_ready(dci_gpu_kv *kv);
dci_status dci_gpu_kv_hand_over(dci_gpu_kv *kv, size_t n);
dci_status dci_gpu_kv_hand_over_layer(dci_gpu_kv *kv, size_t layer);
void dci_gpu_kv_forget_ends(dci_gpu_kv *kv);
/* Frees the memory for queries, between steps. */
void dci_gpu_kv_prompts_trim(dci_gpu_kv *kv);
void dci_gpu_kv_prompts_destroy(dci_gpu_kv *kv);

#endif
