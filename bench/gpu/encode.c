/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part form: what summaries take that the device makes. At a prompt's end, for one layer: the centre and codes of all candidates, or rows
 * of pages; in a decode, for all layers in one call: usually nothing is due, and every 16 tokens a unit is.
 */
#include "bench/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "sketch/rotate.h"

enum { HEADS = 8, DIM = 128, LAYERS = 32, SINK = 16, RING = 256, UNIT = 16, CHECKED = 700 };
#define ROW_BYTES ((size_t)DIM * 2)
#define TABLE_BYTES ((size_t)DCI_GPU_CHUNK * (DIM / 2 + 2)) /* 4 bits; rows of pages take less */
#define HEAD_BYTES (2 * TABLE_BYTES)
#define CHUNK_BYTES (HEADS * HEAD_BYTES)

typedef struct form_arm {
        const char *name;
        int32_t kind, bits, value_bits, group_shift;
} form_arm;

static const form_arm arms[] = {{"codes of 4 bits", DCI_GPU_CODES, 4, 0, 0},
                                {"codes and values, 4 bits", DCI_GPU_CODES, 4, 4, 0},
                                {"codes of 1 bit", DCI_GPU_CODES, 1, 0, 0},
                                {"extremes of pages of 16", DCI_GPU_MINMAX, 0, 0, 4}};

typedef struct forming {
        gpubench *b;
        size_t n_tokens, n_chunks, n_sets, set_bytes;
        gpubench_area rows, chunks;
        float signs[2 * DCI_ROTATE_ROUNDS * DIM];
        dci_gpu_encode_prompt_args args;
        dci_gpu_encode_args step;
} forming;

static dci_status form_prompt(void *arg, size_t set)
{
        const forming *f = arg;
        dci_gpu_encode_prompt_args args = f->args;
        args.keys = f->rows.device + set * f->set_bytes;
        args.values = args.keys + f->n_tokens * HEADS * ROW_BYTES;
        return f->b->ops->encode_prompt(f->b->gpu, f->b->stream, &args);
}

static dci_status form_step(void *arg, size_t set)
{
        const forming *f = arg;
        (void)set;
        return f->b->ops->encode(f->b->gpu, f->b->stream, &f->step);
}

/* Chunks of n_rows sequences in one piece, and signs. */
static dci_status put_chunks(forming *f, size_t n_rows, size_t n_layers, dci_gpu_chunks *out, float **out_signs)
{
        const size_t n = n_rows * f->n_chunks;
        dci_rotation rotation;
        dci_rng rng;
        void *device = NULL, *signs = NULL;
        int32_t *numbers = gpubench_host(f->b, n * sizeof *numbers);
        if (numbers == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n; i++)
                numbers[i] = (int32_t)i;
        dci_rng_seed(&rng, 1);
        dci_rotation_init(&rng, DIM, f->signs, &rotation);
        DCI_TRY(gpubench_put(f->b, numbers, n * sizeof *numbers, &device));
        *out = (dci_gpu_chunks){.numbers = device,
                                .stride = f->n_chunks,
                                .chunk_bytes = CHUNK_BYTES,
                                .head_bytes = HEAD_BYTES,
                                .piece_shift = 30};
        DCI_TRY(gpubench_take(f->b, n_layers * n * CHUNK_BYTES, GPUBENCH_ON_DEVICE, &f->chunks));
        DCI_TRY(gpubench_put(f->b, &f->chunks.device, sizeof f->chunks.device, &device));
        out->pieces = device;
        DCI_TRY(gpubench_put(f->b, f->signs, sizeof f->signs, &signs));
        *out_signs = signs;
        return DCI_OK;
}

static dci_status report(gpubench *b, const char *arm, size_t n_tokens, size_t n_sequences, size_t n_layers,
                         const gpubench_time *time, double bytes)
{
        json_t *shape = json_pack("{s:I, s:I, s:I, s:i, s:i}", "tokens", (json_int_t)n_tokens, "batch",
                                  (json_int_t)n_sequences, "layers", (json_int_t)n_layers, "heads", HEADS, "dim", DIM);
        printf("%-26s %8zu %6zu %7zu %9.1f %9.1f %9.1f %9.1f\n", arm, n_tokens, n_sequences, n_layers, time->median,
               time->p10, time->p90, bytes / time->median * 1e-3);
        return gpubench_row(b, "encode", arm, shape, time, bytes, bytes > 0 ? b->limits.specified : 0);
}

