/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rotations and low-bit coders: what the estimates promise. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "sketch/coder.h"

static const size_t dims[] = {1, 2, 3, 5, 8, 31, 33, 64, 80, 96, 100, 128, 256, 300, 784};
#define N_DIMS ((int)(sizeof dims / sizeof dims[0]))
static const int32_t widths[] = {1, 2, 3, 4, 8};
enum { MOST_DIM = 784, N_WIDTHS = 5 };

static double dot(const float *a, const float *b, size_t dim)
{
        double sum = 0.0;
        for (size_t j = 0; j < dim; j++)
                sum += (double)a[j] * (double)b[j];
        return sum;
}

/* Loops over dimensions. Inner products stay, and the way back leads back; other seeds turn elsewhere. */
START_TEST(rotations_are_orthogonal)
{
        const size_t dim = dims[_i];
        float *rows = test_normal(2, dim, 1), turned[2][MOST_DIM], other[MOST_DIM], spare[MOST_DIM];
        float *memory = malloc(dci_rotation_bytes(dim));
        dci_rotation rotation;
        dci_rng rng;
        dci_rng_seed(&rng, 7);
        dci_rotation_init(&rng, dim, memory, &rotation);
        for (size_t r = 0; r < 2; r++) {
                memcpy(turned[r], rows + r * dim, dim * sizeof(float));
                dci_rotate(&rotation, turned[r], spare);
        }
        for (size_t a = 0; a < 2; a++)
                for (size_t b = 0; b < 2; b++) {
                        const double before = dot(rows + a * dim, rows + b * dim, dim);
                        const double scale = sqrt(dot(rows + a * dim, rows + a * dim, dim) *
                                                  dot(rows + b * dim, rows + b * dim, dim));
                        ck_assert_double_le(fabs(dot(turned[a], turned[b], dim) - before), 1e-5 * scale);
                }
        memcpy(other, turned[0], dim * sizeof *other);
        dci_rotate_back(&rotation, other, spare);
        for (size_t j = 0; j < dim; j++)
                ck_assert_float_eq_tol(other[j], rows[j], 1e-5f);
        if (dim >= 31) {
                dci_rotation_init(&rng, dim, memory, &rotation);
                memcpy(other, rows, dim * sizeof *other);
                dci_rotate(&rotation, other, spare);
                ck_assert(memcmp(other, turned[0], dim * sizeof *other) != 0);
        }
        free(rows);
        free(memory);
}
END_TEST

/* One long coordinate is spread over all. */
START_TEST(rotations_spread_what_is_concentrated)
{
        for (int d = 0; d < N_DIMS; d++) {
                const size_t dim = dims[d];
                float row[MOST_DIM] = {0}, spare[MOST_DIM], *memory = malloc(dci_rotation_bytes(dim)), most = 0.0f;
                dci_rotation rotation;
                dci_rng rng;
                dci_rng_seed(&rng, 3);
                dci_rotation_init(&rng, dim, memory, &rotation);
                row[dim / 2] = 1.0f;
                dci_rotate(&rotation, row, spare);
                for (size_t j = 0; j < dim; j++)
                        most = fmaxf(most, fabsf(row[j]));
                if (dim >= 31)
                        ck_assert_float_le(most, 6.0f / sqrtf((float)dim));
                free(memory);
        }
}
END_TEST

/* A coder with all that it needs. */
typedef struct coding {
        dci_coder coder;
        void *memory, *scratch;
        uint8_t codes[MOST_DIM + 32];
        int8_t bytes[MOST_DIM + 32];
} coding;

static void begin(coding *c, const dci_context *context, size_t dim, int32_t bits, bool rotates, uint64_t seed,
                  const float *centre)
{
        c->memory = malloc(dci_coder_bytes(dim));
        c->scratch = malloc(dci_coder_scratch_bytes(dim));
        dci_coder_init(context, dim, bits, rotates, seed, centre, c->memory, &c->coder);
}

static void end(coding *c)
{
        free(c->memory);
        free(c->scratch);
}

/* The sum as a block's reader makes it, of one row. */
static int32_t sum_of(const coding *c)
{
        int32_t sum[DCI_CODE_ROWS];
        unsigned char *block = calloc(1, c->coder.layout.n_bytes);
        dci_code_put(&c->coder.layout, block, 3, c->codes);
        dci_code_sums_scalar(&c->coder.layout, block, 0, 1, c->bytes, 1, sum, DCI_CODE_ROWS);
        free(block);
        return sum[3];
}

/* Loops over dimensions and widths, rotated or not, with a centre or without: the estimate is the product of the query that was
 * rounded with what the codes decode to, and errs by no more than it says. */
