/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Where the gate marks boundaries. */
#include "core/internal.h"

#include <string.h>

#include "offload/boundaries.h"

bool dci_gpu_kv_reports_boundaries(const dci_gpu_kv *kv)
{
        return kv->planner.on && kv->shape.group == DCI_KV_GROUP_SEGMENT && kv->shape.schedule == DCI_KV_BOUNDARY;
}

static unsigned char *row_marks(const dci_gpu_kv *kv, size_t sparse, const dci_gpu_kv_row *row)
{
        return kv->boundaries +
               (sparse * kv->config.max_sequences + dci_gpu_kv_row_number(kv, row)) * DCI_GPU_KV_BOUNDARIES;
}

void dci_gpu_kv_boundaries_gate(const dci_gpu_kv *kv, size_t layer, dci_gpu_gate_args *args)
{
        if (!dci_gpu_kv_reports_boundaries(kv))
                return;
        args->boundaries = dci_gpu_kv_mapped(kv, row_marks(kv, kv->layers[layer].index, kv->rows));
        args->boundary_step = DCI_GPU_KV_BOUNDARIES;
        args->boundary_mask = DCI_GPU_KV_BOUNDARIES - 1;
}

void dci_gpu_kv_boundaries_open(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        row->boundary = row->n;
        for (size_t l = 0; l < kv->n_sparse && dci_gpu_kv_reports_boundaries(kv); l++)
                memset(row_marks(kv, l, row), 0, DCI_GPU_KV_BOUNDARIES);
}

/* The first token that may be marked: a step of no tokens plans for the last one there is. */
static size_t first_marked(const dci_gpu_kv_row *row)
{
        const size_t first = row->boundary > 0 ? row->boundary - 1 : 0;
        return row->n > first + DCI_GPU_KV_BOUNDARIES ? row->n - DCI_GPU_KV_BOUNDARIES : first;
}

bool dci_gpu_kv_boundaries_full(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t wanted)
{
        const size_t first = row->boundary > 0 ? row->boundary - 1 : 0;
        return dci_gpu_kv_reports_boundaries(kv) && row->n + wanted > first + DCI_GPU_KV_BOUNDARIES;
}

static dci_status report_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        unsigned char *marks = row_marks(kv, kv->layers[layer].index, row);
        int32_t tokens[DCI_GPU_KV_BOUNDARIES];
        size_t n = 0;
        for (size_t token = first_marked(row); token < row->n; token++)
                if (marks[token % DCI_GPU_KV_BOUNDARIES] != 0)
                        tokens[n++] = (int32_t)token;
        if (n == 0)
                return DCI_OK;
        DCI_TRY(dci_kv_note_boundaries(kv->host, &dci_gpu_kv_host_sequence(kv, row)->layers[layer], tokens, n));
        for (size_t i = 0; i < n; i++)
                marks[(size_t)tokens[i] % DCI_GPU_KV_BOUNDARIES] = 0;
        return DCI_OK;
}

dci_status dci_gpu_kv_boundaries_report(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        if (!dci_gpu_kv_reports_boundaries(kv))
                return DCI_OK;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (!kv->layers[l].dense)
                        DCI_TRY(report_layer(kv, row, l));
        row->boundary = row->n;
        return DCI_OK;
}

void dci_gpu_kv_boundaries_truncate(dci_gpu_kv_row *row)
{
        row->boundary = row->boundary < row->n ? row->boundary : row->n;
}

void dci_gpu_kv_boundaries_abort(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t wanted)
{
        for (size_t l = 0; l < kv->n_sparse && dci_gpu_kv_reports_boundaries(kv) && wanted > 0; l++)
                row_marks(kv, l, row)[(row->n + wanted - 1) % DCI_GPU_KV_BOUNDARIES] = 0;
}
