/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a step's calls may come one after another in, where the device plans: prompts that end in one layer and then in another, for one sequence and
 * then for another, with plans at once; calls that are refused in between, also while the step is captured. Rows, queries and outputs lie on the device
 * for all of a life: nothing is freed on the way, which would wait for everything.
 */
#include "tests/gpu_kv_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu_late.h"

enum { N = 2304, MAX_OUT = 1 << 20, OBSERVED = 64 };

typedef struct life {
        dci_context *context;
        dci_gpu *gpu;
        const dci_gpu_ops *ops;
        dci_gpu_kv *kv;
        void *stream;
        dci_kv_config config;
        size_t row_bytes, query_bytes; /* of a token in a layer */
        unsigned char *keys, *values, *queries;
        float *out;
        size_t n_out;
} life;

/* A step: sequences whose tokens follow one another, n each. */
typedef struct step {
        const int64_t *ids;
        size_t n_sequences, from, n;
} step;

static void *sent(const life *l, const void *from, size_t n_bytes)
{
        void *out = NULL;
        ck_ok(l->ops->alloc(l->gpu, n_bytes, &out));
        if (from != NULL)
                ck_ok(l->ops->copy(l->gpu, l->stream, out, from, n_bytes));
        return out;
}

static life begin_on(dci_context *context, dci_gpu *gpu, const dci_kv_config *config,
                     const dci_gpu_kv_config *on_device)
{
        life l = {.context = context, .gpu = gpu, .ops = gpu->ops, .config = *config};
        kv_data data = kv_random(config, N, 17);
        const size_t n = config->n_layers * N;
        l.row_bytes = config->n_kv_heads * config->dim_k * 2;
        l.query_bytes = config->n_query_heads * config->dim_k * sizeof(float);
        ck_ok(l.ops->stream_create(gpu, &l.stream));
        ck_ok(dci_gpu_kv_create(gpu, config, on_device, &l.kv));
        l.keys = sent(&l, data.stored_keys, n * l.row_bytes);
        l.values = sent(&l, data.stored_values, n * l.row_bytes);
        l.queries = sent(&l, data.stored_queries, n * l.query_bytes);
        l.out = sent(&l, NULL, MAX_OUT * sizeof *l.out);
        ck_ok(l.ops->stream_wait(gpu, l.stream));
        kv_data_free(&data);
        return l;
}

static life begin(const dci_kv_config *config, const dci_gpu_kv_config *on_device)
{
        dci_context *context = test_context(2);
        return begin_on(context, twin_gpu(context), config, on_device);
}

/* All outputs so far. free() */
static float *end(life *l, size_t *out_n)
{
        const size_t n = l->config.n_layers * N;
        float *seen = malloc(l->n_out * sizeof *seen + 1);
        ck_assert_ptr_nonnull(seen);
        ck_ok(l->ops->copy(l->gpu, l->stream, seen, l->out, l->n_out * sizeof *seen));
        ck_ok(l->ops->stream_wait(l->gpu, l->stream));
        *out_n = l->n_out;
        dci_gpu_kv_destroy(l->kv);
        l->ops->free(l->gpu, l->keys, n * l->row_bytes);
        l->ops->free(l->gpu, l->values, n * l->row_bytes);
        l->ops->free(l->gpu, l->queries, n * l->query_bytes);
        l->ops->free(l->gpu, l->out, MAX_OUT * sizeof *l->out);
        l->ops->stream_destroy(l->gpu, l->stream);
        dci_gpu_destroy(l->gpu);
        dci_context_destroy(l->context);
        return seen;
}

static int64_t opened(life *l)
{
        int64_t id = -1;
        ck_ok(dci_gpu_kv_open(l->kv, &id));
        return id;
}

static void reserve(life *l, const step *s)
{
        size_t n_tokens[KV_MOST_TURNS];
        for (size_t i = 0; i < s->n_sequences; i++)
                n_tokens[i] = s->n;
        ck_assert_uint_le(s->from + s->n_sequences * s->n, N);
        ck_ok(dci_gpu_kv_reserve(l->kv, l->stream, s->n_sequences, s->ids, n_tokens));
}

static void append(life *l, const step *s, size_t layer)
{
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = l->keys + (layer * N + s->from) * l->row_bytes;
        rows.values = l->values + (layer * N + s->from) * l->row_bytes;
        ck_ok(dci_gpu_kv_append(l->kv, l->stream, layer, &rows));
}

