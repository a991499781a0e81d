/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind MDCI: pages, the log of their changes, the shape of the tree, and what can be asked of any index after edits. */
#include "tests/common.h"

#include <string.h>

#include "tests/mdci_fixture.h"

enum { N = 2400, DIM = TRACE_DIM };

static dci_context *context;
static float *keys;

static void setup(void)
{
        context = test_context(1);
        keys = pdci_trace("keys", N);
}

static void teardown(void)
{
        dci_context_destroy(context);
        free(keys);
}

/* --- pages --------------------------------------------------------------------------------------------------------------------- */

/* Fails unless pages, cells and stats tell the same. */
static void check_pages(const dci_index *index)
{
        const dci_tree_stats stats = mdci_stats(index);
        size_t n, n_rows, sum = 0, empty = stats.n_nodes[0], in_cell = 0, largest = 0;
        dci_page *pages = malloc((stats.n_pages + 1) * sizeof *pages);
        uint8_t *seen = calloc(stats.n_pages + 1, 1);
        int64_t ids[256];
        ck_ok(dci_index_pages(index, stats.n_pages, pages, &n));
        ck_assert_uint_eq(n, stats.n_pages - stats.free_pages);
        for (size_t i = 0; i < n; i++) {
                const dci_page *page = &pages[i];
                ck_assert(page->page >= 0 && (size_t)page->page < stats.n_pages && seen[page->page]++ == 0);
                ck_assert(page->cell >= 0 && (size_t)page->cell < stats.n_nodes[0] && page->reserved == 0);
                ck_assert(page->n_rows >= 1 && page->n_rows <= stats.page_rows);
                ck_assert(page->version >= 1 && page->version <= stats.version);
                ck_ok(dci_index_page_ids(index, page->page, ids, &n_rows));
                ck_assert_uint_eq(n_rows, page->n_rows);
                const bool same_cell = i > 0 && pages[i - 1].cell == page->cell;
                ck_assert(i == 0 || pages[i - 1].cell <= page->cell); /* cell by cell */
                ck_assert(!same_cell || pages[i - 1].n_rows == stats.page_rows);
                empty -= !same_cell;
                in_cell = (same_cell ? in_cell : 0) + page->n_rows;
                largest = in_cell > largest ? in_cell : largest;
                sum += page->n_rows;
        }
        ck_assert(sum == stats.n_rows && sum == dci_index_count(index));
        ck_assert(empty == stats.empty_cells && largest == stats.largest_cell);
        ck_assert(stats.median_cell <= stats.p99_cell && stats.p99_cell <= stats.largest_cell);
        if (n > 0)
                ck_assert_double_eq_tol(stats.page_fill, (double)sum / (double)(n * stats.page_rows), 1e-12);
        test_free(pages, seen);
}

/* All pages, as one array by number. */
static mdci_copy all_pages(const dci_index *index)
{
        mdci_copy copy = {0};
        mdci_copy_follow(&copy, index);
        return copy;
}

/* Pages of 16 unpromoted rows, as a cache adds them: a page that the log does not name is as it was, those it names
 * are few, and every number stays with the rows that it had. */
START_TEST(pages_of_new_rows_change_only_the_pages_in_the_log)
{
        enum { PAGE = 16, BEGIN = N / 2 };
        const dci_index_config config = mdci_config(DIM, DCI_METRIC_IP, DCI_F16);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        int64_t gone[N - BEGIN], next = N;
        for (size_t i = 0; i < COUNT(gone); i++)
                gone[i] = (int64_t)(BEGIN + i);
        for (size_t i = 0; i < COUNT(gone); i += 300)
                ck_ok(dci_index_remove(index, 300, gone + i));
        const uint64_t rebuilds = mdci_stats(index).rebuilds;
        for (size_t at = BEGIN; at + PAGE <= N; at += PAGE) {
                mdci_copy before = all_pages(index);
                int64_t ids[PAGE];
                int32_t changed[2 * PAGE];
                size_t n;
                uint64_t version;
                for (size_t i = 0; i < PAGE; i++)
                        ids[i] = next = mdci_id_of(index, 0, next + 1);
                ck_ok(dci_index_add(index, PAGE, keys + at * DIM, DIM, ids, NULL));
                ck_ok(dci_index_changes(index, before.version, 2 * PAGE, changed, &n, &version));
                ck_assert(n >= 1 && n <= PAGE && version == before.version + 1);
                mdci_copy after = all_pages(index);
                for (size_t page = 0, c = 0; page < before.n_pages; page++) {
                        c += c < n && (size_t)changed[c] < page;
                        const bool named = c < n && (size_t)changed[c] == page;
                        for (size_t r = 0; r < PAGE; r++) { /* rows that were there stay where they are */
                                const int64_t old = before.ids[page * PAGE + r], now = after.ids[page * PAGE + r];
                                ck_assert_msg(old == now || (named && old == -1), "page %zu was changed", page);
                        }
                }
                mdci_copy_free(&before);
                mdci_copy_free(&after);
        }
        ck_assert_uint_eq(mdci_stats(index).rebuilds, rebuilds);
        check_pages(index);
        tree_check(index);
        dci_index_destroy(index);
}
END_TEST

