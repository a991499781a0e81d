/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * KV caches, sketches and clusters of rows that somebody chose to hurt: nothing that comes out is no number, attention to everything is that of
 * double precision, and the check passes at every turn.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/kmeans.h"
#include "dci/sketch.h"
#include "tests/kv_fixture.h"

enum { DIM = 16, TOKENS = 260, PROMPT = 200 };

/* --- rows ---------------------------------------------------------------------------------------------------------------------------- */

static void scale(float *rows, size_t n, float by)
{
        for (size_t i = 0; i < n * DIM; i++)
                rows[i] *= by;
}
static void denormal(float *rows, size_t n)
{
        scale(rows, n, 0x1p-140f);
}
static void tiny(float *rows, size_t n)
{
        scale(rows, n, 1e-20f);
}
static void large(float *rows, size_t n)
{
        scale(rows, n, 1e7f);
}
/* Squared norms that fit, products that fit: as large as attention can be asked about. */
static void huge(float *rows, size_t n)
{
        scale(rows, n, 1e17f);
}
static void zero(float *rows, size_t n)
{
        memset(rows, 0, n * DIM * sizeof *rows);
}
static void all_the_same(float *rows, size_t n)
{
        for (size_t i = 1; i < n; i++)
                memcpy(rows + i * DIM, rows, DIM * sizeof *rows);
}
static void of_three(float *rows, size_t n)
{
        for (size_t i = 3; i < n; i++)
                memcpy(rows + i * DIM, rows + i % 3 * DIM, DIM * sizeof *rows);
}
/* Each key longer than all before. */
static void growing(float *rows, size_t n)
{
        for (size_t i = 0; i < n; i++)
                scale(rows + i * DIM, 1, ldexpf(1.0f, (int)(i % 250) / 5));
}
/* Near and far in turns, and in opposite directions. */
static void opposite(float *rows, size_t n)
{
        for (size_t i = 1; i < n; i++) {
                memcpy(rows + i * DIM, rows, DIM * sizeof *rows);
                scale(rows + i * DIM, 1, (i % 2 == 0 ? 1.0f : -100.0f) * (1.0f + 1e-3f * (float)i));
        }
}
/* One coordinate carries all. */
static void on_one_axis(float *rows, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                memset(rows + i * DIM, 0, DIM * sizeof *rows);
                rows[i * DIM] = (float)i - 100.0f;
        }
}
/* The longest that a cache takes: too long for k-means, and squared distances overflow. */
static void longest(float *rows, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                double norm2 = 0.0;
                for (size_t j = 0; j < DIM; j++)
                        norm2 += (double)rows[i * DIM + j] * (double)rows[i * DIM + j];
                scale(rows + i * DIM, 1, (float)sqrt((double)FLT_MAX * (0.4 + 0.5 * (double)i / (double)n) / norm2));
        }
}

static void (*const hostilities[])(float *rows, size_t n) = {
        denormal, tiny, large, huge, zero, all_the_same, of_three, growing, opposite, on_one_axis, longest};
enum {
        N_HOSTILITIES = sizeof hostilities / sizeof *hostilities,
        N_OF_ALL = N_HOSTILITIES - 1 /* that sketches and k-means take */
};

/* --- caches ------------------------------------------------------------------------------------------------------------------------------- */

static kv_data data_of(const dci_kv_config *config, size_t hostility)
{
        kv_data data = kv_random(config, TOKENS, 7);
        const size_t n = data.n_layers * data.n * data.n_kv_heads;
        hostilities[hostility](data.keys, n);
        if (hostility % 2 == 1)
                hostilities[hostility](data.values, n);
        kv_data_store(&data);
        return data;
}

static dci_kv_config config_of(int32_t preset)
{
        dci_kv_config config = kv_small(preset);
        config.dtype = DCI_F32;
        config.query_dtype = DCI_F32;
        config.cluster_every = preset == DCI_KV_CLUSTERKV || preset == DCI_KV_RETROINFER ? 40 : 0;
        config.cluster_tokens = config.cluster_every > 0 || preset == DCI_KV_LOUISKV ? 8 : 0;
        config.period = 8;
        return config;
}

static void passes(dci_kv *kv, const char *what)
{
        ck_assert_msg(dci_kv_check(kv, DCI_CHECK_FULL, NULL) == DCI_OK, "%s: %s", what, dci_last_error());
}

