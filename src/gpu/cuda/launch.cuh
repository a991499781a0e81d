/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* How kernels of a decode's step are queued. From compute capability 9.0 on a kernel comes to the multiprocessors while
 * the one before it on its stream still runs, so that a launch costs next to nothing (programmatic dependent launch;
 * also in a graph). For that
 *
 *  - each of them calls ptx_after_earlier() before it writes anything, or reads what the kernel before it writes: then
 *    that has ended, and what it wrote is to be seen. All threads do, in all blocks, so that a kernel which has ended
 *    means that all before it have;
 *  - after that it calls ptx_let_later_begin().
 *
 * So a kernel begins when the kernel before the one before it has ended, and may read what the one before it does not
 * write even before its turn. It reads that from the second-level cache (__ldcg, ptx_load*_early, ptx_load*_once): the
 * first-level one may have it as it was some kernels ago. A tail over clusters (cuda/tail/tail_clusters.cu) does all of
 * its work then, and writes what no kernel before it reads; it takes its turn last. Other work on the stream is ordered
 * as usual. */
#ifndef DCI_GPU_CUDA_LAUNCH_CUH
#define DCI_GPU_CUDA_LAUNCH_CUH

#include <type_traits>

#include "gpu/cuda/launchers.h"
#include "gpu/cuda/ptx.cuh"

/* A stream, and whether its device can begin kernels early. */
struct GpuStream {
        cudaStream_t stream;
        bool early;
};

static inline GpuStream stream_of(const dci_gpu_cuda *cuda, void *stream)
{
        return {static_cast<cudaStream_t>(stream), cuda != nullptr && cuda->major >= 9};
}

/* Queues a kernel, with so much dynamic shared memory for a block. */
template <class... P, class... A>
static cudaError_t launch_kernel(const GpuStream &stream, dim3 grid, unsigned n_threads, size_t shared_bytes,
                                 void (*kernel)(P...), const A &...args)
{
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = n_threads;
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream.stream;
        config.attrs = &early;
        config.numAttrs = stream.early ? 1 : 0;
        return cudaLaunchKernelEx(&config, kernel, args...);
}

/* The same with more shared memory than a block has unless it is requested. */
template <class... P, class... A>
static cudaError_t launch_shared(const GpuStream &stream, dim3 grid, unsigned n_threads, size_t shared_bytes,
                                 void (*kernel)(P...), const A &...args)
{
        const cudaError_t error =
                cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        return error == cudaSuccess ? launch_kernel(stream, grid, n_threads, shared_bytes, kernel, args...) : error;
}

/* f(dim) for a number of elements that kernels are built for, as a constant; `other` for the rest. */
template <class R, class F> static R with_dim(int dim, R other, const F &f)
{
        switch (dim) {
        case 64:
                return f(std::integral_constant<int, 64>());
        case 96:
                return f(std::integral_constant<int, 96>());
        case 128:
                return f(std::integral_constant<int, 128>());
        case 256:
                return f(std::integral_constant<int, 256>());
        default:
                return other;
        }
}

#endif
