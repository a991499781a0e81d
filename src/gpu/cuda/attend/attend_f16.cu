/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over rows of binary16. */
#include "gpu/cuda/attend/attend.h"

#include "gpu/cuda/attend/attend_bulk.cuh"

cudaError_t dci_gpu_cuda_attend_f16(const dci_gpu_attend_args *args, size_t bulk_bytes, const GpuStream &stream)
{
        return launch_type<Half>(*args, bulk_bytes, stream);
}

/* Of either type, wherever the rows are: without room for whole pages, rows go into registers. */
extern "C" size_t dci_gpu_cuda_attend_bytes(int32_t dim, int32_t group)
{
        return with_dim(dim, SIZE_MAX, [group](auto d) {
                return group <= 8 ? block_bytes<d.value, true> : block_bytes<d.value, false>;
        });
}
