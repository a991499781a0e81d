/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind MDCI: an allocation that fails leaves the index as it was, whole and in working order, and no byte behind. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/mdci_fixture.h"

enum { DIM = 8, MANY = 700, ASKED = 8, K = 5 };

/* One index, and what it held and answered before the step under way. Steps that fail for memory are tried again:
 * there is one failure only. */
typedef struct life {
        dci_index *index;
        const float *rows, *queries;
        mdci_copy pages;
        pdci_found answers;
        size_t failures;
} life;

typedef struct shape {
        dci_metric metric;
        int32_t storage;
        size_t top_nodes, simple, n_rows;
        const float *rows, *queries;
} shape;

/* Searches of all kinds into `out`; false: an allocation failed. */
static bool ask(life *l, pdci_found *out)
{
        const dci_search_params some = mdci_effort(0.3);
        const dci_status status = dci_index_search(l->index, ASKED, l->queries, DIM, K, &some, out->ids, out->scores);
        ck_assert_msg(status == DCI_OK || status == DCI_ERR_MEMORY, "%s", dci_last_error());
        l->failures += status != DCI_OK;
        if (status != DCI_OK)
                test_memory_recovers();
        return status == DCI_OK;
}

/* Takes down what there is, after a step that succeeded. */
static void remember(life *l)
{
        mdci_copy_free(&l->pages);
        mdci_copy_follow(&l->pages, l->index);
        while (!ask(l, &l->answers))
                continue;
}

/* True if the call failed for memory; then nothing has changed. */
static bool again(life *l, dci_status status)
{
        ck_assert_msg(status == DCI_OK || status == DCI_ERR_MEMORY, "%s: %s", dci_status_name(status),
                      dci_last_error());
        if (status == DCI_OK)
                return false;
        test_memory_recovers();
        l->failures++;
        if (l->index == NULL)
                return true;
        mdci_copy now = {0};
        pdci_found found = {ASKED, K, malloc(ASKED * K * sizeof(int64_t)), malloc(ASKED * K * sizeof(float))};
        tree_check(l->index);
        mdci_copy_follow(&now, l->index);
        ck_assert_msg(now.version == l->pages.version, "a call that failed made a new version");
        mdci_copy_check(&l->pages, l->index);
        ck_assert(ask(l, &found));
        ck_assert_msg(pdci_same(&l->answers, &found), "a call that failed changed what is found");
        mdci_copy_free(&now);
        pdci_found_free(&found);
        return true;
}

/* An index of the first rows. */
static void *born(dci_context *context, const void *arg)
{
        const shape *s = arg;
        life *l = calloc(1, sizeof *l);
        dci_index_config config = mdci_config(DIM, s->metric, s->storage == DCI_ROWS_BORROWED ? DCI_F32 : DCI_BF16);
        config.storage = s->storage;
        config.top_nodes = s->top_nodes;
        config.cell_simp_indices = s->simple;
        config.promotion_prob = 0.1;
        config.page_rows = 4;
        l->rows = s->rows;
        l->queries = s->queries;
        l->answers = (pdci_found){ASKED, K, malloc(ASKED * K * sizeof(int64_t)), malloc(ASKED * K * sizeof(float))};
        l->index = pdci_index(context, &config, s->n_rows, s->rows, NULL);
        remember(l);
        return l;
}

static size_t buried(life *l)
{
        const size_t failures = l->failures;
        tree_check(l->index);
        dci_index_destroy(l->index);
        mdci_copy_free(&l->pages);
        pdci_found_free(&l->answers);
        free(l);
        return failures;
}

/* Rows [first, first + n) under the ids of their places. */
static void add(life *l, size_t first, size_t n)
{
        int64_t ids[MANY];
        for (size_t i = 0; i < n; i++)
                ids[i] = (int64_t)(first + i);
        while (again(l, dci_index_add(l->index, n, l->rows + first * DIM, DIM, ids, NULL)))
                continue;
        remember(l);
}

static void drop(life *l, size_t n, const int64_t *ids)
{
        while (again(l, dci_index_remove(l->index, n, ids)))
                continue;
        remember(l);
}

