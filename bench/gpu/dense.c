/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part dense: attention over all tokens, paged, in the device's memory: what a cache that keeps everything there costs at best. Layers
 * rotate, as a model's do. The blocks of a layer lie in turn, as one sequence gets them from an empty pool, or shuffled, as after much coming
 * and going.
 */
#include "bench/gpu/gpu.h"

#include <stdlib.h>

#define PIECE_BYTES ((size_t)16 << 20)
#define MAX_LAYERS 32
#define CHECKED_TOKENS 700 /* in the comparison with the reference: no multiple of a page */

typedef struct dense_shape {
        size_t n_sequences, n_tokens, dim, group, page_shift;
        dci_dtype dtype;
        bool shuffled;
} dense_shape;

typedef struct dense {
        gpubench *b;
        gpubench_area arena;
        dci_gpu_attend_args *layers;
        size_t n_layers;
} dense;

enum { HEADS = 8 };

static dci_status attend(void *arg, size_t set)
{
        const dense *d = arg;
        return d->b->ops->attend(d->b->gpu, d->b->stream, &d->layers[set]);
}

static const char *type_name(dci_dtype dtype)
{
        return dtype == DCI_BF16 ? "bf16" : "f16";
}

static double rows_bytes(const dense_shape *s)
{
        return (double)s->n_sequences * (double)s->n_tokens * HEADS * (double)s->dim * 4;
}

static int32_t *order_of(dense *d, const dense_shape *s, size_t n_blocks)
{
        int32_t *order = gpubench_order(d->b, n_blocks, 1);
        for (size_t i = 0; order != NULL && !s->shuffled && i < n_blocks; i++)
                order[i] = (int32_t)i;
        return order;
}

/* Cuts layers out of the arena. *out_pieces: addresses of all layers' pieces, n_pieces for each. */
static dci_status cut_layers(dense *d, const dense_shape *s, dci_gpu_attend_args *args, void ***out_pieces,
                             size_t *out_n_pieces, size_t *out_piece_bytes)
{
        const size_t block_bytes = HEADS * (s->dim * 4 << s->page_shift);
        const size_t blocks_each = (s->n_tokens + ((size_t)1 << s->page_shift) - 1) >> s->page_shift;
        const size_t n_blocks = blocks_each * s->n_sequences, most = d->b->options->tiny ? block_bytes : PIECE_BYTES;
        size_t shift = 0;
        while (block_bytes << (shift + 1) <= most)
                shift++;
        const size_t piece_bytes = block_bytes << shift, n_pieces = ((n_blocks - 1) >> shift) + 1;
        d->n_layers = d->arena.n_bytes / (n_pieces * piece_bytes);
        d->n_layers = d->n_layers > MAX_LAYERS ? MAX_LAYERS : d->n_layers;
        if (d->n_layers == 0)
                return dci_fail(DCI_ERR_LIMIT, "a layer of %zu bytes does not fit in the %zu bytes of --device-gib",
                                n_pieces * piece_bytes, d->arena.n_bytes);
        void **pieces = gpubench_host(d->b, d->n_layers * n_pieces * sizeof *pieces), *device = NULL;
        int32_t *order = order_of(d, s, n_blocks);
        *out_pieces = pieces;
        *out_n_pieces = n_pieces;
        *out_piece_bytes = piece_bytes;
        if (pieces == NULL || order == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < d->n_layers * n_pieces; i++)
                pieces[i] = d->arena.device + i * piece_bytes;
        DCI_TRY(gpubench_put(d->b, order, n_blocks * sizeof *order, &device));
        args->tables = (dci_gpu_tables){.blocks = device, .stride = blocks_each};
        DCI_TRY(gpubench_put(d->b, pieces, d->n_layers * n_pieces * sizeof *pieces, &device));
        args->pool = (dci_gpu_pool){.pieces = device,
                                    .block_bytes = block_bytes,
                                    .head_bytes = (uint32_t)(block_bytes / HEADS),
                                    .value_at = (uint32_t)(block_bytes / HEADS / 2),
                                    .key_bytes = (uint32_t)s->dim * 2,
                                    .value_bytes = (uint32_t)s->dim * 2,
                                    .block_shift = (int32_t)shift,
                                    .page_shift = (int32_t)s->page_shift};
        return DCI_OK;
}

