/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The end of a prompt: the call allocates all memory, and workers build the groups (worker.h). */
#ifndef DCI_KV_PROMPT_H
#define DCI_KV_PROMPT_H

#include "kv/worker.h"

/* Builds a prompt when it ends, and what is pending when a step is reserved. */
extern const dci_kv_former dci_kv_host_former;

/* Checks what dci_kv_end_prompt checks before it reads the queries; out_looks: whether it will read them. */
dci_status dci_kv_check_end_prompt(dci_kv *kv, size_t layer, int64_t sequence, size_t n_positions, const void *queries,
                                   size_t ld, bool *out_looks);
/* Makes a layer one whose prompt has not ended. No work of it is in progress. */
void dci_kv_cancel_prompt(dci_kv *kv, dci_kv_layer *layer);

#endif
