/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part error: a trace's decode through a dci_gpu_kv and, with the same rows and queries, through a dci_kv on the CPU. Outputs of both are
 * held against attention to everything: the errors must be the same but for rounding, and so must the outputs.
 */
#include "bench/gpu/driver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PREFILL_TOKENS ((size_t)4096) /* of a step */
#define TOLERANCE 1e-2                /* of |device - CPU| / |CPU| of one output */

enum { CPU, DEVICE, EXACT, OUTPUTS };

typedef struct comparing {
        gpubench *b;
        const kvbench_trace *trace;
        kvbench_arm arm;
        size_t n_steps;
        dci_kv *cpu;
        dci_gpu_kv *device;
        int64_t on_cpu, on_device; /* the sequence */
        dci_kv_plan plan;
        gpubench_area keys, values, queries, out;
        float *host_queries, *outputs[OUTPUTS];
        double *seconds, errors[OUTPUTS], furthest;
        size_t n_errors;
} comparing;

/* --- the two caches ----------------------------------------------------------------------------------------------------------- */

static dci_status open_caches(comparing *c)
{
        gpubench *b = c->b;
        dci_kv_config config;
        dci_gpu_kv_config g;
        const kvbench_trace *trace = c->trace;
        DCI_TRY(gpubench_kv_config(&b->options->arms, trace, &c->arm, b->options->budgets.values[0], &config));
        DCI_TRY(dci_gpu_kv_config_init(&g, sizeof g));
        g.max_tokens = trace->tokens + 16;
        g.gather = b->options->gather;
        g.hot_tokens = b->options->hot;
        DCI_TRY(dci_kv_create(b->context, &config, &c->cpu));
        DCI_TRY(dci_gpu_kv_create(b->gpu, &config, &g, &c->device));
        DCI_TRY(dci_kv_open(c->cpu, &c->on_cpu));
        DCI_TRY(dci_gpu_kv_open(c->device, &c->on_device));
        return dci_kv_plan_create(c->cpu, 1, &c->plan);
}

static dci_status take_areas(comparing *c)
{
        const kvbench_trace *trace = c->trace;
        const size_t dim = trace->keys.dim, n = trace->group * trace->values.dim;
        const size_t queries = (trace->observed.n + trace->group) * dim * sizeof(float);
        bool memory = true;
        DCI_TRY(gpubench_take(c->b, PREFILL_TOKENS * dim * 2, GPUBENCH_ON_DEVICE, &c->keys));
        DCI_TRY(gpubench_take(c->b, PREFILL_TOKENS * trace->values.dim * 2, GPUBENCH_ON_DEVICE, &c->values));
        DCI_TRY(gpubench_take(c->b, queries, GPUBENCH_ON_DEVICE, &c->queries));
        DCI_TRY(gpubench_take(c->b, n * sizeof(float), GPUBENCH_ON_DEVICE, &c->out));
        c->host_queries = gpubench_host(c->b, queries);
        c->seconds = gpubench_host(c->b, (c->n_steps + 1) * sizeof *c->seconds);
        for (size_t i = 0; i < OUTPUTS; i++) {
                c->outputs[i] = gpubench_host(c->b, n * sizeof(float));
                memory = memory && c->outputs[i] != NULL;
        }
        if (!memory || c->host_queries == NULL || c->seconds == NULL)
                return DCI_ERR_MEMORY;
        return DCI_OK;
}

static void close_caches(comparing *c)
{
        if (c->cpu != NULL)
                dci_kv_plan_destroy(c->cpu, &c->plan);
        dci_kv_destroy(c->cpu);
        dci_gpu_kv_destroy(c->device);
}

/* --- steps -------------------------------------------------------------------------------------------------------------------- */

/* Query rows as floats, on both sides. */
static dci_status bring_queries(comparing *c, const bench_rows *rows, size_t first, size_t n)
{
        double *row = gpubench_host(c->b, rows->dim * sizeof *row);
        if (row == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n; i++) {
                bench_row_to_double(rows, first + i, row);
                for (size_t j = 0; j < rows->dim; j++)
                        c->host_queries[i * rows->dim + j] = (float)row[j];
        }
        return gpubench_upload(c->b, c->queries.device, c->host_queries, n * rows->dim * sizeof(float));
}

