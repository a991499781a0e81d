/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a dci_kv is made of.
 *
 * Rows live in a pool of blocks (pool.c): a block is page_tokens tokens of all kv heads, in every layer under the same number, so a
 * sequence has one table for all its layers. Summaries live in chunks of DCI_KV_CHUNK tokens of one layer and all its heads, which forks
 * share by counted references and copy before they write. Tokens with summaries are numbered from the end of the sink on: candidates.
 *
 * The five choices are small tables of functions (stages/stages.h); presets.c names their combinations.
 */
#ifndef DCI_KV_INTERNAL_H
#define DCI_KV_INTERNAL_H

#include "core/internal.h"

#include <pthread.h>

#include "dci/kv.h"
#include "sketch/coder.h"
#include "sketch/fit.h"

#define DCI_KV_CHUNK ((size_t)512) /* tokens: a multiple of every page and of DCI_CODE_ROWS */
#define DCI_KV_TILE ((size_t)64)   /* tokens that loops over rows take at a time */

typedef struct dci_kv_stages dci_kv_stages; /* stages/stages.h */

/* --- memory (memory.c) ---------------------------------------------------------------------------------------------- */

/* Counts against max_bytes: DCI_ERR_FULL or DCI_ERR_MEMORY, *out untouched. Any thread. n_bytes 0 gives one byte. */
dci_status dci_kv_alloc(dci_kv *kv, size_t n_bytes, void **out);
/* The same, aligned to whole memory pages. */
dci_status dci_kv_alloc_pages(dci_kv *kv, size_t n_bytes, void **out);
void dci_kv_free(dci_kv *kv, void *memory, size_t n_bytes);
/* Grows an array to `capacity` elements of `size` bytes, at least doubling it. */
dci_status dci_kv_grow(dci_kv *kv, void **array, size_t *capacity, size_t wanted, size_t size);

/* What that takes; whether so much is there, without taking it. */
size_t dci_kv_grow_bytes(size_t capacity, size_t wanted, size_t size);
dci_status dci_kv_check_room(const dci_kv *kv, size_t n_bytes);

/* --- pool.c: blocks --------------------------------------------------------------------------------------------------- */

typedef struct dci_kv_pool {
        size_t block_bytes;  /* of one layer; 0: the caller's layout */
        size_t piece_blocks; /* blocks that are taken at once, in all layers: a power of two */
        size_t piece_shift, piece_bytes;
        unsigned char **pieces;
        size_t n_pieces, piece_capacity;
        size_t n_blocks, n_free, max_blocks;
        bool lent;          /* the caller says which blocks a sequence gets: none is free or taken */
        uint32_t *refs;     /* by block */
        int32_t *free_list; /* the next one to take comes last */
        bool ordered;       /* and that is the lowest number, and so on */
        size_t block_capacity, free_capacity, seen_capacity;
        uint32_t *seen, stamp; /* lent blocks: marks of one call */
} dci_kv_pool;

/* Blocks of so many pieces. Slots of more than most_blocks have no numbers: what is behind them, of the last piece, is nobody's. */
size_t dci_kv_pool_blocks(const dci_kv_pool *pool, size_t n_pieces);
dci_status dci_kv_pool_init(dci_kv *kv);
void dci_kv_pool_destroy(dci_kv *kv);
/* That n blocks are free afterwards; if they are many, lowest numbers come first, so that neighbours are taken where there are some. */
dci_status dci_kv_pool_ready(dci_kv *kv, size_t n);
/* The memory it would take for that. */
size_t dci_kv_pool_bytes(const dci_kv *kv, size_t n);
/* One of those. */
int32_t dci_kv_pool_alloc(dci_kv *kv);
void dci_kv_pool_retain(dci_kv *kv, int32_t block);
void dci_kv_pool_release(dci_kv *kv, int32_t block);

/* Rows of one block and head: slot s at keys + s * key_step, in bytes. */
typedef struct dci_kv_page {
        unsigned char *keys, *values;
        size_t key_step, value_step;
} dci_kv_page;
dci_kv_page dci_kv_page_at(const dci_kv *kv, size_t layer, int32_t block, size_t head);
/* The first slots of a block to another, in all layers. */
void dci_kv_copy_rows(const dci_kv *kv, int32_t from, int32_t to, size_t n_slots);

