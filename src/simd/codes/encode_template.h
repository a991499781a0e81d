/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The writer of low-bit codes, included once by each encode_<isa>.c, which defines before:
 *
 *   LANES, F, I, M          rows at a time; so many floats; words of 32 bits, or pairs of 16; a choice for each lane
 *   RADIX                   2^RADIX vectors stay in registers
 *   f_load(p) f_store(p, a) f_all(x) f_add(a, b) f_sub(a, b) f_mul(a, b) f_div(a, b) f_sqrt(a) f_max(a, b)
 *   f_transpose(rows)       LANES vectors, in place
 *   f_more(a, b)            a > b, an M; f_pick(m, a, b) i_pick(m, a, b): a where true; f_if(m, a) i_if(m, a): else 0
 *   f_fma(a, b, c)          a * b + c, as the kernels have it
 *   i_zero() i_load(p) i_store(p, a) i_all(x) i_and(a, b) i_or(a, b) i_xor(a, b) i_left(a, bits)
 *   i_round(F)              to the nearest word, even; f_from(I) and back
 *   i_pair(a, b)            the lower half of a's words, that of b's above; i_low(a) i_high(a): one of them as a word
 *   i_all16(x) i_add16(a, b) i_abs16(a) i_min16(a, b) i_sign16(a): -1 where negative
 *   i_times16(a, b)         a b / 2^16, rounded down; both from 0 to 32767
 *   i_dot(acc, a, b)        acc + the sum of both products
 *   WRITER                  the writer
 *   ONE                     with LANES 4: defined if it also writes rows one by one */
#include <math.h>
#include <string.h>

#include "simd/codes/encode.h"

#define WORD ((size_t)4) /* bytes of a row in a line */

/* Squares between these are exact enough in binary32; below they may have vanished, above, overflowed. */
#define MIN_SQUARE 0x1p-80f
#define MAX_SQUARE 0x1p100f
/* What is shorter is taken for nothing: its inverse would overflow. */
#define NOTHING 0x1p-110f

DCI_INLINE F some_of(const float *p, size_t n)
{
        float some[LANES] = {0.0f};
        memcpy(some, p, n * sizeof *some);
        return f_load(some);
}

/* Rows less their centre, coordinate by coordinate; zeros after the last up to a multiple of LANES. */
static void gather(const dci_code_transpose_block *turn, const float *const *rows, float *y, size_t ld)
{
        size_t c = 0;
        for (; c + LANES <= turn->dim; c += LANES) {
                const F centre = f_load(turn->centre + c);
                F part[LANES];
                UNROLL for (size_t r = 0; r < LANES; r++) part[r] = f_sub(f_load(rows[r] + c), centre);
                f_transpose(part);
                UNROLL for (size_t r = 0; r < LANES; r++) f_store(y + (c + r) * ld, part[r]);
        }
        if (c < turn->dim) {
                const size_t n = turn->dim - c;
                F part[LANES];
                for (size_t r = 0; r < LANES; r++)
                        part[r] = f_sub(some_of(rows[r] + c, n), some_of(turn->centre + c, n));
                f_transpose(part);
                for (size_t r = 0; r < LANES; r++)
                        f_store(y + (c + r) * ld, part[r]);
        }
}

/* `log` stages of a Hadamard transform on 2^log vectors, `step` coordinates apart; signs: of the first, or NULL. */
DCI_INLINE void butterflies(float *y, size_t step, size_t log, const float *signs)
{
        F x[1 << RADIX];
        UNROLL for (size_t k = 0; k < (size_t)1 << log; k++)
        {
                x[k] = f_load(y + k * step * LANES);
                if (signs != NULL)
                        x[k] = f_mul(x[k], f_all(signs[k * step]));
        }
        UNROLL for (size_t s = 0; s < log; s++)
        {
                const size_t half = (size_t)1 << (log - 1 - s);
                UNROLL for (size_t k = 0; k < (size_t)1 << log; k++)
                {
                        if ((k & half) != 0)
                                continue;
                        const F sum = f_add(x[k], x[k + half]);
                        x[k + half] = f_sub(x[k], x[k + half]);
                        x[k] = sum;
                }
        }
        UNROLL for (size_t k = 0; k < (size_t)1 << log; k++) f_store(y + k * step * LANES, x[k]);
}

/* The stages of blocks of `left` coordinates. */
DCI_INLINE void pass(float *y, size_t part, size_t left, size_t log, const float *signs)
{
        const size_t step = left >> log;
        for (size_t base = 0; base < part; base += left)
                for (size_t i = base; i < base + step; i++)
                        butterflies(y + i * LANES, step, log, signs == NULL ? NULL : signs + i);
}

