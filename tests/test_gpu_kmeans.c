/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Clusters of a prompt's keys on a device: order, sizes and means to the bit as the reference has them, and clusters to the bit as dci_kmeans has
 * them of the same rows.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cluster/kmeans_internal.h"
#include "core/npy.h"
#include "simd/convert.h"
#include "tests/gpu_fixture.h"

#define ROOM ((size_t)24 << 20)
#define SEED 5
GPU_SUITE(ROOM)

typedef struct shape {
        const char *name;
        int32_t dim, dtype, n_heads, n, k, n_rounds;
        int32_t segment, centred;    /* 0: none; 1: as retroinfer divides them */
        int32_t parts, cluster_rows; /* 0: one; else k is of the longest */
} shape;

typedef struct world {
        gpu_test *t;
        const shape *s;
        dci_rng rng;
        gpu_buffer *rows, *values, *first, *order, *starts, *means, *value_means, *states, *work;
        size_t row_step, head_step; /* bytes */
} world;

static size_t parts_of(const shape *s)
{
        return s->parts > 1 ? (size_t)s->parts : 1;
}

/* The last part is never shorter than others. */
typedef struct part {
        size_t first, n, k;
} part;

static part part_of(const shape *s, size_t i)
{
        const size_t n = (size_t)s->n, first = n * i / parts_of(s), rows = n * (i + 1) / parts_of(s) - first,
                     longest = n - n * (parts_of(s) - 1) / parts_of(s);
        return (part){first, rows, rows == longest ? (size_t)s->k : rows / (size_t)s->cluster_rows};
}

static dci_gpu_kmeans_args args_of(const world *w, bool image)
{
        const shape *s = w->s;
        return (dci_gpu_kmeans_args){.n_heads = s->n_heads,
                                     .dim = s->dim,
                                     .dtype = s->dtype,
                                     .n_rows = (int32_t)part_of(s, parts_of(s) - 1).n,
                                     .n_clusters = s->k,
                                     .n_rounds = s->n_rounds,
                                     .segment_rows = s->segment,
                                     .centred = s->centred,
                                     .n_parts = s->parts,
                                     .all_rows = s->n,
                                     .cluster_rows = s->cluster_rows,
                                     .isa = (int32_t)w->t->context->isa,
                                     .rows = gpu_at(w->rows, image),
                                     .row_step = w->row_step,
                                     .head_step = w->head_step,
                                     .first = gpu_at(w->first, image),
                                     .values = gpu_at(w->values, image),
                                     .value_step = w->row_step,
                                     .value_head_step = w->head_step,
                                     .order = gpu_at(w->order, image),
                                     .starts = gpu_at(w->starts, image),
                                     .means = gpu_at(w->means, image),
                                     .value_means = gpu_at(w->value_means, image),
                                     .states = gpu_at(w->states, image),
                                     .work = w->work != NULL ? gpu_at(w->work, image) : NULL};
}

/* Heads are contiguous, with a gap between tokens. */
static void make_world(world *w, gpu_test *t, const shape *s)
{
        const size_t heads = (size_t)s->n_heads, n = (size_t)s->n, k = (size_t)s->k, row = (size_t)s->dim * 2,
                     problems = heads * parts_of(s);
        *w = (world){.t = t, .s = s, .head_step = row, .row_step = heads * row + 16};
        gpu_reset(t);
        dci_rng_seed(&w->rng, 77);
        w->rows = gpu_take(t, n * w->row_step, GPU_DEVICE);
        w->values = gpu_take(t, n * w->row_step, GPU_DEVICE);
        w->first = gpu_take(t, problems * k * sizeof(int32_t), GPU_DEVICE);
        w->order = gpu_take(t, heads * n * sizeof(int32_t), GPU_DEVICE);
        w->starts = gpu_take(t, problems * (k + 1) * sizeof(int32_t), GPU_DEVICE);
        w->means = gpu_take(t, problems * k * row, GPU_DEVICE);
        w->value_means = gpu_take(t, problems * k * row, GPU_DEVICE);
        w->states = gpu_take(t, problems * DCI_GPU_KMEANS_STATES * sizeof(int32_t), GPU_DEVICE);
        const dci_gpu_kmeans_args args = args_of(w, true);
        w->work = gpu_take(t, (size_t)dci_gpu_kmeans_work(&args).n_bytes, GPU_DEVICE);
        for (size_t i = 0; i < problems; i++) {
                const part of = part_of(s, i % parts_of(s));
                dci_km_draw(SEED, i % parts_of(s) * heads + i / parts_of(s), of.n, of.k, (size_t)s->segment,
                            (int32_t *)(void *)w->first->image + i * k);
        }
        for (size_t i = 0; i < n * w->row_step / 2; i++)
                ((uint16_t *)(void *)w->values->image)[i] =
                        s->dtype == DCI_BF16 ? dci_float_to_bf16((float)test_quick_normal(&w->rng))
                                             : dci_float_to_f16((float)test_quick_normal(&w->rng));
}

