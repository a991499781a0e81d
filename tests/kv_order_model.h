/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The naive model of stored orders with static tokens first (prkv). */
#ifndef DCI_TESTS_KV_ORDER_MODEL_H
#define DCI_TESTS_KV_ORDER_MODEL_H

#include "kv/state.h"
#include "tests/kv_fixture.h"

/* Of one layer and head: what is stored in which order, and the positions in data whose queries are remembered. */
typedef struct kv_naive_order {
        size_t n, n_static;
        int32_t *order;
        size_t seen[2000], n_seen;
} kv_naive_order;

/* Fails unless the first batch of a layer has the naive new order of its candidates, equal importance in any order, which
 * becomes the naive one. */
void kv_check_order(const dci_kv *kv, const dci_kv_config *config, const dci_kv_info *info, const kv_data *data,
                    const dci_kv_layer *layer, size_t head, size_t n_static, kv_naive_order *naive);

#endif
