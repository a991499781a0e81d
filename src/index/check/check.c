/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci_index_check: the order of what is asked, the locks, and the work shared out. */
#include "core/internal.h"

#include "dci/check.h"
#include "index/access.h"
#include "index/check/parts.h"
#include "index/tree/tree.h"

#define TASK_ROWS ((size_t)256) /* a multiple of a block of codes and of a page's rows */
#define TASK_NODES ((size_t)64)

static dci_status check_structure(const dci_index *index, const dci_view *view)
{
        size_t n = 0;
        DCI_TRY(dci_check_chunks(index, view));
        if ((index->config.kind == DCI_KIND_MDCI) != (index->tree != NULL))
                return dci_fail(DCI_ERR_FORMAT, "kind %d %s a tree", (int)index->config.kind,
                                index->tree == NULL ? "lacks" : "has");
        if ((index->metadata == NULL) != (index->metadata_bytes == 0) || index->metadata_bytes > DCI_MAX_METADATA)
                return dci_fail(DCI_ERR_FORMAT, "the metadata is %s and of %zu bytes, at most %zu are kept",
                                index->metadata == NULL ? "missing" : "there", index->metadata_bytes, DCI_MAX_METADATA);
        DCI_TRY(dci_check_ids(index, view, &n));
        if (n != dci_index_count(index))
                return dci_fail(DCI_ERR_FORMAT, "slots hold %zu rows, the index says %zu", n, dci_index_count(index));
        DCI_TRY(dci_check_c_squared(index, view, atomic_load(&((dci_index *)(uintptr_t)index)->c_squared), "index"));
        DCI_TRY(dci_check_projections(view, false, "index"));
        DCI_TRY(dci_check_codes(index, view));
        return index->tree != NULL ? dci_check_tree(index, view) : DCI_OK;
}

/* --- the full check ------------------------------------------------------------------------------------------------------------------ */

typedef struct checking {
        dci_row_check rows;
        size_t n_row_tasks;
        atomic_size_t bad; /* the lowest task that found something */
} checking;

static dci_status run_task(const checking *c, size_t task, void *scratch)
{
        if (task < c->n_row_tasks) {
                const size_t first = task * TASK_ROWS, end = first + TASK_ROWS;
                return dci_check_rows(&c->rows, first, end < c->rows.view.n ? end : c->rows.view.n, scratch);
        }
        const size_t first = (task - c->n_row_tasks) * TASK_NODES, end = first + TASK_NODES;
        const size_t n = c->rows.index->tree->levels[0].n;
        return dci_check_nodes(c->rows.index, first, end < n ? end : n, scratch);
}

static void check_task(void *arg, size_t task, size_t worker)
{
        checking *c = arg;
        size_t lowest = atomic_load(&c->bad);
        if (run_task(c, task, c->rows.scratch + worker * c->rows.scratch_bytes) == DCI_OK)
                return;
        while (task < lowest && !atomic_compare_exchange_weak(&c->bad, &lowest, task))
                continue;
}

static dci_status check_all(const dci_index *index, const dci_view *view, const dci_progress *progress)
{
        dci_context *context = index->context;
        const dci_tree *tree = index->tree;
        const size_t n_nodes = tree == NULL ? 0 : tree->levels[0].n, nodes_bytes = dci_check_nodes_bytes(index);
        checking c = {.rows = {.index = index, .view = *view, .exact = !index->loaded}};
        c.rows.scratch_bytes = dci_lines(dci_check_codes_bytes(index));
        if (c.rows.scratch_bytes < dci_lines(nodes_bytes))
                c.rows.scratch_bytes = dci_lines(nodes_bytes);
        c.n_row_tasks = (view->n + TASK_ROWS - 1) / TASK_ROWS;
        atomic_init(&c.bad, SIZE_MAX);
        const size_t n_tasks = c.n_row_tasks + (n_nodes + TASK_NODES - 1) / TASK_NODES;
        const size_t n_workers =
                dci_workers_for(context, n_tasks, view->n * index->config.dim * (2 + index->rows.n_simple));
        c.rows.scratch = dci_alloc(context, n_workers, c.rows.scratch_bytes);
        if (c.rows.scratch == NULL)
                return DCI_ERR_MEMORY;
        const dci_region region = {context, n_tasks, n_workers, check_task, &c, progress, view->n, index};
        dci_status status = dci_parallel(&region);
        /* Found on any thread; its sentence belongs to this one. */
        if (status == DCI_OK && atomic_load(&c.bad) != SIZE_MAX)
                status = run_task(&c, atomic_load(&c.bad), c.rows.scratch);
        dci_free(context, c.rows.scratch, n_workers, c.rows.scratch_bytes);
        return status;
}

dci_status dci_index_check(const dci_index *index, int32_t level, const dci_progress *progress)
{
        DCI_TRY(dci_index_check_call(index));
        if (level != DCI_CHECK_STRUCTURE && level != DCI_CHECK_FULL)
                return dci_fail(DCI_ERR_INVALID, "level is %d, expected DCI_CHECK_STRUCTURE or DCI_CHECK_FULL",
                                (int)level);
        /* Writers are held off, as while an index is saved; searches go on. */
        pthread_mutex_t *writers = &((dci_index *)(uintptr_t)index)->writers;
        pthread_mutex_lock(writers);
        const dci_view view = dci_rows_view(&index->rows);
        dci_status status = check_structure(index, &view);
        if (level == DCI_CHECK_FULL) {
                if (status == DCI_OK)
                        status = dci_check_directions(index);
                if (status == DCI_OK)
                        status = dci_check_frames(index);
                if (status == DCI_OK)
                        status = check_all(index, &view, progress);
                if (status == DCI_OK && index->tree != NULL)
                        status = dci_check_levels(index, &view);
        }
        pthread_mutex_unlock(writers);
        return status;
}
