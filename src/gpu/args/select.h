/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of the kernels that make plans on a device: scores of groups (score), selection (select), and the summaries
 * that scores are made from (encode). Conventions are those of args/rows.h: each kernel has a reference on the CPU, and
 * all pointers are the device's.
 *
 * Words that args/rows.h and dci/kv.h do not define
 *  - candidate: a token after the sink that has summaries, numbered from the end of the sink on.
 *  - group: what has one score: a candidate, 2^group_shift consecutive ones (a page), or a cluster, whose members are
 *    listed.
 *  - list: see args/rows.h; its number is sequence of the call * n_heads * head_lists + list of the sequence.
 *
 * Determinism: results do not depend on how work is divided, but for the last bits of `parts`. */
#ifndef DCI_GPU_ARGS_SELECT_H
#define DCI_GPU_ARGS_SELECT_H

#include <stdint.h>

#include "gpu/args/rows.h"

#define DCI_GPU_FOUND 4096   /* a list's groups that the last block of `select` can hold */
#define DCI_GPU_MAX_PARTS 64 /* of a list's groups */
#define DCI_GPU_UNIT 16      /* candidates of a unit: DCI_CODE_UNIT */
#define DCI_GPU_DROPPED (-1) /* of a cluster that is neither selected nor estimated: DCI_KV_DROPPED */

/* Sizes that determine a sequence's candidates and the room of its lists. */
typedef struct dci_gpu_sizes {
        int32_t sink, window, budget, unit; /* unit: the number of candidates is a multiple of it */
        /* 1: `counted` tokens count in the budget beside the list; 0: all that are not candidates do */
        int32_t fixed, counted;
        /* Not 0: the budget is share * 2^-32 of the tokens in whole pages, but at least `least` and at most `budget` */
        uint64_t share;
        int32_t page, least; /* page: a power of two */
} dci_gpu_sizes;

typedef struct dci_gpu_view {
        int32_t sparse; /* 0: the sequence attends to all its tokens, and selects nothing */
        int32_t n_candidates, room;
} dci_gpu_view;

/* As is_sparse of src/kv/plan.c and src/kv/budget.c. n: tokens; n_grouped: of them, those that have summaries. */
#define DCI_GPU_VIEW(out, sizes, n, n_grouped)                                                                         \
        do {                                                                                                           \
                const int32_t kept_ = (sizes).sink + (sizes).window;                                                   \
                const int32_t old_ = (n) <= kept_ ? 0 : ((n)-kept_) / (sizes).unit * (sizes).unit;                     \
                (out).n_candidates = old_ < (n_grouped) ? old_ : (n_grouped);                                          \
                (out).room = (sizes).budget;                                                                           \
                if ((sizes).share != 0) {                                                                              \
                        const int32_t some_ = (int32_t)((uint64_t)(n) * (sizes).share >> 32) & -(sizes).page;          \
                        const int32_t part_ = some_ > (sizes).least ? some_ : (sizes).least;                           \
                        (out).room = part_ < (out).room ? part_ : (out).room;                                          \
                }                                                                                                      \
                (out).room -= (sizes).fixed ? (sizes).counted : (n) - (out).n_candidates;                              \
                (out).room = (out).room > 0 ? (out).room : 0;                                                          \
                (out).sparse = (out).n_candidates > (out).room;                                                        \
        } while (0)

/* What plans of one layer store for its later ones (args/schedule.h), of row 0; row r is r * row_bytes further. */
typedef struct dci_gpu_selection_cache {
        int32_t *state;  /* DCI_GPU_SELECTION_* */
        int32_t *counts; /* by list of a sequence */
        int32_t *lists;  /* [list of a sequence][room]: candidates, best first */
        float *queries;  /* [query head][dim], times the scale; NULL: not stored */
        uint64_t row_bytes;
        int32_t room, reserved; /* of the longest list */
} dci_gpu_selection_cache;

/* Preselection (`preselect` of dci/kv.h), of CODES. After a head's codes of candidates come those of the means of
 * 2^mean_shift consecutive candidates, in the same form: blocks of 32 rows, then scales of 512 >> mean_shift rows. A plan
 * takes four calls: `score` of the means, `select` of the best units of 16 candidates, `score` of the tokens in these,
 * `select` of the plan. The first two are called with of_means. Lists of up to `wanted` units are not preselected: their
 * first two calls do nothing but write 0 to n_scored. */
