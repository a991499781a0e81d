/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Which form of the gather kernel is the fastest, for rows and pages scattered over locked host memory, beside copies of as many bytes.
 *
 *      gpu_gather_variants [-o ALL.csv] [-s SECONDS_PER_SIZE] [-g GIB] [-p small|huge|runtime] [-f]
 *
 *      -p  what the pool's memory is: pages as the system gives them, 2 MiB pages if it grants them, or memory of the runtime (cudaHostAlloc)
 *      -f  few forms: what the library does, and one of each kind
 *
 * One sequence of 8 kv heads, keys and values of 256 bytes. Times are of graphs that hold one gather for each of many sets of items, 128 MiB
 * and more together, so that no cache has what is asked for; medians of replays. Every form's result is compared with the host's memory.
 */
/* madvise() is the C library's, not POSIX's. */
#define _GNU_SOURCE
#include "gpu/gpu_internal.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gpu/cuda/launchers.h"

enum {
        HEADS = 8,
        ROW = 256,
        PAGE_SHIFT = 4,
        PAGE = 1 << PAGE_SHIFT,
        BLOCK_SHIFT = 10,
        MAX_SETS = 192,
        REPLAYS = 5,
        BEST = 5
};
static const size_t head_bytes = (size_t)2 * PAGE * ROW, block_bytes = (size_t)HEADS * 2 * PAGE * ROW;
static const size_t bulk_bytes = (size_t)256 << 20;

typedef struct bench {
        dci_gpu *gpu;
        const dci_gpu_ops *ops;
        void *stream, *from, *to;
        unsigned char *pool, *keys, *values, *back;
        void *pool_device, *pieces, *table, *rows, *items, *counts;
        int32_t *host_table;
        dci_gpu_item *host_items;
        size_t pool_bytes, n_blocks, lane_bytes, item_bytes;
        const char *pages; /* of the pool */
        FILE *csv;
        double seconds;
        bool few;
} bench;

/* Items of one size: n of each list in n_sets sets. */
typedef struct work {
        const char *what;
        int32_t unit_shift, n, n_sets;
        size_t bytes; /* of a set */
} work;

typedef struct result {
        dci_gpu_fetch fetch;
        double low, median, high; /* microseconds of a set */
} result;

static void must(dci_status status)
{
        if (status == DCI_OK)
                return;
        fprintf(stderr, "gpu_gather_variants: %s\n", dci_last_error());
        exit(1);
}

static void cuda(cudaError_t error)
{
        must(dci_gpu_cuda_status((int)error, "a call of the runtime"));
}

static double now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t next(uint64_t *state)
{
        uint64_t z = *state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
}

static void *device(bench *b, size_t n_bytes)
{
        void *memory;
        must(b->ops->alloc(b->gpu, n_bytes, &memory));
        return memory;
}

/* Copies from memory that is not locked wait until it has been read. */
static void *device_copy(bench *b, const void *from, size_t n_bytes)
{
        void *memory = device(b, n_bytes);
        must(b->ops->copy(b->gpu, b->stream, memory, from, n_bytes));
        must(b->ops->stream_wait(b->gpu, b->stream));
        return memory;
}

static void *host(size_t n_bytes)
{
        void *memory = aligned_alloc((size_t)2 << 20, (n_bytes + ((size_t)2 << 20) - 1) >> 21 << 21);
        if (memory == NULL) {
                fprintf(stderr, "gpu_gather_variants: no %zu bytes\n", n_bytes);
                exit(1);
        }
        return memory;
}

/* --- what is gathered -------------------------------------------------------------------------------------------------- */

/* Bytes of this process in huge pages, as far as the system tells. */
static size_t huge_bytes(void)
{
        static const char name[] = "AnonHugePages:";
        char text[128];
        size_t kib = 0;
        FILE *file = fopen("/proc/self/smaps_rollup", "r");
        while (file != NULL && fgets(text, sizeof text, file) != NULL)
                if (strncmp(text, name, sizeof name - 1) == 0)
                        kib = strtoul(text + sizeof name - 1, NULL, 10);
        if (file != NULL)
                fclose(file);
        return kib << 10;
}

