/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Learned codes of at most 12 line pairs. */
#include "gpu/cuda/score/score_learned.cuh"

extern "C" cudaError_t dci_gpu_cuda_score_learned(const dci_gpu_score_args *args, const GpuStream &stream)
{
        const int lines = args->dim * args->bits / 32;
        return lines <= 4    ? launch_learned<1>(*args, stream)
               : lines <= 8  ? launch_learned<2>(*args, stream)
               : lines <= 12 ? launch_learned<3>(*args, stream)
                             : dci_gpu_cuda_score_learned_wide(args, stream);
}
