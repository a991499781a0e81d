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
        bool replaces;    /* rows whose ids are there replace those, n - n_new of them */
        bool adds_none;   /* and all ids must be there */
        size_t n_new;
        /* FLAT and PDCI, by place: the row of the batch (NULL: in order); from n_new on the slot of what it replaces */
        int32_t *order, *old_slots;
        /* MDCI, and where kind AUTO changes: the ids that are there, and a set of them; NULL: none */
        int64_t *old_ids;
        dci_idmap *leaving;
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
/* The row that is put at first + place. */
DCI_INLINE size_t dci_batch_row(const dci_batch *b, size_t place)
{
        return b->order == NULL ? place : (size_t)b->order[place];
}
/* No id comes twice. */
dci_status dci_batch_check_distinct(const dci_batch *b);
/* Refuses row i, whose id is not there, in a batch that adds none. */
dci_status dci_batch_check_new(const dci_batch *b, size_t i);
/* One more than the largest id ever used, this batch included. */
int64_t dci_batch_end(const dci_batch *b);
/* Squared norm of the longest row so far, the batch included: c^2 stands for those before. */
float dci_batch_longest(const dci_batch *b);

/* No id comes twice, and none is there already; where the batch replaces rows, those that are there become old_ids and leaving. */
dci_status dci_batch_find_old(dci_batch *b);
/* Frees what was found out about the ids. */
void dci_batch_free(dci_batch *b);

/* Copies, checks and projects all rows into slots that nobody reads yet, in one region. */
dci_status dci_batch_place(dci_batch *b, const dci_progress *progress);
/* The same into `staged`, rows as an index of this config has them but without gaps or codes, which depend on the place. Free them, after
 * a failure, too. */
dci_status dci_batch_stage(dci_batch *b, const dci_index_config *config, const dci_progress *progress);

#endif