/* No NaN comes out of numbers, whatever is chosen; logarithms may be infinite where attention is all on one token or there is none. */
static void are_numbers(const kv_seen *seen, const char *what)
{
        for (size_t layer = 0; layer < seen->n_layers; layer++)
                for (size_t q = 0; q < seen->n_kv_heads * seen->group; q++) {
                        ck_assert_msg(!isnan(*kv_lse(seen, layer, 0, q)), "%s: lse", what);
                        for (size_t j = 0; j < seen->dim_v; j++)
                                ck_assert_msg(isfinite(kv_out(seen, layer, 0, q)[j]), "%s: layer %zu, query head %zu",
                                              what, layer, q);
                }
}

START_TEST(every_preset_gives_numbers_and_keeps_its_own_laws)
{
        const int32_t preset = kv_presets[_i % KV_N_KINDS];
        dci_context *context = test_context(1);
        for (size_t h = (size_t)_i / KV_N_KINDS; h < N_HOSTILITIES; h += 2) {
                const dci_kv_config config = config_of(preset);
                char what[96];
                snprintf(what, sizeof what, "%s, hostility %zu", dci_kv_preset_name(config.preset), h);
                kv_data data = data_of(&config, h);
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, PROMPT);
                passes(kv, what);
                for (size_t t = PROMPT; t < TOKENS; t++) {
                        const kv_turn turn = {sequence, &data, t, 1};
                        kv_seen seen = kv_decode(kv, 1, &turn);
                        are_numbers(&seen, what);
                        kv_seen_free(&seen);
                        if (t % 20 == 0)
                                passes(kv, what);
                }
                ck_ok(dci_kv_truncate(kv, sequence, 120));
                ck_ok(dci_kv_maintain(kv, 0, NULL));
                passes(kv, what);
                kv_end(kv, &data);
        }
        dci_context_destroy(context);
}
END_TEST

/* Softmax attention in double precision, over everything. */
static void attend_all(const kv_data *data, size_t layer, size_t n, size_t query_head, double scale_by, double *out)
{
        const float *query = kv_query(data, layer, n - 1, query_head);
        double most = -INFINITY, sum = 0.0;
        double *logits = malloc(n * sizeof *logits);
        for (size_t t = 0; t < n; t++) {
                const float *key = kv_key(data, layer, t, query_head / data->group);
                logits[t] = 0.0;
                for (size_t j = 0; j < DIM; j++)
                        logits[t] += scale_by * (double)query[j] * (double)key[j];
                most = logits[t] > most ? logits[t] : most;
        }
        memset(out, 0, DIM * sizeof *out);
        for (size_t t = 0; t < n; t++) {
                const double weight = exp(logits[t] - most);
                sum += weight;
                for (size_t j = 0; j < DIM; j++)
                        out[j] += weight * (double)kv_value(data, layer, t, query_head / data->group)[j];
        }
        for (size_t j = 0; j < DIM; j++)
                out[j] /= sum;
        free(logits);
}

/* Logits up to some thousands: beyond, binary32 does not tell the best two apart. */
START_TEST(attention_to_everything_is_that_of_double_precision)
{
        dci_context *context = test_context(1);
        dci_kv_config config = config_of(DCI_KV_FULL);
        kv_data data = kv_random(&config, TOKENS, 9);
        static void (*const tame[])(float *, size_t) = {denormal, tiny, zero, all_the_same, of_three, on_one_axis};
        tame[_i](data.keys, data.n_layers * data.n * data.n_kv_heads);
        kv_data_store(&data);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, TOKENS);
        const kv_turn turn = {sequence, &data, TOKENS - 1, 0};
        kv_seen seen = kv_look(kv, 1, &turn);
        for (size_t layer = 0; layer < seen.n_layers; layer++)
                for (size_t q = 0; q < seen.n_kv_heads * seen.group; q++) {
                        double wanted[DIM];
                        attend_all(&data, layer, TOKENS, q, 1.0 / sqrt(DIM), wanted);
                        for (size_t j = 0; j < DIM; j++)
                                ck_assert_double_le(fabs((double)kv_out(&seen, layer, 0, q)[j] - wanted[j]), 2e-4);
                }
        kv_seen_free(&seen);
        kv_end(kv, &data);
        dci_context_destroy(context);
}
END_TEST

/* --- sketches and clusters ------------------------------------------------------------------------------------------------------------------ */

