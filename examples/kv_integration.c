/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A serving engine in miniature on dci_kv. The engine has its own paged cache, its own block tables and its own attention;
 * dci_kv says which tokens to attend to. Two requests share a prefix, tokens are decoded and drafted, and outputs are compared
 * with dci_kv_attend, and with dense attention where all tokens are attended to. Exit code 1 if they differ.
 * docs/kv-integration.md quotes the marked parts. There is no model: keys, values and queries are random.
 */
#include <dci/dci.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 64, SLOTS = 16, BLOCKS = 192, MOST_REQUESTS = 2 };
enum { PROMPT = 240, SHARED = 160, MORE = 900, STEPS = 24, DRAFTED = 4, REJECTED = 3, OBSERVED = 32 };

/* One request, as the engine knows it. */
typedef struct request {
        int64_t sequence;       /* of dci_kv */
        int32_t blocks[BLOCKS]; /* the engine's block table */
        size_t n_blocks, n_tokens;
} request;

typedef struct engine {
        bool hnd;                /* how the cache lies */
        uint16_t *cache[LAYERS]; /* bf16 */
        int users[BLOCKS];       /* requests that have a block */
        uint64_t random;
        dci_context *context;
        dci_kv *kv;
        dci_kv_plan plan;
        double worst_same, worst_exact, worst_sparse; /* differences that were seen */
        size_t n_exact, n_sparse;
} engine;

static void must(dci_status status)
{
        if (status == DCI_OK)
                return;
        fprintf(stderr, "%s: %s\n", dci_status_name(status), dci_last_error());
        exit(1);
}

static double greater(double a, double b)
{
        return a > b ? a : b;
}

/* --- the engine's cache --------------------------------------------------------------------------------------------- */

/* quote: cache */
/* Where the engine keeps the key (which 0) or value (which 1) of a token: NHD as vLLM has it with FlashAttention,
 * [2][blocks][slots][heads][dim], or HND as FlashInfer takes it, [blocks][2][heads][slots][dim]. */
static uint16_t *row_at(const engine *e, size_t layer, size_t which, size_t block, size_t slot, size_t head)
{
        const size_t row = e->hnd ? ((block * 2 + which) * KV_HEADS + head) * SLOTS + slot
                                  : ((which * BLOCKS + block) * SLOTS + slot) * KV_HEADS + head;
        return e->cache[layer] + row * DIM;
}

/* The same for dci_kv. */
static void describe_cache(const engine *e, void *keys[LAYERS], void *values[LAYERS], dci_kv_layout *layout)
{
        must(dci_kv_layout_init(layout, sizeof *layout));
        for (size_t layer = 0; layer < LAYERS; layer++) {
                keys[layer] = row_at(e, layer, 0, 0, 0, 0);
                values[layer] = row_at(e, layer, 1, 0, 0, 0);
        }
        layout->keys = keys; /* both arrays are copied */
        layout->values = values;
        layout->n_blocks = BLOCKS;
        layout->key_page_stride = e->hnd ? 2 * KV_HEADS * SLOTS * DIM : SLOTS * KV_HEADS * DIM;
        layout->key_head_stride = e->hnd ? SLOTS * DIM : DIM;
        layout->key_slot_stride = e->hnd ? DIM : KV_HEADS * DIM;
        layout->value_page_stride = layout->key_page_stride;
        layout->value_head_stride = layout->key_head_stride;
        layout->value_slot_stride = layout->key_slot_stride;
        layout->blocks_by = DCI_KV_BLOCKS_BY_CALLER;
}

