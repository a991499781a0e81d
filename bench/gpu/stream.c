/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include "bench/gpu/driver.h"

#include "simd/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = GPUBENCH_DIM, OBSERVED = 64, CHANNELS = 4, SINKS = 4, RECENT = 1024, TASK_TOKENS = 64, TURN_TOKENS = 64 };
enum { SINK = 16, WINDOW = 64, BEST = 176, KEPT = 512 }; /* of what steps share */
#define BANK ((size_t)1 << 20)
#define STRETCH 3.0F
#define TOPIC_TOKENS 256
#define KEY_NOISE 0.85F
#define VALUE_NOISE 0.5F
#define SINK_KEY 4.0F
#define SINK_QUERY 0.3F
#define TURN 0.78539816F
/* Queries; chosen so that steps share as much as those of recorded decodes (docs/measurements/gpu.md). */
#define TARGET_STEPS 20 /* between two changes of what a head seeks, on average */
#define QUERY_GAIN 1.2F
#define QUERY_NOISE 0.72F

/* What a stretch of the bank is for. */
enum { OF_KEY_TOPIC = 1, OF_VALUE_TOPIC, OF_KEY, OF_VALUE, OF_QUERY };

typedef struct head_frame {
        float mean[2][DIM], shared[DIM], stretch[DIM];
} head_frame;

static uint64_t mix(uint64_t x)
{
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        return x ^ (x >> 31);
}

static const float *numbers(const gpubench_stream *s, int kind, size_t index, size_t head)
{
        const uint64_t name =
                mix(s->seed + (uint64_t)index * 0x9e3779b97f4a7c15U) + (uint64_t)head * 8 + (uint64_t)kind;
        return s->bank + (mix(name) & (BANK - 1));
}

static uint16_t to_bf16(float x)
{
        return (uint16_t)((dci_float_bits(x) + 0x8000U) >> 16);
}

static void draw_frames(gpubench_stream *s, dci_rng *rng)
{
        head_frame *frames = (head_frame *)(void *)s->frame;
        for (size_t h = 0; h < s->n_heads; h++) {
                head_frame *f = &frames[h];
                for (size_t j = 0; j < DIM; j++) {
                        f->mean[0][j] = (float)dci_rng_normal(rng);
                        f->mean[1][j] = (float)dci_rng_normal(rng);
                        f->shared[j] = (float)dci_rng_normal(rng);
                        f->stretch[j] = 1;
                }
                for (size_t c = 0; c < CHANNELS; c++) {
                        const size_t j = c * DIM / CHANNELS + dci_rng_below(rng, DIM / CHANNELS);
                        f->stretch[j] = STRETCH;
                        f->mean[0][j] = c % 2 == 0 ? 10 : -10;
                        f->mean[1][j] = c % 3 == 0 ? 5 : -5;
                }
        }
}

static void draw_topics(gpubench_stream *s, dci_rng *rng)
{
        int32_t topic = 0, n_topics = 1;
        for (size_t t = 0; t < s->n_tokens; t++) {
                if (t > 0 && dci_rng_below(rng, TOPIC_TOKENS) == 0)
                        topic = dci_rng_below(rng, 2) == 0 ? n_topics++
                                                           : (int32_t)dci_rng_below(rng, (uint64_t)n_topics);
                s->topics[t] = topic;
        }
}

dci_status gpubench_stream_open(dci_context *context, size_t n_heads, size_t group, size_t n_tokens, uint64_t seed,
                                gpubench_stream *out)
{
        dci_rng rng;
        *out = (gpubench_stream){
                .context = context, .n_heads = n_heads, .group = group, .n_tokens = n_tokens, .seed = seed};
        out->bank = dci_alloc(context, BANK + DIM, sizeof *out->bank);
        out->topics = dci_alloc(context, n_tokens, sizeof *out->topics);
        out->frame = dci_alloc(context, n_heads, sizeof(head_frame));
        if (out->bank == NULL || out->topics == NULL || out->frame == NULL)
                return DCI_ERR_MEMORY;
        dci_rng_seed(&rng, seed);
        for (size_t i = 0; i < BANK + DIM; i++)
                out->bank[i] = (float)dci_rng_normal(&rng);
        draw_frames(out, &rng);
        draw_topics(out, &rng);
        return DCI_OK;
}

