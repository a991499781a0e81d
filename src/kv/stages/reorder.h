/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Stored orders (PRKV): the ring of the last queries, how many tokens are static, and when an order is made again. */
#ifndef DCI_KV_STAGES_REORDER_H
#define DCI_KV_STAGES_REORDER_H

#include "kv/state.h"

#define DCI_KV_STATIC_SHARE 0.25

/* Queries of one head that importance is found by, the oldest first; returns how many. out: ring * group rows. */
size_t dci_kv_ring_queries(const dci_kv *kv, const dci_kv_layer *layer, size_t head, float *out);
/* Puts a prompt's last queries in the ring. */
void dci_kv_ring_observe(const dci_kv *kv, dci_kv_layer *layer, size_t n_positions, const void *queries, size_t ld);
/* Static tokens of a new order of n candidates; finds them for a prompt of n candidates, where the config leaves them
 * open. */
size_t dci_kv_static_of(const dci_kv *kv, const dci_kv_layer *layer, size_t n);
dci_status dci_kv_static_online(dci_kv *kv, dci_kv_layer *layer, size_t n);
/* Candidates of a layer's new order, if one is due; else 0. */
size_t dci_kv_reordered(const dci_kv *kv, const dci_kv_layer *layer);

#endif
