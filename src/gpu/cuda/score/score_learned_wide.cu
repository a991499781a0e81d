/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Learned codes of 13 to 32 line pairs. */
#include "gpu/cuda/score/score_learned.cuh"

extern "C" cudaError_t dci_gpu_cuda_score_learned_wide(const dci_gpu_score_args *args, const GpuStream &stream)
{
        return args->dim * args->bits / 32 <= 16 ? launch_learned<4>(*args, stream) : launch_learned<8>(*args, stream);
}
