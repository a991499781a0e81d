/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Laws of kind MDCI: exact at full effort; what a tree finds does not depend, or hardly, on how its rows came there. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/mdci_fixture.h"

enum { DIM = TRACE_DIM, N_KEYS = 7680, K = 10 };

/* A tenth of the nodes: what searches usually open. */
static const double some = 0.1;

/* Adds rows in pieces, in the order given (NULL: as they are), under the ids of their places. */
static dci_index *in_pieces(const dci_index_config *config, size_t n, const float *rows, const int64_t *order,
                            size_t piece)
{
        dci_index *index = pdci_index(context, config, 0, NULL, NULL);
        float *some_rows = malloc(piece * DIM * sizeof *some_rows);
        int64_t *ids = malloc(piece * sizeof *ids);
        for (size_t done = 0; done < n; done += piece) {
                const size_t here = n - done < piece ? n - done : piece;
                for (size_t i = 0; i < here; i++) {
                        ids[i] = order == NULL ? (int64_t)(done + i) : order[done + i];
                        memcpy(some_rows + i * DIM, rows + (size_t)ids[i] * DIM, DIM * sizeof *rows);
                }
                ck_ok(dci_index_add(index, here, some_rows, DIM, ids, NULL));
        }
        test_free(some_rows, ids);
        return index;
}

/* --- exact ----------------------------------------------------------------------------------------------------------------- */

/* Efforts that are full: all nodes, by each name that the effort has. */
static void check_against_flat(dci_index *const *indices, size_t n_queries, const float *queries)
{
        static const size_t batches[] = {1, 40}, ks[] = {K, 2000};
        dci_search_params efforts[4] = {mdci_effort(1.0), mdci_effort(1e-9), mdci_effort(1e-9), mdci_effort(1e-9)};
        efforts[1].field_of_view = efforts[2].num_to_visit = 2000;
        efforts[3].num_to_visit = efforts[3].num_to_retrieve = SIZE_MAX;
        for (size_t c = 0; c < COUNT(batches) * COUNT(ks); c++) {
                const size_t n = batches[c / COUNT(ks)], k = ks[c % COUNT(ks)];
                ck_assert_uint_le(n, n_queries);
                pdci_found want = pdci_search(indices[0], n, queries, k, NULL);
                for (size_t form = 1; form < 4; form++) {
                        for (size_t e = 0; e < COUNT(efforts); e++) {
                                pdci_found got = pdci_search(indices[form], n, queries, k, &efforts[e]);
                                ck_assert_msg(pdci_same(&want, &got), "form %zu, effort %zu, %zu queries, k %zu", form,
                                              e, n, k);
                                pdci_found_free(&got);
                        }
                }
                pdci_found_free(&want);
        }
}

/* Loops over metrics and formats. Forms: flat; owned; borrowed, of several levels; owned, ranked by simple indices. */
START_TEST(full_effort_equals_flat_bit_for_bit_before_and_after_removals)
{
        enum { N = 1500, Q = 40 };
        const dci_dtype dtype = all_dtypes[_i / 3];
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        int64_t *gone = pdci_shuffled(N, 4);
        void *stored = malloc(N * DIM * sizeof(float));
        dci_kernels_scalar.narrow[dtype - 1](keys, N * DIM, stored);
        dci_index *indices[4] = {NULL};
        for (int form = 0; form < 4; form++) {
                dci_index_config config = mdci_config(DIM, all_metrics[_i % 3], dtype);
                config.kind = form == 0 ? DCI_KIND_FLAT : DCI_KIND_MDCI;
                config.storage = form == 2 ? DCI_ROWS_BORROWED : DCI_ROWS_OWNED;
                config.top_nodes = form == 2 ? 8 : 4096;
                config.cell_simp_indices = form == 3 ? 3 : 0;
                config.add_dtype = dtype;
                ck_ok(dci_index_create(context, &config, &indices[form]));
                ck_ok(dci_index_add(indices[form], N, stored, DIM, NULL, NULL));
        }
        check_against_flat(indices, Q, queries);
        for (size_t done = 0, n = 1; done + n < N; done += n, n *= 30) { /* few rows, then many */
                for (int form = 0; form < 4; form++)
                        ck_ok(dci_index_remove(indices[form], n, gone + done));
                check_against_flat(indices, Q, queries);
        }
        for (int form = 0; form < 4; form++) {
                if (form > 0)
                        tree_check(indices[form]);
                dci_index_destroy(indices[form]);
        }
        test_free(stored, keys, queries, gone);
}
END_TEST

