/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Bounded selection of the k best of a stream of scores. Values that cannot enter are dropped by one vector comparison
 * with a threshold that k earlier ones reach; the others collect in a buffer that is cut back to little more than k
 * when full. At the end they are sorted by (score, id), a total order, so the answer depends on nothing else. */
#ifndef DCI_SIMD_TOPK_H
#define DCI_SIMD_TOPK_H

#include "simd/kernels.h"

#define DCI_TOPK_BLOCK 256 /* most values of one dci_topk_add */

/* The id of a slot; fn NULL: ids ascend with slots. */
typedef struct dci_slot_ids {
        int64_t (*fn)(const void *ctx, int32_t slot);
        const void *ctx;
} dci_slot_ids;

/* An entry as one number: the score mapped so that better is smaller, then the slot. */
uint64_t dci_topk_key(float score, int32_t slot, bool descending);
float dci_topk_score(uint64_t key, bool descending);

DCI_INLINE int32_t dci_topk_slot(uint64_t key)
{
        return (int32_t)(uint32_t)key;
}

/* Sorts keys, best first, equal scores by id. scratch has room for n. */
void dci_topk_sort(uint64_t *keys, size_t n, uint64_t *scratch, dci_slot_ids ids);

typedef struct dci_topk {
        const dci_kernels *kernels;
        dci_slot_ids ids;
        bool descending; /* larger scores are better */
        size_t k, n, capacity;
        float threshold; /* what a value must reach */
        float *good;     /* scores, negated where smaller is better */
        int32_t *slots;
        float *kept; /* scratch */
        int32_t *order;
        uint64_t *keys; /* 2 x capacity */
} dci_topk;

/* Bytes of scratch that a selection needs, a multiple of a cache line, for k up to 2^31. */
size_t dci_topk_bytes(size_t k);
void dci_topk_init(dci_topk *topk, const dci_kernels *kernels, dci_slot_ids ids, size_t k, bool descending,
                   void *scratch);

/* Offers n <= DCI_TOPK_BLOCK scores: of slots[i], or of first_slot + i when slots is NULL. Slots ascend over the life
 * of the selection. */
void dci_topk_add(dci_topk *topk, const float *scores, size_t n, int32_t first_slot, const int32_t *slots);

/* Any number of scores at once, of slots[i], or of i when slots is NULL. */
void dci_topk_add_all(dci_topk *topk, const float *scores, size_t n, const int32_t *slots);

/* The k best, unsorted, in topk->good and topk->slots in the order they came in; of equal ones those with the lowest
 * ids. Returns how many there are. Nothing may be offered afterwards. */
size_t dci_topk_gather(dci_topk *topk);

/* The k best, sorted, in topk->keys. Returns how many there are. */
size_t dci_topk_finish(dci_topk *topk);

#endif
