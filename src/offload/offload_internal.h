/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The object dci_gpu_kv, its rows and its layers. It owns a dci_kv, whose pool it locks piece by piece (pool.h), and
 * gives each sequence a row: its index in everything that is on the device. Each part of the object has a header of its
 * own; the object and all parts are one allocation (cache.c), the parts' arrays are placed by layout.c.
 *
 * Host memory that the device reads is not written again before the device has read it:
 *  - the batch record of a step is one of a ring of DCI_GPU_KV_RECORDS, each with an event;
 *  - tables only grow where they may be read; other changes wait for the device first;
 *  - each layer has one plan, and its next plan waits for its queries, which are queued after all earlier work.
 *
 * New rows reach host memory by the append kernel on the caller's stream, whole blocks of long prompts by copies on the
 * stream `side`. A step begins after all that an earlier one has queued on either.
 */
#ifndef DCI_OFFLOAD_OFFLOAD_INTERNAL_H
#define DCI_OFFLOAD_OFFLOAD_INTERNAL_H

#include "core/internal.h"

#include <pthread.h>

#include "dci/offload.h"
#include "gpu/gpu_internal.h"
#include "kv/chunk.h"
#include "kv/clustering.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/maintain.h"
#include "kv/pool.h"
#include "kv/prompt.h"
#include "kv/stages/schedule.h"
#include "kv/step.h"
#include "kv/summaries.h"

#define DCI_GPU_KV_RECORDS 4
#define DCI_GPU_KV_ORDER_NUMBERS 4           /* of each sparse layer in a step's record (orders.c) */
#define DCI_GPU_KV_STAGING 8                 /* buffers through which a prompt's rows go to the host, in turn */
#define DCI_GPU_LEARNED_BLOCK ((size_t)4096) /* bytes of 32 rows' learned codes that the device takes, at most */
#define DCI_GPU_KV_MAX_SEQUENCES ((size_t)4096)
/* Sequences of max_tokens that tables of host memory have room for beyond max_sequences; in at most so many pieces. */
#define DCI_GPU_KV_SWAPPED ((size_t)64)
#define DCI_GPU_KV_MORE_PIECES ((size_t)65536)

/* Where a row's transforms and summaries are up to date (kv/former.h). */
enum {
        /** the device has no transforms: the host builds, or a prompt's end */
        DCI_GPU_KV_NOWHERE,
        /** the device builds what is pending */
        DCI_GPU_KV_ON_DEVICE,
        /** the device's differ from the host's, and are all uploaded again */
        DCI_GPU_KV_ON_HOST
};

/* A sequence's place on the device. */
typedef struct dci_gpu_kv_row {
        int64_t id;     /* -1: the row is free */
        size_t n;       /* tokens of ended steps */
        size_t hot_end; /* positions from here on are in no hot slot */
        bool stepping;  /* in the step that is open */
        bool copied;    /* the device has the places and the table of contiguous copies (copies.h) */
        /* Plans made on the device (summaries.c). */
        int32_t where;           /* whose transforms hold: DCI_GPU_KV_NOWHERE ... */
        size_t n_formed;         /* candidates that have summaries on the device, in all layers */
        size_t boundary;         /* the host knows the boundaries before this token (boundaries.c) */
        struct {                 /* of the step that is open */
                bool prompting;  /* the prompt had not ended before */
                size_t n_formed; /* candidates that have summaries after it */
                size_t n_built;  /* layers whose prompt ended in it and has summaries on the device */
        } step;
        /* Resident pages (resident.c). */
        uint32_t stepped;          /* the last step that it was in */
        uint32_t asked;            /* the last step in which the caller asked for all of its rows (history.h) */
        size_t n_resident, oldest; /* pages; none before this one is resident */
        size_t cursor;             /* of the step that evicts */
} dci_gpu_kv_row;

/* A sequence that has no row (swap.c), and what only the device had of it. */
typedef struct dci_gpu_kv_swapped {
        struct dci_gpu_kv_swapped *next;
        dci_gpu_kv_row row; /* as it was; `where` is ON_HOST if the host has all summaries */
        int32_t bad;
        size_t n_chunks, n_bytes; /* of summaries in the image; of this struct and its image */
        unsigned char image[];
} dci_gpu_kv_swapped;