static const void *queries_of(const life *l, size_t layer, size_t token)
{
        return l->queries + (layer * N + token) * l->query_bytes;
}

static void prompt(life *l, const step *s, size_t layer, size_t sequence)
{
        const size_t n = s->n < OBSERVED ? s->n : OBSERVED;
        ck_ok(dci_gpu_kv_end_prompt(l->kv, l->stream, layer, s->ids[sequence], n, queries_of(l, layer, s->from),
                                    l->config.dim_k));
}

static dci_status plan(life *l, const step *s, size_t layer)
{
        return dci_gpu_kv_plan(l->kv, l->stream, layer, queries_of(l, layer, s->from + s->n - 1), l->config.dim_k);
}

/* Plans and attends; kept: outputs are part of what is seen of the life. */
static void look(life *l, const step *s, size_t layer, bool kept)
{
        const size_t n = s->n_sequences * l->config.n_query_heads * l->config.dim_k;
        ck_assert_uint_le(l->n_out + n, MAX_OUT);
        ck_ok(plan(l, s, layer));
        ck_ok(dci_gpu_kv_attend(l->kv, l->stream, layer, queries_of(l, layer, s->from + s->n - 1), l->config.dim_k,
                                l->out + l->n_out, l->config.dim_k, NULL));
        l->n_out += kept ? n : 0;
}

/* One token a step. A device that plans forms what left the window as a part of it, the host when it is asked to. */
static void decode(life *l, const int64_t *ids, size_t n_sequences, size_t from, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const step s = {ids, n_sequences, from + i * n_sequences, 1};
                if (!l->kv->planner.on)
                        ck_ok(dci_gpu_kv_maintain(l->kv, 0, NULL));
                reserve(l, &s);
                for (size_t layer = 0; layer < l->config.n_layers; layer++) {
                        append(l, &s, layer);
                        look(l, &s, layer, true);
                }
                ck_ok(dci_gpu_kv_step_end(l->kv, l->stream));
        }
}

static void same_bits(const float *a, const float *b, size_t n, const char *what)
{
        for (size_t i = 0; i < n; i++)
                ck_assert_msg(memcmp(&a[i], &b[i], sizeof *a) == 0, "%s: output %zu is %g, expected %g", what, i, b[i],
                              a[i]);
}

enum { LEARNED = 1000, LEARNED_TAIL, AHEAD };

/* What the device plans. */
static const int32_t planned[] = {DCI_KV_PAGEMEAN,      DCI_KV_QUEST,
                                  DCI_KV_ARKVALE,       DCI_KV_LOWBIT,
                                  DCI_KV_SKETCH,        DCI_KV_SKETCH_SUMS,
                                  DCI_KV_SKETCH_LOWBIT, DCI_KV_CLUSTERKV,
                                  DCI_KV_RETROINFER,    DCI_KV_LOUISKV,
                                  DCI_KV_FREEKV,        LEARNED,
                                  LEARNED_TAIL,         AHEAD};
enum { N_PLANNED = sizeof planned / sizeof *planned };

static dci_kv_config config_of(int32_t kind)
{
        dci_kv_config config = twin_small(kind == LEARNED_TAIL ? DCI_KV_SKETCH_LOWBIT
                                          : kind >= LEARNED    ? DCI_KV_SKETCH
                                                               : kind);
        if (kind == LEARNED || kind == LEARNED_TAIL)
                config.summary = DCI_KV_SUMMARY_LEARNED;
        if (kind == AHEAD)
                config.schedule = DCI_KV_AHEAD;
        return config;
}

/* Learned codes, whose prompts take part in plans, and what is chosen ahead; of the others every second one. */
static bool passed_over(int32_t i)
{
        return test_thin() && planned[i] < LEARNED && i % 2 != 0;
}

static const char *name_of(int32_t kind)
{
        return kind == LEARNED        ? "learned"
               : kind == LEARNED_TAIL ? "learned+lowbit"
               : kind == AHEAD        ? "ahead"
                                      : dci_kv_preset_name(kind);
}

/* --- rows on their way to the host --------------------------------------------------------------------------------------- */

