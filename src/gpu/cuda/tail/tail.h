/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The kernels of the low-bit tail by bits of a value: each in a file of its own, so that they compile in parallel. */
#ifndef DCI_GPU_CUDA_TAIL_TAIL_H
#define DCI_GPU_CUDA_TAIL_TAIL_H

#include "gpu/cuda/launch.cuh"

#ifdef __cplusplus
extern "C" {
#endif

/* cudaErrorInvalidValue: there is no kernel for the dimension. */
cudaError_t dci_gpu_cuda_tail_4(const dci_gpu_tail_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_tail_2(const dci_gpu_tail_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_tail_1(const dci_gpu_tail_args *args, const GpuStream &stream);

#ifdef __cplusplus
}
#endif
#endif
