/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The checked container: file.h has the layout. */
#include "core/internal.h"

#include <inttypes.h>
#include <string.h>

#include "core/file.h"

#define HEADER_BYTES DCI_FILE_HEADER_BYTES
#define ENTRY_BYTES ((size_t)32)
#define ALIGNMENT ((size_t)64)
#define FRONT_BYTES (HEADER_BYTES + DCI_FILE_MAX_SECTIONS * ENTRY_BYTES)
#define CONTAINER_VERSION UINT32_C(1)
#define BYTE_ORDER_MARK UINT32_C(0x01020304)
#define BUFFER_BYTES ((size_t)64 << 10)

static const unsigned char magic[8] = {'d', 'c', 'i', 'F', 'I', 'L', 'E', '\n'};

static bool align_up(size_t n, size_t *out)
{
        if (!dci_add(n, ALIGNMENT - 1, out))
                return false;
        *out -= *out % ALIGNMENT;
        return true;
}

/* Printable, so that a name can stand in a message, and zero padded, so that equal names are equal bytes. */
static bool name_is_valid(const char name[8])
{
        size_t n = 0;
        while (n < 8 && name[n] > ' ' && name[n] <= '~')
                n++;
        if (n == 0)
                return false;
        while (n < 8 && name[n] == '\0')
                n++;
        return n == 8;
}

/* Of names `stride` bytes apart, the first that equals number `end`. */
static size_t first_of_name(const void *names, size_t stride, size_t end)
{
        const unsigned char *first = names;
        size_t i = 0;
        while (i < end && memcmp(first + i * stride, first + end * stride, 8) != 0)
                i++;
        return i;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

static dci_status check_count(size_t n_sections, const void *sections)
{
        if (n_sections > DCI_FILE_MAX_SECTIONS)
                return dci_fail(DCI_ERR_LIMIT, "%zu sections, a file has at most %d", n_sections,
                                DCI_FILE_MAX_SECTIONS);
        if (n_sections > 0 && sections == NULL)
                return dci_fail(DCI_ERR_INVALID, "sections is NULL, n_sections is %zu", n_sections);
        return DCI_OK;
}

/* Checks sections and gives each its offset; offsets[n_parts] is the length of the file. */
static dci_status lay_out(size_t n_parts, const dci_part *parts, size_t offsets[DCI_FILE_MAX_SECTIONS + 1])
{
        DCI_TRY(check_count(n_parts, parts));
        size_t end = HEADER_BYTES + n_parts * ENTRY_BYTES;
        for (size_t i = 0; i < n_parts; i++) {
                const dci_part *part = &parts[i];
                if (!name_is_valid(part->name))
                        return dci_fail(DCI_ERR_INVALID,
                                        "the name of section %zu is not 1 to 8 printable characters, zero padded", i);
                size_t first = first_of_name(parts, sizeof *parts, i);
                if (first < i)
                        return dci_fail(DCI_ERR_INVALID, "sections %zu and %zu are both named '%.8s'", first, i,
                                        part->name);
                if (!align_up(end, &offsets[i]) || !dci_add(offsets[i], part->n_bytes, &end))
                        return dci_fail(DCI_ERR_LIMIT,
                                        "section '%.8s' of %zu bytes, after %zu bytes, overflows the file's length",
                                        part->name, part->n_bytes, end);
        }
        offsets[n_parts] = end;
        return DCI_OK;
}

static dci_status emit_section(const void *ctx, const dci_sink *sink)
{
        const dci_section *section = ctx;
        return section->n_bytes == 0 ? DCI_OK : sink->write(sink->ctx, section->data, section->n_bytes);
}

/* Sections whose bytes are contiguous. */
static dci_status parts_of(size_t n_sections, const dci_section *sections, dci_part parts[DCI_FILE_MAX_SECTIONS])
{
        DCI_TRY(check_count(n_sections, sections));
        for (size_t i = 0; i < n_sections; i++) {
                const dci_section *section = &sections[i];
                if (section->data == NULL && section->n_bytes > 0)
                        return dci_fail(DCI_ERR_INVALID, "section '%.8s' has %zu bytes at NULL", section->name,
                                        section->n_bytes);
                memcpy(parts[i].name, section->name, sizeof parts[i].name);
                parts[i].n_bytes = section->n_bytes;
                parts[i].emit = emit_section;
                parts[i].ctx = section;
        }
        return DCI_OK;
}

/* A sink that only computes a checksum. */
static dci_status add_to_crc(void *ctx, const void *data, size_t n_bytes)
{
        uint32_t *crc = ctx;
        *crc = dci_crc32c(*crc, data, n_bytes);
        return DCI_OK;
}

/* Header and section table. */
static dci_status encode_front(uint32_t kind, uint32_t version, size_t n_parts, const dci_part *parts,
                               const size_t *offsets, unsigned char front[FRONT_BYTES])
{
        size_t n_front = HEADER_BYTES + n_parts * ENTRY_BYTES;
        memset(front, 0, n_front);
        for (size_t i = 0; i < n_parts; i++) {
                unsigned char *entry = front + HEADER_BYTES + i * ENTRY_BYTES;
                uint32_t crc = 0;
                const dci_sink sink = {&crc, add_to_crc};
                DCI_TRY(parts[i].emit(parts[i].ctx, &sink));
                memcpy(entry, parts[i].name, 8);
                /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): there is an offset for each section. */
                dci_store_le64(entry + 8, offsets[i]);
                dci_store_le64(entry + 16, parts[i].n_bytes);
                dci_store_le32(entry + 24, crc);
        }
        memcpy(front, magic, sizeof magic);
        dci_store_le32(front + 8, CONTAINER_VERSION);
        dci_store_le32(front + 12, BYTE_ORDER_MARK);
        dci_store_le32(front + 16, kind);
        dci_store_le32(front + 20, version);
        dci_store_le32(front + 24, (uint32_t)n_parts);
        dci_store_le64(front + 32, offsets[n_parts]);
        dci_store_le32(front + 40, dci_crc32c(0, front + HEADER_BYTES, n_front - HEADER_BYTES));
        dci_store_le32(front + 44, dci_crc32c(0, front, 44));
        return DCI_OK;
}