/* The arguments of all layers; with `checked`, the first one is held against the reference and nothing is left. */
static dci_status prepare(dense *d, const dense_shape *s, const gpubench_heads *heads, bool checked)
{
        dci_gpu_attend_args args;
        void **pieces = NULL;
        size_t n_pieces = 0, piece_bytes = 0;
        DCI_TRY(gpubench_attend_args(d->b, heads, s->n_tokens, &args));
        DCI_TRY(cut_layers(d, s, &args, &pieces, &n_pieces, &piece_bytes));
        if (checked)
                DCI_TRY(gpubench_attend_check(d->b, heads, &args, pieces, n_pieces, piece_bytes));
        if (checked)
                return DCI_OK;
        d->layers = gpubench_host(d->b, d->n_layers * sizeof *d->layers);
        if (d->layers == NULL)
                return DCI_ERR_MEMORY;
        for (size_t l = 0; l < d->n_layers; l++) {
                d->layers[l] = args;
                d->layers[l].pool.pieces = args.pool.pieces + l * n_pieces;
        }
        return DCI_OK;
}

static gpubench_heads heads_of(const dense_shape *s)
{
        const gpubench_heads heads = {s->n_sequences, HEADS, s->group, s->dim, s->n_tokens, s->dtype};
        return heads;
}

static dci_status check(dense *d, const dense_shape *shape)
{
        dense_shape s = *shape;
        const size_t mark = d->b->n_areas, most = d->b->options->tiny ? 100 : CHECKED_TOKENS;
        s.n_sequences = s.n_sequences > 2 ? 2 : s.n_sequences;
        s.n_tokens = s.n_tokens > most ? most : s.n_tokens;
        const gpubench_heads heads = heads_of(&s);
        const dci_status status = prepare(d, &s, &heads, true);
        gpubench_release(d->b, mark);
        return status;
}

static dci_status measure(dense *d, const dense_shape *s, const char *arm)
{
        gpubench *b = d->b;
        const size_t mark = b->n_areas;
        const gpubench_heads heads = heads_of(s);
        const double bytes = rows_bytes(s);
        gpubench_time time = {0};
        DCI_TRY(check(d, s));
        DCI_TRY(prepare(d, s, &heads, false));
        DCI_TRY(gpubench_on_device(b, attend, d, d->n_layers, &time));
        DCI_TRY(gpubench_attend_finite(b, &heads, &d->layers[0]));
        json_t *shape = json_pack(
                "{s:I, s:I, s:i, s:I, s:I, s:s, s:I, s:I, s:i, s:s}", "batch", (json_int_t)s->n_sequences, "tokens",
                (json_int_t)s->n_tokens, "heads", HEADS, "group", (json_int_t)s->group, "dim", (json_int_t)s->dim,
                "dtype", type_name(s->dtype), "page", (json_int_t)1 << s->page_shift, "layers", (json_int_t)d->n_layers,
                "splits", (int)d->layers[0].n_splits, "order", s->shuffled ? "shuffled" : "in turn");
        const double rate = bytes / (1e-6 * time.median);
        DCI_TRY(gpubench_row(b, "dense", arm, shape, &time, bytes, b->limits.specified));
        gpubench_note(b, "share_of_copy", rate / b->limits.memory);
        printf("%5zu %7zu %4zu %5zu %-5s %4d %6zu %6d %9.1f %9.1f %9.1f %7.3f %6.0f%% %7.0f%%\n", s->n_sequences,
               s->n_tokens, s->dim, s->group, type_name(s->dtype), 1 << s->page_shift, d->n_layers,
               (int)d->layers[0].n_splits, time.median, time.p10, time.p90, rate * 1e-12,
               b->limits.specified > 0 ? 100 * rate / b->limits.specified : 0.0, 100 * rate / b->limits.memory);
        d->layers = NULL;
        gpubench_release(b, mark);
        return DCI_OK;
}

