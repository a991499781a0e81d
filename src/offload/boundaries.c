/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Where queries turned, told to the host, whose segments end there (kv/group_segment.c). The gate marks the token in locked memory, in a byte
 * of its own, so that a plan taken again says nothing new:
 *
 *      [sparse layer][row][token modulo DCI_GPU_KV_BOUNDARIES]
 *
 * The host takes marks over when it may form segments, behind the steps that left them, and before two tokens would share a byte. What has been
 * taken over is cleared, and so is what a step leaves that is taken back: no mark outlives its token.
 */
#include "core/internal.h"

#include <string.h>

#include "offload/offload_internal.h"

bool dci_gpu_kv_reports_boundaries(const dci_gpu_kv *kv)
{
        return kv->planner.on && kv->shape.group == DCI_KV_GROUP_SEGMENT && kv->shape.schedule == DCI_KV_BOUNDARY;
}

static unsigned char *marks_of(const dci_gpu_kv *kv, size_t sparse, const dci_gpu_kv_row *row)
{
        return kv->planner.schedule.turned +
               (sparse * kv->config.max_sequences + dci_gpu_kv_row_at(kv, row)) * DCI_GPU_KV_BOUNDARIES;
}

void dci_gpu_kv_boundaries_gate(const dci_gpu_kv *kv, size_t layer, dci_gpu_gate_args *args)
{
        if (!dci_gpu_kv_reports_boundaries(kv))
                return;
        args->turned = dci_gpu_kv_mapped(kv, marks_of(kv, kv->layers[layer].index, kv->rows));
        args->turned_step = DCI_GPU_KV_BOUNDARIES;
        args->turned_mask = DCI_GPU_KV_BOUNDARIES - 1;
}

void dci_gpu_kv_boundaries_open(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        row->turned = row->n;
        for (size_t l = 0; l < kv->n_sparse && dci_gpu_kv_reports_boundaries(kv); l++)
                memset(marks_of(kv, l, row), 0, DCI_GPU_KV_BOUNDARIES);
}

/* The first token that may be marked: a step of no tokens plans for the last one there is. */
static size_t first_marked(const dci_gpu_kv_row *row)
{
        const size_t first = row->turned > 0 ? row->turned - 1 : 0;
        return row->n > first + DCI_GPU_KV_BOUNDARIES ? row->n - DCI_GPU_KV_BOUNDARIES : first;
}

bool dci_gpu_kv_boundaries_full(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t wanted)
{
        const size_t first = row->turned > 0 ? row->turned - 1 : 0;
        return dci_gpu_kv_reports_boundaries(kv) && row->n + wanted > first + DCI_GPU_KV_BOUNDARIES;
}

static dci_status take_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        unsigned char *marks = marks_of(kv, kv->layers[layer].index, row);
        int32_t tokens[DCI_GPU_KV_BOUNDARIES];
        size_t n = 0;
        for (size_t token = first_marked(row); token < row->n; token++)
                if (marks[token % DCI_GPU_KV_BOUNDARIES] != 0)
                        tokens[n++] = (int32_t)token;
        if (n == 0)
                return DCI_OK;
        const dci_status status =
                dci_kv_note_boundaries(kv->host, &dci_gpu_kv_host_sequence(kv, row)->layers[layer], tokens, n);
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                marks[(size_t)tokens[i] % DCI_GPU_KV_BOUNDARIES] = 0;
        return status;
}

dci_status dci_gpu_kv_boundaries_report(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_status status = DCI_OK;
        if (!dci_gpu_kv_reports_boundaries(kv))
                return DCI_OK;
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++)
                if (!kv->layers[l].dense)
                        status = take_layer(kv, row, l);
        if (status == DCI_OK)
                row->turned = row->n;
        return status;
}

void dci_gpu_kv_boundaries_truncate(dci_gpu_kv_row *row)
{
        row->turned = row->turned < row->n ? row->turned : row->n;
}

void dci_gpu_kv_boundaries_abort(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t wanted)
{
        for (size_t l = 0; l < kv->n_sparse && dci_gpu_kv_reports_boundaries(kv) && wanted > 0; l++)
                marks_of(kv, l, row)[(row->n + wanted - 1) % DCI_GPU_KV_BOUNDARIES] = 0;
}
