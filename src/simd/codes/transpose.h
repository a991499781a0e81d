/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Codes of rows, as codes/codes.h lays them out, to blocks in which rows and coordinates have changed places: what sums
 * the rows themselves, with weights in the place of a query. */
#ifndef DCI_SIMD_CODES_TRANSPOSE_H
#define DCI_SIMD_CODES_TRANSPOSE_H

#include "core/internal.h"

#include "simd/codes/codes.h"

/* Rows [first, end) of a block of n_lines lines (of a unit), all of one width of 8, 4, 2 or 1 bits, to blocks of 32
 * coordinates each, `apart` bytes from one to the next, whose lines go by rows: row 0 is the first of a line, the first
 * one at `to`. Places of other rows stay as they are; coordinates that the block has no lines for become zeros. */
void dci_code_transpose(int bits, const unsigned char *block, size_t n_lines, size_t first, size_t end,
                        unsigned char *to, size_t n_blocks, size_t apart);

#endif