static dci_gpu *host_gpu(dci_context *context, bool late)
{
        dci_gpu_config host;
        dci_gpu *gpu = NULL;
        ck_ok(dci_gpu_config_init(&host, sizeof host));
        host.device = DCI_GPU_HOST;
        ck_ok(dci_gpu_create(context, &host, &gpu));
        if (late)
                late_become(gpu);
        return gpu;
}

static float *prompt_that_plans(const dci_kv_config *config, int32_t gather, size_t n_steps, bool late, size_t *out_n)
{
        dci_gpu_kv_config on_device = twin_planned_for(1);
        dci_context *context = test_context(1);
        on_device.gather = gather;
        life l = begin_on(context, host_gpu(context, late), config, &on_device);
        const int64_t id = opened(&l);
        for (size_t i = 0; i < n_steps; i++) {
                const step s = {&id, 1, i * 1024 / n_steps, 1024 / n_steps};
                reserve(&l, &s);
                for (size_t layer = 0; layer < config->n_layers; layer++) {
                        append(&l, &s, layer);
                        if (i + 1 < n_steps)
                                continue;
                        prompt(&l, &s, layer, 0);
                        look(&l, &s, layer, true);
                }
                ck_ok(dci_gpu_kv_step_end(l.kv, l.stream));
        }
        decode(&l, &id, 1, 1024, 3);
        return end(&l, out_n);
}

/* Whole blocks of a long step go to the host concurrently with the step's stream, and plans and attention of the step read them there. On a device that
 * does everything as late as it may, outputs are those of one that does it at once. Loops over what the device plans. */
START_TEST(plans_of_a_prompts_step_find_its_rows_in_host_memory)
{
        const dci_kv_config config = config_of(planned[_i]);
        for (int32_t gather = DCI_GPU_GATHER_MAPPED; gather <= DCI_GPU_GATHER_DIRECT;
             gather += DCI_GPU_GATHER_DIRECT - DCI_GPU_GATHER_MAPPED)
                for (size_t n_steps = 1; n_steps <= 2; n_steps++) {
                        char what[80];
                        size_t n = 0, n_late = 0;
                        float *at_once = prompt_that_plans(&config, gather, n_steps, false, &n);
                        float *late = prompt_that_plans(&config, gather, n_steps, true, &n_late);
                        snprintf(what, sizeof what, "%s, gather %d, %zu steps", name_of(planned[_i]), (int)gather,
                                 n_steps);
                        ck_assert_uint_eq(n, n_late);
                        same_bits(at_once, late, n, what);
                        test_free(at_once, late);
                }
}
END_TEST

/* --- layers whose prompts end in different steps ---------------------------------------------------------------------------- */

/* Steps of a prompt; of which of them a layer's prompt ends in. Between them, or after the last, something else may come. */
typedef struct apart {
        size_t steps[3], ends[3];
        size_t cut; /* tokens that stay; 0: all */
        bool plans, between;
} apart;

static const apart aparts[] = {
        {{540, 100}, {0, 0, 1}, 0, true, false},      {{540, 100}, {0, 1, 0}, 0, true, false},
        {{540, 100}, {1, 0, 1}, 0, false, true},      {{300, 500}, {1, 1, 0}, 0, false, false},
        {{300, 500}, {0, 0, 1}, 0, true, true},       {{1060, 40}, {1, 0, 1}, 0, false, false},
        {{1060, 40}, {0, 1, 0}, 0, true, true},       {{700, 300, 600}, {1, 0, 2}, 0, true, false},
        {{700, 300, 600}, {0, 2, 1}, 0, true, false}, {{20, 700}, {1, 0, 1}, 0, true, true},
        {{20, 700}, {0, 1, 0}, 0, false, false},      {{540, 20}, {1, 1, 0}, 549, false, false},
        {{540, 20}, {0, 0, 1}, 549, true, false},     {{540, 100}, {1, 1, 0}, 530, false, false},
        {{700, 1, 1}, {0, 1, 2}, 0, true, false},
};
enum { N_APARTS = sizeof aparts / sizeof *aparts };

