/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Twins: the same steps in a cache on a device and in one on the CPU. */
#include "tests/gpu_kv_fixture.h"

#include "kv/config.h"
#include "kv/lookup.h"

#include <math.h>
#include <string.h>

#include "tests/gpu_open.h"

int32_t twin_device(void)
{
        return gpu_device_number();
}

dci_gpu *twin_gpu(dci_context *context)
{
        return gpu_open(context);
}

void twin_set_period(dci_kv_config *config, size_t period)
{
        config->period = period;
        if (config->preset == DCI_KV_PRKV)
                config->reorder_delay = (period + 1) / 2;
}

dci_kv_config twin_small(int32_t preset)
{
        dci_kv_config config = kv_config(preset, 3, 2, 2, 64);
        config.dtype = DCI_BF16;
        config.dense_layers = 1;
        config.page_tokens = 8;
        config.budget = 96;
        config.rollback = 16;
        config.window = 16;
        if (preset == DCI_KV_PRKV)
                twin_set_period(&config, 14);
        return config;
}

dci_gpu_kv_config twin_on_device(void)
{
        dci_gpu_kv_config config;
        ck_ok(dci_gpu_kv_config_init(&config, sizeof config));
        config.max_tokens = 4096;
        config.piece_bytes = 1;
        config.planner = getenv("DCI_GPU_PLANNER") != NULL ? DCI_GPU_PLAN_AUTO : DCI_GPU_PLAN_HOST;
        return config;
}

dci_gpu_kv_config twin_planned_for(size_t n_sequences)
{
        dci_gpu_kv_config config = twin_on_device();
        config.max_sequences = n_sequences;
        config.planner = DCI_GPU_PLAN_DEVICE;
        return config;
}

dci_kv_layer *twin_layer_of(dci_kv *kv, int64_t sequence, size_t layer)
{
        return &dci_kv_find(kv, sequence)->layers[layer];
}

bool twin_repeats(int32_t preset)
{
        const dci_kv_config config = twin_small(preset);
        const dci_gpu_kv_config on_device = twin_on_device();
        dci_kv_config checked;
        dci_kv_stages stages;
        if (getenv("DCI_GPU_PLANNER") == NULL)
                return false;
        ck_ok(dci_kv_check_config(&config, &checked, &stages));
        if (checked.select == DCI_KV_SELECT_TREE) /* the default there */
                checked.tree_keys = DCI_KV_TREE_CODES;
        return dci_gpu_kv_can_plan(&checked, &on_device) != DCI_OK;
}

twin twin_begin_with(dci_context *context, const dci_kv_config *config, const dci_gpu_kv_config *on_device)
{
        twin t = {.context = context, .config = *config, .what = dci_kv_preset_name(config->preset)};
        t.gpu = twin_gpu(context);
        t.ops = t.gpu->ops;
        ck_ok(t.ops->stream_create(t.gpu, &t.stream));
        ck_ok(dci_gpu_kv_create(t.gpu, config, on_device, &t.kv));
        t.config.tree_keys = t.kv->shape.tree_keys;
        t.cpu = kv_create(context, &t.config);
        t.plans = t.kv->planner.on;
        return t;
}

twin twin_begin(const dci_kv_config *config, const dci_gpu_kv_config *on_device)
{
        twin t = twin_begin_with(test_context(2), config, on_device);
        t.own_context = true;
        return t;
}

void twin_end(twin *t)
{
        dci_kv_destroy(t->cpu);
        dci_gpu_kv_destroy(t->kv);
        t->ops->stream_destroy(t->gpu, t->stream);
        dci_gpu_destroy(t->gpu);
        if (t->own_context)
                dci_context_destroy(t->context);
        for (twin_tie *tie = t->ties, *next; tie != NULL; tie = next) {
                next = tie->next;
                free(tie);
        }
        memset(t, 0, sizeof *t);
}

/* --- device memory -------------------------------------------------------------------------------------------------------------- */

void *twin_send(twin *t, const void *from, size_t n_bytes)
{
        void *out = NULL;
        ck_ok(t->ops->alloc(t->gpu, n_bytes, &out));
        if (from != NULL && n_bytes > 0)
                ck_ok(t->ops->copy(t->gpu, t->stream, out, from, n_bytes));
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        return out;
}

