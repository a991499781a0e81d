/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The five choices as interfaces (docs/systems.md): which tokens lie together, what stays of them, how queries choose, when it is
 * decided again, and what becomes of the rest. A preset is one row of presets.c; each stage is one table of functions.
 *
 * All work is by (sequence, layer, kv head). Candidates are numbered from the end of the sink on.
 */
#ifndef DCI_KV_STAGES_H
#define DCI_KV_STAGES_H

#include "kv/kv_internal.h"
#include "simd/topk.h"

/* One query group's question: the g queries of a kv head, times the scale, and what one task of a plan works with. */
typedef struct dci_kv_ask {
        const dci_kv *kv;
        const dci_kv_layer *layer;
        size_t head;
        size_t n_candidates;  /* that may be chosen */
        const float *queries; /* group x dim_k */
        float *scores; /* [query][ld]: of groups, in units of logits; after `choose`, the softmax's terms exp(score - most) */
        size_t ld;
        float *most;         /* by query: the greatest score */
        float *relevance;    /* by group of tokens */
        unsigned char *work; /* the stage's own */
        int32_t *chosen;     /* candidates, ascending */
        size_t n_chosen, room;
} dci_kv_ask;

/* --- group: which tokens lie together --------------------------------------------------------------------------------- */

typedef struct dci_kv_grouping {
        int32_t kind;
        bool built;
        /* Groups among n candidates, and the candidates of one of them, ascending; returns how many. `head` is for groups that are not
         * by position. */
        size_t (*count)(const dci_kv *kv, const dci_kv_head *head, size_t n);
        size_t (*members)(const dci_kv *kv, const dci_kv_head *head, size_t group, size_t n, int32_t *out);
} dci_kv_grouping;

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
        void (*rank)(dci_kv_ask *ask);
} dci_kv_summary;

/* --- choose: how queries choose ----------------------------------------------------------------------------------------- */

typedef struct dci_kv_choice {
        int32_t kind;
        bool ranks; /* asks the summary first */
        /* Fills in chosen, at most `room` of them. */
        void (*choose)(dci_kv_ask *ask, const dci_kv_grouping *grouping);
} dci_kv_choice;

/* --- schedule: when it is decided again ----------------------------------------------------------------------------------- */

typedef struct dci_kv_schedule {
        int32_t kind;
        bool built;
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
        void (*add)(dci_kv_ask *ask, float *out, float *lse);
} dci_kv_tail;

struct dci_kv_stages {
        dci_kv_grouping group;
        dci_kv_summary summary;
        dci_kv_choice choose;
        dci_kv_schedule schedule;
        dci_kv_tail tail;
};

/* presets.c: a row of the table of systems. */
typedef struct dci_kv_preset {
        int32_t preset;
        const char *name;
        int32_t group, summary, choose, schedule, tail, combine;
        size_t page_tokens, sink, window;
} dci_kv_preset;
const dci_kv_preset *dci_kv_preset_at(int32_t preset);

extern const dci_kv_grouping dci_kv_groupings[DCI_KV_GROUPS + 1];                              /* group.c */
extern const dci_kv_summary dci_kv_summary_none, dci_kv_summary_keys;                          /* summary_keys.c */
extern const dci_kv_summary dci_kv_summary_mean, dci_kv_summary_minmax, dci_kv_summary_cuboid; /* summary_pages.c */
extern const dci_kv_summary dci_kv_summary_codes, dci_kv_summary_learned;                      /* summary_codes.c */
extern const dci_kv_choice dci_kv_choices[DCI_KV_CHOICES + 1];                                 /* choose.c */
extern const dci_kv_summary dci_kv_summary_tree;                                               /* tree_choose.c */
extern const dci_kv_tail dci_kv_tail_drop, dci_kv_tail_sums, dci_kv_tail_lowbit;

/* tree_choose.c: pages of a head's tree as groups, their means as scores, and the search that fills in chosen, in no order. */
size_t dci_kv_tree_pages(const dci_kv *kv, const dci_kv_head *head, size_t n);
size_t dci_kv_tree_members(const dci_kv *kv, const dci_kv_head *head, size_t group, size_t n, int32_t *out);
void dci_kv_tree_rank_pages(dci_kv_ask *ask);
void dci_kv_tree_search(dci_kv_ask *ask);

/* choose.c: ranks by the observed queries, once: fills in head->fixed. */
void dci_kv_choose_observed(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t n);
/* What that takes for one head behind layer->observed; 0 where nothing is chosen so. */
size_t dci_kv_observed_bytes(const dci_kv *kv, size_t n);

/* Scores of rows for the group's queries (each of `dim` elements), from group number `first` on. */
void dci_kv_score_rows(const dci_kv_ask *ask, const float *queries, size_t dim, dci_dtype dtype,
                       const void *const *rows, size_t n, size_t first);
/* exp(score - most) in place for one query's first n scores, most filled in; returns their sum. */
float dci_kv_soften(dci_kv_ask *ask, size_t query, size_t n);

/* The mean of n >= 1 rows, dim apart. */
void dci_kv_mean_row(const float *rows, size_t n, size_t dim, float *out);

/* Whether attention reads codes only, and no row of the tokens that have them. */
DCI_INLINE bool dci_kv_codes_alone(const dci_kv *kv)
{
        return kv->config.choose == DCI_KV_CHOOSE_NONE;
}

/* Tokens per group as far as summaries are concerned. */
DCI_INLINE size_t dci_kv_group_tokens(const dci_kv *kv)
{
        return kv->config.group == DCI_KV_GROUP_PAGE ? kv->config.page_tokens : 1;
}

#endif