static size_t walk_elements(const gpubench_stream *s)
{
        return s->n_heads * s->group * DIM;
}

static void drop_walk(gpubench_stream *s)
{
        if (s->walk != NULL)
                dci_free(s->context, s->walk, s->n_walk * walk_elements(s), sizeof *s->walk);
        s->walk = NULL;
}

void gpubench_stream_close(gpubench_stream *s)
{
        if (s->context == NULL)
                return;
        drop_walk(s);
        dci_free(s->context, s->bank, BANK + DIM, sizeof *s->bank);
        dci_free(s->context, s->topics, s->n_tokens, sizeof *s->topics);
        dci_free(s->context, s->frame, s->n_heads, sizeof(head_frame));
        *s = (gpubench_stream){.context = NULL};
}

/* --- rows ------------------------------------------------------------------------------------------------------------------ */

typedef struct making {
        const gpubench_stream *stream;
        size_t first, n;
        uint16_t *keys, *values;
} making;

static void make_token(const gpubench_stream *s, const head_frame *f, const float *mean, size_t t, size_t head,
                       uint16_t *key, uint16_t *value)
{
        const size_t topic = (size_t)s->topics[t];
        const float *key_centre = numbers(s, OF_KEY_TOPIC, topic, head), *key_own = numbers(s, OF_KEY, t, head);
        const float *value_centre = numbers(s, OF_VALUE_TOPIC, topic, head), *value_own = numbers(s, OF_VALUE, t, head);
        const float sink = t < SINKS ? SINK_KEY : 0;
        for (size_t j = 0; j < DIM; j++) {
                key[j] = to_bf16(mean[j] +
                                 f->stretch[j] * (key_centre[j] + KEY_NOISE * key_own[j] + sink * f->shared[j]));
                value[j] = to_bf16(value_centre[j] + VALUE_NOISE * value_own[j]);
        }
}

/* The mean turns every TURN_TOKENS tokens: a token has the same row in whatever company it is asked for. */
static void turn_mean(const gpubench_stream *s, const head_frame *f, size_t t, float *mean)
{
        const float angle = TURN * (float)(t / TURN_TOKENS * TURN_TOKENS) / (float)s->n_tokens;
        for (size_t j = 0; j < DIM; j++)
                mean[j] = cosf(angle) * f->mean[0][j] + sinf(angle) * f->mean[1][j];
}

static void make_tokens(void *arg, size_t task, size_t worker)
{
        const making *m = arg;
        const gpubench_stream *s = m->stream;
        const size_t begin = task * TASK_TOKENS, end = begin + TASK_TOKENS < m->n ? begin + TASK_TOKENS : m->n;
        (void)worker;
        for (size_t h = 0; h < s->n_heads; h++) {
                const head_frame *f = &((const head_frame *)(const void *)s->frame)[h];
                float mean[DIM];
                for (size_t i = begin; i < end; i++) {
                        const size_t t = (m->first + i) % s->n_tokens, at = (i * s->n_heads + h) * DIM;
                        if (i == begin || t % TURN_TOKENS == 0)
                                turn_mean(s, f, t, mean);
                        make_token(s, f, mean, t, h, m->keys + at, m->values + at);
                }
        }
}

dci_status gpubench_stream_rows(const gpubench_stream *s, size_t first, size_t n, uint16_t *keys, uint16_t *values)
{
        making m = {s, first, n, keys, values};
        const size_t n_tasks = (n + TASK_TOKENS - 1) / TASK_TOKENS;
        const dci_region region = {.context = s->context,
                                   .n_tasks = n_tasks,
                                   .n_workers = dci_workers_for(s->context, n_tasks, n * s->n_heads * 2 * DIM),
                                   .fn = make_tokens,
                                   .arg = &m};
        return dci_parallel(&region);
}

