/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Giving back memory that no sequence uses. */
#include "core/internal.h"

#include "kv/lookup.h"
#include "offload/copies.h"
#include "offload/history.h"
#include "offload/pool.h"
#include "offload/prompt.h"
#include "offload/prompt_kmeans.h"
#include "offload/summaries.h"

static dci_status trim(dci_gpu_kv *kv, int32_t what)
{
        if (what != DCI_GPU_TRIM_BUFFERS && what != DCI_GPU_TRIM_ALL)
                return dci_fail(DCI_ERR_INVALID, "what is %d, expected %d (BUFFERS) or %d (ALL)", (int)what,
                                DCI_GPU_TRIM_BUFFERS, DCI_GPU_TRIM_ALL);
        if (kv->step.open)
                return dci_fail(DCI_ERR_INVALID, "a step is open: end it, or take it back");
        DCI_TRY(dci_gpu_kv_drain(kv));
        dci_gpu_kv_prompts_trim(kv);
        dci_gpu_kv_history_free(kv);
        dci_gpu_kv_prompt_kmeans_trim(kv);
        if (what == DCI_GPU_TRIM_BUFFERS)
                return DCI_OK;
        DCI_TRY(dci_kv_lock(kv->host));
        dci_kv_pool_trim(kv->host, &kv->host->pool);
        dci_kv_pool_trim(kv->host, &kv->host->copies);
        dci_kv_unlock(kv->host);
        dci_gpu_kv_dense_trim(kv);
        dci_gpu_kv_planner_trim(kv);
        dci_gpu_kv_copies_trim(kv);
        return DCI_OK;
}

dci_status dci_gpu_kv_trim(dci_gpu_kv *kv, int32_t what)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, trim(kv, what));
}
