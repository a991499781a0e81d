/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a file with the right lengths and checksums can still have wrong. The rows are in place, in a view that nobody else sees.
 *
 * Norms are kept as they are in the file, so that they need not be writable and that saving gives the same bytes anywhere; but
 * they were computed from the same rows, so they may differ from what this machine computes by rounding alone.
 */
#include "index/index_internal.h"

#include <math.h>

#include "index/persist.h"

#define BLOCK_ROWS 64
/* No projection is longer than its row, and none of those exceeds sqrt(DCI_MAX_NORM2), 2^62.5. */
#define MAX_PROJECTION 0x1p63f

/* How far two machines' squared norms may be apart: the bounds of kernels.h for both, the wider one twice, and underflow. */
static double slack(size_t dim, double norm2)
{
        return ((double)dim / 4 + 32) * 0x1p-24 * norm2 + (double)dim * 0x1p-148;
}

static bool is_near(size_t dim, double a, double b)
{
        return fabs(a - b) <= slack(dim, a > b ? a : b);
}

static dci_status check_inverse(const dci_loading *l, size_t slot, double norm2, double inverse)
{
        const size_t dim = l->config.dim;
        const double least = (double)DCI_MIN_NORM2;
        if (inverse == 0.0) {
                if (l->config.zero_rows == DCI_ZERO_REFUSE)
                        return dci_fail(DCI_ERR_FORMAT, "row %zu of the file is zero, which its config refuses", slot);
                if (norm2 <= least + slack(dim, least))
                        return DCI_OK;
        } else if (inverse > 0.0 && norm2 >= least - slack(dim, least) &&
                   is_near(dim, inverse * inverse * norm2, 1.0)) {
                return DCI_OK;
        }
        return dci_fail(DCI_ERR_FORMAT, "the inverse norm of row %zu is %g in the file, but its squared norm is %g",
                        slot, inverse, norm2);
}

static dci_status check_norm(const dci_loading *l, size_t slot, const void *row, const float *norm)
{
        const size_t dim = l->config.dim;
        const double most = (double)DCI_MAX_NORM2;
        const double norm2 = (double)l->index->context->kernels->norm2[l->config.dtype - 1](row, dim);
        if (!(norm2 <= most + slack(dim, most)))
                return dci_fail(DCI_ERR_FORMAT,
                                "row %zu of the file holds NaN or infinity or is too large: its squared norm is %g, at "
                                "most %g is allowed",
                                slot, norm2, most);
        if (norm == NULL)
                return DCI_OK;
        if (l->config.metric == DCI_METRIC_COSINE)
                return check_inverse(l, slot, norm2, (double)*norm);
        if (!(*norm >= 0.0f && (double)*norm <= most && is_near(dim, (double)*norm, norm2)))
                return dci_fail(DCI_ERR_FORMAT, "the squared norm of row %zu is %g in the file, the row has %g", slot,
                                (double)*norm, norm2);
        return DCI_OK;
}

dci_status dci_loading_check_rows(const dci_loading *loading)
{
        const void *rows[BLOCK_ROWS];
        float norms[BLOCK_ROWS];
        dci_status status = DCI_OK;
        for (size_t first = 0; first < loading->n; first += BLOCK_ROWS) {
                const size_t n = loading->n - first < BLOCK_ROWS ? loading->n - first : BLOCK_ROWS;
                dci_view_pointers(&loading->view, first, NULL, n, rows);
                if (loading->shape.with_norms)
                        dci_view_norms(&loading->view, first, NULL, n, norms);
                for (size_t i = 0; i < n && status == DCI_OK; i++)
                        if (!loading->shape.gaps || dci_view_id(&loading->view, (int32_t)(first + i)) >= 0)
                                status = check_norm(loading, first + i, rows[i],
                                                    loading->shape.with_norms ? &norms[i] : NULL);
        }
        return status;
}

dci_status dci_loading_check_ids(const dci_loading *loading)
{
        dci_idmap *map = NULL;
        if (loading->parts.ids == NULL && (uint64_t)loading->next_id < loading->n)
                return dci_fail(DCI_ERR_FORMAT, "the file's next id is %lld, below those of its %zu rows",
                                (long long)loading->next_id, loading->n);
        if (loading->parts.ids == NULL)
                return DCI_OK;
        map = dci_idmap_create(loading->index->context, loading->n, loading->next_id);
        if (map == NULL)
                return DCI_ERR_MEMORY;
        dci_idmap_destroy(loading->index->context, atomic_load(&loading->index->map));
        atomic_store(&loading->index->map, map); /* the index frees it */
        for (size_t slot = 0; slot < loading->n; slot++) {
                const int64_t id = dci_view_id(&loading->view, (int32_t)slot);
                if (loading->shape.gaps && id == -1)
                        continue;
                if (id < 0 || id >= loading->next_id)
                        return dci_fail(DCI_ERR_FORMAT, "row %zu of the file has id %lld, allowed is 0 to %lld", slot,
                                        (long long)id, (long long)loading->next_id - 1);
                if (!dci_idmap_insert(map, id, (int32_t)slot))
                        return dci_fail(DCI_ERR_FORMAT, "rows %d and %zu of the file both have id %lld",
                                        (int)dci_idmap_find(map, id), slot, (long long)id);
        }
        return DCI_OK;
}

dci_status dci_loading_check_c_squared(const dci_loading *loading)
{
        const float c_squared = loading->c_squared;
        float longest = 0.0f;
        const bool lifted = loading->config.kind != DCI_KIND_FLAT && loading->config.metric == DCI_METRIC_IP;
        for (size_t slot = 0; lifted && slot < loading->n; slot++) {
                float norm2;
                dci_view_norms(&loading->view, slot, NULL, 1, &norm2);
                longest = norm2 > longest ? norm2 : longest;
        }
        /* A power of two, as dci_lift_c_squared makes them; removed rows may have been longer than those that are left. */
        const bool possible = c_squared >= 0.0f && c_squared <= 0x1p125f && dci_lift_c_squared(c_squared) == c_squared;
        const bool wanted = lifted || c_squared == 0.0f;
        if (!possible || !wanted || !(c_squared >= longest))
                return dci_fail(DCI_ERR_FORMAT, "c^2 is %g in the file, whose longest row has the squared norm %g",
                                (double)c_squared, (double)longest);
        return DCI_OK;
}

/* The first of n projections that cannot be one, or n. */
static size_t first_impossible(const float *projections, size_t n)
{
        size_t i = 0;
        while (i < n && fabsf(projections[i]) <= MAX_PROJECTION) /* not NaN either */
                i++;
        return i;
}

dci_status dci_loading_check_projections(const dci_loading *loading)
{
        const dci_rows *rows = loading->view.rows;
        const size_t full = (size_t)1 << loading->shape.chunk_shift;
        for (size_t first = 0; first < loading->n; first += full) {
                const dci_chunk *chunk = &loading->view.table->chunk[first >> rows->chunk_shift];
                const size_t n = loading->n - first < full ? loading->n - first : full;
                for (size_t j = 0; j < rows->n_simple; j++) {
                        const float *projections = chunk->projections + j * chunk->stride;
                        const size_t bad = first_impossible(projections, n);
                        if (bad < n)
                                return dci_fail(DCI_ERR_FORMAT,
                                                "projection %zu of row %zu is %g in the file, none exceeds %g", j,
                                                first + bad, (double)projections[bad], (double)MAX_PROJECTION);
                }
        }
        return DCI_OK;
}
