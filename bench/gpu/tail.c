/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part tail: attention to all candidates by low-bit values, or by means of pages less 176 chosen tokens, as it follows the choice. Sets
 * rotate: layers whose codes and scores, or means, together exceed the device's L2 four times. In a step the scores were just written, and
 * lie in the L2 as far as they fit.
 */
#include "bench/gpu/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simd/convert.h"

enum { HEADS = 8, GROUP = 4, DIM = 128, SINK = 16, KEPT = 80, SIGNS = 6 * DIM, CHOSEN = 176, PAGE_SHIFT = 4 };

typedef struct tailing {
        gpubench *b;
        size_t n_sequences, n_tokens, bits, n_sets, n_chunks, head_bytes;
        bool of_means;
        dci_gpu_tail_args args; /* of means: what both have in common */
        float *scores;
        dci_gpu_tail_sums_args sums;
} tailing;

static dci_status call(void *arg, size_t set)
{
        const tailing *s = arg;
        dci_gpu_tail_args args = s->args;
        args.chunks.layer_at = set * s->n_sequences * s->n_chunks * args.chunks.chunk_bytes;
        if (s->of_means) {
                dci_gpu_tail_sums_args sums = s->sums;
                sums.chunks.layer_at = args.chunks.layer_at;
                return s->b->ops->tail_sums(s->b->gpu, s->b->stream, &sums);
        }
        args.scores = s->scores + set * s->n_sequences * HEADS * (size_t)args.max_groups * GROUP;
        return s->b->ops->tail(s->b->gpu, s->b->stream, &args);
}

/* One head's part of a chunk: any codes, scales about 1. */
static void make_head(const tailing *s, dci_rng *rng, unsigned char *out)
{
        const size_t codes = s->head_bytes - DCI_GPU_CHUNK * sizeof(uint16_t);
        for (size_t i = 0; i < codes; i++)
                out[i] = (unsigned char)dci_rng_next(rng);
        for (size_t i = 0; i < DCI_GPU_CHUNK; i++) {
                const uint16_t scale = dci_float_to_bf16(0.5f + (float)dci_rng_below(rng, 1024) / 1024);
                memcpy(out + codes + i * sizeof scale, &scale, sizeof scale);
        }
}

/* Chunks of all sets, one after the other, with repeated contents. */
static dci_status put_chunks(tailing *s, unsigned char *device)
{
        enum { SOME = 8 };
        const size_t n = s->n_sets * s->n_sequences * s->n_chunks, bytes = HEADS * s->head_bytes;
        unsigned char *host = gpubench_host(s->b, SOME * bytes);
        dci_rng rng;
        if (host == NULL)
                return DCI_ERR_MEMORY;
        dci_rng_seed(&rng, s->b->options->arms.seed);
        for (size_t i = 0; i < (size_t)SOME * HEADS; i++)
                make_head(s, &rng, host + i * s->head_bytes);
        for (size_t i = 0; i < n; i += SOME)
                DCI_TRY(gpubench_upload(s->b, device + i * bytes, host, (n - i < SOME ? n - i : SOME) * bytes));
        return DCI_OK;
}

static dci_status put_scores(tailing *s)
{
        const size_t n = s->n_sequences * HEADS * (size_t)s->args.max_groups * GROUP;
        gpubench_area area = {0};
        dci_rng rng;
        float *host = gpubench_host(s->b, n * sizeof *host);
        if (host == NULL)
                return DCI_ERR_MEMORY;
        dci_rng_seed(&rng, s->b->options->arms.seed + 1);
        for (size_t i = 0; i < n; i++)
                host[i] = 2.0f * (float)dci_rng_normal(&rng);
        DCI_TRY(gpubench_take(s->b, s->n_sets * n * sizeof *host, GPUBENCH_ON_DEVICE, &area));
        s->scores = (float *)(void *)area.device;
        for (size_t set = 0; set < s->n_sets; set++)
                DCI_TRY(gpubench_upload(s->b, s->scores + set * n, host, n * sizeof *host));
        return DCI_OK;
}

