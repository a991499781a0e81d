/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a device can plan, and what planning takes: sizes, and what is written once. dci_gpu_kv_planner_init sets the sizes after the
 * layers are known, layout.c allocates and places, dci_gpu_kv_planner_begin writes the initial contents.
 */
#ifndef DCI_OFFLOAD_PLANNER_H
#define DCI_OFFLOAD_PLANNER_H

#include "offload/state.h"

/* Whether the device can plan this, or a sentence that says why not (DCI_ERR_UNSUPPORTED). */
dci_status dci_gpu_kv_can_plan(const dci_kv_config *shape, const dci_gpu_kv_config *config);
void dci_gpu_kv_planner_init(dci_gpu_kv *kv);
dci_status dci_gpu_kv_planner_begin(dci_gpu_kv *kv);
void dci_gpu_kv_planner_destroy(dci_gpu_kv *kv);

#endif
