/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kv_fixture.h"

#include <math.h>
#include <string.h>

#include "kv/lookup.h"
#include "simd/kernels.h"

dci_kv_config kv_config(int32_t preset, size_t n_layers, size_t n_kv_heads, size_t group, size_t dim)
{
        dci_kv_config config;
        ck_ok(dci_kv_config_init(&config, sizeof config));
        config.preset = preset == KV_LEARNED ? DCI_KV_SKETCH_LOWBIT : preset;
        config.summary = preset == KV_LEARNED ? DCI_KV_SUMMARY_LEARNED : 0;
        config.n_layers = n_layers;
        config.n_kv_heads = n_kv_heads;
        config.n_query_heads = n_kv_heads * group;
        config.dim_k = dim;
        config.dense_layers = 0;
        config.seed = 7;
        if (preset == DCI_KV_SKETCH_GROUPS) {
                config.preselect = 2.0;
                config.preselect_tokens = 4;
                config.preselect_least = 16;
        }
        return config;
}

dci_kv_config kv_small(int32_t preset)
{
        dci_kv_config config = kv_config(preset, 2, 2, 2, 16);
        config.page_tokens = 8;
        config.budget = 96;
        config.rollback = 16;
        config.window = 16;
        return config;
}

dci_kv *kv_create(dci_context *context, const dci_kv_config *config)
{
        dci_kv *kv = NULL;
        ck_ok(dci_kv_create(context, config, &kv));
        ck_assert_ptr_nonnull(kv);
        return kv;
}

dci_kv_plan kv_plan(dci_kv *kv, size_t max_sequences)
{
        dci_kv_plan plan;
        ck_ok(dci_kv_plan_init(&plan, sizeof plan));
        ck_ok(dci_kv_plan_create(kv, max_sequences, &plan));
        return plan;
}

dci_kv_info kv_info(dci_kv *kv)
{
        dci_kv_info info;
        ck_ok(dci_kv_info_init(&info, sizeof info));
        ck_ok(dci_kv_get_info(kv, &info));
        return info;
}

dci_kv_sequence_info kv_sequence_info(dci_kv *kv, int64_t sequence)
{
        dci_kv_sequence_info info;
        ck_ok(dci_kv_sequence_info_init(&info, sizeof info));
        ck_ok(dci_kv_get_sequence(kv, sequence, &info));
        return info;
}

/* --- rows --------------------------------------------------------------------------------------------------------------- */

static kv_data empty_data(const dci_kv_config *config, size_t n)
{
        kv_data d = {.n = n,
                     .n_layers = config->n_layers,
                     .n_kv_heads = config->n_kv_heads,
                     .group = config->n_query_heads / config->n_kv_heads,
                     .dim_k = config->dim_k,
                     .dim_v = config->dim_v != 0 ? config->dim_v : config->dim_k,
                     .dtype = config->dtype,
                     .query_dtype = config->query_dtype};
        const size_t rows = n * d.n_layers * d.n_kv_heads;
        d.keys = test_room(rows * d.dim_k, sizeof(float));
        d.values = test_room(rows * d.dim_v, sizeof(float));
        d.queries = test_room(rows * d.group * d.dim_k, sizeof(float));
        return d;
}

/* Floats to a format, and back what it holds of them. */
static void *narrow(dci_dtype dtype, size_t n, float *numbers)
{
        void *out = test_room(n, dci_dtype_size(dtype));
        dci_kernels_scalar.narrow[dtype - 1](numbers, n, out);
        dci_kernels_scalar.to_f32[dtype - 1](out, n, numbers);
        return out;
}

static void store(kv_data *d)
{
        const size_t rows = d->n * d->n_layers * d->n_kv_heads;
        d->stored_keys = narrow(d->dtype, rows * d->dim_k, d->keys);
        d->stored_values = narrow(d->dtype, rows * d->dim_v, d->values);
        d->stored_queries = narrow(d->query_dtype, rows * d->group * d->dim_k, d->queries);
}

