/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rebuilds the tree while searches go on, and swaps it in under the lock. */
#include "core/internal.h"

#include <string.h>

#include "index/access.h"
#include "index/codes/rows.h"
#include "index/mdci/build.h"
#include "index/tree/build.h"
#include "index/tree/route.h"

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

static void take_rows(gathered *g, size_t at, dci_rows *rows, size_t n)
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
        take_rows(out, 0, &index->rows, out->n_old);
        if (staged != NULL)
                take_rows(out, out->n_old, staged, n_staged);
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

dci_status dci_mdci_rebuild(dci_index *index, dci_rows *staged, const dci_idmap *leaving, float c_squared, int64_t end,
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
