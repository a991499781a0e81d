/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part residency: the lists of a decode that was played through dci_kv go through the kernel that keeps hot buffers, step by step. How
 * much is there already is held against keeping the last step alone and against an optimum that knows the future.
 */
#include "bench/gpu/driver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
        HEADS = 8,
        TIMED_STEPS = 64,
        SHIFT = 37
}; /* SHIFT: steps from one head's walk to the next one's, where it is timed */

typedef struct residing {
        gpubench *b;
        const gpubench_walk *walk;
        size_t n_sequences, n_heads, n_steps, n_frames;
        dci_gpu_resolve_args args; /* of step 0 */
} residing;

static dci_status resolve(void *arg, size_t step)
{
        const residing *r = arg;
        const size_t n_lists = r->n_sequences * r->n_heads;
        dci_gpu_resolve_args args = r->args;
        args.positions += step * n_lists * r->walk->stride;
        args.counts += step * n_lists;
        args.now += step;
        return r->b->ops->resolve(r->b->gpu, r->b->stream, &args);
}

/* The lists of all steps as the kernel gets them, in mapped host memory; list l walks l * SHIFT steps ahead. */
static dci_status put_lists(residing *r)
{
        const gpubench_walk *walk = r->walk;
        const size_t n_lists = r->n_sequences * r->n_heads, n = r->n_steps * n_lists;
        gpubench_area area = {0};
        uint32_t *now = gpubench_host(r->b, r->n_steps * sizeof *now);
        void *device = NULL;
        if (now == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_take(r->b, n * (walk->stride + 1) * sizeof(int32_t), GPUBENCH_PINNED, &area));
        int32_t *positions = (int32_t *)(void *)area.host, *counts = positions + n * walk->stride;
        r->args.positions = (int32_t *)(void *)area.device;
        r->args.counts = r->args.positions + n * walk->stride;
        memset(area.host, 0, area.n_bytes);
        for (size_t i = 0; i < n; i++) {
                const size_t step = (i / n_lists + i % n_lists * SHIFT) % walk->n_steps;
                counts[i] = walk->counts[step];
                memcpy(positions + i * walk->stride, walk->positions + step * walk->stride,
                       (size_t)counts[i] * sizeof *positions);
        }
        for (size_t s = 0; s < r->n_steps; s++)
                now[s] = (uint32_t)s + 1;
        DCI_TRY(gpubench_put(r->b, now, r->n_steps * sizeof *now, &device));
        r->args.now = device;
        return DCI_OK;
}

static dci_status take(residing *r, size_t n_bytes, int byte, void **out)
{
        gpubench_area area = {0};
        DCI_TRY(gpubench_take(r->b, n_bytes, GPUBENCH_ON_DEVICE, &area));
        *out = area.device;
        return r->b->ops->fill(r->b->gpu, r->b->stream, area.device, byte, n_bytes);
}

static dci_status prepare(residing *r)
{
        const size_t n_lists = r->n_sequences * r->n_heads, entries = n_lists * r->walk->stride;
        const size_t frames = n_lists * r->n_frames;
        void *tags = NULL, *stamps = NULL, *slots = NULL, *counts = NULL, *header = NULL, *items = NULL,
             *n_items = NULL;
        void *counters = NULL, *numbers = NULL;
        int32_t *rows = gpubench_host(r->b, 4 * r->n_sequences * sizeof *rows);
        if (rows == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < r->n_sequences; i++)
                rows[i] = (int32_t)i;
        r->args = (dci_gpu_resolve_args){.n_sequences = (int32_t)r->n_sequences,
                                         .n_heads = (int32_t)r->n_heads,
                                         .stride = (int32_t)r->walk->stride,
                                         .unit_shift = r->walk->unit_shift,
                                         .n_frames = (int32_t)r->n_frames,
                                         .first_slot = 16 + 256};
        DCI_TRY(put_lists(r));
        DCI_TRY(gpubench_put(r->b, rows, 4 * r->n_sequences * sizeof *rows, &numbers));
        DCI_TRY(take(r, frames * sizeof(int32_t), 0xff, &tags));
        DCI_TRY(take(r, frames * sizeof(uint32_t), 0, &stamps));
        DCI_TRY(take(r, entries * sizeof(int32_t), 0xff, &slots));
        DCI_TRY(take(r, n_lists * sizeof(int32_t), 0xff, &counts));
        DCI_TRY(take(r, 3 * r->n_sequences * sizeof(int32_t), 0xff, &header));
        DCI_TRY(take(r, entries * sizeof(dci_gpu_item), 0xff, &items));
        DCI_TRY(take(r, n_lists * sizeof(int32_t), 0xff, &n_items));
        DCI_TRY(take(r, 3 * n_lists * sizeof(uint64_t), 0, &counters));
        r->args.rows = numbers;
        r->args.sink_end = (const int32_t *)numbers + r->n_sequences;
        r->args.recent_begin = (const int32_t *)numbers + 2 * r->n_sequences;
        r->args.n_tokens = (const int32_t *)numbers + 3 * r->n_sequences;
        r->args.tags = tags;
        r->args.stamps = stamps;
        r->args.out_slots = slots;
        r->args.out_counts = counts;
        r->args.out_header = header;
        r->args.items = items;
        r->args.n_items = n_items;
        r->args.counters = counters;
        return DCI_OK;
}

