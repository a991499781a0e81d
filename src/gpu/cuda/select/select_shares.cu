/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "gpu/cuda/select/select.h"
#include "gpu/cuda/select/select_kernel.cuh"

extern "C" dci_status dci_gpu_cuda_select_shares(const dci_gpu_cuda *cuda, const GpuStream &stream,
                                                 const dci_gpu_select_args *args)
{
        return launch_by<by_share>(cuda, stream, args);
}