static uint16_t *row_of(const world *w, size_t head, size_t i)
{
        return (uint16_t *)(void *)(w->rows->image + i * w->row_step + head * w->head_step);
}

static void put(const world *w, size_t head, size_t i, size_t j, float x)
{
        row_of(w, head, i)[j] = w->s->dtype == DCI_BF16 ? dci_float_to_bf16(x) : dci_float_to_f16(x);
}

/* Rows about a mean with a few large coordinates, in groups, as keys have them. */
static void fill_like_keys(world *w)
{
        const size_t dim = (size_t)w->s->dim;
        for (size_t h = 0; h < (size_t)w->s->n_heads; h++) {
                float mean[DCI_GPU_MAX_DIM], topics[16][DCI_GPU_MAX_DIM];
                for (size_t j = 0; j < dim; j++) {
                        mean[j] = (j % 29 == 3 ? 8.0f : 1.0f) * (float)test_quick_normal(&w->rng);
                        for (size_t g = 0; g < 16; g++)
                                topics[g][j] = (float)test_quick_normal(&w->rng);
                }
                for (size_t i = 0; i < (size_t)w->s->n; i++) {
                        const float *topic = topics[dci_rng_below(&w->rng, 16)];
                        for (size_t j = 0; j < dim; j++)
                                put(w, h, i, j, mean[j] + topic[j] + 0.7f * (float)test_quick_normal(&w->rng));
                }
        }
}

static const int32_t *state_of(const gpu_buffer *b, bool back, size_t head)
{
        return (const int32_t *)(const void *)(back ? b->back : b->image) + head * DCI_GPU_KMEANS_STATES;
}

/* On the device and in the reference; the same comes out. */
static void run(world *w)
{
        const dci_gpu_kmeans_args there = args_of(w, false), here = args_of(w, true);
        gpu_send_all(w->t);
        ck_ok(w->t->ops->kmeans(w->t->gpu, w->t->stream, &there));
        dci_gpu_ref_kmeans(&here);
        gpu_same(w->t, w->rows, "rows");
        gpu_same(w->t, w->first, "first rows");
        gpu_same(w->t, w->order, "order");
        gpu_same(w->t, w->starts, "starts");
        gpu_same(w->t, w->means, "means");
        gpu_same(w->t, w->values, "values");
        gpu_same(w->t, w->value_means, "means of values");
        gpu_fetch(w->t, w->work);
        gpu_guarded(w->work, "scratch");
        gpu_fetch(w->t, w->states);
        gpu_guarded(w->states, "states");
        for (size_t h = 0; h < (size_t)w->s->n_heads * parts_of(w->s); h++) {
                const int32_t *got = state_of(w->states, true, h), *wanted = state_of(w->states, false, h);
                ck_assert_int_eq(got[DCI_GPU_KMEANS_BAD], wanted[DCI_GPU_KMEANS_BAD]);
                ck_assert_int_eq(got[DCI_GPU_KMEANS_ROUNDS], wanted[DCI_GPU_KMEANS_ROUNDS]);
        }
}

