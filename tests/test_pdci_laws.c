/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of kind PDCI: what an index holds does not depend on how it came there, and at full effort it is exact. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/pdci_fixture.h"

enum { DIM = TRACE_DIM, K = 10 };

static int64_t *plain_ids(size_t n)
{
        int64_t *ids = malloc((n + 1) * sizeof *ids);
        ck_assert_ptr_nonnull(ids);
        for (size_t i = 0; i < n; i++)
                ids[i] = (int64_t)i;
        return ids;
}

static double squared_length(const float *row)
{
        double sum = 0;
        for (size_t p = 0; p < DIM; p++)
                sum += (double)row[p] * row[p];
        return sum;
}

static size_t longest_of(const float *rows, size_t n)
{
        size_t longest = 0;
        for (size_t i = 1; i < n; i++)
                longest = squared_length(rows + i * DIM) > squared_length(rows + longest * DIM) ? i : longest;
        return longest;
}

/* --- exact ----------------------------------------------------------------------------------------------------------------- */

/* Loops over metrics and formats. */
START_TEST(full_effort_equals_flat_bit_for_bit)
{
        enum { N = 1500, Q = 40 };
        static const size_t batches[] = {1, 5, Q}, ks[] = {1, K, N + 5};
        const dci_dtype dtype = all_dtypes[_i / 3];
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        void *stored = malloc(N * DIM * sizeof(float));
        dci_kernels_scalar.narrow[dtype - 1](keys, N * DIM, stored);
        dci_index *indices[3] = {NULL}; /* flat; owned; borrowed */
        for (int form = 0; form < 3; form++) {
                dci_index_config config = pdci_config(DIM, all_metrics[_i % 3], dtype);
                config.kind = form == 0 ? DCI_KIND_FLAT : DCI_KIND_PDCI;
                config.storage = form == 2 ? DCI_ROWS_BORROWED : DCI_ROWS_OWNED;
                config.add_dtype = dtype;
                ck_ok(dci_index_create(context, &config, &indices[form]));
                ck_ok(dci_index_add(indices[form], N, stored, DIM, NULL, NULL));
        }
        for (size_t c = 0; c < COUNT(batches) * COUNT(ks); c++) {
                const size_t n = batches[c / COUNT(ks)], k = ks[c % COUNT(ks)];
                dci_search_params counted = pdci_effort(N, N), little = pdci_effort(1, 1);
                pdci_found want = pdci_search(indices[0], n, queries, k, NULL);
                for (int form = 1; form < 3; form++) {
                        /* k beyond the number of rows asks for all of them, whatever the budget. */
                        const dci_search_params *efforts[] = {NULL, &counted, k > N ? &little : NULL};
                        for (size_t e = 0; e < COUNT(efforts); e++) {
                                pdci_found got = pdci_search(indices[form], n, queries, k, efforts[e]);
                                ck_assert_msg(pdci_same(&want, &got), "form %d, effort %zu, %zu queries, k %zu", form,
                                              e, n, k);
                                pdci_found_free(&got);
                        }
                }
                pdci_found_free(&want);
        }
        pdci_agree(indices[1], NULL, indices[2], Q, queries, "owned and borrowed");
        for (int form = 0; form < 3; form++)
                dci_index_destroy(indices[form]);
        test_free(stored, keys, queries);
}
END_TEST

/* --- how rows came in, and which went --------------------------------------------------------------------------------------- */

/* The trace's keys with lengths over some decades, so that c grows step by step when short ones come first. */
static float *keys_of_many_lengths(size_t n)
{
        float *keys = pdci_trace("keys", n);
        for (size_t i = 0; i < n * DIM; i++)
                keys[i] = ldexpf(keys[i], (int)(i / DIM * 9 / n) - 4);
        return keys;
}

/* Loops over metrics. Orders: as they are (short ones first), the other way round, shuffled. */
START_TEST(any_order_and_any_pieces_of_adds_give_the_same_index)
{
        enum { N = 1100, Q = 12 };
        static const size_t pieces[] = {1, 7, 64, 500, N};
        const dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F32);
        float *keys = keys_of_many_lengths(N), *queries = pdci_trace("queries", Q);
        int64_t *shuffled = pdci_shuffled(N, 1), *id_of_row = pdci_shuffled(N, 2);
        dci_index *whole = pdci_index(context, &config, N, keys, id_of_row);
        for (size_t c = 0; c < 3 * COUNT(pieces); c++) {
                const size_t piece = pieces[c / 3];
                dci_index *index = pdci_index(context, &config, 0, NULL, NULL);
                float *rows = malloc(piece * DIM * sizeof *rows);
                int64_t *ids = malloc(piece * sizeof *ids);
                if (piece == 64)
                        ck_ok(dci_index_reserve(index, N));
                for (size_t done = 0; done < N; done += piece) {
                        const size_t n = N - done < piece ? N - done : piece;
                        for (size_t i = 0; i < n; i++) {
                                const size_t at[] = {done + i, N - 1 - done - i, (size_t)shuffled[done + i]};
                                memcpy(rows + i * DIM, keys + at[c % 3] * DIM, DIM * sizeof *rows);
                                ids[i] = id_of_row[at[c % 3]];
                        }
                        ck_ok(dci_index_add(index, n, rows, DIM, ids, NULL));
                }
                char what[64];
                snprintf(what, sizeof what, "order %zu, pieces of %zu", c % 3, piece);
                pdci_agree(whole, NULL, index, Q, queries, what);
                dci_index_destroy(index);
                test_free(rows, ids);
        }
        dci_index_destroy(whole);
        test_free(keys, queries, shuffled, id_of_row);
}
END_TEST

