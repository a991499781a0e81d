/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Products of low-bit codes with queries of bytes: what scans sketches.
 *
 * A block holds the codes of DCI_CODE_ROWS rows in lines of 64 bytes. A line belongs to 16 of the rows and to 32 / bits consecutive
 * coordinates: byte 4 r + i holds, from its lowest bits up, the codes of row r for the coordinates i, 4 + i, 8 + i, ... of the line,
 * so a row's part of a line is one 32-bit word. Lines come in pairs, rows 0 to 15 and rows 16 to 31. Coordinates lie in sections of
 * one width each, 8 bits, 4, 3, 2, then 1. For three bits, 32 coordinates take two pairs of lines of their lower two bits, then one
 * pair of their highest.
 *
 * A code stands for one of 16 levels, 0 to 127, that the layout gives by width; at 8 bits for itself. The sum of level times query
 * byte over all coordinates is exact in 32 bits, so it is the same at every instruction set.
 */
#ifndef DCI_SIMD_CODES_H
#define DCI_SIMD_CODES_H

#include "core/internal.h"

#define DCI_CODE_ROWS ((size_t)32)
#define DCI_CODE_LINE ((size_t)64)
#define DCI_CODE_QUERIES ((size_t)8)      /* at most, in one pass */
#define DCI_CODE_COORDS ((size_t)1 << 15) /* at most: twice a sum stays below 2^31 */

/* Sections in their order. */
enum { DCI_CODE_8, DCI_CODE_4, DCI_CODE_3, DCI_CODE_2, DCI_CODE_1, DCI_CODE_WIDTHS };
extern const int dci_code_bits[DCI_CODE_WIDTHS];
extern const size_t dci_code_step[DCI_CODE_WIDTHS]; /* the coordinates of a section are a multiple of this */

typedef struct dci_code_layout {
        size_t n_coords[DCI_CODE_WIDTHS];
        uint8_t levels[DCI_CODE_WIDTHS][16];
        size_t n_all, n_bytes; /* coordinates; bytes of a block */
} dci_code_layout;

/* Fills in n_all and n_bytes. */
void dci_code_layout_finish(dci_code_layout *layout);

/* The codes of a row, a byte per coordinate, into a block, whatever was there; and back. */
void dci_code_put(const dci_code_layout *layout, unsigned char *block, size_t row, const uint8_t *codes);
void dci_code_get(const dci_code_layout *layout, const unsigned char *block, size_t row, uint8_t *codes);

/* sums[q * ld + 32 b + r]: row r of block b with query q. Blocks are `stride` bytes apart, queries n_all bytes from -127 to 127,
 * one behind the other; 1 to DCI_CODE_QUERIES of them. */
typedef void (*dci_code_sums_fn)(const dci_code_layout *layout, const unsigned char *blocks, size_t stride,
                                 size_t n_blocks, const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld);

void dci_code_sums_scalar(const dci_code_layout *layout, const unsigned char *blocks, size_t stride, size_t n_blocks,
                          const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld);
#if defined(__x86_64__)
void dci_code_sums_avx2(const dci_code_layout *layout, const unsigned char *blocks, size_t stride, size_t n_blocks,
                        const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld);
void dci_code_sums_avx512(const dci_code_layout *layout, const unsigned char *blocks, size_t stride, size_t n_blocks,
                          const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld);
void dci_code_sums_vnni(const dci_code_layout *layout, const unsigned char *blocks, size_t stride, size_t n_blocks,
                        const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld);
#endif

/* The fastest at the context's level that this CPU has, and its name. */
dci_code_sums_fn dci_code_sums_for(const dci_context *context, const char **out_name);

#endif
