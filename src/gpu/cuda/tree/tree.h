/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans by trees: kernels by the width of codes. */
#ifndef DCI_GPU_CUDA_TREE_TREE_H
#define DCI_GPU_CUDA_TREE_TREE_H

#include "gpu/cuda/launch.cuh"

/* Pages that all heads of a list rank together, at most: heads x pages. */
#define TREE_RANKED 4096

/* Words of pages' scores and numbers that the last block of a list keeps in shared memory, at most: two blocks fit on a
 * multiprocessor. */
#define TREE_STAGED 16384

/* Shared memory that the last block of a list needs beyond the kernel's own: keys of pages, pages and staged scores, in
 * turns with candidates as bits; then pages and tokens. */
#define TREE_WINDOW_BYTES ((size_t)32768)
#define TREE_OWN_BYTES ((size_t)32768)

static __host__ __device__ inline size_t ranked_bytes(int n)
{
        return ((size_t)n * (2 * sizeof(unsigned long long) + sizeof(int32_t)) + 15) / 16 * 16;
}

static __host__ __device__ inline size_t rank_bytes(int n, int staged)
{
        const size_t ranked = ranked_bytes(n) + ((size_t)staged * 4 + 15) / 16 * 16, bits = TREE_WINDOW_BYTES;
        return ranked > bits ? ranked : bits;
}

static __host__ __device__ inline size_t taken_bytes(int k)
{
        return ((size_t)k * 4 + 15) / 16 * 16;
}

static __host__ __device__ inline size_t list_bytes(int stride, int page_shift, int group, int staged)
{
        const int k = stride >> page_shift;
        return rank_bytes(k * group, staged) + taken_bytes(k) + (size_t)stride * 4;
}

#ifdef __cplusplus
extern "C" {
#endif

/* shared_bytes: that a block may have. */
cudaError_t dci_gpu_cuda_tree4(const dci_gpu_tree_args *args, const GpuStream &stream, size_t shared_bytes);
cudaError_t dci_gpu_cuda_tree2(const dci_gpu_tree_args *args, const GpuStream &stream, size_t shared_bytes);
cudaError_t dci_gpu_cuda_tree1(const dci_gpu_tree_args *args, const GpuStream &stream, size_t shared_bytes);

#ifdef __cplusplus
}
#endif
#endif
