/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Locks of an index, and what can be asked of it. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "index/access.h"

/* --- locks: an index is const to its readers, but its lock is not ------------------------------------------------------ */

static dci_index *unconst(const dci_index *index)
{
        return (dci_index *)(uintptr_t)index;
}

void dci_index_free_retired(dci_index *index)
{
        while (index->retired != NULL) {
                dci_retired *note = index->retired;
                index->retired = note->next;
                dci_free(index->context, note->pointer, note->n_bytes, 1);
                dci_free(index->context, note, 1, sizeof *note);
        }
}

void dci_index_read_begin(const dci_index *index)
{
        pthread_mutex_lock(&unconst(index)->turnstile);
        pthread_mutex_unlock(&unconst(index)->turnstile);
        pthread_rwlock_rdlock(&unconst(index)->state);
}

void dci_index_read_end(const dci_index *index)
{
        pthread_rwlock_unlock(&unconst(index)->state);
}

void dci_index_exclusive_begin(dci_index *index)
{
        pthread_mutex_lock(&index->turnstile);
        pthread_rwlock_wrlock(&index->state);
        dci_index_free_retired(index);
}

void dci_index_exclusive_end(dci_index *index)
{
        pthread_rwlock_unlock(&index->state);
        pthread_mutex_unlock(&index->turnstile);
}

void dci_index_collect(dci_index *index)
{
        if (index->retired != NULL && pthread_rwlock_trywrlock(&index->state) == 0) {
                dci_index_free_retired(index);
                pthread_rwlock_unlock(&index->state);
        }
}

dci_status dci_index_check_call(const dci_index *index)
{
        if (index == NULL)
                return dci_fail(DCI_ERR_INVALID, "index is NULL");
        if (dci_is_busy(index))
                return dci_fail(DCI_ERR_BUSY, "the index is running this callback; it cannot be used from inside");
        return DCI_OK;
}

dci_status dci_index_check_writer(const dci_index *index)
{
        DCI_TRY(dci_index_check_call(index));
        if (index->mapping != NULL)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the index reads a mapped file, which is never written to: load the file instead of "
                                "mapping it to change the index");
        return DCI_OK;
}

dci_status dci_index_check_matrix(const dci_index *index, const char *what, size_t n, size_t ld, size_t element)
{
        size_t row_bytes, total;
        if (ld < index->config.dim)
                return dci_fail(DCI_ERR_INVALID, "ld is %zu, expected at least the dimension %zu", ld,
                                index->config.dim);
        if (!dci_mul(ld, element, &row_bytes) || !dci_mul(row_bytes, n, &total))
                return dci_fail(DCI_ERR_LIMIT, "%zu %s of %zu elements exceed the address space", n, what, ld);
        return DCI_OK;
}

/* --- questions -------------------------------------------------------------------------------------------------------- */

size_t dci_index_count(const dci_index *index)
{
        if (index == NULL)
                return 0;
        return atomic_load_explicit(&index->n_live, memory_order_acquire);
}

int64_t dci_index_next_id(const dci_index *index)
{
        return index == NULL ? 0 : index->next_id;
}

dci_status dci_index_contains(const dci_index *index, size_t n, const int64_t *ids, uint8_t *out_there)
{
        DCI_TRY(dci_index_check_call(index));
        if (n == 0)
                return DCI_OK;
        if (ids == NULL || out_there == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", ids == NULL ? "ids" : "out_there");
        dci_index_read_begin(index);
        const dci_view view = dci_rows_view(&index->rows);
        for (size_t i = 0; i < n; i++)
                out_there[i] = dci_index_slot(index, &view, ids[i]) >= 0;
        dci_index_read_end(index);
        return DCI_OK;
}

dci_idmap *dci_index_map_of(const dci_index *index, const dci_view *view, size_t n_more, int64_t end)
{
        const size_t n = view->rows->gaps ? atomic_load(&index->n_live) : view->n;
        dci_idmap *map = dci_idmap_create(index->context, n + n_more, end);
        for (size_t slot = 0; map != NULL && slot < view->n; slot++) {
                const int64_t id = dci_view_id(view, (int32_t)slot);
                if (id >= 0) /* an empty slot has none */
                        dci_idmap_insert(map, id, (int32_t)slot);
        }
        return map;
}

int32_t dci_index_slot(const dci_index *index, const dci_view *view, int64_t id)
{
        const dci_idmap *map = atomic_load_explicit(&index->map, memory_order_acquire);
        int64_t slot = map == NULL ? id : dci_idmap_find(map, id);
        /* An id whose row is not published yet is not there. */
        return slot >= 0 && (uint64_t)slot < view->n ? (int32_t)slot : -1;
}

dci_status dci_index_reconstruct(const dci_index *index, size_t n, const int64_t *ids, void *out_rows, size_t ld)
{
        DCI_TRY(dci_index_check_call(index));
        if (n == 0)
                return DCI_OK;
        if (ids == NULL || out_rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", ids == NULL ? "ids" : "out_rows");
        const size_t element = dci_dtype_size(index->config.dtype);
        DCI_TRY(dci_index_check_matrix(index, "rows", n, ld, element));
        dci_index_read_begin(index);
        dci_status status = DCI_OK;
        dci_view view = dci_rows_view(&index->rows);
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                if (dci_index_slot(index, &view, ids[i]) < 0)
                        status = dci_fail(DCI_ERR_NOT_FOUND, "id %lld (number %zu) is not in the index",
                                          (long long)ids[i], i);
        for (size_t i = 0; i < n && status == DCI_OK; i++) {
                int32_t slot = dci_index_slot(index, &view, ids[i]);
                const void *row;
                dci_view_pointers(&view, 0, &slot, 1, &row);
                memcpy((unsigned char *)out_rows + i * ld * element, row, index->config.dim * element);
        }
        dci_index_read_end(index);
        return status;
}

static int compare_ids(const void *a, const void *b)
{
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
        return (x > y) - (x < y);
}

dci_status dci_index_ids(const dci_index *index, size_t capacity, int64_t *out_ids, size_t *out_count)
{
        DCI_TRY(dci_index_check_call(index));
        if (out_count == NULL || (out_ids == NULL && capacity > 0))
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", out_count == NULL ? "out_count" : "out_ids");
        dci_index_read_begin(index);
        dci_view view = dci_rows_view(&index->rows);
        size_t n = 0;
        const bool direct = capacity >= view.n; /* else the smallest must be found among all */
        int64_t *all = direct || capacity == 0 ? NULL : dci_alloc(index->context, view.n, sizeof *all);
        const dci_status status = direct || capacity == 0 || all != NULL ? DCI_OK : DCI_ERR_MEMORY;
        int64_t *target = direct ? out_ids : all;
        if (target != NULL) {
                for (size_t i = 0; i < view.n; i++) {
                        target[n] = dci_view_id(&view, (int32_t)i);
                        n += target[n] >= 0; /* an empty slot has none */
                }
                if (atomic_load(&index->map) != NULL)
                        qsort(target, n, sizeof *target, compare_ids);
                if (!direct)
                        memcpy(out_ids, target, (capacity < n ? capacity : n) * sizeof *target);
        }
        n = view.rows->gaps ? atomic_load(&index->n_live) : view.n;
        dci_index_read_end(index);
        dci_free(index->context, all, view.n, sizeof *all);
        if (status == DCI_OK)
                *out_count = n;
        return status;
}
