/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Map from id to slot: an array by id, or open addressing with linear probing, at most half full. One writer may insert while
 * readers search; removing wants no readers. */
#ifndef DCI_INDEX_IDMAP_H
#define DCI_INDEX_IDMAP_H

#include "core/internal.h"

typedef struct dci_idmap_entry {
        _Atomic int64_t id; /* -1: empty */
        _Atomic int32_t slot;
} dci_idmap_entry;

typedef struct dci_idmap {
        size_t n, mask;           /* mask + 1 entries */
        dci_idmap_entry *entries; /* NULL if dense */
        size_t n_dense;           /* ids below this */
        _Atomic int32_t *dense;   /* -1: not there */
} dci_idmap;

/* A new map with room for n ids, all below `end`, or NULL with the error recorded. */
dci_idmap *dci_idmap_create(dci_context *context, size_t n, int64_t end);
void dci_idmap_destroy(dci_context *context, dci_idmap *map);
bool dci_idmap_has_room(const dci_idmap *map, size_t n_more, int64_t end);
/* Is it much larger than what it holds? */
bool dci_idmap_is_sparse(const dci_idmap *map);
/* What it has allocated besides itself. */
void *dci_idmap_table(const dci_idmap *map, size_t *out_bytes);
/* False, changing nothing, when the id is there already. */
bool dci_idmap_insert(dci_idmap *map, int64_t id, int32_t slot);
/* The slot, or -1. */
int32_t dci_idmap_find(const dci_idmap *map, int64_t id);
void dci_idmap_set(dci_idmap *map, int64_t id, int32_t slot);
void dci_idmap_remove(dci_idmap *map, int64_t id);
size_t dci_idmap_bytes(const dci_idmap *map);

#endif