typedef struct dci_gpu_units {
        /** [list][stride]: units, ascending; NULL: no preselection */
        int32_t *lists;
        /** by list: tokens in its units, whose scores have consecutive numbers; 0: all candidates have scores */
        int32_t *n_scored;
        int32_t stride, wanted; /* wanted: at most DCI_GPU_FOUND - 1; stride: more than that */
        /** tokens of a list's units at least: else, where the last unit of all, which need not be full, is one of them,
         * one more is selected */
        int32_t room;
        int32_t of_means;
        /** 1: units of one candidate, which `vote` has found (args/votes.h) */
        int32_t singles, reserved;
} dci_gpu_units;

/* Pages of a stored order (DCI_KV_GROUP_REORDERED): page g has members number g << group_shift on of the order, which
 * `ids` of the selection lists, as far as there are n_ordered, a multiple of a page; later pages are by position. The
 * first n_static pages are selected before all others, in their order, and have no score. Pages of candidates that are
 * too young, after a truncation, come last, and those candidates are not selected. */
typedef struct dci_gpu_order {
        const int32_t *n_ordered, *n_static; /* by sequence of the call; NULL: all pages are by position */
} dci_gpu_order;

/* Where queries of plans are stored: [row][slot][n_heads * group][dim] in their own type, in host memory. */
typedef struct dci_gpu_query_ring {
        unsigned char *to;    /* NULL: nowhere */
        const int32_t *slots; /* by sequence of the call */
        uint64_t row_bytes;
} dci_gpu_query_ring;

/* The candidate of a score, by a list of units. */
#define DCI_GPU_SCORED(list, singles, number)                                                                          \
        ((singles) != 0 ? (list)[number] : (list)[(number) / DCI_GPU_UNIT] * DCI_GPU_UNIT + (number) % DCI_GPU_UNIT)

/* Summaries. */
enum {
        DCI_GPU_CODES = 1,  /* 16 blocks of 32 rows in even steps (simd/codes/codes.h), then 512 scales as bf16 */
        DCI_GPU_MEANS,      /* rows of dim elements in the keys' type: products with the query */
        DCI_GPU_MINMAX,     /* rows of 2 dim: greatest, least; the query's positive part, its negative part */
        DCI_GPU_CUBOIDS,    /* rows of 2 dim: centre, mean distance; the query, its magnitudes */
        DCI_GPU_DEVIATIONS, /* rows of 2 dim: mean, variance; the query, and the root of the product with its squares */
        DCI_GPU_SUMMARIES = DCI_GPU_DEVIATIONS,
        DCI_GPU_LEARNED, /* codes of any width, by a transform of each head (args/transforms.h, args/learned.h) */
        DCI_GPU_VOTES    /* codes of blocks and 4-bit codes (args/votes.h); scored by `vote` */
};

/** Computes scores: query . summary, times `scale`, of each group and query head, in units of logits. Group g (by
 * position) is row g of the chunks. Nothing is written for lists of sequences that are not sparse, or that are not due.
 *
 * The kernel reads chunks, tables, centres and transforms while the kernel queued just before it may still run: that
 * must be a later one than the last `encode` and the last copy to those. Only queries, `due`, lanes and the pool are
 * read after it has ended. Set `fresh` where nothing was queued after that last call: then everything is read after it
 * has ended.
 *
 * CODES: as src/kv/stages/summary_codes.c: q is widened to floats and times `scale`, rotated by `signs`
 * (sketch/rotate.h: 6 x part, part the largest power of two that is not above dim), and rounded to bytes; score =
 * (scales[i] * (half_step * (float)(2 sum - twice_bias))) + fixed with no fused multiply-add, fixed = q . centre. But
 * for `fixed`, whose order of summation is free, the CPU's numbers to the bit. LEARNED: blocks of 4 dim bits bytes; the
 * query is transformed by its head's record. Coordinates are sums in binary32 in any order, so that a byte next to a
 * rounding boundary may be one more or less than the CPU's. Others: sums of products in binary32 of rows and (in two
 * parts, if need be) queries: no worse than the rows' rounding times 2^-8. DEVIATIONS: the halves of a row have sums of
 * their own, and the root of the second counts deviation_weight times, within binary32.
 *
 * parts: [list][n_parts + 1][group][2]: greatest score, and sum of exp(score - greatest), of the groups in each part
 * (-FLT_MAX and 0 where a part is empty); at n_parts, the same of tokens that every plan attends to, [0, sink) and from
 * sink + n_candidates on, by their exact keys from the lanes or, beyond the ring, the pool; -FLT_MAX and 0 without
 * lanes.keys.
 *
 * order: a list has at least as many pages as its order, whatever n_candidates is. Scores of static pages are -infinity,
 * which parts do not count. ring: the kernel also stores the queries of all sequences, sparse or not, due or not. Both
 * of rows only, not of codes.
 *
 * units, if it has lists. of_means: summaries.layer_at is that of the codes of means, group_shift is mean_shift, and
 * groups that the last unit lacks have scores of -FLT_MAX, which parts do not count; lists that are not preselected are
 * not scored. Else: scores of the tokens in a list's units, in their order. Queries and `due` must not have been written
 * by the last kernel then, which was the `select` of units. */