/* What src/kv/stages/group_cluster.c would make of a part's rows. */
static void cpu_clusters(const world *w, size_t number, int32_t *offsets, int32_t *ids, float *centroids)
{
        const part of = part_of(w->s, number);
        const shape *s = w->s;
        dci_kmeans_config config;
        dci_kmeans_input input;
        dci_kmeans_result result;
        ck_ok(dci_kmeans_config_init(&config, sizeof config));
        ck_ok(dci_kmeans_input_init(&input, sizeof input));
        ck_ok(dci_kmeans_result_init(&result, sizeof result));
        config.dim = (size_t)s->dim;
        config.n_clusters = of.k;
        config.dtype = (dci_dtype)s->dtype;
        config.centroid = s->centred != 0 ? DCI_CENTROID_UNIT : DCI_CENTROID_MEAN;
        config.subtract_mean = s->centred != 0 ? DCI_MEAN_OWN : DCI_MEAN_NONE;
        config.segment_rows = (size_t)s->segment < of.n ? (size_t)s->segment : 0;
        config.zero_rows = DCI_ZERO_KEEP;
        config.n_iter = (size_t)s->n_rounds;
        config.seed = SEED;
        input.n_problems = (size_t)s->n_heads;
        input.n = of.n;
        input.first_problem = number * (size_t)s->n_heads;
        input.rows = w->rows->image + of.first * w->row_step;
        input.ld = w->row_step / 2;
        input.problem_ld = w->head_step / 2;
        result.offsets = offsets;
        result.ids = ids;
        result.centroids = centroids;
        ck_ok(dci_kmeans(w->t->context, &config, &input, NULL, &result));
}

static size_t count_empty(const world *w)
{
        const int32_t *starts = (const int32_t *)(const void *)w->starts->image;
        size_t n = 0;
        for (size_t i = 0; i < (size_t)w->s->n_heads * (size_t)(w->s->k + 1); i++) /* there is one part */
                n += i % (size_t)(w->s->k + 1) != (size_t)w->s->k && starts[i] == starts[i + 1];
        return n;
}

/* Means of values, added up in another way. */
static void check_value_means(const world *w)
{
        const size_t n = (size_t)w->s->n, k = (size_t)w->s->k, dim = (size_t)w->s->dim;
        const bool bf16 = w->s->dtype == DCI_BF16;
        for (size_t h = 0; h < (size_t)w->s->n_heads && parts_of(w->s) == 1; h++) {
                const int32_t *starts = (const int32_t *)(const void *)w->starts->image + h * (k + 1),
                              *order = (const int32_t *)(const void *)w->order->image + h * n;
                const uint16_t *means = (const uint16_t *)(const void *)w->value_means->image + h * k * dim;
                for (size_t c = 0; c < k; c++)
                        for (size_t j = 0; j < dim && starts[c + 1] > starts[c]; j += 7) {
                                double sum = 0.0;
                                for (int32_t i = starts[c]; i < starts[c + 1]; i++) {
                                        const uint16_t *row =
                                                (const uint16_t *)(const void *)(w->values->image +
                                                                                 (size_t)order[i] * w->row_step +
                                                                                 h * w->head_step);
                                        sum += (double)(bf16 ? dci_bf16_to_float(row[j]) : dci_f16_to_float(row[j]));
                                }
                                const double mean = sum / (double)(starts[c + 1] - starts[c]);
                                const uint16_t got = means[c * dim + j];
                                ck_assert_double_eq_tol((double)(bf16 ? dci_bf16_to_float(got) : dci_f16_to_float(got)),
                                                        mean, 0.01 * fabs(mean) + 1e-4);
                        }
        }
}

/* Runs, and holds the clusters against the CPU's. */
static void compare(world *w)
{
        const size_t heads = (size_t)w->s->n_heads, n = (size_t)w->s->n, k = (size_t)w->s->k, dim = (size_t)w->s->dim;
        int32_t *offsets = malloc(heads * (k + 1) * sizeof *offsets), *ids = malloc(heads * n * sizeof *ids);
        float *centroids = malloc(heads * k * dim * sizeof *centroids);
        ck_assert(offsets != NULL && ids != NULL && centroids != NULL);
        run(w);
        for (size_t p = 0; p < parts_of(w->s); p++) {
                const part of = part_of(w->s, p);
                cpu_clusters(w, p, offsets, ids, centroids);
                for (size_t h = 0; h < heads; h++) {
                        const int32_t *starts = (const int32_t *)(const void *)w->starts->image +
                                                (h * parts_of(w->s) + p) * (k + 1),
                                      *order = (const int32_t *)(const void *)w->order->image + h * n + of.first;
                        ck_assert_msg(memcmp(offsets + h * (of.k + 1), starts, (of.k + 1) * sizeof *offsets) == 0,
                                      "%s: clusters begin elsewhere on the CPU", w->s->name);
                        ck_assert_msg(memcmp(ids + h * of.n, order, of.n * sizeof *ids) == 0,
                                      "%s: clusters have other rows on the CPU", w->s->name);
                }
        }
        check_value_means(w);
        test_free(offsets, ids, centroids);
}