void kv_data_store(kv_data *data)
{
        test_free(data->stored_keys, data->stored_values, data->stored_queries);
        store(data);
}

static float normal(dci_rng *rng)
{
        return (float)test_quick_normal(rng);
}

kv_data kv_random(const dci_kv_config *config, size_t n, uint64_t seed)
{
        enum { CENTRES = 5 };
        kv_data d = empty_data(config, n);
        float *centres = test_normal(CENTRES + 1, d.dim_k, 4711);
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        for (size_t row = 0; row < n * d.n_layers * d.n_kv_heads; row++) {
                const float *centre = centres + dci_rng_below(&rng, CENTRES) * d.dim_k;
                for (size_t j = 0; j < d.dim_k; j++)
                        d.keys[row * d.dim_k + j] = normal(&rng) + centre[j] + 2.0f * centres[CENTRES * d.dim_k + j];
                for (size_t j = 0; j < d.dim_v; j++)
                        d.values[row * d.dim_v + j] = normal(&rng) + 0.5f;
                for (size_t j = 0; j < d.group * d.dim_k; j++)
                        d.queries[row * d.group * d.dim_k + j] = 1.5f * normal(&rng);
        }
        free(centres);
        store(&d);
        return d;
}

/* A number of coordinate j that a head and layer have for themselves: -1 or 1 to turn keys, 0.5 to 1.5 to weigh queries. */
static float turned(size_t part, size_t j)
{
        return part > 0 && (part * 2654435761u + j * 40503u) >> 7 & 1 ? -1.0f : 1.0f;
}
static float weighed(size_t part, size_t j)
{
        return part == 0 ? 1.0f : 0.5f + (float)((part * 977 + j * 613) % 64) / 63.0f;
}

kv_data kv_trace(const dci_kv_config *config, size_t n)
{
        enum { HEADS = 3, ASKED = KV_TRACE_TOKENS - 7104 };
        kv_data d = empty_data(config, n);
        ck_assert(d.dim_k == TRACE_DIM && d.dim_v == TRACE_DIM && n <= KV_TRACE_TOKENS);
        float *keys = pdci_trace("keys", KV_TRACE_TOKENS), *values = pdci_trace("values", KV_TRACE_TOKENS),
              *queries = pdci_trace("queries", (size_t)HEADS * ASKED);
        for (size_t layer = 0; layer < d.n_layers; layer++)
                for (size_t t = 0; t < n; t++)
                        for (size_t h = 0; h < d.n_kv_heads; h++) {
                                const size_t part = layer * d.n_kv_heads + h, token = KV_TRACE_TOKENS - n + t;
                                const size_t row = (layer * n + t) * d.n_kv_heads + h;
                                const size_t asked = (token + 384) % ASKED; /* 7104 is asked first */
                                for (size_t j = 0; j < TRACE_DIM; j++) {
                                        d.keys[row * TRACE_DIM + j] = keys[token * TRACE_DIM + j] * turned(part, j);
                                        d.values[row * TRACE_DIM + j] =
                                                values[token * TRACE_DIM + (j + part) % TRACE_DIM];
                                }
                                for (size_t g = 0; g < d.group; g++)
                                        for (size_t j = 0; j < TRACE_DIM; j++)
                                                d.queries[(row * d.group + g) * TRACE_DIM + j] =
                                                        queries[(g % HEADS * ASKED + asked) * TRACE_DIM + j] *
                                                        turned(part, j) * weighed(part + g / HEADS, j);
                        }
        test_free(keys, values, queries);
        store(&d);
        return d;
}

void kv_data_free(kv_data *data)
{
        test_free(data->keys, data->values, data->queries, data->stored_keys, data->stored_values,
                  data->stored_queries);
        memset(data, 0, sizeof *data);
}

void kv_end(dci_kv *kv, kv_data *data)
{
        dci_kv_destroy(kv);
        kv_data_free(data);
}

const float *kv_key(const kv_data *data, size_t layer, size_t token, size_t head)
{
        return data->keys + ((layer * data->n + token) * data->n_kv_heads + head) * data->dim_k;
}

