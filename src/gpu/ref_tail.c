/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "gpu/gpu_internal.h"

#include "gpu/ref.h"

void dci_gpu_ref_tail(const dci_gpu_tail_args *args)
{
        (void)args;
}
