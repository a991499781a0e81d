/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Sequences that are swapped out: they have no row, and what only the device had of them is in ordinary host memory,
 * which counts as the host's (max_bytes):
 *
 *      [sparse layer][chunk] summaries, [sparse layer] centres of keys and of values, lists that a schedule keeps
 *
 * Everything else the host has anyway: keys and values, clusters, transforms of learned codes; and, once it has built
 * them for a file, all summaries.
 */
#ifndef DCI_OFFLOAD_SWAP_H
#define DCI_OFFLOAD_SWAP_H

#include "offload/state.h"

/* Copies what only the device has of a row, which stays as it is. The device is idle. */
dci_status dci_gpu_kv_swap_save(dci_gpu_kv *kv, dci_gpu_kv_row *row, dci_gpu_kv_swapped **out);
/* The row loses its place on the device, and becomes free. */
dci_status dci_gpu_kv_swap_leave(dci_gpu_kv *kv, dci_gpu_kv_row *row, dci_gpu_kv_swapped *s);
/* Gives a row the summaries and lists of a sequence that was swapped out, or of which it is a fork. */
dci_status dci_gpu_kv_swap_restore(dci_gpu_kv *kv, const dci_gpu_kv_swapped *s, dci_gpu_kv_row *row);
/* The host builds what prompts have given and is still due, before the sequence is forked; or all that is due, before it
 * is saved. */
dci_status dci_gpu_kv_swap_settle(dci_gpu_kv *kv, dci_gpu_kv_swapped *s, bool all);
/* Forgets the sequence, which has a row again or is closed. */
void dci_gpu_kv_swap_free(dci_gpu_kv *kv, dci_gpu_kv_swapped *s);

#endif
