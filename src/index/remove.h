/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Removing from an index without structure: the last rows fill the gaps. */
#ifndef DCI_INDEX_REMOVE_H
#define DCI_INDEX_REMOVE_H

#include "index/index_internal.h"

/* Called with `writers` held. */
dci_status dci_rows_remove(dci_index *index, size_t n, const int64_t *ids);

#endif
