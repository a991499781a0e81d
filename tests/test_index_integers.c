/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows of 8 bits: scores are the exact integers, rounded once, for every kind, level, batch size and format of queries. */
#include "tests/context_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/file.h"
#include "tests/index_fixture.h"
#include "tests/naive.h"

#define QUERIES 40
#define K 12

static const dci_metric metrics[] = {DCI_METRIC_L2, DCI_METRIC_IP, DCI_METRIC_COSINE};

/* Rows and queries of a format each, and the answers by sums of 64 bits. */
typedef struct world {
        dci_dtype dtype, query_dtype;
        dci_metric metric;
        size_t n, dim;
        unsigned char *rows, *queries;
        float *wide_rows, *wide_queries;
        int64_t *ids;
        float *scores;
} world;

static int at(dci_dtype dtype, const unsigned char *from, size_t i)
{
        return dtype == DCI_I8 ? (int8_t)from[i] : from[i];
}

static float score_of(const world *w, size_t query, size_t row)
{
        int64_t dot = 0, distance = 0, row2 = 0, query2 = 0;
        for (size_t i = 0; i < w->dim; i++) {
                const int64_t q = at(w->query_dtype, w->queries, query * w->dim + i),
                              x = at(w->dtype, w->rows, row * w->dim + i);
                dot += q * x;
                distance += (q - x) * (q - x);
                row2 += x * x;
                query2 += q * q;
        }
        if (w->metric != DCI_METRIC_COSINE)
                return w->metric == DCI_METRIC_L2 ? (float)distance : (float)dot;
        const float row_scale = row2 > 0 ? 1.0f / sqrtf((float)row2) : 0.0f,
                    query_scale = query2 > 0 ? 1.0f / sqrtf((float)query2) : 0.0f;
        const float cosine = (float)dot * row_scale * query_scale;
        return fabsf(cosine) < 1.0f - 6.0f * 0x1p-24f ? cosine
                                                      : copysignf(1.0f, cosine); /* as index/flat/flat.c says */
}

/* Extremes come often: sums are as large as they can be. */
static unsigned char *make_bytes(size_t n, dci_rng *rng, float **wide, dci_dtype dtype)
{
        unsigned char *out = malloc(n);
        *wide = malloc(n * sizeof **wide);
        ck_assert(out != NULL && *wide != NULL);
        for (size_t i = 0; i < n; i++) {
                const uint64_t r = dci_rng_next(rng);
                out[i] = (r & 0x300) == 0 ? (r & 0x400 ? 0x80 : 0xff) : (unsigned char)r;
                (*wide)[i] = (float)at(dtype, out, i);
        }
        return out;
}

static void find_best(world *w)
{
        const bool l2 = w->metric == DCI_METRIC_L2;
        w->ids = malloc(QUERIES * K * sizeof *w->ids);
        w->scores = malloc(QUERIES * K * sizeof *w->scores);
        ck_assert(w->ids != NULL && w->scores != NULL);
        for (size_t q = 0; q < QUERIES; q++) {
                int64_t *ids = w->ids + q * K;
                float *scores = w->scores + q * K;
                size_t found = 0;
                for (size_t r = 0; r < w->n; r++) {
                        const float score = score_of(w, q, r);
                        size_t place = found;
                        while (place > 0 && (l2 ? score < scores[place - 1] : score > scores[place - 1]))
                                place--;
                        if (place == K)
                                continue;
                        found += found < K;
                        memmove(ids + place + 1, ids + place, (found - 1 - place) * sizeof *ids);
                        memmove(scores + place + 1, scores + place, (found - 1 - place) * sizeof *scores);
                        ids[place] = (int64_t)r;
                        scores[place] = score;
                }
        }
}

static world make_world(dci_metric metric, dci_dtype dtype, dci_dtype query_dtype, size_t n, size_t dim)
{
        world w = {.dtype = dtype, .query_dtype = query_dtype, .metric = metric, .n = n, .dim = dim};
        dci_rng rng;
        dci_rng_seed(&rng, n * 64 + dim);
        w.rows = make_bytes(n * dim, &rng, &w.wide_rows, dtype);
        w.queries = make_bytes(QUERIES * dim, &rng, &w.wide_queries, query_dtype);
        find_best(&w);
        return w;
}

