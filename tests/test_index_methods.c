/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Removing what is there, clearing, which ids are there, filters turned, metadata. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/forms_fixture.h"
#include "tests/scratch.h"

/* --- remove_present, clear, contains, append -------------------------------------------------------------------------- */

START_TEST(ids_that_are_not_there_are_ignored_where_that_is_asked_for)
{
        for (size_t form = 0; form < COUNT(forms); form++) {
                const dci_index_config config = config_of(form, DCI_METRIC_COSINE);
                float *keys = pdci_trace("keys", 100);
                dci_index *index = pdci_index(context, &config, 100, keys, NULL);
                const int64_t ids[] = {7, 300, 7, -1, 99, INT64_MAX, INT64_MIN, 0}, kept = 50;
                uint8_t there[COUNT(ids)];
                size_t removed = 9;
                ck_ok(dci_index_contains(index, COUNT(ids), ids, there));
                ck_assert_mem_eq(there, ((const uint8_t[]){1, 0, 1, 0, 1, 0, 0, 1}), COUNT(ids));
                ck_ok(dci_index_remove_present(index, COUNT(ids), ids, &removed));
                ck_assert_uint_eq(removed, 3);
                ck_ok(dci_index_remove_present(index, COUNT(ids), ids, &removed));
                ck_assert_uint_eq(removed, 0);
                ck_ok(dci_index_remove_present(index, 1, &kept, NULL));
                ck_ok(dci_index_contains(index, COUNT(ids), ids, there));
                ck_assert_mem_eq(there, ((const uint8_t[COUNT(ids)]){0}), COUNT(ids));
                ck_assert_uint_eq(dci_index_count(index), 96);
                ck_ok(dci_index_remove_present(index, 0, NULL, &removed));
                ck_assert_uint_eq(removed, 0);
                ck_refused(dci_index_remove_present(index, 1, NULL, NULL), DCI_ERR_INVALID, "ids is NULL");
                ck_refused(dci_index_remove_present(NULL, 0, NULL, NULL), DCI_ERR_INVALID, "index is NULL");
                ck_refused(dci_index_contains(index, 1, NULL, there), DCI_ERR_INVALID, "ids is NULL");
                ck_refused(dci_index_contains(index, 1, ids, NULL), DCI_ERR_INVALID, "out_there is NULL");
                ck_ok(dci_index_contains(index, 0, NULL, NULL));
                check_index(index);
                dci_index_destroy(index);
                free(keys);
        }
}
END_TEST

START_TEST(a_cleared_index_is_as_small_as_a_new_one_and_goes_on_with_its_ids)
{
        for (size_t form = 0; form < COUNT(forms); form++) {
                for (int sparse = 0; sparse < 2; sparse++) {
                        const dci_index_config config = config_of(form, DCI_METRIC_IP);
                        float *keys = pdci_trace("keys", N);
                        int64_t first = -1;
                        dci_index *index = NULL;
                        ck_ok(dci_index_create(context, &config, &index));
                        const dci_memory_report empty = mdci_memory(index);
                        const int64_t far = (int64_t)1 << 40;
                        ck_ok(dci_index_set_metadata(index, "kept", 4));
                        if (sparse)
                                ck_ok(dci_index_add(index, 1, keys, DIM, &far, NULL));
                        ck_ok(dci_index_append(index, N, keys, DIM, NULL, &first));
                        ck_assert_int_eq(first, sparse ? far + 1 : 0);
                        ck_ok(dci_index_reserve(index, 4 * N));
                        ck_ok(dci_index_clear(index));
                        check_index(index);
                        ck_assert_uint_eq(dci_index_count(index), 0);
                        const dci_memory_report report = mdci_memory(index);
                        ck_assert_uint_eq(report.rows, 0);
                        ck_assert_uint_eq(report.codes, 0);
                        ck_assert_msg(report.total <= empty.total + 4096, "%zu bytes, %zu in a new index", report.total,
                                      empty.total);
                        const int64_t next = first + N;
                        ck_assert_int_eq(dci_index_next_id(index), next);
                        state before = state_of(index);
                        ck_ok(dci_index_clear(index));
                        state_check(&before, index, "cleared twice");
                        free(before.bytes);
                        ck_ok(dci_index_append(index, 0, NULL, 0, NULL, &first));
                        ck_assert_int_eq(first, next);
                        ck_ok(dci_index_append(index, 10, keys, DIM, NULL, &first));
                        ck_assert_int_eq(first, next);
                        uint8_t there = 1;
                        const int64_t gone = 3;
                        ck_ok(dci_index_contains(index, 1, &gone, &there));
                        ck_assert_uint_eq(there, 0);
                        check_index(index);
                        dci_index_destroy(index);
                        free(keys);
                }
        }
        ck_refused(dci_index_clear(NULL), DCI_ERR_INVALID, "index is NULL");
        ck_assert_int_eq(dci_index_next_id(NULL), 0);
}
END_TEST