/* --- changes ------------------------------------------------------------------------------------------------------------------- */

static size_t create_another(void *prepared)
{
        life *l = prepared;
        dci_index *other = NULL;
        while (again(l, dci_index_create(l->index->context, &l->index->config, &other)))
                ck_assert_ptr_null(other);
        dci_index_destroy(other);
        return buried(l);
}

static size_t add_many(void *prepared)
{
        life *l = prepared;
        add(l, 20, 100);
        return buried(l);
}

/* Pages, single rows, and for each level of promotion a row that comes and goes. */
static size_t insert_and_remove(void *prepared)
{
        life *l = prepared;
        const int64_t few[] = {1, 50, 3};
        add(l, 120, 16);
        drop(l, 3, few);
        for (size_t promotions = 0; promotions < 3; promotions++) {
                const int64_t id = mdci_id_of(l->index, promotions, 200);
                ck_assert_int_lt(id, MANY);
                add(l, (size_t)id, 1);
                drop(l, 1, &id);
        }
        while (again(l, dci_index_reserve(l->index, 1000)))
                continue;
        return buried(l);
}

/* Rows of eight times the length raise c. */
static size_t insert_longer_rows(void *prepared)
{
        life *l = prepared;
        float longer[4 * DIM];
        const int64_t ids[] = {900, 901, 902, 903};
        for (size_t i = 0; i < 4 * DIM; i++)
                longer[i] = 8 * l->rows[i];
        while (again(l, dci_index_add(l->index, 4, longer, DIM, ids, NULL)))
                continue;
        remember(l);
        drop(l, 4, ids); /* before `longer` goes, which the index may have borrowed */
        return buried(l);
}

/* The top grows beyond twice top_nodes, page by page; then its nodes go. A call succeeds, too, if there is no memory
 * for another level: the next one makes it. */
static size_t add_a_level(void *prepared)
{
        life *l = prepared;
        const size_t before = l->index->tree->n_levels;
        for (size_t first = 60; l->index->tree->n_levels == before; first += 12) {
                ck_assert_uint_le(first + 12, MANY);
                add(l, first, 12);
        }
        ck_assert_uint_eq(l->index->tree->n_levels, before + 1);
        while (l->index->tree->n_levels > before) {
                const int64_t id = l->index->tree->levels[before].ids[0];
                drop(l, 1, &id);
        }
        return buried(l);
}

/* A tenth at a time until more than half of the pages are free; then a half at once; then all. */
static size_t remove_until_it_is_built_anew(void *prepared)
{
        life *l = prepared;
        const size_t n = dci_index_count(l->index), rebuilds = l->index->tree->n_builds;
        int64_t *ids = pdci_shuffled(n, 6);
        size_t done = 0;
        for (; l->index->tree->n_builds == rebuilds; done += n / 10) {
                ck_assert_uint_lt(done, n * 8 / 10);
                drop(l, n / 10, ids + done);
        }
        drop(l, (n - done) / 2, ids + done);
        done += (n - done) / 2;
        drop(l, n - done, ids + done);
        ck_assert_uint_eq(dci_index_count(l->index), 0);
        free(ids);
        return buried(l);
}

/* --- questions ----------------------------------------------------------------------------------------------------------------- */

