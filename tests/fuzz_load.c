/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Loads damaged index files, with and without right checksums, and uses whatever loads; that passes the check of its structure.
 * Meant for a build with sanitizers. Usage: fuzz_load [SEED [SECONDS]]; without SECONDS a fixed number of files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/file.h"
#include "dci/check.h"
#include "dci/file.h"
#include "index/index_internal.h"
#include "tests/persist_seal.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { N_CORPUS = 3 * 3 * 3 * 4, FIXED = 20000 };

static persist_bytes corpus[N_CORPUS];
static dci_rng rng;

static size_t below(size_t bound)
{
        return (size_t)dci_rng_below(&rng, bound);
}

/* For what cannot fail unless the machine does. */
static void must(bool right, const char *what)
{
        if (right)
                return;
        fprintf(stderr, "fuzz_load: %s: %s\n", what, dci_last_error());
        exit(EXIT_FAILURE);
}

static persist_bytes room_for(size_t n)
{
        persist_bytes bytes = {malloc(n == 0 ? 1 : n), n};
        must(bytes.data != NULL, "no memory");
        return bytes;
}

static persist_bytes copy_of(const persist_bytes *from, size_t n)
{
        persist_bytes copy = room_for(n);
        memcpy(copy.data, from->data, n < from->n ? n : from->n);
        return copy;
}

static persist_bytes save(const dci_index *index)
{
        size_t n;
        must(dci_index_save_memory(index, 0, NULL, &n) == DCI_OK, "size");
        persist_bytes bytes = room_for(n);
        must(dci_index_save_memory(index, n, bytes.data, &n) == DCI_OK, "save");
        return bytes;
}

/* A valid file of each kind, metric and dtype, with and without rows and ids of their own. */
static persist_bytes seed_file(dci_context *context, size_t number)
{
        enum { DIM = 3, ROWS = 20 };
        dci_index_config config;
        dci_index *index = NULL;
        const size_t shape = number / 27;
        int64_t ids[ROWS];
        float rows[ROWS * DIM];
        must(dci_index_config_init(&config, sizeof config) == DCI_OK, "config");
        config.dim = DIM;
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
        for (size_t p = 0; p < COUNT(rows); p++)
                rows[p] = config.zero_rows == DCI_ZERO_KEEP && p < DIM ? 0.0f : (float)dci_rng_normal(&rng);
        for (int64_t i = 0; i < ROWS; i++)
                ids[i] = (i + 1) * 1000;
        must(dci_index_create(context, &config, &index) == DCI_OK, "create");
        if (shape > 0)
                must(dci_index_add(index, ROWS, rows, DIM, shape == 1 ? NULL : ids, NULL) == DCI_OK, "add");
        if (shape > 0 && number % 4 == 1 && config.dtype == DCI_F32)
                must(dci_index_fit(index, 5, rows, DIM) == DCI_OK, "fit");
        persist_bytes bytes = save(index);
        dci_index_destroy(index);
        return bytes;
}

/* --- damage --------------------------------------------------------------------------------------------------------------- */

static uint64_t interesting(void)
{
        static const uint64_t values[] = {0,
                                          1,
                                          2,
                                          3,
                                          4,
                                          7,
                                          15,
                                          16,
                                          17,
                                          63,
                                          64,
                                          255,
                                          4096,
                                          65535,
                                          1048576,
                                          0x7f800000,
                                          0x7fc00000,
                                          0x80000000,
                                          0xffffffff,
                                          UINT64_C(0x7ff0000000000000),
                                          UINT64_C(0x8000000000000000),
                                          UINT64_MAX - 63,
                                          UINT64_MAX};
        const uint64_t value = values[below(COUNT(values))];
        return below(3) == 0 ? value + below(5) - 2 : value;
}

static void put_number(const persist_bytes *to)
{
        const size_t width = below(2) == 0 ? 4 : 8;
        /* Mostly where lengths and the config are. */
        const size_t end = below(4) == 0 || to->n < 500 ? to->n : 500;
        if (end < width)
                return;
        const size_t at = below((end - width) / 4 + 1) * 4;
        const uint64_t value = interesting();
        for (size_t i = 0; i < width; i++)
                to->data[at + i] = (unsigned char)(value >> 8 * i);
}

static void splice(const persist_bytes *to)
{
        const persist_bytes *from = &corpus[below(N_CORPUS)];
        const size_t least = from->n < to->n ? from->n : to->n;
        if (least == 0)
                return;
        const size_t n = below(least) + 1;
        const size_t source = below(from->n - n + 1),
                     target = below(2) == 0 && source + n <= to->n ? source : below(to->n - n + 1);
        memcpy(to->data + target, from->data + source, n);
}

