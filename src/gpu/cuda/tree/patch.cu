/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Patches: a warp copies one, in words of 16 bytes where both addresses and the size allow that, else of 4. */
#include "gpu/cuda/launch.cuh"

constexpr int patch_threads = 256, patch_warps = patch_threads / 32, patch_blocks = 1024;

static __global__ void __launch_bounds__(patch_threads) patch_kernel(const __grid_constant__ dci_gpu_patch_args a)
{
        const int lane = threadIdx.x & 31;
        ptx_take_turn();
        for (int i = (int)(blockIdx.x * patch_warps + (threadIdx.x >> 5)); i < a.n; i += (int)gridDim.x * patch_warps) {
                const dci_gpu_patch p = a.patches[i];
                const uint64_t at = reinterpret_cast<uintptr_t>(p.to) | reinterpret_cast<uintptr_t>(p.from) | p.n_bytes;
                if (at % 16 == 0)
                        for (uint64_t j = lane; j < p.n_bytes / 16; j += 32)
                                reinterpret_cast<uint4 *>(p.to)[j] = reinterpret_cast<const uint4 *>(p.from)[j];
                else
                        for (uint64_t j = lane; j < p.n_bytes / 4; j += 32)
                                reinterpret_cast<uint32_t *>(p.to)[j] = reinterpret_cast<const uint32_t *>(p.from)[j];
        }
}

extern "C" dci_status dci_gpu_cuda_patch(struct dci_gpu *gpu, void *stream, const dci_gpu_patch_args *args)
{
        if (args->n <= 0)
                return DCI_OK;
        const int n_blocks = (args->n + patch_warps - 1) / patch_warps;
        return dci_gpu_cuda_status(launch_kernel(stream_of(dci_gpu_cuda_of(gpu), stream),
                                                 dim3((unsigned)(n_blocks < patch_blocks ? n_blocks : patch_blocks)),
                                                 patch_threads, 0, patch_kernel, *args),
                                   "%d patches cannot be queued", args->n);
}