const float *kv_value(const kv_data *data, size_t layer, size_t token, size_t head)
{
        return data->values + ((layer * data->n + token) * data->n_kv_heads + head) * data->dim_v;
}

const float *kv_query(const kv_data *data, size_t layer, size_t token, size_t query_head)
{
        return data->queries + ((layer * data->n + token) * data->n_kv_heads * data->group + query_head) * data->dim_k;
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

int64_t kv_open(dci_kv *kv)
{
        int64_t sequence = -1;
        ck_ok(dci_kv_open(kv, &sequence));
        return sequence;
}

int64_t kv_fork_at(dci_kv *kv, int64_t sequence, size_t n)
{
        int64_t out = -1;
        ck_ok(dci_kv_fork(kv, sequence, n, &out));
        ck_assert_int_ne(out, sequence);
        ck_assert_uint_eq(kv_sequence_info(kv, out).n_tokens, n);
        return out;
}

const dci_kv_layer *kv_layer_of(dci_kv *kv, int64_t sequence, size_t layer)
{
        const dci_kv_sequence *found = dci_kv_find(kv, sequence);
        ck_assert_ptr_nonnull(found);
        return &found->layers[layer];
}

void kv_names_of(size_t n_turns, const kv_turn *turns, int64_t *sequences, size_t *n_tokens)
{
        ck_assert_uint_le(n_turns, KV_MOST_TURNS);
        for (size_t i = 0; i < n_turns; i++) {
                sequences[i] = turns[i].sequence;
                n_tokens[i] = turns[i].n;
        }
}

void kv_reserve(dci_kv *kv, size_t n_turns, const kv_turn *turns)
{
        int64_t sequences[KV_MOST_TURNS];
        size_t n_tokens[KV_MOST_TURNS];
        kv_names_of(n_turns, turns, sequences, n_tokens);
        ck_ok(dci_kv_reserve(kv, n_turns, sequences, n_tokens));
}

void kv_step_end(dci_kv *kv, size_t n_turns, const kv_turn *turns)
{
        int64_t sequences[KV_MOST_TURNS];
        size_t n_tokens[KV_MOST_TURNS];
        kv_names_of(n_turns, turns, sequences, n_tokens);
        ck_ok(dci_kv_step_end(kv, n_turns, sequences));
}

void kv_append(dci_kv *kv, size_t layer, size_t n_turns, const kv_turn *turns)
{
        int64_t sequences[KV_MOST_TURNS];
        size_t n_tokens[KV_MOST_TURNS], n = 0, at = 0;
        kv_names_of(n_turns, turns, sequences, n_tokens);
        for (size_t i = 0; i < n_turns; i++)
                n += turns[i].n;
        const kv_data *d = turns[0].data;
        const size_t key_bytes = d->n_kv_heads * d->dim_k * dci_dtype_size(d->dtype),
                     value_bytes = d->n_kv_heads * d->dim_v * dci_dtype_size(d->dtype);
        char *keys = test_room(n, key_bytes), *values = test_room(n, value_bytes);
        for (size_t i = 0; i < n_turns; at += turns[i++].n) {
                const kv_data *own = turns[i].data;
                const size_t first = layer * own->n + turns[i].from;
                ck_assert_uint_le(turns[i].from + turns[i].n, own->n);
                memcpy(keys + at * key_bytes, (const char *)own->stored_keys + first * key_bytes,
                       turns[i].n * key_bytes);
                memcpy(values + at * value_bytes, (const char *)own->stored_values + first * value_bytes,
                       turns[i].n * value_bytes);
        }
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = keys;
        rows.values = values;
        ck_ok(dci_kv_append(kv, layer, n_turns, sequences, n_tokens, &rows));
        test_free(keys, values);
}

void kv_prompt(dci_kv *kv, size_t layer, int64_t sequence, const kv_data *data, size_t end)
{
        const size_t n = end < KV_OBSERVED ? end : KV_OBSERVED, row = data->n_kv_heads * data->group * data->dim_k;
        ck_ok(dci_kv_end_prompt(kv, layer, sequence, n,
                                (const char *)data->stored_queries +
                                        (layer * data->n + end - n) * row * dci_dtype_size(data->query_dtype),
                                data->dim_k));
}

void kv_feed(dci_kv *kv, size_t n_turns, const kv_turn *turns)
{
        kv_reserve(kv, n_turns, turns);
        for (size_t layer = 0; layer < turns[0].data->n_layers; layer++)
                kv_append(kv, layer, n_turns, turns);
        kv_step_end(kv, n_turns, turns);
}

void kv_prefill(dci_kv *kv, int64_t sequence, const kv_data *data, size_t n, size_t chunk)
{
        size_t from = 0;
        for (; chunk > 0 && from + chunk < n; from += chunk)
                kv_feed(kv, 1, &(kv_turn){sequence, data, from, chunk});
        const kv_turn last = {sequence, data, from, n - from};
        kv_reserve(kv, 1, &last);
        for (size_t layer = 0; layer < data->n_layers; layer++) {
                kv_append(kv, layer, 1, &last);
                kv_prompt(kv, layer, sequence, data, n);
        }
        kv_step_end(kv, 1, &last);
        ck_ok(dci_kv_wait(kv, sequence));
}

int64_t kv_begin(dci_kv *kv, const kv_data *data, size_t n)
{
        const int64_t sequence = kv_open(kv);
        kv_prefill(kv, sequence, data, n, 0);
        return sequence;
}

/* --- what is seen ------------------------------------------------------------------------------------------------------- */

kv_seen kv_seen_room(dci_kv *kv, size_t n_turns, const kv_turn *turns)
{
        const kv_data *d = turns[0].data;
        kv_seen seen = {.kv = kv,
                        .n_sequences = n_turns,
                        .n_layers = d->n_layers,
                        .n_kv_heads = d->n_kv_heads,
                        .group = d->group,
                        .dim_k = d->dim_k,
                        .dim_v = d->dim_v,
                        .page_tokens = kv_info(kv).page_tokens};
        for (size_t i = 0; i < n_turns; i++)
                seen.sequences[i] = turns[i].sequence;
        seen.plans = test_room(d->n_layers, sizeof *seen.plans);
        seen.out = test_room(d->n_layers * n_turns * d->n_kv_heads * d->group * d->dim_v, sizeof *seen.out);
        seen.lse = test_room(d->n_layers * n_turns * d->n_kv_heads * d->group, sizeof *seen.lse);
        for (size_t layer = 0; layer < d->n_layers; layer++)
                seen.plans[layer] = kv_plan(kv, n_turns);
        return seen;
}

void kv_seen_free(kv_seen *seen)
{
        for (size_t layer = 0; layer < seen->n_layers; layer++)
                dci_kv_plan_destroy(seen->kv, &seen->plans[layer]);
        test_free(seen->plans, seen->out, seen->lse);
        memset(seen, 0, sizeof *seen);
}

void *kv_queries(size_t layer, size_t n_turns, const kv_turn *turns)
{
        test_hold(n_turns > 0);
        const kv_data *d = turns[0].data;
        const size_t bytes = d->n_kv_heads * d->group * d->dim_k * dci_dtype_size(d->query_dtype);
        char *out = test_room(n_turns, bytes);
        for (size_t i = 0; i < n_turns; i++) {
                const size_t token = turns[i].n == 0 ? turns[i].from : turns[i].from + turns[i].n - 1;
                memcpy(out + i * bytes,
                       (const char *)turns[i].data->stored_queries + (layer * turns[i].data->n + token) * bytes, bytes);
        }
        return out;
}

void kv_look_at(kv_seen *seen, size_t layer, size_t n_turns, const kv_turn *turns)
{
        void *queries = kv_queries(layer, n_turns, turns);
        ck_ok(dci_kv_plan_make(seen->kv, layer, n_turns, seen->sequences, queries, seen->dim_k, &seen->plans[layer]));
        ck_ok(dci_kv_attend(seen->kv, layer, n_turns, seen->sequences, queries, seen->dim_k, &seen->plans[layer],
                            kv_out(seen, layer, 0, 0), seen->dim_v, kv_lse(seen, layer, 0, 0)));
        free(queries);
}

kv_seen kv_decode(dci_kv *kv, size_t n_turns, const kv_turn *turns)
{
        kv_seen seen = kv_seen_room(kv, n_turns, turns);
        kv_reserve(kv, n_turns, turns);
        for (size_t layer = 0; layer < seen.n_layers; layer++) {
                kv_append(kv, layer, n_turns, turns);
                kv_look_at(&seen, layer, n_turns, turns);
        }
        kv_step_end(kv, n_turns, turns);
        ck_ok(dci_kv_maintain(kv, n_turns, seen.sequences));
        return seen;
}

kv_seen kv_look(dci_kv *kv, size_t n_turns, const kv_turn *turns)
{
        kv_turn asked[KV_MOST_TURNS];
        kv_seen seen = kv_seen_room(kv, n_turns, turns);
        for (size_t i = 0; i < n_turns; i++) {
                asked[i] = turns[i];
                asked[i].n = 0;
        }
        for (size_t layer = 0; layer < seen.n_layers; layer++)
                kv_look_at(&seen, layer, n_turns, asked);
        return seen;
}

float *kv_out(const kv_seen *seen, size_t layer, size_t i, size_t query_head)
{
        const size_t heads = seen->n_kv_heads * seen->group;
        return seen->out + ((layer * seen->n_sequences + i) * heads + query_head) * seen->dim_v;
}

float *kv_lse(const kv_seen *seen, size_t layer, size_t i, size_t query_head)
{
        return seen->lse + (layer * seen->n_sequences + i) * seen->n_kv_heads * seen->group + query_head;
}

const int32_t *kv_list(const kv_seen *seen, size_t layer, size_t i, size_t number, size_t *out_n)
{
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t list = i * plan->n_lists + number;
        *out_n = (size_t)plan->counts[list];
        return plan->positions + list * plan->stride;
}

/* --- comparisons -------------------------------------------------------------------------------------------------------- */

static void same_floats(const float *a, const float *b, size_t n, const char *part, size_t layer, const char *what)
{
        for (size_t i = 0; i < n; i++)
                if (memcmp(a + i, b + i, sizeof *a) != 0)
                        ck_abort_msg("%s: layer %zu, %s, number %zu: %.9g, %.9g", what, layer, part, i, (double)a[i],
                                     (double)b[i]);
}

void kv_same_out(const kv_seen *a, size_t i, const kv_seen *b, size_t j, const char *what)
{
        const size_t heads = a->n_kv_heads * a->group;
        for (size_t layer = 0; layer < a->n_layers; layer++) {
                same_floats(kv_out(a, layer, i, 0), kv_out(b, layer, j, 0), heads * a->dim_v, "outputs", layer, what);
                same_floats(kv_lse(a, layer, i, 0), kv_lse(b, layer, j, 0), heads, "log sums", layer, what);
        }
}

static void same_lists(const kv_seen *a, size_t i, const kv_seen *b, size_t j, size_t layer, const char *what)
{
        const dci_kv_plan *p = &a->plans[layer], *o = &b->plans[layer];
        if (p->sink_end[i] != o->sink_end[j] || p->recent_begin[i] != o->recent_begin[j] ||
            p->n_tokens[i] != o->n_tokens[j])
                ck_abort_msg("%s: layer %zu: sink, recent, tokens %d %d %d, and %d %d %d", what, layer, p->sink_end[i],
                             p->recent_begin[i], p->n_tokens[i], o->sink_end[j], o->recent_begin[j], o->n_tokens[j]);
        test_hold(p->n_lists == o->n_lists);
        for (size_t h = 0; h < p->n_lists; h++) {
                size_t n, m;
                const int32_t *one = kv_list(a, layer, i, h, &n), *other = kv_list(b, layer, j, h, &m);
                if (n != m)
                        ck_abort_msg("%s: layer %zu, head %zu: lists of %zu and %zu", what, layer, h, n, m);
                for (size_t t = 0; t < n; t++)
                        if (one[t] != other[t])
                                ck_abort_msg("%s: layer %zu, head %zu, entry %zu: positions %d and %d", what, layer, h,
                                             t, one[t], other[t]);
        }
}

void kv_same(const kv_seen *a, size_t i, const kv_seen *b, size_t j, const char *what)
{
        const size_t heads = a->n_kv_heads * a->group;
        for (size_t layer = 0; layer < a->n_layers; layer++) {
                const dci_kv_plan *p = &a->plans[layer], *o = &b->plans[layer];
                same_lists(a, i, b, j, layer, what);
                test_hold((p->tail_lse == NULL) == (o->tail_lse == NULL));
                if (p->tail_lse == NULL)
                        continue;
                same_floats(p->tail_lse + i * heads, o->tail_lse + j * heads, heads, "log sums of tails", layer, what);
                for (size_t h = 0; h < heads; h++)
                        if (p->tail_lse[i * heads + h] > -INFINITY)
                                same_floats(p->tail_out + (i * heads + h) * a->dim_v,
                                            o->tail_out + (j * heads + h) * a->dim_v, a->dim_v, "tails", layer, what);
        }
        kv_same_out(a, i, b, j, what);
}

void kv_same_and_free(kv_seen *a, kv_seen *b, const char *what)
{
        test_hold(a->n_sequences == b->n_sequences);
        for (size_t i = 0; i < a->n_sequences; i++)
                kv_same(a, i, b, i, what);
        kv_seen_free(a);
        kv_seen_free(b);
}

void kv_alike(dci_kv *a, int64_t sequence_a, dci_kv *b, int64_t sequence_b, const kv_data *data, size_t from, size_t n,
              const char *what)
{
        for (size_t t = from; t < from + n; t++) {
                kv_seen one = kv_decode(a, 1, &(kv_turn){sequence_a, data, t, 1}),
                        other = kv_decode(b, 1, &(kv_turn){sequence_b, data, t, 1});
                kv_same_and_free(&one, &other, what);
        }
}

void kv_decode_all(dci_kv *kv, int64_t sequence, const kv_data *data, size_t from, size_t n)
{
        for (size_t t = from; t < from + n; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, data, t, 1});
                kv_seen_free(&seen);
        }
}