/* --- sequences -------------------------------------------------------------------------------------------------------- */

/* Summaries of DCI_KV_CHUNK tokens: for each head, stages->summary's bytes, then stages->tail's. */
typedef struct dci_kv_chunk {
        atomic_size_t refs;
} dci_kv_chunk;

/* Groups that are not by position, of consecutive candidates (clusters.c): never changed once made, and shared by forks. By head:
 *
 *      offsets   n_groups + 1: where the members of each begin in ids
 *      ids       candidates by group, ascending within one
 *      rows      summaries, one a group; mean keys and mean values where the tail needs them
 */
typedef struct dci_kv_clusters {
        atomic_size_t refs;
        size_t n_bytes;
        size_t first, n; /* candidates [first, first + n) */
        size_t n_static; /* REORDERED: the first ids of each head, whole groups */
        size_t room;     /* most groups of a head */
        bool early;      /* the budget had no room for it to wait; files do not know */
        size_t ids_at, rows_at, mean_keys_at, mean_values_at, head_bytes; /* within a head's part */
        struct dci_kv_cluster_head {
                size_t n_groups, before; /* before: of the batches before this one */
        } heads[];
} dci_kv_clusters;

/* A transform of one head's keys or values, shared by forks. */
typedef struct dci_kv_transform {
        atomic_size_t refs;
        size_t n_bytes;    /* in all */
        double distortion; /* mean square of what rounding took away from the prompt; negative: not known yet */
        dci_coder coder;
        size_t n_queries; /* learned: of the moments behind the coder, which a refit begins with; 0: none yet */
} dci_kv_transform;

typedef struct dci_kv_tree dci_kv_tree; /* tree/tree.h */

typedef struct dci_kv_head {
        dci_kv_transform *keys, *values; /* NULL where there are none */
        int32_t *fixed;                  /* SELECT_OBSERVED: candidates, best first */
        size_t n_fixed, fixed_capacity;
        double sum_latest, sum_now; /* squared distortion: of the last whole span of tokens, and since */
        uint32_t n_latest, n_now;
        int32_t refits;
        dci_kv_tree *tree;                            /* GROUP_TREE; NULL without candidates */
        uint64_t n_plans, n_decisions, n_corrections; /* as dci_kv_sequence_info has them */
} dci_kv_head;

enum { DCI_KV_PROMPT_OPEN, DCI_KV_PROMPT_WAITING, DCI_KV_PROMPT_DONE };

/* What plans of a layer leave to the next ones (stages/schedule.c): it lies in its sequence's memory, and forks copy it. */
typedef struct dci_kv_selection_cache {
        bool listed;     /* there are lists, and `queries` are those of the last plan that could use them */
        bool decides;    /* of the call that runs */
        size_t n;        /* tokens at the plan that made the lists; 0: they have been cut since */
        size_t end;      /* candidates they were chosen from */
        size_t since;    /* plans with them */
        float *queries;  /* [query head][dim_k], times the scale */
        int32_t *lists;  /* [kv head][dci_kv_max_room]: candidates, best first */
        int32_t *counts; /* by kv head */
        float *ring; /* [kv head][config.ring][group][dim_k]: queries of the last plans, times the scale; NULL: none */
        size_t n_pushed; /* plans that it has seen; the last one lies at (n_pushed - 1) % config.ring */
        size_t renewed;  /* REORDERED: n_pushed when the order was made */
} dci_kv_selection_cache;

typedef struct dci_kv_layer {
        size_t n;           /* tokens appended */
        size_t n_grouped;   /* candidates */
        size_t n_elsewhere; /* that someone else has, as was said last (kv->elsewhere) */
        atomic_int prompt;  /* DCI_KV_PROMPT_*; done: n_grouped is what it says */
        bool prompt_now;    /* in the step that is open */
        bool unformed;      /* kv->elsewhere: the prompt's listed groups are still to be made */
        bool uncoded;       /* kv->fits_only: the prompt's frames are there, its codes are nowhere */
        size_t n_missing;   /* kv->fits_only: the first candidates, whose codes are not in chunks */
        size_t n_prompt;
        size_t n_static; /* REORDERED with a share of its own: static tokens */
        dci_kv_chunk **chunks;
        size_t n_chunks, chunk_capacity;
        dci_kv_clusters **batches; /* of listed groups, ascending; those of a prompt under way are not complete */
        size_t n_batches, batch_capacity;
        dci_kv_head *heads;
        float *observed; /* until the prompt's work is done: [head][query][dim_k], times the scale */
        size_t n_observed, observed_bytes;
        size_t next_head, n_running;     /* of that work; jobs' lock */
        dci_kv_selection_cache *decided; /* NULL: every plan decides for itself */
        int32_t *boundaries;             /* BOUNDARY: positions of tokens whose queries turned, ascending */
        size_t n_boundaries, boundary_capacity;
        struct dci_kv_layer *next_job;
        struct dci_kv_sequence *sequence;
        size_t number;
} dci_kv_layer;

