/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over rows of binary16. */
#include "gpu/cuda_attend.h"

#include "gpu/cuda_attend_bulk.cuh"

cudaError_t dci_gpu_cuda_attend_f16(const dci_gpu_attend_args *args, bool bulk, const GpuStream &stream)
{
        return launch_type<Half>(*args, bulk, stream);
}