/* One list: ascending, inside, slots that are those of the positions. */
static void lawful_list(const kv_seen *seen, size_t layer, size_t i, size_t h, const int32_t *blocks, const char *what)
{
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t pages = seen->page_tokens, heads = seen->n_kv_heads, head = h * heads / plan->n_lists;
        size_t n;
        const int32_t *list = kv_list(seen, layer, i, h, &n);
        const int32_t *slots = plan->slots + (i * plan->n_lists + h) * plan->stride;
        if (plan->counts[i * plan->n_lists + h] < 0 || n > plan->stride)
                ck_abort_msg("%s: layer %zu, head %zu: count %d", what, layer, h, plan->counts[i * plan->n_lists + h]);
        for (size_t t = 0; t < n; t++) {
                if (list[t] < plan->sink_end[i] || list[t] >= plan->recent_begin[i] ||
                    (t > 0 && list[t] <= list[t - 1]))
                        ck_abort_msg("%s: layer %zu, head %zu: position %d at %zu, after %d, wanted %d to %d", what,
                                     layer, h, list[t], t, t > 0 ? list[t - 1] : -1, plan->sink_end[i],
                                     plan->recent_begin[i]);
                const size_t at = (size_t)list[t], page = (size_t)blocks[at / pages] * heads + head;
                if ((size_t)slots[t] != page * pages + at % pages)
                        ck_abort_msg("%s: layer %zu, head %zu: position %d has slot %d, wanted %zu", what, layer, h,
                                     list[t], slots[t], page * pages + at % pages);
        }
}