static void fill_pool(bench *b)
{
        for (size_t i = 0; i < b->pool_bytes / 8; i++)
                ((uint64_t *)(void *)b->pool)[i] = i * 0x9e3779b97f4a7c15u;
}

static void take_pool(bench *b)
{
        const double begin = now();
        if (strcmp(b->pages, "runtime") == 0) {
                void *memory;
                cuda(cudaHostAlloc(&memory, b->pool_bytes, cudaHostAllocMapped | cudaHostAllocPortable));
                cuda(cudaHostGetDevicePointer(&b->pool_device, memory, 0));
                b->pool = memory;
                fill_pool(b);
        } else {
                b->pool = host(b->pool_bytes);
                if (strcmp(b->pages, "huge") == 0 && madvise(b->pool, b->pool_bytes, MADV_HUGEPAGE) != 0)
                        printf("the system grants no huge pages\n");
                fill_pool(b);
                must(b->ops->pin(b->gpu, b->pool, b->pool_bytes, &b->pool_device));
        }
        printf("%zu MiB (%s pages, %zu MiB in huge ones) locked and filled in %.2f s\n", b->pool_bytes >> 20, b->pages,
               huge_bytes() >> 20, now() - begin);
}

static void make_pool(bench *b)
{
        uint64_t state = 1;
        b->n_blocks = b->pool_bytes / block_bytes;
        take_pool(b);
        const size_t piece_bytes = block_bytes << BLOCK_SHIFT, n_pieces = b->pool_bytes / piece_bytes;
        unsigned char **pieces = host(n_pieces * sizeof *pieces);
        for (size_t i = 0; i < n_pieces; i++)
                pieces[i] = (unsigned char *)b->pool_device + i * piece_bytes;
        b->pieces = device_copy(b, pieces, n_pieces * sizeof *pieces);
        free(pieces);
        b->host_table = host(b->n_blocks * sizeof *b->host_table);
        for (size_t i = 0; i < b->n_blocks; i++) { /* Fisher and Yates */
                const size_t j = next(&state) % (i + 1);
                b->host_table[i] = b->host_table[j];
                b->host_table[j] = (int32_t)i;
        }
        b->table = device_copy(b, b->host_table, b->n_blocks * sizeof *b->host_table);
        const int32_t row = 0;
        b->rows = device_copy(b, &row, sizeof row);
}

static int by_position(const void *left, const void *right)
{
        const dci_gpu_item *l = left, *r = right;
        return (l->position > r->position) - (l->position < r->position);
}

static void make_items(bench *b, const work *w)
{
        uint64_t state = (uint64_t)w->n * 31 + (uint64_t)w->unit_shift;
        const size_t n_units = b->n_blocks << PAGE_SHIFT >> w->unit_shift;
        for (size_t list = 0; list < (size_t)w->n_sets * HEADS; list++) {
                dci_gpu_item *items = b->host_items + list * (size_t)w->n;
                for (int32_t i = 0; i < w->n; i++)
                        items[i].position = (int32_t)(next(&state) % n_units << w->unit_shift);
                qsort(items, (size_t)w->n, sizeof *items, by_position);
                for (int32_t i = 0; i < w->n; i++)
                        items[i].slot = i << w->unit_shift;
        }
        must(b->ops->copy(b->gpu, b->stream, b->items, b->host_items,
                          (size_t)w->n_sets * HEADS * (size_t)w->n * sizeof *b->host_items));
        int32_t counts[HEADS];
        for (size_t h = 0; h < HEADS; h++)
                counts[h] = w->n;
        must(b->ops->copy(b->gpu, b->stream, b->counts, counts, sizeof counts));
        must(b->ops->stream_wait(b->gpu, b->stream));
}

static int32_t slots_of(const work *w)
{
        return w->n << w->unit_shift;
}

