/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The keys and values of all tokens of a sequence on the device, for a chunk of queries over them:
 *
 *      keys [kv head][token][dim], then values likewise
 *
 * Tokens of earlier steps come from host memory, or from the device's pieces of a layer that attends to everything;
 * those of the step come from the rows that were appended. There are two buffers. While the caller computes with one,
 * the rows that will be asked for next are copied to the other, on a stream of their own: copies to the host on the
 * stream `side` neither delay them nor wait for them.
 *
 * Copies of a layer wait for the rows of its last step alone (dci_gpu_kv_layer.stored), and for the work that reads
 * what was in the buffer. So those of a step's first layer can start while the device computes the last layers of the
 * step before.
 */
#ifndef DCI_OFFLOAD_HISTORY_H
#define DCI_OFFLOAD_HISTORY_H

#include "offload/state.h"

typedef struct dci_gpu_kv_history_buffer {
        unsigned char *memory;
        size_t n_bytes;
        uint32_t now; /* the step that it has rows for; 0: none */
        size_t layer, row;
        void *copied;   /* event: rows of earlier steps are there */
        void *released; /* event: after all that reads what was there before */
} dci_gpu_kv_history_buffer;

typedef struct dci_gpu_kv_history_buffers {
        dci_gpu_kv_history_buffer buffers[2];
        size_t last;        /* number of the buffer that a call returned last */
        uint32_t now;       /* the step of the last call */
        size_t first_layer; /* of the first call in that step */
} dci_gpu_kv_history_buffers;

/* Frees the buffers. The device is idle. */
void dci_gpu_kv_history_free(dci_gpu_kv *kv);
size_t dci_gpu_kv_history_bytes(const dci_gpu_kv *kv);

#endif
