/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Indices with sketch_bits: codes only propose. With everything verified, or with a guarantee of 1, the answer is that of exact
 * scoring, bit by bit, whatever came, went, moved, or was saved.
 */
#include "tests/mdci_fixture.h"
#include "tests/scratch.h"
#include "tests/trace_fixture.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "dci/file.h"

enum { N = 2000, Q = 16, K = 10 };

static const dci_index_kind kinds[] = {DCI_KIND_FLAT, DCI_KIND_PDCI, DCI_KIND_MDCI};
static const int32_t widths[] = {1, 2, 3, 4, 8};

static void setup(void)
{
        trace_open(2, N, Q);
}

/* What is sure is what is exact, all rows looked at or a part of them, with a filter or without. */
static void check_sure(const dci_index *index, const float *asked, size_t n_asked, const char *what)
{
        static const double visits[] = {1.0, 0.3};
        uint64_t bits[(2 * N + 63) / 64];
        dci_filter filter;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        for (size_t i = 0; i < COUNT(bits); i++)
                bits[i] = UINT64_C(0x9249f3c7a5e1d0b6) ^ (i * UINT64_C(0x1234567));
        filter.kind = DCI_FILTER_BITMAP;
        filter.bits = bits;
        filter.n = 64 * COUNT(bits);
        for (size_t v = 0; v < COUNT(visits); v++)
                for (int filtered = 0; filtered < 2; filtered++) {
                        dci_search_params exact = pdci_verifying(INFINITY, 0.0), sure = pdci_verifying(0.0, 1.0);
                        exact.filter = sure.filter = filtered ? &filter : NULL;
                        exact.prop_to_visit = sure.prop_to_visit = visits[v];
                        exact.prop_to_retrieve = sure.prop_to_retrieve = visits[v];
                        pdci_found want = pdci_search(index, n_asked, asked, K, &exact);
                        pdci_found got = pdci_search(index, n_asked, asked, K, &sure);
                        ck_assert_msg(pdci_same(&want, &got), "%s, visit %g, filter %d", what, visits[v], filtered);
                        pdci_found_free(&want);
                        pdci_found_free(&got);
                }
}

/* Loops over kinds, metrics and widths, and so over formats. */
START_TEST(a_guarantee_of_one_is_exact)
{
        const dci_index_kind kind = kinds[_i % 3];
        const dci_metric metric = all_metrics[_i / 3 % 3];
        const int32_t bits = widths[_i / 9];
        const dci_index_config config = pdci_sketched(kind, metric, all_dtypes[(_i + _i / 3 + _i / 9) % 3], bits);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        check_sure(index, queries, Q, "built");
        ck_ok(dci_index_fit(index, Q, queries, TRACE_DIM));
        check_sure(index, queries, Q, "fitted");
        dci_index_destroy(index);
}
END_TEST

/* Loops over kinds. Scoring everything is what an index without codes does. */
START_TEST(verifying_everything_needs_no_codes)
{
        for (size_t m = 0; m < COUNT(all_metrics); m++) {
                dci_index_config config = pdci_sketched(kinds[_i], all_metrics[m], DCI_F32, 2);
                dci_index *index = pdci_index(context, &config, N, keys, NULL);
                config.sketch_bits = 0;
                dci_index *plain = pdci_index(context, &config, N, keys, NULL);
                const dci_search_params all = pdci_verifying(INFINITY, 0.0),
                                        beyond = pdci_verifying((double)N / K, 0.0);
                pdci_found want = pdci_search(plain, Q, queries, K, NULL),
                           got = pdci_search(index, Q, queries, K, &all);
                ck_assert(pdci_same(&want, &got));
                pdci_found_free(&got);
                got = pdci_search(index, Q, queries, K, &beyond);
                ck_assert(pdci_same(&want, &got));
                pdci_found_free(&got);
                pdci_found_free(&want);
                dci_index_destroy(index);
                dci_index_destroy(plain);
        }
}
END_TEST

