/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include <math.h>
#include <string.h>

#include "tests/gpu_tail_fixture.h"

#define LAYER_AT 640 /* of the layer in a piece */

size_t tail_row(size_t sequence)
{
        return (sequence + 2) % TAIL_SEQUENCES;
}

void tail_chunks_take(tail_chunks *c, gpu_test *t, dci_rng *rng, size_t most, size_t n_heads, size_t head_bytes)
{
        c->of_row = (most + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        c->head_bytes = head_bytes;
        c->chunk_bytes = n_heads * head_bytes + 256;
        const size_t n = TAIL_SEQUENCES * c->of_row, n_pieces = (n + 1) / 2;
        c->numbers = gpu_take(t, n * sizeof(int32_t), GPU_DEVICE);
        int32_t *numbers = (int32_t *)(void *)c->numbers->image;
        for (size_t i = 0; i < n; i++) {
                const size_t j = (size_t)dci_rng_below(rng, i + 1);
                numbers[i] = numbers[j];
                numbers[j] = (int32_t)i;
        }
        ck_assert_uint_le(n_pieces, TAIL_PIECES);
        c->table = gpu_take(t, n_pieces * sizeof(void *), GPU_DEVICE);
        for (size_t p = 0; p < n_pieces; p++) {
                c->pieces[p] = gpu_take(t, LAYER_AT + 2 * c->chunk_bytes, GPU_DEVICE);
                memcpy(c->table->image + p * sizeof(void *), &c->pieces[p]->device, sizeof c->pieces[p]->device);
        }
}

unsigned char *tail_chunks_at(const tail_chunks *c, size_t row, size_t head, size_t chunk)
{
        const size_t number = (size_t)((const int32_t *)(const void *)c->numbers->image)[row * c->of_row + chunk];
        return c->pieces[number / 2]->image + LAYER_AT + number % 2 * c->chunk_bytes + head * c->head_bytes;
}

dci_gpu_chunks tail_chunks_of(const tail_chunks *c)
{
        return (dci_gpu_chunks){.pieces = (unsigned char *const *)gpu_at(c->table, false),
                                .numbers = gpu_at(c->numbers, false),
                                .stride = c->of_row,
                                .layer_at = LAYER_AT,
                                .chunk_bytes = c->chunk_bytes,
                                .head_bytes = (uint32_t)c->head_bytes,
                                .piece_shift = 1};
}

void tail_close(const char *name, size_t query, size_t dim, const gpu_buffer *outs, const gpu_buffer *lses,
                const double *wanted, const double *wanted_lse, double share)
{
        const float *out = (const float *)(const void *)outs->back + query * dim;
        const double lse = (double)((const float *)(const void *)lses->back)[query], model = wanted_lse[query];
        double off = 0, size = 0;
        for (size_t j = 0; j < dim; j++) {
                const double value = wanted[query * dim + j];
                off += ((double)out[j] - value) * ((double)out[j] - value);
                size += value * value;
        }
        /* Written so that NaN fails. */
        if (!(sqrt(off) <= share * sqrt(size)))
                ck_abort_msg("%s, query %zu: off by %g of %g", name, query, sqrt(off), sqrt(size));
        if (model == -INFINITY ? lse != -INFINITY : !(fabs(lse - model) <= 1e-5 * (1 + fabs(model))))
                ck_abort_msg("%s, query %zu: lse %.9g, expected %.9g", name, query, lse, model);
}
