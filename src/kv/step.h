/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Steps, for an owner that writes rows itself. */
#ifndef DCI_KV_STEP_H
#define DCI_KV_STEP_H

#include "kv/state.h"

/* dci_kv_append, but the caller writes the rows to their slots, before any call reads them (src/offload). */
dci_status dci_kv_append_later(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences,
                               const size_t *n_tokens, const dci_kv_rows *rows);

#endif
