/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "gpu/cuda.h"

extern "C" dci_status dci_gpu_cuda_form(struct dci_gpu *gpu, void *stream, const dci_gpu_form_args *args)
{
        (void)gpu;
        (void)stream;
        (void)args;
        return dci_fail(DCI_ERR_UNSUPPORTED, "there is no kernel for that yet");
}

extern "C" dci_status dci_gpu_cuda_form_prompt(struct dci_gpu *gpu, void *stream, const dci_gpu_form_prompt_args *args)
{
        (void)gpu;
        (void)stream;
        (void)args;
        return dci_fail(DCI_ERR_UNSUPPORTED, "there is no kernel for that yet");
}
