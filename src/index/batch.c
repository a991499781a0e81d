/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* One batch of rows: copied, checked and projected, into slots that no search reads yet. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/access.h"
#include "index/batch.h"
#include "index/pdci/project.h"

#define TASK_BYTES ((size_t)128 << 10)

int64_t dci_batch_id(const dci_batch *b, size_t i)
{
        return b->ids != NULL ? b->ids[i] : b->first_id + (int64_t)i;
}

/* Rows of integers are stored exactly: what rounding changed is refused. */
static dci_status check_integers(dci_dtype dtype, const float *row, const void *stored, size_t dim, size_t number)
{
        for (size_t p = 0; p < dim; p++) {
                const float kept =
                        dtype == DCI_I8 ? (float)((const int8_t *)stored)[p] : (float)((const uint8_t *)stored)[p];
                if (kept != row[p])
                        return dci_fail(DCI_ERR_NUMBER,
                                        "row %zu: element %zu is %g, rows of dtype %s hold integers from %d to %d",
                                        number, p, (double)row[p], dci_dtype_name(dtype), dtype == DCI_I8 ? -128 : 0,
                                        dtype == DCI_I8 ? 127 : 255);
        }
        return DCI_OK;
}

dci_status dci_batch_check_distinct(const dci_batch *b)
{
        if (b->ids == NULL || b->n == 1)
                return DCI_OK;
        dci_status status = DCI_OK;
        dci_idmap *seen = dci_idmap_create(b->index->context, b->n, dci_batch_end(b));
        if (seen == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < b->n && status == DCI_OK; i++)
                if (!dci_idmap_insert(seen, b->ids[i], 0))
                        status = dci_fail(DCI_ERR_EXISTS, "id %lld of row %zu comes twice", (long long)b->ids[i], i);
        dci_idmap_destroy(b->index->context, seen);
        return status;
}

dci_status dci_batch_check_new(const dci_batch *b, size_t i)
{
        return b->adds_none
                       ? dci_fail(DCI_ERR_NOT_FOUND, "id %lld of row %zu is not in the index", (long long)b->ids[i], i)
                       : DCI_OK;
}

/* None of the ids is there already, none comes twice. */
static dci_status check_ids(const dci_batch *b)
{
        const dci_view view = dci_rows_view(&b->index->rows);
        for (size_t i = 0; b->ids != NULL && i < b->n; i++)
                if (dci_index_slot(b->index, &view, b->ids[i]) >= 0)
                        return dci_fail(DCI_ERR_EXISTS, "id %lld of row %zu is in the index already",
                                        (long long)b->ids[i], i);
        return dci_batch_check_distinct(b);
}

/* The ids that are there leave as the rows come. None comes twice. */
static dci_status find_replaced(dci_batch *b)
{
        const dci_view view = dci_rows_view(&b->index->rows);
        size_t n = 0;
        DCI_TRY(dci_batch_check_distinct(b));
        for (size_t i = 0; i < b->n; i++) {
                const bool there = dci_index_slot(b->index, &view, b->ids[i]) >= 0;
                n += there;
                DCI_TRY(there ? DCI_OK : dci_batch_check_new(b, i));
        }
        b->n_new = b->n - n;
        if (n == 0)
                return DCI_OK;
        b->leaving = dci_idmap_create(b->index->context, n, b->index->next_id);
        b->old_ids = dci_alloc(b->index->context, n, sizeof *b->old_ids);
        if (b->leaving == NULL || b->old_ids == NULL)
                return DCI_ERR_MEMORY;
        n = 0;
        for (size_t i = 0; i < b->n; i++)
                if (dci_index_slot(b->index, &view, b->ids[i]) >= 0) {
                        dci_idmap_insert(b->leaving, b->ids[i], 0);
                        b->old_ids[n++] = b->ids[i];
                }
        return DCI_OK;
}

dci_status dci_batch_find_old(dci_batch *b)
{
        b->n_new = b->n;
        return b->replaces ? find_replaced(b) : check_ids(b);
}

void dci_batch_free(dci_batch *b)
{
        dci_context *context = b->index->context;
        dci_free(context, b->order, b->n, sizeof *b->order);
        dci_free(context, b->old_slots, b->n, sizeof *b->old_slots);
        dci_free(context, b->old_ids, b->n - b->n_new, sizeof *b->old_ids);
        dci_idmap_destroy(context, b->leaving);
        b->order = b->old_slots = NULL;
        b->old_ids = NULL;
        b->leaving = NULL;
}

/* A number beyond the range of a 16-bit format became infinity in it: the sentence is about the number that was given. */
static dci_status explain_overflow(dci_dtype dtype, const float *row, const uint16_t *stored, size_t dim, size_t number,
                                   dci_status status)
{
        const bool half = dtype == DCI_F16;
        for (size_t p = 0; p < dim; p++)
                if ((stored[p] & 0x7FFF) == (half ? 0x7C00 : 0x7F80) && isfinite(row[p]))
                        return dci_fail(status, "row %zu holds %g at element %zu, beyond the range of dtype %s, %s",
                                        number, (double)row[p], p, dci_dtype_name(dtype),
                                        half ? "-65504 to 65504" : "-3.3895e+38 to 3.3895e+38");
        return status;
}

