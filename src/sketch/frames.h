/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What sketches are made of: frames (how rows become codes), code blocks (storage of codes) and coded queries.
 *
 * A frame is a transform with a centre. When rows drift away from the centre, or a transform is learned, another frame
 * begins; codes keep the frame they were made with, which every block of 32 rows names. So no row is encoded twice, and
 * a query is coded once for each transform and has one more number for each frame. The random rotation may have many
 * centres, a learned transform has one.
 *
 * The frames of an index are relative: rows and queries are both taken from the centre, so that what codes and bytes lose
 * does not depend on the distance to the origin, and a few directions in which rows differ most may be kept out of the
 * codes, as floats. Of a row there are then the code of its rest, x - centre less the kept directions, the coordinates in
 * these, and for DISTANCE the square of the rest. dci_coded_rate makes goodness of the estimates. */
#ifndef DCI_SKETCH_FRAMES_H
#define DCI_SKETCH_FRAMES_H

#include "core/internal.h"

#include "sketch/fit.h"

#define DCI_MAX_FRAMES ((size_t)128)
#define DCI_NO_FRAME 255         /* a block without rows */
#define DCI_RAW_FRAME 254        /* relative frames: a block whose rows have no codes, they are scored themselves */
#define DCI_MAX_KEPT ((size_t)8) /* directions */
#define DCI_PENDING ((size_t)31) /* rows at most, between calls, that no decision about the centre has covered */

/* What goodness is, the larger the better. NONE: frames are not relative. DISTANCE: -|q - x|^2. PRODUCT: q . (x - the
 * first centre). */
typedef enum dci_relation { DCI_RELATION_NONE, DCI_RELATION_DISTANCE, DCI_RELATION_PRODUCT } dci_relation;

typedef struct dci_frame {
        dci_coder coder;
        float length;     /* of the centre */
        float energy;     /* relative: mean square of the rest of the rows that it was begun for */
        size_t transform; /* number of the first frame with this transform */
        size_t n_bytes;   /* of this struct and the memory that follows it */
} dci_frame;

/* Readers may use frames below n while one writer adds more; frames do not move, and are freed without readers only. */
typedef struct dci_frames {
        dci_context *context;
        const dci_code_reader *reader;
        const dci_code_writer *writer;
        size_t dim;
        int32_t kind, bits; /* of frames that are not learned */
        bool centred;       /* the centre follows the rows */
        uint64_t seed;
        /* Relative frames; a change of the directions is a change of all frames and codes. */
        dci_relation relation;
        size_t n_kept;
        float *kept;        /* n_kept x dim, orthonormal */
        float *origin;      /* dim zeros: the centre of rows that are relative already */
        size_t block_bytes; /* from one block to the next: room for either layout */
        size_t max_coords;  /* of any layout */
        atomic_size_t n;
        dci_frame *frame[DCI_MAX_FRAMES];
        /* Writers only: rows that no decision about the centre has covered yet. */
        size_t n_pending;
        double *pending_sum, pending_square;
} dci_frames;

/* Without frames yet. bits 1, 2, 3, 4 or 8. */
dci_status dci_frames_init(dci_context *context, int32_t kind, size_t dim, int32_t bits, bool centred, uint64_t seed,
                           dci_frames *out);
void dci_frames_destroy(dci_frames *frames);
size_t dci_frames_bytes(const dci_frames *frames);

/* Makes frames that have none yet relative, with directions (n_kept x dim, orthonormal) that are kept. */
dci_status dci_frames_relate(dci_frames *frames, dci_relation relation, size_t n_kept, const float *kept);
/* A row less its kept coordinates, which are its products with the directions. Returns the square of what is left. */
float dci_frames_take_kept(const dci_frames *frames, float *rest, float *kept);
/* What a row is relative to a frame: its rest, to `rest`, and the coordinates in the kept directions. Returns the square
 * of the rest. The row is multiplied with `scale` first; it may be `rest` itself. */
