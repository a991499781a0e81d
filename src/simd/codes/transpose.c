/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <string.h>

#include "simd/codes/transpose.h"
#include "simd/convert.h"

#define PAIR (2 * DCI_CODE_LINE)
#define CELL ((size_t)16) /* bytes: a word each of four rows, or of four coordinates */
#define QUADS (DCI_CODE_ROWS / 4)
#define MAX_CODES ((size_t)8) /* in a byte */

/* Byte b of word r, and byte r of word b, are those of row r and coordinate b, or the other way about. */
typedef struct cell {
        uint64_t low, high;
} cell;

/* The bytes of a cell, rows and coordinates exchanged. */
DCI_INLINE cell turned(cell c)
{
        const uint64_t low = (c.low ^ c.low >> 24) & 0xff00ff00u, high = (c.high ^ c.high >> 24) & 0xff00ff00u;
        c.low ^= low ^ low << 24;
        c.high ^= high ^ high << 24;
        const uint64_t halves = (c.low >> 16 ^ c.high) & UINT64_C(0x0000ffff0000ffff);
        return (cell){c.low ^ halves << 16, c.high ^ halves};
}

/* The bits `shift` above those of the mask in a and those of the mask in b, exchanged. */
DCI_INLINE void swap_codes(uint64_t *a, uint64_t *b, int shift, uint64_t mask)
{
        const uint64_t other = (*a >> shift ^ *b) & mask;
        *b ^= other;
        *a ^= other << shift;
}

/* One stage of the exchange below, of n cells. */
DCI_INLINE void exchange_by(size_t distance, cell *cells, size_t n, int bits, uint64_t mask)
{
        UNROLL for (size_t g = 0; g < n; g++)
        {
                if ((g & distance) != 0)
                        continue;
                swap_codes(&cells[g].low, &cells[g + distance].low, (int)distance * bits, mask);
                swap_codes(&cells[g].high, &cells[g + distance].high, (int)distance * bits, mask);
        }
}

/* Code k of each byte of cell g becomes code g of cell k. */
DCI_INLINE void exchange(cell *cells, int bits)
{
        const size_t n = 8 / (size_t)bits;
        if (n >= 2)
                exchange_by(n / 2, cells, n, bits, UINT64_C(0x0f0f0f0f0f0f0f0f));
        if (n >= 4)
                exchange_by(n / 4, cells, n, bits, UINT64_C(0x3333333333333333));
        if (n >= 8)
                exchange_by(1, cells, n, bits, UINT64_C(0x5555555555555555));
}

/* The offset of the words of coordinates 4 quad to 4 quad + 3 in a line of rows. */
DCI_INLINE unsigned char *place_of(unsigned char *to, size_t apart, size_t line, size_t quad)
{
        return to + quad / QUADS * apart + line * PAIR + quad % QUADS * CELL;
}

DCI_INLINE void store_cell(unsigned char *to, cell c, uint64_t mask)
{
        cell before;
        if (~mask != 0) {
                memcpy(&before, to, sizeof before);
                c.low = (before.low & ~mask) | (c.low & mask);
                c.high = (before.high & ~mask) | (c.high & mask);
        }
        memcpy(to, &c, sizeof c);
}

/* The bits of rows [first, end) in a word of the line, twice. */
static uint64_t mask_of(int bits, size_t line, size_t first, size_t end)
{
        const size_t per_line = 32 / (size_t)bits;
        uint64_t mask = 0;
        for (size_t r = 0; r < per_line; r++)
                if (line * per_line + r >= first && line * per_line + r < end)
                        mask |= ((UINT64_C(1) << bits) - 1) << (8 * (r % 4) + (size_t)bits * (r / 4));
        return mask | mask << 32;
}

/* A line of rows: one of `bits` that 32 rows take. */
DCI_INLINE void fill_line(int bits, const unsigned char *block, size_t n_lines, size_t line, uint64_t mask,
                          unsigned char *to, size_t n_blocks, size_t apart)
{
        const size_t n = 8 / (size_t)bits;
        cell cells[MAX_CODES];
        for (size_t l = 0; l < n_lines; l++) {
                UNROLL for (size_t g = 0; g < n; g++)
                {
                        const size_t quad = line * n + g;
                        memcpy(&cells[g], block + l * PAIR + quad / 4 * DCI_CODE_LINE + quad % 4 * CELL, CELL);
                }
                exchange(cells, bits);
                UNROLL for (size_t k = 0; k < n; k++)
                        store_cell(place_of(to, apart, line, l * n + k), turned(cells[k]), mask);
        }
        for (size_t quad = n_lines * n; quad < n_blocks * QUADS; quad++)
                store_cell(place_of(to, apart, line, quad), (cell){0, 0}, mask);
}

void dci_code_transpose(int bits, const unsigned char *block, size_t n_lines, size_t first, size_t end,
                        unsigned char *to, size_t n_blocks, size_t apart)
{
        for (size_t line = 0; line < (size_t)bits; line++) {
                const uint64_t mask = mask_of(bits, line, first, end);
                if (mask == 0)
                        continue;
                if (bits == 8)
                        fill_line(8, block, n_lines, line, mask, to, n_blocks, apart);
                else if (bits == 4)
                        fill_line(4, block, n_lines, line, mask, to, n_blocks, apart);
                else if (bits == 2)
                        fill_line(2, block, n_lines, line, mask, to, n_blocks, apart);
                else
                        fill_line(1, block, n_lines, line, mask, to, n_blocks, apart);
        }
}