static dci_status place_row(const dci_batch *b, size_t place, float *scratch)
{
        const size_t i = dci_batch_row(b, place);
        dci_index *index = b->index;
        const dci_kernels *kernels = index->context->kernels;
        const dci_dtype add = index->config.add_dtype, stored = index->config.dtype;
        const unsigned char *row = b->rows + i * b->ld_bytes;
        size_t offset;
        dci_chunk *chunk = dci_rows_chunk(b->target, b->first + place, &offset);
        const void *checked = row;
        if (b->target->borrowed) {
                ((const void **)chunk->rows)[offset] = row;
        } else {
                unsigned char *target = (unsigned char *)chunk->rows + offset * b->target->row_bytes;
                if (add == stored) {
                        memcpy(target, row, b->target->row_bytes);
                } else {
                        kernels->to_f32[add - 1](row, index->config.dim, scratch);
                        kernels->narrow[stored - 1](scratch, index->config.dim, target);
                        if (stored >= DCI_I8)
                                DCI_TRY(check_integers(stored, scratch, target, index->config.dim, i));
                }
                checked = target;
        }
        chunk->ids[offset] = dci_batch_id(b, i);
        dci_status status =
                dci_check_row(index, stored, checked, "row", i, chunk->norms == NULL ? NULL : &chunk->norms[offset]);
        if (status == DCI_ERR_NUMBER && checked != row && add != stored && (stored == DCI_F16 || stored == DCI_BF16))
                return explain_overflow(stored, scratch, checked, index->config.dim, i, status);
        return status;
}

static void place_task(void *arg, size_t task, size_t worker)
{
        dci_batch *b = arg;
        float *scratch = b->scratch == NULL ? NULL : b->scratch + worker * b->index->config.dim;
        size_t end = (task + 1) * b->rows_per_task < b->n ? (task + 1) * b->rows_per_task : b->n;
        for (size_t i = task * b->rows_per_task; i < end; i++) {
                if (place_row(b, i, scratch) == DCI_OK)
                        continue;
                size_t lowest = atomic_load(&b->bad_task);
                while (task < lowest && !atomic_compare_exchange_weak(&b->bad_task, &lowest, task))
                        continue;
                return;
        }
        if (b->target->n_simple > 0)
                dci_project_rows(b->index, b->target, b->first + task * b->rows_per_task,
                                 end - task * b->rows_per_task);
}

dci_status dci_batch_place(dci_batch *b, const dci_progress *progress)
{
        dci_index *index = b->index;
        size_t input_bytes = index->config.dim * dci_dtype_size(index->config.add_dtype);
        b->rows_per_task = TASK_BYTES / input_bytes + 1;
        size_t n_tasks = (b->n + b->rows_per_task - 1) / b->rows_per_task;
        size_t n_workers =
                dci_workers_for(index->context, n_tasks, b->n * index->config.dim * (1 + b->target->n_simple));
        if (index->config.add_dtype != index->config.dtype) {
                b->scratch = dci_alloc(index->context, n_workers * index->config.dim, sizeof *b->scratch);
                if (b->scratch == NULL)
                        return DCI_ERR_MEMORY;
        }
        atomic_init(&b->bad_task, SIZE_MAX);
        dci_region region = {index->context, n_tasks, n_workers, place_task, b, progress, b->n, index};
        dci_status status = dci_parallel(&region);
        size_t bad = atomic_load(&b->bad_task);
        if (status == DCI_OK && bad != SIZE_MAX) {
                /* Found on any thread; its sentence belongs to this one. */
                for (size_t i = bad * b->rows_per_task; status == DCI_OK; i++)
                        status = place_row(b, i, b->scratch);
        }
        dci_free(index->context, b->scratch, n_workers * index->config.dim, sizeof *b->scratch);
        return status;
}

dci_status dci_batch_stage(dci_batch *b, const dci_index_config *config, const dci_progress *progress)
{
        dci_index_config own = *config;
        dci_retired *none = NULL;
        if (own.add_dtype == own.dtype) /* they are copied once, to where they belong */
                own.storage = DCI_ROWS_BORROWED;
        dci_rows_init(&b->staged, b->index->context, &own);
        b->staged.gaps = false;
        b->target = &b->staged;
        b->first = 0;
        DCI_TRY(dci_rows_reserve(&b->staged, b->n, &none));
        DCI_TRY(dci_batch_place(b, progress));
        atomic_store(&b->staged.n, b->n);
        return DCI_OK;
}

int64_t dci_batch_end(const dci_batch *b)
{
        int64_t end = b->index->next_id;
        if (b->ids == NULL)
                return b->first_id + (int64_t)b->n;
        for (size_t i = 0; i < b->n; i++)
                end = b->ids[i] >= end ? b->ids[i] + 1 : end;
        return end;
}

float dci_batch_longest(const dci_batch *b)
{
        float longest = atomic_load(&b->index->c_squared);
        for (size_t i = 0; i < b->n; i++) {
                size_t offset;
                const dci_chunk *chunk = dci_rows_chunk(b->target, b->first + i, &offset);
                longest = chunk->norms[offset] > longest ? chunk->norms[offset] : longest;
        }
        return longest;
}
