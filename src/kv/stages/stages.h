/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The five choices as interfaces (docs/stages.md): which tokens lie together, what stays of them, how queries choose,
 * when it is decided again, and what becomes of the rest. A preset is one row of kv/presets.c; each stage is one table
 * of functions.
 *
 * All work is by (sequence, layer, kv head); lists are of a kv head, or of each of its query heads. Candidates are
 * numbered from the end of the sink on.
 */
#ifndef DCI_KV_STAGES_STAGES_H
#define DCI_KV_STAGES_STAGES_H

#include "kv/state.h"

/* One query group's question: the queries of a list, times the scale, and what one task of a plan works with. */
typedef struct dci_kv_query {
        const dci_kv *kv;
        const dci_kv_layer *layer;
        size_t head, list;    /* kv head; list of the sequence */
        size_t n_candidates;  /* that may be chosen */
        const float *queries; /* group x dim_k */
        float *scores; /* [query][ld]: of groups, in units of logits; after `choose`, the softmax's terms exp(score - most) */
        size_t ld;
        float *most;                     /* by query: the greatest score */
        float *relevance;                /* by group of tokens */
        unsigned char *work;             /* the stage's own */
        float weights[DCI_KV_MAX_GROUP]; /* by query, once they are combined: what a term exp(score - most) counts */
        int32_t *chosen;                 /* candidates, ascending */
        size_t n_chosen, room;
        size_t plan_room; /* what the plan has; `room` is what it is asked for, which a schedule makes the most of a list */
        int32_t *taken; /* by listed group, for its tail: members chosen, or DCI_KV_DROPPED */
        /* The best groups, with COMBINE_EACH those of each query head; with `verify` the best candidates, and what they
         * count. */
        int32_t *lists;
        int32_t *units;     /* `preselect`, and votes: units of candidates, ascending, whose tokens alone have scores */
        size_t unit_tokens; /* of a unit: DCI_CODE_UNIT, or single candidates */
        size_t n_scored;    /* how many those are, contiguous; 0: every candidate has one, under its number */
        int32_t *ranked;    /* NULL, or the same with the best first, for a schedule that keeps them */
        size_t n_ranked;
} dci_kv_query;
enum { DCI_KV_DROPPED = -1 };

/* The candidate that a score belongs to. */
DCI_INLINE int32_t dci_kv_scored(const dci_kv_query *ask, size_t number)
{
        return ask->n_scored == 0 ? (int32_t)number
                                  : ask->units[number / ask->unit_tokens] * (int32_t)ask->unit_tokens +
                                            (int32_t)(number % ask->unit_tokens);
}

/* --- group: which tokens are grouped ------------------------------------------------------------------------------ */

typedef struct dci_kv_grouping {
        int32_t kind;
        bool listed; /* groups are in batches; else they are by position */
        /* Groups of one head among n candidates. */
        size_t (*count)(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n);
        /* Those of the n candidates that are in one of them, ascending: in place, or in `room`, which holds
         * DCI_KV_TILE. */
        const int32_t *(*members)(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group, size_t n,
                                  int32_t *room, size_t *out_n);
        /* Listed: most groups of n candidates; bytes that dividing takes; and dividing one head's part of a batch into
         * its groups: fills in n_groups, offsets and ids. keys: the batch's rows, contiguous. Cannot fail. */
        size_t (*most)(const dci_kv *kv, size_t n);
        size_t (*work_bytes)(const dci_kv *kv, size_t n);
        void (*divide)(dci_kv *kv, const dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, const void *keys,
                       void *work);
        /* Listed, of batches after the prompt's; NULL: each is cluster_every candidates. Where the next one ends that
         * begins at candidate `begin`, 0: none is due; early: recent tokens may take half of the budget only. And most
         * groups of one. */
        size_t (*next)(const dci_kv *kv, const dci_kv_layer *layer, size_t begin, bool early);
        size_t (*room)(const dci_kv *kv, const dci_kv_layer *layer, size_t first, size_t n);
} dci_kv_grouping;

/* Keys or values of a group: rows `ids[i] - first` of contiguous rows, in the format of the keys. */
typedef struct dci_kv_members {
        const unsigned char *rows;
        size_t first, n;
        const int32_t *ids;
        float *wide; /* room for a tile of rows */
} dci_kv_members;

/* --- summary: what stays of a group ------------------------------------------------------------------------------- */

typedef struct dci_kv_summary {
        int32_t kind;
        int32_t frame; /* DCI_CODER_* of the frames it needs, 0: none */
        /* Of one head in a chunk; of a plan's scratch; of that for `put`, if there is one. */
        size_t (*bytes)(const dci_kv *kv);
        size_t (*work_bytes)(const dci_kv *kv);
        size_t (*put_bytes)(const dci_kv *kv);
        /* Candidates [first, first + n) of the chunk, n <= DCI_KV_TILE, as rows and as floats (n x dim_k). first is a
         * multiple of a page; n too, unless these are the last ones there will ever be. */
        void (*put)(const dci_kv *kv, dci_kv_head *head, unsigned char *chunk, size_t first, size_t n,
                    const float *keys, void *scratch);
        /* Fills in scores and most. */
        void (*rank)(dci_kv_query *ask);
        /* Of groups with any members, if it can be had of them: elements of a row, and the row of n keys, from scratch
         * of put_bytes. */
        size_t (*width)(const dci_kv *kv);
        void (*row)(const dci_kv *kv, const dci_kv_members *members, void *scratch, void *out);
} dci_kv_summary;

