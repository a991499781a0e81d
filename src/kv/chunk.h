/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Chunks hold what is stored per group of DCI_KV_CHUNK candidates of a layer: for each head, the summary's bytes, then
 * the tail's. Forks share chunks by counted references; a layer makes its chunks exclusive before it writes to them.
 */
#ifndef DCI_KV_CHUNK_H
#define DCI_KV_CHUNK_H

#include "kv/state.h"

struct dci_kv_chunk {
        atomic_size_t refs;
};

/* Gives the layer chunks for n candidates, exclusive from candidate `first` on. New ones are not cleared. */
dci_status dci_kv_make_chunks_exclusive(dci_kv *kv, dci_kv_layer *layer, size_t first, size_t n);
/* Releases all but the first n_left. */
void dci_kv_release_chunks(dci_kv *kv, dci_kv_layer *layer, size_t n_left);
/* A head's part of a chunk. */
unsigned char *dci_kv_chunk_head(const dci_kv *kv, const dci_kv_layer *layer, size_t chunk, size_t head);

#endif