static const shape shapes[] = {
        {"dim 64, bf16", 64, DCI_BF16, 2, 500, 12, 6, 0, 0, 0, 0},
        {"dim 64, f16, more clusters than a stage", 64, DCI_F16, 1, 700, 70, 4, 0, 0, 0, 0},
        {"dim 96, bf16", 96, DCI_BF16, 2, 300, 33, 4, 0, 0, 0, 0},
        {"dim 96, f16", 96, DCI_F16, 1, 257, 9, 5, 0, 0, 0, 0},
        {"dim 128, bf16", 128, DCI_BF16, 2, 520, 20, 4, 0, 0, 0, 0},
        {"dim 128, f16, one round", 128, DCI_F16, 1, 600, 40, 1, 0, 0, 0, 0},
        {"dim 256, bf16", 256, DCI_BF16, 1, 300, 20, 3, 0, 0, 0, 0},
        {"dim 256, f16", 256, DCI_F16, 2, 130, 17, 3, 0, 0, 0, 0},
        {"one cluster", 64, DCI_BF16, 1, 90, 1, 4, 0, 0, 0, 0},
        {"as many clusters as rows", 64, DCI_F16, 1, 40, 40, 3, 0, 0, 0, 0},
        {"one row", 64, DCI_F16, 2, 1, 1, 2, 0, 0, 0, 0},
        {"a whole tile", 64, DCI_BF16, 1, DCI_GPU_KMEANS_TILE, 32, 5, 0, 0, 0, 0},
        {"clusters of more rows than are summed at once", 64, DCI_F16, 1, 1200, 2, 3, 0, 0, 0, 0},
        {"segments", 64, DCI_BF16, 2, 700, 44, 4, 256, 0, 0, 0},
        {"segments that no tile ends with", 128, DCI_F16, 1, 500, 31, 4, 96, 0, 0, 0},
        {"more segments than clusters", 64, DCI_F16, 2, 300, 3, 3, 32, 0, 0, 0},
        {"a segment of all rows but one", 64, DCI_BF16, 1, 257, 20, 3, 256, 0, 0, 0},
        {"centred", 64, DCI_BF16, 2, 500, 30, 5, 0, 1, 0, 0},
        {"centred, dim 96, f16", 96, DCI_F16, 1, 300, 20, 4, 0, 1, 0, 0},
        {"centred, dim 256, clusters of many rows", 256, DCI_BF16, 1, 700, 2, 3, 0, 1, 0, 0},
        {"centred segments", 128, DCI_BF16, 2, 600, 37, 4, 128, 1, 0, 0},
        {"parts", 64, DCI_BF16, 2, 719, 15, 4, 0, 0, 3, 16},
        {"parts of segments, centred", 64, DCI_F16, 2, 1007, 21, 3, 96, 1, 3, 16}};

START_TEST(clusters_are_those_of_the_cpu)
{
        world w;
        make_world(&w, &gpu, &shapes[_i]);
        fill_like_keys(&w);
        compare(&w);
}
END_TEST

/* Keys of a model (DCI_TEST_TRACE: others), as clusterkv, louiskv and retroinfer divide them. */
START_TEST(keys_of_a_model_too)
{
        world w;
        char path[512];
        dci_npy keys;
        snprintf(path, sizeof path, "%s/keys.npy", test_trace_dir());
        ck_ok(dci_npy_read(gpu.context, path, &keys));
        const size_t most = test_short() ? 700 : 6000, n = keys.shape[0] < most ? keys.shape[0] : most;
        const shape s = {"a trace",
                         (int32_t)keys.shape[1],
                         DCI_F16,
                         1,
                         (int32_t)n,
                         (int32_t)(n / (_i == 0 ? 80 : 16)),
                         test_short() ? 3 : (_i == 0 ? 20 : 10),
                         _i == 0 ? 0 : (int32_t)(n / 96 * 32),
                         _i == 2,
                         0,
                         0};
        make_world(&w, &gpu, &s);
        for (size_t i = 0; i < n; i++)
                memcpy(row_of(&w, 0, i), (const unsigned char *)keys.data + i * keys.shape[1] * 2, keys.shape[1] * 2);
        compare(&w);
        ck_assert_uint_eq(count_empty(&w), 0);
        dci_npy_free(&keys);
}
END_TEST

