/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Tails of plans that the device makes. What is kept for a tail is in the chunks, after the summaries that are selected
 * by:
 *
 *      LOWBIT  reads the scores, without those of selected tokens, and low-bit values
 *      SUMS    of pages: reads their mean keys and values, and the rows of selected tokens once these are on the device
 *              of clusters: reads the scores, which of them are estimated (`members` of gpu/args/select.h), mean values,
 *              and rows of the few that are estimated in part
 *
 * Every call does nothing where the cache has another tail.
 */
#ifndef DCI_OFFLOAD_TAIL_H
#define DCI_OFFLOAD_TAIL_H

#include "offload/state.h"

typedef struct dci_gpu_kv_tail {
        float *partial, *out, *lse; /* on the device, of the layer that was planned last */
        int32_t *arrived;
        int32_t *members;                   /* of clusters, [list][max_groups]; NULL: the tail is not over clusters */
        dci_gpu_tail_clusters_args of_plan; /* of the layer that was planned last */
        bool waits;                         /* for the layer's attention */
} dci_gpu_kv_tail;

/* Whether the device supports this tail, or a sentence that says why not. */
dci_status dci_gpu_kv_can_tail(const dci_kv_config *shape, size_t max_tokens);
/* Adds values to a kernel that encodes keys, and queues kernels for means: of a step, and of a prompt's end. */
void dci_gpu_kv_encode_values(const dci_gpu_kv *kv, dci_gpu_encode_args *args);
dci_status dci_gpu_kv_build_means(dci_gpu_kv *kv, const dci_gpu_encode_args *codes);
void dci_gpu_kv_encode_prompt_values(const dci_gpu_kv *kv, size_t layer, const dci_kv_rows *rows,
                                     dci_gpu_encode_prompt_args *args);
dci_status dci_gpu_kv_build_prompt_means(dci_gpu_kv *kv, const dci_gpu_encode_prompt_args *codes);
/* Whether the tail is over clusters. */
bool dci_gpu_kv_tails_clusters(const dci_gpu_kv *kv);
/* Floats of `partial`. */
size_t dci_gpu_kv_tail_floats(const dci_gpu_kv *kv);
/* LOWBIT: after the selection, of the same sequences. SUMS of pages: after the gathering, of all. */
dci_status dci_gpu_kv_tail_lowbit(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score, size_t first);
dci_status dci_gpu_kv_tail_sums(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld);
/* SUMS of clusters: after the selection, of the same sequences. Where these are all of the step's, it is queued by
 * dci_gpu_kv_tail_planned, after the gathering, during which it runs; else the next ones' scores overwrite theirs. */
dci_status dci_gpu_kv_tail_clusters(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score,
                                    const dci_gpu_select_args *select, size_t first);
dci_status dci_gpu_kv_tail_planned(dci_gpu_kv *kv, const void *queries, size_t ld);

#endif
