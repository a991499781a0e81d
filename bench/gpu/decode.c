/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part decode: what the KV path of a decode step takes, preset by preset, over lengths and batches: all layers' append, plan and attend. What
 * the device plans, and full attention, is a graph of all layers that is replayed; what the host plans runs call by call. Queries walk on from
 * step to step (bench/gpu/stream.c); they and the new rows are uploaded before each step, outside the clock.
 */
#include "bench/gpu/driver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MODEL_LAYERS = 32, WARM_STEPS = 8, PREFIX_STEPS = 16, PREFIX_WARM = 3, WALK_STEPS = 1024, MAX_FULL = 128 };
enum { OVERLAP_TOKENS = 16384, OVERLAP_STEPS = 192 };
#define DEVICE_SHARE 0.9 /* of what is free, for layers that are kept whole */

/* Time of full attention, for ratios. */
typedef struct full_time {
        size_t batch, tokens;
        double us; /* of one layer */
} full_time;

/* How much consecutive steps of the walk share, found once for each length. */
typedef struct walk_shares {
        size_t tokens;
        double last, kept;
} walk_shares;

typedef struct decoding {
        gpubench *b;
        gpubench_stream stream;
        gpubench_feed feed; /* of the stream */
        gpubench_driver driver;
        int32_t planner;
        bool graphed;
        size_t batch, tokens, host_bytes;
        double fill_seconds, first_seconds, *samples; /* first: of the step after the prompt, with its capture */
        int32_t contiguous;
        size_t n_shares;
        walk_shares shares[BENCH_MAX_SHARES], share; /* share: of `tokens` */
        dci_gpu_kv_info before, after;
        gpubench_time whole, wall, plan, maintain;
        double mean;           /* microseconds; with what is formed once for many tokens */
        double phases[PHASES]; /* NAN: there is none */
        full_time full[MAX_FULL];
        size_t n_full;
} decoding;

static bool is_full(const kvbench_arm *arm)
{
        return arm->preset == DCI_KV_FULL;
}

/* Whether the preset's groups are lists, which contiguous copies are made of. */
static bool has_groups(const kvbench_arm *arm)
{
        static const int32_t presets[] = {DCI_KV_ICECACHE, DCI_KV_CLUSTERKV, DCI_KV_PRKV, DCI_KV_LOUISKV,
                                          DCI_KV_RETROINFER};
        bool some = false;
        for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
                some = some || arm->preset == presets[i];
        return some;
}

/* --- how many layers there is room for ------------------------------------------------------------------------------------------- */

static size_t number_in(const char *path, const char *before)
{
        char line[256];
        size_t out = 0;
        FILE *file = fopen(path, "r");
        while (file != NULL && out == 0 && fgets(line, sizeof line, file) != NULL)
                if (strncmp(line, before, strlen(before)) == 0)
                        out = (size_t)strtoull(line + strlen(before), NULL, 10);
        if (file != NULL)
                fclose(file);
        return out;
}

/* Returns how much host memory may be locked: a share of what the system and its container have left. */
static size_t host_bytes(const gpubench_options *o)
{
        if (o->host_gib > 0)
                return o->host_gib << 30;
        size_t free_bytes = number_in("/proc/meminfo", "MemAvailable:") << 10;
        const size_t most = number_in("/sys/fs/cgroup/memory.max", ""),
                     used = number_in("/sys/fs/cgroup/memory.current", "");
        if (most > 0 && (free_bytes == 0 || most - (used < most ? used : most) < free_bytes))
                free_bytes = most - (used < most ? used : most);
        return free_bytes / 10 * 8;
}

/* Of a layer's keys and values. */
static size_t rows_bytes(const decoding *d, size_t tokens, bool forks)
{
        return (forks ? 1 : d->batch) * tokens * d->b->options->heads * GPUBENCH_DIM * 4;
}

/* And of their copies. */
static size_t layer_bytes(const decoding *d, size_t tokens, bool forks)
{
        return (d->contiguous != 0 ? 2 : 1) * rows_bytes(d, tokens, forks);
}

