/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include "bench/gpu/path.h"

#include <math.h>
#include <string.h>

#include "simd/convert.h"

enum { DIM = GPUBENCH_DIM, GROUP = GPUBENCH_GROUP, OBSERVED = 64 };
#define CHUNK_TOKENS ((size_t)4096) /* of a prompt, made and brought at once */
#define WALK_APART 37               /* steps of the walk from one layer's, or sequence's, queries to the next one's */

static size_t row_elements(const gpubench_path *p)
{
        return p->config.heads * DIM;
}

/* --- opening ---------------------------------------------------------------------------------------------------------------------- */

dci_status gpubench_path_kv_config(const gpubench *b, const gpubench_path_config *config, dci_kv_config *out)
{
        const gpubench_options *o = b->options;
        dci_status status = dci_kv_config_init(out, sizeof *out);
        if (status != DCI_OK)
                return status;
        out->n_layers = config->layers;
        out->n_kv_heads = config->heads;
        out->n_query_heads = config->heads * GROUP;
        out->dim_k = DIM;
        out->dtype = out->query_dtype = DCI_BF16;
        out->preset = config->arm.preset;
        out->budget = o->budgets.values[0];
        out->dense_layers = 0;
        out->seed = o->arms.seed;
        if (config->arm.key_bits > 0)
                out->key_bits = config->arm.key_bits;
        if (config->arm.value_bits > 0)
                out->value_bits = config->arm.value_bits;
        if (config->arm.learned)
                out->summary = DCI_KV_SUMMARY_LEARNED;
        kvbench_set_stages(&o->arms, out);
        return DCI_OK;
}

static dci_status create(gpubench *b, const gpubench_path_config *config, dci_gpu_kv **out, int32_t *out_planner)
{
        dci_kv_config c;
        dci_gpu_kv_config g;
        dci_gpu_kv_info info;
        dci_status status = gpubench_path_kv_config(b, config, &c);
        if (status == DCI_OK)
                status = dci_gpu_kv_config_init(&g, sizeof g);
        if (status == DCI_OK)
                status = dci_gpu_kv_info_init(&info, sizeof info);
        if (status != DCI_OK)
                return status;
        g.max_sequences = config->batch;
        g.max_tokens = config->max_tokens;
        g.gather = b->options->gather;
        g.hot_tokens = b->options->hot;
        g.out_dtype = (int32_t)config->out_dtype;
        g.planner = config->planner;
        g.device_resident_bytes = b->options->resident_mib << 20;
        status = dci_gpu_kv_create(b->gpu, &c, &g, out);
        if (status == DCI_OK)
                status = dci_gpu_kv_get_info(*out, &info);
        *out_planner = info.planner == DCI_GPU_PLAN_DEVICE ? DCI_GPU_PLAN_DEVICE : DCI_GPU_PLAN_HOST;
        return status;
}

dci_status gpubench_path_planner(gpubench *b, const gpubench_path_config *config, int32_t *out)
{
        gpubench_path_config small = *config;
        dci_gpu_kv *kv = NULL;
        small.layers = small.batch = 1;
        small.max_tokens = 8192;
        const dci_status status = create(b, &small, &kv, out);
        dci_gpu_kv_destroy(kv);
        return status;
}

static dci_status take_areas(gpubench_path *p)
{
        gpubench *b = p->b;
        const gpubench_path_config *c = &p->config;
        const size_t row = row_elements(p) * 2, queries = row * GROUP;
        p->out_bytes = c->layers * c->batch * row_elements(p) * GROUP * dci_dtype_size(c->out_dtype);
        const struct {
                gpubench_area *area;
                size_t n_bytes;
                int kind;
        } areas[] = {{&p->rows[0], 2 * CHUNK_TOKENS * row, GPUBENCH_PINNED},
                     {&p->rows[1], 2 * CHUNK_TOKENS * row, GPUBENCH_PINNED},
                     {&p->prompt, 2 * c->max_prompt * row, GPUBENCH_ON_DEVICE},
                     {&p->new_rows, 2 * c->batch * row, GPUBENCH_PINNED},
                     {&p->device_new, 2 * c->batch * row, GPUBENCH_ON_DEVICE},
                     {&p->queries, c->layers * c->batch * queries, GPUBENCH_PINNED},
                     {&p->device_queries, c->layers * c->batch * queries, GPUBENCH_ON_DEVICE},
                     {&p->observed, OBSERVED * queries, GPUBENCH_ON_DEVICE},
                     {&p->out, p->out_bytes, GPUBENCH_ON_DEVICE}};
        dci_status status = DCI_OK;
        for (size_t i = 0; i < sizeof areas / sizeof *areas && status == DCI_OK; i++)
                status = gpubench_take(b, areas[i].n_bytes, areas[i].kind, areas[i].area);
        for (size_t i = 0; i < 2 && status == DCI_OK; i++)
                status = b->ops->event_create(b->gpu, false, &p->rows_free[i]);
        return status == DCI_OK ? b->ops->fill(b->gpu, b->stream, p->out.device, 0xff, p->out.n_bytes) : status;
}

