/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Products of low-bit codes with queries of bytes: what scans sketches.
 *
 * A block holds the codes of DCI_CODE_ROWS rows in lines of 64 bytes. A line belongs to a unit of 16 rows and gives
 * each of them one 32-bit word: byte i of it holds, from its lowest bits up, the codes for the coordinates i, 4 + i, 8
 * + i, ... of the line. Lines come in pairs, rows 0 to 15 and rows 16 to 31, so a unit's lines are 128 bytes apart.
 *
 * Coordinates are grouped in sections. First those of one width each, 8 bits, 4, 3, 2, then 1: a line has 32 / bits
 * coordinates, and for three bits, 32 coordinates take two lines of their lower two bits, then one of their highest.
 * Then the mixed ones: groups of four coordinates, each of 1 to DCI_CODE_MIXED bits, several of them in a line.
 *
 * A code stands for one of 16 levels, 0 to 127, that the layout gives by width; at 8 bits, and in sections of 4, 2 and
 * 1 bits that are even, for itself, which takes half the instructions; at 5 and 6 bits for itself times 4 and 2, so
 * that a unit of a sum is worth about the same at every width, and a query's few steps go as far. The sum of level
 * times query byte over all coordinates is exact in 32 bits, so it is the same at every instruction set. */
#ifndef DCI_SIMD_CODES_CODES_H
#define DCI_SIMD_CODES_CODES_H

#include "core/internal.h"

#define DCI_CODE_ROWS ((size_t)32)
#define DCI_CODE_UNIT ((size_t)16)
#define DCI_CODE_LINE ((size_t)64)
#define DCI_CODE_QUERIES ((size_t)8)      /* at most, in one pass */
#define DCI_CODE_COORDS ((size_t)1 << 15) /* at most: twice a sum stays below 2^31 */
#define DCI_CODE_GROUP ((size_t)4)
#define DCI_CODE_GROUPS ((size_t)256) /* at most, of mixed widths */
#define DCI_CODE_TABLE 4              /* bits at most of codes that stand for levels of a table */
#define DCI_CODE_MIXED 6              /* bits at most of a group of mixed width */

/* Sections in their order; a section of b <= 4 bits is number 5 - b. */
enum { DCI_CODE_8, DCI_CODE_4, DCI_CODE_3, DCI_CODE_2, DCI_CODE_1, DCI_CODE_WIDTHS };
extern const int dci_code_bits[DCI_CODE_WIDTHS];
extern const size_t dci_code_step[DCI_CODE_WIDTHS]; /* the coordinates of a section are a multiple of this */

/* The place of the codes of a group of mixed width: a line of the section, and bits of its bytes from `shift`. */
typedef struct dci_code_group {
        uint8_t line, shift, bits;
} dci_code_group;

/* Levels of mixed groups beyond the table: codes to the left by so many bits. */
DCI_INLINE int dci_code_rise(int bits)
{
        return bits > DCI_CODE_TABLE && bits <= DCI_CODE_MIXED ? 7 - bits : 0;
}

/* Whether codes stand for themselves, or for themselves times a power of two: at 5, 6 and 8 bits. */
DCI_INLINE bool dci_code_is_wide(int bits)
{
        return bits > DCI_CODE_TABLE;
}

typedef struct dci_code_layout {
        size_t n_coords[DCI_CODE_WIDTHS];
        bool even[DCI_CODE_WIDTHS];
        uint8_t levels[DCI_CODE_WIDTHS][16];
        size_t n_lines,
                n_groups; /* of mixed widths: at most 256 lines (of a unit); groups in ascending order of line */
        dci_code_group groups[DCI_CODE_GROUPS];
        size_t n_all, n_bytes; /* coordinates; bytes of a block */
} dci_code_layout;

/* Fills in n_all and n_bytes. */
void dci_code_layout_finish(dci_code_layout *layout);

/* A learned layout from what a file says: coordinates of 8 bits, lines and groups of mixed widths, each group `apart`
 * bytes from the one before (line, shift, bits). False if there is no such layout of at most `wide` coordinates and
 * most_bytes per block. */
bool dci_code_layout_learned(uint64_t whole, uint64_t n_lines, uint64_t n_groups, const unsigned char *groups,
                             size_t apart, size_t wide, size_t max_bytes, dci_code_layout *out);

/* The codes of a row, a byte per coordinate, into a block, whatever was there; and back. */
void dci_code_put(const dci_code_layout *layout, unsigned char *block, size_t row, const uint8_t *codes);
void dci_code_get(const dci_code_layout *layout, const unsigned char *block, size_t row, uint8_t *codes);
/* The same for `n` rows at a time: words[c / 4 * n + row] has the codes of coordinates c to c + 3 in its bytes, from
 * the lowest; lines are `stride` bytes apart, and a row's words next to the others'. */
void dci_code_put_words(const dci_code_layout *layout, unsigned char *lines, size_t stride, size_t n,
                        const uint32_t *words);
/* Codes of one layout from a row of one block to another's. */
void dci_code_move(const dci_code_layout *layout, const unsigned char *from, size_t row, unsigned char *to,
                   size_t to_row);

/* The offset of a row's word of the first line in a block. */
DCI_INLINE size_t dci_code_word(size_t row)
{
        return row / 16 * DCI_CODE_LINE + row % 16 * 4;
}

/* The first line of unit u = 0 or 1 of a block. */
DCI_INLINE const unsigned char *dci_code_unit(const unsigned char *block, size_t u)
{
        return block + u * DCI_CODE_LINE;
}

/* sums[q * ld + 16 u + r]: row r of unit u with query q. Queries are n_all bytes from -127 to 127, contiguous; 1 to
 * DCI_CODE_QUERIES of them. */
typedef void (*dci_code_sums_fn)(const dci_code_layout *layout, const unsigned char *const *units, size_t n_units,
                                 const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld);

/* What a sum says of a row: out[i] = scales[i] * (half_step * (2 sums[i] - twice_bias)) + fixed. No fused multiply-add:
 * the same bits at every instruction set. */
typedef void (*dci_code_estimate_fn)(const int32_t *sums, const float *scales, size_t n, float half_step,
                                     int32_t twice_bias, float fixed, float *out);

/* Estimates to twice them less the squares: the doubling is exact, so the bits are the same, fused or not. */
typedef void (*dci_code_twice_less_fn)(const float *squares, size_t n, float *estimates);

/* A reader: the functions of one instruction set. */
typedef struct dci_code_reader {
        const char *name;
        dci_code_sums_fn sums;
        dci_code_estimate_fn estimate;
        dci_code_twice_less_fn twice_less;
} dci_code_reader;

extern const dci_code_reader dci_code_reader_scalar;
#if defined(__x86_64__)
extern const dci_code_reader dci_code_reader_avx2, dci_code_reader_avx512, dci_code_reader_vnni;
#elif defined(__aarch64__)
extern const dci_code_reader dci_code_reader_neon, dci_code_reader_dot;
#endif

/* The fastest at the context's level that this CPU has. */
const dci_code_reader *dci_code_reader_for(const dci_context *context);

#endif
