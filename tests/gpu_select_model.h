/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A choice's inputs and outputs in a test, and a model that they are held against. */
#ifndef DCI_TESTS_GPU_SELECT_MODEL_H
#define DCI_TESTS_GPU_SELECT_MODEL_H

#include "tests/gpu_fixture.h"

/* What scores are like. */
enum { GAUSSIAN, LEVELS, EQUAL, HUGE_ONES, RUN, COMB, ASCENDING, BAD, OUTWEIGHED };

/* Groups that are listed: clusters, or pages of an order, some of which are static. */
enum { BY_POSITION, CLUSTERS, ORDER };

typedef struct choose_case {
        const char *name;
        int32_t data, group, weigh, shift, listed, n_parts;
        int32_t n_sequences, n_heads, budget, most; /* most: tokens of a sequence */
        int32_t drop, extra;                        /* extra: stride beyond the budget */
        double estimated;                           /* listed: the share that a tail estimates; 0: there is none */
} choose_case;

#define KEPT DCI_GPU_WEIGH_KEPT
#define GROUPS DCI_GPU_WEIGH_GROUPS
#define EVEN DCI_GPU_WEIGH_EVEN

/* One of the two kinds of lists that are in chunks. */
typedef struct choose_chunks {
        gpu_buffer *memory, *pieces, *numbers;
        unsigned char *image_pieces[1];
        dci_gpu_chunks args;
        int32_t head_lists;
} choose_chunks;

typedef struct choose_state {
        gpu_test *t;
        const choose_case *w;
        dci_rng rng;
        int32_t n, n_lists, max_groups, stride;
        int32_t head_lists; /* so many of the case's heads are lists of one kv head */
        dci_gpu_sizes sizes;
        gpu_buffer *rows, *n_tokens, *n_grouped, *n_clusters, *scores, *parts, *lasts, *found, *n_found;
        gpu_buffer *positions, *counts, *header, *ranked, *n_ranked, *taken, *n_ordered, *n_static;
        choose_chunks spans, ids;
        double *relevance;
        int32_t *order, *members; /* members: by rank, while the room is filled */
} choose_state;

DCI_INLINE int32_t *ints(const gpu_buffer *b)
{
        return (int32_t *)(void *)b->image;
}

DCI_INLINE float *floats(const gpu_buffer *b)
{
        return (float *)(void *)b->image;
}

DCI_INLINE const int32_t *got(const gpu_buffer *b)
{
        return (const int32_t *)(const void *)b->back;
}

/* Number `at` of a list that is in chunks, in the image; head: of the case. */
int32_t *choose_in_chunks(const choose_chunks *c, int32_t row, int32_t head, int32_t at, size_t width);
dci_gpu_view choose_view_of(const choose_state *s, int32_t i);
/* Pages of a sequence that come first. */
int32_t choose_static_of(const choose_state *s, int32_t i);
int32_t choose_groups_of(const choose_state *s, int32_t i, int32_t h, const dci_gpu_view *view);
/* That ranks are those of the model up to rounding, and that positions are what they amount to. */
void choose_look_at_list(choose_state *s, int32_t i, int32_t h, const char *what);
/* That what a tail reads of a list's clusters is what its ranks amount to; after the list. */
void choose_look_at_members(choose_state *s, int32_t i, int32_t h, const char *what);
/* What is not written keeps its poison. */
void choose_look_at_rest(const choose_state *s, const char *what);

#endif