/* Rows, lengths, candidates, numbers of chunks, signs and centres. */
static dci_status put_tables(tailing *s)
{
        const size_t n = s->n_sequences, n_chunks = n * s->n_chunks;
        const float sign = 1 / sqrtf((float)DIM);
        int32_t *numbers = gpubench_host(s->b, (3 * n + n_chunks) * sizeof *numbers);
        float *floats = gpubench_host(s->b, (SIGNS + n * HEADS * DIM) * sizeof *floats);
        void *device = NULL, *of_floats = NULL;
        dci_rng rng;
        if (numbers == NULL || floats == NULL)
                return DCI_ERR_MEMORY;
        dci_rng_seed(&rng, s->b->options->arms.seed + 2);
        for (size_t i = 0; i < n; i++) {
                numbers[i] = (int32_t)i;
                numbers[n + i] = (int32_t)(s->n_tokens + KEPT);
                numbers[2 * n + i] = (int32_t)s->n_tokens;
        }
        for (size_t i = 0; i < n_chunks; i++)
                numbers[3 * n + i] = (int32_t)i;
        for (size_t i = 0; i < SIGNS; i++)
                floats[i] = dci_rng_below(&rng, 2) == 0 ? sign : -sign;
        DCI_TRY(gpubench_put(s->b, numbers, (3 * n + n_chunks) * sizeof *numbers, &device));
        DCI_TRY(gpubench_put(s->b, floats, (SIGNS + n * HEADS * DIM) * sizeof *floats, &of_floats));
        const int32_t *at = device;
        s->args.rows = at;
        s->args.n_tokens = at + n;
        s->args.n_grouped = at + 2 * n;
        s->args.chunks.numbers = at + 3 * n;
        s->args.signs = of_floats;
        s->args.centres = (const float *)of_floats + SIGNS;
        return DCI_OK;
}

static dci_status take(tailing *s, size_t n_floats, int byte, float **out)
{
        gpubench_area area = {0};
        DCI_TRY(gpubench_take(s->b, n_floats * sizeof **out, GPUBENCH_ON_DEVICE, &area));
        *out = (float *)(void *)area.device;
        return s->b->ops->fill(s->b->gpu, s->b->stream, area.device, byte, area.n_bytes);
}

/* Parts of a list: two blocks for each multiprocessor. */
static int32_t parts_of(const gpubench *b, size_t n_lists)
{
        const size_t blocks = 2 * (size_t)b->gpu->info.multiprocessors, each = blocks / n_lists;
        return (int32_t)(each < 1 ? 1 : each > DCI_GPU_MAX_PARTS ? DCI_GPU_MAX_PARTS : each);
}

static dci_status prepare(tailing *s)
{
        const size_t n_lists = s->n_sequences * HEADS, n_queries = n_lists * GROUP;
        gpubench_area chunks = {0};
        void *pieces = NULL;
        float *arrived = NULL;
        s->args = (dci_gpu_tail_args){.n_sequences = (int32_t)s->n_sequences,
                                      .n_heads = HEADS,
                                      .group = GROUP,
                                      .dim = DIM,
                                      .bits = (int32_t)s->bits,
                                      .n_parts = parts_of(s->b, n_lists),
                                      .max_groups = (int32_t)(s->n_chunks * DCI_GPU_CHUNK),
                                      .sizes = {.sink = SINK, .window = KEPT - SINK, .budget = 256, .unit = 16}};
        s->args.chunks = (dci_gpu_chunks){.stride = s->n_chunks,
                                          .chunk_bytes = HEADS * s->head_bytes,
                                          .head_bytes = (uint32_t)s->head_bytes,
                                          .piece_shift = 30};
        const size_t bytes = s->n_sets * s->n_sequences * s->n_chunks * s->args.chunks.chunk_bytes;
        DCI_TRY(gpubench_take(s->b, bytes, GPUBENCH_ON_DEVICE, &chunks));
        DCI_TRY(s->of_means ? gpubench_fill(s->b, chunks.device, bytes, DCI_BF16) : put_chunks(s, chunks.device));
        DCI_TRY(gpubench_put(s->b, &chunks.device, sizeof chunks.device, &pieces));
        if (!s->of_means)
                DCI_TRY(put_scores(s));
        DCI_TRY(put_tables(s));
        DCI_TRY(take(s, n_lists * (size_t)s->args.n_parts * GROUP * (DIM + 2), 0xff, &s->args.partial));
        DCI_TRY(take(s, n_lists, 0, &arrived));
        DCI_TRY(take(s, n_queries * DIM, 0xff, &s->args.out));
        DCI_TRY(take(s, n_queries, 0xff, &s->args.lse));
        s->args.chunks.pieces = pieces;
        s->args.arrived = (int32_t *)(void *)arrived;
        return DCI_OK;
}