static size_t search_in_every_way(void *prepared)
{
        life *l = prepared;
        dci_search_params efforts[3] = {mdci_effort(0.2), mdci_effort(1.0), mdci_effort(0.5)};
        dci_filter filter;
        dci_range_result result;
        const size_t n_admitted = dci_index_count(l->index) - 50;
        int64_t ids[MANY], got[ASKED * K];
        float scores[ASKED * K];
        efforts[0].prop_to_retrieve = 0.5;
        for (size_t i = 0; i < MANY; i++)
                ids[i] = (int64_t)i;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        filter.kind = DCI_FILTER_IDS;
        filter.ids = ids;
        filter.n = n_admitted;
        for (size_t e = 0; e < COUNT(efforts); e++) {
                dci_search_params params = efforts[e];
                for (int filtered = 0; filtered < 2; filtered++) {
                        params.filter = filtered ? &filter : NULL;
                        while (again(l, dci_index_search(l->index, ASKED, l->queries, DIM, K, &params, got, scores)))
                                continue;
                        while (again(l, dci_index_search_group(l->index, ASKED / 4, 4, l->queries, DIM, K,
                                                               DCI_GROUP_UNION, &params, got, scores)))
                                continue;
                        ck_assert(got[0] >= 0 && (!filtered || got[0] < (int64_t)n_admitted));
                        ck_ok(dci_range_result_init(&result, sizeof result));
                        while (again(l, dci_index_range_search(l->index, ASKED, l->queries, DIM,
                                                               pdci_any_radius(l->index->config.metric), &params,
                                                               &result)))
                                ck_assert_ptr_null(result.memory);
                        ck_assert_uint_gt(result.offsets[ASKED], ASKED);
                        dci_range_result_free(&result);
                }
        }
        return buried(l);
}

static size_t ask_for_the_shape(void *prepared)
{
        life *l = prepared;
        dci_tree_stats stats;
        dci_page pages[MANY];
        dci_memory_report report;
        int64_t ids[4];
        int32_t changed[MANY];
        size_t n;
        uint64_t version;
        ck_ok(dci_tree_stats_init(&stats, sizeof stats));
        ck_ok(dci_memory_report_init(&report, sizeof report));
        while (again(l, dci_index_tree_stats(l->index, &stats)))
                continue;
        ck_assert_uint_eq(stats.n_rows, dci_index_count(l->index));
        while (again(l, dci_index_pages(l->index, MANY, pages, &n)))
                continue;
        ck_assert_uint_eq(n, stats.n_pages);
        while (again(l, dci_index_page_ids(l->index, 0, ids, &n)))
                continue;
        while (again(l, dci_index_changes(l->index, 0, MANY, changed, &n, &version)))
                continue;
        while (again(l, dci_index_ids(l->index, 4, ids, &n))) /* too little room: sorted aside */
                continue;
        ck_assert(n == stats.n_rows && ids[3] == 3);
        while (again(l, dci_index_memory(l->index, &report)))
                continue;
        return buried(l);
}

/* --- ladders ------------------------------------------------------------------------------------------------------------------- */

static const struct {
        size_t (*life)(void *prepared);
        size_t n_rows, least; /* rungs, or it tests nothing */
} lives[] = {{create_another, 5, 3},         {add_many, 20, 20},         {insert_and_remove, 120, 100},
             {insert_longer_rows, 100, 30},  {add_a_level, 60, 50},      {remove_until_it_is_built_anew, 280, 100},
             {search_in_every_way, 300, 50}, {ask_for_the_shape, 200, 2}};

/* Loops over lives and metrics; IP borrows its rows, COSINE ranks by simple indices. */
static void climb(int which, test_ladder ladder)
{
        float *rows = test_normal(MANY, DIM, 1), *queries = test_normal(ASKED, DIM, 2);
        shape s = {.metric = all_metrics[which % 3],
                   .top_nodes = 8,
                   .n_rows = lives[which / 3].n_rows,
                   .rows = rows,
                   .queries = queries};
        s.storage = s.metric == DCI_METRIC_IP ? DCI_ROWS_BORROWED : DCI_ROWS_OWNED;
        s.simple = s.metric == DCI_METRIC_COSINE ? 3 : 0;
        const size_t rungs = ladder(1, born, lives[which / 3].life, &s);
        ck_assert_msg(rungs >= lives[which / 3].least / (test_short() ? 2 : 1), "%zu rungs", rungs);
        test_free(rows, queries);
}

TEST_LADDERS(climb)

int main(void)
{
        Suite *suite = suite_create("mdci faults");
        TCase *memory = test_case(suite, "memory", 300);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 0, 3 * COUNT(lives));
        tcase_add_loop_test(memory, memory_may_be_short_from_any_allocation_on, 0, 3 * COUNT(lives));
        return test_main(suite);
}
