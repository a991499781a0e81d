/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part soak: one graph, replayed for thousands of steps. The first sequence stays; the others come and go in turns, and what one leaves is
 * overwritten with NaN, its rows in host memory and its lanes on the device, before another gets it: a stale read gives NaN outputs. At intervals the
 * first sequence's outputs are compared with a dci_kv on the CPU that got the same rows.
 */
#include "core/internal.h"

#include "bench/gpu/driver.h"
#include "offload/resident.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
        BATCH = 4,
        OUTPUT_CHECKS = 200,
        CHECKS = 20,
        LIVES = 40,
        WALK_STEPS = 1024,
        DIM = GPUBENCH_DIM,
        GROUP = GPUBENCH_GROUP
};
#define NEAR 1e-3   /* |device - CPU| / |CPU| of one output; further apart: counted */
#define MAX_FAR 100 /* one output of so many, and one list's: near ties may fall either way, and another page is far */
#define CHUNK_TOKENS ((size_t)4096) /* the CPU's, at most */
#define LEAK_BYTES ((size_t)32 << 20)

typedef struct soaking {
        gpubench *b;
        gpubench_stream stream;
        gpubench_feed feed; /* of the stream */
        gpubench_driver driver;
        dci_kv *cpu;
        int64_t on_cpu;
        size_t n_cpu; /* tokens of it */
        bool remembers; /* lists or groups come of earlier steps' queries, or of when groups are formed: the CPU takes every step */
        dci_kv_plan plan;
        uint16_t *rows;
        float *device_out, *cpu_out;
        double furthest, sum;
        size_t n_compared, n_far, n_poisoned, n_lives;
        double *seconds;
        size_t free_before, free_after, taken_before, taken_after, resident_before, resident_after;
        dci_gpu_kv_info info;
} soaking;

/* --- the CPU's twin ----------------------------------------------------------------------------------------------------------------- */