/* Loops over metrics. Under IP c stays what the longest row made it, so that one stays. */
START_TEST(removed_rows_leave_no_trace)
{
        enum { N = 900, Q = 20 };
        const dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_BF16);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        const size_t longest = longest_of(keys, N);
        int64_t *ids = plain_ids(N), *gone = malloc(N * sizeof *gone);
        for (size_t share = 2; share <= 40; share += 19) { /* one of two goes, one of 21, one of 40 */
                dci_index *index = pdci_index(context, &config, N, keys, ids);
                dci_index *never = pdci_index(context, &config, 0, NULL, NULL);
                size_t n_gone = 0;
                for (size_t i = 0; i < N; i++)
                        if (i % share == 1 && i != longest)
                                gone[n_gone++] = ids[i];
                        else
                                ck_ok(dci_index_add(never, 1, keys + i * DIM, DIM, &ids[i], NULL));
                ck_ok(dci_index_remove(index, n_gone, gone));
                pdci_agree(index, NULL, never, Q, queries, "after removing");
                pdci_agree(index, NULL, never, n_gone < 30 ? n_gone : 30, keys + DIM, "asked for rows that are gone");
                for (size_t i = 0; i < n_gone; i++) { /* and they can come again */
                        ck_ok(dci_index_add(index, 1, keys + (size_t)gone[i] * DIM, DIM, &gone[i], NULL));
                        ck_ok(dci_index_add(never, 1, keys + (size_t)gone[i] * DIM, DIM, &gone[i], NULL));
                }
                pdci_agree(index, NULL, never, Q, queries, "after adding them again");
                dci_index_destroy(index);
                dci_index_destroy(never);
        }
        test_free(ids, gone, keys, queries);
}
END_TEST

START_TEST(a_search_never_returns_what_was_removed)
{
        enum { N = 600 };
        const dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F32);
        float *keys = pdci_trace("keys", N);
        int64_t *order = pdci_shuffled(N, 5);
        size_t longest = 0; /* goes first, so that c is larger than any row that stays needs */
        while (order[longest] != (int64_t)longest_of(keys, N))
                longest++;
        order[longest] = order[0];
        order[0] = (int64_t)longest_of(keys, N);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        for (size_t left = N - 1; left > N - 80; left--) {
                const int64_t gone = order[N - 1 - left];
                ck_ok(dci_index_remove(index, 1, &gone));
                dci_search_params params = pdci_effort(left % 3 == 0 ? left / 2 : 3, left % 2 == 0 ? 0 : 20);
                pdci_found found = pdci_search(index, 1, keys + (size_t)gone * DIM, 20, &params);
                for (size_t i = 0; i < 20; i++)
                        for (size_t j = 0; j <= N - 1 - left; j++)
                                ck_assert(found.ids[i] >= 0 && found.ids[i] != order[j]);
                pdci_found_free(&found);
        }
        dci_index_destroy(index);
        test_free(keys, order);
}
END_TEST

/* The rows that an index should hold, in the order of their adds. */
typedef struct model {
        size_t n;
        float rows[3000 * DIM];
        int64_t ids[3000];
} model;

static void check_against_new(const dci_index *index, const model *m, const float *longest, const float *queries)
{
        const int64_t other = INT64_MAX - 1;
        dci_index *built = pdci_index(context, &index->config, 1, longest, &other); /* it leaves c behind */
        ck_ok(dci_index_remove(built, 1, &other));
        ck_ok(dci_index_add(built, m->n, m->rows, DIM, m->ids, NULL));
        ck_assert_uint_eq(dci_index_count(index), m->n);
        pdci_agree(index, NULL, built, 6, queries, "sequence");
        dci_index_destroy(built);
}