typedef struct dci_kv_sequence {
        int64_t id;
        size_t n, n_reserved; /* tokens of whole steps; of the one that is open */
        bool open;            /* a step */
        bool resident;
        bool leaves;    /* resident until the step that is open ends */
        int32_t *table; /* blocks */
        size_t n_table, table_capacity;
        dci_kv_layer *layers;
        unsigned char *decided; /* the layers' dci_kv_selection_cache */
        size_t mark;            /* to find repetitions in a call */
} dci_kv_sequence;

/* What a worker needs to form a head's groups, and what plans and attention need. */
typedef struct dci_kv_scratch {
        unsigned char *memory;
        size_t n_areas, area_bytes;
} dci_kv_scratch;

struct dci_kv {
        dci_context *context;
        dci_kv_config config;           /* as checked: nothing is left open */
        size_t dim_k, dim_v, group, es; /* es: bytes of an element */
        float scale;
        dci_kv_stages *stages;
        uint8_t *layer_modes;
        dci_kv_layout layout;
        void **layout_keys, **layout_values;           /* copies of the layout's arrays */
        size_t summary_bytes, tail_bytes, chunk_bytes; /* of a head; of a chunk, its struct too */
        dci_kv_pool pool;
        dci_kv_sequence **sequences;     /* ascending ids */
        dci_kv_sequence **found, **late; /* as large: of the call that runs */
        size_t n_sequences, sequence_capacity;
        int64_t next_id;
        float *load_row; /* while a file is loaded */
        size_t mark;
        atomic_size_t bytes;
        size_t row_bytes;          /* of pieces */
        atomic_size_t chunk_total; /* bytes of chunks and trees */
        pthread_mutex_t lock;      /* one call at a time */
        pthread_mutex_t map_lock;  /* for workers: where rows lie; written when tables and lists of pieces change */
        size_t plan_tokens;        /* what `plans` suffices for */
        size_t tree_tokens, tree_nodes; /* nodes among the first so many candidates: what was counted last */
        dci_kv_scratch plans, forming;
        bool listed; /* groups are in batches, not in chunks */
        /* Someone else forms groups and plans (src/gpu): here they form when dci_kv_maintain asks for them, and only then. */
        bool elsewhere;
        bool fits_only; /* elsewhere: so are most of a prompt's learned codes made, in frames that are fitted here */
        size_t listing_tokens; /* what `listing` suffices for */
        dci_kv_scratch listing;
        /* prompt.c */
        pthread_mutex_t jobs_lock;
        pthread_cond_t work, done;
        dci_kv_layer *jobs, *last_job;
        pthread_t worker;
        int64_t worker_pid; /* the process that has it: a child of fork has not */
        bool has_worker, stop;
};

/* A call's parallel region. most_workers: as many as there are areas of scratch for. `work` in multiply-adds or so. */
dci_status dci_kv_spread(dci_kv *kv, size_t max_workers, size_t n_tasks, size_t work, dci_task_fn fn, void *arg);

dci_status dci_kv_lock(dci_kv *kv);
void dci_kv_unlock(dci_kv *kv);

/* Groups of a prompt are not formed when it ends: someone else does that. Frames that are learned are the host's work all the same, and
 * with them the prompt's codes. */
DCI_INLINE bool dci_kv_builds_later(const dci_kv *kv)
{
        return kv->elsewhere && kv->config.summary != DCI_KV_SUMMARY_LEARNED;
}

