/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Indexes of rows that somebody chose to hurt: the least and the largest numbers, all rows the same, orders of insertion that trees dislike. At
 * full effort they answer as the naive model in double precision does, every row is found by searching for itself, and the check passes
 * at every turn, which counts that every structure has every row (docs/reliability.md, "Unreachable points").
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/index_fixture.h"
#include "tests/naive.h"

enum { DIM = 12, ROWS = 260, QUERIES = 6, K = 10 };

/* --- rows ------------------------------------------------------------------------------------------------------------------------------ */

static void scale(float *rows, size_t n, float by)
{
        for (size_t i = 0; i < n; i++)
                rows[i] *= by;
}
static void as_they_are(float *rows, size_t n)
{
        (void)rows;
        (void)n;
}
static void denormal(float *rows, size_t n)
{
        scale(rows, n * DIM, 0x1p-140f);
}
static void tiny(float *rows, size_t n)
{
        scale(rows, n * DIM, 1e-25f);
}
static void small(float *rows, size_t n)
{
        scale(rows, n * DIM, 1e-10f);
}
/* Squared norms just below the limit of FLT_MAX / 8. */
static void huge(float *rows, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                double norm2 = 0.0;
                for (size_t p = 0; p < DIM; p++)
                        norm2 += (double)rows[i * DIM + p] * (double)rows[i * DIM + p];
                scale(rows + i * DIM, DIM, (float)(6.5e18 / sqrt(norm2)));
        }
}
/* Every row has another size, from 2^-40 to 2^40. */
static void of_all_sizes(float *rows, size_t n)
{
        for (size_t i = 0; i < n; i++)
                scale(rows + i * DIM, DIM, ldexpf(1.0f, (int)(i * 37 % 81) - 40));
}
static void all_the_same(float *rows, size_t n)
{
        for (size_t i = 1; i < n; i++)
                memcpy(rows + i * DIM, rows, DIM * sizeof *rows);
}
static void of_seven(float *rows, size_t n)
{
        for (size_t i = 7; i < n; i++)
                memcpy(rows + i * DIM, rows + i % 7 * DIM, DIM * sizeof *rows);
}
/* All but one coordinate zero. */
static void on_axes(float *rows, size_t n)
{
        for (size_t i = 0; i < n; i++)
                for (size_t p = 0; p < DIM; p++)
                        rows[i * DIM + p] = p == i % DIM ? 1.0f + (float)(i / DIM) : 0.0f;
}
/* On a line, one after the other: each new row is beyond all cells. */
static void sorted_on_a_line(float *rows, size_t n)
{
        for (size_t i = 0; i < n; i++)
                for (size_t p = 1; p < DIM; p++)
                        rows[i * DIM + p] *= 1e-3f;
        qsort(rows, n, DIM * sizeof *rows, test_floats_ascend);
}
/* Near and far in turns, and the far ones farther every time. */
static void near_and_far(float *rows, size_t n)
{
        for (size_t i = 1; i < n; i += 2)
                scale(rows + i * DIM, DIM, (float)i * 10.0f);
}
/* Spirals outward in two dimensions. */
static void on_a_spiral(float *rows, size_t n)
{
        memset(rows, 0, n * DIM * sizeof *rows);
        for (size_t i = 0; i < n; i++) {
                rows[i * DIM] = (float)((double)i * cos(0.1 * (double)i));
                rows[i * DIM + 1] = (float)((double)i * sin(0.1 * (double)i));
        }
}

static const struct hostility {
        const char *name;
        void (*make)(float *rows, size_t n);
        bool zero_by_cosine; /* too short to have a direction */
} hostilities[] = {
        {"as they are", as_they_are, false},
        {"denormal", denormal, true},
        {"tiny", tiny, true},
        {"small", small, false},
        {"huge", huge, false},
        {"of all sizes", of_all_sizes, false},
        {"all the same", all_the_same, false},
        {"of seven", of_seven, false},
        {"on axes", on_axes, false},
        {"sorted on a line", sorted_on_a_line, false},
        {"near and far", near_and_far, false},
        {"on a spiral", on_a_spiral, false},
};
enum { N_HOSTILITIES = sizeof hostilities / sizeof *hostilities };