static dci_status write_all(const dci_sink *sink, uint32_t kind, uint32_t version, size_t n_parts,
                            const dci_part *parts, const size_t *offsets)
{
        static const unsigned char zeros[ALIGNMENT];
        unsigned char front[FRONT_BYTES];
        size_t end = HEADER_BYTES + n_parts * ENTRY_BYTES;
        DCI_TRY(encode_front(kind, version, n_parts, parts, offsets, front));
        DCI_TRY(sink->write(sink->ctx, front, end));
        for (size_t i = 0; i < n_parts; i++) {
                if (offsets[i] > end)
                        DCI_TRY(sink->write(sink->ctx, zeros, offsets[i] - end));
                DCI_TRY(parts[i].emit(parts[i].ctx, sink));
                end = offsets[i] + parts[i].n_bytes;
        }
        return DCI_OK;
}

dci_status dci_file_compose(const dci_sink *sink, uint32_t kind, uint32_t version, size_t n_parts,
                            const dci_part *parts)
{
        if (sink == NULL || sink->write == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", sink == NULL ? "sink" : "sink->write");
        size_t offsets[DCI_FILE_MAX_SECTIONS + 1];
        DCI_TRY(lay_out(n_parts, parts, offsets));
        return write_all(sink, kind, version, n_parts, parts, offsets);
}

/* Small pieces (rows one by one, projections of a chunk) travel together. */
typedef struct buffer {
        dci_sink to;
        unsigned char *bytes;
        size_t n;
} buffer;

static dci_status buffer_flush(buffer *b)
{
        dci_status status = b->n == 0 ? DCI_OK : b->to.write(b->to.ctx, b->bytes, b->n);
        b->n = 0;
        return status;
}

static dci_status buffer_write(void *ctx, const void *data, size_t n_bytes)
{
        buffer *b = ctx;
        DCI_TRY(n_bytes > BUFFER_BYTES - b->n ? buffer_flush(b) : DCI_OK);
        if (n_bytes >= BUFFER_BYTES)
                return b->to.write(b->to.ctx, data, n_bytes);
        memcpy(b->bytes + b->n, data, n_bytes);
        b->n += n_bytes;
        return DCI_OK;
}

dci_status dci_file_compose_buffered(dci_context *context, const dci_sink *sink, uint32_t kind, uint32_t version,
                                     size_t n_parts, const dci_part *parts)
{
        buffer b = {.to = *sink, .bytes = dci_alloc(context, BUFFER_BYTES, 1)};
        if (b.bytes == NULL)
                return DCI_ERR_MEMORY;
        const dci_sink through = {&b, buffer_write};
        dci_status status = dci_file_compose(&through, kind, version, n_parts, parts);
        if (status == DCI_OK)
                status = buffer_flush(&b);
        dci_free(context, b.bytes, BUFFER_BYTES, 1);
        return status;
}

dci_status dci_file_measure(size_t n_parts, const dci_part *parts, size_t *out_bytes)
{
        size_t offsets[DCI_FILE_MAX_SECTIONS + 1];
        DCI_TRY(lay_out(n_parts, parts, offsets));
        *out_bytes = offsets[n_parts];
        return DCI_OK;
}

dci_status dci_file_write(const dci_sink *sink, uint32_t kind, uint32_t version, size_t n_sections,
                          const dci_section *sections)
{
        dci_part parts[DCI_FILE_MAX_SECTIONS];
        DCI_TRY(parts_of(n_sections, sections, parts));
        return dci_file_compose(sink, kind, version, n_sections, parts);
}

dci_status dci_file_save(const char *path, uint32_t kind, uint32_t version, size_t n_sections,
                         const dci_section *sections)
{
        dci_part parts[DCI_FILE_MAX_SECTIONS];
        size_t offsets[DCI_FILE_MAX_SECTIONS + 1];
        DCI_TRY(parts_of(n_sections, sections, parts));
        DCI_TRY(lay_out(n_sections, parts, offsets));
        dci_replacement replacement;
        DCI_TRY(dci_replace_begin(path, &replacement));
        const dci_sink sink = {&replacement, dci_replace_write};
        return dci_replace_end(&replacement, write_all(&sink, kind, version, n_sections, parts, offsets));
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

typedef struct code_text {
        char text[12];
} code_text;

/* A four-character code as its characters, first in the lowest byte, or in hexadecimal if they are not printable. */
static code_text show_code(uint32_t code)
{
        static const char digits[] = "0123456789abcdef";
        code_text shown = {"'    '"}, hex = {"0x"};
        for (int i = 0; i < 4; i++) {
                char c = (char)(code >> 8 * i & 255);
                if (c < ' ' || c > '~')
                        shown.text[0] = '\0';
                else
                        shown.text[1 + i] = c;
        }
        for (int i = 0; i < 8; i++)
                hex.text[2 + i] = digits[code >> (28 - 4 * i) & 15];
        return shown.text[0] == '\0' ? hex : shown;
}

/* The order matters: what makes the rest of the header meaningful comes first, so that the sentence names the cause. */
dci_status dci_file_check_header(const dci_file_input *in, uint32_t kind)
{
        const unsigned char *header = in->bytes;
        if (in->n_bytes < HEADER_BYTES)
                return dci_fail(DCI_ERR_FORMAT, "%s has %zu bytes, a dci file begins with a header of %zu", in->name,
                                in->n_bytes, HEADER_BYTES);
        if (memcmp(header, magic, sizeof magic) != 0)
                return dci_fail(DCI_ERR_FORMAT, "%s begins with %s %s, a dci file with 'dciF' 'ILE\\n'", in->name,
                                show_code(dci_load_le32(header)).text, show_code(dci_load_le32(header + 4)).text);
        uint32_t found = dci_load_le32(header + 12);
        if (found != BYTE_ORDER_MARK)
                return dci_fail(DCI_ERR_FORMAT, "%s has byte-order mark 0x%08" PRIx32 ", wanted 0x%08" PRIx32, in->name,
                                found, BYTE_ORDER_MARK);
        found = dci_load_le32(header + 8);
        if (found != CONTAINER_VERSION)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "%s has container version %" PRIu32 ", this library reads %" PRIu32, in->name, found,
                                CONTAINER_VERSION);
        uint32_t crc = dci_crc32c(0, header, 44);
        found = dci_load_le32(header + 44);
        if (found != crc)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s is damaged: its header has CRC 0x%08" PRIx32 ", recorded is 0x%08" PRIx32, in->name,
                                crc, found);
        found = dci_load_le32(header + 16);
        if (found != kind)
                return dci_fail(DCI_ERR_FORMAT, "%s holds kind %s, wanted %s", in->name, show_code(found).text,
                                show_code(kind).text);
        found = dci_load_le32(header + 28);
        if (found != 0)
                return dci_fail(DCI_ERR_FORMAT, "%s has %" PRIu32 " in a reserved field of its header, wanted 0",
                                in->name, found);
        uint64_t length = dci_load_le64(header + 32);
        if (length != in->n_bytes)
                return dci_fail(DCI_ERR_FORMAT, "%s has %zu bytes, its header says %" PRIu64, in->name, in->n_bytes,
                                length);
        return DCI_OK;
}

