/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Devices: opening, closing, what is known of them, and how attention is divided among their multiprocessors. */
#include "gpu/gpu_internal.h"

#include <string.h>

/* How attention is divided. A multiprocessor runs one block at a time; a block costs as much as that many tokens. */
#define BLOCK_TOKENS ((size_t)512)
#define FEWEST_TOKENS ((size_t)64) /* of a split */
#define MAX_UNDIVIDED ((size_t)384)
#define MAX_SPLITS ((size_t)256)
#define MAX_WAVES ((size_t)4)

/* How scores are divided: two blocks run on a multiprocessor at a time; a block takes so long for itself as for that
 * many bytes, and so does one for the tokens that every plan attends to, if it does not fit next to the others. */
#define SCORE_BLOCKS ((size_t)2)
#define SCORE_BYTES ((size_t)24 << 10)
#define FEWEST_SCORE_BYTES ((size_t)16 << 10) /* of a part */

dci_status dci_gpu_config_init(dci_gpu_config *config, size_t struct_size)
{
        return dci_struct_init("dci_gpu_config", config, struct_size, sizeof *config);
}

dci_status dci_gpu_info_init(dci_gpu_info *info, size_t struct_size)
{
        return dci_struct_init("dci_gpu_info", info, struct_size, sizeof *info);
}

