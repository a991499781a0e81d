/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Save: the sections of an index, and the three places they can go. The writers' lock is held throughout, so chunks, ids and
 * counters stand still; searches need none of it and go on.
 */
#include "core/internal.h"

#include <string.h>

#include "index/access.h"
#include "index/config.h"
#include "index/persist/sections.h"

#define BLOCK_ROWS 64

static dci_status emit_config(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        return sink->write(sink->ctx, s->config, sizeof s->config);
}

static dci_status emit_owned_rows(const dci_saving *s, const dci_sink *sink)
{
        size_t n;
        for (size_t c = 0; (n = dci_saving_chunk_rows(s, c)) > 0; c++)
                DCI_TRY(dci_saving_emit(s, &s->view.table->chunk[c], s->view.table->chunk[c].rows, n,
                                        s->view.rows->row_bytes, sink));
        return DCI_OK;
}

static dci_status emit_rows(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        const size_t row_bytes = s->index->config.dim * dci_dtype_size(s->index->config.dtype);
        const void *rows[BLOCK_ROWS];
        if (!s->view.rows->borrowed)
                return emit_owned_rows(s, sink);
        for (size_t first = 0; first < s->view.n; first += BLOCK_ROWS) {
                const size_t n = s->view.n - first < BLOCK_ROWS ? s->view.n - first : BLOCK_ROWS;
                dci_view_pointers(&s->view, first, NULL, n, rows);
                for (size_t i = 0; i < n; i++)
                        DCI_TRY(dci_view_id(&s->view, (int32_t)(first + i)) >= 0
                                        ? sink->write(sink->ctx, rows[i], row_bytes)
                                        : dci_saving_emit_zeros(row_bytes, sink));
        }
        return DCI_OK;
}

static dci_status emit_ids(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        size_t n;
        for (size_t c = 0; (n = dci_saving_chunk_rows(s, c)) > 0; c++)
                DCI_TRY(sink->write(sink->ctx, s->view.table->chunk[c].ids, n * sizeof(int64_t)));
        return DCI_OK;
}

static dci_status emit_norms(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        size_t n;
        for (size_t c = 0; (n = dci_saving_chunk_rows(s, c)) > 0; c++)
                DCI_TRY(dci_saving_emit(s, &s->view.table->chunk[c], s->view.table->chunk[c].norms, n, sizeof(float),
                                        sink));
        return DCI_OK;
}

/* Ids that are the slots are not written, however the index came to them: the same index, the same bytes. */
static bool ids_are_slots(const dci_view *view)
{
        for (size_t i = 0; i < view->n; i++)
                if (dci_view_id(view, (int32_t)i) != (int64_t)i)
                        return false;
        return true;
}

static dci_status emit_metadata(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        return sink->write(sink->ctx, s->index->metadata, s->index->metadata_bytes);
}

static void encode_config(dci_saving *s, const dci_kind_format *format)
{
        const dci_index *index = s->index;
        const dci_index_config *config = &index->config;
        unsigned char *at = s->config;
        dci_search_params defaults;
        float c_squared = atomic_load(&((dci_index *)(uintptr_t)index)->c_squared);
        uint32_t c_bits;
        memcpy(&c_bits, &c_squared, sizeof c_bits);
        dci_index_get_defaults_into(index, &defaults);
        dci_store_le64(at, config->dim);
        dci_store_le64(at + 8, s->view.n);
        dci_store_le32(at + 16, (uint32_t)config->kind);
        dci_store_le32(at + 20, (uint32_t)config->metric);
        dci_store_le32(at + 24, (uint32_t)config->dtype);
        dci_store_le32(at + 28, (uint32_t)config->add_dtype);
        dci_store_le32(at + 32, (uint32_t)config->query_dtype);
        dci_store_le32(at + 36, (uint32_t)config->zero_rows);
        dci_store_le64(at + 40, config->num_comp_indices);
        dci_store_le64(at + 48, config->num_simp_indices);
        dci_store_le64(at + 56, config->seed);
        dci_store_le64(at + 64, (uint64_t)index->next_id);
        dci_store_f64(at + 72, defaults.prop_to_visit);
        dci_store_f64(at + 80, defaults.prop_to_retrieve);
        dci_store_le64(at + 88, defaults.num_to_visit);
        dci_store_le64(at + 96, defaults.num_to_retrieve);
        dci_store_le32(at + 104, c_bits);
        dci_store_le32(at + 108, (uint32_t)config->sketch_bits);
        dci_store_f64(at + 112, defaults.rerank);
        dci_store_f64(at + 120, defaults.guarantee);
        if (format->write_config != NULL)
                format->write_config(index, &defaults, at + DCI_CONFIG_COMMON);
}

