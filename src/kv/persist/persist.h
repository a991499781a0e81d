/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A prefix of a sequence in a checked container (core/file.h, docs/format.md): its rows, its transforms, what was
 * chosen once, and trees. Summaries and codes are computed again from rows, transforms and trees, to the same bits.
 */
#ifndef DCI_KV_PERSIST_PERSIST_H
#define DCI_KV_PERSIST_PERSIST_H

#include "core/file.h"
#include "kv/state.h"
#include "sketch/frames.h"

#define DCI_KV_FILE_KIND 0x31564b44U /* "DKV1" */
#define DCI_KV_FILE_VERSION 1U

/* The section "config": numbers of 8 bytes each; what must agree, then the number of tokens. */
enum {
        DCI_KV_FILE_FIELDS = 20,
        /** config, layers, heads, frames, fixed, keys, values; one more with clusters: groups */
        DCI_KV_FILE_SECTIONS = 7
};
typedef struct dci_kv_field {
        const char *name;
        uint64_t value;
} dci_kv_field;
void dci_kv_file_fields(const dci_kv *kv, size_t n_tokens, dci_kv_field out[DCI_KV_FILE_FIELDS]);

/* The section "heads": for each layer and head. */
#define DCI_KV_HEAD_BYTES ((size_t)56)
/* The section "layers": candidates and tokens of the prompt. */
#define DCI_KV_LAYER_BYTES ((size_t)16)
/* In the section "frames": of a learned layout, before its groups. */
#define DCI_KV_LAYOUT_BYTES ((size_t)24 + 4 * DCI_CODE_GROUPS)

DCI_INLINE size_t dci_kv_wide(const dci_kv *kv)
{
        return (kv->dim_k + DCI_CODE_GROUP - 1) / DCI_CODE_GROUP * DCI_CODE_GROUP;
}

/* The section "groups" (persist/clusters.c): its bytes; what is left of it while it is read, layer by layer. */
typedef struct dci_kv_words {
        const unsigned char *at;
        size_t left; /* bytes */
} dci_kv_words;
size_t dci_kv_clusters_bytes(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n);
dci_status dci_kv_emit_clusters(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n, const dci_sink *sink);
dci_status dci_kv_load_clusters(dci_kv *kv, dci_kv_layer *layer, dci_kv_words *words);

/* Bytes of a head's frames in their section. */
size_t dci_kv_transforms_bytes(const dci_kv *kv, int32_t key_kind, bool knows_queries, bool has_values);

#endif
