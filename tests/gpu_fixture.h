/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What suites of device kernels share. Every buffer exists twice: as the device has it, and as an image in host memory on which a model
 * says what must come out. Both begin as NaN in every number format, between guards that must stay as they are.
 *
 * Which device it is the environment says (gpu_open.h).
 */
#ifndef DCI_TESTS_GPU_FIXTURE_H
#define DCI_TESTS_GPU_FIXTURE_H

#include "tests/common.h"

#include "gpu/gpu_internal.h"
#include "sketch/coder.h"
#include "tests/gpu_open.h"

#define GPU_BUFFERS 64

enum { GPU_DEVICE, GPU_MAPPED }; /* the device's own memory; locked host memory that it reads in place */

typedef struct gpu_buffer {
        unsigned char *image, *device, *back; /* back: what was on the device, after gpu_fetch */
        size_t n_bytes;
} gpu_buffer;

typedef struct gpu_arena {
        unsigned char *host, *device;
        size_t used;
} gpu_arena;

typedef struct gpu_test {
        dci_context *context;
        dci_gpu *gpu;
        const dci_gpu_ops *ops;
        void *stream;
        size_t n_bytes, n_buffers;
        gpu_arena images, backs, own, mapped;
        gpu_buffer buffers[GPU_BUFFERS];
} gpu_test;

/* Opens the device, with n_bytes of room for each kind of memory. End checks that all came back. */
void gpu_begin(gpu_test *t, size_t n_bytes);
void gpu_end(gpu_test *t);
/* Defines the device that the tests of a suite share, and its setup and teardown. */
#define GPU_SUITE(n_bytes)                                                                                             \
        static gpu_test gpu;                                                                                           \
        static void setup(void)                                                                                        \
        {                                                                                                              \
                gpu_begin(&gpu, n_bytes);                                                                              \
        }                                                                                                              \
        static void teardown(void)                                                                                     \
        {                                                                                                              \
                gpu_end(&gpu);                                                                                         \
        }
bool gpu_is_host(const gpu_test *t);

/* Forgets all buffers, for the next case. */
void gpu_reset(gpu_test *t);
gpu_buffer *gpu_take(gpu_test *t, size_t n_bytes, int kind);
/* The image to the device, and what is there back; both wait. */
void gpu_send(gpu_test *t, const gpu_buffer *b);
void gpu_send_all(gpu_test *t);
void gpu_fetch(gpu_test *t, const gpu_buffer *b);
/* That the device has what the image says, guards too. */
void gpu_same(gpu_test *t, const gpu_buffer *b, const char *what);
/* That the guards are whole, after gpu_fetch. */
void gpu_guarded(const gpu_buffer *b, const char *what);

/* A row of keys as it is stored; one in eleven is out of the ordinary: parts that are huge, tiny or nothing, its mean, or its own coordinates times
 * `stretch` (0: all of them 1). */
void gpu_put_row(dci_rng *rng, int32_t dtype, const float *mean, size_t dim, size_t number, float stretch, float *x,
                 uint16_t *out);
/* Widths of learned codes as they come, in as many lines as there are bits for. */
void gpu_draw_layout(dci_rng *rng, dci_coder *coder);

/* The pointer that goes into arguments of a model or of a kernel. */
DCI_INLINE void *gpu_at(const gpu_buffer *b, bool image)
{
        return b == NULL ? NULL : image ? b->image : b->device;
}

/* The image of a buffer as numbers. */
DCI_INLINE int32_t *gpu_ints(const gpu_buffer *b)
{
        return (int32_t *)(void *)b->image;
}
DCI_INLINE float *gpu_floats(const gpu_buffer *b)
{
        return (float *)(void *)b->image;
}

/* A pool of blocks of two layers, of which the second is used, and tables that name its blocks in no order. */
typedef struct gpu_blocks {
        int32_t n_rows, n_heads, page_shift, blocks_of_row, n_pieces;
        size_t piece_bytes;
        gpu_buffer *pieces[16], *list; /* list: the table of pieces */
        unsigned char *images[16];
        dci_gpu_pool pool; /* without `pieces` */
} gpu_blocks;

void gpu_blocks_make(gpu_test *t, gpu_blocks *blocks, int kind, int32_t n_rows, int32_t n_heads, int32_t page_shift,
                     int32_t max_tokens, uint32_t row_bytes);
dci_gpu_pool gpu_blocks_pool(const gpu_blocks *blocks, bool image);
/* The table [n_rows][blocks_of_row], a permutation. */
gpu_buffer *gpu_blocks_table(gpu_test *t, const gpu_blocks *blocks, uint64_t seed);
/* The address of a key in the images, computed independently of the library; its value. */
unsigned char *gpu_blocks_row(const gpu_blocks *blocks, const gpu_buffer *table, int32_t row, int32_t head,
                              int32_t position, bool value);

/* n normal numbers as f32, f16 or bf16 at `to`. */
void gpu_numbers(dci_rng *rng, void *to, size_t n, int32_t dtype, float scale);
float gpu_number(const void *from, size_t at, int32_t dtype);
int32_t gpu_pick(dci_rng *rng, const int32_t *from, size_t n);

#endif