typedef struct dci_gpu_kv_layer {
        bool dense;
        size_t index; /* among the dense ones, or the sparse ones */
        bool appended, planned;
        bool built;              /* learned codes: prompts that ended in this step are encoded on the device */
        dci_kv_plan plan;        /* its arrays are in `pinned`; but for slots, which all layers share */
        size_t n_longest;        /* tokens attended to by the plan's longest list */
        int32_t *answer;         /* baselines: header, counts and slots as the device has them in kv->answer; pinned */
        void *arrived;           /* event: rows and queries of the prompt are in host memory */
        void *stored[2];         /* event of every second step: its rows are in host memory (history.h) */
        uint32_t stored_at[2];   /* the step that recorded it */
        dci_kv_rows rows;        /* of the step; strides are given */
        dci_kv_rows prompt_rows; /* of all of prompt_sequence; keys NULL: they were not named in this step */
        int64_t prompt_sequence;
} dci_gpu_kv_layer;

/* A step's batch record: `now` first, then arrays of n; SKIP has two numbers each. Where there are clusters or trees, the
 * candidates in them follow for each sparse layer. */
enum {
        DCI_GPU_KV_ROWS,
        DCI_GPU_KV_FIRST,
        DCI_GPU_KV_NEW,
        DCI_GPU_KV_BEGIN,
        DCI_GPU_KV_AFTER,
        /** candidates with summaries before the step, and at its plans */
        DCI_GPU_KV_FROM,
        DCI_GPU_KV_TO,
        /** candidates with places in contiguous copies */
        DCI_GPU_KV_PLACES,
        DCI_GPU_KV_SKIP,
        DCI_GPU_KV_NUMBERS = DCI_GPU_KV_SKIP + 2
};

/* With `preselect` (preselect.h); of the layer that was planned last. */
typedef struct dci_gpu_kv_preselect {
        size_t wanted, stride, max_means; /* units of a list, 0: no preselection; room for them; and for means */
        int32_t mean_shift;
        float *scores, *parts; /* of means */
        int32_t *units, *n_scored;
} dci_gpu_kv_preselect;

/* With trees (tree.h); of the layer that was planned last. */
typedef struct dci_gpu_kv_tree_plan {
        size_t max_pages; /* of a list */
        size_t page_rows; /* that a list scores, as is expected of the longest one */
        uint32_t *opened;
        float *page_scores;
        int32_t *page_numbers, *arrived;
} dci_gpu_kv_tree_plan;

/* With votes (votes.h): gpu/args/votes.h. */
typedef struct dci_gpu_kv_votes {
        bool on;
        size_t n_blocks, max_ranges, stride; /* stride: of a list that has scores */
        uint32_t *counts;                    /* [row][sparse layer][head][block][code] */
        int32_t *counted;                    /* [row][sparse layer][head][block] */
        /* Of the layer that was planned last. */
        int32_t *lists, *n_scored;
        float *queries;
        uint32_t *tables;
        uint8_t *votes;
        uint16_t *at_least;
        int32_t *having;
} dci_gpu_kv_votes;