/* --- lives ------------------------------------------------------------------------------------------------------------------------------- */

static dci_index_config config_of(dci_index_kind kind, dci_metric metric, size_t dim)
{
        dci_index_config config = index_config(dim, metric, DCI_F32);
        config.kind = kind;
        config.zero_rows = metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
        config.promotion_prob = 0.1;
        config.promotion_prob_subseq = 0.3;
        config.top_nodes = 6;
        config.page_rows = 4;
        config.seed = 3;
        return config;
}

static void passes(const dci_index *index, const char *what)
{
        ck_assert_msg(dci_index_check(index, DCI_CHECK_FULL, NULL) == DCI_OK, "%s: %s", what, dci_last_error());
}

/* Every row of the model is the best answer, or one of those that are as good, to itself. */
static void finds_each_by_itself(const dci_index *index, const naive *model, const char *what)
{
        float *row = malloc(model->dim * sizeof *row);
        int64_t ids[K];
        float scores[K];
        for (size_t i = 0; i < model->n; i++) {
                bool found = false;
                for (size_t p = 0; p < model->dim; p++)
                        row[p] = (float)model->rows[i * model->dim + p];
                ck_ok(dci_index_search(index, 1, row, model->dim, K, NULL, ids, scores));
                for (size_t j = 0; j < K && ids[j] >= 0; j++)
                        found = found || ids[j] == model->ids[i];
                /* So many rows are the same, or as good, that others come first by their ids: then all K are. */
                double bound, own = naive_score(model, row, i, &bound);
                const bool as_good = ids[K - 1] >= 0 &&
                                     (model->metric == DCI_METRIC_L2 ? (double)scores[K - 1] <= own + 2.0 * bound
                                                                     : (double)scores[K - 1] >= own - 2.0 * bound);
                ck_assert_msg(found || as_good, "%s: row %lld is not found by searching for it", what,
                              (long long)model->ids[i]);
        }
        free(row);
}

static void answers(const dci_index *index, const naive *model, const float *rows, const char *what)
{
        float query[DIM];
        int64_t ids[K];
        float scores[K];
        for (size_t q = 0; q < QUERIES; q++) { /* rows, and their opposites: what correlates least */
                for (size_t p = 0; p < DIM; p++)
                        query[p] = (q % 2 == 0 ? 1.0f : -1.0f) * rows[q * 31 * DIM + p];
                ck_ok(dci_index_search(index, 1, query, DIM, K, NULL, ids, scores));
                naive_check(model, query, K, NULL, ids, scores, what);
        }
}

/* One by one and in pieces, a third taken out again, and back in under other ids. */
static void live(const struct hostility *h, dci_index_kind kind, dci_metric metric, int32_t bits)
{
        char what[96];
        snprintf(what, sizeof what, "%s, kind %d, metric %d, %d bits", h->name, (int)kind, (int)metric, (int)bits);
        dci_context *context = test_context(1);
        dci_index_config config = config_of(kind, metric, DIM);
        dci_index *index = NULL;
        naive model;
        float *rows = test_normal(ROWS, DIM, 17);
        config.sketch_bits = bits;
        config.page_rows = bits > 0 ? 16 : 4;
        h->make(rows, ROWS);
        naive_init(&model, DIM, metric);
        ck_ok(dci_index_create(context, &config, &index));
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        params.rerank = bits > 0 ? INFINITY : 0.0;
        ck_ok(dci_index_set_defaults(index, &params));
        for (size_t i = 0, n; i < ROWS; i += n) {
                n = i < 20 ? 1 : ROWS - i < 16 ? ROWS - i : 16;
                ck_ok(dci_index_add(index, n, rows + i * DIM, DIM, NULL, NULL));
                for (size_t j = i; j < i + n; j++)
                        naive_add(&model, rows + j * DIM, (int64_t)j);
                if (i < 3 || i % 3 == 0)
                        passes(index, what);
        }
        answers(index, &model, rows, what);
        for (int64_t id = 1; id < ROWS; id += 3) {
                ck_ok(dci_index_remove(index, 1, &id));
                naive_remove(&model, id);
                if (id % 10 == 0)
                        passes(index, what);
        }
        passes(index, what);
        answers(index, &model, rows, what);
        for (int64_t id = 1; id < ROWS; id += 6) {
                const int64_t again = id + 1000;
                ck_ok(dci_index_add(index, 1, rows + (size_t)id * DIM, DIM, &again, NULL));
                naive_add(&model, rows + (size_t)id * DIM, again);
        }
        passes(index, what);
        answers(index, &model, rows, what);
        finds_each_by_itself(index, &model, what);
        naive_free(&model);
        dci_index_destroy(index);
        dci_context_destroy(context);
        free(rows);
}

