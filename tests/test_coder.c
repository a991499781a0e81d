/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rotations and low-bit coders: what the estimates promise. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "sketch/coder.h"
#include "sketch/fit.h"

static const size_t dims[] = {1, 2, 3, 5, 8, 31, 33, 64, 80, 96, 100, 128, 256, 300, 784};
#define N_DIMS ((int)(sizeof dims / sizeof dims[0]))
static const int32_t widths[] = {1, 2, 3, 4, 8};
enum { MAX_DIM = 784, N_WIDTHS = 5 };

/* Loops over dimensions. Inner products stay, and the way back leads back; other seeds turn elsewhere. */
START_TEST(rotations_are_orthogonal)
{
        const size_t dim = dims[_i];
        float *rows = test_normal(2, dim, 1), turned[2][MAX_DIM], other[MAX_DIM], spare[MAX_DIM];
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
                        const double before = test_dot(rows + a * dim, rows + b * dim, dim);
                        const double scale = sqrt(test_dot(rows + a * dim, rows + a * dim, dim) *
                                                  test_dot(rows + b * dim, rows + b * dim, dim));
                        ck_assert_double_le(fabs(test_dot(turned[a], turned[b], dim) - before), 1e-5 * scale);
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
        test_free(rows, memory);
}
END_TEST

