/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * When the device selects again: what kv/stages/schedule.c is for the host. What plans of a layer keep for the next one
 * is on the device, all layers of a row together:
 *
 *      [row] states of all sparse layers, then by layer: counts, lists, queries
 *
 * A fork is therefore one copy. The host has no copy; what a truncation changes it reads and writes back while the
 * device is idle.
 *
 * With the schedule AHEAD the lists of the next plan are selected on a stream of their own, until the layer's attention
 * is queued: dci_gpu_kv_join_ahead then orders the step's stream after them.
 */
#ifndef DCI_OFFLOAD_SCHEDULE_H
#define DCI_OFFLOAD_SCHEDULE_H

#include "offload/state.h"

typedef struct dci_gpu_kv_schedule {
        bool on;                                     /* plans keep lists for later ones */
        size_t states_bytes, layer_bytes, row_bytes; /* of a row: the states of all layers; a layer's part; all */
        unsigned char *memory;                       /* on the device, [row] */
        int32_t *due;                                /* on the device, by list, of the layer that is planned */
        int32_t *states;                             /* locked, of a row */
        bool has_stream;                             /* AHEAD */
        void *stream, *taken;                        /* taken: event after which the plan's own lists are complete */
} dci_gpu_kv_schedule;

dci_status dci_gpu_kv_can_schedule(const dci_kv_config *shape);
/* Sizes; then, with memory, the initial contents. */
void dci_gpu_kv_schedule_init(dci_gpu_kv *kv);
dci_status dci_gpu_kv_schedule_begin(dci_gpu_kv *kv);
void dci_gpu_kv_schedule_destroy(dci_gpu_kv *kv);
dci_status dci_gpu_kv_schedule_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
dci_status dci_gpu_kv_schedule_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to);
/* After the host's sequence was truncated to n tokens. The device is idle. */
dci_status dci_gpu_kv_schedule_truncate(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t n);
/* A row's part of the memory: row_bytes. */
unsigned char *dci_gpu_kv_schedule_row(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Checks that the layer whose lists this one uses has a plan in this step. */
dci_status dci_gpu_kv_check_anchor(const dci_gpu_kv *kv, size_t layer);
/* Plans sequences of the step with lists that are kept; the arguments are those of a plan that selects every time. */
dci_status dci_gpu_kv_schedule_plan(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score,
                                    const dci_gpu_select_args *select);

#endif