/* --- choose: how queries choose ----------------------------------------------------------------------------------- */

typedef struct dci_kv_choice {
        int32_t kind;
        bool ranks; /* asks the summary first */
        /* Fills in chosen, at most `room` of them, best first, and ends with dci_kv_put_in_order: schedules keep that
         * ranking, and use its front. SELECT_SCAN is asked for more than the plan has room for: what it chooses first
         * does not depend on the room. A choice that ranks leaves the terms that a tail takes; for others
         * dci_kv_schedule_select does. */
        void (*select)(dci_kv_query *ask, const dci_kv_grouping *grouping);
} dci_kv_choice;

/* --- schedule: when it is decided again --------------------------------------------------------------------------- */

typedef struct dci_kv_schedule {
        int32_t kind;
        bool lists, queries; /* what a plan leaves to the next one */
        /* Whether this plan of a layer that has lists decides again; NULL: each does. queries: of all query heads, as
         * the call has them. */
        bool (*due)(const dci_kv *kv, const dci_kv_layer *layer, size_t sequence, const void *queries, size_t ld);
        /* Whether a head attends to the list that was chosen before, whatever is decided now. NULL: it does not. */
        bool (*keeps)(const dci_kv_query *ask);
} dci_kv_schedule;

/* --- tail: what becomes of the rest ------------------------------------------------------------------------------- */

typedef struct dci_kv_tail {
        int32_t kind;
        bool values; /* needs a frame of the values */
        bool scored; /* needs scores of single tokens */
        size_t (*bytes)(const dci_kv *kv);
        size_t (*work_bytes)(const dci_kv *kv);
        size_t (*put_bytes)(const dci_kv *kv);
        /* As the summary's, with both rows; with `values` keys are not read. */
        void (*put)(const dci_kv *kv, dci_kv_head *head, unsigned char *chunk, size_t first, size_t n,
                    const float *keys, const float *values, void *scratch);
        /* Attention over the candidates that were not chosen: out group x dim_v, lse by query. */
        void (*add)(dci_kv_query *ask, float *out, float *lse);
} dci_kv_tail;

struct dci_kv_stages {
        dci_kv_grouping group;
        dci_kv_summary summary;
        dci_kv_choice select;
        dci_kv_schedule schedule;
        dci_kv_tail tail;
};

extern const dci_kv_grouping *const dci_kv_groupings[DCI_KV_GROUPS + 1]; /* stages/group.c */
extern const dci_kv_grouping dci_kv_group_cluster;                       /* stages/group_cluster.c */
extern const dci_kv_grouping dci_kv_group_tree;                          /* tree/search.c */
extern const dci_kv_grouping dci_kv_group_segment;                       /* stages/group_segment.c */
extern const dci_kv_grouping dci_kv_group_reordered;                     /* stages/group_reordered.c */
extern const dci_kv_summary dci_kv_summary_none, dci_kv_summary_keys;    /* stages/summary_keys.c */
extern const dci_kv_summary dci_kv_summary_mean, dci_kv_summary_minmax, dci_kv_summary_cuboid,
        dci_kv_summary_mean_std;                                          /* stages/summary_pages.c */
extern const dci_kv_summary dci_kv_summary_codes, dci_kv_summary_learned; /* stages/summary_codes.c */
extern const dci_kv_summary dci_kv_summary_votes;                         /* stages/summary_votes.c */
extern const dci_kv_choice dci_kv_choices[DCI_KV_CHOICES + 1];            /* stages/select.c */
extern const dci_kv_summary dci_kv_summary_tree;                          /* tree/search.c */
extern const dci_kv_schedule dci_kv_schedules[DCI_KV_SCHEDULES + 1];      /* stages/schedule.c */
extern const dci_kv_tail dci_kv_tail_drop, dci_kv_tail_sums, dci_kv_tail_lowbit;

/* tree/search.c: means of a tree's pages as scores, and the search that fills in chosen, best first. */
void dci_kv_tree_rank_pages(dci_kv_query *ask);
void dci_kv_tree_search(dci_kv_query *ask);

/* stages/select_verify.c: how many of the best by their codes are ranked again by their keys, for so much room; and
 * doing so. */
size_t dci_kv_verified(const dci_kv *kv, size_t room);
void dci_kv_select_verified(dci_kv_query *ask, size_t n);

/* stages/tail_lists.c: TAIL_SUMS over clusters. */
void dci_kv_add_clustered(dci_kv_query *ask, float *out, float *lse);

#endif
