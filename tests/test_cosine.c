/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Cosines are in [-1, 1], and equal rows score exactly 1, by every way to a score: kinds, codes, formats, batches, groups, ranges, instruction
 * sets, and files of another instruction set.
 */
#include "tests/index_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/file.h"
#include "tests/naive.h"
#include "tests/scratch.h"

enum { N = 600, Q = 40, COPY = 300 }; /* rows from COPY on are those from 0 on once more */

static const size_t dims[] = {1, 31, 384, 1000};

/* Of lengths 2^-20 to 2^20, as f16 and bf16 hold them (a factor that is a power of two, within reach of f16). */
static float *make_rows(dci_dtype dtype, size_t dim)
{
        float *rows = test_normal(N, dim, 7 + dim);
        dci_rng rng;
        dci_rng_seed(&rng, dim);
        for (size_t i = 0; i < COPY; i++) {
                const int most = dtype == DCI_F16 ? 4 : 20;
                const float scale = ldexpf(1.0f, (int)dci_rng_below(&rng, (uint64_t)(2 * most + 1)) - most);
                for (size_t p = 0; p < dim; p++)
                        rows[i * dim + p] *= scale;
        }
        naive_round(dtype, COPY * dim, rows, rows);
        memcpy(rows + COPY * dim, rows, COPY * dim * sizeof *rows);
        return rows;
}

static dci_index_config make_config(int32_t kind, dci_dtype dtype, size_t dim, int32_t bits)
{
        dci_index_config config = index_config(dim, DCI_METRIC_COSINE, dtype);
        config.kind = kind;
        config.sketch_bits = bits;
        config.add_dtype = config.query_dtype = DCI_F32;
        return config;
}

/* Each query finds itself and its copy with score 1 and nothing above, the lower id first; a range of 1 finds both, one of -1
 * all rows. */
static void check_equal(const dci_index *index, const float *rows, size_t dim, const char *what)
{
        enum { K = 4 };
        int64_t ids[Q * K], single[K];
        float scores[Q * K], again[K], opposite[Q * K];
        dci_search_params full;
        ck_ok(dci_search_params_init(&full, sizeof full));
        full.rerank = INFINITY;
        ck_ok(dci_index_search(index, Q, rows, dim, K, &full, ids, scores));
        for (size_t q = 0; q < Q; q++) {
                dci_range_result near;
                size_t found = 0;
                for (size_t i = 0; i < K; i++)
                        ck_assert_msg(fabsf(scores[q * K + i]) <= 1.0f, "%s: %.9g", what, (double)scores[q * K + i]);
                for (size_t i = 0; i + 1 < K; i++)
                        ck_assert(scores[q * K + i] > scores[q * K + i + 1] || ids[q * K + i] < ids[q * K + i + 1]);
                ck_assert_msg(scores[q * K] == 1.0f && scores[q * K + 1] == 1.0f, "%s: query %zu: %.9g", what, q,
                              (double)scores[q * K + 1]);
                ck_ok(dci_index_search(index, 1, rows + q * dim, dim, K, &full, single, again));
                ck_assert(memcmp(single, ids + q * K, sizeof single) == 0 &&
                          memcmp(again, scores + q * K, sizeof again) == 0);
                ck_ok(dci_range_result_init(&near, sizeof near));
                ck_ok(dci_index_range_search(index, 1, rows + q * dim, dim, 1.0f, NULL, &near));
                for (size_t i = 0; i < near.offsets[1]; i++)
                        found += near.ids[i] == (int64_t)q || near.ids[i] == (int64_t)q + COPY;
                ck_assert_msg(found == 2, "%s: a range of 1 finds %zu of query %zu and its copy", what, found, q);
                dci_range_result_free(&near);
        }
        ck_ok(dci_index_search_group(index, Q / 8, 8, rows, dim, K, DCI_GROUP_EACH, &full, ids, opposite));
        ck_assert_int_eq(memcmp(scores, opposite, sizeof scores), 0);
}

/* The row opposite to the query scores -1, and no row less. */
static void check_opposite(const dci_index *index, const float *rows, size_t dim, const char *what)
{
        float *query = test_room(dim, sizeof *query);
        dci_range_result all;
        size_t found = 0;
        for (size_t p = 0; p < dim; p++)
                query[p] = -rows[p];
        ck_ok(dci_range_result_init(&all, sizeof all));
        ck_ok(dci_index_range_search(index, 1, query, dim, -1.0f, NULL, &all));
        ck_assert_msg(all.offsets[1] == N, "%s: %zu rows score -1 or more", what, all.offsets[1]);
        for (size_t i = 0; i < N; i++)
                found += all.scores[i] == -1.0f && (all.ids[i] == 0 || all.ids[i] == COPY);
        ck_assert_msg(found == 2, "%s: %zu rows are opposite", what, found);
        dci_range_result_free(&all);
        free(query);
}

