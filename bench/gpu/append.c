/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part append: what a step's new tokens cost. In a decode their rows go to the lanes on the device and to the pool in host memory by one
 * kernel for each layer; of a prompt, whole blocks are packed on the device and copied to the host in one piece for each layer.
 */
#include "bench/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

enum {
        HEADS = 8,
        DIM = 128,
        PAGE_SHIFT = 4,
        SINK = 16,
        RING = 256,
        LANE_TOKENS = 64,
        CHUNK_LAYERS = 8,
        WORK_PACKS = 32
};
#define ROW_BYTES ((size_t)DIM * 2)
#define BLOCK_BYTES (HEADS * (2 * ROW_BYTES << PAGE_SHIFT))

typedef struct appending {
        gpubench *b;
        size_t n_sequences, n_layers, n_tokens; /* n_tokens: of a prompt's chunk */
        gpubench_area rows, host, packed, lanes;
        void *side, *packed_event, *copied_event;
        dci_gpu_append_args args;
} appending;

/* --- decode ------------------------------------------------------------------------------------------------------------------- */

static dci_status append_layer(void *arg, size_t layer)
{
        const appending *a = arg;
        const size_t layer_rows = a->n_sequences * HEADS * ROW_BYTES;
        const size_t lane_bytes = a->n_sequences * HEADS * (size_t)a->args.lanes.n_slots * ROW_BYTES;
        dci_gpu_append_args args = a->args;
        args.keys = a->rows.device + 2 * layer * layer_rows;
        args.values = args.keys + layer_rows;
        args.lanes.keys = a->lanes.device + 2 * layer * lane_bytes;
        args.lanes.values = args.lanes.keys + lane_bytes;
        args.host.layer_at = layer * a->n_sequences * BLOCK_BYTES;
        return a->b->ops->append(a->b->gpu, a->b->stream, &args);
}

/* Each sequence has one block in one piece, and its token in the middle of it. */
static dci_status put_batch(appending *a)
{
        const size_t n = a->n_sequences;
        int32_t *numbers = gpubench_host(a->b, 6 * n * sizeof *numbers); /* rows, first, n_new, begin, blocks, bad */
        void *device = NULL, *pieces = a->host.device;
        if (numbers == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n; i++) {
                numbers[i] = numbers[3 * n + i] = numbers[4 * n + i] = (int32_t)i;
                numbers[n + i] = SINK / 2 + 1;
                numbers[2 * n + i] = 1;
        }
        DCI_TRY(gpubench_put(a->b, numbers, 6 * n * sizeof *numbers, &device));
        int32_t *at = device;
        a->args.batch = (dci_gpu_batch){.n = (int32_t)n,
                                        .rows = at,
                                        .first = at + n,
                                        .n_new = at + 2 * n,
                                        .begin = at + 3 * n,
                                        .n_tokens = (int32_t)n};
        a->args.tables = (dci_gpu_tables){.blocks = at + 4 * n, .stride = 1};
        a->args.bad = at + 5 * n;
        DCI_TRY(gpubench_put(a->b, &pieces, sizeof pieces, &device));
        a->args.host = (dci_gpu_pool){.pieces = device,
                                      .block_bytes = BLOCK_BYTES,
                                      .head_bytes = BLOCK_BYTES / HEADS,
                                      .value_at = BLOCK_BYTES / HEADS / 2,
                                      .key_bytes = ROW_BYTES,
                                      .value_bytes = ROW_BYTES,
                                      .block_shift = 20,
                                      .page_shift = PAGE_SHIFT};
        return DCI_OK;
}

