/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The tail by low-bit values: the launcher. The kernel is in cuda/tail/tail.cuh. */
#include "gpu/cuda/launchers.h"
#include "gpu/cuda/tail/tail.h"

static dci_status check(const dci_gpu_tail_args &a)
{
        if (a.bits != 4 && a.bits != 2 && a.bits != 1)
                return dci_fail(DCI_ERR_UNSUPPORTED, "values of %d bits, the device's kernel takes 4, 2 or 1", a.bits);
        const dci_status status = dci_gpu_check_shape(a.group, a.dim);
        if (status != DCI_OK)
                return status;
        if (a.n_parts < 1 || a.n_parts > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_INVALID, "lists are cut into %d parts, expected 1 to %d", a.n_parts,
                                DCI_GPU_MAX_PARTS);
        if (a.tail_at % 16 != 0)
                return dci_fail(DCI_ERR_INVALID, "values begin at byte %d, expected a multiple of 16", a.tail_at);
        if (a.n_sequences > UINT16_MAX || DCI_GPU_LISTS(&a) > UINT16_MAX / 2)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d kv heads, expected at most %d and %d", a.n_sequences,
                                a.n_heads, UINT16_MAX, UINT16_MAX / 2);
        return DCI_OK;
}

extern "C" dci_status dci_gpu_cuda_tail(struct dci_gpu *gpu, void *stream, const dci_gpu_tail_args *args)
{
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        const dci_status status = check(*args);
        if (status != DCI_OK)
                return status;
        const GpuStream on = stream_of(dci_gpu_cuda_of(gpu), stream);
        const cudaError_t error = args->bits == 4   ? dci_gpu_cuda_tail_4(args, on)
                                  : args->bits == 2 ? dci_gpu_cuda_tail_2(args, on)
                                                    : dci_gpu_cuda_tail_1(args, on);
        return dci_gpu_cuda_status(error, "the tail of %d sequences of %d kv heads and dimension %d", args->n_sequences,
                                   args->n_heads, args->dim);
}
