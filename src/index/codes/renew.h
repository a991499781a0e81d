/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* All codes of an index replaced, while searches go on: made aside by other frames, then swapped. */
#ifndef DCI_INDEX_CODES_RENEW_H
#define DCI_INDEX_CODES_RENEW_H

#include "index/codes/plan.h"
#include "index/index_internal.h"

/* The rows of the index, with codes of their own that have no frames yet. */
dci_status dci_codes_aside(const dci_index *index, dci_rows *out);
void dci_codes_aside_free(dci_rows *aside);
/* Encodes all rows by the frames that `aside` was given, and swaps the codes. With `writers` held. */
dci_status dci_codes_replace(dci_index *index, dci_rows *aside, const dci_progress *progress);

/* Gives rows that have no frames those of a plan for n rows. */
dci_status dci_codes_follow_plan(const dci_codes_plan *plan, size_t n, dci_rows *rows);

/* Rows were added, with `writers` held: where many have come since the last time, looks at a sample of all rows, and encodes them
 * again if other centres or kept directions would make codes clearly better: true. When memory is short they stay as they are. */
bool dci_codes_review(dci_index *index);

#endif
