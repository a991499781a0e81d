/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind AUTO: FLAT, FLAT with codes or MDCI with codes, as the number of rows says. */
#ifndef DCI_INDEX_AUTO_H
#define DCI_INDEX_AUTO_H

#include "index/index_internal.h"

struct dci_batch;
/* In place of the kind's own hook: adds the batch, and in the same publication changes to what suits the rows there will be. If that fails
 * for anything but a cancel, the batch is added to what there is. */
dci_status dci_auto_add(struct dci_batch *batch, const dci_progress *progress);

/* Rows have gone, with `writers` held: goes back where they are far too few. When memory is short the index stays as it is. */
void dci_auto_removed(dci_index *index);

#endif
