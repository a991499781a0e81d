/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file file.h
 * Indexes as bytes: to a path, to memory, to a stream, and back; or used in place in a mapped file. docs/format.md
 * describes every byte.
 *
 * What a file holds
 *  - The config, the search defaults, the rows as they are stored, their ids, and what was computed from them once
 *    (norms, projections, codes with their centres and what dci_index_fit learned). Directions and rotations come from
 *    the seed. Borrowed rows are saved as copies: what is loaded is OWNED.
 *    What only trees have (promotion_prob to cell_simp_indices, field_of_view) is kept for MDCI alone.
 *  - MDCI: the tree's shape, so pages keep their numbers and versions; its points and means are computed again.
 *  - The same index gives the same bytes. Loaded and saved again it gives the same bytes, too.
 *  - A loaded index answers with the same bits as the one that was saved, at the same instruction set, and goes on
 *    exactly as that would have: ids that add assigns, rows that remain after remove, the c of the MIPS lift. At
 *    another instruction set scores are within the rounding that index.h states, and norms and projections stay those
 *    of the file.
 *  - Files travel between machines. On one whose numbers are big endian, every function here is DCI_ERR_UNSUPPORTED.
 */
#ifndef DCI_FILE_H
#define DCI_FILE_H

#include "dci/base.h"
#include "dci/index.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Saves an index to a file. It is written to the folder of `path`, flushed to the disk and renamed over it: whoever
 * opens `path`, at any moment and after any failure (a full disk, a power cut), finds the old file or the new one,
 * whole. The old file's permission bits are kept. A path that is a directory, a symbolic link or anything but a regular
 * file is refused (pipes and the like take dci_index_save_stream).
 * What is flushed, before the call returns: the new file before it is renamed, the folder after. So after DCI_OK the new
 * file survives a power cut.
 * A process that is killed meanwhile, or a disk that refuses everything from then on, does not remove the file that was
 * being written in that folder, .dci-TARGET-NUMBER.tmp (a checksum of the name in `path`, and 0 to 15, hexadecimal). The
 * next save to the same path does. It knows files of saves that are under way, in any process, by their lock (flock), and
 * leaves them alone; where a file system has no such locks, it removes nothing. Only a network file system whose locks are
 * those of each machine (mounted with nolock) takes a file that another machine is writing for one that was left: there
 * machines must not save to one path at a time, or the other machine's save fails, with the old file in place.
 * At most 16 saves to one path at a time.
 *
 * Errors: DCI_ERR_INVALID, DCI_ERR_IO with the system's words, DCI_ERR_MEMORY (64 KiB are taken), DCI_ERR_LIMIT (see
 * dci_index_load). If only the last flush, that of the folder, fails, the new file is in place and the sentence says
 * so. Thread rule of the three save functions: concurrently with searches; adds, removes, reserves and memory reports
 * wait until the call is over, as it waits for those that came before. So what is written is one state of the index.
 * Cost: O(bytes); rows are read twice, first for their checksums.
 */
DCI_API dci_status dci_index_save(const dci_index *index, const char *path);

/**
 * Saves an index to memory: the bytes that dci_index_save writes.
 *
 * capacity     bytes at `out`; 0 with out NULL asks for the size alone, which costs O(rows).
 * out_bytes    how many bytes the index takes, also when they do not fit.
 *
 * Errors: DCI_ERR_LIMIT when they do not fit (and out is not NULL); nothing was written then. An add between asking for
 * the size and saving may have made it larger: ask again.
 */
DCI_API dci_status dci_index_save_memory(const dci_index *index, size_t capacity, void *out, size_t *out_bytes);

/** Where a stream of bytes goes. Prepare with dci_writer_init. */
typedef struct dci_writer {
        size_t struct_size;
        /** Takes all n_bytes (never 0) and returns 0, or returns another value, which ends the call. */
        int32_t (*write)(void *ctx, const void *data, size_t n_bytes);
        void *ctx;
} dci_writer;
DCI_API dci_status dci_writer_init(dci_writer *writer, size_t struct_size);

/**
 * Saves an index through a callback: the bytes that dci_index_save writes, front to back; small pieces are
 * collected, so that there is about one call per 64 KiB or fewer.
 *
 * The callback runs on this thread. What queues up with adds (see dci_index) waits meanwhile in other threads, so it
 * must not wait for any of that; calls on this index from inside it are DCI_ERR_BUSY.
 * Errors: DCI_ERR_IO when the callback returns a value other than 0, which the sentence names; otherwise as
 * dci_index_save. What was written by then is no use to anyone.
 */
DCI_API dci_status dci_index_save_stream(const dci_index *index, const dci_writer *writer);

