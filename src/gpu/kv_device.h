/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a dci_gpu_kv is made of. It owns a dci_kv, whose pool it locks piece by piece (kv_memory.c), and gives each sequence a row: its
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
#ifndef DCI_GPU_KV_DEVICE_H
#define DCI_GPU_KV_DEVICE_H

#include "gpu/gpu_internal.h"

#include <pthread.h>

#include "kv/kv_internal.h"

#define DCI_GPU_KV_RECORDS 4
#define DCI_GPU_KV_MAX_SEQUENCES ((size_t)4096)

/* A sequence's place on the device. */
typedef struct dci_gpu_kv_row {
        int64_t id;    /* -1: nobody's */
        size_t n;      /* tokens of whole steps */
        size_t listed; /* positions from here on are in no hot slot */
        bool stepping; /* in the step that is open */
} dci_gpu_kv_row;

typedef struct dci_gpu_kv_layer {
        bool dense;
        size_t index; /* among the dense ones, or the sparse ones */
        bool appended, planned;
        dci_kv_plan plan; /* its arrays lie in `pinned`; but for slots, which all layers share */
        size_t n_longest; /* tokens attended to by the plan's longest list */
        int32_t *answer;  /* baselines: header, counts and slots as the device has them in kv->answer; pinned */
        void *arrived;    /* event: rows and queries of the prompt are in host memory */
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

/* A step's batch record: `now` first, then arrays of n. */
enum { DCI_GPU_KV_ROWS, DCI_GPU_KV_FIRST, DCI_GPU_KV_NEW, DCI_GPU_KV_BEGIN, DCI_GPU_KV_AFTER, DCI_GPU_KV_SKIP };

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
        dci_gpu_kv_layer *layers;

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
        unsigned char *staging[2];
        size_t staging_blocks;

        /* kv_fetch.c: baselines. */
        unsigned char *host_memory; /* tags, stamps, counters; then pointers of copies */
        size_t host_bytes;
        void **copy_to;
        const void **copy_from;
        size_t *copy_bytes;
        size_t most_copies;
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
        void *record_events[DCI_GPU_KV_RECORDS], *staging_events[2];
        void *main_event, *side_event, *step_event, *query_event;
        size_t next_staging;

        struct {
                bool open, packed;
                void *stream;
                size_t n, n_tokens;
                int64_t *ids;
                size_t *wanted, *at; /* rows */
                int32_t *record;     /* on the host */
        } step;
        uint32_t now;

        dci_gpu_kv_prompt_end *ends;
        size_t n_ends, n_handed, end_capacity;
        dci_gpu_kv_chunk *chunks;

        uint64_t n_steps, bytes_refilled, bytes_written;
};

/* --- kv.c ---------------------------------------------------------------------------------------------------------------- */

/* Locks; refuses NULL and what has failed. */
dci_status dci_gpu_kv_enter(dci_gpu_kv *kv);
dci_status dci_gpu_kv_leave(dci_gpu_kv *kv, dci_status status);
/* Of something that was asked of the device when it was too late to refuse: a failure is the end. */
dci_status dci_gpu_kv_did(dci_gpu_kv *kv, dci_status status);
/* Of a call to host that may have taken pieces: what the hook met is what is wrong. */
dci_status dci_gpu_kv_told(dci_gpu_kv *kv, dci_status status);
/* The last error's, as far as there is room. */
void dci_gpu_kv_keep_sentence(char *out, size_t n_bytes);
/* Until all that was queued is done. */
dci_status dci_gpu_kv_settle(dci_gpu_kv *kv);
/* Until the rows of whole steps are in host memory. */
dci_status dci_gpu_kv_rows_wait(dci_gpu_kv *kv);
/* NULL with an error for an unknown sequence. */
dci_gpu_kv_row *dci_gpu_kv_find(dci_gpu_kv *kv, int64_t sequence);
/* That it has got no row with NaN or infinity, as of the work that is done. */
dci_status dci_gpu_kv_check_good(const dci_gpu_kv *kv, const dci_gpu_kv_row *row);

/* --- kv_memory.c ----------------------------------------------------------------------------------------------------------- */

/* Takes what is taken at once; n_bytes that would be too many are refused before. */
dci_status dci_gpu_kv_take_all(dci_gpu_kv *kv);
void dci_gpu_kv_give_all(dci_gpu_kv *kv);
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
dci_gpu_tables dci_gpu_kv_tables(const dci_gpu_kv *kv);

DCI_INLINE size_t dci_gpu_kv_row_at(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return (size_t)(row - kv->rows);
}
/* What the device sees of a pointer into `pinned`. */
DCI_INLINE void *dci_gpu_kv_mapped(const dci_gpu_kv *kv, const void *pointer)
{
        return pointer == NULL ? NULL : kv->pinned_device + ((const unsigned char *)pointer - kv->pinned);
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

/* --- kv_sequence.c ----------------------------------------------------------------------------------------------------------- */

/* What the device has of a row whose sequence had n tokens and has `left` now. The device is idle. */
dci_status dci_gpu_kv_cut_row(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n, size_t left);

/* --- kv_step.c, kv_prompt.c ---------------------------------------------------------------------------------------------------- */

/* That a step is open, and on this stream; that there is such a layer. */
dci_status dci_gpu_kv_check_step(dci_gpu_kv *kv, void *stream, size_t layer);
/* Tells the host of prompts' ends in the order they came: all whose rows have arrived, without a word about failures; or waits for the first
 * n of them. */
void dci_gpu_kv_hand_over_ready(dci_gpu_kv *kv);
dci_status dci_gpu_kv_hand_over(dci_gpu_kv *kv, size_t n);
/* Those up to the last one of a layer. */
dci_status dci_gpu_kv_hand_over_layer(dci_gpu_kv *kv, size_t layer);
void dci_gpu_kv_forget_ends(dci_gpu_kv *kv);
void dci_gpu_kv_give_chunks(dci_gpu_kv *kv);

/* --- kv_fetch.c ---------------------------------------------------------------------------------------------------------------- */

/* Slots of the layer's plan in kv->answer, and what is missing into its lanes. */
dci_status dci_gpu_kv_fetch(dci_gpu_kv *kv, void *stream, size_t layer);

#endif