void twin_give(twin *t, void *memory, size_t n_bytes)
{
        t->ops->free(t->gpu, memory, n_bytes);
}

twin_rows twin_rows_of(twin *t, size_t layer, size_t n_turns, const kv_turn *turns)
{
        twin_rows out;
        memset(&out, 0, sizeof out);
        size_t n = 0, at = 0;
        for (size_t i = 0; i < n_turns; i++)
                n += turns[i].n;
        const size_t row = t->config.n_kv_heads * t->config.dim_k * dci_dtype_size(t->config.dtype);
        out.key_bytes = out.value_bytes = n * row;
        out.host_keys = malloc(n * row + 1);
        out.host_values = malloc(n * row + 1);
        ck_assert(out.host_keys != NULL && out.host_values != NULL);
        for (size_t i = 0; i < n_turns; at += turns[i++].n) {
                const kv_data *d = turns[i].data;
                const size_t first = (layer * d->n + turns[i].from) * row;
                ck_assert_uint_le(turns[i].from + turns[i].n, d->n);
                memcpy((char *)out.host_keys + at * row, (const char *)d->stored_keys + first, turns[i].n * row);
                memcpy((char *)out.host_values + at * row, (const char *)d->stored_values + first, turns[i].n * row);
        }
        out.keys = twin_send(t, out.host_keys, out.key_bytes);
        out.values = twin_send(t, out.host_values, out.value_bytes);
        ck_ok(dci_kv_rows_init(&out.rows, sizeof out.rows));
        out.rows.keys = out.keys;
        out.rows.values = out.values;
        return out;
}

void twin_rows_free(twin *t, twin_rows *rows)
{
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        twin_give(t, rows->keys, rows->key_bytes);
        twin_give(t, rows->values, rows->value_bytes);
        test_free(rows->host_keys, rows->host_values);
}

/* --- sequences ------------------------------------------------------------------------------------------------------------------- */

int64_t twin_open(twin *t)
{
        int64_t a = -1, b = -1;
        ck_ok(dci_gpu_kv_open(t->kv, &a));
        ck_ok(dci_kv_open(t->cpu, &b));
        ck_assert_int_eq(a, b);
        return a;
}

int64_t twin_fork(twin *t, int64_t sequence, size_t n)
{
        int64_t a = -1, b = -1;
        ck_ok(dci_gpu_kv_fork(t->kv, sequence, n, &a));
        ck_ok(dci_kv_fork(t->cpu, sequence, n, &b));
        ck_assert_int_eq(a, b);
        return a;
}

void twin_truncate(twin *t, int64_t sequence, size_t n)
{
        ck_ok(dci_gpu_kv_truncate(t->kv, sequence, n));
        ck_ok(dci_kv_truncate(t->cpu, sequence, n));
        twin_poison(t);
}

void twin_close(twin *t, int64_t sequence)
{
        ck_ok(dci_gpu_kv_close(t->kv, sequence));
        ck_ok(dci_kv_close(t->cpu, sequence));
        twin_poison(t);
}

static void poison_places(twin *t)
{
        const dci_gpu_kv_resident *r = t->kv->resident;
        const size_t n_bytes = t->kv->host->pool.block_bytes;
        for (size_t at = 0; at < t->kv->n_sparse * r->n_slots; at++)
                if (r->blocks[at % r->n_slots] < 0)
                        ck_ok(t->ops->fill(t->gpu, t->stream, r->memory + at * n_bytes, 0xff, n_bytes));
}

void twin_poison(twin *t)
{
        const dci_kv_pool *pool = &t->kv->host->pool;
        ck_ok(dci_gpu_kv_sync(t->kv));
        poison_places(t);
        for (size_t b = 0; b < pool->n_blocks; b++) {
                const size_t piece = b >> pool->piece_shift;
                if (pool->pieces[piece] == NULL || pool->refs[b] != 0)
                        continue;
                for (size_t l = 0; l < t->config.n_layers; l++) {
                        memset(dci_gpu_kv_host_block(t->kv, l, (int32_t)b), 0xff, pool->block_bytes);
                        const dci_gpu_kv_layer *layer = &t->kv->layers[l];
                        const size_t in_piece = b & (pool->piece_blocks - 1);
                        if (layer->dense && t->kv->pool->dense_pieces[piece] != NULL)
                                ck_ok(t->ops->fill(t->gpu, t->stream,
                                                   t->kv->pool->dense_pieces[piece] +
                                                           (layer->index * pool->piece_blocks + in_piece) *
                                                                   pool->block_bytes,
                                                   0xff, pool->block_bytes));
                }
        }
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
}