/* The rows as they have arrived in host memory. */
static dci_status check_decode(appending *a)
{
        const size_t layer_rows = a->n_sequences * HEADS * ROW_BYTES, slot = SINK / 2 + 1;
        unsigned char *rows = gpubench_host(a->b, a->rows.n_bytes);
        if (rows == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_download(a->b, rows, a->rows.device, a->rows.n_bytes));
        for (size_t i = 0; i < a->n_layers * a->n_sequences * HEADS; i++) {
                const size_t layer = i / (a->n_sequences * HEADS), row = i % (a->n_sequences * HEADS);
                const unsigned char *key = rows + 2 * layer * layer_rows + row * ROW_BYTES;
                const unsigned char *stored = a->host.host + i * (BLOCK_BYTES / HEADS) + slot * ROW_BYTES;
                if (memcmp(stored, key, ROW_BYTES) != 0 ||
                    memcmp(stored + BLOCK_BYTES / HEADS / 2, key + layer_rows, ROW_BYTES) != 0)
                        return dci_fail(BENCH_ERR_RUN, "append: row %zu of layer %zu is not in host memory", row,
                                        layer);
        }
        return DCI_OK;
}

static dci_status report(appending *a, const char *arm, const gpubench_time *time, double bytes, double limit)
{
        json_t *shape =
                json_pack("{s:I, s:I, s:i, s:i, s:I}", "batch", (json_int_t)a->n_sequences, "layers",
                          (json_int_t)a->n_layers, "heads", HEADS, "dim", DIM, "chunk", (json_int_t)a->n_tokens);
        printf("%-26s %9.1f %9.1f %9.1f %8.2f %7.0f%%", arm, time->median, time->p10, time->p90,
               bytes / time->median * 1e-3, limit > 0 ? 100 * bytes / (1e-6 * time->median) / limit : 0.0);
        return gpubench_row(a->b, "append", arm, shape, time, bytes, limit);
}

static dci_status measure_decode(gpubench *b, size_t n_sequences, size_t n_layers, bool write_back)
{
        const size_t mark = b->n_areas;
        appending a = {.b = b, .n_sequences = n_sequences, .n_layers = n_layers};
        gpubench_time time = {0};
        a.args = (dci_gpu_append_args){
                .key_token = HEADS * ROW_BYTES,
                .key_head = ROW_BYTES,
                .value_token = HEADS * ROW_BYTES,
                .value_head = ROW_BYTES,
                .n_heads = HEADS,
                .dtype = DCI_BF16,
                .lanes = {
                        .key_bytes = ROW_BYTES, .value_bytes = ROW_BYTES, .sink = SINK, .ring = RING, .hot = 2 * RING}};
        a.args.lanes.n_slots = SINK + RING + 2 * RING;
        const size_t rows = n_sequences * HEADS * n_layers, lanes = rows * (size_t)a.args.lanes.n_slots * ROW_BYTES;
        DCI_TRY(gpubench_take(b, 2 * rows * ROW_BYTES, GPUBENCH_ON_DEVICE, &a.rows));
        DCI_TRY(gpubench_take(b, 2 * lanes, GPUBENCH_ON_DEVICE, &a.lanes));
        DCI_TRY(gpubench_take(b, n_layers * n_sequences * BLOCK_BYTES, GPUBENCH_PINNED, &a.host));
        DCI_TRY(gpubench_fill(b, a.rows.device, a.rows.n_bytes, DCI_BF16));
        memset(a.host.host, 0xff, a.host.n_bytes);
        DCI_TRY(put_batch(&a));
        if (!write_back)
                a.args.host.pieces = NULL;
        DCI_TRY(gpubench_on_device(b, append_layer, &a, n_layers, &time));
        if (write_back)
                DCI_TRY(check_decode(&a));
        const gpubench_time step = {time.median * (double)n_layers, time.p10 * (double)n_layers,
                                    time.p90 * (double)n_layers};
        const double tokens = 1e6 * (double)n_sequences / step.median;
        DCI_TRY(report(&a, write_back ? "decode, with write-back" : "decode, lanes alone", &step,
                       (double)(2 * rows * ROW_BYTES), write_back ? b->limits.to_host : 0));
        gpubench_note(b, "tokens_per_s", tokens);
        gpubench_note(b, "tokens_per_s_wanted", 1000 * (double)n_sequences);
        printf("   %.0f tokens/s, wanted %.0f\n", tokens, 1000 * (double)n_sequences);
        gpubench_release(b, mark);
        return DCI_OK;
}

/* --- a prompt's chunk ----------------------------------------------------------------------------------------------------------- */

