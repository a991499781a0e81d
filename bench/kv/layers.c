/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The subcommand layers: what a step of a whole model costs. A model's shape is decoded layer by layer, so that keys and codes come
 * from memory as they do in earnest; a measurement that repeats one layer measures the cache. Rows are those of `kv --synthetic`,
 * the same for all layers and heads, but each has its own copy.
 */
#include "bench/kv/kv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simd/kernels.h"

#define PREFILL_TOKENS ((size_t)1024) /* of a step */
#define FULL_STEPS 2                  /* in which full attention is measured, too */

typedef struct layers_options {
        kvbench_options arms; /* presets, widths, codes, threads, isa, seed, json */
        size_t n_layers, tokens, n_heads, steps, budget, ring;
} layers_options;

enum { APPEND, PLAN, ATTEND, FULL, MAINTAIN, TIMES };
static const char *const time_names[TIMES] = {"append", "plan", "attend", "full", "maintain"};

#define TENTHS 10

typedef struct layers_row {
        kvbench_arm arm;
        double fill_ms, build_ms; /* of a layer: storing the prompt, and forming what is kept of it */
        double *seconds[TIMES];
        size_t n[TIMES];
        bench_latency times[TIMES];
        double late[TENTHS],
                bytes_token[TENTHS]; /* by tenth of the steps: maintain's p99, and memory per token afterwards */
        size_t maintained[TENTHS + 1];
        dci_kv_info info;
} layers_row;

/* clang-format off */
static const char help[] =
        "usage: dci-bench layers [options]\n"
        "\n"
        "Decodes some tokens of a model's shape, layer by layer, with made-up rows of d 128 and four query heads to a kv\n"
        "head (those of 'kv --synthetic'), and prints what one layer of one step costs, next to full attention.\n"
        "\n"
        "  --layers N                1 to 128 (default 32)\n"
        "  --heads N                 kv heads, 1 to 64 (default 8)\n"
        "  --tokens N                of the prompt, 2048 to 1048576 (default 32768)\n"
        "  --steps N                 tokens that are decoded, 1 to 1000000 (default 18)\n"
        "  --preset LIST             as in 'kv' (default full,pagemean,quest,arkvale,sketch,sketch+lowbit)\n"
        "  --budget N                (default 256)\n"
        "  --ring N                  of prkv: as in 'kv' (default 64)\n"
        "  --key-bits LIST, --value-bits LIST, --learned LIST   as in 'kv' (default 4, 2, random)\n"
        "  --verify N, --preselect N, --preselect-tokens N, --preselect-least N, --sums NAME   as in 'kv'\n"
        "  --threads N               (default 1)\n"
        "  --isa NAME                (default auto)\n"
        "  --seed N                  (default 0)\n"
        "  --json FILE               also write {machine, command, rows}; maintain_us_p99_tenths and bytes_token_tenths of\n"
        "                            a row: of each tenth of the steps, and all memory per token at its end\n"
        "\n"
        "columns, of one layer: fill ms and build ms (the prompt stored, and codes or summaries made of it), then median and\n"
        "99th percentile of append, plan and attend in us, full attention's median, maintain where groups were due; tokens/s:\n"
        "of all layers, appended, planned and attended to, against full attention.\n"
        "Needs layers x heads x tokens x 512 bytes of memory: 4 GiB by default.\n";
/* clang-format on */

/* --- one arm -------------------------------------------------------------------------------------------------------------- */

typedef struct playing {
        const layers_options *o;
        const kvbench_trace *trace;
        uint16_t *keys, *values; /* PREFILL_TOKENS x heads x dim */
        float *queries, *out;    /* of a step: heads x group x dim */
        float *observed;
        size_t n_observed;
        dci_kv *kv;
        dci_kv_plan plan;
        int64_t sequence;
} playing;

