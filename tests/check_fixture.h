/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Indexes that have lived a little, for the suites about dci_index_check. */
#ifndef DCI_TESTS_CHECK_FIXTURE_H
#define DCI_TESTS_CHECK_FIXTURE_H

#include "index/codes/rows.h"
#include "index/mdci/mdci.h"
#include "index/tree/route.h"
#include "tests/index_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { CHECK_DIM = 24, CHECK_ROWS = 900 };

/* Small pages and levels, P-DCI in cells, a seed. */
dci_index_config check_config(dci_index_kind kind, dci_metric metric, dci_dtype dtype, int32_t bits);
/* Ids of their own (2 more than multiples of 7), added at once and in pieces, a third removed in pieces: id 9 is gone. */
dci_index *check_make(dci_context *context, const dci_index_config *config);
/* Both levels of the check. */
void check_passes(const dci_index *index);

/* A slot that holds a row, not the first; where the id of a slot stands; the unit of codes of that row; the first cell of a level that has
 * rows or nodes. */
size_t check_some_slot(dci_index *index);
int64_t *check_id_of(dci_index *index, size_t slot);
dci_unit check_unit_of(dci_index *index);
dci_cell *check_cell_of(dci_index *index, size_t l);

/* Damage, to an index of this kind, and what the check says of it. */
typedef struct check_damage {
        const char *name;
        void (*make)(dci_index *index);
        dci_index_kind kind;
        dci_metric metric;
        int32_t bits, level; /* level: the lowest that finds it */
        const char *says;
} check_damage;
/* Makes an index, damages it and wants that found at the level that should, and by its name. Returns the index, which may be beyond freeing. */
dci_index *check_damaged(const check_damage *damage);

#endif
