/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind MDCI: the tree as part of an index. */
#ifndef DCI_INDEX_MDCI_MDCI_H
#define DCI_INDEX_MDCI_MDCI_H

#include "index/batch.h"
#include "index/tree/tree.h"

/* An empty tree, and the map that this kind always has. */
dci_status dci_mdci_create(dci_index *index);
void dci_mdci_destroy(dci_index *index);

/* Called with `writers` held. */
dci_status dci_mdci_add(dci_batch *b, const dci_progress *progress);
dci_status dci_mdci_remove(dci_index *index, size_t n, const int64_t *ids);

#endif
