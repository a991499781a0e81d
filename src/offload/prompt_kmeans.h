/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A prompt's clusters, computed on the device (gpu/args/kmeans.h) when the prompt ends, while the model's next layers
 * run. The keys are copied on the caller's stream, which may overwrite its rows then; k-means and the download have a
 * stream of their own. The next layer's copy waits until k-means has read the one before: there is one copy. The host,
 * whose k-means gives the same clusters for the same rows, takes them where it would have computed them: before the
 * next step, a fork, a truncation or a file (clusters.c). What the device does not support, or has no memory for, the
 * host computes. The device's memory is freed when the host has taken all there is.
 *
 * A prompt of many clusters is divided into parts (kv/clusters.h). In locked memory of the host are, of each layer of one
 * prompt,
 *
 *      [first rows][members][starts of clusters][means][means of values][states]
 *
 * each of all heads and parts, and on the device the same of one layer. Means of values are for a tail of sums.
 */
#ifndef DCI_OFFLOAD_PROMPT_KMEANS_H
#define DCI_OFFLOAD_PROMPT_KMEANS_H

#include "offload/state.h"

/* Clusters of one prompt, until the host takes them. */
typedef struct dci_gpu_kv_prompt_kmeans_result {
        struct dci_gpu_kv_prompt_kmeans_result *next;
        int64_t sequence; /* -1: free for the next prompt */
        uint64_t
                queued; /* the last layer's number among all that were queued: its memory is written until that is done */
        size_t n;       /* candidates */
        size_t n_bytes;
        unsigned char *memory; /* locked: [sparse layer] */
        uint32_t there[];      /* by sparse layer: the step that computed them, 0: none did */
} dci_gpu_kv_prompt_kmeans_result;

typedef struct dci_gpu_kv_prompt_kmeans {
        unsigned char *work; /* on the device: keys, results and scratch; from the first prompt's end on */
        size_t work_bytes;
        void *copied, *read, *done; /* events: keys are copied; k-means has read them; results are on the host */
        uint64_t n_queued, n_done;  /* layers; as far as the host has waited */
        dci_gpu_kv_prompt_kmeans_result *results;
        uint64_t n_layers; /* that the host has taken */
} dci_gpu_kv_prompt_kmeans;

/* Queues the clusters of a layer whose prompt of n_tokens has ended, if the device supports them. Row number `token` of
 * `rows` is the first after the sink. */
dci_status dci_gpu_kv_prompt_kmeans_begin(dci_gpu_kv *kv, size_t layer, const dci_gpu_kv_row *row, size_t n_tokens,
                                          const dci_kv_rows *rows, size_t token);
/* The host waits for a row's clusters, and takes them. */
dci_status dci_gpu_kv_prompt_kmeans_collect(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Forgets the clusters of an aborted step; of a row that is closed. */
void dci_gpu_kv_prompt_kmeans_forget(dci_gpu_kv *kv);
void dci_gpu_kv_prompt_kmeans_close(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Frees all but results that the host has still to take. The device is idle. */
void dci_gpu_kv_prompt_kmeans_trim(dci_gpu_kv *kv);
void dci_gpu_kv_prompt_kmeans_destroy(dci_gpu_kv *kv);

#endif
