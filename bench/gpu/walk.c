/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the plans of a decode ask for, step by step, and how much of it an offline optimum would have kept. */
#include "bench/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#define PREFILL_TOKENS ((size_t)4096) /* of a step */

/* --- playing ---------------------------------------------------------------------------------------------------------------- */

typedef struct walking {
        const kvbench_trace *trace;
        dci_kv *kv;
        int64_t sequence;
        dci_kv_plan plan;
        dci_kv_info info;
        gpubench_walk *out;
        float *queries; /* of a position, or the observed ones */
} walking;

dci_status gpubench_kv_config(const kvbench_options *arms, const kvbench_trace *trace, const kvbench_arm *arm,
                              size_t budget, dci_kv_config *out)
{
        dci_kv_config c;
        DCI_TRY(dci_kv_config_init(&c, sizeof c));
        c.n_layers = c.n_kv_heads = 1;
        c.n_query_heads = trace->group;
        c.dim_k = trace->keys.dim;
        c.dim_v = trace->values.dim;
        c.dtype = trace->keys.dtype;
        c.scale = trace->scale;
        kvbench_set_arm(arms, arm, &c);
        c.budget = budget;
        c.foreground = 1;
        /* Pages of groups are then pages of the cache, and units of what is fetched. */
        c.sink = arm->preset == DCI_KV_ARKVALE || arm->preset == DCI_KV_FREEKV ? 32 : 16;
        *out = c;
        return DCI_OK;
}

static dci_status open_cache(dci_context *context, const kvbench_options *arms, const kvbench_arm *arm, walking *w)
{
        dci_kv_config c;
        DCI_TRY(gpubench_kv_config(arms, w->trace, arm, w->out->budget, &c));
        DCI_TRY(dci_kv_create(context, &c, &w->kv));
        DCI_TRY(dci_kv_info_init(&w->info, sizeof w->info));
        DCI_TRY(dci_kv_get_info(w->kv, &w->info));
        DCI_TRY(dci_kv_open(w->kv, &w->sequence));
        return dci_kv_plan_create(w->kv, 1, &w->plan);
}

