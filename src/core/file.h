/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The checked container that every saved object uses: a header, a section table, sections, each with its length and
 * CRC-32C.
 *
 *   offset  bytes  header, all integers little endian
 *   0       8      magic "dciFILE\n"
 *   8       4      container version, 1
 *   12      4      byte-order mark 0x01020304
 *   16      4      object kind (a four-character code), 20: object version
 *   24      4      number of sections, 28: reserved, zero
 *   32      8      length of the whole file
 *   40      4      CRC-32C of the section table, 44: CRC-32C of bytes 0 to 43
 *   48      32 each  section table: name[8] (printable ASCII, zero padded), offset u64, length u64, CRC-32C u32,
 *                    reserved u32 (zero)
 *   then sections, each at a multiple of 64, in table order, gaps zero; the last one ends the file */
#ifndef DCI_CORE_FILE_H
#define DCI_CORE_FILE_H

#include "core/internal.h"

#include <string.h>

#define DCI_FILE_MAX_SECTIONS 64

/* Where bytes go. write transfers everything or returns a status other than DCI_OK. */
typedef struct dci_sink {
        void *ctx;
        dci_status (*write)(void *ctx, const void *data, size_t n_bytes);
} dci_sink;

typedef struct dci_section {
        char name[8];     /* 1 to 8 characters, zero padded */
        const void *data; /* writing: the bytes; reading: into the loaded file */
        size_t n_bytes;
} dci_section;

/* CRC-32C (Castagnoli), continued from `crc` (0 to start). */
uint32_t dci_crc32c(uint32_t crc, const void *data, size_t n_bytes);

/* Writes a container of n_sections sections. Refuses duplicate names, too many sections, overflowing lengths. */
dci_status dci_file_write(const dci_sink *sink, uint32_t kind, uint32_t version, size_t n_sections,
                          const dci_section *sections);

/* A section whose bytes are in pieces: emit writes them to a sink, n_bytes in all, the same each time it is called
 * (first for the checksum, then to be written). */
typedef struct dci_part {
        char name[8];
        size_t n_bytes;
        dci_status (*emit)(const void *ctx, const dci_sink *sink);
        const void *ctx;
} dci_part;

/* dci_file_write of such sections: the same bytes. */
dci_status dci_file_compose(const dci_sink *sink, uint32_t kind, uint32_t version, size_t n_parts,
                            const dci_part *parts);

/* The same through a buffer: pieces of less than 64 KiB reach the sink together. */
dci_status dci_file_compose_buffered(dci_context *context, const dci_sink *sink, uint32_t kind, uint32_t version,
                                     size_t n_parts, const dci_part *parts);

/* How many bytes dci_file_compose writes. */
dci_status dci_file_measure(size_t n_parts, const dci_part *parts, size_t *out_bytes);

/* The same as dci_file_write to a path, through dci_replace_begin and dci_replace_end. */
dci_status dci_file_save(const char *path, uint32_t kind, uint32_t version, size_t n_sections,
                         const dci_section *sections);

/* A loaded container. */
typedef struct dci_file {
        dci_context *context;
        uint32_t kind, version;
        size_t n_bytes; /* of the whole file */
        size_t n_sections;
        dci_section sections[DCI_FILE_MAX_SECTIONS];
        void *owned; /* bytes read from a path or a feed, or mapped; NULL when the memory is the caller's */
        size_t n_owned;
        bool mapped;
} dci_file;

/* Validates everything (magic, order, lengths against the real size, overlaps, alignment, every checksum, zero padding)
 * before handing out a byte. `memory` stays the caller's and must outlive the dci_file; sections are aligned to 64
 * bytes if it is. A container of a newer version is DCI_ERR_UNSUPPORTED, anything else DCI_ERR_FORMAT. On failure
 * *out_file is empty. */
dci_status dci_file_parse(const void *memory, size_t n_bytes, uint32_t kind, dci_file *out_file);

/* Reads a regular file and parses it. The header must agree with the file's size before anything is allocated. */
dci_status dci_file_load(dci_context *context, const char *path, uint32_t kind, dci_file *out_file);

/* The same, but the sections stay in the file, which must not be changed meanwhile (replacing it is allowed). A system
 * that cannot map files is DCI_ERR_UNSUPPORTED. */
dci_status dci_file_map(dci_context *context, const char *path, uint32_t kind, dci_file *out_file);
/* Takes the mapping out of a dci_file and empties that; the caller ends it with dci_file_unmap. */
void *dci_file_release(dci_file *file, size_t *out_bytes);
void dci_file_unmap(void *mapped, size_t n_bytes);