/* Loops over kinds. What counts as zero under COSINE is as far from all rows, and the k best are those of lowest id. */
START_TEST(a_guarantee_of_one_is_exact_for_the_shortest_queries)
{
        static const float lengths[] = {0.0f, 0x1p-41f, 0x1p-39f};
        dci_index_config config = pdci_sketched(kinds[_i], DCI_METRIC_COSINE, DCI_F32, 4);
        config.zero_rows = DCI_ZERO_KEEP;
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        for (size_t i = 0; i < COUNT(lengths); i++) {
                float asked[TRACE_DIM], norm2 = 0.0f; /* away from the row of the lowest id */
                for (size_t j = 0; j < TRACE_DIM; j++)
                        norm2 += keys[j] * keys[j];
                for (size_t j = 0; j < TRACE_DIM; j++)
                        asked[j] = -keys[j] / sqrtf(norm2) * lengths[i];
                check_sure(index, asked, 1, "short");
        }
        dci_index_destroy(index);
}
END_TEST

/* Sums of the most elements that all round one way: a row that is scored far below its product may be the best nevertheless. */
START_TEST(a_guarantee_of_one_knows_how_scores_round)
{
        enum { WIDE = DCI_SKETCH_MAX_DIM, ROWS = 128, BLOCK = 32 };
        dci_index_config config = index_config(WIDE, DCI_METRIC_IP, DCI_F32);
        config.sketch_bits = 8;
        float *rows = malloc(sizeof(float) * ROWS * WIDE), *query = malloc(sizeof(float) * WIDE);
        for (size_t i = 0; i < (size_t)ROWS * WIDE; i++)
                rows[i] = i / WIDE == 2 * BLOCK ? 1.0f + 0x1p-14f + 0x1p-23f : 1.0f;
        rows[3 * BLOCK * WIDE] += 2.6875f;
        for (size_t j = 0; j < WIDE; j++)
                query[j] = 1.0f;
        dci_index *index = NULL;
        ck_ok(dci_index_create(context, &config, &index));
        for (size_t first = 0; first < ROWS; first += BLOCK)
                ck_ok(dci_index_add(index, BLOCK, rows + first * WIDE, WIDE, NULL, NULL));
        const dci_search_params exact = pdci_verifying(INFINITY, 0.0), sure = pdci_verifying(1.0, 1.0);
        pdci_found want = pdci_search(index, 1, query, 1, &exact), got = pdci_search(index, 1, query, 1, &sure);
        ck_assert_msg(pdci_same(&want, &got), "row %lld, wanted %lld", (long long)got.ids[0], (long long)want.ids[0]);
        pdci_found_free(&want);
        pdci_found_free(&got);
        test_free(rows, query);
        dci_index_destroy(index);
}
END_TEST

static void set_scales(dci_index *index, float even, float odd)
{
        const dci_view view = dci_rows_view(&index->rows);
        for (size_t slot = 0; slot < N; slot++) {
                const dci_unit unit = dci_view_unit(&view, slot / DCI_CODE_UNIT);
                unit.area->scales[unit.unit * DCI_CODE_UNIT + slot % DCI_CODE_UNIT] = slot % 2 == 0 ? even : odd;
        }
}

/* Loops over metrics. A file may hold any finite scale, also one by which estimates overflow: k different rows are found all the same, in
 * order and with their own scores. Where estimates are no numbers, those are the best. */