START_TEST(full_effort_equals_the_model_whatever_the_rows)
{
        const struct hostility *h = &hostilities[_i / 3];
        const dci_metric metric = 1 + (dci_metric)(_i % 3);
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI; kind++) {
                if (h->zero_by_cosine && metric == DCI_METRIC_COSINE)
                        continue; /* rows shorter than 2^-40 have no direction: see the next test */
                live(h, kind, metric, 0);
        }
}
END_TEST

START_TEST(codes_keep_to_rows_whatever_they_are)
{
        const struct hostility *h = &hostilities[_i];
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI; kind += 2)
                if (!h->zero_by_cosine)
                        live(h, kind, 1 + (dci_metric)(_i % 3), 1 << (_i % 4));
}
END_TEST

/* As index.h says: shorter than 2^-40 counts as zero, whose cosine is 0 with everything. */
START_TEST(rows_too_short_for_a_direction_count_as_zero)
{
        dci_context *context = test_context(1);
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI; kind++) {
                const dci_index_config config = config_of(kind, DCI_METRIC_COSINE, DIM);
                dci_index *index = NULL;
                float *rows = test_normal(60, DIM, 2), *query = test_normal(1, DIM, 3);
                int64_t ids[60];
                float scores[60];
                _i == 0 ? denormal(rows, 30) : tiny(rows, 30);
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, 60, rows, DIM, NULL, NULL));
                passes(index, "short rows");
                ck_ok(dci_index_search(index, 1, query, DIM, 60, NULL, ids, scores));
                for (size_t i = 0; i < 60; i++)
                        ck_assert(ids[i] >= 30 || scores[i] == 0.0f);
                test_free(rows, query);
                dci_index_destroy(index);
        }
        dci_context_destroy(context);
}
END_TEST

/* The ends of what there can be: a number, and very many. */
START_TEST(one_and_4096_elements_are_answered_as_the_model_does)
{
        static const size_t dims[] = {1, 2, 4096};
        const size_t dim = dims[_i / 3], n = dim > 1000 ? 60 : 200;
        const dci_metric metric = 1 + (dci_metric)(_i % 3);
        dci_context *context = test_context(1);
        float *rows = test_normal(n, dim, 4), *queries = test_normal(3, dim, 5);
        naive model;
        naive_init(&model, dim, metric);
        naive_fill(&model, DCI_F32, n, rows, NULL);
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI; kind++) {
                const dci_index_config config = config_of(kind, metric, dim);
                dci_index *index = NULL;
                int64_t ids[3 * K];
                float scores[3 * K];
                ck_ok(dci_index_create(context, &config, &index));
                ck_ok(dci_index_add(index, n / 2, rows, dim, NULL, NULL));
                for (size_t i = n / 2; i < n; i++)
                        ck_ok(dci_index_add(index, 1, rows + i * dim, dim, NULL, NULL));
                passes(index, "dims");
                ck_ok(dci_index_search(index, 3, queries, dim, K, NULL, ids, scores));
                for (size_t q = 0; q < 3; q++)
                        naive_check(&model, queries + q * dim, K, NULL, ids + q * K, scores + q * K, "dims");
                finds_each_by_itself(index, &model, "dims");
                dci_index_destroy(index);
        }
        naive_free(&model);
        test_free(rows, queries);
        dci_context_destroy(context);
}
END_TEST

