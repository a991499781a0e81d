/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The kernels of attention, of every level of this machine: exponentials, and rows summed by the weights of several queries. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/simd_reference.h"

#include <float.h>
#include <string.h>

#include "simd/cpu.h"

#define SWEEP ((size_t)400000)
#define EXP_ERROR 1.5e-7 /* as gpu/args/rows.h states it */

/* n differences from low to high, both included. */
static float *sweep(size_t n, double low, double high)
{
        float *values = malloc(n * sizeof *values);
        ck_assert_ptr_nonnull(values);
        for (size_t i = 0; i < n; i++)
                values[i] = (float)(low + (high - low) * (double)i / (double)(n - 1));
        return values;
}

static double exp_error(float got, float difference)
{
        const double wanted = exp((double)difference);
        return fabs((double)got - wanted) / wanted;
}

/* Over the whole range, and finely around 0, where most weights are; with a shift, the difference is a float first. */
START_TEST(exponentials_are_right_to_their_last_bit_or_so)
{
        static const struct {
                double low, high;
                float shift;
        } cases[] = {{-87, 20, 0}, {20, 88, 0}, {-2, 2, 0}, {-1e-3, 1e-3, 0}, {-87, 20, 13.37f}, {-60, 5, -421.3f}};
        const dci_kernels *kernels = test_kernels_of_level((size_t)_i);
        for (size_t c = 0; c < COUNT(cases); c++) {
                const float shift = cases[c].shift;
                float *values = sweep(SWEEP, cases[c].low + (double)shift, cases[c].high + (double)shift);
                float *got = sweep(SWEEP, cases[c].low + (double)shift, cases[c].high + (double)shift);
                kernels->exp_all(got, SWEEP, shift);
                for (size_t i = 0; i < SWEEP; i++) {
                        const float difference = values[i] - shift;
                        if (difference >= -87.0f && difference <= 88.0f &&
                            !(exp_error(got[i], difference) <= EXP_ERROR))
                                ck_abort_msg("exp(%a) is not %a: error %g", (double)difference, (double)got[i],
                                             exp_error(got[i], difference));
                }
                test_free(values, got);
        }
}
END_TEST

START_TEST(exponentials_end_in_zero)
{
        const dci_kernels *kernels = test_kernels_of_level((size_t)_i);
        float *values = sweep(SWEEP, -88.5, -87);
        kernels->exp_all(values, SWEEP, 0.0f);
        for (size_t i = 0; i < SWEEP; i++)
                test_hold(values[i] >= 0.0f && values[i] <= 2e-38f);
        free(values);
        const float far[] = {-INFINITY, -FLT_MAX, -1e30f, -3e9f, -88.0f, -100.0f, -1000.0f, -12345.6f};
        const float zeros[2 * COUNT(far)] = {0};
        for (size_t n = 1; n <= 2 * COUNT(far); n++) { /* in whole vectors and in what follows them */
                float some[2 * COUNT(far)];
                for (size_t i = 0; i < n; i++)
                        some[i] = far[i % COUNT(far)];
                ck_assert(kernels->exp_all(some, n, 0.0f) == 0.0f);
                ck_assert(memcmp(some, zeros, n * sizeof *some) == 0);
        }
        float edge[] = {7.25f, -INFINITY};
        ck_assert(kernels->exp_all(edge, 2, 7.25f) == 1.0f && edge[0] == 1.0f && edge[1] == 0.0f);
}
END_TEST

/* The sum is that of the results, in the canonical order; what is before and after them is left alone, and so are they by how
 * many there are. */
