/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Summaries that a device selects by: of tokens after the sink, in chunks (chunk_store.h) like the host's
 * (kv/summaries.c).
 *
 * The device builds them itself: of a prompt that comes in one step, and of tokens that leave the window. The host has
 * all rows, and builds what it is asked for: when a sequence is saved, when codes are due to be encoded again, and what
 * the device has not seen in time (a prompt in several steps, a first transform, a long piece after a prompt). Then the
 * device gets a copy. Both make the same bits.
 *
 * A row is opened or forked, takes part in steps (reserve, build, step_end or abort), is truncated, and closed. These
 * calls pass on to clusters.c and learned_codes.c where they are responsible, and do nothing where the host plans. What
 * the device has of a row, and the states that it goes through: kv/former.h.
 */
#ifndef DCI_OFFLOAD_SUMMARIES_H
#define DCI_OFFLOAD_SUMMARIES_H

#include "offload/upload.h"

/* Before a step: the host builds and uploads what the device cannot build, and chunks for the rest are allocated. */
dci_status dci_gpu_kv_planner_reserve(dci_gpu_kv *kv);
/* Builds what a prompt gave and the host is to build, before the sequence is shared or truncated. */
dci_status dci_gpu_kv_planner_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* Whether the host is to build that, of codes that it does not learn or of pages. */
bool dci_gpu_kv_planner_lacks(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* On the step's stream, before the rows of its first sparse layer are stored. */
dci_status dci_gpu_kv_build(dci_gpu_kv *kv);
/* When a layer's prompt has ended: builds from the rows of this step, if they are all of it, or from those that were
 * named. */
dci_status dci_gpu_kv_build_prompt(dci_gpu_kv *kv, size_t layer, dci_gpu_kv_row *row);
void dci_gpu_kv_planner_step_end(dci_gpu_kv *kv, bool aborted);
/* Before a step is aborted: builds what it has not built. */
dci_status dci_gpu_kv_planner_abort(dci_gpu_kv *kv);
/* The host builds what it has not, encodes again what is due, and the device gets what it does not have. */
dci_status dci_gpu_kv_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* The device gets all that the host has built. */
dci_status dci_gpu_kv_upload_all(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* How often transforms of the host were fitted again. */
size_t dci_gpu_kv_count_refits(const dci_gpu_kv *kv, const dci_kv_sequence *sequence);
/* For a new row; for one whose sequence stays without it, or is closed; for a fork of to->n tokens; for one truncated to n tokens. The device is
 * idle. */
dci_status dci_gpu_kv_planner_open(dci_gpu_kv *kv, dci_gpu_kv_row *row);
void dci_gpu_kv_planner_leave(dci_gpu_kv *kv, dci_gpu_kv_row *row);
void dci_gpu_kv_planner_close(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* Frees chunks that rows do not use, and pieces without a used one. No step is open. */
void dci_gpu_kv_planner_trim(dci_gpu_kv *kv);
dci_status dci_gpu_kv_planner_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to);
dci_status dci_gpu_kv_planner_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n);
/* Checks that the row's prompt has ended in all layers that select. */
dci_status dci_gpu_kv_check_prompted(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);

#endif
