/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What must hold of every tree of a KV cache, and of lists that a search of one ends in. */
#ifndef DCI_TESTS_KV_TREE_CHECK_H
#define DCI_TESTS_KV_TREE_CHECK_H

#include "kv/tree/tree.h"
#include "tests/kv_fixture.h"

/* NULL: there are no candidates. */
dci_kv_tree *kv_tree_of(dci_kv *kv, int64_t sequence, size_t layer, size_t head);

/* Fails unless nodes are the promoted candidates, every candidate is in one page, and cells are filled from the front, of all layers and
 * heads. No work of the sequence's prompt is under way. */
void kv_tree_check(dci_kv *kv, int64_t sequence, const char *what);

/* Fails unless the list of sequence i and a head has a page's candidates all or not at all, and no more pages than there is room for.
 * Returns how many pages there are. */
size_t kv_tree_check_list(const kv_seen *seen, size_t i, size_t layer, size_t head, const char *what);

#endif