dci_status gpubench_path_open(gpubench *b, const gpubench_stream *stream, const gpubench_path_config *config,
                              gpubench_path *out)
{
        *out = (gpubench_path){.b = b, .stream = stream, .config = *config};
        for (size_t i = 0; i < GPUBENCH_MOST_BATCH; i++)
                out->sequences[i] = -1;
        const dci_status status = take_areas(out);
        out->free_before = gpubench_free_bytes(b);
        return status == DCI_OK ? create(b, config, &out->kv, &out->planner) : status;
}

/* The areas go with the caller's mark. */
void gpubench_path_close(gpubench_path *p)
{
        gpubench_path_forget(p);
        dci_gpu_kv_destroy(p->kv);
        p->kv = NULL;
        for (size_t i = 0; i < 2; i++)
                if (p->rows_free[i] != NULL)
                        p->b->ops->event_destroy(p->b->gpu, p->rows_free[i]);
        p->rows_free[0] = p->rows_free[1] = NULL;
}

void gpubench_path_forget(gpubench_path *p)
{
        if (p->graph != NULL)
                p->b->ops->graph_destroy(p->b->gpu, p->graph);
        p->graph = NULL;
}

/* --- the prompt -------------------------------------------------------------------------------------------------------------------- */

static dci_status rows_of(const gpubench_area *area, size_t values_at, dci_kv_rows *out)
{
        const dci_status status = dci_kv_rows_init(out, sizeof *out);
        out->keys = area->device;
        out->values = area->device + values_at;
        return status;
}

/* Tokens [first, first + n) of a prompt of n_tokens to the device, by one of two buffers when it is free. */
static dci_status bring_chunk(gpubench_path *p, size_t first, size_t n, size_t n_tokens, size_t buffer)
{
        gpubench *b = p->b;
        const size_t row = row_elements(p) * 2;
        uint16_t *keys = (uint16_t *)(void *)p->rows[buffer].host, *values = keys + n * row_elements(p);
        dci_status status = b->ops->event_wait(b->gpu, p->rows_free[buffer]);
        if (status == DCI_OK)
                status = gpubench_stream_rows(p->stream, first, n, keys, values);
        if (status == DCI_OK)
                status = b->ops->copy(b->gpu, b->stream, p->prompt.device + first * row, keys, n * row);
        if (status == DCI_OK)
                status = b->ops->copy(b->gpu, b->stream, p->prompt.device + (n_tokens + first) * row, values, n * row);
        return status == DCI_OK ? b->ops->event_record(b->gpu, p->rows_free[buffer], b->stream) : status;
}

/* The whole prompt of sequence i in one step, as a device that plans wants it: the same rows in all layers. */
static dci_status append_prompt(gpubench_path *p, size_t i, size_t n)
{
        gpubench *b = p->b;
        dci_kv_rows rows;
        dci_status status = rows_of(&p->prompt, n * row_elements(p) * 2, &rows);
        if (status == DCI_OK)
                status = dci_gpu_kv_open(p->kv, &p->sequences[i]);
        if (status == DCI_OK)
                status = dci_gpu_kv_reserve(p->kv, b->stream, 1, &p->sequences[i], &n);
        for (size_t l = 0; l < p->config.layers && status == DCI_OK; l++) {
                status = dci_gpu_kv_append(p->kv, b->stream, l, &rows);
                if (status == DCI_OK)
                        status = dci_gpu_kv_end_prompt(p->kv, b->stream, l, p->sequences[i], OBSERVED,
                                                       p->observed.device, DIM);
        }
        if (status == DCI_OK)
                status = dci_gpu_kv_step_end(p->kv, b->stream);
        p->n[i] = n;
        return status;
}