/* sequence.c: NULL with an error for an unknown one. */
dci_kv_sequence *dci_kv_find(dci_kv *kv, int64_t sequence);
/* Locks, and finds the sequences of a call in kv->found; unlocked again if it fails. */
dci_status dci_kv_begin_call(dci_kv *kv, size_t n_sequences, const int64_t *sequences, dci_kv_sequence ***out);
dci_status dci_kv_new_sequence(dci_kv *kv, dci_kv_sequence **out);
void dci_kv_free_sequence(dci_kv *kv, dci_kv_sequence *sequence);
/* That no step is open, and that there are n tokens; that prompts have ended. */
dci_status dci_kv_check_whole(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n_tokens);
dci_status dci_kv_check_prompted(const dci_kv *kv, const dci_kv_sequence *sequence);
/* Candidates that are left when a sequence is cut to n tokens. */
size_t dci_kv_grouped_within(const dci_kv *kv, const dci_kv_layer *layer, size_t n);
/* What was chosen once, as far as it lies within n tokens: returns how many; out may be the head's own list, or NULL. */
size_t dci_kv_fixed_within(const dci_kv *kv, const dci_kv_head *head, size_t n, int32_t *out);
/* Forgets blocks beyond those of n tokens. */
void dci_kv_truncate_table(dci_kv *kv, dci_kv_sequence *sequence, size_t n_tokens);

DCI_INLINE size_t dci_kv_blocks_of(const dci_kv *kv, size_t n_tokens)
{
        return (n_tokens + kv->config.page_tokens - 1) / kv->config.page_tokens;
}

/* Pointers to the rows of tokens [first, first + n) of one head; either may be NULL. */
void dci_kv_rows_of(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, size_t n, const void **keys,
                    const void **values);

/* step.c: dci_kv_append, but the rows are written to their slots by someone else, before anybody asks for them (src/gpu). */
dci_status dci_kv_append_later(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences,
                               const size_t *n_tokens, const dci_kv_rows *rows);

/* --- listed groups (clusters.c) ------------------------------------------------------------------------------------------- */

/* An empty batch of candidates [first, first + n) with room for so many groups in each head. */
dci_status dci_kv_clusters_alloc(dci_kv *kv, size_t first, size_t n, size_t room, dci_kv_clusters **out);
/* The same for as many groups as the layer's may become, with all that forming and publishing it takes, as the n_more-th new one. */
dci_status dci_kv_clusters_prepare(dci_kv *kv, dci_kv_layer *layer, size_t first, size_t n, size_t n_more,
                                   dci_kv_clusters **out);
void dci_kv_clusters_release(dci_kv *kv, dci_kv_clusters *batch);
void dci_kv_release_clusters(dci_kv *kv, dci_kv_layer *layer, size_t n_left);
/* Room in the layer's list for n batches. */
dci_status dci_kv_clusters_ready(dci_kv *kv, dci_kv_layer *layer, size_t n);
/* Appends a batch whose groups are there; the room is there, too. */
void dci_kv_clusters_publish(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch);
/* Batches that lie within the first n candidates. */
size_t dci_kv_clusters_within(const dci_kv_layer *layer, size_t n);
int32_t *dci_kv_cluster_offsets(const dci_kv *kv, const dci_kv_clusters *batch, size_t head);
int32_t *dci_kv_cluster_ids(const dci_kv *kv, const dci_kv_clusters *batch, size_t head);
/* Rows of groups, one behind the other; of the tail: mean_of_values false: of keys. */
unsigned char *dci_kv_cluster_rows(const dci_kv *kv, const dci_kv_clusters *batch, size_t head);
unsigned char *dci_kv_cluster_means(const dci_kv *kv, const dci_kv_clusters *batch, size_t head, bool of_values);
/* Bytes of a group: its rows and its offset. */
size_t dci_kv_cluster_bytes(const dci_kv *kv);
/* Scratch for batches of at most n candidates, areas as those for forming. Waits for work that uses a smaller one. */
dci_status dci_kv_clustering_ready(dci_kv *kv, size_t n);
/* What an area of that takes. */
size_t dci_kv_clustering_bytes(const dci_kv *kv, size_t n);
/* Gives it back if it is larger than later batches need and nobody works with it. */
void dci_kv_clustering_shrink(dci_kv *kv);
/* Groups of one head, and what stays of them. Areas of scratch by number: 0 is the worker's. */
void dci_kv_clusters_build(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, size_t area);
/* The same from members that are there already. */
void dci_kv_clusters_summarise(dci_kv *kv, dci_kv_layer *layer, dci_kv_clusters *batch, size_t head, size_t area);