START_TEST(estimates_keep_to_their_bound)
{
        const size_t dim = dims[_i % N_DIMS];
        const int32_t bits = widths[_i / N_DIMS % N_WIDTHS];
        const bool rotates = _i / N_DIMS / N_WIDTHS % 2 == 0;
        dci_context *context = test_context(1);
        float *rows = test_normal(20, dim, 5), *queries = test_normal(20, dim, 6), *centre = test_normal(1, dim, 8);
        for (int centred = 0; centred < 2; centred++) {
                static coding c;
                begin(&c, context, dim, bits, rotates, 11, centred ? centre : NULL);
                for (size_t r = 0; r < 20; r++) {
                        float scale, residual, back[MOST_DIM], estimate;
                        dci_coded_query query;
                        dci_coder_encode(&c.coder, rows + r * dim, c.scratch, c.codes, &scale, &residual);
                        dci_coder_decode(&c.coder, c.codes, scale, c.scratch, back);
                        double distance2 = 0.0, length2 = 0.0;
                        for (size_t j = 0; j < dim; j++) {
                                distance2 += pow((double)back[j] - (double)rows[r * dim + j], 2);
                                length2 += pow((double)rows[r * dim + j] - (centred ? (double)centre[j] : 0.0), 2);
                        }
                        ck_assert_double_le(fabs(sqrt(distance2) - (double)residual), 2e-3 * sqrt(length2));
                        dci_coder_query(&c.coder, queries + r * dim, c.scratch, c.bytes, &query);
                        const int32_t sum = sum_of(&c);
                        dci_coder_estimate(&query, &sum, &scale, 1, &estimate);
                        const double error = fabs((double)estimate - dot(rows + r * dim, queries + r * dim, dim));
                        const double allowed = (double)query.length * (double)residual +
                                               (double)query.rounding * ((double)residual + sqrt(length2));
                        ck_assert_double_le(error, allowed + 1e-4 * (double)query.length * (sqrt(length2) + 1.0));
                }
                end(&c);
        }
        free(rows);
        free(queries);
        free(centre);
        dci_context_destroy(context);
}
END_TEST

/* Loops over widths. Over many rotations the mean of the estimates is the inner product, and their spread the residual's share. */
START_TEST(random_codes_are_unbiased)
{
        enum { DIM = 64, DRAWS = 10000 };
        dci_context *context = test_context(1);
        float *row = test_normal(1, DIM, 21), *query = test_normal(1, DIM, 22);
        double sum = 0.0, sum2 = 0.0, spread = 0.0;
        row[3] += 9.0f; /* a strong channel, as keys have them */
        const double truth = dot(row, query, DIM);
        for (uint64_t seed = 0; seed < DRAWS; seed++) {
                static coding c;
                float scale, residual, estimate;
                dci_coded_query coded;
                begin(&c, context, DIM, widths[_i], true, seed, NULL);
                dci_coder_encode(&c.coder, row, c.scratch, c.codes, &scale, &residual);
                dci_coder_query(&c.coder, query, c.scratch, c.bytes, &coded);
                const int32_t total = sum_of(&c);
                dci_coder_estimate(&coded, &total, &scale, 1, &estimate);
                sum += (double)estimate - truth;
                sum2 += pow((double)estimate - truth, 2);
                spread += pow((double)residual * (double)coded.length, 2) / DIM +
                          pow((double)coded.rounding, 2) * dot(row, row, DIM) / DIM;
                end(&c);
        }
        const double deviation = sqrt(sum2 / DRAWS);
        ck_assert_double_le(fabs(sum / DRAWS), 4.0 * deviation / sqrt(DRAWS));
        ck_assert_double_le(deviation, 1.25 * sqrt(spread / DRAWS));
        free(row);
        free(query);
        dci_context_destroy(context);
}
END_TEST

/* The row at the centre, and a zero query. */
START_TEST(nothing_is_estimated_as_nothing)
{
        dci_context *context = test_context(1);
        float *centre = test_normal(1, 40, 2);
        for (size_t w = 0; w < N_WIDTHS; w++) {
                static coding c;
                float scale, residual, estimate, back[40], zero[40] = {0};
                dci_coded_query query;
                begin(&c, context, 40, widths[w], true, 1, centre);
                dci_coder_encode(&c.coder, centre, c.scratch, c.codes, &scale, &residual);
                ck_assert(scale == 0.0f && residual == 0.0f);
                dci_coder_decode(&c.coder, c.codes, scale, c.scratch, back);
                ck_assert_mem_eq(back, centre, sizeof back);
                dci_coder_query(&c.coder, centre, c.scratch, c.bytes, &query);
                int32_t sum = sum_of(&c);
                dci_coder_estimate(&query, &sum, &scale, 1, &estimate);
                ck_assert_float_eq(estimate, query.fixed);
                dci_coder_query(&c.coder, zero, c.scratch, c.bytes, &query);
                sum = sum_of(&c);
                scale = 1.0f;
                dci_coder_estimate(&query, &sum, &scale, 1, &estimate);
                ck_assert_float_eq(estimate, 0.0f);
                end(&c);
        }
        free(centre);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("coder");
        TCase *tcase = tcase_create("laws");
        tcase_set_timeout(tcase, 60);
        tcase_add_loop_test(tcase, rotations_are_orthogonal, 0, N_DIMS);
        tcase_add_test(tcase, rotations_spread_what_is_concentrated);
        tcase_add_loop_test(tcase, estimates_keep_to_their_bound, 0, 2 * N_DIMS * N_WIDTHS);
        tcase_add_loop_test(tcase, random_codes_are_unbiased, 0, N_WIDTHS);
        tcase_add_test(tcase, nothing_is_estimated_as_nothing);
        suite_add_tcase(suite, tcase);
        return test_main(suite);
}
