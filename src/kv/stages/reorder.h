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
/* Candidates of a layer's new order, if one is due; else 0. The same for a layer whose n_pushed is kept by the owner of
 * its plans. */
size_t dci_kv_reordered(const dci_kv *kv, const dci_kv_layer *layer);
size_t dci_kv_reordered_at(const dci_kv *kv, const dci_kv_layer *layer, size_t n_pushed);
/* How many plans before its period ends a layer's first order is due: layers come one after the other. */
size_t dci_kv_reorder_early(const dci_kv *kv, size_t layer);
/* Waits for the order that is being made and takes it into use, in place of the batches that it includes. */
void dci_kv_reorder_publish(dci_kv *kv, dci_kv_layer *layer);
/* Drops it, if there is one; drops it if it has candidates that n tokens do not leave. */
void dci_kv_reorder_drop(dci_kv *kv, dci_kv_layer *layer);
void dci_kv_reorder_truncate(dci_kv *kv, dci_kv_layer *layer, size_t n);

#endif
