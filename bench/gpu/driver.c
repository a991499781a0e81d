/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include "bench/gpu/driver.h"

#include <math.h>
#include <string.h>

#define CHUNK_TOKENS ((size_t)4096) /* of a prompt, made and brought at once */

static size_t row_elements(const gpubench_driver *d)
{
        return d->config.heads * d->feed->dim;
}

/* --- opening ---------------------------------------------------------------------------------------------------------------------- */

dci_status gpubench_driver_kv_config(const gpubench *b, const gpubench_feed *feed, const gpubench_driver_config *config,
                                     dci_kv_config *out)
{
        DCI_TRY(dci_kv_config_init(out, sizeof *out));
        out->n_layers = config->layers;
        out->n_kv_heads = config->heads;
        out->n_query_heads = config->heads * feed->group;
        out->dim_k = feed->dim;
        out->dtype = out->query_dtype = feed->dtype;
        out->scale = feed->scale;
        out->budget = b->options->budgets.values[0];
        out->contiguous = config->contiguous;
        kvbench_set_arm(&b->options->arms, &config->arm, out);
        out->query_head_lists = b->options->lists == KVBENCH_LISTS_QUERY && kvbench_lists_query_heads(out);
        if (config->arm.preset == DCI_KV_ICECACHE && config->planner != DCI_GPU_PLAN_HOST)
                out->tree_keys =
                        DCI_KV_TREE_CODES; /* what a device plans by, also on the CPU that it is compared with */
        return DCI_OK;
}

static dci_status create(gpubench *b, const gpubench_feed *feed, const gpubench_driver_config *config, dci_gpu_kv **out,
                         int32_t *out_planner)
{
        dci_kv_config c;
        dci_gpu_kv_config g;
        dci_gpu_kv_info info;
        DCI_TRY(gpubench_driver_kv_config(b, feed, config, &c));
        DCI_TRY(dci_gpu_kv_config_init(&g, sizeof g));
        DCI_TRY(dci_gpu_kv_info_init(&info, sizeof info));
        g.max_sequences = config->batch;
        g.max_tokens = config->max_tokens;
        g.gather = b->options->gather;
        g.hot_tokens = b->options->hot;
        g.out_dtype = (int32_t)config->out_dtype;
        g.planner = config->planner;
        g.device_resident_bytes = config->resident_bytes;
        DCI_TRY(dci_gpu_kv_create(b->gpu, &c, &g, out));
        DCI_TRY(dci_gpu_kv_get_info(*out, &info));
        *out_planner = info.planner == DCI_GPU_PLAN_DEVICE ? DCI_GPU_PLAN_DEVICE : DCI_GPU_PLAN_HOST;
        return DCI_OK;
}

dci_status gpubench_driver_planner(gpubench *b, const gpubench_feed *feed, const gpubench_driver_config *config,
                                   int32_t *out)
{
        gpubench_driver_config small = *config;
        dci_gpu_kv *kv = NULL;
        small.layers = small.batch = 1;
        small.max_tokens = 8192;
        const dci_status status = create(b, feed, &small, &kv, out);
        dci_gpu_kv_destroy(kv);
        return status;
}

static dci_status take_areas(gpubench_driver *d)
{
        gpubench *b = d->b;
        const gpubench_driver_config *c = &d->config;
        const size_t row = row_elements(d) * 2, queries = row * d->feed->group;
        const size_t observed = d->feed->n_observed * queries, step = c->layers * c->batch * queries;
        d->out_bytes = c->layers * c->batch * row_elements(d) * d->feed->group * dci_dtype_size(c->out_dtype);
        const struct {
                gpubench_area *area;
                size_t n_bytes;
                int kind;
        } areas[] = {{&d->rows[0], 2 * CHUNK_TOKENS * row, GPUBENCH_PINNED},
                     {&d->rows[1], 2 * CHUNK_TOKENS * row, GPUBENCH_PINNED},
                     {&d->prompt, 2 * (c->prompt_step > 0 ? c->prompt_step : c->max_prompt) * row, GPUBENCH_ON_DEVICE},
                     {&d->new_rows, 2 * c->batch * row, GPUBENCH_PINNED},
                     {&d->device_new, 2 * c->batch * row, GPUBENCH_ON_DEVICE},
                     {&d->queries, observed > step ? observed : step, GPUBENCH_PINNED},
                     {&d->device_queries, step, GPUBENCH_ON_DEVICE},
                     {&d->observed, observed, GPUBENCH_ON_DEVICE},
                     {&d->out, d->out_bytes, GPUBENCH_ON_DEVICE}};
        for (size_t i = 0; i < sizeof areas / sizeof *areas; i++)
                DCI_TRY(gpubench_take(b, areas[i].n_bytes, areas[i].kind, areas[i].area));
        for (size_t i = 0; i < 2; i++)
                DCI_TRY(b->ops->event_create(b->gpu, false, &d->rows_free[i]));
        if (c->time_layers) {
                d->events = gpubench_host(b, 2 * c->layers * sizeof *d->events);
                if (d->events == NULL)
                        return DCI_ERR_MEMORY;
        }
        for (size_t i = 0; d->events != NULL && i < 2 * c->layers; i++)
                DCI_TRY(b->ops->event_create(b->gpu, true, &d->events[i]));
        return b->ops->fill(b->gpu, b->stream, d->out.device, 0xff, d->out.n_bytes);
}

