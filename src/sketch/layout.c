/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Which coordinates of a learned transform get how many bits: to those where a bit takes away most (transform coding;
 * Huang and Schultheiss 1963), four at a time, and packed into words of four bytes of up to eight bits. */
#include "core/internal.h"

#include <string.h>

#include "sketch/fit.h"

/* What is left of the energy of a normal variable after b bits, with the best levels (Max 1960, table I), at 8 bits
 * even steps. With what even steps leave at 5 to 7 bits codes would be worse (docs/sketches.md). */
static const double left_over[9] = {1.0, 0.3634, 0.1175, 0.03454, 0.009497, 0.0025, 0.00066, 0.00017, 0.00007};

enum { MAX_BITS = DCI_CODE_MIXED, BYTE = 8 };

/* Groups of each width, while they are packed. */
typedef struct counts {
        size_t of[MAX_BITS + 1];
} counts;

static int take(counts *c, int bits)
{
        c->of[bits]--;
        return bits;
}

/* The next group for a word with `room` bits left; 0: none fits. Fours with fours, threes with threes and fives waste
 * least; what they leave twos fill, then ones. */
static int next_width(counts *c, int room, int before)
{
        const int alike = before >= 3 && c->of[before] > 0 ? before : 0;
        if (alike != 0 && alike <= room)
                return take(c, alike);
        if (before == 4 && room == 4 && c->of[4] == 0 && c->of[3] > 0 && c->of[3] % 2 != 0)
                return take(c, 3);
        for (int bits = room < MAX_BITS ? room : MAX_BITS; bits >= 1; bits--)
                if (c->of[bits] > 0 && !(before >= 3 && bits >= 3 && bits != room))
                        return take(c, bits);
        return 0;
}

/* Packs word by word; widths may be NULL. Returns the words it takes. */
static size_t pack(counts c, dci_code_group *groups)
{
        size_t line = 0, n = 0, left = 0;
        for (int bits = 1; bits <= MAX_BITS; bits++)
                left += c.of[bits];
        for (; left > 0; line++)
                for (int shift = 0, before = 0, bits; (bits = next_width(&c, BYTE - shift, before)) != 0;
                     shift += bits) {
                        if (groups != NULL)
                                groups[n] = (dci_code_group){(uint8_t)line, (uint8_t)shift, (uint8_t)bits};
                        n++;
                        left--;
                        before = bits;
                }
        return line;
}

/* Bits by groups, greedily: at most `most` each, `room` in all, and, unless words is 0, only what so many words can
 * hold. closed: groups that take no part. */
static void give(size_t n_groups, const double *energy, int most, size_t room, size_t words, const bool *closed,
                 uint8_t *bits)
{
        bool full[DCI_CODE_GROUPS];
        counts c = {{0}};
        memcpy(full, closed, n_groups * sizeof *full);
        for (size_t used = 0; used < room;) {
                size_t best = n_groups;
                double gain = 0.0;
                for (size_t g = 0; g < n_groups; g++) {
                        const double here = energy[g] * (left_over[bits[g]] - left_over[bits[g] + (bits[g] < BYTE)]);
                        if (!full[g] && bits[g] < most && here > gain) {
                                gain = here;
                                best = g;
                        }
                }
                if (best == n_groups)
                        return;
                if (words > 0) { /* only what can be packed */
                        counts with = c;
                        with.of[bits[best]] -= bits[best] > 0;
                        with.of[bits[best] + 1]++;
                        if (pack(with, NULL) > words) {
                                full[best] = true;
                                continue;
                        }
                        c = with;
                }
                bits[best]++;
                used++;
        }
}

/* Between six bits and eight there is nothing. Who would take seven or more gets eight, a word of its own: with queries
 * to come, the leading coordinates weigh less than with those of the fit, so the energies alone would give them too
 * much (docs/sketches.md). */
#define WHOLE_FROM 7

size_t dci_plan_layout(size_t n_groups, const double *energy, size_t words, int max_bits, dci_code_layout *layout,
                       uint32_t *order)
{
        bool whole[DCI_CODE_GROUPS] = {false};
        uint8_t bits[DCI_CODE_GROUPS] = {0};
        size_t n_whole = 0, n = 0;
        give(n_groups, energy, BYTE, words * BYTE, 0, whole, bits);
        for (size_t g = 0; g < n_groups; g++) {
                whole[g] = bits[g] >= WHOLE_FROM && n_whole < words;
                n_whole += whole[g];
                bits[g] = 0;
        }
        if (n_whole < words)
                give(n_groups, energy, max_bits, (words - n_whole) * BYTE, words - n_whole, whole, bits);
        counts c = {{0}};
        for (size_t g = 0; g < n_groups; g++) {
                if (whole[g])
                        order[n++] = (uint32_t)g;
                else
                        c.of[bits[g]]++;
        }
        c.of[0] = 0;
        layout->n_coords[DCI_CODE_8] = n * DCI_CODE_GROUP;
        layout->n_lines = pack(c, layout->groups);
        for (int w = 1; w <= MAX_BITS; w++)
                layout->n_groups += c.of[w];
        for (size_t i = 0; i < layout->n_groups; i++) { /* widths were dealt out; now to whom */
                size_t g = 0;
                while (whole[g] || bits[g] != layout->groups[i].bits)
                        g++;
                bits[g] = 0;
                order[n++] = (uint32_t)g;
        }
        return n;
}
