/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Whether a GPU can launch what a KV cache will ask of it: before it is made, since a launch that is refused in the
 * middle of a step cannot be taken back. What depends on the kernel alone fits everywhere (DCI_GPU_CUDA_MIN_SHARED). */
#include "gpu/gpu_internal.h"

#include "gpu/cuda/launchers.h"

static dci_status check_choice(const dci_gpu_cuda *cuda, const dci_gpu_needs *n)
{
        const size_t select = dci_gpu_cuda_select_bytes(n->stride),
                     kept = n->keeps ? dci_gpu_cuda_reuse_bytes(n->stride) : 0, most = select > kept ? select : kept;
        if (most > cuda->shared_bytes)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the device cannot plan with a budget of %d: that needs %zu bytes of shared memory, "
                                "this GPU has %zu",
                                (int)n->stride, most, cuda->shared_bytes);
        if (n->tree_shift > 0 && dci_gpu_cuda_tree_bytes(n->stride, n->tree_shift, n->group) > cuda->shared_bytes)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the device cannot plan by trees with a budget of %d in pages of %d for %d query heads",
                                (int)n->stride, 1 << n->tree_shift, (int)n->group);
        if (n->codes && dci_gpu_cuda_encode_learned_bytes(n->dim) > cuda->shared_bytes)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "the device cannot plan with learned codes of %d elements: they need %zu bytes of "
                                "shared memory, this GPU has %zu",
                                (int)n->dim, dci_gpu_cuda_encode_learned_bytes(n->dim), cuda->shared_bytes);
        return DCI_OK;
}

dci_status dci_gpu_cuda_fits(const dci_gpu_cuda *cuda, const dci_gpu_needs *n)
{
        const size_t attend = dci_gpu_cuda_attend_bytes(n->dim, n->group),
                     resolve = n->resolves ? dci_gpu_cuda_resolve_bytes(n->stride, n->n_frames, n->places) : 0;
        if (attend > cuda->shared_bytes)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "attention of %d query heads for a kv head of %d elements needs %zu bytes of shared "
                                "memory, this GPU has %zu",
                                (int)n->group, (int)n->dim, attend, cuda->shared_bytes);
        if (resolve > cuda->shared_bytes)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "a budget of %d and %d hot units need %zu bytes of shared memory, this GPU has %zu: "
                                "lower the budget or hot_tokens",
                                (int)n->stride, (int)n->n_frames, resolve, cuda->shared_bytes);
        if (n->gathers && n->n_lists > DCI_GPU_MAX_LISTS)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "a step of max_sequences has %zu lists, but a GPU gathers for %d at most", n->n_lists,
                                DCI_GPU_MAX_LISTS);
        return n->plans ? check_choice(cuda, n) : DCI_OK;
}