/* One long coordinate is spread over all. */
START_TEST(rotations_spread_what_is_concentrated)
{
        for (int d = 0; d < N_DIMS; d++) {
                const size_t dim = dims[d];
                float row[MAX_DIM] = {0}, spare[MAX_DIM], *memory = malloc(dci_rotation_bytes(dim)), most = 0.0f;
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
        void *memory, *scratch, *wide;
        uint8_t codes[MAX_DIM + 32];
        int8_t bytes[MAX_DIM + 32];
        unsigned char block[(MAX_DIM + 32) * DCI_CODE_ROWS];
} coding;

static void begin(coding *c, const dci_context *context, size_t dim, int32_t bits, int32_t kind, uint64_t seed,
                  const float *centre)
{
        c->memory = malloc(dci_coder_bytes(kind, dim));
        c->scratch = malloc(dci_coder_scratch_bytes(dim));
        c->wide = malloc(dci_coder_encode_bytes(dim, true));
        dci_coder_init(context, kind, dim, bits, seed, centre, c->memory, &c->coder);
}

static void gather(dci_moments *moments, const float *rows, size_t n)
{
        for (size_t i = 0; i < n; i += DCI_MOMENT_ROWS)
                dci_moments_add(moments, rows + i * moments->dim, moments->dim,
                                n - i < DCI_MOMENT_ROWS ? n - i : DCI_MOMENT_ROWS);
}

/* A transform learned from rows and queries. */
static dci_status learn(coding *c, const dci_context *context, size_t dim, int32_t bits, bool alone, const float *rows,
                        size_t n, const float *queries, size_t n_queries)
{
        void *memory[2] = {malloc(dci_moments_bytes(dim)), malloc(dci_moments_bytes(dim))};
        void *scratch = malloc(dci_fit_scratch_bytes(dim));
        dci_moments moments[2];
        c->memory = malloc(dci_coder_bytes(DCI_CODER_LEARNED, dim));
        c->scratch = malloc(dci_coder_scratch_bytes(dim));
        c->wide = malloc(dci_coder_encode_bytes(dim, true));
        for (int i = 0; i < 2; i++)
                dci_moments_init(context->kernels, dim, memory[i], &moments[i]);
        gather(&moments[0], rows, n);
        gather(&moments[1], queries, n_queries);
        dci_coder_init_learned(context, dim, bits, alone, c->memory, &c->coder);
        const dci_status status = dci_fit(&moments[0], &moments[1], scratch, &c->coder);
        test_free(memory[0], memory[1], scratch);
        return status;
}

static void begin_learned(coding *c, const dci_context *context, size_t dim, int32_t bits, bool alone,
                          const float *rows, size_t n, const float *queries, size_t n_queries)
{
        ck_assert_int_eq(learn(c, context, dim, bits, alone, rows, n, queries, n_queries), DCI_OK);
}

static void end(coding *c)
{
        test_free(c->memory, c->scratch, c->wide);
}

/* One row, and its codes as bytes. */
static void encode(coding *c, const float *row, dci_coded_row *out)
{
        const float *rows[DCI_CODE_ROWS] = {NULL};
        dci_coded_row all[DCI_CODE_ROWS];
        rows[3] = row;
        dci_coder_encode(&c->coder, rows, c->wide, c->block, all);
        dci_code_get(&c->coder.layout, c->block, 3, c->codes);
        *out = all[3];
}

/* The sum as a block's reader makes it, of one row. */
static int32_t sum_of(const coding *c)
{
        int32_t sum[DCI_CODE_ROWS];
        unsigned char *block = calloc(1, c->coder.layout.n_bytes);
        const unsigned char *unit = block;
        dci_code_put(&c->coder.layout, block, 3, c->codes);
        dci_code_reader_scalar.sums(&c->coder.layout, &unit, 1, c->bytes, 1, sum, DCI_CODE_ROWS);
        free(block);
        return sum[3];
}

static float estimate_of(const coding *c, const dci_coded_query *query, float scale)
{
        const int32_t sum = sum_of(c);
        float estimate;
        dci_code_reader_scalar.estimate(&sum, &scale, 1, query->half_step, query->twice_bias, query->fixed, &estimate);
        return estimate;
}

/* The estimate is the product of the query with what the codes decode to, but for rounding the query, and errs by no more than it
 * says. */
static void check_row(coding *c, const float *row, const float *query)
{
        const size_t dim = c->coder.dim;
        float back[MAX_DIM];
        dci_coded_row coded;
        dci_coded_query q;
        encode(c, row, &coded);
        dci_coder_decode(&c->coder, c->codes, coded.scale, c->scratch, back);
        double distance2 = 0.0, length2 = 0.0;
        for (size_t j = 0; j < dim; j++) {
                distance2 += pow((double)back[j] - (double)row[j], 2);
                length2 += pow((double)row[j] - (double)c->coder.centre[j], 2);
        }
        if (c->coder.kind != DCI_CODER_LEARNED)
                ck_assert_double_le(fabs(sqrt(distance2) - (double)coded.residual), 2e-3 * sqrt(length2));
        dci_coder_query(&c->coder, query, c->scratch, c->bytes, &q);
        const double slack = 1e-4 * sqrt(test_dot(query, query, dim)) * (sqrt(length2) + 1.0);
        const double rounding = (double)q.rounding * (double)coded.reach;
        const double estimate = (double)estimate_of(c, &q, coded.scale), error = estimate - test_dot(row, query, dim);
        ck_assert_double_le(fabs(estimate - test_dot(back, query, dim)), rounding + slack);
        ck_assert_double_le(fabs(error), (double)q.length * (double)coded.residual + rounding + slack);
}

/* Loops over dimensions and widths, rotated or not, with a centre or without. */
START_TEST(estimates_keep_to_their_bound)
{
        const size_t dim = dims[_i % N_DIMS];
        const int32_t bits = widths[_i / N_DIMS % N_WIDTHS];
        const int32_t kind = _i / N_DIMS / N_WIDTHS % 2 == 0 ? DCI_CODER_ROTATED : DCI_CODER_PLAIN;
        dci_context *context = test_context(1);
        float *rows = test_normal(20, dim, 5), *queries = test_normal(20, dim, 6), *centre = test_normal(1, dim, 8);
        for (int centred = 0; centred < 2; centred++) {
                static coding c;
                begin(&c, context, dim, bits, kind, 11, centred ? centre : NULL);
                for (size_t r = 0; r < 20; r++)
                        check_row(&c, rows + r * dim, queries + r * dim);
                end(&c);
        }
        test_free(rows, queries, centre);
        dci_context_destroy(context);
}
END_TEST

/* Rows far from the origin, a few strong channels, queries with directions of their own. */
static float *make_rows(size_t n, size_t dim, uint64_t seed, double far)
{
        float *rows = test_normal(n, dim, seed);
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < dim; j++)
                        rows[i * dim + j] =
                                (float)(far + (double)rows[i * dim + j] * 4.0 / (1.0 + (double)((j * 7 + seed) % dim)));
        return rows;
}

