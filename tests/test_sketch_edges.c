/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sketches: what is refused and in which words, that a refused call changes nothing, rows and queries at the edge. */
#include "tests/common.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/sketch_fixture.h"

enum { N = 40, DIM = 16, QUERIES = 3, N_WIDTHS = COUNT(sketch_widths) };

static dci_context *context;
static float *rows, *queries;

static void setup(void)
{
        context = test_context(2);
        rows = sketch_rows(FADING, 2 * N, DIM, 1);
        queries = sketch_rows(TAILS, QUERIES, DIM, 2);
}

static void teardown(void)
{
        test_free(rows, queries);
        dci_context_destroy(context);
}

/* --- refusals ------------------------------------------------------------------------------------------------------------------ */

/* A configuration with this change is refused in these words, and no sketch comes out. */
#define REFUSED(change, status, part)                                                                                  \
        do {                                                                                                           \
                dci_sketch_config c = sketch_config(DIM, 4, RANDOM, DCI_CENTRE_RUNNING, NULL);                         \
                dci_sketch *none = (dci_sketch *)(void *)&c;                                                           \
                change;                                                                                                \
                ck_refused(dci_sketch_create(context, &c, &none), status, part);                                       \
                ck_assert_ptr_null(none);                                                                              \
        } while (0)
#define INVALID(change, part) REFUSED(change, DCI_ERR_INVALID, part)

START_TEST(bad_configurations_are_refused)
{
        float centre[DIM] = {0};
        INVALID(c.dim = 0, "dim is 0");
        INVALID(c.dim = DCI_SKETCH_MAX_DIM + 1, "dim is 32737, expected 1 to 32736");
        INVALID(c.dtype = 0, "dtype is 0");
        INVALID(c.dtype = 4, "dtype is 4");
        INVALID(c.query_dtype = 7, "query_dtype is 7, expected DCI_F32, DCI_F16 or DCI_BF16, or 0 for dtype");
        INVALID(c.bits = 0, "bits is 0");
        INVALID(c.bits = 5, "bits is 5, expected 1, 2, 3, 4 or 8");
        INVALID(c.bits = 7, "bits is 7");
        INVALID(c.bits = 9, "bits is 9");
        INVALID(c.bits = -1, "bits is -1");
        INVALID(c.transform = 0, "transform is 0");
        INVALID(c.transform = 3, "transform is 3");
        INVALID(c.centre = 0, "centre is 0");
        INVALID(c.centre = 4, "centre is 4");
        INVALID(c.reserved = 1, "reserved is 1");
        INVALID(c.centre = DCI_CENTRE_GIVEN, "given_centre is NULL");
        INVALID(c.given_centre = centre, "given_centre is not NULL");
        INVALID(c.struct_size = 0, "dci_sketch_config has struct_size 0");
        INVALID(c.struct_size--, "dci_sketch_config has struct_size");
        REFUSED((c.centre = DCI_CENTRE_GIVEN, c.given_centre = centre, centre[3] = NAN), DCI_ERR_NUMBER,
                "given_centre");
        REFUSED((c.centre = DCI_CENTRE_GIVEN, c.given_centre = centre, centre[3] = INFINITY), DCI_ERR_NUMBER,
                "given_centre");
        REFUSED((c.centre = DCI_CENTRE_GIVEN, c.given_centre = centre, centre[3] = 1e19f), DCI_ERR_NUMBER,
                "given_centre");
}
END_TEST

