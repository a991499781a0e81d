/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the suites of kind MDCI share. Rows, searches and comparisons are those of the suites of kind PDCI. */
#ifndef DCI_TESTS_MDCI_FIXTURE_H
#define DCI_TESTS_MDCI_FIXTURE_H

#include "tests/pdci_fixture.h"
#include "tests/tree_check.h"

/* Kind MDCI with its defaults; rows and queries come as floats. */
dci_index_config mdci_config(size_t dim, dci_metric metric, dci_dtype dtype);

/* Full effort but for the share of nodes that are opened. */
dci_search_params mdci_effort(double share);

/* An index of kind FLAT of the same rows, in the same form. */
dci_index *mdci_flat_of(const dci_index *index);

/* Share of the wanted results that were found. */
double mdci_share_found(const pdci_found *want, const pdci_found *got);
/* The same for what an index finds with this share of its nodes, measured by itself at full effort. */
double mdci_recall(const dci_index *index, size_t n_queries, const float *queries, size_t k, double share);

/* Fails unless both have the same nodes on the lowest levels that both have. */
void mdci_same_nodes(const dci_index *a, const dci_index *b, const char *what);
/* Fails unless both find the same, bit by bit, at full effort and for the given share. */
void mdci_same_at(const dci_index *a, const dci_index *b, size_t n_queries, const float *queries, size_t k,
                  double share, const char *what);

dci_tree_stats mdci_stats(const dci_index *index);
dci_memory_report mdci_memory(const dci_index *index);

/* The lowest id >= `from` of a row that becomes a node of exactly this many levels, were there any number of them. */
int64_t mdci_id_of(const dci_index *index, size_t promotions, int64_t from);

/* A copy of the pages of an index that is kept up to date by the log of changes alone. Begin with zeros. */
typedef struct mdci_copy {
        uint64_t version;
        size_t page_rows, n_pages;
        int64_t *ids; /* page_rows of each page, the rest -1 */
} mdci_copy;
/* Returns how many pages were read again. */
size_t mdci_copy_follow(mdci_copy *copy, const dci_index *index);
/* Fails unless the copy holds what the index's pages hold, and nothing else. */
void mdci_copy_check(const mdci_copy *copy, const dci_index *index);
void mdci_copy_free(mdci_copy *copy);

#endif
