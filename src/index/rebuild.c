/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Building an index again from its rows, aside: gather the rows, build, swap. */
#include "core/internal.h"

#include "index/access.h"
#include "index/codes/rows.h"
#include "index/rebuild.h"
#include "index/tree/plan.h"
#include "index/tree/route.h"

/* Everything there will be, and where it comes from. */
typedef struct gathered {
        size_t n;
        const void **rows;
        float *norms;
        float longest; /* norm */
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

/* with_norms: of rows that will have norms, the same as dci_check_row makes. Rows that have none now are not of metric COSINE. */
static void gather_rows(gathered *g, size_t at, dci_rows *rows, size_t n, bool with_norms)
{
        const dci_view view = dci_rows_view(rows);
        for (size_t i = at; i < at + n; i++) {
                dci_view_pointers(&view, 0, &g->from[i], 1, &g->rows[i]);
                g->ids[i] = dci_view_id(&view, g->from[i]);
                g->norms[i] = 0.0f;
                if (rows->with_norms)
                        dci_view_norms(&view, 0, &g->from[i], 1, &g->norms[i]);
                else if (with_norms)
                        g->norms[i] = rows->context->kernels->norm2[rows->dtype - 1](g->rows[i], rows->dim);
                g->longest = g->norms[i] > g->longest ? g->norms[i] : g->longest;
        }
}

static bool gather(dci_index *index, dci_rows *staged, const dci_idmap *leaving, bool with_norms, gathered *out)
{
        dci_context *context = index->context;
        const dci_view view = dci_rows_view(&index->rows);
        const size_t n_staged = staged == NULL ? 0 : atomic_load(&staged->n);
        *out = (gathered){.n = dci_index_count(index) + n_staged - (leaving == NULL ? 0 : leaving->n)};
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
        gather_rows(out, 0, &index->rows, out->n_old, with_norms);
        if (staged != NULL)
                gather_rows(out, out->n_old, staged, n_staged, with_norms);
        return true;
}

/* What will replace the index's own. */
typedef struct replacement {
        const dci_index_config *config;
        dci_tree *tree; /* MDCI */
        dci_rows rows;
        dci_idmap *map; /* NULL where the id of every row is its slot, but under MDCI */
        float c_squared;
} replacement;

static void replacement_free(dci_index *index, replacement *r)
{
        dci_tree_destroy(r->tree);
        dci_rows_destroy(&r->rows);
        dci_idmap_destroy(index->context, r->map);
}

/* A tree of the gathered rows, which goes on counting where that of the index, if it has one, ends; or the rows one after the other.
 * Says where each will be. */
static dci_status arrange(dci_index *index, gathered *g, replacement *r, const dci_progress *progress,
                          size_t *out_slots)
{
        const dci_tree *old = index->tree;
        const dci_tree_source source = {g->n, g->rows, g->norms, g->ids, index->config.dtype};
        if (r->config->kind != DCI_KIND_MDCI) {
                for (size_t i = 0; i < g->n; i++)
                        g->slots[i] = (int32_t)i;
                *out_slots = g->n;
                return DCI_OK;
        }
        r->tree = dci_tree_create(index->context, r->config);
        if (r->tree == NULL)
                return DCI_ERR_MEMORY;
        if (r->config->metric == DCI_METRIC_IP) {
                const float before = atomic_load(&index->c_squared);
                r->c_squared = dci_lift_c_squared(g->longest > before ? g->longest : before);
        }
        r->tree->c_squared = r->c_squared;
        r->tree->version = r->tree->built_version = old == NULL ? 1 : old->version + 1;
        r->tree->n_builds = old == NULL ? 1 : old->n_builds + 1;
        r->tree->n_pages_ever = old == NULL ? 0 : old->n_pages_ever;
        if (g->n > 0)
                DCI_TRY(dci_tree_build(r->tree, &source, progress, index, g->slots));
        *out_slots = r->tree->n_pages * r->tree->page_rows;
        return DCI_OK;
}

static dci_status fill_map(dci_index *index, const gathered *g, int64_t end, replacement *r)
{
        bool needed = r->tree != NULL;
        for (size_t i = 0; i < g->n && !needed; i++)
                needed = g->ids[i] != (int64_t)i;
        if (!needed)
                return DCI_OK;
        r->map = dci_idmap_create(index->context, g->n, end);
        for (size_t i = 0; r->map != NULL && i < g->n; i++)
                dci_idmap_insert(r->map, g->ids[i], g->slots[i]);
        return r->map == NULL ? DCI_ERR_MEMORY : DCI_OK;
}

static dci_status fill(dci_index *index, dci_rows *staged, const gathered *g, size_t n_slots, replacement *r)
{
        const size_t room = staged == NULL ? 0 : dci_rows_capacity(&index->rows); /* adding keeps what a reserve took */
        dci_retired *none = NULL; /* nothing is there that could retire */
        DCI_TRY(dci_rows_codes_prepare(&r->rows, &index->rows, g->n));
        DCI_TRY(dci_rows_reserve(&r->rows, n_slots > room ? n_slots : room, &none));
        for (size_t i = 0; i < g->n; i++) {
                dci_rows *from = i < g->n_old ? &index->rows : staged;
                dci_rows_copy(from, (size_t)g->from[i], &r->rows, (size_t)g->slots[i]);
                if (!from->with_norms && r->rows.with_norms) {
                        size_t offset;
                        dci_chunk *chunk = dci_rows_chunk(&r->rows, (size_t)g->slots[i], &offset);
                        chunk->norms[offset] = g->norms[i];
                }
        }
        atomic_store(&r->rows.n, n_slots);
        DCI_TRY(dci_rows_codes_inherit(&r->rows, &index->rows));
        DCI_TRY(dci_rows_follow(&r->rows, &r->rows, 0, n_slots));
        DCI_TRY(dci_rows_encode(&r->rows, 0, n_slots));
        return r->tree == NULL || g->n == 0 ? DCI_OK : dci_tree_route_all(r->tree, &r->rows);
}

static void swap_in(dci_index *index, replacement *r, size_t n)
{
        dci_tree *old_tree = index->tree;
        dci_idmap *old_map = atomic_load(&index->map);
        dci_index_exclusive_begin(index);
        dci_rows_swap(&index->rows, &r->rows);
        index->tree = r->tree;
        index->automatic.n_changes +=
                index->config.kind != r->config->kind || index->config.sketch_bits != r->config->sketch_bits;
        index->config.kind = r->config->kind;
        index->config.sketch_bits = r->config->sketch_bits;
        index->kind = &index->kinds[r->config->kind];
        atomic_store(&index->map, r->map);
        atomic_store(&index->c_squared, r->c_squared);
        atomic_store(&index->n_live, n);
        dci_index_exclusive_end(index);
        r->tree = old_tree;
        r->map = old_map;
}

dci_status dci_index_rebuild(dci_index *index, const dci_index_config *config, dci_rows *staged,
                             const dci_idmap *leaving, int64_t end, const dci_progress *progress)
{
        dci_context *context = index->context;
        gathered g;
        replacement r = {.config = config};
        size_t n_slots = 0;
        dci_rows_init(&r.rows, context, config);
        dci_status status = gather(index, staged, leaving, r.rows.with_norms, &g) ? DCI_OK : DCI_ERR_MEMORY;
        if (status == DCI_OK)
                status = dci_rows_codes_create(&r.rows, config);
        if (status == DCI_OK)
                status = arrange(index, &g, &r, progress, &n_slots);
        if (status == DCI_OK)
                status = fill(index, staged, &g, n_slots, &r);
        if (status == DCI_OK)
                status = fill_map(index, &g, end, &r);
        if (status == DCI_OK)
                status = dci_progress_end(progress, g.n, index);
        if (status == DCI_OK)
                swap_in(index, &r, g.n);
        replacement_free(index, &r);
        gathered_free(context, &g);
        return status;
}
