/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the references share: elements, and addresses of rows and chunks. */
#ifndef DCI_GPU_HOST_REFERENCE_H
#define DCI_GPU_HOST_REFERENCE_H

#include "core/internal.h"

#include <string.h>

#include "gpu/args/rows.h"
#include "simd/convert.h"

/* Element `at` of a row. */
DCI_INLINE float dci_gpu_load(const void *from, uint64_t at, int32_t dtype)
{
        uint16_t half;
        float single;
        if (dtype == DCI_F32) {
                memcpy(&single, (const unsigned char *)from + at * sizeof single, sizeof single);
                return single;
        }
        memcpy(&half, (const unsigned char *)from + at * sizeof half, sizeof half);
        return dtype == DCI_F16 ? dci_f16_to_float(half) : dci_bf16_to_float(half);
}

/* Maps floats, NaN too, to numbers in the same order; never 0. */
DCI_INLINE uint32_t dci_gpu_ordered(float x)
{
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
        return bits > 0 ? bits : 1;
}

/* For qsort: of int32_t. */
DCI_INLINE int dci_gpu_by_number(const void *a, const void *b)
{
        const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
        return (x > y) - (x < y);
}

typedef struct dci_gpu_place {
        unsigned char *key, *value;
} dci_gpu_place;

/* Of one position of a sequence and one head in a pool. */
DCI_INLINE dci_gpu_place dci_gpu_pool_place(const dci_gpu_pool *pool, const dci_gpu_tables *tables, int32_t row,
                                            int32_t position, int32_t head)
{
        const uint64_t number = (uint64_t)position >> pool->page_shift;
        const uint64_t slot = (uint64_t)position & (((uint64_t)1 << pool->page_shift) - 1);
        const uint64_t block = (uint64_t)tables->blocks[(uint64_t)row * tables->stride + number];
        unsigned char *at = pool->pieces[block >> pool->block_shift] + pool->layer_at +
                            (block & (((uint64_t)1 << pool->block_shift) - 1)) * pool->block_bytes +
                            (uint64_t)head * pool->head_bytes;
        return (dci_gpu_place){at + slot * pool->key_bytes, at + pool->value_at + slot * pool->value_bytes};
}

/* The same in the layer's resident pages; key NULL: the page has no copy. */
DCI_INLINE dci_gpu_place dci_gpu_resident_place(const dci_gpu_resident *resident, const dci_gpu_pool *pool,
                                                const dci_gpu_tables *tables, int32_t row, int32_t position,
                                                int32_t head)
{
        const uint64_t number = (uint64_t)position >> pool->page_shift;
        const uint64_t slot = (uint64_t)position & (((uint64_t)1 << pool->page_shift) - 1);
        const int32_t place = resident->pages == NULL
                                      ? -1
                                      : resident->places[tables->blocks[(uint64_t)row * tables->stride + number]];
        if (place < 0)
                return (dci_gpu_place){NULL, NULL};
        unsigned char *at = resident->pages + (uint64_t)place * pool->block_bytes + (uint64_t)head * pool->head_bytes;
        return (dci_gpu_place){at + slot * pool->key_bytes, at + pool->value_at + slot * pool->value_bytes};
}

/* The part of a head in chunk `number` of a row. */
DCI_INLINE unsigned char *dci_gpu_chunk_of(const dci_gpu_chunks *chunks, uint64_t row, uint64_t head, uint64_t number)
{
        const uint64_t chunk = (uint64_t)chunks->numbers[row * chunks->stride + number];
        return chunks->pieces[chunk >> chunks->piece_shift] + chunks->layer_at +
               (chunk & (((uint64_t)1 << chunks->piece_shift) - 1)) * chunks->chunk_bytes + head * chunks->head_bytes;
}

/* The part of a row in an array of dci_gpu_selection_cache. */
DCI_INLINE void *dci_gpu_of_row(void *first, uint64_t row_bytes, int32_t row)
{
        return (unsigned char *)first + (uint64_t)row * row_bytes;
}

/* Of one slot of a lane; list: row * n_heads + head. */
DCI_INLINE dci_gpu_place dci_gpu_lane_place(const dci_gpu_lanes *lanes, uint64_t list, int32_t slot)
{
        const uint64_t at = list * (uint64_t)lanes->n_slots + (uint64_t)slot;
        return (dci_gpu_place){lanes->keys + at * lanes->key_bytes, lanes->values + at * lanes->value_bytes};
}

#endif