START_TEST(exponentials_are_summed_in_the_canonical_order)
{
        static const size_t beyond_70[] = {96, 255, 256, 1000, 4097};
        enum { MOST = 4097 };
        const dci_kernels *kernels = test_kernels_of_level((size_t)_i);
        unsigned char *end = guard((MOST + 1) * sizeof(float));
        float *all = test_normal(MOST, 1, 3), ones[MOST];
        for (size_t i = 0; i < MOST; i++) {
                all[i] = 5.0f * all[i] - 8.0f;
                ones[i] = 1.0f;
        }
        for (size_t c = 0; c <= 70 + COUNT(beyond_70); c++) {
                const size_t n = c <= 70 ? c : beyond_70[c - 71];
                float *values = last_bytes(end, n * sizeof *values);
                double wanted = 0;
                memcpy(values, all, n * sizeof *values);
                values[-1] = 0x1.234p99f;
                const float sum = kernels->exp_all(values, n, 1.5f);
                test_hold(values[-1] == 0x1.234p99f);
                for (size_t i = 0; i < n; i++) {
                        const float difference = all[i] - 1.5f;
                        test_hold(exp_error(values[i], difference) <= EXP_ERROR);
                        wanted += exp((double)difference);
                }
                test_hold(sum == canonical(DCI_FORM_DOT, true, values, ones, n));
                test_hold(fabs((double)sum - wanted) <= (EXP_ERROR + (double)(n / 16 + 6) * 0x1p-24) * wanted);
        }
        free(all);
}
END_TEST

/* A checksum of the bits of a sweep. Levels with fused multiply-add agree, so it is one number on every machine; whoever changes
 * the polynomial changes it. */
START_TEST(exponentials_are_the_same_bits_at_every_level)
{
        const dci_kernels *kernels = test_kernels_of_level((size_t)_i);
        float *values = sweep(SWEEP, -90, 60);
        const float sum = kernels->exp_all(values, SWEEP - 3, 1.25f);
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        for (size_t i = 0; i < SWEEP; i++) {
                uint32_t bits;
                memcpy(&bits, i + 3 < SWEEP ? &values[i] : &sum, sizeof bits);
                hash = (hash ^ bits) * UINT64_C(0x100000001b3);
        }
        if (kernels->isa != DCI_ISA_SCALAR)
                ck_assert_msg(hash == UINT64_C(0xfc1c28d7aaee0219), "%s: %016llx", dci_isa_name(kernels->isa),
                              (unsigned long long)hash);
        free(values);
}
END_TEST

#define MAX_ROWS 200
#define MAX_DIM 256

/* Rows of one format, one element apart so that they start at every alignment, out of order; weights; and what the outputs hold
 * before. All end at an unmapped page. */
typedef struct scene {
        dci_dtype dtype;
        size_t n_queries, n_rows, dim, ld_weights, ld_out;
        unsigned char *memory, *weight_memory, *out_memory; /* their ends */
        const float *numbers;
        const void *rows[MAX_ROWS];
        float wide[MAX_ROWS * MAX_DIM]; /* the rows' values, dim apart */
        float *weights, *out;
        float first[DCI_MANY_QUERIES * MAX_DIM]; /* dim apart */
} scene;

static void fill_rows(scene *s)
{
        const dci_kernels *plain = dci_kernels_for(DCI_ISA_SCALAR);
        const size_t size = dci_dtype_size(s->dtype), d = (size_t)s->dtype - 1, ld = s->dim + 1;
        unsigned char *base = last_bytes(s->memory, s->n_rows == 0 ? 0 : ((s->n_rows - 1) * ld + s->dim) * size);
        for (size_t i = 0; i < s->n_rows; i++) {
                unsigned char *row = base + (s->n_rows - 1 - i) * ld * size;
                plain->narrow[d](s->numbers + i * s->dim, s->dim, row);
                plain->to_f32[d](row, s->dim, s->wide + i * s->dim);
                s->rows[i] = row;
        }
}

static void fill_weights(scene *s)
{
        dci_rng rng;
        dci_rng_seed(&rng, s->dim * 1000 + s->n_rows * 8 + s->n_queries);
        s->ld_weights = s->n_rows + 2;
        s->ld_out = s->dim + 3;
        s->weights = last_bytes(s->weight_memory, ((s->n_queries - 1) * s->ld_weights + s->n_rows) * sizeof(float));
        s->out = last_bytes(s->out_memory, ((s->n_queries - 1) * s->ld_out + s->dim) * sizeof(float));
        for (size_t q = 0; q < s->n_queries; q++) {
                for (size_t i = 0; i < s->n_rows; i++)
                        s->weights[q * s->ld_weights + i] = (float)exp(3.0 * dci_rng_normal(&rng) - 6.0);
                for (size_t p = 0; p < s->dim; p++)
                        s->first[q * s->dim + p] = (float)dci_rng_normal(&rng);
        }
}

