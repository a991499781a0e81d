/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Third stage: how many groups a plan ranks, and the selection that is made once, from a prompt's observed queries
 * (SnapKV). */
#ifndef DCI_KV_STAGES_SELECT_H
#define DCI_KV_STAGES_SELECT_H

#include "kv/stages/stages.h"

/* The most groups that a plan ranks. */
size_t dci_kv_ranked(const dci_kv *kv, size_t n_tokens);
/* Ranks n candidates by the observed queries: fills in head->fixed. */
void dci_kv_select_observed(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t n);
/* Bytes that this takes for one head at the end of layer->observed; 0 where nothing is chosen so. */
size_t dci_kv_observed_bytes(const dci_kv *kv, size_t n);

#endif