static dci_status gather(const dci_index *index, dci_saving *s)
{
        const dci_kind_format *format = dci_kind_format_of(index->config.kind);
        memset(s, 0, sizeof *s);
        s->index = index;
        s->view = dci_rows_view(&index->rows);
        const size_t n = s->view.n, dim = index->config.dim;
        encode_config(s, format);
        dci_saving_add(s, "config", sizeof s->config, emit_config);
        dci_saving_add(s, "rows", n * dim * dci_dtype_size(index->config.dtype), emit_rows);
        if (s->view.rows->gaps || !ids_are_slots(&s->view))
                dci_saving_add(s, "ids", n * sizeof(int64_t), emit_ids);
        if (index->rows.with_norms)
                dci_saving_add(s, "norms", n * sizeof(float), emit_norms);
        if (format->write != NULL)
                format->write(s);
        dci_codes_write(s);
        dci_effort_write(s);
        dci_auto_write(s);
        if (index->metadata_bytes > 0)
                dci_saving_add(s, "metadata", index->metadata_bytes, emit_metadata);
        size_t n_bytes = 0;
        DCI_TRY(dci_file_measure(s->n_parts, s->parts, &n_bytes));
        if (!dci_directions_are_in_proportion(&index->config, n_bytes))
                return dci_fail(
                        DCI_ERR_LIMIT,
                        "%zu simple indices of dim %zu are too many to draw again for a file of %zu bytes: more "
                        "than 64 MiB and more than 16 times the file",
                        index->directions.n, dim, n_bytes);
        return index->tree != NULL ? dci_tree_check_proportion(index, n_bytes) : DCI_OK;
}

/* --- where they go ------------------------------------------------------------------------------------------------------- */

static dci_status compose_buffered(const dci_saving *s, const dci_sink *sink)
{
        return dci_file_compose_buffered(s->index->context, sink, DCI_INDEX_FILE_KIND, DCI_INDEX_FILE_VERSION,
                                         s->n_parts, s->parts);
}

/* Gathers an index and delivers it, with its writers held off. */
static dci_status save(const dci_index *index, dci_status (*deliver)(const dci_saving *s, void *ctx), void *ctx)
{
        dci_saving s;
        pthread_mutex_t *writers = &((dci_index *)(uintptr_t)index)->writers;
        pthread_mutex_lock(writers);
        dci_status status = gather(index, &s);
        if (status == DCI_OK)
                status = deliver(&s, ctx);
        pthread_mutex_unlock(writers);
        return status;
}

static dci_status enter(const dci_index *index)
{
        DCI_TRY(dci_index_check_call(index));
        return dci_persist_supported();
}

static dci_status to_path(const dci_saving *s, void *ctx)
{
        const char *path = ctx;
        dci_replacement replacement;
        DCI_TRY(dci_replace_begin(path, &replacement));
        const dci_sink sink = {&replacement, dci_replace_write};
        return dci_replace_end(&replacement, compose_buffered(s, &sink));
}

dci_status dci_index_save(const dci_index *index, const char *path)
{
        DCI_TRY(enter(index));
        return save(index, to_path, (void *)(uintptr_t)path);
}

typedef struct memory {
        unsigned char *out;
        size_t capacity, n;
        size_t *out_bytes;
} memory;

static dci_status memory_write(void *ctx, const void *data, size_t n_bytes)
{
        memory *m = ctx;
        memcpy(m->out + m->n, data, n_bytes);
        m->n += n_bytes;
        return DCI_OK;
}

static dci_status to_memory(const dci_saving *s, void *ctx)
{
        memory *m = ctx;
        size_t n_bytes = 0;
        DCI_TRY(dci_file_measure(s->n_parts, s->parts, &n_bytes));
        *m->out_bytes = n_bytes;
        if (m->out == NULL)
                return DCI_OK;
        if (n_bytes > m->capacity)
                return dci_fail(DCI_ERR_LIMIT, "the index takes %zu bytes, there is room for %zu", n_bytes,
                                m->capacity);
        const dci_sink sink = {m, memory_write};
        return dci_file_compose(&sink, DCI_INDEX_FILE_KIND, DCI_INDEX_FILE_VERSION, s->n_parts, s->parts);
}

dci_status dci_index_save_memory(const dci_index *index, size_t capacity, void *out, size_t *out_bytes)
{
        DCI_TRY(enter(index));
        if (out_bytes == NULL || (out == NULL && capacity > 0))
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", out_bytes == NULL ? "out_bytes" : "out");
        memory m = {.out = out, .capacity = capacity, .out_bytes = out_bytes};
        return save(index, to_memory, &m);
}

dci_status dci_writer_init(dci_writer *writer, size_t struct_size)
{
        return dci_struct_init("dci_writer", writer, struct_size, sizeof *writer);
}

typedef struct stream {
        const dci_index *index;
        const dci_writer *writer;
        size_t n;
} stream;

static dci_status stream_write(void *ctx, const void *data, size_t n_bytes)
{
        stream *to = ctx;
        dci_busy_mark mark;
        dci_busy_enter(&mark, to->index);
        int32_t answer = to->writer->write(to->writer->ctx, data, n_bytes);
        dci_busy_leave(&mark);
        if (answer != 0)
                return dci_fail(DCI_ERR_IO, "the writer returned %d for %zu bytes after %zu", (int)answer, n_bytes,
                                to->n);
        to->n += n_bytes;
        return DCI_OK;
}

static dci_status to_stream(const dci_saving *s, void *ctx)
{
        const dci_sink sink = {ctx, stream_write};
        return compose_buffered(s, &sink);
}

dci_status dci_index_save_stream(const dci_index *index, const dci_writer *writer)
{
        DCI_TRY(enter(index));
        if (writer == NULL)
                return dci_fail(DCI_ERR_INVALID, "writer is NULL");
        DCI_TRY(dci_check_struct_size("dci_writer", writer, writer->struct_size, sizeof *writer));
        if (writer->write == NULL)
                return dci_fail(DCI_ERR_INVALID, "writer.write is NULL");
        stream to = {.index = index, .writer = writer};
        return save(index, to_stream, &to);
}
