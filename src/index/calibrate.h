/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Calibration: what each recall takes, measured. The true neighbours of some queries are found exactly; then one pass for each query
 * says at which share of the effort each of them is found, and at which place codes rank it. From these follows the recall of every
 * effort at once, and the table of effort.h.
 */
#ifndef DCI_INDEX_CALIBRATE_H
#define DCI_INDEX_CALIBRATE_H

#include "index/queries.h"

/* Fewer queries say too little. */
#define DCI_CALIBRATED_QUERIES_LEAST ((size_t)16)

/* After a change of the rows, with `writers` held: calibrates the index on its rows, if its searches ask for a recall and the last
 * calibration is of many more or fewer rows. `renewed`: of whatever number; codes have changed. Where memory is short the old one
 * stays. */
void dci_calibrate_rows(dci_index *index, bool renewed);

/* On queries, into *out; fewer than 16, or rows: NONE. */
dci_status dci_calibrate_queries(const dci_index *index, const dci_queries *queries, const dci_progress *progress,
                                 dci_calibration *out);
/* After a fit, with `writers` held: on its queries, or, if they are few, on rows. */
void dci_calibrate_fitted(dci_index *index, const dci_queries *queries);
void dci_calibration_publish(dci_index *index, const dci_calibration *calibration);

#endif
