/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Learned codes of a prompt that another owner makes with transforms that were fitted here (kv->fits_only). */
#ifndef DCI_KV_EXTERNAL_CODES_H
#define DCI_KV_EXTERNAL_CODES_H

#include "kv/state.h"

/* The other owner has codes of the first n_missing candidates of a layer that is `uncoded`; residuals, ld apart by
 * head, are those that dci_kv_watch_codes takes. Builds the rest here; all of it if residuals is NULL. */
dci_status dci_kv_set_codes(dci_kv *kv, dci_kv_layer *layer, const float *residuals, size_t ld);
/* Builds missing codes from candidate `first` on, where a chunk begins. */
dci_status dci_kv_build_missing(dci_kv *kv, dci_kv_layer *layer, size_t first);

#endif