float dci_frames_place(const dci_frames *frames, size_t f, const float *row, float scale, float *rest, float *kept);

/* Begins a frame; centre NULL: the origin. When there are too many, the last one goes on. */
dci_status dci_frames_begin(dci_frames *frames, const float *centre);
/* Begins a frame that was learned; DCI_ERR_LIMIT when there are too many. centre: of relative frames, whose moments are
 * those of rests; else NULL, the mean of the rows. */
dci_status dci_frames_learn(dci_frames *frames, const dci_moments *rows, const dci_moments *queries,
                            const float *centre);
/* A learned frame from another's parts (floats, at any address): layout, centre, worth, to and from of dci_coder. */
dci_status dci_frames_restore(dci_frames *frames, const dci_code_layout *layout, const void *centre, const void *worth,
                              const void *to, const void *from);
/* What frames of these rows take for a block. */
size_t dci_frames_block_bytes(size_t dim, int32_t bits);

/* So many rows will be noted before the next decision: enough of them decide alone, whatever rows were pending. */
void dci_frames_expect(dci_frames *frames, size_t n);
/* Takes note of a row to come. Relative frames: times `scale`; rest: room for dim floats. */
void dci_frames_note(dci_frames *frames, const float *row, float scale, float *rest);
/* Begins a frame if the rows that were noted since the last decision are far from the last centre. There is a frame
 * afterwards, unless frames are relative and too few rows have come to say where. */
dci_status dci_frames_follow(dci_frames *frames);

/* The last n rows are gone: as many of those pending have no say any more. */
void dci_frames_drop(dci_frames *frames, size_t n);
/* No block names a frame from number n_used on, and nobody reads: frees them, but the last if rows to come begin with
 * it: while others are used, or where no rows decide about it (it was learned, or its centre is fixed). */
void dci_frames_cut(dci_frames *frames, size_t n_used);

/* No frames, and no rows pending, without readers. */
void dci_frames_clear(dci_frames *frames);
/* The first of two frames goes, which nobody has used yet. */
void dci_frames_cut_first(dci_frames *frames);

/* What dci_frames_note and dci_frames_follow change, to go back to when a call fails. */
typedef struct dci_frames_mark {
        size_t n, n_pending;
        double *pending_sum, pending_square;
} dci_frames_mark;

/* memory: dim doubles, the caller's. */
void dci_frames_remember(const dci_frames *frames, double *memory, dci_frames_mark *out);
/* Frames that were begun since are freed: no block may name them any more. */
void dci_frames_rewind(dci_frames *frames, const dci_frames_mark *mark);

/* The frame that new blocks get. */
DCI_INLINE size_t dci_frames_last(const dci_frames *frames)
{
        return atomic_load_explicit(&frames->n, memory_order_acquire) - 1;
}

/* --- code blocks -------------------------------------------------------------------------------------------------- */

typedef struct dci_code_block {
        unsigned char *blocks; /* block_bytes apart, at a cache line */
        float *scales, *residuals;
        float *squares;  /* DISTANCE: of the rests; else NULL */
        float *kept;     /* [block][direction][row of the block]; NULL without directions */
        float *reach;    /* by block: the largest */
        uint8_t *frames; /* by block */
} dci_code_block;

/* Bytes for the codes of n rows, and their parts in that memory (aligned to a cache line). */
size_t dci_code_block_bytes(const dci_frames *frames, size_t n_rows);
void dci_code_block_place(const dci_frames *frames, size_t n_rows, void *memory, dci_code_block *out);
/* The blocks of the first n rows. */
void dci_code_block_copy(const dci_frames *frames, const dci_code_block *from, size_t n_rows, dci_code_block *to);
/* Blocks without rows. */
void dci_code_block_clear(const dci_frames *frames, size_t first_block, size_t n_blocks, dci_code_block *codes);