/* --- a prompt ------------------------------------------------------------------------------------------------------------ */

/* What the reference makes of the first tokens of set 0. */
static dci_status compare(forming *f, const unsigned char *rows, unsigned char *model, unsigned char *made,
                          float *frames)
{
        int32_t numbers[CHECKED / DCI_GPU_CHUNK + 1];
        dci_gpu_encode_prompt_args args = f->args;
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
                numbers[i] = (int32_t)i;
        args.keys = rows;
        args.values = rows + f->n_tokens * HEADS * ROW_BYTES;
        args.chunks.pieces = &model;
        args.chunks.numbers = numbers;
        args.signs = args.value_signs = f->signs;
        args.centres = frames;
        args.value_centres = frames + HEADS * DIM;
        dci_gpu_ref_encode_prompt(&args);
        const size_t n_bytes = sizeof numbers / sizeof *numbers * CHUNK_BYTES;
        DCI_TRY(form_prompt(f, 0));
        DCI_TRY(gpubench_download(f->b, made, f->chunks.device, n_bytes));
        for (size_t i = 0; i < n_bytes; i++)
                if (model[i] != made[i])
                        return dci_fail(BENCH_ERR_RUN,
                                        "encode: byte %zu of the chunks is %02x, the reference makes %02x", i,
                                        (unsigned)made[i], (unsigned)model[i]);
        return DCI_OK;
}

static dci_status check(forming *f)
{
        const size_t n_bytes = (CHECKED / DCI_GPU_CHUNK + 1) * CHUNK_BYTES, all = f->args.n_candidates > CHECKED;
        const int32_t n_candidates = f->args.n_candidates;
        unsigned char *rows = gpubench_host(f->b, f->set_bytes), *model = gpubench_host(f->b, n_bytes),
                      *made = gpubench_host(f->b, n_bytes);
        float *frames = gpubench_host(f->b, 2 * HEADS * DIM * sizeof *frames);
        const bool had = rows != NULL && model != NULL && made != NULL && frames != NULL;
        DCI_TRY(had ? DCI_OK : dci_fail(DCI_ERR_MEMORY, "memory for a check could not be had"));
        f->args.n_candidates = all ? CHECKED : n_candidates;
        DCI_TRY(f->b->ops->fill(f->b->gpu, f->b->stream, f->chunks.device, 0, n_bytes));
        DCI_TRY(gpubench_download(f->b, rows, f->rows.device, f->set_bytes));
        if (had)
                DCI_TRY(compare(f, rows, model, made, frames));
        f->args.n_candidates = n_candidates;
        return DCI_OK;
}

