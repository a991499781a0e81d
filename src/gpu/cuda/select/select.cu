/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Top-k selection: the launcher. The kernel is in cuda/select/select_kernel.cuh. */
#include "gpu/cuda/select/select.h"
#include "gpu/cuda/select/select_part.cuh"

/* Without relevances that are kept. */
extern "C" size_t dci_gpu_cuda_select_bytes(int32_t stride)
{
        Plan plan = {};
        plan.key_room = key_room_of(stride);
        return room_bytes(plan, stride) + sizeof(Shared) + 1024;
}

static dci_status check(const dci_gpu_select_args *args)
{
        if (args->group < 1 || args->group > DCI_GPU_MAX_GROUP)
                return dci_fail(DCI_ERR_LIMIT, "groups of %d query heads: the device's kernel takes 1 to %d",
                                args->group, DCI_GPU_MAX_GROUP);
        if (is_of_units(*args) &&
            (args->group_shift < 2 || args->group_shift > 4 || args->units.wanted < 1 ||
             args->units.wanted >= args->units.stride || args->stride != args->units.stride ||
             args->stride > DCI_GPU_FOUND || args->max_groups % (DCI_GPU_UNIT >> args->group_shift) != 0))
                return dci_fail(DCI_ERR_LIMIT,
                                "%d units of means of 2^%d in lists of %d: the device's kernel takes fewer units than "
                                "%d, and means of 2^2 to 2^4",
                                args->units.wanted, args->group_shift, args->stride, DCI_GPU_FOUND);
        if (args->stride < 1 || args->stride > DCI_GPU_MAX_LIST ||
            (!is_of_units(*args) && args->sizes.budget > args->stride))
                return dci_fail(DCI_ERR_LIMIT,
                                "a budget of %d in lists of %d: the device's kernel takes lists of its budget, and of "
                                "%d at most",
                                args->sizes.budget, args->stride, DCI_GPU_MAX_LIST);
        if (args->n_parts < 1 || args->n_parts > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_LIMIT, "%d parts of scores: the device's kernel takes 1 to %d", args->n_parts,
                                DCI_GPU_MAX_PARTS);
        if (args->weigh < DCI_GPU_WEIGH_KEPT || args->weigh > DCI_GPU_WEIGH_EVEN || args->group_shift < 0 ||
            args->group_shift > 16)
                return dci_fail(
                        DCI_ERR_LIMIT,
                        "weighing %d of pages of 2^%d tokens: the device's kernel takes 1 to %d, and shifts to 16",
                        args->weigh, args->group_shift, DCI_GPU_WEIGH_EVEN);
        if (args->takes != 0 && (args->selection.lists == nullptr || is_of_units(*args)))
                return dci_fail(DCI_ERR_LIMIT, "lists that are to be taken from a selection that is not kept");
        if (args->members != nullptr && (args->n_clusters == nullptr || args->selection.lists != nullptr))
                return dci_fail(DCI_ERR_LIMIT, "members of lists that are not of clusters, or are kept");
        if (args->n_clusters != nullptr && args->group_shift != 0)
                return dci_fail(DCI_ERR_LIMIT, "listed groups that are pages of 2^%d tokens, too", args->group_shift);
        if ((int64_t)args->n_sequences * DCI_GPU_LISTS(args) > DCI_GPU_MAX_LISTS || args->max_groups > 1 << 28)
                return dci_fail(DCI_ERR_LIMIT,
                                "%d sequences of %d heads, of %d groups: the device's kernel takes %d lists of %d",
                                args->n_sequences, args->n_heads, args->max_groups, DCI_GPU_MAX_LISTS, 1 << 28);
        return DCI_OK;
}

extern "C" dci_status dci_gpu_cuda_select(struct dci_gpu *gpu, void *stream, const dci_gpu_select_args *args)
{
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        const dci_status status = check(args);
        if (status != DCI_OK)
                return status;
        const GpuStream on = stream_of(cuda, stream);
        if (is_of_units(*args))
                return dci_gpu_cuda_select_units(cuda, on, args);
        return args->weigh == DCI_GPU_WEIGH_EVEN ? dci_gpu_cuda_select_means(cuda, on, args)
                                                 : dci_gpu_cuda_select_shares(cuda, on, args);
}
