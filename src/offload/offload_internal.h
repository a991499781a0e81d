/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a dci_gpu_kv is made of. It owns a dci_kv, whose pool it locks piece by piece (layout.c), and gives each sequence a row: its
 * place in everything that lies on the device.
 *
 * Host memory that the device reads while the host goes on is not written again before that is over:
 *  - the batch record of a step comes from a ring of RECORDS, each with an event;
 *  - tables only grow where they may be read; what changes them otherwise waits for the device first;
 *  - plans lie in one place per layer, and the next plan of a layer waits for its queries, which come behind everything before them.
 *
 * New rows reach host memory by the append kernel on the caller's stream, whole blocks of long prompts by copies on the stream `side`. A
 * step begins behind all that an earlier one has queued on either.
 */
#ifndef DCI_OFFLOAD_OFFLOAD_INTERNAL_H
#define DCI_OFFLOAD_OFFLOAD_INTERNAL_H

#include "core/internal.h"

#include <pthread.h>

#include "dci/offload.h"
#include "gpu/gpu_internal.h"
#include "kv/kv_internal.h"

#define DCI_GPU_KV_RECORDS 4
#define DCI_GPU_KV_STAGING 8                 /* buffers through which a prompt's rows go to the host, in turn */
#define DCI_GPU_LEARNED_BLOCK ((size_t)4096) /* bytes of 32 rows' learned codes that the device takes, at most */
#define DCI_GPU_KV_MAX_SEQUENCES ((size_t)4096)

/* A sequence's place on the device. */
typedef struct dci_gpu_kv_row {
        int64_t id;    /* -1: nobody's */
        size_t n;      /* tokens of whole steps */
        size_t listed; /* positions from here on are in no hot slot */
        bool stepping; /* in the step that is open */
        /* Plans made on the device (summaries.c). */
        size_t grouped;  /* candidates that have summaries on the device, in all layers */
        size_t forming;  /* the same after the step that is open, of which the step itself forms those */
        size_t from;     /* from here on */
        size_t turned;   /* where queries turned before this token the host knows (boundaries.c) */
        size_t n_formed; /* layers whose prompt, which ended in that step, is formed on the device */
        bool prompting;  /* in the step that is open: its prompt had not ended before */
        bool framed;     /* its frames are on the device */
        bool behind;     /* what the device has is not what the host would make: all of it is made anew */
        /* Resident pages (resident.c). */
        uint32_t stepped;          /* the last step that it was in */
        size_t n_resident, oldest; /* pages; none before this one is resident */
        size_t cursor;             /* of the step that makes room */
} dci_gpu_kv_row;

typedef struct dci_gpu_kv_layer {
        bool dense;
        size_t index; /* among the dense ones, or the sparse ones */
        bool appended, planned;
        bool formed;             /* learned codes: what prompts gave that ended in this step is on the device */
        dci_kv_plan plan;        /* its arrays lie in `pinned`; but for slots, which all layers share */
        size_t n_longest;        /* tokens attended to by the plan's longest list */
        int32_t *answer;         /* baselines: header, counts and slots as the device has them in kv->answer; pinned */
        void *arrived;           /* event: rows and queries of the prompt are in host memory */
        dci_kv_rows rows;        /* of the step; strides are given */
        dci_kv_rows prompt_rows; /* of all of prompt_sequence; keys NULL: they were not named in this step */
        int64_t prompt_sequence;
} dci_gpu_kv_layer;

/* A prompt's end that the host is not yet told of. */
typedef struct dci_gpu_kv_prompt_end {
        size_t layer, row, n_positions, ld;
        const void *queries;
} dci_gpu_kv_prompt_end;

/* Locked memory for prompts' queries; kept, and used again in the next step. */
typedef struct dci_gpu_kv_chunk {
        struct dci_gpu_kv_chunk *next;
        size_t n_bytes, used;
        unsigned char *memory;
} dci_gpu_kv_chunk;

/* A step's batch record: `now` first, then arrays of n; SKIP has two numbers each. Behind them, where groups are listed, for each sparse layer the
 * candidates with groups. */
