/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Builds what chunks and trees store of candidates: summaries, tails and trees, and before them the transforms that
 * codes are made with. Scratch is allocated by dci_kv_build_ready; then nothing here can fail. Heads are independent.
 * The same rows give the same bits, whether candidates come at once or in several calls.
 */
#ifndef DCI_KV_SUMMARIES_H
#define DCI_KV_SUMMARIES_H

#include "kv/transform.h"

/* Scratch: an area for each thread of the context, two at least (worker.h); fewer where they exceed DCI_KV_SCRATCH or
 * memory is short. */
dci_status dci_kv_build_ready(dci_kv *kv);
size_t dci_kv_build_bytes(const dci_kv *kv);
DCI_INLINE void *dci_kv_build_area(const dci_kv *kv, size_t area)
{
        return kv->building.memory + area * kv->building.area_bytes;
}

/* Builds candidates [first, end) of one head with its transforms. */
void dci_kv_build(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch);
/* The same after fitting the transforms to the first `end` candidates, and choosing by observed queries where that is
 * done once. */
void dci_kv_rebuild(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch);
/* Fits the transform of the keys again, and encodes them; tails do not change. */
void dci_kv_reencode(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t end, void *scratch);
/* Builds a chunk's candidates among the first n_candidates in `memory`, a head's part of a chunk; other places keep
 * what they hold. h is a copy of the head, whose distortion is counted. */
void dci_kv_rebuild_chunk(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_head *h, size_t chunk,
                          size_t n_candidates, unsigned char *memory, void *scratch);

/* Of a prompt of `end` candidates that a device encodes: fits the transform only, where it is learned; else as
 * dci_kv_rebuild. */
void dci_kv_build_fit(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t end, void *scratch);
/* Builds the rest, after a device has encoded the first candidates, with their residuals; NULL: it has encoded none. */
void dci_kv_build_rest(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, const float *residuals,
                       void *scratch);

/* Gives a layer without candidates random transforms about these centres, a row for each head, for codes that a
 * device has. value_centres is read only if the tail has codes. */
dci_status dci_kv_set_centres(dci_kv *kv, dci_kv_layer *layer, const float *centres, const float *value_centres);
/* Fills in a transform of values about this centre. */
void dci_kv_begin_values(const dci_kv *kv, const float *centre, dci_kv_transform *transform);

#endif
