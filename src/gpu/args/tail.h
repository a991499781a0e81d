/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of the kernels that attend to tokens that were not selected (tails); conventions: args/select.h. */
#ifndef DCI_GPU_ARGS_TAIL_H
#define DCI_GPU_ARGS_TAIL_H

#include "gpu/args/select.h"

/** Attends to a list's candidates that were not selected, by low-bit values: the softmax of scores (of single
 * candidates; selected ones have -FLT_MAX, see `drop` of select) times values as src/kv/stages/tail_lowbit.c stores
 * them, tail_at bytes into each head's part of a chunk. out, lse: of each query head as attend takes them; -infinity
 * where no candidate is left, or the sequence attends to all. */
typedef struct dci_gpu_tail_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t bits, n_parts, max_groups, tail_at; /* n_parts: parts of a list, with room for them in `partial` */
        int32_t head_lists, reserved;
        dci_gpu_sizes sizes;
        const int32_t *rows, *n_tokens, *n_grouped; /* by sequence of the call */
        const float *scores;
        dci_gpu_chunks chunks;
        const float *signs, *centres; /* of the values' transforms; as those of dci_gpu_score_args */
        float *partial;               /* [list][n_parts][group][dim + 2] */
        int32_t *arrived;             /* [list], zeros before and after */
        float *out, *lse;
} dci_gpu_tail_args;

#define DCI_GPU_MAX_PART_PAGES 65536 /* each part of a list has fewer */

/** The same by means of pages: candidate c belongs to page c >> page_shift, whose mean key and mean value are keys_at
 * and values_at bytes into each head's part of a chunk, in the type of the rows (src/kv/stages/tail_sums.c). With s
 * tokens in a page, r of them selected, each of the others has the score scale * (s q . mean - sum of selected q . k) /
 * (s - r), and their values add up to s mean - sum of selected values; with `whole`, scale * q . mean and (s - r) mean,
 * and no row is read. Pages that were selected whole have no part in it.
 *
 * positions, counts: selected tokens, ascending, as from select, [list][stride]; slots: their rows, as in attend. */
typedef struct dci_gpu_tail_sums_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t dtype, query_dtype, page_shift, whole;
        int32_t n_parts, max_pages, stride; /* max_pages: of a list; fewer than DCI_GPU_MAX_PART_PAGES in each part */
        float scale;
        uint32_t keys_at, values_at;
        int32_t head_lists, reserved;
        dci_gpu_sizes sizes;
        const void *queries; /* [sequence][n_lists * group] rows, query_ld elements apart */
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

/** The same by means of clusters. Of each cluster that `members` of select does not drop, those members have part in it
 * that are candidates and not selected: a cluster's members ascend, selected ones come first, and ids from n_candidates
 * on last. With s members, r of them left, each of the r has the score (s m - sum of the others' scale * q . k) / r, m
 * the cluster's score as the selection has it, and their values add up to s mean - sum of the others' values; where no
 * more are left than not, the sums of those that are left (src/kv/stages/tail_lists.c). Keys and values of single
 * members are read from the lanes or, beyond the ring, the pool.
 *
 * clusters: in each head's part of a chunk of DCI_GPU_CHUNK clusters are mean values, values_at bytes into it, in the
 * type of the rows, and {first, number} of members, spans_at bytes into it; ids, n_clusters: as in select.
 *
 * early: another kernel was queued after the selection, and queries are older than that one: all may be read while that
 * other kernel still runs, and partial, arrived, out and lse be written. */
typedef struct dci_gpu_tail_clusters_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t dtype, query_dtype, n_parts, max_groups; /* n_parts: parts of a list, with room for them in `partial` */
        float scale;
        uint32_t values_at, spans_at;
        int32_t head_lists, early;
        dci_gpu_sizes sizes;
        const void *queries; /* [sequence][n_lists * group] rows, query_ld elements apart */
        uint64_t query_ld;
        const int32_t *rows, *n_tokens, *n_grouped; /* by sequence of the call */
        const int32_t *n_clusters;                  /* [row][head] */
        const float *scores;                        /* [list][max_groups][group] */
        const int32_t *members;                     /* [list][max_groups] */
        dci_gpu_chunks clusters, ids;
        dci_gpu_lanes lanes;
        dci_gpu_pool pool;
        dci_gpu_tables tables;
        float *partial;   /* [list][n_parts][group][dim + 2] */
        int32_t *arrived; /* [list], zeros before and after */
        float *out, *lse;
} dci_gpu_tail_clusters_args;

#endif