static void resize(persist_bytes *bytes)
{
        const size_t n = below(2) == 0 ? below(bytes->n + 1) : bytes->n + below(200);
        persist_bytes other = copy_of(bytes, n);
        for (size_t i = bytes->n; i < n; i++)
                other.data[i] = 0;
        /* Half of them say so. */
        if (n >= DCI_FILE_HEADER_BYTES && below(2) == 0)
                dci_store_le64(other.data + 32, n);
        free(bytes->data);
        *bytes = other;
}

static persist_bytes damaged(void)
{
        const persist_bytes *seed = &corpus[below(N_CORPUS)];
        persist_bytes bytes = copy_of(seed, seed->n);
        for (size_t i = below(4) + 1; i > 0; i--) {
                const size_t how = below(10);
                if (how < 4 && bytes.n > 0)
                        bytes.data[below(bytes.n)] ^= (unsigned char)(1 << below(8));
                else if (how < 8)
                        put_number(&bytes);
                else if (how < 9)
                        splice(&bytes);
                else
                        resize(&bytes);
        }
        if (below(8) != 0)
                persist_reseal(&bytes);
        return bytes;
}

/* --- use ------------------------------------------------------------------------------------------------------------------ */

static bool use(dci_index *index)
{
        enum { K = 4 };
        int64_t ids[K];
        float scores[K];
        dci_search_params params;
        dci_range_result result;
        const size_t dim = index->config.dim;
        bool right = dci_search_params_init(&params, sizeof params) == DCI_OK &&
                     dci_range_result_init(&result, sizeof result) == DCI_OK;
        params.num_to_visit = below(3) == 0 ? 0 : below(40);
        params.num_to_retrieve = below(30);
        params.rerank = (double)below(3);
        params.guarantee = (double)below(3) / 2.0;
        /* 0x3c3c is a number near 1 or near 0.01 in each format. */
        unsigned char *query = room_for(dim * sizeof(float)).data;
        memset(query, 0x3c, dim * sizeof(float));
        right = right && dci_index_check(index, DCI_CHECK_STRUCTURE, NULL) == DCI_OK;
        right = right && dci_index_search(index, 1, query, dim, K, NULL, ids, scores) == DCI_OK;
        right = right && dci_index_search(index, 1, query, dim, 1 + below(K), &params, ids, scores) == DCI_OK;
        right = right && dci_index_range_search(index, 1, query, dim, 0.5f, &params, &result) == DCI_OK;
        dci_range_result_free(&result);
        if (index->config.add_dtype == index->config.query_dtype && index->next_id < INT64_MAX - 1)
                right = right && dci_index_add(index, 1, query, dim, NULL, NULL) == DCI_OK;
        if (right && dci_index_count(index) > 0) {
                int64_t first = dci_rows_view(&index->rows).table->chunk[0].ids[0];
                right = dci_index_remove(index, 1, &first) == DCI_OK;
        }
        right = right && dci_index_check(index, DCI_CHECK_STRUCTURE, NULL) == DCI_OK;
        free(query);
        return right;
}

/* Saved again and loaded again it is the same. */
static bool returns(dci_context *context, const dci_index *index)
{
        persist_bytes once = save(index);
        dci_index *loaded = NULL;
        bool same = dci_index_load_memory(context, once.data, once.n, &loaded) == DCI_OK;
        if (same) {
                persist_bytes twice = save(loaded);
                same = once.n == twice.n && memcmp(once.data, twice.data, once.n) == 0;
                free(twice.data);
        }
        dci_index_destroy(loaded);
        free(once.data);
        return same;
}

int main(int argc, char **argv)
{
        const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
        const double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.0;
        const time_t begin = time(NULL);
        dci_context *context = NULL;
        must(dci_context_create(NULL, &context) == DCI_OK, "context");
        size_t files = 0, loaded = 0;
        bool right = true;
        dci_rng_seed(&rng, seed);
        for (size_t i = 0; i < N_CORPUS; i++)
                corpus[i] = seed_file(context, i);
        while (right && (seconds > 0.0 ? difftime(time(NULL), begin) < seconds : files < FIXED)) {
                persist_bytes bytes = damaged();
                dci_index *index = NULL;
                const dci_status status = dci_index_load_memory(context, bytes.data, bytes.n, &index);
                right = status == DCI_OK ? returns(context, index) && use(index)
                                         : status == DCI_ERR_FORMAT || status == DCI_ERR_UNSUPPORTED;
                if (!right)
                        fprintf(stderr, "fuzz_load: seed %llu, file %zu: %s: %s\n", (unsigned long long)seed, files,
                                dci_status_name(status), dci_last_error());
                dci_index_destroy(index);
                free(bytes.data);
                files++;
                loaded += status == DCI_OK;
        }
        for (size_t i = 0; i < N_CORPUS; i++)
                free(corpus[i].data);
        dci_context_destroy(context);
        printf("fuzz_load: seed %llu, %zu files, %zu of them loaded\n", (unsigned long long)seed, files, loaded);
        return right && loaded > 0 && loaded < files ? EXIT_SUCCESS : EXIT_FAILURE;
}