/* Loops over dimensions, widths (long rows at 4 bits only, since fits of them take long) and codes for ranks or alone: rows of the sample, and rows that are
 * nothing like it. */
START_TEST(learned_estimates_keep_to_their_bound)
{
        enum { N = 400 };
        const size_t dim = dims[_i % N_DIMS];
        const int32_t bits = widths[_i / N_DIMS % N_WIDTHS];
        const bool alone = _i / N_DIMS / N_WIDTHS != 0;
        if (dim > 200 && bits != 4)
                return;
        dci_context *context = test_context(1);
        float *rows = make_rows(N, dim, 1, 3.0), *queries = make_rows(50, dim, 2, 0.0),
              *others = test_normal(20, dim, 3);
        static coding c;
        begin_learned(&c, context, dim, bits, alone, rows, N, queries, 50);
        const size_t words = (size_t)bits * dim + 16 < 64 ? 1 : ((size_t)bits * dim + 16) / 32;
        ck_assert_uint_le(c.coder.layout.n_bytes, words * 4 * DCI_CODE_ROWS);
        for (size_t r = 0; r < 20; r++) {
                check_row(&c, rows + r * dim, queries + r * dim);
                check_row(&c, others + r * dim, queries + r * dim);
                check_row(&c, rows + r * dim, others + r * dim);
        }
        end(&c);
        test_free(rows, queries, others);
        dci_context_destroy(context);
}
END_TEST

/* Mean square of the error of estimates, as a share of the variance of the products. */
static double error_share(coding *c, const float *rows, size_t n, const float *queries, size_t n_queries)
{
        const size_t dim = c->coder.dim;
        double error2 = 0.0, sum = 0.0, sum2 = 0.0;
        for (size_t q = 0; q < n_queries; q++) {
                dci_coded_query query;
                dci_coder_query(&c->coder, queries + q * dim, c->scratch, c->bytes, &query);
                for (size_t r = 0; r < n; r++) {
                        dci_coded_row coded;
                        encode(c, rows + r * dim, &coded);
                        const double truth = test_dot(rows + r * dim, queries + q * dim, dim) - (double)query.fixed;
                        error2 += pow((double)estimate_of(c, &query, coded.scale) - (double)query.fixed - truth, 2);
                        sum += truth;
                        sum2 += truth * truth;
                }
        }
        const double share = 1.0 / (double)(n * n_queries);
        return error2 * share / (sum2 * share - pow(sum * share, 2));
}

/* Loops over widths: where rows and queries have directions, a learned code errs less than a random one; each bit helps. */
START_TEST(learned_codes_err_less)
{
        enum { N = 2000, DIM = 64, QUERIES = 20 };
        dci_context *context = test_context(1);
        float *rows = make_rows(N, DIM, 1, 3.0), *queries = make_rows(QUERIES, DIM, 2, 0.0),
              *fit = make_rows(500, DIM, 2, 0.0);
        double before = 1.0;
        for (size_t w = 0; w < N_WIDTHS; w++) {
                static coding random, learned;
                begin_learned(&learned, context, DIM, widths[w], false, rows, N, fit, 500);
                begin(&random, context, DIM, widths[w], DCI_CODER_ROTATED, 1, learned.coder.centre);
                const double error = error_share(&learned, rows, 200, queries, QUERIES);
                /* In the end, rounding the query to bytes is what is left. */
                ck_assert_double_lt(error, fmax(0.7 * error_share(&random, rows, 200, queries, QUERIES), 2e-4));
                ck_assert_double_lt(error, fmax(0.7 * before, 2e-4));
                before = error;
                end(&random);
                end(&learned);
        }
        test_free(rows, queries, fit);
        dci_context_destroy(context);
}
END_TEST