enum {
        DCI_GPU_KV_ROWS,
        DCI_GPU_KV_FIRST,
        DCI_GPU_KV_NEW,
        DCI_GPU_KV_BEGIN,
        DCI_GPU_KV_AFTER,
        DCI_GPU_KV_FROM, /* candidates with summaries before the step, and at its plans */
        DCI_GPU_KV_TO,
        DCI_GPU_KV_SKIP,
        DCI_GPU_KV_NUMBERS = DCI_GPU_KV_SKIP + 2
};

/* Chunks on the device (chunk_store.c). */
typedef struct dci_gpu_kv_store {
        size_t head_bytes, chunk_bytes; /* of a head's part; of a chunk */
        size_t max_chunks;              /* of a row */
        size_t piece_shift, piece_bytes, piece_capacity, n_pieces, n_uploaded;
        unsigned char **pieces, **device_pieces;
        int32_t *numbers, *device_numbers; /* [row][max_chunks]; the host's is locked */
        size_t *n_chunks;                  /* of each row */
        uint32_t *refs;                    /* by chunk */
        int32_t *free_list;
        size_t n_free;
} dci_gpu_kv_store;

/* Pages of sparse layers that are on the device, too (resident.c). */
typedef struct dci_gpu_kv_resident {
        size_t n_places, n_free,
                bytes;         /* a place has room for one block in all sparse layers; n_places 0: there are none */
        unsigned char *memory; /* of the device: [sparse layer][place][block] */
        int32_t *places, *device_places;      /* by block: its place, or -1 */
        int32_t *blocks, *free_list;          /* by place: whose it is, or -1 */
        int32_t *changes[DCI_GPU_KV_RECORDS]; /* locked, of a step: blocks and their places */
        size_t n_changes;
        uint64_t *taken; /* of the device: [sparse layer][row][head], units that gathers found there */
} dci_gpu_kv_resident;

/* What plans leave to the next ones on the device (schedule.c). */
typedef struct dci_gpu_kv_schedule {
        bool on;                                     /* lists are kept between plans */
        size_t states_bytes, layer_bytes, row_bytes; /* of a row: all layers' states; a layer's part; all */
        unsigned char *memory;                       /* [row] */
        int32_t *due;                                /* of the layer at hand, by list */
        int32_t *states;                             /* locked, of a row */
        unsigned char *turned;                       /* locked: marks of the gate (boundaries.c) */
        /* AHEAD: lists of the next plan are chosen on another stream, until the layer's attention is queued. */
        bool has_stream, beside;
        void *stream, *taken, *chosen; /* events: the plan's lists are there; those of the next one */
} dci_gpu_kv_schedule;

/* Listed groups of a row and layer that the device has (clusters.c). */
typedef struct dci_gpu_kv_cluster_state {
        size_t grouped; /* candidates that lie in them */
        size_t ranked;  /* of these, those of the batches that plans rank; SIZE_MAX: not known on the device */
} dci_gpu_kv_cluster_state;

/* Clusters of one prompt that were made on the device, until the host takes them over (prompt_kmeans.c). */
typedef struct dci_gpu_kv_prompt_kmeans_result {
        struct dci_gpu_kv_prompt_kmeans_result *next;
        int64_t sequence; /* -1: nobody's */
        size_t n, k;      /* candidates, clusters */
        size_t n_bytes;
        unsigned char *memory; /* locked: [sparse layer] */
        uint32_t there[];      /* by sparse layer: the step that made them, 0: none did */
} dci_gpu_kv_prompt_kmeans_result;

typedef struct dci_gpu_kv_prompt_kmeans {
        unsigned char *work; /* of the device: results of two layers, and scratch; taken when the first prompt ends */
        size_t work_bytes, result_bytes;
        void *done[2]; /* events: results have left their place */
        size_t next;
        dci_gpu_kv_prompt_kmeans_result *results;
        uint64_t n_layers; /* that the host has taken over */
} dci_gpu_kv_prompt_kmeans;