static dci_status check_table(const dci_file_input *in, size_t *out_n_sections)
{
        uint32_t n_sections = dci_load_le32(in->bytes + 24);
        if (n_sections > DCI_FILE_MAX_SECTIONS)
                return dci_fail(DCI_ERR_FORMAT, "%s has %" PRIu32 " sections, at most %d are possible", in->name,
                                n_sections, DCI_FILE_MAX_SECTIONS);
        size_t n_table = n_sections * ENTRY_BYTES;
        if (n_table > in->n_bytes - HEADER_BYTES)
                return dci_fail(DCI_ERR_FORMAT, "%s has %zu bytes after its header, its section table needs %zu",
                                in->name, in->n_bytes - HEADER_BYTES, n_table);
        uint32_t crc = dci_crc32c(0, in->bytes + HEADER_BYTES, n_table), recorded = dci_load_le32(in->bytes + 40);
        if (crc != recorded)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s is damaged: its section table has CRC 0x%08" PRIx32 ", recorded is 0x%08" PRIx32,
                                in->name, crc, recorded);
        *out_n_sections = n_sections;
        return DCI_OK;
}

/* Checks entry i and its bytes; *end is where the previous section ends, and moves on. */
static dci_status check_section(const dci_file_input *in, size_t i, dci_section *sections, size_t *end)
{
        const unsigned char *entry = in->bytes + HEADER_BYTES + i * ENTRY_BYTES;
        dci_section *section = &sections[i];
        memcpy(section->name, entry, 8);
        if (!name_is_valid(section->name))
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: the name of section %zu is not 1 to 8 printable characters, zero padded", in->name,
                                i);
        size_t first = first_of_name(sections, sizeof *sections, i);
        if (first < i)
                return dci_fail(DCI_ERR_FORMAT, "%s: sections %zu and %zu are both named '%.8s'", in->name, first, i,
                                section->name);
        uint64_t offset = dci_load_le64(entry + 8), length = dci_load_le64(entry + 16);
        if (dci_load_le32(entry + 28) != 0)
                return dci_fail(DCI_ERR_FORMAT, "%s: section '%.8s' has %" PRIu32 " in a reserved field, wanted 0",
                                in->name, section->name, dci_load_le32(entry + 28));
        if (offset < *end || offset % ALIGNMENT != 0)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: section '%.8s' is at %" PRIu64 ", wanted a multiple of %zu that is at least %zu",
                                in->name, section->name, offset, ALIGNMENT, *end);
        if (offset > in->n_bytes || length > in->n_bytes - offset)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: section '%.8s' has %" PRIu64 " bytes at %" PRIu64 ", the file has %zu", in->name,
                                section->name, length, offset, in->n_bytes);
        for (size_t at = *end; at < offset; at++)
                if (in->bytes[at] != 0)
                        return dci_fail(DCI_ERR_FORMAT,
                                        "%s: byte %zu, in the gap before section '%.8s', is 0x%02x, wanted 0", in->name,
                                        at, section->name, in->bytes[at]);
        section->data = in->bytes + offset;
        section->n_bytes = (size_t)length;
        uint32_t crc = dci_crc32c(0, section->data, section->n_bytes), recorded = dci_load_le32(entry + 24);
        if (crc != recorded)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s is damaged: section '%.8s' has CRC 0x%08" PRIx32 ", recorded is 0x%08" PRIx32,
                                in->name, section->name, crc, recorded);
        *end = (size_t)(offset + length);
        return DCI_OK;
}

