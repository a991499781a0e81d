/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* One batch of rows on its way in: what all kinds do with it. */
#ifndef DCI_INDEX_BATCH_H
#define DCI_INDEX_BATCH_H

#include "index/index_internal.h"

typedef struct dci_batch {
        dci_index *index;
        dci_rows *target; /* where the rows are put */
        dci_rows staged;  /* there, until a tree, or kind AUTO, says where they belong */
        size_t n, first;  /* rows, and the slot of the first */
        const unsigned char *rows;
        size_t ld_bytes;
        const int64_t *ids;
        int64_t first_id;
        size_t rows_per_task;
        float *scratch;         /* dim floats per worker, when formats differ */
        atomic_size_t bad_task; /* lowest task with a refused row */
        bool followed;          /* centres of codes were asked to follow */
} dci_batch;

int64_t dci_batch_id(const dci_batch *b, size_t i);
/* One more than the largest id ever used, this batch included. */
int64_t dci_batch_end(const dci_batch *b);
/* Squared norm of the longest row so far, the batch included: c^2 stands for those before. */
float dci_batch_longest(const dci_batch *b);

/* None of the ids is there already, none comes twice. */
dci_status dci_batch_check_ids(const dci_batch *b);

/* Copies, checks and projects all rows into slots that nobody reads yet, in one region. */
dci_status dci_batch_place(dci_batch *b, const dci_progress *progress);
/* The same into `staged`, rows as an index of this config has them but without gaps or codes, which depend on the place. Free them, after
 * a failure, too. */
dci_status dci_batch_stage(dci_batch *b, const dci_index_config *config, const dci_progress *progress);

#endif
