/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kernels that move rows, append, pack and gather, and reside. What they leave behind is compared byte for byte with models that know no struct. */
#include <stdio.h>
#include <string.h>

#include "tests/gpu_fixture.h"

#define ROOM ((size_t)72 << 20)
GPU_SUITE(ROOM)

static const int32_t dims[] = {64, 96, 128, 256}, all_heads[] = {1, 2, 8}, shifts[] = {3, 4, 5, 6};

static const int32_t *ints_at(const gpu_buffer *b, bool image)
{
        return gpu_at(b, image);
}

/* The lanes of a case. */
typedef struct lanes {
        gpu_buffer *keys, *values;
        dci_gpu_lanes args;
        int32_t n_heads;
} lanes;

static lanes make_lanes(gpu_test *t, int32_t n_rows, int32_t n_heads, int32_t sink, int32_t ring, int32_t hot,
                        uint32_t row_bytes)
{
        lanes l = {.n_heads = n_heads};
        l.args = (dci_gpu_lanes){NULL, NULL, row_bytes, row_bytes, sink, ring, hot, sink + ring + hot};
        const size_t n_bytes = (size_t)n_rows * (size_t)n_heads * (size_t)l.args.n_slots * row_bytes;
        l.keys = gpu_take(t, n_bytes, GPU_DEVICE);
        l.values = gpu_take(t, n_bytes, GPU_DEVICE);
        return l;
}

static dci_gpu_lanes lanes_at(const lanes *l, bool image)
{
        dci_gpu_lanes args = l->args;
        args.keys = gpu_at(l->keys, image);
        args.values = gpu_at(l->values, image);
        return args;
}

static unsigned char *lane_row(const lanes *l, int32_t row, int32_t head, int32_t slot, bool value)
{
        unsigned char *base = value ? l->values->image : l->keys->image;
        const size_t lane_bytes = (size_t)l->args.n_slots * l->args.key_bytes;
        return base + ((size_t)row * (size_t)l->n_heads + (size_t)head) * lane_bytes + (size_t)slot * l->args.key_bytes;
}

/* Resident pages: some blocks have a place, in no order. */
typedef struct pages {
        gpu_buffer *places, *rows, *taken;
        const gpu_blocks *blocks;
} pages;

static pages make_pages(gpu_test *t, const gpu_blocks *blocks, dci_rng *rng)
{
        const int32_t n_blocks = blocks->n_rows * blocks->blocks_of_row;
        pages p = {.blocks = blocks};
        int32_t n = 0;
        p.places = gpu_take(t, (size_t)n_blocks * sizeof(int32_t), GPU_DEVICE);
        for (int32_t b = 0; b < n_blocks; b++)
                gpu_ints(p.places)[b] = dci_rng_below(rng, 2) == 0 ? -1 : n++;
        for (int32_t b = n_blocks - 1; b > 0; b--) {
                const int32_t c = (int32_t)dci_rng_below(rng, (uint64_t)b + 1), place = gpu_ints(p.places)[b];
                gpu_ints(p.places)[b] = gpu_ints(p.places)[c];
                gpu_ints(p.places)[c] = place;
        }
        p.rows = gpu_take(t, (size_t)(n + 1) * blocks->pool.block_bytes, GPU_DEVICE);
        p.taken = gpu_take(t, (size_t)(blocks->n_rows * blocks->n_heads) * sizeof(uint64_t), GPU_DEVICE);
        memset(p.taken->image, 0, p.taken->n_bytes);
        return p;
}

static dci_gpu_resident pages_at(const pages *p)
{
        if (p->blocks == NULL)
                return (dci_gpu_resident){.pages = NULL};
        return (dci_gpu_resident){.pages = p->rows->device,
                                  .places = ints_at(p->places, false),
                                  .taken = (uint64_t *)(void *)p->taken->device};
}

