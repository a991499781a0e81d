/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Memory of a dci_kv, counted against its limit. */
#include "core/internal.h"

#include <string.h>

#include "kv/memory.h"

static dci_status take(dci_kv *kv, size_t n_bytes, bool pages, void **out)
{
        const size_t most = kv->config.max_bytes;
        size_t there = atomic_load(&kv->bytes), after;
        do {
                if (!dci_add(there, n_bytes, &after))
                        return dci_fail(DCI_ERR_LIMIT, "%zu bytes more than %zu are too many", n_bytes, there);
                if (most > 0 && after > most)
                        return dci_fail(DCI_ERR_FULL, "%zu bytes are wanted, but %zu of max_bytes %zu are in use",
                                        n_bytes, there, most);
        } while (!atomic_compare_exchange_weak(&kv->bytes, &there, after));
        void *memory = pages ? dci_alloc_pages(kv->context, n_bytes) : dci_alloc(kv->context, n_bytes, 1);
        if (memory == NULL) {
                atomic_fetch_sub(&kv->bytes, n_bytes);
                return DCI_ERR_MEMORY;
        }
        *out = memory;
        return DCI_OK;
}

dci_status dci_kv_alloc(dci_kv *kv, size_t n_bytes, void **out)
{
        return take(kv, n_bytes, false, out);
}

dci_status dci_kv_alloc_pages(dci_kv *kv, size_t n_bytes, void **out)
{
        return take(kv, n_bytes, true, out);
}

void dci_kv_free(dci_kv *kv, void *memory, size_t n_bytes)
{
        if (memory == NULL)
                return;
        dci_free(kv->context, memory, n_bytes, 1);
        atomic_fetch_sub(&kv->bytes, n_bytes);
}

dci_status dci_kv_alloc_areas(dci_kv *kv, size_t n, size_t area_bytes, dci_kv_scratch *out)
{
        const size_t max_bytes = kv->config.max_bytes, used = atomic_load(&kv->bytes),
                     room = max_bytes > 0 ? max_bytes - used : SIZE_MAX;
        void *memory = NULL;
        dci_may_fail(true);
        for (size_t all; n > 1; n /= 2)
                if (dci_mul(n, area_bytes, &all) && all <= room / 4 && dci_kv_alloc(kv, all, &memory) == DCI_OK)
                        break;
        dci_may_fail(false);
        if (memory == NULL)
                DCI_TRY(dci_kv_alloc(kv, area_bytes, &memory));
        *out = (dci_kv_scratch){memory, n, area_bytes};
        return DCI_OK;
}

static size_t grown(size_t capacity, size_t wanted)
{
        return wanted > 2 * capacity ? wanted : 2 * capacity;
}

size_t dci_kv_grow_bytes(size_t capacity, size_t wanted, size_t size)
{
        return wanted <= capacity ? 0 : grown(capacity, wanted) * size;
}

dci_status dci_kv_check_room(const dci_kv *kv, size_t n_bytes)
{
        const size_t most = kv->config.max_bytes, there = atomic_load(&kv->bytes);
        if (most > 0 && n_bytes > most - there)
                return dci_fail(DCI_ERR_FULL, "%zu bytes are wanted, but %zu of max_bytes %zu are in use", n_bytes,
                                there, most);
        return DCI_OK;
}

dci_status dci_kv_grow(dci_kv *kv, void **array, size_t *capacity, size_t wanted, size_t size)
{
        if (wanted <= *capacity)
                return DCI_OK;
        const size_t n = grown(*capacity, wanted);
        size_t n_bytes = 0;
        void *larger = NULL;
        if (!dci_mul(n, size, &n_bytes))
                return dci_fail(DCI_ERR_LIMIT, "%zu times %zu bytes are too many", n, size);
        const dci_status status = dci_kv_alloc(kv, n_bytes, &larger);
        if (status != DCI_OK || larger == NULL)
                return status;
        if (*array != NULL)
                memcpy(larger, *array, *capacity * size);
        dci_kv_free(kv, *array, *capacity * size);
        *array = larger;
        *capacity = n;
        return DCI_OK;
}

void dci_kv_free_retired(dci_kv *kv)
{
        if (kv->n_retired == 0)
                return;
        pthread_mutex_lock(&kv->jobs_lock);
        const bool idle = kv->n_free_areas == kv->n_areas;
        pthread_mutex_unlock(&kv->jobs_lock);
        for (; idle && kv->n_retired > 0; kv->n_retired--)
                dci_kv_free(kv, kv->retired[kv->n_retired - 1].memory, kv->retired[kv->n_retired - 1].n_bytes);
}

dci_status dci_kv_grow_shared(dci_kv *kv, void *array, size_t *capacity, size_t wanted, size_t size, void **out)
{
        *out = array;
        if (wanted <= *capacity)
                return DCI_OK;
        const size_t n_bytes = *capacity * size;
        pthread_mutex_lock(&kv->jobs_lock);
        const bool retires = array != NULL && kv->jobs != NULL;
        pthread_mutex_unlock(&kv->jobs_lock);
        if (retires)
                DCI_TRY(dci_kv_grow(kv, (void **)&kv->retired, &kv->retired_capacity, kv->n_retired + 1,
                                    sizeof *kv->retired));
        void *larger = NULL;
        size_t larger_capacity = 0;
        DCI_TRY(dci_kv_grow(kv, &larger, &larger_capacity, grown(*capacity, wanted), size));
        if (array != NULL)
                memcpy(larger, array, n_bytes);
        if (retires)
                kv->retired[kv->n_retired++] = (dci_kv_retired){array, n_bytes};
        else
                dci_kv_free(kv, array, n_bytes);
        *out = larger;
        *capacity = larger_capacity;
        return DCI_OK;
}
