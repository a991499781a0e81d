/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part step: whole decode steps of a dci_gpu_kv, call by call, for a model's shape. Rows are those of `kv --synthetic`, the same for all
 * layers and heads, but each has its own copy; sequences of a batch are forks of one.
 */
#include "bench/gpu/driver.h"

#include <string.h>

enum { PREFILL_TOKENS = 1024 }; /* of a step */

/* Of a step in seconds: all layers' sums, but for the whole step. */
enum { STEP, PLAN, ATTEND, DEVICE, MAINTAIN, TIMES };
static const char *const time_names[TIMES] = {"step", "plan", "attend", "device", "maintain"};

typedef struct stepping {
        gpubench *b;
        kvbench_trace trace;
        gpubench_feed feed;
        gpubench_driver driver;
        double *seconds[TIMES];
        double form_seconds;
} stepping;

/* --- a trace as a feed ------------------------------------------------------------------------------------------------------------- */

static dci_status feed_rows(const void *arg, size_t first, size_t n, uint16_t *keys, uint16_t *values)
{
        const stepping *s = arg;
        const size_t dim = s->trace.keys.dim, n_heads = s->b->options->heads;
        for (size_t t = 0; t < n; t++)
                for (size_t h = 0; h < n_heads; h++) {
                        const size_t from = (first + t) % s->trace.tokens * dim, to = (t * n_heads + h) * dim;
                        memcpy(keys + to, (const uint16_t *)s->trace.keys.data + from, dim * 2);
                        memcpy(values + to, (const uint16_t *)s->trace.values.data + from, dim * 2);
                }
        return DCI_OK;
}

/* Queries of n positions, the same for every kv head. */
static void put_queries(const stepping *s, const bench_rows *from, size_t first, size_t n, uint16_t *out)
{
        const size_t part = s->trace.group * from->dim, n_heads = s->b->options->heads;
        for (size_t i = 0; i < n * n_heads; i++)
                memcpy(out + i * part, (const uint16_t *)from->data + (first + i / n_heads) * part, part * 2);
}

static void feed_observed(const void *arg, uint16_t *out)
{
        const stepping *s = arg;
        put_queries(s, &s->trace.observed, 0, s->feed.n_observed, out);
}

static void feed_queries(const void *arg, size_t step, size_t number, uint16_t *out)
{
        const stepping *s = arg;
        (void)number;
        put_queries(s, &s->trace.queries, step % (s->trace.tokens - s->trace.prompt), 1, out);
}

/* --- an arm -------------------------------------------------------------------------------------------------------------------- */

static dci_status decode(stepping *s, const char *name)
{
        const size_t n = s->b->options->steps;
        dci_status status = DCI_OK;
        bench_progress progress;
        bench_progress_begin(&progress, name);
        for (size_t step = 0; step < n && status == DCI_OK; step++) {
                gpubench_driver_times times = {0};
                bench_progress_step(&progress, step, n);
                status = gpubench_driver_upload(&s->driver);
                if (status == DCI_OK)
                        status = gpubench_driver_step(&s->driver, &times);
                const double seconds[TIMES] = {times.wall, times.plan, times.attend, times.device, times.maintain};
                for (size_t i = 0; i < TIMES; i++)
                        s->seconds[i][step] = seconds[i];
        }
        bench_progress_end(&progress);
        DCI_TRY(status);
        DCI_TRY(dci_gpu_kv_sync(s->driver.kv));
        return gpubench_driver_check(&s->driver);
}

static dci_status report(stepping *s, const kvbench_arm *arm, const dci_gpu_kv_info *before,
                         const dci_gpu_kv_info *after)
{
        const gpubench_options *o = s->b->options;
        const char *name = dci_kv_preset_name(arm->preset);
        gpubench_time times[TIMES];
        char codes[32];
        kvbench_codes_name(arm, codes, sizeof codes);
        for (size_t i = 0; i < TIMES; i++)
                times[i] = gpubench_time_of(s->seconds[i], o->steps);
        const double fetched = (double)(after->bytes_fetched - before->bytes_fetched) / (double)o->steps;
        const double hit_rate = gpubench_hit_rate(before, after);
        const double tokens_per_s = 1e6 * (double)o->batch / times[STEP].median;
        json_t *shape = json_pack(
                "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:f, s:I, s:f, s:f}", "codes", codes, "budget",
                (json_int_t)o->budgets.values[0], "layers", (json_int_t)o->layers, "heads", (json_int_t)o->heads,
                "tokens", (json_int_t)o->tokens, "batch", (json_int_t)o->batch, "hot", (json_int_t)after->hot, "gather",
                gpubench_gather_name(o->gather), "device_bytes", (json_int_t)after->device_bytes, "pinned_bytes",
                (json_int_t)after->pinned_bytes, "hit_rate", hit_rate, "bytes_fetched_step", fetched, "stayed",
                (json_int_t)(after->n_stayed - before->n_stayed), "build_s", s->form_seconds, "tokens_per_s",
                tokens_per_s);
        DCI_TRY(gpubench_row(s->b, "step", name, shape, &times[STEP], 0, 0));
        for (size_t i = 1; i < TIMES; i++) {
                char field[32];
                snprintf(field, sizeof field, "%s_us", time_names[i]);
                gpubench_note(s->b, field, times[i].median);
        }
        printf("%-14s %-14s %9.0f %9.0f %9.0f %9.0f %9.0f %9.0f %8.1f%% %9.0f %9.1f\n", name, codes, times[STEP].median,
               times[STEP].p90, times[PLAN].median, times[ATTEND].median, times[DEVICE].median, times[MAINTAIN].median,
               100 * hit_rate, fetched / 1024, tokens_per_s);
        return DCI_OK;
}

