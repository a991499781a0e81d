/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Exact search of many queries at a time: products in tiles rule out most rows, the canonical kernel scores the rest. */
#ifndef DCI_INDEX_FLAT_BATCH_H
#define DCI_INDEX_FLAT_BATCH_H

#include "index/flat/flat.h"

/* For large batches; the same results. */
bool dci_flat_batch_suits(const dci_flat *flat, size_t k);
dci_status dci_flat_batch_search(const dci_flat *flat, size_t k, int64_t *out_ids, float *out_scores,
                                 dci_search_stats *stats);

#endif