static size_t max_layers(const decoding *d, const kvbench_arm *arm, size_t tokens)
{
        const gpubench_options *o = d->b->options;
        const bool by_host = !is_full(arm) && d->planner == DCI_GPU_PLAN_HOST;
        size_t n = by_host && o->host_layers < o->decode_layers ? o->host_layers : o->decode_layers;
        const size_t per_layer = layer_bytes(d, tokens, o->forks);
        n = n < d->host_bytes / per_layer ? n : d->host_bytes / per_layer;
        if (is_full(arm)) {
                /* One layer's rows of the prompt need room, too. */
                const size_t room = (size_t)(DEVICE_SHARE * (double)gpubench_free_bytes(d->b)),
                             rows = layer_bytes(d, tokens, true), fit = room > rows ? (room - rows) / per_layer : 0;
                n = n < fit ? n : fit;
        }
        return n;
}

/* --- measuring ----------------------------------------------------------------------------------------------------------------------- */

/* Runs n steps after `warm` and stores their times, by the wall clock if there is no graph. */
static dci_status steps(decoding *d, size_t n, size_t warm, gpubench_time *out)
{
        gpubench_driver_times times = {0};
        for (size_t s = 0; s < warm + n; s++) {
                DCI_TRY(gpubench_driver_upload(&d->driver));
                DCI_TRY(gpubench_driver_step(&d->driver, &times));
                if (s >= warm)
                        d->samples[s - warm] = d->driver.graph != NULL ? times.device : times.wall;
        }
        *out = gpubench_time_of(d->samples, n);
        return DCI_OK;
}

/* Measures the steps that are reported: all of their times, and the bytes moved. */
static dci_status measure_whole(decoding *d)
{
        const size_t n = d->b->options->steps;
        double *kinds[] = {d->samples, d->samples + n, d->samples + 2 * n, d->samples + 3 * n};
        gpubench_time ignored;
        DCI_TRY(steps(d, 1, WARM_STEPS, &ignored));
        DCI_TRY(dci_gpu_kv_get_info(d->driver.kv, &d->before));
        for (size_t s = 0; s < n; s++) {
                gpubench_driver_times times = {0};
                DCI_TRY(gpubench_driver_upload(&d->driver));
                DCI_TRY(gpubench_driver_step(&d->driver, &times));
                kinds[0][s] = d->driver.graph != NULL ? times.device : times.wall;
                kinds[1][s] = times.wall;
                kinds[2][s] = times.plan;
                kinds[3][s] = times.maintain;
        }
        DCI_TRY(dci_gpu_kv_get_info(d->driver.kv, &d->after));
        DCI_TRY(gpubench_driver_check(&d->driver));
        d->mean = 0;
        for (size_t s = 0; s < n; s++)
                d->mean += 1e6 * kinds[0][s] / (double)n;
        d->whole = gpubench_time_of(kinds[0], n);
        d->wall = gpubench_time_of(kinds[1], n);
        d->plan = gpubench_time_of(kinds[2], n);
        d->maintain = gpubench_time_of(kinds[3], n);
        return DCI_OK;
}

/* Times graphs that end before each phase, from the last one on. Rows that such a graph did not fetch count as resident, so that the
 * sequences cannot be used afterwards. */
static dci_status split_graph(decoding *d, size_t max_tokens, const bool *present)
{
        double longer = d->whole.median;
        dci_status status = DCI_OK;
        int first = 0;
        while (first < PHASES - 1 && !present[first])
                first++;
        const size_t n = d->b->options->steps < PREFIX_STEPS ? d->b->options->steps : PREFIX_STEPS;
        for (int phase = PHASES - 1; phase > first && status == DCI_OK; phase--) {
                gpubench_time shorter = {0};
                if (!present[phase])
                        continue;
                gpubench_tap_allow((1U << phase) - 1);
                status = gpubench_driver_capture(&d->driver, max_tokens);
                if (status == DCI_OK)
                        status = steps(d, n, PREFIX_WARM, &shorter);
                d->phases[phase] = longer - shorter.median;
                longer = shorter.median;
        }
        d->phases[first] = longer;
        gpubench_tap_allow(PHASES_ALL);
        gpubench_driver_drop_graph(&d->driver);
        return status;
}

