/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Rows and what is kept of them. Norms, projections and codes of an index that was made here are these kernels' to the bit; a
 * loaded one may have them from a machine that rounds otherwise.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/check/parts.h"
#include "index/queries.h"

#define BLOCK_ROWS ((size_t)64)
/* No projection is longer than its row, and none of those exceeds sqrt(DCI_MAX_NORM2), 2^62.5. */
#define MAX_PROJECTION 0x1p63f

/* The bounds of gpu/args/rows.h for both, the wider one twice, and underflow. */
double dci_norm_slack(size_t dim, double size)
{
        return ((double)dim / 4 + 32) * 0x1p-24 * size + (double)dim * 0x1p-148;
}

static bool is_near(size_t dim, double a, double b)
{
        return fabs(a - b) <= dci_norm_slack(dim, a > b ? a : b);
}

static dci_status check_inverse(const dci_index *index, size_t slot, double norm2, double inverse, const char *in)
{
        const size_t dim = index->config.dim;
        const double least = (double)DCI_MIN_NORM2;
        if (inverse == 0.0) {
                if (index->config.zero_rows == DCI_ZERO_REFUSE)
                        return dci_fail(DCI_ERR_FORMAT, "row %zu of the %s is zero, which its config refuses", slot,
                                        in);
                if (norm2 <= least + dci_norm_slack(dim, least))
                        return DCI_OK;
        } else if (inverse > 0.0 && norm2 >= least - dci_norm_slack(dim, least) &&
                   is_near(dim, inverse * inverse * norm2, 1.0)) {
                return DCI_OK;
        }
        return dci_fail(DCI_ERR_FORMAT, "the inverse norm of row %zu is %g in the %s, but its squared norm is %g", slot,
                        inverse, in, norm2);
}

dci_status dci_check_norm(const dci_index *index, size_t slot, const void *row, const float *norm, const char *in)
{
        const size_t dim = index->config.dim;
        const double most = (double)DCI_MAX_NORM2;
        const double norm2 = (double)index->context->kernels->norm2[index->config.dtype - 1](row, dim);
        if (!(norm2 <= most + dci_norm_slack(dim, most)))
                return dci_fail(DCI_ERR_FORMAT,
                                "row %zu of the %s holds NaN or infinity or is too large: its squared norm is %g, at "
                                "most %g is allowed",
                                slot, in, norm2, most);
        if (norm == NULL)
                return DCI_OK;
        if (index->config.metric == DCI_METRIC_COSINE)
                return check_inverse(index, slot, norm2, (double)*norm, in);
        if (!(*norm >= 0.0f && (double)*norm <= most && is_near(dim, (double)*norm, norm2)))
                return dci_fail(DCI_ERR_FORMAT, "the squared norm of row %zu is %g in the %s, the row has %g", slot,
                                (double)*norm, in, norm2);
        return DCI_OK;
}

dci_status dci_check_c_squared(const dci_index *index, const dci_view *view, float c_squared, const char *in)
{
        float longest = 0.0f;
        const bool lifted = index->config.kind != DCI_KIND_FLAT && index->config.metric == DCI_METRIC_IP;
        for (size_t slot = 0; lifted && slot < view->n; slot++) {
                float norm2;
                if (view->rows->gaps && dci_view_id(view, (int32_t)slot) < 0)
                        continue;
                dci_view_norms(view, slot, NULL, 1, &norm2);
                longest = norm2 > longest ? norm2 : longest;
        }
        /* A power of two, as dci_lift_c_squared makes them; removed rows may have been longer than those that are left. */
        const bool possible = c_squared >= 0.0f && c_squared <= 0x1p125f && dci_lift_c_squared(c_squared) == c_squared;
        const bool wanted = lifted || c_squared == 0.0f;
        if (!possible || !wanted || !(c_squared >= longest))
                return dci_fail(DCI_ERR_FORMAT, "c^2 is %g in the %s, whose longest row has the squared norm %g",
                                (double)c_squared, in, (double)longest);
        return DCI_OK;
}

dci_status dci_check_projections(const dci_view *view, bool empty_too, const char *in)
{
        const dci_rows *rows = view->rows;
        const size_t full = (size_t)1 << rows->chunk_shift;
        for (size_t first = 0; first < view->n && rows->n_simple > 0; first += full) {
                const dci_chunk *chunk = &view->table->chunk[first >> rows->chunk_shift];
                const size_t n = view->n - first < full ? view->n - first : full;
                for (size_t j = 0; j < rows->n_simple; j++)
                        for (size_t i = 0; i < n; i++) {
                                if (!empty_too && rows->gaps && dci_view_id(view, (int32_t)(first + i)) < 0)
                                        continue; /* an empty slot holds leftovers */
                                const float x = chunk->projections[j * chunk->stride + i];
                                if (fabsf(x) <= MAX_PROJECTION) /* not NaN either */
                                        continue;
                                return dci_fail(DCI_ERR_FORMAT,
                                                "projection %zu of row %zu is %g in the %s, none exceeds %g", j,
                                                first + i, (double)x, in, (double)MAX_PROJECTION);
                        }
        }
        return DCI_OK;
}