static float *layers_apart(const dci_kv_config *config, int32_t planner, const apart *a, size_t *out_n)
{
        dci_gpu_kv_config on_device = twin_planned_for(2);
        on_device.planner = planner;
        life l = begin(config, &on_device);
        const int64_t id = opened(&l);
        size_t from = 0;
        for (size_t i = 0; i < 3 && a->steps[i] > 0; from += a->steps[i++]) {
                const step s = {&id, 1, from, a->steps[i]};
                reserve(&l, &s);
                for (size_t layer = 0; layer < config->n_layers; layer++) {
                        append(&l, &s, layer);
                        if (a->ends[layer] == i)
                                prompt(&l, &s, layer, 0);
                        /* Until all have ended, the device's plans attend to more than the host's. */
                        if (a->plans && a->ends[layer] <= i)
                                look(&l, &s, layer, false);
                }
                ck_ok(dci_gpu_kv_step_end(l.kv, l.stream));
                if (a->between) {
                        ck_ok(dci_gpu_kv_maintain(l.kv, i == 0, i == 0 ? &id : NULL));
                        ck_ok(dci_gpu_kv_sync(l.kv));
                }
        }
        if (a->cut > 0)
                ck_ok(dci_gpu_kv_truncate(l.kv, id, a->cut));
        decode(&l, &id, 1, from, 40);
        return end(&l, out_n);
}

/* Where a prompt's end was cut, the host goes on with more in some layers for so many tokens, the device with as many in all. Loops over kinds of codes
 * and pages, and cases. */
enum { CAUGHT_UP = 20 };
START_TEST(layers_prompts_may_end_in_different_steps)
{
        static const int32_t kinds[] = {LEARNED, LEARNED_TAIL, DCI_KV_SKETCH, DCI_KV_PAGEMEAN, DCI_KV_CLUSTERKV};
        const int32_t kind = kinds[_i / N_APARTS];
        const apart *a = &aparts[_i % N_APARTS];
        const dci_kv_config config = config_of(kind);
        const size_t dim = config.dim_k;
        size_t n = 0, n_host = 0;
        if (test_thin() && kind != LEARNED && _i % 3 != 0)
                return;
        float *device = layers_apart(&config, DCI_GPU_PLAN_DEVICE, a, &n),
              *host = layers_apart(&config, DCI_GPU_PLAN_HOST, a, &n_host);
        ck_assert_uint_eq(n, n_host);
        for (size_t at = a->cut > 0 ? CAUGHT_UP * config.n_layers * config.n_query_heads * dim : 0; at < n; at += dim) {
                double norm = 0.0, error = 0.0;
                for (size_t j = 0; j < dim; j++) {
                        norm += (double)host[at + j] * host[at + j];
                        error += pow((double)device[at + j] - host[at + j], 2.0);
                }
                ck_assert_msg(sqrt(error) <= TWIN_TOLERANCE * sqrt(norm),
                              "%s, case %d, from number %zu on: off by %g of %g", name_of(kind), _i % N_APARTS, at,
                              sqrt(error), sqrt(norm));
        }
        test_free(device, host);
}
END_TEST

/* --- calls that are refused ----------------------------------------------------------------------------------------------------- */

/* Two sequences whose prompts end in one step; layers up to `planning` plan, and those up to `asking` are asked to before the second one's has ended
 * there, too. */
static float *two_prompts(const dci_kv_config *config, size_t asking, size_t planning, size_t *out_n)
{
        const dci_gpu_kv_config on_device = twin_planned_for(2);
        life l = begin(config, &on_device);
        const int64_t ids[] = {opened(&l), opened(&l)};
        const step s = {ids, 2, 0, 1100};
        reserve(&l, &s);
        for (size_t layer = 0; layer < config->n_layers; layer++) {
                append(&l, &s, layer);
                prompt(&l, &s, layer, 0);
                if (layer <= asking && !l.kv->layers[layer].dense)
                        ck_refused(plan(&l, &s, layer), DCI_ERR_INVALID, "the prompt has not ended");
                prompt(&l, &s, layer, 1);
                if (layer <= planning)
                        look(&l, &s, layer, true);
        }
        ck_ok(dci_gpu_kv_step_end(l.kv, l.stream));
        decode(&l, ids, 2, 2200, 20);
        return end(&l, out_n);
}