/* Rows that do not vary are coded; queries that are zero teach nothing and are refused. */
START_TEST(fits_of_nothing_hold_or_are_refused)
{
        enum { DIM = 9 };
        dci_context *context = test_context(1);
        float same[20 * DIM], zero[2 * DIM] = {0}, *queries = test_normal(5, DIM, 1), *other = test_normal(1, DIM, 2);
        for (size_t i = 0; i < 20 * DIM; i++)
                same[i] = 2.5f;
        static coding c;
        begin_learned(&c, context, DIM, 2, false, same, 20, queries, 5);
        check_row(&c, same, queries);
        check_row(&c, other, queries);
        end(&c);
        ck_assert_int_eq(learn(&c, context, DIM, 2, false, queries, 5, zero, 2), DCI_ERR_NUMBER);
        ck_assert_ptr_nonnull(strstr(dci_last_error(), "mean square is 0"));
        end(&c);
        test_free(queries, other);
        dci_context_destroy(context);
}
END_TEST

/* Loops over sizes: A v = lambda v, orthonormal, descending. */
START_TEST(eigenvectors_are_eigenvectors)
{
        static const size_t sizes[] = {1, 2, 3, 4, 7, 64, 130};
        const size_t n = sizes[_i / 2];
        float *half = test_normal(n, n, (uint64_t)_i);
        double *a = malloc(n * n * sizeof *a), *kept = malloc(n * n * sizeof *a), *v = malloc(n * n * sizeof *a);
        double *values = malloc(n * sizeof *a), *work = malloc(2 * n * sizeof *a);
        for (size_t i = 0; i < n; i++) /* of rank n, or n / 2 + 1 */
                for (size_t j = 0; j < n; j++) {
                        const size_t rank = _i % 2 == 0 ? n : n / 2 + 1;
                        a[i * n + j] = kept[i * n + j] = test_dot(half + i * n, half + j * n, rank);
                }
        dci_context *context = test_context(1);
        ck_assert(dci_eigen(context->kernels, n, a, values, v, work));
        dci_context_destroy(context);
        for (size_t k = 0; k < n; k++) {
                ck_assert(k == 0 || values[k] <= values[k - 1]);
                for (size_t i = 0; i < n; i++) {
                        double image = 0.0, product = 0.0;
                        for (size_t j = 0; j < n; j++) {
                                image += kept[i * n + j] * v[k * n + j];
                                product += v[i * n + j] * v[k * n + j];
                        }
                        test_hold(fabs(image - values[k] * v[k * n + i]) <= 1e-11 * (values[0] + 1.0));
                        test_hold(fabs(product - (i == k)) <= 1e-11);
                }
        }
        test_free(half, a, kept, v, values, work);
}
END_TEST

/* Energies of all kinds, room from one word to more than can be used: no word overflows, no group comes twice, and more energy
 * never gets fewer bits. */
