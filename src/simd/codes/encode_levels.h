/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A part of codes/encode_template.h: products with a matrix, and levels of any widths. Defined before: as there. */
#include "simd/codes/encode.h"

#define PRODUCT_ROWS ((size_t)8)
#define FAR_OFF 0x1p60f /* what is farther is taken for this: its square has to fit */

/* Each sum in ascending order of coordinates. */
static void product(const float *matrix, size_t n, size_t dim, const float *x, float *y)
{
        size_t c = 0;
        for (; c + PRODUCT_ROWS <= n; c += PRODUCT_ROWS) {
                const float *rows = matrix + c * dim;
                F sum[PRODUCT_ROWS];
                UNROLL for (size_t i = 0; i < PRODUCT_ROWS; i++) sum[i] = f_all(0.0f);
                for (size_t p = 0; p < dim; p++) {
                        const F here = f_load(x + p * LANES);
                        UNROLL for (size_t i = 0; i < PRODUCT_ROWS; i++) sum[i] =
                                f_fma(here, f_all(rows[i * dim + p]), sum[i]);
                }
                UNROLL for (size_t i = 0; i < PRODUCT_ROWS; i++) f_store(y + (c + i) * LANES, sum[i]);
        }
        for (; c < n; c++) {
                F sum = f_all(0.0f);
                for (size_t p = 0; p < dim; p++)
                        sum = f_fma(f_load(x + p * LANES), f_all(matrix[c * dim + p]), sum);
                f_store(y + c * LANES, sum);
        }
}

typedef struct coded {
        I code;
        F level;
} coded;

/* The level of a coordinate, around zero in units of levels: in even steps, or, up to 4 bits, on both sides alike: how
 * many limits are below the magnitude. */
DCI_INLINE coded code_of(const dci_code_levels *levels, F x, int bits)
{
        const F zero = f_all(0.0f);
        if (bits == 5 || bits == 6 || bits == 8) {
                const float rise = (float)(1 << dci_code_rise(bits));
                const F most = f_all((float)((1 << bits) - 1)), half = f_all(0.5f * (float)((1 << bits) - 1));
                F at = f_add(f_mul(x, f_all(levels->per_unit[bits] / rise)), half);
                at = f_max(at, zero);
                at = f_pick(f_more(at, most), most, at);
                const I code = i_round(at);
                return (coded){code, f_mul(f_sub(f_from(code), half), f_all(rise))};
        }
        const F magnitude = f_max(x, f_sub(zero, x));
        F level = f_all(levels->least[bits]);
        I m = i_zero();
        for (int i = 1; i < (1 << bits) / 2; i++) {
                const M over = f_more(magnitude, f_all(levels->limits[bits][i]));
                level = f_add(level, f_if(over, f_all(levels->more[bits][i])));
                m = i_add16(m, i_if(over, i_all(1)));
        }
        const M negative = f_more(zero, x);
        m = i_xor(m, i_if(negative, i_all(-1)));
        return (coded){i_and(i_add16(m, i_all((1 << bits) / 2)), i_all(15)),
                       f_pick(negative, f_sub(zero, level), level)};
}

/* Sums on their way, two of each side by side: of z y, of squared levels, and of y^2 or, with a worth, z^2. */
typedef struct level_sums {
        F product[2], level2[2], square[2];
} level_sums;

/* Four coordinates, the first n of which have codes. */
DCI_INLINE I code_group(const dci_code_levels *levels, float *y, size_t ld, F inverse, size_t c, size_t n, int bits,
                        float *z, level_sums *s)
{
        I word = i_zero();
        for (size_t i = 0; i < n; i++) {
                const float worth = levels->worth == NULL ? 1.0f : levels->worth[c + i];
                const F whole = f_load(y + i * ld), x = f_mul(whole, inverse);
                const coded here = code_of(levels, x, bits);
                const F point = f_mul(here.level, f_all(worth)),
                        moved = f_mul(levels->worth == NULL ? x : whole, f_all(worth * levels->per_unit[bits]));
                f_store(y + i * ld, moved);
                f_store(z + i * LANES, point);
                s->product[i % 2] = f_add(s->product[i % 2], f_mul(point, moved));
                s->level2[i % 2] = f_add(s->level2[i % 2], f_mul(here.level, here.level));
                const F other = levels->worth == NULL ? moved : point;
                s->square[i % 2] = f_add(s->square[i % 2], f_mul(other, other));
                word = i_or(word, i_left(here.code, 8 * (int)i));
        }
        return word;
}

