/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part gather: rows and pages of a pool in host memory, fetched into lanes on the device by a kernel that reads them in place, and in the
 * ways that papers have. What is fetched is drawn again for each set. The pool is cut in two ways:
 *  - as a dci_kv has it: each piece holds a slice of every layer, 8 MiB with 32 layers; layers take turns, and a fetch is of one layer;
 *  - as one layer that fills all of it: what a fetch loses when the device must translate addresses from everywhere.
 */
#include "bench/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, PAGE_SHIFT = 4, SINK = 16, RING = 256, MAX_PIECES = 1024 };
enum { LAYERS = 32, TINY_LAYERS = 2, LAYER_TOKENS = 36864 };
#define TINY_PIECE ((size_t)512 << 10)
#define SETS_BYTES ((size_t)512 << 20) /* fetched by all sets together, at most */
#define SLOW_SAMPLES 12                /* of ways that take milliseconds */

typedef struct gathering {
        gpubench *b;
        size_t dim, n_pieces, piece_bytes, n_layers;
        size_t n_blocks, n_tokens; /* of a layer */
        gpubench_area pieces[MAX_PIECES];
        int32_t *order; /* of the blocks, as in the table: all layers have the same */
        dci_gpu_pool pool;
        dci_gpu_tables tables;
        /* of a shape */
        size_t n_units, unit_shift, per_list, n_sets;
        dci_gpu_item *items; /* on the host: [set][head][per_list] */
        dci_gpu_item *device_items;
        int32_t *n_items, *rows;
        dci_gpu_lanes lanes;
        gpubench_area staging,
                flat; /* what the host collects in, and where copies go that keep the order of the pool */
        void **to;    /* of copies, set after set */
        const void **from;
        size_t *sizes;
} gathering;

static size_t unit_bytes(const gathering *g)
{
        return g->dim * 4 << g->unit_shift;
}

/* --- the pool --------------------------------------------------------------------------------------------------------------- */

static size_t block_bytes(const gathering *g)
{
        return HEADS * (g->dim * 4 << PAGE_SHIFT);
}

