/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The nearest of many centres for many points: what is proposed by whatever arithmetic, the canonical kernel decides. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "simd/nearest.h"

enum { MAX_CENTRES = 300, MAX_POINTS = 100, MAX_DIM = 130 };

static const struct {
        size_t n_centres, n_points, dim;
} shapes[] = {{1, 1, 1},    {2, 33, 1},    {31, 32, 7},    {32, 31, 64},
              {33, 64, 65}, {128, 65, 96}, {129, 100, 16}, {300, 100, 130}};

/* Centres made ready, with memory for no more of them and one worker's scratch. */
typedef struct ready {
        dci_context *context;
        size_t bytes, scratch_bytes;
        void *memory, *scratch;
        dci_nearest nearest;
} ready;

static ready make_ready(dci_context *context, const float *centres, size_t ld, size_t n, size_t dim)
{
        ready r = {.context = context, .bytes = dci_nearest_bytes(context, n, dim)};
        r.scratch_bytes = dci_nearest_scratch_bytes(context, dim);
        r.memory = dci_alloc(context, r.bytes, 1);
        r.scratch = dci_alloc(context, r.scratch_bytes, 1);
        dci_nearest_prepare(context, centres, ld, n, dim, r.memory, &r.nearest);
        return r;
}

/* And destroys the context. */
static void drop(ready *r)
{
        dci_free(r->context, r->scratch, r->scratch_bytes, 1);
        dci_free(r->context, r->memory, r->bytes, 1);
        dci_context_destroy(r->context);
}

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

static void compare(const dci_nearest *nearest, const float *points, size_t n_points, void *scratch)
{
        int32_t found[MAX_POINTS];
        float scores[MAX_POINTS];
        dci_nearest_find(nearest, points, nearest->dim, n_points, scratch, found, scores);
        for (size_t i = 0; i < n_points; i++) {
                float score;
                const int32_t wanted = nearest_by_all(nearest->kernels, nearest->centres, nearest->ld, nearest->n,
                                                      nearest->dim, points + i * nearest->dim, &score);
                ck_assert_int_eq(found[i], wanted);
                ck_assert(memcmp(&scores[i], &score, sizeof score) == 0);
        }
        /* Unless scores are wanted, what is sure is not scored: the answer is the same. */
        int32_t again[MAX_POINTS];
        dci_nearest_find(nearest, points, nearest->dim, n_points, scratch, again, NULL);
        ck_assert_mem_eq(again, found, n_points * sizeof *found);
}

/* Loops over shapes; every instruction set. Some centres equal each other. */
START_TEST(the_nearest_is_what_the_canonical_kernel_says)
{
        const size_t n = shapes[_i].n_centres, n_points = shapes[_i].n_points, dim = shapes[_i].dim, ld = dim + 3;
        const size_t n_isas = test_n_isas();
        float *centres = test_normal(n, ld, 1), *points = test_normal(n_points, dim, 2);
        for (size_t c = 5; c < n; c += 5)
                memcpy(centres + c * ld, centres + (c - 5) * ld, dim * sizeof *centres);
        for (size_t i = 0; i < n_isas; i++) {
                ready r = make_ready(test_context_of_level((int)i), centres, ld, n, dim);
                compare(&r.nearest, points, n_points, r.scratch);
                drop(&r);
        }
        test_free(centres, points);
}
END_TEST

