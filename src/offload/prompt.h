/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Ends of prompts. The host builds groups from rows that must have arrived, so an end is written down, with an event of
 * the layer and a notice to the host, and handed over when it has arrived: by a thread of the object, which the notice
 * wakes, or by a call of the step if that comes first, at the latest by the layer's plan or the end of the step. The
 * thread is started by the first end; it makes no call of the device, so that another stream may be captured meanwhile.
 * What the host refuses is refused to the next call. Without the thread (foreground, or none can be started) calls hand
 * over. Queries are copied to locked memory, which is kept for the next step.
 */
#ifndef DCI_OFFLOAD_PROMPT_H
#define DCI_OFFLOAD_PROMPT_H

#include "offload/state.h"

/* An end that the host does not know yet. */
typedef struct dci_gpu_kv_prompt_end {
        size_t layer, row, n_positions, ld;
        const void *queries;
        size_t notice; /* its number */
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
        size_t n_notices; /* queued, in all */
        pthread_mutex_t lock;
        pthread_cond_t wake;
        pthread_t thread;
        int64_t thread_pid; /* 0: there is no thread */
        size_t n_arrived;   /* notices; under `lock` */
        bool stop;
} dci_gpu_kv_prompts;

void dci_gpu_kv_prompts_init(dci_gpu_kv *kv);
/* Ends the thread. Nothing is queued. */
void dci_gpu_kv_prompts_stop(dci_gpu_kv *kv);
void dci_gpu_kv_prompts_destroy(dci_gpu_kv *kv);

/* Hands over, in the order of ends: all whose rows have arrived, ignoring failures; or the first n, waiting for them;
 * or those up to the last one of a layer. */
void dci_gpu_kv_hand_over_ready(dci_gpu_kv *kv);
dci_status dci_gpu_kv_hand_over(dci_gpu_kv *kv, size_t n);
dci_status dci_gpu_kv_hand_over_layer(dci_gpu_kv *kv, size_t layer);
void dci_gpu_kv_forget_ends(dci_gpu_kv *kv);
/* Frees the memory for queries, between steps. */
void dci_gpu_kv_prompts_trim(dci_gpu_kv *kv);

#endif