START_TEST(codes_that_overflow_lose_no_results)
{
        const dci_metric metric = all_metrics[_i];
        const dci_index_config config = pdci_sketched(DCI_KIND_FLAT, metric, DCI_F32, 4);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        const dci_search_params all = pdci_verifying(INFINITY, 0.0), ranked = pdci_verifying(2.0, 0.0),
                                sure = pdci_verifying(0.0, 1.0);
        pdci_found rows = pdci_search(index, Q, queries, N, &all), want = pdci_search(index, Q, queries, K, &all);
        set_scales(index, FLT_MAX, -FLT_MAX);
        pdci_found got = pdci_search(index, Q, queries, K, &ranked);
        float *scores = malloc(N * sizeof *scores);
        ck_assert_ptr_nonnull(scores);
        for (size_t q = 0; q < Q; q++) {
                for (size_t i = 0; i < N; i++)
                        scores[rows.ids[q * N + i]] = rows.scores[q * N + i];
                for (size_t i = 0; i < K; i++) {
                        const float score = got.scores[q * K + i], last = got.scores[q * K + (i > 0 ? i - 1 : 0)];
                        const int64_t id = got.ids[q * K + i];
                        ck_assert(id >= 0 && id < N && score == scores[id]);
                        ck_assert(metric == DCI_METRIC_L2 ? last <= score : last >= score);
                        scores[id] = NAN; /* not again */
                }
        }
        free(scores);
        pdci_found_free(&got);
        set_scales(index, NAN, NAN);
        for (int guaranteed = 0; guaranteed < 2; guaranteed++) {
                got = pdci_search(index, Q, queries, K, guaranteed ? &sure : &ranked);
                ck_assert(pdci_same(&want, &got));
                pdci_found_free(&got);
        }
        pdci_found_free(&rows);
        pdci_found_free(&want);
        dci_index_destroy(index);
}
END_TEST

static double recall(const dci_index *index, const dci_search_params *params, size_t k)
{
        const dci_search_params all = pdci_verifying(INFINITY, 0.0);
        pdci_found want = pdci_search(index, Q, queries, k, &all), got = pdci_search(index, Q, queries, k, params);
        const double share = mdci_share_found(&want, &got);
        pdci_found_free(&want);
        pdci_found_free(&got);
        return share;
}

/* Loops over kinds and metrics: at the default effort of every width nearly all are found, more of them the more are verified. */
START_TEST(defaults_find_nearly_all)
{
        for (size_t b = 0; b < COUNT(widths); b++) {
                const dci_index_config config = pdci_sketched(kinds[_i % 3], all_metrics[_i / 3], DCI_F16, widths[b]);
                dci_index *index = pdci_index(context, &config, N, keys, NULL);
                const dci_search_params few = pdci_verifying(1.0, 0.0), more = pdci_verifying(4.0, 0.0),
                                        likely = pdci_verifying(0.0, 0.99);
                const double found = recall(index, NULL, 50);
                ck_assert_double_ge(found, 0.95);
                ck_assert_double_ge(recall(index, &more, 50) + 1e-9, recall(index, &few, 50));
                ck_assert_double_ge(recall(index, &likely, 50), 0.99);
                dci_index_destroy(index);
        }
}
END_TEST

/* Removes a third, by id, and adds them again, some at a time, twice; other rows than before. */
static void churn(dci_index *index, const float *rows)
{
        int64_t *ids = pdci_shuffled(N, 3);
        for (size_t round = 0; round < 2; round++) {
                ck_ok(dci_index_remove(index, N / 3, ids + round * 500));
                for (size_t i = 0, n; i < N / 3; i += n) {
                        n = 1 + i % 70;
                        n = N / 3 - i < n ? N / 3 - i : n;
                        ck_ok(dci_index_add(index, n, rows + i * TRACE_DIM, TRACE_DIM, ids + round * 500 + i, NULL));
                }
        }
        free(ids);
}

/* Loops over kinds and metrics. */
START_TEST(codes_keep_in_step_with_rows)
{
        const dci_index_config config = pdci_sketched(kinds[_i % 3], all_metrics[_i / 3], DCI_F16, 3);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        churn(index, keys + (N / 2) * TRACE_DIM);
        check_sure(index, queries, Q, "after churn");
        ck_ok(dci_index_fit(index, Q, queries, TRACE_DIM));
        churn(index, keys);
        check_sure(index, queries, Q, "fitted, after churn");
        ck_assert_double_ge(recall(index, NULL, K), 0.95);
        dci_index_destroy(index);
}
END_TEST