/* Loops over shapes; every instruction set: points made ready once, all of them or ranges of blocks. */
START_TEST(points_that_were_made_ready_find_the_same)
{
        const size_t n = shapes[_i].n_centres, n_points = 7 * shapes[_i].n_points, dim = shapes[_i].dim, ld = dim + 1;
        const size_t n_isas = test_n_isas();
        float *centres = test_normal(n, dim, 12), *points = test_normal(n_points, ld, 13);
        int32_t *wanted = malloc(n_points * sizeof *wanted), *found = malloc(n_points * sizeof *found);
        float *wanted_scores = malloc(n_points * sizeof(float)), *scores = malloc(n_points * sizeof(float));
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_of_level((int)i);
                const size_t point_bytes = dci_nearest_points_bytes(context, n_points, dim);
                void *point_memory = dci_alloc(context, point_bytes, 1);
                ready r = make_ready(context, centres, dim, n, dim);
                dci_nearest_points packed;
                dci_nearest_find(&r.nearest, points, ld, n_points, r.scratch, wanted, wanted_scores);
                dci_nearest_points_init(context, points, ld, n_points, dim, point_memory, &packed);
                for (size_t first = 0; first < n_points; first += 64)
                        dci_nearest_points_pack(&packed, first, n_points - first < 64 ? n_points - first : 64);
                for (size_t first = 0; first < n_points; first += 96) {
                        const size_t here = n_points - first < 96 ? n_points - first : 96;
                        dci_nearest_find_packed(&r.nearest, &packed, first, here, r.scratch, found + first,
                                                scores + first);
                }
                ck_assert_mem_eq(found, wanted, n_points * sizeof *found);
                ck_assert_mem_eq(scores, wanted_scores, n_points * sizeof *scores);
                dci_nearest_find_packed(&r.nearest, &packed, 0, n_points, r.scratch, found, NULL);
                ck_assert_mem_eq(found, wanted, n_points * sizeof *found);
                dci_free(context, point_memory, point_bytes, 1);
                drop(&r);
        }
        test_free(centres, points, wanted, found, wanted_scores, scores);
}
END_TEST

/* Offsets of any size, some of them equal; centres that are closed, up to all but one, and opened again. */
START_TEST(offsets_and_closed_centres_decide)
{
        enum { DIM = 24, N = 150, POINTS = 70 };
        const size_t n_isas = test_n_isas();
        float *centres = test_normal(N, DIM, 14), *points = test_normal(POINTS, DIM, 15);
        float *offsets = test_normal(N, 1, 16);
        for (size_t i = 0; i < 3 * n_isas; i++) {
                dci_context *context = test_context_of_level((int)(i / 3));
                const size_t step = i % 3 == 0 ? N : i % 3 == 1 ? 2 : 1;
                ready r = make_ready(context, centres, DIM, N, DIM);
                int32_t found[POINTS];
                for (size_t c = 0; c < N; c++)
                        dci_nearest_put_offset(&r.nearest, c, (i % 2 == 0 ? 100.0f : 0.5f) * offsets[c / 2]);
                for (size_t c = 0; c + 1 < N; c += step) /* none but the first, every other one, all but the last */
                        dci_nearest_close(&r.nearest, c);
                dci_nearest_find(&r.nearest, points, DIM, POINTS, r.scratch, found, NULL);
                for (size_t q = 0; q < POINTS; q++) {
                        int32_t best = -1;
                        float most = -INFINITY;
                        for (size_t c = 0; c < N; c++) {
                                float score;
                                if (c % step == 0 && c + 1 < N)
                                        continue;
                                context->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](
                                        points + q * DIM, centres + c * DIM, 0, 1, DIM, &score);
                                score -= (i % 2 == 0 ? 100.0f : 0.5f) * offsets[c / 2];
                                if (score > most) {
                                        most = score;
                                        best = (int32_t)c;
                                }
                        }
                        ck_assert_int_eq(found[q], best);
                }
                drop(&r);
        }
        test_free(centres, points, offsets);
}
END_TEST

static dci_score_strided_fn canonical;
static size_t n_canonical;

static void counted(const float *query, const void *base, size_t stride, size_t n, size_t dim, float *out)
{
        n_canonical += n;
        canonical(query, base, stride, n, dim, out);
}

