/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The layout of low-bit codes, its portable reader, and which reader is the fastest. */
#include "core/internal.h"

#include <string.h>

#include "simd/codes/dot_loops.h"
#include "simd/cpu.h"

const int dci_code_bits[DCI_CODE_WIDTHS] = {8, 4, 3, 2, 1};
const size_t dci_code_step[DCI_CODE_WIDTHS] = {4, 8, 32, 16, 32};

#define PAIR (2 * DCI_CODE_LINE)
#define EACH 0x01010101u /* the same bit of four bytes */

void dci_code_layout_finish(dci_code_layout *layout)
{
        layout->n_all = layout->n_groups * DCI_CODE_GROUP;
        layout->n_bytes = layout->n_lines * PAIR;
        for (int w = 0; w < DCI_CODE_WIDTHS; w++) {
                layout->n_all += layout->n_coords[w];
                layout->n_bytes += layout->n_coords[w] * (size_t)dci_code_bits[w] * DCI_CODE_ROWS / 8;
        }
}

bool dci_code_layout_learned(uint64_t whole, uint64_t n_lines, uint64_t n_groups, const unsigned char *groups,
                             size_t apart, size_t wide, size_t max_bytes, dci_code_layout *out)
{
        bool good = whole <= wide && whole % DCI_CODE_GROUP == 0 && n_lines <= DCI_CODE_GROUPS;
        good = good && n_groups <= DCI_CODE_GROUPS && whole + n_groups * DCI_CODE_GROUP <= wide;
        memset(out, 0, sizeof *out);
        int line = -1, shift = 8;
        for (size_t g = 0; good && g < n_groups; g++) {
                const unsigned char *group = groups + apart * g;
                if (group[0] != line) {
                        good = group[0] == line + 1;
                        line = group[0];
                        shift = 0;
                }
                good = good && group[1] == shift && group[2] >= 1 && group[2] <= DCI_CODE_MIXED &&
                       shift + group[2] <= 8;
                shift += group[2];
                out->groups[g] = (dci_code_group){group[0], group[1], group[2]};
        }
        if (!good || (uint64_t)(line + 1) != n_lines)
                return false;
        out->n_coords[DCI_CODE_8] = (size_t)whole;
        out->n_lines = (size_t)n_lines;
        out->n_groups = (size_t)n_groups;
        dci_code_layout_finish(out);
        return out->n_bytes <= max_bytes && out->n_all > 0;
}

