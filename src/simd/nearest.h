/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The nearest of many centres for each of many points: what builds trees and what k-means repeats.
 *
 * Nearest by squared distance, which is the highest point . centre - |centre|^2 / 2. Products are proposed by the
 * cheapest arithmetic of the CPU (bf16 tiles on AMX, else float products), a few points against all centres at a time;
 * what their error bound cannot exclude is decided by the canonical dot product, equal ones by lower centre. So the
 * answer depends neither on how points are grouped nor, from avx2 on, on the instruction set; and a point that one
 * centre alone is left for needs no decision. Centre the data first: the bound is in proportion to lengths.
 *
 * So is the order that the products give: where centres are closer together than 2^-12 of their lengths or so, it is
 * rounding that decides among them. by_distance lets the canonical |point - centre|^2 decide, which takes no such
 * difference. */
#ifndef DCI_SIMD_NEAREST_H
#define DCI_SIMD_NEAREST_H

#include "simd/kernels.h"

/* Centres made ready; they may change one by one. Memory is the caller's. */
typedef struct dci_nearest {
        const dci_kernels *kernels;
        const dci_amx_kernels *amx;          /* NULL: float products propose */
        size_t n, capacity, dim, dim_padded; /* capacity: a multiple of 32 */
        const float *centres;                /* n x dim, ld apart */
        size_t ld;
        float *offsets;   /* taken from products: |centre|^2 / 2 or what was put; infinite where there is no centre */
        uint16_t *packed; /* AMX: capacity x dim_padded, finite numbers everywhere */
        float longest, lost; /* of all centres that there have been: |centre|, and what rounding took away */
        float highest;       /* of all offsets that there have been: |offset| */
        bool by_distance;    /* set after init or prepare, with offsets of put alone: |point - centre|^2 decides */
} dci_nearest;

/* Points made ready once to be compared with centres often. Memory is the caller's. */
typedef struct dci_nearest_points {
        const dci_kernels *kernels;
        const dci_amx_kernels *amx;
        const float *points;
        size_t ld, n, dim, dim_padded;
        float *lengths, *lost; /* from above: |point|, and what rounding took away */
        void *packed; /* blocks of 32: groups of 16 bf16 points as AMX wants them, or packed columns of floats */
} dci_nearest_points;

/* Bytes of memory for `capacity` centres, a multiple of a cache line, and of scratch for each worker. */
size_t dci_nearest_bytes(const dci_context *context, size_t capacity, size_t dim);
size_t dci_nearest_scratch_bytes(const dci_context *context, size_t dim);

/* No centres yet, room for `capacity` of them. */
void dci_nearest_init(const dci_context *context, const float *centres, size_t ld, size_t capacity, size_t dim,
                      void *memory, dci_nearest *out);
/* Centre i < n is new, or another one. */
void dci_nearest_put(dci_nearest *nearest, size_t i);
/* There are n centres now: the first of them. Those beyond the former n must be put. */
void dci_nearest_resize(dci_nearest *nearest, size_t n);
/* The same centres in larger memory. */
void dci_nearest_move(const dci_context *context, const dci_nearest *nearest, const float *centres, size_t capacity,
                      void *memory, dci_nearest *out);

/* All in one. n, dim >= 1; finite numbers whose squared norms are below FLT_MAX / 8. The centres stay where they are,
 * unchanged. */
void dci_nearest_prepare(const dci_context *context, const float *centres, size_t ld, size_t n, size_t dim,
                         void *memory, dci_nearest *out);

/* The same as put, with another offset than |centre|^2 / 2: nearest is then the highest point . centre - offset. */
void dci_nearest_put_offset(dci_nearest *nearest, size_t i, float offset);

/* Centre i is the nearest of no point until it is put again. */
void dci_nearest_close(dci_nearest *nearest, size_t i);

/* out[i]: the centre nearest to point i; out_score, unless NULL: point . centre - |centre|^2 / 2, by distance
 * -|point - centre|^2. */
void dci_nearest_find(const dci_nearest *nearest, const float *points, size_t ld, size_t n_points, void *scratch,
                      int32_t *out, float *out_score);

/* Points that stay: lays out memory; packs those from `first` (a multiple of 32), on any threads; finds for a range. */
#define DCI_NEAREST_BLOCK ((size_t)32)
size_t dci_nearest_points_bytes(const dci_context *context, size_t n, size_t dim);
void dci_nearest_points_init(const dci_context *context, const float *points, size_t ld, size_t n, size_t dim,
                             void *memory, dci_nearest_points *out);
void dci_nearest_points_pack(const dci_nearest_points *points, size_t first, size_t n);
void dci_nearest_find_packed(const dci_nearest *nearest, const dci_nearest_points *points, size_t first, size_t n,
                             void *scratch, int32_t *out, float *out_score);

#endif
