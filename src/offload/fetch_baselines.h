/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Copies what a plan lists, whoever made it, and the lanes do not have, to the device. MAPPED does so by two kernels, without the
 * host. The baselines resolve on the host, with the same function over tags of their own, so that slots and outputs are the same to
 * the bit; then
 *
 *      STAGED   the host collects rows in locked memory, which is copied in one piece, and a kernel spreads them
 *      BATCHED  one call for all copies
 *      COPIES   one call for each
 */
#ifndef DCI_OFFLOAD_FETCH_BASELINES_H
#define DCI_OFFLOAD_FETCH_BASELINES_H

#include "offload/state.h"

struct dci_gpu_kv_baselines {
        void **copy_to;
        const void **copy_from;
        size_t *copy_bytes;
        size_t max_copies;
        unsigned char *staged, *staged_device; /* locked; on the device */
        unsigned char **staged_piece;          /* on the device: one pointer, staged_device */
        int32_t *staged_table;                 /* on the device: 0, 1, .. */
        dci_gpu_item *host_items;              /* locked, items as resolved; and as they are staged */
        dci_gpu_item *staged_items;
        int32_t *host_n_items; /* locked */
        void *fetched;         /* event: the device has read what the host wrote for the last fetch */
};

/* Resolves the layer's plan to slots in kv->answer, and copies missing rows to the layer's lanes. */
dci_status dci_gpu_kv_fetch(dci_gpu_kv *kv, void *stream, size_t layer);

#endif
