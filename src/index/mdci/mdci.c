/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Adding and removing: small changes are planned while searches go on, and carried out under the lock; a change that would
 * move much of the tree rebuilds it.
 */
#include "core/internal.h"

#include <string.h>

#include "index/access.h"
#include "index/batch.h"
#include "index/codes/rows.h"
#include "index/rebuild.h"
#include "index/tree/plan.h"
#include "index/tree/route.h"

/* Changes of a quarter of the rows or more: building costs about as much per row as four insertions. */
#define MUCH 4
/* Pages below which memory is not worth reclaiming. */
#define FEW_PAGES 64

dci_status dci_mdci_create(dci_index *index)
{
        index->tree = dci_tree_create(index->context, &index->config);
        if (index->tree == NULL)
                return DCI_ERR_MEMORY;
        dci_idmap *map = dci_idmap_create(index->context, 0, 0);
        if (map == NULL) {
                dci_tree_destroy(index->tree);
                return DCI_ERR_MEMORY;
        }
        atomic_store(&index->map, map);
        return DCI_OK;
}

void dci_mdci_destroy(dci_index *index)
{
        dci_tree_destroy(index->tree);
}

/* A change counts one, and one more where it ends with a tidy tree. */
static dci_status check_version(const dci_index *index)
{
        const uint64_t version = index->tree->version;
        return version <= DCI_MAX_VERSION - 2
                       ? DCI_OK
                       : dci_fail(DCI_ERR_LIMIT, "the tree is of version %llu, which leaves none for another change",
                                  (unsigned long long)version);
}

/* --- adding ------------------------------------------------------------------------------------------------------------------ */

/* The staged rows as the tree wants them. */
static dci_status source_of(dci_context *context, dci_rows *staged, size_t n, dci_tree_source *out)
{
        const dci_view view = dci_rows_view(staged);
        const void **rows = dci_alloc(context, n, sizeof *rows);
        float *norms = dci_calloc(context, n, sizeof *norms);
        int64_t *ids = dci_alloc(context, n, sizeof *ids);
        *out = (dci_tree_source){n, rows, norms, ids, staged->dtype};
        if (rows == NULL || norms == NULL || ids == NULL)
                return DCI_ERR_MEMORY;
        dci_view_pointers(&view, 0, NULL, n, rows);
        if (staged->with_norms)
                dci_view_norms(&view, 0, NULL, n, norms);
        for (size_t i = 0; i < n; i++)
                ids[i] = dci_view_id(&view, (int32_t)i);
        return DCI_OK;
}

static void source_free(dci_context *context, dci_tree_source *source)
{
        dci_free(context, (void *)(uintptr_t)source->rows, source->n, sizeof *source->rows);
        dci_free(context, (void *)(uintptr_t)source->norms, source->n, sizeof *source->norms);
        dci_free(context, (void *)(uintptr_t)source->ids, source->n, sizeof *source->ids);
}

/* The map that there will be: the present one if it has room, else a larger copy. NULL: no memory. */
static dci_idmap *map_for(dci_index *index, size_t n_more, int64_t end)
{
        dci_idmap *old = atomic_load(&index->map);
        if (dci_idmap_has_room(old, n_more, end))
                return old;
        const dci_view view = dci_rows_view(&index->rows);
        return dci_index_map_of(index, &view, n_more, end);
}

/* Slots that rows.n must cover. */
static void publish(dci_index *index)
{
        atomic_store(&index->rows.n, index->tree->n_pages * index->tree->page_rows);
        atomic_store(&index->n_live, index->tree->n_rows);
}

/* Without readers: the new rows go to their slots, and what they change is computed again. */
static void carry_out(dci_index *index, dci_tree_plan *plan, dci_rows *staged, dci_idmap *map, int32_t *slots)
{
        const dci_tree_store store = {&index->rows, map};
        const dci_tree_source *source = plan->source;
        if (plan->leaving_set != NULL)
                dci_tree_replace(plan, &store, slots);
        else
                dci_tree_insert(plan, &store, slots);
        for (size_t i = 0; i < source->n; i++) {
                dci_rows_copy(staged, i, &index->rows, (size_t)slots[i]);
                dci_idmap_insert(map, source->ids[i], slots[i]);
        }
        dci_tree_route_dirty(index->tree, &index->rows, plan->dirty, plan->scratch);
        atomic_store(&index->map, map);
        publish(index);
        if (index->rows.codes != NULL && dci_rows_has_begun(&index->rows))
                dci_rows_encode_raw(&index->rows, atomic_load(&index->rows.n));
}