/* What plans are made with on the device (summaries.c, select.c). */
typedef struct dci_gpu_kv_planner {
        bool on;
        int32_t kind, weigh, group_shift; /* gpu/args/select.h */
        size_t first_layer;               /* the first sparse one */
        size_t at_hand;                   /* the layer that was planned last: lists lie in one place for all */
        bool listed;                      /* groups are listed (clusters.c) */
        size_t spans_at;                  /* listed: behind their rows */
        size_t max_groups;                /* of a list */
        size_t at_once;                   /* sequences whose scores there is room for */
        size_t bytes;                     /* of pieces */

        dci_gpu_kv_store summaries, ids; /* ids: listed */
        int32_t *n_listed;               /* listed: groups, [sparse layer][row][head] */
        dci_gpu_kv_cluster_state *lists; /* listed: [row][sparse layer] */
        unsigned char *upload;           /* locked: UPLOAD_BYTES, or a chunk */
        size_t upload_bytes;
        float *value_signs, *value_centres; /* of a low-bit tail, as those of the keys; NULL: it is another */
        float *signs, *centres, *lasts; /* centres [sparse layer][row][head][dim], lasts [sparse layer][row][head] */

        unsigned char *frames; /* of learned codes: [sparse layer][row][head] (gpu/args/frames.h) */
        unsigned char *coding; /* what a prompt's codes are made from, as large as upload (learned_codes.c) */

        /* Of the layer at hand. */
        float *scores, *parts;
        uint64_t *found;
        int32_t *n_found, *positions, *counts, *header;
        float *tail_partial, *tail_out, *tail_lse;
        int32_t *tail_arrived;

        dci_gpu_kv_schedule schedule;
        dci_gpu_kv_prompt_kmeans clusters;
} dci_gpu_kv_planner;

struct dci_gpu_kv {
        dci_gpu *gpu;
        const dci_gpu_ops *ops;
        dci_kv *host;
        dci_gpu_kv_config config; /* nothing is left open */
        dci_kv_config shape;      /* of host, as checked */
        pthread_mutex_t lock;
        bool broken; /* the device has failed */
        char sentence[256];
        dci_status refused; /* what the hook met, and its sentence */
        char refusal[256];

        size_t n_sparse, n_dense, group, dim, es, query_es, stride; /* stride: of lists */
        size_t row_bytes;                                           /* of a key, and of a value */
        size_t max_blocks;                                          /* of a sequence */
        int32_t page_shift, unit_shift;
        size_t n_frames, n_slots; /* of a lane */
        size_t n_lists;           /* max_sequences * kv heads */
        bool resolves_on_host;    /* a baseline of gathering */
        bool groups;              /* some layer forms groups */

        dci_gpu_kv_row *rows;
        uint16_t *places; /* by the lowest bits of an id: the row that one with these had last (dci_gpu_kv_find) */
        size_t n_places;
        dci_gpu_kv_layer *layers;
        dci_gpu_kv_planner planner;
        dci_gpu_kv_resident resident;

        /* Locked memory, mapped: address on the device = pointer - pinned + pinned_device. */
        unsigned char *pinned, *pinned_device;
        size_t pinned_bytes, pool_bytes; /* of `pinned` and prompts' chunks; of the pool */
        int32_t *records[DCI_GPU_KV_RECORDS];
        int32_t *bad;    /* by row */
        int32_t *tables; /* [row][max_blocks]: the mirror */
        unsigned char **pieces, **dense_pieces;
        unsigned char *queries;
        int32_t *refill; /* row, number of items, items */
        uint64_t *bounce;
        size_t n_pieces, n_uploaded, piece_capacity;

        /* Memory of the device. */
        unsigned char *lanes, *table_memory, *buffer_memory;
        size_t lane_bytes, table_bytes, buffer_bytes, dense_bytes;
        size_t dense_piece_bytes;
        int32_t *device_record, *device_tables;
        unsigned char **device_pieces, **device_dense;
        int32_t *tags; /* [sparse layer][row][head][frame]; baselines: in host memory, as the next two */
        uint32_t *stamps;
        uint64_t *counters; /* [sparse layer][row][head][3] */
        int32_t *answer;    /* header 3 * max_sequences, counts, slots */
        dci_gpu_item *items;
        int32_t *n_items;
        float *partial;
        int32_t *arrived;
        unsigned char *staging[DCI_GPU_KV_STAGING];
        size_t staging_blocks;

        /* fetch_baselines.c: baselines. */
        unsigned char *host_memory; /* tags, stamps, counters; then pointers of copies */
        size_t host_bytes;
        void **copy_to;
        const void **copy_from;
        size_t *copy_bytes;
        size_t max_copies;
        unsigned char *staged, *staged_device; /* pinned; on the device */
        unsigned char **staged_piece;          /* on the device: one pointer, staged_device */
        int32_t *staged_table;                 /* on the device: 0, 1, .. */
        dci_gpu_item *host_items;              /* pinned, items as resolved; and as they are staged */
        dci_gpu_item *staged_items;
        int32_t *host_n_items; /* pinned */
        void *fetched;

