/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of the kernels that decide when a layer selects again: src/kv/stages/schedule.c on a device. The host never
 * learns whether a plan selects, so the same kernels are launched for every plan, and those that select (args/select.h)
 * skip the lists that are not due:
 *
 *      gate                            marks the lists that are due, by queries or by the number of plans
 *      score, select (due: NOW)        writes the layer's selection cache, and (takes) the plan's lists from it
 *      reuse                           writes these where nothing was selected, or where a tail reads scores
 *      score, select (due: LATER)      selects for the next plan; nothing of this plan waits for it
 *
 * gate and reuse read nothing of a kv head: their n_heads is the number of lists of a sequence. */
#ifndef DCI_GPU_ARGS_SCHEDULE_H
#define DCI_GPU_ARGS_SCHEDULE_H

#include "gpu/args/select.h"

/* Of a row's dci_gpu_selection_cache.state. */
enum {
        DCI_GPU_SELECTION_LISTED, /* there are lists */
        DCI_GPU_SELECTION_END,    /* candidates that they were selected from */
        DCI_GPU_SELECTION_SINCE,  /* plans that used them */
        DCI_GPU_SELECTION_INTS = 4
};

#define DCI_GPU_MAX_HEADS 1024 /* query heads of a layer: DCI_KV_MAX_HEADS */

/* A list that is due. */
enum { DCI_GPU_DUE_NOW = 1, DCI_GPU_DUE_LATER };

/* How the gate decides. */
enum {
        DCI_GPU_GATE_PERIOD = 1, /* all heads, after `period` plans */
        DCI_GPU_GATE_BOUNDARY,   /* all heads, where the mean of their mean cosines is less than tau */
        DCI_GPU_GATE_HEAD        /* each head: where its mean cosine is less than tau NOW, else LATER */
};

/** Marks which lists of a layer are due, and writes the state after the plan. Lists of sequences that are not sparse
 * are not due, and nothing else is written for them. All lists are due NOW where the cache has none. Cosines compare
 * this plan's queries with those in the cache, which this plan's replace (not with PERIOD): products are summed in
 * binary64 and rounded to binary32; the rest is as in src/kv/stages/schedule.c.
 *
 * boundaries: at a boundary of a row that had lists, the byte of the row's last token becomes 1. No other byte is
 * written, and none is read. The array may be locked memory of the host. */
typedef struct dci_gpu_gate_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t how, period, query_dtype;
        float scale;
        double tau;
        dci_gpu_sizes sizes;
        const void *queries; /* [sequence][n_heads * group] rows, query_ld elements apart */
        uint64_t query_ld;
        const int32_t *rows, *n_tokens, *n_grouped; /* by sequence of the call */
        dci_gpu_selection_cache selection;
        int32_t *due; /* by list of the call: 0 or DCI_GPU_DUE_* */
        /* BOUNDARY: NULL, or [row], boundary_step bytes apart: a byte per token modulo boundary_mask + 1, a power of
         * 2 */
        unsigned char *boundaries;
        uint64_t boundary_step;
        int32_t boundary_mask, reserved;
} dci_gpu_gate_args;

/** Writes the plan's lists from the selection cache, as take_list of src/kv/stages/schedule.c: the first candidates
 * below n_candidates that there is room for. Out, as `select` writes it: positions ascending and each once, counts,
 * sink_end, recent_begin, after. scores, if given: [list][max_groups][group]; the scores of the list's candidates
 * (groups of one) become -FLT_MAX, for a tail that reads them. Without selection.lists no list is written, and scores
 * are those of the candidates in positions. */
typedef struct dci_gpu_reuse_args {
        int32_t n_sequences, n_heads, group, stride;
        int32_t max_groups, reserved;
        dci_gpu_sizes sizes;
        const int32_t *rows, *n_tokens, *n_grouped;
        dci_gpu_selection_cache selection;
        float *scores;
        int32_t *positions, *counts;
        int32_t *sink_end, *recent_begin, *after; /* by sequence of the call */
} dci_gpu_reuse_args;

#endif
