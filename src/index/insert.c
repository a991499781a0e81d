/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Add: everything that can fail happens in slots that no search looks at yet; then one store publishes the batch.
 */
#include "index/index_internal.h"

#include <math.h>
#include <string.h>

#include "index/insert.h"
#include "index/mdci/mdci.h"

#define TASK_BYTES ((size_t)128 << 10)

dci_status dci_check_row(const dci_index *index, dci_dtype dtype, const void *row, const char *what, size_t number,
                         float *out_norm)
{
        float norm2 = index->context->kernels->norm2[dtype - 1](row, index->config.dim);
        if (!(norm2 <= DCI_MAX_NORM2)) {
                float widest = 0.0f;
                bool finite = true;
                for (size_t p = 0; p < index->config.dim; p++) {
                        float x;
                        const unsigned char *at = (const unsigned char *)row + p * dci_dtype_size(dtype);
                        index->context->kernels->to_f32[dtype - 1](at, 1, &x);
                        finite = finite && isfinite(x);
                        widest = fmaxf(widest, fabsf(x));
                }
                if (!finite)
                        return dci_fail(DCI_ERR_NUMBER, "%s %zu holds NaN or infinity", what, number);
                return dci_fail(DCI_ERR_NUMBER,
                                "%s %zu is too large (an element is %g): its squared norm must be at most %g", what,
                                number, (double)widest, (double)DCI_MAX_NORM2);
        }
        if (out_norm == NULL)
                return DCI_OK;
        if (index->config.metric != DCI_METRIC_COSINE) {
                *out_norm = norm2;
                return DCI_OK;
        }
        bool zero = norm2 < DCI_MIN_NORM2;
        if (zero && index->config.zero_rows == DCI_ZERO_REFUSE)
                return dci_fail(DCI_ERR_NUMBER, "%s %zu is zero (length below 2^-40) and has no direction for COSINE",
                                what, number);
        *out_norm = zero ? 0.0f : 1.0f / sqrtf(norm2);
        return DCI_OK;
}

int64_t dci_batch_id(const dci_batch *b, size_t i)
{
        return b->ids != NULL ? b->ids[i] : b->first_id + (int64_t)i;
}

static dci_status place_row(const dci_batch *b, size_t i, float *scratch)
{
        dci_index *index = b->index;
        const dci_kernels *kernels = index->context->kernels;
        const dci_dtype add = index->config.add_dtype, stored = index->config.dtype;
        const unsigned char *row = b->rows + i * b->ld_bytes;
        size_t offset;
        dci_chunk *chunk = dci_rows_chunk(b->target, b->first + i, &offset);
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
                }
                checked = target;
        }
        chunk->ids[offset] = dci_batch_id(b, i);
        return dci_check_row(index, stored, checked, "row", i, chunk->norms == NULL ? NULL : &chunk->norms[offset]);
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

/* Copies and checks all rows, in one region. */
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

static dci_status check_add(const dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids)
{
        const size_t dim = index->config.dim, element = dci_dtype_size(index->config.add_dtype);
        size_t row_bytes, total;
        if (rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "rows is NULL");
        if (ld < dim)
                return dci_fail(DCI_ERR_INVALID, "ld is %zu, expected at least the dimension %zu", ld, dim);
        if (!dci_mul(ld, element, &row_bytes) || !dci_mul(row_bytes, n, &total))
                return dci_fail(DCI_ERR_LIMIT, "%zu rows of %zu elements exceed the address space", n, ld);
        const dci_status aligned = dci_check_aligned("rows", rows, element);
        if (aligned != DCI_OK)
                return aligned;
        for (size_t i = 0; ids != NULL && i < n; i++) {
                if (ids[i] < 0)
                        return dci_fail(DCI_ERR_INVALID, "id %lld of row %zu is negative", (long long)ids[i], i);
                if (ids[i] == INT64_MAX)
                        return dci_fail(DCI_ERR_LIMIT, "id %lld of row %zu: ids end at %lld", (long long)ids[i], i,
                                        (long long)INT64_MAX - 1);
        }
        return DCI_OK;
}