/* --- how rows came in, and which went --------------------------------------------------------------------------------------- */

/* Loops over metrics. */
START_TEST(rows_that_come_bit_by_bit_are_found_as_well_as_after_a_bulk_build)
{
        enum { N = N_KEYS, Q = 432 };
        static const size_t pieces[] = {1, 16};
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F16);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        dci_index *bulk = in_pieces(&config, N, keys, NULL, N);
        const double of_bulk = mdci_recall(bulk, Q, queries, K, some);
        ck_assert_double_ge(tree_share_at_nearest(bulk), 0.9999);
        for (size_t c = 0; c < COUNT(pieces); c++) {
                dci_index *index = in_pieces(&config, N, keys, NULL, pieces[c]);
                char what[64];
                snprintf(what, sizeof what, "pieces of %zu", pieces[c]);
                tree_check(index);
                mdci_same_nodes(bulk, index, what);
                const double share = tree_share_at_nearest(index), recall = mdci_recall(index, Q, queries, K, some);
                ck_assert_msg(share >= 0.93, "%s: %g of the rows lie at their nearest node", what, share);
                ck_assert_msg(recall >= of_bulk - 0.01, "%s: %g found, %g after a bulk build", what, recall, of_bulk);
                dci_index_destroy(index);
        }
        dci_index_destroy(bulk);
        test_free(keys, queries);
}
END_TEST

/* Loops over metrics. */
START_TEST(any_order_and_any_pieces_of_adds_give_the_same_nodes_and_exact_results)
{
        enum { N = 1100, Q = 12 };
        static const size_t pieces[] = {1, 7, 64, 500, N};
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F32);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        int64_t *shuffled = pdci_shuffled(N, 1);
        dci_index *whole = pdci_index(context, &config, N, keys, NULL);
        for (size_t c = 0; c < 2 * COUNT(pieces); c++) {
                char what[64];
                dci_index *index = in_pieces(&config, N, keys, c % 2 == 0 ? NULL : shuffled, pieces[c / 2]);
                snprintf(what, sizeof what, "pieces of %zu%s", pieces[c / 2], c % 2 == 0 ? "" : ", shuffled");
                tree_check(index);
                mdci_same_nodes(whole, index, what);
                mdci_same_at(whole, index, Q, queries, K, 1.0, what);
                dci_index_destroy(index);
        }
        dci_index_destroy(whole);
        test_free(keys, queries, shuffled);
}
END_TEST

/* Which key each id holds; ids count on. */
typedef struct rows_now {
        size_t n;
        int64_t ids[N_KEYS];
        size_t key_of[N_KEYS]; /* by place */
} rows_now;

/* A page of up to 16 rows comes, goes, or goes and comes again as other keys. The first row stays: it is the longest. */
static void one_operation(dci_index *index, const float *keys, rows_now *now, int64_t *next, dci_rng *rng)
{
        const size_t n = 1 + (size_t)dci_rng_below(rng, 16), what = (size_t)dci_rng_below(rng, 3);
        const bool goes = what != 0 && now->n > N_KEYS / 4, comes = what != 1 && now->n < N_KEYS / 2;
        int64_t ids[16];
        float rows[16 * DIM];
        for (size_t i = 0; goes && i < n; i++) {
                const size_t at = 1 + (size_t)dci_rng_below(rng, now->n - 1);
                ids[i] = now->ids[at];
                now->n--;
                now->ids[at] = now->ids[now->n];
                now->key_of[at] = now->key_of[now->n];
        }
        if (goes)
                ck_ok(dci_index_remove(index, n, ids));
        for (size_t i = 0; comes && i < n; i++) {
                if (!goes) /* an update keeps the ids */
                        ids[i] = (*next)++;
                now->ids[now->n] = ids[i];
                now->key_of[now->n] = (size_t)dci_rng_below(rng, N_KEYS);
                memcpy(rows + i * DIM, keys + now->key_of[now->n++] * DIM, DIM * sizeof *rows);
        }
        if (comes)
                ck_ok(dci_index_add(index, n, rows, DIM, ids, NULL));
}