/* Lists of chosen candidates, all over the sequence, in the order of their slots. */
static dci_status put_lists(tailing *s)
{
        const size_t n_lists = s->n_sequences * HEADS;
        int32_t *lists = gpubench_host(s->b, (2 * CHOSEN + 1) * n_lists * sizeof *lists);
        void *device = NULL;
        if (lists == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n_lists; i++) {
                for (size_t k = 0; k < CHOSEN; k++) {
                        const size_t candidate = (k * s->n_tokens + i * s->n_tokens / n_lists) / CHOSEN;
                        lists[i * CHOSEN + k] = SINK + (int32_t)candidate;
                        lists[(n_lists + i) * CHOSEN + k] = KEPT + (int32_t)k;
                }
                lists[2 * n_lists * CHOSEN + i] = CHOSEN;
        }
        const dci_status status = gpubench_put(s->b, lists, (2 * CHOSEN + 1) * n_lists * sizeof *lists, &device);
        s->sums.positions = device;
        s->sums.slots = s->sums.positions + n_lists * CHOSEN;
        s->sums.counts = s->sums.slots + n_lists * CHOSEN;
        return status;
}

/* What means need besides: queries, lists, and lanes of the rows that were chosen. */
static dci_status prepare_sums(tailing *s)
{
        const size_t n_lists = s->n_sequences * HEADS, lane = n_lists * (KEPT + CHOSEN) * DIM * 2;
        const dci_gpu_tail_args *args = &s->args;
        gpubench_area queries = {0}, rows = {0};
        s->sums = (dci_gpu_tail_sums_args){.n_sequences = args->n_sequences,
                                           .n_heads = HEADS,
                                           .group = GROUP,
                                           .dim = DIM,
                                           .dtype = DCI_BF16,
                                           .query_dtype = DCI_BF16,
                                           .page_shift = PAGE_SHIFT,
                                           .n_parts = args->n_parts,
                                           .max_pages = args->max_groups >> PAGE_SHIFT,
                                           .stride = CHOSEN,
                                           .scale = 1 / sqrtf((float)DIM),
                                           .values_at = (uint32_t)(s->head_bytes / 2),
                                           .sizes = args->sizes,
                                           .query_ld = DIM,
                                           .rows = args->rows,
                                           .n_tokens = args->n_tokens,
                                           .n_grouped = args->n_grouped,
                                           .chunks = args->chunks,
                                           .partial = args->partial,
                                           .arrived = args->arrived,
                                           .out = args->out,
                                           .lse = args->lse};
        DCI_TRY(gpubench_take(s->b, n_lists * GROUP * DIM * 2, GPUBENCH_ON_DEVICE, &queries));
        DCI_TRY(gpubench_take(s->b, 2 * lane, GPUBENCH_ON_DEVICE, &rows));
        DCI_TRY(gpubench_fill(s->b, queries.device, queries.n_bytes, DCI_BF16));
        DCI_TRY(gpubench_fill(s->b, rows.device, rows.n_bytes, DCI_BF16));
        s->sums.queries = queries.device;
        s->sums.lanes = (dci_gpu_lanes){.keys = rows.device,
                                        .values = rows.device + lane,
                                        .key_bytes = DIM * 2,
                                        .value_bytes = DIM * 2,
                                        .sink = SINK,
                                        .ring = KEPT - SINK,
                                        .hot = CHOSEN,
                                        .n_slots = KEPT + CHOSEN};
        return put_lists(s);
}

