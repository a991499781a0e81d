/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Codes of rows: stored in the chunks of the rows, encoded as rows come, with the frames that they were encoded by. */
#ifndef DCI_INDEX_CODES_ROWS_H
#define DCI_INDEX_CODES_ROWS_H

#include "index/view.h"

/* Frames of the codes, and what a writer needs to encode one row. */
typedef struct dci_rows_codes {
        dci_frames frames;
        void *scratch;
        float *wide, *rest; /* dim */
        size_t n_reviewed,
                n_checked;    /* rows when all was last planned, and when it was last asked whether to plan again */
        size_t n_frames;      /* when all was last planned */
        float energy;         /* mean square of the rest of a row, then */
        dci_frames_mark mark; /* before the last dci_rows_follow */
} dci_rows_codes;

/* Gives empty rows codes, as the config says; nothing to do for sketch_bits 0. */
dci_status dci_rows_codes_create(dci_rows *rows, const dci_index_config *config);
void dci_rows_codes_destroy(dci_context *context, dci_rows_codes *codes);
size_t dci_rows_codes_bytes(const dci_rows *rows);

/* Room for the codes of a chunk of `capacity` rows. */
bool dci_chunk_codes_create(const dci_rows *rows, size_t capacity, dci_chunk *chunk);
void dci_chunk_codes_free(const dci_rows *rows, const dci_chunk *chunk);
/* Of the first `used` rows. */
void dci_chunk_codes_copy(const dci_rows *rows, const dci_chunk *from, size_t used, dci_chunk *to);

/* The row in a place relative to a frame: its rest, to `rest`, and its kept coordinates. Returns what codes keep as its square. */
float dci_rows_place(const dci_rows *rows, const dci_chunk *chunk, size_t offset, size_t frame, float *rest,
                     float *kept);
/* The row as floats, under COSINE of length 1. */
void dci_rows_floats(const dci_rows *rows, const dci_chunk *chunk, size_t offset, float *out);
/* Has the place a row, among the first `n` slots? */
bool dci_rows_holds(const dci_rows *rows, const dci_chunk *chunk, size_t slot, size_t offset, size_t n);
/* A row has come to `slot`, unseen by readers or without them: encodes it. */
void dci_rows_encode_one(dci_rows *rows, size_t slot);
/* The same for rows [first, end), shared out. Blocks that hold rows before `first` keep their frame. */
dci_status dci_rows_encode(dci_rows *rows, size_t first, size_t end);
/* Looks at a sample of rows [first, end) of `from` and begins a frame of `rows` if they ask for one. */
dci_status dci_rows_follow(dci_rows *rows, dci_rows *from, size_t first, size_t end);
/* Whether the last dci_rows_follow began a frame. */
bool dci_rows_has_begun(const dci_rows *rows);
/* Without readers: encodes blocks that had no codes for want of a frame that suits their rows, those of the first n slots. */
void dci_rows_encode_raw(dci_rows *rows, size_t n);
/* How many blocks of the first n slots have no codes though they have rows. */
size_t dci_rows_count_raw(const dci_rows *rows, size_t n);
/* How many there may be. */
size_t dci_rows_max_raw(size_t n);
/* Takes the last dci_rows_follow back, whether or not it failed: of rows that do not come after all. Without readers. */
void dci_rows_unfollow(dci_rows *rows);
/* All rows have gone, and nobody reads: what was learned stays, centres go, and those to come find codes as in a new index. */
void dci_rows_codes_restart(dci_rows *rows);
/* Before there is room for rows, n_rows of them: keeps the directions that the codes of other rows keep; then begins with what these have
 * learned. */
dci_status dci_rows_codes_prepare(dci_rows *rows, const dci_rows *from, size_t n_rows);
dci_status dci_rows_codes_inherit(dci_rows *rows, const dci_rows *from);
/* The unit of codes that a slot belongs to. */
DCI_INLINE dci_unit dci_view_unit(const dci_view *view, size_t unit)
{
        const unsigned shift = view->rows->chunk_shift;
        const size_t slot = unit * DCI_CODE_UNIT;
        return (dci_unit){&view->table->chunk[slot >> shift].area, (slot & (((size_t)1 << shift) - 1)) / DCI_CODE_UNIT};
}

#endif
