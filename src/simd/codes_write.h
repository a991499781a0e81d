/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Rows of floats to low-bit codes in even steps, several rows at a time: the counterpart of the readers in codes.h.
 *
 * Every row has a lane of the vectors, coordinates follow one another, so that neither a rotation nor a sum goes across lanes, and
 * what comes out is a line of the codes as it lies in memory. Only additions, products, quotients and roots that are rounded once,
 * in a fixed order for each row, and whole numbers: the same bits at every instruction set, and whatever rows lie beside.
 */
#ifndef DCI_SIMD_CODES_WRITE_H
#define DCI_SIMD_CODES_WRITE_H

#include "core/internal.h"

#include "simd/codes.h"

#define DCI_CODE_STRETCHES ((size_t)4)
#define DCI_CODE_LANES ((size_t)16) /* at most */

/* What rows have in common: y is a row less its centre, rotated; codes of y / step, the step being the row's own. */
typedef struct dci_code_even {
        size_t dim, part; /* part, signs: as in sketch/rotate.h; signs NULL: nothing is rotated */
        const float *centre, *signs;
        size_t n_rounds;
        int bits; /* 4, 2 or 1 */
        /* Codes are chosen from y as whole numbers, y times spread / |y|, which are below 2^15; the steps that a row may choose from
         * are then 2^16 / inverse. At one bit there is nothing to choose. */
        float spread;
        uint16_t inverse[DCI_CODE_STRETCHES];
} dci_code_even;

/* z: levels of a row in steps around zero. scale = |y|^2 / (y . z); residual = |y - scale z|; reach = scale |z|. */
typedef struct dci_code_written {
        float scale[DCI_CODE_LANES], residual[DCI_CODE_LANES], reach[DCI_CODE_LANES];
} dci_code_written;

/* `lanes` rows to the words of as many rows of a unit, `stride` bytes from a line to the next. scratch: dci_code_write_bytes. */
typedef void (*dci_code_write_fn)(const dci_code_even *even, const float *const *rows, void *scratch,
                                  unsigned char *lines, size_t stride, dci_code_written *out);

/* Adds n coordinates to sums and returns the sum of their squares, in an order of its own. */
typedef double (*dci_code_note_fn)(const float *row, size_t n, double *sums);

/* A writer: the functions of one instruction set. */
typedef struct dci_code_writer {
        size_t lanes;
        dci_code_write_fn even;
        dci_code_note_fn note;
} dci_code_writer;

extern const dci_code_writer dci_code_writer_portable;
#if defined(__x86_64__)
extern const dci_code_writer dci_code_writer_sse2, dci_code_writer_avx2, dci_code_writer_avx512;
#elif defined(__aarch64__)
extern const dci_code_writer dci_code_writer_neon;
#endif

size_t dci_code_write_bytes(size_t dim);

/* The fastest at the context's level for so many rows. */
const dci_code_writer *dci_code_writer_for(const dci_context *context, size_t n_rows);

#endif
