/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A long run with what makes real ones hard; bench/README.md has the recipe in words. Text has topics, which change at random
 * tokens, half of the time to one that was there before. A key is its topic's centre and noise, in DIM coordinates of which
 * CHANNELS are STRETCH times as wide, about a mean that turns slowly. A query seeks the key of an earlier token, and so
 * its topic; each head changes what it seeks at random steps.
 */
#include "bench/kv/kv.h"

#include <math.h>
#include <string.h>

#include "simd/convert.h"

enum { DIM = 128, GROUP = 4, CHANNELS = 4, SINKS = 4, OBSERVED = 64, RECENT = 1024 };
#define STRETCH 3.0
#define TOPIC_TOKENS 256 /* between two changes of the topic, on average */
#define TARGET_STEPS 16  /* between two changes of what a head seeks, on average */
#define KEY_NOISE 0.85
#define VALUE_NOISE 0.5
#define QUERY_NOISE 0.3
#define QUERY_GAIN 0.8 /* of the key that a query seeks */
#define SINK_KEY 4.0   /* along the direction that all queries share */
#define SINK_QUERY 0.3
#define TURN 0.78539816339744831 /* of the mean from the first token to the last: 45 degrees */

/* Streams of random numbers: of the whole, of topic i, of token i. */
enum { STREAM_MEANS, STREAM_TOPICS, STREAM_QUERIES, STREAM_FIRST };

typedef struct recipe {
        dci_rng root;
        size_t n, prompt;
        double mean[2][DIM], shared[DIM], stretch[DIM];
        int32_t *topics;      /* of each token */
        size_t target[GROUP]; /* the token that a head seeks */
        double wanted[GROUP][DIM];
} recipe;

static void draw_means(recipe *r)
{
        dci_rng rng = dci_rng_split(&r->root, STREAM_MEANS);
        for (size_t j = 0; j < DIM; j++) {
                r->mean[0][j] = dci_rng_normal(&rng);
                r->mean[1][j] = dci_rng_normal(&rng);
                r->shared[j] = dci_rng_normal(&rng);
                r->stretch[j] = 1;
        }
        /* The strong channels have means far from zero, too. */
        for (size_t c = 0; c < CHANNELS; c++) {
                const size_t j = c * DIM / CHANNELS + dci_rng_below(&rng, DIM / CHANNELS);
                r->stretch[j] = STRETCH;
                r->mean[0][j] = c % 2 == 0 ? 10 : -10;
                r->mean[1][j] = c % 3 == 0 ? 5 : -5;
        }
}

static void draw_topics(recipe *r)
{
        dci_rng rng = dci_rng_split(&r->root, STREAM_TOPICS);
        int32_t topic = 0, n_topics = 1;
        for (size_t t = 0; t < r->n; t++) {
                if (t > 0 && dci_rng_below(&rng, TOPIC_TOKENS) == 0)
                        topic = dci_rng_below(&rng, 2) == 0 ? n_topics++
                                                            : (int32_t)dci_rng_below(&rng, (uint64_t)n_topics);
                r->topics[t] = topic;
        }
}

/* Topic and token have even and odd streams. The key without mean and stretch, and the value unless NULL. */
static void draw_token(const recipe *r, size_t t, double *key, double *value)
{
        dci_rng topic = dci_rng_split(&r->root, STREAM_FIRST + 2 * (uint64_t)r->topics[t]);
        dci_rng token = dci_rng_split(&r->root, STREAM_FIRST + 2 * (uint64_t)t + 1);
        for (size_t j = 0; j < DIM; j++) {
                const double centre = dci_rng_normal(&topic);
                key[j] = centre + KEY_NOISE * dci_rng_normal(&token);
        }
        for (size_t j = 0; value != NULL && j < DIM; j++) {
                const double centre = dci_rng_normal(&topic);
                value[j] = centre + VALUE_NOISE * dci_rng_normal(&token);
        }
}