/* Sequences [first, end) get the same rows, each its own copy. */
static dci_status fill_some(gpubench_path *p, size_t first, size_t end, size_t n_tokens)
{
        const size_t observed = OBSERVED * row_elements(p) * GROUP * 2;
        if (n_tokens > p->config.max_prompt)
                return dci_fail(BENCH_ERR_RUN, "a prompt of %zu tokens, but there is room for %zu", n_tokens,
                                p->config.max_prompt);
        dci_status status = gpubench_upload(p->b, p->observed.device, p->stream->walk, observed);
        for (size_t t = 0, n, buffer = 0; t < n_tokens && status == DCI_OK; t += n, buffer = 1 - buffer) {
                n = n_tokens - t < CHUNK_TOKENS ? n_tokens - t : CHUNK_TOKENS;
                status = bring_chunk(p, t, n, n_tokens, buffer);
        }
        for (size_t i = first; i < end && status == DCI_OK; i++)
                status = append_prompt(p, i, n_tokens);
        return status == DCI_OK ? dci_gpu_kv_sync(p->kv) : status;
}

dci_status gpubench_path_fill_one(gpubench_path *p, size_t i, size_t n_tokens)
{
        return fill_some(p, i, i + 1, n_tokens);
}

dci_status gpubench_path_fill(gpubench_path *p, size_t n_tokens, bool forks)
{
        const size_t n = p->config.batch;
        dci_status status = fill_some(p, 0, forks ? 1 : n, n_tokens);
        for (size_t i = 1; i < n && forks && status == DCI_OK; i++) {
                status = dci_gpu_kv_fork(p->kv, p->sequences[0], n_tokens, &p->sequences[i]);
                p->n[i] = n_tokens;
        }
        return status;
}

dci_status gpubench_path_empty(gpubench_path *p)
{
        dci_status status = DCI_OK;
        for (size_t i = 0; i < p->config.batch && status == DCI_OK; i++)
                if (p->sequences[i] >= 0) {
                        status = dci_gpu_kv_close(p->kv, p->sequences[i]);
                        p->sequences[i] = -1;
                        p->n[i] = 0;
                }
        return status;
}

/* --- steps --------------------------------------------------------------------------------------------------------------------------- */

dci_status gpubench_path_bring(gpubench_path *p)
{
        gpubench *b = p->b;
        const gpubench_path_config *c = &p->config;
        const size_t row = row_elements(p), queries = row * GROUP * 2;
        uint16_t *keys = (uint16_t *)(void *)p->new_rows.host;
        dci_status status = DCI_OK;
        for (size_t i = 0; i < c->batch && status == DCI_OK; i++)
                status = gpubench_stream_rows(p->stream, p->n[i], 1, keys + i * row, keys + (c->batch + i) * row);
        for (size_t l = 0; l < c->layers; l++)
                for (size_t i = 0; i < c->batch; i++) {
                        const size_t at = l * c->batch + i;
                        memcpy(p->queries.host + at * queries,
                               gpubench_stream_queries(p->stream, p->step + at * WALK_APART), queries);
                }
        if (status == DCI_OK)
                status = b->ops->copy(b->gpu, b->stream, p->device_new.device, keys, 2 * c->batch * row * 2);
        if (status == DCI_OK)
                status = b->ops->copy(b->gpu, b->stream, p->device_queries.device, p->queries.host,
                                      c->layers * c->batch * queries);
        p->step++;
        return status == DCI_OK ? b->ops->stream_wait(b->gpu, b->stream) : status;
}

/* All layers, in their order; `times` NULL: it is captured. */
static dci_status queue_layers(gpubench_path *p, gpubench_path_times *times)
{
        gpubench *b = p->b;
        const gpubench_path_config *c = &p->config;
        const size_t row = row_elements(p), heads = row * GROUP;
        dci_kv_rows rows;
        dci_status status = rows_of(&p->device_new, c->batch * row * 2, &rows);
        for (size_t l = 0; l < c->layers && status == DCI_OK; l++) {
                const unsigned char *queries = p->device_queries.device + l * c->batch * heads * 2;
                status = dci_gpu_kv_append(p->kv, b->stream, l, &rows);
                const double at = bench_seconds();
                if (status == DCI_OK)
                        status = dci_gpu_kv_plan(p->kv, b->stream, l, queries, DIM);
                if (times != NULL)
                        times->plan += bench_seconds() - at;
                if (status == DCI_OK)
                        status = dci_gpu_kv_attend(p->kv, b->stream, l, queries, DIM,
                                                   p->out.device + l * c->batch * heads * dci_dtype_size(c->out_dtype),
                                                   DIM, NULL);
        }
        return status;
}