/* NULL: the page is not there. */
static unsigned char *page_row(const pages *p, const gpu_buffer *table, int32_t row, int32_t head, int32_t position,
                               bool value)
{
        if (p->blocks == NULL)
                return NULL;
        const int32_t page = 1 << p->blocks->page_shift,
                      place = gpu_ints(p->places)[gpu_ints(table)[row * p->blocks->blocks_of_row + position / page]];
        const size_t row_bytes = p->blocks->pool.key_bytes;
        if (place < 0)
                return NULL;
        return p->rows->image + (size_t)place * p->blocks->pool.block_bytes +
               ((size_t)(2 * head + value) * (size_t)page + (size_t)(position % page)) * row_bytes;
}

static void same_pages(gpu_test *t, const pages *p, const char *what)
{
        if (p->blocks == NULL)
                return;
        gpu_same(t, p->rows, what);
        gpu_same(t, p->places, what);
        gpu_same(t, p->taken, what);
}

/* --- append --------------------------------------------------------------------------------------------------- */

typedef struct append_case {
        gpu_test *t;
        int32_t n, n_rows, n_heads, row_bytes, n_tokens, dtype;
        int32_t sequences[5], first[5], n_new[5], begin[5]; /* sequences: their device rows */
        int32_t spare;                                      /* bytes between a head's rows, 0 or more */
        bool has_lanes, has_device, has_host, has_skip;
        gpu_buffer *b_rows, *b_first, *b_new, *b_begin, *keys, *values, *skip, *table, *bad;
        lanes lanes;
        gpu_blocks device, host;
        pages pages;
} append_case;

static unsigned char *new_row(const append_case *c, int32_t token, int32_t head, bool value)
{
        const size_t head_bytes = (size_t)(c->row_bytes + c->spare);
        return (value ? c->values : c->keys)->image +
               ((size_t)token * (size_t)(c->n_heads + (c->spare > 0)) + (size_t)head) * head_bytes;
}

static gpu_buffer *send_ints(gpu_test *t, const int32_t *values, size_t n)
{
        gpu_buffer *b = gpu_take(t, n * sizeof *values, GPU_MAPPED);
        memcpy(b->image, values, n * sizeof *values);
        return b;
}

static void append_inputs(append_case *c, dci_rng *rng)
{
        gpu_test *t = c->t;
        const size_t token_bytes = (size_t)(c->n_heads + (c->spare > 0)) * (size_t)(c->row_bytes + c->spare);
        c->keys = gpu_take(t, (size_t)c->n_tokens * token_bytes + 16, GPU_DEVICE);
        c->values = gpu_take(t, (size_t)c->n_tokens * token_bytes + 16, GPU_DEVICE);
        for (int32_t token = 0; token < c->n_tokens; token++)
                for (int32_t h = 0; h < c->n_heads; h++) {
                        gpu_numbers(rng, new_row(c, token, h, false), (size_t)c->row_bytes / 2, c->dtype, 1.0f);
                        gpu_numbers(rng, new_row(c, token, h, true), (size_t)c->row_bytes / 2, c->dtype, 1.0f);
                }
        c->b_rows = send_ints(t, c->sequences, (size_t)c->n);
        c->b_first = send_ints(t, c->first, (size_t)c->n);
        c->b_new = send_ints(t, c->n_new, (size_t)c->n);
        c->b_begin = send_ints(t, c->begin, (size_t)c->n);
        c->bad = gpu_take(t, (size_t)c->n_rows * sizeof(int32_t), GPU_DEVICE);
        memset(c->bad->image, 0, c->bad->n_bytes);
        if (c->has_skip) {
                c->skip = gpu_take(t, (size_t)c->n * 2 * sizeof(int32_t), GPU_MAPPED);
                for (int32_t i = 0; i < c->n; i++) { /* whole blocks only, perhaps none */
                        const int32_t shift = c->host.page_shift, page = 1 << shift;
                        const int32_t from = (c->first[i] + page - 1) >> shift,
                                      to = (c->first[i] + c->n_new[i]) >> shift;
                        gpu_ints(c->skip)[2 * i] = from;
                        gpu_ints(c->skip)[2 * i + 1] = to > from ? to - (int32_t)dci_rng_below(rng, 2) : from;
                }
        }
}