static dci_status append(comparing *c, size_t first, size_t n)
{
        const bench_rows *keys = &c->trace->keys, *values = &c->trace->values;
        dci_kv_rows rows;
        DCI_TRY(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = (const char *)keys->data + first * keys->dim * 2;
        rows.values = (const char *)values->data + first * values->dim * 2;
        DCI_TRY(dci_kv_reserve(c->cpu, 1, &c->on_cpu, &n));
        DCI_TRY(dci_gpu_kv_reserve(c->device, c->b->stream, 1, &c->on_device, &n));
        DCI_TRY(dci_kv_append(c->cpu, 0, 1, &c->on_cpu, &n, &rows));
        DCI_TRY(gpubench_upload(c->b, c->keys.device, rows.keys, n * keys->dim * 2));
        DCI_TRY(gpubench_upload(c->b, c->values.device, rows.values, n * values->dim * 2));
        rows.keys = c->keys.device;
        rows.values = c->values.device;
        return dci_gpu_kv_append(c->device, c->b->stream, 0, &rows);
}

static dci_status end_step(comparing *c)
{
        DCI_TRY(dci_kv_step_end(c->cpu, 1, &c->on_cpu));
        DCI_TRY(dci_gpu_kv_step_end(c->device, c->b->stream));
        /* Areas are written again by the next step. */
        return c->b->ops->stream_wait(c->b->gpu, c->b->stream);
}

static dci_status prefill(comparing *c)
{
        const kvbench_trace *trace = c->trace;
        const size_t n_observed = trace->observed.n / trace->group, dim = trace->keys.dim;
        DCI_TRY(bring_queries(c, &trace->observed, 0, trace->observed.n));
        for (size_t t = 0, n; t < trace->prompt; t += n) {
                n = trace->prompt - t < PREFILL_TOKENS ? trace->prompt - t : PREFILL_TOKENS;
                DCI_TRY(append(c, t, n));
                if (t + n == trace->prompt) {
                        DCI_TRY(dci_kv_end_prompt(c->cpu, 0, c->on_cpu, n_observed,
                                                  n_observed > 0 ? c->host_queries : NULL, dim));
                        DCI_TRY(dci_gpu_kv_end_prompt(c->device, c->b->stream, 0, c->on_device, n_observed,
                                                      n_observed > 0 ? c->queries.device : NULL, dim));
                }
                DCI_TRY(end_step(c));
        }
        return dci_gpu_kv_sync(c->device);
}

static dci_status judge(comparing *c, size_t step)
{
        const size_t dim = c->trace->values.dim;
        for (size_t h = 0; h < c->trace->group; h++, c->n_errors++) {
                const float *cpu = c->outputs[CPU] + h * dim, *device = c->outputs[DEVICE] + h * dim;
                const double apart = gpubench_distance(device, cpu, dim);
                c->errors[CPU] += gpubench_distance(cpu, c->outputs[EXACT] + h * dim, dim);
                c->errors[DEVICE] += gpubench_distance(device, c->outputs[EXACT] + h * dim, dim);
                c->furthest = fmax(c->furthest, apart);
                if (!(apart <= TOLERANCE))
                        return dci_fail(BENCH_ERR_RUN, "step %zu, query head %zu: the device is %g away from the CPU",
                                        step, h, apart);
        }
        return DCI_OK;
}

static dci_status step_once(comparing *c, size_t step)
{
        const kvbench_trace *trace = c->trace;
        const size_t dim = trace->keys.dim, dim_v = trace->values.dim;
        DCI_TRY(append(c, trace->prompt + step, 1));
        DCI_TRY(bring_queries(c, &trace->queries, step * trace->group, trace->group));
        DCI_TRY(dci_kv_plan_make(c->cpu, 0, 1, &c->on_cpu, c->host_queries, dim, &c->plan));
        DCI_TRY(dci_kv_attend(c->cpu, 0, 1, &c->on_cpu, c->host_queries, dim, &c->plan, c->outputs[CPU], dim_v, NULL));
        DCI_TRY(dci_kv_attend(c->cpu, 0, 1, &c->on_cpu, c->host_queries, dim, NULL, c->outputs[EXACT], dim_v, NULL));
        const double at = bench_seconds();
        DCI_TRY(dci_gpu_kv_plan(c->device, c->b->stream, 0, c->queries.device, dim));
        DCI_TRY(dci_gpu_kv_attend(c->device, c->b->stream, 0, c->queries.device, dim, c->out.device, dim_v, NULL));
        DCI_TRY(gpubench_download(c->b, c->outputs[DEVICE], c->out.device, trace->group * dim_v * sizeof(float)));
        c->seconds[step] = bench_seconds() - at;
        DCI_TRY(judge(c, step));
        DCI_TRY(end_step(c));
        DCI_TRY(dci_kv_maintain(c->cpu, 1, &c->on_cpu));
        return dci_gpu_kv_maintain(c->device, 1, &c->on_device);
}

static dci_status report(comparing *c)
{
        char codes[32];
        kvbench_codes_name(&c->arm, codes, sizeof codes);
        const double n = (double)c->n_errors, cpu = c->errors[CPU] / n, device = c->errors[DEVICE] / n;
        const gpubench_time time = gpubench_time_of(c->seconds, c->n_steps);
        const char *preset = dci_kv_preset_name(c->arm.preset);
        json_t *shape =
                json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f}", "codes", codes, "trace", c->trace->name, "budget",
                          (json_int_t)c->b->options->budgets.values[0], "steps", (json_int_t)c->n_steps, "err_cpu", cpu,
                          "err_device", device, "furthest", c->furthest);
        printf("%-14s %-14s %12.6f %12.6f %12.2e %9.1f\n", preset, codes, cpu, device, c->furthest, time.median);
        return gpubench_row(c->b, "error", preset, shape, &time, 0, 0);
}

