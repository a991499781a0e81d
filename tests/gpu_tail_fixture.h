/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What suites of tails share: chunks as a device has them, of which a case says only how large they are. */
#ifndef DCI_TESTS_GPU_TAIL_FIXTURE_H
#define DCI_TESTS_GPU_TAIL_FIXTURE_H

#include "tests/gpu_fixture.h"

#define TAIL_ROOM ((size_t)24 << 20)
#define TAIL_SEQUENCES 3
#define TAIL_PIECES ((size_t)TAIL_SEQUENCES * 4)

typedef struct tail_chunks {
        size_t of_row, head_bytes, chunk_bytes;
        gpu_buffer *pieces[TAIL_PIECES], *table, *numbers;
} tail_chunks;

/* Sequences of a call have other numbers on the device. */
size_t tail_row(size_t sequence);

/* Two chunks to a piece, numbered in no order: for rows of `most` candidates. */
void tail_chunks_take(tail_chunks *c, gpu_test *t, dci_rng *rng, size_t most, size_t n_heads, size_t head_bytes);
/* A head's part of the row's chunk, in the image. */
unsigned char *tail_chunks_at(const tail_chunks *c, size_t row, size_t head, size_t chunk);
dci_gpu_chunks tail_chunks_of(const tail_chunks *c);

/* One query's output and its log sum as they were fetched, against a model's; `share` of the output's length may be off. */
void tail_close(const char *name, size_t query, size_t dim, const gpu_buffer *outs, const gpu_buffer *lses,
                const double *wanted, const double *wanted_lse, double share);

#endif
