/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The five choices as interfaces (docs/systems.md): which tokens lie together, what stays of them, how queries choose, when it is
 * decided again, and what becomes of the rest. A preset is one row of presets.c; each stage is one table of functions.
 *
 * All work is by (sequence, layer, kv head). Candidates are numbered from the end of the sink on.
 */
#ifndef DCI_KV_STAGES_STAGES_H
#define DCI_KV_STAGES_STAGES_H

#include "kv/kv_internal.h"
#include "simd/topk.h"

/* One query group's question: the g queries of a kv head, times the scale, and what one task of a plan works with. */
typedef struct dci_kv_query {
        const dci_kv *kv;
        const dci_kv_layer *layer;
        size_t head;
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
        /* The best groups, with COMBINE_EACH those of each query head; with `verify` the best candidates, and what they count. */
        int32_t *lists;
        int32_t *units;  /* `preselect`: units of DCI_CODE_UNIT candidates, ascending, whose tokens alone have scores */
        size_t n_scored; /* how many those are, one behind the other; 0: every candidate has one, under its number */
        int32_t *ranked; /* NULL, or the same with the best first, for a schedule that keeps them */
        size_t n_ranked;
} dci_kv_query;
enum { DCI_KV_DROPPED = -1 };

/* --- group: which tokens lie together --------------------------------------------------------------------------------- */

typedef struct dci_kv_grouping {
        int32_t kind;
        bool listed; /* groups are in batches; else they are by position */
        /* Groups of one head among n candidates. */
        size_t (*count)(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n);
        /* Those of the n candidates that are in one of them, ascending. They are returned where they lie, or in `room`, which holds
         * DCI_KV_TILE. */
        const int32_t *(*members)(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group, size_t n,
                                  int32_t *room, size_t *out_n);
        /* Listed: most groups of n candidates; bytes that dividing takes; and dividing one head's part of a batch into its groups: fills
         * in n_groups, offsets and ids. keys: the batch's rows, one behind the other. Cannot fail. */
        size_t (*most)(const dci_kv *kv, size_t n);
        size_t (*work_bytes)(const dci_kv *kv, size_t n);
        void (*divide)(dci_kv *kv, const dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, const void *keys,
                       void *work);
        /* Listed, of batches behind the prompt's; NULL: each is cluster_every candidates. Where the next one ends that begins at candidate
         * `begin`, 0: none is due; early: recent tokens may take half of the budget only. And most groups of one. */
        size_t (*next)(const dci_kv *kv, const dci_kv_layer *layer, size_t begin, bool early);
        size_t (*room)(const dci_kv *kv, const dci_kv_layer *layer, size_t first, size_t n);
} dci_kv_grouping;

/* Keys or values of a group: row `ids[i] - first` of rows that lie one behind the other, in the format of the keys. */
typedef struct dci_kv_members {
        const unsigned char *rows;
        size_t first, n;
        const int32_t *ids;
        float *wide; /* room for a tile of rows */
} dci_kv_members;

/* --- summary: what stays of a group ----------------------------------------------------------------------------------- */

typedef struct dci_kv_summary {
        int32_t kind;
        int32_t frame; /* DCI_CODER_* of the frames it needs, 0: none */
        /* Of one head in a chunk; of a plan's scratch; of that for `put`, if there is one. */
        size_t (*bytes)(const dci_kv *kv);
        size_t (*work_bytes)(const dci_kv *kv);
        size_t (*put_bytes)(const dci_kv *kv);
        /* Candidates [first, first + n) of the chunk, n <= DCI_KV_TILE, as rows and as floats (n x dim_k). first is a multiple of a page; n
         * too, unless these are the last ones there will ever be. */
        void (*put)(const dci_kv *kv, dci_kv_head *head, unsigned char *chunk, size_t first, size_t n,
                    const float *keys, void *scratch);
        /* Fills in scores and most. */
        void (*rank)(dci_kv_query *ask);
        /* Of groups with any members, if it can be had of them: elements of a row, and the row of n keys, from scratch of put_bytes. */
        size_t (*width)(const dci_kv *kv);
        void (*row)(const dci_kv *kv, const dci_kv_members *members, void *scratch, void *out);
} dci_kv_summary;

/* --- choose: how queries choose ----------------------------------------------------------------------------------------- */

typedef struct dci_kv_choice {
        int32_t kind;
        bool ranks; /* asks the summary first */
        /* Fills in chosen, at most `room` of them, best first, and ends with dci_kv_put_in_order: schedules keep that ranking, and use its
         * front. SELECT_SCAN is asked for more than the plan has room for: what it chooses first does not depend on the room. A choice that
         * ranks leaves the terms that a tail takes; for others dci_kv_schedule_select does. */
        void (*select)(dci_kv_query *ask, const dci_kv_grouping *grouping);
} dci_kv_choice;

/* --- schedule: when it is decided again ----------------------------------------------------------------------------------- */

