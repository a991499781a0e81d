/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Adding to an index without structure: rows go to the end. */
#ifndef DCI_INDEX_INSERT_H
#define DCI_INDEX_INSERT_H

#include "index/batch.h"

/* Called with `writers` held. */
dci_status dci_rows_add(dci_batch *b, const dci_progress *progress);

#endif