static void blend(scene *s, const dci_kernels *kernels)
{
        const size_t n_out = (s->n_queries - 1) * s->ld_out + s->dim;
        for (size_t i = 0; i < n_out; i++)
                s->out[i] = i % s->ld_out < s->dim ? s->first[i / s->ld_out * s->dim + i % s->ld_out] : 0x1.234p99f;
        kernels->blend_many[s->dtype - 1](s->rows, s->weights, s->ld_weights, s->n_queries, s->n_rows, s->dim, s->out,
                                          s->ld_out);
        for (size_t i = 0; i < n_out; i++)
                test_hold(i % s->ld_out < s->dim || s->out[i] == 0x1.234p99f);
}

/* Query q: the bits that add_rows gives and that the definition gives, with or without fused multiply-add, which makes them the
 * same at all levels but scalar; and near the exact sum: n_rows + 1 roundings (scalar: of products too). */
static bool blend_is_right(const scene *s, const dci_kernels *kernels, size_t q)
{
        const bool fused = kernels->isa != DCI_ISA_SCALAR;
        const float *weights = s->weights + q * s->ld_weights, *got = s->out + q * s->ld_out;
        float sums[MAX_DIM];
        memcpy(sums, s->first + q * s->dim, s->dim * sizeof *sums);
        kernels->add_rows[s->dtype - 1](s->rows, weights, s->n_rows, s->dim, sums);
        bool good = memcmp(sums, got, s->dim * sizeof *sums) == 0;
        for (size_t p = 0; p < s->dim; p++) {
                float sum = s->first[q * s->dim + p];
                double wanted = (double)sum, bound = fabs(wanted);
                for (size_t i = 0; i < s->n_rows; i++) {
                        const float x = s->wide[i * s->dim + p], product = x * weights[i];
                        sum = fused ? fmaf(x, weights[i], sum) : sum + product;
                        wanted += (double)x * (double)weights[i];
                        bound += fabs((double)x * (double)weights[i]);
                }
                good = good && got[p] == sum &&
                       fabs((double)got[p] - wanted) <= (double)(s->n_rows + 1) * 0x1p-24 * bound;
        }
        return good;
}

/* One format, at every level. Some row counts are more than what passes at a time. */
START_TEST(blends_are_the_sums_of_each_query)
{
        static const size_t dims[] = {1, 7, 15, 16, 17, 64, 80, 128, MAX_DIM}, counts[] = {0, 1, 3, 64, MAX_ROWS};
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        float *numbers = test_normal(MAX_ROWS, MAX_DIM, (uint64_t)_i);
        scene *s = calloc(1, sizeof *s);
        ck_assert_ptr_nonnull(s);
        s->dtype = (dci_dtype)_i;
        s->numbers = numbers;
        s->memory = guard(MAX_ROWS * (MAX_DIM + 1) * sizeof(float));
        s->weight_memory = guard(DCI_MANY_QUERIES * (MAX_ROWS + 2) * sizeof(float));
        s->out_memory = guard(DCI_MANY_QUERIES * (MAX_DIM + 3) * sizeof(float));
        for (size_t c = 0; c < COUNT(dims) * COUNT(counts); c++) {
                s->dim = dims[c / COUNT(counts)];
                s->n_rows = counts[c % COUNT(counts)];
                fill_rows(s);
                for (s->n_queries = 1; s->n_queries <= DCI_MANY_QUERIES; s->n_queries++) {
                        fill_weights(s);
                        for (size_t l = 0; l < n_isas; l++) {
                                blend(s, dci_kernels_for(isas[l]));
                                for (size_t q = 0; q < s->n_queries; q++)
                                        if (!blend_is_right(s, dci_kernels_for(isas[l]), q))
                                                ck_abort_msg("%s, %s: dim %zu, %zu rows, query %zu of %zu",
                                                             dci_isa_name(isas[l]), dci_dtype_name(s->dtype), s->dim,
                                                             s->n_rows, q, s->n_queries);
                        }
                }
        }
        test_free(numbers, s);
}
END_TEST

