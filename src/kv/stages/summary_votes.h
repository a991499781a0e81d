/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Second stage by votes: sizes that others take memory for, and the rules of both shares. */
#ifndef DCI_KV_STAGES_SUMMARY_VOTES_H
#define DCI_KV_STAGES_SUMMARY_VOTES_H

#include "kv/stages/stages.h"
#include "sketch/votes.h"

/* Whether candidates are ranked by votes first. */
DCI_INLINE bool dci_kv_votes(const dci_kv *kv)
{
        return kv->config.summary == DCI_KV_SUMMARY_VOTES;
}

/* Coordinates are taken eight at a time; the last block is filled with zeros. */
DCI_INLINE size_t dci_kv_vote_blocks(size_t dim)
{
        return (dim + DCI_VOTE_BLOCK - 1) / DCI_VOTE_BLOCK;
}

/* Of n candidates: how many go from the votes to their estimates. */
size_t dci_kv_voted(const dci_kv_config *c, size_t n);

/* Bytes of dci_kv_head.vote_counts; 0 without votes. */
size_t dci_kv_vote_counts_bytes(const dci_kv *kv);
/* Codes of candidates from n on may change: before their chunks are released. */
void dci_kv_vote_truncate(const dci_kv *kv, dci_kv_layer *layer, size_t n);
/* Draws the signs of the rotation, and frees them. */
dci_status dci_kv_vote_draw_signs(dci_kv *kv);
void dci_kv_vote_free_signs(dci_kv *kv);

#endif