void twin_maintain(twin *t)
{
        if (t->plans)
                return;
        ck_ok(dci_gpu_kv_maintain(t->kv, 0, NULL));
        ck_ok(dci_kv_maintain(t->cpu, 0, NULL));
}

/* --- steps ----------------------------------------------------------------------------------------------------------------------- */

void twin_reserve(twin *t, size_t n_turns, const kv_turn *turns)
{
        int64_t sequences[KV_MOST_TURNS];
        size_t n_tokens[KV_MOST_TURNS];
        kv_names_of(n_turns, turns, sequences, n_tokens);
        if (t->plans)
                ck_ok(dci_kv_maintain(t->cpu, n_turns, sequences));
        ck_ok(dci_gpu_kv_reserve(t->kv, t->stream, n_turns, sequences, n_tokens));
        kv_reserve(t->cpu, n_turns, turns);
}

typedef struct living {
        struct living *next;
        twin_rows rows;
} living;

static void live_on(twin *t, twin_rows rows)
{
        living *more = malloc(sizeof *more);
        ck_assert_ptr_nonnull(more);
        *more = (living){t->alive, rows};
        t->alive = more;
}

void twin_append(twin *t, size_t layer, size_t n_turns, const kv_turn *turns)
{
        twin_rows rows = twin_rows_of(t, layer, n_turns, turns);
        ck_ok(dci_gpu_kv_append(t->kv, t->stream, layer, &rows.rows));
        kv_append(t->cpu, layer, n_turns, turns);
        if (!t->plans) {
                twin_rows_free(t, &rows);
                return;
        }
        live_on(t, rows); /* a prompt's end reads them again */
}

/* Whether tokens before the turn's are not those of its data. */
static bool turn_is_cut(const twin *t, const kv_turn *turn)
{
        return dci_gpu_kv_find(t->kv, turn->sequence)->n != turn->from;
}

static void let_go(twin *t)
{
        for (living *at = t->alive, *next; at != NULL; at = next) {
                next = at->next;
                twin_rows_free(t, &at->rows);
                free(at);
        }
        t->alive = NULL;
}

/* Queries of the tokens before the turn's end that the step has brought; in every second layer with gaps between them. */
void twin_prompt(twin *t, size_t layer, const kv_turn *turn)
{
        const kv_data *d = turn->data;
        const size_t end = turn->from + turn->n, n = end < KV_OBSERVED ? end : KV_OBSERVED;
        const size_t dim = t->config.dim_k, es = dci_dtype_size(t->config.query_dtype);
        const size_t rows = n * t->config.n_query_heads, ld = dim + layer % 2 * 8;
        const size_t n_bytes = rows == 0 ? 0 : ((rows - 1) * ld + dim) * es;
        const char *from =
                (const char *)d->stored_queries + (layer * d->n + end - n) * t->config.n_query_heads * dim * es;
        char *loose = malloc(n_bytes + 1);
        ck_assert_ptr_nonnull(loose);
        memset(loose, 0xff, n_bytes + 1);
        for (size_t r = 0; r < rows; r++)
                memcpy(loose + r * ld * es, from + r * dim * es, dim * es);
        void *queries = twin_send(t, loose, n_bytes);
        /* Of every second prompt all rows are named. */
        if (t->plans && turn->sequence % 2 == 0 && end > 0 && !turn_is_cut(t, turn)) {
                const kv_turn whole = {turn->sequence, d, 0, end};
                twin_rows all = twin_rows_of(t, layer, 1, &whole);
                ck_ok(dci_gpu_kv_prompt_rows(t->kv, t->stream, layer, turn->sequence, &all.rows));
                live_on(t, all);
        }
        ck_ok(dci_gpu_kv_end_prompt(t->kv, t->stream, layer, turn->sequence, n, queries, ld));
        kv_prompt(t->cpu, layer, turn->sequence, d, end);
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        twin_give(t, queries, n_bytes);
        free(loose);
}

