/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * How much stack calls take: with one thread all of their work is done on the caller's, which is painted beforehand. A thread with 48 KiB
 * runs every call (base.h).
 */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/check.h"
#include "dci/file.h"
#include "tests/kv_fixture.h"

/* What a call may take of 48 KiB: the rest is for the caller's own frames and what the system keeps on a thread's stack. */
#define MOST ((size_t)32 << 10)
#define STACK ((size_t)512 << 10)
#define PAINT 0xb7

static size_t deepest;

/* Calls run(arg) on a painted stack. Its frames are what a thread that does nothing leaves unpainted, subtracted. */
static size_t depth_of(void *(*run)(void *), void *arg)
{
        unsigned char *stack = aligned_alloc(4096, STACK);
        pthread_attr_t attributes;
        pthread_t thread;
        size_t untouched = 0;
        ck_assert_ptr_nonnull(stack);
        memset(stack, PAINT, STACK);
        ck_assert_int_eq(pthread_attr_init(&attributes), 0);
        ck_assert_int_eq(pthread_attr_setstack(&attributes, stack, STACK), 0);
        ck_assert_int_eq(pthread_create(&thread, &attributes, run, arg), 0);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        pthread_attr_destroy(&attributes);
        while (untouched < STACK && stack[untouched] == PAINT)
                untouched++;
        free(stack);
        return STACK - untouched;
}

static void *nothing(void *arg)
{
        return arg;
}

static void check_depth(void *(*run)(void *), void *arg, const char *what)
{
        const size_t depth = depth_of(run, arg) - depth_of(nothing, NULL);
        deepest = depth > deepest ? depth : deepest;
        if (getenv("DCI_TEST_LONG") != NULL)
                printf("%-40s %6zu\n", what, depth);
        /* A sanitizer's frames are larger. */
        ck_assert_msg(UNDER_SANITIZER || depth <= MOST, "%s takes %zu bytes of stack", what, depth);
}

/* --- indexes ------------------------------------------------------------------------------------------------------------- */

enum { N = 1500, DIM = 72, Q = 24, K = 10 };

typedef struct world {
        dci_context *context;
        dci_index *index;
        const float *rows, *queries;
        size_t first, n, n_queries;
        dci_search_params params;
        int32_t result;
        float radius;
} world;

static void *add(void *arg)
{
        const world *w = arg;
        ck_ok(dci_index_add(w->index, w->n, w->rows + w->first * DIM, DIM, NULL, NULL));
        return NULL;
}

static void *search(void *arg)
{
        const world *w = arg;
        static int64_t ids[Q * K];
        static float scores[Q * K];
        ck_ok(dci_index_search(w->index, w->n_queries, w->queries, DIM, K, &w->params, ids, scores));
        return NULL;
}

static void *search_group(void *arg)
{
        const world *w = arg;
        static int64_t ids[Q * K];
        static float scores[Q * K];
        ck_ok(dci_index_search_group(w->index, Q / 8, 8, w->queries, DIM, K, w->result, &w->params, ids, scores));
        return NULL;
}

static void *range_search(void *arg)
{
        const world *w = arg;
        dci_range_result result;
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_ok(dci_index_range_search(w->index, Q, w->queries, DIM, w->radius, &w->params, &result));
        dci_range_result_free(&result);
        return NULL;
}

static void *tune(void *arg)
{
        const world *w = arg;
        ck_ok(dci_index_tune(w->index, Q, w->queries, DIM, K, 0.9, NULL));
        return NULL;
}

static void *fit(void *arg)
{
        const world *w = arg;
        ck_ok(dci_index_fit(w->index, Q, w->queries, DIM));
        return NULL;
}

static void *check_save_load(void *arg)
{
        const world *w = arg;
        size_t n_bytes;
        dci_index *loaded = NULL;
        ck_ok(dci_index_check(w->index, DCI_CHECK_FULL, NULL));
        ck_ok(dci_index_save_memory(w->index, 0, NULL, &n_bytes));
        void *bytes = test_room(n_bytes, 1);
        ck_ok(dci_index_save_memory(w->index, n_bytes, bytes, &n_bytes));
        ck_ok(dci_index_load_memory(w->context, bytes, n_bytes, &loaded));
        dci_index_destroy(loaded);
        free(bytes);
        return NULL;
}

static void *take_out(void *arg)
{
        const world *w = arg;
        int64_t ids[40];
        for (int64_t i = 0; i < 40; i++)
                ids[i] = i * 3;
        ck_ok(dci_index_remove(w->index, 40, ids));
        return NULL;
}

