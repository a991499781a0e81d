/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of the kernel that encodes a prompt's keys with learned codes. The host has fitted each head's transform;
 * the device makes the codes, to the bit as dci_coder_encode and src/kv/stages/summary_codes.c do. It needs one record
 * for each head besides the one that scores need (args/transforms.h): a dci_gpu_writer, then floats:
 *
 *      centre [dim], worth [dim], to [dim][dim]
 *
 * `to` is the transform for rows, transposed: coordinate j of a row x is the sum over i, in ascending order, of
 * to[i][j] (x - centre)[i]. Coordinates from n_coded on have no codes; they belong to a row's residual.
 *
 * The host measures the drift of a transform by residuals: of some blocks of 32 candidates, as they cost more than
 * codes. */
#ifndef DCI_GPU_ARGS_LEARNED_H
#define DCI_GPU_ARGS_LEARNED_H

#include <stdint.h>

#include "gpu/args/select.h"
#include "gpu/args/transforms.h"

#define DCI_GPU_LEARNED_WIDTHS 9 /* widths that tables have places for: 0 to 8 bits */

typedef struct dci_gpu_writer {
        int32_t learned; /* 0: a transform of another kind, which this kernel does not use */
        int32_t n_coded, n_groups;
        int32_t nearest; /* a row's scale brings levels nearest to it; 0: it is the row's unit */
        float share;     /* of the sum of squares, in the square of a row's unit */
        /* As dci_code_levels: a deviation in units of codes, and of levels (times a coordinate's worth); levels to 4
         * bits. */
        float to_codes[DCI_GPU_LEARNED_WIDTHS], to_levels[DCI_GPU_LEARNED_WIDTHS];
        float least[5], limits[5][8], more[5][8];
        int32_t reserved[20];
        dci_gpu_transform_group groups[DCI_GPU_TRANSFORM_GROUPS]; /* none of them split */
} dci_gpu_writer;

#define DCI_GPU_WRITER_BYTES(dim) (sizeof(dci_gpu_writer) + ((size_t)(dim) + 2) * (size_t)(dim) * sizeof(float))

/* Blocks of 32 candidates whose residuals are kept: the first ones, then one of so many; the number of a kept one. */
#define DCI_GPU_WATCHED_FIRST 32
#define DCI_GPU_WATCHED_EVERY 8
#define DCI_GPU_IS_WATCHED(block) ((block) < DCI_GPU_WATCHED_FIRST || (block) % DCI_GPU_WATCHED_EVERY == 0)
#define DCI_GPU_WATCHED(block)                                                                                         \
        ((block) < DCI_GPU_WATCHED_FIRST                                                                               \
                 ? (block)                                                                                             \
                 : DCI_GPU_WATCHED_FIRST + ((block)-DCI_GPU_WATCHED_FIRST) / DCI_GPU_WATCHED_EVERY)
/* Residuals of a head, of n candidates. */
#define DCI_GPU_N_WATCHED(n) ((n) > 0 ? 32 * (DCI_GPU_WATCHED(((n)-1) / 32) + 1) : 0)

/** Writes learned codes and scales of a prompt's candidates [0, n_candidates), n_candidates > 0, of one layer and row,
 * whose keys are in the pool, at positions from `sink` on. The rest of the last chunk becomes zeros. Heads without a
 * learned transform are not written. residuals: NULL, or [head][DCI_GPU_N_WATCHED(n_candidates)], in the order of
 * candidates; other elements are not written. fused: products are added with one rounding, as the CPU's kernels do at
 * every instruction set but plain C. n_blocks: most thread blocks, for callers that share it; 0: as many as fit. */
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

#endif
