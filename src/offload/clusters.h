/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Clusters and segments that a device selects from. The host builds them, in batches (kv/clusters.c), before the step
 * that finds them due, once in many tokens; or it takes a prompt's from the device (prompt_kmeans.c). Here is the
 * device's copy, in two tables of chunks for each row:
 *
 *      summaries   of clusters: rows, then where the members of each begin and how many there are, then mean values if
 *                  there is a tail
 *      ids         members, one batch after the other
 *
 * and how many clusters each head has. Heads and layers have different numbers of clusters, and layers with different
 * boundaries have clusters of different candidates; a row has as many chunks as the most of them need. A later batch
 * replaces an early one, so a layer is uploaded again from the first change on, in whole chunks. Forks share chunks,
 * partial ones too: a row that adds to one uploads the host's, in all layers.
 */
#ifndef DCI_OFFLOAD_CLUSTERS_H
#define DCI_OFFLOAD_CLUSTERS_H

#include "offload/chunk_store.h"

/* Clusters of a row and layer that the device has. */
typedef struct dci_gpu_kv_cluster_state {
        size_t grouped; /* candidates in them */
        size_t ranked;  /* of these, those in batches that plans rank; SIZE_MAX: the device does not know */
} dci_gpu_kv_cluster_state;

typedef struct dci_gpu_kv_cluster_lists {
        size_t spans_offset;              /* in a head's part of a chunk: spans follow the rows */
        size_t values_offset;             /* and mean values these */
        int32_t *n_clusters;              /* on the device, [sparse layer][row][head] */
        dci_gpu_kv_cluster_state *states; /* [row][sparse layer] */
} dci_gpu_kv_cluster_lists;

bool dci_gpu_kv_has_clusters(const dci_kv_config *shape);
/* Sizes; returns the most clusters of a head, and how many there are usually. */
size_t dci_gpu_kv_clusters_init(dci_gpu_kv *kv, size_t *out_likely);
void dci_gpu_kv_clusters_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Candidates in clusters that plans of a sparse layer select from. */
size_t dci_gpu_kv_clusters_grouped(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer);
/* Before a step: the host builds what its own plans would have built by now, and the device gets a copy. It stays if
 * the step is aborted. */
dci_status dci_gpu_kv_clusters_reserve(dci_gpu_kv *kv);
/* The host builds what a prompt that has ended gives, or all that is due, and the device gets a copy. */
dci_status dci_gpu_kv_clusters_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_clusters_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* The device gets a copy of all that the host has built. */
dci_status dci_gpu_kv_clusters_restore(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
dci_status dci_gpu_kv_clusters_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to);
/* After the host's sequence was truncated. */
dci_status dci_gpu_kv_clusters_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row);

#endif