START_TEST(layouts_keep_to_their_room)
{
        dci_rng rng;
        int wide = 0;
        dci_rng_seed(&rng, 5);
        for (int round = 0; round < 2000; round++) {
                const size_t n_groups = 1 + dci_rng_below(&rng, 40), words = 1 + dci_rng_below(&rng, 42);
                const double steep = dci_rng_uniform(&rng);
                const int most = round % 2 == 0 ? DCI_CODE_TABLE : DCI_CODE_MIXED;
                double energy[40];
                uint32_t order[40];
                int bits[40] = {0}, used[256] = {0};
                for (size_t g = 0; g < n_groups; g++)
                        energy[g] = pow(steep, (double)g);
                dci_code_layout layout;
                memset(&layout, 0, sizeof layout);
                const size_t n = dci_plan_layout(n_groups, energy, words, most, &layout, order);
                const size_t n_whole = layout.n_coords[DCI_CODE_8] / 4;
                test_hold(n == n_whole + layout.n_groups && n <= n_groups && n >= 1);
                test_hold(n_whole + layout.n_lines <= words);
                for (size_t i = 0; i < n; i++) {
                        test_hold(order[i] < n_groups && bits[order[i]] == 0);
                        bits[order[i]] = i < n_whole ? 8 : layout.groups[i - n_whole].bits;
                        if (i >= n_whole) {
                                const dci_code_group *group = &layout.groups[i - n_whole];
                                test_hold(group->line < layout.n_lines && group->bits >= 1 && group->bits <= most);
                                test_hold(group->shift == used[group->line]);
                                used[group->line] += group->bits;
                                test_hold(used[group->line] <= 8);
                        }
                }
                for (size_t g = 1; g < n_groups; g++)
                        test_hold(bits[g] <= bits[g - 1] + 1);
                wide += layout.n_groups > 0 && layout.groups[0].bits > DCI_CODE_TABLE;
        }
        ck_assert_int_gt(wide, 100); /* of 1,000 that may */
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
        const double truth = test_dot(row, query, DIM);
        for (uint64_t seed = 0; seed < DRAWS; seed++) {
                static coding c;
                dci_coded_row kept;
                dci_coded_query coded;
                begin(&c, context, DIM, widths[_i], DCI_CODER_ROTATED, seed, NULL);
                encode(&c, row, &kept);
                dci_coder_query(&c.coder, query, c.scratch, c.bytes, &coded);
                const float estimate = estimate_of(&c, &coded, kept.scale);
                sum += (double)estimate - truth;
                sum2 += pow((double)estimate - truth, 2);
                spread += pow((double)kept.residual * (double)coded.length, 2) / DIM +
                          pow((double)coded.rounding * (double)kept.reach, 2) / DIM;
                end(&c);
        }
        const double deviation = sqrt(sum2 / DRAWS);
        ck_assert_double_le(fabs(sum / DRAWS), 4.0 * deviation / sqrt(DRAWS));
        ck_assert_double_le(deviation, 1.25 * sqrt(spread / DRAWS));
        test_free(row, query);
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
                float back[40], zero[40] = {0};
                dci_coded_row coded;
                dci_coded_query query;
                begin(&c, context, 40, widths[w], DCI_CODER_ROTATED, 1, centre);
                encode(&c, centre, &coded);
                ck_assert(coded.scale == 0.0f && coded.residual == 0.0f && coded.reach == 0.0f);
                dci_coder_decode(&c.coder, c.codes, coded.scale, c.scratch, back);
                ck_assert_mem_eq(back, centre, sizeof back);
                dci_coder_query(&c.coder, centre, c.scratch, c.bytes, &query);
                ck_assert_float_eq(estimate_of(&c, &query, coded.scale), query.fixed);
                dci_coder_query(&c.coder, zero, c.scratch, c.bytes, &query);
                ck_assert_float_eq(estimate_of(&c, &query, 1.0f), 0.0f);
                end(&c);
        }
        free(centre);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("coder");
        TCase *tcase = test_case(suite, "laws", 60);
        tcase_add_loop_test(tcase, rotations_are_orthogonal, 0, N_DIMS);
        tcase_add_test(tcase, rotations_spread_what_is_concentrated);
        tcase_add_loop_test(tcase, estimates_keep_to_their_bound, 0, 2 * N_DIMS * N_WIDTHS);
        tcase_add_loop_test(tcase, learned_estimates_keep_to_their_bound, 0, 2 * N_DIMS * N_WIDTHS);
        tcase_add_test(tcase, learned_codes_err_less);
        tcase_add_test(tcase, fits_of_nothing_hold_or_are_refused);
        tcase_add_loop_test(tcase, eigenvectors_are_eigenvectors, 0, 14);
        tcase_add_test(tcase, layouts_keep_to_their_room);
        tcase_add_loop_test(tcase, random_codes_are_unbiased, 0, N_WIDTHS);
        tcase_add_test(tcase, nothing_is_estimated_as_nothing);
        return test_main(suite);
}