static void pass_of(float *y, size_t part, size_t left, size_t log, const float *signs)
{
        switch (log) {
        case 0:
                pass(y, part, left, 0, signs);
                break;
        case 1:
                pass(y, part, left, 1, signs);
                break;
        case 2:
                pass(y, part, left, 2, signs);
                break;
        case 3: /* never where it is beyond RADIX; compilers would see arrays of RADIX overrun */
                pass(y, part, left, RADIX < 3 ? RADIX : 3, signs);
                break;
        default:
                pass(y, part, left, RADIX, signs);
        }
}

/* As dci_rotate, bit by bit: stages from the widest to the narrowest. */
static void rotate(const dci_code_transpose_block *turn, float *y)
{
        const size_t part = turn->part;
        size_t stages = 0;
        while ((size_t)1 << stages < part)
                stages++;
        for (size_t r = 0; r < turn->n_rounds; r++) {
                float *x = r % 2 == 0 ? y : y + (turn->dim - part) * LANES;
                if (r % 2 == 1 && part == turn->dim)
                        continue;
                const float *signs = turn->signs + r * part;
                for (size_t done = 0, log; done == 0 || done < stages; done += log == 0 ? 1 : log) {
                        const size_t n_passes = (stages - done + RADIX - 1) / RADIX;
                        log = n_passes == 0 ? 0 : (stages - done + n_passes - 1) / n_passes;
                        pass_of(x, part, part >> done, log, done == 0 ? signs : NULL);
                }
        }
}

static void turn_rows(const dci_code_transpose_block *turn, const float *const *rows, float *y, size_t ld)
{
        gather(turn, rows, y, ld);
        if (turn->signs != NULL)
                rotate(turn, y);
}

/* Of coordinates up to a multiple of 4; those past the last are zeros. */
static F squares_of(const float *y, size_t dim)
{
        F sum[4] = {f_all(0.0f), f_all(0.0f), f_all(0.0f), f_all(0.0f)};
        for (size_t j = 0; j < dim; j += 4)
                UNROLL for (size_t i = 0; i < 4; i++)
                {
                        const F x = f_load(y + (j + i) * LANES);
                        sum[i] = f_add(sum[i], f_mul(x, x));
                }
        return f_add(f_add(sum[0], sum[2]), f_add(sum[1], sum[3]));
}

/* Rows of unusual length are brought near one by a power of two, which `back` undoes. */
static F bring_near(float *y, size_t dim, F squares, float *back)
{
        float square[LANES];
        bool some = false;
        f_store(square, squares);
        for (size_t r = 0; r < LANES; r++) {
                float most = 0.0f;
                int exponent;
                back[r] = 1.0f;
                if (square[r] >= MIN_SQUARE && square[r] <= MAX_SQUARE)
                        continue;
                for (size_t j = 0; j < dim; j++)
                        most = fmaxf(most, fabsf(y[j * LANES + r]));
                if (most == 0.0f)
                        continue;
                frexpf(most, &exponent);
                for (size_t j = 0; j < dim; j++)
                        y[j * LANES + r] = ldexpf(y[j * LANES + r], -exponent);
                back[r] = ldexpf(1.0f, exponent);
                some = true;
        }
        return some ? squares_of(y, dim) : squares;
}

/* Coordinates as whole numbers, four in two pairs: 0 and 2, 1 and 3. */
static void make_whole(const float *y, size_t dim, F factor, uint32_t *whole)
{
        for (size_t j = 0; j < dim; j += 4, whole += 2 * LANES) {
                I x[4];
                UNROLL for (size_t i = 0; i < 4; i++) x[i] = i_round(f_mul(f_load(y + (j + i) * LANES), factor));
                i_store(whole, i_pair(x[0], x[2]));
                i_store(whole + LANES, i_pair(x[1], x[3]));
        }
}

/* What a step leaves: of levels m + 1/2 for coordinates of magnitude a, twice the sum of products and four times that
 * of squares. */
typedef struct chosen {
        I inverse;
        F products, squares;
} chosen;

/* Sums over coordinates of magnitude a: of a, and for each step with level m + 1/2 of m a and of m (m + 1). */
typedef struct step_sums {
        I total, product[DCI_CODE_STRETCHES], square[DCI_CODE_STRETCHES];
} step_sums;