static size_t longest_of(const float *rows, size_t n)
{
        size_t longest = 0;
        double most = 0;
        for (size_t i = 0; i < n; i++) {
                double sum = 0;
                for (size_t p = 0; p < DIM; p++)
                        sum += (double)rows[i * DIM + p] * rows[i * DIM + p];
                longest = sum > most ? i : longest;
                most = sum > most ? sum : most;
        }
        return longest;
}

/* Loops over metrics. */
START_TEST(ten_thousand_operations_leave_an_index_as_good_and_as_small_as_a_new_one)
{
        enum { Q = 432, OPERATIONS = 10000, BEGIN = N_KEYS / 3 };
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F16);
        float *keys = pdci_trace("keys", N_KEYS), *queries = pdci_trace("queries", Q);
        rows_now *now = calloc(1, sizeof *now);
        float *rows = malloc(N_KEYS * DIM * sizeof *rows);
        int64_t next = BEGIN;
        dci_rng rng;
        dci_rng_seed(&rng, 21);
        for (now->n = 0; now->n < BEGIN; now->n++) {
                const size_t key = now->n == 0 ? longest_of(keys, N_KEYS) : (size_t)dci_rng_below(&rng, N_KEYS);
                now->ids[now->n] = (int64_t)now->n;
                now->key_of[now->n] = key;
                memcpy(rows + now->n * DIM, keys + key * DIM, DIM * sizeof *rows);
        }
        dci_index *index = pdci_index(context, &config, now->n, rows, now->ids);
        for (size_t i = 0; i < OPERATIONS; i++)
                one_operation(index, keys, now, &next, &rng);
        tree_check(index);
        for (size_t i = 0; i < now->n; i++)
                memcpy(rows + i * DIM, keys + now->key_of[i] * DIM, DIM * sizeof *rows);
        dci_index *fresh = pdci_index(context, &config, now->n, rows, now->ids);
        const double recall = mdci_recall(index, Q, queries, K, some), wanted = mdci_recall(fresh, Q, queries, K, some);
        mdci_same_nodes(index, fresh, "after operations");
        mdci_same_at(index, fresh, Q, queries, K, 1.0, "after operations");
        ck_assert_msg(recall >= wanted - 0.01, "%g found, %g in a new index", recall, wanted);
        ck_assert_uint_le(mdci_memory(index).total, mdci_memory(fresh).total * 3 / 2);
        dci_index_destroy(index);
        dci_index_destroy(fresh);
        test_free(now, rows, keys, queries);
}
END_TEST

/* --- effort ------------------------------------------------------------------------------------------------------------------- */

/* Loops over metrics. Under L2 the queries are keys that are not in the index: those of attention lie so far from all
 * keys that hardly more than one cell has near ones. */
START_TEST(recall_grows_with_effort)
{
        enum { Q = 144 };
        static const double shares[] = {1e-9, 0.02, 0.05, 0.2, 0.5, 1.0};
        const bool l2 = all_metrics[_i] == DCI_METRIC_L2;
        const size_t n = l2 ? 6000 : 4000;
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F16);
        float *keys = pdci_trace("keys", l2 ? N_KEYS : n), *asked = pdci_trace("queries", Q);
        const float *queries = l2 ? keys + n * DIM : asked;
        dci_index *index = pdci_index(context, &config, n, keys, NULL);
        double last = 0;
        for (size_t s = 0; s < COUNT(shares); s++) {
                const double recall = mdci_recall(index, Q, queries, K, shares[s]);
                ck_assert_msg(recall > last || last > 0.999, "%g of the nodes: %g found, before %g", shares[s], recall,
                              last);
                ck_assert_msg(s > 0 || recall < 0.9, "the least effort finds %g: hardly anything can grow", recall);
                last = recall;
        }
        ck_assert_double_eq(last, 1.0);
        dci_index_destroy(index);
        test_free(keys, asked);
}
END_TEST

/* --- instruction sets --------------------------------------------------------------------------------------------------------- */

/* Loops over metrics. From avx2 on the same bits, trees and searches alike; scalar the same nodes, scores within
 * rounding. */