START_TEST(bad_appends_are_refused)
{
        const dci_index_config config = config_of(0, DCI_METRIC_L2);
        float row[DIM] = {NAN};
        int64_t first = 77;
        const int64_t last = INT64_MAX - 1;
        dci_index *index = pdci_index(context, &config, 0, NULL, NULL);
        ck_refused(dci_index_append(index, 1, row, DIM, NULL, NULL), DCI_ERR_INVALID, "out_first_id is NULL");
        ck_refused(dci_index_append(index, 1, NULL, DIM, NULL, &first), DCI_ERR_INVALID, "rows is NULL");
        ck_refused(dci_index_append(index, 1, row, DIM, NULL, &first), DCI_ERR_NUMBER, "row 0");
        ck_assert_int_eq(first, 77);
        row[0] = 1.0f;
        ck_ok(dci_index_add(index, 1, row, DIM, &last, NULL));
        ck_refused(dci_index_append(index, 1, row, DIM, NULL, &first), DCI_ERR_LIMIT, "1 consecutive ids");
        ck_assert_int_eq(first, 77);
        dci_index_destroy(index);
}
END_TEST

/* --- filters turned ---------------------------------------------------------------------------------------------------- */

static int32_t is_third(void *ctx, int64_t id)
{
        (void)ctx;
        return id % 3 == 0;
}

static dci_filter filter_of(int32_t kind, const int64_t *ids, const uint64_t *bits)
{
        dci_filter filter;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        filter.kind = kind;
        filter.n = kind == DCI_FILTER_IDS ? 30 : 64; /* ids 0, 3, .. to 87, bits of ids 20 to 83 */
        filter.ids = ids;
        filter.bits = bits;
        filter.first_id = 20;
        filter.fn = is_third;
        return filter;
}

static bool admitted(int32_t kind, int64_t id)
{
        return id % 3 == 0 && (kind != DCI_FILTER_IDS || id < 90) &&
               (kind != DCI_FILTER_BITMAP || (id >= 20 && id < 84));
}

/* Loops over forms. */
START_TEST(a_turned_filter_admits_what_it_would_not)
{
        const dci_index_config config = config_of((size_t)_i, all_metrics[_i % 3]);
        float *keys = pdci_trace("keys", N);
        dci_index *index = pdci_index(context, &config, N, keys, NULL);
        int64_t ids[30], gone[300], *found = malloc(N * sizeof *found);
        uint64_t bits = 0;
        for (size_t i = 0; i < 30; i++)
                ids[i] = (int64_t)(3 * i);
        for (size_t i = 0; i < 64; i++)
                bits |= (uint64_t)((i + 20) % 3 == 0) << i;
        for (size_t i = 0; i < COUNT(gone); i++)
                gone[i] = (int64_t)(4 * i + 1);
        ck_ok(dci_index_remove(index, COUNT(gone), gone));
        for (int32_t kind = DCI_FILTER_IDS; kind <= DCI_FILTER_CALLBACK; kind++) {
                for (int32_t flags = 0; flags <= DCI_FILTER_NOT; flags++) {
                        dci_filter filter = filter_of(kind, ids, &bits);
                        filter.flags = flags;
                        dci_search_params params = mdci_effort(1.0);
                        params.filter = &filter;
                        ck_ok(dci_index_search(index, 1, keys, DIM, N, &params, found, NULL));
                        size_t n = 0, wanted = 0;
                        for (; n < N && found[n] >= 0; n++)
                                ck_assert(admitted(kind, found[n]) == (flags == 0));
                        for (int64_t id = 0; id < N; id++)
                                wanted += (id % 4 != 1 || id > 4 * 300) && admitted(kind, id) == (flags == 0);
                        ck_assert_uint_eq(n, wanted);
                }
        }
        dci_filter filter = filter_of(DCI_FILTER_IDS, ids, &bits);
        dci_search_params params = mdci_effort(1.0);
        params.filter = &filter;
        filter.flags = 2;
        ck_refused(dci_index_search(index, 1, keys, DIM, 1, &params, found, NULL), DCI_ERR_INVALID,
                   "filter.flags is 0x2");
        filter.flags = DCI_FILTER_NOT;
        filter.kind = DCI_FILTER_NONE;
        ck_refused(dci_index_search(index, 1, keys, DIM, 1, &params, found, NULL), DCI_ERR_INVALID, "NONE");
        dci_index_destroy(index);
        test_free(keys, found);
}
END_TEST

