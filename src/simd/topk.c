/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "simd/convert.h"
#include "simd/topk.h"

uint64_t dci_topk_key(float score, int32_t slot, bool descending)
{
        /* Adding zero turns -0 into +0, which compare equal and must tie. */
        uint32_t bits = dci_float_bits(score + 0.0f);
        uint32_t order = bits ^ (bits >> 31 ? UINT32_C(0xffffffff) : UINT32_C(0x80000000));
        return (uint64_t)(descending ? ~order : order) << 32 | (uint32_t)slot;
}

float dci_topk_score(uint64_t key, bool descending)
{
        uint32_t order = (uint32_t)(key >> 32);
        if (descending)
                order = ~order;
        return dci_bits_float(order ^ (order >> 31 ? UINT32_C(0x80000000) : UINT32_C(0xffffffff)));
}

static void swap_keys(uint64_t *a, uint64_t *b)
{
        uint64_t t = *a;
        *a = *b;
        *b = t;
}

static void insertion_sort(uint64_t *keys, size_t n)
{
        for (size_t i = 1; i < n; i++) {
                uint64_t key = keys[i];
                size_t j = i;
                for (; j > 0 && keys[j - 1] > key; j--)
                        keys[j] = keys[j - 1];
                keys[j] = key;
        }
}

static uint32_t score_bits(uint64_t key)
{
        return (uint32_t)(key >> 32);
}

/* Orders a run of equal scores by id. Runs are short unless rows repeat, and then heap sort bounds the cost. */
static void sift_by_id(uint64_t *keys, size_t root, size_t n, dci_slot_ids ids)
{
        for (;;) {
                size_t child = 2 * root + 1;
                if (child >= n)
                        return;
                if (child + 1 < n &&
                    ids.fn(ids.ctx, dci_topk_slot(keys[child])) < ids.fn(ids.ctx, dci_topk_slot(keys[child + 1])))
                        child++;
                if (ids.fn(ids.ctx, dci_topk_slot(keys[root])) >= ids.fn(ids.ctx, dci_topk_slot(keys[child])))
                        return;
                swap_keys(&keys[root], &keys[child]);
                root = child;
        }
}

static void sort_by_id(uint64_t *keys, size_t n, dci_slot_ids ids)
{
        for (size_t i = n / 2; i-- > 0;)
                sift_by_id(keys, i, n, ids);
        for (size_t end = n; end-- > 1;) {
                swap_keys(&keys[0], &keys[end]);
                sift_by_id(keys, 0, end, ids);
        }
}

/* Radix sort by bytes from the lowest: the four of the slot, unless slots ascend already, then the four of the score.
 * Bytes that all keys share cost no pass. */
static void radix_sort(uint64_t *keys, size_t n, uint64_t *scratch)
{
        bool ascending = true;
        uint64_t all = keys[0], any = keys[0];
        for (size_t i = 1; i < n; i++) {
                ascending = ascending && (uint32_t)keys[i - 1] < (uint32_t)keys[i];
                all &= keys[i];
                any |= keys[i];
        }
        uint64_t *from = keys, *to = scratch;
        for (unsigned shift = ascending ? 32 : 0; shift < 64; shift += 8) {
                size_t start[256] = {0}, sum = 0;
                if (((all ^ any) >> shift & 255) == 0)
                        continue;
                for (size_t i = 0; i < n; i++)
                        start[from[i] >> shift & 255]++;
                for (size_t digit = 0; digit < 256; digit++) {
                        size_t count = start[digit];
                        start[digit] = sum;
                        sum += count;
                }
                for (size_t i = 0; i < n; i++)
                        to[start[from[i] >> shift & 255]++] = from[i];
                uint64_t *t = from;
                from = to;
                to = t;
        }
        if (from != keys)
                memcpy(keys, from, n * sizeof *keys);
}

void dci_topk_sort(uint64_t *keys, size_t n, uint64_t *scratch, dci_slot_ids ids)
{
        if (n <= 48)
                insertion_sort(keys, n);
        else
                radix_sort(keys, n, scratch);
        if (ids.fn == NULL)
                return;
        for (size_t i = 0, j; i < n; i = j) {
                for (j = i + 1; j < n && score_bits(keys[j]) == score_bits(keys[i]); j++)
                        continue;
                if (j - i > 1)
                        sort_by_id(keys + i, j - i, ids);
        }
}

/* Room beyond k before the buffer is cut: cutting costs time in proportion to the buffer, but the threshold improves
 * only then. A cut leaves at most k + k / 8, so some room is always won. */
static size_t capacity_for(size_t k)
{
        return k + (k < 64 ? 64 : k) + DCI_TOPK_BLOCK + DCI_LANES;
}

size_t dci_topk_bytes(size_t k)
{
        size_t n_bytes = capacity_for(k) * (2 * sizeof(float) + 2 * sizeof(int32_t) + 2 * sizeof(uint64_t));
        return dci_lines(n_bytes);
}

