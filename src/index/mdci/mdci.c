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

/* --- building again, while searches go on ---------------------------------------------------------------------------------- */

/* Everything there will be, and where it comes from. */
typedef struct gathered {
        size_t n;
        const void **rows;
        float *norms;
        int64_t *ids;
        int32_t *from;  /* slot, in the index's rows; in `staged` from n_old on */
        int32_t *slots; /* where it goes */
        size_t n_old;
} gathered;

static void gathered_free(dci_context *context, gathered *g)
{
        dci_free(context, g->rows, g->n, sizeof *g->rows);
        dci_free(context, g->norms, g->n, sizeof *g->norms);
        dci_free(context, g->ids, g->n, sizeof *g->ids);
        dci_free(context, g->from, g->n, sizeof *g->from);
        dci_free(context, g->slots, g->n, sizeof *g->slots);
}

static void gather_rows(gathered *g, size_t at, dci_rows *rows, size_t n)
{
        const dci_view view = dci_rows_view(rows);
        for (size_t i = at; i < at + n; i++) {
                dci_view_pointers(&view, 0, &g->from[i], 1, &g->rows[i]);
                g->ids[i] = dci_view_id(&view, g->from[i]);
                g->norms[i] = 0.0f;
                if (rows->with_norms)
                        dci_view_norms(&view, 0, &g->from[i], 1, &g->norms[i]);
        }
}

static bool gather(dci_index *index, dci_rows *staged, const dci_idmap *leaving, gathered *out)
{
        dci_context *context = index->context;
        const dci_view view = dci_rows_view(&index->rows);
        const size_t n_staged = staged == NULL ? 0 : atomic_load(&staged->n);
        *out = (gathered){.n = atomic_load(&index->n_live) + n_staged - (leaving == NULL ? 0 : leaving->n)};
        out->rows = dci_alloc(context, out->n, sizeof *out->rows);
        out->norms = dci_alloc(context, out->n, sizeof *out->norms);
        out->ids = dci_alloc(context, out->n, sizeof *out->ids);
        out->from = dci_alloc(context, out->n, sizeof *out->from);
        out->slots = dci_alloc(context, out->n, sizeof *out->slots);
        if (out->rows == NULL || out->norms == NULL || out->ids == NULL || out->from == NULL || out->slots == NULL)
                return false;
        for (size_t slot = 0; slot < view.n; slot++) {
                const int64_t id = dci_view_id(&view, (int32_t)slot);
                if (id >= 0 && (leaving == NULL || dci_idmap_find(leaving, id) < 0))
                        out->from[out->n_old++] = (int32_t)slot;
        }
        for (size_t i = 0; i < n_staged; i++)
                out->from[out->n_old + i] = (int32_t)i;
        gather_rows(out, 0, &index->rows, out->n_old);
        if (staged != NULL)
                gather_rows(out, out->n_old, staged, n_staged);
        return true;
}

/* What will replace the index's own. */
typedef struct replacement {
        dci_tree *tree;
        dci_rows rows;
        dci_idmap *map;
} replacement;

static void replacement_free(dci_index *index, replacement *r)
{
        dci_tree_destroy(r->tree);
        dci_rows_destroy(&r->rows);
        dci_idmap_destroy(index->context, r->map);
}

static dci_status fill(dci_index *index, dci_rows *staged, const gathered *g, int64_t end, replacement *r)
{
        const size_t n_slots = r->tree->n_pages * r->tree->page_rows;
        const size_t room = staged == NULL ? 0 : dci_rows_capacity(&index->rows); /* adding keeps what a reserve took */
        dci_retired *none = NULL; /* nothing is there that could retire */
        DCI_TRY(dci_rows_reserve(&r->rows, n_slots > room ? n_slots : room, &none));
        r->map = dci_idmap_create(index->context, g->n, end);
        if (r->map == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < g->n; i++) {
                dci_rows_copy(i < g->n_old ? &index->rows : staged, (size_t)g->from[i], &r->rows, (size_t)g->slots[i]);
                dci_idmap_insert(r->map, g->ids[i], g->slots[i]);
        }
        atomic_store(&r->rows.n, n_slots);
        DCI_TRY(dci_rows_codes_inherit(&r->rows, &index->rows));
        DCI_TRY(dci_rows_follow(&r->rows, &r->rows, 0, n_slots));
        DCI_TRY(dci_rows_encode(&r->rows, 0, n_slots));
        return g->n == 0 ? DCI_OK : dci_tree_route_all(r->tree, &r->rows);
}

static void swap_in(dci_index *index, replacement *r, size_t n, float c_squared)
{
        dci_tree *old_tree = index->tree;
        dci_idmap *old_map = atomic_load(&index->map);
        dci_index_exclusive_begin(index);
        dci_rows_swap(&index->rows, &r->rows);
        index->tree = r->tree;
        atomic_store(&index->map, r->map);
        atomic_store(&index->c_squared, c_squared);
        atomic_store(&index->n_live, n);
        dci_index_exclusive_end(index);
        r->tree = old_tree;
        r->map = old_map;
}

