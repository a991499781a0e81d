/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over rows of binary16. */
#include "gpu/cuda/attend/attend.h"

#include "gpu/cuda/attend/attend_bulk.cuh"

cudaError_t dci_gpu_cuda_attend_f16(const dci_gpu_attend_args *args, size_t bulk_bytes, const GpuStream &stream)
{
        return launch_type<Half>(*args, bulk_bytes, stream);
}

/* Of either type, and wherever its rows are: who fetches whole pages and has too little for that attends as others
 * do. */
extern "C" size_t dci_gpu_cuda_attend_bytes(int32_t dim, int32_t group)
{
        switch (dim) {
        case 64:
                return group <= 8 ? block_bytes<64, true> : block_bytes<64, false>;
        case 96:
                return group <= 8 ? block_bytes<96, true> : block_bytes<96, false>;
        case 128:
                return group <= 8 ? block_bytes<128, true> : block_bytes<128, false>;
        case 256:
                return group <= 8 ? block_bytes<256, true> : block_bytes<256, false>;
        default:
                return SIZE_MAX;
        }
}