        /* Host memory without the device's eyes: names of a call, slots of plans. */
        unsigned char *scratch;
        size_t scratch_bytes;
        int64_t *names;

        void *side;
        void *record_events[DCI_GPU_KV_RECORDS], *staging_events[DCI_GPU_KV_STAGING];
        void *main_event, *side_event, *step_event, *query_event;
        size_t next_staging;

        struct {
                bool open, packed;
                bool formed; /* what was due is formed on the device, whatever becomes of the step */
                void *stream;
                size_t n, n_tokens;
                int64_t *ids;
                size_t *wanted, *at; /* rows */
                int32_t *record;     /* on the host */
                size_t bound;        /* tokens that work is sized for; 0: those there are */
        } step;
        uint32_t now;

        dci_gpu_kv_prompt_end *ends;
        size_t n_ends, n_handed, end_capacity;
        dci_gpu_kv_chunk *chunks;

        uint64_t n_steps, bytes_refilled, bytes_written;
};

/* --- cache.c ---------------------------------------------------------------------------------------------------------------- */

/* Locks; refuses NULL and what has failed. */
dci_status dci_gpu_kv_lock(dci_gpu_kv *kv);
dci_status dci_gpu_kv_unlock(dci_gpu_kv *kv, dci_status status);
/* Of something that was asked of the device when it was too late to refuse: a failure is the end. */
dci_status dci_gpu_kv_check_device(dci_gpu_kv *kv, dci_status status);
/* Of a call to host that may have taken pieces: what the hook met is what is wrong. */
dci_status dci_gpu_kv_check_host(dci_gpu_kv *kv, dci_status status);
/* The last error's, as far as there is room. */
void dci_gpu_kv_keep_sentence(char *out, size_t n_bytes);
/* That nobody captures the step that is open: before anything that waits. Nothing has failed if somebody does, and nothing has changed. */
dci_status dci_gpu_kv_check_runs(dci_gpu_kv *kv);
/* Until all that was queued is done. */
dci_status dci_gpu_kv_drain(dci_gpu_kv *kv);
/* Until the rows of whole steps are in host memory. */
dci_status dci_gpu_kv_wait_rows(dci_gpu_kv *kv);
/* NULL with an error for an unknown sequence. */
dci_gpu_kv_row *dci_gpu_kv_find(dci_gpu_kv *kv, int64_t sequence);
/* That it has got no row with NaN or infinity, as of the work that is done. */
dci_status dci_gpu_kv_check_good(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);

/* --- layout.c ----------------------------------------------------------------------------------------------------------- */

/* Takes what is taken at once; n_bytes that would be too many are refused before. */
dci_status dci_gpu_kv_alloc_all(dci_gpu_kv *kv);
void dci_gpu_kv_free_all(dci_gpu_kv *kv);
/* That so many bytes more on the device are within max_device_bytes. */
dci_status dci_gpu_kv_check_device_bytes(const dci_gpu_kv *kv, size_t more);
/* The hook of host. */
dci_kv_hook dci_gpu_kv_hook(dci_gpu_kv *kv);
/* Locked memory of the library: aligned to pages. */
dci_status dci_gpu_kv_pin(dci_gpu_kv *kv, size_t n_bytes, unsigned char **out, unsigned char **out_device);
void dci_gpu_kv_unpin(dci_gpu_kv *kv, unsigned char *memory, size_t n_bytes);
/* Tells the device of pieces that it does not know. */
dci_status dci_gpu_kv_upload_pieces(dci_gpu_kv *kv, void *stream);
/* The device's copy of a dense layer's blocks, from host memory: n of the row's table from number `first` on. */
dci_status dci_gpu_kv_dense_fill(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n);
/* Blocks [first, the result) of a table, at most those before `end`, follow each other in one piece. */
size_t dci_gpu_kv_run_end(const dci_gpu_kv *kv, const int32_t *table, size_t first, size_t end);
/* Copies the row's table from the host's mirror: n entries from number `first` on. */
dci_status dci_gpu_kv_upload_table(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n);
unsigned char *dci_gpu_kv_host_block(const dci_gpu_kv *kv, size_t layer, int32_t block);
dci_gpu_pool dci_gpu_kv_host_pool(const dci_gpu_kv *kv, size_t layer);
/* pieces NULL for layers that have none. */
dci_gpu_pool dci_gpu_kv_dense_pool(const dci_gpu_kv *kv, size_t layer);
dci_gpu_lanes dci_gpu_kv_lanes(const dci_gpu_kv *kv, size_t layer);
dci_gpu_resident dci_gpu_kv_resident_of(const dci_gpu_kv *kv, size_t layer);
dci_gpu_tables dci_gpu_kv_tables(const dci_gpu_kv *kv);

