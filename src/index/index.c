/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The object: create, destroy, its locks, and what can be asked of it. */
#include "index/index_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "index/config.h"
#include "index/mdci/mdci.h"

dci_status dci_index_create(dci_context *context, const dci_index_config *config, dci_index **out_index)
{
        if (context == NULL || config == NULL || out_index == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL",
                                context == NULL ? "context" : (config == NULL ? "config" : "out_index"));
        dci_status status = dci_index_config_check(config);
        if (status != DCI_OK)
                return status;
        dci_index *index = dci_calloc(context, 1, sizeof *index);
        if (index == NULL)
                return DCI_ERR_MEMORY;
        index->context = context;
        index->config = *config;
        if (index->config.add_dtype == 0)
                index->config.add_dtype = config->dtype;
        if (index->config.query_dtype == 0)
                index->config.query_dtype = config->dtype;
        status = dci_directions_create(context, &index->config, &index->directions);
        if (status != DCI_OK) {
                dci_free(context, index, 1, sizeof *index);
                return status;
        }
        dci_rows_init(&index->rows, context, &index->config);
        atomic_init(&index->c_squared, 0.0f);
        atomic_init(&index->n_live, 0);
        dci_search_params_init(&index->defaults, sizeof index->defaults);
        atomic_init(&index->map, NULL);
        status = dci_rows_codes_create(&index->rows, &index->config);
        if (status == DCI_OK && index->config.kind == DCI_KIND_MDCI)
                status = dci_mdci_create(index);
        if (status != DCI_OK) {
                dci_rows_destroy(&index->rows);
                dci_directions_destroy(context, &index->directions);
                dci_free(context, index, 1, sizeof *index);
                return status;
        }
        pthread_mutex_init(&index->writers, NULL);
        pthread_mutex_init(&index->turnstile, NULL);
        pthread_rwlock_init(&index->state, NULL);
        pthread_mutex_init(&index->defaults_lock, NULL);
        dci_context_retain(context);
        *out_index = index;
        return DCI_OK;
}

static void free_retired(dci_index *index)
{
        while (index->retired != NULL) {
                dci_retired *note = index->retired;
                index->retired = note->next;
                dci_free(index->context, note->pointer, note->n_bytes, 1);
                dci_free(index->context, note, 1, sizeof *note);
        }
}

void dci_index_destroy(dci_index *index)
{
        if (index == NULL)
                return;
        dci_context *context = index->context;
        free_retired(index);
        dci_rows_destroy(&index->rows);
        dci_mdci_destroy(index);
        dci_directions_destroy(context, &index->directions);
        dci_idmap_destroy(context, atomic_load(&index->map));
        if (index->mapping != NULL)
                dci_file_unmap(index->mapping, index->mapped_bytes);
        pthread_mutex_destroy(&index->defaults_lock);
        pthread_rwlock_destroy(&index->state);
        pthread_mutex_destroy(&index->turnstile);
        pthread_mutex_destroy(&index->writers);
        dci_free(context, index, 1, sizeof *index);
        dci_context_destroy(context);
}

/* --- locks: readers are const to the caller, but a lock is not -------------------------------------------------------- */

static dci_index *unconst(const dci_index *index)
{
        return (dci_index *)(uintptr_t)index;
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
        free_retired(index);
}

void dci_index_exclusive_end(dci_index *index)
{
        pthread_rwlock_unlock(&index->state);
        pthread_mutex_unlock(&index->turnstile);
}

void dci_index_collect(dci_index *index)
{
        if (index->retired != NULL && pthread_rwlock_trywrlock(&index->state) == 0) {
                free_retired(index);
                pthread_rwlock_unlock(&index->state);
        }
}

dci_status dci_index_lock(const dci_index *index)
{
        if (index == NULL)
                return dci_fail(DCI_ERR_INVALID, "index is NULL");
        if (dci_is_busy(index))
                return dci_fail(DCI_ERR_BUSY, "the index is running this callback; it cannot be used from inside");
        return DCI_OK;
}

dci_status dci_index_lock_writer(const dci_index *index)
{
        dci_status status = dci_index_lock(index);
        if (status == DCI_OK && index->mapping != NULL)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the index reads a mapped file, which is never written to: dci_index_load makes one "
                                "that can be changed");
        return status;
}

/* --- questions -------------------------------------------------------------------------------------------------------- */