static dci_status pack_layer(void *arg, size_t layer)
{
        const appending *a = arg;
        const size_t rows = a->n_tokens * HEADS * ROW_BYTES;
        const dci_gpu_pack_args args = {.keys = a->rows.device + 2 * layer * rows,
                                        .values = a->rows.device + (2 * layer + 1) * rows,
                                        .key_token = HEADS * ROW_BYTES,
                                        .key_head = ROW_BYTES,
                                        .value_token = HEADS * ROW_BYTES,
                                        .value_head = ROW_BYTES,
                                        .n_heads = HEADS,
                                        .n_blocks = (int32_t)(a->n_tokens >> PAGE_SHIFT),
                                        .page_shift = PAGE_SHIFT,
                                        .key_bytes = ROW_BYTES,
                                        .value_bytes = ROW_BYTES,
                                        .block_bytes = BLOCK_BYTES,
                                        .head_bytes = (size_t)2 * ROW_BYTES << PAGE_SHIFT,
                                        .value_at = (size_t)ROW_BYTES << PAGE_SHIFT,
                                        .out = a->packed.device + 2 * layer * rows};
        return a->b->ops->pack(a->b->gpu, a->b->stream, &args);
}

static dci_status offload_layer(void *arg, size_t layer)
{
        const appending *a = arg;
        const size_t bytes = 2 * a->n_tokens * HEADS * ROW_BYTES;
        DCI_TRY(pack_layer(arg, layer));
        return a->b->ops->copy(a->b->gpu, a->b->stream, a->host.host + layer * bytes, a->packed.device + layer * bytes,
                               bytes);
}

/* What a model does meanwhile: kernels that take all of the device's memory bandwidth, for longer than the copy. */
static dci_status work_layer(void *arg, size_t layer)
{
        (void)layer;
        for (size_t i = 0; i < WORK_PACKS; i++)
                DCI_TRY(pack_layer(arg, i % ((const appending *)arg)->n_layers));
        return DCI_OK;
}

/* The layer's rows leave on a stream of their own while the next work runs; the last layer waits for all. */
static dci_status work_and_offload_layer(void *arg, size_t layer)
{
        const appending *a = arg;
        const dci_gpu_ops *ops = a->b->ops;
        const size_t bytes = 2 * a->n_tokens * HEADS * ROW_BYTES;
        DCI_TRY(pack_layer(arg, layer));
        DCI_TRY(ops->event_record(a->b->gpu, a->packed_event, a->b->stream));
        DCI_TRY(ops->event_order(a->b->gpu, a->side, a->packed_event));
        DCI_TRY(ops->copy(a->b->gpu, a->side, a->host.host + layer * bytes, a->packed.device + layer * bytes, bytes));
        DCI_TRY(work_layer(arg, layer));
        if (layer + 1 < a->n_layers)
                return DCI_OK;
        DCI_TRY(ops->event_record(a->b->gpu, a->copied_event, a->side));
        return ops->event_order(a->b->gpu, a->b->stream, a->copied_event);
}

/* Compares the blocks in host memory with the rows that they were made of. */
static dci_status check_chunk(appending *a)
{
        const size_t rows_bytes = a->n_tokens * HEADS * ROW_BYTES, n = a->n_tokens * HEADS;
        unsigned char *rows = gpubench_host(a->b, a->rows.n_bytes);
        if (rows == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_download(a->b, rows, a->rows.device, a->rows.n_bytes));
        for (size_t i = 0; i < n * a->n_layers; i++) {
                const size_t layer = i / n, token = i % n / HEADS, head = i % HEADS, page = (size_t)1 << PAGE_SHIFT;
                const unsigned char *key = rows + 2 * layer * rows_bytes + i % n * ROW_BYTES;
                const unsigned char *stored = a->host.host + 2 * layer * rows_bytes + token / page * BLOCK_BYTES +
                                              head * (BLOCK_BYTES / HEADS) + token % page * ROW_BYTES;
                if (memcmp(stored, key, ROW_BYTES) != 0 ||
                    memcmp(stored + BLOCK_BYTES / HEADS / 2, key + rows_bytes, ROW_BYTES) != 0)
                        return dci_fail(BENCH_ERR_RUN, "pack: token %zu of layer %zu is not in host memory", token,
                                        layer);
        }
        return DCI_OK;
}