START_TEST(structs_that_were_not_prepared_are_refused)
{
        struct {
                dci_sketch_config config;
                unsigned char more[8];
        } longer;
        dci_sketch_info info;
        dci_sketch_config config = sketch_config(DIM, 4, RANDOM, DCI_CENTRE_NONE, NULL);
        dci_sketch *sketch = sketch_create(context, &config), *none = NULL;
        ck_refused(dci_sketch_config_init(NULL, sizeof config), DCI_ERR_INVALID, "dci_sketch_config is NULL");
        ck_refused(dci_sketch_info_init(NULL, sizeof info), DCI_ERR_INVALID, "dci_sketch_info is NULL");
        ck_refused(dci_sketch_config_init(&config, sizeof config - 1), DCI_ERR_INVALID, "size");
        ck_refused(dci_sketch_info_init(&info, 8), DCI_ERR_INVALID, "size");
        ck_ok(dci_sketch_info_init(&info, sizeof info));
        info.struct_size = 8;
        ck_refused(dci_sketch_get_info(sketch, &info), DCI_ERR_INVALID, "dci_sketch_info has struct_size 8");
        ck_ok(dci_sketch_config_init(&longer.config, sizeof longer));
        longer.config.dim = DIM;
        longer.more[7] = 1;
        ck_refused(dci_sketch_create(context, &longer.config, &none), DCI_ERR_UNSUPPORTED, "uses a field at byte");
        longer.more[7] = 0;
        ck_ok(dci_sketch_create(context, &longer.config, &none));
        dci_sketch_destroy(none);
        dci_sketch_destroy(sketch);
}
END_TEST

START_TEST(defaults_are_those_of_the_header)
{
        dci_sketch_config c;
        memset(&c, 0xFF, sizeof c);
        ck_ok(dci_sketch_config_init(&c, sizeof c));
        ck_assert(c.struct_size == sizeof c && c.dim == 0 && c.dtype == DCI_F32 && c.query_dtype == 0 && c.bits == 4 &&
                  c.transform == DCI_SKETCH_RANDOM && c.centre == DCI_CENTRE_RUNNING && c.reserved == 0 &&
                  c.seed == 0 && c.given_centre == NULL);
}
END_TEST