static dci_status open_arm(dci_context *context, playing *p, layers_row *row)
{
        const layers_options *o = p->o;
        dci_kv_config config;
        DCI_TRY(dci_kv_config_init(&config, sizeof config));
        config.n_layers = o->n_layers;
        config.n_kv_heads = o->n_heads;
        config.n_query_heads = o->n_heads * p->trace->group;
        config.dim_k = p->trace->keys.dim;
        config.dtype = p->trace->keys.dtype;
        config.scale = p->trace->scale;
        kvbench_set_arm(&o->arms, &row->arm, &config);
        config.budget = o->budget;
        config.foreground = 1; /* so that forming is timed by itself */
        if (o->ring > 0 && row->arm.preset == DCI_KV_PRKV)
                config.ring = o->ring;
        DCI_TRY(dci_kv_create(context, &config, &p->kv));
        DCI_TRY(dci_kv_open(p->kv, &p->sequence));
        DCI_TRY(dci_kv_plan_init(&p->plan, sizeof p->plan));
        return dci_kv_plan_create(p->kv, 1, &p->plan);
}

/* Tokens [first, first + n) of the trace, for every head. */
static dci_kv_rows rows_at(playing *p, size_t first, size_t n)
{
        const size_t dim = p->trace->keys.dim, n_heads = p->o->n_heads;
        const uint16_t *keys = p->trace->keys.data, *values = p->trace->values.data;
        dci_kv_rows rows;
        (void)dci_kv_rows_init(&rows, sizeof rows);
        for (size_t t = 0; t < n; t++)
                for (size_t h = 0; h < n_heads; h++) {
                        const size_t from = (first + t) % p->trace->tokens * dim, to = (t * n_heads + h) * dim;
                        memcpy(p->keys + to, keys + from, dim * sizeof *keys);
                        memcpy(p->values + to, values + from, dim * sizeof *values);
                }
        rows.keys = p->keys;
        rows.values = p->values;
        return rows;
}

/* The queries of a position, the same for every kv head. */
static void queries_at(const playing *p, const bench_rows *from, size_t position, float *out)
{
        const size_t part = p->trace->group * from->dim;
        const uint16_t *rows = (const uint16_t *)from->data + position * part;
        for (size_t h = 0; h < p->o->n_heads; h++)
                from->context->kernels->to_f32[from->dtype - 1](rows, part, out + h * part);
}

static dci_status fill(playing *p, layers_row *row)
{
        const size_t last = p->o->tokens - p->o->tokens % PREFILL_TOKENS;
        for (size_t t = 0, n; t < p->o->tokens; t += n) {
                n = t < last ? PREFILL_TOKENS : p->o->tokens - t;
                const bool ends = t + n == p->o->tokens;
                const dci_kv_rows rows = rows_at(p, t, n);
                DCI_TRY(dci_kv_reserve(p->kv, 1, &p->sequence, &n));
                for (size_t l = 0; l < p->o->n_layers; l++) {
                        double at = bench_seconds();
                        DCI_TRY(dci_kv_append(p->kv, l, 1, &p->sequence, &n, &rows));
                        row->fill_ms += (bench_seconds() - at) * 1e3 / (double)p->o->n_layers;
                        at = bench_seconds();
                        if (!ends)
                                continue;
                        DCI_TRY(dci_kv_end_prompt(p->kv, l, p->sequence, p->n_observed, p->observed,
                                                  p->trace->keys.dim));
                        row->build_ms += (bench_seconds() - at) * 1e3 / (double)p->o->n_layers;
                }
                DCI_TRY(dci_kv_step_end(p->kv, 1, &p->sequence));
        }
        return DCI_OK;
}

static void note(layers_row *row, int what, double since)
{
        row->seconds[what][row->n[what]++] = bench_seconds() - since;
}

static dci_status step_layer(playing *p, layers_row *row, size_t layer, size_t step, const dci_kv_rows *rows)
{
        const size_t dim = p->trace->keys.dim;
        double at = bench_seconds();
        DCI_TRY(dci_kv_append(p->kv, layer, 1, &p->sequence, NULL, rows));
        note(row, APPEND, at);
        at = bench_seconds();
        DCI_TRY(dci_kv_plan_make(p->kv, layer, 1, &p->sequence, p->queries, dim, &p->plan));
        note(row, PLAN, at);
        at = bench_seconds();
        DCI_TRY(dci_kv_attend(p->kv, layer, 1, &p->sequence, p->queries, dim, &p->plan, p->out, dim, NULL));
        note(row, ATTEND, at);
        at = bench_seconds();
        if (step < FULL_STEPS) {
                DCI_TRY(dci_kv_attend(p->kv, layer, 1, &p->sequence, p->queries, dim, NULL, p->out, dim, NULL));
                note(row, FULL, at);
        }
        return DCI_OK;
}