typedef struct dci_kv_schedule {
        int32_t kind;
        bool lists, queries; /* what a plan leaves to the next one */
        /* Whether this plan of a layer that has lists decides anew; NULL: each does. queries: of all query heads, as the call has them. */
        bool (*due)(const dci_kv *kv, const dci_kv_layer *layer, size_t sequence, const void *queries, size_t ld);
        /* Whether a head attends to the list that was chosen before, whatever is decided now. NULL: it does not. */
        bool (*keeps)(const dci_kv_query *ask);
} dci_kv_schedule;

/* --- tail: what becomes of the rest ------------------------------------------------------------------------------------- */

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

/* presets.c: a row of the table of systems. */
typedef struct dci_kv_preset {
        int32_t preset;
        const char *name;
        int32_t group, summary, select, schedule, tail, combine;
        size_t page_tokens, sink, window;
} dci_kv_preset;
const dci_kv_preset *dci_kv_preset_at(int32_t preset);
/* What a preset's clusters are like; of others, as clusterkv's. */
typedef struct dci_kv_clustering {
        int32_t preset;
        size_t tokens, every, segment, rounds;
        int32_t by;
        double estimate_share;
} dci_kv_clustering;
const dci_kv_clustering *dci_kv_clustering_at(int32_t preset);

/* What a preset makes of codes; of others, as sketch. */
typedef struct dci_kv_refining {
        int32_t preset, key_bits;
        double preselect, verify;
} dci_kv_refining;
const dci_kv_refining *dci_kv_refining_at(int32_t preset);

extern const dci_kv_grouping *const dci_kv_groupings[DCI_KV_GROUPS + 1]; /* stages/group.c */
extern const dci_kv_grouping dci_kv_group_cluster;                       /* stages/group_cluster.c */
extern const dci_kv_grouping dci_kv_group_tree;                          /* tree/search.c */
extern const dci_kv_grouping dci_kv_group_segment;                       /* stages/group_segment.c */
extern const dci_kv_grouping dci_kv_group_reordered;                     /* stages/group_reordered.c */
extern const dci_kv_summary dci_kv_summary_none, dci_kv_summary_keys;    /* stages/summary_keys.c */
extern const dci_kv_summary dci_kv_summary_mean, dci_kv_summary_minmax,
        dci_kv_summary_cuboid;                                            /* stages/summary_pages.c */
extern const dci_kv_summary dci_kv_summary_codes, dci_kv_summary_learned; /* stages/summary_codes.c */
extern const dci_kv_choice dci_kv_choices[DCI_KV_CHOICES + 1];            /* stages/select.c */
extern const dci_kv_summary dci_kv_summary_tree;                          /* tree/search.c */
extern const dci_kv_schedule dci_kv_schedules[DCI_KV_SCHEDULES + 1];      /* stages/schedule.c */
extern const dci_kv_tail dci_kv_tail_drop, dci_kv_tail_sums, dci_kv_tail_lowbit;

/* tree/search.c: means of a tree's pages as scores, and the search that fills in chosen, best first. */
void dci_kv_tree_rank_pages(dci_kv_query *ask);
void dci_kv_tree_search(dci_kv_query *ask);

/* stages/select.c: ranks by the observed queries, once: fills in head->fixed. */
void dci_kv_select_observed(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t n);
/* What that takes for one head behind layer->observed; 0 where nothing is chosen so. */
size_t dci_kv_observed_bytes(const dci_kv *kv, size_t n);

/* stages/select.c: those of the greatest of n scores, best first, equal ones by number; returns how many, n_best if there are as many. Their
 * numbers are slots[i], ascending, or i. scratch: dci_topk_bytes(n_best). */
size_t dci_kv_best(const dci_kv *kv, const float *scores, size_t n, const int32_t *slots, size_t n_best, void *scratch,
                   int32_t *out);

/* Scores of rows for the group's queries (each of `dim` elements), from group number `first` on. */
void dci_kv_score_rows(const dci_kv_query *ask, const float *queries, size_t dim, dci_dtype dtype,
                       const void *const *rows, size_t n, size_t first);
/* exp(score - most) in place for one query's first n scores, most filled in; returns their sum. */
float dci_kv_soften(dci_kv_query *ask, size_t query, size_t n);
/* That for all queries, if a tail takes terms. */
void dci_kv_store_terms(dci_kv_query *ask, size_t n);

/* clusters.c: scores of a batch's groups by rows of `width` elements, one a group. */
void dci_kv_score_clusters(const dci_kv_query *ask, const dci_kv_clusters *batch, const float *queries, size_t width,
                           const unsigned char *rows);
/* stages/tail_lists.c: TAIL_SUMS over listed groups. */
void dci_kv_add_clustered(dci_kv_query *ask, float *out, float *lse);

/* clusters.c: what all listed groups share. */
size_t dci_kv_count_clustered(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n);
const int32_t *dci_kv_members_clustered(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group,
                                        size_t n, int32_t *room, size_t *out_n);