static dci_status compare(void *arg, const kvbench_arm *arm, size_t variant)
{
        comparing c = *(const comparing *)arg;
        bench_progress progress;
        (void)variant;
        c.arm = *arm;
        dci_status status = dci_kv_plan_init(&c.plan, sizeof c.plan);
        if (status == DCI_OK)
                status = take_areas(&c);
        if (status == DCI_OK)
                status = open_caches(&c);
        if (status == DCI_OK)
                status = prefill(&c);
        bench_progress_begin(&progress, dci_kv_preset_name(arm->preset));
        for (size_t s = 0; s < c.n_steps && status == DCI_OK; s++) {
                bench_progress_step(&progress, s, c.n_steps);
                status = step_once(&c, s);
        }
        bench_progress_end(&progress);
        if (status == DCI_OK)
                status = report(&c);
        close_caches(&c);
        return status;
}

dci_status gpubench_error(gpubench *b)
{
        kvbench_options of = b->options->arms;
        kvbench_trace trace;
        of.synthetic = b->options->tiny ? 2048 : 32768;
        of.steps = b->options->walk_steps;
        dci_status status = kvbench_trace_open(b->context, &of, b->options->trace, &trace);
        if (status == DCI_OK) {
                comparing c = {.b = b, .trace = &trace, .n_steps = trace.tokens - trace.prompt};
                printf("\nerror: %s, %zu steps, budget %zu; mean of |o - exact| / |exact|, the furthest that outputs "
                       "are apart; "
                       "us of plan, attention and copy\n%-14s %-14s %12s %12s %12s %9s\n",
                       trace.name, c.n_steps, b->options->budgets.values[0], "preset", "codes", "CPU", "device",
                       "apart", "us");
                status = gpubench_each_arm(b, NULL, 1, compare, &c);
        }
        kvbench_trace_close(&trace);
        return status;
}
