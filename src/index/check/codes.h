/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Checks of codes, and of the frames that they were encoded with. */
#ifndef DCI_INDEX_CHECK_CODES_H
#define DCI_INDEX_CHECK_CODES_H

#include "index/index_internal.h"

/* What a full check compares rows with. */
typedef struct dci_row_check {
        const dci_index *index;
        dci_view view;
        bool exact;             /* numbers were made by this machine's kernels: to the bit */
        size_t scratch_bytes;   /* of a worker */
        unsigned char *scratch; /* by worker */
} dci_row_check;

/* Every block that holds a row has a frame, and no block one that there is not: rows may come to it. Numbers of rows are numbers. */
dci_status dci_check_codes(const dci_index *index, const dci_view *view);
/* Rotations are those of the seed, and what was learned is finite. */
dci_status dci_check_frames(const dci_index *index);
size_t dci_check_codes_bytes(const dci_index *index);
/* Codes of n rows from `slot` on, all of one block. */
dci_status dci_check_block(const dci_row_check *check, size_t slot, size_t n, void *scratch);

#endif