DCI_INLINE size_t dci_gpu_kv_row_at(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return (size_t)(row - kv->rows);
}
/* Its number among the sequences of the step that is open. */
DCI_INLINE size_t dci_gpu_kv_at_step(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        size_t i = 0;
        while (kv->step.at[i] != dci_gpu_kv_row_at(kv, row))
                i++;
        return i;
}
/* What the host has of it. */
DCI_INLINE dci_kv_sequence *dci_gpu_kv_host_sequence(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return dci_kv_find(kv->host, row->id);
}
/* What the device sees of a pointer into `pinned`. */
DCI_INLINE void *dci_gpu_kv_mapped(const dci_gpu_kv *kv, const void *pointer)
{
        return pointer == NULL ? NULL : kv->pinned_device + ((const unsigned char *)pointer - kv->pinned);
}
DCI_INLINE size_t dci_gpu_kv_record_ints(const dci_gpu_kv *kv, size_t n)
{
        return 1 + (DCI_GPU_KV_NUMBERS + (kv->planner.listed ? kv->n_sparse : 0)) * n;
}
/* An array of the step's record, on the device. */
DCI_INLINE const int32_t *dci_gpu_kv_record(const dci_gpu_kv *kv, size_t which)
{
        return kv->device_record + 1 + which * kv->step.n;
}
DCI_INLINE size_t dci_gpu_kv_blocks(const dci_gpu_kv *kv, size_t n_tokens)
{
        return (n_tokens + kv->shape.page_tokens - 1) >> kv->page_shift;
}

/* --- resident.c: nothing where there are no places --------------------------------------------------------------------------------- */

/* Of a step that begins, on its stream, when tables are what they will be: its new pages get places, for which others may leave. */
dci_status dci_gpu_kv_resident_step(dci_gpu_kv *kv);
/* The row's copy of this block, which others have, takes its place in the row's table. */
void dci_gpu_kv_resident_copied(dci_gpu_kv *kv, dci_gpu_kv_row *row, int32_t block);
/* The device is idle, for all of these. Blocks were freed; a row was cut; a row's pages come as far as places are free. */
dci_status dci_gpu_kv_resident_sweep(dci_gpu_kv *kv);
void dci_gpu_kv_resident_recount(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_resident_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);

/* --- sequence.c ----------------------------------------------------------------------------------------------------------- */

/* What the device has of a row whose sequence had n tokens and has `left` now. The device is idle. */
dci_status dci_gpu_kv_truncate_row(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n, size_t left);

/* --- step.c, prompt.c ---------------------------------------------------------------------------------------------------- */

/* That a step is open, and on this stream; that there is such a layer. */
dci_status dci_gpu_kv_check_step(dci_gpu_kv *kv, void *stream, size_t layer);
/* Tells the host of prompts' ends in the order they came: all whose rows have arrived, without a word about failures; or waits for the
 * first n of them. */
void dci_gpu_kv_hand_over_ready(dci_gpu_kv *kv);
dci_status dci_gpu_kv_hand_over(dci_gpu_kv *kv, size_t n);
/* Those up to the last one of a layer. */
dci_status dci_gpu_kv_hand_over_layer(dci_gpu_kv *kv, size_t layer);
void dci_gpu_kv_forget_ends(dci_gpu_kv *kv);
void dci_gpu_kv_free_chunks(dci_gpu_kv *kv);

/* --- chunk_store.c --------------------------------------------------------------------------------------------------------------- */