/* Loops over metrics. Adds, removes, updates, promoted rows and rebuilds; the copy asks at odd times. */
START_TEST(the_log_of_changes_keeps_a_copy_up_to_date)
{
        dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_BF16);
        config.page_rows = 8;
        config.promotion_prob = 0.1;
        config.top_nodes = 16;
        dci_index *index = pdci_index(context, &config, 60, keys, NULL);
        mdci_copy copy = {0};
        size_t n_ids = 60, read = 0, rebuilds = 0;
        int64_t ids[N];
        dci_rng rng;
        dci_rng_seed(&rng, 5);
        for (size_t step = 0; step < 300; step++) {
                const size_t n = 1 + (size_t)dci_rng_below(&rng, step % 50 == 49 ? 200 : 12);
                if (dci_rng_below(&rng, 5) < 3 && n_ids + n < N) {
                        ck_ok(dci_index_add(index, n, keys + n_ids * DIM, DIM, NULL, NULL));
                } else if (n <= n_ids) {
                        size_t first = (size_t)dci_rng_below(&rng, n_ids - n + 1);
                        ck_ok(dci_index_remove(index, n, ids + first));
                }
                ck_ok(dci_index_ids(index, N, ids, &n_ids));
                if (step % 7 != 0)
                        continue;
                read += mdci_copy_follow(&copy, index);
                mdci_copy_check(&copy, index);
                check_pages(index);
                rebuilds = mdci_stats(index).rebuilds;
        }
        ck_assert(rebuilds > 2 && read > 200);
        mdci_copy_follow(&copy, index);
        ck_assert_uint_eq(mdci_copy_follow(&copy, index), 0); /* nothing happened since */
        mdci_copy_free(&copy);
        dci_index_destroy(index);
}
END_TEST

START_TEST(a_remove_changes_only_the_pages_of_the_cells_it_took_from)
{
        const dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F16);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        for (size_t i = 0; i < 40; i++) {
                const int64_t id = mdci_id_of(index, 0, (int64_t)(i * 50));
                int32_t changed[4];
                size_t n;
                uint64_t version;
                ck_ok(dci_index_changes(index, 0, 0, NULL, &n, &version));
                ck_ok(dci_index_remove(index, 1, &id));
                ck_ok(dci_index_changes(index, version, 4, changed, &n, &version));
                ck_assert(n == 1 || n == 2); /* the gap, and where the cell's last row came from */
        }
        check_pages(index);
        tree_check(index);
        dci_index_destroy(index);
}
END_TEST

START_TEST(every_change_makes_a_new_version_and_nothing_else_does)
{
        const dci_index_config config = mdci_config(DIM, DCI_METRIC_COSINE, DCI_F32);
        dci_index *index = pdci_index(context, &config, 200, keys, NULL);
        const int64_t few[] = {3, 4}, unknown = 999;
        size_t n;
        uint64_t last = mdci_stats(index).version, now;
        ck_assert_uint_ge(last, 1);
        for (int turn = 0; turn < 5; turn++) {
                ck_ok(dci_index_add(index, turn == 4 ? 150 : 3, keys + 300 * DIM, DIM, NULL, NULL));
                now = mdci_stats(index).version;
                ck_assert_uint_gt(now, last);
                last = now;
        }
        ck_ok(dci_index_remove(index, 2, few));
        now = mdci_stats(index).version;
        ck_assert_uint_gt(now, last);
        ck_ok(dci_index_add(index, 0, NULL, 0, NULL, NULL));
        ck_ok(dci_index_remove(index, 0, NULL));
        ck_ok(dci_index_reserve(index, 5000));
        ck_refused(dci_index_remove(index, 1, &unknown), DCI_ERR_NOT_FOUND, "id 999");
        ck_assert_uint_eq(mdci_stats(index).version, now);
        ck_ok(dci_index_changes(index, now, 0, NULL, &n, &last));
        ck_assert(n == 0 && last == now);
        ck_ok(dci_index_changes(index, now + 5, 0, NULL, &n, &last)); /* a version that is to come */
        ck_assert(n == 0 && last == now);
        dci_index_destroy(index);
}
END_TEST

