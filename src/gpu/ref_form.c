/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "gpu/gpu_internal.h"

#include "gpu/ref.h"

void dci_gpu_ref_form(const dci_gpu_form_args *args)
{
        (void)args;
}

void dci_gpu_ref_form_prompt(const dci_gpu_form_prompt_args *args)
{
        (void)args;
}