/* Loops over instruction sets. */
START_TEST(equal_rows_score_one)
{
        static const struct {
                int32_t kind, bits;
        } forms[] = {
                {DCI_KIND_FLAT, 0}, {DCI_KIND_FLAT, 4}, {DCI_KIND_PDCI, 0}, {DCI_KIND_MDCI, 0}, {DCI_KIND_MDCI, 4}};
        dci_context *context = test_context_of_level(_i);
        for (size_t d = 0; d < COUNT(dims); d += test_short() ? 2 : 1) {
                for (dci_dtype dtype = DCI_F32; dtype <= DCI_BF16; dtype++) {
                        float *rows = make_rows(dtype, dims[d]);
                        for (size_t f = 0; f < COUNT(forms); f++) {
                                const dci_index_config config =
                                        make_config(forms[f].kind, dtype, dims[d], forms[f].bits);
                                dci_index *index = NULL;
                                char what[80];
                                snprintf(what, sizeof what, "form %zu, dtype %d, dim %zu", f, (int)dtype, dims[d]);
                                ck_ok(dci_index_create(context, &config, &index));
                                ck_ok(dci_index_add(index, N, rows, dims[d], NULL, NULL));
                                check_equal(index, rows, dims[d], what);
                                check_opposite(index, rows, dims[d], what);
                                dci_index_destroy(index);
                        }
                        free(rows);
                }
        }
        dci_context_destroy(context);
}
END_TEST

/* Rows a few roundings away from the query: within the bound of the exact cosine, wherever 1 begins; alone as in a batch. */
START_TEST(rows_nearly_equal_are_within_the_bound)
{
        enum { DIM = 100, NEAR = 512, K = 100 };
        dci_context *context = test_context_of_level(_i);
        const dci_index_config config = make_config(DCI_KIND_FLAT, DCI_F32, DIM, 0);
        float *rows = test_normal(NEAR, DIM, 3), *queries = test_normal(Q, DIM, 3);
        int64_t ids[Q * K], single[K];
        float scores[Q * K], again[K];
        dci_index *index = NULL;
        naive model;
        for (size_t i = 1; i < NEAR; i++)
                for (size_t p = 0; p < DIM; p++)
                        rows[i * DIM + p] = rows[p] + rows[i * DIM + p] * 1e-5f * (float)i;
        for (size_t q = 0; q < Q; q++)
                memcpy(queries + q * DIM, rows + q * DIM, DIM * sizeof *rows);
        naive_init(&model, DIM, DCI_METRIC_COSINE);
        naive_fill(&model, DCI_F32, NEAR, rows, NULL);
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, NEAR, rows, DIM, NULL, NULL));
        ck_ok(dci_index_search(index, Q, queries, DIM, K, NULL, ids, scores));
        for (size_t q = 0; q < Q; q++) {
                naive_check(&model, queries + q * DIM, K, NULL, ids + q * K, scores + q * K, "near");
                ck_ok(dci_index_search(index, 1, queries + q * DIM, DIM, K, NULL, single, again));
                ck_assert_int_eq(memcmp(single, ids + q * K, sizeof single), 0);
                ck_assert_int_eq(memcmp(again, scores + q * K, sizeof again), 0);
        }
        naive_free(&model);
        dci_index_destroy(index);
        dci_context_destroy(context);
        test_free(rows, queries);
}
END_TEST

/* Changes inverse norms by as much as a file's may deviate (format.md), up and down in turns. */
static void move_norms(dci_index *index, size_t dim)
{
        const float most = ((float)dim / 8.0f + 15.0f) * 0x1p-24f;
        for (size_t slot = 0; slot < N; slot++) {
                size_t at;
                float *norms = dci_rows_chunk(&index->rows, slot, &at)->norms;
                norms[at] *= slot % 2 == 0 ? 1.0f - most : 1.0f + most;
        }
}

/* Loops over pairs of instruction sets: inverse norms of a file keep the rounding of the one that made them. */
START_TEST(equal_rows_score_one_in_a_file_of_another_level)
{
        const int n = (int)test_n_isas(), from = _i / n, to = _i % n;
        const size_t dim = 1000;
        const dci_index_config config = make_config(DCI_KIND_FLAT, DCI_F32, dim, 0);
        dci_context *writer = test_context_of_level(from), *reader = test_context_of_level(to);
        float *rows = make_rows(DCI_F32, dim);
        dci_index *index = NULL, *loaded = NULL, *mapped = NULL;
        ck_ok(dci_index_create(writer, &config, &index));
        ck_ok(dci_index_add(index, N, rows, dim, NULL, NULL));
        ck_ok(dci_index_save(index, scratch_path("file")));
        ck_ok(dci_index_load(reader, scratch_path("file"), &loaded));
        ck_ok(dci_index_map(reader, scratch_path("file"), &mapped));
        check_equal(loaded, rows, dim, "loaded");
        move_norms(loaded, dim);
        check_equal(loaded, rows, dim, "norms as far off as a file's may be");
        check_opposite(loaded, rows, dim, "norms as far off as a file's may be");
        check_equal(mapped, rows, dim, "mapped");
        check_opposite(mapped, rows, dim, "mapped");
        dci_index_destroy(index);
        dci_index_destroy(loaded);
        dci_index_destroy(mapped);
        dci_context_destroy(writer);
        dci_context_destroy(reader);
        free(rows);
}
END_TEST

int main(void)
{
        const int n = (int)test_n_isas();
        Suite *suite = suite_create("cosine");
        TCase *tcase = test_case_with(suite, "cosine", 120, scratch_open, scratch_close);
        tcase_add_loop_test(tcase, equal_rows_score_one, 0, n);
        tcase_add_loop_test(tcase, rows_nearly_equal_are_within_the_bound, 0, n);
        tcase_add_loop_test(tcase, equal_rows_score_one_in_a_file_of_another_level, 0, n * n);
        return test_main(suite);
}
