/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From the ids of a call to its sequences, under the lock (worker.h), and from tokens to their rows. */
#ifndef DCI_KV_LOOKUP_H
#define DCI_KV_LOOKUP_H

#include "kv/worker.h"

/* NULL with an error for an unknown one. */
dci_kv_sequence *dci_kv_find(dci_kv *kv, int64_t sequence);
/* Where a sequence is, or would be, among the ascending ids. */
size_t dci_kv_place_of(const dci_kv *kv, int64_t id);
/* Locks, and finds the different sequences of a call in kv->found; unlocked again if it fails. */
dci_status dci_kv_begin_call(dci_kv *kv, size_t n_sequences, const int64_t *sequences, dci_kv_sequence ***out);
/* Pointers to the rows of tokens [first, first + n) of one head; keys or values may be NULL. */
void dci_kv_rows_of(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, size_t n, const void **keys,
                    const void **values);

#endif