static void open_kv(engine *e)
{
        void *keys[LAYERS], *values[LAYERS];
        dci_kv_layout layout;
        dci_kv_config config;
        describe_cache(e, keys, values, &layout);
        must(dci_context_create(NULL, &e->context));
        must(dci_kv_config_init(&config, sizeof config));
        config.n_layers = LAYERS;
        config.n_query_heads = QUERY_HEADS;
        config.n_kv_heads = KV_HEADS;
        config.dim_k = DIM;
        config.dtype = DCI_BF16;
        config.page_tokens = SLOTS; /* the engine's block size */
        config.preset = DCI_KV_SKETCH_LOWBIT;
        config.budget = 256;
        config.dense_layers = 1;
        config.layout = &layout;
        must(dci_kv_create(e->context, &config, &e->kv));
        must(dci_kv_plan_init(&e->plan, sizeof e->plan));
        must(dci_kv_plan_create(e->kv, MOST_REQUESTS, &e->plan));
}
/* end of quote */

/* quote: blocks */
/* Blocks for n more tokens, from the engine's own allocator; the engine assigns them before dci_kv_reserve. */
static void get_blocks(engine *e, request *r, size_t n)
{
        const size_t first = r->n_blocks;
        for (int32_t block = 0; r->n_blocks * SLOTS < r->n_tokens + n; block++) {
                if (block == BLOCKS) {
                        fprintf(stderr, "the engine is out of blocks\n");
                        exit(1);
                }
                if (e->users[block] > 0)
                        continue;
                e->users[block] = 1;
                r->blocks[r->n_blocks++] = block;
        }
        must(dci_kv_assign_blocks(e->kv, r->sequence, r->n_blocks - first, r->blocks + first));
}

/* Keeps the blocks of n tokens. Closing or truncating a sequence tells dci_kv. */
static void put_blocks(engine *e, request *r, size_t n)
{
        while (r->n_blocks * SLOTS >= n + SLOTS)
                e->users[r->blocks[--r->n_blocks]]--;
        r->n_tokens = n;
}
/* end of quote */

/* --- what stands for the model ---------------------------------------------------------------------------------------- */

static float from_bf16(uint16_t bits)
{
        const uint32_t wide = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &wide, sizeof x);
        return x;
}

static uint16_t to_bf16(float x)
{
        uint32_t wide;
        memcpy(&wide, &x, sizeof wide);
        return (uint16_t)(wide >> 16);
}

/* From -1 to 1. */
static float noise(engine *e)
{
        e->random = e->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (float)((double)(e->random >> 11) * 0x1p-52 - 1.0);
}

/* The engine's kernel that writes new tokens' rows into its cache. */
static void write_rows(engine *e, const request *r, size_t layer, size_t first, size_t n)
{
        for (size_t t = first; t < first + n; t++)
                for (size_t head = 0; head < KV_HEADS; head++)
                        for (size_t which = 0; which < 2; which++) {
                                uint16_t *row = row_at(e, layer, which, (size_t)r->blocks[t / SLOTS], t % SLOTS, head);
                                for (size_t j = 0; j < DIM; j++)
                                        row[j] = to_bf16(noise(e));
                        }
}

static void make_queries(engine *e, size_t n, float *queries)
{
        for (size_t i = 0; i < n * QUERY_HEADS * DIM; i++)
                queries[i] = 3.0f * noise(e);
}

/* --- the engine's attention ------------------------------------------------------------------------------------------- */

/* One query head: a running softmax. */
typedef struct running {
        double most, sum, acc[DIM];
} running;

static void add_token(const engine *e, size_t layer, size_t head, size_t place, const float *query, running *out)
{
        const uint16_t *key = row_at(e, layer, 0, place / SLOTS, place % SLOTS, head);
        const uint16_t *value = row_at(e, layer, 1, place / SLOTS, place % SLOTS, head);
        double score = 0.0;
        for (size_t j = 0; j < DIM; j++)
                score += (double)query[j] * (double)from_bf16(key[j]);
        score /= sqrt((double)DIM);
        const double most = greater(score, out->most), before = exp(out->most - most), term = exp(score - most);
        for (size_t j = 0; j < DIM; j++)
                out->acc[j] = out->acc[j] * before + term * (double)from_bf16(value[j]);
        out->sum = out->sum * before + term;
        out->most = most;
}