/* Loops over kinds: rows one by one, whose mean wanders off. Codes of old centres stay valid. */
START_TEST(a_drifting_mean_is_followed)
{
        enum { STEPS = 1200 };
        const dci_index_config config = pdci_sketched(kinds[_i], DCI_METRIC_IP, DCI_F32, 4);
        dci_index *index = pdci_index(context, &config, 0, keys, NULL);
        float *rows = test_normal(STEPS, TRACE_DIM, 5);
        for (size_t i = 0; i < STEPS; i++) {
                for (size_t j = 0; j < TRACE_DIM; j++)
                        rows[i * TRACE_DIM + j] += (float)(j % 3) * (float)(i / 300) * 4.0f;
                ck_ok(dci_index_add(index, 1, rows + i * TRACE_DIM, TRACE_DIM, NULL, NULL));
        }
        ck_assert_uint_gt(atomic_load(&index->rows.codes->frames.n), kinds[_i] == DCI_KIND_MDCI ? 0 : 2);
        check_sure(index, rows + 7, Q, "drifting");
        ck_assert_double_ge(recall(index, NULL, K), 0.97);
        free(rows);
        dci_index_destroy(index);
}
END_TEST

/* Loops over kinds: whatever the threads and the batch. */
START_TEST(answers_depend_on_neither_threads_nor_batches)
{
        const dci_index_config config = pdci_sketched(kinds[_i], DCI_METRIC_IP, DCI_F16, 2);
        const dci_search_params some = pdci_verifying(3.0, 0.0), likely = pdci_verifying(1.0, 0.9);
        for (int p = 0; p < 2; p++) {
                const dci_search_params *params = p == 0 ? &some : &likely;
                pdci_found first = {0};
                for (int32_t threads = 1; threads <= 7; threads += 3) {
                        dci_context *own = test_context(threads);
                        dci_index *index = pdci_index(own, &config, N, keys, NULL);
                        pdci_found all = pdci_search(index, Q, queries, K, params);
                        if (threads == 1)
                                first = all;
                        ck_assert(pdci_same(&first, &all));
                        for (size_t q = 0, n; q < Q; q += n) {
                                n = 1 + q % 5 < Q - q ? 1 + q % 5 : Q - q;
                                pdci_found part = pdci_search(index, n, queries + q * TRACE_DIM, K, params);
                                ck_assert_mem_eq(part.ids, first.ids + q * K, n * K * sizeof *part.ids);
                                ck_assert_mem_eq(part.scores, first.scores + q * K, n * K * sizeof *part.scores);
                                pdci_found_free(&part);
                        }
                        if (threads != 1)
                                pdci_found_free(&all);
                        dci_index_destroy(index);
                        dci_context_destroy(own);
                }
                pdci_found_free(&first);
        }
}
END_TEST

/* Loops over kinds: groups of queries share what they read. */
START_TEST(groups_find_what_their_queries_find)
{
        const dci_index_config config = pdci_sketched(kinds[_i], DCI_METRIC_IP, DCI_F16, 4);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        const dci_search_params sure = pdci_verifying(0.0, 1.0);
        int64_t ids[Q * K];
        float scores[Q * K];
        pdci_found want = pdci_search(index, Q, queries, K, &sure);
        ck_ok(dci_index_search_group(index, Q / 8, 8, queries, TRACE_DIM, K, DCI_GROUP_EACH, &sure, ids, scores));
        ck_assert_mem_eq(ids, want.ids, sizeof ids);
        ck_assert_mem_eq(scores, want.scores, sizeof scores);
        pdci_found_free(&want);
        dci_index_destroy(index);
}
END_TEST

static unsigned char *bytes_of(const dci_index *index, size_t *out_n)
{
        ck_ok(dci_index_save_memory(index, 0, NULL, out_n));
        unsigned char *bytes = malloc(*out_n);
        ck_ok(dci_index_save_memory(index, *out_n, bytes, out_n));
        return bytes;
}

