/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Load and map. The steps: the container (core/file.c), the config, lengths against the config, and only then memory; rows to
 * where the index wants them, their contents, and last what makes it an index again.
 */
#include "core/internal.h"

#include <stdio.h>
#include <string.h>

#include "index/check/parts.h"
#include "index/config.h"
#include "index/persist/sections.h"

#define BLOCK_ROWS 64

/* --- the config ----------------------------------------------------------------------------------------------------------- */

/* A sentence of a function that does not know about files, as one about the file. */
static dci_status as_format_error(dci_status status)
{
        char sentence[400];
        if (status != DCI_ERR_INVALID && status != DCI_ERR_LIMIT)
                return status;
        snprintf(sentence, sizeof sentence, "%s", dci_last_error());
        return dci_fail(DCI_ERR_FORMAT, "the config in the file: %s", sentence);
}

static dci_status get_size(const unsigned char *at, const char *name, size_t *out)
{
        const uint64_t value = dci_load_le64(at);
        if (value > SIZE_MAX)
                return dci_fail(DCI_ERR_UNSUPPORTED, "%s is %llu in the file, this machine counts to %zu", name,
                                (unsigned long long)value, SIZE_MAX);
        *out = (size_t)value;
        return DCI_OK;
}

static int32_t get_int32(const unsigned char *at)
{
        const uint32_t bits = dci_load_le32(at);
        int32_t value;
        memcpy(&value, &bits, sizeof value);
        return value;
}

/* Numbers of 8 bytes, in the order of the section. */
static dci_status decode_sizes(dci_loading *l, const unsigned char *at)
{
        const struct {
                size_t offset;
                const char *name;
                size_t *out;
        } fields[] = {{0, "dim", &l->config.dim},
                      {8, "the number of rows", &l->n},
                      {40, "num_comp_indices", &l->config.num_comp_indices},
                      {48, "num_simp_indices", &l->config.num_simp_indices},
                      {88, "num_to_visit", &l->defaults.num_to_visit},
                      {96, "num_to_retrieve", &l->defaults.num_to_retrieve}};
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
                DCI_TRY(get_size(at + fields[i].offset, fields[i].name, fields[i].out));
        return DCI_OK;
}

static dci_status decode_config(dci_loading *l, const unsigned char *at, const dci_kind_format **out_format)
{
        const uint32_t c_bits = dci_load_le32(at + 104);
        const uint64_t next_id = dci_load_le64(at + 64);
        dci_index_config_init(&l->config, sizeof l->config);
        dci_search_params_init(&l->defaults, sizeof l->defaults);
        DCI_TRY(decode_sizes(l, at));
        l->config.kind = get_int32(at + 16);
        l->config.metric = get_int32(at + 20);
        l->config.dtype = get_int32(at + 24);
        l->config.add_dtype = get_int32(at + 28);
        l->config.query_dtype = get_int32(at + 32);
        l->config.zero_rows = get_int32(at + 36);
        l->config.seed = dci_load_le64(at + 56);
        l->next_id = (int64_t)(next_id & INT64_MAX);
        l->defaults.prop_to_visit = dci_load_f64(at + 72);
        l->defaults.prop_to_retrieve = dci_load_f64(at + 80);
        l->config.sketch_bits = get_int32(at + 108);
        l->defaults.rerank = dci_load_f64(at + 112);
        l->defaults.guarantee = dci_load_f64(at + 120);
        memcpy(&l->c_squared, &c_bits, sizeof l->c_squared);
        const dci_kind_format *format = *out_format = dci_kind_format_of(l->config.kind);
        if (format == NULL)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the file holds index kind %d, which this library does not have",
                                (int)l->config.kind);
        if (next_id > INT64_MAX)
                return dci_fail(DCI_ERR_FORMAT, "the file's next id is %llu, ids end at %lld",
                                (unsigned long long)next_id, (long long)INT64_MAX - 1);
        if (format->read_config == NULL)
                return dci_check_unused(at + DCI_CONFIG_COMMON, 0);
        l->own = at + DCI_CONFIG_COMMON;
        return format->read_config(at + DCI_CONFIG_COMMON, &l->config, &l->defaults);
}

