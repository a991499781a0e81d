/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Hashes of what every part of the library answers, one line each: two builds, compilers or machines that are to give the same bits print
 * the same lines. It uses the public interface and nothing else, so that it can be built where no test library is. The first line says
 * which instruction set was chosen. All inputs are made of whole numbers, without the C library's functions.
 */
#include <dci/dci.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1200, DIM = 48, QUERIES = 24, K = 8, CLUSTERS = 20, REMOVED = 100 };
enum { LAYERS = 2, KV_HEADS = 2, QUERY_HEADS = 4, KV_DIM = 32, PROMPT = 200, STEPS = 24, OBSERVED = 16 };
enum { KV_ROW = KV_HEADS * KV_DIM, KV_QUERY = QUERY_HEADS * KV_DIM };

static float rows[N * DIM], queries[QUERIES * DIM];
static dci_context *context;

static void must(dci_status status)
{
        if (status == DCI_OK)
                return;
        fprintf(stderr, "digest: %s: %s\n", dci_status_name(status), dci_last_error());
        exit(1);
}

static uint64_t mix(uint64_t hash, const void *data, size_t n_bytes)
{
        const unsigned char *bytes = data;
        for (size_t i = 0; i < n_bytes; i++)
                hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
        return hash;
}
#define BEGIN UINT64_C(0xcbf29ce484222325)

/* Exact in float: 12 bits each, and a common part as attention keys have it. */
static void fill(float *out, size_t n, size_t dim, uint32_t seed)
{
        uint32_t state = seed;
        for (size_t i = 0; i < n * dim; i++) {
                state = state * 1664525u + 1013904223u;
                out[i] = (float)((int32_t)(state >> 20) - 2048) / 1024.0f + (i % dim < 4 ? 1.5f : 0.0f);
        }
}

static void say(const char *what, int number, const char *part, uint64_t hash)
{
        printf("%s %d %s %016llx\n", what, number, part, (unsigned long long)hash);
}

/* --- indexes -------------------------------------------------------------------------------------------------------- */

static uint64_t searched(const dci_index *index)
{
        int64_t ids[QUERIES * K];
        float scores[QUERIES * K];
        must(dci_index_search(index, QUERIES, queries, DIM, K, NULL, ids, scores));
        return mix(mix(BEGIN, ids, sizeof ids), scores, sizeof scores);
}

static uint64_t saved(const dci_index *index)
{
        size_t n_bytes = 0;
        (void)dci_index_save_memory(index, 0, NULL, &n_bytes); /* says how many */
        void *bytes = malloc(n_bytes);
        if (bytes == NULL)
                exit(1);
        must(dci_index_save_memory(index, n_bytes, bytes, &n_bytes));
        const uint64_t hash = mix(BEGIN, bytes, n_bytes);
        free(bytes);
        return hash;
}

static void digest_index(dci_index_kind kind, int32_t metric, int32_t bits)
{
        const int number = (int)kind * 100 + (int)metric * 10 + (int)bits;
        int64_t gone[REMOVED];
        dci_index_config config;
        dci_index *index = NULL;
        must(dci_index_config_init(&config, sizeof config));
        config.dim = DIM;
        config.kind = kind;
        config.metric = metric;
        config.sketch_bits = bits;
        must(dci_index_create(context, &config, &index));
        must(dci_index_add(index, N - 200, rows, DIM, NULL, NULL));
        must(dci_index_add(index, 200, rows + (N - 200) * DIM, DIM, NULL, NULL));
        say("index", number, "search", searched(index));
        for (size_t i = 0; i < REMOVED; i++)
                gone[i] = (int64_t)(7 * i);
        must(dci_index_remove(index, REMOVED, gone));
        say("index", number, "removed", searched(index));
        say("index", number, "file", saved(index));
        dci_index_destroy(index);
}

/* --- clusters and codes ----------------------------------------------------------------------------------------------- */

static void digest_kmeans(int32_t init)
{
        static int32_t labels[N];
        static float centroids[CLUSTERS * DIM];
        dci_kmeans_config config;
        dci_kmeans_input input;
        dci_kmeans_result result;
        must(dci_kmeans_config_init(&config, sizeof config));
        must(dci_kmeans_input_init(&input, sizeof input));
        must(dci_kmeans_result_init(&result, sizeof result));
        config.dim = DIM;
        config.n_clusters = CLUSTERS;
        config.init = init;
        input.n = N;
        input.rows = rows;
        result.labels = labels;
        result.centroids = centroids;
        must(dci_kmeans(context, &config, &input, NULL, &result));
        say("kmeans", (int)init, "labels", mix(BEGIN, labels, sizeof labels));
        say("kmeans", (int)init, "centroids", mix(BEGIN, centroids, sizeof centroids));
}