/* One of them becomes a bad row: the last element of a key, or the first of a value. */
static void spoil(append_case *c, int32_t i, bool value, bool infinite)
{
        if (c->n_new[i] == 0)
                return;
        const int32_t token = c->begin[i] + c->n_new[i] - 1;
        unsigned char *row = new_row(c, token, c->n_heads - 1, value);
        const uint16_t half = c->dtype == DCI_F16 ? (infinite ? 0xfc00 : 0x7e00) : (infinite ? 0xff80 : 0x7fc0);
        memcpy(value ? row : row + c->row_bytes - 2, &half, sizeof half);
}

static void append_model(append_case *c)
{
        for (int32_t i = 0; i < c->n; i++)
                for (int32_t h = 0; h < c->n_heads; h++)
                        for (int32_t v = 0; v < 2; v++) {
                                const int32_t row = c->sequences[i], first = c->first[i], end = first + c->n_new[i];
                                const size_t n_bytes = (size_t)c->row_bytes;
                                for (int32_t s = 0; c->has_lanes && s < c->lanes.args.sink; s++)
                                        if (s >= first && s < end)
                                                memcpy(lane_row(&c->lanes, row, h, s, v),
                                                       new_row(c, c->begin[i] + s - first, h, v), n_bytes);
                                for (int32_t s = 0; c->has_lanes && s < c->lanes.args.ring; s++) {
                                        int32_t last = end - 1; /* the latest position of this slot */
                                        while (last >= 0 && last % c->lanes.args.ring != s)
                                                last--;
                                        if (last >= first && last >= 0)
                                                memcpy(lane_row(&c->lanes, row, h, c->lanes.args.sink + s, v),
                                                       new_row(c, c->begin[i] + last - first, h, v), n_bytes);
                                }
                                for (int32_t p = first; p < end; p++) {
                                        const unsigned char *from = new_row(c, c->begin[i] + p - first, h, v);
                                        const int32_t block = p / (1 << c->host.page_shift);
                                        const bool skipped = c->has_skip && block >= gpu_ints(c->skip)[2 * i] &&
                                                             block < gpu_ints(c->skip)[2 * i + 1];
                                        if (c->has_device)
                                                memcpy(gpu_blocks_row(&c->device, c->table, row, h, p, v), from,
                                                       n_bytes);
                                        unsigned char *page = page_row(&c->pages, c->table, row, h, p, v);
                                        if (page != NULL)
                                                memcpy(page, from, n_bytes);
                                        if (c->has_host && !skipped)
                                                memcpy(gpu_blocks_row(&c->host, c->table, row, h, p, v), from, n_bytes);
                                        for (size_t j = 0; j < n_bytes / 2; j++) {
                                                const float x = gpu_number(from, j, c->dtype);
                                                if (x - x != 0.0f)
                                                        gpu_ints(c->bad)[row] = 1;
                                        }
                                }
                        }
}

static dci_gpu_append_args append_args(const append_case *c)
{
        dci_gpu_append_args args;
        memset(&args, 0, sizeof args);
        args.batch = (dci_gpu_batch){.n = c->n,
                                     .rows = ints_at(c->b_rows, false),
                                     .first = ints_at(c->b_first, false),
                                     .n_new = ints_at(c->b_new, false),
                                     .begin = ints_at(c->b_begin, false),
                                     .n_tokens = c->n_tokens};
        args.keys = c->keys->device;
        args.values = c->values->device;
        args.key_head = args.value_head = (uint64_t)(c->row_bytes + c->spare);
        args.key_token = args.value_token = args.key_head * (uint64_t)(c->n_heads + (c->spare > 0));
        args.n_heads = c->n_heads;
        args.dtype = c->dtype;
        if (c->has_lanes)
                args.lanes = lanes_at(&c->lanes, false);
        if (c->has_device)
                args.device = gpu_blocks_pool(&c->device, false);
        if (c->has_host)
                args.host = gpu_blocks_pool(&c->host, false);
        args.resident = pages_at(&c->pages);
        args.host_skip = c->has_skip ? ints_at(c->skip, false) : NULL;
        args.tables = (dci_gpu_tables){ints_at(c->table, false), (uint64_t)c->device.blocks_of_row};
        args.bad = (int32_t *)(void *)c->bad->device;
        return args;
}

