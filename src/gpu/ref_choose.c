/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "gpu/gpu_internal.h"

#include "gpu/ref.h"

void dci_gpu_ref_choose(const dci_gpu_choose_args *args)
{
        (void)args;
}