static void digest_sketch(int32_t bits)
{
        static float scores[QUERIES * N];
        dci_sketch_config config;
        dci_sketch *sketch = NULL;
        must(dci_sketch_config_init(&config, sizeof config));
        config.dim = DIM;
        config.bits = bits;
        must(dci_sketch_create(context, &config, &sketch));
        must(dci_sketch_append(sketch, N / 2, rows, DIM));
        must(dci_sketch_score(sketch, QUERIES, queries, DIM, 0, N / 2, scores, N));
        say("sketch", (int)bits, "random", mix(BEGIN, scores, (size_t)(N / 2) * sizeof *scores));
        must(dci_sketch_fit(sketch, N, rows, DIM, QUERIES, queries, DIM));
        must(dci_sketch_append(sketch, N / 2, rows + (size_t)(N / 2) * DIM, DIM));
        must(dci_sketch_score(sketch, QUERIES, queries, DIM, 0, N, scores, N));
        say("sketch", (int)bits, "learned", mix(BEGIN, scores, sizeof scores));
        dci_sketch_destroy(sketch);
}

/* --- caches ----------------------------------------------------------------------------------------------------------- */

static float keys[(PROMPT + STEPS) * KV_ROW], values[(PROMPT + STEPS) * KV_ROW];
static float kv_queries[(PROMPT + STEPS) * KV_QUERY];

static void append(dci_kv *kv, int64_t sequence, size_t layer, size_t from, size_t n)
{
        dci_kv_rows at;
        must(dci_kv_rows_init(&at, sizeof at));
        at.keys = keys + from * KV_ROW;
        at.values = values + from * KV_ROW;
        must(dci_kv_append(kv, layer, 1, &sequence, &n, &at));
}

static void prompt(dci_kv *kv, int64_t sequence)
{
        const size_t n = PROMPT;
        must(dci_kv_reserve(kv, 1, &sequence, &n));
        for (size_t layer = 0; layer < LAYERS; layer++) {
                append(kv, sequence, layer, 0, n);
                must(dci_kv_end_prompt(kv, layer, sequence, OBSERVED,
                                       kv_queries + (size_t)(PROMPT - OBSERVED) * KV_QUERY, KV_DIM));
        }
        must(dci_kv_step_end(kv, 1, &sequence));
}

static uint64_t decode(dci_kv *kv, int64_t sequence, size_t token, dci_kv_plan *plan, uint64_t hash)
{
        float out[KV_QUERY];
        must(dci_kv_reserve(kv, 1, &sequence, NULL));
        for (size_t layer = 0; layer < LAYERS; layer++) {
                const float *q = kv_queries + token * KV_QUERY;
                append(kv, sequence, layer, token, 1);
                must(dci_kv_plan_make(kv, layer, 1, &sequence, q, KV_DIM, plan));
                must(dci_kv_attend(kv, layer, 1, &sequence, q, KV_DIM, plan, out, KV_DIM, NULL));
                hash = mix(hash, out, sizeof out);
        }
        must(dci_kv_step_end(kv, 1, &sequence));
        must(dci_kv_maintain(kv, 1, &sequence));
        return hash;
}

static void digest_kv(int32_t preset)
{
        dci_kv_config config;
        dci_kv_plan plan;
        dci_kv *kv = NULL;
        int64_t sequence;
        must(dci_kv_config_init(&config, sizeof config));
        config.preset = preset;
        config.n_layers = LAYERS;
        config.n_kv_heads = KV_HEADS;
        config.n_query_heads = QUERY_HEADS;
        config.dim_k = KV_DIM;
        config.page_tokens = 8;
        config.budget = 96;
        config.rollback = config.window = 16;
        config.dense_layers = 0;
        must(dci_kv_create(context, &config, &kv));
        must(dci_kv_plan_init(&plan, sizeof plan));
        must(dci_kv_plan_create(kv, 1, &plan));
        must(dci_kv_open(kv, &sequence));
        prompt(kv, sequence);
        uint64_t hash = BEGIN;
        for (size_t t = 0; t < STEPS; t++)
                hash = decode(kv, sequence, PROMPT + t, &plan, hash);
        say("kv", (int)preset, "decode", hash);
        dci_kv_plan_destroy(kv, &plan);
        dci_kv_destroy(kv);
}

int main(void)
{
        dci_context_config config;
        fill(rows, N, DIM, 1);
        fill(queries, QUERIES, DIM, 2);
        fill(keys, PROMPT + STEPS, KV_ROW, 3);
        fill(values, PROMPT + STEPS, KV_ROW, 4);
        fill(kv_queries, PROMPT + STEPS, KV_QUERY, 5);
        must(dci_context_config_init(&config, sizeof config));
        config.n_threads = 3;
        must(dci_context_create(&config, &context));
        printf("isa %s\n", dci_isa_name(dci_context_isa(context)));
        for (dci_index_kind kind = DCI_KIND_FLAT; kind <= DCI_KIND_MDCI; kind++)
                for (int32_t metric = DCI_METRIC_L2; metric <= DCI_METRIC_COSINE; metric++)
                        for (int32_t bits = 0; bits <= 4; bits += 4)
                                digest_index(kind, metric, bits);
        for (int32_t init = DCI_KMEANS_INIT_RANDOM; init <= DCI_KMEANS_INIT_PLUSPLUS; init++)
                digest_kmeans(init);
        for (int32_t bits = 1; bits <= 4; bits++)
                digest_sketch(bits);
        for (int32_t preset = DCI_KV_FULL; preset <= DCI_KV_PRESETS; preset++)
                digest_kv(preset);
        dci_context_destroy(context);
        return 0;
}