dci_status dci_file_check(const dci_file_input *in, uint32_t kind, dci_file *out_file)
{
        dci_file file = {.kind = kind, .n_bytes = in->n_bytes};
        DCI_TRY(dci_file_check_header(in, kind));
        DCI_TRY(check_table(in, &file.n_sections));
        size_t end = HEADER_BYTES + file.n_sections * ENTRY_BYTES;
        for (size_t i = 0; i < file.n_sections; i++)
                DCI_TRY(check_section(in, i, file.sections, &end));
        if (end != in->n_bytes)
                return dci_fail(DCI_ERR_FORMAT, "%s has %zu bytes, its last section ends at %zu", in->name, in->n_bytes,
                                end);
        file.version = dci_load_le32(in->bytes + 20);
        *out_file = file;
        return DCI_OK;
}

dci_status dci_file_parse(const void *memory, size_t n_bytes, uint32_t kind, dci_file *out_file)
{
        if (out_file == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_file is NULL");
        memset(out_file, 0, sizeof *out_file);
        if (memory == NULL)
                return dci_fail(DCI_ERR_INVALID, "memory is NULL");
        const dci_file_input in = {"the file in memory", memory, n_bytes};
        return dci_file_check(&in, kind, out_file);
}

dci_status dci_file_section(const dci_file *file, const char *name, const void **out_data, size_t *out_bytes)
{
        if (file == NULL || name == NULL || out_data == NULL || out_bytes == NULL)
                return dci_fail(DCI_ERR_INVALID, "file, name, out_data or out_bytes is NULL");
        for (size_t i = 0; i < file->n_sections && strlen(name) <= 8; i++)
                if (strncmp(file->sections[i].name, name, 8) == 0) {
                        *out_data = file->sections[i].data;
                        *out_bytes = file->sections[i].n_bytes;
                        return DCI_OK;
                }
        return dci_fail(DCI_ERR_FORMAT, "a file of kind %s has no section '%.32s' among its %zu",
                        show_code(file->kind).text, name, file->n_sections);
}