static void free_world(world *w)
{
        test_free(w->rows, w->queries, w->wide_rows, w->wide_queries, w->ids, w->scores);
}

static dci_index_config config_of(const world *w, dci_index_kind kind)
{
        dci_index_config config = index_config(w->dim, w->metric, w->dtype);
        config.kind = kind;
        config.query_dtype = w->query_dtype;
        config.zero_rows = DCI_ZERO_KEEP;
        config.top_nodes = 8;
        return config;
}

static dci_index *fill(dci_context *of, const dci_index_config *config, const world *w)
{
        dci_index *index = NULL;
        ck_ok(dci_index_create(of, config, &index));
        ck_ok(dci_index_add(index, w->n, config->add_dtype == DCI_F32 ? (void *)w->wide_rows : w->rows, w->dim, NULL,
                            NULL));
        return index;
}

/* `each` queries per call. */
static void check_answers(const dci_index *index, const world *w, size_t each, const dci_search_params *params,
                          const char *what)
{
        int64_t ids[QUERIES * K];
        float scores[QUERIES * K];
        dci_index_config config;
        ck_ok(dci_index_config_init(&config, sizeof config));
        ck_ok(dci_index_get_config(index, &config));
        const bool wide = config.query_dtype == DCI_F32;
        for (size_t q = 0; q < QUERIES; q += each) {
                const size_t n = QUERIES - q < each ? QUERIES - q : each;
                const void *queries = wide ? (void *)(w->wide_queries + q * w->dim) : w->queries + q * w->dim;
                ck_ok(dci_index_search(index, n, queries, w->dim, K, params, ids + q * K, scores + q * K));
        }
        const size_t n = w->n < K ? w->n : K;
        for (size_t q = 0; q < QUERIES; q++)
                ck_assert_msg(memcmp(ids + q * K, w->ids + q * K, n * sizeof *ids) == 0 &&
                                      memcmp(scores + q * K, w->scores + q * K, n * sizeof *scores) == 0,
                              "%s, metric %d, rows %s, queries %s%s, dim %zu, %zu per call: query %zu differs", what,
                              w->metric, dci_dtype_name(w->dtype), dci_dtype_name(w->query_dtype),
                              wide ? " as f32" : "", w->dim, each, q);
}

static void check_each_size(const dci_index *index, const world *w, const char *what)
{
        check_answers(index, w, 1, NULL, what);
        check_answers(index, w, 7, NULL, what);
        check_answers(index, w, QUERIES, NULL, what);
}

/* Loops over metrics and both formats of rows and of queries. */
START_TEST(answers_are_exact_on_every_level)
{
        static const struct {
                size_t n, dim;
        } shapes[] = {{1, 1}, {5, 3}, {300, 1}, {300, 16}, {270, 17}, {1300, 33}, {4200, 20}, {400, 784}, {260, 15000}};
        const size_t n_isas = test_n_isas();
        for (size_t s = 0; s < COUNT(shapes) - (_i % 4 != 0); s++) {
                world w = make_world(metrics[_i % 3], DCI_I8 + _i / 3 % 2, DCI_I8 + _i / 6, shapes[s].n, shapes[s].dim);
                for (size_t i = 0; i < n_isas; i++) {
                        dci_context *own = test_context_of_level((int)i);
                        dci_index_config config = config_of(&w, DCI_KIND_FLAT);
                        dci_index *index = fill(own, &config, &w);
                        check_each_size(index, &w, dci_isa_name(dci_context_isa(own)));
                        dci_index_destroy(index);
                        dci_context_destroy(own);
                }
                free_world(&w);
        }
}
END_TEST