/* Sizes, for rows of at most so many candidates, or groups. What is taken at once is placed by layout.c. */
void dci_gpu_kv_store_init(dci_gpu_kv *kv, dci_gpu_kv_store *s, size_t head_bytes, size_t max_rows);
void dci_gpu_kv_store_destroy(dci_gpu_kv *kv, dci_gpu_kv_store *s);
/* That n chunks more can be had. */
dci_status dci_gpu_kv_store_ready(dci_gpu_kv *kv, dci_gpu_kv_store *s, size_t n);
/* One of those, for its first owner; and one owner less. */
int32_t dci_gpu_kv_store_alloc(dci_gpu_kv_store *s);
void dci_gpu_kv_store_free(dci_gpu_kv_store *s, int32_t chunk);
/* A row's first `left` chunks stay; another row's first n are shared with one that has none. */
void dci_gpu_kv_store_truncate(dci_gpu_kv_store *s, size_t row, size_t left);
void dci_gpu_kv_store_share(dci_gpu_kv_store *s, size_t from, size_t to, size_t n);
/* Chunks that a row lacks to have n, those from number `first` on its own; and having them: what was in those may be lost. */
size_t dci_gpu_kv_store_missing(const dci_gpu_kv_store *s, size_t row, size_t first, size_t n);
dci_status dci_gpu_kv_store_make_exclusive(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t first,
                                           size_t n);
/* Pieces that the device does not know, and a row's numbers from `first` on. */
dci_status dci_gpu_kv_store_upload(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t first);
unsigned char *dci_gpu_kv_store_at(const dci_gpu_kv_store *s, size_t sparse, int32_t chunk);
dci_gpu_chunks dci_gpu_kv_store_chunks(const dci_gpu_kv *kv, const dci_gpu_kv_store *s, size_t layer);
DCI_INLINE int32_t *dci_gpu_kv_store_numbers(const dci_gpu_kv_store *s, size_t row)
{
        return s->numbers + row * s->max_chunks;
}
DCI_INLINE size_t dci_gpu_kv_chunks_of(size_t n)
{
        return (n + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK;
}

/* --- planner.c, summaries.c --------------------------------------------------------------------------------- */

/* Whether the device can plan this, or a sentence that says why not (DCI_ERR_UNSUPPORTED). */
dci_status dci_gpu_kv_can_plan(const dci_kv_config *shape, const dci_gpu_kv_config *config);
/* Sizes, after the layers are known; what is taken at once is placed by layout.c; then what is written once. */
void dci_gpu_kv_planner_init(dci_gpu_kv *kv);
dci_status dci_gpu_kv_planner_begin(dci_gpu_kv *kv);
void dci_gpu_kv_planner_destroy(dci_gpu_kv *kv);
/* Before a step: what the device cannot form is formed by the host and brought there, and chunks are there for the rest. Says in rows what
 * is formed in the step. */
dci_status dci_gpu_kv_planner_reserve(dci_gpu_kv *kv);
/* What a prompt gave and the host is to form comes now, before the sequence is shared or cut. */
dci_status dci_gpu_kv_planner_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* On the step's stream, before its first sparse layer's rows are stored. */
dci_status dci_gpu_kv_build(dci_gpu_kv *kv);
/* A layer's prompt has ended: formed from the rows of this step, if they are all of it, or from those that were named. */
dci_status dci_gpu_kv_build_prompt(dci_gpu_kv *kv, size_t layer, dci_gpu_kv_row *row);
void dci_gpu_kv_planner_step_end(dci_gpu_kv *kv, bool aborted);
/* Before a step is taken back: forms what it has not. */
dci_status dci_gpu_kv_planner_abort(dci_gpu_kv *kv);
/* The host forms what it has not, codes are made anew where that is due, and the device gets what it has not. */
dci_status dci_gpu_kv_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* A new row; a row that is gone; another's first n tokens; a row cut to n tokens. The device is idle. */
dci_status dci_gpu_kv_planner_open(dci_gpu_kv *kv, dci_gpu_kv_row *row);
void dci_gpu_kv_planner_close(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_planner_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to);
dci_status dci_gpu_kv_planner_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n);

/* Candidates that the host has in all layers which form any: a prompt may end in one of them later than in another. */
size_t dci_gpu_kv_host_grouped(const dci_gpu_kv *kv, const dci_kv_sequence *sequence);

