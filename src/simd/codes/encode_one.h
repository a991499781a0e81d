/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A part of codes/encode_template.h with LANES 4: one row, four coordinates in a vector. The four sums that are
 * adjacent where a vector has a coordinate of several rows are the lanes of one here, so that the bits are the same. */
#include "simd/codes/encode.h"

DCI_INLINE float f_total(F a)
{
        float lane[4];
        f_store(lane, a);
        return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

DCI_INLINE I i_total(I a)
{
        uint32_t lane[4];
        i_store(lane, a);
        return i_all((int32_t)(lane[0] + lane[1] + lane[2] + lane[3]));
}

static float square_of_one(const float *y, size_t dim)
{
        F sum = f_all(0.0f);
        for (size_t j = 0; j < dim; j += 4)
                sum = f_add(sum, f_mul(f_load(y + j), f_load(y + j)));
        return f_total(sum);
}

/* As bring_near. */
static float bring_one_near(float *y, size_t dim, float square, float *back)
{
        float most = 0.0f;
        int exponent;
        *back = 1.0f;
        if (square >= MIN_SQUARE && square <= MAX_SQUARE)
                return square;
        for (size_t j = 0; j < dim; j++)
                most = fmaxf(most, fabsf(y[j]));
        if (most == 0.0f)
                return square;
        frexpf(most, &exponent);
        for (size_t j = 0; j < dim; j++)
                y[j] = ldexpf(y[j], -exponent);
        *back = ldexpf(1.0f, exponent);
        return square_of_one(y, dim);
}

/* n of four coordinates, their codes in the lowest bits of the lanes. */
DCI_INLINE I write_four(const float *y, I code, int bits, size_t n, settling *s)
{
        F level = level_of(code, bits);
        if (n < 4) {
                uint32_t codes[4] = {0};
                float levels[4] = {0.0f}, all[4];
                uint32_t of_all[4];
                i_store(of_all, code);
                f_store(all, level);
                memcpy(codes, of_all, n * sizeof *codes);
                memcpy(levels, all, n * sizeof *levels);
                code = i_load(codes);
                level = f_load(levels);
        }
        settle(f_load(y), level, true, s, 0);
        return code;
}

/* Eight coordinates at a time, of which four may be past the last. */
DCI_INLINE void write_words(size_t dim, const float *y, const uint32_t *whole, int bits, unsigned char *words,
                            size_t stride, settling *s)
{
        const size_t step = 32 / (size_t)bits;
        for (size_t c = 0; c < dim; c += step, words += stride) {
                I word = i_zero();
                uint32_t lane[4];
                for (size_t at = c; at < c + step && at < dim; at += 8) {
                        const I code = codes_of(i_load(whole + at / 2), bits, s->inverse);
                        const int shift = (int)(at - c) / 4 * bits;
                        const size_t n = dim - at;
                        word = i_or(word, i_left(write_four(y + at, i_low(code), bits, n < 4 ? n : 4, s), shift));
                        if (n > 4)
                                word = i_or(word,
                                            i_left(write_four(y + at + 4, i_high(code), bits, n < 8 ? n - 4 : 4, s),
                                                   shift + bits));
                }
                i_store(lane, word);
                lane[0] |= lane[1] << 8 | lane[2] << 16 | lane[3] << 24;
                memcpy(words, lane, 4);
        }
}

static void write_one(const dci_code_even *even, float *y, uint32_t *whole, unsigned char *words, size_t stride,
                      dci_code_written *out)
{
        const size_t dim = even->turn.dim, n_vectors = (dim + 7) / 8;
        float one_back, back[LANES];
        for (size_t j = dim; j < n_vectors * 8; j++)
                y[j] = 0.0f;
        const float square = bring_one_near(y, dim, square_of_one(y, dim), &one_back), length = sqrtf(square);
        const bool some = length * one_back > NOTHING;
        const F factor = f_all(some ? even->spread / length : 0.0f);
        for (size_t v = 0; v < n_vectors; v++)
                i_store(whole + v * 4, i_pair(i_round(f_mul(f_load(y + 8 * v), factor)),
                                              i_round(f_mul(f_load(y + 8 * v + 4), factor))));
        step_sums sums;
        if (even->bits == 1)
                sums.total = magnitudes(whole, n_vectors);
        else
                sums = try_steps(even, whole, n_vectors);
        sums.total = i_total(sums.total);
        for (size_t i = 0; i < DCI_CODE_STRETCHES && even->bits > 1; i++) {
                sums.product[i] = i_total(sums.product[i]);
                sums.square[i] = i_total(sums.square[i]);
        }
        const chosen best = best_step(even, &sums);
        settling s = begin_settling(even, f_all(some ? length : 0.0f), &best);
        if (even->bits == 4)
                write_words(dim, y, whole, 4, words, stride, &s);
        else if (even->bits == 2)
                write_words(dim, y, whole, 2, words, stride, &s);
        else
                write_words(dim, y, whole, 1, words, stride, &s);
        f_store(back, f_all(one_back));
        s.left[0] = f_all(f_total(s.left[0]));
        s.along[0] = f_all(f_total(s.along[0]));
        finish(&s, f_all(some ? square : 0.0f), f_mul(f_all(0.25f), best.squares), back, out);
}