/* Loops over metrics and formats of rows. Rows and queries that come as floats give the same bits. */
START_TEST(every_kind_storage_and_form_gives_the_same)
{
        const dci_dtype dtype = DCI_I8 + _i / 3;
        world w = make_world(metrics[_i % 3], dtype, dtype, 900, 37);
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI; kind++)
                for (int form = 0; form < 4; form++) {
                        dci_index_config config = config_of(&w, kind);
                        config.storage = form == 1 ? DCI_ROWS_BORROWED : DCI_ROWS_OWNED;
                        config.add_dtype = form >= 2 ? DCI_F32 : 0;
                        config.query_dtype = form == 3 ? DCI_F32 : config.query_dtype;
                        config.sketch_bits = form == 2 ? 4 : 0;
                        dci_index *index = fill(context, &config, &w);
                        params.guarantee = form == 2 ? 1 : 0;
                        check_answers(index, &w, 1, &params, "kinds");
                        check_answers(index, &w, 7, &params, "kinds");
                        check_answers(index, &w, QUERIES, &params, "kinds");
                        ck_ok(dci_index_check(index, DCI_CHECK_FULL, NULL));
                        dci_index_destroy(index);
                }
        free_world(&w);
}
END_TEST

/* Loops over metrics and formats of rows. What a file says is what was saved, and the rows come back. */
START_TEST(files_keep_rows_and_answers)
{
        const dci_dtype dtype = DCI_I8 + _i / 3;
        world w = make_world(metrics[_i % 3], dtype, dtype, 700, 21);
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI; kind++) {
                dci_index_config config = config_of(&w, kind);
                config.sketch_bits = kind == DCI_KIND_MDCI ? 8 : 0;
                dci_index *index = fill(context, &config, &w), *loaded = NULL;
                size_t n_bytes = 0;
                ck_ok(dci_index_save_memory(index, 0, NULL, &n_bytes));
                void *bytes = malloc(n_bytes);
                ck_ok(dci_index_save_memory(index, n_bytes, bytes, &n_bytes));
                ck_ok(dci_index_load_memory(context, bytes, n_bytes, &loaded));
                ck_ok(dci_index_check(loaded, DCI_CHECK_FULL, NULL));
                dci_search_params all;
                ck_ok(dci_search_params_init(&all, sizeof all));
                all.rerank = INFINITY;
                check_answers(loaded, &w, QUERIES, &all, "loaded");
                unsigned char *rows = malloc(w.n * w.dim);
                int64_t *ids = malloc(w.n * sizeof *ids);
                for (size_t i = 0; i < w.n; i++)
                        ids[i] = (int64_t)i;
                ck_ok(dci_index_reconstruct(loaded, w.n, ids, rows, w.dim));
                ck_assert_mem_eq(rows, w.rows, w.n * w.dim);
                test_free(rows, ids, bytes);
                dci_index_destroy(loaded);
                dci_index_destroy(index);
        }
        free_world(&w);
}
END_TEST

/* Loops over metrics and formats of rows. Queries that are not integers are scored as floats, by the bits of an index of float
 * rows; among others, each query is scored as it would be alone. */
START_TEST(float_queries_are_scored_as_against_float_rows)
{
        enum { DIM = 50, N = 600 };
        const dci_dtype dtype = DCI_I8 + _i / 3;
        const size_t sizes[] = {1, 6, QUERIES};
        world w = make_world(metrics[_i % 3], dtype, dtype, N, DIM);
        for (size_t q = 0; q < QUERIES; q += 1 + q % 3)
                w.wide_queries[q * DIM + q % DIM] += 0.25f;
        w.wide_queries[3 * DIM] = 200.0f; /* integers that neither format holds */
        w.wide_queries[3 * DIM + 1] = -1.0f;
        dci_index_config config = config_of(&w, DCI_KIND_FLAT);
        config.query_dtype = DCI_F32;
        dci_index *index = fill(context, &config, &w);
        config.dtype = config.add_dtype = DCI_F32;
        dci_index *wide = fill(context, &config, &w);
        int64_t ids[QUERIES * K], wanted_ids[QUERIES * K];
        float scores[QUERIES * K], wanted[QUERIES * K];
        for (size_t s = 0; s < COUNT(sizes); s++)
                for (size_t q = 0; q < QUERIES; q += sizes[s]) {
                        const size_t n = QUERIES - q < sizes[s] ? QUERIES - q : sizes[s];
                        ck_ok(dci_index_search(index, n, w.wide_queries + q * DIM, DIM, K, NULL, ids + q * K,
                                               scores + q * K));
                        ck_ok(dci_index_search(wide, n, w.wide_queries + q * DIM, DIM, K, NULL, wanted_ids + q * K,
                                               wanted + q * K));
                        /* Sums this short are exact in binary32 too, so integers and floats agree. */
                        ck_assert_mem_eq(ids + q * K, wanted_ids + q * K, n * K * sizeof *ids);
                        ck_assert_mem_eq(scores + q * K, wanted + q * K, n * K * sizeof *scores);
                }
        dci_index_destroy(index);
        dci_index_destroy(wide);
        free_world(&w);
}
END_TEST