/**
 * Makes an index from a file that dci_index_save wrote. The context's instruction set need not be the one it was saved
 * at.
 * out_index    the caller's, to be destroyed; on failure NULL.
 *
 * Errors: DCI_ERR_INVALID (an argument is NULL, the path is no regular file), DCI_ERR_IO, DCI_ERR_FORMAT,
 * DCI_ERR_UNSUPPORTED, DCI_ERR_MEMORY. Nothing is left of a file that was refused.
 * Thread rule: any number of loads at a time; the file may be replaced meanwhile.
 * Cost: O(bytes + rows dim), on the calling thread; nothing is projected again. Ids constructed to collide in a hash
 * table can make it O(rows^2), as they can make dci_index_add.
 *
 * What loading checks: everything, before an index is handed out. Length and CRC-32C of each part, the config as
 * dci_index_create checks it, the length of every array against the numbers of rows and elements, each row as
 * dci_index_add checks it, norms against rows, ids (not negative, distinct, below the next one), projections (finite,
 * of possible size). What is damaged or contradicts itself is DCI_ERR_FORMAT; what a newer version wrote is
 * DCI_ERR_UNSUPPORTED; the sentence says what and where. Not checked is whether projections and codes are those of the
 * rows: wrong ones can cost recall (codes also that of `guarantee`), but no score is ever wrong. Codes of files that
 * 0.1.0 wrote are made again from the rows, which costs O(rows dim) more; COSINE: without what was fitted.
 *
 * Memory that loading takes: in addition to the index itself at most 3 times the bytes that the file really has, and
 * the index at most 16 times those bytes, whatever they claim (an index of one row takes room for 16; from some 16 rows
 * on it is about the file's size, and 16 to 64 bytes per row for the map of ids if they are not 0, 1, 2, ...), and 1
 * MiB, MDCI 5 MiB; with sketch_bits 160 bytes x dim more, and for a file of 0.1.0 with codes 700 bytes x dim and the
 * rows as f32 twice, or 8 MiB where these are more than that. Directions of kind PDCI come on top: at most 64 MiB or 16
 * times the file, whichever is more. An index that has more than that for its few rows (dim times simple indices beyond
 * 2^24) can be neither saved nor loaded, DCI_ERR_LIMIT and DCI_ERR_FORMAT. Nor can one of kind MDCI whose nodes would
 * take more than 4 MiB and more than 12 times the file: long rows that are nodes of many levels, in few pages. Chance
 * hardly makes one: it takes promotions near 0.5, more nodes than top_nodes, rows of some ten thousand elements, and a
 * handful of them.
 */
DCI_API dci_status dci_index_load(dci_context *context, const char *path, dci_index **out_index);

/** The same from n_bytes of memory, which need no alignment and are the caller's again when the call is over. */
DCI_API dci_status dci_index_load_memory(dci_context *context, const void *data, size_t n_bytes, dci_index **out_index);

/** Where a stream of bytes comes from. Prepare with dci_reader_init. */
typedef struct dci_reader {
        size_t struct_size;
        /** Fills out[0 .. n_bytes) (n_bytes never 0) and returns 0, or returns another value, which ends the call. */
        int32_t (*read)(void *ctx, void *out, size_t n_bytes);
        void *ctx;
        size_t n_bytes; /**< length of the whole stream; 0 (default): unknown, the file's own header says it */
} dci_reader;
DCI_API dci_status dci_reader_init(dci_reader *reader, size_t struct_size);

/**
 * The same from a callback. Exactly the file's bytes are asked for, so a longer stream is positioned after them
 * afterwards; with reader->n_bytes given, a file of another length is DCI_ERR_FORMAT. Memory grows with the bytes that
 * have arrived, not with those that were announced. The callback runs on this thread and may use other objects; no lock
 * is held.
 *
 * Errors: DCI_ERR_IO when the callback returns a value other than 0, which the sentence names; otherwise as
 * dci_index_load.
 */
DCI_API dci_status dci_index_load_stream(dci_context *context, const dci_reader *reader, dci_index **out_index);

/**
 * Makes an index that reads its rows, ids, norms, projections and codes where they are in the file: processes that map
 * the same file share one copy of it in memory. Everything is checked now, once, as in dci_index_load. Searches, range
 * searches, reconstruct, ids, saving and setting defaults work as usual and give the same bits; add, remove, reserve
 * and fit are DCI_ERR_UNSUPPORTED.
 *
 * The file must not be written to or shortened while the index exists: results would be wrong and the process could be
 * ended by a signal. Replacing it (as dci_index_save does) or deleting it is allowed; the index keeps what it has
 * mapped.
 * Memory: the map of ids, if they are not 0, 1, 2, ..., directions, the nodes of MDCI, and the codes of a file that 0.1.0
 * wrote; dci_index_memory counts what is not in the file.
 *
 * Errors: as dci_index_load; DCI_ERR_UNSUPPORTED on a system without mapped files.
 * Cost: O(bytes + rows dim), as the whole file is read once to be checked.
 */
DCI_API dci_status dci_index_map(dci_context *context, const char *path, dci_index **out_index);

#ifdef __cplusplus
}
#endif
#endif
