/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Random sequences of operations on an index beside a naive model.
 *
 *   fuzz_index [seed] [sequences]     sequences 0: until it is interrupted
 *
 * Each sequence draws a kind, metric, format and shape, then adds, removes, updates and searches, with filters, groups and ranges,
 * now and then refused calls; every answer at full effort is compared with the model, and the index checks itself after every step.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/naive.h"
#include "tests/tree_check.h"

static uint64_t first_seed = 1, n_sequences = 40;
static volatile sig_atomic_t interrupted;

enum { MOST_DIM = 24, MOST_BATCH = 90, MOST_ROWS = 700, MOST_K = 40 };

typedef struct life {
        dci_rng rng;
        dci_context *context;
        dci_index *index;
        dci_index_config config;
        naive model;
        float clusters[6 * MOST_DIM];
        int64_t next_id;  /* ids from here on were never used */
        uint64_t version; /* of the copy of pages */
        int64_t *pages;   /* [page][page_rows] */
        size_t pages_capacity;
} life;

static size_t below(life *l, size_t n)
{
        return (size_t)dci_rng_below(&l->rng, n);
}

/* Rows in clusters, some of them equal to each other, some zero where that is allowed. */
static void draw_row(life *l, float *out)
{
        const float *centre = l->clusters + below(l, 6) * MOST_DIM;
        const double spread = below(l, 4) == 0 ? 0.0 : 0.3;
        for (size_t p = 0; p < l->config.dim; p++)
                out[p] = (float)((double)centre[p] + spread * dci_rng_normal(&l->rng));
        if (l->config.zero_rows == DCI_ZERO_KEEP && below(l, 20) == 0)
                memset(out, 0, l->config.dim * sizeof *out);
}

static void begin(life *l, uint64_t seed)
{
        static const size_t top_nodes[] = {1, 3, 10, 4096};
        static const int32_t bits[] = {0, 0, 0, 1, 2, 3, 4, 8};
        memset(l, 0, sizeof *l);
        dci_rng_seed(&l->rng, seed);
        l->context = test_context(1 + (int32_t)below(l, 3));
        ck_ok(dci_index_config_init(&l->config, sizeof l->config));
        l->config.dim = 1 + below(l, MOST_DIM);
        l->config.kind = below(l, 4) == 0 ? 1 + (dci_index_kind)below(l, 2) : DCI_KIND_MDCI;
        l->config.metric = 1 + (dci_metric)below(l, 3);
        l->config.dtype = 1 + (dci_dtype)below(l, 3);
        l->config.add_dtype = l->config.query_dtype = DCI_F32;
        l->config.zero_rows = l->config.metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
        l->config.seed = dci_rng_next(&l->rng);
        l->config.promotion_prob = 0.02 + 0.3 * dci_rng_uniform(&l->rng);
        l->config.promotion_prob_subseq = 0.1 + 0.3 * dci_rng_uniform(&l->rng);
        l->config.page_rows = (size_t)4 << below(l, 3);
        l->config.top_nodes = top_nodes[below(l, 4)];
        l->config.cell_simp_indices = below(l, 3);
        l->config.sketch_bits = bits[below(l, sizeof bits / sizeof bits[0])];
        if (l->config.sketch_bits != 0 && l->config.page_rows < 16)
                l->config.page_rows = 16;
        for (size_t i = 0; i < 6 * MOST_DIM; i++)
                l->clusters[i] = (float)dci_rng_normal(&l->rng);
        ck_ok(dci_index_create(l->context, &l->config, &l->index));
        naive_init(&l->model, l->config.dim, l->config.metric);
}

static void end(life *l)
{
        dci_index_destroy(l->index);
        dci_context_destroy(l->context);
        naive_free(&l->model);
        free(l->pages);
}

static void add(life *l)
{
        float rows[MOST_BATCH * MOST_DIM], stored[MOST_DIM];
        int64_t ids[MOST_BATCH] = {0};
        size_t n = 1 + below(l, below(l, 3) == 0 ? MOST_BATCH : 8);
        const size_t dim = l->config.dim;
        const bool own = below(l, 3) == 0; /* the index gives the ids, on from the largest ever used */
        if (l->model.n + n > MOST_ROWS)
                return;
        for (size_t i = 0; i < n; i++) {
                draw_row(l, rows + i * dim);
                l->next_id += 1 + (!own && below(l, 10) == 0 ? (int64_t)below(l, 1000) : 0);
                ids[i] = l->next_id - 1;
        }
        if (l->model.n > 0 && below(l, 8) == 0) { /* refused: an id that is there, and nothing changes */
                const int64_t kept = ids[n - 1];
                ids[n - 1] = l->model.ids[below(l, l->model.n)];
                ck_refused(dci_index_add(l->index, n, rows, dim, ids, NULL), DCI_ERR_EXISTS, "in the index already");
                ids[n - 1] = kept;
        }
        ck_ok(dci_index_add(l->index, n, rows, dim, own ? NULL : ids, NULL));
        for (size_t i = 0; i < n; i++) {
                naive_round(l->config.dtype, dim, rows + i * dim, stored);
                naive_add(&l->model, stored, ids[i]);
        }
}