/* --- groups (summaries.c) -------------------------------------------------------------------------------------------------- */

/* Candidates that a sequence of n tokens may have: none of them younger than the rollback, whole pages. */
size_t dci_kv_may_group(const dci_kv *kv, size_t n);
/* Whether this layer forms groups at all. */
bool dci_kv_groups(const dci_kv *kv, size_t layer);
/* Whether groups are leaves of trees (tree/tree.h). */
DCI_INLINE bool dci_kv_has_trees(const dci_kv *kv)
{
        return kv->config.group == DCI_KV_GROUP_TREE;
}
/* Whether anything is kept of groups, in chunks, batches or trees. */
DCI_INLINE bool dci_kv_summarised(const dci_kv *kv)
{
        return kv->listed || kv->summary_bytes + kv->tail_bytes > 0 || dci_kv_has_trees(kv);
}
/* Whether the tail is over listed groups, and estimates only some of them. */
DCI_INLINE bool dci_kv_sums_of_lists(const dci_kv *kv)
{
        return kv->listed && kv->config.tail == DCI_KV_TAIL_SUMS;
}
/* Whether tails need groups of their own. */
DCI_INLINE bool dci_kv_tailed(const dci_kv *kv)
{
        return kv->tail_bytes > 0 || dci_kv_sums_of_lists(kv);
}
/* Listed groups that are pages: later ones are by position. */
DCI_INLINE bool dci_kv_reorders(const dci_kv *kv)
{
        return kv->config.group == DCI_KV_GROUP_REORDERED;
}
/* Groups begin and end at multiples of so many candidates. */
DCI_INLINE size_t dci_kv_unit(const dci_kv *kv)
{
        return kv->listed && !dci_kv_reorders(kv) ? 1 : kv->config.page_tokens;
}
/* Takes chunks for n candidates, each its own as far as it will be written from candidate `first` on. */
dci_status dci_kv_make_chunks_exclusive(dci_kv *kv, dci_kv_layer *layer, size_t first, size_t n);
void dci_kv_release_chunks(dci_kv *kv, dci_kv_layer *layer, size_t n_left);
unsigned char *dci_kv_chunk_head(const dci_kv *kv, const dci_kv_layer *layer, size_t chunk, size_t head);

dci_status dci_kv_transform_alloc(dci_kv *kv, int32_t kind, size_t dim, dci_kv_transform **out);
void dci_kv_transform_release(dci_kv *kv, dci_kv_transform *frame);
/* As it was when it was taken for this dim, whatever has been filled in; NULL is allowed. */
void dci_kv_transform_empty(dci_kv_transform *frame, size_t dim);
/* Frames that a head's codes need, empty: dci_kv_rebuild fills them in. */
dci_status dci_kv_alloc_transforms(dci_kv *kv, dci_kv_layer *layer, size_t head, bool learned);

/* Scratch for forming groups, one area for each thread of the context and one for the worker. */
dci_status dci_kv_build_ready(dci_kv *kv);
/* Summaries and tails of candidates [first, end) of one head. */
void dci_kv_build(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch);
/* A chunk's candidates among the first n_candidates, in other memory than the chunk's, a head's part of it; what other places hold stays. h
 * is a copy of the head: codes are watched. scratch: dci_kv_build_bytes bytes. */
void dci_kv_rebuild_chunk(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_head *h, size_t chunk,
                          size_t n_candidates, unsigned char *memory, void *scratch);
size_t dci_kv_build_bytes(const dci_kv *kv);
/* Of a prompt of `end` candidates the frame alone where its codes can be made elsewhere, else as dci_kv_rebuild; and what is left to do
 * when the first ones have been made there, with their residuals. */
void dci_kv_build_fit(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t end, void *scratch);
void dci_kv_build_rest(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, const float *residuals,
                       void *scratch);
/* Before them the frames, and the choice that is made once, from the first `end` candidates. */
void dci_kv_rebuild(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch);
/* The keys' frame, and their codes alone: of tails nothing changes with it. */
void dci_kv_reencode(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t end, void *scratch);