/* Every instruction set. The closed ones come first, whole tiles of them: what is open is all that is looked at. */
START_TEST(closed_centres_are_never_scored)
{
        enum { DIM = 32, N = 2048, OPEN = 64, POINTS = 100 };
        const size_t n_isas = test_n_isas();
        float *centres = test_normal(N, DIM, 20), *points = test_normal(POINTS, DIM, 21);
        for (size_t i = 0; i < n_isas; i++) {
                ready r = make_ready(test_context_of_level((int)i), centres, DIM, N, DIM);
                dci_kernels kernels = *r.nearest.kernels;
                int32_t found[POINTS];
                canonical = kernels.score_strided[DCI_F32 - 1][DCI_FORM_DOT];
                kernels.score_strided[DCI_F32 - 1][DCI_FORM_DOT] = counted;
                r.nearest.kernels = &kernels;
                n_canonical = 0;
                for (size_t c = 0; c < N - OPEN; c++)
                        dci_nearest_close(&r.nearest, c);
                dci_nearest_find(&r.nearest, points, DIM, POINTS, r.scratch, found, NULL);
                ck_assert_uint_lt(n_canonical, POINTS * OPEN);
                for (size_t q = 0; q < POINTS; q++) {
                        float ignored;
                        ck_assert_int_eq(found[q],
                                         N - OPEN +
                                                 nearest_by_all(r.context->kernels, centres + (N - OPEN) * DIM, DIM,
                                                                OPEN, DIM, points + q * DIM, &ignored));
                }
                drop(&r);
        }
        test_free(centres, points);
}
END_TEST

/* Two groups, `far` from the origin on both sides of it. */
static void fill_groups(float *rows, size_t n, size_t dim, float far)
{
        for (size_t i = 0; i < n; i++)
                rows[i * dim] += i % 2 == 0 ? far : -far;
}

/* Loops over how far; every instruction set. Canonical distances decide, and a move to larger memory changes nothing. */
START_TEST(by_distance_the_nearest_is_what_the_canonical_distance_says)
{
        enum { DIM = 17, N = 150, POINTS = 70 };
        const size_t n_isas = test_n_isas();
        float *centres = test_normal(N, DIM, 22), *points = test_normal(POINTS, DIM, 23);
        fill_groups(centres, N, DIM, (float)pow(10.0, _i));
        fill_groups(points, POINTS, DIM, (float)pow(10.0, _i));
        memcpy(centres + 9 * DIM, centres + 5 * DIM, DIM * sizeof *centres);
        for (size_t i = 0; i < n_isas; i++) {
                dci_nearest moved;
                ready r = make_ready(test_context_of_level((int)i), centres, DIM, N, DIM);
                const size_t bytes = dci_nearest_bytes(r.context, 2 * N, DIM);
                void *memory = dci_alloc(r.context, bytes, 1);
                r.nearest.by_distance = true;
                for (size_t c = 0; c < N; c += 7)
                        dci_nearest_close(&r.nearest, c);
                dci_nearest_move(r.context, &r.nearest, centres, 2 * N, memory, &moved);
                for (int again = 0; again < 4; again++) {
                        int32_t found[POINTS];
                        float scores[POINTS];
                        dci_nearest_find(again % 2 == 0 ? &r.nearest : &moved, points, DIM, POINTS, r.scratch, found,
                                         again < 2 ? scores : NULL);
                        for (size_t q = 0; q < POINTS; q++) {
                                int32_t best = -1;
                                float least = INFINITY, distance2;
                                for (size_t c = 0; c < N; c++) {
                                        r.context->kernels->score_strided[DCI_F32 - 1][DCI_FORM_L2](
                                                points + q * DIM, centres + c * DIM, 0, 1, DIM, &distance2);
                                        if (c % 7 != 0 && distance2 < least) {
                                                least = distance2;
                                                best = (int32_t)c;
                                        }
                                }
                                ck_assert_int_eq(found[q], best);
                                ck_assert(again >= 2 || scores[q] == -least);
                        }
                }
                dci_free(r.context, memory, bytes, 1);
                drop(&r);
        }
        test_free(centres, points);
}
END_TEST

