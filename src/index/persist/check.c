/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a file with the right lengths and checksums can still have wrong. The rows are in place, in a view that nobody else sees.
 *
 * Norms are kept as they are in the file, so that they need not be writable and that saving gives the same bytes anywhere; but
 * they were computed from the same rows, so they may differ from what this machine computes by rounding alone.
 */
#include "core/internal.h"

#include "index/check/rows.h"
#include "index/persist/check.h"

#define BLOCK_ROWS 64

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
                                status = dci_check_norm(loading->index, first + i, rows[i],
                                                        loading->shape.with_norms ? &norms[i] : NULL, "file");
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

dci_status dci_loading_check_projections(dci_loading *loading)
{
        return dci_check_projections(&loading->view, true, "file");
}