/* Random frames about these centres, a row for each head (of values: only if a tail has such), for a layer that has no candidates yet and
 * someone else's codes (kv->elsewhere). */
dci_status dci_kv_set_centres(dci_kv *kv, dci_kv_layer *layer, const float *centres, const float *value_centres);
/* A frame of values about this centre. */
void dci_kv_begin_values(const dci_kv *kv, const float *centre, dci_kv_transform *frame);
void *dci_kv_transform_memory(dci_kv_transform *frame);
void *dci_kv_transform_moments(dci_kv_transform *frame, size_t dim);

/* maintain.c: forms what is due for these sequences; early: and what would be due later. */
dci_status dci_kv_build_pending(dci_kv *kv, size_t n_sequences, dci_kv_sequence *const *sequences, bool early);
/* For one who plans elsewhere by listed groups: whether dci_kv_maintain, or dci_kv_reserve behind it, would form any here; forming those;
 * and those of a prompt that has ended, which were formed there and then. */
bool dci_kv_builds_next(const dci_kv *kv, const dci_kv_sequence *sequence);
/* The same, wherever queries may have turned since dci_kv_note_boundaries. */
bool dci_kv_may_build_next(const dci_kv *kv, const dci_kv_sequence *sequence);
dci_status dci_kv_build_next(dci_kv *kv, int64_t sequence);
dci_status dci_kv_build_prompt(dci_kv *kv, int64_t sequence);
/* A prompt's groups of one layer from who made them elsewhere, of all heads one behind the other: members as numbers of candidates, group by group,
 * ascending within one; where those of each begin; and the rows that stay of groups. Groups without members are left out. */
typedef struct dci_kv_made_clusters {
        size_t layer, n_groups;
        const int32_t *members, *starts; /* [head][n], [head][n_groups + 1] */
        const unsigned char *rows;       /* [head][n_groups] */
} dci_kv_made_clusters;
/* In the place of dci_kv_build_prompt for these layers: all of them or, without memory, none. Layers whose prompt's groups are there, or whose prompt
 * gives other than n candidates, are passed over. Counts the others to *io_given. */
dci_status dci_kv_set_prompt_clusters(dci_kv *kv, int64_t sequence, size_t n, size_t n_given,
                                      const dci_kv_made_clusters *given, uint64_t *io_given);
/* external_codes.c: the first n_missing candidates of a layer that is `uncoded` have codes elsewhere: residuals, ld for each head, are those that
 * dci_kv_watch_codes asks for. What is behind them is formed here; all of it if residuals is NULL. */
dci_status dci_kv_set_codes(dci_kv *kv, dci_kv_layer *layer, const float *residuals, size_t ld);
/* Codes from candidate `first` on, where a chunk begins, are in chunks afterwards. All candidates behind n_missing lie in others, or in none. */
dci_status dci_kv_build_missing(dci_kv *kv, dci_kv_layer *layer, size_t first);
/* step.c: whether a step of n tokens forms groups that would otherwise be due later. */
bool dci_kv_pending(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n);

/* prompt.c */
void dci_kv_jobs_init(dci_kv *kv);
/* In a child of fork, which has neither the worker nor the threads that may have held its locks: makes those anew, and has the units begin
 * again that the worker may have been at. Under lock, or where nobody else is. */
void dci_kv_jobs_inherit(dci_kv *kv);
/* Ends the worker, whatever is left to do; then sequences go, then what work was guarded by. */
void dci_kv_jobs_stop(dci_kv *kv);
void dci_kv_jobs_destroy(dci_kv *kv);
/* Until the work of this sequence (NULL: all) is done, with its help. */
void dci_kv_jobs_wait(dci_kv *kv, const dci_kv_sequence *sequence);
/* Takes back what has not begun, and waits for the rest, whose result is none: of all its prompts, or those that ended in the step that
 * is open. */
void dci_kv_jobs_cancel(dci_kv *kv, const dci_kv_sequence *sequence, bool now_only);
/* What dci_kv_end_prompt checks before it looks at the queries, and whether it will look at them. */
dci_status dci_kv_check_end_prompt(dci_kv *kv, size_t layer, int64_t sequence, size_t n_positions, const void *queries,
                                   size_t ld, bool *out_looks);