/* Do the ids continue "id = slot"? */
static bool ids_are_slots(const dci_batch *b)
{
        if (b->ids == NULL)
                return b->first_id == (int64_t)b->first;
        for (size_t i = 0; i < b->n; i++)
                if (b->ids[i] != (int64_t)(b->first + i))
                        return false;
        return true;
}

/* One more than the largest id ever used, this batch included. */
int64_t dci_batch_end(const dci_batch *b)
{
        int64_t end = b->index->next_id;
        if (b->ids == NULL)
                return b->first_id + (int64_t)b->n;
        for (size_t i = 0; i < b->n; i++)
                end = b->ids[i] >= end ? b->ids[i] + 1 : end;
        return end;
}

/* How the id map changes: nothing, the present one gains entries, or another replaces it. */
typedef struct map_change {
        dci_idmap *map;
        bool replaces;
        dci_retired *notes[2];
} map_change;

static dci_status map_prepare(dci_batch *b, map_change *change)
{
        dci_index *index = b->index;
        dci_idmap *map = atomic_load(&index->map);
        memset(change, 0, sizeof *change);
        if (map == NULL && ids_are_slots(b))
                return DCI_OK;
        const int64_t end = dci_batch_end(b);
        change->replaces = map == NULL || !dci_idmap_has_room(map, b->n, end);
        if (!change->replaces) {
                change->map = map;
                return DCI_OK;
        }
        for (int i = 0; i < 2; i++) {
                change->notes[i] = dci_alloc(index->context, 1, sizeof *change->notes[i]);
                if (change->notes[i] == NULL)
                        return DCI_ERR_MEMORY;
        }
        const dci_view view = dci_rows_view(&index->rows);
        change->map = dci_index_map_of(index, &view, b->n, end);
        return change->map == NULL ? DCI_ERR_MEMORY : DCI_OK;
}

static void map_undo(const dci_batch *b, const map_change *change)
{
        if (change->replaces)
                dci_idmap_destroy(b->index->context, change->map);
        for (int i = 0; i < 2; i++)
                dci_free(b->index->context, change->notes[i], 1, sizeof *change->notes[i]);
}

/* Enters the batch's ids; readers ignore slots beyond what is published. An id that is taken undoes all. */
static dci_status map_enter(dci_batch *b, const map_change *change)
{
        size_t i = 0;
        int64_t id = 0;
        for (; change->map != NULL && i < b->n; i++) {
                id = dci_batch_id(b, i);
                if (!dci_idmap_insert(change->map, id, (int32_t)(b->first + i)))
                        break;
        }
        if (change->map == NULL || i == b->n)
                return DCI_OK;
        bool in_index = dci_idmap_find(change->map, id) < (int32_t)b->first;
        /* Removing shifts entries, which readers of the live map must not see halfway. */
        if (!change->replaces)
                dci_index_exclusive_begin(b->index);
        for (size_t j = 0; j < i; j++)
                dci_idmap_remove(change->map, dci_batch_id(b, j));
        if (!change->replaces)
                dci_index_exclusive_end(b->index);
        return dci_fail(DCI_ERR_EXISTS,
                        in_index ? "id %lld of row %zu is in the index already" : "id %lld of row %zu comes twice",
                        (long long)id, i);
}

static void map_publish(dci_index *index, map_change *change)
{
        if (!change->replaces)
                return;
        dci_idmap *old = atomic_load(&index->map);
        atomic_store_explicit(&index->map, change->map, memory_order_release);
        void *parts[2] = {old, NULL};
        size_t n_bytes[2] = {sizeof *old, 0};
        if (old != NULL)
                parts[1] = dci_idmap_table(old, &n_bytes[1]);
        for (int i = 0; i < 2; i++) {
                dci_retired *note = change->notes[i];
                if (old == NULL) {
                        dci_free(index->context, note, 1, sizeof *note);
                        continue;
                }
                *note = (dci_retired){index->retired, parts[i], n_bytes[i]};
                index->retired = note;
        }
}

/* Squared norm of the longest row so far, the batch included: c^2 stands for those before. */
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

