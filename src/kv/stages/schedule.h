/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Fourth stage: when it is decided again which tokens are attended to. What the plans of a layer keep for the next ones
 * is allocated with the sequence, copied by forks, and truncated with it, so that plans allocate nothing.
 */
#ifndef DCI_KV_STAGES_SCHEDULE_H
#define DCI_KV_STAGES_SCHEDULE_H

#include "kv/stages/stages.h"

/* Bytes of the selection caches of all layers of a sequence; gives each layer its own. */
size_t dci_kv_selection_cache_bytes(const dci_kv *kv);
void dci_kv_place_selection_cache(const dci_kv *kv, dci_kv_sequence *sequence);
/* A fork's copy, truncated to n tokens. */
dci_status dci_kv_copy_selection_cache(dci_kv *kv, const dci_kv_layer *from, size_t n, dci_kv_layer *to);
/* Forgets what was decided about tokens from n on. */
void dci_kv_truncate_selection_cache(const dci_kv *kv, dci_kv_layer *layer, size_t n);
/* Room for the boundaries that a step of n_tokens may find. */
dci_status dci_kv_boundaries_ready(dci_kv *kv, dci_kv_sequence *sequence, size_t n_tokens);
/* Takes boundaries, ascending, that another owner has found. Skips those up to the last that is known. */
dci_status dci_kv_note_boundaries(dci_kv *kv, dci_kv_layer *layer, const int32_t *tokens, size_t n);

/* Before the heads' work: whether the plan decides. */
void dci_kv_schedule_begin(dci_kv *kv, dci_kv_layer *layer, size_t sequence, const void *queries, size_t ld);
/* Selects one list, or takes the list that is there. */
void dci_kv_schedule_select(dci_kv_layer *layer, dci_kv_query *ask);
/* After the heads' work, if the layer's plan leaves tokens out. */
void dci_kv_schedule_end(const dci_kv *kv, dci_kv_layer *layer, size_t n_candidates);

/* The mean cosine of n rows of queries with n earlier ones; both may have a common factor. */
double dci_kv_query_similarity(const dci_kernels *kernels, const float *queries, const float *before, size_t n,
                               size_t dim);

#endif