/* Codes in frames of a row's own. */
DCI_INLINE bool dci_gpu_kv_coded(const dci_gpu_kv_planner *p)
{
        return p->kind == DCI_GPU_CODES || p->kind == DCI_GPU_LEARNED;
}
/* That its prompt has ended in all layers that choose. */
dci_status dci_gpu_kv_check_prompted(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);

/* --- clusters.c ---------------------------------------------------------------------------------------------------------------- */

bool dci_gpu_kv_has_clusters(const dci_kv_config *shape);
/* Sizes; returns the most groups of a head. */
size_t dci_gpu_kv_clusters_init(dci_gpu_kv *kv);
/* A row's, by sparse layer. */
DCI_INLINE dci_gpu_kv_cluster_state *dci_gpu_kv_clusters_of(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return kv->planner.lists + dci_gpu_kv_row_at(kv, row) * kv->n_sparse;
}
void dci_gpu_kv_clusters_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Candidates that lie in groups which plans of a sparse layer choose from. */
size_t dci_gpu_kv_clusters_grouped(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer);
/* Before a step: the host forms what its own plans would have formed by now. That stays, whatever becomes of the step. */
dci_status dci_gpu_kv_clusters_reserve(dci_gpu_kv *kv);
/* As those above, of rows whose groups are listed. settle: of a prompt that ended. */
dci_status dci_gpu_kv_clusters_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_clusters_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_clusters_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to);
/* The host's sequence is cut already. */
dci_status dci_gpu_kv_clusters_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row);

/* --- prompt_kmeans.c -------------------------------------------------------------------------------------------------------------- */

/* A layer's prompt of n_tokens has ended: queues its clusters, if the device can make them, from rows of which number `token` is the first behind the
 * sink. */
dci_status dci_gpu_kv_prompt_kmeans_begin(dci_gpu_kv *kv, size_t layer, const dci_gpu_kv_row *row, size_t n_tokens,
                                          const dci_kv_rows *rows, size_t token);
/* The host takes over those of a row that are there; the side stream has been waited for. */
dci_status dci_gpu_kv_prompt_kmeans_collect(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Those of the step that is taken back; of a row that is closed. */
void dci_gpu_kv_prompt_kmeans_forget(dci_gpu_kv *kv);
void dci_gpu_kv_prompt_kmeans_close(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
void dci_gpu_kv_prompt_kmeans_destroy(dci_gpu_kv *kv);

/* A layer's chunks from number `first` to n, from the host's; the host waits. */
dci_status dci_gpu_kv_upload_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from,
                                   size_t first, size_t n);

dci_status dci_gpu_kv_upload_centres(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from);

/* --- learned_codes.c: nothing where summaries are others ------------------------------------------------------------------------------ */

/* The frames of a layer's heads; a row's, all of them, to another one. */
dci_status dci_gpu_kv_upload_transforms(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer,
                                        const dci_kv_layer *from);
dci_status dci_gpu_kv_fork_transforms(dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to);
/* Of dci_gpu_kv_planner_reserve: what the host has, or is to form, comes to the device. due: candidates that there may be; after: tokens
 * behind the step. */
dci_status dci_gpu_kv_learned_reserve(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t due, size_t after);
/* Bytes that making a prompt's codes takes at least, here and on the device; 0: the host makes them. */
size_t dci_gpu_kv_coding_bytes(const dci_gpu_kv *kv);
/* A row whose prompt has ended gets what that gives, if the device makes its codes and has not yet; whatever the host lacks of the chunk that
 * is written to next, it forms. The rows are there, and the host's work is done. settle: waits for both, before the sequence is shared or cut. */
dci_status dci_gpu_kv_learned_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row);
dci_status dci_gpu_kv_learned_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* Before a layer's plan, when its prompts have ended and the host knows: what those of the step gave is formed, and brought up, all of it or (without
 * memory) nothing that counts. */
dci_status dci_gpu_kv_learned_plan(dci_gpu_kv *kv, size_t layer);

/* --- select.c ---------------------------------------------------------------------------------------------------------------- */

/* Lists of one layer, on the step's stream. */
dci_status dci_gpu_kv_select(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld);
dci_gpu_chunks dci_gpu_kv_chunks(const dci_gpu_kv *kv, size_t layer);
dci_gpu_sizes dci_gpu_kv_sizes(const dci_gpu_kv *kv);
/* Parts that the scores of so many sequences' lists are made in. */
int32_t dci_gpu_kv_score_parts(const dci_gpu_kv *kv, size_t n_sequences);