static void drop(life *l)
{
        int64_t ids[MOST_BATCH];
        size_t n = 1 + below(l, below(l, 3) == 0 ? MOST_BATCH : 8);
        n = n < l->model.n ? n : l->model.n;
        if (n == 0) {
                const int64_t none = 5;
                ck_refused(dci_index_remove(l->index, 1, &none), DCI_ERR_NOT_FOUND, "is not in the index");
                return;
        }
        for (size_t i = 0; i < n; i++) {
                ids[i] = l->model.ids[below(l, l->model.n)];
                naive_remove(&l->model, ids[i]);
        }
        if (n < MOST_BATCH) {
                ids[n] = ids[0];
                ck_refused(dci_index_remove(l->index, n + 1, ids), DCI_ERR_EXISTS, "twice");
        }
        ck_ok(dci_index_remove(l->index, n, ids));
        ck_refused(dci_index_remove(l->index, 1, ids), DCI_ERR_NOT_FOUND, "is not in the index");
}

static int64_t filter_of, filter_remainder;
static bool admits(int64_t id)
{
        return id % filter_of == filter_remainder;
}
static int32_t admits_callback(void *ctx, int64_t id)
{
        (void)ctx;
        return admits(id);
}

static void search(life *l)
{
        float query[MOST_DIM * 8], scores[MOST_K * 8];
        int64_t ids[MOST_K * 8];
        const size_t k = 1 + below(l, MOST_K), group = 1 + below(l, 8);
        for (size_t i = 0; i < group; i++)
                draw_row(l, query + i * l->config.dim);
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        dci_filter filter;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        filter_of = 1 + (int64_t)below(l, 4);
        filter_remainder = (int64_t)below(l, (size_t)filter_of);
        filter.kind = DCI_FILTER_CALLBACK;
        filter.fn = admits_callback;
        const bool filtered = below(l, 2) == 0, whole = below(l, 2) == 0;
        params.filter = filtered ? &filter : NULL;
        if (below(l, 2) == 0)
                params.rerank = INFINITY;
        else /* codes propose, and what is certain is exact */
                params.guarantee = 1.0;
        if (!whole) {
                params.prop_to_visit = 0.05 + 0.9 * dci_rng_uniform(&l->rng);
                params.prop_to_retrieve = below(l, 2) == 0 ? 1.0 : 0.3;
                params.field_of_view = below(l, 3);
        }
        ck_ok(dci_index_search_group(l->index, 1, group, query, l->config.dim, k, DCI_GROUP_EACH, &params, ids,
                                     scores));
        for (size_t g = 0; g < group; g++) {
                if (whole)
                        naive_check(&l->model, query + g * l->config.dim, k, filtered ? admits : NULL, ids + g * k,
                                    scores + g * k, "fuzz");
                for (size_t i = 0; i < k; i++) { /* whatever the effort: rows that are there and admitted, best first */
                        const int64_t id = ids[g * k + i];
                        ck_assert(id == -1 || (naive_has(&l->model, id) && (!filtered || admits(id))));
                        ck_assert(i == 0 || id == -1 || ids[g * k + i - 1] != -1);
                }
                size_t n_admitted = 0, n = 0;
                for (size_t i = 0; i < l->model.n; i++)
                        n_admitted += !filtered || admits(l->model.ids[i]);
                while (n < k && ids[g * k + n] != -1)
                        n++;
                ck_assert_uint_eq(n, k < n_admitted ? k : n_admitted);
        }
}

