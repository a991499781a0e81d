/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Learned codes that the device selects by. The host fits transforms, since a fit needs eigenvectors; the device
 * encodes a prompt with them, from the rows that the host has by then, and reports what rounding took away
 * (gpu/args/learned.h). Codes of the last chunk, of later tokens, and all of them where there is a tail, are encoded by
 * the host, and the device has a copy; the host encodes the rest when it is asked for (dci_gpu_kv_build_missing). A prompt's
 * queries come to the host as for plans that the host makes.
 *
 * A sequence's codes come to the device when the next step is reserved; or, of a prompt that ends in a step which
 * plans, with the plan. The calls do nothing where summaries are others.
 */
#ifndef DCI_OFFLOAD_LEARNED_CODES_H
#define DCI_OFFLOAD_LEARNED_CODES_H

#include "offload/upload.h"

typedef struct dci_gpu_kv_learned {
        unsigned char *transforms; /* on the device: [sparse layer][row][head] (gpu/args/transforms.h) */
        unsigned char *work; /* on the device: what a prompt is encoded with, as large as the planner's `upload` */
} dci_gpu_kv_learned;

/* Uploads the transforms of a layer's heads; copies all of a row to another one. */
dci_status dci_gpu_kv_upload_transforms(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer,
                                        const dci_kv_layer *from);
dci_status dci_gpu_kv_fork_transforms(dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to);
/* Whether the device encodes prompts: where there is a tail, the host does. */
DCI_INLINE bool dci_gpu_kv_encodes(const dci_gpu_kv *kv)
{
        return kv->planner.kind == DCI_GPU_LEARNED && kv->host->tail_bytes == 0;
}

/* Makes the host fit transforms alone, so that the device encodes. */
void dci_gpu_kv_learned_former(dci_kv_former *former);
/* Encodes on the host what only the device has, from candidate `first` on, where a chunk begins: the same bits. */
dci_status dci_gpu_kv_build_missing(dci_kv *kv, dci_kv_layer *layer, size_t first);
/* The least size of `upload` for encoding a prompt; 0: the host encodes. */
size_t dci_gpu_kv_coding_bytes(const dci_gpu_kv *kv);
/* Encodes an ended prompt, if the device does and has not yet; the host encodes what it lacks of the chunk that is
 * written to next. The rows have arrived, and the host's work is done. _drain waits for both, before the sequence is
 * shared or truncated. */
dci_status dci_gpu_kv_learned_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_learned_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* The host encodes ended prompts that the device has not: of a sequence without a row. */
dci_status dci_gpu_kv_learned_settle(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Before a layer's plan, when the host knows that its prompts have ended: encodes those of the step, all or (without
 * memory) none. */
dci_status dci_gpu_kv_learned_plan(dci_gpu_kv *kv, size_t layer);

#endif
