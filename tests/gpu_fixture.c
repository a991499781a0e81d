/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/gpu_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simd/convert.h"

#define GUARD ((size_t)256)
#define GUARD_BYTE 0xa5

bool gpu_is_host(const gpu_test *t)
{
        return t->gpu->device == DCI_GPU_HOST;
}

static unsigned char *locked(gpu_test *t, void **address)
{
        void *memory = aligned_alloc(4096, t->n_bytes);
        ck_assert_ptr_nonnull(memory);
        ck_ok(t->ops->pin(t->gpu, memory, t->n_bytes, address));
        return memory;
}

void gpu_begin(gpu_test *t, size_t n_bytes)
{
        void *address;
        memset(t, 0, sizeof *t);
        t->context = test_context(1);
        t->gpu = gpu_open(t->context);
        t->ops = t->gpu->ops;
        t->n_bytes = (n_bytes + 4095) / 4096 * 4096;
        ck_ok(t->ops->stream_create(t->gpu, &t->stream));
        t->images.host = locked(t, &address);
        t->backs.host = locked(t, &address);
        t->mapped.host = locked(t, &address);
        t->mapped.device = address;
        ck_ok(t->ops->alloc(t->gpu, t->n_bytes, &address));
        t->own.device = address;
}

void gpu_end(gpu_test *t)
{
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        unsigned char *const all[] = {t->images.host, t->backs.host, t->mapped.host};
        for (size_t i = 0; i < 3; i++) {
                t->ops->unpin(t->gpu, all[i]);
                free(all[i]);
        }
        t->ops->free(t->gpu, t->own.device, t->n_bytes);
        t->ops->stream_destroy(t->gpu, t->stream);
        dci_gpu_destroy(t->gpu);
        dci_context_destroy(t->context);
}

void gpu_reset(gpu_test *t)
{
        t->n_buffers = 0;
        t->images.used = t->backs.used = t->own.used = t->mapped.used = 0;
}

static size_t cut(gpu_test *t, gpu_arena *arena, size_t n_bytes)
{
        const size_t at = arena->used;
        ck_assert_msg(at + n_bytes <= t->n_bytes, "a case needs more than %zu bytes of one kind", t->n_bytes);
        arena->used += n_bytes;
        return at;
}

static size_t whole(const gpu_buffer *b)
{
        return 2 * GUARD + (b->n_bytes + GUARD - 1) / GUARD * GUARD;
}

gpu_buffer *gpu_take(gpu_test *t, size_t n_bytes, int kind)
{
        ck_assert_uint_lt(t->n_buffers, GPU_BUFFERS);
        gpu_buffer *b = &t->buffers[t->n_buffers++];
        b->n_bytes = n_bytes;
        const size_t all = whole(b);
        gpu_arena *arena = kind == GPU_MAPPED ? &t->mapped : &t->own;
        b->image = t->images.host + cut(t, &t->images, all);
        b->back = t->backs.host + cut(t, &t->backs, all);
        b->device = arena->device + cut(t, arena, all);
        memset(b->image, GUARD_BYTE, all);
        memset(b->image + GUARD, 0xff, n_bytes);
        b->image += GUARD;
        b->back += GUARD;
        b->device += GUARD;
        return b;
}

static void send(gpu_test *t, const gpu_buffer *b)
{
        ck_ok(t->ops->copy(t->gpu, t->stream, b->device - GUARD, b->image - GUARD, whole(b)));
}

void gpu_send(gpu_test *t, const gpu_buffer *b)
{
        send(t, b);
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
}

void gpu_send_all(gpu_test *t)
{
        for (size_t i = 0; i < t->n_buffers; i++)
                send(t, &t->buffers[i]);
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
}

void gpu_fetch(gpu_test *t, const gpu_buffer *b)
{
        ck_ok(t->ops->copy(t->gpu, t->stream, b->back - GUARD, b->device - GUARD, whole(b)));
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
}

