/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "gpu/cuda/score/score_units.cuh"

extern "C" cudaError_t dci_gpu_cuda_score_units1(const dci_gpu_score_args *args, const GpuStream &stream)
{
        return launch_units<1>(*args, stream);
}