/* Tiles of members as floats: rows [at, at + n) of them, n <= DCI_KV_TILE. */
size_t dci_kv_members_to_f32(const dci_kv *kv, const dci_kv_members *members, size_t at, size_t dim);
/* Their mean, as it is stored, from scratch of dim doubles. */
void dci_kv_mean_of_members(const dci_kv *kv, const dci_kv_members *members, size_t dim, void *scratch, void *out);
/* stages/importance.c: the sum over the layer's remembered queries of one head of their softmax over n candidates: the mean but for a factor.
 * keys: their rows, one behind the other; out has room for dci_kv_importance_room. Cannot fail. */
size_t dci_kv_importance_bytes(const dci_kv *kv, size_t n);
size_t dci_kv_importance_room(size_t n);
void dci_kv_importance(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const unsigned char *keys, size_t n,
                       void *work, float *out);

/* stages/summary_codes.c: residuals of the first n learned codes of a frame, a multiple of DCI_CODE_ROWS, of those blocks that are watched: as many
 * as DCI_KV_WATCHED_SPAN codes take, then one of DCI_KV_WATCHED. As if they had been formed here. */
#define DCI_KV_WATCHED_SPAN 1024
#define DCI_KV_WATCHED 8
void dci_kv_watch_codes(dci_kv_head *head, size_t n, const float *residuals);
/* stages/summary_codes.c: whether groups' means say which codes are read; and of how many units, 0 if they do not. */
DCI_INLINE bool dci_kv_preselects(const dci_kv *kv)
{
        return kv->config.preselect > 1.0;
}
size_t dci_kv_preselected(const dci_kv *kv);
/* The candidate that a score belongs to. */
DCI_INLINE int32_t dci_kv_scored(const dci_kv_query *ask, size_t number)
{
        return ask->n_scored == 0 ? (int32_t)number
                                  : ask->units[number / DCI_CODE_UNIT] * (int32_t)DCI_CODE_UNIT +
                                            (int32_t)(number % DCI_CODE_UNIT);
}

/* Whether query heads agree by their softmax. One alone has nobody to agree with, and ranks by its scores: terms that are far below the
 * greatest are zeros, and know no order. */
DCI_INLINE bool dci_kv_combines_by_softmax(const dci_kv *kv)
{
        return kv->config.combine == DCI_KV_COMBINE_SOFTMAX && kv->group > 1;
}

/* stages/select_verify.c: the best by their codes, ranked again by their keys. */
void dci_kv_select_verified(dci_kv_query *ask, size_t n);
/* How many of them, for so much room. */
size_t dci_kv_verified(const dci_kv *kv, size_t room);

/* stages/select.c: `chosen` ascending, and as it came in `ranked` where that is asked for. */
void dci_kv_put_in_order(dci_kv_query *ask);

/* stages/schedule.c: before the heads' work, whether plans of a layer decide; chooses for one head, or takes what is there; after the heads'
 * work, if the layer's plan leaves tokens out. */
void dci_kv_schedule_begin(dci_kv *kv, dci_kv_layer *layer, size_t sequence, const void *queries, size_t ld);
void dci_kv_schedule_select(dci_kv_layer *layer, dci_kv_query *ask);
void dci_kv_schedule_end(const dci_kv *kv, dci_kv_layer *layer, size_t n_candidates);
/* The mean cosine of n rows of queries with those of before: times one factor for all they may be. */
double dci_kv_query_similarity(const dci_kernels *kernels, const float *queries, const float *before, size_t n,
                               size_t dim);

/* The mean of n >= 1 rows, dim apart. */
void dci_kv_mean_row(const float *rows, size_t n, size_t dim, float *out);

/* Whether attention reads codes only, and no row of the tokens that have them. */
DCI_INLINE bool dci_kv_codes_alone(const dci_kv *kv)
{
        return kv->config.select == DCI_KV_SELECT_NONE;
}

/* How many groups are estimated besides those that are chosen; n: all. */
DCI_INLINE size_t dci_kv_estimated(const dci_kv *kv, size_t n)
{
        return kv->config.estimate_share >= 1.0 ? n : (size_t)(kv->config.estimate_share * (double)n + 0.5);
}

/* stages/select.c: most groups that a plan ranks. */
size_t dci_kv_ranked(const dci_kv *kv, size_t n_tokens);

/* Whether a tail takes the terms exp(score - most) of candidates, or those of groups that a scan ranks by their means. */
DCI_INLINE bool dci_kv_needs_terms(const dci_kv *kv)
{
        return kv->stages->tail.scored || (dci_kv_sums_of_lists(kv) && kv->stages->select.ranks &&
                                           kv->stages->summary.kind == DCI_KV_SUMMARY_MEAN);
}

/* Most tokens per group of those that are by position; listed ones have at least one. */
DCI_INLINE size_t dci_kv_group_tokens(const dci_kv *kv)
{
        return kv->config.group == DCI_KV_GROUP_PAGE ? kv->config.page_tokens : 1;
}

#endif