size_t kv_budget_of(dci_kv *kv, size_t n)
{
        const dci_kv_config *c = &kv->config;
        size_t least = c->page_tokens, share = 0;
        const bool summaries = c->summary > DCI_KV_SUMMARY_KEYS || c->tail != DCI_KV_TAIL_DROP;
        if (c->budget_counts != DCI_KV_COUNT_SELECTED)
                least += c->sink;
        if (c->budget_counts == DCI_KV_COUNT_ALL && summaries && c->frozen_prompt == 0)
                least += c->rollback;
        else if (c->budget_counts == DCI_KV_COUNT_ALL || c->budget_counts == DCI_KV_COUNT_SINK_AND_WINDOW)
                least += c->window;
        if (c->budget_share == 0.0)
                return c->budget;
        while ((double)(share + c->page_tokens) <= c->budget_share * (double)n)
                share += c->page_tokens;
        share = share < least ? least : share;
        return share < c->budget ? share : c->budget;
}

size_t kv_room_of(dci_kv *kv, size_t n, size_t waiting)
{
        const dci_kv_config *c = &kv->config;
        const size_t late = c->budget_counts == DCI_KV_COUNT_ALL && c->frozen_prompt == 0 ? waiting : c->window;
        size_t counted = 0;
        if (c->budget_counts != DCI_KV_COUNT_SELECTED)
                counted += c->sink;
        if (c->budget_counts == DCI_KV_COUNT_ALL || c->budget_counts == DCI_KV_COUNT_SINK_AND_WINDOW)
                counted += late;
        const size_t budget = kv_budget_of(kv, n);
        return budget > counted ? budget - counted : 0;
}

