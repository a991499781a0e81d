/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Add: everything that can fail happens in slots that no search reads yet; then one store publishes the batch. */
#include "core/internal.h"

#include <string.h>

#include "index/access.h"
#include "index/auto.h"
#include "index/batch.h"
#include "index/calibrate.h"
#include "index/codes/renew.h"

static dci_status check_add(const dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids)
{
        const size_t element = dci_dtype_size(index->config.add_dtype);
        if (rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "rows is NULL");
        DCI_TRY(dci_index_check_matrix(index, "rows", n, ld, element));
        DCI_TRY(dci_check_aligned("rows", rows, element));
        for (size_t i = 0; ids != NULL && i < n; i++) {
                if (ids[i] < 0)
                        return dci_fail(DCI_ERR_INVALID, "id %lld of row %zu is negative: ids are 0 to %lld",
                                        (long long)ids[i], i, (long long)INT64_MAX - 1);
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
        for (size_t i = 0; i < b->n_new; i++)
                if (b->ids[dci_batch_row(b, i)] != (int64_t)(b->first + i))
                        return false;
        return true;
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
        change->replaces = map == NULL || !dci_idmap_has_room(map, b->n_new, end);
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
        change->map = dci_index_map_of(index, &view, b->n_new, end);
        return change->map == NULL ? DCI_ERR_MEMORY : DCI_OK;
}

static void map_undo(const dci_batch *b, const map_change *change)
{
        if (change->replaces)
                dci_idmap_destroy(b->index->context, change->map);
        for (int i = 0; i < 2; i++)
                dci_free(b->index->context, change->notes[i], 1, sizeof *change->notes[i]);
}

/* Takes the first n new ids of the batch out again. Removing shifts entries, which readers of the live map must not see halfway. */
static void map_leave(dci_batch *b, const map_change *change, size_t n)
{
        if (!change->replaces)
                dci_index_exclusive_begin(b->index);
        for (size_t i = 0; i < n; i++)
                dci_idmap_remove(change->map, dci_batch_id(b, dci_batch_row(b, i)));
        if (!change->replaces)
                dci_index_exclusive_end(b->index);
}

/* Enters the batch's ids; readers ignore slots beyond what is published. An id that is taken undoes all. */
static dci_status map_enter(dci_batch *b, const map_change *change)
{
        size_t i = 0;
        int64_t id = 0;
        for (; change->map != NULL && i < b->n_new; i++) {
                id = dci_batch_id(b, dci_batch_row(b, i));
                if (!dci_idmap_insert(change->map, id, (int32_t)(b->first + i)))
                        break;
        }
        if (change->map == NULL || i == b->n_new)
                return DCI_OK;
        bool in_index = dci_idmap_find(change->map, id) < (int32_t)b->first;
        map_leave(b, change, i);
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

/* The codes of rows in blocks that searches do not read yet. */
static dci_status encode_unpublished(dci_batch *b)
{
        const size_t end = b->first + b->n;
        const size_t next = (b->first + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS * DCI_CODE_ROWS;
        b->followed = true;
        DCI_TRY(dci_rows_follow(b->target, b->target, b->first, end));
        return next < end ? dci_rows_encode(b->target, next, end) : DCI_OK;
}

/* A batch that fails takes its centre back: what comes later would be encoded otherwise. A search may be reading them. */
static void unfollow(const dci_batch *b)
{
        if (!b->followed)
                return;
        dci_index_exclusive_begin(b->index);
        dci_rows_unfollow(b->target);
        dci_index_exclusive_end(b->index);
}

/* Without readers: those in the block that holds published rows, a few, and published blocks that waited for a frame which has come. */
static void encode_rest(const dci_batch *b)
{
        if (b->target->codes == NULL)
                return;
        for (size_t slot = b->first; slot % DCI_CODE_ROWS != 0 && slot < b->first + b->n_new; slot++)
                dci_rows_encode_one(b->target, slot);
        if (dci_rows_has_begun(b->target))
                dci_rows_encode_raw(b->target, b->first + b->n_new);
}

static void publish_rows(const dci_batch *b)
{
        dci_index *index = b->index;
        if (index->directions.weights != NULL)
                atomic_store(&index->c_squared, dci_lift_c_squared(dci_batch_longest(b)));
        index->next_id = dci_batch_end(b);
        atomic_store_explicit(&index->rows.n, b->first + b->n_new, memory_order_release);
        atomic_store_explicit(&index->n_live, b->first + b->n_new, memory_order_release);
}

static void publish(const dci_batch *b)
{
        const bool exclusive =
                b->target->codes != NULL && (b->first % DCI_CODE_ROWS != 0 || dci_rows_has_begun(b->target));
        if (exclusive) {
                dci_index_exclusive_begin(b->index);
                encode_rest(b);
                dci_index_exclusive_end(b->index);
        }
        publish_rows(b);
}

/* Rows that replace others go from the end to where those are, so no id changes its slot, and the chunks go back that only they took. */
static void publish_replacing(const dci_batch *b, size_t chunks_before)
{
        dci_rows *rows = b->target;
        const size_t coded = (b->first + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS * DCI_CODE_ROWS;
        const size_t end = b->first + b->n_new, before = chunks_before << rows->chunk_shift;
        dci_index_exclusive_begin(b->index);
        encode_rest(b);
        publish_rows(b);
        for (size_t place = b->n_new; place < b->n; place++) {
                const size_t from = b->first + place, to = (size_t)b->old_slots[place];
                dci_rows_copy(rows, from, rows, to);
                if (from < coded)
                        dci_rows_encode_one(rows, to);
        }
        dci_rows_shrink(rows, before > end ? before : end);
        dci_index_exclusive_end(b->index);
}

/* FLAT and PDCI: rows that are new first, then those that replace others, each in the order of the batch. */
static dci_status split(dci_batch *b)
{
        dci_context *context = b->index->context;
        const dci_view view = dci_rows_view(&b->index->rows);
        b->n_new = b->n;
        if (!b->replaces)
                return DCI_OK;
        DCI_TRY(dci_batch_check_distinct(b));
        b->order = dci_alloc(context, b->n, sizeof *b->order);
        b->old_slots = dci_alloc(context, b->n, sizeof *b->old_slots);
        if (b->order == NULL || b->old_slots == NULL)
                return DCI_ERR_MEMORY;
        size_t at = 0;
        for (size_t i = 0; i < b->n; i++)
                if (dci_index_slot(b->index, &view, b->ids[i]) < 0) {
                        DCI_TRY(dci_batch_check_new(b, i));
                        b->order[at++] = (int32_t)i;
                }
        b->n_new = at;
        for (size_t i = 0; i < b->n; i++) {
                const int32_t slot = dci_index_slot(b->index, &view, b->ids[i]);
                if (slot < 0)
                        continue;
                b->old_slots[at] = slot;
                b->order[at++] = (int32_t)i;
        }
        return DCI_OK;
}

dci_status dci_rows_add(dci_batch *b, const dci_progress *progress)
{
        dci_index *index = b->index;
        map_change change;
        b->first = atomic_load(&index->rows.n);
        size_t chunks_before = index->rows.n_chunks;
        DCI_TRY(split(b));
        DCI_TRY(dci_rows_reserve(&index->rows, b->first + b->n, &index->retired));
        dci_status status = map_prepare(b, &change);
        if (status == DCI_OK)
                status = dci_batch_place(b, progress);
        if (status == DCI_OK)
                status = encode_unpublished(b);
        if (status == DCI_OK)
                status = map_enter(b, &change);
        if (status == DCI_OK) {
                status = dci_progress_end(progress, b->n, index);
                if (status != DCI_OK && change.map != NULL)
                        map_leave(b, &change, b->n_new);
        }
        if (status != DCI_OK) {
                map_undo(b, &change);
                unfollow(b);
                /* New chunks were never seen by a reader. */
                size_t needed = chunks_before << index->rows.chunk_shift;
                dci_rows_shrink(&index->rows, needed > b->first ? needed : b->first);
                return status;
        }
        map_publish(index, &change);
        if (b->n_new == b->n)
                publish(b);
        else
                publish_replacing(b, chunks_before);
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

/* What the caller gave of the batch is in b. */
static dci_status add(dci_batch *b, size_t ld, const dci_progress *progress)
{
        dci_index *index = b->index;
        b->ld_bytes = ld * dci_dtype_size(index->config.add_dtype);
        b->target = &index->rows;
        pthread_mutex_lock(&index->writers);
        b->first_id = index->next_id;
        dci_status status = b->n == 0 ? DCI_OK : check_room(b);
        if (status == DCI_OK && b->n > 0)
                status = index->automatic.on ? dci_auto_add(b, progress) : index->kind->add(b, progress);
        if (status == DCI_OK && b->n > 0)
                dci_calibrate_rows(index, dci_codes_review(index));
        dci_index_collect(index);
        pthread_mutex_unlock(&index->writers);
        dci_batch_free(b);
        return status;
}

dci_status dci_index_add(dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids,
                         const dci_progress *progress)
{
        DCI_TRY(dci_index_check_writer(index));
        if (n == 0)
                return DCI_OK;
        DCI_TRY(check_add(index, n, rows, ld, ids));
        dci_batch b = {.index = index, .n = n, .rows = rows, .ids = ids};
        return add(&b, ld, progress);
}

dci_status dci_index_append(dci_index *index, size_t n, const void *rows, size_t ld, const dci_progress *progress,
                            int64_t *out_first_id)
{
        DCI_TRY(dci_index_check_writer(index));
        if (out_first_id == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_first_id is NULL");
        if (n > 0)
                DCI_TRY(check_add(index, n, rows, ld, NULL));
        dci_batch b = {.index = index, .n = n, .rows = rows};
        DCI_TRY(add(&b, ld, progress));
        *out_first_id = b.first_id;
        return DCI_OK;
}

static dci_status upsert(dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids, bool adds_none,
                         const dci_progress *progress)
{
        DCI_TRY(dci_index_check_writer(index));
        if (n == 0)
                return DCI_OK;
        if (ids == NULL)
                return dci_fail(DCI_ERR_INVALID, "ids is NULL");
        DCI_TRY(check_add(index, n, rows, ld, ids));
        dci_batch b = {.index = index, .n = n, .rows = rows, .ids = ids, .replaces = true, .adds_none = adds_none};
        return add(&b, ld, progress);
}

dci_status dci_index_upsert(dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids,
                            const dci_progress *progress)
{
        return upsert(index, n, rows, ld, ids, false, progress);
}

dci_status dci_index_replace(dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids,
                             const dci_progress *progress)
{
        return upsert(index, n, rows, ld, ids, true, progress);
}