/* Loops over what the device plans. */
START_TEST(plans_that_are_refused_leave_nothing_behind)
{
        const dci_kv_config config = config_of(planned[_i]);
        if (passed_over(_i))
                return;
        for (size_t planning = 0; planning < config.n_layers; planning++) {
                size_t n = 0, n_asked = 0;
                float *wanted = two_prompts(&config, 0, planning, &n);
                for (size_t asking = 1; asking < config.n_layers; asking++) {
                        float *got = two_prompts(&config, asking, planning, &n_asked);
                        ck_assert_uint_eq(n, n_asked);
                        same_bits(wanted, got, n, name_of(planned[_i]));
                        free(got);
                }
                free(wanted);
        }
}
END_TEST

static void ask_to_maintain(life *l, const int64_t *ids, bool asks)
{
        if (!asks)
                return;
        ck_refused(dci_gpu_kv_maintain(l->kv, 1, ids), DCI_ERR_INVALID, "middle of a step");
        ck_refused(dci_gpu_kv_maintain(l->kv, 2, ids), DCI_ERR_INVALID, "middle of a step");
}

/* A prompt's step up to so many layers, which may be taken back, and another prompt in its place; and a decode. */
static float *maintained(const dci_kv_config *config, int32_t planner, bool asks, bool aborts, size_t *out_n)
{
        dci_gpu_kv_config on_device = twin_planned_for(2);
        on_device.planner = planner;
        life l = begin(config, &on_device);
        const int64_t ids[] = {opened(&l), opened(&l)};
        for (size_t i = aborts ? 0 : 1; i < 2; i++) {
                const step s = {ids, 1, i * 1100, 1100};
                reserve(&l, &s);
                ask_to_maintain(&l, ids, asks);
                for (size_t layer = 0; layer < config->n_layers; layer++) {
                        append(&l, &s, layer);
                        ask_to_maintain(&l, ids, asks);
                        prompt(&l, &s, layer, 0);
                        ask_to_maintain(&l, ids, asks);
                        if (layer == 1)
                                look(&l, &s, layer, true);
                        ask_to_maintain(&l, ids, asks);
                }
                ck_ok(i == 0 ? dci_gpu_kv_step_abort(l.kv) : dci_gpu_kv_step_end(l.kv, l.stream));
        }
        decode(&l, ids, 1, 2200, 20);
        return end(&l, out_n);
}

/* By name, in the middle of a step: refused at any place, and the step goes on, or is taken back, as without. Loops over what the device plans. */
START_TEST(maintenance_in_a_step_is_refused_and_changes_nothing)
{
        const dci_kv_config config = config_of(planned[_i]);
        if (passed_over(_i))
                return;
        for (size_t k = 0; k < 4; k++) {
                const int32_t planner = k % 2 == 0 ? DCI_GPU_PLAN_DEVICE : DCI_GPU_PLAN_HOST;
                size_t n = 0, n_asked = 0;
                float *wanted = maintained(&config, planner, false, k >= 2, &n),
                      *got = maintained(&config, planner, true, k >= 2, &n_asked);
                ck_assert_uint_eq(n, n_asked);
                same_bits(wanted, got, n, name_of(planned[_i]));
                test_free(wanted, got);
        }
}
END_TEST

/* A plan without attention leaves the choice of the next lists under way, where the next layer's prompt has its sums. */
START_TEST(a_prompt_waits_for_lists_that_are_chosen_ahead)
{
        const dci_kv_config config = config_of(AHEAD);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        life l = begin(&config, &on_device);
        const int64_t id = opened(&l);
        const step s = {&id, 1, 0, 700};
        size_t n;
        reserve(&l, &s);
        for (size_t layer = 0; layer < config.n_layers; layer++)
                append(&l, &s, layer);
        prompt(&l, &s, 0, 0);
        prompt(&l, &s, 1, 0);
        ck_ok(plan(&l, &s, 1));
        ck_assert(l.kv->ahead);
        prompt(&l, &s, 2, 0);
        ck_assert(!l.kv->ahead);
        ck_ok(dci_gpu_kv_step_end(l.kv, l.stream));
        free(end(&l, &n));
}
END_TEST

static dci_gpu_ops scored_real;
static size_t n_fresh, n_scores;

static dci_status scored(dci_gpu *gpu, void *stream, const dci_gpu_score_args *args)
{
        n_scores++;
        n_fresh += args->fresh != 0;
        return scored_real.score(gpu, stream, args);
}

