/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Softmaxes by products of bytes: the kernels against loops that follow their definitions, on machines that have them. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/simd_reference.h"

#include <string.h>

#include "simd/softmax/softmax.h"

enum { MAX_DIM = 300, MAX_QUERIES = 32, ROWS = DCI_SOFTMAX_ROWS, LANES = DCI_SOFTMAX_LANES };

static const dci_softmax_kernels *kernels, *others;

static void setup(void)
{
        dci_context *context = test_context(1);
        kernels = others = dci_softmax_kernels_for(context);
#if defined(__x86_64__)
        if (kernels != NULL)
                others = &dci_softmax_kernels_avx512;
#endif
        dci_context_destroy(context);
}

/* Those of processors that multiply no bytes. */
static void setup_others(void)
{
        setup();
        kernels = others;
}

static const size_t dims[] = {1, 2, 3, 4, 5, 15, 16, 17, 31, 64, 67, 100, 128, 130, 256, 300};
static const size_t counts[] = {1, 2, 15, 16, 17, 33, 48, 63, 64};

/* The byte that stands for coordinate j of row i. */
static int byte_of(const uint8_t *tile, size_t i, size_t j)
{
        return (int)tile[(j / 4 * ROWS + i) * 4 + j % 4] - 128;
}

/* Loops over dims. A byte is the whole number of steps next to what it stands for; what is missing is 0; nothing else is touched. */
START_TEST(bytes_are_the_nearest_steps)
{
        if (kernels == NULL)
                return;
        const size_t dim = dims[_i], tile_bytes = dci_softmax_units(dim) * 4 * ROWS;
        float *numbers = test_normal(ROWS + 2, dim, 11), *centre = numbers + ROWS * dim, *inverse = centre + dim;
        unsigned char *end = guard(ROWS * dim * sizeof(float)), *tile_end = guard(tile_bytes);
        for (size_t j = 0; j < dim; j++)
                inverse[j] = (float)exp((double)inverse[j]);
        memcpy(numbers, centre, dim * sizeof *numbers); /* a row of nothing */
        for (size_t c = 0; c < COUNT(counts); c++) {
                const size_t n = counts[c];
                float *rows = last_bytes(end, n * dim * sizeof *rows), scales[ROWS];
                uint8_t *tile = last_bytes(tile_end, tile_bytes);
                memcpy(rows, numbers, n * dim * sizeof *rows);
                memset(tile, 0x55, tile_bytes);
                kernels->pack(rows, n, dim, centre, inverse, tile, scales);
                for (size_t i = 0; i < ROWS; i++) {
                        double most = 0.0;
                        for (size_t j = 0; j < dim && i < n; j++)
                                most = fmax(most, fabs(((double)numbers[i * dim + j] - (double)centre[j]) *
                                                       (double)inverse[j]));
                        ck_assert(fabs((double)scales[i] - most / 127.0) <= 1e-6 * most);
                        for (size_t j = 0; j < dci_softmax_units(dim) * 4; j++) {
                                const int byte = byte_of(tile, i, j);
                                if (i >= n || j >= dim || most == 0.0) {
                                        test_hold(byte == 0);
                                        continue;
                                }
                                const double x = ((double)numbers[i * dim + j] - (double)centre[j]) *
                                                 (double)inverse[j] / (double)scales[i];
                                test_hold(fabs(x - (double)byte) <= 0.5 + 1e-4 && byte >= -127 && byte <= 127);
                        }
                }
        }
        free(numbers);
}
END_TEST

/* Queries and a tile of any bytes. */
typedef struct scene {
        size_t dim, units, n_queries;
        int8_t bytes[MAX_QUERIES * (MAX_DIM + 3)];
        int32_t start[MAX_QUERIES];
        float scale[MAX_QUERIES], shift[MAX_QUERIES], scales[ROWS];
        float sum[MAX_QUERIES * LANES], most[MAX_QUERIES * LANES];
        uint8_t tile[(MAX_DIM + 3) * ROWS];
        dci_softmax softmax;
} scene;