dci_status dci_gpu_count(int32_t *out_count)
{
        if (out_count == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_count is NULL");
        const dci_gpu_ops *ops = dci_gpu_ops_cuda();
        return ops == NULL ? DCI_ERR_UNSUPPORTED : ops->count(out_count);
}

static dci_status check_config(const dci_gpu_config *config)
{
        DCI_TRY(dci_check_struct_size("dci_gpu_config", config, config->struct_size, sizeof *config));
        if (config->reserved != 0)
                return dci_fail(DCI_ERR_INVALID, "dci_gpu_config.reserved is %d, expected 0", (int)config->reserved);
        if (config->device < DCI_GPU_HOST)
                return dci_fail(DCI_ERR_INVALID, "device is %d, expected 0 and up, or DCI_GPU_HOST (%d)",
                                (int)config->device, (int)DCI_GPU_HOST);
        return DCI_OK;
}

dci_status dci_gpu_create(dci_context *context, const dci_gpu_config *config, dci_gpu **out_gpu)
{
        dci_gpu_config defaults;
        if (context == NULL || out_gpu == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", context == NULL ? "context" : "out_gpu");
        if (config == NULL) {
                dci_gpu_config_init(&defaults, sizeof defaults);
                config = &defaults;
        }
        DCI_TRY(check_config(config));
        const dci_gpu_ops *ops = config->device == DCI_GPU_HOST ? &dci_gpu_ops_host : dci_gpu_ops_cuda();
        if (ops == NULL)
                return DCI_ERR_UNSUPPORTED;
        dci_gpu *gpu = dci_calloc(context, 1, sizeof *gpu);
        if (gpu == NULL)
                return DCI_ERR_MEMORY;
        gpu->context = context;
        gpu->ops = ops;
        gpu->device = config->device;
        dci_gpu_info_init(&gpu->info, sizeof gpu->info);
        atomic_init(&gpu->n_objects, 1);
        const dci_status status = ops->open(gpu, config->device);
        if (status != DCI_OK) {
                dci_free(context, gpu, 1, sizeof *gpu);
                return status;
        }
        dci_context_retain(context);
        *out_gpu = gpu;
        return DCI_OK;
}

void dci_gpu_retain(dci_gpu *gpu)
{
        atomic_fetch_add_explicit(&gpu->n_objects, 1, memory_order_relaxed);
}

void dci_gpu_destroy(dci_gpu *gpu)
{
        if (gpu == NULL || atomic_fetch_sub_explicit(&gpu->n_objects, 1, memory_order_acq_rel) != 1)
                return;
        dci_context *context = gpu->context;
        gpu->ops->close(gpu);
        dci_free(context, gpu, 1, sizeof *gpu);
        dci_context_destroy(context);
}

dci_status dci_gpu_get_info(dci_gpu *gpu, dci_gpu_info *out_info)
{
        if (gpu == NULL || out_info == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", gpu == NULL ? "gpu" : "out_info");
        size_t free_bytes;
        DCI_TRY(dci_check_struct_size("dci_gpu_info", out_info, out_info->struct_size, sizeof *out_info));
        DCI_TRY(gpu->ops->free_bytes(gpu, &free_bytes));
        const size_t struct_size = out_info->struct_size;
        *out_info = gpu->info;
        out_info->struct_size = struct_size;
        out_info->free_bytes = free_bytes;
        return DCI_OK;
}

dci_status dci_gpu_check_shape(int32_t group, int32_t dim)
{
        if (group < 1 || group > DCI_GPU_MAX_GROUP)
                return dci_fail(DCI_ERR_UNSUPPORTED, "%d query heads share a kv head, expected 1 to %d", (int)group,
                                DCI_GPU_MAX_GROUP);
        if (dim != 64 && dim != 96 && dim != 128 && dim != DCI_GPU_MAX_DIM)
                return dci_fail(DCI_ERR_UNSUPPORTED, "rows have %d elements, expected 64, 96, 128 or %d", (int)dim,
                                DCI_GPU_MAX_DIM);
        return DCI_OK;
}

/* Lists that are divided among blocks, of which at_once run at the same time. */
typedef struct division {
        size_t n_lists, at_once;
        size_t size, block; /* of a list; what a block takes for itself: both in tokens, or in bytes */
        size_t beside;      /* further blocks, of the same size, which start where one has room */
} division;

/* The best number of parts up to `most`. Waves of blocks, each as long as its part: a few blocks more than fit at once
 * would take as long as all. Parts are not rounded, so longer lists never have fewer, and room for the longest is
 * enough. */
static int32_t parts_of(const division *d, size_t most)
{
        size_t best = 1, least = 0; /* least: what the best takes, times as many */
        for (size_t n = 1; n <= most; n++) {
                const size_t waves = (d->n_lists * n + d->at_once - 1) / d->at_once;
                const size_t room = waves * d->at_once - d->n_lists * n;
                const size_t cost = waves * (d->size + d->block * n) + (room < d->beside ? d->block * n : 0);
                if (n == 1 || cost * best < least * n) {
                        least = cost;
                        best = n;
                }
        }
        return (int32_t)best;
}

static size_t min_of(size_t a, size_t b)
{
        return a < b ? a : b;
}

int32_t dci_gpu_splits(const dci_gpu *gpu, size_t n_sequences, size_t n_heads, size_t n_tokens)
{
        const size_t n_lists = n_sequences * n_heads, at_once = (size_t)gpu->info.multiprocessors;
        if (n_tokens <= MAX_UNDIVIDED || n_lists == 0)
                return 1;
        const division all = {n_lists, at_once, n_tokens, BLOCK_TOKENS, 0};
        const size_t most = min_of(n_tokens / FEWEST_TOKENS, MAX_SPLITS);
        return parts_of(&all, min_of(most, MAX_WAVES * at_once / n_lists + 1));
}

int32_t dci_gpu_score_parts(const dci_gpu *gpu, size_t n_lists, size_t n_groups, size_t group_bytes)
{
        const size_t n_bytes = n_groups * group_bytes, at_once = SCORE_BLOCKS * (size_t)gpu->info.multiprocessors;
        if (n_lists == 0 || at_once == 0)
                return 1;
        const division all = {n_lists, at_once, n_bytes, SCORE_BYTES, n_lists};
        return parts_of(&all, min_of(n_bytes / FEWEST_SCORE_BYTES, DCI_GPU_MAX_PARTS));
}

size_t dci_gpu_partial_bytes(size_t n_lists, int32_t n_splits, size_t dim)
{
        size_t n;
        if (n_splits <= 1 || n_lists == 0)
                return 0;
        if (!dci_mul(n_lists, (size_t)n_splits, &n) || !dci_mul(n, DCI_GPU_MAX_GROUP * (dim + 2) * sizeof(float), &n) ||
            n > PTRDIFF_MAX)
                return SIZE_MAX;
        return dci_lines(n) + dci_lines(n_lists * sizeof(int32_t));
}
