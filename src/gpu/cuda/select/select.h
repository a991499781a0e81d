/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The kernels of the selection by how groups count: each in a file of its own, so that they compile in parallel. */
#ifndef DCI_GPU_CUDA_SELECT_SELECT_H
#define DCI_GPU_CUDA_SELECT_SELECT_H

#include "gpu/cuda/launch.cuh"

#ifdef __cplusplus
extern "C" {
#endif

dci_status dci_gpu_cuda_select_shares(const dci_gpu_cuda *cuda, const GpuStream &stream,
                                      const dci_gpu_select_args *args);
dci_status dci_gpu_cuda_select_means(const dci_gpu_cuda *cuda, const GpuStream &stream,
                                     const dci_gpu_select_args *args);
dci_status dci_gpu_cuda_select_units(const dci_gpu_cuda *cuda, const GpuStream &stream,
                                     const dci_gpu_select_args *args);

#ifdef __cplusplus
}
#endif
#endif
