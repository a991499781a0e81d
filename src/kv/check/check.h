/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What must hold of a KV cache (dci_kv_check). Called with the lock held and no work of a prompt under way. No number
 * is trusted before it is checked: counts first, then lists by them, then what lists point to.
 */
#ifndef DCI_KV_CHECK_CHECK_H
#define DCI_KV_CHECK_CHECK_H

#include "dci/check.h"
#include "kv/tree/tree.h"

/* Room for marks, a bit each; dci_kv_marks_clear makes n of them ready and fails for want of memory. */
typedef struct dci_kv_marks {
        dci_context *context;
        uint64_t *bits;
        size_t n_words;
} dci_kv_marks;
dci_status dci_kv_marks_clear(dci_kv_marks *marks, size_t n);
void dci_kv_marks_free(dci_kv_marks *marks);
/* False if it was set already. */
DCI_INLINE bool dci_kv_mark(const dci_kv_marks *marks, size_t i)
{
        const uint64_t bit = UINT64_C(1) << (i % 64);
        const bool fresh = (marks->bits[i / 64] & bit) == 0;
        marks->bits[i / 64] |= bit;
        return fresh;
}

/* check/groups.c: counts, chunks or batches, choices that are kept, transforms that there must be. */
dci_status dci_kv_check_layer(const dci_kv *kv, const dci_kv_sequence *sequence, const dci_kv_layer *layer,
                              dci_kv_marks *marks);

/* check/tree.c: a head's tree has nodes that are the promoted candidates, and every candidate in one page of one cell,
 * filled from the front; and, made again: lifts, reach and means, to the bit, and of up to 256 candidates at least half
 * with the nearest node. memory: dci_kv_check_tree_bytes of the head. */
dci_status dci_kv_check_tree(const dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_marks *marks);
size_t dci_kv_check_tree_bytes(const dci_kv *kv, const dci_kv_tree *tree);
dci_status dci_kv_check_tree_recompute(dci_kv *kv, const dci_kv_layer *layer, size_t head, unsigned char *memory);

/* check/recompute.c: all heads of all layers, shared out: rows are numbers, and summaries, tails and trees are those of
 * the rows. */
dci_status dci_kv_check_recompute(dci_kv *kv, const dci_progress *progress);

#endif