/* Loops over metrics. */
START_TEST(any_sequence_of_adds_and_removes_equals_a_new_index)
{
        const size_t rounds = getenv("DCI_TEST_LONG") != NULL ? 400 : 40;
        const dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F32);
        dci_index *index = pdci_index(context, &config, 0, NULL, NULL);
        float longest[DIM] = {0}, *queries = test_normal(6, DIM, 3);
        model *m = calloc(1, sizeof *m);
        int64_t next = 0;
        dci_rng rng;
        dci_rng_seed(&rng, 17);
        longest[0] = 1e-9f;
        for (size_t round = 0; round < rounds; round++) {
                if (m->n < 50 || (m->n < 2500 && dci_rng_below(&rng, 2) == 0)) {
                        const size_t n = 1 + (size_t)dci_rng_below(&rng, round % 5 == 0 ? 400 : 20);
                        float *rows = test_normal(n, DIM, round);
                        for (size_t i = 0; i < n; i++) {
                                float *row = rows + i * DIM;
                                for (size_t p = 0; p < DIM; p++)
                                        row[p] = ldexpf(row[p], (int)(round / 8));
                                m->ids[m->n + i] = next + (int64_t)((n - i) * 3);
                                if (squared_length(row) > squared_length(longest))
                                        memcpy(longest, row, sizeof longest);
                        }
                        memcpy(m->rows + m->n * DIM, rows, n * DIM * sizeof *rows);
                        ck_ok(dci_index_add(index, n, rows, DIM, m->ids + m->n, NULL));
                        m->n += n;
                        next += (int64_t)n * 3 + 1;
                        free(rows);
                } else {
                        size_t n = 1 + (size_t)dci_rng_below(&rng, round % 3 == 0 ? m->n : 9);
                        int64_t *gone = malloc(n * sizeof *gone);
                        for (size_t i = 0; i < n; i++) {
                                size_t at = (size_t)dci_rng_below(&rng, m->n--);
                                gone[i] = m->ids[at];
                                m->ids[at] = m->ids[m->n];
                                memmove(m->rows + at * DIM, m->rows + m->n * DIM, DIM * sizeof *m->rows);
                        }
                        ck_ok(dci_index_remove(index, n, gone));
                        free(gone);
                }
                check_against_new(index, m, longest, queries);
        }
        test_free(m, queries);
        dci_index_destroy(index);
}
END_TEST

/* --- filters ------------------------------------------------------------------------------------------------------------------ */

/* Who is admitted: one of `share`, and the longest, so that c is the same with the others and without. */
typedef struct rule {
        size_t share;
        int64_t longest;
} rule;

static bool admits(const rule *r, int64_t id)
{
        return id == r->longest || id % (int64_t)r->share == 1;
}

static int32_t ask(void *ctx, int64_t id)
{
        return admits(ctx, id);
}

/* Loops over metrics. */
START_TEST(a_filter_equals_an_index_of_the_admitted_rows)
{
        enum { N = 1500, Q = 8 };
        static const size_t shares[] = {2, 10, 300, 5000};
        const dci_index_config config = pdci_config(DIM, all_metrics[_i], DCI_F16);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q), *few = malloc(N * DIM * sizeof *few);
        int64_t *ids = pdci_shuffled(N, 8), *few_ids = malloc(N * sizeof *few_ids),
                *listed = malloc(N * sizeof *listed);
        dci_index *all = pdci_index(context, &config, N, keys, ids);
        for (size_t s = 0; s < COUNT(shares); s++) {
                rule r = {shares[s], ids[longest_of(keys, N)]};
                uint64_t bits[N / 64 + 1] = {0};
                size_t n_few = 0, n_listed = 0;
                for (size_t i = 0; i < N; i++) {
                        if (admits(&r, (int64_t)i)) {
                                listed[n_listed++] = (int64_t)i;
                                bits[i / 64] |= UINT64_C(1) << (i % 64);
                        }
                        if (admits(&r, ids[i])) {
                                memcpy(few + n_few * DIM, keys + i * DIM, DIM * sizeof *few);
                                few_ids[n_few++] = ids[i];
                        }
                }
                dci_index *alone = pdci_index(context, &config, n_few, few, few_ids);
                for (int kind = DCI_FILTER_IDS; kind <= DCI_FILTER_CALLBACK; kind++) {
                        dci_filter filter;
                        ck_ok(dci_filter_init(&filter, sizeof filter));
                        filter.kind = kind;
                        filter.n = kind == DCI_FILTER_IDS ? n_listed : N;
                        filter.ids = listed;
                        filter.bits = bits;
                        filter.fn = ask;
                        filter.ctx = &r;
                        char what[64];
                        snprintf(what, sizeof what, "filter %d, one of %zu", kind, shares[s]);
                        pdci_agree(all, &filter, alone, Q, queries, what);
                }
                dci_index_destroy(alone);
        }
        dci_index_destroy(all);
        test_free(keys, queries, few, ids, few_ids, listed);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("pdci laws");
        TCase *laws = test_case_with(suite, "laws", 300, context_open_1, context_close);
        tcase_add_loop_test(laws, full_effort_equals_flat_bit_for_bit, 0, 9);
        tcase_add_loop_test(laws, any_order_and_any_pieces_of_adds_give_the_same_index, 0, 3);
        tcase_add_loop_test(laws, removed_rows_leave_no_trace, 0, 3);
        tcase_add_loop_test(laws, a_search_never_returns_what_was_removed, 0, 3);
        tcase_add_loop_test(laws, any_sequence_of_adds_and_removes_equals_a_new_index, 0, 3);
        tcase_add_loop_test(laws, a_filter_equals_an_index_of_the_admitted_rows, 0, 3);
        return test_main(suite);
}
