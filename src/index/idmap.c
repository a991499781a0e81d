/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * From id to slot. Where ids are dense (all below a small multiple of how many there are, as numbered tokens are), an array by
 * id; else open addressing with linear probing, deletion by shifting back, so that no tombstones pile up.
 */
#include "core/internal.h"

#include "index/idmap.h"

#define EMPTY INT64_C(-1)

static size_t home(const dci_idmap *map, int64_t id)
{
        /* The finaliser of splitmix64: ids are often consecutive or multiples of a power of two. */
        uint64_t z = (uint64_t)id;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return (size_t)(z ^ (z >> 31)) & map->mask;
}

/* An entry of the array costs 4 bytes, one of the table 32 or more for each id. */
#define DENSE 4

static dci_idmap *create_dense(dci_context *context, size_t n_dense)
{
        dci_idmap *map = dci_calloc(context, 1, sizeof *map);
        if (map == NULL)
                return NULL;
        map->n_dense = n_dense;
        map->dense = dci_alloc(context, n_dense, sizeof *map->dense);
        if (map->dense == NULL) {
                dci_free(context, map, 1, sizeof *map);
                return NULL;
        }
        for (size_t i = 0; i < n_dense; i++)
                atomic_init(&map->dense[i], -1);
        return map;
}

dci_idmap *dci_idmap_create(dci_context *context, size_t n, int64_t end)
{
        size_t size = 16;
        if ((uint64_t)end <= DENSE * (uint64_t)n)
                return create_dense(context, (size_t)end + (size_t)end / 4 + size);
        while (size / 2 < n) /* n is at most DCI_MAX_ROWS: no overflow */
                size *= 2;
        dci_idmap *map = dci_alloc(context, 1, sizeof *map);
        if (map == NULL)
                return NULL;
        *map = (dci_idmap){.mask = size - 1};
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
        size_t n_bytes;
        void *table = dci_idmap_table(map, &n_bytes);
        dci_free(context, table, n_bytes, 1);
        dci_free(context, map, 1, sizeof *map);
}

void *dci_idmap_table(const dci_idmap *map, size_t *out_bytes)
{
        *out_bytes = map->dense != NULL ? map->n_dense * sizeof *map->dense : (map->mask + 1) * sizeof *map->entries;
        return map->dense != NULL ? (void *)map->dense : (void *)map->entries;
}

bool dci_idmap_has_room(const dci_idmap *map, size_t n_more, int64_t end)
{
        if (map->dense != NULL)
                return (uint64_t)end <= map->n_dense;
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

static bool insert_dense(dci_idmap *map, int64_t id, int32_t slot)
{
        if (atomic_load_explicit(&map->dense[id], memory_order_relaxed) >= 0)
                return false;
        atomic_store_explicit(&map->dense[id], slot, memory_order_release);
        map->n++;
        return true;
}

bool dci_idmap_insert(dci_idmap *map, int64_t id, int32_t slot)
{
        if (map->dense != NULL)
                return insert_dense(map, id, slot);
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
        if (map->dense != NULL)
                return (uint64_t)id < map->n_dense ? atomic_load_explicit(&map->dense[id], memory_order_acquire) : -1;
        const dci_idmap_entry *entry = probe(map, id);
        if (atomic_load_explicit(&entry->id, memory_order_relaxed) != id)
                return -1;
        return atomic_load_explicit(&entry->slot, memory_order_relaxed);
}

void dci_idmap_set(dci_idmap *map, int64_t id, int32_t slot)
{
        if (map->dense != NULL)
                atomic_store_explicit(&map->dense[id], slot, memory_order_relaxed);
        else
                atomic_store_explicit(&probe(map, id)->slot, slot, memory_order_relaxed);
}

void dci_idmap_remove(dci_idmap *map, int64_t id)
{
        if (map->dense != NULL) {
                map->n -= dci_idmap_find(map, id) >= 0;
                if ((uint64_t)id < map->n_dense)
                        atomic_store_explicit(&map->dense[id], -1, memory_order_relaxed);
                return;
        }
        size_t hole = (size_t)(probe(map, id) - map->entries);
        if (atomic_load_explicit(&map->entries[hole].id, memory_order_relaxed) != id)
                return;
        for (size_t i = (hole + 1) & map->mask;; i = (i + 1) & map->mask) {
                int64_t moved = atomic_load_explicit(&map->entries[i].id, memory_order_relaxed);
                if (moved == EMPTY)
                        break;
                /* An entry may fill the hole if the hole is on its way from home to where it is. */
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
        size_t n_bytes;
        if (map == NULL)
                return 0;
        dci_idmap_table(map, &n_bytes);
        return sizeof *map + n_bytes;
}

bool dci_idmap_is_sparse(const dci_idmap *map)
{
        return map->n < (map->dense != NULL ? map->n_dense / (4 * DENSE) : (map->mask + 1) / 8);
}