/* Numbers that differ everywhere, so that a row in the wrong place shows. */
static void write_piece(void *arg, size_t piece, size_t worker)
{
        const gathering *g = arg;
        uint64_t *out = (uint64_t *)g->pieces[piece].host;
        const size_t n = g->piece_bytes / sizeof *out;
        (void)worker;
        for (size_t i = 0; i < n; i++)
                out[i] = (piece * n + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static dci_status take_pool(gathering *g)
{
        gpubench *b = g->b;
        const size_t wanted = b->options->tiny ? 2 * TINY_PIECE : b->options->pool_gib << 30;
        g->piece_bytes = b->options->tiny ? TINY_PIECE : b->options->piece_mib << 20;
        for (size_t i = 0; i < wanted / g->piece_bytes && i < MAX_PIECES; i++, g->n_pieces++)
                DCI_TRY(gpubench_take(b, g->piece_bytes, GPUBENCH_PINNED, &g->pieces[i]));
        const dci_region region = {.context = b->context,
                                   .n_tasks = g->n_pieces,
                                   .n_workers = dci_workers_for(b->context, g->n_pieces, SIZE_MAX),
                                   .fn = write_piece,
                                   .arg = g};
        return dci_parallel(&region);
}

/* What a piece has of one layer. */
static size_t slice_bytes(const gathering *g)
{
        return g->piece_bytes / g->n_layers;
}

/* The pool as one of rows of dim. */
static dci_status shape_pool(gathering *g, size_t dim, size_t n_layers)
{
        void *pieces[MAX_PIECES], *device = NULL;
        g->dim = dim;
        g->n_layers = n_layers;
        g->n_blocks = g->n_pieces * (slice_bytes(g) / block_bytes(g));
        if (n_layers > 1 && g->n_blocks > LAYER_TOKENS >> PAGE_SHIFT)
                g->n_blocks = LAYER_TOKENS >> PAGE_SHIFT;
        g->n_tokens = g->n_blocks << PAGE_SHIFT;
        for (size_t i = 0; i < g->n_pieces; i++)
                pieces[i] = g->pieces[i].device;
        g->order = gpubench_order(g->b, g->n_blocks, dim);
        DCI_TRY(g->order != NULL ? gpubench_put(g->b, pieces, g->n_pieces * sizeof *pieces, &device) : DCI_ERR_MEMORY);
        g->pool.pieces = device;
        DCI_TRY(gpubench_put(g->b, g->order, g->n_blocks * sizeof *g->order, &device));
        g->tables.blocks = device;
        g->tables.stride = g->n_blocks;
        g->pool.block_bytes = block_bytes(g);
        g->pool.head_bytes = (uint32_t)(block_bytes(g) / HEADS);
        g->pool.value_at = g->pool.head_bytes / 2;
        g->pool.key_bytes = g->pool.value_bytes = (uint32_t)dim * 2;
        g->pool.page_shift = PAGE_SHIFT;
        g->pool.block_shift = 0;
        while (block_bytes(g) << g->pool.block_shift < slice_bytes(g))
                g->pool.block_shift++;
        return DCI_OK;
}

/* Where the key of unit i lies in host memory, counted through all sets; its value is value_at after it, less the way the key has from its
 * page's begin. Sets take the layers in turn. */
static const unsigned char *key_at(const gathering *g, size_t i)
{
        const size_t layer = i / g->n_units % g->n_layers, head = i / g->per_list % HEADS;
        const int32_t position = g->items[i].position;
        const size_t block = (size_t)g->order[position >> PAGE_SHIFT];
        const size_t mask = ((size_t)1 << g->pool.block_shift) - 1, slot = (size_t)position & ((1 << PAGE_SHIFT) - 1);
        return g->pieces[block >> g->pool.block_shift].host + layer * slice_bytes(g) +
               (block & mask) * g->pool.block_bytes + head * g->pool.head_bytes + slot * g->pool.key_bytes;
}

/* --- a shape ------------------------------------------------------------------------------------------------------------------ */

static int compare_items(const void *a, const void *b)
{
        const int32_t x = ((const dci_gpu_item *)a)->position, y = ((const dci_gpu_item *)b)->position;
        return (x > y) - (x < y);
}

static int32_t draw(const gathering *g, dci_rng *rng)
{
        return (int32_t)(dci_rng_below(rng, g->n_tokens >> g->unit_shift) << g->unit_shift);
}

/* Lists as plans have them: ascending, each unit once. A layer has more units than a list. */
static void draw_items(gathering *g, uint64_t seed)
{
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        for (size_t list = 0; list < g->n_sets * HEADS; list++) {
                dci_gpu_item *items = g->items + list * g->per_list;
                bool again = true;
                for (size_t i = 0; i < g->per_list; i++)
                        items[i].position = draw(g, &rng);
                while (again) {
                        again = false;
                        qsort(items, g->per_list, sizeof *items, compare_items);
                        for (size_t i = 1; i < g->per_list; i++) {
                                if (items[i].position != items[i - 1].position)
                                        continue;
                                items[i - 1].position = draw(g, &rng);
                                again = true;
                        }
                }
                for (size_t i = 0; i < g->per_list; i++)
                        items[i].slot = SINK + RING + (int32_t)(i << g->unit_shift);
        }
}

static dci_status take_lists(gathering *g)
{
        const size_t n = g->n_sets * g->n_units;
        g->items = gpubench_host(g->b, n * sizeof *g->items);
        g->to = gpubench_host(g->b, 2 * n * sizeof *g->to);
        g->from = gpubench_host(g->b, 2 * n * sizeof *g->from);
        g->sizes = gpubench_host(g->b, 2 * n * sizeof *g->sizes);
        if (g->items == NULL || g->to == NULL || g->from == NULL || g->sizes == NULL)
                return DCI_ERR_MEMORY;
        return DCI_OK;
}

static dci_status take_shape(gathering *g)
{
        gpubench *b = g->b;
        gpubench_area keys = {0}, values = {0};
        const size_t bytes = g->n_units * unit_bytes(g), n_items = g->n_sets * g->n_units;
        const int32_t zero = 0;
        int32_t counts[HEADS];
        void *device = NULL;
        g->lanes = (dci_gpu_lanes){.key_bytes = (uint32_t)g->dim * 2,
                                   .value_bytes = (uint32_t)g->dim * 2,
                                   .sink = SINK,
                                   .ring = RING,
                                   .hot = (int32_t)(g->per_list << g->unit_shift)};
        g->lanes.n_slots = SINK + RING + g->lanes.hot;
        const size_t lane_bytes = HEADS * (size_t)g->lanes.n_slots * g->dim * 2;
        for (size_t h = 0; h < HEADS; h++)
                counts[h] = (int32_t)g->per_list;
        draw_items(g, g->n_units + g->dim);
        DCI_TRY(gpubench_put(b, g->items, n_items * sizeof *g->items, &device));
        g->device_items = device;
        DCI_TRY(gpubench_put(b, counts, sizeof counts, &device));
        g->n_items = device;
        DCI_TRY(gpubench_put(b, &zero, sizeof zero, &device));
        g->rows = device;
        DCI_TRY(gpubench_take(b, lane_bytes, GPUBENCH_ON_DEVICE, &keys));
        DCI_TRY(gpubench_take(b, lane_bytes, GPUBENCH_ON_DEVICE, &values));
        DCI_TRY(gpubench_take(b, bytes, GPUBENCH_ON_DEVICE, &g->flat));
        DCI_TRY(gpubench_take(b, bytes, GPUBENCH_PINNED, &g->staging));
        g->lanes.keys = keys.device;
        g->lanes.values = values.device;
        DCI_TRY(b->ops->fill(b->gpu, b->stream, keys.device, 0xff, lane_bytes));
        return b->ops->fill(b->gpu, b->stream, values.device, 0xff, lane_bytes);
}

/* --- ways --------------------------------------------------------------------------------------------------------------------- */

static dci_status by_kernel(void *arg, size_t set)
{
        const gathering *g = arg;
        dci_gpu_gather_args args = {.n_sequences = 1,
                                    .n_heads = HEADS,
                                    .unit_shift = (int32_t)g->unit_shift,
                                    .max_items = (int32_t)g->per_list,
                                    .rows = g->rows,
                                    .items = g->device_items + set * g->n_units,
                                    .item_stride = g->per_list,
                                    .n_items = g->n_items,
                                    .n_items_stride = 1,
                                    .pool = g->pool,
                                    .tables = g->tables,
                                    .lanes = g->lanes};
        args.pool.layer_at = set % g->n_layers * slice_bytes(g);
        return g->b->ops->gather(g->b->gpu, g->b->stream, &args);
}

/* As many contiguous bytes. */
static dci_status by_one_copy(void *arg, size_t set)
{
        const gathering *g = arg;
        const size_t bytes = g->n_units * unit_bytes(g), room = g->piece_bytes - bytes;
        const unsigned char *from = g->pieces[set % g->n_pieces].host + (set * bytes % (room + 1)) / 512 * 512;
        return g->b->ops->copy(g->b->gpu, g->b->stream, g->flat.device, from, bytes);
}

static size_t copies_of_set(const gathering *g)
{
        return g->unit_shift > 0 ? g->n_units : 2 * g->n_units;
}

/* All sets' copies, before any is timed. Whole pages, one copy each, into a buffer in their order; rows as a key and a value into
 * their slots. */
static void list_copies(gathering *g)
{
        size_t n = 0;
        const size_t row = g->dim * 2;
        for (size_t i = 0; i < g->n_sets * g->n_units; i++) {
                const size_t h = i / g->per_list % HEADS;
                const unsigned char *key = key_at(g, i);
                const size_t at = (h * (size_t)g->lanes.n_slots + (size_t)g->items[i].slot) * row;
                g->from[n] = key;
                g->to[n] = g->unit_shift > 0 ? g->flat.device + i % g->n_units * unit_bytes(g) : g->lanes.keys + at;
                g->sizes[n++] = g->unit_shift > 0 ? unit_bytes(g) : row;
                if (g->unit_shift > 0)
                        continue;
                g->from[n] = key + g->pool.value_at;
                g->to[n] = g->lanes.values + at;
                g->sizes[n++] = row;
        }
}

static dci_status by_batch(void *arg, size_t set)
{
        const gathering *g = arg;
        const size_t n = copies_of_set(g), at = set * n;
        return g->b->ops->copy_batch(g->b->gpu, g->b->stream, n, g->to + at, g->from + at, g->sizes + at);
}

static dci_status by_copies(void *arg, size_t set)
{
        const gathering *g = arg;
        const size_t n = copies_of_set(g), at = set * n;
        for (size_t i = at; i < at + n; i++)
                DCI_TRY(g->b->ops->copy(g->b->gpu, g->b->stream, g->to[i], g->from[i], g->sizes[i]));
        return DCI_OK;
}

enum { UNITS_OF_A_TASK = 32 };

typedef struct collecting {
        gathering *g;
        size_t set;
} collecting;

static void collect(void *arg, size_t task, size_t worker)
{
        const collecting *c = arg;
        const gathering *g = c->g;
        const size_t half = unit_bytes(g) / 2, end = (task + 1) * UNITS_OF_A_TASK;
        (void)worker;
        for (size_t i = task * UNITS_OF_A_TASK; i < end && i < g->n_units; i++) {
                const unsigned char *key = key_at(g, c->set * g->n_units + i);
                unsigned char *out = g->staging.host + i * unit_bytes(g);
                memcpy(out, key, half);
                memcpy(out + half, key + g->pool.value_at, half);
        }
}

static dci_status by_staging(void *arg, size_t set)
{
        gathering *g = arg;
        collecting c = {g, set};
        const size_t n_tasks = (g->n_units + UNITS_OF_A_TASK - 1) / UNITS_OF_A_TASK;
        const dci_region region = {.context = g->b->context,
                                   .n_tasks = n_tasks,
                                   .n_workers = dci_workers_for(g->b->context, n_tasks, SIZE_MAX),
                                   .fn = collect,
                                   .arg = &c};
        DCI_TRY(dci_parallel(&region));
        return g->b->ops->copy(g->b->gpu, g->b->stream, g->flat.device, g->staging.host, g->n_units * unit_bytes(g));
}

/* --- figures ------------------------------------------------------------------------------------------------------------------ */

/* What the kernel has brought of one set, byte by byte. */
static dci_status check(gathering *g, size_t set)
{
        const size_t lane_bytes = HEADS * (size_t)g->lanes.n_slots * g->dim * 2, run = unit_bytes(g) / 2;
        unsigned char *keys = gpubench_host(g->b, 2 * lane_bytes);
        if (keys == NULL)
                return DCI_ERR_MEMORY;
        const unsigned char *values = keys + lane_bytes;
        DCI_TRY(by_kernel(g, set));
        DCI_TRY(gpubench_download(g->b, keys, g->lanes.keys, lane_bytes));
        DCI_TRY(gpubench_download(g->b, keys + lane_bytes, g->lanes.values, lane_bytes));
        for (size_t i = 0; i < g->n_units; i++) {
                const dci_gpu_item item = g->items[set * g->n_units + i];
                const unsigned char *key = key_at(g, set * g->n_units + i);
                const size_t at = (i / g->per_list * (size_t)g->lanes.n_slots + (size_t)item.slot) * g->dim * 2;
                if (memcmp(keys + at, key, run) != 0 || memcmp(values + at, key + g->pool.value_at, run) != 0)
                        return dci_fail(BENCH_ERR_RUN, "gather: position %d of head %zu is not what lies in slot %d",
                                        (int)item.position, i / g->per_list, (int)item.slot);
        }
        return DCI_OK;
}

static dci_status report(gathering *g, const char *arm, const gpubench_time *time, double copy_us, bool by_host)
{
        const double bytes = (double)(g->n_units * unit_bytes(g)), bus = g->b->limits.to_device;
        json_t *shape = json_pack("{s:I, s:I, s:I, s:s, s:s, s:I, s:I}", "units", (json_int_t)g->n_units, "unit_bytes",
                                  (json_int_t)unit_bytes(g), "dim", (json_int_t)g->dim, "clock",
                                  by_host ? "host" : "device", "layout", g->n_layers > 1 ? "layers" : "scattered",
                                  "layers", (json_int_t)g->n_layers, "tokens", (json_int_t)g->n_tokens);
        const dci_status status = gpubench_row(g->b, "gather", arm, shape, time, bytes, bus);
        gpubench_note(g->b, "share_of_copy", copy_us / time->median);
        printf("%6zu x %5zu B  %-16s %9.1f %9.1f %9.1f %8.1f %7.0f%% %9.0f%%\n", g->n_units, unit_bytes(g), arm,
               time->median, time->p10, time->p90, bytes / time->median * 1e-3,
               100 * bytes / (1e-6 * time->median) / bus, 100 * copy_us / time->median);
        return status;
}

typedef struct gather_way {
        const char *name;
        gpubench_call call;
        size_t samples; /* by the host's clock, at most; 0: by the device's */
} gather_way;

static dci_status measure_ways(gathering *g)
{
        const size_t many = g->b->options->reps * g->n_sets;
        const gather_way ways[] = {{"copy", by_one_copy, 0},
                                   {"kernel", by_kernel, 0},
                                   {"kernel, waited", by_kernel, many},
                                   {"staged", by_staging, many},
                                   {"batched", by_batch, SLOW_SAMPLES},
                                   {"copies", by_copies, SLOW_SAMPLES}};
        /* What translation of addresses costs shows in the kernel. */
        const size_t n_ways = g->n_layers > 1 ? sizeof ways / sizeof *ways : 2;
        double copy_us = 0;
        for (size_t i = 0; i < n_ways; i++) {
                gpubench_time time = {0};
                const bool by_host = ways[i].samples > 0;
                DCI_TRY(by_host ? gpubench_on_host(g->b, ways[i].call, g, g->n_sets, ways[i].samples, &time)
                                : gpubench_on_device(g->b, ways[i].call, g, g->n_sets, &time));
                copy_us = i == 0 ? time.median : copy_us;
                DCI_TRY(report(g, ways[i].name, &time, copy_us, by_host));
        }
        return DCI_OK;
}

static dci_status measure_shape(gathering *g, size_t n_units, size_t unit_shift)
{
        gpubench *b = g->b;
        const size_t mark = b->n_areas;
        g->n_units = n_units;
        g->unit_shift = unit_shift;
        g->per_list = n_units / HEADS;
        g->n_sets = SETS_BYTES / (n_units * unit_bytes(g));
        g->n_sets = b->options->tiny ? 2 : g->n_sets < 32 ? 32 : g->n_sets > 64 ? 64 : g->n_sets;
        DCI_TRY(g->n_tokens >> unit_shift >= g->per_list
                        ? take_lists(g)
                        : dci_fail(DCI_ERR_LIMIT, "a layer of %zu tokens has too few for lists of %zu", g->n_tokens,
                                   g->per_list));
        DCI_TRY(take_shape(g));
        list_copies(g);
        DCI_TRY(check(g, g->n_sets - 1));
        DCI_TRY(measure_ways(g));
        gpubench_release(b, mark);
        return DCI_OK;
}

typedef struct gather_shape {
        size_t dim, n_units, unit_shift;
} gather_shape;

static dci_status measure_shapes(gathering *g, const gather_shape *shapes, size_t n_shapes, size_t n_layers)
{
        gpubench *b = g->b;
        printf("%-16s %-16s %9s %9s %9s %8s %8s %10s\n", "fetched", "way", "median", "p10", "p90", "GB/s", "of bulk",
               "of copy");
        for (size_t i = 0; i < n_shapes; i++) {
                const size_t mark = b->n_areas;
                DCI_TRY(shape_pool(g, shapes[i].dim, n_layers));
                DCI_TRY(measure_shape(g, shapes[i].n_units, shapes[i].unit_shift));
                gpubench_release(b, mark);
        }
        return DCI_OK;
}

dci_status gpubench_gather(gpubench *b)
{
        static const gather_shape layered[] = {{128, 1408, 0},          {128, 2816, 0},
                                               {128, 5632, 0},          {128, 128, PAGE_SHIFT},
                                               {128, 512, PAGE_SHIFT},  {128, 1024, PAGE_SHIFT},
                                               {128, 1408, PAGE_SHIFT}, {64, 1408, 0},
                                               {64, 2816, 0},           {64, 5632, 0}};
        static const gather_shape scattered[] = {{128, 2816, 0}, {128, 1024, PAGE_SHIFT}};
        static const gather_shape tiny[] = {{128, 64, 0}, {128, 16, PAGE_SHIFT}, {64, 64, 0}};
        const size_t mark = b->n_areas, n_layers = b->options->tiny ? TINY_LAYERS : LAYERS;
        gathering g = {.b = b};
        DCI_TRY(take_pool(&g));
        printf("\ngather: rows and pages of one layer of %zu, that lie as in a dci_kv; us of one call\n", n_layers);
        if (b->options->tiny)
                DCI_TRY(measure_shapes(&g, tiny, sizeof tiny / sizeof *tiny, n_layers));
        else
                DCI_TRY(measure_shapes(&g, layered, sizeof layered / sizeof *layered, n_layers));
        printf("\ngather, what translation of addresses costs: scattered over all %zu MiB of locked host "
               "memory; us "
               "of one call\n",
               g.n_pieces * g.piece_bytes >> 20);
        if (b->options->tiny)
                DCI_TRY(measure_shapes(&g, tiny, 2, 1));
        else
                DCI_TRY(measure_shapes(&g, scattered, sizeof scattered / sizeof *scattered, 1));
        gpubench_release(b, mark);
        return DCI_OK;
}