static dci_gpu_gather_args args_of(const bench *b, const work *w, int32_t set)
{
        dci_gpu_gather_args args;
        memset(&args, 0, sizeof args);
        args.n_sequences = 1;
        args.n_heads = HEADS;
        args.unit_shift = w->unit_shift;
        args.max_items = w->n;
        args.rows = b->rows;
        args.items = (const dci_gpu_item *)b->items + (size_t)set * HEADS * (size_t)w->n;
        args.item_stride = (uint64_t)w->n;
        args.n_items = b->counts;
        args.n_items_stride = 1;
        args.pool = (dci_gpu_pool){.pieces = b->pieces,
                                   .block_bytes = block_bytes,
                                   .head_bytes = (uint32_t)head_bytes,
                                   .value_at = PAGE * ROW,
                                   .key_bytes = ROW,
                                   .value_bytes = ROW,
                                   .block_shift = BLOCK_SHIFT,
                                   .page_shift = PAGE_SHIFT};
        args.tables = (dci_gpu_tables){b->table, b->n_blocks};
        args.lanes = (dci_gpu_lanes){.keys = b->keys,
                                     .values = b->values,
                                     .key_bytes = ROW,
                                     .value_bytes = ROW,
                                     .ring = 1,
                                     .hot = slots_of(w),
                                     .n_slots = slots_of(w)};
        return args;
}

static const unsigned char *pool_at(const bench *b, size_t head, int32_t position)
{
        const size_t block = (size_t)b->host_table[position >> PAGE_SHIFT];
        return b->pool + block * block_bytes + head * head_bytes + (size_t)(position & (PAGE - 1)) * ROW;
}

/* Whether the lanes hold the last set. */
static bool is_right(bench *b, const work *w)
{
        const size_t unit = (size_t)ROW << w->unit_shift, half = w->bytes / 2;
        must(b->ops->copy(b->gpu, b->stream, b->back, b->keys, half));
        must(b->ops->copy(b->gpu, b->stream, b->back + half, b->values, half));
        must(b->ops->stream_wait(b->gpu, b->stream));
        const dci_gpu_item *items = b->host_items + (size_t)(w->n_sets - 1) * HEADS * (size_t)w->n;
        for (size_t h = 0; h < HEADS; h++)
                for (size_t i = 0; i < (size_t)w->n; i++) {
                        const unsigned char *key = pool_at(b, h, items[h * (size_t)w->n + i].position);
                        const size_t at = (h * (size_t)w->n + i) * unit;
                        if (memcmp(b->back + at, key, unit) != 0 ||
                            memcmp(b->back + half + at, key + (size_t)PAGE * ROW, unit) != 0)
                                return false;
                }
        return true;
}

/* --- times ------------------------------------------------------------------------------------------------------------- */

static int by_value(const void *left, const void *right)
{
        const double l = *(const double *)left, r = *(const double *)right;
        return (l > r) - (l < r);
}

/* Fills in microseconds of one of n parts of what run does. */
static void measure(bench *b, void (*run)(bench *, void *), void *arg, int32_t n, result *out)
{
        double times[REPLAYS];
        run(b, arg);
        must(b->ops->stream_wait(b->gpu, b->stream));
        for (int32_t r = 0; r < REPLAYS; r++) {
                must(b->ops->event_record(b->gpu, b->from, b->stream));
                run(b, arg);
                must(b->ops->event_record(b->gpu, b->to, b->stream));
                must(b->ops->event_wait(b->gpu, b->to));
                must(b->ops->event_elapsed(b->gpu, b->from, b->to, &times[r]));
                times[r] *= 1e6 / n;
        }
        qsort(times, REPLAYS, sizeof *times, by_value);
        out->low = times[0];
        out->median = times[REPLAYS / 2];
        out->high = times[REPLAYS - 1];
}

static void replay(bench *b, void *graph)
{
        must(b->ops->graph_launch(b->gpu, graph, b->stream));
}

