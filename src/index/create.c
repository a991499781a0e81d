/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The object: create, destroy, reserve, memory. */
#include "core/internal.h"

#include "core/file.h"
#include "index/access.h"
#include "index/codes/rows.h"
#include "index/config.h"
#include "index/tree/tree.h"

dci_status dci_index_create(dci_context *context, const dci_index_config *config, dci_index **out_index)
{
        if (context == NULL || config == NULL || out_index == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL",
                                context == NULL ? "context" : (config == NULL ? "config" : "out_index"));
        DCI_TRY(dci_index_config_check(config));
        dci_index *index = dci_calloc(context, 1, sizeof *index);
        if (index == NULL)
                return DCI_ERR_MEMORY;
        index->context = context;
        dci_index_take_config(index, config);
        index->automatic = (dci_automatic){config->kind == DCI_KIND_AUTO, config->sketch_bits, 1, 0};
        if (index->automatic.on) { /* until there are more rows */
                index->config.kind = DCI_KIND_FLAT;
                index->config.sketch_bits = 0;
        }
        index->kinds = dci_kind_of(0);
        index->kind = &index->kinds[index->config.kind];
        if (index->config.add_dtype == 0)
                index->config.add_dtype = config->dtype;
        if (index->config.query_dtype == 0)
                index->config.query_dtype = config->dtype;
        dci_status status = dci_directions_create(context, &index->config, &index->directions);
        if (status != DCI_OK) {
                dci_free(context, index, 1, sizeof *index);
                return status;
        }
        dci_rows_init(&index->rows, context, &index->config);
        atomic_init(&index->c_squared, 0.0f);
        atomic_init(&index->n_live, 0);
        atomic_init(&index->map, NULL);
        status = dci_rows_codes_create(&index->rows, &index->config);
        if (status == DCI_OK && index->kind->create != NULL)
                status = index->kind->create(index);
        if (status != DCI_OK) {
                dci_rows_destroy(&index->rows);
                dci_directions_destroy(context, &index->directions);
                dci_free(context, index, 1, sizeof *index);
                return status;
        }
        pthread_mutex_init(&index->writers, NULL);
        pthread_mutex_init(&index->turnstile, NULL);
        pthread_rwlock_init(&index->state, NULL);
        pthread_mutex_init(&index->defaults_lock, NULL);
        dci_context_retain(context);
        *out_index = index;
        return DCI_OK;
}

void dci_index_destroy(dci_index *index)
{
        if (index == NULL)
                return;
        dci_context *context = index->context;
        dci_index_free_retired(index);
        dci_rows_destroy(&index->rows);
        if (index->kind->destroy != NULL)
                index->kind->destroy(index);
        dci_directions_destroy(context, &index->directions);
        dci_idmap_destroy(context, atomic_load(&index->map));
        dci_free(context, index->metadata, index->metadata_bytes, 1);
        if (index->mapping != NULL)
                dci_file_unmap(index->mapping, index->mapped_bytes);
        pthread_mutex_destroy(&index->defaults_lock);
        pthread_rwlock_destroy(&index->state);
        pthread_mutex_destroy(&index->turnstile);
        pthread_mutex_destroy(&index->writers);
        dci_free(context, index, 1, sizeof *index);
        dci_context_destroy(context);
}

dci_status dci_index_reserve(dci_index *index, size_t n_rows)
{
        DCI_TRY(dci_index_check_writer(index));
        if (n_rows > DCI_MAX_ROWS)
                return dci_fail(DCI_ERR_LIMIT, "%zu rows wanted, an index holds at most %zu", n_rows, DCI_MAX_ROWS);
        pthread_mutex_lock(&index->writers);
        /* MDCI: pages are filled to two thirds or more. */
        const size_t n_slots = index->rows.gaps && n_rows <= DCI_MAX_ROWS / 2 ? n_rows + n_rows / 2 : n_rows;
        dci_status status = dci_rows_reserve(&index->rows, n_slots, &index->retired);
        dci_index_collect(index);
        pthread_mutex_unlock(&index->writers);
        return status;
}

dci_status dci_index_memory(const dci_index *index, dci_memory_report *out_report)
{
        DCI_TRY(dci_index_check_call(index));
        if (out_report == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_report is NULL");
        size_t struct_size = out_report->struct_size;
        DCI_TRY(dci_check_struct_size("dci_memory_report", out_report, struct_size, sizeof *out_report));
        dci_memory_report_init(out_report, struct_size);
        pthread_mutex_t *writers = &((dci_index *)(uintptr_t)index)->writers; /* chunks are counted by writers */
        pthread_mutex_lock(writers);
        dci_rows_bytes(&index->rows, out_report);
        out_report->ids += dci_idmap_bytes(atomic_load(&index->map));
        out_report->other += sizeof *index + index->metadata_bytes + dci_directions_bytes(&index->directions) +
                             dci_rows_codes_bytes(&index->rows);
        if (index->tree != NULL)
                out_report->other += dci_tree_bytes(index->tree);
        for (const dci_retired *note = index->retired; note != NULL; note = note->next)
                out_report->other += note->n_bytes + sizeof *note;
        pthread_mutex_unlock(writers);
        out_report->total = out_report->rows + out_report->ids + out_report->norms + out_report->projections +
                            out_report->codes + out_report->other;
        return DCI_OK;
}