static double tolerance_of(const twin *t)
{
        return t->config.n_query_heads / t->config.n_kv_heads > 8 ? TWIN_TOLERANCE_ROUNDED : TWIN_TOLERANCE;
}

/* How far an output is from the one that is wanted, and the norm of that. */
static double row_error(const twin *t, const float *got, const float *wanted, double *out_norm)
{
        double norm = 0.0, error = 0.0;
        for (size_t j = 0; j < t->config.dim_k; j++) {
                norm += (double)wanted[j] * wanted[j];
                error += ((double)got[j] - wanted[j]) * ((double)got[j] - wanted[j]);
        }
        *out_norm = sqrt(norm);
        return sqrt(error);
}

bool twin_row_alike(const twin *t, const float *got, const float *wanted)
{
        double norm;
        return row_error(t, got, wanted, &norm) <= tolerance_of(t) * norm;
}

/* Whether this output may be further away than most. */
static bool may_be_apart(twin *t)
{
        if (!t->plans || t->kv->planner.kind != DCI_GPU_LEARNED || t->kv->shape.tail != DCI_KV_TAIL_LOWBIT)
                return false;
        t->n_apart++;
        return t->n_apart <= 1 + t->n_rows / 100;
}

void twin_same_row(twin *t, size_t layer, size_t at, const float *got, const float *wanted, float got_lse,
                   float wanted_lse)
{
        double tolerance = tolerance_of(t);
        double norm;
        const double error = row_error(t, got, wanted, &norm);
        t->n_rows++;
        if (error > tolerance * norm && may_be_apart(t))
                tolerance = TWIN_TOLERANCE_APART;
        ck_assert_msg(error <= tolerance * norm, "%s, layer %zu, query %zu: off by %g of %g", t->what, layer, at, error,
                      norm);
        const double slack = tolerance * (1.0 + fabs((double)wanted_lse));
        ck_assert_msg(got_lse == wanted_lse || fabs((double)got_lse - wanted_lse) <= slack,
                      "%s, layer %zu, query %zu: log sum %g, %g on the CPU", t->what, layer, at, got_lse, wanted_lse);
}

void twin_look(twin *t, size_t layer, size_t n_turns, const kv_turn *turns)
{
        const size_t dim = t->config.dim_k, n = n_turns * t->config.n_query_heads;
        const size_t query_bytes = n * dim * dci_dtype_size(t->config.query_dtype);
        float *got = malloc(n * (dim + 1) * sizeof *got);
        ck_assert_ptr_nonnull(got);
        kv_seen seen = kv_seen_room(t->cpu, n_turns, turns);
        void *host = kv_queries(layer, n_turns, turns), *queries = twin_send(t, host, query_bytes);
        float *out = twin_send(t, NULL, n * (dim + 1) * sizeof *out);
        ck_ok(dci_gpu_kv_plan(t->kv, t->stream, layer, queries, dim));
        ck_ok(dci_gpu_kv_attend(t->kv, t->stream, layer, queries, dim, out, dim, out + n * dim));
        ck_ok(t->ops->copy(t->gpu, t->stream, got, out, n * (dim + 1) * sizeof *got));
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        kv_look_at(&seen, layer, n_turns, turns);
        const size_t before = t->n_other;
        if (!t->kv->layers[layer].dense && t->plans) {
                twin_plans_alike(t, layer, n_turns, turns, &seen.plans[layer]);
        } else if (!t->kv->layers[layer].dense) {
                twin_same_plans(t, layer, n_turns, &t->kv->layers[layer].plan, &seen.plans[layer]);
        }
        for (size_t i = 0; i < n_turns && !t->kv->layers[layer].dense; i++)
                t->n_looked += seen.plans[layer].recent_begin[i] > 0;
        for (size_t i = 0; i < n && t->n_other == before; i++)
                if (!twin_is_early(t, layer, turns[i / t->config.n_query_heads].sequence))
                        twin_same_row(t, layer, i, got + i * dim, kv_out(&seen, layer, 0, 0) + i * dim,
                                      got[n * dim + i], kv_lse(&seen, layer, 0, 0)[i]);
        if (t->kept != NULL) {
                ck_assert_uint_le(t->n_kept + n * (dim + 1), t->kept_room);
                memcpy(t->kept + t->n_kept, got, n * (dim + 1) * sizeof *got);
                t->n_kept += n * (dim + 1);
        }
        twin_give(t, out, n * (dim + 1) * sizeof *out);
        twin_give(t, queries, query_bytes);
        test_free(host, got);
        kv_seen_free(&seen);
}