/* --- chunks and ids ----------------------------------------------------------------------------------------------------------- */

dci_status dci_check_chunks(const dci_index *index, const dci_view *view)
{
        const dci_rows *rows = view->rows;
        const size_t full = (size_t)1 << rows->chunk_shift, n_chunks = rows->n_chunks;
        if (view->n > DCI_MAX_ROWS)
                return dci_fail(DCI_ERR_FORMAT, "the index says that it has %zu rows, the most there can be are %zu",
                                view->n, DCI_MAX_ROWS);
        if (n_chunks > 0 && (view->table == NULL || view->table->capacity < n_chunks))
                return dci_fail(DCI_ERR_FORMAT, "the table of chunks has room for %zu, but there are %zu",
                                view->table == NULL ? 0 : view->table->capacity, n_chunks);
        size_t room = 0;
        for (size_t i = 0; i < n_chunks; i++) {
                const dci_chunk *chunk = &view->table->chunk[i];
                const bool last_mapped = rows->mapped && i + 1 == n_chunks, lone = n_chunks == 1;
                if (chunk->capacity > full || (chunk->capacity < full && !lone && !last_mapped) ||
                    (!rows->mapped && chunk->capacity % 16 != 0) || chunk->rows == NULL ||
                    (chunk->ids == NULL && !rows->mapped) || (rows->with_norms && chunk->norms == NULL) ||
                    (rows->n_simple > 0 && (chunk->projections == NULL || chunk->stride < chunk->capacity)))
                        return dci_fail(DCI_ERR_FORMAT, "chunk %zu of %zu has room for %zu rows, expected %zu", i,
                                        n_chunks, chunk->capacity, full);
                room += chunk->capacity;
        }
        if (view->n > room)
                return dci_fail(DCI_ERR_FORMAT,
                                "the index says that it has %zu slots, its %zu chunks have room for %zu", view->n,
                                n_chunks, room);
        if (index->config.dim != rows->dim || index->config.dtype != rows->dtype)
                return dci_fail(DCI_ERR_FORMAT, "rows are of %zu elements and format %d, the config says %zu and %d",
                                rows->dim, (int)rows->dtype, index->config.dim, (int)index->config.dtype);
        return DCI_OK;
}

/* As many entries as it says, no more than leave a hash table an end to every search. */
static dci_status check_map(const dci_idmap *map)
{
        size_t n = 0;
        const size_t n_entries = map->dense != NULL ? map->n_dense : map->mask + 1;
        for (size_t i = 0; i < n_entries; i++)
                n += map->dense != NULL ? atomic_load_explicit(&map->dense[i], memory_order_relaxed) >= 0
                                        : atomic_load_explicit(&map->entries[i].id, memory_order_relaxed) >= 0;
        if (n != map->n || (map->dense == NULL && n > n_entries / 2))
                return dci_fail(DCI_ERR_FORMAT, "the map of ids has %zu entries of %zu, but says %zu", n, n_entries,
                                map->n);
        return DCI_OK;
}

dci_status dci_check_ids(const dci_index *index, const dci_view *view, size_t *out_n)
{
        const dci_idmap *map = atomic_load(&index->map);
        const bool gaps = view->rows->gaps;
        size_t n = 0;
        if (map != NULL)
                DCI_TRY(check_map(map));
        for (size_t slot = 0; slot < view->n; slot++) {
                const int64_t id = dci_view_id(view, (int32_t)slot);
                if (gaps && id == -1)
                        continue;
                n++;
                if (id < 0 || id >= index->next_id)
                        return dci_fail(DCI_ERR_FORMAT, "the row in slot %zu has id %lld, allowed is 0 to %lld", slot,
                                        (long long)id, (long long)index->next_id - 1);
                const int64_t found = map == NULL ? id : dci_idmap_find(map, id);
                if (found != (int64_t)slot)
                        return dci_fail(DCI_ERR_FORMAT, "id %lld is that of slot %zu, but the map says slot %lld",
                                        (long long)id, slot, (long long)found);
        }
        if (map != NULL && map->n != n)
                return dci_fail(DCI_ERR_FORMAT, "the map of ids has %zu of them, the index has %zu rows", map->n, n);
        *out_n = n;
        return DCI_OK;
}

/* --- once more -------------------------------------------------------------------------------------------------------------------- */

