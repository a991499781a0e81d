/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Second stage by codes: distortion that another owner reports, and units that are read after a preselection. */
#ifndef DCI_KV_STAGES_SUMMARY_CODES_H
#define DCI_KV_STAGES_SUMMARY_CODES_H

#include "kv/stages/stages.h"
#include "sketch/coder.h"

/* Of the first DCI_KV_WATCHED_SPAN codes every block's distortion is watched, then one block of DCI_KV_WATCHED. */
#define DCI_KV_WATCHED_SPAN 1024
#define DCI_KV_WATCHED 8
/* Counts residuals of the watched blocks among the first n learned codes, a multiple of DCI_CODE_ROWS, as if the codes
 * were made here. */
void dci_kv_watch_codes(dci_kv_head *head, size_t n, const float *residuals);

/* Units of codes that are read after a preselection by mean keys; 0: there is none. c: as checked. */
size_t dci_kv_preselected(const dci_kv_config *c);

#endif