static dci_status insert(const dci_batch *b, dci_rows *staged, dci_tree_plan *plan, int32_t *slots,
                         const dci_progress *progress)
{
        dci_index *index = b->index;
        dci_idmap *old = atomic_load(&index->map), *map = NULL;
        bool followed = false;
        dci_status status = dci_tree_plan_reserve(plan, &index->retired);
        if (status == DCI_OK) {
                followed = true;
                status = dci_rows_follow(&index->rows, staged, 0, b->n);
        }
        if (status == DCI_OK) {
                map = map_for(index, b->n_new, dci_batch_end(b));
                status = map == NULL ? DCI_ERR_MEMORY : dci_progress_end(progress, b->n, index);
        }
        if (status == DCI_OK) {
                dci_index_exclusive_begin(index);
                status = dci_tree_plan_adopt(plan);
                if (status == DCI_OK)
                        carry_out(index, plan, staged, map, slots);
                dci_index_exclusive_end(index);
        }
        if (status != DCI_OK && followed) { /* a search may be reading the centre that was begun */
                dci_index_exclusive_begin(index);
                dci_rows_unfollow(&index->rows);
                dci_index_exclusive_end(index);
        }
        if (map != old)
                dci_idmap_destroy(index->context, status == DCI_OK ? old : map);
        return status;
}

