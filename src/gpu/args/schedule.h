/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * When lists are decided again, on a device: what src/kv/stages/schedule.c does between plans. The host never learns whether a plan decides, so
 * the same kernels are launched for every plan, and those that choose (args/select.h) leave out the lists that are not due:
 *
 *      gate                            whose lists are due, by queries or by the number of plans
 *      score, choose (due: NOW)        into what is kept of the layer
 *      take                            the plan's lists from what is kept
 *      score, choose (due: LATER)      for the next plan; nothing of this plan waits for it
 */
#ifndef DCI_GPU_ARGS_SCHEDULE_H
#define DCI_GPU_ARGS_SCHEDULE_H

#include "gpu/args/select.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a row's dci_gpu_selection_cache.state. */
enum {
        DCI_GPU_SELECTION_LISTED, /* there are lists */
        DCI_GPU_SELECTION_END,    /* candidates that they were chosen from */
        DCI_GPU_SELECTION_SINCE,  /* plans with them */
        DCI_GPU_SELECTION_INTS = 4
};

#define DCI_GPU_MAX_HEADS 1024 /* query heads of a layer: DCI_KV_MAX_HEADS */

/* A list that is due. */
enum { DCI_GPU_DUE_NOW = 1, DCI_GPU_DUE_LATER };

/* Ways of the gate. */
enum {
        DCI_GPU_GATE_PERIOD = 1, /* all heads, after `period` plans */
        DCI_GPU_GATE_BOUNDARY,   /* all heads, where the mean of their mean cosines is less than tau */
        DCI_GPU_GATE_HEAD        /* each head: where its mean cosine is less than tau NOW, else LATER */
};

/**
 * Which lists of a layer are due, and the state after the plan. Of sequences that are not sparse no list is due, and nothing else is
 * written. Without lists all are due NOW. Cosines are of this plan's queries with those that are kept, which these become (not with
 * PERIOD): products are summed in binary64 and rounded to binary32, from there on all is as in src/kv/stages/schedule.c.
 *
 * turned: where queries turned that had lists, the byte of the row's last token becomes 1; no other is written, and none is read. It may lie
 * in locked memory of the host.
 */
typedef struct dci_gpu_gate_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t how, period, query_dtype;
        float scale;
        double tau;
        dci_gpu_sizes sizes;
        const void *queries; /* [sequence][n_heads * group] rows, query_ld elements apart */
        uint64_t query_ld;
        const int32_t *rows, *n_tokens, *n_grouped; /* by sequence of the call */
        dci_gpu_selection_cache decided;
        int32_t *due; /* by list of the call: 0 or DCI_GPU_DUE_* */
        unsigned char
                *turned; /* TURN: NULL, or [row], turned_step bytes apart, one for each token modulo a power of two */
        uint64_t turned_step;
        int32_t turned_mask, reserved; /* that power less one */
} dci_gpu_gate_args;

/**
 * The plan's lists from what is kept, as take_list of src/kv/stages/schedule.c: candidates below n_candidates, the first that there is room for.
 * Out, as `choose` writes it: positions ascending and each once, counts, sink_end, recent_begin, after.
 * scores, if given: [list][most_groups][group], those of the list's candidates (groups of one) become -FLT_MAX, for a tail that reads them.
 * Without decided.lists nothing is taken: scores are of the candidates in positions.
 */
typedef struct dci_gpu_take_kept_args {
        int32_t n_sequences, n_heads, group, stride;
        int32_t max_groups, reserved;
        dci_gpu_sizes sizes;
        const int32_t *rows, *n_tokens, *n_grouped;
        dci_gpu_selection_cache decided;
        float *scores;
        int32_t *positions, *counts;
        int32_t *sink_end, *recent_begin, *after; /* by sequence of the call */
} dci_gpu_take_kept_args;

void dci_gpu_ref_gate(const dci_gpu_gate_args *args);
void dci_gpu_ref_take_kept(const dci_gpu_take_kept_args *args);

#ifdef __cplusplus
}
#endif
#endif