/* Times phases call by call, with events around each kernel; the host's selection is the time of its calls. */
static dci_status split_calls(decoding *d, const bool *present)
{
        const size_t n = d->b->options->steps < PREFIX_STEPS ? d->b->options->steps : PREFIX_STEPS;
        double seconds[PHASES] = {0};
        for (size_t s = 0; s < n; s++) {
                gpubench_driver_times times = {0};
                DCI_TRY(gpubench_driver_upload(&d->driver));
                gpubench_tap_time();
                DCI_TRY(gpubench_driver_step(&d->driver, &times));
                DCI_TRY(gpubench_tap_times(d->b, seconds));
        }
        for (int phase = 0; phase < PHASES; phase++)
                if (present[phase])
                        d->phases[phase] = 1e6 * seconds[phase] / (double)n;
        if (!is_full(&d->driver.config.arm)) {
                d->phases[PHASE_SELECT] = d->plan.median;
                d->phases[PHASE_ENCODE] = d->maintain.median;
        }
        return DCI_OK;
}

static size_t steps_taken(const gpubench_options *o)
{
        return o->steps + WARM_STEPS + (PHASES + 1) * (PREFIX_STEPS + PREFIX_WARM + 2);
}

/* --- a row ----------------------------------------------------------------------------------------------------------------------------- */

static double ratio_to_full(decoding *d)
{
        const gpubench_driver_config *c = &d->driver.config;
        const double us = d->whole.median / (double)c->layers;
        if (is_full(&c->arm) && d->n_full < MAX_FULL)
                d->full[d->n_full++] = (full_time){d->batch, d->tokens, us};
        for (size_t i = 0; i < d->n_full; i++)
                if (d->full[i].batch == d->batch && d->full[i].tokens == d->tokens)
                        return us / d->full[i].us;
        return NAN;
}

static int32_t lists_of(const decoding *d)
{
        dci_kv_info host = {.struct_size = sizeof host};
        return dci_kv_get_info(dci_gpu_kv_host(d->driver.kv), &host) == DCI_OK && host.n_lists > d->driver.config.heads
                       ? KVBENCH_LISTS_QUERY
                       : KVBENCH_LISTS_KV;
}

static json_t *shape_of(const decoding *d, const char *codes)
{
        const gpubench_driver_config *c = &d->driver.config;
        const gpubench_options *o = d->b->options;
        const char *planner = is_full(&c->arm) ? "none" : d->planner == DCI_GPU_PLAN_DEVICE ? "device" : "host";
        json_t *shape =
                json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:s, s:I, s:b, s:s}", "codes",
                          codes, "planner", planner, "runs_as", d->graphed ? "graph" : "calls", "budget",
                          (json_int_t)o->budgets.values[0], "layers", (json_int_t)c->layers, "model_layers",
                          (json_int_t)MODEL_LAYERS, "heads", (json_int_t)c->heads, "batch", (json_int_t)d->batch,
                          "tokens", (json_int_t)d->tokens, "steps", (json_int_t)o->steps, "forks",
                          (int)(o->forks && d->batch > 1), "max_tokens", (json_int_t)c->max_tokens, "gather",
                          gpubench_gather_name(o->gather), "resident_mib", (json_int_t)o->resident_mib, "contiguous",
                          (int)d->contiguous, "lists", kvbench_lists_name(lists_of(d)));
        return shape;
}

static void note_memory(const decoding *d)
{
        const gpubench_driver_config *c = &d->driver.config;
        gpubench *b = d->b;
        const size_t free_now = gpubench_free_bytes(b);
        gpubench_note(b, "device_bytes", (double)d->after.device_bytes);
        gpubench_note(b, "lane_bytes", (double)d->after.lane_bytes);
        gpubench_note(b, "summary_bytes", (double)d->after.summary_bytes);
        gpubench_note(b, "pinned_bytes", (double)d->after.pinned_bytes);
        gpubench_note(b, "resident_bytes", (double)d->after.resident_bytes);
        gpubench_note(b, "resident_used_bytes", (double)d->after.resident_used_bytes);
        dci_kv_info host = {.struct_size = sizeof host};
        if (dci_kv_get_info(dci_gpu_kv_host(d->driver.kv), &host) == DCI_OK) {
                gpubench_note(b, "row_bytes", (double)host.row_bytes);
                gpubench_note(b, "copy_bytes", (double)host.copy_bytes);
        }
        gpubench_note(b, "full_bytes", (double)c->layers * (double)rows_bytes(d, d->tokens, false));
        gpubench_note(b, "device_taken",
                      d->driver.free_before > free_now ? (double)(d->driver.free_before - free_now) : 0);
}