static void append_compare(append_case *c, const char *what)
{
        gpu_same(c->t, c->bad, what);
        if (c->has_lanes) {
                gpu_same(c->t, c->lanes.keys, what);
                gpu_same(c->t, c->lanes.values, what);
        }
        for (int32_t p = 0; p < c->device.n_pieces; p++)
                gpu_same(c->t, c->device.pieces[p], what);
        for (int32_t p = 0; p < c->host.n_pieces; p++)
                gpu_same(c->t, c->host.pieces[p], what);
        same_pages(c->t, &c->pages, what);
}

static void append_once(gpu_test *t, uint64_t seed)
{
        static const int32_t firsts[] = {0, 0, 1, 7, 63, 64, 65, 300}, news[] = {0, 1, 1, 2, 12, 40, 130};
        dci_rng rng;
        append_case c = {.t = t};
        char what[160];
        gpu_reset(t);
        dci_rng_seed(&rng, seed);
        const int32_t dim = dims[seed % COUNT(dims)], shift = gpu_pick(&rng, shifts, COUNT(shifts));
        /* Every eighth case is a prompt that goes round the ring many times. */
        const bool prompt = seed % 8 == 7;
        c.dtype = seed / COUNT(dims) % 2 == 0 ? DCI_F16 : DCI_BF16;
        c.n_heads = gpu_pick(&rng, all_heads, prompt ? 2 : COUNT(all_heads));
        c.row_bytes = 2 * dim;
        c.n = prompt ? 1 : 1 + (int32_t)dci_rng_below(&rng, c.n_heads == 8 ? 2 : 5);
        c.n_rows = c.n + 1;
        c.spare = dci_rng_below(&rng, 2) == 0 ? 0 : 16 * (1 + (int32_t)dci_rng_below(&rng, 3));
        const int32_t places = 1 + (int32_t)dci_rng_below(&rng, 7), ring = 16 << dci_rng_below(&rng, 4);
        c.has_lanes = (places & 1) != 0;
        c.has_device = (places & 2) != 0;
        c.has_host = (places & 4) != 0;
        int32_t most = 1;
        for (int32_t i = 0; i < c.n; i++) {
                c.sequences[i] = (i + (int32_t)(seed % 3)) % c.n_rows;
                c.first[i] = gpu_pick(&rng, firsts, COUNT(firsts));
                c.n_new[i] = prompt ? 3000 : gpu_pick(&rng, news, COUNT(news));
                c.begin[i] = c.n_tokens;
                c.n_tokens += c.n_new[i];
                if (c.first[i] + c.n_new[i] > most)
                        most = c.first[i] + c.n_new[i];
        }
        if (c.has_lanes)
                c.lanes = make_lanes(t, c.n_rows, c.n_heads, (int32_t)dci_rng_below(&rng, 3) * 8, ring, 32,
                                     (uint32_t)c.row_bytes);
        gpu_blocks_make(t, &c.device, GPU_DEVICE, c.n_rows, c.n_heads, shift, most, (uint32_t)c.row_bytes);
        gpu_blocks_make(t, &c.host, GPU_MAPPED, c.n_rows, c.n_heads, shift, most, (uint32_t)c.row_bytes);
        c.has_skip = c.has_host && dci_rng_below(&rng, 2) == 0;
        c.table = gpu_blocks_table(t, &c.device, seed);
        append_inputs(&c, &rng);
        if (c.has_host && !c.has_device && seed % 3 != 0)
                c.pages = make_pages(t, &c.host, &rng);
        if (seed % 3 == 1)
                spoil(&c, (int32_t)dci_rng_below(&rng, (uint64_t)c.n), seed % 2 == 0, seed % 5 == 0);
        gpu_send_all(t);
        append_model(&c);
        const dci_gpu_append_args args = append_args(&c);
        snprintf(what, sizeof what, "append %d: %s dim %d, %d heads, %d sequences, %d tokens, places %d, ring %d",
                 (int)seed, dci_dtype_name(c.dtype), (int)dim, (int)c.n_heads, (int)c.n, (int)c.n_tokens, (int)places,
                 (int)ring);
        ck_ok(t->ops->append(t->gpu, t->stream, &args));
        append_compare(&c, what);
        ck_ok(t->ops->append(t->gpu, t->stream, &args));
        append_compare(&c, what);
}