static dci_status measure(stepping *s, const kvbench_arm *arm, const gpubench_driver_config *config)
{
        const gpubench_options *o = s->b->options;
        dci_gpu_kv_info before, after;
        DCI_TRY(dci_gpu_kv_info_init(&before, sizeof before));
        DCI_TRY(dci_gpu_kv_info_init(&after, sizeof after));
        for (size_t i = 0; i < TIMES; i++) {
                s->seconds[i] = gpubench_host(s->b, o->steps * sizeof(double));
                if (s->seconds[i] == NULL)
                        return DCI_ERR_MEMORY;
        }
        DCI_TRY(gpubench_driver_open(s->b, &s->feed, config, &s->driver));
        const double at = bench_seconds();
        DCI_TRY(gpubench_driver_fill(&s->driver, o->tokens, true));
        s->form_seconds = bench_seconds() - at;
        DCI_TRY(dci_gpu_kv_get_info(s->driver.kv, &before));
        DCI_TRY(decode(s, dci_kv_preset_name(arm->preset)));
        DCI_TRY(dci_gpu_kv_get_info(s->driver.kv, &after));
        return report(s, arm, &before, &after);
}

static dci_status play(void *arg, const kvbench_arm *arm, size_t variant)
{
        stepping *s = arg;
        const gpubench_options *o = s->b->options;
        const gpubench_driver_config config = {.arm = *arm,
                                               .layers = o->layers,
                                               .heads = o->heads,
                                               .batch = o->batch,
                                               .max_tokens = o->tokens + o->steps + 16,
                                               .max_prompt = o->tokens,
                                               .prompt_step = PREFILL_TOKENS,
                                               .planner = DCI_GPU_PLAN_AUTO,
                                               .out_dtype = DCI_F16,
                                               .maintain = true,
                                               .time_layers = true};
        (void)variant;
        s->driver = (gpubench_driver){.b = NULL};
        const dci_status status = measure(s, arm, &config);
        gpubench_driver_close(&s->driver);
        return status;
}

dci_status gpubench_step(gpubench *b)
{
        const gpubench_options *o = b->options;
        const size_t whole = (o->tokens > 2048 ? o->tokens : 2048) / 15 * 16 + 16;
        stepping s = {.b = b, .trace = {.helper = b->context}};
        dci_status status = kvbench_synthetic(b->context, whole, o->arms.seed, &s.trace);
        s.feed = (gpubench_feed){.group = s.trace.group,
                                 .dim = s.trace.keys.dim,
                                 .dtype = s.trace.keys.dtype,
                                 .scale = s.trace.scale,
                                 .n_observed = status == DCI_OK ? s.trace.observed.n / s.trace.group : 0,
                                 .arg = &s,
                                 .rows = feed_rows,
                                 .observed = feed_observed,
                                 .queries = feed_queries};
        printf("\nstep: %zu layers, %zu kv heads of %zu query heads, d %zu, prompt of %zu tokens, batch %zu, budget "
               "%zu, "
               "%s; us of a step, all layers\n%-14s %-14s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n",
               o->layers, o->heads, s.trace.group, s.trace.keys.dim, o->tokens, o->batch, o->budgets.values[0],
               gpubench_gather_name(o->gather), "preset", "codes", "step", "p90", "plan", "attend", "device",
               "maintain", "hits", "KiB/step", "tokens/s");
        if (status == DCI_OK)
                status = gpubench_each_arm(b, NULL, 1, play, &s);
        kvbench_trace_close(&s.trace);
        return status;
}
