/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A prompt's clusters, computed on the device (gpu/args/kmeans.h) when the prompt ends, from the caller's rows, and
 * copied to the host while the model's next layers run. The host, whose k-means gives the same clusters for the same
 * rows, takes them where it would have computed them: before the next step, a fork, a truncation or a file
 * (clusters.c). What the device does not support, or has no memory for, the host computes.
 *
 * On the device the results of a layer are in one of two places, used alternately. In locked memory of the host are
 * those of all layers of one prompt:
 *
 *      [first rows][members][starts of clusters][means][states], each of all heads
 */
#ifndef DCI_OFFLOAD_PROMPT_KMEANS_H
#define DCI_OFFLOAD_PROMPT_KMEANS_H

#include "offload/state.h"

/* Clusters of one prompt, until the host takes them. */
typedef struct dci_gpu_kv_prompt_kmeans_result {
        struct dci_gpu_kv_prompt_kmeans_result *next;
        int64_t sequence; /* -1: free for the next prompt */
        size_t n, k;      /* candidates, clusters */
        size_t n_bytes;
        unsigned char *memory; /* locked: [sparse layer] */
        uint32_t there[];      /* by sparse layer: the step that computed them, 0: none did */
} dci_gpu_kv_prompt_kmeans_result;

typedef struct dci_gpu_kv_prompt_kmeans {
        unsigned char
                *work; /* on the device: results of two layers, then scratch; allocated when the first prompt ends */
        size_t work_bytes, result_bytes;
        void *done[2]; /* events: results have been copied to the host */
        size_t next;
        dci_gpu_kv_prompt_kmeans_result *results;
        uint64_t n_layers; /* that the host has taken */
} dci_gpu_kv_prompt_kmeans;

/* Queues the clusters of a layer whose prompt of n_tokens has ended, if the device supports them. Row number `token` of
 * `rows` is the first after the sink. */
dci_status dci_gpu_kv_prompt_kmeans_begin(dci_gpu_kv *kv, size_t layer, const dci_gpu_kv_row *row, size_t n_tokens,
                                          const dci_kv_rows *rows, size_t token);
/* The host takes a row's clusters. The side stream has been waited for. */
dci_status dci_gpu_kv_prompt_kmeans_collect(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Forgets the clusters of an aborted step; of a row that is closed. */
void dci_gpu_kv_prompt_kmeans_forget(dci_gpu_kv *kv);
void dci_gpu_kv_prompt_kmeans_close(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Frees all but results that the host has still to take. The device is idle. */
void dci_gpu_kv_prompt_kmeans_trim(dci_gpu_kv *kv);
void dci_gpu_kv_prompt_kmeans_destroy(dci_gpu_kv *kv);

#endif