/* A device's plan that attends to everything leaves no lists to the next one, where the CPU's may. */
static void forget_early(const twin *t, size_t n_turns, const kv_turn *turns)
{
        for (size_t i = 0; i < n_turns; i++)
                for (size_t l = 0; l < t->config.n_layers; l++) {
                        dci_kv_selection_cache *d = dci_kv_find(t->cpu, turns[i].sequence)->layers[l].selection;
                        if (d != NULL && twin_is_early(t, l, turns[i].sequence))
                                d->listed = false;
                }
}

void twin_step_end(twin *t, size_t n_turns, const kv_turn *turns)
{
        forget_early(t, n_turns, turns);
        ck_ok(dci_gpu_kv_step_end(t->kv, t->stream));
        kv_step_end(t->cpu, n_turns, turns);
        let_go(t);
}

void twin_abort(twin *t, size_t n_turns, const kv_turn *turns)
{
        int64_t sequences[KV_MOST_TURNS];
        size_t n_tokens[KV_MOST_TURNS];
        kv_names_of(n_turns, turns, sequences, n_tokens);
        ck_ok(dci_gpu_kv_step_abort(t->kv));
        ck_ok(dci_kv_step_abort(t->cpu, n_turns, sequences));
        let_go(t);
        twin_poison(t);
}

void twin_step(twin *t, size_t n_turns, const kv_turn *turns, const bool *ends, bool plans)
{
        twin_reserve(t, n_turns, turns);
        for (size_t layer = 0; layer < t->config.n_layers; layer++) {
                twin_append(t, layer, n_turns, turns);
                for (size_t i = 0; i < n_turns && ends != NULL; i++)
                        if (ends[i])
                                twin_prompt(t, layer, &turns[i]);
                if (plans)
                        twin_look(t, layer, n_turns, turns);
        }
        twin_step_end(t, n_turns, turns);
}

int64_t twin_prefill(twin *t, const kv_data *data, size_t n, size_t chunk)
{
        const int64_t sequence = twin_open(t);
        const bool end = true;
        size_t from = 0;
        for (; chunk > 0 && from + chunk < n; from += chunk)
                twin_step(t, 1, &(kv_turn){sequence, data, from, chunk}, NULL, false);
        twin_step(t, 1, &(kv_turn){sequence, data, from, n - from}, &end, false);
        return sequence;
}

void twin_decode(twin *t, int64_t sequence, const kv_data *data, size_t from, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                twin_step(t, 1, &(kv_turn){sequence, data, from + i, 1}, NULL, true);
                twin_maintain(t);
        }
}

void twin_check_rows(twin *t, int64_t sequence, const kv_data *data, size_t from, size_t n)
{
        const size_t row = t->config.dim_k * dci_dtype_size(t->config.dtype), n_heads = t->config.n_kv_heads;
        char *keys = malloc(n * row + 1), *values = malloc(n * row + 1);
        ck_assert(keys != NULL && values != NULL);
        ck_ok(dci_gpu_kv_sync(t->kv));
        for (size_t l = 0; l < t->config.n_layers; l++)
                for (size_t h = 0; h < n_heads; h++) {
                        ck_ok(dci_kv_read(dci_gpu_kv_host(t->kv), l, sequence, h, 0, n, keys, values));
                        for (size_t i = 0; i < n; i++) {
                                const size_t at = ((l * data->n + from + i) * n_heads + h) * row;
                                ck_assert(memcmp(keys + i * row, (const char *)data->stored_keys + at, row) == 0);
                                ck_assert(memcmp(values + i * row, (const char *)data->stored_values + at, row) == 0);
                        }
                }
        test_free(keys, values);
}

dci_gpu_kv_info twin_info(twin *t)
{
        dci_gpu_kv_info info;
        ck_ok(dci_gpu_kv_info_init(&info, sizeof info));
        ck_ok(dci_gpu_kv_get_info(t->kv, &info));
        return info;
}
