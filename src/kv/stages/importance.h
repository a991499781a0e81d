/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Importance of candidates for the last queries (PRKV). */
#ifndef DCI_KV_STAGES_IMPORTANCE_H
#define DCI_KV_STAGES_IMPORTANCE_H

#include "kv/state.h"

/* For one head, the sum over the queries of its ring of their softmax over n candidates, whose keys are contiguous.
 * Cannot fail. out has room for dci_kv_importance_room floats, work for dci_kv_importance_bytes. */
void dci_kv_importance(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const unsigned char *keys, size_t n,
                       void *work, float *out);
size_t dci_kv_importance_bytes(const dci_kv *kv, size_t n);
size_t dci_kv_importance_room(size_t n);

#endif