/* quote: attention */
/* Tokens [first, end) of a request, through its block table. A place is block * SLOTS + slot: what engines call a slot mapping. */
static void add_range(const engine *e, const request *r, size_t layer, size_t head, int32_t first, int32_t end,
                      const float *query, running *out)
{
        for (int32_t t = first; t < end; t++)
                add_token(e, layer, head, (size_t)(r->blocks[t / SLOTS] * SLOTS + t % SLOTS), query, out);
}

/* One query head of request number i over the plan's tokens, merged with the tail. Returns the log of the sum of exponentials. */
static double attend_to_plan(const engine *e, const request *r, size_t i, size_t layer, size_t query_head,
                             const float *query, double *out)
{
        const dci_kv_plan *plan = &e->plan;
        const size_t head = query_head / (QUERY_HEADS / KV_HEADS), list = i * plan->n_lists + head;
        running exact = {.most = -INFINITY};
        add_range(e, r, layer, head, 0, plan->sink_end[i], query, &exact);
        for (int32_t c = 0; c < plan->counts[list]; c++) {
                /* ((block * n_kv_heads) + head) * page_tokens + slot */
                const int32_t slot = plan->slots[list * plan->stride + (size_t)c], page = slot / SLOTS;
                add_token(e, layer, head, (size_t)(page / KV_HEADS * SLOTS + slot % SLOTS), query, &exact);
        }
        add_range(e, r, layer, head, plan->recent_begin[i], plan->n_tokens[i], query, &exact);

        /* Two softmaxes over disjoint tokens are one softmax when each has the share of its sum of exponentials. */
        const size_t row = i * QUERY_HEADS + query_head;
        const double exact_lse = exact.most + log(exact.sum), tail_lse = (double)plan->tail_lse[row];
        const double most = greater(exact_lse, tail_lse);
        const double lse = most + log(exp(exact_lse - most) + exp(tail_lse - most));
        const double of_exact = exp(exact_lse - lse) / exact.sum, of_tail = exp(tail_lse - lse);
        for (size_t j = 0; j < DIM; j++)
                out[j] = of_exact * exact.acc[j] + of_tail * (double)plan->tail_out[row * DIM + j];
        return lse;
}
/* end of quote */

static void attend_to_all(const engine *e, const request *r, size_t i, size_t layer, size_t query_head,
                          const float *query, double *out)
{
        running all = {.most = -INFINITY};
        add_range(e, r, layer, query_head / (QUERY_HEADS / KV_HEADS), 0, e->plan.n_tokens[i], query, &all);
        for (size_t j = 0; j < DIM; j++)
                out[j] = all.acc[j] / all.sum;
}

