/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The reader of low-bit codes, included once by each dot_<isa>.c, which defines before:
 *
 *   V, W                    bytes of some rows' words; sums of 32 bits, one per row
 *   v_load(p) v_mask(byte) v_levels(table of 16 bytes) v_and(a, b) v_or(a, b)
 *   v_right(a, bits)        16-bit lanes to the right: what comes from the neighbour is masked away
 *   v_left(a, bits)         to the left, likewise
 *   v_lookup(levels, a)     the level of each byte, 0 to 15
 *   v_four(p)               four query bytes, for every row
 *   w_zero() w_add(a, b) w_load(p) w_store(p, a)
 *   w_dot(acc, a, q)        acc + sums of four products; a from 0 to 127
 *   w_dot_wide(acc, a, q)   the same for a from 0 to 255
 *   E                       sums of even sections on their way: e_zero() e_dot(acc, a, q) e_flush(sum, acc) = sum + acc
 *   E_ROOM(bits)            lines that fit in one before it is flushed
 *   UNSHIFTED               defined if w_dot_wide takes codes at their place in the byte; then w_right(a, bits), exact
 *   READER, NAME            the reader, and what it is called */
#include "simd/codes/dot_loops.h"

#define PAIR (2 * DCI_CODE_LINE)
#define CHAINS 2 /* sums of one row that run side by side */

#define MAX_SUMS 8 /* of one vector of rows: a query each */

/* Levels and masks of b bits at [b]. */
typedef struct tables {
        V levels[DCI_CODE_TABLE + 1], masks[DCI_CODE_MIXED + 1];
} tables;

typedef struct reader {
        const unsigned char *line; /* of the vector in question */
        const int8_t *queries;
        size_t ld;
} reader;

DCI_INLINE void dot_all(V levels, reader r, size_t c, size_t n_queries, bool wide, size_t chain, W *sums)
{
        UNROLL for (size_t q = 0; q < n_queries; q++)
        {
                W *sum = &sums[n_queries == 1 ? chain % CHAINS : q];
                *sum = wide ? w_dot_wide(*sum, levels, v_four(r.queries + q * r.ld + c))
                            : w_dot(*sum, levels, v_four(r.queries + q * r.ld + c));
        }
}

/* One line: the codes of `bits` bits of 32 / bits coordinates from c on. */
DCI_INLINE void read_line(reader r, size_t c, int bits, V levels, size_t n_queries, W *sums)
{
        const V codes = v_load(r.line), mask = v_mask((1 << bits) - 1);
        UNROLL for (int shift = 0; shift < 8; shift += bits)
        {
                V code = v_and(shift == 0 ? codes : v_right(codes, shift), mask);
                dot_all(v_lookup(levels, code), r, c + (size_t)(shift / bits) * 4, n_queries, false,
                        (size_t)(shift / bits), sums);
        }
}

/* Three bits of 32 coordinates: two lines of two bits, and one of the third. */
DCI_INLINE void read_three(reader r, size_t c, V levels, size_t n_queries, W *sums)
{
        const V high = v_load(r.line + 2 * PAIR), two = v_mask(3), third = v_mask(4);
        UNROLL for (int i = 0; i < 8; i++)
        {
                const V low = v_load(r.line + (size_t)(i / 4) * PAIR);
                V code = v_and(i % 4 == 0 ? low : v_right(low, 2 * (i % 4)), two);
                V bit = v_and(i < 2 ? (i == 0 ? v_left(high, 2) : v_left(v_right(high, 1), 2))
                                    : (i == 2 ? high : v_right(high, i - 2)),
                              third);
                dot_all(v_lookup(levels, v_or(code, bit)), r, c + (size_t)i * 4, n_queries, false, (size_t)i, sums);
        }
}

#ifdef UNSHIFTED
/* One query: codes are not moved to the low bits of their bytes; each place in the byte has a sum of its own. */
DCI_INLINE W read_unshifted(reader r, size_t c, size_t end, int bits)
{
        W sums[8];
        UNROLL for (int p = 0; p < 8 / bits; p++) sums[p] = w_zero();
        for (; c < end; c += 32 / (size_t)bits, r.line += PAIR) {
                const V codes = v_load(r.line);
                UNROLL for (int p = 0; p < 8 / bits; p++)
                {
                        const V code = v_and(codes, v_mask(((1 << bits) - 1) << (p * bits)));
                        sums[p] = w_dot_wide(sums[p], code, v_four(r.queries + c + 4 * (size_t)p));
                }
        }
        UNROLL for (int p = 1; p < 8 / bits; p++) sums[0] = w_add(sums[0], w_right(sums[p], p * bits));
        return sums[0];
}
#endif

