/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Finds the clusters of a batch and summarises them, head by head. dci_kv_clusters_prepare allocates the batch and
 * scratch, which may fail; dci_kv_clusters_build cannot. Areas of scratch have the numbers of those for building
 * (worker.h), but there may be fewer: they take 8 dim_k + 40 bytes and a row for each candidate.
 */
#ifndef DCI_KV_CLUSTERING_H
#define DCI_KV_CLUSTERING_H

#include "kv/clusters.h"

/* A batch with room for as many clusters as the layer may have in it, with all that building and publishing it takes,
 * as the n_more-th new one. */
dci_status dci_kv_clusters_prepare(dci_kv *kv, dci_kv_layer *layer, size_t first, size_t n, size_t n_more,
                                   dci_kv_clusters **out);
/* Finds the clusters of one head, and summarises them. */
void dci_kv_clusters_build(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, size_t area);
/* Summarises clusters whose members are there. */
void dci_kv_clusters_summarise(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, size_t area);

/* Scratch for batches of at most n candidates. Waits for work that uses a smaller one. */
dci_status dci_kv_clustering_ready(dci_kv *kv, size_t n);
/* Bytes of an area of that. */
size_t dci_kv_clustering_bytes(const dci_kv *kv, size_t n);
/* Frees scratch that is larger than later batches need and that no work uses. */
void dci_kv_clustering_shrink(dci_kv *kv);

#endif
