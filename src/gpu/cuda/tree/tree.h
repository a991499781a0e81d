/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans by trees: kernels by the width of codes. */
#ifndef DCI_GPU_CUDA_TREE_TREE_H
#define DCI_GPU_CUDA_TREE_TREE_H

#include "gpu/cuda/launch.cuh"

/* Pages that all heads of a list rank together, at most: heads x pages. */
#define TREE_RANKED 4096

/* Shared memory that the last block of a list needs beyond the kernel's own: keys of pages and pages, in turns with
 * candidates as bits; then pages and tokens. */
#define TREE_WINDOW_BYTES ((size_t)32768)
#define TREE_OWN_BYTES ((size_t)32768)

static __host__ __device__ inline size_t ranked_bytes(int n)
{
        return (size_t)n * (2 * sizeof(unsigned long long) + sizeof(int32_t));
}

static __host__ __device__ inline size_t list_bytes(int stride, int page_shift, int group)
{
        const size_t ranked = ranked_bytes((stride >> page_shift) * group), bits = TREE_WINDOW_BYTES;
        return (ranked > bits ? ranked : bits) + (size_t)(stride >> page_shift) * 4 + (size_t)stride * 4;
}

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t dci_gpu_cuda_tree4(const dci_gpu_tree_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_tree2(const dci_gpu_tree_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_tree1(const dci_gpu_tree_args *args, const GpuStream &stream);

#ifdef __cplusplus
}
#endif
#endif
