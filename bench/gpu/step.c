/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part step: whole decode steps of a dci_gpu_kv, for a model's shape. Rows are those of `kv --synthetic`, the same for all layers and heads,
 * but each has its own copy; sequences of a batch are forks of one.
 */
#include "bench/gpu/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PREFILL_TOKENS ((size_t)1024) /* of a step */

/* Of a step in seconds: all layers' sums, but for the whole step. */
enum { STEP, PLAN, ATTEND, DEVICE, MAINTAIN, TIMES };
static const char *const time_names[TIMES] = {"step", "plan", "attend", "device", "maintain"};

typedef struct stepping {
        gpubench *b;
        const kvbench_trace *trace;
        kvbench_arm arm;
        dci_gpu_kv *kv;
        int64_t sequences[64];
        gpubench_area keys, values, queries, out; /* locked; and on the device */
        gpubench_area device_keys, device_values, device_queries;
        void **events; /* two of each layer */
        double *seconds[TIMES];
        double form_seconds;
} stepping;

/* --- the cache ---------------------------------------------------------------------------------------------------------------- */

static dci_status open_cache(stepping *s)
{
        const gpubench_options *o = s->b->options;
        dci_kv_config c;
        dci_gpu_kv_config g;
        dci_status status = dci_kv_config_init(&c, sizeof c);
        if (status == DCI_OK)
                status = dci_gpu_kv_config_init(&g, sizeof g);
        if (status != DCI_OK)
                return status;
        c.n_layers = o->layers;
        c.n_kv_heads = o->heads;
        c.n_query_heads = o->heads * s->trace->group;
        c.dim_k = s->trace->keys.dim;
        c.dtype = s->trace->keys.dtype;
        c.query_dtype = s->trace->queries.dtype;
        c.scale = s->trace->scale;
        c.preset = s->arm.preset;
        c.budget = o->budgets.values[0];
        c.dense_layers = 0;
        c.seed = o->arms.seed;
        if (s->arm.key_bits > 0)
                c.key_bits = s->arm.key_bits;
        if (s->arm.value_bits > 0)
                c.value_bits = s->arm.value_bits;
        if (s->arm.learned)
                c.summary = DCI_KV_SUMMARY_LEARNED;
        kvbench_set_stages(&o->arms, &c);
        g.max_sequences = o->batch;
        g.max_tokens = o->tokens + o->steps + 16;
        g.gather = o->gather;
        g.hot_tokens = o->hot;
        g.out_dtype = DCI_F16;
        status = dci_gpu_kv_create(s->b->gpu, &c, &g, &s->kv);
        return status == DCI_OK ? dci_gpu_kv_open(s->kv, &s->sequences[0]) : status;
}

static dci_status take_areas(stepping *s)
{
        gpubench *b = s->b;
        const gpubench_options *o = b->options;
        const size_t row = o->heads * s->trace->keys.dim * 2,
                     most = PREFILL_TOKENS > o->batch ? PREFILL_TOKENS : o->batch;
        const size_t n_observed = s->trace->observed.n / s->trace->group;
        const size_t queries = row * s->trace->group * (n_observed > o->batch ? n_observed : o->batch);
        const struct {
                gpubench_area *area;
                size_t n_bytes;
                int kind;
        } areas[] = {{&s->keys, most * row, GPUBENCH_PINNED},
                     {&s->values, most * row, GPUBENCH_PINNED},
                     {&s->queries, queries, GPUBENCH_PINNED},
                     {&s->device_keys, most * row, GPUBENCH_ON_DEVICE},
                     {&s->device_values, most * row, GPUBENCH_ON_DEVICE},
                     {&s->device_queries, queries, GPUBENCH_ON_DEVICE},
                     {&s->out, o->batch * row * s->trace->group, GPUBENCH_ON_DEVICE}};
        dci_status status = DCI_OK;
        for (size_t i = 0; i < sizeof areas / sizeof *areas && status == DCI_OK; i++)
                status = gpubench_take(b, areas[i].n_bytes, areas[i].kind, areas[i].area);
        s->events = calloc(2 * o->layers, sizeof *s->events);
        bool memory = s->events != NULL;
        for (size_t i = 0; i < TIMES; i++) {
                s->seconds[i] = calloc(o->steps + 1, sizeof(double));
                memory = memory && s->seconds[i] != NULL;
        }
        if (status == DCI_OK && !memory)
                status = dci_fail(DCI_ERR_MEMORY, "times of %zu steps could not be had", o->steps);
        for (size_t i = 0; i < 2 * o->layers && status == DCI_OK; i++)
                status = b->ops->event_create(b->gpu, true, &s->events[i]);
        return status;
}