/* False: this form cannot do this size. */
static bool measure_form(bench *b, const work *w, result *r)
{
        void *graph = NULL;
        dci_status status = DCI_OK;
        must(b->ops->fill(b->gpu, b->stream, b->keys, 0xff, b->lane_bytes));
        must(b->ops->fill(b->gpu, b->stream, b->values, 0xff, b->lane_bytes));
        must(b->ops->capture_begin(b->gpu, b->stream));
        for (int32_t s = 0; s < w->n_sets && status == DCI_OK; s++) {
                const dci_gpu_gather_args args = args_of(b, w, s);
                status = dci_gpu_cuda_gather_as(dci_gpu_cuda_of(b->gpu), b->stream, &args, &r->fetch);
        }
        must(b->ops->capture_end(b->gpu, b->stream, &graph));
        if (status == DCI_OK) {
                measure(b, replay, graph, w->n_sets, r);
                if (!is_right(b, w)) {
                        fprintf(stderr,
                                "gpu_gather_variants: form %d depth %d hint %d warps %d blocks %d is wrong for %s\n",
                                r->fetch.how, r->fetch.depth, r->fetch.hint, r->fetch.warps, r->fetch.blocks, w->what);
                        exit(1);
                }
        }
        b->ops->graph_destroy(b->gpu, graph);
        return status == DCI_OK;
}

static void line(bench *b, const work *w, const char *name, const result *r)
{
        const double rate = (double)w->bytes / r->median * 1e-3;
        printf("  %-44s %8.1f us (%.1f to %.1f) %6.1f GB/s\n", name, r->median, r->low, r->high, rate);
        if (b->csv != NULL)
                fprintf(b->csv, "%s,%s,%.2f,%.2f,%.2f,%.2f\n", w->what, name, r->low, r->median, r->high, rate);
}

/* --- copies ------------------------------------------------------------------------------------------------------------ */

typedef struct copies {
        const work *w;
        size_t n;
        void **to;
        const void **from;
        size_t *n_bytes;
        bool batched;
} copies;

static void copy_whole(bench *b, void *arg)
{
        const work *w = arg;
        for (int32_t s = 0; s < w->n_sets; s++)
                must(b->ops->copy(b->gpu, b->stream, b->keys, b->pool + (size_t)s * w->bytes, w->bytes));
}

static void copy_parts(bench *b, void *arg)
{
        const copies *c = arg;
        if (c->batched) {
                must(b->ops->copy_batch(b->gpu, b->stream, c->n, c->to, c->from, c->n_bytes));
                return;
        }
        for (size_t i = 0; i < c->n; i++)
                must(b->ops->copy(b->gpu, b->stream, c->to[i], c->from[i], c->n_bytes[i]));
}

static void measure_copies(bench *b, work *w)
{
        result r;
        void *graph = NULL;
        must(b->ops->capture_begin(b->gpu, b->stream));
        copy_whole(b, w);
        must(b->ops->capture_end(b->gpu, b->stream, &graph));
        measure(b, replay, graph, w->n_sets, &r);
        b->ops->graph_destroy(b->gpu, graph);
        line(b, w, "one copy of as many bytes, in a graph", &r);

        const size_t unit = (size_t)ROW << w->unit_shift, n = (size_t)HEADS * (size_t)w->n;
        copies c = {.w = w, .n = 2 * n};
        c.to = host(c.n * sizeof *c.to);
        c.from = host(c.n * sizeof *c.from);
        c.n_bytes = host(c.n * sizeof *c.n_bytes);
        for (size_t i = 0; i < n; i++) {
                const unsigned char *key = pool_at(b, i / (size_t)w->n, b->host_items[i].position);
                c.to[2 * i] = b->keys + i * unit;
                c.to[2 * i + 1] = b->values + i * unit;
                c.from[2 * i] = key;
                c.from[2 * i + 1] = key + (size_t)PAGE * ROW;
                c.n_bytes[2 * i] = c.n_bytes[2 * i + 1] = unit;
        }
        measure(b, copy_parts, &c, 1, &r);
        line(b, w, "a copy for each key and value run", &r);
        c.batched = true;
        measure(b, copy_parts, &c, 1, &r);
        line(b, w, "these in one batched call", &r);
        free(c.to);
        free(c.from);
        free(c.n_bytes);
}

/* --- forms ------------------------------------------------------------------------------------------------------------- */

