/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The kernels of P-DCI and the selection by sampling, at every level of this machine, against plain loops. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/simd_reference.h"

#include <math.h>
#include <string.h>

#include "simd/cpu.h"
#include "simd/select.h"

enum { MAX_ROWS = 300, MAX_SIMPLE = 18, MAX_VALUES = 20000 };

/* Small whole numbers, so that many are equal, or normal ones; infinities where asked for. */
static float number(dci_rng *rng, bool whole, bool infinite)
{
        size_t choice = (size_t)dci_rng_below(rng, 16);
        if (infinite && choice < 2)
                return choice == 0 ? INFINITY : -INFINITY;
        return whole ? (float)dci_rng_below(rng, 9) - 4 : (float)dci_rng_normal(rng);
}

/* --- projected differences --------------------------------------------------------------------------------------------- */

static float wanted_difference(const dci_kernels *kernels, const float *projections, size_t stride, size_t n_simple,
                               const float *query, const float *weights, const float *lifts, size_t row)
{
        float most = 0;
        for (size_t j = 0; j < n_simple; j++) {
                float x = projections[j * stride + row];
                if (lifts != NULL) {
                        float product = weights[j] * lifts[row];
                        x = kernels->isa == DCI_ISA_SCALAR ? x + product : fmaf(weights[j], lifts[row], x);
                }
                most = fmaxf(most, fabsf(x - query[j]));
        }
        return most;
}

START_TEST(farthest_is_the_largest_difference_of_each_row)
{
        const dci_kernels *kernels = test_kernels_of_level(_i);
        unsigned char *g[5] = {guard((MAX_ROWS + 9) * MAX_SIMPLE * 4), guard(4096), guard(4096), guard(4096),
                               guard(4096)};
        dci_rng rng;
        dci_rng_seed(&rng, 1);
        for (size_t n = 0; n <= MAX_ROWS; n += n < 140 ? 1 : 16) {
                const size_t n_simple = 1 + n % MAX_SIMPLE, stride = n + n % 10;
                const size_t n_projections = n == 0 ? 0 : (n_simple - 1) * stride + n;
                float *projections = last_bytes(g[0], n_projections * sizeof(float));
                float *query = last_bytes(g[1], n_simple * sizeof(float));
                float *weights = last_bytes(g[2], n_simple * sizeof(float)),
                      *lifts = last_bytes(g[3], n * sizeof(float));
                float *out = last_bytes(g[4], n * sizeof(float));
                for (size_t i = 0; i < n_projections; i++)
                        projections[i] = number(&rng, n % 3 == 0, false) * (n % 7 == 6 ? 1e18f : 1);
                for (size_t i = 0; i < n; i++)
                        lifts[i] = fabsf(number(&rng, n % 3 == 0, false));
                for (size_t j = 0; j < n_simple; j++) {
                        query[j] = number(&rng, n % 3 == 0, false);
                        weights[j] = number(&rng, n % 3 == 0, false);
                }
                for (int lifted = 0; lifted < 2; lifted++) {
                        memset(out, 0xff, n * sizeof *out);
                        kernels->farthest(projections, stride, n_simple, query, lifted ? weights : NULL,
                                          lifted ? lifts : NULL, n, out);
                        for (size_t i = 0; i < n; i++) {
                                float wanted = wanted_difference(kernels, projections, stride, n_simple, query, weights,
                                                                 lifted ? lifts : NULL, i);
                                if (out[i] != wanted || signbit(out[i]))
                                        ck_abort_msg("row %zu of %zu, %zu simple indices, lifted %d: %a, wanted %a", i,
                                                     n, n_simple, lifted, (double)out[i], (double)wanted);
                        }
                }
        }
}
END_TEST

START_TEST(lift_is_what_the_norm_leaves_of_c)
{
        const dci_kernels *kernels = test_kernels_of_level(_i);
        unsigned char *in = guard(4096), *results = guard(4096);
        dci_rng rng;
        dci_rng_seed(&rng, 2);
        for (size_t n = 0; n <= 150; n++) {
                const float c_squared = n % 4 == 3 ? 0.0f : ldexpf(1, (int)(n % 12));
                float *norms2 = last_bytes(in, n * sizeof *norms2), *out = last_bytes(results, n * sizeof *out);
                for (size_t i = 0; i < n; i++) /* beyond c, too: nothing is left then */
                        norms2[i] = i % 5 == 4 ? c_squared : (float)(dci_rng_uniform(&rng) * 1.5) * c_squared;
                memset(out, 0xff, n * sizeof *out);
                kernels->lift(norms2, n, c_squared, out);
                for (size_t i = 0; i < n; i++) {
                        float rest = c_squared - norms2[i], wanted = rest > 0 ? sqrtf(rest) : 0;
                        ck_assert_msg(out[i] == wanted, "%zu of %zu: %a, wanted %a", i, n, (double)out[i],
                                      (double)wanted);
                }
        }
}
END_TEST

/* --- one pass over values ------------------------------------------------------------------------------------------------ */

