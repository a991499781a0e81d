/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "gpu/cuda/tree/tree.cuh"

extern "C" cudaError_t dci_gpu_cuda_tree4(const dci_gpu_tree_args *args, const GpuStream &stream, size_t shared_bytes)
{
        return launch_tree<4>(*args, stream, shared_bytes);
}