static dci_status check_config(const dci_loading *l)
{
        if (l->config.add_dtype == 0 || l->config.query_dtype == 0)
                return dci_fail(DCI_ERR_FORMAT, "%s is 0 in the file",
                                l->config.add_dtype == 0 ? "add_dtype" : "query_dtype");
        if (l->n > DCI_MAX_ROWS)
                return dci_fail(DCI_ERR_FORMAT, "the file says it has %zu rows, an index has at most %zu", l->n,
                                DCI_MAX_ROWS);
        DCI_TRY(as_format_error(dci_index_config_check(&l->config)));
        if (!dci_directions_are_in_proportion(&l->config, l->file->n_bytes))
                return dci_fail(DCI_ERR_FORMAT,
                                "%zu times %zu simple indices of dim %zu are more than a file of %zu bytes may ask for",
                                l->config.num_comp_indices, l->config.num_simp_indices, l->config.dim,
                                l->file->n_bytes);
        return DCI_OK;
}

/* Everything that can be said before memory is taken: the config, and that all lengths follow from it. */
static dci_status examine(dci_context *context, dci_loading *l, const dci_kind_format **out_format)
{
        const void *config = NULL, *unused;
        if (l->file->version != DCI_INDEX_FILE_VERSION)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the file holds an index of version %u, this library reads %u",
                                (unsigned)l->file->version, (unsigned)DCI_INDEX_FILE_VERSION);
        DCI_TRY(dci_loading_read(l, "config", 1, DCI_CONFIG_BYTES, &config));
        DCI_TRY(decode_config(l, config, out_format));
        DCI_TRY(dci_effort_find(l));
        DCI_TRY(check_config(l));
        dci_rows_init(&l->shape, context, &l->config);
        DCI_TRY(dci_loading_read(l, "rows", l->n, l->shape.row_bytes, &l->parts.rows));
        if (dci_loading_has(l, "ids"))
                DCI_TRY(dci_loading_read(l, "ids", l->n, sizeof(int64_t), &l->parts.ids));
        if (l->shape.with_norms)
                DCI_TRY(dci_loading_read(l, "norms", l->n, sizeof(float), &l->parts.norms));
        else if (l->config.sketch_bits != 0 && dci_loading_has(l, "norms") && !dci_loading_has(l, "relative"))
                DCI_TRY(dci_loading_read(l, "norms", l->n, sizeof(float), &unused)); /* L2, before 0.2 */
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): decode_config found the format. */
        if ((*out_format)->find != NULL)
                DCI_TRY((*out_format)->find(l));
        DCI_TRY(dci_codes_find(l));
        DCI_TRY(as_format_error(dci_auto_find(l)));
        if (dci_loading_has(l, "metadata"))
                DCI_TRY(dci_loading_read_any(l, "metadata", 1, &l->metadata, &l->metadata_bytes));
        if (l->metadata_bytes > DCI_MAX_METADATA)
                return dci_fail(DCI_ERR_FORMAT, "the file has %zu bytes of metadata, an index has at most %zu",
                                l->metadata_bytes, DCI_MAX_METADATA);
        for (size_t i = 0; i < l->file->n_sections; i++)
                if ((l->taken >> i & 1) == 0)
                        return dci_fail(DCI_ERR_UNSUPPORTED,
                                        "the file has a section '%.8s', which this library does not know",
                                        l->file->sections[i].name);
        return DCI_OK;
}

/* --- the index -------------------------------------------------------------------------------------------------------------- */

/* Section to chunks; the section may be anywhere in the caller's memory, so it is never read as numbers. */
static void copy_chunk(const dci_loading *l, size_t first, size_t n, dci_chunk *chunk)
{
        const unsigned char *rows = l->parts.rows, *ids = l->parts.ids, *norms = l->parts.norms,
                            *projections = l->parts.projections;
        memcpy(chunk->rows, rows + first * l->shape.row_bytes, n * l->shape.row_bytes);
        for (size_t i = 0; ids == NULL && i < n; i++)
                chunk->ids[i] = (int64_t)(first + i);
        if (ids != NULL)
                memcpy(chunk->ids, ids + first * sizeof *chunk->ids, n * sizeof *chunk->ids);
        if (norms != NULL)
                memcpy(chunk->norms, norms + first * sizeof *chunk->norms, n * sizeof *chunk->norms);
        for (size_t j = 0; projections != NULL && j < l->shape.n_simple; j++)
                memcpy(chunk->projections + j * chunk->stride,
                       projections + (j * l->n + first) * sizeof *chunk->projections, n * sizeof *chunk->projections);
}

