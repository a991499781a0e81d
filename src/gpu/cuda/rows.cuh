/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Where rows are: addresses in pools and lanes, for kernels that move them. Rows are moved 16 bytes at a time. */
#ifndef DCI_GPU_CUDA_ROWS_CUH
#define DCI_GPU_CUDA_ROWS_CUH

#include <cuda_runtime.h>

#include "gpu/cuda/launchers.h"

struct RowPair {
        unsigned char *key, *value;
};

/* The rows of slot `slot` in a block, when its piece is known. */
static __device__ __forceinline__ RowPair block_rows(const dci_gpu_pool &pool, unsigned char *piece, int block,
                                                     int head, int slot)
{
        unsigned char *at = piece + pool.layer_at +
                            (uint64_t)(block & ((1 << pool.block_shift) - 1)) * pool.block_bytes +
                            (uint64_t)head * pool.head_bytes;
        return {at + (uint64_t)slot * pool.key_bytes, at + pool.value_at + (uint64_t)slot * pool.value_bytes};
}

static __device__ __forceinline__ RowPair pool_rows(const dci_gpu_pool &pool, int block, int head, int slot)
{
        return block_rows(pool, pool.pieces[block >> pool.block_shift], block, head, slot);
}

/* Those in a block that is there, or in a resident page, which has the same layout. */
static __device__ __forceinline__ RowPair rows_at(const dci_gpu_pool &pool, unsigned char *at, int head, int slot)
{
        at += (uint64_t)head * pool.head_bytes;
        return {at + (uint64_t)slot * pool.key_bytes, at + pool.value_at + (uint64_t)slot * pool.value_bytes};
}

static __device__ __forceinline__ unsigned char *page_at(const dci_gpu_resident &resident, const dci_gpu_pool &pool,
                                                         int place)
{
        return resident.pages + (uint64_t)place * pool.block_bytes;
}

static __device__ __forceinline__ RowPair lane_rows(const dci_gpu_lanes &lanes, int row, int n_heads, int head,
                                                    int slot)
{
        const uint64_t at = ((uint64_t)row * n_heads + head) * lanes.n_slots + slot;
        return {lanes.keys + at * lanes.key_bytes, lanes.values + at * lanes.value_bytes};
}

/* The address of the head's part in a chunk of a row. */
static __device__ __forceinline__ const unsigned char *chunk_part(const dci_gpu_chunks &chunks, int row, int head,
                                                                  int chunk)
{
        const int number = __ldcg(chunks.numbers + row * chunks.stride + chunk);
        const unsigned long long piece =
                __ldcg(reinterpret_cast<const unsigned long long *>(chunks.pieces) + (number >> chunks.piece_shift));
        return reinterpret_cast<const unsigned char *>(piece) + chunks.layer_at +
               (uint64_t)(number & ((1 << chunks.piece_shift) - 1)) * chunks.chunk_bytes +
               (uint64_t)head * chunks.head_bytes;
}

/* Warps that keep all multiprocessors busy, whatever the amount of work. */
static inline int blocks_for(uint64_t n_blocks, int multiprocessors, int per_multiprocessor)
{
        const uint64_t most = (uint64_t)multiprocessors * per_multiprocessor;
        return (int)(n_blocks < most ? n_blocks : most);
}

#endif