void gpu_guarded(const gpu_buffer *b, const char *what)
{
        const size_t end = whole(b) - GUARD;
        for (size_t i = 0; i < GUARD; i++)
                ck_assert_msg((b->back - GUARD)[i] == GUARD_BYTE, "%s: byte %zu before it was written", what,
                              GUARD - i);
        for (size_t i = b->n_bytes; i < end; i++)
                ck_assert_msg(b->back[i] == GUARD_BYTE, "%s: byte %zu was written, it has %zu", what, i, b->n_bytes);
}

void gpu_same(gpu_test *t, const gpu_buffer *b, const char *what)
{
        gpu_fetch(t, b);
        gpu_guarded(b, what);
        if (memcmp(b->image, b->back, b->n_bytes) == 0)
                return;
        size_t i = 0;
        while (b->image[i] == b->back[i])
                i++;
        ck_abort_msg("%s: byte %zu of %zu is %02x, expected %02x", what, i, b->n_bytes, (unsigned)b->back[i],
                     (unsigned)b->image[i]);
}

/* --- pools ---------------------------------------------------------------------------------------------------- */

void gpu_blocks_make(gpu_test *t, gpu_blocks *blocks, int kind, int32_t n_rows, int32_t n_heads, int32_t page_shift,
                     int32_t max_tokens, uint32_t row_bytes)
{
        memset(blocks, 0, sizeof *blocks);
        dci_gpu_pool *pool = &blocks->pool;
        const int32_t page = 1 << page_shift;
        blocks->n_rows = n_rows;
        blocks->n_heads = n_heads;
        blocks->page_shift = page_shift;
        blocks->blocks_of_row = (max_tokens + page - 1) / page + 1;
        const int32_t n_blocks = n_rows * blocks->blocks_of_row;
        while ((n_blocks >> pool->block_shift) >= 16)
                pool->block_shift++;
        blocks->n_pieces = (n_blocks >> pool->block_shift) + 1;
        pool->page_shift = page_shift;
        pool->key_bytes = pool->value_bytes = row_bytes;
        pool->value_at = row_bytes << page_shift;
        pool->head_bytes = 2 * row_bytes << page_shift;
        pool->block_bytes = (uint64_t)n_heads * pool->head_bytes + 64;
        pool->layer_at = pool->block_bytes << pool->block_shift;
        blocks->piece_bytes = (size_t)pool->layer_at * 2;
        ck_assert_int_le(blocks->n_pieces, 16);
        blocks->list = gpu_take(t, sizeof(void *) * 16, GPU_DEVICE);
        unsigned char **list = (unsigned char **)(void *)blocks->list->image;
        for (int32_t p = 0; p < blocks->n_pieces; p++) {
                blocks->pieces[p] = gpu_take(t, blocks->piece_bytes, kind);
                blocks->images[p] = blocks->pieces[p]->image;
                list[p] = blocks->pieces[p]->device;
        }
}

dci_gpu_pool gpu_blocks_pool(const gpu_blocks *blocks, bool image)
{
        dci_gpu_pool pool = blocks->pool;
        pool.pieces = image ? blocks->images : (unsigned char *const *)(void *)blocks->list->device;
        return pool;
}

gpu_buffer *gpu_blocks_table(gpu_test *t, const gpu_blocks *blocks, uint64_t seed)
{
        const size_t n = (size_t)blocks->n_rows * (size_t)blocks->blocks_of_row;
        gpu_buffer *table = gpu_take(t, n * sizeof(int32_t), GPU_DEVICE);
        int32_t *numbers = (int32_t *)(void *)table->image;
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        for (size_t i = 0; i < n; i++) {
                const size_t j = (size_t)dci_rng_below(&rng, i + 1);
                numbers[i] = numbers[j];
                numbers[j] = (int32_t)i;
        }
        return table;
}

