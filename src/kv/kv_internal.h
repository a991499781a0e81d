/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a dci_kv is made of.
 *
 * Rows are kept in a pool of blocks (pool.h). A block is page_tokens tokens of all kv heads, and has the same number in
 * every layer, so a sequence has one table of blocks for all its layers (state.h). Tokens after the sink are
 * candidates, numbered from there on. What is stored per group of candidates is kept in chunks (chunk.h), in clusters
 * (clusters.h) or in a tree per head (tree/tree.h), which forks share. The five choices of a config are tables of
 * functions (stages/stages.h).
 *
 * cache.c creates and destroys. `lock` serialises calls; workers (worker.h) do not take it. They read the rows of a
 * prompt through the table of blocks and the list of pieces, which calls replace by larger ones meanwhile: both
 * pointers are atomic, and old arrays stay until no unit is in progress (memory.h).
 */
#ifndef DCI_KV_KV_INTERNAL_H
#define DCI_KV_KV_INTERNAL_H

#include "core/internal.h"

#include <pthread.h>

#include "dci/kv.h"
#include "kv/former.h"
#include "simd/kernels.h"
#include "sketch/rotate.h"

/* Tokens of a chunk: a multiple of every page and of DCI_CODE_ROWS. */
#define DCI_KV_CHUNK ((size_t)512)
/* Tokens that loops over rows take at a time. */
#define DCI_KV_TILE ((size_t)64)
/* Levels of a tree's nodes at most. */
#define DCI_KV_TREE_LEVELS 8
/* Bytes of scratch for building that are never too many. */
#define DCI_KV_SCRATCH ((size_t)256 << 20)

typedef struct dci_kv_sequence dci_kv_sequence; /* state.h */
typedef struct dci_kv_layer dci_kv_layer;
typedef struct dci_kv_head dci_kv_head;
typedef struct dci_kv_stages dci_kv_stages; /* stages/stages.h */

typedef struct dci_kv_pool {
        size_t block_bytes;        /* of one layer; 0: the caller's layout, or there is no such pool */
        size_t n_layers, id_bytes; /* id_bytes: of a block's candidates in one layer; copies only */
        size_t piece_blocks;       /* blocks that are allocated together, in all layers: a power of two */
        size_t piece_shift, piece_bytes;
        /* Read by workers: replaced by dci_kv_grow_shared. NULL: a gap, whose blocks have no memory. */
        unsigned char **_Atomic pieces;
        size_t n_pieces, piece_capacity; /* n_pieces: with gaps */
        size_t n_gaps;
        size_t n_blocks, n_free, max_blocks;
        bool caller_blocks; /* the caller assigns blocks to sequences: none is free or taken */
        uint32_t *refs;     /* by block */
        int32_t *free_list; /* a stack */
        bool ordered;       /* the free list descends, so that low numbers are taken first */
        size_t block_capacity, free_capacity, seen_capacity;
        uint32_t *seen, stamp; /* blocks of the caller: marks of one call */
} dci_kv_pool;

/* Scratch for several threads: an area for each (worker.h). */
typedef struct dci_kv_scratch {
        unsigned char *memory;
        size_t n_areas, area_bytes;
} dci_kv_scratch;

/* An array that was replaced by a larger one while units in progress may still have read it. */
typedef struct dci_kv_retired {
        void *memory;
        size_t n_bytes;
} dci_kv_retired;

struct dci_kv {
        dci_context *context;
        dci_kv_config config;    /* as checked: nothing is left open */
        size_t dim_k, dim_v, es; /* es: bytes of an element */
        /* Query heads of a kv head and of a list; lists of a kv head and of a sequence: list l is of kv head
         * l / head_lists. */
        size_t share, group, head_lists, n_lists;
        float scale;
        dci_kv_stages *stages;
        uint8_t *layer_modes;
        dci_kv_layout layout;
        void **layout_keys, **layout_values;           /* copies of the layout's arrays */
        size_t summary_bytes, tail_bytes, chunk_bytes; /* of a head; of a chunk, with its struct */
        dci_kv_pool pool, copies;                      /* copies: contiguous.h */
        const dci_kv_pool *asking;                     /* the pool that calls the hook */
        bool makes_copies;                             /* a device fetches them: workers write those of a prompt */
        dci_kv_sequence **sequences;                   /* ascending ids */
        dci_kv_sequence **found, **late;               /* as large: sequences of the current call */
        size_t n_sequences, sequence_capacity;
        int64_t next_id;
        float *load_row; /* while a file is loaded */
        size_t mark;
        atomic_size_t bytes;
        size_t row_bytes, copy_bytes; /* of pieces; of those of copies */
        atomic_size_t chunk_total;    /* bytes of chunks, clusters and trees */
        pthread_mutex_t lock;         /* one call at a time */
        size_t plan_tokens;           /* tokens that `plans` suffices for */
        /* Nodes by level among the first tree_tokens candidates: the last count. */
        size_t tree_tokens, tree_counts[DCI_KV_TREE_LEVELS];
        float *tree_directions; /* of simple indices, with the lift as their last coordinate; NULL: there are none */
        dci_rotation vote_rotation; /* SUMMARY_VOTES */
        dci_kv_scratch plans, building;
        bool clustered;           /* groups are clusters, not chunks */
        dci_kv_former former;     /* builds groups */
        size_t clustering_tokens; /* tokens that `clustering` suffices for */
        dci_kv_scratch clustering;
        dci_kv_retired *retired; /* memory.c */
        size_t n_retired, retired_capacity;
        /* worker.c */
        pthread_mutex_t jobs_lock;
        pthread_cond_t work, done;
        dci_kv_layer *jobs, *last_job;
        size_t n_areas, n_free_areas;    /* of scratch for building */
        size_t *free_areas, *held_areas; /* a stack; those of the current call. One allocation */
        pthread_t *workers;
        size_t n_workers, worker_capacity, n_working, max_working; /* working: on a unit */
        int64_t worker_pid; /* the process that the workers belong to: a child of fork has none */
        bool stop;
};

#endif