START_TEST(new_tokens_lie_where_the_contract_says)
{
        const uint64_t n = test_short() ? 32 : 240;
        for (uint64_t seed = 0; seed < n; seed++)
                append_once(&gpu, seed);
}
END_TEST

/* --- pack ----------------------------------------------------------------------------------------------------- */

/* As blocks of the pool, or with all keys before all values and each head's rows one after another. */
static void pack_once(gpu_test *t, uint64_t seed, bool by_head)
{
        static const int32_t counts[] = {1, 2, 7, 33}, tokens[] = {0, 1, 5, 64};
        dci_rng rng;
        char what[160];
        gpu_reset(t);
        dci_rng_seed(&rng, seed);
        const int32_t dim = dims[seed % COUNT(dims)],
                      shift = by_head && seed % 2 == 0 ? 0 : gpu_pick(&rng, shifts, COUNT(shifts)), page = 1 << shift;
        append_case c = {.t = t, .dtype = DCI_BF16, .row_bytes = 2 * dim};
        c.n_heads = gpu_pick(&rng, all_heads, COUNT(all_heads));
        c.spare = dci_rng_below(&rng, 2) == 0 ? 0 : 32;
        const int32_t n_blocks = gpu_pick(&rng, counts, COUNT(counts)), token = gpu_pick(&rng, tokens, COUNT(tokens));
        c.n_tokens = token + n_blocks * page + 3;
        append_inputs(&c, &rng);
        const size_t page_bytes = (size_t)page * (size_t)c.row_bytes;
        const size_t gap = dci_rng_below(&rng, 2) == 0 ? 0 : 64, heads = (size_t)c.n_heads, blocks = (size_t)n_blocks;
        const size_t head_bytes = by_head ? blocks * page_bytes + gap : 2 * page_bytes,
                     block_bytes = by_head ? page_bytes : heads * 2 * page_bytes + gap,
                     value_at = by_head ? heads * head_bytes : page_bytes;
        gpu_buffer *out = gpu_take(t, by_head ? 2 * heads * head_bytes : blocks * block_bytes, GPU_DEVICE);
        gpu_send_all(t);
        for (int32_t b = 0; b < n_blocks; b++)
                for (int32_t s = 0; s < page; s++)
                        for (int32_t h = 0; h < c.n_heads; h++)
                                for (int32_t v = 0; v < 2; v++)
                                        memcpy(out->image + (size_t)b * block_bytes + (size_t)h * head_bytes +
                                                       (size_t)v * value_at + (size_t)s * (size_t)c.row_bytes,
                                               new_row(&c, token + b * page + s, h, v), (size_t)c.row_bytes);
        dci_gpu_pack_args args = {.keys = c.keys->device, .values = c.values->device};
        args.key_head = args.value_head = (uint64_t)(c.row_bytes + c.spare);
        args.key_token = args.value_token = args.key_head * (uint64_t)(c.n_heads + (c.spare > 0));
        args.n_heads = c.n_heads;
        args.n_blocks = n_blocks;
        args.token = token;
        args.page_shift = shift;
        args.key_bytes = args.value_bytes = (uint32_t)c.row_bytes;
        args.block_bytes = block_bytes;
        args.head_bytes = head_bytes;
        args.value_at = value_at;
        args.out = out->device;
        snprintf(what, sizeof what, "pack %d: dim %d, %d heads, %d blocks of %d from token %d", (int)seed, (int)dim,
                 (int)c.n_heads, (int)n_blocks, (int)page, (int)token);
        ck_ok(t->ops->pack(t->gpu, t->stream, &args));
        gpu_same(t, out, what);
}