/* Copies of few rows, more than any page, cell or list has room for: all are found, each once. */
START_TEST(many_copies_are_all_found)
{
        const size_t n = getenv("DCI_TEST_LONG") != NULL ? 1000000 : test_short() ? 2000 : 10000;
        const dci_index_kind kind = 1 + (dci_index_kind)_i;
        dci_context *context = test_context(2);
        dci_index_config config = config_of(kind, DCI_METRIC_IP, 4);
        dci_index *index = NULL;
        config.page_rows = 16;
        config.num_comp_indices = config.num_simp_indices = 2;
        float *rows = test_normal(n, 4, 6);
        for (size_t i = 3; i < n; i++)
                memcpy(rows + i * 4, rows + i % 3 * 4, 4 * sizeof *rows);
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, n - n / 8, rows, 4, NULL, NULL));
        for (size_t i = n - n / 8, here; i < n; i += here) {
                here = n - i < n / 64 ? n - i : n / 64;
                ck_ok(dci_index_add(index, here, rows + i * 4, 4, NULL, NULL));
        }
        passes(index, "copies");
        int64_t *ids = malloc(n * sizeof *ids);
        bool *seen = calloc(n, sizeof *seen);
        ck_ok(dci_index_search(index, 1, rows, 4, n, NULL, ids, NULL));
        for (size_t i = 0; i < n; i++) {
                ck_assert(ids[i] >= 0 && (size_t)ids[i] < n && !seen[ids[i]]);
                seen[ids[i]] = true;
        }
        test_free(ids, seen, rows);
        dci_index_destroy(index);
        dci_context_destroy(context);
}
END_TEST

/* --- long adversarial sequences ------------------------------------------------------------------------------------------------------------ */

/* A window slides over an order that no cell likes; whatever was promoted goes in bursts, so that cells dissolve and lone nodes come. */
START_TEST(no_row_is_lost_in_long_adversarial_sequences)
{
        enum { WINDOW = 150, STEPS = 40, PIECE = 15 };
        static void (*const orders[])(float *rows, size_t n) = {sorted_on_a_line, near_and_far, of_seven, on_a_spiral};
        const dci_index_kind kind = 1 + (dci_index_kind)(_i % 3);
        const dci_metric metric = 1 + (dci_metric)(_i / 3 % 3);
        const size_t n = WINDOW + STEPS * PIECE;
        char what[64];
        snprintf(what, sizeof what, "order %d, kind %d, metric %d", _i / 9, (int)kind, (int)metric);
        dci_context *context = test_context(1);
        const dci_index_config config = config_of(kind, metric, DIM);
        dci_index *index = NULL;
        naive model;
        float *rows = test_normal(n, DIM, 8);
        orders[_i / 9](rows, n);
        naive_init(&model, DIM, metric);
        ck_ok(dci_index_create(context, &config, &index));
        for (size_t at = 0; at < n; at += PIECE) {
                ck_ok(dci_index_add(index, PIECE, rows + at * DIM, DIM, NULL, NULL));
                for (size_t i = at; i < at + PIECE; i++)
                        naive_add(&model, rows + i * DIM, (int64_t)i);
                while (model.n > WINDOW) { /* the oldest, or one from the middle */
                        const int64_t id = model.ids[model.n % 2 == 0 ? 0 : model.n / 2];
                        ck_ok(dci_index_remove(index, 1, &id));
                        naive_remove(&model, id);
                }
                ck_assert_uint_eq(dci_index_count(index), model.n);
                passes(index, what);
                if (at % (10 * PIECE) == 0)
                        finds_each_by_itself(index, &model, what);
        }
        finds_each_by_itself(index, &model, what);
        naive_free(&model);
        dci_index_destroy(index);
        dci_context_destroy(context);
        free(rows);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("hostile index");
        TCase *numbers = test_case(suite, "numbers", 120);
        tcase_add_loop_test(numbers, full_effort_equals_the_model_whatever_the_rows, 0, N_HOSTILITIES * 3);
        tcase_add_loop_test(numbers, codes_keep_to_rows_whatever_they_are, 0, N_HOSTILITIES);
        tcase_add_loop_test(numbers, rows_too_short_for_a_direction_count_as_zero, 0, 2);
        tcase_add_loop_test(numbers, one_and_4096_elements_are_answered_as_the_model_does, 0, 9);
        tcase_add_loop_test(numbers, many_copies_are_all_found, 0, 3);
        TCase *sequences = test_case(suite, "sequences", 120);
        tcase_add_loop_test(sequences, no_row_is_lost_in_long_adversarial_sequences, 0, 4 * 9);
        return test_main(suite);
}
