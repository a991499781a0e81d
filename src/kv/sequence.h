/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sequences: allocated, freed, and what a truncation leaves of them. */
#ifndef DCI_KV_SEQUENCE_H
#define DCI_KV_SEQUENCE_H

#include "kv/state.h"

dci_status dci_kv_new_sequence(dci_kv *kv, dci_kv_sequence **out);
void dci_kv_free_sequence(dci_kv *kv, dci_kv_sequence *sequence);
/* Refuses a sequence in the middle of a step or of fewer than n tokens; one whose prompts have not ended. */
dci_status dci_kv_check_whole(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n_tokens);
dci_status dci_kv_check_prompted(const dci_kv *kv, const dci_kv_sequence *sequence);
/* Candidates with groups that are left when a sequence is truncated to n tokens. */
size_t dci_kv_grouped_within(const dci_kv *kv, const dci_kv_layer *layer, size_t n);
/* How many of a head's fixed candidates are within n tokens; they go to out, which may be the head's own list or NULL.
 * */
size_t dci_kv_fixed_within(const dci_kv *kv, const dci_kv_head *head, size_t n, int32_t *out);
/* Makes room for n_blocks in the table of blocks. */
dci_status dci_kv_grow_table(dci_kv *kv, dci_kv_sequence *sequence, size_t n_blocks);
/* Releases blocks beyond those of n tokens. */
void dci_kv_truncate_table(dci_kv *kv, dci_kv_sequence *sequence, size_t n_tokens);

#endif
