/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kinds of KV caches on a device for suites that loop over all: the presets, and with schedules or learned codes what these leave out. */
#ifndef DCI_TESTS_GPU_KV_KINDS_H
#define DCI_TESTS_GPU_KV_KINDS_H

#include "tests/gpu_kv_fixture.h"

enum { KIND_MORE = 13, N_KINDS = KV_N_KINDS + KIND_MORE };

dci_kv_config kind_config(int kind);
/* The device plans where it can; some pages stay there. */
dci_gpu_kv_config kind_on_device(size_t n_sequences, size_t n_pages);
/* Every fourth kind will do for sanitizers and slow devices. */
bool kind_left_out(int kind);

#endif