static void make_scene(scene *s, size_t dim, size_t n_queries, uint64_t seed)
{
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        memset(s, 0, sizeof *s);
        s->dim = dim;
        s->units = dci_softmax_units(dim);
        s->n_queries = n_queries;
        for (size_t q = 0; q < n_queries; q++) {
                for (size_t j = 0; j < dim; j++) {
                        const int b = (int)dci_rng_below(&rng, 255) - 127;
                        s->bytes[q * s->units * 4 + j] = (int8_t)b;
                        s->start[q] -= 128 * b;
                }
                s->scale[q] = 0.1f + (float)dci_rng_below(&rng, 100) * 0.01f;
                s->shift[q] = (float)dci_rng_below(&rng, 9) - 4.0f;
        }
        for (size_t i = 0; i < s->units * 4 * ROWS; i++)
                s->tile[i] = (uint8_t)(1 + dci_rng_below(&rng, 255));
        for (size_t i = 0; i < ROWS; i++) /* scores of some tens */
                s->scales[i] = 1e-3f / sqrtf((float)dim) * (float)(1 + dci_rng_below(&rng, 20)) * 0.1f;
        s->softmax = (dci_softmax){s->bytes, s->start, s->scale, s->shift, s->sum, s->most, n_queries, s->units};
}

static double score_of(const scene *s, size_t q, size_t i)
{
        int64_t product = 0;
        for (size_t j = 0; j < s->dim; j++)
                product += (int64_t)s->bytes[q * s->units * 4 + j] * byte_of(s->tile, i, j);
        return (double)product * (double)s->scales[i] * (double)s->scale[q] - (double)s->shift[q];
}

static double term_of(const uint16_t *terms, size_t q, size_t i)
{
        return half_value(DCI_BF16, terms[(q / 2 * ROWS + i) * 2 + q % 2]);
}

/* Loops over dims: 2^x to 2e-4 and the rounding of x, by the lane; stored to a half more of bf16's last place. */
START_TEST(terms_are_powers_of_two)
{
        if (kernels == NULL)
                return;
        static scene s;
        unsigned char *end = guard(MAX_QUERIES * ROWS * sizeof(uint16_t));
        for (size_t c = 0; c < COUNT(counts); c++) {
                const size_t n = counts[c], n_queries = 4 * (1 + c % 8);
                double sum[MAX_QUERIES * LANES], most[MAX_QUERIES * LANES];
                uint16_t *terms = last_bytes(end, n_queries * ROWS * sizeof *terms);
                make_scene(&s, dims[_i], n_queries, c);
                for (size_t l = 0; l < n_queries * LANES; l++) {
                        sum[l] = s.sum[l] = 1.0f;
                        most[l] = s.most[l] = -3.0f;
                }
                kernels->terms(&s.softmax, s.tile, s.scales, n, terms);
                for (size_t q = 0; q < n_queries; q++)
                        for (size_t i = 0; i < ROWS; i++) {
                                const double x = score_of(&s, q, i), term = term_of(terms, q, i);
                                if (i >= n) {
                                        test_hold(term == 0.0);
                                        continue;
                                }
                                ck_assert_msg(fabs(term / exp2(x) - 1.0) <= 0x1p-8 + 3e-4, "2^%g is not %g", x, term);
                                sum[q * LANES + i % LANES] += exp2(x);
                                most[q * LANES + i % LANES] = fmax(most[q * LANES + i % LANES], x);
                        }
                for (size_t l = 0; l < n_queries * LANES; l++) {
                        ck_assert(fabs((double)s.sum[l] / sum[l] - 1.0) <= 3e-4);
                        ck_assert(fabs((double)s.most[l] - most[l]) <= 1e-5 * (10.0 + fabs(most[l])));
                }
        }
}
END_TEST

/* Far below, powers are as good as 0, and far above infinite; what is the greatest is known in both cases. */
START_TEST(what_is_far_away_is_still_found)
{
        if (kernels == NULL)
                return;
        static scene s;
        static const float shifts[] = {-1e6f, -200.0f, 200.0f, 1e6f};
        uint16_t terms[4 * ROWS];
        for (size_t c = 0; c < COUNT(shifts); c++) {
                make_scene(&s, 64, 4, 7 + c);
                for (size_t q = 0; q < 4; q++)
                        s.shift[q] = shifts[c];
                for (size_t l = 0; l < 4 * LANES; l++)
                        s.most[l] = -INFINITY;
                kernels->terms(&s.softmax, s.tile, s.scales, ROWS, terms);
                for (size_t q = 0; q < 4; q++) {
                        double wanted = -(double)INFINITY, most = wanted;
                        for (size_t i = 0; i < ROWS; i++)
                                wanted = fmax(wanted, score_of(&s, q, i));
                        for (size_t l = 0; l < LANES; l++)
                                most = fmax(most, (double)s.most[q * LANES + l]);
                        ck_assert(fabs(most - wanted) <= 1e-6 * fabs(wanted));
                        for (size_t i = 0; i < ROWS; i++)
                                test_hold(shifts[c] < 0 ? isinf(term_of(terms, q, i))
                                                        : term_of(terms, q, i) <= 0x1p-126);
                }
        }
}
END_TEST

