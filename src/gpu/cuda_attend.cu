/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention: the launcher. The kernel is in cuda_attend.cuh. */
#include "gpu/cuda.h"
#include "gpu/cuda_attend.h"

extern "C" dci_status dci_gpu_cuda_attend(struct dci_gpu *gpu, void *stream, const dci_gpu_attend_args *args)
{
        if (args->n_sequences == 0)
                return DCI_OK;
        if (args->group < 1 || args->group > DCI_GPU_MAX_GROUP)
                return dci_fail(DCI_ERR_UNSUPPORTED, "%d query heads share a kv head, expected 1 to %d", args->group,
                                DCI_GPU_MAX_GROUP);
        if (args->dim != 64 && args->dim != 96 && args->dim != 128 && args->dim != 256)
                return dci_fail(DCI_ERR_UNSUPPORTED, "rows have %d elements, expected 64, 96, 128 or 256", args->dim);
        if (args->n_sequences > UINT16_MAX || args->n_heads > UINT16_MAX)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d kv heads, expected at most %d of each",
                                args->n_sequences, args->n_heads, UINT16_MAX);
        const bool bulk = dci_gpu_cuda_of(gpu)->major >= 9;
        const cudaError_t error = args->dtype == DCI_F16
                                          ? dci_gpu_cuda_attend_f16(args, bulk, static_cast<cudaStream_t>(stream))
                                          : dci_gpu_cuda_attend_bf16(args, bulk, static_cast<cudaStream_t>(stream));
        return dci_gpu_cuda_status(error, "attention over %d sequences of %d kv heads and dimension %d",
                                   args->n_sequences, args->n_heads, args->dim);
}