dci_status gpubench_driver_open(gpubench *b, const gpubench_feed *feed, const gpubench_driver_config *config,
                                gpubench_driver *out)
{
        *out = (gpubench_driver){.b = b, .feed = feed, .config = *config};
        for (size_t i = 0; i < GPUBENCH_MOST_BATCH; i++)
                out->sequences[i] = -1;
        DCI_TRY(take_areas(out));
        out->free_before = gpubench_free_bytes(b);
        return create(b, feed, config, &out->kv, &out->planner);
}

static void give_event(gpubench *b, void **event)
{
        if (*event != NULL)
                b->ops->event_destroy(b->gpu, *event);
        *event = NULL;
}

/* The areas are released with the caller's mark. */
void gpubench_driver_close(gpubench_driver *d)
{
        if (d->b == NULL)
                return;
        gpubench_driver_drop_graph(d);
        dci_gpu_kv_destroy(d->kv);
        d->kv = NULL;
        for (size_t i = 0; i < 2; i++)
                give_event(d->b, &d->rows_free[i]);
        for (size_t i = 0; d->events != NULL && i < 2 * d->config.layers; i++)
                give_event(d->b, &d->events[i]);
}

void gpubench_driver_drop_graph(gpubench_driver *d)
{
        if (d->graph != NULL)
                d->b->ops->graph_destroy(d->b->gpu, d->graph);
        d->graph = NULL;
}

/* --- the prompt -------------------------------------------------------------------------------------------------------------------- */

static dci_status rows_of(const gpubench_area *area, size_t values_at, dci_kv_rows *out)
{
        const dci_status status = dci_kv_rows_init(out, sizeof *out);
        out->keys = area->device;
        out->values = area->device + values_at;
        return status;
}

/* Copies tokens [first, first + n) to token `at` of a step of n_tokens, through one of two buffers when it is free. */
static dci_status upload_chunk(gpubench_driver *d, size_t first, size_t n, size_t at, size_t n_tokens, size_t buffer)
{
        gpubench *b = d->b;
        const size_t row = row_elements(d) * 2;
        uint16_t *keys = (uint16_t *)(void *)d->rows[buffer].host, *values = keys + n * row_elements(d);
        DCI_TRY(b->ops->event_wait(b->gpu, d->rows_free[buffer]));
        DCI_TRY(d->feed->rows(d->feed->arg, first, n, keys, values));
        DCI_TRY(b->ops->copy(b->gpu, b->stream, d->prompt.device + at * row, keys, n * row));
        DCI_TRY(b->ops->copy(b->gpu, b->stream, d->prompt.device + (n_tokens + at) * row, values, n * row));
        return b->ops->event_record(b->gpu, d->rows_free[buffer], b->stream);
}

static dci_status upload_prompt(gpubench_driver *d, size_t first, size_t n_tokens)
{
        for (size_t t = 0, n, buffer = 0; t < n_tokens; t += n, buffer = 1 - buffer) {
                n = n_tokens - t < CHUNK_TOKENS ? n_tokens - t : CHUNK_TOKENS;
                DCI_TRY(upload_chunk(d, first + t, n, t, n_tokens, buffer));
        }
        return DCI_OK;
}

