/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a kernel is told that forms a prompt's learned codes. The host has fitted each head's frame; the device makes the codes, to the bit as
 * dci_coder_encode and src/kv/stages/summary_codes.c do. What it needs of a frame beyond what scores need (args/frames.h) is one record for each head:
 * a dci_gpu_writer, then floats:
 *
 *      centre [dim], worth [dim], to [dim][dim]
 *
 * `to` is the transform for rows, transposed: coordinate j of a row x is the sum over i, in ascending order, of to[i][j] (x - centre)[i].
 * Coordinates from n_coded on have no codes; what they leave over belongs to a row's residual.
 *
 * Residuals are what the host watches a frame's wear by: of some blocks of 32 candidates only, since they take longer than codes.
 */
#ifndef DCI_GPU_ARGS_LEARNED_H
#define DCI_GPU_ARGS_LEARNED_H

#include <stdint.h>

#include "gpu/args/frames.h"
#include "gpu/args/select.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DCI_GPU_LEARNED_WIDTHS 9 /* widths that tables have places for: 0 to 8 bits */

typedef struct dci_gpu_writer {
        int32_t learned; /* 0: a frame of another kind, whose codes this kernel does not make */
        int32_t n_coded, n_groups;
        int32_t nearest; /* a row's scale brings levels nearest to it; 0: it is the row's unit */
        float share;     /* of the sum of squares, in the square of a row's unit */
        /* As dci_code_levels: a deviation in units of codes, and of levels (the latter times a coordinate's worth); levels to 4 bits. */
        float to_codes[DCI_GPU_LEARNED_WIDTHS], to_levels[DCI_GPU_LEARNED_WIDTHS];
        float least[5], limits[5][8], more[5][8];
        int32_t reserved[20];
        dci_gpu_transform_group groups[DCI_GPU_TRANSFORM_GROUPS]; /* none of them split */
} dci_gpu_writer;

#define DCI_GPU_WRITER_BYTES(dim) (sizeof(dci_gpu_writer) + ((size_t)(dim) + 2) * (size_t)(dim) * sizeof(float))

/* Blocks of 32 candidates whose residuals are kept: the first ones, then one of so many. A kept one's number among them. */
#define DCI_GPU_WATCHED_FIRST 32
#define DCI_GPU_WATCHED_EVERY 8
#define DCI_GPU_IS_WATCHED(block) ((block) < DCI_GPU_WATCHED_FIRST || (block) % DCI_GPU_WATCHED_EVERY == 0)
#define DCI_GPU_WATCHED(block)                                                                                         \
        ((block) < DCI_GPU_WATCHED_FIRST                                                                               \
                 ? (block)                                                                                             \
                 : DCI_GPU_WATCHED_FIRST + ((block)-DCI_GPU_WATCHED_FIRST) / DCI_GPU_WATCHED_EVERY)
/* Residuals of a head, of n candidates. */
#define DCI_GPU_N_WATCHED(n) ((n) > 0 ? 32 * (DCI_GPU_WATCHED(((n)-1) / 32) + 1) : 0)

/**
 * Learned codes and scales of a prompt's candidates [0, n_candidates), n_candidates > 0, of one layer and row, whose keys lie in the pool, at
 * positions from `sink` on. Places of the last chunk behind them become zeros. Heads whose record is not of a learned frame stay as they are.
 * residuals: NULL, or [head][DCI_GPU_N_WATCHED(n_candidates)], in the order of candidates; what belongs to none stays as it is.
 * fused: products are added with one rounding, as the CPU's kernels do at every instruction set but plain C.
 * n_blocks: of threads, at most, for who shares the device with a model; 0: as many as there is room for.
 */
typedef struct dci_gpu_encode_learned_args {
        int32_t n_heads, dim, bits, dtype;
        int32_t n_candidates, row, sink, fused;
        int32_t n_blocks, reserved;
        dci_gpu_pool pool;
        dci_gpu_tables tables;
        dci_gpu_chunks chunks;
        const unsigned char *writers; /* [head], DCI_GPU_WRITER_BYTES(dim) apart */
        float *residuals;
} dci_gpu_encode_learned_args;

void dci_gpu_ref_encode_learned(const dci_gpu_encode_learned_args *args);

#ifdef __cplusplus
}
#endif
#endif