/* Loops over kinds and metrics, fitted or not: saved, loaded, mapped, and saved again. */
START_TEST(files_hold_the_codes)
{
        const dci_index_config config = pdci_sketched(kinds[_i % 3], all_metrics[_i / 3 % 3], DCI_F16, widths[_i % 5]);
        const dci_search_params some = pdci_verifying(2.0, 0.0);
        const char *path = scratch_path("index");
        dci_index *index = pdci_index(context, &config, N, keys, NULL), *other = NULL;
        if (_i / 9 == 1)
                ck_ok(dci_index_fit(index, Q, queries, TRACE_DIM));
        churn(index, keys);
        ck_ok(dci_index_set_defaults(index, &some));
        pdci_found want = pdci_search(index, Q, queries, K, NULL);
        size_t n_bytes = 0, again = 0;
        unsigned char *bytes = bytes_of(index, &n_bytes), *copy = malloc(n_bytes);
        ck_ok(dci_index_save(index, path));
        for (int how = 0; how < 3; how++) {
                ck_ok(how == 0   ? dci_index_load(context, path, &other)
                      : how == 1 ? dci_index_map(context, path, &other)
                                 : dci_index_load_memory(context, bytes, n_bytes, &other));
                pdci_found got = pdci_search(other, Q, queries, K, NULL);
                ck_assert(pdci_same(&want, &got));
                pdci_found_free(&got);
                check_sure(other, queries, Q, "loaded");
                ck_ok(dci_index_save_memory(other, n_bytes, copy, &again));
                ck_assert_uint_eq(again, n_bytes);
                ck_assert_mem_eq(copy, bytes, n_bytes);
                if (how != 1) {
                        churn(other, keys + (N / 2) * TRACE_DIM);
                        check_sure(other, queries, Q, "loaded and changed");
                }
                dci_index_destroy(other);
        }
        pdci_found_free(&want);
        test_free(bytes, copy);
        dci_index_destroy(index);
}
END_TEST

static void remove_all(dci_index *index)
{
        int64_t ids[N];
        size_t n = 0;
        ck_ok(dci_index_ids(index, N, ids, &n));
        ck_ok(dci_index_remove(index, n, ids));
}

/* Loops over kinds, fitted or not: in the middle of rows that decide about a centre, and when all rows have gone. */
START_TEST(a_loaded_index_codes_as_the_saved_one_would)
{
        const dci_index_config config = pdci_sketched(kinds[_i % 3], DCI_METRIC_IP, DCI_F32, 2);
        dci_index *index = pdci_index(context, &config, 5, keys, NULL);
        if (_i / 3 > 0)
                ck_ok(dci_index_fit(index, Q, queries, TRACE_DIM));
        for (size_t step = 0; step < 8; step++) {
                size_t n = 0, n_again = 0;
                unsigned char *bytes = bytes_of(index, &n);
                dci_index *again = NULL;
                ck_ok(dci_index_load_memory(context, bytes, n, &again));
                free(bytes);
                for (int which = 0; which < 2; which++)
                        ck_ok(dci_index_add(which == 0 ? index : again, 20, keys + 100 * step * TRACE_DIM, TRACE_DIM,
                                            NULL, NULL));
                bytes = bytes_of(index, &n);
                unsigned char *bytes_again = bytes_of(again, &n_again);
                ck_assert_uint_eq(n, n_again);
                ck_assert_mem_eq(bytes, bytes_again, n);
                test_free(bytes_again, bytes);
                dci_index_destroy(again);
                if (step == 5)
                        remove_all(index);
        }
        dci_index_destroy(index);
}
END_TEST