/* As much of the device as is asked for and free, but no more than the largest of these shapes has use for. */
static dci_status take_arena(dense *d)
{
        gpubench *b = d->b;
        const size_t most = b->options->device_gib << 30;
        size_t n_bytes = gpubench_free_bytes(b) / 10 * 9;
        n_bytes = b->options->tiny ? (size_t)8 << 20 : n_bytes > most ? most : n_bytes;
        DCI_TRY(gpubench_take(b, n_bytes, GPUBENCH_ON_DEVICE, &d->arena));
        return gpubench_fill(b, d->arena.device, n_bytes, DCI_BF16);
}

static void print_head(const char *what)
{
        printf("\ndense: %s; us of one layer\n%5s %7s %4s %5s %-5s %4s %6s %6s %9s %9s %9s %7s %7s %8s\n", what,
               "batch", "tokens", "dim", "group", "type", "page", "layers", "splits", "median", "p10", "p90", "TB/s",
               "of spec", "of copy");
}

dci_status gpubench_dense(gpubench *b)
{
        static const dense_shape shapes[] = {
                {1, 36864, 128, 4, 4, DCI_BF16, false},  {1, 131072, 128, 4, 4, DCI_BF16, false},
                {1, 262144, 128, 4, 4, DCI_BF16, false}, {4, 32768, 128, 4, 4, DCI_BF16, false},
                {16, 32768, 128, 4, 4, DCI_BF16, false}, {1, 36864, 128, 4, 6, DCI_BF16, false},
                {1, 131072, 128, 4, 6, DCI_BF16, false}, {16, 32768, 128, 4, 6, DCI_BF16, false}};
        static const dense_shape shuffled[] = {{1, 36864, 128, 4, 4, DCI_BF16, true},
                                               {1, 131072, 128, 4, 4, DCI_BF16, true},
                                               {1, 262144, 128, 4, 4, DCI_BF16, true}};
        static const dense_shape others[] = {
                {1, 131072, 64, 4, 4, DCI_BF16, false},   {1, 131072, 96, 4, 4, DCI_BF16, false},
                {1, 131072, 256, 4, 4, DCI_BF16, false},  {1, 131072, 128, 1, 4, DCI_BF16, false},
                {1, 131072, 128, 7, 4, DCI_BF16, false},  {1, 131072, 128, 8, 4, DCI_BF16, false},
                {1, 131072, 128, 16, 4, DCI_BF16, false}, {1, 131072, 128, 4, 4, DCI_F16, false},
                {1, 131072, 64, 8, 5, DCI_F16, false}};
        static const dense_shape tiny[] = {{1, 100, 128, 4, 4, DCI_BF16, false}, {2, 70, 64, 7, 3, DCI_F16, true}};
        const size_t mark = b->n_areas;
        dense d = {.b = b};
        DCI_TRY(take_arena(&d));
        print_head(b->options->tiny ? "small shapes" : "a model of 32 query heads on 8 kv heads, pages in turn");
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !b->options->tiny; i++)
                DCI_TRY(measure(&d, &shapes[i], "attend"));
        if (!b->options->tiny)
                print_head("the same, pages shuffled");
        for (size_t i = 0; i < sizeof shuffled / sizeof *shuffled && !b->options->tiny; i++)
                DCI_TRY(measure(&d, &shuffled[i], "attend, shuffled"));
        if (!b->options->tiny)
                print_head("other shapes, 8 kv heads, pages in turn");
        for (size_t i = 0; i < sizeof others / sizeof *others && !b->options->tiny; i++) {
                if (others[i].dtype != others[i > 0 ? i - 1 : 0].dtype)
                        DCI_TRY(gpubench_fill(b, d.arena.device, d.arena.n_bytes, others[i].dtype));
                DCI_TRY(measure(&d, &others[i], "attend, other shapes"));
        }
        for (size_t i = 0; i < sizeof tiny / sizeof *tiny && b->options->tiny; i++) {
                DCI_TRY(gpubench_fill(b, d.arena.device, d.arena.n_bytes, tiny[i].dtype));
                DCI_TRY(measure(&d, &tiny[i], tiny[i].shuffled ? "attend, shuffled" : "attend"));
        }
        gpubench_release(b, mark);
        return DCI_OK;
}