/* Builds a tree again from the rows there are, less `leaving`, and those of `staged` (either may be NULL), aside, and swaps
 * it in. With `staged` there is room for as many rows as before, in case it was reserved. end: one more than the largest id ever
 * used. */
static dci_status rebuild(dci_index *index, dci_rows *staged, const dci_idmap *leaving, float c_squared, int64_t end,
                          const dci_progress *progress)
{
        dci_context *context = index->context;
        const dci_tree *old = index->tree;
        gathered g;
        replacement r = {.tree = dci_tree_create(context, &index->config)};
        dci_rows_init(&r.rows, context, &index->config);
        dci_status status = gather(index, staged, leaving, &g) && r.tree != NULL ? DCI_OK : DCI_ERR_MEMORY;
        if (status == DCI_OK)
                status = dci_rows_codes_create(&r.rows, &index->config);
        if (status == DCI_OK) {
                r.tree->c_squared = c_squared;
                r.tree->version = r.tree->built_version = old->version + 1;
                r.tree->n_builds = old->n_builds + 1;
                r.tree->n_pages_ever = old->n_pages_ever;
        }
        if (status == DCI_OK && g.n > 0) {
                const dci_tree_source source = {g.n, g.rows, g.norms, g.ids, index->config.dtype};
                status = dci_tree_build(r.tree, &source, progress, index, g.slots);
        }
        if (status == DCI_OK)
                status = fill(index, staged, &g, end, &r);
        if (status == DCI_OK)
                swap_in(index, &r, g.n, c_squared);
        replacement_free(index, &r);
        gathered_free(context, &g);
        return status;
}

/* --- adding ------------------------------------------------------------------------------------------------------------------ */

/* None of the ids is there already, none comes twice. */
static dci_status check_ids(const dci_batch *b)
{
        const dci_idmap *map = atomic_load(&b->index->map);
        for (size_t i = 0; b->ids != NULL && i < b->n; i++)
                if (dci_idmap_find(map, b->ids[i]) >= 0)
                        return dci_fail(DCI_ERR_EXISTS, "id %lld of row %zu is in the index already",
                                        (long long)b->ids[i], i);
        return dci_batch_check_distinct(b);
}

/* The ids that are there leave as the rows come. None comes twice. */
static dci_status find_replaced(dci_batch *b)
{
        const dci_idmap *map = atomic_load(&b->index->map);
        size_t n = 0;
        DCI_TRY(dci_batch_check_distinct(b));
        for (size_t i = 0; i < b->n; i++) {
                const bool there = dci_idmap_find(map, b->ids[i]) >= 0;
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
                if (dci_idmap_find(map, b->ids[i]) >= 0) {
                        dci_idmap_insert(b->leaving, b->ids[i], 0);
                        b->old_ids[n++] = b->ids[i];
                }
        return DCI_OK;
}

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
}

static dci_status insert(const dci_batch *b, dci_rows *staged, dci_tree_plan *plan, int32_t *slots)
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
                status = map == NULL ? DCI_ERR_MEMORY : DCI_OK;
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
static dci_status insert_few(const dci_batch *b, dci_rows *staged, const dci_tree_source *source, bool *out_alone)
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
                        status = insert(b, staged, &plan, slots);
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
                rebuild(index, NULL, NULL, tree->c_squared, index->next_id, NULL);
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
                        status = insert_few(b, staged, &source, &alone);
                source_free(index->context, &source);
        }
        if (status == DCI_OK && alone)
                status = rebuild(index, staged, b->leaving, c_squared, dci_batch_end(b), progress);
        return status;
}

dci_status dci_mdci_add(dci_batch *b, const dci_progress *progress)
{
        dci_index *index = b->index;
        const size_t n_live = atomic_load(&index->n_live);
        const bool much = b->n >= n_live / MUCH;
        dci_retired *none = NULL;
        dci_index_config config = index->config;
        DCI_TRY(check_version(index));
        b->n_new = b->n;
        DCI_TRY(b->replaces ? find_replaced(b) : check_ids(b));
        if (config.add_dtype == config.dtype) /* they are copied once, to where they belong */
                config.storage = DCI_ROWS_BORROWED;
        dci_rows_init(&b->staged, index->context, &config); /* without codes: those depend on the place */
        b->staged.gaps = false;
        b->target = &b->staged;
        b->first = 0;
        dci_status status = dci_rows_reserve(&b->staged, b->n, &none);
        if (status == DCI_OK)
                status = dci_batch_place(b, much ? NULL : progress);
        if (status == DCI_OK) {
                atomic_store(&b->staged.n, b->n);
                status = add_staged(b, &b->staged, much, progress);
        }
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
                status = rebuild(index, NULL, leaving, index->tree->c_squared, index->next_id, NULL);
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
        return rebuild(index, NULL, atomic_load(&index->map), index->tree->c_squared, index->next_id, NULL);
}
