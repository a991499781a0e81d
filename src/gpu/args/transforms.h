/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Transforms of learned codes on a device: one record for each row and head. A record is a dci_gpu_transform, then
 * floats:
 *
 *      centre [dim], matrix [dim][dim]
 *
 * matrix is the transform for queries, transposed: coordinate j of a query is the sum over i of matrix[i][j] query[i].
 * Threads with neighbouring coordinates read neighbouring elements.
 *
 * A group is four coordinates, numbers 4g to 4g + 3 for group g. Its codes are in the bytes of one word: `bits` bits
 * from `shift` on of each byte of line pair `line`; three bits may be split, the highest one `high_shift` up in line
 * pair `high_line`. They stand for levels of a table, or for themselves, times 2^(7 - bits) at 5 and 6 bits. */
#ifndef DCI_GPU_ARGS_TRANSFORMS_H
#define DCI_GPU_ARGS_TRANSFORMS_H

#include <stdint.h>

#include "gpu/args/rows.h"

#define DCI_GPU_TRANSFORM_GROUPS (DCI_GPU_MAX_DIM / 4)
#define DCI_GPU_TRANSFORM_TABLE 4 /* bits at most of codes that stand for levels of a table */

typedef struct dci_gpu_transform_group {
        uint8_t line, shift, bits, by_table;
        uint8_t split, high_line, high_shift;
        uint8_t twice_zero; /* twice the level that stands for zero */
} dci_gpu_transform_group;

typedef struct dci_gpu_transform {
        int32_t by_matrix; /* 1: by `matrix`; 0: by the random rotation */
        int32_t n_groups;  /* coordinates beyond them have no codes */
        int32_t n_lines;   /* line pairs, of 128 bytes */
        int32_t reserved;
        uint8_t levels[DCI_GPU_TRANSFORM_TABLE][16]; /* of codes of 1 to 4 bits */
        dci_gpu_transform_group groups[DCI_GPU_TRANSFORM_GROUPS];
        uint8_t unused[48]; /* records are multiples of 128 bytes */
} dci_gpu_transform;

#define DCI_GPU_TRANSFORM_BYTES(dim) (sizeof(dci_gpu_transform) + ((size_t)(dim) + 1) * (size_t)(dim) * sizeof(float))

#endif
