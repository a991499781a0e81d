/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of the kernel that scores by votes of blocks, then 4-bit codes (src/kv/stages/summary_votes.c). Words
 * are those of args/select.h, and
 *  - block: eight coordinates of a rotated key; its code: a byte, bit j set where coordinate j is not negative.
 *
 * A head's part of a chunk of 512 candidates, with n = dim / 8 blocks: [n][512] codes, then [512] records of [n] 4
 * bytes, a nibble per coordinate, and [n] weights as bf16 */
#ifndef DCI_GPU_ARGS_VOTES_H
#define DCI_GPU_ARGS_VOTES_H

#include "gpu/args/select.h"
#include "sketch/votes.h"

#define DCI_GPU_VOTE_RANGE 1024 /* candidates whose votes one block of threads counts */
#define DCI_GPU_VOTE_BINS 256   /* numbers of votes, at most 6 * 32, of which there is one more */
#define DCI_GPU_VOTE_WORDS 32   /* of a block's table: a nibble for each code */

/** Scores the candidates of each list that is due which have most votes.
 *
 * score: as for `score`, of kind VOTES; its units are out: lists [list][stride], the candidates that have scores,
 * ascending, and n_scored, 0 where all have; singles is 1. parts: of which scores each one is, is open. Queries may
 * have been written by the last kernel; chunks may be by the kernel before that, if `fresh` is not set.
 *
 * The mean over the group of the rotated queries votes: each code of a block is scored by the product with its
 * signs, added up in the coordinates' order; it has one vote for every tier (DCI_VOTE_RATIOS) that the candidates of
 * better codes, equal ones by number, do not fill. A candidate's votes are the sum over its blocks. All of this is
 * exact, as on the CPU; estimates are sums of products in binary32 of levels times weights with the queries, in any
 * order.
 *
 * counts: by block, the codes of the first `counted` candidates, in and out: brought up to date. counted 0: counts
 * are worthless. Three launches: tables, votes, estimates. */
typedef struct dci_gpu_vote_args {
        dci_gpu_score_args score;
        double vote_share, candidate_share; /* 0: as published, by the number of candidates */
        int32_t least;                      /* candidates that are scored, at least */
        int32_t max_ranges;                 /* of a list's candidates: room */
        int32_t n_ranges, reserved;         /* n_ranges: no list has more now */
        uint32_t *counts;                   /* of row 0: [head][block][256] */
        int32_t *counted;                   /* of row 0: [head][block] */
        uint64_t row_counts, row_counted;   /* numbers from one row to the next */
        /* What the launches leave for each other. */
        float *queries;     /* [list][group][dim]: rotated, times the scale */
        uint32_t *tables;   /* [list][block][32]: votes of code c: nibble c % 8 of word c / 8 */
        uint8_t *votes;     /* [list][max_ranges * 1024] */
        uint16_t *at_least; /* [list][max_ranges][256]: of a range, candidates with so many votes at least */
        int32_t *having;    /* [list][256]: candidates of a list with so many votes */
} dci_gpu_vote_args;

#endif
