/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sections of a file, in and out. */
#include "core/internal.h"

#include <string.h>

#include "index/persist/sections.h"

dci_status dci_persist_supported(void)
{
        const uint32_t one = 1;
        unsigned char first;
        memcpy(&first, &one, 1);
        return first == 1
                       ? DCI_OK
                       : dci_fail(DCI_ERR_UNSUPPORTED, "files are little endian, which this machine's numbers are not");
}

dci_status dci_check_unused(const unsigned char own[DCI_CONFIG_OWN], size_t first)
{
        for (size_t i = first; i < DCI_CONFIG_OWN; i++)
                if (own[i] != 0)
                        return dci_fail(DCI_ERR_UNSUPPORTED,
                                        "byte %zu of the file's config is 0x%02x, this library knows no use of it",
                                        DCI_CONFIG_COMMON + i, own[i]);
        return DCI_OK;
}

bool dci_directions_are_in_proportion(const dci_index_config *config, size_t n_bytes)
{
        const size_t few = (size_t)1 << 24; /* floats: 64 MiB */
        const size_t n = dci_index_simple_indices(config);
        /* n * dim <= 2^12 * 2^20. 16 times the file is 4 floats for each of its bytes. */
        return n * config->dim <= few || n * config->dim / 4 <= n_bytes;
}

void dci_saving_add(dci_saving *saving, const char *name, size_t n_bytes,
                    dci_status (*emit)(const void *ctx, const dci_sink *sink))
{
        dci_part *part = &saving->parts[saving->n_parts++];
        *part = (dci_part){.n_bytes = n_bytes, .emit = emit, .ctx = saving};
        memcpy(part->name, name, strlen(name) < sizeof part->name ? strlen(name) : sizeof part->name);
}

size_t dci_saving_chunk_rows(const dci_saving *saving, size_t chunk)
{
        const size_t full = (size_t)1 << saving->view.rows->chunk_shift;
        const size_t first = chunk << saving->view.rows->chunk_shift;
        if (first >= saving->view.n)
                return 0;
        return saving->view.n - first < full ? saving->view.n - first : full;
}

dci_status dci_saving_emit_zeros(size_t n_bytes, const dci_sink *sink)
{
        static const unsigned char zeros[512] = {0};
        for (size_t done = 0; done < n_bytes; done += sizeof zeros)
                DCI_TRY(sink->write(sink->ctx, zeros, n_bytes - done < sizeof zeros ? n_bytes - done : sizeof zeros));
        return DCI_OK;
}

dci_status dci_saving_emit(const dci_saving *s, const dci_chunk *chunk, const void *things, size_t n, size_t size,
                           const dci_sink *sink)
{
        if (!s->view.rows->gaps)
                return sink->write(sink->ctx, things, n * size);
        for (size_t first = 0, end; first < n; first = end) { /* runs of full slots, of empty ones */
                const bool full = chunk->ids[first] >= 0;
                end = first + 1;
                while (end < n && (chunk->ids[end] >= 0) == full)
                        end++;
                const size_t n_bytes = (end - first) * size;
                DCI_TRY(full ? sink->write(sink->ctx, (const unsigned char *)things + first * size, n_bytes)
                             : dci_saving_emit_zeros(n_bytes, sink));
        }
        return DCI_OK;
}

static size_t find_section(const dci_file *file, const char *name)
{
        size_t i = 0;
        while (i < file->n_sections && strncmp(file->sections[i].name, name, sizeof file->sections[i].name) != 0)
                i++;
        return i;
}

dci_status dci_loading_read_any(dci_loading *loading, const char *name, size_t size, const void **out_data,
                                size_t *out_count)
{
        size_t n_bytes;
        DCI_TRY(dci_file_section(loading->file, name, out_data, &n_bytes));
        *out_count = n_bytes / size;
        return dci_loading_read(loading, name, *out_count, size, out_data);
}

bool dci_loading_has(const dci_loading *loading, const char *name)
{
        return find_section(loading->file, name) < loading->file->n_sections;
}

dci_status dci_loading_read(dci_loading *loading, const char *name, size_t count, size_t size, const void **out_data)
{
        size_t n_bytes, wanted;
        DCI_TRY(dci_file_section(loading->file, name, out_data, &n_bytes));
        loading->taken |= UINT64_C(1) << find_section(loading->file, name);
        if (!dci_mul(count, size, &wanted) || wanted != n_bytes)
                return dci_fail(DCI_ERR_FORMAT, "section '%s' has %zu bytes, wanted %zu times %zu", name, n_bytes,
                                count, size);
        return DCI_OK;
}