void dci_topk_init(dci_topk *topk, const dci_kernels *kernels, dci_slot_ids ids, size_t k, bool descending,
                   void *scratch)
{
        topk->kernels = kernels;
        topk->ids = ids;
        topk->descending = descending;
        topk->k = k;
        topk->n = 0;
        topk->capacity = capacity_for(k);
        topk->threshold = descending ? -INFINITY : INFINITY;
        unsigned char *at = scratch;
        topk->keys = (void *)at;
        at += 2 * topk->capacity * sizeof *topk->keys;
        topk->good = (void *)at;
        at += topk->capacity * sizeof *topk->good;
        topk->kept = (void *)at;
        at += topk->capacity * sizeof *topk->kept;
        topk->slots = (void *)at;
        at += topk->capacity * sizeof *topk->slots;
        topk->order = (void *)at;
}

/* Sorts what is there into topk->keys. */
static void sort_entries(dci_topk *topk)
{
        for (size_t i = 0; i < topk->n; i++)
                topk->keys[i] = dci_topk_key(topk->good[i], topk->slots[i], true);
        dci_topk_sort(topk->keys, topk->n, topk->keys + topk->capacity, topk->ids);
}

/* The highest of the n lowest ids of entries with one score. */
static int64_t lowest_ids(dci_topk *topk, float score, size_t n)
{
        size_t n_equal = 0;
        for (size_t i = 0; i < topk->n; i++)
                if (topk->good[i] == score)
                        topk->keys[n_equal++] = dci_topk_key(score, topk->slots[i], true);
        dci_topk_sort(topk->keys, n_equal, topk->keys + topk->capacity, topk->ids);
        return topk->ids.fn(topk->ids.ctx, dci_topk_slot(topk->keys[n - 1]));
}

/* The k best of more entries, equal ones by their ids. They keep their order, which the caller relies on. */
static void keep_best(dci_topk *topk)
{
        for (size_t i = 0; i < topk->n; i++)
                topk->kept[i] = -topk->good[i];
        const float worst = -topk->kernels->kth_smallest(topk->kept, topk->n, topk->k, topk->order);
        size_t better = 0, equal = 0, n = 0;
        for (size_t i = 0; i < topk->n; i++) {
                better += topk->good[i] > worst;
                equal += topk->good[i] == worst;
        }
        const size_t wanted = topk->k - better; /* of the equal ones */
        const bool by_id = topk->ids.fn != NULL && equal > wanted;
        const int64_t last = by_id ? lowest_ids(topk, worst, wanted) : 0;
        for (size_t i = 0, taken = 0; i < topk->n; i++) {
                bool stays = topk->good[i] > worst;
                if (topk->good[i] == worst && taken < wanted) {
                        stays = !by_id || topk->ids.fn(topk->ids.ctx, topk->slots[i]) <= last;
                        taken += stays;
                }
                topk->good[n] = topk->good[i];
                topk->slots[n] = topk->slots[i];
                n += stays;
        }
        topk->n = n;
}

static void cut(dci_topk *topk)
{
        float reached = topk->kernels->reached_by(topk->good, topk->n, topk->k, topk->order);
        size_t n = topk->kernels->keep_at_least(topk->good, topk->n, reached, topk->kept, topk->order);
        memcpy(topk->good, topk->kept, n * sizeof *topk->good);
        for (size_t i = 0; i < n; i++) /* ascending: nothing is overwritten before it moved */
                topk->slots[i] = topk->slots[topk->order[i]];
        topk->n = n;
        if (n > topk->k + topk->k / 8) /* too many equal scores for a threshold to part them */
                keep_best(topk);
        /* k rows reach this. Where ids ascend with slots they win ties, so a later row must be better. */
        if (topk->ids.fn == NULL)
                reached = nextafterf(reached, INFINITY);
        topk->threshold = topk->descending ? reached : -reached;
}

void dci_topk_add(dci_topk *topk, const float *scores, size_t n, int32_t first_slot, const int32_t *slots)
{
        float *good = topk->good + topk->n;
        int32_t *at = topk->slots + topk->n;
        size_t m = topk->descending ? topk->kernels->keep_at_least(scores, n, topk->threshold, good, at)
                                    : topk->kernels->keep_at_most(scores, n, topk->threshold, good, at);
        for (size_t i = 0; i < m; i++)
                at[i] = slots != NULL ? slots[at[i]] : first_slot + at[i];
        for (size_t i = 0; !topk->descending && i < m; i++)
                good[i] = -good[i];
        topk->n += m;
        if (topk->n + DCI_TOPK_BLOCK + DCI_LANES > topk->capacity)
                cut(topk);
}

void dci_topk_add_all(dci_topk *topk, const float *scores, size_t n, const int32_t *slots)
{
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_TOPK_BLOCK ? n - i : DCI_TOPK_BLOCK;
                dci_topk_add(topk, scores + i, here, (int32_t)i, slots == NULL ? NULL : slots + i);
        }
}

size_t dci_topk_gather(dci_topk *topk)
{
        if (topk->n <= topk->k)
                return topk->n;
        cut(topk);
        if (topk->n > topk->k)
                keep_best(topk);
        return topk->n;
}

size_t dci_topk_finish(dci_topk *topk)
{
        sort_entries(topk);
        if (!topk->descending) /* the same order, with the scores as they were given */
                for (size_t i = 0; i < topk->n; i++)
                        topk->keys[i] =
                                dci_topk_key(-dci_topk_score(topk->keys[i], true), dci_topk_slot(topk->keys[i]), false);
        return topk->n < topk->k ? topk->n : topk->k;
}
