/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/mdci_fixture.h"

#include <string.h>

dci_index_config mdci_config(size_t dim, dci_metric metric, dci_dtype dtype)
{
        dci_index_config config = pdci_config(dim, metric, dtype);
        config.kind = DCI_KIND_MDCI;
        return config;
}

dci_search_params mdci_effort(double share)
{
        dci_search_params params = pdci_effort(0, 0);
        params.prop_to_visit = share;
        return params;
}

dci_index *mdci_flat_of(const dci_index *index)
{
        dci_index_config config = index->config;
        const size_t n = dci_index_count(index);
        size_t count;
        void *rows = malloc(n * config.dim * sizeof(float) + 1);
        int64_t *ids = calloc(n + 1, sizeof *ids);
        dci_index *flat = NULL;
        config.kind = DCI_KIND_FLAT;
        config.storage = DCI_ROWS_OWNED;
        config.add_dtype = config.dtype;
        ck_ok(dci_index_create(index->context, &config, &flat));
        ck_ok(dci_index_ids(index, n, n > 0 ? ids : NULL, &count));
        test_hold(count == n);
        ck_ok(dci_index_reconstruct(index, n, ids, rows, config.dim));
        ck_ok(dci_index_add(flat, n, rows, config.dim, ids, NULL));
        test_free(rows, ids);
        return flat;
}

double mdci_share_found(const pdci_found *want, const pdci_found *got)
{
        const size_t k = want->k;
        size_t n = 0;
        test_hold(want->n_queries == got->n_queries && k == got->k);
        for (size_t q = 0; q < want->n_queries; q++)
                for (size_t i = 0; i < k; i++)
                        for (size_t j = 0; j < k; j++)
                                n += got->ids[q * k + i] == want->ids[q * k + j];
        return (double)n / (double)(want->n_queries * k);
}

double mdci_recall(const dci_index *index, size_t n_queries, const float *queries, size_t k, double share)
{
        const dci_search_params all = mdci_effort(1.0), some = mdci_effort(share);
        pdci_found want = pdci_search(index, n_queries, queries, k, &all);
        pdci_found got = pdci_search(index, n_queries, queries, k, &some);
        const double recall = mdci_share_found(&want, &got);
        pdci_found_free(&want);
        pdci_found_free(&got);
        return recall;
}

static int64_t *sorted_ids(const dci_level *level)
{
        int64_t *ids = malloc((level->n + 1) * sizeof *ids);
        ck_assert_ptr_nonnull(ids);
        memcpy(ids, level->ids, level->n * sizeof *ids);
        qsort(ids, level->n, sizeof *ids, test_int64s_ascend);
        return ids;
}

void mdci_same_nodes(const dci_index *a, const dci_index *b, const char *what)
{
        test_hold(a->tree->n_levels > 0 && b->tree->n_levels > 0);
        for (size_t l = 0; l < a->tree->n_levels && l < b->tree->n_levels; l++) {
                const dci_level *x = &a->tree->levels[l], *y = &b->tree->levels[l];
                ck_assert_msg(x->n == y->n, "%s: %zu and %zu nodes on level %zu", what, x->n, y->n, l);
                int64_t *ids = sorted_ids(x), *others = sorted_ids(y);
                ck_assert_msg(memcmp(ids, others, x->n * sizeof *ids) == 0, "%s: other nodes on level %zu", what, l);
                test_free(ids, others);
        }
}

void mdci_same_at(const dci_index *a, const dci_index *b, size_t n_queries, const float *queries, size_t k,
                  double share, const char *what)
{
        const double shares[] = {1.0, share};
        for (size_t i = 0; i < COUNT(shares); i++) {
                const dci_search_params params = mdci_effort(shares[i]);
                pdci_found x = pdci_search(a, n_queries, queries, k, &params);
                pdci_found y = pdci_search(b, n_queries, queries, k, &params);
                ck_assert_msg(pdci_same(&x, &y), "%s: other results with %g of the nodes", what, shares[i]);
                pdci_found_free(&x);
                pdci_found_free(&y);
        }
}

dci_tree_stats mdci_stats(const dci_index *index)
{
        dci_tree_stats stats;
        ck_ok(dci_tree_stats_init(&stats, sizeof stats));
        ck_ok(dci_index_tree_stats(index, &stats));
        return stats;
}

dci_memory_report mdci_memory(const dci_index *index)
{
        dci_memory_report report;
        ck_ok(dci_memory_report_init(&report, sizeof report));
        ck_ok(dci_index_memory(index, &report));
        return report;
}

int64_t mdci_id_of(const dci_index *index, size_t promotions, int64_t from)
{
        while (dci_tree_promotions(index->tree, from) != promotions)
                from++;
        return from;
}

static void make_room(mdci_copy *copy, size_t n_pages)
{
        if (n_pages <= copy->n_pages)
                return;
        copy->ids = realloc(copy->ids, n_pages * copy->page_rows * sizeof *copy->ids);
        ck_assert_ptr_nonnull(copy->ids);
        memset(copy->ids + copy->n_pages * copy->page_rows, -1,
               (n_pages - copy->n_pages) * copy->page_rows * sizeof *copy->ids);
        copy->n_pages = n_pages;
}

size_t mdci_copy_follow(mdci_copy *copy, const dci_index *index)
{
        size_t capacity = 0, n = 0, n_rows;
        uint64_t now;
        int32_t *pages = NULL;
        copy->page_rows = index->config.page_rows;
        do { /* a writer may have changed more meanwhile */
                capacity = 2 * n + 8;
                free(pages);
                pages = malloc(capacity * sizeof *pages);
                ck_assert_ptr_nonnull(pages);
                ck_ok(dci_index_changes(index, copy->version, capacity, pages, &n, &now));
        } while (n > capacity);
        for (size_t i = 0; i < n; i++) {
                make_room(copy, (size_t)pages[i] + 1);
                int64_t *ids = copy->ids + (size_t)pages[i] * copy->page_rows;
                memset(ids, -1, copy->page_rows * sizeof *ids);
                ck_ok(dci_index_page_ids(index, pages[i], ids, &n_rows));
        }
        copy->version = now;
        free(pages);
        return n;
}

void mdci_copy_check(const mdci_copy *copy, const dci_index *index)
{
        size_t n_pages, n_rows, sum = 0, held = 0;
        ck_ok(dci_index_pages(index, 0, NULL, &n_pages));
        dci_page *pages = malloc((n_pages + 1) * sizeof *pages);
        int64_t *ids = malloc(copy->page_rows * sizeof *ids);
        ck_ok(dci_index_pages(index, n_pages, pages, &n_pages));
        for (size_t i = 0; i < n_pages; i++) {
                test_hold((size_t)pages[i].page < copy->n_pages);
                ck_ok(dci_index_page_ids(index, pages[i].page, ids, &n_rows));
                test_hold(n_rows > 0 && n_rows == pages[i].n_rows);
                ck_assert_msg(memcmp(copy->ids + (size_t)pages[i].page * copy->page_rows, ids, n_rows * sizeof *ids) ==
                                      0,
                              "page %d is another one in the copy", (int)pages[i].page);
                sum += n_rows;
        }
        for (size_t i = 0; i < copy->n_pages * copy->page_rows; i++)
                held += copy->ids[i] >= 0;
        test_hold(sum == dci_index_count(index));
        test_hold(held == sum);
        test_free(pages, ids);
}

void mdci_copy_free(mdci_copy *copy)
{
        free(copy->ids);
        memset(copy, 0, sizeof *copy);
}