START_TEST(a_small_capacity_gets_the_first_and_the_number_of_all)
{
        const dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = pdci_index(context, &config, 500, keys, NULL);
        size_t n, all;
        uint64_t version;
        dci_page pages[3] = {{.page = 77}, {.page = 77}, {.page = 77}}, every[500];
        int32_t changed[3] = {77, 77, 77}, every_changed[500];
        ck_ok(dci_index_pages(index, 500, every, &all));
        ck_ok(dci_index_pages(index, 2, pages, &n));
        ck_assert(n == all && n > 3 && memcmp(pages, every, 2 * sizeof *pages) == 0 && pages[2].page == 77);
        ck_ok(dci_index_changes(index, 0, 500, every_changed, &all, &version));
        ck_ok(dci_index_changes(index, 0, 2, changed, &n, &version));
        ck_assert(n == all && changed[0] == 0 && changed[1] == 1 && changed[2] == 77);
        for (size_t i = 0; i < all; i++)
                ck_assert_int_eq(every_changed[i], (int)i);
        dci_index_destroy(index);
}
END_TEST

START_TEST(pages_are_refused_where_there_are_none_and_bad_arguments_everywhere)
{
        dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = pdci_index(context, &config, 50, keys, NULL);
        dci_page pages[1];
        int32_t changed[1];
        int64_t ids[256];
        size_t n;
        uint64_t version;
        dci_tree_stats stats;
        ck_ok(dci_tree_stats_init(&stats, sizeof stats));
        for (config.kind = DCI_KIND_FLAT; config.kind <= DCI_KIND_PDCI; config.kind++) {
                dci_index *other = pdci_index(context, &config, 50, keys, NULL);
                ck_refused(dci_index_pages(other, 1, pages, &n), DCI_ERR_UNSUPPORTED, "only indexes of kind MDCI");
                ck_refused(dci_index_page_ids(other, 0, ids, &n), DCI_ERR_UNSUPPORTED, "only indexes of kind MDCI");
                ck_refused(dci_index_changes(other, 0, 1, changed, &n, &version), DCI_ERR_UNSUPPORTED, "of kind MDCI");
                ck_refused(dci_index_tree_stats(other, &stats), DCI_ERR_UNSUPPORTED, "only indexes of kind MDCI");
                dci_index_destroy(other);
        }
        const int32_t beyond = (int32_t)mdci_stats(index).n_pages;
        ck_refused(dci_index_page_ids(index, -1, ids, &n), DCI_ERR_NOT_FOUND, "page -1 is not among");
        ck_refused(dci_index_page_ids(index, beyond, ids, &n), DCI_ERR_NOT_FOUND, "is not among the");
        ck_refused(dci_index_page_ids(index, INT32_MAX, ids, &n), DCI_ERR_NOT_FOUND, "page 2147483647");
        ck_refused(dci_index_page_ids(index, 0, NULL, &n), DCI_ERR_INVALID, "out_ids is NULL");
        ck_refused(dci_index_page_ids(index, 0, ids, NULL), DCI_ERR_INVALID, "out_count is NULL");
        ck_refused(dci_index_pages(index, 1, NULL, &n), DCI_ERR_INVALID, "out_pages is NULL");
        ck_refused(dci_index_pages(index, 0, NULL, NULL), DCI_ERR_INVALID, "out_count is NULL");
        ck_refused(dci_index_pages(NULL, 0, NULL, &n), DCI_ERR_INVALID, "index is NULL");
        ck_refused(dci_index_changes(index, 0, 1, NULL, &n, &version), DCI_ERR_INVALID, "out_pages is NULL");
        ck_refused(dci_index_changes(index, 0, 1, changed, NULL, &version), DCI_ERR_INVALID, "out_count is NULL");
        ck_refused(dci_index_changes(index, 0, 1, changed, &n, NULL), DCI_ERR_INVALID, "out_version is NULL");
        ck_refused(dci_index_tree_stats(index, NULL), DCI_ERR_INVALID, "out_stats is NULL");
        ck_refused(dci_tree_stats_init(&stats, 3), DCI_ERR_INVALID, "size 3");
        stats.struct_size = 5;
        ck_refused(dci_index_tree_stats(index, &stats), DCI_ERR_INVALID, "struct_size 5");
        dci_index_destroy(index);
}
END_TEST

/* --- what any index answers ------------------------------------------------------------------------------------------------------ */

