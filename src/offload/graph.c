/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Steps as CUDA graphs. Launches read the step's record and all sizes that grow from device memory, so a captured
 * launch stays valid: what remains is to size it for longer sequences, and to account for replayed steps, whose layers
 * the host does not see. */
#include "core/internal.h"

#include "offload/orders.h"
#include "offload/pool.h"
#include "offload/summaries.h"

/* Tokens of the longest sequence after the step. */
static size_t longest(const dci_gpu_kv *kv)
{
        size_t most = 0;
        for (size_t i = 0; i < kv->step.n; i++) {
                const size_t after = kv->rows[kv->step.rows[i]].n + kv->step.wanted[i];
                most = after > most ? after : most;
        }
        return most;
}

static dci_status check(dci_gpu_kv *kv, void *stream, size_t max_tokens)
{
        DCI_TRY(dci_gpu_kv_check_step(kv, stream, 0));
        if (kv->n_sparse > 0 && !kv->planner.on)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the host plans, which a graph cannot wait for");
        for (size_t i = 0; i < kv->step.n; i++)
                if (kv->step.wanted[i] != 1)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld has %zu tokens in this step, expected 1",
                                        (long long)kv->step.ids[i], kv->step.wanted[i]);
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (kv->layers[l].appended)
                        return dci_fail(DCI_ERR_INVALID, "layer %zu has got its rows in this step already", l);
        if (max_tokens > kv->config.max_tokens)
                return dci_fail(DCI_ERR_INVALID, "max_tokens is %zu, expected at most the config's %zu", max_tokens,
                                kv->config.max_tokens);
        if (max_tokens > 0 && longest(kv) > max_tokens)
                return dci_fail(DCI_ERR_LIMIT, "a sequence has %zu tokens after this step, but max_tokens is %zu",
                                longest(kv), max_tokens);
        return DCI_OK;
}

/* Locks the object and checks that the step may be a graph. */
static dci_status begin(dci_gpu_kv *kv, void *stream, size_t max_tokens)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        const dci_status status = check(kv, stream, max_tokens);
        return status == DCI_OK ? DCI_OK : dci_gpu_kv_unlock(kv, status);
}

dci_status dci_gpu_kv_capture(dci_gpu_kv *kv, void *stream, size_t max_tokens)
{
        DCI_TRY(begin(kv, stream, max_tokens));
        kv->step.bound = max_tokens > 0 ? max_tokens : kv->config.max_tokens;
        return dci_gpu_kv_unlock(kv, DCI_OK);
}

static dci_status replay(dci_gpu_kv *kv)
{
        /* The host reads no row, but checks the pointers. */
        const dci_kv_rows rows = {.struct_size = sizeof rows, .keys = kv->device_record, .values = kv->device_record};
        for (size_t i = 0; i < kv->step.n; i++)
                DCI_TRY(dci_gpu_kv_check_prompted(kv, &kv->rows[kv->step.rows[i]]));
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                DCI_TRY(dci_kv_append_later(kv->host, l, kv->step.n, kv->step.ids, kv->step.wanted, &rows));
                kv->layers[l].appended = true;
                kv->layers[l].rows.keys = NULL; /* those of the capture, which may be gone */
                dci_gpu_kv_orders_planned(kv, l);
        }
        kv->step.bound = kv->config.max_tokens;
        for (size_t i = 0; i < kv->step.n && kv->planner.on; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                row->hot_end = row->n + 1;
        }
        kv->bytes_written += (uint64_t)kv->step.n * kv->shape.n_layers * kv->shape.n_kv_heads * 2 * kv->row_bytes;
        return DCI_OK;
}

dci_status dci_gpu_kv_replay(dci_gpu_kv *kv, void *stream, size_t max_tokens)
{
        DCI_TRY(begin(kv, stream, max_tokens));
        return dci_gpu_kv_unlock(kv, replay(kv));
}