static void check_between(const dci_kernels *kernels, unsigned char *const g[2], size_t n, float low, float high)
{
        const float *values = last_bytes(g[0], n * sizeof *values);
        float *kept = last_bytes(g[1], (n + 16) * sizeof *kept);
        size_t below = 7, wanted_below = 7, wanted = 0;
        size_t count = kernels->keep_between(values, n, low, high, kept, &below);
        for (size_t i = 0; i < n; i++) {
                wanted_below += values[i] < low;
                if (!(values[i] >= low && values[i] <= high))
                        continue;
                if (wanted >= count || kept[wanted] != values[i])
                        ck_abort_msg("entry %zu of %zu values between %g and %g", wanted, n, (double)low, (double)high);
                wanted++;
        }
        ck_assert_uint_eq(count, wanted);
        ck_assert_uint_eq(below, wanted_below);
        if (n > 0 || low > high)
                ck_assert_uint_eq(dci_count_less(kernels, values, n, low), wanted_below - 7);
}

START_TEST(keep_between_keeps_the_interval_and_counts_what_is_below)
{
        static const float bounds[] = {-INFINITY, -4.0f, -1.0f, -0.0f, 0.0f, 0.3f, 2.0f, 4.0f, INFINITY};
        const dci_kernels *kernels = test_kernels_of_level(_i);
        unsigned char *g[2] = {guard(4096), guard(4096)};
        dci_rng rng;
        dci_rng_seed(&rng, 3);
        for (size_t n = 0; n <= 260; n += n < 140 ? 1 : 7) {
                float *values = last_bytes(g[0], n * sizeof *values);
                for (size_t i = 0; i < n; i++)
                        values[i] = number(&rng, n % 2 == 0, true);
                for (size_t b = 0; b < COUNT(bounds) * COUNT(bounds); b++)
                        check_between(kernels, g, n, bounds[b / COUNT(bounds)], bounds[b % COUNT(bounds)]);
        }
}
END_TEST

START_TEST(mark_at_most_sets_bits_and_clears_none)
{
        static const float limits[] = {-INFINITY, -1.0f, -0.0f, 0.0f, 0.3f, 3.0f, INFINITY};
        const dci_kernels *kernels = test_kernels_of_level(_i);
        unsigned char *in = guard(4096), *results = guard(4096);
        dci_rng rng;
        dci_rng_seed(&rng, 4);
        for (size_t n = 0; n <= 260; n++) {
                const size_t words = (n + 63) / 64;
                float *values = last_bytes(in, n * sizeof *values);
                uint64_t *bits = last_bytes(results, words * sizeof *bits), before[5];
                for (size_t i = 0; i < n; i++)
                        values[i] = number(&rng, n % 2 == 0, true);
                for (size_t l = 0; l < COUNT(limits); l++) {
                        for (size_t w = 0; w < words; w++) {
                                before[w] = dci_rng_next(&rng);
                                before[w] &= dci_rng_next(&rng);
                                bits[w] = before[w];
                        }
                        kernels->mark_at_most(values, n, limits[l], bits);
                        for (size_t i = 0; i < words * 64; i++) {
                                bool wanted = (before[i / 64] >> i % 64 & 1) != 0 || (i < n && values[i] <= limits[l]);
                                if ((bits[i / 64] >> i % 64 & 1) != wanted)
                                        ck_abort_msg("bit %zu of %zu, limit %g", i, n, (double)limits[l]);
                        }
                }
        }
}
END_TEST

/* --- the k-th smallest ----------------------------------------------------------------------------------------------------- */

static void sort_values(const float *values, size_t n, float *out)
{
        memcpy(out, values, n * sizeof *out);
        qsort(out, n, sizeof *out, test_floats_ascend);
}

START_TEST(kth_smallest_is_what_sorting_says)
{
        const dci_kernels *kernels = test_kernels_of_level(_i);
        unsigned char *in = guard(4096), *scratch = guard(4096);
        float sorted[MAX_ROWS];
        dci_rng rng;
        dci_rng_seed(&rng, 5);
        for (size_t n = 1; n <= MAX_ROWS; n += 1 + n / 12) {
                float *values = last_bytes(in, n * sizeof *values);
                int32_t *order = last_bytes(scratch, n * sizeof *order);
                for (size_t i = 0; i < n; i++)
                        values[i] = number(&rng, n % 2 == 0, n % 3 == 0) * (n % 5 == 4 ? 1e30f : 1);
                sort_values(values, n, sorted);
                for (size_t k = 1; k <= n; k++) {
                        float got = kernels->kth_smallest(values, n, k, order);
                        ck_assert_msg(got == sorted[k - 1], "%zu-th of %zu: %a, wanted %a", k, n, (double)got,
                                      (double)sorted[k - 1]);
                }
        }
}
END_TEST

/* How values lie. MISLEADING: whatever a regular sample reads is larger than nearly all others. */
enum { NORMAL, WHOLE, EQUAL, RISING, FALLING, MISLEADING, MOSTLY_INFINITE, N_FORMS };