START_TEST(packed_blocks_are_blocks_of_the_pool)
{
        const uint64_t n = test_short() ? 12 : 96;
        for (uint64_t seed = 0; seed < n; seed++)
                pack_once(&gpu, seed, false);
}
END_TEST

START_TEST(packed_rows_follow_each_other_by_head)
{
        const uint64_t n = test_short() ? 12 : 96;
        for (uint64_t seed = 0; seed < n; seed++)
                pack_once(&gpu, seed, true);
}
END_TEST

/* --- gather --------------------------------------------------------------------------------------------------- */

typedef struct gather_case {
        gpu_test *t;
        int32_t n, n_rows, n_heads, shift, stride, most, n_lists;
        bool shared;
        int32_t sequences[5];
        gpu_buffer *rows, *items, *n_items, *table;
        lanes lanes;
        gpu_blocks blocks;
        pages pages;
} gather_case;

/* Items of one list: units of the sequence in any order, into frames of their own. */
static int32_t fill_items(dci_gpu_item *items, int32_t stride, int32_t max_tokens, int32_t shift, int32_t first_slot,
                          dci_rng *rng)
{
        static const int32_t counts[] = {0, 1, 2, 15, 64, 200};
        const int32_t wished = gpu_pick(rng, counts, COUNT(counts)), n = wished < stride ? wished : stride;
        for (int32_t k = 0; k < n; k++) {
                items[k].position = (int32_t)dci_rng_below(rng, (uint64_t)(max_tokens >> shift)) << shift;
                items[k].slot = first_slot + (k << shift);
        }
        for (int32_t k = n - 1; k > 0; k--) {
                const int32_t j = (int32_t)dci_rng_below(rng, (uint64_t)k + 1), slot = items[k].slot;
                items[k].slot = items[j].slot;
                items[j].slot = slot;
        }
        return n;
}

static void gather_inputs(gather_case *c, int32_t max_tokens, dci_rng *rng)
{
        const int32_t n_filled = c->shared ? 1 : c->n_lists;
        c->rows = send_ints(c->t, c->sequences, (size_t)c->n);
        c->items = gpu_take(c->t, (size_t)n_filled * (size_t)c->stride * sizeof(dci_gpu_item), GPU_DEVICE);
        c->n_items = gpu_take(c->t, (size_t)n_filled * sizeof(int32_t), GPU_DEVICE);
        for (int32_t l = 0; l < n_filled; l++) {
                dci_gpu_item *items = (dci_gpu_item *)(void *)c->items->image + (size_t)l * (size_t)c->stride;
                gpu_ints(c->n_items)[l] = fill_items(items, c->stride, max_tokens, c->shift,
                                                     c->lanes.args.sink + c->lanes.args.ring, rng);
                if (gpu_ints(c->n_items)[l] > c->most)
                        c->most = gpu_ints(c->n_items)[l];
        }
        /* The last page of a sequence may be in part what nobody has written: it is copied as it is. */
        for (int32_t r = 0; r < c->n_rows; r++)
                for (int32_t h = 0; h < c->n_heads; h++)
                        for (int32_t p = 0; p < max_tokens - 3; p++)
                                for (int32_t v = 0; v < 2; v++) {
                                        gpu_numbers(rng, gpu_blocks_row(&c->blocks, c->table, r, h, p, v),
                                                    c->lanes.args.key_bytes / 2, DCI_F16, 1.0f);
                                        /* Others than in the pool, so that it shows where rows came from. */
                                        unsigned char *page = page_row(&c->pages, c->table, r, h, p, v);
                                        if (page != NULL)
                                                gpu_numbers(rng, page, c->lanes.args.key_bytes / 2, DCI_F16, 1.0f);
                                }
}

