/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows to codes, many at a time: what comes out does not depend on how many, where, or with which instructions. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "sketch/coder.h"
#include "sketch/fit.h"

static const int32_t widths[] = {1, 2, 3, 4, 8};
static const size_t long_dims[] = {96, 128, 200, 256};
enum { SHORT_DIMS = 70, N_DIMS = SHORT_DIMS + 4, MAX_DIM = 256, N_WIDTHS = 5, ROWS = 32 };

static size_t dim_of(int i)
{
        return i < SHORT_DIMS ? (size_t)i + 1 : long_dims[i - SHORT_DIMS];
}

typedef struct coding {
        dci_coder coder;
        void *memory, *scratch, *one;
        size_t n_bytes;
} coding;

#define ALONE (-DCI_CODER_LEARNED)

/* kind, or a transform learned from the rows; ALONE: for codes that nothing stands next to. */
static void begin(coding *c, const dci_context *context, int32_t kind, size_t dim, int32_t bits, const float *rows)
{
        const bool alone = kind == ALONE;
        kind = alone ? DCI_CODER_LEARNED : kind;
        c->memory = malloc(dci_coder_bytes(kind, dim));
        c->scratch = malloc(dci_coder_encode_bytes(dim, false));
        c->one = malloc(dci_coder_encode_bytes(dim, true));
        if (kind != DCI_CODER_LEARNED) {
                dci_coder_init(context, kind, dim, bits, 5, rows, c->memory, &c->coder);
        } else {
                void *sums = malloc(dci_moments_bytes(dim)), *spare = malloc(dci_fit_scratch_bytes(dim));
                dci_moments moments;
                dci_moments_init(context->kernels, dim, sums, &moments);
                dci_moments_add(&moments, rows, dim, ROWS);
                dci_coder_init_learned(context, dim, bits, alone, c->memory, &c->coder);
                ck_assert_int_eq(dci_fit(&moments, &moments, spare, &c->coder), DCI_OK);
                test_free(sums, spare);
        }
        c->n_bytes = c->coder.layout.n_bytes;
}

static void end(coding *c)
{
        test_free(c->memory, c->scratch, c->one);
}

typedef struct made {
        unsigned char *block;
        dci_coded_row coded[ROWS];
} made;

/* Rows whose bit is set in `which`, each `shift` places on. */
static made encode(const coding *c, const float *rows, uint32_t which, size_t shift)
{
        const float *here[ROWS] = {NULL};
        made m = {.block = malloc(c->n_bytes)};
        memset(m.block, 0xa5, c->n_bytes);
        memset(m.coded, 0xa5, sizeof m.coded);
        for (size_t r = 0; r < ROWS; r++)
                if ((which >> r & 1) != 0)
                        here[(r + shift) % ROWS] = rows + r * c->coder.dim;
        const bool one = (which & (which - 1)) == 0;
        dci_coder_encode(&c->coder, here, one ? c->one : c->scratch, m.block, m.coded);
        return m;
}

/* Rows of m, moved by `shift`, are those of `all`; in the other places nothing was touched. */
static void same_rows(const coding *c, const made *all, const made *m, uint32_t which, size_t shift)
{
        unsigned char untouched[sizeof(dci_coded_row)];
        memset(untouched, 0xa5, sizeof untouched);
        for (size_t r = 0; r < ROWS; r++) {
                const size_t at = (r + shift) % ROWS;
                const unsigned char *from = all->block + dci_code_word(r), *to = m->block + dci_code_word(at);
                const bool there = (which >> r & 1) != 0;
                for (size_t byte = 0; byte < c->n_bytes; byte += 2 * DCI_CODE_LINE)
                        test_hold(memcmp(to + byte, there ? from + byte : untouched, 4) == 0);
                test_hold(memcmp(&m->coded[at], there ? (const void *)&all->coded[r] : untouched,
                                 sizeof m->coded[at]) == 0);
        }
}

static void check_batches(const coding *c, const float *rows)
{
        static const uint32_t some[] = {0x000000ff, 0x0000ff00, 0xfffffffe, 0x80000001, 0x00ff8000, 0x5a5a1234};
        made all = encode(c, rows, UINT32_MAX, 0);
        for (size_t r = 0; r < ROWS; r++) {
                made m = encode(c, rows, 1u << r, r * 7);
                same_rows(c, &all, &m, 1u << r, r * 7);
                free(m.block);
        }
        for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
                made m = encode(c, rows, some[i], i * 5);
                same_rows(c, &all, &m, some[i], i * 5);
                free(m.block);
        }
        free(all.block);
}