static void fill_values(int form, size_t n, float *out)
{
        dci_rng rng;
        dci_rng_seed(&rng, n);
        for (size_t i = 0; i < n; i++) {
                float x = (float)dci_rng_normal(&rng);
                switch (form) {
                case WHOLE:
                        x = floorf(x * 3);
                        break;
                case EQUAL:
                        x = 2.5f;
                        break;
                case RISING:
                        x = (float)i;
                        break;
                case FALLING:
                        x = -(float)i;
                        break;
                case MISLEADING:
                        x = fabsf(x) + (i % (n / 1024 > 0 ? n / 1024 : 1) == 0 ? 100.0f : 0.0f);
                        break;
                case MOSTLY_INFINITE:
                        x = i % 10 == 3 ? fabsf(x) : INFINITY;
                        break;
                default:
                        break;
                }
                out[i] = x;
        }
}

START_TEST(select_is_what_sorting_says)
{
        static const size_t sizes[] = {1,    2,    15,   16,   17,   300,  1023, 4095, DCI_SELECT_FEW,
                                       4097, 4111, 5120, 8192, 9999, 16384};
        static const double shares[] = {0, 0.001, 0.01, 0.1, 0.37, 0.5, 0.9, 0.99, 0.9999, 1};
        const dci_kernels *kernels = test_kernels_of_level(_i);
        unsigned char *in = guard(MAX_VALUES * 4), *keep = guard(MAX_VALUES * 4), *around = guard(MAX_VALUES * 4);
        float *sorted = malloc(MAX_VALUES * sizeof *sorted);
        for (size_t c = 0; c < COUNT(sizes) * N_FORMS; c++) {
                const size_t n = sizes[c / N_FORMS];
                const int form = (int)(c % N_FORMS);
                float *values = last_bytes(in, n * sizeof *values), *kept = last_bytes(keep, (n + 16) * sizeof *kept);
                int32_t *order = last_bytes(around, (n + DCI_SELECT_SAMPLE) * sizeof *order);
                fill_values(form, n, values);
                sort_values(values, n, sorted);
                for (size_t s = 0; s < COUNT(shares); s++) {
                        const size_t k = 1 + (size_t)(shares[s] * (double)(n - 1));
                        const dci_rank rank = dci_select(kernels, values, n, k, kept, order);
                        size_t less = 0, equal = 0;
                        for (size_t i = 0; i < n; i++) {
                                less += values[i] < sorted[k - 1];
                                equal += values[i] == sorted[k - 1];
                        }
                        /* An infinite value says only that fewer than k are finite. */
                        bool good = rank.value == sorted[k - 1] && rank.n_less == less;
                        good = good && (rank.n_equal == equal || isinf(rank.value));
                        ck_assert_msg(good, "form %d, %zu-th of %zu: %a with %zu less and %zu equal, wanted %a %zu %zu",
                                      form, k, n, (double)rank.value, rank.n_less, rank.n_equal, (double)sorted[k - 1],
                                      less, equal);
                }
        }
        free(sorted);
}
END_TEST

START_TEST(bounds_from_a_sample_nearly_always_hold_the_kth)
{
        enum { TRIALS = 400, N = 6000, M = DCI_SELECT_SAMPLE };
        const dci_kernels *kernels = test_kernels_of_level(_i);
        float *sorted = malloc(N * sizeof *sorted), sample[M];
        int32_t order[M];
        size_t missed = 0, wide = 0;
        float *values = test_normal(N, 1, 6);
        dci_rng rng;
        dci_rng_seed(&rng, 7);
        sort_values(values, N, sorted);
        for (size_t t = 0; t < TRIALS; t++) {
                const size_t k = 1 + (size_t)dci_rng_below(&rng, N);
                float low, high;
                for (size_t i = 0; i < M; i++)
                        sample[i] = values[dci_rng_below(&rng, N)];
                dci_select_bounds(kernels, sample, M, N, k, order, &low, &high);
                missed += sorted[k - 1] < low || sorted[k - 1] > high;
                ck_assert(low <= high);
                size_t between = 0;
                for (size_t i = 0; i < N; i++)
                        between += values[i] >= low && values[i] <= high;
                wide += between > N / 4;
        }
        ck_assert_uint_le(missed, 2);
        ck_assert_uint_eq(wide, 0); /* bounds that keep everything would be no help */
        test_free(sorted, values);
}
END_TEST

int main(void)
{
        const int n = (int)test_n_isas();
        Suite *suite = suite_create("select");
        TCase *tcase = test_case(suite, "select", 300);
        tcase_add_loop_test(tcase, farthest_is_the_largest_difference_of_each_row, 0, n);
        tcase_add_loop_test(tcase, lift_is_what_the_norm_leaves_of_c, 0, n);
        tcase_add_loop_test(tcase, keep_between_keeps_the_interval_and_counts_what_is_below, 0, n);
        tcase_add_loop_test(tcase, mark_at_most_sets_bits_and_clears_none, 0, n);
        tcase_add_loop_test(tcase, kth_smallest_is_what_sorting_says, 0, n);
        tcase_add_loop_test(tcase, select_is_what_sorting_says, 0, n);
        tcase_add_loop_test(tcase, bounds_from_a_sample_nearly_always_hold_the_kth, 0, n);
        return test_main(suite);
}