/* An even section from coordinate c to `end`. */
DCI_INLINE void read_even(reader r, size_t c, size_t end, int bits, size_t n_queries, W *sums)
{
#ifdef UNSHIFTED
        if (n_queries == 1) {
                sums[0] = w_add(sums[0], read_unshifted(r, c, end, bits));
                return;
        }
#endif
        const V mask = v_mask((1 << bits) - 1);
        while (c < end) {
                E part[MAX_SUMS];
                UNROLL for (size_t q = 0; q < n_queries; q++) part[q] = e_zero();
                for (size_t l = 0; l < E_ROOM(bits) && c < end; l++, c += 32 / (size_t)bits, r.line += PAIR) {
                        const V codes = v_load(r.line);
                        UNROLL for (int p = 0; p < 8 / bits; p++)
                        {
                                const V code = v_and(p == 0 ? codes : v_right(codes, p * bits), mask);
                                UNROLL for (size_t q = 0; q < n_queries; q++) part[q] =
                                        e_dot(part[q], code, v_four(r.queries + q * r.ld + c + 4 * (size_t)p));
                        }
                }
                UNROLL for (size_t q = 0; q < n_queries; q++) sums[q] = e_flush(sums[q], part[q]);
        }
}

/* A section of whole lines. */
DCI_INLINE void read_section(const dci_code_layout *layout, reader *r, size_t *c, int bits, const tables *t,
                             size_t n_queries, W *sums)
{
        const size_t begin = *c, step = 32 / (size_t)bits, end = begin + layout->n_coords[5 - bits];
        if (layout->even[5 - bits])
                read_even(*r, begin, end, bits, n_queries, sums);
        else
                for (size_t at = begin; at < end; at += step)
                        read_line((reader){r->line + (at - begin) / step * PAIR, r->queries, r->ld}, at, bits,
                                  t->levels[bits], n_queries, sums);
        r->line += (end - begin) / step * PAIR;
        *c = end;
}

DCI_INLINE void read_rows(const dci_code_layout *layout, reader r, const tables *t, size_t n_queries, W *sums)
{
        size_t c = 0;
        for (size_t end = layout->n_coords[DCI_CODE_8]; c < end; c += 4, r.line += PAIR)
                dot_all(v_load(r.line), r, c, n_queries, true, c / 4, sums);
        read_section(layout, &r, &c, 4, t, n_queries, sums);
        for (size_t end = c + layout->n_coords[DCI_CODE_3]; c < end; c += 32, r.line += 3 * PAIR)
                read_three(r, c, t->levels[3], n_queries, sums);
        read_section(layout, &r, &c, 2, t, n_queries, sums);
        read_section(layout, &r, &c, 1, t, n_queries, sums);
}

/* What a group of mixed width takes from registers while units pass by. */
typedef struct group_reader {
        V levels, mask;
        size_t line, query; /* bytes from the unit's first line; coordinates from the query's first */
        int shift, rise;    /* rise: 0, or what takes codes to levels without a table */
} group_reader;

DCI_INLINE group_reader begin_group(const dci_code_layout *layout, size_t g, const tables *t)
{
        const dci_code_group group = layout->groups[g];
        const size_t before = layout->n_all - layout->n_groups * DCI_CODE_GROUP;
        const size_t lines = layout->n_bytes / PAIR - layout->n_lines;
        const int rise = dci_code_rise(group.bits);
        return (group_reader){t->levels[rise > 0 ? 0 : group.bits], t->masks[group.bits], (lines + group.line) * PAIR,
                              before + g * DCI_CODE_GROUP,          group.shift,          rise};
}

DCI_INLINE V group_levels(const group_reader *g, const unsigned char *line)
{
        const V codes = v_and(v_right(v_load(line + g->line), g->shift), g->mask);
        return g->rise > 0 ? v_left(codes, g->rise) : v_lookup(g->levels, codes);
}

/* Two groups at a time, so that a sum is read and written half as often; b without a query of its own: one. */
DCI_INLINE void add_groups(const unsigned char *const *units, size_t n_units, group_reader a, group_reader b, bool two,
                           const int8_t *queries, size_t n_all, size_t n_queries, int32_t *out, size_t ld)
{
        for (size_t u = 0; u < n_units; u++)
                for (size_t v = 0; v < DCI_CODE_LINE; v += sizeof(V)) {
                        const V first = group_levels(&a, units[u] + v);
                        const V second = two ? group_levels(&b, units[u] + v) : first;
                        UNROLL for (size_t q = 0; q < n_queries; q++)
                        {
                                int32_t *at = out + q * ld + u * DCI_CODE_UNIT + v / 4;
                                W sum = w_dot(w_load(at), first, v_four(queries + q * n_all + a.query));
                                if (two)
                                        sum = w_dot(sum, second, v_four(queries + q * n_all + b.query));
                                w_store(at, sum);
                        }
                }
}

/* The mixed groups: each passes over all units, so that what it takes stays in registers. */
DCI_INLINE void read_mixed(const dci_code_layout *layout, const unsigned char *const *units, size_t n_units,
                           const tables *t, const int8_t *queries, size_t n_queries, int32_t *out, size_t ld)
{
        size_t g = 0;
        for (; g + 1 < layout->n_groups; g += 2)
                add_groups(units, n_units, begin_group(layout, g, t), begin_group(layout, g + 1, t), true, queries,
                           layout->n_all, n_queries, out, ld);
        if (g < layout->n_groups)
                add_groups(units, n_units, begin_group(layout, g, t), begin_group(layout, g, t), false, queries,
                           layout->n_all, n_queries, out, ld);
}

