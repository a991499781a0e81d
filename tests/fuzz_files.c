/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dci/check.h"
#include "dci/file.h"
#include "index/index_internal.h"
#include "index/tree/tree.h"

void fuzz_must(bool right, const char *what)
{
        if (right)
                return;
        fprintf(stderr, "fuzz: %s: %s\n", what, dci_last_error());
        exit(EXIT_FAILURE);
}

persist_bytes fuzz_room(size_t n)
{
        persist_bytes bytes = {malloc(n == 0 ? 1 : n), n};
        fuzz_must(bytes.data != NULL, "no memory");
        return bytes;
}

static persist_bytes save(const dci_index *index)
{
        size_t n;
        fuzz_must(dci_index_save_memory(index, 0, NULL, &n) == DCI_OK, "size");
        persist_bytes bytes = fuzz_room(n);
        fuzz_must(dci_index_save_memory(index, n, bytes.data, &n) == DCI_OK, "save");
        return bytes;
}

persist_bytes fuzz_index_file(dci_context *context, dci_rng *rng, size_t number)
{
        enum { DIM = 3, ROWS = 20 };
        dci_index_config config;
        dci_index *index = NULL;
        const size_t shape = number / 27;
        int64_t ids[ROWS];
        float rows[ROWS * DIM];
        fuzz_must(dci_index_config_init(&config, sizeof config) == DCI_OK, "config");
        config.dim = DIM;
        config.target_recall = number % 2 == 0 ? 1.0 : 0.9;
        config.metric = DCI_METRIC_L2 + (int32_t)(number / 3 % 3);
        config.dtype = DCI_F32 + (int32_t)(number / 9 % 3);
        config.kind = DCI_KIND_FLAT + (int32_t)(number % 3);
        config.add_dtype = DCI_F32;
        config.promotion_prob = config.promotion_prob_subseq = 0.4; /* two levels of 20 rows */
        config.top_nodes = 3;
        config.sketch_bits = number % 2 == 0 ? 0 : 1 + (int32_t)(number / 2 % 4);
        config.page_rows = config.sketch_bits == 0 ? 4 : 16;
        config.cell_simp_indices = number / 9 % 3;
        config.zero_rows = shape == 3 && config.metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
        for (size_t p = 0; p < sizeof rows / sizeof rows[0]; p++)
                rows[p] = config.zero_rows == DCI_ZERO_KEEP && p < DIM ? 0.0f : (float)dci_rng_normal(rng);
        for (int64_t i = 0; i < ROWS; i++)
                ids[i] = (i + 1) * 1000;
        fuzz_must(dci_index_create(context, &config, &index) == DCI_OK, "create");
        if (shape > 0)
                fuzz_must(dci_index_add(index, ROWS, rows, DIM, shape == 1 ? NULL : ids, NULL) == DCI_OK, "add");
        if (shape > 0 && number % 4 == 1 && config.dtype == DCI_F32)
                fuzz_must(dci_index_fit(index, 5, rows, DIM) == DCI_OK, "fit");
        persist_bytes bytes = save(index);
        dci_index_destroy(index);
        return bytes;
}

/* Of the first slot that has a row: places of removed ones may be free. */
static int64_t any_id(dci_index *index)
{
        size_t at, slot = 0;
        const dci_chunk *chunk;
        do
                chunk = dci_rows_chunk(&index->rows, slot++, &at);
        while (chunk->ids[at] < 0);
        return chunk->ids[at];
}

bool fuzz_fits(const dci_index *index, dci_status status)
{
        enum { ROOM_OF_AN_ADD = 16, LARGE = 8 << 20 };
        const size_t n_rows = index->directions.n + ROOM_OF_AN_ADD;
        return status == DCI_OK || (status == DCI_ERR_MEMORY && n_rows * sizeof(float) > LARGE / index->config.dim);
}

/* With a row less, what is drawn or made again may be out of proportion (dci/file.h). */
static bool may_be_saved(const dci_index *index)
{
        size_t n;
        const dci_status status = dci_index_save_memory(index, 0, NULL, &n);
        fuzz_must(status == DCI_OK || status == DCI_ERR_LIMIT, "size after changes");
        return status == DCI_OK;
}

/* Ids and versions of the file leave room for a change. */
static bool may_change(const dci_index *index)
{
        return index->next_id < INT64_MAX - 1 && (index->tree == NULL || index->tree->version <= DCI_MAX_VERSION - 4);
}

bool fuzz_use_index(dci_index *index, fuzz_bytes *from)
{
        enum { K = 4 };
        int64_t ids[K];
        float scores[K];
        dci_search_params params;
        dci_range_result result;
        const size_t dim = index->config.dim;
        bool right = dci_search_params_init(&params, sizeof params) == DCI_OK &&
                     dci_range_result_init(&result, sizeof result) == DCI_OK;
        params.num_to_visit = fuzz_below(from, 3) == 0 ? 0 : fuzz_below(from, 40);
        params.num_to_retrieve = fuzz_below(from, 30);
        params.rerank = (double)fuzz_below(from, 3);
        params.guarantee = (double)fuzz_below(from, 3) / 2.0;
        /* 0x3c3c is a number near 1 or near 0.01 in each format. */
        unsigned char *query = fuzz_room(dim * sizeof(float)).data;
        memset(query, 0x3c, dim * sizeof(float));
        right = right && fuzz_fits(index, dci_index_check(index, DCI_CHECK_STRUCTURE, NULL));
        right = right && fuzz_fits(index, dci_index_search(index, 1, query, dim, K, NULL, ids, scores));
        right = right &&
                fuzz_fits(index, dci_index_search(index, 1, query, dim, 1 + fuzz_below(from, K), &params, ids, scores));
        right = right && fuzz_fits(index, dci_index_range_search(index, 1, query, dim, 0.5f, &params, &result));
        dci_range_result_free(&result);
        const bool changes = may_change(index);
        if (changes && index->config.add_dtype == index->config.query_dtype)
                right = right && fuzz_fits(index, dci_index_add(index, 1, query, dim, NULL, NULL));
        if (changes && right && dci_index_count(index) > 0) {
                int64_t first = any_id(index);
                right = fuzz_fits(index, dci_index_remove(index, 1, &first));
        }
        free(query);
        right = right && fuzz_fits(index, dci_index_check(index, DCI_CHECK_STRUCTURE, NULL));
        return right && (!may_be_saved(index) || fuzz_index_returns(index->context, index));
}

bool fuzz_index_returns(dci_context *context, const dci_index *index)
{
        persist_bytes once = save(index);
        dci_index *loaded = NULL;
        const dci_status status = dci_index_load_memory(context, once.data, once.n, &loaded);
        bool same = fuzz_fits(index, status);
        if (status == DCI_OK) {
                persist_bytes twice = save(loaded);
                same = once.n == twice.n && memcmp(once.data, twice.data, once.n) == 0;
                free(twice.data);
        }
        dci_index_destroy(loaded);
        free(once.data);
        return same;
}