size_t dci_index_count(const dci_index *index)
{
        if (index == NULL)
                return 0;
        return atomic_load_explicit(index->rows.gaps ? &index->n_live : &index->rows.n, memory_order_acquire);
}

dci_status dci_index_reserve(dci_index *index, size_t n_rows)
{
        dci_status status = dci_index_lock_writer(index);
        if (status != DCI_OK)
                return status;
        if (n_rows > DCI_MAX_ROWS)
                return dci_fail(DCI_ERR_LIMIT, "%zu rows wanted, an index holds at most %zu", n_rows, DCI_MAX_ROWS);
        pthread_mutex_lock(&index->writers);
        /* MDCI: pages are filled to two thirds or more. */
        const size_t n_slots = index->rows.gaps && n_rows <= DCI_MAX_ROWS / 2 ? n_rows + n_rows / 2 : n_rows;
        status = dci_rows_reserve(&index->rows, n_slots, &index->retired);
        dci_index_collect(index);
        pthread_mutex_unlock(&index->writers);
        return status;
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
        dci_status status = dci_index_lock(index);
        if (status != DCI_OK || n == 0)
                return status;
        if (ids == NULL || out_rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", ids == NULL ? "ids" : "out_rows");
        if (ld < index->config.dim)
                return dci_fail(DCI_ERR_INVALID, "ld is %zu, expected at least the dimension %zu", ld,
                                index->config.dim);
        const size_t element = dci_dtype_size(index->config.dtype);
        size_t row_bytes, total;
        if (!dci_mul(ld, element, &row_bytes) || !dci_mul(row_bytes, n, &total))
                return dci_fail(DCI_ERR_LIMIT, "%zu rows of %zu elements exceed the address space", n, ld);
        dci_index_read_begin(index);
        dci_view view = dci_rows_view(&index->rows);
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                if (dci_index_slot(index, &view, ids[i]) < 0)
                        status = dci_fail(DCI_ERR_NOT_FOUND, "id %lld (number %zu) is not in the index",
                                          (long long)ids[i], i);
        for (size_t i = 0; i < n && status == DCI_OK; i++) {
                int32_t slot = dci_index_slot(index, &view, ids[i]);
                const void *row;
                dci_view_pointers(&view, 0, &slot, 1, &row);
                memcpy((unsigned char *)out_rows + i * row_bytes, row, index->config.dim * element);
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
        dci_status status = dci_index_lock(index);
        if (status != DCI_OK)
                return status;
        if (out_count == NULL || (out_ids == NULL && capacity > 0))
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", out_count == NULL ? "out_count" : "out_ids");
        dci_index_read_begin(index);
        dci_view view = dci_rows_view(&index->rows);
        int64_t *all = NULL;
        size_t n = 0;
        bool direct = capacity >= view.n; /* else the smallest must be found among all */
        if (!direct && capacity > 0) {
                all = dci_alloc(index->context, view.n, sizeof *all);
                if (all == NULL)
                        status = DCI_ERR_MEMORY;
        }
        int64_t *target = direct ? out_ids : all;
        if (target != NULL && status == DCI_OK) {
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

dci_status dci_index_memory(const dci_index *index, dci_memory_report *out_report)
{
        dci_status status = dci_index_lock(index);
        if (status != DCI_OK)
                return status;
        if (out_report == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_report is NULL");
        size_t struct_size = out_report->struct_size;
        status = dci_check_struct_size("dci_memory_report", out_report, struct_size, sizeof *out_report);
        if (status != DCI_OK)
                return status;
        dci_memory_report_init(out_report, struct_size);
        pthread_mutex_t *writers = &unconst(index)->writers; /* chunks are counted by writers */
        pthread_mutex_lock(writers);
        dci_rows_bytes(&index->rows, out_report);
        out_report->ids += dci_idmap_bytes(atomic_load(&index->map));
        out_report->other +=
                sizeof *index + dci_directions_bytes(&index->directions) + dci_rows_codes_bytes(&index->rows);
        if (index->tree != NULL)
                out_report->other += dci_tree_bytes(index->tree);
        for (const dci_retired *note = index->retired; note != NULL; note = note->next)
                out_report->other += note->n_bytes + sizeof *note;
        pthread_mutex_unlock(writers);
        out_report->total = out_report->rows + out_report->ids + out_report->norms + out_report->projections +
                            out_report->codes + out_report->other;
        return DCI_OK;
}