static dci_status end_tenth(const playing *p, layers_row *row, size_t tenth, size_t n_tokens)
{
        dci_kv_info info;
        (void)dci_kv_info_init(&info, sizeof info);
        const dci_status status = dci_kv_get_info(p->kv, &info);
        row->maintained[tenth] = row->n[MAINTAIN];
        row->bytes_token[tenth - 1] = (double)info.bytes / (double)n_tokens;
        return status;
}

static dci_status decode(playing *p, layers_row *row, bench_progress *progress)
{
        dci_kv_sequence_info info = {0};
        (void)dci_kv_sequence_info_init(&info, sizeof info);
        for (size_t s = 0; s < p->o->steps; s++) {
                const dci_kv_rows rows = rows_at(p, p->o->tokens + s, 1);
                queries_at(p, &p->trace->queries, s % (p->trace->tokens - p->trace->prompt), p->queries);
                DCI_TRY(dci_kv_reserve(p->kv, 1, &p->sequence, NULL));
                for (size_t l = 0; l < p->o->n_layers; l++)
                        DCI_TRY(step_layer(p, row, l, s, &rows));
                DCI_TRY(dci_kv_step_end(p->kv, 1, &p->sequence));
                size_t before = 0;
                DCI_TRY(dci_kv_get_sequence(p->kv, p->sequence, &info));
                before = info.n_grouped;
                const double at = bench_seconds();
                DCI_TRY(dci_kv_maintain(p->kv, 1, &p->sequence));
                const double took = bench_seconds() - at;
                DCI_TRY(dci_kv_get_sequence(p->kv, p->sequence, &info));
                if (info.n_grouped > before)
                        row->seconds[MAINTAIN][row->n[MAINTAIN]++] = took / (double)p->o->n_layers;
                for (size_t t = 1; t <= TENTHS; t++)
                        if (s + 1 == p->o->steps * t / TENTHS)
                                DCI_TRY(end_tenth(p, row, t, p->o->tokens + s + 1));
                bench_progress_step(progress, s + 1, p->o->steps);
        }
        return DCI_OK;
}

static dci_status play(dci_context *context, const layers_options *o, const kvbench_trace *trace, layers_row *row)
{
        playing p = {.o = o, .trace = trace};
        bench_progress progress;
        char label[64];
        const size_t dim = trace->keys.dim, heads = o->n_heads * trace->group;
        p.n_observed = trace->observed.n / trace->group;
        p.keys = malloc(PREFILL_TOKENS * o->n_heads * dim * sizeof *p.keys);
        p.values = malloc(PREFILL_TOKENS * o->n_heads * dim * sizeof *p.values);
        p.queries = malloc(heads * dim * sizeof *p.queries);
        p.out = malloc(heads * dim * sizeof *p.out);
        p.observed = malloc((p.n_observed + 1) * heads * dim * sizeof *p.observed);
        bool memory = p.keys != NULL && p.values != NULL && p.queries != NULL && p.out != NULL && p.observed != NULL;
        for (int i = 0; i < TIMES; i++) {
                row->seconds[i] = malloc((o->steps * o->n_layers + 1) * sizeof(double));
                memory = memory && row->seconds[i] != NULL;
        }
        dci_status status = memory ? DCI_OK : dci_fail(DCI_ERR_MEMORY, "memory for the steps could not be had");
        for (size_t i = 0; i < p.n_observed && status == DCI_OK; i++)
                queries_at(&p, &trace->observed, i, p.observed + i * heads * dim);
        snprintf(label, sizeof label, "%s", dci_kv_preset_name(row->arm.preset));
        bench_progress_begin(&progress, label);
        if (status == DCI_OK)
                status = open_arm(context, &p, row);
        if (status == DCI_OK)
                status = fill(&p, row);
        if (status == DCI_OK)
                status = decode(&p, row, &progress);
        bench_progress_end(&progress);
        (void)dci_kv_info_init(&row->info, sizeof row->info);
        if (status == DCI_OK)
                status = dci_kv_get_info(p.kv, &row->info);
        for (size_t t = 0; t < TENTHS && status == DCI_OK && o->steps >= TENTHS; t++) {
                const size_t n = row->maintained[t + 1] - row->maintained[t];
                row->late[t] =
                        n > 0 ? bench_latency_of(row->seconds[MAINTAIN] + row->maintained[t], n).p99 : (double)NAN;
        }
        for (int i = 0; i < TIMES; i++) {
                if (status == DCI_OK && row->n[i] > 0)
                        row->times[i] = bench_latency_of(row->seconds[i], row->n[i]);
                free(row->seconds[i]);
        }
        dci_kv_plan_destroy(p.kv, &p.plan);
        dci_kv_destroy(p.kv);
        free(p.keys);
        free(p.values);
        free(p.queries);
        free(p.out);
        free(p.observed);
        return status;
}

