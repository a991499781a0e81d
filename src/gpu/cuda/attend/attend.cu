/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention: the launcher. The kernel is in cuda/attend/attend.cuh. */
#include "gpu/cuda/attend/attend.h"
#include "gpu/cuda/launchers.h"

extern "C" dci_status dci_gpu_cuda_attend(struct dci_gpu *gpu, void *stream, const dci_gpu_attend_args *args)
{
        if (args->n_sequences == 0)
                return DCI_OK;
        const dci_status status = dci_gpu_check_shape(args->group, args->dim);
        if (status != DCI_OK)
                return status;
        if (args->n_sequences > UINT16_MAX || DCI_GPU_LISTS(args) > UINT16_MAX)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d kv heads, expected at most %d of each",
                                args->n_sequences, args->n_heads, UINT16_MAX);
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        const size_t bulk_bytes = cuda->major >= 9 ? cuda->shared_bytes : 0;
        const GpuStream on = stream_of(cuda, stream);
        const cudaError_t error = args->dtype == DCI_F16 ? dci_gpu_cuda_attend_f16(args, bulk_bytes, on)
                                                         : dci_gpu_cuda_attend_bf16(args, bulk_bytes, on);
        return dci_gpu_cuda_status(error, "attention over %d sequences of %d kv heads and dimension %d",
                                   args->n_sequences, args->n_heads, args->dim);
}