typedef struct dci_gpu_score_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t kind, bits; /* bits: 4, 2 or 1; LEARNED: also 3, and 8 */
        int32_t dtype, query_dtype;
        int32_t group_shift;
        int32_t n_parts;    /* 1 to DCI_GPU_MAX_PARTS */
        int32_t max_groups; /* of a list: room of scores */
        float scale;
        dci_gpu_sizes sizes;
        const void *queries; /* [sequence][n_lists * group] rows, query_ld elements apart */
        uint64_t query_ld;
        const int32_t *rows, *n_tokens; /* by sequence of the call */
        const int32_t *n_grouped;       /* by sequence of the call: tokens after the sink that have summaries */
        const int32_t *n_clusters;      /* NULL, or clusters of [row][head] */
        dci_gpu_chunks summaries;
        const float *signs;
        const float *centres; /* [row][head][dim] */
        dci_gpu_lanes lanes;
        dci_gpu_pool pool;
        dci_gpu_tables tables;
        float *scores; /* [list][max_groups][group] */
        float *parts;
        const int32_t *due; /* NULL, or by list: a list is due where due[list] == due_is */
        int32_t due_is, fresh;
        const unsigned char *transforms; /* LEARNED: [row][head], DCI_GPU_TRANSFORM_BYTES(dim) apart */
        dci_gpu_units units;
        dci_gpu_order order;
        dci_gpu_query_ring ring;
        float deviation_weight; /* DEVIATIONS */
        int32_t head_lists;
} dci_gpu_score_args;

enum {
        DCI_GPU_WEIGH_KEPT = 1, /* softmax over groups and the tokens that every plan attends to */
        DCI_GPU_WEIGH_GROUPS,   /* softmax over groups */
        DCI_GPU_WEIGH_EVEN      /* the mean of scores */
};

/** Selects groups. The relevance of a group is the sum over the query heads of exp(score - lse of the head), lse over
 * groups and the tokens that every plan attends to, or over groups alone; or the mean of scores. Takes the groups of
 * greatest relevance (equal ones by number) until the room is full, the last one cut to its first members; as
 * select_scan of src/kv/stages/select.c. Clusters without a candidate (ids ascend within a cluster, and may be beyond
 * n_candidates) come last.
 *
 * Out, as resolve takes it: positions [list][stride] ascending, counts [list]; sink_end, recent_begin and, as n_tokens,
 * after (0, 0, n where a sequence attends to all). ranked, n_ranked, if given: the groups of the list, best first,
 * [list][stride]. lasts: [row][list of a sequence] of the layer, out: the relevance of the last selected group.
 * found, n_found: [list][DCI_GPU_FOUND] and [list][2], the latter zeros before and after.
 * selection, if it has lists: receives the selected candidates, best first, members of a group together, up to its own
 * room, whatever the plan's is. Only ranked, n_ranked and lasts are written as well then. Nothing is written for lists
 * that are not due (see the scores).
 * none: selects nothing, whatever the room, and does not read scores.
 * drop: scores of selected candidates (groups of one) become -FLT_MAX, for a tail that reads them afterwards.
 *
 * takes, with `selection`: then every list of the plan, due or not, is written from the selection cache, with the header,
 * as by `reuse` (args/schedule.h).
 *
 * likely_groups: as many as a list usually has, for which work is divided; 0: max_groups. No result depends on it.
 *
 * members, if not NULL: what a tail over clusters reads (args/tail.h), [list][max_groups]: of each cluster of a list that
 * is sparse how many members are selected, 0 where it is one of the best after the selected ones, of which there are
 * estimate_share of all clusters, rounded to the nearest number (1 and more: all of them); of other clusters
 * DCI_GPU_DROPPED. Also where there is no room. Not with `selection`.
 *
 * units, if it has lists. of_means: selects units by the scores of means, whose groups of 2^group_shift candidates they
 * are: by the sum over a unit's groups and the query heads of the softmax over all groups, where terms below 2^-126 of
 * the greatest are 0; equal ones by number. Writes the units' lists and n_scored, for lists that are due, and nothing
 * else but found. Else: scores are those of the tokens in the units. */