START_TEST(centres_that_come_go_and_change_are_as_if_made_ready_anew)
{
        enum { DIM = 40, N = 120, POINTS = 40 };
        dci_context *context = test_context(1);
        float *centres = test_normal(N, DIM, 3), *others = test_normal(N, DIM, 4),
              *points = test_normal(POINTS, DIM, 5);
        const size_t large = dci_nearest_bytes(context, N, DIM);
        void *memory = dci_alloc(context, large, 1);
        ready r = make_ready(context, centres, DIM, 64, DIM);
        dci_nearest moved;
        dci_nearest_init(context, centres, DIM, 64, DIM, r.memory, &r.nearest); /* as if there were none */
        for (size_t i = 0; i < 64; i++) {
                dci_nearest_resize(&r.nearest, i + 1);
                dci_nearest_put(&r.nearest, i);
        }
        compare(&r.nearest, points, POINTS, r.scratch);
        for (size_t i = 0; i < 64; i += 3) {
                memcpy(centres + i * DIM, others + i * DIM, DIM * sizeof *centres);
                dci_nearest_put(&r.nearest, i);
        }
        compare(&r.nearest, points, POINTS, r.scratch);
        dci_nearest_resize(&r.nearest, 17);
        compare(&r.nearest, points, POINTS, r.scratch);
        dci_nearest_move(context, &r.nearest, centres, N, memory, &moved);
        compare(&moved, points, POINTS, r.scratch);
        for (size_t i = 17; i < N; i++) {
                dci_nearest_resize(&moved, i + 1);
                dci_nearest_put(&moved, i);
        }
        compare(&moved, points, POINTS, r.scratch);
        dci_free(context, memory, large, 1);
        drop(&r);
        test_free(centres, others, points);
}
END_TEST

/* Far from the origin bounds are wide: everything may be proposed, and the answer stays. */
START_TEST(long_centres_cost_time_and_nothing_else)
{
        enum { DIM = 64, N = 90, POINTS = 33 };
        float *centres = test_normal(N, DIM, 6), *points = test_normal(POINTS, DIM, 7);
        for (size_t i = 0; i < N * DIM; i++)
                centres[i] = 1000.0f + 0.01f * centres[i];
        for (size_t i = 0; i < POINTS * DIM; i++)
                points[i] = 1000.0f + 0.01f * points[i];
        ready r = make_ready(test_context(1), centres, DIM, N, DIM);
        compare(&r.nearest, points, POINTS, r.scratch);
        drop(&r);
        test_free(centres, points);
}
END_TEST