/* A call on a sketch with rows is refused in these words, and all that the sketch says stays. */
#define UNCHANGED(call, status, part)                                                                                  \
        do {                                                                                                           \
                ck_refused(call, status, part);                                                                        \
                sketch_seen now = sketch_look(s, DIM, QUERIES, queries, 5);                                            \
                sketch_same(&before, &now, #call);                                                                     \
                sketch_seen_free(&now);                                                                                \
                const dci_sketch_info here = sketch_info(s);                                                           \
                ck_assert(here.n_rows == info.n_rows && here.bytes == info.bytes && here.centres == info.centres &&    \
                          here.transforms == info.transforms && here.drift == info.drift);                             \
        } while (0)

START_TEST(refused_calls_change_nothing)
{
        dci_sketch *s = sketch_of(context, DIM, 4, LEARNED, DCI_CENTRE_RUNNING, N, rows);
        sketch_seen before = sketch_look(s, DIM, QUERIES, queries, 5);
        const dci_sketch_info info = sketch_info(s);
        float bad[3 * DIM] = {0}, zero[DIM] = {0}, short_row[DIM], out[QUERIES * N];
        int64_t best[QUERIES * 5], numbers[2] = {0, N};
        bad[DIM] = NAN;
        const size_t far = SIZE_MAX / 4;
        UNCHANGED(dci_sketch_append(s, 3, NULL, DIM), DCI_ERR_INVALID, "the row pointer is NULL for 3 of them");
        UNCHANGED(dci_sketch_append(s, 3, rows, DIM - 1), DCI_ERR_INVALID, "row stride is 15");
        UNCHANGED(dci_sketch_append(s, 3, rows, far), DCI_ERR_LIMIT, "too many");
        UNCHANGED(dci_sketch_append(s, SIZE_MAX, rows, DIM), DCI_ERR_LIMIT, "too many");
        UNCHANGED(dci_sketch_append(s, 3, bad, DIM), DCI_ERR_NUMBER, "row 1 holds NaN or infinity");
        for (size_t i = 0; i < DIM; i++)
                short_row[i] = 1e-20f * (float)(i + 1);
        UNCHANGED(dci_sketch_fit(s, 1, short_row, DIM, QUERIES, queries, DIM), DCI_ERR_NUMBER, "deviation is");
        bad[DIM] = -INFINITY;
        UNCHANGED(dci_sketch_append(s, 3, bad, DIM), DCI_ERR_NUMBER, "row 1 holds NaN or infinity");
        bad[DIM] = 1e19f;
        UNCHANGED(dci_sketch_append(s, 3, bad, DIM), DCI_ERR_NUMBER, "row 1");
        UNCHANGED(dci_sketch_reserve(s, ((size_t)1 << 31) + 1), DCI_ERR_LIMIT, "2147483649 rows");
        UNCHANGED(dci_sketch_reserve(s, SIZE_MAX), DCI_ERR_LIMIT, "rows");
        UNCHANGED(dci_sketch_truncate(s, N + 1), DCI_ERR_INVALID, "41 rows are to be left, but there are 40");
        UNCHANGED(dci_sketch_fit(s, 0, rows, DIM, QUERIES, queries, DIM), DCI_ERR_INVALID, "0 rows and 3 queries");
        UNCHANGED(dci_sketch_fit(s, N, rows, DIM, 0, queries, DIM), DCI_ERR_INVALID, "40 rows and 0 queries");
        UNCHANGED(dci_sketch_fit(s, N, NULL, DIM, QUERIES, queries, DIM), DCI_ERR_INVALID, "the row pointer is NULL");
        UNCHANGED(dci_sketch_fit(s, N, rows, DIM, QUERIES, NULL, DIM), DCI_ERR_INVALID, "the query pointer is NULL");
        UNCHANGED(dci_sketch_fit(s, N, rows, 3, QUERIES, queries, DIM), DCI_ERR_INVALID, "row stride is 3");
        UNCHANGED(dci_sketch_fit(s, N, rows, DIM, QUERIES, queries, 4), DCI_ERR_INVALID, "query stride is 4");
        UNCHANGED(dci_sketch_fit(s, 3, bad, DIM, QUERIES, queries, DIM), DCI_ERR_NUMBER, "row 1");
        UNCHANGED(dci_sketch_fit(s, N, rows, DIM, 3, bad, DIM), DCI_ERR_NUMBER, "query 1");
        UNCHANGED(dci_sketch_fit(s, N, rows, DIM, 1, zero, DIM), DCI_ERR_NUMBER, "mean square is 0");
        UNCHANGED(dci_sketch_score(s, QUERIES, NULL, DIM, 0, N, out, N), DCI_ERR_INVALID, "query pointer is NULL");
        UNCHANGED(dci_sketch_score(s, QUERIES, queries, DIM, 0, N, NULL, N), DCI_ERR_INVALID, "output pointer is NULL");
        UNCHANGED(dci_sketch_score(s, QUERIES, queries, 1, 0, N, out, N), DCI_ERR_INVALID, "query stride is 1");
        UNCHANGED(dci_sketch_score(s, QUERIES, queries, DIM, 0, N, out, N - 1), DCI_ERR_INVALID, "stride is 39");
        UNCHANGED(dci_sketch_score(s, QUERIES, queries, DIM, 1, N, out, N), DCI_ERR_INVALID, "rows 1 to 41");
        UNCHANGED(dci_sketch_score(s, QUERIES, queries, DIM, N + 1, 0, out, N), DCI_ERR_INVALID, "there are 40");
        UNCHANGED(dci_sketch_score(s, QUERIES, queries, DIM, 2, SIZE_MAX, out, N), DCI_ERR_INVALID, "there are 40");
        UNCHANGED(dci_sketch_score(s, QUERIES, queries, DIM, 0, N, out, far), DCI_ERR_LIMIT, "too many");
        UNCHANGED(dci_sketch_score(s, far, queries, DIM, 0, N, out, N), DCI_ERR_LIMIT, "too many");
        UNCHANGED(dci_sketch_score(s, 3, bad, DIM, 0, N, out, N), DCI_ERR_NUMBER, "query 1");
        UNCHANGED(dci_sketch_bound(s, 3, bad, DIM, 0, N, 1.0, out, N), DCI_ERR_NUMBER, "query 1");
        UNCHANGED(dci_sketch_bound(s, QUERIES, queries, DIM, 0, N, 0.0, out, N), DCI_ERR_INVALID, "probability is 0");
        UNCHANGED(dci_sketch_bound(s, QUERIES, queries, DIM, 0, N, 2.0, out, N), DCI_ERR_INVALID, "probability is 2");
        UNCHANGED(dci_sketch_bound(s, QUERIES, queries, DIM, 0, N, -1.0, out, N), DCI_ERR_INVALID, "probability is -1");
        UNCHANGED(dci_sketch_bound(s, QUERIES, queries, DIM, 0, N, (double)NAN, out, N), DCI_ERR_INVALID,
                  "probability");
        UNCHANGED(dci_sketch_search(s, QUERIES, queries, DIM, 0, best, out), DCI_ERR_INVALID, "k is 0");
        UNCHANGED(dci_sketch_search(s, QUERIES, queries, DIM, ((size_t)1 << 24) + 1, best, out), DCI_ERR_LIMIT,
                  "k 16777217");
        UNCHANGED(dci_sketch_search(s, far, queries, DIM, 5, best, out), DCI_ERR_LIMIT, "queries with k 5");
        UNCHANGED(dci_sketch_search(s, QUERIES, queries, DIM, 5, NULL, out), DCI_ERR_INVALID, "out_rows is NULL");
        UNCHANGED(dci_sketch_search(s, QUERIES, NULL, DIM, 5, best, out), DCI_ERR_INVALID, "query pointer is NULL");
        UNCHANGED(dci_sketch_search(s, QUERIES, queries, 15, 5, best, out), DCI_ERR_INVALID, "query stride is 15");
        UNCHANGED(dci_sketch_search(s, 3, bad, DIM, 5, best, out), DCI_ERR_NUMBER, "query 1");
        UNCHANGED(dci_sketch_decode(s, 1, NULL, out, DIM), DCI_ERR_INVALID, "NULL");
        UNCHANGED(dci_sketch_decode(s, 1, numbers, NULL, DIM), DCI_ERR_INVALID, "NULL");
        UNCHANGED(dci_sketch_decode(s, 1, numbers, out, DIM - 1), DCI_ERR_INVALID, "stride is 15");
        UNCHANGED(dci_sketch_decode(s, 2, numbers, out, DIM), DCI_ERR_NOT_FOUND, "row 40 is not among the 40");
        numbers[0] = -1;
        UNCHANGED(dci_sketch_decode(s, 2, numbers, out, DIM), DCI_ERR_NOT_FOUND, "row -1");
        sketch_seen_free(&before);
        dci_sketch_destroy(s);
}
END_TEST

/* Rows so far apart that their places overflow. */
START_TEST(decoded_rows_too_far_apart_are_refused_before_one_is_written)
{
        static const size_t far[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4, (size_t)1 << 62, SIZE_MAX / 8 + 1};
        const int64_t numbers[] = {0, 1};
        dci_sketch *s = sketch_of(context, DIM, 8, RANDOM, DCI_CENTRE_NONE, 2, rows);
        float out[2 * DIM] = {0}, zero[2 * DIM] = {0};
        for (size_t i = 0; i < COUNT(far); i++) {
                ck_refused(dci_sketch_decode(s, 2, numbers, out, far[i]), DCI_ERR_LIMIT, "2 rows, ");
                ck_assert_mem_eq(out, zero, sizeof out);
        }
        dci_sketch_destroy(s);
}
END_TEST

/* At any length they are taken or refused, in a sentence that says what is wrong. */
START_TEST(queries_whose_squares_vanish_are_refused_by_a_fit)
{
        float *asked = test_normal(64, DIM, 10), *scaled = malloc((size_t)64 * DIM * sizeof *scaled);
        size_t refused = 0;
        for (double size = 1e-18; size > 1e-40; size *= 0.5) {
                for (size_t i = 0; i < (size_t)64 * DIM; i++)
                        scaled[i] = (float)((double)asked[i] * size);
                dci_sketch *s = sketch_of(context, DIM, 2, RANDOM, DCI_CENTRE_NONE, 0, NULL);
                const dci_status status = dci_sketch_fit(s, N, rows, DIM, 64, scaled, DIM);
                ck_assert_msg(status == DCI_OK ? size > 1e-24 : size < 1e-20, "%g: %s", size, dci_status_name(status));
                if (status != DCI_OK) {
                        refused++;
                        ck_assert_int_eq(status, DCI_ERR_NUMBER);
                        ck_assert_msg(strstr(dci_last_error(), "mean square is 0,") != NULL ||
                                              strstr(dci_last_error(), "so small that their squares vanish") != NULL,
                                      "%g: %s", size, dci_last_error());
                }
                dci_sketch_destroy(s);
        }
        ck_assert_uint_gt(refused, 10);
        test_free(asked, scaled);
}
END_TEST

START_TEST(a_sketch_that_is_missing_is_named)
{
        dci_sketch_config config = sketch_config(DIM, 4, RANDOM, DCI_CENTRE_RUNNING, NULL);
        dci_sketch *none = NULL;
        dci_sketch_info info;
        float out[QUERIES];
        int64_t best[QUERIES];
        ck_ok(dci_sketch_info_init(&info, sizeof info));
        ck_refused(dci_sketch_create(NULL, &config, &none), DCI_ERR_INVALID, "context, config or out_sketch is NULL");
        ck_refused(dci_sketch_create(context, NULL, &none), DCI_ERR_INVALID, "is NULL");
        ck_refused(dci_sketch_create(context, &config, NULL), DCI_ERR_INVALID, "is NULL");
        ck_refused(dci_sketch_append(NULL, 1, rows, DIM), DCI_ERR_INVALID, "sketch is NULL");
        ck_refused(dci_sketch_reserve(NULL, 1), DCI_ERR_INVALID, "sketch is NULL");
        ck_refused(dci_sketch_truncate(NULL, 0), DCI_ERR_INVALID, "sketch is NULL");
        ck_refused(dci_sketch_fit(NULL, 1, rows, DIM, 1, queries, DIM), DCI_ERR_INVALID, "sketch is NULL");
        ck_refused(dci_sketch_score(NULL, 1, queries, DIM, 0, 1, out, 1), DCI_ERR_INVALID, "sketch is NULL");
        ck_refused(dci_sketch_bound(NULL, 1, queries, DIM, 0, 1, 1.0, out, 1), DCI_ERR_INVALID, "sketch is NULL");
        ck_refused(dci_sketch_search(NULL, 1, queries, DIM, 1, best, out), DCI_ERR_INVALID, "sketch is NULL");
        ck_refused(dci_sketch_decode(NULL, 1, best, out, DIM), DCI_ERR_INVALID, "sketch");
        ck_refused(dci_sketch_get_info(NULL, &info), DCI_ERR_INVALID, "sketch");
        ck_refused(dci_sketch_get_info(NULL, NULL), DCI_ERR_INVALID, "out_info is NULL");
        ck_assert_uint_eq(dci_sketch_count(NULL), 0);
        dci_sketch_destroy(NULL);
}
END_TEST

/* The rows appended first take a frame; fits take the others. Codes and appends go on. */
START_TEST(fits_end_at_the_most_transforms_there_can_be)
{
        enum { SMALL = 4 };
        dci_sketch *s = sketch_of(context, SMALL, 2, RANDOM, DCI_CENTRE_NONE, N, rows);
        for (size_t f = 0; f < 127; f++)
                sketch_fit(s, N, rows, SMALL, 8, queries);
        const dci_sketch_info info = sketch_info(s);
        ck_assert_uint_eq(info.transforms, 128);
        ck_assert_uint_eq(info.centres, 128);
        ck_refused(dci_sketch_fit(s, N, rows, SMALL, 8, queries, SMALL), DCI_ERR_LIMIT, "128 transforms and centres");
        ck_assert_uint_eq(sketch_info(s).centres, 128);
        ck_assert_uint_eq(sketch_info(s).bytes, info.bytes);
        ck_ok(dci_sketch_append(s, N, rows + N * SMALL, SMALL));
        sketch_seen seen = sketch_look(s, SMALL, QUERIES, queries, 5);
        sketch_obey(&seen, rows, queries, "after too many fits");
        sketch_seen_free(&seen);
        dci_sketch_destroy(s);
}
END_TEST

/* Rows that leave the last centre time after time: in the end it stays. */
START_TEST(centres_end_at_the_most_there_can_be)
{
        enum { MANY = 200, SMALL = 3 };
        float *far = test_normal(MANY * 32, SMALL, 3);
        for (size_t i = 0; i < MANY * 32 * SMALL; i++)
                far[i] += 100.0f * (float)(i / SMALL / 32);
        dci_sketch *s = sketch_of(context, SMALL, 8, RANDOM, DCI_CENTRE_RUNNING, 0, NULL);
        for (size_t part = 0; part < MANY; part++)
                ck_ok(dci_sketch_append(s, 32, far + part * 32 * SMALL, SMALL));
        ck_assert_uint_eq(sketch_info(s).centres, 128);
        sketch_seen seen = sketch_look(s, SMALL, QUERIES, queries, 5);
        sketch_obey(&seen, far, queries, "too many centres");
        sketch_seen_free(&seen);
        dci_sketch_destroy(s);
        free(far);
}
END_TEST

START_TEST(only_rows_that_are_not_too_long_can_be_learned)
{
        const size_t most = DCI_SKETCH_MAX_FIT_DIM;
        float *row = test_normal(1, most + 1, 4);
        dci_sketch *s = sketch_of(context, most + 1, 1, RANDOM, DCI_CENTRE_NONE, 1, row);
        ck_refused(dci_sketch_fit(s, 1, row, most + 1, 1, row, most + 1), DCI_ERR_LIMIT, "dimension 1025");
        ck_assert_uint_eq(sketch_info(s).transforms, 1);
        dci_sketch_destroy(s);
        free(row);
}
END_TEST

/* --- rows and queries at the edge ---------------------------------------------------------------------------------------------- */

/* Loops over widths. What there is to say of nothing is nothing. */
START_TEST(calls_for_nothing_do_nothing)
{
        dci_sketch *s = sketch_of(context, DIM, sketch_widths[_i], RANDOM, DCI_CENTRE_RUNNING, 0, NULL);
        float out[QUERIES * 2];
        int64_t best[QUERIES * 2];
        ck_ok(dci_sketch_append(s, 0, NULL, 0));
        ck_ok(dci_sketch_truncate(s, 0));
        ck_ok(dci_sketch_reserve(s, 0));
        ck_ok(dci_sketch_score(s, QUERIES, queries, DIM, 0, 0, NULL, 0));
        ck_ok(dci_sketch_score(s, 0, NULL, 0, 0, 0, NULL, 0));
        ck_ok(dci_sketch_decode(s, 0, NULL, NULL, 0));
        ck_ok(dci_sketch_search(s, 0, NULL, 0, 2, NULL, NULL));
        ck_ok(dci_sketch_search(s, QUERIES, queries, DIM, 2, best, out));
        for (size_t i = 0; i < QUERIES * 2; i++)
                ck_assert(best[i] == -1 && isnan(out[i]));
        ck_assert_uint_eq(dci_sketch_count(s), 0);
        ck_assert(isnan(sketch_info(s).drift));
        dci_sketch_destroy(s);
}
END_TEST

/* Loops over transforms and widths. Zero rows are known exactly, and so are those at a given centre; zero queries score zero. */
START_TEST(zero_rows_rows_at_the_centre_and_zero_queries_are_exact)
{
        const size_t transform = (size_t)_i / N_WIDTHS;
        float some[3 * DIM] = {0}, asked[2 * DIM] = {0}, bounds[6];
        memcpy(some + DIM, rows, DIM * sizeof *rows);
        memcpy(some + 2 * DIM, rows + DIM, DIM * sizeof *rows);
        memcpy(asked, queries, DIM * sizeof *queries);
        for (size_t zero = 0; zero < 2; zero++) { /* the centre: the origin, or the second row */
                dci_sketch_config config = sketch_config(DIM, sketch_widths[_i % N_WIDTHS], transform,
                                                         zero == 0 ? DCI_CENTRE_NONE : DCI_CENTRE_GIVEN, some + DIM);
                dci_sketch *s = sketch_create(context, &config);
                if (transform == LEARNED)
                        sketch_fit(s, N, rows, DIM, QUERIES, queries);
                ck_ok(dci_sketch_append(s, 3, some, DIM));
                sketch_seen seen = sketch_look(s, DIM, 2, asked, 3);
                sketch_obey(&seen, some, asked, "edges");
                for (size_t i = 0; i < 3; i++)
                        ck_assert_float_eq(seen.scores[3 + i], 0.0f);
                if (transform != LEARNED)
                        for (size_t j = 0; j < DIM; j++)
                                ck_assert_float_eq(seen.decoded[zero * DIM + j], some[zero * DIM + j]);
                ck_ok(dci_sketch_bound(s, 2, asked, DIM, 0, 3, 0.9, bounds, 3));
                for (size_t i = 0; i < 3; i++) {
                        ck_assert_float_eq(bounds[3 + i], 0.0f);
                        ck_assert_int_eq(seen.best[3 + i], (int64_t)i); /* ties */
                }
                sketch_seen_free(&seen);
                dci_sketch_destroy(s);
        }
}
END_TEST

/* Loops over transforms and widths. From what binary32 can hold at all to the longest rows that are taken. */
START_TEST(huge_and_tiny_norms_keep_to_the_bound)
{
        static const float sizes[] = {1e-42f, 1e-38f, 1e-34f, 1e-30f, 1e-23f, 1e-20f, 1e-10f, 1e10f, 1e17f, 1e18f};
        const size_t transform = (size_t)_i / N_WIDTHS;
        float *normal = test_normal(N, DIM, 7), *asked = test_normal(QUERIES, DIM, 8);
        float *scaled = malloc(N * DIM * sizeof *scaled), *ask = malloc(QUERIES * DIM * sizeof *ask);
        for (size_t r = 0; r < COUNT(sizes); r++)
                for (size_t q = 0; q < COUNT(sizes); q++) {
                        for (size_t i = 0; i < N * DIM; i++)
                                scaled[i] = normal[i] * sizes[r];
                        for (size_t i = 0; i < QUERIES * DIM; i++)
                                ask[i] = asked[i] * sizes[q];
                        dci_sketch_config config =
                                sketch_config(DIM, sketch_widths[_i % N_WIDTHS], transform, DCI_CENTRE_RUNNING, NULL);
                        dci_sketch *s = sketch_create(context, &config);
                        if (transform == LEARNED) { /* a fit may refuse what it cannot learn from */
                                const dci_status status = dci_sketch_fit(s, N, scaled, DIM, QUERIES, ask, DIM);
                                ck_assert(status == DCI_OK || status == DCI_ERR_NUMBER);
                                ck_assert(status == DCI_OK || sizes[r] < 1e-9f || sizes[r] > 1e9f || sizes[q] > 1e9f ||
                                          sizes[q] < 1e-9f);
                        }
                        ck_ok(dci_sketch_append(s, N, scaled, DIM));
                        sketch_seen seen = sketch_look(s, DIM, QUERIES, ask, 3);
                        sketch_obey(&seen, scaled, ask, "huge and tiny");
                        for (size_t i = 0; i < N * QUERIES; i++)
                                test_hold(isfinite(seen.scores[i]) && !isnan(seen.bounds[i]));
                        sketch_seen_free(&seen);
                        dci_sketch_destroy(s);
                }
        test_free(normal, asked, scaled, ask);
}
END_TEST

/* The header's limit is FLT_MAX / 8. */
START_TEST(squared_norms_up_to_the_limit_are_taken)
{
        for (size_t transform = 0; transform < N_TRANSFORMS; transform++) {
                float longest[2 * DIM], most = sqrtf(FLT_MAX / 8.0f / DIM) * 0.999f;
                for (size_t i = 0; i < 2 * DIM; i++)
                        longest[i] = i % 3 == 0 || i >= DIM ? most : -most;
                dci_sketch *s = sketch_of(context, DIM, 2, transform, DCI_CENTRE_RUNNING, N, rows);
                ck_ok(dci_sketch_truncate(s, 0));
                ck_ok(dci_sketch_append(s, 2, longest, DIM));
                sketch_seen seen = sketch_look(s, DIM, QUERIES, queries, 3);
                sketch_obey(&seen, longest, queries, "longest");
                sketch_seen_free(&seen);
                seen = sketch_look(s, DIM, 2, longest, 3);
                for (size_t i = 0; i < 4; i++)
                        ck_assert(!isnan(seen.scores[i]) && !isnan(seen.bounds[i]));
                sketch_seen_free(&seen);
                longest[0] = most * 2.0f;
                ck_refused(dci_sketch_append(s, 1, longest, DIM), DCI_ERR_NUMBER, "row 0");
                dci_sketch_destroy(s);
        }
}
END_TEST

/* Memory that was reserved is not taken again. */
START_TEST(reserved_rows_take_no_more_memory)
{
        dci_sketch *s = sketch_of(context, DIM, 4, RANDOM, DCI_CENTRE_NONE, 1, rows);
        ck_ok(dci_sketch_reserve(s, 2 * N));
        const size_t bytes = sketch_info(s).bytes;
        ck_ok(dci_sketch_append(s, 2 * N - 1, rows + DIM, DIM));
        ck_ok(dci_sketch_reserve(s, 5));
        ck_assert_uint_eq(sketch_info(s).bytes, bytes);
        ck_ok(dci_sketch_truncate(s, 0));
        ck_assert_uint_eq(sketch_info(s).bytes, bytes);
        ck_assert_uint_eq(dci_sketch_count(s), 0);
        dci_sketch_destroy(s);
}
END_TEST

/* The longest rows there can be, at the most bits. */
START_TEST(the_longest_rows_are_taken)
{
        const size_t most = DCI_SKETCH_MAX_DIM;
        float *row = test_normal(2, most, 9);
        dci_sketch *s = sketch_of(context, most, 8, RANDOM, DCI_CENTRE_NONE, 1, row);
        sketch_seen seen = sketch_look(s, most, 2, row, 1);
        sketch_obey(&seen, row, row, "longest rows");
        sketch_seen_free(&seen);
        dci_sketch_destroy(s);
        free(row);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketch edges");
        TCase *edges = test_case_with(suite, "edges", 60, setup, teardown);
        tcase_add_test(edges, bad_configurations_are_refused);
        tcase_add_test(edges, structs_that_were_not_prepared_are_refused);
        tcase_add_test(edges, defaults_are_those_of_the_header);
        tcase_add_test(edges, refused_calls_change_nothing);
        tcase_add_test(edges, decoded_rows_too_far_apart_are_refused_before_one_is_written);
        tcase_add_test(edges, queries_whose_squares_vanish_are_refused_by_a_fit);
        tcase_add_test(edges, a_sketch_that_is_missing_is_named);
        tcase_add_test(edges, fits_end_at_the_most_transforms_there_can_be);
        tcase_add_test(edges, centres_end_at_the_most_there_can_be);
        tcase_add_test(edges, only_rows_that_are_not_too_long_can_be_learned);
        tcase_add_loop_test(edges, calls_for_nothing_do_nothing, 0, N_WIDTHS);
        tcase_add_loop_test(edges, zero_rows_rows_at_the_centre_and_zero_queries_are_exact, 0, N_TRANSFORMS * N_WIDTHS);
        tcase_add_loop_test(edges, huge_and_tiny_norms_keep_to_the_bound, 0, N_TRANSFORMS * N_WIDTHS);
        tcase_add_test(edges, squared_norms_up_to_the_limit_are_taken);
        tcase_add_test(edges, reserved_rows_take_no_more_memory);
        tcase_add_test(edges, the_longest_rows_are_taken);
        return test_main(suite);
}