static const int32_t forms[][3] = {
        {DCI_GPU_FETCH_REGISTERS, 1, 0}, {DCI_GPU_FETCH_REGISTERS, 1, 2}, {DCI_GPU_FETCH_REGISTERS, 2, 0},
        {DCI_GPU_FETCH_REGISTERS, 2, 1}, {DCI_GPU_FETCH_REGISTERS, 2, 2}, {DCI_GPU_FETCH_REGISTERS, 2, 3},
        {DCI_GPU_FETCH_REGISTERS, 4, 0}, {DCI_GPU_FETCH_REGISTERS, 4, 2}, {DCI_GPU_FETCH_REGISTERS, 4, 3},
        {DCI_GPU_FETCH_REGISTERS, 8, 0}, {DCI_GPU_FETCH_REGISTERS, 8, 2}, {DCI_GPU_FETCH_SHARED, 1, 0},
        {DCI_GPU_FETCH_SHARED, 4, 0},    {DCI_GPU_FETCH_SHARED, 8, 0},    {DCI_GPU_FETCH_BULK, 4, 0},
        {DCI_GPU_FETCH_BULK, 8, 0},      {DCI_GPU_FETCH_BULK, 16, 0},     {DCI_GPU_FETCH_BULK, 32, 0}};
/* Warps of a block, blocks of a list: 8 lists, so that 1, 2 and 4 blocks are 8, 16 and 32. */
static const int32_t shapes[][2] = {{8, 0}, {4, 0}, {16, 0}, {8, 1}, {16, 1}, {8, 2}, {16, 2}, {8, 4}, {8, 8}, {8, 16}};
#define N_FORMS (sizeof forms / sizeof *forms)
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static int by_median(const void *left, const void *right)
{
        return by_value(&((const result *)left)->median, &((const result *)right)->median);
}

static void name_of(const dci_gpu_fetch *f, char *out, size_t size)
{
        static const char *const hows[] = {"registers", "shared", "bulk"};
        snprintf(out, size, "%s depth %d hint %d warps %d blocks/list %d", hows[f->how], f->depth, f->hint, f->warps,
                 f->blocks);
}

/* The best of all, and the best of those that leave most of the device to others. */
static void report(bench *b, const work *w, result *all, size_t n)
{
        char name[96];
        qsort(all, n, sizeof *all, by_median);
        FILE *csv = b->csv;
        b->csv = NULL;
        for (size_t i = 0; i < n && i < BEST; i++) {
                name_of(&all[i].fetch, name, sizeof name);
                line(b, w, name, &all[i]);
        }
        for (int32_t blocks = 1; blocks <= 4; blocks *= 2)
                for (size_t i = 0; i < n; i++)
                        if (all[i].fetch.blocks == blocks) {
                                name_of(&all[i].fetch, name, sizeof name);
                                line(b, w, name, &all[i]);
                                break;
                        }
        for (int32_t how = 0; how < 3; how++)
                for (size_t i = 0; i < n; i++)
                        if (all[i].fetch.how == how && all[i].fetch.blocks == 0) {
                                name_of(&all[i].fetch, name, sizeof name);
                                line(b, w, name, &all[i]);
                                break;
                        }
        for (size_t i = 0; csv != NULL && i < n; i++) {
                name_of(&all[i].fetch, name, sizeof name);
                fprintf(csv, "%s,%s,%.2f,%.2f,%.2f,%.2f\n", w->what, name, all[i].low, all[i].median, all[i].high,
                        (double)w->bytes / all[i].median * 1e-3);
        }
        b->csv = csv;
}