/* Where bytes come from, one after the other. read fills `out` or returns a status other than DCI_OK. */
typedef struct dci_feed {
        void *ctx;
        dci_status (*read)(void *ctx, void *out, size_t n_bytes);
        size_t n_bytes; /* how many there are; 0: what the header says */
} dci_feed;

/* Reads a container, and nothing beyond it, and parses it. Memory grows with what has arrived: 3 times that, at most,
 * and 64 KiB, whatever the header claims. */
dci_status dci_file_receive(dci_context *context, const dci_feed *feed, uint32_t kind, dci_file *out_file);

/* Steps of the three: bytes under examination, and what to call them in messages. */
typedef struct dci_file_input {
        const char *name;
        const unsigned char *bytes;
        size_t n_bytes; /* of the whole file, though the header's check reads the first DCI_FILE_HEADER_BYTES alone */
} dci_file_input;
#define DCI_FILE_HEADER_BYTES ((size_t)48)
dci_status dci_file_check_header(const dci_file_input *in, uint32_t kind);
dci_status dci_file_check(const dci_file_input *in, uint32_t kind, dci_file *out_file);

/* The section of that name, or DCI_ERR_FORMAT naming it. */
dci_status dci_file_section(const dci_file *file, const char *name, const void **out_data, size_t *out_bytes);

/* Gives the memory back and empties `file`; an empty one is allowed. */
void dci_file_free(dci_file *file);

/* --- file_io.c: what containers and .npy files ask of the operating system -------------------------------------- */

/* A regular file opened for reading, from its beginning to its end. */
typedef struct dci_source {
        const char *name; /* for messages: the caller's path, or its last 200 bytes */
        int descriptor;
        size_t n_bytes; /* what the file holds: the bound of every length it claims */
} dci_source;

/* Never waits for a FIFO's other end; anything but a regular file is DCI_ERR_INVALID. */
dci_status dci_source_open(const char *path, dci_source *out_source);

/* The next n_bytes, all of them, or DCI_ERR_FORMAT if the file ends sooner than its size said. */
dci_status dci_source_read(dci_source *source, void *out, size_t n_bytes);
void dci_source_close(dci_source *source);

/* A file that is being written next to the one it will replace. */
typedef struct dci_replacement {
        const char *name;   /* for messages, as in dci_source */
        const char *target; /* last component of the caller's path */
        int directory, descriptor;
        char temporary[32]; /* in the directory of the target; locked while it is being written */
} dci_replacement;

/* Creates the temporary file, with the target's permission bits if there is one. `path` must stay until the end. A
 * target that is a directory, a symbolic link or anything but a regular file is refused. */
dci_status dci_replace_begin(const char *path, dci_replacement *out_replacement);

/* Writes to the temporary file: the `write` of a dci_sink whose ctx is the dci_replacement. */
dci_status dci_replace_write(void *replacement, const void *data, size_t n_bytes);

/* Given DCI_OK: flushes to the disk, renames over the target, flushes the directory. Given another status, or when
 * one of these fails: removes the temporary file and returns the status; the target is as it was. (If only the last
 * flush fails, the new file is in place, whole, and the sentence says that a power cut may still undo it.) */
dci_status dci_replace_end(dci_replacement *replacement, dci_status status);

/* Whether n floats, at any address, hold neither NaN nor infinity. */
bool dci_floats_finite(const void *floats, size_t n);

/* --- integers of the formats ------------------------------------------------------------------------------------ */

DCI_INLINE void dci_store_le32(unsigned char *at, uint32_t value)
{
        for (int i = 0; i < 4; i++)
                at[i] = (unsigned char)(value >> 8 * i);
}

DCI_INLINE void dci_store_le64(unsigned char *at, uint64_t value)
{
        dci_store_le32(at, (uint32_t)value);
        dci_store_le32(at + 4, (uint32_t)(value >> 32));
}

DCI_INLINE uint32_t dci_load_le32(const unsigned char *at)
{
        return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

DCI_INLINE uint64_t dci_load_le64(const unsigned char *at)
{
        return dci_load_le32(at) | (uint64_t)dci_load_le32(at + 4) << 32;
}

DCI_INLINE void dci_store_f64(unsigned char *at, double value)
{
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        dci_store_le64(at, bits);
}

DCI_INLINE double dci_load_f64(const unsigned char *at)
{
        const uint64_t bits = dci_load_le64(at);
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
}

#endif