/* Coordinates [c, end) of one width; `end` may cut the last four short. */
static void code_run(const dci_code_levels *levels, float *y, size_t ld, F inverse, size_t c, size_t end, int bits,
                     float *z, uint32_t *words, level_sums *s)
{
        for (; c < end; c += 4) {
                const size_t n = end - c < 4 ? end - c : 4;
                I word;
                switch (bits) {
                case 8:
                        word = code_group(levels, y + c * ld, ld, inverse, c, n, 8, z + c * LANES, s);
                        break;
                case 6:
                        word = code_group(levels, y + c * ld, ld, inverse, c, n, 6, z + c * LANES, s);
                        break;
                case 5:
                        word = code_group(levels, y + c * ld, ld, inverse, c, n, 5, z + c * LANES, s);
                        break;
                case 4:
                        word = code_group(levels, y + c * ld, ld, inverse, c, n, 4, z + c * LANES, s);
                        break;
                case 3:
                        word = code_group(levels, y + c * ld, ld, inverse, c, n, 3, z + c * LANES, s);
                        break;
                case 2:
                        word = code_group(levels, y + c * ld, ld, inverse, c, n, 2, z + c * LANES, s);
                        break;
                default:
                        word = code_group(levels, y + c * ld, ld, inverse, c, n, 1, z + c * LANES, s);
                }
                i_store(words + c / 4 * LANES, word);
        }
}

/* All coordinates that have codes; the words of what the layout has beyond them are zeros. */
static void code_all(const dci_code_levels *levels, float *y, size_t ld, F inverse, float *z, uint32_t *words,
                     level_sums *s)
{
        const dci_code_layout *layout = levels->layout;
        size_t c = 0;
        for (int w = 0; w < DCI_CODE_WIDTHS; w++) {
                const size_t end = c + layout->n_coords[w], last = end < levels->n_coded ? end : levels->n_coded;
                if (c < last)
                        code_run(levels, y, ld, inverse, c, last, dci_code_bits[w], z, words, s);
                c = end;
        }
        for (size_t g = 0; g < layout->n_groups; g++, c += DCI_CODE_GROUP)
                code_run(levels, y, ld, inverse, c, c + DCI_CODE_GROUP, layout->groups[g].bits, z, words, s);
        for (c = (levels->n_coded + 3) / 4 * 4; c < layout->n_all; c += 4)
                i_store(words + c / 4 * LANES, i_zero());
}

/* What a scale leaves: squares of coded coordinates, and of those without a code. */
static F left_over(const dci_code_levels *levels, float *y, size_t ld, F scale, const float *z)
{
        F sum[2] = {f_all(0.0f), f_all(0.0f)};
        for (size_t c = 0; c < levels->n_coords; c++) {
                F left = f_load(y + c * ld);
                if (c < levels->n_coded) {
                        left = f_sub(left, f_mul(scale, f_load(z + c * LANES)));
                        f_store(y + c * ld, left);
                }
                sum[c % 2] = f_add(sum[c % 2], f_mul(left, left));
        }
        return f_add(sum[0], sum[1]);
}

