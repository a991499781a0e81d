/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Stands in until the kernel is merged. */
#include "gpu/cuda.h"

extern "C" dci_status dci_gpu_cuda_attend(struct dci_gpu *gpu, void *stream, const dci_gpu_attend_args *args)
{
        (void)gpu, (void)stream, (void)args;
        return dci_fail(DCI_ERR_UNSUPPORTED, "this build has no attention kernel for CUDA devices");
}
