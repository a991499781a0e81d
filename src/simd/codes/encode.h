/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows of floats to low-bit codes in even steps, several rows at a time: the counterpart of the readers in
 * codes/codes.h.
 *
 * Every row has a lane of the vectors, coordinates follow one another, so that neither a rotation nor a sum goes across
 * lanes, and what comes out is a line of the codes as it is stored. Only additions, products, quotients and roots that
 * are rounded once, in a fixed order for each row, and whole numbers: the same bits at every instruction set, and
 * whatever the neighbouring rows are. */
#ifndef DCI_SIMD_CODES_ENCODE_H
#define DCI_SIMD_CODES_ENCODE_H

#include "core/internal.h"

#include "simd/codes/codes.h"

#define DCI_CODE_STRETCHES ((size_t)4)
#define DCI_CODE_LANES ((size_t)16) /* at most */

/* How rows become coordinates: less their centre, and rotated. */
typedef struct dci_code_transpose_block {
        size_t dim, part; /* part, signs: as in sketch/rotate.h; signs NULL: nothing is rotated */
        const float *centre, *signs;
        size_t n_rounds;
} dci_code_transpose_block;

/* Even steps: codes of y / step, the step being the row's own. */
typedef struct dci_code_even {
        dci_code_transpose_block turn;
        int bits; /* 4, 2 or 1 */
        /* Codes are chosen from y as whole numbers, y times spread / |y|, which are below 2^15; the steps that a row
         * may choose from are then 2^16 / inverse. At one bit there is nothing to choose. */
        float spread;
        uint16_t inverse[DCI_CODE_STRETCHES];
} dci_code_even;

/* Levels of any kind, by width; x: coordinates in units of their deviations. */
typedef struct dci_code_levels {
        const dci_code_layout *layout;
        size_t n_coords, n_coded; /* of y; that have codes */
        const float *worth;       /* a unit of a level in y, by coordinate; NULL: 1, and a row's deviation is its own */
        bool nearest;             /* with a worth: the scale brings levels nearest to y; else it is the row's unit */
        float wider; /* with a worth: a row's unit is so many times the mean size of its coordinates, 1 at least */
        float per_unit[9]; /* a deviation in units of levels, by bits */
        float unit;        /* without a worth: that of a level, in deviations */
        /* To 4 bits: the magnitudes that part two levels, from the least; the least level; what each limit adds. */
        float limits[5][8], least[5], more[5][8];
} dci_code_levels;

/* z: levels of a row around zero; y, if it has a worth, in units of levels. scale = |y|^2 / (y . z), or with a worth (y
 * . z) / |z|^2 or the row's unit; residual = |y - scale z|; reach = |scale| times the length of the levels. */
typedef struct dci_code_written {
        float scale[DCI_CODE_LANES], residual[DCI_CODE_LANES], reach[DCI_CODE_LANES];
} dci_code_written;

/* `lanes` rows to coordinates, less their centre and rotated: y[j * ld + row], and zeros up to a multiple of `lanes` of
 * them. With signs, ld is `lanes`. */
typedef void (*dci_code_transpose_fn)(const dci_code_transpose_block *turn, const float *const *rows, float *y,
                                      size_t ld);

/* y[c * lanes + row] = matrix[c] . x[row], in the order of the kernels' products. */
typedef void (*dci_code_product_fn)(const float *matrix, size_t n, size_t dim, const float *x, float *y);

/* `lanes` rows to the words of as many rows of a unit, `stride` bytes from a line to the next. scratch: `lanes` times 6
 * bytes for each coordinate of a multiple of `lanes`. */
typedef void (*dci_code_even_fn)(const dci_code_even *even, const float *const *rows, void *scratch,
                                 unsigned char *lines, size_t stride, dci_code_written *out);

/* One row, of which y is there already (room for a multiple of 8; overwritten), the same bits: its words, `stride`
 * bytes from one to the next. whole: room for as many words as y has floats. */
typedef void (*dci_code_one_fn)(const dci_code_even *even, float *y, uint32_t *whole, unsigned char *words,
                                size_t stride, dci_code_written *out);

/* Coordinates y (which are overwritten) of `lanes` rows to codes: words[c / 4 * lanes + row] has those of coordinates c
 * to c + 3 in its bytes, from the lowest; all of the layout's. z: room for n_coded, in fours, times `lanes` floats.
 * Without a worth, ld is `lanes`. */
typedef void (*dci_code_levels_fn)(const dci_code_levels *levels, float *y, size_t ld, float *z, uint32_t *words,
                                   dci_code_written *out);

/* Adds n coordinates to sums and returns the sum of their squares, in an order of its own. */
typedef double (*dci_code_note_fn)(const float *row, size_t n, double *sums);

/* A writer: the functions of one instruction set. */
typedef struct dci_code_writer {
        size_t lanes;
        dci_code_transpose_fn turn;
        dci_code_product_fn product;
        dci_code_even_fn even;
        dci_code_one_fn one; /* NULL: dci_code_writer_one has it */
        dci_code_levels_fn levels;
        dci_code_note_fn note;
} dci_code_writer;

extern const dci_code_writer dci_code_writer_portable;
#if defined(__x86_64__)
extern const dci_code_writer dci_code_writer_sse2, dci_code_writer_avx2, dci_code_writer_avx512;
#elif defined(__aarch64__)
extern const dci_code_writer dci_code_writer_neon;
#endif

/* The writer with `one`, and the fastest at the context's level for so many rows. */
const dci_code_writer *dci_code_writer_one(const dci_context *context);
const dci_code_writer *dci_code_writer_for(const dci_context *context, size_t n_rows);

#endif