/* --- queries --------------------------------------------------------------------------------------------------------------- */

/* Draws the token that a query head seeks: a recent one half of the time, else any. */
static size_t seek(size_t prompt, dci_rng *rng)
{
        const bool near = dci_rng_below(rng, 2) == 0 && prompt > RECENT;
        return prompt - 1 - dci_rng_below(rng, near ? RECENT : prompt);
}

static void put_query(const gpubench_stream *s, size_t step, size_t at, size_t target, uint16_t *out)
{
        const size_t head = at / s->group;
        const head_frame *f = &((const head_frame *)(const void *)s->frame)[head];
        const float *centre = numbers(s, OF_KEY_TOPIC, (size_t)s->topics[target], head);
        const float *own = numbers(s, OF_KEY, target, head);
        const float *noise = numbers(s, OF_QUERY, step * s->group + at % s->group, head);
        for (size_t j = 0; j < DIM; j++)
                out[j] = to_bf16((QUERY_GAIN * (centre[j] + KEY_NOISE * own[j]) + SINK_QUERY * f->shared[j] +
                                  QUERY_NOISE * noise[j]) /
                                 f->stretch[j]);
}

dci_status gpubench_stream_walk(gpubench_stream *s, size_t prompt, size_t n_steps)
{
        const size_t n_lookers = s->n_heads * s->group;
        size_t *targets = calloc(n_lookers, sizeof *targets);
        dci_rng rng, root;
        drop_walk(s);
        s->n_walk = n_steps;
        s->prompt = prompt;
        s->walk = dci_alloc(s->context, n_steps * walk_elements(s), sizeof *s->walk);
        if (targets == NULL || s->walk == NULL) {
                free(targets);
                return dci_fail(DCI_ERR_MEMORY, "queries of %zu steps could not be had", n_steps);
        }
        dci_rng_seed(&root, s->seed);
        rng = dci_rng_split(&root, 1);
        for (size_t step = 0; step < n_steps; step++)
                for (size_t i = 0; i < n_lookers; i++) {
                        if (step == 0 || dci_rng_below(&rng, TARGET_STEPS) == 0)
                                targets[i] = seek(prompt, &rng);
                        put_query(s, step, i, targets[i], s->walk + (step * n_lookers + i) * DIM);
                }
        free(targets);
        return DCI_OK;
}

const uint16_t *gpubench_stream_queries(const gpubench_stream *s, size_t step)
{
        return s->walk + step % s->n_walk * walk_elements(s);
}

/* --- as a feed ----------------------------------------------------------------------------------------------------------------- */

static dci_status feed_rows(const void *arg, size_t first, size_t n, uint16_t *keys, uint16_t *values)
{
        return gpubench_stream_rows(arg, first, n, keys, values);
}

static void feed_observed(const void *arg, uint16_t *out)
{
        const gpubench_stream *s = arg;
        memcpy(out, s->walk, OBSERVED * walk_elements(s) * sizeof *out);
}

static void feed_queries(const void *arg, size_t step, size_t number, uint16_t *out)
{
        memcpy(out, gpubench_stream_queries(arg, step + number * GPUBENCH_WALK_APART),
               walk_elements(arg) * sizeof *out);
}

gpubench_feed gpubench_stream_feed(const gpubench_stream *s)
{
        const gpubench_feed feed = {.group = s->group,
                                    .dim = DIM,
                                    .dtype = DCI_BF16,
                                    .n_observed = OBSERVED,
                                    .arg = s,
                                    .rows = feed_rows,
                                    .observed = feed_observed,
                                    .queries = feed_queries};
        return feed;
}

/* --- what steps share --------------------------------------------------------------------------------------------------------- */

typedef struct ranked {
        double share;
        int32_t token;
} ranked;

static int by_share(const void *a, const void *b)
{
        const ranked *x = a, *y = b;
        return x->share != y->share ? (x->share < y->share) - (x->share > y->share) : x->token - y->token;
}