START_TEST(rows_that_are_not_integers_in_range_are_refused)
{
        static const struct {
                dci_dtype dtype;
                float bad;
                const char *said;
        } cases[] = {
                {DCI_U8, 0.5f, "row 7: element 2 is 0.5, rows of dtype u8 hold integers from 0 to 255"},
                {DCI_U8, -1.0f, "row 7: element 2 is -1, rows of dtype u8 hold integers from 0 to 255"},
                {DCI_U8, 256.0f, "row 7: element 2 is 256, rows of dtype u8 hold integers from 0 to 255"},
                {DCI_I8, 128.0f, "row 7: element 2 is 128, rows of dtype i8 hold integers from -128 to 127"},
                {DCI_I8, NAN, "row 7: element 2 is nan, rows of dtype i8 hold integers from -128 to 127"},
                {DCI_I8, -INFINITY, "row 7: element 2 is -inf, rows of dtype i8 hold integers from -128 to 127"},
        };
        for (size_t i = 0; i < COUNT(cases); i++) {
                float rows[9 * 3];
                for (size_t j = 0; j < COUNT(rows); j++)
                        rows[j] = (float)(j % 100);
                dci_index_config config = index_config(3, DCI_METRIC_L2, cases[i].dtype);
                config.add_dtype = DCI_F32;
                dci_index *index = NULL;
                ck_ok(dci_index_create(context, &config, &index));
                rows[7 * 3 + 2] = cases[i].bad;
                ck_refused(dci_index_add(index, 9, rows, 3, NULL, NULL), DCI_ERR_NUMBER, cases[i].said);
                ck_assert_uint_eq(dci_index_count(index), 0);
                rows[7 * 3 + 2] = 127.0f;
                ck_ok(dci_index_add(index, 9, rows, 3, NULL, NULL));
                dci_index_destroy(index);
        }
}
END_TEST

/* An index of floats takes them too: every one is exact there. */
START_TEST(rows_of_bytes_enter_indexes_of_floats)
{
        for (dci_dtype stored = DCI_F32; stored <= DCI_BF16; stored++)
                for (dci_dtype added = DCI_I8; added <= DCI_U8; added++) {
                        unsigned char bytes[256];
                        dci_index_config config = index_config(1, DCI_METRIC_L2, stored);
                        dci_index *index = NULL;
                        config.add_dtype = config.query_dtype = added;
                        ck_ok(dci_index_create(context, &config, &index));
                        for (size_t i = 0; i < 256; i++)
                                bytes[i] = (unsigned char)i;
                        ck_ok(dci_index_add(index, 256, bytes, 1, NULL, NULL));
                        for (size_t i = 0; i < 256; i++) {
                                int64_t id;
                                float score;
                                ck_ok(dci_index_search(index, 1, bytes + i, 1, 1, NULL, &id, &score));
                                ck_assert(id == (int64_t)i && score == 0.0f);
                        }
                        dci_index_destroy(index);
                }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index_integers");
        TCase *tcase = test_case_with(suite, "integers", 120, context_open_2, context_close);
        tcase_add_loop_test(tcase, answers_are_exact_on_every_level, 0, 12);
        tcase_add_loop_test(tcase, every_kind_storage_and_form_gives_the_same, 0, 6);
        tcase_add_loop_test(tcase, files_keep_rows_and_answers, 0, 6);
        tcase_add_loop_test(tcase, float_queries_are_scored_as_against_float_rows, 0, 6);
        tcase_add_test(tcase, rows_that_are_not_integers_in_range_are_refused);
        tcase_add_test(tcase, rows_of_bytes_enter_indexes_of_floats);
        return test_main(suite);
}
