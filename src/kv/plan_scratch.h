/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Scratch of plans and of attention, which use it in turn: an area for each thread. It is allocated by dci_kv_reserve
 * for the longest sequence, grows by half when sequences get longer, and is freed with the dci_kv.
 */
#ifndef DCI_KV_PLAN_SCRATCH_H
#define DCI_KV_PLAN_SCRATCH_H

#include "kv/stages/stages.h"

/* Makes scratch suffice for sequences of n tokens; the bytes that this would allocate. */
dci_status dci_kv_plans_ready(dci_kv *kv, size_t n_tokens);
size_t dci_kv_plans_bytes(const dci_kv *kv, size_t n_tokens);

/* What one task of a plan works with, and room for its queries. */
dci_kv_query dci_kv_query_scratch(const dci_kv *kv, size_t worker, float **out_queries);

/* Online softmax of one kv head's queries over the tokens seen so far. */
typedef struct dci_kv_running {
        const dci_kv *kv;
        float *queries;    /* share x dim_k, times the scale */
        float *scores;     /* share x DCI_KV_TILE */
        float *most, *sum; /* by query */
        float *acc;        /* share x dim_v */
        size_t first, end; /* those that rows are for */
} dci_kv_running;
dci_kv_running dci_kv_running_scratch(const dci_kv *kv, size_t worker);

#endif
