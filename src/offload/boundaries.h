/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Reports segment boundaries to the host, where segments end (kv/stages/group_segment.c). The gate marks a token at which queries
 * changed, in locked memory, in a byte of the token's own, so that a repeated plan adds nothing:
 *
 *      [sparse layer][row][token modulo DCI_GPU_KV_BOUNDARIES]
 *
 * The host reads the marks when it may build segments, after the steps that set them, and before two tokens would share a byte.
 * Marks that were read are cleared, and so are those of an aborted step: no mark outlives its token. All calls do nothing where the
 * host forms no segments by boundaries.
 */
#ifndef DCI_OFFLOAD_BOUNDARIES_H
#define DCI_OFFLOAD_BOUNDARIES_H

#include "offload/state.h"

#define DCI_GPU_KV_BOUNDARIES 512 /* tokens whose marks there is room for; a power of two */

bool dci_gpu_kv_reports_boundaries(const dci_gpu_kv *kv);
/* Tells the gate of a layer where its marks are. */
void dci_gpu_kv_boundaries_gate(const dci_gpu_kv *kv, size_t layer, dci_gpu_gate_args *args);
/* For a new row of row->n tokens. The device no longer uses the row. */
void dci_gpu_kv_boundaries_open(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* Whether the host must read the marks before a step of so many tokens. */
bool dci_gpu_kv_boundaries_full(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t wanted);
/* Hands the marks of ended steps to the host's sequence. The device has finished those steps. */
dci_status dci_gpu_kv_boundaries_report(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* After the row, whose marks were reported, was truncated; and after a step of so many tokens was aborted. */
void dci_gpu_kv_boundaries_truncate(dci_gpu_kv_row *row);
void dci_gpu_kv_boundaries_abort(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t wanted);

#endif
