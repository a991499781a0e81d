/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/select/gate.cu: decides which lists are due, and writes lists from the selection cache. */
#include "gpu/gpu_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "gpu/host/reference.h"

/* --- the gate ----------------------------------------------------------------------------------------------------- */

/* The cosine of a query with the cached one, which it replaces. */
static double cosine_of(const dci_gpu_gate_args *args, uint64_t query, float *kept)
{
        double of_now = 0.0, of_both = 0.0, of_kept = 0.0;
        for (uint64_t j = 0; j < (uint64_t)args->dim; j++) {
                const float x =
                        dci_gpu_load(args->queries, query * args->query_ld + j, args->query_dtype) * args->scale;
                of_now += (double)x * (double)x;
                of_both += (double)x * (double)kept[j];
                of_kept += (double)kept[j] * (double)kept[j];
                kept[j] = x;
        }
        const float now = (float)of_now, both = (float)of_both, before = (float)of_kept;
        if (now == 0.0f || before == 0.0f)
                return now == before ? 1.0 : 0.0;
        return (double)both / sqrt((double)now * (double)before);
}

/* By kv head, the mean cosine of its queries; returns the mean of all. */
static double cosines_of(const dci_gpu_gate_args *args, uint64_t sequence, double *out)
{
        const dci_gpu_selection_cache *d = &args->selection;
        float *kept = dci_gpu_of_row(d->queries, d->row_bytes, args->rows[sequence]);
        double of_all = 0.0;
        for (int32_t h = 0; h < args->n_heads; h++) {
                double sum = 0.0;
                for (int32_t q = 0; q < args->group; q++) {
                        const uint64_t at = (uint64_t)(h * args->group + q);
                        sum += cosine_of(args, sequence * (uint64_t)(args->n_heads * args->group) + at,
                                         kept + at * (uint64_t)args->dim);
                }
                out[h] = sum / (double)args->group;
                of_all += out[h];
        }
        return of_all / (double)args->n_heads;
}

/* Marks the token at which the host's next segment begins. */
static void mark_boundary(const dci_gpu_gate_args *args, int32_t sequence)
{
        const int32_t last = args->n_tokens[sequence] - 1;
        if (args->boundaries != NULL)
                args->boundaries[(uint64_t)args->rows[sequence] * args->boundary_step +
                                 (uint64_t)(last & args->boundary_mask)] = 1;
}

static void gate(const dci_gpu_gate_args *args, int32_t sequence, const dci_gpu_view *view, double *cosines)
{
        const dci_gpu_selection_cache *d = &args->selection;
        int32_t *state = dci_gpu_of_row(d->state, d->row_bytes, args->rows[sequence]);
        int32_t *due = args->due + sequence * args->n_heads;
        const bool listed = state[DCI_GPU_SELECTION_LISTED] != 0;
        bool decides = !listed;
        double all = 0.0;
        if (args->how != DCI_GPU_GATE_PERIOD)
                all = cosines_of(args, (uint64_t)sequence, cosines);
        /* NaN, from queries that are too large, counts as a boundary. */
        if (args->how == DCI_GPU_GATE_PERIOD)
                decides = decides || state[DCI_GPU_SELECTION_SINCE] >= args->period;
        else if (args->how == DCI_GPU_GATE_BOUNDARY)
                decides = decides || !(all >= args->tau);
        else
                decides = true;
        for (int32_t h = 0; h < args->n_heads; h++) {
                const bool keeps = args->how == DCI_GPU_GATE_HEAD && listed && cosines[h] >= args->tau;
                due[h] = !decides ? 0 : keeps ? DCI_GPU_DUE_LATER : DCI_GPU_DUE_NOW;
        }
        state[DCI_GPU_SELECTION_SINCE] = decides ? 1 : state[DCI_GPU_SELECTION_SINCE] + 1;
        if (!decides)
                return;
        if (listed)
                mark_boundary(args, sequence);
        state[DCI_GPU_SELECTION_LISTED] = 1;
        state[DCI_GPU_SELECTION_END] = view->n_candidates;
}

void dci_gpu_ref_gate(const dci_gpu_gate_args *args)
{
        double cosines[DCI_GPU_MAX_HEADS];
        for (int32_t i = 0; i < args->n_sequences; i++) {
                dci_gpu_view view;
                DCI_GPU_VIEW(view, args->sizes, args->n_tokens[i], args->n_grouped[i]);
                for (int32_t h = 0; h < args->n_heads; h++)
                        args->due[i * args->n_heads + h] = 0;
                if (view.sparse)
                        gate(args, i, &view, cosines);
        }
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

/* Excludes the list's candidates from what a tail sums. */
static void drop(const dci_gpu_reuse_args *args, uint64_t list)
{
        const int32_t *positions = args->positions + list * (uint64_t)args->stride;
        for (int32_t i = 0; i < args->counts[list] && args->scores != NULL; i++) {
                const uint64_t candidate = (uint64_t)(positions[i] - args->sizes.sink);
                for (int32_t q = 0; q < args->group; q++)
                        args->scores[(list * (uint64_t)args->max_groups + candidate) * (uint64_t)args->group +
                                     (uint64_t)q] = -FLT_MAX;
        }
}

static void take(const dci_gpu_reuse_args *args, uint64_t list, int32_t row, int32_t head, const dci_gpu_view *view)
{
        const dci_gpu_selection_cache *d = &args->selection;
        const int32_t *counts = dci_gpu_of_row(d->counts, d->row_bytes, row);
        const int32_t *kept =
                (const int32_t *)dci_gpu_of_row(d->lists, d->row_bytes, row) + (uint64_t)head * (uint64_t)d->room;
        const int32_t room = view->room < args->stride ? view->room : args->stride;
        int32_t *positions = args->positions + list * (uint64_t)args->stride, n = 0, each = 0;
        for (int32_t i = 0; i < counts[head] && n < room; i++) {
                int32_t at = each;
                if (kept[i] >= view->n_candidates)
                        continue;
                n++;
                const int32_t position = args->sizes.sink + kept[i];
                while (at > 0 && positions[at - 1] > position)
                        at--;
                if (at > 0 && positions[at - 1] == position) /* a damaged file may name a token twice */
                        continue;
                memmove(positions + at + 1, positions + at, (size_t)(each++ - at) * sizeof *positions);
                positions[at] = position;
        }
        args->counts[list] = each;
}

void dci_gpu_ref_reuse(const dci_gpu_reuse_args *args)
{
        for (int32_t i = 0; i < args->n_sequences; i++) {
                dci_gpu_view view;
                DCI_GPU_VIEW(view, args->sizes, args->n_tokens[i], args->n_grouped[i]);
                for (int32_t h = 0; h < args->n_heads; h++) {
                        const uint64_t list = (uint64_t)i * (uint64_t)args->n_heads + (uint64_t)h;
                        if (args->selection.lists != NULL) {
                                args->counts[list] = 0;
                                if (view.sparse)
                                        take(args, list, args->rows[i], h, &view);
                        }
                        drop(args, list);
                }
                if (args->selection.lists == NULL)
                        continue;
                args->sink_end[i] = view.sparse ? args->sizes.sink : 0;
                args->recent_begin[i] = view.sparse ? args->sizes.sink + view.n_candidates : 0;
                args->after[i] = args->n_tokens[i];
        }
}