static void note_times(const decoding *d, double ratio)
{
        gpubench *b = d->b;
        const gpubench_driver_config *c = &d->driver.config;
        const double n_steps = (double)b->options->steps, asked = (double)(d->after.n_asked - d->before.n_asked);
        const double fetched = (double)(d->after.bytes_fetched - d->before.bytes_fetched) / n_steps;
        const double missed = (double)(d->after.n_missed - d->before.n_missed);
        const double model = d->whole.median * MODEL_LAYERS / (double)c->layers;
        gpubench_note(b, "us_mean", d->mean);
        gpubench_note(b, "us_model", model);
        gpubench_note(b, "step_us", d->wall.median);
        gpubench_note(b, "tokens_per_s", 1e6 * (double)d->batch / model);
        gpubench_note(b, "ratio_full", ratio);
        for (int phase = 0; phase < PHASES; phase++) {
                char name[32];
                snprintf(name, sizeof name, "%s_us", gpubench_phase_names[phase]);
                gpubench_note(b, name, d->phases[phase]);
        }
        if (asked > 0)
                gpubench_note(b, "hit_rate", gpubench_hit_rate(&d->before, &d->after));
        if (missed > 0)
                gpubench_note(b, "resident_rate", (double)(d->after.n_resident - d->before.n_resident) / missed);
        gpubench_note(b, "bytes_fetched_step", fetched);
        gpubench_note(b, "unit_tokens", (double)d->after.unit_tokens);
        gpubench_note(b, "units_step", asked / n_steps);
        gpubench_note(b, "missed_step", missed / n_steps);
        gpubench_note(b, "first_s", d->first_seconds);
        gpubench_note(b, "bytes_written_step", (double)(d->after.bytes_written - d->before.bytes_written) / n_steps);
        gpubench_note(b, "stayed", (double)(d->after.n_stayed - d->before.n_stayed));
        if (fetched > 0 && d->phases[PHASE_GATHER] > 0)
                gpubench_note(b, "fetched_gb_s", fetched / (1e3 * d->phases[PHASE_GATHER]));
        gpubench_note(b, "bulk_gb_s", 1e-9 * b->limits.to_device);
        gpubench_note(b, "fill_s", d->fill_seconds);
        gpubench_note(b, "walk_overlap", d->share.last);
        gpubench_note(b, "walk_kept", d->share.kept);
}

static double phase_or_zero(const decoding *d, int phase)
{
        return isnan(d->phases[phase]) ? 0 : d->phases[phase];
}

static dci_status report(decoding *d)
{
        const gpubench_driver_config *c = &d->driver.config;
        char codes[32], memory[32];
        kvbench_codes_name(&c->arm, codes, sizeof codes);
        const double ratio = ratio_to_full(d);
        DCI_TRY(gpubench_row(d->b, "decode", dci_kv_preset_name(c->arm.preset), shape_of(d, codes), &d->whole, 0, 0));
        note_memory(d);
        note_times(d, ratio);
        bench_format_bytes(memory, sizeof memory, d->after.device_bytes);
        printf("%-14s %-6s %5zu %8zu %6zu %10.1f %10.1f %6.2f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %6.1f%% %10s %6.1f "
               "s\n",
               dci_kv_preset_name(c->arm.preset),
               is_full(&c->arm)                    ? "-"
               : d->planner == DCI_GPU_PLAN_DEVICE ? "device"
                                                   : "HOST",
               d->batch, d->tokens, c->layers, d->whole.median, d->wall.median, ratio,
               phase_or_zero(d, PHASE_APPEND) + phase_or_zero(d, PHASE_ENCODE),
               phase_or_zero(d, PHASE_SCORE) + phase_or_zero(d, PHASE_SELECT), phase_or_zero(d, PHASE_RESIDENCY),
               phase_or_zero(d, PHASE_GATHER), phase_or_zero(d, PHASE_TAIL), phase_or_zero(d, PHASE_ATTEND),
               100 * gpubench_hit_rate(&d->before, &d->after), memory, d->fill_seconds);
        if (d->contiguous != 0)
                printf("%-14s contiguous: units of %zu tokens, %.1f of %.1f missed in a step\n", "",
                       d->after.unit_tokens,
                       (double)(d->after.n_missed - d->before.n_missed) / (double)d->b->options->steps,
                       (double)(d->after.n_asked - d->before.n_asked) / (double)d->b->options->steps);
        fflush(stdout);
        return DCI_OK;
}

/* --- lengths ------------------------------------------------------------------------------------------------------------------------------ */