/* Softmax weights of n keys ([token][head][dim], head 0), summed over the group. */
static void weigh(const gpubench_stream *s, const uint16_t *keys, size_t n, const uint16_t *queries, double *logits,
                  ranked *out)
{
        for (size_t t = 0; t < n; t++)
                out[t] = (ranked){0, (int32_t)t};
        for (size_t g = 0; g < s->group; g++) {
                float query[DIM];
                double most = -HUGE_VAL, sum = 0;
                for (size_t j = 0; j < DIM; j++)
                        query[j] = dci_bits_float((uint32_t)queries[g * DIM + j] << 16) / sqrtf(DIM);
                for (size_t t = 0; t < n; t++) {
                        const uint16_t *key = keys + t * s->n_heads * DIM;
                        float dot = 0;
                        for (size_t j = 0; j < DIM; j++)
                                dot += query[j] * dci_bits_float((uint32_t)key[j] << 16);
                        logits[t] = (double)dot;
                        most = fmax(most, logits[t]);
                }
                for (size_t t = 0; t < n; t++)
                        sum += exp(logits[t] - most);
                for (size_t t = 0; t < n; t++)
                        out[t].share += exp(logits[t] - most) / sum;
        }
}

typedef struct sharing {
        uint32_t *last;  /* by token: the step that it was among the best of last, from 1 */
        uint32_t *users; /* by step: tokens of which that step is the last */
        double last_step, kept, n;
} sharing;

/* The tokens used last that KEPT places hold. */
static uint32_t oldest_kept(const sharing *s, size_t step)
{
        size_t held = 0, at = step;
        while (at > 0 && held + s->users[at] <= KEPT)
                held += s->users[at--];
        return (uint32_t)at + 1;
}

static void count_step(sharing *s, const ranked *best, size_t step, bool counts)
{
        const uint32_t oldest = oldest_kept(s, step);
        for (size_t i = 0; i < BEST; i++) {
                uint32_t *last = &s->last[best[i].token];
                s->last_step += counts && *last == step;
                s->kept += counts && *last >= oldest && *last > 0;
                s->n += counts;
                if (*last > 0)
                        s->users[*last]--;
                *last = (uint32_t)step + 1;
                s->users[*last]++;
        }
}

static dci_status count_steps(const gpubench_stream *s, size_t n, size_t n_steps, uint16_t *keys, ranked *best,
                              double *logits, sharing *shared)
{
        DCI_TRY(gpubench_stream_rows(s, s->prompt - n, n, keys, keys + n * s->n_heads * DIM));
        for (size_t step = 0; step < n_steps && n > SINK + WINDOW + BEST; step++) {
                weigh(s, keys, n, gpubench_stream_queries(s, step), logits, best);
                qsort(best + SINK, n - SINK - WINDOW, sizeof *best, by_share);
                count_step(shared, best + SINK, step, 2 * step >= n_steps);
        }
        return DCI_OK;
}

dci_status gpubench_stream_overlap(const gpubench_stream *s, size_t most, size_t n_steps, double *out_last,
                                   double *out_kept)
{
        const size_t n = s->prompt < most ? s->prompt : most, row = s->n_heads * DIM;
        uint16_t *keys = malloc(2 * n * row * sizeof *keys);
        ranked *best = malloc(n * sizeof *best);
        double *logits = malloc(n * sizeof *logits);
        sharing shared = {.last = calloc(n, sizeof *shared.last), .users = calloc(n_steps + 2, sizeof *shared.users)};
        dci_status status = DCI_OK;
        *out_last = *out_kept = NAN;
        if (keys == NULL || best == NULL || logits == NULL || shared.last == NULL || shared.users == NULL)
                status = dci_fail(DCI_ERR_MEMORY, "rows of %zu tokens could not be had", n);
        else
                status = count_steps(s, n, n_steps, keys, best, logits, &shared);
        if (shared.n > 0) {
                *out_last = shared.last_step / shared.n;
                *out_kept = shared.kept / shared.n;
        }
        free(keys);
        free(best);
        free(logits);
        free(shared.last);
        free(shared.users);
        return status;
}