static const struct form {
        const char *name;
        int32_t kind, metric, dtype, bits, simple;
} forms[] = {{"flat l2", DCI_KIND_FLAT, DCI_METRIC_L2, DCI_F32, 0, 0},
             {"flat cosine f16", DCI_KIND_FLAT, DCI_METRIC_COSINE, DCI_F16, 0, 0},
             {"flat l2, 1 bit", DCI_KIND_FLAT, DCI_METRIC_L2, DCI_F32, 1, 0},
             {"flat cosine, 3 bits", DCI_KIND_FLAT, DCI_METRIC_COSINE, DCI_F32, 3, 0},
             {"flat ip bf16, 8 bits", DCI_KIND_FLAT, DCI_METRIC_IP, DCI_BF16, 8, 0},
             {"pdci ip", DCI_KIND_PDCI, DCI_METRIC_IP, DCI_F32, 0, 0},
             {"pdci l2, 4 bits", DCI_KIND_PDCI, DCI_METRIC_L2, DCI_F32, 4, 0},
             {"mdci l2", DCI_KIND_MDCI, DCI_METRIC_L2, DCI_F32, 0, 0},
             {"mdci ip, 5 simple", DCI_KIND_MDCI, DCI_METRIC_IP, DCI_F32, 0, 5},
             {"mdci cosine, 4 bits", DCI_KIND_MDCI, DCI_METRIC_COSINE, DCI_F32, 4, 0}};

static void check_searches(world *w, const char *name)
{
        char what[80];
        for (size_t guaranteed = 0; guaranteed < 2; guaranteed++) {
                ck_ok(dci_search_params_init(&w->params, sizeof w->params));
                w->params.guarantee = guaranteed == 0 ? 0.0 : 0.9;
                w->params.prop_to_visit = w->params.prop_to_retrieve = guaranteed == 0 ? 1.0 : 0.3;
                snprintf(what, sizeof what, "%s: search%s", name, guaranteed ? ", guarantee" : "");
                w->n_queries = 1;
                check_depth(search, w, what);
                w->n_queries = Q;
                check_depth(search, w, what);
                snprintf(what, sizeof what, "%s: group%s", name, guaranteed ? ", guarantee" : "");
                w->result = DCI_GROUP_EACH;
                check_depth(search_group, w, what);
                snprintf(what, sizeof what, "%s: union%s", name, guaranteed ? ", guarantee" : "");
                w->result = DCI_GROUP_UNION;
                check_depth(search_group, w, what);
                snprintf(what, sizeof what, "%s: range%s", name, guaranteed ? ", guarantee" : "");
                check_depth(range_search, w, what);
        }
}

/* Loops over instruction sets and forms. */
START_TEST(an_index_needs_little_stack)
{
        const struct form *f = &forms[(size_t)_i % COUNT(forms)];
        world w = {.context = test_context_of_level(_i / (int)COUNT(forms))};
        dci_index_config config;
        char what[80];
        ck_ok(dci_index_config_init(&config, sizeof config));
        config.kind = f->kind;
        config.metric = f->metric;
        config.dtype = f->dtype;
        config.add_dtype = config.query_dtype = DCI_F32;
        config.dim = DIM;
        config.sketch_bits = f->bits;
        config.cell_simp_indices = (size_t)f->simple;
        w.rows = test_normal(N, DIM, 1);
        w.queries = test_normal(Q, DIM, 2);
        w.radius = f->metric == DCI_METRIC_L2 ? 120.0f : 0.2f;
        ck_ok(dci_context_set_threads(w.context, 1));
        ck_ok(dci_index_create(w.context, &config, &w.index));
        snprintf(what, sizeof what, "%s: add", f->name);
        w.n = N - 100;
        check_depth(add, &w, what);
        w.first = w.n;
        w.n = 100;
        check_depth(add, &w, what);
        check_searches(&w, f->name);
        if (f->bits != 0) {
                snprintf(what, sizeof what, "%s: fit", f->name);
                check_depth(fit, &w, what);
                check_searches(&w, f->name);
        }
        snprintf(what, sizeof what, "%s: tune", f->name);
        check_depth(tune, &w, what);
        snprintf(what, sizeof what, "%s: check, save, load", f->name);
        check_depth(check_save_load, &w, what);
        snprintf(what, sizeof what, "%s: remove", f->name);
        check_depth(take_out, &w, what);
        printf("%s: %zu bytes at most\n", f->name, deepest);
        dci_index_destroy(w.index);
        dci_context_destroy(w.context);
        free((void *)(uintptr_t)w.rows);
        free((void *)(uintptr_t)w.queries);
}
END_TEST

/* --- k-means, sketches, caches ------------------------------------------------------------------------------------------- */

typedef struct clustering {
        dci_context *context;
        dci_kmeans_config config;
        dci_kmeans_input input;
        dci_kmeans_result result;
} clustering;

static void *cluster(void *arg)
{
        const clustering *c = arg;
        ck_ok(dci_kmeans(c->context, &c->config, &c->input, NULL, &c->result));
        return NULL;
}