/* One after the other: of many elements they take more memory than all the rest of an index. */
dci_status dci_check_directions(const dci_index *index)
{
        const dci_directions *there = &index->directions;
        const dci_index_config *config = &index->config;
        const size_t n_wanted = dci_index_simple_indices(config), dim = config->dim;
        const bool lifted = config->metric == DCI_METRIC_IP;
        if (n_wanted != there->n || (there->n > 0 && there->dim != dim))
                return dci_fail(DCI_ERR_FORMAT, "there are %zu directions, the config has %zu simple indices", there->n,
                                n_wanted);
        if (there->n == 0)
                return DCI_OK;
        float weight, *wanted = dci_alloc(index->context, dim, sizeof *wanted);
        if (wanted == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = DCI_OK;
        for (size_t j = 0; j < there->n && status == DCI_OK; j++) {
                dci_direction_draw(config, j, wanted, lifted ? &weight : NULL);
                if (memcmp(there->vectors + j * dim, wanted, dim * sizeof *wanted) != 0 ||
                    (lifted && (there->weights == NULL || there->weights[j] != weight)))
                        status = dci_fail(DCI_ERR_FORMAT, "direction %zu is not the one that the seed gives", j);
        }
        dci_free(index->context, wanted, dim, sizeof *wanted);
        return status;
}

static dci_status check_norms(const dci_row_check *c, size_t slot, const void *row, const float *norm)
{
        float again;
        DCI_TRY(dci_check_norm(c->index, slot, row, norm, "index"));
        if (norm == NULL || !c->exact)
                return DCI_OK;
        if (dci_check_row(c->index, c->index->config.dtype, row, "the row in slot", slot, &again) !=
            DCI_OK) /* DCI_ERR_NUMBER of a call is another's mistake */
                return dci_fail(DCI_ERR_FORMAT, "row %zu of the index is not one that can be added", slot);
        if (again != *norm)
                return dci_fail(DCI_ERR_FORMAT, "the norm kept of row %zu is %.9g in the index, the row has %.9g", slot,
                                (double)*norm, (double)again);
        return DCI_OK;
}

/* Projections of n <= BLOCK_ROWS rows on all directions, as dci_project_rows makes them. */
static dci_status check_projected(const dci_row_check *c, size_t first, size_t n, const void *const *rows,
                                  const float *norms)
{
        const dci_index *index = c->index;
        const dci_directions *directions = &index->directions;
        const size_t dim = index->config.dim, full = (size_t)1 << c->view.rows->chunk_shift;
        const dci_chunk *chunk = &c->view.table->chunk[first / full];
        const bool cosine = index->config.metric == DCI_METRIC_COSINE;
        const dci_kernels *kernels = index->context->kernels;
        for (size_t j = 0; j < directions->n; j += DCI_MANY_QUERIES) {
                float again[DCI_MANY_QUERIES * BLOCK_ROWS];
                const size_t left = directions->n - j, here = left < DCI_MANY_QUERIES ? left : DCI_MANY_QUERIES;
                kernels->score_many[index->config.dtype - 1][DCI_FORM_DOT](directions->vectors + j * dim, dim, here,
                                                                           rows, n, dim, again, BLOCK_ROWS);
                for (size_t i = 0; i < here * n; i++) {
                        const size_t d = i / n, r = i % n;
                        if (c->view.rows->gaps && dci_view_id(&c->view, (int32_t)(first + r)) < 0)
                                continue; /* nothing need ever have been written there */
                        const float stored = chunk->projections[(j + d) * chunk->stride + first % full + r];
                        const float wanted = again[d * BLOCK_ROWS + r] * (cosine ? norms[r] : 1.0f);
                        if (stored == wanted)
                                continue;
                        const double length =
                                cosine ? 1.0 : sqrt((double)kernels->norm2[index->config.dtype - 1](rows[r], dim));
                        if (c->exact || !(fabs((double)stored - (double)wanted) <= 2.0 * dci_norm_slack(dim, length)))
                                return dci_fail(DCI_ERR_FORMAT,
                                                "projection %zu of the row in slot %zu is %.9g, the row and the seed "
                                                "give %.9g",
                                                j + d, first + r, (double)stored, (double)wanted);
                }
        }
        return DCI_OK;
}

/* n <= BLOCK_ROWS rows of one chunk. */
static dci_status check_some(const dci_row_check *c, size_t first, size_t n)
{
        const void *rows[BLOCK_ROWS];
        float norms[BLOCK_ROWS];
        const dci_rows *of = c->view.rows;
        dci_view_pointers(&c->view, first, NULL, n, rows);
        if (of->with_norms)
                dci_view_norms(&c->view, first, NULL, n, norms);
        for (size_t i = 0; i < n; i++)
                if (!of->gaps || dci_view_id(&c->view, (int32_t)(first + i)) >= 0)
                        DCI_TRY(check_norms(c, first + i, rows[i], of->with_norms ? &norms[i] : NULL));
        return of->n_simple > 0 ? check_projected(c, first, n, rows, norms) : DCI_OK;
}

dci_status dci_check_rows(const dci_row_check *c, size_t first, size_t end, void *scratch)
{
        const size_t full = (size_t)1 << c->view.rows->chunk_shift;
        for (size_t slot = first, n; slot < end; slot += n) {
                n = end - slot < BLOCK_ROWS ? end - slot : BLOCK_ROWS;
                n = full - slot % full < n ? full - slot % full : n;
                DCI_TRY(check_some(c, slot, n));
        }
        for (size_t slot = first, n; slot < end && c->view.rows->codes != NULL; slot += n) {
                n = DCI_CODE_ROWS - slot % DCI_CODE_ROWS;
                n = end - slot < n ? end - slot : n;
                DCI_TRY(dci_check_block(c, slot, n, scratch));
        }
        return DCI_OK;
}
