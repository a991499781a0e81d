/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Remove: the last rows move into the gaps, empty chunks go back to the allocator. */
#include "core/internal.h"

#include <stdlib.h>

#include "index/access.h"
#include "index/auto.h"
#include "index/calibrate.h"
#include "index/codes/rows.h"

static int compare_slots(const void *a, const void *b)
{
        int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
        return (x > y) - (x < y);
}

/* Slots of the ids, ascending. */
static dci_status find_slots(const dci_index *index, size_t n, const int64_t *ids, int32_t *slots)
{
        dci_view view = dci_rows_view(&index->rows);
        for (size_t i = 0; i < n; i++) {
                slots[i] = dci_index_slot(index, &view, ids[i]);
                if (slots[i] < 0)
                        return dci_fail(DCI_ERR_NOT_FOUND, "id %lld (number %zu) is not in the index",
                                        (long long)ids[i], i);
        }
        qsort(slots, n, sizeof *slots, compare_slots);
        for (size_t i = 1; i < n; i++)
                if (slots[i] == slots[i - 1])
                        return dci_fail(DCI_ERR_EXISTS, "id %lld is named twice",
                                        (long long)dci_view_id(&view, slots[i]));
        return DCI_OK;
}

/* Once a row is not where its id says, the index needs a map. Removing from the end alone moves nothing, but there are ids then that
 * must not be found. */
static dci_status make_map(dci_index *index)
{
        if (atomic_load(&index->map) != NULL)
                return DCI_OK;
        dci_view view = dci_rows_view(&index->rows);
        dci_idmap *map = dci_index_map_of(index, &view, 0, index->next_id);
        if (map == NULL)
                return DCI_ERR_MEMORY;
        atomic_store_explicit(&index->map, map, memory_order_release);
        return DCI_OK;
}

/* With no reader: gaps from below are filled by rows from above that stay. */
static void fill_gaps(dci_index *index, size_t n, const int32_t *slots)
{
        dci_view view = dci_rows_view(&index->rows);
        dci_idmap *map = atomic_load(&index->map);
        size_t left = view.n - n, source = view.n, skip = n; /* slots[skip ..] are at or above source */
        for (size_t i = 0; i < n; i++)
                dci_idmap_remove(map, dci_view_id(&view, slots[i]));
        for (size_t i = 0; i < n && (size_t)slots[i] < left; i++) {
                source--;
                while (skip > 0 && (size_t)slots[skip - 1] == source) {
                        skip--;
                        source--;
                }
                dci_idmap_set(map, dci_view_id(&view, (int32_t)source), slots[i]);
                dci_rows_copy(&index->rows, source, &index->rows, (size_t)slots[i]);
        }
        atomic_store_explicit(&index->rows.n, left, memory_order_release);
        atomic_store_explicit(&index->n_live, left, memory_order_release);
        dci_rows_shrink(&index->rows, left);
        if (left == 0)
                dci_rows_codes_restart(&index->rows);
}

/* A map much larger than what it holds is replaced; when memory is short the old one stays, and the call succeeds. */
static void shrink_map(dci_index *index)
{
        dci_idmap *old = atomic_load(&index->map);
        if (!dci_idmap_is_sparse(old))
                return;
        const dci_view view = dci_rows_view(&index->rows);
        dci_may_fail(true);
        dci_idmap *map = dci_index_map_of(index, &view, 0, index->next_id);
        dci_may_fail(false);
        if (map == NULL)
                return;
        atomic_store_explicit(&index->map, map, memory_order_release);
        dci_idmap_destroy(index->context, old);
}

dci_status dci_rows_remove(dci_index *index, size_t n, const int64_t *ids)
{
        int32_t *slots = dci_alloc(index->context, n, sizeof *slots);
        if (slots == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = find_slots(index, n, ids, slots);
        if (status == DCI_OK)
                status = make_map(index);
        if (status == DCI_OK) {
                dci_index_exclusive_begin(index);
                fill_gaps(index, n, slots);
                shrink_map(index);
                dci_index_exclusive_end(index);
        }
        dci_free(index->context, slots, n, sizeof *slots);
        return status;
}

dci_status dci_rows_remove_all(dci_index *index)
{
        dci_index_exclusive_begin(index);
        dci_rows_clear(&index->rows);
        atomic_store(&index->n_live, 0);
        dci_rows_codes_restart(&index->rows);
        dci_idmap_destroy(index->context, atomic_load(&index->map));
        atomic_store(&index->map, NULL); /* without rows, every id is its slot */
        dci_index_exclusive_end(index);
        return DCI_OK;
}

static dci_status check_remove(const dci_index *index, size_t n, const int64_t *ids)
{
        DCI_TRY(dci_index_check_writer(index));
        return n > 0 && ids == NULL ? dci_fail(DCI_ERR_INVALID, "ids is NULL") : DCI_OK;
}

/* With `writers` held. */
static dci_status remove_rows(dci_index *index, size_t n, const int64_t *ids)
{
        const dci_status status = n == 0 ? DCI_OK : index->kind->remove(index, n, ids);
        if (status == DCI_OK && index->automatic.on)
                dci_auto_removed(index);
        if (status == DCI_OK && n > 0)
                dci_calibrate_rows(index, false);
        dci_index_collect(index);
        return status;
}

dci_status dci_index_remove(dci_index *index, size_t n, const int64_t *ids)
{
        DCI_TRY(check_remove(index, n, ids));
        if (n > DCI_MAX_ROWS)
                return dci_fail(DCI_ERR_NOT_FOUND, "%zu ids named, an index holds at most %zu", n, DCI_MAX_ROWS);
        pthread_mutex_lock(&index->writers);
        const dci_status status = remove_rows(index, n, ids);
        pthread_mutex_unlock(&index->writers);
        return status;
}

/* The ids that are there, each once, in the order given. */
static dci_status find_present(const dci_index *index, size_t n, const int64_t *ids, int64_t *out, size_t *out_n)
{
        const dci_view view = dci_rows_view(&index->rows);
        dci_idmap *seen = dci_idmap_create(index->context, *out_n, index->next_id);
        if (seen == NULL)
                return DCI_ERR_MEMORY;
        *out_n = 0;
        for (size_t i = 0; i < n; i++)
                if (dci_index_slot(index, &view, ids[i]) >= 0 && dci_idmap_insert(seen, ids[i], 0))
                        out[(*out_n)++] = ids[i];
        dci_idmap_destroy(index->context, seen);
        return DCI_OK;
}

dci_status dci_index_remove_present(dci_index *index, size_t n, const int64_t *ids, size_t *out_removed)
{
        DCI_TRY(check_remove(index, n, ids));
        pthread_mutex_lock(&index->writers);
        const size_t count = dci_index_count(index), most = n < count ? n : count;
        size_t n_present = most;
        int64_t *present = dci_alloc(index->context, most, sizeof *present);
        dci_status status = present == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK)
                status = find_present(index, n, ids, present, &n_present);
        if (status == DCI_OK)
                status = remove_rows(index, n_present, present);
        pthread_mutex_unlock(&index->writers);
        dci_free(index->context, present, most, sizeof *present);
        if (status == DCI_OK && out_removed != NULL)
                *out_removed = n_present;
        return status;
}

dci_status dci_index_clear(dci_index *index)
{
        DCI_TRY(dci_index_check_writer(index));
        pthread_mutex_lock(&index->writers);
        const dci_status status = index->kind->clear(index);
        if (status == DCI_OK && index->automatic.on)
                dci_auto_removed(index);
        dci_index_collect(index);
        pthread_mutex_unlock(&index->writers);
        return status;
}