START_TEST(instruction_sets_give_the_same_bits_from_avx2_on)
{
        enum { N = 3000, Q = 48 };
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        dci_index *first = NULL, *scalar = NULL;
        dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_BF16);
        config.top_nodes = 32;
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *own = test_context_isa(isas[i]);
                dci_index *index = pdci_index(own, &config, N - 100, keys, NULL);
                for (size_t at = N - 100; at < N; at += 20)
                        ck_ok(dci_index_add(index, 20, keys + at * DIM, DIM, NULL, NULL));
                if (isas[i] == DCI_ISA_SCALAR) {
                        scalar = index;
                } else if (first == NULL) {
                        first = index;
                        mdci_same_nodes(scalar, index, dci_isa_name(isas[i]));
                } else {
                        mdci_same_at(first, index, Q, queries, K, some, dci_isa_name(isas[i]));
                        dci_index_destroy(index);
                }
                dci_context_destroy(own);
        }
        if (first != NULL) {
                const dci_search_params all = mdci_effort(1.0);
                pdci_found a = pdci_search(first, Q, queries, K, &all), b = pdci_search(scalar, Q, queries, K, &all);
                size_t differ = 0;
                for (size_t i = 0; i < Q * K; i++) {
                        differ += a.ids[i] != b.ids[i];
                        ck_assert_double_le(fabs((double)a.scores[i] - b.scores[i]),
                                            1e-5 * (fabs((double)a.scores[i]) + 1.0));
                }
                ck_assert_uint_le(differ, Q * K / 100); /* ties that rounding decides */
                ck_assert_double_le(
                        fabs(mdci_recall(first, Q, queries, K, some) - mdci_recall(scalar, Q, queries, K, some)), 0.01);
                pdci_found_free(&a);
                pdci_found_free(&b);
        }
        dci_index_destroy(first);
        dci_index_destroy(scalar);
        test_free(keys, queries);
}
END_TEST

/* --- inner products ------------------------------------------------------------------------------------------------------------ */

/* The longest row is four times as long as before and comes last, alone or in a page. */
START_TEST(a_longer_row_that_comes_late_leaves_what_an_index_built_with_it_finds)
{
        enum { N = 3000, Q = 144 };
        const dci_index_config config = mdci_config(DIM, DCI_METRIC_IP, DCI_F16);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        for (size_t p = 0; p < DIM; p++)
                keys[(N - 1) * DIM + p] = 4 * keys[longest_of(keys, N - 1) * DIM + p];
        dci_index *whole = pdci_index(context, &config, N, keys, NULL);
        for (size_t late = 1; late <= 16; late += 15) {
                dci_index *index = pdci_index(context, &config, N - late, keys, NULL);
                ck_assert(index->tree->c_squared < whole->tree->c_squared);
                ck_ok(dci_index_add(index, late, keys + (N - late) * DIM, DIM, NULL, NULL));
                ck_assert(index->tree->c_squared == whole->tree->c_squared);
                tree_check(index);
                mdci_same_nodes(whole, index, "a longer row");
                mdci_same_at(whole, index, Q, queries, K, some, "a longer row");
                dci_index_destroy(index);
        }
        dci_index_destroy(whole);
        test_free(keys, queries);
}
END_TEST

/* --- several levels ------------------------------------------------------------------------------------------------------------- */

static const struct {
        size_t top_nodes, n_levels;
} shapes[] = {{4, 4}, {16, 3}, {64, 2}};

/* Loops over shapes and metrics. A tenth of so few nodes at the top is one or two; with a quarter hardly
 * less is found than with one level. */
START_TEST(trees_of_several_levels_obey_the_same_laws)
{
        enum { N = 2500, Q = 144 };
        const double quarter = 0.25;
        dci_index_config config = mdci_config(DIM, all_metrics[_i % 3], DCI_F16);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", Q);
        config.promotion_prob = 0.1;
        dci_index *plain = pdci_index(context, &config, N, keys, NULL);
        config.top_nodes = shapes[_i / 3].top_nodes;
        dci_index *bulk = pdci_index(context, &config, N, keys, NULL), *index = in_pieces(&config, N, keys, NULL, 16);
        tree_check(bulk);
        tree_check(index);
        mdci_same_nodes(plain, bulk, "levels");
        mdci_same_nodes(bulk, index, "levels, pieces");
        mdci_same_at(plain, bulk, Q, queries, K, 1.0, "levels");
        mdci_same_at(bulk, index, Q, queries, K, 1.0, "levels, pieces");
        const double a = mdci_recall(plain, Q, queries, K, quarter), b = mdci_recall(bulk, Q, queries, K, quarter),
                     c = mdci_recall(index, Q, queries, K, quarter);
        ck_assert_msg(b >= a - 0.01, "%g found, %g with one level", b, a);
        ck_assert_msg(c >= b - 0.01, "%g found, %g after a bulk build", c, b);
        ck_assert_double_ge(tree_share_at_nearest(bulk), 0.9999);
        ck_assert_double_ge(tree_share_at_nearest(index), 0.93);
        ck_assert_uint_eq(bulk->tree->n_levels, shapes[_i / 3].n_levels);
        ck_assert_uint_eq(index->tree->n_levels, shapes[_i / 3].n_levels);
        dci_index_destroy(plain);
        dci_index_destroy(bulk);
        dci_index_destroy(index);
        test_free(keys, queries);
}
END_TEST