/* Codes alone are the same ones. */
static void check_codes_alone(const coding *c, const float *rows)
{
        static const uint32_t some[] = {UINT32_MAX, 0x0000ffff, 0xfffffffe, 0x00ff8000, 0x000001ff, 0x00000001};
        for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
                const float *here[ROWS] = {NULL};
                made all = encode(c, rows, some[i], 0), alone = {.block = malloc(c->n_bytes)};
                memset(alone.block, 0xa5, c->n_bytes);
                for (size_t r = 0; r < ROWS; r++)
                        here[r] = (some[i] >> r & 1) != 0 ? rows + r * c->coder.dim : NULL;
                dci_coder_encode_only(&c->coder, here, c->scratch, alone.block, alone.coded);
                ck_assert_mem_eq(alone.block, all.block, c->n_bytes);
                for (size_t r = 0; r < ROWS; r++) {
                        if (here[r] == NULL)
                                continue;
                        test_hold(alone.coded[r].scale == all.coded[r].scale);
                        test_hold(alone.coded[r].reach == all.coded[r].reach);
                        test_hold(alone.coded[r].residual == all.coded[r].residual || alone.coded[r].residual == 0.0f);
                }
                test_free(all.block, alone.block);
        }
}

static const int32_t kinds[] = {DCI_CODER_PLAIN, DCI_CODER_ROTATED, DCI_CODER_LEARNED, ALONE};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* Loops over dimensions. */
START_TEST(a_row_gets_its_code_whatever_rows_lie_beside)
{
        const size_t dim = dim_of(_i);
        float *rows = test_normal(ROWS, dim, (uint64_t)_i);
        const size_t n_isas = test_n_isas();
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_of_level((int)i);
                for (size_t w = 0; w < N_WIDTHS; w++)
                        for (size_t k = 0; k < N_KINDS; k++) {
                                static coding c;
                                begin(&c, context, kinds[k], dim, widths[w], rows);
                                check_batches(&c, rows);
                                check_codes_alone(&c, rows);
                                end(&c);
                        }
                dci_context_destroy(context);
        }
        free(rows);
}
END_TEST

/* The writers that this machine has, from plain C on. */
static size_t writers(const dci_code_writer *out[5])
{
        size_t n = 0;
        const size_t n_isas = test_n_isas();
        out[n++] = &dci_code_writer_portable;
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_of_level((int)i);
                const dci_code_writer *writer = dci_code_writer_for(context, ROWS);
                bool known = false;
                for (size_t j = 0; j < n; j++)
                        known = known || out[j] == writer;
                if (!known)
                        out[n++] = writer;
                dci_context_destroy(context);
        }
        return n;
}

/* Loops over dimensions. Not of learned codes, whose products plain C rounds in its own way. */
START_TEST(every_writer_gives_the_same_bits)
{
        const size_t dim = dim_of(_i);
        float *rows = test_normal(ROWS, dim, (uint64_t)_i + 100);
        const dci_code_writer *all[5];
        const size_t n = writers(all);
        dci_context *context = test_context(1);
        for (size_t w = 0; w < N_WIDTHS; w++)
                for (size_t k = 0; k < 2; k++) {
                        static coding c;
                        made first = {0};
                        begin(&c, context, kinds[k], dim, widths[w], rows);
                        for (size_t i = 0; i < n; i++) {
                                c.coder.writer = c.coder.narrow = all[i];
                                made m = encode(&c, rows, UINT32_MAX, 0);
                                if (i == 0) {
                                        first = m;
                                        continue;
                                }
                                same_rows(&c, &first, &m, UINT32_MAX, 0);
                                free(m.block);
                        }
                        free(first.block);
                        end(&c);
                }
        free(rows);
        dci_context_destroy(context);
}
END_TEST

/* Loops over dimensions. Coordinates of rows side by side are those of dci_rotate, bit by bit, and zeros after the last. */
START_TEST(rows_are_turned_as_one_is)
{
        const size_t dim = dim_of(_i), wide = dim + DCI_CODE_LANES;
        float *rows = test_normal(ROWS, dim, (uint64_t)_i), *y = malloc(wide * DCI_CODE_LANES * sizeof *y);
        const dci_code_writer *all[5];
        const size_t n = writers(all);
        dci_context *context = test_context(1);
        static coding c;
        begin(&c, context, DCI_CODER_ROTATED, dim, 4, rows);
        for (size_t i = 0; i < n; i++) {
                const size_t lanes = all[i]->lanes;
                const float *here[DCI_CODE_LANES];
                for (size_t r = 0; r < lanes; r++)
                        here[r] = rows + r * dim;
                all[i]->turn(&c.coder.turn, here, y, lanes);
                for (size_t r = 0; r < lanes; r++) {
                        float row[MAX_DIM], spare[MAX_DIM];
                        for (size_t j = 0; j < dim; j++)
                                row[j] = here[r][j] - rows[j];
                        dci_rotate(&c.coder.rotation, row, spare);
                        for (size_t j = 0; j < (dim + lanes - 1) / lanes * lanes; j++)
                                test_hold(y[j * lanes + r] == (j < dim ? row[j] : 0.0f));
                }
        }
        end(&c);
        test_free(rows, y);
        dci_context_destroy(context);
}
END_TEST