/* --- metadata ----------------------------------------------------------------------------------------------------------- */

static void expect_metadata(const dci_index *index, const void *data, size_t n_bytes)
{
        size_t n;
        unsigned char *got = test_room(n_bytes + 1, 1);
        ck_ok(dci_index_get_metadata(index, 0, NULL, &n));
        ck_assert_uint_eq(n, n_bytes);
        ck_ok(dci_index_get_metadata(index, n_bytes, got, &n));
        ck_assert_uint_eq(n, n_bytes);
        ck_assert(n_bytes == 0 || memcmp(got, data, n_bytes) == 0);
        ck_assert_uint_eq(got[n_bytes], 0xA5);
        free(got);
}

START_TEST(metadata_go_where_the_index_goes)
{
        for (size_t form = 0; form < COUNT(forms); form++) {
                const dci_index_config config = config_of(form, DCI_METRIC_L2);
                float *keys = pdci_trace("keys", 50);
                unsigned char *data = malloc(DCI_MAX_METADATA + 1);
                memset(data, 0x5a, DCI_MAX_METADATA + 1);
                dci_index *index = pdci_index(context, &config, 50, keys, NULL), *other = NULL;
                expect_metadata(index, NULL, 0);
                const size_t before = mdci_memory(index).total;
                state bare = state_of(index);
                ck_refused(dci_index_set_metadata(index, data, DCI_MAX_METADATA + 1), DCI_ERR_LIMIT, "1048577 bytes");
                ck_refused(dci_index_set_metadata(index, NULL, 1), DCI_ERR_INVALID, "data is NULL");
                ck_refused(dci_index_get_metadata(index, 1, NULL, &bare.n), DCI_ERR_INVALID, "out is NULL");
                ck_refused(dci_index_get_metadata(index, 0, NULL, NULL), DCI_ERR_INVALID, "out_bytes is NULL");
                ck_ok(dci_index_set_metadata(index, data, DCI_MAX_METADATA));
                ck_ok(dci_index_set_metadata(index, "{\"model\": \"m\"}", 14));
                expect_metadata(index, "{\"model\": \"m\"}", 14);
                ck_assert_uint_eq(mdci_memory(index).total, before + 14);
                check_index(index);
                ck_ok(dci_index_save(index, scratch_path("it")));
                ck_ok(dci_index_load(context, scratch_path("it"), &other));
                expect_metadata(other, "{\"model\": \"m\"}", 14);
                dci_index_destroy(other);
                ck_ok(dci_index_map(context, scratch_path("it"), &other));
                expect_metadata(other, "{\"model\": \"m\"}", 14);
                ck_ok(dci_index_set_metadata(other, "of this map", 11));
                expect_metadata(other, "of this map", 11);
                dci_index_destroy(other);
                ck_ok(dci_index_set_metadata(index, NULL, 0));
                expect_metadata(index, NULL, 0);
                state_check(&bare, index, "without metadata again");
                dci_index_destroy(index);
                test_free(keys, data, bare.bytes);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index methods");
        TCase *laws = test_case_with(suite, "laws", 60, context_open_2, context_close);
        tcase_add_test(laws, ids_that_are_not_there_are_ignored_where_that_is_asked_for);
        tcase_add_test(laws, a_cleared_index_is_as_small_as_a_new_one_and_goes_on_with_its_ids);
        tcase_add_test(laws, bad_appends_are_refused);
        tcase_add_loop_test(laws, a_turned_filter_admits_what_it_would_not, 0, (int)COUNT(forms));
        TCase *files = test_case_with(suite, "files", 60, context_open_1, context_close);
        tcase_add_checked_fixture(files, scratch_open, scratch_close);
        tcase_add_test(files, metadata_go_where_the_index_goes);
        return test_main(suite);
}