typedef struct dci_gpu_select_args {
        int32_t n_sequences, n_heads, group, group_shift;
        int32_t weigh, n_parts, max_groups, stride;
        int32_t drop, none, due_is, takes;
        dci_gpu_sizes sizes;
        const int32_t *rows, *n_tokens, *n_grouped, *n_clusters;
        const int32_t *due;
        float *scores;
        const float *parts;
        dci_gpu_chunks spans; /* clusters: {first, number} of the members of each as two int32_t, in the head's part */
        dci_gpu_chunks
                ids; /* clusters: members by first + 0, 1, ..: candidates as int32_t, in the head's part; orders */
        float *lasts;
        uint64_t *found;
        int32_t *n_found;
        int32_t *positions, *counts;
        int32_t *sink_end, *recent_begin, *after; /* by sequence of the call */
        int32_t *ranked, *n_ranked;
        dci_gpu_selection_cache selection;
        dci_gpu_units units;
        int32_t likely_groups, head_lists;
        dci_gpu_order order;
        int32_t *members;
        double estimate_share;
} dci_gpu_select_args;

/** Builds summaries of tokens that left the window: of sequence i, in every layer, candidates [from[i], to[i]), at most
 * 2 DCI_GPU_CHUNK of them, usually none; `from` is a multiple of a page and of 16. Their keys are in the ring. One call
 * covers all layers: the data of layer l begin l times their step further. CODES: codes and scales; others: rows. To
 * the bit as dci_coder_encode (4, 2 and 1 bits, rotated) and src/kv/stages/summary_pages.c. The first candidate of a
 * chunk sets the rest of the summaries in that chunk to zero.
 *
 * value_bits, if not 0: of the same candidates also the values of a low-bit tail (args/tail.h), from lanes.values, 4, 2
 * or 1 bits, tail_at bytes into each head's part, as src/kv/stages/tail_lowbit.c: 4 times [128 tokens][32 coordinates]
 * codes across, then 512 scales as bf16.
 *
 * mean_shift, if not 0: CODES also of the means of 2^mean_shift candidates, 2 to 4, after those of the candidates
 * (dci_gpu_units), as put_means of src/kv/stages/summary_codes.c. */
typedef struct dci_gpu_encode_args {
        int32_t n_layers, n_sequences, n_heads, dim;
        int32_t kind, bits, dtype, group_shift;
        int32_t sink, value_bits, tail_at, mean_shift;
        const int32_t *rows, *from, *to; /* by sequence of the call */
        dci_gpu_lanes lanes;             /* of the first layer */
        uint64_t lane_step, value_step;  /* bytes from one layer's keys, or values, to the next one's */
        dci_gpu_chunks chunks;           /* of the first layer */
        uint64_t layer_step;             /* from one layer's layer_at to the next one's */
        const float *signs;
        const float *centres;
        uint64_t centres_step;
        const float *value_signs, *value_centres; /* as those of the keys */
} dci_gpu_encode_args;

/** The same at a prompt's end, for one layer and row, from the caller's rows: first the centre (the mean of the
 * candidates' keys: binary32 sums of 64 rows each, in order, then binary64 sums of those, as mean_of in
 * src/kv/summaries.c), then all candidates. keys: of token `sink`, key_token bytes from one to the next, key_head
 * between heads, addresses that are multiples of 16. sums: [head][ceil(n / 64)][dim] floats of scratch, twice that with
 * values; only CODES need it, and have a centre. The rest of the last chunk becomes zeros. value_bits, if not 0: values
 * likewise, with a centre and signs of their own; mean_shift: see dci_gpu_encode_args. */
typedef struct dci_gpu_encode_prompt_args {
        int32_t n_heads, dim, kind, bits;
        int32_t dtype, group_shift, n_candidates, row;
        int32_t value_bits, tail_at, mean_shift, reserved;
        const unsigned char *keys, *values;
        uint64_t key_token, key_head, value_token, value_head;
        dci_gpu_chunks chunks;
        const float *signs, *value_signs;
        float *centres, *value_centres; /* [row][head][dim] */
        float *sums;
} dci_gpu_encode_prompt_args;

#endif