/* Fails unless the rows of both have the same codes, in the same places. */
static void same_codes(const dci_index *a, const dci_index *b)
{
        const dci_view x = dci_rows_view(&a->rows), y = dci_rows_view(&b->rows);
        ck_assert_uint_eq(x.n, y.n);
        for (size_t slot = 0; slot < x.n; slot++) {
                const dci_unit u = dci_view_unit(&x, slot / DCI_CODE_UNIT), v = dci_view_unit(&y, slot / DCI_CODE_UNIT);
                const size_t r = u.unit * DCI_CODE_UNIT + slot % DCI_CODE_UNIT, block = u.unit / 2,
                             row = r % DCI_CODE_ROWS;
                ck_assert_int_eq(dci_view_id(&x, (int32_t)slot), dci_view_id(&y, (int32_t)slot));
                if (dci_view_id(&x, (int32_t)slot) < 0)
                        continue;
                const size_t bytes = a->rows.codes->frames.block_bytes;
                for (size_t at = dci_code_word(row); at < bytes; at += 2 * DCI_CODE_LINE)
                        test_hold(memcmp(u.area->blocks + block * bytes + at, v.area->blocks + block * bytes + at, 4) ==
                                  0);
                test_hold(u.area->scales[r] == v.area->scales[r] && u.area->residuals[r] == v.area->residuals[r]);
                test_hold(u.area->frames[block] == v.area->frames[block]);
        }
}

/* Loops over kinds, fitted or not: rows about a place of their own come and go, time after time, few or many. */
START_TEST(an_index_that_was_emptied_codes_as_a_new_one)
{
        enum { ROUNDS = 140, MANY = 200, FEW = 31 };
        const size_t n_rounds = test_short() ? 20 : ROUNDS;
        const dci_index_config config = pdci_sketched(kinds[_i % 3], DCI_METRIC_L2, DCI_F32, 4);
        dci_index *index = pdci_index(context, &config, 0, keys, NULL),
                  *fresh = pdci_index(context, &config, 0, keys, NULL);
        float *rows = test_normal(MANY, TRACE_DIM, 6), *place = test_normal(ROUNDS, TRACE_DIM, 7);
        int64_t ids[MANY];
        for (int64_t i = 0; i < MANY; i++)
                ids[i] = i;
        for (size_t round = 0; round < n_rounds; round++) {
                const size_t n = round % 2 == 0 ? MANY : FEW;
                for (size_t i = 0; i < n * TRACE_DIM; i++)
                        rows[i] += 100.0f * place[round * TRACE_DIM + i % TRACE_DIM];
                ck_ok(dci_index_add(index, n, rows, TRACE_DIM, ids, NULL));
                if (_i / 3 > 0 && round == n_rounds - 2) {
                        ck_ok(dci_index_fit(index, Q, queries, TRACE_DIM));
                        ck_ok(dci_index_add(fresh, n, rows, TRACE_DIM, ids, NULL));
                        ck_ok(dci_index_fit(fresh, Q, queries, TRACE_DIM));
                        ck_ok(dci_index_remove(fresh, n, ids));
                }
                ck_ok(dci_index_remove(index, n, ids));
        }
        for (size_t n = DCI_CODE_ROWS; n <= N; n += N - DCI_CODE_ROWS) {
                int64_t *all = pdci_shuffled(n, 4);
                ck_ok(dci_index_add(index, n, keys, TRACE_DIM, all, NULL));
                ck_ok(dci_index_add(fresh, n, keys, TRACE_DIM, all, NULL));
                same_codes(index, fresh);
                ck_assert_uint_eq(atomic_load(&index->rows.codes->frames.n), atomic_load(&fresh->rows.codes->frames.n));
                ck_ok(dci_index_remove(index, n, all));
                ck_ok(dci_index_remove(fresh, n, all));
                free(all);
        }
        dci_index_destroy(index);
        dci_index_destroy(fresh);
        test_free(rows, place);
}
END_TEST

