/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The end of a prompt: the call allocates all memory, and a worker builds the groups (worker.h). */
#ifndef DCI_KV_PROMPT_H
#define DCI_KV_PROMPT_H

#include "kv/worker.h"

extern const dci_kv_prompt_work dci_kv_work_of_prompts;

/* Checks what dci_kv_end_prompt checks before it reads the queries; out_looks: whether it will read them. */
dci_status dci_kv_check_end_prompt(dci_kv *kv, size_t layer, int64_t sequence, size_t n_positions, const void *queries,
                                   size_t ld, bool *out_looks);
/* Makes a layer one whose prompt has not ended. No work of it is in progress. */
void dci_kv_cancel_prompt(dci_kv *kv, dci_kv_layer *layer);

#endif
