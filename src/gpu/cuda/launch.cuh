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
 * first-level one may have it as it was some kernels ago. Other work on the stream, before and after, is ordered as
 * usual. */
#ifndef DCI_GPU_CUDA_LAUNCH_CUH
#define DCI_GPU_CUDA_LAUNCH_CUH

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

template <class... P, class... A>
static cudaError_t launch_early(const GpuStream &stream, cudaLaunchConfig_t *config, void (*kernel)(P...),
                                const A &...args)
{
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        config->stream = stream.stream;
        config->attrs = &early;
        config->numAttrs = stream.early ? 1 : 0;
        const cudaError_t error = cudaLaunchKernelEx(config, kernel, args...);
        config->attrs = nullptr;
        return error;
}

#endif