static void gather_model(gather_case *c)
{
        for (int32_t i = 0; i < c->n; i++)
                for (int32_t h = 0; h < c->n_heads; h++) {
                        const size_t l = c->shared ? 0 : (size_t)(i * c->n_heads + h);
                        const dci_gpu_item *items = (dci_gpu_item *)(void *)c->items->image + l * (size_t)c->stride;
                        for (int32_t k = 0; k < gpu_ints(c->n_items)[l]; k++)
                                for (int32_t u = 0; u < 1 << c->shift; u++)
                                        for (int32_t v = 0; v < 2; v++) {
                                                const int32_t row = c->sequences[i], position = items[k].position + u;
                                                const unsigned char *page =
                                                        page_row(&c->pages, c->table, row, h, position, v);
                                                if (page != NULL && u + v == 0)
                                                        ((uint64_t *)(void *)
                                                                 c->pages.taken->image)[row * c->n_heads + h]++;
                                                memcpy(lane_row(&c->lanes, row, h, items[k].slot + u, v),
                                                       page != NULL ? page
                                                                    : gpu_blocks_row(&c->blocks, c->table, row, h,
                                                                                     position, v),
                                                       c->lanes.args.key_bytes);
                                        }
                }
}

static void gather_once(gpu_test *t, uint64_t seed)
{
        dci_rng rng;
        char what[160];
        gather_case c = {.t = t};
        gpu_reset(t);
        dci_rng_seed(&rng, seed);
        const int32_t dim = dims[seed % COUNT(dims)], page_shift = gpu_pick(&rng, shifts, COUNT(shifts));
        const int32_t max_tokens = 8 << page_shift;
        c.shift = dci_rng_below(&rng, 2) == 0 ? 0 : page_shift;
        c.stride = c.shift == 0 ? 150 : 20;
        c.shared = seed % 4 == 3;
        c.n_heads = gpu_pick(&rng, all_heads, COUNT(all_heads));
        c.n = 1 + (int32_t)dci_rng_below(&rng, c.n_heads == 8 ? 2 : 5);
        c.n_rows = c.n + 1;
        c.n_lists = c.n * c.n_heads;
        for (int32_t i = 0; i < c.n; i++)
                c.sequences[i] = (i + 1 + (int32_t)(seed % 2)) % c.n_rows;
        c.lanes = make_lanes(t, c.n_rows, c.n_heads, 4, 16, c.stride << c.shift, (uint32_t)(2 * dim));
        gpu_blocks_make(t, &c.blocks, seed % 5 == 4 ? GPU_DEVICE : GPU_MAPPED, c.n_rows, c.n_heads, page_shift,
                        max_tokens, (uint32_t)(2 * dim));
        c.table = gpu_blocks_table(t, &c.blocks, seed);
        if (seed / 4 % 2 == 1)
                c.pages = make_pages(t, &c.blocks, &rng);
        gather_inputs(&c, max_tokens, &rng);
        gpu_send_all(t);
        gather_model(&c);
        const dci_gpu_gather_args args = {.n_sequences = c.n,
                                          .n_heads = c.n_heads,
                                          .unit_shift = c.shift,
                                          .max_items = c.most + (int32_t)dci_rng_below(&rng, 3),
                                          .rows = ints_at(c.rows, false),
                                          .items = gpu_at(c.items, false),
                                          .item_stride = c.shared ? 0 : (uint64_t)c.stride,
                                          .n_items = ints_at(c.n_items, false),
                                          .n_items_stride = c.shared ? 0 : 1,
                                          .pool = gpu_blocks_pool(&c.blocks, false),
                                          .tables = {ints_at(c.table, false), (uint64_t)c.blocks.blocks_of_row},
                                          .lanes = lanes_at(&c.lanes, false),
                                          .resident = pages_at(&c.pages)};
        snprintf(what, sizeof what, "gather %d: dim %d, %d heads, %d sequences, pages of %d, units of %d", (int)seed,
                 (int)dim, (int)c.n_heads, (int)c.n, 1 << page_shift, 1 << c.shift);
        ck_ok(t->ops->gather(t->gpu, t->stream, &args));
        gpu_same(t, c.lanes.keys, what);
        gpu_same(t, c.lanes.values, what);
        for (int32_t p = 0; p < c.blocks.n_pieces; p++)
                gpu_same(t, c.blocks.pieces[p], what);
        same_pages(t, &c.pages, what);
}

