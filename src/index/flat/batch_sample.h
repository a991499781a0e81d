/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A sample of the rows gives a first guess of the k-th best score of each query. */
#ifndef DCI_INDEX_FLAT_BATCH_SAMPLE_H
#define DCI_INDEX_FLAT_BATCH_SAMPLE_H

#include "index/flat/batch_state.h"

void dci_batch_plan_sample(batch *b);
void dci_batch_guess(const batch *b, batch_worker *w, size_t block, size_t n_queries);

#endif
