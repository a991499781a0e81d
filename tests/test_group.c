/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Groups of queries and their union: the lists that each query would have, at whatever effort, and what finding them takes. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "simd/topk.h"
#include "tests/mdci_fixture.h"

enum { N = 1500, SIZE = 8, GROUPS = 3, Q = GROUPS * SIZE, DIM = TRACE_DIM };

static const size_t ks[] = {1, 2, 7, 64, N + 5};

static dci_context *context;
static test_memory memory;
static float *keys, *queries;

static void setup(void)
{
        context = test_context_with(&memory, 1);
        keys = pdci_trace("keys", N);
        queries = pdci_trace("queries", Q);
}

static void teardown(void)
{
        dci_context_destroy(context);
        test_free(keys, queries);
}

static dci_index *new_index(dci_index_kind kind, int32_t bits, size_t simple)
{
        dci_index_config config = mdci_config(DIM, DCI_METRIC_IP, DCI_F32);
        config.kind = kind;
        config.sketch_bits = bits;
        config.cell_simp_indices = simple;
        return pdci_index(context, &config, N, keys, NULL);
}

static dci_search_params effort_of(double visit, double retrieve, size_t num_to_retrieve, double rerank)
{
        dci_search_params params = mdci_effort(visit);
        params.prop_to_retrieve = retrieve;
        params.num_to_retrieve = num_to_retrieve;
        params.rerank = rerank;
        return params;
}

static pdci_found room(size_t n_lists, size_t k)
{
        return (pdci_found){n_lists, k, malloc(n_lists * k * sizeof(int64_t)), malloc(n_lists * k * sizeof(float))};
}

static void ask(const dci_index *index, size_t n_groups, const float *asked, int32_t result, dci_search_params params,
                pdci_found *out, dci_search_stats *stats)
{
        ck_ok(dci_search_stats_init(stats, sizeof *stats));
        params.stats = stats;
        ck_ok(dci_index_search_group(index, n_groups, SIZE, asked, DIM, out->k, result, &params, out->ids,
                                     out->scores));
}

/* The union of k against the lists of k; what was looked at is the same, too. */
static void check_union(const dci_index *index, size_t k, const dci_search_params *params, size_t number)
{
        dci_search_stats of_each, of_union;
        pdci_found each = room(Q, k), got = room(GROUPS, k), want = room(GROUPS, k);
        ask(index, GROUPS, queries, DCI_GROUP_EACH, *params, &each, &of_each);
        ask(index, GROUPS, queries, DCI_GROUP_UNION, *params, &got, &of_union);
        for (size_t g = 0; g < GROUPS; g++)
                pdci_interleave(&each, g * SIZE, SIZE, k, want.ids + g * k, want.scores + g * k);
        ck_assert_msg(pdci_same(&got, &want), "kind %d, effort %zu, k %zu: another union", (int)index->config.kind,
                      number, k);
        ck_assert_msg(memcmp(&of_each, &of_union, sizeof of_each) == 0, "effort %zu, k %zu: %zu scored, %zu for each",
                      number, k, (size_t)of_union.distances, (size_t)of_each.distances);
        if (index->config.kind != DCI_KIND_MDCI) {
                pdci_found alone = pdci_search(index, Q, queries, k, params);
                ck_assert(pdci_same(&alone, &each));
                pdci_found_free(&alone);
        }
        pdci_found_free(&each);
        pdci_found_free(&got);
        pdci_found_free(&want);
}

/* Loops over kinds and bits. How many rows are verified, or retrieved, depends on k: the lists of a union are those of its k. */
START_TEST(a_union_is_the_lists_of_its_k_interleaved_at_any_effort)
{
        static const int32_t bits[] = {0, 1, 4};
        const dci_search_params efforts[] = {effort_of(1.0, 1.0, 0, 0.0),  effort_of(1.0, 1.0, 0, 1.0),
                                             effort_of(0.05, 1.0, 0, 0.0), effort_of(0.2, 0.1, 0, 2.0),
                                             effort_of(1.0, 1.0, 1, 0.0),  effort_of(0.3, 1.0, 20, (double)INFINITY)};
        dci_index *index = new_index(DCI_KIND_FLAT + _i / 3, bits[_i % 3], _i % 2 == 0 ? 0 : 5);
        for (size_t e = 0; e < COUNT(efforts); e++)
                for (size_t c = 0; c < COUNT(ks); c++)
                        check_union(index, ks[c], &efforts[e], e);
        dci_index_destroy(index);
}
END_TEST

typedef struct reports {
        size_t last, n_ends;
} reports;

static int32_t note(void *ctx, size_t done, size_t total)
{
        reports *r = ctx;
        ck_assert(done >= r->last && done <= total);
        r->last = done;
        r->n_ends += done == total;
        return 0;
}

/* Loops over kinds. Equal queries bring no more rows than one of them, however long the lists. */
START_TEST(the_progress_of_a_union_ends_once)
{
        dci_index *index = new_index(DCI_KIND_FLAT + _i, 0, 0);
        dci_search_params params = effort_of(0.5, 1.0, 0, 0.0);
        float same[SIZE * DIM];
        int64_t ids[64];
        reports seen = {0};
        for (size_t q = 0; q < SIZE; q++)
                memcpy(same + q * DIM, queries, DIM * sizeof *same);
        params.progress = (dci_progress){.fn = note, .ctx = &seen};
        ck_ok(dci_index_search_group(index, 1, SIZE, same, DIM, 64, DCI_GROUP_UNION, &params, ids, NULL));
        ck_assert_uint_eq(seen.n_ends, 1);
        dci_index_destroy(index);
}
END_TEST

/* What the header says of scratch, on one thread: per node, per row, and of unions per row that the group reads. */
START_TEST(scratch_goes_with_the_rows_that_are_looked_at)
{
        enum { FEW_K = 10 };
        const size_t lists = SIZE * dci_topk_bytes(FEW_K) + (16 << 10); /* O(k), and what does not grow */
        dci_index *index = new_index(DCI_KIND_MDCI, 0, 0);
        const dci_tree_stats tree = mdci_stats(index);
        const dci_search_params params = effort_of(0.01, 1.0, 0, 0.0);
        size_t n_nodes = 0;
        for (size_t l = 0; l < tree.n_levels; l++)
                n_nodes += tree.n_nodes[l];
        for (int32_t result = DCI_GROUP_EACH; result <= DCI_GROUP_UNION; result++) {
                dci_search_stats stats;
                pdci_found found = room(SIZE, FEW_K);
                const size_t before = atomic_load(&memory.live_bytes);
                atomic_store(&memory.most, 0);
                ask(index, 1, queries, result, params, &found, &stats);
                const size_t looked_at = (size_t)stats.candidates / SIZE, taken = atomic_load(&memory.most) - before;
                const size_t each = result == DCI_GROUP_UNION ? 12 * SIZE + 17 : 0;
                ck_assert_uint_lt(looked_at, N / 4);
                ck_assert_msg(taken < 60 * n_nodes + 4 * (size_t)N + each * looked_at + lists,
                              "%zu bytes for %zu nodes and %zu rows", taken, n_nodes, looked_at);
                pdci_found_free(&found);
        }
        dci_index_destroy(index);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("group");
        TCase *laws = test_case_with(suite, "laws", 60, setup, teardown);
        tcase_add_loop_test(laws, a_union_is_the_lists_of_its_k_interleaved_at_any_effort, 0, 9);
        tcase_add_loop_test(laws, the_progress_of_a_union_ends_once, 0, 3);
        tcase_add_test(laws, scratch_goes_with_the_rows_that_are_looked_at);
        return test_main(suite);
}