/* Byte 0 in the lowest bits, on every machine. */
static uint32_t load_word(const unsigned char *p)
{
        return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_word(unsigned char *p, uint32_t word)
{
        p[0] = (unsigned char)word;
        p[1] = (unsigned char)(word >> 8);
        p[2] = (unsigned char)(word >> 16);
        p[3] = (unsigned char)(word >> 24);
}

/* What a line holds of four coordinates: bits [from, from + bits) of their codes, in its bytes from `shift` on. */
typedef struct piece {
        size_t line, coord;
        int shift, bits, from;
} piece;

typedef void (*piece_fn)(void *ctx, const piece *p);

/* A line of `bits` bits each of 32 / bits coordinates. */
static void visit_line(size_t line, size_t coord, int bits, int from, piece_fn fn, void *ctx)
{
        for (int shift = 0; shift < 8; shift += bits)
                fn(ctx, &(piece){line, coord + (size_t)(shift / bits) * 4, shift, bits, from});
}

/* All pieces in the order of their lines. */
static void visit(const dci_code_layout *layout, piece_fn fn, void *ctx)
{
        size_t line = 0, first = 0;
        for (int w = 0; w < DCI_CODE_WIDTHS; w++) {
                const int bits = dci_code_bits[w] == 3 ? 2 : dci_code_bits[w];
                for (size_t c = 0; c < layout->n_coords[w]; c += 32 / (size_t)bits) {
                        visit_line(line++, first + c, bits, 0, fn, ctx);
                        if (w == DCI_CODE_3 && c % 32 == 16)
                                visit_line(line++, first + c - 16, 1, 2, fn, ctx);
                }
                first += layout->n_coords[w];
        }
        for (size_t g = 0; g < layout->n_groups; g++) {
                const dci_code_group *group = &layout->groups[g];
                fn(ctx, &(piece){line + group->line, first + g * DCI_CODE_GROUP, group->shift, group->bits, 0});
        }
}

typedef struct putting {
        unsigned char *words;
        const uint8_t *codes;
} putting;

static void put_piece(void *ctx, const piece *p)
{
        const putting *to = ctx;
        unsigned char *word = to->words + p->line * PAIR;
        const uint32_t mask = ((1u << p->bits) - 1) * EACH;
        const uint32_t before = p->shift == 0 ? 0 : load_word(word); /* the first piece clears the others' */
        store_word(word, before | (load_word(to->codes + p->coord) >> p->from & mask) << p->shift);
}

void dci_code_put(const dci_code_layout *layout, unsigned char *block, size_t row, const uint8_t *codes)
{
        visit(layout, put_piece, &(putting){block + dci_code_word(row), codes});
}

typedef struct putting_words {
        unsigned char *lines;
        size_t stride, n;
        const uint32_t *words;
} putting_words;

static void put_words(void *ctx, const piece *p)
{
        const putting_words *to = ctx;
        const uint32_t mask = ((1u << p->bits) - 1) * EACH, *words = to->words + p->coord / 4 * to->n;
        unsigned char *line = to->lines + p->line * to->stride;
        /* As the writers have them: words of the machine, which a loop takes several at a time. */
        for (size_t r = 0; r < to->n; r++) {
                uint32_t word = 0;
                if (p->shift != 0)
                        memcpy(&word, line + 4 * r, sizeof word);
                word |= (words[r] >> p->from & mask) << p->shift;
                memcpy(line + 4 * r, &word, sizeof word);
        }
}

void dci_code_put_words(const dci_code_layout *layout, unsigned char *lines, size_t stride, size_t n,
                        const uint32_t *words)
{
        visit(layout, put_words, &(putting_words){lines, stride, n, words});
}

typedef struct getting {
        const unsigned char *words;
        uint8_t *codes;
} getting;

static void get_piece(void *ctx, const piece *p)
{
        const getting *from = ctx;
        uint8_t *codes = from->codes + p->coord;
        const uint32_t mask = ((1u << p->bits) - 1) * EACH;
        const uint32_t bits = load_word(from->words + p->line * PAIR) >> p->shift & mask;
        store_word(codes, (p->from == 0 ? 0 : load_word(codes)) | bits << p->from);
}

void dci_code_get(const dci_code_layout *layout, const unsigned char *block, size_t row, uint8_t *codes)
{
        visit(layout, get_piece, &(getting){block + dci_code_word(row), codes});
}

void dci_code_move(const dci_code_layout *layout, const unsigned char *from, size_t row, unsigned char *to,
                   size_t to_row)
{
        from += dci_code_word(row);
        to += dci_code_word(to_row);
        for (size_t at = 0; at < layout->n_bytes; at += PAIR)
                memcpy(to + at, from + at, 4);
}

/* --- the portable reader: a row's codes, then a loop -------------------------------------------------------------- */

typedef struct summing {
        const dci_code_layout *layout;
        const unsigned char *words;
        const int8_t *query;
        int32_t sum;
} summing;

/* Three bits are stored in two pieces: with the first the second is read ahead, and later passed over. */
static void sum_piece(void *ctx, const piece *p)
{
        summing *s = ctx;
        const dci_code_layout *layout = s->layout;
        const size_t three = layout->n_coords[DCI_CODE_8] + layout->n_coords[DCI_CODE_4];
        const size_t in_three = p->coord - three;
        const bool split = p->coord >= three && in_three < layout->n_coords[DCI_CODE_3];
        if (p->from != 0)
                return;
        const unsigned char *word = s->words + p->line * PAIR, *high = NULL;
        if (split)
                high = word + (in_three % 32 < 16 ? 2 : 1) * PAIR;
        const int w = p->bits > DCI_CODE_TABLE ? DCI_CODE_8 : (split ? DCI_CODE_3 : 5 - p->bits);
        const bool mixed = p->coord >= layout->n_all - layout->n_groups * DCI_CODE_GROUP;
        const uint8_t *levels = w == DCI_CODE_8 || (layout->even[w] && !mixed) ? NULL : layout->levels[w];
        for (size_t i = 0; i < 4; i++) {
                unsigned code = (unsigned)word[i] >> p->shift & ((1u << p->bits) - 1);
                if (high != NULL)
                        code |= ((unsigned)high[i] >> (in_three % 32 / 4) & 1u) << 2;
                s->sum += (int32_t)(levels == NULL ? code << dci_code_rise(p->bits) : levels[code]) *
                          s->query[p->coord + i];
        }
}

static void sums_scalar(const dci_code_layout *layout, const unsigned char *const *units, size_t n_units,
                        const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld)
{
        for (size_t q = 0; q < n_queries; q++)
                for (size_t i = 0; i < n_units * DCI_CODE_UNIT; i++) {
                        summing s = {layout, units[i / DCI_CODE_UNIT] + i % DCI_CODE_UNIT * 4,
                                     queries + q * layout->n_all, 0};
                        visit(layout, sum_piece, &s);
                        sums[q * ld + i] = s.sum;
                }
}

const dci_code_reader dci_code_reader_scalar = {"scalar", sums_scalar, estimate, twice_less};

const dci_code_reader *dci_code_reader_for(const dci_context *context)
{
#if defined(__x86_64__)
        if (context->isa >= DCI_ISA_AVX512)
                return dci_cpu_has_vnni() ? &dci_code_reader_vnni : &dci_code_reader_avx512;
        if (context->isa == DCI_ISA_AVX2)
                return &dci_code_reader_avx2;
#elif defined(__aarch64__)
        if (context->isa == DCI_ISA_NEON)
                return dci_cpu_has_dot() ? &dci_code_reader_dot : &dci_code_reader_neon;
#endif
        (void)context;
        return &dci_code_reader_scalar;
}