static dci_status copy_rows(dci_loading *l)
{
        dci_rows *rows = &l->index->rows;
        DCI_TRY(dci_rows_reserve(rows, l->n, &l->index->retired));
        for (size_t first = 0; first < l->n;) {
                size_t offset, left = l->n - first;
                dci_chunk *chunk = dci_rows_chunk(rows, first, &offset);
                const size_t n = chunk->capacity < left ? chunk->capacity : left;
                copy_chunk(l, first, n, chunk);
                first += n;
        }
        return DCI_OK;
}

static dci_status place(dci_loading *l)
{
        dci_rows *rows = &l->index->rows;
        DCI_TRY(dci_codes_prepare(l));
        if (l->n > 0)
                DCI_TRY(l->file->mapped ? dci_rows_attach(rows, l->n, &l->parts) : copy_rows(l));
        atomic_store(&rows->n, l->n);
        if (!l->shape.gaps)
                atomic_store(&l->index->n_live, l->n);
        l->view = dci_rows_view(rows);
        return dci_codes_place(l);
}

/* --- the contents ------------------------------------------------------------------------------------------------------------- */

/*
 * What a file with the right lengths and checksums can still have wrong. The rows are in place, in a view that nobody else sees.
 *
 * Norms are kept as they are in the file, so that they need not be writable and that saving gives the same bytes anywhere; but
 * they were computed from the same rows, so they may differ from what this machine computes by rounding alone.
 */
static dci_status check_rows(const dci_loading *l)
{
        const void *rows[BLOCK_ROWS];
        float norms[BLOCK_ROWS];
        for (size_t first = 0; first < l->n; first += BLOCK_ROWS) {
                const size_t n = l->n - first < BLOCK_ROWS ? l->n - first : BLOCK_ROWS;
                dci_view_pointers(&l->view, first, NULL, n, rows);
                if (l->shape.with_norms)
                        dci_view_norms(&l->view, first, NULL, n, norms);
                for (size_t i = 0; i < n; i++)
                        if (!l->shape.gaps || dci_view_id(&l->view, (int32_t)(first + i)) >= 0)
                                DCI_TRY(dci_check_norm(l->index, first + i, rows[i],
                                                       l->shape.with_norms ? &norms[i] : NULL, "file"));
        }
        return DCI_OK;
}

static dci_status check_ids(const dci_loading *l)
{
        if (l->parts.ids == NULL && (uint64_t)l->next_id < l->n)
                return dci_fail(DCI_ERR_FORMAT, "the file's next id is %lld, below those of its %zu rows",
                                (long long)l->next_id, l->n);
        if (l->parts.ids == NULL)
                return DCI_OK;
        dci_idmap *map = dci_idmap_create(l->index->context, l->n, l->next_id);
        if (map == NULL)
                return DCI_ERR_MEMORY;
        dci_idmap_destroy(l->index->context, atomic_load(&l->index->map));
        atomic_store(&l->index->map, map); /* the index frees it */
        for (size_t slot = 0; slot < l->n; slot++) {
                const int64_t id = dci_view_id(&l->view, (int32_t)slot);
                if (l->shape.gaps && id == -1)
                        continue;
                if (id < 0 || id >= l->next_id)
                        return dci_fail(DCI_ERR_FORMAT, "row %zu of the file has id %lld, allowed is 0 to %lld", slot,
                                        (long long)id, (long long)l->next_id - 1);
                if (!dci_idmap_insert(map, id, (int32_t)slot))
                        return dci_fail(DCI_ERR_FORMAT, "rows %d and %zu of the file both have id %lld",
                                        (int)dci_idmap_find(map, id), slot, (long long)id);
        }
        return DCI_OK;
}