DCI_INLINE step_sums try_steps(const dci_code_even *even, const uint32_t *whole, size_t n_vectors)
{
        const I one = i_all16(1), most = i_all16((1 << even->bits) / 2 - 1);
        I inverse[DCI_CODE_STRETCHES];
        step_sums s = {.total = i_zero()};
        UNROLL for (size_t i = 0; i < DCI_CODE_STRETCHES; i++)
        {
                s.product[i] = s.square[i] = i_zero();
                inverse[i] = i_all16(even->inverse[i]);
        }
        for (size_t v = 0; v < n_vectors; v++) {
                const I a = i_abs16(i_load(whole + v * LANES));
                s.total = i_dot(s.total, a, one);
                UNROLL for (size_t i = 0; i < DCI_CODE_STRETCHES; i++)
                {
                        const I m = i_min16(i_times16(a, inverse[i]), most);
                        s.product[i] = i_dot(s.product[i], m, a);
                        s.square[i] = i_dot(s.square[i], m, i_add16(m, one));
                }
        }
        return s;
}

/* One bit: signs. */
DCI_INLINE I magnitudes(const uint32_t *whole, size_t n_vectors)
{
        I sum = i_zero();
        for (size_t v = 0; v < n_vectors; v++)
                sum = i_dot(sum, i_abs16(i_load(whole + v * LANES)), i_all16(1));
        return sum;
}

/* Of the steps the one with the largest (y . z)^2 / |z|^2: it leaves least. */
DCI_INLINE chosen best_step(const dci_code_even *even, const step_sums *s)
{
        const F total = f_from(s->total), count = f_all((float)even->turn.dim);
        if (even->bits == 1)
                return (chosen){i_zero(), total, count};
        chosen best = {i_zero(), f_all(0.0f), f_all(0.0f)};
        F max_kept = f_all(-1.0f);
        UNROLL for (size_t i = 0; i < DCI_CODE_STRETCHES; i++)
        {
                const F p = f_add(f_from(i_left(s->product[i], 1)), total);
                const F q = f_add(f_from(i_left(s->square[i], 2)), count), kept = f_div(f_mul(p, p), q);
                const M better = f_more(kept, max_kept);
                max_kept = f_pick(better, kept, max_kept);
                best.inverse = i_pick(better, i_all16(even->inverse[i]), best.inverse);
                best.products = f_pick(better, p, best.products);
                best.squares = f_pick(better, q, best.squares);
        }
        return best;
}

/* A scale near the one to come, and what it leaves over: sums of (y - scale z)^2 and of z (y - scale z), four of each
 * side by side, of every fourth coordinate. */
typedef struct settling {
        F scale, left[4], along[4];
        I inverse;
} settling;

/* Two coordinates' codes. */
DCI_INLINE I codes_of(I whole, int bits, I inverse)
{
        const I sign = i_sign16(whole);
        I m = i_zero();
        if (bits > 1)
                m = i_min16(i_times16(i_abs16(whole), inverse), i_all16((1 << bits) / 2 - 1));
        return i_add16(i_xor(m, sign), i_all16((1 << bits) / 2));
}

DCI_INLINE F level_of(I code, int bits)
{
        return f_sub(f_from(code), f_all(0.5f * (float)((1 << bits) - 1)));
}

/* present: false for a coordinate past the last. */
DCI_INLINE void settle(F y, F level, bool present, settling *s, size_t chain)
{
        if (!present)
                level = f_all(0.0f);
        const F left = f_sub(y, f_mul(s->scale, level));
        s->left[chain] = f_add(s->left[chain], f_mul(left, left));
        s->along[chain] = f_add(s->along[chain], f_mul(level, left));
}

/* n of four coordinates: their codes in the lowest bits of a word's bytes. */
DCI_INLINE I write_group(const float *y, const uint32_t *whole, int bits, size_t n, settling *s)
{
        I even = codes_of(i_load(whole), bits, s->inverse), odd = codes_of(i_load(whole + LANES), bits, s->inverse);
        if (n < 4) { /* the last is not there, nor perhaps the one or two before it */
                even = i_and(even, i_all(n > 2 ? -1 : 0xffff));
                odd = i_and(odd, i_all(n > 1 ? 0xffff : 0));
        }
        settle(f_load(y), level_of(i_low(even), bits), true, s, 0);
        settle(f_load(y + LANES), level_of(i_low(odd), bits), n > 1, s, 1);
        settle(f_load(y + 2 * LANES), level_of(i_high(even), bits), n > 2, s, 2);
        settle(f_load(y + 3 * LANES), level_of(i_high(odd), bits), n > 3, s, 3);
        return i_or(even, i_left(odd, 8));
}

