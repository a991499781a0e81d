/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From id to slot: open addressing with linear probing, deletion by shifting back, so that no tombstones pile up. */
#include "index/index_internal.h"

#define EMPTY INT64_C(-1)

static size_t home(const dci_idmap *map, int64_t id)
{
        /* The finaliser of splitmix64: ids are often consecutive or multiples of a power of two. */
        uint64_t z = (uint64_t)id;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return (size_t)(z ^ (z >> 31)) & map->mask;
}

dci_idmap *dci_idmap_create(dci_context *context, size_t n)
{
        size_t size = 16;
        while (size / 2 < n) /* n is at most DCI_MAX_ROWS: no overflow */
                size *= 2;
        dci_idmap *map = dci_alloc(context, 1, sizeof *map);
        if (map == NULL)
                return NULL;
        map->n = 0;
        map->mask = size - 1;
        map->entries = dci_alloc(context, size, sizeof *map->entries);
        if (map->entries == NULL) {
                dci_free(context, map, 1, sizeof *map);
                return NULL;
        }
        for (size_t i = 0; i < size; i++) {
                atomic_init(&map->entries[i].id, EMPTY);
                atomic_init(&map->entries[i].slot, -1);
        }
        return map;
}

void dci_idmap_destroy(dci_context *context, dci_idmap *map)
{
        if (map == NULL)
                return;
        dci_free(context, map->entries, map->mask + 1, sizeof *map->entries);
        dci_free(context, map, 1, sizeof *map);
}

bool dci_idmap_has_room(const dci_idmap *map, size_t n_more)
{
        return n_more <= (map->mask + 1) / 2 - map->n;
}

/* The entry that holds the id, or the empty one where it would go. */
static dci_idmap_entry *probe(const dci_idmap *map, int64_t id)
{
        for (size_t i = home(map, id);; i = (i + 1) & map->mask) {
                int64_t found = atomic_load_explicit(&map->entries[i].id, memory_order_acquire);
                if (found == id || found == EMPTY)
                        return &map->entries[i];
        }
}

bool dci_idmap_insert(dci_idmap *map, int64_t id, int32_t slot)
{
        dci_idmap_entry *entry = probe(map, id);
        if (atomic_load_explicit(&entry->id, memory_order_relaxed) == id)
                return false;
        /* The slot first: a reader that finds the id must find its slot. */
        atomic_store_explicit(&entry->slot, slot, memory_order_relaxed);
        atomic_store_explicit(&entry->id, id, memory_order_release);
        map->n++;
        return true;
}

int32_t dci_idmap_find(const dci_idmap *map, int64_t id)
{
        if (id < 0)
                return -1;
        const dci_idmap_entry *entry = probe(map, id);
        if (atomic_load_explicit(&entry->id, memory_order_relaxed) != id)
                return -1;
        return atomic_load_explicit(&entry->slot, memory_order_relaxed);
}

void dci_idmap_set(dci_idmap *map, int64_t id, int32_t slot)
{
        atomic_store_explicit(&probe(map, id)->slot, slot, memory_order_relaxed);
}

void dci_idmap_remove(dci_idmap *map, int64_t id)
{
        size_t hole = (size_t)(probe(map, id) - map->entries);
        if (atomic_load_explicit(&map->entries[hole].id, memory_order_relaxed) != id)
                return;
        for (size_t i = (hole + 1) & map->mask;; i = (i + 1) & map->mask) {
                int64_t moved = atomic_load_explicit(&map->entries[i].id, memory_order_relaxed);
                if (moved == EMPTY)
                        break;
                /* An entry may fill the hole if the hole lies on its way from home to where it is. */
                if (((i - home(map, moved)) & map->mask) < ((i - hole) & map->mask))
                        continue;
                int32_t slot = atomic_load_explicit(&map->entries[i].slot, memory_order_relaxed);
                atomic_store_explicit(&map->entries[hole].slot, slot, memory_order_relaxed);
                atomic_store_explicit(&map->entries[hole].id, moved, memory_order_relaxed);
                hole = i;
        }
        atomic_store_explicit(&map->entries[hole].id, EMPTY, memory_order_relaxed);
        map->n--;
}

size_t dci_idmap_bytes(const dci_idmap *map)
{
        return map == NULL ? 0 : sizeof *map + (map->mask + 1) * sizeof *map->entries;
}
