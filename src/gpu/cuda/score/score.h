/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores: kernels by the kind of summaries, and the launcher that calls one. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_H
#define DCI_GPU_CUDA_SCORE_SCORE_H

#include "gpu/cuda/launch.cuh"

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t dci_gpu_cuda_score_codes4(const dci_gpu_score_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_score_codes2(const dci_gpu_score_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_score_codes1(const dci_gpu_score_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_score_units4(const dci_gpu_score_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_score_units2(const dci_gpu_score_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_score_units1(const dci_gpu_score_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_score_learned(const dci_gpu_score_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_score_learned_wide(const dci_gpu_score_args *args, const GpuStream &stream);
cudaError_t dci_gpu_cuda_score_rows(const dci_gpu_score_args *args, const GpuStream &stream);

#ifdef __cplusplus
}
#endif
#endif