/* --- weights as whole numbers --------------------------------------------------------------------------------------------------- */

typedef struct split {
        float unit;
        int64_t total;
        int8_t high[DCI_SPLIT_MOST], low[DCI_SPLIT_MOST];
} split;

static split split_of(const dci_kernels *kernels, const float *terms, const float *scales, size_t n)
{
        split out = {0};
        out.unit = kernels->split_weights(terms, scales, n, out.high, out.low, &out.total);
        return out;
}

/* Loops over levels. Within half a unit, of which the greatest has DCI_SPLIT_UNITS. */
START_TEST(split_weights_are_products_to_14_bits)
{
        const dci_kernels *kernels = test_kernels_of_level((size_t)_i);
        float *terms = test_normal(1, DCI_SPLIT_MOST, 1), *scales = test_normal(1, DCI_SPLIT_MOST, 2);
        for (size_t n = 1; n <= DCI_SPLIT_MOST; n += 13) {
                int64_t total = 0, most = 0;
                for (size_t i = 0; i < n; i++) {
                        terms[i] = fabsf(terms[i]);
                        scales[i] = fabsf(scales[i]);
                }
                const split got = split_of(kernels, terms, scales, n);
                for (size_t i = 0; i < n; i++) {
                        const int64_t w = 128 * got.high[i] + got.low[i];
                        total += w;
                        most = w > most ? w : most;
                        test_hold(fabs((double)w * (double)got.unit - (double)terms[i] * (double)scales[i]) <=
                                  0.501 * (double)got.unit);
                }
                ck_assert(total == got.total && most == (int64_t)DCI_SPLIT_UNITS);
        }
        test_free(terms, scales);
}
END_TEST

/* Loops over levels. What no scale of ours can be is as if it were 0, wherever it is, and alone. */
START_TEST(scales_that_are_no_weights_count_nothing_and_change_no_other)
{
        enum { N = 37 };
        static const float bad[] = {INFINITY, -INFINITY, NAN, -1.0f, -3e38f};
        const dci_kernels *kernels = test_kernels_of_level((size_t)_i);
        for (size_t b = 0; b < COUNT(bad); b++)
                for (size_t at = 0; at < N; at++) {
                        float terms[N], scales[N];
                        for (size_t i = 0; i < N; i++) {
                                terms[i] = 1.0f / (float)(1 + i % 5);
                                scales[i] = (float)(1 + i % 7);
                        }
                        scales[at] = 0.0f;
                        const split without = split_of(kernels, terms, scales, N);
                        scales[at] = bad[b];
                        const split got = split_of(kernels, terms, scales, N),
                                    alone = split_of(kernels, terms + at, scales + at, 1);
                        ck_assert(isfinite(got.unit) && got.unit == without.unit && got.total == without.total);
                        ck_assert_mem_eq(got.high, without.high, sizeof got.high);
                        ck_assert_mem_eq(got.low, without.low, sizeof got.low);
                        ck_assert(alone.unit == 0.0f && alone.total == 0);
                }
}
END_TEST

int main(void)
{
        const int n_levels = (int)test_n_isas();
        Suite *suite = suite_create("simd_attention");
        TCase *tcase = test_case(suite, "simd_attention", 300);
        tcase_add_loop_test(tcase, exponentials_are_right_to_their_last_bit_or_so, 0, n_levels);
        tcase_add_loop_test(tcase, exponentials_end_in_zero, 0, n_levels);
        tcase_add_loop_test(tcase, exponentials_are_summed_in_the_canonical_order, 0, n_levels);
        tcase_add_loop_test(tcase, exponentials_are_the_same_bits_at_every_level, 0, n_levels);
        tcase_add_loop_test(tcase, split_weights_are_products_to_14_bits, 0, n_levels);
        tcase_add_loop_test(tcase, scales_that_are_no_weights_count_nothing_and_change_no_other, 0, n_levels);
        tcase_add_loop_test(tcase, blends_are_the_sums_of_each_query, DCI_F32, DCI_BF16 + 1);
        return test_main(suite);
}
