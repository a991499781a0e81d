/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The nearest of many centres for many points: what is proposed by whatever arithmetic, the canonical kernel decides. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "simd/nearest.h"

enum { MOST_CENTRES = 300, MOST_POINTS = 100, MOST_DIM = 130 };

static const struct {
        size_t n_centres, n_points, dim;
} shapes[] = {{1, 1, 1},    {2, 33, 1},    {31, 32, 7},    {32, 31, 64},
              {33, 64, 65}, {128, 65, 96}, {129, 100, 16}, {300, 100, 130}};

/* By the canonical score, equal ones by lower centre. */
static int32_t nearest_by_all(const dci_kernels *kernels, const float *centres, size_t ld, size_t n, size_t dim,
                              const float *point, float *out_score)
{
        int32_t best = -1;
        float most = -INFINITY;
        for (size_t c = 0; c < n; c++) {
                float score;
                kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](point, centres + c * ld, ld * sizeof *centres, 1, dim,
                                                                  &score);
                score -= 0.5f * kernels->norm2[DCI_F32 - 1](centres + c * ld, dim);
                if (score > most) {
                        most = score;
                        best = (int32_t)c;
                }
        }
        *out_score = most;
        return best;
}

static void compare(const dci_context *context, const dci_nearest *nearest, const float *points, size_t n_points,
                    void *scratch)
{
        int32_t found[MOST_POINTS];
        float scores[MOST_POINTS];
        dci_nearest_find(nearest, points, nearest->dim, n_points, scratch, found, scores);
        for (size_t i = 0; i < n_points; i++) {
                float score;
                const int32_t wanted = nearest_by_all(context->kernels, nearest->centres, nearest->ld, nearest->n,
                                                      nearest->dim, points + i * nearest->dim, &score);
                ck_assert_int_eq(found[i], wanted);
                ck_assert(memcmp(&scores[i], &score, sizeof score) == 0);
        }
}

/* Loops over shapes; every instruction set. Some centres equal each other. */
START_TEST(the_nearest_is_what_the_canonical_kernel_says)
{
        const size_t n = shapes[_i].n_centres, n_points = shapes[_i].n_points, dim = shapes[_i].dim, ld = dim + 3;
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        float *centres = test_normal(n, ld, 1), *points = test_normal(n_points, dim, 2);
        for (size_t c = 5; c < n; c += 5)
                memcpy(centres + c * ld, centres + (c - 5) * ld, dim * sizeof *centres);
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_isa(isas[i]);
                const size_t n_bytes = dci_nearest_bytes(context, n, dim);
                void *memory = dci_alloc(context, n_bytes, 1);
                dci_nearest nearest;
                dci_nearest_prepare(context, centres, ld, n, dim, memory, &nearest);
                const size_t scratch_bytes = dci_nearest_scratch_bytes(context, nearest.dim);
                void *scratch = dci_alloc(context, scratch_bytes, 1);
                compare(context, &nearest, points, n_points, scratch);
                dci_free(context, scratch, scratch_bytes, 1);
                dci_free(context, memory, n_bytes, 1);
                dci_context_destroy(context);
        }
        free(centres);
        free(points);
}
END_TEST

START_TEST(centres_that_come_go_and_change_are_as_if_made_ready_anew)
{
        enum { DIM = 40, N = 120, POINTS = 40 };
        dci_context *context = test_context(1);
        float *centres = test_normal(N, DIM, 3), *others = test_normal(N, DIM, 4),
              *points = test_normal(POINTS, DIM, 5);
        const size_t small = dci_nearest_bytes(context, 64, DIM), large = dci_nearest_bytes(context, N, DIM);
        void *memory[2] = {dci_alloc(context, small, 1), dci_alloc(context, large, 1)};
        dci_nearest nearest, moved;
        dci_nearest_init(context, centres, DIM, 64, DIM, memory[0], &nearest);
        const size_t scratch_bytes = dci_nearest_scratch_bytes(context, nearest.dim);
        void *scratch = dci_alloc(context, scratch_bytes, 1);
        for (size_t i = 0; i < 64; i++) {
                dci_nearest_resize(&nearest, i + 1);
                dci_nearest_put(&nearest, i);
        }
        compare(context, &nearest, points, POINTS, scratch);
        for (size_t i = 0; i < 64; i += 3) {
                memcpy(centres + i * DIM, others + i * DIM, DIM * sizeof *centres);
                dci_nearest_put(&nearest, i);
        }
        compare(context, &nearest, points, POINTS, scratch);
        dci_nearest_resize(&nearest, 17);
        compare(context, &nearest, points, POINTS, scratch);
        dci_nearest_move(context, &nearest, centres, N, memory[1], &moved);
        compare(context, &moved, points, POINTS, scratch);
        for (size_t i = 17; i < N; i++) {
                dci_nearest_resize(&moved, i + 1);
                dci_nearest_put(&moved, i);
        }
        compare(context, &moved, points, POINTS, scratch);
        dci_free(context, scratch, scratch_bytes, 1);
        dci_free(context, memory[0], small, 1);
        dci_free(context, memory[1], large, 1);
        dci_context_destroy(context);
        free(centres);
        free(others);
        free(points);
}
END_TEST