static dci_status append(walking *w, size_t first, size_t n)
{
        const bench_rows *keys = &w->trace->keys, *values = &w->trace->values;
        const size_t element = dci_dtype_size(keys->dtype);
        dci_kv_rows rows;
        DCI_TRY(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = (const char *)keys->data + first * keys->dim * element;
        rows.values = (const char *)values->data + first * values->dim * element;
        return dci_kv_append(w->kv, 0, 1, &w->sequence, &n, &rows);
}

/* Query rows as floats. */
static void to_f32(walking *w, const bench_rows *rows, size_t first, size_t n)
{
        double *row = malloc(rows->dim * sizeof *row);
        for (size_t i = 0; row != NULL && i < n; i++) {
                bench_row_to_double(rows, first + i, row);
                for (size_t j = 0; j < rows->dim; j++)
                        w->queries[i * rows->dim + j] = (float)row[j];
        }
        free(row);
}

static dci_status prefill(walking *w)
{
        const kvbench_trace *trace = w->trace;
        const size_t n_observed = trace->observed.n / trace->group;
        to_f32(w, &trace->observed, 0, trace->observed.n);
        for (size_t t = 0, n; t < trace->prompt; t += n) {
                n = trace->prompt - t < PREFILL_TOKENS ? trace->prompt - t : PREFILL_TOKENS;
                DCI_TRY(dci_kv_reserve(w->kv, 1, &w->sequence, &n));
                DCI_TRY(append(w, t, n));
                if (t + n == trace->prompt)
                        DCI_TRY(dci_kv_end_prompt(w->kv, 0, w->sequence, n_observed, n_observed > 0 ? w->queries : NULL,
                                                  trace->keys.dim));
                DCI_TRY(dci_kv_step_end(w->kv, 1, &w->sequence));
        }
        return DCI_OK;
}

static void note_plan(walking *w, size_t step)
{
        gpubench_walk *out = w->out;
        int32_t *positions = out->positions + step * out->stride, *units = out->units + step * out->stride;
        const size_t n = (size_t)w->plan.counts[0];
        memcpy(positions, w->plan.positions, n * sizeof *positions);
        out->counts[step] = (int32_t)n;
        for (size_t i = 0; i < n; i++) {
                const int32_t unit = positions[i] >> out->unit_shift;
                int32_t *n_units = &out->n_units[step];
                if (*n_units == 0 || units[*n_units - 1] != unit)
                        units[(*n_units)++] = unit;
        }
        out->n_asked += (size_t)out->n_units[step];
}

static dci_status walk_step(walking *w, size_t step)
{
        const kvbench_trace *trace = w->trace;
        to_f32(w, &trace->queries, step * trace->group, trace->group);
        DCI_TRY(dci_kv_reserve(w->kv, 1, &w->sequence, NULL));
        DCI_TRY(append(w, trace->prompt + step, 1));
        DCI_TRY(dci_kv_plan_make(w->kv, 0, 1, &w->sequence, w->queries, trace->keys.dim, &w->plan));
        note_plan(w, step);
        DCI_TRY(dci_kv_step_end(w->kv, 1, &w->sequence));
        return dci_kv_maintain(w->kv, 1, &w->sequence);
}

static dci_status decode(walking *w)
{
        dci_status status = DCI_OK;
        bench_progress progress;
        bench_progress_begin(&progress, w->out->name);
        for (size_t s = 0; s < w->out->n_steps && status == DCI_OK; s++) {
                bench_progress_step(&progress, s, w->out->n_steps);
                status = walk_step(w, s);
        }
        bench_progress_end(&progress);
        return status;
}

static dci_status take_walk(walking *w, dci_context *context, const kvbench_arm *arm)
{
        gpubench_walk *out = w->out;
        char codes[32];
        kvbench_codes_name(arm, codes, sizeof codes);
        snprintf(out->name, sizeof out->name, "%s%s%s", dci_kv_preset_name(arm->preset), *codes != '-' ? " " : "",
                 *codes != '-' ? codes : "");
        out->context = context;
        out->stride = w->plan.stride;
        out->n_steps = w->trace->tokens - w->trace->prompt;
        out->n_tokens = w->trace->tokens;
        out->row_bytes = (w->trace->keys.dim + w->trace->values.dim) * dci_dtype_size(w->trace->keys.dtype);
        if (w->info.group == DCI_KV_GROUP_PAGE && w->info.sink % w->info.page_tokens == 0)
                while (((size_t)1 << out->unit_shift) < w->info.page_tokens)
                        out->unit_shift++;
        out->positions = dci_calloc(context, out->n_steps * out->stride, sizeof *out->positions);
        out->units = dci_calloc(context, out->n_steps * out->stride, sizeof *out->units);
        out->counts = dci_calloc(context, out->n_steps, sizeof *out->counts);
        out->n_units = dci_calloc(context, out->n_steps, sizeof *out->n_units);
        const size_t n_queries = w->trace->observed.n + w->trace->group;
        w->queries = dci_alloc(context, n_queries, w->trace->keys.dim * sizeof *w->queries);
        return out->positions != NULL && out->units != NULL && out->counts != NULL && out->n_units != NULL &&
                               w->queries != NULL
                       ? DCI_OK
                       : DCI_ERR_MEMORY;
}

dci_status gpubench_walk_record(dci_context *context, const kvbench_options *arms, const kvbench_trace *trace,
                                const kvbench_arm *arm, size_t budget, gpubench_walk *out)
{
        memset(out, 0, sizeof *out);
        out->budget = budget;
        walking w = {.trace = trace, .out = out};
        dci_status status = dci_kv_plan_init(&w.plan, sizeof w.plan);
        if (status == DCI_OK)
                status = open_cache(context, arms, arm, &w);
        if (status == DCI_OK)
                status = take_walk(&w, context, arm);
        if (status == DCI_OK && (w.info.select == DCI_KV_SELECT_ALL || w.info.select == DCI_KV_SELECT_NONE))
                status = dci_fail(DCI_ERR_UNSUPPORTED, "%s has no lists", out->name);
        if (status == DCI_OK)
                status = prefill(&w);
        if (status == DCI_OK)
                status = decode(&w);
        dci_free(context, w.queries, trace->observed.n + trace->group, trace->keys.dim * sizeof *w.queries);
        if (w.kv != NULL)
                dci_kv_plan_destroy(w.kv, &w.plan);
        dci_kv_destroy(w.kv);
        return status;
}

void gpubench_walk_free(gpubench_walk *walk)
{
        if (walk->context == NULL)
                return;
        dci_free(walk->context, walk->positions, walk->n_steps * walk->stride, sizeof *walk->positions);
        dci_free(walk->context, walk->units, walk->n_steps * walk->stride, sizeof *walk->units);
        dci_free(walk->context, walk->counts, walk->n_steps, sizeof *walk->counts);
        dci_free(walk->context, walk->n_units, walk->n_steps, sizeof *walk->n_units);
        memset(walk, 0, sizeof *walk);
}

/* --- what could have been kept -------------------------------------------------------------------------------------------------- */

size_t gpubench_walk_hits_last(const gpubench_walk *walk)
{
        size_t hits = 0;
        for (size_t s = 1; s < walk->n_steps; s++) {
                const int32_t *now = walk->units + s * walk->stride, *last = now - walk->stride;
                const int32_t n = walk->n_units[s], n_last = walk->n_units[s - 1];
                for (int32_t i = 0, j = 0; i < n && j < n_last;) {
                        hits += now[i] == last[j];
                        if (now[i] <= last[j])
                                i++;
                        else
                                j++;
                }
        }
        return hits;
}

#define NEVER INT32_MAX

/* next[s * stride + i]: the step after s that asks for this unit again. last: by unit, scratch. */
static void find_next(const gpubench_walk *walk, int32_t *next, int32_t *last)
{
        for (size_t u = 0; u < walk->n_tokens; u++)
                last[u] = NEVER;
        for (size_t s = walk->n_steps; s-- > 0;)
                for (size_t i = s * walk->stride, end = i + (size_t)walk->n_units[s]; i < end; i++) {
                        next[i] = last[walk->units[i]];
                        last[walk->units[i]] = (int32_t)s;
                }
}

/* Of the units that are kept and not of step s, the one that is needed again latest; -1: none. */
static ptrdiff_t find_latest(const int32_t *due, const int32_t *used, size_t n_frames, int32_t step)
{
        ptrdiff_t latest = -1;
        for (size_t f = 0; f < n_frames; f++)
                if (used[f] != step && (latest < 0 || due[f] > due[latest]))
                        latest = (ptrdiff_t)f;
        return latest;
}

dci_status gpubench_walk_hits_offline(const gpubench_walk *walk, size_t n_frames, size_t *out_hits)
{
        int32_t *next = calloc(walk->n_steps * walk->stride + 1, sizeof *next);
        int32_t *frame_of = calloc(walk->n_tokens + 1, sizeof *frame_of);
        int32_t *frames = calloc(3 * n_frames + 1, sizeof *frames); /* the unit, when it is due, when it was used */
        const bool memory = next != NULL && frame_of != NULL && frames != NULL;
        size_t n_held = 0;
        *out_hits = 0;
        if (memory)
                find_next(walk, next, frame_of);
        for (size_t u = 0; memory && u < walk->n_tokens; u++)
                frame_of[u] = -1;
        for (size_t s = 0; memory && s < walk->n_steps; s++) {
                int32_t *held = frames, *due = frames + n_frames, *used = due + n_frames;
                const size_t begin = s * walk->stride, end = begin + (size_t)walk->n_units[s];
                /* All that is there is marked first, so that no unit of this step has to leave for another one. */
                for (size_t i = begin; i < end; i++) {
                        const int32_t f = frame_of[walk->units[i]];
                        if (f < 0)
                                continue;
                        ++*out_hits;
                        due[f] = next[i];
                        used[f] = (int32_t)s;
                }
                for (size_t i = begin; i < end; i++) {
                        if (frame_of[walk->units[i]] >= 0)
                                continue;
                        const bool fresh = n_held < n_frames;
                        const ptrdiff_t f = fresh ? (ptrdiff_t)n_held++ : find_latest(due, used, n_frames, (int32_t)s);
                        if (f < 0)
                                continue; /* more units than frames: it is read from host memory */
                        if (!fresh)
                                frame_of[held[f]] = -1;
                        held[f] = walk->units[i];
                        due[f] = next[i];
                        used[f] = (int32_t)s;
                        frame_of[held[f]] = (int32_t)f;
                }
        }
        free(next);
        free(frame_of);
        free(frames);
        return memory ? DCI_OK : dci_fail(DCI_ERR_MEMORY, "the offline optimum could not have its tables");
}