static void measure_size(bench *b, int32_t unit_shift, int32_t n_all)
{
        static result all[N_FORMS * N_SHAPES];
        char what[64];
        snprintf(what, sizeof what, "%d %s", n_all, unit_shift > 0 ? "pages of 8192 bytes" : "rows of 512 bytes");
        work w = {.what = what, .unit_shift = unit_shift, .n = n_all / HEADS};
        w.bytes = (size_t)n_all * 2 * ROW << unit_shift;
        const size_t sets = ((size_t)128 << 20) / w.bytes + 1;
        w.n_sets = (int32_t)(sets > MAX_SETS ? MAX_SETS : sets < 16 ? 16 : sets);
        make_items(b, &w);
        printf("%s, %zu bytes, %d sets\n", what, w.bytes, w.n_sets);
        measure_copies(b, &w);
        size_t n = 0, left_out = 0;
        const double end = now() + b->seconds;
        for (size_t s = 0; s < N_SHAPES; s++)
                for (size_t f = 0; f < N_FORMS; f++) {
                        if (b->few && (shapes[s][1] != 0 || (f != 0 && f != 4 && f != 7 && f != 12 && f != 16)))
                                continue;
                        if (now() > end) {
                                left_out++;
                                continue;
                        }
                        all[n].fetch =
                                (dci_gpu_fetch){forms[f][0], forms[f][1], forms[f][2], shapes[s][1], shapes[s][0]};
                        n += measure_form(b, &w, &all[n]);
                }
        report(b, &w, all, n);
        if (left_out > 0)
                printf("  %zu of %zu forms were left out for want of time\n", left_out, N_FORMS * N_SHAPES);
        fflush(stdout);
}

static void copy_bulk(bench *b, void *arg)
{
        must(b->ops->copy(b->gpu, b->stream, arg, b->pool, bulk_bytes));
}

static void measure_bulk(bench *b)
{
        result r;
        const work w = {.what = "256 MiB", .bytes = bulk_bytes};
        void *to = device(b, bulk_bytes);
        measure(b, copy_bulk, to, 1, &r);
        line(b, &w, "one copy", &r);
        b->ops->free(b->gpu, to, bulk_bytes);
}

static void read_options(bench *b, int argc, char **argv)
{
        int option;
        b->seconds = 7;
        b->pages = "small";
        b->pool_bytes = (size_t)4 << 30;
        while ((option = getopt(argc, argv, "o:s:g:p:f")) != -1) {
                if (option == 's')
                        b->seconds = strtod(optarg, NULL);
                else if (option == 'g' && strtoul(optarg, NULL, 10) > 0)
                        b->pool_bytes = (size_t)strtoul(optarg, NULL, 10) << 30;
                else if (option == 'p')
                        b->pages = optarg;
                else if (option == 'f')
                        b->few = true;
                else if (option != 'o' || (b->csv = fopen(optarg, "w")) == NULL) {
                        fprintf(stderr, "gpu_gather_variants: -%c is not understood, or its file cannot be written\n",
                                option);
                        exit(2);
                }
        }
}

int main(int argc, char **argv)
{
        static const int32_t rows[] = {1408, 2816, 5632}, pages[] = {128, 512, 1024, 1408};
        bench b;
        dci_context *context;
        memset(&b, 0, sizeof b);
        read_options(&b, argc, argv);
        must(dci_context_create(NULL, &context));
        must(dci_gpu_create(context, NULL, &b.gpu));
        b.ops = b.gpu->ops;
        printf("%s, driver %d, runtime %d, memory node %d\n", b.gpu->info.name, b.gpu->info.driver, b.gpu->info.runtime,
               b.gpu->info.numa_node);
        cuda(cudaSetDevice(b.gpu->device));
        must(b.ops->stream_create(b.gpu, &b.stream));
        must(b.ops->event_create(b.gpu, true, &b.from));
        must(b.ops->event_create(b.gpu, true, &b.to));
        make_pool(&b);
        /* The whole copies write to keys alone. */
        b.lane_bytes = (size_t)pages[3] * 2 * ROW << PAGE_SHIFT;
        b.keys = device(&b, b.lane_bytes);
        b.values = device(&b, b.lane_bytes);
        b.back = host(b.lane_bytes);
        b.item_bytes = (size_t)MAX_SETS * 5632 * sizeof(dci_gpu_item);
        b.items = device(&b, b.item_bytes);
        b.counts = device(&b, HEADS * sizeof(int32_t));
        b.host_items = host(b.item_bytes);
        measure_bulk(&b);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                measure_size(&b, 0, rows[i]);
        for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
                measure_size(&b, PAGE_SHIFT, pages[i]);
        must(b.ops->stream_wait(b.gpu, b.stream));
        if (b.csv != NULL)
                fclose(b.csv);
        return 0; /* the process's end gives everything back */
}