/* Units asked for, missed, and tokens that stayed, of one head's whole walk. */
static dci_status count(gpubench *b, const gpubench_walk *walk, size_t n_frames, uint64_t *out)
{
        const size_t mark = b->n_areas;
        residing r = {
                .b = b, .walk = walk, .n_sequences = 1, .n_heads = 1, .n_steps = walk->n_steps, .n_frames = n_frames};
        DCI_TRY(prepare(&r));
        for (size_t s = 0; s < walk->n_steps; s++)
                DCI_TRY(resolve(&r, s));
        DCI_TRY(gpubench_download(b, out, r.args.counters, 3 * sizeof *out));
        if (out[0] != walk->n_asked)
                return dci_fail(BENCH_ERR_RUN, "resolve counted %llu units, the walk has %zu",
                                (unsigned long long)out[0], walk->n_asked);
        gpubench_release(b, mark);
        return DCI_OK;
}

static dci_status time_it(gpubench *b, const gpubench_walk *walk, size_t n_frames, size_t n_sequences,
                          gpubench_time *out)
{
        const size_t mark = b->n_areas;
        residing r = {.b = b,
                      .walk = walk,
                      .n_sequences = n_sequences,
                      .n_heads = HEADS,
                      .n_steps = b->options->tiny ? 4 : TIMED_STEPS,
                      .n_frames = n_frames};
        DCI_TRY(prepare(&r));
        DCI_TRY(gpubench_on_device(b, resolve, &r, r.n_steps, out));
        gpubench_release(b, mark);
        return DCI_OK;
}

static dci_status measure(gpubench *b, const gpubench_walk *walk, const char *trace, size_t times)
{
        const size_t n_frames = times * walk->budget >> walk->unit_shift;
        const double asked = walk->n_asked > 0 ? (double)walk->n_asked : 1;
        const double unit_bytes = (double)(walk->row_bytes << walk->unit_shift);
        uint64_t counters[3];
        size_t offline = 0;
        gpubench_time time = {0}, batch = {0};
        if (n_frames == 0 || n_frames > DCI_GPU_MAX_FRAMES || walk->stride > DCI_GPU_MAX_LIST)
                return DCI_OK;
        DCI_TRY(count(b, walk, n_frames, counters));
        DCI_TRY(gpubench_walk_hits_offline(walk, n_frames, &offline));
        DCI_TRY(time_it(b, walk, n_frames, 1, &time));
        DCI_TRY(time_it(b, walk, n_frames, b->options->tiny ? 2 : 16, &batch));
        /* Tokens that stay in host memory are asked for and not fetched, and no hits either. */
        const double stayed = (double)(counters[2] >> walk->unit_shift);
        const double hits = fmax(0, (double)(counters[0] - counters[1]) - stayed);
        const double last = (double)gpubench_walk_hits_last(walk);
        const double all = unit_bytes * asked / (double)walk->n_steps;
        json_t *shape = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f}", "trace", trace,
                                  "budget", (json_int_t)walk->budget, "unit_tokens", (json_int_t)1 << walk->unit_shift,
                                  "times_budget", (json_int_t)times, "frames", (json_int_t)n_frames, "steps",
                                  (json_int_t)walk->n_steps, "hit_rate", hits / asked, "hit_rate_last", last / asked,
                                  "hit_rate_offline", (double)offline / asked, "stayed", (json_int_t)counters[2],
                                  "bytes_step_all", all, "bytes_step_saved", all * hits / asked);
        DCI_TRY(gpubench_row(b, "residency", walk->name, shape, &time, 0, 0));
        gpubench_note(b, "us_batch_16", batch.median);
        printf("%-16s %6zu %5d %5zu %6zu %7.1f%% %7.1f%% %7.1f%% %9.1f %9.1f %8.1f %8.1f\n", walk->name, walk->budget,
               1 << walk->unit_shift, times, n_frames, 100 * hits / asked, 100 * (double)offline / asked,
               100 * last / asked, all / 1024, all * hits / asked / 1024, time.median, batch.median);
        return DCI_OK;
}

/* Presets whose walks are recorded unless some are named. */
static bool is_usual(int32_t preset)
{
        return preset == DCI_KV_SKETCH || preset == DCI_KV_ARKVALE || preset == DCI_KV_QUEST ||
               preset == DCI_KV_ICECACHE;
}

typedef struct measuring {
        gpubench *b;
        kvbench_trace trace;
} measuring;

static dci_status measure_arm(void *arg, const kvbench_arm *arm, size_t variant)
{
        measuring *m = arg;
        const gpubench_options *o = m->b->options;
        gpubench_walk walk;
        dci_status status =
                gpubench_walk_record(m->b->context, &o->arms, &m->trace, arm, o->budgets.values[variant], &walk);
        for (size_t times = 1; times <= 4 && status == DCI_OK; times *= 2)
                status = measure(m->b, &walk, m->trace.name, times);
        gpubench_walk_free(&walk);
        return status == DCI_ERR_UNSUPPORTED ? DCI_OK : status; /* a preset without lists */
}

dci_status gpubench_residency(gpubench *b)
{
        const gpubench_options *o = b->options;
        kvbench_options of = o->arms;
        measuring m = {.b = b};
        of.synthetic = o->tiny ? 2048 : 32768;
        of.steps = o->walk_steps;
        dci_status status = kvbench_trace_open(b->context, &of, o->trace, &m.trace);
        if (status == DCI_OK) {
                printf("\nresidency: %s, %zu steps of one kv head; KiB of a step; us of one call for 8 kv heads, for 1 "
                       "and "
                       "%d sequences\n%-16s %6s %5s %5s %6s %8s %8s %8s %9s %9s %8s %8s\n",
                       m.trace.name, m.trace.tokens - m.trace.prompt, o->tiny ? 2 : 16, "preset", "budget", "unit",
                       "times", "frames", "hits", "offline", "last", "asked for", "saved", "us", "batch");
                status = gpubench_each_arm(b, is_usual, o->budgets.n, measure_arm, &m);
        }
        kvbench_trace_close(&m.trace);
        return status;
}