void kv_lawful(const kv_seen *seen, const dci_kv_config *config, size_t prompt, const char *what)
{
        const dci_kv_info as = kv_info(seen->kv);
        const int32_t group = as.group;
        const bool all = as.budget_counts == DCI_KV_COUNT_ALL, keeps = as.observed_keep != 0;
        const bool listed = group >= DCI_KV_GROUP_CLUSTER; /* clusters, segments, stored orders */
        for (size_t i = 0; i < seen->n_sequences; i++) {
                const dci_kv_sequence_info info = kv_sequence_info(seen->kv, seen->sequences[i]);
                int32_t *blocks = test_room(info.n_blocks, sizeof *blocks);
                ck_ok(dci_kv_table(seen->kv, seen->sequences[i], 0, info.n_blocks, blocks));
                for (size_t layer = 0; layer < seen->n_layers; layer++) {
                        const dci_kv_plan *plan = &seen->plans[layer];
                        const int32_t sink = plan->sink_end[i], recent = plan->recent_begin[i], n = plan->n_tokens[i];
                        const int32_t counted = prompt > 0 && (size_t)n > prompt ? (int32_t)prompt : n;
                        if (!(0 <= sink && sink <= recent && recent <= n &&
                              (size_t)n <= info.n_tokens + info.n_reserved))
                                ck_abort_msg("%s: layer %zu: sink %d, recent %d, tokens %d of %zu and %zu", what, layer,
                                             sink, recent, n, info.n_tokens, info.n_reserved);
                        test_hold(plan->n_lists == as.n_lists);
                        for (size_t h = 0; h < plan->n_lists; h++) {
                                lawful_list(seen, layer, i, h, blocks, what);
                                const int32_t count = plan->counts[i * plan->n_lists + h];
                                test_hold(recent > 0 || (count == 0 && sink == 0));
                                const int32_t late = counted > recent ? counted - recent : 0;
                                /* A cut that drops a batch leaves its tokens recent, however many, until there is a step. */
                                if (listed && count == 0)
                                        continue;
                                if (recent > 0 && (size_t)count > kv_room_of(seen->kv, (size_t)n, (size_t)late))
                                        ck_abort_msg("%s: layer %zu, head %zu: %d + %d + %d tokens, budget %zu", what,
                                                     layer, h, sink, count, late, config->budget);
                                /* Generated tokens that are kept for good outgrow any budget. */
                                if (recent > 0 && all && (count > 0 || !keeps))
                                        test_hold((size_t)(sink + count + late) <= config->budget);
                        }
                }
                free(blocks);
        }
}
