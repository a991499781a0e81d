/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Sequences of a KV cache on a device. The host's sequence changes while the device is idle; then the device's part follows: its
 * table, its dense layers' blocks, resident pages, sink and ring, and hot slots that hold nothing wrong.
 */
#ifndef DCI_OFFLOAD_SEQUENCE_H
#define DCI_OFFLOAD_SEQUENCE_H

#include "offload/state.h"

/* Repairs the ring and the hot slots of a row whose sequence had n tokens and has `left` now. The device is idle. */
dci_status dci_gpu_kv_truncate_row(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n, size_t left);

#endif