/* Loops over formats. */
START_TEST(ids_counts_and_rows_follow_every_edit)
{
        const dci_dtype dtype = all_dtypes[_i];
        const size_t bytes = DIM * dci_dtype_size(dtype);
        dci_index_config config = mdci_config(DIM, all_metrics[_i], dtype);
        config.promotion_prob = 0.1;
        unsigned char *stored = malloc(N * bytes), *got = malloc(N * bytes);
        dci_kernels_scalar.narrow[dtype - 1](keys, N * DIM, stored);
        dci_index *index = pdci_index(context, &config, 1000, keys, NULL);
        int64_t *order = pdci_shuffled(1000, 3), ids[1000], few[5];
        for (size_t done = 0, n = 1; done + n < 1000; done += n, n = n * 2) {
                ck_ok(dci_index_remove(index, n, order + done));
                size_t count, at = 0;
                ck_ok(dci_index_ids(index, 1000, ids, &count));
                ck_assert_uint_eq(count, 1000 - done - n);
                ck_assert_uint_eq(dci_index_count(index), count);
                for (int64_t id = 0; id < 1000; id++) {
                        bool gone = false;
                        for (size_t i = 0; i < done + n; i++)
                                gone = gone || order[i] == id;
                        if (!gone)
                                ck_assert_int_eq(ids[at++], id);
                }
                ck_ok(dci_index_ids(index, 5, few, &count));
                ck_assert(count == 1000 - done - n && memcmp(few, ids, sizeof few) == 0);
                ck_ok(dci_index_reconstruct(index, count, ids, got, DIM));
                for (size_t i = 0; i < count; i++)
                        ck_assert_int_eq(memcmp(got + i * bytes, stored + (size_t)ids[i] * bytes, bytes), 0);
                ck_refused(dci_index_reconstruct(index, 1, order + done, got, DIM), DCI_ERR_NOT_FOUND, "(number 0)");
        }
        test_free(stored, got, order);
        dci_index_destroy(index);
}
END_TEST

START_TEST(an_update_replaces_the_row_under_its_id)
{
        dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        config.promotion_prob = 0.2;
        dci_index *index = pdci_index(context, &config, 600, keys, NULL);
        float row[DIM];
        for (int64_t id = 0; id < 600; id += 5) {
                const float *other = keys + (size_t)(id + 900) * DIM;
                int64_t found;
                ck_ok(dci_index_remove(index, 1, &id));
                ck_ok(dci_index_add(index, 1, other, DIM, &id, NULL));
                ck_ok(dci_index_reconstruct(index, 1, &id, row, DIM));
                ck_assert_int_eq(memcmp(row, other, sizeof row), 0);
                ck_ok(dci_index_search(index, 1, other, DIM, 1, NULL, &found, NULL));
                ck_assert_int_eq(found, id);
        }
        tree_check(index);
        dci_index *fresh = pdci_index(context, &config, 0, NULL, NULL);
        for (int64_t id = 0; id < 600; id++)
                ck_ok(dci_index_add(fresh, 1, keys + (size_t)(id % 5 == 0 ? id + 900 : id) * DIM, DIM, &id, NULL));
        mdci_same_nodes(fresh, index, "updates");
        mdci_same_at(fresh, index, 20, keys, 10, 1.0, "updates");
        dci_index_destroy(index);
        dci_index_destroy(fresh);
}
END_TEST

START_TEST(reserved_memory_is_used_by_what_comes)
{
        const dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = pdci_index(context, &config, N / 2, keys, NULL);
        ck_ok(dci_index_reserve(index, N));
        const dci_memory_report reserved = mdci_memory(index);
        ck_assert_uint_ge(reserved.rows, N * DIM * sizeof(float));
        for (size_t i = N / 2; i < N; i += 16)
                ck_ok(dci_index_add(index, 16, keys + i * DIM, DIM, NULL, NULL));
        ck_assert_uint_eq(mdci_memory(index).rows, reserved.rows);
        ck_refused(dci_index_reserve(index, DCI_MAX_ROWS + 1), DCI_ERR_LIMIT, "at most");
        ck_ok(dci_index_reserve(index, 1)); /* never shrinks */
        ck_assert_uint_eq(mdci_memory(index).rows, reserved.rows);
        tree_check(index);
        dci_index_destroy(index);
}
END_TEST

