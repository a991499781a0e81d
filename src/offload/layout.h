/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Memory that is allocated once, when the object is created: one block each of locked memory, of lanes, tables, buffers and resident
 * pages on the device, and of scratch on the host. A list of parts for each block says what is in it.
 */
#ifndef DCI_OFFLOAD_LAYOUT_H
#define DCI_OFFLOAD_LAYOUT_H

#include "offload/state.h"

/* Allocates, places and initialises everything; what would be too much is refused before. */
dci_status dci_gpu_kv_alloc_all(dci_gpu_kv *kv);
void dci_gpu_kv_free_all(dci_gpu_kv *kv);

#endif
