/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Contiguous copies (`contiguous` of dci_kv_config): the keys and values of listed groups once more, in the order of
 * the lists, so that a device fetches a group as one piece of memory and not as scattered rows. Row r of the copy of a
 * layer and head is the candidate that is number r in the lists: of batches (clusters.h) the members one after the
 * other, of a tree the slots of its pages, page p from row p * page_tokens on. Layers that use another one's lists
 * (ANCHOR) have their own rows in its order.
 *
 * A sequence has a table of blocks of kv->copies (pool.h), each page_tokens rows of all heads and of all layers that
 * are not dense. Forks share blocks, and a block that changes is copied first. With the rows a block has the candidates
 * that they are of, so that an update finds what differs from the lists and copies only that; and the sequence has the
 * inverse, the row of each candidate.
 *
 * Whoever changes a layer's lists sets dci_kv_layer.copied to false. An update brings all layers up to date. Only
 * src/offload makes copies, for a device; files do not have them.
 */
#ifndef DCI_KV_CONTIGUOUS_H
#define DCI_KV_CONTIGUOUS_H

#include "kv/geometry.h"

/* What an update has changed, as bits. Layers by their number among those with copies. */
typedef struct dci_kv_changes {
        unsigned char *memory; /* NULL: nothing has changed */
        size_t n_bytes;
        bool all;                       /* and rows that workers have written, whichever they are */
        size_t page_words, chunk_words; /* words of a layer and head */
        uint64_t *pages;                /* [layer][head]: pages whose rows have changed */
        uint64_t *chunks; /* [layer][head]: chunks of DCI_KV_CHUNK candidates whose rows of the copy have */
} dci_kv_changes;

/* Whether there are copies. */
DCI_INLINE bool dci_kv_has_copies(const dci_kv *kv)
{
        return kv->copies.block_bytes > 0;
}

/* At the end of a prompt of n candidates in this layer, whose groups workers are about to build: takes blocks, as far
 * as there is memory. Then dci_kv_copy_head copies the rows of a head that is built, concurrently with other heads;
 * without blocks it does nothing, and an update does all. */
void dci_kv_begin_copies(dci_kv *kv, dci_kv_layer *layer, size_t n);
void dci_kv_copy_head(dci_kv *kv, dci_kv_layer *layer, size_t head);

/* Sets up kv->copies; layer_modes are there. */
void dci_kv_copies_init(dci_kv *kv);
/* The number of a layer among those that have copies. */
size_t dci_kv_copied_number(const dci_kv *kv, size_t layer);
/* Whether the sequence's copies match its lists; its prompts' work is done. */
bool dci_kv_copies_current(const dci_kv *kv, const dci_kv_sequence *sequence);
/* Brings the copies of a sequence up to date, waiting for its prompts' work, and says what has changed; the caller
 * frees that. Rows of all candidates with groups are in place. DCI_ERR_FULL and DCI_ERR_MEMORY change nothing. If
 * it fails otherwise, some rows have changed that are not named. */
dci_status dci_kv_update_copies(dci_kv *kv, int64_t sequence, dci_kv_changes *out);
void dci_kv_free_changes(dci_kv *kv, dci_kv_changes *changes);
/* The rows of the candidates of one layer, by its number, and head: room for place_capacity. */
int32_t *dci_kv_copy_places(const dci_kv *kv, const dci_kv_sequence *sequence, size_t copied, size_t head);

/* For a fork of n tokens, which has no copies; for a truncation to n tokens; for a sequence that is freed. */
dci_status dci_kv_fork_copies(dci_kv *kv, const dci_kv_sequence *from, size_t n, dci_kv_sequence *to);
void dci_kv_distrust_copies(const dci_kv *kv, dci_kv_sequence *sequence, size_t n);
void dci_kv_release_copies(dci_kv *kv, dci_kv_sequence *sequence);

/* Reads the candidates of page `page` of a head's lists, page_tokens of them, -1 where there is none. *batch: 0 for the
 * first page, then as the call left it for a page before. */
void dci_kv_listed_page(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t page, size_t *batch,
                        int32_t *out);
/* Pages of a head's lists. */
size_t dci_kv_listed_pages(const dci_kv *kv, const dci_kv_layer *layer, size_t head);

#endif
