/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores: the launcher. The kernels are in cuda/score/score_codes.cuh and cuda/score/score_rows.cu. */
#include "gpu/cuda/score/score.h"

static dci_status check_score(const dci_gpu_score_args *args)
{
        const bool of_means = args->units.lists != NULL && args->units.of_means != 0;
        const bool coded = args->kind == DCI_GPU_CODES || args->kind == DCI_GPU_LEARNED;
        const dci_status status = dci_gpu_check_shape(args->group, args->dim);
        if (status != DCI_OK)
                return status;
        if (args->kind < DCI_GPU_CODES || args->kind > DCI_GPU_LEARNED)
                return dci_fail(DCI_ERR_UNSUPPORTED, "summaries are of kind %d, expected %d to %d", args->kind,
                                DCI_GPU_CODES, DCI_GPU_LEARNED);
        if (args->kind == DCI_GPU_LEARNED && (args->bits < 1 || args->dim * args->bits > 1024))
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "learned codes of %d bits and %d elements, expected at most 1024 bits in all",
                                args->bits, args->dim);
        if (args->kind == DCI_GPU_CODES && args->bits != 4 && args->bits != 2 && args->bits != 1)
                return dci_fail(DCI_ERR_UNSUPPORTED, "codes have %d bits, expected 4, 2 or 1", args->bits);
        if (args->dtype != DCI_F16 && args->dtype != DCI_BF16)
                return dci_fail(DCI_ERR_UNSUPPORTED, "keys are of type %d, expected %d or %d", args->dtype, DCI_F16,
                                DCI_BF16);
        if (args->units.lists != NULL && args->kind != DCI_GPU_CODES)
                return dci_fail(DCI_ERR_UNSUPPORTED, "preselection by summaries of kind %d, expected %d", args->kind,
                                DCI_GPU_CODES);
        if (of_means && (args->group_shift < 2 || args->group_shift > 4))
                return dci_fail(DCI_ERR_UNSUPPORTED, "means of 2^%d candidates, expected 2^2 to 2^4",
                                args->group_shift);
        if (args->group_shift < 0 || args->group_shift > 9 || (coded && !of_means && args->group_shift != 0))
                return dci_fail(DCI_ERR_UNSUPPORTED, "groups of 2^%d candidates, expected 2^%d at most",
                                args->group_shift, coded ? 0 : 9);
        if (args->n_parts < 1 || args->n_parts > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_LIMIT, "%d parts, expected 1 to %d", args->n_parts, DCI_GPU_MAX_PARTS);
        if (args->n_sequences > UINT16_MAX || DCI_GPU_LISTS(args) > UINT16_MAX)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d kv heads, expected at most %d of each",
                                args->n_sequences, args->n_heads, UINT16_MAX);
        return DCI_OK;
}

extern "C" dci_status dci_gpu_cuda_score(struct dci_gpu *gpu, void *stream, const dci_gpu_score_args *args)
{
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        const dci_status status = check_score(args);
        if (status != DCI_OK)
                return status;
        const GpuStream on = stream_of(dci_gpu_cuda_of(gpu), stream);
        cudaError_t error;
        if (args->kind == DCI_GPU_LEARNED)
                error = dci_gpu_cuda_score_learned(args, on);
        else if (args->kind != DCI_GPU_CODES)
                error = dci_gpu_cuda_score_rows(args, on);
        else if (args->units.lists != NULL)
                error = args->bits == 4   ? dci_gpu_cuda_score_units4(args, on)
                        : args->bits == 2 ? dci_gpu_cuda_score_units2(args, on)
                                          : dci_gpu_cuda_score_units1(args, on);
        else
                error = args->bits == 4   ? dci_gpu_cuda_score_codes4(args, on)
                        : args->bits == 2 ? dci_gpu_cuda_score_codes2(args, on)
                                          : dci_gpu_cuda_score_codes1(args, on);
        return dci_gpu_cuda_status(error, "scores of %d sequences of %d kv heads and dimension %d", args->n_sequences,
                                   args->n_heads, args->dim);
}