/* Loops over instruction sets. */
START_TEST(kmeans_needs_little_stack)
{
        enum { CLUSTERS = 40 };
        float *rows = test_normal(N, DIM, 3);
        int32_t labels[N];
        clustering c = {.context = test_context_of_level(_i)};
        ck_ok(dci_context_set_threads(c.context, 1));
        for (dci_metric metric = DCI_METRIC_L2; metric <= DCI_METRIC_COSINE; metric++) {
                for (size_t capacity = 0; capacity <= 64; capacity += 64) {
                        char what[80];
                        ck_ok(dci_kmeans_config_init(&c.config, sizeof c.config));
                        ck_ok(dci_kmeans_input_init(&c.input, sizeof c.input));
                        ck_ok(dci_kmeans_result_init(&c.result, sizeof c.result));
                        c.config.dim = DIM;
                        c.config.n_clusters = CLUSTERS;
                        c.config.metric = metric;
                        c.config.capacity = capacity;
                        c.input.n = N;
                        c.input.rows = rows;
                        c.result.labels = labels;
                        snprintf(what, sizeof what, "kmeans, metric %d, capacity %zu", (int)metric, capacity);
                        check_depth(cluster, &c, what);
                }
        }
        printf("k-means: %zu bytes at most\n", deepest);
        dci_context_destroy(c.context);
        free(rows);
}
END_TEST

static void *sketch(void *arg)
{
        world *w = arg;
        dci_sketch_config config;
        dci_sketch *sketch = NULL;
        static int64_t found[Q * K];
        static float values[Q * N];
        ck_ok(dci_sketch_config_init(&config, sizeof config));
        config.dim = DIM;
        config.bits = 4;
        ck_ok(dci_sketch_create(w->context, &config, &sketch));
        ck_ok(dci_sketch_append(sketch, N, w->rows, DIM));
        ck_ok(dci_sketch_search(sketch, Q, w->queries, DIM, K, found, NULL));
        ck_ok(dci_sketch_fit(sketch, N, w->rows, DIM, Q, w->queries, DIM));
        ck_ok(dci_sketch_search(sketch, Q, w->queries, DIM, K, found, NULL));
        ck_ok(dci_sketch_score(sketch, Q, w->queries, DIM, 0, N, values, N));
        ck_ok(dci_sketch_bound(sketch, Q, w->queries, DIM, 0, N, 0.9, values, N));
        dci_sketch_destroy(sketch);
        return NULL;
}

/* Loops over instruction sets. */
START_TEST(a_sketch_needs_little_stack)
{
        world w = {.context = test_context_of_level(_i)};
        ck_ok(dci_context_set_threads(w.context, 1));
        w.rows = test_normal(N, DIM, 1);
        w.queries = test_normal(Q, DIM, 2);
        check_depth(sketch, &w, "sketch");
        printf("sketch: %zu bytes at most\n", deepest);
        dci_context_destroy(w.context);
        free((void *)(uintptr_t)w.rows);
        free((void *)(uintptr_t)w.queries);
}
END_TEST

typedef struct cache {
        dci_context *context;
        dci_kv_config config;
        kv_data data;
} cache;

enum { PROMPT = 400, DECODED = 60 };

static void *decode(void *arg)
{
        cache *c = arg;
        dci_kv *kv = kv_create(c->context, &c->config);
        const int64_t sequence = kv_begin(kv, &c->data, PROMPT);
        kv_decode_all(kv, sequence, &c->data, PROMPT, DECODED);
        ck_ok(dci_kv_maintain(kv, 1, &sequence));
        const int64_t fork = kv_fork_at(kv, sequence, PROMPT - 50);
        ck_ok(dci_kv_truncate(kv, sequence, PROMPT / 2));
        ck_ok(dci_kv_maintain(kv, 1, &fork));
        ck_ok(dci_kv_check(kv, DCI_CHECK_FULL, NULL));
        dci_kv_destroy(kv);
        return NULL;
}

/* Loops over instruction sets and presets. */
START_TEST(a_cache_needs_little_stack)
{
        const int32_t preset = kv_presets[_i % KV_N_KINDS];
        cache c = {.context = test_context_of_level(_i / KV_N_KINDS), .config = kv_small(preset)};
        char what[80];
        ck_ok(dci_context_set_threads(c.context, 1));
        c.data = kv_random(&c.config, PROMPT + DECODED, 5);
        snprintf(what, sizeof what, "kv %s", dci_kv_preset_name(preset));
        check_depth(decode, &c, what);
        printf("%s: %zu bytes at most\n", what, deepest);
        kv_data_free(&c.data);
        dci_context_destroy(c.context);
}
END_TEST

int main(void)
{
        const int n = (int)test_n_isas();
        Suite *suite = suite_create("small stacks");
        TCase *tcase = test_case_with(suite, "stacks", 120, NULL, NULL);
        tcase_add_loop_test(tcase, an_index_needs_little_stack, 0, n * (int)COUNT(forms));
        tcase_add_loop_test(tcase, kmeans_needs_little_stack, 0, n);
        tcase_add_loop_test(tcase, a_sketch_needs_little_stack, 0, n);
        tcase_add_loop_test(tcase, a_cache_needs_little_stack, 0, n * KV_N_KINDS);
        return test_main(suite);
}