static dci_status append_on_cpu(soaking *s, size_t n, bool ends)
{
        const gpubench_driver_config *c = &s->driver.config;
        dci_kv_rows rows;
        DCI_TRY(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = s->rows;
        rows.values = s->rows + n * c->heads * DIM;
        DCI_TRY(gpubench_stream_rows(&s->stream, s->n_cpu, n, s->rows, s->rows + n * c->heads * DIM));
        DCI_TRY(dci_kv_reserve(s->cpu, 1, &s->on_cpu, &n));
        for (size_t l = 0; l < c->layers; l++) {
                DCI_TRY(dci_kv_append(s->cpu, l, 1, &s->on_cpu, &n, &rows));
                if (ends)
                        DCI_TRY(dci_kv_end_prompt(s->cpu, l, s->on_cpu, 64, s->stream.walk, DIM));
        }
        s->n_cpu += n;
        return DCI_OK;
}

/* Appends tokens up to n_tokens, a prompt in one step, others in long ones, and groups what has left the window. */
static dci_status follow(soaking *s, size_t n_tokens, bool prompt)
{
        while (s->n_cpu < n_tokens) {
                const size_t left = n_tokens - s->n_cpu, n = prompt || left < CHUNK_TOKENS ? left : CHUNK_TOKENS;
                DCI_TRY(append_on_cpu(s, n, prompt));
                DCI_TRY(dci_kv_step_end(s->cpu, 1, &s->on_cpu));
                DCI_TRY(dci_kv_wait(s->cpu, s->on_cpu));
                DCI_TRY(dci_kv_maintain(s->cpu, 1, &s->on_cpu));
        }
        return DCI_OK;
}

static dci_status plan_layer(soaking *s, size_t layer, const uint16_t *queries)
{
        return dci_kv_plan_make(s->cpu, layer, 1, &s->on_cpu, queries, DIM, &s->plan);
}

static const uint16_t *queries_of(const soaking *s, size_t layer, size_t walk)
{
        return gpubench_stream_queries(&s->stream, walk + layer * s->driver.config.batch * GPUBENCH_WALK_APART);
}

/* Appends tokens up to n_tokens as the device got them: one in a step, and with plans. */
static dci_status follow_closely(soaking *s, size_t n_tokens)
{
        const size_t ahead = s->driver.n[0] - s->driver.step; /* from a step's queries to its token */
        while (s->n_cpu < n_tokens) {
                const size_t walk = s->n_cpu - ahead;
                DCI_TRY(append_on_cpu(s, 1, false));
                for (size_t l = 0; l < s->driver.config.layers; l++)
                        DCI_TRY(plan_layer(s, l, queries_of(s, l, walk)));
                DCI_TRY(dci_kv_step_end(s->cpu, 1, &s->on_cpu));
                DCI_TRY(dci_kv_maintain(s->cpu, 1, &s->on_cpu));
        }
        return DCI_OK;
}

static dci_status compare_layer(soaking *s, size_t layer, size_t walk)
{
        const gpubench_driver_config *c = &s->driver.config;
        const size_t heads = c->heads * GROUP;
        const uint16_t *queries = queries_of(s, layer, walk);
        const float *device = s->device_out + layer * c->batch * heads * DIM;
        DCI_TRY(plan_layer(s, layer, queries));
        DCI_TRY(dci_kv_attend(s->cpu, layer, 1, &s->on_cpu, queries, DIM, &s->plan, s->cpu_out, DIM, NULL));
        for (size_t h = 0; h < heads; h++) {
                const double apart = gpubench_distance(device + h * DIM, s->cpu_out + h * DIM, DIM);
                s->furthest = fmax(s->furthest, apart);
                s->sum += apart;
                s->n_compared++;
                s->n_far += !(apart <= NEAR);
                if (!(apart < INFINITY) || s->n_far > GROUP + s->n_compared / MAX_FAR)
                        return dci_fail(
                                BENCH_ERR_RUN,
                                "layer %zu, query head %zu, %zu tokens: the device is %g away from the CPU, the %zuth "
                                "output of %zu that is",
                                layer, h, s->n_cpu, apart, s->n_far, s->n_compared);
        }
        return DCI_OK;
}

/* Compares the outputs of the first sequence after a step of the device with the CPU's at the same token. */
static dci_status compare(soaking *s)
{
        gpubench_driver *p = &s->driver;
        const size_t n = p->n[0];
        dci_status status = gpubench_download(s->b, s->device_out, p->out.device, p->out_bytes);
        if (status == DCI_OK)
                status = s->remembers ? follow_closely(s, n - 1) : follow(s, n - 1, false);
        if (status == DCI_OK)
                status = append_on_cpu(s, 1, false);
        for (size_t l = 0; l < p->config.layers && status == DCI_OK; l++)
                status = compare_layer(s, l, p->step - 1);
        if (status == DCI_OK)
                status = dci_kv_step_end(s->cpu, 1, &s->on_cpu);
        return status == DCI_OK ? dci_kv_maintain(s->cpu, 1, &s->on_cpu) : status;
}

/* --- poison ---------------------------------------------------------------------------------------------------------------------------- */

/* Overwrites the resident page of a block, in all layers that have one. */
static dci_status poison_place(gpubench *b, const dci_gpu_kv *kv, int32_t block)
{
        const dci_gpu_kv_resident *r = kv->resident;
        const size_t n_bytes = kv->host->pool.block_bytes;
        if (r->n_slots == 0 || r->slots[block] < 0)
                return DCI_OK;
        for (size_t l = 0; l < kv->n_sparse; l++)
                DCI_TRY(b->ops->fill(b->gpu, b->stream,
                                     r->memory + (l * r->n_slots + (size_t)r->slots[block]) * n_bytes, 0xff, n_bytes));
        return DCI_OK;
}

/* Overwrites all that a sequence has in host memory, in resident pages and in its lanes with NaN, and closes it. */
static dci_status poison(soaking *s, size_t i)
{
        gpubench *b = s->b;
        dci_gpu_kv *kv = s->driver.kv;
        const gpubench_driver_config *c = &s->driver.config;
        DCI_TRY(dci_gpu_kv_sync(kv));
        const dci_gpu_kv_row *row = dci_gpu_kv_find(kv, s->driver.sequences[i]);
        if (row == NULL)
                return DCI_ERR_NOT_FOUND;
        const size_t n_blocks = dci_gpu_kv_blocks(kv, row->n), at = dci_gpu_kv_row_number(kv, row);
        for (size_t n = 0; n < n_blocks; n++) {
                int32_t block = 0;
                DCI_TRY(dci_kv_table(dci_gpu_kv_host(kv), s->driver.sequences[i], n, 1, &block));
                for (size_t l = 0; l < c->layers; l++)
                        memset(dci_gpu_kv_host_block(kv, l, block), 0xff, kv->host->pool.block_bytes);
                DCI_TRY(poison_place(b, kv, block));
        }
        s->n_poisoned += n_blocks;
        for (size_t l = 0; l < c->layers; l++) {
                const dci_gpu_lanes lanes = dci_gpu_kv_lanes(kv, l);
                const size_t keys = c->heads * (size_t)lanes.n_slots * lanes.key_bytes,
                             values = c->heads * (size_t)lanes.n_slots * lanes.value_bytes;
                if (lanes.keys == NULL)
                        continue;
                DCI_TRY(b->ops->fill(b->gpu, b->stream, lanes.keys + at * keys, 0xff, keys));
                DCI_TRY(b->ops->fill(b->gpu, b->stream, lanes.values + at * values, 0xff, values));
        }
        DCI_TRY(b->ops->stream_wait(b->gpu, b->stream));
        DCI_TRY(dci_gpu_kv_close(kv, s->driver.sequences[i]));
        s->driver.sequences[i] = -1;
        return DCI_OK;
}

/* Replaces the next of the sequences that come and go: lengths differ, so that blocks are assigned in another order. */
static dci_status change_places(soaking *s)
{
        const size_t i = 1 + s->n_lives % (BATCH - 1), tokens = s->b->options->soak_tokens;
        const size_t n = tokens / 2 + tokens / 16 * (s->n_lives * 5 % 9) + 1;
        s->n_lives++;
        DCI_TRY(poison(s, i));
        return gpubench_driver_fill_one(&s->driver, i, n);
}

/* --- the run ---------------------------------------------------------------------------------------------------------------------------- */

/* Resident bytes of the process. */
static size_t resident_bytes(void)
{
        char line[256], *second = NULL;
        FILE *file = fopen("/proc/self/statm", "r");
        if (file == NULL)
                return 0;
        if (fgets(line, sizeof line, file) != NULL)
                second = strchr(line, ' ');
        fclose(file);
        return second == NULL ? 0 : (size_t)strtoull(second, NULL, 10) * DCI_MEMORY_PAGE;
}

static dci_status note_memory(soaking *s, size_t *free_bytes, size_t *taken, size_t *resident)
{
        const dci_status status = dci_gpu_kv_get_info(s->driver.kv, &s->info);
        *free_bytes = gpubench_free_bytes(s->b);
        *taken = s->info.device_bytes;
        *resident = resident_bytes();
        return status;
}

static dci_status poll(const soaking *s)
{
        int32_t bad[BATCH] = {0};
        DCI_TRY(dci_gpu_poll(s->driver.kv, BATCH, s->driver.sequences, bad));
        for (size_t i = 0; i < BATCH; i++)
                if (bad[i] != 0)
                        return dci_fail(BENCH_ERR_RUN, "sequence %zu of the batch got a row that is no number", i);
        return DCI_OK;
}

static dci_status soak_step(soaking *s, size_t step)
{
        const size_t n = s->b->options->soak_steps, life = n / LIVES > 0 ? n / LIVES : 1;
        const size_t every = n / OUTPUT_CHECKS > 0 ? n / OUTPUT_CHECKS : 1, check = n / CHECKS > 0 ? n / CHECKS : 1;
        gpubench_driver_times times = {0};
        if (step > 0 && step % life == 0)
                DCI_TRY(change_places(s));
        /* By now every block has been used again. */
        if (step == n / 4)
                DCI_TRY(note_memory(s, &s->free_before, &s->taken_before, &s->resident_before));
        DCI_TRY(gpubench_driver_upload(&s->driver));
        DCI_TRY(gpubench_driver_step(&s->driver, &times));
        s->seconds[step] = s->driver.graph != NULL ? times.device : times.wall;
        if (step % every == 0 || step + 1 == n)
                DCI_TRY(gpubench_driver_check(&s->driver));
        return step % check == 0 || step + 1 == n ? compare(s) : DCI_OK;
}

static dci_status run(soaking *s)
{
        const size_t n = s->b->options->soak_steps;
        dci_status status = DCI_OK;
        bench_progress progress;
        bench_progress_begin(&progress, dci_kv_preset_name(s->driver.config.arm.preset));
        for (size_t step = 0; step < n && status == DCI_OK; step++) {
                bench_progress_step(&progress, step, n);
                status = soak_step(s, step);
        }
        bench_progress_end(&progress);
        DCI_TRY(status);
        DCI_TRY(poll(s));
        DCI_TRY(note_memory(s, &s->free_after, &s->taken_after, &s->resident_after));
        const size_t lost = s->free_before > s->free_after ? s->free_before - s->free_after : 0,
                     grown = s->taken_after > s->taken_before ? s->taken_after - s->taken_before : 0;
        if (s->b->options->device != DCI_GPU_HOST && lost > grown + LEAK_BYTES)
                return dci_fail(BENCH_ERR_RUN, "the device lost %zu bytes, of which the cache has %zu", lost, grown);
        return DCI_OK;
}

static dci_status open_all(soaking *s, const gpubench_driver_config *config)
{
        gpubench *b = s->b;
        const size_t row = config->heads * DIM, tokens = b->options->soak_tokens;
        dci_kv_config c;
        DCI_TRY(dci_gpu_kv_info_init(&s->info, sizeof s->info));
        DCI_TRY(dci_kv_plan_init(&s->plan, sizeof s->plan));
        DCI_TRY(gpubench_stream_open(b->context, config->heads, GROUP, config->max_tokens + 1, b->options->arms.seed,
                                     &s->stream));
        DCI_TRY(gpubench_stream_walk(&s->stream, tokens / 2, WALK_STEPS));
        s->feed = gpubench_stream_feed(&s->stream);
        DCI_TRY(gpubench_driver_open(b, &s->feed, config, &s->driver));
        DCI_TRY(gpubench_driver_kv_config(b, &s->feed, config, &c));
        c.foreground = 1;
        c.refit = 0; /* a decode without dci_gpu_kv_maintain goes on with the codes it has */
        DCI_TRY(dci_kv_create(b->context, &c, &s->cpu));
        DCI_TRY(dci_kv_open(s->cpu, &s->on_cpu));
        s->remembers = s->cpu->clustered || s->cpu->config.schedule != DCI_KV_EVERY_STEP;
        DCI_TRY(dci_kv_plan_create(s->cpu, 1, &s->plan));
        s->rows = gpubench_host(b, 2 * (tokens > CHUNK_TOKENS ? tokens : CHUNK_TOKENS) * row * sizeof *s->rows);
        s->device_out = gpubench_host(b, s->driver.out_bytes + 1);
        s->cpu_out = gpubench_host(b, row * GROUP * sizeof *s->cpu_out);
        s->seconds = gpubench_host(b, b->options->soak_steps * sizeof *s->seconds);
        if (s->rows == NULL || s->device_out == NULL || s->cpu_out == NULL || s->seconds == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_driver_fill(&s->driver, tokens, false));
        return follow(s, tokens, true);
}

static void close_all(soaking *s)
{
        if (s->cpu != NULL)
                dci_kv_plan_destroy(s->cpu, &s->plan);
        dci_kv_destroy(s->cpu);
        gpubench_driver_close(&s->driver);
        gpubench_stream_close(&s->stream);
}

static dci_status report(soaking *s)
{
        const gpubench_driver_config *c = &s->driver.config;
        const gpubench_options *o = s->b->options;
        const bool graph = s->driver.graph != NULL;
        char codes[32];
        kvbench_codes_name(&c->arm, codes, sizeof codes);
        const size_t half = o->soak_steps / 2;
        const double first = gpubench_time_of(s->seconds, half).median,
                     second = gpubench_time_of(s->seconds + half, o->soak_steps - half).median;
        const gpubench_time time = gpubench_time_of(s->seconds, o->soak_steps);
        json_t *shape = json_pack(
                "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I}", "codes", codes, "planner",
                s->driver.planner == DCI_GPU_PLAN_DEVICE ? "device" : "host", "runs_as", graph ? "graph" : "calls",
                "layers", (json_int_t)c->layers, "batch", (json_int_t)BATCH, "tokens", (json_int_t)o->soak_tokens,
                "steps", (json_int_t)o->soak_steps, "lives", (json_int_t)s->n_lives, "blocks_poisoned",
                (json_int_t)s->n_poisoned, "compared", (json_int_t)s->n_compared, "furthest", s->furthest, "mean_apart",
                s->sum / (double)s->n_compared, "apart", (json_int_t)s->n_far);
        const dci_status status = gpubench_row(s->b, "soak", dci_kv_preset_name(c->arm.preset), shape, &time, 0, 0);
        gpubench_note(s->b, "us_first_half", first);
        gpubench_note(s->b, "us_second_half", second);
        gpubench_note(s->b, "device_bytes_before", (double)s->taken_before);
        gpubench_note(s->b, "device_bytes_after", (double)s->taken_after);
        gpubench_note(s->b, "device_free_before", (double)s->free_before);
        gpubench_note(s->b, "device_free_after", (double)s->free_after);
        gpubench_note(s->b, "host_resident_before", (double)s->resident_before);
        gpubench_note(s->b, "host_resident_after", (double)s->resident_after);
        gpubench_note(s->b, "units_asked", (double)s->info.n_asked);
        gpubench_note(s->b, "units_missed", (double)s->info.n_missed);
        gpubench_note(s->b, "units_resident", (double)s->info.n_resident);
        gpubench_note(s->b, "resident_bytes", (double)s->info.resident_bytes);
        printf("%-14s %-14s %-6s %-6s %8zu %6zu %9zu %8zu %9.1e %9.1e %6zu %9.1f %9.1f\n",
               dci_kv_preset_name(c->arm.preset), codes, s->driver.planner == DCI_GPU_PLAN_DEVICE ? "device" : "HOST",
               graph ? "graph" : "calls", o->soak_steps, s->n_lives, s->n_poisoned, s->n_compared, s->furthest,
               s->sum / (double)s->n_compared, s->n_far, first, second);
        fflush(stdout);
        return status;
}

static dci_status soak(void *arg, const kvbench_arm *arm, size_t variant)
{
        gpubench *b = arg;
        const gpubench_options *o = b->options;
        const size_t max_tokens = o->soak_tokens * 2 + o->soak_steps + 16;
        const gpubench_driver_config config = {.arm = *arm,
                                               .layers = o->layers,
                                               .heads = o->heads,
                                               .batch = BATCH,
                                               .max_tokens = max_tokens,
                                               .max_prompt = o->soak_tokens + 1,
                                               .resident_bytes = o->resident_mib << 20,
                                               .planner = o->planner,
                                               .out_dtype = DCI_F32};
        soaking s = {.b = b};
        (void)variant;
        dci_status status = open_all(&s, &config);
        if (status == DCI_OK)
                status = gpubench_driver_upload(&s.driver);
        if (status == DCI_OK && (s.driver.planner == DCI_GPU_PLAN_DEVICE || arm->preset == DCI_KV_FULL))
                status = gpubench_driver_capture(&s.driver, max_tokens);
        if (status == DCI_OK)
                status = run(&s);
        if (status == DCI_OK)
                status = report(&s);
        close_all(&s);
        return status;
}

static bool is_usual(int32_t preset)
{
        return preset == DCI_KV_SKETCH || preset == DCI_KV_SKETCH_LOWBIT || preset == DCI_KV_QUEST ||
               preset == DCI_KV_PAGEMEAN || preset == DCI_KV_ARKVALE || preset == DCI_KV_CLUSTERKV ||
               preset == DCI_KV_LOUISKV || preset == DCI_KV_FREEKV;
}

dci_status gpubench_soak(gpubench *b)
{
        const gpubench_options *o = b->options;
        printf("\nsoak: %zu layers of %zu kv heads, %d sequences, one that stays and others that come and go through "
               "memory full of NaN; outputs against the CPU's\n%-14s %-14s %-6s %-6s %8s %6s %9s %8s %9s %9s %6s %9s "
               "%9s\n",
               o->layers, o->heads, BATCH, "preset", "codes", "plans", "runs", "steps", "lives", "poisoned", "compared",
               "furthest", "mean", "apart", "us early", "us late");
        return gpubench_each_arm(b, is_usual, 1, soak, b);
}