/* *out_alone: the tree must be rebuilt. */
static dci_status insert_few(const dci_batch *b, dci_rows *staged, const dci_tree_source *source, bool *out_alone,
                             const dci_progress *progress)
{
        dci_index *index = b->index;
        dci_tree_plan plan;
        int32_t *slots = dci_alloc(index->context, b->n, sizeof *slots);
        if (slots == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = b->leaving == NULL ? dci_tree_plan_insert(index->tree, &index->rows, source, &plan)
                                               : dci_tree_plan_replace(index->tree, &index->rows, source, b->leaving,
                                                                       b->n - b->n_new, b->old_ids, &plan, out_alone);
        if (status == DCI_OK) {
                if (!*out_alone)
                        status = insert(b, staged, &plan, slots, progress);
                dci_tree_plan_free(&plan);
        }
        dci_free(index->context, slots, b->n, sizeof *slots);
        return status;
}

/* Steps that a call can do without: when memory is short the tree stays as it is, and the call succeeds. Memory is
 * reclaimed by removing: what adding finds unused may be reserved. */
static void tidy(dci_index *index, bool removed)
{
        dci_tree *tree = index->tree;
        int32_t *parents = NULL;
        dci_may_fail(true);
        if (removed && tree->n_pages >= FEW_PAGES && tree->n_free > tree->n_pages / 2) {
                dci_index_rebuild(index, &index->config, NULL, NULL, index->next_id, NULL);
        } else if (dci_tree_plan_level(tree, &parents) == DCI_OK && parents != NULL) {
                dci_index_exclusive_begin(index);
                dci_tree_enter_level(tree, parents);
                dci_index_exclusive_end(index);
        }
        dci_may_fail(false);
}

/* A promoted row comes where chance had drawn none: that one's node goes, as if they had come together. */
static bool ends_lone_node(const dci_batch *b)
{
        const dci_tree *tree = b->index->tree;
        bool ends = false;
        for (size_t i = 0; tree->lone_id >= 0 && i < b->n && !ends; i++)
                ends = dci_tree_promotions(tree, dci_batch_id(b, i)) > 0;
        return ends;
}

static dci_status add_staged(dci_batch *b, dci_rows *staged, bool much, const dci_progress *progress)
{
        dci_index *index = b->index;
        float c_squared = 0.0f;
        if (index->config.metric == DCI_METRIC_IP)
                c_squared = dci_lift_c_squared(dci_batch_longest(b));
        bool alone = much || c_squared != index->tree->c_squared || ends_lone_node(b);
        dci_status status = DCI_OK;
        if (!alone) {
                dci_tree_source source;
                status = source_of(index->context, staged, b->n, &source);
                if (status == DCI_OK)
                        status = insert_few(b, staged, &source, &alone, progress);
                source_free(index->context, &source);
        }
        if (status == DCI_OK && alone)
                status = dci_index_rebuild(index, &index->config, staged, b->leaving, dci_batch_end(b), progress);
        return status;
}

dci_status dci_mdci_add(dci_batch *b, const dci_progress *progress)
{
        dci_index *index = b->index;
        const size_t n_live = atomic_load(&index->n_live);
        const bool much = b->n >= n_live / MUCH;
        DCI_TRY(check_version(index));
        DCI_TRY(dci_batch_find_old(b));
        dci_status status = dci_batch_stage(b, &index->config, much ? NULL : progress);
        if (status == DCI_OK)
                status = add_staged(b, &b->staged, much, progress);
        if (status == DCI_OK) {
                index->next_id = dci_batch_end(b);
                tidy(index, false);
        }
        dci_rows_destroy(&b->staged);
        return status;
}

/* --- removing ---------------------------------------------------------------------------------------------------------------- */

/* A set of the ids, each of which is there. */
static dci_status find_leaving(const dci_index *index, size_t n, const int64_t *ids, dci_idmap **out)
{
        const dci_idmap *map = atomic_load(&index->map);
        for (size_t i = 0; i < n; i++)
                if (dci_idmap_find(map, ids[i]) < 0)
                        return dci_fail(DCI_ERR_NOT_FOUND, "id %lld (number %zu) is not in the index",
                                        (long long)ids[i], i);
        dci_idmap *leaving = dci_idmap_create(index->context, n, index->next_id);
        if (leaving == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n; i++) {
                if (dci_idmap_insert(leaving, ids[i], 0))
                        continue;
                dci_idmap_destroy(index->context, leaving);
                return dci_fail(DCI_ERR_EXISTS, "id %lld is named twice", (long long)ids[i]);
        }
        *out = leaving;
        return DCI_OK;
}

static dci_status remove_few(dci_index *index, size_t n, const int64_t *ids, const dci_idmap *leaving, bool *out_alone)
{
        dci_tree_plan plan;
        DCI_TRY(dci_tree_plan_remove(index->tree, &index->rows, leaving, n, ids, &plan, out_alone));
        dci_status status = *out_alone ? DCI_OK : dci_tree_plan_reserve(&plan, &index->retired);
        if (status == DCI_OK && !*out_alone) {
                const dci_tree_store store = {&index->rows, atomic_load(&index->map)};
                dci_index_exclusive_begin(index);
                status = dci_tree_plan_adopt(&plan);
                if (status == DCI_OK) {
                        dci_tree_remove(&plan, &store);
                        dci_tree_route_dirty(index->tree, &index->rows, plan.dirty, plan.scratch);
                        publish(index);
                }
                dci_index_exclusive_end(index);
        }
        dci_tree_plan_free(&plan);
        return status;
}

dci_status dci_mdci_remove(dci_index *index, size_t n, const int64_t *ids)
{
        const size_t n_live = atomic_load(&index->n_live);
        dci_idmap *leaving = NULL;
        DCI_TRY(check_version(index));
        DCI_TRY(find_leaving(index, n, ids, &leaving));
        bool alone = n >= n_live / MUCH;
        dci_status status = alone ? DCI_OK : remove_few(index, n, ids, leaving, &alone);
        if (status == DCI_OK && alone)
                status = dci_index_rebuild(index, &index->config, NULL, leaving, index->next_id, NULL);
        dci_idmap_destroy(index->context, leaving);
        if (status == DCI_OK)
                tidy(index, true);
        return status;
}

/* All of the map leaves. */
dci_status dci_mdci_clear(dci_index *index)
{
        if (index->tree->n_pages == 0 && index->rows.n_chunks == 0)
                return DCI_OK;
        DCI_TRY(check_version(index));
        return dci_index_rebuild(index, &index->config, NULL, atomic_load(&index->map), index->next_id, NULL);
}