/* --- tail.c ----------------------------------------------------------------------------------------------------------------- */

/* Whether the device has this tail, or a sentence. */
dci_status dci_gpu_kv_can_tail(const dci_kv_config *shape, size_t max_tokens);
/* What forming codes forms besides, in the same call, and in calls of its own; of a step, and of a prompt's end. */
void dci_gpu_kv_encode_values(const dci_gpu_kv *kv, dci_gpu_encode_args *args);
dci_status dci_gpu_kv_build_means(dci_gpu_kv *kv, const dci_gpu_encode_args *codes);
void dci_gpu_kv_encode_prompt_values(const dci_gpu_kv *kv, size_t layer, const dci_kv_rows *rows,
                                     dci_gpu_encode_prompt_args *args);
dci_status dci_gpu_kv_build_prompt_means(dci_gpu_kv *kv, const dci_gpu_encode_prompt_args *codes);
/* Floats that parts of a tail take. */
size_t dci_gpu_kv_tail_floats(const dci_gpu_kv *kv);
/* Behind the choice, of the same sequences; and behind the gathering, of all. Nothing where the tail is another. */
dci_status dci_gpu_kv_tail_of_scores(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score, size_t first);
dci_status dci_gpu_kv_tail_of_means(dci_gpu_kv *kv, size_t layer, const void *queries, size_t ld);

/* step.c: checks rows on the device, and gives their strides in bytes as elements. */
dci_status dci_gpu_kv_check_rows(dci_gpu_kv *kv, const dci_kv_rows *rows, dci_kv_rows *out);

/* --- schedule.c -------------------------------------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_can_schedule(const dci_kv_config *shape);
/* As those of the planner, which call them. */
void dci_gpu_kv_schedule_init(dci_gpu_kv *kv);
dci_status dci_gpu_kv_schedule_begin(dci_gpu_kv *kv);
void dci_gpu_kv_schedule_destroy(dci_gpu_kv *kv);
dci_status dci_gpu_kv_schedule_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
dci_status dci_gpu_kv_schedule_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, const dci_gpu_kv_row *to);
/* After the host's: the row has n tokens now. The device is idle. */
dci_status dci_gpu_kv_schedule_truncate(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t n);
/* That the layer whose lists this one uses has a plan in this step. */
dci_status dci_gpu_kv_check_anchor(const dci_gpu_kv *kv, size_t layer);
/* A plan of sequences of the step, with lists that are kept; args as for a plan that decides for itself. */
dci_status dci_gpu_kv_schedule_plan(dci_gpu_kv *kv, size_t layer, const dci_gpu_score_args *score,
                                    const dci_gpu_select_args *select);
/* The step's stream waits for what is chosen beside it. */
dci_status dci_gpu_kv_schedule_join(dci_gpu_kv *kv);

/* --- boundaries.c: nothing where the host forms no segments by turns ------------------------------------------------------------- */

#define DCI_GPU_KV_BOUNDARIES 512 /* tokens whose marks there is room for; a power of two */

bool dci_gpu_kv_reports_boundaries(const dci_gpu_kv *kv);
/* What the gate of a layer is told. */
void dci_gpu_kv_boundaries_gate(const dci_gpu_kv *kv, size_t layer, dci_gpu_gate_args *args);
/* A new row, of n tokens already; the device is done with who had it before. */
void dci_gpu_kv_boundaries_open(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* Whether the host must take marks over before a step of so many tokens. */
bool dci_gpu_kv_boundaries_full(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t wanted);
/* The host's sequence gets what steps before have left; the device is done with those. */
dci_status dci_gpu_kv_boundaries_report(dci_gpu_kv *kv, dci_gpu_kv_row *row);
/* The row, whose marks are taken over, was cut; a step of so many tokens is taken back. */
void dci_gpu_kv_boundaries_truncate(dci_gpu_kv_row *row);
void dci_gpu_kv_boundaries_abort(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t wanted);

/* --- fetch_baselines.c ---------------------------------------------------------------------------------------------------------------- */

/* Slots of the layer's plan in kv->answer, and what is missing into its lanes. */
dci_status dci_gpu_kv_fetch(dci_gpu_kv *kv, void *stream, size_t layer);

#endif
