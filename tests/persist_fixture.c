/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/persist_fixture.h"

#include <string.h>

#include "core/file.h"

persist_case persist_case_of(int number)
{
        if (number >= PERSIST_FLAT_CASES) {
                const int tree = number - PERSIST_FLAT_CASES;
                return (persist_case){DCI_KIND_MDCI, DCI_METRIC_L2 + tree % 3, DCI_F32 + tree / 3 % 3,
                                      tree / 9 == 0 ? DCI_ROWS_OWNED : DCI_ROWS_BORROWED};
        }
        const persist_case c = {number % 2 == 0 ? DCI_KIND_FLAT : DCI_KIND_PDCI, DCI_METRIC_L2 + number / 2 % 3,
                                DCI_F32 + number / 6 % 3, number / 18 == 0 ? DCI_ROWS_OWNED : DCI_ROWS_BORROWED};
        return c;
}

/* Worlds are made by the hundred, and these take a tenth of the time of normal numbers. */
static float *uniform(size_t n)
{
        dci_rng rng;
        dci_rng_seed(&rng, 1);
        float *numbers = malloc(n * sizeof *numbers);
        ck_assert_ptr_nonnull(numbers);
        for (size_t i = 0; i < n; i++)
                numbers[i] = (float)(dci_rng_uniform(&rng) - 0.5);
        return numbers;
}

static void live(persist_world *w, int life)
{
        int64_t ids[PERSIST_ROWS];
        const size_t ld = PERSIST_DIM;
        for (int64_t i = 0; i < PERSIST_ROWS; i++)
                ids[i] = (i * 7919 % PERSIST_ROWS) * 1000003;
        if (life == LIFE_EMPTY)
                return;
        const size_t n = life == LIFE_ONE ? 1 : PERSIST_ROWS;
        ck_ok(dci_index_add(w->index, n, w->rows, ld, life == LIFE_IDS ? ids : NULL, NULL));
        for (int64_t i = 0; i < PERSIST_ROWS; i++)
                ids[i] = i;
        if (life == LIFE_EMPTIED)
                ck_ok(dci_index_remove(w->index, PERSIST_ROWS, ids));
        for (int64_t i = 0; i < PERSIST_ROWS / 3; i++)
                ids[i] = 3 * i;
        if (life == LIFE_REMOVED)
                ck_ok(dci_index_remove(w->index, PERSIST_ROWS / 3, ids));
}

persist_world persist_make(dci_context *context, persist_case c, int life)
{
        persist_world w = {.context = context, .config = index_config(PERSIST_DIM, c.metric, c.dtype)};
        w.config.kind = c.kind;
        w.config.storage = c.storage;
        w.config.query_dtype = DCI_F32;
        w.config.zero_rows = c.metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
        w.config.num_comp_indices = 3;
        w.config.num_simp_indices = 4;
        w.config.seed = UINT64_C(0xfedcba9876543210);
        if (c.kind == DCI_KIND_MDCI) { /* few rows, and yet two levels */
                w.config.promotion_prob = 0.2;
                w.config.promotion_prob_subseq = 0.3;
                w.config.top_nodes = 4;
                w.config.page_rows = 8;
                w.config.cell_simp_indices = c.dtype == DCI_F16 ? 2 : 0;
        }
        float *numbers = uniform(2 * (size_t)PERSIST_ROWS * PERSIST_DIM);
        for (size_t p = 0; c.metric == DCI_METRIC_COSINE && p < PERSIST_DIM; p++)
                numbers[p] = numbers[2 * PERSIST_DIM + p] = 0.0f;
        w.row_bytes = PERSIST_DIM * dci_dtype_size(c.dtype);
        w.rows = malloc(2 * PERSIST_ROWS * w.row_bytes);
        ck_assert_ptr_nonnull(w.rows);
        dci_kernels_scalar.narrow[c.dtype - 1](numbers, 2 * (size_t)PERSIST_ROWS * PERSIST_DIM, w.rows);
        free(numbers);
        ck_ok(dci_index_create(context, &w.config, &w.index));
        live(&w, life);
        dci_search_params defaults;
        ck_ok(dci_search_params_init(&defaults, sizeof defaults));
        defaults.prop_to_visit = 0.75;
        defaults.prop_to_retrieve = 0.3;
        defaults.num_to_visit = 50;
        defaults.num_to_retrieve = 7;
        defaults.field_of_view = c.kind == DCI_KIND_MDCI ? 2 : 0;
        ck_ok(dci_index_set_defaults(w.index, &defaults));
        return w;
}

void persist_destroy(persist_world *world)
{
        dci_index_destroy(world->index);
        free(world->rows);
        memset(world, 0, sizeof *world);
}

/* --- bytes -------------------------------------------------------------------------------------------------------------- */

persist_bytes persist_save(const dci_index *index)
{
        persist_bytes bytes = {NULL, 0};
        size_t again = 0;
        ck_ok(dci_index_save_memory(index, 0, NULL, &bytes.n));
        bytes.data = malloc(bytes.n);
        ck_assert_ptr_nonnull(bytes.data);
        ck_ok(dci_index_save_memory(index, bytes.n, bytes.data, &again));
        ck_assert_uint_eq(again, bytes.n);
        return bytes;
}

void persist_free(persist_bytes *bytes)
{
        free(bytes->data);
        bytes->data = NULL;
}

bool persist_equal(const persist_bytes *a, const persist_bytes *b)
{
        return a->n == b->n && memcmp(a->data, b->data, a->n) == 0;
}