START_TEST(a_level_comes_when_the_top_has_grown_and_goes_with_its_nodes)
{
        enum { N = 600, TOP = 8 };
        dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        float *keys = pdci_trace("keys", N), *queries = pdci_trace("queries", 1);
        config.top_nodes = TOP;
        config.promotion_prob = 0.1;
        dci_index *index = pdci_index(context, &config, 1, keys, NULL);
        size_t came = 0, n = 1;
        for (; n < N; n++) {
                const dci_tree_stats before = mdci_stats(index);
                ck_ok(dci_index_add(index, 1, keys + n * DIM, DIM, NULL, NULL));
                const dci_tree_stats now = mdci_stats(index);
                if (now.rebuilds != before.rebuilds)
                        continue; /* the first rows */
                ck_assert_uint_ge(now.n_levels, before.n_levels);
                if (now.n_levels > before.n_levels) {
                        ck_assert_uint_eq(now.n_levels, before.n_levels + 1);
                        ck_assert_uint_gt(now.n_nodes[before.n_levels - 1], 2 * TOP);
                        came++;
                        tree_check(index);
                }
                ck_assert_uint_le(now.n_nodes[now.n_levels - 1], 2 * TOP + 1);
        }
        ck_assert_uint_ge(came, 1);
        const dci_tree_stats grown = mdci_stats(index);
        for (size_t l = grown.n_levels - 1; l > 0; l--) { /* from the top: its nodes go one by one */
                while (index->tree->n_levels > l) {
                        const int64_t id = index->tree->levels[l].ids[0];
                        ck_ok(dci_index_remove(index, 1, &id));
                        tree_check(index);
                        ck_assert_uint_ge(mdci_stats(index).n_levels, l);
                }
                dci_index *flat = mdci_flat_of(index);
                mdci_same_at(flat, index, 1, queries, K, 1.0, "a level less");
                dci_index_destroy(flat);
        }
        ck_assert_uint_eq(mdci_stats(index).n_levels, 1);
        ck_assert_uint_eq(mdci_stats(index).rebuilds, grown.rebuilds);
        dci_index_destroy(index);
        test_free(keys, queries);
}
END_TEST

/* --- equal rows ------------------------------------------------------------------------------------------------------------ */

enum { N_EQUAL = 1500, WIDE = 12 };

/* N_EQUAL rows of floats, some of which are equal: all, zeros of either sign, a third, or each one of 60. */
enum { ALL_EQUAL, ALL_ZERO, A_THIRD_EQUAL, OF_SIXTY, SORTS_OF_EQUAL };
static float *equal_rows(int sort)
{
        float *out = test_normal(N_EQUAL, WIDE, 3);
        for (size_t i = 0; i < N_EQUAL; i++) {
                for (size_t p = 0; sort == ALL_ZERO && p < WIDE; p++)
                        out[i * WIDE + p] = (i >> p % 10 & 1) == 0 ? 0.0f : -0.0f;
                if (sort == ALL_EQUAL || (sort == A_THIRD_EQUAL && i % 3 == 0) || sort == OF_SIXTY)
                        memcpy(out + i * WIDE, out + (sort == OF_SIXTY ? i % 60 : 0) * WIDE, WIDE * sizeof *out);
        }
        return out;
}

static dci_index *index_of_equal_rows(int sort, dci_metric metric, size_t top_nodes)
{
        dci_index_config config = mdci_config(WIDE, metric, DCI_F32);
        float *equal = equal_rows(sort);
        config.promotion_prob = 0.2;
        config.top_nodes = top_nodes;
        config.zero_rows = metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
        dci_index *index = pdci_index(context, &config, N_EQUAL, equal, NULL);
        free(equal);
        return index;
}

