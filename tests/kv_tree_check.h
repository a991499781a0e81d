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

/* The key of a candidate; the lift of a key; how near two keys are in comparison: the greater, the nearer. */
const float *kv_tree_key(const dci_kv *kv, const kv_data *data, size_t layer, size_t head, size_t candidate);
double kv_tree_lift(const dci_kv_tree *tree, const float *key, size_t dim);
double kv_tree_nearness(const dci_kv_tree *tree, const float *a, const float *b, size_t dim);
/* Candidates whose node is not the nearest, of all. */
double kv_tree_strays(const dci_kv *kv, const dci_kv_tree *tree, const kv_data *data, size_t layer, size_t head);
/* A query's score of a page: its best token. */
double kv_tree_page_score(const dci_kv *kv, const dci_kv_tree *tree, size_t page, const kv_data *data,
                          const float *query, size_t layer, size_t head);

#endif
