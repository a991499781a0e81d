/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over rows of bfloat16. */
#include "gpu/cuda/attend/attend.h"

#include "gpu/cuda/attend/attend_bulk.cuh"

cudaError_t dci_gpu_cuda_attend_bf16(const dci_gpu_attend_args *args, size_t bulk_bytes, const GpuStream &stream)
{
        return launch_type<Bf16>(*args, bulk_bytes, stream);
}