/* Sums of rows: every instruction set, format and tail; from avx2 on the same bits. */
START_TEST(sums_of_rows_are_those_of_a_loop)
{
        static const size_t dims[] = {1, 15, 16, 17, 63, 64, 65, 80, 130};
        enum { N = 19 };
        const size_t n_isas = test_n_isas();
        float *numbers = test_normal(N, MAX_DIM, 8), *weights = test_normal(N, 1, 9);
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_of_level((int)i);
                const dci_kernels *kernels = context->kernels;
                for (dci_dtype dtype = DCI_F32; dtype <= DCI_BF16; dtype++)
                        for (size_t d = 0; d < 2 * sizeof dims / sizeof dims[0]; d++) {
                                const size_t dim = dims[d / 2], size = dim * dci_dtype_size(dtype);
                                unsigned char *rows = malloc(N * size);
                                const void *pointers[N];
                                float sum[MAX_DIM], wide[MAX_DIM];
                                double wanted[MAX_DIM], bound[MAX_DIM];
                                for (size_t p = 0; p < dim; p++) {
                                        sum[p] = (float)p;
                                        wanted[p] = bound[p] = (double)p;
                                }
                                for (size_t r = 0; r < N; r++) {
                                        const double weight = d % 2 == 0 ? 1.0 : (double)weights[r];
                                        kernels->narrow[dtype - 1](numbers + r * MAX_DIM, dim, rows + r * size);
                                        kernels->to_f32[dtype - 1](rows + r * size, dim, wide);
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
        test_free(numbers, weights);
}
END_TEST

START_TEST(the_best_of_each_column_is_that_of_a_loop)
{
        enum { ROWS = 37, COLUMNS = 48, LD = 50 };
        const size_t n_isas = test_n_isas();
        float *products = test_normal(ROWS, LD, 10), *offsets = test_normal(ROWS, 1, 11), out[COLUMNS];
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_of_level((int)i);
                context->kernels->columns_best(products, LD, ROWS, COLUMNS, offsets, out);
                for (size_t c = 0; c < COLUMNS; c++) {
                        float best = -INFINITY;
                        for (size_t r = 0; r < ROWS; r++)
                                best = fmaxf(best, products[r * LD + c] - offsets[r]);
                        ck_assert(out[c] == best);
                }
                dci_context_destroy(context);
        }
        test_free(products, offsets);
}
END_TEST

/* Products of packed columns with any number of rows, any dimension; what is appended is what is not below. */
START_TEST(products_and_their_hits_are_those_of_a_loop)
{
        static const size_t dims[] = {1, 2, 15, 64, 65, 191, 192, 193, 400}, rows[] = {1, 2, 3, 5, 6, 12, 13, 29};
        enum { LD = 403, MOST = 29, C = DCI_PRODUCT_COLUMNS };
        const size_t n_isas = test_n_isas();
        float *numbers = test_normal(MOST, LD, 17), *others = test_normal(C, LD, 18),
              *offsets = test_normal(MOST, 1, 19);
        float *columns = malloc(400 * C * sizeof *columns), *products = malloc(MOST * C * sizeof *products);
        for (size_t i = 0; i < n_isas * (sizeof dims / sizeof *dims) * (sizeof rows / sizeof *rows); i++) {
                const size_t dim = dims[i / (sizeof rows / sizeof *rows) % (sizeof dims / sizeof *dims)];
                const size_t n = rows[i % (sizeof rows / sizeof *rows)], n_columns = i % 3 == 0 ? C : 1 + i % C;
                dci_context *context =
                        test_context_of_level((int)(i / (sizeof dims / sizeof *dims) / (sizeof rows / sizeof *rows)));
                float thresholds[C];
                uint32_t hit_rows[MOST + 1], hit_bits[MOST + 1];
                context->kernels->pack_columns(others, LD, n_columns, dim, columns);
                context->kernels->products(numbers, LD, n, columns, dim, products);
                for (size_t r = 0; r < n; r++)
                        for (size_t c = 0; c < C; c++) {
                                double wanted = 0.0, bound = 0.0;
                                for (size_t p = 0; p < dim && c < n_columns; p++) {
                                        wanted += (double)numbers[r * LD + p] * (double)others[c * LD + p];
                                        bound += fabs((double)numbers[r * LD + p] * (double)others[c * LD + p]);
                                }
                                test_hold(fabs((double)products[r * C + c] - wanted) <=
                                          (double)(2 * dim) * 0x1p-24 * bound);
                        }
                for (size_t c = 0; c < C; c++)
                        thresholds[c] = c % 5 == 0 ? -INFINITY : 0.7f * (float)c;
                const size_t n_hits = context->kernels->rows_hit(products, n, offsets, thresholds, hit_rows, hit_bits);
                size_t at = 0;
                for (size_t r = 0; r < n; r++) {
                        uint32_t bits = 0;
                        for (size_t c = 0; c < C; c++)
                                bits |= (uint32_t) !(products[r * C + c] - offsets[r] < thresholds[c]) << c;
                        if (bits == 0)
                                continue;
                        test_hold(at < n_hits && hit_rows[at] == r && hit_bits[at] == bits);
                        at++;
                }
                ck_assert_uint_eq(at, n_hits);
                dci_context_destroy(context);
        }
        test_free(numbers, others, offsets, columns, products);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("nearest");
        TCase *tcase = test_case(suite, "laws", 60);
        tcase_add_loop_test(tcase, the_nearest_is_what_the_canonical_kernel_says, 0, sizeof shapes / sizeof shapes[0]);
        tcase_add_loop_test(tcase, points_that_were_made_ready_find_the_same, 0, sizeof shapes / sizeof shapes[0]);
        tcase_add_test(tcase, offsets_and_closed_centres_decide);
        tcase_add_test(tcase, closed_centres_are_never_scored);
        tcase_add_loop_test(tcase, by_distance_the_nearest_is_what_the_canonical_distance_says, 0, 7);
        tcase_add_test(tcase, products_and_their_hits_are_those_of_a_loop);
        tcase_add_test(tcase, centres_that_come_go_and_change_are_as_if_made_ready_anew);
        tcase_add_test(tcase, long_centres_cost_time_and_nothing_else);
        tcase_add_test(tcase, sums_of_rows_are_those_of_a_loop);
        tcase_add_test(tcase, the_best_of_each_column_is_that_of_a_loop);
        return test_main(suite);
}
