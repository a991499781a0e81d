/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Clusters of consecutive candidates, stored as member lists. A batch holds the clusters of candidates [first, first +
 * n) for all heads. Later candidates get batches of their own, so a batch does not change once it is published, and
 * forks share it by counted references. Of each head a batch has
 *
 *      offsets   n_groups + 1: where the members of each cluster begin in ids
 *      ids       candidates by cluster, ascending within one
 *      rows      summaries, one per cluster; mean keys and mean values where the tail needs them
 */
#ifndef DCI_KV_CLUSTERS_H
#define DCI_KV_CLUSTERS_H

#include "kv/stages/stages.h"

struct dci_kv_clusters {
        atomic_size_t refs;
        size_t n_bytes;
        size_t first, n; /* candidates [first, first + n) */
        size_t n_static; /* REORDERED: the first ids of each head, whole groups */
        size_t room;     /* the most clusters of a head */
        bool early;      /* made before it was due, for want of room in the budget; not saved */
        size_t ids_at, rows_at, mean_keys_at, mean_values_at, head_bytes; /* within a head's part */
        struct dci_kv_cluster_head {
                size_t n_groups, before; /* before: clusters of the batches before this one */
        } heads[];
};

/* Bytes of the mean key that the tail needs in addition to the summary; of the mean value; of a cluster: its rows and
 * its offset. */
size_t dci_kv_mean_key_bytes(const dci_kv *kv);
size_t dci_kv_mean_value_bytes(const dci_kv *kv);
size_t dci_kv_cluster_bytes(const dci_kv *kv);

/* An empty batch with room for so many clusters in each head. */
dci_status dci_kv_clusters_alloc(dci_kv *kv, size_t first, size_t n, size_t room, dci_kv_clusters **out);
void dci_kv_clusters_release(dci_kv *kv, dci_kv_clusters *batch);
/* Releases all of a layer's batches but the first n_left. */
void dci_kv_release_clusters(dci_kv *kv, dci_kv_layer *layer, size_t n_left);
/* Makes room in the layer's list for n batches. */
dci_status dci_kv_clusters_ready(dci_kv *kv, dci_kv_layer *layer, size_t n);
/* Appends a batch whose clusters are there; there is room. */
void dci_kv_clusters_publish(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch);
/* Batches that are within the first n candidates. */
size_t dci_kv_clusters_within(const dci_kv_layer *layer, size_t n);

int32_t *dci_kv_cluster_offsets(const dci_kv *kv, const dci_kv_clusters *batch, size_t head);
int32_t *dci_kv_cluster_ids(const dci_kv *kv, const dci_kv_clusters *batch, size_t head);
/* Summaries, one row per cluster; means for the tail, of values or of keys. */
unsigned char *dci_kv_cluster_rows(const dci_kv *kv, const dci_kv_clusters *batch, size_t head);
unsigned char *dci_kv_cluster_means(const dci_kv *kv, const dci_kv_clusters *batch, size_t head, bool of_values);

/* K-means of a batch of n candidates takes a time in proportion to n times the number of clusters, so that one that
 * would have more than DCI_KV_CLUSTERS_TOGETHER is divided into parts of equal size, each clustered by itself. The
 * number of parts, where part i begins, and how many clusters n candidates of one part get. */
#define DCI_KV_CLUSTERS_TOGETHER ((size_t)1024)
size_t dci_kv_cluster_parts(const dci_kv *kv, size_t n);
DCI_INLINE size_t dci_kv_cluster_part(size_t n, size_t n_parts, size_t i)
{
        return (size_t)((uint64_t)n * i / n_parts);
}
size_t dci_kv_count_clusters(const dci_kv *kv, size_t n);
/* The number of a part of a head's batch among all problems of k-means, for what is drawn. */
size_t dci_kv_cluster_problem(const dci_kv *kv, size_t layer, size_t head, size_t part);

/* `count` and `members` of all groupings by clusters. */
size_t dci_kv_count_clustered(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n);
const int32_t *dci_kv_members_clustered(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group,
                                        size_t n, int32_t *room, size_t *out_n);

/* Converts a tile of members from number `at` on; returns how many rows. */
size_t dci_kv_members_to_f32(const dci_kv *kv, const dci_kv_members *members, size_t at, size_t dim);
/* Their mean, in the format of the keys. scratch: dim doubles and dim floats. */
void dci_kv_mean_of_members(const dci_kv *kv, const dci_kv_members *members, size_t dim, void *scratch, void *out);

#endif