/* --- reports -------------------------------------------------------------------------------------------------------------- */

/* Steps per second of all layers. */
static double rate(const layers_options *o, const layers_row *row, bool full)
{
        const double us = row->times[APPEND].median +
                          (full ? row->times[FULL].median : row->times[PLAN].median + row->times[ATTEND].median);
        return 1e6 / (us * (double)o->n_layers);
}

static void print_row(const layers_options *o, const layers_row *row)
{
        char codes[64], maintain[32] = "-";
        kvbench_codes_name(&row->arm, codes, sizeof codes);
        if (row->n[MAINTAIN] > 0)
                snprintf(maintain, sizeof maintain, "%.0f", row->times[MAINTAIN].median);
        printf("%-14s %-14s %8.1f %8.1f %7.1f %8.0f %8.0f %8.0f %8.0f %9.0f %9s %9.1f %9.1f %8.1f\n",
               dci_kv_preset_name(row->arm.preset), codes, row->fill_ms, row->build_ms, row->times[APPEND].median,
               row->times[PLAN].median, row->times[PLAN].p99, row->times[ATTEND].median, row->times[ATTEND].p99,
               row->times[FULL].median, maintain, rate(o, row, false), rate(o, row, true),
               row->info.resident_token_bytes);
}

static json_t *row_json(const layers_options *o, const layers_row *row)
{
        json_t *json = json_pack("{s:s, s:i, s:i, s:b, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "preset",
                                 dci_kv_preset_name(row->arm.preset), "key_bits", (int)row->arm.key_bits, "value_bits",
                                 (int)row->arm.value_bits, "learned", (int)row->arm.learned, "budget",
                                 (json_int_t)o->budget, "layers", (json_int_t)o->n_layers, "heads",
                                 (json_int_t)o->n_heads, "tokens", (json_int_t)o->tokens, "fill_ms", row->fill_ms,
                                 "build_ms", row->build_ms, "tokens_per_s", rate(o, row, false), "tokens_per_s_full",
                                 rate(o, row, true), "resident_token_bytes", row->info.resident_token_bytes);
        for (size_t t = 0; t < TENTHS && json != NULL && o->steps >= TENTHS; t++) {
                if (t == 0) {
                        json_object_set_new(json, "maintain_us_p99_tenths", json_array());
                        json_object_set_new(json, "bytes_token_tenths", json_array());
                }
                json_array_append_new(json_object_get(json, "maintain_us_p99_tenths"),
                                      isnan(row->late[t]) ? json_null() : json_real(row->late[t]));
                json_array_append_new(json_object_get(json, "bytes_token_tenths"), json_real(row->bytes_token[t]));
        }
        for (int i = 0; i < TIMES && json != NULL; i++) {
                char name[32];
                if (row->n[i] == 0)
                        continue;
                snprintf(name, sizeof name, "%s_us", time_names[i]);
                json_object_set_new(json, name, json_real(row->times[i].median));
                snprintf(name, sizeof name, "%s_us_p99", time_names[i]);
                json_object_set_new(json, name, json_real(row->times[i].p99));
        }
        return json;
}

