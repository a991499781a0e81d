/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A tree that is built again while searches go on, and replaces the present one under the lock. */
#ifndef DCI_INDEX_MDCI_BUILD_H
#define DCI_INDEX_MDCI_BUILD_H

#include "index/index_internal.h"

/* Builds a tree again from the rows there are, less `leaving`, and those of `staged` (either may be NULL), aside, and swaps
 * it in. With `staged` there is room for as many rows as before, in case it was reserved. end: one more than the largest id ever
 * used. */
dci_status dci_mdci_rebuild(dci_index *index, dci_rows *staged, const dci_idmap *leaving, float c_squared, int64_t end,
                            const dci_progress *progress);

#endif