/* Loops over metrics. Batches of any size, the last of longer rows: under IP each builds the tree again, as the first one does. */
START_TEST(what_a_reserve_took_stays_until_something_is_removed)
{
        static const size_t batches[] = {1, 500, 100, 3, 200, 900, 16, 680};
        const dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F16);
        dci_index *index = pdci_index(context, &config, 0, NULL, NULL);
        ck_ok(dci_index_reserve(index, N));
        const size_t reserved = mdci_memory(index).rows;
        size_t n = 0;
        for (size_t i = 0; i < COUNT(batches); n += batches[i++]) {
                for (size_t p = n * DIM; p < (n + batches[i]) * DIM; p++)
                        keys[p] *= (float)(i + 1);
                ck_ok(dci_index_add(index, batches[i], keys + n * DIM, DIM, NULL, NULL));
                ck_assert_uint_eq(mdci_memory(index).rows, reserved);
        }
        ck_assert_uint_eq(n, N);
        ck_assert_uint_ge(mdci_stats(index).rebuilds, all_metrics[_i] == DCI_METRIC_IP ? 5 : 2);
        tree_check(index);
        int64_t ids[N / 2];
        for (size_t i = 0; i < COUNT(ids); i++)
                ids[i] = (int64_t)i;
        ck_ok(dci_index_remove(index, COUNT(ids), ids));
        ck_assert_uint_lt(mdci_memory(index).rows, reserved);
        dci_index_destroy(index);
}
END_TEST

/* Loops over metrics: the report is what the allocator has handed out, but for what the context itself holds. */
START_TEST(the_memory_report_is_what_was_allocated)
{
        dci_index_config config = mdci_config(DIM, all_metrics[_i], DCI_F16);
        test_memory memory;
        dci_context *counting = test_context_with(&memory, 1);
        const size_t of_context = atomic_load(&memory.live_bytes);
        config.promotion_prob = 0.1;
        config.top_nodes = 16;
        config.cell_simp_indices = _i == 1 ? 3 : 0;
        dci_index *index = pdci_index(counting, &config, N / 2, keys, NULL);
        for (size_t i = N / 2, turn = 0; i < N; i += 16, turn++) {
                const dci_memory_report report = mdci_memory(index);
                ck_assert_uint_eq(report.total,
                                  report.rows + report.ids + report.norms + report.projections + report.other);
                ck_assert_uint_eq(report.total, atomic_load(&memory.live_bytes) - of_context);
                ck_assert((report.norms > 0) == (all_metrics[_i] != DCI_METRIC_L2));
                ck_assert((report.projections > 0) == (config.cell_simp_indices > 0));
                ck_ok(dci_index_add(index, 16, keys + i * DIM, DIM, NULL, NULL));
                const int64_t gone[] = {(int64_t)turn * 3, (int64_t)turn * 3 + 1};
                ck_ok(dci_index_remove(index, 2, gone));
        }
        dci_index_destroy(index);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), of_context);
        dci_context_destroy(counting);
}
END_TEST

START_TEST(memory_is_given_back_when_most_rows_have_gone)
{
        dci_index_config config = mdci_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        const size_t full = mdci_memory(index).rows;
        int64_t *order = pdci_shuffled(N, 8);
        for (size_t i = 0; i < N - 200; i += 10)
                ck_ok(dci_index_remove(index, 10, order + i));
        tree_check(index);
        ck_assert_uint_le(mdci_memory(index).rows, full / 3);
        const dci_tree_stats stats = mdci_stats(index);
        ck_assert_uint_le(stats.free_pages, stats.n_pages / 2 + 64);
        free(order);
        dci_index_destroy(index);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("mdci pages");
        TCase *pages = test_case_with(suite, "pages", 60, setup, teardown);
        TCase *edits = test_case_with(suite, "edits", 60, setup, teardown);
        tcase_add_test(pages, pages_of_new_rows_change_only_the_pages_in_the_log);
        tcase_add_loop_test(pages, the_log_of_changes_keeps_a_copy_up_to_date, 0, 3);
        tcase_add_test(pages, a_remove_changes_only_the_pages_of_the_cells_it_took_from);
        tcase_add_test(pages, every_change_makes_a_new_version_and_nothing_else_does);
        tcase_add_test(pages, a_small_capacity_gets_the_first_and_the_number_of_all);
        tcase_add_test(pages, pages_are_refused_where_there_are_none_and_bad_arguments_everywhere);
        tcase_add_loop_test(edits, ids_counts_and_rows_follow_every_edit, 0, 3);
        tcase_add_test(edits, an_update_replaces_the_row_under_its_id);
        tcase_add_test(edits, reserved_memory_is_used_by_what_comes);
        tcase_add_loop_test(edits, what_a_reserve_took_stays_until_something_is_removed, 0, 3);
        tcase_add_loop_test(edits, the_memory_report_is_what_was_allocated, 0, 3);
        tcase_add_test(edits, memory_is_given_back_when_most_rows_have_gone);
        return test_main(suite);
}