unsigned char *gpu_blocks_row(const gpu_blocks *blocks, const gpu_buffer *table, int32_t row, int32_t head,
                              int32_t position, bool value)
{
        const dci_gpu_pool *pool = &blocks->pool;
        const int32_t page = 1 << blocks->page_shift, per_piece = 1 << pool->block_shift;
        const int32_t *numbers = (const int32_t *)(const void *)table->image;
        const int32_t block = numbers[row * blocks->blocks_of_row + position / page];
        unsigned char *at = blocks->images[block / per_piece];
        at += pool->layer_at + (uint64_t)(block % per_piece) * pool->block_bytes;
        at += (uint64_t)head * 2 * (uint64_t)page * pool->key_bytes; /* a head's keys, then its values */
        at += (uint64_t)((value ? page : 0) + position % page) * pool->key_bytes;
        return at;
}

/* --- numbers -------------------------------------------------------------------------------------------------- */

void gpu_numbers(dci_rng *rng, void *to, size_t n, int32_t dtype, float scale)
{
        for (size_t i = 0; i < n; i++) {
                const float x = scale * (float)test_quick_normal(rng);
                const uint16_t half = dtype == DCI_F16 ? dci_float_to_f16(x) : dci_float_to_bf16(x);
                if (dtype == DCI_F32)
                        memcpy((unsigned char *)to + i * 4, &x, 4);
                else
                        memcpy((unsigned char *)to + i * 2, &half, 2);
        }
}

float gpu_number(const void *from, size_t at, int32_t dtype)
{
        float x;
        uint16_t half;
        if (dtype == DCI_F32) {
                memcpy(&x, (const unsigned char *)from + at * 4, 4);
                return x;
        }
        memcpy(&half, (const unsigned char *)from + at * 2, 2);
        return dtype == DCI_F16 ? dci_f16_to_float(half) : dci_bf16_to_float(half);
}

int32_t gpu_pick(dci_rng *rng, const int32_t *from, size_t n)
{
        return from[dci_rng_below(rng, n)];
}

/* --- data ------------------------------------------------------------------------------------------------------------- */

void gpu_put_row(dci_rng *rng, int32_t dtype, const float *mean, size_t dim, size_t number, float stretch, float *x,
                 uint16_t *out)
{
        const bool wide = dtype == DCI_BF16;
        const float huge = wide ? 1e29f : 6e4f, tiny = wide ? 1e-26f : 1e-6f, vanishing = wide ? 1e-38f : 6e-8f;
        const bool is_odd = dci_rng_below(rng, 11) == 0;
        for (size_t j = 0; j < dim; j++) {
                const float part = fabsf(x[j]) / (1.0f + fabsf(x[j]));
                const float odd[] = {0.0f,
                                     j == number % dim ? 3.0f : 0.0f,
                                     (j % 3 == 0 ? -1.0f : 1.0f) * huge * part,
                                     tiny * part,
                                     vanishing,
                                     mean[j],
                                     stretch == 0.0f ? 1.0f : stretch * x[j],
                                     j == number % dim ? -huge : 0.0f};
                if (is_odd)
                        x[j] = odd[number % (sizeof odd / sizeof *odd)];
                out[j] = wide ? dci_float_to_bf16(x[j]) : dci_float_to_f16(x[j]);
        }
}

void gpu_draw_layout(dci_rng *rng, dci_coder *coder)
{
        const size_t dim = coder->dim, n_lines = dim * (size_t)coder->bits / 32, wide = dim / 4;
        const size_t whole = dci_rng_below(rng, n_lines);
        unsigned char groups[3 * DCI_CODE_GROUPS];
        size_t n = 0, line = 0;
        for (; line < n_lines - whole && whole + n + 8 < wide; line++)
                for (size_t shift = 0, bits; shift < 8; shift += bits, n++) {
                        bits = 1 + dci_rng_below(rng, 6);
                        bits = shift + bits > 8 ? 8 - shift : bits;
                        groups[3 * n] = (unsigned char)line;
                        groups[3 * n + 1] = (unsigned char)shift;
                        groups[3 * n + 2] = (unsigned char)bits;
                }
        ck_assert(dci_code_layout_learned(whole * 4, line, n, groups, 3, dim, 4 * dim * (size_t)coder->bits,
                                          &coder->layout));
}