static dci_status prepare_walk(decoding *d)
{
        DCI_TRY(gpubench_stream_walk(&d->stream, d->tokens, WALK_STEPS));
        for (size_t i = 0; i < d->n_shares; i++)
                if (d->shares[i].tokens == d->tokens) {
                        d->share = d->shares[i];
                        return DCI_OK;
                }
        d->share.tokens = d->tokens;
        DCI_TRY(gpubench_stream_overlap(&d->stream, OVERLAP_TOKENS, d->b->options->tiny ? 8 : OVERLAP_STEPS,
                                        &d->share.last, &d->share.kept));
        if (d->n_shares < BENCH_MAX_SHARES)
                d->shares[d->n_shares++] = d->share;
        return DCI_OK;
}

/* Measures one length with the open cache. */
static dci_status measure_length(decoding *d)
{
        const gpubench_options *o = d->b->options;
        const size_t max_tokens = d->tokens + steps_taken(o);
        bool present[PHASES];
        dci_status status = prepare_walk(d);
        const double begin = bench_seconds();
        for (int phase = 0; phase < PHASES; phase++) {
                d->phases[phase] = NAN;
                (void)gpubench_tap_calls(phase);
        }
        if (status == DCI_OK)
                status = gpubench_driver_fill(&d->driver, d->tokens, o->forks);
        d->fill_seconds = bench_seconds() - begin;
        const double filled = bench_seconds();
        if (status == DCI_OK)
                status = gpubench_driver_upload(&d->driver);
        if (status == DCI_OK && (is_full(&d->driver.config.arm) || d->planner == DCI_GPU_PLAN_DEVICE))
                status = gpubench_driver_capture(&d->driver, max_tokens);
        d->first_seconds = bench_seconds() - filled;
        /* Kernels are counted in the step that was captured and the one before it, or in the first ones. */
        const bool captured = d->graphed = d->driver.graph != NULL;
        for (int phase = 0; phase < PHASES && captured; phase++)
                present[phase] = gpubench_tap_calls(phase) > 0;
        if (status == DCI_OK)
                status = measure_whole(d);
        for (int phase = 0; phase < PHASES && !captured; phase++)
                present[phase] = gpubench_tap_calls(phase) > 0;
        if (status == DCI_OK)
                status = captured ? split_graph(d, max_tokens, present) : split_calls(d, present);
        if (status == DCI_OK)
                status = report(d);
        gpubench_driver_drop_graph(&d->driver);
        const dci_status emptied = d->driver.kv != NULL ? gpubench_driver_empty(&d->driver) : DCI_OK;
        return status == DCI_OK ? emptied : status;
}

/* Measures n lengths in one cache: memory that is locked for one serves the next. */
static dci_status measure_cache(decoding *d, const kvbench_arm *arm, const size_t *lengths, size_t n, size_t layers)
{
        gpubench *b = d->b;
        const size_t mark = b->n_areas;
        const gpubench_driver_config config = {.arm = *arm,
                                               .layers = layers,
                                               .heads = b->options->heads,
                                               .batch = d->batch,
                                               .max_tokens = lengths[n - 1] + steps_taken(b->options),
                                               .max_prompt = lengths[n - 1],
                                               .planner = is_full(arm) ? DCI_GPU_PLAN_AUTO : b->options->planner,
                                               .resident_bytes = b->options->resident_mib << 20,
                                               .contiguous = d->contiguous,
                                               .out_dtype = DCI_BF16};
        dci_status status = gpubench_driver_open(b, &d->feed, &config, &d->driver);
        for (size_t i = 0; i < n && status == DCI_OK; i++) {
                d->tokens = lengths[i];
                status = measure_length(d);
        }
        gpubench_driver_close(&d->driver);
        gpubench_release(b, mark);
        return status;
}

static int compare_sizes(const void *a, const void *b)
{
        const size_t x = *(const size_t *)a, y = *(const size_t *)b;
        return (x > y) - (x < y);
}

/* Prints why a length is left out. */
static bool is_wanted(const decoding *d, const kvbench_arm *arm, size_t tokens)
{
        const gpubench_options *o = d->b->options;
        const char *name = dci_kv_preset_name(arm->preset);
        if (max_layers(d, arm, tokens) == 0) {
                printf("%-14s %5zu x %zu left out: not one layer fits\n", name, d->batch, tokens);
                return false;
        }
        if (!is_full(arm) && d->planner == DCI_GPU_PLAN_HOST && d->batch * tokens > o->host_tokens) {
                printf("%-14s %5zu x %zu left out: the host plans, and --host-tokens is %zu\n", name, d->batch, tokens,
                       o->host_tokens);
                return false;
        }
        return true;
}