/* Far from the origin bounds are wide: everything may be proposed, and the answer stays. */
START_TEST(long_centres_cost_time_and_nothing_else)
{
        enum { DIM = 64, N = 90, POINTS = 33 };
        dci_context *context = test_context(1);
        float *centres = test_normal(N, DIM, 6), *points = test_normal(POINTS, DIM, 7);
        for (size_t i = 0; i < N * DIM; i++)
                centres[i] = 1000.0f + 0.01f * centres[i];
        for (size_t i = 0; i < POINTS * DIM; i++)
                points[i] = 1000.0f + 0.01f * points[i];
        const size_t n_bytes = dci_nearest_bytes(context, N, DIM);
        void *memory = dci_alloc(context, n_bytes, 1);
        dci_nearest nearest;
        dci_nearest_prepare(context, centres, DIM, N, DIM, memory, &nearest);
        const size_t scratch_bytes = dci_nearest_scratch_bytes(context, nearest.dim);
        void *scratch = dci_alloc(context, scratch_bytes, 1);
        compare(context, &nearest, points, POINTS, scratch);
        dci_free(context, scratch, scratch_bytes, 1);
        dci_free(context, memory, n_bytes, 1);
        dci_context_destroy(context);
        free(centres);
        free(points);
}
END_TEST

/* Sums of rows: every instruction set, format and tail; from avx2 on the same bits. */
START_TEST(sums_of_rows_are_those_of_a_loop)
{
        static const size_t dims[] = {1, 15, 16, 17, 63, 64, 65, 80, 130};
        enum { N = 19 };
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        float *numbers = test_normal(N, MOST_DIM, 8), *weights = test_normal(N, 1, 9);
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_isa(isas[i]);
                const dci_kernels *kernels = context->kernels;
                for (dci_dtype dtype = DCI_F32; dtype <= DCI_BF16; dtype++)
                        for (size_t d = 0; d < 2 * sizeof dims / sizeof dims[0]; d++) {
                                const size_t dim = dims[d / 2], size = dim * dci_dtype_size(dtype);
                                unsigned char *rows = malloc(N * size);
                                const void *pointers[N];
                                float sum[MOST_DIM], wide[MOST_DIM];
                                double wanted[MOST_DIM], bound[MOST_DIM];
                                for (size_t p = 0; p < dim; p++) {
                                        sum[p] = (float)p;
                                        wanted[p] = bound[p] = (double)p;
                                }
                                for (size_t r = 0; r < N; r++) {
                                        const double weight = d % 2 == 0 ? 1.0 : (double)weights[r];
                                        kernels->narrow[dtype - 1](numbers + r * MOST_DIM, dim, rows + r * size);
                                        kernels->widen[dtype - 1](rows + r * size, dim, wide);
                                        pointers[r] = rows + r * size;
                                        for (size_t p = 0; p < dim; p++) {
                                                wanted[p] += weight * (double)wide[p];
                                                bound[p] += fabs(weight * (double)wide[p]);
                                        }
                                }
                                kernels->add_rows[dtype - 1](pointers, d % 2 == 0 ? NULL : weights, N, dim, sum);
                                for (size_t p = 0; p < dim; p++)
                                        ck_assert_double_le(fabs((double)sum[p] - wanted[p]), 40 * 0x1p-24 * bound[p]);
                                free(rows);
                        }
                dci_context_destroy(context);
        }
        free(numbers);
        free(weights);
}
END_TEST

START_TEST(the_best_of_each_column_is_that_of_a_loop)
{
        enum { ROWS = 37, COLUMNS = 48, LD = 50 };
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        float *products = test_normal(ROWS, LD, 10), *offsets = test_normal(ROWS, 1, 11), out[COLUMNS];
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_isa(isas[i]);
                context->kernels->columns_best(products, LD, ROWS, COLUMNS, offsets, out);
                for (size_t c = 0; c < COLUMNS; c++) {
                        float best = -INFINITY;
                        for (size_t r = 0; r < ROWS; r++)
                                best = fmaxf(best, products[r * LD + c] - offsets[r]);
                        ck_assert(out[c] == best);
                }
                dci_context_destroy(context);
        }
        free(products);
        free(offsets);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("nearest");
        TCase *tcase = tcase_create("laws");
        tcase_set_timeout(tcase, 60);
        tcase_add_loop_test(tcase, the_nearest_is_what_the_canonical_kernel_says, 0, sizeof shapes / sizeof shapes[0]);
        tcase_add_test(tcase, centres_that_come_go_and_change_are_as_if_made_ready_anew);
        tcase_add_test(tcase, long_centres_cost_time_and_nothing_else);
        tcase_add_test(tcase, sums_of_rows_are_those_of_a_loop);
        tcase_add_test(tcase, the_best_of_each_column_is_that_of_a_loop);
        suite_add_tcase(suite, tcase);
        return test_main(suite);
}