persist_bytes persist_copy(const persist_bytes *from, size_t n)
{
        persist_bytes copy = {malloc(n == 0 ? 1 : n), n};
        ck_assert_ptr_nonnull(copy.data);
        memcpy(copy.data, from->data, n < from->n ? n : from->n);
        return copy;
}

dci_index *persist_load(dci_context *context, const persist_bytes *bytes)
{
        dci_index *index = NULL;
        ck_ok(dci_index_load_memory(context, bytes->data, bytes->n, &index));
        ck_assert_ptr_nonnull(index);
        return index;
}

unsigned char *persist_section(const persist_bytes *bytes, const char *name, size_t *out_bytes)
{
        const size_t n = dci_load_le32(bytes->data + 24);
        for (size_t i = 0; i < n; i++) {
                const unsigned char *entry = bytes->data + DCI_FILE_HEADER_BYTES + 32 * i;
                if (strncmp((const char *)entry, name, 8) != 0)
                        continue;
                if (out_bytes != NULL)
                        *out_bytes = (size_t)dci_load_le64(entry + 16);
                return bytes->data + dci_load_le64(entry + 8);
        }
        return NULL;
}

/* --- answers ------------------------------------------------------------------------------------------------------------- */

static void agree_on_searches(const dci_index *a, const dci_index *b, const float *queries, const char *what)
{
        static const size_t budgets[][2] = {{0, 0}, {40, 0}, {90, 20}};
        enum { K = 9 };
        int64_t ids[2][PERSIST_QUERIES * K];
        float scores[2][PERSIST_QUERIES * K];
        for (size_t i = 0; i <= COUNT(budgets); i++) {
                dci_search_params params;
                ck_ok(dci_search_params_init(&params, sizeof params));
                if (i < COUNT(budgets)) {
                        params.num_to_visit = budgets[i][0];
                        params.num_to_retrieve = budgets[i][1];
                }
                const dci_search_params *asked = i < COUNT(budgets) ? &params : NULL; /* NULL: the defaults */
                for (int side = 0; side < 2; side++)
                        ck_ok(dci_index_search(side == 0 ? a : b, PERSIST_QUERIES, queries, PERSIST_DIM, K, asked,
                                               ids[side], scores[side]));
                ck_assert_msg(memcmp(ids[0], ids[1], sizeof ids[0]) == 0, "%s: ids of budget %zu", what, i);
                ck_assert_msg(memcmp(scores[0], scores[1], sizeof scores[0]) == 0, "%s: scores of budget %zu", what, i);
        }
}

static void agree_on_rows(const dci_index *a, const dci_index *b, const char *what)
{
        const size_t n = dci_index_count(a), row_bytes = PERSIST_DIM * dci_dtype_size(a->config.dtype);
        int64_t *ids = malloc((2 * n + 1) * sizeof *ids);
        unsigned char *rows = malloc(2 * n * row_bytes + 1);
        size_t n_listed;
        ck_assert(ids != NULL && rows != NULL);
        ck_assert_uint_eq(dci_index_count(b), n);
        ck_ok(dci_index_ids(a, n, ids, &n_listed));
        ck_ok(dci_index_ids(b, n, ids + n, &n_listed));
        ck_assert_msg(memcmp(ids, ids + n, n * sizeof *ids) == 0, "%s: ids", what);
        ck_ok(dci_index_reconstruct(a, n, ids, rows, PERSIST_DIM));
        ck_ok(dci_index_reconstruct(b, n, ids, rows + n * row_bytes, PERSIST_DIM));
        ck_assert_msg(memcmp(rows, rows + n * row_bytes, n * row_bytes) == 0, "%s: rows", what);
        test_free(rows, ids);
}

static void agree_on_settings(const dci_index *a, const dci_index *b, const char *what)
{
        dci_index_config configs[2];
        dci_search_params defaults[2];
        for (int side = 0; side < 2; side++) {
                ck_ok(dci_index_config_init(&configs[side], sizeof configs[side]));
                ck_ok(dci_search_params_init(&defaults[side], sizeof defaults[side]));
                ck_ok(dci_index_get_config(side == 0 ? a : b, &configs[side]));
                ck_ok(dci_index_get_defaults(side == 0 ? a : b, &defaults[side]));
        }
        configs[0].storage = configs[1].storage;
        ck_assert_msg(memcmp(&configs[0], &configs[1], sizeof configs[0]) == 0, "%s: config", what);
        ck_assert_msg(memcmp(&defaults[0], &defaults[1], sizeof defaults[0]) == 0, "%s: defaults", what);
}

void persist_agree(const dci_index *a, const dci_index *b, const char *what)
{
        float *queries = test_normal(PERSIST_QUERIES, PERSIST_DIM, 99);
        agree_on_settings(a, b, what);
        agree_on_rows(a, b, what);
        agree_on_searches(a, b, queries, what);
        free(queries);
}

static void *peak_alloc(void *ctx, size_t size, size_t alignment)
{
        persist_peak *p = ctx;
        p->live += size;
        p->most = p->live > p->most ? p->live : p->most;
        return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void peak_free(void *ctx, void *ptr, size_t size)
{
        persist_peak *p = ctx;
        p->live -= size;
        free(ptr);
}

dci_context *persist_counted(persist_peak *peak)
{
        dci_context_config config;
        dci_context *counted = NULL;
        *peak = (persist_peak){0, 0};
        ck_ok(dci_context_config_init(&config, sizeof config));
        config.allocator = (dci_allocator){peak, peak_alloc, peak_free};
        config.n_threads = 1;
        ck_ok(dci_context_create(&config, &counted));
        return counted;
}