/* A kernel of scores may begin to read what it scores before the one before it has ended: but where that forms it, it waits. */
START_TEST(scores_know_what_was_formed_right_before_them)
{
        const dci_kv_config config = config_of(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        dci_context *context = test_context(2);
        dci_gpu *gpu = twin_gpu(context);
        dci_gpu_ops ops = scored_real = *gpu->ops;
        ops.score = scored;
        gpu->ops = &ops;
        life l = begin_on(context, gpu, &config, &on_device);
        const int64_t id = opened(&l);
        const step of_prompt = {&id, 1, 0, 700}, one = {&id, 1, 700, 1}, none = {&id, 1, 701, 0};
        const step *const steps[] = {&of_prompt, &one, &none};
        size_t n;
        for (size_t i = 0; i < 3; i++) {
                n_scores = n_fresh = 0;
                reserve(&l, steps[i]);
                for (size_t layer = 0; layer < config.n_layers; layer++) {
                        append(&l, steps[i], layer);
                        if (i == 0)
                                prompt(&l, steps[i], layer, 0);
                        look(&l, steps[i], layer, true);
                }
                ck_ok(dci_gpu_kv_step_end(l.kv, l.stream));
                ck_assert_uint_eq(n_scores, config.n_layers - 1);
                ck_assert_uint_eq(n_fresh, i == 1 ? 0 : n_scores);
        }
        free(end(&l, &n));
}
END_TEST

static dci_gpu_ops refusing_real;
static bool refusing;
static size_t n_pins_refused;

static dci_status refusing_pin(dci_gpu *gpu, void *memory, size_t n_bytes, void **out)
{
        n_pins_refused += refusing;
        return refusing ? dci_fail(DCI_ERR_FULL, "no memory is locked now")
                        : refusing_real.pin(gpu, memory, n_bytes, out);
}

/* A step's memory is refused on another stream before the step is begun on the usual one. */
static void reserve_after_refusal(life *l, const step *s, void *other)
{
        size_t n = s->n;
        refusing = true;
        ck_refused(dci_gpu_kv_reserve(l->kv, other, 1, s->ids, &n), DCI_ERR_FULL, "no memory is locked now");
        refusing = false;
        reserve(l, s);
}

static float *refused_elsewhere(const dci_kv_config *config, bool late, size_t *out_n)
{
        dci_gpu_kv_config on_device = twin_planned_for(1);
        dci_context *context = test_context(1);
        dci_gpu *gpu = host_gpu(context, late);
        dci_gpu_ops ops = refusing_real = *gpu->ops;
        void *other = NULL;
        ops.pin = refusing_pin;
        gpu->ops = &ops;
        life l = begin_on(context, gpu, config, &on_device);
        ck_ok(ops.stream_create(gpu, &other));
        const int64_t id = opened(&l);
        for (size_t from = 0, n = 640; from < 760; from += n, n = 1) {
                const step s = {&id, 1, from, n};
                if (late && from % config->page_tokens == 0)
                        reserve_after_refusal(&l, &s, other);
                else
                        reserve(&l, &s);
                for (size_t layer = 0; layer < config->n_layers; layer++) {
                        append(&l, &s, layer);
                        if (from == 0)
                                prompt(&l, &s, layer, 0);
                        else
                                look(&l, &s, layer, true);
                }
                ck_ok(dci_gpu_kv_step_end(l.kv, l.stream));
        }
        ck_ok(ops.stream_wait(gpu, l.stream));
        ops.stream_destroy(gpu, other);
        return end(&l, out_n);
}

/* A reservation that is refused at last has uploaded summaries, orders and numbers of chunks on its stream. The next step, on another one, finds them
 * on a device that does everything as late as it may. Loops over what the device plans, and stored orders. */
START_TEST(what_a_refused_step_has_uploaded_has_arrived)
{
        const int32_t kind = _i < N_PLANNED ? planned[_i] : DCI_KV_PRKV;
        const dci_kv_config config = config_of(kind);
        if (_i < N_PLANNED && passed_over(_i))
                return;
        size_t n = 0, n_late = 0;
        float *at_once = refused_elsewhere(&config, false, &n);
        n_pins_refused = 0;
        float *late = refused_elsewhere(&config, true, &n_late);
        ck_assert_uint_eq(n_pins_refused, 1 + 120 / config.page_tokens);
        ck_assert_uint_eq(n, n_late);
        same_bits(at_once, late, n, name_of(kind));
        test_free(at_once, late);
}
END_TEST

/* --- captures ------------------------------------------------------------------------------------------------------------------- */

static void ask_to_wait(life *l, int64_t other)
{
        dci_gpu_kv_info info = {.struct_size = sizeof info};
        int64_t id = -1;
        const char *why = "is being captured";
        ck_refused(dci_gpu_kv_get_info(l->kv, &info), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_sync(l->kv), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_maintain(l->kv, 0, NULL), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_maintain(l->kv, 1, &other), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_fork(l->kv, other, 100, &id), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_truncate(l->kv, other, 100), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_save(l->kv, other, 100, "never written"), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_load(l->kv, "never read", &id), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_close(l->kv, other), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_swap_out(l->kv, other), DCI_ERR_INVALID, why);
        ck_refused(dci_gpu_kv_step_abort(l->kv), DCI_ERR_INVALID, why);
}

static float *captured(const dci_kv_config *config, bool asks, size_t *out_n)
{
        const dci_gpu_kv_config on_device = twin_planned_for(3);
        life l = begin(config, &on_device);
        const int64_t ids[] = {opened(&l), opened(&l)};
        const step both = {ids, 2, 0, 700}, one = {ids, 1, 1400, 1};
        void *graph = NULL;
        reserve(&l, &both);
        for (size_t layer = 0; layer < config->n_layers; layer++) {
                append(&l, &both, layer);
                prompt(&l, &both, layer, 0);
                prompt(&l, &both, layer, 1);
        }
        ck_ok(dci_gpu_kv_step_end(l.kv, l.stream));
        reserve(&l, &one);
        ck_ok(dci_gpu_kv_capture(l.kv, l.stream, 0));
        ck_ok(l.ops->capture_begin(l.gpu, l.stream));
        for (size_t layer = 0; layer < config->n_layers; layer++) {
                if (asks)
                        ask_to_wait(&l, ids[1]);
                append(&l, &one, layer);
                look(&l, &one, layer, true);
        }
        if (asks)
                ask_to_wait(&l, ids[1]);
        ck_ok(l.ops->capture_end(l.gpu, l.stream, &graph));
        ck_ok(l.ops->graph_launch(l.gpu, graph, l.stream));
        ck_ok(dci_gpu_kv_step_end(l.kv, l.stream));
        decode(&l, ids, 2, 1401, 5);
        ck_ok(dci_gpu_kv_close(l.kv, ids[1]));
        ck_ok(l.ops->stream_wait(l.gpu, l.stream));
        l.ops->graph_destroy(l.gpu, graph);
        return end(&l, out_n);
}

/* Waiting would end the capture, and is no failure of the device. Loops over what the device plans. */
START_TEST(who_waits_for_a_captured_step_is_refused)
{
        const dci_kv_config config = config_of(planned[_i]);
        if (passed_over(_i))
                return;
        size_t n = 0, n_asked = 0;
        float *wanted = captured(&config, false, &n), *got = captured(&config, true, &n_asked);
        ck_assert_uint_eq(n, n_asked);
        same_bits(wanted, got, n, name_of(planned[_i]));
        test_free(wanted, got);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv order");
        TCase *laws = test_case(suite, "laws", 60);
        tcase_add_loop_test(laws, plans_of_a_prompts_step_find_its_rows_in_host_memory, 0, N_PLANNED);
        tcase_add_loop_test(laws, layers_prompts_may_end_in_different_steps, 0, 5 * N_APARTS);
        tcase_add_loop_test(laws, plans_that_are_refused_leave_nothing_behind, 0, N_PLANNED);
        tcase_add_loop_test(laws, maintenance_in_a_step_is_refused_and_changes_nothing, 0, N_PLANNED);
        tcase_add_loop_test(laws, what_a_refused_step_has_uploaded_has_arrived, 0, N_PLANNED + 1);
        tcase_add_test(laws, a_prompt_waits_for_lists_that_are_chosen_ahead);
        tcase_add_test(laws, scores_know_what_was_formed_right_before_them);
        tcase_add_loop_test(laws, who_waits_for_a_captured_step_is_refused, 0, N_PLANNED);
        return test_main(suite);
}
