/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The attention kernels by type of the rows: each in a file of its own, so that they compile in parallel. */
#ifndef DCI_GPU_CUDA_ATTEND_ATTEND_H
#define DCI_GPU_CUDA_ATTEND_ATTEND_H

#include "gpu/cuda/launch.cuh"

#ifdef __cplusplus
extern "C" {
#endif

/* bulk_bytes: shared memory of a block where the device can fetch whole pages (compute capability 9.0), else 0.
 * cudaErrorInvalidValue: there is no kernel for the dimension. */
cudaError_t dci_gpu_cuda_attend_f16(const dci_gpu_attend_args *args, size_t bulk_bytes, const GpuStream &stream);
cudaError_t dci_gpu_cuda_attend_bf16(const dci_gpu_attend_args *args, size_t bulk_bytes, const GpuStream &stream);

#ifdef __cplusplus
}
#endif
#endif
