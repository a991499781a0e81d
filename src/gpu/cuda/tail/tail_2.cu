/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The tail over values of two bits. */
#include "gpu/cuda/tail/tail.h"

#include "gpu/cuda/tail/tail.cuh"

cudaError_t dci_gpu_cuda_tail_2(const dci_gpu_tail_args *args, const GpuStream &stream)
{
        return launch_bits<2>(*args, stream);
}