/* What plans are made with on the device. */
typedef struct dci_gpu_kv_planner {
        bool on;
        bool clustered;                   /* groups are clusters or segments (clusters.h) */
        bool ordered;                     /* groups are pages of a stored order (orders.h) */
        bool trees;                       /* they are pages of trees (tree.h) */
        int32_t kind, weigh, group_shift; /* gpu/args/select.h */
        size_t first_layer;               /* the first sparse one */
        size_t planned_layer;             /* the one planned last: all have their lists in one place */
        size_t max_groups;                /* of a list, that have scores */
        size_t likely_groups;             /* of a list of max_tokens, usually */
        size_t batch;                     /* sequences whose scores there is room for */

        unsigned char *upload; /* locked */
        size_t upload_bytes;
        float *signs, *centres;             /* of codes; centres [sparse layer][row][head][dim] */
        float *value_signs, *value_centres; /* of a low-bit tail; NULL: it is another */
        float *lasts;                       /* [sparse layer][row][list of a sequence] */

        /* Of the layer that was planned last. */
        float *scores, *parts;
        uint64_t *found;
        int32_t *n_found, *positions, *counts, *header;
        dci_gpu_kv_preselect preselect;
        dci_gpu_kv_tree_plan tree;
        dci_gpu_kv_votes votes;
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

        size_t n_sparse, n_dense, dim, es, query_es, stride; /* stride: of lists */
        size_t share, group, head_lists; /* query heads of a kv head; of a list; lists of a kv head (kv_internal.h) */
        size_t row_bytes;                /* of a key, and of a value */
        size_t max_blocks;               /* of a sequence */
        int32_t page_shift, unit_shift;
        size_t n_frames, n_slots; /* of a lane */
        size_t n_lanes;           /* max_sequences * kv heads */
        size_t row_lists;         /* lists of a sequence: kv heads * head_lists */
        size_t n_lists;           /* max_sequences times that */
        bool resolves_on_host;    /* a baseline of gathering */
        bool groups;              /* some layer forms groups */

        dci_gpu_kv_row *rows;
        dci_gpu_kv_swapped *swapped;
        uint16_t *row_hints; /* by the lowest bits of an id: the row that one with these had last (dci_gpu_kv_find) */
        size_t n_row_hints;
        dci_gpu_kv_layer *layers;
        dci_gpu_kv_planner planner;

        /* Parts. Summaries: of clusters where there are clusters; ids: members of clusters. */
        struct dci_gpu_kv_pool *pool;
        struct dci_gpu_kv_resident *resident;
        struct dci_gpu_kv_copies *copies;
        struct dci_gpu_kv_store *summaries, *ids;
        struct dci_gpu_kv_schedule *schedule;
        unsigned char *boundaries; /* locked: marks of the gate (boundaries.c) */
        struct dci_gpu_kv_cluster_lists *clusters;
        struct dci_gpu_kv_orders *orders;
        struct dci_gpu_kv_trees *trees;
        struct dci_gpu_kv_prompt_kmeans *prompt_kmeans;
        struct dci_gpu_kv_learned *learned;
        struct dci_gpu_kv_tail *tail;
        struct dci_gpu_kv_baselines *baselines;
        struct dci_gpu_kv_prompts *prompts;
        struct dci_gpu_kv_history_buffers *history;

        /* Locked memory, mapped: address on the device = pointer - pinned + pinned_device. */
        unsigned char *pinned, *pinned_device;
        size_t pinned_bytes; /* all locked memory but that of the pool */
        int32_t *records[DCI_GPU_KV_RECORDS];
        int32_t *bad; /* [layer][row]: rows with NaN or infinity */
        unsigned char *queries;
        int32_t *refill; /* row, number of items, items */
        uint64_t *bounce;

        /* Memory of the device. */
        size_t device_bytes; /* all of it */
        unsigned char *lanes, *table_memory, *buffer_memory;
        size_t lane_bytes, table_bytes, buffer_bytes, summary_bytes;
        int32_t *device_record;
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

        /* Host memory that the device does not see: names of a call, slots of plans. */
        unsigned char *scratch;
        size_t scratch_bytes;
        int64_t *names;

        void *side, *history_stream, *cluster_stream; /* NULL: there were no clusters of a prompt yet */
        void *record_events[DCI_GPU_KV_RECORDS], *staging_events[DCI_GPU_KV_STAGING];
        void *main_event, *side_event, *step_event, *query_event;
        size_t next_staging;
        bool ahead; /* lists of a next plan are being selected on another stream, until this event (schedule.c) */
        void *ahead_event;

        struct {
                bool open, packed;
                bool built; /* what was due is built on the device, whether the step ends or is aborted */
                void *stream;
                size_t n, n_tokens;
                int64_t *ids;
                size_t *wanted, *rows;
                int32_t *record; /* on the host */
                size_t bound;    /* tokens that work is sized for; 0: those there are */
        } step;
        uint32_t now;

        uint64_t n_steps, bytes_refilled, bytes_written;
};

#endif
