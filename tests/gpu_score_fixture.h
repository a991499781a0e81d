/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Cases of scores: summaries, queries, lanes and pools as a device has them, and what must come out: of codes what the coder's own scan on the
 * CPU says, to the bit but for the product with the centre; of rows and kept tokens sums in double; of parts what follows from the scores that
 * were written.
 */
#ifndef DCI_TESTS_GPU_SCORE_FIXTURE_H
#define DCI_TESTS_GPU_SCORE_FIXTURE_H

#include "sketch/coder.h"
#include "tests/gpu_fixture.h"

#define SCORE_ROWS 3
#define SCORE_SEQUENCES 3
#define SCORE_HEADS 3 /* at most */
#define SCORE_PIECES 8
#define SCORE_SLOTS 5 /* of a row's ring of queries */
#define SCORE_SEED 5  /* of rotations */

enum { NORMAL, EQUAL, ZERO_QUERIES, HUGE_QUERIES, TINY_QUERIES, BAD_QUERIES };

typedef struct score_case {
        const char *name;
        int32_t kind, bits, dim, group, dtype, query_dtype;
        int32_t n_heads, shift, n_parts;
        bool listed, centred, kept;
        int32_t data;
        dci_gpu_sizes sizes;
        int32_t n_tokens[SCORE_SEQUENCES], missing; /* missing: candidates that have no summaries yet */
        int32_t physical;                           /* chunks that there really are; 0: one for each that is named */
        int32_t wanted;                             /* units of a preselection; 0: there is none */
        bool of_means;
        bool ordered; /* pages of an order, some static; queries are stored */
} score_case;

typedef struct score_state {
        gpu_test *t;
        const score_case *c;
        dci_rng rng;
        size_t width, head_bytes, per_chunk, chunks_each, max_groups, max_tokens;
        gpu_blocks blocks;
        gpu_buffer *table, *rows, *n_tokens, *n_grouped, *n_clusters, *queries, *list, *piece[SCORE_PIECES], *numbers;
        gpu_buffer *signs, *centres, *lane_keys, *scores, *parts;
        gpu_buffer *units, *n_scored;
        gpu_buffer *n_ordered, *n_static, *slots, *ring;
        dci_gpu_chunks chunks;
        dci_gpu_lanes lanes;
        size_t query_ld;
        dci_coder coders[SCORE_ROWS * SCORE_HEADS];
        gpu_buffer *frames; /* of learned codes */
        bool coded;
        void *memory[SCORE_ROWS * SCORE_HEADS];
} score_state;

void score_make(score_state *s, gpu_test *t, const score_case *c, uint64_t seed);
void score_unmake(score_state *s);
void score_fill_queries(score_state *s);
/* Lengths of a call, cut to `most`, and the sequences' rows; buffers of results are poisoned again, and all goes to
 * the device. */
void score_set_lengths(score_state *s, const int32_t *rows, int32_t most);
dci_gpu_score_args score_arguments(const score_state *s);
/* What came out against what must; returns how many lists there are. */
size_t score_compare(score_state *s, const char *what);

/* gpu_score_make.c: what a row and head of a case have, computed independently of the library: the coder; its part of the
 * row's chunk number i; bytes of a row's queries that are stored. */
const dci_coder *score_coder_of(const score_state *s, size_t row, size_t head);
unsigned char *score_chunk_image(const score_state *s, size_t row, size_t i, size_t head);
size_t score_ring_bytes(const score_case *c);

/* gpu_score_run.c: a case; the same bits once more, and with another division. */
void score_go(gpu_test *t, const score_case *c, uint64_t seed);
/* One graph, while sequences grow up to what it was made for and its rows change. */
void score_replay(gpu_test *t, const score_case *c, uint64_t seed);

#endif
