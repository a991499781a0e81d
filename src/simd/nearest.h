/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The nearest of many centres for each of many points: what builds trees and what k-means repeats.
 *
 * Nearest by squared distance, which is the highest point . centre - |centre|^2 / 2. Products are proposed by the cheapest
 * arithmetic of the CPU (bf16 tiles on AMX, else a matrix product), 32 points against all centres at a time; what their error
 * bound cannot exclude is decided by the canonical dot product, equal ones by lower centre. So the answer depends neither on how
 * points are grouped nor, from avx2 on, on the instruction set. Centre the data first: the bound is in proportion to lengths.
 */
#ifndef DCI_SIMD_NEAREST_H
#define DCI_SIMD_NEAREST_H

#include "simd/kernels.h"

#define DCI_NEAREST_POINTS 32 /* at a time */

/* Centres made ready. Memory is the caller's. */
typedef struct dci_nearest {
        const dci_kernels *kernels;
        const dci_amx_kernels *amx; /* NULL: a matrix product proposes */
        size_t n, n_padded, dim, dim_padded;
        const float *centres; /* n x dim, ld apart */
        size_t ld;
        float *offsets;   /* n_padded: |centre|^2 / 2; infinite where there is no centre */
        uint16_t *packed; /* AMX: n_padded x dim_padded */
        float longest, lost;
} dci_nearest;

/* Bytes of memory for n centres, a multiple of a cache line, and of scratch for each worker. */
size_t dci_nearest_bytes(const dci_context *context, size_t n, size_t dim);
size_t dci_nearest_scratch_bytes(const dci_nearest *nearest);

/* n, dim >= 1; finite numbers whose squared norms are below FLT_MAX / 8. The centres stay where they are, unchanged. */
void dci_nearest_prepare(const dci_context *context, const float *centres, size_t ld, size_t n, size_t dim,
                         void *memory, dci_nearest *out);

/* out[i]: the centre nearest to point i; out_score, unless NULL: point . centre - |centre|^2 / 2. */
void dci_nearest_find(const dci_nearest *nearest, const float *points, size_t ld, size_t n_points, void *scratch,
                      int32_t *out, float *out_score);

#endif
