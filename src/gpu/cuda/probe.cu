/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A kernel that does nothing, compiled as all others are: where it can be loaded, they can. */
#include "gpu/cuda/launchers.h"

#include <cuda_runtime.h>

static __global__ void probe()
{
}

int dci_gpu_cuda_probe(void)
{
        cudaFuncAttributes found;
        return static_cast<int>(cudaFuncGetAttributes(&found, probe));
}