/* Lengths from squares; where those vanished or overflowed, from the coordinates again. */
static void lengths_of(const dci_code_levels *levels, const float *y, size_t ld, F squares, float *out)
{
        float square[LANES];
        f_store(square, squares);
        f_store(out, f_sqrt(squares));
        for (size_t r = 0; r < LANES; r++) {
                double sum = 0.0;
                if (square[r] >= MIN_SQUARE && square[r] <= MAX_SQUARE)
                        continue;
                for (size_t c = 0; c < levels->n_coords; c++)
                        sum += (double)y[c * ld + r] * (double)y[c * ld + r];
                out[r] = (float)sqrt(sum);
        }
}

/* --- with a worth ------------------------------------------------------------------------------------------------- */

/* A row whose coordinates are larger than is usual, in units of their deviations, is coded in larger units: what is
 * beyond the last level costs more than steps that are wider (docs/sketches.md). */
static F unit_of(const dci_code_levels *levels, const float *y, size_t ld)
{
        const F zero = f_all(0.0f), most = f_all(-FAR_OFF);
        F sum[2] = {zero, zero};
        for (size_t c = 0; c < levels->n_coded; c++) {
                const F x = f_load(y + c * ld), size = f_max(f_sub(zero, f_max(x, f_sub(zero, x))), most);
                sum[c % 2] = f_add(sum[c % 2], f_mul(size, size));
        }
        const float share = levels->wider * levels->wider / (float)levels->n_coded;
        return f_max(f_sqrt(f_mul(f_add(sum[0], sum[1]), f_all(share))), f_all(1.0f));
}

static void write_worth(const dci_code_levels *levels, float *y, size_t ld, float *z, uint32_t *words,
                        dci_code_written *out)
{
        const F zero = f_all(0.0f), unit = unit_of(levels, y, ld);
        level_sums s = {{zero, zero}, {zero, zero}, {zero, zero}};
        code_all(levels, y, ld, f_div(f_all(1.0f), unit), z, words, &s);
        const F square = f_add(s.square[0], s.square[1]), product = f_add(s.product[0], s.product[1]);
        const F nearest = f_pick(f_more(square, zero), f_div(product, square), zero);
        const F scale = levels->nearest ? nearest : unit, length = f_sqrt(f_add(s.level2[0], s.level2[1]));
        f_store(out->scale, scale);
        f_store(out->reach, f_mul(f_max(scale, f_sub(zero, scale)), length));
        lengths_of(levels, y, ld, left_over(levels, y, ld, scale, z), out->residual);
}

/* Without: of a row's own deviation, and the scale that makes the estimate unbiased. */
static void write_turned(const dci_code_levels *levels, float *y, float *z, uint32_t *words, dci_code_written *out)
{
        const size_t n = levels->n_coords;
        const F zero = f_all(0.0f), root = f_all(sqrtf((float)n));
        float back[LANES];
        const F length = f_sqrt(bring_near(y, n, squares_of(y, n), back)), undo = f_load(back);
        const M some = f_more(f_mul(length, undo), f_all(NOTHING));
        level_sums s = {{zero, zero}, {zero, zero}, {zero, zero}};
        code_all(levels, y, LANES, f_pick(some, f_div(root, length), zero), z, words, &s);
        const F product = f_add(s.product[0], s.product[1]), levels2 = f_add(s.level2[0], s.level2[1]);
        const F square = f_add(s.square[0], s.square[1]);
        const F scale = f_pick(f_more(product, zero), f_div(square, product), zero);
        const F unit = f_mul(f_div(length, root), f_all(levels->unit));
        const F left = f_mul(f_sqrt(left_over(levels, y, LANES, scale, z)), unit);
        f_store(out->scale, f_mul(f_mul(scale, unit), undo));
        f_store(out->residual, f_mul(f_pick(some, left, length), undo));
        f_store(out->reach, f_mul(f_mul(f_mul(scale, unit), f_sqrt(levels2)), undo));
}

static void write_levels(const dci_code_levels *levels, float *y, size_t ld, float *z, uint32_t *words,
                         dci_code_written *out)
{
        if (levels->worth != NULL)
                write_worth(levels, y, ld, z, words, out);
        else
                write_turned(levels, y, z, words, out);
}