static dci_status measure_arm(void *arg, const kvbench_arm *arm, size_t variant)
{
        decoding *d = arg;
        bench_sizes lengths = d->b->options->lengths;
        gpubench_driver_config config = {.arm = *arm,
                                         .heads = d->b->options->heads,
                                         .planner = is_full(arm) ? DCI_GPU_PLAN_AUTO : d->b->options->planner,
                                         .resident_bytes = d->b->options->resident_mib << 20,
                                         .out_dtype = DCI_BF16};
        d->batch = d->b->options->batches.values[variant % d->b->options->batches.n];
        d->contiguous = config.contiguous =
                (int32_t)d->b->options->contiguous.values[variant / d->b->options->batches.n];
        if (d->contiguous != 0 && !has_groups(arm))
                return DCI_OK;
        DCI_TRY(gpubench_driver_planner(d->b, &d->feed, &config, &d->planner));
        qsort(lengths.values, lengths.n, sizeof *lengths.values, compare_sizes);
        for (size_t i = 0, end; i < lengths.n; i = end) {
                end = i + 1;
                if (!is_wanted(d, arm, lengths.values[i]))
                        continue;
                const size_t layers = max_layers(d, arm, lengths.values[i]);
                while (end < lengths.n && max_layers(d, arm, lengths.values[end]) == layers &&
                       is_wanted(d, arm, lengths.values[end]))
                        end++;
                DCI_TRY(measure_cache(d, arm, lengths.values + i, end - i, layers));
        }
        return DCI_OK;
}

static dci_status open_decoding(decoding *d)
{
        const gpubench_options *o = d->b->options;
        size_t longest = 0;
        for (size_t i = 0; i < o->lengths.n; i++)
                longest = o->lengths.values[i] > longest ? o->lengths.values[i] : longest;
        d->host_bytes = host_bytes(o);
        d->samples = gpubench_host(d->b, 4 * (o->steps + PREFIX_STEPS) * sizeof *d->samples);
        if (d->samples == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(dci_gpu_kv_info_init(&d->before, sizeof d->before));
        DCI_TRY(dci_gpu_kv_info_init(&d->after, sizeof d->after));
        DCI_TRY(gpubench_stream_open(d->b->context, o->heads, GPUBENCH_GROUP, longest + 1, o->arms.seed, &d->stream));
        char memory[32];
        bench_format_bytes(memory, sizeof memory, d->host_bytes);
        printf("\ndecode: %zu kv heads of %d query heads, d %d, bf16, budget %zu in all, up to %zu layers (locked host "
               "memory: up to %s); us of the KV path of a step, all layers: on the device, and by the host's clock "
               "from reserve to the end\n"
               "%-14s %-6s %5s %8s %6s %10s %10s %6s %8s %8s %8s %8s %8s %8s %7s %10s %8s\n",
               o->heads, GPUBENCH_GROUP, GPUBENCH_DIM, o->budgets.values[0], o->decode_layers, memory, "preset",
               "plans", "batch", "tokens", "layers", "us", "wall", "/ full", "append", "select", "resid.", "gather",
               "tail", "attend", "hits", "device", "filled");
        return DCI_OK;
}

dci_status gpubench_decode(gpubench *b)
{
        decoding d = {.b = b};
        dci_status status = open_decoding(&d);
        d.feed = gpubench_stream_feed(&d.stream);
        gpubench_tap_open(b);
        if (status == DCI_OK)
                status = gpubench_each_arm(b, gpubench_is_decoded, b->options->batches.n * b->options->contiguous.n,
                                           measure_arm, &d);
        gpubench_tap_close(b);
        for (size_t i = 0; i < d.n_shares; i++)
                printf("walk over %zu tokens: of a step's 176 best tokens by exact keys, %.0f %% are among the step's "
                       "before, %.0f %% among the 512 that were so last\n",
                       d.shares[i].tokens, 100 * d.shares[i].last, 100 * d.shares[i].kept);
        gpubench_stream_close(&d.stream);
        return status;
}
