/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The numbers of votes and of 4-bit codes of blocks (kv/stages/summary_votes.c), for the host and for devices. Plain
 * C, and CUDA C++. */
#ifndef DCI_SKETCH_VOTES_H
#define DCI_SKETCH_VOTES_H

#define DCI_VOTE_BLOCK 8 /* coordinates */
#define DCI_VOTE_CODES 256
#define DCI_VOTE_TIERS 6
/* Tokens of each tier and those before it, in parts of those that get votes. */
#define DCI_VOTE_RATIOS                                                                                                \
        {                                                                                                              \
                0.05, 0.15, 0.3, 0.5, 0.75, 1.0                                                                        \
        }

/* The published shares, by the number of candidates: what gets votes, and what is a candidate of the estimates. */
#define DCI_VOTE_SHARE(n) ((n) < 5000 ? 0.5 : (n) < 10000 ? 0.3 : (n) < 30000 ? 0.25 : 0.2)
#define DCI_VOTE_CANDIDATE_SHARE(n) ((n) < 5000 ? 0.5 : (n) < 10000 ? 0.25 : (n) < 30000 ? 0.2 : 0.1)

/* Of n candidates: how many go from the votes to their estimates; int32_t. Needs <math.h>. */
#define DCI_VOTED(out, n, share, least)                                                                                \
        do {                                                                                                           \
                const double tokens_ = ((share) > 0.0 ? (share) : DCI_VOTE_CANDIDATE_SHARE(n)) * (double)(n);          \
                const int32_t wanted_ = (int32_t)ceil(tokens_), some_ = wanted_ > (least) ? wanted_ : (least);         \
                (out) = some_ < (n) ? some_ : (n);                                                                     \
        } while (0)

/* Lloyd and Max's levels of the size of a coordinate of random directions in eight dimensions: between two of them
 * lies a bound. */
#define DCI_VOTE_BOUNDS                                                                                                \
        {                                                                                                              \
                0.0843f, 0.1698f, 0.2578f, 0.3499f, 0.4487f, 0.5585f, 0.6901f                                          \
        }
#define DCI_VOTE_LEVELS                                                                                                \
        {                                                                                                              \
                0.0420f, 0.1266f, 0.2130f, 0.3025f, 0.3973f, 0.5001f, 0.6169f, 0.7633f                                 \
        }
#define DCI_VOTE_NEGATIVE 8u
#define DCI_VOTE_LEAST_MATCH 1e-6f

/* Bytes of a candidate's record. */
#define DCI_VOTE_RECORD(n_blocks) ((n_blocks)*6)

#endif