START_TEST(what_is_fetched_lies_in_its_slots)
{
        const uint64_t n = test_short() ? 16 : 160;
        for (uint64_t seed = 0; seed < n; seed++)
                gather_once(&gpu, seed);
}
END_TEST

/* Some numbers of blocks, from none to more than a block of threads has; what is not named stays. */
START_TEST(places_are_those_of_the_last_changes)
{
        enum { BLOCKS = 3000 };
        static const int32_t counts[] = {0, 1, 31, 256, 257, 1400};
        for (size_t i = 0; i < COUNT(counts); i++) {
                gpu_reset(&gpu);
                gpu_buffer *places = gpu_take(&gpu, BLOCKS * sizeof(int32_t), GPU_DEVICE),
                           *changes = gpu_take(&gpu, 2 * BLOCKS * sizeof(int32_t), GPU_MAPPED);
                for (int32_t b = 0; b < BLOCKS; b++)
                        gpu_ints(places)[b] = -1;
                for (int32_t c = 0; c < counts[i]; c++) {
                        gpu_ints(changes)[2 * c] = (c * 7 + 5) % BLOCKS;
                        gpu_ints(changes)[2 * c + 1] = c % 3 - 1;
                }
                gpu_send_all(&gpu);
                for (int32_t c = 0; c < counts[i]; c++)
                        gpu_ints(places)[gpu_ints(changes)[2 * c]] = gpu_ints(changes)[2 * c + 1];
                const dci_gpu_reside_args args = {.changes = ints_at(changes, false),
                                                  .places = (int32_t *)(void *)places->device,
                                                  .n = counts[i]};
                ck_ok(gpu.ops->reside(gpu.gpu, gpu.stream, &args));
                gpu_same(&gpu, places, "places");
                gpu_same(&gpu, changes, "changes");
        }
}
END_TEST

/* What a graph captured is done when it is launched, as often as it is, with what its pointers then show. */
START_TEST(captured_copies_run_at_each_launch)
{
        void *graph = NULL;
        gpu_buffer *from = gpu_take(&gpu, 1000, GPU_MAPPED), *to = gpu_take(&gpu, 1000, GPU_DEVICE);
        gpu_send_all(&gpu);
        ck_ok(gpu.ops->capture_begin(gpu.gpu, gpu.stream));
        ck_ok(gpu.ops->copy(gpu.gpu, gpu.stream, to->device, from->device, 1000));
        ck_ok(gpu.ops->fill(gpu.gpu, gpu.stream, to->device, 3, 10));
        ck_ok(gpu.ops->capture_end(gpu.gpu, gpu.stream, &graph));
        gpu_same(&gpu, to, "a capture runs nothing");
        for (int round = 1; round <= 2; round++) {
                memset(from->image, round, 1000);
                memset(to->image, round, 1000);
                memset(to->image, 3, 10);
                gpu_send(&gpu, from);
                ck_ok(gpu.ops->graph_launch(gpu.gpu, graph, gpu.stream));
                gpu_same(&gpu, to, "a launch");
        }
        gpu.ops->graph_destroy(gpu.gpu, graph);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_kernels");
        TCase *tcase = test_case_with(suite, "gpu_kernels", 120, setup, teardown);
        tcase_add_test(tcase, new_tokens_lie_where_the_contract_says);
        tcase_add_test(tcase, packed_blocks_are_blocks_of_the_pool);
        tcase_add_test(tcase, packed_rows_follow_each_other_by_head);
        tcase_add_test(tcase, what_is_fetched_lies_in_its_slots);
        tcase_add_test(tcase, places_are_those_of_the_last_changes);
        tcase_add_test(tcase, captured_copies_run_at_each_launch);
        return test_main(suite);
}