/* Estimates are numbers within their certain bound of the products in double precision. */
START_TEST(sketches_of_hostile_rows_keep_to_their_bound)
{
        static const int32_t bits[] = {1, 2, 3, 4, 8};
        dci_context *context = test_context(1);
        float *rows = test_normal(TOKENS, DIM, 21), *queries = test_normal(4, DIM, 22);
        float scores[4 * TOKENS], bounds[4 * TOKENS];
        hostilities[_i](rows, TOKENS);
        for (size_t p = 0; p < DIM; p++)
                queries[DIM + p] = -rows[DIM + p] * 1e-3f; /* against a row */
        for (size_t b = 0; b < sizeof bits / sizeof *bits; b++) {
                dci_sketch_config config;
                dci_sketch *sketch = NULL;
                ck_ok(dci_sketch_config_init(&config, sizeof config));
                config.dim = DIM;
                config.bits = bits[b];
                ck_ok(dci_sketch_create(context, &config, &sketch));
                for (size_t i = 0; i < TOKENS; i += 20)
                        ck_ok(dci_sketch_append(sketch, 20, rows + i * DIM, DIM));
                ck_ok(dci_sketch_score(sketch, 4, queries, DIM, 0, TOKENS, scores, TOKENS));
                ck_ok(dci_sketch_bound(sketch, 4, queries, DIM, 0, TOKENS, 1.0, bounds, TOKENS));
                for (size_t i = 0; i < (size_t)4 * TOKENS; i++) {
                        double product = 0.0, lengths = 0.0;
                        for (size_t p = 0; p < DIM; p++) {
                                const double x = (double)queries[i / TOKENS * DIM + p],
                                             y = (double)rows[i % TOKENS * DIM + p];
                                product += x * y;
                                lengths += fabs(x * y);
                        }
                        ck_assert_msg(isfinite(scores[i]) && fabs((double)scores[i] - product) <=
                                                                     (double)bounds[i] + 1e-5 * lengths + 1e-30,
                                      "hostility %d, %d bits: %g, is %g, bound %g", _i, (int)bits[b], (double)scores[i],
                                      product, (double)bounds[i]);
                }
                dci_sketch_destroy(sketch);
        }
        test_free(rows, queries);
        dci_context_destroy(context);
}
END_TEST

/* The library's own check of results: every row with the nearest of centroids that are numbers. */
START_TEST(clusters_of_hostile_rows_pass_their_check)
{
        dci_context *context = test_context(1);
        float *rows = test_normal(TOKENS, DIM, 23);
        hostilities[_i](rows, TOKENS);
        for (dci_metric metric = DCI_METRIC_L2; metric <= DCI_METRIC_COSINE; metric++) {
                dci_kmeans_config config;
                dci_kmeans_input input;
                dci_kmeans_result result;
                int32_t labels[TOKENS], sizes[9];
                float centroids[9 * DIM];
                ck_ok(dci_kmeans_config_init(&config, sizeof config));
                ck_ok(dci_kmeans_input_init(&input, sizeof input));
                ck_ok(dci_kmeans_result_init(&result, sizeof result));
                config.dim = DIM;
                config.n_clusters = 9;
                config.metric = metric;
                config.zero_rows = metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : config.zero_rows;
                input.n = TOKENS;
                input.rows = rows;
                result.labels = labels;
                result.sizes = sizes;
                result.centroids = centroids;
                ck_ok(dci_kmeans(context, &config, &input, NULL, &result));
                ck_ok(dci_kmeans_check(context, &config, &input, &result));
                for (size_t i = 0; i < (size_t)9 * DIM; i++)
                        ck_assert(isfinite(centroids[i]));
        }
        free(rows);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("hostile kv");
        TCase *caches = test_case(suite, "caches", 120);
        tcase_add_loop_test(caches, every_preset_gives_numbers_and_keeps_its_own_laws, 0, 2 * KV_N_KINDS);
        tcase_add_loop_test(caches, attention_to_everything_is_that_of_double_precision, 0, 6);
        TCase *others = test_case(suite, "others", 60);
        tcase_add_loop_test(others, sketches_of_hostile_rows_keep_to_their_bound, 0, N_OF_ALL);
        tcase_add_loop_test(others, clusters_of_hostile_rows_pass_their_check, 0, N_OF_ALL);
        return test_main(suite);
}