/* What the offload adds to work that goes on meanwhile. */
static dci_status measure_overlap(appending *a)
{
        gpubench *b = a->b;
        gpubench_time alone = {0}, both = {0};
        dci_status status = b->ops->stream_create(b->gpu, &a->side);
        if (status == DCI_OK)
                status = b->ops->event_create(b->gpu, false, &a->packed_event);
        if (status == DCI_OK)
                status = b->ops->event_create(b->gpu, false, &a->copied_event);
        if (status == DCI_OK)
                status = gpubench_on_device(b, work_layer, a, a->n_layers, &alone);
        if (status == DCI_OK) {
                memset(a->host.host, 0xff, a->host.n_bytes);
                status = gpubench_on_device(b, work_and_offload_layer, a, a->n_layers, &both);
        }
        if (status == DCI_OK)
                status = check_chunk(a);
        if (status == DCI_OK) {
                const double bytes = 2 * (double)(a->n_tokens * HEADS * ROW_BYTES);
                status = report(a, "prompt: concurrent with other work", &both, bytes, 0);
                gpubench_note(b, "work_alone_us", alone.median);
                printf("   %.1f us without: %+.1f %%\n", alone.median, 100 * (both.median / alone.median - 1));
        }
        b->ops->event_destroy(b->gpu, a->copied_event);
        b->ops->event_destroy(b->gpu, a->packed_event);
        b->ops->stream_destroy(b->gpu, a->side);
        return status;
}

static dci_status measure_chunk(gpubench *b, size_t n_tokens)
{
        const size_t mark = b->n_areas, n_layers = b->options->tiny ? 2 : CHUNK_LAYERS;
        const size_t bytes = n_layers * 2 * n_tokens * HEADS * ROW_BYTES;
        appending a = {.b = b, .n_sequences = 1, .n_layers = n_layers, .n_tokens = n_tokens};
        gpubench_time time = {0};
        DCI_TRY(gpubench_take(b, bytes, GPUBENCH_ON_DEVICE, &a.rows));
        DCI_TRY(gpubench_take(b, bytes, GPUBENCH_ON_DEVICE, &a.packed));
        DCI_TRY(gpubench_take(b, bytes, GPUBENCH_PINNED, &a.host));
        DCI_TRY(gpubench_fill(b, a.rows.device, bytes, DCI_BF16));
        memset(a.host.host, 0xff, bytes);
        DCI_TRY(gpubench_on_device(b, pack_layer, &a, n_layers, &time));
        /* read and written */
        DCI_TRY(report(&a, "prompt: packed", &time, 2 * (double)(bytes / n_layers), b->limits.memory));
        printf("   of a copy on the device\n");
        DCI_TRY(gpubench_on_device(b, offload_layer, &a, n_layers, &time));
        DCI_TRY(check_chunk(&a));
        DCI_TRY(report(&a, "prompt: packed and copied", &time, (double)(bytes / n_layers), b->limits.to_host));
        printf("   of a bulk copy to the host\n");
        DCI_TRY(measure_overlap(&a));
        gpubench_release(b, mark);
        return DCI_OK;
}

dci_status gpubench_append(gpubench *b)
{
        const bool tiny = b->options->tiny;
        const size_t n_sequences = tiny ? 2 : 16, n_layers = tiny ? 2 : 32, n_tokens = tiny ? 64 : 4096;
        printf("\nappend: 8 kv heads, d 128, bf16; decode: a step of %zu sequences in %zu layers; prompt: %zu tokens, "
               "one "
               "layer\n%-26s %9s %9s %9s %8s %8s\n",
               n_sequences, n_layers, n_tokens, "", "median us", "p10", "p90", "GB/s", "of limit");
        DCI_TRY(measure_decode(b, n_sequences, n_layers, false));
        DCI_TRY(measure_decode(b, n_sequences, n_layers, true));
        return measure_chunk(b, n_tokens);
}
