/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What must hold of a tree after whatever happened to it. */
#ifndef DCI_TESTS_TREE_CHECK_H
#define DCI_TESTS_TREE_CHECK_H

#include "index/index_internal.h"
#include "index/tree/tree.h"
#include "tests/index_fixture.h"

/* Every row in one slot of one page of one cell, and the map knows it; empty slots have no id; nodes are the promoted
 * rows, with their own rows' points, linked both ways; means are those of the rows beneath. Fails the test that calls
 * it. */
void tree_check(const dci_index *index);

/* The two rank and reach by the same bits, level by level. */
void tree_equal(const dci_index *a, const dci_index *b);

/* Share of the rows (of 3000 or so, evenly spread, if there are more) that lie in the cell of the node nearest to
 * them. */
double tree_share_at_nearest(const dci_index *index);

#endif
