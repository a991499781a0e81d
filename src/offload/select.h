/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Plans that the device makes: scores of what is in chunks, and the selection, on the step's stream. Nothing here waits. Sequences are
 * scored in batches of planner.batch, as many as there is room for scores of; lists of all sequences are in one place for all layers,
 * so a layer attends before the next one is planned.
 */
#ifndef DCI_OFFLOAD_SELECT_H
#define DCI_OFFLOAD_SELECT_H

#include "offload/state.h"

/* Queues the lists of one layer. */
dci_status dci_gpu_kv_select(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld);
/* Parts that the scores of so many sequences' lists are computed in. */
int32_t dci_gpu_kv_score_parts(const dci_gpu_kv *kv, size_t n_sequences);

#endif