/* How many candidates a prompt gives. */
size_t dci_kv_prompt_candidates(const dci_kv *kv, size_t n_prompt);
/* The candidates of a layer whose prompt has ended, once its work is done: the same number before and after. */
size_t dci_kv_will_group(const dci_kv *kv, const dci_kv_layer *layer);
/* A layer whose prompt has not ended, again. No work of it is under way. */
void dci_kv_cancel_prompt(dci_kv *kv, dci_kv_layer *layer);

/* plan.c: scratch for sequences of so many tokens. */
dci_status dci_kv_plans_ready(dci_kv *kv, size_t n_tokens);
size_t dci_kv_plans_bytes(const dci_kv *kv, size_t n_tokens);
size_t dci_kv_stride(const dci_kv *kv);
/* One group's queries as floats, times the scale. */
void dci_kv_queries_to_f32(const dci_kv *kv, const void *queries, size_t ld, size_t sequence, size_t head, float *out);
/* Rows of the caller's that lie in the address space, aligned to their elements. */
dci_status dci_kv_check_span(const char *what, size_t n_rows, const void *rows, size_t ld, size_t element_bytes);
/* The first of n queries that is no number, or too large to score; n: there is none. */
size_t dci_kv_bad_query(const dci_kv *kv, size_t n, const void *queries, size_t ld);
dci_status dci_kv_check_queries(const dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found,
                                const void *queries, size_t ld);
dci_status dci_kv_check_plan(const dci_kv *kv, size_t n_sequences, const dci_kv_plan *plan);
/* maintain.c: distortion of a head's latest codes over that of its first ones; negative: not known. */
double dci_kv_drift(const dci_kv_head *head);

/* attend.c */
size_t dci_kv_attend_bytes(const dci_kv *kv);

/* --- the schedule (stages/schedule.c) ---------------------------------------------------------------------------------------- */

/* The layer whose lists this one uses: itself, or with ANCHOR the one before it that searches. */
size_t dci_kv_anchor_of(const dci_kv *kv, size_t layer);
/* Memory of what plans leave, for all layers of a sequence; and giving each layer its own. */
size_t dci_kv_selection_cache_bytes(const dci_kv *kv);
void dci_kv_place_selection_cache(const dci_kv *kv, dci_kv_sequence *sequence);
/* A fork's copy, cut to n tokens. */
dci_status dci_kv_copy_selection_cache(dci_kv *kv, const dci_kv_layer *from, size_t n, dci_kv_layer *to);
/* Forgets what was decided about tokens from n on. */
void dci_kv_truncate_selection_cache(const dci_kv *kv, dci_kv_layer *layer, size_t n);
/* Room for the boundaries that a step of n_tokens may find. */
dci_status dci_kv_boundaries_ready(dci_kv *kv, dci_kv_sequence *sequence, size_t n_tokens);
/* From one who plans elsewhere: tokens whose queries turned, ascending. Those up to the last that is known are passed over. */
dci_status dci_kv_note_boundaries(dci_kv *kv, dci_kv_layer *layer, const int32_t *tokens, size_t n);
/* The most that a list can hold. */
DCI_INLINE size_t dci_kv_max_room(const dci_kv *kv)
{
        return kv->config.budget - kv->config.sink - kv->config.window;
}

/* --- stored orders (stages/reorder.c) -------------------------------------------------------------------------------------- */

#define DCI_KV_STATIC_SHARE 0.25

/* Queries of one head that importance is found by, the oldest first; returns how many. out: ring * group rows. */
size_t dci_kv_ring_queries(const dci_kv *kv, const dci_kv_layer *layer, size_t head, float *out);
/* A prompt's last queries into the ring. */
void dci_kv_ring_observe(const dci_kv *kv, dci_kv_layer *layer, size_t n_positions, const void *queries, size_t ld);
/* Static tokens of an order of n candidates that is made now; and what a prompt of n candidates says about it. */
size_t dci_kv_static_of(const dci_kv *kv, const dci_kv_layer *layer, size_t n);
dci_status dci_kv_static_online(dci_kv *kv, dci_kv_layer *layer, size_t n);
/* Candidates of a layer's new order, if one is due; else 0. */
size_t dci_kv_reordered(const dci_kv *kv, const dci_kv_layer *layer);

/* config.c */
dci_status dci_kv_check_config(const dci_kv_config *config, dci_kv_config *out, dci_kv_stages *out_stages);

#endif