static dci_status end_step(gpubench_path *p)
{
        dci_status status = dci_gpu_kv_step_end(p->kv, p->b->stream);
        for (size_t i = 0; i < p->config.batch && status == DCI_OK; i++)
                p->n[i]++;
        return status == DCI_OK ? p->b->ops->stream_wait(p->b->gpu, p->b->stream) : status;
}

/* Call by call: what a first call loads must not be recorded, and a failure has its own sentence. */
static dci_status step_before(gpubench_path *p)
{
        gpubench_path_times times;
        gpubench_path_forget(p);
        dci_status status = gpubench_path_step(p, &times);
        return status == DCI_OK ? gpubench_path_bring(p) : status;
}

dci_status gpubench_path_capture(gpubench_path *p, size_t max_tokens)
{
        gpubench *b = p->b;
        dci_status status = p->warm ? DCI_OK : step_before(p);
        if (status != DCI_OK)
                return status;
        p->warm = true;
        gpubench_path_forget(p);
        status = dci_gpu_kv_reserve(p->kv, b->stream, p->config.batch, p->sequences, NULL);
        if (status != DCI_OK)
                return status;
        status = dci_gpu_kv_capture(p->kv, b->stream, max_tokens);
        if (status == DCI_OK)
                status = b->ops->capture_begin(b->gpu, b->stream);
        if (status == DCI_OK) {
                status = queue_layers(p, NULL);
                /* A recording that was begun is ended, also after a failure. */
                const dci_status ended = b->ops->capture_end(b->gpu, b->stream, &p->graph);
                status = status == DCI_OK ? ended : status;
        }
        if (status == DCI_OK)
                status = b->ops->graph_launch(b->gpu, p->graph, b->stream);
        p->graph_tokens = max_tokens;
        if (status == DCI_OK)
                return end_step(p);
        char failure[512];
        snprintf(failure, sizeof failure, "%s", dci_last_error());
        (void)dci_gpu_kv_step_abort(p->kv);
        gpubench_path_forget(p);
        return dci_fail(status, "%s", failure);
}

static dci_status launch(gpubench_path *p)
{
        gpubench *b = p->b;
        dci_status status = dci_gpu_kv_replay(p->kv, b->stream, p->graph_tokens);
        if (status == DCI_OK)
                status = b->ops->event_record(b->gpu, b->begin, b->stream);
        if (status == DCI_OK)
                status = b->ops->graph_launch(b->gpu, p->graph, b->stream);
        return status == DCI_OK ? b->ops->event_record(b->gpu, b->end, b->stream) : status;
}

dci_status gpubench_path_step(gpubench_path *p, gpubench_path_times *out)
{
        gpubench *b = p->b;
        *out = (gpubench_path_times){0};
        const double begin = bench_seconds();
        dci_status status = dci_gpu_kv_reserve(p->kv, b->stream, p->config.batch, p->sequences, NULL);
        if (status == DCI_OK)
                status = p->graph != NULL ? launch(p) : queue_layers(p, out);
        if (status == DCI_OK)
                status = end_step(p);
        const double done = bench_seconds();
        out->wall = done - begin;
        if (status == DCI_OK && p->graph != NULL)
                return b->ops->event_elapsed(b->gpu, b->begin, b->end, &out->device);
        if (status == DCI_OK && p->planner == DCI_GPU_PLAN_HOST)
                status = dci_gpu_kv_maintain(p->kv, p->config.batch, p->sequences);
        out->maintain = bench_seconds() - done;
        return status;
}

dci_status gpubench_path_look(gpubench_path *p)
{
        const size_t element = dci_dtype_size(p->config.out_dtype), n = p->out_bytes / element;
        unsigned char *out = dci_alloc(p->b->context, p->out_bytes, 1);
        if (out == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = gpubench_download(p->b, out, p->out.device, p->out_bytes);
        for (size_t i = 0; i < n && status == DCI_OK; i++) {
                uint32_t bits = 0;
                memcpy(&bits, out + i * element, element);
                const uint32_t exponent = element == 4                      ? 0x7f800000U
                                          : p->config.out_dtype == DCI_BF16 ? 0x7f80U
                                                                            : 0x7c00U;
                if ((bits & exponent) == exponent)
                        status = dci_fail(BENCH_ERR_RUN, "output %zu of %zu is no number", i, n);
        }
        dci_free(p->b->context, out, p->out_bytes, 1);
        return status;
}