DCI_INLINE void read_units(const dci_code_layout *layout, const unsigned char *const *units, size_t n_units,
                           const int8_t *queries, size_t n_queries, int32_t *out, size_t ld)
{
        tables t;
        for (int bits = 0; bits <= DCI_CODE_TABLE; bits++) /* 0 is not used */
                t.levels[bits] = v_levels(layout->levels[bits == 0 ? 0 : 5 - bits]);
        for (int bits = 0; bits <= DCI_CODE_MIXED; bits++)
                t.masks[bits] = v_mask((1 << bits) - 1);
        for (size_t u = 0; u < n_units; u++)
                for (size_t v = 0; v < DCI_CODE_LINE; v += sizeof(V)) {
                        reader r = {units[u] + v, queries, layout->n_all};
                        W sums[MAX_SUMS];
                        const size_t n_sums = n_queries == 1 ? CHAINS : n_queries;
                        UNROLL for (size_t s = 0; s < n_sums; s++) sums[s] = w_zero();
                        read_rows(layout, r, &t, n_queries, sums);
                        if (n_queries == 1)
                                sums[0] = w_add(sums[0], sums[1]);
                        UNROLL for (size_t q = 0; q < n_queries; q++)
                                w_store(out + q * ld + u * DCI_CODE_UNIT + v / 4, sums[q]);
                }
        read_mixed(layout, units, n_units, &t, queries, n_queries, out, ld);
}

/* As many queries at once as there are kernels for. */
#ifdef UNSHIFTED
/* One query and one even section: two units side by side, which share the query's bytes and give the sums time. */
DCI_INLINE void read_two(const unsigned char *a, const unsigned char *b, size_t n, int bits, const int8_t *query,
                         int32_t *out)
{
        W sums[2][8];
        UNROLL for (int p = 0; p < 8 / bits; p++) sums[0][p] = sums[1][p] = w_zero();
        for (size_t c = 0; c < n; c += 32 / (size_t)bits, a += PAIR, b += PAIR) {
                const V first = v_load(a), second = v_load(b);
                UNROLL for (int p = 0; p < 8 / bits; p++)
                {
                        const V mask = v_mask(((1 << bits) - 1) << (p * bits)),
                                four = v_four(query + c + 4 * (size_t)p);
                        sums[0][p] = w_dot_wide(sums[0][p], v_and(first, mask), four);
                        sums[1][p] = w_dot_wide(sums[1][p], v_and(second, mask), four);
                }
        }
        for (int u = 0; u < 2; u++) {
                UNROLL for (int p = 1; p < 8 / bits; p++) sums[u][0] = w_add(sums[u][0], w_right(sums[u][p], p * bits));
                w_store(out + (size_t)u * DCI_CODE_UNIT, sums[u][0]);
        }
}

/* As many units as can be read so: pairs of them, if all codes are of one even section. */
static size_t read_pairs(const dci_code_layout *layout, const unsigned char *const *units, size_t n_units,
                         const int8_t *query, int32_t *out)
{
        const size_t n = layout->n_all;
        size_t u = 0;
        if (sizeof(V) != DCI_CODE_LINE)
                return 0;
        for (int bits = 4; bits >= 1; bits /= 2) {
                if (layout->n_coords[5 - bits] != n || !layout->even[5 - bits])
                        continue;
                for (; u + 2 <= n_units; u += 2) {
                        int32_t *to = out + u * DCI_CODE_UNIT;
                        if (bits == 4)
                                read_two(units[u], units[u + 1], n, 4, query, to);
                        else if (bits == 2)
                                read_two(units[u], units[u + 1], n, 2, query, to);
                        else
                                read_two(units[u], units[u + 1], n, 1, query, to);
                }
        }
        return u;
}
#endif

static size_t read_some(const dci_code_layout *layout, const unsigned char *const *units, size_t n_units,
                        const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld)
{
        switch (n_queries) {
        case 8:
                read_units(layout, units, n_units, queries, 8, sums, ld);
                return 8;
        case 7: /* the group of a usual model */
                read_units(layout, units, n_units, queries, 7, sums, ld);
                return 7;
        case 6:
        case 5:
        case 4:
                read_units(layout, units, n_units, queries, 4, sums, ld);
                return 4;
        case 3:
        case 2:
                read_units(layout, units, n_units, queries, 2, sums, ld);
                return 2;
        default:
#ifdef UNSHIFTED
        {
                const size_t done = read_pairs(layout, units, n_units, queries, sums);
                read_units(layout, units + done, n_units - done, queries, 1, sums + done * DCI_CODE_UNIT, ld);
        }
#else
                read_units(layout, units, n_units, queries, 1, sums, ld);
#endif
                return 1;
        }
}

static void sums_of(const dci_code_layout *layout, const unsigned char *const *units, size_t n_units,
                    const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld)
{
        for (size_t q = 0; q < n_queries;)
                q += read_some(layout, units, n_units, queries + q * layout->n_all, n_queries - q, sums + q * ld, ld);
}

const dci_code_reader READER = {NAME, sums_of, estimate, twice_less};
