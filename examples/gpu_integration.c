/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A decode loop on dci_gpu_kv: keys and values in host memory, attention on a device. Here the device is the CPU (DCI_GPU_HOST), so it
 * runs anywhere; on a GPU the arrays are the engine's device memory and the stream is a CUDA stream, and nothing else changes.
 * Outputs are held against a dci_kv that gets the same tokens. Exit code 1 if they differ. docs/gpu.md quotes the marked
 * parts. There is no model: keys, values and queries are random.
 */
#include <dci/dci.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 3, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 64, PROMPT = 900, STEPS = 40, OBSERVED = 32 };

typedef struct engine {
        void *stream; /* of the engine's model; CUDA: its cudaStream_t */
        dci_gpu *gpu;
        dci_gpu_kv *kv;
        dci_kv *reference; /* the same on the CPU */
        dci_kv_plan plan;
        uint16_t *keys, *values; /* of a step's tokens, f16: device memory */
        float *queries, *out, *lse;
        uint64_t random;
        double worst;
} engine;

static void must(dci_status status)
{
        if (status == DCI_OK)
                return;
        fprintf(stderr, "%s: %s\n", dci_status_name(status), dci_last_error());
        exit(1);
}

/* quote: open_gpu */
static void open_engine(engine *e, dci_context *context, int32_t device)
{
        dci_gpu_config which;
        dci_kv_config config;
        dci_gpu_kv_config on_device;
        must(dci_gpu_config_init(&which, sizeof which));
        which.device = device; /* 0, 1, .. or DCI_GPU_HOST */
        must(dci_gpu_create(context, &which, &e->gpu));

        must(dci_kv_config_init(&config, sizeof config)); /* as for dci_kv_create */
        config.n_layers = LAYERS;
        config.n_query_heads = QUERY_HEADS;
        config.n_kv_heads = KV_HEADS;
        config.dim_k = DIM;
        config.dense_layers = 1;

        must(dci_gpu_kv_config_init(&on_device, sizeof on_device));
        on_device.max_sequences = 4;
        on_device.max_tokens = 4096;
        on_device.piece_bytes = (size_t)4 << 20; /* host memory is locked in pieces */
        must(dci_gpu_kv_create(e->gpu, &config, &on_device, &e->kv));
        must(dci_kv_create(context, &config, &e->reference));
}
/* end of quote */

static float next(engine *e)
{
        float sum = 0.0f;
        for (int i = 0; i < 4; i++) {
                e->random = e->random * 6364136223846793005u + 1442695040888963407u;
                sum += (float)(e->random >> 40) / (float)(1 << 24) - 0.5f;
        }
        return 1.7f * sum;
}

/* Numbers of f16 from 2^-8 to 2 in size. */
static uint16_t half(float x)
{
        int exponent = 0;
        if (fabsf(x) < 1.0f / 256.0f)
                return 0;
        const float mantissa = frexpf(fabsf(x), &exponent); /* 0.5 to 1 */
        const int bits = (int)(mantissa * 2048.0f) & 1023;
        return (uint16_t)((x < 0.0f ? 0x8000 : 0) | (exponent + 14) << 10 | bits);
}

/* What the model computes for n tokens of one layer. */
static void run_model(engine *e, size_t n)
{
        for (size_t i = 0; i < n * KV_HEADS * DIM; i++) {
                e->keys[i] = half(next(e));
                e->values[i] = half(next(e));
        }
        for (size_t i = 0; i < (n < OBSERVED ? n : OBSERVED) * QUERY_HEADS * DIM; i++)
                e->queries[i] = 2.0f * next(e);
}

