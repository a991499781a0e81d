/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Random rotations of any dimension in O(dim log dim): signs, then a Hadamard transform of as many leading coordinates
 * as are a power of two, then the same for the trailing ones, some rounds of it. No padding: a rotated row has as many
 * coordinates. After: Ailon and Chazelle 2009 (the fast Johnson-Lindenstrauss transform). */
#ifndef DCI_SKETCH_ROTATE_H
#define DCI_SKETCH_ROTATE_H

#include "core/internal.h"

#define DCI_ROTATE_ROUNDS 3

typedef struct dci_rotation {
        size_t dim, part; /* the largest power of two that is not above dim */
        float *signs;     /* 2 * DCI_ROTATE_ROUNDS x part: +-1 / sqrt(part); the caller's memory */
} dci_rotation;

/* Bytes of the signs. */
size_t dci_rotation_bytes(size_t dim);
/* Signs drawn from the generator, into the caller's memory. dim >= 1. */
void dci_rotation_init(dci_rng *rng, size_t dim, void *memory, dci_rotation *out);

/* In place; spare: room for another row. Plain additions in a fixed order: the same bits at every instruction set. */
void dci_rotate(const dci_rotation *rotation, float *row, float *spare);
void dci_rotate_back(const dci_rotation *rotation, float *row, float *spare);

#endif