/* The coordinate of a row in a kept direction. */
DCI_INLINE float *dci_code_block_kept(const dci_frames *frames, const dci_code_block *codes, size_t at, size_t i)
{
        return &codes->kept[(at / DCI_CODE_ROWS * frames->n_kept + i) * DCI_CODE_ROWS + at % DCI_CODE_ROWS];
}

/* Bytes of scratch for queries and for decoding, and for encoding: one row, or any number. */
size_t dci_frames_scratch_bytes(const dci_frames *frames);
size_t dci_frames_encode_bytes(const dci_frames *frames, bool one);
/* Encodes rows into their places of a block that has a frame; NULL: none, and what is there stays. */
void dci_code_block_encode_rows(const dci_frames *frames, dci_code_block *codes, size_t block,
                                const float *const rows[DCI_CODE_ROWS], void *scratch);
/* One row. */
void dci_code_block_encode(const dci_frames *frames, dci_code_block *codes, size_t at, const float *row, void *scratch);
/* Copies codes between places whose blocks have the same frame. */
void dci_code_block_move(const dci_frames *frames, const dci_code_block *from, size_t at, dci_code_block *to,
                         size_t to_at);

/* --- queries ------------------------------------------------------------------------------------------------------ */

/* Up to DCI_CODE_QUERIES queries, coded for every frame. */
typedef struct dci_coded {
        size_t n, n_frames;
        size_t first, stride;          /* the first that is meant, and how many were coded */
        int8_t *bytes[DCI_MAX_FRAMES]; /* stride x n_all; the same for frames that share them */
        dci_coded_query *queries;      /* [frame][query] */
        float *kept;                   /* [frame][query][direction] */
} dci_coded;

size_t dci_coded_bytes(const dci_frames *frames, size_t n_frames, size_t n_queries);
/* scales: by query, what relative frames multiply it with (0: all rows are as good), or NULL. */
void dci_coded_make(const dci_frames *frames, size_t n_frames, const float *queries, size_t ld, const float *scales,
                    size_t n_queries, void *memory, void *scratch, dci_coded *out);

/* One of the queries. */
DCI_INLINE dci_coded dci_coded_one(const dci_coded *coded, size_t query)
{
        dci_coded one = *coded;
        one.n = 1;
        one.first = coded->first + query;
        return one;
}

DCI_INLINE const dci_coded_query *dci_coded_at(const dci_coded *coded, size_t frame, size_t query)
{
        return &coded->queries[frame * coded->stride + coded->first + query];
}

/* A unit of 16 rows. */
typedef struct dci_unit {
        const dci_code_block *area;
        size_t unit;
} dci_unit;
#define DCI_SCAN_UNITS ((size_t)16)
#define DCI_SCAN_ROWS (DCI_SCAN_UNITS * DCI_CODE_UNIT)

/* out[q * DCI_SCAN_ROWS + 16 u + r]: estimates of the rows of up to DCI_SCAN_UNITS units, all of which have frames.
 * Returns whether some have no codes; those are zeros. */
bool dci_coded_estimate(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units,
                        float *out);

/* PRODUCT: the product of a query with the first centre, which goodness is less by. Else 0. */
double dci_coded_base(const dci_frames *frames, size_t n_frames, const float *query);
/* Relative frames: estimates, in their places, become goodness. Nothing happens to those of blocks without codes. */
void dci_coded_rate(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units,
                    float *out);

/* dci_coded_estimate for units that follow one another. */
bool dci_coded_estimate_run(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units,
                            float *out);

/* How far estimates of one query may err (relative frames: goodness, and the canonical score of the row), in the same
 * places: for certain, or with a probability (random rotation). Infinity for blocks without codes. */
void dci_coded_bound(const dci_frames *frames, const dci_coded *coded, size_t query, const dci_unit *units,
                     size_t n_units, double probability, float *out);

/* The share of the certain bound that holds with a probability, for one row and one query under a random rotation. */
double dci_bound_share(size_t dim, double probability);

#endif