/* A copy of the pages, brought up to date by the log alone, equals them. */
static void follow(life *l)
{
        if (l->config.kind != DCI_KIND_MDCI)
                return;
        dci_tree_stats stats;
        int32_t changed[MOST_ROWS * 4];
        size_t n;
        uint64_t now;
        ck_ok(dci_tree_stats_init(&stats, sizeof stats));
        ck_ok(dci_index_tree_stats(l->index, &stats));
        ck_ok(dci_index_changes(l->index, l->version, MOST_ROWS * 4, changed, &n, &now));
        ck_assert_uint_le(n, MOST_ROWS * 4);
        const size_t page_rows = l->config.page_rows;
        for (size_t i = 0; i < n; i++) {
                const size_t page = (size_t)changed[i];
                if (page >= l->pages_capacity) {
                        const size_t capacity = 2 * page + 16;
                        l->pages = realloc(l->pages, capacity * page_rows * sizeof *l->pages);
                        ck_assert_ptr_nonnull(l->pages);
                        memset(l->pages + l->pages_capacity * page_rows, -1,
                               (capacity - l->pages_capacity) * page_rows * sizeof *l->pages);
                        l->pages_capacity = capacity;
                }
                size_t count;
                memset(l->pages + page * page_rows, -1, page_rows * sizeof *l->pages);
                ck_ok(dci_index_page_ids(l->index, changed[i], l->pages + page * page_rows, &count));
        }
        l->version = now;
        size_t found = 0;
        for (size_t page = 0; page < l->pages_capacity; page++) {
                int64_t ids[256];
                size_t count = 0;
                if (page < l->index->tree->n_pages_ever)
                        ck_ok(dci_index_page_ids(l->index, (int32_t)page, ids, &count));
                for (size_t i = 0; i < page_rows; i++)
                        ck_assert_int_eq(l->pages[page * page_rows + i], i < count ? ids[i] : -1);
                found += count;
        }
        ck_assert_uint_eq(found, l->model.n);
}

/* What is loaded is what was saved, to the byte, and lives on in its place. */
static void reload(life *l)
{
        size_t n_bytes, again;
        ck_ok(dci_index_save_memory(l->index, 0, NULL, &n_bytes));
        unsigned char *first = malloc(n_bytes), *second = malloc(n_bytes);
        ck_ok(dci_index_save_memory(l->index, n_bytes, first, &again));
        ck_assert_uint_eq(again, n_bytes);
        dci_index *loaded = NULL;
        ck_ok(dci_index_load_memory(l->context, first, n_bytes, &loaded));
        ck_ok(dci_index_save_memory(loaded, n_bytes, second, &again));
        ck_assert_uint_eq(again, n_bytes);
        ck_assert(memcmp(first, second, n_bytes) == 0);
        if (l->config.kind == DCI_KIND_MDCI)
                tree_equal(l->index, loaded);
        dci_index_destroy(l->index);
        l->index = loaded;
        free(first);
        free(second);
}

/* Codes are fitted to some queries, where there are codes and rows. */
static void fit(life *l)
{
        float queries[MOST_DIM * 3];
        bool any = false;
        for (size_t i = 0; i < 3; i++)
                draw_row(l, queries + i * l->config.dim);
        for (size_t i = 0; i < 3 * l->config.dim; i++)
                any = any || queries[i] != 0.0f;
        if (any && l->config.sketch_bits != 0 && l->model.n > 0)
                ck_ok(dci_index_fit(l->index, 3, queries, l->config.dim));
}

static void run_sequence(uint64_t seed)
{
        life l;
        begin(&l, seed);
        const size_t n = 20 + below(&l, 60);
        const size_t bias = 2 + below(&l, 3); /* some sequences shrink, some grow */
        for (size_t step = 0; step < n; step++) {
                switch (below(&l, 8)) {
                case 0:
                        drop(&l);
                        break;
                case 1:
                        bias == 2 ? drop(&l) : add(&l);
                        break;
                case 2:
                case 3:
                case 4:
                        add(&l);
                        break;
                default:
                        search(&l);
                        break;
                }
                ck_ok(dci_index_check(l.index, DCI_CHECK_FULL, NULL));
                if (below(&l, 3) == 0)
                        follow(&l);
                if (below(&l, 10) == 0)
                        reload(&l);
                if (below(&l, 10) == 0)
                        fit(&l);
        }
        if (below(&l, 2) == 0)
                while (l.model.n > 0)
                        drop(&l);
        search(&l);
        end(&l);
}

static void stop(int signal_number)
{
        (void)signal_number;
        interrupted = 1;
}

START_TEST(sequences_of_operations_agree_with_the_model)
{
        for (uint64_t i = 0; (n_sequences == 0 || i < n_sequences) && !interrupted; i++) {
                if (n_sequences == 0 && i % 1000 == 0)
                        fprintf(stderr, "fuzz_index: seed %llu\n", (unsigned long long)(first_seed + i));
                run_sequence(first_seed + i);
        }
}
END_TEST

int main(int argc, char **argv)
{
        if (argc > 1)
                first_seed = strtoull(argv[1], NULL, 10);
        if (argc > 2)
                n_sequences = strtoull(argv[2], NULL, 10);
        signal(SIGINT, stop);
        signal(SIGTERM, stop);
        Suite *suite = suite_create("fuzz_index");
        TCase *tcase = tcase_create("sequences");
        tcase_set_timeout(tcase, n_sequences == 0 ? 1e9 : 300);
        tcase_add_test(tcase, sequences_of_operations_agree_with_the_model);
        suite_add_tcase(suite, tcase);
        return test_main(suite);
}