static dci_kv_rows rows_of(const engine *e)
{
        dci_kv_rows rows;
        must(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = e->keys;
        rows.values = e->values;
        return rows;
}

static void reference_append(engine *e, size_t layer, int64_t sequence, size_t n)
{
        const dci_kv_rows rows = rows_of(e);
        must(dci_kv_append(e->reference, layer, 1, &sequence, &n, &rows));
}

/* quote: prompt_gpu */
static void prefill(engine *e, int64_t sequence, size_t n)
{
        must(dci_gpu_kv_reserve(e->kv, e->stream, 1, &sequence, &n));
        must(dci_kv_reserve(e->reference, 1, &sequence, &n));
        for (size_t layer = 0; layer < LAYERS; layer++) {
                run_model(
                        e,
                        n); /* keys and values to device memory, and attention among themselves, which is the model's */
                const dci_kv_rows rows = rows_of(e);
                must(dci_gpu_kv_append(e->kv, e->stream, layer, &rows));
                must(dci_gpu_kv_end_prompt(e->kv, e->stream, layer, sequence, OBSERVED, e->queries, DIM));
                reference_append(e, layer, sequence, n);
                must(dci_kv_end_prompt(e->reference, layer, sequence, OBSERVED, e->queries, DIM));
        }
        must(dci_gpu_kv_step_end(e->kv, e->stream));
        must(dci_kv_step_end(e->reference, 1, &sequence));
}
/* end of quote */

static void compare(engine *e, size_t layer, int64_t sequence)
{
        float wanted[QUERY_HEADS * DIM];
        must(dci_kv_plan_make(e->reference, layer, 1, &sequence, e->queries, DIM, &e->plan));
        must(dci_kv_attend(e->reference, layer, 1, &sequence, e->queries, DIM, &e->plan, wanted, DIM, NULL));
        for (size_t i = 0; i < QUERY_HEADS * DIM; i++) {
                const double off = fabs((double)e->out[i] - wanted[i]);
                e->worst = off > e->worst ? off : e->worst;
        }
}

/* quote: decode_gpu */
static void decode(engine *e, int64_t sequence)
{
        const size_t n = 1;
        must(dci_gpu_kv_reserve(e->kv, e->stream, 1, &sequence, NULL));
        must(dci_kv_reserve(e->reference, 1, &sequence, NULL));
        for (size_t layer = 0; layer < LAYERS; layer++) {
                run_model(e, n);
                const dci_kv_rows rows = rows_of(e);
                must(dci_gpu_kv_append(e->kv, e->stream, layer, &rows));
                must(dci_gpu_kv_plan(e->kv, e->stream, layer, e->queries, DIM)); /* the host waits for the queries */
                must(dci_gpu_kv_attend(e->kv, e->stream, layer, e->queries, DIM, e->out, DIM, e->lse));
                reference_append(e, layer, sequence, n);
                compare(e, layer, sequence);
        }
        must(dci_gpu_kv_step_end(e->kv, e->stream));
        must(dci_kv_step_end(e->reference, 1, &sequence));
        must(dci_gpu_kv_maintain(e->kv, 0, NULL)); /* while the model samples */
        must(dci_kv_maintain(e->reference, 0, NULL));
}
/* end of quote */

/* The host device's memory is the host's. */
static void *device_memory(size_t n_bytes)
{
        void *out = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
        if (out == NULL)
                exit(1);
        return out;
}

int main(void)
{
        engine e = {.random = 7};
        dci_context *context = NULL;
        int64_t sequence, same;
        int32_t bad = 1;
        dci_gpu_kv_info info;
        must(dci_context_create(NULL, &context));
        open_engine(&e, context, DCI_GPU_HOST);
        e.keys = device_memory((size_t)PROMPT * KV_HEADS * DIM * sizeof *e.keys);
        e.values = device_memory((size_t)PROMPT * KV_HEADS * DIM * sizeof *e.values);
        e.queries = device_memory((size_t)OBSERVED * QUERY_HEADS * DIM * sizeof *e.queries);
        e.out = device_memory((size_t)QUERY_HEADS * DIM * sizeof *e.out);
        e.lse = device_memory(QUERY_HEADS * sizeof *e.lse);
        must(dci_kv_plan_init(&e.plan, sizeof e.plan));
        must(dci_kv_plan_create(e.reference, 1, &e.plan));
        must(dci_gpu_kv_open(e.kv, &sequence));
        must(dci_kv_open(e.reference, &same));
        prefill(&e, sequence, PROMPT);
        for (size_t s = 0; s < STEPS; s++)
                decode(&e, sequence);
        must(dci_gpu_poll(e.kv, 1, &sequence, &bad));
        must(dci_gpu_kv_info_init(&info, sizeof info));
        must(dci_gpu_kv_get_info(e.kv, &info));
        printf("%d steps of %d layers: outputs differ by at most %.1e; of %llu tokens that were asked for, %llu were "
               "fetched\n",
               STEPS, LAYERS, e.worst, (unsigned long long)info.n_asked, (unsigned long long)info.n_missed);
        dci_kv_plan_destroy(e.reference, &e.plan);
        dci_kv_destroy(e.reference);
        dci_gpu_kv_destroy(e.kv);
        dci_gpu_destroy(e.gpu);
        dci_context_destroy(context);
        free(e.keys);
        free(e.values);
        free(e.queries);
        free(e.out);
        free(e.lse);
        return e.worst < 1e-4 && bad == 0 && info.n_missed > 0 ? 0 : 1;
}
