/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Indexes after some adds and removes, for the suites about dci_index_check. */
#ifndef DCI_TESTS_CHECK_FIXTURE_H
#define DCI_TESTS_CHECK_FIXTURE_H

#include "index/codes/rows.h"
#include "index/index_internal.h"
#include "index/tree/route.h"
#include "index/tree/tree.h"
#include "tests/index_fixture.h"

enum { CHECK_DIM = 24, CHECK_ROWS = 900, CHECK_GONE = 9 };

/* A configuration with small pages and levels, P-DCI in cells and a seed. */
dci_index_config check_config(dci_index_kind kind, dci_metric metric, dci_dtype dtype, int32_t bits);
/* Creates an index. Rows have ids 2, 9, 16, ...; half are added at once, the others in batches, then a third is
 * removed, CHECK_GONE too. */
dci_index *check_make(dci_context *context, const dci_index_config *config);
/* Fails unless the index passes both levels of the check. */
void check_passes(const dci_index *index);

/* A slot that holds a row, not the first one; the id of a slot; the unit of codes that contains the row of
 * check_some_slot; the first cell of a level that is not empty. */
size_t check_some_slot(dci_index *index);
int64_t *check_id_of(dci_index *index, size_t slot);
dci_unit check_unit_of(dci_index *index);
dci_cell *check_cell_of(dci_index *index, size_t l);

#endif
