/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* All that an index holds, built again aside while searches go on, and swapped in. */
#ifndef DCI_INDEX_REBUILD_H
#define DCI_INDEX_REBUILD_H

#include "index/index_internal.h"

/*
 * Of the rows there are, less `leaving`, and those of `staged` (either may be NULL); all of the index's `config`, or, for kind AUTO, with
 * another kind or other codes: FLAT keeps the order of the slots and puts staged rows last, MDCI builds a tree. Called with `writers` held.
 * With `staged` there is room for as many rows as before, in case it was reserved. end: one more than the largest id ever used.
 */
dci_status dci_index_rebuild(dci_index *index, const dci_index_config *config, dci_rows *staged,
                             const dci_idmap *leaving, int64_t end, const dci_progress *progress);

#endif