/* --- the command ---------------------------------------------------------------------------------------------------------- */

static dci_status run(const layers_options *o, dci_context *context, int argc, char **argv)
{
        kvbench_trace trace = {.helper = context};
        json_t *rows = json_array();
        const size_t whole = (o->tokens > 2048 ? o->tokens : 2048) / 15 * 16 + 16;
        dci_status status = kvbench_synthetic(context, whole, o->arms.seed, &trace);
        if (status == DCI_OK)
                printf("%zu layers, %zu kv heads of %zu query heads, d %zu, prompt of %zu tokens, %zu decoded, budget "
                       "%zu, %s, "
                       "%d threads\n\n%-14s %-14s %8s %8s %7s %8s %8s %8s %8s %9s %9s %9s %9s %8s\n",
                       o->n_layers, o->n_heads, trace.group, trace.keys.dim, o->tokens, o->steps, o->budget,
                       dci_isa_name(dci_context_isa(context)), (int)dci_context_threads(context), "preset", "codes",
                       "fill ms", "build ms", "append", "plan us", "p99", "attend", "p99", "full us", "maintain",
                       "tokens/s", "full", "B/token");
        const size_t n_arms = kvbench_arms(&o->arms, NULL);
        kvbench_arm *arms = malloc((n_arms + 1) * sizeof *arms);
        if (status == DCI_OK && arms == NULL)
                status = dci_fail(DCI_ERR_MEMORY, "%zu arms could not be had", n_arms);
        if (status == DCI_OK)
                kvbench_arms(&o->arms, arms);
        for (size_t i = 0; i < n_arms && arms != NULL && status == DCI_OK; i++) {
                layers_row row = {.arm = arms[i]};
                status = play(context, o, &trace, &row);
                if (status == DCI_OK) {
                        print_row(o, &row);
                        json_array_append_new(rows, row_json(o, &row));
                }
        }
        free(arms);
        if (status == DCI_OK && o->arms.json != NULL) {
                json_t *json = json_pack("{s:o, s:o, s:O}", "machine", bench_machine_json(context), "command",
                                         bench_command_json(argc, argv), "rows", rows);
                status = bench_write_json(json, o->arms.json);
        }
        json_decref(rows);
        kvbench_trace_close(&trace);
        return status;
}

int bench_layers(int argc, char **argv)
{
        layers_options o = {.n_layers = 32, .tokens = 32768, .n_heads = 8, .steps = 18, .budget = 256};
        bool asked_help = false;
        const bench_option more[] = {
                {"layers", OPTION_SIZE, &o.n_layers, 1, 128, NULL},
                {"heads", OPTION_SIZE, &o.n_heads, 1, 64, NULL},
                {"tokens", OPTION_SIZE, &o.tokens, 2048, (size_t)1 << 20, NULL},
                {"steps", OPTION_SIZE, &o.steps, 1, 1000000, NULL},
                {"budget", OPTION_SIZE, &o.budget, 1, DCI_KV_MAX_TOKENS, NULL},
                {"ring", OPTION_SIZE, &o.ring, 1, 4096, NULL},
        };
        dci_context *context = NULL;
        dci_context_config config;
        dci_status status = kvbench_arms_parse(argc, argv, "full,pagemean,quest,arkvale,sketch,sketch+lowbit", more,
                                               sizeof more / sizeof *more, &o.arms, &asked_help);
        if (status == DCI_OK && asked_help) {
                printf("%s", help);
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK && o.arms.json != NULL)
                status = bench_check_writable(o.arms.json);
        if (status == DCI_OK)
                status = dci_context_config_init(&config, sizeof config);
        if (status == DCI_OK) {
                config.n_threads = (int32_t)o.arms.threads;
                config.isa = o.arms.isa;
                status = dci_context_create(&config, &context);
        }
        if (status == DCI_OK)
                status = run(&o, context, argc, argv);
        dci_context_destroy(context);
        return status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("layers", status);
}
