/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/auto_fixture.h"

#include <math.h>
#include <string.h>

#include "dci/check.h"

dci_index_config auto_config(dci_metric metric, dci_dtype dtype)
{
        dci_index_config config = pdci_config(DIM, metric, dtype);
        config.kind = DCI_KIND_AUTO;
        config.promotion_prob = 0.1;
        config.seed = 5;
        return config;
}

dci_index *auto_index(dci_context *with, const dci_index_config *config)
{
        dci_index *index = NULL;
        ck_ok(dci_index_create(with, config, &index));
        ck_assert_int_eq(dci_index_is_auto(index), 1);
        index->automatic.divisor = DIVISOR;
        return index;
}

dci_index_config auto_in_use(const dci_index *index)
{
        dci_index_config config;
        ck_ok(dci_index_config_init(&config, sizeof config));
        ck_ok(dci_index_get_config(index, &config));
        return config;
}

void auto_hold(const dci_index *index, dci_index_kind kind, int32_t bits)
{
        const dci_index_config config = auto_in_use(index);
        ck_assert_msg(config.kind == kind && config.sketch_bits == bits,
                      "%zu rows: kind %d with %d bits, expected %d with %d", dci_index_count(index), (int)config.kind,
                      (int)config.sketch_bits, (int)kind, (int)bits);
}

void auto_check(const dci_index *index, dci_index_kind kind, int32_t bits)
{
        auto_hold(index, kind, bits);
        ck_ok(dci_index_check(index, DCI_CHECK_FULL, NULL));
}

void auto_same(const dci_index *index, const dci_index *flat, const float *queries, const char *what)
{
        const size_t n = dci_index_count(flat);
        const dci_search_params all = pdci_verifying((double)INFINITY, 0.0);
        int64_t ids[MOST], others[MOST];
        size_t count, other_count;
        ck_assert_uint_eq(dci_index_count(index), n);
        ck_ok(dci_index_ids(index, MOST, ids, &count));
        ck_ok(dci_index_ids(flat, MOST, others, &other_count));
        ck_assert_msg(count == n && other_count == n && memcmp(ids, others, n * sizeof *ids) == 0, "%s: other ids",
                      what);
        const size_t row_bytes = DIM * dci_dtype_size(flat->config.dtype);
        unsigned char *rows = test_room(n + 1, row_bytes), *other_rows = test_room(n + 1, row_bytes);
        ck_ok(dci_index_reconstruct(index, n, ids, rows, DIM));
        ck_ok(dci_index_reconstruct(flat, n, ids, other_rows, DIM));
        ck_assert_msg(memcmp(rows, other_rows, n * row_bytes) == 0, "%s: other rows", what);
        for (size_t n_queries = 1; n_queries <= 16; n_queries += 15) {
                pdci_found got = pdci_search(index, n_queries, queries, K, &all);
                pdci_found want = pdci_search(flat, n_queries, queries, K, NULL);
                ck_assert_msg(pdci_same(&got, &want), "%s: other answers to %zu queries", what, n_queries);
                pdci_found_free(&got);
                pdci_found_free(&want);
        }
        test_free(rows, other_rows);
}