/* That all outputs were written, and are numbers. */
static dci_status check_output(const tailing *s)
{
        const size_t n = s->n_sequences * HEADS * GROUP;
        float *out = gpubench_host(s->b, n * (DIM + 1) * sizeof *out);
        if (out == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_download(s->b, out, s->args.out, n * DIM * sizeof *out));
        DCI_TRY(gpubench_download(s->b, out + n * DIM, s->args.lse, n * sizeof *out));
        for (size_t i = 0; i < n * (DIM + 1); i++)
                if (!isfinite(out[i]))
                        return dci_fail(BENCH_ERR_RUN, "the tail of %zu tokens: number %zu of %zu is %g", s->n_tokens,
                                        i, n * (DIM + 1), (double)out[i]);
        return DCI_OK;
}

/* bits: 0: means of pages. */
static dci_status measure(gpubench *b, size_t n_sequences, size_t n_tokens, size_t bits)
{
        const size_t mark = b->n_areas, n_rows = n_sequences * HEADS * n_tokens;
        const size_t row = bits > 0 ? DIM * bits / 8 + sizeof(uint16_t) : 2 * DIM * sizeof(uint16_t) >> PAGE_SHIFT;
        const size_t bytes = n_rows * (row + (bits > 0 ? GROUP * sizeof(float) : 0));
        tailing s = {.b = b, .n_sequences = n_sequences, .n_tokens = n_tokens, .bits = bits, .of_means = bits == 0};
        gpubench_time time = {0};
        s.n_sets = gpubench_sets(b, bytes, 4);
        s.n_chunks = (n_tokens + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        s.head_bytes = DCI_GPU_CHUNK * row;
        DCI_TRY(prepare(&s));
        if (s.of_means)
                DCI_TRY(prepare_sums(&s));
        DCI_TRY(gpubench_on_device(b, call, &s, s.n_sets, &time));
        DCI_TRY(check_output(&s));
        const double rate = (double)bytes / (1e-6 * time.median);
        json_t *shape = json_pack("{s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:i}", "batch", (json_int_t)n_sequences,
                                  "tokens", (json_int_t)n_tokens, "bits", (json_int_t)bits, "heads", HEADS, "group",
                                  GROUP, "dim", DIM, "layers", (json_int_t)s.n_sets, "parts", (int)s.args.n_parts);
        DCI_TRY(gpubench_row(b, "tail", s.of_means ? "sums" : "lowbit", shape, &time, (double)bytes,
                             b->limits.specified));
        printf("%5zu %7zu %4zu %6zu %5d %9.2f %9.2f %9.2f %7.3f %6.0f%%\n", n_sequences, n_tokens, bits, s.n_sets,
               (int)s.args.n_parts, time.median, time.p10, time.p90, rate * 1e-12,
               b->limits.specified > 0 ? 100 * rate / b->limits.specified : 0);
        gpubench_release(b, mark);
        return DCI_OK;
}

dci_status gpubench_tail(gpubench *b)
{
        static const size_t tokens[] = {8192, 36864, 131072, 262144}, widths[] = {2, 0, 4, 1}, batches[] = {1, 4};
        const bool tiny = b->options->tiny;
        printf("\ntail: attention to candidates by low-bit values (bits 0: by means of pages of 16), 32 query heads on "
               "8 kv "
               "heads, d 128;\nus of one layer, in a graph; bytes of codes and scores, or of means; share of the "
               "specified "
               "bandwidth\n%5s %7s %4s %6s %5s %9s %9s %9s %7s %7s\n",
               "batch", "tokens", "bits", "layers", "parts", "median", "p10", "p90", "TB/s", "share");
        for (size_t w = 0; w < (tiny ? 2 : 4); w++)
                for (size_t i = 0; i < (tiny ? 1 : 2); i++)
                        for (size_t j = 0; j < (tiny ? 1 : 4); j++)
                                if (i == 0 || w < 2)
                                        DCI_TRY(measure(b, batches[i], tiny ? 1024 : tokens[j], widths[w]));
        return DCI_OK;
}
