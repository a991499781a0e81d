/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* In the place of cuda/device.c, in builds without CUDA. */
#include "gpu/gpu_internal.h"

const dci_gpu_ops *dci_gpu_ops_cuda(void)
{
        dci_fail(DCI_ERR_UNSUPPORTED,
                 "this build of dci has no CUDA: build it with -DDCI_CUDA=ON (in Python: pip install ./python -C "
                 "cmake.define.DCI_CUDA=ON, or a wheel of libdci-cu13), or use the device DCI_GPU_HOST");
        return NULL;
}