/* Loops over sorts and metrics. The first of the nodes that the canonical kernel finds nearest. */
START_TEST(of_equal_nodes_the_first_gets_the_rows_of_a_build)
{
        dci_index *index = index_of_equal_rows(_i / 3, all_metrics[_i % 3], N_EQUAL);
        const dci_tree *tree = index->tree;
        const dci_level *level = &tree->levels[0];
        const dci_view view = dci_rows_view(&index->rows);
        const size_t wide = tree->dim + 1;
        float point[WIDE + 1], *scores = malloc(level->n * sizeof *scores);
        ck_assert_uint_eq(tree->n_levels, 1);
        for (size_t slot = 0; slot < view.n; slot++) {
                size_t best = 0;
                if (dci_view_id(&view, (int32_t)slot) < 0)
                        continue;
                dci_tree_point_of_slot(tree, &view, (int32_t)slot, point);
                context->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](point, level->points, wide * sizeof *point,
                                                                           level->n, tree->n_coords, scores);
                for (size_t i = 0; i < level->n; i++) {
                        scores[i] -= level->nearest.offsets[i];
                        best = scores[i] > scores[best] ? i : best;
                }
                ck_assert_int_eq(tree->page_node[slot / tree->page_rows], (int32_t)best);
        }
        tree_check(index);
        free(scores);
        dci_index_destroy(index);
}
END_TEST

/* The kernels of the context, but for one that counts the scores that decide. */
static dci_score_strided_fn strided;
static size_t n_decided;
static void count_strided(const float *query, const void *base, size_t stride, size_t n_rows, size_t dim, float *out)
{
        n_decided += n_rows;
        strided(query, base, stride, n_rows, dim, out);
}

/* Loops over sorts and metrics, at one level of nodes and at several. Each with each would be some 300 scores a row. */
START_TEST(a_build_does_not_compare_equal_rows_each_with_each)
{
        const dci_kernels *kernels = context->kernels;
        dci_kernels counting = *kernels;
        strided = kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT];
        counting.score_strided[DCI_F32 - 1][DCI_FORM_DOT] = count_strided;
        for (size_t top_nodes = 8; top_nodes <= N_EQUAL; top_nodes += N_EQUAL - 8) {
                n_decided = 0;
                context->kernels = &counting;
                dci_index *index = index_of_equal_rows(_i / 3, all_metrics[_i % 3], top_nodes);
                context->kernels = kernels;
                ck_assert((index->tree->n_levels > 1) == (top_nodes == 8));
                ck_assert_uint_ge(index->tree->levels[0].n, N_EQUAL / 6);
                ck_assert_uint_le(n_decided, N_EQUAL);
                tree_check(index);
                dci_index_destroy(index);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("mdci laws");
        TCase *laws = test_case_with(suite, "laws", 300, context_open_1, context_close);
        tcase_add_loop_test(laws, full_effort_equals_flat_bit_for_bit_before_and_after_removals, 0, 9);
        tcase_add_loop_test(laws, rows_that_come_bit_by_bit_are_found_as_well_as_after_a_bulk_build, 0, 3);
        tcase_add_loop_test(laws, any_order_and_any_pieces_of_adds_give_the_same_nodes_and_exact_results, 0, 3);
        tcase_add_loop_test(laws, ten_thousand_operations_leave_an_index_as_good_and_as_small_as_a_new_one, 0, 3);
        tcase_add_loop_test(laws, recall_grows_with_effort, 0, 3);
        tcase_add_loop_test(laws, instruction_sets_give_the_same_bits_from_avx2_on, 0, 3);
        tcase_add_test(laws, a_longer_row_that_comes_late_leaves_what_an_index_built_with_it_finds);
        tcase_add_loop_test(laws, trees_of_several_levels_obey_the_same_laws, 0, 3 * COUNT(shapes));
        tcase_add_test(laws, a_level_comes_when_the_top_has_grown_and_goes_with_its_nodes);
        tcase_add_loop_test(laws, of_equal_nodes_the_first_gets_the_rows_of_a_build, 0, 3 * SORTS_OF_EQUAL);
        tcase_add_loop_test(laws, a_build_does_not_compare_equal_rows_each_with_each, 0, 3 * SORTS_OF_EQUAL);
        return test_main(suite);
}
