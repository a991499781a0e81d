/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * State of a sequence: sequence.c allocates it, with all its layers and heads; step.c, prompt.c and maintain.c change
 * it.
 *
 *      n            tokens appended; the first `sink` of them have no groups
 *      n_grouped    candidates that have groups: [0, n_grouped)
 *      prompt       OPEN until dci_kv_end_prompt, WAITING while workers build the prompt's groups, then DONE
 *
 * A step that was reserved is open until it ends or is aborted; layers then have between n and n + n_reserved tokens.
 */
#ifndef DCI_KV_STATE_H
#define DCI_KV_STATE_H

#include "kv/kv_internal.h"

typedef struct dci_kv_chunk dci_kv_chunk;         /* chunk.h */
typedef struct dci_kv_clusters dci_kv_clusters;   /* clusters.h */
typedef struct dci_kv_reorder dci_kv_reorder;     /* below */
typedef struct dci_kv_transform dci_kv_transform; /* transform.h */
typedef struct dci_kv_tree dci_kv_tree;           /* tree/tree.h */

struct dci_kv_head {
        dci_kv_transform *keys, *values; /* NULL where there are none */
        int32_t *fixed;                  /* SELECT_OBSERVED: candidates, best first */
        size_t n_fixed, fixed_capacity;
        double sum_latest, sum_now; /* squared distortion: of the last whole span of tokens, and since */
        uint32_t n_latest, n_now;
        int32_t refits;
        dci_kv_tree *tree;     /* GROUP_TREE; NULL without candidates */
        uint32_t *vote_counts; /* SUMMARY_VOTES, [block][code]: of the first n_counted candidates; else NULL */
        size_t n_counted;
        uint64_t n_plans, n_decisions, n_corrections; /* as in dci_kv_sequence_info */
};

enum { DCI_KV_PROMPT_OPEN, DCI_KV_PROMPT_WAITING, DCI_KV_PROMPT_DONE };

/* What the plans of a layer keep for the next ones (stages/schedule.h). Allocated with the sequence; forks copy it. */
typedef struct dci_kv_selection_cache {
        bool listed;     /* there are lists, and `queries` are those of the last plan that could use them */
        bool decides;    /* of the current call: new lists are chosen */
        size_t n;        /* tokens at the plan that made the lists; 0: they have been truncated since */
        size_t end;      /* candidates they were chosen from */
        size_t since;    /* plans that used them */
        float *queries;  /* [query head][dim_k], times the scale */
        int32_t *lists;  /* [list][dci_kv_max_room]: candidates, best first */
        int32_t *counts; /* by list */
        float *ring;     /* [list][config.ring][group][dim_k]: queries of the last plans, times the scale; NULL: none */
        size_t n_pushed; /* plans that the ring has seen; the last one is at (n_pushed - 1) % config.ring */
        size_t renewed;  /* REORDERED: n_pushed when the order was made */
        size_t early;    /* so many plans before the period ends the next order is due */
} dci_kv_selection_cache;

/* The contiguous copies of a sequence (contiguous.h); all zeros where there are none. */
typedef struct dci_kv_copy {
        int32_t *table; /* blocks of kv->copies */
        size_t n_table, table_capacity;
        size_t trusted;  /* candidates from here on are others since their rows were copied */
        int32_t *places; /* [layer with copies][head][place_capacity]: the row of each candidate, -1: none */
        size_t n_places, place_capacity;
        bool early; /* workers have written rows since the last update */
} dci_kv_copy;

/*
 * An order in the making (`reorder_delay`): dci_kv_maintain starts it (maintain.c) and takes it into use so many plans
 * later. Workers make it meanwhile, from what is here: plans go on to change the ring, and later pages the batches.
 */
struct dci_kv_reorder {
        dci_kv_clusters *batch; /* of all candidates: the new order */
        dci_kv_clusters **from; /* those that it replaces, whose order the tokens that are not static keep */
        size_t n_from;
        float *queries;          /* [head][n_queries][dim_k], times the scale */
        size_t n_queries;        /* of one head */
        size_t started, n_bytes; /* started: n_pushed at that time */
        void (*build)(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t area);
        bool queued; /* for the workers; else it is only allocated */
        bool done;   /* under jobs_lock */
};

struct dci_kv_layer {
        size_t n;          /* tokens appended */
        size_t n_grouped;  /* candidates with groups */
        atomic_int prompt; /* DCI_KV_PROMPT_*; n_grouped is valid once it is DONE */
        bool prompt_now;   /* the prompt ended in the open step */
        bool prompt_due;   /* the prompt has ended, and its clusters or codes are still to be built (former.h) */
        size_t n_missing;  /* the first n_missing candidates have no codes in chunks: only a device has them */
        size_t n_prompt;
        size_t n_static; /* REORDERED with a share of its own: static tokens */
        bool copied;     /* the contiguous copy is of the lists as they are (contiguous.h) */
        bool copies_now; /* workers write the copy when they have built a head */
        dci_kv_chunk **chunks;
        size_t n_chunks, chunk_capacity;
        dci_kv_clusters **batches; /* ascending; those of a prompt in progress are not complete */
        size_t n_batches, batch_capacity;
        dci_kv_head *heads;
        float *observed; /* until the prompt's work is done: [head][query][dim_k], times the scale */
        size_t n_observed, observed_bytes;
        dci_kv_reorder *reorder;           /* a new order that workers make; NULL: none */
        size_t next_head, n_running;       /* of the work on a prompt or an order; under jobs_lock */
        dci_kv_selection_cache *selection; /* NULL: every plan decides for itself */
        int32_t *boundaries; /* BOUNDARY: positions of tokens whose queries differ from the last list's, ascending */
        size_t n_boundaries, boundary_capacity;
        dci_kv_layer *next_job;
        dci_kv_sequence *sequence;
        size_t number;
};

struct dci_kv_sequence {
        int64_t id;
        size_t n, n_reserved; /* tokens of whole steps; of the open one */
        bool open;            /* a step */
        bool resident;
        bool leaves;            /* resident until the open step ends */
        int32_t *_Atomic table; /* blocks; read by workers: replaced by dci_kv_grow_shared */
        size_t n_table, table_capacity;
        dci_kv_layer *layers;
        unsigned char *selection; /* memory of the layers' dci_kv_selection_cache */
        dci_kv_copy copy;
        size_t mark; /* kv->mark of the last call that named it */
};

#endif