static dci_status measure_prompt(gpubench *b, const form_arm *arm)
{
        const size_t mark = b->n_areas;
        forming f = {.b = b, .n_tokens = b->options->tiny ? 800 : 36000};
        gpubench_area scratch = {0};
        gpubench_time time = {0};
        float *signs = NULL;
        f.set_bytes = 2 * f.n_tokens * HEADS * ROW_BYTES;
        f.n_chunks = (f.n_tokens + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        f.n_sets = gpubench_sets(b, f.set_bytes / 2, 2);
        f.args = (dci_gpu_encode_prompt_args){.n_heads = HEADS,
                                              .dim = DIM,
                                              .kind = arm->kind,
                                              .bits = arm->bits,
                                              .dtype = DCI_BF16,
                                              .group_shift = arm->group_shift,
                                              .n_candidates = (int32_t)f.n_tokens,
                                              .value_bits = arm->value_bits,
                                              .tail_at = (int32_t)TABLE_BYTES,
                                              .key_token = HEADS * ROW_BYTES,
                                              .key_head = ROW_BYTES,
                                              .value_token = HEADS * ROW_BYTES,
                                              .value_head = ROW_BYTES};
        DCI_TRY(put_chunks(&f, 1, 1, &f.args.chunks, &signs));
        f.args.signs = f.args.value_signs = signs;
        DCI_TRY(gpubench_take(b, f.n_sets * f.set_bytes, GPUBENCH_ON_DEVICE, &f.rows));
        DCI_TRY(gpubench_fill(b, f.rows.device, f.rows.n_bytes, DCI_BF16));
        const size_t sums = 2 * HEADS * (f.n_tokens / 64 + 1) * DIM, frames = HEADS * DIM;
        DCI_TRY(gpubench_take(b, (sums + 2 * frames) * sizeof(float), GPUBENCH_ON_DEVICE, &scratch));
        f.args.sums = (float *)(void *)scratch.device;
        f.args.centres = f.args.sums + sums;
        f.args.value_centres = f.args.centres + frames;
        DCI_TRY(check(&f));
        DCI_TRY(gpubench_on_device(b, form_prompt, &f, f.n_sets, &time));
        const double rows = (double)(f.n_tokens * HEADS * ROW_BYTES);
        const double read = (arm->kind == DCI_GPU_CODES ? 2 : 1) * rows + (arm->value_bits != 0 ? 2 : 0) * rows;
        DCI_TRY(report(b, arm->name, f.n_tokens, 1, 1, &time, read));
        gpubench_release(b, mark);
        return DCI_OK;
}

/* --- a step ---------------------------------------------------------------------------------------------------------------- */

static dci_status measure_step(gpubench *b, size_t n_sequences, bool due)
{
        const size_t mark = b->n_areas, layers = b->options->tiny ? 2 : LAYERS, lists = n_sequences * HEADS;
        const size_t slots = SINK + RING, lane_bytes = lists * slots * ROW_BYTES;
        forming f = {.b = b, .n_chunks = 1};
        gpubench_area centres = {0};
        gpubench_time time = {0};
        float *signs = NULL;
        void *tables = NULL;
        int32_t *numbers = gpubench_host(b, 3 * n_sequences * sizeof *numbers); /* rows, from, to */
        if (numbers == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n_sequences; i++) {
                numbers[i] = (int32_t)i;
                numbers[n_sequences + i] = 4 * UNIT;
                numbers[2 * n_sequences + i] = (due ? 5 : 4) * UNIT;
        }
        f.step = (dci_gpu_encode_args){.n_layers = (int32_t)layers,
                                       .n_sequences = (int32_t)n_sequences,
                                       .n_heads = HEADS,
                                       .dim = DIM,
                                       .kind = DCI_GPU_CODES,
                                       .bits = 4,
                                       .dtype = DCI_BF16,
                                       .sink = SINK,
                                       .lanes = {.key_bytes = ROW_BYTES,
                                                 .value_bytes = ROW_BYTES,
                                                 .sink = SINK,
                                                 .ring = RING,
                                                 .n_slots = (int32_t)slots},
                                       .lane_step = lane_bytes,
                                       .layer_step = n_sequences * CHUNK_BYTES,
                                       .centres_step = lists * DIM};
        DCI_TRY(gpubench_put(b, numbers, 3 * n_sequences * sizeof *numbers, &tables));
        f.step.rows = tables;
        f.step.from = f.step.rows + n_sequences;
        f.step.to = f.step.from + n_sequences;
        DCI_TRY(put_chunks(&f, n_sequences, layers, &f.step.chunks, &signs));
        f.step.signs = signs;
        DCI_TRY(gpubench_take(b, layers * lane_bytes, GPUBENCH_ON_DEVICE, &f.rows));
        DCI_TRY(gpubench_fill(b, f.rows.device, f.rows.n_bytes, DCI_BF16));
        DCI_TRY(gpubench_take(b, layers * lists * DIM * sizeof(float), GPUBENCH_ON_DEVICE, &centres));
        DCI_TRY(b->ops->fill(b->gpu, b->stream, centres.device, 0, centres.n_bytes));
        f.step.lanes.keys = f.rows.device;
        f.step.centres = (const float *)(const void *)centres.device;
        DCI_TRY(gpubench_on_device(b, form_step, &f, 16, &time));
        DCI_TRY(report(b, due ? "step, a unit is due" : "step, nothing is due", due ? UNIT : 0, n_sequences, layers,
                       &time, 0));
        gpubench_release(b, mark);
        return DCI_OK;
}

dci_status gpubench_encode(gpubench *b)
{
        static const size_t batches[] = {1, 16, 64};
        const size_t n_batches = b->options->tiny ? 1 : sizeof batches / sizeof *batches;
        printf("\nform: summaries that the device makes, %d heads of d %d; us of one call, all layers of a step in "
               "one\n"
               "%-26s %8s %6s %7s %9s %9s %9s %9s\n",
               HEADS, DIM, "summaries", "tokens", "batch", "layers", "us", "p10", "p90", "GB/s");
        for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
                DCI_TRY(measure_prompt(b, &arms[i]));
        for (size_t i = 0; i < n_batches; i++) {
                DCI_TRY(measure_step(b, batches[i], false));
                DCI_TRY(measure_step(b, batches[i], true));
        }
        return DCI_OK;
}
