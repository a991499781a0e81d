/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans by trees: the launcher. The kernels are in cuda/tree/tree.cuh. */
#include "gpu/cuda/tree/tree.h"

static dci_status check_tree(const dci_gpu_tree_args *args)
{
        const dci_gpu_score_args *score = &args->score;
        const dci_status status = dci_gpu_check_shape(score->group, score->dim);
        if (status != DCI_OK)
                return status;
        if (score->bits != 4 && score->bits != 2 && score->bits != 1)
                return dci_fail(DCI_ERR_UNSUPPORTED, "codes have %d bits, expected 4, 2 or 1", score->bits);
        if (args->page_shift < 3 || args->page_shift > 6)
                return dci_fail(DCI_ERR_UNSUPPORTED, "pages of 2^%d tokens, expected 2^3 to 2^6", args->page_shift);
        if (args->select.stride < 1 || args->select.stride > DCI_GPU_MAX_LIST ||
            (args->select.stride >> args->page_shift) * score->group > TREE_RANKED)
                return dci_fail(DCI_ERR_LIMIT,
                                "lists of %d tokens in pages of 2^%d for %d query heads, expected %d pages "
                                "of all heads at most",
                                args->select.stride, args->page_shift, score->group, TREE_RANKED);
        if (args->page_parts < 1 || args->page_parts > DCI_GPU_MAX_PARTS || args->max_pages >= 1 << 24)
                return dci_fail(DCI_ERR_LIMIT, "%d parts of %d pages, expected 1 to %d of fewer than 2^24",
                                args->page_parts, args->max_pages, DCI_GPU_MAX_PARTS);
        if (score->n_sequences > UINT16_MAX || score->n_heads > UINT16_MAX)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d kv heads, expected at most %d of each",
                                score->n_sequences, score->n_heads, UINT16_MAX);
        return DCI_OK;
}

/* SIZE_MAX: there is no kernel. */
extern "C" size_t dci_gpu_cuda_tree_bytes(int32_t stride, int32_t page_shift, int32_t group)
{
        return (stride >> page_shift) * group > TREE_RANKED ? SIZE_MAX
                                                            : list_bytes(stride, page_shift, group, 0) + TREE_OWN_BYTES;
}

extern "C" dci_status dci_gpu_cuda_tree(struct dci_gpu *gpu, void *stream, const dci_gpu_tree_args *args)
{
        if (args->score.n_sequences <= 0 || args->score.n_heads <= 0)
                return DCI_OK;
        const dci_status status = check_tree(args);
        if (status != DCI_OK)
                return status;
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        const GpuStream on = stream_of(cuda, stream);
        const cudaError_t error = args->score.bits == 4   ? dci_gpu_cuda_tree4(args, on, cuda->shared_bytes)
                                  : args->score.bits == 2 ? dci_gpu_cuda_tree2(args, on, cuda->shared_bytes)
                                                          : dci_gpu_cuda_tree1(args, on, cuda->shared_bytes);
        return dci_gpu_cuda_status(error, "searches of %d sequences of %d kv heads and dimension %d",
                                   args->score.n_sequences, args->score.n_heads, args->score.dim);
}