/* Loops over kinds but MDCI, which reads all of its rows when so many come: a few rows, one by one, then many elsewhere in one batch. */
START_TEST(few_rows_do_not_move_the_centre_of_a_batch_behind_them)
{
        enum { FEW = 31, MANY = 1000 };
        const dci_index_config config = pdci_sketched(kinds[_i], DCI_METRIC_IP, DCI_F32, 4);
        dci_index *index = pdci_index(context, &config, 0, keys, NULL);
        float *rows = test_normal(FEW + MANY, TRACE_DIM, 8);
        for (size_t i = 0; i < FEW * TRACE_DIM; i++)
                rows[i] += 1000.0f;
        for (size_t i = 0; i < FEW; i++)
                ck_ok(dci_index_add(index, 1, rows + i * TRACE_DIM, TRACE_DIM, NULL, NULL));
        ck_ok(dci_index_add(index, MANY, rows + FEW * TRACE_DIM, TRACE_DIM, NULL, NULL));
        ck_assert_double_ge(recall(index, NULL, K), 0.97);
        check_sure(index, rows + (FEW + 7) * TRACE_DIM, Q, "after a few");
        free(rows);
        dci_index_destroy(index);
}
END_TEST

/* Loops over kinds: a target recall is reached with fewer rows scored than there are. */
START_TEST(tuning_covers_codes)
{
        enum { MANY = 200 }; /* half of them choose: of a few, they would tell little about others */
        const dci_index_config config = pdci_sketched(kinds[_i], DCI_METRIC_IP, DCI_F16, 4);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        float *many = pdci_trace("queries", MANY);
        dci_tune_result result;
        ck_ok(dci_tune_result_init(&result, sizeof result));
        ck_ok(dci_index_tune(index, MANY, many, TRACE_DIM, K, 0.95, &result));
        ck_assert_double_ge(result.recall, 0.95);
        ck_assert_double_ge(result.rerank, 1.0);
        ck_assert_double_lt(result.distances, 0.1 * N);
        ck_assert_double_ge(result.recall_held_out, 0.9);
        ck_assert_double_ge(recall(index, NULL, K), 0.9);
        free(many);
        ck_ok(dci_index_tune(index, Q, queries, TRACE_DIM, K, 1.0, &result));
        ck_assert_double_eq(result.recall, 1.0);
        ck_assert(isinf(result.rerank) && result.rerank > 0.0);
        dci_index_destroy(index);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("sketched");
        TCase *tcase = test_case_with(suite, "laws", 60, setup, trace_close);
        tcase_add_checked_fixture(tcase, scratch_open, scratch_close);
        tcase_add_loop_test(tcase, a_guarantee_of_one_is_exact, 0, 45);
        tcase_add_loop_test(tcase, a_guarantee_of_one_is_exact_for_the_shortest_queries, 0, 3);
        tcase_add_test(tcase, a_guarantee_of_one_knows_how_scores_round);
        tcase_add_loop_test(tcase, verifying_everything_needs_no_codes, 0, 3);
        tcase_add_loop_test(tcase, codes_that_overflow_lose_no_results, 0, 3);
        tcase_add_loop_test(tcase, defaults_find_nearly_all, 0, 9);
        tcase_add_loop_test(tcase, codes_keep_in_step_with_rows, 0, 9);
        tcase_add_loop_test(tcase, a_drifting_mean_is_followed, 0, 3);
        tcase_add_loop_test(tcase, answers_depend_on_neither_threads_nor_batches, 0, 3);
        tcase_add_loop_test(tcase, groups_find_what_their_queries_find, 0, 3);
        tcase_add_loop_test(tcase, files_hold_the_codes, 0, 18);
        tcase_add_loop_test(tcase, a_loaded_index_codes_as_the_saved_one_would, 0, 6);
        tcase_add_loop_test(tcase, an_index_that_was_emptied_codes_as_a_new_one, 0, 6);
        tcase_add_loop_test(tcase, few_rows_do_not_move_the_centre_of_a_batch_behind_them, 0, 2);
        tcase_add_loop_test(tcase, tuning_covers_codes, 0, 3);
        return test_main(suite);
}
