/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Votes of blocks on the device (gpu/args/votes.h): what they take in addition to the summaries. The device counts a row's
 * codes by itself, with each plan those that it has not counted. Whatever may change a row's codes other than adding
 * to them makes it forget the counts.
 */
#ifndef DCI_OFFLOAD_VOTES_H
#define DCI_OFFLOAD_VOTES_H

#include "offload/state.h"

/* Sizes, for lists of `most` candidates; the most scores that a list has. Then, with memory, initial contents. */
size_t dci_gpu_kv_votes_init(dci_gpu_kv *kv, size_t most);
size_t dci_gpu_kv_votes_bytes(const dci_gpu_kv *kv); /* of a sequence's lists, but for the scores */
dci_status dci_gpu_kv_votes_begin(dci_gpu_kv *kv);
/* On the side stream; no plan of the row is queued. */
dci_status dci_gpu_kv_votes_forget(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
dci_gpu_units dci_gpu_kv_votes_units(const dci_gpu_kv *kv);
int32_t dci_gpu_kv_votes_parts(const dci_gpu_kv *kv);
/* Queues the scores of a plan, of the layer that is planned. */
dci_status dci_gpu_kv_vote(dci_gpu_kv *kv, void *stream, const dci_gpu_score_args *score);

#endif