static void close_cache(stepping *s, size_t mark)
{
        dci_gpu_kv_destroy(s->kv);
        for (size_t i = 0; s->events != NULL && i < 2 * s->b->options->layers; i++)
                if (s->events[i] != NULL)
                        s->b->ops->event_destroy(s->b->gpu, s->events[i]);
        free(s->events);
        for (size_t i = 0; i < TIMES; i++)
                free(s->seconds[i]);
        gpubench_release(s->b, mark);
}

/* --- rows --------------------------------------------------------------------------------------------------------------------- */

/* n tokens from `first` on, to the device; with `repeated`, one token for each of n sequences. */
static dci_status bring_rows(stepping *s, size_t first, size_t n, bool repeated)
{
        const size_t dim = s->trace->keys.dim, n_heads = s->b->options->heads;
        const uint16_t *keys = s->trace->keys.data, *values = s->trace->values.data;
        for (size_t t = 0; t < n; t++)
                for (size_t h = 0; h < n_heads; h++) {
                        const size_t from = (first + (repeated ? 0 : t)) % s->trace->tokens * dim;
                        const size_t to = (t * n_heads + h) * dim * 2;
                        memcpy(s->keys.host + to, keys + from, dim * 2);
                        memcpy(s->values.host + to, values + from, dim * 2);
                }
        const size_t n_bytes = n * n_heads * dim * 2;
        dci_status status = s->b->ops->copy(s->b->gpu, s->b->stream, s->device_keys.device, s->keys.host, n_bytes);
        if (status == DCI_OK)
                status = s->b->ops->copy(s->b->gpu, s->b->stream, s->device_values.device, s->values.host, n_bytes);
        return status == DCI_OK ? s->b->ops->stream_wait(s->b->gpu, s->b->stream) : status;
}

/* Queries of n positions, the same for every kv head; repeated: of one position, for n sequences. */
static dci_status bring_queries(stepping *s, const bench_rows *from, size_t first, size_t n, bool repeated)
{
        const size_t part = s->trace->group * from->dim * 2, n_heads = s->b->options->heads;
        for (size_t i = 0; i < n; i++)
                for (size_t h = 0; h < n_heads; h++)
                        memcpy(s->queries.host + (i * n_heads + h) * part,
                               (const char *)from->data + (first + (repeated ? 0 : i)) * part, part);
        const dci_status status =
                s->b->ops->copy(s->b->gpu, s->b->stream, s->device_queries.device, s->queries.host, n * n_heads * part);
        return status == DCI_OK ? s->b->ops->stream_wait(s->b->gpu, s->b->stream) : status;
}

/* --- the prompt --------------------------------------------------------------------------------------------------------------- */

static dci_status fill(stepping *s)
{
        const gpubench_options *o = s->b->options;
        const size_t n_observed = s->trace->observed.n / s->trace->group;
        dci_kv_rows rows;
        dci_status status = dci_kv_rows_init(&rows, sizeof rows);
        rows.keys = s->device_keys.device;
        rows.values = s->device_values.device;
        if (status == DCI_OK)
                status = bring_queries(s, &s->trace->observed, 0, n_observed, false);
        for (size_t t = 0, n; t < o->tokens && status == DCI_OK; t += n) {
                n = o->tokens - t < PREFILL_TOKENS ? o->tokens - t : PREFILL_TOKENS;
                status = bring_rows(s, t, n, false);
                if (status == DCI_OK)
                        status = dci_gpu_kv_reserve(s->kv, s->b->stream, 1, s->sequences, &n);
                for (size_t l = 0; l < o->layers && status == DCI_OK; l++) {
                        status = dci_gpu_kv_append(s->kv, s->b->stream, l, &rows);
                        if (status == DCI_OK && t + n == o->tokens)
                                status = dci_gpu_kv_end_prompt(s->kv, s->b->stream, l, s->sequences[0], n_observed,
                                                               s->device_queries.device, s->trace->keys.dim);
                }
                if (status == DCI_OK)
                        status = dci_gpu_kv_step_end(s->kv, s->b->stream);
                if (status == DCI_OK) /* the rows' buffer is written again */
                        status = s->b->ops->stream_wait(s->b->gpu, s->b->stream);
        }
        if (status == DCI_OK)
                status = dci_gpu_kv_sync(s->kv);
        for (size_t i = 1; i < o->batch && status == DCI_OK; i++)
                status = dci_gpu_kv_fork(s->kv, s->sequences[0], o->tokens, &s->sequences[i]);
        return status;
}

/* --- the decode --------------------------------------------------------------------------------------------------------------- */