START_TEST(weighed_terms_are_added)
{
        if (kernels == NULL)
                return;
        static scene s;
        uint16_t terms[MAX_QUERIES * ROWS];
        for (size_t n_queries = 4; n_queries <= MAX_QUERIES; n_queries += 4) {
                float weights[MAX_QUERIES], out[ROWS];
                make_scene(&s, 24, n_queries, n_queries);
                kernels->terms(&s.softmax, s.tile, s.scales, ROWS - 3, terms);
                for (size_t q = 0; q < n_queries; q++)
                        weights[q] = 0.01f * (float)(q + 1);
                for (size_t i = 0; i < ROWS; i++)
                        out[i] = (float)i;
                kernels->add(terms, weights, n_queries, out);
                for (size_t i = 0; i < ROWS; i++) {
                        float wanted = (float)i;
                        for (size_t q = 0; q < n_queries; q++)
                                wanted = fmaf((float)term_of(terms, q, i), weights[q], wanted);
                        test_hold(out[i] == wanted);
                }
        }
}
END_TEST

/* Loops over dims. A level has one answer, whatever its processors can multiply. */
START_TEST(bits_are_those_of_other_processors)
{
        if (kernels == NULL)
                return;
        static scene s, t;
        const size_t dim = dims[_i];
        float *rows = test_normal(ROWS + 2, dim, 12), *same = test_normal(ROWS + 2, dim, 12),
              *centre = rows + ROWS * dim;
        float sums[2][ROWS];
        uint16_t terms[2][MAX_QUERIES * ROWS] = {{0}};
        make_scene(&s, dim, MAX_QUERIES, 5);
        for (size_t j = 0; j < dim; j++)
                centre[dim + j] = 1.0f + (float)(j % 5);
        t = s;
        t.softmax = (dci_softmax){t.bytes, t.start, t.scale, t.shift, t.sum, t.most, t.n_queries, t.units};
        kernels->pack(rows, ROWS - 5, dim, centre, centre + dim, s.tile, s.scales);
        others->pack(same, ROWS - 5, dim, centre, centre + dim, t.tile, t.scales);
        ck_assert(memcmp(s.tile, t.tile, s.units * 4 * ROWS) == 0 && memcmp(s.scales, t.scales, sizeof s.scales) == 0);
        kernels->terms(&s.softmax, s.tile, s.scales, ROWS - 5, terms[0]);
        others->terms(&t.softmax, t.tile, t.scales, ROWS - 5, terms[1]);
        ck_assert(memcmp(terms[0], terms[1], sizeof terms[0]) == 0);
        ck_assert(memcmp(s.sum, t.sum, sizeof s.sum) == 0 && memcmp(s.most, t.most, sizeof s.most) == 0);
        for (size_t side = 0; side < 2; side++) {
                memset(sums[side], 0, sizeof sums[side]);
                (side == 0 ? kernels : others)->add(terms[side], s.scale, MAX_QUERIES, sums[side]);
        }
        ck_assert(memcmp(sums[0], sums[1], sizeof sums[0]) == 0);
        test_free(rows, same);
}
END_TEST

static void add_case(Suite *suite, const char *name, SFun begin)
{
        TCase *tcase = tcase_create(name);
        tcase_add_checked_fixture(tcase, begin, NULL);
        tcase_add_loop_test(tcase, bytes_are_the_nearest_steps, 0, COUNT(dims));
        tcase_add_loop_test(tcase, terms_are_powers_of_two, 0, COUNT(dims));
        tcase_add_test(tcase, what_is_far_away_is_still_found);
        tcase_add_test(tcase, weighed_terms_are_added);
        tcase_add_loop_test(tcase, bits_are_those_of_other_processors, 0, COUNT(dims));
        suite_add_tcase(suite, tcase);
}

int main(void)
{
        Suite *suite = suite_create("simd_looks");
        add_case(suite, "bytes", setup);
        add_case(suite, "bytes without their products", setup_others);
        return test_main(suite);
}