static dci_status upload_observed(gpubench_driver *d)
{
        uint16_t *queries = (uint16_t *)(void *)d->queries.host;
        d->feed->observed(d->feed->arg, queries);
        return gpubench_upload(d->b, d->observed.device, queries,
                               d->feed->n_observed * row_elements(d) * d->feed->group * 2);
}

/* Appends n tokens to the prompt of sequence i in one step: the same rows in all layers. */
static dci_status append_prompt(gpubench_driver *d, size_t i, size_t n, bool ends)
{
        gpubench *b = d->b;
        dci_kv_rows rows;
        DCI_TRY(rows_of(&d->prompt, n * row_elements(d) * 2, &rows));
        if (d->sequences[i] < 0)
                DCI_TRY(dci_gpu_kv_open(d->kv, &d->sequences[i]));
        DCI_TRY(dci_gpu_kv_reserve(d->kv, b->stream, 1, &d->sequences[i], &n));
        for (size_t l = 0; l < d->config.layers; l++) {
                DCI_TRY(dci_gpu_kv_append(d->kv, b->stream, l, &rows));
                if (ends)
                        DCI_TRY(dci_gpu_kv_end_prompt(d->kv, b->stream, l, d->sequences[i], d->feed->n_observed,
                                                      d->observed.device, d->feed->dim));
        }
        DCI_TRY(dci_gpu_kv_step_end(d->kv, b->stream));
        d->n[i] += n;
        return DCI_OK;
}

/* Fills sequences [first, end) with the same rows, each with its own copy. */
static dci_status fill_some(gpubench_driver *d, size_t first, size_t end, size_t n_tokens)
{
        const size_t most = d->config.prompt_step > 0 ? d->config.prompt_step : n_tokens;
        if (n_tokens > d->config.max_prompt)
                return dci_fail(BENCH_ERR_RUN, "a prompt of %zu tokens, but there is room for %zu", n_tokens,
                                d->config.max_prompt);
        DCI_TRY(upload_observed(d));
        for (size_t i = first; i < end; i++)
                d->n[i] = 0;
        for (size_t t = 0, n; t < n_tokens; t += n) {
                n = n_tokens - t < most ? n_tokens - t : most;
                DCI_TRY(upload_prompt(d, t, n));
                for (size_t i = first; i < end; i++)
                        DCI_TRY(append_prompt(d, i, n, t + n == n_tokens));
        }
        return dci_gpu_kv_sync(d->kv);
}

dci_status gpubench_driver_fill_one(gpubench_driver *d, size_t i, size_t n_tokens)
{
        return fill_some(d, i, i + 1, n_tokens);
}

dci_status gpubench_driver_fill(gpubench_driver *d, size_t n_tokens, bool forks)
{
        const size_t n = d->config.batch;
        DCI_TRY(fill_some(d, 0, forks ? 1 : n, n_tokens));
        for (size_t i = 1; i < n && forks; i++) {
                DCI_TRY(dci_gpu_kv_fork(d->kv, d->sequences[0], n_tokens, &d->sequences[i]));
                d->n[i] = n_tokens;
        }
        return DCI_OK;
}

dci_status gpubench_driver_empty(gpubench_driver *d)
{
        for (size_t i = 0; i < d->config.batch; i++)
                if (d->sequences[i] >= 0) {
                        DCI_TRY(dci_gpu_kv_close(d->kv, d->sequences[i]));
                        d->sequences[i] = -1;
                        d->n[i] = 0;
                }
        return DCI_OK;
}

/* --- steps --------------------------------------------------------------------------------------------------------------------------- */

dci_status gpubench_driver_upload(gpubench_driver *d)
{
        gpubench *b = d->b;
        const gpubench_driver_config *c = &d->config;
        const size_t row = row_elements(d), queries = row * d->feed->group, n = c->layers * c->batch;
        uint16_t *keys = (uint16_t *)(void *)d->new_rows.host, *out = (uint16_t *)(void *)d->queries.host;
        for (size_t i = 0; i < c->batch; i++)
                DCI_TRY(d->feed->rows(d->feed->arg, d->n[i], 1, keys + i * row, keys + (c->batch + i) * row));
        for (size_t i = 0; i < n; i++)
                d->feed->queries(d->feed->arg, d->step, i, out + i * queries);
        DCI_TRY(b->ops->copy(b->gpu, b->stream, d->device_new.device, keys, 2 * c->batch * row * 2));
        DCI_TRY(b->ops->copy(b->gpu, b->stream, d->device_queries.device, out, n * queries * 2));
        d->step++;
        return b->ops->stream_wait(b->gpu, b->stream);
}