/* The square of what the best of four even steps leaves of y, scaled as the codes are. */
static double min_left(const float *y, size_t dim, int bits)
{
        static const double steps[5] = {0, 1.596, 0.9957, 0, 0.3352}, stretches[] = {1.0, 0.82, 0.91, 1.12};
        double square = 0.0, best = INFINITY;
        for (size_t j = 0; j < dim; j++)
                square += (double)y[j] * (double)y[j];
        for (size_t s = 0; s < 4; s++) {
                const double step = steps[bits] * stretches[s] * sqrt(square / (double)dim);
                double product = 0.0, levels = 0.0;
                for (size_t j = 0; j < dim; j++) {
                        const double most = (double)((1 << bits) / 2) - 0.5;
                        const double level = copysign(fmin(floor(fabs((double)y[j]) / step) + 0.5, most), (double)y[j]);
                        product += level * (double)y[j];
                        levels += level * level;
                }
                best = fmin(best, square * (square * levels / (product * product) - 1.0));
        }
        return best;
}

/* Loops over the widths of even steps and over dimensions. The scale is that of the codes, and what is left, what it says. */
START_TEST(even_codes_leave_what_the_best_of_four_steps_leaves)
{
        enum { N = 4096 };
        static const int32_t even[] = {4, 2, 1};
        static const size_t sizes[] = {16, 64, 100, 128};
        const size_t dim = sizes[_i / 3];
        const int32_t bits = even[_i % 3];
        float *rows = test_normal(N, dim, (uint64_t)_i);
        double left = 0.0, least = 0.0;
        dci_context *context = test_context(1);
        static coding c;
        begin(&c, context, DCI_CODER_PLAIN, dim, bits, NULL);
        for (size_t first = 0; first < N; first += ROWS) {
                made m = encode(&c, rows + first * dim, UINT32_MAX, 0);
                for (size_t r = 0; r < ROWS; r++) {
                        const float *y = rows + (first + r) * dim;
                        uint8_t codes[MAX_DIM];
                        double square = 0.0, product = 0.0, over = 0.0;
                        dci_code_get(&c.coder.layout, m.block, r, codes);
                        for (size_t j = 0; j < dim; j++) {
                                const double z = (double)codes[j] - 0.5 * ((1 << bits) - 1), x = (double)y[j];
                                square += x * x;
                                product += x * z;
                                over += pow(x - (double)m.coded[r].scale * z, 2);
                        }
                        test_hold(fabs((double)m.coded[r].scale * product / square - 1.0) < 1e-5);
                        test_hold(fabs((double)m.coded[r].residual / sqrt(over) - 1.0) < 1e-4);
                        left += over;
                        least += min_left(y, dim, bits);
                }
                free(m.block);
        }
        ck_assert_double_le(left, 1.002 * least);
        end(&c);
        free(rows);
        dci_context_destroy(context);
}
END_TEST

/* Loops over widths. A power of two changes what is kept of a row by itself, and no code, from the smallest to the largest rows. */
START_TEST(powers_of_two_change_no_code)
{
        enum { DIM = 100 };
        static const int powers[] = {-105, -60, -30, 20, 45, 60};
        float *rows = test_normal(ROWS, DIM, 3), other[ROWS * DIM];
        dci_context *context = test_context(1);
        static coding c;
        for (size_t k = 0; k < 2; k++) {
                begin(&c, context, kinds[k], DIM, widths[_i], NULL);
                made all = encode(&c, rows, UINT32_MAX, 0);
                for (size_t p = 0; p < sizeof powers / sizeof powers[0]; p++) {
                        for (size_t i = 0; i < ROWS * DIM; i++)
                                other[i] = ldexpf(rows[i], powers[p]);
                        made m = encode(&c, other, UINT32_MAX, 0);
                        ck_assert_mem_eq(m.block, all.block, c.n_bytes);
                        for (size_t r = 0; r < ROWS; r++) {
                                ck_assert_float_eq(m.coded[r].scale, ldexpf(all.coded[r].scale, powers[p]));
                                ck_assert_float_eq(m.coded[r].residual, ldexpf(all.coded[r].residual, powers[p]));
                                ck_assert_float_eq(m.coded[r].reach, ldexpf(all.coded[r].reach, powers[p]));
                        }
                        free(m.block);
                }
                free(all.block);
                end(&c);
        }
        free(rows);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("encode");
        TCase *tcase = test_case(suite, "laws", 60);
        tcase_add_loop_test(tcase, a_row_gets_its_code_whatever_rows_lie_beside, 0, N_DIMS);
        tcase_add_loop_test(tcase, every_writer_gives_the_same_bits, 0, N_DIMS);
        tcase_add_loop_test(tcase, rows_are_turned_as_one_is, 0, N_DIMS);
        tcase_add_loop_test(tcase, even_codes_leave_what_the_best_of_four_steps_leaves, 0, 12);
        tcase_add_loop_test(tcase, powers_of_two_change_no_code, 0, N_WIDTHS);
        return test_main(suite);
}