static dci_status step_layer(stepping *s, size_t layer, size_t step, const dci_kv_rows *rows)
{
        gpubench *b = s->b;
        const size_t dim = s->trace->keys.dim;
        dci_status status = dci_gpu_kv_append(s->kv, b->stream, layer, rows);
        double at = bench_seconds();
        if (status == DCI_OK)
                status = dci_gpu_kv_plan(s->kv, b->stream, layer, s->device_queries.device, dim);
        s->seconds[PLAN][step] += bench_seconds() - at;
        if (status == DCI_OK)
                status = b->ops->event_record(b->gpu, s->events[2 * layer], b->stream);
        at = bench_seconds();
        if (status == DCI_OK)
                status = dci_gpu_kv_attend(s->kv, b->stream, layer, s->device_queries.device, dim, s->out.device, dim,
                                           NULL);
        s->seconds[ATTEND][step] += bench_seconds() - at;
        return status == DCI_OK ? b->ops->event_record(b->gpu, s->events[2 * layer + 1], b->stream) : status;
}

static dci_status step_once(stepping *s, size_t step)
{
        gpubench *b = s->b;
        const gpubench_options *o = b->options;
        dci_kv_rows rows;
        dci_status status = dci_kv_rows_init(&rows, sizeof rows);
        rows.keys = s->device_keys.device;
        rows.values = s->device_values.device;
        if (status == DCI_OK)
                status = bring_rows(s, o->tokens + step, o->batch, true);
        if (status == DCI_OK)
                status = bring_queries(s, &s->trace->queries, step % (s->trace->tokens - s->trace->prompt), o->batch,
                                       true);
        const double begin = bench_seconds();
        if (status == DCI_OK)
                status = dci_gpu_kv_reserve(s->kv, b->stream, o->batch, s->sequences, NULL);
        for (size_t l = 0; l < o->layers && status == DCI_OK; l++)
                status = step_layer(s, l, step, &rows);
        if (status == DCI_OK)
                status = dci_gpu_kv_step_end(s->kv, b->stream);
        if (status == DCI_OK)
                status = b->ops->stream_wait(b->gpu, b->stream);
        const double end = bench_seconds();
        if (status == DCI_OK)
                status = dci_gpu_kv_maintain(s->kv, o->batch, s->sequences);
        s->seconds[STEP][step] = end - begin;
        s->seconds[MAINTAIN][step] = bench_seconds() - end;
        for (size_t l = 0; l < o->layers && status == DCI_OK; l++) {
                double seconds = 0;
                status = b->ops->event_elapsed(b->gpu, s->events[2 * l], s->events[2 * l + 1], &seconds);
                s->seconds[DEVICE][step] += seconds;
        }
        return status;
}

/* Outputs of the last layer are numbers. */
static dci_status look(const stepping *s)
{
        const size_t n = s->b->options->batch * s->b->options->heads * s->trace->group * s->trace->keys.dim;
        uint16_t *out = calloc(n, sizeof *out);
        if (out == NULL)
                return dci_fail(DCI_ERR_MEMORY, "%zu outputs could not be had", n);
        dci_status status = gpubench_download(s->b, out, s->out.device, n * sizeof *out);
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                if ((out[i] & 0x7c00) == 0x7c00)
                        status = dci_fail(BENCH_ERR_RUN, "output %zu of %zu is no number", i, n);
        free(out);
        return status;
}

static dci_status decode(stepping *s)
{
        const gpubench_options *o = s->b->options;
        dci_status status = s->b->ops->fill(s->b->gpu, s->b->stream, s->out.device, 0xff, s->out.n_bytes);
        bench_progress progress;
        bench_progress_begin(&progress, dci_kv_preset_name(s->arm.preset));
        for (size_t step = 0; step < o->steps && status == DCI_OK; step++) {
                bench_progress_step(&progress, step, o->steps);
                status = step_once(s, step);
        }
        bench_progress_end(&progress);
        if (status == DCI_OK)
                status = dci_gpu_kv_sync(s->kv);
        return status == DCI_OK ? look(s) : status;
}

/* --- an arm -------------------------------------------------------------------------------------------------------------------- */