static dci_status accept(dci_loading *l, const dci_kind_format *format)
{
        DCI_TRY(check_rows(l));
        DCI_TRY(check_ids(l));
        DCI_TRY(dci_codes_accept(l));
        DCI_TRY(dci_check_c_squared(l->index, &l->view, l->c_squared, "file"));
        DCI_TRY(as_format_error(dci_index_set_defaults(l->index, &l->defaults)));
        DCI_TRY(dci_index_set_metadata(l->index, l->metadata, l->metadata_bytes));
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): dci_index_create made the index. */
        l->index->next_id = l->next_id;
        l->index->calibration = l->calibration;
        atomic_store(&l->index->c_squared, l->c_squared);
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): examine found the format. */
        return format->accept == NULL ? DCI_OK : format->accept(l);
}

static dci_status build(dci_context *context, const dci_file *file, dci_index **out_index)
{
        dci_loading l = {.file = file};
        const dci_kind_format *format = NULL;
        dci_status status = examine(context, &l, &format);
        if (status == DCI_OK)
                status = dci_index_create(context, &l.config, &l.index);
        if (l.index != NULL)
                l.index->loaded = true;
        if (l.index != NULL && l.automatic.on)
                l.index->automatic = l.automatic;
        if (status == DCI_OK)
                status = place(&l);
        if (status == DCI_OK)
                status = accept(&l, format);
        if (status == DCI_OK)
                *out_index = l.index;
        else
                dci_index_destroy(l.index);
        return status;
}

/* --- where the bytes come from ----------------------------------------------------------------------------------------------- */

/* What comes of `file`, which is emptied: an index, unless finding it failed already. */
static dci_status finish(dci_context *context, dci_status status, dci_file *file, dci_index **out_index)
{
        dci_index *index = NULL;
        if (status == DCI_OK)
                status = build(context, file, &index);
        if (status == DCI_OK && file->mapped)
                index->mapping = dci_file_release(file, &index->mapped_bytes);
        if (status == DCI_OK)
                *out_index = index;
        dci_file_free(file);
        return status;
}

static dci_status enter(const dci_context *context, const void *from, const char *what, dci_index **out_index)
{
        if (out_index != NULL)
                *out_index = NULL;
        if (context == NULL || from == NULL || out_index == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL",
                                context == NULL ? "context" : (from == NULL ? what : "out_index"));
        return dci_persist_supported();
}

dci_status dci_index_load(dci_context *context, const char *path, dci_index **out_index)
{
        dci_file file = {0};
        DCI_TRY(enter(context, path, "path", out_index));
        return finish(context, dci_file_load(context, path, DCI_INDEX_FILE_KIND, &file), &file, out_index);
}

dci_status dci_index_map(dci_context *context, const char *path, dci_index **out_index)
{
        dci_file file = {0};
        DCI_TRY(enter(context, path, "path", out_index));
        return finish(context, dci_file_map(context, path, DCI_INDEX_FILE_KIND, &file), &file, out_index);
}

dci_status dci_index_load_memory(dci_context *context, const void *data, size_t n_bytes, dci_index **out_index)
{
        dci_file file = {0};
        DCI_TRY(enter(context, data, "data", out_index));
        return finish(context, dci_file_parse(data, n_bytes, DCI_INDEX_FILE_KIND, &file), &file, out_index);
}

dci_status dci_reader_init(dci_reader *reader, size_t struct_size)
{
        return dci_struct_init("dci_reader", reader, struct_size, sizeof *reader);
}

typedef struct stream {
        const dci_reader *reader;
        size_t n;
} stream;

static dci_status stream_read(void *ctx, void *out, size_t n_bytes)
{
        stream *from = ctx;
        int32_t answer = from->reader->read(from->reader->ctx, out, n_bytes);
        if (answer != 0)
                return dci_fail(DCI_ERR_IO, "the reader returned %d for %zu bytes after %zu", (int)answer, n_bytes,
                                from->n);
        from->n += n_bytes;
        return DCI_OK;
}

dci_status dci_index_load_stream(dci_context *context, const dci_reader *reader, dci_index **out_index)
{
        dci_file file = {0};
        DCI_TRY(enter(context, reader, "reader", out_index));
        DCI_TRY(dci_check_struct_size("dci_reader", reader, reader->struct_size, sizeof *reader));
        if (reader->read == NULL)
                return dci_fail(DCI_ERR_INVALID, "reader.read is NULL");
        stream from = {.reader = reader};
        const dci_feed feed = {&from, stream_read, reader->n_bytes};
        return finish(context, dci_file_receive(context, &feed, DCI_INDEX_FILE_KIND, &file), &file, out_index);
}