static dci_status queue_layer(gpubench_driver *d, size_t layer, const dci_kv_rows *rows, gpubench_driver_times *times)
{
        gpubench *b = d->b;
        const gpubench_driver_config *c = &d->config;
        const size_t heads = c->batch * row_elements(d) * d->feed->group, dim = d->feed->dim;
        const unsigned char *queries = d->device_queries.device + layer * heads * 2;
        unsigned char *out = d->out.device + layer * heads * dci_dtype_size(c->out_dtype);
        const bool timed = d->events != NULL && times != NULL;
        DCI_TRY(dci_gpu_kv_append(d->kv, b->stream, layer, rows));
        const double begin = bench_seconds();
        DCI_TRY(dci_gpu_kv_plan(d->kv, b->stream, layer, queries, dim));
        const double planned = bench_seconds();
        if (timed)
                DCI_TRY(b->ops->event_record(b->gpu, d->events[2 * layer], b->stream));
        const double at = bench_seconds();
        DCI_TRY(dci_gpu_kv_attend(d->kv, b->stream, layer, queries, dim, out, dim, NULL));
        if (times != NULL) {
                times->plan += planned - begin;
                times->attend += bench_seconds() - at;
        }
        return timed ? b->ops->event_record(b->gpu, d->events[2 * layer + 1], b->stream) : DCI_OK;
}

/* Queues all layers in their order; `times` NULL: the step is captured. */
static dci_status queue_layers(gpubench_driver *d, gpubench_driver_times *times)
{
        dci_kv_rows rows;
        DCI_TRY(rows_of(&d->device_new, d->config.batch * row_elements(d) * 2, &rows));
        for (size_t l = 0; l < d->config.layers; l++)
                DCI_TRY(queue_layer(d, l, &rows, times));
        return DCI_OK;
}

static dci_status end_step(gpubench_driver *d)
{
        DCI_TRY(dci_gpu_kv_step_end(d->kv, d->b->stream));
        for (size_t i = 0; i < d->config.batch; i++)
                d->n[i]++;
        return d->b->ops->stream_wait(d->b->gpu, d->b->stream);
}

/* Runs a step call by call before the first capture: what a first call loads must not be recorded, and a failure has its own sentence. */
static dci_status step_before(gpubench_driver *d)
{
        gpubench_driver_times times;
        gpubench_driver_drop_graph(d);
        DCI_TRY(gpubench_driver_step(d, &times));
        return gpubench_driver_upload(d);
}

dci_status gpubench_driver_capture(gpubench_driver *d, size_t max_tokens)
{
        gpubench *b = d->b;
        dci_status status = d->warm ? DCI_OK : step_before(d);
        if (status != DCI_OK)
                return status;
        d->warm = true;
        gpubench_driver_drop_graph(d);
        status = dci_gpu_kv_reserve(d->kv, b->stream, d->config.batch, d->sequences, NULL);
        if (status != DCI_OK)
                return status;
        status = dci_gpu_kv_capture(d->kv, b->stream, max_tokens);
        if (status == DCI_OK)
                status = b->ops->capture_begin(b->gpu, b->stream);
        if (status == DCI_OK) {
                status = queue_layers(d, NULL);
                /* Ends the capture also after a failure. */
                const dci_status ended = b->ops->capture_end(b->gpu, b->stream, &d->graph);
                status = status == DCI_OK ? ended : status;
        }
        if (status == DCI_OK)
                status = b->ops->graph_launch(b->gpu, d->graph, b->stream);
        d->graph_tokens = max_tokens;
        if (status == DCI_OK)
                return end_step(d);
        char failure[512];
        snprintf(failure, sizeof failure, "%s", dci_last_error());
        (void)dci_gpu_kv_step_abort(d->kv);
        gpubench_driver_drop_graph(d);
        return dci_fail(status, "%s", failure);
}

static dci_status launch(gpubench_driver *d)
{
        gpubench *b = d->b;
        DCI_TRY(dci_gpu_kv_replay(d->kv, b->stream, d->graph_tokens));
        DCI_TRY(b->ops->event_record(b->gpu, b->begin, b->stream));
        DCI_TRY(b->ops->graph_launch(b->gpu, d->graph, b->stream));
        return b->ops->event_record(b->gpu, b->end, b->stream);
}

