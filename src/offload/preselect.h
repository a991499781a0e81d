/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Scores of a plan, with `preselect` (dci/kv.h) of the best units' tokens alone: gpu/args/select.h, dci_gpu_units. Where
 * no sequence of a call is long enough for that, of all candidates, in one launch.
 */
#ifndef DCI_OFFLOAD_PRESELECT_H
#define DCI_OFFLOAD_PRESELECT_H

#include "offload/offload_internal.h"

dci_status dci_gpu_kv_can_preselect(const dci_kv_config *shape);
/* Sizes, for lists of `most` candidates; the most scores of tokens that a list has. */
size_t dci_gpu_kv_preselect_init(dci_gpu_kv *kv, size_t most);
/* For sequences [first, first + n) of the step. */
dci_gpu_units dci_gpu_kv_units(const dci_gpu_kv *kv, size_t first, size_t n);
/* Queues the scores of a plan: with units, those of their means and the units first. */
dci_status dci_gpu_kv_score(dci_gpu_kv *kv, void *stream, const dci_gpu_score_args *score);
/* Queues a plan: its scores and its selection, or the search of trees. */
dci_status dci_gpu_kv_choose(dci_gpu_kv *kv, void *stream, const dci_gpu_score_args *score,
                             const dci_gpu_select_args *select);

#endif