/* Rows that are alike leave clusters empty; rows of few values are as near to one centre as to another. */
START_TEST(empty_clusters_and_ties_too)
{
        const shape s = {"few values", 64, DCI_BF16, 3, 400, 60, 6, _i == 0 ? 0 : 128, 0, 0, 0};
        world w;
        make_world(&w, &gpu, &s);
        for (size_t i = 0; i < (size_t)s.n; i++) {
                /* Head 0: 40 rows, ten times each; 1: all alike; 2: signs of a few coordinates. */
                dci_rng alike, signs;
                dci_rng_seed(&alike, i % 40);
                dci_rng_seed(&signs, i % 97);
                for (size_t j = 0; j < (size_t)s.dim; j++) {
                        put(&w, 0, i, j, (float)test_quick_normal(&alike));
                        put(&w, 1, i, j, (float)j - 20.0f);
                        put(&w, 2, i, j, j < 8 ? (dci_rng_below(&signs, 2) != 0 ? 1.0f : -1.0f) : 0.0f);
                }
        }
        compare(&w);
        ck_assert_uint_gt(count_empty(&w), 0);
        for (size_t h = 0; h < 3 && !gpu_is_host(&gpu); h++)
                ck_assert_int_gt(state_of(w.states, true, h)[DCI_GPU_KMEANS_EXACT], 0);
}
END_TEST

/* Groups far apart settle early, and the rounds that are left change nothing. */
START_TEST(rounds_end_when_nothing_changes)
{
        static const shape s = {"far apart", 64, DCI_F16, 2, 300, 3, 30, 0, 0, 0, 0};
        world w;
        make_world(&w, &gpu, &s);
        for (size_t h = 0; h < 2; h++)
                for (size_t i = 0; i < (size_t)s.n; i++)
                        for (size_t j = 0; j < (size_t)s.dim; j++)
                                put(&w, h, i, j, (j == i % 3 ? 30.0f : 0.0f) + 0.2f * (float)test_quick_normal(&w.rng));
        compare(&w);
        for (size_t h = 0; h < 2; h++)
                ck_assert_int_lt(state_of(w.states, false, h)[DCI_GPU_KMEANS_ROUNDS], 30);
}
END_TEST

/* Rows without a direction, without a number or too long: their head is left to the CPU, others are clustered. Loops over what is wrong. */
START_TEST(bad_rows_are_told)
{
        const shape s = {"bad rows", 64, DCI_BF16, 3, 200, 5, 3, _i < 4 ? 0 : 64, _i / 4 == 2, 0, 0};
        static const float bad[] = {0.0f, NAN, INFINITY, 3e38f};
        world w;
        make_world(&w, &gpu, &s);
        fill_like_keys(&w);
        for (size_t j = 0; j < (size_t)s.dim; j++)
                put(&w, 1, 150, j, bad[_i % 4]);
        gpu_send_all(&gpu);
        const dci_gpu_kmeans_args there = args_of(&w, false), here = args_of(&w, true);
        ck_ok(gpu.ops->kmeans(gpu.gpu, gpu.stream, &there));
        dci_gpu_ref_kmeans(&here);
        gpu_fetch(&gpu, w.states);
        gpu_fetch(&gpu, w.order);
        for (size_t h = 0; h < 3; h++) {
                const bool is_bad = h == 1 && _i != 8; /* zeros less a mean have a direction */
                ck_assert_int_eq(state_of(w.states, true, h)[DCI_GPU_KMEANS_BAD], is_bad);
                ck_assert_int_eq(state_of(w.states, false, h)[DCI_GPU_KMEANS_BAD], is_bad);
                const size_t at = h * (size_t)s.n * sizeof(int32_t), n = (size_t)s.n * sizeof(int32_t);
                ck_assert(h == 1 || memcmp(w.order->back + at, w.order->image + at, n) == 0);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kmeans");
        TCase *laws = test_case_with(suite, "laws", 120, setup, teardown);
        tcase_add_loop_test(laws, clusters_are_those_of_the_cpu, 0, COUNT(shapes));
        tcase_add_loop_test(laws, keys_of_a_model_too, 0, 3);
        tcase_add_loop_test(laws, empty_clusters_and_ties_too, 0, 2);
        tcase_add_test(laws, rounds_end_when_nothing_changes);
        tcase_add_loop_test(laws, bad_rows_are_told, 0, 12);
        return test_main(suite);
}