/* Holds the engine's attention against dci_kv_attend, and against dense attention. */
static void compare(engine *e, size_t n, request *const *requests, const int64_t *sequences, size_t layer,
                    const float *queries)
{
        float out[MOST_REQUESTS * QUERY_HEADS * DIM], lse[MOST_REQUESTS * QUERY_HEADS];
        double mine[DIM], dense[DIM];
        must(dci_kv_attend(e->kv, layer, n, sequences, queries, DIM, &e->plan, out, DIM, lse));
        for (size_t row = 0; row < n * QUERY_HEADS; row++) {
                const size_t i = row / QUERY_HEADS, head = row % QUERY_HEADS;
                const bool whole = e->plan.recent_begin[i] == 0; /* everything is attended to */
                const double lse_off =
                        attend_to_plan(e, requests[i], i, layer, head, queries + row * DIM, mine) - (double)lse[row];
                double square = 0.0, length = 0.0;
                attend_to_all(e, requests[i], i, layer, head, queries + row * DIM, dense);
                e->worst_same = greater(e->worst_same, fabs(lse_off));
                for (size_t j = 0; j < DIM; j++) {
                        const double theirs = (double)out[row * DIM + j];
                        e->worst_same = greater(e->worst_same, fabs(mine[j] - theirs));
                        square += (theirs - dense[j]) * (theirs - dense[j]);
                        length += dense[j] * dense[j];
                }
                if (whole) {
                        e->worst_exact = greater(e->worst_exact, sqrt(square / length));
                        e->n_exact++;
                } else {
                        e->worst_sparse = greater(e->worst_sparse, sqrt(square / length));
                        e->n_sparse++;
                }
        }
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

/* quote: prompt */
/* n tokens of a prompt, whose attention is the engine's own affair. `ends`: the prompt is whole. */
static void read_prompt(engine *e, request *r, size_t n, bool ends)
{
        float queries[OBSERVED * QUERY_HEADS * DIM];
        dci_kv_rows rows;
        must(dci_kv_rows_init(&rows, sizeof rows)); /* keys NULL: they lie in the cache already */
        get_blocks(e, r, n);
        must(dci_kv_reserve(e->kv, 1, &r->sequence, &n));
        for (size_t layer = 0; layer < LAYERS; layer++) {
                write_rows(e, r, layer, r->n_tokens, n);
                must(dci_kv_append(e->kv, layer, 1, &r->sequence, &n, &rows));
                if (!ends)
                        continue;
                /* The queries of the last positions. Codes of this layer are made while the engine computes the next one. */
                make_queries(e, OBSERVED, queries);
                must(dci_kv_end_prompt(e->kv, layer, r->sequence, OBSERVED, queries, DIM));
        }
        must(dci_kv_step_end(e->kv, 1, &r->sequence));
        r->n_tokens += n;
}
/* end of quote */

/* quote: fork */
/* A request whose first n_shared tokens are those of another: whole blocks. Its prompt has ended with the other's. */
static void open_shared(engine *e, const request *from, size_t n_shared, request *r)
{
        *r = (request){.n_blocks = n_shared / SLOTS, .n_tokens = n_shared};
        must(dci_kv_fork(e->kv, from->sequence, n_shared, &r->sequence));
        for (size_t b = 0; b < r->n_blocks; b++) {
                r->blocks[b] = from->blocks[b];
                e->users[r->blocks[b]]++;
        }
}
/* end of quote */

/* quote: step */
/* The next n_each tokens of every request: one that is decoded, or several that were drafted and are judged one after another. */
static void step(engine *e, size_t n, request *const *requests, size_t n_each)
{
        float queries[MOST_REQUESTS * QUERY_HEADS * DIM];
        int64_t sequences[MOST_REQUESTS];
        size_t n_tokens[MOST_REQUESTS];
        dci_kv_rows rows;
        must(dci_kv_rows_init(&rows, sizeof rows));
        for (size_t i = 0; i < n; i++) {
                sequences[i] = requests[i]->sequence;
                n_tokens[i] = n_each;
                get_blocks(e, requests[i], n_each);
        }
        must(dci_kv_reserve(e->kv, n, sequences, n_tokens));
        for (size_t layer = 0; layer < LAYERS; layer++)
                for (size_t t = 0; t < n_each; t++) {
                        for (size_t i = 0; i < n; i++)
                                write_rows(e, requests[i], layer, requests[i]->n_tokens + t, 1);
                        must(dci_kv_append(e->kv, layer, n, sequences, NULL, &rows)); /* one token each */
                        make_queries(e, n, queries);
                        must(dci_kv_plan_make(e->kv, layer, n, sequences, queries, DIM, &e->plan));
                        compare(e, n, requests, sequences, layer, queries);
                }
        must(dci_kv_step_end(e->kv, n, sequences));
        for (size_t i = 0; i < n; i++)
                requests[i]->n_tokens += n_each;
}

/* Drafted tokens that were not accepted are forgotten. */
static void reject(engine *e, request *r, size_t n)
{
        must(dci_kv_truncate(e->kv, r->sequence, r->n_tokens - n));
        put_blocks(e, r, r->n_tokens - n);
}

/* Between steps, on another thread: codes of the tokens that left the window. */
static void *maintain(void *arg)
{
        const engine *e = arg;
        must(dci_kv_maintain(e->kv, 0, NULL)); /* all sequences that are not in the middle of a step */
        return NULL;
}
/* end of quote */

static void maintain_aside(engine *e)
{
        pthread_t thread;
        if (pthread_create(&thread, NULL, maintain, e) != 0) {
                maintain(e);
                return;
        }
        /* An engine samples its next token here. */
        pthread_join(thread, NULL);
}

/* --- all of it ---------------------------------------------------------------------------------------------------------- */

static void report(const engine *e, const request *short_one, const request *long_one)
{
        dci_kv_info info;
        dci_kv_sequence_info sequence;
        must(dci_kv_info_init(&info, sizeof info));
        must(dci_kv_sequence_info_init(&sequence, sizeof sequence));
        must(dci_kv_get_info(e->kv, &info));
        must(dci_kv_get_sequence(e->kv, long_one->sequence, &sequence));
        printf("%s cache: requests of %zu and %zu tokens, %zu blocks shared\n", e->hnd ? "HND" : "NHD",
               short_one->n_tokens, long_one->n_tokens, sequence.n_shared_blocks);
        printf("  the engine's attention over the plan and dci_kv_attend differ by %.1e at most\n", e->worst_same);
        printf("  all tokens attended to, %zu times: %.1e of the output off dense attention at most\n", e->n_exact,
               e->worst_exact);
        printf("  %zu tokens, the rest in low bits, %zu times: %.3f off at most\n", info.stride, e->n_sparse,
               e->worst_sparse);
        printf("  %zu bytes of codes and %zu of keys and values\n", info.summary_bytes,
               info.token_bytes * (short_one->n_tokens + long_one->n_tokens - SHARED));
}

/* Returns whether all is as it should be. */
static bool serve(bool hnd)
{
        engine e = {.hnd = hnd, .random = 1};
        request first = {0}, second;
        request *const both[MOST_REQUESTS] = {&first, &second};
        for (size_t layer = 0; layer < LAYERS; layer++) {
                e.cache[layer] = calloc((size_t)2 * BLOCKS * SLOTS * KV_HEADS * DIM, sizeof *e.cache[layer]);
                if (e.cache[layer] == NULL)
                        exit(1);
        }
        open_kv(&e);
        must(dci_kv_open(e.kv, &first.sequence));
        read_prompt(&e, &first, PROMPT, true);
        open_shared(&e, &first, SHARED, &second);
        read_prompt(&e, &second, MORE, false);
        maintain_aside(&e);
        for (size_t t = 0; t < STEPS; t++) {
                step(&e, MOST_REQUESTS, both, 1);
                maintain_aside(&e);
        }
        step(&e, MOST_REQUESTS, both, DRAFTED);
        for (size_t i = 0; i < MOST_REQUESTS; i++)
                reject(&e, both[i], REJECTED);
        step(&e, MOST_REQUESTS, both, 1);
        report(&e, &first, &second);
        for (size_t i = 0; i < MOST_REQUESTS; i++) {
                must(dci_kv_close(e.kv, both[i]->sequence));
                put_blocks(&e, both[i], 0);
        }
        bool good = e.worst_same < 1e-4 && e.worst_exact < 1e-4 && e.n_exact > 0 && e.n_sparse > 0;
        for (size_t block = 0; block < BLOCKS; block++)
                good = good && e.users[block] == 0;
        dci_kv_plan_destroy(e.kv, &e.plan);
        dci_kv_destroy(e.kv);
        dci_context_destroy(e.context);
        for (size_t layer = 0; layer < LAYERS; layer++)
                free(e.cache[layer]);
        return good;
}

int main(void)
{
        const bool nhd = serve(false), hnd = serve(true);
        if (!nhd || !hnd)
                fprintf(stderr, "kv_integration: outputs differ, or blocks were lost\n");
        return nhd && hnd ? 0 : 1;
}
