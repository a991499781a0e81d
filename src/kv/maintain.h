/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Builds groups that are due, and encodes again where keys have drifted: all memory first, then heads in parallel, then
 * the result is published. dci_kv_maintain does it between steps; dci_kv_reserve when recent tokens would use up half
 * of the budget. For a device that plans with clusters, the calls below build what those two would.
 */
#ifndef DCI_KV_MAINTAIN_H
#define DCI_KV_MAINTAIN_H

#include "kv/state.h"

/* Builds what is due for these sequences; early: also what would be due later. */
dci_status dci_kv_build_pending(dci_kv *kv, size_t n_sequences, dci_kv_sequence *const *sequences, bool early);
/* Has workers make a new order of a layer's first n candidates, from the queries that its ring has now. Any that it had
 * begun has been taken into use. */
dci_status dci_kv_start_order(dci_kv *kv, dci_kv_layer *layer, size_t n);
/* Takes the order that a layer has begun into use, after waiting for it (kv/stages/reorder.h). */
dci_status dci_kv_take_order(dci_kv *kv, dci_kv_layer *layer);
/* Distortion of a head's latest codes relative to that of its first ones; negative: not known. */
double dci_kv_drift(const dci_kv_head *head);

/* Whether dci_kv_maintain, or a dci_kv_reserve after it, would build clusters. */
bool dci_kv_builds_next(const dci_kv *kv, const dci_kv_sequence *sequence);
/* The same, wherever segment boundaries may have been found since dci_kv_note_boundaries. */
bool dci_kv_may_build_next(const dci_kv *kv, const dci_kv_sequence *sequence);
/* Builds those clusters; prompt_only: if a prompt that has ended is among them, as far as dci_kv_maintain would. */
dci_status dci_kv_build_next(dci_kv *kv, int64_t sequence, bool prompt_only);

#endif