static void put_token(const recipe *r, size_t t, uint16_t *out_key, uint16_t *out_value)
{
        const double angle = TURN * (double)t / (double)r->n;
        double key[DIM], value[DIM];
        draw_token(r, t, key, value);
        for (size_t j = 0; j < DIM; j++) {
                const double mean = cos(angle) * r->mean[0][j] + sin(angle) * r->mean[1][j];
                const double sink = t < SINKS ? SINK_KEY * r->shared[j] : 0;
                out_key[j] = dci_float_to_f16((float)(mean + r->stretch[j] * (key[j] + sink)));
                out_value[j] = dci_float_to_f16((float)value[j]);
        }
}

/* Half of what is looked for is recent, the other half anywhere. */
static void put_queries(recipe *r, dci_rng *rng, size_t t, uint16_t *out)
{
        for (size_t h = 0; h < GROUP; h++) {
                if (t + OBSERVED == r->prompt || dci_rng_below(rng, TARGET_STEPS) == 0) {
                        const uint64_t reach = dci_rng_below(rng, 2) == 0 && t > RECENT ? RECENT : t;
                        r->target[h] = t - 1 - dci_rng_below(rng, reach);
                        draw_token(r, r->target[h], r->wanted[h], NULL);
                }
                for (size_t j = 0; j < DIM; j++) {
                        const double q = QUERY_GAIN * r->wanted[h][j] + SINK_QUERY * r->shared[j] +
                                         QUERY_NOISE * dci_rng_normal(rng);
                        out[h * DIM + j] = dci_float_to_f16((float)(q / r->stretch[j]));
                }
        }
}

static void fill(recipe *r, kvbench_trace *out)
{
        dci_rng rng = dci_rng_split(&r->root, STREAM_QUERIES);
        uint16_t *observed = out->observed.owned, *queries = out->queries.owned;
        bench_progress progress;
        bench_progress_begin(&progress, "synthetic run");
        draw_means(r);
        draw_topics(r);
        for (size_t t = 0; t < r->n; t++) {
                bench_progress_step(&progress, t, r->n);
                put_token(r, t, (uint16_t *)out->keys.owned + t * DIM, (uint16_t *)out->values.owned + t * DIM);
                if (t >= r->prompt)
                        put_queries(r, &rng, t, queries + (t - r->prompt) * GROUP * DIM);
                else if (t + OBSERVED >= r->prompt)
                        put_queries(r, &rng, t, observed + (t + OBSERVED - r->prompt) * GROUP * DIM);
        }
        bench_progress_end(&progress);
}

dci_status kvbench_synthetic(dci_context *helper, size_t n_tokens, uint64_t seed, kvbench_trace *out)
{
        recipe *r = dci_calloc(helper, 1, sizeof *r);
        if (r == NULL)
                return DCI_ERR_MEMORY;
        snprintf(out->name, sizeof out->name, "synthetic/%zu", n_tokens);
        r->n = out->tokens = n_tokens;
        r->prompt = out->prompt = n_tokens - n_tokens / 16;
        out->group = GROUP;
        out->scale = 1 / sqrt((double)DIM);
        dci_rng_seed(&r->root, seed);
        r->topics = dci_alloc(helper, n_tokens, sizeof *r->topics);
        const struct {
                bench_rows *rows;
                size_t n;
        } areas[] = {{&out->keys, n_tokens},
                     {&out->values, n_tokens},
                     {&out->queries, (n_tokens - out->prompt) * GROUP},
                     {&out->observed, OBSERVED * GROUP}};
        dci_status status = r->topics != NULL ? DCI_OK : DCI_ERR_MEMORY;
        for (size_t i = 0; status == DCI_OK && i < sizeof areas / sizeof *areas; i++)
                status = bench_rows_alloc(helper, out->name, DCI_F16, areas[i].n, DIM, areas[i].rows);
        if (status == DCI_OK)
                fill(r, out);
        dci_free(helper, r->topics, n_tokens, sizeof *r->topics);
        dci_free(helper, r, 1, sizeof *r);
        return status;
}