static dci_status report(stepping *s, const dci_gpu_kv_info *before, const dci_gpu_kv_info *after)
{
        const gpubench_options *o = s->b->options;
        gpubench_time times[TIMES];
        char codes[32];
        kvbench_codes_name(&s->arm, codes, sizeof codes);
        for (size_t i = 0; i < TIMES; i++)
                times[i] = gpubench_time_of(s->seconds[i], o->steps);
        const double asked = (double)(after->n_asked - before->n_asked);
        const double missed = (double)(after->n_missed - before->n_missed), n_steps = (double)o->steps;
        const double fetched = (double)(after->bytes_fetched - before->bytes_fetched) / n_steps;
        /* What stays in host memory is asked for and not fetched, and no hit either. */
        const double stayed = (double)(after->n_stayed - before->n_stayed) / (double)after->unit_tokens;
        const double hit_rate = asked > 0 ? fmax(0, 1 - (missed + stayed) / asked) : 1;
        json_t *shape = json_pack(
                "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:f, s:I, s:f, s:f}", "codes", codes, "budget",
                (json_int_t)o->budgets.values[0], "layers", (json_int_t)o->layers, "heads", (json_int_t)o->heads,
                "tokens", (json_int_t)o->tokens, "batch", (json_int_t)o->batch, "hot", (json_int_t)after->hot, "gather",
                gpubench_gather_name(o->gather), "device_bytes", (json_int_t)after->device_bytes, "pinned_bytes",
                (json_int_t)after->pinned_bytes, "hit_rate", hit_rate, "bytes_fetched_step", fetched, "stayed",
                (json_int_t)(after->n_stayed - before->n_stayed), "form_s", s->form_seconds, "tokens_per_s",
                1e6 * (double)o->batch / times[STEP].median);
        const dci_status status =
                gpubench_row(s->b, "step", dci_kv_preset_name(s->arm.preset), shape, &times[STEP], 0, 0);
        for (size_t i = 1; i < TIMES; i++) {
                char name[32];
                snprintf(name, sizeof name, "%s_us", time_names[i]);
                gpubench_note(s->b, name, times[i].median);
        }
        printf("%-14s %-14s %9.0f %9.0f %9.0f %9.0f %9.0f %9.0f %8.1f%% %9.0f %9.1f\n",
               dci_kv_preset_name(s->arm.preset), codes, times[STEP].median, times[STEP].p90, times[PLAN].median,
               times[ATTEND].median, times[DEVICE].median, times[MAINTAIN].median, 100 * hit_rate, fetched / 1024,
               1e6 * (double)o->batch / times[STEP].median);
        return status;
}

static dci_status play(gpubench *b, const kvbench_trace *trace, const kvbench_arm *arm)
{
        stepping s = {.b = b, .trace = trace, .arm = *arm};
        const size_t mark = b->n_areas;
        dci_gpu_kv_info before, after;
        dci_status status = dci_gpu_kv_info_init(&before, sizeof before);
        if (status == DCI_OK)
                status = dci_gpu_kv_info_init(&after, sizeof after);
        if (status == DCI_OK)
                status = take_areas(&s);
        if (status == DCI_OK)
                status = open_cache(&s);
        const double at = bench_seconds();
        if (status == DCI_OK)
                status = fill(&s);
        s.form_seconds = bench_seconds() - at;
        if (status == DCI_OK)
                status = dci_gpu_kv_get_info(s.kv, &before);
        if (status == DCI_OK)
                status = decode(&s);
        if (status == DCI_OK)
                status = dci_gpu_kv_get_info(s.kv, &after);
        if (status == DCI_OK)
                status = report(&s, &before, &after);
        if (status != DCI_OK)
                status = bench_fail_about(dci_kv_preset_name(arm->preset), status);
        close_cache(&s, mark);
        return status;
}

dci_status gpubench_step(gpubench *b)
{
        const gpubench_options *o = b->options;
        kvbench_trace trace = {.helper = b->context};
        const size_t whole = (o->tokens > 2048 ? o->tokens : 2048) / 15 * 16 + 16;
        kvbench_arm *arms = calloc(kvbench_arms(&o->arms, NULL) + 1, sizeof *arms);
        char failure[1024] = "";
        if (arms == NULL)
                return dci_fail(DCI_ERR_MEMORY, "arms could not be had");
        dci_status status = kvbench_synthetic(b->context, whole, o->arms.seed, &trace), failed = DCI_OK;
        const size_t n_arms = kvbench_arms(&o->arms, arms);
        printf("\nstep: %zu layers, %zu kv heads of %zu query heads, d %zu, prompt of %zu tokens, batch %zu, budget "
               "%zu, "
               "%s; us of a step, all layers\n%-14s %-14s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n",
               o->layers, o->heads, trace.group, trace.keys.dim, o->tokens, o->batch, o->budgets.values[0],
               gpubench_gather_name(o->gather), "preset", "codes", "step", "p90", "plan", "attend", "device",
               "maintain", "hits", "KiB/step", "tokens/s");
        /* A preset that fails does not keep the others from running. */
        for (size_t i = 0; i < n_arms && status == DCI_OK; i++) {
                const dci_status played = play(b, &trace, &arms[i]);
                if (played == DCI_OK)
                        continue;
                printf("%-14s failed: %s\n", dci_kv_preset_name(arms[i].preset), dci_last_error());
                if (failed == DCI_OK)
                        snprintf(failure, sizeof failure, "%s", dci_last_error());
                failed = failed == DCI_OK ? played : failed;
        }
        free(arms);
        kvbench_trace_close(&trace);
        return failed == DCI_OK ? status : dci_fail(failed, "%s", failure);
}