DCI_INLINE void write_lines(const dci_code_even *even, const float *y, const uint32_t *whole, int bits,
                            unsigned char *lines, size_t stride, settling *s)
{
        const size_t dim = even->turn.dim, step = 32 / (size_t)bits;
        for (size_t c = 0; c < dim; c += step, lines += stride) {
                I word = i_zero();
                if (c + step <= dim) {
                        UNROLL for (int k = 0; k < 8 / bits; k++)
                        {
                                const size_t at = c + 4 * (size_t)k;
                                const I group = write_group(y + at * LANES, whole + at / 2 * LANES, bits, 4, s);
                                word = i_or(word, i_left(group, k * bits));
                        }
                } else {
                        for (size_t at = c; at < dim; at += 4) {
                                const size_t n = dim - at < 4 ? dim - at : 4;
                                const I group = write_group(y + at * LANES, whole + at / 2 * LANES, bits, n, s);
                                word = i_or(word, i_left(group, (int)(at - c) / 4 * bits));
                        }
                }
                i_store(lines, word);
        }
}

DCI_INLINE F four_of(const F *sum)
{
        return f_add(f_add(sum[0], sum[2]), f_add(sum[1], sum[3]));
}

/* What is kept of each row, from sums around a scale that is nearly the one. */
static void finish(const settling *s, F square, F levels2, const float *back, dci_code_written *out)
{
        const F zero = f_all(0.0f), left = four_of(s->left), along = four_of(s->along);
        const F product = f_add(f_mul(s->scale, levels2), along);
        const F scale = f_pick(f_more(product, zero), f_div(square, product), zero), off = f_sub(s->scale, scale);
        const F more = f_mul(off, f_add(f_add(along, along), f_mul(off, levels2)));
        const F undo = f_load(back), residual = f_sqrt(f_max(f_add(left, more), zero));
        f_store(out->scale, f_mul(scale, undo));
        f_store(out->residual, f_mul(residual, undo));
        f_store(out->reach, f_mul(f_mul(scale, f_sqrt(levels2)), undo));
}

/* From the sums over all coordinates to where lines can be written: a row in each lane, or one row. length: of those
 * that are not taken for nothing, else 0. */
DCI_INLINE settling begin_settling(const dci_code_even *even, F length, const chosen *best)
{
        const F zero = f_all(0.0f), half = f_mul(f_all(0.5f), best->products);
        settling s = {.left = {zero, zero, zero, zero}, .along = {zero, zero, zero, zero}, .inverse = best->inverse};
        s.scale = f_pick(f_more(half, zero), f_div(f_mul(length, f_all(even->spread)), half), zero);
        return s;
}

static void write_even(const dci_code_even *even, const float *const *rows, void *scratch, unsigned char *lines,
                       size_t stride, dci_code_written *out)
{
        const size_t dim = even->turn.dim, n_vectors = (dim + 3) / 4 * 2;
        const F zero = f_all(0.0f);
        float *y = scratch, back[LANES];
        uint32_t *whole = (uint32_t *)(void *)(y + (dim + LANES - 1) / LANES * LANES * LANES);
        turn_rows(&even->turn, rows, y, LANES);
        const F square = bring_near(y, dim, squares_of(y, dim), back), length = f_sqrt(square);
        const M some = f_more(f_mul(length, f_load(back)), f_all(NOTHING));
        make_whole(y, dim, f_pick(some, f_div(f_all(even->spread), length), zero), whole);
        step_sums sums;
        if (even->bits == 1)
                sums.total = magnitudes(whole, n_vectors);
        else
                sums = try_steps(even, whole, n_vectors);
        const chosen best = best_step(even, &sums);
        settling s = begin_settling(even, f_if(some, length), &best);
        if (even->bits == 4)
                write_lines(even, y, whole, 4, lines, stride, &s);
        else if (even->bits == 2)
                write_lines(even, y, whole, 2, lines, stride, &s);
        else
                write_lines(even, y, whole, 1, lines, stride, &s);
        finish(&s, f_if(some, square), f_mul(f_all(0.25f), best.squares), back, out);
}

/* Plain loops, from which the compiler makes vectors; sums go to fixed places. */
#define NOTE_LANES 8

static double note(const float *row, size_t n, double *sums)
{
        double square[NOTE_LANES] = {0.0}, total = 0.0;
        size_t i = 0;
        for (; i + NOTE_LANES <= n; i += NOTE_LANES)
                for (size_t j = 0; j < NOTE_LANES; j++) {
                        const double x = (double)row[i + j];
                        sums[i + j] += x;
                        square[j] += x * x;
                }
        for (; i < n; i++) {
                const double x = (double)row[i];
                sums[i] += x;
                square[0] += x * x;
        }
        for (size_t j = 0; j < NOTE_LANES; j++)
                total += square[j];
        return total;
}

#include "simd/codes/encode_levels.h"

#ifdef ONE
#include "simd/codes/encode_one.h"
#else
#define write_one NULL
#endif

const dci_code_writer WRITER = {LANES, turn_rows, product, write_even, write_one, write_levels, note};
