/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the suites of kind AUTO share. */
#ifndef DCI_TESTS_AUTO_FIXTURE_H
#define DCI_TESTS_AUTO_FIXTURE_H

#include "tests/mdci_fixture.h"

/* By the rule, its numbers divided by DIVISOR: FLAT below FEW rows of DIM floats, MDCI from MANY rows on. */
enum {
        DIM = 64,
        DIVISOR = 300,
        FEW = (1 << 20) / (DIM * 4) / DIVISOR,
        MANY = 8000000 / (DIM + 64) / DIVISOR,
        MOST = 4 * MANY,
        K = 7
};

/* Kind AUTO, of rows of DIM elements; rows and queries come as floats. */
dci_index_config auto_config(dci_metric metric, dci_dtype dtype);
/* An empty index whose rule is divided by DIVISOR. */
dci_index *auto_index(dci_context *with, const dci_index_config *config);
dci_index_config auto_in_use(const dci_index *index);

/* Fails unless this is in use. */
void auto_hold(const dci_index *index, dci_index_kind kind, int32_t bits);
/* And unless the index passes its full check. */
void auto_check(const dci_index *index, dci_index_kind kind, int32_t bits);
/* Fails unless both hold the same rows under the same ids, MOST at most, and find the same, to the bit, where all rows are scored. */
void auto_same(const dci_index *index, const dci_index *flat, const float *queries, const char *what);

#endif
