/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What kernels are told that attend, on a device, to tokens that were not chosen (dci/kv.h: tails), and that form what this takes. As
 * args/select.h.
 */
#ifndef DCI_GPU_ARGS_TAIL_H
#define DCI_GPU_ARGS_TAIL_H

#include "gpu/args/select.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Attention over a list's candidates that were not chosen, by low-bit values: the softmax of scores (of single candidates; those chosen are
 * -FLT_MAX, see `drop` of choose) times values as src/kv/stages/tail_lowbit.c keeps them, tail_at bytes into each head's part of a chunk. out,
 * lse: of each query head as attend takes them; -infinity where nothing is left, or the sequence attends to all.
 */
typedef struct dci_gpu_tail_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t bits, n_parts, max_groups, tail_at; /* n_parts: the list is cut into, with room for them in `partial` */
        dci_gpu_sizes sizes;
        const int32_t *rows, *n_tokens, *n_grouped; /* by sequence of the call */
        const float *scores;
        dci_gpu_chunks chunks;
        const float *signs, *centres; /* of the values' frames; as those of dci_gpu_score_args */
        float *partial;               /* [list][n_parts][group][dim + 2] */
        int32_t *arrived;             /* [list], zeros before and after */
        float *out, *lse;
} dci_gpu_tail_args;

#define DCI_GPU_MAX_PART_PAGES 65536 /* each part of a list has fewer */

/**
 * The same by means of pages: candidate c is of page c >> page_shift, whose mean key and mean value lie keys_at and values_at bytes into
 * each head's part of a chunk, in the type of the rows, one behind the other (src/kv/stages/tail_sums.c). With s tokens in a page, r of them
 * chosen, those that are left have the score scale * (s q . mean - sum of chosen q . k) / (s - r) each, and values that add up to s mean -
 * sum of chosen values; with `whole`, scale * q . mean and (s - r) mean, and no row is read. Pages that were chosen as a whole count
 * nothing.
 *
 * positions, counts: what was chosen, ascending, as choose writes it, [list][stride]; slots: where those rows lie, as attend takes them.
 */
typedef struct dci_gpu_tail_sums_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t dtype, query_dtype, page_shift, whole;
        int32_t n_parts, max_pages,
                stride; /* most_pages: of a list, at most; less than DCI_GPU_MAX_PART_PAGES in each part */
        float scale;
        uint32_t keys_at, values_at;
        dci_gpu_sizes sizes;
        const void *queries; /* [sequence][n_heads * group] rows, query_ld elements apart */
        uint64_t query_ld;
        const int32_t *rows, *n_tokens, *n_grouped; /* by sequence of the call */
        dci_gpu_chunks chunks;
        const int32_t *positions, *counts, *slots; /* slots: NULL where `whole` */
        dci_gpu_lanes lanes;
        dci_gpu_pool pool;
        dci_gpu_tables tables;
        float *partial;   /* [list][n_parts][group][dim + 2] */
        int32_t *arrived; /* [list], zeros before and after */
        float *out, *lse;
} dci_gpu_tail_sums_args;

void dci_gpu_ref_tail(const dci_gpu_tail_args *args);
void dci_gpu_ref_tail_sums(const dci_gpu_tail_sums_args *args);

#ifdef __cplusplus
}
#endif
#endif