/* The codes of rows in blocks that searches do not read yet. */
static dci_status encode_beside(dci_batch *b)
{
        const size_t end = b->first + b->n;
        const size_t next = (b->first + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS * DCI_CODE_ROWS;
        b->followed = true;
        dci_status status = dci_rows_follow(b->target, b->target, b->first, end);
        return status == DCI_OK && next < end ? dci_rows_encode(b->target, next, end) : status;
}

/* A batch that fails leaves no centre behind: what comes later would be encoded otherwise. A search may be reading them. */
static void unfollow(const dci_batch *b)
{
        if (!b->followed)
                return;
        dci_index_exclusive_begin(b->index);
        dci_rows_unfollow(b->target);
        dci_index_exclusive_end(b->index);
}

/* Those in the block that holds published rows: a few, without readers. */
static void encode_alone(const dci_batch *b)
{
        if (b->target->codes == NULL || b->first % DCI_CODE_ROWS == 0)
                return;
        dci_index_exclusive_begin(b->index);
        for (size_t slot = b->first; slot % DCI_CODE_ROWS != 0 && slot < b->first + b->n; slot++)
                dci_rows_encode_one(b->target, slot);
        dci_index_exclusive_end(b->index);
}

static dci_status add_batch(dci_batch *b, const dci_progress *progress)
{
        dci_index *index = b->index;
        map_change change;
        b->first = atomic_load(&index->rows.n);
        size_t chunks_before = index->rows.n_chunks;
        dci_status status = dci_rows_reserve(&index->rows, b->first + b->n, &index->retired);
        if (status != DCI_OK)
                return status;
        status = map_prepare(b, &change);
        if (status == DCI_OK)
                status = dci_batch_place(b, progress);
        if (status == DCI_OK)
                status = encode_beside(b);
        if (status == DCI_OK)
                status = map_enter(b, &change);
        if (status != DCI_OK) {
                map_undo(b, &change);
                unfollow(b);
                /* New chunks were never seen by a reader. */
                size_t needed = chunks_before << index->rows.chunk_shift;
                dci_rows_shrink(&index->rows, needed > b->first ? needed : b->first);
                return status;
        }
        map_publish(index, &change);
        encode_alone(b);
        if (index->directions.weights != NULL)
                atomic_store(&index->c_squared, dci_lift_c_squared(dci_batch_longest(b)));
        index->next_id = dci_batch_end(b);
        atomic_store_explicit(&index->rows.n, b->first + b->n, memory_order_release);
        return DCI_OK;
}

static dci_status check_room(const dci_batch *b)
{
        const size_t n = dci_index_count(b->index);
        if (b->n > DCI_MAX_ROWS - n)
                return dci_fail(DCI_ERR_LIMIT, "%zu rows added to %zu exceed the %zu of one index", b->n, n,
                                DCI_MAX_ROWS);
        if (b->ids == NULL && (uint64_t)b->n > (uint64_t)(INT64_MAX - b->first_id))
                return dci_fail(DCI_ERR_LIMIT, "%zu consecutive ids from %lld on exceed %lld", b->n,
                                (long long)b->first_id, (long long)INT64_MAX - 1);
        return DCI_OK;
}

dci_status dci_index_add(dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids,
                         const dci_progress *progress)
{
        dci_status status = dci_index_lock_writer(index);
        if (status != DCI_OK || n == 0)
                return status;
        status = check_add(index, n, rows, ld, ids);
        if (status != DCI_OK)
                return status;
        dci_batch b = {.index = index, .target = &index->rows, .n = n, .rows = rows, .ids = ids};
        b.ld_bytes = ld * dci_dtype_size(index->config.add_dtype);
        pthread_mutex_lock(&index->writers);
        b.first_id = index->next_id;
        status = check_room(&b);
        if (status == DCI_OK)
                status = index->config.kind == DCI_KIND_MDCI ? dci_mdci_add(&b, progress) : add_batch(&b, progress);
        dci_index_collect(index);
        pthread_mutex_unlock(&index->writers);
        return status;
}