dci_status gpubench_driver_step(gpubench_driver *d, gpubench_driver_times *out)
{
        gpubench *b = d->b;
        *out = (gpubench_driver_times){0};
        const double begin = bench_seconds();
        DCI_TRY(dci_gpu_kv_reserve(d->kv, b->stream, d->config.batch, d->sequences, NULL));
        DCI_TRY(d->graph != NULL ? launch(d) : queue_layers(d, out));
        DCI_TRY(end_step(d));
        const double done = bench_seconds();
        out->wall = done - begin;
        if (d->graph != NULL)
                return b->ops->event_elapsed(b->gpu, b->begin, b->end, &out->device);
        if (d->planner == DCI_GPU_PLAN_HOST || d->config.maintain)
                DCI_TRY(dci_gpu_kv_maintain(d->kv, d->config.batch, d->sequences));
        out->maintain = bench_seconds() - done;
        for (size_t l = 0; d->events != NULL && l < d->config.layers; l++) {
                double seconds = 0;
                DCI_TRY(b->ops->event_elapsed(b->gpu, d->events[2 * l], d->events[2 * l + 1], &seconds));
                out->device += seconds;
        }
        return DCI_OK;
}

dci_status gpubench_driver_check(gpubench_driver *d)
{
        gpubench *b = d->b;
        const int32_t dtype = d->config.out_dtype;
        const size_t element = dci_dtype_size(dtype), n = d->out_bytes / element, mark = b->n_areas;
        const uint32_t exponent = dtype == DCI_F32 ? 0x7f800000U : dtype == DCI_BF16 ? 0x7f80U : 0x7c00U;
        unsigned char *out = gpubench_host(b, d->out_bytes);
        if (out == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_download(b, out, d->out.device, d->out_bytes));
        for (size_t i = 0; i < n; i++) {
                uint32_t bits = 0;
                memcpy(&bits, out + i * element, element);
                if ((bits & exponent) == exponent)
                        return dci_fail(BENCH_ERR_RUN, "output %zu of %zu is no number", i, n);
        }
        gpubench_release(b, mark);
        return DCI_OK;
}

/* --- what parts share ---------------------------------------------------------------------------------------------------------------- */

double gpubench_hit_rate(const dci_gpu_kv_info *before, const dci_gpu_kv_info *after)
{
        const double asked = (double)(after->n_asked - before->n_asked),
                     missed = (double)(after->n_missed - before->n_missed),
                     stayed = (double)(after->n_stayed - before->n_stayed) / (double)after->unit_tokens;
        return asked > 0 ? fmax(0, 1 - (missed + stayed) / asked) : 1;
}

double gpubench_distance(const float *a, const float *b, size_t n)
{
        double off = 0, all = 0;
        for (size_t i = 0; i < n; i++) {
                off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
                all += (double)b[i] * (double)b[i];
        }
        return sqrt(off / all);
}

dci_status gpubench_each_arm(gpubench *b, bool (*is_usual)(int32_t preset), size_t n, gpubench_arm_run run, void *arg)
{
        const kvbench_options *o = &b->options->arms;
        char failure[1024] = "";
        dci_status failed = DCI_OK;
        kvbench_arm *arms = gpubench_host(b, (kvbench_arms(o, NULL) + 1) * sizeof *arms);
        if (arms == NULL)
                return DCI_ERR_MEMORY;
        const size_t n_arms = kvbench_arms(o, arms), mark = b->n_areas;
        for (size_t i = 0; i < n_arms * n; i++) {
                const kvbench_arm *arm = &arms[i / n];
                const char *name = dci_kv_preset_name(arm->preset);
                if (!b->options->presets_given && is_usual != NULL && !is_usual(arm->preset))
                        continue;
                const dci_status status = run(arg, arm, i % n);
                gpubench_release(b, mark);
                if (status == DCI_OK)
                        continue;
                (void)bench_fail_about(name, status);
                printf("%-14s failed: %s\n", name, dci_last_error());
                if (failed == DCI_OK)
                        snprintf(failure, sizeof failure, "%s", dci_last_error());
                failed = failed == DCI_OK ? status : failed;
        }
        return failed == DCI_OK ? DCI_OK : dci_fail(failed, "%s", failure);
}
